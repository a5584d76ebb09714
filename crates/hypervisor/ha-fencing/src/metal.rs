// SPDX-License-Identifier: Apache-2.0
//! Hosts that IronCore's metal-operator looks after. It heals: a claimed server that is off is
//! booted again within minutes. So the operator is told to stand down before the power is touched,
//! and the fence holds only as long as it does. With a BMC of our own the server is parked and
//! switched off there; without one the claim is changed and the operator switches it off itself,
//! asked by an annotation, or by the server's own `spec.power` where the operator is old.

use std::time::Duration;

use cobaltcore_api::field_managers::FieldManager;
use cobaltcore_ha_engine::{Identity, Power};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use kube::api::{Api, ApiResource, DynamicObject, Patch, PatchParams};
use kube::core::GroupVersionKind;
use kube::{Client, ResourceExt as _};
use serde_json::{Value, json};

use crate::config::Driver;
use crate::device::Device;
use crate::error::{Error, Result};
use crate::redfish::Redfish;
use crate::vigil::Vigil;

const GROUP: &str = "metal.ironcore.dev";
const VERSION: &str = "v1alpha1";
/// What is asked of the operator, one thing at a time; removed when it was done.
const OPERATION: &str = "metal.ironcore.dev/operation";
/// Set by the operator while it stands down.
const PARKED: &str = "metal.ironcore.dev/parked";
const PARK: &str = "park";
const UNPARK: &str = "unpark";
const FORCE_OFF: &str = "force-off-server";
/// A pass that was under way when the server was parked has ended after this.
const PASS: Duration = Duration::from_secs(3);

/// How a server is switched off.
#[derive(Debug)]
pub(crate) enum Way {
    /// The operator stands down, and its BMC is ours to use.
    Park(Box<Redfish>),
    /// By its claim and an order to the operator.
    Claim,
    /// By its claim and its own wish, which newer operators erase.
    SpecPower,
}

/// One Server, and how it is switched off.
pub(crate) struct Metal {
    servers: Api<DynamicObject>,
    client: Client,
    server: String,
    way: Way,
    limit: Duration,
    vigil: Vigil,
}

impl std::fmt::Debug for Metal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = f.debug_struct("Metal");
        shown
            .field("server", &self.server)
            .field("way", &self.way)
            .finish_non_exhaustive()
    }
}

impl Metal {
    pub(crate) fn new(client: Client, server: String, way: Way, limit: Duration, vigil: Vigil) -> Self {
        Self {
            servers: Api::all_with(client.clone(), &resource("Server", "servers")),
            client,
            server,
            way,
            limit,
            vigil,
        }
    }

    fn device(&self) -> String {
        format!("Server {}", self.server)
    }

    fn unknown(&self, detail: impl Into<String>) -> Error {
        Error::Unknown {
            device: self.device(),
            detail: detail.into(),
        }
    }

    async fn call<T>(&self, what: &'static str, call: impl Future<Output = kube::Result<T>>) -> Result<T> {
        let late = |_| Error::TimedOut {
            what,
            device: self.device(),
            limit: self.limit,
        };
        let answer = tokio::time::timeout(self.limit, call).await.map_err(late)?;
        answer.map_err(|source| Error::Kubernetes {
            what: format!("{what} {}", self.device()),
            source: Box::new(source),
        })
    }

    async fn get(&self) -> Result<DynamicObject> {
        self.call("reading", self.servers.get(&self.server)).await
    }

    /// Asks the operator for something, unless it is busy with something else. The request is
    /// bound to what was read, so two who ask at once do not overwrite each other.
    async fn ask(&self, server: &DynamicObject, operation: &str) -> Result<()> {
        match server.annotations().get(OPERATION).map(String::as_str) {
            Some(pending) if pending == operation => return Ok(()),
            // What we asked for before is ours to replace.
            None | Some("" | PARK | UNPARK | FORCE_OFF) => {}
            Some(other) => {
                return Err(Error::Busy {
                    device: self.device(),
                    detail: format!(
                        "metal-operator has not finished {other:?}; wait, or remove the annotation {OPERATION} if nobody needs it"
                    ),
                });
            }
        }
        let patch = json!({"metadata": {
            "resourceVersion": server.resource_version(),
            "annotations": {OPERATION: operation},
        }});
        let (params, patch) = (manager(), Patch::Merge(&patch));
        let patched = self.servers.patch(&self.server, &params, &patch);
        self.call("annotating", patched).await.map(drop)
    }

