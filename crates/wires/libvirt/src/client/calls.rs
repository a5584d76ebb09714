// SPDX-License-Identifier: Apache-2.0
//! The calls by name, one function each, with the arguments people think in; [`Domain::by_uuid`] is enough to name a
//! domain. Anything not listed here can be made with [`Connection::call`].

use uuid::Uuid;

use super::Connection;
use crate::error::Error;
use crate::procedure::{Cookie, MigrateParams, calls as proc, flags};
use crate::types::{
    ControlInfo, CpuMap, Domain, DomainInfo, DomainState, DomainStats, GuestInterface, JobInfo, JobStats,
    NodeInfo, NodeStat,
};
use crate::xdr::List;

/// The host and the driver.
impl Connection {
    /// Name of the driver: `QEMU`, `CH`, `TEST`.
    pub async fn driver_type(&self) -> Result<String, Error> {
        self.call::<proc::ConnectGetType>(&()).await
    }

    /// Version of the hypervisor; see [`crate::names::version`].
    pub async fn hypervisor_version(&self) -> Result<u64, Error> {
        self.call::<proc::ConnectGetVersion>(&()).await
    }

    /// Version of the daemon; see [`crate::names::version`].
    pub async fn lib_version(&self) -> Result<u64, Error> {
        self.call::<proc::ConnectGetLibVersion>(&()).await
    }

    /// Name of the host.
    pub async fn hostname(&self) -> Result<String, Error> {
        self.call::<proc::ConnectGetHostname>(&()).await
    }

    /// The URI as the daemon sees it.
    pub async fn uri(&self) -> Result<String, Error> {
        self.call::<proc::ConnectGetUri>(&()).await
    }

    /// Whether the driver behind the daemon is safe from listeners; says nothing about the way to the daemon.
    pub async fn is_secure(&self) -> Result<bool, Error> {
        Ok(self.call::<proc::ConnectIsSecure>(&()).await? != 0)
    }

    /// Whether driver or daemon have a feature; see [`crate::procedure::feature`].
    pub async fn supports_feature(&self, feature: i32) -> Result<bool, Error> {
        Ok(self.call::<proc::ConnectSupportsFeature>(&feature).await? != 0)
    }

    /// Capabilities of the host, XML. Has the slow deadline.
    pub async fn capabilities(&self) -> Result<String, Error> {
        self.call::<proc::ConnectGetCapabilities>(&()).await
    }

    /// What guests of the default kind can have, XML. Needs read-write, has the slow deadline.
    pub async fn domain_capabilities(&self) -> Result<String, Error> {
        self.domain_capabilities_of(None, None, None, None).await
    }

    /// What guests of this kind can have, XML.
    pub async fn domain_capabilities_of(
        &self,
        emulator: Option<&str>,
        arch: Option<&str>,
        machine: Option<&str>,
        virt_type: Option<&str>,
    ) -> Result<String, Error> {
        let own = |text: Option<&str>| text.map(str::to_owned);
        let args = (own(emulator), own(arch), own(machine), own(virt_type), 0);
        self.call::<proc::ConnectGetDomainCapabilities>(&args).await
    }

    /// SMBIOS data of the host, XML.
    pub async fn sysinfo(&self) -> Result<String, Error> {
        self.call::<proc::ConnectGetSysinfo>(&0).await
    }

    /// What the host is made of.
    pub async fn node_info(&self) -> Result<NodeInfo, Error> {
        self.call::<proc::NodeGetInfo>(&()).await
    }

    /// Free memory of the host, bytes.
    pub async fn free_memory(&self) -> Result<u64, Error> {
        self.call::<proc::NodeGetFreeMemory>(&()).await
    }

    /// Free memory of `count` NUMA cells from `first`, bytes.
    pub async fn cells_free_memory(&self, first: i32, count: i32) -> Result<Vec<u64>, Error> {
        Ok(self
            .call::<proc::NodeGetCellsFreeMemory>(&(first, count))
            .await?
            .0)
    }

    /// Free pages of each size (KiB) in `count` cells from `first`, cell by cell.
    pub async fn free_pages(&self, sizes_kib: &[u32], first: i32, count: u32) -> Result<Vec<u64>, Error> {
        let args = (List(sizes_kib.to_vec()), first, count, 0);
        Ok(self.call::<proc::NodeGetFreePages>(&args).await?.0)
    }

    /// Memory figures of a cell (-1 for all), KiB.
    pub async fn node_memory_stats(&self, cell: i32) -> Result<Vec<NodeStat>, Error> {
        // The daemon only accepts the exact number of fields, which it tells when asked for none.
        let (_, count) = self.call::<proc::NodeGetMemoryStats>(&(0, cell, 0)).await?;
        let (stats, _) = self.call::<proc::NodeGetMemoryStats>(&(count, cell, 0)).await?;
        Ok(stats.0)
    }

