// SPDX-License-Identifier: Apache-2.0
//! Whether the disks of a guest that stands still are there again. A disk of this host is read. A disk elsewhere cannot be
//! read from here, but its servers can be heard: those of Ceph and of network block devices greet whoever connects. What
//! can be neither read nor heard is not there.

use std::time::Duration;

use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;

use crate::libvirt::disks::Found;

/// How long reading or hearing may take, all disks together.
const TIME: Duration = Duration::from_secs(5);

/// Whether every disk is there. A guest without any is not one that waits for a disk.
pub(super) async fn is_back(disks: Vec<Found>) -> bool {
    let held: Vec<Found> = disks
        .into_iter()
        .filter(|found| !found.disk.source.is_empty())
        .collect();
    let looks = held.iter().map(there);
    let all = futures::future::join_all(looks);
    let found = tokio::time::timeout(TIME, all).await.unwrap_or_default();
    !found.is_empty() && found.into_iter().all(|there| there)
}

async fn there(found: &Found) -> bool {
    if found.disk.kind != "network" {
        return readable(found.disk.source.clone()).await;
    }
    // How a server greets, and where it listens unless something else is said.
    let (greeting, usual): (&[u8], u16) = match found.protocol.as_deref() {
        Some("rbd") => (b"ceph v", 6789),
        Some("nbd") => (b"NBDMAGIC", 10809),
        _ => return false,
    };
    let greets = found
        .servers
        .iter()
        .map(|(server, port)| greets(server, port.unwrap_or(usual), greeting));
    futures::future::join_all(greets)
        .await
        .into_iter()
        .any(|greets| greets)
}

async fn greets(server: &str, port: u16, greeting: &[u8]) -> bool {
    let said = async {
        let mut stream = TcpStream::connect((server, port)).await?;
        let mut said = vec![0; greeting.len()];
        stream.read_exact(&mut said).await?;
        std::io::Result::Ok(said)
    };
    // One server that is silent must not take the time of the others.
    let said = tokio::time::timeout(TIME / 2, said).await;
    matches!(said, Ok(Ok(said)) if said == greeting)
}

async fn readable(path: String) -> bool {
    let read = tokio::task::spawn_blocking(move || {
        use std::io::Read as _;
        let mut block = [0_u8; 4096];
        std::fs::File::open(path)
            .and_then(|mut file| file.read(&mut block))
            .is_ok()
    });
    read.await.unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use super::*;
    use cobaltcore_ha_wire::Disk;
    use tokio::io::AsyncWriteExt as _;

    fn network(protocol: &str, ports: &[u16]) -> Found {
        Found {
            disk: Disk {
                kind: "network".into(),
                source: format!("{protocol}:vms/a_disk"),
            },
            protocol: Some(protocol.into()),
            servers: ports
                .iter()
                .map(|port| ("127.0.0.1".to_owned(), Some(*port)))
                .collect(),
        }
    }

    fn file(path: &std::path::Path) -> Found {
        Found {
            disk: Disk {
                kind: "file".into(),
                source: path.display().to_string(),
            },
            protocol: None,
            servers: Vec::new(),
        }
    }

    async fn server(greeting: &'static [u8]) -> u16 {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let _ = stream.write_all(greeting).await;
            }
        });
        port
    }

    #[tokio::test]
    async fn a_disk_elsewhere_is_there_when_one_of_its_servers_greets() {
        let (ceph, other) = (server(b"ceph v2\nxxxx").await, server(b"SSH-2.0-x").await);
        assert!(is_back(vec![network("rbd", &[other, ceph])]).await);
        assert!(
            !is_back(vec![network("rbd", &[other])]).await,
            "somebody else listens there"
        );
        assert!(
            !is_back(vec![network("rbd", &[])]).await,
            "nobody says who serves it"
        );
        assert!(
            !is_back(vec![network("iscsi", &[ceph])]).await,
            "its servers do not greet"
        );
        let block = server(b"NBDMAGICIHAVEOPT").await;
        assert!(is_back(vec![network("nbd", &[block]), network("rbd", &[ceph])]).await);
        assert!(!is_back(vec![network("nbd", &[block]), network("rbd", &[other])]).await);
    }

    #[tokio::test]
    async fn a_disk_of_this_host_is_there_when_it_can_be_read() {
        let folder = tempfile::tempdir().unwrap();
        let disk = folder.path().join("disk");
        assert!(!is_back(vec![file(&disk)]).await);
        std::fs::write(&disk, "x").unwrap();
        assert!(is_back(vec![file(&disk)]).await);
        let empty = Found {
            disk: Disk {
                source: String::new(),
                ..file(&disk).disk
            },
            ..file(&disk)
        };
        assert!(
            is_back(vec![file(&disk), empty.clone()]).await,
            "an empty drive is no disk"
        );
        assert!(!is_back(vec![empty]).await);
        assert!(!is_back(Vec::new()).await);
    }
}
