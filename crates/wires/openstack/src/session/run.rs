// SPDX-License-Identifier: Apache-2.0
//! A call from beginning to end: token, endpoint, microversion, attempts, answer, report.

use std::sync::Arc;
use std::time::Duration;

use http::HeaderMap;
use serde::de::DeserializeOwned;
use tokio::sync::OnceCell;
use tokio::time::{Instant, sleep, timeout_at};
use url::Url;

use super::login::Token;
use super::{Offered, Session};
use crate::call::{Call, Request, Service};
use crate::catalog::{version_document, versioned};
use crate::error::{Error, Result};
use crate::observe::Watched;
use crate::transport::{Answer, Deadline, header};
use crate::version::{Microversion, Offer};
use crate::{fault, json, retry};

/// What a service offers is asked again after this time: clouds are upgraded under running roles.
const OFFER_AGE: Duration = Duration::from_mins(15);

/// What became of a deletion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Removal {
    /// It was accepted.
    Accepted,
    /// There was nothing to remove.
    WasGone,
}

impl Session {
    /// Makes a call and reads its answer; tells the observer.
    pub(crate) async fn ask<T>(
        &self,
        request: &Request,
        read: impl FnOnce(&Answer) -> Result<T, String>,
    ) -> Result<T> {
        let watched = Watched::begin(self.shared.settings.observer.as_ref(), request.call);
        let mut tries = 0;
        let answer = self.answer(request, &mut tries).await;
        let answer = answer.map_err(|error| of_the_call(request, error));
        let status = answer.as_ref().ok().map(|answer| answer.status);
        let outcome = answer.and_then(|answer| {
            read(&answer).map_err(|detail| Error::BadAnswer {
                of: Box::new(request.attempted()),
                status: Some(answer.status),
                detail: unusable(&answer, &detail),
            })
        });
        watched.end(&outcome, status, tries);
        outcome
    }

    /// The named member of a JSON answer.
    pub(crate) async fn member<T: DeserializeOwned>(&self, request: Request, name: &str) -> Result<T> {
        self.ask(&request, |answer| json::member(&answer.body, name))
            .await
    }

    /// The whole JSON answer.
    pub(crate) async fn whole<T: DeserializeOwned>(&self, request: Request) -> Result<T> {
        self.ask(&request, |answer| json::whole(&answer.body)).await
    }

    /// A call whose answer says nothing beyond its status.
    pub(crate) async fn done(&self, request: Request) -> Result<()> {
        self.ask(&request, |_| Ok(())).await
    }

    /// A deletion; what is gone already is done.
    pub(crate) async fn remove(&self, request: Request) -> Result<Removal> {
        match self.ask(&request, |_| Ok(Removal::Accepted)).await {
            Err(Error::NotFound(_)) => Ok(Removal::WasGone),
            outcome => outcome,
        }
    }

    pub(super) async fn offer_of(&self, service: Service) -> Result<Offer> {
        let deadline = Deadline::after(self.deadline);
        let token = self.login.token(deadline).await?;
        let endpoint = self.endpoint(&token, service)?;
        self.offered(service, &endpoint, &token, deadline).await
    }

    /// Attempts until there is a success, a final refusal, or no time left.
    async fn answer(&self, request: &Request, tries: &mut u32) -> Result<Answer> {
        if request.nameless {
            return Err(Error::Nameless(Box::new(request.attempted())));
        }
        let deadline = Deadline::after(self.deadline);
        let global_id = format!("req-{}", uuid::Uuid::new_v4());
        let mut refused: Option<u64> = None;
        loop {
            let token = match refused {
                Some(generation) => self.login.newer_than(generation, deadline).await?,
                None => self.login.token(deadline).await?,
            };
            *tries += 1;
            let outcome = self.attempt(request, &token, &global_id, deadline).await;
            let error = match outcome {
                Ok(answer) => return Ok(answer),
                Err(error) => error,
            };
            if matches!(error, Error::Unauthorized(_)) && refused.is_none() {
                // the token ended early or Keystone lost it; the request was not looked at
                refused = Some(token.generation);
                continue;
            }
            let remaining = deadline.remaining();
            let most = self.shared.settings.tries;
            match retry::wait_before_next(&error, *tries, most, remaining, fastrand::f64()) {
                Some(wait) => {
                    tracing::debug!(%error, "trying again in {} ms", wait.as_millis());
                    sleep(wait).await;
                }
                None => return Err(error),
            }
        }
    }

    async fn attempt(
        &self,
        request: &Request,
        token: &Token,
        global_id: &str,
        deadline: Deadline,
    ) -> Result<Answer> {
        let service = request.call.service;
        let endpoint = self.endpoint(token, service)?;
        let mut headers = HeaderMap::new();
        header(&mut headers, "accept", "application/json", false);
        header(&mut headers, "x-auth-token", token.secret.reveal(), true);
        header(&mut headers, "x-openstack-request-id", global_id, false);
        if let Some(name) = service.microversion_name() {
            let offer = self.offered(service, &endpoint, token, deadline).await?;
            let version = offer
                .choose(request.least, self.newest(request))
                .ok_or_else(|| Error::TooOld {
                    of: Box::new(request.attempted()),
                    least: request.least,
                    offer,
                })?;
            set_version(&mut headers, service, name, version);
        }
        let permit = timeout_at(deadline.at, self.shared.permits.acquire()).await;
        let Ok(Ok(_permit)) = permit else {
            return Err(deadline.passed(request, "waiting for its turn"));
        };
        let answer = self
            .shared
            .transport
            .send(request, &endpoint, headers, deadline)
            .await?;
        if answer.is_success() {
            return Ok(answer);
        }
        if answer.status == 406 {
            // the service was changed and offers something else now
            self.forget_offer(&endpoint);
        }
        let of = request.attempted();
        Err(fault::refuse(of, answer.status, &answer.headers, &answer.body))
    }

