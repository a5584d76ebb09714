// SPDX-License-Identifier: Apache-2.0
//! From what libvirt announces to a record, with the words of the wire. A number nobody knows becomes `unknown:<n>`.

use std::collections::BTreeSet;

use cobaltcore_ha_wire::{Disk, Kind, Scalar};
use cobaltcore_libvirt::event::{Event, EventBody, EventId};
use cobaltcore_libvirt::names;
use cobaltcore_libvirt::types::Domain;

use crate::draft::{Draft, Guest};

/// The event libvirt has for a kind.
pub(crate) fn event_id(kind: Kind) -> Option<EventId> {
    Some(match kind {
        Kind::Lifecycle => EventId::LIFECYCLE,
        Kind::Reboot => EventId::REBOOT,
        Kind::Watchdog => EventId::WATCHDOG,
        Kind::IoError => EventId::IO_ERROR_REASON,
        Kind::ControlError => EventId::CONTROL_ERROR,
        Kind::AgentLifecycle => EventId::AGENT_LIFECYCLE,
        Kind::MemoryFailure => EventId::MEMORY_FAILURE,
        Kind::Agent => return None,
    })
}

/// The kind of an event of libvirt's.
pub(crate) fn kind_of(id: EventId) -> Option<Kind> {
    Kind::LIBVIRT.into_iter().find(|kind| event_id(*kind) == Some(id))
}

pub(crate) fn guest(domain: &Domain) -> Guest {
    Guest {
        uuid: domain.uuid,
        name: domain.name.clone(),
        id: domain.id,
    }
}

/// The class of the disk that failed: the one at this place or, where nobody says which it was, the only one there is.
pub(crate) fn device_class(disks: &[Disk], place: &str) -> Option<String> {
    let there = |disk: &&Disk| {
        let bare = disk.source.split_once(':').map_or("", |(_, bare)| bare);
        !place.is_empty() && (disk.source == place || disk.kind == "network" && bare == place)
    };
    if let Some(disk) = disks.iter().find(there) {
        return disk.class();
    }
    let classes: BTreeSet<String> = disks.iter().filter_map(Disk::class).collect();
    classes.first().filter(|_| classes.len() == 1).cloned()
}

