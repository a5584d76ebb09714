// SPDX-License-Identifier: Apache-2.0
//! Reads refusals. Every service wraps its words differently, and proxies in between answer with
//! HTML; whatever comes, a short line of plain text goes out.

use std::time::Duration;

use http::HeaderMap;
use serde_json::Value;

use crate::call::{Call, Service};
use crate::error::{Attempted, Error, Refusal};

/// Words beyond this are of no help to anybody.
const LONGEST_MESSAGE: usize = 1000;
/// Placement's code for a write that came second.
const CONCURRENT_UPDATE: &str = "placement.concurrent_update";

/// The error for an answer that is not a success.
pub(crate) fn refuse(of: Attempted, status: u16, headers: &HeaderMap, body: &[u8]) -> Error {
    let (code, message) = words(body);
    let refusal = Box::new(Refusal {
        status,
        message: message.unwrap_or_else(|| reason(status)),
        code,
        request_id: request_id(headers),
        retry_after: retry_after(headers),
        of,
    });
    match status {
        404 | 410 if decides_over_guests(refusal.of.call.service) && !its_own(headers, body) => {
            Error::BadAnswer {
                status: Some(status),
                detail: format!(
                    "not in the form of {}, so it tells nothing of the object: {}",
                    refusal.of.call.service, refusal.message
                ),
                of: Box::new(refusal.of),
            }
        }
        404 | 410 => Error::NotFound(refusal),
        409 if is_generation_conflict(refusal.of.call, &refusal) => Error::GenerationConflict(refusal),
        409 => Error::Conflict(refusal),
        401 => Error::Unauthorized(refusal),
        // Nova answers 413 with Retry-After where others answer 429
        413 if refusal.retry_after.is_some() => Error::RateLimited(refusal),
        403 => Error::Forbidden(refusal),
        429 => Error::RateLimited(refusal),
        400..500 => Error::Refused(refusal),
        500.. => Error::Overloaded(refusal),
        _ => Error::BadAnswer {
            status: Some(status),
            detail: format!("unexpected status, {}", refusal.message),
            of: Box::new(refusal.of),
        },
    }
}

/// A server that is taken for deleted is not looked after any more, and one whose image is gone loses what the image said
/// of it.
fn decides_over_guests(service: Service) -> bool {
    matches!(service, Service::Nova | Service::Glance)
}

/// Whether it is the service that says so: under a number of its own, or as Nova does. A gateway that finds nobody behind it
/// answers 404 as well.
fn its_own(headers: &HeaderMap, body: &[u8]) -> bool {
    let in_its_form = |value: Value| value.get("itemNotFound").is_some();
    request_id(headers).is_some() || serde_json::from_slice(body).is_ok_and(in_its_form)
}

/// The id under which the service logged the request.
pub(crate) fn request_id(headers: &HeaderMap) -> Option<String> {
    let id = ["x-openstack-request-id", "x-compute-request-id"]
        .iter()
        .find_map(|name| headers.get(*name))?;
    Some(one_line(id.to_str().ok()?, 80))
}

fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get(http::header::RETRY_AFTER)?.to_str().ok()?.trim();
    if let Ok(seconds) = text.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let when = jiff::fmt::rfc2822::parse(text).ok()?.timestamp();
    Duration::try_from(when.duration_since(jiff::Timestamp::now())).ok()
}

fn is_generation_conflict(call: &Call, refusal: &Refusal) -> bool {
    call.service == Service::Placement
        && (refusal.code.as_deref() == Some(CONCURRENT_UPDATE)
            // what a consumer's generation conflict is called before codes are sent for it
            || refusal.message.contains("generation conflict"))
}

/// Code and words of an error body.
fn words(body: &[u8]) -> (Option<String>, Option<String>) {
    match serde_json::from_slice::<Value>(body) {
        Ok(value) => json_words(&value),
        Err(_) => (None, html_words(&String::from_utf8_lossy(body))),
    }
}

