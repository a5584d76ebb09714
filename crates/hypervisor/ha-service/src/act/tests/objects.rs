// SPDX-License-Identifier: Apache-2.0
//! Objects of the embedded Kubernetes API, and the book of hosts that no cluster knows.

use cobaltcore_api::Maintenance;
use cobaltcore_ha_engine::{Answer, Effect, Mono, Refusal, Trouble};
use serde_json::{Value, json};

use super::{ONE, Rig, TWO, action, name};

const HYPERVISOR: &str = "/apis/kvm.cloud.sap/v1/hypervisors/node001-bb1";
const EVICTION: &str = "/apis/kvm.cloud.sap/v1/evictions/node001-bb1";
const NODE: &str = "/api/v1/nodes/node001-bb1";

fn claim(expected: Maintenance) -> Effect {
    Effect::Claim {
        host: name(ONE),
        expected,
    }
}

async fn object(rig: &Rig, path: &str) -> Value {
    rig.api.as_ref().unwrap().admin().get(path).await.body
}

async fn change(rig: &Rig, path: &str, patch: Value) {
    let reply = rig.api.as_ref().unwrap().admin().merge(path, &patch).await;
    assert_eq!(reply.code, 200, "{}", reply.message());
}

fn condition<'a>(hypervisor: &'a Value, kind: &str) -> Option<(&'a str, &'a str)> {
    let all = hypervisor["status"]["conditions"].as_array()?;
    let found = all.iter().find(|condition| condition["type"] == kind)?;
    Some((found["status"].as_str()?, found["reason"].as_str()?))
}

