// SPDX-License-Identifier: Apache-2.0
//! What a host's ovs-vswitchd answers about its datapath, its bonds and its tables of addresses.

use std::collections::BTreeMap;

use uuid::Uuid;

use super::{Answer, Call, Command, command, says};
use crate::switch::derive::{mac, row_id, view};
use crate::switch::facts::{self, PROVIDER, Traffic};
use crate::switch::tables::Tables;
use crate::switch::value::Datum;

pub(super) const COMMANDS: &[Command] = &[
    command("bfd/show", "[interface]", (0, 1), |_| Ok(String::new())),
    says("bond/list", "", (0, 0), bond_list),
    command("bond/show", "[port]", (0, 1), bond_show),
    command("dpctl/dump-dps", "", (0, 0), |_| Ok(format!("{DATAPATH}\n"))),
    command("dpctl/show", "[-s] [dp...]", (0, 3), dpctl_show),
    command("dpif-netdev/pmd-stats-show", "[-pmd core] [dp]", (0, 3), |_| {
        Ok(String::new())
    }),
    says("dpif/dump-dps", "", (0, 0), dump_dps),
    says("dpif/show", "", (0, 0), dpif_show),
    command("fdb/show", "bridge", (1, 1), fdb_show),
    command("fdb/stats-show", "bridge", (1, 1), fdb_stats),
    command("lacp/show", "[port]", (0, 1), lacp_show),
    says("memory/show", "", (0, 0), memory),
    says("ofproto/list", "", (0, 0), ofproto_list),
    says("ofproto/list-tunnels", "", (0, 0), list_tunnels),
    says("upcall/show", "", (0, 0), upcall_show),
];

const DATAPATH: &str = "system@ovs-system";

/// An interface on a bridge.
pub(crate) struct Interface {
    pub(crate) name: String,
    pub(crate) number: u32,
    pub(crate) kind: String,
    pub(crate) mac: String,
    /// Bits per second, where it has a speed.
    pub(crate) speed: i64,
    pub(crate) options: Vec<(String, String)>,
}

struct Bond {
    name: String,
    mode: String,
    lacp: String,
    members: Vec<(String, bool)>,
}

/// Every bridge with the interfaces that have a number, in the order of their names.
pub(crate) fn bridges(tables: &Tables) -> BTreeMap<String, BTreeMap<String, Interface>> {
    let text = |table: &str, row: &_, column: &str| {
        let datum = tables.get(table, row, column);
        datum.and_then(Datum::text).unwrap_or_default().to_owned()
    };
    let mut all = BTreeMap::new();
    for bridge in tables.named("Bridge").values() {
        let mut interfaces = BTreeMap::new();
        let ports = tables
            .get("Bridge", bridge, "ports")
            .into_iter()
            .flat_map(Datum::uuids);
        for id in ports.flat_map(|id| members(tables, id)) {
            let Some(row) = tables.named("Interface").get(&id) else {
                continue;
            };
            let number = tables.get("Interface", row, "ofport").and_then(Datum::number);
            let Some(number) = number.and_then(|number| u32::try_from(number).ok()) else {
                continue;
            };
            let name = text("Interface", row, "name");
            let options = tables
                .get("Interface", row, "options")
                .cloned()
                .unwrap_or_default();
            let options = options.0.into_iter();
            let interface = Interface {
                name: name.clone(),
                number,
                kind: text("Interface", row, "type"),
                mac: text("Interface", row, "mac_in_use"),
                speed: tables
                    .get("Interface", row, "link_speed")
                    .and_then(Datum::number)
                    .unwrap_or_default(),
                options: options
                    .map(|(key, value)| {
                        (
                            key.to_string(),
                            value.map(|value| value.to_string()).unwrap_or_default(),
                        )
                    })
                    .collect(),
            };
            interfaces.insert(name, interface);
        }
        all.insert(text("Bridge", bridge, "name"), interfaces);
    }
    all
}

fn members(tables: &Tables, port: Uuid) -> Vec<Uuid> {
    let row = tables.named("Port").get(&port);
    let members = row.and_then(|row| tables.get("Port", row, "interfaces"));
    members.into_iter().flat_map(Datum::uuids).collect()
}

