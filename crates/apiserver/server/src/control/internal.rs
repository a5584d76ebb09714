// SPDX-License-Identifier: Apache-2.0
//! How inner controllers act: through the same handlers as clients, under a name of their own.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, Method};
use serde_json::{Value, json};

use crate::api::Api;
use crate::call::Call;
use crate::delete::{Deleted, quiet};
use crate::modify::Edit;
use crate::negotiate::Form;
use crate::options::{DeleteOptions, Propagation, WriteOptions};
use crate::registry::Resource;
use crate::reqinfo::{Query, RequestInfo};
use crate::status::ApiResult;
use crate::store::{Key, Record};
use crate::write::{Outcome, Write};

/// An inner controller at work on one object.
pub(crate) struct Hand<'a> {
    api: &'a Arc<Api>,
    controller: &'static str,
}

impl<'a> Hand<'a> {
    pub(crate) fn new(api: &'a Arc<Api>, controller: &'static str) -> Self {
        Self { api, controller }
    }

    fn call(&self, resource: &Resource, key: &Key, verb: &'static str, method: Method) -> Call {
        let info = RequestInfo {
            is_resource: true,
            verb,
            group: resource.group.to_string(),
            version: resource.version.to_string(),
            resource: resource.plural.to_string(),
            namespace: key.namespace.to_string(),
            name: key.name.to_string(),
            ..RequestInfo::default()
        };
        let user = Api::controller_user(self.controller);
        Call::new(
            info,
            Query::default(),
            method,
            HeaderMap::new(),
            user,
            Bytes::new(),
        )
    }

    fn options(&self) -> WriteOptions {
        WriteOptions {
            manager: Some("kube-controller-manager".into()),
            ..quiet(false)
        }
    }

    /// Replaces an object in the exact state it was read in.
    pub(crate) async fn replace(
        &self,
        resource: &Arc<Resource>,
        key: &Key,
        object: Value,
        subresource: Option<&str>,
    ) -> ApiResult<Outcome> {
        let registry = self.api.types();
        let call = self.call(resource, key, "update", Method::PUT);
        let options = self.options();
        let write = Write {
            call: &call,
            registry: &registry,
            resource,
            subresource,
            options: &options,
            form: Form::JSON,
        };
        self.api
            .modify(&write, Edit::Replace(object))
            .await
            .map(|(_, outcome)| outcome)
    }

    /// Creates an object.
    pub(crate) async fn create(
        &self,
        resource: &Arc<Resource>,
        namespace: &str,
        object: Value,
    ) -> ApiResult<Outcome> {
        let registry = self.api.types();
        let call = self.call(resource, &Key::new(namespace, ""), "create", Method::POST);
        let options = self.options();
        let write = Write {
            call: &call,
            registry: &registry,
            resource,
            subresource: None,
            options: &options,
            form: Form::JSON,
        };
        self.api.insert(&write, object, None).await
    }

    /// Deletes an object if it is still the one that was looked at.
    pub(crate) async fn delete(
        &self,
        resource: &Arc<Resource>,
        key: &Key,
        record: &Record,
        policy: Propagation,
    ) -> ApiResult<Deleted> {
        let registry = self.api.types();
        let call = self.call(resource, key, "delete", Method::DELETE);
        let quiet = quiet(false);
        let write = Write {
            call: &call,
            registry: &registry,
            resource,
            subresource: None,
            options: &quiet,
            form: Form::JSON,
        };
        let uid = record.parse()["metadata"]["uid"].as_str().map(str::to_owned);
        let name = match policy {
            Propagation::Orphan => "Orphan",
            Propagation::Background => "Background",
            Propagation::Foreground => "Foreground",
        };
        let raw = json!({"kind": "DeleteOptions", "apiVersion": "meta.k8s.io/v1", "propagationPolicy": name});
        let options = DeleteOptions {
            uid,
            propagation: Some(policy),
            raw,
            ..DeleteOptions::default()
        };
        self.api.remove(&write, key, &options).await
    }
}
