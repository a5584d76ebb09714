// SPDX-License-Identifier: Apache-2.0
//! The frame around every page, and the headers that keep it to itself: no third party is ever
//! asked for anything, nothing may be framed, no inline script or style runs.

use askama::Template;
use axum::response::{Html, IntoResponse, Response};
use http::{HeaderName, HeaderValue, StatusCode, header};

use crate::error::Error;
use crate::session::Session;

/// The places of the console: address and name.
const PLACES: [(&str, &str); 7] = [
    ("/", "Fleet"),
    ("/hypervisors", "Hypervisors"),
    ("/incidents", "Incidents"),
    ("/evictions", "Evictions"),
    ("/migrations", "Migrations"),
    ("/capacity", "Capacity"),
    ("/activity", "Activity"),
];
/// Where the world is simulated.
const SIMULATION: (&str, &str) = ("/simulation", "Simulation");

#[derive(Template)]
#[template(path = "frame.html")]
struct Frame<'a> {
    title: &'a str,
    here: &'a str,
    user: Option<&'a str>,
    csrf: &'a str,
    live: Option<&'a str>,
    trouble: &'a str,
    main: &'a str,
    places: Vec<(&'static str, &'static str)>,
}

impl Frame<'_> {
    /// The name of somebody without what every account of a cluster begins with.
    fn short<'n>(&self, user: &'n str) -> &'n str {
        user.strip_prefix("system:serviceaccount:")
            .and_then(|account| account.split_once(':'))
            .map_or(user, |(_, name)| name)
    }
}

/// A page for somebody who is signed in. With `live` it keeps itself current.
pub(crate) fn page(
    session: &Session,
    title: &str,
    here: &str,
    live: Option<&str>,
    trouble: &str,
    main: &str,
) -> Result<Response, Error> {
    let frame = Frame {
        title,
        here,
        user: Some(&session.user),
        csrf: &session.csrf,
        live,
        trouble,
        main,
        places: PLACES
            .into_iter()
            .chain(session.simulated.then_some(SIMULATION))
            .collect(),
    };
    Ok(Html(frame.render()?).into_response())
}

/// A page for somebody who is not.
pub(crate) fn outside(title: &str, main: &str) -> Result<Response, Error> {
    let frame = Frame {
        title,
        here: "",
        user: None,
        csrf: "",
        live: None,
        trouble: "",
        main,
        places: Vec::new(),
    };
    Ok(Html(frame.render()?).into_response())
}

#[derive(Template)]
#[template(path = "refusal.html")]
struct Refusal<'a> {
    title: &'a str,
    text: &'a str,
}

/// The page that says why something did not work.
pub(crate) fn refusal(status: StatusCode, text: &str) -> Response {
    let title = status.canonical_reason().unwrap_or("Not done");
    let page = Refusal { title, text }.render();
    match page.map_err(Error::from).and_then(|main| outside(title, &main)) {
        Ok(response) => response,
        Err(_) => text.to_owned().into_response(),
    }
}

const POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; \
                      img-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

/// Adds the headers that every answer carries.
pub(crate) async fn guarded(mut response: Response) -> Response {
    let always = [
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (
            HeaderName::from_static("cross-origin-opener-policy"),
            "same-origin",
        ),
        (
            HeaderName::from_static("cross-origin-resource-policy"),
            "same-origin",
        ),
    ];
    let headers = response.headers_mut();
    for (name, value) in always {
        headers.insert(name, HeaderValue::from_static(value));
    }
    headers
        .entry(header::CACHE_CONTROL)
        .or_insert(HeaderValue::from_static("no-store"));
    response
}
