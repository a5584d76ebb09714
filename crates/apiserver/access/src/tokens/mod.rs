// SPDX-License-Identifier: Apache-2.0
//! Bearer tokens: from the text in a header to an identity, or to a refusal.
//!
//! Three kinds are known: the admin token, static tokens from a file, and ServiceAccount tokens
//! signed by this server. A ServiceAccount token counts only while its account and the object it
//! is bound to exist; that is asked on every use, so a deletion takes effect at once.

mod file;
mod jwt;
mod request;

pub use file::StaticTokens;
pub use jwt::{Claims, ObjectRef, ServiceAccountKey};
pub use request::{token_request, token_review};

use crate::identity::{CREDENTIAL_ID, NODE_NAME, NODE_UID, POD_NAME, POD_UID, User};
use jiff::{SignedDuration, Timestamp};
use ring::digest;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// The issuer of ServiceAccount tokens, unless configured.
pub const DEFAULT_ISSUER: &str = "https://kubernetes.default.svc";
/// Clocks may differ by this much; also the time a deletion may take to finish.
const LEEWAY: SignedDuration = SignedDuration::from_secs(60);
/// Longer than any token this server issues; anything beyond is not worth hashing.
const MAX_TOKEN_BYTES: usize = 64 * 1024;
/// Verified signatures that are remembered.
const CACHE_ENTRIES: usize = 1024;

/// Kinds of objects that tokens refer to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SubjectKind {
    /// A ServiceAccount.
    ServiceAccount,
    /// A Pod.
    Pod,
    /// A Secret.
    Secret,
    /// A Node; it has no namespace.
    Node,
}

impl SubjectKind {
    /// The plural resource.
    pub fn resource(self) -> &'static str {
        match self {
            Self::ServiceAccount => "serviceaccounts",
            Self::Pod => "pods",
            Self::Secret => "secrets",
            Self::Node => "nodes",
        }
    }
}

/// What the server knows about an object that a token refers to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Subject {
    /// Its uid.
    pub uid: String,
    /// Its deletionTimestamp, while it is being deleted.
    pub deleted_at: Option<Timestamp>,
    /// Pods: spec.serviceAccountName.
    pub service_account: String,
    /// Pods: spec.nodeName, may be empty.
    pub node: String,
}

/// Answers from memory whether an object exists.
pub trait SubjectLookup {
    /// The object, if it exists; `namespace` is empty for nodes.
    fn find(&self, kind: SubjectKind, namespace: &str, name: &str) -> Option<Subject>;
}

/// A caller whose credentials are good.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Authenticated {
    /// Who it is; always a member of system:authenticated.
    pub user: User,
    /// Which of the asked audiences the credentials are for.
    pub audiences: Vec<String>,
}

/// Why credentials are not good. The server answers 401 `Unauthorized` and shows this nowhere
/// but in TokenReview.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuthnError(String);

impl AuthnError {
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// A token that nobody here knows.
    pub fn unknown() -> Self {
        Self::new("invalid bearer token")
    }

    /// The text of `status.error` in a TokenReview: the reference asks two authenticators.
    pub fn review_text(&self) -> String {
        if *self == Self::unknown() {
            self.0.clone()
        } else {
            format!("[{}, {}]", Self::unknown(), self.0)
        }
    }
}

impl std::fmt::Display for AuthnError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for AuthnError {}

/// The token of an `Authorization` header; `None` when the header carries no bearer token.
pub fn bearer_token(header: &str) -> Option<&str> {
    let mut parts = header.trim().splitn(3, ' ');
    let scheme = parts.next()?;
    let token = parts.next()?;
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}

type Digest = [u8; 32];

/// Tokens are kept and compared as digests: the comparison tells nothing about their content.
fn digest_of(token: &str) -> Digest {
    let mut out = [0; 32];
    for (to, from) in out
        .iter_mut()
        .zip(digest::digest(&digest::SHA256, token.as_bytes()).as_ref())
    {
        *to = *from;
    }
    out
}

fn same(a: &Digest, b: &Digest) -> bool {
    let difference = a.iter().zip(b).fold(0u8, |all, (x, y)| all | (x ^ y));
    std::hint::black_box(difference) == 0
}

