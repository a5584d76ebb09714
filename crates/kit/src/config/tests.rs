// SPDX-License-Identifier: Apache-2.0
//! Configurations, good and bad.

use super::*;
use serde::Deserialize;

#[derive(Debug, Deserialize, PartialEq)]
#[serde(rename_all = "camelCase", default)]
struct Settings {
    workers: u16,
    agent_namespaces: Vec<String>,
    dry_run: bool,
    ratio: f64,
    eviction: Eviction,
    mode: Mode,
    labels: BTreeMap<String, String>,
    token: Option<String>,
    ports: Vec<u16>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            workers: 8,
            agent_namespaces: vec![],
            dry_run: false,
            ratio: 1.0,
            eviction: Eviction::default(),
            mode: Mode::Delegated,
            labels: BTreeMap::new(),
            token: None,
            ports: vec![],
        }
    }
}

#[derive(Debug, Deserialize, PartialEq)]
#[serde(rename_all = "camelCase", default)]
struct Eviction {
    max_parallel: u32,
    stall_timeout: HumanDuration,
}

impl Default for Eviction {
    fn default() -> Self {
        Self {
            max_parallel: 2,
            stall_timeout: HumanDuration(std::time::Duration::from_mins(5)),
        }
    }
}

#[derive(Debug, Deserialize, PartialEq)]
#[serde(rename_all = "lowercase")]
enum Mode {
    Delegated,
    Direct { url: String },
    Off,
}

fn mistakes<T: DeserializeOwned + fmt::Debug>(config: Config) -> Vec<String> {
    config
        .load::<T>()
        .unwrap_err()
        .0
        .iter()
        .map(ToString::to_string)
        .collect()
}

fn yaml(text: &str) -> Config {
    Config::new().text("c.yaml", text)
}

fn vars(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect()
}

#[test]
fn nothing_means_defaults() {
    for text in ["", "# only a comment\n", "---\n", "{}", "~"] {
        assert_eq!(
            yaml(text).load::<Settings>().unwrap(),
            Settings::default(),
            "{text:?}"
        );
    }
}

#[test]
fn every_form_of_value_is_read() {
    let text = "workers: 16\nagentNamespaces: [a, 'b']\ndryRun: true\nratio: 1.5\neviction:\n  maxParallel: 4\n  \
                stallTimeout: 1m30s\nmode:\n  direct:\n    url: https://x\nlabels:\n  zone: 1a\n  \"on\": yes\ntoken: 007\n";
    let settings: Settings = yaml(text).load().unwrap();
    assert_eq!(
        (settings.workers, settings.dry_run, settings.ratio),
        (16, true, 1.5)
    );
    assert_eq!(settings.agent_namespaces, ["a", "b"]);
    assert_eq!(settings.eviction.stall_timeout.to_string(), "1m30s");
    assert_eq!(
        settings.mode,
        Mode::Direct {
            url: "https://x".into()
        }
    );
    assert_eq!(settings.labels["on"], "yes", "text stays as it was written");
    assert_eq!(settings.token.as_deref(), Some("007"));
}

#[test]
fn flags_win_over_variables_and_variables_over_the_file() {
    let settings: Settings = yaml("workers: 1\nratio: 2\neviction: {maxParallel: 1}\n")
        .variables(
            "HVO",
            vars(&[
                ("HVO_WORKERS", "2"),
                ("HVO_EVICTION_MAX_PARALLEL", "7"),
                ("HVO_AGENT_NAMESPACES", "monsoon3, kube-system,"),
                ("HVO_MODE", "off"),
                ("HVO_PORTS", "1,2"),
                ("OTHER_THING", "x"),
            ]),
        )
        .flag("--workers", "workers", Some(3))
        .flag("--eviction-stall-timeout", "eviction.stallTimeout", Some("10s"))
        .flag("--ratio", "ratio", None::<f64>)
        .load()
        .unwrap();
    assert_eq!((settings.workers, settings.ratio), (3, 2.0));
    assert_eq!(settings.eviction.max_parallel, 7);
    assert_eq!(settings.eviction.stall_timeout.to_string(), "10s");
    assert_eq!(settings.agent_namespaces, ["monsoon3", "kube-system"]);
    assert_eq!((settings.mode, settings.ports), (Mode::Off, vec![1, 2]));
}

#[test]
fn a_variable_reaches_a_section_that_the_file_does_not_have() {
    let config = Config::new().variables("HVO", vars(&[("HVO_EVICTION_MAX_PARALLEL", "9")]));
    assert_eq!(config.load::<Settings>().unwrap().eviction.max_parallel, 9);
}