fn bonds(call: &Call<'_>) -> Vec<Bond> {
    let tables = view(call.state, &call.host.name);
    let mut bonds = Vec::new();
    for (id, port) in tables.named("Port") {
        let rows: Vec<_> = members(&tables, *id)
            .iter()
            .filter_map(|id| tables.named("Interface").get(id))
            .cloned()
            .collect();
        if rows.len() < 2 {
            continue;
        }
        let text = |column: &str| {
            let datum = tables.get("Port", port, column);
            datum.and_then(Datum::text).unwrap_or_default().to_owned()
        };
        let mut members: Vec<(String, bool)> = rows
            .iter()
            .map(|row| {
                let get = |column| tables.get("Interface", row, column).and_then(Datum::text);
                let up = get("link_state") == Some("up") && get("admin_state") == Some("up");
                (get("name").unwrap_or_default().to_owned(), up)
            })
            .collect();
        members.sort();
        bonds.push(Bond {
            name: text("name"),
            mode: Some(text("bond_mode"))
                .filter(|mode| !mode.is_empty())
                .unwrap_or_else(|| "active-backup".into()),
            lacp: Some(text("lacp"))
                .filter(|lacp| !lacp.is_empty())
                .unwrap_or_else(|| "off".into()),
            members,
        });
    }
    bonds.sort_by(|one, two| one.name.cmp(&two.name));
    bonds
}

/// The bonds that were asked for.
fn asked_bonds(call: &Call<'_>, missing: &str) -> Result<Vec<Bond>, String> {
    let mut all = bonds(call);
    if let Some(name) = call.word(0) {
        all.retain(|bond| bond.name == name);
        if all.is_empty() {
            return Err(missing.to_owned());
        }
    }
    Ok(all)
}

fn bond_list(call: &Call<'_>) -> String {
    let mut text = "bond\ttype\trecircID\tmembers\n".to_owned();
    for (index, bond) in bonds(call).iter().enumerate() {
        let members: Vec<&str> = bond.members.iter().map(|(name, _)| name.as_str()).collect();
        text.push_str(&format!(
            "{}\t{}\t{}\t{}\n",
            bond.name,
            bond.mode,
            index + 1,
            members.join(", ")
        ));
    }
    text
}

fn bond_show(call: &Call<'_>) -> Answer {
    let mut text = String::new();
    for (index, bond) in asked_bonds(call, "no such bond")?.iter().enumerate() {
        let hashes = bond.mode == "balance-tcp";
        let active = bond.members.iter().find(|(_, up)| *up).map(|(name, _)| name);
        let address = active.map_or_else(
            || "00:00:00:00:00:00(none)".to_owned(),
            |name| format!("{}({name})", mac(row_id(call.host, "Interface", name), 0x3c)),
        );
        text.push_str(&format!("---- {} ----\nbond_mode: {}\n", bond.name, bond.mode));
        text.push_str(&format!(
            "bond may use recirculation: {}, Recirc-ID : {}\nbond-hash-basis: 0\nlb_output action: disabled, bond-id: -1\nupdelay: 0 ms\ndowndelay: 0 ms\n",
            if hashes { "yes" } else { "no" },
            if hashes { (index + 1).to_string() } else { "-1".to_owned() },
        ));
        if bond.mode != "active-backup" {
            text.push_str(&format!(
                "next rebalance: {} ms\n",
                10_000 - call.state.now.0.rem_euclid(10_000)
            ));
        }
        let status = if bond.lacp == "off" { "off" } else { "negotiated" };
        text.push_str(&format!(
            "lacp_status: {status}\nlacp_fallback_ab: false\nactive-backup primary: <none>\nactive member mac: {address}\n\n"
        ));
        for (name, up) in &bond.members {
            text.push_str(&format!(
                "member {name}: {}\n",
                if *up { "enabled" } else { "disabled" }
            ));
            if active == Some(name) {
                text.push_str("  active member\n");
            }
            text.push_str(&format!("  may_enable: {up}\n\n"));
        }
    }
    Ok(text)
}

fn lacp_show(call: &Call<'_>) -> Answer {
    let own = mac(row_id(call.host, "Bridge", PROVIDER), 0x0e);
    let other = mac(row_id(call.host, "Partner", PROVIDER), 0x44);
    let mut text = String::new();
    for bond in asked_bonds(call, "no such lacp object")?
        .iter()
        .filter(|bond| bond.lacp != "off")
    {
        text.push_str(&format!(
            "---- {} ----\n  status: {} negotiated\n  sys_id: {own}\n  sys_priority: 65534\n  aggregation key: 1\n  lacp_time: slow\n",
            bond.name, bond.lacp
        ));
        for (index, (name, up)) in bond.members.iter().enumerate() {
            let port = index + 1;
            let state = if *up { "current" } else { "defaulted" };
            text.push_str(&format!(
                "\nmember: {name}: {state} attached\n  port_id: {port}\n  port_priority: 65535\n  may_enable: {up}\n"
            ));
            for (end, id, sys) in [("actor", port, &own), ("partner", port + 16, &other)] {
                text.push_str(&format!(
                    "\n  {end} sys_id: {sys}\n  {end} sys_priority: {}\n  {end} port_id: {id}\n  {end} port_priority: {}\n  {end} key: 1\n  {end} state: activity aggregation synchronized collecting distributing\n",
                    if end == "actor" { 65_534 } else { 32_768 },
                    if end == "actor" { 65_535 } else { 32_768 },
                ));
            }
        }
    }
    Ok(text)
}

