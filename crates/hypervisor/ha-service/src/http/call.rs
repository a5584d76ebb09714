// SPDX-License-Identifier: Apache-2.0
//! One request as handlers see it, and the answers they give.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use cobaltcore_api::names::HostName;
use cobaltcore_ha_wire::rest::Page;
use cobaltcore_ha_wire::{PACKINGS, PROBLEM_JSON, Problem};
use http::{HeaderValue, Response, header};
use http_body_util::Full;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{App, Place, status};
use crate::access::Caller;

/// The body of an answer.
pub(crate) type Body = Full<Bytes>;
/// What a handler gives.
pub(crate) type Answer = Result<Response<Body>, Problem>;

const PAGE: usize = 100;
const LARGEST_PAGE: usize = 1000;

/// One request.
pub(crate) struct Call {
    pub(crate) app: Arc<App>,
    pub(crate) caller: Caller,
    pub(crate) params: BTreeMap<&'static str, String>,
    pub(crate) query: BTreeMap<String, String>,
    pub(crate) body: Bytes,
    /// Its place among the requests under way, unless it only waits.
    pub(crate) place: Option<Place>,
}

/// A refusal.
pub(crate) fn problem(status: u16, title: &str, detail: impl Into<String>) -> Problem {
    Problem::new(status, title, detail)
}

pub(super) fn refused(problem: &Problem) -> Response<Body> {
    let body = serde_json::to_vec(problem).unwrap_or_default();
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = status(problem.status);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(PROBLEM_JSON));
    if matches!(problem.status, 429 | 503) {
        headers.insert(header::RETRY_AFTER, HeaderValue::from_static("2"));
    }
    if problem.status == 401 {
        headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    if problem.status == 415 {
        headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static(PACKINGS));
    }
    response
}

/// A JSON answer.
pub(crate) fn json(value: &impl Serialize) -> Answer {
    let body = serde_json::to_vec(value).map_err(|error| {
        problem(
            500,
            "Internal error",
            format!("the answer cannot be written: {error}"),
        )
    })?;
    let mut response = Response::new(Body::from(body));
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Ok(response)
}

impl Call {
    /// A part of the path.
    pub(crate) fn param(&self, name: &str) -> &str {
        self.params.get(name).map_or("", String::as_str)
    }

    /// A part of the path that is a host.
    pub(crate) fn host(&self) -> Result<HostName, Problem> {
        let text = self.param("host").to_ascii_lowercase();
        HostName::new(text).map_err(|error| problem(400, "Bad request", error.to_string()))
    }

    /// The body.
    pub(crate) fn read<T: DeserializeOwned>(&self) -> Result<T, Problem> {
        serde_json::from_slice(&self.body).map_err(|error| problem(400, "Bad request", error.to_string()))
    }

    /// A parameter of the query.
    pub(crate) fn asked(&self, name: &str) -> Option<&str> {
        self.query
            .get(name)
            .map(String::as_str)
            .filter(|value| !value.is_empty())
    }

    /// A parameter of the query that has a form.
    pub(crate) fn asked_as<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>, Problem> {
        let Some(text) = self.asked(name) else {
            return Ok(None);
        };
        serde_json::from_value(serde_json::Value::String(text.to_owned()))
            .map(Some)
            .map_err(|error| problem(400, "Bad request", format!("{name}: {error}")))
    }

    /// How many items are wanted at most.
    pub(crate) fn limit(&self) -> Result<usize, Problem> {
        match self.asked("limit") {
            None => Ok(PAGE),
            Some(text) => text
                .parse()
                .ok()
                .filter(|limit| (1..=LARGEST_PAGE).contains(limit))
                .ok_or_else(|| {
                    problem(
                        400,
                        "Bad request",
                        format!("limit must be a number from 1 to {LARGEST_PAGE}"),
                    )
                }),
        }
    }

    /// Where the page begins, as it was handed out.
    pub(crate) fn cursor<T: DeserializeOwned>(&self) -> Result<Option<T>, Problem> {
        let wrong = || {
            problem(
                400,
                "Bad request",
                "the cursor is not one that was handed out; begin without one",
            )
        };
        let Some(text) = self.asked("cursor") else {
            return Ok(None);
        };
        let bytes = unhex(text).ok_or_else(wrong)?;
        serde_json::from_slice(&bytes).map(Some).map_err(|_| wrong())
    }

    /// A page of a list that is in memory, ordered by `key`.
    pub(crate) fn page<T: Serialize, K: Serialize + DeserializeOwned + Ord>(
        &self,
        items: Vec<T>,
        key: impl Fn(&T) -> K,
    ) -> Answer {
        let limit = self.limit()?;
        let after: Option<K> = self.cursor()?;
        let mut rest: Vec<T> = items
            .into_iter()
            .filter(|item| after.as_ref().is_none_or(|after| key(item) > *after))
            .collect();
        let more = rest.len() > limit;
        rest.truncate(limit);
        let cursor = if more {
            rest.last().map(|item| cursor_of(&key(item)))
        } else {
            None
        };
        json(&Page { items: rest, cursor })
    }
}

/// A place in a list, in a form that nobody is tempted to make up.
pub(crate) fn cursor_of(place: &impl Serialize) -> String {
    let bytes = serde_json::to_vec(place).unwrap_or_default();
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    if text.len() > 1024 || !text.len().is_multiple_of(2) || !text.is_ascii() {
        return None;
    }
    (0..text.len() / 2)
        .map(|n| u8::from_str_radix(text.get(2 * n..2 * n + 2)?, 16).ok())
        .collect()
}

pub(super) fn read_query(query: &str) -> BTreeMap<String, String> {
    url::form_urlencoded::parse(query.as_bytes())
        .take(32)
        .map(|(key, value)| (key.into_owned(), value.into_owned()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursors_go_there_and_back() {
        let text = cursor_of(&(5, "a\"b", -1));
        let back: (i64, String, i64) = serde_json::from_slice(&unhex(&text).unwrap()).unwrap();
        assert_eq!(back, (5, "a\"b".to_owned(), -1));
        assert!(unhex("zz").is_none());
        assert!(unhex("abc").is_none());
    }
}
