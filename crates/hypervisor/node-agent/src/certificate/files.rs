// SPDX-License-Identifier: Apache-2.0
//! The files of libvirt, QEMU and Cloud Hypervisor. Each is replaced by a rename, so a reader finds the old or the
//! new content and never half of one; the key comes before the certificate and the authority last, so that a daemon
//! that loads in between meets at worst a pair it refuses, and keeps the old one.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use super::decide::Disk;
use super::material::Material;

const KEYS: [&str; 3] = [
    "libvirt/private/serverkey.pem",
    "qemu/server-key.pem",
    "ch/server-key.pem",
];
const CERTIFICATES: [&str; 3] = [
    "libvirt/servercert.pem",
    "qemu/server-cert.pem",
    "ch/server-cert.pem",
];
const AUTHORITIES: [&str; 3] = ["CA/cacert.pem", "qemu/ca-cert.pem", "ch/ca-cert.pem"];
/// A link and what it points to, in its own directory.
const LINKS: [(&str, &str); 6] = [
    ("libvirt/private/clientkey.pem", "serverkey.pem"),
    ("libvirt/clientcert.pem", "servercert.pem"),
    ("qemu/client-key.pem", "server-key.pem"),
    ("qemu/client-cert.pem", "server-cert.pem"),
    ("ch/client-key.pem", "server-key.pem"),
    ("ch/client-cert.pem", "server-cert.pem"),
];
/// Which content libvirt was last made to load.
const LOADED: &str = "CA/.loaded_sha256";
const PUBLIC: u32 = 0o644;
const DIRECTORY: u32 = 0o755;
const MOST_BYTES: u64 = 1024 * 1024;

/// A file that could not be brought in place.
#[derive(Debug, thiserror::Error)]
#[error("{path}: {source}", path = path.display())]
pub struct InstallError {
    /// The file.
    pub path: PathBuf,
    /// Why not.
    pub source: io::Error,
}

/// The files below the PKI directory.
#[derive(Clone, Debug)]
pub struct PkiFiles {
    root: PathBuf,
    key_mode: u32,
    key_gid: Option<u32>,
}

impl PkiFiles {
    /// The files below `root`; keys get `key_mode` and the group `key_gid`, or that of their directory.
    pub fn new(root: &Path, key_mode: u32, key_gid: Option<u32>) -> Self {
        Self {
            root: root.to_owned(),
            key_mode,
            key_gid,
        }
    }

    /// Compares the disk with what should be there.
    pub fn compare(&self, material: &Material) -> Disk {
        let equal = wanted(material).all(|(path, content, private)| self.is_in_place(path, content, private))
            && LINKS.iter().all(|(link, target)| self.links_to(link, target));
        if !equal {
            return Disk::Different;
        }
        match read(&self.root.join(LOADED)) {
            Some(loaded) if loaded == material.fingerprint().into_bytes() => Disk::Loaded,
            _ => Disk::Equal,
        }
    }

    /// Brings every file in place that is not.
    pub fn install(&self, material: &Material) -> Result<(), InstallError> {
        for (path, content, private) in wanted(material) {
            if !self.is_in_place(path, content, private) {
                self.at(path, |file| {
                    let gid = private.then_some(self.key_gid).flatten();
                    replace_file(file, content, self.mode(private), gid)
                })?;
            }
        }
        for (link, target) in LINKS {
            if !self.links_to(link, target) {
                self.at(link, |file| replace_link(file, target))?;
            }
        }
        Ok(())
    }

    /// Remembers that libvirt was made to load this content.
    pub fn remember(&self, material: &Material) -> Result<(), InstallError> {
        self.at(LOADED, |file| {
            replace_file(file, material.fingerprint().as_bytes(), 0o600, None)
        })
    }

    fn mode(&self, private: bool) -> u32 {
        if private { self.key_mode } else { PUBLIC }
    }

    /// Whether a regular file has the content and nobody may read it who should not.
    fn is_in_place(&self, path: &str, content: &[u8], private: bool) -> bool {
        let file = self.root.join(path);
        let fits = std::fs::symlink_metadata(&file).is_ok_and(|found| {
            found.is_file()
                && found.mode() & 0o777 == self.mode(private)
                && (!private || self.key_gid.is_none_or(|gid| found.gid() == gid))
        });
        fits && read(&file).is_some_and(|found| found == content)
    }

    fn links_to(&self, link: &str, target: &str) -> bool {
        std::fs::read_link(self.root.join(link)).is_ok_and(|found| found == Path::new(target))
    }

    fn at(&self, path: &str, act: impl FnOnce(&Path) -> io::Result<()>) -> Result<(), InstallError> {
        let path = self.root.join(path);
        let done = path
            .parent()
            .map_or(Ok(()), make_directories)
            .and_then(|()| act(&path));
        done.map_err(|source| InstallError { path, source })
    }
}

/// Every regular file with its content and whether it is private, in the order of writing.
fn wanted(material: &Material) -> impl Iterator<Item = (&'static str, &[u8], bool)> {
    let keys = KEYS.map(|path| (path, material.key(), true));
    let certificates = CERTIFICATES.map(|path| (path, material.certificate(), false));
    let authorities = AUTHORITIES.map(|path| (path, material.ca(), false));
    keys.into_iter().chain(certificates).chain(authorities)
}

fn read(path: &Path) -> Option<Vec<u8>> {
    let mut content = Vec::new();
    File::open(path)
        .ok()?
        .take(MOST_BYTES)
        .read_to_end(&mut content)
        .ok()?;
    Some(content)
}

fn make_directories(path: &Path) -> io::Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    std::fs::create_dir_all(path)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(DIRECTORY))
}

/// Replaces a file by a rename: readers see the old or the new content, and a crash leaves one of them. The new file
/// has its mode before it has any content. Without `gid` it gets the group of its directory.
pub fn replace_file(path: &Path, content: &[u8], mode: u32, gid: Option<u32>) -> io::Result<()> {
    let directory = path.parent().unwrap_or(Path::new("."));
    let group = match gid {
        Some(gid) => gid,
        None => std::fs::metadata(directory)?.gid(),
    };
    let temporary = beside(path);
    remove(&temporary)?;
    let written = || {
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(mode & 0o600)
            .open(&temporary)?;
        if file.metadata()?.gid() != group {
            std::os::unix::fs::fchown(&file, None, Some(group))?;
        }
        // Independent of the umask, and after the group is right.
        file.set_permissions(std::fs::Permissions::from_mode(mode))?;
        file.write_all(content)?;
        file.sync_all()?;
        std::fs::rename(&temporary, path)?;
        File::open(directory)?.sync_all()
    };
    written().inspect_err(|_| {
        let _ = std::fs::remove_file(&temporary);
    })
}

/// Replaces whatever is at `path` by a link, a regular file included.
fn replace_link(path: &Path, target: &str) -> io::Result<()> {
    let temporary = beside(path);
    remove(&temporary)?;
    symlink(target, &temporary)?;
    std::fs::rename(&temporary, path).inspect_err(|_| {
        let _ = std::fs::remove_file(&temporary);
    })
}

/// A hidden name in the same directory, always the same one, so that a crash leaves at most one behind.
fn beside(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{name}.new"))
}

fn remove(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
