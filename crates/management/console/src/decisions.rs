// SPDX-License-Identifier: Apache-2.0
//! What a person decides about incidents, and pauses of recovery. Each is explained on a page of its own first. Whoever
//! may change hypervisors may decide; what the journal of the HA service keeps names them.

use axum::Router;
use axum::extract::{Form, Path, Query, State};
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::get;
use cobaltcore_ha_engine::Decision;
use cobaltcore_ha_wire::rest::IncidentDetail;
use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;

use crate::actions::{Confirmed, Question};
use crate::error::Error;
use crate::ha::Ha;
use crate::session::{Right, Session};
use crate::site::{SignedIn, Site};
use crate::views::incidents::words;

const SPANS: [(i64, &str); 4] = [
    (15, "15 minutes"),
    (60, "one hour"),
    (240, "four hours"),
    (1_440, "one day"),
];

/// Decisions, with one address each.
pub(crate) fn router() -> Router<Site> {
    Router::new()
        .route("/incidents/{id}/{decision}", get(ask).post(decide))
        .route("/pauses/begin", get(ask_pause).post(pause))
        .route("/pauses/end", get(ask_resume).post(resume))
}

/// What a decision means, in words.
struct Meaning {
    title: &'static str,
    text: &'static str,
    verb: &'static str,
    /// Whether the name of the host has to be written out.
    written: bool,
}

fn meaning(decision: Decision) -> Meaning {
    match decision {
        Decision::AckFenced => Meaning {
            title: "Is it off?",
            text: "You sign that you looked and that this host is off and stays off. Its guests are started elsewhere on \
                   your word alone. If it still runs, they run twice and destroy their disks.",
            verb: "It is off, I looked",
            written: true,
        },
        Decision::Approve => Meaning {
            title: "Approve the recovery?",
            text: "The recovery goes on in spite of what it is held for: the host is turned off and its guests are started \
                   elsewhere.",
            verb: "Approve",
            written: true,
        },
        Decision::Abort => Meaning {
            title: "Abort the recovery?",
            text: "Nothing more is done for this host. Guests that were already asked for arrive; the others stay where they \
                   are, running or not.",
            verb: "Abort",
            written: true,
        },
        Decision::Retry => Meaning {
            title: "Try again?",
            text: "Guests that could not be started elsewhere are tried again, as soon as it is certain that no earlier \
                   attempt still runs.",
            verb: "Try again",
            written: false,
        },
        Decision::Release => Meaning {
            title: "Release the host?",
            text: "The host gets its power back. When it is up, healthy and runs nothing that runs elsewhere, its maintenance \
                   ends and it takes guests again.",
            verb: "Release the host",
            written: false,
        },
        Decision::Close => Meaning {
            title: "Close the incident?",
            text: "The incident ends without taking the host back: it stays in maintenance and nobody looks after the fence \
                   any more.",
            verb: "Close",
            written: true,
        },
    }
}

/// The incident as the service tells it, and the decision if it is one.
async fn find(
    site: &Site,
    session: &Session,
    id: &str,
    word: &str,
) -> Result<(Ha, std::sync::Arc<IncidentDetail>, Decision), Error> {
    session.need(Right::ChangeHypervisors).await?;
    let ha = site.ha.clone().ok_or(Error::NoHa)?;
    ha.look_at(id).await?;
    let nothing = |kind: &'static str, name: &str| Error::NotFound {
        kind,
        name: name.to_owned(),
    };
    let detail = site.fleet.known().incidents.details.get(id).cloned();
    let all = [
        Decision::AckFenced,
        Decision::Approve,
        Decision::Abort,
        Decision::Retry,
        Decision::Release,
        Decision::Close,
    ];
    let decision = all.into_iter().find(|decision| words(*decision).0 == word);
    Ok((
        ha,
        detail.ok_or_else(|| nothing("incident", id))?,
        decision.ok_or_else(|| nothing("decision", word))?,
    ))
}

async fn ask(
    State(site): State<Site>,
    SignedIn(session): SignedIn,
    Path((id, word)): Path<(String, String)>,
) -> Result<Response, Error> {
    let (_, detail, decision) = find(&site, &session, &id, &word).await?;
    let meaning = meaning(decision);
    let back = format!("/incidents/{id}");
    Question {
        title: &format!("{}: {}", detail.summary.host, meaning.title),
        text: meaning.text,
        action: &format!("{back}/{word}"),
        back: &back,
        csrf: &session.csrf,
        verb: meaning.verb,
        reason: true,
        confirm: meaning.written.then_some(detail.summary.host.as_str()),
        dangerous: meaning.written,
        ..Question::default()
    }
    .ask(&session)
}

