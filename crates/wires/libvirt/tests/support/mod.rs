// SPDX-License-Identifier: Apache-2.0
//! A small host on the server half of the crate: two guests, facts that do not change, and switches for bad behaviour.
#![allow(dead_code, clippy::unwrap_used)]

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use cobaltcore_libvirt::client::{Connection, Options};
use cobaltcore_libvirt::error::{RpcError, code, domain};
use cobaltcore_libvirt::event::EventBody;
use cobaltcore_libvirt::procedure::{Procedure, calls};
use cobaltcore_libvirt::server::{Client, Handler, Listener, Reply, Request, ServerOptions, serve};
use cobaltcore_libvirt::transport::Stream;
use cobaltcore_libvirt::types::{
    Domain, DomainInfo, DomainState, DomainStats, JobInfo, JobStats, NodeInfo, Params, Value,
};
use cobaltcore_libvirt::xdr::List;
use parking_lot::Mutex;
use uuid::Uuid;

pub(crate) const CAPABILITIES: &str = "<capabilities>\n  <host>\n    <cpu>\n      <arch>x86_64</arch>\n    </cpu>\n  </host>\n</capabilities>\n";

/// The host.
#[derive(Default)]
pub(crate) struct TestHost {
    pub(crate) clients: Mutex<Vec<Client>>,
    pub(crate) calls: AtomicU64,
    /// `hostname` is never answered while this is set.
    pub(crate) hang: AtomicBool,
    pub(crate) slow: Mutex<Option<Duration>>,
}

pub(crate) fn alpha() -> Domain {
    Domain::new("alpha", Uuid::from_u128(0xa1), 1)
}

pub(crate) fn beta() -> Domain {
    Domain::new("beta", Uuid::from_u128(0xb2), -1)
}

fn find(test: impl Fn(&Domain) -> bool) -> Result<Domain, RpcError> {
    [alpha(), beta()]
        .into_iter()
        .find(test)
        .ok_or_else(|| RpcError::no_domain(&Domain::by_uuid(Uuid::nil())))
}

impl TestHost {
    pub(crate) fn publish(&self, guest: &Domain, body: &EventBody) {
        self.clients
            .lock()
            .iter()
            .for_each(|client| client.publish(guest, body));
    }

    fn host_call(request: &Request) -> Option<Result<Reply, RpcError>> {
        Some(match request.procedure {
            Procedure::CONNECT_GET_TYPE => request.answer::<calls::ConnectGetType>(|()| Ok("QEMU".into())),
            Procedure::CONNECT_GET_VERSION => request.answer::<calls::ConnectGetVersion>(|()| Ok(7_002_022)),
            Procedure::CONNECT_GET_LIB_VERSION => {
                request.answer::<calls::ConnectGetLibVersion>(|()| Ok(9_000_000))
            }
            Procedure::CONNECT_GET_URI => {
                request.answer::<calls::ConnectGetUri>(|()| Ok("qemu:///system".into()))
            }
            Procedure::CONNECT_GET_CAPABILITIES => {
                request.answer::<calls::ConnectGetCapabilities>(|()| Ok(CAPABILITIES.into()))
            }
            Procedure::NODE_GET_INFO => request.answer::<calls::NodeGetInfo>(|()| {
                Ok(NodeInfo {
                    model: "x86_64".into(),
                    memory_kib: 4096,
                    cpus: 8,
                    mhz: 2000,
                    nodes: 2,
                    sockets: 1,
                    cores: 4,
                    threads: 1,
                })
            }),
            Procedure::CONNECT_SUPPORTS_FEATURE => request.answer::<calls::ConnectSupportsFeature>(|_| Ok(0)),
            _ => return None,
        })
    }

