// SPDX-License-Identifier: Apache-2.0
//! The run directories of all hosts: which sockets are there, and who answers on them. One task per host accepts on all of
//! its sockets and does nothing else; a conversation costs a task while it lasts.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::task::Poll;

use rustix::fs::{FlockOperation, fcntl_lock};
use tokio::io::AsyncWriteExt as _;
use tokio::net::{UnixListener, UnixStream};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

use super::derive::bridges;
use super::facts::{FIGURES, INTEGRATION};
use super::frame::{Frames, Request, answer};
use super::hub::{Hub, Waiting};
use super::openflow;
use super::unixctl::{self, Daemon};
use crate::error::Error;
use crate::world::{HostName, Power, Vswitchd, Watcher, World};

/// ovn-controller connects for flows, for packets and for figures.
const CONTROLLER: usize = 3;
/// Transactions of one client that wait at once.
const MOST_WAITING: usize = 64;

/// The switches of all hosts of a world; they end with this value.
#[derive(Debug)]
pub struct Switches {
    folder: PathBuf,
    _hosts: Vec<AbortOnDropHandle<()>>,
    _time: AbortOnDropHandle<()>,
}

impl Switches {
    /// Opens a run directory for every host the world has now, each in a directory of its name below `folder`.
    pub fn start(world: &World, folder: &Path) -> Result<Self, Error> {
        let names: Vec<HostName> = world.read(|state| state.hosts.keys().cloned().collect());
        let pid = Arc::new(PidFile::make(folder)?);
        let mut hosts = Vec::with_capacity(names.len());
        for name in names {
            let rundir = folder.join(name.as_str());
            clear(&rundir).map_err(|source| listen_error(&rundir, source))?;
            let mut host = Host::new(world, name, rundir, Arc::clone(&pid));
            // The sockets are there when this is done, not soon after.
            host.arrange()?;
            hosts.push(AbortOnDropHandle::new(tokio::spawn(host.live())));
        }
        Ok(Self {
            folder: folder.to_owned(),
            _hosts: hosts,
            _time: world.run(),
        })
    }

    /// The run directory of a host: what `OVS_RUNDIR` is set to.
    pub fn rundir(&self, host: &str) -> PathBuf {
        self.folder.join(host)
    }
}

fn listen_error(path: &Path, source: std::io::Error) -> Error {
    Error::Listen {
        what: "a simulated switch",
        address: path.display().to_string(),
        source,
    }
}

/// Makes a directory and takes away what an earlier run left in it.
fn clear(folder: &Path) -> std::io::Result<()> {
    std::fs::create_dir_all(folder)?;
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        let left = path.extension().and_then(|end| end.to_str());
        if matches!(left, Some("sock" | "ctl" | "mgmt" | "pid")) {
            std::fs::remove_file(path)?;
        }
    }
    Ok(())
}

/// The one file behind the pid files of all daemons. `ovs-appctl` believes a pid file only while the process it names
/// holds a lock on it, so there is one locked file with many names.
#[derive(Debug)]
struct PidFile {
    path: PathBuf,
    file: File,
}

impl PidFile {
    fn make(folder: &Path) -> Result<Self, Error> {
        let path = folder.join("pid");
        let make = || -> std::io::Result<File> {
            std::fs::create_dir_all(folder)?;
            match std::fs::remove_file(&path) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
            let mut file = File::options().write(true).create_new(true).open(&path)?;
            writeln!(file, "{}", std::process::id())?;
            Ok(file)
        };
        let file = make().map_err(|source| listen_error(&path, source))?;
        let pid = Self { path, file };
        pid.hold();
        Ok(pid)
    }

    /// Gives the file one more name.
    fn link(&self, path: &Path) -> std::io::Result<()> {
        match std::fs::remove_file(path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        std::fs::hard_link(&self.path, path)
    }

    /// Takes the lock, again if need be: it is lost whenever somebody in this process reads one of the files.
    fn hold(&self) {
        if let Err(error) = fcntl_lock(&self.file, FlockOperation::NonBlockingLockExclusive) {
            tracing::debug!(%error, "the pid file of simulated switches is not locked");
        }
    }
}

/// Who listens on a socket.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Door {
    Database,
    Control(Daemon),
    Management(String),
}

impl Door {
    fn file(&self) -> String {
        match self {
            Self::Database => "db.sock".to_owned(),
            Self::Control(daemon) => format!("{}.{}.ctl", daemon.name(), std::process::id()),
            Self::Management(bridge) => format!("{bridge}.mgmt"),
        }
    }

