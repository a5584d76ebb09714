// SPDX-License-Identifier: Apache-2.0
//! Observes libvirt: one long-lived connection whose events keep the board up to date, and a comparison with libvirt's
//! own list once a minute. Guests are only ever read; a guest whose definition changed is read once, alone.

mod guests;
mod observer;
mod reach;
mod read;
mod turns;

use cobaltcore_kit::{BoxError, CancellationToken};
use cobaltcore_libvirt::session::Session;
use tokio::sync::mpsc;

use crate::board::Link;
use crate::context::Context;
use crate::migration;
pub(crate) use guests::life;
use observer::Observer;

/// Signs of migrations that wait to be looked at. Beyond that the follower reads everything again.
const SIGNS: usize = 4096;

/// Observes libvirt until `stop`.
pub(crate) async fn observe(context: Context, stop: CancellationToken) -> Result<(), BoxError> {
    let mut stopped = context.board.libvirt_service_stopped();
    loop {
        if *stopped.borrow_and_update() {
            context.board.update_now(|model| {
                let changed = model.libvirt.link != Link::ServiceStopped;
                model.libvirt.link = Link::ServiceStopped;
                changed
            });
            tokio::select! {
                biased;
                () = stop.cancelled() => return Ok(()),
                changed = stopped.changed() => changed?,
            }
            continue;
        }
        let (signs, received) = mpsc::channel(SIGNS);
        let (session, notices) = Session::start(reach::session(&context));
        let observer = Observer::new(context.clone(), signs);
        let outcome = tokio::select! {
            outcome = observer.run(&session, notices, &stop) => outcome,
            outcome = migration::follow(context.clone(), received) => outcome.map(|()| observer::End::Stopped),
        };
        session.stop().await;
        match outcome? {
            observer::End::Stopped => return Ok(()),
            observer::End::ServiceStopped => {}
        }
    }
}
