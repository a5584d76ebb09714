// SPDX-License-Identifier: Apache-2.0
//! Calls to systemd's manager. Starting a unit returns the job, whose end is told by a signal that is subscribed to
//! before the start, so that a quick job is not missed.

use std::num::NonZeroUsize;
use std::time::Duration;

use futures::StreamExt as _;
use zbus::message::Type;
use zbus::proxy::CacheProperties;
use zbus::{MatchRule, MessageStream, OwnedObjectPath};
use zbus_systemd::systemd1::{ManagerProxy, ServiceProxy, UnitProxy};

use super::error::BusError;
use super::unit::UnitState;

const SYSTEMD: &str = "org.freedesktop.systemd1";
const MANAGER: &str = "org.freedesktop.systemd1.Manager";
/// How jobs deal with others of the same unit.
const REPLACE: &str = "replace";
/// Signals that may wait; beyond that the reader is too slow to matter.
const QUEUE: Option<NonZeroUsize> = NonZeroUsize::new(256);

/// How a job ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JobResult {
    /// It did what it was for.
    Done,
    /// Anything else, in systemd's word: `failed`, `canceled`, `timeout`, `dependency`, `skipped`.
    Other(String),
}

impl From<&str> for JobResult {
    fn from(word: &str) -> Self {
        match word {
            "done" => Self::Done,
            other => Self::Other(other.to_owned()),
        }
    }
}

impl std::fmt::Display for JobResult {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Done => "done",
            Self::Other(word) => word,
        })
    }
}

/// The state of one unit in full.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UnitDetails {
    /// `loaded`, `not-found`, ...
    pub load: String,
    /// `active`, `activating`, ...
    pub active: String,
    /// `exited`, `running`, `dead`, ...
    pub sub: String,
    /// How the last run ended: `success`, `exit-code`, ...
    pub result: String,
    /// The id of the last run; empty when there was none or systemd forgot it.
    pub invocation: String,
}

/// Speaks to systemd's manager over one connection.
#[derive(Clone, Debug)]
pub struct Manager {
    connection: zbus::Connection,
    proxy: ManagerProxy<'static>,
}

impl Manager {
    /// Over `connection`.
    pub async fn new(connection: &zbus::Connection) -> Result<Self, BusError> {
        let built = ManagerProxy::builder(connection)
            .cache_properties(CacheProperties::No)
            .build();
        let proxy = built
            .await
            .map_err(|error| BusError::from_call("speaking to systemd", error))?;
        Ok(Self {
            connection: connection.clone(),
            proxy,
        })
    }

    /// Asks for signals. systemd sends none unless somebody asked.
    pub async fn subscribe(&self) -> Result<(), BusError> {
        match self.proxy.subscribe().await {
            Err(zbus::Error::MethodError(name, ..)) if name.as_str().ends_with("AlreadySubscribed") => Ok(()),
            answer => answer.map_err(|error| BusError::from_call("subscribing to systemd", error)),
        }
    }

    /// The states of `units` and where each can be watched, in their order.
    pub async fn states(&self, units: &[String]) -> Result<Vec<(UnitState, OwnedObjectPath)>, BusError> {
        let what = || format!("asking systemd for the states of {}", units.join(", "));
        let rows = self.proxy.list_units_by_names(units.to_vec()).await;
        let rows = rows.map_err(|error| BusError::from_call(what(), error))?;
        // A row carries the primary name, which differs from an alias that was asked for; the order does not.
        if rows.len() != units.len() {
            return Err(BusError::NoAnswer {
                what: what(),
                why: format!(
                    "{} units were answered, {} were asked for",
                    rows.len(),
                    units.len()
                ),
            });
        }
        Ok(rows
            .into_iter()
            .map(|row| {
                let state = UnitState {
                    load: row.2,
                    active: row.3,
                };
                (state, row.6)
            })
            .collect())
    }

    /// Everything about one unit. A unit that does not exist has the load state `not-found`.
    pub async fn details(&self, unit: &str) -> Result<UnitDetails, BusError> {
        let failed = |error| BusError::from_call(format!("asking systemd about {unit}"), error);
        let path = self.proxy.load_unit(unit.to_owned()).await.map_err(failed)?;
        let proxy = UnitProxy::builder(&self.connection)
            .path(path.clone())
            .cache_properties(CacheProperties::No)
            .build()
            .await
            .map_err(failed)?;
        let service = ServiceProxy::builder(&self.connection)
            .path(path)
            .cache_properties(CacheProperties::No)
            .build()
            .await
            .map_err(failed)?;
        let invocation = proxy.invocation_id().await.map_err(failed)?;
        Ok(UnitDetails {
            load: proxy.load_state().await.map_err(failed)?,
            active: proxy.active_state().await.map_err(failed)?,
            sub: proxy.sub_state().await.map_err(failed)?,
            result: service.result().await.map_err(failed)?,
            invocation: invocation.iter().map(|byte| format!("{byte:02x}")).collect(),
        })
    }

