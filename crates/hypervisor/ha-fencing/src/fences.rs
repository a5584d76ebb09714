// SPDX-License-Identifier: Apache-2.0
//! Finds the devices of a host. It keeps what devices may share (connections, tokens, the number
//! of programs that run at once) and notices when two hosts lead to one device or one machine:
//! then neither is fenced, because nobody knows which one would go off.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use cobaltcore_api::names::HostName;
use cobaltcore_ha_engine::Identity;
use parking_lot::Mutex;
use tokio::sync::Semaphore;

use crate::ceph::CephFence;
use crate::claims::{Claims, What};
use crate::config::{Config, DeviceConfig, Driver, HostConfig, MetalMode};
use crate::credentials::Source;
use crate::device::{Device, Purpose, Target};
use crate::error::{Error, Result};
use crate::exec::Exec;
use crate::level::Level;
use crate::manual::Manual;
use crate::metal::{Metal, Way};
use crate::network::{Network, is_address, names_address};
use crate::nova_only::{DWELL, NovaOnly};
use crate::redfish::{Redfish, Wire};
use crate::vigil::Vigil;
use crate::watchdog::WatchdogLease;

/// Programs that run at once for incidents, and as many for checks.
const PROGRAMS: usize = 4;

/// Where programs wait for their turn: those that check stand in a queue of their own, or a dead host would wait for BMCs of
/// others that hang.
struct Queues {
    incidents: Arc<Semaphore>,
    checks: Arc<Semaphore>,
}

impl Queues {
    fn new() -> Self {
        let queue = || Arc::new(Semaphore::new(PROGRAMS));
        Self {
            incidents: queue(),
            checks: queue(),
        }
    }

    fn of(&self, purpose: Purpose) -> Arc<Semaphore> {
        Arc::clone(match purpose {
            Purpose::Incident => &self.incidents,
            Purpose::Check => &self.checks,
        })
    }
}

/// The fencing devices of a fleet.
pub struct Fences {
    config: Config,
    /// One per way of connecting: certificates and manners differ.
    wires: Mutex<Vec<(DeviceConfig, Arc<Wire>)>>,
    networks: Arc<[Network]>,
    kube: Option<kube::Client>,
    programs: Queues,
    vigil: Vigil,
    claims: Claims,
}

impl std::fmt::Debug for Fences {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Fences")
            .field("config", &self.config)
            .finish_non_exhaustive()
    }
}

impl Fences {
    /// Checks the configuration and prepares what devices share. `kube` is needed for
    /// metal-operator.
    pub fn new(config: Config, kube: Option<kube::Client>) -> Result<Self> {
        if let Some((key, message)) = config.mistakes().into_iter().next() {
            return Err(Error::Config { key, message });
        }
        let in_cluster =
            |device: &&DeviceConfig| matches!(device.driver, Driver::MetalOperator | Driver::CephFence);
        if let Some(device) = config.devices().find(in_cluster).filter(|_| kube.is_none()) {
            return Err(Error::Config {
                key: "levels".to_owned(),
                message: format!(
                    "{} needs the Kubernetes API; set kubernetes.enabled",
                    device.driver.as_str()
                ),
            });
        }
        let fences = Self {
            networks: config.allowed_networks.clone().into(),
            wires: Mutex::default(),
            config,
            kube,
            programs: Queues::new(),
            vigil: Vigil::default(),
            claims: Claims::default(),
        };
        fences.warn_of_open_ways();
        // A file that cannot be used is told now, not in an emergency.
        for device in fences.config.devices() {
            fences.wire(device)?;
        }
        fences.claim_configured();
        Ok(fences)
    }

    /// What is less safe than it could be is told at every start: devices that may be anywhere, or need not prove who they
    /// are, and hosts that are given up too soon.
    fn warn_of_open_ways(&self) {
        let led = |device: &&DeviceConfig| device.driver == Driver::Exec || device.by_bmc();
        if self.networks.is_empty() && self.config.devices().any(|device| led(&device)) {
            tracing::warn!(
                "fencing.allowed_networks is empty: passwords of fencing devices are sent wherever a name or a label leads; \
                 name the networks that the devices are in"
            );
        }
        if self
            .config
            .devices()
            .any(|device| device.by_bmc() && !device.verify_tls)
        {
            tracing::warn!(
                "fencing: verify_tls is false: whoever answers in the place of a BMC is told its password; \
                 give the BMCs' authorities as ca_file"
            );
        }
        if self
            .config
            .devices()
            .any(|device| device.dwell.is_some_and(|dwell| dwell.0 < DWELL))
        {
            tracing::warn!(
                "fencing: dwell is less than 5m: a host that is only cut off for a while is taken for dead, and its guests run twice"
            );
        }
        if self.config.unencrypted() {
            tracing::warn!(
                "fencing: a BMC is spoken to over http: its password can be read on the way; use https"
            );
        }
    }

