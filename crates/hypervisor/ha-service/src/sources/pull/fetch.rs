// SPDX-License-Identifier: Apache-2.0
//! One fetch: the connection, who we say we are, and what a failure tells. Certificates, tokens and passwords
//! stand in files, are read again when those change, and are never told to anybody but the target.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use cobaltcore_kit::tls::{ClientTls, TokenFile};
use parking_lot::Mutex;

use super::MOST_SERIES;
use crate::config::{Pull, PullAuth};
use crate::error::Error;
use crate::peers::{client, read_at_most};
use crate::sources::exposition::{MOST_BYTES, Reader, Scrape, TextError};

/// How a source is reached.
pub(super) struct Fetcher {
    tls: Option<ClientTls>,
    /// The connections made with what TLS said then.
    held: Mutex<(Option<Arc<rustls::ClientConfig>>, reqwest::Client)>,
    time: Duration,
    who: Who,
}

/// Who we say we are.
enum Who {
    Nobody,
    Bearer(TokenFile),
    Basic(String, TokenFile),
}

impl Fetcher {
    pub(super) fn new(pull: &Pull) -> Result<Self, Error> {
        let time = pull.timeout.0;
        let files = &pull.tls;
        let tls = if files.cert_file.is_empty() {
            None
        } else {
            let identity = (Path::new(&files.cert_file), Path::new(&files.key_file));
            let opened = ClientTls::open(Path::new(&files.ca_file), Some(identity));
            Some(opened.map_err(|error| Error::Setup(format!("source {}: {error}", pull.name)))?)
        };
        let PullAuth {
            token_file,
            username,
            password_file,
        } = &pull.auth;
        let who = match (token_file.as_str(), username.as_str()) {
            ("", "") => Who::Nobody,
            ("", name) => Who::Basic(name.to_owned(), TokenFile::new(password_file)),
            (file, _) => Who::Bearer(TokenFile::new(file)),
        };
        Ok(Self {
            held: Mutex::new((None, client(&files.ca_file, time)?)),
            tls,
            time,
            who,
        })
    }

    /// The connections to use now: new ones if our certificate is.
    fn client(&self) -> Result<reqwest::Client, Failure> {
        let Some(tls) = &self.tls else {
            return Ok(self.held.lock().1.clone());
        };
        let material = tls.current();
        let mut held = self.held.lock();
        if held.0.as_ref().is_some_and(|known| Arc::ptr_eq(known, &material)) {
            return Ok(held.1.clone());
        }
        let made = reqwest::Client::builder()
            .timeout(self.time)
            .redirect(reqwest::redirect::Policy::none())
            .tls_backend_preconfigured(rustls::ClientConfig::clone(&material))
            .build()
            .map_err(|error| Failure::Unable(error.to_string()))?;
        *held = (Some(material), made.clone());
        Ok(made)
    }

    /// The text at an address.
    pub(super) async fn fetch(&self, url: &str) -> Result<String, Failure> {
        let answer = self.ask(url).await?;
        let body = read_at_most(answer, MOST_BYTES)
            .await
            .map_err(Failure::Answered)?;
        String::from_utf8(body).map_err(|_| Failure::Answered("the answer is not text".into()))
    }

    /// What is wanted of the metrics at an address. They are read as they come in: of many exporters that have much to
    /// say, none is held as a whole.
    pub(super) async fn scrape(&self, url: &str, wanted: impl Fn(&str) -> bool) -> Result<Scrape, Failure> {
        let mut answer = self.ask(url).await?;
        let mut reader = Reader::new(wanted, MOST_SERIES);
        while let Some(piece) = next(&mut answer).await? {
            reader.read(&piece).map_err(Failure::Unreadable)?;
        }
        reader.end().map_err(Failure::Unreadable)
    }

    /// Whether an address answers well and to the end. What it says is of no use.
    pub(super) async fn knock(&self, url: &str) -> Result<(), Failure> {
        let mut answer = self.ask(url).await?;
        let mut bytes = 0;
        while let Some(piece) = next(&mut answer).await? {
            bytes += piece.len();
            if bytes > MOST_BYTES {
                let why = format!("the answer has more than {MOST_BYTES} bytes");
                return Err(Failure::Answered(why));
            }
        }
        Ok(())
    }

    /// The answer of an address, if it is a good one.
    async fn ask(&self, url: &str) -> Result<reqwest::Response, Failure> {
        let unable = |error: cobaltcore_kit::Error| Failure::Unable(error.to_string());
        let request = self.client()?.get(url);
        let request = match &self.who {
            Who::Nobody => request,
            Who::Bearer(token) => request.bearer_auth(token.current().map_err(unable)?),
            Who::Basic(name, word) => request.basic_auth(name, Some(word.current().map_err(unable)?)),
        };
        let answer = request.send().await.map_err(|error| failure(&error))?;
        if !answer.status().is_success() {
            return Err(Failure::Answered(format!("answered {}", answer.status())));
        }
        Ok(answer)
    }
}

/// The next piece of a body.
async fn next(answer: &mut reqwest::Response) -> Result<Option<bytes::Bytes>, Failure> {
    let piece = answer.chunk().await;
    piece.map_err(|error| Failure::Answered(error.to_string()))
}

/// Why nothing was fetched.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    /// Nothing was asked: what we need for it is missing. That says nothing about the target.
    #[error("{0}")]
    Unable(String),
    /// A program answered, but not with what was wanted.
    #[error("{0}")]
    Answered(String),
    /// A program answered with what cannot be read, or is too much.
    #[error("{0}")]
    Unreadable(TextError),
    /// The network stack answered.
    #[error("the connection was refused")]
    Refused,
    /// Nothing answered.
    #[error("{0}")]
    Silent(String),
}

fn failure(error: &reqwest::Error) -> Failure {
    let mut cause: Option<&dyn std::error::Error> = Some(error);
    while let Some(inner) = cause {
        if let Some(io) = inner.downcast_ref::<std::io::Error>()
            && io.kind() == std::io::ErrorKind::ConnectionRefused
        {
            return Failure::Refused;
        }
        cause = inner.source();
    }
    if error.is_connect() || error.is_timeout() {
        Failure::Silent(error.to_string())
    } else {
        Failure::Answered(error.to_string())
    }
}

#[cfg(test)]
mod tests;
