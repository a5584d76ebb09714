// SPDX-License-Identifier: Apache-2.0
//! Tokens: good ones, forged ones, stale ones, and the requests that make and examine them.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use cobaltcore_access::tokens::{
    Authenticator, ServiceAccountKey, StaticTokens, Subject, SubjectKind, SubjectLookup, bearer_token,
    token_request, token_review,
};
use cobaltcore_access::{AccessError, User};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

const ISSUER: &str = "https://kubernetes.default.svc";

#[derive(Default)]
struct World(HashMap<(&'static str, String, String), Subject>);

impl World {
    fn with(mut self, kind: SubjectKind, namespace: &str, name: &str, uid: &str) -> Self {
        let subject = Subject {
            uid: uid.into(),
            service_account: "agent".into(),
            ..Subject::default()
        };
        self.0
            .insert((kind.resource(), namespace.into(), name.into()), subject);
        self
    }

    fn get(&mut self, kind: SubjectKind, namespace: &str, name: &str) -> &mut Subject {
        self.0
            .get_mut(&(kind.resource(), namespace.to_owned(), name.to_owned()))
            .expect("subject")
    }

    fn without(mut self, kind: SubjectKind, namespace: &str, name: &str) -> Self {
        self.0
            .remove(&(kind.resource(), namespace.to_owned(), name.to_owned()));
        self
    }
}

impl SubjectLookup for World {
    fn find(&self, kind: SubjectKind, namespace: &str, name: &str) -> Option<Subject> {
        self.0
            .get(&(kind.resource(), namespace.to_owned(), name.to_owned()))
            .cloned()
    }
}

fn world() -> World {
    World::default()
        .with(SubjectKind::ServiceAccount, "n", "agent", "sa-1")
        .with(SubjectKind::Pod, "n", "p", "pod-1")
        .with(SubjectKind::Secret, "n", "s", "secret-1")
        .with(SubjectKind::Node, "", "w", "node-1")
}

fn account() -> Value {
    json!({"metadata": {"name": "agent", "namespace": "n", "uid": "sa-1"}})
}

fn now() -> Timestamp {
    "2026-01-02T03:04:05Z".parse().expect("time")
}

fn after(seconds: i64) -> Timestamp {
    now() + SignedDuration::from_secs(seconds)
}

fn authenticator() -> Authenticator {
    Authenticator::new(
        "the-admin-token",
        Arc::new(ServiceAccountKey::generate().expect("key")),
    )
}

fn issue(a: &Authenticator, spec: &Value, world: &World) -> String {
    let answer = token_request(a, &json!({"spec": spec}), &account(), world, now()).expect("issued");
    answer["status"]["token"].as_str().expect("token").to_owned()
}

fn parts(token: &str) -> (Value, Value, String) {
    let p: Vec<&str> = token.split('.').collect();
    let read = |s: &str| serde_json::from_slice(&URL_SAFE_NO_PAD.decode(s).expect("base64")).expect("json");
    (read(p[0]), read(p[1]), p[2].to_owned())
}

fn joined(header: &Value, claims: &Value, signature: &str) -> String {
    let enc = |v: &Value| URL_SAFE_NO_PAD.encode(v.to_string());
    format!("{}.{}.{signature}", enc(header), enc(claims))
}

#[test]
fn a_requested_token_authenticates_its_account() {
    let (a, w) = (authenticator(), world());
    let answer = token_request(&a, &json!({"spec": {}}), &account(), &w, now()).expect("issued");
    assert_eq!(
        answer["spec"],
        json!({"audiences": [ISSUER], "expirationSeconds": 3600, "boundObjectRef": null})
    );
    assert_eq!(answer["status"]["expirationTimestamp"], "2026-01-02T04:04:05Z");
    assert_eq!(answer["metadata"]["creationTimestamp"], "2026-01-02T03:04:05Z");
    assert_eq!(answer["metadata"]["uid"], "sa-1");
    let token = answer["status"]["token"].as_str().expect("token");
    let (header, claims, _) = parts(token);
    assert_eq!(header, json!({"alg": "ES256", "kid": a.key().kid()}));
    let id = claims["jti"].as_str().expect("jti");
    assert_eq!((id.len(), &id[14..15]), (36, "4"));
    assert_eq!(
        claims,
        json!({
            "aud": [ISSUER], "exp": now().as_second() + 3600, "iat": now().as_second(), "nbf": now().as_second(),
            "iss": ISSUER, "jti": id, "sub": "system:serviceaccount:n:agent",
            "kubernetes.io": {"namespace": "n", "serviceaccount": {"name": "agent", "uid": "sa-1"}},
        })
    );
    let found = a.authenticate(token, after(10), &w).expect("good");
    assert_eq!(found.user.name, "system:serviceaccount:n:agent");
    assert_eq!(found.user.uid.as_deref(), Some("sa-1"));
    assert_eq!(
        found.user.groups,
        [
            "system:serviceaccounts",
            "system:serviceaccounts:n",
            "system:authenticated"
        ]
    );
    assert_eq!(
        found.user.extra["authentication.kubernetes.io/credential-id"],
        [format!("JTI={id}")]
    );
    assert_eq!(found.audiences, [ISSUER]);
}

#[test]
fn forged_and_altered_tokens_are_refused() {
    let (a, w) = (authenticator(), world());
    let token = issue(&a, &json!({}), &w);
    assert!(a.authenticate(&token, now(), &w).is_ok());
    let (header, claims, signature) = parts(&token);
    let altered = |change: &dyn Fn(&mut Value)| {
        let mut claims = claims.clone();
        change(&mut claims);
        joined(&header, &claims, &signature)
    };
    let with_header = |h: Value| joined(&h, &claims, &signature);
    let foreign = issue(&authenticator(), &json!({}), &w);
    let (_, _, foreign_signature) = parts(&foreign);
    let forgeries = [
        ("another key", foreign),
        (
            "another key's signature",
            joined(&header, &claims, &foreign_signature),
        ),
        ("no algorithm", with_header(json!({"alg": "none"}))),
        (
            "no algorithm, no signature",
            joined(&json!({"alg": "none"}), &claims, ""),
        ),
        ("hmac", with_header(json!({"alg": "HS256", "kid": a.key().kid()}))),
        ("unknown kid", with_header(json!({"alg": "ES256", "kid": "x"}))),
        (
            "critical header",
            with_header(json!({"alg": "ES256", "crit": ["b64"], "b64": false})),
        ),
        (
            "other account",
            altered(&|c| c["kubernetes.io"]["serviceaccount"]["name"] = json!("root")),
        ),
        ("later end", altered(&|c| c["exp"] = json!(9_999_999_999_i64))),
        ("other audience", altered(&|c| c["aud"] = json!(["x", ISSUER]))),
        ("other issuer", altered(&|c| c["iss"] = json!("https://evil"))),
        (
            "no signature",
            token.rsplit_once('.').expect("dots").0.to_owned() + ".",
        ),
        ("two parts", token.rsplit_once('.').expect("dots").0.to_owned()),
        ("four parts", format!("{token}.x")),
        ("a space", format!("{token} ")),
        ("padding", format!("{token}=")),
        ("empty", String::new()),
    ];
    for (what, forgery) in forgeries {
        assert!(a.authenticate(&forgery, now(), &w).is_err(), "{what}");
    }
}

#[test]
fn times_and_audiences_limit_a_token() {
    let (a, w) = (authenticator(), world());
    let token = issue(&a, &json!({"expirationSeconds": 600}), &w);
    for (at, wanted) in [
        (-61, Some("service account token is not valid yet")),
        (-60, None),
        (0, None),
        (660, None),
        (661, Some("service account token has expired")),
    ] {
        let error = a.authenticate(&token, after(at), &w).err().map(|e| e.to_string());
        assert_eq!(error.as_deref(), wanted, "{at} s after issue");
    }
    let foreign = issue(&a, &json!({"audiences": ["vault"]}), &w);
    assert_eq!(
        a.authenticate(&foreign, now(), &w)
            .expect_err("foreign")
            .to_string(),
        "token audiences [\"vault\"] is invalid for the target audiences [\"https://kubernetes.default.svc\"]"
    );
    let found = a
        .authenticate_for(&foreign, &["vault".into(), "other".into()], now(), &w)
        .expect("for vault");
    assert_eq!(found.audiences, ["vault"]);
}

#[test]
fn a_token_dies_with_its_account_and_its_object() {
    let a = authenticator();
    let bound =
        |kind: &str, name: &str| json!({"boundObjectRef": {"apiVersion": "v1", "kind": kind, "name": name}});
    let error = |token: &str, world: &World| a.authenticate(token, now(), world).err().map(|e| e.to_string());
    let plain = issue(&a, &json!({}), &world());
    // the signature is known good from the first use on; the account is asked for every time
    assert_eq!(error(&plain, &world()), None);
    let gone = world().without(SubjectKind::ServiceAccount, "n", "agent");
    assert_eq!(
        error(&plain, &gone).as_deref(),
        Some("serviceaccounts \"agent\" not found")
    );
    let again = world().with(SubjectKind::ServiceAccount, "n", "agent", "sa-2");
    assert_eq!(
        error(&plain, &again).as_deref(),
        Some("service account UID (sa-2) does not match claim (sa-1)")
    );
    for (kind, word, namespace, name) in [
        (SubjectKind::Pod, "Pod", "n", "p"),
        (SubjectKind::Secret, "Secret", "n", "s"),
        (SubjectKind::Node, "Node", "", "w"),
    ] {
        let token = issue(&a, &bound(word, name), &world());
        assert_eq!(error(&token, &world()), None, "{word}");
        let gone = world().without(kind, namespace, name);
        assert_eq!(
            error(&token, &gone).as_deref(),
            Some("service account token has been invalidated"),
            "{word}"
        );
        let lower = word.to_lowercase();
        let again = world().with(kind, namespace, name, "new");
        let wanted =
            format!("{lower} UID (new) does not match service account {lower} ref claim ({lower}-1)");
        assert_eq!(error(&token, &again), Some(wanted));
        let mut leaving = world();
        leaving.get(kind, namespace, name).deleted_at = Some(after(-61));
        assert_eq!(
            error(&token, &leaving).as_deref(),
            Some("service account token has been invalidated")
        );
        leaving.get(kind, namespace, name).deleted_at = Some(after(-59));
        assert_eq!(error(&token, &leaving), None, "still shutting down");
    }
}

#[test]
fn a_pods_token_names_its_node() {
    let a = authenticator();
    let mut w = world();
    w.get(SubjectKind::Pod, "n", "p").node = "w".into();
    let spec = json!({"expirationSeconds": 3607, "boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "pod-1"}});
    let answer = token_request(&a, &json!({"spec": spec}), &account(), &w, now()).expect("issued");
    assert_eq!(answer["spec"]["expirationSeconds"], 3607);
    assert_eq!(answer["status"]["expirationTimestamp"], "2026-01-02T04:04:12Z");
    let token = answer["status"]["token"].as_str().expect("token");
    let (_, claims, _) = parts(token);
    assert_eq!(claims["exp"], now().as_second() + 365 * 24 * 3600);
    assert_eq!(claims["kubernetes.io"]["warnafter"], now().as_second() + 3607);
    assert_eq!(
        claims["kubernetes.io"]["node"],
        json!({"name": "w", "uid": "node-1"})
    );
    let user = a.authenticate(token, now(), &w).expect("good").user;
    assert_eq!(user.extra["authentication.kubernetes.io/pod-name"], ["p"]);
    assert_eq!(user.extra["authentication.kubernetes.io/pod-uid"], ["pod-1"]);
    assert_eq!(user.extra["authentication.kubernetes.io/node-name"], ["w"]);
    // the node is information only
    assert!(
        a.authenticate(token, now(), &w.without(SubjectKind::Node, "", "w"))
            .is_ok()
    );
}

#[test]
fn token_requests_are_refused_with_the_texts_of_the_reference() {
    let (a, w) = (authenticator(), world());
    let bound = |version: &str, kind: &str, name: &str, uid: &str| json!({"spec": {"boundObjectRef": {"apiVersion": version, "kind": kind, "name": name, "uid": uid}}});
    let mut other = world();
    other.get(SubjectKind::Pod, "n", "p").service_account = "somebody".into();
    for (body, world, code, message) in [
        (
            json!({"spec": {"expirationSeconds": 599}}),
            &w,
            422,
            "TokenRequest.authentication.k8s.io \"\" is invalid: spec.expirationSeconds: Invalid value: 599: may not specify a duration less than 10 minutes",
        ),
        (
            json!({"spec": {"expirationSeconds": 4_294_967_297_i64}}),
            &w,
            422,
            "TokenRequest.authentication.k8s.io \"\" is invalid: spec.expirationSeconds: Invalid value: 4294967297: may not specify a duration larger than 2^32 seconds",
        ),
        (
            json!({"metadata": {"name": "x"}}),
            &w,
            422,
            "TokenRequest.authentication.k8s.io \"agent\" is invalid: metadata.name: Invalid value: \"x\": must match the service account name if specified",
        ),
        (
            json!({"metadata": {"namespace": "x"}}),
            &w,
            422,
            "TokenRequest.authentication.k8s.io \"agent\" is invalid: metadata.namespace: Invalid value: \"x\": must match the service account namespace if specified",
        ),
        (
            json!({"metadata": {"uid": "x"}}),
            &w,
            409,
            "Operation cannot be fulfilled on TokenRequest.authentication.k8s.io \"agent\": the UID in the token request (x) does not match the UID of the service account (sa-1)",
        ),
        (
            bound("v1", "Pod", "absent", ""),
            &w,
            404,
            "pods \"absent\" not found",
        ),
        (
            bound("v1", "Pod", "p", "old"),
            &w,
            409,
            "Operation cannot be fulfilled on Pod \"p\": the UID in the bound object reference (old) does not match the UID in record. The object might have been deleted and then recreated",
        ),
        (
            bound("v1", "Pod", "p", ""),
            &other,
            400,
            "cannot bind token for serviceaccount \"agent\" to pod running with different serviceaccount name.",
        ),
        (
            bound("v1", "Service", "p", ""),
            &w,
            400,
            "cannot bind token to object of type /v1, Kind=Service",
        ),
        (
            bound("apps/v1", "Pod", "p", ""),
            &w,
            400,
            "cannot bind token to object of type apps/v1, Kind=Pod",
        ),
    ] {
        let refusal = token_request(&a, &body, &account(), world, now()).expect_err(message);
        assert_eq!((refusal.code(), refusal.message().as_str()), (code, message));
    }
    for seconds in [600_i64, 1 << 32] {
        assert!(
            token_request(
                &a,
                &json!({"spec": {"expirationSeconds": seconds}}),
                &account(),
                &w,
                now()
            )
            .is_ok()
        );
    }
}

#[test]
fn token_reviews_answer_for_every_kind_of_token() {
    let (a, w) = (authenticator(), world());
    let review = |token: &str, audiences: &[&str]| {
        token_review(
            &a,
            &json!({"spec": {"token": token, "audiences": audiences}}),
            &w,
            now(),
        )
        .expect("answer")["status"]
            .clone()
    };
    let refusal = token_review(&a, &json!({"spec": {}}), &w, now()).expect_err("no token");
    assert_eq!(
        (refusal.code(), refusal.message().as_str()),
        (400, "token is required for TokenReview in authentication")
    );
    assert_eq!(
        review("nonsense", &[]),
        json!({"user": {}, "error": "invalid bearer token"})
    );
    let token = issue(&a, &json!({"audiences": ["vault"]}), &w);
    let status = review(&token, &["vault", "x"]);
    assert_eq!(
        (&status["authenticated"], &status["audiences"]),
        (&json!(true), &json!(["vault"]))
    );
    assert_eq!(status["user"]["username"], "system:serviceaccount:n:agent");
    assert_eq!(
        review(&token, &[])["error"],
        "[invalid bearer token, token audiences [\"vault\"] is invalid for the target audiences [\"https://kubernetes.default.svc\"]]"
    );
    let admin = review("the-admin-token", &[]);
    assert_eq!(
        admin["user"]["groups"],
        json!(["system:masters", "system:authenticated"])
    );
    assert_eq!(admin["audiences"], json!([ISSUER]));
    assert_eq!(
        review("the-admin-token", &["vault"])["error"],
        "invalid bearer token"
    );
}

#[test]
fn known_tokens_match_whole_or_not_at_all() {
    let tokens =
        StaticTokens::parse(Path::new("t"), b"abc123,alice,7,\"dev,ops\"\nxyz,bob,8\n").expect("good file");
    let a = authenticator().with_static_tokens(tokens);
    let w = world();
    let alice = a.authenticate("abc123", now(), &w).expect("alice").user;
    assert_eq!(alice.groups, ["dev", "ops", "system:authenticated"]);
    assert_eq!((alice.name.as_str(), alice.uid.as_deref()), ("alice", Some("7")));
    assert_eq!(
        a.authenticate("xyz", now(), &w).expect("bob").user.groups,
        ["system:authenticated"]
    );
    assert_eq!(
        a.authenticate("the-admin-token", now(), &w).expect("admin").user,
        User::admin()
    );
    for wrong in ["abc12", "abc1234", "ABC123", "", "xyz ", "the-admin-toke"] {
        assert!(a.authenticate(wrong, now(), &w).is_err(), "{wrong:?}");
    }
}

#[test]
fn mistakes_in_the_token_file_name_file_and_line() {
    let path = Path::new("/etc/tokens.csv");
    for (content, line, part) in [
        (
            "a,b",
            1,
            "at least 3 columns (token, user name, user uid), found 2",
        ),
        ("\nok,u,1\n,u,1\n", 3, "token is empty"),
        ("a b,u,1", 1, "contains spaces"),
        ("a,,1", 1, "user name is empty"),
        ("a,u,1\na,v,2", 2, "twice"),
        ("a,u,1,\"x", 1, "quote is not closed"),
        ("a,u,1,\"x\"y", 1, "after a closing quote"),
        ("a,u\"v,1", 1, "inside a field"),
        ("a,u,1,x,y", 1, "more than 4 columns"),
    ] {
        let error = StaticTokens::parse(path, content.as_bytes()).expect_err(content);
        let text = error.to_string();
        assert!(
            text.starts_with(&format!("/etc/tokens.csv:{line}: ")) && text.contains(part),
            "{text}"
        );
        assert!(matches!(error, AccessError::TokenFile { .. }));
    }
    assert!(StaticTokens::parse(path, b"a,\xff,1").is_err());
    let good = StaticTokens::parse(path, b"\r\n\"a\"\"b\",\"u,v\",1,\"\"\r\n").expect("quotes");
    assert_eq!((good.len(), format!("{good:?}")), (1, "[\"u,v\"]".to_owned()));
}

#[test]
fn bearer_tokens_are_found_in_headers() {
    for (header, wanted) in [
        ("Bearer abc", Some("abc")),
        ("bearer abc", Some("abc")),
        ("  BEARER abc def", Some("abc")),
        ("Bearer", None),
        ("Bearer ", None),
        ("Bearer  abc", None),
        ("Basic abc", None),
        ("abc", None),
        ("", None),
    ] {
        assert_eq!(bearer_token(header), wanted, "{header:?}");
    }
}

#[test]
fn discovery_documents_describe_the_key() {
    let a = authenticator();
    assert_eq!(
        a.openid_configuration("10.0.0.1:6443"),
        json!({
            "issuer": ISSUER, "jwks_uri": "https://10.0.0.1:6443/openid/v1/jwks",
            "response_types_supported": ["id_token"], "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": ["ES256"],
        })
    );
    let key = &a.jwks()["keys"][0];
    assert_eq!(
        (&key["kid"], &key["alg"], &key["crv"]),
        (&json!(a.key().kid()), &json!("ES256"), &json!("P-256"))
    );
    for part in ["x", "y"] {
        let bytes = URL_SAFE_NO_PAD
            .decode(key[part].as_str().expect("text"))
            .expect("base64");
        assert_eq!(bytes.len(), 32);
    }
}
