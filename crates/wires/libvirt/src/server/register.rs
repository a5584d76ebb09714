// SPDX-License-Identifier: Apache-2.0
//! Which events a client registered for, in both wire forms, with libvirtd's words for what is refused.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;

use uuid::Uuid;

use super::ServerOptions;
use crate::error::{RpcError, code, domain};
use crate::event::{Event, EventBody, EventId};
use crate::types::Domain;

/// A client cannot make the daemon remember more than this.
const MAX_REGISTRATIONS: usize = 1_024;

/// The registrations of one client.
#[derive(Debug, Default)]
pub(super) struct Registrations {
    callbacks: BTreeMap<i32, (EventId, Option<Uuid>)>,
    legacy: BTreeSet<EventId>,
    pub(super) close_callback: bool,
}

fn refused(text: String) -> RpcError {
    RpcError::new(code::INTERNAL, domain::REMOTE, text)
}

impl Registrations {
    pub(super) fn add(
        &mut self,
        options: &ServerOptions,
        id: EventId,
        only: Option<&Domain>,
    ) -> Result<i32, RpcError> {
        if !options.events.contains(&id) {
            return Err(refused(format!("internal error: unsupported event ID {}", id.0)));
        }
        if self.callbacks.len() >= MAX_REGISTRATIONS {
            return Err(refused("internal error: too many event registrations".to_owned()));
        }
        let callback = options.callback_ids.fetch_add(1, Ordering::Relaxed);
        self.callbacks
            .insert(callback, (id, only.map(|domain| domain.uuid)));
        Ok(callback)
    }

    pub(super) fn remove(&mut self, callback: i32) -> Result<(), RpcError> {
        match self.callbacks.remove(&callback) {
            Some(_) => Ok(()),
            None => Err(refused(format!(
                "internal error: domain event callback {callback} not registered"
            ))),
        }
    }

    pub(super) fn add_legacy(&mut self, options: &ServerOptions, id: EventId) -> Result<(), RpcError> {
        if id.legacy_procedure().is_none() || !options.events.contains(&id) {
            return Err(refused(format!("internal error: unsupported event ID {}", id.0)));
        }
        if self.legacy.insert(id) {
            Ok(())
        } else {
            Err(refused(format!(
                "internal error: domain event {} already registered",
                id.0
            )))
        }
    }

    pub(super) fn remove_legacy(&mut self, id: EventId) -> Result<(), RpcError> {
        if self.legacy.remove(&id) {
            Ok(())
        } else {
            Err(refused(format!(
                "internal error: domain event {} not registered",
                id.0
            )))
        }
    }

    /// The messages this client gets for an event, one per registration that matches.
    pub(super) fn messages(&self, guest: &Domain, body: &EventBody) -> Vec<Event> {
        let Some(id) = body.id() else {
            return Vec::new();
        };
        let message = |callback| Event {
            callback,
            domain: guest.clone(),
            body: body.clone(),
        };
        let mut messages: Vec<Event> = self
            .callbacks
            .iter()
            .filter(|(_, (wanted, only))| *wanted == id && only.is_none_or(|uuid| uuid == guest.uuid))
            .map(|(callback, _)| message(Some(*callback)))
            .collect();
        if self.legacy.contains(&id) {
            messages.push(message(None));
        }
        messages
    }

    pub(super) fn ids(&self) -> Vec<EventId> {
        let callbacks = self.callbacks.values().map(|(id, _)| *id);
        callbacks
            .chain(self.legacy.iter().copied())
            .collect::<BTreeSet<_>>()
            .into_iter()
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_registration_gets_its_own_message() {
        let options = ServerOptions::default();
        let guest = Domain::new("a", Uuid::from_u128(1), 1);
        let other = Domain::new("b", Uuid::from_u128(2), 2);
        let mut registrations = Registrations::default();
        let all = registrations.add(&options, EventId::REBOOT, None);
        let one = registrations.add(&options, EventId::REBOOT, Some(&guest));
        registrations.add_legacy(&options, EventId::REBOOT).ok();
        assert_eq!((all, one.clone()), (Ok(0), Ok(1)));
        let callbacks = |guest| {
            let messages = registrations.messages(guest, &EventBody::Reboot {});
            messages.iter().map(|event| event.callback).collect::<Vec<_>>()
        };
        assert_eq!(callbacks(&guest), [Some(0), Some(1), None]);
        assert_eq!(callbacks(&other), [Some(0), None]);
        assert!(
            registrations
                .messages(&guest, &EventBody::ControlError {})
                .is_empty()
        );
    }

    #[test]
    fn what_is_refused_is_refused_in_libvirts_words() {
        let options = ServerOptions::default();
        let mut registrations = Registrations::default();
        let text =
            |result: Result<(), RpcError>| result.err().and_then(|error| error.message).unwrap_or_default();
        let new = registrations.add(&options, EventId(27), None).map(|_| ());
        assert_eq!(text(new), "internal error: unsupported event ID 27");
        assert_eq!(
            text(registrations.remove(7)),
            "internal error: domain event callback 7 not registered"
        );
        assert_eq!(
            text(registrations.add_legacy(&options, EventId::TUNABLE)),
            "internal error: unsupported event ID 17"
        );
    }
}
