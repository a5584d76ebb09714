// SPDX-License-Identifier: Apache-2.0
//! User names and passwords of devices. They live in files, usually those of a mounted Secret,
//! and are read at every use: a rotation needs no restart. Nothing here can print one.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use cobaltcore_api::names::HostName;
use cobaltcore_kit::config::Config;
use serde::Deserialize;

use crate::error::{Error, Result};

/// A text that is never shown.
#[derive(Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(transparent)]
pub struct Secret(String);

impl Secret {
    /// Wraps a text.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text itself, for the wire only.
    pub(crate) fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// A text in one line, without the secrets in it.
pub(crate) fn hidden(text: &str, secrets: &[Secret]) -> String {
    let line = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut text = line(text);
    for secret in secrets.iter().map(|secret| line(&secret.0)) {
        if !secret.is_empty() {
            text = text.replace(&secret, "***");
        }
    }
    text
}

/// Who to be.
#[derive(Clone, Debug, PartialEq, Eq, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Credentials {
    /// The user.
    pub username: String,
    /// The password.
    pub password: Secret,
}

/// What a credentials file holds: one pair for all, pairs for some hosts, or both.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct File {
    username: String,
    password: Secret,
    hosts: BTreeMap<String, Credentials>,
}

/// Where credentials come from: a YAML file, or a folder with the files `username` and `password`
/// as Kubernetes mounts a Secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Source(pub(crate) PathBuf);

impl Source {
    /// Those of a host, as they are now.
    pub(crate) fn of(&self, host: &HostName) -> Result<Credentials> {
        let found = if self.0.is_dir() {
            Credentials {
                username: self.line("username")?,
                password: Secret::new(self.line("password")?),
            }
        } else {
            let file: File = Config::new()
                .file(Some(&self.0))
                .load()
                .map_err(|error| self.bad(shown(&error.to_string())))?;
            let shared = Credentials {
                username: file.username,
                password: file.password,
            };
            file.hosts.get(host.as_str()).cloned().unwrap_or(shared)
        };
        if found.username.is_empty() {
            return Err(self.bad(format!("there is no username for {host}")));
        }
        Ok(found)
    }

    fn line(&self, name: &str) -> Result<String> {
        let path = self.0.join(name);
        let text = std::fs::read_to_string(&path).map_err(|error| unreadable(&path, &error.to_string()))?;
        Ok(text.trim_end_matches(['\r', '\n']).to_owned())
    }

    fn bad(&self, reason: String) -> Error {
        unreadable(&self.0, &reason)
    }
}

/// A mistake in the file is told by its place. What stands there could be a password.
fn shown(mistakes: &str) -> String {
    let places: Vec<&str> = mistakes
        .lines()
        .filter_map(|line| line.trim().split(':').nth(1))
        .filter(|part| part.chars().all(|c| c.is_ascii_digit()))
        .collect();
    let wanted = "not of the form {username, password, hosts: {HOST: {username, password}}}";
    match places.first() {
        Some(line) => format!("line {line} is {wanted}"),
        None => format!("it cannot be read, or is {wanted}"),
    }
}

fn unreadable(path: &Path, reason: &str) -> Error {
    Error::Credentials {
        path: path.to_owned(),
        reason: reason.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(name: &str) -> HostName {
        HostName::new(name).unwrap()
    }

    #[test]
    fn a_file_has_one_pair_for_all_and_others_for_some() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("bmc.yaml");
        std::fs::write(
            &path,
            "username: admin\npassword: one\nhosts:\n  n2: {username: root, password: two}\n",
        )
        .unwrap();
        let source = Source(path.clone());
        let of = |name| source.of(&host(name)).unwrap();
        assert_eq!(of("n1").password.reveal(), "one");
        assert_eq!(of("n2").username, "root");
        assert_eq!(of("n2").password.reveal(), "two");
        std::fs::write(&path, "username: admin\npassword: three\n").unwrap();
        assert_eq!(of("n1").password.reveal(), "three", "a rotation needs no restart");
    }

    #[test]
    fn a_mounted_secret_is_a_folder() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("username"), "admin\n").unwrap();
        let source = Source(folder.path().to_owned());
        assert!(source.of(&host("n1")).is_err(), "half a secret is none");
        std::fs::write(folder.path().join("password"), "pass word ").unwrap();
        assert_eq!(source.of(&host("n1")).unwrap().password.reveal(), "pass word ");
    }

    #[test]
    fn nothing_that_is_printed_holds_a_password() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("bmc.yaml");
        std::fs::write(&path, "username: admin\npassword: hunter2\n").unwrap();
        let found = Source(path.clone()).of(&host("n1")).unwrap();
        assert!(!format!("{found:?}").contains("hunter2"));
        for broken in [
            "username: admin\npasswort: hunter2\n",
            "- hunter2\n",
            "username: admin\npassword: [hunter2]\n",
        ] {
            std::fs::write(&path, broken).unwrap();
            let error = Source(path.clone()).of(&host("n1")).unwrap_err().to_string();
            assert!(!error.contains("hunter2"), "{error}");
            assert!(error.contains("bmc.yaml"), "{error}");
        }
    }
}
