// SPDX-License-Identifier: Apache-2.0
//! The definition of Hypervisors.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceColumnDefinition, CustomResourceDefinition,
};
use serde_json::json;

use super::{Definition, Scope, column, condition_path, label_path, root, wide};
use crate::schema::{Schema, UUID_PATTERN};
use crate::{LifecyclePhase, Maintenance, labels};

pub(super) fn definition() -> CustomResourceDefinition {
    Definition {
        group: crate::KVM_GROUP,
        version: "v1",
        kind: "Hypervisor",
        plural: "hypervisors",
        singular: "hypervisor",
        short_names: &["hv"],
        scope: Scope::Cluster,
        columns: columns(),
        schema: root(
            "A KVM host under OpenStack. Its name is that of its Node.",
            spec(),
            status(),
        ),
    }
    .build()
}

fn columns() -> Vec<CustomResourceColumnDefinition> {
    let label = |name: &str, key| wide(2, column(name, "string", &label_path(key)));
    let of = |condition, member| condition_path(condition, member);
    vec![
        column("Node", "string", ".metadata.name"),
        label("Zone", labels::ZONE),
        label("Building Block", labels::BUILDING_BLOCK),
        label("Group", labels::WORKER_GROUP),
        column("Ready", "string", &of("Ready", "status")),
        column("State", "string", &of("Ready", "reason")),
        column("Phase", "string", ".status.phase"),
        column("Taint", "string", &of("Tainted", "message")),
        column("Lifecycle", "boolean", ".spec.lifecycleEnabled"),
        column("High Availability", "boolean", ".spec.highAvailability"),
        column("Skip Tests", "boolean", ".spec.skipTests"),
        column("Version", "string", ".status.operatingSystem.prettyVersion"),
        column("IP", "string", ".status.internalIp"),
        column("Instances", "integer", ".status.numInstances"),
        column("Hardware", "string", ".status.operatingSystem.hardwareModel"),
        column("Kernel", "string", ".status.operatingSystem.kernelRelease"),
        wide(3, column("Onboarding", "string", &of("Onboarding", "reason"))),
        wide(3, column("Service ID", "string", ".status.serviceId")),
        wide(3, column("Hypervisor ID", "string", ".status.hypervisorId")),
        column("Age", "date", ".metadata.creationTimestamp"),
    ]
}

fn switch(default: bool, doc: &str) -> Schema {
    Schema::boolean().default_value(default).doc(doc)
}

fn names(doc: &str) -> Schema {
    Schema::texts().default_value(json!([])).doc(doc)
}

fn resources(doc: &str) -> Schema {
    Schema::map_of(Schema::quantity()).doc(doc)
}

fn spec() -> Schema {
    Schema::object([
        ("version", Schema::text().doc("The operating system version this host should run.")),
        ("reboot", switch(false, "Reboot as soon as an update is installed.")),
        ("evacuateOnReboot", switch(true, "Hold a reboot back until the servers have moved away.")),
        ("lifecycleEnabled", switch(true, "Let the hypervisor operator bring this host in and take it out.")),
        ("skipTests", switch(false, "Bring the host in without booting a test server on it.")),
        ("customTraits", names("Traits that the host must hold in Placement.")),
        ("aggregates", names("Names of the host aggregates the host must be in, and in no others.")),
        ("groups", Schema::list_of(group()).doc(
            "Memberships that the scheduler reads: capabilities (traits) and administrative groups (aggregates). \
             Whether a name occurs twice is not checked here.")),
        ("allowedProjects", names("UUIDs of the projects that may place servers here; an empty list admits all.")),
        ("highAvailability", switch(true, "Recover the servers elsewhere when the host fails.")),
        ("createCertManagerCertificate", switch(false, "Have the node agent ask cert-manager for the certificate of libvirt.")),
        ("installCertificate", switch(true, "Have the node agent install the certificate of libvirt.")),
        ("maintenance", Schema::word(Maintenance::WORDS).doc(
            "Takes the host out of scheduling: `manual` by a person, `auto` by automation, `ha` by the HA service, \
             `termination` for good. Empty or absent means in service.")),
        ("maintenanceReason", Schema::text().doc("Why a person asked for maintenance; needed with `manual`.")),
        ("overcommit", Schema::map_of(Schema::number())
            .rule("self.all(k, self[k] >= 1.0)", "overcommit ratios must be >= 1.0")
            .doc("How many times over a resource (`cpu`, `memory`) may be handed out. At least 1.0; 1.0 where nothing \
                  is stated. A fractional result is rounded down.")),
    ])
    .required(&[
        "aggregates",
        "allowedProjects",
        "createCertManagerCertificate",
        "customTraits",
        "evacuateOnReboot",
        "highAvailability",
        "installCertificate",
        "lifecycleEnabled",
        "reboot",
        "skipTests",
    ])
    .rule(
        "!has(oldSelf.maintenance) || oldSelf.maintenance != 'termination' || self.maintenance == 'ha' || self == oldSelf",
        "spec is immutable when maintenance is 'termination'; can only change maintenance to 'ha'",
    )
    .rule(
        "!has(self.maintenance) || self.maintenance != 'manual' || (has(self.maintenanceReason) && self.maintenanceReason.size() > 0)",
        "maintenanceReason must be non-empty when maintenance is 'manual'",
    )
    .doc("What is wanted of this host.")
}

