// SPDX-License-Identifier: Apache-2.0
//! The project's own manifests and custom resources, as the product documents show them.

use serde_json::json;

use crate::world::{Desk, Table, desk, has_lines, is_age};

fn deploy(desk: &Desk) {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../deploy");
    let said = desk.ok(&format!("apply --server-side -k {folder}"));
    has_lines(
        &said,
        &[
            "namespace/cobaltcore serverside-applied",
            "customresourcedefinition.apiextensions.k8s.io/evictions.kvm.cloud.sap serverside-applied",
            "customresourcedefinition.apiextensions.k8s.io/hypervisors.kvm.cloud.sap serverside-applied",
            "customresourcedefinition.apiextensions.k8s.io/migrations.kvm.cloud.sap serverside-applied",
        ],
    );
    for plural in ["evictions", "hypervisors", "migrations"] {
        desk.says(
            &format!("wait --for=condition=Established crd/{plural}.kvm.cloud.sap --timeout=30s"),
            &format!("customresourcedefinition.apiextensions.k8s.io/{plural}.kvm.cloud.sap condition met"),
        );
    }
}

#[test]
fn the_manifests_and_their_kinds() {
    let Some(desk) = desk("product", 22) else { return };
    deploy(&desk);
    deploy(&desk);
    assert_eq!(
        Table::read(&desk.ok("get namespace cobaltcore")).row("cobaltcore")["STATUS"],
        "Active"
    );
    let crds = Table::read(&desk.ok("get crds"));
    crds.has_headings("NAME  CREATED AT");
    has_lines(
        &desk.ok("api-resources --api-group=kvm.cloud.sap"),
        &[
            "evictions evi kvm.cloud.sap/v1 false Eviction",
            "hypervisors hv kvm.cloud.sap/v1 false Hypervisor",
            "migrations migr kvm.cloud.sap/v1alpha1 true Migration",
        ],
    );
    hypervisors(&desk);
    migrations(&desk);
}

