// SPDX-License-Identifier: Apache-2.0
//! How far each endpoint is. Losing this costs a repetition that every service recognises, so it is written now and
//! then and never waited for.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Instant;

use cobaltcore_ha_wire::AgentId;
use serde::{Deserialize, Serialize};

use super::{SpoolError, failed};

/// Endpoints that are remembered besides the current ones.
const MOST_REMEMBERED: usize = 64;

/// Where one endpoint stands.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cursor {
    /// It has stored everything up to this.
    pub acked: u64,
    /// Records behind that are not offered to it, because it refuses them for ever.
    #[serde(default)]
    pub skipped: BTreeSet<u64>,
}

#[derive(Default, Serialize, Deserialize)]
struct Saved {
    agent_id: Option<AgentId>,
    endpoints: BTreeMap<String, Cursor>,
}

pub(super) struct Cursors {
    all: BTreeMap<String, Cursor>,
    current: BTreeMap<String, Instant>,
    dirty: bool,
}

impl Cursors {
    pub(super) fn read(dir: &Path, agent: &AgentId) -> Self {
        let bytes = std::fs::read(dir.join("cursors.json")).unwrap_or_default();
        let saved: Saved = serde_json::from_slice(&bytes).unwrap_or_default();
        // Numbers of another identity say nothing.
        let all = if saved.agent_id.as_ref() == Some(agent) {
            saved.endpoints
        } else {
            BTreeMap::new()
        };
        Self {
            all,
            current: BTreeMap::new(),
            dirty: false,
        }
    }

    pub(super) fn set(&mut self, endpoints: &[String]) {
        self.current.retain(|endpoint, _| endpoints.contains(endpoint));
        for endpoint in endpoints {
            self.current.entry(endpoint.clone()).or_insert_with(Instant::now);
        }
        // Addresses of replicas change; what was long ago is not remembered for ever.
        if self.all.len() > MOST_REMEMBERED {
            self.all.retain(|endpoint, _| endpoints.contains(endpoint));
            self.dirty = true;
        }
    }

    pub(super) fn is_dirty(&self) -> bool {
        self.dirty
    }

    pub(super) fn current(&self) -> impl Iterator<Item = (Cursor, Instant)> {
        self.current
            .iter()
            .map(|(endpoint, caught_up)| (self.get(endpoint), *caught_up))
    }

    pub(super) fn all(&self) -> &BTreeMap<String, Cursor> {
        &self.all
    }

    /// The endpoints that count.
    pub(super) fn names(&self) -> impl Iterator<Item = &String> {
        self.current.keys()
    }

    pub(super) fn highest(&self) -> u64 {
        self.all.values().map(|cursor| cursor.acked).max().unwrap_or(0)
    }

    pub(super) fn get(&self, endpoint: &str) -> Cursor {
        self.all.get(endpoint).cloned().unwrap_or_default()
    }

    fn change(&mut self, endpoint: &str, change: impl FnOnce(&mut Cursor)) {
        let cursor = self.all.entry(endpoint.to_owned()).or_default();
        change(cursor);
        self.dirty = true;
    }

    pub(super) fn ack(&mut self, endpoint: &str, acked: u64, last: u64) {
        self.change(endpoint, |cursor| {
            cursor.acked = cursor.acked.max(acked);
            cursor.skipped = cursor.skipped.split_off(&(cursor.acked + 1));
        });
        if acked >= last
            && let Some(caught_up) = self.current.get_mut(endpoint)
        {
            *caught_up = Instant::now();
        }
    }

    pub(super) fn rewind(&mut self, endpoint: &str, acked: u64) {
        self.change(endpoint, |cursor| cursor.acked = acked);
    }

    pub(super) fn skip(&mut self, endpoint: &str, seq: u64) {
        self.change(endpoint, |cursor| {
            cursor.skipped.insert(seq);
        });
    }

    pub(super) fn save(&mut self, dir: &Path, agent: &AgentId) -> Result<(), SpoolError> {
        if !std::mem::take(&mut self.dirty) {
            return Ok(());
        }
        let saved = Saved {
            agent_id: Some(agent.clone()),
            endpoints: self.all.clone(),
        };
        let (path, fresh) = (dir.join("cursors.json"), dir.join("cursors.new"));
        let text = serde_json::to_vec(&saved)?;
        let write = || std::fs::write(&fresh, text).and_then(|()| std::fs::rename(&fresh, &path));
        write().map_err(failed("write", &path))
    }
}
