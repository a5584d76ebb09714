// SPDX-License-Identifier: Apache-2.0
//! Capabilities of the host: architecture and NUMA cells with their memory, huge pages and processors.

use std::collections::BTreeMap;

use super::bytes;
use super::walk::{Step, is, walk};
use crate::capacity::{HostCell, HostCells};
use crate::error::Error;

const CELL: &str = "capabilities/host/topology/cells/cell";
/// More cells than the protocol can list are a mistake.
const MOST_CELLS: usize = 1024;
const MOST_CPUS: u64 = 1 << 20;
const MOST_PAGE_SIZES: usize = 16;

/// Reads capabilities. What cannot be understood inside of a cell is listed in `problems`.
pub fn capabilities(xml: &str) -> Result<HostCells, Error> {
    let mut host = HostCells::default();
    let mut cell: Option<(u64, HostCell)> = None;
    let mut unit: Option<String> = None;
    let mut page: Option<u64> = None;
    let mut cells: BTreeMap<u64, HostCell> = BTreeMap::new();
    let mut problems = Vec::new();
    walk("capabilities", xml, |path, step| match step {
        Step::Text(text) if is(path, "capabilities/host/cpu/arch") => text.clone_into(&mut host.arch),
        Step::Open(attributes) if is(path, CELL) => {
            cell = attributes.number("id").map(|id| (id, HostCell::default()));
            if cell.is_none() {
                problems.push("a NUMA cell without a number".to_owned());
            }
        }
        Step::Close if is(path, CELL) => {
            if let Some((id, mut cell)) = cell.take().filter(|_| cells.len() < MOST_CELLS) {
                // The smallest pages are the ordinary ones, which come and go with every process.
                cell.huge_pages.pop_first();
                cell.huge_pages.retain(|_, count| *count > 0);
                cells.insert(id, cell);
            }
        }
        step => {
            let (Some((id, cell)), Some(inner)) = (cell.as_mut(), path.get(5..)) else {
                return;
            };
            let mut failed = |what: &str, why: String| problems.push(format!("{what} of cell {id}: {why}"));
            match (inner, step) {
                ([name], Step::Open(attributes)) if name == "memory" => {
                    unit = attributes.get("unit").map(str::to_owned);
                }
                ([name], Step::Text(text)) if name == "memory" => match bytes(text, unit.as_deref()) {
                    Ok(memory) => cell.memory = memory,
                    Err(why) => failed("memory", why),
                },
                ([name], Step::Open(attributes)) if name == "pages" => {
                    let size = attributes.get("size").unwrap_or_default();
                    page = bytes(size, attributes.get("unit")).ok().filter(|size| *size > 0);
                }
                ([name], Step::Text(text)) if name == "pages" => match (page.take(), text.parse::<u64>()) {
                    (Some(size), Ok(count)) if cell.huge_pages.len() < MOST_PAGE_SIZES => {
                        cell.huge_pages.insert(size, count);
                    }
                    _ => failed("pages", "no usable size or number".to_owned()),
                },
                ([name], Step::Open(attributes)) if name == "cpus" => {
                    match attributes
                        .number::<u64>("num")
                        .filter(|count| *count <= MOST_CPUS)
                    {
                        Some(count) => cell.cpus = count,
                        None => failed("processors", "no usable number".to_owned()),
                    }
                }
                ([cpus, name], Step::Open(attributes)) if cpus == "cpus" && name == "cpu" => {
                    cell.cpu_ids.extend(attributes.number::<u32>("id"));
                }
                _ => {}
            }
        }
    })?;
    host.cells = cells;
    host.problems = problems;
    Ok(host)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO_CELLS: &str = "<capabilities><host><uuid>x</uuid><cpu><arch>x86_64</arch><model>EPYC</model></cpu>
        <topology><cells num='2'>
        <cell id='1'><memory unit='KiB'>1056946772</memory><pages unit='KiB' size='4'>1</pages>
          <pages unit='KiB' size='2048'>512</pages><cpus num='2'><cpu id='2' socket_id='0'/><cpu id='3'/></cpus></cell>
        <cell id='0'><memory unit='KiB'>1056462864</memory><cpus num='2'><cpu id='0'/><cpu id='1'/></cpus></cell>
        </cells></topology></host><guest><arch name='i686'/></guest></capabilities>";

    #[test]
    fn cells_are_read_with_memory_and_processors() {
        let host = capabilities(TWO_CELLS).unwrap();
        assert_eq!(host.arch, "x86_64");
        assert_eq!(host.problems, Vec::<String>::new());
        assert_eq!(host.cells.keys().copied().collect::<Vec<_>>(), [0, 1]);
        let cell = &host.cells[&1];
        assert_eq!((cell.memory, cell.cpus), (1_056_946_772 << 10, 2));
        assert_eq!(cell.cpu_ids.iter().copied().collect::<Vec<_>>(), [2, 3]);
        assert_eq!(
            cell.huge_pages,
            [(2 << 20, 512)].into(),
            "ordinary pages are left out"
        );
        assert!(host.cells[&0].huge_pages.is_empty());
    }

    #[test]
    fn odd_pages_are_told_and_cost_themselves_only() {
        for odd in ["size='none'>1<", "size='4'>many<", "size='0'>1<"] {
            let xml = TWO_CELLS.replace("size='2048'>512<", odd);
            let host = capabilities(&xml).unwrap();
            assert_eq!(
                host.problems,
                ["pages of cell 1: no usable size or number"],
                "{odd}"
            );
            assert_eq!(host.cells[&1].cpus, 2);
        }
    }

    #[test]
    fn absurd_numbers_cost_themselves_only() {
        let xml = TWO_CELLS
            .replace("1056462864", "99999999999999999999")
            .replace("num='2'><cpu id='0'", "num='-2'><cpu id='0'");
        let host = capabilities(&xml).unwrap();
        assert_eq!(host.cells[&0].memory, 0);
        assert_eq!(host.cells[&1].memory, 1_056_946_772 << 10);
        assert_eq!(host.problems.len(), 2, "{:?}", host.problems);
        assert!(
            host.problems[0].starts_with("memory of cell 0"),
            "{:?}",
            host.problems
        );
    }

    #[test]
    fn documents_that_are_none_are_refused() {
        for (xml, words) in [
            ("", "has no element"),
            ("garbage", "has no element"),
            ("<capabilities><host>", "ends inside"),
            ("<a></b>", "capabilities: byte"),
            (&"<a>".repeat(100), "nested too deeply"),
        ] {
            let error = capabilities(xml).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
    }
}
