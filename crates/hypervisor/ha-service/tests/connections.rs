// SPDX-License-Identifier: Apache-2.0
//! Connections that are kept: whatever is sent over one, in whatever pieces, is answered as if each request had come
//! alone, and nothing that belongs to a body is taken for a request.

#![allow(clippy::unwrap_used, reason = "a test that unwraps says where it failed")]

mod common;

use std::time::Duration;

use common::{AGENT, ALONE, OPERATOR, Running, base, until};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};

const PATIENCE: Duration = Duration::from_secs(60);

struct Fixture {
    service: Running,
    _folder: tempfile::TempDir,
}

async fn fixture() -> Fixture {
    fixture_with(|text| text).await
}

/// One whose configuration is made from the usual.
async fn fixture_with(change: impl Fn(String) -> String) -> Fixture {
    let folder = tempfile::tempdir().unwrap();
    let usual = format!("{}{ALONE}openstack: {{enabled: false}}\n", base(folder.path()));
    let text = change(usual);
    Fixture {
        service: Running::start(&text, None, None).await,
        _folder: folder,
    }
}

/// A connection and what came back over it that was not looked at yet.
struct Line {
    stream: TcpStream,
    read: Vec<u8>,
}

impl Line {
    async fn to(service: &Running) -> Self {
        Self::from("127.0.0.1", service).await
    }

    /// A connection of somebody who is at this address.
    async fn from(address: &str, service: &Running) -> Self {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(format!("{address}:0").parse().unwrap()).unwrap();
        Self {
            stream: socket.connect(service.address).await.unwrap(),
            read: Vec::new(),
        }
    }

    async fn say(&mut self, text: &str) {
        self.stream.write_all(text.as_bytes()).await.unwrap();
    }

    /// The status and the body of the next answer; nothing if the connection ended instead.
    async fn answer(&mut self) -> Option<(u16, String)> {
        loop {
            if let Some(found) = self.parse() {
                return Some(found);
            }
            let mut more = [0; 4096];
            let read = tokio::time::timeout(PATIENCE, self.stream.read(&mut more)).await;
            match read.expect("an answer in time") {
                Ok(0) | Err(_) => return None,
                Ok(count) => self.read.extend_from_slice(&more[..count]),
            }
        }
    }

    fn parse(&mut self) -> Option<(u16, String)> {
        let text = String::from_utf8(self.read.clone()).unwrap();
        let (head, rest) = text.split_once("\r\n\r\n")?;
        let length = head
            .lines()
            .find_map(|line| {
                line.to_ascii_lowercase()
                    .strip_prefix("content-length: ")?
                    .parse()
                    .ok()
            })
            .unwrap_or(0);
        let body = rest.get(..length)?.to_owned();
        let status = head.split(' ').nth(1)?.parse().ok()?;
        self.read.drain(..head.len() + 4 + length);
        Some((status, body))
    }
}

fn get(path: &str, token: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nhost: ha\r\nauthorization: Bearer {token}\r\n\r\n")
}

