// SPDX-License-Identifier: Apache-2.0
//! Placement's records: providers with inventories, traits and aggregates under a generation, and consumers with what
//! they hold. Used amounts are kept per provider, so neither a list nor a candidate search adds anything up.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// Amounts by resource class.
pub type Resources = BTreeMap<String, u64>;

/// How much of a resource class a provider has.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Inventory {
    /// In all.
    pub total: u64,
    /// Kept back.
    #[serde(default)]
    pub reserved: u64,
    /// Least one consumer may take.
    #[serde(default = "one")]
    pub min_unit: u64,
    /// Most one consumer may take.
    #[serde(default = "most")]
    pub max_unit: u64,
    /// Amounts are multiples of this.
    #[serde(default = "one")]
    pub step_size: u64,
    /// How often it may be given away.
    #[serde(default = "once")]
    pub allocation_ratio: f64,
}

fn one() -> u64 {
    1
}

fn most() -> u64 {
    i32::MAX as u64
}

fn once() -> f64 {
    1.0
}

impl Inventory {
    /// All of it, for whole units.
    pub fn of(total: u64, reserved: u64, ratio: f64) -> Self {
        Self {
            total,
            reserved,
            min_unit: 1,
            max_unit: total.max(1),
            step_size: 1,
            allocation_ratio: ratio,
        }
    }

    /// What may be given away.
    pub fn capacity(&self) -> u64 {
        (self.total.saturating_sub(self.reserved) as f64 * self.allocation_ratio) as u64
    }
}

/// A resource provider.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Provider {
    /// Identity.
    pub uuid: Uuid,
    /// Name.
    pub name: String,
    /// Goes up with every change.
    pub generation: u64,
    /// What it has.
    pub inventories: BTreeMap<String, Inventory>,
    /// What it is.
    pub traits: BTreeSet<String>,
    /// Aggregates it is in.
    pub aggregates: BTreeSet<Uuid>,
    /// The provider it belongs to.
    pub parent: Option<Uuid>,
    /// What is taken, kept in step with the consumers.
    #[serde(skip)]
    pub used: Resources,
    /// Who takes it, kept in step with the consumers.
    #[serde(skip)]
    pub consumers: BTreeSet<Uuid>,
}

impl Provider {
    /// A provider with nothing.
    pub fn new(uuid: Uuid, name: impl Into<String>) -> Self {
        Self {
            uuid,
            name: name.into(),
            generation: 0,
            inventories: BTreeMap::new(),
            traits: BTreeSet::new(),
            aggregates: BTreeSet::new(),
            parent: None,
            used: Resources::new(),
            consumers: BTreeSet::new(),
        }
    }

    /// What is left of a class.
    pub fn free(&self, class: &str) -> u64 {
        let capacity = self.inventories.get(class).map_or(0, Inventory::capacity);
        capacity.saturating_sub(self.used.get(class).copied().unwrap_or(0))
    }

    /// Whether all of this fits.
    pub fn fits(&self, wanted: &Resources) -> bool {
        wanted.iter().all(|(class, amount)| {
            self.free(class) >= *amount
                && self.inventories.get(class).is_some_and(|inventory| {
                    (inventory.min_unit..=inventory.max_unit).contains(amount)
                        && amount.is_multiple_of(inventory.step_size.max(1))
                })
        })
    }
}

/// Who takes resources.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Consumer {
    /// Goes up with every change.
    pub generation: u64,
    /// In which project.
    pub project: String,
    /// For which user.
    pub user: String,
    /// What it is: `INSTANCE`, `MIGRATION`.
    pub kind: String,
    /// What it takes, by provider.
    pub allocations: BTreeMap<Uuid, Resources>,
}

/// Everything Placement knows.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Placement {
    /// Providers.
    pub providers: BTreeMap<Uuid, Provider>,
    /// Consumers.
    pub consumers: BTreeMap<Uuid, Consumer>,
    /// Traits that were added to the standard ones.
    pub custom_traits: BTreeSet<String>,
}