    fn guest_call(request: &Request) -> Result<Reply, RpcError> {
        let by_uuid = |dom: &Domain| find(|guest| guest.uuid == dom.uuid);
        match request.procedure {
            Procedure::CONNECT_LIST_ALL_DOMAINS => {
                request.answer::<calls::ConnectListAllDomains>(|(_, flags)| {
                    let all = [alpha(), beta()].into_iter();
                    let wanted = all.filter(|guest| {
                        flags.trailing_zeros() >= 2
                            || (flags & 1 != 0 && guest.is_active())
                            || (flags & 2 != 0 && !guest.is_active())
                    });
                    let list: Vec<Domain> = wanted.collect();
                    let count = list.len() as u32;
                    Ok((List(list), count))
                })
            }
            Procedure::DOMAIN_LOOKUP_BY_NAME => {
                request.answer::<calls::DomainLookupByName>(|name| find(|guest| guest.name == name))
            }
            Procedure::DOMAIN_LOOKUP_BY_UUID => {
                request.answer::<calls::DomainLookupByUuid>(|uuid| find(|guest| guest.uuid == uuid))
            }
            Procedure::DOMAIN_LOOKUP_BY_ID => {
                request.answer::<calls::DomainLookupById>(|id| find(|guest| guest.id == id))
            }
            Procedure::DOMAIN_GET_STATE => request.answer::<calls::DomainGetState>(|(dom, _)| {
                let active = by_uuid(&dom)?.is_active();
                Ok(DomainState {
                    state: if active { 1 } else { 5 },
                    reason: 1,
                })
            }),
            Procedure::DOMAIN_GET_INFO => request.answer::<calls::DomainGetInfo>(|dom| {
                by_uuid(&dom)?;
                Ok(DomainInfo {
                    state: 1,
                    max_memory_kib: 65536,
                    memory_kib: 65536,
                    vcpus: 2,
                    cpu_time_ns: 7,
                })
            }),
            Procedure::DOMAIN_GET_XML_DESC => request.answer::<calls::DomainGetXmlDesc>(|(dom, _)| {
                Ok(format!(
                    "<domain type='kvm'>\n  <name>{}</name>\n</domain>\n",
                    by_uuid(&dom)?.name
                ))
            }),
            Procedure::DOMAIN_GET_JOB_STATS => request.answer::<calls::DomainGetJobStats>(|(dom, _)| {
                by_uuid(&dom)?;
                let params = Params::default()
                    .with("operation", Value::Int(5))
                    .with("time_elapsed", Value::ULLong(1234))
                    .with("data_total", Value::ULLong(10 << 20))
                    .with("data_remaining", Value::ULLong(1 << 20));
                Ok(JobStats { kind: 2, params })
            }),
            Procedure::DOMAIN_GET_JOB_INFO => {
                request.answer::<calls::DomainGetJobInfo>(|_| Ok(JobInfo::default()))
            }
            Procedure::CONNECT_GET_ALL_DOMAIN_STATS => {
                request.answer::<calls::ConnectGetAllDomainStats>(|_| {
                    let params = Params::default().with("state.state", Value::Int(1));
                    Ok(List(vec![DomainStats {
                        domain: alpha(),
                        params,
                    }]))
                })
            }
            Procedure::DOMAIN_SUSPEND => {
                request.answer::<calls::DomainSuspend>(|dom| by_uuid(&dom).map(|_| ()))
            }
            other => Err(RpcError::unsupported(other)),
        }
    }
}

impl Handler for TestHost {
    async fn open(&self, client: &Client, uri: &str, _: bool) -> Result<(), RpcError> {
        if !uri.starts_with("qemu:") {
            let text = format!("no connection driver available for {uri}");
            return Err(RpcError::new(code::NO_CONNECT, domain::REMOTE, text));
        }
        self.clients.lock().push(client.clone());
        Ok(())
    }

    async fn call(&self, _: &Client, request: Request) -> Result<Reply, RpcError> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        let slow = *self.slow.lock();
        if request.procedure == Procedure::CONNECT_GET_HOSTNAME {
            if self.hang.load(Ordering::Relaxed) {
                std::future::pending::<()>().await;
            }
            if let Some(pause) = slow {
                tokio::time::sleep(pause).await;
            }
            return request.answer::<calls::ConnectGetHostname>(|()| Ok("sim-host".into()));
        }
        Self::host_call(&request).unwrap_or_else(|| Self::guest_call(&request))
    }

    fn closed(&self, client: &Client) {
        self.clients.lock().retain(|known| known.id() != client.id());
    }
}

/// A client and the host it talks to, over an in-process pipe.
pub(crate) async fn pair(client: Options, server: ServerOptions) -> (Connection, Arc<TestHost>, Client) {
    let host = Arc::new(TestHost::default());
    let (here, there) = tokio::io::duplex(256 * 1024);
    let peer = serve(Stream::new(there, "pipe"), Arc::clone(&host), server);
    let connection = Connection::over(Stream::new(here, "pipe"), "qemu:///system", client)
        .await
        .unwrap();
    (connection, host, peer)
}

/// A host on a local socket; ends with the value.
pub(crate) struct Daemon {
    pub(crate) host: Arc<TestHost>,
    pub(crate) path: PathBuf,
    task: tokio::task::JoinHandle<()>,
}

impl Daemon {
    pub(crate) fn start(path: PathBuf, options: ServerOptions) -> Self {
        let host = Arc::new(TestHost::default());
        let listener = Listener::unix(&path).unwrap();
        let handler = Arc::clone(&host);
        let task = tokio::spawn(async move { listener.run(handler, options, |_| {}).await });
        Self { host, path, task }
    }

    pub(crate) fn uri(&self) -> String {
        format!("qemu+unix:///system?socket={}", self.path.display())
    }

    /// The process dies: the socket and all connections with it.
    pub(crate) async fn die(self) {
        self.task.abort();
        self.task.await.ok();
        self.host.clients.lock().iter().for_each(Client::close);
    }
}
