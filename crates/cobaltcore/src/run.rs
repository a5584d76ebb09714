// SPDX-License-Identifier: Apache-2.0
//! What every subcommand shares beyond what every program does.

use std::path::PathBuf;

pub(crate) use cobaltcore_kit::program::{Failure, LogArgs, block_on, client, cluster, tell};

/// Prints a line. A reader that has seen enough and closed the pipe is no reason to fail.
macro_rules! say {
    ($($text:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!(std::io::stdout(), $($text)*);
    }};
}

/// A server that does not start ends the program with the exit code that the server's error has.
pub(crate) fn of_server(error: cobaltcore_apiserver::ServerError) -> Failure {
    // Its text names the cause already; the chain would say it twice.
    Failure::new(error.exit_code(), error.to_string())
}

/// The kubeconfig kubectl would change: the first that KUBECONFIG names, or the usual one.
pub(crate) fn own_kubeconfig() -> PathBuf {
    let named = std::env::var_os("KUBECONFIG")
        .and_then(|paths| std::env::split_paths(&paths).find(|path| !path.as_os_str().is_empty()));
    let home = || PathBuf::from(std::env::var_os("HOME").unwrap_or_else(|| "/root".into()));
    named.unwrap_or_else(|| home().join(".kube/config"))
}

/// Where a role keeps its state unless told otherwise: the system's place for root, the user's own
/// otherwise.
pub(crate) fn state_dir(role: &str) -> PathBuf {
    let set = |name: &str| {
        std::env::var_os(name)
            .filter(|v| !v.is_empty())
            .map(PathBuf::from)
    };
    let base = set("XDG_STATE_HOME").map(|dir| dir.join("cobaltcore"));
    let home = || {
        set("HOME")
            .filter(|home| home != std::path::Path::new("/root"))
            .map(|home| home.join(".local/state/cobaltcore"))
    };
    base.or_else(home)
        .unwrap_or_else(|| PathBuf::from("/var/lib/cobaltcore"))
        .join(role)
}
