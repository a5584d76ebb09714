// SPDX-License-Identifier: Apache-2.0
//! A scripted libvirt host on the server half of the wire: guests that start, stop and move on command, every call
//! counted, and answers that can be made wrong on purpose. It stands where libvirtd would, behind a real socket.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};

use cobaltcore_libvirt::error::{RpcError, code, domain};
use cobaltcore_libvirt::event::EventBody;
use cobaltcore_libvirt::procedure::{Procedure, calls};
use cobaltcore_libvirt::server::{Client, Handler, Listener, Reply, Request, ServerOptions};
use cobaltcore_libvirt::types::{Domain, DomainState, DomainStats, JobStats, NodeInfo, Params, Value};
use cobaltcore_libvirt::xdr::List;
use parking_lot::Mutex;
use uuid::Uuid;

/// What a guest is and does.
#[derive(Debug, Clone)]
struct FarGuest {
    name: String,
    /// Its number while it runs.
    id: i32,
    state: i32,
    xml: String,
    /// Statistics of its job, if it has one.
    job: JobStats,
    /// Statistics of its last finished job.
    finished: JobStats,
}

/// What the host answers when it is asked about itself.
#[derive(Debug, Clone)]
struct Facts {
    driver: String,
    capabilities: String,
    domain_capabilities: Option<String>,
    /// Free pages, cell by cell and size by size; `None` for a driver that does not tell.
    free_pages: Option<Vec<u64>>,
}

#[derive(Debug)]
struct Inner {
    guests: Mutex<BTreeMap<Uuid, FarGuest>>,
    facts: Mutex<Facts>,
    clients: Mutex<Vec<Client>>,
    counts: Mutex<BTreeMap<i32, u64>>,
    calls: AtomicU64,
    next_id: AtomicI32,
    /// Procedures that are answered with an error.
    refused: Mutex<BTreeMap<i32, RpcError>>,
    /// Whether it says nothing to anybody.
    frozen: AtomicBool,
}

/// A scripted host. It goes away with this value.
#[derive(Debug)]
pub struct FarHost {
    inner: Arc<Inner>,
    socket: PathBuf,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for FarHost {
    fn drop(&mut self) {
        self.hang_up();
        self.task.abort();
    }
}

/// Capabilities of a host with this many cells of four processors and 64 GiB each.
pub fn capabilities(cells: u32) -> String {
    let cell = |id: u32| {
        let cpus: String = (id * 4..id * 4 + 4)
            .map(|cpu| format!("<cpu id='{cpu}'/>"))
            .collect();
        format!(
            "<cell id='{id}'><memory unit='KiB'>{}</memory><cpus num='4'>{cpus}</cpus></cell>",
            64 << 20
        )
    };
    let cells_text: String = (0..cells).map(cell).collect();
    format!(
        "<capabilities><host><cpu><arch>x86_64</arch></cpu><topology><cells num='{cells}'>{cells_text}</cells>\
         </topology></host></capabilities>"
    )
}

const DOMAIN_CAPABILITIES: &str = "<domainCapabilities><domain>kvm</domain><arch>x86_64</arch>\
    <cpu><mode name='host-passthrough' supported='yes'/></cpu><devices><disk supported='yes'/></devices>\
    <features><vmcoreinfo supported='yes'/></features></domainCapabilities>";

/// The definition of a small guest whose memory is bound to a host cell.
pub fn definition(name: &str, cell: u32) -> String {
    format!(
        "<domain type='kvm'><name>{name}</name><memory unit='MiB'>512</memory><vcpu>2</vcpu>\
         <numatune><memory mode='strict' nodeset='{cell}'/></numatune></domain>"
    )
}

impl FarHost {
    /// Listens on a socket in `directory`.
    pub fn start(directory: &Path) -> std::io::Result<Self> {
        Self::listen(&directory.join("libvirt-sock"))
    }

