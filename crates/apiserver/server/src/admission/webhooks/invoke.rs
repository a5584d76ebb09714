// SPDX-License-Identifier: Apache-2.0
//! One call of one webhook: the review is sent to wherever the webhook is served, within its time,
//! and the answer is judged. Handlers inside this process are asked without network or certificate.

use cobaltcore_text::go;
use std::panic::AssertUnwindSafe;
use std::time::{Duration, Instant};

use futures::FutureExt;
use serde_json::Value;

use super::Webhooks;
use super::endpoints;
use super::hook::{Hook, Target};
use super::line::{Letter, Line, Reply};
use super::review::{self, Failure, Verdict};
use crate::admission::subject::{Form, Subject};
use crate::api::Api;
use crate::status::ApiError;

/// Characters of a server's error page that are quoted.
const QUOTED: usize = 512;
const LATE: &str = "context deadline exceeded";

/// How a call can end badly.
#[derive(Debug)]
pub(super) enum Trouble {
    /// The webhook could not be asked; its failure policy decides.
    Call { why: String, code: u16 },
    /// The webhook said no.
    Denied(ApiError),
    /// The server itself must refuse, whatever the policy says.
    Internal(ApiError),
}

impl Trouble {
    fn call(why: impl Into<String>) -> Self {
        Self::Call {
            why: why.into(),
            code: 503,
        }
    }
}

impl Webhooks {
    /// Asks one webhook and reports its warnings.
    pub(super) async fn invoke(
        &self,
        api: &Api,
        hook: &Hook,
        subject: &Subject<'_>,
        form: &Form,
        object: Option<&Value>,
        mutating: bool,
    ) -> Result<Verdict, Trouble> {
        if subject.dry_run && !hook.dry_run_safe {
            let text = format!(
                "admission webhook {} does not support dry run",
                go::quote(&hook.name)
            );
            return Err(Trouble::Internal(ApiError::bad_request(text)));
        }
        let Some(version) = hook.review else {
            return Err(Trouble::call(
                "could not create admission objects: webhook does not accept known AdmissionReview versions (v1, v1beta1)",
            ));
        };
        let uid = uuid::Uuid::new_v4().to_string();
        let review = review::request(&uid, version, subject, form, object);
        let limit = hook
            .timeout
            .min(subject.call.deadline.saturating_duration_since(Instant::now()));
        let answer = self
            .post(api, &hook.target, &hook.line, limit, review)
            .await
            .map_err(Trouble::from)?;
        let verdict = review::verdict(&uid, version, mutating, &answer).map_err(|failure| match failure {
            Failure::Call(why) => Trouble::call(format!("failed to call webhook: {why}")),
            Failure::Invalid(why) => Trouble::call(format!("received invalid webhook response: {why}")),
        })?;
        // A warning is a header; one that cannot be a header is none.
        for warning in verdict
            .warnings
            .iter()
            .filter(|text| !text.chars().any(char::is_control))
        {
            subject.call.warn(warning.clone());
        }
        if verdict.allowed {
            Ok(verdict)
        } else {
            Err(Trouble::Denied(review::denied(hook, &verdict.result)))
        }
    }

    /// Sends a review to wherever its service is, within `limit`, and reads the answer.
    pub(super) async fn post(
        &self,
        api: &Api,
        target: &Target,
        line: &Line,
        limit: Duration,
        review: Value,
    ) -> Result<Value, Unanswered> {
        let url = Url {
            target,
            timeout: limit,
        };
        match tokio::time::timeout(limit, self.ask(api, target, line, &url, review)).await {
            Ok(answer) => answer,
            Err(_) => Err(Unanswered::called(format!("Post \"{url}\": {LATE}"))),
        }
    }

    async fn ask(
        &self,
        api: &Api,
        target: &Target,
        line: &Line,
        url: &Url<'_>,
        review: Value,
    ) -> Result<Value, Unanswered> {
        let unreached = |why: String| Unanswered::called(format!("Post \"{url}\": {why}"));
        if let Target::Service {
            namespace,
            name,
            path,
            ..
        } = target
            && self.serves(namespace, name)
        {
            let Some(handler) = self.handler(namespace, name, path) else {
                return Err(refused(404, "404 page not found"));
            };
            // A handler that panics is a webhook that failed, not a server that did.
            let answer = AssertUnwindSafe(async move { handler(review).await })
                .catch_unwind()
                .await;
            return answer.map_err(|_| unreached("EOF".into()));
        }
        line.tls().map_err(|why| Unanswered {
            why: format!("could not get REST client: {why}"),
            code: 503,
            called: false,
        })?;
        let addresses = match target {
            Target::Url { host, port, .. } if host.contains(':') => vec![format!("[{host}]:{port}")],
            Target::Url { host, port, .. } => vec![format!("{host}:{port}")],
            Target::Service {
                namespace,
                name,
                port,
                ..
            } => endpoints::of_service(api, namespace, name, *port).map_err(unreached)?,
        };
        let letter = Letter {
            addresses: &addresses,
            server_name: &target.server_name(),
            authority: &target.authority(),
            path: &url.path_and_query(),
            body: crate::store::serialize(&review).into(),
        };
        read(&line.send(&letter).await.map_err(unreached)?)
    }
}

