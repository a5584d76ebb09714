// SPDX-License-Identifier: Apache-2.0
//! Operating system updates from the wish to the reboot.

use cobaltcore_api::HypervisorSpec;
use serde_json::json;

use crate::scene::{Scene, eventually};
use crate::services::OnStart;

const UPDATE: &str = "systemd-sysupdate@2.0.service";
const REBOOT: &str = "systemd-sysupdate-reboot.target";
const TYPE: &str = "OperatingSystemUpdate";

fn wanted(reboot: bool) -> HypervisorSpec {
    HypervisorSpec {
        version: "2.0".into(),
        reboot,
        ..HypervisorSpec::default()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_update_runs_until_its_unit_is_done_and_reboots_once() {
    let Some(scene) = Scene::new(wanted(true)).await else {
        return;
    };
    scene.far.on_start(UPDATE, OnStart::Run);
    scene.far.on_start(REBOOT, OnStart::Run);
    let agent = scene.agent(&[]);
    let message = scene.until(TYPE, "True/Running").await;
    assert_eq!(message, "Operating system update to 2.0 is running");
    assert_eq!(
        scene.status().await["updateStatus"],
        json!({"inProgress": true, "installed": "unknown", "retry": 3})
    );
    // That it runs is said before the unit is started.
    eventually("the unit was started", async || {
        let started = scene.far.started();
        (started == [UPDATE]).then_some(()).ok_or(started)
    })
    .await;

    // An agent that was restarted in the middle goes on where the unit is.
    agent.stop().await;
    let agent = scene.agent(&[]);
    scene.until(TYPE, "True/Running").await;
    assert_eq!(scene.far.started(), [UPDATE]);

    scene.until_told("Normal UpdateStarted").await;
    scene.far.finish(UPDATE, "done").await;
    // The unit's own state tells an agent that did not start the job itself, when it looks the next time.
    eventually("the reboot was requested", async || {
        let started = scene.far.started();
        (started == [UPDATE, REBOOT]).then_some(()).ok_or(started)
    })
    .await;
    let message = scene.until(TYPE, "True/Completed").await;
    scene.until_told("Normal UpdateInstalled").await;
    assert!(
        message.starts_with("Operating system update 2.0 is installed"),
        "{message}"
    );
    assert_eq!(
        scene.status().await["updateStatus"],
        json!({"inProgress": false, "installed": "2.0", "retry": 3})
    );

    agent.stop().await;
    let agent = scene.agent(&[]);
    scene.until(TYPE, "True/Completed").await;
    scene.change_spec(json!({"highAvailability": true})).await;
    scene.until("EvacuationReady", "True/Armed").await;
    assert_eq!(
        scene.far.started(),
        [UPDATE, REBOOT],
        "a restarted agent does not ask again"
    );
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failing_update_costs_an_attempt_and_says_why() {
    let Some(scene) = Scene::new(wanted(true)).await else {
        return;
    };
    scene.far.on_start(UPDATE, OnStart::Fail);
    let agent = scene.agent(&[]);
    // Until the bus answers it may say that the running version is not known yet, with the same reason.
    scene.until_told("Warning UpdateFailed").await;
    let message = scene.until(TYPE, "False/Stopped").await;
    assert_eq!(
        message,
        "2.0 update has failed: systemd ended its job with: failed"
    );
    let status = scene.status().await;
    assert_eq!(
        (
            &status["updateStatus"]["retry"],
            &status["updateStatus"]["inProgress"]
        ),
        (&json!(2), &json!(false))
    );
    assert_eq!(scene.far.started(), [UPDATE]);
    // A new version has its own attempts.
    scene.far.on_start("systemd-sysupdate@3.0.service", OnStart::Done);
    scene
        .change_spec(json!({"version": "3.0", "reboot": false}))
        .await;
    scene.until(TYPE, "True/Completed").await;
    assert_eq!(scene.far.started(), [UPDATE, "systemd-sysupdate@3.0.service"]);
    scene.change_spec(json!({"version": "../evil"})).await;
    scene.until(TYPE, "False/InvalidVersion").await;
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_journal_nothing_is_started() {
    let Some(scene) = Scene::new(wanted(true)).await else {
        return;
    };
    scene.far.on_start(UPDATE, OnStart::Run);
    std::fs::write(
        scene.host.path().join("state"),
        "a file where a directory belongs",
    )
    .unwrap();
    let agent = scene.agent(&[]);
    let message = scene.until(TYPE, "False/Stopped").await;
    assert!(message.contains("os-update.json"), "{message}");
    assert!(scene.far.started().is_empty());
    agent.stop().await;
}
