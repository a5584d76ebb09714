// SPDX-License-Identifier: Apache-2.0
//! Signs of life, the same for both sides: a ping after each interval of silence, death after too many of them went
//! unanswered. Any frame counts as an answer.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

/// When silence becomes death: a ping after each `interval` of silence, and after `count` unanswered ones the
/// connection is given up, `interval * (count + 1)` after the last sign of life.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Keepalive {
    /// Silence before a ping; zero switches keepalive off.
    pub interval: Duration,
    /// Unanswered pings that are tolerated.
    pub count: u32,
}

impl Default for Keepalive {
    fn default() -> Self {
        Self {
            interval: Duration::from_secs(5),
            count: 3,
        }
    }
}

/// When the peer was last heard.
#[derive(Debug)]
pub(crate) struct Pulse {
    born: Instant,
    heard_ms: AtomicU64,
}

impl Pulse {
    pub(crate) fn new() -> Self {
        Self {
            born: Instant::now(),
            heard_ms: AtomicU64::new(0),
        }
    }

    pub(crate) fn heard(&self) {
        let now = u64::try_from(self.born.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.heard_ms.store(now, Ordering::Relaxed);
    }

    fn last_heard(&self) -> Duration {
        Duration::from_millis(self.heard_ms.load(Ordering::Relaxed))
    }

    /// Pings when it is due and completes when the peer is dead, with the silence and the pings it took.
    pub(crate) async fn death(&self, keepalive: &Keepalive, ping: impl Fn()) -> (Duration, u32) {
        if keepalive.interval.is_zero() {
            std::future::pending::<()>().await;
        }
        let (mut pings, mut answered) = (0, self.last_heard());
        loop {
            let heard = self.last_heard();
            if heard != answered {
                (pings, answered) = (0, heard);
            }
            let silence = self.born.elapsed().saturating_sub(heard);
            let due = keepalive.interval.saturating_mul(pings + 1);
            match due.checked_sub(silence).filter(|wait| !wait.is_zero()) {
                Some(wait) => tokio::time::sleep(wait).await,
                None if pings >= keepalive.count => return (silence, pings),
                None => {
                    pings += 1;
                    ping();
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU32;

    #[tokio::test(start_paused = true)]
    async fn three_unanswered_pings_are_death_after_20_seconds() {
        let pulse = Pulse::new();
        let sent = AtomicU32::new(0);
        let begun = Instant::now();
        let (_, pings) = pulse
            .death(&Keepalive::default(), || {
                sent.fetch_add(1, Ordering::Relaxed);
            })
            .await;
        assert_eq!((pings, sent.load(Ordering::Relaxed)), (3, 3));
        assert_eq!(begun.elapsed().as_secs(), 20);
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_starts_the_count_again() {
        let pulse = Pulse::new();
        let sent = AtomicU32::new(0);
        let answer_twice = || {
            if sent.fetch_add(1, Ordering::Relaxed) < 2 {
                pulse.heard();
            }
        };
        let begun = Instant::now();
        let (_, pings) = pulse.death(&Keepalive::default(), answer_twice).await;
        assert_eq!((pings, sent.load(Ordering::Relaxed)), (3, 5));
        assert_eq!(begun.elapsed().as_secs(), 30);
    }
}
