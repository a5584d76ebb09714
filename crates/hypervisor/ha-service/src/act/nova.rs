// SPDX-License-Identifier: Apache-2.0
//! What the engine does in Nova. Nova accepts a second evacuation of a guest and may run it twice,
//! so an evacuation is asked for once per intent of the engine, after another look at the guest and
//! its records, and an answer that got lost is told as unknown.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use cobaltcore_api::names::{HostName, ServerId};
use cobaltcore_ha_engine::{
    Answer, Effect, IncidentId, MigrationFacts, MigrationId, Refusal, ServerFacts, ServiceChange, Trouble,
    lock_reason,
};
use cobaltcore_ha_wire::bounds;
use cobaltcore_openstack::nova::{
    ComputeService, Evacuation, GroupFilter, Migration, MigrationFilter, MigrationType, Nova, Server,
    ServerFilter, ServiceUpdate, VmState,
};
use cobaltcore_openstack::{Error, ImageId, Kind, Microversion, Optional as _, Session, UserId, glance};
use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::facts::{self, Around, Wish};
use super::pace::{Lane, Pace};
use super::{Bounds, Outcome, named};
use crate::config::{Config, EphemeralBackend};
use crate::deps::Deps;
use crate::directory::Directory;
use crate::disks::Guests;
use crate::settings::InForce;

/// What is known of images and groups is asked again after this.
const REMEMBER: Duration = Duration::from_mins(10);
/// Nothing that moves live has been under way for longer.
const LIVE_HISTORY: Duration = Duration::from_hours(7 * 24);
/// From this version on an evacuated guest ends stopped; before, it keeps its state.
const ENDS_STOPPED: Microversion = Microversion::new(2, 95);
const KEEPS_STATE: Microversion = Microversion::new(2, 94);
const USUAL: Microversion = Microversion::new(2, 90);

/// Nova and what is remembered of things that hardly change. Cheap to clone.
#[derive(Clone)]
pub(super) struct Cloud {
    session: Session,
    in_force: InForce,
    directory: Directory,
    pace: Arc<Pace>,
    images: Shared<HashMap<ImageId, Remembered<Option<Arc<glance::Image>>>>>,
    groups: Shared<Option<Remembered<Arc<Groups>>>>,
    aggregates: Shared<Option<Remembered<Arc<Aggregates>>>>,
}

type Shared<T> = Arc<Mutex<T>>;
/// Names of groups whose members must not share a host, by id.
type Groups = HashMap<String, String>;
/// The metadata of aggregates, by Nova's name of the host.
type Aggregates = HashMap<String, Vec<BTreeMap<String, String>>>;

struct Remembered<T> {
    since: Instant,
    what: T,
}

impl<T: Clone> Remembered<T> {
    fn new(what: T) -> Self {
        Self {
            since: Instant::now(),
            what,
        }
    }

    fn fresh(&self) -> Option<T> {
        (self.since.elapsed() < REMEMBER).then(|| self.what.clone())
    }
}

impl Cloud {
    pub(super) fn new(session: Session, deps: &Deps) -> Self {
        let config = deps.in_force.get();
        Self {
            session,
            in_force: deps.in_force.clone(),
            directory: deps.directory.clone(),
            pace: Arc::new(Pace::new(config.openstack.rps)),
            images: Arc::default(),
            groups: Arc::default(),
            aggregates: Arc::default(),
        }
    }

    /// Takes what is kept of a configuration from another.
    pub(super) fn change(&self, config: &Config) {
        self.pace.limit(config.openstack.rps);
    }

    fn nova(&self) -> Nova {
        self.session
            .nova()
            .within(self.in_force.get().openstack.timeout.0)
    }

    /// Nova for one change. The session may wait for a token, for its turn and between tries: none of that, and no answer,
    /// lasts longer than the change may take to leave.
    fn changing(&self, bounds: Bounds<'_>) -> Result<Nova, Trouble> {
        let timeout = self.in_force.get().openstack.timeout.0;
        Ok(self.session.nova().within(timeout.min(bounds.left()?)))
    }

