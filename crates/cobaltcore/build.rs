// SPDX-License-Identifier: Apache-2.0
//! How the program is linked. A position-independent program of this size has about a hundred thousand addresses to
//! correct when it starts, and the plain list of them is 2.4 MiB that every process reads and keeps. Packed, it is
//! 27 KiB. Only loaders from glibc 2.36 on can read that form, so it is used where such a loader is at hand.

use std::process::Command;

/// The first glibc that unpacks relative relocations.
const FIRST: (u32, u32) = (2, 36);

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let is = |key: &str, value: &str| std::env::var(key).is_ok_and(|v| v == value);
    let native = std::env::var("HOST") == std::env::var("TARGET");
    let glibc = is("CARGO_CFG_TARGET_OS", "linux") && is("CARGO_CFG_TARGET_ENV", "gnu");
    if native && glibc && glibc_version().is_some_and(|version| version >= FIRST) {
        println!("cargo::rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
    }
}

/// The version of the machine's glibc, from an answer like `glibc 2.36`.
fn glibc_version() -> Option<(u32, u32)> {
    let answer = Command::new("getconf").arg("GNU_LIBC_VERSION").output().ok()?;
    let text = String::from_utf8(answer.stdout).ok()?;
    let (major, rest) = text.trim().strip_prefix("glibc ")?.split_once('.')?;
    let minor = rest.split('.').next()?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}
