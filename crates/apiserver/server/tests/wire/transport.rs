// SPDX-License-Identifier: Apache-2.0
//! Over a real socket: TLS, HTTP/1.1 and HTTP/2, the headers every answer carries, who is let in.
//! `curl` is the client, because it is nobody's Rust; what it does not do is written by hand.

use std::process::Command;
use std::time::Duration;

use crate::requests::{MAPS, map};
use cobaltcore_apiserver::Config;
use cobaltcore_apiserver::testkit::TestServer;

struct Outside {
    server: TestServer,
    dir: tempfile::TempDir,
}

impl Outside {
    async fn new() -> Self {
        let server = TestServer::listening().await;
        let dir = tempfile::tempdir().expect("a temporary directory");
        std::fs::write(dir.path().join("ca.crt"), server.server().pki().ca_pem()).expect("the CA is written");
        Self { server, dir }
    }

    fn url(&self, path: &str) -> String {
        format!(
            "{}{path}",
            self.server.server().url().expect("the server listens")
        )
    }

    /// Status line, headers in lower case, body.
    async fn curl(&self, path: &str, token: Option<&str>, args: &[&str]) -> (String, String, String) {
        let mut command = Command::new("curl");
        command
            .args(["-sS", "-i", "--max-time", "20", "--cacert"])
            .arg(self.dir.path().join("ca.crt"));
        if let Some(token) = token {
            command.args(["-H", &format!("Authorization: Bearer {token}")]);
        }
        command.args(args).arg(self.url(path));
        let output = tokio::task::spawn_blocking(move || command.output())
            .await
            .expect("curl was waited for")
            .expect("curl runs");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        // An interim answer (100 Continue) comes before the real one.
        let mut rest = text.as_str();
        while rest.starts_with("HTTP/1.1 100") {
            rest = rest.split_once("\r\n\r\n").map_or("", |(_, after)| after);
        }
        let (head, body) = rest.split_once("\r\n\r\n").unwrap_or((rest, ""));
        let (status, headers) = head.split_once("\r\n").unwrap_or((head, ""));
        assert!(!status.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
        (status.trim().to_owned(), headers.to_lowercase(), body.to_owned())
    }

    fn token(&self) -> String {
        self.server.server().pki().admin_token().to_owned()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_answer_carries_its_headers() {
    let outside = Outside::new().await;
    let token = outside.token();
    for (version, status) in [("--http1.1", "HTTP/1.1 200 OK"), ("--http2", "HTTP/2 200")] {
        let (line, headers, body) = outside
            .curl("/api/v1/namespaces/default", Some(&token), &[version])
            .await;
        assert_eq!(line, status);
        assert!(
            headers.contains("cache-control: no-cache, private")
                && headers.contains("content-type: application/json"),
            "{headers}"
        );
        assert!(
            headers
                .lines()
                .any(|l| l.starts_with("audit-id: ") && l.len() == "audit-id: ".len() + 36),
            "{headers}"
        );
        assert!(
            body.starts_with("{\n  \"kind\": \"Namespace\",\n"),
            "curl is shown indented JSON: {body}"
        );
    }
    let (_, headers, _) = outside
        .curl("/version", Some(&token), &["-H", "Audit-Id: mine"])
        .await;
    assert!(headers.contains("audit-id: mine"), "{headers}");
    let (line, headers, body) = outside.curl("/nowhere", Some(&token), &[]).await;
    assert!(
        line.contains("404")
            && headers.contains("content-type: text/plain; charset=utf-8")
            && body == "404 page not found\n"
    );
    let body = r#"{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"w"},"foo":1}"#;
    let (line, headers, _) = outside
        .curl(
            "/api/v1/namespaces/default/configmaps",
            Some(&token),
            &["-X", "POST", "-H", "Content-Type: application/json", "-d", body],
        )
        .await;
    assert!(line.contains("201"), "{line}");
    assert!(
        headers.contains(r#"warning: 299 - "unknown field \"foo\"""#),
        "{headers}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn strangers_are_told_so() {
    let outside = Outside::new().await;
    for (token, path) in [
        (None, "/api/v1/nodes"),
        (Some("wrong"), "/api/v1/nodes"),
        (Some("wrong"), "/healthz"),
        (None, "/apis/nope/v1/foos"),
    ] {
        let (line, headers, body) = outside.curl(path, token, &["-A", "someone"]).await;
        assert!(line.contains("401"), "{path}: {line}");
        assert!(headers.contains("content-type: application/json"));
        let expected = r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"Unauthorized","reason":"Unauthorized","code":401}"#;
        let (found, wanted): (serde_json::Value, serde_json::Value) = (
            serde_json::from_str(&body).unwrap(),
            serde_json::from_str(expected).unwrap(),
        );
        assert_eq!(found, wanted);
    }
    let token = outside.token();
    let (line, ..) = outside
        .curl("/version", Some(&token), &["-H", "Host: evil.example"])
        .await;
    assert!(line.contains("421"), "{line}");
    let (line, ..) = outside
        .curl("/version", Some(&token), &["-H", "Origin: https://evil.example"])
        .await;
    assert!(line.contains("403"), "{line}");
}

#[tokio::test(flavor = "multi_thread")]
async fn bodies_that_are_too_long_are_answered_not_cut() {
    let outside = Outside::new().await;
    let token = outside.token();
    let file = outside.dir.path().join("long");
    std::fs::write(&file, "x".repeat(8 << 20)).unwrap();
    let data = format!("@{}", file.display());
    for version in ["--http1.1", "--http2"] {
        let args = [
            version,
            "-X",
            "POST",
            "-H",
            "Content-Type: application/json",
            "-H",
            "Expect:",
            "--data-binary",
            &data,
        ];
        let (line, _, body) = outside
            .curl("/api/v1/namespaces/default/configmaps", Some(&token), &args)
            .await;
        assert!(line.contains("413"), "{version}: {line}");
        assert!(
            body.contains("Request entity too large: limit is 3145728"),
            "{body}"
        );
    }
    let (line, ..) = outside
        .curl(
            "/api/v1/namespaces/default/configmaps",
            Some(&token),
            &[
                "-X",
                "POST",
                "-H",
                "Content-Type: application/json",
                "-d",
                &map("after").to_string(),
            ],
        )
        .await;
    assert!(line.contains("201"), "{line}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_has_watched_answers_and_watches_again() {
    let outside = Outside::new().await;
    let watch = outside.url("/api/v1/namespaces?watch=true&timeoutSeconds=1");
    let report = [
        "--http1.1",
        "-w",
        "\\n%{num_connects} %{http_code}\\n",
        &watch,
        &watch,
    ];
    let (_, _, rest) = outside
        .curl("/api/v1/namespaces/default", Some(&outside.token()), &report)
        .await;
    let connects: Vec<_> = rest.lines().filter(|line| line.ends_with(" 200")).collect();
    assert_eq!(connects, ["1 200", "0 200", "0 200"], "{rest}");
}

/// Whoever ends all its watches at once has done nothing wrong: the connection goes on.
#[tokio::test]
async fn many_requests_may_be_taken_back_at_once() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("socket");
    let server = TestServer::with(Config {
        unix_socket: Some(socket.clone()),
        ..Config::default()
    })
    .await;
    let token = format!("Bearer {}", server.server().pki().admin_token());
    let frame = |kind: u8, flags: u8, stream: u32, payload: &[u8]| -> Vec<u8> {
        let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
        let mut out = vec![length[1], length[2], length[3], kind, flags];
        out.extend(stream.to_be_bytes());
        out.extend(payload);
        out
    };
    let request = |path: &str| -> Vec<u8> {
        let mut block = Vec::new();
        for (name, value) in [
            (":method", "GET"),
            (":scheme", "http"),
            (":authority", "localhost"),
            (":path", path),
            ("authorization", &token),
        ] {
            block.push(0);
            for text in [name, value] {
                block.push(u8::try_from(text.len()).unwrap());
                block.extend(text.as_bytes());
            }
        }
        block
    };
    let mut sent = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    sent.extend(frame(4, 0, 0, &[]));
    for at in 0..100 {
        sent.extend(frame(1, 5, 2 * at + 1, &request(&format!("{MAPS}?watch=1"))));
        sent.extend(frame(3, 0, 2 * at + 1, &8u32.to_be_bytes()));
    }
    sent.extend(frame(1, 5, 201, &request("/healthz")));
    let mut connection = tokio::net::UnixStream::connect(&socket).await.unwrap();
    connection.write_all(&sent).await.unwrap();
    // Length, kind, flags and stream of a frame; then what it carries.
    let answered = async {
        loop {
            let mut head = [0; 9];
            connection.read_exact(&mut head).await.unwrap();
            let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
            let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
            let mut payload = vec![0; length];
            connection.read_exact(&mut payload).await.unwrap();
            assert_ne!(head[3], 7, "the connection is given up");
            if (head[3], stream) == (0, 201) {
                return payload;
            }
        }
    };
    let body = tokio::time::timeout(Duration::from_secs(60), answered)
        .await
        .unwrap();
    assert_eq!(body, b"ok");
}
