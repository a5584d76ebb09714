// SPDX-License-Identifier: Apache-2.0
//! High availability on real hosts under a real OpenStack, with the real agent inside every host: a host
//! loses its power, another its cable, a guest its process, another hangs. Each is noticed, fenced through
//! a real BMC where it must be, and recovered; the libvirts of all hosts are looked at all the time, and no
//! guest ever runs twice. What people see of it is what the command line prints.

#![allow(clippy::unwrap_used, reason = "a test that unwraps says where it failed")]

#[path = "real_ha/agents.rs"]
mod agents;
mod common;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use agents::Agents;
use cobaltcore_lab::{Host, Lab, Options};
use cobaltcore_openstack::{CloudConfig, Session, Settings};
use common::{ALONE, OPERATOR, Running, VIEWER, base, until};
use serde_json::{Value, json};

const HOSTS: usize = 3;

/// The service's configuration for this lab: quick, because nobody wants to wait; every rule is in force.
fn config(lab: &Lab, folder: &Path) -> String {
    let bmc = &lab.description().hosts[0].redfish;
    let secret = folder.join("bmc.yaml");
    let text = format!("username: {}\npassword: {}\n", bmc.username, bmc.password);
    std::fs::write(&secret, text).unwrap();
    let hosts = lab.description().hosts.iter();
    let hosts: String = hosts
        .map(|host| format!("    {}: {{bmc: '{}'}}\n", host.name, host.redfish.url))
        .collect();
    format!(
        "{}{ALONE}release: {{mode: nova}}\n\
         agents: {{heartbeat_interval: 2s, silent_after: 10s}}\n\
         evidence: {{round_interval: 1s, probe: {{timeout: 1s, tcp_ports: [16509]}}}}\n\
         self_check: {{warmup: 5s, cold_start: 0s}}\n\
         recovery: {{ephemeral_backend: shared}}\n\
         openstack: {{services_interval: 3s, suspect_interval: 2s, hypervisors_interval: 5s, servers_interval: 5s}}\n\
         fencing:\n  levels:\n    - - {{driver: redfish, url: '{{bmc}}', credentials_file: '{}'}}\n  hosts:\n{hosts}",
        // Where agents inside the hosts can reach it.
        base(folder).replacen("127.0.0.1:0", &format!("{}:0", lab.description().gateway), 1),
        secret.display(),
    )
}

fn session(lab: &Lab) -> Session {
    let control = lab.description().control.clone().unwrap();
    let cloud = CloudConfig::from_file(control.clouds_yaml, &control.cloud).unwrap();
    Session::new(cloud, Settings::default()).unwrap()
}

/// Looks at every libvirt again and again; remembers whether a guest was ever seen twice, and how long any host with
/// power was not seen at all.
struct Watch {
    over: Arc<AtomicBool>,
    task: std::thread::JoinHandle<Seen>,
}

#[derive(Default)]
struct Seen {
    looks: usize,
    twice: Vec<String>,
    /// Since when each host that has power has not answered.
    silent: BTreeMap<String, Instant>,
    longest: Duration,
}

/// How long a host with power may be out of sight: it boots, and its libvirtd has yet to start.
const OUT_OF_SIGHT: Duration = Duration::from_secs(30);

impl Seen {
    fn look(&mut self, lab: &Lab) {
        let began = Instant::now();
        let (twice, silent) = lab.guests_seen_twice();
        self.looks += 1;
        let told = |(guest, hosts)| format!("{guest} on {hosts:?}");
        self.twice.extend(twice.into_iter().map(told));
        self.silent.retain(|host, _| silent.contains(host));
        for host in silent {
            let since = *self.silent.entry(host).or_insert(began);
            self.longest = self.longest.max(since.elapsed());
        }
    }
}

