// SPDX-License-Identifier: Apache-2.0
//! What every cluster begins with: namespaces, the service of the API itself, roles and bindings.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::api::Api;
use crate::meta;
use crate::status::{ApiError, ApiResult};
use crate::store::{Action, Change, CommitError, Draft, Expect, Key};

/// The namespaces every cluster has.
pub(crate) const NAMESPACES: [&str; 4] = ["default", "kube-system", "kube-public", "kube-node-lease"];

/// The priority classes every cluster has, for what a cluster itself needs.
pub(crate) const SYSTEM_PRIORITIES: [(&str, i64, &str); 2] = [
    (
        "system-cluster-critical",
        2_000_000_000,
        "For pods a cluster cannot do without, wherever they run.",
    ),
    (
        "system-node-critical",
        2_000_001_000,
        "For pods a node cannot do without; they have to stay where they are.",
    ),
];

impl Api {
    /// Creates what is missing and restores changed bootstrap roles, in one commit.
    pub async fn bootstrap(self: &Arc<Self>) -> ApiResult<()> {
        let mut changes = Vec::new();
        for name in NAMESPACES {
            if self.namespace(name).is_none() {
                changes.push(self.creation(json!({
                    "apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name},
                }))?);
            }
        }
        self.plan_service(&mut changes)?;
        self.plan_endpoints(&mut changes)?;
        self.plan_service_range(&mut changes)?;
        self.plan_priorities(&mut changes)?;
        self.plan_api_services(&mut changes)?;
        self.plan_roles(&mut changes)?;
        if !changes.is_empty() {
            self.store.commit(changes).await.map_err(|error| match error {
                CommitError::Conflict => {
                    ApiError::internal("bootstrap objects changed while they were written")
                }
                CommitError::Failed(why) => ApiError::internal(why),
            })?;
        }
        // Controllers keep these too; done here, a server that answers is complete and quiet.
        let accounts = futures::future::join_all(NAMESPACES.map(|name| self.keep_accounts(name))).await;
        accounts.into_iter().collect::<ApiResult<()>>()?;
        self.keep_roles().await
    }

    fn plan_service(&self, changes: &mut Vec<Change>) -> ApiResult<()> {
        if self.lookup("", "services", "default", "kubernetes").is_some() {
            return Ok(());
        }
        let address = self.config.service_ip().to_string();
        let target = self.service_target();
        changes.push(self.creation(json!({
            "apiVersion": "v1", "kind": "Service",
            "metadata": {"name": "kubernetes", "namespace": "default", "labels": {"component": "apiserver", "provider": "kubernetes"}},
            "spec": {"type": "ClusterIP", "clusterIP": address, "clusterIPs": [address], "ipFamilies": ["IPv4"],
                "ipFamilyPolicy": "SingleStack",
                "ports": [{"name": "https", "port": 443, "protocol": "TCP", "targetPort": target}]},
        }))?);
        Ok(())
    }

    /// The port behind the service of the API.
    fn service_target(&self) -> u64 {
        match self.port.load(std::sync::atomic::Ordering::Relaxed) {
            0 => 6443,
            port => port,
        }
    }

