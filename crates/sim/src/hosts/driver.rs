// SPDX-License-Identifier: Apache-2.0
//! The driver behind one host's libvirt daemon: facts of the host, and which clients hear of its events. What concerns a
//! domain is in `guests`.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use cobaltcore_libvirt::error::{RpcError, code, domain};
use cobaltcore_libvirt::event::EventBody;
use cobaltcore_libvirt::procedure::{Procedure, calls};
use cobaltcore_libvirt::server::{Client, Handler, Reply, Request};
use cobaltcore_libvirt::types::{CpuMap, NodeInfo, NodeStat};
use cobaltcore_libvirt::xdr::{List, Opaque};
use parking_lot::Mutex;

use super::{Delays, xml};
use crate::world::{Driver, Host, HostEvent, HostName, State, World};

/// Memory the host itself needs, KiB.
const HOST_OWN_KIB: u64 = 2 << 20;

/// The driver of one host.
pub(super) struct HostDriver {
    pub(super) world: World,
    pub(super) name: HostName,
    driver: Driver,
    clients: Mutex<Vec<Client>>,
    frozen: AtomicBool,
    calls: AtomicU64,
    delays: Delays,
}

impl HostDriver {
    pub(super) fn new(world: World, name: HostName) -> Self {
        // Events arrive while the world is locked; what they need must be known before.
        let driver = world.read(|state| state.hosts.get(&name).map_or(Driver::Qemu, |host| host.driver));
        Self {
            world,
            name,
            driver,
            clients: Mutex::default(),
            frozen: AtomicBool::new(false),
            calls: AtomicU64::new(0),
            delays: Mutex::default(),
        }
    }

