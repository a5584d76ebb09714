// SPDX-License-Identifier: Apache-2.0
//! The guests as they were last known, for the next start of the agent. Losing them costs nothing but derived records.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::known::Guests;
use crate::kept::Kept;

#[derive(Serialize, Deserialize)]
struct Remembered {
    boot: String,
    guests: Guests,
}

/// Remembers the guests of one boot.
pub(super) struct Memory {
    boot: String,
    file: Kept,
}

impl Memory {
    /// Reads what was remembered of this boot, if anything, and remembers from now on.
    pub(super) async fn open(file: PathBuf, boot: &str) -> (Self, Option<Guests>) {
        let (file, saved) = Kept::open::<Remembered>(file).await;
        let memory = Self {
            boot: boot.to_owned(),
            file,
        };
        // Guests of another boot all ended with it, and the service learns that from the boot itself.
        let guests = saved.filter(|saved| saved.boot == boot).map(|saved| saved.guests);
        (memory, guests)
    }

    /// These are the guests now. Returns at once.
    pub(super) fn keep(&self, guests: &Guests) {
        self.file.keep(&Remembered {
            boot: self.boot.clone(),
            guests: guests.clone(),
        });
    }

    /// Waits a moment for what is not written yet.
    pub(super) async fn finish(self) {
        self.file.finish().await;
    }
}
