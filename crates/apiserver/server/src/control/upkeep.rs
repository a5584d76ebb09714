// SPDX-License-Identifier: Apache-2.0
//! What a cluster keeps by itself: an account and the CA in every namespace, the status of
//! disruption budgets and quotas, roles that collect rules of others, and events that grow old.

use std::sync::Arc;

use cobaltcore_builtins::Owner;
use serde_json::{Value, json};

use super::internal::Hand;
use super::queue::Work;
use crate::api::Api;
use crate::clock;
use crate::meta;
use crate::status::{ApiError, ApiResult};
use crate::store::{Action, Change, CommitError, Draft, Event, Expect, Key, Op, Table};

/// Events removed per commit.
const EXPIRY_BATCH: usize = 256;
/// Roles may collect from roles that collect; so many times the rules are carried on at once.
const COLLECTING_ROUNDS: usize = 8;
const ROOT_CA: &str = "kube-root-ca.crt";

impl Api {
    /// Queues what a commit gives to do. Runs in the writer.
    pub(crate) fn upkeep_observes(&self, table: &Table, event: &Event) {
        if self.concerns_quotas(table, event) {
            self.queue.add(Work::Quotas(event.key.namespace.to_string()));
        }
        let namespace = event.key.namespace.to_string();
        match (&*table.group, &*table.plural) {
            ("", "namespaces") if event.op == Op::Added => {
                self.queue.add(Work::Accounts(event.key.name.to_string()));
            }
            ("", "serviceaccounts") if event.op == Op::Deleted && &*event.key.name == "default" => {
                self.queue.add(Work::Accounts(namespace));
            }
            ("", "configmaps") if &*event.key.name == ROOT_CA && event.op != Op::Added => {
                self.queue.add(Work::Accounts(namespace));
            }
            ("", "pods") | ("policy", "poddisruptionbudgets") => self.queue.add(Work::Budgets(namespace)),
            ("apps", "deployments" | "replicasets" | "statefulsets") | ("", "replicationcontrollers") => {
                self.queue.add(Work::Budgets(namespace));
            }
            ("rbac.authorization.k8s.io", "clusterroles") => self.queue.add(Work::Roles),
            _ => {}
        }
    }

