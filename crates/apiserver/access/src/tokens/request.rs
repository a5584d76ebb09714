// SPDX-License-Identifier: Apache-2.0
//! Issuing and examining ServiceAccount tokens: TokenRequest and TokenReview.
//!
//! Both take the body the client sent and give the body of the answer. Checks run in the order
//! of the reference, so that a request with several mistakes gets the same answer.

use super::jwt::{Claims, ObjectRef};
use super::{Authenticator, Subject, SubjectKind, SubjectLookup};
use crate::error::{FieldCause, Refusal};
use crate::review::stamp;
use cobaltcore_text::go;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Map, Value, json};

const GROUP: &str = "authentication.k8s.io";
const HOUR: i64 = 3600;
/// A pod's token asked for with this lifetime lives a year, for clients that never reload it.
const EXTENDED_WHEN: i64 = HOUR + 7;
const EXTENDED_TO: i64 = 365 * 24 * HOUR;

fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

fn invalid(name: &str, causes: Vec<FieldCause>) -> Refusal {
    let (group, kind) = (GROUP.to_owned(), "TokenRequest".to_owned());
    Refusal::Invalid {
        group,
        kind,
        name: name.to_owned(),
        causes,
    }
}

/// Answers `POST serviceaccounts/<name>/token`; `account` is the stored ServiceAccount.
pub fn token_request(
    authenticator: &Authenticator,
    body: &Value,
    account: &Value,
    lookup: &dyn SubjectLookup,
    now: Timestamp,
) -> Result<Value, Refusal> {
    let (namespace, name) = (
        text(account, "/metadata/namespace"),
        text(account, "/metadata/name"),
    );
    let uid = text(account, "/metadata/uid");
    check_metadata(body, namespace, name, uid)?;

    let spec = body.get("spec").unwrap_or(&Value::Null);
    let seconds = match spec.get("expirationSeconds") {
        None | Some(Value::Null) => HOUR,
        Some(value) => value.as_i64().unwrap_or(i64::MAX),
    };
    check_lifetime(seconds)?;
    let asked: Vec<String> = spec
        .get("audiences")
        .and_then(Value::as_array)
        .map(|list| list.iter().filter_map(Value::as_str).map(str::to_owned).collect())
        .unwrap_or_default();
    let audiences = if asked.is_empty() {
        authenticator.audiences().to_vec()
    } else {
        asked
    };

    let mut claims = Claims {
        audiences,
        issued_at: now.as_second(),
        not_before: now.as_second(),
        id: authenticator.key().random_uuid().unwrap_or_default(),
        namespace: namespace.to_owned(),
        service_account: ObjectRef {
            name: name.to_owned(),
            uid: uid.to_owned(),
        },
        ..Claims::default()
    };
    let reference = spec.get("boundObjectRef").filter(|r| r.is_object());
    if let Some(reference) = reference {
        bind(&mut claims, reference, lookup)?;
    }
    let own = claims
        .audiences
        .iter()
        .all(|a| authenticator.audiences().contains(a));
    let lifetime = if claims.pod.is_some() && seconds == EXTENDED_WHEN && own {
        claims.warn_after = Some(now.as_second().saturating_add(seconds));
        EXTENDED_TO
    } else {
        seconds
    };
    claims.expires = now.as_second().saturating_add(lifetime);
    let token = authenticator
        .key()
        .sign(authenticator.issuer(), &claims)
        .map_err(|e| Refusal::Internal(format!("failed to generate token: {e}")))?;

    let expires = now
        .checked_add(SignedDuration::from_secs(seconds))
        .unwrap_or(Timestamp::MAX);
    let mut metadata = body
        .get("metadata")
        .and_then(Value::as_object)
        .cloned()
        .unwrap_or_default();
    metadata.insert("name".into(), json!(name));
    metadata.insert("namespace".into(), json!(namespace));
    metadata.insert("uid".into(), json!(uid));
    metadata.insert("creationTimestamp".into(), json!(stamp(now)));
    Ok(json!({
        "kind": "TokenRequest",
        "apiVersion": "authentication.k8s.io/v1",
        "metadata": metadata,
        "spec": {
            "audiences": claims.audiences,
            "expirationSeconds": seconds,
            "boundObjectRef": reference,
        },
        "status": {"token": token, "expirationTimestamp": stamp(expires)},
    }))
}

fn check_metadata(body: &Value, namespace: &str, name: &str, uid: &str) -> Result<(), Refusal> {
    for (key, wanted) in [("name", name), ("namespace", namespace)] {
        let given = text(body, &format!("/metadata/{key}"));
        if !given.is_empty() && given != wanted {
            let detail = format!("must match the service account {key} if specified");
            let cause = FieldCause::invalid(&format!("metadata.{key}"), &go::quote(given), &detail);
            return Err(invalid(name, vec![cause]));
        }
    }
    let given = text(body, "/metadata/uid");
    if !given.is_empty() && given != uid {
        return Err(Refusal::Conflict {
            group: GROUP.to_owned(),
            resource: "TokenRequest".to_owned(),
            name: name.to_owned(),
            detail: format!(
                "the UID in the token request ({given}) does not match the UID of the service account ({uid})"
            ),
        });
    }
    Ok(())
}