impl Placement {
    /// Fills what is not saved.
    pub(crate) fn index(&mut self) {
        let all: Vec<(Uuid, Uuid, Resources)> = self
            .consumers
            .iter()
            .flat_map(|(consumer, held)| {
                held.allocations
                    .iter()
                    .map(|(provider, amounts)| (*consumer, *provider, amounts.clone()))
            })
            .collect();
        for (consumer, provider, amounts) in all {
            if let Some(provider) = self.providers.get_mut(&provider) {
                provider.consumers.insert(consumer);
                take(&mut provider.used, &amounts);
            }
        }
    }

    /// Makes a consumer hold exactly this; nothing removes it. The providers' generations go up.
    pub fn allocate(&mut self, consumer: Uuid, held: Consumer) {
        let before = self.consumers.remove(&consumer);
        for (uuid, amounts) in before.iter().flat_map(|before| &before.allocations) {
            if let Some(provider) = self.providers.get_mut(uuid) {
                give_back(&mut provider.used, amounts);
                provider.consumers.remove(&consumer);
            }
        }
        for (uuid, amounts) in &held.allocations {
            if let Some(provider) = self.providers.get_mut(uuid) {
                take(&mut provider.used, amounts);
                provider.consumers.insert(consumer);
                provider.generation += 1;
            }
        }
        if !held.allocations.is_empty() {
            let generation = before.map_or(1, |before| before.generation + 1);
            self.consumers.insert(consumer, Consumer { generation, ..held });
        }
    }

    /// Takes what a consumer holds at one provider away.
    pub fn release(&mut self, consumer: Uuid, provider: Uuid) {
        if let Some(mut held) = self.consumers.get(&consumer).cloned()
            && held.allocations.remove(&provider).is_some()
        {
            self.allocate(consumer, held);
        }
    }

    /// Moves everything one consumer holds to another.
    pub fn hand_over(&mut self, from: Uuid, to: Uuid, kind: &str) {
        if let Some(held) = self.consumers.get(&from).cloned() {
            self.allocate(from, Consumer::default());
            let kind = kind.to_owned();
            self.allocate(to, Consumer { kind, ..held });
        }
    }

    /// Removes a provider; what its consumers held there goes with it.
    pub fn remove_provider(&mut self, uuid: Uuid) {
        let consumers = self
            .providers
            .get(&uuid)
            .map(|provider| provider.consumers.clone());
        for consumer in consumers.unwrap_or_default() {
            self.release(consumer, uuid);
        }
        self.providers.remove(&uuid);
    }

    /// Whether a trait may be used.
    pub fn knows_trait(&self, name: &str) -> bool {
        self.custom_traits.contains(name) || STANDARD_TRAITS.contains(&name)
    }

    /// Sets or clears one trait, as Nova does for a disabled service.
    pub fn mark(&mut self, uuid: Uuid, name: &str, set: bool) {
        if let Some(provider) = self.providers.get_mut(&uuid) {
            let changed = if set {
                provider.traits.insert(name.to_owned())
            } else {
                provider.traits.remove(name)
            };
            provider.generation += u64::from(changed);
        }
    }
}

fn take(used: &mut Resources, amounts: &Resources) {
    for (class, amount) in amounts {
        *used.entry(class.clone()).or_default() += amount;
    }
}

fn give_back(used: &mut Resources, amounts: &Resources) {
    for (class, amount) in amounts {
        if let Some(sum) = used.get_mut(class) {
            *sum = sum.saturating_sub(*amount);
        }
    }
}

/// The trait Nova gives to providers of disabled services.
pub const STATUS_DISABLED: &str = "COMPUTE_STATUS_DISABLED";

