// SPDX-License-Identifier: Apache-2.0
//! Clients inside the server's own process. They enter the same pipeline as network requests, after
//! TLS and authentication, with the identity their creator gave them.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use cobaltcore_access::identity::User;
use http::{Request, Response};
use http_body::Body;

use crate::api::Api;
use crate::dispatch::Credentials;
use crate::http::{Origin, ResponseBody};

/// An in-process client; a `tower` service that `kube::Client::new` accepts.
#[derive(Debug, Clone)]
pub struct InProcess {
    api: Arc<Api>,
    origin: Origin,
}

impl InProcess {
    /// A client that acts as `user`.
    pub fn new(api: Arc<Api>, user: User) -> Self {
        let origin = Origin {
            credentials: Credentials::Known(user.authenticated()),
            check_host: false,
            peer: "in-process".into(),
        };
        Self { api, origin }
    }
}

impl<B> tower::Service<Request<B>> for InProcess
where
    B: Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    type Response = Response<ResponseBody>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let (api, origin) = (self.api.clone(), self.origin.clone());
        Box::pin(async move { Ok(api.serve(request, origin).await) })
    }
}
