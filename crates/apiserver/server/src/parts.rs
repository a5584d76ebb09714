// SPDX-License-Identifier: Apache-2.0
//! Bodies that ask something of an object instead of being one: a Binding, an Eviction, a request for
//! a token. They are read as strictly as objects are: what is of the wrong type is refused, what
//! nobody knows is told. What they ask for is not looked at here.

use serde_json::{Value, json};

use crate::call::{Call, duplicate_field, unknown_field};
use crate::decode::{self, Decoded};
use crate::meta;
use crate::options::FieldValidation;
use crate::status::{ApiError, ApiResult};
use crate::write::unmarshal_errors;

/// A kind of body that asks something.
pub(crate) struct Part {
    /// Kind of the body.
    pub(crate) kind: &'static str,
    /// Its group and version.
    pub(crate) api_version: &'static str,
    /// Where its fields are described.
    pub(crate) definition: &'static str,
}

/// Puts a pod on a node.
pub(crate) const BINDING: Part = Part {
    kind: "Binding",
    api_version: "v1",
    definition: "io.k8s.api.core.v1.Binding",
};

/// Deletes a pod if its budgets allow.
pub(crate) const EVICTION: Part = Part {
    kind: "Eviction",
    api_version: "policy/v1",
    definition: "io.k8s.api.policy.v1.Eviction",
};

/// Asks for a token of an account.
pub(crate) const TOKEN_REQUEST: Part = Part {
    kind: "TokenRequest",
    api_version: "authentication.k8s.io/v1",
    definition: "io.k8s.api.authentication.v1.TokenRequest",
};

impl Part {
    /// Reads the body of a request as this kind.
    pub(crate) fn read(&self, call: &Call, validation: FieldValidation) -> ApiResult<Value> {
        let Decoded {
            value: mut body,
            duplicates,
            repeated,
        } = call.decode_body(self.kind)?;
        self.check_envelope(call, &body)?;
        fill_envelope(&mut body, self.api_version, self.kind);
        let (_, version) = meta::split_api_version(self.api_version);
        let read = cobaltcore_builtins::decode_definition(self.definition, &mut body).map_err(|why| {
            ApiError::bad_request(format!(
                "{kind} in version \"{version}\" cannot be handled as a {kind}: {}",
                why.message,
                kind = self.kind
            ))
        })?;
        let mut problems: Vec<(String, String)> = Vec::new();
        problems.extend(read.unknown.iter().map(|p| (p.clone(), unknown_field(p))));
        if repeated.is_empty() {
            let known = duplicates.iter().filter(|path| !read.unknown.contains(path));
            problems.extend(known.map(|path| (path.clone(), duplicate_field(path))));
        }
        decode::sort_by_place(&call.body, &mut problems);
        let mut problems: Vec<String> = problems.into_iter().map(|(_, text)| text).collect();
        if !repeated.is_empty() {
            let told = match validation {
                FieldValidation::Strict => vec![unmarshal_errors(&repeated)],
                _ => repeated,
            };
            problems.splice(0..0, told);
        }
        call.judge_strictness(validation, &problems, self.kind, version)?;
        Ok(body)
    }

    /// A body is an object whose names are texts.
    fn check_envelope(&self, call: &Call, body: &Value) -> ApiResult<()> {
        let illegible = |wrong: &Value, place: &str| {
            let found = decode::json_type(wrong);
            let why = format!(
                "couldn't get version/kind; json parse error: json: cannot unmarshal {found} into {place}"
            );
            Err(call.unrecognized(self.kind, &why))
        };
        if !body.is_object() && !body.is_null() {
            return illegible(
                body,
                "Go value of type struct { APIVersion string \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" }",
            );
        }
        for key in ["apiVersion", "kind"] {
            if let Some(wrong) = body.get(key).filter(|v| !v.is_null() && !v.is_string()) {
                return illegible(wrong, &format!("Go struct field .{key} of type string"));
            }
        }
        Ok(())
    }
}

/// kind and apiVersion of a body that left them to its endpoint.
fn fill_envelope(body: &mut Value, api_version: &str, kind: &str) {
    let map = meta::fields(body);
    for (key, text) in [("apiVersion", api_version), ("kind", kind)] {
        let given = map.get(key).and_then(Value::as_str).unwrap_or_default();
        if given.is_empty() {
            map.insert(key.into(), json!(text));
        }
    }
}
