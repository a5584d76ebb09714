// SPDX-License-Identifier: Apache-2.0
//! The real agent on every host of the lab: the program itself, inside the host, so that it loses its power and its
//! cable with it. What an init system does on a real host, a thread does here: it starts the agent whenever its host
//! is on and it is not.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use cobaltcore_lab::{Host, Lab};

/// How often a keeper looks after its agent.
const LOOK: Duration = Duration::from_millis(300);

/// The program with all roles, as a test of it has it built: with the features of tests, so that nothing is built twice.
pub(crate) fn program() -> PathBuf {
    let exe = std::env::current_exe().unwrap();
    let profile = exe.parent().and_then(Path::parent).unwrap();
    let mut build = Command::new(env!("CARGO"));
    build
        .args(["test", "--workspace", "--test", "up", "--no-run", "--target-dir"])
        .arg(profile.parent().unwrap())
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.."));
    // What Cargo tells this test about its package would look like a change to build scripts that ask for theirs.
    let told = std::env::vars_os().map(|(name, _)| name.to_string_lossy().into_owned());
    for name in told.filter(|name| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_")) {
        build.env_remove(name);
    }
    if profile.ends_with("release") {
        build.arg("--release");
    }
    assert!(build.status().unwrap().success(), "the program cannot be built");
    profile.join("cobaltcore")
}

/// Agents at work; they end with this value.
pub(crate) struct Agents {
    over: Arc<AtomicBool>,
    keepers: Vec<JoinHandle<()>>,
}

impl Agents {
    /// Starts one on every host. `more` is what is configured for a host besides the usual.
    pub(crate) fn start(
        lab: &Lab,
        program: &Path,
        service: &str,
        folder: &Path,
        more: impl Fn(&Host) -> String,
    ) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let token = folder.join("agent-token");
        std::fs::write(&token, super::common::AGENT).unwrap();
        let keepers = lab.hosts().iter().map(|host| {
            let place = folder.join(host.name());
            let root = place.join("root");
            // The machine's name is the lab's invention; the rest of the kernel's files are the host's own.
            let dmi = root.join("sys/class/dmi/id");
            std::fs::create_dir_all(&dmi).unwrap();
            std::fs::write(dmi.join("product_uuid"), &host.description().uuid).unwrap();
            std::os::unix::fs::symlink("/proc", root.join("proc")).unwrap();
            let config = format!(
                "service: {{endpoints: ['{service}'], token_file: '{}'}}\n\
                 heartbeat: {{interval: 2s}}\ninventory: {{interval: 10s}}\n\
                 spool: {{dir: '{}'}}\nmetrics: {{listen: ''}}\n{}",
                token.display(),
                place.join("spool").display(),
                more(host),
            );
            std::fs::write(place.join("config.yaml"), config).unwrap();
            let keeper = Keeper {
                host: host.clone(),
                lab: lab.description().command.clone(),
                program: program.to_owned(),
                place,
                over: Arc::clone(&over),
            };
            std::thread::spawn(move || keeper.keep())
        });
        let keepers = keepers.collect();
        Self { over, keepers }
    }
}

impl Drop for Agents {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        for keeper in self.keepers.drain(..) {
            // A keeper that panicked has said so.
            let _ = keeper.join();
        }
    }
}

struct Keeper {
    host: Host,
    lab: PathBuf,
    program: PathBuf,
    place: PathBuf,
    over: Arc<AtomicBool>,
}

impl Keeper {
    fn keep(self) {
        let mut agent: Option<Child> = None;
        while !self.over.load(Ordering::Relaxed) {
            if let Some(running) = &mut agent
                && running.try_wait().unwrap().is_some()
            {
                agent = None;
            }
            if agent.is_none() && self.host.is_on().unwrap_or(false) {
                agent = Some(self.start());
            }
            std::thread::sleep(LOOK);
        }
        let Some(mut running) = agent else { return };
        // One that was started a moment ago may not have told its id yet.
        while running.try_wait().unwrap().is_none() {
            let pid = std::fs::read_to_string(self.pid()).unwrap_or_default();
            if !pid.trim().is_empty() {
                // By its id, which is that of the host's own process namespace.
                let _ = self.host.exec(&["kill", pid.trim()]);
            }
            std::thread::sleep(LOOK);
        }
    }

    fn pid(&self) -> PathBuf {
        self.place.join("agent.pid")
    }

    fn start(&self) -> Child {
        // An id from before the last boot would be somebody else's.
        let _ = std::fs::remove_file(self.pid());
        let log = std::fs::File::options()
            .create(true)
            .append(true)
            .open(self.place.join("agent.log"))
            .unwrap();
        Command::new(&self.lab)
            .args([
                "exec",
                self.host.name(),
                "sh",
                "-c",
                "echo $$ >\"$0\"; exec \"$@\"",
            ])
            .arg(self.pid())
            .arg(&self.program)
            .args([
                "ha-agent",
                "--libvirt-uri=qemu:///system",
                "--system-bus=unix:path=/nonexistent",
            ])
            .arg(format!("--node-name={}", self.host.name()))
            .arg(format!("--config={}", self.place.join("config.yaml").display()))
            .arg(format!("--host-root={}", self.place.join("root").display()))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap()
    }
}
