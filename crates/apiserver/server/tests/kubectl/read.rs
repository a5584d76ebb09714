// SPDX-License-Identifier: Apache-2.0
//! Everything that looks: get in all its forms, describe, explain, discovery, raw paths, watches and
//! events.

use serde_json::{Value, json};

use crate::world::{Table, desk, has_lines};

const PODS: &str = "apiVersion: v1\nkind: Pod\nmetadata: {name: beta, labels: {app: shop, tier: front}}\nspec: {containers: [{name: c, image: 'nginx:1'}], nodeName: n1}\n---\n\
                    apiVersion: v1\nkind: Pod\nmetadata: {name: alpha, labels: {app: shop, tier: back}}\nspec: {containers: [{name: c, image: 'redis:7'}]}\n---\n\
                    apiVersion: v1\nkind: Pod\nmetadata: {name: gamma, labels: {app: other}}\nspec: {containers: [{name: c, image: 'busybox'}], nodeName: n1}\n";

#[test]
fn get_in_all_its_forms() {
    let Some(desk) = desk("get-forms", 0) else { return };
    assert_eq!(desk.ok("get pods"), "");
    assert_eq!(
        desk.run("get pods", "", &[]).err,
        "No resources found in get-forms namespace.\n"
    );
    desk.ok_with("create -f -", PODS);
    assert_eq!(
        Table::read(&desk.ok("get pods")).names(),
        ["alpha", "beta", "gamma"]
    );
    assert_eq!(
        Table::read(&desk.ok("get pods -l app=shop")).names(),
        ["alpha", "beta"]
    );
    assert_eq!(
        Table::read(&desk.ok("get pods -l 'app in (shop,other),tier!=back'")).names(),
        ["beta", "gamma"]
    );
    assert_eq!(
        Table::read(&desk.ok("get pods --field-selector spec.nodeName=n1")).names(),
        ["beta", "gamma"]
    );
    assert_eq!(
        Table::read(&desk.ok("get pods --field-selector status.phase!=Pending")).names(),
        [""; 0]
    );
    let by_image = desk.ok("get pods --sort-by '{.spec.containers[0].image}'");
    assert_eq!(Table::read(&by_image).names(), ["gamma", "beta", "alpha"]);
    let labelled = Table::read(&desk.ok("get pods --show-labels -L tier"));
    labelled.has_headings("NAME  READY  STATUS  RESTARTS  AGE  TIER  LABELS");
    assert_eq!(
        (
            labelled.row("beta")["TIER"].as_str(),
            labelled.row("beta")["LABELS"].as_str()
        ),
        ("front", "app=shop,tier=front")
    );
    let everywhere = Table::read(&desk.ok("get pods -A"));
    everywhere.has_headings("NAMESPACE  NAME  READY  STATUS  RESTARTS  AGE");
    assert!(
        everywhere
            .rows
            .iter()
            .any(|row| row["NAMESPACE"] == "get-forms" && row["NAME"] == "gamma"),
        "{everywhere:?}"
    );

    assert_eq!(
        desk.ok("get pods -o custom-columns=POD:.metadata.name,IMAGE:.spec.containers[*].image,NODE:.spec.nodeName"),
        "POD     IMAGE     NODE\nalpha   redis:7   <none>\nbeta    nginx:1   n1\ngamma   busybox   n1\n"
    );
    assert_eq!(
        desk.value(
            "pods",
            "{range .items[*]}{.metadata.name}={.spec.restartPolicy} {end}"
        ),
        "alpha=Always beta=Always gamma=Always "
    );
    assert_eq!(
        desk.value(
            "pods",
            "{.items[?(@.metadata.name==\"beta\")].spec.containers[0].imagePullPolicy}"
        ),
        "IfNotPresent"
    );
    assert_eq!(desk.ok("get pods -o name"), "pod/alpha\npod/beta\npod/gamma\n");
    assert_eq!(desk.ok("get pods -o 'go-template={{len .items}}'"), "3");
    let list: Value = serde_json::from_str(&desk.ok("get pods -o json")).unwrap();
    assert_eq!(
        (&list["kind"], list["items"].as_array().unwrap().len()),
        (&json!("List"), 3)
    );
    let pod: Value = serde_json::from_str(&desk.ok("get pod beta -o json")).unwrap();
    assert_eq!(
        pod["spec"]["tolerations"].as_array().unwrap().len(),
        2,
        "admission gave the usual tolerations"
    );
    assert_eq!(
        pod["status"],
        json!({"phase": "Pending", "qosClass": "BestEffort"})
    );
    has_lines(
        &desk.ok("get pod beta -o yaml"),
        &[
            "apiVersion: v1",
            "kind: Pod",
            "metadata:",
            "labels:",
            "app: shop",
            "name: beta",
            "namespace: get-forms",
            "spec:",
            "- image: nginx:1",
            "imagePullPolicy: IfNotPresent",
            "terminationMessagePath: /dev/termination-log",
            "dnsPolicy: ClusterFirst",
            "nodeName: n1",
            "schedulerName: default-scheduler",
            "serviceAccount: default",
            "terminationGracePeriodSeconds: 30",
            "status:",
            "phase: Pending",
        ],
    );
    let both = desk.ok("get pod/alpha configmap/kube-root-ca.crt");
    assert!(
        both.contains("pod/alpha ") && both.contains("configmap/kube-root-ca.crt "),
        "{both}"
    );
    assert_eq!(desk.ok("get pods nope --ignore-not-found"), "");
    assert_eq!(
        Table::read(&desk.ok("get pods --chunk-size=1")).names(),
        ["alpha", "beta", "gamma"],
        "pages make a whole"
    );
}

