// SPDX-License-Identifier: Apache-2.0
//! Answers about built-in kinds found to differ from the reference when both were asked the same:
//! what a status may tell, what a pod may share, what becomes of a request for a certificate, levels
//! of pod security, and the small print of refusals.

use cobaltcore_apiserver::testkit::TestServer;
use http::Method;
use serde_json::{Value, json};

use super::requests::{BUDGETS, DEPLOYMENTS, JOBS, MAPS, PODS, SERVICES, deployment, map, pod, told};

const NAMESPACES: &str = "/api/v1/namespaces";
const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
const LEVEL: &str = "pod-security.kubernetes.io/enforce";

fn condition(kind: &str) -> Value {
    json!({"type": kind, "status": "True"})
}

/// A job that is said to be complete has begun, was decided, and says when it ended.
#[tokio::test]
async fn the_status_of_a_job_tells_a_story_that_holds_together() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let job = json!({"metadata": {"name": "j"}, "spec": {"template": {"spec": {
        "restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}}});
    assert_eq!(admin.post(JOBS, &job).await.code, 201);
    let status = format!("{JOBS}/j/status");
    let write = async |status_of_job: Value| admin.merge(&status, &json!({"status": status_of_job})).await;
    let refused = write(json!({"active": 1, "conditions": [condition("Complete")]})).await;
    assert_eq!(
        told(&refused.body),
        [
            "status.completionTime: Required value: completionTime is required for Complete jobs",
            "status.conditions: Invalid value: cannot set Complete=True condition without the SuccessCriteriaMet=true condition",
            "status.active: Invalid value: 1: active>0 is invalid for finished job",
            "status.startTime: Required value: startTime is required for finished job",
        ]
    );
    let refused =
        write(json!({"startTime": "2024-01-01T00:00:00Z", "conditions": [condition("Failed")]})).await;
    assert_eq!(
        told(&refused.body),
        [
            "status.conditions: Invalid value: cannot set Failed=True condition without the FailureTarget=true condition"
        ]
    );
    let early = json!({"startTime": "2024-01-02T00:00:00Z", "completionTime": "2024-01-01T00:00:00Z",
        "conditions": [condition("SuccessCriteriaMet"), condition("Complete")]});
    assert_eq!(
        told(&write(early).await.body),
        [
            "status.completionTime: Invalid value: \"2024-01-01T00:00:00Z\": must be equal to or after `startTime`"
        ]
    );
    let done = write(
        json!({"startTime": "2024-01-01T00:00:00Z", "completionTime": "2024-01-01T00:01:00Z",
        "succeeded": 1, "conditions": [condition("SuccessCriteriaMet"), condition("Complete")]}),
    )
    .await;
    assert_eq!(done.code, 200, "{}", done.body);
    let undone = write(json!({"succeeded": 0, "completionTime": null, "conditions": []})).await;
    assert_eq!(
        told(&undone.body),
        [
            "status.conditions: Invalid value: cannot disable the terminal Complete=True condition",
            "status.succeeded: Invalid value: 0: cannot decrease the succeeded counter",
            "status.conditions: Invalid value: cannot disable the SuccessCriteriaMet=True condition",
        ]
    );
}

#[tokio::test]
async fn only_load_balancers_have_points_of_entry() {
    let server = TestServer::start().await;
    let admin = server.admin();
    for kind in ["ClusterIP", "LoadBalancer"] {
        let service = json!({"metadata": {"name": kind.to_lowercase()}, "spec": {"type": kind, "ports": [{"port": 80}]}});
        assert_eq!(admin.post(SERVICES, &service).await.code, 201);
    }
    let entry = json!({"status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}}});
    let refused = admin.merge(&format!("{SERVICES}/clusterip/status"), &entry).await;
    assert_eq!(
        told(&refused.body),
        ["status.loadBalancer.ingress: Forbidden: may only be used when `spec.type` is 'LoadBalancer'"]
    );
    let taken = admin
        .merge(&format!("{SERVICES}/loadbalancer/status"), &entry)
        .await;
    assert_eq!(taken.code, 200, "{}", taken.body);
    assert_eq!(
        taken.body["status"]["loadBalancer"]["ingress"][0]["ipMode"],
        "VIP"
    );
}

/// What is decided about a request for a certificate is not taken back.
#[tokio::test]
async fn verdicts_on_certificates_stay() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let pem = "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURSBSRVFVRVNULS0tLS0KQUFBQQotLS0tLUVORCBDRVJUSUZJQ0FURSBSRVFVRVNULS0tLS0K";
    let request = json!({"metadata": {"name": "Any_Name"}, "spec": {"request": pem, "signerName": "x.y/z", "usages": ["client auth"]}});
    let made = admin.post(REQUESTS, &request).await;
    assert_eq!(made.code, 201, "{}", made.body);
    let (approval, status) = (
        format!("{REQUESTS}/Any_Name/approval"),
        format!("{REQUESTS}/Any_Name/status"),
    );
    let conditions = |list: Value| json!({"status": {"conditions": list}});
    let unsure = json!([{"type": "Approved", "status": "False"}]);
    assert_eq!(
        told(&admin.merge(&approval, &conditions(unsure)).await.body),
        ["status.conditions[0].status: Unsupported value: \"False\": supported values: \"True\""]
    );
    let both = json!([condition("Approved"), condition("Denied")]);
    assert_eq!(
        told(&admin.merge(&approval, &conditions(both)).await.body),
        [
            "status.conditions: Invalid value: \"Denied\": Approved and Denied conditions are mutually exclusive"
        ]
    );
    assert_eq!(
        told(
            &admin
                .merge(&status, &conditions(json!([condition("Approved")])))
                .await
                .body
        ),
        ["status.conditions: Forbidden: updates may not add a condition of type \"Approved\""]
    );
    let approved = admin
        .merge(&approval, &conditions(json!([condition("Approved")])))
        .await;
    assert_eq!(approved.code, 200, "{}", approved.body);
    assert_eq!(
        told(
            &admin
                .merge(&approval, &conditions(json!([condition("Denied")])))
                .await
                .body
        ),
        ["status.conditions: Forbidden: updates may not remove a condition of type \"Approved\""]
    );
    let junk = json!({"status": {"certificate": "AAAA"}});
    assert_eq!(
        told(&admin.merge(&status, &junk).await.body),
        [
            "status.certificate: Invalid value: \"<certificate data>\": must contain at least one CERTIFICATE PEM block"
        ]
    );
}

#[tokio::test]
async fn a_pod_with_users_of_its_own_shares_nothing_else() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let mut own = pod("p");
    own["spec"]["hostUsers"] = json!(false);
    own["spec"]["hostNetwork"] = json!(true);
    own["spec"]["hostPID"] = json!(true);
    own["spec"]["resourceClaims"] = json!([{"name": "a"}]);
    assert_eq!(
        told(&admin.post(PODS, &own).await.body),
        [
            "spec.resourceClaims[0]: Invalid value: {\"Name\":\"a\",\"ResourceClaimName\":null,\"ResourceClaimTemplateName\":null}: must specify one of: `resourceClaimName`, `resourceClaimTemplateName`",
            "spec.hostNetwork: Forbidden: when `hostUsers` is false",
            "spec.HostPID: Forbidden: when `hostUsers` is false",
        ]
    );
    let mut windows = pod("w");
    windows["spec"]["os"] = json!({"name": "windows"});
    windows["spec"]["hostPID"] = json!(true);
    windows["spec"]["securityContext"] = json!({"runAsUser": 1});
    assert_eq!(
        told(&admin.post(PODS, &windows).await.body),
        [
            "spec.hostPID: Forbidden: cannot be set for a windows pod",
            "spec.securityContext.runAsUser: Forbidden: cannot be set for a windows pod",
        ]
    );
    let mut counted = pod("c");
    counted["spec"]["containers"][0]["env"] = json!([{"name": "A", "valueFrom": {
        "resourceFieldRef": {"resource": "limits.cpu", "divisor": "3"}}}]);
    assert_eq!(
        told(&admin.post(PODS, &counted).await.body),
        [
            "spec.containers[0].env[0].valueFrom.resourceFieldRef.divisor: Invalid value: \"limits.cpu\": only divisor's values 1m and 1 are supported with the cpu resource"
        ]
    );
}

#[tokio::test]
async fn storage_is_where_it_can_be() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let volume = |extra: Value| {
        let mut spec = json!({"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "//"}});
        for (key, value) in extra.as_object().unwrap() {
            spec[key] = value.clone();
        }
        json!({"metadata": {"name": "v"}, "spec": spec})
    };
    let volumes = "/api/v1/persistentvolumes";
    let refused = admin
        .post(
            volumes,
            &volume(json!({"persistentVolumeReclaimPolicy": "Recycle"})),
        )
        .await;
    assert_eq!(
        told(&refused.body),
        ["spec.persistentVolumeReclaimPolicy: Forbidden: may not be 'recycle' for a hostPath mount of '/'"]
    );
    let nowhere = volume(json!({"nodeAffinity": {"required": {"nodeSelectorTerms": []}}}));
    assert_eq!(
        told(&admin.post(volumes, &nowhere).await.body),
        [
            "spec.nodeAffinity.required.nodeSelectorTerms: Required value: must have at least one node selector term"
        ]
    );
    let class = json!({"metadata": {"name": "c"}, "provisioner": "a/b", "allowedTopologies": [
        {"matchLabelExpressions": [{"key": "zone", "values": []}, {"key": "zone", "values": ["a", "a"]}]}]});
    assert_eq!(
        told(
            &admin
                .post("/apis/storage.k8s.io/v1/storageclasses", &class)
                .await
                .body
        ),
        [
            "allowedTopologies[0].matchLabelExpressions[0].values: Required value",
            "allowedTopologies[0].matchLabelExpressions[1].values[1]: Duplicate value: \"a\"",
            "allowedTopologies[0].matchLabelExpressions[1].key: Duplicate value: \"zone\"",
        ]
    );
    let limits = json!({"metadata": {"name": "l"}, "spec": {"limits": [{"type": "PersistentVolumeClaim"}]}});
    assert_eq!(
        told(
            &admin
                .post("/api/v1/namespaces/default/limitranges", &limits)
                .await
                .body
        ),
        [
            "spec.limits[0].limits: Required value: either minimum or maximum storage value is required, but neither was provided"
        ]
    );
    let claim = json!({"metadata": {"name": "q"}, "spec": {"accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}}, "dataSource": {"kind": "Other", "name": "n"}}});
    let made = admin
        .post("/api/v1/namespaces/default/persistentvolumeclaims", &claim)
        .await;
    assert_eq!(made.code, 201, "{}", made.body);
    assert_eq!(
        made.body["spec"]["dataSource"],
        Value::Null,
        "what it cannot name is forgotten"
    );
    let node = json!({"metadata": {"name": "n"}, "spec": {"podCIDRs": ["10.0.0.0/24", "10.1.0.0/24"]}});
    assert_eq!(
        told(&admin.post("/api/v1/nodes", &node).await.body),
        [
            "spec.podCIDRs: Invalid value: [\"10.0.0.0/24\",\"10.1.0.0/24\"]: may specify no more than one CIDR for each IP family"
        ]
    );
}

/// Budgets may be called anything a path can hold.
#[tokio::test]
async fn budgets_have_names_of_paths() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let budget =
        |name: &str| json!({"metadata": {"name": name}, "spec": {"selector": {}, "minAvailable": 1}});
    assert_eq!(admin.post(BUDGETS, &budget("Any_Name")).await.code, 201);
    assert_eq!(
        told(&admin.post(BUDGETS, &budget("a%b")).await.body),
        ["metadata.name: Invalid value: \"a%b\": may not contain '%'"]
    );
}

#[tokio::test]
async fn levels_of_security_are_those_of_the_release_named() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let namespace = json!({"metadata": {"name": "s", "labels": {LEVEL: "restricted", format!("{LEVEL}-version"): "v1.18"}}});
    assert_eq!(admin.post(NAMESPACES, &namespace).await.code, 201);
    let why = "PodSecurity \"restricted:v1.18\": allowPrivilegeEscalation != false (container \"c\" must set securityContext.allowPrivilegeEscalation=false), runAsNonRoot != true (pod or container \"c\" must set securityContext.runAsNonRoot=true)";
    let refused = admin.post("/api/v1/namespaces/s/pods", &pod("p")).await;
    assert_eq!(
        (refused.code, refused.message()),
        (403, format!("pods \"p\" is forbidden: violates {why}").as_str())
    );
    let set = json!({"metadata": {"name": "d"}, "spec": {"selector": {"matchLabels": {"app": "x"}},
        "template": {"metadata": {"labels": {"app": "x"}}, "spec": pod("p")["spec"]}}});
    let warned = admin.post("/apis/apps/v1/namespaces/s/deployments", &set).await;
    assert_eq!(warned.code, 201);
    let quoted = why.replace('"', "\\\"");
    assert_eq!(warned.warnings(), [format!("299 - \"would violate {quoted}\"")]);

    assert_eq!(admin.post(PODS, &pod("old")).await.code, 201);
    let level = json!({"metadata": {"labels": {LEVEL: "restricted", format!("{LEVEL}-version"): "v1.20"}}});
    let changed = admin.merge(&format!("{NAMESPACES}/default"), &level).await;
    assert_eq!(changed.code, 200);
    assert_eq!(
        changed.warnings(),
        [
            "299 - \"existing pods in namespace \\\"default\\\" violate the new PodSecurity enforce level \\\"restricted:v1.20\\\"\"",
            "299 - \"old: allowPrivilegeEscalation != false, runAsNonRoot != true, seccompProfile\"",
        ]
    );
    let other = json!({"metadata": {"labels": {"x": "y"}}});
    let again = admin.merge(&format!("{NAMESPACES}/default"), &other).await;
    assert!(again.warnings().is_empty(), "the level is the same as before");
}

#[tokio::test]
async fn the_small_print_of_refusals() {
    let server = TestServer::start_with_rbac().await;
    let admin = server.admin();
    let nosniff = |reply: &cobaltcore_apiserver::testkit::Reply| {
        reply
            .headers
            .get("x-content-type-options")
            .map(|v| v.to_str().unwrap().to_owned())
    };
    let denied = server.as_user("bob", &[]).get(MAPS).await;
    assert_eq!((denied.code, nosniff(&denied).as_deref()), (403, Some("nosniff")));
    assert_eq!(nosniff(&admin.get("/livez").await).as_deref(), Some("nosniff"));
    assert_eq!(nosniff(&admin.get(MAPS).await), None);

    let late = admin.get(&format!("{MAPS}?timeout=soon")).await;
    assert_eq!(
        (late.code, late.message()),
        (
            400,
            "invalid timeout specified in the request URL - time: invalid duration \"soon\""
        )
    );
    assert_eq!(admin.get(&format!("{MAPS}?timeout=5s")).await.code, 200);

    let page = admin
        .send(Method::GET, MAPS, &[("accept", "text/html")], "")
        .await;
    assert_eq!(
        (page.code, page.message(), &page.body["details"]),
        (
            406,
            "406: Not Acceptable\n\nAvailable representations: application/json, application/yaml, application/json;stream=watch",
            &json!({})
        )
    );
    let shape = [("accept", "application/json;as=Other;v=v1;g=meta.k8s.io")];
    assert_eq!(
        admin.send(Method::GET, MAPS, &shape, "").await.message(),
        "only the following media types are accepted: application/json, application/yaml"
    );

    assert_eq!(admin.get("/api/v1").await.body["apiVersion"], Value::Null);
    assert_eq!(admin.get("/apis/apps/v1").await.body["apiVersion"], "v1");
    admin.post(MAPS, &map("m")).await;
    for (asked, indented) in [
        ("pretty=true", true),
        ("pretty=1", true),
        ("pretty", false),
        ("pretty=no", false),
    ] {
        let raw = admin.get(&format!("{MAPS}/m?{asked}")).await.raw;
        assert_eq!(raw.starts_with(b"{\n"), indented, "{asked}");
    }
    admin.post(PODS, &pod("p")).await;
    let nameless = json!({"apiVersion": "policy/v1", "kind": "Eviction"});
    let refused = admin.post(&format!("{PODS}/p/eviction"), &nameless).await;
    assert_eq!(
        (refused.code, refused.message()),
        (400, "name in URL does not match name in Eviction object")
    );
}

#[tokio::test]
async fn a_scale_has_columns_of_its_own() {
    let server = TestServer::start().await;
    let admin = server.admin();
    admin.post(DEPLOYMENTS, &deployment("d")).await;
    let accept = [("accept", "application/json;as=Table;v=v1;g=meta.k8s.io")];
    let path = format!("{DEPLOYMENTS}/d/scale");
    let table = admin.send(Method::GET, &path, &accept, "").await.body;
    let columns: Vec<&str> = table["columnDefinitions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|column| column["name"].as_str().unwrap())
        .collect();
    assert_eq!(columns, ["Name", "Desired", "Available", "Age"]);
    let cells = table["rows"][0]["cells"].as_array().unwrap();
    assert_eq!(cells[..3], [json!("d"), json!(1), json!(0)]);
    assert_eq!(table["rows"][0]["object"]["kind"], "PartialObjectMetadata");
}

#[tokio::test]
async fn a_token_is_asked_for_where_its_account_is() {
    let server = TestServer::start().await;
    let path = "/api/v1/namespaces/default/serviceaccounts/default/token";
    let elsewhere = json!({"metadata": {"namespace": "other"}, "spec": {}});
    let refused = server.admin().post(path, &elsewhere).await;
    assert_eq!(
        (refused.code, refused.message()),
        (
            400,
            "the namespace of the provided object does not match the namespace sent on the request"
        )
    );
}
