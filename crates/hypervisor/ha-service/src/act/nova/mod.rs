// SPDX-License-Identifier: Apache-2.0
//! What the engine does in Nova. Nova accepts a second evacuation of a guest and may run it twice,
//! so an evacuation is asked for once per intent of the engine, after another look at the guest and
//! its records, and an answer that got lost is told as unknown.

mod around;
mod list;
mod memory;

use std::sync::Arc;
use std::time::Duration;

use cobaltcore_api::names::{HostName, ServerId};
use cobaltcore_ha_engine::{
    Answer, Effect, IncidentId, MigrationFacts, MigrationId, Refusal, ServiceChange, Trouble, lock_reason,
};
use cobaltcore_ha_wire::bounds;
use cobaltcore_openstack::nova::{
    ComputeService, Evacuation, Migration, MigrationFilter, Nova, ServiceUpdate, VmState,
};
use cobaltcore_openstack::{Error, Kind, Microversion, Optional as _, Service, Session, UserId};

use self::around::{Known, REMEMBER};
use super::facts::{self, Wish};
use super::pace::{Lane, Pace};
use super::{Bounds, Outcome, named};
use crate::config::Config;
use crate::deps::Deps;
use crate::directory::Directory;
use crate::settings::InForce;

/// Nobody waits longer for a turn: the request itself takes the rest of its action's time.
const PATIENCE: Duration = Duration::from_secs(5);
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
    known: Arc<Known>,
}

impl Cloud {
    pub(super) fn new(session: Session, deps: &Deps) -> Self {
        let config = deps.in_force.get();
        Self {
            session,
            in_force: deps.in_force.clone(),
            directory: deps.directory.clone(),
            pace: Arc::new(Pace::new(config.openstack.rps)),
            known: Arc::default(),
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

    /// Waits until Nova may be asked to change something, and gives up if that takes too long: whoever is cut off while it
    /// waits could not say that nothing has left.
    async fn turn(&self, lane: Lane, bounds: Bounds<'_>) -> Result<Nova, Trouble> {
        let patience = bounds.left()?.min(PATIENCE);
        tokio::time::timeout(patience, self.pace.turn(lane))
            .await
            .map_err(|_| Trouble::NotStarted)?;
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
        let facts = self.facts(&found, wish, REMEMBER).await?;
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

/// Whether what was refused may be taken at an older microversion. Nova refuses so when it does not know how old its
/// computes are, for instance because all of a cell are forced down, and some releases garble what they say of it.
fn wants_older(error: &Error) -> bool {
    let words = error.message().unwrap_or_default();
    error.status() == Some(400) && !words.contains(STILL_IN_USE) && !never(error)
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

/// Whether Nova will refuse this guest whenever it is asked. It says so of a guest with a share as of a conflict, which no
/// other state of the guest would end.
fn never(error: &Error) -> bool {
    let words = error.message().unwrap_or_default();
    matches!(error.kind(), Kind::Refused | Kind::Conflict)
        && !words.contains(STILL_IN_USE)
        && NEVER.iter().any(|phrase| words.contains(phrase))
}

/// What a failure means to the engine. A refusal is only what Nova itself refused; everything that
/// may have had an effect is unknown.
fn trouble(error: &Error) -> Trouble {
    let words = error.message().unwrap_or_default();
    match error.kind() {
        Kind::NotFound if error.service() == Some(Service::Nova) => Trouble::Refused(Refusal::NotFound),
        Kind::Conflict | Kind::GenerationConflict => Trouble::Refused(Refusal::Conflict),
        Kind::Unauthorized | Kind::Forbidden => Trouble::Refused(Refusal::Unauthorized),
        Kind::Refused if words.contains(STILL_IN_USE) => Trouble::Refused(Refusal::StillInUse),
        Kind::Refused | Kind::TooOld | Kind::Nameless | Kind::NoEndpoint => Trouble::Refused(Refusal::Other),
        // What Keystone or Glance does not find says nothing of a guest.
        Kind::NotFound
        | Kind::RateLimited
        | Kind::Overloaded
        | Kind::Unreachable
        | Kind::Deadline
        | Kind::UnknownOutcome
        | Kind::BadAnswer => Trouble::Unknown,
    }
}
