// SPDX-License-Identifier: Apache-2.0
//! From bytes to a tree. JSON and YAML both end as the same value: integers kept apart from floats,
//! duplicate keys noted (the last one wins), nesting bounded so that no input can exhaust the stack.

use std::collections::HashMap;
use std::fmt;

use serde::Deserializer;
use serde::de::{DeserializeSeed, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

pub(crate) use cobaltcore_text::go::json_kind as json_type;
pub(crate) use cobaltcore_text::yaml::Decoded;
use cobaltcore_text::yaml::{MAX_DEPTH, MAX_DUPLICATES, number};

/// Reads JSON. What is no character stands for one that cannot be shown, as in the reference.
pub(crate) fn json(bytes: &[u8]) -> Result<Decoded, String> {
    mended_json(bytes, false)
}

/// Reads JSON for a kind whose numbers have types: `1.0` stays what no whole number is written as.
pub(crate) fn exact_json(bytes: &[u8]) -> Result<Decoded, String> {
    mended_json(bytes, true)
}

fn mended_json(bytes: &[u8], exact: bool) -> Result<Decoded, String> {
    strict_json(bytes, exact).or_else(|why| match readable(bytes) {
        Some(mended) => strict_json(&mended, exact),
        None => Err(why),
    })
}

/// The bytes with every half of a surrogate pair and every byte that is no UTF-8 replaced; `None`
/// when there is nothing of that kind.
fn readable(bytes: &[u8]) -> Option<Vec<u8>> {
    const UNKNOWN: &[u8] = b"\\ufffd";
    let text = String::from_utf8_lossy(bytes);
    let mut mended = matches!(text, std::borrow::Cow::Owned(_));
    let bytes = text.as_bytes();
    let unit = |at: usize| -> Option<u32> {
        let digits = bytes.get(at..)?.strip_prefix(b"\\u")?.get(..4)?;
        u32::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
    };
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        let length = match unit(at) {
            Some(0xd800..=0xdbff) if unit(at + 6).is_some_and(|low| (0xdc00..=0xdfff).contains(&low)) => 12,
            Some(0xd800..=0xdfff) => {
                mended = true;
                out.extend_from_slice(UNKNOWN);
                at += 6;
                continue;
            }
            // An escaped backslash begins no escape.
            None if *byte == b'\\' => 2,
            _ => 1,
        };
        let end = (at + length).min(bytes.len());
        out.extend_from_slice(bytes.get(at..end).unwrap_or_default());
        at = end;
    }
    mended.then_some(out)
}

fn strict_json(bytes: &[u8], exact: bool) -> Result<Decoded, String> {
    let mut duplicates = Vec::new();
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    deserializer.disable_recursion_limit();
    let value = Node {
        path: None,
        depth: 0,
        exact,
        duplicates: &mut duplicates,
    }
    .deserialize(&mut deserializer)
    .map_err(|e| go_syntax_error(bytes, &e))?;
    deserializer.end().map_err(|e| go_syntax_error(bytes, &e))?;
    Ok(Decoded {
        value,
        duplicates,
        repeated: Vec::new(),
    })
}

/// Sorts (path, text) pairs by where the path ends in a JSON body: that is the order a reader that
/// decodes from front to back would complain in. Paths that are not there come last.
pub(crate) fn sort_by_place(bytes: &[u8], problems: &mut [(String, String)]) {
    let mut places: HashMap<String, usize> = problems
        .iter()
        .map(|(path, _)| (path.clone(), usize::MAX))
        .collect();
    let mut next = 0;
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    deserializer.disable_recursion_limit();
    let walk = Walk {
        path: None,
        depth: 0,
        places: &mut places,
        next: &mut next,
    };
    if walk.deserialize(&mut deserializer).is_ok() {
        problems.sort_by_key(|(path, _)| places.get(path).copied().unwrap_or(usize::MAX));
    }
}

/// A pass over a body that only notes where keys are.
struct Walk<'a, 'd> {
    path: Option<&'a Path<'a>>,
    depth: usize,
    places: &'d mut HashMap<String, usize>,
    next: &'d mut usize,
}

