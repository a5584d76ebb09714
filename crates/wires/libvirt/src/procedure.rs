// SPDX-License-Identifier: Apache-2.0
//! The table of procedures: number, name, what goes in, what comes out, and whether a read-only connection may call
//! it. Client and server are both made from this one table, so they cannot disagree.

use std::fmt;

use uuid::Uuid;

use crate::limits;
use crate::types::{
    AuthType, ControlInfo, CpuMap, Domain, DomainInfo, DomainState, DomainStats, GuestInterface, JobInfo,
    JobStats, NodeInfo, NodeStat, Params,
};
use crate::xdr::{self, Decode, Encode, List, Opaque, XdrError};

/// Migration parameters.
pub type MigrateParams = Params<{ limits::MIGRATE_PARAMS }>;
/// A migration cookie.
pub type Cookie = Opaque<{ limits::MIGRATE_COOKIE }>;
/// A list of domains.
pub type Domains = List<Domain, { limits::DOMAIN_LIST }>;

/// Number of a procedure of the main program. Its text form is libvirt's name for it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Procedure(pub i32);

impl Procedure {
    /// The function of libvirt's C interface that makes this call, as libvirt's own messages name it.
    pub fn function(self) -> String {
        let Some(name) = self.name() else {
            return self.to_string();
        };
        let words = name.split('_').map(|word| match word {
            "xml" | "uuid" | "id" | "os" | "uri" | "cpu" | "nmi" => word.to_ascii_uppercase(),
            _ => {
                let mut letters = word.chars();
                let first = letters.next().map(|letter| letter.to_ascii_uppercase());
                first.into_iter().chain(letters).collect()
            }
        });
        std::iter::once("vir".to_owned()).chain(words).collect()
    }
}

impl fmt::Display for Procedure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "procedure {}", self.0),
        }
    }
}

impl fmt::Debug for Procedure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}#{}", self.0)
    }
}

/// A procedure with its types.
pub trait Call {
    /// Its number.
    const PROCEDURE: Procedure;
    /// What the caller sends.
    type Args: Encode + Decode;
    /// What the daemon answers.
    type Reply: Encode + Decode;
}

