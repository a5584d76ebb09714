// SPDX-License-Identifier: Apache-2.0
//! One request on its way through the pipeline, and the answer it ends with.

use cobaltcore_text::go;
use std::time::{Duration, Instant};

use bytes::Bytes;
use cobaltcore_access::identity::User;
use futures::stream::BoxStream;
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use parking_lot::Mutex;
use serde_json::Value;

use crate::decode::{self, Decoded};
use crate::negotiate::{self, Form};
use crate::options::FieldValidation;
use crate::registry::Resource;
use crate::reqinfo::{Query, RequestInfo};
use crate::status::{ApiError, ApiResult};
use crate::view;
use crate::yaml;

/// Characters of all warnings together; beyond that each is cut to [`CUT_WARNING`].
const MAX_WARNINGS: usize = 4_096;
/// Characters of a warning once there are too many.
const CUT_WARNING: usize = 256;

/// Warnings, limited like the reference limits them.
#[derive(Debug, Default)]
struct Warnings {
    texts: Vec<String>,
    written: usize,
    cutting: bool,
}

/// A request takes no longer than this, whatever it waits for.
pub(crate) const REQUEST_TIMEOUT: Duration = Duration::from_mins(1);

/// An authenticated request.
#[derive(Debug)]
pub struct Call {
    /// What is asked for.
    pub info: RequestInfo,
    /// Query parameters.
    pub query: Query,
    /// HTTP method.
    pub method: Method,
    /// HTTP headers.
    pub headers: HeaderMap,
    /// Who asks (after impersonation).
    pub user: User,
    /// The body, whole.
    pub body: Bytes,
    /// When the client is no longer waited for.
    pub deadline: Instant,
    warnings: Mutex<Warnings>,
}

impl Call {
    /// A call from its parts.
    pub fn new(
        info: RequestInfo,
        query: Query,
        method: Method,
        headers: HeaderMap,
        user: User,
        body: Bytes,
    ) -> Self {
        let asked = crate::deadline::of(&query).unwrap_or(REQUEST_TIMEOUT);
        let deadline = Instant::now() + asked.min(REQUEST_TIMEOUT);
        Self {
            info,
            query,
            method,
            headers,
            user,
            body,
            deadline,
            warnings: Mutex::default(),
        }
    }

    /// Adds a `Warning` header to the answer.
    pub fn warn(&self, text: impl Into<String>) {
        let mut warnings = self.warnings.lock();
        let text = text.into();
        let full = warnings.cutting && warnings.written >= MAX_WARNINGS;
        if full || text.is_empty() || warnings.texts.contains(&text) {
            return;
        }
        let cut = |text: &String| text.chars().count().min(CUT_WARNING);
        if !warnings.cutting && warnings.written + text.chars().count() > MAX_WARNINGS {
            warnings.cutting = true;
            warnings.written = warnings.texts.iter().map(cut).sum();
        }
        warnings.written += if warnings.cutting {
            cut(&text)
        } else {
            text.chars().count()
        };
        warnings.texts.push(text);
    }

    /// The warnings collected.
    pub fn warnings(&self) -> Vec<String> {
        let warnings = self.warnings.lock();
        let longest = if warnings.cutting { CUT_WARNING } else { usize::MAX };
        warnings
            .texts
            .iter()
            .map(|text| text.chars().take(longest).collect())
            .collect()
    }

    /// A header as text.
    pub fn header(&self, name: &HeaderName) -> Option<&str> {
        self.headers.get(name).and_then(|v| v.to_str().ok())
    }

    /// The name changes are attributed to: the given one, or the client's own.
    pub fn manager(&self, given: Option<&str>) -> String {
        if let Some(given) = given {
            return given.to_owned();
        }
        let agent = self.header(&http::header::USER_AGENT).unwrap_or_default();
        let name: String = agent
            .split('/')
            .next()
            .unwrap_or_default()
            .chars()
            .filter(|c| !c.is_control())
            .collect();
        let mut end = name.len().min(128);
        while !name.is_char_boundary(end) {
            end -= 1;
        }
        if end == 0 {
            "unknown".into()
        } else {
            name[..end].to_owned()
        }
    }

