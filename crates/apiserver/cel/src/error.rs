// SPDX-License-Identifier: Apache-2.0
//! Errors of this crate. Compile errors show the place in the source exactly as the reference
//! prints it, because people and tests compare these texts.

/// Something wrong at a place of the source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Issue {
    /// Where, in characters from the start.
    pub(crate) at: usize,
    /// What.
    pub(crate) message: String,
}

/// The most issues that are shown.
const MAX_SHOWN: usize = 100;
/// The longest line that is quoted.
const MAX_SNIPPET: usize = 16_384;

/// Why an expression was refused, in the words of the reference.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct CompileError {
    text: String,
    instantiation: bool,
}

impl CompileError {
    /// An error without a place in the source.
    pub(crate) fn plain(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            instantiation: false,
        }
    }

    /// An expression that nests too deep; the reference gives no place for it.
    pub(crate) fn too_deep() -> Self {
        let depth = crate::node::MAX_DEPTH;
        Self::plain(format!(
            "ERROR: <input>:-1:0: expression recursion limit exceeded: {depth}"
        ))
    }

    /// An expression that is well typed but cannot be made into a program.
    pub(crate) fn unplannable(text: String) -> Self {
        Self {
            text,
            instantiation: true,
        }
    }

    /// Whether the expression compiled and only the program could not be made, which the
    /// reference reports as `program instantiation failed` instead of `compilation failed`.
    pub fn is_instantiation(&self) -> bool {
        self.instantiation
    }

    pub(crate) fn new(source: &str, mut issues: Vec<Issue>) -> Self {
        issues.sort_by_key(|i| i.at);
        let total = issues.len();
        let mut shown: Vec<String> = issues.iter().take(MAX_SHOWN).map(|i| render(source, i)).collect();
        if total > MAX_SHOWN {
            shown.push(format!("{} more errors were truncated", total - MAX_SHOWN));
        }
        Self {
            text: shown.join("\n"),
            instantiation: false,
        }
    }
}

/// `ERROR: <input>:line:column: message`, the line, and a mark under the place.
fn render(source: &str, issue: &Issue) -> String {
    let (mut line, mut column, mut start) = (1, 0, 0);
    for (i, (offset, c)) in source.char_indices().enumerate() {
        if i >= issue.at {
            break;
        }
        if c == '\n' {
            line += 1;
            column = 0;
            start = offset + 1;
        } else {
            column += 1;
        }
    }
    let snippet = source
        .get(start..)
        .unwrap_or_default()
        .split('\n')
        .next()
        .unwrap_or_default();
    let mut text = format!("ERROR: <input>:{line}:{}: {}", column + 1, issue.message);
    if snippet.len() <= MAX_SNIPPET {
        let snippet = snippet.replace('\t', " ");
        text.push_str("\n | ");
        text.push_str(&snippet);
        text.push_str("\n | ");
        let mut chars = snippet.chars();
        for c in chars.by_ref().take(column) {
            text.push(if c.len_utf8() > 1 { '\u{ff0e}' } else { '.' });
        }
        text.push(if chars.next().is_some_and(|c| c.len_utf8() > 1) {
            '\u{ff3e}'
        } else {
            '^'
        });
    }
    text
}

/// Why an evaluation gave no value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EvalError {
    /// The expression, or all expressions of the object together, cost too much.
    #[error("operation cancelled: actual cost limit exceeded")]
    BudgetExceeded {
        /// True if the budget of the whole object is used up, not only that of this expression.
        object: bool,
    },
    /// The expression failed.
    #[error("{0}")]
    Failed(String),
}
