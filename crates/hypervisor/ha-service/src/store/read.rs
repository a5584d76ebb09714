// SPDX-License-Identifier: Apache-2.0
//! What is read back: pages of events and guests, by the keys they are stored under.

use cobaltcore_ha_wire::ServerId;
use cobaltcore_ha_wire::rest::{StoredEvent, Vm};
use rusqlite::types::Value;
use rusqlite::{Connection, Row, params_from_iter};

use super::{Store, StoreError};

/// Which events.
#[derive(Clone, Debug, Default)]
pub struct EventFilter {
    /// Of this host.
    pub host: Option<String>,
    /// Of this guest.
    pub domain: Option<String>,
    /// Of this kind.
    pub kind: Option<String>,
    /// Received at or after, in milliseconds.
    pub since_ms: Option<i64>,
    /// Received before.
    pub until_ms: Option<i64>,
    /// After this place.
    pub after: Option<Place>,
}

/// The place of an event in the order they arrived.
pub type Place = i64;

/// Which guests.
#[derive(Clone, Debug, Default)]
pub struct VmFilter {
    /// On this host, by either view.
    pub host: Option<String>,
    /// With this policy.
    pub policy: Option<String>,
    /// The policy of those for whom nobody asked for any.
    pub default_policy: &'static str,
    /// In this state, by Nova.
    pub state: Option<String>,
    /// After this one.
    pub after: Option<String>,
}

fn moment_ms(ms: i64) -> jiff::Timestamp {
    jiff::Timestamp::from_millisecond(ms).unwrap_or(jiff::Timestamp::UNIX_EPOCH)
}

fn event(row: &Row<'_>) -> rusqlite::Result<(StoredEvent, Place)> {
    let (received, lag): (i64, i64) = (row.get("recv_at")?, row.get("lag")?);
    let happened = (received * 1000).saturating_sub(lag);
    let attrs: Option<String> = row.get("attrs")?;
    let stored = StoredEvent {
        agent_id: row.get("agent_id")?,
        seq: row.get::<_, i64>("seq")?.cast_unsigned(),
        host: row.get("host")?,
        ts: jiff::Timestamp::from_microsecond(happened).unwrap_or(jiff::Timestamp::UNIX_EPOCH),
        received_at: moment_ms(received),
        kind: row.get("kind")?,
        event: row.get("event")?,
        detail: row.get("detail")?,
        domain: row.get("uuid")?,
        attrs: attrs
            .and_then(|text| serde_json::from_str(&text).ok())
            .unwrap_or_default(),
        count: row.get("count")?,
        synthetic: row.get("synthetic")?,
    };
    Ok((stored, row.get("id")?))
}

/// The place of the first event that arrived at this time or later; past the last if there is none. Events are
/// numbered as they arrive, so it is found by halving.
pub(super) fn first_since(connection: &Connection, ms: i64) -> rusqlite::Result<i64> {
    let ends = connection.query_row("select min(id), max(id) from events", [], |row| {
        Ok((row.get::<_, Option<i64>>(0)?, row.get::<_, Option<i64>>(1)?))
    })?;
    let (Some(mut low), Some(last)) = ends else {
        return Ok(0);
    };
    let mut high = last + 1;
    let mut look =
        connection.prepare_cached("select id, recv_at from events where id >= ?1 order by id limit 1")?;
    while low < high {
        let middle = low + (high - low) / 2;
        let (id, at): (i64, i64) = look.query_row([middle], |row| Ok((row.get(0)?, row.get(1)?)))?;
        if at >= ms {
            high = middle;
        } else {
            low = id + 1;
        }
    }
    Ok(low)
}

impl Store {
    /// Events in the order they arrived, and the place of the last if there may be more.
    pub async fn events(
        &self,
        filter: EventFilter,
        limit: usize,
    ) -> Result<(Vec<StoredEvent>, Option<Place>), StoreError> {
        self.read(move |connection| events(connection, filter, limit))
            .await
    }

    /// Guests in the order of their ids, and the last id if there may be more.
    pub async fn vms(&self, filter: VmFilter, limit: usize) -> Result<(Vec<Vm>, Option<String>), StoreError> {
        self.read(move |connection| vms(connection, filter, limit)).await
    }

    /// One guest; `default_policy` is that of guests for whom nobody asked for any.
    pub async fn vm(&self, id: &ServerId, default_policy: &'static str) -> Result<Option<Vm>, StoreError> {
        let id = id.as_str().to_owned();
        self.read(move |connection| {
            let mut query = connection.prepare_cached("select * from vms where uuid = ?1")?;
            let mut rows = query.query([id])?;
            rows.next()?.map(|row| vm(row, default_policy)).transpose()
        })
        .await
        .map(Option::flatten)
    }
}

