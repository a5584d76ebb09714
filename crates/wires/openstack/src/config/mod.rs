// SPDX-License-Identifier: Apache-2.0
//! Which cloud, as whom, and through what: read from `OS_*` variables or a `clouds.yaml`, as every
//! OpenStack client does. Reading it asks nobody on the network, so a role starts while Keystone is
//! down; what is missing or contradictory is said with the names of the variables.

mod clouds_yaml;
mod environment;

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use url::Url;

use crate::call::Service;
use crate::secret::Secret;

/// A configuration that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// Something needed is not set.
    #[error("{place}: {what} is not set{hint}")]
    Missing {
        /// The file and cloud, or `environment`.
        place: String,
        /// What is missing.
        what: String,
        /// What to do.
        hint: String,
    },
    /// Something is set to a value that cannot be.
    #[error("{place}: {what}: {detail}")]
    Invalid {
        /// The file and cloud, or `environment`.
        place: String,
        /// The variable or field.
        what: String,
        /// What is wrong with it.
        detail: String,
    },
    /// A file that cannot be read.
    #[error("{}: {detail}", .path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        detail: String,
    },
    /// The command that prints the password failed.
    #[error("the command in OS_PW_CMD failed: {0}")]
    PasswordCommand(String),
    /// The HTTP client cannot be set up.
    #[error("TLS: {0}")]
    Tls(String),
}

/// Who asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Credentials {
    /// A user with a password.
    Password {
        /// The user.
        user: UserRef,
        /// Its password.
        password: Secret,
    },
    /// An application credential. It carries its own project; a scope asked for beside it is
    /// refused by Keystone.
    ApplicationCredential {
        /// Which one.
        credential: ApplicationCredentialRef,
        /// Its secret.
        secret: Secret,
    },
}

/// A user by id, or by name within a domain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UserRef {
    /// By id.
    Id(String),
    /// By name.
    Name {
        /// The name.
        name: String,
        /// Its domain.
        domain: DomainRef,
    },
}

/// An application credential by id, or by name of its user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ApplicationCredentialRef {
    /// By id.
    Id(String),
    /// By name.
    Name {
        /// The name.
        name: String,
        /// Whose it is.
        user: UserRef,
    },
}

/// A domain by id or name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DomainRef {
    /// By id.
    Id(String),
    /// By name.
    Name(String),
}

/// What a token is good for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Scope {
    /// Whatever comes with the credentials: an application credential's own project, or a user's
    /// default project.
    Inherent,
    /// A project by id.
    ProjectId(String),
    /// A project by name.
    Project {
        /// The name.
        name: String,
        /// Its domain.
        domain: DomainRef,
    },
    /// A domain.
    Domain(DomainRef),
    /// The whole system.
    System,
}

impl Scope {
    /// A project by the names of project and domain.
    pub fn project(name: impl Into<String>, domain: impl Into<String>) -> Self {
        Self::Project {
            name: name.into(),
            domain: DomainRef::Name(domain.into()),
        }
    }
}

/// Which of a service's endpoints is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Interface {
    /// The one for everybody.
    #[default]
    Public,
    /// The one within the cloud.
    Internal,
    /// The one for administrators, where it still exists.
    Admin,
}

impl Interface {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Public => "public",
            Self::Internal => "internal",
            Self::Admin => "admin",
        }
    }

    fn read(text: &str) -> Option<Self> {
        match text.trim_end_matches("URL") {
            "public" => Some(Self::Public),
            "internal" => Some(Self::Internal),
            "admin" => Some(Self::Admin),
            _ => None,
        }
    }
}

impl fmt::Display for Interface {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// How servers prove who they are.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Tls {
    /// Trust these authorities, and no others, instead of the machine's own.
    pub ca_file: Option<PathBuf>,
    /// Prove who we are: certificate and key.
    pub client: Option<(PathBuf, PathBuf)>,
    /// Believe everybody. For laboratories only.
    pub insecure: bool,
}

