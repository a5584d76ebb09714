// SPDX-License-Identifier: Apache-2.0
//! A program as a fencing device: fence agents of the Linux-HA world, IPMI tools, or a script of
//! one's own. Secrets reach it on standard input or in its environment, never as arguments that
//! everybody can read.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use cobaltcore_api::names::HostName;
use cobaltcore_ha_engine::{Identity, Power};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use serde::Deserialize;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::{Instant, timeout_at};

use crate::config::{Driver, Protocol};
use crate::credentials::{Credentials, Source};
use crate::device::{Device, Purpose};
use crate::error::{Error, Result};
use crate::network::{Network, leads_inside};
use crate::program::{Ended, Failure, Program};

/// A program for one host.
#[derive(Debug)]
pub(crate) struct Exec {
    pub(crate) host: HostName,
    pub(crate) command: String,
    pub(crate) args: Vec<String>,
    pub(crate) protocol: Protocol,
    pub(crate) options: BTreeMap<String, String>,
    pub(crate) credentials: Option<Source>,
    /// The machine behind it, as a person recorded it.
    pub(crate) machine: Identity,
    pub(crate) limit: Duration,
    pub(crate) purpose: Purpose,
    pub(crate) programs: Arc<Semaphore>,
    /// Where the program is led to, as far as that can be told from what it is given.
    pub(crate) targets: Vec<String>,
    /// The networks that devices may be in.
    pub(crate) networks: Arc<[Network]>,
}

/// What a fence agent prints of a host that is on, and ends with 0.
const ON: &str = "Status: ON";
/// What it prints of a host that is off, and ends with 2.
const OFF: &str = "Status: OFF";

/// What a program that speaks JSON prints.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Said {
    power: Option<String>,
    system_uuid: Option<String>,
    serial: Option<String>,
}

impl Exec {
    fn failed(&self, action: &'static str, detail: impl Into<String>) -> Error {
        Error::Command {
            command: self.command.clone(),
            action,
            detail: detail.into(),
        }
    }

    /// Runs the program. In an incident whoever asks must have an answer in time, so waiting for one's turn counts. A check
    /// says something of the device only if that had all its time.
    async fn run(&self, action: &'static str) -> Result<Ended> {
        let asked = Instant::now();
        let _turn = self.turn(action, asked + self.limit).await?;
        let begun = match self.purpose {
            Purpose::Incident => asked,
            Purpose::Check => Instant::now(),
        };
        let source = self.credentials.as_ref();
        let credentials = source.map(|source| source.of(&self.host)).transpose()?;
        let program = self.program(action, credentials.as_ref());
        let left = self.limit.saturating_sub(begun.elapsed());
        match program.run(left).await {
            Ok(mut ended) => {
                if let Some(who) = &credentials {
                    ended.hide(&who.password);
                }
                Ok(ended)
            }
            Err(Failure::Late) => Err(self.late()),
            Err(Failure::Other(detail)) => Err(self.failed(action, detail)),
        }
    }

