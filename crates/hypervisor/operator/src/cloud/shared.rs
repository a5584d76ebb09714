// SPDX-License-Identifier: Apache-2.0
//! One answer for many who ask: a list that the whole fleet needs is fetched once, however many
//! hosts ask at the same moment, and serves everybody until it is too old for the one who asks.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::OnceCell;
use tokio::time::Instant;

struct Slot<T> {
    since: Instant,
    answer: Arc<OnceCell<Arc<T>>>,
}

/// An answer that is shared.
pub(crate) struct Shared<T>(Arc<Mutex<Option<Slot<T>>>>);

impl<T> Clone for Shared<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> Default for Shared<T> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<T> Shared<T> {
    /// The answer if it was asked for within `max_age`, otherwise what `fetch` brings. A failure is
    /// not kept: the next one asks again.
    pub(crate) async fn get<E, F>(&self, max_age: Duration, fetch: impl FnOnce() -> F) -> Result<Arc<T>, E>
    where
        F: Future<Output = Result<T, E>>,
    {
        self.get_since(Instant::now().checked_sub(max_age), fetch).await
    }

    /// The same for an answer that was asked for at `oldest` or later, or at any time. Those who
    /// share a moment share an answer, however late each of them comes to ask.
    pub(crate) async fn get_since<E, F>(
        &self,
        oldest: Option<Instant>,
        fetch: impl FnOnce() -> F,
    ) -> Result<Arc<T>, E>
    where
        F: Future<Output = Result<T, E>>,
    {
        let answer = {
            let mut slot = self.0.lock();
            match slot.as_ref() {
                Some(kept) if oldest.is_none_or(|oldest| kept.since >= oldest) => Arc::clone(&kept.answer),
                _ => {
                    let answer = Arc::default();
                    *slot = Some(Slot {
                        since: Instant::now(),
                        answer: Arc::clone(&answer),
                    });
                    answer
                }
            }
        };
        let init = || async { fetch().await.map(Arc::new) };
        answer.get_or_try_init(init).await.map(Arc::clone)
    }

    /// Changes what is known by what we did ourselves, which is as good as asking again.
    pub(crate) fn amend(&self, change: impl FnOnce(&mut T))
    where
        T: Clone,
    {
        let mut slot = self.0.lock();
        if let Some(kept) = slot.as_mut()
            && let Some(known) = kept.answer.get()
        {
            let mut changed = T::clone(known);
            change(&mut changed);
            kept.answer = Arc::new(OnceCell::from(Arc::new(changed)));
        }
    }

    /// Makes the next one ask anew: what is known was changed by ourselves.
    pub(crate) fn forget(&self) {
        *self.0.lock() = None;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    async fn ask(shared: &Shared<u32>, calls: &AtomicU32, max_age: Duration) -> u32 {
        let fetch = || async {
            tokio::time::sleep(Duration::from_millis(10)).await;
            Ok::<_, std::convert::Infallible>(calls.fetch_add(1, Ordering::SeqCst))
        };
        *shared.get(max_age, fetch).await.unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn a_thousand_askers_cost_one_call() {
        let (shared, calls) = (Shared::default(), AtomicU32::new(0));
        let minute = Duration::from_mins(1);
        let asks = (0..1000).map(|_| ask(&shared, &calls, minute));
        let answers = futures::future::join_all(asks).await;
        assert!(answers.iter().all(|answer| *answer == 0));
        assert_eq!(calls.load(Ordering::SeqCst), 1);
        tokio::time::advance(Duration::from_secs(61)).await;
        assert_eq!(ask(&shared, &calls, minute).await, 1, "too old is asked anew");
        shared.forget();
        assert_eq!(
            ask(&shared, &calls, minute).await,
            2,
            "and so is what was changed"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn who_comes_late_to_a_moment_shares_its_answer() {
        let (shared, calls) = (Shared::default(), AtomicU32::new(0));
        let moment = Instant::now();
        for _ in 0..3 {
            let fetch = || async { Ok::<_, std::convert::Infallible>(calls.fetch_add(1, Ordering::SeqCst)) };
            let answer = shared.get_since(Some(moment), fetch).await.unwrap();
            assert_eq!(*answer, 0);
            tokio::time::advance(Duration::from_mins(1)).await;
        }
        let fetch = || async { Ok::<_, std::convert::Infallible>(calls.fetch_add(1, Ordering::SeqCst)) };
        let next = shared.get_since(Some(Instant::now()), fetch).await.unwrap();
        assert_eq!(*next, 1, "another moment, another answer");
    }

    #[tokio::test]
    async fn a_failure_is_not_kept() {
        let shared = Shared::<u32>::default();
        let minute = Duration::from_mins(1);
        let failed = shared.get(minute, || async { Err::<u32, _>("no") }).await;
        assert_eq!(failed.unwrap_err(), "no");
        let answered = shared.get(minute, || async { Ok::<_, &str>(7) }).await;
        assert_eq!(*answered.unwrap(), 7);
    }
}