    fn claims(&self, server: &DynamicObject) -> Result<(Api<DynamicObject>, String)> {
        let reference = &server.data["spec"]["serverClaimRef"];
        match (reference["namespace"].as_str(), reference["name"].as_str()) {
            (Some(namespace), Some(name)) => {
                let resource = resource("ServerClaim", "serverclaims");
                let claims = Api::namespaced_with(self.client.clone(), namespace, &resource);
                Ok((claims, name.to_owned()))
            }
            _ => Err(self.unknown("it has no ServerClaim, so metal-operator cannot be told to keep it off")),
        }
    }

    async fn claim_power(&self, server: &DynamicObject, power: &str) -> Result<()> {
        let (claims, name) = self.claims(server)?;
        let patch = json!({"spec": {"power": power}});
        let (params, patch) = (manager(), Patch::Merge(&patch));
        let patched = claims.patch(&name, &params, &patch);
        self.call("changing the claim", patched).await.map(drop)
    }

    /// What the owner of the server wants of its power. One without an owner is wanted by nobody.
    async fn claimed_power(&self, server: &DynamicObject) -> Result<Option<String>> {
        if self.nobody_owns(server) {
            return Ok(None);
        }
        self.claim(server).await.map(|(power, _)| Some(power))
    }

    /// Whether there is no claim, and none is needed.
    fn nobody_owns(&self, server: &DynamicObject) -> bool {
        self.way_is_legacy() && server.data["spec"]["serverClaimRef"].is_null()
    }

    /// What the claim of the server wants of its power, and in which generation.
    async fn claim(&self, server: &DynamicObject) -> Result<(String, Option<i64>)> {
        let (claims, name) = self.claims(server)?;
        let claim = self.call("reading the claim", claims.get(&name)).await?;
        let power = text(&claim.data["spec"]["power"]).unwrap_or_default();
        Ok((power, claim.metadata.generation))
    }

    /// Whether the claim stays as it was changed. Its owner may have other ideas, and it takes a while until
    /// that shows.
    async fn claim_is_kept(&self, server: &DynamicObject) -> Result<()> {
        let (power, generation) = self.claim(server).await?;
        if power != "Off" {
            self.vigil.ended(&self.server);
            return Ok(());
        }
        let left = self.vigil.off(&self.server, generation);
        if left.is_zero() {
            return Ok(());
        }
        Err(self.unknown(format!(
            "it is off, and its ServerClaim must say so for {} s more: whoever owns the claim may revert it",
            left.as_secs() + 1
        )))
    }

    fn way_is_legacy(&self) -> bool {
        matches!(self.way, Way::SpecPower)
    }

    /// Older operators do what the server itself says, unless its claim says something else.
    async fn wish(&self, server: &DynamicObject, power: &str) -> Result<()> {
        if !server.data["spec"]["serverClaimRef"].is_null() {
            self.claim_power(server, power).await?;
        }
        let patch = json!({"spec": {"power": power}});
        let (params, patch) = (manager(), Patch::Merge(&patch));
        let patched = self.servers.patch(&self.server, &params, &patch);
        self.call("changing the power of", patched).await.map(drop)
    }

    /// The same, and a look whether it was taken back: a newer operator erases what it does not heed.
    async fn wish_off(&self, server: &DynamicObject) -> Result<()> {
        self.wish(server, "Off").await?;
        tokio::time::sleep(PASS).await;
        if wants_off(&self.get().await?) {
            return Ok(());
        }
        Err(Error::NotOffered {
            what: "be switched off by its spec.power",
            device: self.device(),
            detail: "metal-operator took the change back, as its newer versions do; \
                     use mode park+redfish, or claim without a BMC"
                .into(),
        })
    }

    async fn who(&self) -> Result<Identity> {
        let server = self.get().await?;
        let known = Identity {
            system_uuid: text(&server.data["spec"]["systemUUID"]),
            serial: text(&server.data["status"]["serialNumber"]),
        };
        let Way::Park(bmc) = &self.way else {
            return Ok(known);
        };
        // The BMC is what will be pressed; what the operator noted must not contradict it.
        let told = bmc.identify().await?;
        let contradicts = known != Identity::default() && !known.matches(&told);
        Ok(if contradicts { Identity::default() } else { told })
    }

