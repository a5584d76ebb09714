// SPDX-License-Identifier: Apache-2.0
//! The configuration file: strict, complete, and checked as a whole before any of it takes effect. What may change
//! while the agent runs is everything except where the spool is and where the agent listens.

use std::path::{Path, PathBuf};
use std::time::Duration;

use cobaltcore_ha_wire::{Event, Kind};
use cobaltcore_kit::config::{Config as Layers, ConfigErrors, HumanDuration, Mistakes};
use cobaltcore_kit::startup;
use serde::Deserialize;

use crate::service::BEAT_TIME;
use crate::spool::Limits;

/// Everything the file says.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Where the service is.
    pub service: Service,
    /// What is reported.
    pub events: Events,
    /// Signs of life.
    pub heartbeat: Heartbeat,
    /// The list of guests.
    pub inventory: Inventory,
    /// What waits to be sent.
    pub spool: Spool,
    /// Local repairs.
    pub reactions: Reactions,
    /// The watchdog.
    pub self_fence: SelfFence,
    /// The own listener.
    pub metrics: Metrics,
    /// What is logged.
    pub log: Log,
}

/// Where the service is.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Service {
    /// Base URLs.
    pub endpoints: Vec<String>,
    /// Whether each URL is one replica or a name that resolves to all of them.
    pub discover: Discover,
    /// Keys and certificates.
    pub tls: Tls,
    /// A file with a bearer token.
    pub token_file: Option<PathBuf>,
}

/// How endpoints are found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Discover {
    /// Each URL is an endpoint.
    #[default]
    None,
    /// Each address of each name is an endpoint.
    Dns,
}

/// Keys and certificates; read again when they change.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Tls {
    /// Authorities of the service.
    pub ca: Option<PathBuf>,
    /// The own certificate.
    pub cert: Option<PathBuf>,
    /// Its key.
    pub key: Option<PathBuf>,
}

/// What is reported.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[allow(missing_docs)]
pub struct Events {
    pub lifecycle: Choice,
    pub reboot: Choice,
    pub watchdog: Choice,
    pub io_error: Choice,
    pub control_error: Choice,
    pub agent_lifecycle: Choice,
    pub memory_failure: Choice,
    /// Guests whose name fits this pattern; others are counted only.
    pub domain_filter: String,
}

impl Default for Events {
    fn default() -> Self {
        Self {
            lifecycle: Choice::default(),
            reboot: Choice::default(),
            watchdog: Choice::default(),
            io_error: Choice::default(),
            control_error: Choice::default(),
            agent_lifecycle: Choice::default(),
            memory_failure: Choice::default(),
            domain_filter: "instance-*".to_owned(),
        }
    }
}

/// What is reported of one kind.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Choice {
    /// Whether anything is.
    pub enabled: bool,
    /// Only these, as `event` or `event/detail`; all if empty.
    pub include: Vec<String>,
    /// Never these.
    pub exclude: Vec<String>,
}

impl Default for Choice {
    fn default() -> Self {
        Self {
            enabled: true,
            include: Vec::new(),
            exclude: Vec::new(),
        }
    }
}

/// Signs of life.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Heartbeat {
    /// How often.
    pub interval: HumanDuration,
}

impl Default for Heartbeat {
    fn default() -> Self {
        Self { interval: seconds(5) }
    }
}

/// The list of guests.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Inventory {
    /// How often it is sent when nothing changes.
    pub interval: HumanDuration,
    /// Whether it tells where disks are.
    pub disks: bool,
}

impl Default for Inventory {
    fn default() -> Self {
        Self {
            interval: seconds(60),
            disks: true,
        }
    }
}

/// What waits to be sent.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Spool {
    /// Where.
    pub dir: PathBuf,
    /// At most so much.
    pub max_bytes: u64,
    /// In files of this size.
    pub segment_bytes: u64,
}

impl Default for Spool {
    fn default() -> Self {
        Self {
            dir: "/var/lib/kvm-ha-agent/spool".into(),
            max_bytes: 256 << 20,
            segment_bytes: 8 << 20,
        }
    }
}

