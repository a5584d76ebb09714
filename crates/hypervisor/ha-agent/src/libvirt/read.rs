// SPDX-License-Identifier: Apache-2.0
//! Asks libvirt for the guests: states in one call where the driver can, definitions only when they may have changed.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use cobaltcore_ha_wire::{Disk, DomainEntry, DomainState, Job, ServerId, bounds};
use cobaltcore_libvirt::client::Connection;
use cobaltcore_libvirt::error::Error;
use cobaltcore_libvirt::names;
use cobaltcore_libvirt::procedure::flags;
use cobaltcore_libvirt::types::Domain;
use uuid::Uuid;

use super::disks;
use super::known::Listed;
use super::translate::guest;

/// State, balloon and virtual CPUs.
const STATS: u32 = 1 | 4 | 8;
/// A guest whose QEMU hangs answers nothing, and keeps nobody waiting longer.
const JOB_TIME: Duration = Duration::from_secs(5);
/// Where so many did not answer, the others are not waited for either: their storage is away, and their states are known.
const MOST_LATE: u32 = 3;

/// What does not change without an event.
#[derive(Clone, Debug, Default)]
pub(super) struct Definition {
    persistent: bool,
    autostart: bool,
    disks: Vec<Disk>,
}

/// A guest as libvirt lists it, with its virtual CPUs and its memory in KiB.
pub(super) type Row = (Domain, Listed, u32, u64);

/// What was read of definitions so far.
#[derive(Default)]
pub(super) struct Definitions(HashMap<Uuid, Definition>);

impl Definitions {
    /// It must be read again.
    pub(super) fn forget(&mut self, guest: Uuid) {
        self.0.remove(&guest);
    }

    pub(super) fn forget_all(&mut self) {
        self.0.clear();
    }
}

struct Figures {
    state: DomainState,
    reason: String,
    vcpus: u32,
    mem_kib: u64,
}

/// An error of the daemon about one guest is no answer; a lost connection stays an error.
fn answer<T>(result: Result<T, Error>) -> Result<Option<T>, Error> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.rpc().is_some() => Ok(None),
        Err(error) => Err(error),
    }
}

/// Lists every guest with its state.
pub(super) async fn list(connection: &Connection) -> Result<Vec<Row>, Error> {
    let domains = connection.list_all_domains(flags::LIST_ALL).await?;
    let mut figures = figures_of_all(connection).await?;
    let mut list = Vec::with_capacity(domains.len());
    for domain in domains {
        let known = match figures.remove(&domain.uuid) {
            Some(known) => Some(known),
            None => figures_of(connection, &domain).await?,
        };
        // A guest that vanished between the calls is told by its event.
        if let Some(known) = known {
            let listed = Listed {
                guest: guest(&domain),
                state: known.state,
                reason: known.reason,
            };
            list.push((domain, listed, known.vcpus, known.mem_kib));
        }
    }
    Ok(list)
}

async fn figures_of_all(connection: &Connection) -> Result<BTreeMap<Uuid, Figures>, Error> {
    let stats = connection.all_domain_stats(&[], STATS, flags::STATS_NOWAIT).await;
    let all = answer(stats)?.unwrap_or_default();
    let read = |stats: &cobaltcore_libvirt::types::DomainStats| {
        let number = i32::try_from(stats.params.i64("state.state")?).ok()?;
        let reason = i32::try_from(stats.params.i64("state.reason")?).ok()?;
        Some(Figures {
            state: DomainState::from_libvirt(number),
            reason: names::domain_state_reason(number, reason).into_owned(),
            vcpus: u32::try_from(stats.params.i64("vcpu.current")?).ok()?,
            mem_kib: stats
                .params
                .u64("balloon.current")
                .or_else(|| stats.params.u64("balloon.maximum"))?,
        })
    };
    Ok(all
        .iter()
        .filter_map(|stats| Some((stats.domain.uuid, read(stats)?)))
        .collect())
}

async fn figures_of(connection: &Connection, domain: &Domain) -> Result<Option<Figures>, Error> {
    let Some(state) = answer(connection.state(domain).await)? else {
        return Ok(None);
    };
    let info = answer(connection.info(domain).await)?;
    Ok(Some(Figures {
        state: DomainState::from_libvirt(state.state),
        reason: names::domain_state_reason(state.state, state.reason).into_owned(),
        vcpus: info.as_ref().map_or(0, |info| info.vcpus),
        mem_kib: info.map_or(0, |info| info.memory_kib),
    }))
}

/// The guests as the inventory has them.
pub(super) async fn entries(
    connection: &Connection,
    list: &[Row],
    definitions: &mut Definitions,
    with_disks: bool,
) -> Result<Vec<DomainEntry>, Error> {
    let mut entries = Vec::with_capacity(list.len().min(bounds::DOMAINS));
    let mut late = 0;
    definitions
        .0
        .retain(|id, _| list.iter().any(|(domain, ..)| domain.uuid == *id));
    for (domain, listed, vcpus, mem_kib) in list.iter().take(bounds::DOMAINS) {
        let Ok(uuid) = ServerId::new(domain.uuid.hyphenated().to_string()) else {
            continue;
        };
        let definition = match definitions.0.get(&domain.uuid) {
            Some(known) => known.clone(),
            None => match definition(connection, domain).await? {
                Some(read) => definitions.0.entry(domain.uuid).or_insert(read).clone(),
                None => Definition::default(),
            },
        };
        let job = if listed.state.active() && late < MOST_LATE {
            match job(&connection.with_deadline(JOB_TIME), domain).await {
                Err(Error::Timeout { .. }) => {
                    tracing::warn!(
                        guest = domain.name,
                        "libvirt does not say in time what is being done to a guest"
                    );
                    late += 1;
                    Job::None
                }
                job => job?,
            }
        } else {
            Job::None
        };
        entries.push(DomainEntry {
            uuid,
            name: bounds::clip(&domain.name, bounds::NAME).to_owned(),
            state: listed.state,
            reason: listed.reason.clone(),
            vcpus: *vcpus,
            mem_kib: *mem_kib,
            persistent: definition.persistent,
            autostart: definition.autostart,
            job,
            disks: if with_disks { definition.disks } else { Vec::new() },
        });
    }
    entries.sort_by(|one, two| one.uuid.cmp(&two.uuid));
    Ok(entries)
}

async fn definition(connection: &Connection, domain: &Domain) -> Result<Option<Definition>, Error> {
    let Some(xml) = answer(connection.xml(domain, 0).await)? else {
        return Ok(None);
    };
    Ok(Some(Definition {
        persistent: answer(connection.is_persistent(domain).await)?.unwrap_or(false),
        autostart: answer(connection.autostart(domain).await)?.unwrap_or(false),
        disks: disks::of(&xml).into_iter().map(|found| found.disk).collect(),
    }))
}

/// What is being done to a guest. What the driver cannot tell is nothing.
pub(super) async fn job(connection: &Connection, domain: &Domain) -> Result<Job, Error> {
    let Some(stats) = answer(connection.job_stats(domain).await)? else {
        return Ok(Job::None);
    };
    if stats.kind == 0 {
        return Ok(Job::None);
    }
    let operation = stats
        .params
        .i64("operation")
        .and_then(|number| i32::try_from(number).ok());
    Ok(match operation.map(names::job_operation).as_deref() {
        Some("migration_in") => Job::MigrationIn,
        Some("migration_out") => Job::MigrationOut,
        _ => Job::Other,
    })
}
