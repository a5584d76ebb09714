// SPDX-License-Identifier: Apache-2.0
//! Who may read a protected endpoint. The usual answer is asked from Kubernetes (who does the
//! bearer token belong to, and may that user `get` this path); answers are remembered for a
//! short while so that scrapes do not load the API server.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec, UserInfo};
use k8s_openapi::api::authorization::v1::{
    NonResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use kube::api::{Api, PostParams};
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::tls::TokenFile;

/// The answer to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Go ahead.
    Allowed,
    /// Say who you are.
    Unauthenticated,
    /// We know who you are, and no.
    Forbidden(String),
    /// Nobody could be asked; the request is refused, but may work later.
    Unavailable(String),
}

/// Decides about requests.
pub trait Authorize: Send + Sync + 'static {
    /// Whether the bearer of `token` may use `verb` (lower case method) on `path`.
    fn authorize<'a>(
        &'a self,
        token: Option<&'a str>,
        verb: &'a str,
        path: &'a str,
    ) -> BoxFuture<'a, Verdict>;
}

/// Lets everybody in.
#[derive(Clone, Copy, Debug, Default)]
pub struct AllowAll;

impl Authorize for AllowAll {
    fn authorize<'a>(&'a self, _: Option<&'a str>, _: &'a str, _: &'a str) -> BoxFuture<'a, Verdict> {
        Box::pin(std::future::ready(Verdict::Allowed))
    }
}

/// Lets in whoever has the token in a file.
#[derive(Clone, Debug)]
pub struct SharedToken(pub TokenFile);

impl Authorize for SharedToken {
    fn authorize<'a>(&'a self, token: Option<&'a str>, _: &'a str, _: &'a str) -> BoxFuture<'a, Verdict> {
        let verdict = match (token, self.0.current()) {
            (_, Err(error)) => Verdict::Unavailable(error.to_string()),
            (Some(given), Ok(wanted)) if equal(given.as_bytes(), wanted.as_bytes()) => Verdict::Allowed,
            _ => Verdict::Unauthenticated,
        };
        Box::pin(std::future::ready(verdict))
    }
}

/// Compares secrets without telling by its duration where the difference is. Nothing equals an
/// empty secret.
pub fn equal(one: &[u8], two: &[u8]) -> bool {
    one.len() == two.len() && !one.is_empty() && one.iter().zip(two).fold(0, |sum, (a, b)| sum | (a ^ b)) == 0
}

/// Asks Kubernetes with TokenReview and SubjectAccessReview.
#[derive(Clone)]
pub struct KubeAuthorizer {
    client: kube::Client,
    seen: Arc<Mutex<HashMap<Question, (Instant, Verdict)>>>,
}

/// A question by a digest of its token, so that tokens are not kept in memory.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Question {
    token: [u8; 32],
    verb: String,
    path: String,
}

const REMEMBER_YES: Duration = Duration::from_mins(1);
const REMEMBER_NO: Duration = Duration::from_secs(10);
const REMEMBER_MOST: usize = 1024;
const ASK_AT_MOST: Duration = Duration::from_secs(10);

impl KubeAuthorizer {
    /// Asks through `client`, which needs `create` on tokenreviews and subjectaccessreviews.
    pub fn new(client: kube::Client) -> Self {
        Self {
            client,
            seen: Arc::default(),
        }
    }

    async fn ask(&self, token: &str, verb: &str, path: &str) -> Result<Verdict, kube::Error> {
        let review = TokenReview {
            spec: TokenReviewSpec {
                token: token.to_owned(),
                ..TokenReviewSpec::default()
            },
            ..TokenReview::default()
        };
        let reviews: Api<TokenReview> = Api::all(self.client.clone());
        let status = reviews
            .create(&PostParams::default(), &review)
            .await?
            .status
            .unwrap_or_default();
        let (true, Some(user)) = (status.authenticated.unwrap_or(false), status.user) else {
            return Ok(Verdict::Unauthenticated);
        };
        let name = user.username.clone().unwrap_or_default();
        let reviews: Api<SubjectAccessReview> = Api::all(self.client.clone());
        let answer = reviews
            .create(&PostParams::default(), &access_review(user, verb, path))
            .await?;
        Ok(if answer.status.is_some_and(|status| status.allowed) {
            Verdict::Allowed
        } else {
            Verdict::Forbidden(format!("user {name:?} cannot {verb} path {path:?}"))
        })
    }

    fn recall(&self, question: &Question) -> Option<Verdict> {
        let seen = self.seen.lock();
        let (until, verdict) = seen.get(question)?;
        (*until > Instant::now()).then(|| verdict.clone())
    }

    fn remember(&self, question: Question, verdict: &Verdict) {
        let now = Instant::now();
        let keep = if *verdict == Verdict::Allowed {
            REMEMBER_YES
        } else {
            REMEMBER_NO
        };
        let mut seen = self.seen.lock();
        if seen.len() >= REMEMBER_MOST {
            seen.retain(|_, (until, _)| *until > now);
        }
        if seen.len() < REMEMBER_MOST {
            seen.insert(question, (now + keep, verdict.clone()));
        }
    }
}

