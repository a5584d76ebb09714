// SPDX-License-Identifier: Apache-2.0
//! Debian's unmodified `openstack` client against the simulated cloud: what an operator types, and what it prints.
#![allow(clippy::unwrap_used, clippy::print_stderr)]

use std::io::Write;
use std::path::Path;
use std::time::Duration;

use cobaltcore_sim::{Cloud, World};
use serde_json::Value;
use tokio::process::Command;

const CLIENT: &str = "/usr/bin/openstack";
const ONE: &str = "node001-bb1";
const TWO: &str = "node002-bb1";

struct Shell {
    cloud: Cloud,
    directory: tempfile::TempDir,
}

struct Printed {
    ok: bool,
    out: String,
    err: String,
}

impl Shell {
    async fn start() -> Option<Self> {
        if !Path::new(CLIENT).exists() {
            // Past the test harness, which swallows what tests print.
            writeln!(
                std::io::stderr(),
                "SKIPPED: no {CLIENT} (Debian: python3-openstackclient)"
            )
            .ok();
            return None;
        }
        // The client's own start takes seconds; the world need not.
        let world = World::builder()
            .hosts(2)
            .vms_per_host(2)
            .seed(5)
            .time_scale(20.0)
            .build();
        let cloud = Cloud::start(world).await.unwrap();
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("clouds.yaml"), cloud.clouds_yaml()).unwrap();
        Some(Self { cloud, directory })
    }

    async fn run(&self, cloud: &str, args: &str) -> Printed {
        let run = Command::new(CLIENT)
            .arg("--os-cloud")
            .arg(cloud)
            .args(args.split(' '))
            .current_dir(self.directory.path())
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("HOME", self.directory.path())
            .env("LC_ALL", "C.UTF-8")
            .kill_on_drop(true)
            .output();
        let output = tokio::time::timeout(Duration::from_secs(180), run)
            .await
            .expect("the client hangs")
            .unwrap();
        Printed {
            ok: output.status.success(),
            out: String::from_utf8_lossy(&output.stdout).into_owned(),
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    /// Runs as the administrator and must succeed.
    async fn text(&self, args: &str) -> String {
        let printed = self.run("sim", args).await;
        assert!(printed.ok, "openstack {args}: {}{}", printed.out, printed.err);
        printed.out
    }

    async fn json(&self, args: &str) -> Value {
        let text = self.text(&format!("{args} -f json")).await;
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("openstack {args}: {error}: {text}"))
    }

    fn host_of(&self, id: &str) -> String {
        self.cloud
            .world()
            .server(id.parse().unwrap())
            .unwrap()
            .host
            .unwrap()
            .to_string()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_are_listed_made_shown_and_deleted() {
    let Some(shell) = Shell::start().await else { return };
    let token = shell.json("token issue").await;
    assert_eq!(token["project_id"].as_str().unwrap().len(), 32);
    let all = shell.json("server list --all-projects --long").await;
    assert_eq!(all.as_array().unwrap().len(), 4);
    assert!(
        all.as_array()
            .unwrap()
            .iter()
            .all(|server| server["Status"] == "ACTIVE")
    );
    let printed = shell
        .run(
            "sim-demo",
            "server create --image cirros-kvm --flavor m1.tiny --network internal --wait -f json fresh",
        )
        .await;
    assert!(printed.ok, "{}", printed.err);
    let made: Value = serde_json::from_str(printed.out.trim()).unwrap();
    assert_eq!(made["status"], "ACTIVE");
    assert!(made["addresses"]["internal"][0].is_string());
    let id = made["id"].as_str().unwrap();
    let shown = shell.json(&format!("server show {id}")).await;
    assert_eq!(shown["name"], "fresh");
    assert!(shown["OS-EXT-SRV-ATTR:host"].is_string());
    let console = shell.text(&format!("console log show {id}")).await;
    assert!(console.contains("Linux version"), "{console}");
    shell.text(&format!("server delete --wait {id}")).await;
    let gone = shell.run("sim", &format!("server show {id}")).await;
    assert!(
        !gone.ok
            && gone
                .err
                .contains(&format!("No server with a name or ID of '{id}' exists."))
            || gone.err.contains("No Server found"),
        "{}",
        gone.err
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_are_moved_live_and_evacuated() {
    let Some(shell) = Shell::start().await else { return };
    let on = shell
        .json(&format!("server list --all-projects --host {ONE}"))
        .await;
    let (moves, dies) = (on[0]["ID"].as_str().unwrap(), on[1]["ID"].as_str().unwrap());
    let printed = shell
        .text(&format!("server migrate --live-migration --wait {moves}"))
        .await;
    assert!(printed.contains("Complete"), "{printed}");
    assert_eq!(shell.host_of(moves), TWO);
    let migrations = shell
        .json("--os-compute-api-version 2.59 server migration list")
        .await;
    assert_eq!(
        (&migrations[0]["Status"], &migrations[0]["Type"]),
        (&"completed".into(), &"live-migration".into())
    );
    let refused = shell.run("sim", &format!("server evacuate {dies}")).await;
    assert!(
        !refused.ok
            && refused
                .err
                .contains(&format!("Compute service of {ONE} is still in use.")),
        "{}",
        refused.err
    );
    shell.cloud.world().power_off(ONE).unwrap();
    shell
        .text(&format!("compute service set --down {ONE} nova-compute"))
        .await;
    // Debian's client stumbles over its own feet after Nova has accepted; what counts is that Nova did.
    shell.run("sim", &format!("server evacuate {dies}")).await;
    for _ in 0..600 {
        if shell.host_of(dies) == TWO {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(shell.host_of(dies), TWO);
    assert!(shell.cloud.world().running_twice().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn services_hypervisors_and_aggregates_are_looked_after() {
    let Some(shell) = Shell::start().await else { return };
    shell
        .text(&format!(
            "compute service set --disable --disable-reason kernel {ONE} nova-compute"
        ))
        .await;
    let services = shell
        .json(&format!(
            "compute service list --long --host {ONE} --service nova-compute"
        ))
        .await;
    assert_eq!(
        (&services[0]["Status"], &services[0]["Disabled Reason"]),
        (&"disabled".into(), &"kernel".into())
    );
    shell
        .text(&format!("compute service set --enable {ONE} nova-compute"))
        .await;
    let hypervisors = shell.json("hypervisor list --long").await;
    assert_eq!(hypervisors.as_array().unwrap().len(), 2);
    let shown = shell.json(&format!("hypervisor show {ONE}")).await;
    assert_eq!(
        (&shown["hypervisor_hostname"], &shown["state"]),
        (&ONE.into(), &"up".into())
    );
    let shown = shell
        .json(&format!("--os-compute-api-version 2.88 hypervisor show {ONE}"))
        .await;
    assert!(shown["id"].as_str().unwrap().len() == 36 && shown["uptime"].is_string());
    shell.text("aggregate create fast").await;
    shell.text("aggregate set --property ssd=true fast").await;
    let shown = shell.json(&format!("aggregate add host fast {ONE}")).await;
    assert_eq!(shown["hosts"], serde_json::json!([ONE]));
    let twice = shell.run("sim", &format!("aggregate add host fast {ONE}")).await;
    assert!(
        !twice.ok && twice.err.contains(&format!("already has host {ONE}.")),
        "{}",
        twice.err
    );
    shell.text(&format!("aggregate remove host fast {ONE}")).await;
    shell.text("aggregate delete fast").await;
    let names = shell.json("aggregate list").await;
    assert!(!names.to_string().contains("fast"));
}
