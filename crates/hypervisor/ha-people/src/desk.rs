// SPDX-License-Identifier: Apache-2.0
//! The HA service as a person asks it: lists, one incident by its id or its host, decisions and
//! pauses. Every call has a deadline, and every answer that is no is turned into a sentence.

use std::path::PathBuf;
use std::time::Duration;

use cobaltcore_ha_engine::Decision;
use cobaltcore_ha_wire::Problem;
use cobaltcore_ha_wire::rest::{
    BulkAnswer, BulkFilter, BulkRequest, DecisionRequest, HostEvidence, IncidentDetail, IncidentSummary,
    Page, Pause, PauseRequest, path,
};
use jiff::Timestamp;
use reqwest::redirect::Policy;
use reqwest::{Method, RequestBuilder};
use serde::Serialize;
use serde::de::DeserializeOwned;
use url::Url;

const TIME: Duration = Duration::from_secs(15);
/// Most bytes of an answer: an incident with a thousand guests and its journal.
const LONGEST_ANSWER: usize = 32 << 20;
/// More pages than there can be incidents.
const MOST_PAGES: usize = 1000;
const PAGE: usize = 500;

/// Where the service is and who asks.
#[derive(Clone, Debug, Default)]
pub struct Service {
    /// Its address.
    pub url: String,
    /// A file with a token of somebody who may look or decide.
    pub token_file: Option<PathBuf>,
    /// Authorities of its certificate; those of this machine if none.
    pub ca_file: Option<PathBuf>,
}

/// Why something was not done, in a sentence.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    /// The service, or this program, says no.
    #[error("{0}")]
    No(String),
    /// The service could not be asked.
    #[error("{what}: {cause}")]
    Unreachable {
        /// What was tried.
        what: String,
        /// Why it failed, and what to look at.
        cause: String,
    },
}

fn no(text: impl Into<String>) -> Refused {
    Refused::No(text.into())
}

/// Somebody who looks after incidents.
#[derive(Debug)]
pub struct Desk {
    http: reqwest::Client,
    base: Url,
    token_file: Option<PathBuf>,
}

impl Desk {
    /// A desk at this service; nobody is asked yet.
    pub fn new(service: Service) -> Result<Self, Refused> {
        let Service {
            url,
            token_file,
            ca_file,
        } = service;
        let base = Url::parse(&url)
            .ok()
            .filter(|url| matches!(url.scheme(), "http" | "https"));
        let base = base.ok_or_else(|| {
            no(format!(
                "{url:?} is not the address of an HA service; give --url https://HOST:8443 or set KVM_HA_SERVICE_URL"
            ))
        })?;
        // The only provider in this project; somebody else may have installed it before.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut builder = reqwest::Client::builder()
            .timeout(TIME)
            .redirect(Policy::none())
            .user_agent("cobaltcore-incidents");
        if let Some(path) = ca_file {
            let bad = |reason: String| no(format!("--ca-file {}: {reason}", path.display()));
            let pem = std::fs::read(&path).map_err(|error| bad(error.to_string()))?;
            let authorities =
                reqwest::Certificate::from_pem_bundle(&pem).map_err(|error| bad(error.to_string()))?;
            builder = builder.tls_certs_only(authorities);
        }
        let http = builder
            .build()
            .map_err(|error| no(format!("no HTTPS on this machine: {error}")))?;
        Ok(Self {
            http,
            base,
            token_file,
        })
    }

    /// Incidents, newest first; only open ones unless `all`.
    pub async fn incidents(&self, all: bool) -> Result<Vec<IncidentSummary>, Refused> {
        let mut found: Vec<IncidentSummary> = Vec::new();
        let mut cursor: Option<String> = None;
        for _ in 0..MOST_PAGES {
            let mut query = url::form_urlencoded::Serializer::for_suffix(
                format!("{}?", path::INCIDENTS),
                path::INCIDENTS.len() + 1,
            );
            query.append_pair("limit", &PAGE.to_string());
            if let Some(cursor) = &cursor {
                query.append_pair("cursor", cursor);
            }
            let request = self.request(Method::GET, &query.finish())?;
            let page: Page<IncidentSummary> = self.ask("listing incidents", request).await?;
            found.extend(page.items);
            match page.cursor {
                Some(next) if Some(&next) != cursor.as_ref() => cursor = Some(next),
                _ => break,
            }
        }
        found.retain(|incident| all || incident.open);
        found.sort_by(|a, b| b.opened_at.cmp(&a.opened_at).then_with(|| a.id.cmp(&b.id)));
        Ok(found)
    }

