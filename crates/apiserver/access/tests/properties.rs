// SPDX-License-Identifier: Apache-2.0
//! Whatever arrives from outside: no panic, and nobody gets in by chance.

use cobaltcore_access::impersonation::{LastModes, impersonate, wanted_user};
use cobaltcore_access::pki::{CertificateInfo, Pki, PkiOptions, client_identity};
use cobaltcore_access::rbac::{PolicyRule, aggregate, authorize, covers};
use cobaltcore_access::recorder::{Records, to_yaml};
use cobaltcore_access::review::{local_subject_access_review, subject_access_review};
use cobaltcore_access::tokens::{
    Authenticator, ServiceAccountKey, StaticTokens, Subject, SubjectKind, SubjectLookup, bearer_token,
    token_request,
};
use cobaltcore_access::{Attributes, Decision, Index, User};
use jiff::Timestamp;
use proptest::prelude::*;
use serde_json::{Value, json};
use std::path::Path;
use std::sync::{Arc, LazyLock};

/// Everything exists: only the token itself can be wrong.
struct Everything;

impl SubjectLookup for Everything {
    fn find(&self, _: SubjectKind, _: &str, _: &str) -> Option<Subject> {
        Some(Subject {
            uid: "u".into(),
            service_account: "a".into(),
            ..Subject::default()
        })
    }
}

static AUTHENTICATOR: LazyLock<Authenticator> =
    LazyLock::new(|| Authenticator::new("admin", Arc::new(ServiceAccountKey::generate().expect("key"))));

static TOKEN: LazyLock<String> = LazyLock::new(|| {
    let account = json!({"metadata": {"name": "a", "namespace": "n", "uid": "u"}});
    let answer = token_request(
        &AUTHENTICATOR,
        &json!({}),
        &account,
        &Everything,
        Timestamp::now(),
    )
    .expect("issued");
    answer["status"]["token"].as_str().expect("token").to_owned()
});

static PKI: LazyLock<Pki> = LazyLock::new(|| Pki::ephemeral(&PkiOptions::default()).expect("ephemeral"));

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        "[a-z*/.]{0,6}".prop_map(Value::from),
        ".{0,6}".prop_map(Value::from),
    ];
    let keys = prop_oneof![
        Just("metadata"),
        Just("rules"),
        Just("verbs"),
        Just("resources"),
        Just("apiGroups"),
        Just("labels"),
        Just("spec"),
        Just("namespace"),
        Just("name"),
        Just("resourceAttributes"),
        Just("aggregationRule"),
        Just("clusterRoleSelectors"),
        Just("matchLabels"),
        Just("users"),
        Just("requests"),
        Just("subjects"),
        Just("roleRef"),
        Just("kind"),
        Just("nonResourceAttributes"),
        Just("user"),
        Just("groups"),
    ];
    leaf.prop_recursive(4, 40, 5, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((keys.clone(), inner), 0..5)
                .prop_map(|m| Value::Object(m.into_iter().map(|(k, v)| (k.to_owned(), v)).collect())),
        ]
    })
}

fn list(words: &'static [&'static str]) -> impl Strategy<Value = Vec<String>> {
    prop::collection::vec(prop::sample::select(words).prop_map(str::to_owned), 0..3)
}