/// A cloud.
///
/// ```
/// use cobaltcore_openstack::{CloudConfig, Scope};
///
/// let variables = [
///     ("OS_AUTH_URL", "https://keystone.example:5000/v3"),
///     ("OS_USERNAME", "operator"),
///     ("OS_USER_DOMAIN_NAME", "Default"),
///     ("OS_PASSWORD", "s3cret"),
///     ("OS_PROJECT_NAME", "admin"),
///     ("OS_PROJECT_DOMAIN_NAME", "Default"),
/// ];
/// let lookup = |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
/// let cloud = CloudConfig::from_variables(lookup)?;
/// assert_eq!(cloud.scope, Scope::project("admin", "Default"));
/// assert!(!format!("{cloud:?}").contains("s3cret"));
/// # Ok::<(), cobaltcore_openstack::ConfigError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CloudConfig {
    /// Where Keystone answers.
    pub auth_url: Url,
    /// Who asks.
    pub credentials: Credentials,
    /// What for.
    pub scope: Scope,
    /// The region, needed where the catalog has several.
    pub region: Option<String>,
    /// Which endpoints.
    pub interface: Interface,
    /// How servers prove who they are.
    pub tls: Tls,
    /// Endpoints that the catalog does not know better.
    pub endpoint_overrides: BTreeMap<Service, Url>,
}

impl CloudConfig {
    /// The cloud of this process's environment: the entry `OS_CLOUD` of a `clouds.yaml` if that is
    /// set, otherwise the other `OS_*` variables.
    pub fn from_env() -> Result<Self, ConfigError> {
        Self::from_variables(|name| std::env::var(name).ok())
    }

    /// The same with variables from elsewhere.
    pub fn from_variables(lookup: impl Fn(&str) -> Option<String>) -> Result<Self, ConfigError> {
        let lookup = |name: &str| lookup(name).filter(|value| !value.is_empty());
        match lookup("OS_CLOUD") {
            Some(cloud) => clouds_yaml::find(&cloud, &lookup),
            None => environment::read(&lookup),
        }
    }

    /// One entry of a `clouds.yaml`, with the secrets of a `secure.yaml` beside it.
    pub fn from_file(path: impl Into<PathBuf>, cloud: &str) -> Result<Self, ConfigError> {
        clouds_yaml::read(&path.into(), cloud)
    }

    /// The same cloud with another scope.
    pub fn with_scope(mut self, scope: Scope) -> Self {
        self.scope = scope;
        self
    }

    pub(crate) fn endpoint_override(&self, service: Service) -> Option<&Url> {
        self.endpoint_overrides.get(&service)
    }

    #[cfg(test)]
    pub(crate) fn for_tests(auth_url: &str) -> Self {
        Self {
            auth_url: Url::parse(auth_url).unwrap(),
            credentials: Credentials::Password {
                user: UserRef::Id("u".to_owned()),
                password: Secret::new("p"),
            },
            scope: Scope::Inherent,
            region: None,
            interface: Interface::Public,
            tls: Tls::default(),
            endpoint_overrides: BTreeMap::new(),
        }
    }
}

/// The names under which the same setting stands in the environment and in files, and what is read
/// from either: one place that knows which settings go together.
struct Fields<'a> {
    /// For messages.
    place: String,
    /// A field such as `user_domain_name`.
    field: &'a dyn Fn(&str) -> Option<String>,
    /// How the place calls a field.
    spell: fn(&str) -> String,
}

