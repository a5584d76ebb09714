// SPDX-License-Identifier: Apache-2.0
//! What a person can do. Every action is first explained on a page of its own and then carried
//! out under the person's own identity, so that Kubernetes decides and its audit log names
//! them.

use askama::Template;
use axum::Router;
use axum::extract::{Form, Path, State};
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::get;
use cobaltcore_api::EvictionSpec;
use cobaltcore_api::annotations;
use cobaltcore_api::{Eviction, Hypervisor};
use jiff::Timestamp;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::error::Error;
use crate::page;
use crate::session::{Right, Session, within};
use crate::site::{Name, SignedIn, Site};

const MANAGER: &str = "cobaltcore-console";
const MOST_REASON: usize = 200;

/// What can be done, with one address each.
pub(crate) fn router() -> Router<Site> {
    Router::new()
        .route(
            "/hypervisors/{name}/maintenance/enter",
            get(ask_enter).post(enter),
        )
        .route(
            "/hypervisors/{name}/maintenance/leave",
            get(ask_leave).post(leave),
        )
        .route("/hypervisors/{name}/evict", get(ask_evict).post(evict))
        .route("/hypervisors/{name}/onboard", get(ask_onboard).post(onboard))
        .route("/evictions/{name}/retry", get(ask_retry).post(retry))
        .route("/evictions/{name}/cancel", get(ask_cancel).post(cancel))
}

/// A form of ours.
#[derive(Deserialize)]
pub(crate) struct Confirmed {
    csrf: String,
    #[serde(default)]
    reason: String,
    /// The name of the host, written out.
    #[serde(default)]
    pub(crate) confirm: String,
    /// For how long.
    #[serde(default)]
    pub(crate) minutes: Option<i64>,
}

impl Confirmed {
    /// Refuses forms that did not come from a page of this session.
    pub(crate) fn check(&self, session: &Session) -> Result<(), Error> {
        if cobaltcore_kit::auth::equal(self.csrf.as_bytes(), session.csrf.as_bytes()) {
            Ok(())
        } else {
            Err(Error::Forged)
        }
    }

    pub(crate) fn reason(&self) -> Result<&str, Error> {
        match self.reason.trim() {
            "" => Err(Error::Incomplete(
                "Give a reason; the people after you will read it.",
            )),
            reason if reason.chars().count() > MOST_REASON => {
                Err(Error::Incomplete("The reason is longer than 200 characters."))
            }
            reason => Ok(reason),
        }
    }
}

#[derive(Template)]
#[template(path = "confirm.html")]
pub(crate) struct Question<'a> {
    pub(crate) title: &'a str,
    pub(crate) text: &'a str,
    pub(crate) action: &'a str,
    pub(crate) back: &'a str,
    pub(crate) csrf: &'a str,
    pub(crate) verb: &'a str,
    pub(crate) reason: Option<&'a str>,
    /// What has to be written out.
    pub(crate) confirm: Option<&'a str>,
    /// Minutes to choose from, in words.
    pub(crate) spans: &'a [(i64, &'a str)],
    pub(crate) dangerous: bool,
}

impl Question<'_> {
    /// The page that asks.
    pub(crate) fn ask(&self, session: &Session) -> Result<Response, Error> {
        page::page(session, self.title, "", None, "", &self.render()?)
    }
}

/// What is asked before an action on a host.
struct Asked {
    right: Right,
    step: &'static str,
    title: &'static str,
    text: &'static str,
    verb: &'static str,
    reason: Option<&'static str>,
    dangerous: bool,
}

async fn ask(
    site: &Site,
    session: &Session,
    kind: &'static str,
    name: &str,
    asked: Asked,
) -> Result<Response, Error> {
    session.need(asked.right).await?;
    let (known, back) = match kind {
        "eviction" => (
            site.fleet.known().evictions.get(name).is_some(),
            "/evictions".to_owned(),
        ),
        _ => (
            site.fleet.known().hypervisors.get(name).is_some(),
            format!("/hypervisors/{name}"),
        ),
    };
    if !known {
        return Err(Error::NotFound {
            kind,
            name: name.to_owned(),
        });
    }
    let title = format!("{} {name}?", asked.title);
    let question = Question {
        title: &title,
        text: asked.text,
        action: &format!("/{kind}s/{name}/{}", asked.step),
        back: &back,
        csrf: &session.csrf,
        verb: asked.verb,
        reason: asked.reason,
        confirm: None,
        spans: &[],
        dangerous: asked.dangerous,
    };
    question.ask(session)
}

async fn ask_enter(
    State(site): State<Site>,
    SignedIn(session): SignedIn,
    Path(name): Name,
) -> Result<Response, Error> {
    let asked = Asked {
        right: Right::ChangeHypervisors,
        step: "maintenance/enter",
        title: "Maintenance of",
        text: "The host leaves scheduling. Its guests stay; evict it to move them away.",
        verb: "Start maintenance",
        reason: Some("Reason"),
        dangerous: false,
    };
    ask(&site, &session, "hypervisor", &name, asked).await
}

async fn ask_leave(
    State(site): State<Site>,
    SignedIn(session): SignedIn,
    Path(name): Name,
) -> Result<Response, Error> {
    let asked = Asked {
        right: Right::ChangeHypervisors,
        step: "maintenance/leave",
        title: "End maintenance of",
        text: "The operator gives the host back to scheduling once it is healthy.",
        verb: "End maintenance",
        reason: None,
        dangerous: false,
    };
    ask(&site, &session, "hypervisor", &name, asked).await
}

