// SPDX-License-Identifier: Apache-2.0
//! Configuration in layers: defaults in code, then a YAML file, then environment variables,
//! then flags. Reading is strict (a key nobody knows is a mistake) and complete (all mistakes
//! are reported at once, each with file, line and key).

mod de;
mod duration;
mod fault;
mod followed;
mod given;
mod layers;
mod repair;
mod suggest;
mod tree;

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;

use fault::Fault;
use layers::Layers;
use repair::Aside;
use tree::Node;

pub use duration::HumanDuration;
pub use followed::Followed;

const MOST_MISTAKES: usize = 64;
const LARGEST_FILE: u64 = 1024 * 1024;

/// One mistake in the configuration.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mistake {
    /// The file, variable or flag.
    pub source: String,
    /// The line in the file.
    pub line: Option<usize>,
    /// The key, with dots between levels; empty for the whole source.
    pub key: String,
    /// What is wrong.
    pub message: String,
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.source)?;
        if let Some(line) = self.line {
            write!(f, ":{line}")?;
        }
        if !self.key.is_empty() {
            write!(f, ": {}", self.key)?;
        }
        write!(f, ": {}", self.message)
    }
}

/// Every mistake in the configuration, in order of source and line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigErrors(pub Vec<Mistake>);

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.as_slice() {
            [one] => one.fmt(f),
            many => {
                write!(f, "the configuration has {} mistakes:", many.len())?;
                many.iter().try_for_each(|mistake| write!(f, "\n  {mistake}"))
            }
        }
    }
}

impl std::error::Error for ConfigErrors {}

/// Collects the mistakes that a role finds in values that are well-formed by themselves.
pub struct Mistakes<'a> {
    layers: &'a Layers,
    found: Vec<Mistake>,
}

impl Mistakes<'_> {
    /// Says that the value of `key` (with dots between levels) is wrong.
    pub fn add(&mut self, key: &str, message: impl Into<String>) {
        let path: Vec<String> = key.split('.').map(str::to_owned).collect();
        let place = self.layers.place_of(&path);
        self.found.push(Mistake {
            source: place.source,
            line: place.line,
            key: key.into(),
            message: message.into(),
        });
    }
}

/// Gathers the layers of a configuration.
///
/// ```
/// use cobaltcore_kit::config::Config;
/// use serde::Deserialize;
///
/// #[derive(Deserialize)]
/// #[serde(rename_all = "camelCase", default)]
/// struct Settings { workers: u32, labelSelector: String }
/// # #[allow(non_snake_case)] impl Default for Settings { fn default() -> Self { Self { workers: 8, labelSelector: String::new() } } }
///
/// let settings: Settings = Config::new()
///     .text("example.yaml", "workers: 2\n")
///     .variables("HVO", [("HVO_LABEL_SELECTOR".to_owned(), "zone=a".to_owned())])
///     .flag("--workers", "workers", Some("4"))
///     .load()
///     .unwrap();
/// assert_eq!((settings.workers, settings.labelSelector.as_str()), (4, "zone=a"));
/// ```
#[derive(Debug, Default)]
pub struct Config {
    file: Option<File>,
    prefix: String,
    variables: BTreeMap<String, String>,
    flags: Vec<(String, String, String)>,
}

#[derive(Debug)]
enum File {
    Path(PathBuf),
    Text(String, String),
}

impl Config {
    /// Nothing but defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// Reads a YAML file.
    #[must_use]
    pub fn file(mut self, path: Option<&Path>) -> Self {
        self.file = path.map(|path| File::Path(path.to_owned()));
        self
    }

    /// Reads YAML from memory under a name.
    #[must_use]
    pub fn text(mut self, name: &str, text: &str) -> Self {
        self.file = Some(File::Text(name.to_owned(), text.to_owned()));
        self
    }

    /// Reads the process environment: `evictions.maxParallel` is `<PREFIX>_EVICTIONS_MAX_PARALLEL`.
    #[must_use]
    pub fn environment(self, prefix: &str) -> Self {
        self.variables(
            prefix,
            std::env::vars_os().filter_map(|(k, v)| Some((k.into_string().ok()?, v.into_string().ok()?))),
        )
    }

