// SPDX-License-Identifier: Apache-2.0
//! Words for the numbers libvirt sends. A number nobody knows yet becomes `unknown:<n>`; nothing is ever dropped.

use std::borrow::Cow;

type Name = Cow<'static, str>;

fn pick(names: &[&'static str], first: i32, value: i32) -> Name {
    value
        .checked_sub(first)
        .and_then(|index| usize::try_from(index).ok())
        .and_then(|index| names.get(index))
        .map_or_else(
            || Cow::Owned(format!("unknown:{value}")),
            |name| Cow::Borrowed(*name),
        )
}

/// The event of a lifecycle event.
pub fn lifecycle_event(event: i32) -> Name {
    const NAMES: &[&str] = &[
        "defined",
        "undefined",
        "started",
        "suspended",
        "resumed",
        "stopped",
        "shutdown",
        "pmsuspended",
        "crashed",
    ];
    pick(NAMES, 0, event)
}

/// The detail of a lifecycle event, which depends on the event.
pub fn lifecycle_detail(event: i32, detail: i32) -> Name {
    let names: &[&str] = match event {
        0 => &["added", "updated", "renamed", "from_snapshot"],
        1 => &["removed", "renamed"],
        2 => &[
            "booted",
            "migrated",
            "restored",
            "from_snapshot",
            "wakeup",
            "recreated",
        ],
        3 => &[
            "paused",
            "migrated",
            "ioerror",
            "watchdog",
            "restored",
            "from_snapshot",
            "api_error",
            "postcopy",
            "postcopy_failed",
            "guest_shutdown",
        ],
        4 => &[
            "unpaused",
            "migrated",
            "from_snapshot",
            "postcopy",
            "postcopy_failed",
        ],
        5 => &[
            "shutdown",
            "destroyed",
            "crashed",
            "migrated",
            "saved",
            "failed",
            "from_snapshot",
            "recreated",
        ],
        6 => &["finished", "guest", "host"],
        7 => &["memory", "disk"],
        8 => &["panicked", "crashloaded"],
        _ => &[],
    };
    pick(names, 0, detail)
}

/// The state of a domain.
pub fn domain_state(state: i32) -> Name {
    const NAMES: &[&str] = &[
        "nostate",
        "running",
        "blocked",
        "paused",
        "shutdown",
        "shutoff",
        "crashed",
        "pmsuspended",
    ];
    pick(NAMES, 0, state)
}

/// Why a domain is in its state.
pub fn domain_state_reason(state: i32, reason: i32) -> Name {
    let names: &[&str] = match state {
        1 => &[
            "unknown",
            "booted",
            "migrated",
            "restored",
            "from_snapshot",
            "unpaused",
            "migration_canceled",
            "save_canceled",
            "wakeup",
            "crashed",
            "postcopy",
            "postcopy_failed",
        ],
        3 => &[
            "unknown",
            "user",
            "migration",
            "save",
            "dump",
            "ioerror",
            "watchdog",
            "from_snapshot",
            "shutting_down",
            "snapshot",
            "crashed",
            "starting_up",
            "postcopy",
            "postcopy_failed",
            "api_error",
        ],
        4 => &["unknown", "user"],
        5 => &[
            "unknown",
            "shutdown",
            "destroyed",
            "crashed",
            "migrated",
            "saved",
            "failed",
            "from_snapshot",
            "daemon",
        ],
        6 => &["unknown", "panicked"],
        _ => &["unknown"],
    };
    pick(names, 0, reason)
}

/// What was done when a watchdog fired.
pub fn watchdog_action(action: i32) -> Name {
    pick(
        &[
            "none",
            "pause",
            "reset",
            "poweroff",
            "shutdown",
            "debug",
            "injectnmi",
        ],
        0,
        action,
    )
}

/// What was done about a failed disk.
pub fn io_error_action(action: i32) -> Name {
    pick(&["none", "pause", "report"], 0, action)
}

/// State of the guest agent.
pub fn agent_state(state: i32) -> Name {
    pick(&["connected", "disconnected"], 1, state)
}

/// Why the guest agent is in its state.
pub fn agent_reason(reason: i32) -> Name {
    pick(&["unknown", "domain_started", "channel"], 0, reason)
}

/// Whose memory failed.
pub fn memory_failure_recipient(recipient: i32) -> Name {
    pick(&["hypervisor", "guest"], 0, recipient)
}

/// What was done about failed memory.
pub fn memory_failure_action(action: i32) -> Name {
    pick(&["ignore", "inject", "fatal", "reset"], 0, action)
}

/// Type of a job.
pub fn job_type(kind: i32) -> Name {
    pick(
        &["none", "bounded", "unbounded", "completed", "failed", "cancelled"],
        0,
        kind,
    )
}

/// Operation of a job.
pub fn job_operation(operation: i32) -> Name {
    const NAMES: &[&str] = &[
        "unknown",
        "start",
        "save",
        "restore",
        "migration_in",
        "migration_out",
        "snapshot",
        "snapshot_revert",
        "dump",
        "backup",
        "snapshot_delete",
    ];
    pick(NAMES, 0, operation)
}

/// The text form of a version number.
pub fn version(number: u64) -> String {
    format!(
        "{}.{}.{}",
        number / 1_000_000,
        number / 1_000 % 1_000,
        number % 1_000
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_the_words_of_the_event_records() {
        assert_eq!(lifecycle_event(7), "pmsuspended");
        assert_eq!(lifecycle_detail(5, 5), "failed");
        assert_eq!(lifecycle_detail(3, 2), "ioerror");
        assert_eq!(lifecycle_detail(6, 1), "guest");
        assert_eq!(watchdog_action(6), "injectnmi");
        assert_eq!(agent_state(2), "disconnected");
        assert_eq!(job_operation(5), "migration_out");
        assert_eq!(domain_state(5), "shutoff");
        assert_eq!(domain_state_reason(1, 1), "booted");
    }

    #[test]
    fn unknown_numbers_are_passed_through() {
        for value in [-1, 99, i32::MIN, i32::MAX] {
            assert_eq!(lifecycle_event(value), format!("unknown:{value}"));
            assert_eq!(agent_state(value), format!("unknown:{value}"));
            assert_eq!(lifecycle_detail(99, value), format!("unknown:{value}"));
        }
        assert_eq!(agent_state(0), "unknown:0");
    }

    #[test]
    fn versions_read_like_people_write_them() {
        for (number, text) in [
            (9_000_000, "9.0.0"),
            (7_002_022, "7.2.22"),
            (50_000_000, "50.0.0"),
            (0, "0.0.0"),
        ] {
            assert_eq!(version(number), text);
        }
    }
}
