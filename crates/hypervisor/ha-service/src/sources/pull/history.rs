// SPDX-License-Identifier: Apache-2.0
//! What was scraped before, as far as rules ask for it: growth of counters needs two looks.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use cobaltcore_api::names::HostName;
use tokio::time::Instant;

use crate::sources::exposition::Sample;
use crate::sources::expr::{Labels, Term};

type SeriesKey = (HostName, String, Labels);
pub(super) type History = HashMap<SeriesKey, VecDeque<(Instant, f64)>>;

/// What a term finds in the samples of one host.
pub(super) fn local_values(
    history: &History,
    host: &HostName,
    samples: &[Sample],
    term: &Term,
    now: Instant,
) -> Vec<f64> {
    let chosen = samples
        .iter()
        .filter(|sample| term.selector().matches(&sample.metric, &sample.labels));
    let growth = |sample: &Sample, span: Duration| {
        let key = (host.clone(), sample.metric.clone(), sample.labels.clone());
        increase(history.get(&key)?, now, span)
    };
    match term {
        Term::Value(_) => chosen.map(|sample| sample.value).collect(),
        Term::Count(_) => vec![chosen.count() as f64],
        Term::Increase(_, span) => chosen
            .filter_map(|sample| growth(sample, *span).map(|(grown, _)| grown))
            .collect(),
        Term::Rate(_, span) => chosen
            .filter_map(|sample| growth(sample, *span).map(|(grown, seconds)| grown / seconds))
            .collect(),
    }
}

/// By how much a counter grew within `span`, and in how many seconds. A counter that fell began anew.
fn increase(points: &VecDeque<(Instant, f64)>, now: Instant, span: Duration) -> Option<(f64, f64)> {
    let inside: Vec<(Instant, f64)> = points
        .iter()
        .filter(|(at, _)| now.duration_since(*at) <= span)
        .copied()
        .collect();
    let (first, last) = (inside.first()?, inside.last()?);
    let seconds = last.0.duration_since(first.0).as_secs_f64();
    if seconds <= 0.0 {
        return None;
    }
    let grown = inside
        .iter()
        .zip(inside.iter().skip(1))
        .map(|((_, before), (_, after))| if after >= before { after - before } else { *after })
        .sum();
    Some((grown, seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn counters_grow_and_begin_anew() {
        let start = Instant::now();
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        let points: VecDeque<_> = [(0, 10.0), (60, 12.0), (120, 3.0), (180, 4.0)]
            .into_iter()
            .map(|(s, v)| (at(s), v))
            .collect();
        let whole = increase(&points, at(180), Duration::from_secs(300)).unwrap();
        assert_eq!(whole, (6.0, 180.0));
        let part = increase(&points, at(180), Duration::from_secs(60)).unwrap();
        assert_eq!(part, (1.0, 60.0));
        assert_eq!(increase(&points, at(180), Duration::from_secs(1)), None);
    }
}