async fn decide(
    State(site): State<Site>,
    SignedIn(session): SignedIn,
    Path((id, word)): Path<(String, String)>,
    Form(form): Form<Confirmed>,
) -> Result<Response, Error> {
    form.check(&session)?;
    let (ha, detail, decision) = find(&site, &session, &id, &word).await?;
    let host = detail.summary.host.as_str();
    if meaning(decision).written && form.confirm.trim() != host {
        return Err(Error::Incomplete(
            "Write the name of the host to confirm. Nothing was done.",
        ));
    }
    ha.decide(&id, &word, &session.user, form.reason()?, host).await?;
    tracing::info!(user = session.user, incident = id, "decided: {word}");
    Ok(Redirect::to(&format!("/incidents/{id}")).into_response())
}

/// Where a pause applies.
#[derive(Deserialize)]
struct Scope {
    scope: String,
}

impl Scope {
    /// The scope in words, if it is one that people choose here or see in the list.
    fn words(&self) -> Result<String, Error> {
        let plain = |name: &str| {
            !name.is_empty()
                && name
                    .bytes()
                    .all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte))
        };
        match self.scope.split_once('/') {
            None if self.scope == "global" => Ok("everywhere".into()),
            Some((kind @ ("zone" | "bb" | "host" | "vm"), name)) if plain(name) => {
                Ok(format!("for {kind} {name}"))
            }
            _ => Err(Error::NotFound {
                kind: "scope",
                name: self.scope.clone(),
            }),
        }
    }
}

async fn ask_pause(SignedIn(session): SignedIn, Query(scope): Query<Scope>) -> Result<Response, Error> {
    session.need(Right::ChangeHypervisors).await?;
    Question {
        title: &format!("Pause recovery {}?", scope.words()?),
        text: "No host is fenced and no guest is moved anew until the pause ends. What is under way goes on, and failures \
               are still noticed.",
        action: &format!("/pauses/begin?scope={}", scope.scope),
        back: "/incidents",
        csrf: &session.csrf,
        verb: "Pause recovery",
        reason: true,
        spans: &SPANS,
        dangerous: true,
        ..Question::default()
    }
    .ask(&session)
}

async fn pause(
    State(site): State<Site>,
    SignedIn(session): SignedIn,
    Query(scope): Query<Scope>,
    Form(form): Form<Confirmed>,
) -> Result<Response, Error> {
    form.check(&session)?;
    session.need(Right::ChangeHypervisors).await?;
    scope.words()?;
    let minutes = form
        .minutes
        .filter(|wanted| SPANS.iter().any(|(minutes, _)| minutes == wanted))
        .ok_or(Error::Incomplete("Say for how long."))?;
    let ha = site.ha.as_ref().ok_or(Error::NoHa)?;
    // A moment less than the longest the service allows, whatever its clock says.
    let until = Timestamp::now() + SignedDuration::from_secs(minutes * 60 - 30);
    ha.pause(&scope.scope, &session.user, form.reason()?, until)
        .await?;
    tracing::info!(user = session.user, scope = scope.scope, "paused recovery");
    Ok(Redirect::to("/incidents").into_response())
}

async fn ask_resume(SignedIn(session): SignedIn, Query(scope): Query<Scope>) -> Result<Response, Error> {
    session.need(Right::ChangeHypervisors).await?;
    Question {
        title: &format!("End the pause {}?", scope.words()?),
        text: "Recovery goes on: hosts that are down are fenced and their guests are moved.",
        action: &format!("/pauses/end?scope={}", scope.scope),
        back: "/incidents",
        csrf: &session.csrf,
        verb: "End the pause",
        ..Question::default()
    }
    .ask(&session)
}

async fn resume(
    State(site): State<Site>,
    SignedIn(session): SignedIn,
    Query(scope): Query<Scope>,
    Form(form): Form<Confirmed>,
) -> Result<Response, Error> {
    form.check(&session)?;
    session.need(Right::ChangeHypervisors).await?;
    scope.words()?;
    let ha = site.ha.as_ref().ok_or(Error::NoHa)?;
    ha.resume(&scope.scope).await?;
    tracing::info!(user = session.user, scope = scope.scope, "ended a pause");
    Ok(Redirect::to("/incidents").into_response())
}