impl<'de> DeserializeSeed<'de> for Walk<'_, '_> {
    type Value = ();
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        if self.depth > MAX_DEPTH {
            return Err(serde::de::Error::custom("nesting too deep"));
        }
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Walk<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON value")
    }
    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }
    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }
    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }
    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }
    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }
    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        let mut at = 0;
        loop {
            let here = Path {
                parent: self.path,
                step: Step::Index(at),
            };
            let seed = Walk {
                path: Some(&here),
                depth: self.depth + 1,
                places: self.places,
                next: self.next,
            };
            match seq.next_element_seed(seed)? {
                Some(()) => at += 1,
                None => return Ok(()),
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<String>()? {
            let here = Path {
                parent: self.path,
                step: Step::Key(&key),
            };
            let seed = Walk {
                path: Some(&here),
                depth: self.depth + 1,
                places: self.places,
                next: self.next,
            };
            map.next_value_seed(seed)?;
            if let Some(place) = self.places.get_mut(&here.to_string()) {
                *place = *self.next;
            }
            *self.next += 1;
        }
        Ok(())
    }
}

/// What is wrong, in the words clients know.
fn go_syntax_error(bytes: &[u8], error: &serde_json::Error) -> String {
    crate::syntax::json_error(bytes).unwrap_or_else(|| error.to_string())
}

/// Where a node stands; only spelled out when something is wrong there.
#[derive(Clone, Copy)]
struct Path<'a> {
    parent: Option<&'a Path<'a>>,
    step: Step<'a>,
}

#[derive(Clone, Copy)]
enum Step<'a> {
    Key(&'a str),
    Index(usize),
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(parent) = self.parent {
            parent.fmt(f)?;
        }
        match self.step {
            Step::Key(key) if self.parent.is_some() => write!(f, ".{key}"),
            Step::Key(key) => f.write_str(key),
            Step::Index(index) => write!(f, "[{index}]"),
        }
    }
}

struct Node<'a, 'd> {
    path: Option<&'a Path<'a>>,
    depth: usize,
    /// Floats stay floats, whole or not.
    exact: bool,
    duplicates: &'d mut Vec<String>,
}

impl<'de> DeserializeSeed<'de> for Node<'_, '_> {
    type Value = Value;
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        if self.depth > MAX_DEPTH {
            return Err(serde::de::Error::custom("nesting too deep"));
        }
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Node<'_, '_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON value")
    }
    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }
    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }
    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(i64::try_from(value).map_or_else(
            |_| Number::from_f64(value as f64).map_or(Value::Null, Value::Number),
            |small| Value::Number(small.into()),
        ))
    }
    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        let read = if self.exact {
            Number::from_f64(value)
        } else {
            number(value)
        };
        Ok(read.map_or(Value::Null, Value::Number))
    }
    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }
    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }
    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }
    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        loop {
            let here = Path {
                parent: self.path,
                step: Step::Index(list.len()),
            };
            let seed = Node {
                path: Some(&here),
                depth: self.depth + 1,
                exact: self.exact,
                duplicates: self.duplicates,
            };
            match seq.next_element_seed(seed)? {
                Some(element) => list.push(element),
                None => return Ok(Value::Array(list)),
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut object = Map::new();
        while let Some(key) = map.next_key::<String>()? {
            let here = Path {
                parent: self.path,
                step: Step::Key(&key),
            };
            let seed = Node {
                path: Some(&here),
                depth: self.depth + 1,
                exact: self.exact,
                duplicates: self.duplicates,
            };
            let value = map.next_value_seed(seed)?;
            if object.contains_key(&key) && self.duplicates.len() < MAX_DUPLICATES {
                self.duplicates.push(here.to_string());
            }
            object.insert(key, value);
        }
        Ok(Value::Object(object))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn parsed(text: &str) -> Value {
        json(text.as_bytes()).unwrap().value
    }

    #[test]
    fn numbers_keep_their_kind() {
        assert_eq!(parsed("1.0"), json!(1));
        assert_eq!(parsed("1e2"), json!(100));
        assert_eq!(parsed("-0"), json!(0));
        assert_eq!(parsed("9007199254740993"), json!(9_007_199_254_740_993_i64));
        assert!(parsed("9223372036854775808").is_f64());
        assert_eq!(parsed("0.5"), json!(0.5));
    }

    #[test]
    fn duplicates_are_named_and_the_last_wins() {
        let decoded =
            json(br#"{"metadata":{"name":"a","name":"b"},"l":[{"x":1,"x":2}],"metadata":{"name":"c"}}"#)
                .unwrap();
        assert_eq!(decoded.duplicates, ["metadata.name", "l[0].x", "metadata"]);
        assert_eq!(decoded.value["metadata"]["name"], "c");
    }
}
