// SPDX-License-Identifier: Apache-2.0
//! The history of a server: who asked for what, and what became of it.

use jiff::Timestamp;
use serde::Deserialize;

use super::Nova;
use crate::call::{Call, Request, Service};
use crate::error::Result;
use crate::ids::{ServerId, UserId};
use crate::json;
use crate::pages::Marked;
use crate::transport::Answer;
use crate::version::Microversion;
use crate::when;

static LIST: Call = Call::get(
    Service::Nova,
    "list a server's actions",
    "/servers/{server}/os-instance-actions",
)
.versions(Microversion::new(2, 58), Microversion::new(2, 90));
static SHOW: Call = Call::get(
    Service::Nova,
    "show a server's action",
    "/servers/{server}/os-instance-actions/{request}",
)
.versions(Microversion::new(2, 58), Microversion::new(2, 90));

/// Something that was done with a server.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct InstanceAction {
    /// What: `create`, `live-migration`, `evacuate`, `stop`, ...
    pub action: String,
    /// The request that asked for it.
    pub request_id: String,
    /// Who asked.
    pub user_id: Option<UserId>,
    /// What went wrong.
    #[serde(default)]
    pub message: Option<String>,
    /// When it began.
    #[serde(default, deserialize_with = "when::optional")]
    pub start_time: Option<Timestamp>,
    /// When it changed last.
    #[serde(default, deserialize_with = "when::optional")]
    pub updated_at: Option<Timestamp>,
    /// Its steps; empty in a list.
    #[serde(default)]
    pub events: Vec<ActionEvent>,
}

/// A step of an action.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct ActionEvent {
    /// Which step.
    pub event: String,
    /// `Success`, `Error`, or nothing while it runs.
    #[serde(default)]
    pub result: Option<String>,
    /// On which host (2.62).
    #[serde(default)]
    pub host: Option<String>,
    /// What went wrong (2.84).
    #[serde(default)]
    pub details: Option<String>,
    /// When it began.
    #[serde(default, deserialize_with = "when::optional")]
    pub start_time: Option<Timestamp>,
    /// When it ended.
    #[serde(default, deserialize_with = "when::optional")]
    pub finish_time: Option<Timestamp>,
}

/// What was done with a server lately, and the time by the clock of whoever wrote it down.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct History {
    /// The latest, newest first.
    pub actions: Vec<InstanceAction>,
    /// When the answer was given, if it says so. How long ago an action was is known only beside this: no clock but
    /// Nova's has anything to do with its times.
    pub told_at: Option<Timestamp>,
}

impl Marked for InstanceAction {
    fn marker(&self) -> &str {
        &self.request_id
    }
}

impl Nova {
    /// What was done with a server, newest first.
    pub async fn instance_actions(&self, id: &ServerId) -> Result<Vec<InstanceAction>> {
        let request = Request::new(&LIST, &[id.as_str()]);
        self.session.list(request, "instanceActions").await
    }

    /// What was done with a server lately: one page of it.
    pub async fn history(&self, id: &ServerId) -> Result<History> {
        let mut request = Request::new(&LIST, &[id.as_str()]);
        request.set_query("limit", self.session.page_size().to_string());
        let read = |answer: &Answer| {
            let (actions, _) = json::page(&answer.body, "instanceActions")?;
            let told_at = when::of_answer(&answer.headers);
            Ok(History { actions, told_at })
        };
        self.session.ask(&request, read).await
    }

    /// One action with its steps.
    pub async fn instance_action(&self, id: &ServerId, request_id: &str) -> Result<InstanceAction> {
        let request = Request::new(&SHOW, &[id.as_str(), request_id]);
        self.session.member(request, "instanceAction").await
    }
}
