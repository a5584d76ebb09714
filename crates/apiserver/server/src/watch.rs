// SPDX-License-Identifier: Apache-2.0
//! Watches. Each is a cursor over its type's ring of events: the writer wakes it, it renders what it
//! missed (sharing renderings with its neighbours) and hands it to the connection. A watcher that
//! falls too far behind is cut off; nobody waits for it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use futures::StreamExt;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::api::Api;
use crate::call::{Answer, Body, Call};
use crate::meta;
use crate::negotiate::{Form, Include, Shape};
use crate::options::ListOptions;
use crate::patience::Patient;
use crate::read::Filter;
use crate::registry::{Model, Registry, Resource};
use crate::status::{ApiError, ApiResult};
use crate::store::{Event, Key, Missed, Op, Record, Rendering, Subscription};
use crate::view::View;

/// Bookmarks come about this often.
const BOOKMARK_EVERY: Duration = Duration::from_mins(1);
/// A last bookmark comes this long before the stream ends by itself.
const LAST_BOOKMARK: Duration = Duration::from_secs(2);
/// Most watches at once.
const MAX_WATCHES: i64 = 10_000;
/// A client that lags and took nothing for this long is cut off.
const NEGLECT: Duration = Duration::from_secs(30);
/// Events rendered per step, so that one watcher does not hold a thread for long.
const STEP: usize = 256;
/// Frames are joined up to this size.
const FRAME: usize = 64 << 10;
/// The annotation that ends the initial part of a stream.
const INITIAL_END: &str = "k8s.io/initial-events-end";

/// Everything a running watch knows.
struct Watch {
    api: Arc<Api>,
    registry: Arc<Registry>,
    resource: Arc<Resource>,
    filter: Filter,
    form: Form,
    /// Tells its form from others, among the renderings of one event.
    tag: u64,
    changes: Subscription,
    /// Whether something may have happened since the last look.
    rung: bool,
    revision: u64,
    bookmarks: bool,
    columns_due: bool,
    deadline: Instant,
    /// Rings for the next bookmark, or at the deadline. Kept between events, so that a delivery costs
    /// no timer.
    alarm: Patient<tokio::time::Sleep>,
    queue: VecDeque<Bytes>,
    /// When the client was last handed something.
    handed: Instant,
    ended: bool,
    /// Events left before an injected fault ends the stream.
    remaining: Option<usize>,
    _count: Counted,
}

/// Counts a watch for as long as it lives.
struct Counted(Arc<Api>);

