// SPDX-License-Identifier: Apache-2.0
//! Admission webhooks over the wire: a real HTTPS server on the loopback address, reached by URL and
//! by the operator's word for a Service; and everything that can go wrong on the way.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use base64::Engine;
use bytes::Bytes;
use cobaltcore_apiserver::Config;
use cobaltcore_apiserver::testkit::{Reply, TestServer};
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const REGISTRATION: &str = "/apis/admissionregistration.k8s.io/v1";

/// A certificate as a caBundle, and what a server needs to show it.
struct Identity {
    bundle: String,
    config: Arc<rustls::ServerConfig>,
}

fn base64(bytes: &[u8]) -> String {
    base64::engine::general_purpose::STANDARD.encode(bytes)
}

/// A certificate for the names, signed by an authority of its own.
fn identity(names: &[&str]) -> Identity {
    let names: Vec<String> = names.iter().map(ToString::to_string).collect();
    let mut authority = rcgen::CertificateParams::new(Vec::new()).unwrap();
    authority.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let authority_key = rcgen::KeyPair::generate().unwrap();
    let authority_cert = authority.self_signed(&authority_key).unwrap();
    let issuer = rcgen::Issuer::new(authority, authority_key);
    let key = rcgen::KeyPair::generate().unwrap();
    let cert = rcgen::CertificateParams::new(names)
        .unwrap()
        .signed_by(&key, &issuer)
        .unwrap();
    Identity {
        bundle: base64(authority_cert.pem().as_bytes()),
        config: server_config(&cert, &key),
    }
}

/// A self-signed certificate that calls itself an authority, as common tools make them.
fn self_signed(names: &[&str]) -> Identity {
    let names: Vec<String> = names.iter().map(ToString::to_string).collect();
    let mut params = rcgen::CertificateParams::new(names).unwrap();
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let key = rcgen::KeyPair::generate().unwrap();
    let cert = params.self_signed(&key).unwrap();
    Identity {
        bundle: base64(cert.pem().as_bytes()),
        config: server_config(&cert, &key),
    }
}

fn server_config(cert: &rcgen::Certificate, key: &rcgen::KeyPair) -> Arc<rustls::ServerConfig> {
    let key = rustls::pki_types::PrivateKeyDer::Pkcs8(key.serialize_der().into());
    let config =
        rustls::ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![cert.der().clone()], key)
            .unwrap();
    Arc::new(config)
}

/// A webhook server; the path of a request says how it behaves.
struct Hooks {
    port: u16,
    connections: Arc<AtomicUsize>,
    /// Host header, path and query, content type of every request.
    requests: Arc<Mutex<Vec<[String; 3]>>>,
}

impl Hooks {
    async fn serve(config: Arc<rustls::ServerConfig>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let hooks = Self {
            port,
            connections: Arc::default(),
            requests: Arc::default(),
        };
        let (connections, requests) = (hooks.connections.clone(), hooks.requests.clone());
        tokio::spawn(async move {
            let acceptor = tokio_rustls::TlsAcceptor::from(config);
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, connections, requests) =
                    (acceptor.clone(), connections.clone(), requests.clone());
                tokio::spawn(async move {
                    let Ok(stream) = acceptor.accept(stream).await else {
                        return;
                    };
                    connections.fetch_add(1, Ordering::SeqCst);
                    let service = service_fn(move |request| answer(request, requests.clone()));
                    let _ = hyper::server::conn::http1::Builder::new()
                        .serve_connection(TokioIo::new(stream), service)
                        .await;
                });
            }
        });
        hooks
    }
}