fn access_review(user: UserInfo, verb: &str, path: &str) -> SubjectAccessReview {
    SubjectAccessReview {
        spec: SubjectAccessReviewSpec {
            user: user.username,
            uid: user.uid,
            groups: user.groups,
            extra: user.extra,
            non_resource_attributes: Some(NonResourceAttributes {
                path: Some(path.to_owned()),
                verb: Some(verb.to_owned()),
            }),
            ..SubjectAccessReviewSpec::default()
        },
        ..SubjectAccessReview::default()
    }
}

impl Authorize for KubeAuthorizer {
    fn authorize<'a>(
        &'a self,
        token: Option<&'a str>,
        verb: &'a str,
        path: &'a str,
    ) -> BoxFuture<'a, Verdict> {
        Box::pin(async move {
            let Some(token) = token.filter(|token| !token.is_empty()) else {
                return Verdict::Unauthenticated;
            };
            let digest = ring::digest::digest(&ring::digest::SHA256, token.as_bytes());
            let Ok(digest) = <[u8; 32]>::try_from(digest.as_ref()) else {
                return Verdict::Unauthenticated;
            };
            let question = Question {
                token: digest,
                verb: verb.to_owned(),
                path: path.to_owned(),
            };
            if let Some(verdict) = self.recall(&question) {
                return verdict;
            }
            match tokio::time::timeout(ASK_AT_MOST, self.ask(token, verb, path)).await {
                Ok(Ok(verdict)) => {
                    self.remember(question, &verdict);
                    verdict
                }
                Ok(Err(error)) => Verdict::Unavailable(error.to_string()),
                Err(_) => Verdict::Unavailable(format!("no answer within {ASK_AT_MOST:?}")),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::{Request, Response};
    use kube::client::Body;
    use serde_json::{Value, json};

    /// An API server that knows one token and allows one path.
    async fn serve(
        mut handle: tower_test::mock::Handle<Request<Body>, Response<Body>>,
        calls: Arc<Mutex<Vec<String>>>,
    ) {
        while let Some((request, send)) = handle.next_request().await {
            let path = request.uri().path().to_owned();
            let body = request.into_body().collect_bytes().await.unwrap();
            let mut review: Value = serde_json::from_slice(&body).unwrap();
            review["status"] = if path.ends_with("tokenreviews") {
                let known = review["spec"]["token"] == "good";
                json!({"authenticated": known, "user": {"username": "prometheus", "groups": ["g"]}})
            } else {
                assert_eq!(review["spec"]["user"], "prometheus");
                json!({"allowed": review["spec"]["nonResourceAttributes"] == json!({"path": "/metrics", "verb": "get"})})
            };
            calls.lock().push(path);
            send.send_response(Response::new(Body::from(serde_json::to_vec(&review).unwrap())));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn kubernetes_is_asked_once_per_token_and_path() {
        let (service, handle) = tower_test::mock::pair::<Request<Body>, Response<Body>>();
        let calls = Arc::default();
        tokio::spawn(serve(handle, Arc::clone(&calls)));
        let authorizer = KubeAuthorizer::new(kube::Client::new(service, "default"));
        assert_eq!(
            authorizer.authorize(None, "get", "/metrics").await,
            Verdict::Unauthenticated
        );
        assert_eq!(calls.lock().len(), 0, "no token, nothing to ask");
        for _ in 0..3 {
            assert_eq!(
                authorizer.authorize(Some("good"), "get", "/metrics").await,
                Verdict::Allowed
            );
        }
        assert_eq!(calls.lock().len(), 2);
        assert_eq!(
            authorizer.authorize(Some("bad"), "get", "/metrics").await,
            Verdict::Unauthenticated
        );
        let verdict = authorizer.authorize(Some("good"), "get", "/debug").await;
        assert_eq!(
            verdict,
            Verdict::Forbidden("user \"prometheus\" cannot get path \"/debug\"".into())
        );
        tokio::time::advance(REMEMBER_YES).await;
        assert_eq!(
            authorizer.authorize(Some("good"), "get", "/metrics").await,
            Verdict::Allowed
        );
        assert_eq!(calls.lock().len(), 7, "asked again once the answer is old");
    }

    #[tokio::test]
    async fn a_shared_token_lets_in_only_who_has_it() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "s3cret\n").unwrap();
        let shared = SharedToken(TokenFile::new(file.path()));
        assert_eq!(
            shared.authorize(Some("s3cret"), "get", "/").await,
            Verdict::Allowed
        );
        for wrong in [None, Some(""), Some("s3cre"), Some("s3crex")] {
            assert_eq!(
                shared.authorize(wrong, "get", "/").await,
                Verdict::Unauthenticated
            );
        }
        let missing = SharedToken(TokenFile::new("/nonexistent/token"));
        assert!(matches!(
            missing.authorize(Some("x"), "get", "/").await,
            Verdict::Unavailable(_)
        ));
    }
}
