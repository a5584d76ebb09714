// SPDX-License-Identifier: Apache-2.0
//! The Redfish driver against simulated BMCs over HTTP: good ones, lying ones, slow ones, ones that
//! hang up, and ones whose cable leads to another machine.
#![allow(clippy::unwrap_used)]

use std::time::Duration;

use cobaltcore_api::names::HostName;
use cobaltcore_ha_engine::{Identity, Power};
use cobaltcore_ha_fencing::{Config, Error, Fences, Level, Target};
use cobaltcore_sim::bmc::{Bmcs, PASSWORD, Trouble, USER};
use cobaltcore_sim::world::{Power as Real, World};

const ONE: &str = "node001-bb1";
const TWO: &str = "node002-bb1";

/// Two hosts, their BMCs, and fencing devices that lead to them.
struct Rig {
    world: World,
    bmcs: Bmcs,
    fences: Fences,
    folder: tempfile::TempDir,
}

impl Rig {
    async fn new(options: &str) -> Self {
        let world = World::builder().hosts(2).vms_per_host(2).manual_clock().build();
        let bmcs = Bmcs::start(&world).await.unwrap();
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("bmc.yaml");
        std::fs::write(&file, format!("username: {USER}\npassword: {PASSWORD}\n")).unwrap();
        let hosts: String = [ONE, TWO]
            .map(|host| format!("  {host}: {{bmc: '{}'}}\n", bmcs.url(host).unwrap()))
            .concat();
        let text = format!(
            "levels:\n- [{{driver: redfish, url: '{{bmc}}', timeout: 2s, credentials_file: {}{options}}}]\nhosts:\n{hosts}",
            file.display()
        );
        let config: Config = cobaltcore_kit::config::Config::new()
            .text("test.yaml", &text)
            .load()
            .unwrap();
        Self {
            fences: Fences::new(config, None).unwrap(),
            world,
            bmcs,
            folder,
        }
    }

    fn device(&self) -> Level {
        self.fences.level(&target(ONE), 0).unwrap()
    }

    fn power(&self, host: &str) -> Real {
        self.world.read(|state| state.hosts[host].power)
    }

    fn uuid(&self, host: &str) -> String {
        self.world.read(|state| state.hosts[host].node_uuid.to_string())
    }
}

fn target(host: &str) -> Target {
    Target::new(HostName::new(host).unwrap())
}

#[tokio::test]
async fn a_host_is_identified_switched_off_and_taken_back() {
    let rig = Rig::new("").await;
    let device = rig.device();
    let uuid = rig.uuid(ONE);
    assert_eq!(
        device.identify().await.unwrap(),
        Identity {
            system_uuid: Some(uuid.clone()),
            serial: Some(uuid)
        }
    );
    assert_eq!(device.power().await.unwrap(), Power::On);
    device.power_off().await.unwrap();
    assert_eq!(rig.power(ONE), Real::Off);
    assert_eq!(device.power().await.unwrap(), Power::Off);
    device.power_off().await.expect("off twice is off once");
    device.hold().await.unwrap();
    assert!(device.release().await.unwrap().is_none());
    assert_eq!(device.power().await.unwrap(), Power::On, "on its way is on");
    rig.world.step(Duration::from_secs(120));
    assert_eq!(rig.power(ONE), Real::On);
    assert_eq!(rig.power(TWO), Real::On, "the other host was never touched");
}

#[tokio::test]
async fn an_order_that_crosses_with_a_power_cut_is_done() {
    let rig = Rig::new("").await;
    let device = rig.device();
    // The BMC refuses to switch off what is off; what counts is that it is.
    rig.world.power_off(ONE).unwrap();
    device.power_off().await.unwrap();
}

#[tokio::test]
async fn power_is_never_read_from_what_is_no_answer() {
    let rig = Rig::new("").await;
    let device = rig.device();
    rig.world.power_off(ONE).unwrap();
    for trouble in [
        Trouble::Hangs,
        Trouble::Errors,
        Trouble::Drops,
        Trouble::Slow(Duration::from_secs(30)),
        Trouble::Says("Unknown".into()),
        Trouble::Says(String::new()),
    ] {
        rig.bmcs.set(ONE, trouble.clone());
        let read = device.power().await;
        assert!(read.is_err(), "{trouble:?} read as {read:?}");
    }
    for (word, power) in [
        ("PoweringOff", Power::On),
        ("PoweringOn", Power::On),
        ("Paused", Power::On),
        ("Off", Power::Off),
    ] {
        rig.bmcs.set(ONE, Trouble::Says(word.into()));
        assert_eq!(device.power().await.unwrap(), power, "{word}");
    }
}

#[tokio::test]
async fn a_slow_bmc_is_waited_for_and_a_dead_one_is_not() {
    let rig = Rig::new("").await;
    let device = rig.device();
    rig.bmcs.set(ONE, Trouble::Slow(Duration::from_millis(200)));
    device.power_off().await.unwrap();
    assert_eq!(rig.power(ONE), Real::Off);
    rig.bmcs.set(ONE, Trouble::Hangs);
    let error = device.power_off().await.unwrap_err();
    assert!(matches!(error, Error::TimedOut { .. }), "{error}");
    assert!(error.to_string().contains("127.0.0.1"), "{error}");
}

