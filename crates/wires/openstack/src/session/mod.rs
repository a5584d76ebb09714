// SPDX-License-Identifier: Apache-2.0
//! A session: who we are in a cloud, kept valid. Making one asks nobody, so a role starts while
//! Keystone is down; the first call fetches a token, later calls renew it before it ends or when a
//! service refuses it, once for all who need it. Clones and scopes share one connection pool.

mod login;
mod run;

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{OnceCell, Semaphore};
use tokio::time::Instant;

use crate::call::Service;
use crate::config::{CloudConfig, ConfigError, Credentials, Scope};
use crate::error::{Error, Result};
use crate::observe::Observer;
use crate::transport::Transport;
use crate::version::{Microversion, Offer};
use login::Login;

pub use login::{Identity, Named};
pub use run::Removal;

/// How a session behaves. Every field has a sensible default.
#[derive(Clone)]
pub struct Settings {
    /// How long a connection may take.
    pub connect_timeout: Duration,
    /// How long a call may take, with every wait and every try. A list has it for every page.
    pub deadline: Duration,
    /// How many times a call is sent at most.
    pub tries: u32,
    /// How many requests are under way at once.
    pub max_in_flight: usize,
    /// The longest answer that is read, in bytes.
    pub longest_answer: usize,
    /// How many objects one page of a list has.
    pub page_size: u32,
    /// The newest microversion that Nova is spoken to in, for calls that need no newer one and are not told
    /// theirs; as new as both sides understand if not given.
    pub nova_newest: Option<Microversion>,
    /// Who we say we are.
    pub user_agent: String,
    /// Whether `HTTPS_PROXY` and its companions count.
    pub proxy_from_environment: bool,
    /// Who is told about every call.
    pub observer: Option<Arc<dyn Observer>>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            connect_timeout: Duration::from_secs(5),
            deadline: Duration::from_secs(30),
            tries: 3,
            max_in_flight: 16,
            longest_answer: 32 * 1024 * 1024,
            page_size: 1000,
            nova_newest: None,
            user_agent: concat!("cobaltcore/", env!("CARGO_PKG_VERSION")).to_owned(),
            proxy_from_environment: true,
            observer: None,
        }
    }
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings")
            .field("connect_timeout", &self.connect_timeout)
            .field("deadline", &self.deadline)
            .field("tries", &self.tries)
            .field("max_in_flight", &self.max_in_flight)
            .finish_non_exhaustive()
    }
}

/// A session. Cloning is cheap; clones share token, connections and limits.
///
/// ```no_run
/// use cobaltcore_openstack::{CloudConfig, Scope, Session, Settings};
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let admin = Session::new(CloudConfig::from_env()?, Settings::default())?;
/// let test = admin.with_scope(Scope::project("test", "cc3test"));
/// for service in admin.nova().compute_services().await? {
///     println!("{} is {}", service.host, service.state);
/// }
/// let image = test.glance().image_by_name("cirros-kvm").await?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Session {
    shared: Arc<Shared>,
    login: Arc<Login>,
    deadline: Duration,
    page_size: u32,
}

/// What all scopes of a cloud share.
struct Shared {
    transport: Arc<Transport>,
    settings: Settings,
    permits: Semaphore,
    /// What services offer, by the address of their version document.
    offers: Mutex<HashMap<String, Arc<Offered>>>,
}

struct Offered {
    since: Instant,
    offer: OnceCell<Offer>,
}

impl Session {
    /// A session that has not asked anybody yet.
    pub fn new(cloud: CloudConfig, settings: Settings) -> Result<Self, ConfigError> {
        let transport = Arc::new(Transport::new(&cloud.tls, &settings)?);
        let login = Arc::new(Login::new(cloud, Arc::clone(&transport), &settings));
        Ok(Self {
            deadline: settings.deadline,
            page_size: settings.page_size.max(1),
            shared: Arc::new(Shared {
                transport,
                permits: Semaphore::new(settings.max_in_flight.clamp(1, 10_000)),
                settings,
                offers: Mutex::default(),
            }),
            login,
        })
    }

    /// The same user with another scope and its own token.
    pub fn with_scope(&self, scope: Scope) -> Self {
        self.with_cloud(self.login.cloud().clone().with_scope(scope))
    }

    /// Another user of the same cloud, with its own token.
    pub fn with_credentials(&self, credentials: Credentials, scope: Scope) -> Self {
        self.with_cloud(CloudConfig {
            credentials,
            scope,
            ..self.login.cloud().clone()
        })
    }

    fn with_cloud(&self, cloud: CloudConfig) -> Self {
        let transport = Arc::clone(&self.shared.transport);
        Self {
            shared: Arc::clone(&self.shared),
            login: Arc::new(Login::new(cloud, transport, &self.shared.settings)),
            deadline: self.deadline,
            page_size: self.page_size,
        }
    }

    /// The same session with another time limit for every call.
    pub fn within(&self, deadline: Duration) -> Self {
        Self {
            deadline,
            ..self.clone()
        }
    }

    /// The same session with pages of another size.
    pub fn with_page_size(&self, page_size: u32) -> Self {
        Self {
            page_size: page_size.max(1),
            ..self.clone()
        }
    }

    /// Who we are and what we may, from the current token or a new one.
    pub async fn identity(&self) -> Result<Arc<Identity>> {
        let token = self
            .login
            .token(crate::transport::Deadline::after(self.deadline))
            .await?;
        Ok(Arc::clone(&token.identity))
    }

    /// Whether there is a token that has not ended; asks nobody.
    pub fn is_authenticated(&self) -> bool {
        self.login.has_token()
    }

    /// Why the last attempt to get a token failed; nothing after a success.
    pub fn login_failure(&self) -> Option<Error> {
        self.login.failure()
    }

    /// The region this session works in, if one is configured.
    pub fn region(&self) -> Option<&str> {
        self.login.cloud().region.as_deref()
    }

    /// The microversions that a service offers.
    pub async fn offer(&self, service: Service) -> Result<Offer> {
        self.offer_of(service).await
    }

    pub(crate) fn page_size(&self) -> u32 {
        self.page_size
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session")
            .field("auth_url", &self.login.cloud().auth_url.as_str())
            .field("scope", &self.login.cloud().scope)
            .finish_non_exhaustive()
    }
}
