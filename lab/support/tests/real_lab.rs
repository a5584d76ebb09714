// SPDX-License-Identifier: Apache-2.0
//! The lab proves itself: a real server on real hosts is booted, live-migrated, bereft of its host,
//! evacuated, and never runs twice; networks are cut, processes frozen, power cycled by Redfish.
//! Whatever is broken here is broken for every other `real_*` suite, so this one goes first.

use std::error::Error;
use std::time::{Duration, Instant};

use cobaltcore_lab::{Cloud, Host, Lab, Options, Server, Skip, eventually};

type Outcome = Result<(), Box<dyn Error>>;

const ROUNDS: usize = 3;
const PATIENCE: Duration = Duration::from_mins(2);

/// Runs a scenario in the lab, or says why not. A failed scenario panics while the lab is still
/// held, which makes the lab keep its logs.
fn in_the_lab(options: &Options, scenario: impl FnOnce(&Lab) -> Outcome) {
    match Lab::join_or_start(options) {
        Err(skip) => Skip::print(&skip),
        Ok(lab) => {
            if let Err(error) = scenario(&lab) {
                panic!("{error}");
            }
        }
    }
}

#[test]
fn a_server_outlives_three_host_failures_on_two_hosts() {
    in_the_lab(&Options::with_hosts(2), |lab| outlive_failures(lab, 2));
}

#[test]
fn a_server_outlives_three_host_failures_on_three_hosts() {
    in_the_lab(&Options::with_hosts(3), |lab| outlive_failures(lab, 3));
}

/// Per round: live-migrate, take the power from under the server, declare the host dead, evacuate,
/// give the power back. Every round ends with what it began with, apart from the server's place.
fn outlive_failures(lab: &Lab, count: usize) -> Outcome {
    let cloud = lab.cloud()?;
    let hosts = lab.hosts().get(..count).ok_or("too few hosts")?;
    for outsider in lab.hosts().iter().skip(count) {
        cloud.set_enabled(outsider, false)?;
    }
    let server = cloud.boot(&format!("real-outlive-{count}"), lab.host(0)?)?;
    let before = lab.census()?;
    for round in 0..ROUNDS {
        let target = other_host(hosts, &cloud.server(&server.id)?, round)?;
        live_migrate(lab, &cloud, &server, target)?;
        lose_host(lab, &cloud, &server, target)?;
        return_host(lab, &cloud, &server, target)?;
    }
    // the census counts per host, so the server goes back to where it was counted first
    let first = lab.host(0)?;
    if cloud.server(&server.id)?.host.as_deref() != Some(first.name()) {
        live_migrate(lab, &cloud, &server, first)?;
    }
    eventually(&format!("everything as before {ROUNDS} rounds"), PATIENCE, || {
        let now = lab.census()?;
        Ok(if now == before {
            Ok(())
        } else {
            Err(format!("{before:?} became {now:?}"))
        })
    })?;
    cloud.delete(&server.id)?;
    eventually("the deleted server to leave nothing", PATIENCE, || {
        let (domains, allocations) = (lab.domains()?, cloud.allocations(&server.id)?);
        Ok(if domains.is_empty() && allocations == 0 {
            Ok(())
        } else {
            Err(format!("{domains:?}, {allocations} allocations"))
        })
    })?;
    for outsider in lab.hosts().iter().skip(count) {
        cloud.set_enabled(outsider, true)?;
    }
    Ok(())
}

/// A host that the server is not on, another one every round where there is a choice.
fn other_host<'a>(hosts: &'a [Host], server: &Server, round: usize) -> Result<&'a Host, Box<dyn Error>> {
    let others: Vec<_> = hosts
        .iter()
        .filter(|host| Some(host.name()) != server.host.as_deref())
        .collect();
    let turn = round % others.len().max(1);
    Ok(others.get(turn).copied().ok_or("there is no other host")?)
}

fn live_migrate(lab: &Lab, cloud: &Cloud, server: &Server, target: &Host) -> Outcome {
    cloud.live_migrate(&server.id, Some(target))?;
    cloud.wait_for_live_migration(&server.id, target)?;
    runs_once(lab, server, target.name())
}