    /// CPU time of a host CPU (-1 for all), nanoseconds.
    pub async fn node_cpu_stats(&self, cpu: i32) -> Result<Vec<NodeStat>, Error> {
        let (_, count) = self.call::<proc::NodeGetCpuStats>(&(cpu, 0, 0)).await?;
        let (stats, _) = self.call::<proc::NodeGetCpuStats>(&(cpu, count, 0)).await?;
        Ok(stats.0)
    }

    /// Which host CPUs exist and are online.
    pub async fn node_cpu_map(&self) -> Result<CpuMap, Error> {
        self.call::<proc::NodeGetCpuMap>(&(1, 1, 0)).await
    }
}

/// Finding and reading domains.
impl Connection {
    /// Domains by list flags; [`flags::LIST_ALL`] for all. An id of -1 means inactive.
    pub async fn list_all_domains(&self, list_flags: u32) -> Result<Vec<Domain>, Error> {
        let (domains, _) = self.call::<proc::ConnectListAllDomains>(&(1, list_flags)).await?;
        Ok(domains.0)
    }

    /// By number.
    pub async fn lookup_by_id(&self, id: i32) -> Result<Domain, Error> {
        self.call::<proc::DomainLookupById>(&id).await
    }

    /// By name.
    pub async fn lookup_by_name(&self, name: &str) -> Result<Domain, Error> {
        self.call::<proc::DomainLookupByName>(&name.to_owned()).await
    }

    /// By UUID.
    pub async fn lookup_by_uuid(&self, uuid: Uuid) -> Result<Domain, Error> {
        self.call::<proc::DomainLookupByUuid>(&uuid).await
    }

    /// XML; see [`flags::XML_INACTIVE`], [`flags::XML_SECURE`].
    pub async fn xml(&self, domain: &Domain, xml_flags: u32) -> Result<String, Error> {
        self.call::<proc::DomainGetXmlDesc>(&(domain.clone(), xml_flags))
            .await
    }

    /// State and size.
    pub async fn info(&self, domain: &Domain) -> Result<DomainInfo, Error> {
        self.call::<proc::DomainGetInfo>(domain).await
    }

    /// State and reason.
    pub async fn state(&self, domain: &Domain) -> Result<DomainState, Error> {
        self.call::<proc::DomainGetState>(&(domain.clone(), 0)).await
    }

    /// Whether the monitor answers.
    pub async fn control_info(&self, domain: &Domain) -> Result<ControlInfo, Error> {
        self.call::<proc::DomainGetControlInfo>(&(domain.clone(), 0))
            .await
    }

    /// Whether it runs.
    pub async fn is_active(&self, domain: &Domain) -> Result<bool, Error> {
        Ok(self.call::<proc::DomainIsActive>(domain).await? != 0)
    }

    /// Whether it is defined.
    pub async fn is_persistent(&self, domain: &Domain) -> Result<bool, Error> {
        Ok(self.call::<proc::DomainIsPersistent>(domain).await? != 0)
    }

    /// Whether it starts with the daemon.
    pub async fn autostart(&self, domain: &Domain) -> Result<bool, Error> {
        Ok(self.call::<proc::DomainGetAutostart>(domain).await? != 0)
    }

    /// Metadata element of a namespace.
    pub async fn metadata(&self, domain: &Domain, namespace: &str) -> Result<String, Error> {
        let args = (
            domain.clone(),
            flags::METADATA_ELEMENT,
            Some(namespace.to_owned()),
            0,
        );
        self.call::<proc::DomainGetMetadata>(&args).await
    }

    /// Replaces the metadata element of a namespace, or removes it.
    pub async fn set_metadata(
        &self,
        domain: &Domain,
        namespace: &str,
        key: &str,
        element: Option<&str>,
    ) -> Result<(), Error> {
        let element = element.map(str::to_owned);
        let key = element.is_some().then(|| key.to_owned());
        let args = (
            domain.clone(),
            flags::METADATA_ELEMENT,
            element,
            key,
            Some(namespace.to_owned()),
            0,
        );
        self.call::<proc::DomainSetMetadata>(&args).await
    }

    /// Addresses of a guest from 0 leases, 1 agent, 2 ARP table.
    pub async fn interface_addresses(
        &self,
        domain: &Domain,
        source: u32,
    ) -> Result<Vec<GuestInterface>, Error> {
        Ok(self
            .call::<proc::DomainInterfaceAddresses>(&(domain.clone(), source, 0))
            .await?
            .0)
    }

    /// Statistics by mask (0 for everything the driver has); `domains` empty for all that match the list flags.
    pub async fn all_domain_stats(
        &self,
        domains: &[Domain],
        mask: u32,
        stats_flags: u32,
    ) -> Result<Vec<DomainStats>, Error> {
        let args = (List(domains.to_vec()), mask, stats_flags);
        Ok(self.call::<proc::ConnectGetAllDomainStats>(&args).await?.0)
    }

