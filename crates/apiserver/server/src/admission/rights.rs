// SPDX-License-Identifier: Apache-2.0
//! What expressions of admission ask `authorizer` about: the rights of the requester, or of an
//! account they name, as the roles are when the request is looked at. Nothing is recorded: a
//! question is no request.

use std::sync::Arc;

use cobaltcore_access::identity::User;
use cobaltcore_access::rbac::{Attributes, Index, authorize};
use cobaltcore_cel::{Authority, Input, Question, Verdict};

use super::subject::Subject;
use crate::api::Api;
use crate::config::Authorization;

/// The rights behind one request.
#[derive(Debug)]
struct Rights {
    index: Arc<Index>,
    user: User,
    /// Everything is allowed anyway.
    open: bool,
}

impl Authority for Rights {
    fn decide(&self, question: &Question, verb: &str) -> Verdict {
        if self.open {
            return Verdict {
                allowed: true,
                ..Verdict::default()
            };
        }
        let account = question
            .account
            .as_ref()
            .map(|(namespace, name)| User::service_account(namespace, name, None));
        let user = account.as_ref().unwrap_or(&self.user);
        let attributes = match &question.path {
            Some(path) => Attributes::path(user, verb, path),
            None => Attributes::resource(user, verb, &question.group, &question.resource)
                .of_subresource(&question.subresource)
                .in_namespace(&question.namespace)
                .named(&question.name),
        };
        let decision = authorize(&self.index, &attributes);
        Verdict {
            allowed: decision.allowed,
            reason: decision.reason(),
        }
    }
}

/// The variables through which expressions ask.
#[derive(Debug)]
pub(super) struct Asking {
    authority: Arc<dyn Authority>,
    request: Question,
}

impl Asking {
    pub(super) fn of(api: &Api, subject: &Subject<'_>) -> Self {
        let rights = Rights {
            index: api.rbac.load_full(),
            user: subject.call.user.clone(),
            open: api.config.authorization == Authorization::AlwaysAllow,
        };
        Self {
            authority: Arc::new(rights),
            request: Question {
                group: subject.resource.group.to_string(),
                resource: subject.resource.plural.to_string(),
                subresource: subject.subresource.to_owned(),
                namespace: subject.namespace.clone(),
                name: subject.name.clone(),
                ..Question::default()
            },
        }
    }

    pub(super) fn authorizer(&self) -> (&'static str, Input<'_>) {
        ("authorizer", Input::Authorizer(&self.authority))
    }

    pub(super) fn request_resource(&self) -> (&'static str, Input<'_>) {
        (
            "authorizer.requestResource",
            Input::ResourceCheck(&self.authority, &self.request),
        )
    }
}
