// SPDX-License-Identifier: Apache-2.0
//! The service as a process of its own, with the credentials everybody needs to speak to it. Every agent is bound to
//! its host by a token, as certificates would bind it.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::Method;

use crate::caller::Caller;
use crate::process::Role;
use crate::{BenchError, set_up};

const OPERATOR: &str = "token-of-an-operator";
/// How long anything may take that a service is waited for.
pub(crate) const PATIENCE: Duration = Duration::from_secs(180);

/// Alone, without a cluster.
pub(crate) const ALONE: &str = "kubernetes: {enabled: false}\nleader: {enabled: false}\n";
/// Without a cloud as well.
pub(crate) const DEAF: &str =
    "kubernetes: {enabled: false}\nleader: {enabled: false}\nopenstack: {enabled: false}\n";

/// The token of a host's agent.
pub(crate) fn token(host: &str) -> String {
    format!("token-of-{host}")
}

fn hash(token: &str) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA256, token.as_bytes());
    digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Addresses that are free now.
pub(crate) fn free_address() -> Result<SocketAddr, BenchError> {
    let failed = |error: std::io::Error| set_up("a free port")(error.into());
    let socket = std::net::TcpListener::bind("127.0.0.1:0").map_err(failed)?;
    socket.local_addr().map_err(failed)
}

/// What its StatefulSet sets.
const ENVIRONMENT: [(&str, &str); 1] = [("MIMALLOC_PURGE_DELAY", "10")];

/// Where a service is and what it was told; it can be started again and again.
#[derive(Clone)]
pub(crate) struct Place {
    pub(crate) address: SocketAddr,
    metrics: SocketAddr,
    folder: PathBuf,
    args: Vec<String>,
}

impl Place {
    /// Writes a configuration for `hosts` into `folder`: the usual parts and `more`.
    pub(crate) fn new(
        folder: &Path,
        hosts: &[String],
        more: &str,
        kubeconfig: Option<&Path>,
    ) -> Result<Self, BenchError> {
        let (address, metrics) = (free_address()?, free_address()?);
        Self::at(folder, address, metrics, hosts, more, kubeconfig)
    }

    pub(crate) fn at(
        folder: &Path,
        address: SocketAddr,
        metrics: SocketAddr,
        hosts: &[String],
        more: &str,
        kubeconfig: Option<&Path>,
    ) -> Result<Self, BenchError> {
        let failed = |error: std::io::Error| set_up("a configuration")(error.into());
        std::fs::create_dir_all(folder).map_err(failed)?;
        let agents: String = hosts
            .iter()
            .map(|host| format!("    {host}: [{}]\n", hash(&token(host))))
            .collect();
        let text = format!(
            "server: {{listen: '{address}', metrics_listen: '{metrics}', limits: {{per_agent_rps: 100000}}}}\n\
             storage: {{path: '{}'}}\n\
             access:\n  operators: {{bench: [{}]}}\n  agents:\n{agents}{more}",
            folder.join("data").display(),
            hash(OPERATOR),
        );
        let config = folder.join("service.yaml");
        std::fs::write(&config, text).map_err(failed)?;
        let mut args = vec!["ha-service".to_owned(), format!("--config={}", config.display())];
        if let Some(file) = kubeconfig {
            args.push(format!("--kubeconfig={}", file.display()));
        }
        Ok(Self {
            address,
            metrics,
            folder: folder.to_owned(),
            args,
        })
    }

    /// The telemetry database.
    pub(crate) fn database(&self) -> PathBuf {
        self.folder.join("data/telemetry.db")
    }

    /// Starts it; it is not ready yet.
    pub(crate) fn start(&self, program: &Path) -> Result<Service, BenchError> {
        Ok(Service {
            role: Role::start(program, &self.folder, "service", &self.args, &ENVIRONMENT)?,
            operator: Caller::new(self.address, OPERATOR),
            figures: Caller::new(self.metrics, ""),
            address: self.address,
        })
    }

    /// Starts it and waits until it is ready; how long that took.
    pub(crate) async fn start_ready(&self, program: &Path) -> Result<(Service, Duration), BenchError> {
        let began = Instant::now();
        let mut service = self.start(program)?;
        service.ready().await?;
        Ok((service, began.elapsed()))
    }
}

/// A service at work.
pub(crate) struct Service {
    pub(crate) role: Role,
    pub(crate) operator: Caller,
    pub(crate) address: SocketAddr,
    figures: Caller,
}

impl Service {
    pub(crate) async fn ready(&mut self) -> Result<(), BenchError> {
        let began = Instant::now();
        loop {
            let answer = self.figures.call(Method::GET, "/readyz", Bytes::new()).await;
            if matches!(answer, Ok((200, _))) {
                return Ok(());
            }
            self.gives_up(began, "got ready")?;
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Somebody else who may look, on a connection of their own.
    pub(crate) fn watcher(&self) -> Caller {
        Caller::new(self.address, OPERATOR)
    }

    /// Waits until a figure is at least this.
    pub(crate) async fn until_figure(
        &mut self,
        name: &str,
        least: f64,
        what: &'static str,
    ) -> Result<(), BenchError> {
        let began = Instant::now();
        while self.figure(name).await.unwrap_or(0.0) < least {
            self.gives_up(began, what)?;
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        Ok(())
    }

    /// A figure it shows, by its full name with labels.
    pub(crate) async fn figure(&mut self, name: &str) -> Option<f64> {
        let (_, body) = self
            .figures
            .call(Method::GET, "/metrics", Bytes::new())
            .await
            .ok()?;
        let text = String::from_utf8_lossy(&body);
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim().parse().ok()
    }

    /// An error, if it was waited for too long.
    pub(crate) fn gives_up(&self, began: Instant, what: &'static str) -> Result<(), BenchError> {
        if began.elapsed() < PATIENCE {
            return Ok(());
        }
        Err(BenchError::Never {
            who: "service",
            what,
            log: self.role.log(),
        })
    }
}
