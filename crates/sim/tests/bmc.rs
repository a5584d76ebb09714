// SPDX-License-Identifier: Apache-2.0
//! A host's BMC: it cuts the power, gives it back, needs a password, and can lie.
#![allow(clippy::unwrap_used)]

mod support;

use std::time::Duration;

use cobaltcore_sim::bmc::{Bmcs, PASSWORD, Trouble, USER};
use cobaltcore_sim::world::{Power, World};
use serde_json::{Value, json};

const ONE: &str = "node001-bb1";

struct Remote {
    http: reqwest::Client,
    url: String,
    system: String,
}

impl Remote {
    async fn find(bmcs: &Bmcs) -> Self {
        let (http, url) = (support::http(), bmcs.url(ONE).unwrap());
        let get = http
            .get(format!("{url}/redfish/v1/Systems"))
            .basic_auth(USER, Some(PASSWORD));
        let all: Value = get.send().await.unwrap().json().await.unwrap();
        let system = all["Members"][0]["@odata.id"].as_str().unwrap().to_owned();
        Self { http, url, system }
    }

    async fn state(&self) -> String {
        let get = self
            .http
            .get(format!("{}{}", self.url, self.system))
            .basic_auth(USER, Some(PASSWORD));
        let shown: Value = get.send().await.unwrap().json().await.unwrap();
        shown["PowerState"].as_str().unwrap().to_owned()
    }

    async fn press(&self, button: &str) -> u16 {
        let url = format!("{}{}/Actions/ComputerSystem.Reset", self.url, self.system);
        let post = self
            .http
            .post(url)
            .basic_auth(USER, Some(PASSWORD))
            .json(&json!({"ResetType": button}));
        post.send().await.unwrap().status().as_u16()
    }
}

#[tokio::test]
async fn the_button_works_and_says_so() {
    let world = World::builder().hosts(1).vms_per_host(2).manual_clock().build();
    let bmcs = Bmcs::start(&world).await.unwrap();
    let remote = Remote::find(&bmcs).await;
    assert_eq!(remote.state().await, "On");
    world.cut(ONE).unwrap();
    assert_eq!(remote.press("ForceOff").await, 204, "a BMC has its own network");
    assert_eq!(remote.state().await, "Off");
    assert_eq!(world.read(|state| state.hosts[ONE].running().count()), 0);
    assert_eq!(remote.press("ForceOff").await, 409);
    assert_eq!(remote.press("On").await, 204);
    world.step(Duration::from_secs(60));
    assert_eq!(world.read(|state| state.hosts[ONE].power), Power::On);
    assert_eq!(remote.press("Explode").await, 400);
}

#[tokio::test]
async fn a_bmc_can_refuse_and_lie() {
    let world = World::builder().hosts(1).vms_per_host(2).manual_clock().build();
    let bmcs = Bmcs::start(&world).await.unwrap();
    let remote = Remote::find(&bmcs).await;
    let open = remote
        .http
        .get(format!("{}{}", remote.url, remote.system))
        .send()
        .await
        .unwrap();
    assert_eq!(open.status(), 401);
    bmcs.set(ONE, Trouble::Errors);
    assert_eq!(remote.press("ForceOff").await, 500);
    bmcs.set(ONE, Trouble::Lies);
    assert_eq!(remote.press("ForceOff").await, 204);
    assert_eq!(remote.state().await, "Off");
    assert_eq!(
        world.read(|state| state.hosts[ONE].running().count()),
        2,
        "its guests go on"
    );
    bmcs.set(ONE, Trouble::None);
    assert_eq!(remote.state().await, "On");
}
