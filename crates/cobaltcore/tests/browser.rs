// SPDX-License-Identifier: Apache-2.0
//! Somebody pulls the plug of a host in the console of `cobaltcore up` and watches, in a real Chromium, until every guest
//! runs again: the tile, the incident and the recovery, on a desk and on a phone. Nothing on the way is staged: the
//! service decides, the device is asked, the cloud moves. Says SKIPPED where Chromium or its driver is missing.
#![allow(clippy::unwrap_used)]

mod support;
#[allow(dead_code, reason = "the suite of the console uses the rest")]
#[path = "../../management/console/tests/console/webdriver.rs"]
mod webdriver;

/// What the driver of the browser needs of a suite.
mod world {
    use std::time::Duration;

    /// Once per process; who comes second finds it chosen.
    pub(crate) fn choose_crypto() {
        cobaltcore_kit::startup::install_tls_provider();
    }

    /// Asks again until `check` is content. A recovery takes its time, and machines that test are slow.
    pub(crate) async fn eventually<T, F: AsyncFnMut() -> Option<T>>(what: &str, mut check: F) -> T {
        for _ in 0..1200 {
            if let Some(found) = check().await {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        panic!("never seen: {what}");
    }
}

use std::path::Path;

use serde_json::Value;
use support::{Platform, all_in, eventually, nothing_runs_twice, running};
use webdriver::Browser;

const HOSTS: usize = 6;
const PER_HOST: usize = 2;
const AUDIT: &str = include_str!("../../management/console/tests/console/audit.js");

/// A picture of the page, and whether everybody can use it.
async fn look(browser: &Browser, device: &str, name: &str, faults: &mut Vec<String>) {
    browser.picture(&format!("up-{device}-{name}")).await;
    let found = browser.run(AUDIT).await;
    let found: Vec<Value> = found.as_array().unwrap().clone();
    faults.extend(found.iter().map(|fault| format!("{name}: {fault}")));
}

/// Signs in with the link the platform prints and waits for a fleet that is well.
async fn sign_in(browser: &Browser, said: &str) {
    let link = said
        .split_whitespace()
        .find(|word| word.contains("/sign-in#code="));
    browser.go(link.unwrap()).await;
    let well = format!("document.querySelectorAll('.tile.good').length === {HOSTS}");
    browser.until("a fleet that is well", &well).await;
    let live = "document.getElementById('pulse').dataset.state === 'live'";
    browser.until("live news", live).await;
}

/// Pulls the plug and watches to the end.
async fn watch(browser: &Browser, folder: &Path, device: &str, host: &str) -> Vec<String> {
    let mut faults = Vec::new();
    look(browser, device, "1-fleet", &mut faults).await;
    browser.click(&format!("#tile-{host}")).await;
    let plug = format!("a[href=\"/simulation/kill/{host}\"]");
    let shown = format!("document.querySelector('{plug}')");
    browser.until("the plug", &shown).await;
    look(browser, device, "2-host", &mut faults).await;
    browser.click(&plug).await;
    browser
        .until("the question", "document.querySelector('button.danger')")
        .await;
    look(browser, device, "3-question", &mut faults).await;
    browser.click("button.danger").await;
    let dark = "document.body.textContent.includes('In truth it has no power')";
    browser.until("the truth", dark).await;

    // The tile changes while the fleet is looked at.
    browser.click("nav a[href=\"/\"]").await;
    let bad = format!("!document.getElementById('tile-{host}').classList.contains('good')");
    browser.until("a tile in trouble", &bad).await;
    look(browser, device, "4-tile", &mut faults).await;

    // The incident is found, and nothing is reloaded until its end.
    browser.click("nav a[href=\"/incidents\"]").await;
    browser
        .until(
            "the incident",
            "document.querySelector('main table a[href^=\"/incidents/\"]')",
        )
        .await;
    look(browser, device, "5-incidents", &mut faults).await;
    browser.click("main table a[href^=\"/incidents/\"]").await;
    browser
        .until("the story", "document.querySelector('.story li')")
        .await;
    browser.run("document.body.dataset.untouched = 'yes'").await;
    let past =
        "['Fenced', 'Evacuating', 'Recovered'].includes(document.querySelector('.way .here').textContent)";
    browser.until("a host that is off for certain", past).await;
    look(browser, device, "6-recovery", &mut faults).await;
    let recovered = "document.querySelector('.way .here').textContent === 'Recovered'";
    browser.until("the recovery", recovered).await;
    let guests =
        format!("document.body.textContent.includes('{PER_HOST} of {PER_HOST} guests run again elsewhere')");
    browser.until("every guest", &guests).await;
    let untouched = browser.run("return document.body.dataset.untouched").await;
    assert_eq!(untouched, "yes", "no reload");
    look(browser, device, "7-recovered", &mut faults).await;

    // The world on disk is a moment older than the page.
    world::eventually("every guest elsewhere, on disk", async || {
        let all = running(folder);
        (all.values().sum::<usize>() == HOSTS * PER_HOST && !all.contains_key(host)).then_some(())
    })
    .await;
    nothing_runs_twice(folder);
    let complaints = browser.complaints().await;
    faults.extend(
        complaints
            .iter()
            .map(|complaint| format!("complaint: {complaint}")),
    );
    faults
}

async fn pull_the_plug(width: u32, height: u32, device: &str) {
    let Some(browser) = Browser::open(width, height).await else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().join("up");
    let platform = {
        let folder = folder.clone();
        let started = tokio::task::spawn_blocking(move || {
            let flags = [
                "--quick-ha",
                "--hypervisors",
                "6",
                "--vms-per-host",
                "2",
                "--seed",
                "7",
            ];
            let platform = Platform::start(&folder, &flags);
            all_in(&folder, "Active", HOSTS);
            eventually("every guest runs and no test server is left", || {
                let all = running(&folder);
                all.len() == HOSTS && all.values().all(|count| *count == PER_HOST)
            });
            platform
        });
        started.await.unwrap()
    };
    sign_in(&browser, &platform.said).await;
    let faults = watch(&browser, &folder, device, "node004-bb1").await;
    assert_eq!(faults, [""; 0]);
    browser.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plug_is_pulled_on_a_desk_and_every_guest_is_back() {
    pull_the_plug(1440, 900, "desk").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plug_is_pulled_on_a_phone_and_every_guest_is_back() {
    pull_the_plug(390, 844, "phone").await;
}
