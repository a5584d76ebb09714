// SPDX-License-Identifier: Apache-2.0
//! Cutting a host off from its disks: a NetworkFence of csi-addons has Ceph refuse the addresses of
//! the host. The machine may go on running, but it can write nothing, so its guests may be started
//! elsewhere if all their disks are in that Ceph. "Off" means cut off here.
//!
//! One object per host and fence. It is made as `Fenced` and never changed into it, because the
//! result in its status would be that of the change before. It ends by being changed into `Unfenced`,
//! and is over when the message beside the result speaks of that; to delete it would leave Ceph as it is.

use std::time::Duration;

use cobaltcore_api::field_managers::FieldManager;
use cobaltcore_ha_engine::{Identity, Power};
use futures::FutureExt as _;
use futures::future::{BoxFuture, ready};
use kube::Client;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use serde_json::json;

use crate::config::{DeviceConfig, Driver};
use crate::device::{Device, Target};
use crate::error::{Error, Result};

const FENCED: &str = "Fenced";
const UNFENCED: &str = "Unfenced";
const SUCCEEDED: &str = "Succeeded";
/// How csi-addons begins the message of a result that is of unfencing and not of the fence before.
const OF_UNFENCING: &str = "unfencing";

/// One host's way to Ceph.
pub(crate) struct CephFence {
    fences: Api<DynamicObject>,
    name: String,
    cidrs: Vec<String>,
    config: DeviceConfig,
    machine: Identity,
}

impl std::fmt::Debug for CephFence {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = f.debug_struct("CephFence");
        shown
            .field("name", &self.name)
            .field("cidrs", &self.cidrs)
            .finish_non_exhaustive()
    }
}

/// What the cluster shows of the fence.
#[derive(Debug, PartialEq, Eq)]
enum Shown {
    Nothing,
    /// Asked for, and not known to be in force.
    Asked,
    InForce,
    /// A fence that was ended, or one for other addresses.
    Other,
}

impl CephFence {
    pub(crate) fn new(client: Client, target: &Target, cidrs: Vec<String>, config: &DeviceConfig) -> Self {
        let kind = GroupVersionKind::gvk("csiaddons.openshift.io", "v1alpha1", "NetworkFence");
        Self {
            fences: Api::all_with(client, &ApiResource::from_gvk_with_plural(&kind, "networkfences")),
            name: format!("cobaltcore-ha-{}", target.host),
            cidrs,
            config: config.clone(),
            // There is no device: the addresses are those that the host itself is known by.
            machine: target.machine.clone(),
        }
    }

    fn device(&self) -> String {
        format!("NetworkFence {}", self.name)
    }

    fn limit(&self) -> Duration {
        self.config.limit()
    }

    async fn call<T>(&self, what: &'static str, call: impl Future<Output = kube::Result<T>>) -> Result<T> {
        let late = |_| Error::TimedOut {
            what,
            device: self.device(),
            limit: self.limit(),
        };
        let answer = tokio::time::timeout(self.limit(), call).await.map_err(late)?;
        answer.map_err(|source| Error::Kubernetes {
            what: format!("{what} {}", self.device()),
            source: Box::new(source),
        })
    }

    async fn get(&self) -> Result<Option<DynamicObject>> {
        self.call("reading", self.fences.get_opt(&self.name)).await
    }

    fn unknown(&self, detail: impl Into<String>) -> Error {
        Error::Unknown {
            device: self.device(),
            detail: detail.into(),
        }
    }

    async fn shown(&self) -> Result<Shown> {
        let Some(fence) = self.get().await? else {
            return Ok(Shown::Nothing);
        };
        let spec = &fence.data["spec"];
        let ours = spec["fenceState"] == FENCED && spec["cidrs"] == json!(self.cidrs);
        Ok(match fence.metadata.deletion_timestamp {
            None if ours && fence.data["status"]["result"] == SUCCEEDED => Shown::InForce,
            None if ours => Shown::Asked,
            _ => Shown::Other,
        })
    }

