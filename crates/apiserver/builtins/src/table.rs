// SPDX-License-Identifier: Apache-2.0
//! The embedded table of built-in types, opened once. It holds the structure of every definition:
//! field types, which fields are required, how the reference writes them and who owns which part.
//! Descriptions live in a second block that is only inflated when somebody asks for them.

use std::collections::HashMap;
use std::io::Read as _;
use std::sync::OnceLock;

use cobaltcore_schema::{ListType, MapType, PatchStrategy};

/// What a definition is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// Named fields.
    Struct,
    /// A resource quantity, written as a string.
    Quantity,
    /// A 32-bit integer or a string.
    IntOrString,
    /// RFC 3339 with seconds.
    Time,
    /// RFC 3339 with microseconds.
    MicroTime,
    /// Any object, kept as it is (`RawExtension`).
    Raw,
    /// Ownership sets of managedFields.
    Fields,
    /// A patch body; only named in OpenAPI.
    Patch,
    /// Any JSON value.
    Json,
    /// A schema or a list of schemas.
    SchemaOrArray,
    /// A schema or a boolean.
    SchemaOrBool,
    /// A schema or a list of strings.
    SchemaOrStrings,
}

/// The type of a field, element or map value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FieldType {
    /// A string.
    String,
    /// A boolean.
    Bool,
    /// A 32-bit integer.
    Int32,
    /// A 64-bit integer.
    Int64,
    /// A 64-bit float.
    Double,
    /// Base64 text.
    Bytes,
    /// An object without described fields.
    Object,
    /// A list.
    List(Box<FieldType>),
    /// A map with string keys.
    Map(Box<FieldType>),
    /// Another definition, by its number in the table.
    Definition(usize),
}

/// One field of a struct definition.
#[derive(Debug, Clone)]
pub struct Field {
    /// JSON name.
    pub name: &'static str,
    /// Its type.
    pub kind: FieldType,
    /// Listed as required in OpenAPI.
    pub required: bool,
    /// Written even when absent, with its zero value (`null` for lists, maps and pointers).
    pub always: bool,
    /// A zero value that was given is kept.
    pub pointer: bool,
    /// A nested value that is left out when zero although it is no pointer.
    pub omit_zero: bool,
    /// List type, where the API states one.
    pub list_type: Option<ListType>,
    /// Map type, where the API states one for the field.
    pub map_type: Option<MapType>,
    /// Strategic merge.
    pub patch: PatchStrategy,
    /// The strategic merge words as the API publishes them (`merge,retainKeys`).
    pub patch_words: &'static str,
    /// Type name in messages where it does not follow from the structure.
    pub type_name: &'static str,
}

/// One definition.
#[derive(Debug, Clone)]
pub struct Definition {
    /// Full name, e.g. `io.k8s.api.core.v1.PodSpec`.
    pub name: &'static str,
    /// What it is.
    pub form: Form,
    /// Map type of the whole struct, where the API states one.
    pub map_type: Option<MapType>,
    /// Its fields, sorted by name.
    pub fields: Vec<Field>,
}

impl Definition {
    /// The last part of the name.
    pub fn short_name(&self) -> &'static str {
        self.name.rsplit('.').next().unwrap_or(self.name)
    }

    /// The field with this JSON name.
    pub fn field(&self, name: &str) -> Option<&Field> {
        self.fields
            .binary_search_by(|field| field.name.cmp(name))
            .ok()
            .and_then(|at| self.fields.get(at))
    }
}

/// All definitions.
#[derive(Debug)]
pub struct Table {
    /// In name order; [`FieldType::Definition`] counts from here.
    pub definitions: Vec<Definition>,
    by_name: HashMap<&'static str, usize>,
}

impl Table {
    /// The number of a definition.
    pub fn index(&self, name: &str) -> Option<usize> {
        self.by_name.get(name).copied()
    }

    /// A definition by name.
    pub fn find(&self, name: &str) -> Option<&Definition> {
        self.index(name).and_then(|at| self.definitions.get(at))
    }

    /// A definition by number. Numbers come from the table itself.
    pub fn get(&self, index: usize) -> Option<&Definition> {
        self.definitions.get(index)
    }
}

static STRUCTURE: &[u8] = include_bytes!("table/structure.z");
static DESCRIPTIONS: &[u8] = include_bytes!("table/descriptions.z");

/// The table, inflated and parsed on first use.
pub fn table() -> &'static Table {
    static TABLE: OnceLock<Table> = OnceLock::new();
    TABLE.get_or_init(|| parse(inflate(STRUCTURE)))
}

fn inflate(block: &[u8]) -> &'static str {
    let mut text = String::new();
    // The block is part of the program; a damaged one yields an empty table, which every test notices.
    if flate2::read::DeflateDecoder::new(block)
        .read_to_string(&mut text)
        .is_err()
    {
        text.clear();
    }
    String::leak(text)
}

fn parse(text: &'static str) -> Table {
    let mut definitions: Vec<Definition> = Vec::new();
    for line in text.lines() {
        let mut parts = line.split('\t');
        let head = parts.next().unwrap_or_default();
        if head == "D" {
            definitions.push(Definition {
                name: parts.next().unwrap_or_default(),
                form: form(parts.next().unwrap_or_default()),
                map_type: map_type(parts.next().unwrap_or_default()),
                fields: Vec::new(),
            });
        } else if let Some(current) = definitions.last_mut() {
            current.fields.push(field(head, parts));
        }
    }
    let by_name = definitions
        .iter()
        .enumerate()
        .map(|(at, definition)| (definition.name, at))
        .collect();
    Table { definitions, by_name }
}

