// SPDX-License-Identifier: Apache-2.0
//! Reports as YAML and as text.
//!
//! Strings are quoted in YAML whenever a reader could take them for something other than a string.

use super::report::Report;
use cobaltcore_text::yaml::{encode_where, is_reserved};
use serde_json::Value;
use std::fmt::Write as _;

/// A JSON value as a YAML document in block style.
pub fn to_yaml(value: &Value) -> String {
    encode_where(value, is_plain)
}

/// Whether a text can only be read as a string.
fn is_plain(text: &str) -> bool {
    let safe = |c: char| c.is_ascii_alphanumeric() || "-_./:".contains(c);
    text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '/')
        && text.chars().all(safe)
        && !text.ends_with(':')
        && !is_reserved(text)
}

pub(super) fn to_text(report: &Report) -> String {
    let mut out = format!("RBAC report for {}\n", report.user);
    if !report.scenarios.is_empty() {
        let names: Vec<&str> = report.scenarios.iter().map(String::as_str).collect();
        let _ = writeln!(out, "recorded from: {}", names.join(", "));
    }
    if report.dropped > 0 {
        let _ = writeln!(
            out,
            "not complete: {} requests found no room in the recorder",
            report.dropped
        );
    }
    let _ = writeln!(out, "\nmissing: {}", count(report.missing.len(), "nothing"));
    out.push_str(&report.missing_yaml());
    let _ = writeln!(out, "\nunused: {}", count(report.unused.len(), "nothing"));
    for unused in &report.unused {
        for line in unused.lines() {
            let _ = writeln!(out, "  {}: {line}", unused.rule);
        }
    }
    let _ = writeln!(out, "\nbroad: {}", count(report.broad.len(), "nothing"));
    for broad in &report.broad {
        let scope = if broad.namespace.is_empty() {
            String::new()
        } else {
            format!(" in {}", broad.namespace)
        };
        let _ = writeln!(out, "  {}{scope}: {}", broad.rule, broad.finding);
    }
    out
}

fn count(number: usize, none: &str) -> String {
    if number == 0 {
        none.to_owned()
    } else {
        number.to_string()
    }
}
