// SPDX-License-Identifier: Apache-2.0
//! Admission: what may change or refuse a request after it was authorised. Built-in plugins first,
//! then the configured webhooks.

mod allocate;
mod conditions;
mod guard;
mod matching;
mod plugins;
mod policies;
mod quota;
mod rights;
mod subject;
mod webhooks;

use serde_json::Value;

use crate::api::Api;
use crate::status::ApiResult;
use crate::subresource::{put_replicas, scale_of};
use crate::write::Write;

pub(crate) use conditions::errors as condition_errors;
pub(crate) use policies::{Policies, mutator_errors, policy_errors};
pub(crate) use webhooks::Converter;
pub use webhooks::Handler;
pub(crate) use webhooks::{WebhookCounts, Webhooks};

/// What a request does to an object, as admission sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// Creation.
    Create,
    /// Any change.
    Update,
    /// Deletion.
    Delete,
}

impl Operation {
    /// The name on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Create => "CREATE",
            Self::Update => "UPDATE",
            Self::Delete => "DELETE",
        }
    }
}

/// One object going through admission.
#[derive(Debug, Clone)]
pub struct Attempt<'a> {
    /// The write it belongs to.
    pub write: &'a Write<'a>,
    /// What happens to the object.
    pub operation: Operation,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// The stored state, if any.
    pub old: Option<&'a Value>,
    /// The options of the request as an object.
    pub options: Value,
}

impl Api {
    /// Mutating policies and webhooks; tells whether they changed the object, which is in its type's
    /// form again then. `object` is null for deletions.
    pub async fn mutate(&self, attempt: &Attempt<'_>, object: &mut Value) -> ApiResult<bool> {
        if attempt.write.subresource != Some("scale") {
            return self.mutate_body(attempt, object).await;
        }
        let resource = attempt.write.resource;
        let old = attempt.old.map(|old| scale_of(resource, old));
        let mut scale = scale_of(resource, object);
        let seen = Attempt {
            old: old.as_ref(),
            ..attempt.clone()
        };
        let changed = self.mutate_body(&seen, &mut scale).await?;
        if changed {
            put_replicas(resource, object, &scale);
        }
        Ok(changed)
    }

    async fn mutate_body(&self, attempt: &Attempt<'_>, object: &mut Value) -> ApiResult<bool> {
        let owned = object["metadata"]["managedFields"].clone();
        let mut by_policies = self.policies.mutate(self, attempt, object)?;
        if by_policies.changed && attempt.write.subresource.is_none() {
            // Built-in plugins look at what policies made of the object.
            let before = object.clone();
            self.admit_builtin(&mut attempt.clone(), object)?;
            if *object != before {
                by_policies.overtaken();
            }
        }
        let by_webhooks = self.webhooks.mutate(self, attempt, object).await?;
        if by_webhooks {
            by_policies.overtaken();
        }
        self.policies
            .mutate_again(self, attempt, object, &mut by_policies)?;
        let changed = by_policies.changed || by_webhooks;
        if changed {
            keep_ownership(attempt, object, owned);
            self.dedup_owners(attempt, object, true);
        }
        Ok(changed)
    }

    /// Validating policies, then webhooks; `object` is absent for deletions.
    pub async fn validate(&self, attempt: &Attempt<'_>, object: Option<&Value>) -> ApiResult<()> {
        if attempt.write.subresource != Some("scale") {
            self.policies.validate(self, attempt, object)?;
            return self.webhooks.validate(self, attempt, object).await;
        }
        let resource = attempt.write.resource;
        let old = attempt.old.map(|old| scale_of(resource, old));
        let scale = object.map(|object| scale_of(resource, object));
        let seen = Attempt {
            old: old.as_ref(),
            ..attempt.clone()
        };
        self.policies.validate(self, &seen, scale.as_ref())?;
        self.webhooks.validate(self, &seen, scale.as_ref()).await
    }
}

/// Notes about ownership that nobody can read any more are put back as they were before admission.
fn keep_ownership(attempt: &Attempt<'_>, object: &mut Value, before: Value) {
    if let Some(why) = cobaltcore_patch::unreadable_ownership(object) {
        crate::meta::set(object, "managedFields", before);
        attempt.write.call.warn(format!(
            ".metadata.managedFields was in an invalid state after admission; this could be caused by an outdated mutating admission controller; please fix your requests: {why}"
        ));
    }
}
