// SPDX-License-Identifier: Apache-2.0
//! Waiting for the real world, which is late: one loop with a deadline that remembers what it saw.

use std::time::{Duration, Instant};

use crate::command::trace;
use crate::{Error, Result};

const PAUSE: Duration = Duration::from_millis(250);

/// Repeats `attempt` until it yields a value. `Ok(Err(text))` means "not yet" and is kept for the
/// message; an error of the attempt itself is treated the same way, because a service that is
/// being broken on purpose may well refuse an answer.
pub fn eventually<T>(
    what: &str,
    limit: Duration,
    mut attempt: impl FnMut() -> Result<std::result::Result<T, String>>,
) -> Result<T> {
    let begin = Instant::now();
    loop {
        let last = match attempt() {
            Ok(Ok(value)) => {
                trace(begin, &format!("waiting for {what}"));
                return Ok(value);
            }
            Ok(Err(seen)) => seen,
            Err(error) => error.to_string(),
        };
        let waited = begin.elapsed();
        if waited >= limit {
            return Err(Error::Timeout {
                what: what.to_owned(),
                waited,
                last,
            });
        }
        std::thread::sleep(PAUSE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn yields_the_first_value_after_errors_and_not_yets() {
        let mut calls = 0;
        let value = eventually("the third call", Duration::from_mins(1), || {
            calls += 1;
            match calls {
                1 => Err(Error::NoControlPlane),
                2 => Ok(Err("not yet".to_owned())),
                _ => Ok(Ok(calls)),
            }
        });
        assert_eq!(value.ok(), Some(3));
    }

    #[test]
    fn names_what_it_saw_last() {
        let outcome: Result<()> = eventually("a miracle", Duration::ZERO, || Ok(Err("rain".to_owned())));
        let text = outcome.err().map(|error| error.to_string()).unwrap_or_default();
        assert!(text.contains("a miracle") && text.contains("rain"), "{text}");
    }
}
