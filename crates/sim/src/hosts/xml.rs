// SPDX-License-Identifier: Apache-2.0
//! The documents a simulated libvirt serves: capabilities, domain capabilities, domains with Nova's metadata. Their shape
//! is that of libvirt 9 with QEMU 7.2, as far as agents and `virsh` read them.

use quick_xml::Reader;
use quick_xml::escape::escape;
use quick_xml::events::Event;
use uuid::Uuid;

use crate::world::{Domain, Driver, Host, Server};

const EMULATOR: &str = "/usr/bin/qemu-system-x86_64";
const MACHINE: &str = "pc-q35-7.2";

/// `virsh capabilities`.
pub(crate) fn capabilities(host: &Host) -> String {
    let mut cells = String::new();
    for cell in &host.cells {
        let pages = cell.memory_kib / 4;
        cells.push_str(&format!(
            "        <cell id='{}'>\n          <memory unit='KiB'>{}</memory>\n          <pages unit='KiB' size='4'>{pages}</pages>\n          <pages unit='KiB' size='2048'>0</pages>\n          <pages unit='KiB' size='1048576'>0</pages>\n          <distances>\n",
            cell.id, cell.memory_kib
        ));
        for other in &host.cells {
            let distance = if other.id == cell.id { 10 } else { 21 };
            cells.push_str(&format!(
                "            <sibling id='{}' value='{distance}'/>\n",
                other.id
            ));
        }
        cells.push_str(&format!(
            "          </distances>\n          <cpus num='{}'>\n",
            cell.cpus
        ));
        for cpu in cell.first_cpu..cell.first_cpu + cell.cpus {
            let core = (cpu - cell.first_cpu) / host.threads.max(1);
            let first = cell.first_cpu + core * host.threads;
            let last = first + host.threads.saturating_sub(1);
            cells.push_str(&format!(
                "            <cpu id='{cpu}' socket_id='{}' die_id='0' core_id='{core}' siblings='{first}-{last}'/>\n",
                cell.id
            ));
        }
        cells.push_str("          </cpus>\n        </cell>\n");
    }
    format!(
        "<capabilities>\n\n  <host>\n    <uuid>{}</uuid>\n    <cpu>\n      <arch>x86_64</arch>\n      <model>EPYC-Rome</model>\n      <vendor>AMD</vendor>\n      <topology sockets='1' dies='1' cores='{}' threads='{}'/>\n      <feature name='svm'/>\n      <pages unit='KiB' size='4'/>\n      <pages unit='KiB' size='2048'/>\n      <pages unit='KiB' size='1048576'/>\n    </cpu>\n    <power_management/>\n    <iommu support='yes'/>\n    <migration_features>\n      <live/>\n      <uri_transports>\n        <uri_transport>tcp</uri_transport>\n        <uri_transport>rdma</uri_transport>\n      </uri_transports>\n    </migration_features>\n    <topology>\n      <cells num='{}'>\n{cells}      </cells>\n    </topology>\n    <secmodel>\n      <model>none</model>\n      <doi>0</doi>\n    </secmodel>\n  </host>\n\n  <guest>\n    <os_type>hvm</os_type>\n    <arch name='x86_64'>\n      <wordsize>64</wordsize>\n      <emulator>{}</emulator>\n      <machine maxCpus='288'>{MACHINE}</machine>\n      <domain type='qemu'/>\n      <domain type='kvm'/>\n    </arch>\n    <features>\n      <acpi default='on' toggle='yes'/>\n      <apic default='on' toggle='no'/>\n      <cpuselection/>\n      <deviceboot/>\n    </features>\n  </guest>\n\n</capabilities>\n",
        host.node_uuid,
        host.cores,
        host.threads,
        host.cells.len(),
        emulator(host),
    )
}

fn emulator(host: &Host) -> &'static str {
    match host.driver {
        Driver::Qemu => EMULATOR,
        Driver::CloudHypervisor => "/usr/bin/cloud-hypervisor",
    }
}

