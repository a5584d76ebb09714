// SPDX-License-Identifier: Apache-2.0
//! Who may call the service and how much it takes from each. Tokens are known by their SHA-256
//! only, so that a leaked configuration opens nothing.

use std::collections::BTreeMap;

use cobaltcore_kit::config::Mistakes;
use serde::{Deserialize, Serialize};

/// The SHA-256 of a bearer token, in hexadecimal digits.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct TokenHash(pub [u8; 32]);

impl std::fmt::Debug for TokenHash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TokenHash(..)")
    }
}

/// Shown as no more than that there is one.
impl Serialize for TokenHash {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str("sha256:…")
    }
}

impl TryFrom<String> for TokenHash {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let digits = text.strip_prefix("sha256:").unwrap_or(&text);
        let wrong =
            || "must be the SHA-256 of a token in 64 hexadecimal digits (printf %s \"$TOKEN\" | sha256sum)";
        if digits.len() != 64 || !digits.is_ascii() {
            return Err(wrong().to_owned());
        }
        let mut hash = [0_u8; 32];
        for (n, byte) in hash.iter_mut().enumerate() {
            let pair = digits.get(2 * n..2 * n + 2).ok_or_else(wrong)?;
            *byte = u8::from_str_radix(pair, 16).map_err(|_| wrong())?;
        }
        Ok(Self(hash))
    }
}

/// One or two tokens: during a rotation the old and the new one are good.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(transparent)]
pub struct Tokens(pub Vec<TokenHash>);

/// Who may call the service.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Access {
    /// Those who may look, by name.
    pub viewers: BTreeMap<String, Tokens>,
    /// Those who may decide, by name; they may look as well.
    pub operators: BTreeMap<String, Tokens>,
    /// Senders of telemetry, by name; sources name them.
    pub senders: BTreeMap<String, Tokens>,
    /// Names in the certificates of senders, URI or DNS, by sender: instead of a token, or beside it.
    pub sender_certificates: BTreeMap<String, Vec<String>>,
    /// Senders need both a certificate and a token.
    pub senders_need_both: bool,
    /// Agents by their host, where they have no certificate.
    pub agents: BTreeMap<String, Tokens>,
    /// One token for every agent. It binds no agent to its host: for laboratories only.
    pub any_agent: Tokens,
    /// Agents need both a certificate and a token.
    pub agents_need_both: bool,
    /// Everybody may look. For laboratories.
    pub anonymous_viewer: bool,
    /// The beginning of URI names in agents' certificates; the host follows. Any `spiffe://…/host/` when empty.
    pub agent_uri_prefix: String,
    /// The end of DNS names in agents' certificates, taken off to get the host; any when empty.
    pub agent_dns_suffix: String,
}

impl Access {
    pub(super) fn check(&self, mistakes: &mut Mistakes<'_>) {
        for (kind, map) in [
            ("viewers", &self.viewers),
            ("operators", &self.operators),
            ("senders", &self.senders),
            ("agents", &self.agents),
        ] {
            for (name, tokens) in map {
                if tokens.0.is_empty() || tokens.0.len() > 2 {
                    mistakes.add(
                        &format!("access.{kind}.{name}"),
                        "one token is needed, two are allowed during a rotation",
                    );
                }
            }
        }
        self.check_senders(mistakes);
        if self.any_agent.0.len() > 2 {
            mistakes.add("access.any_agent", "two tokens are allowed at most");
        }
        if !self.agent_uri_prefix.is_empty() && !self.agent_uri_prefix.ends_with('/') {
            mistakes.add(
                "access.agent_uri_prefix",
                "must end with a slash, such as spiffe://example.org/host/",
            );
        }
    }
}

impl Access {
    /// Whether anything lets a sender of that name in.
    pub(super) fn knows_sender(&self, name: &str) -> bool {
        self.senders.contains_key(name) || self.sender_certificates.contains_key(name)
    }

    fn check_senders(&self, mistakes: &mut Mistakes<'_>) {
        let mut owners: BTreeMap<&str, &str> = BTreeMap::new();
        for (sender, names) in &self.sender_certificates {
            let key = format!("access.sender_certificates.{sender}");
            if names.is_empty() || names.iter().any(String::is_empty) {
                mistakes.add(&key, "the URI or DNS names of its certificate are needed");
            }
            for name in names {
                if let Some(other) = owners.insert(name, sender) {
                    mistakes.add(&key, format!("{name} is the name of {other} already"));
                }
            }
            if self.senders_need_both && !self.senders.contains_key(sender) {
                mistakes.add(
                    &key,
                    "senders_need_both is set, and it has no token in access.senders",
                );
            }
        }
        let bare = |sender: &&String| !self.sender_certificates.contains_key(*sender);
        for sender in self
            .senders
            .keys()
            .filter(bare)
            .filter(|_| self.senders_need_both)
        {
            mistakes.add(
                &format!("access.senders.{sender}"),
                "senders_need_both is set, and it has no certificate in access.sender_certificates",
            );
        }
    }
}

/// The files of TLS.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct ServerTlsFiles {
    /// The certificate chain, leaf first.
    pub cert_file: String,
    /// The private key.
    pub key_file: String,
    /// Authorities of agents' and senders' certificates.
    pub client_ca_file: String,
}

/// How much is taken.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Most bytes of a body, after decompression.
    pub body_bytes: usize,
    /// Requests under way.
    pub inflight: usize,
    /// Requests per second of one credential.
    pub per_agent_rps: u32,
    /// Connections; one address has half of them.
    pub connections: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            body_bytes: 1 << 20,
            inflight: 2000,
            per_agent_rps: 20,
            connections: 8192,
        }
    }
}

/// Where the service listens.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Server {
    /// The API.
    pub listen: String,
    /// TLS of the API; plain text when no file is named, for laboratories.
    pub tls: ServerTlsFiles,
    /// A listener for the legacy call alone; none when empty.
    pub legacy_listen: String,
    /// Health and metrics.
    pub metrics_listen: String,
    /// How much is taken.
    pub limits: Limits,
}

impl Default for Server {
    fn default() -> Self {
        Self {
            listen: ":8443".into(),
            tls: ServerTlsFiles::default(),
            legacy_listen: String::new(),
            metrics_listen: ":9185".into(),
            limits: Limits::default(),
        }
    }
}

impl Server {
    pub(super) fn check(&self, mistakes: &mut Mistakes<'_>) {
        let ServerTlsFiles {
            cert_file, key_file, ..
        } = &self.tls;
        if cert_file.is_empty() != key_file.is_empty() {
            mistakes.add("server.tls", "cert_file and key_file belong together");
        }
        if cert_file.is_empty() && !self.tls.client_ca_file.is_empty() {
            mistakes.add("server.tls.client_ca_file", "needs cert_file and key_file");
        }
        let Limits {
            body_bytes,
            inflight,
            per_agent_rps,
            connections,
        } = self.limits;
        if body_bytes < 4096 || inflight == 0 || per_agent_rps == 0 || connections == 0 {
            mistakes.add(
                "server.limits",
                "must leave room for work: body_bytes at least 4096, the others at least 1",
            );
        }
    }
}

/// What older callers may do.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Compat {
    /// The legacy call needs no credentials. Only behind a network policy.
    pub legacy_unauthenticated: bool,
}
