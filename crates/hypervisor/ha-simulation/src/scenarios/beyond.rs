// SPDX-License-Identifier: Apache-2.0
//! Rows that the failure matrix has no number for: what people, watchdogs, spares, leaders, one-way streets, journals,
//! racks, groups, lists and boots bring about.

use cobaltcore_api::Maintenance;
use cobaltcore_ha_engine::{
    Assessment, Decision, Entry, GuestEventKind, HeldReason, IncidentKind, IncidentState, Notice, VmPolicy,
    VmProgress, VmState,
};

use super::{
    Scenario, T, asked_at, asked_for, back_at, decisions, ensure, fence_begun, fence_lost, held, held_at,
    held_hosts, in_two_groups, kept, leader, no_incident, none_asked_for, not_before, nothing, once_each,
    planned, progress, recovered, row, runs_on, state, term_of, told, written,
};
use crate::cloud::Migration;
use crate::faults::Fault;

/// The rows p1 and on.
#[rustfmt::skip]
pub(super) const BEYOND: &[Scenario] = &[
    row("p1-person-asks-for-a-hung-host", "switched off first, then moved", 2,
        |w| { w.at(T, Fault::Hang(0)); w.at(T + 90_000, Fault::Request(0)); }, 500,
        |w| { ensure(w.power_offs.len() == 1, "not switched off once")?; not_before(w, T / 1000 + 90)?; recovered(w, 0) }),
    row("p2-person-asks-for-a-host-that-works", "refused; nothing", 2,
        |w| w.at(T, Fault::Request(0)), 300,
        |w| { nothing(w)?; told(w, |n| matches!(n, Notice::RequestRefused { .. }), "refused") }),
    row("p3-no-room-and-told-to-hold", "held until there is room", 2,
        |w| { w.at(T - 10_000, Fault::Capacity(false)); w.at(T, Fault::PowerLoss(0)); w.at(500_000, Fault::Capacity(true)); }, 900,
        |w| { held(w, HeldReason::NoCapacity)?; not_before(w, 500)?; recovered(w, 0) }),
    row("p4-armed-watchdogs-and-a-cut", "nothing: silence proves no reset to whoever is cut off", 2,
        |w| { w.armed = true; for r in 0..3 { w.at(T, Fault::ReplicaHosts(r, false)); } }, 900,
        |w| { nothing(w)?; told(w, |n| matches!(n, Notice::SelfIsolated { active: true }), "self-isolated") }),
    row("p5-spare-host", "no room but on a spare: one is enabled first, the other is left alone", 2,
        |w| { for h in 1..12 { w.hosts[h].disabled = true; } w.at(T, Fault::PowerLoss(0)); }, 500,
        |w| { recovered(w, 0)?; ensure(w.evacuations.len() == 2, "a guest was asked for in vain")?;
              ensure(!w.hosts[10].disabled && w.hosts[11].disabled, "not one spare was enabled")?;
              ensure(w.servers[0].host == 10 && w.servers[1].host == 10, "it is not where the spare is") }),
    row("p6-one-guest-twice", "both hosts list it, Nova names one: the other copy is paused", 2,
        |w| { w.servers[2].runs_on = [1].into(); w.at(T, Fault::Doubled(2, 5)); }, 400,
        |w| { nothing(w)?; told(w, |n| matches!(n, Notice::GuestDoubled { .. }), "doubled")?;
              told(w, |n| matches!(n, Notice::Zombie { .. }), "zombie")?;
              ensure(w.servers[2].runs_on == [1].into(), "the wrong copy was paused") }),
    row("p7-watchdog-of-one-guest", "told once; it is not restarted while it goes on", 5,
        |w| { w.servers[0].policy = Some(VmPolicy::Restart);
              for n in 0..7 { w.at(T + n * 20_000, Fault::Guest(0, 0, GuestEventKind::Watchdog)); }
              w.at(T + 150_000, Fault::GuestDies(0)); }, 500,
        |w| { nothing(w)?; let n = w.notices.iter().filter(|(_, n)| matches!(n, Notice::GuestWatchdogs { .. })).count();
              ensure(n == 1 && w.reboots == 0, &format!("told {n} times, {} restarts", w.reboots)) }),
    row("p8-memory-fails-once", "told; not degraded", 2,
        |w| w.at(T, Fault::Guest(0, 0, GuestEventKind::MemoryFailure)), 300,
        |w| { nothing(w)?; told(w, |n| matches!(n, Notice::MemoryFailed { .. }), "memory")?;
              ensure(!w.notices.iter().any(|(_, n)| matches!(n, Notice::HostDegraded { .. })), "degraded by one event") }),
    row("p9-leader-on-the-dead-host", "it resigns; another one acts", 2,
        |w| { runs_on(w, 0); w.at(T, Fault::Panic(0)); }, 600,
        |w| { recovered(w, 0)?;
              let opened = term_of(w, |e| matches!(e, Entry::Opened { .. }));
              let claimed = term_of(w, |e| matches!(e, Entry::ClaimIntended { .. }));
              ensure(opened < claimed, "whoever stands on the failed host acted") }),
    row("p10-ha-switched-off", "held; nothing", 2,
        |w| { w.at(T - 10_000, Fault::Cover(0, false)); w.at(T, Fault::PowerLoss(0)); }, 600,
        |w| { nothing(w)?; held(w, HeldReason::HaDisabled) }),
    row("p11-rebooted-without-compute", "waited for ten minutes, then switched off and moved", 2,
        // What keeps its compute service from starting is not ours here.
        |w| { w.hosts[0].tainted = true; w.at(T, Fault::SelfReboot(0)); }, 1200,
        |w| { not_before(w, T / 1000 + 600)?; ensure(w.power_offs.len() == 1, "not switched off once")?;
              ensure(held_hosts(w, HeldReason::IdentityMismatch).is_empty(), "its own last word was held against it")?;
              recovered(w, 0) }),
    row("p12-rebooted-without-compute-or-message-queue", "nothing: nobody's compute service reports", 2,
        |w| { w.hosts[0].tainted = true; w.at(T, Fault::SelfReboot(0)); w.at(T + 60_000, Fault::Rabbit(false)); }, 1800,
        |w| { nothing(w)?; no_incident(w) }),
    row("p13-compute-comes-up-late", "guests start in place; nothing moved", 2,
        |w| { w.hosts[0].tainted = true; w.at(T, Fault::SelfReboot(0)); w.at(T + 500_000, Fault::Compute(0, true)); }, 1200,
        |w| { nothing(w)?; no_incident(w)?; ensure(w.servers[0].runs_on.contains(&0), "its guest did not come back") }),
    row("p14-cold-start", "held while most of the fleet has just been switched on; then moved", 2,
        |w| { w.at(T - 10_000, Fault::Pause(true));
              for h in 0..12 { w.at(T, Fault::PowerLoss(h)); }
              for h in 1..12 { w.at(T + 60_000, Fault::PowerOn(h)); }
              w.at(T + 120_000, Fault::Pause(false)); }, 2400,
        |w| { held(w, HeldReason::WarmUp)?; not_before(w, T / 1000 + 60 + 600)?; recovered(w, 0) }),
    row("p15-zone-announced-to-rest", "hosts that announced their end open nothing", 2,
        |w| { w.at(T - 30_000, Fault::Pause(true));
              for h in 0..12 { w.at(T - 15_000, Fault::Announce(h)); w.at(T, Fault::PowerLoss(h)); w.at(T + 180_000, Fault::PowerOn(h)); }
              w.at(T + 400_000, Fault::Pause(false)); }, 900,
        |w| { nothing(w)?; no_incident(w) }),
    row("p16-somebody-else-says-ha", "asked for by others: held until approved", 2,
        |w| { w.at(T - 5000, Fault::Maintenance(0, Maintenance::Ha)); w.at(T, Fault::PowerLoss(0)); w.at(900_000, Fault::OnDuty); }, 1500,
        |w| { held(w, HeldReason::AwaitingApproval)?; not_before(w, 900)?;
              let ledger = w.ledger(); let kinds: Vec<_> = ledger.incidents.values().map(|i| i.kind).collect();
              ensure(kinds == [IncidentKind::OperatorRequested], &format!("opened as {kinds:?}"))?; recovered(w, 0) }),
    row("p17-nobody-keeps-it-off", "the fence is lost; fenced and held again, then moved", 6,
        // One guest after the other, so that there is time for it.
        |w| { for n in 0..6 { w.servers[n].anti_affinity = Some("g".to_owned()); }
              w.at(T, Fault::PowerLoss(0)); w.at(T + 45_000, Fault::Unpark(0)); }, 900,
        |w| { ensure(w.journal.iter().any(|record| matches!(record.entry, Entry::FenceLost { .. })), "nobody noticed")?;
              held(w, HeldReason::FenceLost)?; ensure(w.hosts[0].unparked.is_none(), "it is not held again")?; recovered(w, 0) }),
    row("p18-somebody-else-says-ha-and-it-comes-back", "called off; their maintenance is theirs", 2,
        |w| { w.at(T - 5000, Fault::Maintenance(0, Maintenance::Ha)); w.at(T, Fault::Mgmt(0, false)); w.at(400_000, Fault::Mgmt(0, true)); }, 600,
        |w| { nothing(w)?; held(w, HeldReason::AwaitingApproval)?; state(w, 0, IncidentState::Cancelled)?;
              ensure(w.hosts[0].maintenance == Maintenance::Ha, "its maintenance was taken away") }),
    row("p19-somebody-else-says-ha-and-it-is-repaired", "moved once approved, released, and left at `ha`", 2,
        |w| { w.at(T - 5000, Fault::Maintenance(0, Maintenance::Ha)); w.at(T, Fault::PowerLoss(0)); w.at(300_000, Fault::OnDuty);
              w.at(600_000, Fault::PowerOn(0)); }, 1500,
        |w| { recovered(w, 0)?; state(w, 0, IncidentState::Released)?;
              ensure(w.hosts[0].maintenance == Maintenance::Ha, "its maintenance was taken away")?;
              ensure(w.hosts[0].disabled, "it was enabled behind their back") }),
    row("p20-device-says-off-of-a-living-host", "told once; counted; nothing", 2,
        |w| { w.at(T, Fault::BmcLies(0, true)); w.at(T + 1000, Fault::Agent(0, false)); w.at(T + 30_000, Fault::Agent(0, true)); }, 4000,
        |w| { nothing(w)?; no_incident(w)?;
              let count = |wanted: fn(&Notice) -> bool| w.notices.iter().filter(|(_, n)| wanted(n)).count();
              let (suspect, contradicted) = (count(|n| matches!(n, Notice::Suspect { .. })),
                  count(|n| matches!(n, Notice::Inconclusive { assessment: Assessment::Contradicted, .. })));
              ensure((suspect, contradicted) == (1, 1), &format!("suspected {suspect} times, told {contradicted} times")) }),
    row("p21-outage-of-all-stores", "a backlog goes at its rate, and completely", 2,
        |w| { for r in 0..3 { w.at(T, Fault::StoreFails(r, true)); w.at(T + 120_000, Fault::StoreFails(r, false)); }
              for h in 0..12 { w.at(T + 1000, Fault::Chatter(h, 900)); } }, 400,
        |w| { nothing(w)?; no_incident(w)?; ensure((0..12).all(|h| (0..3).all(|r| w.streams[h].drained(r))), "records are left") }),
    row("p22-cover-changes-while-kubernetes-is-away", "told when it is back", 2,
        |w| { w.at(T, Fault::Cover(3, false)); w.at(T + 60_000, Fault::Kubernetes(false)); w.at(T + 120_000, Fault::Kubernetes(true));
              w.at(T + 59_900, Fault::Cover(3, true)); }, 400,
        |w| { nothing(w)?; ensure(w.uncovered == 0, "a condition is wrong") }),
    row("p23-agent-dies-then-the-power", "every number stands for one record", 2,
        // It dies before its flush ends; what it wrote is found, sent, and the power goes.
        |w| { w.quiet = u16::MAX; w.at(T, Fault::SpoolSlow(0, true)); w.at(T + 100, Fault::Chatter(0, 40)); w.at(T + 400, Fault::Agent(0, false));
              w.at(T + 2000, Fault::Agent(0, true)); w.at(T + 6000, Fault::SelfReboot(0)); w.at(T + 120_000, Fault::Chatter(0, 80)); }, 400,
        |w| { nothing(w)?; ensure((0..3).all(|r| w.streams[0].drained(r)), "records are left") }),
    row("p24-credentials-refused-while-moving", "held; no attempt is lost; then continues", 2,
        |w| { w.at(T, Fault::NovaRefusesMoves(true)); w.at(T, Fault::Panic(0)); w.at(2_000_000, Fault::NovaRefusesMoves(false)); }, 2400,
        |w| { held(w, HeldReason::NovaUnavailable)?; not_before(w, 2000)?; recovered(w, 0) }),
    row("p25-nova-away-while-moving", "held; followed when it is back", 2,
        |w| { w.at(T, Fault::Panic(0)); w.at(T + 26_000, Fault::Nova(false)); w.at(900_000, Fault::Nova(true)); }, 1500,
        |w| { held(w, HeldReason::NovaUnavailable)?; recovered(w, 0) }),
    row("p26-room-runs-out-then-the-power", "every number stands for one record", 2,
        // The newest records are the cheapest: they are sent, given up for want of room, the power goes, and nobody is there to say how far
        // they were.
        |w| { w.quiet = u16::MAX; for h in 0..3 { let t = T + h as u64 * 150_000; for n in 0..80 { w.at(t + n, Fault::BadConfig(h)); }
              w.at(t + 1000, Fault::Chatter(h, 40)); w.at(t + 8000, Fault::SpoolSlow(h, true)); w.at(t + 8000, Fault::SpoolSqueezed(h, true));
              w.at(t + 8100, Fault::Chatter(h, 1)); w.at(t + 8300, Fault::SelfReboot(h)); w.at(t + 100_000, Fault::Chatter(h, 5));
              for r in 0..3 { w.at(t + 8200, Fault::StoreFails(r, true)); w.at(t + 110_000, Fault::StoreFails(r, false)); } } }, 700,
        |w| { nothing(w)?; ensure(w.dropped > 0, "nothing was given up")?; ensure((0..3).all(|r| w.streams[0].drained(r)), "records are left") }),
    row("p27-storm-approved-and-somebody-works-on-one", "the others are moved; that one waits for its own approval", 2,
        |w| { w.at(T - 5000, Fault::Maintenance(0, Maintenance::Manual)); for h in 0..3 { w.at(T, Fault::Panic(h)); }
              w.at(400_000, Fault::Approve(HeldReason::Storm)); }, 1500,
        |w| { recovered(w, 1)?; recovered(w, 2)?; ensure(held_hosts(w, HeldReason::PlannedMaintenance).contains("n00"), "not held")?;
              ensure(w.hosts[0].maintenance == Maintenance::Manual && w.power_offs.len() == 2, "somebody's work was overridden") }),
    row("p28-aborted-before-its-power-is-touched", "its maintenance is given back; nothing else", 2,
        |w| { w.hosts[0].bmc.wired_to = Some(5); w.at(T, Fault::Mgmt(0, false)); w.at(T + 200_000, Fault::Abort(0));
              w.at(T + 202_000, Fault::Mgmt(0, true)); }, 600,
        |w| { nothing(w)?; held(w, HeldReason::IdentityMismatch)?; let first = w.ledger().incidents.values().next().map(|i| i.state);
              ensure(first == Some(IncidentState::Closed), &format!("it is {first:?}"))?;
              ensure(w.hosts[0].maintenance == Maintenance::Off && !w.hosts[0].disabled, "it is not as it was") }),
    row("p29-companions-on-two-dead-hosts", "one after the other, though they are of two incidents", 1,
        |w| { for n in 0..2 { w.servers[n].anti_affinity = Some("g".to_owned()); w.at(T, Fault::PowerLoss(n)); } }, 600,
        |w| { recovered(w, 0)?; recovered(w, 1)?; let t: Vec<u64> = w.evacuations.iter().map(|(at, _)| *at).collect();
              ensure(t.len() == 2 && t[1] - t[0] > 8000, "both were asked for at once") }),
    row("p30-leader-deaf", "it hears nobody and the others do: it resigns, and they recover", 2,
        |w| { let r = leader(w); w.at(T - 1000, Fault::ReplicaHosts(r, false)); w.at(T, Fault::Panic(0)); }, 600,
        |w| { ensure(w.power_offs.len() == 1, "not switched off once")?; recovered(w, 0)?; once_each(w, 2)?;
              ensure(term_of(w, |e| matches!(e, Entry::ClaimIntended { .. })) > Some(1), "whoever hears nobody acted") }),
    row("p31-second-level", "its BMC does not answer; its outlet does it, and holds it", 2,
        |w| { w.at(T, Fault::Bmc(0, false)); w.at(T, Fault::Panic(0)); }, 600,
        |w| { recovered(w, 0)?; kept(w, 0)?; let levels: Vec<usize> = w.journal.iter().filter_map(|record| match record.entry {
                  Entry::Fenced { level, .. } => Some(level), _ => None }).collect();
              ensure(levels == [1], &format!("fenced by {levels:?}")) }),
    row("p32-hung-and-its-storage-silent", "three minutes of patience, then switched off and moved", 2,
        |w| { w.at(T, Fault::Hang(0)); w.at(T, Fault::StorageSilent(0)); }, 700,
        |w| { not_before(w, T / 1000 + 180)?; ensure(w.power_offs.len() == 1, "not switched off once")?; recovered(w, 0) }),
    row("p33-claimed-and-back-before-the-fence", "called off; its maintenance is given back, and it is enabled again", 2,
        // Its device is not its own, so it waits for so long that it is disabled.
        |w| { w.hosts[0].bmc.wired_to = Some(5); w.at(T, Fault::Mgmt(0, false)); w.at(T + 240_000, Fault::Mgmt(0, true)); }, 600,
        |w| { nothing(w)?; held(w, HeldReason::IdentityMismatch)?; state(w, 0, IncidentState::Cancelled)?;
              ensure(!written(w, |e| matches!(e, Entry::ConditionSet { .. })).is_empty(), "it was not disabled meanwhile")?;
              ensure(w.hosts[0].maintenance == Maintenance::Off && !w.hosts[0].disabled, "it is not as it was") }),
    row("p34-guest-dies-and-nova-notices", "started in place", 2,
        |w| { w.servers[0].policy = Some(VmPolicy::Restart); w.at(T, Fault::GuestDies(0)); w.at(T + 15_000, Fault::NovaNotices(0)); }, 500,
        |w| { nothing(w)?; no_incident(w)?; ensure(w.servers[0].runs_on.contains(&0) && w.reboots == 1, "it was not started once")?;
              ensure(w.servers[0].state == VmState::Active, "Nova has it stopped") }),
    row("p35-guest-elsewhere-dies-there", "a conflict that ends by itself, then moved", 2,
        |w| { w.servers[0].runs_on = [1].into(); "migrating".clone_into(&mut w.servers[0].task); w.nova_old = true;
              w.migrations.push(Migration::live(0, 0, 1)); w.at(T, Fault::PowerLoss(0)); w.at(T + 300_000, Fault::GuestEnds(0)); }, 900,
        |w| { told(w, |n| matches!(n, Notice::VmNeedsPerson { .. }), "conflict")?; recovered(w, 0)?; state(w, 0, IncidentState::Recovered) }),
    row("p36-host-that-hears-nothing", "its agent is heard: nothing, though no probe is answered", 2,
        |w| { w.at(T, Fault::HostDeaf(0, true)); w.at(700_000, Fault::HostDeaf(0, false)); }, 900,
        |w| { nothing(w)?; no_incident(w) }),
    row("p37-host-that-nobody-hears", "it works, and nobody can know: switched off first, then moved", 2,
        |w| w.at(T, Fault::HostMute(0, true)), 500,
        |w| { ensure(w.power_offs.len() == 1, "not switched off once")?; recovered(w, 0)?; once_each(w, 2)?; kept(w, 0) }),
    row("p38-destination-that-nobody-hears", "its guests run there, untold: it is switched off before they are asked for again", 2,
        // The only host with room.
        |w| { for h in 2..12 { w.hosts[h].disabled = true; } w.at(T, Fault::PowerLoss(0)); w.at(T, Fault::Once(asked_for, Box::new(Fault::HostMute(1, true))));
              w.at(T + 300_000, Fault::Enable); }, 1500,
        |w| { recovered(w, 0)?; recovered(w, 1)?; ensure(w.struck.contains_key("a guest runs, and Nova is not told"), "it was told")?;
              let off = w.power_offs.iter().find(|(_, h)| *h == 1).map(|(at, _)| *at).ok_or("it was not switched off")?;
              let again = w.evacuations.iter().filter(|(_, n)| *n < 2).map(|(at, _)| *at).max();
              ensure(again > Some(off), "asked for again while it ran") }),
    row("p39-nova-obeys-in-silence", "each guest is asked for once", 4,
        |w| { w.at(T, Fault::Panic(0)); for r in 0..3 { w.at(T, Fault::Once(fence_begun, Box::new(Fault::NovaUnheard(r, true))));
              w.at(T + 240_000, Fault::NovaUnheard(r, false)); } }, 900,
        |w| { held(w, HeldReason::NovaUnavailable)?; recovered(w, 0)?; once_each(w, 4) }),
    row("p40-nova-falls-silent-while-moving", "what was asked for is found in its records; nobody is asked for twice", 4,
        |w| { w.at(T, Fault::Panic(0)); for r in 0..3 { w.at(T, Fault::Once(asked_for, Box::new(Fault::NovaUnheard(r, true))));
              w.at(T + 240_000, Fault::NovaUnheard(r, false)); } }, 900,
        |w| { recovered(w, 0)?; once_each(w, 4) }),
    row("p41-device-obeys-in-silence", "off, and nobody hears so: no guest moves before it was read twice", 2,
        |w| { w.at(T, Fault::BmcUnheard(0, true)); w.at(T, Fault::Panic(0)); w.at(T + 600_000, Fault::BmcUnheard(0, false)); }, 1200,
        |w| { ensure(w.struck.contains_key("a device does it, and nobody hears of it"), "it was heard")?;
              let off = w.power_offs[0].0; let fenced = written(w, |e| matches!(e, Entry::Fenced { .. }))[0];
              ensure(fenced >= off + 2000, "taken for off at its word")?; not_before(w, fenced / 1000)?; recovered(w, 0)?; once_each(w, 2) }),
    row("p42-kubernetes-obeys-in-silence", "its leader acts no more; another one finds what it did, and goes on", 2,
        |w| { let r = leader(w); w.at(T, Fault::Panic(0)); w.at(T, Fault::Once(|e| matches!(e, Entry::Opened { .. }), Box::new(Fault::KubernetesUnheard(r, true)))); }, 600,
        |w| { recovered(w, 0)?; once_each(w, 2)?; kept(w, 0)?; ensure(w.power_offs.len() == 1, "not switched off once")?;
              ensure(w.terms.len() > 1, "nobody else led") }),
    row("p43-record-written-and-not-known", "its term ends; the next finds the record, looks, and does it once", 2,
        |w| { w.at(T, Fault::Panic(0)); for r in 0..3 { w.at(T, Fault::Once(asked_for, Box::new(Fault::KubernetesUnheard(r, true))));
              w.at(T + 120_000, Fault::KubernetesUnheard(r, false)); } }, 600,
        |w| { recovered(w, 0)?; once_each(w, 2)?; ensure(w.terms.len() > 1, "its term went on") }),
    row("p44-journal-disk-full", "no step without its record; gone on with when there is room", 2,
        |w| { w.at(T, Fault::Panic(0)); w.at(T, Fault::Once(|e| matches!(e, Entry::Opened { .. }), Box::new(Fault::JournalFull(true))));
              w.at(T + 200_000, Fault::JournalFull(false)); }, 700,
        |w| { not_before(w, (T + 200_000) / 1000)?; ensure(w.power_offs.iter().all(|(at, _)| *at > T + 200_000), "switched off without a record")?;
              recovered(w, 0)?; once_each(w, 2) }),
    row("p45-journal-cut", "nobody decides by half a journal; gone on with when it is restored", 2,
        |w| { w.at(T, Fault::Panic(0)); w.at(T, Fault::Once(|e| matches!(e, Entry::Opened { .. }), Box::new(Fault::JournalCut(true))));
              w.at(T + 200_000, Fault::JournalCut(false)); }, 700,
        |w| { not_before(w, (T + 200_000) / 1000)?; recovered(w, 0)?; once_each(w, 2)?;
              ensure(w.struck.contains_key("a journal cannot be read"), "somebody read it") }),
    row("p46-guests-arrive-stopped", "each is started where it arrived, once; the one that was stopped is not", 3,
        |w| { w.arrive_stopped = true; w.servers[2] = w.servers[2].clone().stopped(); w.at(T, Fault::PowerLoss(0)); }, 600,
        |w| { recovered(w, 0)?; once_each(w, 3)?; ensure(w.reboots == 2, &format!("{} starts", w.reboots))?;
              ensure(w.servers[2].runs_on.is_empty(), "its owner had stopped it")?; state(w, 0, IncidentState::Recovered) }),
    row("p47-old-host-switched-on-before-the-start", "nothing is started before it is off again", 6,
        // One guest after the other, so that there is always one that has arrived and does not run.
        |w| { w.arrive_stopped = true; for n in 0..6 { w.servers[n].anti_affinity = Some("g".to_owned()); }
              w.at(T, Fault::PowerLoss(0)); w.at(T, Fault::Once(asked_for, Box::new(Fault::Story(vec![(12_000, Fault::PowerOn(0))])))); }, 1200,
        |w| { held(w, HeldReason::FenceLost)?; ensure(!w.power_offs.is_empty(), "not fenced again")?; recovered(w, 0)?; kept(w, 0)?;
              ensure(w.reboots == 6, &format!("{} starts", w.reboots)) }),
    row("p48-term-ends-while-requests-wait", "what waits does not leave after the next term began; each guest is asked for once", 20,
        // The journal is somebody else's for a moment, so the term is over long before its lease.
        |w| { w.slow_sends = true; w.at(T, Fault::Panic(0)); w.at(T, Fault::Once(asked_for, Box::new(Fault::Story(vec![
              (100, Fault::JournalCut(true)), (3_000, Fault::JournalCut(false))])))); }, 1200,
        |w| { recovered(w, 0)?; once_each(w, 20)?; ensure(w.terms.len() > 1, "its term went on") }),
    row("p49-next-of-a-rack", "held while the one before it is not well, and until it has been calm for a while", 2,
        |w| { for h in [0, 3] { w.hosts[h].disabled = true; w.at(T, Fault::Panic(h)); } w.at(900_000, Fault::Release); }, 3000,
        |w| { ensure(held_hosts(w, HeldReason::DomainLimit).len() == 1, "not one of them is held")?; recovered(w, 0)?; recovered(w, 3)?;
              let well = *written(w, |e| matches!(e, Entry::Moved { state: IncidentState::Released, .. })).first().ok_or("not given back")?;
              let next = w.power_offs.get(1).map(|(at, _)| *at).ok_or("only one was switched off")?;
              ensure(next > well + 290_000, &format!("switched off {} s after the one before it was well", next.saturating_sub(well) / 1000)) }),
    row("p50-term-that-wrote-nothing", "the next one has a number of its own, and acts", 2,
        // Its first record is refused until somebody else is said to have written.
        |w| { let r = leader(w); w.at(T, Fault::JournalFull(true)); w.at(T, Fault::CrashReplica(r)); w.at(T + 50_000, Fault::JournalCut(true));
              w.at(T + 55_000, Fault::JournalFull(false)); w.at(T + 60_000, Fault::JournalCut(false)); w.at(T + 90_000, Fault::Panic(0)); }, 900,
        |w| { ensure(w.struck.contains_key("a term ends for want of a journal"), "none did")?; recovered(w, 0)?; once_each(w, 2) }),
    row("p51-taken-back-by-itself", "repaired, switched on and well for five minutes: released, though our taint keeps its compute service away until then", 2,
        |w| { w.at(T, Fault::PowerLoss(0)); w.at(400_000, Fault::PowerOn(0)); }, 1400,
        |w| { recovered(w, 0)?; ensure(w.power_offs.is_empty(), "it was switched off")?; ensure(decisions(w) == [Decision::Release], "not released once")?;
              let asked = written(w, |e| matches!(e, Entry::Decided { .. }))[0];
              ensure(asked >= 700_000, &format!("released at {asked} ms"))?; state(w, 0, IncidentState::Released)?;
              ensure(w.hosts[0].compute_works() && !w.hosts[0].disabled && !w.hosts[0].tainted, "it is not in service") }),
    row("p52-start-groups", "one group after the other, by its most important guest; a guest that is stuck is waited for two minutes", 4,
        |w| { for h in 0..2 { in_two_groups(w, 4 * h); w.at(T, Fault::PowerLoss(h)); } w.servers[0].takes = Some(400_000); }, 900,
        |w| { recovered(w, 0)?; recovered(w, 1)?; once_each(w, 8)?;
              let waited = asked_at(w, 2)?.min(asked_at(w, 3)?).saturating_sub(asked_at(w, 0)?.max(asked_at(w, 1)?));
              ensure((115_000..135_000).contains(&waited), &format!("the next group waited for {waited} ms"))?;
              let (back, next) = (back_at(w, 4)?.max(back_at(w, 5)?), asked_at(w, 6)?.min(asked_at(w, 7)?));
              ensure(next >= back && next <= back + 15_000, &format!("{back} ms, and then {next} ms")) }),
    row("p53-start-groups-and-a-new-leader", "whoever leads next gives the group before two minutes, not until its last guest is back", 4,
        |w| { in_two_groups(w, 0); w.servers[0].takes = Some(400_000); w.at(T, Fault::PowerLoss(0));
              w.at(T, Fault::Once(asked_for, Box::new(Fault::Story(vec![(30_000, Fault::CrashLeader)])))); }, 900,
        |w| { recovered(w, 0)?; once_each(w, 4)?; let led = *written(w, |e| matches!(e, Entry::Led)).last().ok_or("nobody led")?;
              let next = asked_at(w, 2)?.min(asked_at(w, 3)?);
              ensure(next > led + 115_000 && next < led + 140_000, &format!("led at {led} ms, the next group at {next} ms")) }),
    row("p54-guests-that-are-paused", "left where they are, before the plan and after it, and named; moved when their pauses end", 3,
        // The third is of a group that goes before the second.
        |w| { "first".clone_into(&mut w.servers[2].group); w.servers[2].priority = 900;
              w.at(T, Fault::PauseGuest(0, true)); w.at(T, Fault::PowerLoss(0)); w.at(T, Fault::Once(planned, Box::new(Fault::PauseGuest(1, true))));
              w.at(500_000, Fault::PauseGuest(0, false)); w.at(700_000, Fault::PauseGuest(1, false)); }, 900,
        |w| { ensure(asked_at(w, 0)? > 500_000 && asked_at(w, 1)? > 700_000, "moved in spite of a pause")?; ensure(asked_at(w, 2)? < 400_000, "held back by others")?;
              let (named, ends) = (w.notices.iter().filter(|(_, n)| matches!(n, Notice::VmNeedsPerson { why, .. } if why == "Paused")).count(),
                  written(w, |e| matches!(e, Entry::Moved { state: IncidentState::Failed | IncidentState::Recovered, .. })).len());
              ensure((named, ends) == (2, 3), &format!("{named} were named, it ended {ends} times"))?;
              recovered(w, 0)?; once_each(w, 3)?; state(w, 0, IncidentState::Recovered) }),
    row("p55-switched-on-after-its-guests-are-safe", "switched off again before it boots; left on once somebody wants it back", 2,
        |w| { w.at(T, Fault::PowerLoss(0)); w.at(400_000, Fault::PowerOn(0)); w.at(600_000, Fault::Release); }, 1000,
        |w| { held(w, HeldReason::FenceLost)?; let offs: Vec<u64> = w.power_offs.iter().map(|(at, _)| *at).collect();
              ensure(offs.len() == 1 && (400_000..412_000).contains(&offs[0]), &format!("switched off at {offs:?}"))?;
              ensure(w.hosts[0].boot == 2, "it booted before it was wanted back")?; recovered(w, 0)?; state(w, 0, IncidentState::Released)?;
              ensure(w.hosts[0].compute_works() && !w.hosts[0].disabled, "it is not in service") }),
    row("p56-taken-back-by-hand", "its maintenance was cleared: told, left on, and over once it is in service", 2,
        |w| { w.at(T, Fault::PowerLoss(0)); for fault in [Fault::Maintenance(0, Maintenance::Off), Fault::Taint(0, false), Fault::PowerOn(0)] { w.at(400_000, fault); } }, 900,
        |w| { recovered(w, 0)?; held(w, HeldReason::OperatorCleared)?; ensure(w.power_offs.is_empty() && w.hosts[0].user, "it was switched off")?;
              state(w, 0, IncidentState::Released) }),
    row("p57-spare-where-nobody-knows-the-room", "one is enabled, the other is left alone", 2,
        |w| { w.rooms_told = false; for h in 1..12 { w.hosts[h].disabled = true; } w.at(T, Fault::PowerLoss(0)); }, 500,
        |w| { recovered(w, 0)?; ensure(!w.hosts[10].disabled && w.hosts[11].disabled, "not one spare was enabled") }),
    row("p58-no-valid-host-then-a-spare", "there is room, and Nova finds none: a spare is enabled, one for both guests", 2,
        |w| { w.picky = true; for h in 10..12 { w.hosts[h].disabled = true; } w.at(T, Fault::PowerLoss(0)); }, 500,
        |w| { recovered(w, 0)?; ensure(!w.hosts[10].disabled && w.hosts[11].disabled, "not one spare was enabled")?;
              ensure(w.evacuations.len() > 2, "Nova found a place at once")?; state(w, 0, IncidentState::Recovered) }),
    row("p59-lists-are-rare", "hosts are asked for lists before guests are: one that runs elsewhere is a conflict", 2,
        |w| { w.lists_every = Some(600_000); w.at(280_000, Fault::ListsLost(1)); w.at(285_000, Fault::Arrives(0, 1)); w.at(300_000, Fault::PowerLoss(0)); }, 700,
        |w| { ensure(matches!(progress(w, 0), Some(VmProgress::Conflict { .. })), "no conflict")?;
              ensure(!w.evacuations.iter().any(|(_, n)| *n == 0), "it was asked for")?; ensure(w.servers[1].host != 0, "the other was not moved") }),
    row("p60-signed-and-heard-while-nobody-led", "somebody signed that it is off; it was switched on, spoke and fell silent before anybody led again: nothing more is moved", 8,
        // One guest after the other, so that there is time for it.
        |w| { for n in 0..8 { w.servers[n].anti_affinity = Some("g".to_owned()); } w.at(T - 1000, Fault::OnDuty);
              w.at(T, Fault::Bmc(0, false)); w.at(T, Fault::PowerLoss(0)); w.at(T, Fault::Once(asked_for, Box::new(Fault::Story(vec![
              (2_000, Fault::Kubernetes(false)), (5_000, Fault::PowerOn(0)), (80_000, Fault::Mgmt(0, false)), (120_000, Fault::Kubernetes(true))])))); }, 900,
        |w| { ensure(decisions(w).first() == Some(&Decision::AckFenced), "nobody signed")?; ensure(w.hosts[0].user, "it is off")?;
              ensure(!written(w, fence_lost).is_empty(), "the signature still counts")?; ensure(w.evacuations.len() < 8, "all of them were moved") }),
    row("p61-stopped-between-plan-and-turn", "its owner stopped it while it waited: it ends stopped, and the other runs", 2,
        |w| { w.at(T, Fault::PauseGuest(0, true)); w.at(T, Fault::PowerLoss(0)); w.at(300_000, Fault::OwnerStops(0)); w.at(500_000, Fault::PauseGuest(0, false)); }, 900,
        |w| { ensure(w.servers[0].host != 0 && w.servers[1].host != 0, "not moved")?; ensure(w.servers[0].runs_on.is_empty(), "it runs, and its owner had stopped it")?;
              ensure(!w.servers[1].runs_on.is_empty(), "the other does not run")?; state(w, 0, IncidentState::Recovered) }),
    row("p62-node-cannot-be-marked", "off, and nobody may say so on its node: told; moved once somebody may", 2,
        |w| { w.at(T - 1000, Fault::Nodes(false)); w.at(T, Fault::PowerLoss(0)); w.at(600_000, Fault::Nodes(true)); }, 900,
        |w| { held(w, HeldReason::FenceFailed)?; not_before(w, 600)?; recovered(w, 0)?; kept(w, 0) }),
    row("p63-on-and-still-marked", "wanted back and switched on by hand while its node cannot be changed: given back when its mark is gone", 2,
        |w| { w.at(T, Fault::PowerLoss(0)); w.at(400_000, Fault::Nodes(false)); w.at(401_000, Fault::Release); w.at(405_000, Fault::PowerOn(0));
              w.at(800_000, Fault::Nodes(true)); }, 1200,
        |w| { recovered(w, 0)?; let let_go = *written(w, |e| matches!(e, Entry::FenceReleased { .. })).first().ok_or("never let go")?;
              ensure(let_go >= 800_000, &format!("let go at {let_go} ms, with the mark on its node"))?; state(w, 0, IncidentState::Released)?;
              ensure(w.hosts[0].compute_works() && !w.hosts[0].tainted, "it is not in service") }),
    row("p64-dies-as-it-is-given-back", "given back, and dead before it is in service: an incident of its own", 2,
        |w| { w.at(T, Fault::PowerLoss(0)); w.at(400_000, Fault::Release);
              w.at(400_000, Fault::Once(|e| matches!(e, Entry::Restored { .. }), Box::new(Fault::PowerLoss(0)))); }, 900,
        |w| { let states: Vec<IncidentState> = w.ledger().incidents.values().filter(|i| i.id.host == w.hosts[0].name).map(|i| i.state).collect();
              ensure(states.first() == Some(&IncidentState::Released) && states.len() == 2, &format!("{states:?}")) }),
    row("p65-does-not-come-back", "wanted back, and it stays dark: told after a quarter of an hour; who ends it may", 2,
        |w| { w.at(T, Fault::PowerLoss(0)); w.at(400_000, Fault::Release);
              w.at(400_000, Fault::Once(|e| matches!(e, Entry::FenceReleased { .. }), Box::new(Fault::PowerLoss(0)))); w.at(1_500_000, Fault::Abort(0)); }, 1600,
        |w| { let told = held_at(w, HeldReason::NotReturned)?; ensure((1_290_000..1_330_000).contains(&told), &format!("told at {told} ms"))?;
              state(w, 0, IncidentState::Closed) }),
    row("p66-works-again-when-somebody-leads", "its fence had begun, nobody led for minutes, and somebody switched it on: left on, and given back with its guests", 2,
        |w| { w.at(T, Fault::Panic(0)); w.at(T, Fault::Once(fence_begun, Box::new(Fault::Story(vec![
              (100, Fault::Kubernetes(false)), (30_000, Fault::PowerOn(0)), (400_000, Fault::Kubernetes(true))])))); }, 1000,
        |w| { ensure(w.power_offs.len() == 1 && w.evacuations.is_empty(), "switched off again, or moved")?; state(w, 0, IncidentState::Released)?;
              ensure(w.servers[0].runs_on.contains(&0) && w.servers[1].runs_on.contains(&0), "its guests are down")?;
              ensure(w.hosts[0].maintenance == Maintenance::Off && !w.hosts[0].disabled && !w.hosts[0].tainted, "it is not in service") }),
    row("p67-storm-and-a-new-leader", "three hosts came back in a storm; for whoever leads next it is not over at once", 2,
        |w| { for h in 0..3 { w.at(T, Fault::Mgmt(h, false)); w.at(T + 120_000, Fault::Mgmt(h, true)); } w.at(T + 180_000, Fault::CrashLeader); w.at(T + 240_000, Fault::Panic(5)); }, 1500,
        |w| { ensure(held_hosts(w, HeldReason::Storm).contains("n05"), "the next is not held")?; recovered(w, 5)?;
              let off = w.power_offs.first().map_or(0, |(at, _)| *at);
              ensure(w.power_offs.len() == 1 && off > T + 600_000, &format!("switched off at {:?}", w.power_offs)) }),
    row("p68-ended-by-a-person-and-a-new-leader", "left alone by whoever leads next, until its agent is heard", 2,
        |w| { w.at(T - 1000, Fault::Pause(true)); w.at(T, Fault::Mgmt(0, false)); w.at(T + 60_000, Fault::Abort(0)); w.at(T + 90_000, Fault::Pause(false));
              w.at(T + 100_000, Fault::CrashLeader); }, 900,
        |w| { nothing(w)?; ensure(w.ledger().incidents.len() == 1, "another was opened")?; state(w, 0, IncidentState::Closed) }),
    row("p69-second-level-and-back", "switched off by its outlet after its BMC was tried: given back by both, and stays on", 2,
        // Its BMC takes the order, and takes its time.
        |w| { w.hosts[0].bmc.off_delay = 3_600_000; w.at(T, Fault::Panic(0)); w.at(510_000, Fault::Release); }, 1200,
        |w| { recovered(w, 0)?; ensure(w.power_offs.len() > 1, "one level was enough")?; state(w, 0, IncidentState::Released)?;
              ensure(w.hosts[0].compute_works(), "it went off again") }),
    row("p70-term-ends-before-what-a-boot-took-is-started", "the same process leads again, and starts it once", 2,
        // Nobody else can lead. The guest ends after its compute service has resumed it, and nobody tells.
        |w| { let r = leader(w); for other in (0..3).filter(|other| *other != r) { w.at(T - 10_000, Fault::ReplicaKubernetes(other, false)); }
              w.at(T, Fault::SelfReboot(0)); w.at(T + 60_000, Fault::GuestEnds(0));
              w.at(T + 60_000, Fault::JournalCut(true)); w.at(T + 300_000, Fault::JournalCut(false)); }, 700,
        |w| { nothing(w)?; no_incident(w)?; told(w, |n| matches!(n, Notice::HostRebooted { .. }), "rebooted")?;
              ensure(w.terms.len() > 1, "its term went on")?;
              ensure(w.servers[0].runs_on.contains(&0) && w.reboots == 1, &format!("{} starts", w.reboots)) }),
    row("p71-new-leader-long-after-a-boot", "what went down meanwhile is not of that boot, and left alone", 2,
        |w| { w.at(T, Fault::SelfReboot(0)); w.at(T + 4_000_000, Fault::GuestEnds(0)); w.at(T + 4_010_000, Fault::CrashLeader); }, 4500,
        |w| { nothing(w)?; no_incident(w)?; ensure(w.terms.len() > 1, "nobody else led")?; ensure(w.servers[1].runs_on.contains(&0), "the other is down")?;
              ensure(w.servers[0].runs_on.is_empty() && w.reboots == 0, "it was started as if the boot had taken it") }),
    row("p80-fence-that-cannot-be-read-any-more", "its BMC dies while its guests are moved: told; signed for, they go on", 8,
        |w| { for n in 0..8 { w.servers[n].anti_affinity = Some("g".to_owned()); } w.at(T, Fault::PowerLoss(0));
              w.at(T, Fault::Once(asked_for, Box::new(Fault::Bmc(0, false)))); w.at(500_000, Fault::OnDuty); }, 1500,
        |w| { let told = held_at(w, HeldReason::FenceFailed)?; ensure(told < T + 180_000, &format!("told at {told} ms"))?;
              ensure(decisions(w) == [Decision::AckFenced], "nobody signed")?; none_asked_for(w, told, 500_000)?; recovered(w, 0) }),
    row("p81-cleared-before-the-fence", "claimed, and somebody cleared its maintenance before its power was touched: held, and left alone when its device answers", 2,
        |w| { w.at(T, Fault::Bmc(0, false)); w.at(T, Fault::Panic(0)); w.at(T + 60_000, Fault::Maintenance(0, Maintenance::Off)); w.at(T + 120_000, Fault::Bmc(0, true)); }, 600,
        |w| { nothing(w)?; held(w, HeldReason::OperatorCleared) }),
    row("p82-called-off-and-dead-for-the-next-leader", "what one leader began to give back the next gives back; then the host is an incident of its own", 2,
        |w| { w.at(T, Fault::Bmc(0, false)); w.at(T, Fault::Mgmt(0, false)); w.at(T + 60_000, Fault::Mgmt(0, true)); w.at(T + 150_000, Fault::Bmc(0, true));
              w.at(T, Fault::Once(|e| matches!(e, Entry::RestoreIntended { .. }), Box::new(Fault::Story(vec![(0, Fault::CrashLeader), (0, Fault::Panic(0))])))); }, 900,
        |w| { recovered(w, 0)?; once_each(w, 2)?; kept(w, 0)?;
              let states: Vec<IncidentState> = w.ledger().incidents.values().filter(|i| i.id.host == w.hosts[0].name).map(|i| i.state).collect();
              ensure(states == [IncidentState::Cancelled, IncidentState::Recovered], &format!("{states:?}")) }),
    row("p83-cleared-and-set-again-while-nobody-led", "Nova and its condition are put right before anybody is asked for, so it can be given back", 6,
        |w| { w.at(T, Fault::PowerLoss(0)); w.at(T, Fault::Once(planned, Box::new(Fault::Story(vec![
              (0, Fault::CrashReplica(0)), (0, Fault::CrashReplica(1)), (0, Fault::CrashReplica(2)), (0, Fault::Down(0, 90_000)), (0, Fault::Down(1, 90_000)), (0, Fault::Down(2, 90_000)),
              (10_000, Fault::Maintenance(0, Maintenance::Off)), (30_000, Fault::Maintenance(0, Maintenance::Ha))])))); w.at(700_000, Fault::Release); }, 1100,
        |w| { recovered(w, 0)?; state(w, 0, IncidentState::Released)?;
              ensure(w.hosts[0].compute_works() && !w.hosts[0].disabled && !w.hosts[0].forced_down, "it is not in service") }),
    row("p84-emptied-hosts-are-off", "a third of the fleet is emptied and switched off, and nobody can read its power: another that dies is recovered, also by a new leader", 2,
        |w| { for h in 8..12 { for n in 2 * h..2 * h + 2 { w.at(T - 60_000, Fault::Delete(n)); } w.at(T - 60_000, Fault::Maintenance(h, if h == 8 { Maintenance::Manual } else { Maintenance::Auto }));
              w.at(T, Fault::Bmc(h, false)); w.at(T, Fault::PowerLoss(h)); }
              w.at(T + 60_000, Fault::CrashLeader); w.at(T + 300_000, Fault::Panic(0)); }, 700,
        |w| { recovered(w, 0)?; ensure(w.power_offs.len() == 1 && w.ledger().incidents.len() == 1, "others were touched")?;
              ensure(!w.notices.iter().any(|(_, n)| matches!(n, Notice::Held { .. })), "it was held") }),
    row("p85-works-again-before-the-order-leaves", "the order to switch it off waits for the journal, and it boots meanwhile: called off, with its guests", 2,
        |w| { w.at(T, Fault::Panic(0)); w.at(T, Fault::Once(|e| matches!(e, Entry::Claimed { .. }), Box::new(Fault::Story(vec![
              (0, Fault::JournalFull(true)), (10_000, Fault::SelfReboot(0)), (120_000, Fault::JournalFull(false))])))); }, 700,
        |w| { nothing(w)?; ensure(!written(w, fence_begun).is_empty(), "nobody was to switch it off")?; state(w, 0, IncidentState::Cancelled)?;
              ensure(w.servers[0].runs_on.contains(&0) && w.servers[1].runs_on.contains(&0), "its guests are down")?;
              ensure(w.hosts[0].maintenance == Maintenance::Off && !w.hosts[0].disabled && !w.hosts[0].tainted, "it is not in service") }),
    row("p86-wanted-back-with-a-message-unread", "the guest that was on its way to it is on its way elsewhere: it is given back when that guest has arrived", 1,
        // Only one host takes guests at first, and it dies before it hears of the one it is to take.
        |w| { for h in 2..12 { w.hosts[h].disabled = true; } w.servers[0].takes = Some(60_000); w.at(T - 10_000, Fault::Delete(1)); w.at(T, Fault::PowerLoss(0));
              w.at(T, Fault::Once(asked_for, Box::new(Fault::Story(vec![(0, Fault::Panic(1)), (5_000, Fault::Enable)]))));
              w.at(T, Fault::Once(|e| matches!(e, Entry::Planned { incident, .. } if incident.host.as_str() == "n01"), Box::new(Fault::Story(vec![
              (50_000, Fault::Rabbit(false)), (75_000, Fault::Release), (90_000, Fault::Rabbit(true))])))); }, 700,
        |w| { ensure(w.evacuations.len() == 2, "not asked for twice")?; ensure(w.servers[0].host > 1, "it did not arrive")?; state(w, 1, IncidentState::Released)?;
              let arrived = *written(w, |e| matches!(e, Entry::Vm { progress: VmProgress::Recovered { .. } | VmProgress::Verifying { .. }, .. })).first().ok_or("not moved")?;
              let let_go = *written(w, |e| matches!(e, Entry::FenceReleaseIntended { .. })).first().ok_or("never let go")?;
              ensure(let_go > arrived, &format!("let go at {let_go} ms, and the guest arrived at {arrived} ms")) }),
    row("p87-signed-and-let-go-while-nobody-led", "somebody signed that it is off, let go of it and switched it on while nobody led: nothing more is moved", 8,
        |w| { for n in 0..8 { w.servers[n].anti_affinity = Some("g".to_owned()); } w.at(T - 1000, Fault::OnDuty); w.at(T, Fault::Bmc(0, false)); w.at(T, Fault::PowerLoss(0));
              w.at(T, Fault::Once(asked_for, Box::new(Fault::Story(vec![
              (2_000, Fault::Kubernetes(false)), (100_000, Fault::Unpark(0)), (100_500, Fault::PowerOn(0)), (107_000, Fault::Kubernetes(true))])))); }, 900,
        |w| { ensure(decisions(w).first() == Some(&Decision::AckFenced), "nobody signed")?; ensure(w.hosts[0].user, "it is off")?;
              let lost = *written(w, fence_lost).first().ok_or("the signature still counts")?; none_asked_for(w, lost - 20_000, 900_000) }),
    row("p88-late-word-of-an-earlier-boot", "it comes to replicas that never heard that boot, which go on hearing the host", 2,
        |w| { w.at(T, Fault::LateWord(0, 150_000)); w.at(T + 1000, Fault::SelfReboot(0));
              for r in 0..3 { w.at(T + 2000, Fault::CrashReplica(r)); w.at(T + 2000, Fault::Down(r, 30_000)); } }, 500,
        |w| { nothing(w)?; no_incident(w)?; ensure(w.hosts[0].compute_works(), "it did not boot")?;
              ensure(!w.notices.iter().any(|(at, n)| *at > T + 150_000 && matches!(n, Notice::Suspect { .. })), "nobody hears it any more") }),
    row("p89-taken-for-work-before-the-first-order", "claimed, and somebody sets its maintenance before anybody looks there again: seen before it is switched off, and left alone", 2,
        // Its device takes its time, so the last look was some seconds ago.
        |w| { w.hosts[0].bmc.slow = 3_400; w.at(T, Fault::Panic(0));
              w.at(T, Fault::Once(|e| matches!(e, Entry::Claimed { .. }), Box::new(Fault::Story(vec![(5_500, Fault::Maintenance(0, Maintenance::Manual))])))); }, 700,
        |w| { nothing(w)?; held(w, HeldReason::OperatorCleared) }),
    row("p90-switched-on-while-nobody-led-and-its-device-says-off", "it answers whoever leads next: its fence is lost, and no guest that arrived is started", 2,
        |w| { w.arrive_stopped = true; w.at(T, Fault::PowerLoss(0)); w.at(T, Fault::Once(asked_for, Box::new(Fault::Story(vec![
              (2_000, Fault::CrashReplica(0)), (2_000, Fault::CrashReplica(1)), (2_000, Fault::CrashReplica(2)),
              (2_000, Fault::Down(0, 120_000)), (2_000, Fault::Down(1, 120_000)), (2_000, Fault::Down(2, 120_000)),
              (5_000, Fault::PowerOn(0)), (100_000, Fault::BmcLies(0, true)), (100_500, Fault::Agent(0, false))])))); }, 600,
        |w| { ensure(w.hosts[0].user, "it is off")?; ensure(w.terms.len() > 1, "nobody else led")?; ensure(!w.evacuations.is_empty(), "nobody was asked for")?;
              ensure(!written(w, fence_lost).is_empty(), "the fence of before still counts")?; ensure(w.reboots == 0, "guests were started") }),
    row("p91-watchdog-stopped-unheard-by-the-leader", "the others heard it, and the host lived on: its silence is no proof that it reset itself", 2,
        |w| { w.armed = true; w.at(T, Fault::ReplicaDeaf(0, true)); w.at(T + 6_000, Fault::Disarm(0)); w.at(T + 12_000, Fault::Agent(0, false));
              w.at(T + 13_000, Fault::ReplicaDeaf(0, false)); w.at(T + 200_000, Fault::Bmc(0, false)); w.at(T + 200_000, Fault::Mgmt(0, false)); }, 900,
        |w| { nothing(w)?; ensure(written(w, |e| matches!(e, Entry::Fenced { .. })).is_empty(), "it is taken to have reset itself")?;
              held(w, HeldReason::FenceFailed) }),
    row("p92-nova-takes-its-time", "four seconds for an answer: its guests come back all the same", 6,
        |w| { w.nova_slow = 4_000; w.at(T, Fault::PowerLoss(0)); }, 700,
        |w| { recovered(w, 0)?; state(w, 0, IncidentState::Recovered) }),
    row("p93-nova-does-late-what-it-did-not-answer", "waited for, and asked for once", 2,
        |w| { w.nova_late = 100; w.at(T, Fault::PowerLoss(0)); w.at(T, Fault::Once(asked_for, Box::new(Fault::Story(vec![(2_000, Fault::NovaLate(0))])))); }, 700,
        |w| { recovered(w, 0)?; ensure(w.evacuations.len() == 2, "a guest was asked for again") }),
    row("p94-address-of-a-device-leads-elsewhere-meanwhile", "it is asked again which machine it is, and the other one is left alone", 2,
        |w| { w.at(T, Fault::Panic(0)); w.at(T, Fault::Once(fence_begun, Box::new(Fault::Bmc(0, false))));
              w.at(T + 200_000, Fault::Rewire(0, 5)); w.at(T + 200_000, Fault::Bmc(0, true)); }, 900,
        |w| { ensure(w.hosts[5].user, "the other one was switched off")?; ensure(w.evacuations.is_empty(), "a guest was moved")?;
              held(w, HeldReason::IdentityMismatch) }),
    row("p95-forced-down-long-after-it-was-off", "that Nova wrote this down is no report of its compute service: the fence holds", 2,
        |w| { w.at(T, Fault::PowerLoss(0)); w.at(T, Fault::NovaRefusesService(true)); w.at(T + 120_000, Fault::NovaRefusesService(false)); }, 700,
        |w| { ensure(written(w, fence_lost).is_empty(), "its fence was lost")?; recovered(w, 0) }),
    row("p96-hosts-of-two-racks-cut-off-together", "each finds another that lost the service and goes on: no silence of theirs proves a reset", 2,
        |w| { w.armed = true; for h in [0, 1, 3] { w.at(T, Fault::Bmc(h, false)); w.at(T, Fault::Mgmt(h, false)); } }, 900,
        |w| { nothing(w)?; ensure(written(w, |e| matches!(e, Entry::Fenced { .. })).is_empty(), "one is taken to have reset itself")?;
              held(w, HeldReason::FenceFailed) }),
];
