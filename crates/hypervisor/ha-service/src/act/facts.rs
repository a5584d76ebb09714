// SPDX-License-Identifier: Apache-2.0
//! What Nova's answers mean to the engine: states, migrations, and what owners want for their
//! guests. Nothing here asks anybody. A word that is not known never becomes one that permits
//! something.

use std::collections::BTreeMap;

use cobaltcore_api::names::{HostName, ServerId};
use cobaltcore_ha_engine::{
    MigrationFacts, MigrationId, MigrationKind, MigrationStatus, ServerFacts, ServiceFacts, VmState,
};
use cobaltcore_ha_wire::bounds;
use cobaltcore_openstack::nova::{self, PowerState, Server, ServiceState, ServiceStatus};
use cobaltcore_openstack::{UserId, glance};
use jiff::Timestamp;

use crate::config::{EphemeralBackend, Recovery};
use crate::wishes::{Wishes, wishes};

/// What an owner asks for when a guest is meant not to run, or to be left alone for a moment.
const BY_OWNER: [&str; 7] = [
    "stop",
    "delete",
    "softDelete",
    "forceDelete",
    "shelve",
    "shelveOffload",
    "reboot",
];

/// Something that an owner asked for and that must be respected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Wish {
    /// How many milliseconds ago.
    pub(super) ago_ms: u64,
    /// It came after the latest evacuation was asked for.
    pub(super) since_move: bool,
    /// The server is not to run.
    pub(super) stops: bool,
}

/// What is known around a server.
#[derive(Debug, Default)]
pub(super) struct Around<'a> {
    /// Its image, if it has one that still exists.
    pub(super) image: Option<&'a glance::Image>,
    /// The metadata of the aggregates of its host.
    pub(super) aggregates: &'a [BTreeMap<String, String>],
    /// Its hard anti-affinity group.
    pub(super) anti_affinity: Option<String>,
    /// What its owner last asked for, if that must be respected.
    pub(super) wish: Option<Wish>,
    /// All its disks are in Ceph, as its host last said.
    pub(super) in_ceph: bool,
    /// The disk that was made of its image is not, as its host last said.
    pub(super) outside_ceph: bool,
    /// Where such disks are, as the configuration says.
    pub(super) backend: EphemeralBackend,
}

/// A server as the engine knows it; nothing if Nova does not say enough.
pub(super) fn server(
    server: &Server,
    host: Option<HostName>,
    around: &Around<'_>,
    recovery: &Recovery,
) -> Option<ServerFacts> {
    let id = ServerId::new(server.id.as_str()).ok()?;
    let state = vm_state(server.vm_state.as_ref()?)?;
    let Wishes {
        policy,
        priority,
        group,
        excluded,
    } = wishes(server, around.image, around.aggregates, &recovery.exclude);
    // Whoever has the disk open knows better than a file that was written for many hosts.
    let local = match around.backend {
        EphemeralBackend::Local => true,
        EphemeralBackend::Rbd => around.outside_ceph,
        EphemeralBackend::Shared => false,
    };
    Some(ServerFacts {
        id,
        // What an owner may write without end is written down with an end.
        name: bounds::clip(&server.name, bounds::NAME).to_owned(),
        host,
        state,
        task: server.task_state.clone().unwrap_or_default(),
        running: match server.power_state {
            Some(power) => power == PowerState::Running,
            None => state == VmState::Active,
        },
        policy,
        excluded,
        priority,
        group: bounds::clip(&group, bounds::NAME).to_owned(),
        anti_affinity: around.anti_affinity.clone(),
        memory_mib: server.flavor.ram,
        local_disk: server.image.is_some() && local,
        local_extras: local && (server.flavor.ephemeral > 0 || server.flavor.swap > 0),
        on_fenced_storage: around.in_ceph,
        lock: server
            .locked
            .then(|| server.locked_reason.clone().unwrap_or_default()),
        user_action_ms: around.wish.map(|wish| wish.ago_ms),
        acted_since_move: around.wish.is_some_and(|wish| wish.since_move),
        user_stops: around.wish.is_some_and(|wish| wish.stops),
    })
}

fn vm_state(state: &nova::VmState) -> Option<VmState> {
    Some(match state {
        nova::VmState::Active => VmState::Active,
        nova::VmState::Building => VmState::Building,
        nova::VmState::Paused => VmState::Paused,
        nova::VmState::Suspended => VmState::Suspended,
        nova::VmState::Stopped => VmState::Stopped,
        nova::VmState::Rescued => VmState::Rescued,
        nova::VmState::Resized => VmState::Resized,
        nova::VmState::SoftDeleted => VmState::SoftDeleted,
        nova::VmState::Deleted => VmState::Deleted,
        nova::VmState::Error => VmState::Error,
        nova::VmState::Shelved => VmState::Shelved,
        nova::VmState::ShelvedOffloaded => VmState::ShelvedOffloaded,
        nova::VmState::Other(_) => return None,
    })
}

