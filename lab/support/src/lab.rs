// SPDX-License-Identifier: Apache-2.0
//! The lab as a test holds it: joined or started, in turn with other suites, in a known state at
//! the beginning, and with its logs kept when the test fails.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::command::{run, tail};
use crate::skip::Facts;
use crate::{Cloud, Description, Domain, Error, Host, Result, Skip, eventually};

/// Longer than anything takes that is not broken.
const PATIENCE: Duration = Duration::from_mins(3);

/// What a suite needs from the lab.
#[derive(Debug, Clone)]
pub struct Options {
    /// At least this many hosts.
    pub hosts: usize,
    /// An OpenStack control plane as well.
    pub control_plane: bool,
    /// Prometheus and node exporters as well.
    pub prometheus: bool,
}

impl Options {
    /// That many hosts under a control plane.
    pub fn with_hosts(hosts: usize) -> Self {
        Self {
            hosts,
            control_plane: true,
            prometheus: false,
        }
    }

    /// That many hosts and nothing else: up within seconds.
    pub fn hosts_only(hosts: usize) -> Self {
        Self {
            control_plane: false,
            ..Self::with_hosts(hosts)
        }
    }
}

/// A running lab that belongs to this test until it is dropped.
#[derive(Debug)]
pub struct Lab {
    description: Description,
    hosts: Vec<Host>,
    started_here: bool,
    /// Held for the life of the value: suites that share a lab take turns, also across processes.
    _turn: File,
}

impl Lab {
    /// Joins the running lab, or starts one. A machine that cannot hold a lab is a [`Skip`].
    ///
    /// # Panics
    /// If the lab should run here but does not: that is a failed test, not a skipped one.
    pub fn join_or_start(options: &Options) -> std::result::Result<Self, Skip> {
        let command = command_path();
        if let Some(skip) = Facts::gather(&command).skip() {
            return Err(skip);
        }
        match Self::open(options, &command) {
            Ok(lab) => Ok(lab),
            Err(error) => panic!("the lab does not start: {error}"),
        }
    }

    fn open(options: &Options, command: &Path) -> Result<Self> {
        let turn = take_turn()?;
        let started_here = run(Command::new(command).arg("describe")).is_err();
        let hosts = options.hosts.to_string();
        let mut start = Command::new(command);
        start.args(["start", "--hosts", &hosts]);
        if !options.control_plane {
            start.arg("--hosts-only");
        }
        if options.prometheus {
            start.arg("--prometheus");
        }
        run(&mut start)?;
        let description = describe(command)?;
        let make = |host: &_| Host::new(command.to_owned(), Clone::clone(host));
        let hosts = description.hosts.iter().map(make).collect();
        let lab = Self {
            description,
            hosts,
            started_here,
            _turn: turn,
        };
        lab.settle()?;
        Ok(lab)
    }

    /// What the lab says about itself.
    pub fn description(&self) -> &Description {
        &self.description
    }

    /// Every host.
    pub fn hosts(&self) -> &[Host] {
        &self.hosts
    }

    /// The host with that number, counted from zero.
    pub fn host(&self, number: usize) -> Result<&Host> {
        self.hosts
            .get(number)
            .ok_or_else(|| Error::NoHost(number.to_string()))
    }

    /// The host with that name.
    pub fn host_named(&self, name: &str) -> Result<&Host> {
        let found = self.hosts.iter().find(|host| host.name() == name);
        found.ok_or_else(|| Error::NoHost(name.to_owned()))
    }

    /// A client for the control plane.
    pub fn cloud(&self) -> Result<Cloud> {
        self.description
            .control
            .clone()
            .map(Cloud::new)
            .ok_or(Error::NoControlPlane)
    }

    /// A clouds.yaml for OpenStack clients; the entry is named `lab`.
    pub fn clouds_yaml(&self) -> Result<&Path> {
        let control = self.description.control.as_ref().ok_or(Error::NoControlPlane)?;
        Ok(&control.clouds_yaml)
    }

    /// Makes a service (keystone, placement, glance, neutron, nova) answer late; zero ends it.
    pub fn slow_api(&self, service: &str, milliseconds: u32) -> Result<()> {
        self.command(&["slow-api", service, &milliseconds.to_string()])
            .map(drop)
    }

    /// Makes a service answer every call with a status; zero ends it.
    pub fn fail_api(&self, service: &str, status: u16) -> Result<()> {
        self.command(&["fail-api", service, &status.to_string()])
            .map(drop)
    }

    /// Every domain on every host that has power.
    pub fn domains(&self) -> Result<Vec<Domain>> {
        let mut all = Vec::new();
        for host in &self.hosts {
            all.extend(host.domains()?);
        }
        all.sort();
        Ok(all)
    }

    /// Guests that are active on more than one host, with those hosts: never anything else than
    /// empty unless a guest runs twice. Hosts are asked one after the other, and a guest may have moved
    /// from the first to the last meanwhile; a second look tells the difference.
    pub fn guests_running_twice(&self) -> Result<BTreeMap<String, Vec<String>>> {
        still_twice(&self.domains()?, || self.domains())
    }

