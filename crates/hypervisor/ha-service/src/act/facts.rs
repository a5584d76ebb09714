// SPDX-License-Identifier: Apache-2.0
//! What Nova's answers mean to the engine: states, migrations, and what owners want for their
//! guests. Nothing here asks anybody. A word that is not known never becomes one that permits
//! something.

use std::collections::BTreeMap;

use cobaltcore_api::names::{HostName, ServerId};
use cobaltcore_ha_engine::{
    MigrationFacts, MigrationId, MigrationKind, MigrationStatus, ServerFacts, ServiceFacts, VmPolicy, VmState,
};
use cobaltcore_openstack::nova::{self, PowerState, Server, ServiceState, ServiceStatus};
use cobaltcore_openstack::{UserId, glance};
use jiff::Timestamp;

use crate::config::{EphemeralBackend, Exclusion, Recovery};

/// What a guest's owner, flavor, image or aggregate say about high availability.
const POLICY: &str = "cobaltcore:ha";
const PRIORITY: &str = "cobaltcore:ha_priority";
const GROUP: &str = "cobaltcore:ha_group";
/// The same as an image property, which cannot have a colon.
const IMAGE_POLICY: &str = "cobaltcore_ha";
const IMAGE_PRIORITY: &str = "cobaltcore_ha_priority";
/// What Masakari's users have written down already.
const MASAKARI: &str = "HA_Enabled";
/// A guest that says nothing.
const USUAL_PRIORITY: u16 = 500;
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

/// What is known around a server.
#[derive(Debug, Default)]
pub(super) struct Around<'a> {
    /// Its image, if it has one that still exists.
    pub(super) image: Option<&'a glance::Image>,
    /// The metadata of the aggregates of its host.
    pub(super) aggregates: &'a [BTreeMap<String, String>],
    /// Its hard anti-affinity group.
    pub(super) anti_affinity: Option<String>,
    /// How long ago its owner last asked for something that must be respected.
    pub(super) user_action_ms: Option<u64>,
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
    let word = |key: &str, image_key: &str| said(server, around, key, image_key);
    // The owner's word comes first, in whose terms ever it was given.
    let policy = policy_word(server.metadata.get(POLICY).map(String::as_str))
        .or_else(|| masakari(server))
        .or_else(|| policy_word(word(POLICY, IMAGE_POLICY).as_deref()));
    let priority = word(PRIORITY, IMAGE_PRIORITY).and_then(|text| text.trim().parse::<u16>().ok());
    // Whoever has the disk open knows better than a file that was written for many hosts.
    let local = match around.backend {
        EphemeralBackend::Local => true,
        EphemeralBackend::Rbd => around.outside_ceph,
        EphemeralBackend::Shared => false,
    };
    Some(ServerFacts {
        id,
        name: server.name.clone(),
        host,
        state,
        task: server.task_state.clone().unwrap_or_default(),
        running: match server.power_state {
            Some(power) => power == PowerState::Running,
            None => state == VmState::Active,
        },
        policy,
        excluded: recovery
            .exclude
            .iter()
            .any(|rule| excludes(rule, server, around.image)),
        priority: priority.map_or(USUAL_PRIORITY, |priority| priority.min(1000)),
        group: server.metadata.get(GROUP).cloned().unwrap_or_default(),
        anti_affinity: around.anti_affinity.clone(),
        memory_mib: server.flavor.ram,
        local_disk: server.image.is_some() && local,
        on_fenced_storage: around.in_ceph,
        lock: server
            .locked
            .then(|| server.locked_reason.clone().unwrap_or_default()),
        user_action_ms: around.user_action_ms,
    })
}

/// The first who says something: the owner, the flavor, the image, the aggregate.
fn said(server: &Server, around: &Around<'_>, key: &str, image_key: &str) -> Option<String> {
    let image = around
        .image
        .and_then(|image| image.properties.get(image_key)?.as_str());
    server
        .metadata
        .get(key)
        .or_else(|| server.flavor.extra_specs.get(key))
        .cloned()
        .or_else(|| image.map(str::to_owned))
        .or_else(|| {
            around
                .aggregates
                .iter()
                .find_map(|metadata| metadata.get(key).cloned())
        })
}

fn policy_word(word: Option<&str>) -> Option<VmPolicy> {
    match word?.trim().to_ascii_lowercase().as_str() {
        "evacuate" => Some(VmPolicy::Evacuate),
        "restart" => Some(VmPolicy::Restart),
        "ignore" => Some(VmPolicy::Ignore),
        _ => None,
    }
}

fn masakari(server: &Server) -> Option<VmPolicy> {
    match server
        .metadata
        .get(MASAKARI)?
        .trim()
        .to_ascii_lowercase()
        .as_str()
    {
        "true" => Some(VmPolicy::Evacuate),
        "false" => Some(VmPolicy::Ignore),
        _ => None,
    }
}

/// Whether a rule of exclusion fits. Every field that is given must.
fn excludes(rule: &Exclusion, server: &Server, image: Option<&glance::Image>) -> bool {
    let Exclusion {
        name,
        project,
        flavor,
        metadata,
        image_tag,
    } = rule;
    let project_fits = || server.tenant_id.as_ref().is_some_and(|id| id.as_str() == project);
    (name.is_empty() || glob(name, &server.name))
        && (project.is_empty() || project_fits())
        && (flavor.is_empty() || glob(flavor, &server.flavor.original_name))
        && metadata
            .iter()
            .all(|(key, value)| server.metadata.get(key) == Some(value))
        && (image_tag.is_empty() || image.is_some_and(|image| image.tags.contains(image_tag)))
}

