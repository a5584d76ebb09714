// SPDX-License-Identifier: Apache-2.0
//! Events in the Kubernetes sense: what the agent tells people who ask `kubectl describe`.

use std::time::Duration;

use cobaltcore_apiserver::testkit::TestServer;

/// Longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// Waits for an event of this type and reason about the object of this name, such as `Warning LibvirtLost`.
pub(crate) async fn until_told(server: &TestServer, name: &str, type_and_reason: &str) {
    let begin = tokio::time::Instant::now();
    loop {
        let events = server.admin().get("/apis/events.k8s.io/v1/events").await.body;
        let mut all = events["items"].as_array().into_iter().flatten();
        let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
        if all.any(|event| {
            event["regarding"]["name"] == name
                && format!("{} {}", text(&event["type"]), text(&event["reason"])) == type_and_reason
        }) {
            return;
        }
        assert!(begin.elapsed() < PATIENCE, "no {type_and_reason} in {events:#}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
