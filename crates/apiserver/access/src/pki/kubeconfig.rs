// SPDX-License-Identifier: Apache-2.0
//! The kubeconfig that lets kubectl and other clients find the server.
//!
//! Our own file is written whole. A user's file is only extended: entries of our name are
//! replaced, everything else stays byte for byte, and a file that is not in the usual block form
//! is refused untouched.

use super::files;
use crate::error::AccessError;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use std::path::Path;

/// What a kubeconfig says about one server.
#[derive(Debug, Clone, Copy)]
pub struct KubeconfigEntry<'a> {
    /// Name of context, cluster and user; `cobaltcore` by default.
    pub name: &'a str,
    /// `https://host:port`.
    pub server: &'a str,
    /// The certificate authority.
    pub ca_pem: &'a str,
    /// The user's token.
    pub token: &'a str,
    /// Default namespace of the context, if any.
    pub namespace: Option<&'a str>,
}

/// A scalar in double quotes; JSON strings are YAML strings.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

impl KubeconfigEntry<'_> {
    fn cluster(&self, pad: &str) -> Vec<String> {
        vec![
            format!("{pad}- cluster:"),
            format!(
                "{pad}    certificate-authority-data: {}",
                STANDARD.encode(self.ca_pem)
            ),
            format!("{pad}    server: {}", quoted(self.server)),
            format!("{pad}  name: {}", quoted(self.name)),
        ]
    }

    fn context(&self, pad: &str) -> Vec<String> {
        let mut lines = vec![
            format!("{pad}- context:"),
            format!("{pad}    cluster: {}", quoted(self.name)),
        ];
        if let Some(namespace) = self.namespace {
            lines.push(format!("{pad}    namespace: {}", quoted(namespace)));
        }
        lines.push(format!("{pad}    user: {}", quoted(self.name)));
        lines.push(format!("{pad}  name: {}", quoted(self.name)));
        lines
    }

    fn user(&self, pad: &str) -> Vec<String> {
        vec![
            format!("{pad}- name: {}", quoted(self.name)),
            format!("{pad}  user:"),
            format!("{pad}    token: {}", quoted(self.token)),
        ]
    }

    fn section(&self, key: &str, pad: &str) -> Vec<String> {
        match key {
            "clusters" => self.cluster(pad),
            "contexts" => self.context(pad),
            _ => self.user(pad),
        }
    }

    fn whole(&self) -> String {
        let mut lines = vec!["apiVersion: v1".to_owned(), "kind: Config".to_owned()];
        lines.push(format!("current-context: {}", quoted(self.name)));
        for key in ["clusters", "contexts", "users"] {
            lines.push(format!("{key}:"));
            lines.extend(self.section(key, ""));
        }
        lines.push("preferences: {}".to_owned());
        lines.join("\n") + "\n"
    }
}

/// Writes a kubeconfig of one entry (0600), replacing what was there.
pub fn write_kubeconfig(path: &Path, entry: &KubeconfigEntry<'_>) -> Result<(), AccessError> {
    files::write_private(path, entry.whole().as_bytes())
}

/// Adds the entry to a user's kubeconfig, or replaces the entry of the same name. The current
/// context is set only when the file has none.
pub fn merge_kubeconfig(path: &Path, entry: &KubeconfigEntry<'_>) -> Result<(), AccessError> {
    // A user's file may be a link into a repository of settings: write where it points.
    let path = &std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => String::new(),
        Err(source) => {
            return Err(AccessError::File {
                action: "read",
                path: path.clone(),
                source,
            });
        }
    };
    if text.trim().is_empty() {
        make_folder(path)?;
        return write_kubeconfig(path, entry);
    }
    let merged = merge_text(&text, entry).map_err(|detail| AccessError::Kubeconfig {
        path: path.clone(),
        detail,
    })?;
    files::write_private(path, merged.as_bytes())
}

/// The folder of a user's first kubeconfig, for the user alone.
fn make_folder(path: &Path) -> Result<(), AccessError> {
    use std::os::unix::fs::DirBuilderExt;
    let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) else {
        return Ok(());
    };
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)
        .map_err(|source| AccessError::File {
            action: "make",
            path: folder.to_owned(),
            source,
        })
}

fn merge_text(text: &str, entry: &KubeconfigEntry<'_>) -> Result<String, String> {
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let strange =
        |l: &String| l.starts_with('\t') || l.starts_with('{') || l.starts_with("---") || l.starts_with('%');
    if let Some(at) = lines.iter().position(strange) {
        return Err(format!(
            "line {} is not in the form kubectl writes; set KUBECONFIG to both files instead",
            at + 1
        ));
    }
    for key in ["clusters", "contexts", "users"] {
        merge_section(&mut lines, key, entry)?;
    }
    let current = lines.iter_mut().find(|l| l.starts_with("current-context:"));
    let line = format!("current-context: {}", quoted(entry.name));
    match current {
        None => lines.push(line),
        Some(held) => {
            let value = held.trim_start_matches("current-context:").trim();
            if value.is_empty() || value == "\"\"" || value == "''" {
                *held = line;
            }
        }
    }
    Ok(lines.join("\n") + "\n")
}

