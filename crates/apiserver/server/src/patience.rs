// SPDX-License-Identifier: Apache-2.0
//! Waiting beside something busy. A watch waits for its alarm beside its events, a connection for the end of the server
//! beside its requests. Who asks a future again for every event pays each time for what happens once an hour; here it is
//! asked when it is due, and when somebody else is to be woken.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Poll, Waker};

/// A future that is seldom ready.
pub(crate) struct Patient<F> {
    future: Pin<Box<F>>,
    /// Whom it wakes.
    wakes: Option<Waker>,
}

impl<F: Future> Patient<F> {
    pub(crate) fn new(future: F) -> Self {
        Self {
            future: Box::pin(future),
            wakes: None,
        }
    }

    /// Waits for it. `due` tells cheaply whether it may be ready.
    pub(crate) async fn due(&mut self, due: impl Fn(&F) -> bool) -> F::Output {
        poll_fn(|context| {
            let waits = |waker: &Waker| waker.will_wake(context.waker());
            if self.wakes.as_ref().is_some_and(waits) && !due(&self.future) {
                return Poll::Pending;
            }
            self.wakes = Some(context.waker().clone());
            self.future.as_mut().poll(context)
        })
        .await
    }

    /// Changes what it waits for.
    pub(crate) fn change(&mut self, change: impl FnOnce(Pin<&mut F>)) {
        change(self.future.as_mut());
        self.wakes = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::sync::Arc;
    use std::task::{Context, Wake};

    struct Somebody;

    impl Wake for Somebody {
        fn wake(self: Arc<Self>) {}
    }

    #[test]
    fn it_is_asked_when_it_is_due_and_when_somebody_else_waits() {
        let (asked, due) = (Cell::new(0), Cell::new(false));
        let mut patient = Patient::new(poll_fn(|_| {
            asked.set(asked.get() + 1);
            if due.get() { Poll::Ready(()) } else { Poll::Pending }
        }));
        let (one, other) = (Waker::from(Arc::new(Somebody)), Waker::from(Arc::new(Somebody)));
        let mut ask = |waker: &Waker| {
            let mut waiting = std::pin::pin!(patient.due(|_| due.get()));
            waiting.as_mut().poll(&mut Context::from_waker(waker))
        };
        for _ in 0..3 {
            assert_eq!(ask(&one), Poll::Pending);
        }
        assert_eq!(asked.get(), 1);
        assert_eq!(ask(&other), Poll::Pending);
        assert_eq!(asked.get(), 2);
        due.set(true);
        assert_eq!(ask(&other), Poll::Ready(()));
    }

    #[tokio::test(start_paused = true)]
    async fn an_alarm_that_was_set_anew_rings_again() {
        let alarm = tokio::time::sleep(std::time::Duration::from_secs(60));
        let mut patient = Patient::new(alarm);
        for seconds in [60, 90] {
            patient.due(tokio::time::Sleep::is_elapsed).await;
            let now = tokio::time::Instant::now();
            patient.change(|alarm| alarm.reset(now + std::time::Duration::from_secs(seconds)));
        }
        patient.due(tokio::time::Sleep::is_elapsed).await;
    }
}