#[test]
fn describe_tells_the_story_with_its_events() {
    let Some(desk) = desk("describe", 21) else { return };
    desk.ok_with("create -f -", PODS);
    desk.report(
        "/api/v1/namespaces/describe/pods/beta/status",
        &json!({"status": {"phase": "Running", "podIP": "10.1.2.3", "podIPs": [{"ip": "10.1.2.3"}],
            "conditions": [{"type": "Ready", "status": "True"}],
            "containerStatuses": [{"name": "c", "ready": true, "restartCount": 2, "image": "nginx:1", "imageID": "sha",
                "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}}]}}),
    );
    let uid = desk.value("pod/beta", "{.metadata.uid}");
    let event = format!(
        "apiVersion: v1\nkind: Event\nmetadata: {{name: beta.1}}\ntype: Normal\nreason: Pulled\nmessage: image is here\ncount: 3\n\
         firstTimestamp: '2026-01-01T00:00:00Z'\nlastTimestamp: '2026-01-01T00:01:00Z'\nsource: {{component: kubelet}}\n\
         involvedObject: {{apiVersion: v1, kind: Pod, name: beta, namespace: describe, uid: {uid}}}\n"
    );
    desk.ok_with("create -f -", &event);
    let pod = desk.ok("describe pod beta");
    has_lines(
        &pod,
        &[
            "Name: beta",
            "Namespace: describe",
            "Service Account: default",
            "Node: n1/",
            "Labels: app=shop",
            "tier=front",
            "Status: Running",
            "IP: 10.1.2.3",
            "Containers:",
            "c:",
            "Image: nginx:1",
            "State: Running",
            "Ready: True",
            "Restart Count: 2",
            "Conditions:",
            "Type Status",
            "Ready True",
            "QoS Class: BestEffort",
            "Events:",
            "Type Reason Age From Message",
        ],
    );
    let last = pod.lines().last().unwrap();
    assert!(
        last.contains("Normal")
            && last.contains("Pulled")
            && last.contains("(x3 over")
            && last.ends_with("kubelet  image is here"),
        "{last}"
    );

    desk.ok("create deployment web --image=nginx:1.25 --replicas=3");
    has_lines(
        &desk.ok("describe deployment web"),
        &[
            "Name: web",
            "Selector: app=web",
            "Replicas: 3 desired | 0 updated | 0 total | 0 available | 0 unavailable",
            "StrategyType: RollingUpdate",
            "RollingUpdateStrategy: 25% max unavailable, 25% max surge",
            "Image: nginx:1.25",
            "Events: <none>",
        ],
    );
    desk.ok("create service clusterip web --tcp=80:8080");
    let ip = desk.value("service/web", "{.spec.clusterIP}");
    has_lines(
        &desk.ok("describe service web"),
        &[
            "Name: web",
            "Selector: app=web",
            "Type: ClusterIP",
            "IP Family Policy: SingleStack",
            "IP Families: IPv4",
            &format!("IP: {ip}"),
            "Port: 80-8080 80/TCP",
            "TargetPort: 8080/TCP",
            "Session Affinity: None",
            "Events: <none>",
        ],
    );
    desk.ok("create role reader --verb=get,list --resource=pods");
    has_lines(
        &desk.ok("describe role reader"),
        &[
            "PolicyRule:",
            "Resources Non-Resource URLs Resource Names Verbs",
            "pods [] [] [get list]",
        ],
    );
    has_lines(
        &desk.ok("describe namespace describe"),
        &[
            "Name: describe",
            "Labels: kubernetes.io/metadata.name=describe",
            "Status: Active",
        ],
    );
    desk.refuses(
        "describe pod nope",
        "Error from server (NotFound): pods \"nope\" not found",
    );
}

#[test]
fn events_are_listed_oldest_first() {
    let Some(desk) = desk("events", 26) else { return };
    desk.ok("create configmap thing");
    for (name, kind, minute) in [("second", "Warning", 2), ("first", "Normal", 1)] {
        desk.ok_with(
            "create -f -",
            &format!(
                "apiVersion: v1\nkind: Event\nmetadata: {{name: {name}}}\ntype: {kind}\nreason: R{minute}\nmessage: {name} happened\n\
                 lastTimestamp: '2026-01-01T00:0{minute}:00Z'\ninvolvedObject: {{apiVersion: v1, kind: ConfigMap, name: thing, namespace: events}}\n"
            ),
        );
    }
    let all = Table::read(&desk.ok("events"));
    all.has_headings("LAST SEEN  TYPE  REASON  OBJECT  MESSAGE");
    let seen: Vec<(&str, &str, &str)> = all
        .rows
        .iter()
        .map(|r| (r["TYPE"].as_str(), r["OBJECT"].as_str(), r["MESSAGE"].as_str()))
        .collect();
    assert_eq!(
        seen,
        [
            ("Normal", "ConfigMap/thing", "first happened"),
            ("Warning", "ConfigMap/thing", "second happened")
        ]
    );
    assert_eq!(
        Table::read(&desk.ok("events --for configmap/thing --types=Warning"))
            .rows
            .len(),
        1
    );
    let got = Table::read(&desk.ok("get events --field-selector reason=R2"));
    got.has_headings("LAST SEEN  TYPE  REASON  OBJECT  MESSAGE");
    assert_eq!(
        (got.rows.len(), got.rows[0]["OBJECT"].as_str()),
        (1, "configmap/thing")
    );
    let newer = Table::read(&desk.ok("get events.events.k8s.io"));
    assert_eq!(newer.rows.len(), 2, "both groups show the same events");
}

#[test]
fn a_watch_prints_a_line_for_every_change() {
    let Some(desk) = desk("watch", 0) else { return };
    desk.ok("create configmap a");
    let watch = desk.follow("get configmaps -l '!nothing' --watch --output-watch-events --field-selector metadata.name!=kube-root-ca.crt");
    let plain = |line: String| {
        line.split_whitespace()
            .take(3)
            .map(str::to_owned)
            .collect::<Vec<_>>()
            .join(" ")
    };
    assert_eq!(plain(watch.next()), "EVENT NAME DATA");
    assert_eq!(plain(watch.next()), "ADDED a 0");
    desk.ok("create configmap b --from-literal=x=y");
    assert_eq!(plain(watch.next()), "ADDED b 1");
    desk.ok("patch configmap a --type=merge -p '{\"data\":{\"k\":\"v\"}}'");
    assert_eq!(plain(watch.next()), "MODIFIED a 1");
    desk.ok("label configmap b nothing=left");
    assert_eq!(plain(watch.next()), "DELETED b 1", "it left the selection");
    desk.ok("delete configmap a");
    assert_eq!(plain(watch.next()), "DELETED a 1");
    let only = desk.follow("get configmap b -o 'jsonpath={.data}{\"\\n\"}' --watch-only");
    // Nothing is printed before the watch stands, so the change is repeated until it shows.
    let seen = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for n in 0..200 {
                if seen.load(std::sync::atomic::Ordering::Relaxed) {
                    break;
                }
                desk.ok(&format!(
                    "patch configmap b --type=merge -p '{{\"data\":{{\"n\":\"{n}\"}}}}'"
                ));
            }
        });
        let line = only.next();
        seen.store(true, std::sync::atomic::Ordering::Relaxed);
        assert!(line.starts_with("{\"n\":\""), "{line}");
    });
}

#[test]
fn discovery_lists_everything_served() {
    let Some(desk) = desk("discovery", 0) else { return };
    let all = desk.ok("api-resources");
    let table = Table::read(&all);
    table.has_headings("NAME  SHORTNAMES  APIVERSION  NAMESPACED  KIND");
    has_lines(
        &all,
        &[
            "configmaps cm v1 true ConfigMap",
            "namespaces ns v1 false Namespace",
            "pods po v1 true Pod",
            "customresourcedefinitions crd,crds apiextensions.k8s.io/v1 false CustomResourceDefinition",
            "deployments deploy apps/v1 true Deployment",
            "horizontalpodautoscalers hpa autoscaling/v2 true HorizontalPodAutoscaler",
            "leases coordination.k8s.io/v1 true Lease",
            "poddisruptionbudgets pdb policy/v1 true PodDisruptionBudget",
            "roles rbac.authorization.k8s.io/v1 true Role",
        ],
    );
    let names = desk.ok("api-resources --namespaced=false --verbs=deletecollection -o name");
    assert!(
        names.lines().any(|n| n == "nodes") && !names.lines().any(|n| n == "namespaces" || n == "pods"),
        "{names}"
    );
    if desk.has(21) {
        let in_all = desk.ok("api-resources --categories=all -o name");
        assert!(
            in_all.lines().any(|n| n == "deployments.apps") && !in_all.contains("configmaps"),
            "{in_all}"
        );
    }
    let wide = Table::read(&desk.ok("api-resources --api-group=apps -o wide"));
    assert!(
        wide.row("deployments")["VERBS"].contains("deletecollection"),
        "{wide:?}"
    );
    let versions = desk.ok("api-versions");
    for version in [
        "v1",
        "apps/v1",
        "autoscaling/v1",
        "autoscaling/v2",
        "policy/v1",
        "events.k8s.io/v1",
    ] {
        assert!(versions.lines().any(|v| v == version), "{version} in {versions}");
    }
    assert!(
        desk.ok("version").contains("Server Version") || desk.ok("version -o yaml").contains("serverVersion")
    );
}

#[test]
fn explain_reads_the_published_schema() {
    let Some(desk) = desk("explain", 27) else { return };
    let strategy = desk.ok("explain deployment.spec.strategy");
    has_lines(
        &strategy,
        &[
            "GROUP: apps",
            "KIND: Deployment",
            "VERSION: v1",
            "FIELD: strategy <DeploymentStrategy>",
            "DESCRIPTION:",
            "FIELDS:",
            "rollingUpdate <RollingUpdateDeployment>",
            "type <string>",
        ],
    );
    assert!(
        strategy.contains("replace existing pods with new ones"),
        "{strategy}"
    );
    has_lines(
        &desk.ok("explain pod --recursive"),
        &[
            "KIND: Pod",
            "VERSION: v1",
            "metadata <ObjectMeta>",
            "managedFields <[]ManagedFieldsEntry>",
            "spec <PodSpec>",
            "containers <[]Container> -required-",
            "env <[]EnvVar>",
            "name <string> -required-",
            "status <PodStatus>",
        ],
    );
    has_lines(
        &desk.ok("explain hpa --api-version=autoscaling/v1"),
        &["GROUP: autoscaling", "VERSION: v1"],
    );
    assert!(
        desk.fails("explain pod.spec.nope")
            .contains("field \"nope\" does not exist")
    );
}

#[test]
fn raw_paths_and_what_needs_a_kubelet() {
    let Some(desk) = desk("raw", 21) else { return };
    assert_eq!(desk.ok("get --raw /healthz"), "ok");
    assert!(desk.ok("get --raw '/readyz?verbose'").contains("[+]ping ok"));
    let map: Value =
        serde_json::from_str(&desk.ok("get --raw /api/v1/namespaces/raw/configmaps/kube-root-ca.crt"))
            .unwrap();
    assert!(
        map["data"]["ca.crt"]
            .as_str()
            .unwrap()
            .starts_with("-----BEGIN CERTIFICATE-----")
    );
    desk.refuses(
        "get --raw /nowhere",
        "Error from server (NotFound): the server could not find the requested resource",
    );
    desk.ok_with(
        "create --raw /api/v1/namespaces/raw/configmaps -f -",
        "{\"apiVersion\":\"v1\",\"kind\":\"ConfigMap\",\"metadata\":{\"name\":\"r\"}}",
    );
    desk.has_value("configmap/r", "{.metadata.name}", "r");
    desk.ok_with("create -f -", PODS);
    desk.report(
        "/api/v1/namespaces/raw/pods/beta/status",
        &json!({"status": {"phase": "Running"}}),
    );
    for line in ["logs beta", "exec beta -- ls", "port-forward beta :80"] {
        let complaint = desk.fails(line);
        assert!(
            complaint.contains("the server could not find the requested resource"),
            "kubectl {line}: {complaint}"
        );
    }
}

#[test]
fn a_proxy_passes_requests_on() {
    use std::io::{Read, Write};
    let Some(desk) = desk("proxy", 0) else { return };
    let proxy = desk.follow("proxy --port=0");
    let line = proxy.next();
    let address = line
        .strip_prefix("Starting to serve on ")
        .unwrap_or_else(|| panic!("{line}"))
        .trim();
    let mut stream = std::net::TcpStream::connect(address).unwrap();
    let request =
        format!("GET /api/v1/namespaces/proxy HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(
        answer.starts_with("HTTP/1.1 200 OK") && answer.contains("\"phase\":\"Active\""),
        "{answer}"
    );
}
