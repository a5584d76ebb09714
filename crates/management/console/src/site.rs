// SPDX-License-Identifier: Apache-2.0
//! The addresses of the console: who asks, may they, which view. Reading works without
//! JavaScript; every page has an address that can be sent to a colleague.

use std::sync::Arc;

use askama::Template;
use axum::Router;
use axum::extract::{DefaultBodyLimit, Form, FromRequestParts, Path, Query, State};
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::{get, post};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, header};
use jiff::Timestamp;
use serde::Deserialize;

use crate::error::Error;
use crate::faults::Faults;
use crate::fleet::{Fleet, Known};
use crate::ha::Ha;
use crate::session::{Allowed, Right, Session, Sessions};
use crate::views::activity::{Activity, Feed};
use crate::views::capacity::Capacity;
use crate::views::evictions::Evictions;
use crate::views::host::Host;
use crate::views::hosts::{Hosts, Wanted};
use crate::views::incidents::{Incident, Incidents};
use crate::views::migrations::Migrations;
use crate::views::simulation::Simulation;
use crate::views::tiles::Tiles;
use crate::{actions, assets, decisions, live, page, simulation};

const COOKIE: &str = "cobaltcore-session";
const MOST_BODY: usize = 64 * 1024;
const FEED: usize = 200;

/// What every handler needs.
#[derive(Clone)]
pub(crate) struct Site {
    pub(crate) fleet: Fleet,
    pub(crate) sessions: Arc<Sessions>,
    /// The HA service, if there is one.
    pub(crate) ha: Option<Ha>,
    /// What can be broken on purpose, in a simulation.
    pub(crate) faults: Option<Arc<dyn Faults>>,
    /// Whether browsers reach the console over TLS.
    pub(crate) secure: bool,
}

/// All addresses.
pub(crate) fn router(site: Site) -> Router {
    Router::new()
        .route("/", get(show))
        .route("/hypervisors", get(show))
        .route("/hypervisors/{name}", get(show))
        .route("/evictions", get(show))
        .route("/migrations", get(show))
        .route("/incidents", get(show))
        .route("/incidents/{id}", get(show))
        .route("/capacity", get(show))
        .route("/activity", get(show))
        .route("/simulation", get(show))
        .route("/live", get(live::stream))
        .route("/sign-in", get(sign_in_page).post(sign_in))
        .route("/sign-out", post(sign_out))
        .merge(actions::router())
        .merge(decisions::router())
        .merge(simulation::router())
        .route("/assets/{name}", get(assets::serve))
        .fallback(|| async {
            Error::NotFound {
                kind: "page",
                name: "here".into(),
            }
        })
        .layer(DefaultBodyLimit::max(MOST_BODY))
        .layer(axum::middleware::map_response(page::guarded))
        .with_state(site)
}

/// Somebody who is signed in; everybody else is asked to.
pub(crate) struct SignedIn(pub(crate) Arc<Session>);

impl FromRequestParts<Site> for SignedIn {
    type Rejection = Redirect;

    async fn from_request_parts(parts: &mut Parts, site: &Site) -> Result<Self, Redirect> {
        let session = key(&parts.headers).and_then(|key| site.sessions.get(key));
        session.map(Self).ok_or_else(|| {
            let there = parts.uri.path_and_query().map_or("/", |there| there.as_str());
            Redirect::to(&format!("/sign-in?next={}", encode(there)))
        })
    }
}

/// The key of the session in the cookies of a request.
fn key(headers: &HeaderMap) -> Option<&str> {
    headers
        .get_all(header::COOKIE)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(';'))
        .filter_map(|pair| pair.trim().split_once('='))
        .find_map(|(name, value)| (name == COOKIE).then_some(value))
}

fn encode(text: &str) -> String {
    text.bytes()
        .map(|byte| match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => {
                char::from(byte).to_string()
            }
            other => format!("%{other:02X}"),
        })
        .collect()
}

/// A page that shows something of the fleet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Fleet,
    Hosts(Wanted),
    Host(String),
    Evictions,
    Migrations,
    Incidents,
    Incident(String),
    Capacity,
    Activity(Feed),
    Simulation,
}

impl Place {
    /// The place of an address.
    pub(crate) fn at(uri: &http::Uri) -> Option<Self> {
        Some(match uri.path() {
            "/" => Self::Fleet,
            "/hypervisors" => Self::Hosts(query(uri)),
            "/evictions" => Self::Evictions,
            "/migrations" => Self::Migrations,
            "/incidents" => Self::Incidents,
            "/capacity" => Self::Capacity,
            "/activity" => Self::Activity(query(uri)),
            "/simulation" => Self::Simulation,
            path => {
                let named = |place| path.strip_prefix(place).filter(|name| plain(name));
                match named("/hypervisors/") {
                    Some(host) => Self::Host(host.to_owned()),
                    None => Self::Incident(named("/incidents/")?.to_owned()),
                }
            }
        })
    }