    /// Listens on this socket.
    pub fn listen(socket: &Path) -> std::io::Result<Self> {
        let facts = Facts {
            driver: "QEMU".to_owned(),
            capabilities: capabilities(4),
            domain_capabilities: Some(DOMAIN_CAPABILITIES.to_owned()),
            free_pages: None,
        };
        let inner = Arc::new(Inner {
            guests: Mutex::default(),
            facts: Mutex::new(facts),
            clients: Mutex::default(),
            counts: Mutex::default(),
            calls: AtomicU64::new(0),
            next_id: AtomicI32::new(1),
            refused: Mutex::default(),
            frozen: AtomicBool::new(false),
        });
        let listener = Listener::unix(socket)?;
        let handler = Arc::clone(&inner);
        let task = tokio::spawn(async move {
            let seen = Arc::clone(&handler);
            listener
                .run(handler, ServerOptions::default(), move |client| {
                    let mut clients = seen.clients.lock();
                    client.set_frozen(seen.frozen.load(Ordering::Relaxed));
                    clients.push(client);
                })
                .await;
        });
        Ok(Self {
            inner,
            socket: socket.to_owned(),
            task,
        })
    }

    /// Where it listens.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Calls since the start that a driver answers; setting up connections and events is not counted.
    pub fn calls(&self) -> u64 {
        self.inner.calls.load(Ordering::Relaxed)
    }

    /// Calls since the start by procedure.
    pub fn calls_by_procedure(&self) -> BTreeMap<String, u64> {
        let counts = self.inner.counts.lock();
        let named = counts
            .iter()
            .map(|(number, count)| (Procedure(*number).to_string(), *count));
        named.collect()
    }

    /// Another driver's name, such as `CH`.
    pub fn set_driver(&self, driver: &str) {
        driver.clone_into(&mut self.inner.facts.lock().driver);
    }

    /// Other capabilities, right or wrong.
    pub fn set_capabilities(&self, xml: &str) {
        xml.clone_into(&mut self.inner.facts.lock().capabilities);
    }

    /// How many pages are free, cell by cell and size by size.
    pub fn set_free_pages(&self, counts: Vec<u64>) {
        self.inner.facts.lock().free_pages = Some(counts);
    }

    /// Answers a procedure with an error, or as usual again.
    pub fn refuse(&self, procedure: Procedure, error: Option<RpcError>) {
        let mut refused = self.inner.refused.lock();
        match error {
            Some(error) => refused.insert(procedure.0, error),
            None => refused.remove(&procedure.0),
        };
    }

    /// Defines a guest that is off, and tells.
    pub fn define(&self, server: Uuid, name: &str, xml: &str) {
        let guest = FarGuest {
            name: name.to_owned(),
            id: -1,
            state: 5,
            xml: xml.to_owned(),
            job: JobStats::default(),
            finished: JobStats::default(),
        };
        let new = self.inner.guests.lock().insert(server, guest).is_none();
        self.tell(server, 0, i32::from(!new));
    }

    /// Defines so many guests, spread over the cells, all of them running.
    pub fn populate(&self, count: u32) -> Vec<Uuid> {
        let servers = (1..=count).map(|number| {
            let server = Uuid::from_u128(0xfeed_0000_0000_0000_0000_0000_0000_0000 + u128::from(number));
            let name = format!("instance-{number:08x}");
            self.define(server, &name, &definition(&name, number % 4));
            self.start_guest(server);
            server
        });
        servers.collect()
    }

    fn change(&self, server: Uuid, change: impl FnOnce(&mut FarGuest)) {
        if let Some(guest) = self.inner.guests.lock().get_mut(&server) {
            change(guest);
        }
    }

    /// Starts a guest and tells in libvirt's order.
    pub fn start_guest(&self, server: Uuid) {
        let id = self.inner.next_id.fetch_add(1, Ordering::Relaxed);
        self.change(server, |guest| (guest.id, guest.state) = (id, 1));
        self.tell(server, 4, 0);
        self.tell(server, 2, 0);
    }

