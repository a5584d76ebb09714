// SPDX-License-Identifier: Apache-2.0
//! The ovsdb-server of one host: who is connected, what each wants to hear, who holds which lock. The rows are derived from
//! the world when somebody asks; they are kept only while somebody listens, to tell what changed.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::{mpsc, watch};
use uuid::Uuid;

use super::derive::{settle, view};
use super::frame::{Request, answer, notice};
use super::monitor::{Form, Monitor};
use super::schema::{OPEN_VSWITCH, SERVER, Schema};
use super::tables::Tables;
use super::transact::{Context, Outcome, transact};
use super::value::{Datum, Refusal};
use crate::world::{HostName, World, named_uuid};

/// A client that does not read is sent away when this much waits for it.
const QUEUE: usize = 4096;
const MOST_MONITORS: usize = 256;

/// A client's number.
pub(crate) type Id = u64;

struct Session {
    out: mpsc::Sender<Value>,
    monitors: Vec<(&'static Schema, Monitor)>,
}

#[derive(Default)]
struct Inner {
    sessions: BTreeMap<Id, Session>,
    next: Id,
    /// Who holds a lock and who waits for it, in order.
    locks: BTreeMap<String, VecDeque<Id>>,
    /// The rows that listeners were told of.
    told: Option<Tables>,
}

/// The ovsdb-server of one host.
pub(crate) struct Hub {
    pub(crate) world: World,
    pub(crate) host: HostName,
    inner: Mutex<Inner>,
    /// Goes up with every change that somebody may wait for.
    pulse: watch::Sender<u64>,
    /// Changes with every start.
    server: Mutex<Uuid>,
}

impl Hub {
    pub(crate) fn new(world: World, host: HostName) -> Arc<Self> {
        Arc::new(Self {
            world,
            host,
            inner: Mutex::default(),
            pulse: watch::Sender::new(0),
            server: Mutex::new(Uuid::nil()),
        })
    }

    /// Says that the daemon starts.
    pub(crate) fn begin(&self) {
        *self.server.lock() = self.world.attend(false, crate::world::State::fresh);
    }

    /// Told of everything that changes.
    pub(crate) fn pulse(&self) -> watch::Receiver<u64> {
        self.pulse.subscribe()
    }

    pub(crate) fn join(&self) -> (Id, mpsc::Receiver<Value>) {
        let (out, queue) = mpsc::channel(QUEUE);
        let mut inner = self.inner.lock();
        inner.next += 1;
        let id = inner.next;
        let session = Session {
            out,
            monitors: Vec::new(),
        };
        inner.sessions.insert(id, session);
        (id, queue)
    }

    pub(crate) fn leave(&self, id: Id) {
        let mut inner = self.inner.lock();
        inner.sessions.remove(&id);
        let held: Vec<String> = inner.locks.keys().cloned().collect();
        for name in &held {
            inner.release(name, id);
        }
        if !inner.watched() {
            inner.told = None;
        }
    }

    /// Tells listeners what changed in the world, and whoever waits that something may have.
    pub(crate) fn refresh(&self) {
        let mut inner = self.inner.lock();
        if inner.watched() {
            self.look(&mut inner);
        }
        drop(inner);
        self.pulse.send_modify(|count| *count += 1);
    }

    /// Whether somebody listens to figures, which change with time alone.
    pub(crate) fn ticks(&self) -> bool {
        let inner = self.inner.lock();
        let Some(told) = &inner.told else {
            return false;
        };
        let monitors = inner.sessions.values().flat_map(|session| &session.monitors);
        let own = |(schema, monitor): &(&Schema, Monitor)| {
            schema.name == OPEN_VSWITCH.name && monitor.hears_figures(told)
        };
        monitors.into_iter().any(own)
    }

    /// The rows as they are now; listeners hear of what changed since.
    fn look(&self, inner: &mut Inner) -> Tables {
        let tables = self.world.attend(false, |state| {
            settle(state, &self.host);
            view(state, &self.host)
        });
        inner.tell(&tables);
        tables
    }

