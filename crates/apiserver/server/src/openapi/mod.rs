// SPDX-License-Identifier: Apache-2.0
//! OpenAPI documents about the served types, made on first request and kept, compressed, until the
//! types they are about change. A document is current as long as it was made of the very resources
//! the registry serves, so a change of one definition leaves all other group versions alone.

mod catalogue;
mod custom;
mod document;
mod names;
mod parameters;
mod paths;
mod protobuf;
mod render;
mod serve;

use std::collections::BTreeMap;
use std::sync::Arc;

use cobaltcore_builtins::OpenApi as Edition;
use parking_lot::Mutex;
use serde_json::{Value, json};

use self::catalogue::Catalogue;
use self::document::{PATHS, Subject};
use self::serve::{Encoding, Kept};
use crate::api::Api;
use crate::call::{Answer, Call};
use crate::registry::{Registry, Resource};
use crate::status::{ApiError, ApiResult};

/// The documents made so far.
#[derive(Debug, Default)]
pub struct OpenApi {
    made: Mutex<Made>,
}

#[derive(Debug, Default)]
struct Made {
    /// Version 3, by path below `/openapi/v3/`.
    three: BTreeMap<String, Document>,
    /// The built-in definitions of version 3, from the first request on: a new definition then costs
    /// its own document and nothing else.
    catalogue: Option<Arc<Catalogue>>,
    /// Version 2.
    two: Option<Document>,
    /// Version 2 as protobuf.
    two_protobuf: Option<Document>,
}

/// A document and what it was made of. The index needs the hash of every document, so all are made
/// once; only those somebody asked for are kept.
#[derive(Debug)]
struct Document {
    made_of: Vec<Arc<Resource>>,
    etag: String,
    kept: Option<Kept>,
}

impl Made {
    fn catalogue(&mut self) -> Arc<Catalogue> {
        self.catalogue
            .get_or_insert_with(|| Arc::new(Catalogue::new(Edition::V3)))
            .clone()
    }
}

impl Document {
    fn is_current(&self, resources: &[Arc<Resource>]) -> bool {
        self.made_of.len() == resources.len()
            && self.made_of.iter().zip(resources).all(|(a, b)| Arc::ptr_eq(a, b))
    }
}

impl OpenApi {
    /// Drops documents that a change of the served types made stale. Runs in the writer, so it
    /// does not wait for a document in the making; what it then leaves behind is recognised as stale
    /// by the next request.
    pub fn forget(&self) {
        if let Some(mut made) = self.made.try_lock() {
            made.two = None;
            made.two_protobuf = None;
            made.three
                .retain(|_, document| document.made_of.iter().all(|r| r.as_builtin().is_some()));
        }
    }
}

/// Everything documents are about, in index order.
fn subjects(registry: &Registry) -> Vec<(Subject, Vec<Arc<Resource>>)> {
    let mut all: Vec<(Subject, Vec<Arc<Resource>>)> = PATHS
        .iter()
        .map(|path| (Subject::Path(path), Vec::new()))
        .collect();
    for (name, group) in registry.groups().filter(|(_, g)| !g.is_empty()) {
        let mut builtin = false;
        for version in group.served() {
            let resources: Vec<Arc<Resource>> = version.served().cloned().collect();
            builtin |= resources.iter().any(|r| r.as_builtin().is_some());
            all.push((
                Subject::Version(name.to_string(), version.name.to_string()),
                resources,
            ));
        }
        if builtin && !name.is_empty() {
            all.push((Subject::Group(name.to_string()), Vec::new()));
        }
    }
    all.sort_by_key(|(subject, _)| subject.path());
    all
}

