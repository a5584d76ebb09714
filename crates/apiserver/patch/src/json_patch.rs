// SPDX-License-Identifier: Apache-2.0
//! JSON patch (RFC 6902), with the habits of the library kube-apiserver uses: `replace` of an
//! absent object field sets it, an absent field tests equal to null, indices may count from the
//! end. A patch applies as a whole or not at all.

use cobaltcore_text::go;
use serde_json::Value;

use crate::error::PatchError;

/// Most operations in one patch.
pub const MAX_OPERATIONS: usize = 10_000;
/// Most bytes all `copy` operations of one patch may add.
pub const MAX_COPIED: usize = 3 * 1024 * 1024;

/// Applies `patch`, an array of operations, to `document`. On error the document is unchanged.
pub fn json_patch(document: &Value, patch: &Value) -> Result<Value, PatchError> {
    let operations = decode(patch)?;
    let mut result = document.clone();
    let mut copied = 0;
    for (index, operation) in operations.iter().enumerate() {
        run(&mut result, operation, &mut copied).map_err(|failure| match failure {
            Failure::CopiedTooMuch(size) => PatchError::TooLarge(format!(
                "Unable to complete the copy, the accumulated size increase of copy is {size}, exceeding the limit {MAX_COPIED}"
            )),
            Failure::Reason(reason) => PatchError::Operation {
                index,
                op: operation.op.to_owned(),
                path: operation.path.unwrap_or_default().to_owned(),
                reason,
            },
        })?;
    }
    Ok(result)
}

struct Operation<'a> {
    op: &'a str,
    path: Option<&'a str>,
    from: Option<&'a str>,
    value: &'a Value,
}

enum Failure {
    Reason(String),
    CopiedTooMuch(usize),
}

impl From<String> for Failure {
    fn from(reason: String) -> Self {
        Self::Reason(reason)
    }
}

fn decode(patch: &Value) -> Result<Vec<Operation<'_>>, PatchError> {
    let Value::Array(items) = patch else {
        return Err(PatchError::BadRequest(format!(
            "json: cannot unmarshal {} into Go value of type jsonpatch.Patch",
            go::json_kind(patch)
        )));
    };
    if items.len() > MAX_OPERATIONS {
        return Err(PatchError::TooLarge(format!(
            "The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {}",
            items.len()
        )));
    }
    items.iter().map(operation).collect()
}

fn operation(item: &Value) -> Result<Operation<'_>, PatchError> {
    let fields = match item {
        Value::Object(fields) => Some(fields),
        Value::Null => None,
        other => {
            return Err(PatchError::BadRequest(format!(
                "json: cannot unmarshal {} into Go value of type jsonpatch.Operation",
                go::json_kind(other)
            )));
        }
    };
    let field = |name: &str| fields.and_then(|f| f.get(name));
    let text = |name: &str| field(name).and_then(Value::as_str);
    Ok(Operation {
        op: text("op").unwrap_or("unknown"),
        path: text("path"),
        from: text("from"),
        value: field("value").unwrap_or(&Value::Null),
    })
}

fn run(document: &mut Value, operation: &Operation<'_>, copied: &mut usize) -> Result<(), Failure> {
    let Operation { op, value, .. } = operation;
    match *op {
        "add" => {
            let path = operation.path(MISSING)?;
            add(document, path, (*value).clone()).map_err(|fault| match fault {
                Fault::NoParent => {
                    format!("add operation does not apply: doc is missing path: \"{path}\": {MISSING}")
                }
                Fault::Inside(why) => format!("error in add for path: '{path}': {why}"),
            })?;
        }
        "remove" => {
            let path = operation.path(MISSING)?;
            remove(document, path).map_err(|fault| match fault {
                Fault::NoParent => {
                    format!("remove operation does not apply: doc is missing path: \"{path}\": {MISSING}")
                }
                Fault::Inside(why) => format!("error in remove for path: '{path}': {why}"),
            })?;
        }
        "replace" => replace(document, operation.path(NO_PATH)?, value)?,
        "move" => move_value(document, operation)?,
        "copy" => copy_value(document, operation, copied)?,
        "test" => test(document, operation.path(NO_PATH)?, value)?,
        other => return Err(Failure::Reason(format!("Unexpected kind: {other}"))),
    }
    Ok(())
}

