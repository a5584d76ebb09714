// SPDX-License-Identifier: Apache-2.0
//! What webhooks cost and how often they refuse, under the reference's names.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;

use parking_lot::Mutex;

/// Bounds of the histogram of calls, in seconds; the reference's.
const BOUNDS: [f64; 8] = [0.005, 0.025, 0.1, 0.5, 1.0, 2.5, 10.0, 25.0];
/// Series kept; names come from configurations, which anyone with the right may churn.
const MAX_SERIES: usize = 2_000;

/// Counters of webhook calls.
#[derive(Debug, Default)]
pub struct WebhookCounts(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    durations: BTreeMap<String, Histogram>,
    rejections: BTreeMap<String, u64>,
    fail_open: BTreeMap<String, u64>,
}

#[derive(Debug, Default)]
struct Histogram {
    buckets: [u64; BOUNDS.len()],
    count: u64,
    sum: f64,
}

impl WebhookCounts {
    /// A call that ended.
    pub fn call(&self, name: &str, kind: &str, operation: &str, rejected: bool, took: Duration) {
        let labels = format!("name={name:?},type={kind:?},operation={operation:?},rejected=\"{rejected}\"");
        let mut inner = self.0.lock();
        if inner.durations.len() >= MAX_SERIES && !inner.durations.contains_key(&labels) {
            return;
        }
        let histogram = inner.durations.entry(labels).or_default();
        let seconds = took.as_secs_f64();
        for (count, _) in histogram
            .buckets
            .iter_mut()
            .zip(BOUNDS)
            .filter(|(_, bound)| seconds <= *bound)
        {
            *count += 1;
        }
        histogram.count += 1;
        histogram.sum += seconds;
    }

    /// A request that was refused because of a webhook.
    pub fn rejection(&self, name: &str, kind: &str, operation: &str, error: &str, code: u16) {
        // Codes beyond 600 are one series, as are failures of the call below.
        let labels = format!(
            "name={name:?},type={kind:?},operation={operation:?},error_type={error:?},rejection_code=\"{}\"",
            code.min(600)
        );
        add(&mut self.0.lock().rejections, labels);
    }

    /// A call that failed and was ignored.
    pub fn failed_open(&self, name: &str, kind: &str) {
        add(
            &mut self.0.lock().fail_open,
            format!("name={name:?},type={kind:?}"),
        );
    }

    /// The counters in the text format of Prometheus.
    pub fn render(&self, out: &mut String) {
        const DURATION: &str = "apiserver_admission_webhook_admission_duration_seconds";
        let inner = self.0.lock();
        let _ = writeln!(
            out,
            "# HELP {DURATION} Admission webhook latency in seconds.\n# TYPE {DURATION} histogram"
        );
        for (labels, histogram) in &inner.durations {
            for (bound, count) in BOUNDS.iter().zip(histogram.buckets) {
                let _ = writeln!(out, "{DURATION}_bucket{{{labels},le=\"{bound}\"}} {count}");
            }
            let _ = writeln!(
                out,
                "{DURATION}_bucket{{{labels},le=\"+Inf\"}} {}",
                histogram.count
            );
            let _ = writeln!(out, "{DURATION}_sum{{{labels}}} {}", histogram.sum);
            let _ = writeln!(out, "{DURATION}_count{{{labels}}} {}", histogram.count);
        }
        for (name, help, series) in [
            (
                "apiserver_admission_webhook_rejection_count",
                "Admission webhook rejections.",
                &inner.rejections,
            ),
            (
                "apiserver_admission_webhook_fail_open_count",
                "Admission webhook calls ignored after a failure.",
                &inner.fail_open,
            ),
        ] {
            let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} counter");
            for (labels, count) in series {
                let _ = writeln!(out, "{name}{{{labels}}} {count}");
            }
        }
    }
}

fn add(series: &mut BTreeMap<String, u64>, labels: String) {
    if series.len() < MAX_SERIES || series.contains_key(&labels) {
        *series.entry(labels).or_default() += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_counted_under_the_names_of_the_reference() {
        let counts = WebhookCounts::default();
        counts.call("a.b.c", "admit", "CREATE", false, Duration::from_millis(50));
        counts.rejection("a.b.c", "validating", "UPDATE", "no_error", 403);
        let mut out = String::new();
        counts.render(&mut out);
        let labels = "name=\"a.b.c\",type=\"admit\",operation=\"CREATE\",rejected=\"false\"";
        for line in [
            format!("apiserver_admission_webhook_admission_duration_seconds_bucket{{{labels},le=\"0.025\"}} 0"),
            format!("apiserver_admission_webhook_admission_duration_seconds_bucket{{{labels},le=\"0.1\"}} 1"),
            "apiserver_admission_webhook_rejection_count{name=\"a.b.c\",type=\"validating\",operation=\"UPDATE\",error_type=\"no_error\",rejection_code=\"403\"} 1".to_owned(),
        ] {
            assert!(out.lines().any(|l| l == line), "{line}\n{out}");
        }
    }
}
