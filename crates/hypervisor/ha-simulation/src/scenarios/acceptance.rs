// SPDX-License-Identifier: Apache-2.0
//! What somebody who takes the service over would try first.

use cobaltcore_api::Maintenance;
use cobaltcore_ha_engine::{Group, HeldReason, Notice};

use super::{Scenario, T, ensure, held, held_hosts, no_incident, not_before, nothing, recovered, row, told};
use crate::faults::Fault;

/// Scenarios of acceptance.
#[rustfmt::skip]
pub(super) const ACCEPTANCE: &[Scenario] = &[
    row("a05-agent-stopped-for-an-hour", "told; no incident", 2,
        |w| w.at(T, Fault::Agent(0, false)), 3800,
        |w| { nothing(w)?; no_incident(w)?; told(w, |n| matches!(n, Notice::AgentSilent { .. }), "agent silent") }),
    row("a06-all-services-stale", "their group is not believed; no incident", 2,
        |w| { w.at(T, Fault::Rabbit(false)); w.at(T + 600_000, Fault::Rabbit(true)); }, 900,
        |w| { nothing(w)?; no_incident(w)?;
              told(w, |n| matches!(n, Notice::GroupUntrusted { group: Group::N, untrusted: true }), "N untrusted") }),
    row("a07-no-fence-no-move", "held for a day; moved after a person signed", 2,
        |w| { w.at(T, Fault::Bmc(0, false)); w.at(T, Fault::PowerLoss(0)); w.at(86_400_000 + T, Fault::OnDuty); }, 88_000,
        |w| { held(w, HeldReason::FenceFailed)?; not_before(w, 86_400 + T / 1000)?; recovered(w, 0) }),
    row("a08-two-of-different-racks", "both recovered", 2,
        |w| { w.at(T, Fault::Panic(0)); w.at(T, Fault::Panic(1)); }, 900,
        |w| { recovered(w, 0)?; recovered(w, 1)?;
              ensure(held_hosts(w, HeldReason::Storm).is_empty(), "held for a storm") }),
    row("a08-two-of-one-rack", "the second is held", 2,
        // Nova takes the other for well for a minute; no guest is to be sent there.
        |w| for h in [0, 3] { w.hosts[h].disabled = true; w.at(T, Fault::Panic(h)); }, 3000,
        |w| { let moved = [0, 3].into_iter().filter(|h| recovered(w, *h).is_ok()).count();
              ensure(moved == 1, &format!("{moved} of them were recovered"))?;
              ensure(held_hosts(w, HeldReason::DomainLimit).len() == 1, "not one of them is held") }),
    row("a08-three-hosts", "all held for as long as it lasts; recovered once approved", 2,
        |w| { for h in 0..3 { w.at(T, Fault::Panic(h)); } w.at(3_600_000, Fault::OnDuty); }, 5400,
        |w| { ensure(held_hosts(w, HeldReason::Storm).len() == 3, "not all are held")?;
              not_before(w, 3600)?; for h in 0..3 { recovered(w, h)?; } Ok(()) }),
    row("a10-manual-maintenance", "held; Nova is not touched", 2,
        |w| { w.at(T - 5000, Fault::Maintenance(0, Maintenance::Manual)); w.at(T, Fault::PowerLoss(0)); }, 1500,
        |w| { nothing(w)?; held(w, HeldReason::PlannedMaintenance)?;
              ensure(!w.hosts[0].disabled && !w.hosts[0].forced_down, "Nova was told")?;
              ensure(w.hosts[0].maintenance == Maintenance::Manual, "its maintenance was changed") }),
    row("a11-dies-while-it-is-emptied", "taken over after ten minutes", 2,
        |w| { w.at(T - 5000, Fault::Maintenance(0, Maintenance::Auto)); w.at(T, Fault::PowerLoss(0)); }, 1500,
        |w| { not_before(w, 715)?; recovered(w, 0)?; ensure(w.evacuations.len() == 2, "not two requests")?;
              ensure(w.hosts[0].maintenance == Maintenance::Ha, "it is not claimed") }),
];
