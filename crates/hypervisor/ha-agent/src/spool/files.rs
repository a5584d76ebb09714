// SPDX-License-Identifier: Apache-2.0
//! The files of a spool: its identity, the lock, the mark of what was sent, and writing in a way that leaves either
//! the old content or the new.

use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use cobaltcore_ha_wire::AgentId;
use rustix::fs::{FlockOperation, flock, statvfs};
use serde::{Deserialize, Serialize};

use super::crc::crc32c;
use super::{MOST_QUARANTINED, SpoolError, failed};

const PREFIX: &str = "segment-";

/// What makes the numbers of a spool mean something.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Meta {
    pub(super) agent_id: AgentId,
    pub(super) epoch: u64,
    #[serde(default)]
    pub(super) dropped_total: u64,
    /// The highest number given when records were last given up; the records that carried it may be among them.
    #[serde(default)]
    pub(super) given: u64,
    /// Crash dumps that were reported.
    #[serde(default)]
    pub(super) dumps: BTreeSet<String>,
}

impl Meta {
    pub(super) fn new() -> Self {
        Self {
            agent_id: AgentId(uuid::Uuid::new_v4().to_string()),
            epoch: 0,
            dropped_total: 0,
            given: 0,
            dumps: BTreeSet::new(),
        }
    }
}

pub(super) fn read_meta(dir: &Path) -> Option<Meta> {
    serde_json::from_slice(&std::fs::read(dir.join("identity.json")).ok()?).ok()
}

pub(super) fn write_meta(dir: &Path, meta: &Meta) -> Result<(), SpoolError> {
    replace(&dir.join("identity.json"), &serde_json::to_vec(meta)?)
}

pub(super) fn lock(dir: &Path) -> Result<File, SpoolError> {
    let path = dir.join("lock");
    let file = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .open(&path)
        .map_err(failed("open", &path))?;
    flock(&file, FlockOperation::NonBlockingLockExclusive)
        .map_err(|_| SpoolError::Busy { path: dir.to_owned() })?;
    Ok(file)
}

pub(super) fn segment_name(first: u64) -> String {
    format!("{PREFIX}{first:020}")
}

/// The segments in order.
pub(super) fn segments(dir: &Path) -> Result<Vec<(u64, PathBuf)>, SpoolError> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).map_err(failed("list", dir))? {
        let entry = entry.map_err(failed("list", dir))?;
        let name = entry.file_name();
        if let Some(first) = name
            .to_str()
            .and_then(|name| name.strip_prefix(PREFIX)?.parse().ok())
        {
            found.push((first, entry.path()));
        }
    }
    found.sort();
    Ok(found)
}

pub(super) fn create(path: &Path) -> Result<File, SpoolError> {
    OpenOptions::new()
        .create(true)
        .truncate(true)
        .write(true)
        .open(path)
        .map_err(failed("create", path))
}

pub(super) fn open_for_append(path: &Path) -> Result<File, SpoolError> {
    OpenOptions::new()
        .append(true)
        .open(path)
        .map_err(failed("open", path))
}

pub(super) fn sync_dir(dir: &Path) -> Result<(), SpoolError> {
    let open = File::open(dir).and_then(|file| file.sync_all());
    open.map_err(failed("flush", dir))
}

/// The old content or the new, never a mixture, and durable when it returns.
pub(super) fn replace(path: &Path, content: &[u8]) -> Result<(), SpoolError> {
    let fresh = path.with_extension("new");
    let write = || -> std::io::Result<()> {
        let mut file = File::create(&fresh)?;
        file.write_all(content)?;
        file.sync_all()?;
        std::fs::rename(&fresh, path)
    };
    write().map_err(failed("replace", path))?;
    path.parent().map_or(Ok(()), sync_dir)
}

pub(super) fn remove(path: &Path) -> Result<(), SpoolError> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        other => other.map_err(failed("remove", path)),
    }
}

fn quarantined(dir: &Path, path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let at = jiff::Timestamp::now().as_second();
    dir.join("quarantine").join(format!("{name}.{at}"))
}

/// Moves a file to where people find it.
pub(super) fn quarantine(dir: &Path, path: &Path) -> Result<(), SpoolError> {
    std::fs::rename(path, quarantined(dir, path)).map_err(failed("quarantine", path))
}

/// The same with a copy, if there is room.
pub(super) fn copy_to_quarantine(dir: &Path, path: &Path) -> Result<(), SpoolError> {
    let size = std::fs::metadata(path).map_or(0, |data| data.len());
    if folder_bytes(&dir.join("quarantine")) + size > MOST_QUARANTINED {
        return Ok(());
    }
    let copied = std::fs::copy(path, quarantined(dir, path));
    copied.map(|_| ()).map_err(failed("quarantine", path))
}

pub(super) fn folder_bytes(folder: &Path) -> u64 {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .filter_map(|entry| Some(entry.metadata().ok()?.len()))
        .sum()
}

pub(super) fn read_at(path: &Path, offset: u64, most: usize) -> Result<Vec<u8>, SpoolError> {
    let read = || -> std::io::Result<Vec<u8>> {
        let mut file = File::open(path)?;
        file.seek(SeekFrom::Start(offset))?;
        let mut bytes = Vec::new();
        file.take(most as u64).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    read().map_err(failed("read", path))
}

/// A tenth of the file system the spool is on. What cannot be told does not limit.
pub(super) fn tenth_of_disk(dir: &Path) -> u64 {
    statvfs(dir).map_or(u64::MAX, |disk| disk.f_blocks.saturating_mul(disk.f_frsize) / 10)
}

/// The highest number that anybody may have seen. Written before it is sent, without waiting for the disk: it matters
/// only when the end of the last segment is lost while the file system lives.
pub(super) struct SentMark {
    file: File,
    path: PathBuf,
    highest: u64,
}

impl SentMark {
    pub(super) fn open(dir: &Path) -> Result<Self, SpoolError> {
        let path = dir.join("sent");
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .read(true)
            .write(true)
            .open(&path)
            .map_err(failed("open", &path))?;
        let mut bytes = [0_u8; 12];
        let read = file.read_exact_at(&mut bytes, 0).is_ok();
        let (number, crc) = bytes.split_at(8);
        let whole = read && crc == crc32c(number).to_le_bytes();
        let highest = if whole {
            u64::from_le_bytes(number.try_into().unwrap_or_default())
        } else {
            0
        };
        Ok(Self { file, path, highest })
    }

    pub(super) fn highest(&self) -> u64 {
        self.highest
    }

    pub(super) fn raise(&mut self, seq: u64) -> Result<(), SpoolError> {
        if seq <= self.highest {
            return Ok(());
        }
        let number = seq.to_le_bytes();
        let mut bytes = number.to_vec();
        bytes.extend_from_slice(&crc32c(&number).to_le_bytes());
        self.file
            .write_all_at(&bytes, 0)
            .map_err(failed("write", &self.path))?;
        self.highest = seq;
        Ok(())
    }
}
