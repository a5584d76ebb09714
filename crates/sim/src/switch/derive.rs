// SPDX-License-Identifier: Apache-2.0
//! A switch's database as it follows from the world: the rows that Nova, OVN and the image of the host put there, with what
//! clients wrote laid over them. Derived anew for everybody who looks; nothing here remembers anything.

use std::collections::BTreeSet;

use uuid::Uuid;

use super::facts::{
    self, BOND, Exit, INTEGRATION, LOCAL, MEMBERS, Nic, OVS_VERSION, PROVIDER, Peer, Traffic,
};
use super::schema::OPEN_VSWITCH;
use super::tables::Tables;
use super::value::{Atom, Datum};
use crate::world::{Host, HostName, Plug, Power, State, Switch, named_uuid};

/// The Southbound database, one address per member.
const SOUTHBOUND: &str = "ssl:10.245.0.11:6642,ssl:10.245.0.12:6642,ssl:10.245.0.13:6642";
const MANAGER: &str = "ptcp:6640:127.0.0.1";
const DATAPATHS: [&str; 2] = ["netdev", "system"];
const INTERFACES: [&str; 16] = [
    "afxdp",
    "afxdp-nonpmd",
    "bareudp",
    "erspan",
    "geneve",
    "gre",
    "gtpu",
    "internal",
    "ip6erspan",
    "ip6gre",
    "lisp",
    "patch",
    "stt",
    "system",
    "tap",
    "vxlan",
];
const TUNNELS: [&str; 9] = [
    "bareudp",
    "erspan",
    "geneve",
    "gre",
    "gtpu",
    "ip6erspan",
    "ip6gre",
    "stt",
    "vxlan",
];

/// The identity of a row that the world gives a host's switch.
pub(crate) fn row_id(host: &Host, table: &str, name: &str) -> Uuid {
    named_uuid(host.node_uuid, &format!("{table}/{name}"))
}

/// The switch's database as everybody sees it now.
pub(crate) fn view(state: &State, name: &HostName) -> Tables {
    let Some(host) = state.hosts.get(name) else {
        return Tables::new(&OPEN_VSWITCH);
    };
    let fresh = Switch::default();
    let switch = state.switches.get(name).unwrap_or(&fresh);
    let mut tables = base(state, host, switch);
    if !switch.writes.is_empty() {
        switch.writes.apply(&mut tables);
        react(&mut tables, switch);
        tell_load(&mut tables, || load(state, host));
        tables.tidy();
    }
    tables
}

/// Names of the bridges that have a management socket.
pub(crate) fn bridges(state: &State, name: &HostName) -> BTreeSet<String> {
    let untouched = state
        .switches
        .get(name)
        .is_none_or(|switch| switch.writes.is_empty());
    if untouched {
        return [INTEGRATION, PROVIDER].map(str::to_owned).into();
    }
    let tables = view(state, name);
    let names = tables.named("Bridge").values();
    names
        .filter_map(|row| tables.get("Bridge", row, "name")?.text().map(str::to_owned))
        .collect()
}

/// What ovs-vswitchd and ovn-controller do about what they find: ports get numbers, a new configuration is taken over,
/// guests are installed.
pub(crate) fn settle(state: &mut State, name: &HostName) {
    let Some(host) = state.hosts.get(name).filter(|host| host.power == Power::On) else {
        return;
    };
    let mut switch = state.switches.get(name).cloned().unwrap_or_default();
    let nics = facts::nics(state, host);
    if switch.works() {
        let wanted = facts::interfaces(state, host, &nics);
        for (bridge, interface) in &wanted {
            switch.plug(bridge, interface);
        }
        let mut names: BTreeSet<String> = wanted.into_iter().map(|(_, name)| name).collect();
        if !switch.writes.is_empty() {
            names.extend(settle_written(state, host, &mut switch));
        }
        switch.plugs.retain(|name, _| names.contains(name));
    }
    switch
        .installed
        .retain(|port, _| nics.iter().any(|nic| nic.port == *port));
    if state.ovn_connected(name) && switch.works() {
        for nic in nics.iter().filter(|nic| nic.bound) {
            switch.installed.entry(nic.port).or_insert(state.now);
        }
    }
    state.switches.insert(name.clone(), switch);
}