    /// The same, of the hosts that answer; and those that have power and say nothing, as one that boots.
    pub fn guests_seen_twice(&self) -> (BTreeMap<String, Vec<String>>, Vec<String>) {
        let (first, silent) = self.answers();
        let twice = still_twice(&first, || Ok(self.answers().0)).unwrap_or_default();
        (twice, silent)
    }

    /// The domains of the hosts that answer, and the other hosts.
    fn answers(&self) -> (Vec<Domain>, Vec<String>) {
        let (mut all, mut silent) = (Vec::new(), Vec::new());
        for host in &self.hosts {
            match host.domains() {
                Ok(domains) => all.extend(domains),
                Err(_) => silent.push(host.name().to_owned()),
            }
        }
        (all, silent)
    }

    /// Links, processes and instance folders by kind: equal counts before and after mean no leak.
    pub fn census(&self) -> Result<BTreeMap<String, usize>> {
        let mut census = BTreeMap::new();
        let prefix = format!("{}-", self.description.name);
        let links = names_in(Path::new("/sys/class/net"))?;
        census.insert(
            "links".to_owned(),
            links.iter().filter(|name| name.starts_with(&prefix)).count(),
        );
        let instances = names_in(&self.description.dir.join("instances"))?;
        // Nova's own bookkeeping is not an instance
        let own = ["_base", "locks", "compute_nodes"];
        census.insert(
            "instance folders".to_owned(),
            instances
                .iter()
                .filter(|name| !own.contains(&name.as_str()))
                .count(),
        );
        for host in &self.hosts {
            for (process, state) in host.processes()? {
                let kind = process.split('/').next().unwrap_or_default();
                *census
                    .entry(format!("{} {kind} {state}", host.name()))
                    .or_insert(0) += 1;
            }
        }
        Ok(census)
    }

    /// Ends every fault and clears away what earlier tests left: servers named `real-...`, guests that
    /// Nova knows nothing of, and compute services that are forced down or disabled.
    pub fn settle(&self) -> Result<()> {
        self.command(&["heal"])?;
        let Ok(cloud) = self.cloud() else { return Ok(()) };
        for host in &self.hosts {
            let what = format!("Nova to tell of {}", host.name());
            let service = eventually(&what, PATIENCE, || Ok(Ok(cloud.service(host)?)))?;
            if service.forced_down {
                cloud.unforce(host)?;
            }
            if service.status != "enabled" {
                cloud.set_enabled(host, true)?;
            }
        }
        for host in &self.hosts {
            cloud.wait_for_service(host, "up")?;
        }
        for server in cloud.servers()? {
            if server.name.starts_with("real-") {
                cloud.delete(&server.id)?;
            }
        }
        eventually("Nova to schedule to every host", PATIENCE, || {
            let known = cloud.schedulable()?;
            let missing: Vec<_> = self
                .hosts
                .iter()
                .map(Host::name)
                .filter(|name| !known.iter().any(|one| one == name))
                .collect();
            Ok(if missing.is_empty() {
                Ok(())
            } else {
                Err(format!("not {missing:?}"))
            })
        })?;
        eventually("no guest that Nova knows nothing of", PATIENCE, || {
            self.clear_strangers(&cloud)
        })
    }

    /// A server that Nova deleted while its host did not answer leaves a guest there.
    fn clear_strangers(&self, cloud: &Cloud) -> Result<std::result::Result<(), String>> {
        let known: Vec<String> = cloud.servers()?.into_iter().map(|server| server.id).collect();
        let mut strangers = self.domains()?;
        strangers.retain(|domain| !known.contains(&domain.uuid));
        for stranger in &strangers {
            let host = self.host_named(&stranger.host)?;
            if stranger.active {
                host.virsh(&["destroy", &stranger.uuid])?;
            }
            host.virsh(&["undefine", "--nvram", &stranger.uuid])?;
        }
        Ok(if strangers.is_empty() {
            Ok(())
        } else {
            Err(format!("{strangers:?}"))
        })
    }

    /// Runs the lab's command.
    pub fn command(&self, arguments: &[&str]) -> Result<String> {
        run(Command::new(&self.description.command).args(arguments))
    }

    /// Packs all logs into `target/lab-logs` and shows the last lines of those that complain.
    pub fn keep_logs(&self) -> Result<PathBuf> {
        let folder = target_dir().join("lab-logs");
        std::fs::create_dir_all(&folder).map_err(|error| io(&folder, &error))?;
        let name = format!("{}-{}.tar.gz", test_name(), std::process::id());
        let file = folder.join(name);
        self.command(&["logs", "--save", &file.to_string_lossy()])?;
        for (log, text) in complaining_logs(&self.description.logs)? {
            let _ = writeln!(
                std::io::stderr(),
                "--- {} (end)\n{}",
                log.display(),
                tail(&text, 15)
            );
        }
        let _ = writeln!(std::io::stderr(), "--- all logs: {}", file.display());
        Ok(file)
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        if std::thread::panicking()
            && let Err(error) = self.keep_logs()
        {
            let _ = writeln!(std::io::stderr(), "the lab's logs are not kept: {error}");
        }
        let keep = std::env::var_os("COBALTCORE_LAB_KEEP").is_some();
        if self.started_here
            && !keep
            && let Err(error) = self.command(&["stop"])
        {
            let _ = writeln!(std::io::stderr(), "the lab is not stopped: {error}");
        }
    }
}

