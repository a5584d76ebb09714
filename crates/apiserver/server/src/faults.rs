// SPDX-License-Identifier: Apache-2.0
//! Faults that tests inject.

/// The faults in force.
#[derive(Debug, Default)]
pub struct Faults;

impl Faults {
    /// Applies the faults that match a request.
    pub async fn strike(&self, _user: &cobaltcore_access::identity::User, _info: &crate::reqinfo::RequestInfo) -> crate::status::ApiResult<()> {
        Ok(())
    }
}