    /// Where the service of the API leads, in both kinds that tell it. The port may be another one
    /// with every start.
    fn plan_endpoints(&self, changes: &mut Vec<Change>) -> ApiResult<()> {
        let ports = json!([{"name": "https", "port": self.service_target(), "protocol": "TCP"}]);
        let endpoints = json!({
            "apiVersion": "v1", "kind": "Endpoints",
            "metadata": {"name": "kubernetes", "namespace": "default",
                "labels": {"endpointslice.kubernetes.io/skip-mirror": "true"}},
            "subsets": [{"addresses": [{"ip": "127.0.0.1"}], "ports": ports}],
        });
        let slice = json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
            "metadata": {"name": "kubernetes", "namespace": "default",
                "labels": {"kubernetes.io/service-name": "kubernetes"}},
            "endpoints": [{"addresses": ["127.0.0.1"], "conditions": {"ready": true}}],
            "ports": ports,
        });
        self.plan_destination("", "endpoints", endpoints, changes)?;
        self.plan_destination("discovery.k8s.io", "endpointslices", slice, changes)
    }

    /// Creates what tells a destination, or brings what it tells up to date.
    fn plan_destination(
        &self,
        group: &str,
        plural: &str,
        object: Value,
        changes: &mut Vec<Change>,
    ) -> ApiResult<()> {
        let name = meta::name(&object);
        let Some(record) = self.lookup(group, plural, meta::namespace(&object), name) else {
            changes.push(self.creation(object)?);
            return Ok(());
        };
        let mut next = record.parse();
        for part in ["subsets", "endpoints", "ports"] {
            if let Some(value) = object.get(part) {
                meta::fields(&mut next).insert(part.to_owned(), value.clone());
            }
        }
        if next != record.parse() {
            changes.push(Change {
                table: self.table(group, plural)?.id,
                key: Key::new(meta::namespace(&object), name),
                expect: Expect::Revision(record.revision),
                action: Action::Put(Draft::new(&next, 0)),
            });
        }
        Ok(())
    }

    /// The range services have their addresses from.
    fn plan_service_range(&self, changes: &mut Vec<Change>) -> ApiResult<()> {
        const GROUP: &str = "networking.k8s.io";
        if self.lookup(GROUP, "servicecidrs", "", "kubernetes").is_some() {
            return Ok(());
        }
        let (address, bits) = self.config.service_cidr;
        let ready = json!({
            "type": "Ready", "status": "True", "reason": "", "lastTransitionTime": self.clock.stamp(),
            "message": "Kubernetes default Service CIDR is ready",
        });
        changes.push(self.creation(json!({
            "apiVersion": format!("{GROUP}/v1"), "kind": "ServiceCIDR", "metadata": {"name": "kubernetes"},
            "spec": {"cidrs": [format!("{address}/{bits}")]}, "status": {"conditions": [ready]},
        }))?);
        Ok(())
    }

    fn plan_priorities(&self, changes: &mut Vec<Change>) -> ApiResult<()> {
        for (name, value, description) in SYSTEM_PRIORITIES {
            if self
                .lookup("scheduling.k8s.io", "priorityclasses", "", name)
                .is_none()
            {
                changes.push(self.creation(json!({
                    "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass",
                    "metadata": {"name": name}, "value": value, "description": description,
                }))?);
            }
        }
        Ok(())
    }

    /// One object for each version of each built-in group: they are all served here.
    fn plan_api_services(&self, changes: &mut Vec<Change>) -> ApiResult<()> {
        const GROUP: &str = "apiregistration.k8s.io";
        let registry = self.types();
        let now = self.clock.stamp();
        for (group, served) in registry.groups() {
            let group: &str = group;
            let Some((minimum, _)) = priority(group, "") else {
                continue;
            };
            for version in served.served() {
                let name = format!("{}.{group}", version.name);
                if self.lookup(GROUP, "apiservices", "", &name).is_some() {
                    continue;
                }
                let priority = priority(group, &version.name).map_or(1, |(_, version)| version);
                let mut service = json!({
                    "apiVersion": format!("{GROUP}/v1"), "kind": "APIService",
                    "metadata": {"name": name, "labels": {"kube-aggregator.kubernetes.io/automanaged": "onstart"}},
                    "spec": {"group": group, "version": &*version.name, "groupPriorityMinimum": minimum,
                        "versionPriority": priority},
                    "status": {"conditions": [local_service(&now)]},
                });
                if group.is_empty() {
                    meta::fields(&mut service["spec"]).remove("group");
                }
                changes.push(self.creation(service)?);
            }
        }
        Ok(())
    }

    fn plan_roles(&self, changes: &mut Vec<Change>) -> ApiResult<()> {
        let registry = self.types();
        let wanted = cobaltcore_access::rbac::bootstrap_objects(|group| registry.group(group).is_some());
        for object in wanted {
            let plural = format!("{}s", object["kind"].as_str().unwrap_or_default().to_lowercase());
            let stored = self.lookup(
                "rbac.authorization.k8s.io",
                &plural,
                meta::namespace(&object),
                meta::name(&object),
            );
            match stored {
                None => changes.push(self.creation(object)?),
                Some(record) => {
                    let existing = record.parse();
                    if let Some(restored) = cobaltcore_access::rbac::reconcile(&object, Some(&existing)) {
                        let table = self.table("rbac.authorization.k8s.io", &plural)?;
                        changes.push(Change {
                            table: table.id,
                            key: Key::new(meta::namespace(&object), meta::name(&object)),
                            expect: Expect::Revision(record.revision),
                            action: Action::Put(Draft::new(&restored, 0)),
                        });
                    }
                }
            }
        }
        Ok(())
    }

    /// The change that creates a built-in object as the server itself.
    pub(crate) fn creation(&self, mut object: Value) -> ApiResult<Change> {
        let api_version = object["apiVersion"].as_str().unwrap_or_default().to_owned();
        let (group, version) = meta::split_api_version(&api_version);
        let kind = object["kind"].as_str().unwrap_or_default();
        let resource = self
            .types()
            .by_kind(group, version, kind)
            .ok_or_else(|| ApiError::internal(format!("{kind} is not served")))?;
        meta::set(&mut object, "uid", json!(uuid::Uuid::new_v4().to_string()));
        meta::set(&mut object, "creationTimestamp", json!(self.clock.stamp()));
        if resource.has_generation() {
            meta::set(&mut object, "generation", json!(1));
        }
        resource.default(&mut object);
        // What is prepared belongs to nobody.
        let filter = resource.filter(None);
        cobaltcore_patch::update(
            cobaltcore_patch::UpdateRequest {
                old: None,
                blank: None,
                schema: resource.schema(),
                versions: None,
                manager: "kube-apiserver",
                api_version: &api_version,
                subresource: None,
                filter: &filter,
                now: &self.clock.stamp(),
            },
            &mut object,
        );
        let status = object.get("status").cloned();
        resource.prepare_create(&mut object);
        if let Some(status) = status {
            meta::fields(&mut object).insert("status".into(), status);
        }
        Ok(Change {
            table: resource.table.id,
            key: Key::new(meta::namespace(&object), meta::name(&object)),
            expect: Expect::Absent,
            action: Action::Put(Draft::new(&object, 0)),
        })
    }
}

