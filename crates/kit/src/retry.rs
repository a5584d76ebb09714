// SPDX-License-Identifier: Apache-2.0
//! Trying again, with manners: growing pauses with jitter, a limit on attempts, and a deadline
//! over everything. Whether an error is worth another try is said by its [`RetryClass`], never
//! guessed from its text.

use std::fmt;
use std::future::Future;
use std::time::Duration;

use tokio::time::Instant;

/// How pauses grow from one attempt to the next.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Backoff {
    /// The pause after the first failure.
    pub base: Duration,
    /// What the pause is multiplied with after each further failure.
    pub factor: f64,
    /// The longest pause.
    pub max: Duration,
    /// The share of the pause that is left to chance, from 0 (none) to 1.
    pub jitter: f64,
}

impl Backoff {
    /// What controllers use per object: 5 ms doubling to 1000 s.
    pub const CONTROLLER: Self = Self {
        base: Duration::from_millis(5),
        factor: 2.0,
        max: Duration::from_secs(1000),
        jitter: 0.0,
    };
    /// For connections to things that restart: 0.2 s doubling to 5 s, 20 % jitter.
    pub const CONNECT: Self = Self {
        base: Duration::from_millis(200),
        factor: 2.0,
        max: Duration::from_secs(5),
        jitter: 0.2,
    };
    /// For single calls: 50 ms doubling to 2 s, 20 % jitter.
    pub const CALL: Self = Self {
        base: Duration::from_millis(50),
        factor: 2.0,
        max: Duration::from_secs(2),
        jitter: 0.2,
    };
    /// For tasks that are restarted: 0.5 s doubling to 1 min, 20 % jitter.
    pub const TASK: Self = Self {
        base: Duration::from_millis(500),
        factor: 2.0,
        max: Duration::from_mins(1),
        jitter: 0.2,
    };

    /// The pause after `failures` failures (the first is 1), where `chance` in `[0, 1)` moves it
    /// within the jitter. Never longer than the maximum.
    ///
    /// ```
    /// use cobaltcore_kit::retry::Backoff;
    /// use std::time::Duration;
    /// assert_eq!(Backoff::CONTROLLER.pause(1, 0.0), Duration::from_millis(5));
    /// assert_eq!(Backoff::CONTROLLER.pause(4, 0.0), Duration::from_millis(40));
    /// ```
    pub fn pause(&self, failures: u32, chance: f64) -> Duration {
        let exponent = i32::try_from(failures.saturating_sub(1)).unwrap_or(i32::MAX);
        let grown = self.base.as_secs_f64() * self.factor.powi(exponent);
        let jittered = grown.min(self.max.as_secs_f64()) * (1.0 - self.jitter * chance);
        Duration::try_from_secs_f64(jittered)
            .unwrap_or(self.max)
            .min(self.max)
    }

    /// [`Backoff::pause`] with real chance.
    pub fn random_pause(&self, failures: u32) -> Duration {
        self.pause(failures, fastrand::f64())
    }
}

/// Whether and how an error may be tried again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetryClass {
    /// The same call may work later.
    Transient,
    /// The other side asks for patience, perhaps with a time.
    Throttled(Option<Duration>),
    /// The call must be built anew from fresh data.
    Conflict,
    /// The same call will never work.
    Permanent,
}

/// Errors that know whether they are worth another try.
pub trait Classify {
    /// The class of this error.
    fn retry_class(&self) -> RetryClass;
}

impl Classify for kube::Error {
    fn retry_class(&self) -> RetryClass {
        match self {
            Self::Api(status) => {
                let seconds = status
                    .details
                    .as_ref()
                    .map_or(0, |details| details.retry_after_seconds);
                let after = (seconds > 0).then(|| Duration::from_secs(seconds.into()));
                match status.code {
                    429 => RetryClass::Throttled(after),
                    409 if status.reason == "AlreadyExists" => RetryClass::Permanent,
                    409 => RetryClass::Conflict,
                    408 | 500 | 502..=504 => {
                        after.map_or(RetryClass::Transient, |after| RetryClass::Throttled(Some(after)))
                    }
                    _ => RetryClass::Permanent,
                }
            }
            Self::HyperError(_) | Self::Service(_) | Self::ReadEvents(_) => RetryClass::Transient,
            _ => RetryClass::Permanent,
        }
    }
}

