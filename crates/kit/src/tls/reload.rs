// SPDX-License-Identifier: Apache-2.0
//! A value made from files and made again when one of them changes. What counts as a change
//! is the identity, size and time of the file behind all links, because Kubernetes swaps
//! mounted secrets by changing a link.

use std::fmt;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::error::Error;

const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// What identifies the content of a file without reading it.
type Stamp = Option<(u64, u64, u64, i64, i64)>;

fn stamp(path: &Path) -> Stamp {
    let data = std::fs::metadata(path).ok()?;
    Some((
        data.dev(),
        data.ino(),
        data.size(),
        data.mtime(),
        data.mtime_nsec(),
    ))
}

struct Seen {
    stamps: Vec<Stamp>,
    looked: Instant,
}

/// A value that exists from the start and follows its files.
pub(super) struct Reloading<T> {
    paths: Vec<PathBuf>,
    load: Box<dyn Fn() -> Result<T, Error> + Send + Sync>,
    value: ArcSwap<T>,
    seen: Mutex<Seen>,
}

impl<T: Clone> Reloading<T> {
    pub(super) fn open(
        paths: Vec<PathBuf>,
        load: impl Fn() -> Result<T, Error> + Send + Sync + 'static,
    ) -> Result<Self, Error> {
        // Stamps are taken before reading, so that a change in between is seen next time.
        let stamps = paths.iter().map(|path| stamp(path)).collect();
        let value = ArcSwap::from_pointee(load()?);
        Ok(Self {
            paths,
            load: Box::new(load),
            value,
            seen: Mutex::new(Seen {
                stamps,
                looked: Instant::now(),
            }),
        })
    }

    pub(super) fn current(&self) -> T {
        self.refresh();
        T::clone(&self.value.load())
    }

    fn refresh(&self) {
        let mut seen = self.seen.lock();
        if self.paths.is_empty() || seen.looked.elapsed() < LOOK_AGAIN {
            return;
        }
        seen.looked = Instant::now();
        let stamps: Vec<Stamp> = self.paths.iter().map(|path| stamp(path)).collect();
        if stamps == seen.stamps {
            return;
        }
        seen.stamps = stamps;
        match (self.load)() {
            Ok(value) => {
                self.value.store(std::sync::Arc::new(value));
                tracing::info!(files = ?self.paths, "reloaded");
            }
            // A rotation in progress changes the files again, which leads to the next try.
            Err(error) => tracing::warn!(%error, "keeping the old material"),
        }
    }
}

/// A value whose file may appear later. Once read, it stays until it is read anew.
pub(super) struct Lazy<T> {
    path: PathBuf,
    load: fn(&Path) -> Result<T, Error>,
    state: Mutex<(Stamp, Option<T>)>,
}

impl<T: Clone> Lazy<T> {
    pub(super) fn new(path: PathBuf, load: fn(&Path) -> Result<T, Error>) -> Self {
        Self {
            path,
            load,
            state: Mutex::new((None, None)),
        }
    }

    pub(super) fn current(&self) -> Result<T, Error> {
        let mut state = self.state.lock();
        let now = stamp(&self.path);
        if let (true, Some(value)) = (now == state.0, &state.1) {
            return Ok(value.clone());
        }
        match ((self.load)(&self.path), &state.1) {
            (Ok(value), _) => {
                *state = (now, Some(value.clone()));
                Ok(value)
            }
            (Err(error), Some(old)) => {
                tracing::warn!(%error, "keeping the old value");
                let old = old.clone();
                state.0 = now;
                Ok(old)
            }
            (Err(error), None) => Err(error),
        }
    }
}

impl<T> fmt::Debug for Lazy<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lazy")
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(path: &Path) -> Result<u32, Error> {
        let text = std::fs::read_to_string(path).map_err(|source| Error::ReadFile {
            path: path.to_owned(),
            source,
        })?;
        text.parse().map_err(|_| Error::BadFile {
            path: path.to_owned(),
            reason: "not a number".into(),
        })
    }

    #[tokio::test(start_paused = true)]
    async fn a_change_is_seen_and_a_broken_one_leaves_the_old_value() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("value");
        let replace = |text: &str| {
            let fresh = folder.path().join("fresh");
            std::fs::write(&fresh, text).unwrap();
            std::fs::rename(&fresh, &path).unwrap();
        };
        replace("1");
        let source = path.clone();
        let value = Reloading::open(vec![path.clone()], move || number(&source)).unwrap();
        for (text, expected) in [("22", 22), ("broken", 22), ("333", 333)] {
            replace(text);
            tokio::time::advance(LOOK_AGAIN).await;
            assert_eq!(value.current(), expected, "{text}");
        }
    }

    #[test]
    fn a_lazy_value_waits_for_its_file_and_survives_its_loss() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("value");
        let value = Lazy::new(path.clone(), number);
        assert!(value.current().is_err());
        std::fs::write(&path, "7").unwrap();
        assert_eq!(value.current().unwrap(), 7);
        std::fs::remove_file(&path).unwrap();
        assert_eq!(value.current().unwrap(), 7);
    }
}
