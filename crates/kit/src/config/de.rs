// SPDX-License-Identifier: Apache-2.0
//! Reads a type from the layers. Wherever the type is a struct its field names are known, so
//! this is where variables and flags are looked up and unknown keys are found.

use serde::de::value::{SeqDeserializer, StrDeserializer};
use serde::de::{
    self, DeserializeOwned, DeserializeSeed, EnumAccess, IntoDeserializer as _, MapAccess, SeqAccess,
    Unexpected, VariantAccess, Visitor,
};

use super::fault::{Fault, Kind};
use super::given::GivenItem;
use super::layers::Layers;
use super::suggest::unknown;
use super::tree::{Node, Value};

/// Reads a value up to its first mistake.
pub(super) fn read<T: DeserializeOwned>(layers: &Layers) -> Result<T, Fault> {
    layers.used.borrow_mut().clear();
    let root = Reader {
        layers,
        node: &layers.tree,
        path: Vec::new(),
    };
    T::deserialize(root).map_err(|fault| fault.at(&[], &layers.tree))
}

struct Reader<'a> {
    layers: &'a Layers,
    node: &'a Node,
    path: Vec<String>,
}

impl<'a> Reader<'a> {
    fn text(&self) -> Option<&'a str> {
        match &self.node.value {
            Value::Scalar { text, .. } | Value::Given(text) => Some(text),
            _ => None,
        }
    }

    /// Text that may be read as a number or boolean.
    fn bare(&self) -> Option<&'a str> {
        match &self.node.value {
            Value::Scalar { text, quoted: false } => Some(text),
            Value::Given(text) => Some(text.trim()),
            _ => None,
        }
    }

    fn found(&self) -> Unexpected<'a> {
        match &self.node.value {
            _ if self.node.is_null() => Unexpected::Other("nothing"),
            Value::Scalar { text, .. } | Value::Given(text) => Unexpected::Str(text),
            Value::List(_) => Unexpected::Other("a list"),
            Value::Map(_) => Unexpected::Other("a map"),
            Value::Aside => Unexpected::Other("a mistake"),
        }
    }

    fn refuse<T>(&self, expected: &dyn de::Expected) -> Result<T, Fault> {
        let fault: Fault = de::Error::invalid_type(self.found(), expected);
        Err(fault.at(&self.path, self.node))
    }

    fn below(&self, step: &str, node: &'a Node) -> Self {
        let mut path = self.path.clone();
        path.push(step.to_owned());
        Self {
            layers: self.layers,
            node,
            path,
        }
    }

    fn visit_map_of<V: Visitor<'a>>(
        self,
        entries: Vec<(String, Reader<'a>)>,
        visitor: V,
    ) -> Result<V::Value, Fault> {
        let access = Entries {
            rest: entries.into_iter(),
            value: None,
        };
        visitor
            .visit_map(access)
            .map_err(|fault| fault.at(&self.path, self.node))
    }

    fn number<T: std::str::FromStr>(&self) -> Option<T> {
        self.bare().and_then(|text| text.replace('_', "").parse().ok())
    }
}

macro_rules! numbers {
    ($($method:ident $visit:ident $type:ty, $expected:literal, $zero:literal;)+) => {$(
        fn $method<V: Visitor<'a>>(self, visitor: V) -> Result<V::Value, Fault> {
            if matches!(self.node.value, Value::Aside) {
                return visitor.$visit($zero);
            }
            let Some(number) = self.number::<$type>() else { return self.refuse(&$expected) };
            visitor.$visit(number).map_err(|fault: Fault| fault.at(&self.path, self.node))
        }
    )+};
}

