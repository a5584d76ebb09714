// SPDX-License-Identifier: Apache-2.0
//! A program as a fencing device: fence agents of the Linux-HA world, IPMI tools, or a script of
//! one's own. It is run without a shell, with an empty environment, a time limit and a bound on
//! what it may print; when its time is over, everything it started ends with it. Secrets reach it
//! on standard input or in its environment, never as arguments that everybody can read.

use std::collections::BTreeMap;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use cobaltcore_api::names::HostName;
use cobaltcore_ha_engine::{Identity, Power};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use serde::Deserialize;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{Child, Command};
use tokio::sync::Semaphore;

use crate::config::{Driver, Protocol};
use crate::credentials::{Credentials, Source};
use crate::device::Device;
use crate::error::{Error, Result};

/// Most bytes a program may print on either stream.
const LONGEST_OUTPUT: u64 = 64 << 10;
/// Where programs are looked for.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

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
    pub(crate) programs: Arc<Semaphore>,
}

/// What a program printed and how it ended.
struct Ended {
    code: Option<i32>,
    output: Vec<u8>,
    words: String,
}

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

    async fn run(&self, action: &'static str) -> Result<Ended> {
        let credentials = self
            .credentials
            .as_ref()
            .map(|source| source.of(&self.host))
            .transpose()?;
        let work = async {
            let turn = self.programs.acquire().await;
            let _turn = turn.map_err(|_| self.failed(action, "the service is stopping"))?;
            self.started(action, credentials.as_ref()).await
        };
        let late = || Error::TimedOut {
            what: "running a fencing program",
            device: format!("{} for {}", self.command, self.host),
            limit: self.limit,
        };
        tokio::time::timeout(self.limit, work).await.map_err(|_| late())?
    }

    async fn started(&self, action: &'static str, credentials: Option<&Credentials>) -> Result<Ended> {
        let mut command = Command::new(&self.command);
        command
            .args(&self.args)
            .env_clear()
            .env("PATH", PATH)
            .env("LANG", "C.UTF-8")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true);
        let input = match self.protocol {
            Protocol::FenceAgent => self.lines(action, credentials),
            Protocol::Json => {
                command
                    .arg(action)
                    .envs(&self.options)
                    .env("FENCE_HOST", self.host.as_str());
                if let Some(who) = credentials {
                    command.env("FENCE_USERNAME", &who.username);
                    command.env("FENCE_PASSWORD", who.password.reveal());
                }
                String::new()
            }
        };
        let child = command
            .spawn()
            .map_err(|error| self.failed(action, format!("cannot be started: {error}")))?;
        let mut family = Family(child);
        let child = &mut family.0;
        let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let write = async move {
            if let Some(mut stdin) = stdin {
                // A program that does not read its input ends the pipe; that is its own affair.
                let _ = stdin.write_all(input.as_bytes()).await;
            }
        };
        let ((), output, words) = tokio::join!(write, read(stdout), read(stderr));
        let (Some(output), Some(words)) = (output, words) else {
            return Err(self.failed(action, format!("it prints more than {LONGEST_OUTPUT} bytes")));
        };
        let status = child
            .wait()
            .await
            .map_err(|error| self.failed(action, error.to_string()))?;
        let words = String::from_utf8_lossy(&words);
        let mut words: String = words
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" ")
            .chars()
            .take(300)
            .collect();
        if let Some(who) = credentials.filter(|who| !who.password.reveal().is_empty()) {
            words = words.replace(who.password.reveal(), "***");
        }
        Ok(Ended {
            code: status.code(),
            output,
            words,
        })
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
        let how = ended
            .code
            .map_or("was killed".to_owned(), |code| format!("ended with {code}"));
        self.failed(action, format!("it {how}: {}", ended.words))
    }

    fn said(&self, action: &'static str, ended: &Ended) -> Result<Said> {
        if ended.code != Some(0) {
            return Err(self.ended_badly(action, ended));
        }
        serde_json::from_slice(&ended.output)
            .map_err(|error| self.failed(action, format!("it did not print JSON: {error}")))
    }

    async fn status(&self) -> Result<Power> {
        const ACTION: &str = "status";
        let ended = self.run(ACTION).await?;
        match self.protocol {
            Protocol::FenceAgent => match ended.code {
                Some(0) => Ok(Power::On),
                Some(2) => Ok(Power::Off),
                _ => Err(self.ended_badly(ACTION, &ended)),
            },
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

/// All that is printed, or nothing if it is too much.
async fn read(stream: Option<impl AsyncRead + Unpin>) -> Option<Vec<u8>> {
    let mut all = Vec::new();
    if let Some(stream) = stream {
        let _ = stream.take(LONGEST_OUTPUT + 1).read_to_end(&mut all).await;
    }
    (all.len() as u64 <= LONGEST_OUTPUT).then_some(all)
}

/// A program and everything it started; all of it ends with this value.
struct Family(Child);

impl Drop for Family {
    fn drop(&mut self) {
        let id = self.0.id().and_then(|id| i32::try_from(id).ok());
        if let Some(group) = id.and_then(rustix::process::Pid::from_raw) {
            let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        }
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