async fn answer(
    request: Request<Incoming>,
    requests: Arc<Mutex<Vec<[String; 3]>>>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let header = |name: &str| {
        request
            .headers()
            .get(name)
            .and_then(|v| v.to_str().ok())
            .unwrap_or_default()
            .to_owned()
    };
    let path = request.uri().path().to_owned();
    requests
        .lock()
        .unwrap()
        .push([header("host"), request.uri().to_string(), header("content-type")]);
    let body = request.into_body().collect().await.unwrap().to_bytes();
    let review: Value = serde_json::from_slice(&body).unwrap();
    let verdict = |mut response: Value| {
        response["uid"] = review["request"]["uid"].clone();
        json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response})
            .to_string()
    };
    let plain = |code: u16, body: String| {
        Response::builder()
            .status(code)
            .body(Full::new(Bytes::from(body)))
            .unwrap()
    };
    Ok(match path.as_str() {
        "/mutate" => {
            let patch = base64(
                json!([{"op": "add", "path": "/data/zone", "value": "z1"}])
                    .to_string()
                    .as_bytes(),
            );
            plain(
                200,
                verdict(
                    json!({"allowed": true, "patch": patch, "patchType": "JSONPatch", "warnings": ["slightly \"odd\""]}),
                ),
            )
        }
        "/slow" => {
            tokio::time::sleep(Duration::from_secs(20)).await;
            plain(200, verdict(json!({"allowed": true})))
        }
        "/broken" => Response::builder()
            .status(500)
            .header("content-type", "text/plain")
            .body(Full::from("it broke"))
            .unwrap(),
        // What is no text for people is not shown to them.
        "/silent" => plain(500, "it broke".into()),
        "/missing" => plain(404, "404 page not found".into()),
        "/unfit" => plain(422, String::new()),
        "/forbidden" => Response::builder()
            .status(403)
            .header("content-type", "text/plain")
            .body(Full::from("not from here"))
            .unwrap(),
        "/elsewhere" => Response::builder()
            .status(302)
            .header("location", "/mutate")
            .body(Full::default())
            .unwrap(),
        "/garbage" => plain(200, "this is no JSON".into()),
        "/huge" => plain(200, " ".repeat(4 << 20)),
        _ => plain(200, verdict(json!({"allowed": true}))),
    })
}

fn hook(client: Value, more: Value) -> Value {
    let mut hook = json!({
        "name": "wire.hooks.example", "sideEffects": "None", "admissionReviewVersions": ["v1"], "clientConfig": client,
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"], "operations": ["CREATE"]}],
    });
    for (key, value) in more.as_object().cloned().unwrap_or_default() {
        hook[key] = value;
    }
    hook
}

/// Installs a mutating webhook (replacing the one before) and creates a ConfigMap.
async fn try_with(server: &TestServer, name: &str, hook: Value) -> Reply {
    let admin = server.admin();
    admin
        .delete(&format!("{REGISTRATION}/mutatingwebhookconfigurations/wire"))
        .await;
    let body = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": "wire"}, "webhooks": [hook]});
    let reply = admin
        .post(&format!("{REGISTRATION}/mutatingwebhookconfigurations"), &body)
        .await;
    assert_eq!(reply.code, 201, "{}", reply.body);
    create(server, name).await
}

async fn create(server: &TestServer, name: &str) -> Reply {
    let map =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"k": "v"}});
    server.admin().post(MAPS, &map).await
}

#[tokio::test]
async fn webhooks_are_reached_by_url_over_a_connection_that_is_kept() {
    let identity = identity(&["127.0.0.1"]);
    let hooks = Hooks::serve(identity.config.clone()).await;
    let server = TestServer::start().await;
    let client =
        json!({"url": format!("https://127.0.0.1:{}/mutate", hooks.port), "caBundle": identity.bundle});
    let reply = try_with(&server, "a", hook(client, json!({"timeoutSeconds": 5}))).await;
    assert_eq!(reply.code, 201, "{}", reply.body);
    assert_eq!(reply.body["data"], json!({"k": "v", "zone": "z1"}));
    assert_eq!(reply.warnings(), ["299 - \"slightly \\\"odd\\\"\""]);
    for name in ["b", "c"] {
        assert_eq!(create(&server, name).await.code, 201);
    }
    assert_eq!(
        hooks.connections.load(Ordering::SeqCst),
        1,
        "three calls, one connection"
    );
    let requests = hooks.requests.lock().unwrap();
    assert_eq!(requests.len(), 3);
    let wanted = [
        format!("127.0.0.1:{}", hooks.port),
        "/mutate?timeout=5s".into(),
        "application/json".into(),
    ];
    assert_eq!(requests[0], wanted);
}

