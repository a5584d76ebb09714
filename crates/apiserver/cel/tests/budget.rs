// SPDX-License-Identifier: Apache-2.0
//! Costs: what a run is charged, when it is stopped, and what is estimated beforehand.

mod support;

use std::sync::Arc;

use cobaltcore_cel::{
    Budget, DeclType, Env, EvalError, Input, ListKind, Outcome, PER_OBJECT, compile, max_cardinality,
};
use serde_json::{Value, json};
use support::{env, list, self_value};

/// What an expression over the test object costs.
fn cost(expression: &str) -> u64 {
    let program = compile(expression, &env()).expect(expression);
    let value = self_value();
    let mut budget = Budget::per_object();
    let bindings = [("self", Input::Json(&value)), ("object", Input::Json(&value))];
    program.evaluate(&bindings, &mut budget).expect(expression);
    PER_OBJECT - budget.remaining()
}

#[test]
fn steps_cost_what_they_cost_on_the_reference() {
    for (expression, want) in [
        ("true", 0),
        ("self.i == 5", 3),
        ("self.nested.x == 1", 4),
        ("self.i + 1 == 6", 4),
        ("has(self.i)", 1),
        ("!has(self.nested.x)", 3),
        ("has(self.opt) && self.opt == 'x'", 1),
        ("type(self.i) == int", 4),
        ("self.s in ['hello', 'x']", 2),
        ("2 in self.ints", 5),
        ("'app' in self.labels", 3),
        ("self.ints == [3, 1, 2]", 3),
        ("self.ints[0] == 3", 4),
        ("self.s.size() == 5", 4),
        ("self.s.startsWith('he')", 3),
        ("self.s.matches('^h')", 3),
        ("self.ints.all(x, x > 0)", 18),
        ("self.ints.exists(x, x == 1)", 18),
        ("self.ints.exists_one(x, x == 1)", 12),
        ("self.ints.map(x, x * 2).size() == 3", 47),
        ("self.ints.filter(x, x > 1).size() == 2", 37),
        ("self.labels.all(k, self.labels[k] != '')", 15),
        ("self.labels.transformMap(k, v, v).size() == 2", 13),
        ("duration('1h') == duration('60m')", 1),
        ("self.b ? self.i == 5 : false", 5),
        ("optional.of(1).or(optional.of(2)).hasValue()", 2),
        ("lists.range(3) == [0, 1, 2]", 15),
        ("self.ints.sort() == [1, 2, 3]", 32),
        ("sets.contains(self.ints, [1])", 6),
    ] {
        assert_eq!(cost(expression), want, "{expression}");
    }
}

fn numbers(n: usize) -> Value {
    json!((0..n).collect::<Vec<_>>())
}

fn run(expression: &str, value: &Value, budget: &mut Budget) -> Result<Outcome, EvalError> {
    let env = Env::new().variable("self", list(DeclType::Int, ListKind::Atomic));
    compile(expression, &env)
        .expect("compiles")
        .evaluate(&[("self", Input::Json(value))], budget)
}

#[test]
fn a_runaway_rule_is_stopped_and_charged() {
    let value = numbers(300);
    for expression in [
        "self.all(a, self.all(b, self.all(c, a + b + c >= 0)))",
        "self.map(a, self.map(b, self.map(c, a + b + c))).size() > 0",
        "self.all(a, self.all(b, self.filter(c, c > a).size() >= 0))",
        "lists.range(100000000).size() > 0",
        "self.all(a, self.all(b, 'x'.replace('', 'yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy').size() > 0 && self.sort() == self))",
    ] {
        let mut budget = Budget::with_limits(1_000_000, 100_000);
        assert_eq!(
            run(expression, &value, &mut budget),
            Err(EvalError::BudgetExceeded { object: false }),
            "{expression}"
        );
        assert!(budget.remaining() < 1_000_000, "{expression}");
    }
}

#[test]
fn comparing_a_large_object_again_and_again_is_stopped_although_each_is_cheap() {
    let deep = json!({"rows": (0..2_000).map(|i| json!({"id": i, "text": "abcdefgh"})).collect::<Vec<_>>()});
    let env = Env::new().variable("object", DeclType::Dyn);
    let program =
        compile("object.rows.all(a, object.rows.all(b, object == object))", &env).expect("compiles");
    let result = program.evaluate(
        &[("object", Input::Json(&deep))],
        &mut Budget::with_limits(1_000_000, 100_000),
    );
    assert_eq!(result, Err(EvalError::BudgetExceeded { object: false }));
}

