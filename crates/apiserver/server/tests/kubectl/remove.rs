// SPDX-License-Identifier: Apache-2.0
//! Deleting: with and without waiting, held by finalizers, in bulk, with the ways of treating what
//! depends on the object, and whole namespaces.

use crate::world::{Desk, Table, desk};

#[test]
fn with_and_without_waiting() {
    let Some(desk) = desk("delete", 0) else { return };
    desk.ok("create configmap plain");
    assert!(
        desk.ok("delete configmap plain")
            .starts_with("configmap \"plain\" deleted")
    );
    desk.refuses(
        "delete configmap plain",
        "Error from server (NotFound): configmaps \"plain\" not found",
    );
    assert!(
        desk.ok("delete configmap plain --ignore-not-found")
            .trim()
            .is_empty()
    );

    let held = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: held, finalizers: [example.com/hold]}\n";
    desk.ok_with("create -f -", held);
    assert!(
        desk.ok("delete configmap held --wait=false")
            .starts_with("configmap \"held\" deleted")
    );
    assert!(
        !desk
            .value("configmap/held", "{.metadata.deletionTimestamp}")
            .is_empty(),
        "it is held, not gone"
    );
    let late = desk.fails("delete configmap held --timeout=1s");
    assert!(
        late.contains("timed out waiting for the condition on configmaps/held"),
        "{late}"
    );
    let grown = desk.fails("patch configmap held --type=merge -p '{\"metadata\":{\"finalizers\":[\"example.com/hold\",\"example.com/more\"]}}'");
    assert!(
        grown.contains("no new finalizers can be added if the object is being deleted"),
        "{grown}"
    );
    let waiting = desk.follow("delete configmap held --timeout=60s");
    assert!(waiting.next().starts_with("configmap \"held\" deleted"));
    desk.ok("patch configmap held --type=json -p '[{\"op\":\"remove\",\"path\":\"/metadata/finalizers\"}]'");
    assert_eq!(waiting.end(), Some(0), "it waited for the object to go");
    desk.refuses(
        "get configmap held",
        "Error from server (NotFound): configmaps \"held\" not found",
    );

    for name in ["a", "b", "c"] {
        desk.ok(&format!("create configmap {name}"));
    }
    desk.ok("label configmap a b pick=me");
    let several = desk.ok("delete configmaps -l pick=me");
    assert_eq!(several.lines().count(), 2, "{several}");
    assert!(
        desk.ok("delete configmap c --dry-run=server")
            .contains("(server dry run)")
    );
    desk.ok("delete configmaps --all");
    desk.until("get configmaps -o name", |names| {
        names == "configmap/kube-root-ca.crt\n"
    });
}

fn family(desk: &Desk, name: &str) {
    desk.ok_with(
        "create -f -",
        &format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}}}\n"),
    );
    let uid = desk.value(&format!("configmap/{name}"), "{.metadata.uid}");
    let owner =
        format!("{{apiVersion: v1, kind: ConfigMap, name: {name}, uid: {uid}, blockOwnerDeletion: true}}");
    desk.ok_with(
        "create -f -",
        &format!("apiVersion: v1\nkind: Secret\nmetadata: {{name: {name}, ownerReferences: [{owner}]}}\n"),
    );
}

#[test]
fn what_becomes_of_dependents() {
    let Some(desk) = desk("cascade", 20) else { return };
    for name in ["background", "orphan", "foreground"] {
        family(&desk, name);
        assert!(
            desk.ok(&format!("delete configmap {name} --cascade={name}"))
                .starts_with(&format!("configmap \"{name}\" deleted"))
        );
    }
    desk.refuses(
        "get secret foreground",
        "Error from server (NotFound): secrets \"foreground\" not found",
    );
    desk.until("get secret background --ignore-not-found", str::is_empty);
    desk.until(
        "get secret orphan -o 'jsonpath={.metadata.ownerReferences}'",
        str::is_empty,
    );
    assert_eq!(Table::read(&desk.ok("get secrets")).names(), ["orphan"]);
}

#[test]
fn pods_are_given_their_time() {
    let Some(desk) = desk("graceful", 0) else { return };
    desk.ok_with("create -f -", "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {nodeName: n1, containers: [{name: c, image: x}]}\n");
    desk.ok("delete pod p --wait=false");
    desk.has_value("pod/p", "{.metadata.deletionGracePeriodSeconds}", "30");
    let pods = Table::read(&desk.ok("get pods"));
    assert_eq!(pods.row("p")["STATUS"], "Terminating");
    let run = desk.run("delete pod p --force --grace-period=0", "", &[]);
    assert_eq!(
        (run.code, run.out.starts_with("pod \"p\" force deleted")),
        (Some(0), true),
        "{}",
        run.err
    );
    desk.refuses("get pod p", "Error from server (NotFound): pods \"p\" not found");
}

#[test]
fn a_namespace_goes_with_its_content() {
    let Some(desk) = desk("leaving", 0) else { return };
    desk.ok("create namespace leaving-inner");
    desk.ok("-n leaving-inner create configmap c");
    desk.ok_with(
        "-n leaving-inner create -f -",
        "apiVersion: v1\nkind: Secret\nmetadata: {name: s, finalizers: [example.com/hold]}\n",
    );
    desk.ok("delete namespace leaving-inner --wait=false");
    desk.until(
        "-n leaving-inner get configmap c --ignore-not-found",
        str::is_empty,
    );
    assert_eq!(
        Table::read(&desk.ok("get namespace leaving-inner")).row("leaving-inner")["STATUS"],
        "Terminating"
    );
    let refused = desk.fails("-n leaving-inner create configmap late");
    assert!(
        refused.contains(
            "unable to create new content in namespace leaving-inner because it is being terminated"
        ),
        "{refused}"
    );
    desk.until(
        "get namespace leaving-inner -o 'jsonpath={.status.conditions[?(@.type==\"NamespaceFinalizersRemaining\")].message}'",
        |text| text.contains("example.com/hold in 1 resource instances"),
    );
    desk.ok("-n leaving-inner patch secret s --type=merge -p '{\"metadata\":{\"finalizers\":null}}'");
    desk.until("get namespace leaving-inner --ignore-not-found", str::is_empty);
    let last = desk.fails("delete namespace default");
    assert!(
        last.contains("namespaces \"default\" is forbidden: this namespace may not be deleted"),
        "{last}"
    );
}