async fn maintenance(rig: &Rig) -> Maintenance {
    match rig
        .act(Effect::ReadMaintenance { host: name(ONE) })
        .await
        .unwrap()
    {
        Answer::Maintenance(found) => found,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_host_is_claimed_only_if_it_is_what_it_was() {
    let rig = Rig::with("", true).await;
    assert_eq!(maintenance(&rig).await, Maintenance::Off);
    let refused = rig.act(claim(Maintenance::Auto)).await.unwrap_err();
    assert_eq!(refused, Trouble::Refused(Refusal::Conflict));
    rig.act(claim(Maintenance::Off)).await.unwrap();
    assert_eq!(maintenance(&rig).await, Maintenance::Ha);
    let hypervisor = object(&rig, HYPERVISOR).await;
    assert_eq!(condition(&hypervisor, "HaRecovery"), Some(("True", "Fencing")));
    let again = rig.act(claim(Maintenance::Off)).await.unwrap_err();
    assert_eq!(
        again,
        Trouble::Refused(Refusal::Conflict),
        "the engine reads what it is"
    );
    assert_eq!(
        object(&rig, &HYPERVISOR.replace("001", "002")).await["spec"]["maintenance"],
        Value::Null
    );
}

#[tokio::test]
async fn others_who_write_all_the_time_do_not_keep_a_claim_from_succeeding() {
    let rig = Rig::with("", true).await;
    let api = rig.api.as_ref().unwrap().admin();
    let noise = async {
        for n in 0..40 {
            let patch = json!({"metadata": {"annotations": {"noise": n.to_string()}}});
            api.merge(HYPERVISOR, &patch).await;
        }
    };
    let (claimed, ()) = tokio::join!(rig.act(claim(Maintenance::Off)), noise);
    claimed.unwrap();
    assert_eq!(maintenance(&rig).await, Maintenance::Ha);
}

#[tokio::test]
async fn the_condition_is_written_only_while_the_host_is_ours() {
    let rig = Rig::with("", true).await;
    let set = Effect::SetDisabled { host: name(ONE) };
    let refused = rig.act(set.clone()).await.unwrap_err();
    assert_eq!(
        refused,
        Trouble::Refused(Refusal::Conflict),
        "the operator would give the host back"
    );
    rig.act(claim(Maintenance::Off)).await.unwrap();
    rig.act(set.clone()).await.unwrap();
    rig.act(set).await.expect("twice is once");
    let hypervisor = object(&rig, HYPERVISOR).await;
    assert_eq!(
        condition(&hypervisor, "HypervisorDisabled"),
        Some(("True", "Succeeded"))
    );
    assert_eq!(condition(&hypervisor, "HaRecovery"), Some(("True", "Evacuating")));
    let back = Effect::RestoreMaintenance {
        host: name(ONE),
        value: Maintenance::Off,
    };
    rig.act(back.clone()).await.unwrap();
    let hypervisor = object(&rig, HYPERVISOR).await;
    assert_eq!(hypervisor["spec"]["maintenance"].as_str().unwrap_or_default(), "");
    assert_eq!(condition(&hypervisor, "HaRecovery"), Some(("False", "Released")));
    let kept = condition(&hypervisor, "HypervisorDisabled");
    assert_eq!(
        kept,
        Some(("True", "Succeeded")),
        "the operator enables the host and says so itself"
    );
    assert_eq!(
        rig.act(back).await.unwrap_err(),
        Trouble::Refused(Refusal::Conflict)
    );
}

#[tokio::test]
async fn conditions_of_others_stay() {
    let rig = Rig::with("", true).await;
    let ready = json!({"apiVersion": "kvm.cloud.sap/v1", "kind": "Hypervisor", "metadata": {"name": ONE}, "status": {"conditions": [
        {"type": "Ready", "status": "True", "reason": "Ready", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}});
    let path = format!("{HYPERVISOR}/status?fieldManager=ready");
    let reply = rig.api.as_ref().unwrap().admin().apply(&path, &ready).await;
    assert_eq!(reply.code, 200, "{}", reply.message());
    rig.act(claim(Maintenance::Off)).await.unwrap();
    rig.act(Effect::SetDisabled { host: name(ONE) }).await.unwrap();
    let hypervisor = object(&rig, HYPERVISOR).await;
    assert_eq!(condition(&hypervisor, "Ready"), Some(("True", "Ready")));
}

#[tokio::test]
async fn a_host_that_was_leaving_goes_on_leaving() {
    let rig = Rig::with("", true).await;
    change(&rig, HYPERVISOR, json!({"spec": {"maintenance": "termination"}})).await;
    rig.act(claim(Maintenance::Termination)).await.unwrap();
    let value = Maintenance::Termination;
    rig.act(Effect::RestoreMaintenance {
        host: name(ONE),
        value,
    })
    .await
    .unwrap();
    assert_eq!(maintenance(&rig).await, Maintenance::Termination);
}

#[tokio::test]
async fn the_node_is_marked_and_unmarked_without_touching_other_taints() {
    let rig = Rig::with("", true).await;
    rig.world.power_off(ONE).unwrap();
    for _ in 0..2 {
        rig.act(Effect::Hold {
            host: name(ONE),
            level: 0,
        })
        .await
        .unwrap();
    }
    let node = object(&rig, NODE).await;
    let keys = |node: &Value| -> Vec<String> {
        let taints = node["spec"]["taints"].as_array().cloned().unwrap_or_default();
        taints
            .iter()
            .map(|taint| {
                format!(
                    "{}:{}",
                    taint["key"].as_str().unwrap(),
                    taint["effect"].as_str().unwrap()
                )
            })
            // The API itself taints a node that is not ready.
            .filter(|taint| !taint.starts_with("node.kubernetes.io/"))
            .collect()
    };
    assert_eq!(
        keys(&node),
        ["other:NoSchedule", "kvm.cloud.sap/ha-fenced:NoExecute"]
    );
    assert_eq!(
        node["metadata"]["annotations"]["kvm.cloud.sap/ha-fenced"],
        "node001-bb1-3-1"
    );
    let all = node["spec"]["taints"].as_array().unwrap();
    let ours = all.iter().find(|taint| taint["key"] == "kvm.cloud.sap/ha-fenced");
    assert_eq!(
        ours.unwrap()["value"],
        Value::Null,
        "a value may have 63 letters, and an incident of a host with a long name has more"
    );
    rig.act(Effect::ReleaseFence {
        host: name(ONE),
        levels: vec![0],
    })
    .await
    .unwrap();
    let node = object(&rig, NODE).await;
    assert_eq!(keys(&node), ["other:NoSchedule"]);
    assert_eq!(
        node["metadata"]["annotations"]["kvm.cloud.sap/ha-fenced"],
        Value::Null
    );
}

#[tokio::test]
async fn a_host_without_a_node_is_held_all_the_same() {
    let rig = Rig::with("", true).await;
    rig.api.as_ref().unwrap().admin().delete(NODE).await;
    rig.act(Effect::Hold {
        host: name(ONE),
        level: 0,
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn a_running_eviction_is_deleted_where_the_operator_does_not_stop_it() {
    for (options, stays) in [("", true), (", eviction_on_takeover: delete", false)] {
        let rig = Rig::with(options, true).await;
        let text = "apiVersion: kvm.cloud.sap/v1\nkind: Eviction\nmetadata: {name: node001-bb1}\nspec: {hypervisor: node001-bb1, reason: test}\n";
        rig.api.as_ref().unwrap().apply_yaml(text).await.unwrap();
        let stop = Effect::StopEviction { host: name(ONE) };
        let early = rig.act(stop.clone()).await;
        if !stays {
            assert_eq!(
                early.unwrap_err(),
                Trouble::Refused(Refusal::Conflict),
                "the operator would make it again"
            );
        }
        rig.act(claim(Maintenance::Off)).await.unwrap();
        rig.act(stop.clone()).await.unwrap();
        let code = rig.api.as_ref().unwrap().admin().get(EVICTION).await.code;
        assert_eq!(code == 200, stays, "{options} {code}");
        rig.act(stop).await.expect("twice is once");
    }
}

#[tokio::test]
async fn an_api_that_breaks_is_unknown_and_one_that_forbids_is_refused() {
    let rig = Rig::with("", true).await;
    let gone = Effect::ReadMaintenance { host: name(TWO) };
    rig.api
        .as_ref()
        .unwrap()
        .admin()
        .delete(&HYPERVISOR.replace("001", "002"))
        .await;
    assert_eq!(
        rig.act(gone).await.unwrap_err(),
        Trouble::Refused(Refusal::NotFound)
    );
    let mut nobody = rig.deps.clone();
    let user = cobaltcore_apiserver::testkit::TestServer::start_with_rbac().await;
    nobody.kubernetes = Some(user.client_for_service_account("default", "nobody"));
    let executor = super::Executor::new(nobody).unwrap();
    let read = action(Effect::ReadMaintenance { host: name(ONE) }, Mono(u64::MAX));
    assert_eq!(
        executor.run(&read).await.unwrap_err(),
        Trouble::Refused(Refusal::Unauthorized)
    );
}

#[tokio::test]
async fn without_a_cluster_the_book_keeps_the_claim() {
    let rig = Rig::new().await;
    assert_eq!(maintenance(&rig).await, Maintenance::Off);
    rig.act(claim(Maintenance::Off)).await.unwrap();
    assert_eq!(maintenance(&rig).await, Maintenance::Ha);
    let refused = rig.act(claim(Maintenance::Off)).await.unwrap_err();
    assert_eq!(refused, Trouble::Refused(Refusal::Conflict));
    for effect in [
        Effect::SetDisabled { host: name(ONE) },
        Effect::StopEviction { host: name(ONE) },
        Effect::Hold {
            host: name(ONE),
            level: 0,
        },
        Effect::RestoreMaintenance {
            host: name(ONE),
            value: Maintenance::Off,
        },
    ] {
        rig.act(effect).await.unwrap();
    }
    assert_eq!(maintenance(&rig).await, Maintenance::Off);
}