    /// The account and the CA certificate of a namespace.
    pub(crate) async fn keep_accounts(self: &Arc<Self>, namespace: &str) -> ApiResult<()> {
        if self.namespace(namespace).is_none_or(|r| r.facts.deleting) {
            return Ok(());
        }
        if self.lookup("", "serviceaccounts", namespace, "default").is_none() {
            let accounts = self.builtin("", "v1", "serviceaccounts")?;
            let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default", "namespace": namespace}});
            fine_if_there(
                Hand::new(self, "service-account-controller")
                    .create(&accounts, namespace, account)
                    .await,
            )?;
        }
        let maps = self.builtin("", "v1", "configmaps")?;
        let data = json!({"ca.crt": self.pki.ca_pem()});
        let hand = Hand::new(self, "root-ca-cert-publisher");
        match self.lookup("", "configmaps", namespace, ROOT_CA) {
            None => {
                let text = "Contains a CA bundle that can be used to verify the kube-apiserver when using internal endpoints such as the internal service IP or kubernetes.default.svc. No other usage is guaranteed across distributions of Kubernetes clusters.";
                let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": data,
                    "metadata": {"name": ROOT_CA, "namespace": namespace, "annotations": {"kubernetes.io/description": text}}});
                fine_if_there(hand.create(&maps, namespace, map).await)
            }
            Some(record) => {
                let mut map = record.parse();
                if map["data"] == data {
                    return Ok(());
                }
                map["data"] = data;
                hand.replace(&maps, &Key::new(namespace, ROOT_CA), map, None)
                    .await
                    .map(|_| ())
            }
        }
    }

    /// The status of every budget of a namespace.
    pub(crate) async fn keep_budgets(self: &Arc<Self>, namespace: &str) -> ApiResult<()> {
        let budgets = self.objects("policy", "poddisruptionbudgets", Some(namespace));
        if budgets.is_empty() {
            return Ok(());
        }
        let pods = self.objects("", "pods", Some(namespace));
        let resource = self.builtin("policy", "v1", "poddisruptionbudgets")?;
        for budget in budgets {
            let status = cobaltcore_builtins::pdb_status(&budget, &pods, self.clock.now(), |owner| {
                self.scale_of(namespace, owner, 0)
            });
            if budget["status"] == status {
                continue;
            }
            let mut next = budget.clone();
            next["status"] = status;
            let key = Key::new(namespace, meta::name(&budget));
            Hand::new(self, "disruption-controller")
                .replace(&resource, &key, next, Some("status"))
                .await?;
        }
        Ok(())
    }

    /// The status of every quota of a namespace.
    pub(crate) async fn keep_quotas(self: &Arc<Self>, namespace: &str) -> ApiResult<()> {
        let resource = self.builtin("", "v1", "resourcequotas")?;
        for quota in self.objects("", "resourcequotas", Some(namespace)) {
            let status = self.quota_state(namespace, &quota);
            if quota["status"] == status {
                continue;
            }
            let mut next = quota.clone();
            next["status"] = status;
            let key = Key::new(namespace, meta::name(&quota));
            Hand::new(self, "resourcequota-controller")
                .replace(&resource, &key, next, Some("status"))
                .await?;
        }
        Ok(())
    }

    /// How many replicas the controller of a pod wants; ReplicaSets are followed to their Deployment.
    fn scale_of(&self, namespace: &str, owner: &Owner, depth: usize) -> Option<i64> {
        let (group, version) = meta::split_api_version(&owner.api_version);
        let resource = self.types().by_kind(group, version, &owner.kind)?;
        let object = resource.table.get(&Key::new(namespace, &owner.name))?.parse();
        if meta::text(&object, "uid") != owner.uid {
            return None;
        }
        let above = object["metadata"]["ownerReferences"]
            .as_array()
            .into_iter()
            .flatten()
            .find(|o| o["controller"] == true);
        if let (Some(above), true) = (above, depth < 4) {
            let text = |key: &str| above[key].as_str().unwrap_or_default().to_owned();
            let above = Owner {
                api_version: text("apiVersion"),
                kind: text("kind"),
                name: text("name"),
                uid: text("uid"),
            };
            if let Some(wanted) = self.scale_of(namespace, &above, depth + 1) {
                return Some(wanted);
            }
        }
        if !resource.has_scale() {
            return None;
        }
        let path = resource.scale_paths().spec_replicas;
        path.trim_start_matches('.')
            .split('.')
            .try_fold(&object, |node, key| node.get(key))?
            .as_i64()
    }

    /// Brings roles that collect the rules of others up to date, also where those collect themselves.
    pub(crate) async fn keep_roles(self: &Arc<Self>) -> ApiResult<()> {
        for _ in 0..COLLECTING_ROUNDS {
            if !self.collect_rules().await? {
                return Ok(());
            }
        }
        Ok(())
    }

    /// One round over all roles; tells whether another may find more.
    async fn collect_rules(self: &Arc<Self>) -> ApiResult<bool> {
        let mut moved = false;
        let roles = self.objects("rbac.authorization.k8s.io", "clusterroles", None);
        let resource = self.builtin("rbac.authorization.k8s.io", "v1", "clusterroles")?;
        for (name, rules) in cobaltcore_access::rbac::aggregate(&roles) {
            let Some(role) = roles.iter().find(|r| meta::name(r) == name) else {
                continue;
            };
            if role["rules"].as_array() == Some(&rules) {
                continue;
            }
            let mut next = role.clone();
            meta::fields(&mut next).insert("rules".into(), Value::Array(rules));
            let hand = Hand::new(self, "clusterrole-aggregation-controller");
            match hand.replace(&resource, &Key::new("", &name), next, None).await {
                Ok(_) => moved = true,
                // Somebody was faster; the next round sees what they wrote.
                Err(error) if matches!(error.reason(), "Conflict" | "NotFound") => moved = true,
                Err(error) => return Err(error),
            }
        }
        Ok(moved)
    }

    /// Removes events that are older than their time to live.
    pub(crate) async fn expire_events(&self) -> ApiResult<()> {
        let table = self.table("", "events")?;
        let ttl = jiff::SignedDuration::try_from(self.config.event_ttl)
            .unwrap_or(jiff::SignedDuration::from_hours(1));
        let now = self.clock.now();
        let snapshot = table.snapshot(None, || self.store.revision());
        let mut changes = Vec::new();
        for (key, record) in snapshot.items {
            let event = record.parse();
            if last_seen(&event).is_some_and(|seen| now.duration_since(seen) > ttl) {
                let action = Action::Delete(Draft::new(&event, record.schema));
                changes.push(Change {
                    table: table.id,
                    key,
                    expect: Expect::Revision(record.revision),
                    action,
                });
            }
        }
        for batch in changes.chunks(EXPIRY_BATCH) {
            for change in batch {
                match self.store.commit(vec![change.clone()]).await {
                    Ok(_) | Err(CommitError::Conflict) => {}
                    Err(CommitError::Failed(why)) => return Err(ApiError::internal(why)),
                }
            }
        }
        Ok(())
    }
}

/// When an event was last reported.
fn last_seen(event: &Value) -> Option<jiff::Timestamp> {
    let times = [
        &event["series"]["lastObservedTime"],
        &event["lastTimestamp"],
        &event["eventTime"],
        &event["metadata"]["creationTimestamp"],
    ];
    times
        .iter()
        .filter_map(|t| t.as_str())
        .filter_map(clock::parse)
        .max()
}

fn fine_if_there<T>(result: ApiResult<T>) -> ApiResult<()> {
    match result {
        Err(error) if matches!(error.reason(), "AlreadyExists" | "NotFound") => Ok(()),
        other => other.map(|_| ()),
    }
}
