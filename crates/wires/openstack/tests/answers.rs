// SPDX-License-Identifier: Apache-2.0
//! What comes back over a real wire: refusals, repetitions, deadlines, pages, microversions, and
//! bodies that no service should send.

#![allow(clippy::unwrap_used, reason = "helpers of tests may fail them")]

mod support;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use cobaltcore_openstack::nova::{
    Evacuation, NewServer, ServerFilter, ServiceState, ServiceStatus, ServiceUpdate,
};
use cobaltcore_openstack::{Kind, Microversion, Optional, ProviderId, Removal, ServerId, Session, Settings};
use serde_json::{Value, json};
use support::{Cloud, Reply, Seen, cloud, nova_versions, ok, settings, usual};

const SERVERS: &str = "/compute/v2.1/servers/detail";
const ACTION: &str = "/compute/v2.1/servers/a/action";

fn server() -> ServerId {
    "a".into()
}

fn refusal(status: u16, message: &str) -> Reply {
    let headers = vec![
        ("content-type", "application/json".to_owned()),
        ("x-openstack-request-id", "req-7".to_owned()),
    ];
    Reply::With(
        status,
        headers,
        json!({ "fault": { "code": status, "message": message } }).to_string(),
    )
}

/// A cloud that answers one path in turn, the last answer again and again.
async fn in_turn(path: &'static str, replies: Vec<fn() -> Reply>) -> Cloud {
    let turn = AtomicU64::new(0);
    Cloud::start(move |seen| {
        if seen.path != path {
            return usual();
        }
        let turn = turn.fetch_add(1, Ordering::SeqCst) as usize;
        replies[turn.min(replies.len() - 1)]()
    })
    .await
}

fn empty() -> Reply {
    ok(json!({ "servers": [] }))
}

fn accepted() -> Reply {
    Reply::With(202, Vec::new(), String::new())
}

#[tokio::test]
async fn refusals_carry_status_words_object_and_request_id() {
    let cases = [
        (400, Kind::Refused),
        (403, Kind::Forbidden),
        (404, Kind::NotFound),
        (409, Kind::Conflict),
        (500, Kind::Overloaded),
    ];
    for (status, kind) in cases {
        let cloud = Cloud::start(move |seen| match seen.path.as_str() {
            ACTION => refusal(status, "Instance a is busy"),
            _ => usual(),
        })
        .await;
        let error = cloud.session().nova().start(&server()).await.unwrap_err();
        assert_eq!((error.kind(), error.status()), (kind, Some(status)), "{error}");
        assert_eq!(
            (error.message(), error.request_id()),
            (Some("Instance a is busy"), Some("req-7"))
        );
        let text = error.to_string();
        assert_eq!(
            text,
            format!("nova: start a server (server a): {status} Instance a is busy (req-7)")
        );
        assert_eq!(error.outcome_unknown(), status == 500);
        assert_eq!(cloud.asked(ACTION).len(), 1);
    }
}

#[tokio::test]
async fn what_is_gone_is_nothing_and_its_deletion_done() {
    let cloud = Cloud::start(|seen| match seen.path.as_str() {
        "/compute/v2.1/servers/a" => refusal(404, "gone"),
        _ => usual(),
    })
    .await;
    let nova = cloud.session().nova();
    assert_eq!(nova.server(&server()).await.optional().unwrap(), None);
    assert_eq!(nova.delete_server(&server()).await.unwrap(), Removal::WasGone);
}

