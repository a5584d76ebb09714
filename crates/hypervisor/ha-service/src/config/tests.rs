// SPDX-License-Identifier: Apache-2.0
//! What is shipped is good; what is wrong is told with its place.

use super::*;
use cobaltcore_api::names::HostName;
use serde_json::json;

/// Of a single replica, where the text says nothing else: several have to know each other.
fn read(text: &str) -> Result<Config, ConfigErrors> {
    let alone = if text.contains("leader:") {
        ""
    } else {
        "leader: {replicas: 1}\n"
    };
    Config::parse("c.yaml", &format!("{text}{alone}"))
}

fn mistakes(text: &str) -> Vec<String> {
    match read(text) {
        Ok(_) => Vec::new(),
        Err(ConfigErrors(found)) => found.iter().map(ToString::to_string).collect(),
    }
}

#[test]
fn the_shipped_configuration_is_good() {
    let text = include_str!("../../../../../deploy/ha-service/config.yaml");
    let config = Config::parse("config.yaml", text).unwrap_or_else(|error| panic!("{error}"));
    assert!(config.journal_in_kubernetes());
    assert_eq!(config.ha_gate, HaGate::AgentAndFence);
}

/// The pods of the StatefulSet find each other by the names that its headless service gives them.
#[test]
fn the_replicas_that_are_shipped_find_each_other() {
    let text = include_str!("../../../../../deploy/ha-service/config.yaml");
    let config = Config::parse("config.yaml", text).unwrap();
    assert!(config.leader.peers.is_empty(), "nobody has to name them");
    let pod = |name: &str| Pod {
        name: name.into(),
        namespace: "cobaltcore".into(),
    };
    let peers = config.peers(&pod("kvm-ha-service-1"));
    let wanted =
        (0..3).map(|n| format!("https://kvm-ha-service-{n}.kvm-ha-service-peers.cobaltcore.svc:8443"));
    assert_eq!(peers, wanted.collect::<Vec<_>>());
    let pods = include_str!("../../../../../deploy/ha-service/statefulset.yaml");
    for words in [
        "name: kvm-ha-service\n",
        "serviceName: kvm-ha-service-peers",
        "replicas: 3",
    ] {
        assert!(pods.contains(words), "{words}");
    }
    assert!(
        include_str!("../../../../../deploy/ha-service/services.yaml").contains("name: kvm-ha-service-peers")
    );
    for name in ["", "laptop", "kvm-ha-service-7"] {
        assert!(config.peers(&pod(name)).is_empty(), "{name} is none of them");
    }
}

#[test]
fn peers_that_are_named_or_cannot_prove_themselves_are_not_looked_for() {
    let pod = Pod {
        name: "ha-0".into(),
        namespace: "x".into(),
    };
    let peers = |text: &str| read(text).unwrap().peers(&pod);
    assert_eq!(
        peers("leader: {peer_token_file: t, replicas: 2, peer_service: s}\nserver: {listen: ':80'}\n"),
        ["http://ha-0.s.x.svc:80", "http://ha-1.s.x.svc:80"]
    );
    assert_eq!(
        peers("leader: {peer_token_file: t, peers: ['http://a']}\n"),
        ["http://a"]
    );
    assert!(peers("").is_empty());
    assert!(peers("leader: {enabled: false, peer_token_file: t}\n").is_empty());
}

#[test]
fn nothing_said_is_the_recommended_way() {
    let config = read("").unwrap();
    let engine = crate::settings::engine_config(&config);
    let recommended = cobaltcore_ha_engine::Config::default();
    assert_eq!(engine.silent_after, recommended.silent_after);
    assert_eq!(engine.heartbeat_alive, recommended.heartbeat_alive);
    assert_eq!(engine.min_groups, recommended.min_groups);
    assert_eq!(engine.warmup, recommended.warmup);
    assert_eq!(engine.max_hosts_in_flight, recommended.max_hosts_in_flight);
    assert_eq!(engine.vm_concurrency, recommended.vm_concurrency);
    assert_eq!(engine.auto_takeover, recommended.auto_takeover);
    assert_eq!(engine.auto_release, None);
    assert!(
        engine.fence_levels.is_empty(),
        "nobody can be fenced before it is said how"
    );
}

