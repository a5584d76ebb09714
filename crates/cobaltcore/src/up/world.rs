// SPDX-License-Identifier: Apache-2.0
//! The simulated part of `up`: a world that is loaded or made, the cloud that answers for it, and
//! a libvirt daemon and a virtual switch per host. It is saved soon after every change and at the end.

use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::Args;
use cobaltcore_openstack::CloudConfig;
use cobaltcore_sim::hosts::Place;
use cobaltcore_sim::world::Kept;
use cobaltcore_sim::{Cloud, Doors, Hosts, Switches, World};
use tokio::task::JoinHandle;

const FILE: &str = "world.json";
const ZONES: [&str; 3] = ["qa-de-1a", "qa-de-1b", "qa-de-1d"];
/// Local sockets have short names; the kernel allows 107 bytes.
pub(crate) const LONGEST_SOCKET: usize = 100;

/// What the world is made of.
#[derive(Debug, Args)]
pub(crate) struct WorldArgs {
    /// Simulated hypervisors; a world that was kept stays as it is
    #[arg(
        long,
        default_value_t = 8,
        value_name = "N",
        conflicts_with = "cloud",
        help_heading = "Simulation"
    )]
    pub(super) hypervisors: usize,
    /// Servers on each of them at the beginning
    #[arg(
        long,
        default_value_t = 5,
        value_name = "N",
        conflicts_with = "cloud",
        help_heading = "Simulation"
    )]
    vms_per_host: usize,
    /// Seed of everything random
    #[arg(
        long,
        default_value_t = 1,
        value_name = "N",
        conflicts_with = "cloud",
        help_heading = "Simulation"
    )]
    seed: u64,
    /// Address of the simulated cloud; the system chooses a port when it is 0
    #[arg(
        long,
        env = "COBALTCORE_CLOUD_LISTEN",
        default_value = "127.0.0.1:0",
        value_name = "ADDR",
        help_heading = "Simulation"
    )]
    pub(super) cloud_listen: SocketAddr,
}

/// A world with its far sides.
pub(crate) struct Simulated {
    pub(crate) world: World,
    pub(crate) cloud: Cloud,
    pub(crate) hosts: Hosts,
    pub(crate) clouds_yaml: PathBuf,
    pub(crate) doors: Doors,
    /// None where the names of their sockets would be too long, or too many files would be open.
    switches: Option<Switches>,
    kept: Kept,
}

/// Loads the world that was kept, or makes one. A large one takes a while; it is worked on beside everything else.
pub(crate) fn world_of(folder: &Path, args: &WorldArgs) -> JoinHandle<Result<World, cobaltcore_sim::Error>> {
    let file = folder.join(FILE);
    let (hosts, guests, seed) = (args.hypervisors, args.vms_per_host, args.seed);
    tokio::task::spawn_blocking(move || {
        if file.exists() {
            return World::load(&file, 1.0);
        }
        let new = World::builder()
            .hosts(hosts)
            .zones(zones(hosts))
            .vms_per_host(guests)
            .seed(seed);
        Ok(new.build())
    })
}

impl Simulated {
    pub(crate) async fn start(
        folder: &Path,
        listen: SocketAddr,
        world: World,
        with_switches: bool,
    ) -> anyhow::Result<Self> {
        let kept = world.keep(&folder.join(FILE))?;
        // First of all: everybody else tells the addresses on.
        let doors = Doors::open(&world).await?;
        let cloud = Cloud::start_on(world.clone(), listen).await?;
        let hosts = Hosts::start(&world, place(folder)?).await?;
        let place_of_switches = with_switches.then(|| switch_folder(folder)).flatten();
        let switches = place_of_switches
            .map(|place| Switches::start(&world, &place))
            .transpose()?;
        let clouds_yaml = folder.join("clouds.yaml");
        write_private(&clouds_yaml, &cloud.clouds_yaml())?;
        Ok(Self {
            world,
            cloud,
            hosts,
            clouds_yaml,
            doors,
            switches,
            kept,
        })
    }

    /// How roles reach its cloud.
    pub(crate) fn cloud_config(&self) -> anyhow::Result<CloudConfig> {
        Ok(CloudConfig::from_file(&self.clouds_yaml, "sim")?)
    }

    /// The first host and its libvirt.
    pub(crate) fn a_host(&self) -> Option<(String, String)> {
        let host = self.world.read(|state| state.hosts.keys().next().cloned())?;
        let uri = self.hosts.uri(host.as_str())?;
        Some((host.to_string(), uri))
    }

    /// The run directory of the first host's virtual switch.
    pub(crate) fn a_switch(&self) -> Option<PathBuf> {
        let host = self.world.read(|state| state.hosts.keys().next().cloned())?;
        let switches = self.switches.as_ref()?;
        Some(switches.rundir(host.as_str()))
    }

    /// Ends it; what it was is kept.
    pub(crate) fn stop(self) -> anyhow::Result<()> {
        self.kept.end().context("the simulated world is not kept")
    }
}

/// As many zones as leave every host a neighbour to move its guests to.
fn zones(hosts: usize) -> impl Iterator<Item = &'static str> {
    ZONES.into_iter().take((hosts / 2).max(1))
}

fn place(folder: &Path) -> anyhow::Result<Place> {
    let sockets = folder.join("libvirt");
    if sockets.as_os_str().len() + "/node0000-bb000.sock".len() > LONGEST_SOCKET {
        return Ok(Place::Tcp);
    }
    std::fs::create_dir_all(&sockets).with_context(|| format!("cannot make {}", sockets.display()))?;
    Ok(Place::Unix(sockets))
}

/// Where the run directories of virtual switches are; their sockets can only be local ones.
fn switch_folder(folder: &Path) -> Option<PathBuf> {
    let place = std::path::absolute(folder.join("ovs")).ok()?;
    let fits = place.as_os_str().len() + "/node0000-bb000/ovn-controller.4194304.ctl".len() <= LONGEST_SOCKET;
    if !fits {
        tracing::warn!(
            folder = %place.display(),
            "simulated hosts have no virtual switch: the names of its sockets would be too long; choose a shorter --data-dir"
        );
    }
    fits.then_some(place)
}

pub(crate) fn write_private(path: &Path, text: &str) -> anyhow::Result<()> {
    use std::io::Write as _;
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    let write = |mut file: std::fs::File| file.write_all(text.as_bytes());
    options
        .open(path)
        .and_then(write)
        .with_context(|| format!("cannot write {}", path.display()))
}
