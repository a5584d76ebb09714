// SPDX-License-Identifier: Apache-2.0
//! The cloud as the operator's controllers know it: Nova, Placement, Glance and Neutron in the
//! words of their judgements. What the whole fleet needs is asked once for all; what is asked and
//! what an answer means to Nova is left to the wire.

mod compute;
mod placement;
mod shared;
mod smoke;

use std::collections::{BTreeMap, BTreeSet};

use cobaltcore_openstack::nova::Nova;
use cobaltcore_openstack::{Placement, Scope, Session};

pub(crate) use placement::Flavor;
pub(crate) use smoke::SmokeTest;

use crate::aggregates::Listed;
use crate::config::Config;
use crate::eviction::Service;
use shared::Shared;

/// The cloud. Cloning is cheap; clones share what was asked for all.
#[derive(Clone)]
pub struct Cloud {
    admin: Session,
    test: Session,
    services: Shared<BTreeMap<String, Service>>,
    aggregates: Shared<Vec<Listed>>,
    standard_traits: Shared<BTreeSet<String>>,
    ingredients: Shared<smoke::Ingredients>,
}

impl std::fmt::Debug for Cloud {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cloud").finish_non_exhaustive()
    }
}

impl Cloud {
    /// The cloud behind a session; the same user works in the test project.
    pub fn new(admin: Session, config: &Config) -> Self {
        let scope = Scope::project(&config.test_project, &config.test_project_domain);
        Self {
            test: admin.with_scope(scope),
            admin,
            services: Shared::default(),
            aggregates: Shared::default(),
            standard_traits: Shared::default(),
            ingredients: Shared::default(),
        }
    }

    fn nova(&self) -> Nova {
        self.admin.nova()
    }

    fn placement(&self) -> Placement {
        self.admin.placement()
    }
}

/// What a call came to when it came to nothing.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The service or the way to it.
    #[error(transparent)]
    Wire(#[from] cobaltcore_openstack::Error),
    /// Something the test needs is not there.
    #[error("{0}")]
    Missing(String),
}

impl Error {
    /// There is no such object.
    pub(crate) fn is_not_found(&self) -> bool {
        matches!(self, Self::Wire(error) if error.is_not_found())
    }

    /// The object is in the wrong state.
    pub(crate) fn is_conflict(&self) -> bool {
        matches!(self, Self::Wire(error) if error.is_conflict())
    }

    /// It may have been done all the same.
    pub(crate) fn outcome_unknown(&self) -> bool {
        matches!(self, Self::Wire(error) if error.outcome_unknown())
    }

    /// It would fail again the same way.
    pub(crate) fn is_permanent(&self) -> bool {
        match self {
            Self::Missing(_) => true,
            Self::Wire(error) => matches!(
                error,
                cobaltcore_openstack::Error::Refused(_)
                    | cobaltcore_openstack::Error::Forbidden(_)
                    | cobaltcore_openstack::Error::NotFound(_)
            ),
        }
    }
}

/// What a call came to.
pub(crate) type Result<T> = std::result::Result<T, Error>;
