// SPDX-License-Identifier: Apache-2.0
//! Who is looking, and what they may see and do. A person signs in with a Kubernetes bearer
//! token; from then on every question about their rights and every change they make goes to
//! the API server under that token. The console itself grants nothing.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
};
use kube::api::PostParams;
use kube::{Api, Client};
use parking_lot::Mutex;
use ring::rand::SecureRandom as _;
use tokio::time::Instant;

use crate::error::Error;

/// A session ends this long after it was last used.
const IDLE: Duration = Duration::from_secs(8 * 3600);
/// How long an answer about a right is believed.
const BELIEVED: Duration = Duration::from_secs(30);
const DEADLINE: Duration = Duration::from_secs(10);
const MOST_SESSIONS: usize = 10_000;

/// Something a person may or may not do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Right {
    /// See hypervisors.
    Hypervisors,
    /// See evictions.
    Evictions,
    /// See migrations.
    Migrations,
    /// See events.
    Events,
    /// Change hypervisors.
    ChangeHypervisors,
    /// Ask for evictions.
    CreateEvictions,
    /// Change evictions.
    ChangeEvictions,
    /// Take evictions back.
    DeleteEvictions,
}

impl Right {
    /// What pages offer beside what they are about.
    const BESIDE: [Self; 7] = [
        Self::Evictions,
        Self::Migrations,
        Self::Events,
        Self::ChangeHypervisors,
        Self::CreateEvictions,
        Self::ChangeEvictions,
        Self::DeleteEvictions,
    ];

    /// Verb, group and resource in Kubernetes.
    pub fn words(self) -> (&'static str, &'static str, &'static str) {
        const GROUP: &str = "kvm.cloud.sap";
        match self {
            Self::Hypervisors => ("list", GROUP, "hypervisors"),
            Self::Evictions => ("list", GROUP, "evictions"),
            Self::Migrations => ("list", GROUP, "migrations"),
            Self::Events => ("list", "events.k8s.io", "events"),
            Self::ChangeHypervisors => ("patch", GROUP, "hypervisors"),
            Self::CreateEvictions => ("create", GROUP, "evictions"),
            Self::ChangeEvictions => ("patch", GROUP, "evictions"),
            Self::DeleteEvictions => ("delete", GROUP, "evictions"),
        }
    }
}

/// What a person may see and do beside what a page is about, so that pages offer only what leads somewhere.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Allowed {
    /// See evictions.
    pub see_evictions: bool,
    /// See migrations.
    pub see_migrations: bool,
    /// See events.
    pub see_events: bool,
    /// Change hypervisors, and decide about their incidents.
    pub change_hypervisors: bool,
    /// Ask for evictions.
    pub create_evictions: bool,
    /// Try evictions again.
    pub change_evictions: bool,
    /// Take evictions back.
    pub delete_evictions: bool,
}

impl Allowed {
    /// Everything, for the tests of views.
    #[cfg(test)]
    pub(crate) fn everything() -> Self {
        Self {
            see_evictions: true,
            see_migrations: true,
            see_events: true,
            change_hypervisors: true,
            create_evictions: true,
            change_evictions: true,
            delete_evictions: true,
        }
    }
}

impl fmt::Display for Right {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (verb, group, resource) = self.words();
        write!(f, "{verb} {resource}.{group}")
    }
}

/// A person who signed in.
pub struct Session {
    /// The name Kubernetes knows them by.
    pub user: String,
    /// What a form must carry to be taken as theirs.
    pub csrf: String,
    /// Whether what they see is a simulation.
    pub simulated: bool,
    client: Client,
    rights: Mutex<HashMap<Right, (Instant, bool)>>,
    used: Mutex<Instant>,
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session")
            .field("user", &self.user)
            .finish_non_exhaustive()
    }
}

impl Session {
    /// Speaks to Kubernetes as this person.
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// Whether this person has the right, asked from Kubernetes.
    pub async fn may(&self, right: Right) -> Result<bool, Error> {
        let known = self.rights.lock().get(&right).copied();
        if let Some((at, allowed)) = known
            && at.elapsed() < BELIEVED
        {
            return Ok(allowed);
        }
        let (verb, group, resource) = right.words();
        let review = SelfSubjectAccessReview {
            spec: SelfSubjectAccessReviewSpec {
                resource_attributes: Some(ResourceAttributes {
                    verb: Some(verb.into()),
                    group: Some(group.into()),
                    resource: Some(resource.into()),
                    ..ResourceAttributes::default()
                }),
                ..SelfSubjectAccessReviewSpec::default()
            },
            ..SelfSubjectAccessReview::default()
        };
        let reviews: Api<SelfSubjectAccessReview> = Api::all(self.client.clone());
        let answer = within("ask for a right", reviews.create(&PostParams::default(), &review)).await?;
        let allowed = answer.status.is_some_and(|status| status.allowed);
        self.rights.lock().insert(right, (Instant::now(), allowed));
        Ok(allowed)
    }