    /// Starts `unit`. The job's end can be awaited with [`Job::end`].
    pub async fn start(&self, unit: &str) -> Result<Job, BusError> {
        let call = self.proxy.start_unit(unit.to_owned(), REPLACE.to_owned());
        self.job(unit, "starting", call).await
    }

    /// Restarts `unit`, or starts it where it does not run.
    pub async fn restart(&self, unit: &str) -> Result<Job, BusError> {
        let call = self.proxy.restart_unit(unit.to_owned(), REPLACE.to_owned());
        self.job(unit, "restarting", call).await
    }

    /// Makes a call that begins a job; whoever wants to hear of its end has to listen before.
    async fn job(
        &self,
        unit: &str,
        doing: &str,
        call: impl Future<Output = zbus::Result<OwnedObjectPath>>,
    ) -> Result<Job, BusError> {
        self.subscribe().await?;
        let signals = self.signals("JobRemoved").await?;
        let path = call.await;
        let path = path.map_err(|error| BusError::from_call(format!("{doing} {unit}"), error))?;
        Ok(Job {
            unit: unit.to_owned(),
            path,
            signals,
        })
    }

    /// A signal of the manager, such as `JobRemoved`.
    pub async fn signals(&self, member: &'static str) -> Result<MessageStream, BusError> {
        let failed = |error| BusError::from_call(format!("listening for {member}"), error);
        let rule = MatchRule::builder()
            .msg_type(Type::Signal)
            .sender(SYSTEMD)
            .interface(MANAGER)
            .member(member)
            .build()
            .map_err(failed)?;
        MessageStream::for_match_rule(rule, &self.connection, QUEUE)
            .await
            .map_err(failed)
    }

    /// Changes of the unit at `path`.
    pub async fn changes(&self, path: &OwnedObjectPath) -> Result<MessageStream, BusError> {
        let failed = |error| BusError::from_call(format!("listening for changes of {path}"), error);
        let rule = MatchRule::builder()
            .msg_type(Type::Signal)
            .sender(SYSTEMD)
            .interface("org.freedesktop.DBus.Properties")
            .member("PropertiesChanged")
            .path(path.clone())
            .build()
            .map_err(failed)?;
        MessageStream::for_match_rule(rule, &self.connection, QUEUE)
            .await
            .map_err(failed)
    }

    /// Comings and goings of systemd itself.
    pub async fn owner_changes(&self) -> Result<MessageStream, BusError> {
        owner_changes(&self.connection, SYSTEMD).await
    }
}

/// Comings and goings of a service on the bus.
pub(crate) async fn owner_changes(
    connection: &zbus::Connection,
    service: &'static str,
) -> Result<MessageStream, BusError> {
    let failed = |error| BusError::from_call(format!("listening for restarts of {service}"), error);
    let rule = MatchRule::builder()
        .msg_type(Type::Signal)
        .sender("org.freedesktop.DBus")
        .interface("org.freedesktop.DBus")
        .member("NameOwnerChanged")
        .arg(0, service)
        .build()
        .map_err(failed)?;
    MessageStream::for_match_rule(rule, connection, QUEUE)
        .await
        .map_err(failed)
}

/// A job of systemd's.
pub struct Job {
    unit: String,
    path: OwnedObjectPath,
    signals: MessageStream,
}

impl std::fmt::Debug for Job {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Job({} of {})", self.path, self.unit)
    }
}

impl Job {
    /// How the job ended. Takes as long as the job does; losing the bus is an error that leaves the end open.
    pub async fn end(&mut self) -> Result<JobResult, BusError> {
        while let Some(signal) = self.signals.next().await {
            let removed = signal.and_then(|message| {
                let body = message.body();
                let (_id, path, _unit, result): (u32, OwnedObjectPath, String, String) =
                    body.deserialize()?;
                Ok((path, result))
            });
            match removed {
                Ok((path, result)) if path == self.path => return Ok(result.as_str().into()),
                Ok(_) => {}
                Err(error) => tracing::debug!(%error, "a JobRemoved signal that cannot be read"),
            }
        }
        Err(BusError::NoAnswer {
            what: format!("waiting for the job of {}", self.unit),
            why: "the system bus was lost".into(),
        })
    }

    /// Waits for a job that must end well, and within `limit`.
    pub async fn done_within(&mut self, limit: Duration) -> Result<(), BusError> {
        match tokio::time::timeout(limit, self.end()).await {
            Ok(Ok(JobResult::Done)) => Ok(()),
            Ok(Ok(JobResult::Other(result))) => Err(BusError::NoAnswer {
                what: self.unit.clone(),
                why: format!("ended with: {result}"),
            }),
            Ok(Err(error)) => Err(error),
            Err(_) => Err(BusError::timeout(
                format!("waiting for the job of {}", self.unit),
                limit,
            )),
        }
    }
}
