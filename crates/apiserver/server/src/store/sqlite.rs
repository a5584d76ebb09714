// SPDX-License-Identifier: Apache-2.0
//! The database behind the store: one file, written by one thread, readable with standard tools.
//! Current state and history live in separate tables, so neither a busy lease nor a long history
//! slows reading the present.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use rusqlite::hooks::Wal;
use rusqlite::{Connection, OpenFlags, OptionalExtension, Row, params};

use super::record::{Facts, Key, Record};
use super::seal::{self, Closed, Keys, Place};
use super::table::{Event, Op, Table, TypeId};
use super::{Durability, StoreError, layout};

/// Revisions are reserved in blocks when commits are not synced, so that none is ever reused.
const BLOCK: u64 = 100_000;
const PAGE: i64 = 8192;
/// A log of this many pages is moved into the file and written over from its beginning: a block that
/// the file has already is made safe in half the time that a new one takes.
const LOG_PAGES: usize = 1024;
/// A log that grew beyond this, because somebody was reading it, is given back to the disk when
/// nobody writes, and cut when it is written over.
const LOG_KEPT: u64 = 16 << 20;
const LOG_MOST: i64 = 64 << 20;
/// How long a statement waits for another connection, and how long the emptying of the log does.
const BUSY: Duration = Duration::from_secs(5);
const READER_WAIT: Duration = Duration::from_millis(20);
/// Rows deleted per compaction step, so that clients never wait long behind one.
const SLICE: usize = 500;

/// A type as stored.
#[derive(Debug)]
pub(super) struct StoredType {
    pub(super) id: TypeId,
    pub(super) group: String,
    pub(super) plural: String,
    pub(super) floor: u64,
}

/// The objects of a type.
pub(super) type Objects = Vec<(Key, Arc<Record>)>;

/// The write side: owned by the writer.
#[derive(Debug)]
pub(super) struct Database {
    writer: Connection,
    checkpointer: Connection,
    path: PathBuf,
    keys: Arc<Keys>,
    /// The type whose values are sealed.
    secrets: Option<TypeId>,
    relaxed: bool,
    ceiling: u64,
    /// Pages in the log after the last commit, and how many of them were left there by the last attempt
    /// to move them.
    log: Arc<AtomicUsize>,
    left: usize,
}

/// The read side for history that left the rings.
#[derive(Debug)]
pub(super) struct History {
    connection: Mutex<Connection>,
    keys: Arc<Keys>,
}

pub(super) fn open(path: &Path) -> Result<Connection, StoreError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_CREATE
        | OpenFlags::SQLITE_OPEN_NO_MUTEX
        | OpenFlags::SQLITE_OPEN_NOFOLLOW;
    make_private(path)?;
    let connection = Connection::open_with_flags(path, flags).map_err(|source| StoreError::Open {
        path: path.to_owned(),
        source,
    })?;
    connection.busy_timeout(BUSY)?;
    Ok(connection)
}

/// Creates the file readable by its owner only; its log inherits the mode.
fn make_private(path: &Path) -> Result<(), StoreError> {
    use std::os::unix::fs::OpenOptionsExt;
    let made = std::fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path);
    match made {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(StoreError::File {
            path: path.to_owned(),
            source: error,
        }),
    }
}

impl Database {
    /// Opens or creates the database. Secrets that were written with another key, or in the clear, are written anew.
    pub(super) fn open(path: &Path, durability: Durability, keys: Arc<Keys>) -> Result<Self, StoreError> {
        let mut writer = open(path)?;
        let fresh: bool = writer
            .query_row("select count(*) = 0 from sqlite_master", [], |row| row.get(0))
            .map_err(|source| StoreError::Damaged {
                path: path.to_owned(),
                why: source.to_string(),
            })?;
        if fresh {
            writer.pragma_update(None, "page_size", PAGE)?;
            writer.pragma_update(None, "auto_vacuum", "INCREMENTAL")?;
        }
        writer.pragma_update(None, "journal_mode", "WAL")?;
        let relaxed = durability == Durability::Relaxed;
        // Until clients are served nothing is promised to anybody; see `harden`.
        writer.pragma_update(None, "synchronous", "NORMAL")?;
        writer.pragma_update(None, "wal_autocheckpoint", 0)?;
        writer.pragma_update(None, "journal_size_limit", LOG_MOST)?;
        writer.pragma_update(None, "foreign_keys", false)?;
        if fresh {
            layout::create(&writer)?;
        } else {
            layout::renew(&mut writer, path)?;
        }
        let log = Arc::new(AtomicUsize::default());
        let pages = log.clone();
        writer.wal_hook(Some(move |_: &mut Wal, now: i32| {
            pages.store(now.unsigned_abs() as usize, Ordering::Relaxed);
            Ok(())
        }))?;
        let checkpointer = open(path)?;
        let secrets = writer
            .query_row(
                "select id from types where grp = '' and plural = 'secrets'",
                [],
                |row| Ok(TypeId(row.get::<_, i64>(0)? as u32)),
            )
            .optional()?;
        let mut database = Self {
            writer,
            checkpointer,
            path: path.to_owned(),
            keys,
            secrets,
            relaxed,
            ceiling: 0,
            log,
            left: 0,
        };
        database.reseal()?;
        Ok(database)
    }

