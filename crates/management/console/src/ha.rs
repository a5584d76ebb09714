// SPDX-License-Identifier: Apache-2.0
//! What the HA service knows: incidents, and pauses of recovery. One follower asks it for everybody, once a second for
//! the list and more closely for what is open or looked at; decisions go back the same way. Who may see and decide is
//! the business of [`crate::session`]; whether a decision is allowed now is the service's.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use cobaltcore_ha_wire::Problem;
use cobaltcore_ha_wire::rest::{
    self, DecisionRequest, IncidentDetail, IncidentSummary, Page, Pause, PauseRequest,
};
use http::Method;
use jiff::Timestamp;
use parking_lot::Mutex;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::error::Error;
use crate::fleet::Fleet;

/// How often the list is asked for.
const LOOK: Duration = Duration::from_secs(1);
/// What happens next can change without a record of it.
const LOOK_CLOSER: Duration = Duration::from_secs(3);
/// Somebody who looks says so again before this is over.
const INTEREST: Duration = Duration::from_secs(45);
const DEADLINE: Duration = Duration::from_secs(10);
/// Incidents on the page, and details that are kept.
const MOST: usize = 500;
const MOST_ANSWER: usize = 16 << 20;

/// Where the HA service is.
#[derive(Clone)]
pub struct Service {
    /// Its address, such as `https://ha-service:8443`.
    pub url: String,
    /// The bearer token of a viewer, or of an operator if people may decide here.
    pub token: String,
    /// Certificates it may show, in PEM; those of the system if empty.
    pub authorities: Vec<u8>,
}

impl fmt::Debug for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Service")
            .field("url", &self.url)
            .finish_non_exhaustive()
    }
}

/// What is known of incidents at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Incidents {
    /// Whether there is a service to ask.
    pub configured: bool,
    /// Whether a list was seen.
    pub complete: bool,
    /// Since when it does not answer, and what it said last.
    pub trouble: Option<(Timestamp, String)>,
    /// Incidents, those that are open and the newest first.
    pub list: Vec<Arc<IncidentSummary>>,
    /// Everything about those that are open or looked at.
    pub details: BTreeMap<String, Arc<IncidentDetail>>,
    /// Pauses in force.
    pub pauses: Vec<Pause>,
}

impl Incidents {
    /// The incidents of a host, in the order of the list.
    pub fn of_host(&self, host: &str) -> impl Iterator<Item = &Arc<IncidentSummary>> {
        self.list
            .iter()
            .filter(move |incident| incident.host.as_str() == host)
    }
}

/// Speaks to the HA service for everybody.
#[derive(Clone, Debug)]
pub(crate) struct Ha(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    service: Service,
    http: reqwest::Client,
    fleet: Fleet,
    looked_at: Mutex<HashMap<String, Instant>>,
    fetched: Mutex<HashMap<String, Instant>>,
}

impl Ha {
    /// Prepares the connection; nothing is asked yet.
    pub(crate) fn new(service: Service, fleet: Fleet) -> Result<Self, Error> {
        let unusable =
            |error: reqwest::Error| Error::Config(format!("the HA service cannot be reached: {error}"));
        let mut builder = reqwest::Client::builder()
            .timeout(DEADLINE)
            .redirect(reqwest::redirect::Policy::none());
        if !service.authorities.is_empty() {
            let authorities =
                reqwest::Certificate::from_pem_bundle(&service.authorities).map_err(unusable)?;
            builder = builder.tls_certs_only(authorities);
        }
        let http = builder.build().map_err(unusable)?;
        fleet.set_incidents(|incidents| incidents.configured = true);
        Ok(Self(Arc::new(Inner {
            service,
            http,
            fleet,
            looked_at: Mutex::default(),
            fetched: Mutex::default(),
        })))
    }

    /// Keeps what is known current until `stop`.
    pub(crate) fn follow(&self, tasks: &TaskTracker, stop: &CancellationToken) {
        let (ha, stop) = (self.clone(), stop.clone());
        tasks.spawn(async move {
            loop {
                tokio::select! {
                    () = stop.cancelled() => return,
                    () = ha.look() => {}
                }
                tokio::select! {
                    () = stop.cancelled() => return,
                    () = tokio::time::sleep(LOOK) => {}
                }
            }
        });
    }

    /// Somebody wants to see this incident: it is asked for now if nothing is known of it, and followed for a while.
    pub(crate) async fn look_at(&self, id: &str) -> Result<(), Error> {
        {
            let mut looked_at = self.0.looked_at.lock();
            looked_at.retain(|_, at| at.elapsed() < INTEREST);
            if looked_at.len() < MOST {
                looked_at.insert(id.to_owned(), Instant::now());
            }
        }
        if self.0.fleet.known().incidents.details.contains_key(id) {
            return Ok(());
        }
        self.fetch(id).await
    }

    async fn look(&self) {
        match self.lists().await {
            Ok((list, pauses)) => {
                self.0.fleet.set_incidents(|incidents| {
                    incidents.complete = true;
                    incidents.trouble = None;
                    incidents.list = list;
                    incidents.pauses = pauses;
                });
                for id in self.due() {
                    if let Err(error) = self.fetch(&id).await {
                        tracing::debug!(%error, id, "an incident cannot be read");
                    }
                }
            }
            Err(error) => self.0.fleet.set_incidents(|incidents| {
                if incidents.trouble.is_none() {
                    tracing::warn!(%error, "the HA service does not answer and is asked again");
                    incidents.trouble = Some((Timestamp::now(), error.to_string()));
                }
            }),
        }
    }