    pub(super) async fn carry_out(
        &self,
        effect: &Effect,
        incident: Option<&IncidentId>,
        bounds: Bounds<'_>,
    ) -> Outcome {
        let result = match effect {
            Effect::ReadService { host } => self.read_service(host).await,
            Effect::UpdateService { host, change } => {
                self.update_service(host, *change, incident, bounds).await
            }
            Effect::ListServers { host } => self.list_servers(host).await,
            Effect::ReadServer { server } => self.read_server(server).await,
            Effect::Evacuate { server, from, known } => self.evacuate(server, from, known, bounds).await,
            Effect::ResetState { server } => {
                let nova = self.turn(Lane::Usual, bounds).await?;
                done(nova.reset_state(&id(server), &VmState::Error).await)
            }
            Effect::Lock { server } => {
                let nova = self.turn(Lane::Usual, bounds).await?;
                let reason = incident.map(lock_reason).unwrap_or_default();
                done(nova.lock(&id(server), &reason).await)
            }
            Effect::Unlock { server } => {
                let nova = self.turn(Lane::Usual, bounds).await?;
                done(nova.unlock(&id(server)).await)
            }
            Effect::Start { server } => {
                let nova = self.turn(Lane::Usual, bounds).await?;
                done(nova.start(&id(server)).await)
            }
            Effect::Stop { server } => {
                let nova = self.turn(Lane::Usual, bounds).await?;
                done(nova.stop(&id(server)).await)
            }
            Effect::RebootHard { server } => {
                let nova = self.turn(Lane::Usual, bounds).await?;
                done(nova.hard_reboot(&id(server)).await)
            }
            // Everything else is no matter of Nova's.
            _ => return Err(Trouble::NotStarted),
        };
        result.map_err(|failure| self.judge(effect, failure))
    }

    /// Waits until Nova may be asked to change something, and gives up if that takes too long.
    async fn turn(&self, lane: Lane, bounds: Bounds<'_>) -> Result<Nova, Trouble> {
        self.pace.turn(lane).await;
        self.changing(bounds)
    }

    fn judge(&self, effect: &Effect, failure: Failure) -> Trouble {
        match failure {
            Failure::Trouble(trouble) => trouble,
            Failure::Nova(error) => {
                let overloaded = matches!(
                    error.kind(),
                    Kind::RateLimited | Kind::Overloaded | Kind::Deadline | Kind::UnknownOutcome
                );
                if overloaded {
                    self.pace.slow_down();
                }
                let trouble = trouble(&error);
                tracing::warn!(?effect, %error, ?trouble, "Nova did not do what was asked");
                trouble
            }
        }
    }

    // --- compute services

    /// What Nova calls a host. Under another name it has no guests, so while Nova's name is not known nothing is asked.
    fn nova_host(&self, host: &HostName) -> Result<String, Failure> {
        match self.directory.get(host) {
            Some(entry) if entry.ambiguous => Err(Failure::Trouble(Trouble::Refused(Refusal::Other))),
            found => found
                .and_then(|entry| entry.nova_host.clone())
                .ok_or(Failure::Trouble(Trouble::NotStarted)),
        }
    }

    /// Our name of a host of Nova's.
    fn host_of(&self, nova_host: &str) -> Option<HostName> {
        let known = self.directory.by_nova_host(nova_host);
        known.or_else(|| HostName::new(nova_host.to_ascii_lowercase()).ok())
    }

    async fn service(&self, host: &HostName) -> Result<ComputeService, Failure> {
        let found = self.nova().compute_service(&self.nova_host(host)?).await?;
        found.ok_or(Failure::Trouble(Trouble::Refused(Refusal::NotFound)))
    }

    async fn read_service(&self, host: &HostName) -> Result<Answer, Failure> {
        let service = self.service(host).await?;
        let facts = facts::service(&service).ok_or(Failure::Trouble(Trouble::Unknown))?;
        Ok(Answer::Service(facts))
    }

    async fn update_service(
        &self,
        host: &HostName,
        change: ServiceChange,
        incident: Option<&IncidentId>,
        bounds: Bounds<'_>,
    ) -> Result<Answer, Failure> {
        let service = self.service(host).await?;
        if service.id.as_str().is_empty() {
            return Err(Failure::Trouble(Trouble::Unknown));
        }
        let reason = format!(
            "Hypervisor CRD: spec.maintenance=ha; incident {}",
            named(incident)
        );
        let update = match change {
            ServiceChange::Disable => ServiceUpdate::disable(reason),
            // In one call: disabling alone makes Nova call the dead host and wait for a minute.
            ServiceChange::ForceDown => ServiceUpdate::disable(reason).forced_down(true),
            ServiceChange::Enable => ServiceUpdate::enable().forced_down(false),
            ServiceChange::EnableSpare => ServiceUpdate::enable(),
        };
        self.changing(bounds)?
            .update_service(&service.id, &update)
            .await?;
        Ok(Answer::Done)
    }

