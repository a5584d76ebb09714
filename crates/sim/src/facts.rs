// SPDX-License-Identifier: Apache-2.0
//! What an agent on a simulated host would read from its file system: release, boot, hardware and firmware. Only files
//! that agents read; everything in them follows from the host.

use std::path::Path;

use crate::error::Error;
use crate::world::Host;

/// Writes the files of `host` below `root`.
pub fn write(host: &Host, root: &Path) -> Result<(), Error> {
    let serial = host.node_uuid.simple().to_string().to_uppercase();
    let serial = serial.get(..10).unwrap_or(&serial);
    let files = [
        (
            "etc/os-release",
            "ID=gardenlinux\nNAME=\"Garden Linux\"\nPRETTY_NAME=\"Garden Linux 1877.5\"\nVERSION_ID=1877.5\n\
             GARDENLINUX_VERSION=1877.5\nVARIANT_ID=metal-kvm-amd64\n"
                .to_owned(),
        ),
        (
            "proc/cmdline",
            "BOOT_IMAGE=/vmlinuz intel_iommu=on iommu=pt default_hugepagesz=2M\n".to_owned(),
        ),
        ("proc/sys/kernel/random/boot_id", format!("{}\n", host.boot_id)),
        ("sys/class/dmi/id/sys_vendor", "Lenovo\n".to_owned()),
        (
            "sys/class/dmi/id/product_name",
            "ThinkSystem SR650 V3\n".to_owned(),
        ),
        ("sys/class/dmi/id/product_serial", format!("{serial}\n")),
        ("sys/class/dmi/id/bios_vendor", "Lenovo\n".to_owned()),
        ("sys/class/dmi/id/bios_version", "ESE126K-3.20\n".to_owned()),
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
