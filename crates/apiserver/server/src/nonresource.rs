// SPDX-License-Identifier: Apache-2.0
//! Paths that are no resources: health, version, discovery, documents, metrics, keys.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use http::Method;
use http::header::{CACHE_CONTROL, X_CONTENT_TYPE_OPTIONS};
use serde_json::json;

use crate::api::Api;
use crate::call::{Answer, Call};
use crate::negotiate;
use crate::status::{ApiError, ApiResult};

/// Media type of the keys tokens are checked with.
const KEY_SET: &str = "application/jwk-set+json";
/// How long clients may keep the keys tokens are checked with.
const KEYS_MAY_BE_KEPT: &str = "public, max-age=3600";
/// Paths listed at `/`, besides the groups.
const PATHS: [&str; 14] = [
    "/.well-known/openid-configuration",
    "/healthz",
    "/healthz/ping",
    "/livez",
    "/livez/ping",
    "/livez/writer",
    "/metrics",
    "/openapi/v2",
    "/openapi/v3",
    "/openid/v1/jwks",
    "/readyz",
    "/readyz/ping",
    "/readyz/writer",
    "/version",
];

impl Api {
    /// Routes a request whose path names no resource.
    pub async fn non_resource(self: &Arc<Self>, call: &Call) -> ApiResult<Answer> {
        if call.info.path.contains("//") {
            return Err(ApiError::no_such_path());
        }
        let segments: Vec<&str> = call.info.path.split('/').filter(|s| !s.is_empty()).collect();
        let exact = matches!(
            segments.first(),
            Some(&("healthz" | "livez" | "readyz" | "metrics" | "openapi" | "openid" | ".well-known"))
        );
        if exact && call.info.path.ends_with('/') {
            return Err(ApiError::no_such_path());
        }
        self.check_method(call, &segments)?;
        match segments.as_slice() {
            [] | ["index.html"] => Ok(Answer::readable(200, &json!({"paths": self.paths()}))),
            ["healthz" | "livez", rest @ ..] => self.told_health(call, rest, false),
            ["readyz", rest @ ..] => self.told_health(call, rest, true),
            ["version"] => {
                negotiate::only(&call.headers, "application/json")?;
                Ok(Answer::readable(200, &version()))
            }
            ["metrics"] if !call.info.path.ends_with('/') => Ok(Answer::bytes(
                200,
                "text/plain; version=0.0.4; charset=utf-8",
                self.render_metrics().into(),
            )),
            ["openapi", rest @ ..] => self.openapi(call, rest).await,
            ["api" | "apis", ..] => self.discover(call, &segments),
            [".well-known", "openid-configuration"] => {
                negotiate::only(&call.headers, "application/json")?;
                let host = call
                    .header(&http::header::HOST)
                    .unwrap_or("kubernetes.default.svc")
                    .to_owned();
                let document = self.authenticator.openid_configuration(&host);
                Ok(Answer::json(200, &document).with(CACHE_CONTROL, KEYS_MAY_BE_KEPT))
            }
            ["openid", "v1", "jwks"] => {
                negotiate::only(&call.headers, KEY_SET)?;
                let body = serde_json::to_vec(&self.authenticator.jwks()).unwrap_or_default();
                let keys = Answer::bytes(200, KEY_SET, body.into());
                Ok(keys.with(CACHE_CONTROL, KEYS_MAY_BE_KEPT))
            }
            ["debug", "rbac"] => self.rbac_report(call),
            _ => Err(ApiError::no_such_path()),
        }
    }

    /// Groups, health, documents and the paths themselves are told to whoever asks, however they ask.
    /// What else is there is only read, and most of it only with GET.
    fn check_method(&self, call: &Call, segments: &[&str]) -> ApiResult<()> {
        let allowed = match segments {
            ["api" | "version"] | [".well-known", "openid-configuration"] | ["openid", "v1", "jwks"] => {
                call.method == Method::GET
            }
            ["api", version] => call.method == Method::GET || !self.types().tells_builtins("", version)?,
            ["apis", group, version] => {
                call.method == Method::GET || !self.types().tells_builtins(group, version)?
            }
            ["metrics"] => matches!(call.method, Method::GET | Method::HEAD),
            _ => true,
        };
        allowed.then_some(()).ok_or_else(ApiError::method_not_allowed)
    }

