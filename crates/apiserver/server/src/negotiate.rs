// SPDX-License-Identifier: Apache-2.0
//! Which form an answer takes: JSON or YAML; the object itself, a Table, or metadata only.

use cobaltcore_text::go;
use http::HeaderMap;
use http::header::{ACCEPT, CONTENT_TYPE, USER_AGENT};

use crate::registry::Resource;
use crate::reqinfo::Query;
use crate::status::{ApiError, ApiResult};

/// The encoding of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Format {
    /// JSON.
    Json,
    /// YAML.
    Yaml,
}

/// What of the object is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Shape {
    /// All of it.
    Object,
    /// Rows and columns.
    Table {
        /// `meta.k8s.io/v1beta1` was asked for instead of v1.
        beta: bool,
        /// What each row carries of its object.
        include: Include,
    },
    /// Metadata only.
    Metadata {
        /// `meta.k8s.io/v1beta1` was asked for instead of v1.
        beta: bool,
        /// The list form was named.
        list: bool,
    },
}

/// What each row of a table carries of its object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Include {
    /// Its metadata.
    Metadata,
    /// All of it.
    Object,
    /// Nothing.
    None,
}

/// The negotiated form of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Form {
    /// Encoding.
    pub format: Format,
    /// What of the object.
    pub shape: Shape,
    /// Indented for people.
    pub pretty: bool,
}

impl Form {
    /// Plain JSON.
    pub const JSON: Self = Self {
        format: Format::Json,
        shape: Shape::Object,
        pretty: false,
    };

    /// JSON, indented for people.
    pub fn indented(headers: &HeaderMap, query: &Query) -> Self {
        Self {
            pretty: wants_pretty(query).unwrap_or_else(|| is_browser(headers)),
            ..Self::JSON
        }
    }

    /// Reads the form off a request. `shapes` tells whether tables and metadata may be asked for.
    pub fn negotiate(headers: &HeaderMap, query: &Query, shapes: bool) -> ApiResult<Self> {
        Self::choose(headers, query, shapes)?.ok_or_else(ApiError::not_acceptable)
    }

    /// Reads the form of a stream of events off a request. What would be a list in YAML is no stream,
    /// even for whoever takes JSON as well: the form is chosen before anybody asks whether it streams.
    pub fn negotiate_stream(headers: &HeaderMap, query: &Query) -> ApiResult<Self> {
        let form = Self::negotiate(headers, query, true)?;
        match form.format {
            Format::Json => Ok(form),
            Format::Yaml => Err(ApiError::new(
                406,
                "NotAcceptable",
                "only the following media types are accepted: application/json;stream=watch",
            )),
        }
    }

    /// The first form that the client accepts.
    fn choose(headers: &HeaderMap, query: &Query, shapes: bool) -> ApiResult<Option<Self>> {
        let plain = Self::indented(headers, query);
        let accept: Vec<&str> = headers
            .get_all(ACCEPT)
            .iter()
            .filter_map(|v| v.to_str().ok())
            .collect();
        let accept = accept.join(",");
        if accept.trim().is_empty() {
            return Ok(Some(plain));
        }
        for clause in clauses(&accept) {
            if let Some((format, shape)) = clause.form(shapes, query)? {
                return Ok(Some(Self {
                    format,
                    shape,
                    pretty: plain.pretty || clause.param("pretty") == Some("1"),
                }));
            }
        }
        Ok(None)
    }

    /// The form of a refusal: that of the answer asked for, as far as a `Status` has it.
    pub fn of_errors(headers: &HeaderMap, query: &str) -> Self {
        let query = Query::parse(query);
        match Self::negotiate(headers, &query, false) {
            Ok(form) => form,
            // Whoever takes none of the forms a `Status` has is taken for a person.
            Err(_) => Self {
                pretty: true,
                ..Self::JSON
            },
        }
    }

    /// Refuses the list form of metadata for a single object of a type.
    pub fn for_object(self, resource: &Resource) -> ApiResult<Self> {
        if matches!(self.shape, Shape::Metadata { list: true, .. }) {
            let text = format!(
                "you requested PartialObjectMetadataList, but the requested object is not a list ({})",
                resource.go_type(false)
            );
            return Err(ApiError::new(406, "NotAcceptable", text));
        }
        Ok(self)
    }

