// SPDX-License-Identifier: Apache-2.0
//! One client of a daemon: reads its calls, answers those that belong to the RPC layer, hands the rest to the driver,
//! and sends it events. The handle can also misbehave on purpose, for tests of clients.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};

use super::register::Registrations;
use super::{Handler, Reply, Request, ServerOptions};
use crate::error::{CloseReason, RpcError, code, domain};
use crate::event::{CONNECTION_CLOSED, EventBody, EventId};
use crate::frame::{
    self, Frame, FrameReader, FrameWriter, Header, KEEPALIVE_PING, KEEPALIVE_PONG, Kind, PROGRAM_KEEPALIVE,
    PROGRAM_QEMU, PROGRAM_REMOTE, Status, VERSION,
};
use crate::procedure::{Procedure, calls, feature, flags};
use crate::pulse::Pulse;
use crate::transport::{ReadHalf, Stream, WriteHalf};
use crate::types::{AuthType, Domain};
use crate::xdr::{Encode, List};

static NEXT_ID: AtomicU64 = AtomicU64::new(1);

#[derive(Debug, Default)]
struct Standing {
    authenticated: bool,
    opened: bool,
    read_only: bool,
}

struct Inner {
    id: u64,
    endpoint: String,
    options: ServerOptions,
    standing: Mutex<Standing>,
    registrations: Mutex<Registrations>,
    outgoing: mpsc::Sender<Bytes>,
    over: watch::Sender<Option<CloseReason>>,
    keepalive_on: watch::Sender<bool>,
    reading: watch::Sender<bool>,
    frozen: watch::Sender<bool>,
    pulse: Pulse,
}

/// A handle to a connected client; clones are the same client.
#[derive(Clone)]
pub struct Client(Arc<Inner>);

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client")
            .field("id", &self.0.id)
            .field("endpoint", &self.0.endpoint)
            .finish()
    }
}

/// Serves a client on this stream until it goes or is sent away.
pub fn serve<H: Handler>(stream: Stream, handler: Arc<H>, options: ServerOptions) -> Client {
    let (outgoing, queued) = mpsc::channel(options.max_queued.max(1));
    let standing = Standing {
        authenticated: options.auth.contains(&AuthType::None),
        ..Standing::default()
    };
    let client = Client(Arc::new(Inner {
        id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
        endpoint: stream.endpoint,
        standing: Mutex::new(standing),
        registrations: Mutex::default(),
        outgoing,
        over: watch::Sender::new(None),
        keepalive_on: watch::Sender::new(false),
        reading: watch::Sender::new(true),
        frozen: watch::Sender::new(false),
        pulse: Pulse::new(),
        options,
    }));
    tokio::spawn(write_task(client.clone(), stream.writer, queued));
    tokio::spawn(keepalive_task(client.clone()));
    tokio::spawn(read_task(client.clone(), stream.reader, handler));
    client
}

impl Client {
    /// Different for every client of this process.
    pub fn id(&self) -> u64 {
        self.0.id
    }

    /// Where it came in.
    pub fn endpoint(&self) -> &str {
        &self.0.endpoint
    }

    /// Whether it opened the driver read-only.
    pub fn read_only(&self) -> bool {
        self.0.standing.lock().read_only
    }

    /// Whether it opened the driver.
    pub fn is_open(&self) -> bool {
        self.0.standing.lock().opened
    }

    /// Which events it wants to hear of.
    pub fn registered(&self) -> Vec<EventId> {
        self.0.registrations.lock().ids()
    }

    /// Tells it about an event, once per registration that matches. A client with a full queue is dropped.
    pub fn publish(&self, guest: &Domain, body: &EventBody) {
        let messages = self.0.registrations.lock().messages(guest, body);
        for event in messages {
            if let Some(procedure) = event.procedure() {
                self.message(procedure, &event);
            }
        }
    }

    /// Tells it that the driver's backend is gone, if it asked to be told.
    pub fn publish_backend_closed(&self, reason: i32) {
        if self.0.registrations.lock().close_callback {
            self.message(CONNECTION_CLOSED, &reason);
        }
    }

    fn message<T: Encode>(&self, procedure: i32, payload: &T) {
        match frame::encode(&Header::message(PROGRAM_REMOTE, procedure), payload) {
            Ok(bytes) => self.send_raw(bytes),
            Err(error) => tracing::error!(client = self.0.id, procedure, %error, "event cannot be sent"),
        }
    }

    /// Sends any bytes: whole frames, wrong ones, or half ones.
    pub fn send_raw(&self, bytes: Bytes) {
        if self.0.outgoing.try_send(bytes).is_err() {
            self.close_for(CloseReason::Io(
                "the client takes nothing from its queue".to_owned(),
            ));
        }
    }