fn group() -> Schema {
    let trait_ = Schema::object([("name", Schema::text().min_length(1))])
        .required(&["name"])
        .doc("A capability, named as in Placement.");
    let aggregate = Schema::object([
        ("name", Schema::text().min_length(1)),
        ("uuid", Schema::text().pattern(UUID_PATTERN)),
        ("metadata", Schema::map_of(Schema::text())),
    ])
    .required(&["name", "uuid"])
    .doc("An administrative group, such as a host aggregate of Nova.");
    Schema::object([("trait", trait_), ("aggregate", aggregate)])
        .rule(
            "(has(self.trait) ? 1 : 0) + (has(self.aggregate) ? 1 : 0) == 1",
            "exactly one group type must be set",
        )
        .doc("One membership: exactly one of the fields is set and tells which kind it is.")
}

fn status() -> Schema {
    let phases: Vec<&str> = LifecyclePhase::ALL.iter().map(|phase| phase.as_str()).collect();
    Schema::object([
        ("libVirtVersion", unknown("The version of libvirt.")),
        (
            "hypervisorVersion",
            unknown("The version of the hypervisor below libvirt."),
        ),
        ("operatingSystem", operating_system()),
        ("updateStatus", update_status()),
        (
            "instances",
            Schema::list_of(instance()).doc("Guests that libvirt knows, running or not."),
        ),
        (
            "numInstances",
            Schema::integer()
                .default_value(0)
                .doc("How many guests libvirt knows."),
        ),
        ("capabilities", capabilities()),
        ("domainCapabilities", domain_capabilities()),
        ("allocation", resources("What the guests have taken.")),
        (
            "capacity",
            resources("What the host physically has, before overcommit."),
        ),
        (
            "effectiveCapacity",
            resources("What may be handed out: capacity times overcommit, rounded down."),
        ),
        ("cells", Schema::list_of(cell()).doc("NUMA cells of the host.")),
        (
            "hypervisorId",
            Schema::text().doc("UUID of the hypervisor in Nova; also its resource provider in Placement."),
        ),
        (
            "serviceId",
            Schema::text().doc("UUID of the compute service in Nova."),
        ),
        (
            "traits",
            Schema::texts().doc("Traits last seen or written in Placement."),
        ),
        (
            "aggregates",
            Schema::list_of(aggregate()).doc("Host aggregates last applied in Nova."),
        ),
        (
            "internalIp",
            Schema::text().doc("Address of the node inside the cluster."),
        ),
        (
            "evicted",
            Schema::boolean().doc("Whether the host is in maintenance and empty."),
        ),
        (
            "conditions",
            Schema::conditions().doc("What is known about the host, one entry per aspect."),
        ),
        ("specHash", Schema::text()),
        ("phase", Schema::word(&phases).doc("The conditions in one word.")),
        (
            "observedGeneration",
            Schema::int64().doc("The generation of the spec that this status answers."),
        ),
        (
            "computeHost",
            Schema::text().doc("Host of the compute service in Nova."),
        ),
        (
            "hypervisorHostname",
            Schema::text().doc("Hostname of the hypervisor in Nova."),
        ),
        (
            "managedTraits",
            Schema::texts().doc("Traits that the operator put into Placement and may remove again."),
        ),
        ("onboarding", onboarding()),
        ("agent", agent()),
        (
            "unplacedAllocation",
            resources("What guests that are not bound to a cell have taken."),
        ),
    ])
    .required(&["numInstances"])
    .doc("What is known of this host.")
}

fn unknown(doc: &str) -> Schema {
    Schema::text().default_value("unknown").doc(doc)
}

