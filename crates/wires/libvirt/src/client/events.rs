// SPDX-License-Identifier: Apache-2.0
//! Event streams of a connection. The daemon is asked once per event id, however many streams want it; each stream
//! has its own bounded queue, and one that is read too slowly loses its oldest events and is told how many.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Weak};

use super::Connection;
use super::dispatch::Shared;
use super::queue::{Entry, Queue};
use crate::error::Error;
use crate::event::{Event, EventId};
use crate::frame::PROGRAM_REMOTE;
use crate::procedure::{Call, Procedure, calls as proc};
use crate::xdr;

/// What a stream yields.
#[derive(Debug, Clone, PartialEq)]
pub enum Delivery {
    /// Something happened.
    Event(Event),
    /// So many events were lost at this point; what is known about guests must be read again.
    Lagged(u64),
}

impl Entry for Delivery {
    fn gap(missed: u64) -> Self {
        Self::Lagged(missed)
    }

    fn stands_for(&self) -> u64 {
        match self {
            Self::Event(_) => 1,
            Self::Lagged(missed) => *missed,
        }
    }
}

/// Where events of a connection go. Must return at once: it is called by the task that reads the socket.
pub(crate) trait Sink: Send + Sync {
    fn event(&self, event: Event, bytes: usize);
    fn missed(&self, count: u64);
    fn close(&self);
}

impl Sink for Queue<Delivery> {
    fn event(&self, event: Event, bytes: usize) {
        self.push(Delivery::Event(event), bytes);
    }

    fn missed(&self, count: u64) {
        self.push(Delivery::Lagged(count), 0);
    }

    fn close(&self) {
        Queue::close(self);
    }
}

struct Attached {
    key: u64,
    wanted: HashSet<EventId>,
    sink: Arc<dyn Sink>,
}

/// Which events the daemon was asked for, and who wants them.
#[derive(Default)]
pub(super) struct Registry {
    next_key: u64,
    /// The callback id of each registered event; `None` in the older form.
    registered: HashMap<EventId, Option<i32>>,
    sinks: Vec<Attached>,
    closed: bool,
}

impl Registry {
    fn attach(&mut self, sink: Arc<dyn Sink>) -> u64 {
        if self.closed {
            sink.close();
        }
        self.next_key += 1;
        self.sinks.push(Attached {
            key: self.next_key,
            wanted: HashSet::new(),
            sink,
        });
        self.next_key
    }

    fn detach(&mut self, key: u64) {
        self.sinks.retain(|attached| attached.key != key);
    }

    fn want(&mut self, key: u64, id: EventId, yes: bool) {
        if let Some(attached) = self.sinks.iter_mut().find(|attached| attached.key == key) {
            if yes {
                attached.wanted.insert(id);
            } else {
                attached.wanted.remove(&id);
            }
        }
    }

    fn wanted_by_nobody(&self, id: EventId) -> bool {
        !self.sinks.iter().any(|attached| attached.wanted.contains(&id))
    }

    /// Books a registration. A second one for the same id is left alone: its events are not handed out.
    pub(super) fn registered(&mut self, id: EventId, callback: Option<i32>) {
        self.registered.entry(id).or_insert(callback);
    }

    /// Hands an event to every stream that wants it.
    pub(super) fn deliver(&mut self, event: Event, bytes: usize) {
        let Some(id) = event.body.id() else {
            // Nobody can have asked for it by a known id, so whoever listens gets it.
            self.sinks
                .iter()
                .for_each(|attached| attached.sink.event(event.clone(), bytes));
            return;
        };
        if self.registered.get(&id) != Some(&event.callback) {
            return;
        }
        let mut takers = self
            .sinks
            .iter()
            .filter(|attached| attached.wanted.contains(&id))
            .peekable();
        while let Some(taker) = takers.next() {
            if takers.peek().is_none() {
                taker.sink.event(event, bytes);
                return;
            }
            taker.sink.event(event.clone(), bytes);
        }
    }

    /// An event could not be read: for its streams it is as good as lost.
    pub(super) fn missed(&mut self, id: Option<EventId>) {
        for attached in &self.sinks {
            if id.is_none_or(|id| attached.wanted.contains(&id)) {
                attached.sink.missed(1);
            }
        }
    }

    pub(super) fn close(&mut self) {
        self.closed = true;
        self.registered.clear();
        self.sinks.drain(..).for_each(|attached| attached.sink.close());
    }
}

/// A sink that is attached to a connection, and what it asked for.
pub(crate) struct Attachment {
    shared: Weak<Shared>,
    key: u64,
}

impl Drop for Attachment {
    fn drop(&mut self) {
        if let Some(shared) = self.shared.upgrade() {
            shared.registry.lock().detach(self.key);
        }
    }
}

impl Attachment {
    pub(crate) fn new(connection: &Connection, sink: Arc<dyn Sink>) -> Self {
        let shared = connection.shared();
        let key = shared.registry.lock().attach(sink);
        Self {
            shared: Arc::downgrade(shared),
            key,
        }
    }

    /// Asks the daemon for events of this id, unless it has been asked already.
    pub(crate) async fn add(&self, connection: &Connection, id: EventId) -> Result<(), Error> {
        let shared = connection.shared();
        let known = {
            let mut registry = shared.registry.lock();
            registry.want(self.key, id, true);
            registry.registered.contains_key(&id)
        };
        if known {
            return Ok(());
        }
        let result = register(connection, id).await;
        let mut registry = shared.registry.lock();
        match result {
            // Another stream was faster; its registration serves this one too.
            Err(_) if registry.registered.contains_key(&id) => Ok(()),
            Err(error) => {
                registry.want(self.key, id, false);
                Err(error)
            }
            Ok(()) => Ok(()),
        }
    }

