// SPDX-License-Identifier: Apache-2.0
//! Pages, rights and actions over plain HTTP.

use futures::StreamExt as _;
use reqwest::{Client, StatusCode, redirect};
use serde_json::json;

use crate::world::{CODE, World, active, eventually, token};

/// Somebody with a browser that keeps cookies and does not follow redirects by itself.
pub(crate) struct Person {
    http: Client,
    base: String,
}

impl Person {
    pub(crate) async fn signed_in(world: &World, secret: &str) -> Self {
        let person = Self::at(world);
        let answer = person
            .post("/sign-in", &[("token", secret), ("next", "/hypervisors")])
            .await;
        assert_eq!(answer.status(), StatusCode::SEE_OTHER);
        assert_eq!(answer.headers()["location"], "/hypervisors");
        person
    }

    pub(crate) fn at(world: &World) -> Self {
        let http = Client::builder()
            .cookie_store(true)
            .redirect(redirect::Policy::none())
            .build()
            .unwrap();
        Self {
            http,
            base: world.console.url(),
        }
    }

    pub(crate) async fn get(&self, path: &str) -> (StatusCode, String) {
        let answer = self
            .http
            .get(format!("{}{path}", self.base))
            .send()
            .await
            .unwrap();
        (answer.status(), answer.text().await.unwrap())
    }

    pub(crate) async fn post(&self, path: &str, form: &[(&str, &str)]) -> reqwest::Response {
        self.http
            .post(format!("{}{path}", self.base))
            .form(form)
            .send()
            .await
            .unwrap()
    }

    /// The token that forms of this session must carry.
    pub(crate) async fn csrf(&self) -> String {
        let (_, page) = self.get("/").await;
        let (_, rest) = page.split_once("name=\"csrf\" value=\"").unwrap();
        rest.split_once('"').unwrap().0.to_owned()
    }

