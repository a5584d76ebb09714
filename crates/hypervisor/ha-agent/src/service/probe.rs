// SPDX-License-Identifier: Apache-2.0
//! Reaching for another host on behalf of the service: a program that answers, a network stack that does, or nothing.

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use cobaltcore_ha_wire::{CommandId, ProbeMethod, ProbeOutcome, ProbeReport, ProbeTarget};
use rustix::net::{AddressFamily, SocketFlags, SocketType, ipproto, socket_with};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpStream, UdpSocket};

/// Every program behind the ports that are probed says something to this: a web server answers, one that wants TLS
/// complains, a secure shell greets without being asked.
const QUESTION: &[u8] = b"GET /healthz HTTP/1.0\r\n\r\n";

/// Reaches for one target.
pub(super) async fn probe(command: CommandId, target: ProbeTarget, time: Duration) -> ProbeReport {
    let began = Instant::now();
    let outcome = match target.method {
        ProbeMethod::Tcp => tcp(SocketAddr::new(target.address, target.port), time).await,
        ProbeMethod::Icmp => match tokio::time::timeout(time, icmp(target.address)).await {
            Ok(Ok(())) => ProbeOutcome::Kernel,
            Ok(Err(_)) => ProbeOutcome::Failed,
            Err(_) => ProbeOutcome::Timeout,
        },
    };
    ProbeReport {
        command,
        target,
        outcome,
        took_ms: began.elapsed().as_millis() as u64,
    }
}

async fn tcp(address: SocketAddr, time: Duration) -> ProbeOutcome {
    let deadline = tokio::time::Instant::now() + time;
    let stream = match tokio::time::timeout_at(deadline, TcpStream::connect(address)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => {
            return match error.kind() {
                // Somebody said no, and that is somebody.
                std::io::ErrorKind::ConnectionRefused | std::io::ErrorKind::ConnectionReset => {
                    ProbeOutcome::Kernel
                }
                // The way there is broken; the last hop may say so about a host that is off.
                std::io::ErrorKind::HostUnreachable
                | std::io::ErrorKind::NetworkUnreachable
                | std::io::ErrorKind::TimedOut => ProbeOutcome::Timeout,
                _ => ProbeOutcome::Failed,
            };
        }
        Err(_) => return ProbeOutcome::Timeout,
    };
    match tokio::time::timeout_at(deadline, said_something(stream)).await {
        Ok(Ok(true)) => ProbeOutcome::App,
        _ => ProbeOutcome::Kernel,
    }
}

async fn said_something(mut stream: TcpStream) -> std::io::Result<bool> {
    stream.write_all(QUESTION).await?;
    let mut byte = [0; 1];
    Ok(stream.read(&mut byte).await? > 0)
}

/// An echo request over a socket that needs no privilege where the kernel allows it.
async fn icmp(address: IpAddr) -> std::io::Result<()> {
    let (family, protocol, kind) = match address {
        IpAddr::V4(_) => (AddressFamily::INET, ipproto::ICMP, 8),
        IpAddr::V6(_) => (AddressFamily::INET6, ipproto::ICMPV6, 128),
    };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = socket_with(family, SocketType::DGRAM, flags, Some(protocol))?;
    let socket = UdpSocket::from_std(std::net::UdpSocket::from(socket))?;
    socket.connect(SocketAddr::new(address, 0)).await?;
    // Checksum and identifier are the kernel's.
    socket.send(&[kind, 0, 0, 0, 0, 0, 0, 1]).await?;
    let mut answer = [0; 64];
    socket.recv(&mut answer).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_program_a_closed_port_and_a_silent_one() {
        let ask = async |port| {
            let target = ProbeTarget {
                address: IpAddr::from([127, 0, 0, 1]),
                method: ProbeMethod::Tcp,
                port,
            };
            probe(CommandId("c".into()), target, Duration::from_millis(500))
                .await
                .outcome
        };
        let talkative = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = talkative.local_addr().unwrap().port();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = talkative.accept().await {
                let _ = stream.write_all(b"SSH-2.0-x\r\n").await;
            }
        });
        assert_eq!(ask(port).await, ProbeOutcome::App);
        // Accepted by the kernel, never by a program.
        let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        assert_eq!(
            ask(silent.local_addr().unwrap().port()).await,
            ProbeOutcome::Kernel
        );
        let closed = silent.local_addr().unwrap().port();
        drop(silent);
        assert_eq!(ask(closed).await, ProbeOutcome::Kernel);
    }
}