/// The same for what clients wrote; gives the interfaces that are there.
fn settle_written(state: &State, host: &Host, switch: &mut Switch) -> BTreeSet<String> {
    switch.writes.forget(&base(state, host, switch));
    let tables = {
        let mut tables = base(state, host, switch);
        switch.writes.apply(&mut tables);
        tables.tidy();
        tables
    };
    let mut there = BTreeSet::new();
    for found in plugged(&tables) {
        if !switch.plugs.contains_key(&found.name) && found.name != found.bridge && found.made(switch) {
            match trouble(&tables, &found) {
                Some(why) => drop(switch.plugs.insert(found.name.clone(), Plug::Failed(why))),
                None => drop(switch.plug(&found.bridge, &found.name)),
            }
        }
        there.insert(found.name);
    }
    let row = tables.named("Open_vSwitch").values().next();
    if let Some(next) = row.and_then(|row| tables.get("Open_vSwitch", row, "next_cfg")?.number()) {
        switch.cur_cfg = next;
    }
    there
}

/// An interface as it is found on a bridge.
struct Found {
    bridge: String,
    name: String,
    id: Uuid,
}

impl Found {
    fn made(&self, switch: &Switch) -> bool {
        switch.writes.made("Interface", &self.id)
    }
}

/// Every interface with the bridge it is on.
fn plugged(tables: &Tables) -> Vec<Found> {
    let mut all = Vec::new();
    let refs = |table: &str, row: &_, column: &str| -> Vec<Uuid> {
        tables
            .get(table, row, column)
            .into_iter()
            .flat_map(Datum::uuids)
            .collect()
    };
    for bridge in tables.named("Bridge").values() {
        let Some(owner) = tables.get("Bridge", bridge, "name").and_then(Datum::text) else {
            continue;
        };
        for port in refs("Bridge", bridge, "ports") {
            let Some(port) = tables.named("Port").get(&port) else {
                continue;
            };
            for id in refs("Port", port, "interfaces") {
                let row = tables.named("Interface").get(&id);
                let name = row.and_then(|row| tables.get("Interface", row, "name")?.text());
                all.extend(name.map(|name| Found {
                    bridge: owner.to_owned(),
                    name: name.to_owned(),
                    id,
                }));
            }
        }
    }
    all
}

/// Why the switch cannot open an interface that a client asked for.
fn trouble(tables: &Tables, found: &Found) -> Option<String> {
    let row = tables.named("Interface").get(&found.id)?;
    let kind = tables
        .get("Interface", row, "type")
        .and_then(Datum::text)
        .unwrap_or_default();
    let name = &found.name;
    match kind {
        "internal" | "tap" => None,
        "patch" => {
            let peer = tables
                .get("Interface", row, "options")
                .and_then(|options| options.get("peer"));
            let Some(peer) = peer else {
                return Some(format!("{name}: patch type requires valid 'peer' argument"));
            };
            let there = plugged(tables).iter().any(|other| other.name == peer);
            (!there).then(|| format!("No usable peer '{peer}' exists in 'system' datapath."))
        }
        kind if TUNNELS.contains(&kind) => {
            let options = tables.get("Interface", row, "options");
            let remote = options.and_then(|options| options.get("remote_ip"));
            remote
                .is_none()
                .then(|| format!("{name}: {kind} type requires valid 'remote_ip' argument"))
        }
        "" | "system" => Some(format!("could not open network device {name} (No such device)")),
        _ => Some(format!(
            "could not open network device {name} (Address family not supported by protocol)"
        )),
    }
}