/// Why a service gave no answer that can be read.
#[derive(Debug)]
pub(super) struct Unanswered {
    pub why: String,
    code: u16,
    /// The request was made, as opposed to impossible to make.
    called: bool,
}

impl Unanswered {
    fn called(why: impl Into<String>) -> Self {
        Self {
            why: why.into(),
            code: 503,
            called: true,
        }
    }
}

impl From<Unanswered> for Trouble {
    fn from(unanswered: Unanswered) -> Self {
        let Unanswered { why, code, called } = unanswered;
        Self::Call {
            why: if called {
                format!("failed to call webhook: {why}")
            } else {
                why
            },
            code,
        }
    }
}

/// The URL of a call, for the request and for messages.
struct Url<'a> {
    target: &'a Target,
    timeout: Duration,
}

impl Url<'_> {
    fn path_and_query(&self) -> String {
        // Webhooks are told whole seconds, rounded up.
        let seconds = self.timeout.as_secs() + u64::from(self.timeout.subsec_nanos() > 0);
        format!("{}?timeout={seconds}s", self.target.path())
    }
}

impl std::fmt::Display for Url<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "https://{}{}", self.target.authority(), self.path_and_query())
    }
}

fn read(reply: &Reply) -> Result<Value, Unanswered> {
    let Reply { code, is_text, body } = reply;
    if !(200..300).contains(code) {
        if let Some(why) = status_message(body) {
            return Err(Unanswered {
                code: *code,
                ..Unanswered::called(why)
            });
        }
        let told = String::from_utf8_lossy(body);
        return Err(refused(*code, if *is_text { &told } else { "" }));
    }
    if body.is_empty() {
        return Err(Unanswered::called(format!(
            "0-length response with status code: {code} and content type: application/json"
        )));
    }
    // What is no JSON may be YAML.
    let decoded = crate::decode::json(body).or_else(|why| crate::yaml::decode(body).map_err(|_| why));
    match decoded {
        Ok(decoded) if decoded.value.is_object() => Ok(decoded.value),
        Ok(decoded) => Err(Unanswered::called(format!(
            "couldn't get version/kind; json parse error: json: cannot unmarshal {} into Go value of type struct {{ APIVersion string \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" }}",
            crate::decode::json_type(&decoded.value)
        ))),
        Err(why) => Err(Unanswered::called(format!(
            "couldn't get version/kind; json parse error: {why}"
        ))),
    }
}

/// What an answer says that is a `Status`: that is taken at its word.
fn status_message(body: &[u8]) -> Option<String> {
    let status = crate::decode::json(body).ok()?.value;
    let is = |key: &str, text: &str| status[key] == text;
    (is("kind", "Status") && is("apiVersion", "v1") && !is("status", "Success"))
        .then(|| status["message"].as_str().unwrap_or_default().to_owned())
}

/// An answer that is an error, in the words of the reference's client.
fn refused(code: u16, body: &str) -> Unanswered {
    let told: String = body.trim().chars().take(QUOTED).collect();
    let told = if told.is_empty() {
        "unknown".to_owned()
    } else {
        told
    };
    let text = match code {
        400 => "the server rejected our request for an unknown reason".to_owned(),
        401 => "the server has asked for the client to provide credentials".to_owned(),
        403 | 415 => told,
        404 => "the server could not find the requested resource".to_owned(),
        405 => "the server does not allow this method on the requested resource".to_owned(),
        406 if told == "unknown" => {
            "the server was unable to respond with a content type that the client supports".to_owned()
        }
        406 => told,
        409 => "the server reported a conflict".to_owned(),
        422 => "the server rejected our request due to an error in our request".to_owned(),
        429 => "the server has received too many requests and has asked us to try again later".to_owned(),
        503 => "the server is currently unable to handle the request".to_owned(),
        504 => "the server was unable to return a response in the time allotted, but may still be processing the request".to_owned(),
        500.. => format!(
            "an error on the server ({told}) has prevented the request from succeeding",
            told = go::quote(&told)
        ),
        _ => format!("the server responded with the status code {code} but did not return more information"),
    };
    Unanswered {
        code,
        ..Unanswered::called(text)
    }
}
