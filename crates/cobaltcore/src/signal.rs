// SPDX-License-Identifier: Apache-2.0
//! `cobaltcore signal`: the pod through which Gardener learns whether a host is ready.

use std::process::ExitCode;

use clap::Args as ClapArgs;

use crate::apiserver::signals;
use crate::run::{self, LogArgs};

/// Wait to be ended, and say whether the host is ready
///
/// The hypervisor operator runs this on every node it manages. The probe asks with --check, so the pod is ready
/// exactly when the host is onboarded; nothing restarts meanwhile.
#[derive(Debug, ClapArgs)]
pub(crate) struct Args {
    /// Whether the host is onboarded
    #[arg(long, value_name = "BOOL", action = clap::ArgAction::Set, required = true)]
    ready: bool,
    /// Answer with the exit code and end
    #[arg(long)]
    check: bool,
}

pub(crate) fn run(log: &LogArgs, args: &Args) -> ExitCode {
    let Args { ready, check } = args;
    if *check {
        return ExitCode::from(u8::from(!ready));
    }
    run::block_on(log, "signal", async {
        signals()?.token().cancelled().await;
        Ok(())
    })
}