fn indent(line: &str) -> usize {
    line.len() - line.trim_start_matches(' ').len()
}

fn is_blank(line: &str) -> bool {
    line.trim().is_empty() || line.trim_start().starts_with('#')
}

fn merge_section(lines: &mut Vec<String>, key: &str, entry: &KubeconfigEntry<'_>) -> Result<(), String> {
    let head = format!("{key}:");
    let Some(start) = lines.iter().position(|l| l.starts_with(&head)) else {
        lines.push(head);
        lines.extend(entry.section(key, ""));
        return Ok(());
    };
    let value = lines
        .get(start)
        .map(|l| l.trim_start_matches(&head).trim().to_owned())
        .unwrap_or_default();
    if !matches!(value.as_str(), "" | "[]" | "null" | "~") {
        return Err(format!(
            "line {} is not in the form kubectl writes; set KUBECONFIG to both files instead",
            start + 1
        ));
    }
    if let Some(line) = lines.get_mut(start) {
        line.clone_from(&head);
    }
    let body = |l: &String| is_blank(l) || l.starts_with(' ') || l.starts_with('-');
    let length = lines.iter().skip(start + 1).take_while(|l| body(l)).count();
    let section: Vec<String> = lines.drain(start + 1..start + 1 + length).collect();
    let depth = section.iter().find(|l| !is_blank(l)).map_or(0, |l| indent(l));
    let mut items: Vec<Vec<String>> = Vec::new();
    for line in section {
        let opens = !is_blank(&line) && indent(&line) == depth;
        match items.last_mut() {
            Some(item) if !opens => item.push(line),
            _ => items.push(vec![line]),
        }
    }
    items.retain(|item| !item.iter().any(|line| names_entry(line, depth, entry.name)));
    let pad = " ".repeat(depth);
    let kept = items.into_iter().flatten().chain(entry.section(key, &pad));
    let tail: Vec<String> = lines.drain(start + 1..).collect();
    lines.extend(kept);
    lines.extend(tail);
    Ok(())
}

/// Whether the line is the `name:` key of a list item at this depth and holds the name.
fn names_entry(line: &str, depth: usize, name: &str) -> bool {
    let Some(rest) = line.get(depth..) else {
        return false;
    };
    let key = rest.strip_prefix("- ").or_else(|| rest.strip_prefix("  "));
    let Some(value) = key.and_then(|k| k.strip_prefix("name:")) else {
        return false;
    };
    let value = value.trim();
    value == name || value == quoted(name) || value == format!("'{name}'")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry<'a>() -> KubeconfigEntry<'a> {
        KubeconfigEntry {
            name: "cobaltcore",
            server: "https://127.0.0.1:6443",
            ca_pem: "CA",
            token: "secret",
            namespace: None,
        }
    }

    const THEIRS: &str = "apiVersion: v1\nclusters:\n- cluster:\n    server: https://prod\n  name: prod\n\
        contexts:\n- context:\n    cluster: prod\n    user: me\n  name: prod\n# mine\ncurrent-context: prod\nkind: Config\n\
        users:\n- name: me\n  user:\n    token: theirs\n";

    #[test]
    fn a_users_file_is_extended_and_otherwise_kept() {
        let merged = merge_text(THEIRS, &entry()).expect("block form");
        for line in THEIRS.lines() {
            assert!(merged.lines().any(|l| l == line), "lost {line:?} in:\n{merged}");
        }
        assert!(merged.contains("    token: \"secret\""));
        assert!(
            merged.contains("current-context: prod"),
            "the user's choice stays:\n{merged}"
        );
    }

    #[test]
    fn merging_twice_replaces_the_entry() {
        let once = merge_text(THEIRS, &entry()).expect("block form");
        let twice = merge_text(
            &once,
            &KubeconfigEntry {
                token: "newer",
                ..entry()
            },
        )
        .expect("block form");
        assert_eq!(once.lines().count(), twice.lines().count());
        assert!(twice.contains("newer") && !twice.contains("secret") && twice.contains("theirs"));
    }

    #[test]
    fn indented_and_empty_lists_are_understood() {
        let text =
            "clusters: []\ncontexts: null\ncurrent-context: \"\"\nusers:\n  - name: me\n    user: {}\n";
        let merged = merge_text(text, &entry()).expect("block form");
        assert!(merged.contains("clusters:\n- cluster:"));
        assert!(
            merged.contains("  - name: me\n    user: {}\n  - name: \"cobaltcore\"\n    user:\n      token:"),
            "{merged}"
        );
        assert!(merged.contains("current-context: \"cobaltcore\""));
    }

    #[test]
    fn other_forms_are_refused() {
        for text in [
            "{\"clusters\": []}",
            "clusters: [{name: a}]\n",
            "---\nclusters: []\n",
        ] {
            assert!(merge_text(text, &entry()).is_err(), "{text}");
        }
    }
}
