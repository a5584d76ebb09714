// SPDX-License-Identifier: Apache-2.0
//! Stands in for the kubelets of simulated hosts: a Node for each, ready while its host has power
//! and a network, unknown some time after it fell silent, as a cluster would report it.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use cobaltcore_api::{annotations, labels};
use cobaltcore_sim::World;
use cobaltcore_sim::world::{Host, HostName, Power};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, Patch, PatchParams};
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio_util::task::AbortOnDropHandle;

const MANAGER: &str = "simulated-kubelet";
/// After this long without a sign of life a cluster calls a node's state unknown.
const GRACE: Duration = Duration::from_secs(40);
const LOOK: Duration = Duration::from_millis(500);
/// Nodes that are made one after the other; each such row stands beside the others.
const AT_ONCE: usize = 32;

/// Makes a Node for every host, several at a time: what waits for the disk waits together.
pub(crate) async fn register(client: &kube::Client, world: &World) -> anyhow::Result<()> {
    let mut objects: Vec<(String, Value)> = world.read(|state| {
        let hosts = state.hosts.values();
        hosts.map(|host| (host.name.to_string(), node(host))).collect()
    });
    let mut under_way = JoinSet::new();
    while !objects.is_empty() {
        let rest = objects.split_off(objects.len().min(AT_ONCE));
        let some = std::mem::replace(&mut objects, rest);
        under_way.spawn(make(Api::all(client.clone()), some));
    }
    while let Some(made) = under_way.join_next().await {
        made.context("a Node could not be made")??;
    }
    Ok(())
}

async fn make(nodes: Api<Node>, objects: Vec<(String, Value)>) -> anyhow::Result<()> {
    let params = PatchParams::apply(MANAGER).force();
    for (name, object) in objects {
        nodes
            .patch(&name, &params, &Patch::Apply(&object))
            .await
            .with_context(|| format!("cannot make the Node {name}"))?;
    }
    Ok(())
}

fn node(host: &Host) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {
            "name": host.name.as_str(),
            "labels": {
                labels::HOSTNAME.as_str(): host.name.as_str(),
                labels::VIRT_DRIVER.as_str(): "kvm",
                labels::LIFECYCLE.as_str(): "true",
                labels::BUILDING_BLOCK.as_str(): host.building_block,
                labels::METAL_NAME.as_str(): host.name.as_str(),
                labels::ZONE.as_str(): host.zone,
                labels::REGION.as_str(): host.zone.trim_end_matches(|c: char| c.is_ascii_alphabetic()),
            },
            "annotations": {
                annotations::AGGREGATES.as_str(): format!("{},prod", host.zone),
            },
        },
    })
}

/// What a cluster says about a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    Ready,
    /// It speaks, and says that its disk is full.
    DiskPressure,
    Unknown,
}

/// What a kubelet would say of its host; nothing when it cannot be heard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Voice {
    Well,
    DiskFull,
    Silent,
}

/// What is known about one kubelet.
#[derive(Default)]
struct Kubelet {
    told: Option<Standing>,
    silent_since: Option<Instant>,
}

impl Kubelet {
    /// What a cluster would say now. A silence is noticed only after a while.
    fn judge(&mut self, voice: Voice, now: Instant) -> Standing {
        if voice != Voice::Silent {
            self.silent_since = None;
        }
        match voice {
            Voice::Well => return Standing::Ready,
            Voice::DiskFull => return Standing::DiskPressure,
            Voice::Silent => {}
        }
        let since = *self.silent_since.get_or_insert(now);
        if now.duration_since(since) < GRACE {
            self.told.unwrap_or(Standing::Ready)
        } else {
            Standing::Unknown
        }
    }
}

/// What a kubelet is seen by. A host with all its guests is too much to copy twice a second.
struct Seen {
    name: HostName,
    ip: String,
    voice: Voice,
}

