// SPDX-License-Identifier: Apache-2.0
//! The layers of a configuration and how a field finds its value in them: flags first, then
//! environment variables, then the file.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use super::Mistake;
use super::repair::Repairs;
use super::tree::{Node, Place, Value};

/// The layers of a configuration.
pub(super) struct Layers {
    pub(super) tree: Node,
    pub(super) flags: BTreeMap<String, Node>,
    pub(super) variables: BTreeMap<String, Node>,
    prefix: String,
    pub(super) used: RefCell<BTreeSet<String>>,
    pub(super) repairs: Repairs,
}

impl Layers {
    pub(super) fn new(
        source: String,
        mut tree: Node,
        prefix: &str,
        variables: BTreeMap<String, String>,
        flags: Vec<(String, String, String)>,
    ) -> Self {
        if tree.place.source.is_empty() {
            tree.place.source = source;
        }
        let given = |source: String, text: String| Node {
            value: Value::Given(text),
            place: Place { source, line: None },
        };
        let flags = flags
            .into_iter()
            .map(|(flag, key, text)| (key, given(format!("flag {flag}"), text)))
            .collect();
        let variables = variables
            .into_iter()
            .map(|(name, text)| (name.clone(), given(format!("environment variable {name}"), text)));
        Self {
            tree,
            flags,
            variables: variables.collect(),
            prefix: prefix.to_owned(),
            used: RefCell::default(),
            repairs: Repairs::default(),
        }
    }

    /// Where the value of a key stands, or the nearest thing above it.
    pub(super) fn place_of(&self, path: &[String]) -> Place {
        let given = self
            .flags
            .get(&path.join("."))
            .or_else(|| self.variables.get(&self.variable(path)));
        given.map_or_else(
            || self.tree.nearest(path).place.clone(),
            |node| node.place.clone(),
        )
    }

    /// Flags and variables that no field has asked for.
    pub(super) fn unused(&self) -> Vec<Mistake> {
        let used = self.used.borrow();
        let flags = self.flags.iter().filter(|(key, _)| !used.contains(*key));
        let variables = self.variables.iter().filter(|(name, _)| !used.contains(*name));
        let mistake = |node: &Node| Mistake {
            source: node.place.source.clone(),
            line: None,
            key: String::new(),
            message: "sets a key that nobody knows".into(),
        };
        flags.chain(variables).map(|(_, node)| mistake(node)).collect()
    }

    /// The name of the variable for a path.
    pub(super) fn variable(&self, path: &[String]) -> String {
        let mut name = self.prefix.clone();
        for step in path {
            name.push('_');
            name.push_str(&upper_snake(step));
        }
        name
    }

    /// The value for a field of the struct at `path`, from the topmost layer that has one.
    pub(super) fn field<'a>(
        &'a self,
        path: &[String],
        fields: &[&str],
        map: &'a [(String, Node)],
    ) -> Option<&'a Node> {
        let (key, variable) = (path.join("."), self.variable(path));
        if let Some(flag) = self.flags.get(&key) {
            self.used.borrow_mut().extend([key, variable]);
            return Some(flag);
        }
        if let Some(given) = self.variables.get(&variable).filter(|_| !self.prefix.is_empty()) {
            self.used.borrow_mut().insert(variable);
            return Some(given);
        }
        let name = path.last()?;
        let own = map.iter().find(|(entry, _)| entry == name).map(|(_, node)| node);
        own.or_else(|| self.is_set_below(path, fields).then_some(&NOTHING))
    }

    /// Whether a flag or variable sets something below a field that the file does not mention.
    fn is_set_below(&self, path: &[String], siblings: &[&str]) -> bool {
        let key = path.join(".") + ".";
        if self.flags.keys().any(|flag| flag.starts_with(&key)) {
            return true;
        }
        let start = self.variable(path) + "_";
        let Some((_, above)) = path.split_last() else {
            return false;
        };
        // `HVO_LOG_FORMAT` may be `log.format` or `logFormat`; a sibling of that name has precedence.
        let longer = |name: &str| {
            siblings.iter().any(|sibling| {
                let mut other = above.to_vec();
                other.push((*sibling).to_owned());
                let other = self.variable(&other);
                other.len() >= start.len() && (name == other || name.starts_with(&(other + "_")))
            })
        };
        !self.prefix.is_empty()
            && self
                .variables
                .keys()
                .any(|name| name.starts_with(&start) && !longer(name))
    }
}

/// Stands for a struct that only variables or flags speak of.
static NOTHING: Node = Node {
    value: Value::Map(Vec::new()),
    place: Place {
        source: String::new(),
        line: None,
    },
};

fn upper_snake(name: &str) -> String {
    let mut text = String::new();
    let mut before = None;
    for c in name.chars() {
        if c.is_ascii_uppercase()
            && before.is_some_and(|b: char| b.is_ascii_lowercase() || b.is_ascii_digit())
        {
            text.push('_');
        }
        text.push(if c.is_ascii_alphanumeric() {
            c.to_ascii_uppercase()
        } else {
            '_'
        });
        before = Some(c);
    }
    text
}
