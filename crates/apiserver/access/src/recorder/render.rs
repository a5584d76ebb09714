// SPDX-License-Identifier: Apache-2.0
//! Reports as YAML and as text.
//!
//! The YAML writer knows the JSON data model and nothing else: block style, and strings quoted
//! whenever a reader could take them for something other than a string.

use super::report::Report;
use serde_json::Value;
use std::fmt::Write as _;

/// A JSON value as a YAML document in block style.
pub fn to_yaml(value: &Value) -> String {
    let mut out = String::new();
    write_value(&mut out, value, 0, false);
    if !out.ends_with('\n') {
        out.push('\n');
    }
    out
}

/// `inline` says that the cursor stands after `- ` or `key:` of the enclosing line.
fn write_value(out: &mut String, value: &Value, depth: usize, after_dash: bool) {
    let pad = "  ".repeat(depth);
    match value {
        Value::Object(map) if !map.is_empty() => {
            for (position, (key, entry)) in map.iter().enumerate() {
                if position > 0 || !after_dash {
                    out.push_str(&pad);
                }
                out.push_str(&scalar(key));
                out.push(':');
                write_entry(out, entry, depth);
            }
        }
        Value::Array(list) if !list.is_empty() => {
            for (position, entry) in list.iter().enumerate() {
                if position > 0 || !after_dash {
                    out.push_str(&pad);
                }
                out.push_str("- ");
                if is_block(entry) {
                    write_value(out, entry, depth + 1, true);
                } else {
                    out.push_str(&leaf(entry));
                    out.push('\n');
                }
            }
        }
        other => {
            out.push_str(&leaf(other));
            out.push('\n');
        }
    }
}

fn write_entry(out: &mut String, entry: &Value, depth: usize) {
    if is_block(entry) {
        out.push('\n');
        // Lists stand at the depth of their key, as kubectl writes them.
        let depth = if entry.is_array() { depth } else { depth + 1 };
        write_value(out, entry, depth, false);
    } else {
        out.push(' ');
        out.push_str(&leaf(entry));
        out.push('\n');
    }
}

fn is_block(value: &Value) -> bool {
    match value {
        Value::Object(map) => !map.is_empty(),
        Value::Array(list) => !list.is_empty(),
        _ => false,
    }
}

fn leaf(value: &Value) -> String {
    match value {
        Value::String(text) => scalar(text),
        other => other.to_string(),
    }
}

/// A string, quoted unless it can only be read as a string.
fn scalar(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:".contains(c);
    let starts_well = text
        .chars()
        .next()
        .is_some_and(|c| c.is_ascii_alphabetic() || c == '/');
    let word = text.to_ascii_lowercase();
    let special = ["true", "false", "yes", "no", "on", "off", "null", "y", "n"].contains(&word.as_str());
    if starts_well && !special && text.chars().all(plain) && !text.ends_with(':') && !text.contains(": ") {
        text.to_owned()
    } else {
        Value::from(text).to_string()
    }
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
