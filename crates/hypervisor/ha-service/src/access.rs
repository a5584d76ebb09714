// SPDX-License-Identifier: Apache-2.0
//! Who is calling, and what they may do. A caller shows a bearer token, of which only the SHA-256 is
//! known, or a certificate whose names bind it to a host. An agent speaks for its own host only.

use std::collections::HashMap;

use cobaltcore_api::names::HostName;
use cobaltcore_kit::auth::equal;
use cobaltcore_kit::tls::TokenFile;
use http::{HeaderMap, header};

use crate::config::{Access, Config, TokenHash, Tokens};

/// The names in a client's certificate, which was verified.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PeerNames {
    /// URI names.
    pub uris: Vec<String>,
    /// DNS names.
    pub dns: Vec<String>,
}

impl PeerNames {
    /// Reads the names of a certificate.
    pub fn read(certificate: &rustls_pki_types::CertificateDer<'_>) -> Option<Self> {
        let parsed = webpki::EndEntityCert::try_from(certificate).ok()?;
        Some(Self {
            uris: parsed.valid_uri_names().map(str::to_owned).collect(),
            dns: parsed.valid_dns_names().map(str::to_owned).collect(),
        })
    }
}

/// What somebody may do. Ordered by nothing: an operator may look, and that is said where it counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Caller {
    /// The agent of a host; of any, if it showed the token that binds to none.
    Agent(Option<HostName>),
    /// A sender of telemetry.
    Sender(String),
    /// Somebody who may look.
    Viewer(String),
    /// Somebody who may decide.
    Operator(String),
    /// Another replica.
    Peer,
    /// Nobody in particular.
    Anonymous,
}

impl Caller {
    /// For logs, limits and the audit.
    pub fn name(&self) -> String {
        match self {
            Self::Agent(Some(host)) => format!("agent/{host}"),
            Self::Agent(None) => "agent/any".into(),
            Self::Sender(name) => format!("sender/{name}"),
            Self::Viewer(name) => format!("viewer/{name}"),
            Self::Operator(name) => format!("operator/{name}"),
            Self::Peer => "peer".into(),
            Self::Anonymous => "anonymous".into(),
        }
    }
}

/// Tells callers apart.
pub struct Doorkeeper {
    access: Access,
    /// Callers by the SHA-256 of their tokens. Nobody can choose what a token hashes to, and the
    /// table mixes it with a secret of its own, so the time of a look tells nothing about tokens.
    known: HashMap<[u8; 32], Caller>,
    peer: Option<TokenFile>,
}

fn digest(token: &str) -> [u8; 32] {
    let mut out = [0; 32];
    out.copy_from_slice(ring::digest::digest(&ring::digest::SHA256, token.as_bytes()).as_ref());
    out
}

/// Everybody who has a token. Whoever may do more comes first, should two share one.
fn known(access: &Access) -> HashMap<[u8; 32], Caller> {
    let mut known = HashMap::new();
    let mut add = |tokens: &Tokens, caller: Caller| {
        for TokenHash(hash) in &tokens.0 {
            known.entry(*hash).or_insert_with(|| caller.clone());
        }
    };
    for (name, tokens) in &access.operators {
        add(tokens, Caller::Operator(name.clone()));
    }
    for (name, tokens) in &access.viewers {
        add(tokens, Caller::Viewer(name.clone()));
    }
    for (name, tokens) in &access.senders {
        add(tokens, Caller::Sender(name.clone()));
    }
    for (name, tokens) in &access.agents {
        if let Ok(host) = HostName::new(name.as_str()) {
            add(tokens, Caller::Agent(Some(host)));
        }
    }
    add(&access.any_agent, Caller::Agent(None));
    known
}

impl Doorkeeper {
    /// By the rules of a configuration.
    pub fn new(config: &Config) -> Self {
        let peer = Some(config.leader.peer_token_file.as_str())
            .filter(|path| !path.is_empty())
            .map(TokenFile::new);
        Self {
            known: known(&config.access),
            access: config.access.clone(),
            peer,
        }
    }

