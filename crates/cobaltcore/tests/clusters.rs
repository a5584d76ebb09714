// SPDX-License-Identifier: Apache-2.0
//! `cobaltcore apiserver --clusters`: clusters of one process share a kubeconfig and nothing else.
#![allow(clippy::unwrap_used)]

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use k8s_openapi::api::core::v1::Namespace;
use kube::api::{Api, ObjectMeta, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};

const PROGRAM: &str = env!("CARGO_BIN_EXE_cobaltcore");

/// A process with several clusters; it is killed with the test.
struct Clusters(Child);

impl Clusters {
    /// Starts them and tells what they said until then.
    fn start(folder: &Path, names: &str) -> (Self, Vec<String>) {
        let mut child = command(folder, names).stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut said = Vec::new();
        while !said
            .last()
            .is_some_and(|line: &String| line.starts_with("kubectl"))
        {
            said.push(lines.next().expect("it is ready before it ends").unwrap());
        }
        (Self(child), said)
    }
}

impl Drop for Clusters {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn command(folder: &Path, names: &str) -> Command {
    let listen = vec!["127.0.0.1:0"; names.split(',').count()].join(",");
    let mut command = Command::new(PROGRAM);
    command.args([
        "apiserver",
        "--clusters",
        names,
        "--listen",
        &listen,
        "--data-dir",
    ]);
    command.arg(folder);
    command
}

async fn client(kubeconfig: &Kubeconfig, context: &str) -> kube::Client {
    let options = KubeConfigOptions {
        context: Some(context.into()),
        ..KubeConfigOptions::default()
    };
    let config = kube::Config::from_custom_kubeconfig(kubeconfig.clone(), &options)
        .await
        .unwrap();
    kube::Client::try_from(config).unwrap()
}

#[tokio::test]
async fn clusters_of_one_process_share_a_kubeconfig_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let (clusters, said) = Clusters::start(folder.path(), "hypervisor,storage");
    assert!(
        said[1].starts_with("  hypervisor  https://127.0.0.1:"),
        "{said:?}"
    );
    assert!(
        said[2].starts_with("  storage     https://127.0.0.1:"),
        "{said:?}"
    );
    let kubeconfig = Kubeconfig::read_from(folder.path().join("kubeconfig")).unwrap();
    assert_eq!(kubeconfig.current_context.as_deref(), Some("hypervisor"));
    let hypervisor: Api<Namespace> = Api::all(client(&kubeconfig, "hypervisor").await);
    let storage: Api<Namespace> = Api::all(client(&kubeconfig, "storage").await);
    let metadata = ObjectMeta {
        name: Some("rook".into()),
        ..ObjectMeta::default()
    };
    let rook = Namespace {
        metadata,
        ..Namespace::default()
    };
    storage.create(&PostParams::default(), &rook).await.unwrap();
    assert!(storage.get_opt("rook").await.unwrap().is_some());
    assert!(hypervisor.get_opt("rook").await.unwrap().is_none());

    // The token of one opens no other.
    let mut mixed = kubeconfig.clone();
    let users: Vec<_> = mixed
        .auth_infos
        .iter()
        .rev()
        .map(|user| user.auth_info.clone())
        .collect();
    for (user, other) in mixed.auth_infos.iter_mut().zip(users) {
        user.auth_info = other;
    }
    let stranger: Api<Namespace> = Api::all(client(&mixed, "storage").await);
    let refused = stranger.get("rook").await.unwrap_err();
    assert!(
        matches!(&refused, kube::Error::Api(status) if status.code == 401),
        "{refused}"
    );

    // Who comes second is told whose folder it is, and takes nothing away from the first.
    let second = command(folder.path(), "arbiter,storage").output().unwrap();
    let why = String::from_utf8_lossy(&second.stderr);
    assert_eq!(second.status.code(), Some(3), "{why}");
    assert!(why.contains("cluster storage: "), "{why}");
    let after = Kubeconfig::read_from(folder.path().join("kubeconfig")).unwrap();
    assert_eq!(after.contexts.len(), 2);
    drop(clusters);

    let (_again, _) = Clusters::start(folder.path(), "storage");
    let kubeconfig = Kubeconfig::read_from(folder.path().join("kubeconfig")).unwrap();
    assert_eq!(kubeconfig.contexts.len(), 1, "only what is there is named");
    let storage: Api<Namespace> = Api::all(client(&kubeconfig, "storage").await);
    assert!(
        storage.get_opt("rook").await.unwrap().is_some(),
        "each keeps its state"
    );
}
