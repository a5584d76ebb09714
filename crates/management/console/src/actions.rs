// SPDX-License-Identifier: Apache-2.0
//! What a person can do. Every action is first explained on a page of its own and then carried
//! out under the person's own identity, so that Kubernetes decides and its audit log names
//! them.

use askama::Template;
use axum::Router;
use axum::extract::{Form, Path, State};
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::get;
use cobaltcore_api::annotations;
use cobaltcore_api::{Eviction, EvictionSpec, Hypervisor};
use jiff::Timestamp;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::error::Error;
use crate::page;
use crate::session::{Right, Session, within};
use crate::site::{Name, SignedIn, Site};

const MANAGER: &str = "cobaltcore-console";
const MOST_REASON: usize = 200;

/// What can be done with a host or an eviction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Enter,
    Leave,
    Evict,
    Onboard,
    Retry,
    Cancel,
}

/// What an action is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Subject {
    Hypervisor,
    Eviction,
}

/// What is asked before an action.
struct Asked {
    subject: Subject,
    right: Right,
    /// The last part of its address.
    step: &'static str,
    title: &'static str,
    text: &'static str,
    verb: &'static str,
    reason: bool,
    dangerous: bool,
}

impl Action {
    const ALL: [Self; 6] = [
        Self::Enter,
        Self::Leave,
        Self::Evict,
        Self::Onboard,
        Self::Retry,
        Self::Cancel,
    ];

    fn asked(self) -> Asked {
        match self {
            Self::Enter => Asked {
                subject: Subject::Hypervisor,
                right: Right::ChangeHypervisors,
                step: "maintenance/enter",
                title: "Maintenance of",
                text: "The host leaves scheduling at once, and every guest is moved to another host by live migration, \
                       a few at a time. It stays out until maintenance is ended.",
                verb: "Start maintenance",
                reason: true,
                dangerous: false,
            },
            Self::Leave => Asked {
                subject: Subject::Hypervisor,
                right: Right::ChangeHypervisors,
                step: "maintenance/leave",
                title: "End maintenance of",
                text: "The operator gives the host back to scheduling once it is healthy. Guests that were moved away stay \
                       where they are.",
                verb: "End maintenance",
                reason: false,
                dangerous: false,
            },
            Self::Evict => Asked {
                subject: Subject::Hypervisor,
                right: Right::CreateEvictions,
                step: "evict",
                title: "Evict",
                text: "The host leaves scheduling and every guest is moved to another host by live migration, a few at a \
                       time. It stays out until the eviction is removed.",
                verb: "Evict",
                reason: true,
                dangerous: true,
            },
            Self::Onboard => Asked {
                subject: Subject::Hypervisor,
                right: Right::ChangeHypervisors,
                step: "onboard",
                title: "Onboard again:",
                text: "The operator starts from the beginning, with a new test server.",
                verb: "Onboard again",
                reason: false,
                dangerous: false,
            },
            Self::Retry => Asked {
                subject: Subject::Eviction,
                right: Right::ChangeEvictions,
                step: "retry",
                title: "Try again:",
                text: "Servers that were given up on are tried again.",
                verb: "Try again",
                reason: false,
                dangerous: false,
            },
            Self::Cancel => Asked {
                subject: Subject::Eviction,
                right: Right::DeleteEvictions,
                step: "cancel",
                title: "Take back",
                text: "No further server is moved; those on their way arrive. The host takes servers again unless it is in \
                       maintenance.",
                verb: "Take back",
                reason: false,
                dangerous: true,
            },
        }
    }
}

impl Subject {
    /// What it is called, in addresses and in words.
    fn kind(self) -> &'static str {
        match self {
            Self::Hypervisor => "hypervisor",
            Self::Eviction => "eviction",
        }
    }

    fn is_known(self, site: &Site, name: &str) -> bool {
        let known = site.fleet.known();
        match self {
            Self::Hypervisor => known.hypervisors.get(name).is_some(),
            Self::Eviction => known.evictions.get(name).is_some(),
        }
    }

    /// The page that shows it.
    fn page(self, name: &str) -> String {
        match self {
            Self::Hypervisor => format!("/hypervisors/{name}"),
            Self::Eviction => "/evictions".into(),
        }
    }
}

