// SPDX-License-Identifier: Apache-2.0
//! What can go wrong, said so that a person knows what to do next. An error that the daemon itself reports is
//! [`RpcError`]; everything else is about reaching it or understanding it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::frame::FrameError;
use crate::procedure::Procedure;
use crate::types::{AuthType, Domain, Network};
use crate::xdr::{self, Decode, Decoder, Encode, Encoder, XdrError};

/// Error codes of the daemon that callers decide on. Others are passed through as numbers.
pub mod code {
    /// Internal error; also an unknown event id and a connection that is not open.
    pub const INTERNAL: i32 = 1;
    /// The driver does not have this function.
    pub const NO_SUPPORT: i32 = 3;
    /// No driver accepts the URI.
    pub const NO_CONNECT: i32 = 5;
    /// An argument is wrong.
    pub const INVALID_ARG: i32 = 8;
    /// The operation failed.
    pub const OPERATION_FAILED: i32 = 9;
    /// Denied, for example on a read-only connection.
    pub const OPERATION_DENIED: i32 = 29;
    /// A system call failed.
    pub const SYSTEM: i32 = 38;
    /// Unknown procedure or program, undecodable arguments, missing authentication.
    pub const RPC: i32 = 39;
    /// No such domain.
    pub const NO_DOMAIN: i32 = 42;
    /// Authentication failed.
    pub const AUTH_FAILED: i32 = 45;
    /// Not possible in the present state.
    pub const OPERATION_INVALID: i32 = 55;
    /// The configuration is not supported.
    pub const CONFIG_UNSUPPORTED: i32 = 67;
    /// Took too long, for example because the guest is busy with another job.
    pub const OPERATION_TIMEOUT: i32 = 68;
    /// The operation was aborted.
    pub const OPERATION_ABORTED: i32 = 78;
    /// Authentication was cancelled.
    pub const AUTH_CANCELLED: i32 = 79;
    /// There is no metadata of this kind.
    pub const NO_DOMAIN_METADATA: i32 = 80;
    /// The operation is not supported here.
    pub const OPERATION_UNSUPPORTED: i32 = 84;
    /// The guest agent does not answer.
    pub const AGENT_UNRESPONSIVE: i32 = 86;
    /// Access denied by policy.
    pub const ACCESS_DENIED: i32 = 88;
    /// No authentication mechanism is available.
    pub const AUTH_UNAVAILABLE: i32 = 94;
}

/// Who reports an error.
pub mod domain {
    /// The functions of domains.
    pub const DOMAIN_API: i32 = 6;
    /// The configuration of domains.
    pub const DOMAIN: i32 = 20;
    /// The RPC layer.
    pub const RPC: i32 = 7;
    /// The QEMU driver.
    pub const QEMU: i32 = 10;
    /// The remote driver.
    pub const REMOTE: i32 = 13;
    /// The Cloud Hypervisor driver.
    pub const CH: i32 = 72;
}

/// The error structure of the daemon, complete.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RpcError {
    /// What went wrong; see [`code`].
    pub code: i32,
    /// Which part of libvirt reports it; see [`domain`].
    pub domain: i32,
    /// 1 warning, 2 error.
    pub level: i32,
    /// The text for people.
    pub message: Option<String>,
    /// What is rarely looked at.
    pub extra: Box<ErrorExtra>,
}

/// The fields of an error that only go along.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ErrorExtra {
    /// Unused by daemons since 0.9, kept for completeness.
    pub dom: Option<Domain>,
    /// Often the format or the first half of the message.
    pub str1: Option<String>,
    /// Often the detail of the message.
    pub str2: Option<String>,
    /// Rarely used.
    pub str3: Option<String>,
    /// Rarely used.
    pub int1: i32,
    /// Rarely used.
    pub int2: i32,
    /// Unused by daemons since 0.9, kept for completeness.
    pub net: Option<Network>,
}

impl RpcError {
    /// An error as a daemon would send it.
    pub fn new(code: i32, domain: i32, message: impl Into<String>) -> Self {
        let message = message.into();
        let extra = ErrorExtra {
            str1: Some("%s".to_owned()),
            str2: Some(message.clone()),
            int1: -1,
            int2: -1,
            ..ErrorExtra::default()
        };
        Self {
            code,
            domain,
            level: 2,
            message: Some(message),
            extra: Box::new(extra),
        }
    }

    /// The driver lacks this function (code 3), in libvirt's words.
    pub fn unsupported(procedure: Procedure) -> Self {
        Self::new(
            code::NO_SUPPORT,
            domain::REMOTE,
            format!(
                "this function is not supported by the connection driver: {}",
                procedure.function()
            ),
        )
    }

