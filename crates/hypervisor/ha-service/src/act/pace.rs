// SPDX-License-Identifier: Apache-2.0
//! How fast Nova is asked while guests are moved: so many requests per second at most, half as many
//! after each sign that it is too much, and slowly more again.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// The slowest pace, in requests per second.
const SLOWEST: f64 = 1.0;
/// How often the pace grows again, and by how much.
const RECOVERY: (Duration, f64) = (Duration::from_secs(10), 1.1);

#[derive(Debug)]
struct State {
    fastest: f64,
    rate: f64,
    next: Instant,
    changed: Instant,
}

/// Hands out turns.
#[derive(Debug)]
pub(super) struct Pace {
    state: Mutex<State>,
}

impl Pace {
    pub(super) fn new(fastest: u32) -> Self {
        let now = Instant::now();
        let fastest = f64::from(fastest.max(1));
        Self {
            state: Mutex::new(State {
                fastest,
                rate: fastest,
                next: now,
                changed: now,
            }),
        }
    }

    /// Waits for a turn.
    pub(super) async fn turn(&self) {
        let at = {
            let mut state = self.state.lock();
            let now = Instant::now();
            while state.rate < state.fastest && now.duration_since(state.changed) >= RECOVERY.0 {
                state.rate = (state.rate * RECOVERY.1).min(state.fastest);
                state.changed += RECOVERY.0;
            }
            let at = state.next.max(now);
            state.next = at + Duration::from_secs_f64(1.0 / state.rate);
            at
        };
        tokio::time::sleep_until(at).await;
    }

    /// From now on so many requests per second, at most.
    pub(super) fn limit(&self, fastest: u32) {
        let mut state = self.state.lock();
        let before = std::mem::replace(&mut state.fastest, f64::from(fastest.max(1)));
        // What was slowed down recovers by itself; what was not takes the new pace at once.
        if state.rate >= before || state.rate > state.fastest {
            state.rate = state.fastest;
        }
    }

    /// Nova is overloaded.
    pub(super) fn slow_down(&self) {
        let mut state = self.state.lock();
        state.rate = (state.rate / 2.0).max(SLOWEST);
        state.changed = Instant::now();
    }

    #[cfg(test)]
    fn rate(&self) -> f64 {
        self.state.lock().rate
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn requests_are_spread_and_trouble_slows_them_down() {
        let pace = Pace::new(10);
        let begin = Instant::now();
        for _ in 0..11 {
            pace.turn().await;
        }
        assert_eq!(begin.elapsed().as_millis(), 1000);
        for expected in [5.0, 2.5, 1.25, 1.0, 1.0] {
            pace.slow_down();
            assert_eq!(pace.rate(), expected);
        }
        tokio::time::advance(Duration::from_secs(20)).await;
        pace.turn().await;
        assert!((pace.rate() - 1.21).abs() < 0.001, "{}", pace.rate());
        tokio::time::advance(Duration::from_secs(3600)).await;
        pace.turn().await;
        assert_eq!(pace.rate(), 10.0);
    }
}
