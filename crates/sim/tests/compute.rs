// SPDX-License-Identifier: Apache-2.0
//! Nova over plain HTTP: services, hypervisors, aggregates, servers and their moves, with the answers the real one gives.
#![allow(clippy::unwrap_used)]

mod support;

use cobaltcore_sim::cloud::Service;
use cobaltcore_sim::world::{ApiEffect, ApiFault, MigrationFault, MigrationTrouble, World};
use serde_json::{Value, json};
use support::{Api, http, password};

const ONE: &str = "node001-bb1";
const TWO: &str = "node002-bb1";

fn two_hosts() -> cobaltcore_sim::world::Builder {
    World::builder().hosts(2).vms_per_host(1).seed(7).manual_clock()
}

#[tokio::test]
async fn a_token_needs_the_right_password_and_opens_the_catalogue() {
    let mut api = Api::of(two_hosts()).await;
    let token = api.sign_in("admin", "test", "cc3test").await;
    assert_eq!(token["token"]["project"]["name"], "test");
    let types: Vec<&str> = token["token"]["catalog"]
        .as_array()
        .unwrap()
        .iter()
        .map(|s| s["type"].as_str().unwrap())
        .collect();
    for wanted in ["identity", "compute", "placement", "image", "network"] {
        assert!(types.contains(&wanted), "{types:?}");
    }
    let mut wrong = password("admin", "admin", "Default");
    wrong["auth"]["identity"]["password"]["user"]["password"] = "guess".into();
    let url = format!("{}/auth/tokens", api.cloud.auth_url());
    let answer = http().post(url).json(&wrong).send().await.unwrap();
    assert_eq!(answer.status(), 401);
    let body: Value = answer.json().await.unwrap();
    assert_eq!(
        body["error"]["message"],
        "The request you have made requires authentication."
    );
}

#[tokio::test]
async fn an_expired_token_is_refused_by_every_service() {
    let api = Api::of(two_hosts()).await;
    api.get("/servers").await;
    api.cloud.expire_tokens();
    for service in [
        Service::Compute,
        Service::Placement,
        Service::Image,
        Service::Network,
        Service::Volume,
    ] {
        let path = if service == Service::Placement {
            "/traits"
        } else {
            "/anything"
        };
        let got = api.call(service, "GET", path, None).await;
        assert_eq!(got.status, 401, "{service}");
        assert!(
            got.headers["www-authenticate"]
                .to_str()
                .unwrap()
                .starts_with("Keystone uri=")
        );
    }
}

#[tokio::test]
async fn microversions_are_negotiated_in_both_headers() {
    let mut api = Api::of(two_hosts().settings(|settings| settings.nova_max = 93)).await;
    let got = api.nova("GET", "/servers", None).await;
    assert_eq!(got.headers["openstack-api-version"], "compute 2.90");
    assert_eq!(got.headers["x-openstack-nova-api-version"], "2.90");
    assert!(
        got.headers["x-openstack-request-id"]
            .to_str()
            .unwrap()
            .starts_with("req-")
    );
    api.nova = 94;
    let got = api.nova("GET", "/servers", None).await;
    assert_eq!(got.status, 406);
    assert_eq!(
        got.body["computeFault"]["message"],
        "Version 2.94 is not supported by the API. Minimum is 2.1 and maximum is 2.93."
    );
}

