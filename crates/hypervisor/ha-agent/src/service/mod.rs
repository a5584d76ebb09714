// SPDX-License-Identifier: Apache-2.0
//! Everything that goes to the service and comes from it. Each endpoint has its own connections for records, for
//! signs of life and for commands, so that none of them waits for another.

pub(crate) mod commands;
mod endpoints;
mod heartbeat;
mod link;
mod probe;
mod sender;

pub(crate) use endpoints::run;
pub(crate) use heartbeat::BEAT_TIME;

use cobaltcore_ha_wire::{Envelope, SCHEMA};
use jiff::Timestamp;

use crate::board::Context;
use crate::clock;

/// The envelope of a report made now.
fn envelope(context: &Context) -> Envelope {
    Envelope {
        schema: SCHEMA,
        host: context.start.host.clone(),
        agent_id: context.agent_id.clone(),
        boot_id: context.boot.clone(),
        epoch: context.epoch,
        sent_at: Timestamp::now(),
        mono_ns: clock::boot_ns(),
    }
}
