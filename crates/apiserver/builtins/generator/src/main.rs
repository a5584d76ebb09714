// SPDX-License-Identifier: Apache-2.0
//! Writes the table of built-in types: structure and ownership in one deflated block, descriptions
//! in another. Run by hand when the Kubernetes version moves (`cargo run -- ../src/table`); the
//! result is checked in, so that a normal build never compiles the thousands of Kubernetes structs.

mod metadata;
mod roots;
mod write;

use std::fs;
use std::io::Write as _;
use std::path::PathBuf;

fn main() {
    let target = PathBuf::from(
        std::env::args()
            .nth(1)
            .unwrap_or_else(|| "../src/table".to_owned()),
    );
    let mut generator = schemars::generate::SchemaSettings::draft2020_12().into_generator();
    roots::visit(&mut generator);
    let definitions = serde_json::Value::Object(generator.definitions().clone());
    let definitions = definitions.as_object().expect("definitions are an object");

    let metadata = metadata::Metadata::load();
    let (structure, descriptions) = write::table(definitions, &metadata);
    let unused = metadata.unused();
    assert!(
        unused.is_empty(),
        "metadata names fields that do not exist: {unused:?}"
    );

    fs::create_dir_all(&target).expect("target directory");
    for (name, text) in [("structure.z", &structure), ("descriptions.z", &descriptions)] {
        let mut encoder = flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::best());
        encoder.write_all(text.as_bytes()).expect("deflate");
        let bytes = encoder.finish().expect("deflate");
        println!("{name}: {} bytes, {} deflated", text.len(), bytes.len());
        fs::write(target.join(name), bytes).expect("write the table");
    }
}
