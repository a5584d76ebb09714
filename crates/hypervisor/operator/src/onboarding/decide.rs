// SPDX-License-Identifier: Apache-2.0
//! The judgement on a new host: registered, prepared, tested, handed over. Each stage says what
//! it waits for, every test is counted and told, and what was aborted can be started again.

use std::time::Duration;

use cobaltcore_api::conditions::HypervisorCondition;
use cobaltcore_api::reasons::{AggregatesUpdatedReason, OnboardingReason};
use cobaltcore_api::{Maintenance, OnboardingProgress};
use cobaltcore_kit::controller::Next;
use jiff::Timestamp;

use super::model::{Failure, Identity, Lookup, Snapshot, Step, TestServer, Word};
use crate::look::{Says, Statements, after, age, message, reason, says, since, time, until};

const ONBOARDING: HypervisorCondition = HypervisorCondition::Onboarding;
const BY_LIFECYCLE: &str = "Aborted due to LifecycleEnabled being false";
const TESTING: &str = "Running onboarding tests";
const BY_TERMINATION: &str = "Aborted due to MaintenanceTermination";
/// Between two looks while a host is not registered.
const REGISTER: Duration = Duration::from_secs(15);
/// Between two looks while a test runs.
const TEST: Duration = Duration::from_secs(5);

/// What a decision comes to.
#[derive(Clone, Debug)]
pub struct Decision {
    /// What to do, in order.
    pub steps: Vec<Step>,
    /// The condition.
    pub conditions: Statements,
    /// Who the host is in Nova.
    pub identity: Identity,
    /// How far it got.
    pub progress: OnboardingProgress,
    /// When to look again.
    pub next: Next,
}

impl Decision {
    fn say(&mut self, holds: bool, reason: OnboardingReason, text: impl Into<String>) {
        self.conditions.say(ONBOARDING, holds, reason, text);
    }

    fn report(&mut self) {
        if !self.steps.contains(&Step::Report) {
            self.steps.push(Step::Report);
        }
    }

    fn tell(&mut self, word: Word) {
        self.steps.push(Step::Tell(word));
    }
}

/// Where onboarding stands, by its condition.
fn stage(snapshot: &Snapshot) -> (Says, Option<OnboardingReason>) {
    (
        says(&snapshot.conditions, ONBOARDING),
        OnboardingReason::parse(reason(&snapshot.conditions, ONBOARDING)),
    )
}

/// Whether test servers have to be looked for: while a test may exist.
pub fn asks_servers(snapshot: &Snapshot) -> bool {
    match stage(snapshot) {
        (Says::Yes, Some(OnboardingReason::Testing | OnboardingReason::Aborted)) => true,
        (Says::Yes, _) => ending(snapshot).is_some(),
        _ => false,
    }
}

/// Why onboarding has to end, if so.
fn ending(snapshot: &Snapshot) -> Option<&'static str> {
    if snapshot.mode == Maintenance::Termination {
        Some(BY_TERMINATION)
    } else if snapshot.lifecycle {
        None
    } else {
        Some(BY_LIFECYCLE)
    }
}

