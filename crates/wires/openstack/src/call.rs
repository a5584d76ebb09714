// SPDX-License-Identifier: Apache-2.0
//! What is asked of a service: a `Call` is the fixed part (method, route, microversions, whether
//! it may be repeated), a `Request` is one call with its objects, query and body filled in. Paths
//! are made from the route alone, so that every object name is escaped and every metric has the
//! same route label.

use std::fmt;

use bytes::Bytes;
use serde::Serialize;

use crate::version::Microversion;

/// An OpenStack service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Service {
    /// Identity.
    Keystone,
    /// Compute.
    Nova,
    /// Resource providers, inventories and allocations.
    Placement,
    /// Images.
    Glance,
    /// Networks.
    Neutron,
    /// Volumes.
    Cinder,
}

impl Service {
    /// Its project name, as people and metrics call it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Keystone => "keystone",
            Self::Nova => "nova",
            Self::Placement => "placement",
            Self::Glance => "glance",
            Self::Neutron => "neutron",
            Self::Cinder => "cinder",
        }
    }

    /// The types it may have in a catalog, the official one first.
    pub(crate) const fn catalog_types(self) -> &'static [&'static str] {
        match self {
            Self::Keystone => &["identity"],
            Self::Nova => &["compute"],
            Self::Placement => &["placement"],
            Self::Glance => &["image"],
            Self::Neutron => &["network"],
            Self::Cinder => &["block-storage", "volumev3", "volume"],
        }
    }

    /// The path segment of the API version spoken here; catalogs name it or leave it out.
    pub(crate) const fn version_segment(self) -> Option<&'static str> {
        match self {
            Self::Keystone => Some("v3"),
            Self::Nova => Some("v2.1"),
            Self::Placement => None,
            Self::Glance => Some("v2"),
            Self::Neutron => Some("v2.0"),
            Self::Cinder => Some("v3"),
        }
    }

    /// What stands before the number in `OpenStack-API-Version`; none without microversions.
    pub(crate) const fn microversion_name(self) -> Option<&'static str> {
        match self {
            Self::Nova => Some("compute"),
            Self::Placement => Some("placement"),
            Self::Cinder => Some("volume"),
            Self::Keystone | Self::Glance | Self::Neutron => None,
        }
    }
}

impl fmt::Display for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Whether a call may be sent a second time when nobody knows what became of the first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Repeat {
    /// The second time changes nothing: reads, deletions, and writes of a whole state.
    Safe,
    /// The second time may do it twice: creations and actions.
    Once,
}

/// The fixed part of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Call {
    /// Which service answers.
    pub service: Service,
    /// What it does, in words: `live-migrate a server`.
    pub name: &'static str,
    /// The HTTP method.
    pub method: &'static str,
    /// The path below the endpoint, with a name in braces for every object: `/servers/{server}`.
    pub route: &'static str,
    /// Whether it may be repeated.
    pub repeat: Repeat,
    /// The oldest microversion at which it means what we mean.
    pub(crate) least: Microversion,
    /// The newest microversion whose answer is understood here.
    pub(crate) best: Microversion,
}

impl Call {
    const fn new(
        method: &'static str,
        repeat: Repeat,
        service: Service,
        name: &'static str,
        route: &'static str,
    ) -> Self {
        let (least, best) = match service {
            // server and service ids are UUIDs since 2.53; 2.90 keeps state over an evacuation
            Service::Nova => (Microversion::new(2, 53), Microversion::new(2, 90)),
            // generations of consumers since 1.28
            Service::Placement => (Microversion::new(1, 28), Microversion::new(1, 39)),
            Service::Cinder => (Microversion::new(3, 0), Microversion::new(3, 59)),
            _ => (Microversion::new(0, 0), Microversion::new(0, 0)),
        };
        Self {
            service,
            name,
            method,
            route,
            repeat,
            least,
            best,
        }
    }

    pub(crate) const fn get(service: Service, name: &'static str, route: &'static str) -> Self {
        Self::new("GET", Repeat::Safe, service, name, route)
    }

    pub(crate) const fn put(service: Service, name: &'static str, route: &'static str) -> Self {
        Self::new("PUT", Repeat::Safe, service, name, route)
    }

    pub(crate) const fn delete(service: Service, name: &'static str, route: &'static str) -> Self {
        Self::new("DELETE", Repeat::Safe, service, name, route)
    }

    pub(crate) const fn post(service: Service, name: &'static str, route: &'static str) -> Self {
        Self::new("POST", Repeat::Once, service, name, route)
    }

    pub(crate) const fn repeatable(mut self) -> Self {
        self.repeat = Repeat::Safe;
        self
    }

    pub(crate) const fn versions(mut self, least: Microversion, best: Microversion) -> Self {
        self.least = least;
        self.best = best;
        self
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.service, self.name)
    }
}

