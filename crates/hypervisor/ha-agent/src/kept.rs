// SPDX-License-Identifier: Apache-2.0
//! A small file that the next start of the agent may read. Only the newest content matters, and nobody waits for the disk:
//! what did not come to be written is not known to the next start, which must be able to do without.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// How long until a disk that did not take it is tried again.
const AGAIN: Duration = Duration::from_secs(10);
/// How long the end of the agent waits for the last writing.
const LAST: Duration = Duration::from_secs(2);

/// The file of a `T`.
pub(crate) struct Kept {
    newest: watch::Sender<Vec<u8>>,
    writer: JoinHandle<()>,
}

impl Kept {
    /// Reads what an earlier start left, if anything, and keeps from now on.
    pub(crate) async fn open<T: DeserializeOwned + Send + 'static>(file: PathBuf) -> (Self, Option<T>) {
        let path = file.clone();
        let read = tokio::task::spawn_blocking(move || {
            let text = std::fs::read(path).ok()?;
            serde_json::from_slice(&text).ok()
        });
        let read = read.await.ok().flatten();
        let (newest, written) = watch::channel(Vec::new());
        let writer = tokio::spawn(write(file, written));
        (Self { newest, writer }, read)
    }

    /// This is what the next start may read. Returns at once; what is known already is not written again.
    pub(crate) fn keep<T: Serialize>(&self, what: &T) {
        match serde_json::to_vec(what) {
            Ok(text) => {
                self.newest.send_if_modified(|known| {
                    let news = *known != text;
                    *known = text;
                    news
                });
            }
            Err(error) => tracing::warn!(%error, "this cannot be kept for the next start"),
        }
    }

    /// Waits a moment for what is not written yet.
    pub(crate) async fn finish(self) {
        let Self { newest, writer } = self;
        drop(newest);
        if tokio::time::timeout(LAST, writer).await.is_err() {
            tracing::warn!("the disk does not take what the next start would read");
        }
    }
}

async fn write(file: PathBuf, mut newest: watch::Receiver<Vec<u8>>) {
    let mut failed = false;
    loop {
        tokio::select! {
            changed = newest.changed() => if changed.is_err() { return },
            () = tokio::time::sleep(AGAIN), if failed => {}
        }
        let (file, text) = (file.clone(), newest.borrow_and_update().clone());
        let name = file.display().to_string();
        let written = match tokio::task::spawn_blocking(move || replace(&file, &text)).await {
            Ok(written) => written,
            Err(error) => Err(std::io::Error::other(error)),
        };
        failed = written.is_err();
        if let Err(error) = written {
            tracing::warn!(file = name, %error, "cannot be written, and is tried again");
        }
    }
}

fn replace(file: &Path, text: &[u8]) -> std::io::Result<()> {
    let fresh = file.with_extension("new");
    std::fs::write(&fresh, text)?;
    std::fs::rename(&fresh, file)
}
