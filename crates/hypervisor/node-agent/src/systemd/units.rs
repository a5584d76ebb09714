// SPDX-License-Identifier: Apache-2.0
//! Watches units and keeps their conditions on the board. A change arrives as a signal and is then read as a whole;
//! a list every minute catches what no signal tells, such as an alias that moved to another unit.

use std::time::Duration;

use cobaltcore_kit::{BoxError, CancellationToken};
use futures::StreamExt as _;
use futures::stream::select_all;
use tokio::sync::watch;

use super::bus::{Link, settled};
use super::error::BusError;
use super::manager::Manager;
use super::unit::{UnitState, condition, is_stopped};
use crate::context::Context;
use crate::metrics::Source;

const RESYNC: Duration = Duration::from_mins(1);
const PAUSE: Duration = Duration::from_secs(1);

/// Keeps the conditions of the watched units current until `stop`.
pub async fn run(
    context: Context,
    mut bus: watch::Receiver<Link>,
    stop: CancellationToken,
) -> Result<(), BoxError> {
    let system = &context.config.system;
    let mut units = system.watch_units.clone();
    if !units.contains(&system.libvirt_unit) {
        units.push(system.libvirt_unit.clone());
    }
    let view = View {
        context: &context,
        units,
    };
    tokio::select! {
        biased;
        () = stop.cancelled() => return Ok(()),
        () = settled(&mut bus) => {}
    }
    loop {
        let link = bus.borrow_and_update().clone();
        let ended = tokio::select! {
            biased;
            () = stop.cancelled() => return Ok(()),
            changed = bus.changed() => { changed?; None }
            ended = view.follow(&link) => Some(ended),
        };
        if let Some(error) = ended {
            view.lost(&error.to_string());
            tokio::select! {
                biased;
                () = stop.cancelled() => return Ok(()),
                changed = bus.changed() => changed?,
                () = tokio::time::sleep(PAUSE), if matches!(link, Link::Up(_)) => {}
            }
        }
    }
}

struct View<'a> {
    context: &'a Context,
    units: Vec<String>,
}

impl View<'_> {
    /// Follows the units over one connection; returns why that ended.
    async fn follow(&self, link: &Link) -> BusError {
        match self.follow_until_lost(link).await {
            Ok(()) => BusError::NoAnswer {
                what: "watching units".into(),
                why: "systemd restarted or the bus was lost".into(),
            },
            Err(error) => error,
        }
    }

    async fn follow_until_lost(&self, link: &Link) -> Result<(), BusError> {
        let manager = Manager::new(link.connection("watching units")?).await?;
        manager.subscribe().await?;
        let mut owner = manager.owner_changes().await?;
        let mut signals = vec![manager.signals("Reloading").await?];
        for (_, path) in manager.states(&self.units).await? {
            signals.push(manager.changes(&path).await?);
        }
        let mut signals = select_all(signals);
        loop {
            let rows = manager.states(&self.units).await?;
            self.context.metrics.ages.fresh(Source::Units);
            for (unit, (state, _)) in self.units.iter().zip(rows) {
                self.show(unit, Ok(&state));
            }
            tokio::select! {
                signal = signals.next() => if signal.is_none() { return Ok(()) },
                _ = owner.next() => return Ok(()),
                () = tokio::time::sleep(RESYNC) => {}
            }
            // One event of a unit comes as several signals; reading once answers all of them.
            while let Some(Some(_)) = futures::FutureExt::now_or_never(signals.next()) {}
        }
    }

    fn lost(&self, why: &str) {
        for unit in &self.units {
            self.show(unit, Err(why));
        }
    }

    fn show(&self, unit: &str, state: Result<&UnitState, &str>) {
        let Context {
            config,
            board,
            metrics,
            ..
        } = self.context;
        if *unit == config.system.libvirt_unit {
            board.set_libvirt_service_stopped(state.is_ok_and(is_stopped));
        }
        if config.system.watch_units.iter().any(|watched| watched == unit) {
            metrics.show_unit(unit, state.is_ok_and(|state| state.active == "active"));
            board.set_condition(unit, condition(unit, state));
        }
    }
}
