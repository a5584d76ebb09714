// SPDX-License-Identifier: Apache-2.0
//! Requests and answers of the simulated services: a request with its path, query and body taken apart and its caller
//! known, an answer, and a refusal that each service phrases in its own form.

use std::fmt;

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use serde_json::{Value, json};
use uuid::Uuid;

use super::tokens::Caller;

/// One of the simulated services.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Service {
    /// Keystone.
    Identity,
    /// Nova.
    Compute,
    /// Placement.
    Placement,
    /// Glance.
    Image,
    /// Neutron.
    Network,
    /// Cinder.
    Volume,
}

impl Service {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Identity,
        Self::Compute,
        Self::Placement,
        Self::Image,
        Self::Network,
        Self::Volume,
    ];

    /// First part of its path, and its type in the catalogue.
    pub fn name(self) -> &'static str {
        match self {
            Self::Identity => "identity",
            Self::Compute => "compute",
            Self::Placement => "placement",
            Self::Image => "image",
            Self::Network => "network",
            Self::Volume => "volume",
        }
    }
}

impl fmt::Display for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A request.
#[derive(Debug)]
pub(crate) struct Req {
    pub(crate) service: Service,
    pub(crate) method: Method,
    pub(crate) path: Vec<String>,
    pub(crate) query: Vec<(String, String)>,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    /// `http://host:port`, as the caller wrote it.
    pub(crate) origin: String,
    /// `req-…`, as every service answers it.
    pub(crate) id: String,
    pub(crate) caller: Option<Caller>,
    /// Minor number of the microversion.
    pub(crate) version: u32,
}

impl Req {
    /// Whether it may leave a trace; questions do not.
    pub(crate) fn changes(&self) -> bool {
        !matches!(self.method, Method::GET | Method::HEAD)
    }

    /// Whether losing it in a crash could let a guest run twice: guests that are moved, started or deleted, and services
    /// that are taken for dead.
    pub(crate) fn must_last(&self) -> bool {
        if self.service != Service::Compute || !self.changes() {
            return false;
        }
        let has = |word: &str| String::from_utf8_lossy(&self.body).contains(word);
        match self
            .path
            .iter()
            .map(String::as_str)
            .collect::<Vec<_>>()
            .as_slice()
        {
            [.., "servers", _, "action"] => !has("os-getConsoleOutput"),
            [.., "os-services", _] => has("forced_down"),
            _ => false,
        }
    }

    /// The service's own address.
    pub(crate) fn base(&self) -> String {
        format!("{}/{}", self.origin, self.service)
    }

    /// A query parameter.
    pub(crate) fn param(&self, name: &str) -> Option<&str> {
        self.query
            .iter()
            .rev()
            .find(|(key, _)| key == name)
            .map(|(_, value)| value.as_str())
    }

    /// All values of a query parameter.
    pub(crate) fn params(&self, name: &str) -> impl Iterator<Item = &str> {
        self.query
            .iter()
            .filter(move |(key, _)| key == name)
            .map(|(_, value)| value.as_str())
    }

    /// Whether a query parameter says yes.
    pub(crate) fn flag(&self, name: &str) -> bool {
        self.param(name).is_some_and(truth)
    }

    /// The body as JSON.
    pub(crate) fn json(&self) -> Result<Value, Refusal> {
        serde_json::from_slice(&self.body).map_err(|_| Refusal::bad("cannot understand JSON"))
    }

    /// Who asks.
    pub(crate) fn caller(&self) -> Result<&Caller, Refusal> {
        self.caller.as_ref().ok_or_else(Refusal::unauthorized)
    }

    /// Whether the microversion is at least this.
    pub(crate) fn since(&self, minor: u32) -> bool {
        self.version >= minor
    }
}

/// What OpenStack takes for yes.
pub(crate) fn truth(text: &str) -> bool {
    matches!(
        text.to_ascii_lowercase().as_str(),
        "1" | "t" | "true" | "on" | "y" | "yes"
    )
}

/// A JSON value that OpenStack takes for yes.
pub(crate) fn truthy(value: &Value) -> bool {
    match value {
        Value::Bool(yes) => *yes,
        Value::String(text) => truth(text),
        Value::Number(number) => number.as_i64() == Some(1),
        _ => false,
    }
}