fn operating_system() -> Schema {
    let text = |doc| Schema::text().doc(doc);
    Schema::object([
        ("version", text("Version of the operating system.")),
        ("variantID", text("Variant or edition of the operating system.")),
        ("prettyVersion", text("Name and version as people write them.")),
        ("kernelName", text("Name of the kernel.")),
        ("kernelRelease", text("Release of the kernel.")),
        ("kernelVersion", text("Build of the kernel.")),
        (
            "kernelCommandLine",
            text("Parameters the kernel was booted with."),
        ),
        ("hardwareVendor", text("Maker of the machine.")),
        ("hardwareModel", text("Model of the machine.")),
        ("hardwareSerial", text("Serial number of the machine.")),
        ("firmwareVersion", text("Version of the firmware.")),
        ("firmwareVendor", text("Maker of the firmware.")),
        ("firmwareDate", Schema::time().doc("Date of the firmware.")),
        (
            "gardenLinuxCommitID",
            text("Commit that Garden Linux was built from."),
        ),
        (
            "gardenLinuxFeatures",
            Schema::texts().doc("Features that Garden Linux was built with."),
        ),
    ])
    .doc("Operating system, kernel, hardware and firmware.")
}

fn update_status() -> Schema {
    Schema::object([
        ("inProgress", switch(false, "Whether an update is running.")),
        ("installed", unknown("Version that was installed last.")),
        ("retry", Schema::integer().default_value(3).doc("Attempts left.")),
    ])
    .required(&["inProgress", "retry"])
    .doc("Progress of the operating system update.")
}

fn instance() -> Schema {
    Schema::object([
        ("id", Schema::text().doc("UUID of the guest.")),
        ("name", Schema::text().doc("Name of the libvirt domain.")),
        ("active", Schema::boolean().doc("Whether the guest is running.")),
        (
            "state",
            Schema::text().doc("What the guest is doing, in libvirt's words."),
        ),
    ])
    .required(&["active", "id", "name"])
}

fn capabilities() -> Schema {
    Schema::object([
        ("cpuArch", unknown("Processor architecture of the host.")),
        (
            "memory",
            Schema::quantity().doc("Memory of all NUMA cells together."),
        ),
        (
            "cpus",
            Schema::quantity().doc("Processors of all NUMA cells together."),
        ),
    ])
    .doc("What libvirt says the host has.")
}

fn domain_capabilities() -> Schema {
    Schema::object([
        ("arch", unknown("Processor architecture that guests see.")),
        ("hypervisorType", unknown("Kind of virtualization in libvirt's words, such as `kvm` or `ch`.")),
        ("supportedDevices", names("Device types, and below them models as `type/model`, for example `video/nvidia`.")),
        (
            "supportedCpuModes",
            names("Processor modes, and below them submodes as `mode/submode`, for example `host-passthrough/migratable`."),
        ),
        ("supportedFeatures", names("Features by name, for example `sev`.")),
    ])
    .doc("What libvirt says guests of this host may have.")
}

fn cell() -> Schema {
    let page = Schema::object([
        ("size", Schema::quantity().doc("Size of one page.")),
        ("total", Schema::int64().doc("Pages of this size.")),
        ("free", Schema::int64().doc("Pages of this size that are free.")),
    ]);
    Schema::object([
        ("cellID", Schema::int64().doc("Number of the cell.")),
        (
            "allocation",
            resources("What the guests in this cell have taken."),
        ),
        (
            "capacity",
            resources("What the cell physically has, before overcommit."),
        ),
        (
            "effectiveCapacity",
            resources("What may be handed out of this cell, with overcommit, rounded down."),
        ),
        (
            "pages",
            Schema::list_of(page).doc("Memory pages of this cell by size."),
        ),
    ])
    .required(&["cellID"])
    .doc("A NUMA cell of the host.")
}

fn aggregate() -> Schema {
    Schema::object([
        ("name", Schema::text().doc("Name of the aggregate.")),
        ("uuid", Schema::text().doc("UUID of the aggregate.")),
        (
            "metadata",
            Schema::map_of(Schema::text()).doc("Metadata of the aggregate."),
        ),
    ])
    .required(&["name", "uuid"])
    .doc("A host aggregate.")
}

fn onboarding() -> Schema {
    Schema::object([
        ("attempts", Schema::integer().doc("Test servers tried so far.")),
        ("serverId", Schema::text().doc("The test server in use.")),
        ("lastFailure", Schema::text().doc("Why the last attempt failed.")),
        ("startedAt", Schema::time().doc("When onboarding began.")),
        ("completedAt", Schema::time().doc("When onboarding ended.")),
    ])
    .doc("Progress of onboarding.")
}

fn agent() -> Schema {
    Schema::object([
        ("version", Schema::text().doc("Version of the node agent.")),
        ("bootID", Schema::text().doc("The kernel's id of this boot.")),
        ("startedAt", Schema::time().doc("When the node agent started.")),
        ("libvirtURI", Schema::text().doc("The libvirt connection in use.")),
        ("driver", Schema::text().doc("The libvirt driver in use.")),
    ])
    .doc("The node agent that reports from this host.")
}
