// SPDX-License-Identifier: Apache-2.0
//! Whether Ceph lets a client break locks, asked of a program that answers as `ceph auth get` does.
#![allow(clippy::unwrap_used)]

mod support;

use std::path::PathBuf;

use cobaltcore_ha_fencing::{CephClient, Locks};
use support::install;

/// What the `ceph` of 16.2 prints to `auth get client.nova --format json`, an empty first line included.
const JSON: &str = r#"
[{"entity":"client.nova","key":"AQSECRETSECRETSECRETSECRETSECRETSECRET==","caps":{"mon":"CAPS","osd":"profile rbd pool=vms, profile rbd-read-only pool=images"}}]"#;
/// The same without a format.
const KEYRING: &str = "[client.nova]\n\tkey = AQSECRETSECRETSECRETSECRETSECRETSECRET==\n\tcaps mon = \"allow r, allow command \\\"osd blocklist\\\"\"\n\tcaps osd = \"allow rwx pool=vms\"\n";

struct Rig {
    folder: tempfile::TempDir,
    client: CephClient,
}

impl Rig {
    /// A `ceph` that notes how it is called and then does what `script` says.
    fn new(script: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("ceph");
        let text = format!(
            "#!/bin/sh\ncd {}\necho \"$*\" >arguments; env >environment\n{script}\n",
            folder.path().display()
        );
        install(&program, &text);
        let client = CephClient {
            client: "client.nova".to_owned(),
            command: program.display().to_string(),
            args: ["--id", "ha"].map(str::to_owned).to_vec(),
            ..CephClient::default()
        };
        assert_eq!(client.mistakes(), []);
        Self { folder, client }
    }

    /// One that prints `text`, and what the real one says besides on its error stream.
    fn printing(text: &str) -> Self {
        let rig = Self::new("cat answer; echo 'exported keyring for client.nova' >&2");
        std::fs::write(rig.file("answer"), text).unwrap();
        rig
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    async fn refused(&self) -> String {
        let error = self.client.locks().await.unwrap_err().to_string();
        assert!(!error.contains("SECRET"), "{error}");
        error
    }
}

#[tokio::test]
async fn the_monitors_are_asked_what_the_client_may_do() {
    for (caps, wanted) in [
        ("profile rbd", Locks::Breaks),
        ("allow r, allow command \\\"osd blocklist\\\"", Locks::Breaks),
        ("allow r", Locks::Cannot),
        ("allow r, allow command \\\"osd blacklist\\\"", Locks::CouldOnce),
    ] {
        let mut rig = Rig::printing(&JSON.replace("CAPS", caps));
        rig.client.env.insert("CEPH_CONF".to_owned(), "/conf".to_owned());
        assert_eq!(rig.client.locks().await.unwrap(), wanted, "{caps}");
        let arguments = std::fs::read_to_string(rig.file("arguments")).unwrap();
        assert_eq!(arguments, "--id ha auth get client.nova --format json\n");
        let environment = std::fs::read_to_string(rig.file("environment")).unwrap();
        assert!(environment.contains("CEPH_CONF=/conf"), "{environment}");
        assert!(!environment.contains("CARGO"), "{environment}");
    }
    assert_eq!(
        Rig::printing(KEYRING).client.locks().await.unwrap(),
        Locks::Breaks
    );
}

#[tokio::test]
async fn what_cannot_be_told_is_an_error_that_keeps_the_key_to_itself() {
    let unknown = Rig::new("echo 'Error ENOENT: failed to find client.nova in keyring' >&2; exit 2");
    let said = unknown.refused().await;
    assert!(
        said.contains("ended with 2: Error ENOENT: failed to find client.nova"),
        "{said}"
    );
    let other = Rig::printing(&JSON.replace("client.nova", "client.glance"));
    assert!(other.refused().await.contains("neither JSON nor a keyring"));
    let cut = JSON.replace("CAPS", "profile rbd");
    assert!(Rig::printing(&cut[..60]).refused().await.contains("neither JSON"));
    let mut slow = Rig::new("sleep 600");
    slow.client.timeout = "100ms".parse().unwrap();
    assert!(slow.refused().await.contains("no answer within"));
    let mut none = Rig::new("true");
    none.client.command = none.file("nowhere").display().to_string();
    assert!(none.refused().await.contains("cannot be started"));
}

#[test]
fn what_makes_no_sense_is_a_mistake() {
    let bad = CephClient {
        client: "nova".to_owned(),
        command: String::new(),
        timeout: "2m".parse().unwrap(),
        ..CephClient::default()
    };
    let keys: Vec<&str> = bad.mistakes().into_iter().map(|(key, _)| key).collect();
    assert_eq!(keys, ["client", "command", "timeout"]);
}
