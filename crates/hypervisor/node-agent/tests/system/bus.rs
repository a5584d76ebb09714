// SPDX-License-Identifier: Apache-2.0
//! A message bus of one's own: the real daemon on a socket in a directory that goes with the test.

use std::io::Write as _;
use std::process::Stdio;

use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};

const POLICY: &str = r#"<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN"
 "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig><type>session</type><auth>EXTERNAL</auth><listen>unix:path=SOCKET</listen>
<policy context="default"><allow user="*"/><allow own="*"/><allow send_destination="*" eavesdrop="false"/>
<allow receive_sender="*"/><allow send_type="method_call"/></policy></busconfig>
"#;

pub(crate) struct Bus {
    directory: tempfile::TempDir,
    daemon: Option<Child>,
}

impl Bus {
    /// A running bus, or one line that says why the test is skipped.
    pub(crate) async fn start() -> Option<Self> {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("bus");
        let policy = POLICY.replace("SOCKET", socket.to_str().unwrap());
        std::fs::write(directory.path().join("bus.conf"), policy).unwrap();
        let mut bus = Self {
            directory,
            daemon: None,
        };
        match bus.up().await {
            Ok(()) => Some(bus),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                // Past the test harness, which hides what tests that pass say.
                let _ = std::io::stderr()
                    .write_all(b"SKIPPED: dbus-daemon is not installed (Debian package dbus)\n");
                None
            }
            Err(error) => panic!("dbus-daemon does not start: {error}"),
        }
    }

    pub(crate) async fn up(&mut self) -> std::io::Result<()> {
        let _ = std::fs::remove_file(self.directory.path().join("bus"));
        let mut daemon = Command::new("dbus-daemon")
            .arg(format!(
                "--config-file={}",
                self.directory.path().join("bus.conf").display()
            ))
            .args(["--nofork", "--nopidfile", "--print-address"])
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let mut line = String::new();
        BufReader::new(daemon.stdout.take().unwrap())
            .read_line(&mut line)
            .await?;
        assert!(line.starts_with("unix:path="), "dbus-daemon said {line:?}");
        self.daemon = Some(daemon);
        Ok(())
    }

    pub(crate) async fn down(&mut self) {
        if let Some(mut daemon) = self.daemon.take() {
            daemon.kill().await.unwrap();
        }
    }

    pub(crate) fn address(&self) -> String {
        format!("unix:path={}", self.directory.path().join("bus").display())
    }
}
