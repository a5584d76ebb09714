// SPDX-License-Identifier: Apache-2.0
//! `kube::Api`: every verb, subresources, entries, apply, paging and discovery.

use std::collections::BTreeSet;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::{
    Api, DeleteParams, DynamicObject, EvictParams, ListParams, Patch, PatchParams, PostParams,
    PropagationPolicy, ValidationDirective,
};
use kube::core::GroupVersionKind;
use kube::discovery::{Discovery, Scope, pinned_kind, verbs};
use kube::{Client, ResourceExt};
use serde_json::json;

use crate::world::{Lamp, LampSpec, LampStatus, entry_of, map, refusal, until, world};

fn created(n: usize) -> PostParams {
    PostParams {
        field_manager: Some(format!("tests-{n}")),
        ..PostParams::default()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_verb() {
    let world = world().await;
    for (way, client) in world.both_ways().await {
        let maps: Api<ConfigMap> = Api::namespaced(client, way);
        let one = maps
            .create(&PostParams::default(), &map("one", "1"))
            .await
            .unwrap();
        assert!(
            one.uid().is_some() && one.resource_version().is_some() && one.creation_timestamp().is_some()
        );
        assert_eq!(
            refusal(maps.create(&PostParams::default(), &map("one", "1")).await),
            (
                409,
                "AlreadyExists".into(),
                "configmaps \"one\" already exists".into()
            )
        );
        assert_eq!(entry_of(&maps.get("one").await.unwrap()), Some("1"));
        assert_eq!(
            refusal(maps.get("nope").await),
            (404, "NotFound".into(), "configmaps \"nope\" not found".into())
        );
        assert!(maps.get_opt("nope").await.unwrap().is_none());
        let meta = maps.get_metadata("one").await.unwrap();
        assert_eq!(
            (meta.uid(), meta.types.unwrap().kind.as_str()),
            (one.uid(), "PartialObjectMetadata")
        );

        let mut changed = one.clone();
        changed.data = map("one", "2").data;
        let replaced = maps
            .replace("one", &PostParams::default(), &changed)
            .await
            .unwrap();
        assert_ne!(replaced.resource_version(), one.resource_version());
        let (code, reason, message) = refusal(maps.replace("one", &PostParams::default(), &changed).await);
        assert_eq!((code, reason.as_str()), (409, "Conflict"));
        assert!(
            message.starts_with(
                "Operation cannot be fulfilled on configmaps \"one\": the object has been modified"
            ),
            "{message}"
        );

        let merged = maps
            .patch(
                "one",
                &PatchParams::default(),
                &Patch::Merge(json!({"data": {"k": "3"}})),
            )
            .await
            .unwrap();
        assert_eq!(entry_of(&merged), Some("3"));
        let strategic = maps
            .patch(
                "one",
                &PatchParams::default(),
                &Patch::Strategic(json!({"metadata": {"finalizers": ["test/hold"]}})),
            )
            .await
            .unwrap();
        assert_eq!(strategic.finalizers(), ["test/hold"]);
        let operations: json_patch::Patch =
            serde_json::from_value(json!([{"op": "replace", "path": "/data/k", "value": "4"}])).unwrap();
        let by_json = maps
            .patch("one", &PatchParams::default(), &Patch::Json::<()>(operations))
            .await
            .unwrap();
        assert_eq!(entry_of(&by_json), Some("4"));
        let trial = maps
            .patch(
                "one",
                &PatchParams::default().dry_run(),
                &Patch::Merge(json!({"data": {"k": "5"}})),
            )
            .await
            .unwrap();
        assert_eq!(
            (entry_of(&trial), entry_of(&maps.get("one").await.unwrap())),
            (Some("5"), Some("4"))
        );

        let held = maps.delete("one", &DeleteParams::default()).await.unwrap();
        assert!(
            held.left().unwrap().metadata.deletion_timestamp.is_some(),
            "the finalizer holds it"
        );
        maps.patch(
            "one",
            &PatchParams::default(),
            &Patch::Merge(json!({"metadata": {"finalizers": null}})),
        )
        .await
        .unwrap();
        assert!(maps.get_opt("one").await.unwrap().is_none());
        maps.create(&PostParams::default(), &map("two", "1"))
            .await
            .unwrap();
        let gone = maps.delete("two", &DeleteParams::default()).await.unwrap();
        assert!(gone.right().unwrap().is_success());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_pages_and_collections() {
    let world = world().await;
    for (way, client) in world.both_ways().await {
        let maps: Api<ConfigMap> = Api::namespaced(client.clone(), way);
        for n in 0..25 {
            maps.create(&created(n), &map(&format!("m{n:02}"), "x"))
                .await
                .unwrap();
        }
        let mut names = BTreeSet::new();
        let mut params = ListParams::default().labels("kept=yes").limit(10);
        let mut pages = Vec::new();
        loop {
            let page = maps.list(&params).await.unwrap();
            pages.push((page.items.len(), page.metadata.remaining_item_count));
            names.extend(page.items.iter().map(ResourceExt::name_any));
            match page.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => params = params.continue_token(&token),
                None => break,
            }
        }
        assert_eq!(
            pages,
            [(10, None), (10, None), (5, None)],
            "with a selector nobody counts what remains"
        );
        assert_eq!(names.len(), 25);
        let first = maps.list(&ListParams::default().limit(10)).await.unwrap();
        assert_eq!(
            first.metadata.remaining_item_count,
            Some(16),
            "the CA certificate is there too"
        );
        assert_eq!(
            maps.list(&ListParams::default().fields("metadata.name=m07"))
                .await
                .unwrap()
                .items
                .len(),
            1
        );
        let metadata = maps
            .list_metadata(&ListParams::default().labels("kept"))
            .await
            .unwrap();
        assert_eq!(metadata.items.len(), 25);
        let everywhere: Api<ConfigMap> = Api::all(client);
        assert!(everywhere.list(&ListParams::default()).await.unwrap().items.len() > 25);

        maps.delete_collection(
            &DeleteParams::default(),
            &ListParams::default()
                .labels("kept=yes")
                .fields("metadata.name!=m07"),
        )
        .await
        .unwrap();
        let left: Vec<String> = maps
            .list(&ListParams::default().labels("kept"))
            .await
            .unwrap()
            .items
            .iter()
            .map(ResourceExt::name_any)
            .collect();
        assert_eq!(left, ["m07"]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn entries_are_read_changed_and_committed() {
    let world = world().await;
    for (way, client) in world.both_ways().await {
        let maps: Api<ConfigMap> = Api::namespaced(client, way);
        let post = PostParams::default();
        let mut new = maps.entry("e").await.unwrap().or_insert(|| map("e", "0"));
        new.commit(&post).await.unwrap();
        let (mut slow, mut fast) = match (maps.entry("e").await.unwrap(), maps.entry("e").await.unwrap()) {
            (kube::api::entry::Entry::Occupied(a), kube::api::entry::Entry::Occupied(b)) => (a, b),
            other => panic!("it was just written: {other:?}"),
        };
        fast.get_mut().data = map("e", "fast").data;
        fast.commit(&post).await.unwrap();
        slow.get_mut().data = map("e", "slow").data;
        match slow.commit(&post).await {
            Err(kube::api::entry::CommitError::Save(kube::Error::Api(status))) => {
                assert_eq!(status.code, 409);
            }
            other => panic!("the slower one has to read again: {other:?}"),
        }
        assert_eq!(entry_of(&maps.get("e").await.unwrap()), Some("fast"));
    }
}

fn deployment() -> Deployment {
    serde_json::from_value(json!({
        "metadata": {"name": "shop"},
        "spec": {"replicas": 2, "selector": {"matchLabels": {"app": "shop"}},
            "template": {"metadata": {"labels": {"app": "shop"}}, "spec": {"containers": [{"name": "c", "image": "x"}]}}},
    }))
    .unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn status_and_scale() {
    let world = world().await;
    for (way, client) in world.both_ways().await {
        let deployments: Api<Deployment> = Api::namespaced(client.clone(), way);
        deployments
            .create(&PostParams::default(), &deployment())
            .await
            .unwrap();
        let scale = deployments.get_scale("shop").await.unwrap();
        assert_eq!(
            (
                scale.spec.as_ref().unwrap().replicas,
                scale.status.unwrap().selector.as_deref()
            ),
            (Some(2), Some("app=shop"))
        );
        deployments
            .patch_scale(
                "shop",
                &PatchParams::default(),
                &Patch::Merge(json!({"spec": {"replicas": 5}})),
            )
            .await
            .unwrap();
        let mut scale = deployments.get_scale("shop").await.unwrap();
        scale.spec.as_mut().unwrap().replicas = Some(6);
        deployments
            .replace_scale("shop", &PostParams::default(), &scale)
            .await
            .unwrap();
        let mut shop = deployments.get("shop").await.unwrap();
        assert_eq!(
            (shop.spec.as_ref().unwrap().replicas, shop.metadata.generation),
            (Some(6), Some(3))
        );
        let status = shop.status.get_or_insert_default();
        (status.replicas, status.ready_replicas) = (Some(6), Some(1));
        shop.spec.as_mut().unwrap().replicas = Some(99);
        let after = deployments
            .replace_status("shop", &PostParams::default(), &shop)
            .await
            .unwrap();
        assert_eq!(
            (after.spec.unwrap().replicas, after.status.unwrap().ready_replicas),
            (Some(6), Some(1))
        );

        let lamps: Api<Lamp> = Api::namespaced(client, way);
        lamps
            .create(
                &PostParams::default(),
                &Lamp::new(
                    "desk",
                    LampSpec {
                        colour: "red".into(),
                        bulbs: 2,
                    },
                ),
            )
            .await
            .unwrap();
        let patch = Patch::Merge(json!({"status": {"bulbs": 1}, "spec": {"colour": "never"}}));
        let lamp = lamps
            .patch_status("desk", &PatchParams::default(), &patch)
            .await
            .unwrap();
        assert_eq!(
            (lamp.spec.colour.as_str(), lamp.status),
            (
                "red",
                Some(LampStatus {
                    bulbs: Some(1),
                    ..LampStatus::default()
                })
            )
        );
        assert_eq!(
            lamps.get_status("desk").await.unwrap().metadata.generation,
            Some(1)
        );
        let scale = lamps.get_scale("desk").await.unwrap();
        assert_eq!(
            (scale.spec.unwrap().replicas, scale.status.unwrap().replicas),
            (Some(2), 1)
        );
        lamps
            .patch_scale(
                "desk",
                &PatchParams::default(),
                &Patch::Merge(json!({"spec": {"replicas": 3}})),
            )
            .await
            .unwrap();
        assert_eq!(lamps.get("desk").await.unwrap().spec.bulbs, 3);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn eviction() {
    let world = world().await;
    for (way, client) in world.both_ways().await {
        let pods: Api<Pod> = Api::namespaced(client.clone(), way);
        let pod: Pod = serde_json::from_value(json!({"metadata": {"name": "p", "labels": {"app": "db"}},
            "spec": {"nodeName": "n", "terminationGracePeriodSeconds": 0, "containers": [{"name": "c", "image": "x"}]}}))
        .unwrap();
        pods.create(&PostParams::default(), &pod).await.unwrap();
        let ready =
            json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}});
        pods.patch_status("p", &PatchParams::default(), &Patch::Merge(ready))
            .await
            .unwrap();
        let budgets: Api<k8s_openapi::api::policy::v1::PodDisruptionBudget> = Api::namespaced(client, way);
        let budget = serde_json::from_value(json!({"metadata": {"name": "b"}, "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "db"}}}})).unwrap();
        budgets.create(&PostParams::default(), &budget).await.unwrap();
        until("the budget knows its pod", async || {
            budgets
                .get("b")
                .await
                .unwrap()
                .status
                .filter(|s| s.current_healthy == Some(1))
        })
        .await;
        let (code, reason, message) = refusal(pods.evict("p", &EvictParams::default()).await);
        assert_eq!(
            (code, reason.as_str(), message.as_str()),
            (
                429,
                "TooManyRequests",
                "Cannot evict pod as it would violate the pod's disruption budget."
            )
        );
        budgets
            .patch(
                "b",
                &PatchParams::default(),
                &Patch::Merge(json!({"spec": {"minAvailable": 0}})),
            )
            .await
            .unwrap();
        until("the budget allows it", async || {
            budgets
                .get("b")
                .await
                .unwrap()
                .status
                .filter(|s| s.disruptions_allowed == Some(1))
        })
        .await;
        assert!(
            pods.evict("p", &EvictParams::default())
                .await
                .unwrap()
                .is_success()
        );
        assert!(pods.get_opt("p").await.unwrap().is_none());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn apply_owns_what_it_lists() {
    let world = world().await;
    for (way, client) in world.both_ways().await {
        let maps: Api<ConfigMap> = Api::namespaced(client.clone(), way);
        let wanted = |data: serde_json::Value| {
            Patch::Apply(
                json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": data}),
            )
        };
        maps.patch(
            "a",
            &PatchParams::apply("first"),
            &wanted(json!({"x": "1", "y": "1"})),
        )
        .await
        .unwrap();
        maps.patch("a", &PatchParams::apply("second"), &wanted(json!({"z": "1"})))
            .await
            .unwrap();
        let (code, reason, message) = refusal(
            maps.patch("a", &PatchParams::apply("second"), &wanted(json!({"x": "2"})))
                .await,
        );
        assert_eq!(
            (code, reason.as_str(), message.as_str()),
            (
                409,
                "Conflict",
                "Apply failed with 1 conflict: conflict with \"first\": .data.x"
            )
        );
        let forced = maps
            .patch(
                "a",
                &PatchParams::apply("second").force(),
                &wanted(json!({"x": "2"})),
            )
            .await
            .unwrap();
        assert_eq!(
            forced.data.unwrap(),
            [("x".into(), "2".into()), ("y".into(), "1".into())].into(),
            "z was given up and goes"
        );
        let managers: Vec<String> = forced
            .metadata
            .managed_fields
            .unwrap()
            .into_iter()
            .filter_map(|m| m.manager)
            .collect();
        assert_eq!(managers, ["first", "second"]);
        let typed = Patch::Apply(map("typed", "1"));
        assert!(
            maps.patch("typed", &PatchParams::apply("t"), &typed)
                .await
                .is_ok(),
            "kube adds kind and version of typed objects"
        );

        let lamps: Api<Lamp> = Api::namespaced(client, way);
        let unknown = json!({"apiVersion": "test.cobaltcore.dev/v1", "kind": "Lamp", "metadata": {"name": "l"}, "spec": {"colour": "red", "nope": 1}});
        for mode in [
            None,
            Some(ValidationDirective::Ignore),
            Some(ValidationDirective::Strict),
        ] {
            let parameters = PatchParams {
                field_validation: mode,
                ..PatchParams::apply("t")
            };
            let (code, _, message) = refusal(lamps.patch("l", &parameters, &Patch::Apply(&unknown)).await);
            // The configuration is called what it calls itself; it names no namespace.
            let wanted = "failed to create typed patch object (/l; test.cobaltcore.dev/v1, Kind=Lamp): .spec.nope: field not declared in schema";
            assert_eq!((code, message.as_str()), (400, wanted));
        }
    }
}

fn kinds(discovery: &Discovery) -> BTreeSet<String> {
    discovery
        .groups()
        .flat_map(|group| {
            group
                .recommended_resources()
                .into_iter()
                .map(|(r, _)| format!("{}/{}", r.api_version, r.kind))
        })
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn discovery_finds_the_same_both_ways() {
    let world = world().await;
    for (way, client) in world.both_ways().await {
        let plain = Discovery::new(client.clone()).run().await.unwrap();
        let aggregated = Discovery::new(client.clone()).run_aggregated().await.unwrap();
        let found = kinds(&plain);
        assert_eq!(found, kinds(&aggregated));
        for kind in [
            "v1/Pod",
            "apps/v1/Deployment",
            "test.cobaltcore.dev/v1/Lamp",
            "autoscaling/v2/HorizontalPodAutoscaler",
        ] {
            assert!(found.contains(kind), "{kind} in {found:?}");
        }
        let gvk = GroupVersionKind::gvk("test.cobaltcore.dev", "v1", "Lamp");
        let (resource, capabilities) = aggregated.resolve_gvk(&gvk).unwrap();
        assert_eq!(
            (resource.plural.as_str(), &capabilities.scope),
            ("lamps", &Scope::Namespaced)
        );
        assert!(
            capabilities.supports_operation(verbs::WATCH)
                && capabilities
                    .subresources
                    .iter()
                    .any(|(r, _)| r.plural.ends_with("status"))
        );
        let (pinned, _) = pinned_kind(&client, &gvk).await.unwrap();
        dynamic(&client, way, &pinned).await;
    }
}

async fn dynamic(client: &Client, namespace: &str, resource: &kube::core::ApiResource) {
    let lamps: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, resource);
    let lamp = DynamicObject::new("found", resource).data(json!({"spec": {"colour": "blue"}}));
    let stored = lamps.create(&PostParams::default(), &lamp).await.unwrap();
    assert_eq!(stored.data["spec"]["bulbs"], 0, "the schema's default");
    let foreground = DeleteParams {
        propagation_policy: Some(PropagationPolicy::Foreground),
        ..DeleteParams::default()
    };
    lamps.delete("found", &foreground).await.unwrap();
    until("it goes", async || {
        lamps.get_opt("found").await.unwrap().is_none().then_some(())
    })
    .await;
}