fn commands(seconds: u32) -> String {
    get(&format!("/api/v1/agents/n1/commands?wait={seconds}"), AGENT)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_serves_one_request_after_the_other() {
    let fixture = fixture().await;
    let mut line = Line::to(&fixture.service).await;
    for _ in 0..3 {
        line.say(&get("/api/v1/hosts", OPERATOR)).await;
        assert_eq!(line.answer().await.unwrap().0, 200);
        line.say(&commands(0)).await;
        assert_eq!(line.answer().await.unwrap(), (200, r#"{"commands":[]}"#.into()));
    }
    // Two at once, and one in pieces as small as they come.
    line.say(&format!("{}{}", get("/api/v1/hosts", OPERATOR), commands(0)))
        .await;
    assert!(line.answer().await.unwrap().1.contains("items"));
    assert!(line.answer().await.unwrap().1.contains("commands"));
    line.say(&format!("{}{}", commands(0), get("/api/v1/hosts", OPERATOR)))
        .await;
    assert!(line.answer().await.unwrap().1.contains("commands"));
    assert!(line.answer().await.unwrap().1.contains("items"));
    for piece in get("/nowhere", OPERATOR).as_bytes().chunks(1) {
        line.say(std::str::from_utf8(piece).unwrap()).await;
        tokio::task::yield_now().await;
    }
    assert_eq!(line.answer().await.unwrap().0, 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_waits_is_answered_on_its_connection() {
    let fixture = fixture().await;
    let mut line = Line::to(&fixture.service).await;
    // The next request is sent while the first one still waits.
    line.say(&commands(1)).await;
    line.say(&get("/api/v1/hosts", OPERATOR)).await;
    assert_eq!(line.answer().await.unwrap(), (200, r#"{"commands":[]}"#.into()));
    assert!(line.answer().await.unwrap().1.contains("items"));
    line.say(&get("/api/v1/agents/n1/commands?wait=1", "nobody"))
        .await;
    assert_eq!(line.answer().await.unwrap().0, 401);
    // One who wants the connection to end afterwards gets that as well.
    let last = commands(0).replace("\r\n\r\n", "\r\nconnection: close\r\n\r\n");
    line.say(&last).await;
    assert_eq!(line.answer().await.unwrap().0, 200);
    assert_eq!(line.answer().await, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_nobody_read_is_no_request() {
    let fixture = fixture().await;
    let hidden = get("/api/v1/hosts", OPERATOR);
    for split in [false, true] {
        let mut line = Line::to(&fixture.service).await;
        let head = format!(
            "POST /api/v1/agents/n1/batches HTTP/1.1\r\nhost: ha\r\nauthorization: Bearer nobody\r\ncontent-length: {}\r\n\r\n",
            hidden.len()
        );
        // It is refused before its body is looked at, wherever the body is by then.
        if split {
            line.say(&head).await;
            assert_eq!(line.answer().await.unwrap().0, 401);
            let _ = line.stream.write_all(hidden.as_bytes()).await;
        } else {
            line.say(&format!("{head}{hidden}")).await;
            assert_eq!(line.answer().await.unwrap().0, 401);
        }
        let _ = line.stream.write_all(get("/nowhere", OPERATOR).as_bytes()).await;
        let next = line.answer().await.map(|(status, _)| status);
        assert!(
            matches!(next, None | Some(404)),
            "the body was taken for a request: {next:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_address_cannot_take_all_connections() {
    let fixture = fixture_with(|text| text.replace("limits: {", "limits: {connections: 8, ")).await;
    let service = &fixture.service;
    let mut held = Vec::new();
    for _ in 0..4 {
        held.push(Line::to(service).await);
    }
    let mut refused = Line::to(service).await;
    let _ = refused
        .stream
        .write_all(get("/nowhere", OPERATOR).as_bytes())
        .await;
    assert_eq!(refused.answer().await, None, "it has half of all");
    let mut other = Line::from("127.0.0.2", service).await;
    other.say(&get("/api/v1/hosts", OPERATOR)).await;
    assert_eq!(other.answer().await.unwrap().0, 200);
    let label = "what=\"connection\",why=\"address\"";
    assert_eq!(
        service.figures().await.of("kvm_ha_ingest_refused_total", label),
        1.0
    );
    for line in &mut held {
        line.say(&get("/nowhere", OPERATOR)).await;
        assert_eq!(line.answer().await.unwrap().0, 404);
    }
    drop(held);
    until("whoever left leaves room", async || {
        let mut line = Line::to(service).await;
        let _ = line.stream.write_all(get("/nowhere", OPERATOR).as_bytes()).await;
        line.answer().await.filter(|(status, _)| *status == 404)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn both_versions_of_the_protocol_are_understood() {
    let fixture = fixture().await;
    let url = fixture.service.url("/api/v1/hosts");
    cobaltcore_kit::startup::install_tls_provider();
    let client = reqwest::Client::builder()
        .no_proxy()
        .http2_prior_knowledge()
        .timeout(PATIENCE)
        .build()
        .unwrap();
    for _ in 0..2 {
        let answer = client.get(&url).bearer_auth(OPERATOR).send().await.unwrap();
        assert_eq!(
            (answer.version(), answer.status().as_u16()),
            (http::Version::HTTP_2, 200)
        );
    }
}
