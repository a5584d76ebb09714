// SPDX-License-Identifier: Apache-2.0
//! Carries out what the engine wants: every action is started at most once, not after its time,
//! and answered by exactly one outcome.

use cobaltcore_ha_engine::{Action, Answer, Effect, Input, Trouble};
use tokio::sync::mpsc;

use crate::deps::Deps;

/// Carries out actions. Cheap to clone.
#[derive(Clone)]
pub struct Executor {
    deps: Deps,
}

impl Executor {
    /// An executor with these ways into the world.
    pub fn new(deps: Deps) -> Self {
        Self { deps }
    }

    /// Starts an action and returns at once; the outcome comes through `reply`.
    pub fn start(&self, action: Action, reply: mpsc::Sender<Input>) {
        let this = self.clone();
        tokio::spawn(async move {
            let id = action.id;
            let result = if this.deps.clock.mono() > action.not_after {
                Err(Trouble::NotStarted)
            } else {
                this.carry_out(&action.effect)
            };
            let _ = reply.send(Input::Outcome { id, result }).await;
        });
    }

    fn carry_out(&self, effect: &Effect) -> Result<Answer, Trouble> {
        match effect {
            Effect::Investigate { host, peers } => {
                self.deps.investigator.investigate(host, peers);
                Ok(Answer::Done)
            }
            Effect::Resign => {
                self.deps.leadership.resign();
                Ok(Answer::Done)
            }
            _ => Err(Trouble::NotStarted),
        }
    }
}