async fn ask_evict(
    State(site): State<Site>,
    SignedIn(session): SignedIn,
    Path(name): Name,
) -> Result<Response, Error> {
    let asked = Asked {
        right: Right::CreateEvictions,
        step: "evict",
        title: "Evict",
        text: "The host leaves scheduling and every guest is moved to another host by live migration, a few at a time.",
        verb: "Evict",
        reason: Some("Reason"),
        dangerous: true,
    };
    ask(&site, &session, "hypervisor", &name, asked).await
}

async fn ask_onboard(
    State(site): State<Site>,
    SignedIn(session): SignedIn,
    Path(name): Name,
) -> Result<Response, Error> {
    let asked = Asked {
        right: Right::ChangeHypervisors,
        step: "onboard",
        title: "Onboard again:",
        text: "The operator starts from the beginning, with a new test server.",
        verb: "Onboard again",
        reason: None,
        dangerous: false,
    };
    ask(&site, &session, "hypervisor", &name, asked).await
}

async fn ask_retry(
    State(site): State<Site>,
    SignedIn(session): SignedIn,
    Path(name): Name,
) -> Result<Response, Error> {
    let asked = Asked {
        right: Right::ChangeEvictions,
        step: "retry",
        title: "Try again:",
        text: "Servers that were given up on are tried again.",
        verb: "Try again",
        reason: None,
        dangerous: false,
    };
    ask(&site, &session, "eviction", &name, asked).await
}

async fn ask_cancel(
    State(site): State<Site>,
    SignedIn(session): SignedIn,
    Path(name): Name,
) -> Result<Response, Error> {
    let asked = Asked {
        right: Right::DeleteEvictions,
        step: "cancel",
        title: "Take back",
        text: "No further server is moved. Those on their way arrive.",
        verb: "Take back",
        reason: None,
        dangerous: true,
    };
    ask(&site, &session, "eviction", &name, asked).await
}

async fn enter(
    SignedIn(session): SignedIn,
    Path(name): Name,
    Form(form): Form<Confirmed>,
) -> Result<Response, Error> {
    form.check(&session)?;
    let change = json!({"spec": {"maintenance": "manual", "maintenanceReason": form.reason()?}});
    patch_host(&session, &name, &change, "start the maintenance").await
}

async fn leave(
    SignedIn(session): SignedIn,
    Path(name): Name,
    Form(form): Form<Confirmed>,
) -> Result<Response, Error> {
    form.check(&session)?;
    let change = json!({"spec": {"maintenance": null, "maintenanceReason": null}});
    patch_host(&session, &name, &change, "end the maintenance").await
}

async fn onboard(
    SignedIn(session): SignedIn,
    Path(name): Name,
    Form(form): Form<Confirmed>,
) -> Result<Response, Error> {
    form.check(&session)?;
    let change = json!({"metadata": {"annotations": {annotations::RESTART_ONBOARDING.as_str(): Timestamp::now().to_string()}}});
    patch_host(&session, &name, &change, "start the onboarding").await
}

async fn patch_host(
    session: &Session,
    name: &str,
    change: &Value,
    what: &'static str,
) -> Result<Response, Error> {
    let hosts: Api<Hypervisor> = Api::all(session.client());
    let params = PatchParams {
        field_manager: Some(MANAGER.into()),
        ..PatchParams::default()
    };
    within(what, hosts.patch(name, &params, &Patch::Merge(change))).await?;
    tracing::info!(user = session.user, hypervisor = name, "asked to {what}");
    Ok(Redirect::to(&format!("/hypervisors/{name}")).into_response())
}

async fn evict(
    SignedIn(session): SignedIn,
    Path(name): Name,
    Form(form): Form<Confirmed>,
) -> Result<Response, Error> {
    form.check(&session)?;
    let spec = EvictionSpec {
        hypervisor: name.clone(),
        reason: form.reason()?.to_owned(),
        ..EvictionSpec::default()
    };
    let mut eviction = Eviction::new("", spec);
    eviction.metadata.name = None;
    eviction.metadata.generate_name = Some(format!("{name}-"));
    let params = PostParams {
        field_manager: Some(MANAGER.into()),
        ..PostParams::default()
    };
    let evictions: Api<Eviction> = Api::all(session.client());
    within("create the eviction", evictions.create(&params, &eviction)).await?;
    tracing::info!(user = session.user, hypervisor = name, "asked for an eviction");
    Ok(Redirect::to("/evictions").into_response())
}

async fn retry(
    SignedIn(session): SignedIn,
    Path(name): Name,
    Form(form): Form<Confirmed>,
) -> Result<Response, Error> {
    form.check(&session)?;
    let change =
        json!({"metadata": {"annotations": {annotations::RETRY.as_str(): Timestamp::now().to_string()}}});
    let evictions: Api<Eviction> = Api::all(session.client());
    let params = PatchParams {
        field_manager: Some(MANAGER.into()),
        ..PatchParams::default()
    };
    within(
        "try the eviction again",
        evictions.patch(&name, &params, &Patch::Merge(&change)),
    )
    .await?;
    Ok(Redirect::to("/evictions").into_response())
}

async fn cancel(
    SignedIn(session): SignedIn,
    Path(name): Name,
    Form(form): Form<Confirmed>,
) -> Result<Response, Error> {
    form.check(&session)?;
    let evictions: Api<Eviction> = Api::all(session.client());
    within(
        "take the eviction back",
        evictions.delete(&name, &DeleteParams::default()),
    )
    .await?;
    tracing::info!(user = session.user, eviction = name, "took an eviction back");
    Ok(Redirect::to("/evictions").into_response())
}
