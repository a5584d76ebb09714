// SPDX-License-Identifier: Apache-2.0
//! What a person does in a real browser, on a desk and on a phone, and whether everybody can.

use serde_json::{Value, json};

use crate::ha::{HaService, incident};
use crate::incidents::{Breakable, with_ha};
use crate::webdriver::Browser;
use crate::world::{CODE, World, active, eventually};

async fn small_fleet() -> World {
    let world = World::start().await;
    fill(&world).await;
    world
}

/// The same with an HA service that recovers the guests of one host, in a simulation.
async fn fleet_with_an_incident() -> (World, HaService, std::sync::Arc<Breakable>) {
    let (world, service, breakable) = with_ha().await;
    service.put(incident("Evacuating", 1, &["ack-fenced", "abort"]));
    fill(&world).await;
    (world, service, breakable)
}

async fn fill(world: &World) {
    for index in 1..=8i64 {
        let zone = if index <= 4 { "zone-a" } else { "zone-b" };
        let memory = format!("{}Gi", index * 60);
        world
            .host(&format!("node{index:03}"), zone, active(index, &memory))
            .await;
    }
    world.status("node003", json!({"phase": "Evicting"})).await;
    world.status("node005", json!({"phase": "Maintenance"})).await;
    world.status("node006", json!({"phase": "Aborted"})).await;
    world
        .status(
            "node007",
            json!({"conditions": [{"type": "LibVirtConnection", "status": "False", "reason": "Unreachable",
            "message": "libvirtd does not answer", "lastTransitionTime": "2026-01-02T00:00:00Z"}]}),
        )
        .await;
}

/// Signs in with the link that a start prints.
async fn sign_in(browser: &Browser, world: &World) {
    browser
        .go(&format!("{}/sign-in#code={CODE}", world.console.url()))
        .await;
    browser
        .until("the fleet", "document.querySelectorAll('.tile').length === 8")
        .await;
    browser
        .until(
            "live news",
            "document.getElementById('pulse').dataset.state === 'live'",
        )
        .await;
    let address = browser.run("return location.href").await;
    assert!(
        !address.to_string().contains(CODE),
        "the code does not stay in the address: {address}"
    );
}

/// The contrast of every visible text with its own ground, and what is wrong with names and roles.
const AUDIT: &str = include_str!("audit.js");

const PLACES: [(&str, &str); 13] = [
    ("/", "fleet"),
    ("/hypervisors", "hypervisors"),
    ("/hypervisors/node003", "host"),
    ("/hypervisors/node003/evict", "evict"),
    ("/incidents", "incidents"),
    ("/incidents/node001-3-1", "incident"),
    ("/incidents/node001-3-1/ack-fenced", "ack-fenced"),
    ("/simulation/kill/node001", "pull-the-plug"),
    ("/evictions", "evictions"),
    ("/migrations", "migrations"),
    ("/simulation", "simulation"),
    ("/capacity", "capacity"),
    ("/activity", "activity"),
];

