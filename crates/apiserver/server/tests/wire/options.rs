// SPDX-License-Identifier: Apache-2.0
//! Query options on the wire: which are refused, in which words, and which are ignored.

use crate::requests::*;
use cobaltcore_apiserver::testkit::TestServer;
use serde_json::{Value, json};

fn invalid(kind: &str, found: &[(&str, &str, &str)]) -> Value {
    let texts: Vec<String> = found
        .iter()
        .map(|(_, field, text)| format!("{field}: {text}"))
        .collect();
    let list = if texts.len() == 1 {
        texts[0].clone()
    } else {
        format!("[{}]", texts.join(", "))
    };
    let causes: Vec<Value> = found
        .iter()
        .map(|(reason, field, text)| cause(reason, field, text))
        .collect();
    let details = json!({"group": "meta.k8s.io", "kind": kind, "causes": causes});
    failure(
        422,
        "Invalid",
        &format!("{kind}.meta.k8s.io \"\" is invalid: {list}"),
        Some(details),
    )
}

#[tokio::test]
async fn options_of_writes() {
    let server = TestServer::start().await;
    let admin = server.admin();
    made(&admin, MAPS, &map("a")).await;
    let a = format!("{MAPS}/a");
    let dry = (
        "FieldValueNotSupported",
        "dryRun",
        "Unsupported value: [\"Foo\"]: supported values: \"All\"",
    );
    let both = (
        "FieldValueNotSupported",
        "dryRun",
        "Unsupported value: [\"All\",\"Foo\"]: supported values: \"All\"",
    );
    let empty = (
        "FieldValueNotSupported",
        "dryRun",
        "Unsupported value: [\"\"]: supported values: \"All\"",
    );
    let validation = (
        "FieldValueNotSupported",
        "fieldValidation",
        "Unsupported value: \"x\": supported values: \"\", \"Ignore\", \"Strict\", \"Warn\"",
    );
    let long = (
        "FieldValueTooLong",
        "fieldManager",
        "Too long: may not be more than 128 bytes",
    );
    let odd = (
        "FieldValueInvalid",
        "fieldManager",
        "Invalid value: \"a\\x01b\": invalid character U+0001 (at position 1)",
    );
    let force = (
        "FieldValueForbidden",
        "force",
        "Forbidden: may not be specified for non-apply patch",
    );
    let who = (
        "FieldValueRequired",
        "fieldManager",
        "Required value: is required for apply patch",
    );
    let too_long = format!("fieldManager={}", "x".repeat(129));
    let apply = "application/apply-patch+yaml";
    let json = "application/json";
    for (method, path, media, query, kind, found) in [
        ("POST", MAPS, json, "dryRun=Foo", "CreateOptions", vec![dry]),
        (
            "POST",
            MAPS,
            json,
            "dryRun=All&dryRun=Foo",
            "CreateOptions",
            vec![both],
        ),
        ("POST", MAPS, json, "dryRun=", "CreateOptions", vec![empty]),
        (
            "POST",
            MAPS,
            json,
            "fieldValidation=x",
            "CreateOptions",
            vec![validation],
        ),
        ("POST", MAPS, json, &too_long, "CreateOptions", vec![long]),
        (
            "POST",
            MAPS,
            json,
            "fieldManager=a%01b",
            "CreateOptions",
            vec![odd],
        ),
        (
            "POST",
            MAPS,
            json,
            "dryRun=Foo&fieldValidation=x",
            "CreateOptions",
            vec![dry, validation],
        ),
        ("PUT", &a, json, "dryRun=Foo", "UpdateOptions", vec![dry]),
        (
            "PUT",
            &a,
            json,
            "fieldValidation=x",
            "UpdateOptions",
            vec![validation],
        ),
        (
            "PATCH",
            &a,
            MERGE_PATCH,
            "force=true",
            "PatchOptions",
            vec![force],
        ),
        (
            "PATCH",
            &a,
            JSON_PATCH,
            "force=false",
            "PatchOptions",
            vec![force],
        ),
        (
            "PATCH",
            &a,
            STRATEGIC_PATCH,
            "force=true&dryRun=Foo",
            "PatchOptions",
            vec![force, dry],
        ),
        ("PATCH", &a, apply, "", "PatchOptions", vec![who]),
        ("PATCH", &a, apply, "dryRun=Foo", "PatchOptions", vec![who, dry]),
    ] {
        let reply = call(
            &admin,
            method,
            &format!("{path}?{query}"),
            media,
            &map("a").to_string(),
        )
        .await;
        assert_eq!(reply.body, invalid(kind, &found), "{method} {query}");
    }
}