fn describe(command: &Path) -> Result<Description> {
    let text = run(Command::new(command).arg("describe"))?;
    serde_json::from_str(&text).map_err(|error| Error::Description {
        path: format!("{} describe", command.display()),
        detail: error.to_string(),
    })
}

/// The command beside this crate, unless the environment names another.
fn command_path() -> PathBuf {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).with_file_name("lab");
    std::env::var_os("COBALTCORE_LAB_COMMAND").map_or(beside, PathBuf::from)
}

/// Waits for the turn of this suite. The file lives in the lab's cache folder, which outlives labs.
fn take_turn() -> Result<File> {
    let home = std::env::var_os("HOME").map_or_else(|| PathBuf::from("/root"), PathBuf::from);
    let cache = std::env::var_os("XDG_CACHE_HOME").map_or_else(|| home.join(".cache"), PathBuf::from);
    let folder =
        std::env::var_os("COBALTCORE_LAB_CACHE").map_or_else(|| cache.join("cobaltcore-lab"), PathBuf::from);
    std::fs::create_dir_all(&folder).map_err(|error| io(&folder, &error))?;
    let name = std::env::var("COBALTCORE_LAB_NAME").unwrap_or_else(|_| "cclab".to_owned());
    let path = folder.join(format!("{name}.suite.lock"));
    let file = File::create(&path).map_err(|error| io(&path, &error))?;
    file.lock().map_err(|error| io(&path, &error))?;
    Ok(file)
}

/// Guests that run twice by a first look and by another one.
fn still_twice(
    first: &[Domain],
    again: impl FnOnce() -> Result<Vec<Domain>>,
) -> Result<BTreeMap<String, Vec<String>>> {
    if running_twice(first).is_empty() {
        return Ok(BTreeMap::new());
    }
    let mut both = again()?;
    both.retain(|domain| first.contains(domain));
    Ok(running_twice(&both))
}

fn running_twice(domains: &[Domain]) -> BTreeMap<String, Vec<String>> {
    let mut hosts_of: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for domain in domains.iter().filter(|domain| domain.active) {
        let hosts = hosts_of.entry(domain.uuid.clone()).or_default();
        hosts.push(domain.host.clone());
    }
    hosts_of.retain(|_, hosts| hosts.len() > 1);
    hosts_of
}

fn names_in(folder: &Path) -> Result<Vec<String>> {
    let entries = std::fs::read_dir(folder).map_err(|error| io(folder, &error))?;
    Ok(entries
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect())
}

/// Logs with an error or a traceback near their end.
fn complaining_logs(folder: &Path) -> Result<Vec<(PathBuf, String)>> {
    let mut found = Vec::new();
    for machine in names_in(folder)? {
        for name in names_in(&folder.join(&machine))? {
            let path = folder.join(&machine).join(name);
            let text = std::fs::read(&path)
                .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
                .unwrap_or_default();
            let end = tail(&text, 200);
            if ["ERROR", "CRITICAL", "Traceback", " error : "]
                .iter()
                .any(|word| end.contains(word))
            {
                found.push((path, text));
            }
        }
    }
    Ok(found)
}

fn target_dir() -> PathBuf {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target");
    std::env::var_os("CARGO_TARGET_DIR").map_or(workspace, PathBuf::from)
}

/// The harness names the thread after the test.
fn test_name() -> String {
    let name = std::thread::current().name().unwrap_or("test").to_owned();
    name.replace(|c: char| !c.is_ascii_alphanumeric(), "_")
}

fn io(path: &Path, error: &std::io::Error) -> Error {
    Error::Description {
        path: path.display().to_string(),
        detail: error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn domain(host: &str, uuid: &str, active: bool) -> Domain {
        Domain {
            host: host.to_owned(),
            uuid: uuid.to_owned(),
            active,
        }
    }

    #[test]
    fn only_a_guest_active_on_two_hosts_runs_twice() {
        let domains = vec![
            domain("hv1", "a", true),
            domain("hv2", "a", false),
            domain("hv1", "b", true),
            domain("hv2", "b", true),
        ];
        let twice = running_twice(&domains);
        assert_eq!(twice.keys().collect::<Vec<_>>(), ["b"]);
        assert_eq!(twice.get("b").map(Vec::len), Some(2));
    }

    #[test]
    fn the_command_lies_beside_the_crate() {
        assert!(command_path().ends_with("lab/lab"));
    }
}