    /// No more events of this id for this sink; the daemon is told when nobody wants them.
    pub(crate) async fn remove(&self, connection: &Connection, id: EventId) -> Result<(), Error> {
        let shared = connection.shared();
        let callback = {
            let mut registry = shared.registry.lock();
            registry.want(self.key, id, false);
            if registry.wanted_by_nobody(id) {
                registry.registered.remove(&id)
            } else {
                None
            }
        };
        match callback {
            None => Ok(()),
            Some(Some(callback)) => {
                connection
                    .call::<proc::ConnectDomainEventCallbackDeregisterAny>(&callback)
                    .await
            }
            Some(None) if id == EventId::LIFECYCLE => connection
                .call::<proc::ConnectDomainEventDeregister>(&())
                .await
                .map(|_| ()),
            Some(None) => {
                connection
                    .call::<proc::ConnectDomainEventDeregisterAny>(&id.0)
                    .await
            }
        }
    }
}

async fn register(connection: &Connection, id: EventId) -> Result<(), Error> {
    let shared = connection.shared();
    let (procedure, payload) = if shared.callback_events() {
        let args: <proc::ConnectDomainEventCallbackRegisterAny as Call>::Args = (id.0, None);
        (
            Procedure::CONNECT_DOMAIN_EVENT_CALLBACK_REGISTER_ANY,
            xdr::to_bytes(&args),
        )
    } else if id == EventId::LIFECYCLE {
        (Procedure::CONNECT_DOMAIN_EVENT_REGISTER, xdr::to_bytes(&()))
    } else {
        (Procedure::CONNECT_DOMAIN_EVENT_REGISTER_ANY, xdr::to_bytes(&id.0))
    };
    let payload = payload.map_err(|source| Error::Encode { procedure, source })?;
    let deadline = shared.options.deadlines.call;
    let reply = shared
        .call(PROGRAM_REMOTE, procedure, payload, deadline, Some(id))
        .await?;
    if !shared.callback_events() {
        return Ok(());
    }
    let callback = xdr::from_bytes::<i32>(&reply).map_err(|source| Error::Decode { procedure, source })?;
    let known = shared.registry.lock().registered.get(&id).copied();
    if known != Some(Some(callback)) {
        // Two streams asked at the same moment: one registration is enough.
        connection
            .call::<proc::ConnectDomainEventCallbackDeregisterAny>(&callback)
            .await?;
    }
    Ok(())
}

/// Events of one connection, in the order they arrived. Ends when the connection does.
pub struct EventStream {
    queue: Arc<Queue<Delivery>>,
    attachment: Attachment,
}

impl std::fmt::Debug for EventStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EventStream")
            .field("waiting", &self.queue.len())
            .finish_non_exhaustive()
    }
}

impl EventStream {
    /// The next event or gap; `None` when the connection is over and everything has been taken. Safe to cancel.
    pub async fn next(&mut self) -> Option<Delivery> {
        self.queue.next().await
    }

    /// The next event or gap if there is one already.
    pub fn try_next(&mut self) -> Option<Delivery> {
        self.queue.try_next()
    }

    /// How many events wait to be taken.
    pub fn waiting(&self) -> usize {
        self.queue.len()
    }

    /// Also deliver events of this id.
    pub async fn add(&mut self, connection: &Connection, id: EventId) -> Result<(), Error> {
        self.attachment.add(connection, id).await
    }

    /// No longer deliver events of this id.
    pub async fn remove(&mut self, connection: &Connection, id: EventId) -> Result<(), Error> {
        self.attachment.remove(connection, id).await
    }
}

/// A stream, and which of the wanted events the daemon does not have.
#[derive(Debug)]
pub struct Subscription {
    /// The events.
    pub stream: EventStream,
    /// What the daemon refused, with its words. The rest of the stream works.
    pub unsupported: Vec<(EventId, Error)>,
}

impl Connection {
    /// An event stream without any events yet; see [`EventStream::add`].
    pub fn events(&self) -> EventStream {
        let options = &self.shared().options;
        let queue = Arc::new(Queue::new(options.event_capacity, options.event_bytes));
        let attachment = Attachment::new(self, Arc::clone(&queue) as Arc<dyn Sink>);
        EventStream { queue, attachment }
    }

    /// A stream of these events. Ids the daemon does not know are reported, not fatal.
    pub async fn subscribe(&self, ids: &[EventId]) -> Result<Subscription, Error> {
        let stream = self.events();
        let unsupported = add_all(self, &stream.attachment, ids).await?;
        Ok(Subscription { stream, unsupported })
    }
}

/// Registers one by one; an id the daemon refuses is remembered, a lost connection ends it.
pub(crate) async fn add_all(
    connection: &Connection,
    attachment: &Attachment,
    ids: &[EventId],
) -> Result<Vec<(EventId, Error)>, Error> {
    let mut unsupported = Vec::new();
    for id in ids {
        match attachment.add(connection, *id).await {
            Ok(()) => {}
            Err(error @ Error::Rpc { .. }) => unsupported.push((*id, error)),
            Err(error) => return Err(error),
        }
    }
    Ok(unsupported)
}
