// SPDX-License-Identifier: Apache-2.0
//! Kinds that are asked and never stored: reviews of identity and access, and bindings.

use std::sync::Arc;

use cobaltcore_access::rbac::Attributes;
use cobaltcore_access::review;
use cobaltcore_access::tokens::{self, Subject, SubjectKind, SubjectLookup};
use serde_json::{Value, json};

use crate::admission::{Attempt, Operation};
use crate::api::Api;
use crate::call::{Answer, Call};
use crate::clock;
use crate::config::Authorization;
use crate::meta;
use crate::negotiate::Form;
use crate::options::WriteOptions;
use crate::registry::{Registry, Resource};
use crate::status::{ApiError, ApiResult};
use crate::write::{Write, receive};

impl Api {
    /// POST of a kind that is not stored.
    pub async fn create_virtual(
        self: &Arc<Self>,
        call: &Call,
        registry: &Arc<Registry>,
        resource: &Arc<Resource>,
    ) -> ApiResult<Answer> {
        let options = WriteOptions::parse(&call.query, "CreateOptions", false)?;
        let form = Form::negotiate(&call.headers, &call.query, false)?;
        if resource.is("", "Binding") {
            let pods = registry
                .get("", "v1", "pods")
                .ok_or_else(ApiError::no_such_resource)?;
            let body = call.decode_body("Binding")?.value;
            let name = meta::name(&body).to_owned();
            return self.bind_pod(call, registry, &pods, &name).await;
        }
        let write = Write {
            call,
            registry,
            resource,
            subresource: None,
            options: &options,
            form,
        };
        let decoded = call.decode_object(resource)?;
        let mut body = receive(&write, decoded)?;
        if !resource.namespaced {
            meta::set(&mut body, "namespace", Value::Null);
        }
        let tracked = resource.kind.ends_with("AccessReview") || &*resource.kind == "TokenReview";
        if tracked {
            // The answer is the server's.
            meta::fields(&mut body).remove("status");
            self.own(&write, None, &mut body);
        }
        if resource.kind.ends_with("AccessReview") {
            // Nothing is allowed before it was asked.
            body["status"] = json!({"allowed": false});
        }
        self.admit_question(&write, &mut body).await?;
        let owned = body.clone();
        meta::set(&mut body, "managedFields", Value::Null);
        let authorize = |attributes: &Attributes<'_>| self.authorize(attributes);
        let now = self.clock.now();
        let mut answer = match &*resource.kind {
            "SelfSubjectReview" => review::self_subject_review(&call.user, now),
            "SelfSubjectAccessReview" => review::self_subject_access_review(&body, &call.user, &authorize)?,
            "SubjectAccessReview" => review::subject_access_review(&body, &authorize)?,
            "LocalSubjectAccessReview" => {
                review::local_subject_access_review(&body, &call.info.namespace, &authorize)?
            }
            "SelfSubjectRulesReview" => {
                let index = self.rbac.load();
                let rules = (self.config.authorization != Authorization::AlwaysAllow)
                    .then_some((&**index, &call.user));
                review::self_subject_rules_review(&body, rules)?
            }
            "TokenReview" => tokens::token_review(&self.authenticator, &body, &**self, now)?,
            other => return Err(ApiError::internal(format!("{other} cannot be created"))),
        };
        if tracked {
            meta::copy(&mut answer, &owned, &["managedFields"]);
        }
        Ok(Answer::value(201, form, &answer))
    }

    /// Admission of what is asked: whoever may change or refuse objects may change and refuse this.
    async fn admit_question(&self, write: &Write<'_>, body: &mut Value) -> ApiResult<()> {
        let attempt = Attempt {
            write,
            operation: Operation::Create,
            namespace: write.call.info.namespace.clone(),
            name: meta::name(body).to_owned(),
            old: None,
            options: json!({"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"}),
        };
        self.mutate(&attempt, body).await?;
        self.validate(&attempt, Some(body)).await
    }
}

/// What tokens refer to is looked up in memory on every request, so that a deletion counts at once.
impl SubjectLookup for Api {
    fn find(&self, kind: SubjectKind, namespace: &str, name: &str) -> Option<Subject> {
        let object = self.lookup("", kind.resource(), namespace, name)?.parse();
        let text = |pointer: &str| {
            object
                .pointer(pointer)
                .and_then(Value::as_str)
                .unwrap_or_default()
                .to_owned()
        };
        Some(Subject {
            uid: meta::text(&object, "uid").to_owned(),
            deleted_at: clock::parse(meta::text(&object, "deletionTimestamp")),
            service_account: text("/spec/serviceAccountName"),
            node: text("/spec/nodeName"),
        })
    }
}
