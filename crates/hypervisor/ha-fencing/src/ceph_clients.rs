// SPDX-License-Identifier: Apache-2.0
//! Asks Ceph whether the client that opens the disks of guests may break locks, before a host dies
//! that holds some. The program `ceph` is asked (`auth get`), or whatever stands in for it; the key
//! that it prints is not kept, and no part of what it prints is ever told.

use std::collections::BTreeMap;
use std::time::Duration;

use cobaltcore_kit::config::HumanDuration;
use serde::{Deserialize, Serialize};

use crate::ceph_caps::{Locks, locks};
use crate::error::{Error, Result};
use crate::program::{Failure, Program};

const ACTION: &str = "auth get";
/// As for every request.
const LONGEST: Duration = Duration::from_secs(10);

/// A client of Ceph, and how its capabilities are asked for.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct CephClient {
    /// What the cluster is called, for people.
    pub cluster: String,
    /// The client that opens the disks of guests, such as `client.nova`.
    pub client: String,
    /// The program; `auth get CLIENT --format json` follows its arguments.
    pub command: String,
    /// Its first arguments, such as where its configuration is and who asks.
    pub args: Vec<String>,
    /// Its environment, which is empty otherwise.
    pub env: BTreeMap<String, String>,
    /// How long it may take.
    pub timeout: HumanDuration,
}

impl Default for CephClient {
    fn default() -> Self {
        Self {
            cluster: "ceph".to_owned(),
            client: String::new(),
            command: "ceph".to_owned(),
            args: Vec::new(),
            env: BTreeMap::new(),
            timeout: HumanDuration(LONGEST),
        }
    }
}

/// What `ceph auth get --format json` prints, as far as it matters.
#[derive(Debug, Deserialize)]
struct Entry {
    entity: String,
    #[serde(default)]
    caps: BTreeMap<String, String>,
}

impl CephClient {
    /// What is wrong with it, by key.
    pub fn mistakes(&self) -> Vec<(&'static str, String)> {
        let mut mistakes = Vec::new();
        let kind = self.client.split_once('.');
        if !kind.is_some_and(|(kind, name)| kind == "client" && !name.is_empty()) {
            let text = "must be the whole name of a client, such as client.nova";
            mistakes.push(("client", text.to_owned()));
        }
        if self.command.is_empty() {
            mistakes.push(("command", "must be a program".to_owned()));
        }
        if self.timeout.0.is_zero() || self.timeout.0 > LONGEST {
            mistakes.push(("timeout", format!("must be at most {}s", LONGEST.as_secs())));
        }
        mistakes
    }

    /// Its name among all.
    pub fn name(&self) -> String {
        format!("{}/{}", self.cluster, self.client)
    }

    /// Asks what it may do.
    pub async fn locks(&self) -> Result<Locks> {
        let mut args: Vec<&str> = self.args.iter().map(String::as_str).collect();
        args.extend(["auth", "get", &self.client, "--format", "json"]);
        let env = self.env.iter();
        let program = Program {
            command: &self.command,
            args,
            environment: env.map(|(key, value)| (key.as_str(), value.as_str())).collect(),
            input: String::new(),
        };
        let ended = match program.run(self.timeout.0).await {
            Ok(ended) => ended,
            Err(Failure::Late) => return Err(self.failed(format!("no answer within {}", self.timeout))),
            Err(Failure::Other(detail)) => return Err(self.failed(detail)),
        };
        if ended.code != Some(0) {
            return Err(self.failed(ended.badly()));
        }
        let said = String::from_utf8_lossy(&ended.output);
        let caps = capabilities(&said, &self.client).ok_or_else(|| {
            self.failed("it printed neither JSON nor a keyring with this client".to_owned())
        })?;
        Ok(locks(caps.get("mon").map_or("", String::as_str)))
    }

    fn failed(&self, detail: String) -> Error {
        Error::Command {
            command: self.command.clone(),
            action: ACTION,
            detail,
        }
    }
}

/// The capabilities of a client in what was printed about it, by kind of daemon.
fn capabilities(said: &str, client: &str) -> Option<BTreeMap<String, String>> {
    match serde_json::from_str::<Vec<Entry>>(said) {
        Ok(entries) => entries
            .into_iter()
            .find(|entry| entry.entity == client)
            .map(|entry| entry.caps),
        Err(_) => of_keyring(said, client),
    }
}

/// The same in a keyring, which is what whoever does not know about formats prints:
/// `[client.nova]`, then lines such as `caps mon = "profile rbd"`.
fn of_keyring(said: &str, client: &str) -> Option<BTreeMap<String, String>> {
    let section = format!("[{client}]");
    let mut lines = said.lines().map(str::trim).skip_while(|line| *line != section);
    lines.next()?;
    let mut caps = BTreeMap::new();
    for line in lines.take_while(|line| !line.starts_with('[')) {
        if let Some((daemon, text)) = line.strip_prefix("caps ").and_then(|rest| rest.split_once('=')) {
            let text = text.trim();
            let inside = text.strip_prefix('"').and_then(|text| text.strip_suffix('"'));
            let text = inside.unwrap_or(text).replace("\\\"", "\"");
            caps.insert(daemon.trim().to_owned(), text);
        }
    }
    Some(caps)
}
