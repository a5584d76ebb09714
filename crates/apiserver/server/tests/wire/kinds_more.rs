// SPDX-License-Identifier: Apache-2.0
//! Rules of kinds that nobody had asked about: of changes, of what controllers say, and of what is in no namespace.

use cobaltcore_apiserver::testkit::TestServer;
use serde_json::json;

use super::requests::{MERGE_PATCH, PODS, call, made, pod, told};

/// What is in no namespace takes no notice of one.
#[tokio::test]
async fn a_namespace_given_to_what_has_none_is_dropped() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let path = "/apis/scheduling.k8s.io/v1/priorityclasses";
    made(&admin, path, &json!({"metadata": {"name": "p"}, "value": 1})).await;
    let body = r#"{"metadata":{"namespace":"x"},"description":"d"}"#;
    let reply = call(&admin, "PATCH", &format!("{path}/p"), MERGE_PATCH, body).await;
    assert_eq!((reply.code, &reply.body["description"]), (200, &json!("d")));
    assert_eq!(reply.body["metadata"].get("namespace"), None);
    let review = json!({"metadata": {"namespace": "x"}, "spec": {"resourceAttributes": {"verb": "get", "resource": "pods"}}});
    let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    assert_eq!(admin.post(path, &review).await.code, 201);
}

/// Rules that hold for changes and for what controllers say as much as for new objects.
#[tokio::test]
async fn kinds_that_are_seldom_written_have_their_rules_too() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let limits = "/api/v1/namespaces/default/limitranges";
    let limit = |kind: &str| json!({"metadata": {"name": "l"}, "spec": {"limits": [{"type": kind, "max": {"k": "1"}}]}});
    for (kind, count) in [("Pod", 2), ("PersistentVolumeClaim", 2), ("example.com/x", 1)] {
        let reply = admin.post(limits, &limit(kind)).await;
        assert_eq!(
            (reply.code, told(&reply.body).len()),
            (422, count),
            "{}",
            reply.body
        );
    }
    for (path, object, sub, patch, message) in [
        (
            "/apis/node.k8s.io/v1/runtimeclasses",
            json!({"metadata": {"name": "o"}, "handler": "h"}),
            "",
            json!({"overhead": {"podFixed": {"k": "1"}}}),
            "overhead.limits[k]: Invalid value: \"k\": must be a standard resource for containers",
        ),
        (
            "/apis/node.k8s.io/v1/runtimeclasses",
            json!({"metadata": {"name": "p"}, "handler": "h"}),
            "",
            json!({"scheduling": {"tolerations": [{"value": "x"}]}}),
            "operator must be Exists when `key` is empty",
        ),
        (
            "/apis/storage.k8s.io/v1/storageclasses",
            json!({"metadata": {"name": "o"}, "provisioner": "x"}),
            "",
            json!({"allowedTopologies": [{}]}),
            "allowedTopologies[0].matchLabelExpressions: Duplicate value: \"\"",
        ),
        (
            "/apis/storage.k8s.io/v1/csinodes",
            json!({"metadata": {"name": "o"}, "spec": {"drivers": [{"name": "a.b", "nodeID": "n"}]}}),
            "",
            json!({"spec": {"drivers": [{"name": "a.b", "nodeID": "m"}]}}),
            "spec.drivers: Invalid value: {\"Name\":\"a.b\",\"NodeID\":\"m\",\"TopologyKeys\":null,\"Allocatable\":null}: field is immutable",
        ),
        (
            "/apis/storage.k8s.io/v1/csidrivers",
            json!({"metadata": {"name": "o"}, "spec": {}}),
            "",
            json!({"spec": {"tokenRequests": [{"audience": "a", "expirationSeconds": 2}]}}),
            "may not specify a duration less than 10 minutes",
        ),
        (
            "/apis/storage.k8s.io/v1/volumeattachments",
            json!({"metadata": {"name": "o"}, "spec": {"attacher": "a.b", "nodeName": "n", "source": {"persistentVolumeName": "v"}}}),
            "/status",
            json!({"status": {"attached": false, "attachError": {"errorCode": -1}}}),
            "status.attachError.errorCode: Invalid value: -1: must be between 0 and 2147483647, inclusive",
        ),
        (
            "/api/v1/nodes",
            json!({"metadata": {"name": "o"}}),
            "",
            json!({"spec": {"podCIDR": "x", "podCIDRs": ["x"]}}),
            "spec.podCIDRs[0]: Invalid value: \"x\": must be a valid CIDR value",
        ),
        (
            "/api/v1/namespaces/default/resourcequotas",
            json!({"metadata": {"name": "o"}, "spec": {"hard": {"pods": "9"}}}),
            "/status",
            json!({"status": {"used": {"k": "1"}}}),
            "status.used[k]: Invalid value: \"k\": must be a standard resource for quota",
        ),
        (
            "/api/v1/namespaces/default/persistentvolumeclaims",
            json!({"metadata": {"name": "o"}, "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1"}}}}),
            "/status",
            json!({"status": {"allocatedResources": {"k": "1", "example.com/k": "1"}, "allocatedResourceStatuses": {"storage": "NodeResizePending"}}}),
            "status.allocatedResources: Unsupported value: \"k\": supported values: \"storage\"",
        ),
        (
            "/apis/networking.k8s.io/v1/namespaces/default/ingresses",
            json!({"metadata": {"name": "o"}, "spec": {"defaultBackend": {"service": {"name": "s", "port": {"number": 1}}}}}),
            "/status",
            json!({"status": {"loadBalancer": {"ingress": [{"hostname": "1.2.3.4"}]}}}),
            "status.loadBalancer.ingress[0].hostname: Invalid value: \"1.2.3.4\": must be a DNS name, not an IP address",
        ),
        (
            "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers",
            json!({"metadata": {"name": "o"}, "spec": {"maxReplicas": 2, "scaleTargetRef": {"kind": "D", "name": "d", "apiVersion": "apps/v1"}}}),
            "/status",
            json!({"status": {"currentReplicas": -1, "desiredReplicas": 1}}),
            "status.currentReplicas: Invalid value: -1: must be greater than or equal to 0",
        ),
    ] {
        made(&admin, path, &object).await;
        let name = object["metadata"]["name"].as_str().unwrap();
        let reply = admin.merge(&format!("{path}/{name}{sub}"), &patch).await;
        assert_eq!(reply.code, 422, "{path}: {}", reply.body);
        assert!(reply.message().contains(message), "{}", reply.message());
    }
    let volume = json!({"metadata": {"name": "v"}, "spec": {"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1"},
        "hostPath": {"path": "/x"}, "volumeAttributesClassName": "c"}});
    let driver = json!({"metadata": {"name": "d"}, "spec": {"nodeAllocatableUpdatePeriodSeconds": 1}});
    let mut costly = json!({"metadata": {"name": "c"}, "template": {"spec": pod("c")["spec"]}});
    costly["template"]["spec"]["overhead"] = json!({"k": "1"});
    let mut grouped = pod("g");
    grouped["spec"]["securityContext"] = json!({"supplementalGroupsPolicy": "None"});
    for (path, object) in [
        ("/api/v1/persistentvolumes", volume),
        ("/apis/storage.k8s.io/v1/csidrivers", driver),
        ("/api/v1/namespaces/default/podtemplates", costly),
        (PODS, grouped),
    ] {
        let reply = admin.post(path, &object).await;
        assert_eq!(reply.code, 422, "{path}: {}", reply.body);
    }
}
