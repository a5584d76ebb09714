// SPDX-License-Identifier: Apache-2.0
//! Breaking a simulated world on purpose: pull the plug, cut the network, crash a guest. Each is asked for on a page of
//! its own. Where the world is real, these addresses lead nowhere.

use axum::Router;
use axum::extract::{Form, Path, Query, State};
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::get;
use serde::Deserialize;

use crate::actions::{Confirmed, Question};
use crate::error::Error;
use crate::faults::Fault;
use crate::session::Right;
use crate::site::{SignedIn, Site};

/// Faults, with one address each.
pub(crate) fn router() -> Router<Site> {
    Router::new().route("/simulation/{fault}/{name}", get(ask).post(inject))
}

/// Where to go back to, for faults of guests.
#[derive(Deserialize)]
struct Origin {
    #[serde(default)]
    host: String,
}

/// A fault with what it means.
struct Meaning {
    fault: Fault,
    title: String,
    text: &'static str,
    verb: &'static str,
    dangerous: bool,
}

fn meaning(word: &str, name: &str) -> Result<Meaning, Error> {
    let host = name.to_owned();
    let (fault, title, text, verb, dangerous) = match word {
        "kill" => (
            Fault::Kill { host },
            "Pull the plug of",
            "The simulated host loses its power at once. Its guests are gone, and nobody is told: whoever should notice has \
             to find out.",
            "Pull the plug",
            true,
        ),
        "boot" => (
            Fault::Boot { host },
            "Give power to",
            "The simulated host boots, which takes a while; then libvirt and nova-compute start.",
            "Give it power",
            false,
        ),
        "cut" => (
            Fault::Cut { host },
            "Cut the network of",
            "Nobody reaches the simulated host any more. Its guests go on where nobody can see them.",
            "Cut the network",
            true,
        ),
        "mend" => (
            Fault::Mend { host },
            "Mend the network of",
            "The simulated host is reachable again.",
            "Mend the network",
            false,
        ),
        "crash" => (
            Fault::CrashGuest { server: host },
            "Crash",
            "The process of this guest dies, as if QEMU had a bug.",
            "Crash the guest",
            true,
        ),
        _ => {
            return Err(Error::NotFound {
                kind: "fault",
                name: word.to_owned(),
            });
        }
    };
    Ok(Meaning {
        fault,
        title: format!("{title} {name}?"),
        text,
        verb,
        dangerous,
    })
}

/// Back to the host that it is about.
fn back(fault: &Fault, from: &Origin) -> String {
    match fault {
        Fault::Kill { host } | Fault::Boot { host } | Fault::Cut { host } | Fault::Mend { host } => {
            format!("/hypervisors/{host}")
        }
        Fault::CrashGuest { .. }
            if from
                .host
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b"-._".contains(&b)) =>
        {
            format!("/hypervisors/{}", from.host)
        }
        Fault::CrashGuest { .. } => "/".into(),
    }
}

async fn ask(
    State(site): State<Site>,
    SignedIn(session): SignedIn,
    Path((word, name)): Path<(String, String)>,
    Query(from): Query<Origin>,
) -> Result<Response, Error> {
    site.faults.as_ref().ok_or(Error::NoFaults)?;
    session.need(Right::ChangeHypervisors).await?;
    let meaning = meaning(&word, &name)?;
    Question {
        title: &meaning.title,
        text: meaning.text,
        action: &format!("/simulation/{word}/{name}?host={}", from.host),
        back: &back(&meaning.fault, &from),
        csrf: &session.csrf,
        verb: meaning.verb,
        reason: None,
        confirm: None,
        spans: &[],
        dangerous: meaning.dangerous,
    }
    .ask(&session)
}

async fn inject(
    State(site): State<Site>,
    SignedIn(session): SignedIn,
    Path((word, name)): Path<(String, String)>,
    Query(from): Query<Origin>,
    Form(form): Form<Confirmed>,
) -> Result<Response, Error> {
    form.check(&session)?;
    let faults = site.faults.clone().ok_or(Error::NoFaults)?;
    session.need(Right::ChangeHypervisors).await?;
    let meaning = meaning(&word, &name)?;
    let to = back(&meaning.fault, &from);
    // A world may have to be on disk before it answers.
    let done = tokio::task::spawn_blocking(move || faults.inject(&meaning.fault)).await;
    let text = done
        .map_err(|_| Error::Fault("it broke while it tried".into()))?
        .map_err(Error::Fault)?;
    tracing::info!(user = session.user, "broke the simulation on purpose: {text}");
    Ok(Redirect::to(&to).into_response())
}
