// SPDX-License-Identifier: Apache-2.0
//! The tables, and opening the file: layouts go forward only, a newer one is refused, a damaged
//! file is put aside.

use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, OpenFlags};

use super::Durability;
use crate::error::Error;

/// The layout this program writes.
const LAYOUT: i64 = 4;
const BUSY: Duration = Duration::from_secs(5);
const CHECKPOINT_PAGES: i64 = 4000;

const TABLES: &str = "
    create table meta(key text primary key, value) without rowid;
    create table hosts(host text primary key, nova_host text, service_id text, hypervisor_id text, zone text, bb text,
        internal_ip text, ha_enabled integer, ha_reason text, maintenance text, state text, state_since integer,
        boot_id text, first_seen integer not null, last_seen integer, legacy integer, known_at integer not null) without rowid;
    create table heartbeat_minute(host text not null, minute integer not null, count integer not null,
        max_gap_ms integer not null, uptime_s integer not null, primary key(host, minute)) without rowid;
    create table vms(uuid text primary key, name text not null default '', agent_host text, agent_state text,
        inv_version integer, nova_host text, vm_state text, task_state text, power_state text, project text, flavor text,
        grp text not null default '', policy text not null default '', priority integer not null default 500,
        last_incident text, agent_seen integer, nova_seen integer, outside_ceph integer not null default 0) without rowid;
    create index vms_by_agent on vms(agent_host);
    create index vms_by_nova on vms(nova_host);
    create table samples(source text not null, series text not null, ts integer not null, host text, value real,
        primary key(source, series, ts)) without rowid;
    create index samples_by_time on samples(ts);
    create table signals(host text not null, grp text not null, name text not null, verdict text not null,
        observed_at integer not null, detail text not null, primary key(host, grp, name)) without rowid;
    create table signal_history(host text not null, grp text not null, name text not null, verdict text not null,
        observed_at integer not null, detail text not null);
    create index signal_history_by_time on signal_history(observed_at);
    create table audit(n integer primary key, at integer not null, actor text not null, action text not null,
        target text not null, reason text not null, before text not null, after text not null);
    create table pauses(scope text primary key, reason text not null, actor text not null, until integer not null) without rowid;
    create table planned(host text primary key, reason text not null, actor text not null, until integer not null) without rowid;
";

/// What the journal told of incidents, for longer than the journal has it. Their ids are never given again, the numbers of
/// records are when a journal begins anew.
const INCIDENTS: &str = "
    create table incidents(id text primary key, host text not null, kind text not null, state text not null,
        opened_at integer not null, updated_at integer not null, open integer not null, summary text not null) without rowid;
    create table journal(incident text not null, seq integer not null, at integer not null, record text not null,
        primary key(incident, seq)) without rowid;
";

/// Events, of which there are millions: a row refers to its stream, to its words and to its guest by number, and its own
/// number is its place in the order of arrival, so that no time needs an index. `lag` is how many microseconds before
/// its arrival it happened.
const EVENTS: &str = "
    create table streams(id integer primary key, agent_id text not null unique, host text not null, epoch integer not null,
        boot_id text not null, last_seq integer not null, first_seen integer not null, last_seen integer not null,
        gaps integer not null);
    create index streams_by_host on streams(host);
    create table words(id integer primary key, kind text not null, event text not null, detail text not null,
        unique(kind, event, detail));
    create table guests(id integer primary key, uuid text not null unique);
    create table events(id integer primary key, stream integer not null, seq integer not null, recv_at integer not null,
        lag integer not null, word integer not null, guest integer, attrs text, count integer not null,
        synthetic integer not null);
    create unique index events_by_stream on events(stream, seq);
    create index events_by_word on events(word);
    create index events_by_guest on events(guest) where guest is not null;
";

