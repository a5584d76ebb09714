// SPDX-License-Identifier: Apache-2.0
//! Tasks that wake themselves. The two halves of an HTTP connection talk through a channel, so whoever reads the body of
//! a request wakes the task it runs in. The runtime takes that for a wish to step back: it queues the task anew and
//! rouses another thread to go on with it, where nothing is warm. Here it goes on where it is.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use futures::task::AtomicWaker;

/// A task that wakes itself more often than this steps back.
const TURNS: usize = 4;

/// Nobody looks at the future: who wakes it wakes its task.
const WAITING: u8 = 0;
/// It is being looked at.
const RUNNING: u8 = 1;
/// It was woken while it was being looked at.
const AGAIN: u8 = 2;

#[derive(Default)]
struct Bell {
    state: AtomicU8,
    task: AtomicWaker,
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let running = self
            .state
            .compare_exchange(RUNNING, AGAIN, Ordering::AcqRel, Ordering::Acquire);
        if running == Err(WAITING) {
            self.task.wake();
        }
    }
}

/// Runs a future to its end; when it wakes itself it is asked again at once.
pub(crate) async fn in_place<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let bell = Arc::new(Bell::default());
    let waker = Waker::from(bell.clone());
    poll_fn(move |task| {
        bell.task.register(task.waker());
        for _ in 0..TURNS {
            bell.state.store(RUNNING, Ordering::Release);
            let done = future.as_mut().poll(&mut Context::from_waker(&waker));
            let rests = bell
                .state
                .compare_exchange(RUNNING, WAITING, Ordering::AcqRel, Ordering::Acquire);
            if done.is_ready() || rests.is_ok() {
                return done;
            }
        }
        bell.state.store(WAITING, Ordering::Release);
        task.waker().wake_by_ref();
        Poll::Pending
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;

    #[derive(Default)]
    struct Counter(AtomicUsize);

    impl Wake for Counter {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// Wakes itself `times` times, then it is done.
    fn restless(times: usize) -> impl Future<Output = usize> {
        let mut asked = 0;
        poll_fn(move |context| {
            asked += 1;
            if asked > times {
                return Poll::Ready(asked);
            }
            context.waker().wake_by_ref();
            Poll::Pending
        })
    }

    #[test]
    fn who_wakes_itself_is_asked_again_without_its_task_being_woken() {
        let woken = Arc::new(Counter::default());
        let waker = Waker::from(woken.clone());
        let mut future = pin!(in_place(restless(TURNS - 1)));
        let done = future.as_mut().poll(&mut Context::from_waker(&waker));
        assert_eq!(done, Poll::Ready(TURNS));
        assert_eq!(woken.0.load(Ordering::Acquire), 0);
    }

    #[test]
    fn who_never_rests_steps_back_and_is_woken() {
        let woken = Arc::new(Counter::default());
        let waker = Waker::from(woken.clone());
        let mut future = pin!(in_place(restless(2 * TURNS)));
        for times in 1..=2 {
            assert!(
                future
                    .as_mut()
                    .poll(&mut Context::from_waker(&waker))
                    .is_pending()
            );
            assert_eq!(woken.0.load(Ordering::Acquire), times);
        }
        assert!(future.as_mut().poll(&mut Context::from_waker(&waker)).is_ready());
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn nobody_is_forgotten_who_is_woken_from_elsewhere() {
        let (there, mut here) = tokio::sync::mpsc::channel(1);
        let (back, mut again) = tokio::sync::mpsc::channel(1);
        let echo = tokio::spawn(in_place(async move {
            while let Some(n) = here.recv().await {
                if back.send(n).await.is_err() {
                    break;
                }
            }
        }));
        for n in 0..20_000_u32 {
            there.send(n).await.unwrap();
            assert_eq!(again.recv().await, Some(n));
        }
        drop(there);
        echo.await.unwrap();
    }
}
