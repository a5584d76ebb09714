// SPDX-License-Identifier: Apache-2.0
//! What a request asks for: path, method and query become verb, group, version, resource,
//! subresource, namespace and name. Custom resources come and go, so this is a parser and not a
//! route table; whether the resource exists is decided later, after authorisation.

use std::borrow::Cow;

use http::Method;

/// The attributes of a request, as authorisation and routing see them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RequestInfo {
    /// Below `/api/<version>` or `/apis/<group>/<version>` with at least a resource.
    pub is_resource: bool,
    /// The whole path as sent.
    pub path: String,
    /// get, list, watch, create, update, patch, delete, deletecollection; lower-case method otherwise.
    pub verb: &'static str,
    /// API group, empty for the core group.
    pub group: String,
    /// API version.
    pub version: String,
    /// Plural resource name.
    pub resource: String,
    /// Subresource, empty for none.
    pub subresource: String,
    /// Namespace, empty for cluster scope and all namespaces.
    pub namespace: String,
    /// Object name, empty for collections.
    pub name: String,
    /// Path segments beyond the subresource.
    pub rest: Vec<String>,
}

impl RequestInfo {
    /// Reads the attributes off a request line. `query` is needed because `watch` and a
    /// `metadata.name` field selector change what is asked for.
    pub fn parse(method: &Method, path: &str, query: &Query) -> Self {
        let mut info = Self {
            path: path.to_owned(),
            verb: plain_verb(method),
            ..Self::default()
        };
        // Nothing between two slashes is a name too, an empty one; only the ends do not matter.
        let decoded = decode(path, false);
        let inner = decoded.strip_prefix('/').unwrap_or(&decoded);
        let inner = inner.strip_suffix('/').unwrap_or(inner);
        let segments: Vec<String> = inner.split('/').map(str::to_owned).collect();
        let mut rest = segments.as_slice();
        match rest {
            [api, version, tail @ ..] if api == "api" => {
                info.version.clone_from(version);
                rest = tail;
            }
            [apis, group, version, tail @ ..] if apis == "apis" && !group.is_empty() => {
                info.group.clone_from(group);
                info.version.clone_from(version);
                rest = tail;
            }
            _ => return info,
        }
        if rest.is_empty() {
            return info;
        }
        info.is_resource = true;
        let mut legacy_watch = false;
        if rest[0] == "watch" && rest.len() > 1 {
            legacy_watch = true;
            rest = &rest[1..];
        }
        if rest[0] == "namespaces" && rest.len() > 1 {
            info.namespace.clone_from(&rest[1]);
            // `namespaces/x/status` and `namespaces/x/finalize` are the namespace itself.
            if rest.len() > 2 && !matches!(rest[2].as_str(), "status" | "finalize") {
                rest = &rest[2..];
            }
        }
        info.resource.clone_from(&rest[0]);
        if let Some(name) = rest.get(1) {
            info.name.clone_from(name);
        }
        if let Some(sub) = rest.get(2) {
            info.subresource.clone_from(sub);
        }
        info.rest = rest.get(3..).unwrap_or_default().to_vec();
        info.verb = info.resource_verb(method, query, legacy_watch);
        if info.name.is_empty()
            && matches!(info.verb, "list" | "watch" | "deletecollection")
            && let Some(name) = query.get("fieldSelector").and_then(single_name)
        {
            info.name = name;
        }
        info
    }

    /// Whether the path names one object (a `metadata.name` selector on a collection does not).
    pub fn is_collection(&self) -> bool {
        matches!(self.verb, "list" | "deletecollection" | "watch")
    }

    fn resource_verb(&self, method: &Method, query: &Query, legacy_watch: bool) -> &'static str {
        let collection = self.name.is_empty();
        // Under the old paths of watches there is nothing else, whatever the method.
        if legacy_watch {
            return "watch";
        }
        match *method {
            Method::GET | Method::HEAD if collection && query.flag("watch") => "watch",
            Method::GET | Method::HEAD if collection => "list",
            Method::GET | Method::HEAD => "get",
            Method::POST => "create",
            Method::PUT => "update",
            Method::PATCH => "patch",
            Method::DELETE if collection => "deletecollection",
            Method::DELETE => "delete",
            // Nobody is allowed what has no name.
            _ => "",
        }
    }
}

fn plain_verb(method: &Method) -> &'static str {
    match *method {
        Method::GET => "get",
        Method::HEAD => "head",
        Method::POST => "post",
        Method::PUT => "put",
        Method::PATCH => "patch",
        Method::DELETE => "delete",
        Method::OPTIONS => "options",
        _ => "unknown",
    }
}

/// `metadata.name=x` somewhere in a field selector names exactly one object.
fn single_name(selector: &str) -> Option<String> {
    selector.split(',').find_map(|term| {
        let (key, value) = term.split_once('=')?;
        let value = value.strip_prefix('=').unwrap_or(value);
        (key.trim() == "metadata.name" && !value.is_empty()).then(|| value.trim().to_owned())
    })
}

