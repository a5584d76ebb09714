// SPDX-License-Identifier: Apache-2.0
//! The inside of a connection: one task reads frames and hands them out, one writes, one watches for signs of life.
//! The reader never waits for anybody. A call that was given up keeps its slot until the daemon answers, because it
//! still counts against the daemon's own limit.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot, watch};
use tokio::time::Instant;

use super::Options;
use super::events::Registry;
use crate::error::{CloseReason, Error, rpc_error};
use crate::event::{CONNECTION_CLOSED, Event, EventId};
use crate::frame::{
    Frame, FrameReader, FrameWriter, Header, KEEPALIVE_PING, KEEPALIVE_PONG, Kind, PROGRAM_KEEPALIVE,
    PROGRAM_REMOTE, Status, VERSION,
};
use crate::procedure::Procedure;
use crate::pulse::Pulse;
use crate::transport::{ReadHalf, Stream, WriteHalf};
use crate::xdr;

/// Room for pings and pongs beside the calls.
const SPARE: usize = 16;

/// A call that waits for its reply. Without `answer` its caller has left.
struct Waiting {
    program: u32,
    procedure: Procedure,
    answer: Option<oneshot::Sender<Result<Bytes, Error>>>,
    /// The event this call registers for: the reader books the callback id even if the caller has left.
    registers: Option<EventId>,
    _slot: OwnedSemaphorePermit,
}

#[derive(Default)]
struct Pending {
    serial: u32,
    calls: HashMap<u32, Waiting>,
    over: bool,
}

/// What all handles and tasks of a connection share.
pub(crate) struct Shared {
    pub(crate) endpoint: String,
    pub(crate) options: Options,
    pub(super) registry: Mutex<Registry>,
    outgoing: mpsc::Sender<Bytes>,
    pending: Mutex<Pending>,
    slots: Arc<Semaphore>,
    over: watch::Sender<Option<CloseReason>>,
    callback_events: AtomicBool,
    pulse: Pulse,
    sent: AtomicU64,
}

impl Shared {
    /// Takes the stream over and starts the tasks.
    pub(super) fn start(stream: Stream, options: Options) -> Arc<Self> {
        let slots = options.max_in_flight.max(1);
        let (outgoing, queued) = mpsc::channel(slots + SPARE);
        let shared = Arc::new(Self {
            endpoint: stream.endpoint,
            registry: Mutex::new(Registry::default()),
            outgoing,
            pending: Mutex::new(Pending::default()),
            slots: Arc::new(Semaphore::new(slots)),
            over: watch::Sender::new(None),
            callback_events: AtomicBool::new(true),
            pulse: Pulse::new(),
            sent: AtomicU64::new(0),
            options,
        });
        tokio::spawn(read_task(Arc::clone(&shared), stream.reader));
        tokio::spawn(write_task(Arc::clone(&shared), stream.writer, queued));
        if !shared.options.keepalive.interval.is_zero() {
            tokio::spawn(keepalive_task(Arc::clone(&shared)));
        }
        shared
    }

    pub(super) fn deadline_of(&self, procedure: Procedure) -> Duration {
        match procedure {
            Procedure::CONNECT_GET_CAPABILITIES | Procedure::CONNECT_GET_DOMAIN_CAPABILITIES => {
                self.options.deadlines.slow
            }
            _ => self.options.deadlines.call,
        }
    }

    pub(super) fn set_callback_events(&self, yes: bool) {
        self.callback_events
            .store(yes && !self.options.legacy_events, Ordering::Relaxed);
    }

    pub(super) fn callback_events(&self) -> bool {
        self.callback_events.load(Ordering::Relaxed)
    }

    pub(super) fn calls_sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    pub(super) fn calls_pending(&self) -> usize {
        self.pending.lock().calls.len()
    }

    pub(crate) fn close_reason(&self) -> Option<CloseReason> {
        self.over.borrow().clone()
    }

    pub(super) fn watch_closed(&self) -> watch::Receiver<Option<CloseReason>> {
        self.over.subscribe()
    }

    pub(super) async fn closed(&self) -> CloseReason {
        let mut over = self.over.subscribe();
        loop {
            if let Some(reason) = over.borrow_and_update().clone() {
                return reason;
            }
            if over.changed().await.is_err() {
                return CloseReason::Local;
            }
        }
    }

    /// Whether this is the first reason.
    fn mark_over(&self, reason: &CloseReason) -> bool {
        self.over.send_if_modified(|over| {
            let first = over.is_none();
            over.get_or_insert_with(|| reason.clone());
            first
        })
    }