const MISSING: &str = "missing value";
const NO_PATH: &str = "operation missing path field: missing value";

impl<'a> Operation<'a> {
    /// The path; `absent` is what is said of its absence.
    fn path(&self, absent: &str) -> Result<&'a str, String> {
        self.path
            .ok_or_else(|| format!("{} operation failed to decode path: {absent}", self.op))
    }

    fn from(&self) -> Result<&'a str, String> {
        self.from.ok_or_else(|| {
            format!(
                "{} operation failed to decode from: operation, missing from field: {MISSING}",
                self.op
            )
        })
    }
}

/// Why a place cannot be read or changed; each operation tells it in words of its own.
enum Fault {
    /// There is no object or list the place would be in.
    NoParent,
    /// There is one, but not such a place in it.
    Inside(String),
}

impl From<String> for Fault {
    fn from(why: String) -> Self {
        Self::Inside(why)
    }
}

/// The parent tokens and the last token of a pointer. What stands before the first slash is
/// ignored, as in the reference; a pointer without slash addresses nothing.
fn split(path: &str) -> Option<(Vec<String>, String)> {
    let mut tokens: Vec<String> = path.split('/').skip(1).map(unescape).collect();
    let last = tokens.pop()?;
    Some((tokens, last))
}

fn unescape(token: &str) -> String {
    token.replace("~1", "/").replace("~0", "~")
}

fn parent<'a>(document: &'a mut Value, path: &str) -> Result<(&'a mut Value, String), Fault> {
    let (tokens, last) = split(path).ok_or(Fault::NoParent)?;
    let mut node = document;
    for token in &tokens {
        let next = match node {
            Value::Object(map) => map.get_mut(token),
            Value::Array(items) => {
                let at = index(token, items.len(), items.len()).map_err(|_| Fault::NoParent)?;
                items.get_mut(at)
            }
            _ => None,
        };
        node = next.ok_or(Fault::NoParent)?;
    }
    if node.is_object() || node.is_array() {
        Ok((node, last))
    } else {
        Err(Fault::NoParent)
    }
}

/// A list index: `bound` is the first index that is refused, `length` what negative ones count from.
fn index(token: &str, bound: usize, length: usize) -> Result<usize, String> {
    let number: i64 = token.parse().map_err(|_| {
        format!(
            "strconv.Atoi: parsing {token}: invalid syntax",
            token = go::quote(token)
        )
    })?;
    let refused = || format!("Unable to access invalid index: {number}: invalid index referenced");
    let at = if number < 0 {
        let back = usize::try_from(number.unsigned_abs()).map_err(|_| refused())?;
        length.checked_sub(back).ok_or_else(refused)?
    } else {
        usize::try_from(number).map_err(|_| refused())?
    };
    if at < bound { Ok(at) } else { Err(refused()) }
}

fn add(document: &mut Value, path: &str, value: Value) -> Result<(), Fault> {
    match parent(document, path)? {
        (Value::Object(map), key) => {
            map.insert(key, value);
        }
        (Value::Array(items), key) if key == "-" => items.push(value),
        (Value::Array(items), key) => {
            let at = index(&key, items.len() + 1, items.len() + 1).map_err(|why| {
                if why.starts_with("strconv") {
                    format!("value was not a proper array index: '{key}': {why}")
                } else {
                    why
                }
            })?;
            items.insert(at, value);
        }
        _ => return Err(Fault::NoParent),
    }
    Ok(())
}

fn remove(document: &mut Value, path: &str) -> Result<Value, Fault> {
    match parent(document, path)? {
        (Value::Object(map), key) => map
            .remove(&key)
            .ok_or_else(|| Fault::Inside(format!("Unable to remove nonexistent key: {key}: {MISSING}"))),
        (Value::Array(items), key) => {
            let at = index(&key, items.len(), items.len())?;
            Ok(items.remove(at))
        }
        _ => Err(Fault::NoParent),
    }
}

