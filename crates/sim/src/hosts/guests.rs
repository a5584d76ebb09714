// SPDX-License-Identifier: Apache-2.0
//! Calls about domains: lists, states, figures, jobs, and what a client may do to a guest. Nova finds out about the last
//! kind the way it always does, some time later.

use cobaltcore_libvirt::error::{RpcError, code, domain};
use cobaltcore_libvirt::procedure::{Procedure, calls, flags};
use cobaltcore_libvirt::server::{Reply, Request};
use cobaltcore_libvirt::types::{
    ControlInfo, Domain as Reference, DomainInfo, DomainState, DomainStats, JobInfo, JobStats, Params,
    TypedParam, Value,
};
use cobaltcore_libvirt::xdr::List;
use uuid::Uuid;

use super::driver::HostDriver;
use super::{stats, xml};
use crate::world::{Domain, Driver, Host, HostName, Moment, Paused, Phase, Running, ShutOff, State};

const NOVA_NAMESPACE: &str = "http://openstack.org/xmlns/libvirt/nova/1.1";

/// Bits of the statistics mask.
mod mask {
    pub(super) const STATE: u32 = 1;
    pub(super) const CPU: u32 = 2;
    pub(super) const BALLOON: u32 = 4;
    pub(super) const VCPU: u32 = 8;
    pub(super) const INTERFACE: u32 = 16;
    pub(super) const BLOCK: u32 = 32;
}

fn find<'a>(host: &'a Host, wanted: &Reference) -> Result<&'a Domain, RpcError> {
    host.domains
        .get(&wanted.uuid)
        .ok_or_else(|| RpcError::no_domain(wanted))
}

fn invalid(text: &str) -> RpcError {
    RpcError::new(
        code::OPERATION_INVALID,
        domain::QEMU,
        format!("Requested operation is not valid: {text}"),
    )
}

impl HostDriver {
    fn guest<R>(
        &self,
        wanted: &Reference,
        look: impl FnOnce(&State, &Host, &Domain) -> Result<R, RpcError>,
    ) -> Result<R, RpcError> {
        self.host(|state, host| look(state, host, find(host, wanted)?))
    }

    /// Does something to a guest that is there and, if asked, active.
    fn act(
        &self,
        wanted: &Reference,
        active: Option<bool>,
        work: impl FnOnce(&mut State, &HostName, Uuid) -> Result<(), RpcError>,
    ) -> Result<(), RpcError> {
        self.world.change(|state| {
            let host = state
                .hosts
                .get(&self.name)
                .ok_or_else(|| RpcError::no_domain(wanted))?;
            let found = find(host, wanted)?;
            match active {
                Some(true) if !found.is_active() => return Err(invalid("domain is not running")),
                Some(false) if found.is_active() => return Err(invalid("domain is already running")),
                _ => {}
            }
            work(state, &self.name, wanted.uuid)
        })
    }

    pub(super) fn guest_call(&self, request: &Request) -> Result<Reply, RpcError> {
        match request.procedure {
            Procedure::CONNECT_LIST_ALL_DOMAINS => {
                request.answer::<calls::ConnectListAllDomains>(|(_, flags)| {
                    self.host(|_, host| {
                        let wanted = host.domains.values().filter(|domain| listed(domain, flags));
                        let list: Vec<Reference> = wanted.map(Domain::reference).collect();
                        let count = list.len() as u32;
                        Ok((List(list), count))
                    })
                })
            }
            Procedure::CONNECT_NUM_OF_DOMAINS => request.answer::<calls::ConnectNumOfDomains>(|()| {
                self.host(|_, host| Ok(host.running().count() as i32))
            }),
            Procedure::CONNECT_LIST_DOMAINS => request.answer::<calls::ConnectListDomains>(|most| {
                let most = usize::try_from(most).unwrap_or(0);
                self.host(|_, host| Ok(List(host.running().map(|domain| domain.id).take(most).collect())))
            }),
            Procedure::CONNECT_NUM_OF_DEFINED_DOMAINS => {
                request.answer::<calls::ConnectNumOfDefinedDomains>(|()| {
                    self.host(|_, host| Ok(host.domains.values().filter(|d| !d.is_active()).count() as i32))
                })
            }
            Procedure::DOMAIN_LOOKUP_BY_UUID => request.answer::<calls::DomainLookupByUuid>(|uuid| {
                self.guest(&Reference::by_uuid(uuid), |_, _, domain| Ok(domain.reference()))
            }),
            Procedure::DOMAIN_LOOKUP_BY_NAME => request.answer::<calls::DomainLookupByName>(|name| {
                self.host(|_, host| {
                    let found = host.domains.values().find(|domain| domain.name == name);
                    let text = format!("Domain not found: no domain with matching name '{name}'");
                    found
                        .map(Domain::reference)
                        .ok_or_else(|| RpcError::new(code::NO_DOMAIN, domain::QEMU, text))
                })
            }),
            Procedure::DOMAIN_LOOKUP_BY_ID => request.answer::<calls::DomainLookupById>(|id| {
                self.host(|_, host| {
                    let found = host.running().find(|domain| domain.id == id);
                    let text = format!("Domain not found: no domain with matching id {id}");
                    found
                        .map(Domain::reference)
                        .ok_or_else(|| RpcError::new(code::NO_DOMAIN, domain::QEMU, text))
                })
            }),
            Procedure::CONNECT_GET_ALL_DOMAIN_STATS => self.all_stats(request),
            _ => self.guest_facts(request),
        }
    }