#[tokio::test]
async fn a_disabled_service_says_why_and_marks_its_provider() {
    let api = Api::of(two_hosts()).await;
    let id = api.service(ONE).await["id"].as_str().unwrap().to_owned();
    let path = format!("/os-services/{id}");
    let body = json!({"status": "disabled", "disabled_reason": "Hypervisor CRD: spec.maintenance=manual"});
    let shown = api.nova("PUT", &path, Some(body)).await.expect(200);
    assert_eq!(shown["service"]["status"], "disabled");
    assert_eq!(shown["service"]["state"], "up");
    let node = api.world().read(|state| state.hosts[ONE].node_uuid);
    let traits = api
        .placement("GET", &format!("/resource_providers/{node}/traits"), None)
        .await
        .expect(200);
    assert!(
        traits["traits"]
            .as_array()
            .unwrap()
            .contains(&"COMPUTE_STATUS_DISABLED".into())
    );
    let body = json!({"status": "enabled", "forced_down": false});
    let shown = api.nova("PUT", &path, Some(body)).await.expect(200);
    assert_eq!(shown["service"]["disabled_reason"], Value::Null);
    let refused = api.nova("PUT", &path, Some(json!({}))).await;
    assert_eq!(
        (refused.status, refused.message()),
        (
            400,
            "No updates were requested. Fields 'status' or 'forced_down' should be specified."
        )
    );
    let refused = api
        .nova(
            "PUT",
            &path,
            Some(json!({"status": "enabled", "disabled_reason": "x"})),
        )
        .await;
    assert_eq!(
        refused.message(),
        "Specifying 'disabled_reason' with status 'enabled' is invalid."
    );
}

#[tokio::test]
async fn a_service_with_servers_cannot_be_deleted_and_an_empty_one_takes_its_provider_along() {
    let api = Api::of(two_hosts()).await;
    let id = api.service(ONE).await["id"].as_str().unwrap().to_owned();
    let refused = api.nova("DELETE", &format!("/os-services/{id}"), None).await;
    assert_eq!(
        (refused.status, refused.message()),
        (
            409,
            "Unable to delete compute service that is hosting instances. Migrate or delete the instances first."
        )
    );
    let server = api.on(ONE).await.remove(0);
    api.nova("DELETE", &format!("/servers/{server}"), None)
        .await
        .expect(204);
    api.step(5);
    api.nova("DELETE", &format!("/os-services/{id}"), None)
        .await
        .expect(204);
    let node = api.world().read(|state| state.hosts[ONE].node_uuid);
    api.placement("GET", &format!("/resource_providers/{node}"), None)
        .await
        .expect(404);
    api.nova(
        "GET",
        "/os-hypervisors/detail?hypervisor_hostname_pattern=node001",
        None,
    )
    .await
    .expect(404);
    let aggregates = api.get("/os-aggregates").await;
    assert!(!aggregates.to_string().contains(ONE));
    let gone = api.nova("DELETE", &format!("/os-services/{id}"), None).await;
    assert_eq!(gone.message(), format!("Service {id} not found."));
}

#[tokio::test]
async fn hypervisors_are_found_by_a_piece_of_their_name() {
    let mut api = Api::of(two_hosts().domain(".example.org")).await;
    let found = api
        .get("/os-hypervisors/detail?hypervisor_hostname_pattern=node001&with_servers=true")
        .await;
    let first = &found["hypervisors"][0];
    assert_eq!(first["hypervisor_hostname"], "node001-bb1.example.org");
    assert_eq!(first["service"]["host"], ONE);
    assert_eq!(first["servers"].as_array().unwrap().len(), 1);
    assert!(first.get("running_vms").is_none(), "usage is gone since 2.88");
    let missing = api
        .nova(
            "GET",
            "/os-hypervisors/detail?hypervisor_hostname_pattern=other",
            None,
        )
        .await;
    assert_eq!(
        (missing.status, missing.message()),
        (404, "No hypervisor matching 'other' could be found.")
    );
    api.nova = 87;
    let found = api.get("/os-hypervisors/detail").await;
    assert_eq!(found["hypervisors"][0]["running_vms"], 1);
}