/// Decides what to do about one host.
pub fn decide(snapshot: &Snapshot) -> Decision {
    let mut decision = Decision {
        steps: Vec::new(),
        conditions: Statements::again(&snapshot.conditions, &[ONBOARDING]),
        identity: snapshot.identity.clone(),
        progress: snapshot.progress.clone(),
        next: Next::OnChange,
    };
    if says(&snapshot.conditions, HypervisorCondition::Offboarded) == Says::Yes {
        // The host is nobody in Nova any more.
        decision.identity = Identity::default();
        decision.report();
        return decision;
    }
    if let Some(text) = ending(snapshot) {
        abort(snapshot, &mut decision, text);
        return decision;
    }
    let (status, reason) = stage(snapshot);
    let by_lifecycle = status == Says::No && message(&snapshot.conditions, ONBOARDING) == BY_LIFECYCLE;
    if snapshot.restart {
        decision.steps.push(Step::TakeRestart);
    }
    let aborted = status != Says::Nothing && reason == Some(OnboardingReason::Aborted);
    if (snapshot.restart && reason != Some(OnboardingReason::Succeeded)) || by_lifecycle {
        decision.progress = OnboardingProgress {
            started_at: Some(time(snapshot.now)),
            ..OnboardingProgress::default()
        };
        begin(snapshot, &mut decision);
        return decision;
    }
    if !snapshot.identity.is_known() || status == Says::Nothing {
        if !aborted {
            begin(snapshot, &mut decision);
        }
        return decision;
    }
    match (status, reason) {
        (Says::Yes, Some(OnboardingReason::Initial)) => initial(snapshot, &mut decision),
        (Says::Yes, Some(OnboardingReason::Testing)) if snapshot.skip_tests => {
            clean(snapshot, &mut decision);
        }
        (Says::Yes, Some(OnboardingReason::Testing)) => test(snapshot, &mut decision),
        (Says::Yes, Some(OnboardingReason::Handover)) => hand_over(snapshot, &mut decision),
        (Says::Yes, Some(OnboardingReason::Aborted)) => {
            let text = message(&snapshot.conditions, ONBOARDING).to_owned();
            finish_abort(snapshot, &mut decision, &text);
        }
        _ => {}
    }
    decision
}

fn started(snapshot: &Snapshot) -> Timestamp {
    let started = snapshot.progress.started_at.as_ref();
    started.map_or(snapshot.created, |started| started.0)
}

fn overdue(snapshot: &Snapshot) -> bool {
    age(snapshot.now, started(snapshot)) > snapshot.settings.register_timeout
}

/// Finds the host in Nova. Its ids and the first stage become visible in one write, so that no
/// other controller ever sees a registered host that nobody tests.
fn begin(snapshot: &Snapshot, decision: &mut Decision) {
    if decision.progress.started_at.is_none() {
        decision.progress.started_at = Some(time(snapshot.created));
    }
    let known = snapshot.identity.is_known().then_some(&snapshot.identity);
    let why = match (known, &snapshot.lookup) {
        (Some(identity), _) | (None, Lookup::Found(identity)) => {
            decision.identity = identity.clone();
            decision.say(true, OnboardingReason::Initial, "Initial onboarding");
            decision.tell(Word::Stage("registered in nova, onboarding begins".to_owned()));
            decision.report();
            decision.next = Next::After(REGISTER);
            return;
        }
        (None, Lookup::Unasked | Lookup::Absent) => "nova-compute did not register the host".to_owned(),
        (None, Lookup::Trouble(error)) => format!("nova could not be asked: {error}"),
        (None, Lookup::Ambiguous(names)) => {
            format!("more than one hypervisor could be meant: {}", names.join(", "))
        }
    };
    decision.report();
    decision.next = Next::After(REGISTER);
    // No answer is no refusal: a cloud that is away for long ends nobody's onboarding.
    let unanswered = matches!(snapshot.lookup, Lookup::Trouble(_));
    if overdue(snapshot) && !snapshot.restart && !unanswered {
        give_up(decision, format!("Aborted: {why}"));
    } else if unanswered || matches!(snapshot.lookup, Lookup::Ambiguous(_)) {
        decision.say(true, OnboardingReason::Initial, format!("Not started: {why}"));
    } else {
        // Nova simply does not know the host yet; without the condition the host counts as new.
        decision.conditions.drop(ONBOARDING);
    }
}