    /// Refuses the form of single metadata for a list of a type.
    pub fn for_list(self, resource: &Resource) -> ApiResult<Self> {
        if matches!(self.shape, Shape::Metadata { list: false, .. }) {
            let text = format!(
                "you requested PartialObjectMetadata, but the requested object is a list ({})",
                resource.go_type(true)
            );
            return Err(ApiError::new(406, "NotAcceptable", text));
        }
        Ok(self)
    }

    /// Whether a line break follows the answer: JSON has one unless it is indented; YAML brings its own.
    pub fn ends_line(&self) -> bool {
        self.format == Format::Json && !self.pretty
    }

    /// The content type of the answer.
    pub fn content_type(&self) -> &'static str {
        match self.format {
            Format::Json => "application/json",
            Format::Yaml => "application/yaml",
        }
    }
}

/// Whether any of the media types asked for is one objects are sent in, whatever their shape.
pub(crate) fn takes_objects(headers: &HeaderMap) -> bool {
    takes(headers, &["application/json", "application/yaml"])
}

/// What `pretty` asks for; without a value it asks for nothing.
fn wants_pretty(query: &Query) -> Option<bool> {
    let value = query.get("pretty").filter(|v| !v.is_empty())?;
    Some(matches!(value, "1" | "t" | "T" | "true" | "TRUE" | "True"))
}

/// Whether a client takes the one media type a path has. Here names are compared whole, without the
/// wildcards of a single type.
pub(crate) fn takes(headers: &HeaderMap, offered: &[&str]) -> bool {
    let mut asked = headers
        .get_all(ACCEPT)
        .iter()
        .filter_map(|v| v.to_str().ok())
        .flat_map(|v| v.split(','))
        .map(|clause| clause.split(';').next().unwrap_or_default().trim())
        .filter(|media| !media.is_empty())
        .peekable();
    asked.peek().is_none() || asked.any(|media| media == "*/*" || offered.contains(&media))
}

/// Refuses whoever does not take the one media type a path has.
pub(crate) fn only(headers: &HeaderMap, offered: &str) -> ApiResult<()> {
    if takes(headers, &[offered]) {
        return Ok(());
    }
    let text = format!("406: Not Acceptable\n\nAvailable representations: {offered}");
    Err(ApiError::new(406, "NotAcceptable", text).unhandled())
}

/// One alternative of an Accept header.
struct Clause<'a> {
    media: &'a str,
    params: Vec<(&'a str, &'a str)>,
    quality: f32,
}

fn clauses(accept: &str) -> Vec<Clause<'_>> {
    let mut all: Vec<Clause<'_>> = accept
        .split(',')
        .map(|clause| {
            let mut parts = clause.split(';').map(str::trim);
            let media = parts.next().unwrap_or_default();
            let params: Vec<_> = parts
                .filter_map(|p| p.split_once('='))
                .map(|(k, v)| (k.trim(), v.trim().trim_matches('"')))
                .collect();
            let quality = params
                .iter()
                .find(|(k, _)| *k == "q")
                .and_then(|(_, v)| v.parse().ok())
                .unwrap_or(1.0);
            Clause {
                media,
                params,
                quality,
            }
        })
        .filter(|c| !c.media.is_empty())
        .collect();
    all.sort_by(|a, b| b.quality.total_cmp(&a.quality));
    all
}