/// What a libvirt host reports about itself.
pub(super) const HOST_TRAITS: &[&str] = &[
    "COMPUTE_ACCELERATORS",
    "COMPUTE_DEVICE_TAGGING",
    "COMPUTE_EXTEND_VOLUME",
    "COMPUTE_GRAPHICS_MODEL_VGA",
    "COMPUTE_GRAPHICS_MODEL_VIRTIO",
    "COMPUTE_IMAGE_TYPE_ISO",
    "COMPUTE_IMAGE_TYPE_QCOW2",
    "COMPUTE_IMAGE_TYPE_RAW",
    "COMPUTE_NET_ATTACH_INTERFACE",
    "COMPUTE_NET_VIF_MODEL_E1000",
    "COMPUTE_NET_VIF_MODEL_VIRTIO",
    "COMPUTE_NODE",
    "COMPUTE_RESCUE_BFV",
    "COMPUTE_SECURITY_UEFI_SECURE_BOOT",
    "COMPUTE_SOCKET_PCI_NUMA_AFFINITY",
    "COMPUTE_STORAGE_BUS_SATA",
    "COMPUTE_STORAGE_BUS_SCSI",
    "COMPUTE_STORAGE_BUS_USB",
    "COMPUTE_STORAGE_BUS_VIRTIO",
    "COMPUTE_TRUSTED_CERTS",
    "COMPUTE_VIOMMU_MODEL_AUTO",
    "COMPUTE_VOLUME_ATTACH_WITH_TAG",
    "COMPUTE_VOLUME_EXTEND",
    "COMPUTE_VOLUME_MULTI_ATTACH",
    "HW_CPU_X86_AESNI",
    "HW_CPU_X86_AVX",
    "HW_CPU_X86_AVX2",
    "HW_CPU_X86_BMI",
    "HW_CPU_X86_BMI2",
    "HW_CPU_X86_FMA3",
    "HW_CPU_X86_MMX",
    "HW_CPU_X86_SSE",
    "HW_CPU_X86_SSE2",
    "HW_CPU_X86_SSE41",
    "HW_CPU_X86_SSE42",
    "HW_CPU_X86_SSSE3",
    "HW_CPU_X86_VMX",
];

/// Traits Placement brings along, as far as hosts, flavors and operators use them.
pub const STANDARD_TRAITS: &[&str] = &[
    "COMPUTE_ACCELERATORS",
    "COMPUTE_CONFIG_DRIVE_REGENERATION",
    "COMPUTE_DEVICE_TAGGING",
    "COMPUTE_EPHEMERAL_ENCRYPTION",
    "COMPUTE_EXTEND_VOLUME",
    "COMPUTE_GRAPHICS_MODEL_CIRRUS",
    "COMPUTE_GRAPHICS_MODEL_NONE",
    "COMPUTE_GRAPHICS_MODEL_QXL",
    "COMPUTE_GRAPHICS_MODEL_VGA",
    "COMPUTE_GRAPHICS_MODEL_VIRTIO",
    "COMPUTE_IMAGE_TYPE_AKI",
    "COMPUTE_IMAGE_TYPE_AMI",
    "COMPUTE_IMAGE_TYPE_ARI",
    "COMPUTE_IMAGE_TYPE_ISO",
    "COMPUTE_IMAGE_TYPE_QCOW2",
    "COMPUTE_IMAGE_TYPE_RAW",
    "COMPUTE_IMAGE_TYPE_VMDK",
    "COMPUTE_MANAGED_PCI_DEVICE",
    "COMPUTE_MIGRATE_AUTO_CONVERGE",
    "COMPUTE_MIGRATE_POST_COPY",
    "COMPUTE_NET_ATTACH_INTERFACE",
    "COMPUTE_NET_ATTACH_INTERFACE_WITH_TAG",
    "COMPUTE_NET_VIF_MODEL_E1000",
    "COMPUTE_NET_VIF_MODEL_E1000E",
    "COMPUTE_NET_VIF_MODEL_VIRTIO",
    "COMPUTE_NODE",
    "COMPUTE_REMOTE_MANAGED_PORTS",
    "COMPUTE_RESCUE_BFV",
    "COMPUTE_SAME_HOST_COLD_MIGRATE",
    "COMPUTE_SECURITY_TPM_1_2",
    "COMPUTE_SECURITY_TPM_2_0",
    "COMPUTE_SECURITY_UEFI_SECURE_BOOT",
    "COMPUTE_SOCKET_PCI_NUMA_AFFINITY",
    "COMPUTE_STATUS_DISABLED",
    "COMPUTE_STORAGE_BUS_FDC",
    "COMPUTE_STORAGE_BUS_IDE",
    "COMPUTE_STORAGE_BUS_SATA",
    "COMPUTE_STORAGE_BUS_SCSI",
    "COMPUTE_STORAGE_BUS_USB",
    "COMPUTE_STORAGE_BUS_VIRTIO",
    "COMPUTE_TRUSTED_CERTS",
    "COMPUTE_VIOMMU_MODEL_AUTO",
    "COMPUTE_VIOMMU_MODEL_INTEL",
    "COMPUTE_VIOMMU_MODEL_VIRTIO",
    "COMPUTE_VOLUME_ATTACH",
    "COMPUTE_VOLUME_ATTACH_WITH_TAG",
    "COMPUTE_VOLUME_EXTEND",
    "COMPUTE_VOLUME_MULTI_ATTACH",
    "HW_ARCH_AARCH64",
    "HW_ARCH_X86_64",
    "HW_CPU_HYPERTHREADING",
    "HW_CPU_X86_AESNI",
    "HW_CPU_X86_AMD_SEV",
    "HW_CPU_X86_AVX",
    "HW_CPU_X86_AVX2",
    "HW_CPU_X86_AVX512F",
    "HW_CPU_X86_BMI",
    "HW_CPU_X86_BMI2",
    "HW_CPU_X86_FMA3",
    "HW_CPU_X86_INTEL_VMX",
    "HW_CPU_X86_MMX",
    "HW_CPU_X86_SSE",
    "HW_CPU_X86_SSE2",
    "HW_CPU_X86_SSE41",
    "HW_CPU_X86_SSE42",
    "HW_CPU_X86_SSSE3",
    "HW_CPU_X86_SVM",
    "HW_CPU_X86_VMX",
    "HW_NUMA_ROOT",
    "MISC_SHARES_VIA_AGGREGATE",
    "OWNER_NOVA",
    "STORAGE_DISK_HDD",
    "STORAGE_DISK_SSD",
];