/// Waits for the test aggregates, then opens the host to tests.
fn initial(snapshot: &Snapshot, decision: &mut Decision) {
    let wait = |snapshot: &Snapshot, decision: &mut Decision, text: String| {
        if overdue(snapshot) {
            give_up(decision, format!("Aborted: {text}"));
        } else {
            decision.say(true, OnboardingReason::Initial, text);
            decision.report();
            decision.next = Next::After(REGISTER);
        }
    };
    let Some(zone) = &snapshot.zone else {
        let text = "the node has no zone label, and tests need a zone".to_owned();
        return wait(snapshot, decision, text);
    };
    let mut want = vec![zone.as_str(), snapshot.settings.test_aggregate.as_str()];
    let mut have: Vec<&str> = snapshot.aggregates.iter().map(String::as_str).collect();
    want.sort_unstable();
    want.dedup();
    have.sort_unstable();
    if want != have {
        let updated = HypervisorCondition::AggregatesUpdated;
        let failed = reason(&snapshot.conditions, updated) == AggregatesUpdatedReason::Failed.as_str();
        let text = if failed {
            format!(
                "Waiting for the test aggregates: {}",
                message(&snapshot.conditions, updated)
            )
        } else {
            format!("Waiting for the aggregates {}", want.join(", "))
        };
        return wait(snapshot, decision, text);
    }
    decision.steps.push(Step::Enable);
    decision.say(true, OnboardingReason::Testing, TESTING);
    decision.tell(Word::Stage("service enabled, testing".to_owned()));
    decision.report();
    decision.next = Next::After(Duration::from_secs(1));
}

/// What has to hold on the host before a test says anything: what was found, or what is not met.
fn checks(snapshot: &Snapshot) -> Result<Vec<String>, String> {
    let mut met = Vec::new();
    let connection = HypervisorCondition::LibVirtConnection;
    match says(&snapshot.conditions, connection) {
        Says::Yes => met.push(format!("libvirt {} connected", snapshot.libvirt)),
        // Hosts without our node agent are proven by the test server alone.
        Says::Nothing => {}
        Says::No | Says::Unsure => {
            let text = message(&snapshot.conditions, connection);
            return Err(format!("Waiting for libvirt: {text}"));
        }
    }
    let network = HypervisorCondition::NetworkReady;
    let text = message(&snapshot.conditions, network);
    match says(&snapshot.conditions, network) {
        Says::Yes => met.push(format!("network {text}")),
        Says::Nothing if !snapshot.network_agents => {}
        Says::Nothing => return Err("Waiting for the network: nothing is known of it yet".to_owned()),
        Says::No | Says::Unsure => return Err(format!("Waiting for the network: {text}")),
    }
    let min = &snapshot.settings.min_libvirt;
    if !min.is_empty() && version(&snapshot.libvirt) < version(min) {
        let have = if snapshot.libvirt.is_empty() {
            "unknown"
        } else {
            &snapshot.libvirt
        };
        return Err(format!("libvirt is {have}, at least {min} is needed"));
    }
    Ok(met)
}

fn version(text: &str) -> Vec<u64> {
    text.split(['.', '-'])
        .map_while(|part| part.parse().ok())
        .collect()
}

fn test(snapshot: &Snapshot, decision: &mut Decision) {
    decision.next = Next::After(TEST);
    if let Some(failure) = &snapshot.failure {
        failed(snapshot, decision, failure, None);
        return;
    }
    let Some(servers) = &snapshot.servers else {
        return;
    };
    for stray in servers.iter().filter(|server| !server.expected) {
        decision.steps.push(Step::Delete(stray.id.clone()));
    }
    match servers.iter().find(|server| server.expected) {
        Some(server) => judge(snapshot, decision, server),
        None => create(snapshot, decision),
    }
}

