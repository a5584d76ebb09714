// SPDX-License-Identifier: Apache-2.0
//! The tables of the database, and how an older layout becomes this one: in one transaction, so that a
//! file has either the old layout or the new one. A newer layout is refused.

use std::path::Path;

use rusqlite::Connection;

use super::StoreError;

/// The layout below.
const LAYOUT: i64 = 2;

const TABLES: &str = "
    create table meta(key text primary key, value) without rowid;
    create table types(id integer primary key, grp text not null, plural text not null,
        floor_rev integer not null, unique(grp, plural));
    create table events(rev integer primary key, type_id integer not null, ns text not null, name text not null,
        op integer not null, prev_rev integer not null, at integer not null, schema integer not null,
        tag integer not null, value blob not null);
    create index events_by_type on events(type_id, rev);
";

/// Rows lie in a tree of their own, not in that of their names: there a row of more than a quarter of
/// a page would take pages for itself, and writing it would take and give back those too.
const OBJECTS: &str = "
    create table objects(id integer primary key, type_id integer not null, ns text not null, name text not null,
        uid text not null, create_rev integer not null, mod_rev integer not null, schema integer not null,
        tag integer not null, value blob not null);
    create unique index objects_by_name on objects(type_id, ns, name);
";

/// Objects as rows of the tree of their names, until layout 1.
const FROM_1: &str = "
    insert into objects(type_id, ns, name, uid, create_rev, mod_rev, schema, tag, value)
        select type_id, ns, name, uid, create_rev, mod_rev, schema, tag, value from objects_1 order by create_rev;
    drop table objects_1;
";

/// Makes the tables of an empty database.
pub(super) fn create(database: &Connection) -> Result<(), StoreError> {
    let cluster = uuid::Uuid::new_v4();
    database.execute_batch(&format!(
        "begin; {TABLES} {OBJECTS}
         insert into meta values('layout', {LAYOUT}), ('cluster', '{cluster}'), ('revision', 1), ('clean', 1), ('ceiling', 0);
         commit;"
    ))?;
    Ok(())
}

/// Brings a database that is there to this layout.
pub(super) fn renew(database: &mut Connection, path: &Path) -> Result<(), StoreError> {
    let found: i64 = database
        .query_row("select value from meta where key = 'layout'", [], |row| {
            row.get(0)
        })
        .map_err(|source| StoreError::Damaged {
            path: path.to_owned(),
            why: source.to_string(),
        })?;
    if found > LAYOUT {
        return Err(StoreError::Newer {
            path: path.to_owned(),
            found,
            known: LAYOUT,
        });
    }
    if found < LAYOUT {
        let transaction = database.transaction()?;
        transaction.execute_batch(&format!(
            "alter table objects rename to objects_1; {OBJECTS} {FROM_1}
             update meta set value = {LAYOUT} where key = 'layout';"
        ))?;
        transaction.commit()?;
        tracing::info!(path = %path.display(), from = found, to = LAYOUT, "the database has the present layout now");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The tables of layout 1, as its releases made them.
    const LAYOUT_1: &str = "
        create table objects(type_id integer not null, ns text not null, name text not null, uid text not null,
            create_rev integer not null, mod_rev integer not null, schema integer not null, tag integer not null,
            value blob not null, primary key(type_id, ns, name)) without rowid;
        insert into meta values('layout', 1);
        insert into objects values(1, 'ns', 'b', 'u1', 3, 5, 0, 0, x'7b7d'), (1, 'ns', 'a', 'u2', 4, 4, 0, 0, x'7b7d');
    ";

    fn names(database: &Connection) -> Vec<String> {
        let mut statement = database
            .prepare(
                "select name || ' ' || create_rev || ' ' || mod_rev || ' ' || uid from objects order by id",
            )
            .unwrap();
        let rows = statement.query_map([], |row| row.get(0)).unwrap();
        rows.map(Result::unwrap).collect()
    }

    #[test]
    fn an_older_layout_becomes_this_one_with_all_its_objects() {
        let mut database = Connection::open_in_memory().unwrap();
        database.execute_batch(&format!("{TABLES} {LAYOUT_1}")).unwrap();
        renew(&mut database, Path::new("state.db")).unwrap();
        assert_eq!(names(&database), ["b 3 5 u1", "a 4 4 u2"]);
        // The second time there is nothing to do.
        renew(&mut database, Path::new("state.db")).unwrap();
        assert_eq!(names(&database).len(), 2);
        let twice = database.execute(
            "insert into objects values(9, 1, 'ns', 'a', 'u3', 6, 6, 0, 0, x'7b7d')",
            [],
        );
        assert!(twice.is_err(), "a name is there once");
    }

    #[test]
    fn a_newer_layout_is_refused() {
        let mut database = Connection::open_in_memory().unwrap();
        create(&database).unwrap();
        database
            .execute("update meta set value = 99 where key = 'layout'", [])
            .unwrap();
        let refused = renew(&mut database, Path::new("state.db")).unwrap_err();
        assert!(refused.to_string().contains("newer release"), "{refused}");
    }
}
