// SPDX-License-Identifier: Apache-2.0
//! The facts of a host from a tree of files and from descriptions.

use super::*;

const DESCRIBED: &str = r##"{"Hostname": "node001", "KernelName": "Linux", "KernelRelease": "6.12.40-amd64",
    "KernelVersion": "#1 SMP", "HardwareVendor": "Lenovo", "HardwareModel": "SR650 V4",
    "HardwareSerial": "J902XYZ", "FirmwareVersion": "ESX326N", "FirmwareVendor": "Lenovo",
    "FirmwareDate": 1718236800000000,
    "OperatingSystemReleaseData": ["ID=gardenlinux", "PRETTY_NAME=Garden Linux 1877.3",
        "GARDENLINUX_VERSION=1877.3", "VERSION_ID=1877", "VARIANT_ID=metal-kvm_amd64",
        "GARDENLINUX_COMMIT_ID_LONG=abc123", "GARDENLINUX_FEATURES=base,server,,metal"]}"##;

fn tree(files: &[(&str, &str)]) -> (tempfile::TempDir, HostFiles) {
    let root = tempfile::tempdir().unwrap();
    for (path, text) in files {
        let path = root.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    let files = HostFiles::below(root.path());
    (root, files)
}

#[test]
fn hostnamed_is_believed_first() {
    let (_root, files) = tree(&[
        ("etc/os-release", "PRETTY_NAME=container\nVERSION_ID=1\n"),
        ("proc/cmdline", "BOOT_IMAGE=/vmlinuz intel_iommu=on \n"),
        ("sys/class/dmi/id/sys_vendor", "Other\n"),
    ]);
    let system = decide(&Sources {
        description: Some(Description::parse(DESCRIBED).unwrap()),
        release: files.os_release(),
        kernel: files.kernel(),
    });
    assert_eq!(system.version, "1877.3");
    assert_eq!(system.pretty_version, "Garden Linux 1877.3");
    assert_eq!(system.variant_id, "metal-kvm_amd64");
    assert_eq!(system.garden_linux_commit_id, "abc123");
    assert_eq!(system.garden_linux_features, ["base", "server", "metal"]);
    assert_eq!(system.kernel_release, "6.12.40-amd64");
    assert_eq!(system.kernel_command_line, "BOOT_IMAGE=/vmlinuz intel_iommu=on");
    assert_eq!(system.hardware_vendor, "Lenovo");
    let date = serde_json::to_value(&system).unwrap()["firmwareDate"].clone();
    assert_eq!(date, "2024-06-13T00:00:00Z");
}

#[test]
fn without_hostnamed_the_files_of_the_host_tell() {
    let (_root, files) = tree(&[
        (
            "run/host/os-release",
            "PRETTY_NAME=\"Debian GNU/Linux 12\"\nVERSION_ID=\"12\"\n",
        ),
        ("etc/os-release", "PRETTY_NAME=\"the container\"\n"),
        ("sys/class/dmi/id/sys_vendor", "QEMU\n"),
        ("sys/class/dmi/id/product_name", "Standard PC\n"),
        ("sys/class/dmi/id/product_serial", "S1\n"),
        ("sys/class/dmi/id/bios_vendor", "SeaBIOS\n"),
        ("sys/class/dmi/id/bios_version", "1.16\n"),
        ("sys/class/dmi/id/bios_date", "04/01/2014\n"),
        (
            "proc/sys/kernel/random/boot_id",
            "1b4e28ba-2fa1-11d2-883f-0016d3cca427\n",
        ),
    ]);
    let system = decide(&Sources {
        description: None,
        release: files.os_release(),
        kernel: files.kernel(),
    });
    assert_eq!(
        (system.version.as_str(), system.pretty_version.as_str()),
        ("12", "Debian GNU/Linux 12")
    );
    assert_eq!(system.kernel_name, "Linux");
    assert!(!system.kernel_release.is_empty());
    assert_eq!(
        (
            system.hardware_vendor.as_str(),
            system.hardware_model.as_str(),
            system.hardware_serial.as_str()
        ),
        ("QEMU", "Standard PC", "S1")
    );
    assert_eq!(
        (system.firmware_vendor.as_str(), system.firmware_version.as_str()),
        ("SeaBIOS", "1.16")
    );
    assert_eq!(
        serde_json::to_value(&system).unwrap()["firmwareDate"],
        "2014-04-01T00:00:00Z"
    );
    assert_eq!(files.boot_id().unwrap().short(), "1b4e28ba");
}

#[test]
fn a_bare_host_has_fewer_facts_and_no_invented_ones() {
    let (_root, files) = tree(&[]);
    let system = decide(&Sources {
        description: Some(Description::default()),
        release: files.os_release(),
        kernel: files.kernel(),
    });
    let json = serde_json::to_value(&system).unwrap();
    assert!(
        json.get("firmwareDate").is_none() && json.get("version").is_none(),
        "{json}"
    );
    assert_eq!(files.boot_id(), None);
}
