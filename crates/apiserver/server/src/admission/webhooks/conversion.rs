// SPDX-License-Identifier: Apache-2.0
//! Conversion webhooks: the service a definition names to translate its objects between versions.
//! What it answers is held to the rules of the reference: every object comes back, under the same
//! identity, and of its metadata only labels and annotations may differ.

use std::time::{Duration, Instant};

use base64::Engine;
use cobaltcore_text::go;
use serde_json::{Value, json};

use super::Webhooks;
use super::hook::Target;
use super::line::Line;
use crate::api::Api;
use crate::meta;
use crate::status::{ApiError, ApiResult};

/// A conversion takes no longer than this.
const TIMEOUT: Duration = Duration::from_secs(30);
const GROUP: &str = "apiextensions.k8s.io";

/// The service that converts the objects of one definition.
#[derive(Debug)]
pub(crate) struct Converter {
    target: Target,
    line: Line,
    /// The version of ConversionReview both sides know.
    review: Option<&'static str>,
}

impl Converter {
    /// The converter a definition asks for, if it asks for one.
    pub(crate) fn of(definition: &Value) -> Option<Self> {
        let conversion = &definition["spec"]["conversion"];
        if conversion["strategy"] != "Webhook" {
            return None;
        }
        let webhook = &conversion["webhook"];
        let client = &webhook["clientConfig"];
        let review = webhook["conversionReviewVersions"]
            .as_array()
            .into_iter()
            .flatten()
            .find_map(|version| match version.as_str() {
                Some("v1") => Some("v1"),
                Some("v1beta1") => Some("v1beta1"),
                _ => None,
            });
        Some(Self {
            target: Target::of(client),
            line: Line::new(bundle(client)),
            review,
        })
    }

    /// What is wrong with the authorities a definition names for its converter.
    pub(crate) fn bundle_problem(definition: &Value) -> Option<&'static str> {
        let client = &definition["spec"]["conversion"]["webhook"]["clientConfig"];
        super::tls::bundle_problem(&bundle(client)?)
    }
}

fn bundle(client: &Value) -> Option<Vec<u8>> {
    let text = client["caBundle"].as_str().filter(|text| !text.is_empty())?;
    let decoded = base64::engine::general_purpose::STANDARD.decode(text);
    Some(decoded.unwrap_or_default())
}

impl Webhooks {
    /// Converts objects to `api_version`; those that are there already are left alone. `deadline` is
    /// the end of the request the conversion is needed for.
    pub(crate) async fn convert(
        &self,
        api: &Api,
        converter: &Converter,
        objects: &mut [Value],
        api_version: &str,
        deadline: Instant,
    ) -> ApiResult<()> {
        let foreign: Vec<usize> = (0..objects.len())
            .filter(|at| objects.get(*at).is_some_and(|o| o["apiVersion"] != api_version))
            .collect();
        let originals: Vec<Value> = foreign
            .iter()
            .filter_map(|at| objects.get(*at).cloned())
            .collect();
        let converted = match self
            .convert_together(api, converter, &originals, api_version, deadline)
            .await
        {
            // The reference converts one by one, and says of the first that fails why it does.
            Err(_) if originals.len() > 1 => {
                let mut converted = Vec::with_capacity(originals.len());
                for original in &originals {
                    let one = std::slice::from_ref(original);
                    converted.extend(
                        self.convert_together(api, converter, one, api_version, deadline)
                            .await?,
                    );
                }
                converted
            }
            outcome => outcome?,
        };
        for (at, changed) in foreign.into_iter().zip(converted) {
            if let Some(slot) = objects.get_mut(at) {
                *slot = changed;
            }
        }
        Ok(())
    }

    /// Converts objects of other versions with one question.
    async fn convert_together(
        &self,
        api: &Api,
        converter: &Converter,
        originals: &[Value],
        api_version: &str,
        deadline: Instant,
    ) -> ApiResult<Vec<Value>> {
        let Some(first) = originals.first() else {
            return Ok(Vec::new());
        };
        let subject = format!("conversion webhook for {}", gvk(first));
        let failed = |why: String| plain(format!("{subject} failed: {why}"));
        let Some(version) = converter.review else {
            return Err(plain("no supported conversion review versions".into()));
        };
        let uid = uuid::Uuid::new_v4().to_string();
        let review = json!({
            "kind": "ConversionReview", "apiVersion": format!("{GROUP}/{version}"),
            "request": {"uid": uid, "desiredAPIVersion": api_version, "objects": originals},
        });
        let limit = TIMEOUT.min(deadline.saturating_duration_since(Instant::now()));
        let answer = self
            .post(api, &converter.target, &converter.line, limit, review)
            .await
            .map_err(|unanswered| failed(unanswered.why))?;
        let converted = response(&answer, &uid, version).map_err(failed)?;
        if converted.len() != originals.len() {
            return Err(plain(format!(
                "{subject} returned {} objects, expected {}",
                converted.len(),
                originals.len()
            )));
        }
        let pairs = originals.iter().zip(converted);
        pairs
            .map(|(original, changed)| {
                accept(original, changed, api_version).map_err(|refusal| {
                    plain(match refusal {
                        Refusal::Unread(why) => why,
                        Refusal::Returned(what) => format!("{subject} returned invalid {what}"),
                    })
                })
            })
            .collect()
    }
}

