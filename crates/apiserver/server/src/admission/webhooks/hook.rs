// SPDX-License-Identifier: Apache-2.0
//! Webhooks as their configurations describe them, read once when a configuration is committed.
//! Stored configurations were validated and defaulted; what is missing anyway gets the default.

use std::time::Duration;

use base64::Engine;
use serde_json::Value;

use super::line::Line;
use crate::admission::conditions::Conditions;
use crate::admission::matching::Scope;

/// How long a call may take when the configuration does not say.
const DEFAULT_TIMEOUT: u64 = 10;
/// No call may take longer, whatever a stored configuration says.
const MAX_TIMEOUT: u64 = 30;

/// One webhook of a configuration.
#[derive(Debug)]
pub(super) struct Hook {
    /// Its name, as messages give it.
    pub name: String,
    /// Tells it apart from all others of its list.
    pub identity: String,
    pub scope: Scope,
    /// A failed call lets the request pass.
    pub fails_open: bool,
    pub conditions: Conditions,
    /// Calls for dry runs do no harm.
    pub dry_run_safe: bool,
    pub timeout: Duration,
    /// The version of AdmissionReview it is spoken to in; none is known to both sides.
    pub review: Option<Review>,
    /// It is called again when a later one changed the object.
    pub reinvocable: bool,
    pub target: Target,
    /// Connections to it.
    pub line: Line,
}

/// A version of the AdmissionReview.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Review {
    V1,
    V1Beta1,
}

impl Review {
    pub(super) fn api_version(self) -> &'static str {
        match self {
            Self::V1 => "admission.k8s.io/v1",
            Self::V1Beta1 => "admission.k8s.io/v1beta1",
        }
    }
}

/// Where a webhook is served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Target {
    /// At a URL.
    Url {
        host: String,
        port: u16,
        /// As the URL writes host and port.
        authority: String,
        path: String,
    },
    /// By a Service.
    Service {
        namespace: String,
        name: String,
        port: u16,
        path: String,
    },
}

impl Target {
    pub(super) fn of(client: &Value) -> Self {
        if let Some(url) = client["url"].as_str() {
            return Self::url(url);
        }
        let service = &client["service"];
        let text = |key: &str| service[key].as_str().unwrap_or_default().to_owned();
        Self::Service {
            namespace: text("namespace"),
            name: text("name"),
            port: service["port"]
                .as_u64()
                .and_then(|p| u16::try_from(p).ok())
                .unwrap_or(443),
            path: rooted(&text("path")),
        }
    }

    fn url(url: &str) -> Self {
        let rest = url.strip_prefix("https://").unwrap_or(url);
        let (authority, path) = rest.find('/').map_or((rest, ""), |at| rest.split_at(at));
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, port)) if !port.contains(']') => (host, port.parse().unwrap_or(443)),
            _ => (authority, 443),
        };
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        Self::Url {
            host,
            port,
            authority: authority.to_owned(),
            path: rooted(path),
        }
    }

    pub(super) fn path(&self) -> &str {
        match self {
            Self::Url { path, .. } | Self::Service { path, .. } => path,
        }
    }

    /// The name the server's certificate must carry.
    pub(super) fn server_name(&self) -> String {
        match self {
            Self::Url { host, .. } => host.clone(),
            Self::Service { namespace, name, .. } => format!("{name}.{namespace}.svc"),
        }
    }

    /// Host and port of the request's URL.
    pub(super) fn authority(&self) -> String {
        match self {
            Self::Url { authority, .. } => authority.clone(),
            Self::Service { port, .. } => format!("{}:{port}", self.server_name()),
        }
    }
}

/// Paths begin with a slash and are never empty.
pub(super) fn rooted(path: &str) -> String {
    if path.starts_with('/') {
        path.to_owned()
    } else {
        format!("/{path}")
    }
}

/// The webhooks of a configuration, in their order.
pub(super) fn read(configuration: &str, object: &Value) -> Vec<Hook> {
    let list = object["webhooks"]
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default();
    list.iter()
        .enumerate()
        .map(|(at, hook)| one(&format!("{configuration}/{at}"), hook))
        .collect()
}

fn one(identity: &str, hook: &Value) -> Hook {
    let is = |key: &str, value: &str| hook[key].as_str() == Some(value);
    let seconds = hook["timeoutSeconds"]
        .as_u64()
        .unwrap_or(DEFAULT_TIMEOUT)
        .clamp(1, MAX_TIMEOUT);
    let bundle = hook["clientConfig"]["caBundle"]
        .as_str()
        .filter(|text| !text.is_empty());
    let versions = hook["admissionReviewVersions"]
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default();
    Hook {
        name: hook["name"].as_str().unwrap_or_default().to_owned(),
        identity: identity.to_owned(),
        scope: Scope::of_webhook(hook),
        fails_open: is("failurePolicy", "Ignore"),
        conditions: Conditions::of(
            &hook["matchConditions"],
            crate::admission::conditions::environment(),
        ),
        dry_run_safe: is("sideEffects", "None") || is("sideEffects", "NoneOnDryRun"),
        timeout: Duration::from_secs(seconds),
        review: versions.iter().find_map(|version| match version.as_str() {
            Some("v1") => Some(Review::V1),
            Some("v1beta1") => Some(Review::V1Beta1),
            _ => None,
        }),
        reinvocable: is("reinvocationPolicy", "IfNeeded"),
        target: Target::of(&hook["clientConfig"]),
        line: Line::new(bundle.map(|text| {
            base64::engine::general_purpose::STANDARD
                .decode(text)
                .unwrap_or_default()
        })),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn targets_are_read_as_urls_and_services() {
        for (client, name, authority, path) in [
            (json!({"url": "https://h.example"}), "h.example", "h.example", "/"),
            (
                json!({"url": "https://h.example:8443/a/b"}),
                "h.example",
                "h.example:8443",
                "/a/b",
            ),
            (json!({"url": "https://[::1]:9/x"}), "::1", "[::1]:9", "/x"),
            (json!({"url": "https://[::1]/x"}), "::1", "[::1]", "/x"),
            (
                json!({"service": {"namespace": "n", "name": "s"}}),
                "s.n.svc",
                "s.n.svc:443",
                "/",
            ),
            (
                json!({"service": {"namespace": "n", "name": "s", "port": 8080, "path": "p"}}),
                "s.n.svc",
                "s.n.svc:8080",
                "/p",
            ),
        ] {
            let target = Target::of(&client);
            assert_eq!(target.server_name(), name, "{client}");
            assert_eq!(target.authority(), authority, "{client}");
            assert_eq!(target.path(), path, "{client}");
        }
    }
}