/// `virsh domcapabilities`.
pub(crate) fn domain_capabilities(host: &Host) -> String {
    let kind = match host.driver {
        Driver::Qemu => "kvm",
        Driver::CloudHypervisor => "ch",
    };
    format!(
        "<domainCapabilities>\n  <path>{}</path>\n  <domain>{kind}</domain>\n  <machine>{MACHINE}</machine>\n  <arch>x86_64</arch>\n  <vcpu max='{}'/>\n  <iothreads supported='yes'/>\n  <os supported='yes'>\n    <enum name='firmware'>\n      <value>efi</value>\n    </enum>\n  </os>\n  <cpu>\n    <mode name='host-passthrough' supported='yes'>\n      <enum name='hostPassthroughMigratable'>\n        <value>on</value>\n        <value>off</value>\n      </enum>\n    </mode>\n    <mode name='maximum' supported='yes'/>\n    <mode name='host-model' supported='yes'>\n      <model fallback='forbid'>EPYC-Rome</model>\n      <vendor>AMD</vendor>\n    </mode>\n    <mode name='custom' supported='yes'>\n      <model usable='yes'>EPYC-Rome</model>\n      <model usable='yes'>qemu64</model>\n    </mode>\n  </cpu>\n  <memoryBacking supported='yes'>\n    <enum name='sourceType'>\n      <value>file</value>\n      <value>anonymous</value>\n      <value>memfd</value>\n    </enum>\n  </memoryBacking>\n  <devices>\n    <disk supported='yes'>\n      <enum name='diskDevice'>\n        <value>disk</value>\n        <value>cdrom</value>\n      </enum>\n      <enum name='bus'>\n        <value>scsi</value>\n        <value>virtio</value>\n      </enum>\n    </disk>\n    <graphics supported='yes'>\n      <enum name='type'>\n        <value>vnc</value>\n      </enum>\n    </graphics>\n    <video supported='yes'>\n      <enum name='modelType'>\n        <value>vga</value>\n        <value>virtio</value>\n      </enum>\n    </video>\n    <hostdev supported='yes'>\n      <enum name='mode'>\n        <value>subsystem</value>\n      </enum>\n    </hostdev>\n    <rng supported='yes'>\n      <enum name='model'>\n        <value>virtio</value>\n      </enum>\n    </rng>\n  </devices>\n  <features>\n    <gic supported='no'/>\n    <vmcoreinfo supported='yes'/>\n    <genid supported='yes'/>\n    <backingStoreInput supported='yes'/>\n    <backup supported='yes'/>\n    <sev supported='no'/>\n  </features>\n</domainCapabilities>\n",
        emulator(host),
        host.cpus().max(240),
    )
}

/// What Nova writes into a guest's metadata.
pub(crate) fn metadata(server: &Server) -> String {
    format!(
        "<nova:instance xmlns:nova=\"http://openstack.org/xmlns/libvirt/nova/1.1\">\n      <nova:package version=\"26.2.1\"/>\n      <nova:name>{}</nova:name>\n      <nova:creationTime>{}</nova:creationTime>\n      <nova:flavor name=\"{}\">\n        <nova:memory>{}</nova:memory>\n        <nova:disk>{}</nova:disk>\n        <nova:swap>{}</nova:swap>\n        <nova:ephemeral>{}</nova:ephemeral>\n        <nova:vcpus>{}</nova:vcpus>\n      </nova:flavor>\n      <nova:owner>\n        <nova:user uuid=\"{}\">admin</nova:user>\n        <nova:project uuid=\"{}\">demo</nova:project>\n      </nova:owner>\n    </nova:instance>",
        escape(&server.name),
        server.created.iso().replace('T', " ").trim_end_matches('Z'),
        escape(&server.flavor.name),
        server.flavor.ram_mb,
        server.flavor.disk_gb,
        server.flavor.swap_mb,
        server.flavor.ephemeral_gb,
        server.flavor.vcpus,
        server.user.simple(),
        server.project.simple(),
    )
}

/// `virsh dumpxml`.
pub(crate) fn domain(host: &Host, domain: &Domain, server: Option<&Server>) -> String {
    if let Some(xml) = &domain.xml {
        return xml.clone();
    }
    let kind = match host.driver {
        Driver::Qemu => "kvm",
        Driver::CloudHypervisor => "ch",
    };
    let id = if domain.is_active() {
        format!(" id='{}'", domain.id)
    } else {
        String::new()
    };
    let metadata = server
        .map(|server| format!("  <metadata>\n    {}\n  </metadata>\n", metadata(server)))
        .unwrap_or_default();
    let (tune, topology) = pinning(host, domain);
    format!(
        "<domain type='{kind}'{id}>\n  <name>{}</name>\n  <uuid>{}</uuid>\n{metadata}  <memory unit='KiB'>{}</memory>\n  <currentMemory unit='KiB'>{}</currentMemory>\n  <vcpu placement='static'>{}</vcpu>\n{tune}  <sysinfo type='smbios'>\n    <system>\n      <entry name='manufacturer'>OpenStack Foundation</entry>\n      <entry name='product'>OpenStack Nova</entry>\n      <entry name='uuid'>{}</entry>\n    </system>\n  </sysinfo>\n  <os>\n    <type arch='x86_64' machine='{MACHINE}'>hvm</type>\n    <boot dev='hd'/>\n  </os>\n  <features>\n    <acpi/>\n    <apic/>\n  </features>\n  <cpu mode='host-model' check='partial'>\n    <topology sockets='{}' dies='1' cores='1' threads='1'/>\n{topology}  </cpu>\n  <clock offset='utc'/>\n  <on_poweroff>destroy</on_poweroff>\n  <on_reboot>restart</on_reboot>\n  <on_crash>destroy</on_crash>\n  <devices>\n    <emulator>{}</emulator>\n{}    <serial type='pty'>\n      <target port='0'/>\n    </serial>\n    <memballoon model='virtio'/>\n  </devices>\n</domain>\n",
        escape(&domain.name),
        domain.uuid,
        domain.memory_kib,
        domain.memory_kib,
        domain.vcpus,
        domain.uuid,
        domain.vcpus,
        emulator(host),
        server.map(devices).unwrap_or_default(),
    )
}