impl Seen {
    fn of(host: &Host) -> Self {
        Self {
            name: host.name.clone(),
            ip: host.ip.clone(),
            voice: match host {
                host if host.power != Power::On || host.cut => Voice::Silent,
                host if host.disk_full => Voice::DiskFull,
                _ => Voice::Well,
            },
        }
    }
}

fn status(host: &Seen, standing: Standing) -> Value {
    let (status, reason, message) = match standing {
        Standing::Ready | Standing::DiskPressure => {
            ("True", "KubeletReady", "kubelet is posting ready status")
        }
        Standing::Unknown => (
            "Unknown",
            "NodeStatusUnknown",
            "Kubelet stopped posting node status.",
        ),
    };
    let now = Timestamp::now().to_string();
    let pressure = |type_: &str, so: bool, calm: &str, pressed: &str| {
        let (status, reason) = if so { ("True", pressed) } else { ("False", calm) };
        json!({"type": type_, "status": status, "reason": reason, "lastTransitionTime": now, "lastHeartbeatTime": now})
    };
    let full = standing == Standing::DiskPressure;
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": host.name.as_str()},
        "status": {
            "addresses": [
                {"type": "InternalIP", "address": host.ip},
                {"type": "Hostname", "address": host.name.as_str()},
            ],
            "conditions": [
                {"type": "Ready", "status": status, "reason": reason, "message": message,
                 "lastTransitionTime": now, "lastHeartbeatTime": now},
                pressure("MemoryPressure", false, "KubeletHasSufficientMemory", "KubeletHasInsufficientMemory"),
                pressure("DiskPressure", full, "KubeletHasNoDiskPressure", "KubeletHasDiskPressure"),
            ],
        },
    })
}

/// Keeps Nodes true to their hosts until the handle is dropped.
pub(crate) fn keep(client: kube::Client, world: World) -> AbortOnDropHandle<()> {
    AbortOnDropHandle::new(tokio::spawn(async move {
        let nodes: Api<Node> = Api::all(client);
        let mut kubelets: HashMap<HostName, Kubelet> = HashMap::new();
        loop {
            let hosts: Vec<Seen> = world.read(|state| state.hosts.values().map(Seen::of).collect());
            for host in &hosts {
                let kubelet = kubelets.entry(host.name.clone()).or_default();
                let standing = kubelet.judge(host.voice, Instant::now());
                if kubelet.told == Some(standing) {
                    continue;
                }
                let params = PatchParams::apply(MANAGER).force();
                let report = status(host, standing);
                match nodes
                    .patch_status(host.name.as_str(), &params, &Patch::Apply(&report))
                    .await
                {
                    Ok(_) => kubelet.told = Some(standing),
                    Err(error) => {
                        tracing::warn!(node = %host.name, %error, "the Node's status is not written");
                    }
                }
            }
            tokio::time::sleep(LOOK).await;
        }
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_silence_is_noticed_after_a_while_and_forgotten_at_once() {
        let begin = Instant::now();
        let mut kubelet = Kubelet::default();
        assert_eq!(kubelet.judge(Voice::Well, begin), Standing::Ready);
        kubelet.told = Some(Standing::Ready);
        assert_eq!(kubelet.judge(Voice::Silent, begin), Standing::Ready);
        assert_eq!(kubelet.judge(Voice::Silent, begin + GRACE / 2), Standing::Ready);
        assert_eq!(kubelet.judge(Voice::Silent, begin + GRACE), Standing::Unknown);
        kubelet.told = Some(Standing::Unknown);
        assert_eq!(kubelet.judge(Voice::Silent, begin + GRACE * 2), Standing::Unknown);
        assert_eq!(
            kubelet.judge(Voice::DiskFull, begin + GRACE * 2),
            Standing::DiskPressure
        );
        assert_eq!(kubelet.judge(Voice::Well, begin + GRACE * 2), Standing::Ready);
        kubelet.told = Some(Standing::Ready);
        assert_eq!(
            kubelet.judge(Voice::Silent, begin + GRACE * 3),
            Standing::Ready,
            "a new silence is a new wait"
        );
    }
}
