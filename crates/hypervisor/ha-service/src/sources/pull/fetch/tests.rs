// SPDX-License-Identifier: Apache-2.0
//! A target that says who it believes to be asked by.

use std::path::PathBuf;

use cobaltcore_kit::tls::{ServerFiles, ServerTls};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpListener;

use super::*;
use crate::config::{PullKind, PullTls};

/// Answers one request after the other with the caller's certificate and what it says who it is.
async fn target(tls: Option<ServerTls>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let scheme = if tls.is_some() { "https" } else { "http" };
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            let Some(tls) = &tls else {
                answer(socket, "none".into()).await;
                continue;
            };
            let acceptor = tokio_rustls::TlsAcceptor::from(tls.current());
            // Whoever shows no certificate is not talked to.
            let Ok(stream) = acceptor.accept(socket).await else {
                continue;
            };
            let shown = stream.get_ref().1.peer_certificates().unwrap_or_default();
            let shown = format!("{:x?}", shown.first().map(|der| der.to_vec()));
            answer(stream, shown).await;
        }
    });
    format!("{scheme}://localhost:{port}/")
}

/// What somebody asks.
async fn asked(stream: &mut (impl AsyncRead + Unpin)) -> String {
    let mut request = Vec::new();
    let mut byte = [0; 1];
    while !request.ends_with(b"\r\n\r\n") && stream.read_exact(&mut byte).await.is_ok() {
        request.extend(byte);
    }
    String::from_utf8(request).unwrap()
}

async fn answer(mut stream: impl AsyncRead + AsyncWrite + Unpin, shown: String) {
    let request = asked(&mut stream).await;
    let mut lines = request.lines();
    let said = lines
        .find_map(|line| line.strip_prefix("authorization: "))
        .unwrap_or("nobody");
    let body = format!("{said} {shown}");
    let head = format!(
        "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    let _ = stream.write_all(format!("{head}{body}").as_bytes()).await;
    let _ = stream.shutdown().await;
}

fn pull(tls: PullTls, auth: PullAuth) -> Pull {
    Pull {
        name: "p".into(),
        kind: PullKind::HttpStatus,
        url: String::new(),
        targets: Vec::new(),
        from: crate::config::TargetsFrom::Static,
        interval: crate::config::seconds(15),
        timeout: crate::config::seconds(10),
        concurrency: 1,
        tls,
        auth,
        rules: Vec::new(),
    }
}

struct Folder(tempfile::TempDir);

impl Folder {
    fn put(&self, name: &str, text: &str) -> String {
        let path = self.at(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }
}

#[tokio::test]
async fn tokens_and_passwords_are_read_from_files_and_again_when_those_change() {
    let folder = Folder(tempfile::tempdir().unwrap());
    let url = target(None).await;
    let token = PullAuth {
        token_file: folder.put("token", "one\n"),
        ..PullAuth::default()
    };
    let bearer = Fetcher::new(&pull(PullTls::default(), token)).unwrap();
    assert_eq!(bearer.fetch(&url).await.unwrap(), "Bearer one none");
    folder.put("token", "another\n");
    assert_eq!(bearer.fetch(&url).await.unwrap(), "Bearer another none");
    let named = PullAuth {
        username: "metrics".into(),
        password_file: folder.at("password").display().to_string(),
        ..PullAuth::default()
    };
    let basic = Fetcher::new(&pull(PullTls::default(), named)).unwrap();
    let error = basic.fetch(&url).await.unwrap_err();
    assert!(matches!(error, Failure::Unable(_)), "nobody was asked: {error}");
    assert!(
        error.to_string().contains("password"),
        "it names the file: {error}"
    );
    folder.put("password", "hunter2\n");
    let encoded = "bWV0cmljczpodW50ZXIy";
    assert_eq!(basic.fetch(&url).await.unwrap(), format!("Basic {encoded} none"));
}

/// Answers whoever asks with a text.
async fn exporter(text: String) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            let head = format!(
                "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
                text.len()
            );
            asked(&mut socket).await;
            let _ = socket.write_all(format!("{head}{text}").as_bytes()).await;
            // Until the other side has had enough.
            let _ = socket.read_to_end(&mut Vec::new()).await;
        }
    });
    format!("http://localhost:{port}/")
}

