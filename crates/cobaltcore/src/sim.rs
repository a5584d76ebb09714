// SPDX-License-Identifier: Apache-2.0
//! `cobaltcore sim`: faults for the simulated world of a running `up`.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use clap::{Args as ClapArgs, Subcommand};

use crate::run::{self, Failure, LogArgs};
use crate::up::{Fault, Reply, SOCKET, SwitchTrouble};

/// Break and mend the simulated world of a running `up`
///
/// The world reacts as a real one would: a host without power takes its guests along and falls silent, a cut network
/// leaves them running where nobody can see them.
#[derive(Debug, ClapArgs)]
pub(crate) struct Args {
    /// Data directory of the running `up`
    #[arg(long, global = true, env = "COBALTCORE_KUBE_DATA_DIR", value_name = "DIR")]
    data_dir: Option<PathBuf>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Take a host's power away, at once and without a word
    Kill { host: String },
    /// Give a host its power back; it takes a while to boot
    Boot { host: String },
    /// Cut a host's network: its guests run on where nobody sees them
    Cut { host: String },
    /// Mend a host's network
    Mend { host: String },
    /// Let a host's libvirt accept connections and answer nothing
    HangLibvirt { host: String },
    /// Let it answer again
    UnhangLibvirt { host: String },
    /// Fill a host's disk: guests that arrive or are made there fail, and its Node is under disk pressure
    FillDisk { host: String },
    /// Make room on it again
    ClearDisk { host: String },
    /// Let every live migration from a host break on its way
    FailMigrations { host: String },
    /// Let them arrive again
    MendMigrations { host: String },
    /// Let a host's virtual switch answer later on its control and OpenFlow sockets; 0 ends it
    SlowSwitch {
        host: String,
        #[arg(value_name = "MS")]
        milliseconds: u64,
    },
    /// Let a host's virtual switch accept connections and answer nothing
    HangSwitch { host: String },
    /// Let it answer again
    UnhangSwitch { host: String },
    /// Stop a host's ovs-vswitchd: its sockets are gone, its database goes on
    StopSwitch { host: String },
    /// Start it again
    StartSwitch { host: String },
    /// Stop a host's ovsdb-server
    StopOvsdb { host: String },
    /// Start it again
    StartOvsdb { host: String },
    /// Let a host's ovn-controller lose the Southbound database: guests that arrive get no flows
    DisconnectOvn { host: String },
    /// Let it find the Southbound database again
    ConnectOvn { host: String },
    /// Leave a port behind on a host's switch whose guest and device are gone
    OrphanPort { host: String },
    /// Leave a flow behind on a host's switch that matches a port that is gone
    StaleFlow { host: String },
    /// Clear away what was left behind on a host's switch
    TidySwitch { host: String },
    /// Let a service of the cloud (compute, placement, identity, image, network, volume) answer later; 0 ends it
    Slow {
        service: String,
        #[arg(value_name = "MS")]
        milliseconds: u64,
    },
    /// Let a service of the cloud refuse every call with an HTTP status, 503 say; 0 ends it
    Refuse {
        service: String,
        #[arg(value_name = "CODE")]
        code: u16,
    },
    /// Let the process of a guest die, by the server's UUID
    CrashGuest {
        #[arg(value_name = "UUID")]
        server: String,
    },
    /// Let a guest do nothing any more while its process lives on
    HangGuest {
        #[arg(value_name = "UUID")]
        server: String,
    },
}

fn switch(host: String, trouble: SwitchTrouble) -> Fault {
    Fault::Switch { host, trouble }
}

impl From<Command> for Fault {
    fn from(command: Command) -> Self {
        match command {
            Command::Kill { host } => Self::Kill { host },
            Command::Boot { host } => Self::Boot { host },
            Command::Cut { host } => Self::Cut { host },
            Command::Mend { host } => Self::Mend { host },
            Command::HangLibvirt { host } => Self::HangLibvirt { host, hangs: true },
            Command::UnhangLibvirt { host } => Self::HangLibvirt { host, hangs: false },
            Command::FillDisk { host } => Self::FillDisk { host, full: true },
            Command::ClearDisk { host } => Self::FillDisk { host, full: false },
            Command::FailMigrations { host } => Self::FailMigrations { host, fail: true },
            Command::MendMigrations { host } => Self::FailMigrations { host, fail: false },
            Command::SlowSwitch { host, milliseconds } => switch(host, SwitchTrouble::Slow(milliseconds)),
            Command::HangSwitch { host } => switch(host, SwitchTrouble::Hangs(true)),
            Command::UnhangSwitch { host } => switch(host, SwitchTrouble::Hangs(false)),
            Command::StopSwitch { host } => switch(host, SwitchTrouble::Stopped(true)),
            Command::StartSwitch { host } => switch(host, SwitchTrouble::Stopped(false)),
            Command::StopOvsdb { host } => switch(host, SwitchTrouble::DatabaseStopped(true)),
            Command::StartOvsdb { host } => switch(host, SwitchTrouble::DatabaseStopped(false)),
            Command::DisconnectOvn { host } => switch(host, SwitchTrouble::OvnDisconnected(true)),
            Command::ConnectOvn { host } => switch(host, SwitchTrouble::OvnDisconnected(false)),
            Command::OrphanPort { host } => switch(host, SwitchTrouble::OrphanPort),
            Command::StaleFlow { host } => switch(host, SwitchTrouble::StaleFlow),
            Command::TidySwitch { host } => switch(host, SwitchTrouble::Tidy),
            Command::Slow {
                service,
                milliseconds,
            } => Self::Slow {
                service,
                milliseconds,
            },
            Command::Refuse { service, code } => Self::Refuse { service, code },
            Command::CrashGuest { server } => Self::CrashGuest { server },
            Command::HangGuest { server } => Self::HangGuest { server },
        }
    }
}

pub(crate) fn run(log: &LogArgs, args: Args) -> ExitCode {
    run::block_on(log, "sim", async move {
        let folder = args.data_dir.unwrap_or_else(|| run::state_dir("up"));
        match ask(&folder.join(SOCKET), &args.command.into())? {
            Reply::Done { text } => {
                say!("{text}");
                Ok(())
            }
            Reply::Refused { why } => Err(Failure::from(anyhow::anyhow!(why))),
        }
    })
}

fn ask(socket: &Path, fault: &Fault) -> anyhow::Result<Reply> {
    let mut stream = UnixStream::connect(socket).with_context(|| {
        format!(
            "nothing simulated runs behind {}; start `cobaltcore up`, or name its --data-dir",
            socket.display()
        )
    })?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    writeln!(stream, "{}", serde_json::to_string(fault)?)?;
    let mut line = String::new();
    BufReader::new(stream)
        .read_line(&mut line)
        .context("no answer came")?;
    serde_json::from_str(&line).context("the answer is not understood")
}
