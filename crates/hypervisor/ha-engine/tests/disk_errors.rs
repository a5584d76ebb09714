// SPDX-License-Identifier: Apache-2.0
//! Disk errors of many guests: a host is to blame if others with the same class of device are well.

#![allow(clippy::unwrap_used)]

mod play;

use std::time::Duration;

use cobaltcore_ha_engine::{
    AgentId, BootId, Config, Degraded, DeviceClass, DomainState, GuestEvent, GuestEventKind, HostFacts,
    Input, Inventory, Notice, Observation,
};
use play::{Play, facts, host};

/// Six hosts with four guests each; the guests of 0 to 2 are in Ceph, those of 3 to 5 in files.
struct Zone {
    play: Play,
    seq: u64,
}

fn class(n: u8) -> DeviceClass {
    DeviceClass(if n < 3 { "network/rbd" } else { "file" }.to_owned())
}

impl Zone {
    fn new(config: Config) -> Self {
        let mut play = Play::new();
        play.step(Input::Configure(Box::new(config)));
        for n in 0..6 {
            let told = HostFacts {
                instances: 4,
                ..facts(n)
            };
            play.step(Input::Saw(Observation::Host(told)));
        }
        let mut zone = Self { play, seq: 0 };
        zone.seconds(5);
        for n in 0..6 {
            let guests = (0..4).map(|guest| (id(n, guest), DomainState::Running));
            zone.play.step(Input::Saw(Observation::Inventory(Inventory {
                host: host(n),
                agent: AgentId("agent".into()),
                starts: 1,
                boot: BootId("boot-1".into()),
                version: 1,
                domains: guests.collect(),
                devices: vec![class(n)],
            })));
        }
        zone
    }

    fn seconds(&mut self, count: u32) {
        for _ in 0..count {
            self.play.second(0, true);
            self.play.open.clear();
        }
    }

    /// So many guests of a host have errors on a device of this class.
    fn errors(&mut self, n: u8, guests: u8, device: Option<DeviceClass>) {
        for guest in 0..guests {
            self.error(n, guest, device.clone(), Duration::ZERO);
        }
    }

    /// A guest had an error that long ago, and this is the first word of it.
    fn error(&mut self, n: u8, guest: u8, device: Option<DeviceClass>, age: Duration) {
        self.seq += 1;
        self.play.step(Input::Saw(Observation::Guest(GuestEvent {
            host: host(n),
            agent: AgentId("agent".into()),
            seq: self.seq,
            age,
            server: Some(id(n, guest)),
            kind: GuestEventKind::IoError,
            device,
        })));
    }

    fn degraded(&self) -> Vec<u8> {
        let is = |n: &u8| {
            let status = self
                .play
                .engine
                .host_status(&host(*n), play::at(self.play.now))
                .unwrap();
            status.degraded.contains(&Degraded::IoErrorStorm)
        };
        (0..6).filter(is).collect()
    }

    fn outages(&self) -> Vec<(usize, Option<DeviceClass>)> {
        let of = |notice: &Notice| match notice {
            Notice::StorageOutage { hosts, device } => Some((*hosts, device.clone())),
            _ => None,
        };
        self.play.notices.iter().filter_map(of).collect()
    }
}

fn id(n: u8, guest: u8) -> cobaltcore_api::names::ServerId {
    format!("00000000-0000-0000-{guest:04}-{n:012}").parse().unwrap()
}

#[test]
fn one_host_among_others_with_the_same_devices_is_to_blame() {
    let mut zone = Zone::new(Config::default());
    zone.errors(0, 3, Some(class(0)));
    zone.seconds(5);
    assert_eq!(
        zone.degraded(),
        [0u8; 0],
        "the errors of others may be on their way"
    );
    zone.seconds(10);
    assert_eq!((zone.degraded(), zone.outages()), (vec![0], vec![]));
    assert_eq!(zone.play.effects, 0, "nobody is fenced for it");
}

#[test]
fn a_storage_that_fails_for_many_that_use_it_blames_nobody_and_excuses_nobody_else() {
    let mut zone = Zone::new(Config::default());
    for n in [0, 1] {
        zone.errors(n, 4, Some(class(n)));
    }
    // Files are another matter: two others have them, and are well.
    zone.errors(3, 4, Some(class(3)));
    zone.seconds(30);
    assert_eq!(zone.outages(), [(2, Some(class(0)))], "told once");
    assert_eq!(zone.degraded(), [3]);
}

#[test]
fn too_few_guests_are_no_storm_and_errors_grow_old() {
    let mut zone = Zone::new(Config::default());
    zone.errors(0, 2, Some(class(0)));
    zone.seconds(130);
    zone.errors(0, 1, Some(class(0)));
    zone.seconds(30);
    assert_eq!((zone.degraded(), zone.outages()), (vec![], vec![]));
}

#[test]
fn errors_of_an_outage_that_are_heard_of_together_count_when_they_happened() {
    let s = Duration::from_secs;
    for (ages, blamed) in [
        ([3600, 2400, 1200, 600], vec![]),
        ([125, 124, 123, 122], vec![]),
        ([80, 70, 60, 50], vec![0]),
    ] {
        let mut zone = Zone::new(Config::default());
        for (guest, age) in (0..).zip(ages) {
            zone.error(0, guest, Some(class(0)), s(age));
        }
        zone.seconds(15);
        assert_eq!(zone.degraded(), blamed, "{ages:?}");
        assert_eq!(zone.outages(), []);
    }
    // Two that are old enough are over when the next ones come.
    let mut zone = Zone::new(Config::default());
    zone.seconds(120);
    for guest in 0..2 {
        zone.error(0, guest, Some(class(0)), s(110));
    }
    zone.seconds(20);
    zone.errors(0, 1, Some(class(0)));
    zone.error(0, 2, Some(class(0)), s(5));
    zone.seconds(15);
    assert_eq!(zone.degraded(), [0u8; 0]);
}

#[test]
fn nobody_is_blamed_while_too_few_others_are_well() {
    let mut config = Config::default();
    config.monitors.io_error_storm.outage_percent = 100;
    let mut zone = Zone::new(config);
    zone.errors(0, 4, Some(class(0)));
    // Too few for a storm, too many to be well.
    zone.errors(1, 2, Some(class(1)));
    zone.seconds(30);
    assert_eq!(zone.degraded(), [0u8; 0]);
}

#[test]
fn devices_that_nobody_could_name_are_compared_with_all_hosts() {
    let mut zone = Zone::new(Config::default());
    zone.errors(4, 4, None);
    zone.seconds(30);
    assert_eq!(zone.degraded(), [4]);
    zone.errors(0, 4, None);
    zone.seconds(30);
    assert_eq!(zone.outages(), [(2, None)], "two of six");
    assert_eq!(zone.degraded(), [0u8; 0]);
}
