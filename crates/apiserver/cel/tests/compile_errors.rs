// SPDX-License-Identifier: Apache-2.0
//! What is refused when a rule is registered, and in which words.

mod support;

use cobaltcore_cel::{DeclType, Env, compile};
use support::env;

fn refusal(expression: &str) -> String {
    match compile(expression, &env()) {
        Ok(program) => format!("accepted as {}", program.result_type()),
        Err(e) => e.to_string(),
    }
}

/// The messages of all lines that begin with ERROR, with their places.
fn messages(expression: &str) -> Vec<String> {
    refusal(expression)
        .lines()
        .filter_map(|l| l.strip_prefix("ERROR: <input>:"))
        .map(str::to_owned)
        .collect()
}

#[test]
fn the_place_is_shown_under_the_line() {
    assert_eq!(
        refusal("self.foo"),
        "ERROR: <input>:1:5: undefined field 'foo'\n | self.foo\n | ....^"
    );
    assert_eq!(
        refusal("self.i > 1 &&\n  self.foo"),
        "ERROR: <input>:2:7: undefined field 'foo'\n |   self.foo\n | ......^"
    );
    assert_eq!(
        refusal("'\u{e9}' + self.foo"),
        "ERROR: <input>:1:11: undefined field 'foo'\n | '\u{e9}' + self.foo\n | .\u{ff0e}........^"
    );
}

