// SPDX-License-Identifier: Apache-2.0
//! `kube::runtime`: watchers in both modes, reflectors, a controller with owned children, finalizers,
//! waits and the recorder of events.

use std::sync::Arc;
use std::time::Duration;

use futures::{Stream, StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::api::events::v1::Event as Happened;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::core::PartialObjectMeta;
use kube::runtime::controller::Action;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use kube::runtime::finalizer::{Event as Final, finalizer};
use kube::runtime::wait::{await_condition, conditions, delete::delete_and_finalize};
use kube::runtime::{Controller, WatchStreamExt, reflector, watcher};
use kube::{Client, Resource, ResourceExt};
use serde_json::json;

use crate::world::{Lamp, LampSpec, entry_of, map, until, world};

/// One word for each event.
fn word<K: ResourceExt>(event: &watcher::Event<K>) -> String {
    match event {
        watcher::Event::Init => "init".into(),
        watcher::Event::InitApply(object) => format!("init+{}", object.name_any()),
        watcher::Event::InitDone => "done".into(),
        watcher::Event::Apply(object) => format!("+{}", object.name_any()),
        watcher::Event::Delete(object) => format!("-{}", object.name_any()),
    }
}

async fn words<K: ResourceExt>(
    stream: &mut (impl Stream<Item = watcher::Result<watcher::Event<K>>> + Unpin),
    count: usize,
) -> Vec<String> {
    let mut seen = Vec::new();
    while seen.len() < count {
        let next = tokio::time::timeout(Duration::from_mins(1), stream.next()).await;
        seen.push(word(
            &next
                .unwrap_or_else(|_| panic!("nothing came after {seen:?}"))
                .unwrap()
                .unwrap(),
        ));
    }
    seen
}

async fn change(maps: &Api<ConfigMap>) {
    maps.create(&PostParams::default(), &map("c", "1")).await.unwrap();
    maps.patch(
        "a",
        &PatchParams::default(),
        &Patch::Merge(json!({"data": {"k": "2"}})),
    )
    .await
    .unwrap();
    maps.patch(
        "b",
        &PatchParams::default(),
        &Patch::Merge(json!({"metadata": {"labels": null}})),
    )
    .await
    .unwrap();
    maps.delete("a", &DeleteParams::default()).await.unwrap();
}

const STORY: [&str; 8] = ["init", "init+a", "init+b", "done", "+c", "+a", "-b", "-a"];

#[tokio::test(flavor = "multi_thread")]
async fn watchers_tell_the_same_story_in_both_modes() {
    let world = world().await;
    for (way, client) in world.both_ways().await {
        let maps: Api<ConfigMap> = Api::namespaced(client.clone(), way);
        let metadata: Api<PartialObjectMeta<ConfigMap>> = Api::namespaced(client, way);
        let paged = watcher::Config::default().labels("kept=yes").page_size(1);
        let streamed = watcher::Config::default().labels("kept=yes").streaming_lists();
        for (mode, config) in [("paged", paged), ("streamed", streamed)] {
            for name in ["a", "b"] {
                maps.create(&PostParams::default(), &map(name, "1"))
                    .await
                    .unwrap();
            }
            let mut whole = watcher(maps.clone(), config.clone()).boxed();
            let mut meta = watcher(metadata.clone(), config).boxed();
            assert_eq!(words(&mut whole, 4).await, STORY[..4], "{way} {mode}");
            assert_eq!(words(&mut meta, 4).await, STORY[..4], "{way} {mode}");
            change(&maps).await;
            assert_eq!(words(&mut whole, 4).await, STORY[4..], "{way} {mode}");
            assert_eq!(words(&mut meta, 4).await, STORY[4..], "{way} {mode}");
            maps.delete_collection(
                &DeleteParams::default(),
                &ListParams::default().fields("metadata.name!=kube-root-ca.crt"),
            )
            .await
            .unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reflector_mirrors_the_server() {
    let world = world().await;
    for (way, client) in world.both_ways().await {
        let maps: Api<ConfigMap> = Api::namespaced(client, way);
        maps.create(&PostParams::default(), &map("a", "1")).await.unwrap();
        maps.create(&PostParams::default(), &map("b", "1")).await.unwrap();
        let (store, writer) = reflector::store();
        let stream = reflector(
            writer,
            watcher(maps.clone(), watcher::Config::default().labels("kept")),
        )
        .default_backoff()
        .applied_objects();
        let mirror = tokio::spawn(stream.for_each(|_| async {}));
        store.wait_until_ready().await.unwrap();
        assert_eq!(store.len(), 2);
        change(&maps).await;
        until("the mirror follows", async || {
            let state: Vec<String> = store.state().iter().map(|m| m.name_any()).collect();
            (state == ["c"]).then_some(())
        })
        .await;
        assert_eq!(entry_of(&store.find(|m| m.name_any() == "c").unwrap()), Some("1"));
        mirror.abort();
    }
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum Problem {
    #[error(transparent)]
    Kube(#[from] kube::Error),
    #[error(transparent)]
    Finalizer(#[from] Box<kube::runtime::finalizer::Error<kube::Error>>),
}

/// What the controllers of these tests share.
pub(crate) struct Context {
    pub(crate) client: Client,
    pub(crate) recorder: Recorder,
}

pub(crate) const FINALIZER: &str = "test.cobaltcore.dev/lamp";

impl Context {
    pub(crate) fn new(client: Client) -> Arc<Self> {
        let reporter = Reporter {
            controller: "lamps".into(),
            instance: Some("lamps-0".into()),
        };
        Arc::new(Self {
            recorder: Recorder::new(client.clone(), reporter),
            client,
        })
    }
}

/// A lamp has a ConfigMap of its own that says its colour, a mark outside of its children that must
/// be taken away by hand, and a status.
pub(crate) async fn reconcile(lamp: Arc<Lamp>, context: Arc<Context>) -> Result<Action, Problem> {
    let lamps: Api<Lamp> = Api::namespaced(context.client.clone(), &lamp.namespace().unwrap_or_default());
    finalizer(&lamps, FINALIZER, lamp, async |event| match event {
        Final::Apply(lamp) => light(&lamp, &context).await,
        Final::Cleanup(lamp) => darken(&lamp, &context).await,
    })
    .await
    .map_err(|error| Problem::Finalizer(Box::new(error)))
}

async fn light(lamp: &Lamp, context: &Context) -> Result<Action, kube::Error> {
    let namespace = lamp.namespace().unwrap_or_default();
    let maps: Api<ConfigMap> = Api::namespaced(context.client.clone(), &namespace);
    let owner = lamp.controller_owner_ref(&()).unwrap();
    let child = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"k": lamp.spec.colour},
        "metadata": {"name": lamp.name_any(), "ownerReferences": [owner], "labels": {"lamp": lamp.name_any()}}});
    let parameters = PatchParams::apply("lamps").force();
    maps.patch(&lamp.name_any(), &parameters, &Patch::Apply(&child))
        .await?;
    let marks: Api<Secret> = Api::namespaced(context.client.clone(), &namespace);
    let mark = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": lamp.name_any()}});
    marks
        .patch(&lamp.name_any(), &parameters, &Patch::Apply(&mark))
        .await?;
    let lamps: Api<Lamp> = Api::namespaced(context.client.clone(), &namespace);
    let status = json!({"apiVersion": "test.cobaltcore.dev/v1", "kind": "Lamp",
        "status": {"colour": lamp.spec.colour, "bulbs": lamp.spec.bulbs, "observedGeneration": lamp.metadata.generation}});
    lamps
        .patch_status(&lamp.name_any(), &parameters, &Patch::Apply(&status))
        .await?;
    if lamp.status.is_none() {
        let event = Event {
            type_: EventType::Normal,
            reason: "Lit".into(),
            note: Some("the lamp shines".into()),
            action: "Light".into(),
            secondary: None,
        };
        context.recorder.publish(&event, &lamp.object_ref(&())).await?;
    }
    Ok(Action::await_change())
}

async fn darken(lamp: &Lamp, context: &Context) -> Result<Action, kube::Error> {
    let marks: Api<Secret> = Api::namespaced(context.client.clone(), &lamp.namespace().unwrap_or_default());
    match marks.delete(&lamp.name_any(), &DeleteParams::default()).await {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(Action::await_change()),
        other => other.map(|_| Action::await_change()),
    }
}

/// Runs the controller until it is aborted.
pub(crate) fn run_controller(client: &Client) -> tokio::task::JoinHandle<()> {
    let (lamps, maps): (Api<Lamp>, Api<ConfigMap>) = (Api::all(client.clone()), Api::all(client.clone()));
    let controller = Controller::new(lamps, watcher::Config::default())
        .owns(maps, watcher::Config::default())
        .run(
            reconcile,
            |_, _, _| Action::requeue(Duration::from_millis(200)),
            Context::new(client.clone()),
        );
    tokio::spawn(controller.for_each(|_| async {}))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_controller_keeps_its_children() {
    let world = world().await;
    for (way, client) in world.both_ways().await {
        let controller = run_controller(&client);
        let lamps: Api<Lamp> = Api::namespaced(client.clone(), way);
        let maps: Api<ConfigMap> = Api::namespaced(client.clone(), way);
        let marks: Api<Secret> = Api::namespaced(client.clone(), way);
        lamps
            .create(
                &PostParams::default(),
                &Lamp::new(
                    "desk",
                    LampSpec {
                        colour: "red".into(),
                        bulbs: 1,
                    },
                ),
            )
            .await
            .unwrap();
        let shines = |colour: &'static str| {
            move |lamp: Option<&Lamp>| {
                lamp.and_then(|l| l.status.as_ref())
                    .and_then(|s| s.colour.as_deref())
                    == Some(colour)
            }
        };
        let lit = await_condition(lamps.clone(), "desk", shines("red"))
            .await
            .unwrap()
            .unwrap();
        assert_eq!(
            (lit.finalizers(), lit.status.as_ref().unwrap().observed_generation),
            (&[FINALIZER.to_owned()][..], Some(1))
        );
        let child = maps.get("desk").await.unwrap();
        assert_eq!(
            (entry_of(&child), child.owner_references()[0].uid.as_str()),
            (Some("red"), lit.metadata.uid.as_deref().unwrap())
        );

        lamps
            .patch(
                "desk",
                &PatchParams::default(),
                &Patch::Merge(json!({"spec": {"colour": "blue"}})),
            )
            .await
            .unwrap();
        await_condition(lamps.clone(), "desk", shines("blue"))
            .await
            .unwrap();
        maps.delete("desk", &DeleteParams::default()).await.unwrap();
        await_condition(maps.clone(), "desk", |m: Option<&ConfigMap>| {
            m.is_some_and(|m| entry_of(m) == Some("blue"))
        })
        .await
        .unwrap();
        maps.patch(
            "desk",
            &PatchParams::default(),
            &Patch::Merge(json!({"data": {"k": "spoilt"}})),
        )
        .await
        .unwrap();
        await_condition(maps.clone(), "desk", |m: Option<&ConfigMap>| {
            m.is_some_and(|m| entry_of(m) == Some("blue"))
        })
        .await
        .unwrap();

        let events: Api<Happened> = Api::namespaced(client.clone(), way);
        let seen = until("the event is there", async || {
            events
                .list(&ListParams::default().fields("regarding.name=desk,reason=Lit"))
                .await
                .unwrap()
                .items
                .into_iter()
                .next()
        })
        .await;
        assert_eq!(
            (seen.note.as_deref(), seen.reporting_controller.as_deref()),
            (Some("the lamp shines"), Some("lamps"))
        );

        world.server.comes_to_rest(Duration::from_millis(700)).await;
        let uid = maps.get("desk").await.unwrap().uid().unwrap();
        delete_and_finalize(lamps.clone(), "desk", &DeleteParams::default())
            .await
            .unwrap();
        assert!(
            marks.get_opt("desk").await.unwrap().is_none(),
            "the finalizer cleaned up before the lamp went"
        );
        tokio::time::timeout(
            Duration::from_mins(1),
            await_condition(maps, "desk", conditions::is_deleted(&uid)),
        )
        .await
        .unwrap()
        .unwrap();
        controller.abort();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn repeated_events_become_a_series() {
    let world = world().await;
    for (way, client) in world.both_ways().await {
        let maps: Api<ConfigMap> = Api::namespaced(client.clone(), way);
        let subject = maps
            .create(&PostParams::default(), &map("s", "1"))
            .await
            .unwrap()
            .object_ref(&());
        let context = Context::new(client.clone());
        for _ in 0..3 {
            let event = Event {
                type_: EventType::Warning,
                reason: "Odd".into(),
                note: Some("odd".into()),
                action: "Look".into(),
                secondary: None,
            };
            context.recorder.publish(&event, &subject).await.unwrap();
        }
        let events: Api<Happened> = Api::namespaced(client.clone(), way);
        let all = events
            .list(&ListParams::default().fields("regarding.name=s"))
            .await
            .unwrap()
            .items;
        assert_eq!(all.len(), 1, "{all:?}");
        assert_eq!(
            (all[0].series.as_ref().unwrap().count, all[0].type_.as_deref()),
            (3, Some("Warning"))
        );
        let old: Api<k8s_openapi::api::core::v1::Event> = Api::namespaced(client, way);
        let same = old
            .list(&ListParams::default().fields("involvedObject.name=s"))
            .await
            .unwrap()
            .items;
        assert_eq!((same.len(), same[0].message.as_deref()), (1, Some("odd")));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn raw_watches_carry_bookmarks_and_end() {
    let world = world().await;
    for (way, client) in world.both_ways().await {
        let maps: Api<ConfigMap> = Api::namespaced(client, way);
        let from = maps
            .list(&ListParams::default())
            .await
            .unwrap()
            .metadata
            .resource_version
            .unwrap();
        maps.create(&PostParams::default(), &map("a", "1")).await.unwrap();
        // The namespace is new: what the server puts into it may come at any moment.
        let parameters = kube::api::WatchParams::default()
            .timeout(2)
            .fields("metadata.name!=kube-root-ca.crt");
        let events: Vec<_> = maps
            .watch(&parameters, &from)
            .await
            .unwrap()
            .try_collect()
            .await
            .unwrap();
        assert!(
            matches!(&events[0], kube::api::WatchEvent::Added(m) if m.name_any() == "a"),
            "{events:?}"
        );
        assert!(
            events
                .iter()
                .skip(1)
                .all(|e| matches!(e, kube::api::WatchEvent::Bookmark(_))),
            "{events:?}"
        );
    }
}
