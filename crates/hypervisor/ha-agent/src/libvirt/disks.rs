// SPDX-License-Identifier: Apache-2.0
//! The disks in the definition of a guest: what each is, where its data is, and who serves it. A document that cannot be
//! read has those disks that could.

use cobaltcore_ha_wire::{Disk, bounds};
use quick_xml::Reader;
use quick_xml::events::{BytesStart, Event as Xml};

const LARGEST_XML: usize = 4 << 20;
/// Servers of one disk.
const MOST_SERVERS: usize = 16;

/// A disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    /// As the inventory has it.
    pub(crate) disk: Disk,
    /// How it is spoken to, where it is not on this host.
    pub(crate) protocol: Option<String>,
    /// By whom it is served: a name or an address, and a port unless it is the usual one.
    pub(crate) servers: Vec<(String, Option<u16>)>,
}

/// The disks in a definition.
pub(crate) fn of(xml: &str) -> Vec<Found> {
    let mut disks: Vec<Found> = Vec::new();
    if xml.len() > LARGEST_XML {
        return disks;
    }
    let mut reader = Reader::from_str(xml);
    let mut path: Vec<String> = Vec::new();
    while let Ok(event) = reader.read_event() {
        match event {
            Xml::Start(element) => {
                open(&mut disks, &path, &element);
                path.push(element.local_name().as_ref().to_owned());
            }
            Xml::Empty(element) => open(&mut disks, &path, &element),
            Xml::End(_) => {
                path.pop();
            }
            Xml::Eof => break,
            _ => {}
        }
    }
    disks.truncate(bounds::DISKS);
    disks
}

fn open(disks: &mut Vec<Found>, path: &[String], element: &BytesStart<'_>) {
    let attribute = |name: &str| {
        let found = element
            .attributes()
            .flatten()
            .find(|attribute| attribute.key.local_name().as_ref() == name);
        found.map(|attribute| {
            let raw = attribute.value.as_ref();
            quick_xml::escape::unescape(raw).map_or_else(|_| raw.to_owned(), Into::into)
        })
    };
    let inside = path.iter().map(String::as_str).collect::<Vec<_>>();
    let name = element.local_name();
    match (inside.as_slice(), name.as_ref()) {
        (["domain", "devices"], "disk") => disks.push(Found {
            disk: Disk {
                kind: attribute("type").unwrap_or_default(),
                source: String::new(),
            },
            protocol: None,
            servers: Vec::new(),
        }),
        (["domain", "devices", "disk"], "source") => {
            let names = ["file", "dev", "name", "dir", "volume"];
            let place = names.into_iter().find_map(attribute).unwrap_or_default();
            let protocol = attribute("protocol");
            let whole = match &protocol {
                Some(protocol) => format!("{protocol}:{place}"),
                None => place,
            };
            if let Some(found) = disks.last_mut() {
                bounds::clip(&whole, bounds::TEXT).clone_into(&mut found.disk.source);
                found.protocol = protocol;
            }
        }
        (["domain", "devices", "disk", "source"], "host") => {
            let port = attribute("port").and_then(|port| port.parse().ok());
            if let (Some(name), Some(found)) = (attribute("name"), disks.last_mut())
                && found.servers.len() < MOST_SERVERS
            {
                found.servers.push((name, port));
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn disks_of_a_definition() {
        let xml = "<domain><devices>
            <disk type='network' device='disk'><source protocol='rbd' name='vms/a&amp;b_disk'><host name='m1'/><host name='10.0.0.2' port='3300'/></source></disk>
            <disk type='file'><source file='/var/lib/x.qcow2'/><backingStore type='file'><source file='/base'/></backingStore></disk>
            <disk type='block'><source dev='/dev/sda'/></disk>
            <disk type='file' device='cdrom'/>
            </devices></domain>";
        let found = of(xml);
        let told: Vec<(&str, &str)> = found
            .iter()
            .map(|found| (found.disk.kind.as_str(), found.disk.source.as_str()))
            .collect();
        let wanted = [
            ("network", "rbd:vms/a&b_disk"),
            ("file", "/var/lib/x.qcow2"),
            ("block", "/dev/sda"),
            ("file", ""),
        ];
        assert_eq!(told, wanted);
        assert_eq!(found[0].protocol.as_deref(), Some("rbd"));
        assert_eq!(
            found[0].servers,
            [("m1".to_owned(), None), ("10.0.0.2".to_owned(), Some(3300))]
        );
        assert!(found[1].protocol.is_none() && found[1].servers.is_empty());
    }

    proptest! {
        #[test]
        fn no_document_makes_it_panic(xml in "[<>/a-z'=& 0-9-]{0,200}") {
            let _ = of(&xml);
        }
    }
}
