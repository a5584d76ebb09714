// SPDX-License-Identifier: Apache-2.0
//! Bodies captured from kubectl 1.32, each with the JSON the same client prints for the same object.
//! What Go writes as null means absent everywhere, and is left out of the comparison.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::PathBuf;

use cobaltcore_protobuf::{DecodeError, decode};
use proptest::prelude::*;
use serde_json::{Value, json};

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/captured")
}

fn captured() -> Vec<(String, Vec<u8>)> {
    let mut all: Vec<_> = fs::read_dir(folder())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|e| e == "bin"))
        .map(|path| {
            (
                path.file_stem().unwrap().to_string_lossy().into_owned(),
                fs::read(&path).unwrap(),
            )
        })
        .collect();
    all.sort();
    all
}

fn without_nulls(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.retain(|_, v| !v.is_null());
            map.values_mut().for_each(without_nulls);
        }
        Value::Array(list) => list.iter_mut().for_each(without_nulls),
        _ => {}
    }
}

#[test]
fn what_kubectl_sends_is_what_kubectl_prints() {
    let all = captured();
    assert!(all.len() >= 30, "only {} captures", all.len());
    for (name, bytes) in all {
        let mut expected: Value =
            serde_json::from_slice(&fs::read(folder().join(format!("{name}.json"))).unwrap()).unwrap();
        without_nulls(&mut expected);
        let mut decoded = decode(&bytes).unwrap_or_else(|e| panic!("{name}: {e}"));
        without_nulls(&mut decoded);
        assert_eq!(decoded, expected, "{name}");
    }
}