impl Spool {
    /// The sizes.
    pub fn limits(&self) -> Limits {
        Limits {
            max_bytes: self.max_bytes,
            segment_bytes: self.segment_bytes,
        }
    }
}

/// Local repairs.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Reactions {
    /// A guest's watchdog fired.
    pub watchdog: Reaction,
    /// A guest ended without being asked.
    pub crash: Reaction,
    /// A guest stands still because of a disk.
    pub ioerror: Reaction,
    /// A guest that runs elsewhere too.
    pub zombie: Reaction,
}

impl Default for Reactions {
    fn default() -> Self {
        Self {
            watchdog: Reaction::default(),
            crash: Reaction::default(),
            ioerror: Reaction::default(),
            zombie: Reaction {
                action: Action::Pause,
                ..Reaction::default()
            },
        }
    }
}

/// What is done, and how often at most.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Reaction {
    /// What.
    pub action: Action,
    /// Per guest and hour.
    pub max_per_domain: u32,
    /// Per host and hour.
    pub max_per_host: u32,
    /// Between two for the same guest.
    pub cooldown: HumanDuration,
    /// How long a guest must have run.
    pub min_uptime: HumanDuration,
}

impl Default for Reaction {
    fn default() -> Self {
        Self {
            action: Action::Report,
            max_per_domain: 3,
            max_per_host: 10,
            cooldown: seconds(60),
            min_uptime: seconds(120),
        }
    }
}

/// What can be done to a guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Action {
    /// Nothing; say so.
    Report,
    /// Reset its hardware.
    Reset,
    /// Start it.
    Start,
    /// Let it go on.
    Resume,
    /// Stop it in its tracks.
    Pause,
}

impl Action {
    /// Its name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Report => "report",
            Self::Reset => "reset",
            Self::Start => "start",
            Self::Resume => "resume",
            Self::Pause => "pause",
        }
    }
}

/// The watchdog that resets the host when it has lost the service.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SelfFence {
    /// Whether it is used.
    pub enabled: bool,
    /// The device.
    pub device: PathBuf,
    /// The longest timeout the device may have.
    pub timeout: HumanDuration,
    /// How often it is fed.
    pub feed_interval: HumanDuration,
    /// How long a contact with the service lasts.
    pub lease_ttl: HumanDuration,
}

impl Default for SelfFence {
    fn default() -> Self {
        Self {
            enabled: false,
            device: "/dev/watchdog".into(),
            timeout: seconds(60),
            feed_interval: seconds(5),
            lease_ttl: seconds(30),
        }
    }
}

/// The own listener.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Metrics {
    /// Address of metrics and health, empty for none.
    pub listen: String,
}

impl Default for Metrics {
    fn default() -> Self {
        Self {
            listen: ":9184".to_owned(),
        }
    }
}

/// What is logged.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Log {
    /// A level, or `target=level,...`.
    pub level: String,
}

impl Default for Log {
    fn default() -> Self {
        Self {
            level: "info".to_owned(),
        }
    }
}

/// How far signs of life are apart at most while a watchdog depends on their answers. They vary by a tenth; the service takes
/// one for alive that was heard within seven seconds.
pub(crate) const MOST_WHILE_GUARDED: HumanDuration = seconds(5);
/// Three heartbeats and the time that an answer may take: a shorter lease runs out by itself. Nor may an agent say that it lost
/// the service before the service finds it silent.
const SHORTEST_LEASE: Duration = MOST_WHILE_GUARDED.0.saturating_mul(3).saturating_add(BEAT_TIME);
/// A faster watchdog would reset hosts before anybody can tell whether they are cut off.
pub(crate) const SHORTEST_WATCHDOG: Duration = Duration::from_secs(30);

const fn seconds(count: u64) -> HumanDuration {
    HumanDuration(Duration::from_secs(count))
}