impl Api {
    /// `/openapi/v2`, `/openapi/v3` and what lies below. Making documents takes milliseconds of
    /// computing, which is kept off the threads that serve requests.
    pub async fn openapi(self: &Arc<Self>, call: &Call, segments: &[&str]) -> ApiResult<Answer> {
        match segments {
            ["v2"] => {
                let encoding = Encoding::negotiate(call, Edition::V2)?;
                let kept = self.aside(move |api| api.swagger(encoding)).await?;
                Ok(serve::conditional(call, &kept))
            }
            ["v3"] => self.aside(|api| serve::index(&api.index())).await,
            ["v3", path @ ..] => {
                Encoding::negotiate(call, Edition::V3)?;
                let path = path.join("/");
                let wanted = path.clone();
                let kept = self.aside(move |api| api.version_three(&wanted)).await?;
                Ok(kept.map_or_else(serve::nothing, |kept| {
                    serve::versioned(call, &path, &kept, self.clock.now())
                }))
            }
            _ => Err(ApiError::no_such_path()),
        }
    }

    async fn aside<T: Send + 'static>(
        self: &Arc<Self>,
        make: impl FnOnce(&Self) -> T + Send + 'static,
    ) -> ApiResult<T> {
        let api = self.clone();
        let made = tokio::task::spawn_blocking(move || make(&api)).await;
        made.map_err(|_| ApiError::internal("the document could not be made"))
    }

    /// The stored definition behind a custom resource.
    fn definition_of(&self, resource: &Resource) -> Option<Value> {
        resource.as_custom()?;
        let name = format!("{}.{}", resource.plural, resource.group);
        Some(
            self.lookup("apiextensions.k8s.io", "customresourcedefinitions", "", &name)?
                .parse(),
        )
    }

    /// `/openapi/v3`.
    fn index(&self) -> Value {
        let subjects = subjects(&self.types());
        let mut made = self.openapi.made.lock();
        let catalogue = made.catalogue();
        let mut paths = serde_json::Map::new();
        let mut current = BTreeMap::new();
        for (subject, resources) in subjects {
            let path = subject.path();
            let known = made.three.remove(&path).filter(|d| d.is_current(&resources));
            let document = known.unwrap_or_else(|| {
                let bytes = document::three(&catalogue, &subject, &resources, &|r| self.definition_of(r));
                Document {
                    made_of: resources,
                    etag: serve::hash(&bytes),
                    kept: None,
                }
            });
            paths.insert(
                path.clone(),
                json!({"serverRelativeURL": serve::address(&path, &document.etag)}),
            );
            current.insert(path, document);
        }
        made.three = current;
        json!({"paths": paths})
    }

    /// A document below `/openapi/v3/`; none if nothing of that name is served.
    fn version_three(&self, path: &str) -> Option<Kept> {
        let (subject, resources) = subjects(&self.types())
            .into_iter()
            .find(|(subject, _)| subject.path() == path)?;
        let mut made = self.openapi.made.lock();
        if let Some(kept) = made
            .three
            .get(path)
            .filter(|d| d.is_current(&resources))
            .and_then(|d| d.kept.clone())
        {
            return Some(kept);
        }
        let bytes = document::three(&made.catalogue(), &subject, &resources, &|r| {
            self.definition_of(r)
        });
        let kept = Kept::new(&bytes, Encoding::Json);
        let document = Document {
            made_of: resources,
            etag: kept.etag.clone(),
            kept: Some(kept.clone()),
        };
        made.three.insert(path.to_owned(), document);
        Some(kept)
    }

    /// `/openapi/v2`.
    fn swagger(&self, encoding: Encoding) -> Kept {
        let subjects = subjects(&self.types());
        let resources: Vec<Arc<Resource>> = subjects
            .iter()
            .flat_map(|(_, resources)| resources.clone())
            .collect();
        let mut made = self.openapi.made.lock();
        let slot = match encoding {
            Encoding::Json => &mut made.two,
            Encoding::Protobuf => &mut made.two_protobuf,
        };
        if let Some(kept) = slot
            .as_ref()
            .filter(|d| d.is_current(&resources))
            .and_then(|d| d.kept.clone())
        {
            return kept;
        }
        let catalogue = Catalogue::new(Edition::V2);
        let bytes = document::two(&catalogue, &subjects, &|r| self.definition_of(r), encoding);
        let kept = Kept::new(&bytes, encoding);
        *slot = Some(Document {
            made_of: resources,
            etag: kept.etag.clone(),
            kept: Some(kept.clone()),
        });
        kept
    }
}
