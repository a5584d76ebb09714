// SPDX-License-Identifier: Apache-2.0
//! The agent against a real libvirtd with real QEMU guests and an embedded Kubernetes API. Runs with
//! `COBALTCORE_REAL=1` as root where libvirtd, virsh and QEMU are installed; says SKIPPED and passes elsewhere.
#![allow(clippy::unwrap_used)]

mod proxy;
mod support;

use std::time::Duration;

use cobaltcore_apiserver::testkit::TestServer;
use cobaltcore_lab::private::{
    Daemon, RW, SECOND, busy_guest_xml, field, guest_xml, in_private_host, until_busy, virsh,
};
use cobaltcore_libvirt::client::{Connection, Delivery, EventStream, Options};
use cobaltcore_libvirt::event::{EventBody, EventId};
use cobaltcore_libvirt::names;
use cobaltcore_libvirt::procedure::{MigrateParams, flags};
use cobaltcore_libvirt::types::{Domain, Value};
use proxy::Proxy;
use serde_json::Value as Json;
use support::{
    Agent, condition, config, connection, create, instance, is_connected, migrations, server, until,
    until_migration,
};

const NODE: &str = "real-host";

async fn connect(uri: &str, options: Options) -> Connection {
    let uri = uri.parse().expect("uri");
    Connection::connect(&uri, options)
        .await
        .expect("libvirtd answers")
}

async fn world() -> (TestServer, Agent) {
    let server = server().await;
    create(&server, NODE).await;
    let agent = Agent::start(config(NODE, RW, &[]), &server);
    (server, agent)
}

async fn until_here(server: &TestServer, what: &str, wanted: impl Fn(&Json) -> bool) -> Json {
    until(server, NODE, what, wanted).await
}

/// The values of an XML attribute or element in virsh output, without a parser of our own.
fn between<'a>(text: &'a str, before: &str, after: &str) -> Vec<&'a str> {
    text.split(before)
        .skip(1)
        .filter_map(|rest| rest.split(after).next())
        .collect()
}

/// Every guest must be as virsh says.
async fn assert_guests_as_virsh_says(server: &TestServer) {
    let mut wanted = Vec::new();
    for name in virsh(&["list", "--all", "--name"])
        .await
        .lines()
        .filter(|name| !name.is_empty())
    {
        let state = virsh(&["domstate", name]).await.trim().to_owned();
        let id = virsh(&["domuuid", name]).await.trim().to_owned();
        wanted.push((id, name.to_owned(), state));
    }
    wanted.sort();
    until_here(server, &format!("as virsh says: {wanted:?}"), |status| {
        let instances = status["instances"].as_array().into_iter().flatten();
        let mut told: Vec<_> = instances
            .map(|guest| {
                let text = |field: &str| guest[field].as_str().unwrap_or_default().to_owned();
                let state = match text("state").as_str() {
                    "shutoff" => "shut off".to_owned(),
                    other => other.to_owned(),
                };
                assert_eq!(guest["active"] == true, state != "shut off", "{guest}");
                (text("id"), text("name"), state)
            })
            .collect();
        told.sort();
        told == wanted && status["numInstances"] == wanted.len()
    })
    .await;
}