impl Clause<'_> {
    fn param(&self, key: &str) -> Option<&str> {
        self.params.iter().find(|(k, _)| *k == key).map(|(_, v)| *v)
    }

    fn form(&self, shapes: bool, query: &Query) -> ApiResult<Option<(Format, Shape)>> {
        let format = match self.media {
            "*/*" | "*" | "application/*" | "application/json" => Format::Json,
            "application/yaml" => Format::Yaml,
            _ => return Ok(None),
        };
        // Only JSON comes as a stream, and only as one of events.
        match self.param("stream") {
            Some(_) if format == Format::Yaml => return Ok(None),
            Some(stream) if stream != "watch" => return Ok(None),
            _ => {}
        }
        let Some(shape) = self.param("as") else {
            // A group or version without a kind asks for a form nobody has.
            let plain = self.param("g").is_none() && self.param("v").is_none();
            return Ok(plain.then_some((format, Shape::Object)));
        };
        let beta = match (self.param("g"), self.param("v")) {
            (Some("meta.k8s.io"), Some("v1")) => false,
            (Some("meta.k8s.io"), Some("v1beta1")) => true,
            _ => return Ok(None),
        };
        if !shapes {
            return Ok(None);
        }
        let shape = match shape {
            "Table" => Shape::Table {
                beta,
                include: include(query)?,
            },
            "PartialObjectMetadata" => Shape::Metadata { beta, list: false },
            "PartialObjectMetadataList" => Shape::Metadata { beta, list: true },
            _ => return Ok(None),
        };
        Ok(Some((format, shape)))
    }
}

fn include(query: &Query) -> ApiResult<Include> {
    match query.get("includeObject").unwrap_or_default() {
        "" | "Metadata" => Ok(Include::Metadata),
        "Object" => Ok(Include::Object),
        "None" => Ok(Include::None),
        other => Err(ApiError::bad_request(format!(
            "Unable to convert to Table as requested: includeObject: Invalid value: {other}: must be 'Metadata', 'Object', 'None', or empty",
            other = go::quote(other)
        ))),
    }
}

fn is_browser(headers: &HeaderMap) -> bool {
    let agent = headers
        .get(USER_AGENT)
        .and_then(|v| v.to_str().ok())
        .unwrap_or_default();
    ["curl", "Wget", "Mozilla"]
        .iter()
        .any(|known| agent.starts_with(known))
}

/// The media type of a body that is read as an object. Parameters without a value make it none.
pub(crate) fn object_type(headers: &HeaderMap) -> Option<String> {
    let raw = headers.get(CONTENT_TYPE).and_then(|v| v.to_str().ok());
    let mut parameters = raw.unwrap_or_default().split(';').skip(1).map(str::trim);
    let legible = parameters.all(|parameter| parameter.is_empty() || parameter.contains('='));
    legible.then(|| body_type(headers))
}

/// The media type of a body without its parameters; JSON when none is given.
pub(crate) fn body_type(headers: &HeaderMap) -> String {
    let raw = headers
        .get(CONTENT_TYPE)
        .and_then(|v| v.to_str().ok())
        .unwrap_or("application/json");
    let media = raw.split(';').next().unwrap_or_default().trim();
    if media.is_empty() {
        "application/json".into()
    } else {
        media.to_ascii_lowercase()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn form(accept: &str) -> ApiResult<Form> {
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, accept.parse().unwrap());
        Form::negotiate(&headers, &Query::default(), true)
    }

    #[test]
    fn the_first_acceptable_form_wins() {
        let table = Shape::Table {
            beta: false,
            include: Include::Metadata,
        };
        for (accept, format, shape) in [
            ("application/json", Format::Json, Shape::Object),
            ("*/*", Format::Json, Shape::Object),
            ("application/yaml", Format::Yaml, Shape::Object),
            (
                "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json",
                Format::Json,
                table,
            ),
            (
                "application/json;as=Table;v=v9;g=meta.k8s.io,application/json",
                Format::Json,
                Shape::Object,
            ),
            (
                "application/json;q=0.1, application/yaml;q=0.9",
                Format::Yaml,
                Shape::Object,
            ),
            (
                "application/vnd.kubernetes.protobuf, application/json",
                Format::Json,
                Shape::Object,
            ),
            (
                "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
                Format::Json,
                Shape::Metadata {
                    beta: false,
                    list: true,
                },
            ),
        ] {
            let got = form(accept).unwrap();
            assert_eq!((got.format, got.shape), (format, shape), "{accept}");
        }
        assert_eq!(
            form("application/vnd.kubernetes.protobuf").unwrap_err().code(),
            406
        );
        assert_eq!(
            form("application/json;as=Table;v=v9;g=meta.k8s.io")
                .unwrap_err()
                .code(),
            406
        );
    }
}
