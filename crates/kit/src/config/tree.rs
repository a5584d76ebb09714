// SPDX-License-Identifier: Apache-2.0
//! YAML as a tree in which every value remembers where it stands. Anchors, tags and further
//! documents are refused: a configuration needs none of them, and a reader should not have to
//! follow references.

use saphyr_parser::{Event, Parser, ScalarStyle, Span};

use super::Mistake;

const DEEPEST: usize = 32;

/// Where a value stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) source: String,
    pub(super) line: Option<usize>,
}

/// A value and where it stands.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) value: Value,
    pub(super) place: Place,
}

#[derive(Clone, Debug)]
pub(super) enum Value {
    /// Text that is read as whatever is asked for, unless it was quoted.
    Scalar {
        text: String,
        quoted: bool,
    },
    /// Text from a variable or flag, where commas separate the items of a list.
    Given(String),
    List(Vec<Node>),
    Map(Vec<(String, Node)>),
    /// Stands for a value that was wrong or missing and has been reported.
    Aside,
}

impl Node {
    pub(super) fn map(place: Place) -> Self {
        Self {
            value: Value::Map(Vec::new()),
            place,
        }
    }

    pub(super) fn is_null(&self) -> bool {
        matches!(&self.value, Value::Scalar { text, quoted: false } if matches!(text.as_str(), "" | "~" | "null" | "Null" | "NULL"))
    }

    /// The node below `path`, as far as the tree reaches.
    pub(super) fn nearest(&self, path: &[String]) -> &Self {
        let below = path
            .split_first()
            .and_then(|(step, rest)| self.child(step).map(|child| child.nearest(rest)));
        below.unwrap_or(self)
    }

    fn child(&self, step: &str) -> Option<&Self> {
        match &self.value {
            Value::Map(entries) => entries
                .iter()
                .find(|(name, _)| name == step)
                .map(|(_, node)| node),
            Value::List(items) => items.get(step.parse::<usize>().ok()?),
            _ => None,
        }
    }

    pub(super) fn find_mut(&mut self, path: &[String]) -> Option<&mut Self> {
        let Some((step, rest)) = path.split_first() else {
            return Some(self);
        };
        let child = match &mut self.value {
            Value::Map(entries) => entries
                .iter_mut()
                .find(|(name, _)| name == step)
                .map(|(_, node)| node),
            Value::List(items) => items.get_mut(step.parse::<usize>().ok()?),
            _ => None,
        };
        child?.find_mut(rest)
    }
}

/// Reads one document. Mistakes that do not break the structure are gathered.
pub(super) fn parse(source: &str, text: &str) -> Result<Node, Vec<Mistake>> {
    let mut builder = Builder {
        source,
        open: Vec::new(),
        root: None,
        mistakes: Vec::new(),
    };
    for event in Parser::new_from_str(text) {
        match event {
            Ok((event, span)) => builder.take(event, span),
            Err(error) => {
                let line = Some(error.marker().line());
                let message = format!("not YAML: {}", error.info());
                builder.mistakes.push(Mistake {
                    source: source.into(),
                    line,
                    key: String::new(),
                    message,
                });
                break;
            }
        }
    }
    if !builder.mistakes.is_empty() {
        return Err(builder.mistakes);
    }
    Ok(builder
        .root
        .filter(|root| !root.is_null())
        .unwrap_or_else(|| super::empty(source)))
}

/// A list or map whose end has not come yet.
struct Open {
    node: Node,
    key: Option<String>,
}

struct Builder<'a> {
    source: &'a str,
    open: Vec<Open>,
    root: Option<Node>,
    mistakes: Vec<Mistake>,
}

impl Builder<'_> {
    fn take(&mut self, event: Event<'_>, span: Span) {
        let place = Place {
            source: self.source.to_owned(),
            line: Some(span.start.line()),
        };
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                self.refuse(anchor, tag.is_some(), &place);
                let quoted = style != ScalarStyle::Plain;
                self.add(Node {
                    value: Value::Scalar {
                        text: text.into_owned(),
                        quoted,
                    },
                    place,
                });
            }
            Event::SequenceStart(anchor, tag) => {
                self.refuse(anchor, tag.is_some(), &place);
                self.begin(Value::List(Vec::new()), place);
            }
            Event::MappingStart(anchor, tag) => {
                self.refuse(anchor, tag.is_some(), &place);
                self.begin(Value::Map(Vec::new()), place);
            }
            Event::SequenceEnd | Event::MappingEnd => {
                if let Some(open) = self.open.pop() {
                    self.add(open.node);
                }
            }
            Event::Alias(_) => {
                self.wrong(&place, "references (*) are not supported");
                self.add(Node {
                    value: Value::Aside,
                    place,
                });
            }
            Event::DocumentStart(_) if self.root.is_some() => {
                self.wrong(&place, "there must be only one document");
            }
            _ => {}
        }
    }

    fn begin(&mut self, value: Value, place: Place) {
        if self.open.len() == DEEPEST {
            self.wrong(&place, "nested too deeply");
        }
        self.open.push(Open {
            node: Node { value, place },
            key: None,
        });
    }

    fn add(&mut self, node: Node) {
        let Some(open) = self.open.last_mut() else {
            self.root.get_or_insert(node);
            return;
        };
        match (&mut open.node.value, open.key.take()) {
            (Value::List(items), _) => items.push(node),
            (Value::Map(_), None) => {
                if let Value::Scalar { text, .. } = node.value {
                    open.key = Some(text);
                } else {
                    open.key = Some(String::new());
                    self.wrong(&node.place, "a key must be a word");
                }
            }
            (Value::Map(entries), Some(key)) => {
                if entries.iter().any(|(name, _)| *name == key) {
                    let message = format!("{key} is given twice");
                    self.wrong(&node.place, &message);
                } else {
                    entries.push((key, node));
                }
            }
            _ => {}
        }
    }

    fn refuse(&mut self, anchor: usize, tagged: bool, place: &Place) {
        if anchor != 0 {
            self.wrong(place, "anchors (&) are not supported");
        }
        if tagged {
            self.wrong(place, "tags (!) are not supported");
        }
    }

    fn wrong(&mut self, place: &Place, message: &str) {
        let keys = self.open.iter().filter_map(|open| open.key.clone());
        let key = keys.collect::<Vec<_>>().join(".");
        self.mistakes.push(Mistake {
            source: place.source.clone(),
            line: place.line,
            key,
            message: message.into(),
        });
    }
}
