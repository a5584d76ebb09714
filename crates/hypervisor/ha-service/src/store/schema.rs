// SPDX-License-Identifier: Apache-2.0
//! The tables, and opening the file: layouts go forward only, a newer one is refused, a damaged
//! file is put aside.

use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::time::Duration;

use rusqlite::{Connection, OpenFlags};

use super::Durability;
use crate::error::Error;

/// The layout this program writes.
pub(crate) const LAYOUT: i64 = 1;
const BUSY: Duration = Duration::from_secs(5);
const CHECKPOINT_PAGES: i64 = 4000;

const TABLES: &str = "
    create table meta(key text primary key, value) without rowid;
    create table hosts(host text primary key, nova_host text, service_id text, hypervisor_id text, zone text, bb text,
        internal_ip text, ha_enabled integer, ha_reason text, maintenance text, state text, state_since integer,
        boot_id text, first_seen integer not null, last_seen integer, legacy integer, known_at integer not null) without rowid;
    create table streams(agent_id text primary key, host text not null, epoch integer not null, boot_id text not null,
        last_seq integer not null, first_seen integer not null, last_seen integer not null, gaps integer not null) without rowid;
    create table events(agent_id text not null, seq integer not null, host text not null, ts integer not null,
        recv_at integer not null, kind text not null, event text not null, detail text not null, domain_uuid text,
        attrs text not null, count integer not null, synthetic integer not null, primary key(agent_id, seq)) without rowid;
    create index events_by_host on events(host, recv_at);
    create index events_by_domain on events(domain_uuid, recv_at) where domain_uuid is not null;
    create index events_by_kind on events(kind, recv_at);
    create index events_by_time on events(recv_at);
    create table heartbeat_minute(host text not null, minute integer not null, count integer not null,
        max_gap_ms integer not null, uptime_s integer not null, primary key(host, minute)) without rowid;
    create table vms(uuid text primary key, name text not null default '', agent_host text, agent_state text,
        inv_version integer, nova_host text, vm_state text, task_state text, power_state text, project text, flavor text,
        grp text not null default '', policy text not null default '', priority integer not null default 500,
        last_incident text, agent_seen integer, nova_seen integer) without rowid;
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
    create table incidents(id text primary key, host text not null, kind text not null, state text not null,
        opened_at integer not null, updated_at integer not null, open integer not null) without rowid;
    create table journal(seq integer primary key, incident text, at integer not null, record text not null);
    create index journal_by_incident on journal(incident, seq);
    create table audit(n integer primary key, at integer not null, actor text not null, action text not null,
        target text not null, reason text not null, before text not null, after text not null);
    create table pauses(scope text primary key, reason text not null, actor text not null, until integer not null) without rowid;
    create table planned(host text primary key, reason text not null, actor text not null, until integer not null) without rowid;
";

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
                "begin; {TABLES} insert into meta values('layout', {LAYOUT}); commit;"
            ))
            .map_err(failed)?;
    } else {
        check(&connection, path)?;
    }
    Ok(connection)
}

/// Looks for damage where it would hurt, and at the layout.
fn check(connection: &Connection, path: &Path) -> Result<(), Error> {
    let failed = |source| Error::Store {
        path: path.to_owned(),
        source,
    };
    let verdict: String = connection
        .query_row("pragma quick_check(1)", [], |row| row.get(0))
        .map_err(failed)?;
    if verdict != "ok" {
        return Err(failed(rusqlite::Error::SqliteFailure(
            rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_CORRUPT),
            Some(verdict),
        )));
    }
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
    Ok(())
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
