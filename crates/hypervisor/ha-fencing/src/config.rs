// SPDX-License-Identifier: Apache-2.0
//! How hosts are fenced, as an operator writes it below `fencing` in the configuration of the HA
//! service. One flat list of options serves every driver, so that a mistake can be told with its
//! line and key; which options a driver needs and refuses is checked here.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use cobaltcore_ha_engine::{FenceLevel, Grade, Identity};
use cobaltcore_kit::config::HumanDuration;
use serde::{Deserialize, Serialize};

use crate::network::Network;

/// Which devices fence, in which order.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// What a fence must prove before a guest is moved.
    pub required_grade: RequiredGrade,
    /// Levels in order; a level is one or more devices that must all succeed.
    pub levels: Vec<Vec<DeviceConfig>>,
    /// What differs for some hosts, by the name of the host.
    pub hosts: BTreeMap<String, HostConfig>,
    /// How long a level is tried before the next.
    pub timeout: HumanDuration,
    /// How many readings of Off verify a fence.
    pub verify_reads: u32,
    /// How far they are apart, at least.
    pub verify_gap: HumanDuration,
    /// First pause between attempts.
    pub retry_min: HumanDuration,
    /// Longest pause between attempts.
    pub retry_max: HumanDuration,
    /// Whether the Node of a fenced host is tainted, so that nothing starts there behind our back.
    pub taint: bool,
    /// Networks (`10.0.0.0/8`) that BMCs may be in; any when empty.
    pub allowed_networks: Vec<Network>,
}

impl Default for Config {
    fn default() -> Self {
        let seconds = |n| HumanDuration(Duration::from_secs(n));
        Self {
            required_grade: RequiredGrade::Power,
            levels: Vec::new(),
            hosts: BTreeMap::new(),
            timeout: seconds(60),
            verify_reads: 2,
            verify_gap: seconds(2),
            retry_min: seconds(30),
            retry_max: seconds(300),
            taint: true,
            allowed_networks: Vec::new(),
        }
    }
}

/// What a fence must prove, as it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum RequiredGrade {
    /// Off and kept off.
    Power,
    /// The watchdog has reset it by now.
    Selffence,
    /// It cannot write its disks.
    Storage,
    /// Nothing.
    None,
}

impl From<RequiredGrade> for Grade {
    fn from(grade: RequiredGrade) -> Self {
        match grade {
            RequiredGrade::Power => Self::Power,
            RequiredGrade::Selffence => Self::SelfFence,
            RequiredGrade::Storage => Self::Storage,
            RequiredGrade::None => Self::None,
        }
    }
}

/// The kinds of devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Driver {
    /// A BMC that speaks Redfish.
    Redfish,
    /// IronCore's metal-operator.
    MetalOperator,
    /// A program.
    Exec,
    /// A person.
    Manual,
    /// Ceph, which refuses the host's addresses.
    CephFence,
    /// The host's own watchdog, which resets it when it loses the service.
    WatchdogLease,
    /// Nothing: Nova is told that the host is down, and that is all.
    NovaForceDownOnly,
}

impl Driver {
    /// Its name as it is written.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Redfish => "redfish",
            Self::MetalOperator => "metal-operator",
            Self::Exec => "exec",
            Self::Manual => "manual",
            Self::CephFence => "ceph-fence",
            Self::WatchdogLease => "watchdog-lease",
            Self::NovaForceDownOnly => "nova-force-down-only",
        }
    }

    /// What it proves.
    pub const fn grade(self) -> Grade {
        match self {
            Self::Redfish | Self::MetalOperator | Self::Exec => Grade::Power,
            Self::Manual => Grade::Asserted,
            Self::CephFence => Grade::Storage,
            Self::WatchdogLease => Grade::SelfFence,
            Self::NovaForceDownOnly => Grade::None,
        }
    }

    /// Whether something it leaves behind keeps a host off, or away from its storage, until it is told to let go.
    pub(crate) const fn keeps_off(self) -> bool {
        matches!(self, Self::MetalOperator | Self::CephFence)
    }
}

/// How one signs in to a BMC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Auth {
    /// With every request.
    #[default]
    Basic,
    /// Once, for a token; for BMCs that refuse or slow down the other way.
    Session,
}

/// How metal-operator is used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub enum MetalMode {
    /// The operator is told to stand down and the BMC is used.
    #[default]
    #[serde(rename = "park+redfish")]
    ParkRedfish,
    /// The operator switches the power itself.
    #[serde(rename = "claim")]
    Claim,
    /// The same by `Server.spec.power`, for versions of the operator that still heed it.
    #[serde(rename = "legacy-spec-power")]
    SpecPower,
}