#[tokio::test]
async fn aggregates_refuse_what_nova_refuses() {
    let api = Api::of(World::builder().hosts(1).zones(["az-1", "az-2"]).manual_clock()).await;
    let all = api.get("/os-aggregates").await;
    let id = |name: &str| {
        let found = all["aggregates"]
            .as_array()
            .unwrap()
            .iter()
            .find(|a| a["name"] == name);
        found.unwrap()["id"].as_u64().unwrap()
    };
    let act = |id: u64, body: Value| api_act(&api, id, body);
    let again = act(id("az-1"), json!({"add_host": {"host": ONE}})).await;
    assert_eq!(
        (again.status, again.message().to_owned()),
        (409, format!("Aggregate {} already has host {ONE}.", id("az-1")))
    );
    let other = act(id("az-2"), json!({"add_host": {"host": ONE}})).await;
    assert_eq!(other.status, 409);
    assert!(
        other
            .message()
            .contains("One or more hosts already in availability zone(s) ['az-1']"),
        "{}",
        other.text
    );
    act(id("tenant_filter_tests"), json!({"add_host": {"host": ONE}}))
        .await
        .expect(200);
    let shown = act(id("az-1"), json!({"remove_host": {"host": ONE}}))
        .await
        .expect(200);
    assert_eq!(shown["aggregate"]["hosts"], json!([]));
    let gone = act(id("az-1"), json!({"remove_host": {"host": ONE}})).await;
    assert_eq!(
        (gone.status, gone.message().to_owned()),
        (
            404,
            format!("Cannot remove host {ONE} in aggregate {}", id("az-1"))
        )
    );
    let unknown = act(id("az-1"), json!({"add_host": {"host": "nobody"}})).await;
    assert_eq!(
        (unknown.status, unknown.message()),
        (404, "Compute host nobody could not be found.")
    );
}

async fn api_act(api: &Api, id: u64, body: Value) -> support::Got {
    api.nova("POST", &format!("/os-aggregates/{id}/action"), Some(body))
        .await
}

fn live() -> Value {
    json!({"os-migrateLive": {"host": null, "block_migration": false}})
}

#[tokio::test]
async fn a_live_migration_goes_through_its_states_and_ends_elsewhere() {
    let api = Api::of(two_hosts()).await;
    let id = api.on(ONE).await.remove(0);
    let accepted = api.act(&id, live()).await;
    assert_eq!((accepted.status, accepted.text.as_str()), (202, ""));
    let server = api.server(&id).await;
    assert_eq!(
        (
            server["status"].as_str(),
            server["OS-EXT-STS:task_state"].as_str()
        ),
        (Some("MIGRATING"), Some("migrating"))
    );
    let again = api.act(&id, live()).await;
    assert_eq!(
        (again.status, again.message().to_owned()),
        (
            409,
            format!("Cannot 'os-migrateLive' instance {id} while it is in task_state migrating")
        )
    );
    let mut seen = Vec::new();
    for _ in 0..400 {
        api.world().step(std::time::Duration::from_millis(20));
        let all = api.get(&format!("/os-migrations?instance_uuid={id}")).await;
        let status = all["migrations"][0]["status"].as_str().unwrap().to_owned();
        if seen.last() != Some(&status) {
            seen.push(status);
        }
        if seen.last().unwrap() == "completed" {
            break;
        }
    }
    assert_eq!(
        seen,
        ["accepted", "preparing", "running", "post-migrating", "completed"]
    );
    let server = api.server(&id).await;
    assert_eq!(server["OS-EXT-SRV-ATTR:host"], TWO);
    assert_eq!(server["status"], "ACTIVE");
    let node = api.world().read(|state| state.hosts[ONE].node_uuid);
    let held = api
        .placement("GET", &format!("/resource_providers/{node}/allocations"), None)
        .await
        .expect(200);
    assert_eq!(held["allocations"], json!({}));
    assert!(api.world().running_twice().is_empty());
}