    /// Who is calling; nothing if credentials were shown that are not known.
    pub fn who(&self, headers: &HeaderMap, names: Option<&PeerNames>) -> Option<Caller> {
        let senders = names.map_or(Vec::new(), |names| self.senders_of(names));
        // Two different ones are none, and a certificate of a sender speaks for no host.
        let sender = match senders.as_slice() {
            [one] => Some(*one),
            _ => None,
        };
        let host = names
            .filter(|_| senders.is_empty())
            .and_then(|names| self.host_of(names));
        let Some(token) = bearer(headers) else {
            if headers.contains_key(header::AUTHORIZATION) {
                return None;
            }
            return Some(match (host, sender) {
                (Some(host), _) if !self.access.agents_need_both => Caller::Agent(Some(host)),
                (_, Some(sender)) if !self.access.senders_need_both => Caller::Sender(sender.to_owned()),
                _ if self.access.anonymous_viewer => Caller::Viewer("anonymous".into()),
                _ => Caller::Anonymous,
            });
        };
        let shown = digest(token);
        let caller = self.by_token(&shown, token)?;
        if let Caller::Sender(name) = &caller {
            let agrees = sender.map_or(!self.access.senders_need_both, |sender| sender == name);
            return agrees.then_some(caller);
        }
        match (&caller, host) {
            // Both were shown: they must agree.
            (Caller::Agent(Some(bound)), Some(host)) if *bound != host => None,
            (Caller::Agent(None), Some(host)) => Some(Caller::Agent(Some(host))),
            (Caller::Agent(_), None) if self.access.agents_need_both => None,
            _ => Some(caller),
        }
    }

    fn by_token(&self, shown: &[u8; 32], token: &str) -> Option<Caller> {
        if let Some(caller) = self.known.get(shown) {
            return Some(caller.clone());
        }
        let peer = self.peer.as_ref()?.current().ok()?;
        equal(peer.as_bytes(), token.as_bytes()).then_some(Caller::Peer)
    }

    /// The senders a certificate speaks for.
    fn senders_of(&self, names: &PeerNames) -> Vec<&str> {
        let shown = |name: &String| names.uris.contains(name) || names.dns.contains(name);
        let known = self.access.sender_certificates.iter();
        let named = known.filter(|(_, names)| names.iter().any(shown));
        named.map(|(sender, _)| sender.as_str()).collect()
    }