    /// What the configuration alone says of hosts is known before any of them is in trouble.
    fn claim_configured(&self) {
        let hosts = self.config.hosts.keys();
        for host in hosts.filter_map(|host| HostName::new(host.as_str()).ok()) {
            for level in 0..self.config.levels.len() {
                if let Err(error @ Error::Shared { .. }) = self.level(&Target::new(host.clone()), level) {
                    tracing::error!(%error, "two hosts share a fencing device");
                }
            }
        }
    }

    /// The configuration.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The devices of a level for a host.
    pub fn level(&self, target: &Target, level: usize) -> Result<Level> {
        let missing = || Error::NoLevel {
            host: target.host.clone(),
            level,
        };
        let configs = self
            .config
            .levels_of(target.host.as_str())
            .get(level)
            .ok_or_else(missing)?;
        let mut devices = Vec::with_capacity(configs.len());
        for config in configs {
            devices.push(self.device(target, config)?);
        }
        let switched = devices.iter().flat_map(|device| device.switches()).collect();
        self.claims.note(&target.host, level, What::Devices, switched)?;
        Ok(Level::new(target.host.clone(), devices))
    }

    /// Whom the devices of a level belong to. A machine that another host's device claimed to be
    /// is no identity at all.
    pub async fn identify(&self, target: &Target, level: usize) -> Result<Identity> {
        let identity = self.level(target, level)?.identify().await?;
        let trusted = self
            .config
            .levels_of(target.host.as_str())
            .get(level)
            .is_some_and(|devices| {
                devices.iter().any(|device| {
                    !matches!(
                        device.driver,
                        Driver::Manual
                            | Driver::NovaForceDownOnly
                            | Driver::WatchdogLease
                            | Driver::CephFence
                    )
                })
            });
        let Identity { system_uuid, serial } = identity.known();
        let machine = match (system_uuid, serial) {
            (Some(uuid), _) => Some(format!("machine {}", uuid.to_ascii_lowercase())),
            // Two makers may give the same number.
            (None, Some(serial)) => Some(format!("machine with the serial number {serial}")),
            (None, None) => None,
        };
        let machine = machine.into_iter().filter(|_| trusted).collect();
        self.claims.note(&target.host, level, What::Machine, machine)?;
        Ok(identity)
    }

    /// Forgets the devices of hosts that left for good; they may become another's. Whoever has an entry of its own in the
    /// configuration is expected back.
    pub fn retain(&self, known: impl Fn(&HostName) -> bool) {
        self.claims
            .retain(|host| known(host) || self.config.hosts.contains_key(host.as_str()));
    }

    /// The connection of a device; devices that connect alike share one.
    fn wire(&self, config: &DeviceConfig) -> Result<Arc<Wire>> {
        let alike = |other: &DeviceConfig| {
            (other.auth, other.verify_tls, &other.ca_file, other.timeout)
                == (config.auth, config.verify_tls, &config.ca_file, config.timeout)
        };
        let mut wires = self.wires.lock();
        if let Some((_, wire)) = wires.iter().find(|(other, _)| alike(other)) {
            return Ok(Arc::clone(wire));
        }
        let wire = Arc::new(Wire::new(config, &self.networks)?);
        wires.push((config.clone(), Arc::clone(&wire)));
        Ok(wire)
    }

    fn device(&self, target: &Target, config: &DeviceConfig) -> Result<Box<dyn Device>> {
        let own = self.config.hosts.get(target.host.as_str());
        let about = About { target, own, config };
        Ok(match config.driver {
            Driver::Redfish => Box::new(self.redfish(&about)?),
            Driver::MetalOperator => {
                let way = match config.mode {
                    MetalMode::ParkRedfish => Way::Park(Box::new(self.redfish(&about)?)),
                    MetalMode::Claim => Way::Claim,
                    MetalMode::SpecPower => Way::SpecPower,
                };
                let kube = self
                    .kube
                    .clone()
                    .ok_or_else(|| about.missing("the Kubernetes API", "kubernetes.enabled"))?;
                let (server, limit) = (about.server()?, config.limit());
                Box::new(Metal::new(kube, server, way, limit, self.vigil.clone()))
            }
            Driver::Exec => Box::new(Exec {
                host: target.host.clone(),
                command: config.command.clone(),
                args: config
                    .args
                    .iter()
                    .map(|arg| about.filled(arg))
                    .collect::<Result<_>>()?,
                protocol: config.protocol,
                options: about.options()?,
                credentials: about.credentials(),
                machine: own.map(|own| Identity::from(&own.machine)).unwrap_or_default(),
                limit: config.limit(),
                purpose: target.purpose,
                programs: self.programs.of(target.purpose),
                targets: about.targets()?,
                networks: Arc::clone(&self.networks),
            }),
            Driver::Manual => Box::new(Manual {
                host: target.host.clone(),
            }),
            Driver::CephFence => {
                let kube = self
                    .kube
                    .clone()
                    .ok_or_else(|| about.missing("the Kubernetes API", "kubernetes.enabled"))?;
                let cidrs = config.cidrs.iter().map(|cidr| about.filled(cidr));
                Box::new(CephFence::new(
                    kube,
                    target,
                    cidrs.collect::<Result<_>>()?,
                    config,
                ))
            }
            Driver::NovaForceDownOnly => Box::new(NovaOnly::new(config, target)),
            Driver::WatchdogLease => Box::new(WatchdogLease::new(target)),
        })
    }