/// A pattern in which `*` stands for any text.
fn glob(pattern: &str, text: &str) -> bool {
    let mut pieces = pattern.split('*');
    let Some(mut rest) = pieces.next().and_then(|first| text.strip_prefix(first)) else {
        return false;
    };
    let pieces: Vec<&str> = pieces.collect();
    let Some((last, middle)) = pieces.split_last() else {
        return rest.is_empty();
    };
    for piece in middle {
        match rest.find(piece) {
            Some(at) => rest = rest.get(at + piece.len()..).unwrap_or_default(),
            None => return false,
        }
    }
    rest.ends_with(last)
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

/// How long ago the owner asked for something that must be respected, if that is the last thing
/// they asked for. What Nova did by itself and what we did is nobody's wish.
pub(super) fn by_owner(actions: &[nova::InstanceAction], us: &UserId, now: Timestamp) -> Option<u64> {
    let asked = |action: &&nova::InstanceAction| action.user_id.as_ref().is_some_and(|user| user != us);
    let last = actions
        .iter()
        .filter(asked)
        .max_by_key(|action| action.start_time.unwrap_or(Timestamp::UNIX_EPOCH))?;
    if !BY_OWNER.contains(&last.action.as_str()) {
        return None;
    }
    let ago = now.duration_since(last.start_time?).as_millis();
    Some(u64::try_from(ago.max(0)).unwrap_or(u64::MAX))
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

    fn image(extra: Value) -> glance::Image {
        let mut all = json!({"id": "i1", "status": "active"});
        for (key, value) in extra.as_object().unwrap() {
            all[key] = value.clone();
        }
        serde_json::from_value(all).unwrap()
    }

    fn facts(shown: &Server, around: &Around<'_>) -> ServerFacts {
        server(shown, HostName::new("n1").ok(), around, &Recovery::default()).unwrap()
    }

    #[test]
    fn the_first_who_says_something_about_a_guest_is_heard() {
        let property = image(json!({"cobaltcore_ha": "ignore"}));
        let aggregate = [BTreeMap::from([(POLICY.to_owned(), "restart".to_owned())])];
        let around = Around {
            image: Some(&property),
            aggregates: &aggregate,
            ..Around::default()
        };
        let owner = json!({"metadata": {POLICY: "evacuate"}});
        let flavor = json!({"flavor": {"extra_specs": {POLICY: "restart"}}});
        let masakari = |word: &str| json!({"metadata": {MASAKARI: word}});
        let none = Around::default();
        for (extra, around, wanted) in [
            (owner, &around, Some(VmPolicy::Evacuate)),
            (flavor, &around, Some(VmPolicy::Restart)),
            (json!({}), &around, Some(VmPolicy::Ignore)),
            (
                json!({}),
                &Around {
                    aggregates: &aggregate,
                    ..Around::default()
                },
                Some(VmPolicy::Restart),
            ),
            (json!({}), &none, None),
            (masakari("True"), &none, Some(VmPolicy::Evacuate)),
            (masakari("false"), &none, Some(VmPolicy::Ignore)),
            (masakari("false"), &around, Some(VmPolicy::Ignore)),
            (
                json!({"metadata": {MASAKARI: "false"}, "flavor": {"extra_specs": {POLICY: "evacuate"}}}),
                &none,
                Some(VmPolicy::Ignore),
            ),
            (
                json!({"metadata": {MASAKARI: "true", POLICY: "ignore"}}),
                &none,
                Some(VmPolicy::Ignore),
            ),
            (json!({"metadata": {POLICY: "sometimes"}}), &none, None),
        ] {
            assert_eq!(facts(&shown(extra.clone()), around).policy, wanted, "{extra}");
        }
    }

    #[test]
    fn priorities_groups_and_memory_come_along() {
        let server = shown(json!({"metadata": {PRIORITY: "9000", GROUP: "database"}}));
        let found = facts(&server, &Around::default());
        assert_eq!(
            (found.priority, found.group.as_str(), found.memory_mib),
            (1000, "database", 2048)
        );
        assert_eq!(
            facts(
                &shown(json!({"metadata": {PRIORITY: "soon"}})),
                &Around::default()
            )
            .priority,
            500
        );
        assert!(found.running && found.task.is_empty());
    }

    #[test]
    fn load_balancers_are_left_alone() {
        let plain = Around::default();
        assert!(facts(&shown(json!({"name": "amphora-17"})), &plain).excluded);
        assert!(!facts(&shown(json!({})), &plain).excluded);
        let tagged = image(json!({"tags": ["amphora"]}));
        let around = Around {
            image: Some(&tagged),
            ..Around::default()
        };
        assert!(facts(&shown(json!({})), &around).excluded);
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
    fn globs_match_as_people_expect() {
        for (pattern, text, fits) in [
            ("amphora-*", "amphora-1", true),
            ("amphora-*", "my-amphora-1", false),
            ("*-db", "a-db", true),
            ("a*b*c", "aXbYc", true),
            ("a*b*c", "acb", false),
            ("exact", "exact", true),
            ("exact", "exactly", false),
            ("*", "", true),
        ] {
            assert_eq!(glob(pattern, text), fits, "{pattern} {text}");
        }
    }

    #[test]
    fn only_the_last_wish_of_an_owner_counts() {
        let now: Timestamp = "2026-01-01T00:10:00Z".parse().unwrap();
        let action = |action: &str, user: Option<&str>, minute: u32| {
            serde_json::from_value(json!({
                "action": action, "request_id": "r", "user_id": user,
                "start_time": format!("2026-01-01T00:{minute:02}:00Z"),
            }))
            .unwrap()
        };
        let us = UserId::from("us");
        let ago = |actions: &[nova::InstanceAction]| by_owner(actions, &us, now);
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
    }
}
