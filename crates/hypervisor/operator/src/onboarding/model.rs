// SPDX-License-Identifier: Apache-2.0
//! What onboarding judges by: the host in Kubernetes, in Nova, and its test server.

use std::time::Duration;

use cobaltcore_api::{Maintenance, OnboardingProgress};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

/// Who a host is in Nova.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    /// The hypervisor.
    pub hypervisor_id: String,
    /// The compute service.
    pub service_id: String,
    /// The host of the service.
    pub compute_host: String,
    /// The hostname of the hypervisor.
    pub hypervisor_hostname: String,
}

impl Identity {
    /// Whether both ids are known.
    pub fn is_known(&self) -> bool {
        !self.hypervisor_id.is_empty() && !self.service_id.is_empty()
    }
}

/// What Nova says about a host that is not registered yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lookup {
    /// Not asked.
    Unasked,
    /// Nova could not be asked.
    Trouble(String),
    /// Not there yet.
    Absent,
    /// More than one could be meant.
    Ambiguous(Vec<String>),
    /// This one.
    Found(Identity),
}

/// Chooses the hypervisor that is meant by `names`, by full name first and by short name only if
/// that is unmistakable.
pub fn choose(names: &[&str], candidates: &[Identity]) -> Lookup {
    let meant = |matches: &dyn Fn(&Identity, &str) -> bool| -> Vec<&Identity> {
        candidates
            .iter()
            .filter(|one| names.iter().any(|name| !name.is_empty() && matches(one, name)))
            .collect()
    };
    let short = |text: &str| text.split('.').next().unwrap_or_default().to_owned();
    let full = meant(&|one, name| one.hypervisor_hostname == name || one.compute_host == name);
    let found = if full.is_empty() {
        meant(&|one, name| short(&one.hypervisor_hostname) == short(name))
    } else {
        full
    };
    match found.as_slice() {
        [] => Lookup::Absent,
        [one] => Lookup::Found((*one).clone()),
        many => Lookup::Ambiguous(many.iter().map(|one| one.hypervisor_hostname.clone()).collect()),
    }
}

/// A test server of this host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TestServer {
    /// Its id.
    pub id: String,
    /// Whether it is the one expected, by its exact name.
    pub expected: bool,
    /// Nova's word for its state.
    pub status: String,
    /// What broke it.
    pub fault: Option<String>,
    /// When it was made.
    pub created: Option<Timestamp>,
    /// When it began to run.
    pub launched: Option<Timestamp>,
    /// What its console shows, or why that cannot be told; nothing if it was not asked.
    pub console: Option<Result<String, String>>,
}

/// How hosts are tested.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Tests per onboarding.
    pub max_attempts: u32,
    /// Pause between two tests.
    pub retry_interval: Duration,
    /// How long registration and its like may take.
    pub register_timeout: Duration,
    /// How long a test server may be built.
    pub build_limit: Duration,
    /// How long a test server may boot.
    pub boot_limit: Duration,
    /// The aggregate only tests may use.
    pub test_aggregate: String,
    /// The oldest libvirt that will do; empty for any.
    pub min_libvirt: String,
    /// Whether instance HA is somebody's business at all.
    pub ha: bool,
    /// How long the HA service may take.
    pub ha_timeout: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            max_attempts: 3,
            retry_interval: Duration::from_mins(1),
            register_timeout: Duration::from_mins(30),
            build_limit: Duration::from_mins(10),
            boot_limit: Duration::from_mins(5),
            test_aggregate: "tenant_filter_tests".to_owned(),
            min_libvirt: String::new(),
            ha: true,
            ha_timeout: Duration::from_mins(10),
        }
    }
}

/// A request for a test server that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// What was said.
    pub text: String,
    /// Whether it would fail again the same way, so that it counts as an attempt.
    pub counts: bool,
}

/// Everything a decision is made from.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// The time.
    pub now: Timestamp,
    /// How hosts are tested.
    pub settings: Settings,
    /// When the Hypervisor was made.
    pub created: Timestamp,
    /// Whether the Hypervisor is managed.
    pub lifecycle: bool,
    /// The mode.
    pub mode: Maintenance,
    /// Its zone.
    pub zone: Option<String>,
    /// Whether tests are left out.
    pub skip_tests: bool,
    /// Whether instance HA is wanted.
    pub high_availability: bool,
    /// Who it is in Nova, as known.
    pub identity: Identity,
    /// What Nova says, if it is not known.
    pub lookup: Lookup,
    /// The Hypervisor's conditions.
    pub conditions: Vec<Condition>,
    /// Names of the aggregates last applied.
    pub aggregates: Vec<String>,
    /// The version of libvirt, as the node agent reports it.
    pub libvirt: String,
    /// Whether the cluster has network agents, so that one has to vouch for the host.
    pub network_agents: bool,
    /// How far it got.
    pub progress: OnboardingProgress,
    /// Whether a person asks for a fresh start.
    pub restart: bool,
    /// The host name given to the test server, which its console has to show.
    pub token: String,
    /// Test servers of this host; nothing if that was not asked.
    pub servers: Option<Vec<TestServer>>,
    /// What went wrong with the last request for a test server.
    pub failure: Option<Failure>,
    /// When the last test failed.
    pub failed_at: Option<Timestamp>,
}

/// Something to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Write the report.
    Report,
    /// Take the request for a fresh start off, it has been answered.
    TakeRestart,
    /// Put the service into scheduling and clear `forced_down`.
    Enable,
    /// Make the test server.
    Create,
    /// Remove a test server.
    Delete(String),
    /// Remember when the last test failed.
    FailedAt(Timestamp),
    /// Tell people.
    Tell(Word),
}

/// Something people may want to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Word {
    /// Another stage began.
    Stage(String),
    /// A test failed.
    TestFailed(String),
    /// Onboarding ended without success.
    Aborted(String),
    /// Onboarding is done.
    Succeeded,
    /// The HA service does not answer for this host.
    HaMissing,
}
