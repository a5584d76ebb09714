// SPDX-License-Identifier: Apache-2.0
//! Tokens: fetching, keeping, renewing. A renewal runs once however many calls wait for it, goes on
//! when those who asked have gone, and after a failure Keystone is left alone for a moment.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use http::HeaderMap;
use jiff::Timestamp;
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout_at};

use super::Settings;
use crate::call::{Call, Request, Service};
use crate::catalog::{Catalog, versioned};
use crate::config::{ApplicationCredentialRef, CloudConfig, Credentials, DomainRef, Scope, UserRef};
use crate::error::{Error, Result};
use crate::observe::{Observer, Watched};
use crate::secret::Secret;
use crate::transport::{Answer, Deadline, Transport};
use crate::{fault, json, retry};

pub(crate) static AUTHENTICATE: Call =
    Call::post(Service::Keystone, "get a token", "/auth/tokens").repeatable();

/// The longest pause after failures: a Keystone that returns is noticed within it.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
const FIRST_PAUSE: Duration = Duration::from_millis(250);
/// A token is not used in its last moments: it must outlive the request.
const SAFETY: Duration = Duration::from_secs(60);

/// What a token is good for.
#[derive(Debug, Clone, Deserialize)]
pub struct Identity {
    /// The user.
    pub user: Named,
    /// The project, if the token is for one.
    pub project: Option<Named>,
    /// The domain, if the token is for one.
    pub domain: Option<Named>,
    /// What of the system it is for, if it is.
    #[serde(default)]
    pub system: Option<Value>,
    /// The roles of the user in that scope.
    #[serde(default)]
    pub roles: Vec<Named>,
    /// When the token ends.
    pub expires_at: Timestamp,
    /// When it began.
    pub issued_at: Timestamp,
    /// Where the services answer.
    #[serde(default)]
    pub catalog: Catalog,
}

impl Identity {
    /// Whether the user has a role by this name.
    pub fn has_role(&self, name: &str) -> bool {
        self.roles.iter().any(|role| role.name == name)
    }
}

/// Something with id and name.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Named {
    /// The id.
    pub id: String,
    /// The name.
    #[serde(default)]
    pub name: String,
}

pub(crate) struct Token {
    pub(crate) secret: Secret,
    /// Counts up; a service's refusal of an older token says nothing about this one.
    pub(crate) generation: u64,
    pub(crate) identity: Arc<Identity>,
    times: Times,
}

/// When a token is renewed and when it is no longer used.
#[derive(Debug, Clone, Copy)]
struct Times {
    renew_at: Instant,
    ends_at: Instant,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Age {
    /// Good for a while.
    Fresh,
    /// Still good, time for another one.
    Late,
    /// Not to be used.
    Over,
}

impl Times {
    fn new(now: Instant, lifetime: Duration) -> Self {
        let usable = lifetime.saturating_sub(SAFETY.min(lifetime / 4));
        Self {
            renew_at: now + usable.mul_f64(0.8),
            ends_at: now + usable,
        }
    }

    fn at(self, now: Instant) -> Age {
        if now < self.renew_at {
            Age::Fresh
        } else if now < self.ends_at {
            Age::Late
        } else {
            Age::Over
        }
    }
}

pub(crate) struct Login {
    cloud: CloudConfig,
    transport: Arc<Transport>,
    deadline: Duration,
    tries: u32,
    observer: Option<Arc<dyn Observer>>,
    current: ArcSwapOption<Token>,
    flight: Mutex<Flight>,
}

type Outcome = Option<Result<Arc<Token>>>;

#[derive(Default)]
struct Flight {
    /// A renewal that is under way.
    running: Option<watch::Receiver<Outcome>>,
    generation: u64,
    failures: u32,
    /// What went wrong last, and until when Keystone is left alone.
    failure: Option<(Instant, Error)>,
}

impl Login {
    pub(super) fn new(cloud: CloudConfig, transport: Arc<Transport>, settings: &Settings) -> Self {
        Self {
            cloud,
            transport,
            deadline: settings.deadline,
            tries: settings.tries,
            observer: settings.observer.clone(),
            current: ArcSwapOption::empty(),
            flight: Mutex::default(),
        }
    }

    pub(super) fn cloud(&self) -> &CloudConfig {
        &self.cloud
    }

    pub(super) fn has_token(&self) -> bool {
        let now = Instant::now();
        let current = self.current.load();
        current
            .as_ref()
            .is_some_and(|token| token.times.at(now) != Age::Over)
    }

    pub(super) fn failure(&self) -> Option<Error> {
        self.flight
            .lock()
            .failure
            .as_ref()
            .map(|(_, error)| error.clone())
    }

