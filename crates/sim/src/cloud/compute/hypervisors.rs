// SPDX-License-Identifier: Apache-2.0
//! Hypervisors, as they were before 2.53, until 2.87 with usage figures, and since 2.88 without.

use serde_json::{Value, json};

use super::super::http::{Answer, Outcome, Page, Refusal, Req, next_link, uuid};
use super::admin;
use crate::world::{Host, Power, State};

pub(super) fn list(state: &mut State, req: &Req, detail: bool) -> Outcome {
    admin(
        req,
        if detail {
            "os-hypervisors:list-detail"
        } else {
            "os-hypervisors:list"
        },
    )?;
    let with_servers = req.since(53) && req.flag("with_servers");
    let known = state.hosts.values().filter(|host| host.service.is_some());
    if let Some(pattern) = req.param("hypervisor_hostname_pattern").filter(|_| req.since(53)) {
        if req.param("limit").is_some() || req.param("marker").is_some() {
            return Err(Refusal::bad(
                "Paging over hypervisors with the hypervisor_hostname_pattern query parameter is not supported.",
            ));
        }
        let found: Vec<Value> = known
            .filter(|host| host.hypervisor_hostname.contains(pattern))
            .map(|host| view(state, req, host, detail, with_servers))
            .collect();
        if found.is_empty() {
            return Err(Refusal::missing(format!(
                "No hypervisor matching '{pattern}' could be found."
            )));
        }
        return Ok(Answer::ok(json!({"hypervisors": found})));
    }
    let page = if req.since(33) {
        Page::of(req)?
    } else {
        Page::of(&unpaged(req))?
    };
    let all: Vec<&Host> = known.collect();
    let key = |host: &&Host| {
        if req.since(53) {
            host.node_uuid.to_string()
        } else {
            host.node_id.to_string()
        }
    };
    let (hosts, next) = page.cut(all, key)?;
    let shown: Vec<Value> = hosts
        .into_iter()
        .map(|host| view(state, req, host, detail, with_servers))
        .collect();
    let mut body = json!({"hypervisors": shown});
    if let Some(marker) = next.filter(|_| req.since(33)) {
        let end = if detail {
            "os-hypervisors/detail"
        } else {
            "os-hypervisors"
        };
        body["hypervisors_links"] = next_link(req, &format!("{}/v2.1/{end}", req.base()), &marker);
    }
    Ok(Answer::ok(body))
}

fn unpaged(req: &Req) -> Req {
    Req {
        service: req.service,
        method: req.method.clone(),
        path: Vec::new(),
        query: Vec::new(),
        headers: http::HeaderMap::new(),
        body: bytes::Bytes::new(),
        origin: String::new(),
        id: String::new(),
        caller: None,
        version: req.version,
    }
}

fn view(state: &State, req: &Req, host: &Host, detail: bool, with_servers: bool) -> Value {
    let service = host.service.as_ref();
    let up = service.is_some_and(|service| service.is_up(state.now));
    let mut shown = json!({
        "id": if req.since(53) { json!(host.node_uuid.to_string()) } else { json!(host.node_id) },
        "hypervisor_hostname": host.hypervisor_hostname,
        "state": if up { "up" } else { "down" },
        "status": if service.is_some_and(|service| service.disabled) { "disabled" } else { "enabled" },
    });
    if detail {
        shown["hypervisor_type"] = "QEMU".into();
        shown["hypervisor_version"] = 7_002_022.into();
        shown["host_ip"] = host.ip.clone().into();
        shown["service"] = json!({
            "id": service.map(|service| {
                if req.since(53) { json!(service.uuid.to_string()) } else { json!(service.id) }
            }),
            "host": host.name,
            "disabled_reason": service.and_then(|service| service.disabled_reason.clone()),
        });
        if req.since(88) {
            shown["uptime"] = json!(up.then(|| uptime_text(state, host)).flatten());
        } else {
            usage(state, req, host, &mut shown);
        }
    }
    if with_servers {
        let servers: Vec<Value> = state
            .servers_on(host.name.as_str())
            .map(|server| json!({"name": server.domain_name(), "uuid": server.id.to_string()}))
            .collect();
        if !servers.is_empty() || req.since(75) {
            shown["servers"] = servers.into();
        }
    }
    shown
}

