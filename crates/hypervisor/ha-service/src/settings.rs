// SPDX-License-Identifier: Apache-2.0
//! The configuration in force, which may change under way, and the engine's settings made from it.

use std::sync::Arc;

use cobaltcore_ha_engine::{self as engine, DwellResponse, LocalDisk, Response, VmPolicy, VmState};
use tokio::sync::watch;

use crate::config::{
    Config, DwellWord, InstancePolicy, LocalDiskWord, PolicyWord, ReleaseMode, StateAction, StateWord, Verify,
};

/// The configuration in force. Whoever reads it reads it anew each time, so that a change counts
/// from the next decision on. Cheap to clone; clones share.
#[derive(Clone, Debug)]
pub struct InForce(Arc<watch::Sender<Arc<Config>>>);

impl InForce {
    /// This one is in force.
    pub fn new(config: Config) -> Self {
        Self(Arc::new(watch::Sender::new(Arc::new(config))))
    }

    /// The one in force now.
    pub fn get(&self) -> Arc<Config> {
        Arc::clone(&self.0.borrow())
    }

    /// Tells of every change.
    pub fn changes(&self) -> watch::Receiver<Arc<Config>> {
        self.0.subscribe()
    }

    /// From now on this one is.
    pub(crate) fn replace(&self, config: Arc<Config>) {
        self.0.send_replace(config);
    }
}

fn response(word: DwellWord) -> Response {
    match word {
        DwellWord::Hold => Response::Hold,
        DwellWord::Fence => Response::Fence,
        DwellWord::Auto => Response::Auto,
    }
}

/// The engine's settings.
pub fn engine_config(config: &Config) -> engine::Config {
    let heartbeat = config.agents.heartbeat_interval.0;
    engine::Config {
        replicas: config.replicas(),
        heartbeat_alive: heartbeat.mul_f64(1.4),
        silent_after: config.agents.silent_after.0,
        min_groups: config.evidence.min_groups,
        require_active_probe: config.evidence.require_active_probe,
        confirm_rounds: config.evidence.confirm_rounds,
        round: config.evidence.round_interval.0,
        distrust_percent: config.evidence.source_distrust.percent,
        distrust_window: config.evidence.source_distrust.window.0,
        isolated: DwellResponse {
            response: response(config.evidence.isolation_response),
            dwell: config.evidence.isolation_dwell.0,
        },
        hung: DwellResponse {
            response: response(config.evidence.hung_response),
            dwell: config.evidence.hung_dwell.0,
        },
        storage_watched: storage_watched(config),
        leases_watched: config.kubernetes.enabled && config.kubernetes.node_lease,
        probe_peers: config.evidence.probe.peers,
        fence_levels: config.fencing.fence_levels(),
        required_grade: config.fencing.required_grade.into(),
        fence_timeout: config.fencing.timeout.0,
        verify_reads: config.fencing.verify_reads,
        verify_gap: config.fencing.verify_gap.0,
        fence_retry_min: config.fencing.retry_min.0,
        fence_retry_max: config.fencing.retry_max.0,
        max_hosts_in_flight: config.storm.max_hosts_in_flight,
        storm_percent: config.storm.max_fleet_percent,
        max_domain_hosts: config.storm.max_domain_hosts,
        domain_percent: config.storm.max_domain_percent,
        storm_window: config.storm.window.0,
        storm_cooldown: config.storm.cooldown.0,
        storm_memory: config.storm.memory.0,
        proven_dead_bypass: config.storm.proven_dead_bypass,
        renew_deadline: config.leader.renew_deadline.0,
        warmup: config.self_check.warmup.0,
        cold_start: config.self_check.cold_start.0,
        fresh_percent: config.self_check.fresh_percent,
        canary_percent: config.self_check.min_ok_percent,
        vm_concurrency: config.recovery.vm_concurrency,
        global_concurrency: config.recovery.global_concurrency,
        vm_timeout: config.recovery.vm_timeout.0,
        vm_attempts: config.recovery.vm_attempts,
        vm_backoff: config.recovery.backoff.0,
        default_policy: match config.recovery.default_policy {
            PolicyWord::Evacuate => VmPolicy::Evacuate,
            PolicyWord::Restart => VmPolicy::Restart,
            PolicyWord::Ignore => VmPolicy::Ignore,
        },
        local_disk: match config.recovery.local_disk {
            LocalDiskWord::Skip => LocalDisk::Skip,
            LocalDiskWord::Rebuild => LocalDisk::Rebuild,
        },
        skip_states: skip_states(config),
        verify_by_agent: config.recovery.verify == Verify::Agent,
        restart_by_default: config.instance.default_policy == InstancePolicy::OptOut,
        max_restarts: config.instance.max_restarts,
        restart_window: config.instance.window.0,
        auto_takeover: config.maintenance.auto_takeover.0,
        planned_grace: config.maintenance.planned_grace.0,
        capacity: config.capacity.check,
        monitors: config.monitors.into(),
        lock_servers: config.recovery.lock_servers,
        spares: config.recovery.spares.clone(),
        manual_takeover: config.maintenance.manual_takeover.span(),
        auto_release: config.release.auto.then_some(config.release.healthy_for.0),
        release_in_nova: config.release.mode == ReleaseMode::Nova,
        ..engine::Config::default()
    }
}