    /// Takes a request; whatever is to be said is put into queues. Gives back what has to wait.
    pub(crate) fn take(&self, id: Id, request: Request) -> Option<Waiting> {
        let mut inner = self.inner.lock();
        let outcome = match request.method.as_str() {
            "transact" => match self.transact(&mut inner, id, &request.params, false) {
                Ok(result) => Ok(result),
                Err(Held::Waits(patience)) => return Some(Waiting { request, patience }),
                Err(Held::Refused(refusal)) => Err(refusal.to_json()),
            },
            _ => self.answer(&mut inner, id, &request),
        };
        if !request.id.is_null() {
            inner.send(id, answer(&request.id, outcome));
        }
        let settled = request.method == "transact";
        if settled && inner.watched() {
            // What ovs-vswitchd makes of it comes after the answer.
            self.look(&mut inner);
        }
        drop(inner);
        if settled {
            self.pulse.send_modify(|count| *count += 1);
        }
        None
    }

    /// Tries a transaction again that waits; says whether it is over.
    pub(crate) fn retry(&self, id: Id, waiting: &Waiting, late: bool) -> bool {
        let mut inner = self.inner.lock();
        if !inner.sessions.contains_key(&id) {
            return true;
        }
        let outcome = match self.transact(&mut inner, id, &waiting.request.params, late) {
            Ok(result) => Ok(result),
            Err(Held::Waits(_)) => return false,
            Err(Held::Refused(refusal)) => Err(refusal.to_json()),
        };
        inner.send(id, answer(&waiting.request.id, outcome));
        if inner.watched() {
            self.look(&mut inner);
        }
        true
    }

    fn transact(&self, inner: &mut Inner, id: Id, params: &[Value], late: bool) -> Result<Value, Held> {
        let (schema, operations) = database("transact", params)?;
        let own = schema.name == OPEN_VSWITCH.name;
        let tables = if own { self.look(inner) } else { about() };
        let world = self.world.clone();
        let mut fresh = move || world.attend(false, crate::world::State::fresh);
        let outcome = {
            let inner = &*inner;
            let mut context = Context {
                owns: &|lock| inner.owns(lock, id),
                fresh: &mut fresh,
                late,
            };
            transact(&tables, operations, &mut context)
        };
        match outcome {
            Outcome::Waits(span) => Err(Held::Waits(span.map(Duration::from_millis))),
            Outcome::Over(results, None) => Ok(results.into()),
            Outcome::Over(_, Some(_)) if !own => {
                let refusal = Refusal::new("not allowed", "the _Server database is read-only");
                Err(Held::Refused(refusal))
            }
            Outcome::Over(results, Some(after)) => {
                self.write(inner, &tables, &after);
                Ok(results.into())
            }
        }
    }

    /// Makes what a client wrote true.
    fn write(&self, inner: &mut Inner, before: &Tables, after: &Tables) {
        let tables = self.world.change(|state| {
            let switch = state.switches.entry(self.host.clone()).or_default();
            switch.writes.note(before, after);
            state.changed.push(self.host.clone());
            view(state, &self.host)
        });
        inner.tell(&tables);
    }

    fn answer(&self, inner: &mut Inner, id: Id, request: &Request) -> Result<Value, Value> {
        let params = request.params.as_slice();
        let refused = |refusal: Refusal| refusal.to_json();
        match request.method.as_str() {
            "echo" => Ok(params.into()),
            "list_dbs" => Ok(json!([OPEN_VSWITCH.name, SERVER.name])),
            "get_schema" => database("get_schema", params)
                .map(|(schema, _)| schema.to_json())
                .map_err(refused),
            "get_server_id" => Ok(self.server.lock().to_string().into()),
            "set_db_change_aware" => Ok(json!({})),
            "lock" | "steal" | "unlock" => inner.lock(&request.method, id, params).map_err(refused),
            "monitor" | "monitor_cond" | "monitor_cond_since" => {
                self.monitor(inner, id, &request.method, params).map_err(refused)
            }
            "monitor_cond_change" => self.retarget(inner, id, params).map_err(refused),
            "monitor_cancel" => inner.cancel(id, params),
            // A transaction that waits cannot be found again; it ends with its time.
            "cancel" => Ok(Value::Null),
            "convert" => {
                Err(Refusal::new("not allowed", "the schema of a simulated switch is fixed").to_json())
            }
            _ => Err("unknown method".into()),
        }
    }