    async fn lists(&self) -> Result<(Vec<Arc<IncidentSummary>>, Vec<Pause>), Error> {
        let incidents: Page<IncidentSummary> = self
            .get(
                "list incidents",
                &format!("{}?limit={MOST}", rest::path::INCIDENTS),
            )
            .await?;
        let pauses: Page<Pause> = self.get("list pauses", rest::path::PAUSES).await?;
        let mut list: Vec<_> = incidents.items.into_iter().map(Arc::new).collect();
        list.sort_by_key(|incident| (!incident.open, std::cmp::Reverse(incident.opened_at)));
        Ok((list, pauses.items))
    }

    /// The incidents whose details are old.
    fn due(&self) -> Vec<String> {
        let known = self.0.fleet.known();
        let looked_at = self.0.looked_at.lock();
        let fetched = self.0.fetched.lock();
        let wanted = |incident: &&Arc<IncidentSummary>| {
            incident.open
                || looked_at
                    .get(&incident.id)
                    .is_some_and(|at| at.elapsed() < INTEREST)
        };
        let old = |incident: &&Arc<IncidentSummary>| {
            let newest = known
                .incidents
                .details
                .get(&incident.id)
                .is_some_and(|detail| detail.summary.updated_at == incident.updated_at);
            let fresh = fetched
                .get(&incident.id)
                .is_some_and(|at| at.elapsed() < LOOK_CLOSER);
            !(newest && (fresh || !incident.open))
        };
        let list = known.incidents.list.iter();
        list.filter(wanted)
            .filter(old)
            .map(|incident| incident.id.clone())
            .collect()
    }

    async fn fetch(&self, id: &str) -> Result<(), Error> {
        let detail: IncidentDetail = self.get("read the incident", &rest::path::incident(id)).await?;
        self.0.fetched.lock().insert(id.to_owned(), Instant::now());
        let looked_at: Vec<String> = self.0.looked_at.lock().keys().cloned().collect();
        self.0.fleet.set_incidents(|incidents| {
            let open: Vec<&str> = incidents
                .list
                .iter()
                .filter(|incident| incident.open)
                .map(|incident| incident.id.as_str())
                .collect();
            incidents
                .details
                .retain(|known, _| open.contains(&known.as_str()) || looked_at.contains(known));
            incidents.details.insert(id.to_owned(), Arc::new(detail));
        });
        let known = self.0.fleet.known();
        self.0
            .fetched
            .lock()
            .retain(|id, _| known.incidents.details.contains_key(id));
        Ok(())
    }

    /// Takes a person's decision to the service. Its journal names them by the reason.
    pub(crate) async fn decide(
        &self,
        id: &str,
        decision: &str,
        user: &str,
        reason: &str,
        confirm: &str,
    ) -> Result<(), Error> {
        let request = DecisionRequest {
            reason: signed(reason, user),
            confirm: confirm.to_owned(),
        };
        self.send(
            "take the decision",
            Method::POST,
            &rest::path::decide(id, decision),
            Some(&request),
        )
        .await?;
        self.fetch(id).await
    }

    /// Stops new fencing and evacuations in a scope.
    pub(crate) async fn pause(
        &self,
        scope: &str,
        user: &str,
        reason: &str,
        until: Timestamp,
    ) -> Result<(), Error> {
        let request = PauseRequest {
            reason: signed(reason, user),
            until,
        };
        self.send("pause", Method::PUT, &rest::path::pause(scope), Some(&request))
            .await?;
        self.look().await;
        Ok(())
    }

    /// Ends a pause.
    pub(crate) async fn resume(&self, scope: &str) -> Result<(), Error> {
        self.send::<()>("end the pause", Method::DELETE, &rest::path::pause(scope), None)
            .await?;
        self.look().await;
        Ok(())
    }

    async fn get<T: DeserializeOwned>(&self, what: &'static str, path: &str) -> Result<T, Error> {
        let bytes = self.send::<()>(what, Method::GET, path, None).await?;
        serde_json::from_slice(&bytes).map_err(|error| Error::Ha {
            what,
            status: None,
            text: format!("its answer is not understood: {error}"),
        })
    }

    async fn send<B: Serialize>(
        &self,
        what: &'static str,
        method: Method,
        path: &str,
        body: Option<&B>,
    ) -> Result<Vec<u8>, Error> {
        let url = format!("{}{path}", self.0.service.url.trim_end_matches('/'));
        let mut request = self
            .0
            .http
            .request(method, url)
            .bearer_auth(&self.0.service.token);
        if let Some(body) = body {
            request = request.json(body);
        }
        let failed = |error: reqwest::Error| Error::Ha {
            what,
            status: None,
            text: error.without_url().to_string(),
        };
        let mut answer = request.send().await.map_err(failed)?;
        let status = answer.status();
        let mut bytes = Vec::new();
        while let Some(more) = answer.chunk().await.map_err(failed)? {
            if bytes.len() + more.len() > MOST_ANSWER {
                return Err(Error::Ha {
                    what,
                    status: None,
                    text: "its answer is too long".into(),
                });
            }
            bytes.extend_from_slice(&more);
        }
        if status.is_success() {
            return Ok(bytes);
        }
        let problem: Problem = serde_json::from_slice(&bytes).unwrap_or_default();
        Err(Error::Ha {
            what,
            status: Some(status),
            text: match (problem.detail.is_empty(), problem.title.is_empty()) {
                (false, _) => problem.detail,
                (true, false) => problem.title,
                (true, true) => format!("it answered {status}"),
            },
        })
    }
}

/// The service knows the console, not the person; the record of a decision must name them.
fn signed(reason: &str, user: &str) -> String {
    format!("{reason} ({user}, by the console)")
}
