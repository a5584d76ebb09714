// SPDX-License-Identifier: Apache-2.0
//! Where the disks of guests are, as their hosts list them. A disk that Nova would rebuild empty is
//! lost, so the word of the host that has it open counts beside what the configuration says.

use std::collections::BTreeMap;
use std::sync::Arc;

use cobaltcore_api::names::{HostName, ServerId};
use cobaltcore_ha_wire::{Disk, DomainEntry};
use parking_lot::RwLock;
use uuid::Uuid;

/// Disks of a guest that hold something: an empty drive is none.
fn held(domain: &DomainEntry) -> impl Iterator<Item = &Disk> {
    domain.disks.iter().filter(|disk| !disk.source.is_empty())
}

fn rbd(disk: &Disk) -> bool {
    disk.kind == "network" && disk.source.starts_with("rbd:")
}

/// Whether all disks of a guest are in Ceph, in pools that are meant. A guest whose disks were not listed may have any.
pub(crate) fn in_ceph(domain: &DomainEntry, meant: impl Fn(&str) -> bool) -> bool {
    let mut disks = held(domain).peekable();
    disks.peek().is_some() && disks.all(|disk| rbd(disk) && meant(pool(disk)))
}

/// The pool of a disk in Ceph.
fn pool(disk: &Disk) -> &str {
    let image = disk.source.strip_prefix("rbd:").unwrap_or_default();
    image.split('/').next().unwrap_or_default()
}

/// Whether the disk that was made of the guest's image is certainly not in Ceph: none of its disks is, or one on the
/// host itself has the name that Nova gives to it. A guest whose disks were not listed says nothing.
pub(crate) fn root_outside_ceph(domain: &DomainEntry) -> bool {
    let in_a_folder = format!("/{}/disk", domain.uuid);
    let as_a_device = format!("{}_disk", domain.uuid);
    let root = |disk: &Disk| {
        disk.kind != "network" && (disk.source.ends_with(&in_a_folder) || disk.source.ends_with(&as_a_device))
    };
    held(domain).next().is_some() && (!held(domain).any(rbd) || held(domain).any(root))
}

/// Guests of whose disks something is known, by the host that last listed them. Cheap to clone; clones share.
#[derive(Clone, Debug, Default)]
pub struct Guests(Arc<RwLock<BTreeMap<HostName, Box<[Uuid]>>>>);

impl Guests {
    /// These guests of a host, and no others.
    pub(crate) fn note<'a>(&self, host: &HostName, guests: impl Iterator<Item = &'a DomainEntry>) {
        let numbers = guests.filter_map(|domain| Uuid::try_parse(domain.uuid.as_str()).ok());
        let mut numbers: Vec<Uuid> = numbers.collect();
        numbers.sort_unstable();
        let mut known = self.0.write();
        if numbers.is_empty() {
            known.remove(host);
        } else {
            known.insert(host.clone(), numbers.into_boxed_slice());
        }
    }

    /// These guests as well, as an earlier life of this process knew them.
    pub(crate) fn remember(&self, guests: Vec<(HostName, Uuid)>) {
        let mut of: BTreeMap<HostName, Vec<Uuid>> = BTreeMap::new();
        for (host, guest) in guests {
            of.entry(host).or_default().push(guest);
        }
        let mut known = self.0.write();
        for (host, mut guests) in of {
            guests.sort_unstable();
            known.insert(host, guests.into_boxed_slice());
        }
    }

    /// Those of a host.
    pub(crate) fn of(&self, host: &HostName) -> Vec<Uuid> {
        let known = self.0.read();
        known.get(host).map(|guests| guests.to_vec()).unwrap_or_default()
    }

    /// Whether a guest is among them. Not knowing is no.
    pub(crate) fn has(&self, host: &HostName, server: &ServerId) -> bool {
        let known = self.0.read();
        let (Some(guests), Ok(server)) = (known.get(host), Uuid::try_parse(server.as_str())) else {
            return false;
        };
        guests.binary_search(&server).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const ID: &str = "12e479eb-6bef-4fdb-bfdc-0388df68bed9";

    fn guest(disks: &[(&str, &str)]) -> DomainEntry {
        let disks = disks
            .iter()
            .map(|(kind, source)| json!({"type": kind, "source": source}));
        let domain = json!({
            "uuid": ID, "name": "i", "state": "running", "disks": disks.collect::<Vec<_>>(),
        });
        serde_json::from_value(domain).unwrap()
    }

    #[test]
    fn a_guest_is_in_ceph_when_all_its_disks_are() {
        let ceph = |disks: &[(&str, &str)]| in_ceph(&guest(disks), |pool| pool == "vms");
        let rbd = ("network", "rbd:vms/a_disk");
        assert!(
            !ceph(&[rbd, ("network", "rbd:volumes/b")]) && !ceph(&[("network", "rbd:vms2/a_disk")]),
            "a pool of another cluster"
        );
        assert!(ceph(&[("network", "rbd:vms/space/a_disk")]));
        assert!(ceph(&[rbd]) && ceph(&[rbd, ("file", "")]));
        assert!(!ceph(&[rbd, ("file", "/var/lib/x")]) && !ceph(&[("network", "iscsi:x")]));
        assert!(!ceph(&[]) && !ceph(&[("file", "")]), "nobody knows");
    }

    #[test]
    fn a_disk_on_the_host_itself_is_known_by_its_name_or_by_being_alone() {
        let outside = |disks: &[(&str, &str)]| root_outside_ceph(&guest(disks));
        let root = format!("rbd:vms/{ID}_disk");
        let file = format!("/var/lib/nova/instances/{ID}/disk");
        let lvm = format!("/dev/vg/{ID}_disk");
        let config = format!("/var/lib/nova/instances/{ID}/disk.config");
        let volume = ("network", "rbd:volumes/volume-1");
        assert!(outside(&[("file", &file)]) && outside(&[("block", &lvm)]));
        assert!(
            outside(&[("file", &file), volume]),
            "a volume beside it saves nothing"
        );
        assert!(outside(&[("file", "/srv/anything")]), "nothing of it is in Ceph");
        assert!(!outside(&[("network", &root)]));
        assert!(
            !outside(&[("network", &root), ("file", &config)]),
            "made anew each time"
        );
        assert!(!outside(&[]) && !outside(&[("file", "")]), "nobody knows");
    }

    #[test]
    fn the_last_list_of_a_host_counts() {
        let (host, server) = (HostName::new("n1").unwrap(), ServerId::new(ID).unwrap());
        let guests = Guests::default();
        assert!(!guests.has(&host, &server));
        guests.note(&host, [guest(&[])].iter());
        assert!(guests.has(&host, &server));
        assert!(!guests.has(&HostName::new("n2").unwrap(), &server));
        guests.note(&host, [].iter());
        assert!(!guests.has(&host, &server));
    }
}