    /// Decodes the body by its media type. `kind` is named in errors.
    pub fn decode_body(&self, kind: &str) -> ApiResult<Decoded> {
        self.decode_with(kind, decode::exact_json)
    }

    /// Decodes the body as an object of a resource.
    pub fn decode_object(&self, resource: &Resource) -> ApiResult<Decoded> {
        if resource.as_builtin().is_some() {
            return self.decode_with(&resource.kind, decode::exact_json);
        }
        let mut decoded = self.decode_with(&resource.kind, decode::json)?;
        if negotiate::body_type(&self.headers) == "application/json" {
            crate::written::keep_fractions(resource, &self.body, &mut decoded.value);
        }
        Ok(decoded)
    }

    fn decode_with(&self, kind: &str, json: fn(&[u8]) -> Result<Decoded, String>) -> ApiResult<Decoded> {
        let unreadable = |error: String| self.unrecognized(kind, &error);
        let decoded = match negotiate::object_type(&self.headers).unwrap_or_default().as_str() {
            "application/json" => json(&self.body)
                .map_err(|error| unreadable(format!("couldn't get version/kind; json parse error: {error}"))),
            "application/yaml" => yaml::decode(&self.body).map_err(unreadable),
            cobaltcore_protobuf::MEDIA_TYPE if self.has_protobuf_form(kind) => {
                cobaltcore_protobuf::decode(&self.body)
                    .map(|value| Decoded {
                        value,
                        ..Decoded::default()
                    })
                    .map_err(|error| unreadable(error.to_string()))
            }
            _ => Err(ApiError::unsupported_media_type(self.has_protobuf_form(kind))),
        }?;
        self.check_part(kind, &decoded.value)?;
        Ok(decoded)
    }

    /// 400 for a body nothing can be made of.
    pub fn unrecognized(&self, kind: &str, error: &str) -> ApiError {
        if kind == "DeleteOptions" {
            return ApiError::bad_request(error);
        }
        let text = format!("the object provided is unrecognized (must be of type {kind}): {error}");
        // Nothing of a Secret is ever said back.
        ApiError::bad_request(if kind == "Secret" {
            text
        } else {
            format!("{text} ({})", self.body_hint())
        })
    }

    /// Bodies of subresources have a kind of their own.
    fn check_part(&self, kind: &str, body: &Value) -> ApiResult<()> {
        // A custom resource may bear the same name; only the endpoint tells the two apart.
        let (package, versions): (&str, &[&str]) = match (kind, self.info.subresource.as_str()) {
            ("Binding", "binding") => ("core", &["v1"]),
            ("Binding", "") if self.info.group.is_empty() => ("core", &["v1"]),
            ("Eviction", "eviction") => ("policy", &["policy/v1", "policy/v1beta1"]),
            ("TokenRequest", "token") => ("authentication", &["authentication.k8s.io/v1"]),
            ("Scale", "scale") => ("autoscaling", &["autoscaling/v1"]),
            _ => return Ok(()),
        };
        let text = |key: &str| body.get(key).and_then(Value::as_str).unwrap_or_default();
        let (found, api_version) = (text("kind"), text("apiVersion"));
        let (_, version) = crate::meta::split_api_version(api_version);
        // Without a version it is one of those the endpoint takes, and none of them has another kind.
        if !found.is_empty() && found != kind && api_version.is_empty() {
            return Err(unregistered(
                found,
                kind,
                versions.first().copied().unwrap_or_default(),
            ));
        }
        if !found.is_empty() && found != kind {
            return Err(ApiError::bad_request(format!(
                "{found} in version {quoted_version} cannot be handled as a {kind}: converting ({version}.{found}) to ({package}.{kind}): unknown conversion",
                quoted_version = go::quote(version)
            )));
        }
        if !api_version.is_empty() && !versions.contains(&api_version) {
            return Err(unregistered(kind, kind, api_version));
        }
        Ok(())
    }

