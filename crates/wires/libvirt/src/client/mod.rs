// SPDX-License-Identifier: Apache-2.0
//! One connection to a daemon. Any number of calls may be made at once; each has a deadline and may be dropped at any
//! time. Events arrive in streams of their own. When the connection ends, everything that waits is told why.

mod calls;
mod dispatch;
mod events;
pub(crate) mod queue;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::watch;

pub use events::{Delivery, EventStream, Subscription};

use crate::error::{CloseReason, Error};
use crate::event::EventId;
use crate::frame::PROGRAM_REMOTE;
use crate::procedure::{Call, Procedure, calls as proc, feature, flags};
pub use crate::pulse::Keepalive;
use crate::tls::TlsFiles;
use crate::transport::{self, Stream};
use crate::types::AuthType;
use crate::uri::Uri;
use crate::xdr;
pub(crate) use dispatch::Shared;
pub(crate) use events::{Attachment, Sink, add_all};

/// How long things may take.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Deadlines {
    /// Reaching the daemon, TLS included.
    pub connect: Duration,
    /// Each call of the set-up.
    pub handshake: Duration,
    /// An ordinary call.
    pub call: Duration,
    /// Capabilities and domain capabilities, which may have to wait for the daemon to probe every emulator.
    pub slow: Duration,
}

impl Default for Deadlines {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(5),
            handshake: Duration::from_secs(10),
            call: Duration::from_secs(30),
            slow: Duration::from_mins(3),
        }
    }
}

/// Sees every call and event, for metrics. Its functions must return quickly.
pub trait Observer: Send + Sync {
    /// A call is over, by answer, error, deadline or because its caller left (`None`).
    fn call(&self, procedure: Procedure, took: Duration, outcome: Option<Result<(), &Error>>);
    /// An event arrived.
    fn event(&self, id: Option<EventId>);
}

/// How a connection behaves.
#[derive(Clone)]
pub struct Options {
    /// Open the driver read-only and use the read-only socket.
    pub read_only: bool,
    /// How long things may take.
    pub deadlines: Deadlines,
    /// When silence becomes death.
    pub keepalive: Keepalive,
    /// Calls under way at once. A daemon stops reading at five by default, keepalive included, so stay below. A call
    /// that lasts (a migration, a save) takes one of these places; give it a connection of its own.
    pub max_in_flight: usize,
    /// Events a stream holds before it loses the oldest.
    pub event_capacity: usize,
    /// Bytes of events a stream holds before it loses the oldest.
    pub event_bytes: usize,
    /// Certificates for TLS; the system's when absent.
    pub tls: Option<TlsFiles>,
    /// Whether to go through polkit when the daemon offers nothing better. Refused otherwise.
    pub polkit: bool,
    /// Register events in the form older than callback ids, even if the daemon has them.
    pub legacy_events: bool,
    /// Sees every call and event.
    pub observer: Option<Arc<dyn Observer>>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            read_only: false,
            deadlines: Deadlines::default(),
            keepalive: Keepalive::default(),
            max_in_flight: 4,
            event_capacity: 10_000,
            event_bytes: 16 << 20,
            tls: None,
            polkit: false,
            legacy_events: false,
            observer: None,
        }
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("read_only", &self.read_only)
            .field("deadlines", &self.deadlines)
            .field("keepalive", &self.keepalive)
            .field("max_in_flight", &self.max_in_flight)
            .finish_non_exhaustive()
    }
}

/// Ends the connection when the last handle goes.
struct Owner(Arc<Shared>);

impl Drop for Owner {
    fn drop(&mut self) {
        self.0.close(&CloseReason::Local);
    }
}

/// A handle to an open connection; clones share it, and it ends with the last of them.
#[derive(Clone)]
pub struct Connection {
    owner: Arc<Owner>,
    deadline: Option<Duration>,
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection")
            .field("endpoint", &self.shared().endpoint)
            .finish_non_exhaustive()
    }
}

impl Connection {
    /// Reaches the daemon, agrees on authentication and keepalive, and opens the driver.
    pub async fn connect(uri: &Uri, options: Options) -> Result<Self, Error> {
        let stream = transport::connect(
            uri,
            options.read_only,
            options.tls.as_ref(),
            options.deadlines.connect,
        )
        .await?;
        Self::over(stream, &uri.open_name(), options).await
    }

    /// The first of several libvirts whose driver is there; any other trouble ends the search.
    pub async fn connect_first(uris: &[Uri], options: &Options) -> Result<Self, Error> {
        let mut last = None;
        for uri in uris {
            match Self::connect(uri, options.clone()).await {
                Err(error) if error.is_driver_unavailable() => last = Some(error),
                other => return other,
            }
        }
        Err(last.unwrap_or_else(|| Error::Uri {
            uri: String::new(),
            why: "no URI was given".to_owned(),
        }))
    }