    /// Job statistics of fixed size.
    pub async fn job_info(&self, domain: &Domain) -> Result<JobInfo, Error> {
        self.call::<proc::DomainGetJobInfo>(domain).await
    }

    /// Statistics of the running job.
    pub async fn job_stats(&self, domain: &Domain) -> Result<JobStats, Error> {
        self.call::<proc::DomainGetJobStats>(&(domain.clone(), 0)).await
    }

    /// Statistics of the last finished job, without taking them away from others.
    pub async fn completed_job_stats(&self, domain: &Domain) -> Result<JobStats, Error> {
        let keep = flags::JOB_COMPLETED | flags::JOB_KEEP_COMPLETED;
        self.call::<proc::DomainGetJobStats>(&(domain.clone(), keep))
            .await
    }
}

/// Changing domains.
impl Connection {
    /// Defines a domain.
    pub async fn define(&self, xml: &str) -> Result<Domain, Error> {
        self.call::<proc::DomainDefineXmlFlags>(&(xml.to_owned(), 0))
            .await
    }

    /// Starts a domain that is not defined.
    pub async fn create_xml(&self, xml: &str, create_flags: u32) -> Result<Domain, Error> {
        self.call::<proc::DomainCreateXml>(&(xml.to_owned(), create_flags))
            .await
    }

    /// Starts a defined domain; gives it back with its number.
    pub async fn start(&self, domain: &Domain, create_flags: u32) -> Result<Domain, Error> {
        self.call::<proc::DomainCreateWithFlags>(&(domain.clone(), create_flags))
            .await
    }

    /// Asks the guest to shut down.
    pub async fn shutdown(&self, domain: &Domain) -> Result<(), Error> {
        self.call::<proc::DomainShutdownFlags>(&(domain.clone(), 0)).await
    }

    /// Asks the guest to reboot.
    pub async fn reboot(&self, domain: &Domain, reboot_flags: u32) -> Result<(), Error> {
        self.call::<proc::DomainReboot>(&(domain.clone(), reboot_flags))
            .await
    }

    /// Resets the virtual hardware.
    pub async fn reset(&self, domain: &Domain) -> Result<(), Error> {
        self.call::<proc::DomainReset>(&(domain.clone(), 0)).await
    }

    /// Pauses the virtual CPUs.
    pub async fn suspend(&self, domain: &Domain) -> Result<(), Error> {
        self.call::<proc::DomainSuspend>(domain).await
    }

    /// Continues.
    pub async fn resume(&self, domain: &Domain) -> Result<(), Error> {
        self.call::<proc::DomainResume>(domain).await
    }

    /// Sends a non-maskable interrupt.
    pub async fn inject_nmi(&self, domain: &Domain) -> Result<(), Error> {
        self.call::<proc::DomainInjectNmi>(&(domain.clone(), 0)).await
    }

    /// Stops at once. The daemon serves this even when its ordinary workers are stuck.
    pub async fn destroy(&self, domain: &Domain) -> Result<(), Error> {
        self.call::<proc::DomainDestroy>(domain).await
    }

    /// Stops, with flags (1 graceful).
    pub async fn destroy_flags(&self, domain: &Domain, destroy_flags: u32) -> Result<(), Error> {
        self.call::<proc::DomainDestroyFlags>(&(domain.clone(), destroy_flags))
            .await
    }

    /// Removes the definition.
    pub async fn undefine(&self, domain: &Domain) -> Result<(), Error> {
        self.call::<proc::DomainUndefineFlags>(&(domain.clone(), 0)).await
    }

    /// Saves the guest to the daemon's own file and stops it. Takes as long as writing its memory does.
    pub async fn managed_save(&self, domain: &Domain) -> Result<(), Error> {
        self.call::<proc::DomainManagedSave>(&(domain.clone(), 0)).await
    }

    /// Aborts the running job.
    pub async fn abort_job(&self, domain: &Domain) -> Result<(), Error> {
        self.call::<proc::DomainAbortJob>(domain).await
    }

    /// Limits the bandwidth of a migration, MiB/s.
    pub async fn migrate_set_max_speed(&self, domain: &Domain, mib_per_second: u64) -> Result<(), Error> {
        self.call::<proc::DomainMigrateSetMaxSpeed>(&(domain.clone(), mib_per_second, 0))
            .await
    }

    /// Migrates peer to peer and returns when it is over; give the handle a deadline of hours.
    pub async fn migrate_to_uri(
        &self,
        domain: &Domain,
        destination: &str,
        params: MigrateParams,
        migrate_flags: u32,
    ) -> Result<(), Error> {
        let all = migrate_flags | flags::MIGRATE_PEER2PEER;
        let args = (
            domain.clone(),
            Some(destination.to_owned()),
            params,
            Cookie::default(),
            all,
        );
        self.call::<proc::DomainMigratePerform3Params>(&args)
            .await
            .map(|_| ())
    }
}
