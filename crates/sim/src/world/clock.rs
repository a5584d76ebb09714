// SPDX-License-Identifier: Apache-2.0
//! The world's own time. It runs with the machine's clock, faster than it, or only when a test says so; nothing else in
//! the world reads a clock. Tokens are the one exception, because their readers compare them with their own clock.

use std::fmt;
use std::ops::{Add, Sub};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

/// A point in the world's time: milliseconds since the Unix epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Moment(pub i64);

impl Moment {
    /// What the machine's clock says.
    pub fn wall() -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self(since.as_millis() as i64)
    }

    /// How long after `earlier` this is; nothing if it is before.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(u64::try_from(self.0 - earlier.0).unwrap_or(0))
    }

    /// `2026-11-15T07:00:00Z`, as Nova writes most times.
    pub fn iso(self) -> String {
        self.format("%Y-%m-%dT%H:%M:%SZ")
    }

    /// `2026-11-15T07:00:00.000000`, as Nova writes the times of records; its database keeps whole seconds.
    pub fn naive(self) -> String {
        self.format("%Y-%m-%dT%H:%M:%S.000000")
    }

    /// `2026-11-15T07:00:00.000000Z`, as Keystone writes them.
    pub fn precise(self) -> String {
        self.format("%Y-%m-%dT%H:%M:%S%.6fZ")
    }

    fn format(self, form: &str) -> String {
        jiff::Timestamp::from_millisecond(self.0)
            .unwrap_or_default()
            .strftime(form)
            .to_string()
    }

    /// Reads any of the forms above.
    pub fn parse(text: &str) -> Option<Self> {
        let with_zone = || text.parse::<jiff::Timestamp>().ok();
        let without = || format!("{text}Z").parse::<jiff::Timestamp>().ok();
        with_zone().or_else(without).map(|at| Self(at.as_millisecond()))
    }
}

impl Add<Duration> for Moment {
    type Output = Self;
    fn add(self, span: Duration) -> Self {
        Self(
            self.0
                .saturating_add(i64::try_from(span.as_millis()).unwrap_or(i64::MAX)),
        )
    }
}

impl Sub<Duration> for Moment {
    type Output = Self;
    fn sub(self, span: Duration) -> Self {
        Self(
            self.0
                .saturating_sub(i64::try_from(span.as_millis()).unwrap_or(i64::MAX)),
        )
    }
}

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.precise())
    }
}

#[derive(Debug, Clone, Copy)]
enum Pace {
    /// World time goes this many times as fast as the machine's.
    Runs {
        from: Moment,
        since: Instant,
        times: f64,
    },
    /// World time stands until it is moved.
    Stands(Moment),
}

/// Where the world's time comes from.
#[derive(Debug)]
pub struct Clock(Mutex<Pace>);

impl Clock {
    /// Runs `times` as fast as the machine's clock, from `from`.
    pub fn running(from: Moment, times: f64) -> Self {
        Self(Mutex::new(Pace::Runs {
            from,
            since: Instant::now(),
            times: times.max(0.0),
        }))
    }

    /// Stands at `at` until it is moved.
    pub fn standing(at: Moment) -> Self {
        Self(Mutex::new(Pace::Stands(at)))
    }

    /// What time it is in the world.
    pub fn now(&self) -> Moment {
        match *self.0.lock() {
            Pace::Runs { from, since, times } => from + since.elapsed().mul_f64(times),
            Pace::Stands(at) => at,
        }
    }

    /// Moves the time forward by `span`, whatever its pace.
    pub fn step(&self, span: Duration) {
        let now = self.now() + span;
        let mut pace = self.0.lock();
        *pace = match *pace {
            Pace::Runs { times, .. } => Pace::Runs {
                from: now,
                since: Instant::now(),
                times,
            },
            Pace::Stands(_) => Pace::Stands(now),
        };
    }

    /// Changes the pace from now on; 0 makes time stand.
    pub fn set_scale(&self, times: f64) {
        let now = self.now();
        *self.0.lock() = if times > 0.0 {
            Pace::Runs {
                from: now,
                since: Instant::now(),
                times,
            }
        } else {
            Pace::Stands(now)
        };
    }

    /// How long the machine has to wait for `at`; `None` when time stands.
    pub fn wait_for(&self, at: Moment) -> Option<Duration> {
        let now = self.now();
        match *self.0.lock() {
            Pace::Runs { times, .. } if times > 0.0 => Some(at.since(now).div_f64(times)),
            Pace::Runs { .. } | Pace::Stands(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_stands_until_it_is_moved() {
        let clock = Clock::standing(Moment(1_000));
        clock.step(Duration::from_secs(5));
        assert_eq!(clock.now(), Moment(6_000));
        assert_eq!(clock.wait_for(Moment(7_000)), None);
    }

    #[test]
    fn times_are_written_like_the_services_do_and_read_back() {
        let at = Moment(1_763_190_000_123);
        assert_eq!(at.iso(), "2025-11-15T07:00:00Z");
        assert_eq!(at.naive(), "2025-11-15T07:00:00.000000");
        assert_eq!(at.precise(), "2025-11-15T07:00:00.123000Z");
        assert_eq!(Moment::parse(&at.naive()), Some(Moment(1_763_190_000_000)));
        assert_eq!(Moment::parse(&at.precise()), Some(at));
        assert_eq!(Moment::parse("yesterday"), None);
    }
}
