// SPDX-License-Identifier: Apache-2.0
//! The judgement about a migration away from here: from signs and samples to "still running", "no migration at all" or
//! its end. Pure, so that every order of events can be tried.

use cobaltcore_api::{JobType, MigrationPhase};
use cobaltcore_libvirt::names;
use cobaltcore_libvirt::types::JobStats;

use super::figures::{Figures, JobParams, MIGRATION_OUT, operation, runs};
use crate::libvirt::life;

/// What libvirt's silence means: it does not tell a cancelled migration from a failed one.
pub(super) const ENDED_SILENTLY: &str = "migration job ended without completion (cancelled or failed)";

/// Something that was noticed.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Seen {
    /// Statistics of the job under way.
    Sample(JobStats),
    /// The guest has no job.
    NoJob,
    /// There is no such guest.
    Gone,
    /// An event with the figures of a finished job.
    JobCompleted(JobParams),
    /// An event of another pass over the memory.
    Iteration(u64),
    /// A lifecycle event.
    Life {
        /// The event.
        event: i32,
        /// Its detail.
        detail: i32,
    },
    /// The guest left and no figures came.
    Overdue,
}

/// How a migration ended.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Outcome {
    pub(super) phase: MigrationPhase,
    pub(super) type_: JobType,
    /// What went wrong.
    pub(super) error: String,
}

impl Outcome {
    pub(super) fn completed() -> Self {
        Self {
            phase: MigrationPhase::Completed,
            type_: JobType::Completed,
            error: String::new(),
        }
    }

    pub(super) fn failed(error: impl Into<String>) -> Self {
        Self {
            phase: MigrationPhase::Failed,
            type_: JobType::Failed,
            error: error.into(),
        }
    }

    fn cancelled() -> Self {
        Self {
            phase: MigrationPhase::Cancelled,
            type_: JobType::Cancelled,
            error: "migration was cancelled".to_owned(),
        }
    }
}

/// What follows from what was seen.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Verdict {
    /// Keep following.
    GoOn,
    /// It was something else, such as a save.
    NoMigration,
    /// It ended.
    Ended(Outcome),
}

/// A migration away from here.
#[derive(Debug, Default)]
pub(super) struct Track {
    /// Jobs of this driver do not say what they do.
    unnamed_jobs: bool,
    confirmed: bool,
    type_: Option<JobType>,
    figures: Figures,
    /// Answers in a row that know of no job.
    misses: u8,
    /// The guest has left; only the final figures are missing.
    left: bool,
}

impl Track {
    pub(super) fn new(unnamed_jobs: bool) -> Self {
        Self {
            unnamed_jobs,
            ..Self::default()
        }
    }

    /// Whether it is known to be a migration.
    pub(super) fn confirmed(&self) -> bool {
        self.confirmed
    }

    /// Whether the guest has left.
    pub(super) fn left(&self) -> bool {
        self.left
    }

    /// Whether the last answer knew of no job.
    pub(super) fn doubtful(&self) -> bool {
        self.misses > 0
    }

    pub(super) fn figures(&self) -> &Figures {
        &self.figures
    }

    /// The type of the job while it runs.
    pub(super) fn type_(&self) -> JobType {
        self.type_.clone().unwrap_or(JobType::Unbounded)
    }

    /// Where a running migration stands.
    pub(super) fn phase(&self) -> MigrationPhase {
        if self.figures.flows() {
            MigrationPhase::Running
        } else {
            MigrationPhase::Preparing
        }
    }

    /// Judges what was seen.
    pub(super) fn see(&mut self, seen: Seen) -> Verdict {
        match seen {
            Seen::Sample(stats) if runs(&stats) => self.running(stats),
            Seen::Sample(stats) => self.over(stats),
            Seen::NoJob => self.missed(),
            Seen::Gone => {
                self.left = true;
                self.missed()
            }
            Seen::JobCompleted(params) => self.job_completed(params),
            Seen::Iteration(iteration) => {
                self.figures.passed(iteration);
                Verdict::GoOn
            }
            Seen::Life { event, detail } => self.life(event, detail),
            Seen::Overdue if self.confirmed => Verdict::Ended(Outcome::completed()),
            Seen::Overdue => Verdict::NoMigration,
        }
    }

