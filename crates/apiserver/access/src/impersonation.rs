// SPDX-License-Identifier: Apache-2.0
//! Acting as somebody else.
//!
//! A request may carry `Impersonate-*` headers. Each part of the wanted identity must be allowed
//! to the caller: first by the constrained verbs (`impersonate:<mode>` together with
//! `impersonate-on:<mode>:<verb>` for this very request), else by the plain verb `impersonate`.
//! When nothing allows it, the first refusal is the answer, as in the reference; the right that let a
//! user act as somebody last is asked for first the next time.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use cobaltcore_text::go;

use crate::error::Refusal;
use crate::identity::{
    ANONYMOUS, AUTHENTICATED, MASTERS, NODE_NAME, NODES, UNAUTHENTICATED, User, is_dns_subdomain,
    service_account_groups, split_node, split_service_account,
};
use crate::rbac::{Attributes, Decision, forbidden};

const AUTHENTICATION: &str = "authentication.k8s.io";
const EXTRA_PREFIX: &str = "impersonate-extra-";
/// From this many values on, a grant for all of them is tried first.
const MANY: usize = 4;

/// The identity that the headers ask for, as written there; `None` when they ask for none.
///
/// Header names are compared without regard to case; other headers are ignored.
pub fn wanted_user<'a>(
    headers: impl IntoIterator<Item = (&'a str, &'a [u8])>,
) -> Result<Option<User>, Refusal> {
    let mut wanted = User::default();
    let (mut name, mut uid) = (None, None);
    let (mut asks_groups, mut asks_extra) = (false, false);
    for (header, value) in headers {
        let header = header.to_ascii_lowercase();
        if !header.starts_with("impersonate-") {
            continue;
        }
        let Ok(value) = std::str::from_utf8(value) else {
            return Err(Refusal::BadRequest(format!(
                "header {} is not valid UTF-8",
                go::quote(&header)
            )));
        };
        let value = value.to_owned();
        match header.as_str() {
            "impersonate-user" => name = name.or(Some(value)),
            "impersonate-uid" => uid = uid.or(Some(value)),
            "impersonate-group" => {
                asks_groups = true;
                wanted.groups.push(value);
            }
            other => {
                if let Some(key) = other.strip_prefix(EXTRA_PREFIX) {
                    asks_extra = true;
                    wanted.extra.entry(unescape(key)).or_default().push(value);
                }
            }
        }
    }
    wanted.name = name.unwrap_or_default();
    wanted.uid = uid.filter(|u| !u.is_empty());
    if !wanted.name.is_empty() {
        return Ok(Some(wanted));
    }
    if wanted.uid.is_some() || asks_groups || asks_extra {
        return Err(Refusal::BadRequest(format!(
            "requested &user.DefaultInfo{{Name:\"\", UID:{}, Groups:{}, Extra:{}}} without impersonating a user name",
            go::quote(wanted.uid.as_deref().unwrap_or_default()),
            go::syntax_list(&wanted.groups),
            go::syntax_map(&wanted.extra),
        )));
    }
    Ok(None)
}

/// Decodes `%xx`; a key that is not decodable stays as it is.
fn unescape(key: &str) -> String {
    let mut out = Vec::with_capacity(key.len());
    let mut bytes = key.bytes();
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            out.push(byte);
            continue;
        }
        let digit = |b: Option<u8>| b.and_then(|b| char::from(b).to_digit(16));
        match (digit(bytes.next()), digit(bytes.next())) {
            (Some(high), Some(low)) => out.push((high * 16 + low) as u8),
            _ => return key.to_owned(),
        }
    }
    String::from_utf8(out).unwrap_or_else(|_| key.to_owned())
}

/// As many users are remembered; then it is begun anew.
const REMEMBERED: usize = 10_000;

/// By which mode each user acted as somebody else last: most use one mode only, and a refusal then
/// speaks of the right they would expect to need.
#[derive(Debug, Default)]
pub struct LastModes(Mutex<HashMap<String, Mode>>);

/// A constrained mode; `None` is the plain verb `impersonate`.
type Mode = Option<&'static str>;

