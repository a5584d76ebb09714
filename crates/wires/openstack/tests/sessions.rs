// SPDX-License-Identifier: Apache-2.0
//! Sessions over a real wire: tokens that end, a Keystone that is down, catalogs, scopes, TLS.

#![allow(clippy::unwrap_used, reason = "helpers of tests may fail them")]

mod support;

use std::sync::Arc;
use std::time::Duration;

use cobaltcore_openstack::nova::ServerFilter;
use cobaltcore_openstack::{Error, Kind, Scope, Service, Session, Settings};
use serde_json::json;
use support::{Cloud, Reply, cloud, ok, settings, unauthorized, usual};
use tokio::net::TcpListener;
use tokio::sync::Barrier;

const SERVICES: &str = "/compute/v2.1/os-services";

fn no_services() -> Reply {
    ok(json!({ "services": [] }))
}

#[tokio::test]
async fn a_refused_token_is_renewed_and_the_call_made_again() {
    let cloud = Cloud::start(|seen| match seen.path.as_str() {
        SERVICES if seen.token() == "token-1" => unauthorized(),
        SERVICES => no_services(),
        _ => usual(),
    })
    .await;
    let session = cloud.session();
    session.nova().compute_services().await.unwrap();
    let tokens: Vec<_> = cloud
        .asked(SERVICES)
        .iter()
        .map(|seen| seen.token().to_owned())
        .collect();
    assert_eq!(tokens, ["token-1", "token-2"]);
    assert!(session.is_authenticated());
}

#[tokio::test]
async fn a_user_that_is_refused_with_every_token_is_told_so() {
    let cloud = Cloud::start(|seen| match seen.path.as_str() {
        SERVICES => unauthorized(),
        _ => usual(),
    })
    .await;
    let error = cloud.session().nova().compute_services().await.unwrap_err();
    assert_eq!(error.kind(), Kind::Unauthorized, "{error}");
    assert_eq!(cloud.asked(SERVICES).len(), 2, "one renewal is enough to know");
}