    /// Stops a guest (5 destroyed, 2 crashed, 3 migrated are the usual details) and tells.
    pub fn stop_guest(&self, server: Uuid, detail: i32) {
        self.change(server, |guest| (guest.id, guest.state) = (-1, 5));
        self.tell(server, 5, detail);
    }

    /// Pauses a guest and tells.
    pub fn pause_guest(&self, server: Uuid) {
        self.change(server, |guest| guest.state = 3);
        self.tell(server, 3, 0);
    }

    /// Forgets a guest without a word, as a transient one goes.
    pub fn forget(&self, server: Uuid) {
        self.inner.guests.lock().remove(&server);
    }

    /// Another definition, without a word.
    pub fn set_xml(&self, server: Uuid, xml: &str) {
        self.change(server, |guest| xml.clone_into(&mut guest.xml));
    }

    /// The statistics of a guest's job; type 0 is none.
    pub fn set_job(&self, server: Uuid, job: JobStats) {
        self.change(server, |guest| guest.job = job);
    }

    /// The statistics of a guest's last finished job.
    pub fn set_finished_job(&self, server: Uuid, job: JobStats) {
        self.change(server, |guest| guest.finished = job);
    }

    /// Tells a lifecycle event.
    pub fn tell(&self, server: Uuid, event: i32, detail: i32) {
        self.publish(server, &EventBody::Lifecycle { event, detail });
    }

    /// Tells any event.
    pub fn publish(&self, server: Uuid, body: &EventBody) {
        let named = {
            let guests = self.inner.guests.lock();
            match guests.get(&server) {
                Some(guest) => Domain::new(guest.name.clone(), server, guest.id),
                None => Domain::by_uuid(server),
            }
        };
        let mut clients = self.inner.clients.lock();
        clients.retain(|client| !client.is_closed());
        clients.iter().for_each(|client| client.publish(&named, body));
    }

    /// Sends every client away.
    pub fn hang_up(&self) {
        self.inner
            .clients
            .lock()
            .drain(..)
            .for_each(|client| client.close());
    }

    /// Neither reads nor writes any more, as a stopped process, also to who comes now; or continues.
    pub fn freeze(&self, yes: bool) {
        let clients = self.inner.clients.lock();
        self.inner.frozen.store(yes, Ordering::Relaxed);
        clients.iter().for_each(|client| client.set_frozen(yes));
    }

    /// Sends bytes that are no protocol to every client.
    pub fn speak_garbage(&self, bytes: &'static [u8]) {
        let clients = self.inner.clients.lock();
        clients.iter().for_each(|client| client.send_raw(bytes.into()));
    }
}

impl Inner {
    fn guest(&self, domain: &Domain) -> Result<FarGuest, RpcError> {
        let guests = self.guests.lock();
        guests
            .get(&domain.uuid)
            .cloned()
            .ok_or_else(|| RpcError::no_domain(domain))
    }

    fn list(&self) -> Vec<Domain> {
        let guests = self.guests.lock();
        let all = guests
            .iter()
            .map(|(server, guest)| Domain::new(guest.name.clone(), *server, guest.id));
        all.collect()
    }

    fn stats(&self) -> Vec<DomainStats> {
        let guests = self.guests.lock();
        let all = guests.iter().map(|(server, guest)| DomainStats {
            domain: Domain::new(guest.name.clone(), *server, guest.id),
            params: Params::default().with("state.state", Value::Int(guest.state)),
        });
        all.collect()
    }

