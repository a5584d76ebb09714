// SPDX-License-Identifier: Apache-2.0
//! What follows from an answer of the service. Pure: the sender tells what came and is told what to do.

use std::time::Duration;

use crate::answer::{BatchAnswer, Problem};
use crate::event::Event;

/// Records of one batch.
pub const MOST_RECORDS: usize = 200;
/// Bytes of the records of one batch.
pub const MOST_BYTES: usize = 256 * 1024;
/// After missing or refused credentials.
const CREDENTIALS: Duration = Duration::from_secs(30);
const BACKOFF_FIRST: Duration = Duration::from_millis(500);
const BACKOFF_LAST: Duration = Duration::from_secs(30);
/// Bytes per second of a backlog, to each endpoint.
pub const REPLAY_RATE: f64 = 2.0 * 1024.0 * 1024.0;
/// The longest pause before a backlog is sent after an outage, in seconds.
const REPLAY_SPREAD: f64 = 5.0;
/// The longest pause a service may ask for.
const LONGEST_RETRY_AFTER: Duration = Duration::from_mins(5);

/// What came back for a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Stored up to this number.
    Acked(BatchAnswer),
    /// Records are missing; this number must come next.
    Expected(u64),
    /// Too much at once.
    TooLarge,
    /// Later, perhaps after this long.
    Busy(Option<Duration>),
    /// The credentials are not good.
    Unauthorized,
    /// This will never be taken.
    Refused(u16, String),
    /// No answer, or none that says anything about the batch.
    Broken(String),
}

impl Answer {
    /// Reads a response.
    pub fn read(status: u16, retry_after: Option<Duration>, body: &[u8]) -> Self {
        let problem = || serde_json::from_slice::<Problem>(body).unwrap_or_default();
        match status {
            200 => match serde_json::from_slice(body) {
                Ok(answer) => Self::Acked(answer),
                Err(error) => Self::Broken(format!("the answer is not readable: {error}")),
            },
            409 => match problem().expected_seq {
                Some(seq) => Self::Expected(seq),
                None => Self::Broken("a conflict without a number".to_owned()),
            },
            413 => Self::TooLarge,
            429 | 503 => Self::Busy(retry_after),
            401 | 403 => Self::Unauthorized,
            400 | 422 => Self::Refused(status, problem().detail),
            other => Self::Broken(format!("status {other}")),
        }
    }

    /// A word for metrics.
    pub fn code(&self) -> String {
        match self {
            Self::Acked(_) => "200".to_owned(),
            Self::Expected(_) => "409".to_owned(),
            Self::TooLarge => "413".to_owned(),
            Self::Busy(_) => "busy".to_owned(),
            Self::Unauthorized => "unauthorized".to_owned(),
            Self::Refused(status, _) => status.to_string(),
            Self::Broken(_) => "error".to_owned(),
        }
    }
}

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Go on behind this number.
    Advance(u64),
    /// Go back so that this number comes next, after a pause.
    Rewind(u64, Duration),
    /// Send the same again in smaller parts.
    Shrink,
    /// Put this one record aside and go on without it, after a pause.
    Quarantine(Duration),
    /// Send the same again after a pause.
    Wait(Duration),
    /// Read the credentials again and send the same after a pause.
    Reload(Duration),
}

/// How the conversation with one endpoint goes.
#[derive(Clone, Debug)]
pub struct Pace {
    size: usize,
    failures: u32,
    refusals: u32,
    conflicts: u32,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            size: MOST_RECORDS,
            failures: 0,
            refusals: 0,
            conflicts: 0,
        }
    }
}

impl Pace {
    /// How many records to send at once.
    pub fn size(&self) -> usize {
        self.size
    }

    /// Whether the endpoint did not answer last time.
    pub fn failing(&self) -> bool {
        self.failures > 0
    }

