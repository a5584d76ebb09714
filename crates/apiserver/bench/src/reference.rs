// SPDX-License-Identifier: Apache-2.0
//! etcd and kube-apiserver, where both are installed: started with their defaults on fresh data,
//! so that factors are taken from the same machine at the same time.

use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::BenchError;
use crate::client::{Connection, Request, Target, trust};
use crate::floor::Identity;
use crate::process::Process;

const START: Duration = Duration::from_mins(2);
const TOKEN: &str = "bench-reference-token";

/// The programs.
pub(crate) struct Programs {
    etcd: PathBuf,
    apiserver: PathBuf,
}

/// Both of them running.
pub(crate) struct Reference {
    apiserver: Process,
    etcd: Process,
    target: Target,
}

impl Reference {
    /// The programs, if both are on the PATH.
    pub(crate) fn find() -> Option<Programs> {
        let path = std::env::var_os("PATH")?;
        let on_path = |name: &str| {
            std::env::split_paths(&path)
                .map(|dir| dir.join(name))
                .find(|file| file.is_file())
        };
        Some(Programs {
            etcd: on_path("etcd")?,
            apiserver: on_path("kube-apiserver")?,
        })
    }

    pub(crate) fn target(&self) -> &Target {
        &self.target
    }

    pub(crate) async fn stop(self) {
        self.apiserver.stop().await;
        self.etcd.stop().await;
    }
}

impl Programs {
    /// Starts both and waits until they are ready.
    pub(crate) async fn start(self, dir: &Path) -> Result<Reference, BenchError> {
        std::fs::create_dir_all(dir).map_err(BenchError::io("create", dir.display().to_string()))?;
        let (client, peer, secure) = (free_port()?, free_port()?, free_port()?);
        let etcd = self.start_etcd(dir, client, peer)?;
        let identity = Identity::new()?;
        let mut apiserver = self.start_apiserver(dir, client, secure, &identity)?;
        let target = Target {
            name: "reference",
            address: SocketAddr::from(([127, 0, 0, 1], secure)),
            tls: trust([identity.certificate])?,
            token: TOKEN.into(),
            tasks: vec![etcd.pid(), apiserver.pid()],
        };
        let began = Instant::now();
        while !ready(&target).await {
            apiserver.check(&dir.join("kube-apiserver.log"))?;
            if began.elapsed() > START {
                return Err(BenchError::NotReady("kube-apiserver".into(), START));
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Ok(Reference {
            apiserver,
            etcd,
            target,
        })
    }

    fn start_etcd(&self, dir: &Path, client: u16, peer: u16) -> Result<Process, BenchError> {
        let (client, peer) = (
            format!("http://127.0.0.1:{client}"),
            format!("http://127.0.0.1:{peer}"),
        );
        let mut command = Command::new(&self.etcd);
        command.arg("--data-dir").arg(dir.join("etcd"));
        command.args([
            "--listen-client-urls",
            &client,
            "--advertise-client-urls",
            &client,
        ]);
        command.args([
            "--listen-peer-urls",
            &peer,
            "--initial-advertise-peer-urls",
            &peer,
        ]);
        command.args(["--initial-cluster", &format!("default={peer}")]);
        Process::start("etcd", command, &dir.join("etcd.log"))
    }

    fn start_apiserver(
        &self,
        dir: &Path,
        etcd: u16,
        port: u16,
        identity: &Identity,
    ) -> Result<Process, BenchError> {
        let write = |name: &str, text: &str| {
            let file = dir.join(name);
            std::fs::write(&file, text).map_err(BenchError::io("write", file.display().to_string()))?;
            Ok::<String, BenchError>(file.display().to_string())
        };
        let certificate = write("tls.crt", &identity.certificate_pem)?;
        let key = write("tls.key", &identity.key_pem)?;
        let tokens = write("tokens.csv", &format!("{TOKEN},admin,admin,system:masters\n"))?;
        let mut command = Command::new(&self.apiserver);
        command.args([
            format!("--etcd-servers=http://127.0.0.1:{etcd}"),
            format!("--secure-port={port}"),
            "--bind-address=127.0.0.1".to_owned(),
            format!("--tls-cert-file={certificate}"),
            format!("--tls-private-key-file={key}"),
            format!("--token-auth-file={tokens}"),
            "--authorization-mode=AlwaysAllow".to_owned(),
            "--service-cluster-ip-range=10.96.0.0/16".to_owned(),
            "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
            // Public keys are read from certificates; from a private key only in older formats.
            format!("--service-account-key-file={certificate}"),
            format!("--service-account-signing-key-file={key}"),
            // Nobody fills in accounts without a controller manager.
            "--disable-admission-plugins=ServiceAccount".to_owned(),
        ]);
        Process::start("kube-apiserver", command, &dir.join("kube-apiserver.log"))
    }
}

async fn ready(target: &Target) -> bool {
    let Ok(mut connection) = Connection::open(target).await else {
        return false;
    };
    connection
        .ask(&Request::get("/readyz"), false)
        .await
        .is_ok_and(|answer| answer.status == 200)
}

/// A port nobody uses at this moment; the programs cannot be told to choose one.
fn free_port() -> Result<u16, BenchError> {
    let taken = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
    taken
        .map(|address| address.port())
        .map_err(BenchError::io("find", "a free port"))
}
