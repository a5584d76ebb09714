// SPDX-License-Identifier: Apache-2.0
//! Updates as tables: what is seen, what is remembered, what is done.

use super::*;
use proptest::prelude::*;

const BOOT: &str = "1b4e28ba-2fa1-11d2-883f-0016d3cca427";
const NEXT_BOOT: &str = "2b4e28ba-2fa1-11d2-883f-0016d3cca427";

fn boot(text: &str) -> BootId {
    BootId::new(text).unwrap()
}

fn now() -> Timestamp {
    "2026-01-01T12:00:00Z".parse().unwrap()
}

fn unit(active: &str, sub: &str, result: &str, invocation: &str) -> UnitDetails {
    UnitDetails {
        load: "loaded".into(),
        active: active.into(),
        sub: sub.into(),
        result: result.into(),
        invocation: invocation.into(),
    }
}

fn idle() -> Observed {
    Observed {
        wanted: Wanted {
            version: "2.0".into(),
            reboot: true,
            arm: String::new(),
        },
        running: Some("1.0".into()),
        boot: Some(boot(BOOT)),
        unit: Ok(unit("inactive", "dead", "success", "old")),
        job: JobView::Unknown,
        installed_before: String::new(),
        journal: Journal::default(),
        now: now(),
    }
}

fn target(phase: Phase) -> Target {
    Target {
        version: "2.0".into(),
        arm: String::new(),
        attempts: 3,
        phase,
        not_before: None,
        error: String::new(),
    }
}

fn with(phase: Phase) -> Observed {
    Observed {
        journal: Journal {
            target: Some(target(phase)),
        },
        ..idle()
    }
}

fn started() -> Phase {
    Phase::Started {
        boot: boot(BOOT),
        invocation: "old".into(),
    }
}

fn outcome(observed: &Observed) -> (Action, State) {
    let decision = decide(observed);
    (decision.action, decision.state)
}

#[test]
fn a_wanted_version_is_remembered_before_its_unit_is_started() {
    let decision = decide(&idle());
    assert_eq!(
        (decision.action.clone(), decision.state),
        (Action::Start, State::Starting)
    );
    assert_eq!(decision.journal.target, Some(target(started())));
    let status = decision.status.unwrap();
    assert_eq!(
        (status.in_progress, status.retry, status.installed.as_str()),
        (true, 3, "unknown")
    );
    let running = NewCondition::yes(TYPE, "Running", "Operating system update to 2.0 is running");
    assert_eq!(decision.condition, Some(running));
}

#[test]
fn a_started_unit_is_followed_to_its_real_end() {
    let ended = |result: JobResult| JobView::Ended(result);
    let table = [
        (
            "a oneshot runs while it activates",
            unit("activating", "start", "success", "new"),
            JobView::Pending,
            State::Running,
        ),
        (
            "after a restart of the agent",
            unit("activating", "start", "success", "new"),
            JobView::Unknown,
            State::Running,
        ),
        (
            "queued",
            unit("inactive", "dead", "success", "old"),
            JobView::Pending,
            State::Running,
        ),
        (
            "stopping",
            unit("deactivating", "stop", "success", "new"),
            JobView::Unknown,
            State::Running,
        ),
        (
            "done",
            unit("inactive", "dead", "success", "new"),
            ended(JobResult::Done),
            State::Rebooting,
        ),
        (
            "done unseen",
            unit("inactive", "dead", "success", "new"),
            JobView::Unknown,
            State::Rebooting,
        ),
        (
            "done, unit forgotten",
            unit("inactive", "dead", "success", ""),
            ended(JobResult::Done),
            State::Rebooting,
        ),
        (
            "done, remains",
            unit("active", "exited", "success", "new"),
            JobView::Unknown,
            State::Rebooting,
        ),
        (
            "failed",
            unit("failed", "failed", "exit-code", "new"),
            JobView::Unknown,
            State::Failed,
        ),
        (
            "job failed",
            unit("failed", "failed", "exit-code", "new"),
            ended(JobResult::Other("failed".into())),
            State::Failed,
        ),
        (
            "job cancelled",
            unit("inactive", "dead", "success", "old"),
            ended(JobResult::Other("canceled".into())),
            State::Failed,
        ),
        (
            "ended badly",
            unit("inactive", "dead", "exit-code", "new"),
            JobView::Unknown,
            State::Failed,
        ),
        (
            "never ran",
            unit("inactive", "dead", "success", "old"),
            JobView::Unknown,
            State::Starting,
        ),
        (
            "an old failure, never ran",
            unit("failed", "failed", "exit-code", "old"),
            JobView::Unknown,
            State::Starting,
        ),
    ];
    for (name, unit, job, state) in table {
        let observed = Observed {
            unit: Ok(unit),
            job,
            ..with(started())
        };
        assert_eq!(outcome(&observed).1, state, "{name}");
    }
    let silent = Observed {
        unit: Err("no bus".into()),
        ..with(started())
    };
    assert_eq!(
        outcome(&silent),
        (Action::None, State::Running),
        "no answer is not a failure"
    );
    let rebooted = Observed {
        boot: Some(boot(NEXT_BOOT)),
        ..with(started())
    };
    assert_eq!(outcome(&rebooted).1, State::Failed);
}

