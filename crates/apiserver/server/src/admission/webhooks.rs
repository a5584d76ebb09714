// SPDX-License-Identifier: Apache-2.0
//! Mutating and validating admission webhooks.

use std::sync::Arc;

use serde_json::Value;

use super::Attempt;
use crate::api::Api;
use crate::status::ApiResult;

/// A webhook served inside this process.
pub type Handler = Arc<dyn Fn(Value) -> futures::future::BoxFuture<'static, Value> + Send + Sync>;

/// The configured webhooks.
#[derive(Debug, Default)]
pub struct Webhooks;

impl Webhooks {
    /// A configuration changed.
    pub fn changed(&self, _table: &crate::store::Table, _event: &crate::store::Event) {}

    /// Reads the stored configurations.
    pub fn load(&self, _api: &Api) {}

    /// Calls the mutating webhooks.
    pub async fn mutate(&self, _api: &Api, _attempt: &Attempt<'_>, _object: &mut Value) -> ApiResult<()> {
        Ok(())
    }

    /// Calls the validating webhooks.
    pub async fn validate(&self, _api: &Api, _attempt: &Attempt<'_>, _object: Option<&Value>) -> ApiResult<()> {
        Ok(())
    }
}