/// Sources, devices, limits and exclusions, each as one line says it.
#[test]
fn a_small_configuration_of_a_zone_is_good() {
    let text = r#"
openstack: {cloud: default, microversion: "2.90"}
sources:
  pull:
    - name: prometheus
      kind: prometheus
      url: https://prometheus.monitoring.svc:9090
      interval: 15s
      rules:
        - {name: node_up, group: M, expr: 'up{job="node-exporter"} == 0', for: 30s, verdict: dead, host_label: node}
fencing:
  required_grade: power
  levels:
    - [{driver: metal-operator, mode: park+redfish, url: 'https://{bmc}', server_from: label/kubernetes.metal.cloud.sap/name}]
    - [{driver: exec, command: fence_ipmilan, protocol: fence-agent, credentials_file: bmc.yaml}]
storm: {max_hosts_in_flight: 3, max_fleet_percent: 10}
recovery: {default_policy: evacuate, exclude: [{name: "amphora-*"}]}
"#;
    let config = read(text).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(config.fencing.levels.len(), 2);
    assert_eq!(config.recovery.exclude.len(), 1);
}

/// What the reference of the configuration says, key by key.
#[test]
fn every_key_has_its_default() {
    let config = serde_json::to_value(read("").unwrap()).unwrap();
    for (key, wanted) in [
        ("server.listen", json!(":8443")),
        ("server.legacy_listen", json!("")),
        ("server.metrics_listen", json!(":9185")),
        ("server.limits.body_bytes", json!(1 << 20)),
        ("server.limits.inflight", json!(2000)),
        ("server.limits.per_agent_rps", json!(20)),
        ("compat.legacy_unauthenticated", json!(false)),
        ("storage.path", json!("/var/lib/kvm-ha-service")),
        ("storage.max_bytes", json!(8_u64 << 30)),
        ("leader.enabled", json!(true)),
        ("leader.lease_duration", json!("15s")),
        ("leader.renew_deadline", json!("10s")),
        ("leader.retry_period", json!("2s")),
        ("kubernetes.enabled", json!(true)),
        ("kubernetes.hypervisor_api", json!("kvm.cloud.sap/v1")),
        ("kubernetes.label_selector", json!("")),
        ("kubernetes.node_lease", json!(true)),
        ("kubernetes.eviction_on_takeover", json!("keep")),
        ("openstack.microversion", json!("2.90")),
        ("openstack.evacuate_microversion", json!("2.90")),
        ("openstack.timeout", json!("10s")),
        ("openstack.rps", json!(10)),
        ("agents.heartbeat_interval", json!("5s")),
        ("agents.silent_after", json!("15s")),
        ("evidence.min_groups", json!(2)),
        ("evidence.confirm_rounds", json!(2)),
        ("evidence.round_interval", json!("3s")),
        ("evidence.require_active_probe", json!(true)),
        ("evidence.probe.tcp_ports", json!([10250, 22, 9100])),
        ("evidence.probe.timeout", json!("2s")),
        ("evidence.probe.peers", json!(4)),
        ("evidence.source_distrust.percent", json!(20)),
        ("evidence.source_distrust.window", json!("60s")),
        ("evidence.isolation_response", json!("hold")),
        ("evidence.isolation_dwell", json!("300s")),
        ("evidence.hung_response", json!("auto")),
        ("evidence.hung_dwell", json!("180s")),
        ("fencing.required_grade", json!("power")),
        ("fencing.timeout", json!("60s")),
        ("fencing.verify_reads", json!(2)),
        ("fencing.verify_gap", json!("2s")),
        ("fencing.retry_min", json!("30s")),
        ("fencing.retry_max", json!("300s")),
        ("storm.max_hosts_in_flight", json!(3)),
        ("storm.max_fleet_percent", json!(10)),
        ("storm.max_domain_hosts", json!(2)),
        ("storm.max_domain_percent", json!(10)),
        ("storm.window", json!("300s")),
        ("storm.cooldown", json!("300s")),
        ("storm.proven_dead_bypass", json!(true)),
        ("storm.memory", json!("3600s")),
        ("recovery.vm_concurrency", json!(16)),
        ("recovery.global_concurrency", json!(48)),
        ("recovery.vm_timeout", json!("600s")),
        ("recovery.vm_attempts", json!(5)),
        ("recovery.backoff", json!("10s")),
        ("recovery.lock_servers", json!(true)),
        ("recovery.default_policy", json!("evacuate")),
        ("recovery.local_disk", json!("skip")),
        ("recovery.ephemeral_backend", json!("rbd")),
        ("recovery.verify", json!("agent")),
        ("recovery.spares", json!([])),
        ("recovery.states", json!({})),
        ("degraded_action", json!("alert")),
        ("ha_gate", json!("spec")),
        ("instance.default_policy", json!("opt-in")),
        ("instance.max_restarts", json!(3)),
        ("instance.window", json!("3600s")),
        ("capacity.check", json!("warn")),
        ("maintenance.auto_takeover", json!("600s")),
        ("maintenance.manual_takeover", json!("never")),
        ("maintenance.planned_grace", json!("900s")),
        ("release.mode", json!("operator")),
        ("release.auto", json!(false)),
        ("release.healthy_for", json!("300s")),
        ("self_check.min_ok_percent", json!(60)),
        ("self_check.fresh_percent", json!(80)),
        ("self_check.warmup", json!("60s")),
        ("log.level", json!("info")),
        ("log.format", json!("logfmt")),
    ] {
        let found = key.split('.').try_fold(&config, |at, part| at.get(part));
        let found = found.unwrap_or_else(|| panic!("there is no key {key}"));
        // However a duration is written, it is the same.
        let span = |value: &serde_json::Value| value.as_str()?.parse::<HumanDuration>().ok();
        let same = match (span(found), span(&wanted)) {
            (Some(found), Some(wanted)) => found == wanted,
            _ => *found == wanted,
        };
        assert!(same, "{key} is {found}, not {wanted}");
    }
}