/// How a program is spoken to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Protocol {
    /// `key=value` lines on standard input, the answer in the exit code.
    #[default]
    FenceAgent,
    /// The action as the last argument, JSON on standard output.
    Json,
}

/// One device of a level. Which options apply depends on the driver.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct DeviceConfig {
    /// The kind of device.
    pub driver: Driver,
    /// redfish, metal-operator: where the BMC is, with `{host}`, `{bmc}`, `{internal_ip}` or
    /// `{label/KEY}` in it.
    #[serde(default)]
    pub url: String,
    /// redfish, metal-operator: the path of the system; found out if there is exactly one.
    #[serde(default)]
    pub system: String,
    /// A YAML file, or a mounted Secret with `username` and `password`.
    pub credentials_file: Option<PathBuf>,
    /// redfish, metal-operator: how to sign in.
    #[serde(default)]
    pub auth: Auth,
    /// redfish, metal-operator: whether certificates are checked.
    #[serde(default = "yes")]
    pub verify_tls: bool,
    /// redfish, metal-operator: authorities of the BMCs' certificates.
    pub ca_file: Option<PathBuf>,
    /// How long one request or one run of a program may take.
    #[serde(default = "usual_timeout")]
    pub timeout: HumanDuration,
    /// metal-operator: how it is used.
    #[serde(default)]
    pub mode: MetalMode,
    /// metal-operator: where the name of the Server is: `host`, or `label/KEY`.
    #[serde(default)]
    pub server_from: String,
    /// exec: the program.
    #[serde(default)]
    pub command: String,
    /// exec: its arguments, with `{host}`, `{bmc}`, `{internal_ip}` in them.
    #[serde(default)]
    pub args: Vec<String>,
    /// exec: how it is spoken to.
    #[serde(default)]
    pub protocol: Protocol,
    /// exec: further `key: value` lines for a fence agent, or environment for the other protocol.
    #[serde(default)]
    pub options: BTreeMap<String, String>,
    /// ceph-fence: the addresses by which the host reaches Ceph, with `{internal_ip}` or `{label/KEY}`
    /// in them: `{internal_ip}/32`.
    #[serde(default)]
    pub cidrs: Vec<String>,
    /// ceph-fence: the CSI driver that csi-addons asks.
    #[serde(default)]
    pub provisioner: String,
    /// ceph-fence: its Secret, as `namespace/name`.
    #[serde(default)]
    pub secret: String,
    /// ceph-fence: the id of the Ceph cluster, as the driver knows it.
    #[serde(default)]
    pub cluster_id: String,
    /// ceph-fence: the pools of that cluster that guests have their disks in; every pool of every cluster when empty.
    #[serde(default)]
    pub pools: Vec<String>,
    /// nova-force-down-only: somebody accepts that guests may run twice.
    #[serde(default)]
    pub accept_split_brain: bool,
    /// nova-force-down-only: how long everything must have been dead.
    pub dwell: Option<HumanDuration>,
}

const fn yes() -> bool {
    true
}

const fn usual_timeout() -> HumanDuration {
    HumanDuration(Duration::from_secs(5))
}

/// What differs for one host.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct HostConfig {
    /// The address of its BMC, for `{bmc}`.
    pub bmc: String,
    /// The path of its system.
    pub system: String,
    /// The name of its Server in metal-operator.
    pub server: String,
    /// Its own credentials.
    pub credentials_file: Option<PathBuf>,
    /// The machine behind a device that cannot identify itself, recorded by a person.
    pub machine: Machine,
    /// Its own levels; the common ones when empty.
    pub levels: Vec<Vec<DeviceConfig>>,
}

/// A machine, as a person recorded it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Machine {
    /// The DMI system UUID.
    pub system_uuid: Option<String>,
    /// The serial number.
    pub serial: Option<String>,
}

impl From<&Machine> for Identity {
    fn from(machine: &Machine) -> Self {
        Self {
            system_uuid: machine.system_uuid.clone(),
            serial: machine.serial.clone(),
        }
    }
}

impl Config {
    /// The levels as the engine weighs them. A level proves what its weakest device proves; one
    /// person among the devices does not make the others certain.
    pub fn fence_levels(&self) -> Vec<FenceLevel> {
        let level = |devices: &Vec<DeviceConfig>| FenceLevel {
            name: devices
                .iter()
                .map(|device| device.driver.as_str())
                .collect::<Vec<_>>()
                .join("+"),
            grade: proves(devices),
        };
        self.levels.iter().map(level).collect()
    }