    /// One incident, by its id or by the host of its only open incident.
    pub async fn incident(&self, name: &str) -> Result<IncidentDetail, Refused> {
        if let Some(found) = self.by_id(name).await? {
            return Ok(found);
        }
        let id = self.id_of_host(name).await?;
        self.by_id(&id)
            .await?
            .ok_or_else(|| no(format!("Incident {id} has just ended; look again")))
    }

    async fn by_id(&self, id: &str) -> Result<Option<IncidentDetail>, Refused> {
        let request = self.request(Method::GET, &path::incident(&segment(id)?))?;
        match self.ask(&format!("reading incident {id}"), request).await {
            Ok(found) => Ok(Some(found)),
            Err(Refused::No(text)) if text == MISSING => Ok(None),
            Err(other) => Err(other),
        }
    }

    async fn id_of_host(&self, host: &str) -> Result<String, Refused> {
        let mine: Vec<IncidentSummary> = self
            .incidents(true)
            .await?
            .into_iter()
            .filter(|incident| incident.host.as_str() == host)
            .collect();
        let open: Vec<&IncidentSummary> = mine.iter().filter(|incident| incident.open).collect();
        match (open.as_slice(), mine.first()) {
            ([one], _) => Ok(one.id.clone()),
            ([], Some(last)) => Ok(last.id.clone()),
            ([], None) => Err(no(format!(
                "There is no incident {host} and none of a host of that name; `cobaltcore incidents list --all` shows those there are"
            ))),
            (many, _) => {
                let ids: Vec<&str> = many.iter().map(|incident| incident.id.as_str()).collect();
                Err(no(format!(
                    "{host} has {} open incidents; name one: {}",
                    ids.len(),
                    ids.join(", ")
                )))
            }
        }
    }

    /// Takes a decision about an incident and answers with the incident as it is then.
    pub async fn decide(
        &self,
        name: &str,
        decision: Decision,
        reason: &str,
        confirm: &str,
    ) -> Result<IncidentDetail, Refused> {
        if reason.trim().is_empty() {
            return Err(no(
                "Say why with --reason; the next person on call will want to know",
            ));
        }
        let incident = self.incident(name).await?;
        let (id, host) = (&incident.summary.id, incident.summary.host.as_str());
        if confirm != host {
            return Err(no(format!(
                "--confirm must be the host's name, {host}, so that nobody decides about the wrong machine; {confirm:?} is not it"
            )));
        }
        let word = decision.as_str();
        let body = DecisionRequest {
            reason: reason.trim().to_owned(),
            confirm: confirm.to_owned(),
        };
        let request = self
            .request(Method::POST, &path::decide(&segment(id)?, word))?
            .json(&body);
        let taken = self.send(&format!("deciding {word} about {id}"), request).await;
        match taken {
            Ok(_) => self.incident(id).await,
            Err(Refused::No(text)) => Err(no(self.with_options(&text, id, word).await)),
            Err(other) => Err(other),
        }
    }

    /// Has a host recovered that nobody calls dead, and answers with the incident.
    pub async fn recover(&self, host: &str, reason: &str, confirm: &str) -> Result<IncidentDetail, Refused> {
        if reason.trim().is_empty() {
            return Err(no(
                "Say why with --reason; the next person on call will want to know",
            ));
        }
        let body = DecisionRequest {
            reason: reason.trim().to_owned(),
            confirm: confirm.to_owned(),
        };
        let request = self
            .request(Method::POST, &path::recover(&segment(host)?))?
            .json(&body);
        known(host, self.ask(&format!("having {host} recovered"), request).await)
    }