    /// Takes the answer to a batch of so many records; `chance` is in `[0, 1)`.
    pub fn after(&mut self, answer: &Answer, records: usize, chance: f64) -> Step {
        if !matches!(answer, Answer::Broken(_) | Answer::Busy(_)) {
            self.failures = 0;
        }
        match answer {
            Answer::Acked(answer) => {
                *self = Self {
                    size: (self.size * 2).min(MOST_RECORDS),
                    ..Self::default()
                };
                Step::Advance(answer.acked_seq)
            }
            Answer::Expected(seq) => {
                self.conflicts += 1;
                // Once is a restart of the service; again and again is a quarrel.
                let pause = if self.conflicts > 2 {
                    backoff(self.conflicts, chance)
                } else {
                    Duration::ZERO
                };
                Step::Rewind(*seq, pause)
            }
            Answer::TooLarge | Answer::Refused(..) if records > 1 => {
                // Somewhere among them is the one that is not taken.
                self.size = (records / 2).max(1);
                Step::Shrink
            }
            Answer::TooLarge | Answer::Refused(..) => {
                self.refusals += 1;
                // A service that refuses everything is not to be emptied upon at full speed.
                let pause = if self.refusals > 3 {
                    backoff(self.refusals, chance)
                } else {
                    Duration::ZERO
                };
                Step::Quarantine(pause)
            }
            Answer::Busy(after) => {
                self.failures = self.failures.saturating_add(1);
                Step::Wait(after.map_or_else(
                    || backoff(self.failures, chance),
                    |after| after.min(LONGEST_RETRY_AFTER),
                ))
            }
            Answer::Unauthorized => Step::Reload(CREDENTIALS),
            Answer::Broken(_) => {
                self.failures = self.failures.saturating_add(1);
                Step::Wait(backoff(self.failures, chance))
            }
        }
    }
}

/// How long to rest after a part of a backlog, so that a fleet that comes back does not flood the service: a backlog goes at
/// its rate, and its first part after an outage is followed by a random while. `chance` is in `[0, 1)`.
pub fn replay_rest(bytes: usize, took: Duration, after_outage: bool, chance: f64) -> Duration {
    let fair = Duration::from_secs_f64(bytes as f64 / REPLAY_RATE);
    let spread = if after_outage { chance * REPLAY_SPREAD } else { 0.0 };
    fair.saturating_sub(took) + Duration::from_secs_f64(spread)
}

/// Full jitter: anything up to the doubled pause, so that a fleet spreads.
fn backoff(failures: u32, chance: f64) -> Duration {
    let doubled = BACKOFF_FIRST.saturating_mul(1_u32.checked_shl(failures.min(16) - 1).unwrap_or(u32::MAX));
    doubled.min(BACKOFF_LAST).mul_f64(chance.clamp(0.05, 1.0))
}

