// SPDX-License-Identifier: Apache-2.0
//! Admission: what may change or refuse a request after it was authorised. Built-in plugins first,
//! then the configured webhooks.

mod allocate;
mod guard;
mod plugins;
mod webhooks;

use serde_json::Value;

use crate::api::Api;
use crate::status::ApiResult;
use crate::write::Write;

pub use webhooks::{Handler, Webhooks};

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
#[derive(Debug)]
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
    /// Mutating webhooks. The object is in its type's form again afterwards.
    pub async fn mutate(&self, attempt: &Attempt<'_>, object: &mut Value) -> ApiResult<()> {
        self.webhooks.mutate(self, attempt, object).await
    }

    /// Validating webhooks; `object` is absent for deletions.
    pub async fn validate(&self, attempt: &Attempt<'_>, object: Option<&Value>) -> ApiResult<()> {
        self.webhooks.validate(self, attempt, object).await
    }
}