#[test]
fn the_status_equals_what_virsh_says() {
    in_private_host("the_status_equals_what_virsh_says", || async {
        let _daemon = Daemon::start().await;
        let host = connect(RW, Options::default()).await;
        let running = host.define(&guest_xml("running")).await.unwrap();
        host.start(&running, 0).await.unwrap();
        host.define(&guest_xml("stopped")).await.unwrap();
        let (server, agent) = world().await;
        let status = until_here(&server, "complete", |status| {
            is_connected(status)
                && status["allocation"]["cpu"] == "2"
                && status["domainCapabilities"]["arch"].is_string()
        })
        .await;
        assert_guests_as_virsh_says(&server).await;

        let version = virsh(&["version", "--daemon"]).await;
        assert_eq!(
            field(&version, "Running against daemon"),
            status["libVirtVersion"]
        );
        assert_eq!(
            field(&version, "Running hypervisor"),
            format!("QEMU {}", status["hypervisorVersion"].as_str().unwrap())
        );

        let said = virsh(&["capabilities"]).await;
        let host_part = between(&said, "<host>", "</host>")[0].to_owned();
        assert_eq!(
            between(&host_part, "<arch>", "</arch>")[0],
            status["capabilities"]["cpuArch"]
        );
        let cells = between(&host_part, "<cell id='", "</cell>");
        assert_eq!(status["cells"].as_array().unwrap().len(), cells.len());
        let (mut memory, mut cpus) = (0_u64, 0_u64);
        for cell in &cells {
            let id: u64 = cell.split('\'').next().unwrap().parse().unwrap();
            let kib: u64 = between(cell, "<memory unit='KiB'>", "<")[0].parse().unwrap();
            let count: u64 = between(cell, "<cpus num='", "'")[0].parse().unwrap();
            let told = status["cells"]
                .as_array()
                .unwrap()
                .iter()
                .find(|told| told["cellID"] == id)
                .unwrap();
            let told_memory = cobaltcore_api::Quantity::from(told["capacity"]["memory"].as_str().unwrap());
            assert_eq!(told_memory.value(), Some(i128::from(kib * 1024)));
            assert_eq!(told["capacity"]["cpu"], count.to_string());
            memory += kib;
            cpus += count;
        }
        let nodeinfo = virsh(&["nodeinfo"]).await;
        assert_eq!(field(&nodeinfo, "Memory size"), format!("{memory} KiB"));
        assert_eq!(field(&nodeinfo, "CPU(s)"), cpus.to_string());
        let total = cobaltcore_api::Quantity::from(status["capacity"]["memory"].as_str().unwrap());
        assert_eq!(total.value(), Some(i128::from(memory * 1024)));
        assert_eq!(status["allocation"]["memory"], "64Mi");

        let said = virsh(&["domcapabilities"]).await;
        let told = &status["domainCapabilities"];
        assert_eq!(between(&said, "<domain>", "<")[0], told["hypervisorType"]);
        assert_eq!(between(&said, "<arch>", "<")[0], told["arch"]);
        let devices = between(&said, "<devices>", "</devices>")[0].to_owned();
        for device in told["supportedDevices"].as_array().unwrap() {
            let (kind, model) = device
                .as_str()
                .unwrap()
                .split_once('/')
                .unwrap_or((device.as_str().unwrap(), ""));
            assert!(devices.contains(&format!("<{kind} supported='yes'")), "{device}");
            assert!(
                model.is_empty() || devices.contains(&format!("<value>{model}</value>")),
                "{device}"
            );
        }
        let supported = devices
            .lines()
            .filter(|line| line.contains("supported='yes'"))
            .count();
        let told_kinds = told["supportedDevices"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|device| !device.as_str().unwrap().contains('/'))
            .count();
        assert_eq!(told_kinds, supported);
        agent.stop().await;
    });
}

#[test]
fn a_guest_started_paused_crashed_and_destroyed_shows() {
    in_private_host("a_guest_started_paused_crashed_and_destroyed_shows", || async {
        let _daemon = Daemon::start().await;
        let host = connect(RW, Options::default()).await;
        let (server, agent) = world().await;
        until_here(&server, "connected", is_connected).await;
        let xml = guest_xml("mortal").replace("<devices>", "<on_crash>destroy</on_crash><devices>");
        let guest = host.define(&xml).await.unwrap();
        assert_guests_as_virsh_says(&server).await;
        let shows = |active: bool, state: &'static str| {
            move |status: &Json| {
                let guest = instance(status, "mortal");
                guest["active"] == active && guest["state"] == state
            }
        };
        host.start(&guest, 0).await.unwrap();
        until_here(&server, "started", shows(true, "running")).await;
        host.suspend(&guest).await.unwrap();
        until_here(&server, "paused", shows(true, "paused")).await;
        host.resume(&guest).await.unwrap();
        until_here(&server, "resumed", shows(true, "running")).await;

        // A crash of the process is what a host really sees.
        let pid = std::fs::read_to_string("/run/libvirt/qemu/mortal.pid").unwrap();
        assert!(
            std::process::Command::new("kill")
                .args(["-SEGV", pid.trim()])
                .status()
                .unwrap()
                .success()
        );
        until_here(&server, "crashed", shows(false, "shutoff")).await;
        assert!(
            virsh(&["domstate", "--reason", "mortal"])
                .await
                .contains("crashed")
        );
        assert_guests_as_virsh_says(&server).await;

        host.start(&guest, 0).await.unwrap();
        until_here(&server, "started again", shows(true, "running")).await;
        host.destroy(&guest).await.unwrap();
        until_here(&server, "destroyed", shows(false, "shutoff")).await;
        host.undefine(&guest).await.unwrap();
        until_here(&server, "gone", |status| status["numInstances"] == 0).await;
        agent.stop().await;
    });
}

