// SPDX-License-Identifier: Apache-2.0
//! What the operator can be told. Each setting is written once, in [`Config`], and can be given
//! in a file, as a variable `HVO_...` or as a flag; the flags of the running system keep their
//! names. Mistakes are reported all at once, before anything starts.

mod flags;
mod kinds;
mod selector;

pub use flags::Flags;
pub use kinds::{CertificateMode, GardenerMode, GroupsSource, HaMode, Share, TraitConcurrency};
pub use selector::{lease_name, selector_keys};

use std::time::Duration;

use cobaltcore_kit::config::{ConfigErrors, HumanDuration, Mistakes};
use serde::Deserialize;

const fn minutes(count: u64) -> HumanDuration {
    HumanDuration(Duration::from_mins(count))
}

const fn seconds(count: u64) -> HumanDuration {
    HumanDuration(Duration::from_secs(count))
}

/// One setting as the command line shows it.
pub(crate) struct Setting {
    /// The name in the configuration, in snake case.
    pub(crate) name: &'static str,
    pub(crate) help: &'static str,
    /// Whether the flag may stand alone.
    pub(crate) switch: bool,
    pub(crate) default: fn() -> String,
}

macro_rules! settings {
    ($($help:literal $how:ident $field:ident: $kind:ty = $default:expr;)+) => {
        /// The settings of the operator.
        #[derive(Clone, Debug, Deserialize)]
        #[serde(rename_all = "camelCase", default, deny_unknown_fields)]
        pub struct Config {
            $(#[doc = $help] pub $field: $kind,)+
        }

        impl Default for Config {
            fn default() -> Self {
                Self { $($field: $default,)+ }
            }
        }

        /// Every setting, in order.
        pub(crate) const SETTINGS: &[Setting] = &[$(Setting {
            name: stringify!($field),
            help: $help,
            switch: settings!(@$how),
            default: || kinds::Shown::shown(&Config::default().$field),
        },)+];
    };
    (@switch) => { true };
    (@value) => { false };
}

settings! {
    // the running system's own
    "Address of the metrics endpoint, 0 for none" value metrics_bind_address: String = "0".into();
    "Serve metrics over HTTPS to whoever Kubernetes allows" switch metrics_secure: bool = true;
    "Address of the health endpoints" value health_probe_bind_address: String = ":8081".into();
    "Work only while holding the lease" switch leader_elect: bool = false;
    "Namespace of the lease; the pod's own when empty" value leader_elect_namespace: String = String::new();
    "Accepted for compatibility; served ports speak HTTP/1.1" switch enable_http2: bool = false;
    "Look after matching Nodes and Hypervisors only" value label_selector: String = String::new();
    "Namespaces whose pods must leave a node before it is offboarded (required)"
        value agent_namespaces: Vec<String> = Vec::new();
    "Namespace of libvirt certificates" value certificate_namespace: String = "monsoon3".into();
    "Issuer of libvirt certificates"
        value certificate_issuer_name: String = "nova-hypervisor-agents-ca-issuer".into();

    // nodes
    "Set maintenance to termination when a node is terminating" switch manage_termination: bool = true;
    "How long a node may be unhealthy before its servers are moved, 0 for ever"
        value node_unhealthy_timeout: HumanDuration = minutes(10);
    "Hypervisors of a zone put into maintenance for their node's health at the same time"
        value node_unhealthy_max: Share = Share::Percent(10);
    "Put the finalizer on hypervisors that are registered in Nova"
        switch offboarding_finalizer: bool = true;
    "Keep the Hypervisor of a host that was offboarded" switch keep_decommissioned: bool = false;
    "Signal readiness and drain permission to Gardener: auto, on or off"
        value gardener: GardenerMode = GardenerMode::Auto;
    "Image of the signalling pod; the operator's own when empty" value signal_image: String = String::new();
    "Request libvirt certificates: auto, always or never"
        value certificates: CertificateMode = CertificateMode::Auto;
    "Kind of the issuer: Issuer or ClusterIssuer" value certificate_issuer_kind: String = "Issuer".into();
    "Let libvirt certificates sign others, as before" switch certificate_cert_sign: bool = false;

    // high availability
    "Who enables high availability: delegated, direct or off" value ha_mode: HaMode = HaMode::Delegated;
    "How long the HA service may take to enable a host" value ha_enable_timeout: HumanDuration = minutes(10);
    "How long the HA service may take to let a host go" value ha_disable_timeout: HumanDuration = minutes(15);
    "Address of the HA service in direct mode" value ha_service_url: String = String::new();
    "File with the bearer token for the HA service" value ha_service_token_file: String = String::new();
    "File with the certificates to trust for the HA service" value ha_service_ca_file: String = String::new();

    // onboarding
    "Test servers to try before onboarding is aborted" value onboarding_max_attempts: u32 = 3;
    "Pause between two test servers" value onboarding_retry_interval: HumanDuration = minutes(1);
    "How long a host may take to register in Nova" value onboarding_register_timeout: HumanDuration = minutes(30);
    "Oldest libvirt to accept, empty for any" value min_libvirt_version: String = String::new();
    "Project of test servers" value test_project: String = "test".into();
    "Domain of that project" value test_project_domain: String = "cc3test".into();
    "Image of test servers" value test_image: String = "cirros-kvm".into();
    "Flavor of test servers, by ID or name" value test_flavor: String = "1".into();
    "Network of test servers, by ID or name; the first that is not shared when empty"
        value test_network: String = String::new();
    "GiB of a test server's volume; 0 boots from the image" value test_volume_size: u32 = 64;
    "Type of that volume" value test_volume_type: String = "premium".into();
    "Aggregate that only the test project may use" value test_aggregate: String = "tenant_filter_tests".into();
    "How long a test server may be built" value test_build_timeout: HumanDuration = minutes(10);
    "How long a test server may boot" value test_boot_timeout: HumanDuration = minutes(5);
    "Bridges a host must have before it is tested"
        value test_bridges: Vec<String> = vec!["br-int".into(), "br-ex".into()];

    // evictions
    "Servers moved off one host at the same time" value eviction_concurrency: u32 = 2;
    "The same over all hosts" value eviction_concurrency_total: u32 = 64;
    "The same for hosts with a trait, as TRAIT=n" value eviction_trait_concurrency: Vec<TraitConcurrency> = Vec::new();
    "Confirm resizes that stand in the way" switch eviction_confirm_resize: bool = true;
    "When a failed eviction is tried again, 0 for never" value eviction_retry_interval: HumanDuration = minutes(10);
    "How long one migration may take" value migration_timeout: HumanDuration = minutes(30);
    "How long one migration may go without progress" value migration_stall_timeout: HumanDuration = minutes(5);
    "How often one server is tried" value migration_max_attempts: u32 = 3;
    "Evacuate servers of hosts that were forced down" switch evacuate_down_hosts: bool = false;
    "How often Nova and Placement are compared with what is wanted" value drift_interval: HumanDuration = minutes(10);
    "Where aggregates and traits come from: lists or spec.groups"
        value groups_source: GroupsSource = GroupsSource::Lists;

    // how it runs
    "Objects each controller works on at the same time" value workers: u16 = 8;
    "Longest time for one call to OpenStack" value openstack_timeout: HumanDuration = seconds(30);
    "Calls to OpenStack at the same time" value openstack_max_inflight: u32 = 16;
}

impl Config {
    /// What is wrong with values that are well-formed by themselves.
    pub(crate) fn check(&self, mistakes: &mut Mistakes<'_>) {
        if self.agent_namespaces.iter().all(|name| name.trim().is_empty()) {
            mistakes.add(
                "agentNamespaces",
                "name the namespaces of nova-compute and the network agents: --agent-namespaces=a,b",
            );
        }
        for (key, value) in [
            ("certificateNamespace", &self.certificate_namespace),
            ("certificateIssuerName", &self.certificate_issuer_name),
        ] {
            if value.is_empty() {
                mistakes.add(key, "must not be empty");
            }
        }
        if !matches!(self.certificate_issuer_kind.as_str(), "Issuer" | "ClusterIssuer") {
            mistakes.add("certificateIssuerKind", "must be Issuer or ClusterIssuer");
        }
        if let Err(reason) = selector_keys(&self.label_selector) {
            mistakes.add("labelSelector", reason);
        }
        for (key, value) in [
            ("evictionConcurrency", self.eviction_concurrency),
            ("evictionConcurrencyTotal", self.eviction_concurrency_total),
            ("migrationMaxAttempts", self.migration_max_attempts),
            ("onboardingMaxAttempts", self.onboarding_max_attempts),
            ("openstackMaxInflight", self.openstack_max_inflight),
            ("workers", self.workers.into()),
        ] {
            if value == 0 {
                mistakes.add(key, "must be at least 1");
            }
        }
    }

    /// The namespaces of agents, each once.
    pub fn agent_namespaces(&self) -> Vec<String> {
        let mut names: Vec<String> = Vec::new();
        for name in self.agent_namespaces.iter().map(|name| name.trim()) {
            if !name.is_empty() && !names.iter().any(|known| known == name) {
                names.push(name.to_owned());
            }
        }
        names
    }

    /// Reads the configuration from file, environment and flags.
    pub fn load(flags: &Flags) -> Result<Self, ConfigErrors> {
        flags
            .layers(cobaltcore_kit::config::Config::new().environment("HVO"))
            .load_checked(Self::check)
    }
}

#[cfg(test)]
mod tests;
