// SPDX-License-Identifier: Apache-2.0
//! What the status says in every situation, without a server.

use std::collections::BTreeMap;

use cobaltcore_api::{DomainCapabilities, HypervisorSpec, OperatingSystem};
use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::board::GuestState;
use crate::capacity::{Claim, HostCell};
use crate::xml::IdSet;

fn standing() -> Standing {
    Standing {
        agent: AgentInfo {
            version: "1.2.3".into(),
            ..AgentInfo::default()
        },
        units: vec!["libvirtd.service".into()],
        additions: true,
    }
}

fn hypervisor(status: Option<Value>) -> Hypervisor {
    let mut object = Hypervisor::new("node1", HypervisorSpec::default());
    object.status = status.map(|status| serde_json::from_value(status).unwrap());
    object
}

fn status(model: &Model, current: &Hypervisor, standing: &Standing) -> Value {
    let before = serde_json::to_value(current).unwrap();
    let now = "2026-01-01T00:00:00Z".parse().unwrap();
    decide(model, current, standing).intent.status(&before, now)
}

fn two_cells() -> HostCells {
    let cell = |first: u32| HostCell {
        memory: 64 << 30,
        cpus: 4,
        cpu_ids: (first..first + 4).collect(),
        huge_pages: BTreeMap::new(),
    };
    HostCells {
        arch: "x86_64".into(),
        cells: [(0, cell(0)), (1, cell(4))].into(),
        problems: Vec::new(),
    }
}

fn guest(name: &str, active: bool, claim: Reading) -> Guest {
    Guest {
        name: name.into(),
        active,
        state: Some(if active {
            GuestState::Running
        } else {
            GuestState::Shutoff
        }),
        claim,
    }
}

fn claim(memory: u64, vcpus: u64, node: Option<&str>) -> Reading {
    Reading::Known(Box::new(Claim {
        memory,
        vcpus,
        nodeset: node.map(|node| IdSet::parse(node).unwrap()),
        ..Claim::default()
    }))
}

fn connected(guests: Vec<(u128, Guest)>) -> Model {
    let guests: BTreeMap<Uuid, Guest> = guests
        .into_iter()
        .map(|(id, guest)| (Uuid::from_u128(id), guest))
        .collect();
    Model {
        libvirt: LibvirtView {
            link: Link::Up,
            driver: Some("QEMU".into()),
            lib_version: Some("9.0.0".into()),
            hypervisor_version: Some("7.2.22".into()),
            cells: Some(two_cells()),
            guests: Some(guests),
            complete: true,
            ..LibvirtView::default()
        },
        ..Model::default()
    }
}

#[test]
fn a_host_with_guests_is_told_completely_and_in_order() {
    let model = connected(vec![
        (3, guest("b", true, claim(2 << 30, 2, Some("1")))),
        (1, guest("c", false, claim(1 << 30, 1, None))),
        (2, guest("a", true, claim(4 << 30, 4, Some("0-1")))),
    ]);
    let mut current = hypervisor(None);
    current.spec.overcommit = [("cpu".to_owned(), 1.5)].into();
    let status = status(&model, &current, &standing());
    let names: Vec<&str> = status["instances"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|instance| instance["name"].as_str())
        .collect();
    assert_eq!(names, ["a", "b", "c"], "running ones first, then by name");
    assert_eq!(status["instances"][2]["state"], "shutoff");
    assert_eq!(status["numInstances"], 3);
    assert_eq!(status["capacity"], json!({"cpu": "8", "memory": "128Gi"}));
    assert_eq!(
        status["effectiveCapacity"],
        json!({"cpu": "12", "memory": "128Gi"})
    );
    assert_eq!(status["allocation"], json!({"cpu": "7", "memory": "7Gi"}));
    assert_eq!(status["unplacedAllocation"], json!({"cpu": "1", "memory": "1Gi"}));
    assert_eq!(
        status["cells"],
        json!([
            {"cellID": 0, "allocation": {"cpu": "2", "memory": "2Gi"}, "capacity": {"cpu": "4", "memory": "64Gi"},
             "effectiveCapacity": {"cpu": "6", "memory": "64Gi"}},
            {"cellID": 1, "allocation": {"cpu": "4", "memory": "4Gi"}, "capacity": {"cpu": "4", "memory": "64Gi"},
             "effectiveCapacity": {"cpu": "6", "memory": "64Gi"}},
        ])
    );
    assert_eq!(
        status["capabilities"],
        json!({"cpuArch": "x86_64", "cpus": "8", "memory": "128Gi"})
    );
    assert_eq!(status["agent"]["driver"], "QEMU");
    assert_eq!(status["conditions"][0]["reason"], "Connected");
    assert_eq!(status["conditions"][0]["status"], "True");
}