    fn monitor(&self, inner: &mut Inner, id: Id, method: &str, params: &[Value]) -> Result<Value, Refusal> {
        let (schema, rest) = database(method, params)?;
        let ([name, requests, ..], Some(form)) = (rest, Form::of(method)) else {
            return Err(Refusal::syntax(
                &params.into(),
                "array of 3 or 4 elements expected",
            ));
        };
        let tables = if schema.name == OPEN_VSWITCH.name {
            let tables = self.look(inner);
            inner.told = Some(tables.clone());
            tables
        } else {
            about()
        };
        let Some(session) = inner.sessions.get_mut(&id) else {
            return Err(Refusal::new("canceled", "the client is gone"));
        };
        if session.monitors.iter().any(|(_, known)| known.id == *name) {
            return Err(Refusal::syntax(name, "duplicate monitor ID"));
        }
        if session.monitors.len() >= MOST_MONITORS {
            return Err(Refusal::new("resources exhausted", "too many monitors"));
        }
        let monitor = Monitor::read(name.clone(), form, requests, &tables)?;
        let initial = monitor.initial(&tables);
        session.monitors.push((schema, monitor));
        Ok(match form {
            // A server that is alone never finds a transaction again.
            Form::Numbered => json!([false, Uuid::nil().to_string(), initial]),
            _ => initial,
        })
    }

    fn retarget(&self, inner: &mut Inner, id: Id, params: &[Value]) -> Result<Value, Refusal> {
        let [old, new, requests] = params else {
            return Err(Refusal::syntax(&params.into(), "array of 3 elements expected"));
        };
        let tables = self.look(inner);
        let unknown = || Refusal::syntax(old, "unknown monitor session");
        let session = inner.sessions.get_mut(&id).ok_or_else(unknown)?;
        let found = session
            .monitors
            .iter_mut()
            .find(|(_, monitor)| monitor.id == *old);
        let (schema, monitor) = found.ok_or_else(unknown)?;
        let tables = if schema.name == OPEN_VSWITCH.name {
            tables
        } else {
            about()
        };
        let told = monitor.retarget(requests, &tables)?;
        monitor.id = new.clone();
        if let Some(message) = told {
            inner.send(id, message);
        }
        Ok(json!({}))
    }
}

/// Why a transaction has no result.
enum Held {
    Refused(Refusal),
    Waits(Option<Duration>),
}

impl From<Refusal> for Held {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

/// A transaction that waits for rows to be as it wants them.
pub(crate) struct Waiting {
    request: Request,
    /// How long; none for ever.
    pub(crate) patience: Option<Duration>,
}

impl Inner {
    fn watched(&self) -> bool {
        self.sessions.values().any(|session| !session.monitors.is_empty())
    }

    fn owns(&self, lock: &str, id: Id) -> bool {
        self.locks.get(lock).and_then(VecDeque::front) == Some(&id)
    }

    fn send(&mut self, id: Id, message: Value) {
        let full = |session: &Session| session.out.try_send(message).is_err();
        if self.sessions.get(&id).is_some_and(full) {
            self.sessions.remove(&id);
        }
    }