impl<'a> de::Deserializer<'a> for Reader<'a> {
    type Error = Fault;

    numbers! {
        deserialize_i8 visit_i64 i64, "a whole number", 0;
        deserialize_i16 visit_i64 i64, "a whole number", 0;
        deserialize_i32 visit_i64 i64, "a whole number", 0;
        deserialize_i64 visit_i64 i64, "a whole number", 0;
        deserialize_u8 visit_u64 u64, "a whole number", 0;
        deserialize_u16 visit_u64 u64, "a whole number", 0;
        deserialize_u32 visit_u64 u64, "a whole number", 0;
        deserialize_u64 visit_u64 u64, "a whole number", 0;
        deserialize_f32 visit_f64 f64, "a number", 0.0;
        deserialize_f64 visit_f64 f64, "a number", 0.0;
    }

    fn deserialize_any<V: Visitor<'a>>(self, visitor: V) -> Result<V::Value, Fault> {
        match &self.node.value {
            _ if self.node.is_null() => visitor.visit_unit(),
            Value::Aside => visitor.visit_unit(),
            Value::List(_) => self.deserialize_seq(visitor),
            Value::Map(_) => self.deserialize_map(visitor),
            Value::Scalar { .. } | Value::Given(_) => match self.bare() {
                Some("true" | "false") => self.deserialize_bool(visitor),
                Some(_) if self.number::<i64>().is_some() => self.deserialize_i64(visitor),
                Some(_) if self.number::<f64>().is_some_and(f64::is_finite) => self.deserialize_f64(visitor),
                _ => self.deserialize_str(visitor),
            },
        }
    }

    fn deserialize_bool<V: Visitor<'a>>(self, visitor: V) -> Result<V::Value, Fault> {
        match (&self.node.value, self.bare()) {
            (_, Some("true")) => visitor.visit_bool(true),
            (_, Some("false")) | (Value::Aside, _) => visitor.visit_bool(false),
            _ => self.refuse(&"true or false"),
        }
    }

    fn deserialize_str<V: Visitor<'a>>(self, visitor: V) -> Result<V::Value, Fault> {
        let text = match &self.node.value {
            Value::Aside => "",
            _ if self.node.is_null() => return self.refuse(&"a text"),
            _ => match self.text() {
                Some(text) => text,
                None => return self.refuse(&"a text"),
            },
        };
        visitor
            .visit_str(text)
            .map_err(|fault: Fault| fault.at(&self.path, self.node))
    }

    fn deserialize_string<V: Visitor<'a>>(self, visitor: V) -> Result<V::Value, Fault> {
        self.deserialize_str(visitor)
    }

    fn deserialize_char<V: Visitor<'a>>(self, visitor: V) -> Result<V::Value, Fault> {
        self.deserialize_str(visitor)
    }

    fn deserialize_identifier<V: Visitor<'a>>(self, visitor: V) -> Result<V::Value, Fault> {
        self.deserialize_str(visitor)
    }

    fn deserialize_bytes<V: Visitor<'a>>(self, visitor: V) -> Result<V::Value, Fault> {
        self.refuse(&visitor)
    }

    fn deserialize_byte_buf<V: Visitor<'a>>(self, visitor: V) -> Result<V::Value, Fault> {
        self.refuse(&visitor)
    }

    fn deserialize_option<V: Visitor<'a>>(self, visitor: V) -> Result<V::Value, Fault> {
        let absent = self.node.is_null() || matches!(self.node.value, Value::Aside);
        if absent {
            visitor.visit_none()
        } else {
            visitor.visit_some(self)
        }
    }

    fn deserialize_unit<V: Visitor<'a>>(self, visitor: V) -> Result<V::Value, Fault> {
        let absent = self.node.is_null() || matches!(self.node.value, Value::Aside);
        if absent {
            visitor.visit_unit()
        } else {
            self.refuse(&"nothing")
        }
    }

    fn deserialize_unit_struct<V: Visitor<'a>>(self, _: &'static str, visitor: V) -> Result<V::Value, Fault> {
        self.deserialize_unit(visitor)
    }

    fn deserialize_newtype_struct<V: Visitor<'a>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Fault> {
        let (path, node) = (self.path.clone(), self.node);
        visitor
            .visit_newtype_struct(self)
            .map_err(|fault: Fault| fault.at(&path, node))
    }

    fn deserialize_seq<V: Visitor<'a>>(self, visitor: V) -> Result<V::Value, Fault> {
        if let Value::Given(text) = &self.node.value {
            let items = text.split(',').map(str::trim).filter(|item| !item.is_empty());
            let items = SeqDeserializer::<_, Fault>::new(items.map(GivenItem));
            return visitor
                .visit_seq(items)
                .map_err(|fault| fault.at(&self.path, self.node));
        }
        let items = match &self.node.value {
            Value::List(items) => items.as_slice(),
            Value::Aside => &[],
            _ => return self.refuse(&"a list"),
        };
        let readers = items
            .iter()
            .enumerate()
            .map(|(index, node)| self.below(&index.to_string(), node));
        let access = Items {
            rest: readers.collect::<Vec<_>>().into_iter(),
        };
        visitor
            .visit_seq(access)
            .map_err(|fault| fault.at(&self.path, self.node))
    }

    fn deserialize_tuple<V: Visitor<'a>>(self, _: usize, visitor: V) -> Result<V::Value, Fault> {
        self.deserialize_seq(visitor)
    }

    fn deserialize_tuple_struct<V: Visitor<'a>>(
        self,
        _: &'static str,
        _: usize,
        visitor: V,
    ) -> Result<V::Value, Fault> {
        self.deserialize_seq(visitor)
    }

    fn deserialize_map<V: Visitor<'a>>(self, visitor: V) -> Result<V::Value, Fault> {
        let entries = match &self.node.value {
            Value::Map(entries) => entries.as_slice(),
            Value::Aside => &[],
            _ if self.node.is_null() => &[],
            _ => return self.refuse(&"a map"),
        };
        let readers = entries
            .iter()
            .map(|(name, node)| (name.clone(), self.below(name, node)))
            .collect();
        self.visit_map_of(readers, visitor)
    }

    fn deserialize_struct<V: Visitor<'a>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Fault> {
        let map = match &self.node.value {
            Value::Map(entries) => entries.as_slice(),
            Value::Aside => &[],
            _ if self.node.is_null() => &[],
            _ => return self.refuse(&"a map"),
        };
        if let Some((name, node)) = map.iter().find(|(name, _)| !fields.contains(&name.as_str())) {
            let fault = Fault::new(Kind::Unknown, unknown(name, fields));
            return Err(fault.at(&self.below(name, node).path, node));
        }
        let mut entries = Vec::new();
        for field in fields {
            let mut path = self.path.clone();
            path.push((*field).to_owned());
            if let Some(node) = self.layers.field(&path, fields, map) {
                entries.push((
                    (*field).to_owned(),
                    Reader {
                        layers: self.layers,
                        node,
                        path,
                    },
                ));
            }
        }
        self.visit_map_of(entries, visitor)
    }

    fn deserialize_enum<V: Visitor<'a>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Fault> {
        let (path, node) = (self.path.clone(), self.node);
        let (variant, content) = match &node.value {
            Value::Scalar { text, .. } | Value::Given(text) => (text.trim(), None),
            Value::Map(entries) => match entries.as_slice() {
                [(name, inner)] => (name.as_str(), Some(self.below(name, inner))),
                _ => return self.refuse(&"one word or a map with one key"),
            },
            Value::Aside | Value::List(_) => return self.refuse(&"one word or a map with one key"),
        };
        visitor
            .visit_enum(Variant { variant, content })
            .map_err(|fault: Fault| fault.at(&path, node))
    }

    fn deserialize_ignored_any<V: Visitor<'a>>(self, visitor: V) -> Result<V::Value, Fault> {
        visitor.visit_unit()
    }
}

