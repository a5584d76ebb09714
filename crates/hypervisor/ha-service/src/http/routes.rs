// SPDX-License-Identifier: Apache-2.0
//! What is served, to whom, and by what: one table, from which requests are routed and the
//! description at `/openapi.json` is made.

use std::collections::BTreeMap;

use futures::future::BoxFuture;
use http::Method;

use super::call::{Answer, Call};
use super::{Port, agents, decide, legacy, openapi, people, telemetry};

/// Who may call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Everybody.
    Open,
    /// The agent of a host.
    Agent,
    /// A sender of telemetry.
    Sender,
    /// Somebody who may look.
    Viewer,
    /// Somebody who may decide.
    Operator,
    /// Another replica.
    Peer,
    /// An operator; everybody, if the configuration says so.
    Legacy,
}

impl Role {
    /// In words.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Open => "everybody",
            Self::Agent => "agents",
            Self::Sender => "senders",
            Self::Viewer => "viewers",
            Self::Operator | Self::Legacy => "operators",
            Self::Peer => "replicas",
        }
    }
}

type Handler = fn(Call) -> BoxFuture<'static, Answer>;

/// One thing that is served.
pub struct Route {
    /// The method.
    pub method: Method,
    /// The path; parts in braces are filled in by the caller.
    pub path: &'static str,
    /// Its name, for figures and the description.
    pub id: &'static str,
    /// Who may call.
    pub role: Role,
    /// What it is for.
    pub summary: &'static str,
    /// Parameters of the query.
    pub query: &'static [&'static str],
    /// The schema of the body it takes; nothing if it takes none.
    pub request: &'static str,
    /// The schema of its answer.
    pub response: &'static str,
    /// Whether it takes a body.
    pub takes_body: bool,
    /// Whether only the leader can answer.
    pub leader: bool,
    /// Whether the leader knows more: it is asked first, and where there is none, each answers as well as it can.
    pub best: bool,
    /// Whether it may take long because it waits.
    pub waits: bool,
    pub(super) handler: Handler,
}

macro_rules! routes {
    ($($method:ident $path:literal $id:literal $role:ident $([$($flag:ident),*])? ($($query:literal),*)
       $request:literal => $response:literal $handler:path: $summary:literal;)+) => {
        /// Everything that is served.
        pub static ROUTES: &[Route] = &[$(Route {
            method: Method::$method,
            path: $path,
            id: $id,
            role: Role::$role,
            summary: $summary,
            query: &[$($query),*],
            request: $request,
            response: $response,
            takes_body: !$request.is_empty(),
            leader: false $($(|| stringify_flag(stringify!($flag), "leader"))*)?,
            best: false $($(|| stringify_flag(stringify!($flag), "best"))*)?,
            waits: false $($(|| stringify_flag(stringify!($flag), "waits"))*)?,
            handler: |call| Box::pin($handler(call)),
        }),+];
    };
}

const fn stringify_flag(found: &str, wanted: &str) -> bool {
    let (found, wanted) = (found.as_bytes(), wanted.as_bytes());
    if found.len() != wanted.len() {
        return false;
    }
    let mut n = 0;
    while n < found.len() {
        if found[n] != wanted[n] {
            return false;
        }
        n += 1;
    }
    true
}

