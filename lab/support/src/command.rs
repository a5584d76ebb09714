// SPDX-License-Identifier: Apache-2.0
//! Running programs: the lab's own command and virsh, with their output kept for the message.

use std::io::Write;
use std::process::{Command, Stdio};
use std::time::Instant;

use crate::{Error, Result};

/// With `COBALTCORE_LAB_TRACE` set, says what was done and how long it took: a slow suite is found
/// out by reading, not by guessing.
pub(crate) fn trace(begin: Instant, what: &str) {
    if std::env::var_os("COBALTCORE_LAB_TRACE").is_some() {
        let line = format!("lab trace: {:6.1} s  {what}\n", begin.elapsed().as_secs_f32());
        let _ = std::io::stderr().write_all(line.as_bytes());
    }
}

/// Runs a command to its end and returns what it wrote to standard output.
pub(crate) fn run(command: &mut Command) -> Result<String> {
    let line = || {
        let mut words = vec![command_name(command)];
        words.extend(command.get_args().map(|word| word.to_string_lossy().into_owned()));
        words.join(" ")
    };
    let line = line();
    let begin = Instant::now();
    let output = command
        .stdin(Stdio::null())
        .output()
        .map_err(|error| Error::Command {
            command: line.clone(),
            detail: error.to_string(),
        })?;
    trace(begin, &line);
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(Error::Command {
        command: line,
        detail: format!(
            "{}: {}",
            output.status,
            tail(&String::from_utf8_lossy(&output.stderr), 10)
        ),
    })
}

/// The last lines of a text.
pub(crate) fn tail(text: &str, lines: usize) -> String {
    let all: Vec<&str> = text.trim_end().lines().collect();
    all.get(all.len().saturating_sub(lines)..)
        .unwrap_or_default()
        .join("\n")
}

fn command_name(command: &Command) -> String {
    command.get_program().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failing_command_tells_its_line_and_its_last_words() {
        let outcome = run(Command::new("sh").args(["-c", "echo first; echo gone wrong >&2; exit 3"]));
        let text = outcome.err().map(|error| error.to_string()).unwrap_or_default();
        assert!(
            text.contains("sh -c") && text.contains("gone wrong") && text.contains('3'),
            "{text}"
        );
    }

    #[test]
    fn the_tail_of_a_short_text_is_the_text() {
        assert_eq!(tail("a\nb\n", 5), "a\nb");
        assert_eq!(tail("a\nb\nc", 2), "b\nc");
        assert_eq!(tail("", 2), "");
    }
}
