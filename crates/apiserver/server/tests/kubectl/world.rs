// SPDX-License-Identifier: Apache-2.0
//! The server that the tests share, the runs of kubectl against it, and the reading of its tables.

/// Says so past the test harness, which hides what passing tests print.
macro_rules! skipped {
    ($($text:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!(std::io::stderr(), $($text)*);
    }};
}

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use cobaltcore_apiserver::testkit::{Reply, TestServer};
use serde_json::Value;

/// Longest any one run of kubectl may take; only a hanging one does.
const PATIENCE: Duration = Duration::from_secs(90);

/// The server, kept while any test uses it, with everything kubectl writes in a directory that goes
/// with it.
pub(crate) struct World {
    runtime: Option<tokio::runtime::Runtime>,
    server: Option<TestServer>,
    home: tempfile::TempDir,
    minor: u32,
}

static SHARED: Mutex<Weak<World>> = Mutex::new(Weak::new());

impl World {
    fn shared() -> Option<Arc<Self>> {
        let mut shared = SHARED.lock().unwrap();
        if let Some(world) = shared.upgrade() {
            return Some(world);
        }
        let world = Arc::new(Self::start()?);
        *shared = Arc::downgrade(&world);
        Some(world)
    }

    fn start() -> Option<Self> {
        let minor = client_minor()?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap();
        let home = tempfile::tempdir().unwrap();
        let config = cobaltcore_apiserver::Config {
            listen: vec![([127, 0, 0, 1], 0).into()],
            port_given: true,
            kubeconfig: Some(home.path().join("kubeconfig")),
            ..cobaltcore_apiserver::Config::default()
        };
        let server = runtime.block_on(TestServer::with(config));
        Some(Self {
            runtime: Some(runtime),
            server: Some(server),
            home,
            minor,
        })
    }

    fn block_on<F: Future>(&self, future: F) -> F::Output {
        self.runtime.as_ref().unwrap().block_on(future)
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if let (Some(runtime), Some(server)) = (self.runtime.take(), self.server.take()) {
            runtime.block_on(server.stop());
        }
    }
}

/// The minor version of the kubectl on this machine, if there is one.
fn client_minor() -> Option<u32> {
    let output = Command::new("kubectl")
        .args(["version", "--client", "-o", "json"])
        .output()
        .ok()?;
    let version: Value = serde_json::from_slice(&output.stdout).ok()?;
    let minor = version["clientVersion"]["minor"].as_str()?;
    minor.trim_end_matches(|c: char| !c.is_ascii_digit()).parse().ok()
}

/// A namespace of the shared server and kubectl working in it.
pub(crate) struct Desk {
    world: Arc<World>,
    pub(crate) namespace: String,
}

/// A desk for the test called `test`, or nothing when this machine has no kubectl of that age.
pub(crate) fn desk(test: &str, least_minor: u32) -> Option<Desk> {
    let Some(world) = World::shared() else {
        skipped!("SKIPPED {test}: there is no kubectl on this machine");
        return None;
    };
    if world.minor < least_minor {
        skipped!(
            "SKIPPED {test}: it needs kubectl 1.{least_minor}, here is 1.{}",
            world.minor
        );
        return None;
    }
    let desk = Desk {
        world,
        namespace: test.to_owned(),
    };
    desk.ok(&format!("create namespace {test}"));
    Some(desk)
}

/// What one run of kubectl gave.
pub(crate) struct Run {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Desk {
    /// Whether kubectl is of this minor version or newer.
    pub(crate) fn has(&self, minor: u32) -> bool {
        self.world.minor >= minor
    }

    /// Where this test may put files.
    pub(crate) fn file(&self, name: &str, text: &str) -> String {
        let dir = self.world.home.path().join(&self.namespace);
        std::fs::create_dir_all(&dir).unwrap();
        let path = dir.join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    }

