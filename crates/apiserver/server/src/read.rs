// SPDX-License-Identifier: Apache-2.0
//! Get and list: from memory, at the newest revision or at one asked for, page by page.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig, URL_SAFE_NO_PAD};
use serde_json::{Value, json};

use crate::api::Api;
use crate::call::{Answer, Call};
use crate::negotiate::Form;
use crate::options::{ListOptions, Match};
use crate::registry::{Registry, Resource};
use crate::selector::{FieldSelector, LabelSelector};
use crate::status::{ApiError, ApiResult};
use crate::store::{Key, Record};
use crate::view::View;

/// Tokens as clients may hand them back: unpadded, and not fussy about the bits behind the end.
const LENIENT: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::URL_SAFE,
    GeneralPurposeConfig::new()
        .with_encode_padding(false)
        .with_decode_allow_trailing_bits(true)
        .with_decode_padding_mode(DecodePaddingMode::RequireNone),
);

/// What is wrong with text that is no base64.
fn illegal_base64(text: &str, error: base64::DecodeError) -> String {
    let at = match error {
        base64::DecodeError::InvalidByte(at, _) | base64::DecodeError::InvalidLastSymbol(at, _) => at,
        base64::DecodeError::InvalidLength(length) => length.saturating_sub(1),
        base64::DecodeError::InvalidPadding => text.find('=').unwrap_or(0),
    };
    format!("illegal base64 data at input byte {at}")
}

/// How long a request waits for a revision from the future.
const PATIENCE: Duration = Duration::from_secs(3);

/// Which objects of a collection are wanted.
#[derive(Debug, Clone)]
pub struct Filter {
    /// Namespace, `None` for all.
    pub namespace: Option<String>,
    /// Labels.
    pub labels: LabelSelector,
    /// Fields.
    pub fields: FieldSelector,
}

impl Filter {
    /// Reads the filter off a request and refuses what the resource cannot select by.
    pub fn parse(resource: &Resource, namespace: &str, options: &ListOptions) -> ApiResult<Self> {
        let labels = LabelSelector::parse(&options.labels).map_err(ApiError::bad_request)?;
        let fields = FieldSelector::parse(&options.fields).map_err(ApiError::bad_request)?;
        for term in &fields.0 {
            resource.check_field_label(&term.field)?;
        }
        let namespace = (resource.namespaced && !namespace.is_empty()).then(|| namespace.to_owned());
        Ok(Self {
            namespace,
            labels,
            fields,
        })
    }

    /// Whether everything in the namespace is wanted.
    pub fn takes_all(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    /// Whether a stored object is wanted. Parses it only when a field other than its name is asked for.
    pub fn wants(&self, view: &View<'_>, key: &Key, record: &Record) -> bool {
        if self.namespace.as_deref().is_some_and(|ns| ns != &*key.namespace) {
            return false;
        }
        if !self.labels.matches_facts(&record.facts) {
            return false;
        }
        let tree = std::cell::OnceCell::new();
        self.fields.matches(|field| match field {
            "metadata.name" => key.name.to_string(),
            "metadata.namespace" => key.namespace.to_string(),
            other => view
                .resource
                .field_value(tree.get_or_init(|| view.tree(record)), other),
        })
    }

    /// Whether objects have to be looked into, beyond their names and labels.
    pub fn reads_content(&self) -> bool {
        self.fields
            .0
            .iter()
            .any(|term| !matches!(term.field.as_str(), "metadata.name" | "metadata.namespace"))
    }

    /// The one name that can match, when the filter names one.
    pub fn only_name(&self) -> Option<&str> {
        self.fields
            .0
            .iter()
            .find(|t| t.field == "metadata.name" && t.equal)
            .map(|t| t.value.as_str())
    }
}

/// Where a page begins: revision of the list and the place in it.
#[derive(Debug, Clone, PartialEq)]
struct Token {
    /// `None` goes on in whatever state is the newest.
    revision: Option<u64>,
    /// The place, below what is listed: `/name`, or `/namespace/name` where all namespaces are.
    start: String,
}

impl Token {
    /// Goes on behind an object of a list.
    fn after(key: &Key, filter: &Filter, revision: u64) -> Self {
        let namespace = if filter.namespace.is_some() || key.namespace.is_empty() {
            String::new()
        } else {
            format!("/{}", key.namespace)
        };
        Self {
            revision: Some(revision),
            start: format!("{namespace}/{}\u{0}", key.name),
        }
    }

