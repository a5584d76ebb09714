// SPDX-License-Identifier: Apache-2.0
//! A host for an agent that has none: a simulated libvirt, a simulated system bus and the files of a machine, all in
//! this process. Only the sockets are other ones; what the agent does with them is what it does in production.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use cobaltcore_kit::config::{Config, HumanDuration};
use cobaltcore_node_agent::Args;
use cobaltcore_sim::hosts::Place;
use cobaltcore_sim::system::{Bus, OnStart, Unit};
use cobaltcore_sim::world::{Cell, Driver, HostName};
use cobaltcore_sim::{Hosts, System, World, facts};
use serde::Deserialize;
use tokio_util::task::AbortOnDropHandle;
use uuid::Uuid;

use cobaltcore_kit::program::Failure;

/// Where guests are moved to and come back from.
const NEIGHBOUR: &str = "emulated-neighbour";
/// The size every guest begins with, before the scene says otherwise.
const FLAVOR: &str = "1";

/// What is emulated.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Scene {
    hypervisor: Hypervisor,
    cells: Vec<CellSize>,
    guests: Vec<Guest>,
    /// Every so often a guest is moved away, and back the next time.
    migrate_every: Option<HumanDuration>,
}

#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
enum Hypervisor {
    Qemu,
    Ch,
}

