// SPDX-License-Identifier: Apache-2.0
//! What people ask of the operator from a command line. Each request becomes a change of an
//! object that the controllers act on; what would not work is refused in one sentence that says
//! what to do instead. Printing is left to whoever calls.

mod progress;
mod requests;
mod table;

use cobaltcore_api::{Eviction, Hypervisor, Migration};
use kube::ResourceExt;
use kube::api::{Api, ListParams};

use crate::error::Error;

pub use progress::{Progress, bar};
pub use requests::{Asked, Evict, enter_maintenance, evict, leave_maintenance, retry_onboarding};
pub use table::{Width, table};

/// Why a request was not carried out.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    /// It makes no sense for this host now; the text says what would.
    #[error("{0}")]
    No(String),
    /// The cluster did not answer or did not allow it.
    #[error(transparent)]
    Failed(#[from] Error),
}

/// The cluster as people see it.
#[derive(Clone)]
pub struct Desk {
    client: kube::Client,
}

impl Desk {
    /// Over a client that acts as the person.
    pub fn new(client: kube::Client) -> Self {
        Self { client }
    }

    /// Every hypervisor, by name.
    pub async fn hypervisors(&self) -> Result<Vec<Hypervisor>, Refused> {
        let api = self.all();
        let list = failed("listing hypervisors", api.list(&ListParams::default()).await)?;
        let mut all = list.items;
        all.sort_by_key(ResourceExt::name_any);
        Ok(all)
    }

    /// One hypervisor, or a sentence that names those there are.
    pub async fn hypervisor(&self, name: &str) -> Result<Hypervisor, Refused> {
        let what = format!("reading Hypervisor {name}");
        if let Some(found) = failed(&what, self.all().get_opt(name).await)? {
            return Ok(found);
        }
        let names: Vec<String> = self
            .hypervisors()
            .await?
            .iter()
            .map(ResourceExt::name_any)
            .collect();
        Err(Refused::No(match names.as_slice() {
            [] => format!("There is no hypervisor {name}, nor any other"),
            names => format!("There is no hypervisor {name}; there are: {}", short(names)),
        }))
    }

    /// How far an eviction got; nothing when it is gone.
    pub async fn progress(&self, eviction: &str) -> Result<Option<Progress>, Refused> {
        let api: Api<Eviction> = Api::all(self.client.clone());
        let what = format!("reading Eviction {eviction}");
        let Some(eviction) = failed(&what, api.get_opt(eviction).await)? else {
            return Ok(None);
        };
        let moving = eviction.status.iter().flat_map(|status| &status.in_flight);
        let ids: Vec<String> = moving.map(|moving| moving.id.clone()).collect();
        let migrations: Api<Migration> = Api::all(self.client.clone());
        // Figures of single migrations are a courtesy: without them the rest is still told.
        let listed = if ids.is_empty() {
            Vec::new()
        } else {
            let list = migrations.list(&ListParams::default()).await;
            list.map(|list| list.items).unwrap_or_default()
        };
        let current: Vec<Migration> = listed
            .into_iter()
            .filter(|migration| ids.contains(&migration.name_any()))
            .collect();
        Ok(Some(Progress::new(&eviction, &current, jiff::Timestamp::now())))
    }

    fn all(&self) -> Api<Hypervisor> {
        Api::all(self.client.clone())
    }
}

fn failed<T>(what: &str, outcome: Result<T, kube::Error>) -> Result<T, Refused> {
    outcome.map_err(|source| {
        Refused::Failed(Error::Kube {
            what: what.to_owned(),
            source: Box::new(source),
        })
    })
}

/// The first few of a list.
fn short(names: &[String]) -> String {
    const SHOWN: usize = 8;
    let first: Vec<&str> = names.iter().take(SHOWN).map(String::as_str).collect();
    let rest = names.len().saturating_sub(SHOWN);
    match rest {
        0 => first.join(", "),
        rest => format!("{} and {rest} more", first.join(", ")),
    }
}