fn create(snapshot: &Snapshot, decision: &mut Decision) {
    let wait = snapshot
        .failed_at
        .map(|at| until(snapshot.now, after(at, snapshot.settings.retry_interval)))
        .filter(|wait| !wait.is_zero());
    if let Some(wait) = wait {
        decision.next = Next::After(wait);
        return;
    }
    let met = match checks(snapshot) {
        Ok(met) => met,
        Err(text) => {
            let limit = snapshot.settings.register_timeout * 2;
            if age(snapshot.now, started(snapshot)) > limit {
                give_up(decision, format!("Aborted: {text}"));
                return;
            }
            decision.say(true, OnboardingReason::Testing, text);
            decision.report();
            return;
        }
    };
    if decision.progress.last_failure.is_empty() {
        let mut text = TESTING.to_owned();
        if !met.is_empty() {
            text += &format!(" ({})", met.join("; "));
        }
        decision.say(true, OnboardingReason::Testing, text);
    }
    decision.progress.server_id = String::new();
    decision.report();
    decision.steps.push(Step::Create);
    decision.next = Next::After(Duration::from_secs(1));
}

/// Judges the test server.
fn judge(snapshot: &Snapshot, decision: &mut Decision, server: &TestServer) {
    let id = &server.id;
    decision.progress.server_id.clone_from(id);
    decision.report();
    let fail = |decision: &mut Decision, text: String| {
        let failure = Failure { text, counts: true };
        failed(snapshot, decision, &failure, Some(id));
    };
    let limits = &snapshot.settings;
    match server.status.as_str() {
        "ERROR" => {
            let fault = server.fault.as_deref().unwrap_or("nova names no fault");
            fail(decision, format!("Server ended up in error state: {fault}"));
        }
        "ACTIVE" => match &server.console {
            Some(Ok(console)) if proves(snapshot, server, console) => clean(snapshot, decision),
            answer => {
                let launched = server.launched.or(server.created);
                if let Some(at) = launched
                    && age(snapshot.now, at) > limits.boot_limit
                {
                    fail(decision, format!("timeout waiting for console output since {at}"));
                } else if let Some(Err(error)) = answer {
                    let text = format!("could not get console output {error} (server {id})");
                    decision.say(true, OnboardingReason::Testing, text);
                }
            }
        },
        status => {
            let limit = limits.build_limit;
            if server.created.is_some_and(|at| age(snapshot.now, at) > limit) {
                fail(
                    decision,
                    format!("server is in {status} for more than {} s", limit.as_secs()),
                );
            }
        }
    }
}

/// Whether the console belongs to this very server: it shows the host name it was given, or its
/// id, which firmware prints as the machine's serial number.
fn proves(snapshot: &Snapshot, server: &TestServer, console: &str) -> bool {
    console.contains(snapshot.token.as_str()) || console.contains(server.id.as_str())
}

/// A test failed: it is told and counted once, its server goes, and another one may follow.
fn failed(snapshot: &Snapshot, decision: &mut Decision, failure: &Failure, server: Option<&str>) {
    decision.report();
    if let Some(id) = server {
        decision.steps.push(Step::Delete(id.to_owned()));
    }
    let which = server.map(|id| format!(" (server {id})")).unwrap_or_default();
    let text = format!("{}{which}", failure.text);
    let counted = server.is_some_and(|id| snapshot.progress.last_failure.contains(id));
    if counted {
        // Its deletion is under way.
        return;
    }
    decision.steps.push(Step::FailedAt(snapshot.now));
    let max = snapshot.settings.max_attempts;
    let before = snapshot.progress.attempts.unwrap_or_default();
    let attempts = before + i64::from(failure.counts);
    decision.progress.attempts = Some(attempts);
    decision.progress.last_failure.clone_from(&text);
    server
        .unwrap_or_default()
        .clone_into(&mut decision.progress.server_id);
    decision.tell(Word::TestFailed(text.clone()));
    if attempts >= i64::from(max) {
        let text = format!("Aborted after {attempts} failed tests: {text}");
        decision.say(true, OnboardingReason::Aborted, text);
        decision.next = Next::After(Duration::from_secs(1));
        return;
    }
    let text = format!("{text}; test {attempts} of {max} failed");
    decision.say(true, OnboardingReason::Testing, text);
    decision.next = Next::After(TEST);
}

