// SPDX-License-Identifier: Apache-2.0
//! What can go wrong between a person and the fleet, and how it is told to them.

use axum::response::{IntoResponse, Response};
use http::StatusCode;

use crate::page;
use crate::session::Right;

/// A request that could not be answered as wished.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The token belongs to nobody.
    #[error("Kubernetes does not know this token. Copy it again, or ask for a new one; tokens expire.")]
    NotKnown,
    /// The person lacks a right.
    #[error("{user} may not \"{right}\" in this cluster. Ask whoever manages its roles for that right.")]
    Forbidden {
        /// Who asked.
        user: String,
        /// What was lacking.
        right: Right,
    },
    /// A form that did not come from a page of this session.
    #[error("This form is out of date or came from somewhere else. Go back, reload the page and try again.")]
    Forged,
    /// There is no such object.
    #[error("There is no {kind} \"{name}\".")]
    NotFound {
        /// The kind of object.
        kind: &'static str,
        /// Its name.
        name: String,
    },
    /// A form with something missing.
    #[error("{0}")]
    Incomplete(&'static str),
    /// Kubernetes refused or failed.
    #[error("Kubernetes did not {what}: {source}")]
    Kubernetes {
        /// What was tried.
        what: &'static str,
        /// What it said.
        source: kube::Error,
    },
    /// Kubernetes did not answer.
    #[error("Kubernetes did not answer in time ({what}). Nothing is known about the outcome; reload to see.")]
    Late {
        /// What was tried.
        what: &'static str,
    },
    /// The HA service refused or failed.
    #[error("The HA service did not {what}: {text}")]
    Ha {
        /// What was tried.
        what: &'static str,
        /// What it answered, if it did.
        status: Option<StatusCode>,
        /// What it said.
        text: String,
    },
    /// There is no HA service.
    #[error("HA is not configured here: this console was started without the address of an HA service.")]
    NoHa,
    /// The world is real.
    #[error("Nothing can be broken on purpose here: this is no simulation.")]
    NoFaults,
    /// The simulated world refused.
    #[error("The simulation did not do it: {0}.")]
    Fault(String),
    /// Too many people.
    #[error("Too many people are signed in. Try again later.")]
    Busy,
    /// The system has no randomness.
    #[error("The system gives no random numbers; nobody can sign in safely.")]
    Random,
    /// A page could not be made.
    #[error("The page could not be made: {0}")]
    Page(#[from] askama::Error),
    /// The address cannot be listened on.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// The address.
        address: std::net::SocketAddr,
        /// Why.
        source: std::io::Error,
    },
    /// The configuration contradicts itself.
    #[error("{0}")]
    Config(String),
}

impl Error {
    fn status(&self) -> StatusCode {
        match self {
            Self::NotKnown => StatusCode::UNAUTHORIZED,
            Self::Forbidden { .. } | Self::Forged => StatusCode::FORBIDDEN,
            Self::NotFound { .. } => StatusCode::NOT_FOUND,
            Self::Incomplete(_) => StatusCode::UNPROCESSABLE_ENTITY,
            Self::Kubernetes {
                source: kube::Error::Api(status),
                ..
            } => StatusCode::from_u16(status.code).unwrap_or(StatusCode::BAD_GATEWAY),
            Self::Kubernetes { .. } => StatusCode::BAD_GATEWAY,
            Self::Ha { status, .. } => match status {
                // The console's own credentials are no business of the person's.
                Some(StatusCode::UNAUTHORIZED) | None => StatusCode::BAD_GATEWAY,
                Some(status) => *status,
            },
            Self::NoHa | Self::NoFaults => StatusCode::NOT_FOUND,
            Self::Fault(_) => StatusCode::CONFLICT,
            Self::Late { .. } => StatusCode::GATEWAY_TIMEOUT,
            Self::Busy => StatusCode::SERVICE_UNAVAILABLE,
            Self::Random | Self::Page(_) | Self::Listen { .. } | Self::Config(_) => {
                StatusCode::INTERNAL_SERVER_ERROR
            }
        }
    }
}

impl IntoResponse for Error {
    fn into_response(self) -> Response {
        let status = self.status();
        if status.is_server_error() {
            tracing::warn!(error = %self, "a request failed");
        }
        (status, page::refusal(status, &self.to_string())).into_response()
    }
}