#[tokio::test]
async fn a_post_that_was_refused_for_its_token_is_sent_again() {
    let path = "/compute/v2.1/servers/a/action";
    let cloud = Cloud::start(move |seen| match seen.path.as_str() {
        p if p == path && seen.token() == "token-1" => unauthorized(),
        p if p == path => Reply::With(202, Vec::new(), String::new()),
        _ => usual(),
    })
    .await;
    cloud.session().nova().stop(&"a".into()).await.unwrap();
    assert_eq!(cloud.asked(path).len(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn fifty_refusals_at_once_take_one_renewal() {
    let all_here = Arc::new(Barrier::new(50));
    let cloud = Cloud::start(move |seen| match seen.path.as_str() {
        SERVICES if seen.token() == "token-1" => {
            Reply::Together(Arc::clone(&all_here), Box::new(unauthorized()))
        }
        SERVICES => no_services(),
        _ => usual(),
    })
    .await;
    let session = cloud.session_with(Settings {
        max_in_flight: 50,
        ..settings()
    });
    session.identity().await.unwrap();
    at_once(&session, 50).await;
    assert_eq!(cloud.tokens(), 2, "the first and one renewal");
    assert_eq!(cloud.asked(SERVICES).len(), 100);
}

async fn at_once(session: &Session, count: usize) {
    let calls = (0..count).map(|_| {
        let nova = session.nova();
        tokio::spawn(async move { nova.compute_services().await })
    });
    for call in calls.collect::<Vec<_>>() {
        call.await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn a_token_that_has_ended_is_not_used_again() {
    let cloud = Cloud::start(|seen| match (seen.path.as_str(), seen.token()) {
        // no lifetime at all: over before it is used
        ("/v3/auth/tokens", _) => {
            let headers = vec![("x-subject-token", "short".to_owned())];
            let base = format!("http://{}", seen.header("host"));
            Reply::With(201, headers, support::token(&base, 0).to_string())
        }
        (SERVICES, _) => no_services(),
        _ => usual(),
    })
    .await;
    let session = cloud.session();
    assert!(!session.is_authenticated());
    session.nova().compute_services().await.unwrap();
    session.nova().compute_services().await.unwrap();
    assert!(
        cloud.asked("/v3/auth/tokens").len() >= 2,
        "a token that has ended is not used again"
    );
    assert!(!session.is_authenticated());
}

#[tokio::test]
async fn a_session_begins_while_keystone_is_down() {
    // On an address of the loopback network that nobody else takes ports of.
    let listener = TcpListener::bind("127.77.16.7:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let url = format!("http://{address}/v3");
    let session = Session::new(cloud(&url, &[]), settings()).unwrap();
    let error = session.nova().compute_services().await.unwrap_err();
    assert_eq!(
        (error.kind(), error.service()),
        (Kind::Unreachable, Some(Service::Keystone)),
        "{error}"
    );
    assert!(error.to_string().contains("user admin, project admin"), "{error}");
    assert!(!error.outcome_unknown() && error.is_transient());
    assert_eq!(
        session.login_failure().map(|error| error.kind()),
        Some(Kind::Unreachable)
    );

    let _cloud = Cloud::serve(TcpListener::bind(address).await.unwrap(), None, |seen| {
        if seen.path == SERVICES {
            no_services()
        } else {
            usual()
        }
    });
    while let Err(error) = session.nova().compute_services().await {
        assert_eq!(error.kind(), Kind::Unreachable, "{error}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(session.login_failure().is_none());
}

#[tokio::test]
async fn a_wrong_password_is_not_tried_over_and_over() {
    let cloud = Cloud::start(|_| unauthorized()).await;
    let session = cloud.session();
    for _ in 0..20 {
        let error = session.nova().compute_services().await.unwrap_err();
        assert_eq!(error.kind(), Kind::Unauthorized, "{error}");
        assert!(error.to_string().contains("check user"), "{error}");
    }
    let tried = cloud.asked("/v3/auth/tokens").len();
    assert!(tried < 20, "Keystone was asked {tried} times");
}

#[tokio::test]
async fn region_interface_and_override_choose_the_endpoint() {
    let script = |seen: &support::Seen| match seen.path.as_str() {
        path if path.ends_with("/os-services") => no_services(),
        path if path.ends_with("/v2.1/") => ok(support::nova_versions("2.93")),
        _ => usual(),
    };
    let far = Cloud::start(script).await;
    let asked = async |more: &[(&str, &str)], path: &str| {
        let session = Session::new(cloud(&far.auth_url(), more), settings()).unwrap();
        let outcome = session.nova().compute_services().await;
        outcome.map(|_| far.asked(path).len())
    };
    assert_eq!(asked(&[], SERVICES).await.unwrap(), 1);
    let inside = "/inside/compute/v2.1/os-services";
    assert_eq!(asked(&[("OS_INTERFACE", "internal")], inside).await.unwrap(), 1);
    let other = format!("http://{}/other", far.address);
    let variable = [("OS_COMPUTE_ENDPOINT_OVERRIDE", other.as_str())];
    assert_eq!(asked(&variable, "/other/v2.1/os-services").await.unwrap(), 1);
    let error = asked(&[("OS_REGION_NAME", "elsewhere")], SERVICES)
        .await
        .unwrap_err();
    assert_eq!(error.kind(), Kind::NoEndpoint);
    let text = error.to_string();
    assert!(
        text.contains("region elsewhere") && text.contains("here"),
        "{text}"
    );
}

#[tokio::test]
async fn two_scopes_have_two_tokens_and_one_user() {
    let cloud = Cloud::start(|seen| {
        if seen.path == SERVICES {
            no_services()
        } else {
            usual()
        }
    })
    .await;
    let admin = cloud.session();
    let test = admin.with_scope(Scope::project("test", "cc3test"));
    for session in [&admin, &test, &admin, &test] {
        session.nova().compute_services().await.unwrap();
    }
    let logins = cloud.asked("/v3/auth/tokens");
    let projects: Vec<_> = logins
        .iter()
        .map(|seen| seen.body["auth"]["scope"]["project"].clone())
        .collect();
    let expected = |name: &str, domain: &str| json!({ "name": name, "domain": { "name": domain } });
    assert_eq!(
        projects,
        [expected("admin", "Default"), expected("test", "cc3test")]
    );
    let tokens: Vec<_> = cloud
        .asked(SERVICES)
        .iter()
        .map(|seen| seen.token().to_owned())
        .collect();
    assert_eq!(tokens, ["token-1", "token-2", "token-1", "token-2"]);
    assert_eq!(
        cloud.asked("/compute/v2.1/").len(),
        1,
        "versions are asked for once"
    );
}

#[tokio::test]
async fn every_kind_of_credential_is_written_as_keystone_wants_it() {
    let far = Cloud::start(|_| usual()).await;
    let cases = [
        (
            vec![
                ("OS_APPLICATION_CREDENTIAL_ID", "ac1"),
                ("OS_APPLICATION_CREDENTIAL_SECRET", "s"),
            ],
            json!({ "identity": { "methods": ["application_credential"], "application_credential": { "id": "ac1", "secret": "s" } } }),
        ),
        (
            vec![
                ("OS_APPLICATION_CREDENTIAL_NAME", "mine"),
                ("OS_APPLICATION_CREDENTIAL_SECRET", "s"),
            ],
            json!({ "identity": { "methods": ["application_credential"], "application_credential": {
                "name": "mine", "secret": "s", "user": { "name": "admin", "domain": { "name": "Default" } } } } }),
        ),
        (
            vec![("OS_PROJECT_NAME", ""), ("OS_SYSTEM_SCOPE", "all")],
            json!({ "scope": { "system": { "all": true } }, "identity": { "methods": ["password"], "password": { "user": {
                "name": "admin", "domain": { "name": "Default" }, "password": "s3cret-password" } } } }),
        ),
        (
            vec![("OS_PROJECT_NAME", ""), ("OS_DOMAIN_NAME", "d")],
            json!({ "scope": { "domain": { "name": "d" } }, "identity": { "methods": ["password"], "password": { "user": {
                "name": "admin", "domain": { "name": "Default" }, "password": "s3cret-password" } } } }),
        ),
    ];
    for (variables, expected) in cases {
        let session = Session::new(cloud(&far.auth_url(), &variables), settings()).unwrap();
        session.identity().await.unwrap();
        let last = far.asked("/v3/auth/tokens").pop().unwrap();
        assert_eq!(last.body["auth"], expected);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn only_so_many_requests_are_under_way() {
    let three = Arc::new(Barrier::new(3));
    let cloud = Cloud::start(move |seen| match seen.path.as_str() {
        SERVICES => Reply::Together(Arc::clone(&three), Box::new(no_services())),
        _ => usual(),
    })
    .await;
    let session = cloud.session_with(Settings {
        max_in_flight: 3,
        ..settings()
    });
    at_once(&session, 30).await;
    assert_eq!(cloud.most_at_once(), 3);
    assert_eq!(cloud.asked(SERVICES).len(), 30);
}

#[tokio::test]
async fn the_observer_hears_of_every_call_once() {
    let cloud = Cloud::start(|seen| match seen.path.as_str() {
        SERVICES => no_services(),
        _ => usual(),
    })
    .await;
    let heard = Arc::new(std::sync::Mutex::new(Vec::new()));
    let ear = Arc::clone(&heard);
    let observer = move |report: &cobaltcore_openstack::Report<'_>| {
        let entry = (
            report.call.service,
            report.call.method,
            report.call.route,
            report.status,
            report.failure,
        );
        ear.lock().unwrap().push(entry);
    };
    let session = cloud.session_with(Settings {
        observer: Some(Arc::new(observer)),
        ..settings()
    });
    session.nova().compute_services().await.unwrap();
    session.nova().server(&"x".into()).await.unwrap_err();
    let expected = [
        (Service::Keystone, "POST", "/auth/tokens", Some(201), None),
        (Service::Nova, "GET", "/", Some(200), None),
        (Service::Nova, "GET", "/os-services", Some(200), None),
        (
            Service::Nova,
            "GET",
            "/servers/{server}",
            Some(404),
            Some(Kind::NotFound),
        ),
    ];
    assert_eq!(*heard.lock().unwrap(), expected);
}

#[tokio::test]
async fn secrets_are_in_no_text() {
    let cloud = Cloud::start(|seen| match seen.path.as_str() {
        "/v3/auth/tokens" => usual(),
        _ => Reply::Silence,
    })
    .await;
    let session = cloud.session().within(Duration::from_millis(300));
    let error = session
        .nova()
        .servers(&ServerFilter::everywhere())
        .await
        .unwrap_err();
    for text in [
        format!("{error} {error:?}"),
        format!("{session:?}"),
        format!("{:?}", support::cloud(&cloud.auth_url(), &[])),
    ] {
        assert!(
            !text.contains("s3cret-password") && !text.contains("token-1"),
            "{text}"
        );
    }
}

#[tokio::test]
async fn a_redirect_does_not_carry_the_token_away() {
    let thief = Cloud::start(|_| no_services()).await;
    let target = format!("http://{}/compute/v2.1/os-services", thief.address);
    let cloud = Cloud::start(move |seen| match seen.path.as_str() {
        SERVICES => Reply::With(302, vec![("location", target.clone())], String::new()),
        _ => usual(),
    })
    .await;
    let error = cloud.session().nova().compute_services().await.unwrap_err();
    assert_eq!(
        (error.kind(), error.status()),
        (Kind::BadAnswer, Some(302)),
        "{error}"
    );
    assert!(thief.asked(SERVICES).is_empty());
}

/// An authority that signs for servers and clients.
struct Authority {
    pem: String,
    certificate: rustls::pki_types::CertificateDer<'static>,
    issuer: rcgen::Issuer<'static, rcgen::KeyPair>,
}

impl Authority {
    fn new() -> Self {
        use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
        let _ = rustls::crypto::ring::default_provider().install_default();
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let certificate = params.self_signed(&key).unwrap();
        Self {
            pem: certificate.pem(),
            certificate: certificate.der().clone(),
            issuer: Issuer::new(params, key),
        }
    }

    fn sign(&self, names: &[&str]) -> (rcgen::Certificate, rcgen::KeyPair) {
        let key = rcgen::KeyPair::generate().unwrap();
        let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
        let params = rcgen::CertificateParams::new(names).unwrap();
        (params.signed_by(&key, &self.issuer).unwrap(), key)
    }

    /// A server of this authority that may ask its clients for a certificate of it.
    fn acceptor(&self, ask_clients: bool) -> tokio_rustls::TlsAcceptor {
        let (certificate, key) = self.sign(&["localhost", "127.0.0.1"]);
        let key = rustls::pki_types::PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        let builder = rustls::ServerConfig::builder();
        let builder = if ask_clients {
            let mut roots = rustls::RootCertStore::empty();
            roots.add(self.certificate.clone()).unwrap();
            let verifier = rustls::server::WebPkiClientVerifier::builder(Arc::new(roots)).build();
            builder.with_client_cert_verifier(verifier.unwrap())
        } else {
            builder.with_no_client_auth()
        };
        let config = builder
            .with_single_cert(vec![certificate.der().clone()], key)
            .unwrap();
        tokio_rustls::TlsAcceptor::from(Arc::new(config))
    }
}

#[tokio::test]
async fn a_client_certificate_opens_a_door_that_asks_for_one() {
    let authority = Authority::new();
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, pem: String| {
        let path = folder.path().join(name);
        std::fs::write(&path, pem).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let (certificate, key) = authority.sign(&["operator"]);
    let ca = write("ca.pem", authority.pem.clone());
    let (certificate, key) = (
        write("cert.pem", certificate.pem()),
        write("key.pem", key.serialize_pem()),
    );
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let far = Cloud::serve(listener, Some(authority.acceptor(true)), |_| usual());
    let with = [
        ("OS_CACERT", ca.as_str()),
        ("OS_CERT", certificate.as_str()),
        ("OS_KEY", key.as_str()),
    ];
    let session = Session::new(cloud(&far.auth_url(), &with), settings()).unwrap();
    assert!(session.identity().await.unwrap().has_role("admin"));
    let session = Session::new(cloud(&far.auth_url(), &with[..1]), settings()).unwrap();
    assert_eq!(session.identity().await.unwrap_err().kind(), Kind::Unreachable);
}

#[tokio::test]
async fn a_ca_bundle_decides_whom_to_believe() {
    let authority = Authority::new();
    let (pem, acceptor) = (authority.pem.clone(), authority.acceptor(false));
    let other = Authority::new().pem;
    let folder = tempfile::tempdir().unwrap();
    let bundle = |name: &str, pem: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, pem).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let (right, wrong) = (bundle("right.pem", &pem), bundle("wrong.pem", &other));
    let both = bundle("both.pem", &format!("{other}\n{pem}"));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let far = Cloud::serve(listener, Some(acceptor), |seen| {
        if seen.path == SERVICES {
            no_services()
        } else {
            usual()
        }
    });
    let ask = async |more: &[(&str, &str)]| {
        let session = Session::new(cloud(&far.auth_url(), more), settings()).unwrap();
        session
            .nova()
            .compute_services()
            .await
            .map(|services| services.len())
    };
    assert_eq!(ask(&[("OS_CACERT", &right)]).await.unwrap(), 0);
    assert_eq!(ask(&[("OS_CACERT", &both)]).await.unwrap(), 0);
    assert_eq!(ask(&[("OS_INSECURE", "true")]).await.unwrap(), 0);
    for distrust in [vec![], vec![("OS_CACERT", wrong.as_str())]] {
        let error: Error = ask(&distrust).await.unwrap_err();
        assert_eq!(error.kind(), Kind::Unreachable, "{error}");
        assert!(
            error.to_string().to_lowercase().contains("certificate"),
            "{error}"
        );
    }
    let missing = Session::new(
        cloud(&far.auth_url(), &[("OS_CACERT", "/no/such/file")]),
        settings(),
    );
    assert!(missing.unwrap_err().to_string().contains("/no/such/file"));
}
