// SPDX-License-Identifier: Apache-2.0
//! systemd, logind and hostnamed as seen on the bus: the real names, paths and signatures, with units and shutdowns
//! that the test moves by hand.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use parking_lot::Mutex;
use tokio::sync::watch;
use zbus::object_server::SignalEmitter;
use zbus::{Connection, OwnedFd, OwnedObjectPath, fdo, interface};

const SYSTEMD: &str = "/org/freedesktop/systemd1";
const LOGIND: &str = "/org/freedesktop/login1";

#[derive(Clone, Debug)]
pub(crate) struct UnitValues {
    pub(crate) load: String,
    pub(crate) active: String,
    pub(crate) sub: String,
    pub(crate) result: String,
    pub(crate) invocation: Vec<u8>,
}

impl UnitValues {
    pub(crate) fn new(active: &str, sub: &str) -> Self {
        Self {
            load: "loaded".into(),
            active: active.into(),
            sub: sub.into(),
            result: "success".into(),
            invocation: vec![1; 16],
        }
    }
}

/// What a unit does when it is started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OnStart {
    /// Its job ends at once, well.
    Done,
    /// Its job ends at once, badly.
    Fail,
    /// Its job runs until [`Far::finish`].
    Run,
}

#[derive(Default)]
struct State {
    units: BTreeMap<String, UnitValues>,
    on_start: BTreeMap<String, OnStart>,
    jobs: BTreeMap<String, OwnedObjectPath>,
    started: Vec<String>,
    locks: Vec<(String, String, String, String)>,
    preparing: bool,
}

type Shared = Arc<Mutex<State>>;

/// The far side of the bus.
pub(crate) struct Far {
    connection: Connection,
    state: Shared,
    next_job: Arc<AtomicU32>,
    held: watch::Receiver<u32>,
    held_sender: Arc<watch::Sender<u32>>,
}

fn unit_path(name: &str) -> OwnedObjectPath {
    let label = zbus_systemd::bus_label_escape(name);
    format!("{SYSTEMD}/unit/{label}").try_into().unwrap()
}

struct Manager {
    state: Shared,
    next_job: Arc<AtomicU32>,
}

type Row = (
    String,
    String,
    String,
    String,
    String,
    String,
    OwnedObjectPath,
    u32,
    String,
    OwnedObjectPath,
);

#[interface(name = "org.freedesktop.systemd1.Manager")]
impl Manager {
    fn subscribe(&self) {}

    fn list_units_by_names(&self, names: Vec<String>) -> Vec<Row> {
        let state = self.state.lock();
        let row = |name: String| {
            let path = unit_path(&name);
            let missing = UnitValues {
                load: "not-found".into(),
                ..UnitValues::new("inactive", "dead")
            };
            let unit = state.units.get(&name).unwrap_or(&missing).clone();
            let none: OwnedObjectPath = "/".try_into().unwrap();
            (
                name.clone(),
                name,
                unit.load,
                unit.active,
                unit.sub,
                String::new(),
                path,
                0,
                String::new(),
                none,
            )
        };
        names.into_iter().map(row).collect()
    }

    async fn load_unit(
        &self,
        name: String,
        #[zbus(object_server)] objects: &zbus::ObjectServer,
    ) -> fdo::Result<OwnedObjectPath> {
        let path = unit_path(&name);
        let unit = Unit {
            name: name.clone(),
            state: self.state.clone(),
        };
        let service = Service {
            name,
            state: self.state.clone(),
        };
        objects.at(&path, unit).await?;
        objects.at(&path, service).await?;
        Ok(path)
    }

