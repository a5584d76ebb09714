// SPDX-License-Identifier: Apache-2.0
//! systemd, logind and hostnamed as seen on the bus: as much of their interfaces as agents use, with the real names,
//! paths and signatures.

use std::time::Duration;

use tokio::io::AsyncReadExt as _;
use tokio::net::unix::pipe;
use zbus::connection::Builder;
use zbus::object_server::SignalEmitter;
use zbus::{Connection, ObjectServer, OwnedFd, OwnedObjectPath, fdo, interface};

use super::{Lock, OnStart, State, System, Unit};

pub(super) const SYSTEMD: &str = "org.freedesktop.systemd1";
pub(super) const LOGIND: &str = "org.freedesktop.login1";
pub(super) const HOSTNAMED: &str = "org.freedesktop.hostname1";
pub(super) const SYSTEMD_PATH: &str = "/org/freedesktop/systemd1";
pub(super) const LOGIND_PATH: &str = "/org/freedesktop/login1";
const HOSTNAMED_PATH: &str = "/org/freedesktop/hostname1";
const DELAY: Duration = Duration::from_mins(10);

/// What hostnamed says unless told otherwise.
const DESCRIPTION: &str = r#"{"KernelName": "Linux", "KernelRelease": "6.12.40", "HardwareModel": "SR650",
 "OperatingSystemReleaseData": ["PRETTY_NAME=Garden Linux 1.0", "GARDENLINUX_VERSION=1.0"]}"#;

/// A connection that offers the services.
pub(super) fn serve<'a>(builder: Builder<'a>, system: &System) -> Builder<'a> {
    builder
        .serve_at(SYSTEMD_PATH, Manager(system.clone()))
        .serve_at(LOGIND_PATH, Logind(system.clone()))
        .serve_at(HOSTNAMED_PATH, Hostnamed(system.clone()))
}

/// A path made of a fixed beginning and what may be in one.
fn path(text: String) -> OwnedObjectPath {
    OwnedObjectPath::try_from(text).unwrap_or_default()
}

pub(super) fn job_path(number: u32) -> OwnedObjectPath {
    path(format!("{SYSTEMD_PATH}/job/{number}"))
}

/// systemd writes every byte that is neither a letter nor a digit as its number.
fn unit_path(name: &str) -> OwnedObjectPath {
    let mut label = String::new();
    for (at, byte) in name.bytes().enumerate() {
        if byte.is_ascii_alphabetic() || (at > 0 && byte.is_ascii_digit()) {
            label.push(char::from(byte));
        } else {
            label.push_str(&format!("_{byte:02x}"));
        }
    }
    path(format!("{SYSTEMD_PATH}/unit/{label}"))
}

/// Tells that a unit has another state.
pub(super) async fn unit_changed(connection: &Connection, system: &System, name: &str) -> zbus::Result<()> {
    let path = unit_path(name);
    let objects = connection.object_server();
    objects.at(&path, UnitObject::new(system, name)).await?;
    let unit = objects.interface::<_, UnitObject>(&path).await?;
    unit.get().await.active_state_changed(unit.signal_emitter()).await
}

pub(super) async fn job_removed(
    emitter: &SignalEmitter<'_>,
    number: u32,
    job: OwnedObjectPath,
    unit: &str,
    result: &str,
) -> zbus::Result<()> {
    Manager::job_removed(emitter, number, job, unit.to_owned(), result.to_owned()).await
}

pub(super) async fn shutdown_prepared(emitter: &SignalEmitter<'_>, start: bool) -> zbus::Result<()> {
    Logind::prepare_for_shutdown(emitter, start).await
}

struct Manager(System);

impl State {
    /// Starts a unit; says how its job ended, if it did at once.
    fn start(&mut self, name: &str, number: u32, job: &OwnedObjectPath) -> fdo::Result<Option<&'static str>> {
        self.started.push(name.to_owned());
        let Some(behaviour) = self.on_start.get(name).copied() else {
            return Err(fdo::Error::FileNotFound(format!("Unit {name} not found.")));
        };
        let unit = self
            .units
            .entry(name.to_owned())
            .or_insert_with(|| Unit::new("inactive", "dead"));
        unit.invocation = number.wrapping_add(1).to_be_bytes().repeat(4);
        Ok(match behaviour {
            OnStart::Run => {
                (unit.active, unit.sub) = ("activating".to_owned(), "start".to_owned());
                self.jobs.insert(name.to_owned(), (number, job.clone()));
                None
            }
            OnStart::Done => {
                (unit.active, unit.result) = ("inactive".to_owned(), "success".to_owned());
                Some("done")
            }
            OnStart::Fail => {
                (unit.active, unit.result) = ("failed".to_owned(), "exit-code".to_owned());
                Some("failed")
            }
        })
    }
}