    fn guest_facts(&self, request: &Request) -> Result<Reply, RpcError> {
        match request.procedure {
            Procedure::DOMAIN_GET_STATE => request.answer::<calls::DomainGetState>(|(dom, _)| {
                self.guest(&dom, |_, _, domain| {
                    Ok(DomainState {
                        state: domain.phase.state(),
                        reason: domain.phase.reason(),
                    })
                })
            }),
            Procedure::DOMAIN_GET_INFO => request.answer::<calls::DomainGetInfo>(|dom| {
                self.guest(&dom, |state, _, domain| {
                    Ok(DomainInfo {
                        state: domain.phase.state() as u32,
                        max_memory_kib: domain.memory_kib,
                        memory_kib: domain.memory_kib,
                        vcpus: domain.vcpus,
                        cpu_time_ns: domain.cpu_time(state.now),
                    })
                })
            }),
            Procedure::DOMAIN_GET_CONTROL_INFO => {
                request.answer::<calls::DomainGetControlInfo>(|(dom, _)| {
                    self.guest(&dom, |state, _, domain| {
                        if !domain.is_active() {
                            return Err(invalid("domain is not running"));
                        }
                        let (occupied, since) = (domain.hung, state.now.since(domain.since));
                        Ok(ControlInfo {
                            state: if occupied {
                                2
                            } else {
                                u32::from(domain.job.is_some())
                            },
                            details: 0,
                            state_time_ms: if occupied { since.as_millis() as u64 } else { 0 },
                        })
                    })
                })
            }
            Procedure::DOMAIN_GET_XML_DESC => request.answer::<calls::DomainGetXmlDesc>(|(dom, _)| {
                self.guest(&dom, |state, host, domain| {
                    Ok(xml::domain(host, domain, state.servers.get(&domain.uuid)))
                })
            }),
            Procedure::DOMAIN_GET_METADATA => {
                request.answer::<calls::DomainGetMetadata>(|(dom, kind, uri, _)| {
                    self.guest(&dom, |state, _, domain| {
                        metadata(state, domain, kind, uri.as_deref())
                    })
                })
            }
            Procedure::DOMAIN_IS_ACTIVE => request.answer::<calls::DomainIsActive>(|dom| {
                self.guest(&dom, |_, _, d| Ok(i32::from(d.is_active())))
            }),
            Procedure::DOMAIN_IS_PERSISTENT => {
                request.answer::<calls::DomainIsPersistent>(|dom| self.guest(&dom, |_, _, _| Ok(1)))
            }
            Procedure::DOMAIN_GET_AUTOSTART => {
                request.answer::<calls::DomainGetAutostart>(|dom| self.guest(&dom, |_, _, _| Ok(0)))
            }
            Procedure::DOMAIN_GET_OS_TYPE => request
                .answer::<calls::DomainGetOsType>(|dom| self.guest(&dom, |_, _, _| Ok("hvm".to_owned()))),
            Procedure::DOMAIN_GET_MAX_MEMORY => request
                .answer::<calls::DomainGetMaxMemory>(|dom| self.guest(&dom, |_, _, d| Ok(d.memory_kib))),
            Procedure::DOMAIN_GET_MAX_VCPUS => request
                .answer::<calls::DomainGetMaxVcpus>(|dom| self.guest(&dom, |_, _, d| Ok(d.vcpus as i32))),
            Procedure::DOMAIN_GET_VCPUS_FLAGS => request.answer::<calls::DomainGetVcpusFlags>(|(dom, _)| {
                self.guest(&dom, |_, _, d| Ok(d.vcpus as i32))
            }),
            Procedure::DOMAIN_HAS_MANAGED_SAVE_IMAGE => request
                .answer::<calls::DomainHasManagedSaveImage>(|(dom, _)| self.guest(&dom, |_, _, _| Ok(0))),
            Procedure::DOMAIN_GET_JOB_STATS => {
                request.answer::<calls::DomainGetJobStats>(|(dom, flags)| self.job_stats(&dom, flags))
            }
            Procedure::DOMAIN_GET_JOB_INFO => request.answer::<calls::DomainGetJobInfo>(|dom| {
                self.guest(&dom, |state, _, domain| Ok(job_info(domain, state.now)))
            }),
            _ => self.guest_power(request),
        }
    }