routes! {
    POST "/api/hypervisors/{hostname}" "legacySwitch" Legacy () "LegacySwitch" => "Empty" legacy::switch:
        "Switch HA of a host on or off, as operators before May 2026 do";
    GET "/api/hypervisors" "legacyHosts" Viewer [best] ("limit", "cursor") "" => "LegacyHostPage" legacy::list:
        "All hosts, in short";
    GET "/api/hypervisors/{hostname}" "legacyHost" Viewer [best] () "" => "LegacyHost" legacy::get: "One host, in short";
    POST "/api/v1/agents/{host}/batches" "report" Agent () "Batch" => "BatchAnswer" agents::report:
        "Report events, a sign of life, an inventory";
    GET "/api/v1/agents/{host}/commands" "commands" Agent [waits] ("wait") "" => "CommandList" agents::commands:
        "Wait for commands";
    POST "/api/v1/telemetry/{source}" "telemetry" Sender () "Telemetry" => "TelemetryAnswer" telemetry::push:
        "Push verdicts, or alerts of an Alertmanager";
    GET "/api/v1/hosts" "hosts" Viewer [best] ("state", "zone", "bb", "limit", "cursor") "" => "HostPage" people::hosts:
        "All hosts with what their signals say";
    GET "/api/v1/hosts/{host}" "host" Viewer [best] () "" => "Host" people::host: "One host";
    GET "/api/v1/hosts/{host}/evidence" "evidence" Viewer [best] () "" => "HostEvidence" people::evidence:
        "Why a host is judged as it is";
    POST "/api/v1/hosts/{host}/actions/recover" "recover" Operator [leader] () "DecisionRequest" => "IncidentDetail"
        decide::recover: "Have a host recovered that nobody calls dead; it is fenced first";
    GET "/api/v1/events" "events" Viewer ("host", "domain", "kind", "since", "until", "limit", "cursor")
        "" => "StoredEventPage" people::events: "Stored events, in the order they arrived";
    GET "/api/v1/vms" "vms" Viewer ("host", "policy", "state", "limit", "cursor") "" => "VmPage" people::vms: "Guests";
    GET "/api/v1/vms/{uuid}" "vm" Viewer () "" => "Vm" people::vm: "One guest";
    GET "/api/v1/incidents" "incidents" Viewer [best] ("state", "type", "host", "open", "limit", "cursor")
        "" => "IncidentPage" people::incidents: "Incidents";
    GET "/api/v1/incidents/{id}" "incident" Viewer [best] () "" => "IncidentDetail" people::incident:
        "One incident with its guests, its journal and what happens next";
    POST "/api/v1/incidents/{id}/actions/{action}" "decide" Operator [leader] () "DecisionRequest" => "IncidentDetail"
        decide::decide: "Decide: ack-fenced, approve, abort, retry, release or close";
    POST "/api/v1/incidents/bulk" "bulk" Operator [leader] () "BulkRequest" => "BulkAnswer" decide::bulk:
        "One decision for many incidents; a dry run unless commit is true";
    GET "/api/v1/pauses" "pauses" Viewer () "" => "PausePage" decide::pauses: "Pauses in force";
    PUT "/api/v1/pauses/global" "pauseAll" Operator () "PauseRequest" => "Pause" decide::pause:
        "Start no new fencing and no new evacuation anywhere";
    DELETE "/api/v1/pauses/global" "resumeAll" Operator () "" => "Empty" decide::resume: "End the global pause";
    PUT "/api/v1/pauses/{kind}/{name}" "pause" Operator () "PauseRequest" => "Pause" decide::pause:
        "The same in a scope: zone, bb, host or vm";
    DELETE "/api/v1/pauses/{kind}/{name}" "resume" Operator () "" => "Empty" decide::resume: "End a pause";
    PUT "/api/v1/maintenance/host/{host}" "announce" Operator () "PauseRequest" => "Empty" decide::announce:
        "Announce planned work on a host without a Hypervisor object";
    DELETE "/api/v1/maintenance/host/{host}" "finish" Operator () "" => "Empty" decide::finish: "End planned work";
    GET "/api/v1/audit" "audit" Viewer ("limit", "cursor") "" => "AuditPage" people::audit: "What people did";
    GET "/api/v1/config" "config" Viewer () "" => "Config" people::config: "The configuration in force, without secrets";
    GET "/openapi.json" "openapi" Viewer () "" => "OpenApi" openapi::serve: "This description";
    GET "/internal/v1/observe" "observe" Peer ("hosts", "probe") "" => "ObserveAnswer" agents::observe:
        "What this replica hears of hosts";
    POST "/internal/v1/telemetry/{source}" "pushed" Peer () "Telemetry" => "TelemetryAnswer" telemetry::pushed:
        "What a sender pushed to another replica";
}

