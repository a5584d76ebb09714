// SPDX-License-Identifier: Apache-2.0
//! Room that the scheduler keeps free for when hosts die: failover reservations of Cortex. They are
//! read where there are any; a cluster without them has none, and what cannot be read now is taken
//! for what it was.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use cobaltcore_api::names::HostName;
use cobaltcore_api::{Quantity, ResourceMap};
use cobaltcore_ha_engine::{CapacityCheck, Reserved};
use kube::Client;
use kube::api::{Api, ApiResource, DynamicObject, ListParams};
use kube::core::GroupVersionKind;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::directory::Directory;
use crate::http::App;
use crate::leadership::pause;

const EVERY: Duration = Duration::from_secs(60);
const CALL_TIME: Duration = Duration::from_secs(10);
/// Objects of one page.
const PAGE: u32 = 500;

/// Keeps what is reserved in the directory, until `stop`.
pub(crate) async fn keep(app: Arc<App>, client: Client, stop: CancellationToken) {
    let kind = GroupVersionKind::gvk("cortex.cloud", "v1alpha1", "Reservation");
    let resource = ApiResource::from_gvk_with_plural(&kind, "reservations");
    let reservations: Api<DynamicObject> = Api::all_with(client, &resource);
    let mut told = false;
    loop {
        if app.config().capacity.check != CapacityCheck::Off {
            let read = match tokio::time::timeout(CALL_TIME, list(&reservations)).await {
                Ok(Err(kube::Error::Api(refused))) if refused.code == 404 => Ok(Vec::new()),
                Ok(Err(error)) => Err(error.to_string()),
                Ok(Ok(all)) => Ok(all),
                Err(_) => Err(format!("no answer within {} s", CALL_TIME.as_secs())),
            };
            match &read {
                Ok(all) => fill(&app.directory, all),
                // Once for each time that it begins to fail.
                Err(error) if !told => {
                    tracing::warn!(%error, "failover reservations cannot be read; room is judged by what was read last");
                }
                Err(_) => {}
            }
            told = read.is_err();
        }
        if pause(&stop, EVERY).await {
            return;
        }
    }
}

async fn list(reservations: &Api<DynamicObject>) -> kube::Result<Vec<Value>> {
    let mut page = ListParams::default().limit(PAGE);
    let mut all = Vec::new();
    loop {
        let found = reservations.list(&page).await?;
        all.extend(found.items.into_iter().map(|object| object.data));
        match found.metadata.continue_.filter(|more| !more.is_empty()) {
            Some(more) => page = page.continue_token(&more),
            None => return Ok(all),
        }
    }
}

fn fill(directory: &Directory, all: &[Value]) {
    let named = |name: &str| {
        let known = directory.by_nova_host(name);
        known.or_else(|| HostName::new(name.to_ascii_lowercase()).ok())
    };
    let mut of: BTreeMap<HostName, Vec<Reserved>> = BTreeMap::new();
    for (host, reserved) in all.iter().filter_map(|object| reserved(object, &named)) {
        of.entry(host).or_default().push(reserved);
    }
    for (host, _) in directory.all() {
        let kept = of.remove(&host).unwrap_or_default();
        directory.change_known(&host, |entry| entry.reserved = kept);
    }
}

/// What an object keeps free, and where; nothing if it is no failover reservation that has a place.
fn reserved(object: &Value, named: &impl Fn(&str) -> Option<HostName>) -> Option<(HostName, Reserved)> {
    if object["spec"]["type"] != "FailoverReservation" {
        return None;
    }
    let host = named(object["status"]["host"].as_str()?)?;
    let resources: ResourceMap = serde_json::from_value(object["spec"]["resources"].clone()).ok()?;
    let amount = |name: &str| {
        let value = resources.get(name).and_then(Quantity::value);
        value.and_then(|value| u64::try_from(value).ok()).unwrap_or(0)
    };
    let guests = object["status"]["failoverReservation"]["allocations"].as_object();
    let homes = guests.into_iter().flat_map(|guests| guests.values());
    let mut covers: Vec<HostName> = homes.filter_map(|home| named(home.as_str()?)).collect();
    covers.sort();
    covers.dedup();
    let reserved = Reserved {
        mib: amount("memory") >> 20,
        vcpus: amount("cpu"),
        covers,
    };
    Some((host, reserved))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_is_kept_for_guests_is_kept_for_their_hosts() {
        let directory = Directory::default();
        let [one, two] = ["n1", "n2"].map(|name| HostName::new(name).unwrap());
        directory.change(&one, |_| {});
        directory.change(&two, |entry| entry.nova_host = Some("N2.example".into()));
        let made = |kind: &str, host: &str| {
            json!({
                "spec": {"type": kind, "resources": {"memory": "4Gi", "cpu": "2"}},
                "status": {"host": host, "failoverReservation": {"allocations": {"a": "N2.example", "b": "n2"}}},
            })
        };
        let all = [
            made("FailoverReservation", "n1"),
            made("CommittedResourceReservation", "n1"),
            made("FailoverReservation", ""),
            json!({"spec": {"type": "FailoverReservation"}}),
        ];
        fill(&directory, &all);
        let kept = Reserved {
            mib: 4096,
            vcpus: 2,
            covers: vec![two.clone()],
        };
        assert_eq!(directory.get(&one).unwrap().reserved, [kept]);
        assert!(directory.get(&two).unwrap().reserved.is_empty());
        fill(&directory, &[]);
        assert!(directory.get(&one).unwrap().reserved.is_empty());
    }
}
