// SPDX-License-Identifier: Apache-2.0
//! One line per request: who, what, how it ended. Never a body, never a token.

use std::fmt;
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::time::Duration;

use http::HeaderValue;
use parking_lot::Mutex;
use serde_json::json;

use crate::clock::Clock;
use crate::dispatch::Head;

/// What is known of one request.
#[derive(Debug, Clone)]
pub struct Entry {
    /// Who asked.
    pub user: String,
    /// Verb.
    pub verb: &'static str,
    /// API group.
    pub group: String,
    /// API version.
    pub version: String,
    /// Resource.
    pub resource: String,
    /// Subresource.
    pub subresource: String,
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// Path, for what is no resource.
    pub path: String,
    /// Status code.
    pub code: u16,
    /// Time taken.
    pub took: Duration,
    audit_id: String,
    peer: String,
}

impl Entry {
    /// What is known when the request arrives.
    pub fn new(head: &Head, peer: &str, audit_id: &HeaderValue) -> Self {
        let info = &head.info;
        Self {
            user: String::new(),
            verb: info.verb,
            group: info.group.clone(),
            version: info.version.clone(),
            resource: info.resource.clone(),
            subresource: info.subresource.clone(),
            namespace: info.namespace.clone(),
            name: info.name.clone(),
            path: head.path.clone(),
            code: 0,
            took: Duration::ZERO,
            audit_id: audit_id.to_str().unwrap_or_default().to_owned(),
            peer: peer.to_owned(),
        }
    }

    /// How it ended.
    pub fn finish(&mut self, code: u16, took: Duration) {
        self.code = code;
        self.took = took;
    }

    /// Whether it is a stream.
    pub fn is_watch(&self) -> bool {
        self.verb == "watch"
    }

    /// Only answers to reading requests are compressed.
    pub fn may_compress(&self) -> bool {
        matches!(self.verb, "get" | "list")
    }
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} by {:?}", self.verb, self.path, self.user)
    }
}

/// Where entries go.
#[derive(Debug, Default)]
pub struct Audit(Option<Mutex<File>>);

impl Audit {
    /// Appends to a file readable by its owner only.
    pub fn open(path: &Path) -> std::io::Result<Self> {
        use std::os::unix::fs::OpenOptionsExt;
        let file = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .mode(0o600)
            .open(path)?;
        Ok(Self(Some(Mutex::new(file))))
    }

    /// Writes one entry.
    pub fn write(&self, entry: &Entry, clock: &Clock) {
        if entry.code >= 500 {
            tracing::info!(request = %entry, code = entry.code, "request failed");
        } else if entry.code >= 400 {
            tracing::debug!(request = %entry, code = entry.code, "request refused");
        }
        let Some(file) = &self.0 else { return };
        let line = json!({
            "time": clock.now().to_string(), "auditID": entry.audit_id, "user": entry.user, "verb": entry.verb,
            "group": entry.group, "resource": entry.resource, "subresource": entry.subresource,
            "namespace": entry.namespace, "name": entry.name, "path": entry.path, "code": entry.code,
            "millis": entry.took.as_secs_f64() * 1_000.0, "source": entry.peer,
        });
        if let Err(error) = writeln!(file.lock(), "{line}") {
            tracing::warn!(%error, "writing the audit log");
        }
    }
}