#[tokio::test]
async fn a_server_is_gone_only_when_nova_says_so_of_the_server() {
    const SERVER: &str = "/compute/v2.1/servers/a";
    let page = || Reply::With(404, Vec::new(), "<html><body>Not Found</body></html>".to_owned());
    let item = || {
        Reply::Json(
            404,
            json!({ "itemNotFound": { "code": 404, "message": "Instance a" } }),
        )
    };
    let logged = || {
        let id = vec![("x-compute-request-id", "req-7".to_owned())];
        Reply::With(404, id, String::new())
    };
    type Answer = fn() -> Reply;
    let cases: [(&str, Answer, bool); 5] = [
        (SERVER, item, true),
        (SERVER, logged, true),
        (SERVER, page, false),
        ("/compute/v2.1/", item, false),
        ("/v3/auth/tokens", item, false),
    ];
    for (path, reply, gone) in cases {
        let cloud = Cloud::start(move |seen| if seen.path == path { reply() } else { usual() }).await;
        let nova = cloud.session().nova();
        let found = nova.server(&server()).await.optional();
        let removed = nova.delete_server(&server()).await;
        if gone {
            assert_eq!(found.unwrap(), None, "{path}");
            assert_eq!(removed.unwrap(), Removal::WasGone, "{path}");
        } else {
            let (found, removed) = (found.unwrap_err(), removed.unwrap_err());
            assert_eq!(
                (found.kind(), removed.kind()),
                (Kind::BadAnswer, Kind::BadAnswer),
                "{path}"
            );
        }
    }
}

#[tokio::test]
async fn reads_survive_a_gateway_that_stumbles() {
    let stumble: Vec<fn() -> Reply> = vec![|| refusal(503, "x"), || refusal(504, "x"), empty];
    let cloud = in_turn(SERVERS, stumble).await;
    cloud
        .session()
        .nova()
        .servers(&ServerFilter::everywhere())
        .await
        .unwrap();
    let asked = cloud.asked(SERVERS);
    assert_eq!(asked.len(), 3);
    let ids: BTreeSet<_> = asked
        .iter()
        .map(|seen| seen.header("x-openstack-request-id").to_owned())
        .collect();
    assert_eq!(ids.len(), 1, "every try of a call carries the same id");
    assert!(ids.iter().all(|id| id.starts_with("req-")));
}

#[tokio::test]
async fn three_tries_are_enough() {
    let cloud = in_turn(SERVERS, vec![|| refusal(502, "x")]).await;
    let error = cloud
        .session()
        .nova()
        .servers(&ServerFilter::everywhere())
        .await
        .unwrap_err();
    assert_eq!(error.kind(), Kind::Overloaded);
    assert_eq!(cloud.asked(SERVERS).len(), 3);
}

#[tokio::test]
async fn an_action_is_never_repeated_on_a_broken_answer() {
    for status in [500, 502, 503, 504] {
        let cloud = Cloud::start(move |seen| match seen.path.as_str() {
            ACTION => Reply::With(
                status,
                Vec::new(),
                "<html><body><h1>Bad</h1></body></html>".to_owned(),
            ),
            _ => usual(),
        })
        .await;
        let error = cloud
            .session()
            .nova()
            .evacuate(&server(), &Evacuation::default())
            .await
            .unwrap_err();
        assert_eq!(error.kind(), Kind::Overloaded);
        assert!(error.outcome_unknown() && !error.is_transient(), "{error}");
        assert_eq!(error.message(), Some("Bad"));
        assert_eq!(cloud.asked(ACTION).len(), 1);
    }
}

#[tokio::test]
async fn a_limit_on_calls_is_waited_for_if_there_is_time() {
    fn limited() -> Reply {
        Reply::With(429, vec![("retry-after", "0".to_owned())], "slow down".to_owned())
    }
    let cloud = in_turn(ACTION, vec![limited, accepted]).await;
    cloud.session().nova().stop(&server()).await.unwrap();
    assert_eq!(cloud.asked(ACTION).len(), 2);

    fn tomorrow() -> Reply {
        Reply::With(
            429,
            vec![("retry-after", "86400".to_owned())],
            "slow down".to_owned(),
        )
    }
    let cloud = in_turn(ACTION, vec![tomorrow]).await;
    let error = cloud.session().nova().stop(&server()).await.unwrap_err();
    assert_eq!(error.kind(), Kind::RateLimited);
    assert_eq!(error.retry_after(), Some(Duration::from_secs(86400)));
    assert_eq!(cloud.asked(ACTION).len(), 1);
}