fn events(
    connection: &Connection,
    filter: EventFilter,
    limit: usize,
) -> rusqlite::Result<(Vec<StoredEvent>, Option<Place>)> {
    let EventFilter {
        host,
        domain,
        kind,
        since_ms,
        until_ms,
        after,
    } = filter;
    let mut sql = "select e.*, s.agent_id, s.host, w.kind, w.event, w.detail, g.uuid from events e
        join streams s on s.id = e.stream join words w on w.id = e.word left join guests g on g.id = e.guest where 1"
        .to_owned();
    let mut values: Vec<Value> = Vec::new();
    for (condition, value) in [
        ("e.stream in (select id from streams where host = ?)", host),
        ("e.guest = (select id from guests where uuid = ?)", domain),
        ("e.word in (select id from words where kind = ?)", kind),
    ] {
        if let Some(value) = value {
            sql.push_str(&format!(" and {condition}"));
            values.push(value.into());
        }
    }
    if let Some(since) = since_ms {
        sql.push_str(" and e.id >= ?");
        values.push(first_since(connection, since)?.into());
    }
    if let Some(until) = until_ms {
        sql.push_str(" and e.id < ?");
        values.push(first_since(connection, until)?.into());
    }
    if let Some(after) = after {
        sql.push_str(" and e.id > ?");
        values.push(after.into());
    }
    sql.push_str(&format!(" order by e.id limit {limit}"));
    let mut query = connection.prepare_cached(&sql)?;
    let rows: rusqlite::Result<Vec<_>> = query.query_map(params_from_iter(values), event)?.collect();
    let (found, places): (Vec<_>, Vec<_>) = rows?.into_iter().unzip();
    let more = if found.len() == limit {
        places.into_iter().next_back()
    } else {
        None
    };
    Ok((found, more))
}

fn vm(row: &Row<'_>, default_policy: &str) -> rusqlite::Result<Option<Vm>> {
    let uuid: String = row.get("uuid")?;
    let Ok(uuid) = ServerId::new(uuid) else {
        return Ok(None);
    };
    let (asked, vm_state): (String, Option<String>) = (row.get("policy")?, row.get("vm_state")?);
    // What is asked for a guest that Nova has not listed is not known yet.
    let policy_default = asked.is_empty() && vm_state.is_some();
    Ok(Some(Vm {
        uuid,
        name: row.get("name")?,
        agent_host: row.get("agent_host")?,
        agent_state: row.get("agent_state")?,
        nova_host: row.get("nova_host")?,
        vm_state,
        task_state: row.get("task_state")?,
        policy: if policy_default {
            default_policy.to_owned()
        } else {
            asked
        },
        policy_default,
        priority: row.get("priority")?,
        last_incident: row.get("last_incident")?,
    }))
}

fn vms(
    connection: &Connection,
    filter: VmFilter,
    limit: usize,
) -> rusqlite::Result<(Vec<Vm>, Option<String>)> {
    let VmFilter {
        host,
        policy,
        default_policy,
        state,
        after,
    } = filter;
    let mut sql = "select * from vms where 1".to_owned();
    let mut values: Vec<Value> = Vec::new();
    if let Some(host) = host {
        sql.push_str(" and (agent_host = ? or nova_host = ?)");
        values.extend([host.clone().into(), host.into()]);
    }
    if let Some(policy) = policy {
        let usual = if policy == default_policy {
            " or policy = '' and vm_state is not null"
        } else {
            ""
        };
        sql.push_str(&format!(" and (policy = ?{usual})"));
        values.push(policy.into());
    }
    if let Some(state) = state {
        sql.push_str(" and vm_state = ?");
        values.push(state.into());
    }
    if let Some(after) = after {
        sql.push_str(" and uuid > ?");
        values.push(after.into());
    }
    sql.push_str(&format!(" order by uuid limit {limit}"));
    let mut query = connection.prepare_cached(&sql)?;
    let rows: rusqlite::Result<Vec<_>> = query
        .query_map(params_from_iter(values), |row| vm(row, default_policy))?
        .collect();
    let found: Vec<Vm> = rows?.into_iter().flatten().collect();
    let more = if found.len() == limit {
        found.last().map(|vm| vm.uuid.to_string())
    } else {
        None
    };
    Ok((found, more))
}