/// The record of an event that came at this moment of the boot-time clock; nothing for events nobody asked for.
pub(crate) fn record(event: &Event, received_ns: u64) -> Option<Draft> {
    let new = |kind, event: &str, detail: &str| Draft::now(kind, event, detail);
    let draft = match &event.body {
        EventBody::Lifecycle { event, detail } => new(
            Kind::Lifecycle,
            &names::lifecycle_event(*event),
            &names::lifecycle_detail(*event, *detail),
        ),
        EventBody::Reboot {} => new(Kind::Reboot, "", ""),
        EventBody::Watchdog { action } => new(Kind::Watchdog, &names::watchdog_action(*action), ""),
        EventBody::IoErrorReason {
            path,
            alias,
            action,
            reason,
        } => new(Kind::IoError, &names::io_error_action(*action), reason)
            .with("src_path", path.as_str())
            .with("dev", alias.as_str())
            .with("reason", reason.as_str()),
        EventBody::ControlError {} => new(Kind::ControlError, "", ""),
        EventBody::AgentLifecycle { state, reason } => new(
            Kind::AgentLifecycle,
            &names::agent_state(*state),
            &names::agent_reason(*reason),
        ),
        EventBody::MemoryFailure {
            recipient,
            action,
            flags,
        } => new(Kind::MemoryFailure, &names::memory_failure_action(*action), "")
            .with("recipient", &*names::memory_failure_recipient(*recipient))
            .with("action_required", flags & 1 != 0)
            .with("recursive", flags & 2 != 0)
            .with("flags", Scalar::Number(i64::from(*flags))),
        _ => return None,
    };
    Some(draft.at(received_ns).about(guest(&event.domain)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_its_words() {
        let of = |body| {
            let domain = Domain::new("instance-1", uuid::Uuid::from_u128(1), 4);
            let event = Event {
                callback: Some(1),
                domain,
                body,
            };
            let draft = record(&event, 1).unwrap();
            (draft.kind, draft.event, draft.detail, draft.attrs)
        };
        let plain = |kind, event: &str, detail: &str| (kind, event.to_owned(), detail.to_owned(), [].into());
        assert_eq!(
            of(EventBody::Lifecycle { event: 5, detail: 5 }),
            plain(Kind::Lifecycle, "stopped", "failed")
        );
        assert_eq!(
            of(EventBody::Lifecycle { event: 77, detail: 5 }),
            plain(Kind::Lifecycle, "unknown:77", "unknown:5")
        );
        assert_eq!(of(EventBody::Reboot {}), plain(Kind::Reboot, "", ""));
        assert_eq!(
            of(EventBody::Watchdog { action: 1 }),
            plain(Kind::Watchdog, "pause", "")
        );
        assert_eq!(of(EventBody::ControlError {}), plain(Kind::ControlError, "", ""));
        assert_eq!(
            of(EventBody::AgentLifecycle { state: 2, reason: 2 }),
            plain(Kind::AgentLifecycle, "disconnected", "channel")
        );
        let (kind, event, _, attrs) = of(EventBody::IoErrorReason {
            path: "/disk".into(),
            alias: "virtio-disk0".into(),
            action: 1,
            reason: "enospc".into(),
        });
        assert_eq!((kind, event.as_str()), (Kind::IoError, "pause"));
        assert_eq!(attrs["src_path"], Scalar::from("/disk"));
        let (kind, event, _, attrs) = of(EventBody::MemoryFailure {
            recipient: 1,
            action: 2,
            flags: 1,
        });
        assert_eq!((kind, event.as_str()), (Kind::MemoryFailure, "fatal"));
        assert_eq!(
            (&attrs["recipient"], &attrs["action_required"]),
            (&"guest".into(), &true.into())
        );
    }

    /// However long an event waited to be read: what may be done about it depends on when it happened.
    #[test]
    fn a_record_says_when_its_event_came_and_not_when_it_was_read() {
        let event = Event {
            callback: Some(1),
            domain: Domain::new("instance-1", uuid::Uuid::from_u128(1), 4),
            body: EventBody::Lifecycle { event: 5, detail: 2 },
        };
        let now = crate::clock::boot_ns();
        let (late, prompt) = (
            record(&event, now.saturating_sub(9_000_000_000)).unwrap(),
            record(&event, now).unwrap(),
        );
        assert_eq!(late.mono_ns, now.saturating_sub(9_000_000_000));
        assert!(late.ts < prompt.ts);
        let incident = crate::reaction::Incident::of(&late).unwrap();
        assert_eq!(incident.at_ns, late.mono_ns);
    }

    #[test]
    fn a_disk_that_failed_is_known_by_its_place_or_because_there_is_but_one_class() {
        let disk = |kind: &str, source: &str| Disk {
            kind: kind.into(),
            source: source.into(),
        };
        let mixed = [
            disk("network", "rbd:vms/a_disk"),
            disk("file", "/var/swap"),
            disk("file", ""),
        ];
        assert_eq!(device_class(&mixed, "vms/a_disk").as_deref(), Some("network/rbd"));
        assert_eq!(
            device_class(&mixed, "rbd:vms/a_disk").as_deref(),
            Some("network/rbd")
        );
        assert_eq!(device_class(&mixed, "/var/swap").as_deref(), Some("file"));
        assert_eq!(device_class(&mixed, ""), None, "it may be either");
        assert_eq!(device_class(&mixed[..1], "").as_deref(), Some("network/rbd"));
        assert_eq!(
            device_class(&mixed[2..], "/elsewhere"),
            None,
            "an empty drive is no disk"
        );
    }

    /// The words of the wire for every number that libvirt sends.
    #[test]
    fn every_number_has_its_word() {
        let details: [(&str, &[&str]); 9] = [
            ("defined", &[]),
            ("undefined", &[]),
            (
                "started",
                &["booted", "migrated", "restored", "from_snapshot", "wakeup"],
            ),
            (
                "suspended",
                &[
                    "paused",
                    "migrated",
                    "ioerror",
                    "watchdog",
                    "restored",
                    "from_snapshot",
                    "api_error",
                    "postcopy",
                    "postcopy_failed",
                ],
            ),
            (
                "resumed",
                &[
                    "unpaused",
                    "migrated",
                    "from_snapshot",
                    "postcopy",
                    "postcopy_failed",
                ],
            ),
            (
                "stopped",
                &[
                    "shutdown",
                    "destroyed",
                    "crashed",
                    "migrated",
                    "saved",
                    "failed",
                    "from_snapshot",
                ],
            ),
            ("shutdown", &["finished", "guest", "host"]),
            ("pmsuspended", &[]),
            ("crashed", &["panicked", "crashloaded"]),
        ];
        let of = |body| {
            let domain = Domain::new("instance-1", uuid::Uuid::from_u128(1), 4);
            let callback = Some(1);
            let event = Event {
                callback,
                domain,
                body,
            };
            record(&event, 1).unwrap()
        };
        for (event, (word, details)) in (0..).zip(details) {
            for (detail, wanted) in (0..).zip(details) {
                let draft = of(EventBody::Lifecycle { event, detail });
                assert_eq!((draft.event.as_str(), draft.detail.as_str()), (word, *wanted));
            }
            assert_eq!(of(EventBody::Lifecycle { event, detail: 0 }).event, word);
        }
        let watchdog = [
            "none",
            "pause",
            "reset",
            "poweroff",
            "shutdown",
            "debug",
            "injectnmi",
        ];
        for (action, word) in (0..).zip(watchdog) {
            assert_eq!(of(EventBody::Watchdog { action }).event, word);
        }
        for (action, word) in (0..).zip(["none", "pause", "report", "unknown:3"]) {
            let body = EventBody::IoErrorReason {
                path: String::new(),
                alias: String::new(),
                action,
                reason: String::new(),
            };
            assert_eq!(of(body).event, word);
        }
        for (state, word) in (1..).zip(["connected", "disconnected", "unknown:3"]) {
            for (reason, wanted) in (0..).zip(["unknown", "domain_started", "channel", "unknown:3"]) {
                let draft = of(EventBody::AgentLifecycle { state, reason });
                assert_eq!((draft.event.as_str(), draft.detail.as_str()), (word, wanted));
            }
        }
        for (action, word) in (0..).zip(["ignore", "inject", "fatal", "reset", "unknown:4"]) {
            for (recipient, wanted) in (0..).zip(["hypervisor", "guest", "unknown:2"]) {
                let draft = of(EventBody::MemoryFailure {
                    recipient,
                    action,
                    flags: 2,
                });
                assert_eq!(
                    (draft.event.as_str(), &draft.attrs["recipient"]),
                    (word, &wanted.into())
                );
                assert_eq!(draft.attrs["action_required"], false.into());
                assert_eq!(draft.attrs["recursive"], true.into());
            }
        }
    }

    #[test]
    fn seven_kinds_are_heard() {
        let ids: std::collections::BTreeSet<_> = Kind::LIBVIRT.into_iter().filter_map(event_id).collect();
        assert_eq!(ids.len(), 7);
        assert!(ids.iter().all(|id| kind_of(*id).is_some()));
    }
}