/// Fills in what ovs-vswitchd says about the rows that clients made.
fn react(tables: &mut Tables, switch: &Switch) {
    let Some(number) = tables.schema.table("Interface") else {
        return;
    };
    for found in plugged(tables).into_iter().filter(|found| found.made(switch)) {
        let local = found.name == found.bridge;
        let plug = if local {
            Some(Plug::Number(LOCAL))
        } else {
            switch.plugs.get(&found.name).cloned()
        };
        let columns: Vec<(&str, Datum)> = match plug {
            None => continue,
            Some(Plug::Failed(why)) => vec![("ofport", Datum::one(-1)), ("error", Datum::one(why))],
            Some(Plug::Number(port)) => vec![
                ("ofport", Datum::one(i64::from(port))),
                ("admin_state", Datum::one("up")),
                ("link_state", Datum::one("up")),
                ("link_resets", Datum::one(0)),
                ("mac_in_use", Datum::one(mac(found.id, 0x0a))),
                ("mtu", Datum::one(1500)),
                ("ifindex", Datum::one(ifindex(found.id))),
                ("statistics", figures(Traffic::default())),
            ],
        };
        fill(tables, number, &found.id, columns);
    }
    if let Some(number) = tables.schema.table("Bridge") {
        let ids: Vec<Uuid> = tables.rows(number).keys().copied().collect();
        for id in ids.into_iter().filter(|id| switch.writes.made("Bridge", id)) {
            let columns = vec![
                ("datapath_id", Datum::one(datapath_id(id))),
                ("datapath_version", Datum::one("<unknown>")),
            ];
            fill(tables, number, &id, columns);
        }
    }
}

fn fill(tables: &mut Tables, table: usize, id: &Uuid, columns: Vec<(&str, Datum)>) {
    let schema = tables.schema;
    let (Some(facts), Some(row)) = (schema.tables.get(table), tables.edit(table, id)) else {
        return;
    };
    for (name, datum) in columns {
        if let Some(place) = facts.column(name).and_then(|at| row.get_mut(at)) {
            *place = datum;
        }
    }
}

/// Figures of the whole host are there only when a client asked for them.
fn tell_load(tables: &mut Tables, load: impl FnOnce() -> Datum) {
    let row = tables.named("Open_vSwitch").iter().next();
    let wanted = row.and_then(|(id, row)| {
        let config = tables.get("Open_vSwitch", row, "other_config")?;
        (config.get("enable-statistics") == Some("true")).then_some(*id)
    });
    if let (Some(id), Some(number)) = (wanted, tables.schema.table("Open_vSwitch")) {
        fill(tables, number, &id, vec![("statistics", load())]);
    }
}

/// A hardware address that belongs to a row.
pub(crate) fn mac(id: Uuid, first: u8) -> String {
    let rest = id.as_bytes().iter().take(5);
    rest.fold(format!("{first:02x}"), |text, byte| format!("{text}:{byte:02x}"))
}

/// The number under which OpenFlow knows a bridge.
pub(crate) fn datapath_id(bridge: Uuid) -> String {
    format!("{:016x}", super::flows::datapath_id(bridge))
}

fn ifindex(id: Uuid) -> i64 {
    let [.., a, b] = id.into_bytes();
    10 + i64::from(u16::from_be_bytes([a, b]))
}

fn figures(traffic: Traffic) -> Datum {
    let Traffic {
        rx_packets,
        rx_bytes,
        tx_packets,
        tx_bytes,
        dropped,
    } = traffic;
    let pairs = [
        ("collisions", 0),
        ("rx_bytes", rx_bytes),
        ("rx_crc_err", 0),
        ("rx_dropped", dropped),
        ("rx_errors", 0),
        ("rx_frame_err", 0),
        ("rx_missed_errors", 0),
        ("rx_over_err", 0),
        ("rx_packets", rx_packets),
        ("tx_bytes", tx_bytes),
        ("tx_dropped", 0),
        ("tx_errors", 0),
        ("tx_packets", tx_packets),
    ];
    Datum::map(pairs.map(|(name, figure)| (name, figure as i64)))
}