    /// A token that will outlive the request. One that is near its end is renewed beside the call.
    pub(super) async fn token(self: &Arc<Self>, deadline: Deadline) -> Result<Arc<Token>> {
        let now = Instant::now();
        if let Some(token) = self.current.load_full() {
            match token.times.at(now) {
                Age::Fresh => return Ok(token),
                Age::Late => {
                    drop(self.renewal(token.generation));
                    return Ok(token);
                }
                Age::Over => {}
            }
        }
        let stale = self.current.load().as_ref().map_or(0, |token| token.generation);
        self.newer_than(stale, deadline).await
    }

    /// A token that is newer than the one a service refused.
    pub(super) async fn newer_than(
        self: &Arc<Self>,
        generation: u64,
        deadline: Deadline,
    ) -> Result<Arc<Token>> {
        let mut outcome = match self.renewal(generation) {
            Renewal::Done(outcome) => return outcome,
            Renewal::Running(receiver) => receiver,
        };
        let asked = Request::new(&AUTHENTICATE, &[]).about(self.about());
        let waited = timeout_at(deadline.at, outcome.wait_for(Option::is_some)).await;
        match waited {
            Err(_) => Err(deadline.passed(&asked, "waiting for a token")),
            Ok(Ok(outcome)) => outcome.clone().unwrap_or_else(|| Err(abandoned(&asked))),
            Ok(Err(_)) => Err(abandoned(&asked)),
        }
    }

    /// Joins the renewal under way, or begins one.
    fn renewal(self: &Arc<Self>, generation: u64) -> Renewal {
        let mut flight = self.flight.lock();
        if let Some(token) = self.current.load_full()
            && token.generation > generation
        {
            return Renewal::Done(Ok(token));
        }
        if let Some(receiver) = &flight.running
            && receiver.has_changed().is_ok()
        {
            return Renewal::Running(receiver.clone());
        }
        if let Some((until, error)) = &flight.failure
            && Instant::now() < *until
        {
            return Renewal::Done(Err(error.clone()));
        }
        let (sender, receiver) = watch::channel(None);
        flight.running = Some(receiver.clone());
        flight.generation += 1;
        let (login, generation) = (Arc::clone(self), flight.generation);
        drop(flight);
        tokio::spawn(async move {
            let outcome = login.authenticate(generation).await;
            login.land(&outcome);
            let _ = sender.send(Some(outcome));
        });
        Renewal::Running(receiver)
    }

    fn land(&self, outcome: &Result<Arc<Token>>) {
        let mut flight = self.flight.lock();
        flight.running = None;
        match outcome {
            Ok(token) => {
                flight.failures = 0;
                flight.failure = None;
                self.current.store(Some(Arc::clone(token)));
            }
            Err(error) => {
                let pause = FIRST_PAUSE
                    .saturating_mul(1 << flight.failures.min(10))
                    .min(LONGEST_PAUSE);
                flight.failures = flight.failures.saturating_add(1);
                tracing::warn!(%error, "no token; asking again in {} ms at the earliest", pause.as_millis());
                flight.failure = Some((Instant::now() + pause, error.clone()));
            }
        }
    }

    async fn authenticate(&self, generation: u64) -> Result<Arc<Token>> {
        let watched = Watched::begin(self.observer.as_ref(), &AUTHENTICATE);
        let request = Request::new(&AUTHENTICATE, &[])
            .about(self.about())
            .json(&body(&self.cloud));
        let mut tries = 0;
        let answer = self.post(&request, &mut tries).await;
        let status = answer.as_ref().ok().map(|answer| answer.status);
        let outcome = answer.and_then(|answer| read(&request, &answer, generation));
        watched.end(&outcome, status, tries);
        outcome
    }

    async fn post(&self, request: &Request, tries: &mut u32) -> Result<Answer> {
        let deadline = Deadline::after(self.deadline);
        let endpoint = versioned(self.cloud.auth_url.clone(), Service::Keystone);
        loop {
            *tries += 1;
            let headers = HeaderMap::new();
            let sent = self.transport.send(request, &endpoint, headers, deadline).await;
            let error = match sent {
                Ok(answer) if answer.is_success() => return Ok(answer),
                Ok(answer) => {
                    fault::refuse(request.attempted(), answer.status, &answer.headers, &answer.body)
                }
                Err(error) => error,
            };
            let remaining = deadline.remaining();
            match retry::wait_before_next(&error, *tries, self.tries, remaining, fastrand::f64()) {
                Some(wait) => sleep(wait).await,
                None => return Err(error),
            }
        }
    }

