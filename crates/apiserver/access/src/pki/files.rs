// SPDX-License-Identifier: Apache-2.0
//! Private files: created for their owner only, never read when others could read them.
//!
//! Symbolic links are not followed at the last part of a path. Writing goes through a temporary
//! file that is synced and renamed, so a crash leaves the old content or the new one.

use crate::error::AccessError;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

/// No key, token or kubeconfig comes near this.
const MAX_BYTES: u64 = 4 * 1024 * 1024;

fn failed<'a>(action: &'static str, path: &'a Path) -> impl Fn(std::io::Error) -> AccessError + 'a {
    move |source| AccessError::File {
        action,
        path: path.to_owned(),
        source,
    }
}

/// Checks that a directory exists, is no symbolic link and is closed to others.
pub fn check_private_dir(path: &Path) -> Result<(), AccessError> {
    let meta = std::fs::symlink_metadata(path).map_err(failed("open", path))?;
    if !meta.is_dir() {
        return Err(AccessError::WrongType {
            path: path.to_owned(),
            expected: "directory",
        });
    }
    let mode = meta.mode() & 0o7777;
    if mode & 0o077 != 0 {
        return Err(AccessError::TooOpen {
            path: path.to_owned(),
            mode,
            wanted: 0o700,
        });
    }
    Ok(())
}

/// Creates the directory (0700) when it is missing, then checks it.
pub(super) fn ensure_private_dir(path: &Path) -> Result<(), AccessError> {
    match std::fs::symlink_metadata(path) {
        Err(e) if e.kind() == ErrorKind::NotFound => {
            DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(path)
                .map_err(failed("create", path))?;
        }
        Err(e) => return Err(failed("open", path)(e)),
        Ok(_) => {}
    }
    check_private_dir(path)
}

/// The content of a private file; `None` when there is no such file.
pub fn read_private(path: &Path) -> Result<Option<Vec<u8>>, AccessError> {
    let named = match std::fs::symlink_metadata(path) {
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
        found => found.map_err(failed("read", path))?,
    };
    let wrong = || AccessError::WrongType {
        path: path.to_owned(),
        expected: "regular file",
    };
    if !named.is_file() {
        return Err(wrong());
    }
    let file = File::open(path).map_err(failed("read", path))?;
    let opened = file.metadata().map_err(failed("read", path))?;
    // The name may have been exchanged for a link between the two looks.
    if (opened.dev(), opened.ino()) != (named.dev(), named.ino()) {
        return Err(wrong());
    }
    let mode = opened.mode() & 0o7777;
    if mode & 0o077 != 0 {
        return Err(AccessError::TooOpen {
            path: path.to_owned(),
            mode,
            wanted: 0o600,
        });
    }
    let mut content = Vec::new();
    file.take(MAX_BYTES + 1)
        .read_to_end(&mut content)
        .map_err(failed("read", path))?;
    if content.len() as u64 > MAX_BYTES {
        let detail = "the file is larger than 4 MiB".to_owned();
        return Err(AccessError::Damaged {
            path: path.to_owned(),
            detail,
        });
    }
    Ok(Some(content))
}

fn parent_of(path: &Path) -> &Path {
    path.parent()
        .filter(|p| !p.as_os_str().is_empty())
        .unwrap_or(Path::new("."))
}

/// Writes a private file (0600) for good: temporary name, sync, rename, sync of the directory.
pub fn write_private(path: &Path, content: &[u8]) -> Result<(), AccessError> {
    replace_private(path, content)?;
    sync_dir(parent_of(path))
}

/// Makes new names in a directory last beyond a power failure.
pub(super) fn sync_dir(path: &Path) -> Result<(), AccessError> {
    File::open(path)
        .and_then(|dir| dir.sync_all())
        .map_err(failed("write", path))
}

/// Writes without the sync of the directory, for several files in one.
pub(super) fn replace_private(path: &Path, content: &[u8]) -> Result<(), AccessError> {
    let parent = parent_of(path);
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let mut nonce = [0u8; 8];
    ring::rand::SecureRandom::fill(&ring::rand::SystemRandom::new(), &mut nonce).map_err(|e| {
        AccessError::Crypto {
            action: "get random bytes",
            detail: e.to_string(),
        }
    })?;
    let temporary = parent.join(format!(".{name}.{:016x}.tmp", u64::from_be_bytes(nonce)));
    let write = || -> std::io::Result<()> {
        // A new file: an existing one, link or not, is an error.
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&temporary)?;
        file.write_all(content)?;
        file.sync_all()?;
        std::fs::rename(&temporary, path)
    };
    write().map_err(|source| {
        let _ = std::fs::remove_file(&temporary);
        AccessError::File {
            action: "write",
            path: path.to_owned(),
            source,
        }
    })
}