#[test]
fn huge_pages_are_told_where_their_number_is_known() {
    const MIB: u64 = 1 << 20;
    let mut model = connected(vec![]);
    let host = model.libvirt.cells.as_mut().unwrap();
    for cell in host.cells.values_mut() {
        cell.huge_pages = [(2 * MIB, 512), (1024 * MIB, 4)].into();
    }
    let told = |model: &Model, current: &Hypervisor, additions: bool| {
        let standing = Standing {
            additions,
            ..standing()
        };
        status(model, current, &standing)["cells"][1]["pages"].clone()
    };
    let fresh = hypervisor(None);
    assert_eq!(told(&model, &fresh, true), Value::Null, "nobody has asked yet");
    let before = hypervisor(Some(json!({"numInstances": 0, "cells": [
        {"cellID": 1, "pages": [{"size": "2Mi", "total": 512, "free": 7}]}]})));
    assert_eq!(told(&model, &before, true)[0]["free"], 7, "as last seen");
    model.libvirt.free_pages = Some([(1, [(2 * MIB, 100)].into())].into());
    assert_eq!(
        told(&model, &before, true),
        json!([{"size": "2Mi", "total": 512, "free": 100}]),
        "a number that is missing is no zero"
    );
    assert_eq!(told(&model, &before, false), Value::Null);
}

#[test]
fn what_is_not_known_yet_is_repeated_and_never_dropped() {
    let before = json!({
        "libVirtVersion": "9.0.0", "hypervisorVersion": "7.2.22", "numInstances": 1,
        "instances": [{"id": "i", "name": "n", "active": true}],
        "operatingSystem": {"version": "1"}, "updateStatus": {"inProgress": true, "retry": 2, "installed": "x"},
        "capabilities": {"cpuArch": "x86_64", "memory": "1Gi", "cpus": "1"},
        "domainCapabilities": {"arch": "x86_64", "hypervisorType": "kvm", "supportedDevices": ["disk"],
            "supportedCpuModes": [], "supportedFeatures": []},
        "allocation": {"cpu": "1"}, "capacity": {"cpu": "1"}, "effectiveCapacity": {"cpu": "1"},
        "cells": [{"cellID": 0}],
        "conditions": [
            {"type": "LibVirtConnection", "status": "True", "reason": "Connected", "message": "", "lastTransitionTime": "2020-01-01T00:00:00Z"},
            {"type": "libvirtd.service", "status": "True", "reason": "Running", "message": "m", "lastTransitionTime": "2020-01-01T00:00:00Z"},
            {"type": "Ready", "status": "True", "reason": "Ready", "message": "", "lastTransitionTime": "2020-01-01T00:00:00Z"},
        ],
    });
    let standing = Standing {
        additions: false,
        ..standing()
    };
    let mut now = status(&Model::default(), &hypervisor(Some(before.clone())), &standing);
    let conditions = now.as_object_mut().unwrap().remove("conditions").unwrap();
    let mut wanted = before.clone();
    wanted.as_object_mut().unwrap().remove("conditions");
    assert_eq!(now, wanted);
    let types: Vec<&str> = conditions
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|entry| entry["type"].as_str())
        .collect();
    assert_eq!(
        types,
        ["LibVirtConnection", "libvirtd.service"],
        "Ready belongs to somebody else"
    );
    assert_eq!(conditions[1]["lastTransitionTime"], "2020-01-01T00:00:00Z");
}

#[test]
fn a_fresh_object_gets_nothing_invented() {
    let standing = Standing {
        additions: false,
        ..standing()
    };
    let status = status(&Model::default(), &hypervisor(None), &standing);
    assert_eq!(status, json!({"instances": [], "numInstances": 0}));
}

#[test]
fn sums_wait_until_every_guest_was_read() {
    let mut model = connected(vec![(1, guest("a", true, Reading::Pending))]);
    model.libvirt.complete = false;
    let before = json!({"numInstances": 0, "allocation": {"cpu": "9", "memory": "9Gi"},
        "cells": [{"cellID": 1, "allocation": {"cpu": "8"}}]});
    let status = status(&model, &hypervisor(Some(before)), &standing());
    assert_eq!(status["allocation"], json!({"cpu": "9", "memory": "9Gi"}));
    assert_eq!(status["cells"][1]["allocation"], json!({"cpu": "8"}));
    assert_eq!(status["numInstances"], 1, "the list itself does not wait");
}

