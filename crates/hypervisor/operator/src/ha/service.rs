// SPDX-License-Identifier: Apache-2.0
//! The HA service as it is called in direct mode: one request per host, with a deadline,
//! verified TLS and a token from a file that may change at any time.

use std::time::Duration;

use cobaltcore_api::{Hypervisor, labels};
use cobaltcore_kit::tls::TokenFile;
use kube::ResourceExt as _;
use serde_json::json;

use crate::config::Config;
use crate::error::Error;
use crate::seen::LookAtHypervisor as _;

const TIME: Duration = Duration::from_secs(30);
const LONGEST_ANSWER: usize = 512;

/// The HA service.
pub(super) struct HaService {
    url: String,
    token: Option<TokenFile>,
    ca_file: String,
}

impl HaService {
    pub(super) fn new(config: &Config) -> Self {
        let url = match config.ha_service_url.as_str() {
            "" => std::env::var("KVM_HA_SERVICE_URL").unwrap_or_default(),
            url => url.to_owned(),
        };
        let token = Some(config.ha_service_token_file.as_str()).filter(|path| !path.is_empty());
        Self {
            url,
            token: token.map(TokenFile::new),
            ca_file: config.ha_service_ca_file.clone(),
        }
    }

    /// Switches the cover of a host. Letting go of a host that is not known is done already.
    pub(super) async fn switch(&self, hypervisor: &Hypervisor, enabled: bool) -> Result<(), Error> {
        let url = self.url_of(hypervisor)?;
        let failed =
            |error: reqwest::Error| Error::HaService(format!("asking the HA service at {url}: {error}"));
        let mut request = self.client()?.post(&url).json(&json!({"enabled": enabled}));
        if let Some(token) = &self.token {
            request = request.bearer_auth(token.current()?);
        }
        let answer = request.send().await.map_err(failed)?;
        let code = answer.status().as_u16();
        if code == 200 || (code == 404 && !enabled) {
            return Ok(());
        }
        let body: String = answer
            .text()
            .await
            .map_err(failed)?
            .chars()
            .take(LONGEST_ANSWER)
            .collect();
        Err(Error::HaService(format!(
            "ha service answered with unexpected response {code} for {body} from {url}"
        )))
    }

    fn url_of(&self, hypervisor: &Hypervisor) -> Result<String, Error> {
        let label = |key: cobaltcore_api::Key| {
            let missing =
                || Error::HaService(format!("Hypervisor {} has no label {key}", hypervisor.name_any()));
            hypervisor
                .label(key)
                .filter(|value| !value.is_empty())
                .ok_or_else(missing)
        };
        let base = if self.url.is_empty() {
            let (zone, region) = (label(labels::ZONE)?, label(labels::REGION)?);
            format!("https://kvm-ha-service-{zone}.{region}.cloud.sap")
        } else {
            self.url.trim_end_matches('/').to_owned()
        };
        Ok(format!("{base}/api/hypervisors/{}", label(labels::HOSTNAME)?))
    }

    /// Built for each call: calls are rare, and certificates may have changed.
    fn client(&self) -> Result<reqwest::Client, Error> {
        let failed = |reason: String| Error::HaService(format!("preparing to ask the HA service: {reason}"));
        cobaltcore_kit::startup::install_tls_provider();
        let mut builder = reqwest::Client::builder().timeout(TIME);
        if !self.ca_file.is_empty() {
            let text = std::fs::read(&self.ca_file).map_err(|e| failed(format!("{}: {e}", self.ca_file)))?;
            let roots = reqwest::Certificate::from_pem_bundle(&text)
                .map_err(|e| failed(format!("{}: {e}", self.ca_file)))?;
            builder = builder.tls_certs_only(roots);
        }
        builder.build().map_err(|e| failed(e.to_string()))
    }
}
