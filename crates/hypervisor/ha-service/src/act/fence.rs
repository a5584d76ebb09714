// SPDX-License-Identifier: Apache-2.0
//! Power: what the engine asks of fencing devices, and the mark on the node that keeps anything
//! from starting on a host that was switched on behind our back.

use std::sync::Arc;

use cobaltcore_api::names::HostName;
use cobaltcore_ha_engine::{
    Answer, Grade, Group, HostStatus, Identity, IncidentId, Power, Refusal, Trouble, Verdict,
};
use cobaltcore_ha_fencing::{Error as FenceError, Fences, Level, Purpose, Target, Witness};

use super::{Bounds, Executor, Outcome};

impl Executor {
    /// The host as its devices are to know it, with what the monitors see of it right now.
    async fn target(&self, host: &HostName) -> Target {
        let mut target = Target::new(host.clone());
        target.witness = self.status(host).await.map(|status| witness(&status));
        if let Some(entry) = self.deps.directory.get(host) {
            target.labels.clone_from(&entry.labels);
            target.internal_ip.clone_from(&entry.internal_ip);
            target.machine.clone_from(&entry.machine);
        }
        target
    }

    /// What the monitors see of the host right now.
    async fn status(&self, host: &HostName) -> Option<HostStatus> {
        let name = host.clone();
        let look = self
            .deps
            .brain
            .ask(move |engine, now| engine.host_status(&name, now));
        look.await.flatten()
    }

    fn fences(&self) -> Arc<Fences> {
        Arc::clone(&self.fences.read())
    }

    async fn level(&self, host: &HostName, level: usize) -> Result<Level, Trouble> {
        let found = self.fences().level(&self.target(host).await, level);
        found.map_err(|error| trouble(host, "finding its fencing device", &error))
    }

    pub(super) async fn read_power(&self, host: &HostName, level: usize) -> Outcome {
        let level = self.level(host, level).await?;
        let read = level.power().await;
        let read = read.map_err(|error| trouble(host, "reading its power", &error))?;
        Ok(worth(read, level.grade()))
    }

    /// Whether the host is off and stays so.
    pub(super) async fn read_hold(&self, host: &HostName, level: usize) -> Outcome {
        let level = self.level(host, level).await?;
        let (read, holds) = futures::join!(level.power(), level.holds());
        let read = kept(read, holds).map_err(|error| trouble(host, "looking at its fence", &error))?;
        let Some(read) = read else {
            tracing::error!(%host, "nobody keeps it off any more: who ended its parking, or changed its claim?");
            return Ok(Answer::Unheld);
        };
        Ok(worth(read, level.grade()))
    }

    pub(super) async fn identify(&self, host: &HostName, level: usize) -> Outcome {
        match self.fences().identify(&self.target(host).await, level).await {
            Ok(identity) => Ok(Answer::Identity(identity)),
            // Whoever shares a device is fenced by nobody: no identity matches.
            Err(error @ FenceError::Shared { .. }) => {
                tracing::error!(%host, %error, "its fencing device is not its own");
                Ok(Answer::Identity(Identity::default()))
            }
            Err(error) => Err(trouble(host, "identifying its fencing device", &error)),
        }
    }

    pub(super) async fn power_off(&self, host: &HostName, level: usize, bounds: Bounds<'_>) -> Outcome {
        let level = self.level(host, level).await?;
        let done = bounds.within(level.power_off()).await?;
        done.map_err(|error| trouble(host, "switching it off", &error))?;
        Ok(Answer::Done)
    }

    pub(super) async fn hold(
        &self,
        host: &HostName,
        level: usize,
        incident: Option<&IncidentId>,
        bounds: Bounds<'_>,
    ) -> Outcome {
        self.mark_node(host, incident).await?;
        let level = self.level(host, level).await?;
        let held = bounds.within(level.hold()).await?;
        held.map_err(|error| trouble(host, "keeping it off", &error))?;
        Ok(Answer::Done)
    }

    /// Lets go of a host by every level that was tried, the last one first: what one began keeps the host off although
    /// another switched it off.
    pub(super) async fn release_fence(
        &self,
        host: &HostName,
        levels: &[usize],
        bounds: Bounds<'_>,
    ) -> Outcome {
        self.unmark_node(host).await?;
        let (fences, target) = (self.fences(), self.target(host).await);
        for n in levels.iter().rev() {
            let level = match fences.level(&target, *n) {
                // The configuration has it no more, and nobody else knows how to let go by it.
                Err(error @ FenceError::NoLevel { .. }) => {
                    tracing::warn!(%host, %error, "a level that may keep the host off is gone");
                    continue;
                }
                found => found.map_err(|error| trouble(host, "finding its fencing device", &error))?,
            };
            let released = bounds.within(level.release()).await?;
            let unsure = released.map_err(|error| trouble(host, "letting go of it", &error))?;
            if let Some(error) = unsure {
                tracing::warn!(%host, %error, "nothing keeps it off; it is not known to be switched on");
            }
        }
        Ok(Answer::Done)
    }

    /// Forgets the devices of hosts that left for good.
    pub(crate) fn retain_fences(&self, known: impl Fn(&HostName) -> bool) {
        self.fences().retain(known);
    }