/// What can be done, with one address each.
pub(crate) fn router() -> Router<Site> {
    Action::ALL.into_iter().fold(Router::new(), |router, action| {
        let Asked { subject, step, .. } = action.asked();
        let ask = move |site: State<Site>, who: SignedIn, name: Name| ask(action, site, who, name);
        let act = move |who: SignedIn, name: Name, form: Form<Confirmed>| act(action, who, name, form);
        router.route(
            &format!("/{}s/{{name}}/{step}", subject.kind()),
            get(ask).post(act),
        )
    })
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

/// What is asked before anything happens. Beyond the words and the way back everything is left out unless it is needed.
#[derive(Default, Template)]
#[template(path = "confirm.html")]
pub(crate) struct Question<'a> {
    pub(crate) title: &'a str,
    pub(crate) text: &'a str,
    pub(crate) action: &'a str,
    pub(crate) back: &'a str,
    pub(crate) csrf: &'a str,
    pub(crate) verb: &'a str,
    /// Whether a reason has to be given.
    pub(crate) reason: bool,
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

async fn ask(
    action: Action,
    State(site): State<Site>,
    SignedIn(session): SignedIn,
    Path(name): Name,
) -> Result<Response, Error> {
    let asked = action.asked();
    session.need(asked.right).await?;
    let (kind, step) = (asked.subject.kind(), asked.step);
    if !asked.subject.is_known(&site, &name) {
        return Err(Error::NotFound { kind, name });
    }
    Question {
        title: &format!("{} {name}?", asked.title),
        text: asked.text,
        action: &format!("/{kind}s/{name}/{step}"),
        back: &asked.subject.page(&name),
        csrf: &session.csrf,
        verb: asked.verb,
        reason: asked.reason,
        dangerous: asked.dangerous,
        ..Question::default()
    }
    .ask(&session)
}

async fn act(
    action: Action,
    SignedIn(session): SignedIn,
    Path(name): Name,
    Form(form): Form<Confirmed>,
) -> Result<Response, Error> {
    form.check(&session)?;
    let to = match action {
        Action::Enter => {
            let change = json!({"spec": {"maintenance": "manual", "maintenanceReason": form.reason()?}});
            patch::<Hypervisor>(&session, &name, &change, "start the maintenance").await?;
            Subject::Hypervisor.page(&name)
        }
        Action::Leave => {
            let change = json!({"spec": {"maintenance": null, "maintenanceReason": null}});
            patch::<Hypervisor>(&session, &name, &change, "end the maintenance").await?;
            Subject::Hypervisor.page(&name)
        }
        Action::Onboard => {
            let change = noted(annotations::RESTART_ONBOARDING);
            patch::<Hypervisor>(&session, &name, &change, "start the onboarding").await?;
            Subject::Hypervisor.page(&name)
        }
        Action::Retry => {
            let change = noted(annotations::RETRY);
            patch::<Eviction>(&session, &name, &change, "try the eviction again").await?;
            Subject::Eviction.page(&name)
        }
        Action::Evict => {
            evict(&session, &name, form.reason()?).await?;
            Subject::Eviction.page(&name)
        }
        Action::Cancel => {
            let evictions: Api<Eviction> = Api::all(session.client());
            let how = DeleteParams::default();
            within("take the eviction back", evictions.delete(&name, &how)).await?;
            Subject::Eviction.page(&name)
        }
    };
    tracing::info!(user = session.user, name, "asked for: {}", action.asked().verb);
    Ok(Redirect::to(&to).into_response())
}

/// A wish that is told by an annotation with the time.
fn noted(annotation: cobaltcore_api::Key) -> Value {
    json!({"metadata": {"annotations": {annotation.as_str(): Timestamp::now().to_string()}}})
}

async fn patch<K>(session: &Session, name: &str, change: &Value, what: &'static str) -> Result<(), Error>
where
    K: kube::Resource<DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug,
{
    let objects: Api<K> = Api::all(session.client());
    let params = PatchParams {
        field_manager: Some(MANAGER.into()),
        ..PatchParams::default()
    };
    within(what, objects.patch(name, &params, &Patch::Merge(change))).await?;
    Ok(())
}

async fn evict(session: &Session, host: &str, reason: &str) -> Result<(), Error> {
    let spec = EvictionSpec {
        hypervisor: host.to_owned(),
        reason: reason.to_owned(),
        ..EvictionSpec::default()
    };
    let mut eviction = Eviction::new("", spec);
    eviction.metadata.name = None;
    eviction.metadata.generate_name = Some(format!("{host}-"));
    let params = PostParams {
        field_manager: Some(MANAGER.into()),
        ..PostParams::default()
    };
    let evictions: Api<Eviction> = Api::all(session.client());
    within("create the eviction", evictions.create(&params, &eviction)).await?;
    Ok(())
}