/// Failures of a conversion carry no reason, only a text.
fn plain(text: String) -> ApiError {
    ApiError::new(500, "", text)
}

fn gvk(object: &Value) -> String {
    let text = |key: &str| object[key].as_str().unwrap_or_default();
    format!("{}, Kind={}", text("apiVersion"), text("kind"))
}

/// The objects of an answer; the error says why it is none.
fn response(answer: &Value, uid: &str, version: &str) -> Result<Vec<Value>, String> {
    let expected = format!("{GROUP}/{version}");
    check_type(answer, &expected)?;
    let wrong = |value: &Value, field: &str, wanted: &str| {
        format!(
            "json: cannot unmarshal {} into Go struct field {field} of type {wanted}",
            crate::decode::json_type(value)
        )
    };
    let response = match &answer["response"] {
        Value::Null => return Err("no response provided".into()),
        Value::Object(response) => response,
        other => {
            let wanted = format!("{version}.ConversionResponse");
            return Err(wrong(other, "ConversionReview.response", &wanted));
        }
    };
    let given = match response.get("uid").unwrap_or(&Value::Null) {
        Value::Null => "",
        Value::String(uid) => uid,
        other => return Err(wrong(other, "ConversionResponse.response.uid", "types.UID")),
    };
    let converted = match response.get("convertedObjects").unwrap_or(&Value::Null) {
        Value::Null => Vec::new(),
        Value::Array(objects) => objects.clone(),
        other => {
            return Err(wrong(
                other,
                "ConversionResponse.response.convertedObjects",
                "[]runtime.RawExtension",
            ));
        }
    };
    // The old version did not have to repeat the uid.
    if given != uid && version == "v1" {
        return Err(format!(
            "expected response.uid={}, got {}",
            go::quote(uid),
            go::quote(given)
        ));
    }
    let result = response.get("result").unwrap_or(&Value::Null);
    let text = |key: &str| result[key].as_str().unwrap_or_default();
    match (text("status"), text("message")) {
        ("Success", _) => Ok(converted),
        (status, "") => Err(format!("response.result.status was '{status}', not 'Success'")),
        (_, message) => Err(message.to_owned()),
    }
}

/// An answer under another name is not read at all; one without a name is not the one expected.
fn check_type(answer: &Value, expected: &str) -> Result<(), String> {
    let text = |key: &str| answer[key].as_str().unwrap_or_default();
    let (kind, api_version) = (text("kind"), text("apiVersion"));
    if kind.is_empty() || api_version.is_empty() {
        let api_version = if api_version.is_empty() { "/" } else { api_version };
        return Err(format!(
            "expected webhook response of {expected}, Kind=ConversionReview, got {api_version}, Kind={kind}"
        ));
    }
    let known = ["v1", "v1beta1"].map(|version| format!("{GROUP}/{version}"));
    if kind != "ConversionReview" || !known.iter().any(|version| version == api_version) {
        return Err(format!(
            "no kind {} is registered for version {} in scheme \"k8s.io/apiserver/pkg/util/webhook/client.go:71\"",
            go::quote(kind),
            go::quote(api_version)
        ));
    }
    if api_version != expected {
        let (given, wanted) = (
            meta::split_api_version(api_version).1,
            meta::split_api_version(expected).1,
        );
        return Err(format!(
            "converting ({given}.ConversionReview) to ({wanted}.ConversionReview): unknown conversion"
        ));
    }
    Ok(())
}

/// Why a converted object is not taken.
#[derive(Debug)]
enum Refusal {
    /// It is not even read, and this is all that is told.
    Unread(String),
    /// What is wrong with what came back.
    Returned(String),
}