/// A guest that is bound to a cell is pinned to its CPUs and takes its memory from there.
fn pinning(host: &Host, domain: &Domain) -> (String, String) {
    let Some(cell) = domain
        .cell
        .and_then(|id| host.cells.iter().find(|cell| cell.id == id))
    else {
        return (String::new(), String::new());
    };
    let cpus = format!(
        "{}-{}",
        cell.first_cpu,
        cell.first_cpu + cell.cpus.saturating_sub(1)
    );
    let pins: String = (0..domain.vcpus)
        .map(|vcpu| format!("    <vcpupin vcpu='{vcpu}' cpuset='{cpus}'/>\n"))
        .collect();
    let id = cell.id;
    let tune = format!(
        "  <cputune>\n{pins}  </cputune>\n  <numatune>\n    <memory mode='strict' nodeset='{id}'/>\n    <memnode cellid='0' mode='strict' nodeset='{id}'/>\n  </numatune>\n"
    );
    let topology = format!(
        "    <numa>\n      <cell id='0' cpus='0-{}' memory='{}' unit='KiB'/>\n    </numa>\n",
        domain.vcpus.saturating_sub(1),
        domain.memory_kib
    );
    (tune, topology)
}

fn devices(server: &Server) -> String {
    let mut xml = String::new();
    if server.volumes.is_empty() {
        xml.push_str(&format!(
            "    <disk type='network' device='disk'>\n      <driver name='qemu' type='raw' cache='writeback'/>\n      <source protocol='rbd' name='vms/{}_disk'/>\n      <target dev='vda' bus='virtio'/>\n    </disk>\n",
            server.id
        ));
    }
    for attachment in &server.volumes {
        xml.push_str(&format!(
            "    <disk type='network' device='disk'>\n      <driver name='qemu' type='raw' cache='writeback'/>\n      <source protocol='rbd' name='volumes/volume-{}'/>\n      <target dev='{}' bus='virtio'/>\n      <serial>{}</serial>\n    </disk>\n",
            attachment.volume,
            attachment.device.trim_start_matches("/dev/"),
            attachment.volume
        ));
    }
    for port in &server.ports {
        let tap: String = port.to_string().chars().take(11).collect();
        xml.push_str(&format!(
            "    <interface type='bridge'>\n      <source bridge='br-int'/>\n      <target dev='tap{tap}'/>\n      <model type='virtio'/>\n    </interface>\n"
        ));
    }
    xml
}

/// What a definition by somebody else says about itself.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Definition {
    pub(crate) name: String,
    pub(crate) uuid: Option<Uuid>,
    pub(crate) memory_kib: u64,
    pub(crate) vcpus: u32,
}

/// Reads a definition; nothing when it is not one.
pub(crate) fn definition(xml: &str) -> Option<Definition> {
    let mut reader = Reader::from_str(xml);
    let mut path: Vec<String> = Vec::new();
    let mut unit = String::new();
    let (mut name, mut uuid, mut memory, mut vcpus) = (None, None, None, 1);
    loop {
        match reader.read_event().ok()? {
            Event::Start(start) => {
                let tag = start.name().as_ref().to_owned();
                if tag == "memory" {
                    let found = start
                        .attributes()
                        .flatten()
                        .find(|pair| pair.key.as_ref() == "unit");
                    unit = found.map_or_else(|| "KiB".to_owned(), |pair| pair.value.into_owned());
                }
                path.push(tag);
            }
            Event::End(_) => {
                path.pop();
            }
            Event::Text(text) => {
                let text = text.trim().to_owned();
                let place: Vec<&str> = path.iter().map(String::as_str).collect();
                match place.as_slice() {
                    ["domain", "name"] => name = Some(text),
                    ["domain", "uuid"] => uuid = Uuid::try_parse(&text).ok(),
                    ["domain", "memory"] => {
                        memory = text.parse::<u64>().ok().map(|amount| kib(amount, &unit));
                    }
                    ["domain", "vcpu"] => vcpus = text.parse().unwrap_or(1),
                    _ => {}
                }
            }
            Event::Eof => break,
            _ => {}
        }
    }
    Some(Definition {
        name: name?,
        uuid,
        memory_kib: memory?,
        vcpus,
    })
}

fn kib(amount: u64, unit: &str) -> u64 {
    match unit {
        "b" | "bytes" => amount / 1024,
        "M" | "MiB" => amount << 10,
        "G" | "GiB" => amount << 20,
        _ => amount,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_definition_is_read_with_its_units() {
        let xml = "<domain type='kvm'><name>one</name><memory unit='MiB'>64</memory><vcpu>2</vcpu><devices><disk><name>no</name></disk></devices></domain>";
        let wanted = Definition {
            name: "one".to_owned(),
            uuid: None,
            memory_kib: 65_536,
            vcpus: 2,
        };
        assert_eq!(definition(xml), Some(wanted));
        assert_eq!(definition("<domain><name>half"), None);
        assert_eq!(definition("no xml"), None);
    }
}
