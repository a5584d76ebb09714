// SPDX-License-Identifier: Apache-2.0
//! Units, host facts and the bus itself coming and going.

use cobaltcore_api::HypervisorSpec;

use crate::scene::{Scene, condition, eventually};
use crate::services::Unit;

const UNIT: &str = "libvirtd.service";

#[tokio::test(flavor = "multi_thread")]
async fn every_state_of_a_unit_becomes_a_condition() {
    let Some(scene) = Scene::new(HypervisorSpec::default()).await else {
        return;
    };
    scene.far.set(UNIT, Unit::new("active", "running")).await;
    let agent = scene.agent(&[]);
    assert_eq!(
        scene.until(UNIT, "True/Running").await,
        "libvirtd.service: active, loaded"
    );
    assert_eq!(
        scene.until("openvswitch-switch.service", "False/NotFound").await,
        "openvswitch-switch.service: inactive, not-found"
    );
    for (state, wanted) in [
        ("reloading", "True/Reloading"),
        ("deactivating", "False/Stopping"),
        ("inactive", "False/Stopped"),
        ("activating", "Unknown/Starting"),
        ("failed", "False/Failed"),
        ("maintenance", "Unknown/Maintenance"),
        ("something new", "Unknown/Unknown"),
        ("refreshing", "True/Reloading"),
        ("active", "True/Running"),
    ] {
        scene.far.set(UNIT, Unit::new(state, "")).await;
        scene.until(UNIT, wanted).await;
    }
    let status = scene.status().await;
    let system = &status["operatingSystem"];
    assert_eq!(
        (&system["version"], &system["hardwareModel"]),
        (&"1.0".into(), &"SR650".into()),
        "{status}"
    );
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_libvirtd_is_not_connected_to() {
    let Some(scene) = Scene::new(HypervisorSpec::default()).await else {
        return;
    };
    scene.far.set(UNIT, Unit::new("inactive", "dead")).await;
    let agent = scene.agent(&[]);
    let message = scene
        .until("LibVirtConnection", "False/LibVirtServiceNotRunning")
        .await;
    assert_eq!(message, "libvirtd service is not running");
    scene.far.set(UNIT, Unit::new("active", "running")).await;
    scene.until("LibVirtConnection", "False/ConnectFailed").await;
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bus_that_dies_makes_units_unknown_until_it_is_back() {
    let Some(mut scene) = Scene::new(HypervisorSpec::default()).await else {
        return;
    };
    scene.far.set(UNIT, Unit::new("active", "running")).await;
    let agent = scene.agent(&[]);
    scene.until(UNIT, "True/Running").await;
    scene.bus.down().await;
    let message = scene.until(UNIT, "Unknown/Unknown").await;
    assert!(
        message.starts_with("libvirtd.service: systemd cannot be asked:"),
        "{message}"
    );
    scene.bus.up().await.unwrap();
    let address = scene.bus.address();
    scene.far.again(&address).await;
    scene.until(UNIT, "True/Running").await;
    scene.far.set(UNIT, Unit::new("failed", "failed")).await;
    scene.until(UNIT, "False/Failed").await;
    scene.until("EvacuationReady", "True/Armed").await;
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn signals_are_heard_again_after_systemd_restarted() {
    let Some(mut scene) = Scene::new(HypervisorSpec::default()).await else {
        return;
    };
    scene.far.set(UNIT, Unit::new("active", "running")).await;
    let agent = scene.agent(&[]);
    scene.until(UNIT, "True/Running").await;
    let address = scene.bus.address();
    scene.far.again(&address).await;
    // The states are read anew, then signals tell again.
    eventually("the agent follows the new systemd", async || {
        scene.far.set(UNIT, Unit::new("failed", "failed")).await;
        let status = scene.status().await;
        let found = condition(&status, UNIT);
        (found["reason"] == "Failed").then_some(()).ok_or(found)
    })
    .await;
    scene.far.set(UNIT, Unit::new("active", "running")).await;
    scene.until(UNIT, "True/Running").await;
    agent.stop().await;
}
