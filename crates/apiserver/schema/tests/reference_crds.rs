// SPDX-License-Identifier: Apache-2.0
//! The definitions the product must be compatible with register without complaint.

mod common;

use std::io::Write as _;
use std::path::{Path, PathBuf};

use cobaltcore_schema::{compile, default_crd, validate_crd};
use common::{texts, yaml};
use serde_json::Value;

/// Where the reference definitions are, if they are on this machine.
fn directory() -> PathBuf {
    std::env::var_os("COBALTCORE_REFERENCE_CRDS").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../../shared/reference/crds"),
        PathBuf::from,
    )
}

fn files(directory: &Path, out: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            files(&path, out);
        } else if path.extension().is_some_and(|e| e == "yaml") {
            out.push(path);
        }
    }
}

#[test]
fn every_reference_definition_registers() {
    let mut found = Vec::new();
    files(&directory(), &mut found);
    if found.is_empty() {
        // Past the test harness, which hides what tests that pass say.
        let _ = std::io::stderr().write_all(
            b"SKIPPED: no reference definitions; name their folder in COBALTCORE_REFERENCE_CRDS\n",
        );
        return;
    }
    let mut kinds = 0;
    let mut complaints = Vec::new();
    for file in &found {
        let mut crd = yaml(&std::fs::read_to_string(file).expect("readable"));
        if crd.get("kind").and_then(Value::as_str) != Some("CustomResourceDefinition") {
            continue;
        }
        default_crd(&mut crd);
        let mut errors = validate_crd(&crd);
        match compile(&crd) {
            Ok(kind) => assert!(!kind.versions.is_empty()),
            Err(more) => errors.extend(more),
        }
        complaints.extend(texts(&errors).iter().map(|e| format!("{}: {e}", file.display())));
        kinds += 1;
    }
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
    println!("{kinds} definitions registered");
    assert!(kinds > 0);
}