    /// The devices of one host, by level.
    pub fn levels_of(&self, host: &str) -> &[Vec<DeviceConfig>] {
        match self.hosts.get(host) {
            Some(own) if !own.levels.is_empty() => &own.levels,
            _ => &self.levels,
        }
    }

    /// Whether every level that cuts a host off from Ceph cuts it off from this pool.
    pub fn cuts_off(&self, host: &str, pool: &str) -> bool {
        let cuts = |device: &&DeviceConfig| device.driver == Driver::CephFence;
        let reaches =
            |device: &DeviceConfig| device.pools.is_empty() || device.pools.iter().any(|own| own == pool);
        let levels = self.levels_of(host).iter();
        let mut cutting = levels.filter(|level| level.iter().any(|device| cuts(&device)));
        cutting.all(|level| level.iter().filter(cuts).any(reaches))
    }

    /// All devices that are written down, those of single hosts as well.
    pub(crate) fn devices(&self) -> impl Iterator<Item = &DeviceConfig> {
        let own = self.hosts.values().flat_map(|host| &host.levels);
        self.levels.iter().chain(own).flatten()
    }

    /// How long one look at all levels of a host may take: each may have to wait for its turn to say whose it is, and again to
    /// say whether that is on.
    pub fn longest_look(&self) -> Duration {
        let longest = self.devices().map(DeviceConfig::limit).max().unwrap_or_default();
        let own = self.hosts.values().map(|host| host.levels.len());
        let levels = own.chain([self.levels.len()]).max().unwrap_or_default();
        longest * 4 * u32::try_from(levels).unwrap_or(u32::MAX)
    }

    /// Whether a password goes to a BMC in the open, where others than this machine could read it.
    pub(crate) fn unencrypted(&self) -> bool {
        let here = |host: url::Host<&str>| match host {
            url::Host::Ipv4(address) => address.is_loopback(),
            url::Host::Ipv6(address) => address.is_loopback(),
            url::Host::Domain(_) => false,
        };
        let open = |text: &str| {
            let at = url::Url::parse(text);
            text.starts_with("http://") && !at.is_ok_and(|url| url.host().is_some_and(here))
        };
        let mut by_bmc = self.devices().filter(|device| device.by_bmc()).peekable();
        let own = by_bmc.peek().is_some() && self.hosts.values().any(|host| open(&host.bmc));
        own || by_bmc.any(|device| open(&device.url))
    }

    /// Everything that is wrong with it, each with its key below `fencing`.
    pub fn mistakes(&self) -> Vec<(String, String)> {
        let mut found = Vec::new();
        check_levels("levels", &self.levels, &mut found);
        let required = Grade::from(self.required_grade);
        let best = self.fence_levels().iter().map(|level| level.grade).max();
        if best.is_some_and(|best| best < required) {
            let message = "no level reaches it; add one that does, or ask for less";
            found.push(("required_grade".to_owned(), message.to_owned()));
        }
        for (host, config) in &self.hosts {
            if cobaltcore_api::names::HostName::new(host.as_str()).is_err() {
                found.push((
                    format!("hosts.{host}"),
                    "this is not the name of a host".to_owned(),
                ));
            }
            let place = format!("hosts.{host}.levels");
            check_levels(&place, &config.levels, &mut found);
            // The engine weighs levels by their number, alike for every host.
            for (n, own) in config.levels.iter().enumerate() {
                if self
                    .levels
                    .get(n)
                    .is_none_or(|common| proves(own) < proves(common))
                {
                    let message = "the common level of this number does not exist or proves more";
                    found.push((format!("{place}.{n}"), message.to_owned()));
                }
            }
            if config.bmc.contains('@') {
                let message = "credentials do not belong into an address; use credentials_file";
                found.push((format!("hosts.{host}.bmc"), message.to_owned()));
            }
        }
        if self.verify_gap.0 < Duration::from_secs(2) {
            let message = "must be at least 2s: some devices say Off before it is true";
            found.push(("verify_gap".to_owned(), message.to_owned()));
        }
        if self.verify_reads < 2 {
            let message = "must be at least 2: one reading may show the moment before";
            found.push(("verify_reads".to_owned(), message.to_owned()));
        } else if self.verify_gap.0.saturating_mul(self.verify_reads - 1) >= self.timeout.0 {
            let message = "so many readings, verify_gap apart, do not fit into timeout";
            found.push(("verify_reads".to_owned(), message.to_owned()));
        }
        found
    }
}