    pub(super) fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }

    pub(super) fn clients(&self) -> Vec<Client> {
        self.clients.lock().clone()
    }

    pub(super) fn slow(&self, procedure: Procedure, by: Duration) {
        self.delays.lock().insert(procedure, by);
    }

    pub(super) fn arrived(&self, client: Client) {
        client.set_frozen(self.frozen.load(Ordering::Relaxed));
        let mut clients = self.clients.lock();
        clients.retain(|known| !known.is_closed());
        clients.push(client);
    }

    pub(super) fn freeze(&self, yes: bool) {
        self.frozen.store(yes, Ordering::Relaxed);
        self.clients
            .lock()
            .iter()
            .for_each(|client| client.set_frozen(yes));
    }

    pub(super) fn send_all_away(&self) {
        for client in self.clients.lock().drain(..) {
            client.close();
        }
    }

    /// Passes an event on, unless the host's driver has no such event.
    pub(super) fn publish(&self, event: &HostEvent) {
        let sends = match self.driver {
            Driver::Qemu => true,
            Driver::CloudHypervisor => {
                matches!(
                    event.body,
                    EventBody::Lifecycle { event: 0 | 1 | 5, .. }
                        | EventBody::Lifecycle { event: 2, detail: 0 }
                )
            }
        };
        if sends {
            self.clients
                .lock()
                .iter()
                .for_each(|client| client.publish(&event.domain, &event.body));
        }
    }

    /// Looks at the host.
    pub(super) fn host<R>(
        &self,
        look: impl FnOnce(&State, &Host) -> Result<R, RpcError>,
    ) -> Result<R, RpcError> {
        self.world.read(|state| match state.hosts.get(&self.name) {
            Some(host) => look(state, host),
            None => Err(RpcError::new(
                code::INTERNAL,
                domain::QEMU,
                "internal error: the host is gone",
            )),
        })
    }

    fn host_call(&self, request: &Request) -> Option<Result<Reply, RpcError>> {
        Some(match request.procedure {
            Procedure::CONNECT_GET_TYPE => request.answer::<calls::ConnectGetType>(|()| {
                self.host(|_, host| {
                    Ok(match host.driver {
                        Driver::Qemu => "QEMU".to_owned(),
                        Driver::CloudHypervisor => "CH".to_owned(),
                    })
                })
            }),
            Procedure::CONNECT_GET_VERSION => request.answer::<calls::ConnectGetVersion>(|()| {
                self.host(|_, host| {
                    Ok(match host.driver {
                        Driver::Qemu => 7_002_022,
                        Driver::CloudHypervisor => 44_000_000,
                    })
                })
            }),
            Procedure::CONNECT_GET_LIB_VERSION => {
                request.answer::<calls::ConnectGetLibVersion>(|()| Ok(9_000_000))
            }
            Procedure::CONNECT_GET_HOSTNAME => request.answer::<calls::ConnectGetHostname>(|()| {
                self.host(|_, host| Ok(host.hypervisor_hostname.clone()))
            }),
            Procedure::CONNECT_GET_URI => request.answer::<calls::ConnectGetUri>(|()| {
                self.host(|_, host| {
                    Ok(match host.driver {
                        Driver::Qemu => "qemu:///system".to_owned(),
                        Driver::CloudHypervisor => "ch:///system".to_owned(),
                    })
                })
            }),
            Procedure::CONNECT_IS_SECURE => request.answer::<calls::ConnectIsSecure>(|()| Ok(0)),
            Procedure::CONNECT_SUPPORTS_FEATURE => request.answer::<calls::ConnectSupportsFeature>(|_| Ok(0)),
            Procedure::CONNECT_GET_MAX_VCPUS => request.answer::<calls::ConnectGetMaxVcpus>(|_| Ok(288)),
            Procedure::CONNECT_GET_CAPABILITIES => request.answer::<calls::ConnectGetCapabilities>(|()| {
                self.host(|_, host| Ok(xml::capabilities(host)))
            }),
            Procedure::CONNECT_GET_DOMAIN_CAPABILITIES => request
                .answer::<calls::ConnectGetDomainCapabilities>(|_| {
                    self.host(|_, host| Ok(xml::domain_capabilities(host)))
                }),
            Procedure::CONNECT_GET_SYSINFO => {
                request.answer::<calls::ConnectGetSysinfo>(|_| self.host(|_, host| Ok(sysinfo(host))))
            }
            _ => return self.node_call(request),
        })
    }

    fn node_call(&self, request: &Request) -> Option<Result<Reply, RpcError>> {
        Some(match request.procedure {
            Procedure::NODE_GET_INFO => request.answer::<calls::NodeGetInfo>(|()| {
                self.host(|_, host| {
                    let nodes = host.cells.len().max(1) as u32;
                    Ok(NodeInfo {
                        model: "x86_64".to_owned(),
                        memory_kib: host.memory_mb * 1024,
                        cpus: host.cpus() as i32,
                        mhz: 2450,
                        nodes: nodes as i32,
                        sockets: (host.sockets / nodes).max(1) as i32,
                        cores: host.cores as i32,
                        threads: host.threads as i32,
                    })
                })
            }),
            Procedure::NODE_GET_FREE_MEMORY => request
                .answer::<calls::NodeGetFreeMemory>(|()| self.host(|_, host| Ok(free_kib(host) * 1024))),
            Procedure::NODE_GET_CELLS_FREE_MEMORY => {
                request.answer::<calls::NodeGetCellsFreeMemory>(|(start, most)| {
                    self.host(|_, host| {
                        let each = free_kib(host) * 1024 / host.cells.len().max(1) as u64;
                        let wanted = host.cells.iter().skip(usize::try_from(start).unwrap_or(0));
                        Ok(List(
                            wanted
                                .take(usize::try_from(most).unwrap_or(0))
                                .map(|_| each)
                                .collect(),
                        ))
                    })
                })
            }
            Procedure::NODE_GET_FREE_PAGES => {
                request.answer::<calls::NodeGetFreePages>(|(sizes, start, count, _)| {
                    self.host(|_, host| {
                        let each = free_kib(host) / host.cells.len().max(1) as u64;
                        let cells = host
                            .cells
                            .iter()
                            .skip(usize::try_from(start).unwrap_or(0))
                            .take(count as usize);
                        let pages = |size: &u32| if *size == 4 { each / 4 } else { 0 };
                        Ok(List(
                            cells
                                .flat_map(|_| sizes.iter().map(pages).collect::<Vec<_>>())
                                .collect(),
                        ))
                    })
                })
            }
            Procedure::NODE_GET_MEMORY_STATS => {
                request.answer::<calls::NodeGetMemoryStats>(|(count, cell, _)| {
                    self.host(|_, host| memory_stats(host, count, cell))
                })
            }
            Procedure::NODE_GET_CPU_STATS => request.answer::<calls::NodeGetCpuStats>(|(_, count, _)| {
                self.host(|state, host| Ok(cpu_stats(state, host, count)))
            }),
            Procedure::NODE_GET_CPU_MAP => request.answer::<calls::NodeGetCpuMap>(|_| {
                self.host(|_, host| {
                    let cpus = host.cpus() as usize;
                    let mut map = vec![0xff; cpus.div_ceil(8)];
                    if let (Some(last), rest @ 1..) = (map.last_mut(), cpus % 8) {
                        *last = (1u16 << rest).wrapping_sub(1) as u8;
                    }
                    Ok(CpuMap {
                        map: Opaque(map),
                        online: cpus as u32,
                        present: cpus as i32,
                    })
                })
            }),
            _ => return None,
        })
    }
}

