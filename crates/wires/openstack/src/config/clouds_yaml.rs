// SPDX-License-Identifier: Apache-2.0
//! `clouds.yaml` and the `secure.yaml` beside it, found where every OpenStack client looks for it.

use std::path::{Path, PathBuf};

use serde_json::Value;

use super::{CloudConfig, ConfigError, Fields};

/// Finds the file that has the cloud.
pub(super) fn find(cloud: &str, lookup: &dyn Fn(&str) -> Option<String>) -> Result<CloudConfig, ConfigError> {
    if let Some(path) = lookup("OS_CLIENT_CONFIG_FILE") {
        return read(Path::new(&path), cloud);
    }
    let home = lookup("XDG_CONFIG_HOME")
        .map(PathBuf::from)
        .or_else(|| lookup("HOME").map(|home| Path::new(&home).join(".config")));
    let folders = [
        Some(PathBuf::from(".")),
        home.map(|home| home.join("openstack")),
        Some(PathBuf::from("/etc/openstack")),
    ];
    let files: Vec<_> = folders
        .into_iter()
        .flatten()
        .flat_map(|folder| [folder.join("clouds.yaml"), folder.join("clouds.yml")])
        .collect();
    match files.iter().find(|file| file.is_file()) {
        Some(file) => read(file, cloud),
        None => Err(ConfigError::Missing {
            place: format!("cloud {cloud}"),
            what: "a clouds.yaml".to_owned(),
            hint: "; set OS_CLIENT_CONFIG_FILE to its path".to_owned(),
        }),
    }
}

pub(super) fn read(path: &Path, cloud: &str) -> Result<CloudConfig, ConfigError> {
    let mut entry = load(path, cloud)?.ok_or_else(|| ConfigError::Missing {
        place: path.display().to_string(),
        what: format!("clouds.{cloud}"),
        hint: String::new(),
    })?;
    let secure = path.with_file_name("secure.yaml");
    if secure.is_file()
        && let Some(secrets) = load(&secure, cloud)?
    {
        merge(&mut entry, secrets);
    }
    let field = |name: &str| {
        let inside = entry.pointer(&format!("/auth/{name}"));
        text(inside.or_else(|| entry.get(name))?)
    };
    let fields = Fields {
        place: format!("{}, cloud {cloud}", path.display()),
        field: &field,
        spell: str::to_owned,
    };
    fields.cloud(None)
}

fn load(path: &Path, cloud: &str) -> Result<Option<Value>, ConfigError> {
    let fail = |detail: String| ConfigError::File {
        path: path.to_owned(),
        detail,
    };
    let bytes = std::fs::read(path).map_err(|error| fail(error.to_string()))?;
    let mut document = cobaltcore_text::yaml::decode(&bytes).map_err(fail)?.value;
    let entry = document
        .get_mut("clouds")
        .and_then(|clouds| clouds.get_mut(cloud));
    Ok(entry.map(Value::take))
}

/// Secrets win, member by member.
fn merge(into: &mut Value, from: Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (name, value) in from {
                merge(into.entry(name).or_insert(Value::Null), value);
            }
        }
        (into, from) => *into = from,
    }
}

/// A password of digits is a number to YAML.
fn text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Bool(truth) => Some(truth.to_string()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}
