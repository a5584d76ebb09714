// SPDX-License-Identifier: Apache-2.0
//! Reads the two metadata files that say what the Rust types do not: how fields are written
//! (`shapes.txt`) and who owns which part (`merge.txt`). Every entry must be used exactly where it
//! names a field, so a typo or a removed field stops the generator.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

/// Ownership and merge attributes of one field or definition, as written in the file.
#[derive(Debug, Default, Clone)]
pub struct Merge {
    pub list: Option<String>,
    pub map: Option<String>,
    pub patch: Option<String>,
}

/// How one field is written.
#[derive(Debug, Default, Clone)]
pub struct Shape {
    /// Any of `!`, `*`, `?`.
    pub flags: String,
    /// Type name for messages, empty where it follows from the structure.
    pub type_name: String,
}

pub struct Metadata {
    merges: BTreeMap<(String, String), Merge>,
    shapes: BTreeMap<(String, String), Shape>,
    unused: RefCell<BTreeSet<(String, String)>>,
}

impl Metadata {
    pub fn load() -> Self {
        let merges = parse_merges(include_str!("../metadata/merge.txt"));
        let shapes = parse_shapes(include_str!("../metadata/shapes.txt"));
        let unused = merges.keys().chain(shapes.keys()).cloned().collect();
        Self {
            merges,
            shapes,
            unused: RefCell::new(unused),
        }
    }

    pub fn merge(&self, definition: &str, field: &str) -> Merge {
        let key = (definition.to_owned(), field.to_owned());
        self.unused.borrow_mut().remove(&key);
        self.merges.get(&key).cloned().unwrap_or_default()
    }

    pub fn shape(&self, definition: &str, field: &str) -> Shape {
        let key = (definition.to_owned(), field.to_owned());
        self.unused.borrow_mut().remove(&key);
        self.shapes.get(&key).cloned().unwrap_or_default()
    }

    pub fn unused(&self) -> Vec<(String, String)> {
        self.unused.borrow().iter().cloned().collect()
    }
}

fn lines(text: &str) -> impl Iterator<Item = &str> {
    text.lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
}

fn parse_merges(text: &str) -> BTreeMap<(String, String), Merge> {
    let mut all = BTreeMap::new();
    for line in lines(text) {
        let mut words = line.split(' ');
        let definition = words.next().expect("definition").to_owned();
        let field = words.next().expect("field").to_owned();
        let mut merge = Merge::default();
        for word in words {
            let (key, value) = word.split_once('=').expect("key=value");
            let slot = match key {
                "list" => &mut merge.list,
                "map" => &mut merge.map,
                "smp" => &mut merge.patch,
                other => panic!("unknown attribute {other}"),
            };
            *slot = Some(value.to_owned());
        }
        all.insert((definition, field), merge);
    }
    all
}

fn parse_shapes(text: &str) -> BTreeMap<(String, String), Shape> {
    let mut all = BTreeMap::new();
    for line in lines(text) {
        let mut words = line.split(' ');
        let definition = words.next().expect("definition").to_owned();
        for word in words {
            let (head, type_name) = word.split_once('=').unwrap_or((word, ""));
            let name = head.trim_end_matches(['!', '*', '?']);
            let shape = Shape {
                flags: head[name.len()..].to_owned(),
                type_name: type_name.to_owned(),
            };
            all.insert((definition.clone(), name.to_owned()), shape);
        }
    }
    all
}
