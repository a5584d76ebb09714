// SPDX-License-Identifier: Apache-2.0
//! High availability on real hosts under a real OpenStack: a host loses its power, another its
//! cable, a guest its process. Each is noticed, fenced through a real BMC where it must be, and
//! recovered; the libvirts of all hosts are looked at all the time, and no guest ever runs twice.

#![allow(clippy::unwrap_used, reason = "a test that unwraps says where it failed")]

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use cobaltcore_ha_wire::{DomainEntry, DomainState, Event, Job, Kind, Machine};
use cobaltcore_lab::{Lab, Options};
use cobaltcore_openstack::{CloudConfig, Session, Settings};
use common::{ALONE, Agent, OPERATOR, Running, base, until};
use serde_json::{Value, json};
use tokio_util::task::AbortOnDropHandle;

const HOSTS: usize = 3;

/// The service's configuration for this lab: quick, because nobody wants to wait; every rule is in force.
fn config(lab: &Lab, folder: &std::path::Path) -> String {
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
         self_check: {{warmup: 5s}}\n\
         recovery: {{ephemeral_backend: shared}}\n\
         openstack: {{services_interval: 3s, suspect_interval: 2s, hypervisors_interval: 5s, servers_interval: 5s}}\n\
         fencing:\n  levels:\n    - - {{driver: redfish, url: '{{bmc}}', credentials_file: '{}'}}\n  hosts:\n{hosts}",
        base(folder),
        secret.display(),
    )
}

fn session(lab: &Lab) -> Session {
    let control = lab.description().control.clone().unwrap();
    let cloud = CloudConfig::from_file(control.clouds_yaml, &control.cloud).unwrap();
    Session::new(cloud, Settings::default()).unwrap()
}

/// An agent on a real host. It speaks while its host has power and a cable, tells which guests its
/// libvirt has, and reports one that ended without being asked.
async fn agent(lab: Arc<Lab>, n: usize, service: String) {
    let host = lab.host(n).unwrap().clone();
    let mut agent = Agent::new(host.name());
    agent.machine = Machine {
        system_uuid: Some(host.description().uuid.clone()),
        serial: None,
    };
    let client = common::client();
    let (mut boot, mut version, mut seq) = (None, 0, 0);
    let mut running: Vec<String> = Vec::new();
    loop {
        tokio::time::sleep(Duration::from_millis(1500)).await;
        let (asked, known) = (host.clone(), boot.clone());
        let seen = tokio::task::spawn_blocking(move || {
            let speaks = asked.is_on().unwrap_or(false) && asked.reachable();
            if !speaks {
                return None;
            }
            let boot = match known {
                Some(boot) => boot,
                None => asked.boot_id().ok()?,
            };
            Some((boot, asked.domains().ok()?))
        });
        let Some((now, domains)) = seen.await.unwrap() else {
            boot = None;
            running.clear();
            continue;
        };
        agent.boot.0 = now.trim().to_owned();
        boot = Some(now);
        let active: Vec<String> = domains
            .iter()
            .filter(|domain| domain.active)
            .map(|domain| domain.uuid.clone())
            .collect();
        let crashed: Vec<String> = running
            .iter()
            .filter(|uuid| {
                domains
                    .iter()
                    .any(|domain| domain.uuid == **uuid && !domain.active)
            })
            .cloned()
            .collect();
        running = active;
        version += 1;
        let mut batch = agent.beat();
        let entries = domains
            .iter()
            .filter_map(|domain| entry(&domain.uuid, domain.active));
        batch.inventory = agent.inventory(version, entries.collect()).inventory;
        for uuid in crashed {
            seq += 1;
            batch.events.push(crash(seq, &uuid));
        }
        let path = format!("{service}{}", agent.path());
        let sent = client
            .post(path)
            .bearer_auth(common::AGENT)
            .body(batch.encode().unwrap());
        // A service that is gone is no concern of an agent.
        let _ = sent.send().await;
    }
}

fn entry(uuid: &str, active: bool) -> Option<DomainEntry> {
    Some(DomainEntry {
        uuid: uuid.parse().ok()?,
        name: format!("instance-{uuid}"),
        state: if active {
            DomainState::Running
        } else {
            DomainState::Shutoff
        },
        reason: String::new(),
        vcpus: 1,
        mem_kib: 1024,
        persistent: true,
        autostart: false,
        job: Job::None,
        disks: Vec::new(),
    })
}

fn crash(seq: u64, uuid: &str) -> Event {
    Event {
        seq,
        ts: jiff::Timestamp::now(),
        mono_ns: seq,
        kind: Kind::Lifecycle,
        event: "stopped".into(),
        detail: "failed".into(),
        domain: Some(cobaltcore_ha_wire::DomainRef {
            uuid: uuid.parse().unwrap(),
            name: format!("instance-{uuid}"),
            id: -1,
        }),
        attrs: std::collections::BTreeMap::new(),
        count: 1,
        synthetic: true,
    }
}