    // --- servers

    /// All guests of a host and the records of their migrations. What is remembered of images, groups and aggregates is
    /// read anew: a plan is made of this.
    async fn list_servers(&self, host: &HostName) -> Result<Answer, Failure> {
        let nova_host = self.nova_host(host)?;
        self.images.lock().clear();
        *self.groups.lock() = None;
        *self.aggregates.lock() = None;
        let filter = ServerFilter::on_host(nova_host.as_str());
        let listed = self.nova().servers(&filter).await?;
        let mut complete = true;
        let mut servers = Vec::with_capacity(listed.len());
        for server in &listed {
            if let Some(facts) = self.facts(server, None).await? {
                servers.push(facts);
            } else {
                complete = false;
                tracing::warn!(%host, server = %server.id, status = ?server.status, "Nova does not say enough about a server");
            }
        }
        let evacuations = MigrationFilter {
            source: Some(nova_host.clone()),
            migration_type: Some(MigrationType::Evacuation),
            ..MigrationFilter::default()
        };
        let recent = MigrationFilter {
            host: Some(nova_host),
            changes_since: Timestamp::now().checked_sub(LIVE_HISTORY).ok(),
            ..MigrationFilter::default()
        };
        let mut records = self.nova().migrations(&evacuations).await?;
        records.extend(self.nova().migrations(&recent).await?);
        let mut migrations: BTreeMap<MigrationId, MigrationFacts> = BTreeMap::new();
        for facts in records.iter().filter_map(|record| self.migration(record)) {
            migrations.insert(facts.id, facts);
        }
        // Nova leaves the guests of a cell that is down out of a list that is asked for by host, and says nothing of it;
        // their compute service it shows without a state.
        if facts::service(&self.service(host).await?).is_none() {
            tracing::warn!(%host, "Nova does not know the state of its compute service, so its list of guests proves nothing");
            complete = false;
        }
        Ok(Answer::Servers {
            servers,
            migrations: migrations.into_values().collect(),
            complete,
        })
    }

    fn migration(&self, record: &Migration) -> Option<MigrationFacts> {
        facts::migration(record, |nova_host| self.host_of(nova_host))
    }

    async fn migrations_of(&self, server: &ServerId) -> Result<Vec<MigrationFacts>, Failure> {
        let filter = MigrationFilter {
            server: Some(id(server)),
            ..MigrationFilter::default()
        };
        let records = self.nova().migrations(&filter).await?;
        Ok(records
            .iter()
            .filter_map(|record| self.migration(record))
            .collect())
    }

    async fn read_server(&self, server: &ServerId) -> Result<Answer, Failure> {
        // Records first: one that is made in between belongs to a server that was read later.
        let migrations = self.migrations_of(server).await?;
        let Some(found) = self.nova().server(&id(server)).await.optional()? else {
            return Ok(Answer::Server {
                server: None,
                migrations,
            });
        };
        // What its owner wants is of interest once nothing is under way any more. A record that somebody forgot to close
        // says nothing about that.
        let wish = if found.task_state.is_none() {
            self.by_owner(server).await?
        } else {
            None
        };
        let facts = self.facts(&found, wish).await?;
        let facts = facts.ok_or(Failure::Trouble(Trouble::Unknown))?;
        Ok(Answer::Server {
            server: Some(facts),
            migrations,
        })
    }

    async fn by_owner(&self, server: &ServerId) -> Result<Option<Wish>, Failure> {
        let us = UserId::from(self.session.identity().await?.user.id.as_str());
        let history = self.nova().history(&id(server)).await.optional()?;
        Ok(facts::by_owner(&history.unwrap_or_default(), &us))
    }

