// SPDX-License-Identifier: Apache-2.0
//! Breaking a simulated world on purpose: pull the plug, cut the network, fill a disk, crash a guest, slow the cloud down.
//! Each is asked for on a page of its own. Where the world is real, these addresses lead nowhere.

use axum::Router;
use axum::extract::{Form, Path, Query, State};
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::get;
use serde::Deserialize;

use crate::actions::{Confirmed, Question};
use crate::error::Error;
use crate::faults::{Fault, SwitchTrouble};
use crate::session::Right;
use crate::site::{SignedIn, Site, plain};

/// How slow a service becomes at a button, and what it answers.
const SLOW_MS: u64 = 2_000;
const REFUSAL: u16 = 503;

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
    title: &'static str,
    text: &'static str,
    verb: &'static str,
    /// Whether it breaks something.
    breaks: bool,
}

impl Meaning {
    fn breaking(fault: Fault, title: &'static str, text: &'static str, verb: &'static str) -> Self {
        Self {
            fault,
            title,
            text,
            verb,
            breaks: true,
        }
    }

    fn mending(fault: Fault, title: &'static str, text: &'static str, verb: &'static str) -> Self {
        Self {
            breaks: false,
            ..Self::breaking(fault, title, text, verb)
        }
    }
}

fn meaning(word: &str, name: &str) -> Result<Meaning, Error> {
    let found = of_host(word, name.to_owned())
        .or_else(|| of_switch(word, name.to_owned()))
        .or_else(|| of_guest(word, name.to_owned()))
        .or_else(|| of_cloud(word, name.to_owned()));
    found.ok_or_else(|| Error::NotFound {
        kind: "fault",
        name: word.to_owned(),
    })
}

fn of_host(word: &str, host: String) -> Option<Meaning> {
    Some(match word {
        "kill" => Meaning::breaking(
            Fault::Kill { host },
            "Pull the plug of",
            "The simulated host loses its power at once. Its guests are gone, and nobody is told: whoever should notice has \
             to find out.",
            "Pull the plug",
        ),
        "boot" => Meaning::mending(
            Fault::Boot { host },
            "Give power to",
            "The simulated host boots, which takes a while; then libvirt and nova-compute start.",
            "Give it power",
        ),
        "cut" => Meaning::breaking(
            Fault::Cut { host },
            "Cut the network of",
            "Nobody reaches the simulated host any more. Its guests go on where nobody can see them.",
            "Cut the network",
        ),
        "mend" => Meaning::mending(
            Fault::Mend { host },
            "Mend the network of",
            "The simulated host is reachable again.",
            "Mend the network",
        ),
        "hang-libvirt" => Meaning::breaking(
            Fault::HangLibvirt { host, hangs: true },
            "Hang libvirt of",
            "libvirt accepts connections and answers nothing. Its guests go on.",
            "Hang libvirt",
        ),
        "unhang-libvirt" => Meaning::mending(
            Fault::HangLibvirt { host, hangs: false },
            "Wake libvirt of",
            "libvirt answers again.",
            "Wake libvirt",
        ),
        "fill-disk" => Meaning::breaking(
            Fault::FillDisk { host, full: true },
            "Fill the disk of",
            "Guests that arrive or are made there fail, and its Node is under disk pressure.",
            "Fill the disk",
        ),
        "clear-disk" => Meaning::mending(
            Fault::FillDisk { host, full: false },
            "Clear the disk of",
            "There is room on the disk again.",
            "Clear the disk",
        ),
        "fail-migrations" => Meaning::breaking(
            Fault::FailMigrations { host, fail: true },
            "Break migrations from",
            "Every live migration from this host breaks on its way; the guest goes on where it was.",
            "Break migrations",
        ),
        "mend-migrations" => Meaning::mending(
            Fault::FailMigrations { host, fail: false },
            "Mend migrations from",
            "Live migrations from this host arrive again.",
            "Mend migrations",
        ),
        _ => return None,
    })
}