    /// The first key that may be on the page. It need not be that of an object.
    fn first(&self, filter: &Filter, namespaced: bool) -> Key {
        let below = self.start.strip_prefix('/').unwrap_or(&self.start);
        match &filter.namespace {
            Some(namespace) => Key::new(namespace, below),
            None if !namespaced => Key::new("", below),
            None => {
                let (namespace, name) = below.split_once('/').unwrap_or((below, ""));
                Key::new(namespace, name)
            }
        }
    }

    fn encode(&self) -> String {
        let text = json!({
            "v": "meta.k8s.io/v1",
            "rv": self.revision.map_or(json!(-1), |revision| json!(revision)),
            "start": self.start,
        });
        URL_SAFE_NO_PAD.encode(text.to_string())
    }

    fn decode(text: &str) -> ApiResult<Self> {
        let bad = |why: &str| {
            ApiError::bad_request(format!(
                "invalid continue token: continue key is not valid: {why}"
            ))
        };
        let bytes = LENIENT.decode(text).map_err(|e| bad(&illegal_base64(text, e)))?;
        let value = crate::decode::json(&bytes).map_err(|e| bad(&e))?.value;
        for (key, fits, wanted) in [
            ("v", value["v"].is_string(), "string"),
            ("rv", value["rv"].is_i64(), "int64"),
            ("start", value["start"].is_string(), "string"),
        ] {
            if !fits && !value[key].is_null() {
                let found = crate::decode::json_type(&value[key]);
                return Err(bad(&format!(
                    "json: cannot unmarshal {found} into Go struct field continueToken.{key} of type {wanted}"
                )));
            }
        }
        if value["v"] != "meta.k8s.io/v1" {
            return Err(bad(&format!(
                "server does not recognize this encoded version {}",
                value["v"].as_str().unwrap_or_default()
            )));
        }
        let start = value["start"].as_str().unwrap_or_default();
        let revision = value["rv"].as_i64().filter(|rv| *rv != 0);
        let revision = revision
            .ok_or_else(|| bad("incorrect encoded start resourceVersion (version meta.k8s.io/v1)"))?;
        if start.is_empty() {
            return Err(bad("encoded start key empty (version meta.k8s.io/v1)"));
        }
        // No way leads out of what is listed.
        let mut steps = start.strip_prefix('/').unwrap_or(start).split('/');
        if start != "/" && steps.any(|step| matches!(step, "" | "." | "..")) {
            return Err(bad(start));
        }
        Ok(Self {
            revision: u64::try_from(revision).ok(),
            start: start.to_owned(),
        })
    }
}

/// What a list found.
#[derive(Debug)]
pub struct Listing {
    /// Revision of the state listed.
    pub revision: u64,
    /// The objects.
    pub records: Vec<Arc<Record>>,
    /// Where the next page begins.
    next: Option<Key>,
    /// How many objects remain, when that is known.
    remaining: Option<usize>,
}

impl Listing {
    /// The list's metadata.
    pub fn metadata(&self, filter: &Filter) -> Value {
        let mut meta = json!({"resourceVersion": self.revision.to_string()});
        if let Some(last) = &self.next {
            meta["continue"] = json!(Token::after(last, filter, self.revision).encode());
            if let Some(remaining) = self.remaining {
                meta["remainingItemCount"] = json!(remaining);
            }
        }
        meta
    }
}

impl Api {
    /// One object.
    pub async fn get(&self, call: &Call, registry: &Registry, resource: &Resource) -> ApiResult<Answer> {
        let form = Form::negotiate(&call.headers, &call.query, true)?;
        if call.query.maybe_flag("export") == Some(true) {
            return Err(ApiError::bad_request(
                "the export parameter, deprecated since v1.14, is no longer supported",
            ));
        }
        let asked = call.query.get("resourceVersion").unwrap_or_default();
        if let Some(revision) = crate::options::revision(asked).map_err(ApiError::bad_request)? {
            self.wait_for(revision).await?;
        }
        let key = self.key_of(call, resource);
        let record = resource
            .table
            .get(&key)
            .ok_or_else(|| resource.not_found(&call.info.name))?;
        let form = form.for_object(resource)?;
        let record = self.present(resource, &record).await?;
        let view = View {
            resource,
            registry,
            form,
            clock: &self.clock,
        };
        Ok(Answer::object(200, form, view.body(&record)))
    }