    fn redfish(&self, about: &About<'_>) -> Result<Redfish> {
        let system = match about.own.map(|own| own.system.as_str()) {
            None | Some("") => about.config.system.clone(),
            Some(own) => own.to_owned(),
        };
        Redfish::new(
            self.wire(about.config)?,
            about.target.host.clone(),
            &about.filled(&about.config.url)?,
            &system,
            about.credentials(),
        )
    }
}

/// A host, what is configured for it alone, and the device that is being made for it.
struct About<'a> {
    target: &'a Target,
    own: Option<&'a HostConfig>,
    config: &'a DeviceConfig,
}

impl About<'_> {
    fn missing(&self, what: &str, fix: &str) -> Error {
        Error::Missing {
            host: self.target.host.clone(),
            driver: self.config.driver.as_str(),
            what: what.to_owned(),
            fix: fix.to_owned(),
        }
    }

    /// Puts the host's own values into a template.
    fn filled(&self, template: &str) -> Result<String> {
        let host = self.target.host.as_str();
        let mut text = template
            .replace("{host}", host)
            .replace("{short}", self.target.host.short());
        if text.contains("{bmc}") {
            let bmc = self.own.map(|own| own.bmc.as_str()).filter(|bmc| !bmc.is_empty());
            let fix = format!("fencing.hosts.{host}.bmc");
            text = text.replace(
                "{bmc}",
                bmc.ok_or_else(|| self.missing("the address of its BMC", &fix))?,
            );
        }
        if text.contains("{internal_ip}") {
            // It is what the host says of itself, and could be anything but an address.
            let ip: Option<IpAddr> = self.target.internal_ip.as_deref().and_then(|ip| ip.parse().ok());
            let ip = ip
                .ok_or_else(|| self.missing("its internal address", "status.internalIp of its Hypervisor"))?;
            text = text.replace("{internal_ip}", &ip.to_string());
        }
        while let Some((before, rest)) = text.split_once("{label/") {
            let Some((key, after)) = rest.split_once('}') else {
                return Err(self.missing("the end of a label's name", "a } in fencing.levels"));
            };
            let value = self.label(key)?;
            text = format!("{before}{value}{after}");
        }
        Ok(text)
    }

    fn options(&self) -> Result<BTreeMap<String, String>> {
        let filled = |(key, value): (&String, &String)| Ok((key.clone(), self.filled(value)?));
        self.config.options.iter().map(filled).collect()
    }

    /// Where a program is led to: the BMC or the host it is given, what follows a word for an address, and every address
    /// among its words.
    fn targets(&self) -> Result<Vec<String>> {
        let DeviceConfig { args, options, .. } = self.config;
        let flags = args.iter().map(|arg| if arg.contains('=') { "" } else { arg });
        let before = std::iter::once("").chain(flags);
        let args = before.zip(args.iter().map(String::as_str));
        let options = options.iter().map(|(key, value)| (key.as_str(), value.as_str()));
        let mut targets = Vec::new();
        for (before, template) in args.chain(options) {
            let (key, _) = template.rsplit_once('=').unwrap_or((before, ""));
            let named = template.contains("{bmc}") || template.contains("{internal_ip}");
            let text = self.filled(template)?;
            let word = text.rsplit('=').next().unwrap_or_default();
            if !word.is_empty() && (named || names_address(key) || is_address(word)) {
                targets.push(word.to_owned());
            }
        }
        Ok(targets)
    }

    fn credentials(&self) -> Option<Source> {
        let own = self.own.and_then(|own| own.credentials_file.clone());
        own.or_else(|| self.config.credentials_file.clone()).map(Source)
    }

    fn label(&self, key: &str) -> Result<&str> {
        let found = self.target.labels.get(key).filter(|value| !value.is_empty());
        // A label could hold anything; braces would be filled in again.
        let found = found.filter(|value| !value.contains(['{', '}']));
        let missing = || self.missing(&format!("its label {key}"), "the label on its Node");
        found.map(String::as_str).ok_or_else(missing)
    }

    /// The name of the Server in metal-operator.
    fn server(&self) -> Result<String> {
        if let Some(own) = self.own.filter(|own| !own.server.is_empty()) {
            return Ok(own.server.clone());
        }
        match self.config.server_from.split_once('/') {
            Some(("label", key)) => self.label(key).map(str::to_owned),
            _ if self.config.server_from == "host" => Ok(self.target.host.to_string()),
            _ => Err(self.missing("its Server", "server_from to `host` or label/KEY")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(name: &str) -> Target {
        Target::new(HostName::new(name).unwrap())
    }

    fn fences(text: &str) -> Fences {
        let config = cobaltcore_kit::config::Config::new()
            .text("t.yaml", text)
            .load()
            .unwrap();
        Fences::new(config, None).unwrap()
    }

    #[test]
    fn two_hosts_with_one_device_are_both_not_fenced_by_it() {
        let fences = fences(
            "levels: [[{driver: redfish, url: 'http://{bmc}'}]]\nhosts: {n1: {bmc: 10.0.0.1}, n2: {bmc: 10.0.0.1}, n3: {bmc: 10.0.0.3}, n4: {bmc: 10.0.0.1, system: /redfish/v1/Systems/2}}\n",
        );
        for name in ["n1", "n2"] {
            let error = fences.level(&host(name), 0).unwrap_err().to_string();
            for part in ["n1", "n2", "10.0.0.1"] {
                assert!(error.contains(part), "{error}");
            }
        }
        assert!(fences.level(&host("n3"), 0).is_ok());
        assert!(
            fences.level(&host("n4"), 0).is_ok(),
            "two systems of one chassis are two devices"
        );
        fences.retain(|_| false);
        let error = fences.level(&host("n2"), 0);
        assert!(error.is_err(), "a host that is configured is expected back");
    }

    #[test]
    fn hosts_that_share_a_part_of_their_devices_are_both_not_fenced() {
        let fences = fences("levels: [[{driver: redfish, url: 'https://gateway.example/{host}'}]]\n");
        fences.level(&host("n1"), 0).unwrap();
        let error = fences.level(&host("n2"), 0).unwrap_err();
        assert!(
            matches!(error, Error::Shared { .. }),
            "a BMC has the paths of Redfish, and no others: {error}"
        );
        fences.retain(|host| host.as_str() == "n2");
        fences
            .level(&host("n2"), 0)
            .expect("its name before is known to nobody any more");
    }

    #[test]
    fn what_a_host_says_of_itself_leads_nobody_astray() {
        let fences = fences("levels: [[{driver: exec, command: x, options: {ip: '{internal_ip}'}}]]\n");
        let mut host = host("n1");
        for wrong in ["10.0.0.1\naction=on", "evil.example", "{label/x}", ""] {
            host.internal_ip = Some(wrong.to_owned());
            let error = fences.level(&host, 0).unwrap_err();
            assert!(matches!(error, Error::Missing { .. }), "{wrong}: {error}");
        }
        host.internal_ip = Some("10.0.0.1".to_owned());
        fences.level(&host, 0).unwrap();
    }

    #[test]
    fn whatever_stands_where_an_address_belongs_is_looked_up() {
        let targets = |options: &str| {
            let fences = fences(&format!("levels: [[{{driver: exec, command: x, {options}}}]]\n"));
            let mut target = host("n1");
            target.labels.insert("pdu".to_owned(), "evil.example".to_owned());
            let config = &fences.config.levels[0][0];
            let about = About {
                target: &target,
                own: None,
                config,
            };
            about.targets().unwrap()
        };
        assert_eq!(
            targets("options: {ip: '{label/pdu}', plug: '{label/pdu}'}"),
            ["evil.example"]
        );
        assert_eq!(targets("options: {ipaddr: pdu1, PDU_URL: x}"), ["x", "pdu1"]);
        assert_eq!(
            targets("args: [-H, '{host}.bmc', --ip=pdu2, -I, lanplus]"),
            ["n1.bmc", "pdu2"]
        );
        assert_eq!(
            targets("args: ['{host}'], options: {plug: '17', host: '{host}'}"),
            [""; 0]
        );
    }

    #[test]
    fn what_is_missing_is_told_with_where_to_put_it() {
        let fences = fences("levels: [[{driver: redfish, url: 'https://{bmc}'}]]\n");
        let error = fences.level(&host("n1"), 0).unwrap_err().to_string();
        assert!(error.contains("fencing.hosts.n1.bmc"), "{error}");
        let error = fences.level(&host("n1"), 1).unwrap_err().to_string();
        assert!(error.contains("fencing.levels"), "{error}");
    }
}