/// Turns bearer tokens into identities.
pub struct Authenticator {
    known: Vec<(Digest, User)>,
    key: Arc<ServiceAccountKey>,
    issuer: String,
    audiences: Vec<String>,
    verified: Mutex<HashMap<Digest, Arc<Claims>>>,
}

impl std::fmt::Debug for Authenticator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Authenticator")
            .field("issuer", &self.issuer)
            .finish_non_exhaustive()
    }
}

impl Authenticator {
    /// Knows the admin token and the tokens signed by `key`; the issuer is also the audience.
    pub fn new(admin_token: &str, key: Arc<ServiceAccountKey>) -> Self {
        Self {
            known: vec![(digest_of(admin_token), User::admin())],
            key,
            issuer: DEFAULT_ISSUER.to_owned(),
            audiences: vec![DEFAULT_ISSUER.to_owned()],
            verified: Mutex::default(),
        }
    }

    /// Also knows the tokens of a file.
    pub fn with_static_tokens(mut self, tokens: StaticTokens) -> Self {
        for (token, user) in tokens.into_entries() {
            self.known.push((digest_of(&token), user.authenticated()));
        }
        self
    }

    /// Another issuer, which is then also the audience of the server.
    pub fn with_issuer(mut self, issuer: &str) -> Self {
        issuer.clone_into(&mut self.issuer);
        self.audiences = vec![self.issuer.clone()];
        self
    }

    /// The issuer of ServiceAccount tokens.
    pub fn issuer(&self) -> &str {
        &self.issuer
    }

    /// The audiences of this server.
    pub fn audiences(&self) -> &[String] {
        &self.audiences
    }

    /// The key that signs ServiceAccount tokens.
    pub fn key(&self) -> &ServiceAccountKey {
        &self.key
    }

    /// The identity behind a bearer token presented to this server.
    pub fn authenticate(
        &self,
        bearer: &str,
        now: Timestamp,
        lookup: &dyn SubjectLookup,
    ) -> Result<Authenticated, AuthnError> {
        self.authenticate_for(bearer, &self.audiences, now, lookup)
    }

    /// The identity behind a bearer token meant for one of `audiences`.
    pub fn authenticate_for(
        &self,
        bearer: &str,
        audiences: &[String],
        now: Timestamp,
        lookup: &dyn SubjectLookup,
    ) -> Result<Authenticated, AuthnError> {
        if bearer.is_empty() || bearer.len() > MAX_TOKEN_BYTES {
            return Err(AuthnError::unknown());
        }
        let digest = digest_of(bearer);
        let mut found = None;
        // Every entry is looked at, so that the time taken does not tell which one matched.
        for (known, user) in &self.known {
            if same(known, &digest) {
                found = Some(user);
            }
        }
        if let Some(user) = found {
            let shared: Vec<String> = audiences
                .iter()
                .filter(|a| self.audiences.contains(a))
                .cloned()
                .collect();
            if shared.is_empty() {
                return Err(AuthnError::unknown());
            }
            return Ok(Authenticated {
                user: user.clone(),
                audiences: shared,
            });
        }
        let claims = self.verified_claims(bearer, digest)?;
        let shared: Vec<String> = claims
            .audiences
            .iter()
            .filter(|a| audiences.contains(a))
            .cloned()
            .collect();
        if shared.is_empty() {
            return Err(AuthnError::new(format!(
                "token audiences {} is invalid for the target audiences {}",
                cobaltcore_text::go::quote_list(&claims.audiences),
                cobaltcore_text::go::quote_list(audiences)
            )));
        }
        check_times(&claims, now)?;
        check_objects(&claims, now, lookup)?;
        Ok(Authenticated {
            user: user_of(&claims),
            audiences: shared,
        })
    }

    /// Checks signature and issuer; a token once verified is remembered by its digest.
    fn verified_claims(&self, bearer: &str, digest: Digest) -> Result<Arc<Claims>, AuthnError> {
        if let Some(claims) = self
            .verified
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get(&digest)
        {
            return Ok(Arc::clone(claims));
        }
        let claims = Arc::new(self.key.verify(bearer, &self.issuer)?);
        let mut verified = self.verified.lock().unwrap_or_else(PoisonError::into_inner);
        if verified.len() >= CACHE_ENTRIES {
            verified.clear();
        }
        verified.insert(digest, Arc::clone(&claims));
        Ok(claims)
    }