#[test]
fn each_mistake_has_the_words_of_the_reference() {
    let rows: &[(&str, &[&str])] = &[
        ("foo", &["1:1: undeclared reference to 'foo' (in container '')"]),
        ("self.foo", &["1:5: undefined field 'foo'"]),
        ("has(self.foo)", &["1:4: undefined field 'foo'"]),
        ("self.nested.z", &["1:12: undefined field 'z'"]),
        ("self.?foo", &["1:5: undefined field 'foo'"]),
        (
            "self.i == 1.0",
            &["1:8: found no matching overload for '_==_' applied to '(int, double)'"],
        ),
        (
            "self.s == 1",
            &["1:8: found no matching overload for '_==_' applied to '(string, int)'"],
        ),
        (
            "self.i + 'x'",
            &["1:8: found no matching overload for '_+_' applied to '(int, string)'"],
        ),
        (
            "self.d + 1",
            &["1:8: found no matching overload for '_+_' applied to '(double, int)'"],
        ),
        (
            "self.i > 'a'",
            &["1:8: found no matching overload for '_>_' applied to '(int, string)'"],
        ),
        (
            "self.opt == null",
            &["1:10: found no matching overload for '_==_' applied to '(string, null)'"],
        ),
        (
            "!self.i",
            &["1:1: found no matching overload for '!_' applied to '(int)'"],
        ),
        (
            "-self.s",
            &["1:1: found no matching overload for '-_' applied to '(string)'"],
        ),
        (
            "1 in self.strs",
            &["1:3: found no matching overload for '@in' applied to '(int, list(string))'"],
        ),
        (
            "self['i']",
            &["1:5: found no matching overload for '_[_]' applied to '(self, string)'"],
        ),
        (
            "self.ints['a']",
            &["1:10: found no matching overload for '_[_]' applied to '(list(int), string)'"],
        ),
        (
            "size(self.i)",
            &["1:5: found no matching overload for 'size' applied to '(int)'"],
        ),
        (
            "self.s.startsWith(1)",
            &["1:18: found no matching overload for 'startsWith' applied to 'string.(int)'"],
        ),
        (
            "startsWith(self.s, 'x')",
            &["1:11: found no matching overload for 'startsWith' applied to '(string, string)'"],
        ),
        (
            "self.s.nope()",
            &["1:12: undeclared reference to 'nope' (in container '')"],
        ),
        (
            "nope(1)",
            &["1:5: undeclared reference to 'nope' (in container '')"],
        ),
        (
            "self.b ? 1 : 'x'",
            &["1:8: found no matching overload for '_?_:_' applied to '(bool, int, string)'"],
        ),
        (
            "self.s && self.i",
            &[
                "1:5: expected type 'bool' but found 'string'",
                "1:15: expected type 'bool' but found 'int'",
            ],
        ),
        (
            "self.i.all(x, true)",
            &[
                "1:5: expression of type 'int' cannot be range of a comprehension (must be list, map, or dynamic)",
            ],
        ),
        (
            "self.ints.all(x, x)",
            &["1:18: expected type 'bool' but found 'int'"],
        ),
        (
            "self.ints.filter(x, x)",
            &["1:17: found no matching overload for '_?_:_' applied to '(int, list(int), list(int))'"],
        ),
        (
            "self.ints.all(1, true)",
            &["1:15: argument must be a simple name"],
        ),
        (
            "self.ints.map(a.b, true)",
            &["1:16: argument is not an identifier"],
        ),
        ("self.ints.all(x, x, true)", &["1:18: duplicate variable name: x"]),
        ("has(self)", &["1:5: invalid argument to has() macro"]),
        (
            "self.foo.bar + baz",
            &[
                "1:5: undefined field 'foo'",
                "1:16: undeclared reference to 'baz' (in container '')",
            ],
        ),
        ("[1, 'a']", &["1:5: expected type 'int' but found 'string'"]),
        (
            "{'a': 1, 'b': 'x'}",
            &["1:15: expected type 'int' but found 'string'"],
        ),
        (
            "[?1]",
            &["1:3: expected type 'optional_type(int)' but found 'int'"],
        ),
        ("duration('x')", &["1:10: invalid duration argument"]),
        (
            "timestamp('2024-13-01T00:00:00Z')",
            &["1:11: invalid timestamp argument"],
        ),
        ("timestamp(-62135596801)", &["1:11: invalid timestamp argument"]),
        ("self.s.matches('(')", &["1:16: invalid matches argument"]),
        ("self.s.matches('a++')", &["1:16: invalid matches argument"]),
        (
            "'%d'.format([self.s])",
            &["1:18: error during formatting: decimal clause can only be used on integers, was given string"],
        ),
        (
            "'%d'.format([1, 2])",
            &["1:12: too many arguments supplied to string.format (expected 1, got 2)"],
        ),
        ("'%d %d'.format([1])", &["1:15: index 1 out of range"]),
        ("if", &["1:1: reserved identifier: if"]),
        (
            "self.i = 1",
            &[
                "1:8: Syntax error: token recognition error at: '= '",
                "1:10: Syntax error: extraneous input '1' expecting <EOF>",
            ],
        ),
        ("(1", &["1:3: Syntax error: missing ')' at '<EOF>'"]),
        (
            "Foo{a: 1}",
            &["1:4: undeclared reference to 'Foo' (in container '')"],
        ),
        (
            "optional.of(1).foo",
            &["1:15: type 'int' does not support field selection"],
        ),
        (
            "self.ints.sortBy(x, [x])",
            &[
                "1:17: found no matching overload for '@sortByAssociatedKeys' applied to 'list(int).(list(list(int)))'",
            ],
        ),
        (
            "['a'].sum()",
            &["1:10: found no matching overload for 'sum' applied to 'list(string).()'"],
        ),
    ];
    for (expression, want) in rows {
        assert_eq!(
            messages(expression),
            *want,
            "{expression}\n{}",
            refusal(expression)
        );
    }
}

#[test]
fn what_kubernetes_does_not_offer_is_refused() {
    for expression in [
        "cel.bind(x, 1, x + 1) == 2",
        "math.greatest(1, 2) == 2",
        "base64.encode(b'x') == 'eA=='",
        "'abc'.reverse() == 'cba'",
        "jsonpatch.escapeKey('a/b') == 'a~1b'",
        "self.ints.existsOne(x, x > 1)",
        "authorizer.path('/healthz').check('get').allowed()",
        "now() > timestamp(0)",
        "now > timestamp(0)",
        "self.ints.includes(1)",
        "regex.replace('a', 'b', 'c') == 'c'",
    ] {
        let text = refusal(expression);
        assert!(
            text.contains("undeclared reference") || text.contains("no matching overload"),
            "{expression}: {text}"
        );
    }
}

#[test]
fn fields_without_a_spelling_cannot_be_reached() {
    assert!(refusal("self.bad_name").contains("undefined field 'bad_name'"));
    assert!(refusal("self.my__field").contains("undefined field"));
    assert!(refusal("self.while").contains("undefined field 'while'"));
}