/// Looks at every libvirt again and again; remembers whether a guest was ever seen twice.
struct Watch {
    over: Arc<AtomicBool>,
    task: std::thread::JoinHandle<(usize, Vec<String>)>,
}

impl Watch {
    fn start(lab: &Arc<Lab>) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let (lab, end) = (Arc::clone(lab), Arc::clone(&over));
        let task = std::thread::spawn(move || {
            let (mut looks, mut twice) = (0, Vec::new());
            while !end.load(Ordering::Relaxed) {
                // A host that goes down while it is asked has no answer; the next look has one.
                if let Ok(found) = lab.guests_running_twice() {
                    looks += 1;
                    twice.extend(
                        found
                            .into_iter()
                            .map(|(guest, hosts)| format!("{guest} on {hosts:?}")),
                    );
                }
                std::thread::sleep(Duration::from_millis(200));
            }
            (looks, twice)
        });
        Self { over, task }
    }

    fn end(self) {
        self.over.store(true, Ordering::Relaxed);
        let (looks, twice) = self.task.join().unwrap();
        assert!(twice.is_empty(), "these guests ran twice: {twice:?}");
        assert!(looks > 20, "only {looks} looks were taken");
        println!("{looks} looks at all libvirts, no guest ever ran twice");
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

#[tokio::test(flavor = "multi_thread")]
async fn real_hosts_die_and_their_guests_live_on() {
    let lab = match Lab::join_or_start(&Options::with_hosts(HOSTS)) {
        Ok(lab) => Arc::new(lab),
        Err(skip) => return skip.print(),
    };
    let folder = tempfile::tempdir().unwrap();
    let service = Running::start(&config(&lab, folder.path()), Some(session(&lab)), None).await;
    let url = format!("http://{}", service.address);
    let _agents: Vec<_> = (0..HOSTS)
        .map(|n| AbortOnDropHandle::new(tokio::spawn(agent(Arc::clone(&lab), n, url.clone()))))
        .collect();
    let (first, second) = (lab.host(0).unwrap().clone(), lab.host(1).unwrap().clone());
    let cloud = lab.cloud().unwrap();
    let guests = ["real-ha-1", "real-ha-2"].map(|name| cloud.boot(name, &first).unwrap().id);
    until("every host is heard and healthy", async || {
        let (_, page) = service.get("/api/v1/hosts?state=healthy").await;
        (page["items"].as_array()?.len() == HOSTS).then_some(())
    })
    .await;
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
    release(&service, first.name()).await;
    let state = cloud.service(&first).unwrap();
    assert_eq!(
        (state.status.as_str(), state.state.as_str(), state.forced_down),
        ("enabled", "up", false)
    );

    // A host loses its cable and runs on: it is switched off before anything is started elsewhere.
    let guest = cloud.boot("real-ha-3", &second).unwrap().id;
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
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_guest_that_crashes_is_started_again_if_its_owner_wants_it() {
    let lab = match Lab::join_or_start(&Options::with_hosts(HOSTS)) {
        Ok(lab) => Arc::new(lab),
        Err(skip) => return skip.print(),
    };
    let folder = tempfile::tempdir().unwrap();
    let service = Running::start(&config(&lab, folder.path()), Some(session(&lab)), None).await;
    let url = format!("http://{}", service.address);
    let _agents: Vec<_> = (0..HOSTS)
        .map(|n| AbortOnDropHandle::new(tokio::spawn(agent(Arc::clone(&lab), n, url.clone()))))
        .collect();
    let host = lab.host(2).unwrap().clone();
    let cloud = lab.cloud().unwrap();
    let wanted = cloud.boot("real-ha-wanted", &host).unwrap().id;
    let unwanted = cloud.boot("real-ha-unwanted", &host).unwrap().id;
    let metadata = json!({"metadata": {"cobaltcore:ha": "restart"}});
    cloud
        .compute("POST", &format!("/servers/{wanted}/metadata"), Some(&metadata))
        .unwrap();
    until("the guests are heard of", async || {
        let (_, page) = service.get("/api/v1/hosts?state=healthy").await;
        (page["items"].as_array()?.len() == HOSTS).then_some(())
    })
    .await;
    // Long enough to be in an inventory.
    tokio::time::sleep(Duration::from_secs(10)).await;
    for guest in [&wanted, &unwanted] {
        let name = host.virsh(&["domname", guest]).unwrap().trim().to_owned();
        host.kill_process(&format!("guest/{name}")).unwrap();
    }
    until("the guest that asked for it runs again", async || {
        let domains = host.domains().ok()?;
        domains
            .iter()
            .any(|domain| domain.uuid == wanted && domain.active)
            .then_some(())
    })
    .await;
    let domains = host.domains().unwrap();
    assert!(
        !domains
            .iter()
            .any(|domain| domain.uuid == unwanted && domain.active),
        "nobody asked for this one"
    );
    for guest in [&wanted, &unwanted] {
        cloud.delete(guest).unwrap();
    }
    service.stop().await;
}
