// SPDX-License-Identifier: Apache-2.0
//! What the cluster lets anybody write about an incident: what never changes, what is written once,
//! what only grows, and how much of it there may be.

#![allow(clippy::unwrap_used, reason = "a test that unwraps says where it failed")]

use cobaltcore_api::HaIncident;
use cobaltcore_apiserver::testkit::TestServer;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

const NAME: &str = "node001-bb1-01arz3ndek000000000w000001";

async fn cluster() -> (TestServer, Api<HaIncident>) {
    let server = TestServer::start().await;
    server.apply_yaml(&cobaltcore_api::crds_yaml(None)).await.unwrap();
    let api = Api::all(server.client());
    (server, api)
}

fn incident(spec: Value) -> HaIncident {
    let object = json!({
        "apiVersion": "kvm.cloud.sap/v1alpha1", "kind": "HaIncident",
        "metadata": {"name": NAME, "labels": {"kvm.cloud.sap/hypervisor": "node001-bb1"}}, "spec": spec,
    });
    serde_json::from_value(object).unwrap()
}

fn spec() -> Value {
    json!({"host": "node001-bb1", "type": "host-down", "openedBy": "monitor/host-down"})
}

async fn say(api: &Api<HaIncident>, status: Value) -> Result<HaIncident, String> {
    let patch = Patch::Merge(json!({"status": status}));
    let said = api.patch_status(NAME, &PatchParams::default(), &patch).await;
    said.map_err(|error| error.to_string())
}

fn snapshot(verdict: &str) -> Value {
    json!({"takenAt": "2026-11-16T10:00:00Z", "groups": [{"group": "A", "verdict": verdict}]})
}

fn guests(count: usize) -> Value {
    let guest =
        |n: usize| json!({"uuid": format!("00000000-0000-4000-8000-{n:012}"), "priority": 500, "attempt": 0});
    (0..count).map(guest).collect()
}

#[tokio::test]
async fn the_kind_is_named_and_shown_as_its_users_know_it() {
    let (server, _) = cluster().await;
    let definitions: Api<CustomResourceDefinition> = Api::all(server.client());
    let found = definitions.get("haincidents.kvm.cloud.sap").await.unwrap().spec;
    assert_eq!(
        (found.scope.as_str(), found.names.kind.as_str()),
        ("Cluster", "HaIncident")
    );
    assert_eq!(found.names.short_names, Some(vec!["hai".to_owned()]));
    let [version] = found.versions.as_slice() else {
        panic!("{:?}", found.versions)
    };
    assert_eq!(version.name, "v1alpha1");
    assert!(version.subresources.as_ref().unwrap().status.is_some());
    let columns = version.additional_printer_columns.iter().flatten();
    let columns: Vec<&str> = columns.map(|column| column.name.as_str()).collect();
    assert_eq!(columns, ["Host", "Type", "State", "Held", "Done", "Age"]);
}

#[tokio::test]
async fn about_which_host_and_what_never_changes() {
    let (_server, api) = cluster().await;
    for (field, wrong) in [
        ("host", json!("Node_1")),
        ("type", json!("host-sad")),
        ("host", Value::Null),
        ("type", Value::Null),
        ("openedBy", Value::Null),
    ] {
        let mut spec = spec();
        spec[field] = wrong.clone();
        let mut object = serde_json::to_value(incident(self::spec())).unwrap();
        object["spec"] = spec;
        let patch = Patch::Apply(object);
        let made = api.patch(NAME, &PatchParams::apply("test"), &patch).await;
        assert!(made.is_err(), "{field}: {wrong}");
    }
    api.create(&PostParams::default(), &incident(spec()))
        .await
        .unwrap();
    for change in [json!({"host": "node002-bb1"}), json!({"type": "hung"})] {
        let patch = Patch::Merge(json!({"spec": change}));
        let refused = api
            .patch(NAME, &PatchParams::default(), &patch)
            .await
            .unwrap_err();
        assert!(refused.to_string().contains("immutable"), "{refused}");
    }
}

#[tokio::test]
async fn what_is_written_once_stays_and_a_term_never_goes_back() {
    let (_server, api) = cluster().await;
    api.create(&PostParams::default(), &incident(spec()))
        .await
        .unwrap();
    let first = say(&api, json!({"epoch": 5})).await.unwrap();
    let state = first.status.unwrap().state.unwrap();
    assert_eq!(state.as_str(), "Suspect", "as long as nobody says otherwise");
    say(
        &api,
        json!({"snapshot": snapshot("dead"), "previousMaintenance": "auto"}),
    )
    .await
    .unwrap();
    say(&api, json!({"epoch": 6, "state": "Confirmed", "heldReason": ""}))
        .await
        .unwrap();
    say(&api, json!({"heldReason": "Storm"})).await.unwrap();
    for wrong in [
        json!({"epoch": 5}),
        json!({"epoch": null}),
        json!({"snapshot": snapshot("alive")}),
        json!({"snapshot": null}),
        json!({"previousMaintenance": "manual"}),
        json!({"previousMaintenance": null}),
        json!({"state": "Fine"}),
        json!({"heldReason": "Mood"}),
    ] {
        assert!(say(&api, wrong.clone()).await.is_err(), "{wrong}");
    }
    let status = api.get(NAME).await.unwrap().status.unwrap();
    assert_eq!(
        (status.epoch, status.previous_maintenance.as_deref()),
        (Some(6), Some("auto"))
    );
}

#[tokio::test]
async fn there_is_no_more_of_it_than_there_may_be_and_each_part_once() {
    let (_server, api) = cluster().await;
    api.create(&PostParams::default(), &incident(spec()))
        .await
        .unwrap();
    let step = |attempt: u32, letters: usize| json!({"key": "claim", "attempt": attempt, "detail": "x".repeat(letters)});
    say(
        &api,
        json!({"vms": guests(800), "steps": [step(1, 512), step(2, 0)]}),
    )
    .await
    .unwrap();
    let many: Vec<Value> = "abcdefghijklmnopq"
        .chars()
        .map(|letter| json!({"group": letter.to_string(), "verdict": "dead"}))
        .collect();
    let twice = json!([guests(1)[0], guests(1)[0]]);
    for wrong in [
        json!({"vms": guests(801)}),
        json!({"vms": twice}),
        json!({"steps": [step(1, 513)]}),
        json!({"steps": [step(1, 0), step(1, 0)]}),
        json!({"snapshot": {"takenAt": "2026-11-16T10:00:00Z", "groups": many}}),
        json!({"fence": [{"level": 0}]}),
    ] {
        assert!(say(&api, wrong.clone()).await.is_err(), "{wrong}");
    }
}