    /// Writes every Secret of the present and of history as new ones are written, all of them or none, and leaves
    /// nothing behind of what stood there.
    fn reseal(&mut self) -> Result<(), StoreError> {
        if self.keys.seals() {
            self.writer.pragma_update(None, "secure_delete", true)?;
        }
        let Some(secrets) = self.secrets else {
            return Ok(());
        };
        let mut rewritten = 0;
        let transaction = self.writer.transaction()?;
        for (table, id, revision) in [("objects", "id", "mod_rev"), ("events", "rev", "rev")] {
            let rows =
                format!("select {id}, ns, name, {revision}, tag, value from {table} where type_id = ?1");
            let mut rows = transaction.prepare(&rows)?;
            let mut rows = rows.query([secrets.0])?;
            let mut update = transaction.prepare(&format!(
                "update {table} set tag = ?2, value = ?3 where {id} = ?1"
            ))?;
            while let Some(row) = rows.next()? {
                let (namespace, name): (String, String) = (row.get(1)?, row.get(2)?);
                let (tag, value): (i64, Vec<u8>) = (row.get(4)?, row.get(5)?);
                if self.keys.is_current(tag, &value) {
                    continue;
                }
                let place = Place {
                    namespace: &namespace,
                    name: &name,
                    revision: row.get::<_, i64>(3)? as u64,
                };
                let value = self.keys.open(place, tag, value);
                let value = value.map_err(|why| sealed(&self.path, place, &why))?;
                let (tag, value) = self.keys.seal(place, &value)?;
                update.execute(params![row.get::<_, i64>(0)?, tag, value])?;
                rewritten += 1;
            }
        }
        transaction.commit()?;
        if rewritten > 0 {
            self.writer
                .query_row("pragma wal_checkpoint(truncate)", [], |_| Ok(()))?;
            tracing::info!(path = %self.path.display(), rewritten, sealed = self.keys.seals(), "Secrets were written anew");
        }
        Ok(())
    }

    /// From now on every commit is synced, and with it everything before it. Called once the server
    /// has written what it begins with, so that a start costs one sync and not dozens.
    pub(super) fn harden(&self) -> Result<(), StoreError> {
        if !self.relaxed {
            self.writer.pragma_update(None, "synchronous", "FULL")?;
        }
        self.writer
            .execute("update meta set value = 0 where key = 'clean'", [])?;
        Ok(())
    }

    /// A reader for events that left the rings.
    pub(super) fn history(&self) -> Result<History, StoreError> {
        Ok(History {
            connection: Mutex::new(open(&self.path)?),
            keys: self.keys.clone(),
        })
    }

    /// The first revision not yet used. After an unclean stop without synced commits it lies above
    /// everything that may have been handed out.
    pub(super) fn last_revision(&mut self) -> Result<u64, StoreError> {
        let get = |key: &str| -> Result<u64, rusqlite::Error> {
            self.writer
                .query_row("select value from meta where key = ?1", [key], |row| {
                    row.get::<_, i64>(0)
                })
                .map(|v| v as u64)
        };
        let stored = get("revision")?;
        let newest: u64 = self
            .writer
            .query_row("select coalesce(max(rev), 0) from events", [], |row| {
                row.get::<_, i64>(0)
            })? as u64;
        let clean = get("clean")? == 1;
        let ceiling = get("ceiling")?;
        let last = stored.max(newest).max(if clean { 0 } else { ceiling });
        Ok(last)
    }