    /// Whether a host could be fenced if it had to be: some level's device answers, says whether it
    /// is on, and belongs to this machine.
    pub async fn check_fence(&self, host: &HostName) -> Result<(), Unfit> {
        let mut target = self.target(host).await;
        target.purpose = Purpose::Check;
        let fences = self.fences();
        let required = fences.config().required_grade.into();
        let no_device = format!("{host} has no fencing device; add one to fencing.levels");
        let mut why = Unfit::Because(no_device);
        for n in 0..fences.config().levels_of(host.as_str()).len() {
            match try_fence(&fences, &target, n, required).await {
                // No other level makes up for this one, which is believed in an emergency.
                Ok((level, read)) => {
                    let lives = self.lives_as_read(host, &level, read).await;
                    return lives.map_err(Unfit::Because);
                }
                // It may be this one that works.
                Err(Unfit::NotAsked) => return Err(Unfit::NotAsked),
                Err(found) => why = found,
            }
        }
        Err(why)
    }

    /// That a host whose power is said to be off is not heard. Only power says that: a host that is cut off from its disks
    /// may be heard. Its agent is asked for after the reading, because a host may die while its device is looked at.
    async fn lives_as_read(&self, host: &HostName, level: &Level, read: Power) -> Result<(), String> {
        if read != Power::Off || level.grade() != Grade::Power {
            return Ok(());
        }
        match self.status(host).await {
            Some(status) if status.evidence.of(Group::A).verdict == Verdict::Alive => Err(format!(
                "{} reads that {host} is off, and its agent is heard: what it reads is another machine, or nothing",
                level.name()
            )),
            _ => Ok(()),
        }
    }
}

/// Why a host could not be fenced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unfit {
    /// Nobody knows: its device was not asked, because others took too long.
    NotAsked,
    /// A sentence for people.
    Because(String),
}

impl From<FenceError> for Unfit {
    fn from(error: FenceError) -> Self {
        match error {
            FenceError::NoTurn { .. } => Self::NotAsked,
            error => Self::Because(error.to_string()),
        }
    }
}

/// A level that could fence the host, and what it reads.
async fn try_fence(
    fences: &Fences,
    target: &Target,
    level: usize,
    required: Grade,
) -> Result<(Level, Power), Unfit> {
    let found = fences.level(target, level)?;
    let name = found.name();
    if found.grade() < required {
        let weak = format!("{name} proves less than fencing.required_grade asks for");
        return Err(Unfit::Because(weak));
    }
    let told = fences.identify(target, level).await?;
    if !target.machine.matches(&told) {
        return Err(Unfit::Because(format!(
            "the fencing device of {} belongs to another machine or does not say: it reports {}, the host is {}",
            target.host,
            shown(&told),
            shown(&target.machine)
        )));
    }
    let read = found.power().await?;
    Ok((found, read))
}

/// The power, or nothing where nobody keeps the host off. On counts at once. Off counts while whoever could switch the
/// host on stands down; where they do not, it does not matter what the power is said to be.
fn kept(
    read: Result<Power, FenceError>,
    holds: Result<bool, FenceError>,
) -> Result<Option<Power>, FenceError> {
    match (read, holds) {
        (Ok(Power::On), _) => Ok(Some(Power::On)),
        (_, Ok(false)) => Ok(None),
        (Err(error), _) | (_, Err(error)) => Err(error),
        (Ok(Power::Off), Ok(true)) => Ok(Some(Power::Off)),
    }
}

/// A reading with what it is worth.
fn worth(read: Power, grade: Grade) -> Answer {
    match grade {
        Grade::None | Grade::Storage | Grade::SelfFence => Answer::Presumed(read, grade),
        Grade::Power | Grade::Asserted => Answer::Power(read),
    }
}

fn shown(identity: &Identity) -> String {
    let text = |value: &Option<String>| value.clone().unwrap_or_else(|| "unknown".to_owned());
    format!(
        "uuid {}, serial {}",
        text(&identity.system_uuid),
        text(&identity.serial)
    )
}

/// What the monitors see of a host, as devices without a device want it.
fn witness(status: &HostStatus) -> Witness {
    let evidence = &status.evidence;
    Witness {
        dead_groups: evidence.dead_groups(),
        probes_dead: evidence.overwhelming(),
        storage_alive: evidence.of(Group::S).verdict == Verdict::Alive,
        lasting: status.overwhelming_for.unwrap_or_default(),
        reset_itself: evidence.reset_itself(),
    }
}

/// What a device's failure means to the engine. Only what cannot have had an effect is a refusal.
fn trouble(host: &HostName, doing: &str, error: &FenceError) -> Trouble {
    tracing::warn!(%host, %error, "fencing: {doing} failed");
    match error {
        FenceError::Config { .. }
        | FenceError::NoLevel { .. }
        | FenceError::Missing { .. }
        | FenceError::Shared { .. }
        | FenceError::Credentials { .. }
        | FenceError::NotOffered { .. }
        | FenceError::Busy { .. }
        | FenceError::Person { .. } => Trouble::Refused(Refusal::Other),
        FenceError::Refused {
            status: 401 | 403, ..
        } => Trouble::Refused(Refusal::Unauthorized),
        _ => Trouble::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn off_counts_while_it_is_kept_and_on_counts_always() {
        let silent = || FenceError::NoLevel {
            host: HostName::new("n1").unwrap(),
            level: 0,
        };
        let (on, off) = (Power::On, Power::Off);
        let of = |read, holds| kept(read, holds).ok();
        for holds in [Ok(true), Ok(false), Err(silent())] {
            assert_eq!(of(Ok(on), holds), Some(Some(on)));
        }
        assert_eq!(of(Ok(off), Ok(true)), Some(Some(off)));
        assert_eq!(of(Ok(off), Ok(false)), Some(None));
        assert_eq!(of(Err(silent()), Ok(false)), Some(None));
        assert_eq!(
            of(Ok(off), Err(silent())),
            None,
            "nobody knows whether it is kept off"
        );
        assert_eq!(of(Err(silent()), Ok(true)), None);
    }
}
