// SPDX-License-Identifier: Apache-2.0
//! The clock that counts from boot and also while the machine sleeps. Order and durations come from it, never from the
//! wall clock.

use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds since boot.
pub(crate) fn boot_ns() -> u64 {
    let time = clock_gettime(ClockId::Boottime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let nanos = u64::try_from(time.tv_nsec).unwrap_or(0);
    seconds.saturating_mul(1_000_000_000).saturating_add(nanos)
}