/// A converted object as it may be used: the identity and the system's metadata are the original's.
fn accept(original: &Value, mut converted: Value, api_version: &str) -> Result<Value, Refusal> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    match &converted {
        Value::Object(_) => {}
        Value::Null => return Err(Refusal::Unread("unexpected end of JSON input".into())),
        other => {
            return Err(Refusal::Unread(format!(
                "json: cannot unmarshal {} into Go value of type map[string]interface {{}}",
                crate::decode::json_type(other)
            )));
        }
    }
    let kind = text(&converted["kind"]);
    if kind.is_empty() {
        return Err(Refusal::Unread(format!(
            "Object 'Kind' is missing in '{converted}'"
        )));
    }
    let received = text(&converted["apiVersion"]);
    if received != api_version {
        return Err(Refusal::Returned(format!(
            "object at index 0: invalid groupVersion (expected {api_version}, received {received})"
        )));
    }
    let wanted = text(&original["kind"]);
    if kind != wanted {
        return Err(Refusal::Returned(format!(
            "object at index 0: invalid kind (expected {wanted}, received {kind})"
        )));
    }
    for (key, title) in [("name", "name"), ("namespace", "namespace"), ("uid", "UID")] {
        let (before, after) = (meta::text(original, key), meta::text(&converted, key));
        if before != after {
            return Err(Refusal::Returned(format!(
                "object: must have the same {title}: {before} != {after}"
            )));
        }
    }
    let metadata = restored(&original["metadata"], &converted["metadata"])
        .map_err(|why| Refusal::Returned(format!("metadata: {why}")))?;
    meta::fields(&mut converted).insert("metadata".into(), metadata);
    Ok(converted)
}

/// The metadata of the original with the labels and annotations that came back. New ones have to be such as a client
/// could have set.
fn restored(original: &Value, given: &Value) -> Result<Value, String> {
    let mut metadata = original.clone();
    for key in ["labels", "annotations"] {
        let map = meta::fields(&mut metadata);
        let fields = match given.get(key) {
            None | Some(Value::Null) => {
                map.remove(key);
                continue;
            }
            Some(Value::Object(fields)) => fields,
            Some(other) => {
                return Err(format!(
                    "invalid metadata.{key} of type {} in converted object",
                    go_type(other)
                ));
            }
        };
        if let Some((name, value)) = fields.iter().find(|(_, value)| !value.is_string()) {
            return Err(format!(
                "metadata.{key}[{name}] must be a string, but is {} in converted object",
                go_type(value)
            ));
        }
        if map.get(key).and_then(Value::as_object) != Some(fields) {
            let errors = if key == "labels" {
                cobaltcore_schema::meta::validate_labels(given, "metadata.labels")
            } else {
                cobaltcore_schema::meta::validate_annotations(given, "metadata.annotation")
            };
            let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
            match texts.as_slice() {
                [] => {}
                [one] => return Err(one.clone()),
                many => return Err(format!("[{}]", many.join(", "))),
            }
        }
        map.insert(key.to_owned(), json!(fields));
    }
    Ok(metadata)
}

/// How the reference calls the type of a value it has read.
fn go_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_i64() => "int64",
        Value::Number(_) => "float64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(version: &str) -> Value {
        json!({"apiVersion": format!("example.com/{version}"), "kind": "Widget",
            "metadata": {"name": "a", "uid": "u", "resourceVersion": "7", "labels": {"a": "b"}}, "spec": {}})
    }

    #[test]
    fn identity_is_kept_and_labels_may_change() {
        let mut changed = object("v2");
        changed["metadata"] =
            json!({"name": "a", "uid": "u", "annotations": {"x": "y"}, "finalizers": ["no/way"]});
        let accepted = accept(&object("v1"), changed, "example.com/v2").unwrap();
        assert_eq!(
            accepted["metadata"],
            json!({"name": "a", "uid": "u", "resourceVersion": "7", "annotations": {"x": "y"}})
        );
        for (key, value, why) in [
            ("apiVersion", json!("example.com/v3"), "invalid groupVersion"),
            (
                "kind",
                json!("Gadget"),
                "invalid kind (expected Widget, received Gadget)",
            ),
            (
                "metadata",
                json!({"name": "b", "uid": "u"}),
                "must have the same name: a != b",
            ),
            ("metadata", json!({"name": "a"}), "must have the same UID: u != "),
        ] {
            let mut changed = object("v2");
            changed[key] = value;
            let error = accept(&object("v1"), changed, "example.com/v2").unwrap_err();
            assert!(
                matches!(&error, Refusal::Returned(text) if text.contains(why)),
                "{error:?}"
            );
        }
    }

    #[test]
    fn answers_are_judged_as_the_reference_does() {
        let answer = |response: Value| json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview", "response": response});
        for (response, why) in [
            (Value::Null, "no response provided"),
            (json!({"uid": "x"}), "expected response.uid=\"u\", got \"x\""),
            (
                json!({"uid": "u", "result": {"status": "Failed"}}),
                "response.result.status was 'Failed', not 'Success'",
            ),
            (
                json!({"uid": "u", "result": {"status": "Failed", "message": "no"}}),
                "no",
            ),
        ] {
            assert_eq!(super::response(&answer(response), "u", "v1").unwrap_err(), why);
        }
    }
}
