// SPDX-License-Identifier: Apache-2.0
//! Host aggregates.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::json;

use super::Nova;
use crate::call::{Call, Request, Service};
use crate::error::Result;
use crate::ids::AggregateId;
use crate::session::Removal;

static LIST: Call = Call::get(Service::Nova, "list aggregates", "/os-aggregates");
static CREATE: Call = Call::post(Service::Nova, "create an aggregate", "/os-aggregates");
static DELETE: Call = Call::delete(Service::Nova, "delete an aggregate", "/os-aggregates/{aggregate}");
static ADD: Call = Call::post(
    Service::Nova,
    "add a host to an aggregate",
    "/os-aggregates/{aggregate}/action",
);
static REMOVE: Call = Call::post(
    Service::Nova,
    "remove a host from an aggregate",
    "/os-aggregates/{aggregate}/action",
);
static METADATA: Call = Call::post(
    Service::Nova,
    "set an aggregate's metadata",
    "/os-aggregates/{aggregate}/action",
)
.repeatable();

/// An aggregate.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Aggregate {
    /// Its number, by which Nova's calls name it.
    pub id: AggregateId,
    /// Its UUID, by which Placement names it.
    pub uuid: String,
    /// Its name.
    pub name: String,
    /// Its availability zone.
    #[serde(default)]
    pub availability_zone: Option<String>,
    /// The hosts in it.
    #[serde(default)]
    pub hosts: Vec<String>,
    /// Its metadata.
    #[serde(default)]
    pub metadata: BTreeMap<String, String>,
}

impl Nova {
    /// All aggregates with their hosts: one call for the whole fleet.
    pub async fn aggregates(&self) -> Result<Vec<Aggregate>> {
        self.session.member(Request::new(&LIST, &[]), "aggregates").await
    }

    /// Creates an aggregate, with an availability zone if it is to be one.
    pub async fn create_aggregate(&self, name: &str, availability_zone: Option<&str>) -> Result<Aggregate> {
        let mut aggregate = json!({ "name": name });
        if let Some(zone) = availability_zone {
            aggregate["availability_zone"] = json!(zone);
        }
        let request = Request::new(&CREATE, &[])
            .about(format!("aggregate {name}"))
            .json(&json!({ "aggregate": aggregate }));
        self.session.member(request, "aggregate").await
    }

    /// Adds a host. A host that is in it already is a conflict.
    pub async fn add_host(&self, aggregate: AggregateId, host: &str) -> Result<Aggregate> {
        let body = json!({ "add_host": { "host": host } });
        self.aggregate_action(&ADD, aggregate, &body, host).await
    }

    /// Removes a host. A host that is not in it is not found.
    pub async fn remove_host(&self, aggregate: AggregateId, host: &str) -> Result<Aggregate> {
        let body = json!({ "remove_host": { "host": host } });
        self.aggregate_action(&REMOVE, aggregate, &body, host).await
    }

    /// Sets metadata; a value of nothing removes the key, other keys stay.
    pub async fn set_aggregate_metadata(
        &self,
        aggregate: AggregateId,
        metadata: &BTreeMap<String, Option<String>>,
    ) -> Result<Aggregate> {
        let body = json!({ "set_metadata": { "metadata": metadata } });
        self.aggregate_action(&METADATA, aggregate, &body, "").await
    }

    /// Deletes an aggregate. Nova refuses while it has hosts.
    pub async fn delete_aggregate(&self, aggregate: AggregateId) -> Result<Removal> {
        let request = Request::new(&DELETE, &[&aggregate.to_string()]);
        self.session.remove(request).await
    }

    async fn aggregate_action(
        &self,
        call: &'static Call,
        aggregate: AggregateId,
        body: &serde_json::Value,
        host: &str,
    ) -> Result<Aggregate> {
        let mut request = Request::new(call, &[&aggregate.to_string()]).json(body);
        if !host.is_empty() {
            request.object = format!("{}, host {host}", request.object);
        }
        self.session.member(request, "aggregate").await
    }
}