impl Config {
    /// Reads the file.
    pub fn read(path: &Path) -> Result<Self, ConfigErrors> {
        Layers::new().file(Some(path)).load_checked(check)
    }

    /// Reads a text under a name.
    pub fn parse(name: &str, text: &str) -> Result<Self, ConfigErrors> {
        Layers::new().text(name, text).load_checked(check)
    }

    /// What cannot change while the agent runs and differs in `other`.
    pub fn needs_restart(&self, other: &Self) -> Option<&'static str> {
        if self.spool.dir != other.spool.dir {
            Some("spool.dir")
        } else if self.metrics.listen != other.metrics.listen {
            Some("metrics.listen")
        } else {
            None
        }
    }
}

impl Events {
    /// What was chosen for a kind; what the agent says of itself is always reported.
    pub fn choice(&self, kind: Kind) -> Option<&Choice> {
        Some(match kind {
            Kind::Lifecycle => &self.lifecycle,
            Kind::Reboot => &self.reboot,
            Kind::Watchdog => &self.watchdog,
            Kind::IoError => &self.io_error,
            Kind::ControlError => &self.control_error,
            Kind::AgentLifecycle => &self.agent_lifecycle,
            Kind::MemoryFailure => &self.memory_failure,
            Kind::Agent => return None,
        })
    }

    /// Whether this is reported.
    pub fn wants(&self, kind: Kind, event: &str, detail: &str) -> bool {
        let Some(choice) = self.choice(kind) else {
            return true;
        };
        let named = |entry: &String| match entry.split_once('/') {
            Some((one, two)) => one == event && two == detail,
            None => entry == event,
        };
        choice.enabled
            && (choice.include.is_empty() || choice.include.iter().any(named))
            && !choice.exclude.iter().any(named)
    }

    /// Whether guests of this name are reported.
    pub fn wants_guest(&self, name: &str) -> bool {
        glob(&self.domain_filter, name)
    }

    /// Whether a record is reported; convenience for tests and tools.
    pub fn wants_record(&self, event: &Event) -> bool {
        let guest = event
            .domain
            .as_ref()
            .is_none_or(|domain| self.wants_guest(&domain.name));
        guest && self.wants(event.kind, &event.event, &event.detail)
    }
}

/// Whether `text` fits `pattern`, in which `*` stands for anything and `?` for one character.
pub fn glob(pattern: &str, text: &str) -> bool {
    let (pattern, text): (Vec<char>, Vec<char>) = (pattern.chars().collect(), text.chars().collect());
    let (mut at, mut here) = (0, 0);
    let mut retry: Option<(usize, usize)> = None;
    while here < text.len() {
        match pattern.get(at) {
            Some('*') => {
                retry = Some((at + 1, here));
                at += 1;
            }
            Some(wanted) if *wanted == '?' || Some(wanted) == text.get(here) => {
                at += 1;
                here += 1;
            }
            _ => match retry {
                Some((after, from)) => {
                    at = after;
                    here = from + 1;
                    retry = Some((after, from + 1));
                }
                None => return false,
            },
        }
    }
    pattern.iter().skip(at).all(|left| *left == '*')
}