    /// The document at `/.well-known/openid-configuration`; `external` is host and port.
    pub fn openid_configuration(&self, external: &str) -> Value {
        json!({
            "issuer": self.issuer,
            "jwks_uri": format!("https://{external}/openid/v1/jwks"),
            "response_types_supported": ["id_token"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": ["ES256"],
        })
    }

    /// The document at `/openid/v1/jwks`.
    pub fn jwks(&self) -> Value {
        json!({"keys": [self.key.jwk()]})
    }
}

fn check_times(claims: &Claims, now: Timestamp) -> Result<(), AuthnError> {
    let now = now.as_second();
    let leeway = LEEWAY.as_secs();
    if now.saturating_add(leeway) < claims.not_before {
        return Err(AuthnError::new("service account token is not valid yet"));
    }
    if now.saturating_sub(leeway) > claims.expires {
        return Err(AuthnError::new("service account token has expired"));
    }
    if now.saturating_add(leeway) < claims.issued_at {
        return Err(AuthnError::new("service account token is issued in the future"));
    }
    Ok(())
}

fn gone(subject: &Subject, now: Timestamp) -> bool {
    subject
        .deleted_at
        .is_some_and(|at| at.as_second() < now.as_second().saturating_sub(LEEWAY.as_secs()))
}

fn check_objects(claims: &Claims, now: Timestamp, lookup: &dyn SubjectLookup) -> Result<(), AuthnError> {
    let (namespace, account) = (claims.namespace.as_str(), &claims.service_account);
    let Some(found) = lookup.find(SubjectKind::ServiceAccount, namespace, &account.name) else {
        return Err(AuthnError::new(format!(
            "serviceaccounts {} not found",
            cobaltcore_text::go::quote(&account.name)
        )));
    };
    if found.uid != account.uid {
        return Err(AuthnError::new(format!(
            "service account UID ({}) does not match claim ({})",
            found.uid, account.uid
        )));
    }
    if gone(&found, now) {
        return Err(AuthnError::new(format!(
            "service account {namespace}/{} has been deleted",
            account.name
        )));
    }
    // A pod's token names its node only for information; a node's own token is bound to it.
    let node = claims.node.as_ref().filter(|_| claims.pod.is_none());
    let bound = [
        (SubjectKind::Secret, "secret", claims.secret.as_ref()),
        (SubjectKind::Pod, "pod", claims.pod.as_ref()),
        (SubjectKind::Node, "node", node),
    ];
    for (kind, word, reference) in bound {
        let Some(reference) = reference else { continue };
        let namespace = if kind == SubjectKind::Node { "" } else { namespace };
        let Some(found) = lookup.find(kind, namespace, &reference.name) else {
            return Err(AuthnError::new("service account token has been invalidated"));
        };
        if found.uid != reference.uid {
            return Err(AuthnError::new(format!(
                "{word} UID ({}) does not match service account {word} ref claim ({})",
                found.uid, reference.uid
            )));
        }
        if gone(&found, now) {
            return Err(AuthnError::new("service account token has been invalidated"));
        }
    }
    Ok(())
}

fn user_of(claims: &Claims) -> User {
    let account = &claims.service_account;
    let mut user = User::service_account(&claims.namespace, &account.name, Some(&account.uid));
    let mut note = |key: &str, value: &str| {
        if !value.is_empty() {
            user.extra.insert(key.to_owned(), vec![value.to_owned()]);
        }
    };
    if let Some(pod) = &claims.pod {
        note(POD_NAME, &pod.name);
        note(POD_UID, &pod.uid);
    }
    if let Some(node) = &claims.node {
        note(NODE_NAME, &node.name);
        note(NODE_UID, &node.uid);
    }
    if !claims.id.is_empty() {
        note(CREDENTIAL_ID, &format!("JTI={}", claims.id));
    }
    user
}
