// SPDX-License-Identifier: Apache-2.0
//! Numbers for what events repeat: their words and their guests. The writer keeps those it used in mind; what it keeps
//! is void when a transaction did not come to its end.

use std::collections::HashMap;

use cobaltcore_ha_wire::{Event, Kind, ServerId};
use rusqlite::{OptionalExtension as _, Transaction, params};
use uuid::Uuid;

/// Most guests and words kept in mind; beyond that, all are forgotten and looked up again.
const GUESTS: usize = 200_000;
const WORDS: usize = 1000;

/// Removes what no event mentions any more.
pub(super) const FORGET: &str = "
    delete from words where not exists (select 1 from events where word = words.id);
    delete from guests where not exists (select 1 from events where guest = guests.id);
";

struct Word {
    kind: Kind,
    event: String,
    detail: String,
    id: i64,
}

/// Numbers that were given.
#[derive(Default)]
pub(super) struct Names {
    /// The ones used most come first by themselves: there are few.
    words: Vec<Word>,
    guests: HashMap<Uuid, i64>,
}

impl Names {
    /// The number of what an event says.
    pub(super) fn word(&mut self, transaction: &Transaction<'_>, event: &Event) -> rusqlite::Result<i64> {
        let same = |word: &&Word| {
            word.kind == event.kind && word.event == event.event && word.detail == event.detail
        };
        if let Some(known) = self.words.iter().find(same) {
            return Ok(known.id);
        }
        let key = params![event.kind.as_str(), event.event, event.detail];
        let found = transaction
            .prepare_cached("select id from words where kind = ?1 and event = ?2 and detail = ?3")?
            .query_row(key, |row| row.get(0))
            .optional()?;
        let id = match found {
            Some(id) => id,
            None => transaction
                .prepare_cached("insert into words(kind, event, detail) values(?1, ?2, ?3)")?
                .insert(key)?,
        };
        if self.words.len() >= WORDS {
            self.words.clear();
        }
        self.words.push(Word {
            kind: event.kind,
            event: event.event.clone(),
            detail: event.detail.clone(),
            id,
        });
        Ok(id)
    }

    /// The number of a guest.
    pub(super) fn guest(&mut self, transaction: &Transaction<'_>, guest: &ServerId) -> rusqlite::Result<i64> {
        let key = Uuid::parse_str(guest.as_str()).ok();
        if let Some(id) = key.and_then(|key| self.guests.get(&key)) {
            return Ok(*id);
        }
        let found = transaction
            .prepare_cached("select id from guests where uuid = ?1")?
            .query_row([guest.as_str()], |row| row.get(0))
            .optional()?;
        let id = match found {
            Some(id) => id,
            None => transaction
                .prepare_cached("insert into guests(uuid) values(?1)")?
                .insert([guest.as_str()])?,
        };
        if let Some(key) = key {
            if self.guests.len() >= GUESTS {
                self.guests.clear();
            }
            self.guests.insert(key, id);
        }
        Ok(id)
    }
}