    /// Typed clients send built-in kinds as protobuf. Custom resources have no such form; the two
    /// built-in kinds their requests may carry have it everywhere.
    fn has_protobuf_form(&self, kind: &str) -> bool {
        kind == "DeleteOptions"
            || self.info.subresource == "scale"
            || cobaltcore_protobuf::knows_group(&self.info.group)
    }

    /// The beginning of the body, as the reference shows what it could not read.
    fn body_hint(&self) -> String {
        const SHOWN: usize = 30;
        let start = self.body.get(..self.body.len().min(SHOWN)).unwrap_or_default();
        let more = if self.body.len() > SHOWN { " ..." } else { "" };
        match start.first() {
            None => "<empty>".to_owned(),
            Some(b'{') => format!("{}{more}", String::from_utf8_lossy(start)),
            Some(_) => format!(
                "{}{more}",
                start.iter().map(|b| format!("{b:02x}")).collect::<String>()
            ),
        }
    }

    /// As much of the body as an error text quotes.
    pub(crate) fn body_start(&self) -> String {
        String::from_utf8_lossy(&self.body).chars().take(256).collect()
    }

    /// Answers strictness violations: warnings, a refusal, or nothing.
    pub fn judge_strictness(
        &self,
        validation: FieldValidation,
        problems: &[String],
        kind: &str,
        version: &str,
    ) -> ApiResult<()> {
        if problems.is_empty() {
            return Ok(());
        }
        match validation {
            FieldValidation::Ignore => {}
            FieldValidation::Warn => problems.iter().for_each(|p| self.warn(p.clone())),
            FieldValidation::Strict => {
                return Err(ApiError::bad_request(format!(
                    "{kind} in version {version} cannot be handled as a {kind}: strict decoding error: {}",
                    problems.join(", "),
                    version = go::quote(version)
                )));
            }
        }
        Ok(())
    }
}

/// 400 for a kind nobody knows in the version named.
pub(crate) fn unregistered(kind: &str, wanted: &str, api_version: &str) -> ApiError {
    let (_, version) = crate::meta::split_api_version(api_version);
    ApiError::bad_request(format!(
        "{kind} in version {version} cannot be handled as a {wanted}: no kind {quoted_kind} is registered for version {api_version} in scheme \"pkg/api/legacyscheme/scheme.go:30\"",
        version = go::quote(version),
        quoted_kind = go::quote(kind),
        api_version = go::quote(api_version)
    ))
}

/// The text for a key that occurs twice.
pub(crate) fn duplicate_field(path: &str) -> String {
    format!("duplicate field {path}", path = go::quote(path))
}

/// The text for a field the schema does not know.
pub(crate) fn unknown_field(path: &str) -> String {
    format!("unknown field {path}", path = go::quote(path))
}

/// What a handler answers.
pub struct Answer {
    /// HTTP status code.
    pub code: u16,
    /// Content type.
    pub content_type: &'static str,
    /// Body.
    pub body: Body,
    /// Whether a line break follows the body, as it follows every object that is not indented. It
    /// is kept apart because bodies are shared with the store.
    pub line: bool,
    /// Further headers.
    pub headers: Vec<(HeaderName, HeaderValue)>,
}

impl std::fmt::Debug for Answer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Answer")
            .field("code", &self.code)
            .finish_non_exhaustive()
    }
}

/// The body of an answer.
pub enum Body {
    /// All of it.
    Full(Bytes),
    /// A watch: pieces as they come.
    Stream(BoxStream<'static, Bytes>),
}

impl Answer {
    /// A JSON answer.
    pub fn json(code: u16, value: &Value) -> Self {
        Self::bytes(
            code,
            "application/json",
            serde_json::to_vec(value).unwrap_or_default().into(),
        )
    }