    /// Stops or continues to read what it sends.
    pub fn set_reading(&self, yes: bool) {
        self.0.reading.send_replace(yes);
    }

    /// Neither reads from it nor writes to it, as if the daemon's process were stopped; or continues.
    pub fn set_frozen(&self, yes: bool) {
        self.0.frozen.send_replace(yes);
        self.set_reading(!yes);
    }

    /// Sends it away without a word.
    pub fn close(&self) {
        self.close_for(CloseReason::Local);
    }

    /// Completes when it is gone.
    pub async fn closed(&self) -> CloseReason {
        let mut over = self.0.over.subscribe();
        match over.wait_for(Option::is_some).await {
            Ok(reason) => reason.clone().unwrap_or(CloseReason::Local),
            Err(_) => CloseReason::Local,
        }
    }

    /// Whether it is gone.
    pub fn is_closed(&self) -> bool {
        self.0.over.borrow().is_some()
    }

    fn close_for(&self, reason: CloseReason) {
        self.0.over.send_if_modified(|over| {
            let first = over.is_none();
            over.get_or_insert(reason);
            first
        });
    }

    fn keepalive(&self, procedure: i32) {
        if let Ok(bytes) = Frame::keepalive(procedure).to_bytes() {
            self.0.outgoing.try_send(bytes).ok();
        }
    }

    async fn respond(&self, header: &Header, result: Result<Reply, RpcError>) {
        let frame = match result {
            Ok(Reply(payload)) => Frame {
                header: header.reply(Status::Ok),
                payload,
            }
            .to_bytes(),
            Err(error) => frame::encode(&header.reply(Status::Error), &error),
        };
        match frame {
            Ok(bytes) => {
                self.0.outgoing.send(bytes).await.ok();
            }
            Err(error) => {
                let text = format!("reply cannot be sent: {error}");
                let error = RpcError::new(code::RPC, domain::RPC, text);
                if let Ok(bytes) = frame::encode(&header.reply(Status::Error), &error) {
                    self.0.outgoing.send(bytes).await.ok();
                }
            }
        }
    }

    /// Answers what belongs to the RPC layer; `None` leaves the call to the driver.
    fn answer_own(&self, request: &Request) -> Option<Result<Reply, RpcError>> {
        let (opened, read_only) = {
            let standing = self.0.standing.lock();
            (standing.opened, standing.read_only)
        };
        if let Some(text) = read_only.then(|| forbidden(request)).flatten() {
            return Some(Err(RpcError::new(
                code::OPERATION_DENIED,
                domain::DOMAIN_API,
                text,
            )));
        }
        let answer = match request.procedure {
            Procedure::AUTH_LIST => {
                request.answer::<calls::AuthList>(|()| Ok(List(self.0.options.auth.clone())))
            }
            Procedure::AUTH_POLKIT => request.answer::<calls::AuthPolkit>(|()| self.polkit()),
            _ if !self.0.standing.lock().authenticated => Err(rpc("authentication required")),
            Procedure::CONNECT_SUPPORTS_FEATURE => return self.feature(request, opened),
            Procedure::CONNECT_OPEN if opened => Err(RpcError::new(
                code::INTERNAL,
                domain::REMOTE,
                "internal error: connection already open",
            )),
            Procedure::CONNECT_OPEN => return None,
            _ if !opened => Err(not_open()),
            Procedure::CONNECT_CLOSE => request.answer::<calls::ConnectClose>(|()| {
                self.0.standing.lock().opened = false;
                Ok(())
            }),
            _ => return self.answer_registration(request),
        };
        Some(answer)
    }