    fn answer(&self, request: &Request) -> Result<Reply, RpcError> {
        let facts = self.facts.lock().clone();
        match request.procedure {
            Procedure::CONNECT_GET_TYPE => request.answer::<calls::ConnectGetType>(|()| Ok(facts.driver)),
            Procedure::CONNECT_GET_VERSION => request.answer::<calls::ConnectGetVersion>(|()| Ok(7_002_022)),
            Procedure::CONNECT_GET_LIB_VERSION => {
                request.answer::<calls::ConnectGetLibVersion>(|()| Ok(9_000_000))
            }
            Procedure::CONNECT_SUPPORTS_FEATURE => request.answer::<calls::ConnectSupportsFeature>(|_| Ok(0)),
            Procedure::CONNECT_GET_CAPABILITIES => {
                request.answer::<calls::ConnectGetCapabilities>(|()| Ok(facts.capabilities))
            }
            Procedure::CONNECT_GET_DOMAIN_CAPABILITIES => match facts.domain_capabilities {
                Some(xml) => request.answer::<calls::ConnectGetDomainCapabilities>(|_| Ok(xml)),
                None => Err(RpcError::unsupported(request.procedure)),
            },
            Procedure::NODE_GET_FREE_PAGES => match facts.free_pages {
                Some(counts) => request.answer::<calls::NodeGetFreePages>(|_| Ok(List(counts))),
                None => Err(RpcError::unsupported(request.procedure)),
            },
            Procedure::NODE_GET_INFO => request.answer::<calls::NodeGetInfo>(|()| {
                Ok(NodeInfo {
                    model: "x86_64".to_owned(),
                    memory_kib: 8 << 20,
                    cpus: 8,
                    nodes: 1,
                    ..NodeInfo::default()
                })
            }),
            Procedure::CONNECT_LIST_ALL_DOMAINS => request.answer::<calls::ConnectListAllDomains>(|_| {
                let all = self.list();
                let count = u32::try_from(all.len()).unwrap_or(u32::MAX);
                Ok((List(all), count))
            }),
            Procedure::CONNECT_GET_ALL_DOMAIN_STATS => {
                request.answer::<calls::ConnectGetAllDomainStats>(|_| Ok(List(self.stats())))
            }
            _ => self.answer_guest(request),
        }
    }

    fn answer_guest(&self, request: &Request) -> Result<Reply, RpcError> {
        match request.procedure {
            Procedure::DOMAIN_GET_XML_DESC => {
                request.answer::<calls::DomainGetXmlDesc>(|(guest, _)| Ok(self.guest(&guest)?.xml))
            }
            Procedure::DOMAIN_GET_STATE => request.answer::<calls::DomainGetState>(|(guest, _)| {
                let state = self.guest(&guest)?.state;
                Ok(DomainState { state, reason: 0 })
            }),
            Procedure::DOMAIN_GET_JOB_STATS => {
                request.answer::<calls::DomainGetJobStats>(|(guest, flags)| {
                    let guest = self.guest(&guest)?;
                    if flags & 1 != 0 {
                        return Ok(guest.finished);
                    }
                    if guest.id < 0 {
                        let text = "Requested operation is not valid: domain is not running";
                        return Err(RpcError::new(code::OPERATION_INVALID, domain::QEMU, text));
                    }
                    Ok(guest.job)
                })
            }
            other => Err(RpcError::unsupported(other)),
        }
    }
}

impl Handler for Inner {
    async fn open(&self, _: &Client, uri: &str, _: bool) -> Result<(), RpcError> {
        let driver = self.facts.lock().driver.to_ascii_lowercase();
        if uri.starts_with(&format!("{driver}:")) {
            return Ok(());
        }
        let text = format!("no connection driver available for {uri}");
        Err(RpcError::new(code::NO_CONNECT, domain::REMOTE, text))
    }

    async fn call(&self, _: &Client, request: Request) -> Result<Reply, RpcError> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        *self.counts.lock().entry(request.procedure.0).or_default() += 1;
        let refused = self.refused.lock().get(&request.procedure.0).cloned();
        match refused {
            Some(error) => Err(error),
            None => self.answer(&request),
        }
    }
}