impl Counted {
    fn new(api: &Arc<Api>) -> ApiResult<Self> {
        if api.watches.fetch_add(1, Ordering::AcqRel) >= MAX_WATCHES {
            api.watches.fetch_sub(1, Ordering::AcqRel);
            return Err(
                ApiError::new(429, "TooManyRequests", "too many watches, please try again later")
                    .retry_after(1),
            );
        }
        Ok(Self(api.clone()))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        let watches: &AtomicI64 = &self.0.watches;
        watches.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Api {
    /// Begins a watch.
    pub async fn watch(
        self: &Arc<Self>,
        call: &Call,
        registry: &Arc<Registry>,
        resource: &Arc<Resource>,
    ) -> ApiResult<Answer> {
        if call.header(&http::header::UPGRADE).is_some() {
            return Err(ApiError::bad_request(
                "websocket watches are not served here; use a plain GET",
            ));
        }
        let form = Form::negotiate_stream(&call.headers, &call.query)?;
        let options = ListOptions::parse(&call.query, call.query.flag("watch"))?;
        let mut filter = Filter::parse(resource, &call.info.namespace, &options)?;
        if !call.info.name.is_empty() {
            name_only(&mut filter, &call.info.name)?;
        }
        let count = Counted::new(self)?;
        let only = only_key(resource, &filter);
        let asked = options.revision()?;
        let (remaining, expired) = self.faults.strike_watch(&call.user, &call.info);
        let now = Instant::now();
        let mut watch = Watch {
            api: self.clone(),
            registry: registry.clone(),
            resource: resource.clone(),
            filter,
            form,
            tag: form_tag(resource, form),
            changes: Subscription::new(&resource.table, only, self.config.watch_queue),
            rung: true,
            revision: 0,
            bookmarks: options.bookmarks,
            columns_due: true,
            deadline: now + timeout_of(&options),
            alarm: Patient::new(tokio::time::sleep_until(now)),
            queue: VecDeque::new(),
            handed: now,
            ended: options.timeout.is_some_and(|seconds| seconds < 0),
            remaining,
            _count: count,
        };
        watch.set_alarm();
        if expired {
            watch.fail(&too_old(asked.unwrap_or(0), self.store.revision()));
        }
        let initial = options.initial_events.unwrap_or(matches!(asked, None | Some(0)));
        if expired || watch.ended {
            // Nothing else follows.
        } else if initial {
            // By the time the wait is over the answer has begun, so a failure is an event of it.
            match self.wait_for(asked.unwrap_or(0)).await {
                Ok(()) => watch.begin_with_state(options.bookmarks).await,
                Err(error) => watch.fail(&error),
            }
        } else {
            // Without initial events a streaming list of "whatever" begins now.
            let from = match asked {
                None | Some(0) => self.store.revision(),
                Some(revision) => revision,
            };
            watch.begin_after(from).await;
        }
        // Boxed, because it is moved with every piece.
        let stream = futures::stream::unfold(Box::new(watch), |mut watch| async move {
            watch.next().await.map(|bytes| (bytes, watch))
        });
        Ok(Answer {
            code: 200,
            content_type: "application/json",
            body: Body::Stream(stream.boxed()),
            line: false,
            headers: Vec::new(),
        })
    }
}

impl Watch {
    fn view(&self) -> View<'_> {
        View {
            resource: &self.resource,
            registry: &self.registry,
            form: self.form,
            clock: &self.api.clock,
        }
    }

    /// The present state as ADDED events; `closing` ends it with an annotated bookmark.
    async fn begin_with_state(&mut self, closing: bool) {
        let table = &self.resource.table;
        let published = || self.api.store.revision();
        let snapshot = match self.changes.object() {
            Some(key) => table.snapshot_of(key, published),
            None => table.snapshot(self.filter.namespace.as_deref(), published),
        };
        self.revision = snapshot.revision;
        let items = match self.api.present_items(&self.resource, snapshot.items).await {
            Ok(items) => items,
            Err(error) => return self.fail(&error),
        };
        let mut frame = BytesMut::new();
        let mut columns = self.columns_due;
        let mut frames = Vec::new();
        let mut found = false;
        {
            let view = self.view();
            for (key, record) in &items {
                if !self.filter.wants(&view, key, record) {
                    continue;
                }
                if self.wants_lists() {
                    found = true;
                    break;
                }
                put_event(&mut frame, "ADDED", &view.shaped(record, columns));
                columns = false;
                if frame.len() >= FRAME {
                    frames.push(frame.split().freeze());
                }
            }
        }
        if found || (closing && self.wants_lists()) {
            self.ended = true;
            return;
        }
        self.columns_due = columns;
        if !frame.is_empty() {
            frames.push(frame.freeze());
        }
        self.queue.extend(frames);
        if closing {
            let bookmark = self.bookmark(true);
            self.queue.push_back(bookmark);
        }
    }

    async fn begin_after(&mut self, revision: u64) {
        self.revision = revision;
        match self.api.store.events_since(&self.resource.table, revision).await {
            Ok(events) => {
                let events = match self.api.present_events(&self.resource, events).await {
                    Ok(events) => events,
                    Err(error) => return self.fail(&error),
                };
                for event in &events {
                    self.offer(event);
                }
                if let Some(last) = events.last() {
                    self.revision = self.revision.max(last.revision);
                }
            }
            Err(gone) => self.fail(&too_old(revision, gone.oldest)),
        }
    }

    /// The next piece of the stream; `None` ends it.
    async fn next(&mut self) -> Option<Bytes> {
        // Between two calls the client (or its connection) was busy with what it had been handed.
        let now = Instant::now();
        let mut neglected = now.duration_since(self.handed) > NEGLECT;
        loop {
            if let Some(bytes) = self.joined() {
                self.handed = Instant::now();
                return Some(bytes);
            }
            // Where something always happens the alarm is never heard.
            if self.ended || now >= self.deadline || self.outdated() {
                return None;
            }
            if std::mem::take(&mut self.rung) {
                self.catch_up(std::mem::take(&mut neglected)).await;
                continue;
            }
            // The end of the server, or of the type, rings too, but only once.
            if self.type_is_gone() || self.api.stop.is_cancelled() {
                return None;
            }
            tokio::select! {
                biased;
                rings = self.changes.rung() => {
                    if !rings {
                        return None;
                    }
                    self.rung = true;
                }
                () = self.alarm.due(tokio::time::Sleep::is_elapsed) => {
                    if Instant::now() >= self.deadline {
                        return None;
                    }
                    self.push_bookmark();
                }
            }
        }
    }

    /// Everything queued, as one frame of reasonable size.
    fn joined(&mut self) -> Option<Bytes> {
        let first = self.queue.pop_front()?;
        let fits = |next: &Bytes| first.len() + next.len() <= FRAME;
        if !self.queue.front().is_some_and(fits) {
            return Some(first);
        }
        let mut frame = BytesMut::from(first);
        while let Some(next) = self.queue.pop_front_if(|next| frame.len() + next.len() <= FRAME) {
            frame.extend_from_slice(&next);
        }
        Some(frame.freeze())
    }

    async fn catch_up(&mut self, neglected: bool) {
        // What it missed waits anyway; only a client that stopped reading is given up.
        if neglected && self.changes.lag(self.revision) > self.api.config.watch_queue {
            self.cut_off();
            return;
        }
        match self.changes.next_events(self.revision, STEP) {
            Err(Missed) => self.cut_off(),
            Ok(events) => {
                let events = match self.api.present_events(&self.resource, events).await {
                    Ok(events) => events,
                    Err(error) => return self.fail(&error),
                };
                for event in &events {
                    self.offer(event);
                    self.revision = self.revision.max(event.revision);
                }
            }
        }
    }

    fn cut_off(&mut self) {
        self.api.metrics.watcher_dropped();
        self.ended = true;
    }

    /// Whether what is watched is defined differently now, in this version or another. Its events
    /// might be shown in a form that is no longer right, so the client has to come back.
    fn outdated(&self) -> bool {
        let Model::Custom(custom) = &self.resource.model else {
            return false;
        };
        let now = self.api.registry.load();
        let same = |other: &Resource| {
            other.served
                && other
                    .as_custom()
                    .is_some_and(|other| other.generation == custom.generation)
        };
        match now.get(
            &self.resource.group,
            &self.resource.version,
            &self.resource.plural,
        ) {
            Some(other) => !same(&other),
            None => now
                .any_version(&self.resource.group, &self.resource.plural)
                .is_some(),
        }
    }

    /// Whether the definition behind a custom type was removed.
    fn type_is_gone(&self) -> bool {
        let Model::Custom(custom) = &self.resource.model else {
            return false;
        };
        let plural = &custom.definition.names.plural;
        self.api
            .registry
            .load()
            .any_version(&self.resource.group, plural)
            .is_none()
    }

    /// Whether lists were asked for, which no event is: the first one ends the stream.
    fn wants_lists(&self) -> bool {
        matches!(self.form.shape, Shape::Metadata { list: true, .. })
    }

    /// Queues an event if the watcher is to see it.
    fn offer(&mut self, event: &Event) {
        let Some((kind, state)) = self.judge(event) else {
            return;
        };
        if self.wants_lists() {
            self.ended = true;
            return;
        }
        match &mut self.remaining {
            Some(0) => {
                self.ended = true;
                return;
            }
            Some(left) => *left -= 1,
            None => {}
        }
        let line = self.render(event, kind, &state);
        self.api.metrics.watch_event(line.len());
        self.queue.push_back(line);
        self.columns_due = false;
    }

    /// What the event means to this watcher: its type and the state it carries.
    fn judge(&self, event: &Event) -> Option<(&'static str, State)> {
        let view = self.view();
        let wanted = |record: &Record| self.filter.wants(&view, &event.key, record);
        let before = event.old.as_deref().is_some_and(&wanted);
        let after = event.op != Op::Deleted && wanted(&event.new);
        match (event.op, before, after) {
            (Op::Deleted, _, _) => wanted(&event.new).then_some(("DELETED", State::New)),
            (Op::Added, _, true) => Some(("ADDED", State::New)),
            (Op::Modified, true, true) => Some(("MODIFIED", State::New)),
            (Op::Modified, false, true) => {
                // Without the old state (it left the history) the object counts as known.
                let kind = if event.old.is_none() { "MODIFIED" } else { "ADDED" };
                Some((kind, State::New))
            }
            (Op::Modified, true, false) => Some(("DELETED", State::Old)),
            _ => None,
        }
    }

    /// The line for an event, shared with every watcher that wants the same form.
    fn render(&self, event: &Event, kind: &'static str, state: &State) -> Bytes {
        let table = matches!(self.form.shape, Shape::Table { .. });
        let cacheable = !table && !self.form.pretty;
        let tag = Rendering {
            form: self.tag,
            kind,
            old: matches!(state, State::Old),
        };
        if cacheable && let Some((_, line)) = event.rendered.lock().iter().find(|(t, _)| *t == tag) {
            return line.clone();
        }
        let view = self.view();
        let body = match state {
            State::New => view.shaped(&event.new, self.columns_due),
            State::Old => {
                let mut tree = event.old.as_ref().map(|old| view.tree(old)).unwrap_or_default();
                meta::set(&mut tree, "resourceVersion", json!(event.revision.to_string()));
                crate::store::serialize(&view.reshape(tree, self.columns_due)).into()
            }
        };
        let mut line = BytesMut::with_capacity(body.len() + 40);
        put_event(&mut line, kind, &body);
        let line = line.freeze();
        if cacheable {
            event.rendered.lock().push((tag, line.clone()));
        }
        line
    }

    fn push_bookmark(&mut self) {
        if self.wants_lists() {
            self.ended = true;
            return;
        }
        let line = self.bookmark(false);
        self.queue.push_back(line);
        self.set_alarm();
    }

    /// The next bookmark comes regularly, and once shortly before the stream ends by itself.
    fn set_alarm(&mut self) {
        let now = Instant::now();
        let last = self.deadline.checked_sub(LAST_BOOKMARK).unwrap_or(self.deadline);
        let next = if self.bookmarks && last > now {
            last.min(now + jittered(BOOKMARK_EVERY))
        } else {
            self.deadline
        };
        self.alarm.change(|alarm| alarm.reset(next));
    }

    fn bookmark(&mut self, initial_end: bool) -> Bytes {
        if !initial_end {
            // Everything published up to here has been offered, because nothing is queued.
            self.revision = self.revision.max(self.quiet_revision());
        }
        let object = self.marked(initial_end);
        let mut view = self.view();
        if let Shape::Table { include, .. } = &mut view.form.shape {
            // Whoever wants no objects in a table still needs to know where it stands.
            if *include == Include::None {
                *include = Include::Metadata;
            }
        }
        let object = view.reshape(object, self.columns_due);
        self.columns_due = false;
        let mut line = BytesMut::new();
        put_event(&mut line, "BOOKMARK", &crate::store::serialize(&object));
        line.freeze()
    }

    /// An object of the kind that says nothing but where the stream stands. Built-in kinds say what they always say.
    fn marked(&self, initial_end: bool) -> Value {
        let mut object = match self.resource.as_builtin() {
            Some(kind) => kind.blank(),
            None => json!({}),
        };
        object["kind"] = json!(&*self.resource.kind);
        object["apiVersion"] = json!(self.resource.api_version());
        meta::set(&mut object, "resourceVersion", json!(self.revision.to_string()));
        if ["Deployment", "ReplicaSet", "StatefulSet"]
            .iter()
            .any(|kind| self.resource.is("apps", kind))
        {
            object["spec"]["replicas"] = json!(0);
        }
        let mut annotations = serde_json::Map::new();
        if self.resource.is("apps", "DaemonSet") {
            annotations.insert("deprecated.daemonset.template.generation".into(), json!("0"));
        }
        if initial_end {
            annotations.insert(INITIAL_END.into(), json!("true"));
        }
        if !annotations.is_empty() {
            meta::set(&mut object, "annotations", Value::Object(annotations));
        }
        object
    }

    /// The newest revision up to which this type certainly had no further events.
    fn quiet_revision(&self) -> u64 {
        let published = self.api.store.revision();
        if self.changes.is_quiet(self.revision) {
            published
        } else {
            self.revision
        }
    }

    fn fail(&mut self, error: &ApiError) {
        let mut line = BytesMut::new();
        put_event(&mut line, "ERROR", &crate::store::serialize(&error.to_status()));
        self.queue.push_back(line.freeze());
        self.ended = true;
    }
}

enum State {
    New,
    Old,
}

/// The only object a filter lets through, when it names one completely.
fn only_key(resource: &Resource, filter: &Filter) -> Option<Key> {
    let namespace = match (&filter.namespace, resource.namespaced) {
        (Some(namespace), _) => namespace,
        (None, false) => "",
        (None, true) => return None,
    };
    filter.only_name().map(|name| Key::new(namespace, name))
}

/// Narrows a filter to the object that the old form `/watch/.../name` names. What selects by fields as well has to
/// name the same one.
fn name_only(filter: &mut Filter, name: &str) -> ApiResult<()> {
    if filter.fields.is_empty() {
        filter.fields.0.push(crate::selector::FieldTerm {
            field: "metadata.name".into(),
            value: name.to_owned(),
            equal: true,
        });
    }
    if filter.only_name() == Some(name) {
        Ok(())
    } else {
        Err(ApiError::bad_request(
            "fieldSelector metadata.name doesn't match requested name",
        ))
    }
}

/// Tells the form of a watch from others that the same events may be shown in.
fn form_tag(resource: &Resource, form: Form) -> u64 {
    use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
    BuildHasherDefault::<DefaultHasher>::default().hash_one((
        &resource.group,
        &resource.version,
        resource.schema_generation(),
        form.format,
        form.shape,
    ))
}

fn too_old(asked: u64, oldest: u64) -> ApiError {
    ApiError::expired(format!("too old resource version: {asked} ({oldest})"))
}

fn put_event(out: &mut BytesMut, kind: &str, object: &[u8]) {
    out.reserve(object.len() + 40);
    out.put_slice(b"{\"type\":\"");
    out.put_slice(kind.as_bytes());
    out.put_slice(b"\",\"object\":");
    out.put_slice(object);
    out.put_slice(b"}\n");
}

/// A duration shortened or lengthened by up to a tenth, so that streams do not move in step.
fn jittered(base: Duration) -> Duration {
    base.mul_f64(0.9 + 0.2 * random())
}

fn timeout_of(options: &ListOptions) -> Duration {
    match options.timeout {
        Some(seconds) if seconds > 0 => Duration::from_secs(seconds.unsigned_abs().min(7 * 24 * 3600)),
        _ => Duration::from_secs_f64(1_800.0 * (1.0 + random())),
    }
}

/// A number in [0, 1), good enough to spread load.
fn random() -> f64 {
    let id = uuid::Uuid::new_v4();
    f64::from(id.as_u128() as u32) / (f64::from(u32::MAX) + 1.0)
}