#[test]
fn every_mistake_is_told_with_its_line_and_key() {
    let found = mistakes(
        "evidence: {min_groups: 1}\n\
         storm:\n  max_hosts: 5\n\
         openstack: {timeout: 30s}\n\
         access:\n  operators: {olga: [short]}\n",
    );
    assert!(!found.is_empty());
    let text = found.join("\n");
    assert!(text.contains("c.yaml:3: storm.max_hosts"), "{text}");
    let found = mistakes("evidence: {min_groups: 1}\nopenstack: {timeout: 30s}\n").join("\n");
    assert!(
        found.contains("c.yaml:1: evidence.min_groups: must be at least 2"),
        "{found}"
    );
    assert!(
        found.contains("c.yaml:2: openstack.timeout: must be at most 10s"),
        "{found}"
    );
    for (text, wanted) in [
        (
            "openstack: {services_interval: 11s}\n",
            "openstack.services_interval: must be at most 10s",
        ),
        (
            "agents: {heartbeat_interval: 0s}\n",
            "agents.heartbeat_interval: must be longer than nothing",
        ),
        (
            "agents: {heartbeat_interval: 8s}\n",
            "agents.silent_after: must be at least twice agents.heartbeat_interval",
        ),
    ] {
        let found = mistakes(text).join("\n");
        assert!(found.contains(wanted), "{text}{found}");
    }
    let slow =
        "sources: {pull: [{name: m, kind: prometheus, url: 'http://m', interval: 1m, timeout: 11s}]}\n";
    let found = mistakes(slow).join("\n");
    assert!(
        found.contains("sources.pull.0.timeout: must be at most 10s"),
        "{found}"
    );
}

#[test]
fn what_cannot_work_together_is_refused() {
    for (text, key) in [
        ("kubernetes: {enabled: false}\n", "leader.enabled"),
        (
            "leader: {enabled: false, peers: [https://a, https://b]}\n",
            "leader.peers",
        ),
        ("server: {tls: {cert_file: a}}\n", "server.tls"),
        ("recovery: {local_disk: rebuild}\n", "recovery.local_disk"),
        ("recovery: {exclude: [{}]}\n", "recovery.exclude"),
        (
            "sources: {push: [{name: a, schema: generic, senders: [nobody]}]}\n",
            "sources.push",
        ),
        (
            "access: {sender_certificates: {a: []}}\n",
            "access.sender_certificates.a",
        ),
        (
            "access: {sender_certificates: {a: [x], b: [x]}}\n",
            "access.sender_certificates.b",
        ),
        (
            "access: {senders_need_both: true, sender_certificates: {a: [x]}}\n",
            "access.sender_certificates.a",
        ),
        (
            "sources: {pull: [{name: a, kind: prometheus, url: 'http://p', rules: [{name: r, group: P, expr: 'up == 0', verdict: dead}]}]}\n",
            "sources.pull",
        ),
        (
            "sources: {pull: [{name: a, kind: prometheus, url: 'http://p', rules: [{name: r, group: M, expr: 'up ==', verdict: dead}]}]}\n",
            "sources.pull",
        ),
        (
            "evidence: {isolation_response: auto}\n",
            "evidence.isolation_response",
        ),
        ("storm: {max_hosts_in_flight: 0}\n", "storm.max_hosts_in_flight"),
        ("evidence: {probe: {peers: 1}}\n", "evidence.probe.peers"),
        (
            "degraded_action: drain\nkubernetes: {enabled: false}\n",
            "degraded_action",
        ),
        (
            "degraded_action: disable\nopenstack: {enabled: false}\n",
            "degraded_action",
        ),
    ] {
        let found = mistakes(text).join("\n");
        assert!(found.contains(key), "{text}: {found}");
    }
}