/// From the first layout, whose events carried all their words.
const FROM_1: &str = "
    insert into streams(agent_id, host, epoch, boot_id, last_seq, first_seen, last_seen, gaps)
        select agent_id, host, epoch, boot_id, last_seq, first_seen, last_seen, gaps from streams_1;
    insert into words(kind, event, detail) select distinct kind, event, detail from events_1;
    insert into guests(uuid) select distinct domain_uuid from events_1 where domain_uuid is not null;
    insert into events(stream, seq, recv_at, lag, word, guest, attrs, count, synthetic)
        select s.id, o.seq, o.recv_at, o.recv_at * 1000 - o.ts, w.id, g.id, nullif(o.attrs, '{}'), o.count, o.synthetic
        from events_1 o join streams s on s.agent_id = o.agent_id
            join words w on w.kind = o.kind and w.event = o.event and w.detail = o.detail
            left join guests g on g.uuid = o.domain_uuid
        order by o.recv_at, o.agent_id, o.seq;
    drop table events_1;
    drop table streams_1;
";

/// Tables that are small at any age of the database, and without which nothing goes on.
const SMALL: [&str; 8] = [
    "meta",
    "hosts",
    "streams",
    "words",
    "guests",
    "incidents",
    "pauses",
    "planned",
];

fn connect(path: &Path) -> rusqlite::Result<Connection> {
    let connection = Connection::open_with_flags(
        path,
        OpenFlags::SQLITE_OPEN_READ_WRITE
            | OpenFlags::SQLITE_OPEN_CREATE
            | OpenFlags::SQLITE_OPEN_NO_MUTEX
            | OpenFlags::SQLITE_OPEN_NOFOLLOW,
    )?;
    connection.busy_timeout(BUSY)?;
    Ok(connection)
}

/// Opens the writing connection; a damaged file is put aside first.
pub(super) fn open(path: &Path, durability: Durability) -> Result<Connection, Error> {
    let mark = mark_of(path);
    if mark.exists() {
        let why = std::fs::read_to_string(&mark).unwrap_or_default();
        put_aside(path, &why)?;
        let _ = std::fs::remove_file(&mark);
    }
    make_private(path)?;
    match prepare(path, durability) {
        Ok(connection) => Ok(connection),
        Err(Error::Store { source, .. }) if damaged(&source) => {
            put_aside(path, &source.to_string())?;
            make_private(path)?;
            prepare(path, durability)
        }
        Err(error) => Err(error),
    }
}

fn mark_of(path: &Path) -> PathBuf {
    path.with_extension("db-damaged")
}

/// Remembers damage that was found while the database was in use, for the next start.
pub(super) fn note_damage(path: &Path, error: &rusqlite::Error) {
    if damaged(error) && !mark_of(path).exists() {
        tracing::error!(%error, file = %path.display(), "the telemetry database is damaged; restart to begin with a new one");
        if let Err(error) = std::fs::write(mark_of(path), error.to_string()) {
            tracing::warn!(%error, "the damage cannot be noted");
        }
    }
}

fn damaged(error: &rusqlite::Error) -> bool {
    matches!(
        error.sqlite_error_code(),
        Some(rusqlite::ErrorCode::DatabaseCorrupt | rusqlite::ErrorCode::NotADatabase)
    )
}

fn prepare(path: &Path, durability: Durability) -> Result<Connection, Error> {
    let failed = |source| Error::Store {
        path: path.to_owned(),
        source,
    };
    let connection = connect(path).map_err(failed)?;
    let fresh: bool = connection
        .query_row("select count(*) = 0 from sqlite_master", [], |row| row.get(0))
        .map_err(failed)?;
    if fresh {
        connection
            .pragma_update(None, "page_size", 8192)
            .map_err(failed)?;
        connection
            .pragma_update(None, "auto_vacuum", "INCREMENTAL")
            .map_err(failed)?;
    }
    connection
        .pragma_update(None, "journal_mode", "WAL")
        .map_err(failed)?;
    let synchronous = match durability {
        Durability::Full => "FULL",
        Durability::Normal => "NORMAL",
    };
    connection
        .pragma_update(None, "synchronous", synchronous)
        .map_err(failed)?;
    connection
        .pragma_update(None, "wal_autocheckpoint", CHECKPOINT_PAGES)
        .map_err(failed)?;
    connection
        .pragma_update(None, "journal_size_limit", 64 << 20)
        .map_err(failed)?;
    if fresh {
        connection
            .execute_batch(&format!(
                "begin; {TABLES} {INCIDENTS} {EVENTS} insert into meta values('layout', {LAYOUT}); commit;"
            ))
            .map_err(failed)?;
    } else {
        check(&connection, path)?;
    }
    Ok(connection)
}