impl Fields<'_> {
    fn get(&self, name: &str) -> Option<String> {
        (self.field)(name).filter(|value| !value.is_empty())
    }

    fn missing(&self, what: String) -> ConfigError {
        ConfigError::Missing {
            place: self.place.clone(),
            what,
            hint: String::new(),
        }
    }

    fn invalid(&self, name: &str, detail: impl Into<String>) -> ConfigError {
        ConfigError::Invalid {
            place: self.place.clone(),
            what: (self.spell)(name),
            detail: detail.into(),
        }
    }

    fn cloud(&self, password: Option<Secret>) -> Result<CloudConfig, ConfigError> {
        let auth_url = self
            .get("auth_url")
            .ok_or_else(|| self.missing((self.spell)("auth_url")))?;
        let interface = match self.get("interface").or_else(|| self.get("endpoint_type")) {
            None => Interface::Public,
            Some(text) => Interface::read(&text)
                .ok_or_else(|| self.invalid("interface", "write public, internal or admin"))?,
        };
        Ok(CloudConfig {
            auth_url: self.url("auth_url", &auth_url)?,
            credentials: self.credentials(password)?,
            scope: self.scope(),
            region: self.get("region_name"),
            interface,
            tls: self.tls()?,
            endpoint_overrides: self.overrides()?,
        })
    }

    fn url(&self, name: &str, text: &str) -> Result<Url, ConfigError> {
        let url = Url::parse(text).map_err(|error| self.invalid(name, format!("{text:?}: {error}")))?;
        if matches!(url.scheme(), "http" | "https") {
            Ok(url)
        } else {
            Err(self.invalid(name, format!("{text:?}: write http:// or https://")))
        }
    }

    fn credentials(&self, password: Option<Secret>) -> Result<Credentials, ConfigError> {
        if let Some(secret) = self.get("application_credential_secret") {
            let credential = match self.get("application_credential_id") {
                Some(id) => ApplicationCredentialRef::Id(id),
                None => ApplicationCredentialRef::Name {
                    name: self
                        .get("application_credential_name")
                        .ok_or_else(|| self.missing((self.spell)("application_credential_id")))?,
                    user: self.user()?,
                },
            };
            return Ok(Credentials::ApplicationCredential {
                credential,
                secret: secret.into(),
            });
        }
        if self.get("application_credential_id").is_some() {
            return Err(self.missing((self.spell)("application_credential_secret")));
        }
        let user = self.user()?;
        let password = password
            .or_else(|| self.get("password").map(Secret::from))
            .ok_or_else(|| self.missing((self.spell)("password")))?;
        Ok(Credentials::Password { user, password })
    }

    fn user(&self) -> Result<UserRef, ConfigError> {
        if let Some(id) = self.get("user_id") {
            return Ok(UserRef::Id(id));
        }
        let name = self
            .get("username")
            .ok_or_else(|| self.missing((self.spell)("username")))?;
        let domain = self
            .domain("user_domain")
            .or_else(|| self.default_domain())
            .ok_or_else(|| self.missing((self.spell)("user_domain_name")))?;
        Ok(UserRef::Name { name, domain })
    }

    fn domain(&self, prefix: &str) -> Option<DomainRef> {
        let id = self.get(&format!("{prefix}_id")).map(DomainRef::Id);
        id.or_else(|| self.get(&format!("{prefix}_name")).map(DomainRef::Name))
    }

    fn default_domain(&self) -> Option<DomainRef> {
        self.domain("default_domain").or_else(|| self.domain("domain"))
    }

    fn scope(&self) -> Scope {
        if self.get("application_credential_secret").is_some() {
            return Scope::Inherent;
        }
        if let Some(id) = self.get("project_id").or_else(|| self.get("tenant_id")) {
            return Scope::ProjectId(id);
        }
        if let Some(name) = self.get("project_name").or_else(|| self.get("tenant_name")) {
            let domain = self
                .domain("project_domain")
                .or_else(|| self.default_domain())
                .or_else(|| self.domain("user_domain"))
                .unwrap_or_else(|| DomainRef::Id("default".to_owned()));
            return Scope::Project { name, domain };
        }
        if self.get("system_scope").is_some() {
            return Scope::System;
        }
        self.domain("domain").map_or(Scope::Inherent, Scope::Domain)
    }

    fn tls(&self) -> Result<Tls, ConfigError> {
        let client = match (self.get("cert"), self.get("key")) {
            (Some(cert), Some(key)) => Some((cert.into(), key.into())),
            (Some(cert), None) => Some((cert.clone().into(), cert.into())),
            (None, Some(_)) => return Err(self.missing((self.spell)("cert"))),
            (None, None) => None,
        };
        let truth = |name: &str| -> Result<Option<bool>, ConfigError> {
            self.get(name)
                .map(|text| match text.to_ascii_lowercase().as_str() {
                    "true" | "1" | "yes" | "on" => Ok(true),
                    "false" | "0" | "no" | "off" => Ok(false),
                    _ => Err(self.invalid(name, "write true or false")),
                })
                .transpose()
        };
        let insecure = truth("insecure")?.or(truth("verify")?.map(|verify| !verify));
        Ok(Tls {
            ca_file: self.get("cacert").map(PathBuf::from),
            client,
            insecure: insecure.unwrap_or(false),
        })
    }

    fn overrides(&self) -> Result<BTreeMap<Service, Url>, ConfigError> {
        use Service::{Cinder, Glance, Keystone, Neutron, Nova, Placement};
        let mut overrides = BTreeMap::new();
        for service in [Keystone, Nova, Placement, Glance, Neutron, Cinder] {
            for kind in service.catalog_types() {
                let name = format!("{}_endpoint_override", kind.replace('-', "_"));
                if let Some(text) = self.get(&name) {
                    let url = self.url(&name, &text)?;
                    overrides.entry(service).or_insert(url);
                }
            }
        }
        Ok(overrides)
    }
}
