// SPDX-License-Identifier: Apache-2.0
//! The figures of a libvirt job as a Migration shows them: texts for people, numbers for programs. Values are taken by
//! the type they were sent with; what libvirt does not send is left out, never made up.

use cobaltcore_api::{JobOperation, MigrationProgress, MigrationStatus, format};
use cobaltcore_libvirt::names;
use cobaltcore_libvirt::types::{JobStats, Params};

/// The operation number of a migration away from here.
pub(super) const MIGRATION_OUT: i64 = 5;
/// The operation number of a migration to here.
pub(super) const MIGRATION_IN: i64 = 4;

/// Job parameters.
pub(super) type JobParams = Params<{ cobaltcore_libvirt::limits::JOB_STATS }>;

/// What is known of a job.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Figures {
    params: JobParams,
    /// The highest pass that events told of; statistics may be a moment older.
    iteration: u64,
}

impl Figures {
    pub(super) fn new(params: JobParams) -> Self {
        Self { params, iteration: 0 }
    }

    /// Newer statistics of the same job.
    pub(super) fn update(&mut self, params: JobParams) {
        self.params = params;
    }

    pub(super) fn passed(&mut self, iteration: u64) {
        self.iteration = self.iteration.max(iteration);
    }

    /// Whether data has begun to flow.
    pub(super) fn flows(&self) -> bool {
        self.params.u64("data_total").is_some_and(|bytes| bytes > 0)
    }

    pub(super) fn remaining(&self) -> Option<u64> {
        self.params.u64("data_remaining")
    }

    pub(super) fn downtime_ms(&self) -> Option<u64> {
        self.params.u64("downtime")
    }

    /// Writes the figures into a status.
    pub(super) fn show(&self, status: &mut MigrationStatus) {
        let number = |field: &str| self.params.u64(field);
        let text = |field: &str, write: fn(u64) -> String| number(field).map(write).unwrap_or_default();
        let bytes = |field: &str| text(field, format::bytes);
        let time = |field: &str| text(field, format::duration_ms);
        let iteration = number("memory_iteration").unwrap_or_default().max(self.iteration);
        if let Some(operation) = self.params.i64("operation") {
            let word = names::job_operation(i32::try_from(operation).unwrap_or(-1));
            status.operation = Some(JobOperation::from(word.as_ref()));
        }
        status.time_elapsed = time("time_elapsed");
        status.time_remaining = time("time_remaining");
        status.downtime = time("downtime");
        status.setup_time = time("setup_time");
        status.data_total = bytes("data_total");
        status.data_processed = bytes("data_processed");
        status.data_remaining = bytes("data_remaining");
        status.mem_total = bytes("memory_total");
        status.mem_processed = bytes("memory_processed");
        status.mem_remaining = bytes("memory_remaining");
        status.mem_bps = text("memory_bps", format::bytes_per_second);
        status.mem_constant = number("memory_constant").unwrap_or_default();
        status.mem_normal = number("memory_normal").unwrap_or_default();
        status.mem_normal_bytes = bytes("memory_normal_bytes");
        status.mem_dirty_rate = text("memory_dirty_rate", format::per_second);
        status.mem_iteration = iteration;
        status.mem_postcopy_requests = number("memory_postcopy_requests").unwrap_or_default();
        status.mem_page_size = bytes("memory_page_size");
        status.disk_total = bytes("disk_total");
        status.disk_processed = bytes("disk_processed");
        status.disk_remaining = bytes("disk_remaining");
        status.disk_bps = text("disk_bps", format::bytes_per_second);
        status.auto_converge_throttle = text("auto_converge_throttle", format::percent);
        self.params
            .str("errmsg")
            .unwrap_or_default()
            .clone_into(&mut status.err_msg);
        status.progress = Some(self.progress(iteration));
    }

    fn progress(&self, iteration: u64) -> MigrationProgress {
        // The schema counts in signed numbers; what does not fit says as much as it can.
        let signed = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
        let number = |field: &str| self.params.u64(field).map(signed);
        MigrationProgress {
            data_total_bytes: number("data_total"),
            data_processed_bytes: number("data_processed"),
            data_remaining_bytes: number("data_remaining"),
            memory_bps: number("memory_bps"),
            dirty_pages_per_second: number("memory_dirty_rate"),
            page_size_bytes: number("memory_page_size"),
            iteration: (iteration > 0).then(|| signed(iteration)),
            elapsed_ms: number("time_elapsed"),
            downtime_ms: number("downtime"),
            setup_ms: number("setup_time"),
        }
    }
}

/// What a job does, if it says so.
pub(super) fn operation(params: &JobParams) -> Option<i64> {
    params.i64("operation")
}

/// Whether a job is under way.
pub(super) fn runs(stats: &JobStats) -> bool {
    matches!(stats.kind, 1 | 2)
}

#[cfg(test)]
mod tests {
    use super::*;
    use cobaltcore_libvirt::types::Value;

    #[test]
    fn figures_read_as_in_the_documents() {
        let params = JobParams::default()
            .with("operation", Value::Int(5))
            .with("time_elapsed", Value::ULLong(35_078))
            .with("downtime", Value::ULLong(44))
            .with("data_total", Value::ULLong(64 << 30))
            .with("data_processed", Value::ULLong(62_706_522_522))
            .with("data_remaining", Value::ULLong(0))
            .with("memory_bps", Value::ULLong(1_932_735_283))
            .with("memory_dirty_rate", Value::ULLong(1250))
            .with("memory_iteration", Value::ULLong(4))
            .with("memory_page_size", Value::ULLong(4096))
            .with("auto_converge_throttle", Value::Int(20));
        let figures = Figures::new(params);
        let mut status = MigrationStatus::default();
        figures.show(&mut status);
        assert!(figures.flows());
        assert_eq!(status.operation, Some(JobOperation::MigrationOut));
        let texts = [
            &status.time_elapsed,
            &status.downtime,
            &status.data_total,
            &status.data_processed,
            &status.data_remaining,
            &status.mem_bps,
            &status.mem_dirty_rate,
            &status.mem_page_size,
            &status.auto_converge_throttle,
            &status.time_remaining,
        ];
        assert_eq!(
            texts,
            [
                "35.078s",
                "44ms",
                "64.0 GiB",
                "58.4 GiB",
                "0 B",
                "1.8 GiB/s",
                "1250/s",
                "4.0 KiB",
                "20%",
                ""
            ]
        );
        assert_eq!(status.mem_iteration, 4);
        assert_eq!(status.progress.unwrap().data_total_bytes, Some(64 << 30));
    }

    #[test]
    fn wrong_types_and_absurd_numbers_do_no_harm() {
        let params = JobParams::default()
            .with("time_elapsed", Value::String("soon".into()))
            .with("data_total", Value::LLong(-1))
            .with("data_processed", Value::ULLong(u64::MAX))
            .with("operation", Value::Int(77));
        let mut status = MigrationStatus::default();
        let mut figures = Figures::new(params);
        figures.passed(7);
        figures.show(&mut status);
        assert_eq!(
            (status.time_elapsed.as_str(), status.data_total.as_str()),
            ("", "")
        );
        assert_eq!(status.data_processed, "16.0 EiB");
        assert_eq!(status.operation.unwrap().as_str(), "unknown:77");
        let progress = status.progress.unwrap();
        assert_eq!(
            (progress.data_processed_bytes, progress.iteration),
            (Some(i64::MAX), Some(7))
        );
    }
}