    /// The file that names the process behind it.
    fn pid_file(&self) -> Option<String> {
        match self {
            Self::Control(daemon) => Some(format!("{}.pid", daemon.name())),
            Self::Database | Self::Management(_) => None,
        }
    }
}

/// An open socket and its conversations, which end with it.
struct Open {
    listener: UnixListener,
    talks: JoinSet<()>,
}

struct Host {
    world: World,
    name: HostName,
    rundir: PathBuf,
    pid: Arc<PidFile>,
    hub: Arc<Hub>,
    watcher: Watcher,
    open: BTreeMap<Door, Open>,
    /// The connections that ovn-controller holds to the integration bridge.
    controller: Vec<std::os::unix::net::UnixStream>,
}

impl Host {
    fn new(world: &World, name: HostName, rundir: PathBuf, pid: Arc<PidFile>) -> Self {
        let watcher = world.watch(&name);
        let wakes = Arc::downgrade(&watcher);
        world.listen(
            &name,
            Arc::new(move |_| {
                if let Some(watcher) = wakes.upgrade() {
                    watcher.notify_one();
                }
            }),
        );
        Self {
            world: world.clone(),
            hub: Hub::new(world.clone(), name.clone()),
            name,
            rundir,
            pid,
            watcher,
            open: BTreeMap::new(),
            controller: Vec::new(),
        }
    }

    /// The sockets that should be there now.
    fn wanted(&self) -> Vec<Door> {
        self.world.read(|state| {
            let Some(host) = state.hosts.get(&self.name).filter(|host| host.power == Power::On) else {
                return Vec::new();
            };
            let switch = state.switches.get(&host.name).cloned().unwrap_or_default();
            let mut doors = vec![Door::Control(Daemon::OvnController)];
            if switch.ovsdb {
                doors.extend([Door::Database, Door::Control(Daemon::Ovsdb)]);
            }
            if switch.vswitchd != Vswitchd::Down {
                doors.push(Door::Control(Daemon::Vswitchd));
                doors.extend(bridges(state, &self.name).into_iter().map(Door::Management));
            }
            doors
        })
    }

    /// Opens and closes sockets until those are there that should be.
    fn arrange(&mut self) -> Result<(), Error> {
        let wanted = self.wanted();
        let rundir = &self.rundir;
        self.open.retain(|door, _| {
            let stays = wanted.contains(door);
            if !stays {
                for name in [Some(door.file()), door.pid_file()].into_iter().flatten() {
                    std::fs::remove_file(rundir.join(name)).ok();
                }
            }
            stays
        });
        for door in wanted {
            if self.open.contains_key(&door) {
                continue;
            }
            let path = self.rundir.join(door.file());
            let listener = UnixListener::bind(&path).map_err(|source| listen_error(&path, source))?;
            if door == Door::Database {
                self.hub.begin();
            }
            if let Some(name) = door.pid_file() {
                let path = self.rundir.join(name);
                self.pid
                    .link(&path)
                    .map_err(|source| listen_error(&path, source))?;
            }
            let open = Open {
                listener,
                talks: JoinSet::new(),
            };
            self.open.insert(door, open);
        }
        self.connect_controller();
        Ok(())
    }

    /// ovn-controller is connected whenever there is something to connect to.
    fn connect_controller(&mut self) {
        let bridge = Door::Management(INTEGRATION.to_owned());
        if !self.open.contains_key(&bridge) {
            self.controller.clear();
        } else if self.controller.is_empty() {
            let path = self.rundir.join(bridge.file());
            let connect = |_| std::os::unix::net::UnixStream::connect(&path).ok();
            self.controller = (0..CONTROLLER).filter_map(connect).collect();
        }
    }

