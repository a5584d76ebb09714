// SPDX-License-Identifier: Apache-2.0
//! Addresses and ranges of services, classes and capacities of storage, and dynamic resource
//! allocation: what is filled in, what is refused and what tables show.

use cobaltcore_apiserver::testkit::{Caller, TestServer};
use http::Method;
use serde_json::{Value, json};

use super::requests::told;

const ADDRESSES: &str = "/apis/networking.k8s.io/v1/ipaddresses";
const RANGES: &str = "/apis/networking.k8s.io/v1/servicecidrs";
const CLASSES: &str = "/apis/storage.k8s.io/v1/volumeattributesclasses";
const CAPACITIES: &str = "/apis/storage.k8s.io/v1/namespaces/default/csistoragecapacities";
const CLAIMS: &str = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims";
const TEMPLATES: &str = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaimtemplates";
const DEVICE_CLASSES: &str = "/apis/resource.k8s.io/v1/deviceclasses";
const SLICES: &str = "/apis/resource.k8s.io/v1/resourceslices";

fn named(name: &str, rest: Value) -> Value {
    let mut object = rest;
    object["metadata"] = json!({"name": name});
    object
}

async fn refused(admin: &Caller, path: &str, object: Value, wanted: &[&str]) {
    let reply = admin.post(path, &object).await;
    assert_eq!(
        (reply.code, told(&reply.body)),
        (422, wanted.iter().map(ToString::to_string).collect()),
        "{object}"
    );
}

/// What the table says of one object.
async fn row(admin: &Caller, path: &str) -> Vec<Value> {
    let accept = "application/json;as=Table;g=meta.k8s.io;v=v1";
    let reply = admin.send(Method::GET, path, &[("accept", accept)], "").await;
    reply.body["rows"][0]["cells"].as_array().unwrap().clone()
}

/// The same without the age, which is for the clock to tell.
async fn cells(admin: &Caller, path: &str) -> Value {
    let mut row = row(admin, path).await;
    row.pop();
    Value::Array(row)
}

#[tokio::test]
async fn addresses_bear_their_address_as_a_name() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let parent = json!({"resource": "services", "namespace": "default", "name": "a"});
    let owned = json!({"spec": {"parentRef": parent}});
    for name in ["10.97.0.1", "2001:db8::1"] {
        let made = admin.post(ADDRESSES, &named(name, owned.clone())).await;
        assert_eq!(made.code, 201, "{name}");
    }
    assert_eq!(
        row(&admin, &format!("{ADDRESSES}/10.97.0.1")).await,
        [json!("10.97.0.1"), json!("services/default/a")]
    );
    refused(
        &admin,
        ADDRESSES,
        named("2001:DB8::1", owned.clone()),
        &["metadata.name: Invalid value: \"2001:DB8::1\": must be in canonical form (\"2001:db8::1\")"],
    )
    .await;
    refused(
        &admin,
        ADDRESSES,
        named("foo", owned),
        &["metadata.name: Invalid value: \"foo\": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"],
    )
    .await;
    refused(
        &admin,
        ADDRESSES,
        named("10.97.0.2", json!({"spec": {}})),
        &["spec.parentRef: Required value"],
    )
    .await;
    refused(
        &admin,
        ADDRESSES,
        named("10.97.0.2", json!({"spec": {"parentRef": {"name": "x"}}})),
        &["spec.parentRef.resource: Required value"],
    )
    .await;
    let moved = json!({"spec": {"parentRef": {"name": "b"}}});
    let reply = admin.merge(&format!("{ADDRESSES}/10.97.0.1"), &moved).await;
    assert_eq!(reply.code, 422);
    assert!(
        reply.message().ends_with("field is immutable"),
        "{}",
        reply.message()
    );
}