    /// Ends the connection; the first reason counts.
    pub(crate) fn close(&self, reason: &CloseReason) {
        if !self.mark_over(reason) {
            return;
        }
        let calls = {
            let mut pending = self.pending.lock();
            pending.over = true;
            std::mem::take(&mut pending.calls)
        };
        for (_, waiting) in calls {
            if let Some(answer) = waiting.answer {
                answer
                    .send(Err(Error::closed(waiting.procedure, reason.clone())))
                    .ok();
            }
        }
        self.slots.close();
        self.registry.lock().close();
    }

    fn why(&self) -> CloseReason {
        self.close_reason().unwrap_or(CloseReason::Local)
    }

    /// One call from request to reply.
    pub(super) async fn call(
        &self,
        program: u32,
        procedure: Procedure,
        payload: Bytes,
        deadline: Duration,
        registers: Option<EventId>,
    ) -> Result<Bytes, Error> {
        let mut report = Report {
            shared: self,
            procedure,
            begun: Instant::now(),
            done: false,
        };
        let exchange = self.exchange(program, procedure, payload, registers);
        let result = if let Ok(result) = tokio::time::timeout(deadline, exchange).await {
            result
        } else {
            self.close_when_stuck();
            Err(Error::Timeout {
                what: procedure.to_string(),
                after: deadline,
            })
        };
        report.finish(result.as_ref().map(|_| ()));
        result
    }

    async fn exchange(
        &self,
        program: u32,
        procedure: Procedure,
        payload: Bytes,
        registers: Option<EventId>,
    ) -> Result<Bytes, Error> {
        let Ok(slot) = Arc::clone(&self.slots).acquire_owned().await else {
            return Err(Error::closed(procedure, self.why()));
        };
        // Reserved first, so that a call is either not sent at all or booked and sent.
        let Ok(place) = self.outgoing.reserve().await else {
            return Err(Error::closed(procedure, self.why()));
        };
        let (answer, wait) = oneshot::channel();
        let serial = {
            let mut pending = self.pending.lock();
            if pending.over {
                return Err(Error::closed(procedure, self.why()));
            }
            let serial = next_serial(&mut pending);
            let waiting = Waiting {
                program,
                procedure,
                answer: Some(answer),
                registers,
                _slot: slot,
            };
            pending.calls.insert(serial, waiting);
            serial
        };
        let abandon = Abandon { shared: self, serial };
        let frame = Frame {
            header: Header::call(program, procedure.0, serial),
            payload,
        };
        match frame.to_bytes() {
            Ok(bytes) => place.send(bytes),
            Err(source) => {
                self.pending.lock().calls.remove(&serial);
                return Err(Error::Encode { procedure, source });
            }
        }
        self.sent.fetch_add(1, Ordering::Relaxed);
        let result = wait
            .await
            .unwrap_or_else(|_| Err(Error::closed(procedure, self.why())));
        drop(abandon);
        result
    }

    /// With every slot held by a call nobody waits for any more, nothing can be done on this connection.
    fn close_when_stuck(&self) {
        let pending = self.pending.lock();
        let abandoned = pending
            .calls
            .values()
            .filter(|waiting| waiting.answer.is_none())
            .count();
        let all = self.options.max_in_flight.max(1);
        drop(pending);
        if abandoned >= all {
            self.close(&CloseReason::Stuck(all));
        }
    }

    /// What the reader does with one frame.
    fn handle(&self, frame: &Frame) -> Result<(), CloseReason> {
        let header = frame.header;
        if header.version != VERSION {
            return Err(CloseReason::Protocol(format!(
                "program version {}",
                header.version
            )));
        }
        match (header.program, header.kind) {
            (PROGRAM_KEEPALIVE, Kind::Message) => {
                if header.procedure == KEEPALIVE_PING {
                    self.send_keepalive(KEEPALIVE_PONG);
                }
                Ok(())
            }
            (PROGRAM_REMOTE, Kind::Message) => self.handle_event(header.procedure, &frame.payload),
            (_, Kind::Reply) => {
                self.handle_reply(frame);
                Ok(())
            }
            // Streams and descriptors are never asked for; events of other programs have no subscriber.
            (_, Kind::Message | Kind::Stream | Kind::StreamHole | Kind::ReplyWithFds) => {
                tracing::debug!(endpoint = %self.endpoint, ?header, "unexpected message ignored");
                Ok(())
            }
            (_, Kind::Call | Kind::CallWithFds) => Err(CloseReason::Protocol(
                "the peer sent a call, it is not a daemon".to_owned(),
            )),
        }
    }

