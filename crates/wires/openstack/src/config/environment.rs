// SPDX-License-Identifier: Apache-2.0
//! The `OS_*` variables. `OS_PW_CMD` is a command whose output is the password, so that no manifest
//! needs to hold it.

use std::process::{Command, Stdio};

use super::{CloudConfig, ConfigError, Fields};
use crate::secret::Secret;

pub(super) fn read(lookup: &dyn Fn(&str) -> Option<String>) -> Result<CloudConfig, ConfigError> {
    let fields = Fields {
        place: "environment".to_owned(),
        field: &|name| lookup(&spell(name)),
        spell,
    };
    if lookup("OS_AUTH_URL").is_none() {
        return Err(ConfigError::Missing {
            place: fields.place,
            what: "OS_AUTH_URL".to_owned(),
            hint: "; set OS_CLOUD to use a clouds.yaml, or OS_AUTH_URL and its companions".to_owned(),
        });
    }
    let password = match lookup("OS_PASSWORD") {
        Some(password) => Some(Secret::from(password)),
        None => lookup("OS_PW_CMD").map(|command| run(&command)).transpose()?,
    };
    fields.cloud(password)
}

fn spell(name: &str) -> String {
    format!("OS_{}", name.to_ascii_uppercase())
}

/// The command's output without one line end.
fn run(command: &str) -> Result<Secret, ConfigError> {
    let output = Command::new("/bin/sh")
        .arg("-c")
        .arg(command)
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| ConfigError::PasswordCommand(error.to_string()))?;
    if !output.status.success() {
        return Err(ConfigError::PasswordCommand(output.status.to_string()));
    }
    let text = String::from_utf8(output.stdout)
        .map_err(|_| ConfigError::PasswordCommand("its output is not text".to_owned()))?;
    let text = text.strip_suffix('\n').unwrap_or(&text);
    if text.is_empty() {
        return Err(ConfigError::PasswordCommand("it printed nothing".to_owned()));
    }
    Ok(Secret::from(text))
}
