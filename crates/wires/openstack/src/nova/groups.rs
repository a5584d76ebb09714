// SPDX-License-Identifier: Apache-2.0
//! Server groups: which servers must not share a host, or must.

use serde::Deserialize;
use serde_json::json;

use super::Nova;
use crate::call::{Call, Request, Service};
use crate::error::{Error, Result};
use crate::ids::{ProjectId, ServerGroupId, ServerId};
use crate::session::Removal;
use crate::version::Microversion;

static LIST: Call = Call::get(Service::Nova, "list server groups", "/os-server-groups")
    .versions(Microversion::new(2, 64), Microversion::new(2, 90));
static SHOW: Call = Call::get(Service::Nova, "show a server group", "/os-server-groups/{group}")
    .versions(Microversion::new(2, 64), Microversion::new(2, 90));
static CREATE: Call = Call::post(Service::Nova, "create a server group", "/os-server-groups")
    .versions(Microversion::new(2, 64), Microversion::new(2, 90));
static DELETE: Call = Call::delete(
    Service::Nova,
    "delete a server group",
    "/os-server-groups/{group}",
);

/// More pages than any cloud has.
const MOST_PAGES: u32 = 10_000;

/// A server group.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct ServerGroup {
    /// Its id.
    pub id: ServerGroupId,
    /// Its name.
    pub name: String,
    /// `anti-affinity`, `affinity`, `soft-anti-affinity`, `soft-affinity`.
    pub policy: String,
    /// Its servers.
    #[serde(default)]
    pub members: Vec<ServerId>,
    /// Its project.
    #[serde(default)]
    pub project_id: Option<ProjectId>,
}

/// Which groups to list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GroupFilter {
    /// Those of the session's project.
    OwnProject,
    /// All, which takes an administrator.
    AllProjects,
}

/// A group to be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewServerGroup {
    /// Its name.
    pub name: String,
    /// Its policy.
    pub policy: String,
}

impl Nova {
    /// Server groups. They come in pages by number, without a word whether there are more.
    pub async fn server_groups(&self, filter: GroupFilter) -> Result<Vec<ServerGroup>> {
        let mut request = Request::new(&LIST, &[]);
        if filter == GroupFilter::AllProjects {
            request = request.query("all_projects", "true");
        }
        let mut all: Vec<ServerGroup> = Vec::new();
        let size = self.session.page_size();
        request.set_query("limit", size.to_string());
        for _ in 0..MOST_PAGES {
            request.set_query("offset", all.len().to_string());
            let page: Vec<ServerGroup> = self.session.member(request.clone(), "server_groups").await?;
            let before = all.len();
            let fresh: Vec<_> = page
                .into_iter()
                .filter(|group| !all.iter().any(|known| known.id == group.id))
                .collect();
            all.extend(fresh);
            // the service may cap pages below what was asked for, so only an empty page is the end
            if all.len() == before {
                return Ok(all);
            }
        }
        Err(Error::BadAnswer {
            of: Box::new(request.attempted()),
            status: None,
            detail: "the pages of server_groups do not end".to_owned(),
        })
    }

    /// One server group.
    pub async fn server_group(&self, id: &ServerGroupId) -> Result<ServerGroup> {
        let request = Request::new(&SHOW, &[id.as_str()]);
        self.session.member(request, "server_group").await
    }

    /// Creates a server group.
    pub async fn create_server_group(&self, group: &NewServerGroup) -> Result<ServerGroup> {
        let request = Request::new(&CREATE, &[])
            .about(format!("server group {}", group.name))
            .json(&json!({ "server_group": { "name": group.name, "policy": group.policy } }));
        self.session.member(request, "server_group").await
    }

    /// Deletes a server group.
    pub async fn delete_server_group(&self, id: &ServerGroupId) -> Result<Removal> {
        self.session.remove(Request::new(&DELETE, &[id.as_str()])).await
    }
}