#[test]
fn a_libvirtd_killed_twenty_times_costs_no_restart_and_no_state() {
    in_private_host(
        "a_libvirtd_killed_twenty_times_costs_no_restart_and_no_state",
        || async {
            let mut daemon = Daemon::start().await;
            let host = connect(RW, Options::default()).await;
            let guest = host.define(&guest_xml("survivor")).await.unwrap();
            host.start(&guest, 0).await.unwrap();
            let (server, agent) = world().await;
            until_here(&server, "connected", |status| {
                is_connected(status) && status["numInstances"] == 1
            })
            .await;
            for round in 1..=20 {
                daemon.kill().await;
                let status =
                    until_here(&server, "lost", |status| connection(status).starts_with("False/")).await;
                assert_eq!(connection(&status), "False/Disconnected", "round {round}");
                assert_eq!(status["numInstances"], 1, "what was known stays");
                daemon = Daemon::start().await;
                // Changed as soon as libvirtd answers, perhaps before the agent is back.
                let host = connect(RW, Options::default()).await;
                let pause = round % 2 == 1;
                if pause {
                    host.suspend(&guest).await.unwrap();
                } else {
                    host.resume(&guest).await.unwrap();
                }
                let state = if pause { "paused" } else { "running" };
                until_here(&server, &format!("back in round {round}"), |status| {
                    is_connected(status) && instance(status, "survivor")["state"] == state
                })
                .await;
                agent.assert_alive();
            }
            // Events arrive on the last connection too.
            let host = connect(RW, Options::default()).await;
            host.destroy(&guest).await.unwrap();
            until_here(&server, "destroyed", |status| {
                instance(status, "survivor")["active"] == false
            })
            .await;
            assert_guests_as_virsh_says(&server).await;
            agent.stop().await;
        },
    );
}

#[test]
fn a_stopped_libvirtd_is_reported_and_healthy_after() {
    in_private_host("a_stopped_libvirtd_is_reported_and_healthy_after", || async {
        let daemon = Daemon::start().await;
        let (server, agent) = world().await;
        until_here(&server, "connected", is_connected).await;
        let stopped = tokio::time::Instant::now();
        daemon.signal("-STOP");
        until_here(&server, "unreachable", |status| {
            connection(status) == "False/Timeout"
        })
        .await;
        eprintln!(
            "stopped libvirtd reported after {:.1} s",
            stopped.elapsed().as_secs_f64()
        );
        // What the transition says is what people see; the clock of the API has whole seconds.
        daemon.signal("-CONT");
        let status = until_here(&server, "healthy", is_connected).await;
        assert_eq!(condition(&status, "LibVirtConnection")["message"], "");
        agent.stop().await;
    });
}

#[test]
fn fifty_idle_guests_cost_three_calls_a_minute_and_no_write() {
    in_private_host(
        "fifty_idle_guests_cost_three_calls_a_minute_and_no_write",
        || async {
            let _daemon = Daemon::start().await;
            // The daemon's own mock driver has guests that run without costing memory; the wire is the real one.
            let proxy = Proxy::start(
                std::path::Path::new("/run/libvirt/libvirt-sock"),
                std::path::Path::new("/run/counted"),
            );
            let uri = "test+unix:///default?socket=/run/counted";
            let host = connect(
                "test+unix:///default?socket=/run/libvirt/libvirt-sock",
                Options::default(),
            )
            .await;
            let server = server().await;
            create(&server, NODE).await;
            // Each connection of the mock driver is a host of its own unless it is the shared default one.
            for number in 0..49 {
                let xml = format!(
                    "<domain type='test'><name>guest-{number}</name><memory unit='MiB'>64</memory><vcpu>1</vcpu><os><type>hvm</type></os></domain>"
                );
                let guest = host.define(&xml).await.unwrap();
                host.start(&guest, 0).await.unwrap();
            }
            let agent = Agent::start(config(NODE, uri, &[]), &server);
            until_here(&server, "complete", |status| {
                connection(status).starts_with("True/")
                    && status["numInstances"] == 50
                    && status["cells"].is_array()
            })
            .await;
            // Until the questions that come with a new connection are answered, and what takes a while to be known,
            // such as that there is no system bus, is written.
            let mut version = None;
            while version != resource_version(&server).await {
                version = resource_version(&server).await;
                tokio::time::sleep(Duration::from_secs(15)).await;
            }
            let calls = proxy.calls();
            const MINUTES: u64 = 3;
            tokio::time::sleep(Duration::from_secs(60 * MINUTES)).await;
            let made = proxy.calls() - calls;
            eprintln!("{made} calls in {MINUTES} minutes with 50 guests");
            assert!(made <= 3 * MINUTES, "{made} calls in {MINUTES} minutes");
            assert!(made >= MINUTES - 1, "it still looks");
            assert_eq!(resource_version(&server).await, version, "no status write");
            agent.stop().await;
        },
    );
}

