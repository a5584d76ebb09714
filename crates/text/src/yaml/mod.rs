// SPDX-License-Identifier: Apache-2.0
//! YAML in and out. Input follows the rules of YAML 1.1 that the reference follows (`yes` is true,
//! `010` is eight), because a manifest must not mean one thing here and another on a real cluster.
//! Output is block style with lists at the depth of their key, as `kubectl -o yaml` shows objects.

mod read;
mod write;

use serde_json::{Number, Value};

pub use read::{decode, decode_all, decode_first};
pub use write::{encode, encode_where, is_reserved};

/// Deepest nesting accepted.
pub const MAX_DEPTH: usize = 200;
/// At most this many duplicates are reported; a hostile body has no use for more.
pub const MAX_DUPLICATES: usize = 100;

/// A decoded body.
#[derive(Debug, Default, PartialEq)]
pub struct Decoded {
    /// The tree.
    pub value: Value,
    /// Paths of keys that occurred more than once.
    pub duplicates: Vec<String>,
    /// The same keys of a YAML body, as its reader complains of them: with the line.
    pub repeated: Vec<String>,
}

/// A number as the tree keeps it: integral values that fit 64 bits are integers.
pub fn number(float: f64) -> Option<Number> {
    const EDGE: f64 = 9_223_372_036_854_775_808.0; // 2^63
    if float.fract() == 0.0 && (-EDGE..EDGE).contains(&float) {
        return Some(Number::from(float as i64));
    }
    Number::from_f64(float)
}