    /// A collection.
    pub async fn list(&self, call: &Call, registry: &Registry, resource: &Resource) -> ApiResult<Answer> {
        let form = Form::negotiate(&call.headers, &call.query, true)?.for_list(resource)?;
        let options = ListOptions::parse(&call.query, false)?;
        let filter = Filter::parse(resource, &call.info.namespace, &options)?;
        let view = View {
            resource,
            registry,
            form,
            clock: &self.clock,
        };
        let listing = self.select(&view, &options, &filter).await?;
        let metadata = listing.metadata(&filter);
        let shown = self.present_all(resource, listing.records).await?;
        let body = view.list(&shown, metadata);
        Ok(Answer::object(200, form, body))
    }

    /// The objects a list is about.
    pub async fn select(
        &self,
        view: &View<'_>,
        options: &ListOptions,
        filter: &Filter,
    ) -> ApiResult<Listing> {
        let table = &view.resource.table;
        if !options.token.is_empty() {
            return self.next_page(view, options, filter).await;
        }
        let asked = options.list_revision()?;
        if let Some(revision) = asked {
            // A limit with an exact or positive revision pages through that state; anything else
            // is answered from the newest one, which is at least as new as asked for.
            let exact = options.version_match == Some(Match::Exact)
                || (options.version_match.is_none() && options.limit > 0 && revision > 0);
            if exact {
                self.wait_for(revision).await?;
                let items = self
                    .store
                    .at(table, filter.namespace.as_deref(), revision)
                    .await
                    .map_err(|_| {
                        ApiError::expired("The resourceVersion for the provided list is too old.")
                    })?;
                let items = self.selectable(view, filter, items).await?;
                return Ok(page(view, filter, items, revision, options.limit));
            }
            self.wait_for(revision).await?;
        }
        let limit = if asked == Some(0) { 0 } else { options.limit };
        if limit > 0 && filter.takes_all() {
            let (snapshot, more) =
                table.page(filter.namespace.as_deref(), None, limit, || self.store.revision());
            let next = (more > 0)
                .then(|| snapshot.items.last().map(|(k, _)| k.clone()))
                .flatten();
            let records = snapshot.items.into_iter().map(|(_, r)| r).collect();
            return Ok(Listing {
                revision: snapshot.revision,
                records,
                next,
                remaining: Some(more),
            });
        }
        if let (Some(name), Some(namespace)) = (
            filter.only_name(),
            filter
                .namespace
                .as_deref()
                .or((!view.resource.namespaced).then_some("")),
        ) {
            let revision = self.store.revision();
            let key = Key::new(namespace, name);
            let found = table.get(&key).filter(|r| filter.wants(view, &key, r));
            let revision = revision.max(found.as_ref().map_or(0, |r| r.revision));
            return Ok(Listing {
                revision,
                records: found.into_iter().collect(),
                next: None,
                remaining: None,
            });
        }
        let snapshot = table.snapshot(filter.namespace.as_deref(), || self.store.revision());
        let items = self.selectable(view, filter, snapshot.items).await?;
        Ok(page(view, filter, items, snapshot.revision, limit))
    }

    /// Objects in the version their fields are to be selected by.
    async fn selectable(
        &self,
        view: &View<'_>,
        filter: &Filter,
        items: Vec<(Key, Arc<Record>)>,
    ) -> ApiResult<Vec<(Key, Arc<Record>)>> {
        if filter.reads_content() {
            self.present_items(view.resource, items).await
        } else {
            Ok(items)
        }
    }

