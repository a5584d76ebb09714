// SPDX-License-Identifier: Apache-2.0
//! What suites with programs of their own share.

use std::path::Path;

/// Puts a program where it can be run. Another process writes it: a file that this one has open may be held open for a
/// moment by what another test starts, and a program that somebody has open for writing cannot be run.
pub(crate) fn install(program: &Path, text: &str) {
    let write = std::process::Command::new("/bin/sh")
        .args(["-c", "printf %s \"$1\" >\"$0\" && chmod 755 \"$0\""])
        .arg(program)
        .arg(text)
        .status();
    assert!(write.unwrap().success());
}