fn usage(state: &State, req: &Req, host: &Host, shown: &mut Value) {
    let (mut vcpus, mut ram, mut disk, mut running, mut busy) = (0, 512, 0, 0u64, 0u64);
    for server in state.servers_on(host.name.as_str()) {
        vcpus += u64::from(server.flavor.vcpus);
        ram += server.flavor.ram_mb;
        disk += if server.volume_backed() {
            0
        } else {
            server.flavor.disk_gb
        };
        running += 1;
        busy += u64::from(server.task_state.is_some());
    }
    let info = json!({
        "arch": "x86_64", "model": "EPYC-Rome", "vendor": "AMD",
        "topology": {"cells": host.cells.len(), "sockets": host.sockets, "cores": host.cores, "threads": host.threads},
        "features": ["avx2", "sse4.2", "svm", "aes"],
    });
    let figures = json!({
        "vcpus": host.cpus(), "memory_mb": host.memory_mb, "local_gb": host.disk_gb,
        "vcpus_used": vcpus, "memory_mb_used": ram, "local_gb_used": disk,
        "free_ram_mb": host.memory_mb as i64 - ram as i64, "free_disk_gb": host.disk_gb as i64 - disk as i64,
        "current_workload": busy, "running_vms": running,
        "disk_available_least": host.disk_gb.saturating_sub(disk),
        "cpu_info": if req.since(28) { info } else { info.to_string().into() },
    });
    if let (Some(shown), Value::Object(figures)) = (shown.as_object_mut(), figures) {
        shown.extend(figures);
    }
}

fn uptime_text(state: &State, host: &Host) -> Option<String> {
    if host.power != Power::On {
        return None;
    }
    let seconds = state.now.since(host.booted_at).as_secs();
    let clock = state.now.iso();
    let clock = clock.get(11..19).unwrap_or("00:00:00");
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3_600 % 24, seconds / 60 % 60);
    Some(format!(
        " {clock} up {days} days, {hours:2}:{minutes:02},  0 users,  load average: 0.20, 0.12, 0.14\n"
    ))
}

fn find<'a>(state: &'a State, req: &Req, id: &str) -> Result<&'a Host, Refusal> {
    let missing = || Refusal::missing(format!("Hypervisor with ID '{id}' could not be found."));
    let found = if req.since(53) {
        let id = uuid(id).ok_or_else(|| Refusal::bad(format!("Invalid uuid {id}")))?;
        state.host_by_node(id)
    } else {
        let id: u64 = id.parse().map_err(|_| missing())?;
        state.hosts.values().find(|host| host.node_id == id)
    };
    found.filter(|host| host.service.is_some()).ok_or_else(missing)
}

pub(super) fn show(state: &mut State, req: &Req, id: &str) -> Outcome {
    admin(req, "os-hypervisors:show")?;
    let host = find(state, req, id)?;
    let with_servers = req.since(53) && req.flag("with_servers");
    Ok(Answer::ok(
        json!({"hypervisor": view(state, req, host, true, with_servers)}),
    ))
}

pub(super) fn uptime(state: &mut State, req: &Req, id: &str) -> Outcome {
    admin(req, "os-hypervisors:uptime")?;
    if req.since(88) {
        return Err(Refusal::missing("The resource could not be found."));
    }
    let host = find(state, req, id)?;
    let Some(text) = uptime_text(state, host) else {
        let text = format!("Compute service of {} is unavailable at this time.", host.name);
        return Err(Refusal::bad(text));
    };
    let mut shown = view(state, req, host, false, false);
    shown["uptime"] = text.into();
    Ok(Answer::ok(json!({"hypervisor": shown})))
}

pub(super) fn statistics(state: &mut State, req: &Req) -> Outcome {
    admin(req, "os-hypervisors:statistics")?;
    if req.since(88) {
        return Err(Refusal::missing("The resource could not be found."));
    }
    let hosts: Vec<&Host> = state
        .hosts
        .values()
        .filter(|host| host.service.is_some())
        .collect();
    let sum = |pick: &dyn Fn(&Host) -> u64| hosts.iter().map(|host| pick(host)).sum::<u64>();
    let used = |class: &'static str| {
        let providers = state.placement.providers.values();
        providers
            .map(|provider| provider.used.get(class).copied().unwrap_or(0))
            .sum::<u64>()
    };
    let (vcpus, ram, disk) = (
        sum(&|host| u64::from(host.cpus())),
        sum(&|host| host.memory_mb),
        sum(&|host| host.disk_gb),
    );
    Ok(Answer::ok(json!({"hypervisor_statistics": {
        "count": hosts.len(), "vcpus": vcpus, "memory_mb": ram, "local_gb": disk,
        "vcpus_used": used("VCPU"), "memory_mb_used": used("MEMORY_MB"), "local_gb_used": used("DISK_GB"),
        "free_ram_mb": ram.saturating_sub(used("MEMORY_MB")), "free_disk_gb": disk.saturating_sub(used("DISK_GB")),
        "current_workload": 0, "running_vms": state.servers.len(), "disk_available_least": disk,
    }})))
}
