// SPDX-License-Identifier: Apache-2.0
//! One connection that is kept, as agents keep theirs: small enough that what is measured is the other end.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, header};
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use serde::de::DeserializeOwned;
use tokio::net::TcpStream;

/// How long any answer may take; polls wait for half of it.
const PATIENCE: Duration = Duration::from_secs(60);

/// Somebody who calls one address again and again.
pub(crate) struct Caller {
    address: SocketAddr,
    token: String,
    connection: Option<SendRequest<Full<Bytes>>>,
}

type Failure = Box<dyn std::error::Error + Send + Sync>;

impl Caller {
    pub(crate) fn new(address: SocketAddr, token: impl Into<String>) -> Self {
        Self {
            address,
            token: token.into(),
            connection: None,
        }
    }

    /// Calls; the answer's status and body. A connection that broke is made anew by the next call.
    pub(crate) async fn call(
        &mut self,
        method: Method,
        path: &str,
        body: impl Into<Bytes>,
    ) -> Result<(u16, Bytes), Failure> {
        let mut connection = match self.connection.take() {
            Some(connection) if !connection.is_closed() => connection,
            _ => self.connect().await?,
        };
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::HOST, self.address.to_string())
            .header(header::AUTHORIZATION, format!("Bearer {}", self.token))
            .body(Full::new(body.into()))?;
        let exchange = async {
            connection.ready().await?;
            let answer = connection.send_request(request).await?;
            let status = answer.status().as_u16();
            let body = answer.into_body().collect().await?.to_bytes();
            Ok::<_, hyper::Error>((status, body))
        };
        let answer = tokio::time::timeout(PATIENCE, exchange).await??;
        self.connection = Some(connection);
        Ok(answer)
    }

    pub(crate) async fn post(&mut self, path: &str, body: impl Into<Bytes>) -> Result<(u16, Bytes), Failure> {
        self.call(Method::POST, path, body).await
    }

    /// What is at `path`, if it is there and readable.
    pub(crate) async fn get<T: DeserializeOwned>(&mut self, path: &str) -> Option<T> {
        let (status, body) = self.call(Method::GET, path, Bytes::new()).await.ok()?;
        (status == 200)
            .then(|| serde_json::from_slice(&body).ok())
            .flatten()
    }

    async fn connect(&self) -> Result<SendRequest<Full<Bytes>>, Failure> {
        let stream = TcpStream::connect(self.address).await?;
        stream.set_nodelay(true)?;
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        Ok(sender)
    }
}