#[tokio::test]
async fn silence_ends_at_the_deadline_and_leaves_an_action_open() {
    let cloud = Cloud::start(|seen| match seen.path.as_str() {
        SERVERS | ACTION => Reply::Silence,
        _ => usual(),
    })
    .await;
    let session = cloud.session();
    session
        .nova()
        .within(Duration::from_secs(20))
        .compute_services()
        .await
        .unwrap_err();
    // Long enough for a call to leave a machine that is busy with other things.
    let nova = session.nova().within(Duration::from_secs(2));
    let error = nova.servers(&ServerFilter::everywhere()).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Deadline, "{error}");
    assert!(!error.outcome_unknown());
    let error = nova.stop(&server()).await.unwrap_err();
    assert_eq!(error.kind(), Kind::UnknownOutcome, "{error}");
    assert!(error.outcome_unknown() && !error.is_transient());
    assert_eq!(cloud.asked(ACTION).len(), 1);
}

/// A session whose Nova is at another address.
async fn nova_at(address: std::net::SocketAddr) -> (Cloud, Session) {
    let far = Cloud::start(|_| usual()).await;
    let url = format!("http://{address}/v2.1");
    let config = cloud(
        &far.auth_url(),
        &[
            ("OS_PLACEMENT_ENDPOINT_OVERRIDE", &url),
            ("OS_IMAGE_ENDPOINT_OVERRIDE", &url),
        ],
    );
    let session = Session::new(config, settings()).unwrap();
    (far, session)
}

#[tokio::test]
async fn a_connection_that_breaks_leaves_a_creation_open() {
    let (address, requests) = support::blunt(b"").await;
    let (_far, session) = nova_at(address).await;
    let image = cobaltcore_openstack::glance::NewImage {
        name: "x".to_owned(),
        disk_format: "raw".to_owned(),
        public: false,
    };
    let error = session.glance().create_image(&image).await.unwrap_err();
    assert_eq!(error.kind(), Kind::UnknownOutcome, "{error}");
    assert_eq!(requests.load(Ordering::SeqCst), 1);
    let error = session.glance().images().await.unwrap_err();
    assert_eq!(error.kind(), Kind::Unreachable, "{error}");
    assert_eq!(requests.load(Ordering::SeqCst), 4, "a read is tried three times");
}

#[tokio::test]
async fn nobody_at_home_means_nothing_was_done() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let (_far, session) = nova_at(address).await;
    let image = cobaltcore_openstack::glance::NewImage {
        name: "x".to_owned(),
        disk_format: "raw".to_owned(),
        public: false,
    };
    let error = session.glance().create_image(&image).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Unreachable, "{error}");
    assert!(!error.outcome_unknown());
}