#[tokio::test]
async fn a_cable_to_another_machine_is_noticed_before_anything_is_pressed() {
    let rig = Rig::new("").await;
    rig.bmcs.set(ONE, Trouble::WiredTo(TWO.into()));
    let told = rig.fences.identify(&target(ONE), 0).await.unwrap();
    let meant = Identity {
        system_uuid: Some(rig.uuid(ONE)),
        serial: Some(rig.uuid(ONE)),
    };
    assert!(!meant.matches(&told), "this is the machine of {TWO}");
    // The right device of the machine now claims it as well: nobody knows which one is right.
    let error = rig.fences.identify(&target(TWO), 0).await.unwrap_err();
    assert!(matches!(error, Error::Shared { .. }), "{error}");
    assert_eq!((rig.power(ONE), rig.power(TWO)), (Real::On, Real::On));
    rig.bmcs.set(ONE, Trouble::Nameless);
    let told = rig.device().identify().await.unwrap();
    assert!(
        !meant.matches(&told),
        "a device that does not know is not believed"
    );
}

#[tokio::test]
async fn a_lying_bmc_is_believed_only_because_nothing_here_can_tell() {
    let rig = Rig::new("").await;
    let device = rig.device();
    rig.bmcs.set(ONE, Trouble::Lies);
    device.power_off().await.unwrap();
    assert_eq!(device.power().await.unwrap(), Power::Off);
    // The engine hears the heartbeat of a host that "is off", and holds. That is judged there.
    assert_eq!(rig.power(ONE), Real::On);
}

#[tokio::test]
async fn tasks_are_followed() {
    let rig = Rig::new("").await;
    let device = rig.device();
    rig.bmcs.set(ONE, Trouble::Tasks);
    device.power_off().await.unwrap();
    assert_eq!(
        rig.power(ONE),
        Real::Off,
        "the task was looked at until it was over"
    );
    rig.bmcs.set(ONE, Trouble::FailsTasks);
    let error = device.release().await.unwrap().unwrap().to_string();
    assert!(error.contains("The fan is in the way"), "{error}");
}

#[tokio::test]
async fn the_tag_of_the_system_is_sent_where_it_is_wanted() {
    let rig = Rig::new("").await;
    rig.bmcs.set(ONE, Trouble::WantsTag);
    rig.device().power_off().await.unwrap();
    assert_eq!(rig.power(ONE), Real::Off);
}

#[tokio::test]
async fn only_what_switches_off_at_once_is_pressed() {
    let rig = Rig::new("").await;
    rig.bmcs.set(ONE, Trouble::NoForceOff);
    let error = rig.device().power_off().await.unwrap_err();
    assert!(matches!(error, Error::NotOffered { .. }), "{error}");
    assert!(error.to_string().contains("GracefulShutdown"), "{error}");
    assert_eq!(rig.power(ONE), Real::On);
    rig.bmcs.set(ONE, Trouble::ActionInfo);
    rig.device().power_off().await.unwrap();
    assert_eq!(
        rig.power(ONE),
        Real::Off,
        "what it offers stands in another document"
    );
}

#[tokio::test]
async fn no_password_goes_to_another_machine() {
    let rig = Rig::new("").await;
    rig.bmcs.set(ONE, Trouble::TargetElsewhere);
    let error = rig.device().power_off().await.unwrap_err();
    assert!(matches!(error, Error::BadAnswer { .. }), "{error}");
    assert_eq!(rig.power(ONE), Real::On);
}

#[tokio::test]
async fn sessions_are_opened_once_and_again_when_they_end() {
    let rig = Rig::new(", auth: session").await;
    let device = rig.device();
    for _ in 0..3 {
        assert_eq!(device.power().await.unwrap(), Power::On);
    }
    assert_eq!(rig.bmcs.sessions(ONE), 1);
    rig.bmcs.end_sessions(ONE);
    device.power_off().await.unwrap();
    assert_eq!((rig.power(ONE), rig.bmcs.sessions(ONE)), (Real::Off, 1));
}

#[tokio::test]
async fn wrong_credentials_are_told_without_showing_them() {
    for options in ["", ", auth: session"] {
        let rig = Rig::new(options).await;
        let file = rig.folder.path().join("bmc.yaml");
        std::fs::write(&file, "username: admin\npassword: hunter2\n").unwrap();
        let error = rig.device().power().await.unwrap_err();
        let Error::Refused { status, .. } = &error else {
            panic!("{error}");
        };
        assert_eq!(*status, 401);
        let shown = format!("{error} {error:?} {:?} {:?}", rig.device(), rig.fences);
        assert!(
            !shown.contains("hunter2") && shown.contains("credentials_file"),
            "{shown}"
        );
    }
}

#[tokio::test]
async fn a_bmc_outside_the_allowed_networks_is_not_spoken_to() {
    let text = "levels: [[{driver: redfish, url: '{bmc}'}]]\nallowed_networks: [10.0.0.0/8]\nhosts: {n1: {bmc: 'http://127.0.0.1:1'}, n2: {bmc: 'http://localhost:1'}}\n";
    let config: Config = cobaltcore_kit::config::Config::new()
        .text("t.yaml", text)
        .load()
        .unwrap();
    let fences = Fences::new(config, None).unwrap();
    let error = fences.level(&target("n1"), 0).unwrap_err().to_string();
    assert!(error.contains("allowed_networks"), "{error}");
    let error = fences
        .level(&target("n2"), 0)
        .unwrap()
        .power()
        .await
        .unwrap_err()
        .to_string();
    assert!(error.contains("allowed_networks"), "{error}");
}
