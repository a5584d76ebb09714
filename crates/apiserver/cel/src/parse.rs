// SPDX-License-Identifier: Apache-2.0
//! From text to a checked expression. Parsing and checking recurse as deep as the text nests
//! before the depth limit can be applied, so they run on a stack of their own; a text that is
//! too long or too deep is refused, never a crash.

use crate::check::{self, Checked};
use crate::decl::Env;
use crate::error::{CompileError, Issue};

/// The longest source that is parsed, in characters.
const MAX_SOURCE: usize = 100_000;
/// The stack that the deepest accepted source needs, generously; only what is used becomes real memory.
const STACK: usize = 128 << 20;
/// The deepest nesting that is handed to the parser; the check afterwards is stricter.
const MAX_NESTING: usize = 1_000;

/// Parses and checks an expression.
pub(crate) fn parse_and_check(source: &str, env: &Env) -> Result<Checked, CompileError> {
    let size = source.chars().count();
    if size > MAX_SOURCE {
        return Err(CompileError::plain(format!(
            "ERROR: <input>:-1:0: expression code point size exceeds limit: size: {size}, limit {MAX_SOURCE}"
        )));
    }
    if nesting(source) > MAX_NESTING {
        return Err(CompileError::too_deep());
    }
    let outcome = std::thread::scope(|scope| {
        std::thread::Builder::new()
            .name("cel-compile".into())
            .stack_size(STACK)
            .spawn_scoped(scope, || run(source, env))
            .map(std::thread::ScopedJoinHandle::join)
    });
    match outcome {
        Ok(Ok(result)) => result,
        Ok(Err(_)) => Err(CompileError::plain(
            "ERROR: <input>:1:1: Syntax error: the expression cannot be parsed",
        )),
        Err(e) => Err(CompileError::plain(format!(
            "no thread to compile the expression on: {e}"
        ))),
    }
}

fn run(source: &str, env: &Env) -> Result<Checked, CompileError> {
    // No macros: the parser would expand some that Kubernetes does not offer.
    let parser = cel::Env::default()
        .parser()
        .max_recursion_depth(crate::node::MAX_DEPTH as u16)
        .enable_optional_syntax(true);
    match parser.parse_with_source_info(source) {
        Ok((parsed, info)) => check::check(&parsed, &info, env),
        // The parser gives up without a place when the text nests too deep.
        Err(errors) if errors.errors.iter().any(|e| e.pos == (0, 0)) => Err(CompileError::too_deep()),
        Err(errors) => Err(syntax_errors(source, &errors)),
    }
}

fn syntax_errors(source: &str, errors: &cel::ParseErrors) -> CompileError {
    let issues = errors
        .errors
        .iter()
        .map(|e| Issue {
            at: position(source, e.pos),
            message: e.msg.clone(),
        })
        .collect();
    CompileError::new(source, issues)
}

/// Line and column, both from one, as a character offset.
fn position(source: &str, (line, column): (isize, isize)) -> usize {
    let before = usize::try_from(line - 1).unwrap_or_default();
    let start: usize = source
        .split_inclusive('\n')
        .take(before)
        .map(|l| l.chars().count())
        .sum();
    start + usize::try_from(column - 1).unwrap_or_default()
}

/// An upper bound of how deep the syntax tree of a source is: brackets nest, and so do chains of
/// operators and fields, because they associate to the left.
fn nesting(source: &str) -> usize {
    let bytes = source.as_bytes();
    let mut levels = vec![0_usize];
    let (mut depth, mut deepest, mut i) = (0_usize, 0_usize, 0_usize);
    while let Some(b) = bytes.get(i) {
        match b {
            b'"' | b'\'' => {
                i = skip_string(bytes, i);
                continue;
            }
            b'/' if bytes.get(i + 1) == Some(&b'/') => {
                while bytes.get(i).is_some_and(|c| *c != b'\n') {
                    i += 1;
                }
                continue;
            }
            b'(' | b'[' | b'{' => {
                levels.push(0);
                depth += 1;
            }
            b')' | b']' | b'}' => {
                if levels.len() > 1 {
                    depth -= levels.pop().unwrap_or_default() + 1;
                }
                // A call or an index is one more link of the chain it stands in.
                link(&mut levels, &mut depth);
            }
            b',' | b'&' | b'|' => {
                if let Some(level) = levels.last_mut() {
                    depth -= *level;
                    *level = 0;
                }
            }
            b'.' | b'+' | b'-' | b'*' | b'/' | b'%' | b'<' | b'>' | b'=' | b'?' => {
                link(&mut levels, &mut depth);
            }
            _ => {}
        }
        deepest = deepest.max(depth);
        i += 1;
    }
    deepest
}

fn link(levels: &mut [usize], depth: &mut usize) {
    if let Some(level) = levels.last_mut() {
        *level += 1;
        *depth += 1;
    }
}

/// The index after the string literal that starts at `start`.
fn skip_string(bytes: &[u8], start: usize) -> usize {
    let quote = bytes.get(start).copied().unwrap_or_default();
    let triple = bytes
        .get(start..start + 3)
        .is_some_and(|q| q.iter().all(|b| *b == quote));
    let raw = start > 0 && bytes.get(start - 1).is_some_and(|b| matches!(b, b'r' | b'R'));
    let mut i = start + if triple { 3 } else { 1 };
    while let Some(b) = bytes.get(i) {
        if *b == b'\\' && !raw {
            i += 2;
            continue;
        }
        if *b == quote {
            if !triple {
                return i + 1;
            }
            if bytes.get(i..i + 3).is_some_and(|q| q.iter().all(|b| *b == quote)) {
                return i + 3;
            }
        }
        if *b == b'\n' && !triple {
            return i;
        }
        i += 1;
    }
    bytes.len()
}