    /// The host a certificate speaks for. Two different ones are none.
    fn host_of<'a>(&self, names: &'a PeerNames) -> Option<HostName> {
        let prefix = &self.access.agent_uri_prefix;
        let named = |uri: &'a String| {
            if prefix.is_empty() {
                // The authority says who may be whom; which domain of trust it calls its own is its matter.
                uri.strip_prefix("spiffe://")?
                    .split_once("/host/")
                    .map(|(_, host)| host)
            } else {
                uri.strip_prefix(prefix.as_str())
            }
        };
        let mut hosts: Vec<&str> = names.uris.iter().filter_map(named).collect();
        if hosts.is_empty() {
            let suffix = &self.access.agent_dns_suffix;
            hosts = names
                .dns
                .iter()
                .filter_map(|name| name.strip_suffix(suffix.as_str()))
                .collect();
        }
        hosts.sort_unstable();
        hosts.dedup();
        match hosts.as_slice() {
            [one] => HostName::new(one.to_ascii_lowercase()).ok(),
            _ => None,
        }
    }
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = headers
        .get(header::AUTHORIZATION)?
        .to_str()
        .ok()?
        .split_once(' ')?;
    scheme
        .eq_ignore_ascii_case("bearer")
        .then(|| token.trim())
        .filter(|token| !token.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(token: &str) -> String {
        digest(token).iter().map(|byte| format!("{byte:02x}")).collect()
    }

    fn keeper(more: &str) -> Doorkeeper {
        let text = format!(
            "leader: {{replicas: 1}}\naccess:\n  operators: {{olga: [{}]}}\n  viewers: {{victor: [{}, {}]}}\n  senders: {{prom: [{}]}}\n  agents: {{n1: [{}]}}\n  agent_uri_prefix: spiffe://t/host/\n{more}",
            hex("o"),
            hex("v1"),
            hex("v2"),
            hex("s"),
            hex("a"),
        );
        Doorkeeper::new(&Config::parse("t", &text).unwrap())
    }

    fn with(token: Option<&str>) -> HeaderMap {
        let mut headers = HeaderMap::new();
        if let Some(token) = token {
            headers.insert(header::AUTHORIZATION, format!("Bearer {token}").parse().unwrap());
        }
        headers
    }

    fn names(uri: &str) -> PeerNames {
        PeerNames {
            uris: vec![uri.to_owned()],
            dns: Vec::new(),
        }
    }

    fn agent(host: &str) -> Caller {
        Caller::Agent(Some(HostName::new(host).unwrap()))
    }

    #[test]
    fn tokens_and_certificates_name_their_bearer() {
        let keeper = keeper("");
        let who = |token, names: Option<&PeerNames>| keeper.who(&with(token), names);
        assert_eq!(who(Some("o"), None), Some(Caller::Operator("olga".into())));
        assert_eq!(who(Some("v2"), None), Some(Caller::Viewer("victor".into())));
        assert_eq!(who(Some("s"), None), Some(Caller::Sender("prom".into())));
        assert_eq!(who(Some("a"), None), Some(agent("n1")));
        assert_eq!(who(Some("x"), None), None, "a wrong token is worse than none");
        assert_eq!(who(None, None), Some(Caller::Anonymous));
        let n2 = names("spiffe://t/host/n2");
        assert_eq!(who(None, Some(&n2)), Some(agent("n2")));
        assert_eq!(
            who(Some("a"), Some(&n2)),
            None,
            "the token of one host and the certificate of another"
        );
        assert_eq!(
            who(Some("o"), Some(&n2)),
            Some(Caller::Operator("olga".into())),
            "a person on a node"
        );
        let foreign = names("spiffe://other/host/n2");
        assert_eq!(who(None, Some(&foreign)), Some(Caller::Anonymous));
        let two = PeerNames {
            uris: vec!["spiffe://t/host/n1".into(), "spiffe://t/host/n2".into()],
            dns: Vec::new(),
        };
        assert_eq!(who(None, Some(&two)), Some(Caller::Anonymous));
    }

    #[test]
    fn a_certificate_names_its_host_in_the_usual_form_unless_another_is_wanted() {
        let keeper = Doorkeeper::new(&Config::parse("t", "leader: {replicas: 1}\n").unwrap());
        let who = |uri: &str| keeper.who(&with(None), Some(&names(uri)));
        assert_eq!(who("spiffe://example.org/host/n2"), Some(agent("n2")));
        assert_eq!(who("spiffe://example.org/ns/a/sa/b"), Some(Caller::Anonymous));
        assert_eq!(who("https://example.org/host/n2"), Some(Caller::Anonymous));
        assert_eq!(who("spiffe://example.org/host/n2/x"), Some(Caller::Anonymous));
    }

    #[test]
    fn both_may_be_required() {
        let keeper = keeper("  agents_need_both: true\n");
        let n1 = names("spiffe://t/host/n1");
        assert_eq!(keeper.who(&with(None), Some(&n1)), Some(Caller::Anonymous));
        assert_eq!(keeper.who(&with(Some("a")), None), None);
        assert_eq!(keeper.who(&with(Some("a")), Some(&n1)), Some(agent("n1")));
    }

    #[test]
    fn a_sender_shows_a_certificate_or_a_token_or_both() {
        const CERTIFICATES: &str = "  sender_certificates: {prom: [spiffe://t/monitoring/prom, prom.monitoring.svc], ceph: [spiffe://t/ceph]}\n";
        let keeper = keeper(CERTIFICATES);
        let who = |token, names: &PeerNames| keeper.who(&with(token), Some(names));
        let prom = || Some(Caller::Sender("prom".into()));
        let ceph = names("spiffe://t/ceph");
        assert_eq!(who(None, &names("spiffe://t/monitoring/prom")), prom());
        assert_eq!(
            who(None, &ceph),
            Some(Caller::Sender("ceph".into())),
            "it has no token"
        );
        let dns = PeerNames {
            uris: Vec::new(),
            dns: vec!["prom.monitoring.svc".into()],
        };
        assert_eq!(
            who(None, &dns),
            prom(),
            "and is the agent of no host of that name"
        );
        assert_eq!(who(Some("s"), &dns), prom());
        assert_eq!(
            who(Some("s"), &ceph),
            None,
            "the token of one and the certificate of another"
        );
        let two = PeerNames {
            uris: vec!["spiffe://t/ceph".into()],
            ..dns.clone()
        };
        assert_eq!(
            who(Some("s"), &names("spiffe://t/other")),
            prom(),
            "its token is enough"
        );
        assert_eq!(who(None, &two), Some(Caller::Anonymous), "which of the two?");

        let strict = Doorkeeper::new(
            &Config::parse(
                "t",
                &format!(
                    "leader: {{replicas: 1}}\naccess:\n  senders: {{prom: [{}]}}\n  senders_need_both: true\n  sender_certificates: {{prom: [prom.monitoring.svc]}}\n",
                    hex("s")
                ),
            )
            .unwrap(),
        );
        assert_eq!(strict.who(&with(Some("s")), Some(&dns)), prom());
        assert_eq!(strict.who(&with(Some("s")), None), None);
        assert_eq!(strict.who(&with(None), Some(&dns)), Some(Caller::Anonymous));
    }

    #[test]
    fn a_header_that_is_no_bearer_token_is_refused() {
        let keeper = keeper("");
        let mut headers = HeaderMap::new();
        headers.insert(header::AUTHORIZATION, "Basic abc".parse().unwrap());
        assert_eq!(keeper.who(&headers, None), None);
    }
}