    /// Why a host is judged as it is.
    pub async fn evidence(&self, host: &str) -> Result<HostEvidence, Refused> {
        let request = self.request(Method::GET, &path::evidence(&segment(host)?))?;
        known(host, self.ask(&format!("asking about {host}"), request).await)
    }

    /// One decision for many incidents; without `commit` nothing is done, and the answer says what would be.
    pub async fn bulk(&self, wanted: &BulkRequest) -> Result<BulkAnswer, Refused> {
        if wanted.reason.trim().is_empty() {
            return Err(no(
                "Say why with --reason; the next person on call will want to know",
            ));
        }
        if wanted.filter == BulkFilter::default() {
            return Err(no("Say which with --zone, --bb, --held or --state"));
        }
        let request = self.request(Method::POST, path::BULK)?.json(wanted);
        self.ask("deciding about many incidents", request).await
    }

    /// A refusal, with what is possible instead.
    async fn with_options(&self, text: &str, id: &str, word: &str) -> String {
        let text = text.trim_end_matches('.');
        let Ok(Some(now)) = self.by_id(id).await else {
            return format!("{word} was refused: {text}");
        };
        let state = match now.summary.held {
            Some(reason) => format!("{:?}, held for {reason:?}", now.summary.state),
            None => format!("{:?}", now.summary.state),
        };
        let options: Vec<&str> = now.actions.iter().map(|action| action.as_str()).collect();
        let instead = if options.is_empty() {
            "Nothing is for a person to decide now".to_owned()
        } else {
            format!("Possible now: {}", options.join(", "))
        };
        format!(
            "{word} was refused: {text} (it is {state}). {instead}; `cobaltcore incidents show {id}` tells more"
        )
    }

    /// Pauses in force.
    pub async fn pauses(&self) -> Result<Vec<Pause>, Refused> {
        let request = self.request(Method::GET, path::PAUSES)?;
        let page: Page<Pause> = self.ask("listing pauses", request).await?;
        Ok(page.items)
    }

    /// Stops new fencing and new evacuations in a scope until then, and answers with the pause as it is kept.
    pub async fn pause(&self, scope: &str, reason: &str, until: Timestamp) -> Result<Pause, Refused> {
        if reason.trim().is_empty() {
            return Err(no(
                "Say why with --reason; the next person on call will want to know",
            ));
        }
        let scope = checked_scope(scope)?;
        if let Some(host) = scope.strip_prefix("host/") {
            // A pause of a host that is called differently would protect nobody.
            self.evidence(host).await?;
        }
        let body = PauseRequest {
            reason: reason.trim().to_owned(),
            until,
        };
        let request = self.request(Method::PUT, &path::pause(&scope))?.json(&body);
        self.ask(&format!("pausing {scope}"), request).await
    }

    /// Ends a pause.
    pub async fn unpause(&self, scope: &str) -> Result<(), Refused> {
        let scope = checked_scope(scope)?;
        let request = self.request(Method::DELETE, &path::pause(&scope))?;
        match self.send(&format!("ending the pause of {scope}"), request).await {
            Err(Refused::No(text)) if text == MISSING => Err(no(format!(
                "{scope} is not paused; `cobaltcore incidents pauses` shows what is"
            ))),
            other => other.map(drop),
        }
    }

    fn request(&self, method: Method, path: &str) -> Result<RequestBuilder, Refused> {
        let url = self
            .base
            .join(path)
            .map_err(|error| no(format!("{path:?} is no path: {error}")))?;
        let mut request = self.http.request(method, url);
        if let Some(file) = &self.token_file {
            let token = std::fs::read_to_string(file)
                .map_err(|error| no(format!("--token-file {}: {error}", file.display())))?;
            request = request.bearer_auth(token.trim());
        }
        Ok(request)
    }

    async fn ask<T: DeserializeOwned>(&self, what: &str, request: RequestBuilder) -> Result<T, Refused> {
        let body = self.send(what, request).await?;
        serde_json::from_slice(&body).map_err(|error| Refused::Unreachable {
            what: what.to_owned(),
            cause: format!(
                "what answers at {} is not an HA service of this version: {error}",
                self.base
            ),
        })
    }