/// How often and how long to try.
#[derive(Clone, Copy, Debug)]
pub struct Retry {
    /// Pauses between attempts.
    pub backoff: Backoff,
    /// The most attempts.
    pub attempts: u32,
    /// The most time over all attempts and pauses.
    pub deadline: Duration,
    /// Whether the operation reads fresh data itself, so that a conflict may be tried again.
    pub retry_conflicts: bool,
}

impl Default for Retry {
    fn default() -> Self {
        Self {
            backoff: Backoff::CALL,
            attempts: 5,
            deadline: Duration::from_secs(30),
            retry_conflicts: false,
        }
    }
}

/// Why trying ended without success.
#[derive(Debug)]
pub enum RetryError<E> {
    /// The error is not worth another try.
    Permanent(E),
    /// All attempts failed.
    Exhausted {
        /// How many there were.
        attempts: u32,
        /// How the last one failed.
        last: E,
    },
    /// Time ran out.
    Deadline {
        /// How much there was.
        deadline: Duration,
        /// How the last finished attempt failed, if one finished.
        last: Option<E>,
    },
}

impl<E: fmt::Display> fmt::Display for RetryError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Permanent(error) => error.fmt(f),
            Self::Exhausted { attempts, last } => write!(f, "gave up after {attempts} attempts: {last}"),
            Self::Deadline {
                deadline,
                last: Some(last),
            } => write!(f, "not done within {deadline:?}: {last}"),
            Self::Deadline { deadline, last: None } => write!(f, "no answer within {deadline:?}"),
        }
    }
}

impl<E: std::error::Error + 'static> std::error::Error for RetryError<E> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Permanent(error) | Self::Exhausted { last: error, .. } => Some(error),
            Self::Deadline { last, .. } => last.as_ref().map(|error| error as _),
        }
    }
}