#[tokio::test]
async fn options_of_deletes() {
    let server = TestServer::start().await;
    let admin = server.admin();
    made(&admin, MAPS, &map("a")).await;
    let a = format!("{MAPS}/a");
    let policy = (
        "FieldValueNotSupported",
        "propagationPolicy",
        "Unsupported value: \"x\": supported values: \"Foreground\", \"Background\", \"Orphan\", \"nil\"",
    );
    let both = (
        "FieldValueInvalid",
        "propagationPolicy",
        "Invalid value: \"Orphan\": orphanDependents and deletionPropagation cannot be both set",
    );
    let dry = (
        "FieldValueNotSupported",
        "dryRun",
        "Unsupported value: [\"Foo\"]: supported values: \"All\"",
    );
    for (query, found) in [
        ("propagationPolicy=x", policy),
        ("orphanDependents=true&propagationPolicy=Orphan", both),
        ("dryRun=Foo", dry),
    ] {
        assert_eq!(
            admin.delete(&format!("{a}?{query}")).await.body,
            invalid("DeleteOptions", &[found]),
            "{query}"
        );
    }
    let reply = call(
        &admin,
        "DELETE",
        &a,
        "application/json",
        r#"{"propagationPolicy":"x"}"#,
    )
    .await;
    assert_eq!(reply.body, invalid("DeleteOptions", &[policy]));
    for (body, message) in [
        (
            "{",
            "couldn't get version/kind; json parse error: unexpected end of JSON input",
        ),
        (
            r#"{"gracePeriodSeconds":"x"}"#,
            "json: cannot unmarshal string into Go struct field DeleteOptions.gracePeriodSeconds of type int64",
        ),
    ] {
        let reply = call(&admin, "DELETE", &a, "application/json", body).await;
        assert_eq!(reply.body, failure(400, "BadRequest", message, None), "{body}");
    }
    assert_eq!(
        call(&admin, "DELETE", &a, "application/json", &map("a").to_string())
            .await
            .code,
        400
    );
    let reply = admin.delete(&format!("{a}?gracePeriodSeconds=abc")).await;
    assert_eq!(
        reply.body,
        failure(
            400,
            "BadRequest",
            "strconv.ParseInt: parsing \"abc\": invalid syntax",
            None
        )
    );
    assert_eq!(admin.get(&a).await.code, 200, "nothing was deleted by all that");
}

#[tokio::test]
async fn options_of_lists() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let needs = (
        "FieldValueForbidden",
        "resourceVersionMatch",
        "Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided",
    );
    let zero = (
        "FieldValueForbidden",
        "resourceVersionMatch",
        "Forbidden: resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"",
    );
    let unknown = (
        "FieldValueNotSupported",
        "resourceVersionMatch",
        "Unsupported value: \"Foo\": supported values: \"Exact\", \"NotOlderThan\", \"\"",
    );
    let paged = (
        "FieldValueForbidden",
        "resourceVersionMatch",
        "Forbidden: resourceVersionMatch is forbidden when continue is provided",
    );
    let initial = (
        "FieldValueForbidden",
        "sendInitialEvents",
        "Forbidden: sendInitialEvents is forbidden for list",
    );
    for (query, found) in [
        ("resourceVersionMatch=Exact", vec![needs]),
        ("resourceVersionMatch=NotOlderThan", vec![needs]),
        ("resourceVersionMatch=Exact&resourceVersion=0", vec![zero]),
        ("resourceVersionMatch=Foo&resourceVersion=5", vec![unknown]),
        ("resourceVersionMatch=Foo", vec![needs, unknown]),
        (
            "resourceVersionMatch=Exact&resourceVersion=1&continue=abc",
            vec![paged],
        ),
        ("sendInitialEvents=true", vec![initial]),
        ("sendInitialEvents=false", vec![initial]),
    ] {
        assert_eq!(
            admin.get(&format!("{MAPS}?{query}")).await.body,
            invalid("ListOptions", &found),
            "{query}"
        );
    }
    let revision = "invalid resource version: resourceVersion: Invalid value: \"abc\": strconv.ParseUint: parsing \"abc\": invalid syntax";
    for (query, message) in [
        ("limit=abc", "strconv.ParseInt: parsing \"abc\": invalid syntax"),
        (
            "timeoutSeconds=x",
            "strconv.ParseInt: parsing \"x\": invalid syntax",
        ),
        ("resourceVersion=abc", revision),
        (
            "continue=!!",
            "invalid continue token: continue key is not valid: illegal base64 data at input byte 0",
        ),
        (
            "continue=e30",
            "invalid continue token: continue key is not valid: server does not recognize this encoded version ",
        ),
    ] {
        assert_eq!(
            admin.get(&format!("{MAPS}?{query}")).await.body,
            failure(400, "BadRequest", message, None),
            "{query}"
        );
    }
}

#[tokio::test]
async fn what_is_not_known_is_ignored() {
    let server = TestServer::start().await;
    let admin = server.admin();
    made(
        &admin,
        &format!("{MAPS}?unknown=1&force=maybe&pretty=0"),
        &map("a"),
    )
    .await;
    for (value, stored) in [("All", false)] {
        let reply = admin.post(&format!("{MAPS}?dryRun={value}"), &map("b")).await;
        assert_eq!((reply.code, version(&reply.body)), (201, String::new()));
        assert_eq!(admin.get(&format!("{MAPS}/b")).await.code == 200, stored);
    }
    for (value, pretty) in [
        ("true", true),
        ("1", true),
        ("yes", false),
        ("false", false),
        ("0", false),
    ] {
        let reply = admin.get(&format!("{MAPS}/a?pretty={value}")).await;
        assert_eq!(reply.raw.starts_with(b"{\n  \"kind\""), pretty, "pretty={value}");
    }
}
