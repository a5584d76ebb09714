// SPDX-License-Identifier: Apache-2.0
//! The conversation with a webhook: the AdmissionReview that is sent, and what an answer must look
//! like to count as one.

use base64::Engine;
use cobaltcore_text::go;
use serde_json::{Map, Value, json};

use super::hook::{Hook, Review};
use crate::admission::subject::{Form, Subject, attributes};
use crate::status::ApiError;

/// What a webhook answered.
#[derive(Debug)]
pub(super) struct Verdict {
    pub allowed: bool,
    /// Operations to apply to the object; none when empty.
    pub patch: Vec<u8>,
    pub patch_type: String,
    /// Why it was denied, as a Status.
    pub result: Value,
    pub warnings: Vec<String>,
}

/// The whole review.
pub(super) fn request(
    uid: &str,
    version: Review,
    subject: &Subject<'_>,
    form: &Form,
    object: Option<&Value>,
) -> Value {
    let mut request = attributes(subject, form);
    let bodies = form.view(subject, object);
    if let Value::Object(map) = &mut request {
        map.insert("uid".into(), json!(uid));
        map.insert("object".into(), bodies.object.into_owned());
        map.insert("oldObject".into(), bodies.old.into_owned());
    }
    json!({"kind": "AdmissionReview", "apiVersion": version.api_version(), "request": request})
}

/// Reads an answer; the error says what makes it none.
pub(super) fn verdict(
    uid: &str,
    version: Review,
    mutating: bool,
    answer: &Value,
) -> Result<Verdict, Failure> {
    check_type(answer)?;
    let response = match &answer["response"] {
        Value::Object(response) => response,
        Value::Null => return Err(Failure::Invalid("webhook response was absent".into())),
        _ => return Err(unreadable("response", "v1.AdmissionResponse")),
    };
    let text = |key: &str| match response.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.clone())),
        Some(_) => Err(unreadable(&format!("response.{key}"), "string")),
    };
    let patch = match text("patch")? {
        None => Vec::new(),
        Some(encoded) => base64::engine::general_purpose::STANDARD
            .decode(&encoded)
            .map_err(|error| {
                let at = match error {
                    base64::DecodeError::InvalidByte(at, _)
                    | base64::DecodeError::InvalidLastSymbol(at, _) => at,
                    _ => encoded.len(),
                };
                Failure::Call(format!("illegal base64 data at input byte {at}"))
            })?,
    };
    let given_type = text("patchType")?;
    let given_uid = text("uid")?.unwrap_or_default();
    let patch_type = match version {
        Review::V1 => {
            check_envelope(uid, &given_uid, answer)?;
            check_patch(mutating, &patch, given_type.as_deref())?;
            given_type.unwrap_or_default()
        }
        // The old version knew nothing but JSON patches and did not ask for more.
        Review::V1Beta1 => "JSONPatch".to_owned(),
    };
    Ok(Verdict {
        allowed: match response.get("allowed") {
            None | Some(Value::Null) => false,
            Some(Value::Bool(allowed)) => *allowed,
            Some(_) => return Err(unreadable("response.allowed", "bool")),
        },
        patch: if mutating { patch } else { Vec::new() },
        patch_type,
        result: response.get("status").cloned().unwrap_or_default(),
        warnings: warnings(response)?,
    })
}

/// Why an answer is none.
#[derive(Debug)]
pub(super) enum Failure {
    /// It cannot be read.
    Call(String),
    /// It is no valid answer to this request.
    Invalid(String),
}

fn unreadable(field: &str, wanted: &str) -> Failure {
    Failure::Call(format!(
        "json: cannot unmarshal into Go struct field AdmissionReview.{field} of type {wanted}"
    ))
}

/// An answer under another name is not read at all; one without a name is judged later.
fn check_type(answer: &Value) -> Result<(), Failure> {
    let text = |key: &str| answer[key].as_str().unwrap_or_default();
    let (kind, api_version) = (text("kind"), text("apiVersion"));
    let known = ["admission.k8s.io/v1", "admission.k8s.io/v1beta1"].contains(&api_version);
    if kind.is_empty() || api_version.is_empty() || (known && kind == "AdmissionReview") {
        return Ok(());
    }
    Err(Failure::Call(format!(
        "no kind {} is registered for version {} in scheme \"k8s.io/apiserver/pkg/util/webhook/client.go:71\"",
        go::quote(kind),
        go::quote(api_version)
    )))
}

fn check_envelope(uid: &str, given: &str, answer: &Value) -> Result<(), Failure> {
    let api_version = answer["apiVersion"].as_str().unwrap_or_default();
    let kind = answer["kind"].as_str().unwrap_or_default();
    if api_version == "admission.k8s.io/v1beta1" && kind == "AdmissionReview" {
        return Err(Failure::Call(
            "converting (v1beta1.AdmissionReview) to (v1.AdmissionReview): unknown conversion".into(),
        ));
    }
    if given != uid {
        return Err(Failure::Invalid(format!(
            "expected response.uid={uid}, got {given}",
            uid = go::quote(uid),
            given = go::quote(given)
        )));
    }
    if api_version != "admission.k8s.io/v1" || kind != "AdmissionReview" {
        let shown = if api_version.contains('/') {
            api_version.to_owned()
        } else {
            format!("/{api_version}")
        };
        return Err(Failure::Invalid(format!(
            "expected webhook response of admission.k8s.io/v1, Kind=AdmissionReview, got {shown}, Kind={kind}"
        )));
    }
    Ok(())
}