    /// All types ever registered.
    pub(super) fn types(&self) -> Result<Vec<StoredType>, StoreError> {
        let mut statement = self
            .writer
            .prepare("select id, grp, plural, floor_rev from types order by id")?;
        let rows = statement.query_map([], |row| {
            Ok(StoredType {
                id: TypeId(row.get::<_, i64>(0)? as u32),
                group: row.get(1)?,
                plural: row.get(2)?,
                floor: row.get::<_, i64>(3)? as u64,
            })
        })?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    /// Registers types in one transaction.
    pub(super) fn add_types(&mut self, tables: &[Arc<Table>], floor: u64) -> Result<(), StoreError> {
        if tables.is_empty() {
            return Ok(());
        }
        let transaction = self.writer.transaction()?;
        for table in tables {
            transaction
                .prepare_cached("insert into types(id, grp, plural, floor_rev) values(?1, ?2, ?3, ?4)")?
                .execute(params![table.id.0, &*table.group, &*table.plural, floor as i64])?;
        }
        transaction.commit()?;
        let secrets = tables
            .iter()
            .find(|table| table.group.is_empty() && &*table.plural == "secrets");
        self.secrets = secrets.map(|table| table.id).or(self.secrets);
        Ok(())
    }

    /// Raises the floor of a type whose definition went away.
    pub(super) fn raise_floor(&self, id: TypeId, floor: u64) -> Result<(), StoreError> {
        self.writer.execute(
            "update types set floor_rev = max(floor_rev, ?2) where id = ?1",
            params![id.0, floor as i64],
        )?;
        Ok(())
    }

    /// Every stored object, by type and sorted by key. Rows are read as they lie, because following
    /// their order on the disk is faster than sorting them is slow.
    pub(super) fn load(&self) -> Result<BTreeMap<TypeId, Objects>, StoreError> {
        let mut statement = self
            .writer
            .prepare("select type_id, ns, name, mod_rev, schema, value, tag from objects")?;
        let mut rows = statement.query([])?;
        let mut objects: BTreeMap<TypeId, Objects> = BTreeMap::new();
        let mut namespaces = HashSet::new();
        while let Some(row) = rows.next()? {
            let id = TypeId(row.get::<_, i64>(0)? as u32);
            objects
                .entry(id)
                .or_default()
                .push(self.object(row, &mut namespaces)?);
        }
        for objects in objects.values_mut() {
            objects.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
        }
        Ok(objects)
    }

    /// A row of `load`. The objects of a namespace share its name.
    fn object(
        &self,
        row: &Row<'_>,
        namespaces: &mut HashSet<Arc<str>>,
    ) -> Result<(Key, Arc<Record>), StoreError> {
        let text = |column| row.get_ref(column).and_then(|value| Ok(value.as_str()?));
        let (namespace, name) = (text(1)?, text(2)?);
        let namespace = if let Some(known) = namespaces.get(namespace) {
            known.clone()
        } else {
            let new: Arc<str> = namespace.into();
            namespaces.insert(new.clone());
            new
        };
        let revision = row.get::<_, i64>(3)? as u64;
        let place = Place {
            namespace: &namespace,
            name,
            revision,
        };
        let body = self.keys.open(place, row.get(6)?, row.get(5)?);
        let body = body.map_err(|why| sealed(&self.path, place, &why))?;
        let facts = Facts::scan(&body).map_err(|error| StoreError::Damaged {
            path: self.path.clone(),
            why: format!("object {namespace}/{name} is not JSON: {error}"),
        })?;
        let record = Record {
            revision,
            body: body.into(),
            facts,
            schema: row.get::<_, i64>(4)? as u32,
        };
        let key = Key {
            namespace,
            name: name.into(),
        };
        Ok((key, Arc::new(record)))
    }

    /// Writes a batch in one transaction; nothing of it is there if this fails.
    pub(super) fn write(&mut self, events: &[(TypeId, Arc<Event>)]) -> Result<(), StoreError> {
        let Some((_, last)) = events.last() else {
            return Ok(());
        };
        if self.relaxed && last.revision > self.ceiling {
            self.reserve(last.revision + BLOCK)?;
        }
        // Statements are kept, those of the transaction too: parsing them costs as much as they do.
        self.writer.prepare_cached("begin immediate")?.execute([])?;
        let written = self.write_events(events).and_then(|()| {
            self.writer.prepare_cached("commit")?.execute([])?;
            Ok(())
        });
        if written.is_err() && !self.writer.is_autocommit() {
            self.writer.prepare_cached("rollback")?.execute([])?;
        }
        written
    }

    fn write_events(&self, events: &[(TypeId, Arc<Event>)]) -> Result<(), StoreError> {
        let at = now();
        let mut put = self.writer.prepare_cached(
            "insert into objects(type_id, ns, name, uid, create_rev, mod_rev, schema, tag, value)
             values(?1, ?2, ?3, ?4, ?5, ?5, ?6, ?7, ?8)
             on conflict(type_id, ns, name) do update set uid = excluded.uid, mod_rev = excluded.mod_rev,
                schema = excluded.schema, tag = excluded.tag, value = excluded.value",
        )?;
        let mut delete = self
            .writer
            .prepare_cached("delete from objects where type_id = ?1 and ns = ?2 and name = ?3")?;
        let mut log = self.writer.prepare_cached(
            "insert into events(rev, type_id, ns, name, op, prev_rev, at, schema, tag, value)
             values(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
        )?;
        for (id, event) in events {
            let (ns, name) = (&*event.key.namespace, &*event.key.name);
            let body: &[u8] = &event.new.body;
            let (tag, body) = if self.secrets == Some(*id) {
                let place = Place {
                    namespace: ns,
                    name,
                    revision: event.revision,
                };
                self.keys.seal(place, body)?
            } else {
                (seal::PLAIN, Cow::Borrowed(body))
            };
            if event.op == Op::Deleted {
                delete.execute(params![id.0, ns, name])?;
            } else {
                let uid = event.new.facts.uid.map(|uid| uid.to_string()).unwrap_or_default();
                put.execute(params![
                    id.0,
                    ns,
                    name,
                    uid,
                    event.revision as i64,
                    event.new.schema,
                    tag,
                    body
                ])?;
            }
            let prev = event.old.as_ref().map_or(0, |old| old.revision);
            log.execute(params![
                event.revision as i64,
                id.0,
                ns,
                name,
                op_code(event.op),
                prev as i64,
                at,
                event.new.schema,
                tag,
                body
            ])?;
        }
        // The last revision is that of the newest event, which no compaction takes away.
        Ok(())
    }

    fn reserve(&mut self, ceiling: u64) -> Result<(), StoreError> {
        self.writer.pragma_update(None, "synchronous", "FULL")?;
        self.writer.execute(
            "update meta set value = ?1 where key = 'ceiling'",
            [ceiling as i64],
        )?;
        self.writer.pragma_update(None, "synchronous", "NORMAL")?;
        self.ceiling = ceiling;
        Ok(())
    }

    /// Deletes one slice of history that is older than `keep` or exceeds `max` events of a type,
    /// but never the newest `min` of a type. Returns the new floor if anything was deleted.
    pub(super) fn compact(
        &mut self,
        id: TypeId,
        keep: Duration,
        min: u64,
        max: u64,
    ) -> Result<Option<u64>, StoreError> {
        let before = now() - keep.as_secs() as i64;
        let nth = |n: u64| -> Result<Option<i64>, rusqlite::Error> {
            self.writer
                .prepare_cached(
                    "select rev from events where type_id = ?1 order by rev desc limit 1 offset ?2",
                )?
                .query_row(params![id.0, n as i64], |row| row.get(0))
                .optional()
        };
        // The newest revision that may be deleted at all.
        let Some(deletable) = nth(min)? else {
            return Ok(None);
        };
        let over = nth(max)?.unwrap_or(0);
        let transaction = self.writer.transaction()?;
        let cut: Option<i64> = transaction
            .prepare_cached(
                "select max(rev) from (select rev from events where type_id = ?1 and rev <= ?2
                    and (at < ?3 or rev <= ?4) order by rev limit ?5)",
            )?
            .query_row(params![id.0, deletable, before, over, SLICE as i64], |row| {
                row.get(0)
            })?;
        let Some(cut) = cut else { return Ok(None) };
        transaction.execute(
            "delete from events where type_id = ?1 and rev <= ?2",
            params![id.0, cut],
        )?;
        transaction.execute(
            "update types set floor_rev = max(floor_rev, ?2) where id = ?1",
            params![id.0, cut],
        )?;
        transaction.commit()?;
        Ok(Some(cut as u64))
    }

    /// Whether it is time to move the log into the file.
    pub(super) fn log_is_full(&self) -> bool {
        self.log.load(Ordering::Relaxed) >= self.left + LOG_PAGES
    }

    /// Moves committed pages from the log into the file. The next commit then writes the log over, unless
    /// somebody still reads it. While nobody writes, space that is not needed is given back to the disk.
    pub(super) fn checkpoint(&mut self, idle: bool) -> Result<(), StoreError> {
        let (pages, moved): (i64, i64) =
            self.checkpointer
                .query_row("pragma wal_checkpoint(passive)", [], |row| {
                    Ok((row.get(1)?, row.get(2)?))
                })?;
        let pages = usize::try_from(pages).unwrap_or(0);
        let written_over = moved == pages as i64;
        self.left = if written_over { 0 } else { pages };
        self.log.store(self.left, Ordering::Relaxed);
        if !idle {
            return Ok(());
        }
        self.checkpointer
            .execute_batch("pragma incremental_vacuum(200)")?;
        if Self::sizes(&self.path).1 > LOG_KEPT {
            // A reader in the way makes this a passive one; the next idle moment tries again.
            self.checkpointer.busy_timeout(READER_WAIT)?;
            self.checkpointer
                .query_row("pragma wal_checkpoint(truncate)", [], |_| Ok(()))?;
            self.checkpointer.busy_timeout(BUSY)?;
        }
        Ok(())
    }

    /// Clean end: everything in the file, the log emptied.
    pub(super) fn close(self) -> Result<(), StoreError> {
        self.writer.execute_batch(
            "update meta set value = max(value, (select coalesce(max(rev), 0) from events)) where key = 'revision';
             update meta set value = 1 where key = 'clean'",
        )?;
        self.writer
            .query_row("pragma wal_checkpoint(truncate)", [], |_| Ok(()))?;
        Ok(())
    }

    /// Sizes of the file and its log.
    pub(super) fn sizes(path: &Path) -> (u64, u64) {
        let size = |p: PathBuf| std::fs::metadata(p).map_or(0, |m| m.len());
        let mut wal = path.as_os_str().to_owned();
        wal.push("-wal");
        (size(path.to_owned()), size(wal.into()))
    }
}

impl History {
    /// Events of a type with `after < revision <= until`, each with the state before it where that
    /// is still known.
    pub(super) fn events(&self, id: TypeId, after: u64, until: u64) -> Result<Vec<Arc<Event>>, StoreError> {
        let connection = self.connection.lock();
        let mut statement = connection.prepare_cached(
            "select e.rev, e.ns, e.name, e.op, e.prev_rev, e.schema, e.value, p.value, p.schema, e.tag, p.tag
             from events e left join events p on p.rev = e.prev_rev
             where e.type_id = ?1 and e.rev > ?2 and e.rev <= ?3 order by e.rev",
        )?;
        let mut rows = statement.query(params![id.0, after as i64, until as i64])?;
        let mut events = Vec::new();
        while let Some(row) = rows.next()? {
            let prev = row.get::<_, i64>(4)? as u64;
            let revision = row.get::<_, i64>(0)? as u64;
            let namespace: String = row.get(1)?;
            let name: String = row.get(2)?;
            let read = |revision, tag, body, schema: i64| {
                let place = Place {
                    namespace: &namespace,
                    name: &name,
                    revision,
                };
                let body = self.keys.open(place, tag, body);
                let body = body.map_err(|why| StoreError::Corrupt(format!("{namespace}/{name}: {why}")))?;
                Ok::<_, StoreError>(Arc::new(record(revision, body, schema as u32)?))
            };
            let old = match row.get::<_, Option<Vec<u8>>>(7)? {
                Some(body) => Some(read(prev, row.get(10)?, body, row.get(8)?)?),
                None => None,
            };
            let new = read(revision, row.get(9)?, row.get(6)?, row.get(5)?)?;
            events.push(Arc::new(Event {
                revision,
                key: Key::new(&namespace, &name),
                op: op_of(row.get(3)?),
                old,
                new,
                rendered: Mutex::default(),
            }));
        }
        Ok(events)
    }
}

fn sealed(path: &Path, place: Place<'_>, why: &Closed) -> StoreError {
    let told = format!("Secret {}/{}: {why}", place.namespace, place.name);
    let path = path.to_owned();
    match why {
        Closed::UnknownKey(_) => StoreError::Sealed { path, why: told },
        Closed::Broken => StoreError::Damaged { path, why: told },
    }
}

fn record(revision: u64, body: Vec<u8>, schema: u32) -> Result<Record, StoreError> {
    let facts = Facts::scan(&body).map_err(|error| StoreError::Corrupt(error.to_string()))?;
    Ok(Record {
        revision,
        body: body.into(),
        facts,
        schema,
    })
}

fn op_code(op: Op) -> i64 {
    match op {
        Op::Added => 1,
        Op::Modified => 2,
        Op::Deleted => 3,
    }
}

fn op_of(code: i64) -> Op {
    match code {
        1 => Op::Added,
        3 => Op::Deleted,
        _ => Op::Modified,
    }
}

fn now() -> i64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |d| d.as_secs() as i64)
}
