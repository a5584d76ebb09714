// SPDX-License-Identifier: Apache-2.0
//! Checks fencing devices before they are needed: each host's device must answer and be that host's
//! own. A host that could not be fenced is known before it dies.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use cobaltcore_api::names::HostName;
use cobaltcore_ha_engine::{Action, ActionId, Answer, Effect, Epoch, Input, Trouble};
use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::act::Executor;
use crate::clock::Clock;
use crate::config::Config;
use crate::directory::Directory;
use crate::leadership::pause;
use crate::metrics::Metrics;

const GOOD_FOR: Duration = Duration::from_secs(24 * 3600);
const BAD_FOR: Duration = Duration::from_secs(15);
const EVERY: Duration = Duration::from_secs(5);
const ANSWER_TIME: Duration = Duration::from_secs(15);
/// Devices asked in one round.
const AT_ONCE: usize = 16;

type Known = HashMap<HostName, (Instant, Result<(), String>)>;

/// What the last check of each device found. Cheap to clone; clones share.
#[derive(Clone, Default)]
pub struct FenceChecks(Arc<Mutex<Known>>);

impl FenceChecks {
    /// What the last check found; nothing if there was none within a day.
    pub fn of(&self, host: &HostName) -> Option<Result<(), String>> {
        let known = self.0.lock();
        let (at, result) = known.get(host)?;
        (at.elapsed() < GOOD_FOR + 2 * EVERY).then(|| result.clone())
    }

    fn due(&self, host: &HostName) -> bool {
        match self.0.lock().get(host) {
            None => true,
            Some((at, Ok(()))) => at.elapsed() >= GOOD_FOR,
            Some((at, Err(_))) => at.elapsed() >= BAD_FOR,
        }
    }
}

/// Checks until `stop`.
pub async fn check(
    checks: FenceChecks,
    config: Arc<Config>,
    executor: Executor,
    directory: Directory,
    clock: Clock,
    metrics: Metrics,
    stop: CancellationToken,
) {
    let mut n = 0;
    while !pause(&stop, EVERY).await {
        let all = directory.all();
        let due: Vec<_> = all
            .iter()
            .filter(|(host, _)| checks.due(host))
            .take(AT_ONCE)
            .collect();
        let looks = due.into_iter().map(|(host, entry)| {
            n += 2;
            let first = n;
            let (executor, checks, config) = (&executor, &checks, &config);
            async move {
                let found = if config.fencing.levels_of(host.as_str()).is_empty() {
                    Err("no fencing level is configured for it".to_owned())
                } else {
                    one(executor, host, &entry.machine, clock, first).await
                };
                checks.0.lock().insert(host.clone(), (Instant::now(), found));
            }
        });
        futures::future::join_all(looks).await;
        let mut known = checks.0.lock();
        known.retain(|host, _| directory.get(host).is_some());
        let bad = known.values().filter(|(_, result)| result.is_err()).count();
        metrics
            .hosts_unfenceable
            .set(i64::try_from(bad).unwrap_or(i64::MAX));
    }
}

async fn one(
    executor: &Executor,
    host: &HostName,
    machine: &cobaltcore_ha_engine::Identity,
    clock: Clock,
    n: u64,
) -> Result<(), String> {
    let power = Effect::ReadPower {
        host: host.clone(),
        level: 0,
    };
    match ask(executor, power, clock, n).await {
        Ok(Answer::Power(_)) => {}
        Ok(_) => return Err("its fencing device gave no power state".into()),
        Err(why) => return Err(format!("its fencing device does not answer ({why:?})")),
    }
    let identify = Effect::Identify {
        host: host.clone(),
        level: 0,
    };
    match ask(executor, identify, clock, n + 1).await {
        Ok(Answer::Identity(found)) if found.matches(machine) => Ok(()),
        Ok(Answer::Identity(found)) if machine.system_uuid.is_none() && machine.serial.is_none() => {
            Err(format!(
                "nothing is known of the machine to compare with its device's {:?}",
                found.system_uuid.or(found.serial)
            ))
        }
        Ok(Answer::Identity(found)) => Err(format!(
            "its fencing device is another machine's: the device says {:?}, the host {:?}",
            found.system_uuid.or(found.serial),
            machine.system_uuid.as_ref().or(machine.serial.as_ref())
        )),
        Ok(_) | Err(_) => Err("its fencing device does not tell whose it is".into()),
    }
}

async fn ask(executor: &Executor, effect: Effect, clock: Clock, n: u64) -> Result<Answer, Trouble> {
    let (reply, mut answer) = mpsc::channel(1);
    let action = Action {
        // Terms begin with 1, so no leader's action is meant.
        id: ActionId { epoch: Epoch(0), n },
        incident: None,
        not_after: clock.mono().after(ANSWER_TIME),
        effect,
    };
    executor.start(action, reply);
    match tokio::time::timeout(ANSWER_TIME, answer.recv()).await {
        Ok(Some(Input::Outcome { result, .. })) => result,
        _ => Err(Trouble::Unknown),
    }
}
