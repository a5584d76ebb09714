// SPDX-License-Identifier: Apache-2.0
//! The file of static tokens: one `token,user,uid,"group1,group2"` per line.
//!
//! A mistake in this file would silently lock somebody out or let somebody in, so every line
//! that is not understood is an error that names it.

use crate::error::AccessError;
use crate::identity::User;
use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

const MAX_BYTES: u64 = 1024 * 1024;

/// Tokens and whom they stand for.
#[derive(Clone, Default)]
pub struct StaticTokens(Vec<(String, User)>);

impl std::fmt::Debug for StaticTokens {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list()
            .entries(self.0.iter().map(|(_, user)| &user.name))
            .finish()
    }
}

impl StaticTokens {
    /// Reads a file, which must not be accessible to others.
    pub fn read(path: &Path) -> Result<Self, AccessError> {
        let failed = |source| AccessError::File {
            action: "read",
            path: path.to_owned(),
            source,
        };
        let file = std::fs::File::open(path).map_err(failed)?;
        let mode = file.metadata().map_err(failed)?.permissions().mode() & 0o7777;
        if mode & 0o077 != 0 {
            return Err(AccessError::TooOpen {
                path: path.to_owned(),
                mode,
                wanted: 0o600,
            });
        }
        let mut text = Vec::new();
        file.take(MAX_BYTES + 1).read_to_end(&mut text).map_err(failed)?;
        if text.len() as u64 > MAX_BYTES {
            return Err(line_error(path, 1, "the file is larger than 1 MiB"));
        }
        Self::parse(path, &text)
    }

    /// Parses the content of a file; `path` is only for errors.
    pub fn parse(path: &Path, content: &[u8]) -> Result<Self, AccessError> {
        let mut entries: Vec<(String, User)> = Vec::new();
        for (number, line) in content.split(|&b| b == b'\n').enumerate() {
            let number = number + 1;
            let fail = |detail: &str| line_error(path, number, detail);
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            let line = std::str::from_utf8(line).map_err(|_| fail("not valid UTF-8"))?;
            if line.trim().is_empty() {
                continue;
            }
            let fields = split(line).map_err(fail)?;
            let [token, name, uid, rest @ ..] = fields.as_slice() else {
                let detail = format!(
                    "must have at least 3 columns (token, user name, user uid), found {}",
                    fields.len()
                );
                return Err(fail(&detail));
            };
            if token.is_empty() || token.contains(char::is_whitespace) {
                return Err(fail("the token is empty or contains spaces"));
            }
            if name.is_empty() {
                return Err(fail("the user name is empty"));
            }
            if entries.iter().any(|(known, _)| known == token) {
                return Err(fail("the token stands in the file twice"));
            }
            if rest.len() > 1 {
                return Err(fail(
                    "more than 4 columns; several groups need quotes: \"group1,group2\"",
                ));
            }
            let groups = rest.first().map(String::as_str).unwrap_or_default();
            let groups = groups.split(',').map(str::trim).filter(|g| !g.is_empty());
            let mut user = User::new(name.as_str(), groups);
            user.uid = Some(uid.clone()).filter(|u| !u.is_empty());
            entries.push((token.clone(), user));
        }
        Ok(Self(entries))
    }

    /// How many tokens there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn into_entries(self) -> Vec<(String, User)> {
        self.0
    }
}

fn line_error(path: &Path, line: usize, detail: &str) -> AccessError {
    AccessError::TokenFile {
        path: path.to_owned(),
        line,
        detail: detail.to_owned(),
    }
}

/// Splits a line of comma separated fields; a field in quotes may contain commas and `""`.
fn split(line: &str) -> Result<Vec<String>, &'static str> {
    let mut fields = Vec::new();
    let mut rest = line;
    loop {
        if let Some(quoted) = rest.strip_prefix('"') {
            let mut field = String::new();
            let mut chars = quoted.char_indices();
            let end = loop {
                match chars.next() {
                    None => return Err("a quote is not closed"),
                    Some((at, '"')) => {
                        if quoted.get(at + 1..).is_some_and(|r| r.starts_with('"')) {
                            field.push('"');
                            chars.next();
                        } else {
                            break at + 1;
                        }
                    }
                    Some((_, c)) => field.push(c),
                }
            };
            fields.push(field);
            rest = quoted.get(end..).unwrap_or_default();
            match rest.strip_prefix(',') {
                Some(next) => rest = next,
                None if rest.is_empty() => return Ok(fields),
                None => return Err("text after a closing quote"),
            }
        } else {
            let (field, next) = rest.split_once(',').map_or((rest, None), |(f, n)| (f, Some(n)));
            if field.contains('"') {
                return Err("a quote inside a field that is not quoted");
            }
            fields.push(field.to_owned());
            match next {
                Some(next) => rest = next,
                None => return Ok(fields),
            }
        }
    }
}