/// Replicas that do not know each other would each decide by what it hears alone.
#[test]
fn several_replicas_must_know_each_other() {
    let key = "leader.peer_token_file";
    let found = |text: &str| {
        let found = Config::parse("c.yaml", text).err();
        found.map(|found| found.to_string()).unwrap_or_default()
    };
    assert!(found("").contains(key), "three are usual");
    assert!(found("leader: {peers: ['http://a', 'http://b']}\n").contains(key));
    for good in [
        "leader: {peer_token_file: t}\n",
        "leader: {replicas: 1}\n",
        "leader: {peers: ['http://a']}\n",
        "leader: {enabled: false}\n",
    ] {
        assert_eq!(found(good), "", "{good}");
    }
    let alone = "journal: {backend: sqlite}\nleader: {replicas: 1}\n";
    assert_eq!(found(alone), "");
    let several = alone.replace("replicas: 1", "peer_token_file: t");
    assert!(
        found(&several).contains("journal.backend"),
        "wherever that is read"
    );
}

#[test]
fn words_and_fetches_count_for_a_bounded_time() {
    let hash = "a".repeat(64);
    let push = |more: &str| {
        let text = format!(
            "access: {{senders: {{a: [{hash}]}}}}\nsources: {{push: [{{name: a, senders: [a], {more}}}]}}\n"
        );
        mistakes(&text).join("\n")
    };
    assert_eq!(push("schema: generic, group: S, good_for: 5m"), "");
    assert_eq!(push("schema: alertmanager, good_for: 1s"), "");
    for (more, key) in [
        (
            "schema: generic, good_for: 6m",
            "sources.push.0.good_for: must be",
        ),
        (
            "schema: generic, good_for: 0s",
            "sources.push.0.good_for: must be",
        ),
        (
            "schema: alertmanager, group: S",
            "sources.push.0.group: must be M",
        ),
    ] {
        let found = push(more);
        assert!(found.contains(key), "{more}: {found}");
    }
    let pull = |every: &str, rule: &str| {
        let rule = format!("{{name: r, expr: 'a == 0', {rule}}}");
        let text = format!(
            "sources: {{pull: [{{name: p, kind: prometheus, url: 'http://p', interval: {every}, rules: [{rule}]}}]}}\n"
        );
        mistakes(&text).join("\n")
    };
    let key = "sources.pull.0.interval: must be at most 1m";
    assert_eq!(pull("1m", "group: M, verdict: dead"), "");
    assert!(pull("61s", "group: M, verdict: dead").contains(key));
    assert!(pull("2m", "group: S, verdict: alive").contains(key));
    assert_eq!(
        pull("5m", "group: M, verdict: degraded"),
        "",
        "that says nothing of life"
    );
    let text = "sources: {pull: [{name: p, kind: prometheus, url: 'http://p', interval: 30s}]}\n";
    let config = read(text).unwrap();
    let good_for = |took| config.sources.pull[0].good_for(Duration::from_secs(took));
    assert_eq!(
        good_for(2),
        Duration::from_secs(39),
        "until the next should have come"
    );
    assert_eq!(good_for(40), Duration::from_secs(51), "where one takes longer");
    assert_eq!(good_for(1000), Duration::from_secs(75), "and no longer");
}

#[test]
fn a_configuration_shows_no_secret() {
    let hash = "a".repeat(64);
    let config = read(&format!("access: {{operators: {{olga: [{hash}]}}}}\n")).unwrap();
    let shown = serde_json::to_string(&config).unwrap();
    assert!(!shown.contains(&hash) && !format!("{config:?}").contains(&hash));
    assert!(shown.contains("olga"));
}