/// What the datapath looked up since it came up: every packet that came in.
fn lookups(call: &Call<'_>) -> (u64, u64) {
    let nics = facts::nics(call.state, call.host);
    let up = facts::figures_at(call.state.now).since(call.host.booted_at);
    let guests = nics
        .iter()
        .map(facts::Nic::traffic)
        .fold(Traffic::default(), Traffic::and);
    let packets = guests.rx_packets + facts::uplink(&nics, call.host, up).rx_packets * 2;
    let missed = packets / 5_000;
    (packets - missed, missed)
}

fn datapath_flows(call: &Call<'_>) -> u64 {
    8 + facts::nics(call.state, call.host).len() as u64 * 6
}

fn shape(interface: &Interface) -> String {
    let kind = if interface.kind.is_empty() {
        "system"
    } else {
        &interface.kind
    };
    if interface.options.is_empty() {
        return format!("({kind})");
    }
    let options: Vec<String> = interface
        .options
        .iter()
        .map(|(key, value)| format!("{key}={value}"))
        .collect();
    format!("({kind}: {})", options.join(", "))
}

/// Numbers of ports in the datapath: patch ports are none, and all tunnels of a kind share one.
fn datapath_ports(
    all: &BTreeMap<String, BTreeMap<String, Interface>>,
) -> (BTreeMap<String, u32>, Vec<String>) {
    let mut numbers = BTreeMap::new();
    let mut lines = vec!["  port 0: ovs-system (internal)\n".to_owned()];
    let mut tunnel = None;
    let mut next = 0;
    for interface in all.values().flat_map(BTreeMap::values) {
        let (name, kind) = (&interface.name, interface.kind.as_str());
        if kind == "patch" {
            continue;
        }
        if kind == "geneve" {
            let shared = *tunnel.get_or_insert_with(|| {
                next += 1;
                lines.push(format!(
                    "  port {next}: genev_sys_6081 (geneve: packet_type=ptap)\n"
                ));
                next
            });
            numbers.insert(name.clone(), shared);
            continue;
        }
        next += 1;
        numbers.insert(name.clone(), next);
        let kind = if kind == "internal" { " (internal)" } else { "" };
        lines.push(format!("  port {next}: {name}{kind}\n"));
    }
    (numbers, lines)
}

fn dpif_show(call: &Call<'_>) -> String {
    let (hit, missed) = lookups(call);
    let all = bridges(&view(call.state, &call.host.name));
    let (numbers, _) = datapath_ports(&all);
    let mut text = format!("{DATAPATH}: hit:{hit} missed:{missed}\n");
    for (bridge, interfaces) in &all {
        text.push_str(&format!("  {bridge}:\n"));
        for interface in interfaces.values() {
            let inner = numbers
                .get(&interface.name)
                .map_or_else(|| "none".to_owned(), u32::to_string);
            text.push_str(&format!(
                "    {} {}/{inner}: {}\n",
                interface.name,
                interface.number,
                shape(interface)
            ));
        }
    }
    text
}

fn dpctl_show(call: &Call<'_>) -> Answer {
    let unknown = call
        .words
        .iter()
        .find(|word| !word.starts_with('-') && *word != DATAPATH && *word != "ovs-system");
    if let Some(name) = unknown {
        return Err(format!(
            "ovs-vswitchd: opening datapath {name} failed (No such device)"
        ));
    }
    let (hit, missed) = lookups(call);
    let all = bridges(&view(call.state, &call.host.name));
    let (_, lines) = datapath_ports(&all);
    let packets = (hit + missed).max(1);
    let masks = hit * 5 / 2;
    Ok(format!(
        "{DATAPATH}:\n  lookups: hit:{hit} missed:{missed} lost:0\n  flows: {}\n  masks: hit:{masks} total:9 hit/pkt:{:.2}\n  cache: hit:{} hit-rate:{:.2}%\n  caches:\n    masks-cache: size:256\n{}",
        datapath_flows(call),
        masks as f64 / packets as f64,
        hit * 9 / 10,
        (hit * 9 / 10) as f64 * 100.0 / packets as f64,
        lines.concat()
    ))
}

