// SPDX-License-Identifier: Apache-2.0
//! The style sheet, the script and the icon, kept inside the program.

use axum::extract::Path;
use axum::response::{IntoResponse, Response};
use http::{HeaderValue, header};

use crate::error::Error;

const FILES: [(&str, &str, &str); 3] = [
    (
        "console.css",
        "text/css; charset=utf-8",
        include_str!("../assets/console.css"),
    ),
    (
        "console.js",
        "text/javascript; charset=utf-8",
        include_str!("../assets/console.js"),
    ),
    ("icon.svg", "image/svg+xml", include_str!("../assets/icon.svg")),
];

/// `/assets/NAME`.
pub(crate) async fn serve(Path(name): Path<String>) -> Result<Response, Error> {
    let found = FILES.iter().find(|(file, _, _)| *file == name);
    let (_, kind, text) = found.ok_or(Error::NotFound { kind: "file", name })?;
    let mut response = text.into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("max-age=300"));
    Ok(response)
}