#[tokio::test]
async fn further_live_migrations_of_a_host_are_queued_and_can_be_aborted() {
    let api = Api::of(World::builder().hosts(2).vms_per_host(2).manual_clock()).await;
    for id in api.on(ONE).await {
        api.act(&id, live()).await.expect(202);
    }
    api.step(2);
    let all = api.get(&format!("/os-migrations?host={ONE}")).await;
    let mut states: Vec<&str> = all["migrations"]
        .as_array()
        .unwrap()
        .iter()
        .map(|m| m["status"].as_str().unwrap())
        .collect();
    states.sort_unstable();
    assert_eq!(states, ["preparing", "queued"]);
    let queued = all["migrations"]
        .as_array()
        .unwrap()
        .iter()
        .find(|m| m["status"] == "queued")
        .unwrap();
    let (server, number) = (queued["instance_uuid"].as_str().unwrap(), &queued["id"]);
    api.nova("DELETE", &format!("/servers/{server}/migrations/{number}"), None)
        .await
        .expect(202);
    api.step(60);
    assert_eq!(api.on(ONE).await, [server]);
    let all = api.get(&format!("/os-migrations?instance_uuid={server}")).await;
    assert_eq!(all["migrations"][0]["status"], "cancelled");
    assert_eq!(api.server(server).await["OS-EXT-STS:task_state"], Value::Null);
    let late = api
        .nova("DELETE", &format!("/servers/{server}/migrations/{number}"), None)
        .await;
    assert_eq!(late.status, 409, "{}", late.text);
}

#[tokio::test]
async fn a_failed_live_migration_leaves_the_server_where_it_was() {
    let api = Api::of(two_hosts()).await;
    let id = api.on(ONE).await.remove(0);
    for (trouble, end) in [
        (MigrationTrouble::NoValidHost, "error"),
        (MigrationTrouble::PreCheck, "error"),
        (MigrationTrouble::Fails, "failed"),
    ] {
        api.world().break_migrations(MigrationFault {
            server: None,
            source: None,
            trouble,
            times: Some(1),
        });
        api.act(&id, live()).await.expect(202);
        api.step(60);
        let all = api.get(&format!("/os-migrations?instance_uuid={id}")).await;
        assert_eq!(all["migrations"][0]["status"], end, "{trouble:?}");
        let server = api.server(&id).await;
        assert_eq!(
            (server["status"].as_str(), server["OS-EXT-SRV-ATTR:host"].as_str()),
            (Some("ACTIVE"), Some(ONE))
        );
        let node = api.world().read(|state| state.hosts[TWO].node_uuid);
        let held = api
            .placement("GET", &format!("/resource_providers/{node}/allocations"), None)
            .await
            .expect(200);
        assert!(held["allocations"].get(&id).is_none(), "{trouble:?}");
    }
}

#[tokio::test]
async fn states_that_cannot_be_moved_are_refused_in_novas_words() {
    let api = Api::of(two_hosts()).await;
    let id = api.on(ONE).await.remove(0);
    for (action, ends, live_allowed, cold_allowed) in [
        (json!({"pause": null}), "PAUSED", true, false),
        (json!({"unpause": null}), "ACTIVE", true, true),
        (json!({"suspend": null}), "SUSPENDED", false, false),
        (json!({"resume": null}), "ACTIVE", true, true),
        (json!({"os-stop": null}), "SHUTOFF", false, true),
        (
            json!({"os-resetState": {"state": "error"}}),
            "ERROR",
            false,
            false,
        ),
    ] {
        api.act(&id, action).await.expect(202);
        api.step(10);
        let server = api.server(&id).await;
        assert_eq!(server["status"], ends);
        let vm = server["OS-EXT-STS:vm_state"].as_str().unwrap().to_owned();
        if !live_allowed {
            let got = api.act(&id, live()).await;
            assert_eq!(
                (got.status, got.message().to_owned()),
                (
                    409,
                    format!("Cannot 'os-migrateLive' instance {id} while it is in vm_state {vm}")
                )
            );
        }
        if !cold_allowed {
            let got = api.act(&id, json!({"migrate": null})).await;
            assert_eq!(
                (got.status, got.message().to_owned()),
                (
                    409,
                    format!("Cannot 'migrate' instance {id} while it is in vm_state {vm}")
                )
            );
        }
    }
}