    /// The same over a byte stream that exists already; `open_name` is e.g. `qemu:///system`.
    pub async fn over(stream: Stream, open_name: &str, options: Options) -> Result<Self, Error> {
        let read_only = options.read_only;
        let handshake = options.deadlines.handshake;
        let polkit = options.polkit;
        let shared = Shared::start(stream, options);
        let connection = Self {
            owner: Arc::new(Owner(shared)),
            deadline: Some(handshake),
        };
        connection.authenticate(polkit).await?;
        // Allowed before the open call, and it makes the daemon send its own pings from here on.
        connection
            .call::<proc::ConnectSupportsFeature>(&feature::KEEPALIVE)
            .await?;
        let open_flags = if read_only { flags::CONNECT_RO } else { 0 };
        connection
            .call::<proc::ConnectOpen>(&(Some(open_name.to_owned()), open_flags))
            .await?;
        connection.ask_features().await?;
        Ok(Self {
            deadline: None,
            ..connection
        })
    }

    async fn authenticate(&self, polkit: bool) -> Result<(), Error> {
        let offered = self.call::<proc::AuthList>(&()).await?;
        if offered.is_empty() || offered.contains(&AuthType::None) {
            return Ok(());
        }
        if polkit && offered.contains(&AuthType::Polkit) {
            self.call::<proc::AuthPolkit>(&()).await?;
            return Ok(());
        }
        Err(Error::Auth {
            endpoint: self.endpoint().to_owned(),
            offered: offered.0,
        })
    }

    async fn ask_features(&self) -> Result<(), Error> {
        let callbacks = self.supports(feature::EVENT_CALLBACK).await?;
        self.shared().set_callback_events(callbacks);
        if self.supports(feature::CLOSE_CALLBACK).await? {
            optional(self.call::<proc::ConnectRegisterCloseCallback>(&()).await)?;
        }
        Ok(())
    }

    async fn supports(&self, feature: i32) -> Result<bool, Error> {
        let answer = self.call::<proc::ConnectSupportsFeature>(&feature).await;
        Ok(optional(answer)?.is_some_and(|yes| yes != 0))
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.owner.0
    }

    /// Where this leads, for messages.
    pub fn endpoint(&self) -> &str {
        &self.shared().endpoint
    }

    /// The same connection with another deadline for every call made through this handle.
    pub fn with_deadline(&self, deadline: Duration) -> Self {
        Self {
            owner: Arc::clone(&self.owner),
            deadline: Some(deadline),
        }
    }

    /// Calls a procedure with its types.
    pub async fn call<C: Call>(&self, args: &C::Args) -> Result<C::Reply, Error> {
        let procedure = C::PROCEDURE;
        let payload = xdr::to_bytes(args).map_err(|source| Error::Encode { procedure, source })?;
        let reply = self.call_raw(PROGRAM_REMOTE, procedure, payload).await?;
        xdr::from_bytes(&reply).map_err(|source| Error::Decode { procedure, source })
    }

    /// Calls any procedure of any program with bytes, for what the table does not have.
    pub async fn call_raw(&self, program: u32, procedure: Procedure, payload: Bytes) -> Result<Bytes, Error> {
        let deadline = self
            .deadline
            .unwrap_or_else(|| self.shared().deadline_of(procedure));
        self.shared()
            .call(program, procedure, payload, deadline, None)
            .await
    }

    /// Completes when the connection is over.
    pub async fn closed(&self) -> CloseReason {
        self.shared().closed().await
    }

    /// Why the connection is over, or `None` while it works.
    pub fn close_reason(&self) -> Option<CloseReason> {
        self.shared().close_reason()
    }

    /// Follows whether the connection is over.
    pub fn watch_closed(&self) -> watch::Receiver<Option<CloseReason>> {
        self.shared().watch_closed()
    }

    /// Says goodbye to the daemon and ends the connection for all handles.
    pub async fn close(&self) {
        let goodbye = self.with_deadline(Duration::from_secs(1));
        // Whether the daemon still answers makes no difference to what happens next.
        goodbye.call::<proc::ConnectClose>(&()).await.ok();
        self.shared().close(&CloseReason::Local);
    }

    /// How many calls have been sent on this connection, the set-up included.
    pub fn calls_sent(&self) -> u64 {
        self.shared().calls_sent()
    }

    /// How many calls are under way or were given up without an answer.
    pub fn calls_pending(&self) -> usize {
        self.shared().calls_pending()
    }
}

/// An error the daemon reports is "no" here; a lost connection stays an error.
fn optional<T>(answer: Result<T, Error>) -> Result<Option<T>, Error> {
    match answer {
        Ok(value) => Ok(Some(value)),
        Err(Error::Rpc { .. }) => Ok(None),
        Err(other) => Err(other),
    }
}