#[test]
fn takeovers_capacity_and_versions_are_read_and_checked() {
    let config = read(
        "maintenance: {manual_takeover: 30m}\ncapacity: {check: hold}\nrecovery: {lock_servers: false}\n",
    )
    .unwrap();
    let engine = crate::settings::engine_config(&config);
    assert_eq!(engine.manual_takeover, Some(Duration::from_secs(1800)));
    assert_eq!(engine.capacity, cobaltcore_ha_engine::CapacityCheck::Hold);
    assert!(!engine.lock_servers);
    let usual = read("maintenance: {manual_takeover: never}\n").unwrap();
    let engine = crate::settings::engine_config(&usual);
    let recommended = cobaltcore_ha_engine::Config::default();
    assert_eq!(engine.manual_takeover, None);
    assert_eq!(
        (engine.capacity, engine.lock_servers),
        (recommended.capacity, recommended.lock_servers)
    );
    let found = mistakes("maintenance: {manual_takeover: sometimes}\n").join("\n");
    assert!(found.contains("c.yaml:1: maintenance.manual_takeover"), "{found}");
    let found = mistakes("openstack: {evacuate_microversion: latest}\n").join("\n");
    assert!(found.contains("openstack.evacuate_microversion"), "{found}");
}

#[test]
fn what_is_read_at_the_start_only_is_named_and_kept() {
    let old = read("storage: {path: /a}\n").unwrap();
    let mut new = read(
        "storage: {path: /b}\nserver: {listen: ':1'}\nkubernetes: {node_lease: false}\nopenstack: {rps: 3}\n",
    )
    .unwrap();
    assert!(!new.same(&old));
    assert_eq!(
        new.keep_fixed(&old),
        ["server", "storage", "kubernetes.node_lease"]
    );
    assert_eq!(new.storage.path, "/a");
    assert!(new.kubernetes.node_lease);
    assert_eq!(new.openstack.rps, 3, "what may change did");
    assert_eq!(new.keep_fixed(&old), Vec::<&str>::new());
    let hashed = |digit: &str| {
        let text = format!("access: {{viewers: {{v: [{}]}}}}\n", digit.repeat(64));
        read(&text).unwrap()
    };
    assert!(
        !hashed("a").same(&hashed("b")),
        "another token is another configuration"
    );
}

#[test]
fn lines_of_the_log_and_microversions_are_checked_at_their_place() {
    let found = mistakes("openstack:\n  microversion: \"2.42\"\nlog:\n  level: \"=loud\"\n").join("\n");
    assert!(
        found.contains("c.yaml:2: openstack.microversion: must be between"),
        "{found}"
    );
    assert!(found.contains("c.yaml:4: log.level: "), "{found}");
    assert!(!mistakes("openstack: {microversion: \"2.95\"}\n").is_empty());
    assert!(!mistakes("log: {format: xml}\n").is_empty());
    let told = read("log: {level: debug}\nopenstack: {microversion: \"2.79\"}\n").unwrap();
    assert_eq!(told.log.format, LogFormat::Logfmt);
    let mut new = read("log: {level: warn, format: json}\n").unwrap();
    assert_eq!(new.keep_fixed(&told), ["openstack.microversion", "log.format"]);
    assert_eq!(
        (new.log.level.as_str(), new.log.format),
        ("warn", LogFormat::Logfmt)
    );
}