/// A migration record as the engine knows it; nothing for one that names no server or source.
pub(super) fn migration(
    record: &nova::Migration,
    host_of: impl Fn(&str) -> Option<HostName>,
) -> Option<MigrationFacts> {
    Some(MigrationFacts {
        id: MigrationId(record.id.0),
        server: ServerId::new(record.server.as_str()).ok()?,
        kind: match record.migration_type {
            Some(nova::MigrationType::Evacuation) => MigrationKind::Evacuation,
            Some(nova::MigrationType::Live) => MigrationKind::Live,
            _ => MigrationKind::Other,
        },
        status: status(&record.status),
        source: record.source_compute.as_deref().and_then(&host_of)?,
        destination: record.dest_compute.as_deref().and_then(&host_of),
    })
}

fn status(status: &nova::MigrationStatus) -> MigrationStatus {
    use nova::MigrationStatus as N;
    match status {
        N::Queued | N::Accepted => MigrationStatus::Accepted,
        N::Preparing | N::PreMigrating => MigrationStatus::PreMigrating,
        N::Done => MigrationStatus::Done,
        N::Completed | N::Confirmed | N::Reverted => MigrationStatus::Completed,
        N::Error => MigrationStatus::Error,
        N::Failed | N::Cancelled => MigrationStatus::Failed,
        // Something may still come of it, also of what is not known here.
        N::Running
        | N::Migrating
        | N::PostMigrating
        | N::Finished
        | N::Confirming
        | N::Reverting
        | N::Other(_) => MigrationStatus::Running,
    }
}

/// A compute service as the engine knows it; nothing if its cell does not answer.
pub(super) fn service(service: &nova::ComputeService) -> Option<ServiceFacts> {
    if matches!(service.state, ServiceState::Unknown | ServiceState::Other(_)) {
        return None;
    }
    Some(ServiceFacts {
        updated_at: service.updated_at.map(|at| at.to_string()).unwrap_or_default(),
        up: service.state == ServiceState::Up,
        disabled: match service.status {
            ServiceStatus::Enabled => false,
            ServiceStatus::Disabled => true,
            ServiceStatus::Unknown | ServiceStatus::Other(_) => return None,
        },
        forced_down: service.forced_down,
    })
}