impl Watch {
    fn start(lab: &Arc<Lab>) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let (lab, end) = (Arc::clone(lab), Arc::clone(&over));
        let task = std::thread::spawn(move || {
            let mut seen = Seen::default();
            while !end.load(Ordering::Relaxed) {
                let began = Instant::now();
                seen.look(&lab);
                seen.longest = seen.longest.max(began.elapsed());
                std::thread::sleep(Duration::from_millis(200));
            }
            seen
        });
        Self { over, task }
    }

    fn end(self) {
        self.over.store(true, Ordering::Relaxed);
        let Seen {
            looks,
            twice,
            longest,
            ..
        } = self.task.join().unwrap();
        assert!(twice.is_empty(), "these guests ran twice: {twice:?}");
        assert!(
            longest < OUT_OF_SIGHT && looks > 20,
            "{looks} looks were taken, and a host with power was out of sight for {longest:?}"
        );
        println!(
            "{looks} looks at all libvirts, no guest ever ran twice; no host with power was out of sight for more than {longest:.1?}"
        );
    }
}

async fn incident(service: &Running, host: &str) -> Option<Value> {
    let (_, page) = service.get(&format!("/api/v1/incidents?host={host}")).await;
    let all = page["items"].as_array()?;
    all.iter().find(|incident| incident["host"] == host).cloned()
}

async fn until_state(service: &Running, host: &str, wanted: &str) -> Value {
    until(&format!("the incident of {host} is {wanted}"), async || {
        let found = incident(service, host).await?;
        (found["state"] == wanted).then_some(found)
    })
    .await
}

async fn entries(service: &Running, id: &str) -> Vec<String> {
    let (_, detail) = service.get(&format!("/api/v1/incidents/{id}")).await;
    let journal = detail["journal"].as_array().cloned().unwrap_or_default();
    journal
        .iter()
        .filter_map(|record| record["entry"].as_str().map(str::to_owned))
        .collect()
}

/// The host was off before the first guest was asked for elsewhere.
async fn fenced_first(service: &Running, found: &Value) {
    let entries = entries(service, found["id"].as_str().unwrap()).await;
    let place = |wanted: &str| entries.iter().position(|entry| entry == wanted);
    let (fenced, down, moved) = (place("fenced"), place("forced-down"), place("evacuate-intended"));
    assert!(fenced.is_some() && fenced < down && down < moved, "{entries:?}");
}

async fn release(service: &Running, host: &str) {
    let found = incident(service, host).await.unwrap();
    let path = format!(
        "/api/v1/incidents/{}/actions/release",
        found["id"].as_str().unwrap()
    );
    let body = json!({"reason": "repaired", "confirm": host});
    let (code, answer) = service.send("POST", &path, Some(OPERATOR), Some(body)).await;
    assert!((200..300).contains(&code), "{code} {answer}");
    until_state(service, host, "Released").await;
}

/// Whoever looks at incidents and decides, with the command line.
struct People<'a> {
    program: &'a Path,
    url: String,
    token: std::path::PathBuf,
}

impl<'a> People<'a> {
    fn new(program: &'a Path, url: &str, folder: &Path) -> Self {
        let token = folder.join("operator-token");
        std::fs::write(&token, OPERATOR).unwrap();
        Self {
            program,
            url: url.to_owned(),
            token,
        }
    }