fn replace(document: &mut Value, path: &str, value: &Value) -> Result<(), String> {
    if path.is_empty() {
        if !value.is_object() && !value.is_array() {
            return Err("replace operation value must be object or array: %!w(<nil>)".to_owned());
        }
        *document = value.clone();
        return Ok(());
    }
    let absent =
        |what: &str| format!("replace operation does not apply: doc is missing {what}: {path}: {MISSING}");
    match parent(document, path) {
        Ok((Value::Object(map), key)) => {
            map.insert(key, value.clone());
        }
        Ok((Value::Array(items), key)) => {
            let at = index(&key, items.len(), items.len()).map_err(|_| absent("key"))?;
            let slot = items.get_mut(at).ok_or_else(|| absent("key"))?;
            *slot = value.clone();
        }
        _ => return Err(absent("path")),
    }
    Ok(())
}

fn move_value(document: &mut Value, operation: &Operation<'_>) -> Result<(), Failure> {
    let from = operation.from()?;
    let value = remove(document, from).map_err(|fault| match fault {
        Fault::NoParent => {
            format!("move operation does not apply: doc is missing from path: {from}: {MISSING}")
        }
        Fault::Inside(why) => {
            let key = split(from).map(|(_, key)| key).unwrap_or_default();
            format!("error in move for path: '{key}': {why}")
        }
    })?;
    let path = operation.path(NO_PATH)?;
    add(document, path, value).map_err(|fault| match fault {
        Fault::NoParent => {
            format!("move operation does not apply: doc is missing destination path: {path}: {MISSING}")
        }
        Fault::Inside(why) => format!("error in move for path: '{path}': {why}"),
    })?;
    Ok(())
}

fn copy_value(document: &mut Value, operation: &Operation<'_>, copied: &mut usize) -> Result<(), Failure> {
    let from = operation.from()?;
    let value = get(document, from).map_err(|fault| match fault {
        Fault::NoParent => {
            format!("copy operation does not apply: doc is missing from path: {from}: {MISSING}")
        }
        Fault::Inside(why) => format!("error in copy for from: '{from}': {why}"),
    })?;
    let value = value.cloned().unwrap_or(Value::Null);
    let path = operation.path(MISSING)?;
    *copied += encoded_size(&value, MAX_COPIED);
    if *copied > MAX_COPIED {
        return Err(Failure::CopiedTooMuch(*copied));
    }
    add(document, path, value).map_err(|fault| match fault {
        Fault::NoParent => {
            format!("copy operation does not apply: doc is missing destination path: {path}: {MISSING}")
        }
        Fault::Inside(why) => format!("error while adding value during copy: {why}"),
    })?;
    Ok(())
}

/// The value at `path`; `None` is an absent field of an object that exists.
fn get<'a>(document: &'a mut Value, path: &str) -> Result<Option<&'a Value>, Fault> {
    match parent(document, path)? {
        (Value::Object(map), key) => Ok(map.get(&key)),
        (Value::Array(items), key) => {
            let at = index(&key, items.len(), items.len())?;
            Ok(items.get(at))
        }
        _ => Err(Fault::NoParent),
    }
}

fn test(document: &mut Value, path: &str, expected: &Value) -> Result<(), String> {
    let actual = if path.is_empty() {
        Some(&*document)
    } else {
        get(document, path).map_err(|fault| match fault {
            Fault::NoParent => format!("test operation does not apply: is missing path: {path}: {MISSING}"),
            Fault::Inside(why) => format!("error in test for path: '{path}': {why}"),
        })?
    };
    // Numbers are compared as they are written: `1` is not `1.0`.
    if actual.unwrap_or(&Value::Null) == expected {
        Ok(())
    } else {
        Err(format!("testing value {path} failed: test failed"))
    }
}

/// Bytes of the compact encoding, close enough for a limit; stops counting at `limit`.
fn encoded_size(value: &Value, limit: usize) -> usize {
    match value {
        Value::Null | Value::Bool(_) => 4,
        Value::Number(n) => n.to_string().len(),
        Value::String(s) => s.len() + 2,
        Value::Array(items) => {
            let mut size = 2;
            for item in items {
                size += encoded_size(item, limit) + 1;
                if size > limit {
                    break;
                }
            }
            size
        }
        Value::Object(map) => {
            let mut size = 2;
            for (key, item) in map {
                size += key.len() + 4 + encoded_size(item, limit);
                if size > limit {
                    break;
                }
            }
            size
        }
    }
}