    async fn next_page(&self, view: &View<'_>, options: &ListOptions, filter: &Filter) -> ApiResult<Listing> {
        let token = Token::decode(&options.token)?;
        if !options.resource_version.is_empty() && options.resource_version != "0" {
            return Err(ApiError::bad_request(
                "specifying resource version is not allowed when using continue",
            ));
        }
        let table = &view.resource.table;
        let namespace = filter.namespace.as_deref();
        let (revision, state) = if let Some(revision) = token.revision {
            self.wait_for(revision).await?;
            (revision, self.store.at(table, namespace, revision).await)
        } else {
            let newest = table.snapshot(namespace, || self.store.revision());
            (newest.revision, Ok(newest.items))
        };
        let Ok(mut items) = state else {
            // What follows is what there is by then.
            let fresh = Token {
                revision: None,
                ..token
            };
            return Err(ApiError::expired(
                "The provided continue parameter is too old to display a consistent list result. You can start a new list without the continue parameter, or use the continue token in this response to retrieve the remainder of the results. Continuing with the provided token results in an inconsistent list - objects that were created, modified, or deleted between the time the first chunk was returned and now may show up in the list.",
            )
            .with_continue(fresh.encode()));
        };
        let first = token.first(filter, view.resource.namespaced);
        let from = items.partition_point(|(key, _)| *key < first);
        items.drain(..from);
        let items = self.selectable(view, filter, items).await?;
        // Whoever takes any state takes it whole.
        let limit = if options.resource_version == "0" {
            0
        } else {
            options.limit
        };
        Ok(page(view, filter, items, revision, limit))
    }

    /// Waits for a revision the client has seen elsewhere.
    pub async fn wait_for(&self, revision: u64) -> ApiResult<()> {
        if revision <= self.store.revision() || self.store.reached(revision, PATIENCE).await {
            return Ok(());
        }
        Err(ApiError::too_new(revision, self.store.revision()).retry_after(1))
    }

    /// The key of the object a request names.
    pub fn key_of(&self, call: &Call, resource: &Resource) -> Key {
        let namespace = if resource.namespaced {
            call.info.namespace.as_str()
        } else {
            ""
        };
        Key::new(namespace, &call.info.name)
    }
}

/// The wanted objects, cut to `limit`.
fn page(
    view: &View<'_>,
    filter: &Filter,
    items: Vec<(Key, Arc<Record>)>,
    revision: u64,
    limit: usize,
) -> Listing {
    let all = filter.takes_all();
    let total = items.len();
    let mut records = Vec::new();
    let mut last: Option<Key> = None;
    for (at, (key, record)) in items.into_iter().enumerate() {
        // A full page is followed by another when anything is left, wanted or not: what is left is
        // looked at when it is asked for.
        if limit > 0 && records.len() == limit {
            return Listing {
                revision,
                records,
                next: last,
                remaining: all.then_some(total - at),
            };
        }
        if all || filter.wants(view, &key, &record) {
            records.push(record);
            last = Some(key);
        }
    }
    Listing {
        revision,
        records,
        next: None,
        remaining: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_survive_the_round_trip() {
        let filter = |namespace: Option<&str>| Filter {
            namespace: namespace.map(str::to_owned),
            labels: LabelSelector::default(),
            fields: FieldSelector::default(),
        };
        for (namespace, start) in [(Some("ns"), "/name\u{0}"), (None, "/ns/name\u{0}")] {
            let filter = filter(namespace);
            let token = Token::after(&Key::new("ns", "name"), &filter, 7);
            assert_eq!(token.start, start);
            assert_eq!(Token::decode(&token.encode()).unwrap(), token);
            assert_eq!(token.first(&filter, true), Key::new("ns", "name\u{0}"));
        }
        for bad in ["!!!", "e30", "bm90anNvbg"] {
            assert_eq!(Token::decode(bad).unwrap_err().code(), 400, "{bad}");
        }
    }
}
