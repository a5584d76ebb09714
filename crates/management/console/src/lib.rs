// SPDX-License-Identifier: Apache-2.0
//! The console: a web page for the people on call. It shows the whole fleet as it is now, host by
//! host, and lets people act on it with their own rights in Kubernetes.
//!
//! One watch per kind feeds all viewers ([`fleet`]); what a page says is worked out by pure views
//! ([`views`]); who may see and do what is asked from Kubernetes ([`session`]). Pages are made on
//! the server and work without JavaScript; a small script keeps them current.

// A test that unwraps says where it failed just as well.
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod actions;
mod assets;
mod decisions;
mod error;
pub mod faults;
pub mod fleet;
pub mod ha;
mod live;
mod page;
pub mod session;
mod simulation;
mod site;
pub mod views;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;

use kube::Client;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub use error::Error;
use fleet::Fleet;
use ha::Ha;
use session::Sessions;

/// How to run a console.
#[derive(Clone, Default)]
pub struct Config {
    /// Where to listen; port 0 lets the system choose.
    pub listen: Option<SocketAddr>,
    /// Whether browsers reach it over TLS, through a proxy that ends it.
    pub behind_tls: bool,
    /// Short codes that stand for bearer tokens, so that a start can print a link.
    pub codes: HashMap<String, String>,
    /// The HA service; without one the console knows of no incident and says so.
    pub ha: Option<ha::Service>,
    /// What can be broken on purpose, where the world is simulated.
    pub faults: Option<Arc<dyn faults::Faults>>,
}

impl std::fmt::Debug for Config {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Config")
            .field("listen", &self.listen)
            .field("behind_tls", &self.behind_tls)
            .field("ha", &self.ha)
            .field("simulated", &self.faults.is_some())
            .finish_non_exhaustive()
    }
}

/// A console that listens.
#[derive(Debug)]
pub struct Console {
    address: SocketAddr,
    stop: CancellationToken,
    tasks: TaskTracker,
}

impl Console {
    /// Opens the port and begins to follow the fleet of the API server in `kube`. Tokens cross the
    /// wire at sign-in, so an address beyond this machine needs TLS in front.
    pub async fn start(config: Config, kube: &kube::Config) -> Result<Self, Error> {
        let Config {
            listen,
            behind_tls,
            codes,
            ha,
            faults,
        } = config;
        let listen = listen.unwrap_or_else(|| SocketAddr::from(([127, 0, 0, 1], 0)));
        if !listen.ip().is_loopback() && !behind_tls {
            return Err(Error::Config(format!(
                "{listen} can be reached from other machines and tokens would cross the network in clear text: \
                 listen on 127.0.0.1, or put a TLS proxy in front and say so (--behind-tls)"
            )));
        }
        let client = Client::try_from(kube.clone()).map_err(|source| Error::Kubernetes {
            what: "prepare a connection",
            source,
        })?;
        let unable = |source| Error::Listen {
            address: listen,
            source,
        };
        let socket = TcpListener::bind(listen).await.map_err(unable)?;
        let address = socket.local_addr().map_err(unable)?;
        let (stop, tasks, fleet) = (CancellationToken::new(), TaskTracker::new(), Fleet::default());
        fleet.follow(&client, &tasks, &stop);
        let ha = ha.map(|service| Ha::new(service, fleet.clone())).transpose()?;
        if let Some(ha) = &ha {
            ha.follow(&tasks, &stop);
        }
        let site = site::Site {
            fleet,
            ha,
            sessions: Arc::new(Sessions::new(kube, codes, faults.is_some())),
            faults,
            secure: behind_tls,
        };
        let ended = stop.clone();
        tasks.spawn(async move {
            let server = axum::serve(socket, site::router(site)).into_future();
            tokio::select! {
                result = server => if let Err(error) = result {
                    tracing::error!(%error, "the console stopped listening");
                },
                () = ended.cancelled() => {}
            }
        });
        tasks.close();
        Ok(Self { address, stop, tasks })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its address for a browser.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Ends it and everything it started.
    pub async fn stop(self) {
        self.stop.cancel();
        self.tasks.wait().await;
    }
}
