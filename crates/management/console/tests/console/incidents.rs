// SPDX-License-Identifier: Apache-2.0
//! Incidents, decisions about them, and faults, over plain HTTP.

use std::sync::Arc;

use cobaltcore_console::Config;
use cobaltcore_console::faults::{CloudService, Fault, Faults, Truth};
use parking_lot::Mutex;
use reqwest::StatusCode;
use serde_json::json;

use crate::ha::{HOST, HaService, ID, incident};
use crate::pages::Person;
use crate::world::{CODE, World, active, token};

/// A world of one host that notes what is done to it.
#[derive(Default)]
pub(crate) struct Breakable {
    pub(crate) done: Mutex<Vec<Fault>>,
}

impl Faults for Breakable {
    fn inject(&self, fault: &Fault) -> Result<String, String> {
        if matches!(fault, Fault::CrashGuest { server } if server == "nobody") {
            return Err("server nobody does not run on any simulated host".into());
        }
        self.done.lock().push(fault.clone());
        Ok("done".into())
    }

    fn truth(&self, host: &str) -> Option<Truth> {
        let killed = self.done.lock().contains(&Fault::Kill { host: host.into() });
        (host == HOST).then_some(Truth {
            powered: !killed,
            ..Truth::default()
        })
    }

    fn broken(&self) -> Vec<(String, Truth)> {
        let truth = self.truth(HOST).filter(|truth| !truth.powered);
        truth.map(|truth| (HOST.to_owned(), truth)).into_iter().collect()
    }

    fn services(&self) -> Vec<CloudService> {
        let slow = |fault: &Fault| matches!(fault, Fault::Slow { .. });
        let slow = self.done.lock().iter().any(slow);
        let trouble = if slow {
            "takes 2000 ms longer for each call"
        } else {
            ""
        };
        vec![CloudService {
            name: "compute".into(),
            trouble: trouble.into(),
        }]
    }
}

pub(crate) async fn with_ha() -> (World, HaService, Arc<Breakable>) {
    let service = HaService::start().await;
    let breakable = Arc::new(Breakable::default());
    let world = World::start_with(Config {
        ha: Some(service.service()),
        faults: Some(breakable.clone()),
        ..Config::default()
    })
    .await;
    (world, service, breakable)
}