fn check_patch(mutating: bool, patch: &[u8], patch_type: Option<&str>) -> Result<(), Failure> {
    let problem = match (mutating, patch.is_empty(), patch_type) {
        (true, false, None) => "webhook returned response.patch but not response.patchType",
        (true, true, Some(_)) => "webhook returned response.patchType but not response.patch",
        (true, false, Some("")) => "webhook returned invalid response.patchType of \"\"",
        (false, false, _) => "validating webhook may not return response.patch",
        (false, true, Some(_)) => "validating webhook may not return response.patchType",
        _ => return Ok(()),
    };
    Err(Failure::Invalid(problem.to_owned()))
}

fn warnings(response: &Map<String, Value>) -> Result<Vec<String>, Failure> {
    match response.get("warnings") {
        None | Some(Value::Null) => Ok(Vec::new()),
        Some(Value::Array(list)) => list
            .iter()
            .map(|text| {
                text.as_str()
                    .map(str::to_owned)
                    .ok_or_else(|| unreadable("response.warnings", "string"))
            })
            .collect(),
        Some(_) => Err(unreadable("response.warnings", "[]string")),
    }
}

/// The refusal a client sees when a webhook denied the request.
pub(super) fn denied(hook: &Hook, result: &Value) -> ApiError {
    let text = |key: &str| result[key].as_str().unwrap_or_default();
    let by = format!("admission webhook {} denied the request", go::quote(&hook.name));
    let message = match (text("message"), text("reason")) {
        ("", "") => format!("{by} without explanation"),
        ("", reason) => format!("{by}: {reason}"),
        (message, _) => format!("{by}: {message}"),
    };
    // A denial never carries a code of success.
    let code = result["code"]
        .as_u64()
        .and_then(|code| u16::try_from(code).ok())
        .filter(|code| (400..=599).contains(code));
    let code = code.unwrap_or(400);
    let mut status = json!({
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": result.get("metadata").filter(|metadata| metadata.is_object()).cloned().unwrap_or_else(|| json!({})),
        "status": match text("status") {
            "" | "Success" => "Failure",
            other => other,
        },
        "message": message,
        "code": code,
    });
    if let Value::Object(map) = &mut status {
        if !text("reason").is_empty() {
            map.insert("reason".into(), json!(text("reason")));
        }
        if let Some(details) = result.get("details").filter(|details| details.is_object()) {
            map.insert("details".into(), details.clone());
        }
    }
    ApiError::passed_through(code, status)
}

#[cfg(test)]
#[allow(
    clippy::unwrap_used,
    clippy::needless_pass_by_value,
    reason = "a test may fail loudly and read plainly"
)]
mod tests {
    use super::*;

    fn answer(response: Value) -> Value {
        json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "response": response})
    }

    fn problem(mutating: bool, answer: &Value) -> String {
        match verdict("u", Review::V1, mutating, answer) {
            Ok(verdict) => format!("{verdict:?}"),
            Err(Failure::Call(text) | Failure::Invalid(text)) => text,
        }
    }

    #[test]
    fn answers_that_are_none() {
        for (mutating, answer, text) in [
            (true, json!({}), "webhook response was absent"),
            (
                true,
                answer(json!({"uid": "x"})),
                "expected response.uid=\"u\", got \"x\"",
            ),
            (true, json!({"response": {"uid": "u"}}), "got /, Kind="),
            (
                true,
                answer(json!({"uid": "u", "patch": "W10="})),
                "response.patch but not response.patchType",
            ),
            (
                true,
                answer(json!({"uid": "u", "patchType": "JSONPatch"})),
                "response.patchType but not response.patch",
            ),
            (
                false,
                answer(json!({"uid": "u", "patch": "W10="})),
                "validating webhook may not return response.patch",
            ),
            (
                false,
                answer(json!({"uid": "u", "allowed": "yes"})),
                "response.allowed of type bool",
            ),
            (true, answer(json!({"uid": "u", "patch": "?"})), "illegal base64"),
            (
                true,
                answer(json!({"uid": "u", "warnings": "x"})),
                "response.warnings",
            ),
        ] {
            assert!(
                problem(mutating, &answer).contains(text),
                "{answer}: {}",
                problem(mutating, &answer)
            );
        }
    }

    #[test]
    fn the_old_version_asks_for_less() {
        let old = json!({"response": {"allowed": true, "patch": "W10="}});
        let verdict = verdict("u", Review::V1Beta1, true, &old).unwrap();
        assert!(verdict.allowed && verdict.patch == b"[]" && verdict.patch_type == "JSONPatch");
    }
}
