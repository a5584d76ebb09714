// SPDX-License-Identifier: Apache-2.0
//! Writing by file and by hand: apply on either side, diff, edit, replace, patches, labels and
//! annotations.

use serde_json::Value;

use crate::world::{Desk, desk, has_lines};

pub(crate) const SHOP: &str = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: shop, labels: {app: shop}}\nspec:\n  replicas: 2\n  \
    selector: {matchLabels: {app: shop}}\n  template:\n    metadata: {labels: {app: shop}}\n    spec:\n      containers:\n      \
    - {name: main, image: 'nginx:1.25', ports: [{containerPort: 80}]}\n";

#[test]
fn client_side_apply() {
    let Some(desk) = desk("apply-client", 0) else {
        return;
    };
    assert_eq!(desk.ok_with("apply -f -", SHOP), "deployment.apps/shop created\n");
    assert_eq!(
        desk.ok_with("apply -f -", SHOP),
        "deployment.apps/shop unchanged\n"
    );
    let more = SHOP.replace("replicas: 2", "replicas: 4").replace(
        "labels: {app: shop}}\nspec",
        "labels: {app: shop, tier: x}}\nspec",
    );
    assert_eq!(
        desk.ok_with("apply -f -", &more),
        "deployment.apps/shop configured\n"
    );
    desk.has_value(
        "deployment/shop",
        "{.spec.replicas} {.metadata.labels.tier} {.metadata.generation}",
        "4 x 2",
    );
    has_lines(
        &desk.ok("apply view-last-applied deployment/shop"),
        &["kind: Deployment", "replicas: 4", "- image: nginx:1.25"],
    );

    // What others added stays; what the file no longer lists goes.
    desk.ok("label deployment shop owner=me");
    assert_eq!(
        desk.ok_with("apply -f -", SHOP),
        "deployment.apps/shop configured\n"
    );
    desk.has_value(
        "deployment/shop",
        "{.metadata.labels}",
        "{\"app\":\"shop\",\"owner\":\"me\"}",
    );
    let two = format!("{SHOP}      - {{name: side, image: busybox}}\n");
    desk.ok_with("apply -f -", &two);
    desk.has_value(
        "deployment/shop",
        "{.spec.template.spec.containers[*].name}",
        "main side",
    );
    desk.ok_with("apply -f -", SHOP);
    desk.has_value(
        "deployment/shop",
        "{.spec.template.spec.containers[*].name}",
        "main",
    );

    let run = desk.run(
        "apply -f -",
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: kube-root-ca.crt}\ndata: {x: y}\n",
        &[],
    );
    assert!(
        run.err
            .contains("is missing the kubectl.kubernetes.io/last-applied-configuration annotation"),
        "{}",
        run.err
    );
    // Older ones prune by a list of kinds that are no longer served.
    if !desk.has(25) {
        return;
    }
    assert_eq!(
        desk.ok_with(
            "apply --prune -l app=shop -f -",
            &SHOP.replace("name: shop,", "name: shop2,")
        )
        .lines()
        .next(),
        Some("deployment.apps/shop2 created")
    );
    desk.refuses(
        "get deployment shop",
        "Error from server (NotFound): deployments.apps \"shop\" not found",
    );
}

#[test]
fn server_side_apply_and_its_conflicts() {
    let Some(desk) = desk("apply-server", 22) else {
        return;
    };
    assert_eq!(
        desk.ok_with("apply --server-side -f -", SHOP),
        "deployment.apps/shop serverside-applied\n"
    );
    let before = desk.value("deployment/shop", "{.metadata.resourceVersion}");
    desk.ok_with("apply --server-side -f -", SHOP);
    desk.has_value("deployment/shop", "{.metadata.resourceVersion}", &before);
    desk.ok("scale deployment shop --replicas=7");
    let conflict = desk.fails_with("apply --server-side -f -", SHOP);
    assert!(
        conflict.starts_with(
            "error: Apply failed with 1 conflict: conflict with \"kubectl\" with subresource \"scale\" using apps/v1: .spec.replicas\n\
             Please review the fields above--they currently have other managers."
        ),
        "{conflict}"
    );
    let newer = SHOP.replace("1.25", "1.26");
    let conflicts = desk.fails_with("apply --server-side --field-manager=other -f -", &newer);
    assert!(
        conflicts.starts_with(
            "error: Apply failed with 2 conflicts: conflicts with \"kubectl\":\n- .spec.template.spec.containers[name=\"main\"].image\n\
             conflicts with \"kubectl\" with subresource \"scale\" using apps/v1:\n- .spec.replicas\n"
        ),
        "{conflicts}"
    );
    assert_eq!(
        desk.ok_with(
            "apply --server-side --force-conflicts --field-manager=other -f -",
            &newer
        ),
        "deployment.apps/shop serverside-applied\n"
    );
    desk.has_value(
        "deployment/shop",
        "{.spec.replicas} {.spec.template.spec.containers[0].image}",
        "2 nginx:1.26",
    );
    let object: Value =
        serde_json::from_str(&desk.ok("get deployment shop -o json --show-managed-fields")).unwrap();
    let managers: Vec<(&str, &str)> = object["metadata"]["managedFields"]
        .as_array()
        .unwrap()
        .iter()
        .map(|m| (m["manager"].as_str().unwrap(), m["operation"].as_str().unwrap()))
        .collect();
    assert_eq!(
        managers,
        [("kubectl", "Apply"), ("other", "Apply")],
        "who has nothing left is gone"
    );
    let hidden: Value = serde_json::from_str(&desk.ok("get deployment shop -o json")).unwrap();
    assert!(hidden["metadata"].get("managedFields").is_none());
    assert_eq!(
        desk.ok_with("apply --server-side --dry-run=server -f -", &newer),
        "deployment.apps/shop serverside-applied (server dry run)\n"
    );
}

