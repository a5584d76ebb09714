// SPDX-License-Identifier: Apache-2.0
//! Where we are inside an object, as a chain on the stack.
//!
//! Walking an object costs nothing for its paths: a string is only built when something has to be
//! reported. Two spellings exist because the reference has two: field paths (`spec.limits[a]`) and
//! the dotted names of its schema validator (`spec.limits.a`).

use std::fmt;

/// A place in an object, linked to the place around it.
#[derive(Debug, Clone, Copy)]
pub enum Path<'a> {
    /// The object itself.
    Root,
    /// A place given as text, such as `spec.versions[0]`.
    Base(&'a str),
    /// A named field.
    Child(&'a Path<'a>, &'a str),
    /// A map key.
    Key(&'a Path<'a>, &'a str),
    /// A list element.
    Index(&'a Path<'a>, usize),
}

impl<'a> Path<'a> {
    /// The named field below this place.
    pub fn child(&'a self, name: &'a str) -> Path<'a> {
        Path::Child(self, name)
    }

    /// The map entry below this place.
    pub fn key(&'a self, key: &'a str) -> Path<'a> {
        Path::Key(self, key)
    }

    /// The list element below this place.
    pub fn index(&'a self, index: usize) -> Path<'a> {
        Path::Index(self, index)
    }

    /// Whether this is the object itself.
    pub fn is_root(&self) -> bool {
        match self {
            Path::Root => true,
            Path::Base(text) => text.is_empty(),
            _ => false,
        }
    }

    /// The dotted name the schema validator uses: map keys after a dot, nothing for the root.
    pub fn dotted(&self) -> String {
        let mut out = String::new();
        self.write_dotted(&mut out);
        out
    }

    fn write_dotted(&self, out: &mut String) {
        match self {
            Path::Root => {}
            Path::Base(text) => out.push_str(text),
            Path::Child(parent, name) => {
                parent.write_dotted(out);
                if !out.is_empty() {
                    out.push('.');
                }
                out.push_str(name);
            }
            Path::Key(parent, key) => {
                parent.write_dotted(out);
                out.push('.');
                out.push_str(key);
            }
            Path::Index(parent, index) => {
                parent.write_dotted(out);
                out.push('[');
                out.push_str(&index.to_string());
                out.push(']');
            }
        }
    }
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Path::Root => f.write_str("<nil>"),
            Path::Base(text) => f.write_str(if text.is_empty() { "<nil>" } else { text }),
            Path::Child(parent, name) if parent.is_root() => f.write_str(name),
            Path::Child(parent, name) => write!(f, "{parent}.{name}"),
            Path::Key(parent, key) if parent.is_root() => write!(f, "[{key}]"),
            Path::Key(parent, key) => write!(f, "{parent}[{key}]"),
            Path::Index(parent, index) if parent.is_root() => write!(f, "[{index}]"),
            Path::Index(parent, index) => write!(f, "{parent}[{index}]"),
        }
    }
}

/// `base.name`, or just `name` where the base is empty.
pub(crate) fn join(base: &str, name: &str) -> String {
    if base.is_empty() {
        name.to_owned()
    } else {
        format!("{base}.{name}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_spellings() {
        let root = Path::Root;
        let spec = root.child("spec");
        let limits = spec.child("limits");
        let cpu = limits.key("cpu");
        let first = cpu.index(0);
        assert_eq!(first.to_string(), "spec.limits[cpu][0]");
        assert_eq!(first.dotted(), "spec.limits.cpu[0]");
        assert_eq!(root.to_string(), "<nil>");
        assert_eq!(root.dotted(), "");
        assert_eq!(root.key("a").to_string(), "[a]");
        assert_eq!(root.key("a").dotted(), ".a");
        let base = Path::Base("spec.versions[0].schema");
        assert_eq!(base.child("type").to_string(), "spec.versions[0].schema.type");
    }
}