/// What the devices of a level prove together.
fn proves(devices: &[DeviceConfig]) -> Grade {
    let grades = devices.iter().map(|device| device.driver.grade());
    grades.min().unwrap_or(Grade::None)
}

fn check_levels(place: &str, levels: &[Vec<DeviceConfig>], found: &mut Vec<(String, String)>) {
    for (n, level) in levels.iter().enumerate() {
        if level.is_empty() {
            found.push((
                format!("{place}.{n}"),
                "a level needs at least one device".to_owned(),
            ));
        }
        for (m, device) in level.iter().enumerate() {
            let mistakes = device.mistakes().into_iter();
            found.extend(mistakes.map(|(key, message)| (format!("{place}.{n}.{m}.{key}"), message)));
        }
    }
}

impl DeviceConfig {
    /// A device of which nothing but the kind is said.
    pub fn new(driver: Driver) -> Self {
        Self {
            driver,
            url: String::new(),
            system: String::new(),
            credentials_file: None,
            auth: Auth::default(),
            verify_tls: true,
            ca_file: None,
            timeout: usual_timeout(),
            mode: MetalMode::default(),
            server_from: String::new(),
            command: String::new(),
            args: Vec::new(),
            protocol: Protocol::default(),
            options: BTreeMap::new(),
            cidrs: Vec::new(),
            provisioner: String::new(),
            secret: String::new(),
            cluster_id: String::new(),
            pools: Vec::new(),
            accept_split_brain: false,
            dwell: None,
        }
    }

    /// How long one request or run may take: never so long that a leader that lost its lease
    /// meanwhile would still be at it.
    pub(crate) fn limit(&self) -> Duration {
        self.timeout.0
    }

    /// Whether a BMC is spoken to.
    pub(crate) fn by_bmc(&self) -> bool {
        let parks = self.driver == Driver::MetalOperator && self.mode == MetalMode::ParkRedfish;
        self.driver == Driver::Redfish || parks
    }