    /// No domain with this UUID (code 42), in libvirt's words.
    pub fn no_domain(dom: &Domain) -> Self {
        Self::new(
            code::NO_DOMAIN,
            domain::QEMU,
            format!(
                "Domain not found: no domain with matching uuid '{}' ({})",
                dom.uuid, dom.name
            ),
        )
    }
}

impl fmt::Display for RpcError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.message.as_deref().unwrap_or("no message");
        write!(f, "{text} (libvirt error {}, from {})", self.code, self.domain)
    }
}

impl std::error::Error for RpcError {}

impl Encode for RpcError {
    fn encode(&self, out: &mut Encoder) -> Result<(), XdrError> {
        let extra = &self.extra;
        (self.code, self.domain).encode(out)?;
        self.message.encode(out)?;
        self.level.encode(out)?;
        extra.dom.encode(out)?;
        extra.str1.encode(out)?;
        extra.str2.encode(out)?;
        extra.str3.encode(out)?;
        (extra.int1, extra.int2).encode(out)?;
        extra.net.encode(out)
    }
}

impl Decode for RpcError {
    const MIN_WIRE: usize = 44;
    fn decode(input: &mut Decoder<'_>) -> Result<Self, XdrError> {
        let (code, domain) = Decode::decode(input)?;
        let (message, level) = Decode::decode(input)?;
        let extra = ErrorExtra {
            dom: Option::decode(input)?,
            str1: Option::decode(input)?,
            str2: Option::decode(input)?,
            str3: Option::decode(input)?,
            int1: i32::decode(input)?,
            int2: i32::decode(input)?,
            net: Option::decode(input)?,
        };
        Ok(Self {
            code,
            domain,
            level,
            message,
            extra: Box::new(extra),
        })
    }
}

/// Why a connection is over.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CloseReason {
    /// This side asked for it.
    #[error("closed by this side")]
    Local,
    /// The daemon closed the connection.
    #[error("the daemon closed the connection")]
    Eof,
    /// The transport failed.
    #[error("transport failed: {0}")]
    Io(String),
    /// The peer does not speak the protocol.
    #[error("the peer does not speak the libvirt protocol: {0}")]
    Protocol(String),
    /// Nothing was heard although it was asked for signs of life.
    #[error("no sign of life for {silence:?} ({pings} keepalive pings unanswered)")]
    Keepalive {
        /// How long nothing was received.
        silence: Duration,
        /// How many pings went out in that time.
        pings: u32,
    },
    /// Every place for a call is taken by one that was given up without an answer.
    #[error("all {0} call slots are taken by calls that were never answered")]
    Stuck(usize),
    /// The daemon lost its own driver backend (0 error, 1 end of file, 2 keepalive, 3 client).
    #[error("the daemon lost its driver backend (reason {0})")]
    Backend(i32),
}

/// Everything that can go wrong with a libvirt connection.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// The URI cannot be used.
    #[error("libvirt URI {uri:?}: {why}")]
    Uri {
        /// As it was given.
        uri: String,
        /// What is wrong with it.
        why: String,
    },
    /// The daemon could not be reached.
    #[error("cannot connect to {endpoint}: {why}")]
    Connect {
        /// Where to.
        endpoint: String,
        /// What the system said.
        why: String,
    },
    /// The TLS session could not be set up.
    #[error("TLS with {endpoint}: {why}")]
    Tls {
        /// Where to.
        endpoint: String,
        /// What failed.
        why: String,
    },
    /// The daemon only offers authentication this client does not do.
    #[error(
        "{endpoint} demands authentication ({}): set auth_unix_rw/auth_tcp = \"none\", use TLS certificates, or run as root",
        .offered.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
    )]
    Auth {
        /// Where to.
        endpoint: String,
        /// What it offers.
        offered: Vec<AuthType>,
    },
    /// The daemon answered with an error.
    #[error("{procedure}: {error}")]
    Rpc {
        /// What was called.
        procedure: Procedure,
        /// What it said.
        error: Box<RpcError>,
    },
    /// No answer in time.
    #[error("{what}: no answer within {after:?}")]
    Timeout {
        /// What was attempted.
        what: String,
        /// The deadline.
        after: Duration,
    },
    /// The connection is over; the call may or may not have been carried out.
    #[error("{what}: connection lost: {reason}")]
    Closed {
        /// What was attempted.
        what: String,
        /// Why the connection ended.
        reason: CloseReason,
    },
    /// The answer could not be understood.
    #[error("{procedure}: answer not understood: {source}")]
    Decode {
        /// What was called.
        procedure: Procedure,
        /// What was wrong with it.
        source: XdrError,
    },
    /// The request exceeds a limit of the protocol.
    #[error("{procedure}: request cannot be sent: {source}")]
    Encode {
        /// What was to be called.
        procedure: Procedure,
        /// Which limit.
        source: XdrError,
    },
}

