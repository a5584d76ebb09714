// SPDX-License-Identifier: Apache-2.0
//! What kube-apiserver v1.36.4 with etcd 3.6.8 needed on a machine of two virtual cores and a disk
//! with 0.45 ms median fdatasync, and what the embedded server is to need beside it. Goals that
//! are factors apply to the reference of the same run where there is one, else to these figures.

use crate::report::Limit;

/// The documented reference and the goals of one row.
pub(crate) struct Goal {
    pub(crate) id: &'static str,
    /// Figures of the reference by label.
    pub(crate) reference: &'static [(&'static str, f64)],
    pub(crate) limits: &'static [(&'static str, Limit)],
}

const fn goal(
    id: &'static str,
    reference: &'static [(&'static str, f64)],
    limits: &'static [(&'static str, Limit)],
) -> Goal {
    Goal {
        id,
        reference,
        limits,
    }
}

use Limit::{Below, Times};

pub(crate) const GOALS: &[Goal] = &[
    goal(
        "start",
        &[("time", 1_900.0), ("ready", 2_800.0)],
        &[("time", Below(50.0)), ("ready", Below(50.0))],
    ),
    goal("start-100000", &[], &[("time", Below(800.0))]),
    goal("memory-idle", &[("memory", 303.0)], &[("memory", Below(30.0))]),
    goal(
        "memory-100000",
        &[("memory", 1_480.0)],
        &[("memory", Below(350.0))],
    ),
    goal(
        "create-1",
        &[("rate", 263.0), ("p50", 3.4)],
        &[("rate", Times(4.0)), ("p50", Below(1.0))],
    ),
    goal(
        "create-8",
        &[("rate", 666.0), ("p50", 10.5), ("p99", 32.9), ("cpu", 2_412.0)],
        &[("rate", Times(5.0)), ("p99", Below(8.0)), ("cpu", Below(300.0))],
    ),
    goal(
        "update-8",
        &[("rate", 666.0), ("p99", 35.0), ("cpu", 2_510.0)],
        &[("rate", Times(5.0)), ("cpu", Below(300.0))],
    ),
    goal(
        "merge-patch-8",
        &[("rate", 673.0), ("p99", 35.6), ("cpu", 2_522.0)],
        &[("rate", Times(5.0)), ("cpu", Below(350.0))],
    ),
    goal(
        "apply-8",
        &[("rate", 587.0), ("p99", 38.9), ("cpu", 3_026.0)],
        &[("rate", Times(5.0)), ("cpu", Below(500.0))],
    ),
    goal(
        "get-8",
        &[("rate", 1_771.0), ("p99", 16.9), ("cpu", 941.0)],
        &[("rate", Times(4.0)), ("cpu", Below(100.0))],
    ),
    goal(
        "delete-8",
        &[("rate", 856.0), ("p99", 26.2), ("cpu", 1_854.0)],
        &[("rate", Times(4.0)), ("cpu", Below(250.0))],
    ),
    goal(
        "status-patch-1",
        &[("rate", 277.0), ("p50", 3.2), ("cpu", 4_345.0)],
        &[("rate", Times(4.0)), ("p50", Below(1.0))],
    ),
    goal(
        "list-10000",
        &[("time", 315.0), ("cpu-ms", 364.0)],
        &[("time", Below(80.0)), ("cpu-ms", Below(60.0))],
    ),
    goal("list-selector", &[("time", 49.0)], &[("time", Below(12.0))]),
    goal("list-limit", &[("time", 21.0)], &[("time", Below(6.0))]),
    goal("list-100000", &[("time", 2_100.0)], &[("time", Below(800.0))]),
    goal(
        "watch-50",
        &[("p50", 6.0), ("p99", 13.0), ("cpu", 197.0)],
        &[("p50", Below(1.5)), ("p99", Below(4.0)), ("cpu", Below(25.0))],
    ),
    goal("new-definition", &[("time", 2_029.0)], &[("time", Below(20.0))]),
    goal("dependents", &[("time", 22_700.0)], &[("time", Below(100.0))]),
    goal("namespace-gone", &[("time", 10_400.0)], &[("time", Below(200.0))]),
    goal("definition-gone", &[("time", 7_100.0)], &[("time", Below(200.0))]),
    goal(
        "token-refused",
        &[("time", 10_000.0)],
        &[("requests", Below(1.5))],
    ),
    goal("disk-100000", &[("disk", 445.0)], &[("disk", Below(350.0))]),
];

/// The goals of a row, if it has any.
pub(crate) fn of(id: &str) -> Option<&'static Goal> {
    GOALS.iter().find(|goal| goal.id == id)
}