#[tokio::test]
async fn a_self_signed_certificate_in_the_bundle_stands_for_itself() {
    let good = self_signed(&["127.0.0.1"]);
    let other = self_signed(&["127.0.0.1"]);
    let misnamed = self_signed(&["elsewhere.example"]);
    let server = TestServer::start().await;
    for (name, shown, bundle, code) in [
        ("same", &good, &good.bundle, 201),
        ("other", &good, &other.bundle, 500),
        ("name", &misnamed, &misnamed.bundle, 500),
    ] {
        let hooks = Hooks::serve(shown.config.clone()).await;
        let client = json!({"url": format!("https://127.0.0.1:{}/mutate", hooks.port), "caBundle": bundle});
        let reply = try_with(&server, name, hook(client, json!({}))).await;
        assert_eq!(reply.code, code, "{name}: {}", reply.body);
        let stranger = "x509: certificate signed by unknown authority";
        assert_eq!(reply.message().contains(stranger), name == "other", "{name}");
    }
}

/// A server as a few lines of script make it: old HTTP, no length, and a hung-up connection for an end.
async fn blunt_server(config: Arc<rustls::ServerConfig>, head: &'static str) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        let acceptor = tokio_rustls::TlsAcceptor::from(config);
        while let Ok((stream, _)) = listener.accept().await {
            let Ok(mut stream) = acceptor.accept(stream).await else {
                continue;
            };
            let mut seen = Vec::new();
            let review = loop {
                let begins = seen.windows(4).position(|w| w == b"\r\n\r\n").map(|at| at + 4);
                let body = begins.and_then(|at| serde_json::from_slice::<Value>(&seen[at..]).ok());
                if let Some(review) = body {
                    break review;
                }
                let mut part = [0; 4096];
                let read = stream.read(&mut part).await.unwrap();
                seen.extend_from_slice(&part[..read]);
            };
            let verdict = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
                "response": {"uid": review["request"]["uid"], "allowed": true}});
            stream
                .write_all(format!("{head}\r\n\r\n{verdict}").as_bytes())
                .await
                .unwrap();
            stream.flush().await.unwrap();
            drop(stream.into_inner().0);
        }
    });
    port
}

#[tokio::test]
async fn a_webhook_may_hang_up_when_it_has_answered() {
    let identity = identity(&["127.0.0.1"]);
    let server = TestServer::start().await;
    for (name, head, code) in [
        ("whole", "HTTP/1.0 200 OK", 201),
        ("cut", "HTTP/1.1 200 OK\r\nContent-Length: 99999", 500),
    ] {
        let port = blunt_server(identity.config.clone(), head).await;
        let client = json!({"url": format!("https://127.0.0.1:{port}/"), "caBundle": identity.bundle});
        let reply = try_with(&server, name, hook(client, json!({}))).await;
        assert_eq!(reply.code, code, "{name}: {}", reply.body);
    }
}

