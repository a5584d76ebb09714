// SPDX-License-Identifier: Apache-2.0
//! Cinder, as far as high availability asks: which volumes a server has, and whether they are
//! attached where they should be.

use serde::Deserialize;

use crate::call::{Call, Request, Service};
use crate::error::Result;
use crate::ids::{ServerId, VolumeId};
use crate::pages::{Marked, marked_by_id};
use crate::session::Session;
use crate::version::Microversion;

static LIST: Call = Call::get(Service::Cinder, "list volumes", "/volumes/detail");
static SHOW: Call = Call::get(Service::Cinder, "show a volume", "/volumes/{volume}");
static ATTACHMENTS: Call = Call::get(Service::Cinder, "list attachments", "/attachments/detail")
    .versions(Microversion::new(3, 27), Microversion::new(3, 59));

/// Cinder as one session sees it.
#[derive(Debug, Clone)]
pub struct Cinder {
    session: Session,
}

impl Session {
    /// Cinder.
    pub fn cinder(&self) -> Cinder {
        Cinder {
            session: self.clone(),
        }
    }
}

/// A volume.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Volume {
    /// Its id.
    pub id: VolumeId,
    /// Its name.
    #[serde(default)]
    pub name: Option<String>,
    /// `available`, `in-use`, `detaching`, ...
    pub status: String,
    /// Its size in GiB.
    #[serde(default)]
    pub size: u64,
    /// Whether several servers may have it at once.
    #[serde(default)]
    pub multiattach: bool,
    /// Where it is attached.
    #[serde(default)]
    pub attachments: Vec<VolumeAttachment>,
}

/// Where a volume is attached.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct VolumeAttachment {
    /// To which server.
    pub server_id: ServerId,
    /// On which host, if Cinder was told.
    #[serde(default)]
    pub host_name: Option<String>,
    /// The attachment's id.
    #[serde(default)]
    pub attachment_id: Option<String>,
}

/// An attachment record (3.27).
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Attachment {
    /// Its id.
    pub id: String,
    /// The volume.
    pub volume_id: VolumeId,
    /// The server.
    #[serde(rename = "instance")]
    pub server_id: Option<ServerId>,
    /// `attached`, `attaching`, `reserved`, ...
    #[serde(default)]
    pub status: Option<String>,
}

marked_by_id!(Volume);

impl Marked for Attachment {
    fn marker(&self) -> &str {
        &self.id
    }
}

impl Cinder {
    /// The volumes of the session's project, or of all.
    pub async fn volumes(&self, all_projects: bool) -> Result<Vec<Volume>> {
        let request = Request::new(&LIST, &[]).maybe("all_tenants", all_projects.then_some("true"));
        self.session.list(request, "volumes").await
    }

    /// One volume.
    pub async fn volume(&self, id: &VolumeId) -> Result<Volume> {
        self.session
            .member(Request::new(&SHOW, &[id.as_str()]), "volume")
            .await
    }

    /// The attachments of a server.
    pub async fn attachments(&self, server: &ServerId) -> Result<Vec<Attachment>> {
        let request = Request::new(&ATTACHMENTS, &[])
            .about(format!("server {server}"))
            .query("all_tenants", "true")
            .query("instance_id", server.as_str());
        self.session.list(request, "attachments").await
    }
}
