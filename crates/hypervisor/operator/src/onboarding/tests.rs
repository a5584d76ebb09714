// SPDX-License-Identifier: Apache-2.0
//! From the first sight of a host to production, and every way to end before.

use std::time::Duration;

use cobaltcore_api::conditions::HypervisorCondition;
use cobaltcore_api::reasons::OnboardingReason;
use cobaltcore_api::{Maintenance, OnboardingProgress};
use cobaltcore_kit::controller::Next;

use super::*;
use crate::look::{after, condition, noon, time};

fn identity() -> Identity {
    Identity {
        hypervisor_id: "hv".into(),
        service_id: "svc".into(),
        compute_host: "node1".into(),
        hypervisor_hostname: "node1.example".into(),
    }
}

fn snapshot(stage: Option<(&str, &str)>) -> Snapshot {
    Snapshot {
        now: noon(),
        settings: Settings::default(),
        created: noon(),
        lifecycle: true,
        mode: Maintenance::Off,
        zone: Some("z1".into()),
        skip_tests: false,
        high_availability: true,
        identity: if stage.is_some() {
            identity()
        } else {
            Identity::default()
        },
        lookup: Lookup::Unasked,
        conditions: stage
            .into_iter()
            .map(|(status, reason)| condition(HypervisorCondition::Onboarding, status, reason, ""))
            .collect(),
        aggregates: vec!["tenant_filter_tests".into(), "z1".into()],
        libvirt: "10.0.0".into(),
        network_agents: false,
        progress: OnboardingProgress::default(),
        restart: false,
        token: "ohooc-6c1f".into(),
        servers: Some(Vec::new()),
        failure: None,
        failed_at: None,
    }
}

fn said(decision: &Decision) -> (bool, String, String) {
    let said = decision.conditions.get(HypervisorCondition::Onboarding).unwrap();
    (
        said.is(true, &said.reason),
        said.reason.clone(),
        said.message.clone(),
    )
}

fn server(status: &str, console: Option<&str>) -> TestServer {
    TestServer {
        id: "11111111-0000-4000-8000-000000000001".into(),
        expected: true,
        status: status.to_owned(),
        fault: Some("No valid host".into()),
        created: Some(noon()),
        launched: Some(noon()),
        console: console.map(|text| Ok(text.to_owned())),
    }
}

#[test]
fn ids_and_the_first_stage_become_visible_in_one_write() {
    let mut new = snapshot(None);
    new.lookup = Lookup::Found(identity());
    let decision = decide(&new);
    assert_eq!(said(&decision).1, "Initial");
    assert_eq!(decision.identity, identity());
    assert_eq!(
        decision
            .steps
            .iter()
            .filter(|step| **step == Step::Report)
            .count(),
        1
    );
    new.lookup = Lookup::Absent;
    let waits = decide(&new);
    assert!(waits.conditions.get(HypervisorCondition::Onboarding).is_none());
    assert!(matches!(waits.next, Next::After(_)));
}

#[test]
fn full_names_beat_short_ones_and_what_is_unclear_is_refused() {
    let host = |name: &str| Identity {
        hypervisor_hostname: name.to_owned(),
        ..identity()
    };
    let table: &[(&str, &[&str], Option<&str>)] = &[
        ("node1", &["node10", "node1"], Some("node1")),
        ("node1.a", &["node1.b", "node1.a"], Some("node1.a")),
        ("node1", &["node1.example"], Some("node1.example")),
        ("node1", &["node10.example"], None),
    ];
    for (name, candidates, meant) in table {
        let candidates: Vec<Identity> = candidates
            .iter()
            .map(|name| Identity {
                compute_host: format!("{name}-service"),
                ..host(name)
            })
            .collect();
        match (choose(&[name], &candidates), meant) {
            (Lookup::Found(found), Some(meant)) => assert_eq!(found.hypervisor_hostname, *meant),
            (Lookup::Absent, None) => {}
            (other, _) => panic!("{name}: {other:?}"),
        }
    }
    let twins: Vec<Identity> = ["node1.a", "node1.b"]
        .iter()
        .map(|name| Identity {
            compute_host: (*name).to_owned(),
            ..host(name)
        })
        .collect();
    assert!(matches!(choose(&["node1"], &twins), Lookup::Ambiguous(names) if names.len() == 2));
}

