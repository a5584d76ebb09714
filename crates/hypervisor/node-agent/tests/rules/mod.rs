// SPDX-License-Identifier: Apache-2.0
//! The rules that are shipped for agents, and agents that are bound by them.
#![allow(dead_code)]

use std::path::Path;

use cobaltcore_apiserver::User;
use cobaltcore_apiserver::testkit::TestServer;

pub(crate) const NAMESPACE: &str = "monsoon3";
/// Who all agents are.
pub(crate) const USER: &str = "system:serviceaccount:monsoon3:kvm-node-agent";

/// An agent's account with the token of a pod on `node`.
pub(crate) fn agent_on(node: &str) -> User {
    let mut user = User::service_account(NAMESPACE, "kvm-node-agent", None);
    let key = "authentication.kubernetes.io/node-name".to_owned();
    user.extra.insert(key, vec![node.to_owned()]);
    user
}

/// Applies what `deploy/node-agent` ships, in the namespace of the tests, and further files of it.
pub(crate) async fn apply(server: &TestServer, further: &[&str]) {
    let deploy = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../deploy/node-agent");
    let base = ["serviceaccount.yaml", "rbac.yaml", "policy.yaml"];
    for file in base.iter().chain(further) {
        let text = std::fs::read_to_string(deploy.join(file)).unwrap();
        let text = text.replace("namespace: cobaltcore", &format!("namespace: {NAMESPACE}"));
        server.apply_yaml(&text).await.unwrap();
    }
}
