// SPDX-License-Identifier: Apache-2.0
//! Words the webhook tests share: a server whose webhooks are closures, configurations, answers.

#![allow(
    dead_code,
    unreachable_pub,
    missing_docs,
    reason = "every test file uses its own part"
)]

use std::sync::{Arc, Mutex};

use base64::Engine;
use cobaltcore_apiserver::WebhookHandler;
use cobaltcore_apiserver::testkit::{Caller, Reply, TestServer};
use futures::FutureExt;
use serde_json::{Value, json};

pub const MAPS: &str = "/api/v1/namespaces/default/configmaps";
pub const PODS: &str = "/api/v1/namespaces/default/pods";
pub const REGISTRATION: &str = "/apis/admissionregistration.k8s.io/v1";

/// Reviews a webhook was sent.
pub type Seen = Arc<Mutex<Vec<Value>>>;

/// A server with one webhook service, and what its webhooks saw.
pub struct World {
    pub server: TestServer,
    pub seen: Seen,
}

impl World {
    pub async fn new() -> Self {
        Self {
            server: TestServer::start_with_rbac().await,
            seen: Seen::default(),
        }
    }

    pub fn admin(&self) -> Caller {
        self.server.admin()
    }

    /// Serves `/path` of the service hooks/test; `respond` turns a request into a response.
    pub fn serve(&self, path: &str, respond: impl Fn(&Value) -> Value + Send + Sync + 'static) {
        let seen = self.seen.clone();
        let handler: WebhookHandler = Arc::new(move |review: Value| {
            let mut response = respond(&review["request"]);
            if response.get("uid").is_none() {
                response["uid"] = review["request"]["uid"].clone();
            }
            seen.lock().unwrap().push(review);
            async move {
                json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response})
            }
            .boxed()
        });
        self.server
            .server()
            .register_webhook("hooks", "test", path, handler);
    }

    /// Installs a configuration with one webhook that calls `path`.
    pub async fn configure(&self, kind: &str, name: &str, path: &str, rule: Value, more: Value) -> Reply {
        let mut hook = json!({
            "name": format!("{name}.hooks.example"), "sideEffects": "None", "admissionReviewVersions": ["v1"],
            "clientConfig": {"service": {"namespace": "hooks", "name": "test", "path": path}}, "rules": [rule],
        });
        for (key, value) in more.as_object().cloned().unwrap_or_default() {
            hook[key] = value;
        }
        let body = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind,
            "metadata": {"name": name}, "webhooks": [hook]});
        let plural = format!("{}s", kind.to_lowercase());
        self.admin()
            .post(&format!("{REGISTRATION}/{plural}"), &body)
            .await
    }

    pub async fn mutating(&self, name: &str, path: &str, rule: Value, more: Value) {
        let reply = self
            .configure("MutatingWebhookConfiguration", name, path, rule, more)
            .await;
        assert_eq!(reply.code, 201, "{}", reply.body);
    }

    pub async fn validating(&self, name: &str, path: &str, rule: Value, more: Value) {
        let reply = self
            .configure("ValidatingWebhookConfiguration", name, path, rule, more)
            .await;
        assert_eq!(reply.code, 201, "{}", reply.body);
    }

    /// The requests seen since the last look.
    pub fn take(&self) -> Vec<Value> {
        self.seen
            .lock()
            .unwrap()
            .drain(..)
            .map(|review| review["request"].clone())
            .collect()
    }
}

pub fn rule(groups: &str, resources: &[&str], operations: &[&str]) -> Value {
    json!({"apiGroups": [groups], "apiVersions": ["*"], "resources": resources, "operations": operations})
}

pub fn allow() -> Value {
    json!({"allowed": true})
}

pub fn patch(operations: Value) -> Value {
    let text = base64::engine::general_purpose::STANDARD.encode(operations.to_string());
    json!({"allowed": true, "patch": text, "patchType": "JSONPatch"})
}

pub fn annotate(key: &'static str, value: &str) -> Value {
    patch(json!([{"op": "add", "path": format!("/metadata/annotations/{key}"), "value": value}]))
}

pub fn map(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "annotations": {"a": "b"}}, "data": {"k": "v"}})
}

pub fn pod(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {"containers": [{"name": "c", "image": "i"}]}})
}