fn of_switch(word: &str, host: String) -> Option<Meaning> {
    let fault = |trouble| Fault::Switch { host, trouble };
    Some(match word {
        "hang-switch" => Meaning::breaking(
            fault(SwitchTrouble::Hangs(true)),
            "Hang the switch of",
            "ovs-vswitchd accepts connections and answers nothing. Traffic goes on.",
            "Hang the switch",
        ),
        "unhang-switch" => Meaning::mending(
            fault(SwitchTrouble::Hangs(false)),
            "Wake the switch of",
            "ovs-vswitchd answers again.",
            "Wake the switch",
        ),
        "disconnect-ovn" => Meaning::breaking(
            fault(SwitchTrouble::OvnDisconnected(true)),
            "Disconnect ovn-controller of",
            "ovn-controller loses the Southbound database. Guests that are there keep their flows; guests that arrive get \
             none.",
            "Disconnect OVN",
        ),
        "connect-ovn" => Meaning::mending(
            fault(SwitchTrouble::OvnDisconnected(false)),
            "Connect ovn-controller of",
            "ovn-controller finds the Southbound database again.",
            "Connect OVN",
        ),
        "orphan-port" => Meaning::breaking(
            fault(SwitchTrouble::OrphanPort),
            "Leave a port behind on",
            "The switch has a port whose guest and device are gone.",
            "Leave a port behind",
        ),
        "stale-flow" => Meaning::breaking(
            fault(SwitchTrouble::StaleFlow),
            "Leave a flow behind on",
            "The switch has a flow that matches a port that is gone.",
            "Leave a flow behind",
        ),
        "tidy-switch" => Meaning::mending(
            fault(SwitchTrouble::Tidy),
            "Tidy the switch of",
            "Ports and flows that were left behind are cleared away.",
            "Tidy the switch",
        ),
        _ => return None,
    })
}

fn of_guest(word: &str, server: String) -> Option<Meaning> {
    Some(match word {
        "crash" => Meaning::breaking(
            Fault::CrashGuest { server },
            "Crash",
            "The process of this guest dies, as if QEMU had a bug.",
            "Crash the guest",
        ),
        "hang" => Meaning::breaking(
            Fault::HangGuest { server },
            "Hang",
            "This guest does nothing any more while its process lives on.",
            "Hang the guest",
        ),
        _ => return None,
    })
}

fn of_cloud(word: &str, service: String) -> Option<Meaning> {
    let slow = |service, milliseconds| Fault::Slow {
        service,
        milliseconds,
    };
    Some(match word {
        "slow" => Meaning::breaking(
            slow(service, SLOW_MS),
            "Slow down",
            "Every call to this service of the simulated cloud takes two seconds longer.",
            "Slow it down",
        ),
        "refuse" => Meaning::breaking(
            Fault::Refuse {
                service,
                code: REFUSAL,
            },
            "Let refuse everything:",
            "Every call to this service of the simulated cloud is refused with 503.",
            "Refuse calls",
        ),
        "heal" => Meaning::mending(
            slow(service, 0),
            "Heal",
            "This service of the simulated cloud answers as ever.",
            "Heal it",
        ),
        _ => return None,
    })
}

/// Back to what it is about.
fn back(fault: &Fault, from: &Origin) -> String {
    match fault {
        Fault::Kill { host }
        | Fault::Boot { host }
        | Fault::Cut { host }
        | Fault::Mend { host }
        | Fault::HangLibvirt { host, .. }
        | Fault::FillDisk { host, .. }
        | Fault::FailMigrations { host, .. }
        | Fault::Switch { host, .. } => format!("/hypervisors/{host}"),
        Fault::CrashGuest { .. } | Fault::HangGuest { .. } if plain(&from.host) => {
            format!("/hypervisors/{}", from.host)
        }
        _ => "/simulation".into(),
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
        title: &format!("{} {name}?", meaning.title),
        text: meaning.text,
        action: &format!("/simulation/{word}/{name}?host={}", from.host),
        back: &back(&meaning.fault, &from),
        csrf: &session.csrf,
        verb: meaning.verb,
        dangerous: meaning.breaks,
        ..Question::default()
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