#[test]
fn registration_zone_and_aggregates_have_a_time_limit() {
    type Edit = fn(&mut Snapshot);
    type Row = (Option<(&'static str, &'static str)>, Edit, &'static str);
    let table: &[Row] = &[
        (None, |s| s.lookup = Lookup::Absent, "did not register"),
        (
            None,
            |s| s.lookup = Lookup::Ambiguous(vec!["a".into(), "b".into()]),
            "a, b",
        ),
        (Some(("True", "Initial")), |s| s.zone = None, "zone label"),
        (
            Some(("True", "Initial")),
            |s| {
                s.aggregates.clear();
                let failed = "failed to apply aggregates: aggregates not found: [z1]";
                s.conditions.push(condition(
                    HypervisorCondition::AggregatesUpdated,
                    "False",
                    "Failed",
                    failed,
                ));
            },
            "aggregates not found: [z1]",
        ),
    ];
    for (stage, edit, text) in table {
        let mut late = snapshot(*stage);
        edit(&mut late);
        let early = decide(&late);
        assert!(matches!(early.next, Next::After(_)), "{text}");
        assert_ne!(
            early
                .conditions
                .get(HypervisorCondition::Onboarding)
                .map(|s| s.reason.clone()),
            Some("Aborted".into())
        );
        late.now = after(noon(), Duration::from_mins(31));
        let (holds, reason, message) = said(&decide(&late));
        assert_eq!((holds, reason.as_str()), (false, "Aborted"), "{text}");
        assert!(message.contains(text), "{message}");
    }
}

#[test]
fn a_cloud_that_does_not_answer_is_named_and_waited_for() {
    let mut waiting = snapshot(None);
    waiting.lookup = Lookup::Trouble("keystone is away".into());
    waiting.now = after(noon(), Duration::from_hours(3));
    let decision = decide(&waiting);
    assert!(matches!(decision.next, Next::After(_)));
    let text = "Not started: nova could not be asked: keystone is away";
    assert_eq!(said(&decision), (true, "Initial".into(), text.into()));
    // It answers, and does not know the host: nothing more is said than of any new host.
    waiting.now = noon();
    waiting.conditions = vec![condition(
        HypervisorCondition::Onboarding,
        "True",
        "Initial",
        text,
    )];
    waiting.lookup = Lookup::Absent;
    let absent = decide(&waiting);
    assert!(absent.conditions.get(HypervisorCondition::Onboarding).is_none());
    waiting.lookup = Lookup::Found(identity());
    assert_eq!(said(&decide(&waiting)).2, "Initial onboarding");
}

#[test]
fn the_service_is_enabled_once_the_test_aggregates_are_there() {
    let decision = decide(&snapshot(Some(("True", "Initial"))));
    assert_eq!(decision.steps.first(), Some(&Step::Enable));
    assert_eq!(said(&decision).1, "Testing");
    let mut early = snapshot(Some(("True", "Initial")));
    early.aggregates = vec!["z1".into()];
    assert!(!decide(&early).steps.contains(&Step::Enable));
}

#[test]
fn a_test_is_passed_by_what_the_console_shows_and_nothing_else() {
    for (console, passed) in [
        ("ohooc-6c1f login:", true),
        ("...11111111-0000-4000-8000-000000000001...", true),
        ("ohooc-7777 login:", false),
        ("", false),
    ] {
        let mut testing = snapshot(Some(("True", "Testing")));
        testing.servers = Some(vec![server("ACTIVE", Some(console))]);
        let decision = decide(&testing);
        assert_eq!(said(&decision).1 == "Handover", passed, "{console}");
        let removes = Step::Delete(server("", None).id);
        assert_eq!(decision.steps.contains(&removes), passed, "{console}");
        if passed {
            assert_eq!(
                decision.steps.last(),
                Some(&Step::Report),
                "gone before the word is given"
            );
        }
    }
}

#[test]
fn failed_tests_are_told_counted_once_and_end_in_aborted() {
    let mut testing = snapshot(Some(("True", "Testing")));
    for attempt in 1..=3 {
        let mut broken = server("ERROR", None);
        broken.id = format!("11111111-0000-4000-8000-00000000000{attempt}");
        testing.servers = Some(vec![broken.clone()]);
        testing.failed_at = None;
        let decision = decide(&testing);
        assert!(decision.steps.contains(&Step::Delete(broken.id.clone())));
        assert_eq!(decision.progress.attempts, Some(attempt));
        let (holds, reason, message) = said(&decision);
        assert!(holds);
        assert_eq!(reason, if attempt < 3 { "Testing" } else { "Aborted" });
        assert!(
            message.contains("No valid host") && message.contains(&broken.id),
            "{message}"
        );
        testing.progress = decision.progress.clone();
        let again = decide(&testing);
        assert_eq!(
            again.progress.attempts,
            Some(attempt),
            "the same server counts once"
        );
    }
    let mut aborting = snapshot(Some(("True", "Aborted")));
    aborting.servers = Some(vec![server("ERROR", None)]);
    assert!(said(&decide(&aborting)).0, "until the test server is gone");
    aborting.servers = Some(Vec::new());
    assert!(!said(&decide(&aborting)).0);
}

#[test]
fn neither_building_nor_booting_goes_on_for_ever() {
    for (status, minutes, text) in [("BUILD", 11, "BUILD"), ("ACTIVE", 6, "console output since")] {
        let mut testing = snapshot(Some(("True", "Testing")));
        testing.servers = Some(vec![server(status, None)]);
        assert_eq!(decide(&testing).progress.attempts, None);
        testing.now = after(noon(), Duration::from_mins(minutes));
        let decision = decide(&testing);
        assert_eq!(decision.progress.attempts, Some(1), "{status}");
        assert!(said(&decision).2.contains(text), "{}", said(&decision).2);
    }
}

#[test]
fn a_request_that_fails_is_visible_and_counts_only_if_it_would_fail_again() {
    for counts in [true, false] {
        let mut testing = snapshot(Some(("True", "Testing")));
        testing.failure = Some(Failure {
            text: "quota exceeded (req-1)".into(),
            counts,
        });
        let decision = decide(&testing);
        assert_eq!(decision.progress.attempts, Some(i64::from(counts)));
        assert!(said(&decision).2.contains("req-1"));
    }
    let mut waiting = snapshot(Some(("True", "Testing")));
    waiting.failed_at = Some(noon());
    assert!(
        !decide(&waiting).steps.contains(&Step::Create),
        "one minute apart"
    );
    waiting.now = after(noon(), Duration::from_mins(1));
    assert!(decide(&waiting).steps.contains(&Step::Create));
}

#[test]
fn servers_of_others_are_left_and_strays_of_ours_go() {
    let mut testing = snapshot(Some(("True", "Testing")));
    let mut stray = server("ACTIVE", None);
    (stray.expected, stray.id) = (false, "stray".into());
    testing.servers = Some(vec![stray]);
    let decision = decide(&testing);
    assert!(decision.steps.contains(&Step::Delete("stray".into())));
    assert!(decision.steps.contains(&Step::Create));
}

#[test]
fn the_host_itself_is_checked_before_it_is_tested() {
    let mut testing = snapshot(Some(("True", "Testing")));
    testing.settings.min_libvirt = "10.2".into();
    let decision = decide(&testing);
    assert!(!decision.steps.contains(&Step::Create));
    assert!(said(&decision).2.contains("at least 10.2"));
    testing.libvirt = "10.10.0".into();
    assert!(decide(&testing).steps.contains(&Step::Create));
    testing.conditions.push(condition(
        HypervisorCondition::LibVirtConnection,
        "False",
        "X",
        "no socket",
    ));
    assert!(said(&decide(&testing)).2.contains("no socket"));
    testing.skip_tests = true;
    assert_eq!(said(&decide(&testing)).1, "Handover");
}

#[test]
fn where_there_are_network_agents_one_has_to_vouch_for_the_host() {
    let network = |status, text| condition(HypervisorCondition::NetworkReady, status, "X", text);
    let mut testing = snapshot(Some(("True", "Testing")));
    testing.network_agents = true;
    let silent = decide(&testing);
    assert!(!silent.steps.contains(&Step::Create));
    assert!(said(&silent).2.contains("nothing is known of it yet"));
    testing.conditions.push(network("False", "missing: br-ex"));
    let broken = decide(&testing);
    assert!(!broken.steps.contains(&Step::Create));
    assert_eq!(said(&broken).2, "Waiting for the network: missing: br-ex");
    testing.conditions.pop();
    testing.conditions.push(network("True", "healthy: br-int"));
    let connection = HypervisorCondition::LibVirtConnection;
    testing.conditions.push(condition(connection, "True", "X", ""));
    let healthy = decide(&testing);
    assert!(healthy.steps.contains(&Step::Create));
    assert_eq!(
        said(&healthy).2,
        "Running onboarding tests (libvirt 10.0.0 connected; network healthy: br-int)"
    );
}

#[test]
fn a_host_without_traits_is_done_when_others_are() {
    let holds = |type_| condition(type_, "True", "Succeeded", "");
    let mut waiting = snapshot(Some(("True", "Handover")));
    for (type_, text) in [
        (HypervisorCondition::TraitsUpdated, "Waiting for traits"),
        (HypervisorCondition::AggregatesUpdated, "Waiting for aggregates"),
        (HypervisorCondition::HaEnabled, "Waiting for the HA service"),
    ] {
        let decision = decide(&waiting);
        assert_eq!(said(&decision).2, text);
        assert!(matches!(decision.next, Next::After(_)));
        waiting.conditions.push(holds(type_));
    }
    assert_eq!(said(&decide(&waiting)).1, "Succeeded");
    waiting.conditions.pop();
    waiting.settings.ha = false;
    assert_eq!(
        said(&decide(&waiting)).1,
        "Succeeded",
        "without HA nobody waits for it"
    );
}

#[test]
fn ending_depends_on_what_was_reached() {
    let table = [
        ("False", "Succeeded", false, Maintenance::Off, "Succeeded"),
        ("False", "Succeeded", true, Maintenance::Termination, "Aborted"),
        ("True", "Testing", false, Maintenance::Off, "Aborted"),
        ("True", "Handover", true, Maintenance::Termination, "Aborted"),
    ];
    for (status, reason, lifecycle, mode, end) in table {
        let mut ending = snapshot(Some((status, reason)));
        (ending.lifecycle, ending.mode) = (lifecycle, mode);
        let (holds, reason, _) = said(&decide(&ending));
        assert_eq!((holds, reason.as_str()), (false, end));
    }
}

#[test]
fn what_was_aborted_starts_again_on_request_or_when_the_flag_is_back() {
    let mut aborted = snapshot(Some(("False", "Aborted")));
    assert_eq!(said(&decide(&aborted)).1, "Aborted");
    aborted.restart = true;
    aborted.progress.attempts = Some(3);
    let decision = decide(&aborted);
    assert_eq!(said(&decision).1, OnboardingReason::Initial.as_str());
    assert_eq!(decision.progress.attempts, None);
    assert_eq!(decision.progress.started_at, Some(time(noon())));
    assert!(decision.steps.contains(&Step::TakeRestart));
    let mut by_flag = snapshot(Some(("False", "Aborted")));
    by_flag.conditions[0].message = "Aborted due to LifecycleEnabled being false".into();
    assert_eq!(said(&decide(&by_flag)).1, "Initial");
    let mut done = snapshot(Some(("False", "Succeeded")));
    done.restart = true;
    assert_eq!(
        said(&decide(&done)).1,
        "Succeeded",
        "a host with tenants is not tested again"
    );
}