/// Guests in these states are left alone.
fn skip_states(config: &Config) -> Vec<VmState> {
    let skipped = |(state, action): (&StateWord, &StateAction)| {
        (*action == StateAction::Skip).then_some(match state {
            StateWord::Active => VmState::Active,
            StateWord::Stopped => VmState::Stopped,
            StateWord::Error => VmState::Error,
            StateWord::Paused => VmState::Paused,
            StateWord::Suspended => VmState::Suspended,
            StateWord::Rescued => VmState::Rescued,
        })
    };
    config.recovery.states.iter().filter_map(skipped).collect()
}

fn storage_watched(config: &Config) -> bool {
    let pushed = config.sources.push.iter().any(|push| push.group == "S");
    let pulled = config
        .sources
        .pull
        .iter()
        .any(|pull| pull.rules.iter().any(|rule| rule.group == "S"));
    pushed || pulled
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_about_states_monitors_and_proofs_reaches_the_engine() {
        let text = "leader: {replicas: 1}\n\
                    recovery: {verify: nova, states: {error: skip, paused: skip, active: evacuate}}\n\
                    monitors: {memory-failure: {enabled: false}, host-down: {}}\n\
                    evidence: {min_groups: 3, require_active_probe: false}\n";
        let told = engine_config(&Config::parse("t", text).unwrap());
        assert_eq!(told.skip_states, [VmState::Error, VmState::Paused]);
        assert!(!told.verify_by_agent && !told.require_active_probe);
        let monitors = &told.monitors;
        assert!(!monitors.memory_failure.enabled && monitors.host_down && monitors.host_rebooted.enabled);
        let usual = engine_config(&Config::default());
        assert!(usual.skip_states.is_empty() && usual.verify_by_agent && usual.require_active_probe);
        assert_eq!(usual.monitors, engine::Monitors::default());
    }

    #[test]
    fn who_is_asked_and_what_is_watched_reaches_the_engine() {
        let told = |text: &str| engine_config(&Config::parse("t", text).unwrap());
        let alone = "leader: {enabled: false}\n";
        let usual = told(alone);
        let recommended = engine::Config::default();
        assert!(usual.leases_watched && recommended.leases_watched);
        assert_eq!(usual.probe_peers, recommended.probe_peers);
        assert_eq!(
            told(&format!("{alone}evidence: {{probe: {{peers: 8}}}}\n")).probe_peers,
            8
        );
        for off in ["enabled: false", "node_lease: false"] {
            let text = format!("{alone}kubernetes: {{{off}}}\n");
            assert!(!told(&text).leases_watched, "{off}");
        }
    }

    #[test]
    fn two_groups_without_a_probe_are_not_enough() {
        let text = "evidence: {require_active_probe: false}\nopenstack: {interface: inside}\n";
        let wrong = Config::parse("t", text).unwrap_err().to_string();
        assert!(
            wrong.contains("evidence.require_active_probe") && wrong.contains("min_groups"),
            "{wrong}"
        );
        assert!(wrong.contains("openstack.interface"), "{wrong}");
    }
}