/// Resource classes Placement brings along.
pub const RESOURCE_CLASSES: &[&str] = &[
    "DISK_GB",
    "FPGA",
    "IPV4_ADDRESS",
    "MEMORY_MB",
    "MEM_ENCRYPTION_CONTEXT",
    "NET_BW_EGR_KILOBIT_PER_SEC",
    "NET_BW_IGR_KILOBIT_PER_SEC",
    "NET_PACKET_RATE_KILOPACKET_PER_SEC",
    "NUMA_CORE",
    "NUMA_MEMORY_MB",
    "NUMA_SOCKET",
    "NUMA_THREAD",
    "PCI_DEVICE",
    "PCPU",
    "PGPU",
    "SRIOV_NET_VF",
    "VCPU",
    "VGPU",
    "VGPU_DISPLAY_HEAD",
];

#[cfg(test)]
mod tests {
    use super::*;

    fn amounts(vcpu: u64) -> Resources {
        Resources::from([("VCPU".to_owned(), vcpu)])
    }

    #[test]
    fn what_is_used_follows_every_change_of_a_consumer() {
        let (host, other, guest) = (Uuid::from_u128(1), Uuid::from_u128(2), Uuid::from_u128(9));
        let mut placement = Placement::default();
        for uuid in [host, other] {
            let mut provider = Provider::new(uuid, "host");
            provider
                .inventories
                .insert("VCPU".into(), Inventory::of(8, 0, 2.0));
            placement.providers.insert(uuid, provider);
        }
        let held = Consumer {
            allocations: BTreeMap::from([(host, amounts(10)), (other, amounts(4))]),
            ..Consumer::default()
        };
        placement.allocate(guest, held);
        assert_eq!(placement.providers[&host].free("VCPU"), 6);
        assert!(!placement.providers[&host].fits(&amounts(7)));
        assert_eq!(placement.providers[&host].generation, 1);
        placement.release(guest, host);
        assert_eq!(placement.providers[&host].free("VCPU"), 16);
        assert_eq!(placement.providers[&other].free("VCPU"), 12);
        placement.remove_provider(other);
        assert!(placement.consumers.is_empty());
    }

    #[test]
    fn one_consumer_may_not_take_more_than_there_is_of_the_real_thing() {
        let mut provider = Provider::new(Uuid::nil(), "host");
        provider
            .inventories
            .insert("VCPU".into(), Inventory::of(8, 0, 16.0));
        assert!(provider.fits(&amounts(8)));
        assert!(!provider.fits(&amounts(9)), "max_unit");
        assert!(!provider.fits(&Resources::from([("PCPU".to_owned(), 1)])));
    }
}