macro_rules! procedures {
    ($($(#[$meta:meta])* $access:ident $number:literal $constant:ident $name:literal $marker:ident ($args:ty) -> $reply:ty;)*) => {
        impl Procedure {
            $($(#[$meta])* pub const $constant: Procedure = Procedure($number);)*

            /// Every procedure this crate knows.
            pub const ALL: &'static [Procedure] = &[$(Procedure($number)),*];

            /// libvirt's name in lower case; `None` when the number is not in the table.
            pub const fn name(self) -> Option<&'static str> {
                match self.0 { $($number => Some($name),)* _ => None }
            }

            /// Whether a read-only connection is refused.
            pub const fn needs_write(self) -> bool {
                match self.0 { $($number => access!($access),)* _ => true }
            }

            /// Decodes arguments and encodes them again; `None` when the number is not in the table.
            pub fn recode_args(self, payload: &[u8]) -> Option<Result<bytes::Bytes, XdrError>> {
                match self.0 {
                    $($number => Some(xdr::from_bytes::<$args>(payload).and_then(|args| xdr::to_bytes(&args))),)*
                    _ => None,
                }
            }

            /// Decodes a result and encodes it again; `None` when the number is not in the table.
            pub fn recode_reply(self, payload: &[u8]) -> Option<Result<bytes::Bytes, XdrError>> {
                match self.0 {
                    $($number => Some(xdr::from_bytes::<$reply>(payload).and_then(|reply| xdr::to_bytes(&reply))),)*
                    _ => None,
                }
            }
        }

        /// One type per procedure, naming its arguments and result.
        pub mod calls {
            use super::*;
            $(
                $(#[$meta])*
                #[derive(Debug, Clone, Copy)]
                pub struct $marker;
                impl Call for $marker {
                    const PROCEDURE: Procedure = Procedure($number);
                    type Args = $args;
                    type Reply = $reply;
                }
            )*
        }
    };
}

macro_rules! access {
    (ro) => {
        false
    };
    (rw) => {
        true
    };
}

procedures! {
    /// Opens the driver: URI, flags (1 read-only).
    ro 1 CONNECT_OPEN "connect_open" ConnectOpen ((Option<String>, u32)) -> ();
    /// Ends the use of the driver.
    ro 2 CONNECT_CLOSE "connect_close" ConnectClose (()) -> ();
    /// Name of the driver.
    ro 3 CONNECT_GET_TYPE "connect_get_type" ConnectGetType (()) -> String;
    /// Version of the hypervisor.
    ro 4 CONNECT_GET_VERSION "connect_get_version" ConnectGetVersion (()) -> u64;
    /// Most virtual CPUs of a guest: virtualization type.
    ro 5 CONNECT_GET_MAX_VCPUS "connect_get_max_vcpus" ConnectGetMaxVcpus (Option<String>) -> i32;
    /// What the host is made of.
    ro 6 NODE_GET_INFO "node_get_info" NodeGetInfo (()) -> NodeInfo;
    /// Capabilities of host and driver, XML.
    ro 7 CONNECT_GET_CAPABILITIES "connect_get_capabilities" ConnectGetCapabilities (()) -> String;
    /// Starts a defined domain.
    rw 9 DOMAIN_CREATE "domain_create" DomainCreate (Domain) -> ();
    /// Starts a transient domain: XML, flags.
    rw 10 DOMAIN_CREATE_XML "domain_create_xml" DomainCreateXml ((String, u32)) -> Domain;
    /// Defines a domain.
    rw 11 DOMAIN_DEFINE_XML "domain_define_xml" DomainDefineXml (String) -> Domain;
    /// Stops a domain at once.
    rw 12 DOMAIN_DESTROY "domain_destroy" DomainDestroy (Domain) -> ();
    /// XML of a domain: domain, flags.
    ro 14 DOMAIN_GET_XML_DESC "domain_get_xml_desc" DomainGetXmlDesc ((Domain, u32)) -> String;
    /// Whether it starts with the daemon.
    ro 15 DOMAIN_GET_AUTOSTART "domain_get_autostart" DomainGetAutostart (Domain) -> i32;
    /// State and size.
    ro 16 DOMAIN_GET_INFO "domain_get_info" DomainGetInfo (Domain) -> DomainInfo;
    /// Most memory, KiB.
    ro 17 DOMAIN_GET_MAX_MEMORY "domain_get_max_memory" DomainGetMaxMemory (Domain) -> u64;
    /// Most virtual CPUs.
    ro 18 DOMAIN_GET_MAX_VCPUS "domain_get_max_vcpus" DomainGetMaxVcpus (Domain) -> i32;
    /// Kind of operating system.
    ro 19 DOMAIN_GET_OS_TYPE "domain_get_os_type" DomainGetOsType (Domain) -> String;
    /// Names of inactive domains: most names.
    ro 21 CONNECT_LIST_DEFINED_DOMAINS "connect_list_defined_domains" ConnectListDefinedDomains (i32) -> List<String, { limits::DOMAIN_ID_LIST }>;
    /// By number.
    ro 22 DOMAIN_LOOKUP_BY_ID "domain_lookup_by_id" DomainLookupById (i32) -> Domain;
    /// By name.
    ro 23 DOMAIN_LOOKUP_BY_NAME "domain_lookup_by_name" DomainLookupByName (String) -> Domain;
    /// By UUID.
    ro 24 DOMAIN_LOOKUP_BY_UUID "domain_lookup_by_uuid" DomainLookupByUuid (Uuid) -> Domain;
    /// How many inactive domains.
    ro 25 CONNECT_NUM_OF_DEFINED_DOMAINS "connect_num_of_defined_domains" ConnectNumOfDefinedDomains (()) -> i32;
    /// Asks the guest to reboot: domain, flags.
    rw 27 DOMAIN_REBOOT "domain_reboot" DomainReboot ((Domain, u32)) -> ();
    /// Continues a suspended domain.
    rw 28 DOMAIN_RESUME "domain_resume" DomainResume (Domain) -> ();
    /// Sets autostart: domain, on.
    rw 29 DOMAIN_SET_AUTOSTART "domain_set_autostart" DomainSetAutostart ((Domain, i32)) -> ();
    /// Changes the balloon: domain, KiB.
    rw 31 DOMAIN_SET_MEMORY "domain_set_memory" DomainSetMemory ((Domain, u64)) -> ();
    /// Asks the guest to shut down.
    rw 33 DOMAIN_SHUTDOWN "domain_shutdown" DomainShutdown (Domain) -> ();
    /// Pauses the virtual CPUs.
    rw 34 DOMAIN_SUSPEND "domain_suspend" DomainSuspend (Domain) -> ();
    /// Removes the definition.
    rw 35 DOMAIN_UNDEFINE "domain_undefine" DomainUndefine (Domain) -> ();
    /// Numbers of active domains: most numbers.
    ro 37 CONNECT_LIST_DOMAINS "connect_list_domains" ConnectListDomains (i32) -> List<i32, { limits::DOMAIN_ID_LIST }>;
    /// How many active domains.
    ro 51 CONNECT_NUM_OF_DOMAINS "connect_num_of_domains" ConnectNumOfDomains (()) -> i32;
    /// Name of the host.
    ro 59 CONNECT_GET_HOSTNAME "connect_get_hostname" ConnectGetHostname (()) -> String;
    /// Whether the driver or the protocol has a feature.
    ro 60 CONNECT_SUPPORTS_FEATURE "connect_supports_feature" ConnectSupportsFeature (i32) -> i32;
    /// Ways to authenticate.
    ro 66 AUTH_LIST "auth_list" AuthList (()) -> List<AuthType, { limits::AUTH_TYPES }>;
    /// Authenticates by polkit.
    ro 70 AUTH_POLKIT "auth_polkit" AuthPolkit (()) -> i32;
    /// Free memory per NUMA cell, bytes: first cell, most cells.
    ro 101 NODE_GET_CELLS_FREE_MEMORY "node_get_cells_free_memory" NodeGetCellsFreeMemory ((i32, i32)) -> List<u64, { limits::NODE_CELLS }>;
    /// Free memory, bytes.
    ro 102 NODE_GET_FREE_MEMORY "node_get_free_memory" NodeGetFreeMemory (()) -> u64;
    /// Lifecycle events in the oldest form.
    ro 105 CONNECT_DOMAIN_EVENT_REGISTER "connect_domain_event_register" ConnectDomainEventRegister (()) -> i32;
    /// No more of them.
    ro 106 CONNECT_DOMAIN_EVENT_DEREGISTER "connect_domain_event_deregister" ConnectDomainEventDeregister (()) -> i32;
    /// The URI in its canonical form.
    ro 110 CONNECT_GET_URI "connect_get_uri" ConnectGetUri (()) -> String;
    /// Whether the driver behind the daemon is safe from listeners.
    ro 149 CONNECT_IS_SECURE "connect_is_secure" ConnectIsSecure (()) -> i32;
    /// Whether it runs.
    ro 150 DOMAIN_IS_ACTIVE "domain_is_active" DomainIsActive (Domain) -> i32;
    /// Whether it is defined.
    ro 151 DOMAIN_IS_PERSISTENT "domain_is_persistent" DomainIsPersistent (Domain) -> i32;
    /// Version of the daemon's libvirt.
    ro 157 CONNECT_GET_LIB_VERSION "connect_get_lib_version" ConnectGetLibVersion (()) -> u64;
    /// Job statistics of fixed size.
    ro 163 DOMAIN_GET_JOB_INFO "domain_get_job_info" DomainGetJobInfo (Domain) -> JobInfo;
    /// Aborts the running job.
    rw 164 DOMAIN_ABORT_JOB "domain_abort_job" DomainAbortJob (Domain) -> ();
    /// Longest downtime of a migration: domain, ms, flags.
    rw 166 DOMAIN_MIGRATE_SET_MAX_DOWNTIME "domain_migrate_set_max_downtime" DomainMigrateSetMaxDowntime ((Domain, u64, u32)) -> ();
    /// Events of one id in the old form.
    ro 167 CONNECT_DOMAIN_EVENT_REGISTER_ANY "connect_domain_event_register_any" ConnectDomainEventRegisterAny (i32) -> ();
    /// No more of them.
    ro 168 CONNECT_DOMAIN_EVENT_DEREGISTER_ANY "connect_domain_event_deregister_any" ConnectDomainEventDeregisterAny (i32) -> ();
    /// Saves to the daemon's own file: domain, flags.
    rw 182 DOMAIN_MANAGED_SAVE "domain_managed_save" DomainManagedSave ((Domain, u32)) -> ();
    /// Whether there is such a file: domain, flags.
    ro 183 DOMAIN_HAS_MANAGED_SAVE_IMAGE "domain_has_managed_save_image" DomainHasManagedSaveImage ((Domain, u32)) -> i32;
    /// Removes that file: domain, flags.
    rw 184 DOMAIN_MANAGED_SAVE_REMOVE "domain_managed_save_remove" DomainManagedSaveRemove ((Domain, u32)) -> ();
    /// Starts: domain, flags (1 paused, 2 autodestroy, 4 bypass cache, 8 force boot).
    rw 196 DOMAIN_CREATE_WITH_FLAGS "domain_create_with_flags" DomainCreateWithFlags ((Domain, u32)) -> Domain;
    /// Number of virtual CPUs: domain, flags.
    ro 200 DOMAIN_GET_VCPUS_FLAGS "domain_get_vcpus_flags" DomainGetVcpusFlags ((Domain, u32)) -> i32;
    /// SMBIOS data, XML: flags.
    ro 203 CONNECT_GET_SYSINFO "connect_get_sysinfo" ConnectGetSysinfo (u32) -> String;
    /// Bandwidth of a migration: domain, MiB/s, flags.
    rw 207 DOMAIN_MIGRATE_SET_MAX_SPEED "domain_migrate_set_max_speed" DomainMigrateSetMaxSpeed ((Domain, u64, u32)) -> ();
    /// Sends a non-maskable interrupt: domain, flags.
    rw 210 DOMAIN_INJECT_NMI "domain_inject_nmi" DomainInjectNmi ((Domain, u32)) -> ();
    /// State and reason: domain, flags.
    ro 212 DOMAIN_GET_STATE "domain_get_state" DomainGetState ((Domain, u32)) -> DomainState;
    /// CPU time of the host: CPU (-1 all), number of fields, flags.
    ro 227 NODE_GET_CPU_STATS "node_get_cpu_stats" NodeGetCpuStats ((i32, i32, u32)) -> (List<NodeStat, { limits::NODE_CPU_STATS }>, i32);
    /// Memory of the host: number of fields, cell (-1 all), flags.
    ro 228 NODE_GET_MEMORY_STATS "node_get_memory_stats" NodeGetMemoryStats ((i32, i32, u32)) -> (List<NodeStat, { limits::NODE_MEMORY_STATS }>, i32);
    /// Whether the monitor answers: domain, flags.
    ro 229 DOMAIN_GET_CONTROL_INFO "domain_get_control_info" DomainGetControlInfo ((Domain, u32)) -> ControlInfo;
    /// Removes the definition: domain, flags.
    rw 231 DOMAIN_UNDEFINE_FLAGS "domain_undefine_flags" DomainUndefineFlags ((Domain, u32)) -> ();
    /// Stops: domain, flags (1 graceful).
    rw 234 DOMAIN_DESTROY_FLAGS "domain_destroy_flags" DomainDestroyFlags ((Domain, u32)) -> ();
    /// Resets the virtual hardware: domain, flags.
    rw 245 DOMAIN_RESET "domain_reset" DomainReset ((Domain, u32)) -> ();
    /// Asks the guest to shut down: domain, flags.
    rw 258 DOMAIN_SHUTDOWN_FLAGS "domain_shutdown_flags" DomainShutdownFlags ((Domain, u32)) -> ();
    /// Sets metadata: domain, type, metadata, key, URI, flags.
    rw 264 DOMAIN_SET_METADATA "domain_set_metadata" DomainSetMetadata ((Domain, i32, Option<String>, Option<String>, Option<String>, u32)) -> ();
    /// Metadata: domain, type (0 description, 1 title, 2 element), URI, flags.
    ro 265 DOMAIN_GET_METADATA "domain_get_metadata" DomainGetMetadata ((Domain, i32, Option<String>, u32)) -> String;
    /// Domains: want the list, flags.
    ro 273 CONNECT_LIST_ALL_DOMAINS "connect_list_all_domains" ConnectListAllDomains ((i32, u32)) -> (Domains, u32);
    /// Host CPUs: want the map, want the online count, flags.
    ro 293 NODE_GET_CPU_MAP "node_get_cpu_map" NodeGetCpuMap ((i32, i32, u32)) -> CpuMap;
    /// Job statistics: domain, flags (1 completed, 2 keep).
    ro 298 DOMAIN_GET_JOB_STATS "domain_get_job_stats" DomainGetJobStats ((Domain, u32)) -> JobStats;
    /// Migration, first step on the source: domain, parameters, flags. Gives a cookie and XML.
    rw 302 DOMAIN_MIGRATE_BEGIN3_PARAMS "domain_migrate_begin3_params" DomainMigrateBegin3Params ((Domain, MigrateParams, u32)) -> (Cookie, String);
    /// Migration on the source: domain, URI of the destination, parameters, cookie, flags. Gives a cookie.
    rw 305 DOMAIN_MIGRATE_PERFORM3_PARAMS "domain_migrate_perform3_params" DomainMigratePerform3Params ((Domain, Option<String>, MigrateParams, Cookie, u32)) -> Cookie;
    /// Registers for events of one id: id, domain (none for all). Gives the callback id.
    ro 316 CONNECT_DOMAIN_EVENT_CALLBACK_REGISTER_ANY "connect_domain_event_callback_register_any" ConnectDomainEventCallbackRegisterAny ((i32, Option<Domain>)) -> i32;
    /// Ends a registration: callback id.
    ro 317 CONNECT_DOMAIN_EVENT_CALLBACK_DEREGISTER_ANY "connect_domain_event_callback_deregister_any" ConnectDomainEventCallbackDeregisterAny (i32) -> ();
    /// Free pages: page sizes in KiB, first cell, cells, flags. Counts, cell by cell.
    ro 340 NODE_GET_FREE_PAGES "node_get_free_pages" NodeGetFreePages ((List<u32, { limits::NODE_CELLS }>, i32, u32, u32)) -> List<u64, { limits::NODE_CELLS }>;
    /// What guests can have, XML: emulator, architecture, machine, virtualization type, flags.
    rw 342 CONNECT_GET_DOMAIN_CAPABILITIES "connect_get_domain_capabilities" ConnectGetDomainCapabilities ((Option<String>, Option<String>, Option<String>, Option<String>, u32)) -> String;
    /// Statistics of many domains: domains (empty for all), mask, flags.
    ro 344 CONNECT_GET_ALL_DOMAIN_STATS "connect_get_all_domain_stats" ConnectGetAllDomainStats ((Domains, u32, u32)) -> List<DomainStats, { limits::DOMAIN_LIST }>;
    /// Defines a domain: XML, flags.
    rw 350 DOMAIN_DEFINE_XML_FLAGS "domain_define_xml_flags" DomainDefineXmlFlags ((String, u32)) -> Domain;
    /// Addresses of a guest: domain, source (0 lease, 1 agent, 2 ARP), flags.
    rw 353 DOMAIN_INTERFACE_ADDRESSES "domain_interface_addresses" DomainInterfaceAddresses ((Domain, u32, u32)) -> List<GuestInterface, { limits::INTERFACES }>;
    /// Asks to be told when the daemon loses its driver backend.
    ro 360 CONNECT_REGISTER_CLOSE_CALLBACK "connect_register_close_callback" ConnectRegisterCloseCallback (()) -> ();
    /// No more of that.
    ro 361 CONNECT_UNREGISTER_CLOSE_CALLBACK "connect_unregister_close_callback" ConnectUnregisterCloseCallback (()) -> ();
    /// Switches a migration to post-copy: domain, flags.
    rw 364 DOMAIN_MIGRATE_START_POST_COPY "domain_migrate_start_post_copy" DomainMigrateStartPostCopy ((Domain, u32)) -> ();
}

/// Features of [`calls::ConnectSupportsFeature`] this crate asks for.
pub mod feature {
    /// Peer-to-peer migration.
    pub const MIGRATION_P2P: i32 = 4;
    /// Migration protocol version 3.
    pub const MIGRATION_V3: i32 = 6;
    /// Typed parameters may be strings.
    pub const TYPED_PARAM_STRING: i32 = 9;
    /// The daemon sends keepalive pings from now on.
    pub const KEEPALIVE: i32 = 10;
    /// Migration with typed parameters.
    pub const MIGRATION_PARAMS: i32 = 13;
    /// Events with callback ids.
    pub const EVENT_CALLBACK: i32 = 14;
    /// The close callback.
    pub const CLOSE_CALLBACK: i32 = 15;
}

/// Flags of the calls, by call.
pub mod flags {
    /// Open the driver read-only.
    pub const CONNECT_RO: u32 = 1;
    /// List: active domains.
    pub const LIST_ACTIVE: u32 = 1;
    /// List: inactive domains.
    pub const LIST_INACTIVE: u32 = 2;
    /// List: active and inactive domains.
    pub const LIST_ALL: u32 = LIST_ACTIVE | LIST_INACTIVE;
    /// XML: with passwords; needs read-write.
    pub const XML_SECURE: u32 = 1;
    /// XML: the definition, not the running state.
    pub const XML_INACTIVE: u32 = 2;
    /// Job statistics: of the last finished job. Without [`JOB_KEEP_COMPLETED`] reading clears them for everybody.
    pub const JOB_COMPLETED: u32 = 1;
    /// Job statistics: do not clear.
    pub const JOB_KEEP_COMPLETED: u32 = 2;
    /// Statistics: do not wait for guests that are busy.
    pub const STATS_NOWAIT: u32 = 1 << 29;
    /// Migration: while running.
    pub const MIGRATE_LIVE: u32 = 1;
    /// Migration: the source daemon talks to the destination itself.
    pub const MIGRATE_PEER2PEER: u32 = 2;
    /// Migration: define on the destination.
    pub const MIGRATE_PERSIST_DEST: u32 = 8;
    /// Migration: undefine on the source.
    pub const MIGRATE_UNDEFINE_SOURCE: u32 = 16;
    /// Migration: do not insist on safe disk caches.
    pub const MIGRATE_UNSAFE: u32 = 512;
    /// Metadata: description.
    pub const METADATA_DESCRIPTION: i32 = 0;
    /// Metadata: title.
    pub const METADATA_TITLE: i32 = 1;
    /// Metadata: XML element of a namespace.
    pub const METADATA_ELEMENT: i32 = 2;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_unique_and_named_like_libvirt() {
        let mut numbers: Vec<_> = Procedure::ALL.to_vec();
        numbers.sort();
        numbers.dedup();
        assert_eq!(numbers.len(), Procedure::ALL.len());
        assert_eq!(
            Procedure::DOMAIN_GET_JOB_STATS.to_string(),
            "domain_get_job_stats"
        );
        assert_eq!(Procedure(9999).to_string(), "procedure 9999");
    }

    #[test]
    fn functions_are_named_like_libvirts_messages_do() {
        for (procedure, function) in [
            (Procedure::DOMAIN_SUSPEND, "virDomainSuspend"),
            (
                Procedure::CONNECT_GET_DOMAIN_CAPABILITIES,
                "virConnectGetDomainCapabilities",
            ),
            (Procedure::DOMAIN_GET_XML_DESC, "virDomainGetXMLDesc"),
            (Procedure::DOMAIN_LOOKUP_BY_UUID, "virDomainLookupByUUID"),
            (Procedure::NODE_GET_CPU_MAP, "virNodeGetCPUMap"),
        ] {
            assert_eq!(procedure.function(), function);
        }
    }

    #[test]
    fn reading_is_open_to_read_only_connections_and_writing_is_not() {
        for read in [273, 14, 212, 298, 7, 316, 344, 265, 340] {
            assert!(!Procedure(read).needs_write(), "{}", Procedure(read));
        }
        for write in [342, 34, 245, 164, 12, 350, 9999] {
            assert!(Procedure(write).needs_write(), "{}", Procedure(write));
        }
    }
}