async fn look_at_everything(width: u32, height: u32, device: &str) {
    let Some(browser) = Browser::open(width, height).await else {
        return;
    };
    let (world, _service, _) = fleet_with_an_incident().await;
    sign_in(&browser, &world).await;
    let mut faults: Vec<String> = Vec::new();
    for scheme in ["light", "dark"] {
        browser.scheme(scheme).await;
        for (path, name) in PLACES {
            browser.go(&format!("{}{path}", world.console.url())).await;
            let found = browser.run(AUDIT).await;
            let found = found
                .as_array()
                .unwrap()
                .iter()
                .map(|fault| format!("{scheme} {path}: {fault}"));
            faults.extend(found);
            browser.picture(&format!("{device}-{scheme}-{name}")).await;
        }
    }
    assert_eq!(faults, [""; 0]);
    assert_eq!(browser.complaints().await, [""; 0], "the page complains");
    browser.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_page_is_readable_on_a_desk_in_light_and_dark() {
    look_at_everything(1440, 900, "desk").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_page_is_readable_on_a_phone_in_light_and_dark() {
    look_at_everything(390, 844, "phone").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_goes_down_is_seen_without_a_reload() {
    let Some(browser) = Browser::open(1440, 900).await else {
        return;
    };
    let world = small_fleet().await;
    sign_in(&browser, &world).await;
    browser.run("document.body.dataset.untouched = 'yes'").await;
    browser
        .until(
            "a healthy tile",
            "document.getElementById('tile-node001').classList.contains('good')",
        )
        .await;
    world
        .status(
            "node001",
            json!({"conditions": [{"type": "NodeReady", "status": "False", "reason": "NodeNotReady",
            "message": "the kubelet is silent", "lastTransitionTime": "2026-01-02T00:00:00Z"}]}),
        )
        .await;
    browser
        .until(
            "a troubled tile",
            "document.getElementById('tile-node001').classList.contains('bad')",
        )
        .await;
    assert_eq!(
        browser.run("return document.body.dataset.untouched").await,
        json!("yes"),
        "no reload"
    );
    browser.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn maintenance_is_started_with_the_keyboard_alone() {
    let Some(browser) = Browser::open(1440, 900).await else {
        return;
    };
    let world = small_fleet().await;
    sign_in(&browser, &world).await;
    // "/" leads to the search, from any page.
    browser.press("/").await;
    browser
        .until("the list", "location.pathname === '/hypervisors'")
        .await;
    browser.press("/").await;
    browser
        .until("the search", "document.activeElement.name === 'q'")
        .await;
    browser.type_into("[data-search]", "node002\u{e007}").await;
    browser
        .until(
            "one host",
            "document.querySelectorAll('#hosts tbody tr').length === 1",
        )
        .await;
    browser
        .enter(
            "document.querySelector('#hosts tbody a')",
            "the page of the host",
            "location.pathname === '/hypervisors/node002'",
        )
        .await;
    browser
        .enter(
            "[...document.querySelectorAll('.button')].find((b) => b.textContent.startsWith('Maintenance'))",
            "the question",
            "document.activeElement.name === 'reason'",
        )
        .await;
    browser
        .type_into("input[name=reason]", "new memory\u{e007}")
        .await;
    browser
        .until("the way back", "location.pathname === '/hypervisors/node002'")
        .await;
    let host: Value = eventually("the wish in Kubernetes", async || {
        let host = world.get("/apis/kvm.cloud.sap/v1/hypervisors/node002").await;
        (host["spec"]["maintenance"] == "manual").then_some(host)
    })
    .await;
    assert_eq!(host["spec"]["maintenanceReason"], "new memory");
    browser.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn letters_lead_through_places_and_rows() {
    let Some(browser) = Browser::open(1440, 900).await else {
        return;
    };
    let world = small_fleet().await;
    sign_in(&browser, &world).await;
    browser.press("?").await;
    browser
        .until("the list of keys", "document.getElementById('keys').open")
        .await;
    browser.press("\u{e00c}").await;
    browser
        .until("the page again", "!document.getElementById('keys').open")
        .await;
    browser.press("g").await;
    browser.press("h").await;
    browser
        .until("the list", "location.pathname === '/hypervisors'")
        .await;
    browser
        .until(
            "rows",
            "document.querySelectorAll('#hosts tbody tr').length === 8",
        )
        .await;
    browser.press("j").await;
    browser
        .until(
            "the first row",
            "document.activeElement.textContent === 'node001'",
        )
        .await;
    browser.press("j").await;
    browser
        .until(
            "the second row",
            "document.activeElement.textContent === 'node002'",
        )
        .await;
    browser.press("k").await;
    browser
        .until(
            "the first row again",
            "document.activeElement.textContent === 'node001'",
        )
        .await;
    browser.press("\u{e007}").await;
    browser
        .until(
            "the page of the host",
            "location.pathname === '/hypervisors/node001'",
        )
        .await;
    browser.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn arrows_walk_over_the_tiles() {
    let Some(browser) = Browser::open(700, 900).await else {
        return;
    };
    let world = small_fleet().await;
    sign_in(&browser, &world).await;
    browser
        .run("document.getElementById('tile-node001').focus()")
        .await;
    browser.press("\u{e014}").await;
    browser
        .until("the next tile", "document.activeElement.id === 'tile-node002'")
        .await;
    browser.press("\u{e015}").await;
    browser.until("a tile below", "document.activeElement.getBoundingClientRect().top > document.getElementById('tile-node001').getBoundingClientRect().top").await;
    browser.click("#tile-node008").await;
    browser
        .until(
            "the page of the host",
            "location.pathname === '/hypervisors/node008'",
        )
        .await;
    browser.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plug_is_pulled_and_the_recovery_watched_without_a_reload() {
    let Some(browser) = Browser::open(1440, 900).await else {
        return;
    };
    let (world, service, breakable) = with_ha().await;
    fill(&world).await;
    sign_in(&browser, &world).await;
    browser.click("#tile-node001").await;
    browser
        .until(
            "the simulation",
            "document.querySelector('a[href=\"/simulation/kill/node001\"]')",
        )
        .await;
    browser.click("a[href=\"/simulation/kill/node001\"]").await;
    browser
        .until("the question", "document.querySelector('button.danger')")
        .await;
    browser.click("button.danger").await;
    browser
        .until(
            "the truth",
            "document.body.textContent.includes('In truth it has no power')",
        )
        .await;
    assert_eq!(breakable.done.lock().len(), 1);

    service.put(incident("Fencing", 0, &["ack-fenced"]));
    let card = "document.querySelector('a[href=\"/incidents/node001-3-1\"]')";
    browser.until("the incident on the page of the host", card).await;
    browser.click("a[href=\"/incidents/node001-3-1\"]").await;
    browser
        .until("the story", "document.querySelector('.story')")
        .await;
    browser
        .until(
            "live news",
            "document.getElementById('pulse').dataset.state === 'live'",
        )
        .await;
    browser.run("document.body.dataset.untouched = 'yes'").await;
    let at = |state: &str| format!("document.querySelector('.way .here').textContent === '{state}'");
    browser.until("fencing", &at("Fencing")).await;
    service.put(incident("Evacuating", 2, &[]));
    browser.until("evacuating", &at("Evacuating")).await;
    browser.picture("desk-incident-evacuating").await;
    service.put(incident("Recovered", 3, &["release"]));
    browser.until("recovered", &at("Recovered")).await;
    assert_eq!(
        browser.run("return document.body.dataset.untouched").await,
        json!("yes"),
        "no reload"
    );

    // The host is taken back with the keyboard alone.
    browser
        .until("the way back", "document.querySelector('a[href$=\"/release\"]')")
        .await;
    browser
        .enter(
            "document.querySelector('a[href$=\"/release\"]')",
            "the question",
            "document.activeElement.name === 'reason'",
        )
        .await;
    browser
        .type_into("input[name=reason]", "power is back\u{e007}")
        .await;
    eventually("the decision at the service", async || {
        let told = service.told.lock();
        (told.decisions.len() == 1).then_some(())
    })
    .await;
    assert_eq!(browser.complaints().await, [""; 0], "the page complains");
    browser.close().await;
}