/// A row of systemd's list of units.
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
        let row = |name: String| {
            let unit = self.0.unit(&name);
            let path = unit_path(&name);
            let no_job = OwnedObjectPath::default();
            let (load, active, sub) = (unit.load, unit.active, unit.sub);
            (
                name.clone(),
                name,
                load,
                active,
                sub,
                String::new(),
                path,
                0,
                String::new(),
                no_job,
            )
        };
        names.into_iter().map(row).collect()
    }

    async fn load_unit(
        &self,
        name: String,
        #[zbus(object_server)] objects: &ObjectServer,
    ) -> fdo::Result<OwnedObjectPath> {
        let path = unit_path(&name);
        objects.at(&path, UnitObject::new(&self.0, &name)).await?;
        objects
            .at(&path, ServiceObject(UnitObject::new(&self.0, &name)))
            .await?;
        Ok(path)
    }

    async fn start_unit(
        &self,
        name: String,
        mode: String,
        #[zbus(signal_emitter)] emitter: SignalEmitter<'_>,
    ) -> fdo::Result<OwnedObjectPath> {
        known_mode(&mode)?;
        let (number, job) = self.0.job();
        let end = self.0.0.state.lock().start(&name, number, &job)?;
        if let Some(result) = end {
            Self::job_removed(&emitter, number, job.clone(), name, result.to_owned()).await?;
        }
        Ok(job)
    }

    async fn restart_unit(
        &self,
        name: String,
        mode: String,
        #[zbus(signal_emitter)] emitter: SignalEmitter<'_>,
    ) -> fdo::Result<OwnedObjectPath> {
        known_mode(&mode)?;
        let (number, job) = self.0.job();
        self.0.0.state.lock().restarted.push(name.clone());
        Self::job_removed(&emitter, number, job.clone(), name, "done".to_owned()).await?;
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

fn known_mode(mode: &str) -> fdo::Result<()> {
    match mode {
        "replace" | "fail" | "isolate" => Ok(()),
        other => Err(fdo::Error::InvalidArgs(format!("Job mode {other} invalid"))),
    }
}

#[derive(Clone)]
struct UnitObject {
    system: System,
    name: String,
}

impl UnitObject {
    fn new(system: &System, name: &str) -> Self {
        Self {
            system: system.clone(),
            name: name.to_owned(),
        }
    }

    fn unit(&self) -> Unit {
        self.system.unit(&self.name)
    }
}

#[interface(name = "org.freedesktop.systemd1.Unit")]
impl UnitObject {
    #[zbus(property)]
    fn load_state(&self) -> String {
        self.unit().load
    }

    #[zbus(property)]
    fn active_state(&self) -> String {
        self.unit().active
    }

    #[zbus(property)]
    fn sub_state(&self) -> String {
        self.unit().sub
    }

    #[zbus(property, name = "InvocationID")]
    fn invocation_id(&self) -> Vec<u8> {
        self.unit().invocation
    }
}

struct ServiceObject(UnitObject);

#[interface(name = "org.freedesktop.systemd1.Service")]
impl ServiceObject {
    #[zbus(property)]
    fn result(&self) -> String {
        self.0.unit().result
    }
}

struct Logind(System);

#[interface(name = "org.freedesktop.login1.Manager")]
impl Logind {
    /// Like logind, the service keeps one end of a pipe and learns from its closing that the lock was given back.
    fn inhibit(&self, what: String, who: String, why: String, mode: String) -> fdo::Result<OwnedFd> {
        let failed = |error: std::io::Error| fdo::Error::Failed(error.to_string());
        let (near, far) = std::io::pipe().map_err(failed)?;
        let mut near = pipe::Receiver::from_owned_fd(near.into()).map_err(failed)?;
        let inner = &self.0.0;
        inner.state.lock().locks.push(Lock { what, who, why, mode });
        inner.held.send_modify(|count| *count += 1);
        let system = self.0.clone();
        tokio::spawn(async move {
            let _ = near.read(&mut [0; 1]).await;
            system.0.held.send_modify(|count| *count -= 1);
        });
        Ok(std::os::fd::OwnedFd::from(far).into())
    }

    #[zbus(property, name = "InhibitDelayMaxUSec")]
    fn inhibit_delay_max(&self) -> u64 {
        let delay = self.0.0.state.lock().delay.unwrap_or(DELAY);
        u64::try_from(delay.as_micros()).unwrap_or(u64::MAX)
    }

    #[zbus(property)]
    fn preparing_for_shutdown(&self) -> bool {
        self.0.0.state.lock().preparing
    }

    #[zbus(signal)]
    async fn prepare_for_shutdown(emitter: &SignalEmitter<'_>, start: bool) -> zbus::Result<()>;
}

struct Hostnamed(System);

#[interface(name = "org.freedesktop.hostname1")]
impl Hostnamed {
    fn describe(&self) -> String {
        let told = self.0.0.state.lock().description.clone();
        told.unwrap_or_else(|| DESCRIPTION.to_owned())
    }
}