    fn paths(&self) -> Vec<String> {
        let registry = self.types();
        let mut paths: Vec<String> = PATHS.iter().map(ToString::to_string).collect();
        paths.extend(["/api".to_owned(), "/apis".to_owned()]);
        for (name, group) in registry.groups().filter(|(_, g)| !g.is_empty()) {
            if !name.is_empty() {
                paths.push(format!("/apis/{name}"));
            }
            for version in group.served() {
                paths.push(if name.is_empty() {
                    format!("/api/{}", version.name)
                } else {
                    format!("/apis/{name}/{}", version.name)
                });
            }
        }
        paths.sort();
        paths
    }

    /// The state of one health check.
    fn check(&self, name: &str) -> Option<bool> {
        match name {
            "ping" => Some(true),
            "writer" => Some(!self.store.statistics().failing.load(Ordering::Relaxed)),
            "loaded" | "controllers" => Some(self.ready.load(Ordering::Acquire)),
            "not-stopping" => Some(!self.stop.is_cancelled()),
            _ => None,
        }
    }

    /// Health is plain text, whatever a browser may take it for.
    fn told_health(&self, call: &Call, rest: &[&str], readiness: bool) -> ApiResult<Answer> {
        let answer = self.health(call, rest, readiness)?;
        if rest.is_empty() {
            return Ok(answer.with(X_CONTENT_TYPE_OPTIONS, "nosniff"));
        }
        // A single check says no more than it was asked.
        Ok(answer)
    }

    fn health(&self, call: &Call, rest: &[&str], readiness: bool) -> ApiResult<Answer> {
        let names: &[&str] = if readiness {
            &["ping", "writer", "loaded", "controllers", "not-stopping"]
        } else {
            &["ping", "writer"]
        };
        if let [name] = rest {
            return match self.check(name).filter(|_| names.contains(name)) {
                Some(true) => Ok(Answer::text(200, "ok")),
                Some(false) => Ok(Answer::text(500, format!("internal server error: {name} failed"))),
                None => Err(ApiError::no_such_path()),
            };
        }
        if !rest.is_empty() {
            return Err(ApiError::no_such_path());
        }
        let probe = call.info.path.trim_matches('/');
        let excluded: Vec<&str> = call.query.all("exclude").collect();
        let mut lines = String::new();
        let mut failed = Vec::new();
        for name in names {
            if excluded.contains(name) {
                lines.push_str(&format!("[+]{name} excluded: ok\n"));
            } else if self.check(name) == Some(true) {
                lines.push_str(&format!("[+]{name} ok\n"));
            } else {
                lines.push_str(&format!("[-]{name} failed: reason withheld\n"));
                failed.push(*name);
            }
        }
        let unknown: Vec<String> = excluded
            .iter()
            .filter(|e| !names.contains(e))
            .map(|e| format!("{e:?}"))
            .collect();
        if !unknown.is_empty() {
            lines.push_str(&format!(
                "warn: some health checks cannot be excluded: no matches for {}\n",
                unknown.join(",")
            ));
        }
        if !failed.is_empty() {
            return Ok(Answer::text(500, format!("{lines}{probe} check failed\n")));
        }
        if call.query.get("verbose").is_some() {
            return Ok(Answer::text(200, format!("{lines}{probe} check passed\n")));
        }
        Ok(Answer::text(200, "ok"))
    }

    fn rbac_report(&self, call: &Call) -> ApiResult<Answer> {
        let user = call.query.get("user").unwrap_or_default();
        let format = call.query.get("format").unwrap_or("text");
        let report = self.rbac_report_for(user);
        match format {
            "json" => Ok(Answer::json(200, &report.to_value())),
            "yaml" => Ok(Answer::bytes(200, "application/yaml", report.to_yaml().into())),
            "text" => Ok(Answer::text(200, report.to_text())),
            other => Err(ApiError::bad_request(format!(
                "unknown format {other:?}: use text, json or yaml"
            ))),
        }
    }
}

/// The answer at `/version`.
pub(crate) fn version() -> serde_json::Value {
    json!({
        "major": "1",
        "minor": "36",
        "emulationMajor": "1",
        "emulationMinor": "36",
        "minCompatibilityMajor": "1",
        "minCompatibilityMinor": "35",
        "gitVersion": concat!("v1.36.0+cobaltcore.", env!("CARGO_PKG_VERSION")),
        "gitCommit": option_env!("COBALTCORE_COMMIT").unwrap_or("unknown"),
        "gitTreeState": "clean",
        "buildDate": option_env!("COBALTCORE_BUILD_DATE").unwrap_or("1970-01-01T00:00:00Z"),
        "goVersion": concat!("rust-", env!("CARGO_PKG_RUST_VERSION")),
        "compiler": "rustc",
        "platform": format!("{}/{}", std::env::consts::OS, arch()),
    })
}

fn arch() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}
