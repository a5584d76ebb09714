// SPDX-License-Identifier: Apache-2.0
//! Keeps a world on disk while it lives: soon after every change, and at once when somebody has to know that what they
//! were told outlives a crash. Saves that are wanted together are one save.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tokio::sync::{Notify, watch};
use tokio_util::task::AbortOnDropHandle;

use super::World;
use super::state::State;
use super::store::draft_of;
use crate::error::Error;

/// A change is on disk this much later at most, as long as saving takes a tenth of the time at most.
const SAVED_WITHIN: Duration = Duration::from_millis(250);
const REST: u32 = 10;
/// Longer than this no caller waits for a disk.
const PATIENCE: Duration = Duration::from_secs(30);

/// What those who wait for the disk need.
pub(super) struct Keeper {
    saved: watch::Sender<u64>,
    urgent: Notify,
}

/// A world that is kept; it is saved once more by [`Kept::end`], and no more when this is dropped.
pub struct Kept {
    world: World,
    path: PathBuf,
    _task: AbortOnDropHandle<()>,
}

impl std::fmt::Debug for Kept {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Kept")
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

impl Kept {
    /// Saves the world a last time.
    pub fn end(self) -> Result<(), Error> {
        self.world.save(&self.path)
    }
}

impl World {
    /// Saves the world soon and keeps the file current from here on. Whether there is a place for it is told now; writing
    /// a large world takes a while that nobody has to wait for. A world is kept in one place.
    pub fn keep(&self, path: &Path) -> Result<Kept, Error> {
        let draft = draft_of(path);
        std::fs::File::create(&draft).map_err(|source| Error::Save { path: draft, source })?;
        // What it is now counts as a change that nothing has saved yet.
        let unsaved = self.0.changes.fetch_add(1, Ordering::Relaxed);
        let keeper = Arc::new(Keeper {
            saved: watch::Sender::new(unsaved),
            urgent: Notify::new(),
        });
        *self.0.keeper.lock() = Some(Arc::clone(&keeper));
        let task = keep_saving(self.clone(), path.to_owned(), keeper);
        Ok(Kept {
            world: self.clone(),
            path: path.to_owned(),
            _task: AbortOnDropHandle::new(tokio::spawn(task)),
        })
    }

    /// Waits until everything that has happened so far is on disk; says whether it is. A world that nobody keeps has no
    /// disk to wait for.
    pub async fn durable(&self) -> bool {
        let Some(keeper) = self.0.keeper.lock().clone() else {
            return true;
        };
        let wanted = self.changes();
        let mut saved = keeper.saved.subscribe();
        if *saved.borrow_and_update() >= wanted {
            return true;
        }
        keeper.urgent.notify_one();
        let waited = tokio::time::timeout(PATIENCE, saved.wait_for(|saved| *saved >= wanted)).await;
        matches!(waited, Ok(Ok(_)))
    }

    /// Writes the world to a file; gives the number of the last change in it.
    pub(super) fn save_counted(&self, path: &Path) -> Result<u64, Error> {
        // An older copy must not replace a newer one, nor two be written to one place.
        let _alone = self.0.saving.lock();
        let (changes, state) =
            self.read(|state| (self.0.changes.load(Ordering::Relaxed), State::clone(state)));
        state.write(path)?;
        Ok(changes)
    }
}

async fn keep_saving(world: World, path: PathBuf, keeper: Arc<Keeper>) {
    let mut rest = SAVED_WITHIN;
    loop {
        tokio::time::timeout(rest, keeper.urgent.notified()).await.ok();
        if world.changes() == *keeper.saved.borrow() {
            continue;
        }
        let (copy, target, began) = (world.clone(), path.clone(), Instant::now());
        match tokio::task::spawn_blocking(move || copy.save_counted(&target)).await {
            Ok(Ok(changes)) => {
                keeper.saved.send_replace(changes);
            }
            Ok(Err(error)) => tracing::warn!("the simulated world is not saved: {error}"),
            Err(error) => tracing::warn!("the simulated world is not saved: {error}"),
        }
        rest = SAVED_WITHIN.max(began.elapsed() * REST);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_is_durable_survives_and_reading_saves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("world.json");
        let world = World::builder().hosts(2).vms_per_host(1).build();
        let kept = world.keep(&file).unwrap();
        world.power_off("node001-bb1").unwrap();
        assert!(world.durable().await);
        // As after a kill: what the file says is all there is.
        let again = World::load(&file, 0.0).unwrap();
        let power = |world: &World| world.read(|state| state.hosts["node001-bb1"].power);
        assert_eq!(power(&again), crate::world::Power::Off);
        let written = std::fs::metadata(&file).unwrap().modified().unwrap();
        for _ in 0..10 {
            power(&world);
        }
        assert!(world.durable().await, "nothing happened since");
        assert_eq!(std::fs::metadata(&file).unwrap().modified().unwrap(), written);
        kept.end().unwrap();
    }

    #[tokio::test]
    async fn a_world_that_nobody_keeps_waits_for_nothing() {
        let world = World::builder().hosts(1).build();
        world.power_off("node001-bb1").unwrap();
        assert!(world.durable().await);
    }

    #[tokio::test(start_paused = true)]
    async fn a_disk_that_fails_is_not_called_durable() {
        let folder = tempfile::tempdir().unwrap();
        let world = World::builder().hosts(1).build();
        let kept = world.keep(&folder.path().join("world.json")).unwrap();
        drop(folder);
        world.power_off("node001-bb1").unwrap();
        assert!(!world.durable().await);
        assert!(kept.end().is_err());
    }
}
