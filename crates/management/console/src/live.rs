// SPDX-License-Identifier: Apache-2.0
//! Pages that keep themselves current. A viewer names the page it shows; whenever something
//! changed it gets the pieces of that page that look different now, a few times a second at
//! most. A piece is an element with an id, so that the script has nothing to decide.

use std::convert::Infallible;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;
use std::time::Duration;

use askama::Template;
use axum::extract::{Query, State};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures::stream;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use crate::error::Error;
use crate::fleet::{Known, Revision};
use crate::session::{Allowed, Session};
use crate::site::{Place, SignedIn, Site, trouble};
use crate::views::tiles::{Summary, Tile};

/// Changes that come together go out together.
const PAUSE: Duration = Duration::from_millis(250);
/// Ages on a page grow old even when nothing happens.
const REFRESH: Duration = Duration::from_secs(15);

/// A piece of a page.
#[derive(Debug, Serialize, PartialEq, Eq)]
struct Piece {
    id: String,
    /// What replaces the element, or its inside.
    html: String,
    inside: bool,
}

impl Piece {
    fn inside(id: &str, html: String) -> Self {
        Self {
            id: id.into(),
            html,
            inside: true,
        }
    }

    fn whole(id: String, html: String) -> Self {
        Self {
            id,
            html,
            inside: false,
        }
    }
}

/// What one viewer has on the screen.
struct Viewer {
    place: Place,
    seen: Revision,
    looks: u64,
    site: Site,
    session: Arc<Session>,
    changes: watch::Receiver<Revision>,
}

impl Viewer {
    /// The pieces that look different now.
    fn news(&mut self, allowed: Allowed, now: Timestamp) -> Result<Vec<Piece>, Error> {
        let site = self.site.clone();
        let known = site.fleet.known();
        let seen = std::mem::replace(&mut self.seen, known.revision);
        let pieces = match self.place {
            Place::Fleet if known.hypervisors.shape <= seen => tiles(&known, seen)?,
            _ => vec![Piece::inside(
                "content",
                self.place.content(&site, &known, allowed, now)?,
            )],
        };
        let mut pieces = pieces;
        pieces.push(Piece::inside("trouble", banner(&trouble(&known))));
        drop(known);
        let looks = looks_of(&pieces);
        if std::mem::replace(&mut self.looks, looks) == looks {
            pieces.clear();
        }
        Ok(pieces)
    }

    /// Waits for the next pieces; nothing means the viewer has to leave.
    async fn next(&mut self) -> Option<Vec<Piece>> {
        loop {
            match tokio::time::timeout(REFRESH, self.changes.changed()).await {
                Ok(Ok(())) => tokio::time::sleep(PAUSE).await,
                Ok(Err(_)) => return None,
                Err(_) => {}
            }
            self.changes.borrow_and_update();
            for right in self.place.rights() {
                if !self.session.may(*right).await.unwrap_or(false) {
                    return None;
                }
            }
            if self.place.prepare(&self.site).await.is_err() {
                // What is known is shown until the service answers again.
                continue;
            }
            match self.news(self.session.allowed().await, Timestamp::now()) {
                Ok(pieces) if pieces.is_empty() => {}
                Ok(pieces) => return Some(pieces),
                Err(_) => return None,
            }
        }
    }
}

/// The tiles that changed, and the line above them.
fn tiles(known: &Known, seen: Revision) -> Result<Vec<Piece>, Error> {
    let mut pieces = Vec::new();
    for (name, kept) in known.hypervisors.iter().filter(|(_, kept)| kept.revision > seen) {
        pieces.push(Piece::whole(
            format!("tile-{name}"),
            Tile::of(&kept.object).render()?,
        ));
    }
    pieces.push(Piece::whole("summary".into(), Summary::of(known).render()?));
    Ok(pieces)
}

#[derive(Template)]
#[template(
    source = r#"{% if !text.is_empty() %}<p class="card bad-card" role="alert">{{ text }}</p>{% endif %}"#,
    ext = "html"
)]
struct Banner<'a> {
    text: &'a str,
}

fn banner(text: &str) -> String {
    Banner { text }.render().unwrap_or_default()
}

fn looks_of(pieces: &[Piece]) -> u64 {
    let mut hasher = DefaultHasher::new();
    for piece in pieces {
        (&piece.id, &piece.html).hash(&mut hasher);
    }
    hasher.finish()
}

#[derive(Deserialize)]
pub(crate) struct Watched {
    page: String,
}

/// `/live?page=ADDRESS`: the news of a page as server-sent events.
pub(crate) async fn stream(
    State(site): State<Site>,
    SignedIn(session): SignedIn,
    Query(watched): Query<Watched>,
) -> Result<Response, Error> {
    let nowhere = || Error::NotFound {
        kind: "page",
        name: watched.page.clone(),
    };
    let place = watched
        .page
        .parse()
        .ok()
        .and_then(|uri| Place::at(&uri))
        .ok_or_else(nowhere)?;
    for right in place.rights() {
        session.need(*right).await?;
    }
    place.prepare(&site).await?;
    let changes = site.fleet.changes();
    // The page may be older than this connection: the first news are the whole of it.
    let mut viewer = Viewer {
        place,
        seen: 0,
        looks: 0,
        site,
        session,
        changes,
    };
    let allowed = viewer.session.allowed().await;
    let first = viewer.news(allowed, Timestamp::now())?;
    let events = stream::unfold((viewer, Some(first)), |(mut viewer, ready)| async move {
        let pieces = match ready {
            Some(pieces) => pieces,
            None => viewer.next().await?,
        };
        let event = Event::default().event("pieces").json_data(pieces).ok()?;
        Some((Ok::<_, Infallible>(event), (viewer, None)))
    });
    Ok(Sse::new(events).keep_alive(KeepAlive::default()).into_response())
}
