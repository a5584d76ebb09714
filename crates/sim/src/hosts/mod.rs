// SPDX-License-Identifier: Apache-2.0
//! One libvirt daemon per simulated host, on a local socket, on TCP, or both. Daemons come and go with their hosts: no
//! power or no process means no socket, a hung process accepts and never answers, a cut network closes TCP and leaves local
//! sockets alone.

mod driver;
mod guests;
pub(crate) mod stats;
mod xml;

use std::collections::{BTreeMap, HashMap};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use cobaltcore_libvirt::Procedure;
use cobaltcore_libvirt::server::{Client, Listener, ServerOptions};
use parking_lot::Mutex;
use tokio::task::JoinHandle;
use tokio_util::task::AbortOnDropHandle;

use self::driver::HostDriver;
use crate::error::Error;
use crate::world::{HostName, Libvirt, Power, World};

/// Where daemons listen.
#[derive(Debug, Clone)]
pub enum Place {
    /// One local socket per host, `NAME.sock` in this directory.
    Unix(PathBuf),
    /// One TCP port per host on the loopback interface, chosen by the system. Anybody on this machine can connect.
    Tcp,
}

/// The daemons of all hosts of a world; they end with this value.
pub struct Hosts {
    daemons: BTreeMap<HostName, Daemon>,
    _time: AbortOnDropHandle<()>,
}

impl std::fmt::Debug for Hosts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Hosts")
            .field("count", &self.daemons.len())
            .finish_non_exhaustive()
    }
}

struct Daemon {
    address: Address,
    driver: Arc<HostDriver>,
    _life: AbortOnDropHandle<()>,
}

#[derive(Debug, Clone)]
enum Address {
    Unix(PathBuf),
    Tcp(SocketAddr),
}

impl Hosts {
    /// Starts a daemon for every host the world has now.
    pub async fn start(world: &World, place: Place) -> Result<Self, Error> {
        let names: Vec<HostName> = world.read(|state| state.hosts.keys().cloned().collect());
        let mut daemons = BTreeMap::new();
        for name in names {
            let daemon = Daemon::start(world, &name, &place).await?;
            daemons.insert(name, daemon);
        }
        Ok(Self {
            daemons,
            _time: world.run(),
        })
    }

    /// What `virsh -c` and agents connect to.
    pub fn uri(&self, host: &str) -> Option<String> {
        self.daemons.get(host).map(|daemon| match &daemon.address {
            Address::Unix(path) => format!("qemu+unix:///system?socket={}", path.display()),
            Address::Tcp(address) => format!("qemu+tcp://{address}/system"),
        })
    }

    /// Calls a host's daemon has answered.
    pub fn calls(&self, host: &str) -> u64 {
        self.daemons.get(host).map_or(0, |daemon| daemon.driver.calls())
    }

    /// Clients that are connected to a host's daemon.
    pub fn clients(&self, host: &str) -> Vec<Client> {
        self.daemons
            .get(host)
            .map(|daemon| daemon.driver.clients())
            .unwrap_or_default()
    }

    /// Makes every call of one procedure take this much longer.
    pub fn slow(&self, host: &str, procedure: Procedure, by: Duration) {
        if let Some(daemon) = self.daemons.get(host) {
            daemon.driver.slow(procedure, by);
        }
    }
}

impl Daemon {
    async fn start(world: &World, name: &HostName, place: &Place) -> Result<Self, Error> {
        let driver = Arc::new(HostDriver::new(world.clone(), name.clone()));
        let wanted = match place {
            Place::Unix(directory) => Address::Unix(directory.join(format!("{name}.sock"))),
            Place::Tcp => Address::Tcp(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))),
        };
        let first = open(&wanted).await?;
        // A daemon that comes back listens where it did before.
        let address = first.address().map_or(wanted, Address::Tcp);
        let hears = Arc::downgrade(&driver);
        world.listen(
            name,
            Arc::new(move |event| {
                if let Some(driver) = hears.upgrade() {
                    driver.publish(event);
                }
            }),
        );
        let life = AbortOnDropHandle::new(tokio::spawn(live(
            world.clone(),
            name.clone(),
            address.clone(),
            Arc::clone(&driver),
            first,
        )));
        Ok(Self {
            address,
            driver,
            _life: life,
        })
    }
}

async fn open(address: &Address) -> Result<Listener, Error> {
    let failed = |source| Error::Listen {
        what: "a simulated libvirt daemon",
        address: match address {
            Address::Unix(path) => path.display().to_string(),
            Address::Tcp(address) => address.to_string(),
        },
        source,
    };
    match address {
        Address::Unix(path) => Listener::unix(Path::new(path)).map_err(failed),
        Address::Tcp(address) => Listener::tcp(*address).await.map_err(failed),
    }
}

/// How the daemon should be right now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Gone,
    Answers,
    Hangs,
}

fn mode(world: &World, name: &HostName, address: &Address) -> Mode {
    world.read(|state| {
        let Some(host) = state.hosts.get(name) else {
            return Mode::Gone;
        };
        let far = matches!(address, Address::Tcp(_)) && host.cut;
        match (host.power, host.libvirt) {
            _ if far => Mode::Gone,
            (Power::On, Libvirt::Up) => Mode::Answers,
            (Power::On, Libvirt::Hung) => Mode::Hangs,
            _ => Mode::Gone,
        }
    })
}

/// When a daemon that could not start tries again.
const RETRY: Duration = Duration::from_secs(1);

/// Opens and closes the daemon's door as its host goes up and down.
async fn live(world: World, name: HostName, address: Address, driver: Arc<HostDriver>, first: Listener) {
    let watcher = world.watch(&name);
    let mut ready = Some(first);
    let mut serving: Option<AbortOnDropHandle<()>> = None;
    loop {
        let wanted = mode(&world, &name, &address);
        if wanted == Mode::Gone {
            ready = None;
            serving = None;
            driver.send_all_away();
        } else {
            driver.freeze(wanted == Mode::Hangs);
            if serving.is_none() {
                let listener = match ready.take() {
                    Some(listener) => Ok(listener),
                    None => open(&address).await,
                };
                match listener {
                    Ok(listener) => serving = Some(serve(listener, &driver)),
                    Err(error) => {
                        tracing::warn!(host = %name, %error, "a simulated libvirt daemon cannot start");
                        // Somebody else may have its port for a moment.
                        tokio::time::sleep(RETRY).await;
                        continue;
                    }
                }
            }
        }
        watcher.notified().await;
    }
}

fn serve(listener: Listener, driver: &Arc<HostDriver>) -> AbortOnDropHandle<()> {
    let driver = Arc::clone(driver);
    // Callback ids begin anew with every start of a daemon.
    let options = ServerOptions::default();
    let task: JoinHandle<()> = tokio::spawn(async move {
        let seen = |client: Client| driver.arrived(client);
        listener.run(Arc::clone(&driver), options, seen).await;
    });
    AbortOnDropHandle::new(task)
}

type Delays = Mutex<HashMap<Procedure, Duration>>;