#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
struct CellSize {
    memory_kib: u64,
    cpus: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Guest {
    memory_mib: u64,
    vcpus: u32,
    /// The cell it is bound to; none for a guest that may run anywhere.
    #[serde(default)]
    cell: Option<u32>,
}

impl Default for Scene {
    /// A machine with four cells that differ a little, as real ones do, and one guest that is bound to the second.
    fn default() -> Self {
        let sizes = [1_056_462_864, 1_056_946_772, 1_056_946_772, 1_056_932_756];
        let cell = |memory_kib| CellSize { memory_kib, cpus: 64 };
        Self {
            hypervisor: Hypervisor::Qemu,
            cells: sizes.map(cell).to_vec(),
            guests: vec![Guest {
                memory_mib: 8192,
                vcpus: 4,
                cell: Some(1),
            }],
            migrate_every: None,
        }
    }
}

impl Scene {
    /// The scene of a file; the default one for a word that is no path, such as `1` or `true`.
    fn load(given: &str) -> Result<Self, Failure> {
        let is_path = given.contains(['/', '.']);
        let config = Config::new().file(is_path.then(|| Path::new(given)));
        let scene: Self = config
            .load()
            .map_err(|error| Failure::config(error.to_string()))?;
        if scene.cells.is_empty() {
            return Err(Failure::config(
                "--emulate: a host needs at least one cell".to_owned(),
            ));
        }
        Ok(scene)
    }
}

/// An emulated host; it goes away with this value.
#[derive(Debug)]
pub(super) struct Emulated {
    directory: PathBuf,
    _hosts: Hosts,
    _bus: Bus,
    _moves: Option<AbortOnDropHandle<()>>,
}

impl Drop for Emulated {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

/// Makes a host and points the agent's settings at it.
pub(super) async fn start(given: &str, args: &mut Args) -> Result<Emulated, Failure> {
    let scene = Scene::load(given)?;
    let node = args.node_name.clone().filter(|name| !name.is_empty());
    let node = node.unwrap_or_else(|| "emulated".to_owned());
    let directory = std::env::temp_dir().join(format!("cobaltcore-emulated-{}", std::process::id()));
    std::fs::create_dir_all(&directory).with_context(|| format!("cannot create {}", directory.display()))?;
    let (world, guests) = world(&node, &scene).map_err(anyhow::Error::from)?;
    let hosts = Hosts::start(&world, Place::Unix(directory.clone())).await;
    let hosts = hosts.map_err(anyhow::Error::from)?;
    let bus = system(args, &directory).await?;
    let name = HostName::from(node.as_str());
    let host = world.read(|state| state.hosts.get(&name).cloned());
    let host = host.with_context(|| format!("the simulated world has no host {node}"))?;
    let root = directory.join("root");
    facts::write(&host, &root).map_err(anyhow::Error::from)?;

    let driver = match scene.hypervisor {
        Hypervisor::Qemu => "qemu",
        Hypervisor::Ch => "ch",
    };
    let socket = directory.join(format!("{node}.sock"));
    args.libvirt_uri = format!("{driver}+unix:///system?socket={}", socket.display());
    args.libvirt_socket = None;
    args.node_name = Some(node);
    args.host_root = root;
    args.system_bus = Some(bus.address());
    args.state_dir = directory.join("state");
    args.pki_path = Some(directory.join("pki"));
    Ok(Emulated {
        directory,
        _hosts: hosts,
        _bus: bus,
        _moves: scene
            .migrate_every
            .map(|every| moves(world, guests, every.into())),
    })
}

fn world(node: &str, scene: &Scene) -> Result<(World, Vec<Uuid>), cobaltcore_sim::Error> {
    let world = World::builder()
        .host(node)
        .host(NEIGHBOUR)
        .driver(match scene.hypervisor {
            Hypervisor::Qemu => Driver::Qemu,
            Hypervisor::Ch => Driver::CloudHypervisor,
        });
    let world = world.build();
    let mut first_cpu = 0;
    let cells = scene.cells.iter().zip(0..).map(|(size, id)| {
        let cell = Cell {
            id,
            first_cpu,
            cpus: size.cpus,
            memory_kib: size.memory_kib,
        };
        first_cpu += size.cpus;
        cell
    });
    let cells: Vec<Cell> = cells.collect();
    world.change(|state| {
        for host in state.hosts.values_mut() {
            host.memory_mb = cells.iter().map(|cell| cell.memory_kib / 1024).sum();
            host.sockets = u32::try_from(cells.len()).unwrap_or(1);
            host.cores = scene.cells.iter().map(|cell| cell.cpus).max().unwrap_or(1);
            host.threads = 1;
            host.cells.clone_from(&cells);
        }
    });
    let mut guests = Vec::new();
    for guest in &scene.guests {
        let id = world.add_server(node, FLAVOR)?;
        world.change(|state| {
            let domains = state
                .hosts
                .values_mut()
                .filter_map(|host| host.domains.get_mut(&id));
            for domain in domains {
                domain.memory_kib = guest.memory_mib * 1024;
                domain.vcpus = guest.vcpus;
                domain.cell = guest.cell;
            }
        });
        guests.push(id);
    }
    Ok((world, guests))
}

/// The host's services, with everything the agent watches running and everything it starts working.
async fn system(args: &Args, directory: &Path) -> Result<Bus, Failure> {
    let system = System::default();
    for unit in args.watch_units.iter().chain([&args.libvirt_unit]) {
        let running = Unit::new("active", "running");
        system.set(unit, running).await.map_err(anyhow::Error::from)?;
    }
    for unit in [
        "systemd-sysupdate.service",
        "systemd-sysupdate-reboot.target",
        "virt-admin-server-update-tls.service",
    ] {
        system.on_start(unit, OnStart::Done);
    }
    // The machine's own files say what it is; hostnamed has nothing to add.
    system.describe("{}");
    let bus = system
        .listen(&directory.join("system-bus"))
        .map_err(anyhow::Error::from)?;
    Ok(bus)
}

/// Moves one guest after the other.
fn moves(world: World, guests: Vec<Uuid>, every: Duration) -> AbortOnDropHandle<()> {
    AbortOnDropHandle::new(tokio::spawn(async move {
        for guest in guests.iter().cycle() {
            tokio::time::sleep(every).await;
            if let Err(error) = world.live_migrate(*guest) {
                // The last one may not have ended yet.
                tracing::info!(server = %guest, %error, "an emulated migration did not begin");
            }
        }
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_means_the_usual_scene_and_a_path_means_its_file() {
        for word in ["", "1", "true"] {
            assert_eq!(Scene::load(word).ok(), Some(Scene::default()));
        }
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("scene.yaml");
        let text = "hypervisor: ch\ncells: [{memoryKib: 1024, cpus: 2}]\nguests: []\nmigrateEvery: 30s\n";
        std::fs::write(&file, text).unwrap();
        let scene = Scene::load(file.to_str().unwrap()).ok().unwrap();
        assert_eq!((scene.hypervisor, scene.cells.len()), (Hypervisor::Ch, 1));
        assert!(scene.guests.is_empty() && scene.migrate_every.is_some());
        for (wrong, words) in [("cellz: []\n", "cellz"), ("cells: []\n", "at least one cell")] {
            std::fs::write(&file, wrong).unwrap();
            let failure = Scene::load(file.to_str().unwrap()).err().unwrap();
            assert!(format!("{failure:?}").contains(words), "{failure:?}");
        }
    }
}
