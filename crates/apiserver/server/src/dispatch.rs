// SPDX-License-Identifier: Apache-2.0
//! From an HTTP request to a handler: identity, limits, rights, routing. The order is the
//! reference's, so that a refusal never reveals more than it should.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use cobaltcore_access::identity::User;
use cobaltcore_access::impersonation;
use cobaltcore_access::rbac::Attributes;
use http::header::AUTHORIZATION;
use http::{HeaderMap, Method};

use crate::api::Api;
use crate::call::{Answer, Call};
use crate::negotiate;
use crate::registry::{Registry, Resource};
use crate::reqinfo::{Query, RequestInfo};
use crate::status::{ApiError, ApiResult};

/// How the caller was identified before the request came here.
#[derive(Debug, Clone)]
pub enum Credentials {
    /// By nothing; the Authorization header decides.
    Header,
    /// By the transport: a client certificate or the creator of an in-process client.
    Known(User),
}

/// A request with its head parsed.
#[derive(Debug)]
pub struct Head {
    /// HTTP method.
    pub method: Method,
    /// Path.
    pub path: String,
    /// Query.
    pub query: Query,
    /// Headers.
    pub headers: HeaderMap,
    /// What is asked for.
    pub info: RequestInfo,
}

impl Head {
    /// Parses the head of a request.
    pub fn new(method: Method, uri: &http::Uri, headers: HeaderMap) -> Self {
        let query = Query::parse(uri.query().unwrap_or_default());
        let path = uri.path().to_owned();
        let info = RequestInfo::parse(&method, &path, &query);
        Self {
            method,
            path,
            query,
            headers,
            info,
        }
    }
}

/// Holds a place among the requests under way.
#[derive(Debug)]
pub struct Place<'a>(Option<(&'a Api, usize)>);

impl Drop for Place<'_> {
    fn drop(&mut self) {
        if let Some((api, lane)) = self.0 {
            api.inflight[lane].fetch_sub(1, Ordering::AcqRel);
        }
    }
}

impl Api {
    /// Who is asking.
    pub fn authenticate(&self, head: &Head, credentials: &Credentials) -> ApiResult<User> {
        let unauthorized = || ApiError::new(401, "Unauthorized", "Unauthorized");
        let user = match credentials {
            Credentials::Known(user) => user.clone(),
            Credentials::Header => {
                let header = head.headers.get(AUTHORIZATION);
                match header {
                    Some(value) => {
                        let text = value.to_str().map_err(|_| unauthorized())?;
                        let token = bearer(text).ok_or_else(unauthorized)?;
                        let found = self.authenticator.authenticate(token, self.clock.now(), self);
                        self.metrics.authentication(found.is_ok());
                        found.map_err(|_| unauthorized())?.user
                    }
                    None if self.config.anonymous => User::anonymous(),
                    None => return Err(unauthorized()),
                }
            }
        };
        self.impersonate(head, user)
    }

    fn impersonate(&self, head: &Head, user: User) -> ApiResult<User> {
        let headers = head.headers.iter().map(|(k, v)| (k.as_str(), v.as_bytes()));
        let Some(wanted) = impersonation::wanted_user(headers).map_err(|e| ApiError::from(e).unsniffed())?
        else {
            return Ok(user);
        };
        let request = self.attributes(&user, &head.info);
        let authorize = |attributes: &Attributes<'_>| self.authorize(attributes);
        impersonation::impersonate(&wanted, &request, &self.impersonations, &authorize)
            .map_err(|refusal| ApiError::from(refusal).unsniffed())
    }

    /// What the request wants to do, for the authoriser.
    pub fn attributes<'a>(&self, user: &'a User, info: &'a RequestInfo) -> Attributes<'a> {
        if !info.is_resource {
            return Attributes::path(user, info.verb, &info.path);
        }
        Attributes::resource(user, info.verb, &info.group, &info.resource)
            .of_subresource(&info.subresource)
            .in_namespace(&info.namespace)
            .named(&info.name)
    }