    /// Waits for one's turn, once it is known that the program leads nowhere else.
    async fn turn(&self, action: &'static str, until: Instant) -> Result<SemaphorePermit<'_>> {
        for target in &self.targets {
            let inside = timeout_at(until, leads_inside(&self.networks, target)).await;
            if !inside.map_err(|_| self.late())? {
                let detail = format!("{target} is in none of fencing.allowed_networks; it is not begun");
                return Err(self.failed(action, detail));
            }
        }
        let Ok(turn) = timeout_at(until, self.programs.acquire()).await else {
            return Err(Error::NoTurn {
                device: self.device_of_host(),
                limit: self.limit,
            });
        };
        turn.map_err(|_| self.failed(action, "the service is stopping"))
    }

    fn late(&self) -> Error {
        Error::TimedOut {
            what: "running a fencing program",
            device: self.device_of_host(),
            limit: self.limit,
        }
    }

    fn device_of_host(&self) -> String {
        format!("{} for {}", self.command, self.host)
    }

    fn program<'a>(&'a self, action: &'a str, credentials: Option<&'a Credentials>) -> Program<'a> {
        let mut program = Program {
            command: &self.command,
            args: self.args.iter().map(String::as_str).collect(),
            ..Program::default()
        };
        match self.protocol {
            Protocol::FenceAgent => program.input = self.lines(action, credentials),
            Protocol::Json => {
                program.args.push(action);
                let options = self.options.iter();
                program.environment = options
                    .map(|(key, value)| (key.as_str(), value.as_str()))
                    .collect();
                program.environment.insert("FENCE_HOST", self.host.as_str());
                if let Some(who) = credentials {
                    program.environment.insert("FENCE_USERNAME", &who.username);
                    program
                        .environment
                        .insert("FENCE_PASSWORD", who.password.reveal());
                }
            }
        }
        program
    }

    /// What a fence agent reads on its standard input.
    fn lines(&self, action: &str, credentials: Option<&Credentials>) -> String {
        let mut lines = format!("action={action}\n");
        for (key, value) in &self.options {
            lines.push_str(&format!("{key}={value}\n"));
        }
        if let Some(who) = credentials {
            lines.push_str(&format!(
                "username={}\npassword={}\n",
                who.username,
                who.password.reveal()
            ));
        }
        lines
    }

    fn ended_badly(&self, action: &'static str, ended: &Ended) -> Error {
        self.failed(action, ended.badly())
    }

    fn no_status(&self, action: &'static str, ended: &Ended) -> Error {
        let (how, printed) = (ended.badly(), ended.printed());
        let wanted =
            format!("a fence agent prints `{ON}` and ends with 0, or prints `{OFF}` and ends with 2");
        self.failed(action, format!("{how}; it printed `{printed}`, but {wanted}"))
    }

    fn said(&self, action: &'static str, ended: &Ended) -> Result<Said> {
        if ended.code != Some(0) {
            return Err(self.ended_badly(action, ended));
        }
        // What it printed instead is not told: it could be anything that it knows.
        let wrong = |error: serde_json::Error| {
            let (line, column) = (error.line(), error.column());
            self.failed(
                action,
                format!("it did not print JSON of the right form: look at line {line}, column {column}"),
            )
        };
        serde_json::from_slice(&ended.output).map_err(wrong)
    }

    async fn status(&self) -> Result<Power> {
        const ACTION: &str = "status";
        let ended = self.run(ACTION).await?;
        match self.protocol {
            Protocol::FenceAgent => status_of(&ended).ok_or_else(|| self.no_status(ACTION, &ended)),
            Protocol::Json => match self.said(ACTION, &ended)?.power.as_deref() {
                Some("on") => Ok(Power::On),
                Some("off") => Ok(Power::Off),
                _ => Err(self.failed(ACTION, "it cannot tell whether the host is on")),
            },
        }
    }

    async fn order(&self, action: &'static str) -> Result<()> {
        let ended = self.run(action).await?;
        match ended.code {
            Some(0) => Ok(()),
            _ => Err(self.ended_badly(action, &ended)),
        }
    }

    async fn who(&self) -> Result<Identity> {
        const ACTION: &str = "identify";
        if self.protocol == Protocol::FenceAgent || self.machine != Identity::default() {
            return Ok(self.machine.clone());
        }
        let ended = self.run(ACTION).await?;
        let Said {
            system_uuid, serial, ..
        } = self.said(ACTION, &ended)?;
        Ok(Identity { system_uuid, serial })
    }
}

/// What a fence agent says of the power: by how it ends, and in the words that those of ClusterLabs print beside it. One
/// alone says nothing: a shell that does not find its script, and a program that does not know an option, end with 2 as well.
fn status_of(ended: &Ended) -> Option<Power> {
    let text = String::from_utf8_lossy(&ended.output);
    let says = |status: &str| text.lines().any(|line| line.trim().eq_ignore_ascii_case(status));
    match (ended.code, says(ON), says(OFF)) {
        (Some(0), true, false) => Some(Power::On),
        (Some(2), false, true) => Some(Power::Off),
        _ => None,
    }
}

impl Device for Exec {
    fn driver(&self) -> Driver {
        Driver::Exec
    }

    fn address(&self) -> String {
        let mut words = vec![self.command.clone()];
        words.extend(self.args.iter().cloned());
        words.extend(self.options.iter().map(|(key, value)| format!("{key}={value}")));
        // A program that is told nothing but the name of the host is told that.
        if self.protocol == Protocol::Json {
            words.push(self.host.to_string());
        }
        words.join(" ")
    }

    fn identify(&self) -> BoxFuture<'_, Result<Identity>> {
        self.who().boxed()
    }

    fn power(&self) -> BoxFuture<'_, Result<Power>> {
        self.status().boxed()
    }

    fn power_off(&self) -> BoxFuture<'_, Result<()>> {
        self.order("off").boxed()
    }

    /// Held by looking: the engine reads the power every few seconds.
    fn hold(&self) -> BoxFuture<'_, Result<()>> {
        futures::future::ready(Ok(())).boxed()
    }

    fn release(&self) -> BoxFuture<'_, Result<()>> {
        self.order("on").boxed()
    }
}
