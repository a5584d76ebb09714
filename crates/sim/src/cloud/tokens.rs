// SPDX-License-Identifier: Apache-2.0
//! Tokens of the simulated Keystone. They live in the machine's time, not in the world's, because those who hold them
//! compare their end with their own clock; they do not survive a restart, as nobody may rely on that.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use parking_lot::Mutex;
use uuid::Uuid;

use crate::world::Moment;

/// What a token is good for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Scope {
    /// Nothing but being somebody.
    Unscoped,
    /// A project.
    Project(Uuid),
    /// A domain.
    Domain(String),
    /// The whole system.
    System,
}

/// Who asks, and what they may do.
#[derive(Debug, Clone)]
pub(crate) struct Caller {
    pub(crate) user: Uuid,
    pub(crate) scope: Scope,
    pub(crate) roles: BTreeSet<String>,
    pub(crate) methods: Vec<String>,
    pub(crate) issued: Moment,
    pub(crate) expires: Moment,
    pub(crate) audit: String,
    pub(crate) credential: Option<String>,
}

impl Caller {
    /// Whether they may do what only administrators may.
    pub(crate) fn is_admin(&self) -> bool {
        self.roles.contains("admin")
    }

    /// The project they work in.
    pub(crate) fn project(&self) -> Option<Uuid> {
        match self.scope {
            Scope::Project(project) => Some(project),
            _ => None,
        }
    }
}

/// Tokens that were given out.
#[derive(Default)]
pub(crate) struct Tokens(Mutex<HashMap<String, Caller>>);

/// More than this many make a sweep worth its while.
const MANY: usize = 4_096;

impl Tokens {
    pub(crate) fn issue(&self, caller: Caller) -> String {
        let token = format!("gAAAAA{}{}", Uuid::new_v4().simple(), Uuid::new_v4().simple());
        let mut tokens = self.0.lock();
        if tokens.len() >= MANY {
            let now = Moment::wall();
            tokens.retain(|_, caller| caller.expires > now);
        }
        tokens.insert(token.clone(), caller);
        token
    }

    pub(crate) fn check(&self, token: &str) -> Option<Caller> {
        let now = Moment::wall();
        self.0
            .lock()
            .get(token)
            .filter(|caller| caller.expires > now)
            .cloned()
    }

    pub(crate) fn revoke(&self, token: &str) -> bool {
        self.0.lock().remove(token).is_some()
    }

    pub(crate) fn revoke_all(&self) {
        self.0.lock().clear();
    }
}

/// A caller whose token begins now.
pub(crate) fn caller(
    user: Uuid,
    scope: Scope,
    roles: BTreeSet<String>,
    methods: Vec<String>,
    life: Duration,
) -> Caller {
    let now = Moment::wall();
    Caller {
        user,
        scope,
        roles,
        methods,
        issued: now,
        expires: now + life,
        audit: Uuid::new_v4().simple().to_string(),
        credential: None,
    }
}
