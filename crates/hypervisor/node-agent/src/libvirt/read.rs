// SPDX-License-Identifier: Apache-2.0
//! The questions to libvirt and their answers as types. Each is one task: it never touches the board, so that an answer
//! that comes too late can be thrown away.

use std::collections::HashMap;

use cobaltcore_api::{DomainCapabilities, format};
use cobaltcore_libvirt::client::Connection;
use cobaltcore_libvirt::error::Error as LibvirtError;
use cobaltcore_libvirt::procedure::flags;
use cobaltcore_libvirt::types::Domain;
use uuid::Uuid;

use crate::board::GuestState;
use crate::capacity::{Claim, FreePages, HostCell, HostCells};
use crate::context::Context;
use crate::xml;

/// The part of statistics that says what a guest is doing.
const STATE_ONLY: u32 = 1;
/// What is said when libvirt does not.
const NOT_AVAILABLE: &str = "N/A";

/// Who answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Versions {
    pub(super) driver: String,
    pub(super) library: String,
    pub(super) hypervisor: String,
}

/// libvirt's list of guests.
#[derive(Debug)]
pub(super) struct Listing {
    pub(super) versions: Option<Versions>,
    pub(super) guests: Vec<Domain>,
    /// What they are doing; missing where the driver does not tell.
    pub(super) states: HashMap<Uuid, GuestState>,
}

/// Lists guests with their states, and with versions on a new connection.
pub(super) async fn list(connection: &Connection, new: bool) -> Result<Listing, LibvirtError> {
    let versions = if new {
        Some(versions(connection).await?)
    } else {
        None
    };
    let guests = connection.list_all_domains(flags::LIST_ALL).await?;
    let states = states_of_all(connection).await?;
    Ok(Listing {
        versions,
        guests,
        states,
    })
}

async fn versions(connection: &Connection) -> Result<Versions, LibvirtError> {
    let text =
        |version: Option<u64>| version.map_or_else(|| NOT_AVAILABLE.to_owned(), format::packed_version);
    Ok(Versions {
        driver: unless_refused(connection.driver_type().await)?.unwrap_or_default(),
        library: text(unless_refused(connection.lib_version().await)?),
        hypervisor: text(unless_refused(connection.hypervisor_version().await)?),
    })
}

/// An error of the daemon is no answer; a lost connection stays an error.
fn unless_refused<T>(answer: Result<T, LibvirtError>) -> Result<Option<T>, LibvirtError> {
    match answer {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.rpc().is_some() => Ok(None),
        Err(error) => Err(error),
    }
}

async fn states_of_all(connection: &Connection) -> Result<HashMap<Uuid, GuestState>, LibvirtError> {
    let all = unless_refused(connection.all_domain_stats(&[], STATE_ONLY, 0).await)?;
    let states = all.unwrap_or_default().into_iter().filter_map(|stats| {
        let state = state(stats.params.i64("state.state")?)?;
        Some((stats.domain.uuid, state))
    });
    Ok(states.collect())
}

fn state(number: i64) -> Option<GuestState> {
    Some(match number {
        // A blocked guest waits for something; its processors are not held.
        1 | 2 => GuestState::Running,
        3 => GuestState::Paused,
        4 => GuestState::ShuttingDown,
        5 => GuestState::Shutoff,
        6 => GuestState::Crashed,
        7 => GuestState::PmSuspended,
        _ => return None,
    })
}

/// What the host has. Where libvirt lists no cells, the whole host is one.
pub(super) async fn host(connection: &Connection) -> Result<HostCells, String> {
    let xml = connection
        .capabilities()
        .await
        .map_err(|error| error.to_string())?;
    let mut host = xml::capabilities(&xml).map_err(|error| error.to_string())?;
    if host.cells.is_empty() {
        let node = connection.node_info().await.map_err(|error| error.to_string())?;
        let cell = HostCell {
            memory: node.memory_kib.saturating_mul(1024),
            cpus: u64::try_from(node.cpus).unwrap_or(0),
            ..HostCell::default()
        };
        host.cells.insert(0, cell);
    }
    Ok(host)
}

/// How many huge pages of these sizes are free; `None` when the driver does not tell. libvirt counts cells in a row,
/// so the answer also has a place for numbers that the host left out.
pub(super) async fn free_pages(
    connection: &Connection,
    sizes: &[u64],
    cells: &[u64],
) -> Result<Option<FreePages>, String> {
    let (Some(first), Some(last)) = (cells.iter().min(), cells.iter().max()) else {
        return Ok(None);
    };
    let (Ok(from), Ok(count)) = (i32::try_from(*first), u32::try_from(last - first + 1)) else {
        return Err("the numbers of the NUMA cells are too large".to_owned());
    };
    let kib: Vec<u32> = sizes
        .iter()
        .filter_map(|size| u32::try_from(size / 1024).ok())
        .collect();
    match connection.free_pages(&kib, from, count).await {
        Ok(counts) => {
            let mut free = FreePages::new();
            for (cell, row) in (*first..).zip(counts.chunks(kib.len().max(1))) {
                let row = kib
                    .iter()
                    .map(|size| u64::from(*size) * 1024)
                    .zip(row.iter().copied());
                free.insert(cell, row.collect());
            }
            Ok(Some(free))
        }
        Err(error) if error.is_unsupported() => Ok(None),
        Err(error) => Err(error.to_string()),
    }
}

/// What guests may have; `None` when the driver does not tell.
pub(super) async fn domain_capabilities(
    context: &Context,
    connection: &Connection,
) -> Result<Option<DomainCapabilities>, String> {
    let mut answer = connection.domain_capabilities().await;
    if matches!(&answer, Err(error) if error.code() == Some(cobaltcore_libvirt::error::code::OPERATION_DENIED))
    {
        let writable = super::reach::read_write(context)
            .await
            .map_err(|error| error.to_string())?;
        answer = writable.domain_capabilities().await;
        writable.close().await;
    }
    match answer {
        Ok(xml) => xml::domain_capabilities(&xml)
            .map(Some)
            .map_err(|error| error.to_string()),
        Err(error) if error.is_unsupported() => Ok(None),
        Err(error) => Err(error.to_string()),
    }
}

/// What became of reading a guest.
#[derive(Debug)]
pub(super) enum Definition {
    Known(Box<Claim>),
    /// There is no such guest any more.
    Gone,
    /// It cannot be read, and why.
    Unreadable(String),
}

/// Reads the definition of a guest: the live one while it runs.
pub(super) async fn definition(connection: &Connection, guest: Uuid) -> Result<Definition, LibvirtError> {
    match connection.xml(&Domain::by_uuid(guest), 0).await {
        Ok(text) => Ok(match xml::domain(&text) {
            Ok(claim) => Definition::Known(Box::new(claim)),
            Err(error) => Definition::Unreadable(error.to_string()),
        }),
        Err(error) if error.is_no_domain() => Ok(Definition::Gone),
        Err(error) if error.is_closed() => Err(error),
        Err(error) => Ok(Definition::Unreadable(error.to_string())),
    }
}