#[test]
fn moving_from_client_side_to_server_side() {
    let Some(desk) = desk("apply-move", 26) else {
        return;
    };
    desk.ok_with("apply -f -", SHOP);
    assert_eq!(
        desk.ok_with("apply --server-side -f -", SHOP),
        "deployment.apps/shop serverside-applied\n"
    );
    let object: Value =
        serde_json::from_str(&desk.ok("get deployment shop -o json --show-managed-fields")).unwrap();
    let mut managers: Vec<&str> = object["metadata"]["managedFields"]
        .as_array()
        .unwrap()
        .iter()
        .map(|m| m["manager"].as_str().unwrap())
        .collect();
    managers.sort_unstable();
    assert_eq!(managers, ["kubectl", "kubectl-last-applied"]);
    // The file now rules alone: what it leaves out goes.
    desk.ok_with(
        "apply --server-side -f -",
        &SHOP.replace(", ports: [{containerPort: 80}]", ""),
    );
    desk.has_value("deployment/shop", "{.spec.template.spec.containers[0].ports}", "");
}

#[test]
fn diff_shows_what_would_change() {
    let Some(desk) = desk("diff", 21) else { return };
    let file = desk.file("shop.yaml", SHOP);
    let changed = desk.file(
        "changed.yaml",
        &SHOP.replace("replicas: 2", "replicas: 4").replace("1.25", "1.26"),
    );
    let new = desk.run(&format!("diff -f {file}"), "", &[]);
    assert_eq!(new.code, Some(1));
    has_lines(
        &new.out,
        &[
            "+apiVersion: apps/v1",
            "+kind: Deployment",
            "+ name: shop",
            "+ replicas: 2",
        ],
    );
    desk.ok(&format!("apply -f {file}"));
    assert_eq!(desk.run(&format!("diff -f {file}"), "", &[]).code, Some(0));
    for side in ["", "--server-side --force-conflicts"] {
        let run = desk.run(&format!("diff {side} -f {changed}"), "", &[]);
        assert_eq!(run.code, Some(1), "{}", run.err);
        has_lines(
            &run.out,
            &[
                "- generation: 1",
                "+ generation: 2",
                "- replicas: 2",
                "+ replicas: 4",
                "- - image: nginx:1.25",
                "+ - image: nginx:1.26",
            ],
        );
    }
    desk.has_value("deployment/shop", "{.spec.replicas}", "2");
}

#[test]
fn edit_and_replace() {
    let Some(desk) = desk("edit", 0) else { return };
    desk.ok_with("create --save-config -f -", SHOP);
    let sed = |script: &str| format!("sed -i {script}");
    let edit = |script: &str| desk.run("edit deployment shop", "", &[("KUBE_EDITOR", &sed(script))]);
    let edited = edit("s/nginx:1.25/nginx:1.27/");
    assert_eq!(edited.out, "deployment.apps/shop edited\n", "{}", edited.err);
    desk.has_value(
        "deployment/shop",
        "{.spec.template.spec.containers[0].image}",
        "nginx:1.27",
    );
    let idle = edit("s/nothing/here/");
    assert!(
        idle.out.contains("Edit cancelled, no changes made.")
            || idle.err.contains("Edit cancelled, no changes made."),
        "{}{}",
        idle.out,
        idle.err
    );
    let refused = edit("s/replicas:.2/replicas:-1/");
    assert_eq!(refused.code, Some(1), "{}{}", refused.out, refused.err);

    let object = desk.ok("get deployment shop -o json");
    assert_eq!(
        desk.ok_with("replace -f -", &object.replace("nginx:1.27", "nginx:1.28")),
        "deployment.apps/shop replaced\n"
    );
    let stale = desk.fails_with("replace -f -", &object);
    assert!(
        stale.contains("Operation cannot be fulfilled on deployments.apps \"shop\": the object has been modified; please apply your changes to the latest version and try again"),
        "{stale}"
    );
    let uid = desk.value("deployment/shop", "{.metadata.uid}");
    desk.ok_with("replace --force -f -", SHOP);
    assert_ne!(
        desk.value("deployment/shop", "{.metadata.uid}"),
        uid,
        "replaced by force is another object"
    );
    let gone = desk.fails_with(
        "replace -f -",
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: nope}\n",
    );
    assert!(gone.contains("configmaps \"nope\" not found"), "{gone}");
}