fn check_lifetime(seconds: i64) -> Result<(), Refusal> {
    let detail = if seconds < 600 {
        "may not specify a duration less than 10 minutes"
    } else if seconds > 1 << 32 {
        "may not specify a duration larger than 2^32 seconds"
    } else {
        return Ok(());
    };
    Err(invalid(
        "",
        vec![FieldCause::invalid(
            "spec.expirationSeconds",
            &seconds.to_string(),
            detail,
        )],
    ))
}

fn bind(claims: &mut Claims, reference: &Value, lookup: &dyn SubjectLookup) -> Result<(), Refusal> {
    let (version, kind_name) = (text(reference, "/apiVersion"), text(reference, "/kind"));
    let (group, version) = version.split_once('/').unwrap_or(("", version));
    let kind = match (group, kind_name) {
        ("", "Pod") => SubjectKind::Pod,
        ("", "Secret") => SubjectKind::Secret,
        ("", "Node") => SubjectKind::Node,
        _ => {
            let shown = format!("{group}/{version}, Kind={kind_name}");
            return Err(Refusal::BadRequest(format!(
                "cannot bind token to object of type {shown}"
            )));
        }
    };
    let name = text(reference, "/name");
    let namespace = if kind == SubjectKind::Node {
        ""
    } else {
        claims.namespace.as_str()
    };
    let Some(found) = lookup.find(kind, namespace, name) else {
        let resource = kind.resource().to_owned();
        return Err(Refusal::NotFound {
            group: String::new(),
            resource,
            name: name.to_owned(),
        });
    };
    let account = &claims.service_account.name;
    if kind == SubjectKind::Pod && found.service_account != *account {
        return Err(Refusal::BadRequest(format!(
            "cannot bind token for serviceaccount {} to pod running with different serviceaccount name.",
            go::quote(account)
        )));
    }
    let given = text(reference, "/uid");
    if !given.is_empty() && given != found.uid {
        return Err(Refusal::Conflict {
            group: String::new(),
            resource: kind_name.to_owned(),
            name: name.to_owned(),
            detail: format!(
                "the UID in the bound object reference ({given}) does not match the UID in record. \
                 The object might have been deleted and then recreated"
            ),
        });
    }
    let Subject { uid, node, .. } = found;
    let bound = Some(ObjectRef {
        name: name.to_owned(),
        uid,
    });
    match kind {
        SubjectKind::Secret => claims.secret = bound,
        SubjectKind::Node => claims.node = bound,
        SubjectKind::Pod | SubjectKind::ServiceAccount => {
            claims.pod = bound;
            if !node.is_empty() {
                let uid = lookup
                    .find(SubjectKind::Node, "", &node)
                    .map(|n| n.uid)
                    .unwrap_or_default();
                claims.node = Some(ObjectRef { name: node, uid });
            }
        }
    }
    Ok(())
}

/// Answers a TokenReview: a good token gives the identity, a bad one the reason.
pub fn token_review(
    authenticator: &Authenticator,
    body: &Value,
    lookup: &dyn SubjectLookup,
    now: Timestamp,
) -> Result<Value, Refusal> {
    let token = text(body, "/spec/token");
    if token.is_empty() {
        return Err(Refusal::BadRequest(
            "token is required for TokenReview in authentication".to_owned(),
        ));
    }
    let asked: Vec<String> = body
        .pointer("/spec/audiences")
        .and_then(Value::as_array)
        .map(|list| list.iter().filter_map(Value::as_str).map(str::to_owned).collect())
        .unwrap_or_default();
    let audiences = if asked.is_empty() {
        authenticator.audiences().to_vec()
    } else {
        asked
    };
    // What follows a space is no part of a header's token.
    let presented = token.trim().split(' ').next().unwrap_or_default();
    let mut status = Map::new();
    match authenticator.authenticate_for(presented, &audiences, now, lookup) {
        Ok(found) => {
            status.insert("authenticated".into(), json!(true));
            status.insert("user".into(), found.user.to_user_info());
            status.insert("audiences".into(), json!(found.audiences));
        }
        Err(error) => {
            status.insert("user".into(), json!({}));
            status.insert("error".into(), json!(error.review_text()));
        }
    }
    let mut out = body.as_object().cloned().unwrap_or_default();
    out.insert("kind".into(), json!("TokenReview"));
    out.insert("apiVersion".into(), json!("authentication.k8s.io/v1"));
    out.entry("metadata").or_insert_with(|| json!({}));
    out.insert("status".into(), Value::Object(status));
    Ok(Value::Object(out))
}