fn json_words(value: &Value) -> (Option<String>, Option<String>) {
    // Placement: {"errors": [{"detail": ..., "code": ...}]}
    if let Some(first) = value.pointer("/errors/0") {
        let text = |name: &str| first.get(name).and_then(Value::as_str);
        let message = text("detail").or_else(|| text("title"));
        let code = text("code").map(|code| one_line(code, 80));
        return (code, message.map(plain));
    }
    let message = match value {
        // Nova: {"conflictingRequest": {"message": ...}}; Keystone: {"error": {...}};
        // Neutron: {"NeutronError": {"message": ..., "type": ..., "detail": ""}} or a bare text
        Value::Object(members) => members
            .get("message")
            .and_then(Value::as_str)
            .or_else(|| members.values().find_map(inner_message)),
        Value::String(text) => Some(text.as_str()),
        _ => None,
    };
    (None, message.map(plain))
}

fn inner_message(value: &Value) -> Option<&str> {
    match value {
        Value::String(text) => Some(text),
        other => other.get("message")?.as_str(),
    }
}

/// The text of a page without its markup; the heading is in there.
fn html_words(page: &str) -> Option<String> {
    let page = page.split_once("<body").map_or(page, |(_, body)| {
        body.split_once('>').map_or(body, |(_, inside)| inside)
    });
    let mut text = String::new();
    let mut inside_tag = false;
    for c in page.chars().take(20_000) {
        match c {
            '<' => inside_tag = true,
            '>' if inside_tag => {
                inside_tag = false;
                text.push(' ');
            }
            c if !inside_tag => text.push(c),
            _ => {}
        }
    }
    let line = plain(&text);
    (!line.is_empty()).then_some(line)
}

/// One line of bounded length without control characters: it goes into logs and conditions.
fn plain(text: &str) -> String {
    one_line(text, LONGEST_MESSAGE)
}

fn one_line(text: &str, longest: usize) -> String {
    let mut line = String::new();
    let words = text.split(|c: char| c.is_whitespace() || c.is_control());
    for word in words.filter(|word| !word.is_empty()) {
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
        if line.len() > longest {
            break;
        }
    }
    if let Some((cut, _)) = line.char_indices().nth(longest) {
        line.truncate(cut);
        line.push('…');
    }
    line
}

fn reason(status: u16) -> String {
    let known = http::StatusCode::from_u16(status)
        .ok()
        .and_then(|status| status.canonical_reason());
    known.unwrap_or("without a reason").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(body: &str) -> Option<String> {
        words(body.as_bytes()).1
    }

    #[test]
    fn every_service_is_understood() {
        let cases = [
            (
                r#"{"conflictingRequest": {"code": 409, "message": "Cannot 'os-migrateLive' instance"}}"#,
                "Cannot 'os-migrateLive' instance",
            ),
            (
                r#"{"itemNotFound": {"code": 404, "message": "Instance x could not be found."}}"#,
                "Instance x could not be found.",
            ),
            (
                r#"{"error": {"code": 401, "message": "The request you have made requires authentication.", "title": "Unauthorized"}}"#,
                "The request you have made requires authentication.",
            ),
            (
                r#"{"NeutronError": {"type": "PortNotFound", "message": "Port a could not be found.", "detail": ""}}"#,
                "Port a could not be found.",
            ),
            (
                r#"{"errors": [{"status": 404, "title": "Not Found", "detail": "No such\n\n provider   "}]}"#,
                "No such provider",
            ),
            (
                "<html><head><title>503 Service</title></head><body><h1>503 Service Unavailable</h1>\nNo server is available.</body></html>",
                "503 Service Unavailable No server is available.",
            ),
            ("upstream connect error", "upstream connect error"),
        ];
        for (body, words) in cases {
            assert_eq!(message(body).as_deref(), Some(words), "{body}");
        }
        for silent in ["", "{}", "null", "<br>", "{\"a\": {\"b\": 1}}"] {
            assert_eq!(message(silent), None, "{silent}");
        }
    }

    #[test]
    fn words_are_one_short_line_without_control_characters() {
        let text = format!("a\u{1b}[31m b\r\nc{}", "x".repeat(5000));
        let line = plain(&text);
        assert!(line.starts_with("a [31m b c"), "{line}");
        assert!(line.chars().count() <= LONGEST_MESSAGE + 1);
        assert!(!line.chars().any(char::is_control));
    }
}