/// The numbers between `acked` and the records, and between the records, that will never come. `until` is how far
/// there is nothing more if there are no records at all.
pub fn gaps(acked: u64, events: &[Event], until: u64) -> Vec<std::ops::RangeInclusive<u64>> {
    let mut gaps = Vec::new();
    let mut next = acked + 1;
    for event in events {
        if event.seq > next {
            gaps.push(next..=event.seq - 1);
        }
        next = event.seq + 1;
    }
    if events.is_empty() && until >= next {
        gaps.push(next..=until);
    }
    gaps
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn acked(seq: u64) -> Answer {
        let body = format!(r#"{{"acked_seq":{seq},"server_time":"2026-09-01T10:00:00Z"}}"#);
        Answer::read(200, None, body.as_bytes())
    }

    #[test]
    fn answers_are_read() {
        assert!(matches!(acked(7), Answer::Acked(answer) if answer.acked_seq == 7));
        assert_eq!(
            Answer::read(409, None, br#"{"expected_seq":3}"#),
            Answer::Expected(3)
        );
        assert!(matches!(Answer::read(409, None, b"nonsense"), Answer::Broken(_)));
        assert!(matches!(Answer::read(200, None, b"nonsense"), Answer::Broken(_)));
        assert_eq!(Answer::read(413, None, b""), Answer::TooLarge);
        assert_eq!(
            Answer::read(503, Some(Duration::from_secs(2)), b""),
            Answer::Busy(Some(Duration::from_secs(2)))
        );
        assert_eq!(Answer::read(401, None, b""), Answer::Unauthorized);
        assert_eq!(Answer::read(403, None, b""), Answer::Unauthorized);
        assert!(
            matches!(Answer::read(422, None, br#"{"detail":"x"}"#), Answer::Refused(422, why) if why == "x")
        );
        assert!(matches!(Answer::read(404, None, b""), Answer::Broken(_)));
        assert!(matches!(Answer::read(500, None, b""), Answer::Broken(_)));
    }

    #[test]
    fn each_answer_has_its_step() {
        let step = |answer: &Answer, records| Pace::default().after(answer, records, 1.0);
        assert_eq!(step(&acked(9), 5), Step::Advance(9));
        assert_eq!(step(&Answer::Expected(4), 5), Step::Rewind(4, Duration::ZERO));
        assert_eq!(step(&Answer::TooLarge, 5), Step::Shrink);
        assert_eq!(step(&Answer::TooLarge, 1), Step::Quarantine(Duration::ZERO));
        assert_eq!(step(&Answer::Refused(422, String::new()), 5), Step::Shrink);
        assert_eq!(
            step(&Answer::Refused(422, String::new()), 1),
            Step::Quarantine(Duration::ZERO)
        );
        assert_eq!(
            step(&Answer::Busy(Some(Duration::from_secs(7))), 5),
            Step::Wait(Duration::from_secs(7))
        );
        assert_eq!(
            step(&Answer::Unauthorized, 5),
            Step::Reload(Duration::from_secs(30))
        );
        assert_eq!(
            step(&Answer::Broken(String::new()), 5),
            Step::Wait(Duration::from_millis(500))
        );
    }

    #[test]
    fn the_one_that_is_refused_is_found_by_halving() {
        let mut pace = Pace::default();
        let mut records = 200;
        let mut rounds = 0;
        while pace.after(&Answer::Refused(422, String::new()), records, 1.0) == Step::Shrink {
            records = pace.size();
            rounds += 1;
        }
        assert_eq!((records, rounds), (1, 7));
        pace.after(&acked(1), 1, 1.0);
        assert_eq!(pace.size(), 2, "and sizes grow back");
    }

    #[test]
    fn pauses_grow_and_end() {
        let mut pace = Pace::default();
        let mut last = Duration::ZERO;
        for _ in 0..40 {
            let Step::Wait(pause) = pace.after(&Answer::Broken(String::new()), 1, 1.0) else {
                panic!("not a pause");
            };
            assert!(pause >= last && pause <= Duration::from_secs(30));
            last = pause;
        }
        assert_eq!(last, Duration::from_secs(30));
        assert!(pace.failing());
        pace.after(&acked(1), 1, 1.0);
        assert!(!pace.failing());
    }

    #[test]
    fn a_backlog_goes_at_its_rate() {
        let second = Duration::from_secs(1);
        assert_eq!(replay_rest(2 << 20, Duration::ZERO, false, 0.5), second);
        assert_eq!(replay_rest(2 << 20, second / 4, false, 0.5), second * 3 / 4);
        assert_eq!(replay_rest(1, second, false, 0.5), Duration::ZERO);
        assert_eq!(replay_rest(0, Duration::ZERO, true, 0.5), second * 5 / 2);
    }

    proptest! {
        /// What is announced and what is sent cover every number exactly once.
        #[test]
        fn nothing_is_left_out(acked in 0_u64..50, numbers in proptest::collection::btree_set(1_u64..100, 0..40), until in 0_u64..120) {
            let events: Vec<Event> = numbers.iter().filter(|seq| **seq > acked).map(|seq| {
                Event { seq: *seq, ..super::super::tests::record(crate::event::Kind::Reboot, "") }
            }).collect();
            let gaps = gaps(acked, &events, until);
            let mut covered: Vec<u64> = gaps.iter().cloned().flatten().chain(events.iter().map(|event| event.seq)).collect();
            covered.sort_unstable();
            let end = events.last().map_or(until.max(acked), |event| event.seq);
            prop_assert_eq!(covered, (acked + 1..=end).collect::<Vec<_>>());
        }
    }
}