#[test]
fn long_texts_are_walked_over_only_so_often() {
    let long = json!({"s": "x".repeat(2 << 20), "n": (0..1_000).collect::<Vec<_>>()});
    let env = Env::new().variable("object", DeclType::Dyn);
    for expression in [
        "object.n.all(i, object.s != 'y')",
        "object.n.all(i, object.n.all(j, object.s.size() > 0))",
        "object.n.all(i, object.s.charAt(i) == 'x')",
        "object.n.map(i, object.s).join('').size() > 0",
        "object.n.all(i, 'ab'.replace('', object.s).size() > 0)",
        "object.n.all(i, '%s%s%s%s%s%s%s%s%s'.format([object.s, object.s, object.s, object.s, object.s, object.s, object.s, object.s, object.s]) != '')",
    ] {
        let program = compile(expression, &env).expect(expression);
        let result = program.evaluate(&[("object", Input::Json(&long))], &mut Budget::per_object());
        assert_eq!(
            result,
            Err(EvalError::BudgetExceeded { object: false }),
            "{expression}"
        );
    }
}

#[test]
fn the_rules_of_an_object_share_a_budget() {
    let value = numbers(40);
    let mut budget = Budget::with_limits(200_000, 20_000);
    let mut ran = 0;
    let last = loop {
        match run("self.all(a, self.all(b, a + b >= 0))", &value, &mut budget) {
            Ok(outcome) => assert_eq!(outcome, Outcome::Bool(true)),
            Err(e) => break e,
        }
        ran += 1;
        assert!(ran < 1_000, "the budget never ends");
    };
    assert!(ran > 10, "{ran}");
    assert_eq!(last, EvalError::BudgetExceeded { object: true });
    assert_eq!(
        run("true", &value, &mut budget),
        Ok(Outcome::Bool(true)),
        "what is free still runs"
    );
}

fn numbers_of(max: Option<u64>) -> DeclType {
    DeclType::List {
        element: Arc::new(DeclType::Double),
        kind: ListKind::Atomic,
        max,
    }
}

fn strings_of(max: Option<u64>) -> DeclType {
    DeclType::List {
        element: Arc::new(DeclType::String { max }),
        kind: ListKind::Atomic,
        max,
    }
}

fn map_of(max: Option<u64>) -> DeclType {
    DeclType::Map {
        value: Arc::new(DeclType::Double),
        max,
    }
}

fn text_of(max: Option<u64>) -> DeclType {
    DeclType::String { max }
}

#[test]
fn estimates_equal_those_of_the_reference() {
    type Type = fn(Option<u64>) -> DeclType;
    // Without a bound, and with one: expression, type, estimate, bound, estimate.
    let rows: &[(&str, Type, u64, u64, u64)] = &[
        ("self.all(e, true)", numbers_of, 4_718_591, 10, 32),
        ("self.all(e, true)", map_of, 1_348_169, 10, 32),
        (
            "self.all(e, e == 0.0)",
            numbers_of,
            6_291_454,
            6_291_456,
            25_165_826,
        ),
        (
            "self.all(e, self.all(f, true))",
            numbers_of,
            7_421_701_914_624,
            10,
            352,
        ),
        ("self.contains('four')", text_of, 314_574, 10, 5),
        ("self.startsWith('four')", text_of, 2, 15, 2),
        ("size(self + 'fiver') > size('fiver')", text_of, 314_578, 4, 7),
        ("self[1] == 0.0", numbers_of, 2, 5_000, 2),
        ("self.matches('a')", text_of, 314_574, 50, 22),
        ("self == 'a'", text_of, 2, 0, 1),
        ("self.find('[a-z]+') == ''", text_of, 629_147, 10, 11),
        ("self.join(' ') == 'aa bb'", strings_of, 329_853_068_905, 10, 43),
        ("self.isSorted() == true", strings_of, 329_854_432_052, 10, 52),
        ("self.lowerAscii() == 'lower!'", text_of, 314_575, 10, 6),
        ("oldSelf.size() == self.size()", map_of, 5, 10, 5),
    ];
    for (expression, ty, unbounded, bound, bounded) in rows {
        let estimate = |max: Option<u64>| {
            let env = Env::new().variable("self", ty(max)).variable("oldSelf", ty(max));
            compile(expression, &env).expect(expression).estimated_cost()
        };
        assert_eq!(estimate(None), *unbounded, "{expression} without bound");
        assert_eq!(estimate(Some(*bound)), *bounded, "{expression} with {bound}");
    }
}

#[test]
fn how_often_data_can_occur_in_a_request() {
    assert_eq!(max_cardinality(2), 1_048_576);
    assert_eq!(max_cardinality(0), 3_145_728);
}