fn lose_host(lab: &Lab, cloud: &Cloud, server: &Server, host: &Host) -> Outcome {
    host.power_off()?;
    assert!(!host.is_on()?, "{} has power after power_off", host.name());
    assert!(!host.reachable(), "libvirtd of a host without power answers");
    cloud.force_down(host)?;
    cloud.evacuate(&server.id)?;
    let refuge = eventually("the evacuated server to be active elsewhere", PATIENCE, || {
        let now = cloud.server(&server.id)?;
        let elsewhere = now.host.clone().filter(|name| name != host.name());
        let settled = now.status == "ACTIVE" && now.task_state.is_none();
        Ok(elsewhere.filter(|_| settled).ok_or_else(|| format!("{now:?}")))
    })?;
    runs_once(lab, server, &refuge)
}

fn return_host(lab: &Lab, cloud: &Cloud, server: &Server, host: &Host) -> Outcome {
    host.power_on()?;
    cloud.unforce(host)?;
    cloud.wait_for_service(host, "up")?;
    // the returned nova-compute removes what was evacuated from it
    eventually(
        "the returned host to forget the evacuated guest",
        PATIENCE,
        || {
            let left = host.domains()?;
            Ok(if left.is_empty() {
                Ok(())
            } else {
                Err(format!("{left:?}"))
            })
        },
    )?;
    let refuge = cloud.server(&server.id)?.host.unwrap_or_default();
    runs_once(lab, server, &refuge)?;
    eventually(
        "the allocations of the evacuation to be cleared",
        PATIENCE,
        || {
            let providers = cloud.allocations(&server.id)?;
            Ok(if providers == 1 {
                Ok(())
            } else {
                Err(format!("{providers} providers"))
            })
        },
    )?;
    Ok(())
}

/// The guest is active on exactly one host, and it is this one. A libvirtd that does not answer is asked again; a guest
/// in two places is not excused.
fn runs_once(lab: &Lab, server: &Server, host: &str) -> Outcome {
    let what = format!("the guest of {} to be active on {host}", server.name);
    let twice = eventually(&what, PATIENCE, || {
        let twice = lab.guests_running_twice()?;
        let active = lab
            .domains()?
            .into_iter()
            .filter(|domain| domain.active && domain.uuid == server.id);
        let places: Vec<String> = active.map(|domain| domain.host).collect();
        Ok(if places == [host] || !twice.is_empty() {
            Ok(twice)
        } else {
            Err(format!("{places:?}"))
        })
    })?;
    assert!(twice.is_empty(), "{twice:?}");
    Ok(())
}

#[test]
fn a_cut_host_keeps_its_guest_and_comes_back() {
    in_the_lab(&Options::with_hosts(3), |lab| {
        let cloud = lab.cloud()?;
        let host = lab.host(1)?;
        let server = cloud.boot("real-cut", host)?;

        host.cut()?;
        cloud.wait_for_service(host, "down")?;
        assert!(!host.reachable(), "a cut host answers over the network");
        assert!(
            host.is_on()?,
            "a cut host has power, and its BMC is on another wire"
        );
        runs_once(lab, &server, host.name())?;

        host.mend()?;
        cloud.wait_for_service(host, "up")?;
        host.virsh_tcp(&["version"])?;
        cloud.wait_for(&server.id, "ACTIVE", Some(host.name()))?;
        runs_once(lab, &server, host.name())?;
        cloud.delete(&server.id)?;
        Ok(())
    });
}