#[tokio::test(flavor = "multi_thread")]
async fn without_an_ha_service_the_page_says_so() {
    let world = World::start().await;
    world.host(HOST, "zone-a", active(3, "96Gi")).await;
    let person = Person::signed_in(&world, CODE).await;
    person.sees("/incidents", "HA is not configured").await;
    assert_eq!(
        person.get("/incidents/node001-1-1").await.0,
        StatusCode::NOT_FOUND
    );
    // Nor is there anything to break.
    let page = person
        .sees(&format!("/hypervisors/{HOST}"), "What happens next")
        .await;
    assert!(!page.contains("Pull the plug"), "{page}");
    let (status, _) = person.get(&format!("/simulation/kill/{HOST}")).await;
    assert_eq!(status, StatusCode::NOT_FOUND);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_incident_is_told_as_a_story_and_followed_to_its_end() {
    let (world, service, _) = with_ha().await;
    world.host(HOST, "zone-a", active(3, "96Gi")).await;
    let person = Person::signed_in(&world, CODE).await;
    person.sees("/incidents", "There is no incident").await;

    service.put(incident("Evacuating", 1, &[]));
    person
        .sees("/incidents", "1 of 3 guests run again elsewhere")
        .await;
    let page = person.sees(&format!("/incidents/{ID}"), "What happened").await;
    for text in [
        "no life of node001, according to HA agent, probes of the HA service",
        "turns node001 off (fencing level 1)",
        "node001 is off: its power was read twice",
        "3 guests are to run again elsewhere",
        "asks Nova to evacuate web-0",
        "aria-current=\"step\">Evacuating",
        "on node002",
    ] {
        assert!(page.contains(text), "{text} is not on the page: {page}");
    }
    assert!(
        !page.contains(&format!("/incidents/{ID}/release")),
        "not allowed yet"
    );
    person.sees(&format!("/hypervisors/{HOST}"), ID).await;

    service.put(incident("Recovered", 3, &["release", "close"]));
    person
        .sees(&format!("/incidents/{ID}"), "3 of 3 guests run again elsewhere")
        .await;
    person
        .sees(&format!("/incidents/{ID}"), &format!("/incidents/{ID}/release"))
        .await;
    assert_eq!(
        person.get("/incidents/node009-1-1").await.0,
        StatusCode::NOT_FOUND
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_decision_is_asked_for_confirmed_and_signed() {
    let (world, service, _) = with_ha().await;
    world.host(HOST, "zone-a", active(3, "96Gi")).await;
    service.put(incident("Recovered", 3, &["release", "close"]));
    let person = Person::signed_in(&world, CODE).await;
    person
        .sees(&format!("/incidents/{ID}/release"), "Release the host?")
        .await;
    let csrf = person.csrf().await;
    let send = async |word: &str, form: &[(&str, &str)]| {
        let answer = person.post(&format!("/incidents/{ID}/{word}"), form).await;
        (answer.status(), answer.text().await.unwrap())
    };

    let (status, _) = send("release", &[("csrf", "wrong"), ("reason", "x")]).await;
    assert_eq!(status, StatusCode::FORBIDDEN);
    let (status, _) = send("release", &[("csrf", &csrf), ("reason", " ")]).await;
    assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY, "a reason is needed");
    let (status, _) = send(
        "close",
        &[("csrf", &csrf), ("reason", "x"), ("confirm", "node002")],
    )
    .await;
    assert_eq!(
        status,
        StatusCode::UNPROCESSABLE_ENTITY,
        "the host has to be written out"
    );
    let (status, _) = send("explode", &[("csrf", &csrf), ("reason", "x")]).await;
    assert_eq!(status, StatusCode::NOT_FOUND);
    let (status, page) = send("retry", &[("csrf", &csrf), ("reason", "x")]).await;
    assert_eq!(
        status,
        StatusCode::CONFLICT,
        "the service decides what is allowed"
    );
    assert!(page.contains("its guests are not settled"), "{page}");
    assert!(service.told.lock().decisions.is_empty());

    let (status, _) = send("release", &[("csrf", &csrf), ("reason", "new power supply")]).await;
    assert_eq!(status, StatusCode::SEE_OTHER);
    let decisions = service.told.lock().decisions.clone();
    let [(id, word, reason)] = decisions.as_slice() else {
        panic!("{decisions:?}");
    };
    assert_eq!((id.as_str(), word.as_str()), (ID, "release"));
    assert_eq!(
        reason,
        "new power supply (system:serviceaccount:default:boss, by the console)"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn recovery_is_paused_and_resumed() {
    let (world, service, _) = with_ha().await;
    let person = Person::signed_in(&world, CODE).await;
    person
        .sees("/pauses/begin?scope=global", "Pause recovery everywhere?")
        .await;
    let csrf = person.csrf().await;
    let form = [
        ("csrf", csrf.as_str()),
        ("reason", "network work"),
        ("minutes", "60"),
    ];
    for nonsense in ["planet", "host/", "host/a b", "vm/../x"] {
        let answer = person
            .post(&format!("/pauses/begin?scope={nonsense}"), &form)
            .await;
        assert_eq!(answer.status(), StatusCode::NOT_FOUND, "{nonsense}");
    }
    person
        .post(&format!("/pauses/begin?scope=host/{HOST}"), &form)
        .await;
    let page = person.sees("/incidents", "Recovery is paused on node001").await;
    assert!(page.contains("network work"), "{page}");
    assert_eq!(service.told.lock().pauses.len(), 1);
    person
        .post(
            &format!("/pauses/end?scope=host/{HOST}"),
            &[("csrf", csrf.as_str())],
        )
        .await;
    person.sees("/incidents", "There is no incident").await;
    assert!(service.told.lock().pauses.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_that_refuses_the_console_is_named_on_the_page() {
    let service = HaService::start().await;
    let wrong = World::start_with(Config {
        ha: Some(cobaltcore_console::ha::Service {
            token: "another".into(),
            ..service.service()
        }),
        ..Config::default()
    })
    .await;
    let person = Person::signed_in(&wrong, CODE).await;
    person.sees("/incidents", "no such token").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn only_whoever_may_change_hypervisors_decides_or_breaks_things() {
    let (world, service, breakable) = with_ha().await;
    world.host(HOST, "zone-a", active(1, "1Gi")).await;
    service.put(incident("Recovered", 3, &["release"]));
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "looks"},
        "rules": [{"apiGroups": ["kvm.cloud.sap"], "resources": ["hypervisors"], "verbs": ["get", "list"]}],
    });
    let admin = world.server.admin();
    let made = admin
        .post("/apis/rbac.authorization.k8s.io/v1/clusterroles", &role)
        .await;
    assert!(made.code < 300);
    let reader = token(&world.server, "reader", Some("looks")).await;
    let nobody = token(&world.server, "nobody", None).await;
    let reader = Person::signed_in(&world, &reader).await;
    reader.sees("/incidents", ID).await;
    let csrf = reader.csrf().await;
    for path in [
        format!("/incidents/{ID}/release"),
        format!("/simulation/kill/{HOST}"),
        "/pauses/begin?scope=global".to_owned(),
    ] {
        assert_eq!(reader.get(&path).await.0, StatusCode::FORBIDDEN, "{path}");
        let form = [("csrf", csrf.as_str()), ("reason", "x"), ("minutes", "60")];
        assert_eq!(
            reader.post(&path, &form).await.status(),
            StatusCode::FORBIDDEN,
            "{path}"
        );
    }
    let nobody = Person::signed_in(&world, &nobody).await;
    for path in ["/incidents".to_owned(), format!("/incidents/{ID}")] {
        assert_eq!(nobody.get(&path).await.0, StatusCode::FORBIDDEN, "{path}");
    }
    assert!(service.told.lock().decisions.is_empty() && service.told.lock().pauses.is_empty());
    assert!(breakable.done.lock().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_simulated_host_loses_its_power_only_after_a_question() {
    let (world, _, breakable) = with_ha().await;
    let instance = json!([{"id": "guest-1", "name": "instance-1", "active": true}]);
    world
        .host(
            HOST,
            "zone-a",
            json!({"phase": "Active", "numInstances": 1, "instances": instance}),
        )
        .await;
    let person = Person::signed_in(&world, CODE).await;
    let page = person
        .sees(&format!("/hypervisors/{HOST}"), "Pull the plug")
        .await;
    assert!(page.contains("/simulation/crash/guest-1?host=node001"), "{page}");
    person
        .sees(&format!("/simulation/kill/{HOST}"), "loses its power at once")
        .await;
    assert!(breakable.done.lock().is_empty(), "a question changes nothing");
    let csrf = person.csrf().await;
    let answer = person
        .post(&format!("/simulation/kill/{HOST}"), &[("csrf", csrf.as_str())])
        .await;
    assert_eq!(answer.headers()["location"], format!("/hypervisors/{HOST}"));
    assert_eq!(*breakable.done.lock(), [Fault::Kill { host: HOST.into() }]);
    person
        .sees(&format!("/hypervisors/{HOST}"), "In truth it has no power")
        .await;
    let refused = person
        .post(
            "/simulation/crash/nobody?host=node001",
            &[("csrf", csrf.as_str())],
        )
        .await;
    assert_eq!(refused.status(), StatusCode::CONFLICT);
    assert_eq!(
        person.get("/simulation/melt/node001").await.0,
        StatusCode::NOT_FOUND
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_simulated_cloud_is_slowed_down_and_healed_in_the_console() {
    let (world, _service, breakable) = with_ha().await;
    world.host(HOST, "zone-a", active(3, "96Gi")).await;
    let person = Person::signed_in(&world, CODE).await;
    person.sees("/simulation", "as ever").await;
    person.sees("/", "href=\"/simulation\"").await;
    person
        .sees("/simulation/slow/compute", "takes two seconds longer")
        .await;
    let csrf = person.csrf().await;
    let answer = person
        .post("/simulation/slow/compute", &[("csrf", csrf.as_str())])
        .await;
    assert_eq!(answer.headers()["location"], "/simulation");
    person
        .sees("/simulation", "takes 2000 ms longer for each call")
        .await;
    for word in [
        "hang-libvirt",
        "fill-disk",
        "hang-switch",
        "orphan-port",
        "fail-migrations",
    ] {
        let answer = person
            .post(&format!("/simulation/{word}/{HOST}"), &[("csrf", csrf.as_str())])
            .await;
        assert_eq!(answer.headers()["location"], format!("/hypervisors/{HOST}"));
    }
    assert_eq!(
        breakable.done.lock().last(),
        Some(&Fault::FailMigrations {
            host: HOST.into(),
            fail: true
        })
    );
}
