// SPDX-License-Identifier: Apache-2.0
//! LimitRanges and ResourceQuotas as gates. What is in use is counted from the stored objects each
//! time, so there is no second bookkeeping that could be wrong; writes into a namespace with quotas
//! take turns from the count to the commit, so that two cannot both take the last place.

use cobaltcore_builtins::{
    Usage, claim_limit_errors, pod_limit_errors, quota_add, quota_covers, quota_difference, quota_limits,
    quota_refusal, quota_status, quota_usage,
};
use serde_json::Value;

use crate::api::Api;
use crate::meta;
use crate::registry::Resource;
use crate::status::{ApiError, ApiResult};
use crate::store::{Event, Op, Table};
use crate::write::Write;

/// Kinds whose use can change without an object coming or going.
const CHANGING: [&str; 4] = ["persistentvolumeclaims", "pods", "resourcequotas", "services"];

impl Api {
    /// The LimitRanges of a namespace.
    pub(super) fn limit_ranges(&self, namespace: &str) -> Vec<Value> {
        self.objects("", "limitranges", Some(namespace))
    }

    /// Refuses pods and claims beyond the limits of their namespace.
    pub(super) fn guard_limits(&self, write: &Write<'_>, object: &Value) -> ApiResult<()> {
        let resource = write.resource;
        if !resource.group.is_empty() || write.subresource.is_some() {
            return Ok(());
        }
        let check = match &*resource.plural {
            "pods" => pod_limit_errors,
            "persistentvolumeclaims" => claim_limit_errors,
            _ => return Ok(()),
        };
        for range in self.limit_ranges(meta::namespace(object)) {
            let errors = check(object, &range);
            let why = match errors.as_slice() {
                [] => continue,
                [one] => one.clone(),
                many => format!("[{}]", many.join(", ")),
            };
            return Err(ApiError::forbidden(
                "",
                &resource.plural,
                meta::name(object),
                &why,
            ));
        }
        Ok(())
    }

    /// A turn among the writes of namespaces with quotas; everybody else need not wait.
    pub async fn quota_turn(
        &self,
        write: &Write<'_>,
        object: &Value,
        old: Option<&Value>,
    ) -> ApiResult<Option<tokio::sync::MutexGuard<'_, ()>>> {
        let resource = write.resource;
        let counts = resource.namespaced
            && write.subresource.is_none()
            && (old.is_none()
                || resource.group.is_empty()
                    && matches!(&*resource.plural, "persistentvolumeclaims" | "services"));
        if !counts || !self.has_quotas(meta::namespace(object)) {
            return Ok(None);
        }
        let turn = self.quotas.lock().await;
        self.check_quotas(resource, object, old)?;
        Ok(Some(turn))
    }

    fn has_quotas(&self, namespace: &str) -> bool {
        self.store.find("", "resourcequotas").is_some_and(|table| {
            let (page, _) = table.page(Some(namespace), None, 1, || 0);
            !page.items.is_empty()
        })
    }

    fn check_quotas(&self, resource: &Resource, object: &Value, old: Option<&Value>) -> ApiResult<()> {
        let (group, plural) = (&*resource.group, &*resource.plural);
        let namespace = meta::namespace(object);
        let mut more = quota_usage(group, plural, object);
        if let Some(old) = old {
            more = quota_difference(&more, &quota_usage(group, plural, old));
        }
        let is_pod = resource.is("", "Pod");
        for quota in self.objects("", "resourcequotas", Some(namespace)) {
            let hard = quota_limits(&quota);
            if !quota_covers(&quota, group, plural, object)
                || !more.keys().any(|name| hard.contains_key(name))
            {
                continue;
            }
            let used = self.used_of(&resource.table, group, plural, namespace, &quota);
            if let Some(why) = quota_refusal(&quota, object, is_pod, &used, &more) {
                return Err(ApiError::forbidden(group, plural, meta::name(object), &why));
            }
        }
        Ok(())
    }

    /// What the objects of one kind use of a quota.
    fn used_of(&self, table: &Table, group: &str, plural: &str, namespace: &str, quota: &Value) -> Usage {
        let mut used = Usage::new();
        for (_, record) in table.snapshot(Some(namespace), || self.store.revision()).items {
            let object = record.parse();
            if quota_covers(quota, group, plural, &object) {
                quota_add(&mut used, &quota_usage(group, plural, &object));
            }
        }
        used
    }

    /// The status a quota should have.
    pub(crate) fn quota_state(&self, namespace: &str, quota: &Value) -> Value {
        let mut used = Usage::new();
        for resource in self.types().resources() {
            if resource.namespaced && resource.is_stored() && resource.is_storage() {
                let (group, plural) = (&*resource.group, &*resource.plural);
                quota_add(
                    &mut used,
                    &self.used_of(&resource.table, group, plural, namespace, quota),
                );
            }
        }
        quota_status(quota, &used)
    }

    /// Whether a commit may have changed what a quota of its namespace counts. Runs on the writer
    /// thread.
    pub(crate) fn concerns_quotas(&self, table: &Table, event: &Event) -> bool {
        let namespace = &*event.key.namespace;
        let changes =
            event.op != Op::Modified || table.group.is_empty() && CHANGING.contains(&&*table.plural);
        !namespace.is_empty() && changes && self.has_quotas(namespace)
    }
}
