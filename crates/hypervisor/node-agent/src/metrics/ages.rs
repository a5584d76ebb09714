// SPDX-License-Identifier: Apache-2.0
//! How old what the agent knows is, by where it comes from. Told when somebody looks, so that a source that has
//! fallen silent grows old in front of everybody.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::MetricType;

/// Where knowledge comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Source {
    /// libvirt's list of guests.
    Libvirt,
    /// libvirt's description of the host.
    Capabilities,
    /// systemd's states of units.
    Units,
    /// hostnamed and the host's files.
    Host,
    /// The watch of the own Hypervisor.
    Hypervisor,
}

impl Source {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Libvirt => "libvirt",
            Self::Capabilities => "capabilities",
            Self::Units => "units",
            Self::Host => "host",
            Self::Hypervisor => "hypervisor",
        }
    }
}

/// When each source last told something. A source that never did is missing.
#[derive(Debug, Clone, Default)]
pub(crate) struct Ages(Arc<Mutex<BTreeMap<Source, Instant>>>);

impl Ages {
    /// This source has just told how things are.
    pub(crate) fn fresh(&self, source: Source) {
        self.0.lock().insert(source, Instant::now());
    }
}

impl Collector for Ages {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), std::fmt::Error> {
        let help = "Seconds since a source last told how things are";
        let mut ages = encoder.encode_descriptor("model_age_seconds", help, None, MetricType::Gauge)?;
        for (source, told) in &*self.0.lock() {
            let label = [("source", source.as_str())];
            ages.encode_family(&label)?
                .encode_gauge(&told.elapsed().as_secs_f64())?;
        }
        Ok(())
    }
}
