// SPDX-License-Identifier: Apache-2.0
//! A client over the socket: TLS with the server's own CA, a bearer token, HTTP/1.1. Every failure of
//! the connection is an error the caller sees, because some tests kill the server.

#![allow(dead_code, reason = "every test file uses its own part")]

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use futures::StreamExt;
use http::{Method, Request};
use http_body_util::{BodyExt, BodyStream, Full};
use hyper::client::conn::http1::SendRequest;
use hyper_util::rt::TokioIo;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, ServerName};
use serde_json::Value;

pub(crate) type Failure = Box<dyn std::error::Error + Send + Sync>;

/// How a server is reached.
#[derive(Debug, Clone)]
pub(crate) struct Remote {
    address: SocketAddr,
    tls: Arc<rustls::ClientConfig>,
    token: Option<String>,
}

/// One connection.
pub(crate) struct Connection {
    sender: SendRequest<Full<Bytes>>,
    remote: Remote,
}

impl Remote {
    pub(crate) fn new(address: SocketAddr, ca_pem: &str, token: Option<&str>) -> Self {
        let mut roots = rustls::RootCertStore::empty();
        roots
            .add(CertificateDer::from_pem_slice(ca_pem.as_bytes()).unwrap())
            .unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let tls = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        Self {
            address,
            tls: Arc::new(tls),
            token: token.map(str::to_owned),
        }
    }

    pub(crate) fn with_token(&self, token: Option<&str>) -> Self {
        Self {
            token: token.map(str::to_owned),
            ..self.clone()
        }
    }

    pub(crate) async fn connect(&self) -> Result<Connection, Failure> {
        let tcp = tokio::net::TcpStream::connect(self.address).await?;
        let name = ServerName::try_from("127.0.0.1")?;
        let tls = tokio_rustls::TlsConnector::from(self.tls.clone())
            .connect(name, tcp)
            .await?;
        let (sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(tls)).await?;
        tokio::spawn(connection);
        Ok(Connection {
            sender,
            remote: self.clone(),
        })
    }
}

impl Connection {
    async fn open(
        &mut self,
        method: Method,
        path: &str,
        body: Option<(&str, String)>,
    ) -> Result<http::Response<hyper::body::Incoming>, Failure> {
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header("host", self.remote.address.to_string());
        if let Some(token) = &self.remote.token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        let body = match body {
            None => String::new(),
            Some((media, text)) => {
                request = request.header("content-type", media);
                text
            }
        };
        Ok(self
            .sender
            .send_request(request.body(Full::new(Bytes::from(body)))?)
            .await?)
    }

    /// A request and its whole answer.
    pub(crate) async fn send(
        &mut self,
        method: Method,
        path: &str,
        body: Option<(&str, &Value)>,
    ) -> Result<(u16, Value), Failure> {
        let response = self
            .open(
                method,
                path,
                body.map(|(media, value)| (media, value.to_string())),
            )
            .await?;
        let code = response.status().as_u16();
        let bytes = response.into_body().collect().await?.to_bytes();
        Ok((code, serde_json::from_slice(&bytes).unwrap_or(Value::Null)))
    }

    pub(crate) async fn get(&mut self, path: &str) -> Result<(u16, Value), Failure> {
        self.send(Method::GET, path, None).await
    }

    pub(crate) async fn post(&mut self, path: &str, body: &Value) -> Result<(u16, Value), Failure> {
        self.send(Method::POST, path, Some(("application/json", body)))
            .await
    }

    /// A watch; the connection serves nothing else afterwards.
    pub(crate) async fn watch(mut self, path: &str) -> Result<(u16, Lines), Failure> {
        let response = self.open(Method::GET, path, None).await?;
        let code = response.status().as_u16();
        let stream = BodyStream::new(response.into_body())
            .map(|frame| {
                frame
                    .map(|f| f.into_data().unwrap_or_default())
                    .map_err(Failure::from)
            })
            .boxed();
        Ok((
            code,
            Lines {
                stream,
                buffer: Vec::new(),
                _connection: self,
            },
        ))
    }
}

/// The events of a watch.
pub(crate) struct Lines {
    stream: futures::stream::BoxStream<'static, Result<Bytes, Failure>>,
    buffer: Vec<u8>,
    _connection: Connection,
}

impl Lines {
    /// The next event; `None` at a clean end.
    pub(crate) async fn next(&mut self) -> Result<Option<Value>, Failure> {
        loop {
            if let Some(end) = self.buffer.iter().position(|b| *b == b'\n') {
                let line: Vec<u8> = self.buffer.drain(..=end).collect();
                return Ok(Some(serde_json::from_slice(&line)?));
            }
            match self.stream.next().await {
                None => return Ok(None),
                Some(bytes) => self.buffer.extend_from_slice(&bytes?),
            }
        }
    }
}
