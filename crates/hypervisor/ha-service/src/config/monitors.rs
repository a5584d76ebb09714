// SPDX-License-Identifier: Apache-2.0
//! What is watched, and from which point on it matters. What keeps a recovery safe, such as a fence that is
//! lost or a guest that runs twice, is always watched and has no switch.

use cobaltcore_ha_engine as engine;
use cobaltcore_kit::config::{HumanDuration, Mistakes};
use serde::{Deserialize, Serialize};

/// A monitor as it may be told, its usual values, and how the engine is told of it.
macro_rules! monitor {
    (
        $(#[$meta:meta])*
        $name:ident as $engine:ident, usual $usual:ident {
            $($(#[$of:meta])* $key:ident: $kind:ident,)+
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
        #[serde(default, deny_unknown_fields)]
        pub struct $name {
            /// Whether it is watched.
            pub enabled: bool,
            $($(#[$of])* pub $key: monitor!(@type $kind),)+
        }

        impl Default for $name {
            fn default() -> Self {
                let usual = engine::Monitors::default().$usual;
                Self {
                    enabled: usual.enabled,
                    $($key: monitor!(@read $kind, usual.$key),)+
                }
            }
        }

        impl From<$name> for engine::$engine {
            fn from(told: $name) -> Self {
                Self {
                    enabled: told.enabled,
                    $($key: monitor!(@write $kind, told.$key),)+
                }
            }
        }

        impl $name {
            fn check(&self, key: &str, mistakes: &mut Mistakes<'_>) {
                $(monitor!(@check $kind, self.$key, key, stringify!($key), mistakes);)+
            }
        }
    };
    (@type span) => { HumanDuration };
    (@type count) => { usize };
    (@type percent) => { u32 };
    (@read span, $value:expr) => { HumanDuration($value) };
    (@read $other:ident, $value:expr) => { $value };
    (@write span, $value:expr) => { $value.0 };
    (@write $other:ident, $value:expr) => { $value };
    (@check span, $value:expr, $monitor:expr, $key:expr, $mistakes:expr) => {
        if $value.0.is_zero() {
            $mistakes.add(&format!("monitors.{}.{}", $monitor, $key), "must be longer than nothing");
        }
    };
    (@check count, $value:expr, $monitor:expr, $key:expr, $mistakes:expr) => {
        if $value == 0 {
            $mistakes.add(&format!("monitors.{}.{}", $monitor, $key), "must be at least 1");
        }
    };
    (@check percent, $value:expr, $monitor:expr, $key:expr, $mistakes:expr) => {
        if !(1..=100).contains(&$value) {
            $mistakes.add(&format!("monitors.{}.{}", $monitor, $key), "must be from 1 to 100");
        }
    };
}

/// Hosts that die. Switched off, verdicts are shown and nothing is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct HostDown {
    /// Whether anything is done about it.
    pub enabled: bool,
}

impl Default for HostDown {
    fn default() -> Self {
        Self { enabled: true }
    }
}

monitor! {
    /// Hosts that boot by themselves.
    HostRebooted as HostRebooted, usual host_rebooted {
        /// How long a compute service that is up again has to resume its guests.
        resume_after: span,
        /// After how long without a compute service a host that lost its guests counts as down.
        compute_after: span,
    }
}

monitor! {
    /// Agents that fall silent while their hosts live. Switched off, nobody is told.
    AgentSilent as AgentSilent, usual agent_silent {
        /// For how long others must see the host alive.
        after: span,
    }
}

monitor! {
    /// Guests that crash.
    InstanceCrashed as InstanceCrashed, usual instance_crashed {
        /// More crashes than this within a minute, over the fleet, and none is restarted.
        storm_per_minute: count,
    }
}

monitor! {
    /// Watchdogs that fire.
    WatchdogStorm as WatchdogStorm, usual watchdog_storm {
        /// How many of one guest are no accident.
        guest_events: count,
        /// Within how long.
        guest_window: span,
        /// Share of the guests of a host that makes them the host's trouble.
        percent: percent,
        /// The least number of guests for that.
        min_guests: count,
        /// Within how long.
        window: span,
        /// When more other hosts than this suffer as well, no host is to blame.
        shared_hosts: count,
    }
}

monitor! {
    /// Disk errors of many guests.
    IoErrorStorm as IoErrorStorm, usual io_error_storm {
        /// Share of the guests of a host that makes them the host's trouble.
        percent: percent,
        /// The least number of guests for that.
        min_guests: count,
        /// Within how long.
        window: span,
        /// Share of the other hosts with this class of device that must be well for one to be blamed.
        healthy_percent: percent,
        /// With a greater share of the hosts with this class of device it is the storage.
        outage_percent: percent,
    }
}

monitor! {
    /// Memory that fails beyond repair.
    MemoryFailure as MemoryFailure, usual memory_failure {
        /// How many events need no other witness.
        events: count,
        /// How long what was seen of it belongs together.
        window: span,
    }
}

monitor! {
    /// A libvirt that does not answer.
    LibvirtUnreachable as ServiceGone, usual libvirt_unreachable {
        /// After how long people are told.
        after: span,
        /// After how long it is a lasting trouble of the host.
        degraded_after: span,
    }
}

monitor! {
    /// A compute service that is gone.
    NovaServiceDown as ServiceGone, usual nova_service_down {
        /// After how long people are told.
        after: span,
        /// After how long it is a lasting trouble of the host.
        degraded_after: span,
    }
}

/// What is watched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Monitors {
    /// Hosts that die.
    pub host_down: HostDown,
    /// Hosts that boot by themselves.
    pub host_rebooted: HostRebooted,
    /// Agents that fall silent while their hosts live.
    pub agent_silent: AgentSilent,
    /// Guests that crash.
    pub instance_crashed: InstanceCrashed,
    /// Watchdogs that fire.
    pub watchdog_storm: WatchdogStorm,
    /// Disk errors of many guests.
    pub io_error_storm: IoErrorStorm,
    /// Memory that fails.
    pub memory_failure: MemoryFailure,
    /// A libvirt that does not answer.
    pub libvirt_unreachable: LibvirtUnreachable,
    /// A compute service that is gone.
    pub nova_service_down: NovaServiceDown,
}

impl Monitors {
    pub(super) fn check(&self, mistakes: &mut Mistakes<'_>) {
        self.host_rebooted.check("host-rebooted", mistakes);
        self.agent_silent.check("agent-silent", mistakes);
        self.instance_crashed.check("instance-crashed", mistakes);
        self.watchdog_storm.check("watchdog-storm", mistakes);
        self.io_error_storm.check("io-error-storm", mistakes);
        self.memory_failure.check("memory-failure", mistakes);
        self.libvirt_unreachable.check("libvirt-unreachable", mistakes);
        self.nova_service_down.check("nova-service-down", mistakes);
        let (libvirt, nova) = (&self.libvirt_unreachable, &self.nova_service_down);
        for (key, after, lasting) in [
            ("libvirt-unreachable", libvirt.after, libvirt.degraded_after),
            ("nova-service-down", nova.after, nova.degraded_after),
        ] {
            if lasting < after {
                mistakes.add(
                    &format!("monitors.{key}.degraded_after"),
                    format!("must not be shorter than monitors.{key}.after"),
                );
            }
        }
    }
}

impl From<Monitors> for engine::Monitors {
    fn from(told: Monitors) -> Self {
        let Monitors {
            host_down,
            host_rebooted,
            agent_silent,
            instance_crashed,
            watchdog_storm,
            io_error_storm,
            memory_failure,
            libvirt_unreachable,
            nova_service_down,
        } = told;
        Self {
            host_down: host_down.enabled,
            host_rebooted: host_rebooted.into(),
            agent_silent: agent_silent.into(),
            instance_crashed: instance_crashed.into(),
            watchdog_storm: watchdog_storm.into(),
            io_error_storm: io_error_storm.into(),
            memory_failure: memory_failure.into(),
            libvirt_unreachable: libvirt_unreachable.into(),
            nova_service_down: nova_service_down.into(),
        }
    }
}