fn check(config: &Config, mistakes: &mut Mistakes<'_>) {
    check_service(&config.service, mistakes);
    let mut between = |key: &str, value: HumanDuration, low: u64, high: u64| {
        if value < seconds(low) || value > seconds(high) {
            mistakes.add(
                key,
                format!("{value} is not between {} and {}", seconds(low), seconds(high)),
            );
        }
    };
    between("heartbeat.interval", config.heartbeat.interval, 1, 30);
    between("inventory.interval", config.inventory.interval, 10, 600);
    let fence = &config.self_fence;
    between(
        "self_fence.timeout",
        fence.timeout,
        SHORTEST_WATCHDOG.as_secs(),
        600,
    );
    between(
        "self_fence.lease_ttl",
        fence.lease_ttl,
        SHORTEST_LEASE.as_secs(),
        300,
    );
    if fence.feed_interval.0.is_zero() || fence.feed_interval.0 * 3 > fence.timeout.0 {
        mistakes.add(
            "self_fence.feed_interval",
            "must be more than 0 and at most a third of the timeout",
        );
    }
    check_heartbeat(config, mistakes);
    if config.spool.segment_bytes < 64 << 10 {
        mistakes.add("spool.segment_bytes", "must be at least 65536");
    }
    if config.spool.max_bytes < config.spool.segment_bytes.saturating_mul(2) {
        mistakes.add("spool.max_bytes", "must hold at least two segments");
    }
    if let Err(error) = startup::check_filter(&config.log.level) {
        mistakes.add("log.level", error.to_string());
    }
    if config.events.domain_filter.is_empty() {
        mistakes.add("events.domain_filter", "fits no guest; use \"*\" for all");
    }
    let reactions = &config.reactions;
    for (key, reaction, possible) in [
        ("watchdog", &reactions.watchdog, Action::Reset),
        ("crash", &reactions.crash, Action::Start),
        ("ioerror", &reactions.ioerror, Action::Resume),
        ("zombie", &reactions.zombie, Action::Pause),
    ] {
        if reaction.action != Action::Report && reaction.action != possible {
            let message = format!(
                "{} is not possible here; use report or {}",
                reaction.action.as_str(),
                possible.as_str()
            );
            mistakes.add(&format!("reactions.{key}.action"), message);
        }
    }
}

/// Whether signs of life come often enough for the shortest lease. One that runs out between two of them resets a host that
/// is well.
fn check_heartbeat(config: &Config, mistakes: &mut Mistakes<'_>) {
    let interval = config.heartbeat.interval;
    if config.self_fence.enabled && interval > MOST_WHILE_GUARDED {
        mistakes.add(
            "heartbeat.interval",
            format!(
                "{interval} is more than {MOST_WHILE_GUARDED}, and self_fence.enabled is true: the service takes a host for \
                 silent 7s after a heartbeat, and must not take one for dead that goes on feeding its watchdog"
            ),
        );
    }
}

