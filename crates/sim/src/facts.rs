// SPDX-License-Identifier: Apache-2.0
//! What an agent on a simulated host would read from its file system: release, boot, hardware and firmware. Only files
//! that agents read; everything in them follows from the host.

use std::path::Path;

use crate::error::Error;
use crate::world::Host;

/// Lines of the release file.
const RELEASE: [&str; 6] = [
    "ID=gardenlinux",
    "NAME=\"Garden Linux\"",
    "PRETTY_NAME=\"Garden Linux 1877.5\"",
    "VERSION_ID=1877.5",
    "GARDENLINUX_VERSION=1877.5",
    "VARIANT_ID=metal-kvm-amd64",
];
const KERNEL: &str = "6.12.40-cloud-amd64";
const VENDOR: &str = "Lenovo";
const MODEL: &str = "ThinkSystem SR650 V3";
const FIRMWARE: &str = "ESE126K-3.20";

/// The same that the host's BMC names.
fn serial(host: &Host) -> String {
    host.node_uuid.to_string()
}

/// What the host's hostnamed says of it.
pub fn description(host: &Host) -> String {
    serde_json::json!({
        "Hostname": host.name.as_str(), "OperatingSystemReleaseData": RELEASE, "KernelName": "Linux", "KernelRelease": KERNEL,
        "HardwareVendor": VENDOR, "HardwareModel": MODEL, "HardwareSerial": serial(host),
        "FirmwareVendor": VENDOR, "FirmwareVersion": FIRMWARE,
    })
    .to_string()
}

/// Writes the files of `host` below `root`.
pub fn write(host: &Host, root: &Path) -> Result<(), Error> {
    let serial = serial(host);
    let files = [
        ("etc/os-release", RELEASE.map(|line| format!("{line}\n")).concat()),
        (
            "proc/cmdline",
            "BOOT_IMAGE=/vmlinuz intel_iommu=on iommu=pt default_hugepagesz=2M\n".to_owned(),
        ),
        ("proc/sys/kernel/random/boot_id", format!("{}\n", host.boot_id)),
        ("sys/class/dmi/id/sys_vendor", format!("{VENDOR}\n")),
        ("sys/class/dmi/id/product_name", format!("{MODEL}\n")),
        ("sys/class/dmi/id/product_serial", format!("{serial}\n")),
        ("sys/class/dmi/id/product_uuid", format!("{}\n", host.node_uuid)),
        ("sys/class/dmi/id/bios_vendor", format!("{VENDOR}\n")),
        ("sys/class/dmi/id/bios_version", format!("{FIRMWARE}\n")),
        ("sys/class/dmi/id/bios_date", "05/14/2026\n".to_owned()),
    ];
    for (path, text) in files {
        let path = root.join(path);
        let save = || -> std::io::Result<()> {
            if let Some(folder) = path.parent() {
                std::fs::create_dir_all(folder)?;
            }
            std::fs::write(&path, text)
        };
        save().map_err(|source| Error::Save {
            path: path.clone(),
            source,
        })?;
    }
    Ok(())
}
