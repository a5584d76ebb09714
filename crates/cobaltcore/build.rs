// SPDX-License-Identifier: Apache-2.0
//! How the released program is linked. Its table of addresses to adjust at start is read as a whole by every process;
//! packed it takes a fiftieth of the memory, which an agent on a hypervisor does not have to spare. Needs glibc 2.36 or
//! musl 1.2.4 where it runs.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let is = |name: &str, value: &str| std::env::var(name).is_ok_and(|found| found == value);
    if is("PROFILE", "release") && is("CARGO_CFG_TARGET_OS", "linux") {
        println!("cargo::rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
    }
}