    fn command(&self, line: &str) -> Command {
        let home = self.world.home.path();
        let mut command = Command::new("kubectl");
        command
            .args(["--namespace", &self.namespace])
            .args(words(line))
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", home)
            .env("KUBECONFIG", home.join("kubeconfig"))
            .env("KUBECACHEDIR", home.join("cache"))
            .env("TMPDIR", home)
            .current_dir(home)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    /// Runs kubectl with the words of `line`; single quotes keep a word together.
    pub(crate) fn run(&self, line: &str, input: &str, env: &[(&str, &str)]) -> Run {
        let mut child = self.command(line).envs(env.iter().copied()).spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        // A kubectl that fails early does not read its input.
        let _ = stdin.write_all(input.as_bytes());
        drop(stdin);
        let out = drain(child.stdout.take().unwrap());
        let err = drain(child.stderr.take().unwrap());
        let begun = Instant::now();
        let status = loop {
            if let Some(status) = child.try_wait().unwrap() {
                break status;
            }
            if begun.elapsed() > PATIENCE {
                let _ = child.kill();
                let _ = child.wait();
                panic!(
                    "kubectl {line} hangs; so far it said:\n{}{}",
                    out.join().unwrap(),
                    err.join().unwrap()
                );
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        Run {
            code: status.code(),
            out: out.join().unwrap(),
            err: err.join().unwrap(),
        }
    }

    /// What a successful run prints.
    pub(crate) fn ok(&self, line: &str) -> String {
        self.ok_with(line, "")
    }

    /// What a successful run prints when given `input`.
    pub(crate) fn ok_with(&self, line: &str, input: &str) -> String {
        let run = self.run(line, input, &[]);
        assert_eq!(run.code, Some(0), "kubectl {line}\n{}{}", run.out, run.err);
        run.out
    }

    /// What a failing run complains about.
    pub(crate) fn fails(&self, line: &str) -> String {
        self.fails_with(line, "")
    }

    /// What a run that fails on `input` complains about.
    pub(crate) fn fails_with(&self, line: &str, input: &str) -> String {
        let run = self.run(line, input, &[]);
        assert_eq!(
            run.code,
            Some(1),
            "kubectl {line} should fail\n{}{}",
            run.out,
            run.err
        );
        run.err
    }

    /// One value of an object, by JSONPath.
    pub(crate) fn value(&self, object: &str, path: &str) -> String {
        self.ok(&format!("get {object} -o 'jsonpath={path}'"))
    }

    /// Checks one value of an object, by JSONPath.
    #[track_caller]
    pub(crate) fn has_value(&self, object: &str, path: &str, value: &str) {
        assert_eq!(self.value(object, path), value, "{path} of {object}");
    }

    /// Prints `line` and checks the message.
    #[track_caller]
    pub(crate) fn says(&self, line: &str, message: &str) {
        assert_eq!(self.ok(line).trim_end(), message, "kubectl {line}");
    }

    /// Runs `line`, which must fail with exactly this message.
    #[track_caller]
    pub(crate) fn refuses(&self, line: &str, message: &str) {
        assert_eq!(self.fails(line).trim_end(), message, "kubectl {line}");
    }

    /// Starts a kubectl that goes on printing.
    pub(crate) fn follow(&self, line: &str) -> Follow {
        let mut child = self.command(line).stdin(Stdio::null()).spawn().unwrap();
        let out = child.stdout.take().unwrap();
        let (send, lines) = std::sync::mpsc::sync_channel(1_000);
        std::thread::spawn(move || {
            for line in BufReader::new(out).lines().map_while(Result::ok) {
                if send.send(line).is_err() {
                    return;
                }
            }
        });
        Follow {
            child,
            lines,
            line: line.to_owned(),
        }
    }

    /// Does what a kubelet or controller would: a merge patch of a status by the API's path.
    pub(crate) fn report(&self, path: &str, patch: &Value) {
        let reply: Reply = self
            .world
            .block_on(self.world.server.as_ref().unwrap().admin().merge(path, patch));
        assert_eq!(reply.code, 200, "{path}: {}", reply.body);
    }

    /// Waits until `line` prints something that `wanted` accepts.
    pub(crate) fn until(&self, line: &str, wanted: impl Fn(&str) -> bool) -> String {
        let begun = Instant::now();
        loop {
            let run = self.run(line, "", &[]);
            if wanted(&run.out) {
                return run.out;
            }
            assert!(
                begun.elapsed() < PATIENCE,
                "kubectl {line} never came true; it says\n{}{}",
                run.out,
                run.err
            );
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

fn drain(mut from: impl Read + Send + 'static) -> std::thread::JoinHandle<String> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = from.read_to_end(&mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

/// The words of a command line; single quotes keep one together.
fn words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut quoted = false;
    let mut word: Option<String> = None;
    for c in line.chars() {
        match c {
            '\'' => {
                quoted = !quoted;
                word.get_or_insert_default();
            }
            ' ' if !quoted => words.extend(word.take()),
            _ => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    words
}

/// A kubectl that goes on printing; ended when dropped.
pub(crate) struct Follow {
    child: Child,
    lines: std::sync::mpsc::Receiver<String>,
    line: String,
}

impl Follow {
    /// Its next line.
    pub(crate) fn next(&self) -> String {
        self.lines
            .recv_timeout(PATIENCE)
            .unwrap_or_else(|_| panic!("kubectl {} printed nothing more", self.line))
    }
}

impl Follow {
    /// Its exit code, when it ends by itself.
    pub(crate) fn end(mut self) -> Option<i32> {
        let begun = Instant::now();
        while begun.elapsed() < PATIENCE {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.code();
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        panic!("kubectl {} does not end", self.line)
    }
}

impl Drop for Follow {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A printed table, read by the places of its headings.
#[derive(Debug)]
pub(crate) struct Table {
    pub(crate) headings: Vec<String>,
    pub(crate) rows: Vec<BTreeMap<String, String>>,
}

impl Table {
    /// Reads what kubectl printed.
    pub(crate) fn read(text: &str) -> Self {
        let mut lines = text.lines();
        let head = lines.next().unwrap_or_default();
        let mut starts: Vec<usize> = Vec::new();
        let bytes = head.as_bytes();
        for (place, byte) in bytes.iter().enumerate() {
            let gap = place == 0 || (place >= 2 && bytes[place - 1] == b' ' && bytes[place - 2] == b' ');
            if *byte != b' ' && gap {
                starts.push(place);
            }
        }
        let cells = |line: &str| -> Vec<String> {
            let ends = starts.iter().skip(1).copied().chain([usize::MAX]);
            starts
                .iter()
                .zip(ends)
                .map(|(start, end)| {
                    line.get(*start..end.min(line.len()))
                        .unwrap_or_default()
                        .trim()
                        .to_owned()
                })
                .collect()
        };
        let headings = cells(head);
        let rows = lines
            .map(|line| headings.iter().cloned().zip(cells(line)).collect())
            .collect();
        Self { headings, rows }
    }

    /// The row called `name`.
    #[track_caller]
    pub(crate) fn row(&self, name: &str) -> &BTreeMap<String, String> {
        self.rows
            .iter()
            .find(|row| row["NAME"] == name)
            .unwrap_or_else(|| panic!("no row {name} in {self:#?}"))
    }

    /// The names of the rows, in order.
    pub(crate) fn names(&self) -> Vec<&str> {
        self.rows.iter().map(|row| row["NAME"].as_str()).collect()
    }

    /// Checks the headings, written with two blanks or more in between.
    #[track_caller]
    pub(crate) fn has_headings(&self, headings: &str) {
        let wanted: Vec<&str> = headings
            .split("  ")
            .map(str::trim)
            .filter(|h| !h.is_empty())
            .collect();
        assert_eq!(self.headings, wanted);
    }

    /// Checks the cells of the row called `name` before the age, in order.
    #[track_caller]
    pub(crate) fn has_row(&self, name: &str, cells: &[&str]) {
        let row = self.row(name);
        let found: Vec<&str> = self
            .headings
            .iter()
            .filter(|h| *h != "AGE")
            .map(|h| row[h].as_str())
            .collect();
        assert_eq!(found, cells, "{name}");
    }
}

/// Whether a cell is an age such as `0s`, `5m2s` or `3d`.
pub(crate) fn is_age(cell: &str) -> bool {
    cell.starts_with(|c: char| c.is_ascii_digit()) && cell.ends_with(['s', 'm', 'h', 'd', 'y'])
}

/// Checks that `text` has these lines, blanks aside, in this order.
#[track_caller]
pub(crate) fn has_lines(text: &str, lines: &[&str]) {
    let plain = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut found = text.lines().map(plain);
    for line in lines {
        let wanted = plain(line);
        assert!(
            found.any(|l| l == wanted),
            "the line {wanted:?} is missing or out of order in\n{text}"
        );
    }
}