#[test]
fn all_mistakes_are_reported_at_once_with_file_line_and_key() {
    let text = "workers: many\nworkerz: 3\ndryRun: \"true\"\neviction:\n  maxParallel: -1\n  stallTimeout: soon\n  \
                colour: red\nmode: sideways\nagentNamespaces: monsoon3\nratio: 1.5\nports: [1, x, 70000]\n";
    assert_eq!(
        mistakes::<Settings>(yaml(text)),
        [
            "c.yaml:1: workers: expected a whole number, found string \"many\"",
            "c.yaml:2: workerz: unknown key; did you mean workers?",
            "c.yaml:3: dryRun: expected true or false, found string \"true\"",
            "c.yaml:5: eviction.maxParallel: expected a whole number, found string \"-1\"",
            "c.yaml:6: eviction.stallTimeout: \"soon\" is not a duration such as 90s, 1m30s or 250ms",
            "c.yaml:7: eviction.colour: unknown key; known are maxParallel, stallTimeout",
            "c.yaml:8: mode: \"sideways\" is not one of delegated, direct, off",
            "c.yaml:9: agentNamespaces: expected a list, found string \"monsoon3\"",
            "c.yaml:11: ports.1: expected a whole number, found string \"x\"",
            "c.yaml:11: ports.2: expected u16, found integer `70000`",
        ]
    );
}

#[test]
fn mistakes_outside_of_the_file_name_their_source() {
    let config = yaml("ratio: wide\n")
        .variables("HVO", vars(&[("HVO_WORKERS", "x"), ("HVO_WORKRES", "1")]))
        .flag("--eviction-max-parallel", "eviction.maxParallel", Some("lots"))
        .flag("--nonsense", "no.such.key", Some(1));
    assert_eq!(
        mistakes::<Settings>(config),
        [
            "c.yaml:1: ratio: expected a number, found string \"wide\"",
            "environment variable HVO_WORKERS: workers: expected a whole number, found string \"x\"",
            "environment variable HVO_WORKRES: sets a key that nobody knows",
            "flag --eviction-max-parallel: eviction.maxParallel: expected a whole number, found string \"lots\"",
            "flag --nonsense: sets a key that nobody knows",
        ]
    );
}

#[derive(Debug, Deserialize)]
#[allow(dead_code, reason = "only read to see what is missing")]
struct Strict {
    name: String,
    port: u16,
    inner: Inner,
}

#[derive(Debug, Deserialize)]
#[allow(dead_code, reason = "only read to see what is missing")]
struct Inner {
    pause: HumanDuration,
    path: String,
    retries: Vec<HumanDuration>,
}

#[test]
fn missing_keys_are_all_named() {
    assert_eq!(
        mistakes::<Strict>(yaml("# nothing\nport: 1\n")),
        ["c.yaml:2: inner: is required", "c.yaml:2: name: is required"]
    );
    assert_eq!(
        mistakes::<Strict>(yaml(
            "port: x\nname: n\ninner: {retries: [1s, soon, 2s, later]}\n"
        )),
        [
            "c.yaml:1: port: expected a whole number, found string \"x\"",
            "c.yaml:3: inner.pause: is required",
            "c.yaml:3: inner.retries.1: \"soon\" is not a duration such as 90s, 1m30s or 250ms",
        ],
        "a section without any harmless stand-in is given up"
    );
}

#[test]
fn broken_yaml_is_located() {
    let table = [
        ("a: [1\nb: 2\n", "c.yaml:"),
        ("workers: 1\nworkers: 2\n", "c.yaml:2: workers is given twice"),
        (
            "workers: &x 1\n",
            "c.yaml:1: workers: anchors (&) are not supported",
        ),
        ("workers: *x\n", "c.yaml:1: "),
        (
            "workers: !!int 1\n",
            "c.yaml:1: workers: tags (!) are not supported",
        ),
        (
            "workers: 1\n---\nworkers: 2\n",
            "c.yaml:2: there must be only one document",
        ),
        ("- 1\n", "c.yaml:1: expected a map, found a list"),
        (
            "just text\n",
            "c.yaml:1: expected a map, found string \"just text\"",
        ),
    ];
    for (text, expected) in table {
        let found = mistakes::<Settings>(yaml(text));
        assert!(found[0].starts_with(expected), "{text:?}: {found:?}");
    }
    let deep = "[".repeat(40) + &"]".repeat(40);
    assert!(mistakes::<Settings>(yaml(&format!("labels: {deep}\n")))[0].contains("nested too deeply"));
}

#[test]
fn a_missing_file_is_named() {
    let found = mistakes::<Settings>(Config::new().file(Some(Path::new("/nonexistent/c.yaml"))));
    assert!(
        found[0].starts_with("/nonexistent/c.yaml: cannot be read: "),
        "{found:?}"
    );
}

#[test]
fn checks_of_the_role_point_at_the_value_too() {
    let error = yaml("workers: 1\neviction:\n  maxParallel: 65\n")
        .variables("HVO", vars(&[("HVO_RATIO", "0.5")]))
        .load_checked(|settings: &Settings, mistakes| {
            if settings.eviction.max_parallel > 64 {
                mistakes.add("eviction.maxParallel", "must be at most 64");
            }
            if settings.ratio < 1.0 {
                mistakes.add("ratio", "must be at least 1.0");
            }
            if settings.agent_namespaces.is_empty() {
                mistakes.add("agentNamespaces", "must not be empty");
            }
        })
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "the configuration has 3 mistakes:\n  \
         c.yaml:1: agentNamespaces: must not be empty\n  \
         c.yaml:3: eviction.maxParallel: must be at most 64\n  \
         environment variable HVO_RATIO: ratio: must be at least 1.0"
    );
}