    /// A server with what its image, aggregates and groups say of it.
    async fn facts(&self, server: &Server, wish: Option<Wish>) -> Result<Option<ServerFacts>, Failure> {
        let image = match &server.image {
            Some(image) => self.image(image).await?,
            None => None,
        };
        let aggregates = self
            .aggregates_of(server.host.as_deref().unwrap_or_default())
            .await?;
        let anti_affinity = match server.server_groups.first() {
            Some(_) => {
                let hard = self.anti_affinity().await?;
                server
                    .server_groups
                    .iter()
                    .find(|group| hard.contains_key(group.as_str()))
            }
            None => None,
        };
        let host = server.host.as_deref().and_then(|host| self.host_of(host));
        let config = self.in_force.get();
        let listed = |guests: &Guests| {
            let (Some(host), Ok(id)) = (&host, ServerId::new(server.id.as_str())) else {
                return false;
            };
            guests.has(host, &id)
        };
        let around = Around {
            in_ceph: listed(&self.directory.in_ceph),
            outside_ceph: listed(&self.directory.outside_ceph),
            backend: self.backend(host.as_ref(), &config),
            image: image.as_deref(),
            aggregates: &aggregates,
            anti_affinity: anti_affinity.map(ToString::to_string),
            wish,
        };
        Ok(facts::server(server, host, &around, &config.recovery))
    }

    /// Where the disks are that are made of images.
    fn backend(&self, host: Option<&HostName>, config: &Config) -> EphemeralBackend {
        let Some(host) = host else {
            return config.recovery.ephemeral_backend;
        };
        let entry = self.directory.get(host).unwrap_or_default();
        config
            .recovery
            .backend_of(host, entry.building_block(), entry.zone())
    }

    /// An image that is gone says nothing; a Glance that does not answer is no such image.
    async fn image(&self, id: &ImageId) -> Result<Option<Arc<glance::Image>>, Failure> {
        if let Some(known) = self.images.lock().get(id).and_then(Remembered::fresh) {
            return Ok(known);
        }
        let asked = self
            .session
            .within(self.in_force.get().openstack.timeout.0)
            .glance();
        let found = match asked.image(id).await.optional() {
            Err(error) if error.kind() == Kind::NoEndpoint => None,
            found => found?.map(Arc::new),
        };
        let mut images = self.images.lock();
        images.retain(|_, known| known.fresh().is_some());
        images.insert(id.clone(), Remembered::new(found.clone()));
        Ok(found)
    }

    async fn aggregates_of(&self, nova_host: &str) -> Result<Vec<BTreeMap<String, String>>, Failure> {
        let known = self.aggregates.lock().as_ref().and_then(Remembered::fresh);
        let all = if let Some(known) = known {
            known
        } else {
            let mut by_host: Aggregates = HashMap::new();
            for aggregate in self.nova().aggregates().await? {
                for host in aggregate.hosts {
                    by_host.entry(host).or_default().push(aggregate.metadata.clone());
                }
            }
            let all = Arc::new(by_host);
            *self.aggregates.lock() = Some(Remembered::new(Arc::clone(&all)));
            all
        };
        Ok(all.get(nova_host).cloned().unwrap_or_default())
    }

    /// Groups whose members must not share a host, by id.
    async fn anti_affinity(&self) -> Result<Arc<Groups>, Failure> {
        if let Some(known) = self.groups.lock().as_ref().and_then(Remembered::fresh) {
            return Ok(known);
        }
        let groups = self.nova().server_groups(GroupFilter::AllProjects).await?;
        let hard = groups.into_iter().filter(|group| group.policy == "anti-affinity");
        let found = Arc::new(
            hard.map(|group| (group.id.to_string(), group.name))
                .collect::<HashMap<_, _>>(),
        );
        *self.groups.lock() = Some(Remembered::new(Arc::clone(&found)));
        Ok(found)
    }

    // --- evacuation

