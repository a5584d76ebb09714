// SPDX-License-Identifier: Apache-2.0
//! Faults on demand: `cobaltcore sim …` tells a running `up` over a local socket in its data
//! directory, one JSON line each way. Only the owner of the directory can reach it.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};
use cobaltcore_console::faults::{CloudService, Truth};
use cobaltcore_sim::World;
use cobaltcore_sim::cloud::Service;
use cobaltcore_sim::world::{ApiEffect, Host, Libvirt, Power, State, Vswitchd};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio_util::task::AbortOnDropHandle;
use uuid::Uuid;

pub(crate) use cobaltcore_console::faults::{Fault, SwitchTrouble};

/// The socket's name in the data directory.
pub(crate) const SOCKET: &str = "sim.sock";
const LONGEST_LINE: u64 = 64 * 1024;
const PATIENCE: Duration = Duration::from_secs(10);

/// What came of it.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Reply {
    Done { text: String },
    Refused { why: String },
}

/// Listens until the handle is dropped.
pub(crate) fn serve(folder: &Path, world: &World) -> anyhow::Result<AbortOnDropHandle<()>> {
    let path = folder.join(SOCKET);
    match std::fs::remove_file(&path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(error).with_context(|| format!("cannot replace {}", path.display()));
        }
        _ => {}
    }
    let listener =
        UnixListener::bind(&path).with_context(|| format!("cannot listen on {}", path.display()))?;
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600))
        .with_context(|| format!("cannot protect {}", path.display()))?;
    let world = world.clone();
    Ok(AbortOnDropHandle::new(tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let world = world.clone();
            tokio::spawn(async move {
                let answered = tokio::time::timeout(PATIENCE, answer(stream, &world)).await;
                if let Ok(Err(error)) = answered {
                    tracing::warn!(%error, "a request to the simulation failed");
                }
            });
        }
    })))
}

/// What was answered must outlast a crash.
async fn kept(world: &World, reply: Reply) -> Reply {
    match reply {
        Reply::Done { .. } if !world.durable().await => Reply::Refused {
            why: "it is done, but cannot be kept: the world cannot be saved".into(),
        },
        reply => reply,
    }
}

/// The same faults for the console.
pub(crate) struct Buttons(pub(crate) World);

impl cobaltcore_console::faults::Faults for Buttons {
    fn inject(&self, fault: &Fault) -> Result<String, String> {
        // Called on a thread that may wait.
        let reply = kept(&self.0, carry_out(&self.0, fault));
        match tokio::runtime::Handle::current().block_on(reply) {
            Reply::Done { text } => Ok(text),
            Reply::Refused { why } => Err(why),
        }
    }

    fn truth(&self, host: &str) -> Option<Truth> {
        self.0
            .read(|state| state.hosts.get(host).map(|host| truth(host, state)))
    }

    fn broken(&self) -> Vec<(String, Truth)> {
        let well = Truth {
            powered: true,
            ..Truth::default()
        };
        self.0.read(|state| {
            let all = state
                .hosts
                .values()
                .map(|host| (host.name.to_string(), truth(host, state)));
            all.filter(|(_, truth)| *truth != well).collect()
        })
    }

    fn services(&self) -> Vec<CloudService> {
        self.0.read(|state| {
            let service = |service: Service| CloudService {
                name: service.to_string(),
                trouble: state
                    .faults
                    .standing(service.name())
                    .map(trouble)
                    .unwrap_or_default(),
            };
            Service::ALL.map(service).to_vec()
        })
    }
}

fn truth(host: &Host, state: &State) -> Truth {
    let switch = state.switches.get(&host.name);
    Truth {
        powered: host.power == Power::On,
        booting: host.power == Power::Booting,
        cut: host.cut,
        libvirt_hangs: host.libvirt != Libvirt::Up,
        disk_full: host.disk_full,
        migrations_fail: state.faults.fail_from(&host.name),
        switch_fails: switch.is_some_and(|switch| switch.vswitchd != Vswitchd::Up),
        switch_database_stopped: switch.is_some_and(|switch| !switch.ovsdb),
        ovn_disconnected: switch.is_some_and(|switch| !switch.ovn),
        switch_untidy: switch.is_some_and(|switch| !switch.orphans.is_empty() || !switch.stale.is_empty()),
    }
}

/// What calls run into, in words.
fn trouble(effect: &ApiEffect) -> String {
    match effect {
        ApiEffect::Delay(span) => format!("takes {} ms longer for each call", span.as_millis()),
        ApiEffect::Refuse(code) => format!("refuses each call with {code}"),
        ApiEffect::FailAfter(code) => format!("does what it is told and answers {code}"),
        ApiEffect::Gateway(code) => format!("is behind a gateway that answers {code}"),
        ApiEffect::Hang | ApiEffect::HangAfter => "answers nothing".into(),
    }
}

async fn answer(stream: UnixStream, world: &World) -> std::io::Result<()> {
    use tokio::io::AsyncReadExt as _;
    let (reader, mut writer) = stream.into_split();
    let mut line = String::new();
    BufReader::new(reader.take(LONGEST_LINE))
        .read_line(&mut line)
        .await?;
    let reply = match serde_json::from_str::<Fault>(&line) {
        Ok(fault) => kept(world, carry_out(world, &fault)).await,
        Err(error) => Reply::Refused {
            why: format!("not understood: {error}"),
        },
    };
    let mut text = serde_json::to_vec(&reply)?;
    text.push(b'\n');
    writer.write_all(&text).await
}

