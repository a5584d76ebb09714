// SPDX-License-Identifier: Apache-2.0
//! The embedded table of messages, inflated and read on first use. `generator/generate.py` writes it
//! and describes its form; a line this module does not understand is a defect a test finds, and
//! becomes a message without fields at run time.

use std::collections::{HashMap, HashSet};
use std::io::Read as _;
use std::sync::OnceLock;

const COMPRESSED: &[u8] = include_bytes!("table.z");

/// How the JSON of a message looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// An object with the fields of the message.
    Struct,
    /// A list that only is a message because protobuf has no map of lists.
    List,
    /// A quantity as a string.
    Quantity,
    /// A number or a string.
    IntOrString,
    /// RFC 3339 with seconds.
    Time,
    /// RFC 3339 with microseconds.
    MicroTime,
    /// JSON inside.
    Raw,
    /// A schema or a list of schemas.
    SchemaOrArray,
    /// A schema or a boolean.
    SchemaOrBool,
    /// A schema or a list of strings.
    SchemaOrStrings,
}

/// The type of a field's values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Type {
    /// Text.
    String,
    /// True or false.
    Bool,
    /// 32 bits.
    Int32,
    /// 64 bits.
    Int64,
    /// A float.
    Double,
    /// Base64 in JSON.
    Bytes,
    /// Another message, by its place in the table.
    Message(usize),
}

/// How often a field occurs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Count {
    /// Once.
    One,
    /// A list.
    List,
    /// A map with string keys.
    Map,
}

/// One field of a message.
#[derive(Debug, Clone)]
pub(crate) struct Field {
    /// Number on the wire.
    pub(crate) number: u32,
    /// JSON name.
    pub(crate) name: &'static str,
    /// Type of its values.
    pub(crate) kind: Type,
    /// How often it occurs.
    pub(crate) count: Count,
    /// A zero that was sent is kept: the field is a pointer, or written whatever its value.
    pub(crate) keeps_zero: bool,
    /// A struct that is left out when nothing is in it.
    pub(crate) omit_zero: bool,
    /// Its fields belong to the parent.
    pub(crate) inline: bool,
}

/// One message.
#[derive(Debug)]
pub(crate) struct Message {
    /// How it looks in JSON.
    pub(crate) form: Form,
    fields: Vec<Field>,
}

impl Message {
    /// The field with a number.
    pub(crate) fn field(&self, number: u32) -> Option<&Field> {
        self.fields
            .binary_search_by_key(&number, |f| f.number)
            .ok()
            .and_then(|at| self.fields.get(at))
    }
}

/// All messages and the kinds that lead to them.
#[derive(Debug, Default)]
pub(crate) struct Table {
    messages: Vec<Message>,
    kinds: HashMap<&'static str, HashMap<&'static str, usize>>,
    everywhere: HashMap<&'static str, usize>,
    groups: HashSet<&'static str>,
}

impl Table {
    /// The table of this build.
    pub(crate) fn get() -> &'static Self {
        static TABLE: OnceLock<Table> = OnceLock::new();
        TABLE.get_or_init(|| Self::parse(text()))
    }

    /// The message of a kind.
    pub(crate) fn kind(&self, api_version: &str, kind: &str) -> Option<&Message> {
        let own = self.kinds.get(api_version).and_then(|kinds| kinds.get(kind));
        self.message(*own.or_else(|| self.everywhere.get(kind))?)
    }

    /// The message at a place.
    pub(crate) fn message(&self, at: usize) -> Option<&Message> {
        self.messages.get(at)
    }

    /// Whether any kind is of this group.
    pub(crate) fn has_group(&self, group: &str) -> bool {
        self.groups.contains(group)
    }

    fn parse(text: &'static str) -> Self {
        let mut table = Self::default();
        for line in text.lines() {
            let mut words = line.split(' ');
            match words.next() {
                Some("=") => {
                    if let (Some(version), Some(kind), Some(at)) = (words.next(), words.next(), words.next())
                    {
                        table
                            .groups
                            .insert(version.split_once('/').map_or("", |(group, _)| group));
                        table
                            .kinds
                            .entry(version)
                            .or_default()
                            .insert(kind, at.parse().unwrap_or(usize::MAX));
                    }
                }
                Some("@") => {
                    if let (Some(kind), Some(at)) = (words.next(), words.next()) {
                        table.everywhere.insert(kind, at.parse().unwrap_or(usize::MAX));
                    }
                }
                Some(form) => {
                    let form = parse_form(form).unwrap_or(Form::Struct);
                    table.messages.push(Message {
                        form,
                        fields: words.filter_map(parse_field).collect(),
                    });
                }
                None => {}
            }
        }
        table
    }
}