    fn running(&mut self, stats: JobStats) -> Verdict {
        let migrates = match operation(&stats.params) {
            Some(operation) => operation == MIGRATION_OUT,
            None => self.unnamed_jobs,
        };
        if !migrates {
            return if self.confirmed {
                self.missed()
            } else {
                Verdict::NoMigration
            };
        }
        self.confirmed = true;
        self.misses = 0;
        self.type_ = Some(if stats.kind == 1 {
            JobType::Bounded
        } else {
            JobType::Unbounded
        });
        self.figures.update(stats.params);
        Verdict::GoOn
    }

    fn over(&mut self, stats: JobStats) -> Verdict {
        let ended = match stats.kind {
            3 => Outcome::completed(),
            4 => Outcome::failed(ENDED_SILENTLY),
            5 => Outcome::cancelled(),
            _ => return self.missed(),
        };
        if !self.confirmed {
            return Verdict::NoMigration;
        }
        self.figures.update(stats.params);
        Verdict::Ended(ended)
    }

    /// One answer without a job may be a moment between two states; two in a row are not.
    fn missed(&mut self) -> Verdict {
        self.misses = self.misses.saturating_add(1);
        match (self.misses >= 2, self.confirmed, self.left) {
            (false, ..) | (_, _, true) => Verdict::GoOn,
            (true, false, false) => Verdict::NoMigration,
            (true, true, false) => Verdict::Ended(Outcome::failed(ENDED_SILENTLY)),
        }
    }

    fn job_completed(&mut self, params: JobParams) -> Verdict {
        match operation(&params) {
            Some(MIGRATION_OUT) => {
                self.confirmed = true;
                self.figures.update(params);
                Verdict::Ended(Outcome::completed())
            }
            _ if self.confirmed => Verdict::GoOn,
            _ => Verdict::NoMigration,
        }
    }