#[tokio::test]
async fn failed_calls_block_or_not_as_the_policy_says() {
    let good = identity(&["127.0.0.1"]);
    let stranger = identity(&["127.0.0.1"]);
    let hooks = Hooks::serve(good.config.clone()).await;
    let server = TestServer::start().await;
    let base = format!("https://127.0.0.1:{}", hooks.port);
    // On an address of the loopback network that nobody else takes ports of.
    let closed = TcpListener::bind("127.77.16.6:0")
        .await
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let cases = [
        (
            "slow",
            format!("{base}/slow"),
            Some(&good.bundle),
            "context deadline exceeded",
        ),
        (
            "broken",
            format!("{base}/broken"),
            Some(&good.bundle),
            "an error on the server (\"it broke\") has prevented the request from succeeding",
        ),
        (
            "silent",
            format!("{base}/silent"),
            Some(&good.bundle),
            "an error on the server (\"unknown\") has prevented the request from succeeding",
        ),
        (
            "missing",
            format!("{base}/missing"),
            Some(&good.bundle),
            "the server could not find the requested resource",
        ),
        (
            "unfit",
            format!("{base}/unfit"),
            Some(&good.bundle),
            "the server rejected our request due to an error in our request",
        ),
        (
            "forbidden",
            format!("{base}/forbidden"),
            Some(&good.bundle),
            "failed to call webhook: not from here",
        ),
        (
            "elsewhere",
            format!("{base}/elsewhere"),
            Some(&good.bundle),
            "the server responded with the status code 302",
        ),
        (
            "garbage",
            format!("{base}/garbage"),
            Some(&good.bundle),
            "couldn't get version/kind; json parse error",
        ),
        (
            "huge",
            format!("{base}/huge"),
            Some(&good.bundle),
            "larger than 3145728 bytes",
        ),
        (
            "stranger",
            format!("{base}/mutate"),
            Some(&stranger.bundle),
            "tls: failed to verify certificate: x509: certificate signed by unknown authority",
        ),
        (
            "system",
            format!("{base}/mutate"),
            None,
            "x509: certificate signed by unknown authority",
        ),
        (
            "name",
            base.replace("127.0.0.1", "localhost"),
            Some(&good.bundle),
            "tls: failed to verify certificate",
        ),
        (
            "closed",
            format!("https://127.77.16.6:{closed}/"),
            Some(&good.bundle),
            "connect: connection refused",
        ),
    ];
    for (name, url, bundle, text) in cases {
        for (policy, code) in [("Ignore", 201), ("Fail", 500)] {
            let mut client = json!({"url": url});
            if let Some(bundle) = bundle {
                client["caBundle"] = json!(bundle);
            }
            // Only one of them is meant to be late.
            let seconds = if name == "slow" { 1 } else { 30 };
            let more = json!({"failurePolicy": policy, "timeoutSeconds": seconds});
            let reply = try_with(
                &server,
                &format!("{name}-{}", policy.to_lowercase()),
                hook(client, more),
            )
            .await;
            assert_eq!(reply.code, code, "{name} {policy}: {}", reply.body);
            if policy == "Ignore" {
                assert_eq!(reply.body["data"], json!({"k": "v"}), "{name}");
                continue;
            }
            let begin = "Internal error occurred: failed calling webhook \"wire.hooks.example\": failed to call webhook: ";
            assert!(
                reply.message().starts_with(begin) && reply.message().contains(text),
                "{name}: {}",
                reply.message()
            );
            assert_eq!(
                (reply.reason(), &reply.body["details"]["causes"][0]["message"]),
                (
                    "InternalError",
                    &json!(reply.message().trim_start_matches("Internal error occurred: "))
                )
            );
        }
    }
    let metrics = String::from_utf8_lossy(&server.admin().get("/metrics").await.raw).into_owned();
    let counted = "apiserver_admission_webhook_rejection_count{name=\"wire.hooks.example\",type=\"admit\",operation=\"CREATE\",error_type=\"calling_webhook_error\",rejection_code=\"500\"} 2";
    assert!(metrics.lines().any(|line| line == counted), "{metrics}");
}

#[tokio::test]
async fn a_bundle_that_is_none_is_a_failed_call() {
    let server = TestServer::start().await;
    let client = json!({"url": "https://127.0.0.1:1/", "caBundle": base64(b"\n")});
    let reply = try_with(&server, "a", hook(client, json!({}))).await;
    assert_eq!(reply.code, 500);
    assert!(
        reply
            .message()
            .contains("could not get REST client: unable to load root certificates"),
        "{}",
        reply.body
    );
}

#[tokio::test]
async fn services_are_reached_where_the_operator_says() {
    let identity = identity(&["hook.default.svc"]);
    let hooks = Hooks::serve(identity.config.clone()).await;
    let services = BTreeMap::from([("default/hook".to_owned(), format!("127.0.0.1:{}", hooks.port))]);
    let server = TestServer::with(Config {
        webhook_services: services,
        ..Config::default()
    })
    .await;
    let client = json!({"service": {"namespace": "default", "name": "hook", "path": "/mutate"}, "caBundle": identity.bundle});
    let reply = try_with(&server, "a", hook(client, json!({}))).await;
    assert_eq!(
        (reply.code, &reply.body["data"]["zone"]),
        (201, &json!("z1")),
        "{}",
        reply.body
    );
    assert_eq!(
        hooks.requests.lock().unwrap()[0][..2],
        ["hook.default.svc:443", "/mutate?timeout=10s"]
    );
}