#[tokio::test]
async fn ranges_of_addresses_grow_by_a_second_family_and_no_further() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let first = admin.get(&format!("{RANGES}/kubernetes")).await;
    assert_eq!(first.body["spec"], json!({"cidrs": ["10.96.0.0/16"]}));
    assert_eq!(first.body["status"]["conditions"][0]["type"], "Ready");
    let range = |cidrs: Value| named("r", json!({"spec": {"cidrs": cidrs}}));
    let required = "spec.cidrs: Required value: at least one CIDR required";
    refused(&admin, RANGES, range(json!([])), &[required]).await;
    refused(
        &admin,
        RANGES,
        range(json!(["10.99.0.1/24"])),
        &["spec.cidrs[0]: Invalid value: \"10.99.0.1/24\": must not have bits set beyond the prefix length"],
    )
    .await;
    refused(
        &admin,
        RANGES,
        range(json!(["10.99.0.0/24", "10.100.0.0/24"])),
        &["spec.cidrs: Invalid value: [\"10.99.0.0/24\",\"10.100.0.0/24\"]: may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/64"],
    )
    .await;
    assert_eq!(
        admin.post(RANGES, &range(json!(["10.99.0.0/24"]))).await.code,
        201
    );
    let path = format!("{RANGES}/r");
    let change = async |cidrs: Value| admin.merge(&path, &json!({"spec": {"cidrs": cidrs}})).await;
    let other = change(json!(["10.98.0.0/24"])).await;
    assert_eq!(
        told(&other.body),
        ["spec.cidrs[0]: Invalid value: \"10.98.0.0/24\": field is immutable"]
    );
    assert_eq!(change(json!(["10.99.0.0/24", "fd00::/112"])).await.code, 200);
    assert_eq!(change(json!(["10.99.0.0/24"])).await.code, 422);
    assert_eq!(
        cells(&admin, &path).await,
        json!(["r", "10.99.0.0/24,fd00::/112"])
    );
}

#[tokio::test]
async fn classes_of_attributes_are_protected_and_stay_what_they_are() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let class = named("c", json!({"driverName": "d.x", "parameters": {"a": "b"}}));
    let made = admin.post(CLASSES, &class).await;
    assert_eq!(
        made.body["metadata"]["finalizers"],
        json!(["kubernetes.io/vac-protection"])
    );
    refused(
        &admin,
        CLASSES,
        named("d", json!({})),
        &[
            "driverName: Required value",
            "parameters: Required value: must contain at least one key/value pair",
        ],
    )
    .await;
    let changed = json!({"driverName": "e", "parameters": {"a": "c"}});
    assert_eq!(
        told(&admin.merge(&format!("{CLASSES}/c"), &changed).await.body),
        [
            "driverName: Forbidden: updates to driverName are forbidden.",
            "parameters: Forbidden: updates to parameters are forbidden.",
        ]
    );
    assert_eq!(cells(&admin, &format!("{CLASSES}/c")).await, json!(["c", "d.x"]));
}

#[tokio::test]
async fn capacities_may_change_and_what_they_are_about_may_not() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let capacity = named("c", json!({"storageClassName": "fast", "capacity": "1024Mi"}));
    assert_eq!(admin.post(CAPACITIES, &capacity).await.body["capacity"], "1Gi");
    let path = format!("{CAPACITIES}/c");
    assert_eq!(admin.merge(&path, &json!({"capacity": "2Gi"})).await.code, 200);
    assert_eq!(
        told(
            &admin
                .merge(&path, &json!({"storageClassName": "slow"}))
                .await
                .body
        ),
        ["storageClassName: Invalid value: \"slow\": field is immutable"]
    );
    refused(
        &admin,
        CAPACITIES,
        named("d", json!({"storageClassName": "a", "capacity": "-1"})),
        &["capacity: Invalid value: \"-1\": must be greater than or equal to 0"],
    )
    .await;
}

