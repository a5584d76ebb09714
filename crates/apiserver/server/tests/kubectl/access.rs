// SPDX-License-Identifier: Apache-2.0
//! Who may do what, who one is, tokens, and the words of refusals.

use crate::world::{desk, has_lines};

#[test]
fn asking_what_is_allowed() {
    let Some(desk) = desk("can-i", 0) else { return };
    desk.ok("create role reader --verb=get,list --resource=pods,pods/log");
    desk.ok("create rolebinding readers --role=reader --user=jane");
    desk.says("auth can-i delete nodes", "yes");
    desk.says("auth can-i list pods --as=jane", "yes");
    for denied in ["delete pods", "list pods -n default", "get secrets"] {
        let run = desk.run(&format!("auth can-i {denied} --as=jane"), "", &[]);
        assert_eq!(
            (run.code, run.out.trim()),
            (Some(1), "no"),
            "{denied}: {}",
            run.err
        );
    }
    desk.says("auth can-i get /healthz --as=jane", "yes");
    has_lines(
        &desk.ok("auth can-i --list --as=jane"),
        &[
            "Resources Non-Resource URLs Resource Names Verbs",
            "selfsubjectaccessreviews.authorization.k8s.io [] [] [create]",
            "pods [] [] [get list]",
            "[/api/*] [] [get]",
        ],
    );
    assert!(
        desk.ok("auth can-i --list").contains("*.*"),
        "the administrator may do everything"
    );
}

#[test]
fn knowing_oneself() {
    let Some(desk) = desk("whoami", 28) else { return };
    has_lines(
        &desk.ok("auth whoami"),
        &[
            "ATTRIBUTE VALUE",
            "Username kubernetes-admin",
            "Groups [system:masters system:authenticated]",
        ],
    );
    has_lines(
        &desk.ok("auth whoami --as=jane --as-group=ops"),
        &["Username jane", "Groups [ops system:authenticated]"],
    );
    desk.ok("create serviceaccount robot");
    let token = desk.ok("create token robot --duration=1h");
    has_lines(
        &desk.ok(&format!("auth whoami --token={}", token.trim())),
        &[
            "Username system:serviceaccount:whoami:robot",
            "Groups [system:serviceaccounts system:serviceaccounts:whoami system:authenticated]",
        ],
    );
    let denied = desk.fails(&format!("get configmaps --token={}", token.trim()));
    assert_eq!(
        denied.trim_end(),
        "Error from server (Forbidden): configmaps is forbidden: User \"system:serviceaccount:whoami:robot\" cannot list resource \"configmaps\" in API group \"\" in the namespace \"whoami\""
    );
    desk.ok("create rolebinding robot --clusterrole=view --serviceaccount=whoami:robot");
    assert!(
        desk.ok(&format!("get configmaps --token={}", token.trim()))
            .contains("kube-root-ca.crt")
    );
    desk.refuses(
        "get configmaps --token=nonsense",
        "error: You must be logged in to the server (Unauthorized)",
    );
    let missing = desk.fails("create token nobody");
    assert!(
        missing.contains("serviceaccounts \"nobody\" not found"),
        "{missing}"
    );
}

#[test]
fn refusals_in_the_servers_words() {
    let Some(desk) = desk("refusals", 22) else { return };
    desk.refuses(
        "get configmap nope",
        "Error from server (NotFound): configmaps \"nope\" not found",
    );
    desk.refuses(
        "get deployment nope",
        "Error from server (NotFound): deployments.apps \"nope\" not found",
    );
    desk.refuses(
        "get nonsense",
        "error: the server doesn't have a resource type \"nonsense\"",
    );
    desk.refuses(
        "get pods --as=bob",
        "Error from server (Forbidden): pods is forbidden: User \"bob\" cannot list resource \"pods\" in API group \"\" in the namespace \"refusals\"",
    );
    desk.refuses(
        "get node n --as=bob",
        "Error from server (Forbidden): nodes \"n\" is forbidden: User \"bob\" cannot get resource \"nodes\" in API group \"\" at the cluster scope",
    );
    desk.ok("create configmap c");
    desk.refuses(
        "create configmap c",
        "error: failed to create configmap: configmaps \"c\" already exists",
    );
    let again = desk.fails_with(
        "create -f -",
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\n",
    );
    assert_eq!(
        again.trim_end(),
        "Error from server (AlreadyExists): error when creating \"STDIN\": configmaps \"c\" already exists"
    );
    let missing = desk.fails_with(
        "create -f -",
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c, namespace: no-such}\n",
    );
    assert!(
        missing.contains(
            "the namespace from the provided object \"no-such\" does not match the namespace \"refusals\""
        ),
        "{missing}"
    );
    desk.refuses(
        "-n no-such create configmap c",
        "error: failed to create configmap: namespaces \"no-such\" not found",
    );
    desk.refuses("get pods --field-selector spec.nope=1", "Error from server (BadRequest): Unable to find \"/v1, Resource=pods\" that match label selector \"\", field selector \"spec.nope=1\": field label not supported: spec.nope");
}

#[test]
fn invalid_objects_name_every_field() {
    let Some(desk) = desk("invalid", 25) else { return };
    let pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: Bad_Name}\nspec: {restartPolicy: Sometimes, containers: [{name: A, image: x}]}\n";
    let errors = desk.fails_with("create -f -", pod);
    assert!(
        errors.starts_with("The Pod \"Bad_Name\" is invalid: \n"),
        "{errors}"
    );
    for wanted in [
        "* metadata.name: Invalid value: \"Bad_Name\": a lowercase RFC 1123 subdomain must consist of",
        "* spec.containers[0].name: Invalid value: \"A\": a lowercase RFC 1123 label must consist of",
        "* spec.restartPolicy: Unsupported value: \"Sometimes\": supported values: \"Always\", \"OnFailure\", \"Never\"",
    ] {
        assert!(errors.contains(wanted), "{wanted} is missing in {errors}");
    }
    let one = desk.fails_with(
        "create -f -",
        "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {containers: []}\n",
    );
    assert_eq!(
        one.trim_end(),
        "The Pod \"p\" is invalid: spec.containers: Required value"
    );
    let unknown =
        "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {containers: [{name: a, nam: b, image: x}]}\n";
    assert_eq!(
        desk.fails_with("create -f -", unknown).trim_end(),
        "Error from server (BadRequest): error when creating \"STDIN\": Pod in version \"v1\" cannot be handled as a Pod: strict decoding error: unknown field \"spec.containers[0].nam\""
    );
    let warned = desk.run("create --validate=warn -f -", unknown, &[]);
    assert_eq!(
        (warned.code, warned.err.trim_end(), warned.out.trim_end()),
        (
            Some(0),
            "Warning: unknown field \"spec.containers[0].nam\"",
            "pod/p created"
        )
    );
    let unserved = desk.fails_with(
        "apply -f -",
        "apiVersion: example.com/v9\nkind: Nothing\nmetadata: {name: p}\n",
    );
    assert!(
        unserved.contains("no matches for kind \"Nothing\" in version \"example.com/v9\""),
        "{unserved}"
    );
}
