// SPDX-License-Identifier: Apache-2.0
//! The settings as people give them.

use clap::{Args as _, FromArgMatches as _};
use cobaltcore_kit::config::Config as Layers;

use super::*;

fn load(flags: &[&str], variables: &[(&str, &str)]) -> Result<Config, ConfigErrors> {
    let command = Flags::augment_args(clap::Command::new("hypervisor-operator"));
    let matches = command.try_get_matches_from(std::iter::once(&"hypervisor-operator").chain(flags));
    let flags = Flags::from_arg_matches(&matches.unwrap()).unwrap();
    let variables = variables.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned()));
    flags
        .layers(Layers::new().variables("HVO", variables))
        .load_checked(Config::check)
}

#[test]
fn flags_of_the_running_system_are_understood() {
    let config = load(
        &[
            "--metrics-bind-address=:8443",
            "--leader-elect",
            "--metrics-secure=false",
            "--label-selector",
            "zone in (a,b)",
            "--agent-namespaces=monsoon3, monsoon3 ,kube-system",
            "--zap-log-level=debug",
        ],
        &[],
    )
    .unwrap();
    assert!(config.leader_elect && !config.metrics_secure);
    assert_eq!(config.metrics_bind_address, ":8443");
    assert_eq!(config.label_selector, "zone in (a,b)");
    assert_eq!(config.agent_namespaces(), ["monsoon3", "kube-system"]);
    assert_eq!(config.certificate_namespace, "monsoon3");
}

#[test]
fn every_setting_has_a_variable_and_flags_win() {
    let variables = [
        ("HVO_AGENT_NAMESPACES", "a"),
        ("HVO_EVICTION_TRAIT_CONCURRENCY", "CUSTOM_A=1,CUSTOM_B=3"),
        ("HVO_NODE_UNHEALTHY_MAX", "3"),
        ("HVO_HA_MODE", "off"),
        ("HVO_WORKERS", "2"),
    ];
    let config = load(&["--workers=4", "--drift-interval=90s"], &variables).unwrap();
    assert_eq!(config.workers, 4);
    assert_eq!(config.ha_mode, HaMode::Off);
    assert_eq!(config.node_unhealthy_max, Share::Count(3));
    assert_eq!(config.eviction_trait_concurrency.len(), 2);
    assert_eq!(config.drift_interval.0, Duration::from_secs(90));
}

#[test]
fn mistakes_are_told_together_with_what_to_write() {
    let error = load(
        &[
            "--certificate-namespace=",
            "--eviction-concurrency=0",
            "--label-selector==x",
        ],
        &[],
    )
    .unwrap_err()
    .to_string();
    for part in [
        "--agent-namespaces=a,b",
        "flag --certificate-namespace",
        "must be at least 1",
        "names no label",
    ] {
        assert!(error.contains(part), "{part} in {error}");
    }
}

#[test]
fn defaults_are_those_of_the_documents() {
    let config = load(&["--agent-namespaces=a"], &[]).unwrap();
    assert!(config.manage_termination && config.offboarding_finalizer && config.eviction_confirm_resize);
    assert_eq!((config.eviction_concurrency, config.workers), (2, 8));
    assert_eq!(config.test_aggregate, "tenant_filter_tests");
    assert_eq!(config.ha_disable_timeout.0, Duration::from_mins(15));
    assert_eq!(config.node_unhealthy_max, Share::Percent(10));
    let shown: Vec<String> = SETTINGS.iter().map(|setting| (setting.default)()).collect();
    assert!(shown.contains(&"delegated".to_owned()) && shown.iter().any(|text| text.starts_with("10m")));
}