#[cfg(test)]
#[allow(clippy::needless_pass_by_value)]
mod tests {
    use super::*;
    use serde_json::json;

    fn op(op: &str, path: &str, value: Value) -> Value {
        json!({"op": op, "path": path, "value": value})
    }

    #[test]
    fn operations_that_apply() {
        let cases = [
            (json!({}), json!([op("add", "/a", json!(1))]), json!({"a":1})),
            (json!({"a":1}), json!([op("add", "/a", json!(2))]), json!({"a":2})),
            (
                json!({"l":[1,3]}),
                json!([op("add", "/l/1", json!(2))]),
                json!({"l":[1,2,3]}),
            ),
            (
                json!({"l":[1]}),
                json!([op("add", "/l/-", json!(2))]),
                json!({"l":[1,2]}),
            ),
            (
                json!({"l":[1]}),
                json!([op("add", "/l/-1", json!(2))]),
                json!({"l":[1,2]}),
            ),
            (
                json!({"l":[1,2]}),
                json!([{"op":"remove","path":"/l/-1"}]),
                json!({"l":[1]}),
            ),
            (
                json!({"a":1,"b":2}),
                json!([{"op":"remove","path":"/a"}]),
                json!({"b":2}),
            ),
            (
                json!({"a":1}),
                json!([op("replace", "/a", json!({"x":1}))]),
                json!({"a":{"x":1}}),
            ),
            (json!({}), json!([op("replace", "/a", json!(1))]), json!({"a":1})),
            (
                json!({"a":1}),
                json!([op("replace", "", json!({"b":1}))]),
                json!({"b":1}),
            ),
            (
                json!({"a":{"x":1},"b":{}}),
                json!([{"op":"move","from":"/a/x","path":"/b/y"}]),
                json!({"a":{},"b":{"y":1}}),
            ),
            (
                json!({"a":1}),
                json!([{"op":"copy","from":"/a","path":"/b"}]),
                json!({"a":1,"b":1}),
            ),
            (
                json!({"a/b":1,"m~n":2}),
                json!([op("replace", "/a~1b", json!(3)), op("test", "/m~0n", json!(2))]),
                json!({"a/b":3,"m~n":2}),
            ),
            (json!({}), json!([op("test", "/a", json!(null))]), json!({})),
            (
                json!({"a":null}),
                json!([op("test", "/a", json!(null))]),
                json!({"a":null}),
            ),
            (
                json!({"a":{"b":[1,{"c":2}]}}),
                json!([op("test", "/a", json!({"b":[1,{"c":2}]}))]),
                json!({"a":{"b":[1,{"c":2}]}}),
            ),
            (
                json!({"a":1}),
                json!([op("test", "", json!({"a":1}))]),
                json!({"a":1}),
            ),
            (json!({"a":1}), json!([]), json!({"a":1})),
        ];
        for (document, patch, expected) in cases {
            assert_eq!(
                json_patch(&document, &patch),
                Ok(expected),
                "{document} with {patch}"
            );
        }
    }

    #[test]
    fn operations_that_do_not_apply_name_index_op_and_path() {
        let first = op("add", "/ok", json!(1));
        let cases = [
            (json!({"op":"remove","path":"/a"}), "remove", "/a"),
            (json!({"op":"remove","path":"/l/5"}), "remove", "/l/5"),
            (op("add", "/x/y", json!(1)), "add", "/x/y"),
            (op("add", "/l/9", json!(1)), "add", "/l/9"),
            (op("add", "/l/x", json!(1)), "add", "/l/x"),
            (op("add", "/s/x", json!(1)), "add", "/s/x"),
            (op("add", "", json!({})), "add", ""),
            (op("replace", "/l/7", json!(1)), "replace", "/l/7"),
            (op("replace", "", json!(1)), "replace", ""),
            (op("test", "/s", json!("other")), "test", "/s"),
            (op("test", "/l/0", json!(1.0)), "test", "/l/0"),
            (op("test", "/missing/deep", json!(null)), "test", "/missing/deep"),
            (json!({"op":"move","from":"/nope","path":"/b"}), "move", "/b"),
            (json!({"op":"copy","from":"/no/pe","path":"/b"}), "copy", "/b"),
            (json!({"op":"frob","path":"/b"}), "frob", "/b"),
            (json!({"op":"add","value":1}), "add", ""),
        ];
        for (operation, name, place) in cases {
            let document = json!({"l":[1],"s":"text"});
            match json_patch(&document, &json!([first, operation])) {
                Err(PatchError::Operation {
                    index: 1,
                    op,
                    path,
                    reason,
                }) => {
                    assert_eq!((op.as_str(), path.as_str()), (name, place));
                    assert!(!reason.is_empty());
                }
                other => panic!("{operation}: {other:?}"),
            }
        }
    }