    pub(crate) async fn sees(&self, path: &str, text: &str) -> String {
        eventually(&format!("{text} on {path}"), async || {
            let (_, page) = self.get(path).await;
            page.contains(text).then_some(page)
        })
        .await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_sees_anything_before_signing_in() {
    let world = World::start().await;
    let person = Person::at(&world);
    for path in ["/", "/hypervisors?q=a", "/evictions", "/live?page=/"] {
        let answer = person
            .http
            .get(format!("{}{path}", person.base))
            .send()
            .await
            .unwrap();
        assert_eq!(answer.status(), StatusCode::SEE_OTHER, "{path}");
        let to = answer.headers()["location"].to_str().unwrap();
        assert!(to.starts_with("/sign-in?next=/"), "{to}");
    }
    let answer = person.post("/sign-in", &[("token", "not-a-token")]).await;
    assert_eq!(answer.status(), StatusCode::UNAUTHORIZED);
    let page = answer.text().await.unwrap();
    assert!(page.contains("Kubernetes does not know this token"), "{page}");
    let (status, page) = person.get("/sign-in").await;
    assert_eq!(status, StatusCode::OK);
    assert!(page.contains("bearer token"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sign_in_never_leads_to_somebody_elses_address() {
    let world = World::start().await;
    for next in ["//evil.example/", "https://evil.example/", "/\\evil.example", ""] {
        let answer = Person::at(&world)
            .post("/sign-in", &[("token", CODE), ("next", next)])
            .await;
        assert_eq!(answer.headers()["location"], "/", "{next}");
        let cookie = answer.headers()["set-cookie"].to_str().unwrap();
        assert!(
            cookie.contains("HttpOnly") && cookie.contains("SameSite=Strict"),
            "{cookie}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_page_shows_the_fleet_and_asks_nobody_else() {
    let world = World::start().await;
    world.host("node1", "zone-a", active(3, "96Gi")).await;
    world
        .host("node2", "zone-b", json!({"phase": "Maintenance"}))
        .await;
    let person = Person::signed_in(&world, CODE).await;
    let page = person
        .sees("/", "class=\"tile off fill-0\" id=\"tile-node2\"")
        .await;
    assert!(
        page.contains("class=\"tile good fill-3\" id=\"tile-node1\""),
        "{page}"
    );
    assert!(
        person
            .sees("/hypervisors?phase=Active", "1 of 2")
            .await
            .contains("Garden Linux 1877.5")
    );
    let page = person.sees("/hypervisors/node1", "What happens next").await;
    assert!(
        page.contains("Nothing: it carries guests and takes new ones."),
        "{page}"
    );
    person.sees("/capacity", "zone-b").await;
    person.sees("/evictions", "No eviction is known").await;
    person.sees("/migrations", "No migration was seen").await;
    person.sees("/activity", "Nothing was reported lately").await;
    assert_eq!(person.get("/hypervisors/node3").await.0, StatusCode::NOT_FOUND);
    assert_eq!(person.get("/nowhere").await.0, StatusCode::NOT_FOUND);

    let answer = person.http.get(format!("{}/", person.base)).send().await.unwrap();
    let policy = answer.headers()["content-security-policy"]
        .to_str()
        .unwrap()
        .to_owned();
    assert!(
        policy.contains("default-src 'none'") && policy.contains("frame-ancestors 'none'"),
        "{policy}"
    );
    assert_eq!(answer.headers()["cache-control"], "no-store");
    let page = answer.text().await.unwrap();
    assert!(
        !page.contains("http://") && !page.contains("https://"),
        "a page refers to itself only"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn hostile_names_are_text() {
    let world = World::start().await;
    world
        .host("node1", "zone-a", json!({"phase": "Active", "instances": [{"id": "<script>alert(1)</script>", "name": "\"><img src=x>", "active": true}]}))
        .await;
    let person = Person::signed_in(&world, CODE).await;
    let page = person.sees("/hypervisors/node1", "alert(1)").await;
    assert!(
        !page.contains("<script>alert") && !page.contains("<img src=x"),
        "{page}"
    );
    let (_, page) = person.get("/hypervisors?q=%3Cscript%3E%22").await;
    assert!(!page.contains("value=\"<script>"), "{page}");
}

#[tokio::test(flavor = "multi_thread")]
async fn people_see_and_do_only_what_their_roles_allow() {
    let world = World::start().await;
    world.host("node1", "zone-a", active(1, "1Gi")).await;
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "looks"},
        "rules": [{"apiGroups": ["kvm.cloud.sap"], "resources": ["hypervisors"], "verbs": ["get", "list"]}],
    });
    let made = world
        .server
        .admin()
        .post("/apis/rbac.authorization.k8s.io/v1/clusterroles", &role)
        .await;
    assert!(made.code < 300);
    let reader = token(&world.server, "reader", Some("looks")).await;
    let nobody = token(&world.server, "nobody", None).await;

    let nobody = Person::signed_in(&world, &nobody).await;
    let (status, page) = nobody.get("/").await;
    assert_eq!(status, StatusCode::FORBIDDEN);
    assert!(
        page.contains("system:serviceaccount:default:nobody may not"),
        "{page}"
    );
    assert!(!page.contains("node1"));
    assert_eq!(nobody.get("/live?page=/").await.0, StatusCode::FORBIDDEN);

    let reader = Person::signed_in(&world, &reader).await;
    reader.sees("/", "tile-node1").await;
    // The page of a host shows what may be seen and offers nothing that would be refused.
    let page = reader.sees("/hypervisors/node1", "What happens next").await;
    for hidden in [
        "/hypervisors/node1/evict",
        "/hypervisors/node1/maintenance/enter",
        "aria-label=\"Activity\"",
        "<h2>Migrations</h2>",
    ] {
        assert!(!page.contains(hidden), "{hidden}: {page}");
    }
    assert_eq!(reader.get("/activity").await.0, StatusCode::FORBIDDEN);
    assert_eq!(
        reader.get("/hypervisors/node1/evict").await.0,
        StatusCode::FORBIDDEN
    );
    // Even a form that is right in all other ways is decided by Kubernetes.
    let csrf = reader.csrf().await;
    let answer = reader
        .post(
            "/hypervisors/node1/maintenance/enter",
            &[("csrf", &csrf), ("reason", "no")],
        )
        .await;
    assert_eq!(answer.status(), StatusCode::FORBIDDEN);
    let host = world.get("/apis/kvm.cloud.sap/v1/hypervisors/node1").await;
    assert_eq!(host["spec"].get("maintenance"), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_form_from_elsewhere_does_nothing() {
    let world = World::start().await;
    world.host("node1", "zone-a", active(1, "1Gi")).await;
    let person = Person::signed_in(&world, CODE).await;
    for csrf in ["", "wrong"] {
        let answer = person
            .post("/hypervisors/node1/evict", &[("csrf", csrf), ("reason", "x")])
            .await;
        assert_eq!(answer.status(), StatusCode::FORBIDDEN);
    }
    let evictions = world.get("/apis/kvm.cloud.sap/v1/evictions").await;
    assert_eq!(evictions["items"].as_array().unwrap().len(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn maintenance_and_eviction_are_asked_for_under_the_persons_name() {
    let world = World::start().await;
    world.host("node1", "zone-a", active(1, "1Gi")).await;
    let person = Person::signed_in(&world, CODE).await;
    person
        .sees("/hypervisors/node1/maintenance/enter", "Start maintenance")
        .await;
    let csrf = person.csrf().await;

    let answer = person
        .post(
            "/hypervisors/node1/maintenance/enter",
            &[("csrf", &csrf), ("reason", "  ")],
        )
        .await;
    assert_eq!(
        answer.status(),
        StatusCode::UNPROCESSABLE_ENTITY,
        "a reason is needed"
    );
    let answer = person
        .post(
            "/hypervisors/node1/maintenance/enter",
            &[("csrf", &csrf), ("reason", "new fans")],
        )
        .await;
    assert_eq!(answer.headers()["location"], "/hypervisors/node1");
    let host = world.get("/apis/kvm.cloud.sap/v1/hypervisors/node1").await;
    assert_eq!(
        (&host["spec"]["maintenance"], &host["spec"]["maintenanceReason"]),
        (&json!("manual"), &json!("new fans"))
    );

    person.sees("/hypervisors/node1", "End maintenance").await;
    person
        .post("/hypervisors/node1/maintenance/leave", &[("csrf", &csrf)])
        .await;
    let host = world.get("/apis/kvm.cloud.sap/v1/hypervisors/node1").await;
    assert_eq!(host["spec"].get("maintenance"), None);

    person
        .post("/hypervisors/node1/evict", &[("csrf", &csrf), ("reason", "disk")])
        .await;
    let evictions = world.get("/apis/kvm.cloud.sap/v1/evictions").await;
    let eviction = &evictions["items"][0];
    assert_eq!(
        (&eviction["spec"]["hypervisor"], &eviction["spec"]["reason"]),
        (&json!("node1"), &json!("disk"))
    );
    let name = eviction["metadata"]["name"].as_str().unwrap();
    person.sees("/evictions", name).await;
    person
        .sees(&format!("/evictions/{name}/cancel"), "Take back")
        .await;
    person
        .post(&format!("/evictions/{name}/cancel"), &[("csrf", &csrf)])
        .await;
    person.sees("/evictions", "No eviction is known").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn signing_out_ends_the_session_on_the_server() {
    let world = World::start().await;
    let person = Person::signed_in(&world, CODE).await;
    let cookie = {
        let answer = Person::at(&world).post("/sign-in", &[("token", CODE)]).await;
        answer.headers()["set-cookie"]
            .to_str()
            .unwrap()
            .split(';')
            .next()
            .unwrap()
            .to_owned()
    };
    let stolen = Client::builder()
        .redirect(redirect::Policy::none())
        .build()
        .unwrap();
    let with_cookie = async || {
        let request = stolen.get(format!("{}/", person.base)).header("cookie", &cookie);
        let answer = request.send().await.unwrap();
        (answer.status(), answer.text().await.unwrap())
    };
    let (status, page) = with_cookie().await;
    assert_eq!(status, StatusCode::OK);
    let csrf = page
        .split_once("name=\"csrf\" value=\"")
        .unwrap()
        .1
        .split_once('"')
        .unwrap()
        .0
        .to_owned();
    let out = stolen
        .post(format!("{}/sign-out", person.base))
        .header("cookie", &cookie)
        .form(&[("csrf", &csrf)]);
    assert_eq!(out.send().await.unwrap().status(), StatusCode::SEE_OTHER);
    assert_eq!(with_cookie().await.0, StatusCode::SEE_OTHER);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_changed_host_reaches_the_screen_as_one_tile() {
    let world = World::start().await;
    for name in ["node1", "node2", "node3"] {
        world.host(name, "zone-a", active(1, "1Gi")).await;
    }
    let person = Person::signed_in(&world, CODE).await;
    for name in ["node1", "node2", "node3"] {
        // With its status: a tile that changes later would be news.
        person.sees("/", &format!("title=\"{name}: Active, ")).await;
    }
    let answer = person
        .http
        .get(format!("{}/live?page=/", person.base))
        .send()
        .await
        .unwrap();
    assert_eq!(answer.headers()["content-type"], "text/event-stream");
    let mut news = answer.bytes_stream();
    let mut heard = String::new();
    let mut until = async |text: &str| {
        while !heard.contains(text) {
            let more = news.next().await.unwrap().unwrap();
            heard.push_str(&String::from_utf8_lossy(&more));
        }
        std::mem::take(&mut heard)
    };
    until("\n\n").await;
    world.status("node2", json!({"phase": "Evicting"})).await;
    let piece = until("Evicting").await;
    assert!(piece.contains("\"id\":\"tile-node2\""), "{piece}");
    assert!(
        !piece.contains("tile-node1") && !piece.contains("tile-node3"),
        "{piece}"
    );
    world.host("node4", "zone-a", active(1, "1Gi")).await;
    let piece = until("tile-node4").await;
    assert!(
        piece.contains("\"id\":\"content\""),
        "a new host changes the arrangement: {piece}"
    );
}
