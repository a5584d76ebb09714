// SPDX-License-Identifier: Apache-2.0
//! Where a simulated host can be reached: each has an address of its own on the loopback interface (127.100.0.1 and up)
//! with one open port, the same on all. A program answers there while the host has power and a network; otherwise every
//! packet vanishes, as it does on the way to a machine that is off. Nobody is refused: a refusal is a sign of life.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use socket2::{SockFilter, SockRef};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::task::AbortOnDropHandle;

use crate::error::Error;
use crate::world::{Host, HostName, Power, World};

/// How often another port is tried when somebody else has it on one of the addresses.
const ATTEMPTS: usize = 16;
/// What a program says to whoever knocks.
const ANSWER: &[u8] = b"HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n";
/// Whoever knocks has this long to say something.
const PATIENCE: Duration = Duration::from_secs(5);
/// Return 0 of a classic packet filter: keep nothing of any packet.
const DROP: (u16, u32) = (0x06, 0);

/// The doors of all hosts of a world; they close with this value.
#[derive(Debug)]
pub struct Doors {
    port: u16,
    _doors: Vec<AbortOnDropHandle<()>>,
}

impl Doors {
    /// Gives every host the world has now an address of its own and opens a port there that the system chooses.
    pub async fn open(world: &World) -> Result<Self, Error> {
        let names: Vec<HostName> = world.read(|state| state.hosts.keys().cloned().collect());
        let mut tries = 0;
        let listeners = loop {
            match bind_all(names.len()).await {
                Ok(listeners) => break listeners,
                // Another program has this port on all addresses or on one of ours.
                Err((_, error)) if error.kind() == std::io::ErrorKind::AddrInUse && tries < ATTEMPTS => {
                    tries += 1;
                }
                Err((address, source)) => {
                    return Err(Error::Listen {
                        what: "a simulated host",
                        address: address.to_string(),
                        source,
                    });
                }
            }
        };
        let port = listeners
            .first()
            .and_then(|listener| listener.local_addr().ok())
            .map_or(0, |address| address.port());
        world.change(|state| {
            for (index, name) in names.iter().enumerate() {
                if let Some(host) = state.hosts.get_mut(name) {
                    host.ip = address(index).to_string();
                }
            }
        });
        let doors = names.into_iter().zip(listeners);
        let doors =
            doors.map(|(name, door)| AbortOnDropHandle::new(tokio::spawn(keep(world.clone(), name, door))));
        Ok(Self {
            port,
            _doors: doors.collect(),
        })
    }

    /// The port that is open on every host.
    pub fn port(&self) -> u16 {
        self.port
    }
}

/// The address of the host with this number.
fn address(index: usize) -> IpAddr {
    let [.., high, middle, low] = (index + 1).to_be_bytes();
    Ipv4Addr::new(127, 100_u8.saturating_add(high), middle, low).into()
}

/// Opens one port on so many addresses.
async fn bind_all(count: usize) -> Result<Vec<TcpListener>, (SocketAddr, std::io::Error)> {
    let mut listeners = Vec::with_capacity(count);
    let mut port = 0;
    for index in 0..count {
        let wanted = SocketAddr::new(address(index), port);
        let bound = async {
            let listener = TcpListener::bind(wanted).await?;
            port = listener.local_addr()?.port();
            Ok(listener)
        };
        listeners.push(bound.await.map_err(|error| (wanted, error))?);
    }
    Ok(listeners)
}

fn reachable(host: &Host) -> bool {
    host.power == Power::On && !host.cut
}

/// Answers while the host can, and lets packets vanish while it cannot.
async fn keep(world: World, name: HostName, door: TcpListener) {
    let watcher = world.watch(&name);
    let mut open = true;
    loop {
        let wanted = world.read(|state| state.hosts.get(&name).is_some_and(reachable));
        if wanted != open {
            match set(&door, wanted) {
                Ok(()) => open = wanted,
                Err(error) => tracing::warn!(host = %name, %error, "a simulated host is reachable as before"),
            }
        }
        tokio::select! {
            () = watcher.notified() => {}
            Ok((stream, _)) = door.accept() => {
                tokio::spawn(tokio::time::timeout(PATIENCE, answer(stream)));
            }
        }
    }
}

fn set(door: &TcpListener, open: bool) -> std::io::Result<()> {
    let socket = SockRef::from(door);
    if open {
        socket.detach_filter()
    } else {
        let (code, keep) = DROP;
        socket.attach_filter(&[SockFilter::new(code, 0, 0, keep)])
    }
}

async fn answer(mut stream: TcpStream) -> std::io::Result<()> {
    let mut asked = [0_u8; 1024];
    let _ = stream.read(&mut asked).await?;
    stream.write_all(ANSWER).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_on_the_loopback_interface_and_differ() {
        let many: std::collections::BTreeSet<_> = (0..70_000).map(address).collect();
        assert_eq!(many.len(), 70_000);
        assert!(many.iter().all(IpAddr::is_loopback));
        assert_eq!(address(0).to_string(), "127.100.0.1");
    }
}