#[tokio::test]
async fn a_stopped_server_moves_cold_and_waits_to_be_confirmed() {
    let api = Api::of(two_hosts()).await;
    let id = api.on(ONE).await.remove(0);
    api.act(&id, json!({"os-stop": null})).await.expect(202);
    api.step(10);
    api.act(&id, json!({"migrate": null})).await.expect(202);
    assert_eq!(api.server(&id).await["status"], "RESIZE");
    api.step(30);
    let server = api.server(&id).await;
    assert_eq!(
        (server["status"].as_str(), server["OS-EXT-SRV-ATTR:host"].as_str()),
        (Some("VERIFY_RESIZE"), Some(TWO))
    );
    api.act(&id, json!({"confirmResize": null})).await.expect(204);
    api.step(30);
    assert_eq!(api.server(&id).await["status"], "SHUTOFF");
    assert!(api.on(ONE).await.is_empty());
}

#[tokio::test]
async fn only_a_dead_host_is_evacuated() {
    let api = Api::of(two_hosts()).await;
    let id = api.on(ONE).await.remove(0);
    let refused = api.act(&id, json!({"evacuate": {}})).await;
    assert_eq!(
        (refused.status, refused.message()),
        (400, "Compute service of node001-bb1 is still in use.")
    );
    api.world().power_off(ONE).unwrap();
    let refused = api.act(&id, json!({"evacuate": {}})).await;
    assert_eq!(refused.status, 400, "Nova does not know yet");
    let service = api.service(ONE).await["id"].as_str().unwrap().to_owned();
    let path = format!("/os-services/{service}");
    api.nova("PUT", &path, Some(json!({"forced_down": true})))
        .await
        .expect(200);
    let accepted = api.act(&id, json!({"evacuate": {}})).await;
    assert_eq!((accepted.status, accepted.text.as_str()), (200, ""));
    assert_eq!(api.server(&id).await["status"], "REBUILD");
    api.step(20);
    let server = api.server(&id).await;
    assert_eq!(
        (server["status"].as_str(), server["OS-EXT-SRV-ATTR:host"].as_str()),
        (Some("ACTIVE"), Some(TWO))
    );
    let all = api
        .get(&format!(
            "/os-migrations?source_compute={ONE}&migration_type=evacuation"
        ))
        .await;
    assert_eq!(all["migrations"][0]["status"], "done");
    let refused = api.nova("PUT", &path, Some(json!({"forced_down": false}))).await;
    assert_eq!(refused.status, 400);
    assert!(
        refused
            .message()
            .starts_with("Unable to force up host node001-bb1 as `done` evacuation"),
        "{}",
        refused.text
    );
    api.world().power_on(ONE).unwrap();
    api.step(120);
    api.nova("PUT", &path, Some(json!({"forced_down": false})))
        .await
        .expect(200);
    let all = api
        .get(&format!(
            "/os-migrations?source_compute={ONE}&migration_type=evacuation"
        ))
        .await;
    assert_eq!(all["migrations"][0]["status"], "completed");
    assert!(api.world().running_twice().is_empty());
}

#[tokio::test]
async fn what_nova_never_evacuates_or_not_at_this_microversion_it_refuses_in_its_own_words() {
    let mut api = Api::of(two_hosts()).await;
    let id = api.on(ONE).await.remove(0);
    api.world().change(|state| {
        for host in state.hosts.values_mut() {
            host.service.as_mut().unwrap().forced_down = true;
        }
        state.servers.get_mut(&id.parse().unwrap()).unwrap().share = true;
    });
    api.nova = 95;
    let refused = api.act(&id, json!({"evacuate": {}})).await;
    assert_eq!(
        (refused.status, refused.message()),
        (400, "{'currently': 0, 'expected': 62}")
    );
    api.nova = 94;
    let refused = api.act(&id, json!({"evacuate": {}})).await;
    assert_eq!(
        (refused.status, refused.message()),
        (409, "Feature not supported with instances that have shares.")
    );
}

#[tokio::test]
async fn a_gateway_answers_with_a_page_and_without_a_request_id() {
    let api = Api::of(two_hosts()).await;
    api.world()
        .break_api(ApiFault::all(ApiEffect::Gateway(404)).service("compute"));
    let answer = api.nova("GET", "/servers", None).await;
    assert_eq!(answer.status, 404);
    assert!(answer.headers.get("x-openstack-request-id").is_none());
    assert!(answer.text.starts_with("<html>"), "{}", answer.text);
}

