// SPDX-License-Identifier: Apache-2.0
//! Which rights are used, which are missing, which are too many.
//!
//! A [`Recorder`] notes every authorisation decision per user. From its [`Records`] and the roles
//! in force a [`Report`] says what a role lacks (as manifests ready to apply), what it grants in
//! vain and where it is broader than its use. Records of several runs can be merged; a report
//! names the scenarios it was made from, because rights used only in rare branches are not seen.

mod notes;
mod render;
mod report;

use notes::Notes;
pub use render::to_yaml;
pub use report::{Broad, Missing, Report, ReportOptions, ServedResource, Unused, report};

use crate::error::AccessError;
use crate::identity::User;
use crate::rbac::{Attributes, Decision};
use jiff::Timestamp;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};

/// Different names kept per verb, resource and namespace; further ones are noted without name.
const MAX_NAMES: usize = 100;
/// Different requests kept per user; further ones are only counted.
const MAX_REQUESTS: usize = 20_000;
/// Users kept; requests of further ones are only counted.
const MAX_USERS: usize = 1_000;

/// One kind of request.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Request {
    /// Verb.
    pub verb: String,
    /// API group.
    pub group: String,
    /// Plural resource; empty for paths.
    pub resource: String,
    /// Subresource, may be empty.
    pub subresource: String,
    /// Namespace; empty at the cluster scope.
    pub namespace: String,
    /// Name, when the request was about one object.
    pub name: String,
    /// Path, when the request was not about a resource.
    pub path: String,
}

impl Request {
    fn of(attributes: &Attributes<'_>) -> Self {
        Self {
            verb: attributes.verb.to_owned(),
            group: attributes.group.to_owned(),
            resource: attributes.resource.to_owned(),
            subresource: attributes.subresource.to_owned(),
            namespace: attributes.namespace.to_owned(),
            name: attributes.name.to_owned(),
            path: attributes.path.unwrap_or_default().to_owned(),
        }
    }

    pub(crate) fn attributes<'a>(&'a self, user: &'a User) -> Attributes<'a> {
        if self.resource.is_empty() {
            return Attributes::path(user, &self.verb, &self.path);
        }
        Attributes::resource(user, &self.verb, &self.group, &self.resource)
            .of_subresource(&self.subresource)
            .in_namespace(&self.namespace)
            .named(&self.name)
    }

    /// `pods` or `pods/status`.
    pub fn combined_resource(&self) -> String {
        if self.subresource.is_empty() {
            self.resource.clone()
        } else {
            format!("{}/{}", self.resource, self.subresource)
        }
    }

    fn fields(&self) -> [(&'static str, &String); 7] {
        [
            ("verb", &self.verb),
            ("group", &self.group),
            ("resource", &self.resource),
            ("subresource", &self.subresource),
            ("namespace", &self.namespace),
            ("name", &self.name),
            ("path", &self.path),
        ]
    }
}

/// What is known about one kind of request of one user.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Usage {
    /// How often RBAC allowed it.
    pub allowed: u64,
    /// How often RBAC refused it, or would have.
    pub denied: u64,
    /// When it was seen first.
    pub first: Option<Timestamp>,
    /// When it was seen last.
    pub last: Option<Timestamp>,
    /// The rule that allowed it, as `ClusterRole/name[0]`.
    pub rule: Option<String>,
}

impl Usage {
    fn note(&mut self, allowed: bool, now: Timestamp) {
        let counter = if allowed {
            &mut self.allowed
        } else {
            &mut self.denied
        };
        *counter = counter.saturating_add(1);
        self.last = Some(now);
    }

    fn add(&mut self, other: &Self) {
        self.allowed = self.allowed.saturating_add(other.allowed);
        self.denied = self.denied.saturating_add(other.denied);
        self.first = [self.first, other.first].into_iter().flatten().min();
        self.last = self.last.max(other.last);
        if other.rule.is_some() {
            self.rule.clone_from(&other.rule);
        }
    }
}

/// The requests of one user.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct UserRecord {
    /// Groups of the user, as last seen.
    pub groups: Vec<String>,
    /// The requests.
    pub requests: BTreeMap<Request, Usage>,
    names: BTreeMap<Request, usize>,
}

impl UserRecord {
    /// Adds a request; false when there is no room for another one.
    fn add(&mut self, mut request: Request, usage: &Usage) -> bool {
        if !self.requests.contains_key(&request) {
            if !request.name.is_empty() {
                let nameless = Request {
                    name: String::new(),
                    ..request.clone()
                };
                let count = self.names.entry(nameless.clone()).or_default();
                if *count < MAX_NAMES {
                    *count += 1;
                } else {
                    request = nameless;
                }
            }
            if self.requests.len() >= MAX_REQUESTS && !self.requests.contains_key(&request) {
                return false;
            }
        }
        self.requests.entry(request).or_default().add(usage);
        true
    }
}

/// Recorded requests of all users.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Records {
    /// What was run while recording.
    pub scenarios: BTreeSet<String>,
    /// Users by name.
    pub users: BTreeMap<String, UserRecord>,
    /// Requests that found no room. A report made from such records is not complete.
    pub dropped: u64,
}

