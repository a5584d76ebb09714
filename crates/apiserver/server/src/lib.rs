// SPDX-License-Identifier: Apache-2.0
//! The embedded Kubernetes API server: the wire protocol of kube-apiserver on one SQLite file, or on
//! nothing but memory, started in milliseconds inside any process.
//!
//! The order of values: never accept what a real server refuses; never refuse what it accepts; same
//! side effects and event order; same texts; speed. It is no kubelet and no scheduler: it stores,
//! validates, admits, authorises, watches and collects.
//!
//! ```no_run
//! # async fn example() -> Result<(), cobaltcore_apiserver::ServerError> {
//! use cobaltcore_apiserver::{Config, Server};
//! let server = Server::start(Config { listen: vec!["127.0.0.1:0".parse().unwrap()], ..Config::default() }).await?;
//! println!("{}", server.url().unwrap());
//! server.stop().await;
//! # Ok(()) }
//! ```

mod admission;
mod api;
mod audit;
mod bootstrap;
mod call;
mod client;
mod clock;
mod config;
mod control;
mod convert;
mod deadline;
mod decode;
mod definitions;
mod delete;
mod discovery;
mod dispatch;
mod faults;
mod http;
mod in_place;
mod listen;
mod manifests;
mod meta;
mod metrics;
mod model;
mod modify;
mod negotiate;
mod nonresource;
mod openapi;
mod options;
mod parts;
mod patience;
mod read;
mod registry;
mod reqinfo;
mod rooms;
mod selector;
mod server;
mod size;
mod status;
mod store;
mod subresource;
mod syntax;
mod table;
pub mod testkit;
mod view;
mod virtuals;
mod watch;
mod write;
mod written;
mod yaml;

pub use admission::Handler as WebhookHandler;
pub use api::Api;
pub use client::InProcess;
pub use clock::Clock;
pub use cobaltcore_access::identity::User;
pub use config::{Authorization, Config};
pub use faults::{Effect, Fault, Faults};
pub use http::ResponseBody;
pub use server::{Server, ServerError};
pub use store::{Durability, Keys, Report, StoreError, backup, check};
