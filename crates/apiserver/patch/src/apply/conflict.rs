// SPDX-License-Identifier: Apache-2.0
//! Conflicts of an apply: which paths other managers own, in the reference's words.

use std::fmt;

use super::path::path_text;
use super::set::FieldSet;

/// One path another manager owns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conflict {
    /// The owner as messages describe it: `"alpha"`, `"beta" with subresource "status" using v1`.
    pub manager: String,
    /// The path: `.spec.replicas`. Becomes the `field` of a cause.
    pub path: String,
}

impl Conflict {
    /// The message of the cause: `conflict with "alpha"`.
    pub fn message(&self) -> String {
        format!("conflict with {}", self.manager)
    }
}

/// All conflicts of one apply, ordered by manager and path; prints as the message of the `Status`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conflicts(pub Vec<Conflict>);

impl Conflicts {
    pub(crate) fn collect(owners: &[(String, FieldSet)]) -> Self {
        let mut conflicts = Vec::new();
        for (manager, set) in owners {
            set.each_path(&mut |path| {
                conflicts.push(Conflict {
                    manager: manager.clone(),
                    path: path_text(path),
                });
            });
        }
        Self(conflicts)
    }
}

impl fmt::Display for Conflicts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let [only] = self.0.as_slice() {
            return write!(
                f,
                "Apply failed with 1 conflict: {}: {}",
                only.message(),
                only.path
            );
        }
        write!(f, "Apply failed with {} conflicts: ", self.0.len())?;
        let mut current: Option<&str> = None;
        for conflict in &self.0 {
            if current != Some(conflict.manager.as_str()) {
                let newline = if current.is_some() { "\n" } else { "" };
                write!(f, "{newline}conflicts with {}:", conflict.manager)?;
                current = Some(&conflict.manager);
            }
            write!(f, "\n- {}", conflict.path)?;
        }
        Ok(())
    }
}
