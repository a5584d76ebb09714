// SPDX-License-Identifier: Apache-2.0
//! The watchdog device. Opening it starts it, any byte feeds it, a `V` before closing stops it. Its timeout is the
//! kernel's business; it is read, and a device that would take longer than configured is not used.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::Path;
use std::time::Duration;

/// A watchdog that runs.
pub(super) struct Watchdog {
    file: File,
    timeout: Duration,
}

impl Watchdog {
    /// Starts it. `longest` is what the service is told to wait at most.
    pub(super) fn open(device: &Path, root: &Path, longest: Duration) -> Result<Self, String> {
        let timeout = match timeout(device, root) {
            Some(timeout) => timeout,
            // A device node whose timeout nobody knows proves nothing to the service.
            None if is_device(device) => {
                return Err(format!(
                    "the timeout of {} cannot be read from sysfs",
                    device.display()
                ));
            }
            None => longest,
        };
        if timeout > longest {
            return Err(format!(
                "{} has a timeout of {timeout:?}, more than the {longest:?} of self_fence.timeout; set it with the \
                 driver's module parameter",
                device.display()
            ));
        }
        let file = OpenOptions::new().append(true).open(device);
        let file = file.map_err(|error| format!("cannot open {}: {error}", device.display()))?;
        let mut watchdog = Self { file, timeout };
        watchdog.feed().map_err(|error| error.to_string())?;
        Ok(watchdog)
    }

    pub(super) fn timeout(&self) -> Duration {
        self.timeout
    }

    pub(super) fn feed(&mut self) -> std::io::Result<()> {
        self.file.write_all(b".")
    }

    pub(super) fn disarm(mut self) -> std::io::Result<()> {
        self.file.write_all(b"V")
    }
}

fn is_device(path: &Path) -> bool {
    use std::os::unix::fs::FileTypeExt as _;
    std::fs::metadata(path).is_ok_and(|data| data.file_type().is_char_device())
}

fn timeout(device: &Path, root: &Path) -> Option<Duration> {
    let name = device.file_name()?.to_str()?;
    // The old name is the first device.
    let name = if name == "watchdog" { "watchdog0" } else { name };
    let path = root.join("sys/class/watchdog").join(name).join("timeout");
    let text = std::fs::read_to_string(path).ok()?;
    text.trim().parse().ok().map(Duration::from_secs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_fed_and_disarmed() {
        let folder = tempfile::tempdir().unwrap();
        let device = folder.path().join("watchdog0");
        std::fs::write(&device, "").unwrap();
        let mut watchdog = Watchdog::open(&device, folder.path(), Duration::from_secs(60)).unwrap();
        watchdog.feed().unwrap();
        watchdog.disarm().unwrap();
        assert_eq!(std::fs::read_to_string(&device).unwrap(), "..V");
    }

    #[test]
    fn a_slower_device_is_not_used() {
        let folder = tempfile::tempdir().unwrap();
        let (device, sysfs) = (
            folder.path().join("watchdog"),
            folder.path().join("sys/class/watchdog/watchdog0"),
        );
        std::fs::create_dir_all(&sysfs).unwrap();
        std::fs::write(&device, "").unwrap();
        std::fs::write(sysfs.join("timeout"), "120\n").unwrap();
        let error = Watchdog::open(&device, folder.path(), Duration::from_secs(60))
            .err()
            .unwrap();
        assert!(error.contains("120s"), "{error}");
        assert_eq!(
            std::fs::read_to_string(&device).unwrap(),
            "",
            "it was not started"
        );
        std::fs::write(sysfs.join("timeout"), "30\n").unwrap();
        let watchdog = Watchdog::open(&device, folder.path(), Duration::from_secs(60)).unwrap();
        assert_eq!(watchdog.timeout(), Duration::from_secs(30));
    }
}