/// Query parameters in the order sent. Unknown ones are simply never asked for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Query(Vec<(String, String)>);

impl Query {
    /// Parses the part after `?`.
    pub fn parse(raw: &str) -> Self {
        Self(
            raw.split('&')
                // The reference does not read a pair with a semicolon at all.
                .filter(|pair| !pair.is_empty() && !pair.contains(';'))
                .map(|pair| {
                    let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
                    (decode(key, true).into_owned(), decode(value, true).into_owned())
                })
                .collect(),
        )
    }

    /// The first value of a parameter.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.0.iter().find(|(k, _)| k == key).map(|(_, v)| v.as_str())
    }

    /// All values of a parameter.
    pub fn all<'a>(&'a self, key: &'a str) -> impl Iterator<Item = &'a str> + 'a {
        self.0
            .iter()
            .filter(move |(k, _)| k == key)
            .map(|(_, v)| v.as_str())
    }

    /// A boolean parameter: present and neither `0` nor `false`.
    pub fn flag(&self, key: &str) -> bool {
        self.get(key)
            .is_some_and(|v| v != "0" && !v.eq_ignore_ascii_case("false"))
    }

    /// A boolean parameter that tells absence from `false`.
    pub fn maybe_flag(&self, key: &str) -> Option<bool> {
        self.get(key).map(|_| self.flag(key))
    }
}

/// Percent-decoding; `+` is a blank in queries only.
fn decode(text: &str, query: bool) -> Cow<'_, str> {
    if !text.bytes().any(|b| b == b'%' || (query && b == b'+')) {
        return Cow::Borrowed(text);
    }
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        let hex = bytes
            .get(at + 1..at + 3)
            .and_then(|pair| std::str::from_utf8(pair).ok());
        match (byte, hex.and_then(|pair| u8::from_str_radix(pair, 16).ok())) {
            (b'%', Some(decoded)) => {
                out.push(decoded);
                at += 3;
                continue;
            }
            (b'+', _) if query => out.push(b' '),
            _ => out.push(byte),
        }
        at += 1;
    }
    Cow::Owned(String::from_utf8_lossy(&out).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(method: &Method, uri: &str) -> RequestInfo {
        let (path, query) = uri.split_once('?').unwrap_or((uri, ""));
        RequestInfo::parse(method, path, &Query::parse(query))
    }

    #[test]
    fn paths_become_attributes() {
        let table = [
            (
                Method::GET,
                "/api/v1/namespaces",
                "list",
                "namespaces",
                "",
                "",
                "",
            ),
            (
                Method::GET,
                "/api/v1/namespaces/a",
                "get",
                "namespaces",
                "a",
                "a",
                "",
            ),
            (
                Method::PUT,
                "/api/v1/namespaces/a/finalize",
                "update",
                "namespaces",
                "a",
                "a",
                "finalize",
            ),
            (
                Method::GET,
                "/api/v1/namespaces/a/pods",
                "list",
                "pods",
                "a",
                "",
                "",
            ),
            (
                Method::GET,
                "/api/v1/namespaces/a/pods?watch=1",
                "watch",
                "pods",
                "a",
                "",
                "",
            ),
            (
                Method::GET,
                "/api/v1/watch/namespaces/a/pods",
                "watch",
                "pods",
                "a",
                "",
                "",
            ),
            (
                Method::DELETE,
                "/api/v1/pods",
                "deletecollection",
                "pods",
                "",
                "",
                "",
            ),
            (
                Method::PATCH,
                "/apis/apps/v1/namespaces/a/deployments/d/scale",
                "patch",
                "deployments",
                "a",
                "d",
                "scale",
            ),
            (
                Method::GET,
                "/api/v1/pods?watch=true&fieldSelector=metadata.name%3Dx",
                "watch",
                "pods",
                "",
                "x",
                "",
            ),
        ];
        for (method, uri, verb, resource, namespace, name, subresource) in table {
            let got = info(&method, uri);
            assert!(got.is_resource, "{uri}");
            assert_eq!(
                (
                    got.verb,
                    &*got.resource,
                    &*got.namespace,
                    &*got.name,
                    &*got.subresource
                ),
                (verb, resource, namespace, name, subresource),
                "{uri}"
            );
        }
    }

    #[test]
    fn discovery_paths_are_no_resources() {
        for uri in [
            "/",
            "/api",
            "/apis",
            "/apis/apps",
            "/apis/apps/v1",
            "/healthz",
            "/openapi/v3",
        ] {
            assert!(!info(&Method::GET, uri).is_resource, "{uri}");
        }
    }

    #[test]
    fn query_values_are_decoded() {
        let query = Query::parse("labelSelector=a%3Db%2Cc+in+%28d%29&watch&limit=5&pretty=false");
        assert_eq!(query.get("labelSelector"), Some("a=b,c in (d)"));
        assert!(query.flag("watch"));
        assert!(!query.flag("pretty"));
        assert_eq!(query.maybe_flag("absent"), None);
    }
}