fn containers(desk: &Desk) -> String {
    desk.value(
        "deployment/shop",
        "{range .spec.template.spec.containers[*]}{.name}={.image} {end}",
    )
}

#[test]
fn the_three_patches() {
    let Some(desk) = desk("patches", 0) else { return };
    desk.ok_with("create -f -", SHOP);
    desk.says(
        "patch deployment shop -p '{\"spec\":{\"template\":{\"spec\":{\"containers\":[{\"name\":\"side\",\"image\":\"busybox\"}]}}}}'",
        "deployment.apps/shop patched",
    );
    assert_eq!(
        containers(&desk),
        "side=busybox main=nginx:1.25 ",
        "strategic patches merge lists by key"
    );
    desk.says(
        "patch deployment shop --type=merge -p '{\"spec\":{\"replicas\":1,\"template\":{\"spec\":{\"containers\":[{\"name\":\"only\",\"image\":\"x\"}]}}}}'",
        "deployment.apps/shop patched",
    );
    assert_eq!(containers(&desk), "only=x ", "merge patches replace lists");
    let json = "patch deployment shop --type=json -p '[{\"op\":\"test\",\"path\":\"/spec/replicas\",\"value\":1},{\"op\":\"replace\",\"path\":\"/spec/replicas\",\"value\":9}]'";
    desk.says(json, "deployment.apps/shop patched");
    let failed = desk.fails(json);
    assert!(
        failed.contains("the server rejected our request due to an error in our request")
            || failed.contains("testing value /spec/replicas failed"),
        "{failed}"
    );
    desk.says(
        "patch deployment shop --type=merge -p '{\"spec\":{\"replicas\":9}}'",
        "deployment.apps/shop patched (no change)",
    );
    let invalid = desk.fails("patch deployment shop --type=merge -p '{\"spec\":{\"replicas\":-1}}'");
    assert_eq!(
        invalid.trim_end(),
        "The Deployment \"shop\" is invalid: spec.replicas: Invalid value: -1: must be greater than or equal to 0"
    );
    if desk.has(24) {
        desk.says(
            "patch deployment shop --subresource=status --type=merge -p '{\"status\":{\"replicas\":9}}'",
            "deployment.apps/shop patched",
        );
        desk.has_value("deployment/shop", "{.status.replicas}/{.spec.replicas}", "9/9");
        desk.says("get deployment shop --subresource=scale -o 'jsonpath={.kind} {.spec.replicas} {.status.selector}'", "Scale 9 app=shop");
    }
}

#[test]
fn labels_and_annotations() {
    let Some(desk) = desk("labels", 22) else { return };
    desk.ok("create configmap c");
    desk.says("label configmap c a=1 b=2", "configmap/c labeled");
    desk.refuses(
        "label configmap c a=3",
        "error: 'a' already has a value (1), and --overwrite is false",
    );
    desk.says("label configmap c a=3 --overwrite", "configmap/c labeled");
    desk.says("label configmap c b-", "configmap/c unlabeled");
    desk.has_value("configmap/c", "{.metadata.labels}", "{\"a\":\"3\"}");
    desk.says("label configmap c a=3", "configmap/c not labeled");
    desk.says("annotate configmap c note='some words'", "configmap/c annotated");
    desk.has_value("configmap/c", "{.metadata.annotations.note}", "some words");
    desk.says("annotate configmap c note-", "configmap/c annotated");
    desk.has_value("configmap/c", "{.metadata.annotations}", "");
    desk.ok("create configmap d");
    assert_eq!(
        desk.ok("label configmaps c d set=x"),
        "configmap/c labeled\nconfigmap/d labeled\n"
    );
    let bad = desk.fails("label configmap c a='not valid' --overwrite");
    assert!(bad.contains("invalid label value"), "{bad}");
}