impl LastModes {
    fn of(&self, user: &str) -> Option<Mode> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(user).copied()
    }

    fn note(&self, user: &str, mode: Mode) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.get(user) == Some(&mode) {
            return;
        }
        if known.len() >= REMEMBERED {
            known.clear();
        }
        known.insert(user.to_owned(), mode);
    }
}

type Authorize<'f> = dyn Fn(&Attributes<'_>) -> Decision + 'f;

/// Whether the caller may act as `wanted` for this request, and the identity that results.
///
/// `request` are the attributes of the request itself, with the caller as user; `last` is what
/// is remembered of the caller; `authorize` is the authoriser in force.
pub fn impersonate(
    wanted: &User,
    request: &Attributes<'_>,
    last: &LastModes,
    authorize: &Authorize<'_>,
) -> Result<User, Refusal> {
    let mut modes = fitting_modes(wanted, request);
    if let Some(at) = last
        .of(&request.user.name)
        .and_then(|mode| modes.iter().position(|m| *m == mode))
    {
        let known = modes.remove(at);
        modes.insert(0, known);
    }
    let mut first: Option<Refusal> = None;
    for mode in modes {
        match try_mode(mode, wanted, request, authorize) {
            Ok(user) => {
                last.note(&request.user.name, mode);
                return Ok(user);
            }
            Err(refusal) => first = first.or(Some(refusal)),
        }
    }
    Err(first.unwrap_or_else(|| Refusal::BadRequest("all impersonation modes failed".into())))
}

/// The modes such an identity can be asked for by, the narrowest first, the plain verb last.
fn fitting_modes(wanted: &User, request: &Attributes<'_>) -> Vec<Mode> {
    let only_name = wanted.uid.is_none() && wanted.groups.is_empty() && wanted.extra.is_empty();
    let node = split_node(&wanted.name);
    let account = split_service_account(&wanted.name);
    let mut modes: Vec<Mode> = Vec::new();
    if let (true, Some(node)) = (only_name, node) {
        let own_node = request
            .user
            .extra
            .get(NODE_NAME)
            .is_some_and(|v| v.as_slice() == [node]);
        if own_node && split_service_account(&request.user.name).is_some() {
            modes.push(Some("associated-node"));
        }
        modes.push(Some("arbitrary-node"));
    }
    if only_name && account.is_some() {
        modes.push(Some("serviceaccount"));
    }
    if node.is_none() && account.is_none() {
        modes.push(Some("user-info"));
    }
    modes.push(None);
    modes
}

fn try_mode(
    mode: Mode,
    wanted: &User,
    request: &Attributes<'_>,
    authorize: &Authorize<'_>,
) -> Result<User, Refusal> {
    if let Some(mode) = mode {
        let on = format!("impersonate-on:{mode}:{}", request.verb);
        let this = Attributes {
            verb: &on,
            ..*request
        };
        check(authorize, &this)?;
    }
    Check {
        authorize,
        requestor: request.user,
        mode,
    }
    .run(wanted)
}

fn check(authorize: &Authorize<'_>, attributes: &Attributes<'_>) -> Result<(), Refusal> {
    let decision = authorize(attributes);
    if decision.allowed {
        Ok(())
    } else {
        Err(forbidden(attributes, &decision.reason()))
    }
}

struct Check<'a> {
    authorize: &'a Authorize<'a>,
    requestor: &'a User,
    /// The constrained mode; `None` is the plain verb `impersonate`.
    mode: Option<&'a str>,
}