    /// Reads variables from elsewhere.
    #[must_use]
    pub fn variables(mut self, prefix: &str, variables: impl IntoIterator<Item = (String, String)>) -> Self {
        prefix.clone_into(&mut self.prefix);
        let start = format!("{prefix}_");
        self.variables = variables
            .into_iter()
            .filter(|(name, _)| name.starts_with(&start))
            .collect();
        self
    }

    /// Sets `key` (with dots between levels) from a flag, if the flag was given.
    #[must_use]
    pub fn flag(mut self, flag: &str, key: &str, value: Option<impl fmt::Display>) -> Self {
        if let Some(value) = value {
            self.flags
                .push((flag.to_owned(), key.to_owned(), value.to_string()));
        }
        self
    }

    /// Reads the configuration.
    pub fn load<T: DeserializeOwned>(self) -> Result<T, ConfigErrors> {
        self.load_checked(|_, _| {})
    }

    /// Reads the configuration and lets `check` look for mistakes that types cannot express.
    /// `check` runs only on a configuration that is well-formed.
    pub fn load_checked<T: DeserializeOwned>(
        self,
        check: impl FnOnce(&T, &mut Mistakes<'_>),
    ) -> Result<T, ConfigErrors> {
        let mut layers = self.layers()?;
        let value: T = read_all(&mut layers)?;
        let mut mistakes = Mistakes {
            layers: &layers,
            found: layers.unused(),
        };
        check(&value, &mut mistakes);
        sorted(mistakes.found).map_or(Ok(value), Err)
    }

    fn layers(self) -> Result<Layers, ConfigErrors> {
        let Self {
            file,
            prefix,
            variables,
            flags,
        } = self;
        let (name, text) = match file {
            None => ("defaults".to_owned(), String::new()),
            Some(File::Text(name, text)) => (name, text),
            Some(File::Path(path)) => (path.display().to_string(), read_file(&path)?),
        };
        let tree = tree::parse(&name, &text).map_err(ConfigErrors)?;
        Ok(Layers::new(name, tree, &prefix, variables, flags))
    }
}

fn read_file(path: &Path) -> Result<String, ConfigErrors> {
    let wrong = |message: String| {
        ConfigErrors(vec![Mistake {
            source: path.display().to_string(),
            line: None,
            key: String::new(),
            message,
        }])
    };
    let size = std::fs::metadata(path)
        .map_err(|error| wrong(format!("cannot be read: {error}")))?
        .len();
    if size > LARGEST_FILE {
        return Err(wrong(format!("has {size} bytes; {LARGEST_FILE} are allowed")));
    }
    std::fs::read_to_string(path).map_err(|error| wrong(format!("cannot be read: {error}")))
}

/// Reads until there are no more mistakes to find. A reader stops at its first mistake, so
/// each one is noted, put out of the way, and reading starts again.
fn read_all<T: DeserializeOwned>(layers: &mut Layers) -> Result<T, ConfigErrors> {
    let mut mistakes = Vec::new();
    // Putting one mistake out of the way takes a few readings at most.
    for _ in 0..4 * MOST_MISTAKES {
        let fault = match de::read::<T>(layers) {
            Ok(value) if mistakes.is_empty() => return Ok(value),
            Ok(_) => break,
            Err(fault) => fault,
        };
        let Aside { report, go_on } = layers.put_aside(&fault);
        if report || mistakes.is_empty() {
            mistakes.push(fault.mistake());
        }
        if !go_on || mistakes.len() == MOST_MISTAKES {
            break;
        }
    }
    mistakes.extend(layers.unused());
    Err(sorted(mistakes).unwrap_or(ConfigErrors(Vec::new())))
}

fn sorted(mut mistakes: Vec<Mistake>) -> Option<ConfigErrors> {
    mistakes.sort();
    mistakes.dedup();
    (!mistakes.is_empty()).then_some(ConfigErrors(mistakes))
}

impl Fault {
    fn mistake(&self) -> Mistake {
        Mistake {
            source: self.place.source.clone(),
            line: self.place.line,
            key: self.key(),
            message: self.message.clone(),
        }
    }
}

/// The root of a configuration that says nothing.
fn empty(source: &str) -> Node {
    Node::map(tree::Place {
        source: source.to_owned(),
        line: None,
    })
}

#[cfg(test)]
mod tests;
