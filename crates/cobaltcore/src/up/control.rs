// SPDX-License-Identifier: Apache-2.0
//! Faults on demand: `cobaltcore sim …` tells a running `up` over a local socket in its data
//! directory, one JSON line each way. Only the owner of the directory can reach it.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use cobaltcore_sim::World;
use cobaltcore_sim::world::{ApiEffect, ApiFault, Libvirt, Power};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio_util::task::AbortOnDropHandle;

/// The socket's name in the data directory.
pub(crate) const SOCKET: &str = "sim.sock";
const LONGEST_LINE: u64 = 64 * 1024;
const PATIENCE: Duration = Duration::from_secs(10);

/// What can be done to a simulated world.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Fault {
    /// Take a host's power away.
    Kill { host: String },
    /// Give it back.
    Boot { host: String },
    /// Cut a host's network.
    Cut { host: String },
    /// Mend it.
    Mend { host: String },
    /// Let a host's libvirt hang, or answer again.
    HangLibvirt { host: String, hangs: bool },
    /// Let a service of the cloud take this much longer for each call; zero ends it.
    Slow { service: String, milliseconds: u64 },
    /// Let the process of a guest die.
    CrashGuest { server: String },
}

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
    fn inject(&self, fault: &cobaltcore_console::faults::Fault) -> Result<String, String> {
        use cobaltcore_console::faults::Fault as Asked;
        let fault = match fault.clone() {
            Asked::Kill { host } => Fault::Kill { host },
            Asked::Boot { host } => Fault::Boot { host },
            Asked::Cut { host } => Fault::Cut { host },
            Asked::Mend { host } => Fault::Mend { host },
            Asked::CrashGuest { server } => Fault::CrashGuest { server },
        };
        // Called on a thread that may wait.
        let reply = kept(&self.0, carry_out(&self.0, &fault));
        match tokio::runtime::Handle::current().block_on(reply) {
            Reply::Done { text } => Ok(text),
            Reply::Refused { why } => Err(why),
        }
    }

    fn truth(&self, host: &str) -> Option<cobaltcore_console::faults::Truth> {
        self.0.read(|state| {
            let host = state.hosts.get(host)?;
            Some(cobaltcore_console::faults::Truth {
                powered: host.power == Power::On,
                booting: host.power == Power::Booting,
                cut: host.cut,
            })
        })
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
    let outcome = match fault {
        Fault::Kill { host } => world.power_off(host).map(|()| format!("{host} has no power")),
        Fault::Boot { host } => world.power_on(host).map(|()| format!("{host} boots")),
        Fault::Cut { host } => world.cut(host).map(|()| format!("{host} is cut off")),
        Fault::Mend { host } => world.mend(host).map(|()| format!("{host} is connected")),
        Fault::HangLibvirt { host, hangs } => {
            let (state, text) = if *hangs {
                (Libvirt::Hung, "hangs")
            } else {
                (Libvirt::Up, "answers")
            };
            world
                .set_libvirt(host, state)
                .map(|()| format!("libvirt on {host} {text}"))
        }
        Fault::Slow {
            service,
            milliseconds: 0,
        } => {
            world.heal();
            Ok(format!("{service} is as fast as ever"))
        }
        Fault::Slow {
            service,
            milliseconds,
        } => {
            let effect = ApiEffect::Delay(Duration::from_millis(*milliseconds));
            world.break_api(ApiFault::all(effect).service(service.clone()));
            Ok(format!("{service} takes {milliseconds} ms longer for each call"))
        }
        Fault::CrashGuest { server } => match server.parse() {
            Ok(id) => world.crash_guest(id).map(|()| format!("{server} crashed")),
            Err(_) => {
                return Reply::Refused {
                    why: format!("\"{server}\" is not the UUID of a server"),
                };
            }
        },
    };
    match outcome {
        Ok(text) => Reply::Done { text },
        Err(error) => Reply::Refused {
            why: error.to_string(),
        },
    }
}
