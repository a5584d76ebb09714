// SPDX-License-Identifier: Apache-2.0
//! How hosts are switched off. The vocabulary is that of the devices themselves; only its mistakes
//! are told here, with their place in the file.

use cobaltcore_kit::config::Mistakes;

pub use cobaltcore_ha_fencing::{Config as Fencing, DeviceConfig, Driver, HostConfig, RequiredGrade};

pub(super) fn check(fencing: &Fencing, mistakes: &mut Mistakes<'_>) {
    for (key, message) in fencing.mistakes() {
        mistakes.add(&format!("fencing.{key}"), message);
    }
}