    async fn start_unit(
        &self,
        name: String,
        mode: String,
        #[zbus(signal_emitter)] emitter: SignalEmitter<'_>,
    ) -> fdo::Result<OwnedObjectPath> {
        assert_eq!(mode, "replace");
        let number = self.next_job.fetch_add(1, Ordering::Relaxed);
        let job: OwnedObjectPath = format!("{SYSTEMD}/job/{number}").try_into().unwrap();
        let end = {
            let mut state = self.state.lock();
            state.started.push(name.clone());
            let Some(behaviour) = state.on_start.get(&name).copied() else {
                return Err(fdo::Error::FileNotFound(format!("Unit {name} not found.")));
            };
            let unit = state
                .units
                .entry(name.clone())
                .or_insert_with(|| UnitValues::new("inactive", "dead"));
            unit.invocation = vec![number as u8 + 2; 16];
            match behaviour {
                OnStart::Run => {
                    (unit.active, unit.sub) = ("activating".into(), "start".into());
                    state.jobs.insert(name.clone(), job.clone());
                    None
                }
                OnStart::Done => {
                    (unit.active, unit.result) = ("inactive".into(), "success".into());
                    Some("done")
                }
                OnStart::Fail => {
                    (unit.active, unit.result) = ("failed".into(), "exit-code".into());
                    Some("failed")
                }
            }
        };
        if let Some(result) = end {
            Self::job_removed(&emitter, number, job.clone(), name, result.to_owned()).await?;
        }
        Ok(job)
    }

    #[zbus(signal)]
    async fn job_removed(
        emitter: &SignalEmitter<'_>,
        id: u32,
        job: OwnedObjectPath,
        unit: String,
        result: String,
    ) -> zbus::Result<()>;

    #[zbus(signal)]
    async fn reloading(emitter: &SignalEmitter<'_>, active: bool) -> zbus::Result<()>;
}

struct Unit {
    name: String,
    state: Shared,
}

impl Unit {
    fn values(&self) -> UnitValues {
        let missing = || UnitValues {
            load: "not-found".into(),
            ..UnitValues::new("inactive", "dead")
        };
        self.state
            .lock()
            .units
            .get(&self.name)
            .cloned()
            .unwrap_or_else(missing)
    }
}

#[interface(name = "org.freedesktop.systemd1.Unit")]
impl Unit {
    #[zbus(property)]
    fn load_state(&self) -> String {
        self.values().load
    }

    #[zbus(property)]
    fn active_state(&self) -> String {
        self.values().active
    }

    #[zbus(property)]
    fn sub_state(&self) -> String {
        self.values().sub
    }

    #[zbus(property, name = "InvocationID")]
    fn invocation_id(&self) -> Vec<u8> {
        self.values().invocation
    }
}

struct Service {
    name: String,
    state: Shared,
}

#[interface(name = "org.freedesktop.systemd1.Service")]
impl Service {
    #[zbus(property)]
    fn result(&self) -> String {
        let state = self.state.lock();
        state
            .units
            .get(&self.name)
            .map_or_else(|| "success".to_owned(), |unit| unit.result.clone())
    }
}

struct Logind {
    state: Shared,
    held: Arc<watch::Sender<u32>>,
}

#[interface(name = "org.freedesktop.login1.Manager")]
impl Logind {
    /// Like logind, the service keeps one end of a pipe and learns from its closing that the lock was given back.
    fn inhibit(&self, what: String, who: String, why: String, mode: String) -> OwnedFd {
        let (mut near, far) = std::io::pipe().unwrap();
        self.state.lock().locks.push((what, who, why, mode));
        self.held.send_modify(|count| *count += 1);
        let held = self.held.clone();
        std::thread::spawn(move || {
            let _ = near.read(&mut [0; 1]);
            held.send_modify(|count| *count -= 1);
        });
        std::os::fd::OwnedFd::from(far).into()
    }

    #[zbus(property, name = "InhibitDelayMaxUSec")]
    fn inhibit_delay_max(&self) -> u64 {
        600_000_000
    }

    #[zbus(property)]
    fn preparing_for_shutdown(&self) -> bool {
        self.state.lock().preparing
    }

