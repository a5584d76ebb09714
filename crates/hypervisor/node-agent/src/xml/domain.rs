// SPDX-License-Identifier: Apache-2.0
//! A guest's definition, as far as it takes something from the host: memory, virtual processors, and where both are
//! bound to. What is missing or absurd counts as nothing and is listed, so that one odd guest spoils nothing else.

use super::walk::{Attributes, Step, is, walk};
use super::{IdSet, bytes, shorten};
use crate::capacity::{Claim, GuestCell};
use crate::error::Error;

/// libvirt's own limit is far below.
const MOST_VCPUS: u64 = 65_535;
const MOST_GUEST_CELLS: usize = 1024;

/// Reads the definition of a guest.
pub fn domain(xml: &str) -> Result<Claim, Error> {
    let mut claim = Claim::default();
    let mut unit: Option<String> = None;
    let mut memory_seen = false;
    let mut vcpu_seen = false;
    let mut pins = 0_u64;
    walk("domain", xml, |path, step| match step {
        Step::Open(attributes) if is(path, "domain/memory") => {
            unit = attributes.get("unit").map(str::to_owned);
        }
        Step::Text(text) if is(path, "domain/memory") => {
            memory_seen = true;
            match bytes(text, unit.as_deref()) {
                Ok(memory) => claim.memory = memory,
                Err(why) => claim.problems.push(format!("memory: {why}")),
            }
        }
        Step::Open(attributes) if is(path, "domain/vcpu") => {
            claim.cpuset = set(attributes, "cpuset", "vcpu", &mut claim.problems);
        }
        Step::Text(text) if is(path, "domain/vcpu") => {
            vcpu_seen = true;
            match text.parse::<u64>().ok().filter(|count| *count <= MOST_VCPUS) {
                Some(count) => claim.vcpus = count,
                None => claim
                    .problems
                    .push(format!("{:?} is no number of processors", shorten(text))),
            }
        }
        Step::Open(attributes) if is(path, "domain/cputune/vcpupin") => {
            pins = pins.saturating_add(1);
            let cpuset = set(attributes, "cpuset", "vcpupin", &mut claim.problems);
            if let (Some(vcpu), Some(cpuset)) = (attributes.number::<u32>("vcpu"), cpuset) {
                claim.pins.insert(vcpu, cpuset);
            }
        }
        Step::Open(attributes) if is(path, "domain/numatune/memory") => {
            claim.nodeset = set(attributes, "nodeset", "numatune", &mut claim.problems);
        }
        Step::Open(attributes) if is(path, "domain/numatune/memnode") => {
            let nodes = set(attributes, "nodeset", "memnode", &mut claim.problems);
            if let (Some(cell), Some(nodes)) = (attributes.number::<u32>("cellid"), nodes) {
                claim.memnodes.insert(cell, nodes);
            }
        }
        Step::Open(attributes)
            if is(path, "domain/cpu/numa/cell") && claim.cells.len() < MOST_GUEST_CELLS =>
        {
            let next = u32::try_from(claim.cells.len()).unwrap_or(u32::MAX);
            guest_cell(attributes, next, &mut claim);
        }
        _ => {}
    })?;
    if !memory_seen {
        claim.problems.push("no memory is given".to_owned());
    }
    if !vcpu_seen {
        // Old definitions; the pins say how many there are.
        claim.vcpus = pins.min(MOST_VCPUS);
    }
    Ok(claim)
}

/// A NUMA cell of the guest. Without a number it is the next one.
fn guest_cell(attributes: &Attributes, next: u32, claim: &mut Claim) {
    let id = attributes.number("id").unwrap_or(next);
    let memory = match bytes(attributes.get("memory").unwrap_or("0"), attributes.get("unit")) {
        Ok(memory) => memory,
        Err(why) => {
            claim.problems.push(format!("memory of guest cell {id}: {why}"));
            0
        }
    };
    let cpus = set(attributes, "cpus", "guest cell", &mut claim.problems);
    claim.cells.push(GuestCell {
        id,
        memory,
        cpus: cpus.unwrap_or_default(),
    });
}