#[test]
fn every_trouble_has_its_reason() {
    let kinds = [
        (
            OutageKind::ConnectFailed,
            "ConnectFailed",
            "unable to connect to libvirtd: x",
        ),
        (OutageKind::Disconnected, "Disconnected", "reconnecting: x"),
        (OutageKind::Timeout, "Timeout", "does not answer: x"),
        (
            OutageKind::AuthFailed,
            "AuthFailed",
            "does not let the agent in: x",
        ),
        (
            OutageKind::DriverUnavailable,
            "DriverUnavailable",
            "no such driver: x",
        ),
        (
            OutageKind::ProcessFailed,
            "ProcessFailed",
            "unable to process hypervisor via libvirt: x",
        ),
    ];
    for (kind, reason, words) in kinds {
        let mut model = connected(Vec::new());
        model.libvirt.link = Link::Down(Outage {
            kind,
            why: "x".into(),
        });
        let condition = &status(&model, &hypervisor(None), &standing())["conditions"][0];
        assert_eq!(
            (&condition["status"], &condition["reason"]),
            (&json!("False"), &json!(reason))
        );
        assert!(
            condition["message"].as_str().unwrap().ends_with(words),
            "{condition}"
        );
    }
    let mut model = connected(Vec::new());
    model.libvirt.link = Link::ServiceStopped;
    let condition = &status(&model, &hypervisor(None), &standing())["conditions"][0];
    assert_eq!(condition["message"], "libvirtd service is not running");
    assert_eq!(condition["reason"], "LibVirtServiceNotRunning");
}

#[test]
fn an_odd_guest_degrades_the_host_and_nothing_else() {
    let odd = Reading::Known(Box::new(Claim {
        vcpus: 2,
        problems: vec!["memory: \"x\" is no amount of memory".into()],
        ..Claim::default()
    }));
    let mut model = connected(vec![
        (1, guest("fine", true, claim(1 << 30, 1, None))),
        (2, guest("odd", true, odd)),
        (
            3,
            guest(
                "gone",
                true,
                Reading::Failed("domain: ends inside of <domain>".into()),
            ),
        ),
        (4, guest("lost", true, claim(1 << 30, 1, Some("7")))),
    ]);
    model.libvirt.trouble.insert("capabilities", "no answer".into());
    let status = status(&model, &hypervisor(None), &standing());
    assert_eq!(status["numInstances"], 4);
    assert_eq!(status["allocation"], json!({"cpu": "4", "memory": "2Gi"}));
    let condition = &status["conditions"][0];
    assert_eq!(
        (&condition["status"], &condition["reason"]),
        (&json!("True"), &json!("Degraded"))
    );
    let message = condition["message"].as_str().unwrap();
    for words in [
        "capabilities: no answer",
        "guest odd (",
        "guest gone (",
        "guest lost (",
        "does not have",
    ] {
        assert!(message.contains(words), "{message} lacks {words}");
    }
    assert!(!message.contains("guest fine"));
}

#[test]
fn an_older_definition_gets_only_what_it_knows() {
    let model = connected(vec![(1, guest("a", true, claim(1, 1, None)))]);
    let old = Standing {
        additions: false,
        ..standing()
    };
    let status = status(&model, &hypervisor(None), &old);
    for field in ["agent", "unplacedAllocation"] {
        assert!(status.get(field).is_none(), "{field}");
    }
    assert_eq!(status["instances"][0].get("state"), None);
}

#[test]
fn other_parts_have_their_say() {
    let mut model = connected(Vec::new());
    model.operating_system = Some(OperatingSystem {
        version: "2".into(),
        ..OperatingSystem::default()
    });
    model.libvirt.domain_capabilities = Some(DomainCapabilities::default());
    let unit = NewCondition::no("libvirtd.service", "Failed", "libvirtd.service: failed, loaded");
    model.conditions.insert("libvirtd.service".into(), Some(unit));
    model.conditions.insert("TLSCertificateInstalled".into(), None);
    let before = json!({"numInstances": 0, "operatingSystem": {"version": "1"}, "conditions": [
        {"type": "TLSCertificateInstalled", "status": "True", "reason": "Ready", "message": "", "lastTransitionTime": "2020-01-01T00:00:00Z"}]});
    let status = status(&model, &hypervisor(Some(before)), &standing());
    assert_eq!(status["operatingSystem"]["version"], "2");
    let types: Vec<&Value> = status["conditions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| &entry["type"])
        .collect();
    assert_eq!(
        types,
        ["LibVirtConnection", "libvirtd.service"],
        "what was taken back is gone"
    );
}

fn any_guest() -> impl Strategy<Value = Guest> {
    let reading = prop_oneof![
        Just(Reading::Pending),
        Just(Reading::Failed("x".into())),
        (0_u64..1 << 40, 0_u64..32, 0_u32..4).prop_map(|(memory, vcpus, node)| claim(
            memory,
            vcpus,
            Some(&node.to_string())
        )),
    ];
    ("[a-c]{0,2}", any::<bool>(), reading).prop_map(|(name, active, claim)| guest(&name, active, claim))
}

proptest! {
    #[test]
    fn a_second_look_at_what_was_written_changes_nothing(
        guests in proptest::collection::vec((0_u128..50, any_guest()), 0..12), complete in any::<bool>()) {
        let mut model = connected(guests);
        model.libvirt.complete = complete;
        let current = hypervisor(None);
        let first = status(&model, &current, &standing());
        prop_assert_eq!(&first, &status(&model, &current, &standing()));
        let mut written = current.clone();
        written.status = serde_json::from_value(first.clone()).unwrap();
        prop_assert_eq!(status(&model, &written, &standing()), first);
    }
}
