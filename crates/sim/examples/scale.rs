// SPDX-License-Identifier: Apache-2.0
//! What a large world costs: `cargo run -p cobaltcore-sim --example scale -- 1000 50` makes a thousand hosts with fifty
//! servers each and prints what building it, asking it and living in it takes. Figures, not assertions.

use std::time::{Duration, Instant};

use cobaltcore_sim::World;
use cobaltcore_sim::world::State;

fn timed<R>(what: &str, work: impl FnOnce() -> R) -> R {
    let start = Instant::now();
    let result = work();
    println!("{what:<44} {:>10.2} ms", start.elapsed().as_secs_f64() * 1000.0);
    result
}

fn resident_mib() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = text.lines().find(|line| line.starts_with("VmRSS:"))?;
    Some(line.split_whitespace().nth(1)?.parse::<u64>().ok()? / 1024)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut numbers = std::env::args().skip(1).map(|text| text.parse::<usize>());
    let hosts = numbers.next().transpose()?.unwrap_or(1000);
    let servers = numbers.next().transpose()?.unwrap_or(50);
    let world = timed("build", || {
        World::builder()
            .hosts(hosts)
            .vms_per_host(servers)
            .manual_clock()
            .build()
    });
    let names: Vec<_> = world.read(|state| state.hosts.keys().cloned().collect());
    timed("servers of every host, by index", || {
        let sum: usize = names
            .iter()
            .map(|name| world.read(|state| state.servers_on(name.as_str()).count()))
            .sum();
        assert_eq!(sum, hosts * servers);
    });
    let ids: Vec<_> = world.read(|state| {
        let first = names
            .iter()
            .filter_map(|name| state.servers_on(name.as_str()).next());
        first.map(|server| server.id).collect()
    });
    timed("one live migration per host, begun", || {
        for id in &ids {
            world.live_migrate(*id).ok();
        }
    });
    timed("the same, to their ends", || world.step(Duration::from_secs(120)));
    let open = world.read(|state| state.open_migrations().count());
    timed("power off every tenth host", || {
        for name in names.iter().step_by(10) {
            world.power_off(name.as_str()).ok();
        }
        world.step(Duration::from_secs(61));
    });
    timed("look for guests that run twice", || {
        world.read(State::running_twice)
    });
    println!("{:<44} {open:>10}", "migrations still open");
    if let Some(mib) = resident_mib() {
        println!("{:<44} {mib:>10} MiB", "resident memory");
    }
    let file = std::env::temp_dir().join(format!("cobaltcore-sim-scale-{}.json", std::process::id()));
    timed("save", || world.save(&file))?;
    println!("{:<44} {:>10} MiB", "file", std::fs::metadata(&file)?.len() >> 20);
    timed("load", || World::load(&file, 0.0))?;
    std::fs::remove_file(&file)?;
    Ok(())
}
