// SPDX-License-Identifier: Apache-2.0
//! Facts from the host's own files and from uname(2). A file that is missing or unreadable is an
//! unknown fact, never an error: a virtual machine has no DMI table and is a host all the same.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;

use super::os_release::OsRelease;

/// No file read here is larger; what lies beyond is ignored.
const MOST_BYTES: u64 = 64 * 1024;

/// Where release files are looked for, in this order. The first one is where a container finds
/// the release file of the host it runs on.
const RELEASE_FILES: [&str; 3] = ["run/host/os-release", "etc/os-release", "usr/lib/os-release"];

/// What the kernel tells.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KernelFacts {
    pub(super) name: String,
    pub(super) release: String,
    pub(super) version: String,
    pub(super) command_line: String,
    pub(super) hardware_vendor: String,
    pub(super) hardware_model: String,
    pub(super) hardware_serial: String,
    pub(super) firmware_vendor: String,
    pub(super) firmware_version: String,
    pub(super) firmware_date: Option<Timestamp>,
}

/// The kernel's id of this boot.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct BootId(String);

impl BootId {
    /// Takes the kernel's text: hexadecimal digits in groups.
    ///
    /// ```
    /// use cobaltcore_node_agent::host::BootId;
    /// let boot = BootId::new("1b4e28ba-2fa1-11d2-883f-0016d3cca427\n").unwrap();
    /// assert_eq!(boot.short(), "1b4e28ba");
    /// assert!(BootId::new("").is_none());
    /// ```
    pub fn new(text: &str) -> Option<Self> {
        let text = text.trim().to_ascii_lowercase();
        let fits = (8..=64).contains(&text.len())
            && text.bytes().all(|b| b.is_ascii_hexdigit() || b == b'-')
            && text.bytes().take(8).all(|b| b.is_ascii_hexdigit());
        fits.then_some(Self(text))
    }

    /// The whole id.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Its first eight digits, enough to tell boots of one host apart in a name.
    pub fn short(&self) -> &str {
        self.0.get(..8).unwrap_or(&self.0)
    }
}

/// The host's files below a root, which is `/` outside of tests.
#[derive(Clone, Debug)]
pub struct HostFiles {
    root: PathBuf,
}

impl HostFiles {
    /// The files below `root`.
    pub fn below(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// The first release file that says anything.
    pub fn os_release(&self) -> OsRelease {
        let found = RELEASE_FILES
            .iter()
            .map(|path| OsRelease::parse(self.text(path).as_bytes()));
        found
            .into_iter()
            .find(|release| !release.is_empty())
            .unwrap_or_default()
    }

    /// What the kernel tells about itself, the hardware and the firmware.
    pub fn kernel(&self) -> KernelFacts {
        let uname = rustix::system::uname();
        let word = |text: &std::ffi::CStr| text.to_string_lossy().into_owned();
        let dmi = |name: &str| self.text(Path::new("sys/class/dmi/id").join(name));
        KernelFacts {
            name: word(uname.sysname()),
            release: word(uname.release()),
            version: word(uname.version()),
            command_line: self.text("proc/cmdline"),
            hardware_vendor: dmi("sys_vendor"),
            hardware_model: dmi("product_name"),
            hardware_serial: dmi("product_serial"),
            firmware_vendor: dmi("bios_vendor"),
            firmware_version: dmi("bios_version"),
            firmware_date: bios_date(&dmi("bios_date")),
        }
    }

    /// The id of this boot, when the kernel tells it.
    pub fn boot_id(&self) -> Option<BootId> {
        BootId::new(&self.text("proc/sys/kernel/random/boot_id"))
    }

    /// A file's text without white space around it; empty when it cannot be read.
    fn text(&self, path: impl AsRef<Path>) -> String {
        let mut bytes = Vec::new();
        let read = std::fs::File::open(self.root.join(path))
            .and_then(|file| file.take(MOST_BYTES).read_to_end(&mut bytes));
        match read {
            Ok(_) => String::from_utf8_lossy(&bytes)
                .trim_matches(|c: char| c.is_whitespace() || c == '\0')
                .to_owned(),
            Err(_) => String::new(),
        }
    }
}

/// `MM/DD/YYYY`, as firmware writes dates.
fn bios_date(text: &str) -> Option<Timestamp> {
    let mut parts = text.splitn(3, '/').map(str::parse::<i16>);
    let (month, day, year) = (parts.next()?.ok()?, parts.next()?.ok()?, parts.next()?.ok()?);
    let date = Date::new(year, month.try_into().ok()?, day.try_into().ok()?).ok()?;
    Some(date.to_zoned(TimeZone::UTC).ok()?.timestamp())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn firmware_dates_are_american() {
        assert_eq!(
            bios_date("06/13/2024"),
            Some("2024-06-13T00:00:00Z".parse().unwrap())
        );
        for odd in [
            "",
            "13/06/2024",
            "2024-06-13",
            "6/31/2024",
            "6/1",
            "06/13/2024/5",
            "99/99/99999",
        ] {
            assert_eq!(bios_date(odd), None, "{odd}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_a_date_or_not(text in ".{0,40}") {
            let _ = bios_date(&text);
        }

        #[test]
        fn every_real_date_is_read(year in 1970i16..2200, month in 1i8..=12, day in 1i8..=28) {
            let found = bios_date(&format!("{month:02}/{day:02}/{year}")).unwrap();
            let civil = found.to_zoned(TimeZone::UTC).date();
            prop_assert_eq!((civil.year(), civil.month(), civil.day()), (year, month, day));
        }

        #[test]
        fn any_text_is_a_boot_id_or_not(text in ".{0,80}") {
            if let Some(boot) = BootId::new(&text) {
                prop_assert_eq!(boot.short().len(), 8);
                prop_assert!(boot.short().bytes().all(|b| b.is_ascii_hexdigit()));
            }
        }
    }
}