    async fn live(mut self) {
        let watcher = Arc::clone(&self.watcher);
        // When figures are due, while somebody listens to them.
        let mut due = None;
        loop {
            due = self
                .hub
                .ticks()
                .then(|| due.unwrap_or_else(|| Instant::now() + FIGURES));
            let tick = async {
                match due {
                    Some(at) => tokio::time::sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = watcher.notified() => {
                    if let Err(error) = self.arrange() {
                        tracing::warn!(host = %self.name, %error, "a simulated switch cannot start");
                    }
                    self.hub.refresh();
                }
                () = tick => {
                    due = None;
                    self.hub.refresh();
                }
                (door, stream) = accept(&self.open) => self.welcome(&door, stream),
            }
        }
    }

    fn welcome(&mut self, door: &Door, stream: UnixStream) {
        let Some(open) = self.open.get_mut(door) else {
            return;
        };
        while open.talks.try_join_next().is_some() {}
        self.pid.hold();
        match door {
            Door::Control(daemon) => {
                open.talks.spawn(obey(Arc::clone(&self.hub), *daemon, stream));
            }
            Door::Management(bridge) => {
                let (hub, bridge) = (Arc::clone(&self.hub), bridge.clone());
                open.talks
                    .spawn(async move { openflow::converse(&hub, &bridge, stream).await });
            }
            Door::Database => {
                let (hub, wake) = (Arc::clone(&self.hub), Arc::clone(&self.watcher));
                open.talks.spawn(converse(hub, wake, stream));
            }
        }
    }
}

/// The next client at any of the sockets.
async fn accept(open: &BTreeMap<Door, Open>) -> (Door, UnixStream) {
    std::future::poll_fn(|context| {
        for (door, open) in open {
            if let Poll::Ready(Ok((stream, _))) = open.listener.poll_accept(context) {
                return Poll::Ready((door.clone(), stream));
            }
        }
        Poll::Pending
    })
    .await
}

/// Waits as long as ovs-vswitchd makes everybody wait.
pub(super) async fn pace(hub: &Hub) {
    let mut pulse = hub.pulse();
    loop {
        let mode = hub
            .world
            .read(|state| state.switches.get(&hub.host).map(|switch| switch.vswitchd));
        match mode.unwrap_or_default() {
            Vswitchd::Up | Vswitchd::Down => return,
            Vswitchd::Slow(span) => return tokio::time::sleep(span).await,
            Vswitchd::Hung => {
                if pulse.changed().await.is_err() {
                    return;
                }
            }
        }
    }
}

/// One client that commands a daemon, until it leaves.
async fn obey(hub: Arc<Hub>, daemon: Daemon, stream: UnixStream) {
    let (mut reader, mut writer) = stream.into_split();
    let mut frames = Frames::default();
    while let Ok(message) = frames.next(&mut reader).await {
        let Ok(Some(request)) = Request::read(message) else {
            return;
        };
        if daemon == Daemon::Vswitchd {
            pace(&hub).await;
        }
        let outcome = unixctl::answer(&hub.world, &hub.host, daemon, &request.method, &request.params);
        let said = answer(&request.id, outcome).to_string();
        if writer.write_all(said.as_bytes()).await.is_err() {
            return;
        }
    }
}

/// One client of the database, until it leaves.
async fn converse(hub: Arc<Hub>, wake: Watcher, stream: UnixStream) {
    let (id, mut queue) = hub.join();
    let _leaves = Leaves(Arc::clone(&hub), id);
    let (mut reader, mut writer) = stream.into_split();
    let write = async {
        while let Some(message) = queue.recv().await {
            if writer.write_all(message.to_string().as_bytes()).await.is_err() {
                return;
            }
        }
    };
    let read = async {
        let mut frames = Frames::default();
        let mut waiting: JoinSet<()> = JoinSet::new();
        while let Ok(message) = frames.next(&mut reader).await {
            let Ok(request) = Request::read(message) else {
                return;
            };
            let Some(request) = request else {
                continue;
            };
            let listens = request.method.starts_with("monitor");
            if let Some(wait) = hub.take(id, request) {
                while waiting.try_join_next().is_some() {}
                if waiting.len() >= MOST_WAITING {
                    return;
                }
                waiting.spawn(wait_for(Arc::clone(&hub), id, wait));
            }
            if listens {
                // Whoever keeps the time must know whether somebody listens to figures.
                wake.notify_one();
            }
        }
    };
    tokio::select! { () = write => {}, () = read => {} }
}

struct Leaves(Arc<Hub>, super::hub::Id);

impl Drop for Leaves {
    fn drop(&mut self) {
        self.0.leave(self.1);
    }
}

/// Tries a transaction again whenever something changed, until it goes through or its time is over.
async fn wait_for(hub: Arc<Hub>, id: super::hub::Id, waiting: Waiting) {
    let mut pulse = hub.pulse();
    let end = waiting.patience.map(|span| Instant::now() + span);
    loop {
        let over = match end {
            Some(end) => tokio::time::timeout_at(end, pulse.changed()).await.is_err(),
            None => pulse.changed().await.is_err(),
        };
        if hub.retry(id, &waiting, over) || over {
            return;
        }
    }
}