#[test]
fn cut_off_bodies_never_look_whole() {
    for (name, bytes) in captured() {
        let whole = decode(&bytes).unwrap();
        // The last four bytes are two empty fields nobody looks at.
        for end in 0..bytes.len() - 4 {
            assert_ne!(
                decode(&bytes[..end]).ok().as_ref(),
                Some(&whole),
                "{name} cut at {end}"
            );
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn arbitrary_bytes_are_answered(bytes in prop::collection::vec(any::<u8>(), 0..400), prefix in any::<bool>()) {
        let bytes = if prefix { [b"k8s\0".to_vec(), bytes].concat() } else { bytes };
        let _ = decode(&bytes);
    }

    #[test]
    fn arbitrary_messages_of_every_kind_are_answered(
        kind in prop::sample::select(vec![
            ("v1", "Pod"), ("v1", "Service"), ("apps/v1", "ControllerRevision"), ("v1", "DeleteOptions"),
            ("apiextensions.k8s.io/v1", "CustomResourceDefinition"), ("coordination.k8s.io/v1", "Lease"),
        ]),
        raw in prop::collection::vec(any::<u8>(), 0..400),
    ) {
        let _ = decode(&envelope(kind.0, kind.1, &raw));
    }

    #[test]
    fn damaged_bodies_are_answered(pick in any::<prop::sample::Index>(), damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6)) {
        let all = captured();
        let (_, mut bytes) = pick.get(&all).clone();
        for (place, byte) in damage {
            let at = place.index(bytes.len());
            bytes[at] = byte;
        }
        let _ = decode(&bytes);
    }
}

fn varint(mut value: usize, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// A length-delimited field.
fn block(number: usize, content: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    varint(number << 3 | 2, &mut out);
    varint(content.len(), &mut out);
    out.extend_from_slice(content);
    out
}

/// A number field.
fn integer(number: usize, value: u64) -> Vec<u8> {
    let mut out = Vec::new();
    varint(number << 3, &mut out);
    varint(usize::try_from(value).unwrap(), &mut out);
    out
}

fn envelope(api_version: &str, kind: &str, raw: &[u8]) -> Vec<u8> {
    let types = [block(1, api_version.as_bytes()), block(2, kind.as_bytes())].concat();
    [
        b"k8s\0".to_vec(),
        block(1, &types),
        block(2, raw),
        block(3, b""),
        block(4, b""),
    ]
    .concat()
}

fn crd(schema: &[u8]) -> Vec<u8> {
    let version = block(4, &block(1, schema));
    envelope(
        "apiextensions.k8s.io/v1",
        "CustomResourceDefinition",
        &block(2, &block(7, &version)),
    )
}

#[test]
fn schemas_choose_their_alternatives() {
    let text = block(5, b"string");
    let mut half = vec![9 << 3 | 1];
    half.extend_from_slice(&0.5_f64.to_le_bytes());
    let mut two = vec![11 << 3 | 1];
    two.extend_from_slice(&2_f64.to_le_bytes());
    for (schema, expected) in [
        (block(24, &block(1, &text)), json!({"items": {"type": "string"}})),
        (
            block(24, &[block(2, &text), block(2, &[])].concat()),
            json!({"items": [{"type": "string"}, {}]}),
        ),
        (block(30, &integer(1, 1)), json!({"additionalProperties": true})),
        (block(30, &integer(1, 0)), json!({"additionalProperties": false})),
        (
            block(30, &[integer(1, 1), block(2, &text)].concat()),
            json!({"additionalProperties": {"type": "string"}}),
        ),
        (
            block(8, &block(1, b"{\"a\":[1.0,null,1.5]}")),
            json!({"default": {"a": [1, null, 1.5]}}),
        ),
        (block(8, &block(1, b"null")), json!({"default": null})),
        (block(20, &block(1, b"\"a\"")), json!({"enum": ["a"]})),
        (
            block(29, &[block(1, b"x"), block(2, &text)].concat()),
            json!({"properties": {"x": {"type": "string"}}}),
        ),
        (block(29, &block(1, b"x")), json!({"properties": {"x": {}}})),
        (
            block(32, &[block(1, b"d"), block(2, &block(2, b"e"))].concat()),
            json!({"dependencies": {"d": ["e"]}}),
        ),
        (
            [integer(38, 0), integer(39, 0), integer(40, 1)].concat(),
            json!({"x-kubernetes-preserve-unknown-fields": false, "x-kubernetes-int-or-string": true}),
        ),
        ([half, two].concat(), json!({"maximum": 0.5, "minimum": 2})),
        ([block(3, b""), block(2, b"")].concat(), json!({"$ref": ""})),
    ] {
        let decoded = decode(&crd(&schema)).unwrap();
        assert_eq!(
            decoded["spec"]["versions"][0]["schema"]["openAPIV3Schema"],
            expected
        );
    }
}

#[test]
fn nesting_is_bounded() {
    let nested = |levels| (0..levels).fold(Vec::new(), |inner, _| block(28, &inner));
    assert!(decode(&crd(&nested(90))).is_ok());
    assert_eq!(decode(&crd(&nested(110))), Err(DecodeError::TooDeep));
    assert_eq!(decode(&crd(&nested(20_000))), Err(DecodeError::TooDeep));
    let deep = "[".repeat(10_000);
    assert!(decode(&crd(&block(8, &block(1, deep.as_bytes())))).is_err());
}

#[test]
fn times_have_the_precision_of_their_type() {
    let time = [integer(1, 1_767_323_045), integer(2, 123_456_789)].concat();
    let lease = block(
        2,
        &[block(1, b"me"), integer(2, 0), block(3, &time), block(4, &[])].concat(),
    );
    let decoded = decode(&envelope("coordination.k8s.io/v1", "Lease", &lease)).unwrap();
    assert_eq!(
        decoded["spec"],
        json!({"holderIdentity": "me", "leaseDurationSeconds": 0, "acquireTime": "2026-01-02T03:04:05.123456Z"})
    );
    let meta = block(1, &[block(1, b"n"), block(8, &time), integer(7, 0)].concat());
    let decoded = decode(&envelope("v1", "ConfigMap", &meta)).unwrap();
    assert_eq!(
        decoded["metadata"],
        json!({"name": "n", "creationTimestamp": "2026-01-02T03:04:05Z"})
    );
    let never = block(1, &block(8, &integer(1, u64::MAX >> 2)));
    assert!(decode(&envelope("v1", "ConfigMap", &never)).is_err());
}

#[test]
fn numbers_come_packed_or_one_by_one() {
    let groups = |content: Vec<u8>| envelope("v1", "Pod", &block(2, &block(14, &content)));
    let expected = json!({"supplementalGroups": [1, 300]});
    for content in [
        [integer(4, 1), integer(4, 300)].concat(),
        block(4, b"\x01\xac\x02"),
    ] {
        assert_eq!(
            decode(&groups(content)).unwrap()["spec"]["securityContext"],
            expected
        );
    }
    assert_eq!(
        decode(&groups(block(4, b""))).unwrap()["spec"]["securityContext"],
        json!({})
    );
    assert_eq!(decode(&groups(block(4, b"\xff"))), Err(DecodeError::Truncated));
}

#[test]
fn refusals_say_why() {
    for (bytes, message) in [
        (Vec::new(), "empty data"),
        (
            b"{}".to_vec(),
            "provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]",
        ),
        (b"k8s\0".to_vec(), "empty body"),
        (
            envelope("v1", "", b""),
            "Object 'Kind' is missing in the protobuf message",
        ),
        (
            envelope("kvm.cloud.sap/v1", "Hypervisor", b""),
            "no kind \"Hypervisor\" is registered for version \"kvm.cloud.sap/v1\"",
        ),
        (
            envelope("v1", "ConfigMap", &integer(1, 5)),
            "proto: wrong wireType = 0 for field metadata",
        ),
        (envelope("v1", "ConfigMap", b"\x0a\x05a"), "unexpected EOF"),
    ] {
        assert_eq!(decode(&bytes).unwrap_err().to_string(), message);
    }
}

#[test]
fn fields_of_newer_versions_are_skipped() {
    let raw = [
        block(900, b"new"),
        integer(901, 7),
        block(2, &[block(1, b"k"), block(2, b"v"), integer(3, 1)].concat()),
    ]
    .concat();
    assert_eq!(
        decode(&envelope("v1", "ConfigMap", &raw)).unwrap(),
        json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"k": "v"}})
    );
}