#[test]
fn failures_count_down_and_the_limit_holds() {
    let mut observed = with(started());
    observed.job = JobView::Ended(JobResult::Other("failed".into()));
    for (left, pause) in [(2, 30), (1, 120)] {
        let decision = decide(&observed);
        let target = decision.journal.target.clone().unwrap();
        assert_eq!((target.attempts, &target.phase), (left, &Phase::Waiting));
        let until = now() + SignedDuration::from_secs(pause);
        assert_eq!(decision.action, Action::WaitUntil(until));
        assert_eq!(decision.status.unwrap().retry, i64::from(left));
        let text = "2.0 update has failed: systemd ended its job with: failed";
        assert_eq!(decision.condition, Some(stopped(text)));
        let again = Observed {
            journal: decision.journal,
            now: until,
            job: JobView::Unknown,
            ..idle()
        };
        assert_eq!(outcome(&again).0, Action::Start, "the pause is over");
        observed.journal = Journal {
            target: Some(Target {
                phase: started(),
                ..target
            }),
        };
    }
    let last = decide(&observed);
    assert_eq!(
        (last.action.clone(), last.status.clone().unwrap().retry),
        (Action::None, 0)
    );
    assert!(format!("{:?}", last.condition).contains("RetryLimit"));
    // Neither time nor a restart refills the counter; a new version or a new annotation does.
    let later = Observed {
        journal: last.journal.clone(),
        now: now() + SignedDuration::from_hours(99),
        ..idle()
    };
    assert_eq!(outcome(&later).0, Action::None);
    let mut armed = later.clone();
    armed.wanted.arm = "again".into();
    assert_eq!(outcome(&armed).0, Action::Start);
    let mut other = later;
    other.wanted.version = "3.0".into();
    assert_eq!(outcome(&other).0, Action::Start);
}

#[test]
fn a_reboot_is_asked_for_once() {
    let ours = with(Phase::Installed { ours: true });
    let decision = decide(&ours);
    assert_eq!(decision.action, Action::Reboot);
    assert_eq!(
        decision.journal.target.as_ref().unwrap().phase,
        Phase::RebootRequested { boot: boot(BOOT) }
    );
    assert_eq!(decision.status.unwrap().installed, "2.0");

    let asked = Observed {
        journal: decision.journal.clone(),
        ..idle()
    };
    assert_eq!(
        outcome(&asked),
        (Action::None, State::Rebooting),
        "also after a restart of the agent"
    );

    let back_in_the_old = Observed {
        boot: Some(boot(NEXT_BOOT)),
        ..asked.clone()
    };
    assert_eq!(
        outcome(&back_in_the_old),
        (Action::None, State::Failed),
        "no boot loop"
    );

    let arrived = Observed {
        running: Some("2.0".into()),
        boot: Some(boot(NEXT_BOOT)),
        ..asked
    };
    let decision = decide(&arrived);
    assert_eq!((decision.action, decision.state), (Action::None, State::Idle));
    let done = NewCondition::yes(TYPE, "Completed", "Operating system update 2.0 is installed");
    assert_eq!(decision.condition, Some(done));
    assert_eq!(decision.status.unwrap().installed, "2.0");

    let mut not_wanted = ours.clone();
    not_wanted.wanted.reboot = false;
    assert_eq!(outcome(&not_wanted), (Action::None, State::Installed));
    let foreign = with(Phase::Installed { ours: false });
    assert_eq!(
        outcome(&foreign),
        (Action::None, State::Installed),
        "nobody knows who installed it"
    );

    let refused = reboot_refused(decide(&ours).journal, "denied", now());
    let waiting = Observed {
        journal: refused.clone(),
        ..idle()
    };
    assert_eq!(outcome(&waiting).0, Action::WaitUntil(now() + REBOOT_PAUSE));
    let later = Observed {
        journal: refused,
        now: now() + REBOOT_PAUSE,
        ..idle()
    };
    assert_eq!(outcome(&later).0, Action::Reboot, "a refusal was no reboot");
}

