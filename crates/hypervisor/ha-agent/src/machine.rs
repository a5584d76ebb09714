// SPDX-License-Identifier: Apache-2.0
//! What the host's files say: which machine and which boot this is, how long it runs, what presses it, and whether the
//! boot before ended in a crash. What cannot be read is left out.

use std::path::Path;

use cobaltcore_ha_wire::{BootId, Machine, Pressure, PressureLine, bounds};

/// Where dumps of a crashed kernel are left.
const DUMPS: [&str; 3] = ["sys/fs/pstore", "var/lib/systemd/pstore", "var/crash"];
const MOST_DUMPS: usize = 32;

fn read(root: &Path, path: &str) -> Option<String> {
    let text = std::fs::read_to_string(root.join(path)).ok()?;
    let text = text.trim();
    (!text.is_empty()).then(|| bounds::clip(text, bounds::NAME).to_owned())
}

/// The kernel's id of this boot. Without one, one of our own: a boot nobody can name is a new one.
pub(crate) fn boot_id(root: &Path) -> BootId {
    let id = read(root, "proc/sys/kernel/random/boot_id");
    BootId(id.unwrap_or_else(|| uuid::Uuid::new_v4().to_string()))
}

/// Which machine this is.
pub(crate) fn machine(root: &Path) -> Machine {
    let dmi = |name: &str| read(root, &format!("sys/class/dmi/id/{name}"));
    // The kernel shows both to root only; the device tree shows what it has to everybody.
    Machine {
        system_uuid: dmi("product_uuid").map(|text| text.to_ascii_lowercase()),
        serial: dmi("product_serial").or_else(|| read(root, "sys/firmware/devicetree/base/serial-number")),
    }
}

/// Seconds since boot.
pub(crate) fn uptime(root: &Path) -> u64 {
    let text = read(root, "proc/uptime");
    let seconds = text.and_then(|text| text.split('.').next()?.parse().ok());
    seconds.unwrap_or_else(|| crate::clock::boot_ns() / 1_000_000_000)
}

/// Pressure of the last ten seconds, if the kernel measures it.
pub(crate) fn pressure(root: &Path) -> Option<Pressure> {
    let line = |name: &str| Some(pressure_line(&read(root, &format!("proc/pressure/{name}"))?));
    Some(Pressure {
        cpu: line("cpu")?,
        io: line("io")?,
        memory: line("memory")?,
    })
}

fn pressure_line(text: &str) -> PressureLine {
    let of = |word: &str| -> f64 {
        let line = text
            .lines()
            .find(|line| line.starts_with(word))
            .unwrap_or_default();
        let value = line
            .split_whitespace()
            .find_map(|part| part.strip_prefix("avg10="));
        value
            .and_then(|value| value.parse().ok())
            .filter(|value: &f64| value.is_finite())
            .unwrap_or(0.0)
    };
    PressureLine {
        some: of("some"),
        full: of("full"),
    }
}

/// What lies beside dumps of a kernel: how the next kernel is begun, and what became of programs.
const NO_DUMPS: [&str; 6] = ["kexec_cmd", "linux", ".crash", ".upload", ".uploaded", ".lock"];

/// Crash dumps of earlier boots, by place and name.
pub(crate) fn dumps(root: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for place in DUMPS {
        let entries = std::fs::read_dir(root.join(place))
            .into_iter()
            .flatten()
            .flatten();
        let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
        let dumps = names.filter(|name| !NO_DUMPS.iter().any(|end| name.ends_with(end)));
        found.extend(dumps.map(|name| format!("{place}/{name}")));
    }
    found.sort();
    found.truncate(MOST_DUMPS);
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_a_host() {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        assert_eq!(machine(root.path()), Machine::default());
        assert_ne!(boot_id(root.path()), boot_id(root.path()));
        write("proc/sys/kernel/random/boot_id", "b-1\n");
        write("sys/class/dmi/id/product_uuid", "4C4C-AA\n");
        write("sys/class/dmi/id/product_serial", "J1\n");
        write("proc/uptime", "123.45 99.9\n");
        write(
            "proc/pressure/cpu",
            "some avg10=1.50 avg60=0.00 avg300=0.00 total=9\n",
        );
        write(
            "proc/pressure/io",
            "some avg10=2.00 avg60=0 total=1\nfull avg10=0.25 avg60=0 total=1\n",
        );
        write("proc/pressure/memory", "nonsense");
        write("sys/fs/pstore/dmesg-efi-1", "Oops");
        assert_eq!(boot_id(root.path()).0, "b-1");
        assert_eq!(machine(root.path()).system_uuid.as_deref(), Some("4c4c-aa"));
        assert_eq!(uptime(root.path()), 123);
        let pressure = pressure(root.path()).unwrap();
        assert_eq!(
            (pressure.cpu.some, pressure.io.full, pressure.memory.some),
            (1.5, 0.25, 0.0)
        );
        write("var/lib/systemd/pstore/1700000000/dmesg.txt", "Oops");
        write("var/crash/_usr_bin_python3.1000.crash", "a program");
        write("var/crash/kexec_cmd", "kexec");
        write("var/crash/202611160900/dump", "a kernel");
        let kernels = [
            "sys/fs/pstore/dmesg-efi-1",
            "var/crash/202611160900",
            "var/lib/systemd/pstore/1700000000",
        ];
        assert_eq!(dumps(root.path()), kernels);
    }
}