/// What the owner asked for, if it must be respected and is the last thing they asked for. What Nova did by itself and what
/// we did is nobody's wish. The age is by Nova's clock alone: by ours, which may be wrong by an hour, a guest that was
/// stopped a moment ago would be started. Where Nova does not say what time it is, the wish is taken for a fresh one.
pub(super) fn by_owner(history: &nova::History, us: &UserId) -> Option<Wish> {
    let asked = |action: &&nova::InstanceAction| action.user_id.as_ref().is_some_and(|user| user != us);
    let last = history
        .actions
        .iter()
        .filter(asked)
        .max_by_key(|action| action.start_time.unwrap_or(Timestamp::UNIX_EPOCH))?;
    if !BY_OWNER.contains(&last.action.as_str()) {
        return None;
    }
    let moves = history
        .actions
        .iter()
        .filter(|action| action.action == "evacuate");
    let moved = moves.filter_map(|action| action.start_time).max();
    let ago = match (history.told_at, last.start_time) {
        (Some(now), Some(then)) => now.duration_since(then).as_millis().max(0),
        _ => 0,
    };
    Some(Wish {
        ago_ms: u64::try_from(ago).unwrap_or(u64::MAX),
        since_move: moved.is_some_and(|moved| last.start_time.is_none_or(|then| then > moved)),
        stops: last.action != "reboot",
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    const ID: &str = "12e479eb-6bef-4fdb-bfdc-0388df68bed9";

    fn shown(extra: Value) -> Server {
        let mut all = json!({
            "id": ID, "name": "web-1", "status": "ACTIVE", "OS-EXT-STS:vm_state": "active",
            "OS-EXT-STS:power_state": 1, "OS-EXT-SRV-ATTR:host": "n1", "tenant_id": "p1", "user_id": "u1",
            "flavor": {"original_name": "m1.small", "ram": 2048, "extra_specs": {}},
            "image": {"id": "i1"}, "metadata": {},
        });
        for (key, value) in extra.as_object().unwrap() {
            all[key] = value.clone();
        }
        serde_json::from_value(all).unwrap()
    }

    fn facts(shown: &Server, around: &Around<'_>) -> ServerFacts {
        server(shown, HostName::new("n1").ok(), around, &Recovery::default()).unwrap()
    }

    #[test]
    fn a_disk_that_would_be_rebuilt_empty_is_known() {
        let local = |backend, outside_ceph, extra: Value| {
            let around = Around {
                outside_ceph,
                backend,
                ..Around::default()
            };
            facts(&shown(extra), &around).local_disk
        };
        let volume = || json!({"image": ""});
        assert!(!local(EphemeralBackend::Rbd, false, json!({})));
        assert!(local(EphemeralBackend::Local, false, json!({})));
        assert!(
            !local(EphemeralBackend::Local, false, volume()),
            "a guest on a volume keeps its disk"
        );
        assert!(
            local(EphemeralBackend::Rbd, true, json!({})),
            "its host says otherwise than the configuration"
        );
        assert!(!local(EphemeralBackend::Rbd, true, volume()));
        assert!(
            !local(EphemeralBackend::Shared, true, json!({})),
            "a file on shared storage"
        );
    }

    #[test]
    fn further_disks_on_the_host_are_lost_also_beside_a_volume() {
        let lost = |backend, flavor: Value| {
            let around = Around {
                backend,
                ..Around::default()
            };
            facts(&shown(json!({"image": "", "flavor": flavor})), &around).local_extras
        };
        assert!(lost(EphemeralBackend::Local, json!({"ephemeral": 20})));
        assert!(lost(EphemeralBackend::Local, json!({"swap": 512})));
        assert!(!lost(EphemeralBackend::Local, json!({})));
        assert!(!lost(
            EphemeralBackend::Rbd,
            json!({"ephemeral": 20, "swap": 512})
        ));
    }

    #[test]
    fn names_that_have_no_end_are_cut() {
        let long = "\u{1F98A}".repeat(255);
        let metadata = json!({"name": long, "metadata": {"cobaltcore:ha_group": long}});
        let facts = facts(&shown(metadata), &Around::default());
        for text in [facts.name, facts.group] {
            assert!(!text.is_empty() && text.len() <= bounds::NAME, "{}", text.len());
        }
    }

    #[test]
    fn what_nova_does_not_say_is_not_made_up() {
        let recovery = Recovery::default();
        for extra in [
            json!({"OS-EXT-STS:vm_state": null}),
            json!({"OS-EXT-STS:vm_state": "teleported"}),
            json!({"id": "not-a-uuid"}),
        ] {
            assert_eq!(
                server(&shown(extra.clone()), None, &Around::default(), &recovery),
                None,
                "{extra}"
            );
        }
        assert_eq!(
            status(&nova::MigrationStatus::Other("odd".into())),
            MigrationStatus::Running
        );
        let cell_down = json!({"host": "n1", "binary": "nova-compute", "status": "UNKNOWN"});
        assert_eq!(service(&serde_json::from_value(cell_down).unwrap()), None);
    }

    #[test]
    fn only_the_last_wish_of_an_owner_counts() {
        let told_at: Timestamp = "2026-01-01T00:10:00Z".parse().unwrap();
        let action = |action: &str, user: Option<&str>, minute: u32| {
            serde_json::from_value(json!({
                "action": action, "request_id": "r", "user_id": user,
                "start_time": format!("2026-01-01T00:{minute:02}:00Z"),
            }))
            .unwrap()
        };
        let us = UserId::from("us");
        let told = |actions: &[nova::InstanceAction], told_at| {
            let actions = actions.to_vec();
            by_owner(&nova::History { actions, told_at }, &us)
        };
        let ago = |actions: &[nova::InstanceAction]| told(actions, Some(told_at)).map(|wish| wish.ago_ms);
        assert_eq!(ago(&[action("stop", Some("u1"), 9)]), Some(60_000));
        assert_eq!(
            ago(&[action("start", Some("u1"), 9), action("stop", Some("u1"), 8)]),
            None
        );
        assert_eq!(ago(&[action("stop", Some("us"), 9)]), None, "that was us");
        assert_eq!(ago(&[action("stop", None, 9)]), None, "that was Nova");
        assert_eq!(
            ago(&[action("stop", Some("us"), 9), action("reboot", Some("u1"), 8)]),
            Some(120_000)
        );
        assert_eq!(ago(&[]), None);
        // Nova's clock is years behind ours, and a wish whose age nobody knows is a fresh one.
        let unknown = told(&[action("stop", Some("u1"), 9)], None);
        assert_eq!(unknown.map(|wish| wish.ago_ms), Some(0));
        assert_eq!(told(&[action("start", Some("u1"), 9)], None), None);
        // Who moved the guest, and how long ago, does not matter; which came first does.
        let since =
            |actions: &[nova::InstanceAction]| told(actions, Some(told_at)).map(|wish| wish.since_move);
        let stop = |minute| action("stop", Some("u1"), minute);
        let moved = |minute| action("evacuate", Some("us"), minute);
        assert_eq!(since(&[stop(9)]), Some(false));
        assert_eq!(since(&[stop(9), moved(8), moved(3)]), Some(true));
        assert_eq!(since(&[moved(9), stop(8), moved(3)]), Some(false));
        let stops = |actions: &[nova::InstanceAction]| told(actions, Some(told_at)).map(|wish| wish.stops);
        assert_eq!(stops(&[stop(9)]), Some(true));
        assert_eq!(stops(&[action("reboot", Some("u1"), 9), stop(8)]), Some(false));
    }
}
