// SPDX-License-Identifier: Apache-2.0
//! Why a server cannot move while it runs, read from its flavor.

use std::collections::BTreeMap;

/// What in the flavor ties a running server to the devices of its host.
pub fn pinned(extra_specs: &BTreeMap<String, String>) -> Option<String> {
    let says = |key: &String, what: &str| Some(format!("{what} ({key})"));
    extra_specs.keys().find_map(|key| match key.as_str() {
        "pci_passthrough:alias" => says(key, "a passed-through PCI device"),
        "accel:device_profile" => says(key, "an accelerator"),
        key_text if key_text.starts_with("resources") && key_text.ends_with(":VGPU") => {
            says(key, "a virtual GPU")
        }
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_of_the_host_pin_a_server() {
        let table = [
            ("pci_passthrough:alias", true),
            ("resources:VGPU", true),
            ("resources1:VGPU", true),
            ("accel:device_profile", true),
            ("hw:cpu_policy", false),
            ("resources:CUSTOM_MEMORY", false),
        ];
        for (key, pins) in table {
            let specs = BTreeMap::from([(key.to_owned(), "1".to_owned())]);
            assert_eq!(pinned(&specs).is_some(), pins, "{key}");
        }
    }
}
