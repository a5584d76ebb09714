// SPDX-License-Identifier: Apache-2.0
//! What a host's ovn-controller answers. It runs whenever the host does; whether it reaches the Southbound database is
//! another matter, and whether the switch listens to it a third.

use super::{Answer, Call, Command, command, says};
use crate::switch::facts::{Nic, nics};

pub(super) const COMMANDS: &[Command] = &[
    says("connection-status", "", (0, 0), connection),
    says("ct-zone-list", "", (0, 0), zones),
    command("debug/status", "", (0, 0), |_| Ok("running\n".to_owned())),
    command("inc-engine/show-stats", "", (0, 2), engine),
    says("lflow-cache/show-stats", "", (0, 0), cache),
    says("memory/show", "", (0, 0), memory),
    command("stopwatch/show", "[NAME]", (0, 1), stopwatch),
];

const NODES: [(&str, u64); 5] = [
    ("OVS_interface", 30),
    ("runtime_data", 45),
    ("lflow_output", 60),
    ("pflow_output", 60),
    ("controller_output", 90),
];
const WATCHES: [(&str, u64); 4] = [
    ("flow-generation", 3),
    ("flow-installation", 2),
    ("if-status-mgr-run", 1),
    ("bfd-run", 1),
];

fn connection(call: &Call<'_>) -> String {
    let connected = call.state.ovn_connected(&call.host.name);
    if connected {
        "connected\n"
    } else {
        "not connected\n"
    }
    .to_owned()
}

fn guests(call: &Call<'_>) -> Vec<Nic> {
    nics(call.state, call.host)
}

fn zones(call: &Call<'_>) -> String {
    let lines = guests(call).into_iter().enumerate();
    lines
        .map(|(index, nic)| format!("{} {}\n", nic.port, index + 1))
        .collect()
}

fn engine(call: &Call<'_>) -> Answer {
    let wanted = call.word(0);
    let known = NODES
        .iter()
        .filter(|(name, _)| wanted.is_none_or(|wanted| wanted == *name));
    let text: String = known
        .map(|(name, pace)| {
            let runs = call.uptime() / pace;
            format!(
                "Node: {name}\n- recompute: {:>12}\n- compute:   {:>12}\n- cancel:    {:>12}\n",
                1 + runs / 500,
                runs,
                0
            )
        })
        .collect();
    if text.is_empty() {
        return Err(format!("engine node {} not found", wanted.unwrap_or_default()));
    }
    Ok(text)
}

fn cache(call: &Call<'_>) -> String {
    let entries = 120 + guests(call).len() * 9;
    format!(
        "Enabled: true\nhigh-watermark  : {:>8}\ntotal           : {entries:>8}\ncache-expr      : {:>8}\ncache-matches   : {:>8}\ntrim count      : {:>8}\nMem usage (KB)  : {:>8}\n",
        entries + entries / 10,
        entries / 4,
        entries - entries / 4,
        call.uptime() / 3600,
        entries * 7 / 10,
    )
}

fn memory(call: &Call<'_>) -> String {
    let count = guests(call).len();
    format!(
        "idl-cells-OVN_Southbound:{} idl-cells-Open_vSwitch:{} lflow-cache-entries-cache-expr:{} lflow-cache-size-KB:{} ofctrl_desired_flow_usage-KB:{} ofctrl_installed_flow_usage-KB:{}\n",
        4_000 + count * 620,
        700 + count * 60,
        30 + count * 2,
        84 + count * 6,
        40 + count * 11,
        30 + count * 8,
    )
}

fn stopwatch(call: &Call<'_>) -> Answer {
    let wanted = call.word(0);
    let known = WATCHES
        .iter()
        .filter(|(name, _)| wanted.is_none_or(|wanted| wanted == *name));
    let text: String = known
        .map(|(name, pace)| {
            format!(
                "Statistics for '{name}'\n  Total samples: {}\n  Maximum: {} msec\n  Minimum: 0 msec\n  95th percentile: {:.6} msec\n  Short term average: {:.6} msec\n  Long term average: {:.6} msec\n",
                1 + call.uptime() / 7,
                pace * 12,
                *pace as f64 * 2.5,
                *pace as f64 * 0.7,
                *pace as f64 * 0.6,
            )
        })
        .collect();
    if text.is_empty() {
        return Err("No such stopwatch".to_owned());
    }
    Ok(text)
}
