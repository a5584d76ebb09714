// SPDX-License-Identifier: Apache-2.0
//! `kubectl create` and `run` of the kinds that have a subcommand. kubectl sends most of them as
//! protobuf.

use crate::world::{Table, desk, is_age};

#[test]
fn configuration_and_accounts() {
    let Some(desk) = desk("create-config", 0) else {
        return;
    };
    desk.says(
        "create configmap settings --from-literal=a=1 --from-literal=b=2",
        "configmap/settings created",
    );
    desk.says(
        "create secret generic login --from-literal=user=root",
        "secret/login created",
    );
    desk.says(
        "create secret docker-registry registry --docker-server=r --docker-username=u --docker-password=p",
        "secret/registry created",
    );
    desk.says("create serviceaccount robot", "serviceaccount/robot created");
    desk.says(
        "create quota limits --hard=pods=3,cpu=2",
        "resourcequota/limits created",
    );
    desk.says(
        "create role reader --verb=get,list --resource=pods",
        "role.rbac.authorization.k8s.io/reader created",
    );
    desk.says(
        "create rolebinding readers --role=reader --user=jane --serviceaccount=create-config:robot",
        "rolebinding.rbac.authorization.k8s.io/readers created",
    );
    desk.says(
        "create clusterrole create-config --verb=get --resource=nodes",
        "clusterrole.rbac.authorization.k8s.io/create-config created",
    );
    desk.says(
        "create clusterrolebinding create-config --clusterrole=create-config --group=ops",
        "clusterrolebinding.rbac.authorization.k8s.io/create-config created",
    );
    desk.says(
        "create priorityclass create-config --value=1000",
        "priorityclass.scheduling.k8s.io/create-config created",
    );

    let maps = Table::read(&desk.ok("get configmaps"));
    maps.has_headings("NAME  DATA  AGE");
    maps.has_row("settings", &["settings", "2"]);
    maps.has_row("kube-root-ca.crt", &["kube-root-ca.crt", "1"]);
    assert!(is_age(&maps.row("settings")["AGE"]));
    let secrets = Table::read(&desk.ok("get secrets"));
    secrets.has_headings("NAME  TYPE  DATA  AGE");
    secrets.has_row("login", &["login", "Opaque", "1"]);
    secrets.has_row("registry", &["registry", "kubernetes.io/dockerconfigjson", "1"]);
    assert_eq!(
        Table::read(&desk.ok("get serviceaccounts")).names(),
        ["default", "robot"]
    );
    let bindings = Table::read(&desk.ok("get rolebindings -o wide"));
    bindings.has_headings("NAME  ROLE  AGE  USERS  GROUPS  SERVICEACCOUNTS");
    bindings.has_row(
        "readers",
        &["readers", "Role/reader", "jane", "", "create-config/robot"],
    );
    let roles = Table::read(&desk.ok("get roles"));
    roles.has_headings("NAME  CREATED AT");
    assert!(roles.row("reader")["CREATED AT"].ends_with('Z'), "{roles:?}");
    let priorities = Table::read(&desk.ok("get priorityclass create-config"));
    assert_eq!(priorities.row("create-config")["VALUE"], "1000");
    assert_eq!(priorities.row("create-config")["GLOBAL-DEFAULT"], "false");
    desk.has_value("secret/login", "{.data.user}", "cm9vdA==");
    desk.has_value("quota/limits", "{.spec.hard.cpu}", "2");
}

#[test]
fn services_and_ingresses() {
    let Some(desk) = desk("create-network", 0) else {
        return;
    };
    desk.says(
        "create service clusterip inner --tcp=80:8080",
        "service/inner created",
    );
    desk.says(
        "create service nodeport outer --tcp=443:8443 --node-port=31234",
        "service/outer created",
    );
    desk.says(
        "create service externalname far --external-name=example.com",
        "service/far created",
    );
    desk.says(
        "create ingress front --class=nginx --rule=foo.example/bar*=inner:80",
        "ingress.networking.k8s.io/front created",
    );
    let services = Table::read(&desk.ok("get services -o wide"));
    services.has_headings("NAME  TYPE  CLUSTER-IP  EXTERNAL-IP  PORT(S)  AGE  SELECTOR");
    services.has_row(
        "far",
        &[
            "far",
            "ExternalName",
            "<none>",
            "example.com",
            "<none>",
            "app=far",
        ],
    );
    let inner = services.row("inner");
    assert!(inner["CLUSTER-IP"].starts_with("10.96."), "{inner:?}");
    assert_eq!(
        (inner["TYPE"].as_str(), inner["PORT(S)"].as_str()),
        ("ClusterIP", "80/TCP")
    );
    assert_eq!(services.row("outer")["PORT(S)"], "443:31234/TCP");
    let ingresses = Table::read(&desk.ok("get ingress"));
    ingresses.has_headings("NAME  CLASS  HOSTS  ADDRESS  PORTS  AGE");
    ingresses.has_row("front", &["front", "nginx", "foo.example", "", "80"]);
    desk.has_value(
        "ingress/front",
        "{.spec.rules[0].http.paths[0].pathType}",
        "Prefix",
    );
    assert!(
        desk.fails("create service nodeport again --tcp=80 --node-port=31234")
            .contains("provided port is already allocated"),
        "a node port is given once"
    );
}