/// The rows that the world gives a switch.
fn base(state: &State, host: &Host, switch: &Switch) -> Tables {
    let nics = facts::nics(state, host);
    let exits = facts::exits(state, &nics);
    let mut rows = Base {
        tables: Tables::new(&OPEN_VSWITCH),
        host,
        switch,
        up: facts::figures_at(state.now).since(host.booted_at),
    };
    let mut inner = vec![rows.local(INTEGRATION)];
    let mut outer = vec![rows.local(PROVIDER), rows.bond(&nics)];
    for exit in &exits {
        let (near, far) = rows.patches(exit, &nics);
        inner.push(near);
        outer.push(far);
    }
    inner.extend(facts::peers(state, host).iter().map(|peer| rows.tunnel(peer)));
    inner.extend(nics.iter().map(|nic| rows.guest(nic)));
    inner.extend(
        switch
            .orphans
            .iter()
            .map(|orphan| rows.orphan(orphan.port, orphan.server)),
    );
    let bridges = [rows.bridge(INTEGRATION, inner), rows.bridge(PROVIDER, outer)];
    rows.root(bridges);
    rows.tables
}

struct Base<'a> {
    tables: Tables,
    host: &'a Host,
    switch: &'a Switch,
    up: std::time::Duration,
}

type Columns<'a> = Vec<(&'a str, Datum)>;