/// An answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) body: Option<Value>,
    pub(crate) headers: Vec<(&'static str, String)>,
}

impl Answer {
    pub(crate) fn new(status: u16, body: Value) -> Self {
        Self {
            status,
            body: Some(body),
            headers: Vec::new(),
        }
    }

    pub(crate) fn ok(body: Value) -> Self {
        Self::new(200, body)
    }

    pub(crate) fn empty(status: u16) -> Self {
        Self {
            status,
            body: None,
            headers: Vec::new(),
        }
    }

    pub(crate) fn header(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    pub(crate) fn respond(self, service: Service, request_id: &str) -> Response {
        let mut builder = Response::builder().status(StatusCode::from_u16(self.status).unwrap_or_default());
        let headers = builder.headers_mut();
        if let Some(headers) = headers {
            let mut put = |name: &'static str, value: &str| {
                if let Ok(value) = HeaderValue::from_str(value) {
                    headers.append(name, value);
                }
            };
            put("x-openstack-request-id", request_id);
            if service == Service::Compute {
                put("x-compute-request-id", request_id);
            }
            for (name, value) in &self.headers {
                put(name, value);
            }
            if self.body.is_some() {
                put(header::CONTENT_TYPE.as_str(), "application/json");
            }
        }
        let body = self
            .body
            .map_or_else(Body::empty, |body| Body::from(body.to_string()));
        builder.body(body).unwrap_or_default()
    }
}

/// Why a request is not done, before a service has put it into its form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) status: u16,
    pub(crate) message: String,
    /// Placement's code, or Neutron's type.
    pub(crate) code: Option<&'static str>,
}

impl Refusal {
    pub(crate) fn new(status: u16, message: impl Into<String>) -> Self {
        Self {
            status,
            message: message.into(),
            code: None,
        }
    }

    pub(crate) fn bad(message: impl Into<String>) -> Self {
        Self::new(400, message)
    }

    pub(crate) fn forbidden(message: impl Into<String>) -> Self {
        Self::new(403, message)
    }

    pub(crate) fn missing(message: impl Into<String>) -> Self {
        Self::new(404, message)
    }

    pub(crate) fn conflict(message: impl Into<String>) -> Self {
        Self::new(409, message)
    }

    pub(crate) fn unauthorized() -> Self {
        Self::new(401, "The request you have made requires authentication.")
    }

    pub(crate) fn code(mut self, code: &'static str) -> Self {
        self.code = Some(code);
        self
    }

    /// Nova's word for a caller that may not.
    pub(crate) fn policy(rule: &str) -> Self {
        Self::forbidden(format!("Policy doesn't allow {rule} to be performed."))
    }

    /// In the service's own form.
    pub(crate) fn answer(&self, service: Service, request_id: &str, version: u32) -> Answer {
        let title = StatusCode::from_u16(self.status)
            .ok()
            .and_then(|status| status.canonical_reason())
            .unwrap_or("Unknown");
        // Tokens are checked by the same middleware in front of every service.
        if self.status == 401 && service != Service::Placement || service == Service::Identity {
            let body = json!({"error": {"code": self.status, "message": self.message, "title": title}});
            return Answer::new(self.status, body);
        }
        match service {
            Service::Placement => self.placement(request_id, version, title),
            Service::Network => {
                let kind = self.code.unwrap_or("HTTPError");
                let body = json!({"NeutronError": {"type": kind, "message": self.message, "detail": ""}});
                Answer::new(self.status, body)
            }
            Service::Image => Answer::new(
                self.status,
                json!({
                    "message": format!("{}<br /><br />\n\n\n", self.message),
                    "code": format!("{} {title}", self.status), "title": title,
                }),
            ),
            Service::Compute | Service::Volume | Service::Identity => {
                let body = json!({(fault_name(self.status)): {"code": self.status, "message": self.message}});
                Answer::new(self.status, body)
            }
        }
    }

