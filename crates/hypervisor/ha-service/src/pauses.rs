// SPDX-License-Identifier: Apache-2.0
//! Pauses: no new fencing and no new evacuation in a scope, until a moment that must be given. They
//! are kept where every replica sees them: in the cluster among several, in the database alone. That moment is one of the
//! wall clock, which may jump: a pause that was seen before such a jump lasts as long as it was meant to last.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use cobaltcore_api::names::{HostName, ServerId};
use cobaltcore_ha_engine::{Domain, Input, Mono, Now, Pause as EnginePause, PauseScope};
use cobaltcore_ha_wire::rest::Pause;
use parking_lot::{Mutex, RwLock};
use rusqlite::params;
use tokio_util::sync::CancellationToken;

use crate::brain::BrainHandle;
use crate::clock::Clock;
use crate::directory::{BUILDING_BLOCK, ZONE};
use crate::kept::Kept;
use crate::leadership::pause as wait;
use crate::metrics::{Metrics, OfScope};
use crate::store::Store;

const EVERY: Duration = Duration::from_secs(3);
const WHAT: &str = "pauses";
/// Pauses that may be kept.
const MOST: usize = 1000;
/// As far may the clocks of two replicas be apart. What is over for one of them may be in force for another for so long.
const CLOCKS_DIFFER: Duration = Duration::from_hours(1);

/// What the time is.
type Time = Arc<dyn Fn() -> Now + Send + Sync>;

#[derive(Clone)]
enum Place {
    Database(Store),
    Cluster(Box<Kept<Vec<Pause>>>),
}

/// When pauses that were seen end by a clock that nobody sets. One whose end is changed is another pause.
#[derive(Default)]
struct Ends(HashMap<(String, jiff::Timestamp), Mono>);

impl Ends {
    /// Notes for how long pauses go on that were not seen before.
    fn note(&mut self, pauses: &[Pause], now: Now) {
        for pause in pauses {
            self.0
                .entry((pause.scope.clone(), pause.until))
                .or_insert_with(|| now.mono.after(between(now.wall, pause.until)));
        }
    }

    /// Forgets those that are kept no more.
    fn retain(&mut self, kept: &[Pause]) {
        self.0.retain(|(scope, until), _| {
            kept.iter()
                .any(|pause| pause.scope == *scope && pause.until == *until)
        });
    }

    /// For how long a pause has been over, by the clock that says less; nothing while it goes on by either.
    fn over(&self, pause: &Pause, now: Now) -> Option<Duration> {
        let by_wall = (pause.until <= now.wall).then(|| between(pause.until, now.wall))?;
        match self.0.get(&(pause.scope.clone(), pause.until)) {
            Some(end) => (*end <= now.mono).then(|| by_wall.min(now.mono.since(*end))),
            None => Some(by_wall),
        }
    }
}

/// The time between two moments; none, if they are in another order.
fn between(earlier: jiff::Timestamp, later: jiff::Timestamp) -> Duration {
    later.duration_since(earlier).try_into().unwrap_or_default()
}

/// All pauses. Cheap to clone; clones share.
#[derive(Clone)]
pub struct PauseBook {
    place: Place,
    time: Time,
    ends: Arc<Mutex<Ends>>,
    /// As last read; nothing before they were.
    known: Arc<RwLock<Option<Vec<Pause>>>>,
    /// One look at a time, so that none puts an older answer over a newer one.
    looking: Arc<tokio::sync::Mutex<()>>,
    brain: BrainHandle,
    metrics: Metrics,
}

/// Reads a scope.
///
/// ```
/// use cobaltcore_ha_service::pauses::scope;
/// assert!(scope("zone/a").is_some());
/// assert!(scope("vm/not-a-uuid").is_none());
/// ```
pub fn scope(text: &str) -> Option<PauseScope> {
    let label = |key: &str, value: &str| {
        let harmless = !value.is_empty() && value.len() <= 63;
        harmless.then(|| PauseScope::Domain(Domain(format!("{key}={value}"))))
    };
    match text.split_once('/') {
        None if text == "global" => Some(PauseScope::Global),
        Some(("zone", name)) => label(ZONE, name),
        Some(("bb", name)) => label(BUILDING_BLOCK, name),
        Some(("host", name)) => HostName::new(name).ok().map(PauseScope::Host),
        Some(("vm", name)) => ServerId::new(name).ok().map(PauseScope::Server),
        _ => None,
    }
}

impl PauseBook {
    /// In the database of this replica.
    pub fn in_database(store: Store, brain: BrainHandle, metrics: Metrics) -> Self {
        Self::new(Place::Database(store), brain, metrics)
    }