    #[zbus(signal)]
    async fn prepare_for_shutdown(emitter: &SignalEmitter<'_>, start: bool) -> zbus::Result<()>;
}

struct Hostnamed;

#[interface(name = "org.freedesktop.hostname1")]
impl Hostnamed {
    fn describe(&self) -> String {
        r#"{"KernelName": "Linux", "KernelRelease": "6.12.40", "HardwareModel": "SR650",
            "OperatingSystemReleaseData": ["PRETTY_NAME=Garden Linux 1.0", "GARDENLINUX_VERSION=1.0"]}"#
            .to_owned()
    }
}

impl Far {
    pub(crate) async fn start(address: &str) -> Self {
        let state = Shared::default();
        let next_job = Arc::new(AtomicU32::new(1));
        let (sender, held) = watch::channel(0);
        let held_sender = Arc::new(sender);
        let connection = Self::serve(address, &state, &next_job, &held_sender).await;
        Self {
            connection,
            state,
            next_job,
            held,
            held_sender,
        }
    }

    async fn serve(
        address: &str,
        state: &Shared,
        next_job: &Arc<AtomicU32>,
        held: &Arc<watch::Sender<u32>>,
    ) -> Connection {
        let manager = Manager {
            state: state.clone(),
            next_job: next_job.clone(),
        };
        let logind = Logind {
            state: state.clone(),
            held: held.clone(),
        };
        zbus::connection::Builder::address(address)
            .serve_at(SYSTEMD, manager)
            .serve_at(LOGIND, logind)
            .serve_at("/org/freedesktop/hostname1", Hostnamed)
            .name("org.freedesktop.systemd1")
            .name("org.freedesktop.login1")
            .name("org.freedesktop.hostname1")
            .build()
            .await
            .unwrap()
    }

    /// Comes back on a bus that was restarted, or as services that were.
    pub(crate) async fn again(&mut self, address: &str) {
        let _ = self.connection.clone().close().await;
        self.connection = Self::serve(address, &self.state, &self.next_job, &self.held_sender).await;
    }

    /// Gives a unit its state and says so, as systemd does.
    pub(crate) async fn set(&self, name: &str, values: UnitValues) {
        self.state.lock().units.insert(name.to_owned(), values);
        let path = unit_path(name);
        let objects = self.connection.object_server();
        let unit = Unit {
            name: name.to_owned(),
            state: self.state.clone(),
        };
        objects.at(&path, unit).await.unwrap();
        let unit = objects.interface::<_, Unit>(&path).await.unwrap();
        unit.get()
            .await
            .active_state_changed(unit.signal_emitter())
            .await
            .unwrap();
    }

    pub(crate) fn on_start(&self, unit: &str, behaviour: OnStart) {
        let mut state = self.state.lock();
        let never_ran = UnitValues {
            invocation: Vec::new(),
            ..UnitValues::new("inactive", "dead")
        };
        state.units.entry(unit.to_owned()).or_insert(never_ran);
        state.on_start.insert(unit.to_owned(), behaviour);
    }

    /// Ends the running job of a unit.
    pub(crate) async fn finish(&self, name: &str, result: &str) {
        let job = {
            let mut state = self.state.lock();
            let unit = state.units.get_mut(name).unwrap();
            (unit.active, unit.sub) = ("inactive".into(), "dead".into());
            state.jobs.remove(name).unwrap()
        };
        let emitter = SignalEmitter::new(&self.connection, SYSTEMD).unwrap();
        Manager::job_removed(&emitter, 0, job, name.to_owned(), result.to_owned())
            .await
            .unwrap();
    }

    /// Every unit that was asked to start, in order.
    pub(crate) fn started(&self) -> Vec<String> {
        self.state.lock().started.clone()
    }

    pub(crate) async fn prepare_for_shutdown(&self, start: bool) {
        self.state.lock().preparing = start;
        let emitter = SignalEmitter::new(&self.connection, LOGIND).unwrap();
        Logind::prepare_for_shutdown(&emitter, start).await.unwrap();
    }

    /// Every lock that was ever asked for.
    pub(crate) fn locks(&self) -> Vec<(String, String, String, String)> {
        self.state.lock().locks.clone()
    }

    /// How many locks are held.
    pub(crate) fn held(&self) -> watch::Receiver<u32> {
        self.held.clone()
    }
}