    /// What `cobaltcore incidents` prints.
    fn told(&self, words: &[&str]) -> String {
        let output = Command::new(self.program)
            .arg("incidents")
            .args(words)
            .arg(format!("--url={}", self.url))
            .arg(format!("--token-file={}", self.token.display()))
            .output()
            .unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{words:?}: {errors}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// They find the incident in the list, and its whole story behind it.
    fn see(&self, host: &Host, found: &Value) {
        let (id, name) = (found["id"].as_str().unwrap(), host.name());
        let list = self.told(&["list"]);
        let line = list.lines().find(|line| line.starts_with(id)).unwrap_or_default();
        let words: Vec<&str> = line.split_whitespace().collect();
        assert_eq!(
            words.get(1..6),
            Some(&[name, "host-down", "Recovered", "-", "2/2"][..]),
            "{list}"
        );
        let story = self.told(&["show", name]);
        for part in [
            &format!("Incident {id}: host-down of {name}"),
            "State    Recovered",
            "Guests   2 of 2 recovered, 0 failed",
            "cobaltcore incidents release",
            "real-ha-1",
            "real-ha-2",
        ] {
            assert!(story.contains(part), "{part} is not in:\n{story}");
        }
    }
}

/// Waits until every host is heard and healthy and these guests are in an inventory.
async fn all_heard(service: &Running, guests: &[String]) {
    until("every host is heard and healthy", async || {
        let (_, page) = service.get("/api/v1/hosts?state=healthy").await;
        let items = page["items"].as_array()?;
        let heard = items
            .iter()
            .filter(|host| host["signals"][0]["verdict"] == "alive");
        (heard.count() == HOSTS).then_some(())
    })
    .await;
    for guest in guests {
        until("its agent tells of the guest", async || {
            let (_, vm) = service.get(&format!("/api/v1/vms/{guest}")).await;
            (vm["agent_state"] == "running").then_some(())
        })
        .await;
    }
}

/// The records of a guest that agents told, as `kind/event/detail`.
async fn records(service: &Running, guest: &str) -> Vec<String> {
    let path = format!("/api/v1/events?domain={guest}&limit=1000");
    let (_, page) = service.send("GET", &path, Some(VIEWER), None).await;
    let items = page["items"].as_array().cloned().unwrap_or_default();
    let text = |event: &Value, key: &str| event[key].as_str().unwrap_or_default().to_owned();
    items
        .iter()
        .map(|event| {
            let parts = [text(event, "kind"), text(event, "event"), text(event, "detail")];
            parts.join("/")
        })
        .collect()
}

async fn until_told(service: &Running, guest: &str, wanted: &[&str]) -> String {
    until(
        &format!("the agent tells one of {wanted:?} of {guest}"),
        async || {
            let told = records(service, guest).await;
            told.into_iter().find(|record| wanted.contains(&record.as_str()))
        },
    )
    .await
}

/// Nobody's guests are left, whatever a test before this one did not come to delete.
fn empty(lab: &Lab) {
    let cloud = lab.cloud().unwrap();
    for server in cloud.servers().unwrap() {
        cloud.delete(&server.id).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn real_hosts_die_and_their_guests_live_on() {
    let lab = match Lab::join_or_start(&Options::with_hosts(HOSTS)) {
        Ok(lab) => Arc::new(lab),
        Err(skip) => return skip.print(),
    };
    empty(&lab);
    let folder = tempfile::tempdir().unwrap();
    let program = agents::program();
    let service = Running::start(&config(&lab, folder.path()), Some(session(&lab)), None).await;
    let url = service.url("");
    let agents = Agents::start(&lab, &program, &url, folder.path(), |_| String::new());
    let people = People::new(&program, &url, folder.path());
    let (first, second) = (lab.host(0).unwrap().clone(), lab.host(1).unwrap().clone());
    let cloud = lab.cloud().unwrap();
    let guests = ["real-ha-1", "real-ha-2"].map(|name| cloud.boot(name, &first).unwrap().id);
    all_heard(&service, &guests).await;
    assert!(people.told(&["list"]).starts_with("No open incident."));
    let watch = Watch::start(&lab);

    // A host loses its power. Nobody told its BMC to.
    first.power_off().unwrap();
    let found = until_state(&service, first.name(), "Recovered").await;
    assert_eq!(found["guests"]["recovered"], 2, "{found}");
    fenced_first(&service, &found).await;
    for guest in &guests {
        let server = cloud.wait_for(guest, "ACTIVE", None).unwrap();
        assert_ne!(server.host.as_deref(), Some(first.name()), "{server:?}");
    }
    assert!(
        !first.is_on().unwrap(),
        "it is kept off until somebody takes it back"
    );
    people.see(&first, &found);
    let text = people.told(&[
        "release",
        first.name(),
        "--reason=repaired",
        &format!("--confirm={}", first.name()),
    ]);
    assert!(text.starts_with("release is taken for"), "{text}");
    until_state(&service, first.name(), "Released").await;
    until("Nova can place guests there again", async || {
        let service = cloud.service(&first).ok()?;
        let told = (
            service.status.as_str(),
            service.state.as_str(),
            service.forced_down,
        );
        (told == ("enabled", "up", false)).then_some(())
    })
    .await;

    // A host loses its cable and runs on: it is switched off before anything is started elsewhere.
    let guest = cloud.boot("real-ha-3", &second).unwrap().id;
    all_heard(&service, std::slice::from_ref(&guest)).await;
    second.cut().unwrap();
    let found = until_state(&service, second.name(), "Recovered").await;
    fenced_first(&service, &found).await;
    let server = cloud.wait_for(&guest, "ACTIVE", None).unwrap();
    assert_ne!(server.host.as_deref(), Some(second.name()), "{server:?}");
    assert!(!second.is_on().unwrap(), "its BMC switched it off");
    // A host that boots anew has its cable.
    release(&service, second.name()).await;

    watch.end();
    for guest in guests.iter().chain([&guest]) {
        cloud.delete(guest).unwrap();
    }
    drop(agents);
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn guests_that_crash_or_hang_are_helped_if_somebody_wants_it() {
    let lab = match Lab::join_or_start(&Options::with_hosts(HOSTS)) {
        Ok(lab) => Arc::new(lab),
        Err(skip) => return skip.print(),
    };
    empty(&lab);
    let folder = tempfile::tempdir().unwrap();
    let program = agents::program();
    let service = Running::start(&config(&lab, folder.path()), Some(session(&lab)), None).await;
    let (bystander, host) = (lab.host(1).unwrap().clone(), lab.host(2).unwrap().clone());
    // On one host, hung guests are reset; on the others they are reported.
    let agents = Agents::start(&lab, &program, &service.url(""), folder.path(), |one| {
        if one.name() == host.name() {
            "reactions: {watchdog: {action: reset, min_uptime: 0s}}\n".to_owned()
        } else {
            String::new()
        }
    });
    let cloud = lab.cloud().unwrap();
    let wanted = cloud.boot("real-ha-wanted", &host).unwrap().id;
    let unwanted = cloud.boot("real-ha-unwanted", &host).unwrap().id;
    let metadata = json!({"metadata": {"cobaltcore:ha": "restart"}});
    cloud
        .compute("POST", &format!("/servers/{wanted}/metadata"), Some(&metadata))
        .unwrap();
    all_heard(&service, &[wanted.clone(), unwanted.clone()]).await;
    let watch = Watch::start(&lab);

    // Two guests hang. Their firmware takes its time before they do.
    let helped = cloud.create_from("hangs-once", "real-ha-helped", &host).unwrap();
    let left = cloud
        .create_from("hangs-once", "real-ha-left", &bystander)
        .unwrap();
    // Two guests crash; one is wanted back by its owner.
    for guest in [&wanted, &unwanted] {
        let name = host.virsh(&["domname", guest]).unwrap().trim().to_owned();
        host.kill_process(&format!("guest/{name}")).unwrap();
    }
    for guest in [&wanted, &unwanted] {
        until_told(
            &service,
            guest,
            &["lifecycle/stopped/failed", "lifecycle/stopped/crashed"],
        )
        .await;
    }
    until("the guest that asked for it runs again", async || {
        let domains = host.domains().ok()?;
        domains
            .iter()
            .any(|domain| domain.uuid == wanted && domain.active)
            .then_some(())
    })
    .await;
    assert!(
        !host
            .domains()
            .unwrap()
            .iter()
            .any(|domain| domain.uuid == unwanted && domain.active),
        "nobody asked for this one"
    );

    for (guest, on) in [(&helped, &host), (&left, &bystander)] {
        until_told(&service, guest, &["watchdog/pause/"]).await;
        cloud.wait_for(guest, "ACTIVE", Some(on.name())).unwrap();
    }
    until_told(&service, &helped, &["agent/reaction_taken/"]).await;
    until("the guest that is helped runs again", async || {
        let state = host.virsh(&["domstate", &helped]).ok()?;
        (state.trim() == "running").then_some(())
    })
    .await;
    let state = bystander.virsh(&["domstate", &left]).unwrap();
    assert_eq!(state.trim(), "paused", "nobody allowed to help this one");

    watch.end();
    for guest in [&wanted, &unwanted, &helped, &left] {
        cloud.delete(guest).unwrap();
    }
    drop(agents);
    service.stop().await;
}
