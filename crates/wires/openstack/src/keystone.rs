// SPDX-License-Identifier: Apache-2.0
//! Keystone beyond tokens: who is there, as far as the roles need to know. Tokens, scopes and the
//! catalog belong to the session.

use serde::Deserialize;
use serde_json::json;

use crate::call::{Call, Request, Service};
use crate::error::Result;
use crate::ids::{DomainId, ProjectId, RoleId, UserId};
use crate::pages::marked_by_id;
use crate::secret::Secret;
use crate::session::{Removal, Session};

static DOMAINS: Call = Call::get(Service::Keystone, "list domains", "/domains");
static PROJECTS: Call = Call::get(Service::Keystone, "list projects", "/projects");
static CREATE_PROJECT: Call = Call::post(Service::Keystone, "create a project", "/projects");
static DELETE_PROJECT: Call = Call::delete(Service::Keystone, "delete a project", "/projects/{project}");
static USERS: Call = Call::get(Service::Keystone, "list users", "/users");
static ROLES: Call = Call::get(Service::Keystone, "list roles", "/roles");
static GRANT: Call = Call::put(
    Service::Keystone,
    "grant a role",
    "/projects/{project}/users/{user}/roles/{role}",
);
static OWN_PROJECTS: Call = Call::get(Service::Keystone, "list own projects", "/auth/projects");
static CREATE_CREDENTIAL: Call = Call::post(
    Service::Keystone,
    "create an application credential",
    "/users/{user}/application_credentials",
);
static DELETE_CREDENTIAL: Call = Call::delete(
    Service::Keystone,
    "delete an application credential",
    "/users/{user}/application_credentials/{credential}",
);

/// Keystone as one session sees it.
#[derive(Debug, Clone)]
pub struct Keystone {
    session: Session,
}

impl Session {
    /// Keystone.
    pub fn keystone(&self) -> Keystone {
        Keystone {
            session: self.clone(),
        }
    }
}

/// A domain.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Domain {
    /// Its id.
    pub id: DomainId,
    /// Its name.
    pub name: String,
    /// Whether it is in use.
    #[serde(default)]
    pub enabled: bool,
}

/// A project.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Project {
    /// Its id.
    pub id: ProjectId,
    /// Its name.
    pub name: String,
    /// Its domain.
    #[serde(default)]
    pub domain_id: Option<DomainId>,
    /// Whether it is in use.
    #[serde(default)]
    pub enabled: bool,
}

/// A user.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct User {
    /// Its id.
    pub id: UserId,
    /// Its name.
    pub name: String,
    /// Its domain.
    #[serde(default)]
    pub domain_id: Option<DomainId>,
}

/// A role.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Role {
    /// Its id.
    pub id: RoleId,
    /// Its name.
    pub name: String,
}

/// A new application credential with its secret, which Keystone tells only once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApplicationCredential {
    /// Its id.
    pub id: String,
    /// Its secret.
    pub secret: Secret,
}

marked_by_id!(Domain, Project, User, Role);

impl Keystone {
    /// All domains.
    pub async fn domains(&self) -> Result<Vec<Domain>> {
        self.session.list(Request::new(&DOMAINS, &[]), "domains").await
    }

    /// All projects, or those of a domain.
    pub async fn projects(&self, domain: Option<&DomainId>) -> Result<Vec<Project>> {
        let request = Request::new(&PROJECTS, &[]).maybe("domain_id", domain.map(DomainId::as_str));
        self.session.list(request, "projects").await
    }

    /// The projects that the session's user has a role in: the scopes it can ask for.
    pub async fn own_projects(&self) -> Result<Vec<Project>> {
        self.session
            .list(Request::new(&OWN_PROJECTS, &[]), "projects")
            .await
    }

    /// Creates a project in a domain.
    pub async fn create_project(&self, name: &str, domain: &DomainId) -> Result<Project> {
        let request = Request::new(&CREATE_PROJECT, &[])
            .about(format!("project {name}"))
            .json(&json!({ "project": { "name": name, "domain_id": domain } }));
        self.session.member(request, "project").await
    }

    /// Deletes a project.
    pub async fn delete_project(&self, id: &ProjectId) -> Result<Removal> {
        self.session
            .remove(Request::new(&DELETE_PROJECT, &[id.as_str()]))
            .await
    }

    /// All users, or those of a domain.
    pub async fn users(&self, domain: Option<&DomainId>) -> Result<Vec<User>> {
        let request = Request::new(&USERS, &[]).maybe("domain_id", domain.map(DomainId::as_str));
        self.session.list(request, "users").await
    }

    /// All roles.
    pub async fn roles(&self) -> Result<Vec<Role>> {
        self.session.list(Request::new(&ROLES, &[]), "roles").await
    }

    /// Gives a user a role in a project; one that it has is fine.
    pub async fn grant_role(&self, project: &ProjectId, user: &UserId, role: &RoleId) -> Result<()> {
        let objects = [project.as_str(), user.as_str(), role.as_str()];
        self.session.done(Request::new(&GRANT, &objects)).await
    }

    /// Makes an application credential of the session's user for the session's project.
    pub async fn create_application_credential(&self, name: &str) -> Result<ApplicationCredential> {
        #[derive(Deserialize)]
        struct Made {
            id: String,
            secret: String,
        }
        let user = self.session.identity().await?.user.id.clone();
        let request = Request::new(&CREATE_CREDENTIAL, &[&user])
            .about(format!("application credential {name}"))
            .json(&json!({ "application_credential": { "name": name } }));
        let made: Made = self.session.member(request, "application_credential").await?;
        Ok(ApplicationCredential {
            id: made.id,
            secret: made.secret.into(),
        })
    }

    /// Deletes an application credential of the session's user.
    pub async fn delete_application_credential(&self, id: &str) -> Result<Removal> {
        let user = self.session.identity().await?.user.id.clone();
        self.session
            .remove(Request::new(&DELETE_CREDENTIAL, &[&user, id]))
            .await
    }
}