    /// An answer made of bytes.
    pub fn bytes(code: u16, content_type: &'static str, body: Bytes) -> Self {
        Self {
            code,
            content_type,
            body: Body::Full(body),
            line: false,
            headers: Vec::new(),
        }
    }

    /// An object in the form asked for, which `body` already has.
    pub fn object(code: u16, form: Form, body: Bytes) -> Self {
        Self {
            line: form.ends_line(),
            ..Self::bytes(code, form.content_type(), body)
        }
    }

    /// A tree, brought into the form asked for.
    pub fn value(code: u16, form: Form, value: &Value) -> Self {
        Self::object(
            code,
            form,
            view::encode(form, crate::store::serialize(value).into()),
        )
    }

    /// JSON for people: indented, whoever asks.
    pub fn readable(code: u16, value: &Value) -> Self {
        let body = serde_json::to_vec_pretty(value).unwrap_or_default();
        Self::bytes(code, "application/json", body.into())
    }

    /// A text answer.
    pub fn text(code: u16, body: impl Into<String>) -> Self {
        Self::bytes(code, "text/plain; charset=utf-8", Bytes::from(body.into()))
    }

    /// Adds a header.
    pub fn with(mut self, name: HeaderName, value: impl TryInto<HeaderValue>) -> Self {
        if let Ok(value) = value.try_into() {
            self.headers.push((name, value));
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(agent: &str) -> Call {
        let mut headers = HeaderMap::new();
        headers.insert(http::header::USER_AGENT, agent.parse().unwrap());
        Call::new(
            RequestInfo::default(),
            Query::default(),
            Method::GET,
            headers,
            User::anonymous(),
            Bytes::new(),
        )
    }

    #[test]
    fn managers_come_from_the_client_when_not_given() {
        assert_eq!(call("kubectl/v1.32 (linux)").manager(None), "kubectl");
        assert_eq!(call("x").manager(Some("given")), "given");
        assert_eq!(call("/").manager(None), "unknown");
        assert_eq!(call(&"y".repeat(300)).manager(None).len(), 128);
    }

    #[test]
    fn built_in_kinds_are_read_from_protobuf_and_custom_ones_are_not() {
        let body: &[u8] = include_bytes!("../../protobuf/tests/captured/namespace.bin");
        for (group, kind, code) in [
            ("", "Namespace", 200),
            ("kvm.cloud.sap", "Hypervisor", 415),
            ("kvm.cloud.sap", "Scale", 400),
        ] {
            let mut call = call("kubectl/v1.32");
            call.headers.insert(
                http::header::CONTENT_TYPE,
                "application/vnd.kubernetes.protobuf".parse().unwrap(),
            );
            call.info.group = group.into();
            call.info.subresource = if kind == "Scale" {
                "scale".into()
            } else {
                String::new()
            };
            call.body = Bytes::from_static(body);
            let answer = call.decode_body(kind);
            assert_eq!(
                answer.as_ref().map_or_else(ApiError::code, |_| 200),
                code,
                "{group} {kind}"
            );
            call.body = Bytes::from_static(b"k8s\0?");
            assert_eq!(
                call.decode_body(kind).unwrap_err().code(),
                if code == 200 { 400 } else { code }
            );
        }
    }

    #[test]
    fn warnings_are_bounded_and_unique() {
        let call = call("x");
        call.warn("a");
        call.warn("a");
        call.warn("b".repeat(5_000));
        assert_eq!(call.warnings(), ["a".to_owned(), "b".repeat(256)]);
        for n in 0..100 {
            call.warn(format!("{n:0>200}"));
        }
        let total: usize = call.warnings().iter().map(String::len).sum();
        assert!(
            (MAX_WARNINGS..MAX_WARNINGS + CUT_WARNING).contains(&total),
            "{total}"
        );
    }
}
