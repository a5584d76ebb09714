// SPDX-License-Identifier: Apache-2.0
//! The rows of the failure matrix, each with the outcome that it demands.

use cobaltcore_api::Maintenance;
use cobaltcore_ha_engine::{
    Assessment, BlockedReason, Decision, Degraded, Entry, FailedReason, Group, GuestEventKind, HeldReason,
    IncidentState, Notice, SkipReason, Verdict, VmPolicy, VmProgress, VmState,
};

use super::{
    Scenario, T, decisions, degraded, ensure, fast, fence_begun, fence_lost, held, held_at, is_skipped, kept,
    leader, no_incident, none_asked_for, not_before, not_degraded, nothing, once_each, planned, progress,
    recovered, row, state, succession, term_of, told, untouched, untrusted, written,
};
use crate::cloud::Migration;
use crate::faults::Fault;
use crate::journal::Moment;

/// The rows F01 to F60.
#[rustfmt::skip]
pub(super) const MATRIX: &[Scenario] = &[
    row("f01-power-loss", "proof; no power command; held; moved within 45 s", 2,
        |w| w.at(T, Fault::PowerLoss(0)), 400,
        |w| { ensure(w.power_offs.is_empty(), "an off host was switched off")?; fast(w, 0, 45)?; recovered(w, 0)?; once_each(w, 2)?;
              kept(w, 0)?; state(w, 0, IncidentState::Recovered) }),
    row("f02-kernel-panic", "switched off, verified, moved within 75 s", 2,
        |w| w.at(T, Fault::Panic(0)), 400,
        |w| { ensure(w.power_offs.len() == 1, "not switched off once")?; fast(w, 0, 75)?; recovered(w, 0)?; once_each(w, 2)?; kept(w, 0) }),
    row("f03-user-space-hangs", "hung, told, held: its storage is alive", 2,
        |w| w.at(T, Fault::Hang(0)), 900,
        |w| { nothing(w)?; no_incident(w)?; told(w, |n| matches!(n, Notice::Hung { .. }), "hung") }),
    row("f04-host-and-bmc-dead", "held until a person says it is off", 2,
        |w| { w.at(T, Fault::Bmc(0, false)); w.at(T, Fault::PowerLoss(0)); w.at(3_600_000, Fault::OnDuty); }, 4000,
        |w| { let (told, opened) = (held_at(w, HeldReason::FenceFailed)?, written(w, |e| matches!(e, Entry::Opened { .. })));
              ensure(told <= opened[0] + 60_000, &format!("told {} ms after it was opened", told - opened[0]))?;
              not_before(w, 3600)?; recovered(w, 0)?; ensure(decisions(w) == [Decision::AckFenced], "not by one signature") }),
    row("f05-agent-killed", "told; nothing", 2,
        |w| w.at(T, Fault::Agent(0, false)), 900,
        |w| { nothing(w)?; no_incident(w)?; told(w, |n| matches!(n, Notice::AgentSilent { .. }), "agent silent") }),
    row("f06-agent-rollout", "the group is not believed; nothing", 2,
        |w| for h in 0..12 { w.at(T + 2000 * h as u64, Fault::Agent(h, false)); w.at(T + 40_000 + 2000 * h as u64, Fault::Agent(h, true)); }, 500,
        |w| { nothing(w)?; no_incident(w)?; untrusted(w, Group::A) }),
    row("f07-libvirt-dead", "degraded; never moved", 2,
        |w| w.at(T, Fault::Libvirt(0, false)), 700,
        |w| { no_incident(w)?; degraded(w, Degraded::LibvirtUnreachable) }),
    row("f08-nova-compute-dead", "degraded after 15 min; nothing else", 2,
        |w| w.at(T, Fault::Compute(0, false)), 1300,
        |w| { no_incident(w)?; told(w, |n| matches!(n, Notice::ServiceGone { .. }), "gone")?; degraded(w, Degraded::NovaServiceDown) }),
    row("f09-kubelet-dead", "nothing", 2, |w| w.at(T, Fault::Kubelet(0, false)), 600, |w| { nothing(w)?; no_incident(w) }),
    row("f10-agent-and-compute-dead", "nothing: the host answers", 2,
        |w| { w.at(T, Fault::Agent(0, false)); w.at(T, Fault::Compute(0, false)); }, 600,
        |w| { nothing(w)?; no_incident(w)?; told(w, |n| matches!(n, Notice::AgentSilent { .. }), "agent silent") }),
    row("f11-management-network-cut", "isolated; held: its storage is alive", 2,
        |w| w.at(T, Fault::Mgmt(0, false)), 900,
        |w| { nothing(w)?; no_incident(w)?; told(w, |n| matches!(n, Notice::Isolated { .. }), "isolated") }),
    row("f12-storage-network-cut", "degraded; not down", 4,
        |w| for n in 0..4 { w.at(T + n as u64, Fault::Guest(0, n, GuestEventKind::IoError)); }, 400,
        |w| { no_incident(w)?; degraded(w, Degraded::IoErrorStorm) }),
    row("f13-storage-outage", "an outage of the storage; nothing anywhere", 4,
        |w| for n in 0..48 { w.at(T + n as u64, Fault::Guest(n / 4, n, GuestEventKind::IoError)); }, 400,
        |w| { nothing(w)?; no_incident(w)?; not_degraded(w)?; told(w, |n| matches!(n, Notice::StorageOutage { .. }), "storage outage") }),
    row("f14-leader-crashes-at-a-step", "its successor finishes; no request twice", 2,
        // Unless somebody said at which.
        |w| { let when = [Moment::Decided, Moment::Written, Moment::Done, Moment::Told][(w.options.seed / 24 % 4) as usize];
              let somewhere = Some((2 + w.options.seed % 24, when));
              w.crash_at_record = somewhere.filter(|_| w.options.crash.is_none()); w.at(T, Fault::Panic(0)); }, 600,
        |w| { recovered(w, 0)?; once_each(w, 2)?; kept(w, 0)?; succession(w) }),
    row("f15-host-of-the-leader", "another replica leads and recovers it", 2,
        |w| { w.at(T, Fault::CrashLeader); w.at(T, Fault::PowerLoss(0)); }, 600,
        |w| { recovered(w, 0)?; once_each(w, 2)?; ensure(term_of(w, |e| matches!(e, Entry::ClaimIntended { .. })) > Some(1), "nobody else led") }),
    row("f16-all-replicas-cut-off", "they know that it is themselves: told, nothing, nobody claimed or blamed; over when they hear again", 2,
        |w| { for r in 0..3 { w.at(T, Fault::ReplicaHosts(r, false)); w.at(600_000, Fault::ReplicaHosts(r, true)); }
              w.at(T + 60_000, Fault::CrashLeader); }, 900,
        |w| { nothing(w)?; untouched(w)?; not_degraded(w)?;
              let isolated = |wanted: bool| w.notices.iter().filter(|(_, n)| matches!(n, Notice::SelfIsolated { active } if *active == wanted))
                  .map(|(at, _)| *at).collect::<Vec<_>>();
              let (began, ended) = (isolated(true), isolated(false));
              ensure(began.first().is_some_and(|at| *at <= T + 60_000), &format!("told at {began:?}"))?;
              ensure(ended.last().is_some_and(|at| *at > 600_000 && *at <= 660_000), &format!("over at {ended:?}"))?;
              let waits = |i: &cobaltcore_ha_engine::Incident| i.state == IncidentState::Confirmed;
              ensure(!w.ledger().incidents.values().any(waits), "a host is still taken for dead") }),
    row("f17-leader-alone-cut-off", "others lead and recover", 2,
        |w| { let r = leader(w); w.at(T, Fault::ReplicaHosts(r, false)); w.at(T, Fault::ReplicaKubernetes(r, false));
              w.at(T, Fault::ReplicaPeers(r, false)); w.at(T, Fault::Panic(0)); }, 600,
        |w| { recovered(w, 0)?; once_each(w, 2)?; ensure(term_of(w, |e| matches!(e, Entry::ClaimIntended { .. })) > Some(1), "nobody else led") }),
    row("f18-kubernetes-down", "no new step; resumed later", 2,
        |w| { w.at(T, Fault::Panic(0)); w.at(T + 5000, Fault::Kubernetes(false)); w.at(400_000, Fault::Kubernetes(true)); }, 900,
        |w| { not_before(w, 400)?; recovered(w, 0) }),
    row("f19-nova-down", "stays fenced, held, retried", 2,
        |w| { w.at(T, Fault::Panic(0)); w.at(T + 5000, Fault::Nova(false)); w.at(400_000, Fault::Nova(true)); }, 900,
        |w| { held(w, HeldReason::NovaUnavailable)?; recovered(w, 0)?; kept(w, 0)?; not_before(w, 400)?;
              let alarms = w.notices.iter().filter(|(_, n)| matches!(n, Notice::Held { .. })).count();
              ensure(alarms <= 3, &format!("told {alarms} times")) }),
    row("f20-message-queue-down", "the group is not believed; nothing", 2,
        |w| { w.at(T, Fault::Rabbit(false)); w.at(700_000, Fault::Rabbit(true)); }, 900,
        |w| { nothing(w)?; no_incident(w)?; untrusted(w, Group::N) }),
    row("f21-credentials-refused", "held, then continues", 2,
        |w| { w.at(T, Fault::NovaRefusesService(true)); w.at(T, Fault::Panic(0)); w.at(300_000, Fault::NovaRefusesService(false)); }, 700,
        |w| { held(w, HeldReason::NovaUnavailable)?; recovered(w, 0) }),
    row("f22-rack-without-power", "held; a person vouches; all recovered, three at a time", 2,
        |w| { for h in [0, 3, 6, 9] { w.at(T, Fault::Bmc(h, false)); w.at(T, Fault::PowerLoss(h)); } w.at(600_000, Fault::OnDuty); }, 2400,
        |w| { not_before(w, 600)?; for h in [0, 3, 6, 9] { recovered(w, h)?; }
              let decided = decisions(w);
              ensure(decided == [Decision::AckFenced; 4], &format!("not one signature each: {decided:?}")) }),
    row("f23-half-the-zone-unreachable", "nothing", 2,
        |w| { w.at(T, Fault::Uplink(0, false)); w.at(T, Fault::Uplink(1, false)); }, 900,
        |w| { nothing(w)?; told(w, |n| matches!(n, Notice::SelfIsolated { active: true } | Notice::Held { reason: HeldReason::Storm, .. }), "held") }),
    row("f24-fenced-host-switched-on", "noticed, fenced again, continued", 20,
        |w| { w.at(T, Fault::PowerLoss(0)); w.at(T + 29_000, Fault::PowerOn(0)); }, 900,
        |w| { held(w, HeldReason::FenceLost)?; ensure(!w.power_offs.is_empty(), "not fenced again")?; recovered(w, 0)?; kept(w, 0)?;
              let (lost, fenced) = (written(w, fence_lost)[0], written(w, |e| matches!(e, Entry::Fenced { .. })));
              ensure(lost <= w.hosts[0].power_since + 10_000, &format!("noticed after {} ms", lost - w.hosts[0].power_since))?;
              none_asked_for(w, lost, fenced.into_iter().find(|at| *at > lost).unwrap_or(u64::MAX)) }),
    row("f25-bmc-says-off-but-host-lives", "contradiction; never moved", 2,
        |w| { w.at(T, Fault::BmcLies(0, true)); w.at(T, Fault::Agent(0, false)); }, 600,
        |w| { nothing(w)?; told(w, |n| matches!(n, Notice::Inconclusive { assessment: Assessment::Contradicted, .. }), "contradicted") }),
    row("f26-back-before-the-fence", "cancelled", 2,
        |w| { w.at(T - 10_000, Fault::Pause(true)); w.at(T, Fault::Mgmt(0, false)); w.at(T + 60_000, Fault::Mgmt(0, true));
              w.at(T + 120_000, Fault::Pause(false)); }, 500,
        |w| { nothing(w)?; state(w, 0, IncidentState::Cancelled)?;
              ensure(w.hosts[0].maintenance == Maintenance::Off && !w.hosts[0].disabled, "it is not as it was") }),
    row("f27-back-after-the-fence-began", "the fence is finished first, then moved", 2,
        |w| { w.hosts[0].bmc.off_delay = 6000; w.at(T, Fault::Mgmt(0, false)); w.at(T, Fault::Once(fence_begun, Box::new(Fault::Mgmt(0, true)))); }, 600,
        |w| { ensure(w.power_offs.len() == 1, "not switched off once")?; recovered(w, 0)?; once_each(w, 2)?;
              let fenced = written(w, |e| matches!(e, Entry::Fenced { .. })); not_before(w, fenced[0] / 1000)?; kept(w, 0) }),
    row("f28-reboots-by-itself", "guests start in place; nothing moved", 2,
        |w| w.at(T, Fault::SelfReboot(0)), 600,
        |w| { nothing(w)?; no_incident(w)?; ensure((0..2).all(|n| w.servers[n].runs_on.contains(&0)), "its guests did not come back") }),
    row("f29-manual-maintenance", "held", 2,
        |w| { w.at(T - 5000, Fault::Maintenance(0, Maintenance::Manual)); w.at(T, Fault::PowerLoss(0)); }, 1500,
        |w| { nothing(w)?; held(w, HeldReason::PlannedMaintenance)?;
              ensure(w.hosts[0].maintenance == Maintenance::Manual && !w.hosts[0].disabled, "it was touched") }),
    row("f30-dies-during-an-eviction", "taken over after ten minutes, and its eviction stopped", 2,
        |w| { w.at(T - 5000, Fault::Maintenance(0, Maintenance::Auto)); w.at(T, Fault::PowerLoss(0)); }, 1200,
        |w| { not_before(w, 715)?; recovered(w, 0)?; ensure(w.hosts[0].maintenance == Maintenance::Ha, "it is not claimed")?;
              ensure(!written(w, |e| matches!(e, Entry::StopEvictionIntended { .. })).is_empty(), "its eviction goes on") }),
    row("f31-dies-in-termination", "taken over, then termination again", 2,
        |w| { w.at(T - 5000, Fault::Maintenance(0, Maintenance::Termination)); w.at(T, Fault::PowerLoss(0)); w.at(400_000, Fault::Release); }, 800,
        |w| { recovered(w, 0)?; ensure(w.hosts[0].maintenance == Maintenance::Termination, "not in termination again") }),
    row("f32-announced-reboot", "fifteen minutes of patience, then moved", 2,
        |w| { w.at(T - 15_000, Fault::Announce(0)); w.at(T, Fault::PowerLoss(0)); }, 1500,
        |w| { not_before(w, 1000)?; recovered(w, 0) }),
    row("f33-planned-power-cycle", "nothing, though compute services come up long after agents, and one host is late; guests run where they were", 2,
        // The pause ends before the compute services are up: from there on it is the warm-up that keeps everybody calm.
        |w| { w.at(T - 10_000, Fault::Pause(true));
              for h in 0..12 { let on = T + 180_000 + if h == 11 { 240_000 } else { 0 }; w.at(T, Fault::PowerLoss(h)); w.at(on, Fault::PowerOn(h));
                  w.at(on + 36_000, Fault::Taint(h, true)); w.at(on + 150_000, Fault::Taint(h, false)); }
              w.at(T + 240_000, Fault::Pause(false)); }, 1500,
        |w| { nothing(w)?; untouched(w)?; not_degraded(w)?;
              ensure(!w.notices.iter().any(|(_, n)| matches!(n, Notice::ServiceGone { .. })), "a compute service that starts is taken for gone")?;
              ensure((0..24).all(|n| w.servers[n].runs_on == [n / 2].into()), "a guest is not where it was") }),
    row("f34-destination-dies", "waits for its fence, then one new request", 2,
        |w| { for h in 2..12 { w.hosts[h].disabled = true; } w.at(T, Fault::PowerLoss(0)); w.at(T + 38_000, Fault::PowerLoss(1));
              w.at(T + 39_000, Fault::Capacity(true)); for h in 2..12 { w.hosts[h].disabled = h > 4; } }, 1500,
        |w| { recovered(w, 0)?; recovered(w, 1) }),
    row("f35-no-capacity", "retried, then failed for want of a host; tried again, moved", 2,
        |w| { w.at(T, Fault::Capacity(false)); w.at(T, Fault::PowerLoss(0)); w.at(1_500_000, Fault::Capacity(true));
              w.at(1_500_000, Fault::Meddle(Decision::Retry)); }, 1800,
        |w| { let none = |e: &Entry| matches!(e, Entry::Vm { progress: VmProgress::Failed { reason: FailedReason::NoValidHost }, .. });
              ensure(written(w, none).len() == 2, "no guest failed for want of a host")?;
              let tries = w.evacuations.iter().filter(|(at, n)| *at < 1_500_000 && *n == 0).count();
              ensure(tries == 5, &format!("tried {tries} times"))?; recovered(w, 0)?; state(w, 0, IncidentState::Recovered) }),
    row("f36-deleted-meanwhile", "skipped", 2,
        // The second waits for the first, and is gone by then.
        |w| { for n in 0..2 { w.servers[n].anti_affinity = Some("g".to_owned()); }
              w.at(T, Fault::PowerLoss(0)); w.at(T, Fault::Once(planned, Box::new(Fault::Delete(1)))); }, 500,
        |w| { ensure(!w.evacuations.iter().any(|(_, n)| *n == 1), "a deleted guest was moved")?; recovered(w, 0)?;
              is_skipped(w, 1, SkipReason::NotOnHost)?; state(w, 0, IncidentState::Recovered) }),
    row("f37-stuck-powering-off", "moved, ends stopped", 2,
        |w| { w.nova_old = true; "powering-off".clone_into(&mut w.servers[0].task); w.servers[0].owner_wants_it = false; w.at(T, Fault::PowerLoss(0)); }, 700,
        |w| ensure(w.servers[0].host != 0 && w.servers[0].runs_on.is_empty(), "it is not moved and stopped")),
    row("f38-anti-affinity", "one after the other", 2,
        |w| { for n in 0..2 { w.servers[n].anti_affinity = Some("g".to_owned()); } w.at(T, Fault::PowerLoss(0)); }, 600,
        |w| { recovered(w, 0)?; let t: Vec<u64> = w.evacuations.iter().map(|(at, _)| *at).collect();
              ensure(t.len() == 2 && t[1] - t[0] > 8000, "both were asked for at once") }),
    row("f39-local-disk", "skipped, told", 2,
        |w| { w.servers[0].local_disk = true; w.at(T, Fault::PowerLoss(0)); }, 500,
        |w| { recovered(w, 0)?; is_skipped(w, 0, SkipReason::LocalDisk)?; told(w, |n| matches!(n, Notice::VmNeedsPerson { .. }), "local disk") }),
    row("f40-unsupported-device", "blocked, with what Nova said", 2,
        |w| { w.servers[0].unsupported = true; w.at(T, Fault::PowerLoss(0)); }, 500,
        |w| { recovered(w, 0)?; let blocked = VmProgress::Blocked { reason: BlockedReason::Unsupported };
              ensure(progress(w, 0) == Some(blocked), "not blocked")?; state(w, 0, IncidentState::Failed)?;
              told(w, |n| matches!(n, Notice::VmNeedsPerson { why, .. } if why.contains("vTPM")), "what Nova said") }),
    row("f41-amphora", "excluded", 2,
        |w| { w.servers[0].excluded = true; w.at(T, Fault::PowerLoss(0)); }, 500,
        |w| { recovered(w, 0)?; is_skipped(w, 0, SkipReason::Excluded) }),
    row("f42-live-migration-switched-over", "conflict; no request", 2,
        |w| { w.servers[0].runs_on = [1].into(); "migrating".clone_into(&mut w.servers[0].task); w.migrations.push(Migration::live(0, 0, 1)); w.at(T, Fault::PowerLoss(0)); }, 600,
        |w| { ensure(matches!(progress(w, 0), Some(VmProgress::Conflict { .. })), "no conflict")?;
              ensure(!w.evacuations.iter().any(|(_, n)| *n == 0) && w.servers[0].runs_on == [1].into(), "it was asked for")?;
              told(w, |n| matches!(n, Notice::VmNeedsPerson { .. }), "conflict") }),
    row("f43-live-migration-towards-it", "untouched at its source", 2,
        |w| { w.migrations.push(Migration::live(2, 1, 0)); w.at(T, Fault::PowerLoss(0)); }, 600,
        |w| { recovered(w, 0)?; ensure(w.servers[2].runs_on.contains(&1) && !w.evacuations.iter().any(|(_, n)| *n == 2), "it was touched") }),
    row("f44-post-copy-interrupted", "nowhere running: reset, moved", 2,
        |w| { w.migrations.push(Migration::live(0, 0, 1)); "migrating".clone_into(&mut w.servers[0].task); w.nova_old = true; w.at(T, Fault::PowerLoss(0)); }, 700,
        |w| recovered(w, 0)),
    row("f45-guest-dies", "restarted in place", 2,
        |w| { w.servers[0].policy = Some(VmPolicy::Restart); w.at(T, Fault::GuestDies(0)); }, 400,
        |w| { nothing(w)?; ensure(w.servers[0].runs_on.contains(&0) && w.reboots == 1, "it was not restarted once") }),
    row("f46-guest-dies-every-minute", "given up after three restarts", 2,
        |w| { w.servers[0].policy = Some(VmPolicy::Restart); for n in 0..25 { w.at(T + n * 60_000, Fault::GuestDies(0)); } }, 1800,
        |w| { nothing(w)?; ensure(w.reboots == 3, &format!("{} restarts", w.reboots))?; told(w, |n| matches!(n, Notice::GuestGaveUp { .. }), "gave up") }),
    row("f47-watchdog-storm", "degraded", 5,
        |w| for n in 0..3 { w.at(T + n as u64, Fault::Guest(0, n, GuestEventKind::Watchdog)); }, 400,
        |w| { no_incident(w)?; degraded(w, Degraded::WatchdogStorm) }),
    row("f48-memory-error", "degraded", 2,
        |w| for n in 0..2 { w.at(T + n as u64 * 1000, Fault::Guest(0, n, GuestEventKind::MemoryFailure)); }, 400,
        |w| { no_incident(w)?; degraded(w, Degraded::MemoryFailure) }),
    row("f49-telemetry-late-and-doubled", "no state change from old data", 2, |w| w.noise = 30, 900,
        |w| { nothing(w)?; no_incident(w) }),
    row("f50-clocks-jump-and-a-freeze", "no verdict from it", 2,
        |w| { for h in 0..12 { w.at(T, Fault::Clock(h, if h % 2 == 0 { 3_600_000 } else { -3_600_000 })); }
              let r = leader(w); w.at(T, Fault::ReplicaClock(r, 3_600_000)); w.at(T, Fault::Freeze(r, 360_000)); }, 900,
        |w| { nothing(w)?; no_incident(w) }),
    row("f51-telemetry-store-broken", "records wait in their spools; recovery works", 2,
        |w| { for r in 0..3 { w.at(T - 10_000, Fault::StoreFails(r, true)); w.at(T + 300_000, Fault::StoreFails(r, false)); }
              w.at(T, Fault::PowerLoss(0)); w.at(T, Fault::Chatter(1, 2000)); }, 600,
        |w| { recovered(w, 0)?; ensure((1..12).all(|h| (0..3).all(|r| w.streams[h].drained(r))), "records are left") }),
    row("f52-spool-disk-full", "records dropped and announced; heartbeats go on", 2,
        |w| { for r in 0..3 { w.at(T - 5000, Fault::StoreFails(r, true)); w.at(T + 60_000, Fault::StoreFails(r, false)); }
              w.at(T, Fault::SpoolSqueezed(0, true)); for n in 0..20 { w.at(T + n * 500, Fault::Chatter(0, 10)); } }, 400,
        |w| { nothing(w)?; no_incident(w)?; ensure(w.dropped > 0, "nothing was dropped")?;
              ensure((0..3).all(|r| w.streams[0].drained(r)), "what is left did not arrive") }),
    row("f53-invalid-configuration", "the old one stays; told by a record; nothing", 2,
        |w| { w.quiet = u16::MAX; for h in 0..12 { w.at(T + h as u64 * 1000, Fault::BadConfig(h)); } }, 400,
        |w| { nothing(w)?; no_incident(w)?;
              ensure((0..12).all(|h| w.rejections(h) == 3), "not everybody was told by every agent")?;
              ensure(!w.notices.iter().any(|(_, n)| matches!(n, Notice::Suspect { .. })), "a host was suspected") }),
    row("f54-two-believe-to-lead", "one effect each", 8,
        |w| { w.slow_sends = true; w.at(T, Fault::Panic(0)); w.at(T + 34_000, Fault::FreezeLeader(25_000)); }, 900,
        |w| { recovered(w, 0)?; once_each(w, 8) }),
    row("f55-maintenance-cleared-by-hand", "held: no new request, those under way are followed, its fence is kept", 20,
        |w| { w.at(T, Fault::PowerLoss(0)); w.at(T + 34_000, Fault::Maintenance(0, Maintenance::Off)); }, 500,
        |w| { let at = held_at(w, HeldReason::OperatorCleared)?; none_asked_for(w, at, u64::MAX)?; kept(w, 0)?;
              let moving = (0..20).filter(|n| progress(w, *n).is_some_and(|p| p.moving() || matches!(p, VmProgress::Verifying { .. }))).count();
              ensure(moving == 0, &format!("{moving} guests are not followed"))?;
              ensure((0..20).any(|n| progress(w, n) == Some(VmProgress::Pending)), "it came too late to hold anything") }),
    row("f56-wrong-fencing-device", "refused", 2,
        |w| { w.hosts[0].bmc.wired_to = Some(5); w.at(T, Fault::Panic(0)); }, 900,
        |w| { nothing(w)?; held(w, HeldReason::IdentityMismatch) }),
    row("f57-host-replaced", "the device of the old machine is refused", 2,
        |w| { w.hosts[0].bmc.wired_to = Some(11); w.at(T, Fault::PowerLoss(0)); }, 900,
        |w| { nothing(w)?; held(w, HeldReason::IdentityMismatch) }),
    row("f58-service-down-while-a-host-dies", "records wait; after a warm-up it is found dead and moved; no record is lost", 2,
        // Down for longer than a heartbeat may be late, so that nobody who comes back has ever heard the dead host.
        |w| { for r in 0..3 { w.at(T - 3000, Fault::CrashReplica(r)); w.at(T - 2000, Fault::Down(r, 240_000)); }
              w.at(T, Fault::Panic(0)); for h in 0..12 { w.at(T - 1000, Fault::Chatter(h, 300)); } }, 1200,
        |w| { recovered(w, 0)?; once_each(w, 2)?; let back = T + 237_000;
              let led = written(w, |e| matches!(e, Entry::Led)).into_iter().find(|at| *at >= back).ok_or("nobody led again")?;
              let claimed = written(w, |e| matches!(e, Entry::ClaimIntended { .. }))[0];
              ensure(claimed >= led + 60_000, &format!("claimed {} ms after somebody led", claimed.saturating_sub(led)))?;
              let n = w.ledger().incidents.values().next().map(|i| i.evidence.of(Group::A).verdict);
              ensure(n == Some(Verdict::Unknown), &format!("nobody had heard its agent, and it is called {n:?}"))?;
              ensure(w.dropped == 0 && (1..12).all(|h| (0..3).all(|r| w.streams[h].drained(r))), "records are lost or left") }),
    row("f59-server-list-incomplete", "held until it is complete", 2,
        |w| { w.list_complete = false; w.at(T, Fault::PowerLoss(0)); w.at(500_000, Fault::Complete(true)); }, 900,
        |w| { held(w, HeldReason::VmListIncomplete)?; not_before(w, 500)?; recovered(w, 0) }),
    row("f60-guest-cannot-open-its-disk", "moved, verification fails, told", 2,
        |w| { w.servers[0].cannot_boot = true; w.at(T, Fault::PowerLoss(0)); }, 700,
        |w| { ensure(w.servers[0].state == VmState::Active, "not moved")?; state(w, 0, IncidentState::Failed)?;
              let failed = VmProgress::Failed { reason: FailedReason::VerifyFailed }; ensure(progress(w, 0) == Some(failed), "it is taken for well")?;
              told(w, |n| matches!(n, Notice::VmNeedsPerson { why, .. } if why.contains("VerifyFailed")), "not verified") }),
];