    fn life(&mut self, event: i32, detail: i32) -> Verdict {
        const MIGRATED: i32 = 3;
        let detail_word = names::lifecycle_detail(event, detail);
        match (event, detail) {
            (life::STOPPED, MIGRATED) => {
                self.left = true;
                Verdict::GoOn
            }
            (life::STOPPED | life::CRASHED, _) if self.confirmed => Verdict::Ended(Outcome::failed(format!(
                "guest stopped during migration: {detail_word}"
            ))),
            (life::STOPPED | life::CRASHED, _) => Verdict::NoMigration,
            (life::SUSPENDED, 8) | (life::RESUMED, 4) if self.confirmed => {
                Verdict::Ended(Outcome::failed(format!("post-copy failed: {detail_word}")))
            }
            _ => Verdict::GoOn,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cobaltcore_libvirt::types::Value;
    use proptest::prelude::*;

    fn job(kind: i32, operation: Option<i32>, total: u64) -> JobStats {
        let params = JobParams::default().with("data_total", Value::ULLong(total));
        let params = match operation {
            Some(operation) => params.with("operation", Value::Int(operation)),
            None => params,
        };
        JobStats { kind, params }
    }

    fn final_figures(operation: i32) -> Seen {
        Seen::JobCompleted(job(3, Some(operation), 77).params)
    }

    const LEFT: Seen = Seen::Life { event: 5, detail: 3 };

    fn phase_after(unnamed: bool, seen: &[Seen]) -> Option<Verdict> {
        let mut track = Track::new(unnamed);
        let verdicts = seen.iter().map(|seen| track.see(seen.clone()));
        verdicts.into_iter().find(|verdict| *verdict != Verdict::GoOn)
    }

    #[test]
    fn every_end_is_told_apart() {
        use Verdict::{Ended, NoMigration};
        let sample = || Seen::Sample(job(2, Some(5), 10));
        let done = Ended(Outcome::completed());
        let failed = |text: &str| Ended(Outcome::failed(text));
        let life = |event, detail| Seen::Life { event, detail };
        let table: Vec<(&str, Vec<Seen>, Option<Verdict>)> = vec![
            ("runs", vec![sample(), Seen::Iteration(1), sample()], None),
            (
                "completes",
                vec![sample(), LEFT, final_figures(5)],
                Some(done.clone()),
            ),
            (
                "completes unseen",
                vec![Seen::Iteration(1), final_figures(5)],
                Some(done.clone()),
            ),
            (
                "figures never come",
                vec![sample(), LEFT, Seen::Overdue],
                Some(done.clone()),
            ),
            (
                "vanishes",
                vec![sample(), Seen::Gone, Seen::Gone, Seen::Overdue],
                Some(done),
            ),
            (
                "cancelled",
                vec![sample(), Seen::NoJob, Seen::NoJob],
                Some(failed(ENDED_SILENTLY)),
            ),
            (
                "a moment without a job",
                vec![sample(), Seen::NoJob, sample(), Seen::NoJob],
                None,
            ),
            (
                "libvirt says cancelled",
                vec![sample(), Seen::Sample(job(5, Some(5), 0))],
                Some(Ended(Outcome::cancelled())),
            ),
            (
                "crashes",
                vec![sample(), life(5, 2)],
                Some(failed("guest stopped during migration: crashed")),
            ),
            (
                "panics",
                vec![sample(), life(8, 0)],
                Some(failed("guest stopped during migration: panicked")),
            ),
            ("post-copy", vec![sample(), life(3, 7)], None),
            (
                "post-copy fails",
                vec![sample(), life(3, 8)],
                Some(failed("post-copy failed: postcopy_failed")),
            ),
            (
                "a save",
                vec![Seen::Iteration(1), Seen::Sample(job(2, Some(2), 10))],
                Some(NoMigration),
            ),
            (
                "a fast save",
                vec![Seen::Iteration(1), final_figures(2)],
                Some(NoMigration),
            ),
            (
                "nothing",
                vec![Seen::Iteration(1), Seen::NoJob, Seen::NoJob],
                Some(NoMigration),
            ),
            ("a stop", vec![Seen::Iteration(1), life(5, 1)], Some(NoMigration)),
        ];
        for (name, seen, wanted) in table {
            assert_eq!(phase_after(false, &seen), wanted, "{name}");
        }
    }

    #[test]
    fn a_driver_without_job_names_is_believed_when_it_says_so() {
        let unnamed = || Seen::Sample(job(2, None, 10));
        assert_eq!(phase_after(false, &[unnamed()]), Some(Verdict::NoMigration));
        assert_eq!(phase_after(true, &[unnamed()]), None);
        assert_eq!(
            phase_after(true, &[unnamed(), LEFT, Seen::Overdue]),
            Some(Verdict::Ended(Outcome::completed()))
        );
    }

    #[test]
    fn preparing_becomes_running_when_data_flows() {
        let mut track = Track::new(false);
        track.see(Seen::Sample(job(2, Some(5), 0)));
        assert_eq!(track.phase(), MigrationPhase::Preparing);
        track.see(Seen::Sample(job(1, Some(5), 10)));
        assert_eq!(
            (track.phase(), track.type_()),
            (MigrationPhase::Running, JobType::Bounded)
        );
    }

    fn any_seen() -> impl Strategy<Value = Seen> {
        prop_oneof![
            (0_i32..6, proptest::option::of(0_i32..8), 0_u64..9)
                .prop_map(|(kind, op, total)| Seen::Sample(job(kind, op, total))),
            Just(Seen::NoJob),
            Just(Seen::Gone),
            (0_i32..8).prop_map(final_figures),
            (0_u64..9).prop_map(Seen::Iteration),
            (0_i32..10, 0_i32..10).prop_map(|(event, detail)| Seen::Life { event, detail }),
        ]
    }

    proptest! {
        #[test]
        fn whatever_happens_a_migration_ends_when_its_guest_has_no_job_for_good(seen in proptest::collection::vec(any_seen(), 0..20)) {
            let mut track = Track::new(false);
            let ended = seen.into_iter().any(|seen| track.see(seen) != Verdict::GoOn);
            if !ended {
                let silence = [Seen::NoJob, Seen::NoJob, Seen::Overdue];
                prop_assert!(silence.into_iter().any(|seen| track.see(seen) != Verdict::GoOn));
            }
        }

        #[test]
        fn what_was_never_seen_migrating_is_never_called_failed(seen in proptest::collection::vec(any_seen(), 0..20)) {
            let mut track = Track::new(false);
            for seen in seen {
                let migrates = matches!(&seen, Seen::Sample(stats) if operation(&stats.params) == Some(MIGRATION_OUT))
                    || matches!(&seen, Seen::JobCompleted(params) if operation(params) == Some(MIGRATION_OUT));
                let before = track.confirmed();
                let verdict = track.see(seen);
                if !before && !migrates {
                    prop_assert!(!matches!(verdict, Verdict::Ended(_)));
                }
                if verdict != Verdict::GoOn { break; }
            }
        }
    }
}