#[test]
fn a_broken_pattern_of_find_fails_when_the_program_is_made() {
    let error = compile("self.s.find('(') == ''", &env()).expect_err("refused");
    assert!(error.is_instantiation());
    assert_eq!(error.to_string(), "error parsing regexp: missing closing ): `(`");
}

#[test]
fn a_literal_that_cannot_be_converted_fails_when_the_program_is_made() {
    let error = compile("int('a') == 1", &env()).expect_err("refused");
    assert!(error.is_instantiation());
    assert_eq!(error.to_string(), "type conversion error from 'string' to 'int'");
    assert!(compile("int('1') == 1", &env()).is_ok());
    assert!(compile("int(self.s) == 1", &env()).is_ok());
}

#[test]
fn what_is_known_of_a_program() {
    let program = |e: &str| compile(e, &env()).expect("compiles");
    assert!(program("self.i > 1").result_is_bool());
    assert!(!program("self.i > 1").result_is_string());
    assert!(program("self.s + 'x'").result_is_string());
    assert!(!program("self.i").result_is_bool());
    assert!(!program("object.x").result_is_bool() && !program("object.x").result_is_string());
    assert!(program("'x' + object.x").result_is_string());
    assert!(program("self.i == oldSelf.i").mentions("oldSelf"));
    assert!(!program("self.i == 1").mentions("oldSelf"));
    assert!(!program("[1].all(oldSelf, oldSelf > 0)").mentions("oldSelf"));
    assert!(program("self == oldSelf").is_immutability_check());
    assert!(program("oldSelf == self").is_immutability_check());
    assert!(!program("self == self").is_immutability_check());
    assert!(!program("self.i == oldSelf.i").is_immutability_check());
    assert!(!program("self != oldSelf").is_immutability_check());
}

#[test]
fn deep_and_long_expressions_are_refused_not_crashed_on() {
    let limit = "ERROR: <input>:-1:0: expression recursion limit exceeded: 250";
    for expression in [
        format!("{}1{}", "(".repeat(5_000), ")".repeat(5_000)),
        "[".repeat(20_000),
        format!("self{}", ".a".repeat(20_000)),
        vec!["1"; 20_000].join(" + "),
        format!("{}1", "- ".repeat(2_000)),
        format!("self{}", "[0]".repeat(3_000)),
    ] {
        let text = refusal(&expression);
        assert!(
            text == limit || text.contains("Syntax error"),
            "{}",
            &text[..text.len().min(200)]
        );
    }
    let wide = vec!["self.i > 0"; 3_000].join(" && ");
    assert!(compile(&wide, &env()).is_ok(), "chains of && do not nest");
    let long = format!("'{}' == ''", "x".repeat(100_000));
    assert!(refusal(&long).contains("expression code point size exceeds limit: size: 100008, limit 100000"));
}

#[test]
fn the_deepest_accepted_expression_runs_on_a_small_stack() {
    // Loops inside loops take the most stack per level.
    let mut nested = String::from("true");
    for level in 0..60 {
        nested = format!("[1].all(v{level}, {nested})");
    }
    let parens = format!("{}1{} == 1", "(1 + ".repeat(110), ")".repeat(110));
    let chain = format!("{} > 0", vec!["1"; 200].join(" + "));
    let conditions = format!("{}true", "self.i > 0 ? false : ".repeat(100));
    for expression in [nested, parens, chain, conditions] {
        let program = compile(&expression, &env())
            .unwrap_or_else(|e| panic!("{}", e.to_string().lines().next().unwrap_or_default()));
        let outcome = std::thread::Builder::new()
            .stack_size(1 << 20)
            .spawn(move || {
                let value = support::self_value();
                program.evaluate(
                    &[("self", cobaltcore_cel::Input::Json(&value))],
                    &mut cobaltcore_cel::Budget::per_object(),
                )
            })
            .expect("a thread")
            .join()
            .expect("no overflow");
        assert!(outcome.is_ok(), "{outcome:?}");
    }
}

#[test]
fn programs_can_be_shared_between_threads() {
    fn shared<T: Send + Sync + Clone>(_: &T) {}
    let env = Env::new().variable("self", DeclType::Int);
    shared(&compile("self > 1", &env).expect("compiles"));
}