fn carry_out(world: &World, fault: &Fault) -> Reply {
    match on_demand(world, fault) {
        Ok(text) => Reply::Done { text },
        Err(error) => Reply::Refused {
            why: format!("{error:#}"),
        },
    }
}

/// What a fault does, and in words what it did.
fn on_demand(world: &World, fault: &Fault) -> anyhow::Result<String> {
    Ok(match fault {
        Fault::Kill { host } => world.power_off(host).map(|()| format!("{host} has no power"))?,
        Fault::Boot { host } => world.power_on(host).map(|()| format!("{host} boots"))?,
        Fault::Cut { host } => world.cut(host).map(|()| format!("{host} is cut off"))?,
        Fault::Mend { host } => world.mend(host).map(|()| format!("{host} is connected"))?,
        Fault::HangLibvirt { host, hangs } => {
            let (state, text) = either(*hangs, (Libvirt::Hung, "hangs"), (Libvirt::Up, "answers"));
            world.set_libvirt(host, state)?;
            format!("libvirt on {host} {text}")
        }
        Fault::FillDisk { host, full } => {
            world.set_disk_full(host, *full)?;
            format!("the disk of {host} {}", either(*full, "is full", "has room"))
        }
        Fault::FailMigrations { host, fail } => {
            world.set_migrations_fail(host, *fail)?;
            format!("migrations from {host} {}", either(*fail, "break", "arrive"))
        }
        Fault::Switch { host, trouble } => upset(world, host, *trouble)?,
        Fault::Slow {
            service,
            milliseconds,
        } => {
            let effect = ApiEffect::Delay(Duration::from_millis(*milliseconds));
            afflict(world, service, (*milliseconds > 0).then_some(effect))?
        }
        Fault::Refuse { service, code } => {
            if *code != 0 && !(400..=599).contains(code) {
                bail!("{code} is not a refusal: name an HTTP status from 400 to 599, or 0 to end it");
            }
            afflict(world, service, (*code > 0).then_some(ApiEffect::Refuse(*code)))?
        }
        Fault::CrashGuest { server } => {
            world.crash_guest(guest(server)?)?;
            format!("{server} crashed")
        }
        Fault::HangGuest { server } => {
            world.hang_guest(guest(server)?)?;
            format!("{server} hangs")
        }
    })
}

/// Lets a host's virtual switch misbehave, or behave again.
fn upset(world: &World, host: &str, trouble: SwitchTrouble) -> Result<String, cobaltcore_sim::Error> {
    Ok(match trouble {
        SwitchTrouble::Slow(0) => {
            world.set_vswitchd(host, Vswitchd::Up)?;
            format!("the switch of {host} answers as ever")
        }
        SwitchTrouble::Slow(milliseconds) => {
            world.set_vswitchd(host, Vswitchd::Slow(Duration::from_millis(milliseconds)))?;
            format!("the switch of {host} answers {milliseconds} ms later")
        }
        SwitchTrouble::Hangs(hangs) => {
            let (state, text) = either(hangs, (Vswitchd::Hung, "hangs"), (Vswitchd::Up, "answers"));
            world.set_vswitchd(host, state)?;
            format!("the switch of {host} {text}")
        }
        SwitchTrouble::Stopped(stopped) => {
            let (state, text) = either(stopped, (Vswitchd::Down, "is stopped"), (Vswitchd::Up, "runs"));
            world.set_vswitchd(host, state)?;
            format!("the switch of {host} {text}")
        }
        SwitchTrouble::DatabaseStopped(stopped) => {
            world.set_ovsdb(host, !stopped)?;
            format!("ovsdb-server on {host} {}", either(stopped, "is stopped", "runs"))
        }
        SwitchTrouble::OvnDisconnected(lost) => {
            world.set_ovn(host, !lost)?;
            format!(
                "ovn-controller on {host} {}",
                either(lost, "is not connected", "is connected")
            )
        }
        SwitchTrouble::OrphanPort => {
            world.leave_port(host)?;
            format!("the switch of {host} has a port whose guest is gone")
        }
        SwitchTrouble::StaleFlow => {
            world.leave_flow(host)?;
            format!("the switch of {host} has a flow for a port that is gone")
        }
        SwitchTrouble::Tidy => {
            world.tidy_switch(host)?;
            format!("nothing is left behind on the switch of {host}")
        }
    })
}

fn either<T>(so: bool, yes: T, no: T) -> T {
    if so { yes } else { no }
}

/// Lets a service of the cloud run into something, or into nothing any more.
fn afflict(world: &World, service: &str, effect: Option<ApiEffect>) -> anyhow::Result<String> {
    if !Service::ALL.iter().any(|known| known.name() == service) {
        let known = Service::ALL.map(Service::name).join(", ");
        bail!("the simulated cloud has no service {service}; it has {known}");
    }
    let text = effect
        .as_ref()
        .map_or_else(|| "answers as ever".to_owned(), trouble);
    world.set_api(service, effect);
    Ok(format!("{service} {text}"))
}

fn guest(server: &str) -> anyhow::Result<Uuid> {
    let id = server.parse();
    id.map_err(|_| anyhow!("\"{server}\" is not the UUID of a server"))
}
