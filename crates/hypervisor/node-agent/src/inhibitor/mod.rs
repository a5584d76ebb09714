// SPDX-License-Identifier: Apache-2.0
//! Holds a shutdown of the host back until its guests have left. A lock taken from logind delays the shutdown; when
//! one begins, an Eviction is created and really waited for, and the lock is given back the moment nothing runs here
//! any more. Moving the guests is the operator's work; what logind does after its own limit is logind's.

mod decide;
mod eviction;
mod logind;

use std::time::Duration;

use cobaltcore_api::conditions::HypervisorCondition;
use cobaltcore_api::reasons::EventReason;
use cobaltcore_kit::events::Happening;
use cobaltcore_kit::{BoxError, CancellationToken};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::context::Context;
use crate::host::HostFiles;
use crate::systemd::{Link, settled};

pub use decide::{Ask, EvictionView, Release, Situation, Step, condition, decide};
use eviction::Evacuation;
use logind::{Logind, Signal};

/// How often everything is looked at while a shutdown is held back.
const TICK: Duration = Duration::from_secs(1);
const RETRY: Duration = Duration::from_secs(5);

/// Holds the lock while the Hypervisor asks for it. Ends with `stop`, except that an evacuation under way is brought
/// to its end first: the kubelet stops pods on the very signal that begins the evacuation.
pub async fn run(
    context: Context,
    mut bus: watch::Receiver<Link>,
    stop: CancellationToken,
) -> Result<(), BoxError> {
    let boot = HostFiles::below(&context.config.system.host_root).boot_id();
    let mut part = Part {
        evacuation: Evacuation::new(context.client.clone(), context.config.host.clone(), boot),
        logind: Logind::default(),
        begun: None,
        trouble: None,
        told: false,
        context,
    };
    let mut hypervisor = part.context.hypervisor.clone();
    let mut board = part.context.board.changes();
    let mut stopping = false;
    tokio::select! {
        biased;
        () = stop.cancelled() => return Ok(()),
        () = settled(&mut bus) => {}
    }
    loop {
        hypervisor.mark_unchanged();
        board.mark_unchanged();
        let link = bus.borrow_and_update().clone();
        part.logind.follow(&link).await;
        let pause = part.step(stopping).await;
        let Some(pause) = pause else { return Ok(()) };
        tokio::select! {
            biased;
            () = stop.cancelled(), if !stopping => {
                stopping = true;
                part.asked_to_stop().await;
            }
            changed = hypervisor.changed() => changed?,
            changed = board.changed(), if part.begun.is_some() => changed?,
            changed = bus.changed() => changed?,
            signal = part.logind.next() => part.heard(signal),
            () = part.evacuation.changed(), if part.begun.is_some() => {}
            () = tokio::time::sleep(pause) => {}
        }
    }
}

struct Part {
    context: Context,
    logind: Logind,
    evacuation: Evacuation,
    /// When the shutdown began that is under way.
    begun: Option<Instant>,
    /// Why the lock cannot be had.
    trouble: Option<String>,
    told: bool,
}

impl Part {
    fn heard(&mut self, signal: Signal) {
        match signal {
            Signal::Shutdown(true) => self.begin(),
            Signal::Shutdown(false) => {
                if self.begun.take().is_some() {
                    tracing::info!("the shutdown was called off");
                }
                self.told = false;
                self.evacuation.forget();
            }
            // A logind that restarted has forgotten the lock.
            Signal::Restarted => self.logind.forget_lock(),
            Signal::Lost => {}
        }
    }

    fn begin(&mut self) {
        if self.begun.is_none() {
            tracing::warn!("the host is about to shut down");
            self.begun = Some(Instant::now());
        }
    }

    /// The kubelet may be quicker than the signal: ask whether a shutdown is the reason.
    async fn asked_to_stop(&mut self) {
        if self.begun.is_none() && self.logind.holds_lock() && self.logind.is_preparing().await {
            self.begin();
        }
    }

    /// Observes, decides and acts until nothing is left to do now. `None` ends the part.
    async fn step(&mut self, stopping: bool) -> Option<Duration> {
        loop {
            let situation = self.observe(stopping);
            self.publish(&situation);
            match decide(&situation) {
                Step::Wait if situation.begun => return Some(TICK),
                Step::Wait => return Some(Duration::from_mins(1)),
                Step::TakeLock => match self.logind.take_lock().await {
                    Ok(()) => self.trouble = None,
                    Err(error) => {
                        if self.trouble.is_none() {
                            tracing::warn!(%error, "cannot hold a shutdown back");
                        }
                        self.trouble = Some(error.to_string());
                        self.publish(&self.observe(stopping));
                        return Some(RETRY);
                    }
                },
                Step::CreateEviction => {
                    self.tell(&situation);
                    if let Err(error) = self.evacuation.create(self.context.hypervisor()).await {
                        tracing::warn!(%error, "cannot ask for the eviction yet");
                        return Some(TICK);
                    }
                }
                Step::Release(why) => self.release(why),
                Step::End => return None,
            }
        }
    }

    fn observe(&self, stopping: bool) -> Situation {
        Situation {
            ask: self.context.hypervisor().map_or(Ask::Unknown, |hypervisor| {
                if hypervisor.spec.evacuate_on_reboot {
                    Ask::Hold
                } else {
                    Ask::Leave
                }
            }),
            reachable: self.logind.is_reachable(),
            locked: self.logind.holds_lock(),
            begun: self.begun.is_some(),
            elapsed: self.begun.map(|begun| begun.elapsed()).unwrap_or_default(),
            limit: self.logind.limit(),
            guests: self.context.board.active_guests(),
            eviction: self.evacuation.view(),
            stopping,
        }
    }

    fn release(&mut self, why: Release) {
        self.logind.release();
        tracing::info!(%why, "the shutdown is not held back any longer");
        if why == Release::Evacuated || (why == Release::Empty && self.told) {
            let note = "every guest left before the shutdown";
            self.context.tell(Happening::normal(
                EventReason::ShutdownEvacuated,
                "Evacuating",
                note,
            ));
        } else if matches!(why, Release::Failed | Release::Deadline) {
            let note = format!("the shutdown goes on with guests on the host: {why}");
            self.context.tell(Happening::warning(
                EventReason::ShutdownEvacuation,
                "Evacuating",
                note,
            ));
        }
    }

    fn tell(&mut self, situation: &Situation) {
        if !std::mem::replace(&mut self.told, true) {
            let guests = situation
                .guests
                .map_or_else(|| "an unknown number of".to_owned(), |n| n.to_string());
            let note = format!("the host is about to shut down with {guests} running guests");
            self.context.tell(Happening::warning(
                EventReason::ShutdownEvacuation,
                "Evacuating",
                note,
            ));
        }
    }

    fn publish(&self, situation: &Situation) {
        let metrics = &self.context.metrics;
        metrics.shutdown_inhibited.set(situation.locked.into());
        let limit = situation.limit.unwrap_or_default().as_secs();
        metrics
            .shutdown_delay_max
            .set(i64::try_from(limit).unwrap_or(i64::MAX));
        let shortest = self.context.config.system.min_shutdown_delay;
        let trouble = self.trouble.as_deref().or_else(|| self.logind.why_not());
        if let Some(condition) = condition(situation, shortest, trouble) {
            self.context
                .board
                .set_condition(HypervisorCondition::EvacuationReady, condition);
        }
    }
}
