// SPDX-License-Identifier: Apache-2.0
//! Whatever is thrown at it, the crate answers with a value or an error.

mod support;

use cobaltcore_cel::{Budget, Input, compile, compile_pattern};
use proptest::prelude::*;
use serde_json::Value;
use support::env;

/// Pieces that expressions are made of, so that many of them compile.
const PIECES: &[&str] = &[
    "self",
    "oldSelf",
    "object",
    ".",
    "?",
    "[",
    "]",
    "(",
    ")",
    "{",
    "}",
    ",",
    ":",
    "i",
    "s",
    "ints",
    "labels",
    "any",
    "==",
    "!=",
    "<",
    ">=",
    "&&",
    "||",
    "!",
    "+",
    "-",
    "*",
    "/",
    "%",
    "in",
    "1",
    "2.5",
    "3u",
    "'a'",
    "b'x'",
    "true",
    "null",
    "has(self.s)",
    ".all(x, ",
    ".exists(y, ",
    ".map(z, ",
    ".filter(v, ",
    "x",
    "y",
    ".size()",
    "size(",
    ".startsWith('h')",
    ".matches('^a')",
    ".orValue(1)",
    "optional.of(",
    "duration('1h')",
    "type(",
    "dyn(",
    "quantity('1')",
    ".sort()",
    ".join('-')",
    "'%s'.format([",
    ".substring(1)",
    "\n",
    " ",
    "\u{e9}",
    "\"",
];

fn json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        ".{0,8}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 32, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::btree_map(
                "(i|s|d|b|ints|strs|set|ports|labels|nested|when|dur|bytes|any|name|x)",
                inner,
                0..8
            )
            .prop_map(|m| Value::Object(m.into_iter().collect())),
        ]
    })
}

fn evaluate(expression: &str, value: &Value) {
    if let Ok(program) = compile(expression, &env()) {
        let bindings = [
            ("self", Input::Json(value)),
            ("oldSelf", Input::Json(value)),
            ("optSelf", Input::Optional(Some(value))),
            ("object", Input::Json(value)),
        ];
        let _ = program.evaluate(&bindings, &mut Budget::per_object());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(192))]

    #[test]
    fn any_text_is_answered(text in ".{0,60}", value in json()) {
        evaluate(&text, &value);
    }

    #[test]
    fn any_sequence_of_words_is_answered(
        words in prop::collection::vec(prop::sample::select(PIECES), 1..12),
        value in json(),
    ) {
        evaluate(&words.concat(), &value);
    }

    #[test]
    fn any_pattern_is_answered(pattern in r"[\\\[\](){}*+?|^$.a-c0-9,:&~-]{0,12}", text in ".{0,12}") {
        if let Ok(regex) = compile_pattern(&pattern) {
            regex.is_match(&text);
        }
    }

    #[test]
    fn good_rules_answer_on_any_object(value in json()) {
        for rule in [
            "self.ints.all(x, x > 0) || self.strs.exists(s, s == self.s)",
            "self.ports == self.ports2 || self.set + self.set2 == self.set",
            "self.when < self.day || self.dur > duration('1h') || self.bytes == b'x'",
            "self.labels.all(k, v, k != v) && self.nested.x < self.nested.y",
            "object == object && object.any.l[0] == object.any.n",
            "self == oldSelf || optSelf.?i.orValue(1) == self.i",
            "string(self.d) + string(self.i) + self.s.substring(1) == ''",
            "quantity(self.s).isInteger() || isURL(self.s) || isIP(self.s) || isSemver(self.s, true)",
            "self.ints.sum() + self.ints.max() * self.ints.min() / self.ints[0] > 1",
            "object.transformMap(k, v, v).size() == object.size()",
        ] {
            evaluate(rule, &value);
        }
    }
}
