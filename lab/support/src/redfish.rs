// SPDX-License-Identifier: Apache-2.0
//! A host's BMC as a test sees it. The endpoint is a sushy-tools server whose power button is
//! the lab host's own, so what it says about power is a fact.

use base64::Engine;
use serde_json::{Value, json};

use crate::web::{self, Answer};
use crate::{Error, RedfishAddress, Result};

/// A client of one BMC.
#[derive(Debug, Clone)]
pub struct Redfish {
    address: RedfishAddress,
}

impl Redfish {
    /// A client with the credentials of the address.
    pub fn new(address: RedfishAddress) -> Self {
        Self { address }
    }

    /// The same BMC asked with another password.
    pub fn with_password(&self, password: &str) -> Self {
        let mut address = self.address.clone();
        password.clone_into(&mut address.password);
        Self { address }
    }

    /// The computer system resource.
    pub fn system(&self) -> Result<Value> {
        self.call("GET", "", None)?.success()?.json()
    }

    /// `On` or `Off`.
    pub fn power_state(&self) -> Result<String> {
        let system = self.system()?;
        let state = system.get("PowerState").and_then(Value::as_str);
        state.map(str::to_owned).ok_or_else(|| Error::Shape {
            url: self.address.url.clone(),
            detail: "no PowerState".to_owned(),
        })
    }

    /// `ComputerSystem.Reset` with the given type, such as `ForceOff`.
    pub fn reset(&self, reset_type: &str) -> Result<()> {
        let body = json!({ "ResetType": reset_type });
        self.call("POST", "/Actions/ComputerSystem.Reset", Some(&body))?
            .success()?;
        Ok(())
    }

    fn call(&self, method: &str, path: &str, body: Option<&Value>) -> Result<Answer> {
        let RedfishAddress {
            url,
            system,
            username,
            password,
        } = &self.address;
        let pair = base64::engine::general_purpose::STANDARD.encode(format!("{username}:{password}"));
        let basic = format!("Basic {pair}");
        web::call(
            method,
            &format!("{url}{system}{path}"),
            &[("authorization", &basic)],
            body,
        )
    }
}