#[tokio::test]
async fn claims_ask_for_one_device_unless_they_say_otherwise() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let spec = json!({"devices": {"requests": [
        {"name": "one", "exactly": {"deviceClassName": "gpu"}},
        {"name": "any", "firstAvailable": [
            {"name": "a", "deviceClassName": "x"},
            {"name": "b", "deviceClassName": "y", "allocationMode": "All"}]},
    ]}});
    let made = admin.post(CLAIMS, &named("c", json!({"spec": spec}))).await;
    assert_eq!(
        made.body["spec"]["devices"]["requests"],
        json!([
            {"name": "one", "exactly": {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1}},
            {"name": "any", "firstAvailable": [
                {"name": "a", "deviceClassName": "x", "allocationMode": "ExactCount", "count": 1},
                {"name": "b", "deviceClassName": "y", "allocationMode": "All"}]},
        ])
    );
    assert_eq!(
        made.body["metadata"]["managedFields"][0]["fieldsV1"],
        json!({"f:spec": {"f:devices": {"f:requests": {}}}})
    );
    let template = named(
        "t",
        json!({"spec": {"spec": spec, "metadata": {"labels": {"a": "b"}}}}),
    );
    assert_eq!(admin.post(TEMPLATES, &template).await.code, 201);
    assert_eq!(
        cells(&admin, &format!("{CLAIMS}/c")).await,
        json!(["c", "pending"])
    );
    let asks = |requests: Value| named("d", json!({"spec": {"devices": {"requests": requests}}}));
    let field = "spec.devices.requests[0]";
    for (requests, wanted) in [
        (
            json!([{"name": "r"}]),
            vec![format!(
                "{field}: Required value: exactly one of `exactly` or `firstAvailable` is required"
            )],
        ),
        (
            json!([{"name": "r", "exactly": {}}]),
            vec![format!("{field}.exactly.deviceClassName: Required value")],
        ),
        (
            json!([{"name": "r", "exactly": {"deviceClassName": "x", "count": 2, "allocationMode": "All"}}]),
            vec![format!(
                "{field}.exactly.count: Invalid value: 2: must not be specified when allocationMode is 'All'"
            )],
        ),
        (
            json!([{"name": "r", "exactly": {"deviceClassName": "x"}}, {"name": "r", "exactly": {"deviceClassName": "x"}}]),
            vec!["spec.devices.requests[1]: Duplicate value: \"r\"".to_owned()],
        ),
    ] {
        let wanted: Vec<&str> = wanted.iter().map(String::as_str).collect();
        refused(&admin, CLAIMS, asks(requests), &wanted).await;
    }
    let used = json!({"status": {"reservedFor": [{"resource": "pods", "name": "p", "uid": "u"}]}});
    assert_eq!(
        told(&admin.merge(&format!("{CLAIMS}/c/status"), &used).await.body),
        ["status.reservedFor: Forbidden: may not be specified when `allocated` is not set"]
    );
    assert_eq!(
        admin
            .merge(
                &format!("{CLAIMS}/c"),
                &json!({"spec": {"devices": {"requests": null}}})
            )
            .await
            .code,
        422
    );
}

#[tokio::test]
async fn drivers_publish_their_devices_in_slices() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let class = json!({"spec": {"selectors": [{}], "config": [{}], "extendedResourceName": "cpu"}});
    refused(
        &admin,
        DEVICE_CLASSES,
        named("c", class),
        &[
            "spec.selectors[0].cel: Required value",
            "spec.config[0].opaque: Required value",
            "spec.extendedResourceName: Invalid value: \"cpu\": must be a valid extended resource name",
        ],
    )
    .await;
    let pool = json!({"name": "p", "generation": 1, "resourceSliceCount": 1});
    let slice = json!({"driver": "d.x", "pool": pool, "nodeName": "n", "devices": [{"name": "a"}]});
    let made = admin.post(SLICES, &named("s", json!({"spec": slice}))).await;
    assert_eq!(
        (made.code, &made.body["metadata"]["generation"]),
        (201, &json!(1))
    );
    assert_eq!(
        cells(&admin, &format!("{SLICES}/s")).await,
        json!(["s", "n", "d.x", "p"])
    );
    let one = "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required";
    refused(
        &admin,
        SLICES,
        named("t", json!({"spec": {"driver": "d.x", "pool": pool}})),
        &[&format!("spec: Required value: {one}")],
    )
    .await;
    refused(
        &admin,
        SLICES,
        named(
            "t",
            json!({"spec": {"driver": "d.x", "pool": pool, "nodeName": "n", "allNodes": true}}),
        ),
        &[&format!(
            "spec: Invalid value: \"{{`nodeName`, `allNodes`}}\": {one}, but multiple fields are set"
        )],
    )
    .await;
    let found = admin
        .get(&format!("{SLICES}?fieldSelector=spec.driver=d.x,spec.nodeName=n"))
        .await;
    assert_eq!(found.body["items"].as_array().map(Vec::len), Some(1));
    assert_eq!(
        admin
            .get(&format!("{SLICES}?fieldSelector=spec.foo=x"))
            .await
            .message(),
        "field label not supported for resource.k8s.io/v1, Kind=ResourceSlice: spec.foo"
    );
}
