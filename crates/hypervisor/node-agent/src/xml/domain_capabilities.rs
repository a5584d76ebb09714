// SPDX-License-Identifier: Apache-2.0
//! What guests may have: the lists that placement compares between hosts, in the order of the document and each
//! entry once.

use cobaltcore_api::DomainCapabilities;

use super::walk::{Step, is, walk};
use crate::error::Error;

/// Reads domain capabilities.
pub fn domain_capabilities(xml: &str) -> Result<DomainCapabilities, Error> {
    let mut found = DomainCapabilities::default();
    // The supported mode or device that encloses the present place.
    let mut within: Option<String> = None;
    walk("domain capabilities", xml, |path, step| {
        let names: Vec<&str> = path.iter().map(String::as_str).collect();
        match (names.as_slice(), step) {
            (_, Step::Text(text)) if is(path, "domainCapabilities/arch") => text.clone_into(&mut found.arch),
            (_, Step::Text(text)) if is(path, "domainCapabilities/domain") => {
                text.clone_into(&mut found.hypervisor_type);
            }
            ([_, "cpu", "mode"], Step::Open(attributes)) => {
                within = attributes
                    .get("name")
                    .filter(|_| attributes.supported())
                    .map(|name| format!("mode/{name}"));
                add(&mut found.supported_cpu_modes, within.as_deref());
            }
            ([_, "cpu", "mode", "enum", "value"], Step::Text(text)) => {
                let entry = within.as_ref().map(|mode| format!("{mode}/{text}"));
                add(&mut found.supported_cpu_modes, entry.as_deref());
            }
            ([_, "devices", device], Step::Open(attributes)) => {
                within = attributes.supported().then(|| (*device).to_owned());
                add(&mut found.supported_devices, within.as_deref());
            }
            ([_, "devices", _, "enum", "value"], Step::Text(text)) => {
                let entry = within.as_ref().map(|device| format!("{device}/{text}"));
                add(&mut found.supported_devices, entry.as_deref());
            }
            ([_, "features", feature], Step::Open(attributes)) if attributes.supported() => {
                add(&mut found.supported_features, Some(feature));
            }
            _ => {}
        }
    })?;
    Ok(found)
}

fn add(list: &mut Vec<String>, entry: Option<&str>) {
    if let Some(entry) = entry.filter(|entry| !list.iter().any(|old| old == entry)) {
        list.push(entry.to_owned());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn supported_things_are_listed_in_order_and_once() {
        let found = domain_capabilities(
            "<domainCapabilities><path>/usr/bin/qemu</path><domain>kvm</domain><arch>x86_64</arch>
             <cpu><mode name='host-passthrough' supported='yes'><enum name='migratable'><value>on</value><value>off</value></enum></mode>
                <mode name='maximum' supported='no'><enum name='x'><value>y</value></enum></mode>
                <mode name='custom' supported='yes'><model usable='yes'>qemu64</model></mode></cpu>
             <devices><disk supported='yes'><enum name='bus'><value>virtio</value><value>usb</value></enum>
                <enum name='model'><value>virtio</value></enum></disk><tpm supported='no'/></devices>
             <features><gic supported='no'/><vmcoreinfo supported='yes'/><backup supported='yes'/></features>
             </domainCapabilities>",
        )
        .unwrap();
        assert_eq!(
            (found.arch.as_str(), found.hypervisor_type.as_str()),
            ("x86_64", "kvm")
        );
        assert_eq!(
            found.supported_cpu_modes,
            [
                "mode/host-passthrough",
                "mode/host-passthrough/on",
                "mode/host-passthrough/off",
                "mode/custom"
            ]
        );
        assert_eq!(found.supported_devices, ["disk", "disk/virtio", "disk/usb"]);
        assert_eq!(found.supported_features, ["vmcoreinfo", "backup"]);
    }
}