async fn resource_version(server: &TestServer) -> Option<String> {
    let object = support::hypervisors(server).get(NODE).await.unwrap();
    object.metadata.resource_version
}

/// More than any guest here writes, in MiB/s.
const FAST: u64 = 2048;

fn at(mib_per_second: u64) -> MigrateParams {
    MigrateParams::default()
        .with("migrate_uri", Value::String("tcp://127.0.0.1".into()))
        .with("bandwidth", Value::ULLong(mib_per_second))
}

const LIVE: u32 = flags::MIGRATE_LIVE | flags::MIGRATE_PERSIST_DEST | flags::MIGRATE_UNDEFINE_SOURCE;

/// Two hosts with an agent each, and a guest that runs on the first and is busy, so that its slow migration lasts until
/// it is allowed to be fast.
struct Pair {
    _daemons: (Daemon, Daemon),
    _disk: tempfile::TempDir,
    source: Connection,
    target: Connection,
    guest: Domain,
    server: TestServer,
    agents: Vec<Agent>,
}

impl Pair {
    async fn new(name: &str) -> Self {
        let daemons = (Daemon::start().await, Daemon::start_second().await);
        let (source, target) = (
            connect(RW, Options::default()).await,
            connect(SECOND, Options::default()).await,
        );
        let disk = tempfile::tempdir().unwrap();
        let busy = busy_guest_xml(name, &disk.path().join("disk"));
        let guest = source.define(&busy).await.unwrap();
        let guest = source.start(&guest, 0).await.unwrap();
        until_busy(name).await;
        let server = server().await;
        create(&server, "one").await;
        create(&server, "two").await;
        let agents = vec![
            Agent::start(config("one", RW, &[]), &server),
            Agent::start(config("two", SECOND, &[]), &server),
        ];
        until(&server, "one", "connected", |status| {
            is_connected(status) && status["numInstances"] == 1
        })
        .await;
        until(&server, "two", "connected", is_connected).await;
        Self {
            _daemons: daemons,
            _disk: disk,
            source,
            target,
            guest,
            server,
            agents,
        }
    }

    async fn until(&self, what: &str, wanted: impl Fn(&Json) -> bool) -> Json {
        until_migration(&self.server, &self.guest.uuid.to_string(), what, wanted).await
    }

    async fn stop(self) {
        for agent in self.agents {
            agent.stop().await;
        }
    }
}

/// The final figures as libvirt tells them.
async fn job_completed(stream: &mut EventStream) -> cobaltcore_libvirt::types::JobStats {
    loop {
        match tokio::time::timeout(Duration::from_secs(60), stream.next())
            .await
            .unwrap()
        {
            Some(Delivery::Event(event)) => {
                if let EventBody::JobCompleted { params } = event.body {
                    return cobaltcore_libvirt::types::JobStats { kind: 3, params };
                }
            }
            other => panic!("{other:?}"),
        }
    }
}

/// Every figure of the object must be libvirt's own.
fn assert_figures(status: &Json, stats: &cobaltcore_libvirt::types::JobStats) {
    use cobaltcore_api::format;
    let number = |field: &str| stats.params.u64(field);
    let texts: [(&str, Option<String>); 14] = [
        ("timeElapsed", number("time_elapsed").map(format::duration_ms)),
        ("downtime", number("downtime").map(format::duration_ms)),
        ("setupTime", number("setup_time").map(format::duration_ms)),
        ("dataTotal", number("data_total").map(format::bytes)),
        ("dataProcessed", number("data_processed").map(format::bytes)),
        ("dataRemaining", number("data_remaining").map(format::bytes)),
        ("memTotal", number("memory_total").map(format::bytes)),
        ("memProcessed", number("memory_processed").map(format::bytes)),
        ("memRemaining", number("memory_remaining").map(format::bytes)),
        ("memBps", number("memory_bps").map(format::bytes_per_second)),
        ("memNormalBytes", number("memory_normal_bytes").map(format::bytes)),
        (
            "memDirtyRate",
            number("memory_dirty_rate").map(format::per_second),
        ),
        ("memPageSize", number("memory_page_size").map(format::bytes)),
        ("diskTotal", number("disk_total").map(format::bytes)),
    ];
    for (field, wanted) in texts {
        assert_eq!(
            status.get(field).and_then(Json::as_str).map(str::to_owned),
            wanted,
            "{field}"
        );
    }
    for (field, name) in [
        ("memConstant", "memory_constant"),
        ("memNormal", "memory_normal"),
        ("memIteration", "memory_iteration"),
    ] {
        assert_eq!(
            status[field].as_u64().unwrap_or(0),
            number(name).unwrap_or(0),
            "{field}"
        );
    }
    let progress = &status["progress"];
    assert_eq!(progress["dataTotalBytes"].as_u64(), number("data_total"));
    assert_eq!(progress["dataProcessedBytes"].as_u64(), number("data_processed"));
    assert_eq!(progress["dataRemainingBytes"].as_u64(), number("data_remaining"));
    assert_eq!(progress["elapsedMs"].as_u64(), number("time_elapsed"));
    assert_eq!(progress["downtimeMs"].as_u64(), number("downtime"));
}