    /// The newest microversion this request may speak. One that was told its own keeps it.
    fn newest(&self, request: &Request) -> Microversion {
        let usual = request.call.service == Service::Nova && request.best == request.call.best;
        match self.shared.settings.nova_newest.filter(|_| usual) {
            Some(newest) => request.best.min(newest.max(request.least)),
            None => request.best,
        }
    }

    fn endpoint(&self, token: &Token, service: Service) -> Result<Url> {
        let cloud = self.login.cloud();
        match token.identity.catalog.endpoint(service, cloud) {
            // an unscoped token has no catalog, but we know where Keystone is
            Err(_) if service == Service::Keystone => Ok(versioned(cloud.auth_url.clone(), service)),
            found => found,
        }
    }

    fn forget_offer(&self, endpoint: &Url) {
        let document = version_document(endpoint);
        self.shared.offers.lock().remove(document.as_str());
    }

    /// What a service offers: asked once for all, and again after a while.
    async fn offered(
        &self,
        service: Service,
        endpoint: &Url,
        token: &Token,
        deadline: Deadline,
    ) -> Result<Offer> {
        let document = version_document(endpoint);
        let offered = self.offered_at(&document);
        let ask = || self.ask_for_offer(service, &document, token, deadline);
        let asked = timeout_at(deadline.at, offered.offer.get_or_try_init(ask)).await;
        let Ok(outcome) = asked else {
            let request = Request::new(version_call(service), &[]).about(document.as_str());
            return Err(deadline.passed(&request, "waiting for the answer"));
        };
        outcome.copied()
    }

    /// Where the offer of an address is kept, a fresh place when the last one is old.
    fn offered_at(&self, document: &Url) -> Arc<Offered> {
        let mut offers = self.shared.offers.lock();
        let known = offers.get(document.as_str());
        if let Some(known) = known.filter(|known| known.since.elapsed() < OFFER_AGE) {
            return Arc::clone(known);
        }
        let fresh = Arc::new(Offered {
            since: Instant::now(),
            offer: OnceCell::new(),
        });
        offers.insert(document.to_string(), Arc::clone(&fresh));
        fresh
    }

    async fn ask_for_offer(
        &self,
        service: Service,
        document: &Url,
        token: &Token,
        deadline: Deadline,
    ) -> Result<Offer> {
        let request = Request::new(version_call(service), &[]).about(document.as_str());
        let watched = Watched::begin(self.shared.settings.observer.as_ref(), request.call);
        let mut headers = HeaderMap::new();
        header(&mut headers, "accept", "application/json", false);
        header(&mut headers, "x-auth-token", token.secret.reveal(), true);
        let transport = &self.shared.transport;
        let answer = transport.send(&request, document, headers, deadline).await;
        let status = answer.as_ref().ok().map(|answer| answer.status);
        let outcome = answer.and_then(|answer| read_offer(&request, &answer));
        watched.end(&outcome, status, 1);
        outcome
    }
}

/// That there is no such object is told by the answer to the call on it alone. A Keystone or a version document that is
/// not found on the way there says nothing of it.
fn of_the_call(request: &Request, error: Error) -> Error {
    match error {
        Error::NotFound(refusal) if refusal.of.call != request.call => Error::BadAnswer {
            status: Some(refusal.status),
            detail: refusal.message,
            of: Box::new(refusal.of),
        },
        error => error,
    }
}

fn read_offer(request: &Request, answer: &Answer) -> Result<Offer> {
    let of = request.attempted();
    // a list of versions to choose from comes with 300
    if !answer.is_success() && answer.status != 300 {
        return Err(fault::refuse(of, answer.status, &answer.headers, &answer.body));
    }
    Offer::read(&answer.body).ok_or_else(|| Error::BadAnswer {
        of: Box::new(of),
        status: Some(answer.status),
        detail: unusable(answer, "it names no microversions"),
    })
}

fn version_call(service: Service) -> &'static Call {
    static NOVA: Call = Call::get(Service::Nova, "ask for its versions", "/");
    static PLACEMENT: Call = Call::get(Service::Placement, "ask for its versions", "/");
    static CINDER: Call = Call::get(Service::Cinder, "ask for its versions", "/");
    static KEYSTONE: Call = Call::get(Service::Keystone, "ask for its versions", "/");
    static GLANCE: Call = Call::get(Service::Glance, "ask for its versions", "/");
    static NEUTRON: Call = Call::get(Service::Neutron, "ask for its versions", "/");
    match service {
        Service::Nova => &NOVA,
        Service::Placement => &PLACEMENT,
        Service::Cinder => &CINDER,
        Service::Keystone => &KEYSTONE,
        Service::Glance => &GLANCE,
        Service::Neutron => &NEUTRON,
    }
}

fn set_version(headers: &mut HeaderMap, service: Service, name: &str, version: Microversion) {
    header(
        headers,
        "openstack-api-version",
        &format!("{name} {version}"),
        false,
    );
    if service == Service::Nova {
        header(
            headers,
            "x-openstack-nova-api-version",
            &version.to_string(),
            false,
        );
    }
}

/// What is wrong with an answer, and what it says it is: a login page is recognised by that.
fn unusable(answer: &Answer, detail: &str) -> String {
    let kind = answer.headers.get(http::header::CONTENT_TYPE);
    match kind.and_then(|kind| kind.to_str().ok()) {
        Some(kind) if kind.starts_with("application/json") => detail.to_owned(),
        Some(kind) => format!("{detail} (content type {kind})"),
        None => format!("{detail} (no content type)"),
    }
}