impl Error {
    /// The error the daemon reported, if it was the daemon.
    pub fn rpc(&self) -> Option<&RpcError> {
        match self {
            Self::Rpc { error, .. } => Some(error),
            _ => None,
        }
    }

    /// The daemon's error code, if it was the daemon.
    pub fn code(&self) -> Option<i32> {
        self.rpc().map(|error| error.code)
    }

    /// The driver or daemon does not have this function and never will on this connection.
    pub fn is_unsupported(&self) -> bool {
        match self.rpc() {
            Some(error) if error.code == code::NO_SUPPORT => true,
            Some(error) if error.code == code::RPC => error
                .message
                .as_deref()
                .is_some_and(|text| text.contains("unknown procedure")),
            _ => false,
        }
    }

    /// The guest is gone.
    pub fn is_no_domain(&self) -> bool {
        self.code() == Some(code::NO_DOMAIN)
    }

    /// No driver for the URI in this daemon.
    pub fn is_driver_unavailable(&self) -> bool {
        self.code() == Some(code::NO_CONNECT)
    }

    /// Authentication or access control said no.
    pub fn is_auth(&self) -> bool {
        match self {
            Self::Auth { .. } => true,
            other => matches!(
                other.code(),
                Some(code::AUTH_FAILED | code::AUTH_CANCELLED | code::ACCESS_DENIED | code::AUTH_UNAVAILABLE)
            ),
        }
    }

    /// Nobody answered in time, by deadline or by keepalive.
    pub fn is_timeout(&self) -> bool {
        matches!(
            self,
            Self::Timeout { .. }
                | Self::Closed {
                    reason: CloseReason::Keepalive { .. } | CloseReason::Stuck(_),
                    ..
                }
        )
    }

    /// The connection is over, so every further call on it fails too.
    pub fn is_closed(&self) -> bool {
        matches!(self, Self::Closed { .. })
    }

    pub(crate) fn closed(what: impl fmt::Display, reason: CloseReason) -> Self {
        Self::Closed {
            what: what.to_string(),
            reason,
        }
    }
}

/// An error that several observers of a session look at.
pub type SharedError = Arc<Error>;

impl From<FrameError> for CloseReason {
    fn from(error: FrameError) -> Self {
        match error {
            FrameError::Io(error) => Self::Io(error.to_string()),
            FrameError::Cut(_) => Self::Io(error.to_string()),
            other => Self::Protocol(other.to_string()),
        }
    }
}

pub(crate) fn rpc_error(procedure: Procedure, payload: &[u8]) -> Error {
    match xdr::from_bytes::<RpcError>(payload) {
        Ok(error) => Error::Rpc {
            procedure,
            error: Box::new(error),
        },
        Err(source) => Error::Decode { procedure, source },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_survives_the_wire_unchanged() {
        let mut error = RpcError::new(code::NO_DOMAIN, domain::QEMU, "Domain not found");
        error.extra.dom = Some(Domain::new("guest", uuid::Uuid::from_u128(7), 3));
        error.extra.net = Some(Network {
            name: "default".into(),
            uuid: uuid::Uuid::from_u128(9),
        });
        let wire = xdr::to_bytes(&error);
        assert_eq!(wire.and_then(|bytes| xdr::from_bytes(&bytes)), Ok(error));
    }

    #[test]
    fn errors_are_sorted_by_what_the_caller_does_next() {
        let rpc = |code, text: &str| Error::Rpc {
            procedure: Procedure::DOMAIN_GET_JOB_STATS,
            error: Box::new(RpcError::new(code, 10, text)),
        };
        assert!(rpc(3, "").is_unsupported());
        assert!(rpc(39, "unknown procedure: 999").is_unsupported());
        assert!(!rpc(39, "authentication required").is_unsupported());
        assert!(rpc(42, "").is_no_domain());
        assert!(rpc(5, "").is_driver_unavailable());
        for code in [45, 79, 88, 94] {
            assert!(rpc(code, "").is_auth(), "{code}");
        }
    }
}