    /// Figures of the job under way, or of the last one: those are gone once they were read, unless they shall be kept.
    fn job_stats(&self, dom: &Reference, asked: u32) -> Result<JobStats, RpcError> {
        let completed = asked & flags::JOB_COMPLETED != 0;
        let (answer, seen) = self.guest(dom, |state, host, domain| {
            let ch = host.driver == Driver::CloudHypervisor;
            if completed {
                let found = domain.finished.as_ref().map(|done| JobStats {
                    kind: if ch { 2 } else { 3 },
                    params: bare(stats::finished(done), ch),
                });
                return Ok((found.unwrap_or_default(), domain.finished.is_some()));
            }
            if !domain.is_active() {
                return Err(invalid("domain is not running"));
            }
            if domain.phase == Phase::Paused(Paused::Migration) && domain.job.is_none() {
                let text =
                    "Operation not supported: migration statistics are available only on the source host";
                return Err(RpcError::new(code::OPERATION_UNSUPPORTED, domain::QEMU, text));
            }
            let found = domain.job.as_ref().map(|job| JobStats {
                kind: 2,
                params: bare(stats::running(job, state.now), ch),
            });
            Ok((found.unwrap_or_default(), false))
        })?;
        if seen && asked & flags::JOB_KEEP_COMPLETED == 0 {
            self.world.change(|state| {
                if let Some(domain) = state.domain_mut(&self.name, dom.uuid) {
                    domain.finished = None;
                }
            });
        }
        Ok(answer)
    }

    fn guest_power(&self, request: &Request) -> Result<Reply, RpcError> {
        match request.procedure {
            Procedure::DOMAIN_CREATE => request.answer::<calls::DomainCreate>(|dom| self.start(&dom)),
            Procedure::DOMAIN_CREATE_WITH_FLAGS => {
                request.answer::<calls::DomainCreateWithFlags>(|(dom, _)| {
                    self.start(&dom)?;
                    self.guest(&dom, |_, _, domain| Ok(domain.reference()))
                })
            }
            Procedure::DOMAIN_DESTROY => request.answer::<calls::DomainDestroy>(|dom| self.stop(&dom, true)),
            Procedure::DOMAIN_DESTROY_FLAGS => {
                request.answer::<calls::DomainDestroyFlags>(|(dom, _)| self.stop(&dom, true))
            }
            Procedure::DOMAIN_SHUTDOWN => {
                request.answer::<calls::DomainShutdown>(|dom| self.stop(&dom, false))
            }
            Procedure::DOMAIN_SHUTDOWN_FLAGS => {
                request.answer::<calls::DomainShutdownFlags>(|(dom, _)| self.stop(&dom, false))
            }
            Procedure::DOMAIN_SUSPEND => request.answer::<calls::DomainSuspend>(|dom| {
                self.act(&dom, Some(true), |state, host, id| {
                    state.pause(host, id, Paused::User);
                    Ok(())
                })
            }),
            Procedure::DOMAIN_RESUME => request.answer::<calls::DomainResume>(|dom| {
                self.act(&dom, Some(true), |state, host, id| {
                    state.unpause(host, id, Running::Unpaused);
                    Ok(())
                })
            }),
            Procedure::DOMAIN_REBOOT => {
                request.answer::<calls::DomainReboot>(|(dom, _)| self.reset_guest(&dom))
            }
            Procedure::DOMAIN_RESET => {
                request.answer::<calls::DomainReset>(|(dom, _)| self.reset_guest(&dom))
            }
            Procedure::DOMAIN_INJECT_NMI => request
                .answer::<calls::DomainInjectNmi>(|(dom, _)| self.act(&dom, Some(true), |_, _, _| Ok(()))),
            Procedure::DOMAIN_ABORT_JOB => request.answer::<calls::DomainAbortJob>(|dom| {
                self.act(&dom, Some(true), |state, host, id| {
                    if state
                        .domain(host.as_str(), id)
                        .is_none_or(|domain| domain.job.is_none())
                    {
                        return Err(invalid("no job is active on the domain"));
                    }
                    let running = state
                        .migrations_of(id)
                        .rev()
                        .find(|migration| migration.status.in_progress());
                    let running = running.map(|migration| migration.id);
                    running
                        .map(|number| state.live_abort(number))
                        .ok_or_else(|| invalid("no job is active on the domain"))
                })
            }),
            Procedure::DOMAIN_DEFINE_XML => {
                request.answer::<calls::DomainDefineXml>(|xml| self.define_xml(xml))
            }
            Procedure::DOMAIN_DEFINE_XML_FLAGS => {
                request.answer::<calls::DomainDefineXmlFlags>(|(xml, _)| self.define_xml(xml))
            }
            Procedure::DOMAIN_UNDEFINE => request.answer::<calls::DomainUndefine>(|dom| self.undefine(&dom)),
            Procedure::DOMAIN_UNDEFINE_FLAGS => {
                request.answer::<calls::DomainUndefineFlags>(|(dom, _)| self.undefine(&dom))
            }
            other => Err(RpcError::unsupported(other)),
        }
    }

