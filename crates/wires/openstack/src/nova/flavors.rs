// SPDX-License-Identifier: Apache-2.0
//! Flavors: the sizes of servers.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer};
use serde_json::json;

use super::Nova;
use crate::call::{Call, Request, Service};
use crate::error::Result;
use crate::ids::FlavorId;
use crate::pages::marked_by_id;
use crate::session::Removal;
use crate::version::Microversion;

static LIST: Call = Call::get(Service::Nova, "list flavors", "/flavors/detail")
    .versions(Microversion::new(2, 61), Microversion::new(2, 90));
static SHOW: Call = Call::get(Service::Nova, "show a flavor", "/flavors/{flavor}")
    .versions(Microversion::new(2, 61), Microversion::new(2, 90));
static CREATE: Call = Call::post(Service::Nova, "create a flavor", "/flavors")
    .versions(Microversion::new(2, 61), Microversion::new(2, 90));
static EXTRA: Call = Call::post(
    Service::Nova,
    "set a flavor's extra specs",
    "/flavors/{flavor}/os-extra_specs",
)
.repeatable();
static DELETE: Call = Call::delete(Service::Nova, "delete a flavor", "/flavors/{flavor}");

/// A flavor.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Flavor {
    /// Its id.
    pub id: FlavorId,
    /// Its name.
    pub name: String,
    /// Virtual CPUs.
    pub vcpus: u32,
    /// Memory in MiB.
    pub ram: u64,
    /// Root disk in GiB.
    #[serde(default)]
    pub disk: u64,
    /// Further disk in GiB.
    #[serde(default, rename = "OS-FLV-EXT-DATA:ephemeral")]
    pub ephemeral: u64,
    /// Swap in MiB.
    #[serde(default, deserialize_with = "swap")]
    pub swap: u64,
    /// Whether everybody may use it.
    #[serde(default, rename = "os-flavor-access:is_public")]
    pub is_public: bool,
    /// What else it asks of a host.
    #[serde(default)]
    pub extra_specs: BTreeMap<String, String>,
}

/// A flavor to be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewFlavor {
    /// Its id; Nova makes one up otherwise.
    pub id: Option<FlavorId>,
    /// Its name.
    pub name: String,
    /// Virtual CPUs.
    pub vcpus: u32,
    /// Memory in MiB.
    pub ram: u64,
    /// Root disk in GiB.
    pub disk: u64,
}

marked_by_id!(Flavor);

impl Nova {
    /// All flavors, also those that are not for everybody.
    pub async fn flavors(&self) -> Result<Vec<Flavor>> {
        let request = Request::new(&LIST, &[]).query("is_public", "None");
        self.session.list(request, "flavors").await
    }

    /// One flavor.
    pub async fn flavor(&self, id: &FlavorId) -> Result<Flavor> {
        self.session
            .member(Request::new(&SHOW, &[id.as_str()]), "flavor")
            .await
    }

    /// Creates a flavor.
    pub async fn create_flavor(&self, flavor: &NewFlavor) -> Result<Flavor> {
        let NewFlavor {
            id,
            name,
            vcpus,
            ram,
            disk,
        } = flavor;
        let body = json!({ "flavor": { "id": id, "name": name, "vcpus": vcpus, "ram": ram, "disk": disk } });
        let request = Request::new(&CREATE, &[])
            .about(format!("flavor {name}"))
            .json(&body);
        self.session.member(request, "flavor").await
    }

    /// Sets extra specs; others stay.
    pub async fn set_flavor_extra_specs(
        &self,
        id: &FlavorId,
        extra_specs: &BTreeMap<String, String>,
    ) -> Result<BTreeMap<String, String>> {
        let request = Request::new(&EXTRA, &[id.as_str()]).json(&json!({ "extra_specs": extra_specs }));
        self.session.member(request, "extra_specs").await
    }

    /// Deletes a flavor.
    pub async fn delete_flavor(&self, id: &FlavorId) -> Result<Removal> {
        self.session.remove(Request::new(&DELETE, &[id.as_str()])).await
    }
}

/// Before 2.75 no swap is an empty text.
fn swap<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Swap {
        Number(u64),
        None(#[allow(dead_code)] String),
    }
    Ok(match Swap::deserialize(deserializer)? {
        Swap::Number(number) => number,
        Swap::None(_) => 0,
    })
}