fn set(attributes: &Attributes, name: &str, place: &str, problems: &mut Vec<String>) -> Option<IdSet> {
    match attributes.get(name).map(IdSet::parse)? {
        Ok(set) => Some(set),
        Err(why) => {
            problems.push(format!("{name} of {place}: {why}"));
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_nova_guest_is_read_with_its_bindings() {
        let claim = domain(
            "<domain type='kvm' id='3'><name>instance-0000a1b2</name>
             <metadata><nova:instance xmlns:nova='http://openstack.org/xmlns/libvirt/nova/1.1'>
               <nova:flavor><nova:memory>1</nova:memory><nova:vcpus>99</nova:vcpus></nova:flavor></nova:instance></metadata>
             <memory unit='KiB'>4194304</memory><currentMemory unit='KiB'>1</currentMemory>
             <vcpu placement='static' cpuset='0-7'>4</vcpu>
             <cputune><vcpupin vcpu='0' cpuset='4'/><vcpupin vcpu='1' cpuset='5-6'/></cputune>
             <numatune><memory mode='strict' nodeset='0-1'/><memnode cellid='0' mode='strict' nodeset='1'/></numatune>
             <cpu><numa><cell id='0' cpus='0-3' memory='4194304' unit='KiB'/></numa></cpu>
             <devices><memory model='dimm'><target><size>7</size></target></memory></devices></domain>",
        )
        .unwrap();
        assert_eq!((claim.memory, claim.vcpus), (4 << 30, 4));
        assert_eq!(claim.problems, Vec::<String>::new());
        assert!(claim.pins[&1].contains(6) && claim.cpuset.as_ref().unwrap().contains(7));
        assert!(claim.memnodes[&0].contains(1) && claim.nodeset.as_ref().unwrap().contains(0));
        assert_eq!((claim.cells[0].memory, claim.cells[0].cpus.len()), (4 << 30, 4));
    }

    #[test]
    fn a_plain_guest_is_no_problem() {
        let claim = domain("<domain><memory unit='MiB'>32</memory><vcpu>1</vcpu></domain>").unwrap();
        assert_eq!(
            (claim.memory, claim.vcpus, claim.problems.len()),
            (32 << 20, 1, 0)
        );
    }

    #[test]
    fn missing_and_absurd_numbers_count_as_nothing_and_are_named() {
        let table = [
            ("<domain><vcpu>2</vcpu></domain>", (0, 2), "no memory is given"),
            (
                "<domain><memory unit='furlong'>2</memory><vcpu>2</vcpu></domain>",
                (0, 2),
                "unknown unit",
            ),
            (
                "<domain><memory>1</memory><vcpu>999999999999</vcpu></domain>",
                (1024, 0),
                "no number of processors",
            ),
            (
                "<domain><memory>1</memory><vcpu>-1</vcpu></domain>",
                (1024, 0),
                "no number of processors",
            ),
            (
                "<domain><memory>18446744073709551615</memory><vcpu>1</vcpu></domain>",
                (0, 1),
                "more memory than",
            ),
            (
                "<domain><memory>1</memory><vcpu cpuset='9-1'>1</vcpu></domain>",
                (1024, 1),
                "cpuset of vcpu",
            ),
        ];
        for (xml, amounts, words) in table {
            let claim = domain(xml).unwrap();
            assert_eq!((claim.memory, claim.vcpus), amounts, "{xml}");
            assert!(
                claim.problems.iter().any(|text| text.contains(words)),
                "{xml}: {:?}",
                claim.problems
            );
        }
    }

    #[test]
    fn without_a_processor_count_the_pins_are_counted() {
        let xml = "<domain><memory>1</memory><cputune><vcpupin vcpu='0' cpuset='1'/><vcpupin vcpu='1' cpuset='1'/></cputune></domain>";
        assert_eq!(domain(xml).unwrap().vcpus, 2);
    }

    proptest::proptest! {
        #[test]
        fn no_document_makes_it_panic(xml in "[<>/a-z'=& 0-9-]{0,200}") {
            let _ = domain(&xml);
        }
    }
}