    /// Tells every listener how the rows differ from what it was told last.
    fn tell(&mut self, tables: &Tables) {
        let Some(old) = self.told.take() else {
            return;
        };
        let mut messages = Vec::new();
        for (id, session) in &self.sessions {
            let own = session
                .monitors
                .iter()
                .filter(|(schema, _)| schema.name == OPEN_VSWITCH.name);
            messages.extend(own.filter_map(|(_, monitor)| Some((*id, monitor.update(&old, tables)?))));
        }
        for (id, message) in messages {
            self.send(id, message);
        }
        if self.watched() {
            self.told = Some(tables.clone());
        }
    }

    fn cancel(&mut self, id: Id, params: &[Value]) -> Result<Value, Value> {
        let session = self.sessions.get_mut(&id);
        let known = |session: &Session| {
            session
                .monitors
                .iter()
                .position(|(_, monitor)| Some(&monitor.id) == params.first())
        };
        let found = session.and_then(|session| Some((known(session)?, session)));
        let Some((at, session)) = found else {
            return Err("unknown monitor".into());
        };
        session.monitors.remove(at);
        if !self.watched() {
            self.told = None;
        }
        Ok(json!({}))
    }

    fn lock(&mut self, method: &str, id: Id, params: &[Value]) -> Result<Value, Refusal> {
        let whole: Value = params.into();
        let Some(name) = params.first().and_then(Value::as_str) else {
            return Err(Refusal::syntax(&whole, "params must be a single string"));
        };
        let queue = self.locks.entry(name.to_owned()).or_default();
        let waits = queue.contains(&id);
        if method == "unlock" {
            if !waits {
                let text = "unlock: \"unlock\" without \"lock\" or \"steal\"";
                return Err(Refusal::syntax(&whole, text));
            }
            self.release(name, id);
            return Ok(json!({}));
        }
        if waits {
            let text = format!("must issue \"unlock\" before new \"{method}\"");
            return Err(Refusal::syntax(&whole, text));
        }
        if method == "lock" {
            queue.push_back(id);
            return Ok(json!({"locked": queue.front() == Some(&id)}));
        }
        let robbed = queue.front().copied();
        queue.push_front(id);
        if let Some(robbed) = robbed {
            // Whoever is robbed waits for the lock from now on.
            self.send(robbed, notice("stolen", json!([name])));
        }
        Ok(json!({"locked": true}))
    }

    fn release(&mut self, name: &str, id: Id) {
        let Some(queue) = self.locks.get_mut(name) else {
            return;
        };
        let held = queue.front() == Some(&id);
        queue.retain(|other| *other != id);
        let next = queue.front().copied().filter(|_| held);
        if queue.is_empty() {
            self.locks.remove(name);
        }
        if let Some(next) = next {
            self.send(next, notice("locked", json!([name])));
        }
    }
}

/// Which database a request is about, and the rest of it.
fn database<'a>(method: &str, params: &'a [Value]) -> Result<(&'static Schema, &'a [Value]), Refusal> {
    let Some((Value::String(name), rest)) = params.split_first() else {
        let text = format!("{method} request params must begin with <db-name>");
        return Err(Refusal::syntax(&params.into(), text));
    };
    let known = [&*OPEN_VSWITCH, &*SERVER]
        .into_iter()
        .find(|schema| schema.name == *name);
    let schema = known.ok_or_else(|| Refusal {
        error: "unknown database",
        ..Refusal::syntax(
            &params.into(),
            format!("{method} request specifies unknown database {name}"),
        )
    })?;
    Ok((schema, rest))
}

/// The database about databases.
fn about() -> Tables {
    let mut tables = Tables::new(&SERVER);
    for schema in [&*OPEN_VSWITCH, &*SERVER] {
        let columns = [
            ("name", Datum::one(schema.name.as_str())),
            ("model", Datum::one("standalone")),
            ("connected", Datum::one(true)),
            ("leader", Datum::one(true)),
            ("schema", Datum::one(schema.to_json().to_string())),
        ];
        let id = named_uuid(Uuid::nil(), &schema.name);
        tables.make("Database", id, columns);
    }
    tables
}