/// The inflated table, kept for the life of the process because names are borrowed from it.
fn text() -> &'static str {
    static TEXT: OnceLock<String> = OnceLock::new();
    TEXT.get_or_init(|| {
        let mut text = String::new();
        // The bytes are part of the build; a test reads them whole.
        let _ = flate2::read::ZlibDecoder::new(COMPRESSED).read_to_string(&mut text);
        text
    })
}

fn parse_form(word: &str) -> Option<Form> {
    Some(match word {
        "struct" => Form::Struct,
        "list" => Form::List,
        "quantity" => Form::Quantity,
        "intorstring" => Form::IntOrString,
        "time" => Form::Time,
        "microtime" => Form::MicroTime,
        "raw" => Form::Raw,
        "schemaorarray" => Form::SchemaOrArray,
        "schemaorbool" => Form::SchemaOrBool,
        "schemaorstrings" => Form::SchemaOrStrings,
        _ => return None,
    })
}

/// `<number>[r|k]<type>[*][!][?][~]:<JSON name>`
fn parse_field(word: &'static str) -> Option<Field> {
    let (facts, name) = word.split_once(':')?;
    let (number, facts) = split_digits(facts);
    let (count, facts) = match facts.as_bytes().first()? {
        b'r' => (Count::List, facts.get(1..)?),
        b'k' => (Count::Map, facts.get(1..)?),
        _ => (Count::One, facts),
    };
    let (letter, facts) = facts.split_at_checked(1)?;
    let (place, flags) = split_digits(facts);
    let kind = match letter {
        "s" => Type::String,
        "b" => Type::Bool,
        "i" => Type::Int32,
        "l" => Type::Int64,
        "d" => Type::Double,
        "y" => Type::Bytes,
        "m" => Type::Message(place.parse().ok()?),
        _ => return None,
    };
    Some(Field {
        number: number.parse().ok()?,
        name,
        kind,
        count,
        keeps_zero: flags.contains(['*', '!']),
        omit_zero: flags.contains('?'),
        inline: flags.contains('~'),
    })
}

fn split_digits(text: &str) -> (&str, &str) {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    text.split_at_checked(end).unwrap_or((text, ""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_of_the_table_is_understood() {
        let mut messages = 0;
        for line in text().lines() {
            let mut words = line.split(' ');
            let head = words.next().unwrap();
            if head == "=" || head == "@" {
                assert!(words.next_back().unwrap().parse::<usize>().is_ok(), "{line}");
                continue;
            }
            messages += 1;
            assert!(parse_form(head).is_some(), "{line}");
            let numbers: Vec<u32> = words
                .map(|word| parse_field(word).unwrap_or_else(|| panic!("{word}")).number)
                .collect();
            assert!(numbers.is_sorted(), "{line}");
        }
        let table = Table::get();
        assert_eq!(table.messages.len(), messages);
        assert!(messages > 400);
        for field in table.messages.iter().flat_map(|m| &m.fields) {
            if let Type::Message(at) = field.kind {
                assert!(at < messages, "{field:?}");
            }
            assert!(
                !field.inline
                    || matches!(field.kind, Type::Message(at) if table.messages[at].form == Form::Struct)
            );
        }
    }

    #[test]
    fn kinds_are_found_by_version_and_options_everywhere() {
        let table = Table::get();
        for (api_version, kind, known) in [
            ("v1", "Pod", true),
            ("apps/v1", "Deployment", true),
            ("apps/v1", "Pod", false),
            ("extensions/v1beta1", "Deployment", false),
            ("apps/v1", "DeleteOptions", true),
            ("kvm.cloud.sap/v1", "DeleteOptions", true),
            ("v1", "Status", true),
        ] {
            assert_eq!(
                table.kind(api_version, kind).is_some(),
                known,
                "{api_version} {kind}"
            );
        }
        assert!(table.has_group("") && table.has_group("apiextensions.k8s.io"));
        assert!(!table.has_group("kvm.cloud.sap"));
    }
}