impl Base<'_> {
    fn id(&self, table: &str, name: &str) -> Uuid {
        row_id(self.host, table, name)
    }

    fn interface(&mut self, name: &str, columns: Columns<'_>) -> Uuid {
        let id = self.id("Interface", name);
        let own = [("name", Datum::one(name)), ("ifindex", Datum::one(ifindex(id)))];
        self.tables.make("Interface", id, own.into_iter().chain(columns))
    }

    fn port(&mut self, name: &str, interfaces: impl IntoIterator<Item = Uuid>, columns: Columns<'_>) -> Uuid {
        let id = self.id("Port", name);
        let own = [("name", Datum::one(name)), ("interfaces", Datum::set(interfaces))];
        self.tables.make("Port", id, own.into_iter().chain(columns))
    }

    /// What ovs-vswitchd writes about an interface that works, once it took it over.
    fn works(&self, name: &str, traffic: Traffic) -> Columns<'static> {
        let number = if name == INTEGRATION || name == PROVIDER {
            Some(LOCAL)
        } else {
            self.switch.number(name)
        };
        let Some(number) = number else {
            return Vec::new();
        };
        vec![
            ("ofport", Datum::one(i64::from(number))),
            ("admin_state", Datum::one("up")),
            ("link_state", Datum::one("up")),
            ("link_resets", Datum::one(1)),
            ("mtu", Datum::one(1500)),
            ("statistics", figures(traffic)),
        ]
    }

    fn local(&mut self, bridge: &str) -> Uuid {
        let mut columns = self.works(bridge, Traffic::default());
        let address = mac(self.id("Bridge", bridge), 0x0e);
        columns.push(("type", Datum::one("internal")));
        columns.push(("mac_in_use", Datum::one(address)));
        columns.push(("status", Datum::map([("driver_name", "openvswitch")])));
        let interface = self.interface(bridge, columns);
        self.port(bridge, [interface], Vec::new())
    }

    fn bond(&mut self, nics: &[Nic]) -> Uuid {
        let mut members = Vec::new();
        let mut active = String::new();
        for name in MEMBERS {
            let address = mac(self.id("Interface", name), 0x3c);
            let mut columns = self.works(name, facts::uplink(nics, self.host, self.up));
            columns.push(("mac_in_use", Datum::one(address.as_str())));
            columns.push(("link_speed", Datum::one(25_000_000_000)));
            columns.push(("duplex", Datum::one("full")));
            columns.push(("lacp_current", Datum::one(true)));
            let driver = [
                ("driver_name", "mlx5_core"),
                ("driver_version", "6.12.40"),
                ("firmware_version", "26.41.1000"),
            ];
            columns.push(("status", Datum::map(driver)));
            members.push(self.interface(name, columns));
            if active.is_empty() {
                active = address;
            }
        }
        let columns = vec![
            ("bond_mode", Datum::one("balance-tcp")),
            ("lacp", Datum::one("active")),
            ("bond_active_slave", Datum::one(active)),
        ];
        self.port(BOND, members, columns)
    }

    fn patches(&mut self, exit: &Exit, nics: &[Nic]) -> (Uuid, Uuid) {
        let through = nics.iter().filter(|nic| nic.network == exit.network);
        let sum = through.map(Nic::traffic).fold(Traffic::default(), Traffic::and);
        let mut end = |name: &str, peer: &str, traffic| {
            let mut columns = self.works(name, traffic);
            columns.push(("type", Datum::one("patch")));
            columns.push(("options", Datum::map([("peer", peer)])));
            columns.push(("mac_in_use", Datum::one(mac(self.id("Interface", name), 0x0a))));
            let interface = self.interface(name, columns);
            let owner = Datum::map([("ovn-localnet-port", exit.port.as_str())]);
            self.port(name, [interface], vec![("external_ids", owner)])
        };
        (
            end(&exit.inner, &exit.outer, sum.turned()),
            end(&exit.outer, &exit.inner, sum),
        )
    }

    fn tunnel(&mut self, peer: &Peer) -> Uuid {
        let name = peer.interface.as_str();
        let mut columns = self.works(name, Traffic::after(peer.seed, self.up));
        let options = [("csum", "true"), ("key", "flow"), ("remote_ip", peer.ip.as_str())];
        let status = [
            ("tunnel_egress_iface", PROVIDER),
            ("tunnel_egress_iface_carrier", "up"),
        ];
        columns.push(("type", Datum::one("geneve")));
        columns.push(("options", Datum::map(options)));
        columns.push(("status", Datum::map(status)));
        columns.push(("mac_in_use", Datum::one(mac(self.id("Interface", name), 0x0a))));
        let interface = self.interface(name, columns);
        let owner = format!("{}@{}", peer.chassis, peer.ip);
        let owner = Datum::map([("ovn-chassis-id", owner)]);
        self.port(name, [interface], vec![("external_ids", owner)])
    }

    fn guest(&mut self, nic: &Nic) -> Uuid {
        let mut columns = self.works(&nic.tap, nic.traffic());
        let mut ids = owner(nic.port, nic.server, &nic.mac);
        if let Some(since) = self.switch.installed.get(&nic.port) {
            ids.0.insert("ovn-installed".into(), Some("true".into()));
            ids.0
                .insert("ovn-installed-ts".into(), Some(since.0.to_string().into()));
        }
        columns.push(("external_ids", ids));
        columns.push(("mac_in_use", Datum::one(nic.mac.replacen("fa", "fe", 1))));
        columns.push(("link_speed", Datum::one(10_000_000_000)));
        columns.push(("duplex", Datum::one("full")));
        let driver = [
            ("driver_name", "tun"),
            ("driver_version", "1.6"),
            ("firmware_version", ""),
        ];
        columns.push(("status", Datum::map(driver)));
        let interface = self.interface(&nic.tap, columns);
        self.port(&nic.tap, [interface], Vec::new())
    }

    fn orphan(&mut self, port: Uuid, server: Uuid) -> Uuid {
        let name = facts::tap(port);
        let mac = crate::world::Port::mac_of(port);
        let mut columns = vec![("external_ids", owner(port, server, &mac))];
        if self.switch.works() {
            let why = format!("could not open network device {name} (No such device)");
            columns.push(("ofport", Datum::one(-1)));
            columns.push(("error", Datum::one(why)));
        }
        let interface = self.interface(&name, columns);
        self.port(&name, [interface], Vec::new())
    }

    fn bridge(&mut self, name: &str, ports: Vec<Uuid>) -> Uuid {
        let id = self.id("Bridge", name);
        let mut columns = vec![
            ("name", Datum::one(name)),
            ("ports", Datum::set(ports)),
            ("datapath_type", Datum::one("system")),
            ("datapath_version", Datum::one("<unknown>")),
            ("datapath_id", Datum::one(datapath_id(id))),
        ];
        if name == INTEGRATION {
            let began = self.host.booted_at.0.to_string();
            let ids = [
                ("ct-zone-br-int", "0".to_owned()),
                ("ovn-nb-cfg", "0".to_owned()),
                ("ovn-nb-cfg-ts", "0".to_owned()),
                ("ovn-startup-ts", began),
            ];
            columns.push(("fail_mode", Datum::one("secure")));
            columns.push(("external_ids", Datum::map(ids)));
            columns.push(("other_config", Datum::map([("disable-in-band", "true")])));
        }
        self.tables.make("Bridge", id, columns)
    }

    fn root(&mut self, bridges: [Uuid; 2]) {
        let manager = self.id("Manager", MANAGER);
        let status = [("bound_port", "6640"), ("n_connections", "1")];
        let columns = [
            ("target", Datum::one(MANAGER)),
            ("is_connected", Datum::one(true)),
            ("status", Datum::map(status)),
        ];
        self.tables.make("Manager", manager, columns);
        let host = self.host;
        let ids = [
            ("system-id", facts::chassis(host)),
            ("hostname", host.hypervisor_hostname.clone()),
            ("rundir", "/var/run/openvswitch".to_owned()),
            ("ovn-remote", SOUTHBOUND.to_owned()),
            ("ovn-remote-probe-interval", "30000".to_owned()),
            ("ovn-openflow-probe-interval", "60".to_owned()),
            ("ovn-ofctrl-wait-before-clear", "8000".to_owned()),
            ("ovn-encap-type", "geneve".to_owned()),
            ("ovn-encap-ip", host.ip.clone()),
            ("ovn-bridge-mappings", format!("physnet1:{PROVIDER}")),
            ("ovn-transport-zones", host.building_block.clone()),
        ];
        let columns = [
            ("bridges", Datum::set(bridges)),
            ("manager_options", Datum::set([manager])),
            ("external_ids", Datum::map(ids)),
            ("next_cfg", Datum::one(1)),
            ("cur_cfg", Datum::one(self.switch.cur_cfg)),
            ("ovs_version", Datum::one(OVS_VERSION)),
            ("db_version", Datum::one(OPEN_VSWITCH.version.as_str())),
            ("system_type", Datum::one("gardenlinux")),
            ("system_version", Datum::one("1877.5")),
            ("datapath_types", Datum::set(DATAPATHS)),
            ("iface_types", Datum::set(INTERFACES)),
            ("dpdk_version", Datum::one("none")),
        ];
        self.tables
            .make("Open_vSwitch", self.id("Open_vSwitch", ""), columns);
    }
}

