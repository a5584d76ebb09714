// SPDX-License-Identifier: Apache-2.0
//! The guests as they were last known, on disk, for the next start of the agent. Losing them costs nothing but derived
//! records, so nobody waits for the disk; only the newest is written.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::known::Guests;

/// How long the end of the agent waits for the last writing.
const LAST: Duration = Duration::from_secs(2);

#[derive(Serialize, Deserialize)]
struct Remembered {
    boot: String,
    guests: Guests,
}

/// Remembers the guests of one boot.
pub(super) struct Memory {
    boot: String,
    newest: watch::Sender<Vec<u8>>,
    writer: JoinHandle<()>,
}

impl Memory {
    /// Reads what was remembered of this boot, if anything, and remembers from now on.
    pub(super) async fn open(file: PathBuf, boot: &str) -> (Self, Option<Guests>) {
        let (path, this) = (file.clone(), boot.to_owned());
        let read = tokio::task::spawn_blocking(move || read(&path, &this)).await;
        let (newest, written) = watch::channel(Vec::new());
        let memory = Self {
            boot: boot.to_owned(),
            newest,
            writer: tokio::spawn(write(file, written)),
        };
        (memory, read.ok().flatten())
    }

    /// These are the guests now. Returns at once.
    pub(super) fn keep(&self, guests: &Guests) {
        let saved = Remembered {
            boot: self.boot.clone(),
            guests: guests.clone(),
        };
        match serde_json::to_vec(&saved) {
            Ok(text) => {
                self.newest.send_replace(text);
            }
            Err(error) => tracing::warn!(%error, "cannot remember the guests"),
        }
    }

    /// Waits a moment for what is not written yet.
    pub(super) async fn finish(self) {
        let Self { newest, writer, .. } = self;
        drop(newest);
        if tokio::time::timeout(LAST, writer).await.is_err() {
            tracing::warn!("the disk does not take the list of guests");
        }
    }
}

fn read(file: &Path, boot: &str) -> Option<Guests> {
    let saved: Remembered = serde_json::from_slice(&std::fs::read(file).ok()?).ok()?;
    // Guests of another boot all ended with it, and the service learns that from the boot itself.
    (saved.boot == boot).then_some(saved.guests)
}

async fn write(file: PathBuf, mut newest: watch::Receiver<Vec<u8>>) {
    while newest.changed().await.is_ok() {
        let (file, text) = (file.clone(), newest.borrow_and_update().clone());
        let fresh = file.with_extension("new");
        let written = tokio::task::spawn_blocking(move || {
            std::fs::write(&fresh, text).and_then(|()| std::fs::rename(&fresh, &file))
        });
        match written.await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(%error, "cannot remember the guests"),
            Err(error) => tracing::warn!(%error, "cannot remember the guests"),
        }
    }
}
