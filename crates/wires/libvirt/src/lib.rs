// SPDX-License-Identifier: Apache-2.0
//! The libvirt RPC protocol in pure Rust: codec, asynchronous client, and the server half that simulated hosts are
//! made of. It knows libvirt and nothing about the product that uses it.
//!
//! | module | holds |
//! | --- | --- |
//! | [`xdr`], [`limits`] | values on the wire, and how large they may be |
//! | [`frame`] | length, header, payload |
//! | [`procedure`], [`types`], [`event`], [`names`] | what can be called, what comes back, what is announced, in words |
//! | [`uri`], [`tls`], [`transport`] | how a daemon is reached |
//! | [`client`] | one connection: many calls at once, deadlines, keepalive, event streams |
//! | [`session`] | a connection that comes back: its state is published, its events are registered again |
//! | [`server`] | the other side: accepts, decodes calls, answers, sends events |
//!
//! Promises: no input from the peer makes it panic or allocate beyond the protocol's limits; every call has a
//! deadline; a slow reader of events never holds up calls and is told when it missed something
//! ([`client::Delivery::Lagged`]); a lost connection is a state the user sees, not an exit.
//!
//! ```no_run
//! use cobaltcore_libvirt::event::EventId;
//! use cobaltcore_libvirt::session::{Notice, Session, SessionConfig};
//!
//! # async fn example() -> Result<(), cobaltcore_libvirt::Error> {
//! let config = SessionConfig::new("qemu:///system".parse()?).with_events([EventId::LIFECYCLE]);
//! let (session, mut notices) = Session::start(config);
//! while let Some(notice) = notices.next().await {
//!     match notice {
//!         Notice::Up { connection, generation, .. } => {
//!             // Events are registered already; whatever happens during this list arrives after it.
//!             let guests = connection.list_all_domains(3).await?;
//!             println!("generation {generation}: {} guests", guests.len());
//!         }
//!         Notice::Event { event, .. } => println!("{}: {:?}", event.domain.name, event.body),
//!         Notice::Lagged { missed } => println!("missed {missed} events, list again"),
//!         Notice::Down { why, .. } => println!("unreachable: {why}"),
//!     }
//! }
//! # session.stop().await;
//! # Ok(())
//! # }
//! ```

pub mod client;
pub mod error;
pub mod event;
pub mod frame;
pub mod limits;
pub mod names;
pub mod procedure;
mod pulse;
pub mod server;
pub mod session;
pub mod tls;
pub mod transport;
pub mod types;
pub mod uri;
pub mod xdr;

pub use client::{Connection, Options};
pub use error::{CloseReason, Error, RpcError};
pub use event::{Event, EventBody, EventId};
pub use procedure::{Procedure, calls};
pub use session::Session;
pub use uri::Uri;