    fn mistakes(&self) -> Vec<(&'static str, String)> {
        let mut found = Vec::new();
        let mut say = |key, message: &str| found.push((key, message.to_owned()));
        let bmc = self.by_bmc();
        if bmc && self.url.is_empty() {
            say(
                "url",
                "where is the BMC? for instance https://{host}.bmc.example or https://{bmc}",
            );
        }
        if bmc
            && !self.url.is_empty()
            && !self.url.starts_with("https://")
            && !self.url.starts_with("http://")
            && !self.url.starts_with("{bmc}")
        {
            say("url", "an address begins with https:// or is {bmc}");
        }
        if self.url.contains('@') {
            say(
                "url",
                "credentials do not belong into an address; use credentials_file",
            );
        }
        if self.driver == Driver::MetalOperator && self.server_from.is_empty() {
            say(
                "server_from",
                "how is the Server found? `host`, or label/KEY of the Node",
            );
        }
        if self.driver == Driver::Exec && self.command.is_empty() {
            say("command", "which program?");
        }
        if self.driver == Driver::Exec && self.args.iter().any(|arg| arg.contains("passw")) {
            say(
                "args",
                "secrets do not belong into arguments; use credentials_file",
            );
        }
        let secret = |key: &String| {
            let key = key.to_ascii_lowercase();
            key.contains("passw") || key.contains("secret") || key.contains("token")
        };
        if self.driver == Driver::Exec && self.options.keys().any(secret) {
            say(
                "options",
                "secrets do not belong into options, which are shown; use credentials_file",
            );
        }
        if self.driver == Driver::CephFence {
            if self.cidrs.is_empty() || self.cidrs.iter().any(|cidr| !cidr.contains('/')) {
                say(
                    "cidrs",
                    "by which addresses does the host reach Ceph? for instance [\"{internal_ip}/32\"]",
                );
            }
            if self.provisioner.is_empty() {
                say(
                    "provisioner",
                    "which CSI driver? for instance rook-ceph.rbd.csi.ceph.com",
                );
            }
            if self
                .secret
                .split_once('/')
                .is_none_or(|(space, name)| space.is_empty() || name.is_empty())
            {
                say("secret", "where is the driver's Secret? as namespace/name");
            }
            if self.cluster_id.is_empty() {
                say("cluster_id", "which Ceph cluster, as the driver knows it?");
            }
        }
        if self.driver == Driver::NovaForceDownOnly && !self.accept_split_brain {
            say(
                "accept_split_brain",
                "this driver switches nothing off, so a guest can end up running twice and destroy its disk; set it to true where that is accepted",
            );
        }
        if self.limit() > Duration::from_secs(10) || self.limit().is_zero() {
            say(
                "timeout",
                "between 1ms and 10s, so that a leader that loses its lease is done in time",
            );
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(text: &str) -> Config {
        cobaltcore_kit::config::Config::new()
            .text("test.yaml", text)
            .load()
            .unwrap()
    }

    #[test]
    fn levels_prove_what_their_weakest_device_proves() {
        let config = load(
            "levels:\n- [{driver: redfish, url: 'https://{bmc}'}, {driver: exec, command: fence_pdu}]\n- [{driver: manual}]\n- [{driver: manual}, {driver: nova-force-down-only, accept_split_brain: true}]\n",
        );
        let levels = config.fence_levels();
        let grades: Vec<Grade> = levels.iter().map(|level| level.grade).collect();
        assert_eq!(grades, [Grade::Power, Grade::Asserted, Grade::None]);
        assert_eq!(levels[0].name, "redfish+exec");
        assert_eq!(config.mistakes(), []);
    }

    #[test]
    fn mistakes_are_told_with_their_key() {
        let table = [
            ("required_grade: none\nlevels: [[]]", "levels.0"),
            ("levels: [[{driver: redfish}]]", "levels.0.0.url"),
            ("levels: [[{driver: redfish, url: 'ftp://x'}]]", "levels.0.0.url"),
            (
                "levels: [[{driver: redfish, url: 'https://root:x@{bmc}'}]]",
                "levels.0.0.url",
            ),
            (
                "levels: [[{driver: metal-operator, mode: claim}]]",
                "levels.0.0.server_from",
            ),
            ("levels: [[{driver: exec}]]", "levels.0.0.command"),
            (
                "levels: [[{driver: exec, command: x, args: [--password=x]}]]",
                "levels.0.0.args",
            ),
            (
                "levels: [[{driver: exec, command: x, options: {passwd: x}}]]",
                "levels.0.0.options",
            ),
            ("levels: [[{driver: manual, timeout: 1m}]]", "levels.0.0.timeout"),
            (
                "required_grade: none\nlevels: [[{driver: nova-force-down-only}]]",
                "levels.0.0.accept_split_brain",
            ),
            (
                "levels: [[{driver: nova-force-down-only, accept_split_brain: true}]]",
                "required_grade",
            ),
            ("hosts: {Bad_Name: {bmc: x}}", "hosts.Bad_Name"),
            ("verify_gap: 1s", "verify_gap"),
            ("verify_reads: 1", "verify_reads"),
            ("verify_reads: 31", "verify_reads"),
            (
                "required_grade: none\nlevels: [[{driver: manual}]]\nhosts: {n1: {levels: [[{driver: nova-force-down-only, accept_split_brain: true}]]}}",
                "hosts.n1.levels.0",
            ),
        ];
        for (text, key) in table {
            let found = load(text).mistakes();
            assert_eq!(
                found.iter().map(|(key, _)| key.as_str()).collect::<Vec<_>>(),
                [key],
                "{text}"
            );
        }
    }

    #[test]
    fn a_storage_fence_reaches_its_own_pools() {
        let cut = |pools: &str| {
            format!(
                "{{driver: ceph-fence, cidrs: ['{{internal_ip}}/32'], provisioner: p, secret: a/b, cluster_id: c, pools: [{pools}]}}"
            )
        };
        let text = format!(
            "required_grade: storage\nlevels: [[{}], [{{driver: manual}}]]\nhosts: {{n2: {{levels: [[{}, {}]]}}, n3: {{levels: [[{}]]}}}}\n",
            cut("vms, volumes"),
            cut("fast"),
            cut("slow"),
            cut("")
        );
        let config = load(&text);
        for (host, pool, wanted) in [
            ("n1", "vms", true),
            ("n1", "volumes", true),
            ("n1", "fast", false),
            ("n2", "fast", true),
            ("n2", "slow", true),
            ("n2", "vms", false),
            ("n3", "anything", true),
        ] {
            assert_eq!(config.cuts_off(host, pool), wanted, "{host} {pool}");
        }
    }

    #[test]
    fn unknown_keys_are_mistakes() {
        let wrong = cobaltcore_kit::config::Config::new()
            .text(
                "test.yaml",
                "levels:\n- - driver: redfish\n    url: https://x\n    pasword: y\n",
            )
            .load::<Config>()
            .unwrap_err()
            .to_string();
        assert!(
            wrong.contains("test.yaml:4") && wrong.contains("pasword"),
            "{wrong}"
        );
    }
}
