// SPDX-License-Identifier: Apache-2.0
//! Running a program: without a shell, with nothing in its environment that was not given to it, with a
//! time limit and a bound on what it may print. When it ends or its time is over, everything it started
//! ends with it.

use std::collections::BTreeMap;
use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{Child, Command};

use crate::credentials::{Secret, hidden};

/// Most bytes a program may print on either stream.
const LONGEST_OUTPUT: u64 = 64 << 10;
/// Most characters of its complaints that are told.
const LONGEST_WORDS: usize = 300;
/// Where programs are looked for.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// A program that is to be run.
#[derive(Debug, Default)]
pub(crate) struct Program<'a> {
    pub(crate) command: &'a str,
    pub(crate) args: Vec<&'a str>,
    pub(crate) environment: BTreeMap<&'a str, &'a str>,
    /// What it reads on its standard input.
    pub(crate) input: String,
}

/// What a program printed and how it ended.
#[derive(Debug)]
pub(crate) struct Ended {
    /// Its exit code; nothing if a signal ended it.
    pub(crate) code: Option<i32>,
    pub(crate) output: Vec<u8>,
    /// What it said on its error stream.
    words: String,
    /// What it was told in confidence.
    secrets: Vec<Secret>,
}

impl Ended {
    /// Keeps what it was told in confidence out of whatever is told of it.
    pub(crate) fn hide(&mut self, secret: &Secret) {
        self.secrets.push(secret.clone());
    }

    /// How it ended, for whoever expected something else: with its complaints in one short line.
    pub(crate) fn badly(&self) -> String {
        let how = self
            .code
            .map_or("was killed".to_owned(), |code| format!("ended with {code}"));
        format!("it {how}: {}", self.shown(&self.words))
    }

    /// What it printed, in one short line.
    pub(crate) fn printed(&self) -> String {
        self.shown(&String::from_utf8_lossy(&self.output))
    }

    /// Secrets go before anything is cut off: half of one is a secret as well.
    fn shown(&self, text: &str) -> String {
        hidden(text, &self.secrets).chars().take(LONGEST_WORDS).collect()
    }
}

/// Why there is no end to tell of.
#[derive(Debug)]
pub(crate) enum Failure {
    Late,
    Other(String),
}

impl Program<'_> {
    /// Runs it to its end, or ends it after `limit`. One that has no time left is not begun.
    pub(crate) async fn run(self, limit: Duration) -> Result<Ended, Failure> {
        if limit.is_zero() {
            return Err(Failure::Late);
        }
        let ended = tokio::time::timeout(limit, self.ended()).await;
        ended.map_err(|_| Failure::Late)?.map_err(Failure::Other)
    }

    async fn ended(self) -> Result<Ended, String> {
        let mut command = Command::new(self.command);
        command
            .args(&self.args)
            .env_clear()
            .env("PATH", PATH)
            .env("LANG", "C.UTF-8")
            .envs(&self.environment)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true);
        let child = command
            .spawn()
            .map_err(|error| format!("cannot be started: {error}"))?;
        let mut family = Family(child);
        let child = &mut family.0;
        let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let input = self.input;
        let write = async move {
            if let Some(mut stdin) = stdin {
                // A program that does not read its input ends the pipe; that is its own affair.
                let _ = stdin.write_all(input.as_bytes()).await;
            }
        };
        let ((), output, words) = tokio::join!(write, read(stdout), read(stderr));
        let (Some(output), Some(words)) = (output, words) else {
            return Err(format!("it prints more than {LONGEST_OUTPUT} bytes"));
        };
        if let Some(program) = family.group() {
            over(program).await?;
        }
        family.end();
        let status = family.0.wait().await.map_err(|error| error.to_string())?;
        Ok(Ended {
            code: status.code(),
            output,
            words: String::from_utf8_lossy(&words).into_owned(),
            secrets: Vec::new(),
        })
    }
}

/// All that is printed, or nothing if it is too much.
async fn read(stream: Option<impl AsyncRead + Unpin>) -> Option<Vec<u8>> {
    let mut all = Vec::new();
    if let Some(stream) = stream {
        let _ = stream.take(LONGEST_OUTPUT + 1).read_to_end(&mut all).await;
    }
    (all.len() as u64 <= LONGEST_OUTPUT).then_some(all)
}

/// Waits for the end of a program without collecting its status. What is not collected keeps its number, so that until
/// then its group is nobody else's, and what it left behind can be ended.
async fn over(program: Pid) -> Result<(), String> {
    let end = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
    let wait = move || rustix::io::retry_on_intr(|| waitid(WaitId::Pid(program), end));
    let ended = tokio::task::spawn_blocking(wait).await;
    let ended = ended.map_err(|error| error.to_string())?;
    ended.map(drop).map_err(|error| error.to_string())
}

/// A program and everything it started; all of it ends with this value.
#[derive(Debug)]
struct Family(Child);

impl Family {
    /// Its group, which is called as the program is; nothing once the status of the program was collected.
    fn group(&self) -> Option<Pid> {
        let id = self.0.id().and_then(|id| i32::try_from(id).ok());
        id.and_then(Pid::from_raw)
    }

    /// Ends whoever of it still lives. That nobody does is no mistake.
    fn end(&self) {
        if let Some(group) = self.group() {
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}

impl Drop for Family {
    fn drop(&mut self) {
        self.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_program_that_has_no_time_left_is_not_begun() {
        let program = || Program {
            command: "/nowhere/at/all",
            ..Program::default()
        };
        let begun = program().run(Duration::from_secs(10)).await;
        assert!(matches!(begun, Err(Failure::Other(_))), "{begun:?}");
        let late = program().run(Duration::ZERO).await;
        assert!(matches!(late, Err(Failure::Late)), "{late:?}");
    }
}