#[tokio::test]
async fn evacuating_a_host_that_is_only_cut_off_runs_a_guest_twice() {
    let api = Api::of(two_hosts()).await;
    let id = api.on(ONE).await.remove(0);
    api.world().cut(ONE).unwrap();
    api.step(61);
    assert_eq!(api.service(ONE).await["state"], "down");
    api.act(&id, json!({"evacuate": {}})).await.expect(200);
    api.step(20);
    let twice = api.world().running_twice();
    assert_eq!(twice.len(), 1);
    assert_eq!(twice[0].0.to_string(), id);
}

#[tokio::test]
async fn a_server_boots_on_the_host_it_was_asked_for_and_says_its_name() {
    let mut api = Api::of(two_hosts()).await;
    api.nova = 95;
    api.sign_in("admin", "test", "cc3test").await;
    let images = api
        .call(Service::Image, "GET", "/images?name=cirros-kvm", None)
        .await
        .expect(200);
    let networks = api
        .call(Service::Network, "GET", "/networks?shared=false", None)
        .await
        .expect(200);
    let body = json!({"server": {
        "name": "ohooc--node001-bb1-6c1f", "imageRef": "", "flavorRef": "1", "availability_zone": "qa-de-1a:node001-bb1",
        "networks": [{"uuid": networks["networks"][0]["id"]}],
        "block_device_mapping_v2": [{"boot_index": 0, "uuid": images["images"][0]["id"], "source_type": "image",
            "destination_type": "volume", "volume_size": 64, "disk_bus": "virtio", "volume_type": "premium",
            "delete_on_termination": true}],
    }});
    let made = api.nova("POST", "/servers", Some(body)).await.expect(202);
    let id = made["server"]["id"].as_str().unwrap().to_owned();
    assert!(made["server"].get("name").is_none());
    assert_eq!(api.server(&id).await["status"], "BUILD");
    api.step(5);
    let server = api.server(&id).await;
    assert_eq!(server["status"], "ACTIVE");
    assert!(
        server.get("OS-EXT-SRV-ATTR:host").is_none(),
        "members do not see hosts"
    );
    assert!(server["addresses"]["private"][0]["addr"].is_string());
    let console = || api.act(&id, json!({"os-getConsoleOutput": {"length": 11}}));
    assert!(
        !console().await.expect(200)["output"]
            .as_str()
            .unwrap()
            .contains("ohooc")
    );
    api.step(10);
    assert!(
        console().await.expect(200)["output"]
            .as_str()
            .unwrap()
            .contains("ohooc--node001-bb1-6c1f login:")
    );
    let host = api.world().server(id.parse().unwrap()).unwrap().host.unwrap();
    assert_eq!(host.as_str(), ONE);
    let found = api.get("/servers?name=ohooc--node001").await;
    assert_eq!(found["servers"].as_array().unwrap().len(), 1);
    api.nova("DELETE", &format!("/servers/{id}"), None)
        .await
        .expect(204);
    api.step(5);
    let gone = api.nova("GET", &format!("/servers/{id}"), None).await;
    assert_eq!(
        (gone.status, gone.message().to_owned()),
        (404, format!("Instance {id} could not be found."))
    );
    let id = id.parse().unwrap();
    let left = api.world().read(|state| {
        let own = |port: &&cobaltcore_sim::world::Port| port.server == Some(id);
        state.volumes.len() + state.ports.values().filter(own).count()
    });
    assert_eq!(left, 0);
}

