// SPDX-License-Identifier: Apache-2.0
//! Placement over plain HTTP: generations, conflicts, traits, allocations, candidates, with the codes clients look for.
#![allow(clippy::unwrap_used)]

mod support;

use cobaltcore_sim::world::World;
use serde_json::{Value, json};
use support::Api;

const ONE: &str = "node001-bb1";

async fn start() -> (Api, String) {
    let api = Api::of(World::builder().hosts(2).vms_per_host(1).seed(7).manual_clock()).await;
    let node = api.world().read(|state| state.hosts[ONE].node_uuid.to_string());
    (api, node)
}

#[tokio::test]
async fn traits_are_written_under_a_generation() {
    let (api, node) = start().await;
    let path = format!("/resource_providers/{node}/traits");
    let read = api.placement("GET", &path, None).await.expect(200);
    let generation = read["resource_provider_generation"].as_u64().unwrap();
    let mut traits: Vec<Value> = read["traits"].as_array().unwrap().clone();
    traits.push("CUSTOM_GOLD".into());
    let body = |generation: u64| json!({"resource_provider_generation": generation, "traits": traits});
    let unknown = api.placement("PUT", &path, Some(body(generation))).await;
    assert_eq!(unknown.status, 400);
    assert!(
        unknown.body["errors"][0]["detail"]
            .as_str()
            .unwrap()
            .contains("No such trait CUSTOM_GOLD")
    );
    api.placement("PUT", "/traits/CUSTOM_GOLD", None)
        .await
        .expect(201);
    api.placement("PUT", "/traits/CUSTOM_GOLD", None)
        .await
        .expect(204);
    let bad = api.placement("PUT", "/traits/gold", None).await;
    assert_eq!(bad.status, 400);
    let written = api
        .placement("PUT", &path, Some(body(generation)))
        .await
        .expect(200);
    assert_eq!(
        written["resource_provider_generation"].as_u64(),
        Some(generation + 1)
    );
    let stale = api.placement("PUT", &path, Some(body(generation))).await;
    assert_eq!(stale.status, 409);
    let error = &stale.body["errors"][0];
    assert_eq!(
        (&error["code"], &error["title"]),
        (&"placement.concurrent_update".into(), &"Conflict".into())
    );
    assert_eq!(
        error["detail"],
        "There was a conflict when trying to complete your request.\n\n Resource provider's generation already changed. Please update the generation and try again.  "
    );
    assert!(error["request_id"].as_str().unwrap().starts_with("req-"));
}

#[tokio::test]
async fn a_provider_in_use_cannot_be_deleted() {
    let (api, node) = start().await;
    let refused = api
        .placement("DELETE", &format!("/resource_providers/{node}"), None)
        .await;
    assert_eq!(
        (refused.status, &refused.body["errors"][0]["code"]),
        (409, &"placement.resource_provider.inuse".into())
    );
    let held = api
        .placement("GET", &format!("/resource_providers/{node}/allocations"), None)
        .await
        .expect(200);
    let consumers: Vec<&String> = held["allocations"].as_object().unwrap().keys().collect();
    assert_eq!(consumers.len(), 1);
    let path = format!("/allocations/{}", consumers[0]);
    let shown = api.placement("GET", &path, None).await.expect(200);
    assert_eq!(
        (&shown["consumer_type"], &shown["consumer_generation"]),
        (&"INSTANCE".into(), &json!(1))
    );
    api.placement("DELETE", &path, None).await.expect(204);
    let empty = api.placement("GET", &path, None).await.expect(200);
    assert_eq!(
        empty,
        json!({"allocations": {}}),
        "an unknown consumer holds nothing"
    );
    let gone = api.placement("DELETE", &path, None).await;
    assert_eq!(gone.status, 404);
    api.placement("DELETE", &format!("/resource_providers/{node}"), None)
        .await
        .expect(204);
    let missing = api
        .placement("GET", &format!("/resource_providers/{node}"), None)
        .await;
    assert_eq!(
        (missing.status, &missing.body["errors"][0]["title"]),
        (404, &"Not Found".into())
    );
}

