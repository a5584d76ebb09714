// SPDX-License-Identifier: Apache-2.0
//! A simulated cloud to play with: `cargo run -p cobaltcore-sim --example cloud -- 3 4` serves three hosts with four
//! servers each, writes `clouds.yaml` into the current directory and waits for Ctrl-C. Then, in another terminal,
//! `openstack --os-cloud sim server list --all-projects --long`.

use cobaltcore_sim::{Cloud, World};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut numbers = std::env::args().skip(1).map(|text| text.parse::<usize>());
    let hosts = numbers.next().transpose()?.unwrap_or(3);
    let servers = numbers.next().transpose()?.unwrap_or(4);
    let world = World::builder().hosts(hosts).vms_per_host(servers).build();
    let cloud = Cloud::start(world).await?;
    std::fs::write("clouds.yaml", cloud.clouds_yaml())?;
    println!(
        "{} serves {hosts} hosts; clouds.yaml is written",
        cloud.auth_url()
    );
    tokio::signal::ctrl_c().await?;
    Ok(())
}
