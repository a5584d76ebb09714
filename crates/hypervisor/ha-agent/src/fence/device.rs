// SPDX-License-Identifier: Apache-2.0
//! The watchdog device. Opening it starts it, any byte feeds it, a `V` before closing stops it. Its timeout is the
//! kernel's business; it is read, and a device that would take longer than configured is not used. Nor is one that every
//! closing stops, or none: whoever is told that it runs must be able to count on it, and a rollout must not reset hosts.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::Path;
use std::time::Duration;

/// The bit of a device's options that says that only a `V` before closing stops it (`WDIOF_MAGICCLOSE`).
const MAGIC_CLOSE: u32 = 0x0100;

/// A watchdog that runs.
pub(super) struct Watchdog {
    file: File,
    timeout: Duration,
}

impl Watchdog {
    /// Starts it. `longest` is what the service is told to wait at most; one that is faster than `shortest` is not started.
    pub(super) fn open(
        device: &Path,
        root: &Path,
        shortest: Duration,
        longest: Duration,
    ) -> Result<Self, String> {
        check_closing(device, root)?;
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
        if timeout < shortest {
            return Err(format!(
                "{} has a timeout of {timeout:?}: it would reset this host before it is known whether it is cut off, which \
                 takes {shortest:?}; set it with the driver's module parameter, or use another device, for example softdog",
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

/// Whether closing does what is counted on, as far as the kernel tells: older ones do not.
fn check_closing(device: &Path, root: &Path) -> Result<(), String> {
    let options = attribute(device, root, "options").and_then(|text| hexadecimal(&text));
    if options.is_some_and(|options| options & MAGIC_CLOSE == 0) {
        return Err(format!(
            "{} is stopped by any closing, so a host whose agent was killed would not reset itself although the service \
             counts on it; use another driver, for example softdog, and name its device in self_fence.device",
            device.display()
        ));
    }
    if attribute(device, root, "nowayout").is_some_and(|text| text != "0") {
        return Err(format!(
            "{} cannot be stopped once it runs, so every rollout of the agent and every change of self_fence would reset \
             this host; load its driver with the module parameter nowayout=0",
            device.display()
        ));
    }
    Ok(())
}

fn hexadecimal(text: &str) -> Option<u32> {
    u32::from_str_radix(text.trim_start_matches("0x"), 16).ok()
}

fn timeout(device: &Path, root: &Path) -> Option<Duration> {
    let text = attribute(device, root, "timeout")?;
    text.parse().ok().map(Duration::from_secs)
}

/// What the kernel says of a device.
fn attribute(device: &Path, root: &Path, attribute: &str) -> Option<String> {
    let name = device.file_name()?.to_str()?;
    // The old name is the first device.
    let name = if name == "watchdog" { "watchdog0" } else { name };
    let path = root.join("sys/class/watchdog").join(name).join(attribute);
    let text = std::fs::read_to_string(path).ok()?;
    Some(text.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: Duration = Duration::from_secs(30);
    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn it_is_fed_and_disarmed() {
        let folder = tempfile::tempdir().unwrap();
        let device = folder.path().join("watchdog0");
        std::fs::write(&device, "").unwrap();
        let mut watchdog = Watchdog::open(&device, folder.path(), SHORT, LONG).unwrap();
        watchdog.feed().unwrap();
        watchdog.disarm().unwrap();
        assert_eq!(std::fs::read_to_string(&device).unwrap(), "..V");
    }

    #[test]
    fn a_slower_or_a_hasty_device_is_not_used() {
        let folder = tempfile::tempdir().unwrap();
        let (device, sysfs) = (
            folder.path().join("watchdog"),
            folder.path().join("sys/class/watchdog/watchdog0"),
        );
        std::fs::create_dir_all(&sysfs).unwrap();
        std::fs::write(&device, "").unwrap();
        for (timeout, words) in [
            ("120\n", "120s"),
            ("61\n", "61s"),
            ("29\n", "29s"),
            ("10\n", "10s"),
        ] {
            std::fs::write(sysfs.join("timeout"), timeout).unwrap();
            let error = Watchdog::open(&device, folder.path(), SHORT, LONG).err().unwrap();
            assert!(error.contains(words), "{error}");
            assert_eq!(
                std::fs::read_to_string(&device).unwrap(),
                "",
                "it was not started"
            );
        }
        std::fs::write(sysfs.join("timeout"), "30\n").unwrap();
        let watchdog = Watchdog::open(&device, folder.path(), SHORT, LONG).unwrap();
        assert_eq!(watchdog.timeout(), Duration::from_secs(30));
    }

    #[test]
    fn a_device_is_used_only_if_nothing_but_the_agent_stops_it_and_the_agent_can() {
        let (used, any_close, never) = (None, Some("softdog"), Some("nowayout=0"));
        for (options, nowayout, wanted) in [
            (Some("0x8180\n"), Some("0\n"), used),
            (Some("0x100\n"), None, used),
            (Some("0x8080\n"), Some("0\n"), any_close),
            (Some("0x8080\n"), None, any_close),
            (Some("0x8180\n"), Some("1\n"), never),
            (None, Some("1\n"), never),
            // Nobody tells: the kernel is old.
            (None, None, used),
            (Some("?"), Some("0\n"), used),
        ] {
            let folder = tempfile::tempdir().unwrap();
            let (device, sysfs) = (
                folder.path().join("watchdog1"),
                folder.path().join("sys/class/watchdog/watchdog1"),
            );
            std::fs::create_dir_all(&sysfs).unwrap();
            std::fs::write(&device, "").unwrap();
            for (name, text) in [
                ("timeout", Some("30\n")),
                ("options", options),
                ("nowayout", nowayout),
            ] {
                if let Some(text) = text {
                    std::fs::write(sysfs.join(name), text).unwrap();
                }
            }
            let opened = Watchdog::open(&device, folder.path(), SHORT, LONG);
            let refused = opened.err();
            match wanted {
                None => assert_eq!(refused, None, "{options:?} {nowayout:?}"),
                Some(words) => {
                    let refused = refused.unwrap();
                    assert!(
                        refused.contains(words) && refused.contains("watchdog1"),
                        "{refused}"
                    );
                    assert_eq!(
                        std::fs::read_to_string(&device).unwrap(),
                        "",
                        "it was not started"
                    );
                }
            }
        }
    }
}