fn field(name: &'static str, mut parts: std::str::Split<'static, char>) -> Field {
    let kind = field_type(parts.next().unwrap_or_default());
    let flags = parts.next().unwrap_or_default();
    let list_type = list_type(parts.next().unwrap_or_default());
    let map_type = map_type(parts.next().unwrap_or_default());
    let patch = parts.next().unwrap_or_default();
    Field {
        name,
        kind,
        required: flags.contains('r'),
        always: flags.contains('!'),
        pointer: flags.contains('*'),
        omit_zero: flags.contains('?'),
        list_type,
        map_type,
        patch: patch_strategy(patch),
        patch_words: patch.split(':').next().unwrap_or_default(),
        type_name: parts.next().unwrap_or_default(),
    }
}

fn form(word: &str) -> Form {
    match word {
        "quantity" => Form::Quantity,
        "int-or-string" => Form::IntOrString,
        "time" => Form::Time,
        "micro-time" => Form::MicroTime,
        "raw" => Form::Raw,
        "fields" => Form::Fields,
        "patch" => Form::Patch,
        "json" => Form::Json,
        "schema-or-array" => Form::SchemaOrArray,
        "schema-or-bool" => Form::SchemaOrBool,
        "schema-or-strings" => Form::SchemaOrStrings,
        _ => Form::Struct,
    }
}

fn field_type(text: &str) -> FieldType {
    let mut letters = text.chars();
    match letters.next() {
        Some('[') => FieldType::List(Box::new(field_type(letters.as_str()))),
        Some('{') => FieldType::Map(Box::new(field_type(letters.as_str()))),
        Some('@') => FieldType::Definition(letters.as_str().parse().unwrap_or(usize::MAX)),
        Some('s') => FieldType::String,
        Some('b') => FieldType::Bool,
        Some('i') => FieldType::Int32,
        Some('l') => FieldType::Int64,
        Some('f') => FieldType::Double,
        Some('y') => FieldType::Bytes,
        _ => FieldType::Object,
    }
}

fn list_type(text: &str) -> Option<ListType> {
    match text.split_once(':') {
        Some(("map", keys)) => Some(ListType::Map(keys.split(',').map(str::to_owned).collect())),
        _ => match text {
            "set" => Some(ListType::Set),
            "atomic" => Some(ListType::Atomic),
            _ => None,
        },
    }
}

fn map_type(text: &str) -> Option<MapType> {
    match text {
        "atomic" => Some(MapType::Atomic),
        "granular" => Some(MapType::Granular),
        _ => None,
    }
}

fn patch_strategy(text: &str) -> PatchStrategy {
    let (words, key) = match text.split_once(':') {
        Some((words, key)) => (words, Some(key.to_owned())),
        None => (text, None),
    };
    let has = |word: &str| words.split(',').any(|part| part == word);
    PatchStrategy {
        merge: has("merge"),
        merge_key: key,
        retain_keys: has("retainKeys"),
        replace: has("replace"),
    }
}

/// Descriptions of a definition: its own, then one per field in field order.
#[derive(Debug)]
pub struct Descriptions {
    texts: Vec<&'static str>,
    starts: Vec<usize>,
}

impl Descriptions {
    /// What the definition with this number is.
    pub fn of(&self, definition: usize) -> &'static str {
        self.starts
            .get(definition)
            .and_then(|at| self.texts.get(*at))
            .copied()
            .unwrap_or_default()
    }

    /// What the field at this position of the definition is.
    pub fn of_field(&self, definition: usize, field: usize) -> &'static str {
        self.starts
            .get(definition)
            .and_then(|at| self.texts.get(at + 1 + field))
            .copied()
            .unwrap_or_default()
    }
}

/// The descriptions, inflated on first use.
pub fn descriptions() -> &'static Descriptions {
    static BLOCK: OnceLock<Descriptions> = OnceLock::new();
    BLOCK.get_or_init(|| {
        let texts: Vec<&'static str> = inflate(DESCRIPTIONS).split('\0').collect();
        let mut starts = Vec::new();
        let mut next = 0;
        for definition in &table().definitions {
            starts.push(next);
            next += 1 + definition.fields.len();
        }
        Descriptions { texts, starts }
    })
}

/// The description of a field reached by a path of JSON names from a definition, through lists,
/// maps and references: `description("io.k8s.api.core.v1.Pod", &["spec", "nodeName"])`. An empty
/// path asks for the definition itself.
pub fn description(definition: &str, path: &[&str]) -> Option<&'static str> {
    let table = table();
    let mut at = table.index(definition)?;
    let Some((last, parents)) = path.split_last() else {
        return Some(descriptions().of(at));
    };
    for name in parents {
        let field = table.get(at)?.field(name)?;
        at = target(&field.kind)?;
    }
    let position = table
        .get(at)?
        .fields
        .iter()
        .position(|field| field.name == *last)?;
    Some(descriptions().of_field(at, position))
}

fn target(kind: &FieldType) -> Option<usize> {
    match kind {
        FieldType::Definition(at) => Some(*at),
        FieldType::List(inner) | FieldType::Map(inner) => target(inner),
        _ => None,
    }
}