#[test]
fn thresholds_and_windows_of_monitors_reach_the_engine() {
    let text = "monitors:\n  \
        host-rebooted: {resume_after: 2m, compute_after: 20m}\n  \
        agent-silent: {after: 90s}\n  \
        instance-crashed: {storm_per_minute: 50}\n  \
        watchdog-storm: {guest_events: 7, guest_window: 20m, percent: 40, min_guests: 4, window: 10m, shared_hosts: 6}\n  \
        io-error-storm: {percent: 50, min_guests: 5, window: 3m, healthy_percent: 90, outage_percent: 15}\n  \
        memory-failure: {events: 3, window: 1h}\n  \
        libvirt-unreachable: {after: 2m, degraded_after: 10m}\n  \
        nova-service-down: {after: 3m}\n";
    let told = crate::settings::engine_config(&read(text).unwrap()).monitors;
    let mins = Duration::from_mins;
    let rebooted = told.host_rebooted;
    assert_eq!(
        (rebooted.resume_after, rebooted.compute_after),
        (mins(2), mins(20))
    );
    assert_eq!(told.agent_silent.after, Duration::from_secs(90));
    assert_eq!(told.instance_crashed.storm_per_minute, 50);
    let dogs = told.watchdog_storm;
    assert_eq!((dogs.guest_events, dogs.guest_window), (7, mins(20)));
    assert_eq!(
        (dogs.percent, dogs.min_guests, dogs.window, dogs.shared_hosts),
        (40, 4, mins(10), 6)
    );
    let disks = told.io_error_storm;
    assert_eq!((disks.percent, disks.min_guests, disks.window), (50, 5, mins(3)));
    assert_eq!((disks.healthy_percent, disks.outage_percent), (90, 15));
    assert_eq!(
        (told.memory_failure.events, told.memory_failure.window),
        (3, mins(60))
    );
    let libvirt = told.libvirt_unreachable;
    assert_eq!((libvirt.after, libvirt.degraded_after), (mins(2), mins(10)));
    let nova = told.nova_service_down;
    assert_eq!(
        (nova.after, nova.degraded_after),
        (mins(3), mins(15)),
        "the rest as usual"
    );
    let usual = crate::settings::engine_config(&Config::default());
    assert_eq!(usual.monitors, cobaltcore_ha_engine::Monitors::default());
}

#[test]
fn monitors_that_make_no_sense_are_refused_at_their_place() {
    let text = "monitors:\n  \
        io-error-storm: {percent: 0}\n  \
        watchdog-storm: {guest_events: 0, window: 0s}\n  \
        nova-service-down: {after: 20m}\n";
    let found = mistakes(text).join("\n");
    for wanted in [
        "c.yaml:2: monitors.io-error-storm.percent: must be from 1 to 100",
        "c.yaml:3: monitors.watchdog-storm.guest_events: must be at least 1",
        "c.yaml:3: monitors.watchdog-storm.window: must be longer than nothing",
        "monitors.nova-service-down.degraded_after: must not be shorter than monitors.nova-service-down.after",
    ] {
        assert!(found.contains(wanted), "{wanted}: {found}");
    }
    let found = mistakes("monitors:\n  agent-silent:\n    afer: 60s\n").join("\n");
    assert!(found.contains("c.yaml:3: monitors.agent-silent.afer"), "{found}");
}

#[test]
fn who_a_pull_says_it_is_must_be_said_as_a_whole() {
    let pull = |more: &str| {
        mistakes(&format!(
            "sources:\n  pull:\n    - name: p\n      kind: prometheus\n      url: https://p\n      {more}\n"
        ))
        .join("\n")
    };
    assert_eq!(pull("tls: {ca_file: a, cert_file: b, key_file: c}"), "");
    assert_eq!(pull("auth: {username: a, password_file: b}"), "");
    for (more, wanted) in [
        (
            "tls: {cert_file: b, ca_file: a}",
            "c.yaml:6: sources.pull.0.tls: cert_file and key_file",
        ),
        (
            "tls: {cert_file: b, key_file: c}",
            "c.yaml:6: sources.pull.0.tls.ca_file: is needed",
        ),
        (
            "auth: {username: a}",
            "c.yaml:6: sources.pull.0.auth: username and password_file",
        ),
        (
            "auth: {token_file: t, username: a, password_file: b}",
            "c.yaml:6: sources.pull.0.auth: must be a token_file",
        ),
        (
            "auth: {password: hunter2}",
            "c.yaml:6: sources.pull.0.auth.password",
        ),
    ] {
        let found = pull(more);
        assert!(found.contains(wanted), "{more}: {found}");
        assert!(!found.contains("hunter2"), "{found}");
    }
}

#[test]
fn where_disks_are_is_said_of_a_host_its_rack_its_zone_or_all() {
    let text = "recovery:\n  ephemeral_backend: shared\n  \
        ephemeral_backend_of: {n1: rbd, bb/bb1: local, zone/a: rbd}\n";
    let recovery = read(text).unwrap().recovery;
    let of = |host: &str, bb, zone| recovery.backend_of(&HostName::new(host).unwrap(), bb, zone);
    assert_eq!(of("n1", Some("bb1"), Some("a")), EphemeralBackend::Rbd);
    assert_eq!(of("n2", Some("bb1"), Some("a")), EphemeralBackend::Local);
    assert_eq!(of("n3", Some("bb2"), Some("a")), EphemeralBackend::Rbd);
    assert_eq!(of("n4", None, None), EphemeralBackend::Shared);
}
