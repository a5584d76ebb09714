// SPDX-License-Identifier: Apache-2.0
//! Active looks at a suspected host: this replica connects to it, the other replicas are asked
//! to, and agents of other hosts as well. Answers reach the engine as observations.

use std::net::SocketAddr;
use std::time::Duration;

use cobaltcore_api::names::HostName;
use cobaltcore_ha_engine::{Input, Observation, ProbeResult, Prober, ReplicaId};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::mpsc;

use crate::clock::Clock;
use crate::commands::{Commands, Order};
use crate::directory::Directory;
use crate::peers::Peers;
use crate::settings::InForce;

/// How long a probe command may wait for an agent.
const COMMAND_LIFE: Duration = Duration::from_secs(10);

/// Looks at hosts. Cheap to clone.
#[derive(Clone)]
pub struct Investigator {
    pub(crate) me: ReplicaId,
    pub(crate) clock: Clock,
    pub(crate) directory: Directory,
    pub(crate) commands: Commands,
    pub(crate) peers: Peers,
    pub(crate) in_force: InForce,
    pub(crate) inputs: mpsc::Sender<Input>,
}

impl Investigator {
    /// Probes `host` from here, from the other replicas and from the agents of `by`. Returns at
    /// once; what is found reaches the engine by itself.
    pub fn investigate(&self, host: &HostName, by: &[HostName]) {
        let Some(address) = self.address(host) else {
            tracing::warn!(%host, "its address is not known, so it cannot be probed");
            return;
        };
        let probe = self.in_force.get().evidence.probe.clone();
        let (ports, timeout) = (probe.tcp_ports, probe.timeout.0);
        for peer in by {
            let order = Order::Probe {
                about: host.clone(),
                address,
                ports: ports.clone(),
                timeout,
            };
            self.commands.push(peer, order, COMMAND_LIFE);
        }
        let (this, host) = (self.clone(), host.clone());
        tokio::spawn(async move {
            let asked_at = this.clock.mono();
            let own = async {
                let result = reach(address, &ports, timeout).await;
                this.tell(&host, Prober::Replica(this.me), asked_at, result).await;
            };
            let others = async {
                for (replica, result) in this.peers.probe(&host, timeout).await {
                    this.tell(&host, Prober::Replica(replica), asked_at, result).await;
                }
            };
            tokio::join!(own, others);
        });
    }

    /// Looks at `host` for another replica.
    pub async fn look(&self, host: &HostName) -> Option<ProbeResult> {
        let address = self.address(host)?;
        let probe = self.in_force.get().evidence.probe.clone();
        Some(reach(address, &probe.tcp_ports, probe.timeout.0).await)
    }

    fn address(&self, host: &HostName) -> Option<std::net::IpAddr> {
        self.directory.get(host)?.internal_ip.as_deref()?.parse().ok()
    }

    async fn tell(
        &self,
        host: &HostName,
        by: Prober,
        asked_at: cobaltcore_ha_engine::Mono,
        result: ProbeResult,
    ) {
        let seen = Observation::Probe {
            host: host.clone(),
            by,
            asked_at,
            result,
        };
        // The loop is gone only when the process ends.
        let _ = self.inputs.send(Input::Saw(seen)).await;
    }
}

/// Tries every port at once. A program that answers is the best sign of life, an accepted or
/// refused connection the next.
pub(crate) async fn reach(address: std::net::IpAddr, ports: &[u16], time: Duration) -> ProbeResult {
    let tries = ports
        .iter()
        .map(|port| knock(SocketAddr::new(address, *port), time));
    let results = futures::future::join_all(tries).await;
    let best = |wanted| results.contains(&wanted);
    if best(ProbeResult::App) {
        ProbeResult::App
    } else if best(ProbeResult::Kernel) {
        ProbeResult::Kernel
    } else {
        ProbeResult::Timeout
    }
}

/// What a TLS or HTTP server answers to, and a banner of SSH comes by itself.
const GREETING: &[u8] = b"GET / HTTP/1.0\r\n\r\n";

async fn knock(target: SocketAddr, time: Duration) -> ProbeResult {
    let connect = tokio::time::timeout(time, TcpStream::connect(target)).await;
    let mut stream = match connect {
        Err(_) => return ProbeResult::Timeout,
        // Refused: the network stack answers, nobody listens.
        Ok(Err(error)) if error.kind() == std::io::ErrorKind::ConnectionRefused => {
            return ProbeResult::Kernel;
        }
        // No route, no network: nothing was heard of the host itself.
        Ok(Err(_)) => return ProbeResult::Timeout,
        Ok(Ok(stream)) => stream,
    };
    let answer = async {
        stream.write_all(GREETING).await?;
        let mut first = [0_u8; 1];
        stream.read(&mut first).await
    };
    match tokio::time::timeout(time, answer).await {
        Ok(Ok(n)) if n > 0 => ProbeResult::App,
        // A program closed the connection: that takes a program.
        Ok(Ok(_)) => ProbeResult::App,
        _ => ProbeResult::Kernel,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn programs_kernels_and_silence_are_told_apart() {
        let local = std::net::IpAddr::from([127, 0, 0, 1]);
        let time = Duration::from_millis(500);
        let talks = tokio::net::TcpListener::bind((local, 0)).await.unwrap();
        let mute = tokio::net::TcpListener::bind((local, 0)).await.unwrap();
        let closed = {
            let gone = tokio::net::TcpListener::bind((local, 0)).await.unwrap();
            gone.local_addr().unwrap().port()
        };
        let (talking, quiet) = (
            talks.local_addr().unwrap().port(),
            mute.local_addr().unwrap().port(),
        );
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = talks.accept().await {
                let _ = stream.write_all(b"SSH-2.0-x\r\n").await;
            }
        });
        assert_eq!(reach(local, &[talking], time).await, ProbeResult::App);
        assert_eq!(reach(local, &[quiet], time).await, ProbeResult::Kernel);
        assert_eq!(reach(local, &[closed], time).await, ProbeResult::Kernel);
        assert_eq!(
            reach(local, &[closed, quiet, talking], time).await,
            ProbeResult::App
        );
        // A full queue of connections: the kernel drops whoever knocks, as a dead host does.
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let full = socket.listen(0).unwrap();
        let silent = full.local_addr().unwrap();
        let mut kept = Vec::new();
        while let Ok(Ok(stream)) = tokio::time::timeout(time, TcpStream::connect(silent)).await {
            kept.push(stream);
        }
        assert_eq!(reach(local, &[silent.port()], time).await, ProbeResult::Timeout);
        assert_eq!(
            reach(local, &[silent.port(), closed], time).await,
            ProbeResult::Kernel
        );
    }
}
