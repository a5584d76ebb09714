// SPDX-License-Identifier: Apache-2.0
//! The daemon's side of the protocol, for simulated hosts. It does what libvirtd's RPC layer does (set-up order,
//! authentication, keepalive, event registrations, read-only refusals, the limit of calls per client) and leaves what
//! a driver does to a [`Handler`]. It trusts a client as little as a client trusts it.

mod client;
mod listener;
mod register;

use std::collections::BTreeSet;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::AtomicI32;
use std::time::Duration;

use bytes::Bytes;

pub use client::{Client, serve};
pub use listener::{Incoming, Listener};

use crate::error::{RpcError, code, domain};
use crate::event::EventId;
use crate::procedure::{Call, Procedure};
use crate::pulse::Keepalive;
use crate::types::AuthType;
use crate::xdr;

/// How the daemon's RPC layer behaves.
#[derive(Debug, Clone)]
pub struct ServerOptions {
    /// Whether every client here is read-only, as on the read-only socket.
    pub read_only: bool,
    /// Ways to authenticate that are offered; a client must use one unless `none` is among them.
    pub auth: Vec<AuthType>,
    /// Whether polkit says yes.
    pub polkit_accepts: bool,
    /// Pings once the client said that it understands them.
    pub keepalive: Keepalive,
    /// Calls of one client under way at once; beyond that nothing is read from it, keepalive included.
    pub max_client_requests: usize,
    /// Clients a listener serves at once; more have to wait at the door.
    pub max_clients: usize,
    /// Messages that wait to be sent to one client; a client that lets them pile up is dropped.
    pub max_queued: usize,
    /// Source of callback ids: one per daemon, shared by all its clients.
    pub callback_ids: Arc<AtomicI32>,
    /// Event ids that can be registered.
    pub events: BTreeSet<EventId>,
    /// Whether event messages with callback ids exist; daemons before 1.3 had only the older form.
    pub event_callbacks: bool,
}

impl Default for ServerOptions {
    fn default() -> Self {
        Self {
            read_only: false,
            auth: vec![AuthType::None],
            polkit_accepts: true,
            keepalive: Keepalive {
                interval: Duration::from_secs(5),
                count: 5,
            },
            max_client_requests: 5,
            max_clients: 5_000,
            max_queued: 16_384,
            callback_ids: Arc::default(),
            events: EventId::ALL.iter().copied().filter(|id| id.0 <= 26).collect(),
            event_callbacks: true,
        }
    }
}

/// One call of a client.
#[derive(Debug, Clone)]
pub struct Request {
    /// Which program; the main one unless the client asks for extras.
    pub program: u32,
    /// What is called.
    pub procedure: Procedure,
    /// Its number.
    pub serial: u32,
    /// Its arguments.
    pub payload: Bytes,
}

impl Request {
    /// The arguments with their types.
    pub fn args<C: Call>(&self) -> Result<C::Args, RpcError> {
        xdr::from_bytes(&self.payload).map_err(|error| {
            let text = format!("Unable to decode message payload of {}: {error}", self.procedure);
            RpcError::new(code::RPC, domain::RPC, text)
        })
    }

    /// Decodes the arguments, lets `work` make the result, encodes it.
    pub fn answer<C: Call>(
        &self,
        work: impl FnOnce(C::Args) -> Result<C::Reply, RpcError>,
    ) -> Result<Reply, RpcError> {
        Reply::of::<C>(&work(self.args::<C>()?)?)
    }
}

/// The result of a call, encoded.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reply(pub Bytes);

impl Reply {
    /// A result with its type.
    pub fn of<C: Call>(value: &C::Reply) -> Result<Self, RpcError> {
        xdr::to_bytes(value).map(Self).map_err(|error| {
            let text = format!("Unable to encode message payload of {}: {error}", C::PROCEDURE);
            RpcError::new(code::RPC, domain::RPC, text)
        })
    }

    /// The result of a call that has none.
    pub fn empty() -> Self {
        Self::default()
    }
}

/// What a driver does. Calls of one client run side by side, as in libvirtd.
pub trait Handler: Send + Sync + 'static {
    /// A client wants to open the driver of this URI; error 5 when there is none.
    fn open(
        &self,
        client: &Client,
        uri: &str,
        read_only: bool,
    ) -> impl Future<Output = Result<(), RpcError>> + Send;

    /// A call of an open connection that the RPC layer does not answer itself. Answer
    /// [`RpcError::unsupported`] to what the driver does not have.
    fn call(&self, client: &Client, request: Request)
    -> impl Future<Output = Result<Reply, RpcError>> + Send;

    /// The client is gone.
    fn closed(&self, client: &Client) {
        let _ = client;
    }
}
