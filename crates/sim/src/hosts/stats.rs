// SPDX-License-Identifier: Apache-2.0
//! Job figures as QEMU's driver sends them, made from the world's migration model. The names and types are libvirt's; what
//! libvirt leaves out at a stage is left out here too.

use cobaltcore_libvirt::limits;
use cobaltcore_libvirt::types::{Params, Value};

use crate::world::{Finished, Job, Moment};

type Figures = Params<{ limits::JOB_STATS }>;

const PAGE: u64 = 4096;

/// Figures of a job under way.
pub(crate) fn running(job: &Job, now: Moment) -> Figures {
    let elapsed = now.since(job.started).as_millis() as u64;
    let params = Figures::default()
        .with("operation", Value::Int(job.operation))
        .with("time_elapsed", Value::ULLong(elapsed));
    if job.transfer_started.is_none() {
        return params;
    }
    let processed = job.processed + job.moved(now);
    let bps = if job.stalled { 0 } else { job.bandwidth };
    memory(
        params.with("downtime", Value::ULLong(job.max_downtime_ms)),
        job,
        processed,
        job.remaining(now),
        bps,
    )
}

/// Figures of a job that ended well.
pub(crate) fn finished(done: &Finished) -> Figures {
    let job = &done.job;
    let elapsed = done.at.since(job.started).as_millis() as u64;
    let downtime = job.downtime_ms();
    let params = Figures::default()
        .with("operation", Value::Int(job.operation))
        .with("time_elapsed", Value::ULLong(elapsed))
        .with("time_elapsed_net", Value::ULLong(elapsed))
        .with("downtime", Value::ULLong(downtime))
        .with("downtime_net", Value::ULLong(downtime));
    let processed = job.processed + job.round_bytes + job.next_round_bytes();
    memory(params, job, processed, 0, job.bandwidth)
}

fn memory(params: Figures, job: &Job, processed: u64, remaining: u64, bps: u64) -> Figures {
    let number = Value::ULLong;
    let setup = job
        .transfer_started
        .map_or(0, |at| at.since(job.started).as_millis() as u64);
    params
        .with("setup_time", number(setup.min(50)))
        .with("data_total", number(job.total))
        .with("data_processed", number(processed))
        .with("data_remaining", number(remaining))
        .with("memory_total", number(job.total))
        .with("memory_processed", number(processed))
        .with("memory_remaining", number(remaining))
        .with("memory_bps", number(bps))
        .with("memory_constant", number(job.total / 2 / PAGE))
        .with("memory_normal", number(processed / PAGE))
        .with("memory_normal_bytes", number(processed / PAGE * PAGE))
        .with("memory_dirty_rate", number(job.dirty_rate / PAGE))
        .with("memory_iteration", number(job.iteration))
        .with("memory_postcopy_requests", number(0))
        .with("memory_page_size", number(PAGE))
        .with("disk_total", number(0))
        .with("disk_processed", number(0))
        .with("disk_remaining", number(0))
        .with("disk_bps", number(0))
}
