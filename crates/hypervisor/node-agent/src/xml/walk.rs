// SPDX-License-Identifier: Apache-2.0
//! A bounded walk over an XML document: the visitor is told of each element with its path and attributes, and of its
//! text. Prefixes are dropped, entities of a document type are never expanded.

use quick_xml::Reader;
use quick_xml::events::{BytesStart, Event};

use crate::error::Error;

/// What the protocol lets one string be.
const MOST_BYTES: usize = 4 << 20;
const DEEPEST: usize = 64;

/// Something on the way.
pub(super) enum Step<'a> {
    /// An element begins; the last name of the path is its own.
    Open(&'a Attributes),
    /// Text directly inside of the element of the path.
    Text(&'a str),
    /// The element ends.
    Close,
}

/// The attributes of an element.
#[derive(Debug, Default)]
pub(super) struct Attributes(Vec<(String, String)>);

impl Attributes {
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        let mut all = self.0.iter();
        all.find_map(|(key, value)| (key == name).then_some(value.as_str()))
    }

    pub(super) fn number<T: std::str::FromStr>(&self, name: &str) -> Option<T> {
        self.get(name)?.trim().parse().ok()
    }

    /// Whether the element says that it is supported.
    pub(super) fn supported(&self) -> bool {
        self.get("supported") == Some("yes")
    }

    fn read(element: &BytesStart<'_>) -> Result<Self, String> {
        let mut all = Vec::new();
        for attribute in element.attributes() {
            let attribute = attribute.map_err(|error| error.to_string())?;
            let name = attribute.key.local_name().as_ref().to_owned();
            let raw = attribute.value.as_ref();
            // Texts that matter here have no entities; one that cannot be resolved stays as it is.
            let value = quick_xml::escape::unescape(raw).map_or_else(|_| raw.to_owned(), Into::into);
            all.push((name, value));
        }
        Ok(Self(all))
    }
}

/// Walks over `xml`, which is called `document` in errors.
pub(super) fn walk(
    document: &'static str,
    xml: &str,
    mut visit: impl FnMut(&[String], Step<'_>),
) -> Result<(), Error> {
    let wrong = |reason: String| Error::Xml { document, reason };
    if xml.len() > MOST_BYTES {
        return Err(wrong(format!(
            "{} bytes are more than the {MOST_BYTES} allowed",
            xml.len()
        )));
    }
    let mut reader = Reader::from_str(xml);
    let mut path: Vec<String> = Vec::new();
    let mut seen_root = false;
    loop {
        let place = reader.buffer_position();
        let event = reader
            .read_event()
            .map_err(|error| wrong(format!("byte {place}: {error}")))?;
        match event {
            Event::Start(element) | Event::Empty(element) if path.len() >= DEEPEST => {
                let name = element.local_name().as_ref().to_owned();
                return Err(wrong(format!("byte {place}: <{name}> is nested too deeply")));
            }
            Event::Start(element) => {
                seen_root = true;
                path.push(element.local_name().as_ref().to_owned());
                let attributes =
                    Attributes::read(&element).map_err(|error| wrong(format!("byte {place}: {error}")))?;
                visit(&path, Step::Open(&attributes));
            }
            Event::Empty(element) => {
                seen_root = true;
                path.push(element.local_name().as_ref().to_owned());
                let attributes =
                    Attributes::read(&element).map_err(|error| wrong(format!("byte {place}: {error}")))?;
                visit(&path, Step::Open(&attributes));
                visit(&path, Step::Close);
                path.pop();
            }
            Event::Text(text) => {
                let text = text.trim();
                if !text.is_empty() {
                    visit(&path, Step::Text(text));
                }
            }
            Event::End(_) => {
                visit(&path, Step::Close);
                path.pop();
            }
            Event::Eof if !path.is_empty() => {
                return Err(wrong(format!("ends inside of <{}>", path.join("/"))));
            }
            Event::Eof if !seen_root => return Err(wrong("has no element".to_owned())),
            Event::Eof => return Ok(()),
            _ => {}
        }
    }
}

/// Whether a path is exactly this one, written with slashes.
pub(super) fn is(path: &[String], wanted: &str) -> bool {
    let mut names = wanted.split('/');
    path.iter().all(|name| names.next() == Some(name.as_str())) && names.next().is_none()
}