    async fn send(&self, what: &str, request: RequestBuilder) -> Result<Vec<u8>, Refused> {
        let lost = |error: &reqwest::Error| Refused::Unreachable {
            what: what.to_owned(),
            cause: format!(
                "{}; see that the HA service runs at {} and that --url is right",
                causes(error),
                self.base
            ),
        };
        let mut answer = request.send().await.map_err(|error| lost(&error))?;
        let status = answer.status().as_u16();
        let mut body = Vec::new();
        while let Some(chunk) = answer.chunk().await.map_err(|error| lost(&error))? {
            if body.len() + chunk.len() > LONGEST_ANSWER {
                return Err(no(format!(
                    "{what}: the answer is longer than {LONGEST_ANSWER} bytes"
                )));
            }
            body.extend_from_slice(&chunk);
        }
        match status {
            200..300 => Ok(body),
            _ => Err(no(self.refusal(status, &body))),
        }
    }

    fn refusal(&self, status: u16, body: &[u8]) -> String {
        let problem: Option<Problem> = serde_json::from_slice(body).ok();
        let problem = problem.unwrap_or_default();
        let said = if problem.detail.is_empty() {
            problem.title
        } else {
            problem.detail
        };
        match status {
            401 if self.token_file.is_none() => {
                "The HA service wants to know who asks; give --token-file or set KVM_HA_TOKEN_FILE".to_owned()
            }
            401 => {
                "The HA service does not know this token; is it an operator's, and is it current?".to_owned()
            }
            403 => format!("This token may not do that ({said}); use an operator's token"),
            404 => MISSING.to_owned(),
            429 | 503 => format!("The HA service is busy ({said}); try again in a moment"),
            _ if said.is_empty() => {
                format!("The HA service answered {status} without a word; its log tells more")
            }
            _ => said,
        }
    }
}

/// An answer about a host, which may not be one.
fn known<T>(host: &str, answer: Result<T, Refused>) -> Result<T, Refused> {
    match answer {
        Err(Refused::No(text)) if text == MISSING => Err(no(format!(
            "The HA service knows no host {host}; `kubectl get hypervisors` names those there are"
        ))),
        other => other,
    }
}

const MISSING: &str = "there is no such thing";

/// A name that stands alone in a path.
fn segment(name: &str) -> Result<String, Refused> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_');
    if name.is_empty() || name.starts_with('.') || !name.chars().all(plain) {
        return Err(no(format!(
            "{name:?} is neither an incident nor a host; `cobaltcore incidents list` shows both"
        )));
    }
    Ok(name.to_owned())
}

/// A scope as the service names it.
fn checked_scope(scope: &str) -> Result<String, Refused> {
    let wrong = || {
        no(format!(
            "{scope:?} is not a scope; it is `global`, `zone/NAME`, `bb/NAME`, `host/NAME` or `vm/UUID`"
        ))
    };
    match scope.split_once('/') {
        None if scope == "global" => Ok(scope.to_owned()),
        Some((kind, name)) if matches!(kind, "zone" | "bb" | "host" | "vm") => {
            Ok(format!("{kind}/{}", segment(name).map_err(|_| wrong())?))
        }
        _ => Err(wrong()),
    }
}

fn causes(error: &reqwest::Error) -> String {
    use std::error::Error as _;
    let mut words = Vec::new();
    let mut next = error.source();
    while let Some(cause) = next {
        let text = cause.to_string();
        if words.last() != Some(&text) {
            words.push(text);
        }
        next = cause.source();
    }
    if !words.is_empty() {
        words.join(": ")
    } else if error.is_timeout() {
        "no answer in time".to_owned()
    } else {
        "the connection failed".to_owned()
    }
}

/// Everything that is printed as JSON or YAML has one shape: a list.
impl Desk {
    /// A list of things as `kubectl` prints one.
    pub fn listed<T: Serialize>(items: &[T]) -> serde_json::Value {
        serde_json::json!({"items": items})
    }
}