    async fn read(&self) -> Result<Power> {
        match self.shown().await? {
            Shown::InForce => Ok(Power::Off),
            Shown::Nothing | Shown::Other => Ok(Power::On),
            Shown::Asked => {
                Err(self
                    .unknown("csi-addons has not said yet that Ceph refuses the host; look at its status"))
            }
        }
    }

    async fn cut_off(&self) -> Result<()> {
        match self.shown().await? {
            Shown::Asked | Shown::InForce => Ok(()),
            Shown::Nothing => {
                let (params, fence) = (PostParams::default(), self.object());
                let made = self.fences.create(&params, &fence);
                self.call("making", made).await.map(drop)
            }
            Shown::Other => {
                let params = DeleteParams::default();
                let gone = self.fences.delete(&self.name, &params);
                self.call("removing", gone).await?;
                Err(Error::Busy {
                    device: self.device(),
                    detail: "an older fence of this host is being removed first".to_owned(),
                })
            }
        }
    }

    fn object(&self) -> DynamicObject {
        let kind = GroupVersionKind::gvk("csiaddons.openshift.io", "v1alpha1", "NetworkFence");
        let resource = ApiResource::from_gvk_with_plural(&kind, "networkfences");
        let DeviceConfig {
            provisioner,
            secret,
            cluster_id,
            ..
        } = &self.config;
        let (namespace, name) = secret.split_once('/').unwrap_or_default();
        DynamicObject::new(&self.name, &resource).data(json!({"spec": {
            "driver": provisioner,
            "fenceState": FENCED,
            "cidrs": self.cidrs,
            "secret": {"namespace": namespace, "name": name},
            "parameters": {"clusterID": cluster_id},
        }}))
    }

    /// Asks Ceph to let the host in, once, and from then on whether it does. Done is what csi-addons said it did: until then
    /// Ceph refuses the host, and whoever gives it back gives back a host without disks.
    async fn let_in(&self) -> Result<()> {
        let Some(fence) = self.get().await? else {
            return Ok(());
        };
        if fence.data["spec"]["fenceState"] != UNFENCED {
            self.unfence().await?;
            return Err(self.unknown("csi-addons was asked to let the host in"));
        }
        let status = &fence.data["status"];
        let message = status["message"].as_str().unwrap_or_default();
        if status["result"] == SUCCEEDED && message.starts_with(OF_UNFENCING) {
            return Ok(());
        }
        Err(self.unknown(format!(
            "csi-addons has not said yet that Ceph lets the host in; its status says {} {message}",
            status["result"].as_str().unwrap_or("nothing"),
        )))
    }

    async fn unfence(&self) -> Result<()> {
        let patch = json!({"spec": {"fenceState": UNFENCED}});
        let params = PatchParams {
            field_manager: Some(FieldManager::HaService.as_str().to_owned()),
            ..PatchParams::default()
        };
        let patch = Patch::Merge(&patch);
        let patched = self.fences.patch(&self.name, &params, &patch);
        self.call("ending", patched).await.map(drop)
    }
}

impl Device for CephFence {
    fn driver(&self) -> Driver {
        Driver::CephFence
    }

    fn address(&self) -> String {
        format!("the storage addresses {}", self.cidrs.join(", "))
    }

    fn switches(&self) -> Vec<String> {
        let switched = |cidr| format!("the storage address {cidr}");
        self.cidrs.iter().map(switched).collect()
    }

    fn identify(&self) -> BoxFuture<'_, Result<Identity>> {
        ready(Ok(self.machine.clone())).boxed()
    }

    fn power(&self) -> BoxFuture<'_, Result<Power>> {
        self.read().boxed()
    }

    fn power_off(&self) -> BoxFuture<'_, Result<()>> {
        self.cut_off().boxed()
    }

    /// A fence of Ceph's own lasts until it is ended; it is only looked at.
    fn hold(&self) -> BoxFuture<'_, Result<()>> {
        async {
            match self.read().await? {
                Power::Off => Ok(()),
                Power::On => self.cut_off().await,
            }
        }
        .boxed()
    }

    fn release(&self) -> BoxFuture<'_, Result<()>> {
        self.let_in().boxed()
    }
}