#[tokio::test]
async fn allocations_know_their_generation_and_their_limits() {
    let (api, node) = start().await;
    let consumer = "11111111-2222-4333-8444-555555555555";
    let path = format!("/allocations/{consumer}");
    let body = |generation: Value, vcpus: u64| {
        json!({"allocations": {(node.clone()): {"resources": {"VCPU": vcpus}}}, "project_id": "p", "user_id": "u",
               "consumer_generation": generation, "consumer_type": "INSTANCE", "mappings": {}})
    };
    api.placement("PUT", &path, Some(body(Value::Null, 2)))
        .await
        .expect(204);
    let stale = api.placement("PUT", &path, Some(body(Value::Null, 3))).await;
    assert_eq!(
        (stale.status, &stale.body["errors"][0]["code"]),
        (409, &"placement.concurrent_update".into())
    );
    let much = api.placement("PUT", &path, Some(body(json!(1), 100_000))).await;
    assert_eq!(much.status, 409, "{}", much.text);
    let kept = api.placement("GET", &path, None).await.expect(200);
    assert_eq!(
        kept["allocations"][&node]["resources"]["VCPU"], 2,
        "a refused change changes nothing"
    );
    assert_eq!(kept["consumer_generation"], 1);
    api.placement("PUT", &path, Some(body(json!(1), 4)))
        .await
        .expect(204);
    let usages = api
        .placement("GET", "/usages?project_id=p", None)
        .await
        .expect(200);
    assert_eq!(usages["usages"], json!({"VCPU": 4}));
}

#[tokio::test]
async fn candidates_have_room_and_the_traits_that_are_asked_for() {
    let (api, node) = start().await;
    let ask = |query: &str| {
        let path = format!("/allocation_candidates?resources=VCPU:1,MEMORY_MB:512{query}");
        let api = &api;
        async move { api.placement("GET", &path, None).await }
    };
    let both = ask("").await.expect(200);
    assert_eq!(both["allocation_requests"].as_array().unwrap().len(), 2);
    let service = api.service(ONE).await["id"].as_str().unwrap().to_owned();
    let body = json!({"status": "disabled"});
    api.nova("PUT", &format!("/os-services/{service}"), Some(body))
        .await
        .expect(200);
    let enabled = ask("&required=!COMPUTE_STATUS_DISABLED").await.expect(200);
    assert_eq!(enabled["allocation_requests"].as_array().unwrap().len(), 1);
    assert!(enabled["provider_summaries"].get(&node).is_none());
    let either = ask("&required=in:COMPUTE_STATUS_DISABLED,COMPUTE_NODE")
        .await
        .expect(200);
    assert_eq!(either["allocation_requests"].as_array().unwrap().len(), 2);
    assert_eq!(ask("&required=CUSTOM_NOBODY").await.status, 400);
    let unknown = api
        .placement("GET", "/allocation_candidates?resources=BANANAS:1", None)
        .await;
    assert_eq!(unknown.status, 400);
    let none = api
        .placement("GET", "/allocation_candidates?resources=VCPU:100000", None)
        .await
        .expect(200);
    assert_eq!(none["allocation_requests"], json!([]));
}

#[tokio::test]
async fn a_dead_host_keeps_what_was_evacuated_from_it_until_it_returns() {
    let (api, node) = start().await;
    let id = api.on(ONE).await.remove(0);
    api.world().power_off(ONE).unwrap();
    api.step(61);
    api.act(&id, json!({"evacuate": {}})).await.expect(200);
    api.step(20);
    let path = format!("/resource_providers/{node}/allocations");
    let held = api.placement("GET", &path, None).await.expect(200);
    assert!(held["allocations"].get(&id).is_some());
    let service = api.service(ONE).await["id"].as_str().unwrap().to_owned();
    api.nova("DELETE", &format!("/os-services/{service}"), None)
        .await
        .expect(204);
    api.placement("GET", &format!("/resource_providers/{node}"), None)
        .await
        .expect(200);
}