/// KiB nobody uses: what guests that run have is taken whole.
fn free_kib(host: &Host) -> u64 {
    let used: u64 = host.running().map(|domain| domain.memory_kib).sum();
    (host.memory_mb * 1024).saturating_sub(used + HOST_OWN_KIB)
}

type MemoryStats = (
    List<NodeStat, { cobaltcore_libvirt::limits::NODE_MEMORY_STATS }>,
    i32,
);

/// A caller first asks how many there are, then for exactly that many.
fn memory_stats(host: &Host, count: i32, cell: i32) -> Result<MemoryStats, RpcError> {
    let stat = |field: &str, value: u64| NodeStat {
        field: field.to_owned(),
        value,
    };
    let share = if cell < 0 {
        1
    } else {
        host.cells.len().max(1) as u64
    };
    let mut stats = vec![
        stat("total", host.memory_mb * 1024 / share),
        stat("free", free_kib(host) / share),
    ];
    if cell < 0 {
        stats.extend([stat("buffers", 16_384), stat("cached", 524_288)]);
    }
    let all = stats.len() as i32;
    if count == 0 {
        return Ok((List(Vec::new()), all));
    }
    if count != all {
        let text = format!("invalid argument: nparams in virNodeGetMemoryStats must be equal to {all}");
        return Err(RpcError::new(code::INVALID_ARG, domain::QEMU, text));
    }
    Ok((List(stats), all))
}

type CpuStats = (
    List<NodeStat, { cobaltcore_libvirt::limits::NODE_CPU_STATS }>,
    i32,
);

fn cpu_stats(state: &State, host: &Host, count: i32) -> CpuStats {
    let up = state.now.since(host.booted_at).as_nanos() as u64 * u64::from(host.cpus());
    let busy: u64 = host.running().map(|domain| domain.cpu_time(state.now)).sum();
    let stat = |field: &str, value: u64| NodeStat {
        field: field.to_owned(),
        value,
    };
    let stats = vec![
        stat("kernel", up / 100),
        stat("user", busy),
        stat("idle", up.saturating_sub(busy + up / 100)),
        stat("iowait", 0),
    ];
    let all = stats.len() as i32;
    if count == 0 {
        (List(Vec::new()), all)
    } else {
        (List(stats), all)
    }
}

fn sysinfo(host: &Host) -> String {
    format!(
        "<sysinfo type='smbios'>\n  <bios>\n    <entry name='vendor'>Simulated</entry>\n    <entry name='version'>1.0.0</entry>\n    <entry name='date'>04/01/2026</entry>\n  </bios>\n  <system>\n    <entry name='manufacturer'>Simulated</entry>\n    <entry name='product'>Rack Server</entry>\n    <entry name='serial'>{}</entry>\n    <entry name='uuid'>{}</entry>\n  </system>\n</sysinfo>\n",
        host.name, host.node_uuid
    )
}

impl Handler for HostDriver {
    async fn open(&self, _: &Client, uri: &str, _: bool) -> Result<(), RpcError> {
        let scheme = self.host(|_, host| {
            Ok(match host.driver {
                Driver::Qemu => "qemu:",
                Driver::CloudHypervisor => "ch:",
            })
        })?;
        if uri.starts_with(scheme) {
            return Ok(());
        }
        let text = format!("no connection driver available for {uri}");
        Err(RpcError::new(code::NO_CONNECT, domain::REMOTE, text))
    }

    async fn call(&self, _: &Client, request: Request) -> Result<Reply, RpcError> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        let delay = self.delays.lock().get(&request.procedure).copied();
        if let Some(delay) = delay {
            tokio::time::sleep(delay).await;
        }
        match self.host_call(&request) {
            Some(answer) => answer,
            None => self.guest_call(&request),
        }
    }

    fn closed(&self, client: &Client) {
        self.clients.lock().retain(|known| known.id() != client.id());
    }
}
