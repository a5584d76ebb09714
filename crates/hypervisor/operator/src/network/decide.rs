// SPDX-License-Identifier: Apache-2.0
//! What the network of a host comes to.

use cobaltcore_api::conditions::HypervisorCondition::NetworkReady;
use cobaltcore_api::reasons::NetworkReadyReason::{
    BridgeMissing, BridgeUnhealthy, Healthy, NotReady, NotReported,
};
use cobaltcore_kit::status::{NewCondition, find};

use super::OVSNode;

const ACTIVE: &str = "Active";
const MISSING: &str = "Missing";

/// What to say about a host of a cluster that has network agents. `bridges` are those a host must
/// have; others may be as they are.
pub(super) fn network(reported: Option<&OVSNode>, bridges: &[String]) -> NewCondition {
    let Some(status) = reported.and_then(|node| node.status.as_ref()) else {
        let text = "the network agent of this node does not report: there is no OVSNode of its name";
        return NewCondition::no(NetworkReady, NotReported, text);
    };
    let (mut missing, mut unhealthy) = (Vec::new(), Vec::new());
    for name in bridges {
        match status.bridges.iter().find(|bridge| bridge.name == *name) {
            Some(bridge) if bridge.status == ACTIVE => {}
            Some(bridge) if bridge.status != MISSING => {
                let why = if bridge.message.is_empty() {
                    String::new()
                } else {
                    format!(" ({})", bridge.message)
                };
                unhealthy.push(format!("{name} is {}{why}", bridge.status));
            }
            _ => missing.push(name.as_str()),
        }
    }
    if !missing.is_empty() {
        let text = format!("missing: {}", missing.join(", "));
        return NewCondition::no(NetworkReady, BridgeMissing, text);
    }
    if !unhealthy.is_empty() {
        return NewCondition::no(NetworkReady, BridgeUnhealthy, unhealthy.join(", "));
    }
    match find(&status.conditions, "Ready") {
        Some(ready) if ready.status != "True" => {
            let text = format!("{}: {}", ready.reason, ready.message);
            NewCondition::no(NetworkReady, NotReady, text)
        }
        _ => {
            let text = format!("healthy: {}", bridges.join(", "));
            NewCondition::yes(NetworkReady, Healthy, text)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn said(status: &Value) -> NewCondition {
        let node = json!({"metadata": {"name": "n"}, "spec": {}, "status": status});
        let node: OVSNode = serde_json::from_value(node).unwrap();
        network(Some(&node), &["br-int".into(), "br-ex".into()])
    }

    fn bridges(int: &str, ex: &str) -> Value {
        json!([
            {"name": "br-int", "status": int}, {"name": "br-ex", "status": ex, "message": "a port has an error"},
            {"name": "br-other", "status": "Down"},
        ])
    }

    fn ready(status: &str) -> Value {
        json!([{"type": "Ready", "status": status, "reason": "NoFlows", "message": "none",
            "lastTransitionTime": "2026-01-01T00:00:00Z"}])
    }

    #[test]
    fn the_network_follows_its_table() {
        let healthy = bridges("Active", "Active");
        let table = [
            (
                json!({"bridges": healthy}),
                (true, Healthy, "healthy: br-int, br-ex"),
            ),
            (
                json!({"bridges": healthy, "conditions": ready("True")}),
                (true, Healthy, "healthy: br-int, br-ex"),
            ),
            (
                json!({"bridges": healthy, "conditions": ready("False")}),
                (false, NotReady, "NoFlows: none"),
            ),
            (
                json!({"bridges": bridges("Active", "Degraded")}),
                (false, BridgeUnhealthy, "br-ex is Degraded (a port has an error)"),
            ),
            (
                json!({"bridges": bridges("Missing", "Down")}),
                (false, BridgeMissing, "missing: br-int"),
            ),
            (json!({}), (false, BridgeMissing, "missing: br-int, br-ex")),
        ];
        for (status, (holds, reason, message)) in table {
            let wanted = NewCondition::new(NetworkReady, holds, reason, message);
            assert_eq!(said(&status), wanted, "{status}");
        }
    }

    #[test]
    fn who_does_not_report_is_not_ready() {
        let silent = network(None, &[]);
        let text = "the network agent of this node does not report: there is no OVSNode of its name";
        assert_eq!(silent, NewCondition::no(NetworkReady, NotReported, text));
    }
}