impl Check<'_> {
    fn verb(&self) -> String {
        self.mode
            .map_or_else(|| "impersonate".to_owned(), |mode| format!("impersonate:{mode}"))
    }

    fn run(&self, wanted: &User) -> Result<User, Refusal> {
        let verb = self.verb();
        let mut user = wanted.clone();
        self.name(&verb, wanted, &mut user)?;
        if let Some(uid) = &wanted.uid {
            let ask = Attributes::resource(self.requestor, &verb, AUTHENTICATION, "uids").named(uid);
            check(self.authorize, &ask)?;
        }
        self.groups(&verb, &wanted.groups)?;
        self.extra(&verb, wanted)?;
        if user.name == ANONYMOUS {
            if !user.in_group(UNAUTHENTICATED) {
                user.groups.push(UNAUTHENTICATED.to_owned());
            }
        } else if !user.in_group(UNAUTHENTICATED) && !user.in_group(AUTHENTICATED) {
            user.groups.push(AUTHENTICATED.to_owned());
        }
        Ok(user)
    }

    /// Names and groups are asked for in the core group by the plain verb.
    fn group(&self) -> &'static str {
        if self.mode.is_some() { AUTHENTICATION } else { "" }
    }

    fn name(&self, verb: &str, wanted: &User, user: &mut User) -> Result<(), Refusal> {
        let mut ask = Attributes::resource(self.requestor, verb, self.group(), "users").named(&wanted.name);
        if let (Some(mode), Some(node)) = (self.mode, split_node(&wanted.name)) {
            ask.resource = "nodes";
            ask.name = if mode == "associated-node" { "*" } else { node };
            user.groups = vec![NODES.to_owned()];
        }
        if let Some((namespace, name)) = split_service_account(&wanted.name) {
            ask = Attributes {
                resource: "serviceaccounts",
                namespace,
                name,
                ..ask
            };
            if wanted.groups.is_empty() {
                user.groups = service_account_groups(namespace);
            }
        }
        check(self.authorize, &ask)
    }

    fn groups(&self, verb: &str, groups: &[String]) -> Result<(), Refusal> {
        if groups.is_empty() {
            return Ok(());
        }
        let ask = Attributes::resource(self.requestor, verb, self.group(), "groups");
        if self.mode.is_some() {
            if groups.iter().any(String::is_empty) {
                return Err(forbidden(
                    &ask,
                    "impersonating the empty string group is not allowed",
                ));
            }
            if groups.iter().any(|g| g == MASTERS) {
                let reason = "impersonating the system:masters group is not allowed";
                return Err(forbidden(&ask.named(MASTERS), reason));
            }
            if groups.len() >= MANY && check(self.authorize, &ask.named("*")).is_ok() {
                return Ok(());
            }
        }
        groups
            .iter()
            .try_for_each(|group| check(self.authorize, &ask.named(group)))
    }

    fn extra(&self, verb: &str, wanted: &User) -> Result<(), Refusal> {
        if wanted.extra.is_empty() {
            return Ok(());
        }
        let ask = Attributes::resource(self.requestor, verb, AUTHENTICATION, "userextras");
        if self.mode.is_some() {
            for (key, values) in &wanted.extra {
                if let Some(reason) = bad_extra(key, values) {
                    return Err(forbidden(&ask, &reason));
                }
            }
            let count: usize = wanted.extra.values().map(Vec::len).sum();
            if count >= MANY && check(self.authorize, &ask.of_subresource("*").named("*")).is_ok() {
                return Ok(());
            }
        }
        for (key, values) in &wanted.extra {
            for value in values {
                check(self.authorize, &ask.of_subresource(key).named(value))?;
            }
        }
        Ok(())
    }
}

/// Why the constrained modes do not take this extra; the plain verb takes any.
fn bad_extra(key: &str, values: &[String]) -> Option<String> {
    if key.is_empty() {
        return Some("impersonating the empty string key in extra is not allowed".to_owned());
    }
    let well_formed = key
        .split_once('/')
        .is_some_and(|(domain, path)| is_dns_subdomain(domain) && !path.is_empty());
    if !well_formed {
        let shown = go::quote(key);
        return Some(format!(
            "impersonating an invalid key in extra is not allowed: extra.key: Invalid value: {shown}: \
             must be a domain-prefixed path (such as \"acme.io/foo\")"
        ));
    }
    if key.chars().any(char::is_uppercase) {
        return Some(format!(
            "impersonating a non-lowercase key in extra is not allowed: {}",
            go::quote(key)
        ));
    }
    if values.iter().any(String::is_empty) {
        return Some("impersonating the empty string value in extra is not allowed".to_owned());
    }
    None
}