#[test]
fn workloads() {
    let Some(desk) = desk("create-workloads", 21) else {
        return;
    };
    desk.says(
        "create deployment web --image=nginx:1.25 --replicas=3 --port=80",
        "deployment.apps/web created",
    );
    desk.says(
        "create job once --image=busybox -- echo hi",
        "job.batch/once created",
    );
    desk.says(
        "create cronjob often --image=busybox --schedule='*/5 * * * *' -- date",
        "cronjob.batch/often created",
    );
    desk.says("create job now --from=cronjob/often", "job.batch/now created");
    desk.says(
        "create poddisruptionbudget web --selector=app=web --min-available=1",
        "poddisruptionbudget.policy/web created",
    );
    desk.says("run lone --image=nginx --labels=app=lone", "pod/lone created");
    desk.says("expose deployment web --port=80", "service/web exposed");
    desk.says(
        "autoscale deployment web --min=1 --max=4",
        "horizontalpodautoscaler.autoscaling/web autoscaled",
    );

    let deployments = Table::read(&desk.ok("get deployments -o wide"));
    deployments.has_headings("NAME  READY  UP-TO-DATE  AVAILABLE  AGE  CONTAINERS  IMAGES  SELECTOR");
    deployments.has_row("web", &["web", "0/3", "0", "0", "nginx", "nginx:1.25", "app=web"]);
    let jobs = Table::read(&desk.ok("get jobs -o wide"));
    jobs.has_headings("NAME  STATUS  COMPLETIONS  DURATION  AGE  CONTAINERS  IMAGES  SELECTOR");
    let once = jobs.row("once");
    assert_eq!(
        (
            once["STATUS"].as_str(),
            once["COMPLETIONS"].as_str(),
            once["IMAGES"].as_str()
        ),
        ("Running", "0/1", "busybox")
    );
    let uid = desk.value("job/once", "{.metadata.uid}");
    assert_eq!(
        once["SELECTOR"],
        format!("batch.kubernetes.io/controller-uid={uid}")
    );
    desk.has_value(
        "job/now",
        "{.metadata.ownerReferences[0].kind}/{.metadata.ownerReferences[0].name}",
        "CronJob/often",
    );
    let crons = Table::read(&desk.ok("get cronjobs"));
    crons.has_headings("NAME  SCHEDULE  TIMEZONE  SUSPEND  ACTIVE  LAST SCHEDULE  AGE");
    crons.has_row(
        "often",
        &["often", "*/5 * * * *", "<none>", "False", "0", "<none>"],
    );
    let budgets = Table::read(&desk.ok("get pdb"));
    budgets.has_headings("NAME  MIN AVAILABLE  MAX UNAVAILABLE  ALLOWED DISRUPTIONS  AGE");
    budgets.has_row("web", &["web", "1", "N/A", "0"]);
    let pods = Table::read(&desk.ok("get pods -o wide"));
    pods.has_headings("NAME  READY  STATUS  RESTARTS  AGE  IP  NODE  NOMINATED NODE  READINESS GATES");
    pods.has_row(
        "lone",
        &[
            "lone", "0/1", "Pending", "0", "<none>", "<none>", "<none>", "<none>",
        ],
    );
    let scalers = Table::read(&desk.ok("get hpa"));
    scalers.has_headings("NAME  REFERENCE  TARGETS  MINPODS  MAXPODS  REPLICAS  AGE");
    scalers.has_row(
        "web",
        &["web", "Deployment/web", "cpu: <unknown>/80%", "1", "4", "0"],
    );
}

#[test]
fn several_documents_at_once_and_generated_names() {
    let Some(desk) = desk("create-many", 0) else {
        return;
    };
    let two = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: one}\n---\n\
               apiVersion: v1\nkind: Secret\nmetadata: {name: two}\nstringData: {a: b}\n";
    assert_eq!(
        desk.ok_with("create -f -", two),
        "configmap/one created\nsecret/two created\n"
    );
    desk.has_value("secret/two", "{.data.a}", "Yg==");
    let generated = desk.ok_with(
        "create -o name -f -",
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {generateName: x-}\n",
    );
    assert!(
        generated.starts_with("configmap/x-") && generated.trim_end().len() == "configmap/x-".len() + 5,
        "{generated}"
    );
    let list = "apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: ConfigMap, metadata: {name: l1}}\n\
                - {apiVersion: v1, kind: ConfigMap, metadata: {name: l2}}\n";
    assert_eq!(
        desk.ok_with("create -f -", list),
        "configmap/l1 created\nconfigmap/l2 created\n"
    );
}

#[test]
fn a_trial_run_stores_nothing() {
    let Some(desk) = desk("create-dry", 0) else { return };
    desk.says(
        "create configmap c --from-literal=a=b --dry-run=server",
        "configmap/c created (server dry run)",
    );
    desk.refuses(
        "get configmap c",
        "Error from server (NotFound): configmaps \"c\" not found",
    );
    let shown = desk.ok("create deployment d --image=nginx --dry-run=server -o 'jsonpath={.spec.strategy.type} {.metadata.uid}'");
    assert!(
        shown.starts_with("RollingUpdate ") && shown.len() > 40,
        "defaults and identity are shown: {shown}"
    );
}