    /// In the cluster, where every replica sees them.
    pub fn in_cluster(
        client: kube::Client,
        namespace: &str,
        name: &str,
        brain: BrainHandle,
        metrics: Metrics,
    ) -> Self {
        let kept = Kept::new(client, namespace, name, WHAT);
        Self::new(Place::Cluster(Box::new(kept)), brain, metrics)
    }

    fn new(place: Place, brain: BrainHandle, metrics: Metrics) -> Self {
        let clock = Clock::new();
        Self {
            place,
            time: Arc::new(move || clock.now()),
            ends: Arc::default(),
            known: Arc::default(),
            looking: Arc::default(),
            brain,
            metrics,
        }
    }

    /// Those in force, as last read; none before they were.
    pub fn all(&self) -> Vec<Pause> {
        self.in_force().unwrap_or_default()
    }

    fn in_force(&self) -> Option<Vec<Pause>> {
        let known = self.known.read();
        let known = known.as_ref()?.iter();
        Some(known.filter(|pause| self.goes_on(pause)).cloned().collect())
    }

    fn goes_on(&self, pause: &Pause) -> bool {
        self.ends.lock().over(pause, (self.time)()).is_none()
    }

    /// The pause of this scope, as it is kept now.
    pub async fn of(&self, scope: &str) -> Result<Option<Pause>, String> {
        let all = self.read().await?;
        Ok(all
            .into_iter()
            .find(|pause| pause.scope == scope && self.goes_on(pause)))
    }

    /// Begins or renews a pause. In force when it returns.
    pub async fn put(&self, pause: Pause) -> Result<(), String> {
        self.edit(move |pauses| {
            pauses.retain(|other| other.scope != pause.scope);
            if pauses.len() >= MOST {
                return Err(format!(
                    "there are {MOST} pauses already, with those that just ended"
                ));
            }
            pauses.push(pause.clone());
            Ok(())
        })
        .await
    }

    /// Ends a pause; says whether there was one.
    pub async fn end(&self, scope: &str) -> Result<bool, String> {
        let there = self.of(scope).await?.is_some();
        if there {
            let scope = scope.to_owned();
            self.edit(move |pauses| {
                pauses.retain(|pause| pause.scope != scope);
                Ok(())
            })
            .await?;
        }
        Ok(there)
    }

    /// Tells the loop what is in force, until `stop`.
    pub async fn keep(self, stop: CancellationToken) {
        loop {
            if let Err(why) = self.refresh().await {
                // What was last known stays in force: losing a pause is worse than keeping it.
                tracing::warn!(
                    why,
                    "pauses cannot be read; those known stay in force, and nothing begins before they were read once"
                );
                self.tell().await;
            }
            if wait(&stop, EVERY).await {
                return;
            }
        }
    }

    async fn refresh(&self) -> Result<(), String> {
        let _turn = self.looking.lock().await;
        let found = self.read().await?;
        self.ends.lock().retain(&found);
        *self.known.write() = Some(found);
        self.tell().await;
        Ok(())
    }

    /// Nothing before they were read once: that there are none is something to be known, too.
    async fn tell(&self) {
        let Some(all) = self.in_force() else {
            return;
        };
        self.metrics.paused.clear();
        for pause in &all {
            let kind = pause.scope.split('/').next().unwrap_or_default().to_owned();
            self.metrics.paused.get_or_create(&OfScope { scope: kind }).inc();
        }
        let pauses = all
            .iter()
            .filter_map(|pause| {
                Some(EnginePause {
                    scope: scope(&pause.scope)?,
                    reason: pause.reason.clone(),
                })
            })
            .collect();
        self.brain.tell(Input::Pauses(pauses)).await;
    }

    async fn edit(
        &self,
        change: impl Fn(&mut Vec<Pause>) -> Result<(), String> + Send + 'static,
    ) -> Result<(), String> {
        match &self.place {
            Place::Database(store) => {
                let mut pauses = self.read().await?;
                self.drop_old(&mut pauses);
                change(&mut pauses)?;
                store
                    .write(move |transaction| {
                        transaction.execute("delete from pauses", [])?;
                        for pause in &pauses {
                            transaction.execute(
                                "insert into pauses values(?1, ?2, ?3, ?4)",
                                params![
                                    pause.scope,
                                    pause.reason,
                                    pause.actor,
                                    pause.until.as_millisecond()
                                ],
                            )?;
                        }
                        Ok(())
                    })
                    .await
                    .map_err(|error| error.to_string())?;
            }
            Place::Cluster(kept) => {
                kept.edit(|pauses| {
                    self.drop_old(pauses);
                    change(pauses)
                })
                .await?;
            }
        }
        self.refresh().await
    }

