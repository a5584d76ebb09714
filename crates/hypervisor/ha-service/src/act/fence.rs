// SPDX-License-Identifier: Apache-2.0
//! Power: what the engine asks of fencing devices, and the mark on the node that keeps anything
//! from starting on a host that was switched on behind our back.

use cobaltcore_api::names::HostName;
use cobaltcore_ha_engine::{Answer, Identity, IncidentId, Power, Refusal, Trouble};
use cobaltcore_ha_fencing::{Error as FenceError, Level, Target};

use super::{Bounds, Executor, Outcome};
use crate::metrics::OfDriver;

impl Executor {
    fn target(&self, host: &HostName) -> Target {
        let mut target = Target::new(host.clone());
        if let Some(entry) = self.deps.directory.get(host) {
            target.labels.clone_from(&entry.labels);
            target.internal_ip.clone_from(&entry.internal_ip);
            target.machine.clone_from(&entry.machine);
        }
        target
    }

    fn level(&self, host: &HostName, level: usize) -> Result<Level, Trouble> {
        self.levels.lock().insert(host.clone(), level);
        let found = self.fences.level(&self.target(host), level);
        found.map_err(|error| trouble(host, "finding its fencing device", &error))
    }

    pub(super) async fn read_power(&self, host: &HostName, level: usize) -> Outcome {
        let read = self.level(host, level)?.power().await;
        let read = read.map_err(|error| trouble(host, "reading its power", &error))?;
        Ok(Answer::Power(read))
    }

    pub(super) async fn identify(&self, host: &HostName, level: usize) -> Outcome {
        match self.fences.identify(&self.target(host), level).await {
            Ok(identity) => Ok(Answer::Identity(identity)),
            // Whoever shares a device is fenced by nobody: no identity matches.
            Err(error @ FenceError::Shared { .. }) => {
                tracing::error!(%host, %error, "its fencing device is not its own");
                Ok(Answer::Identity(Identity::default()))
            }
            Err(error) => Err(trouble(host, "identifying its fencing device", &error)),
        }
    }

    pub(super) async fn power_off(&self, host: &HostName, level: usize, bounds: Bounds) -> Outcome {
        let level = self.level(host, level)?;
        bounds.check()?;
        let begin = std::time::Instant::now();
        let pressed = level.power_off().await;
        let result = if pressed.is_ok() { "taken" } else { "failed" };
        let of = OfDriver {
            driver: level.name(),
            result: result.to_owned(),
        };
        let took = begin.elapsed().as_secs_f64();
        self.deps.metrics.fence.get_or_create(&of).observe(took);
        pressed.map_err(|error| trouble(host, "switching it off", &error))?;
        Ok(Answer::Done)
    }

    pub(super) async fn hold(&self, host: &HostName, incident: Option<&IncidentId>) -> Outcome {
        self.mark_node(host, incident).await?;
        let level = self.levels.lock().get(host).copied().unwrap_or_default();
        let held = self.level(host, level)?.hold().await;
        held.map_err(|error| trouble(host, "keeping it off", &error))?;
        Ok(Answer::Done)
    }

    pub(super) async fn release_fence(&self, host: &HostName, level: usize) -> Outcome {
        self.unmark_node(host).await?;
        let released = self.level(host, level)?.release().await;
        released.map_err(|error| trouble(host, "switching it on", &error))?;
        Ok(Answer::Done)
    }

    /// Whether a host could be fenced if it had to be: some level's device answers, says whether it
    /// is on, and belongs to this machine. The refusal is a sentence for people.
    pub async fn check_fence(&self, host: &HostName) -> Result<(), String> {
        let target = self.target(host);
        let required = self.fences.config().required_grade.into();
        let levels = self.fences.config().fence_levels();
        let usable = levels
            .iter()
            .enumerate()
            .filter(|(_, level)| level.grade >= required);
        let mut why = format!("{host} has no fencing device; add one to fencing.levels");
        for (n, _) in usable {
            why = match self.try_fence(&target, n).await {
                Ok(()) => return Ok(()),
                Err(why) => why,
            };
        }
        Err(why)
    }

    async fn try_fence(&self, target: &Target, level: usize) -> Result<(), String> {
        let told = self
            .fences
            .identify(target, level)
            .await
            .map_err(|error| error.to_string())?;
        if !target.machine.matches(&told) {
            return Err(format!(
                "the fencing device of {} belongs to another machine or does not say: it reports {}, the host is {}",
                target.host,
                shown(&told),
                shown(&target.machine)
            ));
        }
        let found = self
            .fences
            .level(target, level)
            .map_err(|error| error.to_string())?;
        let _: Power = found.power().await.map_err(|error| error.to_string())?;
        Ok(())
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
