// SPDX-License-Identifier: Apache-2.0
//! Profiles that confine containers, in fields and in the annotations that stood for them before, and
//! the other annotations of pods that mean something.

use cobaltcore_apiserver::testkit::TestServer;
use serde_json::{Value, json};

use super::requests::{DEPLOYMENTS, PODS, deployment, header, pod, told};

const SECCOMP: &str = "container.seccomp.security.alpha.kubernetes.io/c";
const APP_ARMOR: &str = "container.apparmor.security.beta.kubernetes.io/c";

fn annotated(key: &str, value: &str) -> Value {
    let mut pod = pod("p");
    pod["spec"]["containers"][0]["name"] = json!("c");
    pod["metadata"]["annotations"] = json!({key: value});
    pod
}

#[tokio::test]
async fn profiles_are_judged() {
    let server = TestServer::start().await;
    let admin = server.admin();
    for (profile, expected) in [
        (
            json!({"type": "Foo"}),
            "type: Unsupported value: \"Foo\": supported values: \"Localhost\", \"RuntimeDefault\", \"Unconfined\"",
        ),
        (
            json!({"type": "Localhost"}),
            "localhostProfile: Required value: must be set when AppArmor type is Localhost",
        ),
        (
            json!({"type": "Localhost", "localhostProfile": " x"}),
            "localhostProfile: Invalid value: \" x\": must not be padded with whitespace",
        ),
        (
            json!({"type": "Unconfined", "localhostProfile": "x"}),
            "localhostProfile: Invalid value: \"x\": can only be set when AppArmor type is Localhost",
        ),
    ] {
        let mut of_container = pod("p");
        of_container["spec"]["containers"][0]["securityContext"] = json!({"appArmorProfile": profile});
        let reply = admin.post(PODS, &of_container).await;
        let place = "spec.containers[0].securityContext.appArmorProfile";
        assert_eq!(told(&reply.body), [format!("{place}.{expected}")]);
        let mut of_pod = deployment("d");
        of_pod["spec"]["template"]["spec"]["securityContext"] = json!({"appArmorProfile": profile});
        let reply = admin.post(DEPLOYMENTS, &of_pod).await;
        let place = "spec.template.spec.securityContext.appArmorProfile";
        assert_eq!(told(&reply.body), [format!("{place}.{expected}")]);
    }
}

#[tokio::test]
async fn annotations_of_pods_are_judged() {
    let server = TestServer::start().await;
    let admin = server.admin();
    for (key, value, expected) in [
        (
            SECCOMP,
            "foo",
            format!("metadata.annotations.{SECCOMP}: Invalid value: \"foo\": must be a valid seccomp profile"),
        ),
        (
            APP_ARMOR,
            "foo",
            format!("metadata.annotations[{APP_ARMOR}]: Invalid value: \"foo\": invalid AppArmor profile name: \"foo\""),
        ),
        (
            "container.apparmor.security.beta.kubernetes.io/x",
            "unconfined",
            "metadata.annotations[container.apparmor.security.beta.kubernetes.io/x]: Invalid value: \"x\": container not found".to_owned(),
        ),
        (
            "kubernetes.io/config.mirror",
            "x",
            "metadata.annotations[kubernetes.io/config.mirror]: Invalid value: \"x\": must set spec.nodeName if mirror pod annotation is set".to_owned(),
        ),
        (
            "controller.kubernetes.io/pod-deletion-cost",
            "+1",
            "metadata.annotations[controller.kubernetes.io/pod-deletion-cost]: Invalid value: \"+1\": must be a 32bit integer".to_owned(),
        ),
    ] {
        let reply = admin.post(PODS, &annotated(key, value)).await;
        assert_eq!((reply.code, told(&reply.body)), (422, vec![expected]));
    }
}

/// Where both are given they agree; where only the old one is given it becomes the new one.
#[tokio::test]
async fn annotations_and_fields_agree() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let mut both = annotated(APP_ARMOR, "unconfined");
    both["spec"]["containers"][0]["securityContext"] = json!({"appArmorProfile": {"type": "RuntimeDefault"}});
    let reply = admin.post(PODS, &both).await;
    assert_eq!(
        told(&reply.body),
        [
            "spec.containers[0].securityContext.appArmorProfile.type: Forbidden: apparmor type in annotation and field must match"
        ]
    );
    let made = admin.post(PODS, &annotated(APP_ARMOR, "localhost/x")).await;
    assert_eq!(made.code, 201, "{}", made.body);
    assert_eq!(
        made.body["spec"]["containers"][0]["securityContext"],
        json!({"appArmorProfile": {"type": "Localhost", "localhostProfile": "x"}})
    );
    assert!(header(&made, "warning").contains("deprecated since v1.30"));
    let path = format!("{PODS}/p");
    let patch = json!({"metadata": {"annotations": {APP_ARMOR: "unconfined"}}});
    let reply = admin.merge(&path, &patch).await;
    let expected = format!(
        "metadata.annotations[{APP_ARMOR}]: Forbidden: may not remove or update AppArmor annotations"
    );
    assert_eq!(told(&reply.body), [expected]);
    let mut old = annotated(SECCOMP, "runtime/default");
    old["metadata"]["name"] = json!("q");
    let made = admin.post(PODS, &old).await;
    assert!(header(&made, "warning").contains("non-functional in v1.27+"));
}

/// A pod has at most one address of each family, and the first of its host's is its host's.
#[tokio::test]
async fn addresses_of_a_pod_in_its_status() {
    let server = TestServer::start().await;
    let admin = server.admin();
    admin.post(PODS, &pod("p")).await;
    let path = format!("{PODS}/p/status");
    let two = json!({"status": {"podIPs": [{"ip": "1.2.3.4"}, {"ip": "1.2.3.5"}]}});
    let reply = admin.merge(&path, &two).await;
    assert_eq!(
        told(&reply.body),
        [
            "status.podIPs: Invalid value: [{\"IP\":\"1.2.3.4\"},{\"IP\":\"1.2.3.5\"}]: may specify no more than one IP for each IP family"
        ]
    );
    let other = json!({"status": {"hostIP": "1.2.3.4", "hostIPs": [{"ip": "1.2.3.5"}]}});
    let reply = admin.merge(&path, &other).await;
    assert_eq!(
        told(&reply.body),
        ["status.hostIPs[0].ip: Invalid value: \"1.2.3.5\": must be equal to `hostIP`"]
    );
    let both = json!({"status": {"podIPs": [{"ip": "1.2.3.4"}, {"ip": "::1"}]}});
    assert_eq!(admin.merge(&path, &both).await.code, 200);
}