/// One call with everything filled in.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    pub(crate) call: &'static Call,
    /// What it is about, for messages: `server 381239f5-...`.
    pub(crate) object: String,
    pub(crate) path: String,
    pub(crate) query: Vec<(&'static str, String)>,
    pub(crate) body: Bytes,
    pub(crate) content_type: &'static str,
    pub(crate) least: Microversion,
    pub(crate) best: Microversion,
    /// An object of the route has no name: what was meant for one would hit them all.
    pub(crate) nameless: bool,
}

impl Request {
    /// A call on objects, in the order of the names in its route.
    pub(crate) fn new(call: &'static Call, objects: &[&str]) -> Self {
        let (path, object) = fill(call.route, objects);
        Self {
            nameless: objects.iter().any(|object| object.is_empty()),
            call,
            object,
            path,
            query: Vec::new(),
            body: Bytes::new(),
            content_type: "",
            least: call.least,
            best: call.best,
        }
    }

    /// What messages say the call is about, where the route alone does not tell.
    pub(crate) fn about(mut self, object: impl Into<String>) -> Self {
        self.object = object.into();
        self
    }

    pub(crate) fn query(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.query.push((name, value.into()));
        self
    }

    pub(crate) fn maybe(self, name: &'static str, value: Option<impl Into<String>>) -> Self {
        match value {
            Some(value) => self.query(name, value),
            None => self,
        }
    }

    /// Replaces a query parameter or adds it.
    pub(crate) fn set_query(&mut self, name: &'static str, value: String) {
        self.query.retain(|(known, _)| *known != name);
        self.query.push((name, value));
    }

    pub(crate) fn json(mut self, body: &impl Serialize) -> Self {
        // our own bodies have string keys only, which is all that serialization could refuse
        self.body = serde_json::to_vec(body).map(Bytes::from).unwrap_or_default();
        self.content_type = "application/json";
        self
    }

    pub(crate) fn bytes(mut self, body: Bytes, content_type: &'static str) -> Self {
        self.body = body;
        self.content_type = content_type;
        self
    }

    /// Needs at least this microversion, because of what the body says.
    pub(crate) fn at_least(mut self, version: Microversion) -> Self {
        self.least = self.least.max(version);
        self.best = self.best.max(version);
        self
    }

    /// Speaks this microversion or an older one.
    pub(crate) fn at_most(mut self, version: Microversion) -> Self {
        self.best = version;
        self
    }
}

/// The route with its objects in place, and the words for what it is about.
fn fill(route: &str, objects: &[&str]) -> (String, String) {
    let mut path = String::with_capacity(route.len() + 36);
    let mut about = String::new();
    let mut objects = objects.iter();
    let mut rest = route;
    while let Some((before, after)) = rest.split_once('{') {
        path.push_str(before);
        let (name, after) = after.split_once('}').unwrap_or((after, ""));
        let object = objects.next().copied().unwrap_or_default();
        path.extend(escape(object));
        if !about.is_empty() {
            about.push_str(", ");
        }
        about.push_str(name);
        about.push(' ');
        about.push_str(object);
        rest = after;
    }
    path.push_str(rest);
    (path, about)
}

/// One path segment. A dot alone would be taken for a folder, so dots are escaped in such names.
fn escape(segment: &str) -> impl Iterator<Item = char> + '_ {
    let only_dots = !segment.is_empty() && segment.bytes().all(|byte| byte == b'.');
    segment.bytes().flat_map(move |byte| {
        let plain = byte.is_ascii_alphanumeric()
            || matches!(byte, b'-' | b'_' | b'~')
            || (byte == b'.' && !only_dots);
        let hex = |nibble: u8| {
            char::from_digit(u32::from(nibble), 16)
                .unwrap_or('0')
                .to_ascii_uppercase()
        };
        let text = if plain {
            [Some(char::from(byte)), None, None]
        } else {
            [Some('%'), Some(hex(byte >> 4)), Some(hex(byte & 15))]
        };
        text.into_iter().flatten()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHOW: Call = Call::get(Service::Nova, "show", "/servers/{server}/migrations/{migration}");

    #[test]
    fn a_route_is_filled_and_escaped() {
        let request = Request::new(&SHOW, &["a/../b c", "7"]);
        assert_eq!(request.path, "/servers/a%2F..%2Fb%20c/migrations/7");
        assert_eq!(request.object, "server a/../b c, migration 7");
    }

    #[test]
    fn a_name_of_dots_is_no_folder() {
        let request = Request::new(&SHOW, &["..", "1"]);
        assert_eq!(request.path, "/servers/%2E%2E/migrations/1");
    }

    #[test]
    fn a_parameter_is_replaced() {
        let mut request = Request::new(&SHOW, &["a", "1"])
            .query("marker", "x")
            .query("limit", "5");
        request.set_query("marker", "y".to_owned());
        assert_eq!(
            request.query,
            [("limit", "5".to_owned()), ("marker", "y".to_owned())]
        );
    }
}
