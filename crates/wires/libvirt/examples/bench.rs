// SPDX-License-Identifier: Apache-2.0
//! How fast the protocol goes on this machine: `cargo run --release -p cobaltcore-libvirt --example bench`.
//! Calls over a local socket to a host in the same process, events through a session, and decoding alone.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use cobaltcore_libvirt::client::{Connection, Delivery, Options};
use cobaltcore_libvirt::error::RpcError;
use cobaltcore_libvirt::event::{Event, EventBody, EventId};
use cobaltcore_libvirt::frame::{self, Header, PROGRAM_REMOTE, Status};
use cobaltcore_libvirt::procedure::{Domains, Procedure, calls};
use cobaltcore_libvirt::server::{Client, Handler, Listener, Reply, Request, ServerOptions};
use cobaltcore_libvirt::types::{Domain, DomainStats, Params, Value};
use cobaltcore_libvirt::xdr::{self, List};
use parking_lot::Mutex;
use uuid::Uuid;

const RUN: Duration = Duration::from_secs(2);

#[derive(Default)]
struct Host {
    clients: Mutex<Vec<Client>>,
}

impl Handler for Host {
    async fn open(&self, client: &Client, _: &str, _: bool) -> Result<(), RpcError> {
        self.clients.lock().push(client.clone());
        Ok(())
    }

    async fn call(&self, _: &Client, request: Request) -> Result<Reply, RpcError> {
        match request.procedure {
            Procedure::CONNECT_GET_LIB_VERSION => {
                request.answer::<calls::ConnectGetLibVersion>(|()| Ok(9_000_000))
            }
            Procedure::CONNECT_LIST_ALL_DOMAINS => {
                request.answer::<calls::ConnectListAllDomains>(|_| Ok((List(guests(50)), 50)))
            }
            other => Err(RpcError::unsupported(other)),
        }
    }
}

fn guests(count: u128) -> Vec<Domain> {
    (0..count)
        .map(|index| {
            Domain::new(
                format!("instance-{index:08x}"),
                Uuid::from_u128(index),
                index as i32,
            )
        })
        .collect()
}

/// Repeats `work` for a while and prints how often it went per second.
fn measure(name: &str, bytes: usize, mut work: impl FnMut()) {
    let begun = Instant::now();
    let mut rounds = 0_u64;
    while begun.elapsed() < RUN {
        (0..100).for_each(|_| work());
        rounds += 100;
    }
    let rate = rounds as f64 / begun.elapsed().as_secs_f64();
    println!(
        "{name:<44} {rate:>12.0}/s {:>9.1} MiB/s",
        rate * bytes as f64 / 1_048_576.0
    );
}

fn decoding() {
    let list: (Domains, u32) = (List(guests(1000)), 1000);
    let wire = xdr::to_bytes(&list).unwrap_or_default();
    measure("decode list of 1000 domains", wire.len(), || {
        assert!(xdr::from_bytes::<(Domains, u32)>(&wire).is_ok());
    });
    let params = (0..150).fold(Params::default(), |all, index| {
        all.with(format!("vcpu.{index}.time"), Value::ULLong(index))
    });
    let stats = List::<_, 16_384>(vec![DomainStats {
        domain: guests(1).remove(0),
        params,
    }]);
    let wire = xdr::to_bytes(&stats).unwrap_or_default();
    measure("decode statistics of one domain (150 fields)", wire.len(), || {
        assert!(xdr::from_bytes::<List<DomainStats, 16_384>>(&wire).is_ok());
    });
    let event = Event {
        callback: Some(1),
        domain: guests(1).remove(0),
        body: EventBody::Lifecycle { event: 5, detail: 1 },
    };
    let wire = frame::encode(&Header::message(PROGRAM_REMOTE, 318), &event).unwrap_or_default();
    measure("decode frame and lifecycle event", wire.len(), || {
        let mut buffer = BytesMut::from(&wire[..]);
        let frame = frame::decode(&mut buffer).ok().flatten();
        assert!(frame.is_some_and(|frame| Event::decode(318, &frame.payload).is_ok()));
    });
    let header = Header::call(PROGRAM_REMOTE, 273, 1).reply(Status::Ok);
    let wire = frame::encode(&header, &list).unwrap_or_default();
    measure("encode list of 1000 domains", wire.len(), || {
        assert!(frame::encode(&header, &list).is_ok());
    });
}

async fn calls_per_second(connection: &Connection, callers: usize, list: bool) {
    let begun = Instant::now();
    let workers = (0..callers).map(|_| {
        let connection = connection.clone();
        tokio::spawn(async move {
            let mut count = 0_u64;
            while begun.elapsed() < RUN {
                let ok = if list {
                    connection.list_all_domains(3).await.is_ok()
                } else {
                    connection.lib_version().await.is_ok()
                };
                count += u64::from(ok);
            }
            count
        })
    });
    let mut total = 0;
    for worker in workers.collect::<Vec<_>>() {
        total += worker.await.unwrap_or(0);
    }
    let rate = total as f64 / begun.elapsed().as_secs_f64();
    let what = if list { "list of 50" } else { "lib version" };
    println!(
        "{:<44} {rate:>12.0}/s",
        format!("{what}, {callers} callers, one connection")
    );
}

async fn events_per_second(connection: &Connection, host: &Host) -> Result<(), cobaltcore_libvirt::Error> {
    const COUNT: u64 = 200_000;
    let mut stream = connection.subscribe(&[EventId::LIFECYCLE]).await?.stream;
    let client = host.clients.lock().first().cloned();
    let Some(client) = client else { return Ok(()) };
    let begun = Instant::now();
    let guest = guests(1).remove(0);
    tokio::spawn(async move {
        for index in 0..COUNT {
            client.publish(&guest, &EventBody::Lifecycle { event: 3, detail: 0 });
            if index % 1000 == 999 {
                tokio::task::yield_now().await;
                tokio::time::sleep(Duration::from_micros(50)).await;
            }
        }
    });
    let (mut seen, mut missed) = (0, 0);
    while seen + missed < COUNT {
        match stream.next().await {
            Some(Delivery::Event(_)) => seen += 1,
            Some(Delivery::Lagged(count)) => missed += count,
            None => break,
        }
    }
    let rate = seen as f64 / begun.elapsed().as_secs_f64();
    println!(
        "{:<44} {rate:>12.0}/s (missed {missed})",
        "events through one connection"
    );
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    decoding();
    let path = std::env::temp_dir().join(format!("libvirt-bench-{}", std::process::id()));
    let listener = Listener::unix(&path)?;
    let host = Arc::new(Host::default());
    let handler = Arc::clone(&host);
    let options = ServerOptions {
        max_queued: 1 << 20,
        ..ServerOptions::default()
    };
    tokio::spawn(async move { listener.run(handler, options, |_| {}).await });
    let uri = format!("qemu+unix:///system?socket={}", path.display()).parse()?;
    let connection = Connection::connect(&uri, Options::default()).await?;
    for callers in [1, 4, 64] {
        calls_per_second(&connection, callers, false).await;
    }
    calls_per_second(&connection, 4, true).await;
    events_per_second(&connection, &host).await?;
    std::fs::remove_file(&path).ok();
    Ok(())
}