fn check_service(service: &Service, mistakes: &mut Mistakes<'_>) {
    if service.endpoints.is_empty() {
        mistakes.add("service.endpoints", "is required: the URLs of the service");
    }
    for (index, endpoint) in service.endpoints.iter().enumerate() {
        let key = format!("service.endpoints.{index}");
        match url::Url::parse(endpoint) {
            Ok(url) if matches!(url.scheme(), "http" | "https") && url.host().is_some() => {
                if url.scheme() == "https" && service.tls.ca.is_none() {
                    mistakes.add("service.tls.ca", format!("is required for {endpoint}"));
                }
            }
            Ok(_) => mistakes.add(&key, format!("{endpoint:?} is not an http or https URL")),
            Err(error) => mistakes.add(&key, format!("{endpoint:?} is not a URL: {error}")),
        }
    }
    if service.tls.cert.is_some() != service.tls.key.is_some() {
        mistakes.add("service.tls", "cert and key belong together");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEAST: &str = "service: {endpoints: [http://ha:8080]}\n";

    #[test]
    fn the_documented_example_and_the_defaults() {
        let text = "service: {endpoints: [https://kvm-ha-service.ha.svc:8443], discover: dns, tls: {ca: /ca.pem}}\n\
                    events:\n  lifecycle: {enabled: true, exclude: [defined, undefined]}\n\
                    \x20 agent_lifecycle: {enabled: false}\n\
                    reactions:\n  watchdog: {action: reset, max_per_domain: 3}\n";
        let config = Config::parse("example", text).unwrap();
        assert_eq!(config.service.discover, Discover::Dns);
        assert!(config.events.wants(Kind::Lifecycle, "stopped", "failed"));
        assert!(!config.events.wants(Kind::Lifecycle, "defined", "added"));
        assert!(!config.events.wants(Kind::AgentLifecycle, "connected", ""));
        assert_eq!(config.reactions.watchdog.action, Action::Reset);
        assert_eq!(config.reactions.zombie.action, Action::Pause);
        assert_eq!(config.heartbeat.interval, seconds(5));
        assert_eq!(config.spool.limits().max_bytes, 256 << 20);
        assert_eq!(config.metrics.listen, ":9184");
        assert!(!config.self_fence.enabled);
    }

    /// Every key of the file with the value it has when nobody says anything.
    #[test]
    fn every_key_has_its_default() {
        let config = Config::parse("least", LEAST).unwrap();
        let reaction = |action| Reaction {
            action,
            max_per_domain: 3,
            max_per_host: 10,
            cooldown: seconds(60),
            min_uptime: seconds(120),
        };
        let every = Choice {
            enabled: true,
            include: Vec::new(),
            exclude: Vec::new(),
        };
        let wanted = Config {
            service: Service {
                endpoints: vec!["http://ha:8080".to_owned()],
                discover: Discover::None,
                tls: Tls {
                    ca: None,
                    cert: None,
                    key: None,
                },
                token_file: None,
            },
            events: Events {
                lifecycle: every.clone(),
                reboot: every.clone(),
                watchdog: every.clone(),
                io_error: every.clone(),
                control_error: every.clone(),
                agent_lifecycle: every.clone(),
                memory_failure: every,
                domain_filter: "instance-*".to_owned(),
            },
            heartbeat: Heartbeat { interval: seconds(5) },
            inventory: Inventory {
                interval: seconds(60),
                disks: true,
            },
            spool: Spool {
                dir: "/var/lib/kvm-ha-agent/spool".into(),
                max_bytes: 256 << 20,
                segment_bytes: 8 << 20,
            },
            reactions: Reactions {
                watchdog: reaction(Action::Report),
                crash: reaction(Action::Report),
                ioerror: reaction(Action::Report),
                zombie: reaction(Action::Pause),
            },
            self_fence: SelfFence {
                enabled: false,
                device: "/dev/watchdog".into(),
                timeout: seconds(60),
                feed_interval: seconds(5),
                lease_ttl: seconds(30),
            },
            metrics: Metrics {
                listen: ":9184".to_owned(),
            },
            log: Log {
                level: "info".to_owned(),
            },
        };
        assert_eq!(config, wanted);
    }

    #[test]
    fn ranges_have_both_ends() {
        let ok = |text: &str| Config::parse("c", &format!("{LEAST}{text}")).is_ok();
        for (key, low, high, below, above) in [
            ("heartbeat: {interval", "1s", "30s", "900ms", "31s"),
            ("inventory: {interval", "10s", "600s", "9s", "601s"),
            (
                "self_fence: {feed_interval: 1s, timeout",
                "30s",
                "600s",
                "29s",
                "601s",
            ),
            ("self_fence: {lease_ttl", "20s", "300s", "19s", "301s"),
            (
                "self_fence: {timeout: 30s, feed_interval",
                "1ms",
                "10s",
                "0s",
                "11s",
            ),
            (
                "spool: {max_bytes: 134217728, segment_bytes",
                "65536",
                "67108864",
                "65535",
                "67108865",
            ),
        ] {
            assert!(
                ok(&format!("{key}: {low}}}")) && ok(&format!("{key}: {high}}}")),
                "{key}"
            );
            assert!(
                !ok(&format!("{key}: {below}}}")) && !ok(&format!("{key}: {above}}}")),
                "{key}"
            );
        }
    }

    /// Every key takes what it is for, and says so where it is given something else.
    #[test]
    fn every_key_is_read_and_checked() {
        let text = "service:\n  endpoints: [https://a:8443, https://b:8443/]\n  discover: dns\n  \
             tls: {ca: /ca, cert: /cert, key: /key}\n  token_file: /token\n\
             events:\n  lifecycle: {enabled: true, include: [stopped, started/booted], exclude: [stopped/saved]}\n  \
             reboot: {enabled: false}\n  watchdog: {enabled: false}\n  io_error: {enabled: false}\n  \
             control_error: {enabled: false}\n  agent_lifecycle: {enabled: false}\n  \
             memory_failure: {enabled: false}\n  domain_filter: 'vm-?'\n\
             heartbeat: {interval: 2s}\ninventory: {interval: 20s, disks: false}\n\
             spool: {dir: /s, max_bytes: 1048576, segment_bytes: 131072}\n\
             reactions:\n  watchdog: {action: reset, max_per_domain: 1, max_per_host: 2, cooldown: 3s, min_uptime: 4s}\n  \
             crash: {action: start}\n  ioerror: {action: resume}\n  zombie: {action: report}\n\
             self_fence: {enabled: true, device: /dev/watchdog1, timeout: 40s, feed_interval: 4s, lease_ttl: 20s}\n\
             metrics: {listen: ':1'}\nlog: {level: 'warn,cobaltcore_ha_agent=debug'}\n";
        let config = Config::parse("all", text).unwrap();
        assert_eq!(config.service.endpoints.len(), 2);
        assert_eq!(config.service.discover, Discover::Dns);
        assert_eq!(config.service.tls.key.as_deref(), Some(Path::new("/key")));
        assert_eq!(config.service.token_file.as_deref(), Some(Path::new("/token")));
        let wants = |event, detail| config.events.wants(Kind::Lifecycle, event, detail);
        assert!(wants("stopped", "failed") && wants("started", "booted"));
        assert!(!wants("stopped", "saved") && !wants("started", "migrated") && !wants("resumed", ""));
        for kind in &Kind::LIBVIRT[1..] {
            assert!(!config.events.wants(*kind, "", ""), "{kind}");
        }
        assert!(config.events.wants(Kind::Agent, "agent_started", ""), "always");
        assert!(config.events.wants_guest("vm-1") && !config.events.wants_guest("vm-10"));
        assert_eq!(config.heartbeat.interval, seconds(2));
        assert_eq!(
            (config.inventory.interval, config.inventory.disks),
            (seconds(20), false)
        );
        assert_eq!(config.spool.limits().segment_bytes, 131_072);
        let watchdog = Reaction {
            action: Action::Reset,
            max_per_domain: 1,
            max_per_host: 2,
            cooldown: seconds(3),
            min_uptime: seconds(4),
        };
        assert_eq!(config.reactions.watchdog, watchdog);
        let actions = [
            &config.reactions.crash,
            &config.reactions.ioerror,
            &config.reactions.zombie,
        ];
        assert_eq!(
            actions.map(|reaction| reaction.action),
            [Action::Start, Action::Resume, Action::Report]
        );
        assert_eq!(config.self_fence.device, Path::new("/dev/watchdog1"));
        // Every kind of mistake at once, each under the name of its key.
        let bad = "service: {endpoints: [https://x], tls: {cert: /c}}\nevents: {domain_filter: ''}\n\
             heartbeat: {interval: 0s}\ninventory: {interval: 1h}\nspool: {segment_bytes: 1, max_bytes: 1}\n\
             reactions: {watchdog: {action: start}, ioerror: {action: pause}, zombie: {action: reset}}\n\
             self_fence: {timeout: 5s, lease_ttl: 1s, feed_interval: 4s}\nlog: {level: 'a=b=c'}\n";
        let error = Config::parse("bad", bad).unwrap_err().to_string();
        for key in [
            "service.tls.ca",
            "service.tls: ",
            "events.domain_filter",
            "heartbeat.interval",
            "inventory.interval",
            "spool.segment_bytes",
            "spool.max_bytes",
            "reactions.watchdog.action",
            "reactions.ioerror.action",
            "reactions.zombie.action",
            "self_fence.timeout",
            "self_fence.lease_ttl",
            "self_fence.feed_interval",
            "log.level",
        ] {
            assert!(error.contains(key), "{key}: {error}");
        }
        // And every level of unknown keys.
        for unknown in [
            "servic",
            "service.endpoint",
            "service.tls.cacert",
            "events.watchdogs",
            "events.watchdog.enable",
            "heartbeat.intervall",
            "inventory.disk",
            "spool.size",
            "reactions.crashed",
            "reactions.crash.max",
            "self_fence.lease",
            "metrics.port",
            "log.format",
        ] {
            let keys: Vec<&str> = unknown.split('.').collect();
            let nested = keys
                .iter()
                .rev()
                .fold("1".to_owned(), |inner, key| format!("{{{key}: {inner}}}"));
            let error = Config::parse("unknown", &nested).unwrap_err().to_string();
            assert!(error.contains(unknown), "{unknown}: {error}");
        }
    }

    #[test]
    fn mistakes_name_the_key() {
        for (text, words) in [
            ("", "service.endpoints"),
            ("service: {endpoints: [ftp://x]}", "service.endpoints.0"),
            ("service: {endpoints: [https://x]}", "service.tls.ca"),
            (
                "service: {endpoints: [http://x], endpoint: y}",
                "service.endpoint",
            ),
            (
                "service: {endpoints: [http://x]}\nevents: {lifecycel: {}}",
                "events.lifecycel",
            ),
            (
                "service: {endpoints: [http://x]}\nheartbeat: {interval: 40s}",
                "heartbeat.interval",
            ),
            (
                "service: {endpoints: [http://x]}\nreactions: {crash: {action: reset}}",
                "reactions.crash.action",
            ),
            (
                "service: {endpoints: [http://x]}\nlog: {level: 'a=b=c'}",
                "log.level",
            ),
            (
                "service: {endpoints: [http://x]}\nspool: {max_bytes: 70000}",
                "spool.max_bytes",
            ),
        ] {
            let error = Config::parse("config.yaml", text).unwrap_err().to_string();
            assert!(error.contains(words), "{words}: {error}");
        }
    }

    /// A lease that runs out between two heartbeats resets hosts that are well.
    #[test]
    fn where_a_watchdog_is_used_heartbeats_are_often_enough_for_its_lease() {
        let read = |enabled: bool, interval: &str| {
            let text =
                format!("{LEAST}heartbeat: {{interval: {interval}}}\nself_fence: {{enabled: {enabled}}}");
            Config::parse("agent.yaml", &text).map_err(|error| error.to_string())
        };
        for (interval, fits) in [("1s", true), ("5s", true), ("5001ms", false), ("30s", false)] {
            match read(true, interval) {
                Ok(_) => assert!(fits, "{interval}"),
                Err(words) => assert!(
                    !fits && words.contains("heartbeat.interval") && words.contains("agent.yaml"),
                    "{interval}: {words}"
                ),
            }
            assert!(read(false, interval).is_ok(), "nothing depends on it");
        }
    }

    #[test]
    fn what_needs_a_restart_is_named() {
        let config = Config::parse("c", LEAST).unwrap();
        let other = Config::parse("c", &format!("{LEAST}spool: {{dir: /elsewhere}}")).unwrap();
        assert_eq!(config.needs_restart(&other), Some("spool.dir"));
        let other = Config::parse("c", &format!("{LEAST}metrics: {{listen: ':1'}}")).unwrap();
        assert_eq!(config.needs_restart(&other), Some("metrics.listen"));
        for change in ["heartbeat: {interval: 2s}", "log: {level: debug}"] {
            let other = Config::parse("c", &format!("{LEAST}{change}")).unwrap();
            assert_eq!(config.needs_restart(&other), None, "{change}");
        }
    }

    #[test]
    fn globs() {
        for (pattern, text, fits) in [
            ("instance-*", "instance-0000a1", true),
            ("instance-*", "amphora-1", false),
            ("*", "", true),
            ("a*b?c*", "axxbbyc", true),
            ("a*b?c", "axxbyc", true),
            ("a*b?c", "axxbyyc", false),
            ("", "", true),
            ("", "a", false),
            ("*a*a*a*", "aa", false),
        ] {
            assert_eq!(glob(pattern, text), fits, "{pattern} {text}");
        }
    }
}