    /// Who for what, in words.
    fn about(&self) -> String {
        let who = match &self.cloud.credentials {
            Credentials::Password { user, .. } => user_words(user),
            Credentials::ApplicationCredential { credential, .. } => match credential {
                ApplicationCredentialRef::Id(id) => format!("application credential {id}"),
                ApplicationCredentialRef::Name { name, .. } => format!("application credential {name}"),
            },
        };
        match &self.cloud.scope {
            Scope::Inherent => who,
            Scope::ProjectId(id) => format!("{who}, project {id}"),
            Scope::Project { name, .. } => format!("{who}, project {name}"),
            Scope::Domain(DomainRef::Id(text) | DomainRef::Name(text)) => format!("{who}, domain {text}"),
            Scope::System => format!("{who}, system"),
        }
    }
}

enum Renewal {
    Running(watch::Receiver<Outcome>),
    Done(Result<Arc<Token>>),
}

/// The task that renews is gone: the runtime ends.
fn abandoned(request: &Request) -> Error {
    Error::Unreachable {
        of: Box::new(request.attempted()),
        cause: "the renewal was abandoned because the process ends".to_owned(),
    }
}

fn read(request: &Request, answer: &Answer, generation: u64) -> Result<Arc<Token>> {
    let bad = |detail: String| Error::BadAnswer {
        of: Box::new(request.attempted()),
        status: Some(answer.status),
        detail,
    };
    let secret = answer
        .headers
        .get("x-subject-token")
        .and_then(|value| value.to_str().ok())
        .map(Secret::from)
        .ok_or_else(|| bad("there is no X-Subject-Token; is this Keystone's version 3 API?".to_owned()))?;
    let identity: Identity = json::member(&answer.body, "token").map_err(bad)?;
    // the clock that counts is Keystone's; ours only measures how much of the time has gone
    let lifetime = identity.expires_at.duration_since(identity.issued_at);
    let lifetime = Duration::try_from(lifetime).unwrap_or_default();
    Ok(Arc::new(Token {
        secret,
        generation,
        identity: Arc::new(identity),
        times: Times::new(Instant::now(), lifetime),
    }))
}

fn body(cloud: &CloudConfig) -> Value {
    let identity = match &cloud.credentials {
        Credentials::Password { user, password } => {
            let mut user = user_body(user);
            user["password"] = json!(password.reveal());
            json!({ "methods": ["password"], "password": { "user": user } })
        }
        Credentials::ApplicationCredential { credential, secret } => {
            let mut credential = match credential {
                ApplicationCredentialRef::Id(id) => json!({ "id": id }),
                ApplicationCredentialRef::Name { name, user } => {
                    json!({ "name": name, "user": user_body(user) })
                }
            };
            credential["secret"] = json!(secret.reveal());
            json!({ "methods": ["application_credential"], "application_credential": credential })
        }
    };
    let scope = match &cloud.scope {
        Scope::Inherent => return json!({ "auth": { "identity": identity } }),
        Scope::ProjectId(id) => json!({ "project": { "id": id } }),
        Scope::Project { name, domain } => {
            json!({ "project": { "name": name, "domain": domain_body(domain) } })
        }
        Scope::Domain(domain) => json!({ "domain": domain_body(domain) }),
        Scope::System => json!({ "system": { "all": true } }),
    };
    json!({ "auth": { "identity": identity, "scope": scope } })
}

fn user_body(user: &UserRef) -> Value {
    match user {
        UserRef::Id(id) => json!({ "id": id }),
        UserRef::Name { name, domain } => json!({ "name": name, "domain": domain_body(domain) }),
    }
}

fn user_words(user: &UserRef) -> String {
    match user {
        UserRef::Id(text) | UserRef::Name { name: text, .. } => format!("user {text}"),
    }
}

fn domain_body(domain: &DomainRef) -> Value {
    match domain {
        DomainRef::Id(id) => json!({ "id": id }),
        DomainRef::Name(name) => json!({ "name": name }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_token_is_renewed_before_it_ends_and_not_used_in_its_last_minute() {
        let now = Instant::now();
        let times = Times::new(now, Duration::from_hours(1));
        let age = |minutes| times.at(now + Duration::from_mins(minutes));
        assert_eq!(
            [age(0), age(40), age(50), age(58), age(59), age(61)],
            [Age::Fresh, Age::Fresh, Age::Late, Age::Late, Age::Over, Age::Over]
        );
        assert_eq!(Times::new(now, Duration::ZERO).at(now), Age::Over);
    }
}