    fn placement(&self, request_id: &str, version: u32, title: &str) -> Answer {
        if self.status == 406 {
            let error = json!({
                "status": 406, "title": title, "request_id": request_id, "min_version": "1.0", "max_version": "1.39",
                "detail": format!(
                    "The resource could not be generated that was acceptable to your browser (content of type application/json. \n\n {}",
                    self.message
                ),
            });
            return Answer::new(406, json!({"errors": [error]}));
        }
        let explanation = match self.status {
            400 => {
                "The server could not comply with the request since it is either malformed or otherwise incorrect."
            }
            401 => {
                "This server could not verify that you are authorized to access the document you requested. Either you supplied the wrong credentials (e.g., bad password), or your browser does not understand how to supply the credentials required."
            }
            403 => "Access was denied to this resource.",
            404 => "The resource could not be found.",
            405 => "The method specified is not allowed for this resource.",
            409 => "There was a conflict when trying to complete your request.",
            503 => "The server is currently unavailable. Please try again at a later time.",
            _ => "The server has either erred or is incapable of performing the requested operation.",
        };
        let mut error = json!({
            "status": self.status,
            "title": title,
            "detail": format!("{explanation}\n\n {}  ", self.message),
            "request_id": request_id,
        });
        if version >= 23
            && let Some(fields) = error.as_object_mut()
        {
            fields.insert(
                "code".into(),
                self.code.unwrap_or("placement.undefined_code").into(),
            );
        }
        Answer::new(self.status, json!({"errors": [error]}))
    }
}

fn fault_name(status: u16) -> &'static str {
    match status {
        400 => "badRequest",
        401 => "unauthorized",
        403 => "forbidden",
        404 => "itemNotFound",
        405 => "badMethod",
        409 => "conflictingRequest",
        413 | 429 => "overLimit",
        415 => "badMediaType",
        501 => "notImplemented",
        503 => "serviceUnavailable",
        _ => "computeFault",
    }
}

/// What a service's handler gives.
pub(crate) type Outcome = Result<Answer, Refusal>;

/// Reads an identifier in either form.
pub(crate) fn uuid(text: &str) -> Option<Uuid> {
    (text.len() == 32 || text.len() == 36)
        .then(|| Uuid::try_parse(text).ok())
        .flatten()
}

/// Next page of a list sorted as it is served.
pub(crate) struct Page {
    limit: usize,
    marker: Option<String>,
}

/// Most items in one answer.
const MOST: usize = 1000;

impl Page {
    pub(crate) fn of(req: &Req) -> Result<Self, Refusal> {
        let limit = match req.param("limit") {
            None => MOST,
            Some(text) => text
                .parse::<usize>()
                .map_err(|_| Refusal::bad(format!("Invalid input for query parameters limit. Value: {text}. '{text}' does not match '^[0-9]*$'")))?
                .min(MOST),
        };
        Ok(Self {
            limit: if limit == 0 { MOST } else { limit },
            marker: req.param("marker").map(str::to_owned),
        })
    }

    /// The items of this page, and the id that the next one begins after.
    pub(crate) fn cut<T>(
        &self,
        items: Vec<T>,
        id: impl Fn(&T) -> String,
    ) -> Result<(Vec<T>, Option<String>), Refusal> {
        let start = match &self.marker {
            None => 0,
            Some(marker) => items
                .iter()
                .position(|item| id(item) == *marker)
                .map(|at| at + 1)
                .ok_or_else(|| Refusal::bad(format!("marker [{marker}] not found")))?,
        };
        let page: Vec<T> = items.into_iter().skip(start).take(self.limit).collect();
        // Nova does not look ahead: a full page always has a link, even if the next one is empty.
        let next = (page.len() == self.limit).then(|| page.last().map(&id)).flatten();
        Ok((page, next))
    }
}

/// The link to the next page: the same question with another marker.
pub(crate) fn next_link(req: &Req, url: &str, marker: &str) -> Value {
    let mut query: Vec<String> = req
        .query
        .iter()
        .filter(|(key, _)| key != "marker")
        .map(|(key, value)| format!("{}={}", encode(key), encode(value)))
        .collect();
    query.push(format!("marker={}", encode(marker)));
    json!([{"rel": "next", "href": format!("{url}?{}", query.join("&"))}])
}

fn encode(text: &str) -> String {
    percent_encoding::utf8_percent_encode(text, percent_encoding::NON_ALPHANUMERIC)
        .to_string()
        .replace("%2D", "-")
        .replace("%5F", "_")
        .replace("%2E", ".")
}
