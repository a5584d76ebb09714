// SPDX-License-Identifier: Apache-2.0
//! What is counted, under the prefix `kvm_ha_`.

use cobaltcore_kit::telemetry::Telemetry;

/// All figures. Cheap to clone; clones share.
#[derive(Clone, Debug, Default)]
pub struct Metrics {}

impl Metrics {
    /// Figures that `telemetry` shows.
    pub fn new(telemetry: &Telemetry) -> Self {
        let _ = telemetry;
        Self::default()
    }
}
