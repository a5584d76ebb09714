// SPDX-License-Identifier: Apache-2.0
//! A shutdown of the host as logind announces it, on a message bus of its own: the service hears of it before the lock
//! that holds the shutdown back is given up.
#![allow(clippy::unwrap_used)]

mod support;

use std::io::{Read as _, Write as _};
use std::process::Stdio;
use std::sync::Arc;

use cobaltcore_sim::hosts::Place as Where;
use cobaltcore_sim::{Hosts, World};
use support::{Agent, PATIENCE, Place, Service};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::watch;
use zbus::object_server::SignalEmitter;
use zbus::{OwnedFd, interface};

const LOGIND: &str = "/org/freedesktop/login1";
const POLICY: &str = r#"<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN"
 "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig><type>session</type><auth>EXTERNAL</auth><listen>unix:path=SOCKET</listen>
<policy context="default"><allow user="*"/><allow own="*"/><allow send_destination="*" eavesdrop="false"/>
<allow receive_sender="*"/><allow send_type="method_call"/></policy></busconfig>
"#;

struct Logind {
    held: Arc<watch::Sender<u32>>,
    preparing: bool,
}

#[interface(name = "org.freedesktop.login1.Manager")]
impl Logind {
    /// Like logind, the service keeps one end of a pipe and learns from its closing that the lock was given back.
    fn inhibit(&self, what: String, who: String, why: String, mode: String) -> OwnedFd {
        assert_eq!(
            (what.as_str(), who.as_str(), mode.as_str()),
            ("shutdown", "kvm-ha-agent", "delay")
        );
        assert!(!why.is_empty());
        let (mut near, far) = std::io::pipe().unwrap();
        self.held.send_modify(|count| *count += 1);
        let held = self.held.clone();
        std::thread::spawn(move || {
            let _ = near.read(&mut [0; 1]);
            held.send_modify(|count| *count -= 1);
        });
        std::os::fd::OwnedFd::from(far).into()
    }

    #[zbus(property)]
    fn preparing_for_shutdown(&self) -> bool {
        self.preparing
    }

    #[zbus(signal)]
    async fn prepare_for_shutdown(emitter: &SignalEmitter<'_>, start: bool) -> zbus::Result<()>;
}

/// A message bus of its own, if there is such a program.
fn bus(place: &Place) -> Option<Child> {
    let socket = place.path("bus");
    let policy = place.path("bus.conf");
    std::fs::write(&policy, POLICY.replace("SOCKET", socket.to_str().unwrap())).unwrap();
    let daemon = Command::new("dbus-daemon")
        .arg(format!("--config-file={}", policy.display()))
        .args(["--nofork", "--nopidfile", "--print-address"])
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn();
    match daemon {
        Ok(daemon) => Some(daemon),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            // Past the test harness, which hides what tests that pass say.
            let _ =
                std::io::stderr().write_all(b"SKIPPED: dbus-daemon is not installed (Debian package dbus)\n");
            None
        }
        Err(error) => panic!("dbus-daemon does not start: {error}"),
    }
}

async fn ready(daemon: &mut Child) {
    let mut line = String::new();
    BufReader::new(daemon.stdout.take().unwrap())
        .read_line(&mut line)
        .await
        .unwrap();
}

/// Logind on the bus of this place.
async fn logind(place: &Place, held: &Arc<watch::Sender<u32>>, preparing: bool) -> zbus::Connection {
    let logind = Logind {
        held: Arc::clone(held),
        preparing,
    };
    zbus::connection::Builder::address(address(place).as_str())
        .serve_at(LOGIND, logind)
        .name("org.freedesktop.login1")
        .build()
        .await
        .unwrap()
}

fn address(place: &Place) -> String {
    format!("unix:path={}", place.path("bus").display())
}

async fn planned(service: &Service, yes: bool) {
    service
        .until(if yes { "planned" } else { "called off" }, |known| {
            let last = known.heartbeats.last()?;
            (last.planned_shutdown == yes).then_some(())
        })
        .await;
}

async fn locks(held: &mut watch::Receiver<u32>, count: u32) {
    tokio::time::timeout(PATIENCE, held.wait_for(|now| *now == count))
        .await
        .expect("the lock")
        .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_service_hears_of_a_shutdown_before_it_happens() {
    let (service, place) = (Service::start().await, Place::new());
    let Some(mut daemon) = bus(&place) else { return };
    ready(&mut daemon).await;
    let (sender, mut held) = watch::channel(0_u32);
    let connection = logind(&place, &Arc::new(sender), false).await;

    let world = World::builder().hosts(1).vms_per_host(1).build();
    let hosts = Hosts::start(&world, Where::Tcp).await.unwrap();
    let host = world.read(|state| state.hosts.keys().next().unwrap().to_string());
    place.configure(&[service.url()], "");
    let mut start = place.start_with_bus(&hosts.uri(&host).unwrap(), &address(&place));
    start.hold = PATIENCE;
    let agent = Agent::start(start);
    service
        .until("a heartbeat", |known| known.heartbeats.last().map(|_| ()))
        .await;
    locks(&mut held, 1).await;

    let emitter = SignalEmitter::new(&connection, LOGIND).unwrap();
    Logind::prepare_for_shutdown(&emitter, true).await.unwrap();
    locks(&mut held, 0).await;
    assert_eq!(
        service.count("host_shutdown", ""),
        1,
        "known before the lock was given back"
    );
    planned(&service, true).await;
    // It is called off: the lock is taken again, and the host is an ordinary one.
    Logind::prepare_for_shutdown(&emitter, false).await.unwrap();
    locks(&mut held, 1).await;
    planned(&service, false).await;
    agent.stop().await;
    assert_eq!(service.count("host_shutdown", ""), 1);
}

/// A host that is taken for one that shuts down is not repaired and not recovered.
#[tokio::test(flavor = "multi_thread")]
async fn a_shutdown_that_is_called_off_while_the_bus_is_away_is_not_believed_in_any_more() {
    let (service, place) = (Service::start().await, Place::new());
    let Some(mut daemon) = bus(&place) else { return };
    ready(&mut daemon).await;
    let (sender, mut held) = watch::channel(0_u32);
    let sender = Arc::new(sender);
    let before = logind(&place, &sender, true).await;
    place.configure(&[service.url()], "");
    let agent =
        Agent::start(place.start_with_bus("qemu+unix:///system?socket=/nonexistent", &address(&place)));
    planned(&service, true).await;
    daemon.kill().await.unwrap();
    drop(before);
    std::fs::remove_file(place.path("bus")).ok();
    let mut daemon = bus(&place).unwrap();
    ready(&mut daemon).await;
    let _after = logind(&place, &sender, false).await;
    planned(&service, false).await;
    locks(&mut held, 1).await;
    agent.stop().await;
}