/// The test is passed or left out: its servers go, then others take over.
fn clean(snapshot: &Snapshot, decision: &mut Decision) {
    decision.next = Next::After(Duration::from_secs(1));
    let Some(servers) = &snapshot.servers else {
        return;
    };
    for server in servers {
        decision.steps.push(Step::Delete(server.id.clone()));
    }
    decision.progress.last_failure = String::new();
    decision.progress.server_id = String::new();
    decision.say(
        true,
        OnboardingReason::Handover,
        "Waiting for other controllers to take over",
    );
    decision.tell(Word::Stage("tests passed, handing over".to_owned()));
    // Servers are gone before the word is given.
    decision.steps.retain(|step| *step != Step::Report);
    decision.steps.push(Step::Report);
}

fn hand_over(snapshot: &Snapshot, decision: &mut Decision) {
    let conditions = &snapshot.conditions;
    let holds = |type_| says(conditions, type_) == Says::Yes;
    let wants_ha = snapshot.settings.ha && snapshot.high_availability;
    let waiting = if !holds(HypervisorCondition::TraitsUpdated) {
        Some("Waiting for traits")
    } else if !holds(HypervisorCondition::AggregatesUpdated) {
        Some("Waiting for aggregates")
    } else if wants_ha && !holds(HypervisorCondition::HaEnabled) {
        Some("Waiting for the HA service")
    } else {
        None
    };
    let Some(text) = waiting else {
        decision.progress.completed_at = Some(time(snapshot.now));
        decision.progress.last_failure = String::new();
        decision.say(false, OnboardingReason::Succeeded, "Onboarding completed");
        decision.tell(Word::Succeeded);
        decision.report();
        return;
    };
    let late = since(conditions, ONBOARDING)
        .is_some_and(|since| age(snapshot.now, since) > snapshot.settings.ha_timeout);
    if late && text.contains("HA") && message(conditions, ONBOARDING) != text {
        decision.tell(Word::HaMissing);
    }
    decision.say(true, OnboardingReason::Handover, text);
    decision.report();
    decision.next = Next::After(REGISTER);
}

/// Ends a run that cannot go on by itself.
fn give_up(decision: &mut Decision, text: String) {
    decision.tell(Word::Aborted(text.clone()));
    decision.progress.last_failure.clone_from(&text);
    decision.say(false, OnboardingReason::Aborted, text);
    decision.report();
    decision.next = Next::OnChange;
}

/// Ends a run because of the object's spec. A run that had succeeded stays so, unless the host
/// is leaving.
fn abort(snapshot: &Snapshot, decision: &mut Decision, text: &str) {
    let (status, reason) = stage(snapshot);
    let succeeded = reason == Some(OnboardingReason::Succeeded);
    let aborted = status == Says::No && reason == Some(OnboardingReason::Aborted);
    if status == Says::Nothing || aborted || (succeeded && text == BY_LIFECYCLE) {
        if snapshot.identity.is_known() {
            decision.report();
        }
        return;
    }
    if succeeded {
        decision.say(false, OnboardingReason::Aborted, text);
        decision.report();
        return;
    }
    finish_abort(snapshot, decision, text);
}

/// Aborted is final once no test server is left.
fn finish_abort(snapshot: &Snapshot, decision: &mut Decision, text: &str) {
    let Some(servers) = &snapshot.servers else {
        decision.next = Next::After(TEST);
        return;
    };
    if servers.is_empty() {
        decision.tell(Word::Aborted(text.to_owned()));
        decision.say(false, OnboardingReason::Aborted, text);
        decision.report();
        return;
    }
    decision.say(true, OnboardingReason::Aborted, text);
    decision.report();
    for server in servers {
        decision.steps.push(Step::Delete(server.id.clone()));
    }
    decision.next = Next::After(TEST);
}
