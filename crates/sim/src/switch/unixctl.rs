// SPDX-License-Identifier: Apache-2.0
//! What the daemons of a host answer to `ovs-appctl`: one request, one text. The grammar is that of the real programs; the
//! figures follow from the world.

mod ovn;
mod ovsdb;
mod vswitchd;

pub(crate) use vswitchd::{Interface, bridges};

use serde_json::Value;

use crate::world::{Host, HostName, State, Switch, World};

/// A daemon that listens for commands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Daemon {
    Vswitchd,
    Ovsdb,
    OvnController,
}

impl Daemon {
    /// The program's name.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Vswitchd => "ovs-vswitchd",
            Self::Ovsdb => "ovsdb-server",
            Self::OvnController => "ovn-controller",
        }
    }

    fn commands(self) -> impl Iterator<Item = &'static Command> {
        let own: &[Command] = match self {
            Self::Vswitchd => vswitchd::COMMANDS,
            Self::Ovsdb => ovsdb::COMMANDS,
            Self::OvnController => ovn::COMMANDS,
        };
        COMMON.iter().chain(own)
    }

    fn version(self) -> String {
        match self {
            Self::Vswitchd | Self::Ovsdb => {
                format!("{} (Open vSwitch) {}\n", self.name(), super::facts::OVS_VERSION)
            }
            Self::OvnController => format!(
                "{} {}\nOpen vSwitch Library {}\n",
                self.name(),
                super::facts::OVN_VERSION,
                super::facts::OVS_VERSION
            ),
        }
    }
}

/// What a command is asked with.
pub(crate) struct Call<'a> {
    state: &'a State,
    host: &'a Host,
    switch: &'a Switch,
    daemon: Daemon,
    words: &'a [String],
}

impl Call<'_> {
    fn word(&self, at: usize) -> Option<&str> {
        self.words.get(at).map(String::as_str)
    }

    /// Seconds since the daemon came up.
    fn uptime(&self) -> u64 {
        self.state.now.since(self.host.booted_at).as_secs()
    }
}

type Answer = Result<String, String>;

/// A command: its name, how it is used, how many arguments it takes, and what it does.
pub(crate) struct Command {
    name: &'static str,
    usage: &'static str,
    least: usize,
    most: usize,
    run: Run,
}