#[tokio::test]
async fn a_full_cloud_says_no_valid_host_and_a_full_quota_says_so() {
    let mut api = Api::of(
        World::builder()
            .hosts(1)
            .host_size(1, 1, 2048)
            .manual_clock()
            .settings(|settings| settings.quota.instances = 2),
    )
    .await;
    api.sign_in("demo", "demo", "Default").await;
    let image = api
        .world()
        .read(|state| state.images.keys().next().unwrap().to_string());
    let body = json!({"server": {"name": "big", "imageRef": image, "flavorRef": "3", "networks": "none"}});
    let made = api.nova("POST", "/servers", Some(body.clone())).await.expect(202);
    api.step(5);
    let server = api.server(made["server"]["id"].as_str().unwrap()).await;
    assert_eq!(server["status"], "ERROR");
    assert_eq!(server["fault"]["code"], 500);
    assert!(
        server["fault"]["message"]
            .as_str()
            .unwrap()
            .starts_with("No valid host was found. ")
    );
    api.nova("POST", "/servers", Some(body.clone())).await.expect(202);
    let refused = api.nova("POST", "/servers", Some(body)).await;
    assert_eq!(
        (refused.status, refused.message()),
        (
            403,
            "Quota exceeded for instances: Requested 1, but already used 2 of 2 instances"
        )
    );
}

#[tokio::test]
async fn members_are_kept_from_what_is_for_administrators() {
    let mut api = Api::of(two_hosts()).await;
    api.sign_in("demo", "demo", "Default").await;
    let refused = api.nova("GET", "/os-services", None).await;
    assert_eq!(
        (refused.status, refused.message()),
        (
            403,
            "Policy doesn't allow os_compute_api:os-services:list to be performed."
        )
    );
    assert_eq!(
        api.placement("GET", "/resource_providers", None).await.status,
        403
    );
    let id = api.get("/servers").await["servers"][0]["id"]
        .as_str()
        .unwrap()
        .to_owned();
    assert_eq!(api.act(&id, live()).await.status, 403);
}

#[tokio::test]
async fn lists_come_in_pages_that_lead_to_each_other() {
    let api = Api::of(World::builder().hosts(2).vms_per_host(5).manual_clock()).await;
    let mut seen = Vec::new();
    let mut path = "/servers?all_tenants=true&limit=4".to_owned();
    loop {
        let page = api.get(&path).await;
        seen.extend(
            page["servers"]
                .as_array()
                .unwrap()
                .iter()
                .map(|s| s["id"].as_str().unwrap().to_owned()),
        );
        let Some(next) = page["servers_links"][0]["href"].as_str() else {
            break;
        };
        path = next.split("/v2.1").nth(1).unwrap().to_owned();
    }
    assert_eq!(seen.len(), 10);
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), 10);
    let lost = api.nova("GET", "/servers?marker=nothing", None).await;
    assert_eq!((lost.status, lost.message()), (400, "marker [nothing] not found"));
}

#[tokio::test]
async fn faults_hit_the_calls_they_name_and_every_call_is_counted() {
    let api = Api::of(two_hosts()).await;
    let id = api.on(ONE).await.remove(0);
    api.world().break_api(
        ApiFault::all(ApiEffect::Refuse(503))
            .service("compute")
            .part("os-migrateLive")
            .times(1),
    );
    api.world().break_api(
        ApiFault::all(ApiEffect::FailAfter(500))
            .service("compute")
            .part("\"lock\"")
            .times(1),
    );
    let refused = api.act(&id, live()).await;
    assert_eq!(
        (refused.status, refused.headers["retry-after"].to_str().unwrap()),
        (503, "1")
    );
    assert_eq!(
        api.server(&id).await["OS-EXT-STS:task_state"],
        Value::Null,
        "nothing happened"
    );
    assert_eq!(api.act(&id, json!({"lock": null})).await.status, 500);
    assert_eq!(api.server(&id).await["locked"], true, "it had its effect");
    api.cloud.calls().reset();
    api.server(&id).await;
    api.act(&id, json!({"unlock": null})).await.expect(202);
    assert_eq!(
        api.cloud.calls().count(Service::Compute, "GET", "/servers/{id}"),
        1
    );
    assert_eq!(api.cloud.calls().writes()[0].body, r#"{"unlock":null}"#);
    assert_eq!(api.cloud.calls().total(), 2);
}
