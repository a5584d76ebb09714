// SPDX-License-Identifier: Apache-2.0
//! How documents are sent: by hash, so that clients keep them, and only to those that can read them.

use std::io::{Read, Write};

use bytes::Bytes;
use cobaltcore_builtins::OpenApi as Edition;
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use http::header::{
    ACCEPT, ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, ETAG, EXPIRES, IF_NONE_MATCH, LOCATION, VARY,
};
use jiff::{Timestamp, ToSpan};
use serde_json::Value;

use crate::call::{Answer, Call};
use crate::status::{ApiError, ApiResult};

/// Documents below this size are not worth compressing on the wire.
const COMPRESS_ABOVE: usize = 128 << 10;

/// A finished document. JSON about schemas shrinks to a tenth, so only the compressed form is kept.
#[derive(Debug, Clone)]
pub(super) struct Kept {
    /// Hash of the document, without quotes.
    pub(super) etag: String,
    gzip: Bytes,
    size: usize,
    encoding: Encoding,
}

impl Kept {
    /// Keeps a document.
    pub(super) fn new(document: &[u8], encoding: Encoding) -> Self {
        let mut encoder = GzEncoder::new(Vec::with_capacity(document.len() / 8), Compression::fast());
        // Writing into a vector cannot fail.
        let _ = encoder.write_all(document);
        Self {
            etag: hash(document),
            gzip: encoder.finish().unwrap_or_default().into(),
            size: document.len(),
            encoding,
        }
    }

    fn plain(&self) -> Bytes {
        let mut document = Vec::with_capacity(self.size);
        let _ = GzDecoder::new(&*self.gzip).read_to_end(&mut document);
        document.into()
    }
}

/// The hash of a document, as the reference forms it.
pub(super) fn hash(document: &[u8]) -> String {
    use std::fmt::Write;
    let digest = ring::digest::digest(&ring::digest::SHA512, document);
    digest
        .as_ref()
        .iter()
        .fold(String::with_capacity(128), |mut text, byte| {
            let _ = write!(text, "{byte:02X}");
            text
        })
}

/// Where a version 3 document is found.
pub(super) fn address(path: &str, etag: &str) -> String {
    format!("/openapi/v3/{path}?hash={etag}")
}

/// The protobuf form of version 2, under its two names.
const PROTOBUF: [&str; 2] = [
    "application/com.github.proto-openapi.spec.v2.v1.0+protobuf",
    "application/com.github.proto-openapi.spec.v2@v1.0+protobuf",
];

/// How a document is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Encoding {
    /// JSON.
    Json,
    /// Protobuf; version 2 only.
    Protobuf,
}

impl Encoding {
    /// The first encoding the client reads, 406 without a body if there is none.
    pub(super) fn negotiate(call: &Call, edition: Edition) -> ApiResult<Self> {
        let accept: Vec<&str> = call
            .headers
            .get_all(ACCEPT)
            .iter()
            .filter_map(|v| v.to_str().ok())
            .collect();
        let accept = accept.join(",");
        if accept.trim().is_empty() {
            return Ok(Self::Json);
        }
        let mut clauses: Vec<(f32, &str)> = accept
            .split(',')
            .map(|clause| {
                let mut parts = clause.split(';').map(str::trim);
                let media = parts.next().unwrap_or_default();
                let quality = parts
                    .find_map(|p| p.strip_prefix("q="))
                    .and_then(|q| q.parse().ok())
                    .unwrap_or(1.0);
                (quality, media)
            })
            .filter(|(quality, _)| *quality > 0.0)
            .collect();
        clauses.sort_by(|a, b| b.0.total_cmp(&a.0));
        let read = clauses.into_iter().find_map(|(_, media)| match media {
            "application/json" | "application/*" | "*/*" => Some(Self::Json),
            _ if edition == Edition::V2 && PROTOBUF.contains(&media) => Some(Self::Protobuf),
            _ => None,
        });
        read.ok_or_else(|| ApiError::text(406, ""))
    }

    fn content_type(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::Protobuf => PROTOBUF[0],
        }
    }
}

/// The answer when there is no such document.
pub(super) fn nothing() -> Answer {
    Answer::bytes(404, "text/plain; charset=utf-8", Bytes::new())
}

/// The index.
pub(super) fn index(index: &Value) -> Answer {
    let body = crate::store::serialize(index);
    let etag = format!("\"{}\"", hash(&body));
    // The index names no type of its own and is taken for what it looks like.
    Answer::bytes(200, "text/plain; charset=utf-8", body.into()).with(ETAG, etag)
}

/// A document of version 3: for ever under its hash, moved under a wrong one.
pub(super) fn versioned(call: &Call, path: &str, kept: &Kept, now: Timestamp) -> Answer {
    match call.query.get("hash").filter(|hash| !hash.is_empty()) {
        None => conditional(call, kept),
        Some(hash) if hash == kept.etag => conditional(call, kept)
            .with(CACHE_CONTROL, "public, immutable")
            .with(EXPIRES, in_a_year(now)),
        Some(_) => {
            let answer = Answer::bytes(301, "application/json", Bytes::new());
            answer
                .with(LOCATION, address(path, &kept.etag))
                .with(ETAG, format!("\"{}\"", kept.etag))
                .with(VARY, "Accept")
        }
    }
}

/// A document, unless the client has it.
pub(super) fn conditional(call: &Call, kept: &Kept) -> Answer {
    let etag = format!("\"{}\"", kept.etag);
    let known = call.header(&IF_NONE_MATCH).is_some_and(|sent| {
        sent.split(',')
            .map(str::trim)
            .any(|tag| tag == "*" || tag.strip_prefix("W/").unwrap_or(tag) == etag)
    });
    let content_type = kept.encoding.content_type();
    let answer = if known {
        Answer::bytes(304, content_type, Bytes::new())
    } else if kept.size > COMPRESS_ABOVE && reads_gzip(call) {
        Answer::bytes(200, content_type, kept.gzip.clone())
            .with(CONTENT_ENCODING, "gzip")
            .with(VARY, "Accept-Encoding")
    } else {
        Answer::bytes(200, content_type, kept.plain())
    };
    answer.with(ETAG, etag).with(VARY, "Accept")
}

fn reads_gzip(call: &Call) -> bool {
    let sent = call.headers.get_all(ACCEPT_ENCODING);
    sent.iter()
        .filter_map(|v| v.to_str().ok())
        .flat_map(|v| v.split(','))
        .any(|coding| coding.trim() == "gzip")
}

fn in_a_year(now: Timestamp) -> String {
    let now = now.to_zoned(jiff::tz::TimeZone::UTC);
    let then = now.checked_add(1.year()).unwrap_or(now);
    then.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string()
}