fn any_rule() -> impl Strategy<Value = PolicyRule> {
    (
        list(&["", "a", "*"]),
        list(&["x", "y", "x/s", "*/s", "*"]),
        list(&["get", "put", "*"]),
        list(&["m", "n"]),
        list(&["/a", "/a/*", "*"]),
    )
        .prop_map(
            |(api_groups, resources, verbs, resource_names, non_resource_urls)| PolicyRule {
                api_groups,
                resources,
                verbs,
                resource_names,
                non_resource_urls,
            },
        )
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_text_authenticates(text in ".{0,200}") {
        prop_assume!(text != "admin");
        prop_assert!(AUTHENTICATOR.authenticate(&text, Timestamp::now(), &Everything).is_err());
        if let Some(token) = bearer_token(&text) {
            prop_assert!(!token.is_empty() && !token.contains(' '));
        }
    }

    #[test]
    fn no_three_parts_authenticate(a in "[A-Za-z0-9_-]{0,60}", b in "[A-Za-z0-9_-]{0,90}", c in "[A-Za-z0-9_-]{0,90}") {
        let token = format!("{a}.{b}.{c}");
        prop_assert!(AUTHENTICATOR.authenticate(&token, Timestamp::now(), &Everything).is_err());
    }

    #[test]
    fn one_changed_character_spoils_a_token(at in 0usize..1000, with in "[A-Za-z0-9_.-]") {
        let mut token: Vec<char> = TOKEN.chars().collect();
        let at = at % token.len();
        let changed = with.chars().next().expect("one");
        prop_assume!(token[at] != changed);
        token[at] = changed;
        let token: String = token.into_iter().collect();
        // The last character of a base64 part may hold unused bits: those are refused too.
        prop_assert!(AUTHENTICATOR.authenticate(&token, Timestamp::now(), &Everything).is_err());
        prop_assert!(AUTHENTICATOR.authenticate(&TOKEN, Timestamp::now(), &Everything).is_ok());
    }

    #[test]
    fn no_headers_impersonate_without_rights(
        headers in prop::collection::vec(
            ("(?i)impersonate-(user|group|uid|extra-[a-z%0-9]{0,5})|[a-z-]{1,8}", prop::collection::vec(any::<u8>(), 0..12)), 0..5)
    ) {
        let pairs = headers.iter().map(|(k, v)| (k.as_str(), v.as_slice()));
        if let Ok(Some(wanted)) = wanted_user(pairs) {
            let me = User::new("me", ["system:authenticated"]);
            let index = Index::new();
            let request = Attributes::resource(&me, "get", "", "pods");
            prop_assert!(impersonate(&wanted, &request, &LastModes::default(), &|a| authorize(&index, a)).is_err());
        }
    }

    #[test]
    fn token_files_of_any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = StaticTokens::parse(Path::new("t"), &bytes);
    }

    #[test]
    fn token_lines_with_quotes_are_read_or_refused(text in "[a\",\n\r ü]{0,40}") {
        let _ = StaticTokens::parse(Path::new("t"), text.as_bytes());
    }

    #[test]
    fn certificates_of_any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        prop_assert!(client_identity(&bytes).is_none_or(|(name, _)| name.len() < bytes.len()));
    }

    #[test]
    fn damaged_certificates_are_read_or_refused(at in 0usize..1000, byte in any::<u8>(), cut in 0usize..1000) {
        let mut der = PKI.cert_chain().remove(0).to_vec();
        let at = at % der.len();
        der[at] = byte;
        let _ = CertificateInfo::parse(&der);
        let _ = CertificateInfo::parse(&der[..cut % der.len()]);
    }

    #[test]
    fn hosts_that_only_contain_a_known_name_are_refused(
        which in any::<prop::sample::Index>(), before in "[a-z0-9.-]{0,5}", after in "([.-][a-z]{1,5})?", port in "(:[0-9]{0,5})?"
    ) {
        let names: Vec<&String> = PKI.names().iter().filter(|n| !n.contains(':')).collect();
        let host = format!("{before}{}{after}", which.get(&names));
        let known = PKI.names().contains(&host);
        let with_port = format!("{host}{port}");
        prop_assert_eq!(PKI.host_allowed(&with_port), known, "{}", with_port);
    }

    #[test]
    fn objects_of_any_form_give_no_rights_to_strangers(object in any_json(), kind in prop::sample::select(&["Role", "ClusterRole", "RoleBinding", "ClusterRoleBinding"][..])) {
        let mut index = Index::new();
        index.upsert(kind, "n", "x", &object);
        let me = User::new("stranger", ["system:authenticated"]);
        let ask = Attributes::resource(&me, "get", "", "pods").in_namespace("n");
        prop_assert!(!authorize(&index, &ask).allowed);
        let _ = aggregate([&object]);
        let _ = Records::from_value(&object);
        let _ = subject_access_review(&object, &|_| Decision::default());
        let _ = local_subject_access_review(&object, "n", &|_| Decision::default());
        let _ = to_yaml(&object);
        index.remove(kind, "n", "x");
    }

    /// If held rights cover wanted ones, no request is allowed by the wanted and not by the held.
    #[test]
    fn covering_is_sound(held in prop::collection::vec(any_rule(), 0..3), wanted in any_rule(),
        verb in prop::sample::select(&["get", "put"][..]), group in prop::sample::select(&["", "a"][..]),
        resource in prop::sample::select(&["x", "y"][..]), sub in prop::sample::select(&["", "s"][..]),
        name in prop::sample::select(&["", "m", "n"][..]), path in prop::sample::select(&["/a", "/a/b", "/c"][..])) {
        if covers(&held, std::slice::from_ref(&wanted)).is_empty() {
            let me = User::new("u", [""]);
            for ask in [
                Attributes::resource(&me, verb, group, resource).of_subresource(sub).named(name),
                Attributes::path(&me, verb, path),
            ] {
                prop_assert!(!wanted.allows(&ask) || held.iter().any(|h| h.allows(&ask)), "{:?} {:?} {:?}", held, wanted, ask);
            }
        }
    }
}