    async fn read_power(&self) -> Result<Power> {
        if let Way::Park(bmc) = &self.way {
            return bmc.power().await;
        }
        let server = self.get().await?;
        // The watch begins with the first look after the change, not with the last before it counts.
        let kept = if self.nobody_owns(&server) {
            Ok(())
        } else {
            self.claim_is_kept(&server).await
        };
        match server.data["status"]["powerState"].as_str() {
            Some("On" | "PoweringOn" | "PoweringOff" | "Paused") => return Ok(Power::On),
            Some("Off") => {}
            _ => return Err(self.unknown("metal-operator does not say whether it is on")),
        }
        // What the operator says is as old as its last pass, and it may heal in the next. It is
        // believed when our order was carried out after the claim had said the same.
        let claimed = self.claimed_power(&server).await?;
        if claimed.is_some_and(|power| power != "Off") {
            return Err(self.unknown(
                "it is off, but its ServerClaim wants it on: metal-operator may switch it on at any time",
            ));
        }
        if self.way_is_legacy() && !wants_off(&server) {
            return Err(self.unknown(
                "it is off, but its spec.power does not say so: metal-operator may switch it on at any time",
            ));
        }
        if server
            .annotations()
            .get(OPERATION)
            .is_some_and(|pending| pending == FORCE_OFF)
        {
            return Err(self.unknown("metal-operator has not carried out force-off-server yet"));
        }
        kept.map(|()| Power::Off)
    }

    async fn switch_off(&self) -> Result<()> {
        let server = self.get().await?;
        let bmc = match &self.way {
            Way::Park(bmc) => bmc,
            Way::Claim => {
                self.claim_power(&server, "Off").await?;
                return self.ask(&self.get().await?, FORCE_OFF).await;
            }
            Way::SpecPower => return self.wish_off(&server).await,
        };
        if !stands_down(&server) {
            self.ask(&server, PARK).await?;
            tokio::time::sleep(PASS).await;
        }
        bmc.power_off().await
    }

    async fn keep_off(&self) -> Result<()> {
        let server = self.get().await?;
        if self.kept_off(&server).await? {
            return Ok(());
        }
        match &self.way {
            Way::Park(_) => self.ask(&server, PARK).await,
            Way::Claim => self.claim_power(&server, "Off").await,
            Way::SpecPower => self.wish_off(&server).await,
        }
    }

    /// Whether the operator would leave the server off.
    async fn kept_off(&self, server: &DynamicObject) -> Result<bool> {
        if matches!(self.way, Way::Park(_)) {
            return Ok(stands_down(server));
        }
        let claimed = self.claimed_power(server).await?;
        let kept = claimed.is_none_or(|power| power == "Off");
        Ok(kept && (!self.way_is_legacy() || wants_off(server)))
    }

    async fn still_kept_off(&self) -> Result<bool> {
        self.kept_off(&self.get().await?).await
    }

    async fn let_go(&self) -> Result<()> {
        let server = self.get().await?;
        match &self.way {
            Way::Claim => return self.claim_power(&server, "On").await,
            Way::SpecPower => return self.wish(&server, "On").await,
            Way::Park(_) => {}
        }
        if stands_down(&server) {
            self.ask(&server, UNPARK).await?;
        }
        // The operator boots what it heals, the way this machine is meant to be booted.
        Ok(())
    }
}

/// Whether healing stands down: parked, or about to be.
fn stands_down(server: &DynamicObject) -> bool {
    let is = |key, value| server.annotations().get(key).is_some_and(|found| found == value);
    !is(OPERATION, UNPARK) && (is(OPERATION, PARK) || is(PARKED, "true"))
}

/// Whether the server itself says that it is to be off.
fn wants_off(server: &DynamicObject) -> bool {
    server.data["spec"]["power"] == "Off"
}

fn text(value: &Value) -> Option<String> {
    value.as_str().filter(|text| !text.is_empty()).map(str::to_owned)
}

fn resource(kind: &str, plural: &str) -> ApiResource {
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(GROUP, VERSION, kind), plural)
}

fn manager() -> PatchParams {
    PatchParams {
        field_manager: Some(FieldManager::HaService.as_str().to_owned()),
        ..PatchParams::default()
    }
}

impl Device for Metal {
    fn driver(&self) -> Driver {
        Driver::MetalOperator
    }

    fn address(&self) -> String {
        match &self.way {
            Way::Park(bmc) => format!("{} at {}", self.device(), bmc.address()),
            Way::Claim | Way::SpecPower => self.device(),
        }
    }

    fn switches(&self) -> Vec<String> {
        let mut all = vec![self.device()];
        if let Way::Park(bmc) = &self.way {
            all.push(bmc.address());
        }
        all
    }

    fn identify(&self) -> BoxFuture<'_, Result<Identity>> {
        self.who().boxed()
    }

    fn power(&self) -> BoxFuture<'_, Result<Power>> {
        self.read_power().boxed()
    }

    fn power_off(&self) -> BoxFuture<'_, Result<()>> {
        self.switch_off().boxed()
    }

    fn hold(&self) -> BoxFuture<'_, Result<()>> {
        self.keep_off().boxed()
    }

    fn holds(&self) -> BoxFuture<'_, Result<bool>> {
        self.still_kept_off().boxed()
    }

    fn release(&self) -> BoxFuture<'_, Result<()>> {
        self.let_go().boxed()
    }
}