    #[test]
    fn reasons_are_told_in_the_words_of_the_reference() {
        for (operation, reason) in [
            (
                op("add", "/x/y", json!(1)),
                "add operation does not apply: doc is missing path: \"/x/y\": missing value",
            ),
            (
                op("add", "/l/9", json!(1)),
                "error in add for path: '/l/9': Unable to access invalid index: 9: invalid index referenced",
            ),
            (
                op("add", "/l/x", json!(1)),
                "error in add for path: '/l/x': value was not a proper array index: 'x': strconv.Atoi: parsing \"x\": invalid syntax",
            ),
            (
                json!({"op":"remove","path":"/a"}),
                "error in remove for path: '/a': Unable to remove nonexistent key: a: missing value",
            ),
            (
                op("replace", "/x/y", json!(1)),
                "replace operation does not apply: doc is missing path: /x/y: missing value",
            ),
            (
                op("replace", "/l/7", json!(1)),
                "replace operation does not apply: doc is missing key: /l/7: missing value",
            ),
            (
                op("test", "/x/y", json!(1)),
                "test operation does not apply: is missing path: /x/y: missing value",
            ),
            (op("test", "/s", json!(1)), "testing value /s failed: test failed"),
            (
                json!({"op":"move","from":"/zz","path":"/b"}),
                "error in move for path: 'zz': Unable to remove nonexistent key: zz: missing value",
            ),
            (
                json!({"op":"copy","from":"/zz/y","path":"/b"}),
                "copy operation does not apply: doc is missing from path: /zz/y: missing value",
            ),
            (
                json!({"op":"copy","from":"/s","path":"/zz/b"}),
                "copy operation does not apply: doc is missing destination path: /zz/b: missing value",
            ),
            (json!({"op":"frob","path":"/b"}), "Unexpected kind: frob"),
            (json!({"path":"/b"}), "Unexpected kind: unknown"),
            (
                json!({"op":"test"}),
                "test operation failed to decode path: operation missing path field: missing value",
            ),
        ] {
            match json_patch(&json!({"l":[1],"s":"text"}), &json!([operation])) {
                Err(PatchError::Operation { reason: told, .. }) => assert_eq!(told, reason),
                other => panic!("{operation}: {other:?}"),
            }
        }
    }

    #[test]
    fn malformed_and_oversized_patches_are_refused() {
        assert!(matches!(
            json_patch(&json!({}), &json!({"op":"add"})),
            Err(PatchError::BadRequest(_))
        ));
        assert!(matches!(
            json_patch(&json!({}), &json!(["add"])),
            Err(PatchError::BadRequest(_))
        ));
        let many: Vec<Value> = (0..=MAX_OPERATIONS)
            .map(|_| op("test", "/a", json!(null)))
            .collect();
        assert_eq!(
            json_patch(&json!({}), &Value::Array(many)),
            Err(PatchError::TooLarge(
                "The allowed maximum operations in a JSON patch is 10000, got 10001".to_owned()
            ))
        );
        let document = json!({"big": "x".repeat(1024 * 1024)});
        let copies: Vec<Value> = (0..4)
            .map(|i| json!({"op":"copy","from":"/big","path":format!("/copy{i}")}))
            .collect();
        assert!(matches!(
            json_patch(&document, &Value::Array(copies)),
            Err(PatchError::TooLarge(_))
        ));
    }
}