#[tokio::test]
async fn bodies_that_are_not_answers_are_said_to_be_so() {
    let html = || {
        Reply::With(
            200,
            vec![("content-type", "text/html".to_owned())],
            "<html>login</html>".to_owned(),
        )
    };
    let cases: Vec<(Reply, &str)> = vec![
        (html(), "text/html"),
        (Reply::With(200, Vec::new(), String::new()), "EOF"),
        (
            Reply::With(200, Vec::new(), r#"{"servers": [{"id": "#.to_owned()),
            "EOF",
        ),
        (ok(json!({ "server": [] })), "no member servers"),
        (ok(json!({ "servers": {} })), "invalid type"),
        (
            ok(json!({ "servers": [{ "id": 7, "status": "ACTIVE" }] })),
            "invalid type",
        ),
        (ok(json!(["servers"])), "an object"),
    ];
    for (reply, word) in cases {
        let reply = std::sync::Mutex::new(Some(reply));
        let cloud = Cloud::start(move |seen| match seen.path.as_str() {
            SERVERS => reply.lock().unwrap().take().unwrap_or(Reply::Silence),
            _ => usual(),
        })
        .await;
        let error = cloud
            .session()
            .nova()
            .servers(&ServerFilter::everywhere())
            .await
            .unwrap_err();
        assert_eq!(error.kind(), Kind::BadAnswer, "{error}");
        assert!(error.to_string().contains(word), "{error}");
    }
}

#[tokio::test]
async fn json_under_another_name_is_still_json() {
    let cloud = Cloud::start(|seen| match seen.path.as_str() {
        SERVERS => Reply::With(
            200,
            vec![("content-type", "text/plain".to_owned())],
            r#"{"servers": []}"#.to_owned(),
        ),
        _ => usual(),
    })
    .await;
    cloud
        .session()
        .nova()
        .servers(&ServerFilter::everywhere())
        .await
        .unwrap();
}

#[tokio::test]
async fn a_flood_is_not_read_to_its_end() {
    let cloud = Cloud::start(|seen| match seen.path.as_str() {
        SERVERS => ok(json!({ "servers": [], "padding": "x".repeat(300_000) })),
        ACTION => Reply::With(400, Vec::new(), "y".repeat(300_000)),
        _ => usual(),
    })
    .await;
    let session = cloud.session_with(Settings {
        longest_answer: 100_000,
        ..settings()
    });
    let error = session
        .nova()
        .servers(&ServerFilter::everywhere())
        .await
        .unwrap_err();
    assert_eq!(error.kind(), Kind::BadAnswer);
    assert!(error.to_string().contains("longer than 100000 bytes"), "{error}");
    let error = session.nova().stop(&server()).await.unwrap_err();
    assert!(
        error.to_string().len() < 2000,
        "{} bytes of words",
        error.to_string().len()
    );
}

#[tokio::test]
async fn a_body_cut_short_is_no_answer() {
    let (address, requests) = support::blunt(
        b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{\"images\": []}",
    )
    .await;
    let (_far, session) = nova_at(address).await;
    let error = session.glance().images().await.unwrap_err();
    assert_eq!(error.kind(), Kind::Unreachable, "{error}");
    assert_eq!(requests.load(Ordering::SeqCst), 3);
}

fn entry(id: &str) -> Value {
    json!({ "id": id, "name": id, "status": "ACTIVE" })
}

#[tokio::test]
async fn a_list_is_read_page_by_page() {
    let cloud = Cloud::start(|seen| {
        if seen.path != SERVERS {
            return usual();
        }
        assert_eq!(seen.parameter("limit").as_deref(), Some("2"));
        let next = json!([{ "rel": "next", "href": "http://wrong.example/" }]);
        ok(match seen.parameter("marker").as_deref() {
            None => json!({ "servers": [entry("a"), entry("b")], "servers_links": next }),
            // b moved between the pages
            Some("b") => json!({ "servers": [entry("b"), entry("c")], "servers_links": next }),
            Some("c") => json!({ "servers": [entry("d")] }),
            other => panic!("marker {other:?}"),
        })
    })
    .await;
    let session = cloud.session_with(Settings {
        page_size: 2,
        ..settings()
    });
    let filter = ServerFilter::on_host("hv 1&x");
    let servers = session.nova().servers(&filter).await.unwrap();
    let ids: Vec<_> = servers.iter().map(|server| server.id.as_str()).collect();
    assert_eq!(ids, ["a", "b", "c", "d"]);
    let asked: Vec<Seen> = cloud.asked(SERVERS);
    assert!(
        asked
            .iter()
            .all(|seen| seen.parameter("host").as_deref() == Some("hv 1&x"))
    );
}

#[tokio::test]
async fn a_part_of_a_list_is_an_error() {
    let cloud = Cloud::start(|seen| match (seen.path.as_str(), seen.parameter("marker")) {
        (SERVERS, None) => {
            ok(json!({ "servers": [entry("a")], "servers_links": [{ "rel": "next", "href": "" }] }))
        }
        (SERVERS, Some(_)) => refusal(500, "database"),
        _ => usual(),
    })
    .await;
    let error = cloud
        .session()
        .nova()
        .servers(&ServerFilter::everywhere())
        .await
        .unwrap_err();
    assert_eq!(error.kind(), Kind::Overloaded);
}

#[tokio::test]
async fn pages_that_never_end_are_stopped() {
    let cloud = Cloud::start(|seen| match seen.path.as_str() {
        SERVERS => ok(json!({ "servers": [entry("a")], "servers_links": [{ "rel": "next", "href": "" }] })),
        _ => usual(),
    })
    .await;
    let error = cloud
        .session()
        .nova()
        .servers(&ServerFilter::everywhere())
        .await
        .unwrap_err();
    assert_eq!(error.kind(), Kind::BadAnswer);
    assert!(error.to_string().contains("do not end"), "{error}");
    assert_eq!(cloud.asked(SERVERS).len(), 2);
}

#[tokio::test]
async fn microversions_meet_where_both_sides_can() {
    let cloud = Cloud::start(|seen| match seen.path.as_str() {
        ACTION => accepted(),
        _ => usual(),
    })
    .await;
    let nova = cloud.session().nova();
    let two_phase = Evacuation {
        version: Some(Microversion::new(2, 95)),
        ..Evacuation::default()
    };
    nova.evacuate(&server(), &Evacuation::default()).await.unwrap();
    nova.evacuate(&server(), &two_phase).await.unwrap();
    let asked = cloud.asked(ACTION);
    let spoken: Vec<_> = asked
        .iter()
        .map(|seen| seen.header("openstack-api-version"))
        .collect();
    assert_eq!(spoken, ["compute 2.90", "compute 2.93"]);
    let old_name: Vec<_> = asked
        .iter()
        .map(|seen| seen.header("x-openstack-nova-api-version"))
        .collect();
    assert_eq!(old_name, ["2.90", "2.93"]);
    assert_eq!(asked[0].body, json!({ "evacuate": {} }));
}

#[tokio::test]
async fn a_cloud_that_is_too_old_is_refused_before_anything_is_done() {
    let cloud = Cloud::start(|seen| match seen.path.as_str() {
        "/compute/v2.1/" => ok(nova_versions("2.60")),
        "/compute/v2.1/os-services" => ok(json!({ "services": [] })),
        _ => usual(),
    })
    .await;
    let nova = cloud.session().nova();
    nova.compute_services().await.unwrap();
    let error = nova
        .evacuate(&server(), &Evacuation::default())
        .await
        .unwrap_err();
    assert_eq!(error.kind(), Kind::TooOld);
    let text = error.to_string();
    assert!(
        text.contains("2.68") && text.contains("2.60") && text.contains("upgrade nova"),
        "{text}"
    );
    let named = NewServer {
        hostname: Some("h".to_owned()),
        ..NewServer::new("n", "f", "i")
    };
    assert_eq!(nova.create_server(&named).await.unwrap_err().kind(), Kind::TooOld);
    assert!(cloud.asked(ACTION).is_empty() && cloud.asked("/compute/v2.1/servers").is_empty());
}

#[tokio::test]
async fn a_service_is_disabled_and_enabled_in_exactly_these_words() {
    let path = "/compute/v2.1/os-services/s1";
    let cloud = Cloud::start(move |seen| match seen.path.as_str() {
        p if p == path => ok(json!({ "service": {
            "id": "s1", "host": "hv1", "binary": "nova-compute", "state": "up", "status": "disabled", "forced_down": false,
            "updated_at": "2026-11-15T05:37:15.000000", "zone": "z", "disabled_reason": null } })),
        _ => usual(),
    })
    .await;
    let nova = cloud.session().nova();
    let reason = "Hypervisor CRD: spec.maintenance=manual";
    nova.update_service(&"s1".into(), &ServiceUpdate::disable(reason))
        .await
        .unwrap();
    nova.update_service(&"s1".into(), &ServiceUpdate::enable().forced_down(false))
        .await
        .unwrap();
    nova.update_service(&"s1".into(), &ServiceUpdate::mark_forced_down(true))
        .await
        .unwrap();
    let bodies: Vec<_> = cloud.asked(path).into_iter().map(|seen| seen.body).collect();
    let expected = [
        json!({ "status": "disabled", "disabled_reason": reason }),
        json!({ "status": "enabled", "forced_down": false }),
        json!({ "forced_down": true }),
    ];
    assert_eq!(bodies, expected);
}

#[tokio::test]
async fn a_provider_that_changed_meanwhile_is_read_again() {
    let path = "/placement/resource_providers/p/traits";
    let generation = Arc::new(AtomicU64::new(5));
    let current = Arc::clone(&generation);
    let cloud = Cloud::start(move |seen| {
        if seen.path != path {
            return usual();
        }
        let now = current.load(Ordering::SeqCst);
        if seen.method == "GET" {
            return ok(json!({ "traits": ["CUSTOM_FOREIGN"], "resource_provider_generation": now }));
        }
        if now < 7 {
            // somebody else was faster, twice
            current.fetch_add(1, Ordering::SeqCst);
            let error = json!({ "errors": [{ "status": 409, "detail": "generation", "code": "placement.concurrent_update" }] });
            return Reply::Json(409, error);
        }
        assert_eq!(seen.body["resource_provider_generation"], now);
        ok(json!({ "traits": seen.body["traits"], "resource_provider_generation": now + 1 }))
    })
    .await;
    let placement = cloud.session().placement();
    let id: ProviderId = "p".into();
    let add = |traits: &BTreeSet<String>| traits.iter().cloned().chain(["CUSTOM_OURS".to_owned()]).collect();
    let traits = placement.update_provider_traits(&id, add).await.unwrap();
    assert_eq!(traits.generation, 8);
    assert_eq!(
        traits.traits.iter().collect::<Vec<_>>(),
        ["CUSTOM_FOREIGN", "CUSTOM_OURS"]
    );
    generation.store(0, Ordering::SeqCst);
    let error = placement.update_provider_traits(&id, add).await.unwrap_err();
    assert_eq!(error.kind(), Kind::GenerationConflict);
    assert_eq!(
        error.refusal().and_then(|refusal| refusal.code.as_deref()),
        Some("placement.concurrent_update")
    );
    let puts = cloud
        .asked(path)
        .iter()
        .filter(|seen| seen.method == "PUT")
        .count();
    assert_eq!(puts, 3 + 4, "four rounds, then it is said");
    // nothing to change, nothing written
    placement
        .update_provider_traits(&id, BTreeSet::clone)
        .await
        .unwrap();
    assert_eq!(
        cloud
            .asked(path)
            .iter()
            .filter(|seen| seen.method == "PUT")
            .count(),
        puts
    );
}

#[tokio::test]
async fn a_cell_that_does_not_answer_is_no_dead_host() {
    let cloud = Cloud::start(|seen| match seen.path.as_str() {
        "/compute/v2.1/os-services" => ok(json!({ "services": [
            { "binary": "nova-compute", "host": "hv9", "status": "UNKNOWN" },
        ] })),
        _ => usual(),
    })
    .await;
    let nova = cloud.session().nova();
    let service = nova.compute_service("hv9").await.unwrap().unwrap();
    assert_eq!(
        (service.state, service.status),
        (ServiceState::Unknown, ServiceStatus::Unknown)
    );
    // without an id nothing is sent: the path would mean the whole list
    let error = nova.delete_service(&service.id).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Nameless, "{error}");
    assert!(cloud.asked("/compute/v2.1/os-services/").is_empty());
}