#[tokio::test]
async fn of_an_exporter_only_that_is_kept_which_rules_ask_for_and_not_too_much_of_it() {
    let series = |metric: &str, count: usize| -> String {
        (0..count).map(|n| format!("{metric}{{n=\"{n}\"}} 1\n")).collect()
    };
    let fetcher = Fetcher::new(&pull(PullTls::default(), PullAuth::default())).unwrap();
    let wanted = |metric: &str| metric == "wanted";
    let url = exporter(series("other", 3 * MOST_SERIES) + &series("wanted", MOST_SERIES)).await;
    let found = fetcher.scrape(&url, wanted).await.unwrap();
    assert_eq!(found.samples.len(), MOST_SERIES);
    let url = exporter(series("wanted", MOST_SERIES + 1)).await;
    let error = fetcher.scrape(&url, wanted).await.unwrap_err();
    assert!(
        matches!(error, Failure::Unreadable(_)) && error.to_string().contains("more than 4096 series"),
        "{error}"
    );
    assert!(fetcher.knock(&url).await.is_ok(), "that it answers is known");
}

struct Authority(rcgen::Issuer<'static, rcgen::KeyPair>, String);

impl Authority {
    fn new() -> Self {
        let key = rcgen::KeyPair::generate().unwrap();
        let mut params = rcgen::CertificateParams::new(vec![]).unwrap();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let pem = params.self_signed(&key).unwrap().pem();
        Self(rcgen::Issuer::new(params, key), pem)
    }

    /// A certificate, its key, and how the target shows it.
    fn issue(&self) -> (String, String, String) {
        let key = rcgen::KeyPair::generate().unwrap();
        let params = rcgen::CertificateParams::new(vec!["localhost".into()]).unwrap();
        let made = params.signed_by(&key, &self.0).unwrap();
        let shown = format!("{:x?}", Some(made.der().to_vec()));
        (made.pem(), key.serialize_pem(), shown)
    }
}

#[tokio::test]
async fn a_certificate_of_our_own_is_shown_and_changed_with_its_files() {
    cobaltcore_kit::startup::install_tls_provider();
    let folder = Folder(tempfile::tempdir().unwrap());
    let authority = Authority::new();
    let ca_file = folder.put("ca.pem", &authority.1);
    let (cert, key, _) = authority.issue();
    let files = ServerFiles {
        certificate: folder.put("server.pem", &cert).into(),
        key: folder.put("server.key", &key).into(),
        client_ca: Some(ca_file.clone().into()),
    };
    let url = target(Some(ServerTls::open(&files, &["http/1.1"]).unwrap())).await;
    let (cert, key, first) = authority.issue();
    let tls = PullTls {
        cert_file: folder.put("cert.pem", &cert),
        key_file: folder.put("key.pem", &key),
        ca_file: ca_file.clone(),
    };
    let own = Fetcher::new(&pull(tls, PullAuth::default())).unwrap();
    assert_eq!(own.fetch(&url).await.unwrap(), format!("nobody {first}"));
    let (cert, key, second) = authority.issue();
    folder.put("cert.pem", &cert);
    folder.put("key.pem", &key);
    // Files are looked at once a second.
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(2)).await;
    tokio::time::resume();
    assert_eq!(own.fetch(&url).await.unwrap(), format!("nobody {second}"));
    let without = PullTls {
        ca_file,
        ..PullTls::default()
    };
    let without = Fetcher::new(&pull(without, PullAuth::default())).unwrap();
    assert!(
        without.fetch(&url).await.is_err(),
        "the target wants a certificate"
    );
}