#[derive(Clone, Copy)]
enum Run {
    /// It always has an answer.
    Says(fn(&Call<'_>) -> String),
    /// It may refuse.
    Tries(fn(&Call<'_>) -> Answer),
}

impl Run {
    fn of(self, call: &Call<'_>) -> Answer {
        match self {
            Self::Says(run) => Ok(run(call)),
            Self::Tries(run) => run(call),
        }
    }
}

/// A command that always has an answer.
const fn says(
    name: &'static str,
    usage: &'static str,
    (least, most): (usize, usize),
    run: fn(&Call<'_>) -> String,
) -> Command {
    Command {
        name,
        usage,
        least,
        most,
        run: Run::Says(run),
    }
}

const fn command(
    name: &'static str,
    usage: &'static str,
    (least, most): (usize, usize),
    run: fn(&Call<'_>) -> Answer,
) -> Command {
    Command {
        name,
        usage,
        least,
        most,
        run: Run::Tries(run),
    }
}

const COMMON: &[Command] = &[
    command("coverage/read-counter", "COUNTER", (1, 1), read_counter),
    says("coverage/show", "", (0, 0), coverage),
    says("list-commands", "", (0, 0), list_commands),
    command("version", "", (0, 0), |call| Ok(call.daemon.version())),
    says("vlog/list", "", (0, 0), vlog),
];

/// Answers a request to a daemon.
pub(crate) fn answer(
    world: &World,
    host: &HostName,
    daemon: Daemon,
    method: &str,
    params: &[Value],
) -> Result<Value, Value> {
    let refused = |text: String| Value::from(format!("{text}\n"));
    let found = daemon.commands().find(|command| command.name == method);
    let Some(command) = found else {
        return Err(refused(format!(
            "\"{method}\" is not a valid command (use \"list-commands\" to see a list of valid commands)"
        )));
    };
    if params.len() < command.least {
        let text = format!(
            "\"{method}\" command requires at least {} arguments",
            command.least
        );
        return Err(refused(text));
    }
    if params.len() > command.most {
        let text = format!("\"{method}\" command takes at most {} arguments", command.most);
        return Err(refused(text));
    }
    let words: Option<Vec<String>> = params
        .iter()
        .map(|word| Some(word.as_str()?.to_owned()))
        .collect();
    let Some(words) = words else {
        return Err(refused(format!("\"{method}\" command has non-string argument")));
    };
    let answer = world.attend(false, |state| {
        super::derive::settle(state, host);
        let fresh = Switch::default();
        let call = Call {
            state,
            host: state.hosts.get(host)?,
            switch: state.switches.get(host).unwrap_or(&fresh),
            daemon,
            words: &words,
        };
        Some(command.run.of(&call))
    });
    answer
        .unwrap_or_else(|| Err("the host is gone".to_owned()))
        .map(Value::from)
        .map_err(refused)
}

fn list_commands(call: &Call<'_>) -> String {
    let mut all: Vec<&Command> = call.daemon.commands().collect();
    all.sort_by_key(|command| command.name);
    let lines = all
        .iter()
        .map(|command| format!("  {:<23} {}\n", command.name, command.usage));
    format!("The available commands are:\n{}", lines.collect::<String>())
}

/// Events that happen this often in ten thousand seconds.
const EVENTS: [(&str, u64); 12] = [
    ("bridge_reconfigure", 70),
    ("ofproto_update_port", 22),
    ("rev_flow_table", 60),
    ("cmap_expand", 640),
    ("cmap_shrink", 600),
    ("dpif_flow_put", 9_000),
    ("dpif_flow_del", 8_900),
    ("flow_extract", 12_000),
    ("netdev_get_stats", 40_000),
    ("poll_create_node", 140_000),
    ("txn_success", 2_000),
    ("util_xalloc", 770_000),
];

fn total(call: &Call<'_>, pace: u64) -> u64 {
    1 + call.uptime() * pace / 10_000
}

fn coverage(call: &Call<'_>) -> String {
    let mut text =
        "Event coverage, avg rate over last: 5 seconds, last minute, last hour,  hash=5d1f3c2a:\n".to_owned();
    for (name, pace) in EVENTS {
        let rate = pace as f64 / 10_000.0;
        text.push_str(&format!(
            "{name:<24} {rate:>5.1}/sec {rate:>9.3}/sec {rate:>13.4}/sec   total: {}\n",
            total(call, pace)
        ));
    }
    text.push_str("139 events never hit\n");
    text
}

fn read_counter(call: &Call<'_>) -> Answer {
    let wanted = call.word(0);
    let found = EVENTS.iter().find(|(name, _)| Some(*name) == wanted);
    match found {
        Some((_, pace)) => Ok(format!("{}\n", total(call, *pace))),
        None => Err("No such counter".to_owned()),
    }
}

fn vlog(call: &Call<'_>) -> String {
    let shared = [
        "coverage",
        "daemon_unix",
        "jsonrpc",
        "memory",
        "poll_loop",
        "reconnect",
        "stream_unix",
        "timeval",
        "unixctl",
        "vlog",
    ];
    let own: &[&str] = match call.daemon {
        Daemon::Vswitchd => &[
            "bond",
            "bridge",
            "connmgr",
            "dpif",
            "dpif_netlink",
            "lacp",
            "netdev_linux",
            "ofproto",
            "ofproto_dpif",
            "vswitchd",
        ],
        Daemon::Ovsdb => &[
            "ovsdb_file",
            "ovsdb_jsonrpc_server",
            "ovsdb_monitor",
            "ovsdb_server",
            "transaction",
        ],
        Daemon::OvnController => &[
            "binding", "chassis", "encaps", "lflow", "main", "ofctrl", "patch", "physical", "pinctrl",
        ],
    };
    let mut modules: Vec<&str> = shared.iter().chain(own).copied().collect();
    modules.sort_unstable();
    let mut text =
        "                 console    syslog    file\n                 -------    ------    ------\n"
            .to_owned();
    for module in modules {
        text.push_str(&format!(
            "{module:<16}  {:>4}       {:>4}       {:>4}\n",
            "OFF", "ERR", "INFO"
        ));
    }
    text
}