    /// Asks Nova to make the guest again elsewhere. Looked at once more right before: what was
    /// moved, deleted or asked for by somebody else meanwhile is left alone.
    async fn evacuate(
        &self,
        server: &ServerId,
        from: &HostName,
        known: &[MigrationId],
        bounds: Bounds<'_>,
    ) -> Result<Answer, Failure> {
        self.turn(Lane::Evacuation, bounds).await?;
        let nova_host = self.nova_host(from)?;
        let found = self.nova().server(&id(server)).await?;
        if found.host.as_deref() != Some(nova_host.as_str())
            || found.task_state.as_deref() == Some("deleting")
        {
            return Err(Failure::Trouble(Trouble::NotStarted));
        }
        let records = self.migrations_of(server).await?;
        if records.iter().any(|record| !known.contains(&record.id)) {
            tracing::warn!(%server, "somebody else moves the guest; nothing is asked for");
            return Err(Failure::Trouble(Trouble::NotStarted));
        }
        // Checked with the configuration.
        let wanted = microversion(&self.in_force.get().openstack.evacuate_microversion).unwrap_or(USUAL);
        let mut asked = ask(&self.changing(bounds)?, server, wanted).await;
        if let Err(error) = &asked
            && wanted >= ENDS_STOPPED
            && wants_older(error)
        {
            // Refused as such, so nothing was done: older clouds want it said differently.
            asked = ask(&self.changing(bounds)?, server, KEEPS_STATE).await;
        }
        match asked {
            Err(error) if never(&error) => {
                tracing::warn!(%server, %error, "Nova can never move this guest");
                let said = bounds::clip(error.message().unwrap_or_default(), LONGEST_SAID);
                Ok(Answer::Unsupported(said.to_owned()))
            }
            asked => done(asked),
        }
    }
}

async fn ask(nova: &Nova, server: &ServerId, version: Microversion) -> Result<(), Error> {
    let evacuation = Evacuation {
        host: None,
        version: Some(version),
    };
    nova.evacuate(&id(server), &evacuation).await
}

/// Why there is no answer.
enum Failure {
    /// Known without a word of Nova's.
    Trouble(Trouble),
    /// In Nova's words.
    Nova(Error),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Nova(error)
    }
}

impl From<Trouble> for Failure {
    fn from(trouble: Trouble) -> Self {
        Self::Trouble(trouble)
    }
}

fn id(server: &ServerId) -> cobaltcore_openstack::ServerId {
    cobaltcore_openstack::ServerId::from(server.as_str())
}

fn done(result: Result<(), Error>) -> Result<Answer, Failure> {
    result.map(|()| Answer::Done).map_err(Failure::Nova)
}

pub(crate) fn microversion(text: &str) -> Option<Microversion> {
    let (major, minor) = text.split_once('.')?;
    Some(Microversion::new(major.parse().ok()?, minor.parse().ok()?))
}

/// Nova does not know how old its computes are, for instance because all of a cell are forced down.
fn wants_older(error: &Error) -> bool {
    let words = error.message().unwrap_or_default();
    error.kind() == Kind::Refused
        && (words.contains("older microversion") || words.contains("microversion 2.95"))
}

/// How Nova says that it believes a compute service to be up.
const STILL_IN_USE: &str = "still in use";
/// Bytes of Nova's words that are kept in the journal.
const LONGEST_SAID: usize = 512;
/// Phrases by which Nova says that a guest can never be evacuated.
const NEVER: [&str; 5] = [
    "not supported",
    "unsupported",
    "vTPM",
    "cannot be evacuated",
    "not support",
];

/// Whether Nova will refuse this guest whenever it is asked.
fn never(error: &Error) -> bool {
    let words = error.message().unwrap_or_default();
    error.kind() == Kind::Refused
        && !words.contains(STILL_IN_USE)
        && NEVER.iter().any(|phrase| words.contains(phrase))
}

/// What a failure means to the engine. A refusal is only what Nova itself refused; everything that
/// may have had an effect is unknown.
fn trouble(error: &Error) -> Trouble {
    let words = error.message().unwrap_or_default();
    match error.kind() {
        Kind::NotFound => Trouble::Refused(Refusal::NotFound),
        Kind::Conflict | Kind::GenerationConflict => Trouble::Refused(Refusal::Conflict),
        Kind::Unauthorized | Kind::Forbidden => Trouble::Refused(Refusal::Unauthorized),
        Kind::Refused if words.contains(STILL_IN_USE) => Trouble::Refused(Refusal::StillInUse),
        Kind::Refused | Kind::TooOld | Kind::Nameless | Kind::NoEndpoint => Trouble::Refused(Refusal::Other),
        Kind::RateLimited
        | Kind::Overloaded
        | Kind::Unreachable
        | Kind::Deadline
        | Kind::UnknownOutcome
        | Kind::BadAnswer => Trouble::Unknown,
    }
}