#[test]
fn nothing_happens_without_need_or_knowledge() {
    let mut nothing = idle();
    nothing.wanted.version = String::new();
    let decision = decide(&nothing);
    assert_eq!(
        (decision.action, decision.status, decision.condition),
        (Action::None, None, None)
    );

    let table = [
        (
            "the version runs",
            Observed {
                running: Some("2.0".into()),
                ..idle()
            },
        ),
        (
            "the running version is unknown",
            Observed {
                running: None,
                ..idle()
            },
        ),
        (
            "systemd is away",
            Observed {
                unit: Err("no bus".into()),
                ..idle()
            },
        ),
        ("the boot is unknown", Observed { boot: None, ..idle() }),
        (
            "the status says installed",
            Observed {
                installed_before: "2.0".into(),
                ..idle()
            },
        ),
    ];
    for (name, observed) in table {
        assert_eq!(decide(&observed).action, Action::None, "{name}");
    }
    let missing = Observed {
        unit: Ok(UnitDetails {
            load: "not-found".into(),
            ..UnitDetails::default()
        }),
        ..idle()
    };
    assert_eq!(outcome(&missing).1, State::Failed);
}

#[test]
fn a_running_update_ends_before_another_begins() {
    let mut changed = with(started());
    changed.wanted.version = "3.0".into();
    changed.unit = Ok(unit("activating", "start", "success", "new"));
    let decision = decide(&changed);
    assert_eq!((decision.action, decision.state), (Action::None, State::Running));
    assert_eq!(decision.journal.target.unwrap().version, "2.0");
    changed.unit = Ok(unit("inactive", "dead", "success", "new"));
    let decision = decide(&changed);
    assert_eq!(
        (decision.action, decision.journal.target.unwrap().version.as_str()),
        (Action::Start, "3.0")
    );
}

#[test]
fn versions_that_could_name_something_else_are_refused() {
    for bad in [
        "",
        "-x",
        ".hidden",
        "a/b",
        "a b",
        "1;reboot",
        "é",
        "a@b",
        &"x".repeat(64),
    ] {
        assert_eq!(unit_of(bad), None, "{bad:?}");
    }
    assert_eq!(
        unit_of("1.0~rc1+x").unwrap(),
        "systemd-sysupdate@1.0\\x7erc1\\x2bx.service"
    );
    let mut observed = idle();
    observed.wanted.version = "../../etc".into();
    let decision = decide(&observed);
    assert_eq!(decision.action, Action::None);
    assert!(format!("{:?}", decision.condition).contains("InvalidVersion"));
}

fn any_phase() -> impl Strategy<Value = Option<Phase>> {
    let some_boot = prop_oneof![Just(boot(BOOT)), Just(boot(NEXT_BOOT))];
    prop_oneof![
        Just(None),
        Just(Some(Phase::Waiting)),
        (some_boot.clone(), "(old|new|)")
            .prop_map(|(boot, invocation)| Some(Phase::Started { boot, invocation })),
        any::<bool>().prop_map(|ours| Some(Phase::Installed { ours })),
        some_boot.prop_map(|boot| Some(Phase::RebootRequested { boot })),
    ]
}

proptest! {
    #[test]
    fn a_reboot_needs_our_own_success_and_the_wish(
        phase in any_phase(), reboot in any::<bool>(), attempts in 0u32..4,
        active in "(active|activating|inactive|failed|odd)", result in "(success|exit-code)", invocation in "(old|new|)",
        job in prop_oneof![Just(JobView::Unknown), Just(JobView::Pending), Just(JobView::Ended(JobResult::Done)),
            Just(JobView::Ended(JobResult::Other("failed".into())))],
    ) {
        let mut observed = idle();
        observed.wanted.reboot = reboot;
        observed.journal.target = phase.clone().map(|phase| Target { attempts, ..target(phase) });
        observed.unit = Ok(unit(&active, "", &result, &invocation));
        observed.job = job;
        let decision = decide(&observed);
        let before = observed.journal.target.as_ref().map_or(3, |target| target.attempts);
        let after = decision.journal.target.as_ref().map_or(3, |target| target.attempts);
        prop_assert!(after == before || after + 1 == before, "one step costs at most one attempt");
        if decision.action == Action::Reboot {
            prop_assert!(reboot);
            let earned = matches!(phase, Some(Phase::Installed { ours: true } | Phase::Started { .. }));
            prop_assert!(earned, "{phase:?}");
            // What was asked for is remembered first, so the next decision does not ask again.
            let next = decide(&Observed { journal: decision.journal, ..observed });
            prop_assert_ne!(next.action, Action::Reboot);
        }
    }

    #[test]
    fn any_text_is_a_version_or_not(text in ".{0,80}") {
        if let Some(unit) = unit_of(&text) {
            prop_assert!(unit.is_ascii() && !unit.contains('/') && unit.ends_with(".service"));
        }
    }
}
