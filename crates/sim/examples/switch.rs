// SPDX-License-Identifier: Apache-2.0
//! Simulated switches to play with: `cargo run -p cobaltcore-sim --example switch -- 3 4 ovs` opens the run directories of
//! three hosts with four servers each below `ovs` and waits for Ctrl-C. Then, in another terminal,
//! `OVS_RUNDIR=$PWD/ovs/node001-bb1 ovs-vsctl show`.

use cobaltcore_sim::{Switches, World};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut words = std::env::args().skip(1);
    let hosts = words.next().map_or(Ok(3), |text| text.parse())?;
    let servers = words.next().map_or(Ok(4), |text| text.parse())?;
    let folder = words.next().unwrap_or_else(|| "ovs".to_owned());
    let world = World::builder().hosts(hosts).vms_per_host(servers).build();
    let switches = Switches::start(&world, &std::path::absolute(folder)?)?;
    let first = world.read(|state| state.hosts.keys().next().cloned());
    if let Some(host) = first {
        println!(
            "OVS_RUNDIR={} ovs-vsctl show",
            switches.rundir(host.as_str()).display()
        );
    }
    tokio::signal::ctrl_c().await?;
    Ok(())
}
