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
        let Some(first) = originals.first() else {
            return Ok(());
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
        for (at, (original, changed)) in foreign.iter().zip(originals.iter().zip(converted)) {
            // The reference converts one by one, so every object is the first of its kind.
            let accepted = accept(original, changed, api_version).map_err(|why| {
                let place = if why.starts_with("invalid ") {
                    " at index 0"
                } else {
                    ""
                };
                plain(format!("{subject} returned invalid object{place}: {why}"))
            })?;
            if let Some(slot) = objects.get_mut(*at) {
                *slot = accepted;
            }
        }
        Ok(())
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
    if answer["apiVersion"] != *expected || answer["kind"] != "ConversionReview" {
        return Err(format!(
            "expected webhook response of {expected}, Kind=ConversionReview, got {}",
            gvk(answer)
        ));
    }
    let Value::Object(response) = &answer["response"] else {
        return Err("no response provided".into());
    };
    let text = |value: Option<&Value>| value.and_then(Value::as_str).unwrap_or_default().to_owned();
    let given = text(response.get("uid"));
    // The old version did not have to repeat the uid.
    if given != uid && version == "v1" {
        return Err(format!(
            "expected response.uid={}, got {}",
            go::quote(uid),
            go::quote(&given)
        ));
    }
    let result = response.get("result").cloned().unwrap_or_default();
    if result["status"] != "Success" {
        let message = text(result.get("message"));
        return Err(if message.is_empty() {
            format!(
                "response.result.status was '{}', not 'Success'",
                text(result.get("status"))
            )
        } else {
            message
        });
    }
    Ok(response
        .get("convertedObjects")
        .and_then(Value::as_array)
        .cloned()
        .unwrap_or_default())
}

/// A converted object as it may be used: the identity and the system's metadata are the original's.
fn accept(original: &Value, mut converted: Value, api_version: &str) -> Result<Value, String> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    if !converted.is_object() {
        return Err("the object is no JSON object".into());
    }
    let received = text(&converted["apiVersion"]);
    if received != api_version {
        return Err(format!(
            "invalid groupVersion (expected {api_version}, received {received})"
        ));
    }
    let (wanted, kind) = (text(&original["kind"]), text(&converted["kind"]));
    if kind != wanted {
        return Err(format!("invalid kind (expected {wanted}, received {kind})"));
    }
    for (key, title) in [("name", "name"), ("namespace", "namespace"), ("uid", "UID")] {
        let (before, after) = (meta::text(original, key), meta::text(&converted, key));
        if before != after {
            return Err(format!("must have the same {title}: {before} != {after}"));
        }
    }
    let mut metadata = original["metadata"].clone();
    for key in ["labels", "annotations"] {
        let Some(map) = metadata.as_object_mut() else {
            break;
        };
        match converted["metadata"].get(key) {
            None | Some(Value::Null) => map.remove(key),
            Some(Value::Object(given)) if given.values().all(Value::is_string) => {
                map.insert(key.to_owned(), json!(given))
            }
            Some(_) => return Err(format!("invalid metadata.{key}: not a map of strings")),
        };
    }
    meta::fields(&mut converted).insert("metadata".into(), metadata);
    Ok(converted)
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
            assert!(error.contains(why), "{error}");
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