    fn start(&self, dom: &Reference) -> Result<(), RpcError> {
        self.act(dom, Some(false), |state, host, id| {
            state.boot(host, id);
            Ok(())
        })
    }

    fn stop(&self, dom: &Reference, at_once: bool) -> Result<(), RpcError> {
        self.act(dom, Some(true), |state, host, id| {
            if at_once {
                state.destroy(host, id);
            } else {
                state.guest_shuts_down(host, id);
            }
            state.sync_soon(id);
            Ok(())
        })
    }

    fn reset_guest(&self, dom: &Reference) -> Result<(), RpcError> {
        self.act(dom, Some(true), |state, host, id| {
            state.reset(host, id);
            Ok(())
        })
    }

    fn define_xml(&self, text: String) -> Result<Reference, RpcError> {
        let Some(found) = xml::definition(&text) else {
            let why = "XML error: the definition has no name or no memory";
            return Err(RpcError::new(27, domain::DOMAIN, why));
        };
        self.world.change(|state| {
            let uuid = found.uuid.unwrap_or_else(|| state.fresh());
            let now = state.now;
            let domain = Domain {
                uuid,
                name: found.name,
                id: -1,
                phase: Phase::ShutOff(ShutOff::Unknown),
                since: now,
                vcpus: found.vcpus,
                memory_kib: found.memory_kib,
                cpu_time_ns: 0,
                hung: false,
                cell: None,
                job: None,
                finished: None,
                xml: Some(text),
            };
            Ok(state.define_foreign(&self.name, domain))
        })
    }

    fn undefine(&self, dom: &Reference) -> Result<(), RpcError> {
        self.act(dom, None, |state, host, id| {
            if state.domain(host.as_str(), id).is_some_and(Domain::is_active) {
                return Err(invalid(
                    "cannot undefine a running domain of the simulated host; destroy it first",
                ));
            }
            state.undefine(host, id);
            Ok(())
        })
    }

    fn all_stats(&self, request: &Request) -> Result<Reply, RpcError> {
        if self.host(|_, host| Ok(host.driver))? == Driver::CloudHypervisor {
            return Err(RpcError::unsupported(request.procedure));
        }
        request.answer::<calls::ConnectGetAllDomainStats>(|(only, wanted, flags)| {
            self.host(|state, host| {
                let mask = if wanted == 0 { u32::MAX } else { wanted };
                let one = |domain: &Domain| DomainStats {
                    domain: domain.reference(),
                    params: figures(state, domain, mask),
                };
                let chosen: Vec<DomainStats> = if only.is_empty() {
                    host.domains
                        .values()
                        .filter(|domain| listed(domain, flags))
                        .map(one)
                        .collect()
                } else {
                    only.iter()
                        .map(|dom| find(host, dom).map(one))
                        .collect::<Result<_, _>>()?
                };
                Ok(List(chosen))
            })
        })
    }
}

/// The Cloud Hypervisor driver does not say what its job is.
fn bare<const MAX: usize>(params: Params<MAX>, ch: bool) -> Params<MAX> {
    if !ch {
        return params;
    }
    let kept = params.0.0.into_iter().filter(|param| param.field != "operation");
    Params(List(kept.collect()))
}