    /// Drops the pauses that have been over for so long that they are over for every replica.
    fn drop_old(&self, pauses: &mut Vec<Pause>) {
        let (ends, now) = (self.ends.lock(), (self.time)());
        pauses.retain(|pause| ends.over(pause, now).is_none_or(|past| past <= CLOCKS_DIFFER));
    }

    /// All that are kept, those that ended lately among them.
    async fn read(&self) -> Result<Vec<Pause>, String> {
        let mut found = match &self.place {
            Place::Database(store) => store
                .read(|connection| {
                    let mut all =
                        connection.prepare_cached("select scope, reason, actor, until from pauses")?;
                    all.query_map([], |row| {
                        Ok(Pause {
                            scope: row.get(0)?,
                            reason: row.get(1)?,
                            actor: row.get(2)?,
                            until: jiff::Timestamp::from_millisecond(row.get(3)?)
                                .unwrap_or(jiff::Timestamp::UNIX_EPOCH),
                        })
                    })?
                    .collect()
                })
                .await
                .map_err(|error| error.to_string())?,
            Place::Cluster(kept) => kept.read().await?,
        };
        self.ends.lock().note(&found, (self.time)());
        found.sort_by(|a: &Pause, b: &Pause| a.scope.cmp(&b.scope));
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use cobaltcore_apiserver::testkit::TestServer;
    use cobaltcore_apiserver::{Effect, Fault};
    use cobaltcore_kit::startup::Component;
    use cobaltcore_kit::telemetry::Telemetry;
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::api::{Api, Patch, PatchParams, PostParams};
    use serde_json::json;

    use super::*;
    use crate::brain;

    fn book(server: &TestServer) -> (PauseBook, brain::Ends) {
        let (brain, ends) = brain::channels();
        let metrics = Metrics::new(&Telemetry::new(&Component {
            name: "kvm-ha-service",
            version: "0",
            commit: "none",
        }));
        (
            PauseBook::in_cluster(server.client(), "default", "ha", brain, metrics),
            ends,
        )
    }

    /// One round of `keep`, and what the engine was told in it.
    async fn round(book: &PauseBook, ends: &mut brain::Ends) -> Option<Vec<EnginePause>> {
        while ends.told().is_some() {}
        let stop = CancellationToken::new();
        stop.cancel();
        book.clone().keep(stop).await;
        match ends.told() {
            Some(Input::Pauses(pauses)) => Some(pauses),
            _ => None,
        }
    }

    #[tokio::test]
    async fn who_could_not_read_the_pauses_does_not_say_that_there_are_none() {
        let server = TestServer::start().await;
        let maps: Api<ConfigMap> = Api::namespaced(server.client(), "default");
        let garbled = json!({"metadata": {"name": "ha-pauses"}, "data": {"pauses": "[{"}});
        let garbled = serde_json::from_value(garbled).unwrap();
        maps.create(&PostParams::default(), &garbled).await.unwrap();
        let (book, mut ends) = book(&server);
        assert_eq!(round(&book, &mut ends).await, None, "what is there is garbled");
        let forbidden = Effect::Refuse {
            code: 403,
            reason: "Forbidden",
            retry_after: None,
        };
        let fault = Fault::new(forbidden).resource("configmaps");
        server.faults().inject(fault.clone());
        assert_eq!(round(&book, &mut ends).await, None, "it may not be read");
        server.faults().clear();
        let until = jiff::Timestamp::now() + jiff::SignedDuration::from_hours(1);
        let pauses = json!([{"scope": "global", "reason": "work", "actor": "olga", "until": until}]);
        let written = json!({"data": {"pauses": pauses.to_string()}});
        maps.patch("ha-pauses", &PatchParams::default(), &Patch::Merge(&written))
            .await
            .unwrap();
        let told = round(&book, &mut ends).await.unwrap();
        assert_eq!(told.len(), 1, "{told:?}");
        server.faults().inject(fault);
        let still = round(&book, &mut ends).await;
        assert_eq!(still, Some(told), "those known stay in force");
    }

    #[tokio::test]
    async fn that_there_are_no_pauses_is_told_once_it_is_known() {
        let server = TestServer::start().await;
        let (book, mut ends) = book(&server);
        assert_eq!(round(&book, &mut ends).await, Some(Vec::new()));
    }

    /// The two clocks of a replica, which a test sets.
    #[derive(Clone)]
    struct Clocks(Arc<Mutex<Now>>);

    impl Clocks {
        fn of(book: &mut PauseBook) -> Self {
            let clocks = Self(Arc::new(Mutex::new(Clock::new().now())));
            let shown = clocks.clone();
            book.time = Arc::new(move || shown.now());
            clocks
        }

        fn now(&self) -> Now {
            *self.0.lock()
        }

        /// Time goes by.
        fn pass(&self, time: Duration) {
            let mut now = self.0.lock();
            *now = Now {
                mono: now.mono.after(time),
                wall: now.wall + time,
            };
        }

        /// Somebody sets the wall clock.
        fn jump(&self, ahead: Duration) {
            self.0.lock().wall += ahead;
        }
    }

    fn pause(scope: &str, until: jiff::Timestamp) -> Pause {
        Pause {
            scope: scope.to_owned(),
            reason: "work".to_owned(),
            actor: "olga".to_owned(),
            until,
        }
    }

    async fn in_force(book: &PauseBook, ends: &mut brain::Ends) -> usize {
        round(book, ends).await.unwrap().len()
    }

    const MINUTE: Duration = Duration::from_mins(1);

    #[tokio::test]
    async fn a_wall_clock_that_jumps_ends_no_pause_and_one_whose_end_is_changed_is_new() {
        let server = TestServer::start().await;
        let (mut book, mut ends) = book(&server);
        let clocks = Clocks::of(&mut book);
        let until = clocks.now().wall + 30 * MINUTE;
        book.put(pause("global", until)).await.unwrap();
        clocks.jump(60 * MINUTE);
        assert_eq!(
            in_force(&book, &mut ends).await,
            1,
            "nobody has worked for so long"
        );
        assert!(book.of("global").await.unwrap().is_some());
        clocks.pass(29 * MINUTE);
        assert_eq!(in_force(&book, &mut ends).await, 1);
        clocks.pass(2 * MINUTE);
        assert_eq!(in_force(&book, &mut ends).await, 0);
        assert!(book.of("global").await.unwrap().is_none());
        let until = clocks.now().wall + 10 * MINUTE;
        book.put(pause("global", until)).await.unwrap();
        clocks.pass(9 * MINUTE);
        assert_eq!(in_force(&book, &mut ends).await, 1);
        clocks.pass(MINUTE);
        assert_eq!(in_force(&book, &mut ends).await, 0);
    }

    #[tokio::test]
    async fn a_wall_clock_that_is_set_back_ends_no_pause_before_its_moment() {
        let server = TestServer::start().await;
        let (mut book, mut ends) = book(&server);
        let clocks = Clocks::of(&mut book);
        clocks.jump(60 * MINUTE);
        let until = clocks.now().wall + 30 * MINUTE;
        book.put(pause("global", until)).await.unwrap();
        let back = clocks.now().wall - 60 * MINUTE;
        clocks.0.lock().wall = back;
        clocks.pass(31 * MINUTE);
        assert_eq!(in_force(&book, &mut ends).await, 1);
        clocks.pass(60 * MINUTE);
        assert_eq!(in_force(&book, &mut ends).await, 0);
    }

    /// A replica that began after its clock had jumped cannot know for how long a pause goes on. It does not delete it for
    /// those who do.
    #[tokio::test]
    async fn whoever_writes_pauses_keeps_those_that_may_go_on_for_others() {
        let server = TestServer::start().await;
        let ((mut one, mut told), (mut other, _other_end)) = (book(&server), book(&server));
        let (right, wrong) = (Clocks::of(&mut one), Clocks::of(&mut other));
        let until = right.now().wall + 30 * MINUTE;
        one.put(pause("host/n1", until)).await.unwrap();
        wrong.jump(60 * MINUTE);
        let put = |book: &PauseBook, clocks: &Clocks| {
            let (book, until) = (book.clone(), clocks.now().wall + 600 * MINUTE);
            async move { book.put(pause("host/n2", until)).await.unwrap() }
        };
        put(&other, &wrong).await;
        assert_eq!(in_force(&one, &mut told).await, 2);
        assert!(other.end("host/n2").await.unwrap());
        assert_eq!(in_force(&one, &mut told).await, 1);
        let kept = async || one.read().await.unwrap().len();
        right.pass(60 * MINUTE);
        put(&one, &right).await;
        assert_eq!(kept().await, 2, "over for half an hour");
        right.pass(31 * MINUTE);
        put(&one, &right).await;
        assert_eq!(kept().await, 1, "over for everybody");
    }
}
