// SPDX-License-Identifier: Apache-2.0
//! A look at every guest: what libvirt is asked, one question after the other, each with its deadline. It knows nothing
//! of what is known already and changes nothing. Events are taken meanwhile, however long the answers need.

use cobaltcore_ha_wire::DomainEntry;
use cobaltcore_libvirt::client::Connection;
use cobaltcore_libvirt::error::Error;
use cobaltcore_libvirt::names;
use futures::FutureExt as _;
use futures::future::BoxFuture;

use super::read::{self, Definitions, Row};

/// What was found.
pub(super) enum Found {
    /// Every guest with its state, and libvirt's version where that was asked for and answered.
    Guests(Option<String>, Result<Vec<Row>, Error>),
    /// The guests as the inventory has them, and what was read of definitions so far.
    Entries(Definitions, Result<Vec<DomainEntry>, Error>),
}

/// A look under way.
pub(super) struct Look {
    /// Whether events may be missing, so that differences are no surprise.
    pub(super) gap: bool,
    connection: Connection,
    step: BoxFuture<'static, Found>,
}

impl Look {
    /// Asks for the guests, and for the version if that is not known.
    pub(super) fn begin(connection: &Connection, gap: bool, version_known: bool) -> Self {
        let asked = connection.clone();
        let step = async move {
            let version = if version_known {
                None
            } else {
                asked.lib_version().await.map(names::version).ok()
            };
            Found::Guests(version, read::list(&asked).await)
        };
        Self {
            gap,
            connection: connection.clone(),
            step: step.boxed(),
        }
    }

    /// Asks for the rest.
    pub(super) fn go_on(self, list: Vec<Row>, mut definitions: Definitions, with_disks: bool) -> Self {
        let asked = self.connection.clone();
        let step = async move {
            let entries = read::entries(&asked, &list, &mut definitions, with_disks).await;
            Found::Entries(definitions, entries)
        };
        Self {
            step: step.boxed(),
            ..self
        }
    }

    /// What a look finds, which is then over or goes on; without one, nothing ever. Safe to cancel.
    pub(super) async fn next(look: &mut Option<Self>) -> (Self, Found) {
        let found = match look {
            Some(look) => (&mut look.step).await,
            None => std::future::pending().await,
        };
        match look.take() {
            Some(look) => (look, found),
            None => std::future::pending().await,
        }
    }
}