#[test]
fn a_live_migration_is_told_with_libvirts_own_figures() {
    in_private_host("a_live_migration_is_told_with_libvirts_own_figures", || async {
        let pair = Pair::new("traveller").await;
        let mut events = pair
            .source
            .subscribe(&[EventId::JOB_COMPLETED])
            .await
            .unwrap()
            .stream;
        let migration = {
            let (source, guest) = (
                pair.source.with_deadline(Duration::from_mins(5)),
                pair.guest.clone(),
            );
            tokio::spawn(async move { source.migrate_to_uri(&guest, SECOND, at(1), LIVE).await })
        };
        let running = pair
            .until("running", |status| {
                status["phase"] == "Running" && status["destination"] == "two"
            })
            .await;
        assert_eq!(
            (&running["origin"], &running["operation"]),
            (&"one".into(), &"migration_out".into())
        );
        pair.source
            .migrate_set_max_speed(&pair.guest, FAST)
            .await
            .unwrap();
        migration.await.unwrap().unwrap();
        let told = job_completed(&mut events).await;
        assert_eq!(told.params.i64("operation"), Some(5));
        let end = pair
            .until("completed", |status| status["phase"] == "Completed")
            .await;
        assert_figures(&end, &told);
        assert_eq!(
            (
                &end["type"],
                &end["origin"],
                &end["destination"],
                &end["dataRemaining"]
            ),
            (&"completed".into(), &"one".into(), &"two".into(), &"0 B".into())
        );
        // The destination keeps the same figures, and reading them took nothing away.
        let kept = pair.target.completed_job_stats(&pair.guest).await.unwrap();
        assert_eq!(
            (
                kept.kind,
                names::job_operation(kept.params.i64("operation").unwrap() as i32).as_ref()
            ),
            (3, "migration_in")
        );
        for figure in [
            "data_total",
            "data_processed",
            "data_remaining",
            "memory_total",
            "memory_iteration",
            "memory_normal",
        ] {
            assert_eq!(kept.params.get(figure), told.params.get(figure), "{figure}");
        }
        // The guest is where it went, and only there.
        let id = pair.guest.uuid.to_string();
        until(&pair.server, "one", "left", |status| status["numInstances"] == 0).await;
        until(&pair.server, "two", "arrived", |status| {
            status["instances"][0]["id"] == id.as_str() && status["instances"][0]["state"] == "running"
        })
        .await;
        // Nobody writes any more after the end.
        pair.server.comes_to_rest(Duration::from_secs(10)).await;
        let object = migrations(&pair.server).get(&id).await.unwrap();
        assert_figures(&serde_json::to_value(object.status.unwrap()).unwrap(), &told);
        pair.stop().await;
    });
}

#[test]
fn without_the_source_agent_the_destination_tells_the_end_with_libvirts_figures() {
    in_private_host(
        "without_the_source_agent_the_destination_tells_the_end_with_libvirts_figures",
        || async {
            let mut pair = Pair::new("orphan").await;
            pair.agents.remove(0).stop().await;
            let source = pair.source.with_deadline(Duration::from_mins(5));
            source
                .migrate_to_uri(&pair.guest, SECOND, at(FAST), LIVE)
                .await
                .unwrap();
            let end = pair
                .until("completed by the destination", |status| {
                    status["phase"] == "Completed" && status["operation"] == "migration_in"
                })
                .await;
            let kept = pair.target.completed_job_stats(&pair.guest).await.unwrap();
            assert_figures(&end, &kept);
            assert_eq!(end["destination"], "two");
            pair.stop().await;
        },
    );
}