impl Retry {
    /// Runs `operation` until it works, must not be tried again, or time or attempts are used up.
    ///
    /// ```
    /// use cobaltcore_kit::retry::{Classify, Retry, RetryClass};
    /// #[derive(Debug)]
    /// struct Busy;
    /// impl Classify for Busy {
    ///     fn retry_class(&self) -> RetryClass { RetryClass::Transient }
    /// }
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
    /// let mut calls = 0;
    /// let answer = Retry::default()
    ///     .run(|| { calls += 1; let call = calls; async move { if call < 3 { Err(Busy) } else { Ok(call) } } })
    ///     .await;
    /// assert_eq!(answer.unwrap(), 3);
    /// # });
    /// ```
    pub async fn run<T, E, F, Fut>(&self, mut operation: F) -> Result<T, RetryError<E>>
    where
        E: Classify,
        F: FnMut() -> Fut,
        Fut: Future<Output = Result<T, E>>,
    {
        let end = Instant::now() + self.deadline;
        let mut last = None;
        let mut failures = 0;
        loop {
            let Ok(outcome) = tokio::time::timeout_at(end, operation()).await else {
                return Err(RetryError::Deadline {
                    deadline: self.deadline,
                    last,
                });
            };
            let error = match outcome {
                Ok(value) => return Ok(value),
                Err(error) => error,
            };
            failures += 1;
            let pause = match error.retry_class() {
                RetryClass::Permanent => return Err(RetryError::Permanent(error)),
                RetryClass::Conflict if !self.retry_conflicts => return Err(RetryError::Permanent(error)),
                RetryClass::Throttled(Some(asked)) => asked.max(self.backoff.random_pause(failures)),
                RetryClass::Throttled(None) | RetryClass::Transient | RetryClass::Conflict => {
                    self.backoff.random_pause(failures)
                }
            };
            if failures >= self.attempts {
                return Err(RetryError::Exhausted {
                    attempts: failures,
                    last: error,
                });
            }
            if Instant::now() + pause >= end {
                return Err(RetryError::Deadline {
                    deadline: self.deadline,
                    last: Some(error),
                });
            }
            last = Some(error);
            tokio::time::sleep(pause).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube::core::Status;

    #[derive(Debug, PartialEq)]
    struct Failure(RetryClass);

    impl Classify for Failure {
        fn retry_class(&self) -> RetryClass {
            self.0
        }
    }

    async fn outcome(retry: Retry, class: RetryClass) -> (u32, RetryError<Failure>) {
        let mut calls = 0;
        let error = retry
            .run(|| {
                calls += 1;
                async move { Err::<(), _>(Failure(class)) }
            })
            .await
            .unwrap_err();
        (calls, error)
    }

    #[test]
    fn pauses_double_up_to_the_maximum_and_jitter_only_shortens() {
        let backoff = Backoff::CONTROLLER;
        let pauses: Vec<u128> = (1..=5).map(|n| backoff.pause(n, 0.0).as_millis()).collect();
        assert_eq!(pauses, [5, 10, 20, 40, 80]);
        assert_eq!(backoff.pause(19, 0.0), Duration::from_secs(1000));
        assert_eq!(backoff.pause(u32::MAX, 0.0), Duration::from_secs(1000));
        assert_eq!(Backoff::CONNECT.pause(1, 1.0), Duration::from_millis(160));
    }

    #[tokio::test(start_paused = true)]
    async fn a_permanent_error_is_tried_once() {
        let (calls, error) = outcome(Retry::default(), RetryClass::Permanent).await;
        assert_eq!(calls, 1);
        assert!(matches!(error, RetryError::Permanent(_)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_conflict_is_tried_again_only_where_data_is_read_afresh() {
        assert_eq!(outcome(Retry::default(), RetryClass::Conflict).await.0, 1);
        let fresh = Retry {
            retry_conflicts: true,
            ..Retry::default()
        };
        assert_eq!(outcome(fresh, RetryClass::Conflict).await.0, 5);
    }

    #[tokio::test(start_paused = true)]
    async fn attempts_and_deadline_both_end_it() {
        let (calls, error) = outcome(Retry::default(), RetryClass::Transient).await;
        assert_eq!(calls, 5);
        assert!(matches!(error, RetryError::Exhausted { attempts: 5, .. }));

        let asked = RetryClass::Throttled(Some(Duration::from_mins(1)));
        let (calls, error) = outcome(Retry::default(), asked).await;
        assert_eq!(calls, 1, "waiting as asked would miss the deadline");
        assert!(matches!(error, RetryError::Deadline { last: Some(_), .. }));
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_that_never_answers_ends_at_the_deadline() {
        let error = Retry::default()
            .run(std::future::pending::<Result<(), Failure>>)
            .await
            .unwrap_err();
        assert!(matches!(error, RetryError::Deadline { last: None, .. }));
    }

    #[test]
    fn answers_of_the_api_have_classes() {
        let api =
            |code: u16, reason: &str| kube::Error::Api(Status::failure("", reason).with_code(code).boxed());
        let table = [
            (429, "TooManyRequests", RetryClass::Throttled(None)),
            (409, "Conflict", RetryClass::Conflict),
            (409, "AlreadyExists", RetryClass::Permanent),
            (500, "InternalError", RetryClass::Transient),
            (503, "ServiceUnavailable", RetryClass::Transient),
            (504, "Timeout", RetryClass::Transient),
            (403, "Forbidden", RetryClass::Permanent),
            (422, "Invalid", RetryClass::Permanent),
        ];
        for (code, reason, class) in table {
            assert_eq!(api(code, reason).retry_class(), class, "{code} {reason}");
        }
    }
}