#[test]
fn redfish_tells_and_changes_the_real_power() {
    in_the_lab(&Options::hosts_only(2), |lab| {
        let host = lab.host(1)?;
        let bmc = host.redfish();
        assert!(
            bmc.with_password("wrong").system().is_err(),
            "the BMC let a stranger in"
        );
        let identity = bmc.system()?;
        assert_eq!(
            identity.get("UUID").and_then(|uuid| uuid.as_str()),
            Some(host.description().uuid.as_str())
        );
        assert!(
            host.virsh(&["capabilities"])?.contains(&host.description().uuid),
            "libvirt knows another UUID"
        );

        let first_boot = host.boot_id()?;
        bmc.reset("ForceOff")?;
        assert_eq!(bmc.power_state()?, "Off");
        assert!(!host.reachable(), "libvirtd answers without power");
        bmc.reset("ForceOff")?;
        assert_eq!(bmc.power_state()?, "Off", "a second ForceOff changes nothing");

        bmc.reset("On")?;
        assert_eq!(bmc.power_state()?, "On");
        libvirt_answers(host)?;
        let second_boot = host.boot_id()?;
        assert_ne!(first_boot, second_boot);

        bmc.reset("ForceRestart")?;
        libvirt_answers(host)?;
        assert_ne!(second_boot, host.boot_id()?, "a restart is a new boot");
        Ok(())
    });
}

#[test]
fn processes_freeze_thaw_die_and_return() {
    in_the_lab(&Options::with_hosts(2), |lab| {
        let cloud = lab.cloud()?;
        let host = lab.host(0)?;

        host.freeze("libvirtd")?;
        assert!(host.virsh(&["version"]).is_err(), "a frozen libvirtd answers");
        host.thaw("libvirtd")?;
        libvirt_answers(host)?;

        host.kill_process("libvirtd")?;
        assert!(host.virsh(&["version"]).is_err(), "a killed libvirtd answers");
        host.start_process("libvirtd")?;
        libvirt_answers(host)?;

        host.kill_process("nova-compute")?;
        cloud.wait_for_service(host, "down")?;
        host.start_process("nova-compute")?;
        cloud.wait_for_service(host, "up")?;
        Ok(())
    });
}

#[test]
fn disks_and_apis_become_slow_and_recover() {
    in_the_lab(&Options::with_hosts(2), |lab| {
        let cloud = lab.cloud()?;
        let host = lab.host(0)?;
        let delay = Duration::from_millis(1500);

        // an answer can be late for many reasons, but never early
        lab.slow_api("nova", 1500)?;
        assert!(time(|| cloud.services())? >= delay, "the slow API answers early");
        lab.slow_api("nova", 0)?;
        lab.fail_api("nova", 503)?;
        let refused = cloud
            .services()
            .err()
            .map(|error| error.to_string())
            .unwrap_or_default();
        assert!(refused.contains("503"), "{refused}");
        lab.fail_api("nova", 0)?;
        cloud.services()?;

        // more than one gap of 20 ms between pauses is needed to list a folder this often; a gap may be longer where
        // nobody has the time to end it, but not every time
        host.slow_disk(500)?;
        let often = "for _ in 1 2 3 4 5 6; do ls /var/lib/nova/instances >/dev/null; sleep 0.05; done";
        eventually("the slow disk to be slow", PATIENCE, || {
            let took = time(|| host.exec(&["sh", "-c", often]))?;
            Ok(if took >= delay {
                Ok(())
            } else {
                Err(format!("{took:?}"))
            })
        })?;
        host.slow_disk(0)?;
        let states = host.processes()?;
        assert!(
            states.contains(&("shared-storage".to_owned(), "running".to_owned())),
            "{states:?}"
        );
        Ok(())
    });
}

fn time<T>(call: impl FnOnce() -> cobaltcore_lab::Result<T>) -> cobaltcore_lab::Result<Duration> {
    let begin = Instant::now();
    call()?;
    Ok(begin.elapsed())
}

#[test]
fn every_host_has_an_open_vswitch_in_user_space() {
    in_the_lab(&Options::hosts_only(2), |lab| {
        for host in lab.hosts() {
            let kind = host.exec(&["ovs-vsctl", "get", "bridge", "br-int", "datapath_type"])?;
            assert_eq!(kind.trim(), "netdev", "{}", host.name());
            let name = host.exec(&["ovs-vsctl", "get", "open_vswitch", ".", "external-ids:hostname"])?;
            assert_eq!(name.trim(), host.name());
        }
        Ok(())
    });
}

fn libvirt_answers(host: &Host) -> cobaltcore_lab::Result<()> {
    eventually(&format!("libvirtd on {}", host.name()), PATIENCE, || {
        host.virsh_tcp(&["version"])?;
        Ok(Ok(()))
    })
}