fn dump_dps(call: &Call<'_>) -> String {
    let all = bridges(&view(call.state, &call.host.name));
    all.keys().map(|bridge| format!("system@{bridge}\n")).collect()
}

fn ofproto_list(call: &Call<'_>) -> String {
    let all = bridges(&view(call.state, &call.host.name));
    all.keys().map(|bridge| format!("{bridge}\n")).collect()
}

fn upcall_show(call: &Call<'_>) -> String {
    let flows = datapath_flows(call);
    format!(
        "{DATAPATH}:\n  flows         : (current {flows}) (avg {}) (max {}) (limit 200000)\n  dump duration : 1ms\n  ufid enabled : true\n\n  23: (keys {})\n  24: (keys {})\n\n",
        flows - flows / 10,
        flows * 3,
        flows - flows / 2,
        flows / 2
    )
}

/// Addresses that a bridge has learned: the provider bridge sees every guest behind its patch port.
fn learned(call: &Call<'_>) -> Result<Vec<(u32, u32, String, u64)>, String> {
    let wanted = call.word(0).unwrap_or_default();
    let all = bridges(&view(call.state, &call.host.name));
    let Some(interfaces) = all.get(wanted) else {
        return Err("no such bridge".to_owned());
    };
    if wanted != PROVIDER {
        // OVN forwards by itself; nothing is learned on the integration bridge.
        return Ok(Vec::new());
    }
    let nics = facts::nics(call.state, call.host);
    let exits = facts::exits(call.state, &nics);
    let mut rows = Vec::new();
    for nic in &nics {
        let exit = exits.iter().find(|exit| exit.network == nic.network);
        let found = exit.and_then(|exit| Some((exit, interfaces.get(&exit.outer)?)));
        if let Some((exit, interface)) = found {
            let [.., last] = nic.port.into_bytes();
            let age = (call.uptime() + u64::from(last)) % 20;
            rows.push((interface.number, exit.vlan, nic.mac.clone(), age));
        }
    }
    Ok(rows)
}

fn fdb_show(call: &Call<'_>) -> Answer {
    let mut text = " port  VLAN  MAC                Age\n".to_owned();
    for (port, vlan, mac, age) in learned(call)? {
        text.push_str(&format!(" {port:>4}  {vlan:>4}  {mac}  {age:>3}\n"));
    }
    Ok(text)
}

fn fdb_stats(call: &Call<'_>) -> Answer {
    let count = learned(call)?.len();
    Ok(format!(
        "Statistics for bridge \"{}\":\n  Current/maximum MAC entries in the table: {count}/8192\n  Current static MAC entries in the table : 0\n  Total number of learned MAC entries     : {}\n  Total number of expired MAC entries     : {}\n  Total number of evicted MAC entries     : 0\n  Total number of port moved MAC entries  : 0\n",
        call.word(0).unwrap_or_default(),
        count * 3,
        count * 2,
    ))
}

fn list_tunnels(call: &Call<'_>) -> String {
    let own = &call.host.ip;
    let all = bridges(&view(call.state, &call.host.name));
    let tunnels = all
        .values()
        .flat_map(BTreeMap::values)
        .filter(|interface| interface.kind == "geneve");
    let line = |interface: &Interface| {
        let remote = interface.options.iter().find(|(key, _)| key == "remote_ip");
        let remote = remote.map_or("flow", |(_, ip)| ip.as_str());
        format!(
            "port {}: {} (geneve: {own}->{remote}, key=flow, legacy_l2, dp port=3, ttl=64, csum=true)\n",
            interface.number, interface.name
        )
    };
    tunnels.map(line).collect()
}

fn memory(call: &Call<'_>) -> String {
    let tables = view(call.state, &call.host.name);
    let all = bridges(&tables);
    let ports: usize = all.values().map(BTreeMap::len).sum();
    let cells: usize = (0..tables.schema.tables.len())
        .map(|number| tables.rows(number).values().map(|row| row.len()).sum::<usize>())
        .sum();
    let rules: usize = all
        .keys()
        .map(|bridge| crate::switch::flows::flows(call.state, call.host, call.switch, bridge).len())
        .sum();
    format!(
        "handlers:{} idl-cells-Open_vSwitch:{cells} ports:{ports} revalidators:{} rules:{rules}\n",
        call.host.cpus(),
        call.host.cpus() / 4 + 1,
    )
}