    fn answer_registration(&self, request: &Request) -> Option<Result<Reply, RpcError>> {
        let options = &self.0.options;
        let mut own = self.0.registrations.lock();
        Some(match request.procedure {
            Procedure::CONNECT_DOMAIN_EVENT_CALLBACK_REGISTER_ANY if options.event_callbacks => {
                request.answer::<calls::ConnectDomainEventCallbackRegisterAny>(|(id, only)| {
                    own.add(options, EventId(id), only.as_ref())
                })
            }
            Procedure::CONNECT_DOMAIN_EVENT_CALLBACK_DEREGISTER_ANY if options.event_callbacks => {
                request
                    .answer::<calls::ConnectDomainEventCallbackDeregisterAny>(|callback| own.remove(callback))
            }
            Procedure::CONNECT_DOMAIN_EVENT_REGISTER => {
                request.answer::<calls::ConnectDomainEventRegister>(|()| {
                    own.add_legacy(options, EventId::LIFECYCLE).map(|()| 1)
                })
            }
            Procedure::CONNECT_DOMAIN_EVENT_DEREGISTER => request
                .answer::<calls::ConnectDomainEventDeregister>(|()| {
                    own.remove_legacy(EventId::LIFECYCLE).map(|()| 0)
                }),
            Procedure::CONNECT_DOMAIN_EVENT_REGISTER_ANY => request
                .answer::<calls::ConnectDomainEventRegisterAny>(|id| own.add_legacy(options, EventId(id))),
            Procedure::CONNECT_DOMAIN_EVENT_DEREGISTER_ANY => {
                request.answer::<calls::ConnectDomainEventDeregisterAny>(|id| own.remove_legacy(EventId(id)))
            }
            Procedure::CONNECT_REGISTER_CLOSE_CALLBACK => {
                own.close_callback = true;
                Ok(Reply::empty())
            }
            Procedure::CONNECT_UNREGISTER_CLOSE_CALLBACK => {
                own.close_callback = false;
                Ok(Reply::empty())
            }
            _ => return None,
        })
    }

    fn feature(&self, request: &Request, opened: bool) -> Option<Result<Reply, RpcError>> {
        let wanted = match request.args::<calls::ConnectSupportsFeature>() {
            Ok(wanted) => wanted,
            Err(error) => return Some(Err(error)),
        };
        let yes = |yes: bool| Some(Reply::of::<calls::ConnectSupportsFeature>(&i32::from(yes)));
        match wanted {
            feature::KEEPALIVE => {
                self.0.keepalive_on.send_replace(true);
                yes(true)
            }
            _ if !opened => Some(Err(not_open())),
            feature::EVENT_CALLBACK => yes(self.0.options.event_callbacks),
            feature::CLOSE_CALLBACK | feature::TYPED_PARAM_STRING => yes(true),
            _ => None,
        }
    }

    fn polkit(&self) -> Result<i32, RpcError> {
        if !self.0.options.auth.contains(&AuthType::Polkit) {
            return Err(RpcError::new(
                code::AUTH_FAILED,
                domain::RPC,
                "authentication failed: unsupported mechanism",
            ));
        }
        if !self.0.options.polkit_accepts {
            let text = "authentication unavailable: no polkit agent available to authenticate action \
                        'org.libvirt.unix.manage'";
            return Err(RpcError::new(code::AUTH_UNAVAILABLE, domain::RPC, text));
        }
        self.0.standing.lock().authenticated = true;
        Ok(1)
    }

    async fn open<H: Handler>(&self, handler: &H, request: &Request) -> Result<Reply, RpcError> {
        let (name, open_flags) = request.args::<calls::ConnectOpen>()?;
        let Some(name) = name else {
            let text = "internal error: no connection URI was given";
            return Err(RpcError::new(code::INTERNAL, domain::REMOTE, text));
        };
        let read_only = self.0.options.read_only || open_flags & flags::CONNECT_RO != 0;
        handler.open(self, &name, read_only).await?;
        let mut standing = self.0.standing.lock();
        standing.opened = true;
        standing.read_only = read_only;
        Ok(Reply::empty())
    }

    async fn answer<H: Handler>(
        self,
        handler: Arc<H>,
        header: Header,
        payload: Bytes,
        slot: OwnedSemaphorePermit,
    ) {
        let request = Request {
            program: header.program,
            procedure: Procedure(header.procedure),
            serial: header.serial,
            payload,
        };
        let known = header.version == VERSION && matches!(header.program, PROGRAM_REMOTE | PROGRAM_QEMU);
        let result = if !known {
            let text = format!(
                "Cannot find program {} version {}",
                header.program, header.version
            );
            Err(rpc(&text))
        } else if header.program == PROGRAM_REMOTE && request.procedure.name().is_none() {
            Err(rpc(&format!("unknown procedure: {}", header.procedure)))
        } else if let Some(own) = self.answer_own(&request) {
            own
        } else if request.procedure == Procedure::CONNECT_OPEN {
            self.open(handler.as_ref(), &request).await
        } else {
            handler.call(&self, request).await
        };
        self.respond(&header, result).await;
        drop(slot);
    }
}

/// Why a read-only connection may not make this call: it writes, or asks for XML with secrets in it.
fn forbidden(request: &Request) -> Option<String> {
    let function = request.procedure.function();
    if request.program != PROGRAM_REMOTE || request.procedure.needs_write() {
        return Some(format!(
            "operation forbidden: read only access prevents {function}"
        ));
    }
    let secure = request.procedure == Procedure::DOMAIN_GET_XML_DESC
        && request
            .args::<calls::DomainGetXmlDesc>()
            .is_ok_and(|(_, asked)| asked & flags::XML_SECURE != 0);
    secure.then(|| format!("operation forbidden: {function} with secure flag"))
}

