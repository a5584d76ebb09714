// SPDX-License-Identifier: Apache-2.0
//! How fast Nova is asked while guests are moved: so many requests per second at most, half as many
//! after each sign that it is too much, and slowly more again.

use std::sync::atomic::{AtomicUsize, Ordering};
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

/// Who waits for a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lane {
    /// An evacuation: a guest is down until it is asked for.
    Evacuation,
    /// Everything around it.
    Usual,
}

/// Hands out turns: to evacuations first, otherwise in the order in which they were asked for.
#[derive(Debug)]
pub(super) struct Pace {
    state: Mutex<State>,
    /// Evacuations that wait.
    evacuations: AtomicUsize,
    /// One of each lane at a time waits for the next turn.
    lanes: [tokio::sync::Mutex<()>; 2],
}

/// Counts an evacuation that waits, until it is dropped.
struct Waits<'a>(&'a AtomicUsize);

impl<'a> Waits<'a> {
    fn new(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count)
    }
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
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
            evacuations: AtomicUsize::new(0),
            lanes: Default::default(),
        }
    }

    /// Waits for a turn.
    pub(super) async fn turn(&self, lane: Lane) {
        let _waits = (lane == Lane::Evacuation).then(|| Waits::new(&self.evacuations));
        let _first = self.lanes[lane as usize].lock().await;
        while let Err(until) = self.try_turn(lane) {
            tokio::time::sleep_until(until).await;
        }
    }

    /// Takes a turn, or says when to ask again.
    fn try_turn(&self, lane: Lane) -> Result<(), Instant> {
        let mut state = self.state.lock();
        let now = Instant::now();
        while state.rate < state.fastest && now.duration_since(state.changed) >= RECOVERY.0 {
            state.rate = (state.rate * RECOVERY.1).min(state.fastest);
            state.changed += RECOVERY.0;
        }
        if now < state.next {
            return Err(state.next);
        }
        let apart = Duration::from_secs_f64(1.0 / state.rate);
        if lane == Lane::Usual && self.evacuations.load(Ordering::Relaxed) > 0 {
            return Err(now + apart);
        }
        // A turn taken a little late does not delay the ones after it.
        let on_time = now.duration_since(state.next) < apart;
        state.next = if on_time { state.next } else { now } + apart;
        Ok(())
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
            pace.turn(Lane::Usual).await;
        }
        assert_eq!(begin.elapsed().as_millis(), 1000);
        for expected in [5.0, 2.5, 1.25, 1.0, 1.0] {
            pace.slow_down();
            assert_eq!(pace.rate(), expected);
        }
        tokio::time::advance(Duration::from_secs(20)).await;
        pace.turn(Lane::Usual).await;
        assert!((pace.rate() - 1.21).abs() < 0.001, "{}", pace.rate());
        tokio::time::advance(Duration::from_secs(3600)).await;
        pace.turn(Lane::Usual).await;
        assert_eq!(pace.rate(), 10.0);
    }

    #[tokio::test(start_paused = true)]
    async fn evacuations_do_not_wait_behind_locks() {
        let pace = std::sync::Arc::new(Pace::new(10));
        let order = std::sync::Arc::new(Mutex::new(Vec::new()));
        let mut all = Vec::new();
        for lane in [
            Lane::Usual,
            Lane::Usual,
            Lane::Usual,
            Lane::Evacuation,
            Lane::Evacuation,
        ] {
            let (pace, order) = (std::sync::Arc::clone(&pace), std::sync::Arc::clone(&order));
            all.push(tokio::spawn(async move {
                pace.turn(lane).await;
                order.lock().push(lane);
            }));
            tokio::task::yield_now().await;
        }
        for one in all {
            one.await.unwrap();
        }
        let wanted = [
            Lane::Usual,
            Lane::Evacuation,
            Lane::Evacuation,
            Lane::Usual,
            Lane::Usual,
        ];
        assert_eq!(*order.lock(), wanted);
    }
}
