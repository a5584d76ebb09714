// SPDX-License-Identifier: Apache-2.0
//! What people ask for, and what they are told when it makes no sense.

use cobaltcore_api::{Eviction, Maintenance};
use cobaltcore_operator::people::{self, Desk, Evict, Refused, Width};
use kube::api::{Api, Patch, PatchParams};
use serde_json::json;

use crate::world::{Operator, cluster, config, create_node, hypervisors, node, say, until_condition};

fn sentence<T: std::fmt::Debug>(outcome: Result<T, Refused>) -> String {
    match outcome {
        Err(Refused::No(text)) => text,
        other => panic!("expected a refusal, got {other:?}"),
    }
}

#[tokio::test]
async fn people_drain_return_and_retry_hosts() {
    let server = cluster().await;
    let client = server.client();
    let operator = Operator::start(client.clone(), config());
    let desk = Desk::new(client.clone());
    assert_eq!(
        sentence(desk.hypervisor("node1").await),
        "There is no hypervisor node1, nor any other"
    );
    create_node(&client, &node("node1")).await;
    until_condition(&client, "node1", "Ready", "False").await;
    assert_eq!(
        sentence(desk.hypervisor("node7").await),
        "There is no hypervisor node7; there are: node1"
    );
    let how = Evict {
        reason: "test".into(),
        max_parallel: Some(4),
    };
    assert!(sentence(people::evict(&desk, "node1", &how).await).contains("not registered in Nova"));
    assert!(sentence(people::retry_onboarding(&desk, "node1").await).contains("see that nova-compute runs"));
    let done = json!({
        "hypervisorId": "11111111-2222-3333-4444-555555555555", "serviceId": "11111111-2222-3333-4444-555555555556",
        "conditions": [{"type": "Onboarding", "status": "False", "reason": "Succeeded"}],
    });
    say(&client, "node1", "onboarding", done).await;
    until_condition(&client, "node1", "Ready", "True").await;
    let fleet = desk.hypervisors().await.unwrap();
    let table = people::table(&fleet, Width::Wide, "2026-11-15T00:00:00Z".parse().unwrap());
    assert!(table.contains("node1   Active   True"), "{table}");

    // Maintenance by hand, and back.
    assert!(sentence(people::enter_maintenance(&desk, "node1", " ").await).contains("--reason"));
    let asked = people::enter_maintenance(&desk, "node1", "new disk")
        .await
        .unwrap();
    assert_eq!(asked.eviction.as_deref(), Some("node1"));
    let spec = hypervisors(&client).get("node1").await.unwrap().spec;
    assert_eq!(
        (spec.maintenance, spec.maintenance_reason.as_str()),
        (Maintenance::Manual, "new disk")
    );
    assert_eq!(
        sentence(people::enter_maintenance(&desk, "node1", "again").await),
        "node1 is in maintenance already (manual: new disk)"
    );
    people::leave_maintenance(&desk, "node1").await.unwrap();
    let hypervisor = hypervisors(&client).get("node1").await.unwrap();
    assert_eq!(hypervisor.spec.maintenance, Maintenance::Off);
    assert_eq!(
        sentence(people::leave_maintenance(&desk, "node1").await),
        "node1 is not in maintenance"
    );
    until_condition(&client, "node1", "Tainted", "False/NoKubectl").await;

    // An eviction by itself: created once, followed, started again after a failure.
    let asked = people::evict(&desk, "node1", &how).await.unwrap();
    let name = asked.eviction.unwrap();
    let evictions: Api<Eviction> = Api::all(client.clone());
    let eviction = evictions.get(&name).await.unwrap();
    assert_eq!(
        (eviction.spec.hypervisor.as_str(), eviction.spec.max_parallel),
        ("node1", Some(4))
    );
    let again = people::evict(&desk, "node1", &how).await.unwrap();
    assert!(again.note.contains("under way already"), "{}", again.note);
    let ended = |reason: &str| {
        json!({"status": {"outstandingRamMb": 0, "totalInstances": 3, "migratedInstances": 2, "conditions": [
            {"type": "Evicting", "status": "False", "reason": reason, "message": "1 of 3 stays", "lastTransitionTime": "2026-01-01T00:00:00Z"}
        ]}})
    };
    let write = |reason: &'static str| {
        let (evictions, name, status) = (evictions.clone(), name.clone(), ended(reason));
        async move {
            evictions
                .patch_status(&name, &PatchParams::default(), &Patch::Merge(status))
                .await
                .unwrap();
        }
    };
    write("Failed").await;
    let progress = desk.progress(&name).await.unwrap().unwrap();
    assert_eq!(
        (progress.done, progress.total, progress.end.unwrap().0),
        (2, 3, false)
    );
    people::evict(&desk, "node1", &how).await.unwrap();
    let eviction = evictions.get(&name).await.unwrap();
    assert!(
        eviction
            .metadata
            .annotations
            .unwrap()
            .contains_key("kvm.cloud.sap/retry")
    );
    write("Succeeded").await;
    assert!(sentence(people::evict(&desk, "node1", &how).await).contains("kubectl delete eviction"));
    assert_eq!(desk.progress("nothing").await.unwrap(), None);

    // Onboarding again.
    assert_eq!(
        sentence(people::retry_onboarding(&desk, "node1").await),
        "node1 is onboarded already"
    );
    say(
        &client,
        "node1",
        "onboarding",
        json!({"conditions": [{"type": "Onboarding", "status": "False", "reason": "Aborted"}]}),
    )
    .await;
    people::retry_onboarding(&desk, "node1").await.unwrap();
    let annotations = hypervisors(&client)
        .get("node1")
        .await
        .unwrap()
        .metadata
        .annotations
        .unwrap();
    assert!(annotations.contains_key("kvm.cloud.sap/restart-onboarding"));
    operator.stop().await;
}