    /// What this person may see and do; what cannot be asked is not offered.
    pub async fn allowed(&self) -> Allowed {
        let asked = Right::BESIDE.map(|right| async move { (right, self.may(right).await.unwrap_or(false)) });
        let answers = futures::future::join_all(asked).await;
        let may = |right| answers.contains(&(right, true));
        Allowed {
            see_evictions: may(Right::Evictions),
            see_migrations: may(Right::Migrations),
            see_events: may(Right::Events),
            change_hypervisors: may(Right::ChangeHypervisors),
            create_evictions: may(Right::CreateEvictions),
            change_evictions: may(Right::ChangeEvictions),
            delete_evictions: may(Right::DeleteEvictions),
        }
    }

    /// The right, or the refusal to show.
    pub async fn need(&self, right: Right) -> Result<(), Error> {
        if self.may(right).await? {
            return Ok(());
        }
        Err(Error::Forbidden {
            user: self.user.clone(),
            right,
        })
    }
}

/// Everybody who is signed in. A restart signs everybody out.
pub struct Sessions {
    config: kube::Config,
    /// Short codes that stand for a bearer token, so that a start can print a link.
    codes: HashMap<String, String>,
    simulated: bool,
    open: Mutex<HashMap<String, Arc<Session>>>,
}

impl fmt::Debug for Sessions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sessions")
            .field("open", &self.open.lock().len())
            .finish_non_exhaustive()
    }
}

impl Sessions {
    /// Signs people in against the API server of `config`; its own credentials are not used.
    pub fn new(config: &kube::Config, codes: HashMap<String, String>, simulated: bool) -> Self {
        Self {
            config: config.clone(),
            codes,
            simulated,
            open: Mutex::default(),
        }
    }

    /// Opens a session for whoever the token (or code) belongs to; the answer is its key.
    pub async fn open(&self, secret: &str) -> Result<(String, Arc<Session>), Error> {
        let secret = secret.trim();
        let token = self.codes.get(secret).map_or(secret, String::as_str);
        if token.is_empty() || !token.chars().all(|c| c.is_ascii_graphic()) {
            return Err(Error::NotKnown);
        }
        let client = self.client_of(token)?;
        let reviews: Api<SelfSubjectReview> = Api::all(client.clone());
        let answer = within(
            "ask whose token this is",
            reviews.create(&PostParams::default(), &SelfSubjectReview::default()),
        )
        .await;
        let user = match answer {
            Ok(review) => review
                .status
                .and_then(|status| status.user_info)
                .and_then(|user| user.username),
            Err(Error::Kubernetes { source, .. }) if refused(&source) => None,
            Err(error) => return Err(error),
        };
        let user = user
            .filter(|user| user != "system:anonymous")
            .ok_or(Error::NotKnown)?;
        let session = Arc::new(Session {
            user,
            csrf: random()?,
            simulated: self.simulated,
            client,
            rights: Mutex::default(),
            used: Mutex::new(Instant::now()),
        });
        let key = random()?;
        let mut open = self.open.lock();
        open.retain(|_, session| session.used.lock().elapsed() < IDLE);
        if open.len() >= MOST_SESSIONS {
            return Err(Error::Busy);
        }
        open.insert(key.clone(), session.clone());
        drop(open);
        tracing::info!(user = session.user, "signed in");
        Ok((key, session))
    }

    /// The session of a key.
    pub fn get(&self, key: &str) -> Option<Arc<Session>> {
        let session = self.open.lock().get(key).cloned()?;
        let mut used = session.used.lock();
        if used.elapsed() >= IDLE {
            drop(used);
            self.close(key);
            return None;
        }
        *used = Instant::now();
        drop(used);
        Some(session)
    }

    /// Ends a session.
    pub fn close(&self, key: &str) {
        self.open.lock().remove(key);
    }

    fn client_of(&self, token: &str) -> Result<Client, Error> {
        let mut config = self.config.clone();
        // Nothing of the console's own identity may leak into a request of somebody else.
        config.auth_info = kube::config::AuthInfo {
            token: Some(token.to_owned().into()),
            ..kube::config::AuthInfo::default()
        };
        Client::try_from(config).map_err(|source| Error::Kubernetes {
            what: "prepare a connection",
            source,
        })
    }
}

fn refused(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 401 || status.code == 403)
}

/// Runs a call to Kubernetes under the console's deadline.
pub(crate) async fn within<T>(
    what: &'static str,
    call: impl Future<Output = Result<T, kube::Error>>,
) -> Result<T, Error> {
    match tokio::time::timeout(DEADLINE, call).await {
        Ok(answer) => answer.map_err(|source| Error::Kubernetes { what, source }),
        Err(_) => Err(Error::Late { what }),
    }
}

fn random() -> Result<String, Error> {
    let mut bytes = [0; 32];
    ring::rand::SystemRandom::new()
        .fill(&mut bytes)
        .map_err(|_| Error::Random)?;
    Ok(URL_SAFE_NO_PAD.encode(bytes))
}