/// Bits of one group are or-ed, groups are and-ed, and a group without bits takes all.
fn listed(domain: &Domain, flags: u32) -> bool {
    let active = domain.is_active();
    let group = |bits: &[(u32, bool)]| {
        let asked = bits.iter().fold(0, |all, (bit, _)| all | bit) & flags;
        asked == 0 || bits.iter().any(|(bit, holds)| asked & bit != 0 && *holds)
    };
    group(&[(1, active), (2, !active)])
        && group(&[(4, true), (8, false)])
        && group(&[
            (16, domain.phase.state() == 1),
            (32, domain.phase.state() == 3),
            (64, domain.phase.state() == 5),
            (128, false),
        ])
        && group(&[(256, false), (512, true)])
        && group(&[(1024, false), (2048, true)])
        && group(&[(4096, false), (8192, true)])
        && group(&[(16_384, false), (32_768, true)])
}

fn metadata(state: &State, domain: &Domain, kind: i32, uri: Option<&str>) -> Result<String, RpcError> {
    let missing = || {
        let text = "metadata not found: Requested metadata element is not present";
        RpcError::new(code::NO_DOMAIN_METADATA, domain::QEMU, text)
    };
    let server = state.servers.get(&domain.uuid).ok_or_else(missing)?;
    if kind == flags::METADATA_ELEMENT && uri == Some(NOVA_NAMESPACE) {
        // libvirt answers without the prefix it stores.
        return Ok(xml::metadata(server)
            .replace("nova:", "")
            .replace("xmlns:nova", "xmlns"));
    }
    Err(missing())
}

fn job_info(domain: &Domain, now: Moment) -> JobInfo {
    let Some(job) = &domain.job else {
        return JobInfo::default();
    };
    let (processed, remaining) = (job.processed + job.moved(now), job.remaining(now));
    JobInfo {
        kind: 2,
        time_elapsed_ms: now.since(job.started).as_millis() as u64,
        time_remaining_ms: 0,
        data_total: job.total,
        data_processed: processed,
        data_remaining: remaining,
        memory_total: job.total,
        memory_processed: processed,
        memory_remaining: remaining,
        ..JobInfo::default()
    }
}

type Figures = Params<{ cobaltcore_libvirt::limits::DOMAIN_STATS }>;

fn figures(state: &State, domain: &Domain, mask: u32) -> Figures {
    let mut list: Vec<TypedParam> = Vec::new();
    let mut put = |field: String, value: Value| list.push(TypedParam { field, value });
    if mask & mask::STATE != 0 {
        put("state.state".into(), Value::Int(domain.phase.state()));
        put("state.reason".into(), Value::Int(domain.phase.reason()));
    }
    if mask & mask::CPU != 0 && domain.is_active() {
        let time = domain.cpu_time(state.now);
        put("cpu.time".into(), Value::ULLong(time));
        put("cpu.user".into(), Value::ULLong(time / 10 * 7));
        put("cpu.system".into(), Value::ULLong(time / 10 * 3));
    }
    if mask & mask::BALLOON != 0 {
        put("balloon.current".into(), Value::ULLong(domain.memory_kib));
        put("balloon.maximum".into(), Value::ULLong(domain.memory_kib));
        if domain.is_active() {
            put("balloon.rss".into(), Value::ULLong(domain.memory_kib / 2));
        }
    }
    if mask & mask::VCPU != 0 {
        put("vcpu.current".into(), Value::UInt(domain.vcpus));
        put("vcpu.maximum".into(), Value::UInt(domain.vcpus));
        if domain.is_active() {
            let each = domain.cpu_time(state.now) / u64::from(domain.vcpus.max(1));
            for vcpu in 0..domain.vcpus {
                put(format!("vcpu.{vcpu}.state"), Value::Int(1));
                put(format!("vcpu.{vcpu}.time"), Value::ULLong(each));
            }
        }
    }
    let server = state.servers.get(&domain.uuid);
    if mask & mask::INTERFACE != 0 {
        let ports = server.map(|server| server.ports.as_slice()).unwrap_or_default();
        put("net.count".into(), Value::UInt(ports.len() as u32));
        for (index, port) in ports.iter().enumerate() {
            let tap: String = port.to_string().chars().take(11).collect();
            put(format!("net.{index}.name"), Value::String(format!("tap{tap}")));
        }
    }
    if mask & mask::BLOCK != 0 {
        let disks = server.map_or(0, |server| server.volumes.len().max(1));
        put("block.count".into(), Value::UInt(disks as u32));
        for index in 0..disks {
            let letter = char::from(b'a' + (index % 26) as u8);
            put(
                format!("block.{index}.name"),
                Value::String(format!("vd{letter}")),
            );
        }
    }
    Params(List(list))
}
