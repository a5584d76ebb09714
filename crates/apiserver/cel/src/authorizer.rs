// SPDX-License-Identifier: Apache-2.0
//! `authorizer`: expressions of admission ask what the requester may do. A question is put together
//! call by call (`authorizer.group('apps').resource('deployments').namespace('a').check('get')`) and
//! answered by whoever handed the [`Authority`] in.

use std::fmt;
use std::sync::Arc;

use crate::eval::{Fail, R};
use crate::value::{Opaque, Value};

/// Answers questions about rights.
pub trait Authority: fmt::Debug + Send + Sync {
    /// Whether the requester, or the account named in the question, may do what is asked about.
    fn decide(&self, question: &Question, verb: &str) -> Verdict;
}

/// What is asked about: a path, or a resource.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Question {
    /// Namespace and name of the service account asked about instead of the requester.
    pub account: Option<(String, String)>,
    /// A path; the other fields are empty then.
    pub path: Option<String>,
    /// API group.
    pub group: String,
    /// Plural resource.
    pub resource: String,
    /// Subresource.
    pub subresource: String,
    /// Namespace; empty at the cluster scope.
    pub namespace: String,
    /// Name, when it is about one object.
    pub name: String,
}

/// An answer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Whether it is allowed.
    pub allowed: bool,
    /// Why, where that can be told.
    pub reason: String,
}

/// An authority and the question put to it so far.
#[derive(Debug, Clone)]
pub(crate) struct Inquiry {
    pub(crate) authority: Arc<dyn Authority>,
    pub(crate) question: Question,
}

impl PartialEq for Inquiry {
    fn eq(&self, other: &Self) -> bool {
        self.question == other.question
    }
}

/// The functions of inquiries; `stage` is the value they are called on.
pub(crate) fn call<'a>(name: &str, stage: &Opaque, rest: &[Value<'a>]) -> R<Option<Value<'a>>> {
    let mut texts = rest.iter().map(|value| match value {
        Value::Str(text) => Some(text.as_str().to_owned()),
        _ => None,
    });
    let mut text = || texts.next().flatten().unwrap_or_default();
    let asked = |inquiry: &Inquiry, change: &mut dyn FnMut(&mut Question)| {
        let mut next = inquiry.clone();
        change(&mut next.question);
        next
    };
    let next = match (stage, name) {
        (Opaque::Authorizer(inquiry), "serviceAccount") => {
            let account = (text(), text());
            check_account(&account)?;
            Opaque::Authorizer(asked(inquiry, &mut |q| q.account = Some(account.clone())))
        }
        (Opaque::Authorizer(inquiry), "path") => {
            let path = text();
            if path.is_empty() {
                return Err(Fail::error("path must not be empty"));
            }
            Opaque::PathCheck(asked(inquiry, &mut |q| q.path = Some(path.clone())))
        }
        (Opaque::Authorizer(inquiry), "group") => {
            let group = text();
            Opaque::GroupCheck(asked(inquiry, &mut |q| q.group.clone_from(&group)))
        }
        (Opaque::GroupCheck(inquiry), "resource") => {
            let resource = text();
            if resource.is_empty() {
                return Err(Fail::error("resource must not be empty"));
            }
            Opaque::ResourceCheck(asked(inquiry, &mut |q| q.resource.clone_from(&resource)))
        }
        (Opaque::ResourceCheck(inquiry), "subresource" | "namespace" | "name") => {
            let value = text();
            Opaque::ResourceCheck(asked(inquiry, &mut |q| {
                let part = match name {
                    "subresource" => &mut q.subresource,
                    "namespace" => &mut q.namespace,
                    _ => &mut q.name,
                };
                part.clone_from(&value);
            }))
        }
        // Rights do not depend on selectors here, as with the reference's RBAC.
        (Opaque::ResourceCheck(inquiry), "fieldSelector" | "labelSelector") => {
            Opaque::ResourceCheck(inquiry.clone())
        }
        (Opaque::PathCheck(inquiry) | Opaque::ResourceCheck(inquiry), "check") => {
            Opaque::Decision(inquiry.authority.decide(&inquiry.question, &text()))
        }
        (Opaque::Decision(verdict), _) => return Ok(about(verdict, name)),
        _ => return Ok(None),
    };
    Ok(Some(Value::opaque(next)))
}

fn about<'a>(verdict: &Verdict, name: &str) -> Option<Value<'a>> {
    Some(match name {
        "allowed" => Value::Bool(verdict.allowed),
        "reason" => Value::owned(verdict.reason.clone()),
        // Looking rights up in memory cannot fail.
        "errored" => Value::Bool(false),
        "error" => Value::owned(""),
        _ => return None,
    })
}

fn check_account((namespace, name): &(String, String)) -> R<()> {
    for (what, text, format) in [
        ("name", name, "dns1123Subdomain"),
        ("namespace", namespace, "dns1123Label"),
    ] {
        let problems = crate::format::validate(format, text);
        if let Some(problem) = problems.first() {
            return Err(Fail::Error(format!("Invalid service account {what}: {problem}")));
        }
    }
    Ok(())
}