/// The condition of an APIService that is served here.
pub(crate) fn local_service(now: &str) -> Value {
    json!({"type": "Available", "status": "True", "lastTransitionTime": now,
        "reason": "Local", "message": "Local APIServices are always available"})
}

/// How far ahead of others a built-in group and a version of it stand; `None` for other groups.
pub(crate) fn priority(group: &str, version: &str) -> Option<(u32, u32)> {
    let minimum = match group {
        "" => return Some((18_000, 1)),
        "apps" => 17_800,
        "events.k8s.io" => 17_750,
        "authentication.k8s.io" => 17_700,
        "authorization.k8s.io" => 17_600,
        "autoscaling" => 17_500,
        "batch" => 17_400,
        "certificates.k8s.io" => 17_300,
        "networking.k8s.io" => 17_200,
        "policy" => 17_100,
        "rbac.authorization.k8s.io" => 17_000,
        "storage.k8s.io" => 16_800,
        "apiextensions.k8s.io" | "admissionregistration.k8s.io" => 16_700,
        "scheduling.k8s.io" => 16_600,
        "coordination.k8s.io" => 16_500,
        "node.k8s.io" => 16_300,
        "discovery.k8s.io" => 16_200,
        "resource.k8s.io" => return Some((16_200, 21)),
        _ => return None,
    };
    Some((minimum, if version == "v2" { 30 } else { 15 }))
}