/// Why nothing was found.
pub(super) enum Miss {
    Path,
    Method(String),
}

/// The route of a request, and the parts its caller filled in. Doubled and trailing slashes count
/// for nothing, because older callers send them.
pub(super) fn find(
    method: &Method,
    path: &str,
    port: Port,
) -> Result<(&'static Route, BTreeMap<&'static str, String>), Miss> {
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    let served = ROUTES
        .iter()
        .filter(|route| port == Port::Api || route.id == "legacySwitch");
    let mut allowed = Vec::new();
    for route in served {
        let Some(params) = fits(route.path, &parts) else {
            continue;
        };
        if route.method == *method {
            return Ok((route, params));
        }
        allowed.push(route.method.as_str());
    }
    Err(if allowed.is_empty() {
        Miss::Path
    } else {
        Miss::Method(allowed.join(", "))
    })
}

fn fits(pattern: &'static str, parts: &[&str]) -> Option<BTreeMap<&'static str, String>> {
    let wanted = pattern.split('/').filter(|part| !part.is_empty());
    let mut given = parts.iter();
    let mut params = BTreeMap::new();
    for part in wanted {
        let found = given.next()?;
        match part.strip_prefix('{').and_then(|name| name.strip_suffix('}')) {
            Some(name) => {
                params.insert(name, decoded(found)?);
            }
            None if part == *found => {}
            None => return None,
        }
    }
    given.next().is_none().then_some(params)
}

/// A part of a path without percent signs.
fn decoded(part: &str) -> Option<String> {
    let mut out = Vec::with_capacity(part.len());
    let mut bytes = part.bytes();
    while let Some(byte) = bytes.next() {
        if byte == b'%' {
            let (high, low) = (bytes.next()?, bytes.next()?);
            let digit = |b: u8| char::from(b).to_digit(16);
            out.push(u8::try_from(digit(high)? * 16 + digit(low)?).ok()?);
        } else {
            out.push(byte);
        }
    }
    String::from_utf8(out).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(method: Method, path: &str) -> Option<(&'static str, Vec<String>)> {
        find(&method, path, Port::Api)
            .ok()
            .map(|(route, params)| (route.id, params.into_values().collect()))
    }

    #[test]
    fn paths_find_their_routes() {
        let some = |id, params: &[&str]| Some((id, params.iter().map(|p| (*p).to_owned()).collect()));
        assert_eq!(
            found(Method::POST, "/api/hypervisors/n1"),
            some("legacySwitch", &["n1"])
        );
        assert_eq!(
            found(Method::POST, "//api//hypervisors/n1/"),
            some("legacySwitch", &["n1"])
        );
        assert_eq!(
            found(Method::GET, "/api/v1/hosts/n%31/evidence"),
            some("evidence", &["n1"])
        );
        assert_eq!(found(Method::POST, "/api/v1/incidents/bulk"), some("bulk", &[]));
        assert_eq!(
            found(Method::PUT, "/api/v1/pauses/zone/a"),
            some("pause", &["zone", "a"])
        );
        assert_eq!(found(Method::PUT, "/api/v1/pauses/global"), some("pauseAll", &[]));
        assert_eq!(found(Method::GET, "/api/v1/nothing"), None);
        assert_eq!(found(Method::GET, "/api/v1/hosts/%zz"), None);
        assert!(matches!(
            find(&Method::GET, "/api/v1/hosts", Port::Legacy),
            Err(Miss::Path)
        ));
    }

    #[test]
    fn no_two_routes_are_the_same() {
        let mut seen = std::collections::BTreeSet::new();
        for route in ROUTES {
            assert!(
                seen.insert((route.method.as_str(), route.path)),
                "{} {}",
                route.method,
                route.path
            );
            assert!(seen.insert(("id", route.id)), "{}", route.id);
        }
    }
}