fn rpc(text: &str) -> RpcError {
    RpcError::new(code::RPC, domain::RPC, text)
}

fn not_open() -> RpcError {
    RpcError::new(
        code::INTERNAL,
        domain::REMOTE,
        "internal error: connection not open",
    )
}

async fn read_task<H: Handler>(client: Client, reader: ReadHalf, handler: Arc<H>) {
    let slots = Arc::new(Semaphore::new(client.0.options.max_client_requests.max(1)));
    let reason = tokio::select! {
        biased;
        reason = client.closed() => reason,
        reason = read_calls(&client, reader, &handler, &slots) => reason,
    };
    client.close_for(reason);
    handler.closed(&client);
}

async fn read_calls<H: Handler>(
    client: &Client,
    reader: ReadHalf,
    handler: &Arc<H>,
    slots: &Arc<Semaphore>,
) -> CloseReason {
    let mut reader = FrameReader::new(reader);
    let mut reading = client.0.reading.subscribe();
    loop {
        // With all slots taken nothing is read, not even keepalive: exactly what libvirtd does.
        let Ok(slot) = Arc::clone(slots).acquire_owned().await else {
            return CloseReason::Local;
        };
        if reading.wait_for(|yes| *yes).await.is_err() {
            return CloseReason::Local;
        }
        // Reading is safe to cancel, so it can be stopped in the middle of a frame.
        let next = tokio::select! {
            biased;
            _ = reading.wait_for(|yes| !*yes) => continue,
            next = reader.next() => next,
        };
        let frame = match next {
            Ok(Some(frame)) => frame,
            Ok(None) => return CloseReason::Eof,
            Err(error) => return error.into(),
        };
        client.0.pulse.heard();
        match (frame.header.program, frame.header.kind) {
            (PROGRAM_KEEPALIVE, Kind::Message) => {
                if frame.header.procedure == KEEPALIVE_PING {
                    client.keepalive(KEEPALIVE_PONG);
                }
            }
            (_, Kind::Call) => {
                let answer = client
                    .clone()
                    .answer(Arc::clone(handler), frame.header, frame.payload, slot);
                let client = client.clone();
                // A call that is still being worked on when the client goes has nobody to answer to.
                tokio::spawn(async move {
                    tokio::select! {
                        biased;
                        _ = client.closed() => {}
                        () = answer => {}
                    }
                });
            }
            (_, Kind::CallWithFds) => {
                client
                    .respond(&frame.header, Err(rpc("file descriptors are not supported")))
                    .await;
            }
            (_, Kind::Message | Kind::Stream | Kind::StreamHole) => {}
            (_, Kind::Reply | Kind::ReplyWithFds) => {
                return CloseReason::Protocol("the client sent a reply".to_owned());
            }
        }
    }
}

async fn write_task(client: Client, writer: WriteHalf, mut queued: mpsc::Receiver<Bytes>) {
    let mut writer = FrameWriter::new(writer);
    let mut frozen = client.0.frozen.subscribe();
    let work = async {
        while let Some(bytes) = queued.recv().await {
            frozen.wait_for(|yes| !*yes).await.ok();
            writer.write(&bytes).await?;
            if queued.is_empty() {
                writer.flush().await?;
            }
        }
        Ok::<(), std::io::Error>(())
    };
    let result = tokio::select! {
        biased;
        _ = client.closed() => Ok(()),
        result = work => result,
    };
    if let Err(error) = result {
        client.close_for(CloseReason::Io(error.to_string()));
    } else {
        tokio::time::timeout(Duration::from_secs(1), writer.shutdown())
            .await
            .ok();
    }
}

async fn keepalive_task(client: Client) {
    let mut on = client.0.keepalive_on.subscribe();
    let mut frozen = client.0.frozen.subscribe();
    let work = async {
        if on.wait_for(|yes| *yes).await.is_err() {
            std::future::pending::<()>().await;
        }
        loop {
            let ping = || client.keepalive(KEEPALIVE_PING);
            let dead = client.0.pulse.death(&client.0.options.keepalive, ping).await;
            if !*frozen.borrow_and_update() {
                return dead;
            }
            // A stopped process counts nothing; it begins again when it continues.
            frozen.wait_for(|yes| !*yes).await.ok();
            client.0.pulse.heard();
        }
    };
    tokio::select! {
        biased;
        _ = client.closed() => {}
        (silence, pings) = work => client.close_for(CloseReason::Keepalive { silence, pings }),
    }
}