/// What the host as a whole is doing, for those who asked the switch to tell.
fn load(state: &State, host: &Host) -> Datum {
    let memory = host.memory_mb * 1024;
    let used: u64 = host.running().map(|domain| domain.memory_kib).sum();
    let busy: u32 = host.running().map(|domain| domain.vcpus).sum();
    let load = f64::from(busy) / 4.0;
    let uptime = facts::figures_at(state.now).since(host.booted_at).as_millis();
    let pairs = [
        ("cpu", host.cpus().to_string()),
        ("load_average", format!("{load:.2},{load:.2},{load:.2}")),
        ("memory", format!("{memory},{used},{},0,0", memory / 50)),
        (
            "process_ovs-vswitchd",
            format!("412800,61440,{},0,{uptime},{uptime}", uptime / 200),
        ),
        (
            "process_ovsdb-server",
            format!("16384,8192,{},0,{uptime},{uptime}", uptime / 2000),
        ),
    ];
    Datum::map(pairs)
}

/// Whose port it is, as Nova writes it.
fn owner(port: Uuid, server: Uuid, mac: &str) -> Datum {
    Datum::map([
        ("attached-mac", Atom::from(mac)),
        ("iface-id", port.to_string().into()),
        ("iface-status", "active".into()),
        ("vm-uuid", server.to_string().into()),
    ])
}
