// SPDX-License-Identifier: Apache-2.0
//! Whether a failed attempt is followed by another one within the same call. The judgement is pure:
//! only what cannot have been done, or may be done twice, is ever sent again.

use std::time::Duration;

use crate::call::Repeat;
use crate::error::Error;

const FIRST_WAIT: Duration = Duration::from_millis(200);
const LONGEST_WAIT: Duration = Duration::from_secs(5);

/// How long to wait before the next attempt; nothing if there shall be none. `tries` were made so
/// far, `most` are allowed, and `jitter` lies between 0 and 1.
pub(crate) fn wait_before_next(
    error: &Error,
    tries: u32,
    most: u32,
    remaining: Duration,
    jitter: f64,
) -> Option<Duration> {
    if tries >= most || !is_worth_another_try(error) {
        return None;
    }
    let doubled = FIRST_WAIT.saturating_mul(1_u32 << (tries - 1).min(10));
    let wait = doubled
        .min(LONGEST_WAIT)
        .mul_f64(0.5 + 0.5 * jitter.clamp(0.0, 1.0));
    let wait = wait.max(error.retry_after().unwrap_or_default());
    // an answer takes time too: a wait that uses up the rest helps nobody
    (wait < remaining).then_some(wait)
}

fn is_worth_another_try(error: &Error) -> bool {
    match error {
        // never reached, or refused unseen
        Error::Unreachable { .. } | Error::RateLimited(_) => true,
        Error::Overloaded(refusal) => {
            matches!(refusal.status, 502..=504) && refusal.of.call.repeat == Repeat::Safe
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::{Call, Service};
    use crate::error::{Attempted, Refusal};

    const READ: Call = Call::get(Service::Nova, "read", "/");
    const ACT: Call = Call::post(Service::Nova, "act", "/");
    const MINUTE: Duration = Duration::from_secs(60);

    fn refusal(call: &'static Call, status: u16, retry_after: Option<u64>) -> Refusal {
        Refusal {
            of: Attempted {
                call,
                object: String::new(),
            },
            status,
            code: None,
            message: String::new(),
            request_id: None,
            retry_after: retry_after.map(Duration::from_secs),
        }
    }

    fn again(error: &Error, tries: u32, remaining: Duration) -> Option<Duration> {
        wait_before_next(error, tries, 3, remaining, 1.0)
    }

    #[test]
    fn a_broken_gateway_is_asked_again_for_reads_only() {
        for status in [502, 503, 504] {
            assert!(
                again(
                    &Error::Overloaded(Box::new(refusal(&READ, status, None))),
                    1,
                    MINUTE
                )
                .is_some()
            );
            assert!(
                again(
                    &Error::Overloaded(Box::new(refusal(&ACT, status, None))),
                    1,
                    MINUTE
                )
                .is_none()
            );
        }
        assert!(again(&Error::Overloaded(Box::new(refusal(&READ, 500, None))), 1, MINUTE).is_none());
    }

    #[test]
    fn what_was_never_done_is_sent_again() {
        let unreachable = Error::Unreachable {
            of: Box::new(refusal(&ACT, 0, None).of),
            cause: String::new(),
        };
        let lost = Error::UnknownOutcome {
            of: Box::new(refusal(&ACT, 0, None).of),
            cause: String::new(),
        };
        assert_eq!(again(&unreachable, 1, MINUTE), Some(FIRST_WAIT));
        assert_eq!(again(&unreachable, 2, MINUTE), Some(FIRST_WAIT * 2));
        assert_eq!(again(&unreachable, 3, MINUTE), None, "three tries are enough");
        assert_eq!(again(&lost, 1, MINUTE), None);
    }

    #[test]
    fn a_service_that_names_its_time_gets_it_or_nothing() {
        let limited = Error::RateLimited(Box::new(refusal(&ACT, 429, Some(7))));
        assert_eq!(again(&limited, 1, MINUTE), Some(Duration::from_secs(7)));
        assert_eq!(again(&limited, 1, Duration::from_secs(5)), None);
    }

    #[test]
    fn refusals_stand() {
        let refusals = [
            Error::NotFound(Box::new(refusal(&READ, 404, None))),
            Error::Conflict(Box::new(refusal(&READ, 409, None))),
            Error::Forbidden(Box::new(refusal(&READ, 403, None))),
            Error::Refused(Box::new(refusal(&READ, 400, None))),
        ];
        for error in refusals {
            assert_eq!(again(&error, 1, MINUTE), None, "{error}");
        }
    }
}