/// `kubectl get hypervisors` as in the product documents.
fn hypervisors(desk: &Desk) {
    let seed = [
        ("node001-bb234", "11", "PowerEdge R860"),
        ("node006-bb123", "0", "ProLiant DL560 Gen11"),
    ];
    for (name, instances, hardware) in seed {
        desk.ok_with("apply -f -", &format!("apiVersion: kvm.cloud.sap/v1\nkind: Hypervisor\nmetadata: {{name: {name}}}\nspec: {{lifecycleEnabled: true}}\n"));
        let count: i64 = instances.parse().unwrap();
        desk.report(
            &format!("/apis/kvm.cloud.sap/v1/hypervisors/{name}/status"),
            &json!({"status": {"numInstances": count, "operatingSystem": {"prettyVersion": "Garden Linux 1933.0", "hardwareModel": hardware, "kernelRelease": "6.12.38-amd64"},
                "conditions": [{"type": "Ready", "status": "True", "reason": "Ready", "message": "ok", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}}),
        );
    }
    let narrow = Table::read(&desk.ok("get hypervisors.kvm.cloud.sap"));
    let wide = Table::read(&desk.ok("get hypervisors.kvm.cloud.sap -o wide"));
    for (name, instances, hardware) in seed {
        let row = wide.row(name);
        let found = ["NODE", "VERSION", "INSTANCES", "HARDWARE", "KERNEL"].map(|h| row[h].as_str());
        assert_eq!(
            found,
            [name, "Garden Linux 1933.0", instances, hardware, "6.12.38-amd64"]
        );
        assert!(is_age(&row["AGE"]), "{row:?}");
        assert_eq!(
            narrow.row(name)["HARDWARE"],
            hardware,
            "shown without being asked"
        );
        assert_eq!(
            (
                narrow.row(name)["READY"].as_str(),
                narrow.row(name)["LIFECYCLE"].as_str(),
                narrow.row(name)["HIGH AVAILABILITY"].as_str()
            ),
            ("True", "true", "true")
        );
    }
    let described = desk.ok("describe hypervisor node001-bb234");
    has_lines(
        &described,
        &[
            "Name: node001-bb234",
            "API Version: kvm.cloud.sap/v1",
            "Kind: Hypervisor",
            "Spec:",
            "Lifecycle Enabled: true",
            "Status:",
            "Num Instances: 11",
            "Events: <none>",
        ],
    );
    if desk.has(27) {
        has_lines(
            &desk.ok("explain hypervisor.spec"),
            &[
                "GROUP: kvm.cloud.sap",
                "KIND: Hypervisor",
                "VERSION: v1",
                "FIELD: spec <Object>",
                "lifecycleEnabled <boolean> -required-",
            ],
        );
        has_lines(
            &desk.ok("explain hv --recursive"),
            &[
                "spec <Object>",
                "status <Object>",
                "numInstances <integer> -required-",
            ],
        );
    }
    custom_objects_are_kept_in_order(desk);
}

/// Patches, edits, rules and waits on a custom object.
fn custom_objects_are_kept_in_order(desk: &Desk) {
    desk.says("patch hv node001-bb234 --type=merge -p '{\"spec\":{\"maintenance\":\"manual\",\"maintenanceReason\":\"disk\"}}'", "hypervisor.kvm.cloud.sap/node001-bb234 patched");
    let unsupported = desk.fails("patch hv node001-bb234 -p '{\"spec\":{\"reboot\":true}}'");
    assert!(unsupported.contains("the body of the request was in an unknown format - accepted media types include: application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml"), "{unsupported}");
    let bad =
        desk.fails("patch hv node001-bb234 --type=merge -p '{\"spec\":{\"maintenance\":\"sometimes\"}}'");
    assert!(
        bad.contains("spec.maintenance: Unsupported value: \"sometimes\": supported values:"),
        "{bad}"
    );
    let edit = desk.run(
        "edit hv node001-bb234",
        "",
        &[("KUBE_EDITOR", "sed -i s/disk/fan/")],
    );
    assert_eq!(
        edit.out, "hypervisor.kvm.cloud.sap/node001-bb234 edited\n",
        "{}",
        edit.err
    );
    desk.has_value("hv/node001-bb234", "{.spec.maintenanceReason}", "fan");
    desk.says(
        "wait --for=condition=Ready hv/node001-bb234 --timeout=10s",
        "hypervisor.kvm.cloud.sap/node001-bb234 condition met",
    );
    let again = "apiVersion: kvm.cloud.sap/v1\nkind: Hypervisor\nmetadata: {name: node006-bb123}\nspec: {lifecycleEnabled: true, nonsense: 1}\n";
    let strict = desk.fails_with("apply -f -", again);
    assert!(
        strict.contains("strict decoding error: unknown field \"spec.nonsense\""),
        "{strict}"
    );
    assert_eq!(desk.ok("delete hypervisors --all").lines().count(), 2);
}

/// `kubectl get migrations` as in the product documents.
fn migrations(desk: &Desk) {
    let seed = [
        (
            "12e479eb-6bef-4fdb-bfdc-0388df68bed9",
            [
                "node002-bb086",
                "node008-bb086",
                "completed",
                "migration_in",
                "2.755s",
                "4.0 GiB",
                "10.4 MiB",
                "0 B",
                "16.5 MiB/s",
                "0/s",
                "3",
            ],
        ),
        (
            "13679335-291c-4405-9e08-5911032599dd",
            [
                "node007-bb086",
                "node009-bb086",
                "completed",
                "migration_out",
                "2.766s",
                "4.0 GiB",
                "398.0 MiB",
                "718.8 MiB",
                "588.9 MiB/s",
                "0/s",
                "1",
            ],
        ),
        (
            "1552e60a-bdba-4850-84da-07dd635bce2c",
            [
                "node006-bb086",
                "node003-bb087",
                "completed",
                "migration_out",
                "35.078s",
                "64.0 GiB",
                "58.4 GiB",
                "0 B",
                "1.8 GiB/s",
                "1250/s",
                "4",
            ],
        ),
    ];
    for (name, cells) in seed {
        let [
            origin,
            destination,
            kind,
            operation,
            elapsed,
            total,
            processed,
            remaining,
            rate,
            dirty,
            iteration,
        ] = cells;
        desk.ok_with(
            "create -f -",
            &format!("apiVersion: kvm.cloud.sap/v1alpha1\nkind: Migration\nmetadata: {{name: {name}}}\n"),
        );
        let pass: i64 = iteration.parse().unwrap();
        desk.report(
            &format!("/apis/kvm.cloud.sap/v1alpha1/namespaces/{}/migrations/{name}/status", desk.namespace),
            &json!({"status": {"origin": origin, "destination": destination, "type": kind, "operation": operation, "started": "2026-01-01T00:00:00Z",
                "timeElapsed": elapsed, "dataTotal": total, "dataProcessed": processed, "dataRemaining": remaining, "memBps": rate, "memDirtyRate": dirty,
                "memIteration": pass}}),
        );
    }
    let table = Table::read(&desk.ok("get migrations.kvm.cloud.sap"));
    table.has_headings("NAME  ORIGIN  DESTINATION  TYPE  OPERATION  STARTED  ELAPSED  DATA TOTAL  DATA PROCESSED  DATA REMAINING  MEMORY TX  MEMORY DIRTY RATE  MEMORY ITERATION");
    assert_eq!(table.names(), seed.map(|(name, _)| name));
    for (name, cells) in seed {
        let row = table.row(name);
        let found: Vec<&str> = table
            .headings
            .iter()
            .filter(|h| *h != "NAME" && *h != "STARTED")
            .map(|h| row[h].as_str())
            .collect();
        assert_eq!(found, cells);
        assert!(is_age(&row["STARTED"]), "{row:?}");
    }
}