impl Records {
    fn add(&mut self, user: &str, groups: &[String], request: Request, usage: &Usage) {
        if !self.users.contains_key(user) && self.users.len() >= MAX_USERS {
            self.dropped = self.dropped.saturating_add(1);
            return;
        }
        let record = self.users.entry(user.to_owned()).or_default();
        if record.groups != groups {
            record.groups = groups.to_vec();
        }
        if !record.add(request, usage) {
            self.dropped = self.dropped.saturating_add(1);
        }
    }

    /// Adds the records of another run.
    pub fn merge(&mut self, other: &Self) {
        self.scenarios.extend(other.scenarios.iter().cloned());
        self.dropped = self.dropped.saturating_add(other.dropped);
        for (user, record) in &other.users {
            for (request, usage) in &record.requests {
                self.add(user, &record.groups, request.clone(), usage);
            }
        }
    }

    /// The records as JSON, for a file that CI merges.
    pub fn to_value(&self) -> Value {
        let users: Map<String, Value> = self
            .users
            .iter()
            .map(|(name, record)| {
                let requests: Vec<Value> = record
                    .requests
                    .iter()
                    .map(|(request, usage)| request_value(request, usage))
                    .collect();
                (
                    name.clone(),
                    json!({"groups": record.groups, "requests": requests}),
                )
            })
            .collect();
        json!({"scenarios": self.scenarios, "dropped": self.dropped, "users": users})
    }

    /// Reads what [`Records::to_value`] wrote.
    pub fn from_value(value: &Value) -> Result<Self, AccessError> {
        let wrong = |what: &str| AccessError::Record(what.to_owned());
        let users = value
            .get("users")
            .and_then(Value::as_object)
            .ok_or_else(|| wrong("no users"))?;
        let mut records = Self {
            scenarios: strings(value.get("scenarios")).into_iter().collect(),
            dropped: value.get("dropped").and_then(Value::as_u64).unwrap_or_default(),
            ..Self::default()
        };
        for (name, user) in users {
            let groups = strings(user.get("groups"));
            let requests = user.get("requests").and_then(Value::as_array);
            for entry in requests.ok_or_else(|| wrong("a user without requests"))? {
                let (request, usage) = read_request(entry).ok_or_else(|| wrong("a request without verb"))?;
                records.add(name, &groups, request, &usage);
            }
        }
        Ok(records)
    }
}

fn strings(value: Option<&Value>) -> Vec<String> {
    let items = value.and_then(Value::as_array);
    items
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .map(str::to_owned)
        .collect()
}

fn request_value(request: &Request, usage: &Usage) -> Value {
    let mut out = Map::new();
    for (key, value) in request.fields() {
        if !value.is_empty() {
            out.insert(key.to_owned(), json!(value));
        }
    }
    out.insert("allowed".into(), json!(usage.allowed));
    out.insert("denied".into(), json!(usage.denied));
    for (key, at) in [("first", usage.first), ("last", usage.last)] {
        if let Some(at) = at {
            out.insert(key.to_owned(), json!(at.to_string()));
        }
    }
    if let Some(rule) = &usage.rule {
        out.insert("rule".into(), json!(rule));
    }
    Value::Object(out)
}

fn read_request(value: &Value) -> Option<(Request, Usage)> {
    let text = |key: &str| {
        value
            .get(key)
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned()
    };
    let time = |key: &str| {
        value
            .get(key)
            .and_then(Value::as_str)
            .and_then(|t| t.parse().ok())
    };
    let request = Request {
        verb: text("verb"),
        group: text("group"),
        resource: text("resource"),
        subresource: text("subresource"),
        namespace: text("namespace"),
        name: text("name"),
        path: text("path"),
    };
    let usage = Usage {
        allowed: value.get("allowed").and_then(Value::as_u64).unwrap_or_default(),
        denied: value.get("denied").and_then(Value::as_u64).unwrap_or_default(),
        first: time("first"),
        last: time("last"),
        rule: value.get("rule").and_then(Value::as_str).map(str::to_owned),
    };
    (!request.verb.is_empty()).then_some((request, usage))
}

/// Notes decisions while a server runs; shared between its requests.
#[derive(Debug, Default)]
pub struct Recorder(Mutex<Notes>);

impl Recorder {
    /// An empty recorder.
    pub fn new() -> Self {
        Self::default()
    }

    fn with<T>(&self, work: impl FnOnce(&mut Notes) -> T) -> T {
        work(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Names what is being run; reports show it.
    pub fn scenario(&self, name: &str) {
        self.with(|notes| notes.records.scenarios.insert(name.to_owned()));
    }

    /// Notes a decision of RBAC. In shadow mode the request proceeds all the same.
    pub fn record(&self, attributes: &Attributes<'_>, decision: &Decision, now: Timestamp) {
        self.with(|notes| notes.count(attributes, decision, now));
    }

    /// What has been noted so far.
    pub fn records(&self) -> Records {
        self.with(|notes| {
            notes.settle();
            notes.records.clone()
        })
    }

    /// Forgets everything.
    pub fn clear(&self) {
        self.with(|notes| *notes = Notes::default());
    }
}