struct Items<'a> {
    rest: std::vec::IntoIter<Reader<'a>>,
}

impl<'a> SeqAccess<'a> for Items<'a> {
    type Error = Fault;

    fn next_element_seed<T: DeserializeSeed<'a>>(&mut self, seed: T) -> Result<Option<T::Value>, Fault> {
        let Some(reader) = self.rest.next() else {
            return Ok(None);
        };
        let (path, node) = (reader.path.clone(), reader.node);
        seed.deserialize(reader)
            .map(Some)
            .map_err(|fault| fault.at(&path, node))
    }
}

struct Entries<'a> {
    rest: std::vec::IntoIter<(String, Reader<'a>)>,
    value: Option<Reader<'a>>,
}

impl<'a> MapAccess<'a> for Entries<'a> {
    type Error = Fault;

    fn next_key_seed<K: DeserializeSeed<'a>>(&mut self, seed: K) -> Result<Option<K::Value>, Fault> {
        let Some((name, reader)) = self.rest.next() else {
            return Ok(None);
        };
        self.value = Some(reader);
        let key: StrDeserializer<'_, Fault> = name.as_str().into_deserializer();
        seed.deserialize(key).map(Some)
    }

    fn next_value_seed<T: DeserializeSeed<'a>>(&mut self, seed: T) -> Result<T::Value, Fault> {
        let Some(reader) = self.value.take() else {
            return Err(de::Error::custom("a value was asked for twice"));
        };
        let (path, node) = (reader.path.clone(), reader.node);
        seed.deserialize(reader).map_err(|fault| fault.at(&path, node))
    }
}

struct Variant<'a> {
    variant: &'a str,
    content: Option<Reader<'a>>,
}

impl<'a> EnumAccess<'a> for Variant<'a> {
    type Error = Fault;
    type Variant = Content<'a>;

    fn variant_seed<T: DeserializeSeed<'a>>(self, seed: T) -> Result<(T::Value, Content<'a>), Fault> {
        let name: StrDeserializer<'_, Fault> = self.variant.into_deserializer();
        Ok((seed.deserialize(name)?, Content(self.content)))
    }
}

struct Content<'a>(Option<Reader<'a>>);

impl<'a> Content<'a> {
    fn some(self) -> Result<Reader<'a>, Fault> {
        self.0.ok_or_else(|| de::Error::custom("this word needs a value"))
    }
}

impl<'a> VariantAccess<'a> for Content<'a> {
    type Error = Fault;

    fn unit_variant(self) -> Result<(), Fault> {
        match self.0 {
            Some(reader) if !reader.node.is_null() => reader.refuse(&"nothing"),
            _ => Ok(()),
        }
    }

    fn newtype_variant_seed<T: DeserializeSeed<'a>>(self, seed: T) -> Result<T::Value, Fault> {
        seed.deserialize(self.some()?)
    }

    fn tuple_variant<V: Visitor<'a>>(self, _: usize, visitor: V) -> Result<V::Value, Fault> {
        de::Deserializer::deserialize_seq(self.some()?, visitor)
    }

    fn struct_variant<V: Visitor<'a>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Fault> {
        de::Deserializer::deserialize_struct(self.some()?, "", fields, visitor)
    }
}