/// Looks at the layout, and for damage where it would hurt. The large tables are only touched: reading them whole takes
/// minutes, and damage in them is found and noted when they are used.
fn check(connection: &Connection, path: &Path) -> Result<(), Error> {
    let failed = |source| Error::Store {
        path: path.to_owned(),
        source,
    };
    let found: i64 = connection
        .query_row("select value from meta where key = 'layout'", [], |row| {
            row.get(0)
        })
        .map_err(failed)?;
    if found > LAYOUT {
        return Err(Error::Newer {
            path: path.to_owned(),
            found,
            known: LAYOUT,
        });
    }
    if found < LAYOUT {
        tracing::info!(
            from = found,
            to = LAYOUT,
            "the telemetry database gets a new layout; this may take minutes"
        );
        migrate(connection, found).map_err(failed)?;
    }
    for table in SMALL {
        let verdict: String = connection
            .query_row(&format!("pragma quick_check('{table}')"), [], |row| row.get(0))
            .map_err(failed)?;
        if verdict != "ok" {
            return Err(failed(rusqlite::Error::SqliteFailure(
                rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_CORRUPT),
                Some(verdict),
            )));
        }
    }
    connection
        .query_row("select min(id) + max(id) from events", [], |row| {
            row.get::<_, Option<i64>>(0)
        })
        .map_err(failed)?;
    Ok(())
}

/// Brings an older layout up to this one, or leaves it as it was.
fn migrate(connection: &Connection, found: i64) -> rusqlite::Result<()> {
    let events = if found < 2 {
        format!(
            "alter table events rename to events_1;
             alter table streams rename to streams_1;
             {EVENTS} {FROM_1}"
        )
    } else {
        String::new()
    };
    // Before the third layout nothing was ever written into the tables of incidents.
    let incidents = if found < 3 {
        format!("drop table incidents; drop table journal; {INCIDENTS}")
    } else {
        String::new()
    };
    let done = connection.execute_batch(&format!(
        "begin immediate;
         {events}
         {incidents}
         alter table vms add column outside_ceph integer not null default 0;
         update meta set value = {LAYOUT} where key = 'layout';
         commit;"
    ));
    if done.is_err() {
        let _ = connection.execute_batch("rollback");
    }
    done
}

fn put_aside(path: &Path, why: &str) -> Result<(), Error> {
    let stamp = jiff::Timestamp::now().as_second();
    let aside = path.with_extension(format!("db.damaged-{stamp}"));
    tracing::error!(
        file = %path.display(),
        aside = %aside.display(),
        why,
        "the telemetry database is damaged; it is put aside and the service begins anew"
    );
    std::fs::rename(path, &aside).map_err(|source| Error::File {
        path: path.to_owned(),
        source,
    })?;
    for log in ["db-wal", "db-shm"] {
        let _ = std::fs::remove_file(path.with_extension(log));
    }
    Ok(())
}

/// Opens a reading connection.
pub(super) fn open_reader(path: &Path) -> Result<Connection, Error> {
    let failed = |source| Error::Store {
        path: path.to_owned(),
        source,
    };
    let connection = connect(path).map_err(failed)?;
    connection
        .pragma_update(None, "query_only", true)
        .map_err(failed)?;
    Ok(connection)
}

/// Makes the file readable by its owner only; its log inherits the mode.
pub(crate) fn make_private(path: &Path) -> Result<(), Error> {
    let made = std::fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path);
    match made {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Ok(()),
        Err(source) => Err(Error::File {
            path: path.to_owned(),
            source,
        }),
    }
}