    /// A place among the requests under way, or 429.
    pub fn take_place(&self, head: &Head) -> ApiResult<Place<'_>> {
        if head.info.verb == "watch" {
            return Ok(Place(None));
        }
        let reading = matches!(head.method, Method::GET | Method::HEAD);
        let (lane, limit) = if reading {
            (0, self.config.max_inflight)
        } else {
            (1, self.config.max_mutating_inflight)
        };
        if self.inflight[lane].fetch_add(1, Ordering::AcqRel) >= limit {
            self.inflight[lane].fetch_sub(1, Ordering::AcqRel);
            return Err(ApiError::new(
                429,
                "TooManyRequests",
                "too many requests, please try again later",
            )
            .retry_after(1));
        }
        Ok(Place(Some((self, lane))))
    }

    /// Handles an authenticated request whose body has been read.
    pub async fn handle(
        self: &Arc<Self>,
        head: Head,
        user: User,
        body: Bytes,
    ) -> (ApiResult<Answer>, Vec<String>) {
        let Head {
            method,
            query,
            headers,
            info,
            ..
        } = head;
        let call = Call::new(info, query, method, headers, user, body);
        let result = self.route(&call).await;
        self.settle(&call, result.is_ok()).await;
        (result, call.warnings())
    }

    /// What has to be true before a change is answered: roles that collect the rules of others have
    /// them. Should that fail, it is tried again in the background.
    async fn settle(self: &Arc<Self>, call: &Call, done: bool) {
        let info = &call.info;
        let changes = !matches!(info.verb, "get" | "list" | "watch");
        if changes
            && done
            && info.resource == "clusterroles"
            && info.group == "rbac.authorization.k8s.io"
            && let Err(error) = self.keep_roles().await
        {
            tracing::debug!(%error, "collecting rules");
        }
    }

    async fn route(self: &Arc<Self>, call: &Call) -> ApiResult<Answer> {
        if !call.info.is_resource {
            return self.non_resource(call).await;
        }
        let registry = self.types();
        let info = &call.info;
        let resource = registry.route(&info.group, &info.version, &info.resource)?;
        self.check_scope(call, &resource)?;
        if let Some(custom) = resource.as_custom()
            && let Some(warning) = &custom.version().deprecated
        {
            call.warn(warning.clone());
        }
        if !info.rest.is_empty() {
            return Err(resource.no_such_route());
        }
        if let Some(kind) = resource.as_builtin()
            && (info.subresource.is_empty() || resource.has_subresource(&info.subresource))
            && let Some(warning) = kind.deprecation()
        {
            call.warn(warning);
        }
        if call.method == Method::HEAD {
            self.check_head(call, &resource)?;
        }
        if info.verb == "watch" && resource.as_builtin().is_some() {
            if !info.subresource.is_empty() {
                return Err(resource.no_such_route());
            }
            // Only custom kinds answer there without looking at the method.
            if call.method != Method::GET {
                return Err(ApiError::method_not_allowed());
            }
        }
        if path_names_object(call)
            && let Some(why) = cobaltcore_schema::names::path_segment(&info.name).first()
        {
            let name = cobaltcore_text::go::quote(&info.name);
            return Err(ApiError::bad_request(format!(
                "Name parameter invalid: {name}: {why}"
            )));
        }
        if resource.as_builtin().is_some() && !negotiate::takes_objects(&call.headers) {
            return Err(ApiError::no_representation(info.verb));
        }
        if info.subresource.is_empty() {
            self.main_endpoint(call, &registry, &resource).await
        } else {
            self.subresource(call, &registry, &resource).await
        }
    }

    /// Objects of built-in kinds are asked for with GET; no handler listens to HEAD. For custom kinds
    /// it is a GET whose body is not sent, unless it would never end.
    fn check_head(&self, call: &Call, resource: &Resource) -> ApiResult<()> {
        let info = &call.info;
        if resource.as_custom().is_some() && info.verb != "watch" {
            return Ok(());
        }
        if !info.subresource.is_empty() && !resource.has_subresource(&info.subresource) {
            return Err(resource.no_such_route());
        }
        Err(ApiError::method_not_allowed())
    }

    /// Namespaced kinds need a namespace except for list and watch; others must have none.
    fn check_scope(&self, call: &Call, resource: &Resource) -> ApiResult<()> {
        let info = &call.info;
        // A namespace is asked for under its own name; under another one the caller's rights there
        // would open what they are no rights to.
        if resource.is("", "Namespace") && !info.namespace.is_empty() && info.namespace != info.name {
            return Err(resource.no_such_route());
        }
        let namespaced_path = !info.namespace.is_empty() && !resource.is("", "Namespace");
        match (resource.namespaced, namespaced_path) {
            (false, true) => Err(resource.no_such_route()),
            // What is only asked has no collection over all namespaces.
            (true, false) if !resource.is_stored() => Err(resource.no_such_route()),
            (true, false) if matches!(info.verb, "list" | "watch") => Ok(()),
            // The collection over all namespaces is a route of built-in kinds, only the method is wrong.
            (true, false) if info.name.is_empty() && resource.as_builtin().is_some() => {
                Err(ApiError::method_not_allowed())
            }
            (true, false) => Err(resource.no_such_route()),
            _ => Ok(()),
        }
    }

    async fn main_endpoint(
        self: &Arc<Self>,
        call: &Call,
        registry: &Arc<Registry>,
        resource: &Arc<Resource>,
    ) -> ApiResult<Answer> {
        let info = &call.info;
        let named = path_names_object(call);
        if !resource.is_stored() {
            return match info.verb {
                // What is only asked has no names to be asked for by.
                _ if named => Err(resource.no_such_route()),
                "create" => self.create_virtual(call, registry, resource).await,
                _ => Err(ApiError::method_not_allowed()),
            };
        }
        if !resource.verbs().contains(&info.verb) {
            return Err(resource.method_not_allowed(info.verb));
        }
        match (info.verb, named) {
            ("get", true) => self.get(call, registry, resource).await,
            ("list", false) => self.list(call, registry, resource).await,
            ("watch", _) => self.watch(call, registry, resource).await,
            ("create", false) => self.create(call, registry, resource).await,
            // Paths of custom kinds are not told apart: what is created is named by the body alone.
            ("create", true) if resource.as_custom().is_some() => self.create(call, registry, resource).await,
            ("update", true) => self.update(call, registry, resource, None).await,
            ("patch", true) => self.patch(call, registry, resource, None).await,
            ("delete", true) => self.delete(call, registry, resource).await,
            ("deletecollection", false) => self.delete_collection(call, registry, resource).await,
            ("update" | "patch", false) if resource.as_custom().is_some() => {
                Err(ApiError::bad_request("name must be provided"))
            }
            _ => Err(resource.method_not_allowed(info.verb)),
        }
    }
}

/// Whether the path itself names an object (a field selector on a collection does not).
fn path_names_object(call: &Call) -> bool {
    !call.info.name.is_empty() && !call.info.is_collection()
}

fn bearer(header: &str) -> Option<&str> {
    // One blank, then the token: what follows a second blank is not read.
    let mut words = header.trim().split(' ');
    let (scheme, token) = (words.next()?, words.next()?);
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}