    /// What one needs to be there.
    pub(crate) fn rights(&self) -> &'static [Right] {
        match self {
            // The HA service speaks of hypervisors; whoever may see those may see what became of them.
            Self::Fleet
            | Self::Hosts(_)
            | Self::Host(_)
            | Self::Capacity
            | Self::Incidents
            | Self::Incident(_)
            | Self::Simulation => &[Right::Hypervisors],
            Self::Evictions => &[Right::Evictions],
            Self::Migrations => &[Right::Migrations],
            Self::Activity(_) => &[Right::Events],
        }
    }

    fn title(&self) -> &str {
        match self {
            Self::Fleet => "Fleet",
            Self::Hosts(_) => "Hypervisors",
            Self::Host(name) | Self::Incident(name) => name,
            Self::Incidents => "Incidents",
            Self::Evictions => "Evictions",
            Self::Migrations => "Migrations",
            Self::Capacity => "Capacity",
            Self::Activity(_) => "Activity",
            Self::Simulation => "Simulation",
        }
    }

    fn tab(&self) -> &'static str {
        match self {
            Self::Fleet => "/",
            Self::Hosts(_) | Self::Host(_) => "/hypervisors",
            Self::Evictions => "/evictions",
            Self::Migrations => "/migrations",
            Self::Incidents | Self::Incident(_) => "/incidents",
            Self::Capacity => "/capacity",
            Self::Activity(_) => "/activity",
            Self::Simulation => "/simulation",
        }
    }

    /// Asks for what a page needs beyond what is followed anyway.
    pub(crate) async fn prepare(&self, site: &Site) -> Result<(), Error> {
        if let Self::Incident(id) = self {
            let ha = site.ha.as_ref().ok_or(Error::NoHa)?;
            ha.look_at(id).await?;
        }
        Ok(())
    }

    /// The content of the page.
    pub(crate) fn content(
        &self,
        site: &Site,
        known: &Known,
        allowed: Allowed,
        now: Timestamp,
    ) -> Result<String, Error> {
        let nothing = |kind, name: &str| Error::NotFound {
            kind,
            name: name.to_owned(),
        };
        Ok(match self {
            Self::Fleet => Tiles::of(known).render()?,
            Self::Hosts(wanted) => Hosts::of(known, wanted.clone(), now).render()?,
            Self::Host(name) => {
                let truth = site.faults.as_ref().and_then(|faults| faults.truth(name));
                let host = Host::of(known, name, truth, allowed, now);
                host.ok_or_else(|| nothing("hypervisor", name))?.render()?
            }
            Self::Incidents => Incidents::of(known, allowed, now).render()?,
            Self::Incident(id) => {
                let incident = Incident::of(known, id, allowed, now);
                incident.ok_or_else(|| nothing("incident", id))?.render()?
            }
            Self::Evictions => Evictions::of(known, allowed, now).render()?,
            Self::Migrations => Migrations::of(known, now, |_| true).render()?,
            Self::Capacity => Capacity::of(known).render()?,
            Self::Activity(feed) => {
                let mut page = Activity::of(known, now, FEED, |entry| feed.wants(entry));
                page.feed = feed.clone();
                page.render()?
            }
            Self::Simulation => {
                let faults = site.faults.as_ref().ok_or(Error::NoFaults)?;
                Simulation::of(faults.as_ref(), allowed.change_hypervisors).render()?
            }
        })
    }
}

/// What follows the question mark; what is not understood is not wished for.
fn query<T: serde::de::DeserializeOwned + Default>(uri: &http::Uri) -> T {
    Query::try_from_uri(uri)
        .map(|Query(wanted)| wanted)
        .unwrap_or_default()
}

/// Names of hosts are DNS names; nothing else is worth looking up.
pub(crate) fn plain(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= 253
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte))
}

/// Why what is shown may be old, in one sentence.
pub(crate) fn trouble(known: &Known) -> String {
    let all = [
        ("hypervisors", &known.hypervisors.trouble),
        ("evictions", &known.evictions.trouble),
        ("migrations", &known.migrations.trouble),
        ("events", &known.events.trouble),
        ("incidents", &known.incidents.trouble),
    ];
    let worst = all
        .iter()
        .find_map(|(what, trouble)| trouble.as_ref().map(|(since, text)| (what, since, text)));
    worst.map_or_else(String::new, |(what, since, text)| {
        format!(
            "The {what} shown here are as of {}; the console tries again: {text}",
            crate::views::moment(*since)
        )
    })
}