    fn handle_reply(&self, frame: &Frame) {
        let header = frame.header;
        let Some(waiting) = self.pending.lock().calls.remove(&header.serial) else {
            tracing::debug!(endpoint = %self.endpoint, ?header, "reply to no call ignored");
            return;
        };
        let procedure = waiting.procedure;
        let result = if (header.program, header.procedure) != (waiting.program, procedure.0) {
            let text = format!(
                "reply {} carries the procedure {}",
                header.serial, header.procedure
            );
            Err(Error::closed(procedure, CloseReason::Protocol(text)))
        } else if header.status == Status::Ok {
            Ok(frame.payload.clone())
        } else {
            Err(rpc_error(procedure, &frame.payload))
        };
        if let (Some(id), Ok(payload)) = (waiting.registers, &result) {
            let callback = xdr::from_bytes::<i32>(payload)
                .ok()
                .filter(|_| self.callback_events());
            self.registry.lock().registered(id, callback);
        }
        if let Some(answer) = waiting.answer {
            answer.send(result).ok();
        }
    }

    fn handle_event(&self, procedure: i32, payload: &Bytes) -> Result<(), CloseReason> {
        if procedure == CONNECTION_CLOSED {
            return Err(CloseReason::Backend(xdr::from_bytes(payload).unwrap_or(0)));
        }
        let id = EventId::of_procedure(procedure).map(|(id, _)| id);
        if let Some(observer) = &self.options.observer {
            observer.event(id);
        }
        match Event::decode(procedure, payload) {
            Ok(event) => self.registry.lock().deliver(event, payload.len()),
            Err(error) => {
                tracing::warn!(endpoint = %self.endpoint, procedure, %error, "event not understood");
                self.registry.lock().missed(id);
            }
        }
        Ok(())
    }

    fn send_keepalive(&self, procedure: i32) {
        if let Ok(bytes) = Frame::keepalive(procedure).to_bytes() {
            // A full queue means the socket takes nothing; one more message would not help.
            self.outgoing.try_send(bytes).ok();
        }
    }
}

fn next_serial(pending: &mut Pending) -> u32 {
    loop {
        pending.serial = pending.serial.wrapping_add(1);
        if pending.serial != 0 && !pending.calls.contains_key(&pending.serial) {
            return pending.serial;
        }
    }
}

/// Marks a call as given up when its future goes; does nothing when it has been answered.
struct Abandon<'a> {
    shared: &'a Shared,
    serial: u32,
}

impl Drop for Abandon<'_> {
    fn drop(&mut self) {
        if let Some(waiting) = self.shared.pending.lock().calls.get_mut(&self.serial) {
            waiting.answer = None;
        }
    }
}

/// Tells the observer about a call exactly once, also when its caller leaves.
struct Report<'a> {
    shared: &'a Shared,
    procedure: Procedure,
    begun: Instant,
    done: bool,
}

impl Report<'_> {
    fn finish(&mut self, outcome: Result<(), &Error>) {
        self.done = true;
        if let Some(observer) = &self.shared.options.observer {
            observer.call(self.procedure, self.begun.elapsed(), Some(outcome));
        }
    }
}

impl Drop for Report<'_> {
    fn drop(&mut self) {
        if !self.done
            && let Some(observer) = &self.shared.options.observer
        {
            observer.call(self.procedure, self.begun.elapsed(), None);
        }
    }
}

async fn read_task(shared: Arc<Shared>, reader: ReadHalf) {
    let mut reader = FrameReader::new(reader);
    let over = shared.closed();
    tokio::pin!(over);
    let reason = loop {
        let next = tokio::select! {
            biased;
            _ = &mut over => return,
            next = reader.next() => next,
        };
        let outcome = match next {
            Ok(Some(frame)) => {
                shared.pulse.heard();
                shared.handle(&frame)
            }
            Ok(None) => Err(CloseReason::Eof),
            Err(error) => Err(error.into()),
        };
        if let Err(reason) = outcome {
            break reason;
        }
    };
    shared.close(&reason);
}

async fn write_task(shared: Arc<Shared>, writer: WriteHalf, mut queued: mpsc::Receiver<Bytes>) {
    let mut writer = FrameWriter::new(writer);
    let work = async {
        while let Some(bytes) = queued.recv().await {
            writer.write(&bytes).await?;
            if queued.is_empty() {
                writer.flush().await?;
            }
        }
        Ok::<(), std::io::Error>(())
    };
    let failed = tokio::select! {
        biased;
        _ = shared.closed() => false,
        result = work => match result {
            Ok(()) => false,
            Err(error) => {
                shared.close(&CloseReason::Io(error.to_string()));
                true
            }
        },
    };
    if !failed {
        // A peer that takes nothing must not keep the socket open.
        tokio::time::timeout(Duration::from_secs(1), writer.shutdown())
            .await
            .ok();
    }
}

async fn keepalive_task(shared: Arc<Shared>) {
    let ping = || shared.send_keepalive(KEEPALIVE_PING);
    tokio::select! {
        biased;
        _ = shared.closed() => {}
        (silence, pings) = shared.pulse.death(&shared.options.keepalive, ping) => {
            shared.close(&CloseReason::Keepalive { silence, pings });
        }
    }
}
