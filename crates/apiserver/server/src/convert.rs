// SPDX-License-Identifier: Apache-2.0
//! Objects between their versions. Built-in kinds and definitions without a webhook are converted
//! where they are looked at (see [`crate::view`]); what only a webhook can translate is translated
//! here, before anything looks at it, and never passed off as converted when that fails.

use std::sync::Arc;
use std::time::Instant;

use serde_json::Value;

use crate::api::Api;
use crate::call::REQUEST_TIMEOUT;
use crate::registry::{Registry, Resource};
use crate::status::ApiResult;
use crate::store::{Event, Facts, Key, Record, serialize};

impl Api {
    /// Stored objects in the version of `resource`, where only a webhook can translate them. All
    /// others are returned as they are.
    pub async fn present_all(
        &self,
        resource: &Resource,
        records: Vec<Arc<Record>>,
    ) -> ApiResult<Vec<Arc<Record>>> {
        let Some(custom) = resource.as_custom() else {
            return Ok(records);
        };
        let Some(converter) = &custom.converter else {
            return Ok(records);
        };
        let api_version = resource.api_version();
        let registry = self.types();
        let mut shown = records;
        let (mut places, mut objects) = (Vec::new(), Vec::new());
        for (at, record) in shown.iter().enumerate() {
            if record.schema == custom.schema_generation {
                continue;
            }
            let mut object = record.parse();
            if object["apiVersion"] != *api_version {
                // What is missing is filled in by the version it is stored in, before another sees it.
                let (group, version) =
                    crate::meta::split_api_version(object["apiVersion"].as_str().unwrap_or_default());
                if let Some(stored) = registry.get(group, version, &resource.plural)
                    && let Some(stored) = stored.as_custom()
                {
                    stored.reread(&mut object);
                }
                places.push(at);
                objects.push(object);
            }
        }
        if places.is_empty() {
            return Ok(shown);
        }
        let deadline = Instant::now() + REQUEST_TIMEOUT;
        self.webhooks
            .convert(self, converter, &mut objects, &api_version, deadline)
            .await?;
        for (at, mut object) in places.into_iter().zip(objects) {
            custom.take_over(&mut object);
            if let Some(slot) = shown.get_mut(at) {
                *slot = Arc::new(Record {
                    revision: slot.revision,
                    facts: Facts::of(&object),
                    body: serialize(&object).into(),
                    schema: custom.schema_generation,
                });
            }
        }
        Ok(shown)
    }

    /// One stored object in the version of `resource`.
    pub async fn present(&self, resource: &Resource, record: &Arc<Record>) -> ApiResult<Arc<Record>> {
        if !resource.needs_webhook() {
            return Ok(record.clone());
        }
        let mut shown = self.present_all(resource, vec![record.clone()]).await?;
        Ok(shown.pop().unwrap_or_else(|| record.clone()))
    }

    /// The objects of a collection in the version of `resource`.
    pub async fn present_items(
        &self,
        resource: &Resource,
        items: Vec<(Key, Arc<Record>)>,
    ) -> ApiResult<Vec<(Key, Arc<Record>)>> {
        if !resource.needs_webhook() {
            return Ok(items);
        }
        let (keys, records): (Vec<Key>, Vec<Arc<Record>>) = items.into_iter().unzip();
        let shown = self.present_all(resource, records).await?;
        Ok(keys.into_iter().zip(shown).collect())
    }

    /// Events with both states in the version of `resource`.
    pub async fn present_events(
        &self,
        resource: &Resource,
        events: Vec<Arc<Event>>,
    ) -> ApiResult<Vec<Arc<Event>>> {
        if !resource.needs_webhook() {
            return Ok(events);
        }
        let states: Vec<Arc<Record>> = events
            .iter()
            .flat_map(|event| event.old.iter().chain([&event.new]).cloned())
            .collect();
        let mut shown = self.present_all(resource, states).await?.into_iter();
        Ok(events
            .into_iter()
            .map(|event| {
                let old = event.old.as_ref().and_then(|_| shown.next());
                let new = shown.next().unwrap_or_else(|| event.new.clone());
                Arc::new(Event {
                    revision: event.revision,
                    key: event.key.clone(),
                    op: event.op,
                    old,
                    new,
                    rendered: parking_lot::Mutex::default(),
                })
            })
            .collect())
    }

    /// Brings an object of `resource` into the form it is stored in.
    pub async fn to_storage(
        &self,
        resource: &Resource,
        registry: &Registry,
        object: &mut Value,
    ) -> ApiResult<()> {
        let converter = resource.as_custom().and_then(|custom| custom.converter.as_ref());
        let Some(converter) = converter.filter(|_| !resource.is_storage()) else {
            resource.to_storage(object, registry);
            return Ok(());
        };
        let target = crate::meta::api_version(&resource.storage.0, &resource.storage.1);
        let deadline = Instant::now() + REQUEST_TIMEOUT;
        let mut objects = [std::mem::take(object)];
        self.webhooks
            .convert(self, converter, &mut objects, &target, deadline)
            .await?;
        let [mut stored] = objects;
        if let Some(storage) = registry.get(&resource.storage.0, &resource.storage.1, &resource.plural)
            && let Some(custom) = storage.as_custom()
        {
            custom.reread(&mut stored);
        }
        *object = stored;
        Ok(())
    }
}