async fn show(
    State(site): State<Site>,
    SignedIn(session): SignedIn,
    uri: http::Uri,
) -> Result<Response, Error> {
    let place = Place::at(&uri).ok_or_else(|| Error::NotFound {
        kind: "page",
        name: uri.path().to_owned(),
    })?;
    for right in place.rights() {
        session.need(*right).await?;
    }
    place.prepare(&site).await?;
    let allowed = session.allowed().await;
    let (content, trouble) = {
        let known = site.fleet.known();
        (
            place.content(&site, &known, allowed, Timestamp::now())?,
            trouble(&known),
        )
    };
    let here = uri.path_and_query().map_or("/", |there| there.as_str());
    page::page(
        &session,
        place.title(),
        place.tab(),
        Some(here),
        &trouble,
        &content,
    )
}

#[derive(Deserialize)]
struct Next {
    #[serde(default)]
    next: String,
}

#[derive(Template)]
#[template(path = "sign_in.html")]
struct SignIn<'a> {
    next: &'a str,
    trouble: &'a str,
}

async fn sign_in_page(Query(Next { next }): Query<Next>) -> Result<Response, Error> {
    page::outside(
        "Sign in",
        &SignIn {
            next: &next,
            trouble: "",
        }
        .render()?,
    )
}

#[derive(Deserialize)]
struct Credentials {
    token: String,
    #[serde(default)]
    next: String,
}

async fn sign_in(State(site): State<Site>, Form(given): Form<Credentials>) -> Result<Response, Error> {
    let (key, _) = match site.sessions.open(&given.token).await {
        Ok(opened) => opened,
        Err(Error::NotKnown) => {
            let trouble = Error::NotKnown.to_string();
            let again = SignIn {
                next: &given.next,
                trouble: &trouble,
            };
            let answer = page::outside("Sign in", &again.render()?)?;
            return Ok((http::StatusCode::UNAUTHORIZED, answer).into_response());
        }
        Err(error) => return Err(error),
    };
    // Only our own addresses: `//elsewhere` and `/\elsewhere` are other people's.
    let own = given.next.starts_with('/') && !given.next.starts_with("//") && !given.next.contains('\\');
    let target = if own { given.next.as_str() } else { "/" };
    let mut answer = Redirect::to(target).into_response();
    set_cookie(&mut answer, &site, &key, "");
    Ok(answer)
}

async fn sign_out(
    State(site): State<Site>,
    SignedIn(session): SignedIn,
    headers: HeaderMap,
    Form(form): Form<actions::Confirmed>,
) -> Result<Response, Error> {
    form.check(&session)?;
    if let Some(key) = key(&headers) {
        site.sessions.close(key);
    }
    let mut answer = Redirect::to("/sign-in").into_response();
    set_cookie(&mut answer, &site, "", "; Max-Age=0");
    Ok(answer)
}

fn set_cookie(answer: &mut Response, site: &Site, key: &str, more: &str) {
    let secure = if site.secure { "; Secure" } else { "" };
    let cookie = format!("{COOKIE}={key}; Path=/; HttpOnly; SameSite=Strict{secure}{more}");
    if let Ok(value) = HeaderValue::from_str(&cookie) {
        answer.headers_mut().insert(header::SET_COOKIE, value);
    }
}

/// A name in an address.
pub(crate) type Name = Path<String>;

#[cfg(test)]
mod tests {
    use super::*;

    fn at(address: &str) -> Option<Place> {
        Place::at(&address.parse().unwrap())
    }

    #[test]
    fn addresses_lead_to_places() {
        assert_eq!(at("/"), Some(Place::Fleet));
        assert_eq!(
            at("/hypervisors/node1.example"),
            Some(Place::Host("node1.example".into()))
        );
        assert_eq!(
            at("/incidents/node1.example-2-1"),
            Some(Place::Incident("node1.example-2-1".into()))
        );
        let Some(Place::Hosts(wanted)) = at("/hypervisors?q=a+b&phase=Active&other=1") else {
            panic!("not the list");
        };
        assert_eq!((wanted.q.as_str(), wanted.phase.as_str()), ("a b", "Active"));
        for nowhere in [
            "/hypervisors/",
            "/hypervisors/a/b",
            "/incidents/a/b",
            "/incidents/",
            "/hypervisors/%2e%2e",
            "/elsewhere",
        ] {
            assert_eq!(at(nowhere), None, "{nowhere}");
        }
    }

    #[test]
    fn the_session_is_found_among_other_cookies() {
        let mut headers = HeaderMap::new();
        headers.append(
            header::COOKIE,
            HeaderValue::from_static("a=b; cobaltcore-session=k; c=d"),
        );
        assert_eq!(key(&headers), Some("k"));
        assert_eq!(key(&HeaderMap::new()), None);
    }
}
