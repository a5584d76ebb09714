// SPDX-License-Identifier: Apache-2.0
//! What was scraped before, as far as rules ask for it: growth of counters needs two looks.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use cobaltcore_api::names::HostName;
use tokio::time::Instant;

use super::MOST_SERIES;
use crate::sources::exposition::Sample;
use crate::sources::expr::{Labels, Term};

/// Values kept of each series for `increase` and `rate`.
const MOST_POINTS: usize = 512;
/// A series that was not seen for this long is forgotten.
const LONGEST: Duration = Duration::from_secs(6 * 3600);

/// Of one host, by metric and labels.
type Series = HashMap<(String, Labels), VecDeque<(Instant, f64)>>;

/// Of all hosts. Each has its own room.
#[derive(Default)]
pub(super) struct History(HashMap<HostName, Series>);

impl History {
    /// Keeps what a host shows now.
    pub(super) fn keep(&mut self, host: &HostName, samples: &[Sample], now: Instant) {
        let known = self.0.entry(host.clone()).or_default();
        for sample in samples {
            let key = (sample.metric.clone(), sample.labels.clone());
            if known.len() >= MOST_SERIES && !known.contains_key(&key) {
                continue;
            }
            let points = known.entry(key).or_default();
            points.push_back((now, sample.value));
            while points.len() > MOST_POINTS {
                points.pop_front();
            }
        }
    }

    /// Forgets what was not seen for long, and hosts of which nothing is left.
    pub(super) fn forget(&mut self, now: Instant) {
        let lately = |points: &VecDeque<(Instant, f64)>| {
            points
                .back()
                .is_some_and(|(at, _)| now.duration_since(*at) < LONGEST)
        };
        self.0.retain(|_, known| {
            known.retain(|_, points| lately(points));
            !known.is_empty()
        });
    }
}

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
        let key = (sample.metric.clone(), sample.labels.clone());
        increase(history.0.get(host)?.get(&key)?, now, span)
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
    async fn a_host_with_much_to_tell_takes_no_room_of_others() {
        let series = |count: usize| -> Vec<Sample> {
            let sample = |n: usize| Sample {
                metric: "a".into(),
                labels: Labels::from([("n".to_owned(), n.to_string())]),
                value: 1.0,
            };
            (0..count).map(sample).collect()
        };
        let (mut history, now) = (History::default(), Instant::now());
        let [loud, other] = ["n1", "n2"].map(|name| HostName::new(name).unwrap());
        history.keep(&loud, &series(3 * MOST_SERIES), now);
        history.keep(&other, &series(7), now);
        let kept = |history: &History, host| history.0.get(host).map(HashMap::len);
        assert_eq!(kept(&history, &loud), Some(MOST_SERIES));
        assert_eq!(kept(&history, &other), Some(7));
        let later = now + LONGEST;
        history.keep(&other, &series(2), later);
        history.forget(later);
        assert_eq!((kept(&history, &loud), kept(&history, &other)), (None, Some(2)));
    }

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
