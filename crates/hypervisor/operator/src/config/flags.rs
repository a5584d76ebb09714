// SPDX-License-Identifier: Apache-2.0
//! The command line of the role, made from the list of settings.

use std::path::PathBuf;
use std::sync::LazyLock;

use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};
use cobaltcore_kit::config::Config as Layers;

use super::{SETTINGS, Setting};

/// The flags that were given. A flag beats its environment variable, which beats the file.
#[derive(Clone, Debug, Default)]
pub struct Flags {
    file: Option<PathBuf>,
    kubeconfig: Option<PathBuf>,
    log_level: Option<String>,
    given: Vec<(&'static str, String)>,
}

impl Flags {
    /// Which cluster to talk to, if it was said.
    pub fn kubeconfig(&self) -> Option<&PathBuf> {
        self.kubeconfig.as_ref()
    }

    /// How much to log in the words of the running system, if it was said.
    pub fn log_level(&self) -> Option<&str> {
        self.log_level.as_deref()
    }

    /// Puts the file and the flags on top of `layers`.
    pub(super) fn layers(&self, layers: Layers) -> Layers {
        let layers = layers.file(self.file.as_deref());
        self.given.iter().fold(layers, |layers, (name, value)| {
            let flag = format!("--{}", name.replace('_', "-"));
            layers.flag(&flag, &camel(name), Some(value))
        })
    }
}

/// `label_selector` as the configuration spells it: `labelSelector`.
fn camel(snake: &str) -> String {
    let mut words = snake.split('_');
    let first = words.next().unwrap_or_default().to_owned();
    words.fold(first, |name, word| {
        let mut letters = word.chars();
        let upper = letters.next().map(|letter| letter.to_ascii_uppercase());
        name + &upper.into_iter().chain(letters).collect::<String>()
    })
}

/// The names of the flags, in the order of the settings.
static NAMES: LazyLock<Vec<String>> = LazyLock::new(|| {
    let flag = |setting: &Setting| setting.name.replace('_', "-");
    SETTINGS.iter().map(flag).collect()
});

fn arg((setting, flag): (&'static Setting, &'static String)) -> Arg {
    let Setting {
        name,
        help,
        switch,
        default,
    } = setting;
    let default = default();
    let shown = if default.is_empty() { "none" } else { &default };
    let help = format!(
        "{help} [default: {shown}] [env: HVO_{}]",
        name.to_ascii_uppercase()
    );
    let arg = Arg::new(*name)
        .long(flag.as_str())
        .help(help)
        .help_heading("Settings");
    if *switch {
        arg.num_args(0..=1)
            .require_equals(true)
            .default_missing_value("true")
            .value_name("BOOL")
    } else {
        arg.num_args(1).value_name("VALUE").action(ArgAction::Set)
    }
}

impl Args for Flags {
    fn augment_args(command: Command) -> Command {
        let path = |name: &'static str, help: &'static str| {
            Arg::new(name)
                .long(name)
                .help(help)
                .value_name("FILE")
                .value_parser(clap::value_parser!(PathBuf))
        };
        command
            .arg(path("config", "Read settings from this YAML file"))
            .arg(path(
                "kubeconfig",
                "The cluster to work on [default: as kubectl does]",
            ))
            .arg(
                Arg::new("zap-log-level")
                    .long("zap-log-level")
                    .help("How much to log: debug, info, warn or error")
                    .value_name("LEVEL"),
            )
            .args(SETTINGS.iter().zip(NAMES.iter()).map(arg))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for Flags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let given = SETTINGS.iter().filter_map(|setting| {
            let value = matches.get_one::<String>(setting.name)?;
            Some((setting.name, value.clone()))
        });
        Ok(Self {
            file: matches.get_one("config").cloned(),
            kubeconfig: matches.get_one("kubeconfig").cloned(),
            log_level: matches.get_one("zap-log-level").cloned(),
            given: given.collect(),
        })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}