#[test]
fn an_aborted_migration_ends_failed_and_the_next_one_counts_on() {
    in_private_host(
        "an_aborted_migration_ends_failed_and_the_next_one_counts_on",
        || async {
            let pair = Pair::new("undecided").await;
            let migrate = |speed: u64| {
                let (source, guest) = (
                    pair.source.with_deadline(Duration::from_mins(5)),
                    pair.guest.clone(),
                );
                tokio::spawn(async move { source.migrate_to_uri(&guest, SECOND, at(speed), LIVE).await })
            };
            let migration = migrate(1);
            pair.until("running", |status| {
                status["phase"] == "Running" && status["destination"] == "two"
            })
            .await;
            // The last figures libvirt gives before the end bound what the object may say.
            let first = pair.source.job_stats(&pair.guest).await.unwrap();
            let last = {
                let (source, guest) = (pair.source.clone(), pair.guest.clone());
                tokio::spawn(async move {
                    let mut last = 0;
                    while let Ok(stats) = source.job_stats(&guest).await
                        && let Some(processed) = stats.params.u64("data_processed")
                    {
                        last = last.max(processed);
                    }
                    last
                })
            };
            pair.source.abort_job(&pair.guest).await.unwrap();
            migration.await.unwrap().unwrap_err();
            let last = last.await.unwrap();
            let failed = pair.until("failed", |status| status["phase"] == "Failed").await;
            assert_eq!(
                (&failed["type"], &failed["attempt"]),
                (&"failed".into(), &1.into())
            );
            assert_eq!(
                failed["errMsg"],
                "migration job ended without completion (cancelled or failed)"
            );
            assert!(failed["finished"].is_string());
            assert_eq!(
                failed["progress"]["dataTotalBytes"].as_u64(),
                first.params.u64("data_total")
            );
            // Our question may have been answered just before the agent's; a second of it is one MiB.
            let processed = failed["progress"]["dataProcessedBytes"].as_u64();
            assert!(
                processed.is_some_and(|bytes| bytes <= last + (1 << 20)),
                "{processed:?} {last}"
            );
            until(&pair.server, "one", "still here", |status| {
                status["instances"][0]["state"] == "running"
            })
            .await;
            until(&pair.server, "two", "empty", |status| status["numInstances"] == 0).await;

            migrate(FAST).await.unwrap().unwrap();
            let end = pair
                .until("completed", |status| status["phase"] == "Completed")
                .await;
            assert_eq!((&end["attempt"], end.get("errMsg")), (&2.into(), None));
            pair.stop().await;
        },
    );
}

#[test]
fn saving_a_guest_makes_no_migration() {
    in_private_host("saving_a_guest_makes_no_migration", || async {
        let _daemon = Daemon::start().await;
        let host = connect(RW, Options::default()).await;
        let guest = host.define(&guest_xml("saved")).await.unwrap();
        let guest = host.start(&guest, 0).await.unwrap();
        let (server, agent) = world().await;
        until_here(&server, "connected", |status| {
            is_connected(status) && status["numInstances"] == 1
        })
        .await;
        host.with_deadline(Duration::from_mins(2))
            .managed_save(&guest)
            .await
            .unwrap();
        until_here(&server, "saved", |status| {
            instance(status, "saved")["active"] == false
        })
        .await;
        tokio::time::sleep(Duration::from_secs(3)).await;
        let all = migrations(&server)
            .list(&kube::api::ListParams::default())
            .await
            .unwrap();
        assert!(all.items.is_empty(), "{:?}", all.items);
        agent.stop().await;
    });
}

#[test]
fn a_driver_the_daemon_does_not_have_is_named() {
    in_private_host("a_driver_the_daemon_does_not_have_is_named", || async {
        let _daemon = Daemon::start().await;
        let server = server().await;
        create(&server, NODE).await;
        let agent = Agent::start(config(NODE, "ch+tcp://127.0.0.1/system", &[]), &server);
        until_here(&server, "named", |status| {
            connection(status) == "False/DriverUnavailable"
        })
        .await;
        agent.stop().await;
        // `auto` finds the driver that is there.
        let agent = Agent::start(
            config(NODE, "auto", &["--libvirt-socket", "/run/libvirt/libvirt-sock"]),
            &server,
        );
        let status = until_here(&server, "found", is_connected).await;
        assert_eq!(status["agent"]["driver"], "QEMU");
        agent.stop().await;
    });
}
