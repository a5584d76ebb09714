// SPDX-License-Identifier: Apache-2.0
//! `cobaltcore bench up`: what the whole platform costs on one machine. Starts `up` as a process of its own for each size
//! of fleet and looks at it from outside, as people do: until every host is Active, then at rest, then in the console.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use cobaltcore_api::Hypervisor;
use kube::api::{Api, ListParams, Patch, PatchParams};
use serde::Serialize;
use serde_json::json;
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};

/// Kernel ticks per second in `/proc`, fixed on Linux.
const TICKS: f64 = 100.0;
const LOOKS: usize = 11;
/// Somebody who waits longer than this for news will not get any.
const LISTEN: Duration = Duration::from_secs(60);
const PATIENCE: Duration = Duration::from_secs(3_600);
const READY_GOAL_MS: f64 = 5_000.0;
const PAGE_GOAL_MS: f64 = 500.0;
const LAG_GOAL_MS: f64 = 1_000.0;

/// What to measure.
#[derive(Debug)]
pub(crate) struct Options {
    pub(crate) program: PathBuf,
    pub(crate) sizes: Vec<usize>,
    pub(crate) vms_per_host: usize,
    pub(crate) idle: Duration,
}

/// One size of fleet.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Row {
    hypervisors: usize,
    servers: usize,
    ready_ms: f64,
    all_active_seconds: f64,
    cpu_seconds_to_all_active: f64,
    resident_mib: f64,
    peak_resident_mib: f64,
    idle_cpu_percent: f64,
    fleet_page_ms: f64,
    fleet_page_kib: f64,
    list_page_ms: f64,
    host_page_ms: f64,
    update_lag_ms: f64,
}

/// The figures of all sizes.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    rows: Vec<Row>,
}

impl Report {
    /// A table with the goals beside it.
    pub(crate) fn to_text(&self) -> String {
        let mut text = String::from(
            "hypervisors   servers    ready ms   all Active s   CPU s (ms/host)   MiB now/peak   idle CPU %   fleet ms (KiB)   list ms   host ms   lag ms\n",
        );
        for row in &self.rows {
            text += &format!(
                "{:<11}   {:>7}   {:>7.0}{:<2}  {:>10.1}   {:>7.1} ({:>6.0})   {:>5.0} / {:<5.0}  {:>8.1}   {:>7.0}{:<2}({:>4.0})   {:>7.0}   {:>7.0}   {:>5.0}{}\n",
                row.hypervisors,
                row.servers,
                row.ready_ms,
                missed(row.ready_ms, READY_GOAL_MS),
                row.all_active_seconds,
                row.cpu_seconds_to_all_active,
                row.cpu_seconds_to_all_active * 1_000.0 / row.hypervisors.max(1) as f64,
                row.resident_mib,
                row.peak_resident_mib,
                row.idle_cpu_percent,
                row.fleet_page_ms,
                missed(row.fleet_page_ms, PAGE_GOAL_MS),
                row.fleet_page_kib,
                row.list_page_ms,
                row.host_page_ms,
                row.update_lag_ms,
                missed(row.update_lag_ms, LAG_GOAL_MS),
            );
        }
        text += "\ngoals: ready 5,000 ms; page 500 ms; lag from a change in the API to the browser's connection 1,000 ms; \
                 an exclamation mark misses its goal. Pages and lag are medians.\n";
        text
    }
}

fn missed(figure: f64, goal: f64) -> &'static str {
    if figure > goal { "!" } else { "" }
}

/// Measures every size.
pub(crate) async fn run(options: Options) -> anyhow::Result<Report> {
    let mut rows = Vec::new();
    for size in &options.sizes {
        eprintln!("{size} hypervisors with {} servers each", options.vms_per_host);
        rows.push(measure(&options, *size).await?);
    }
    Ok(Report { rows })
}

async fn measure(options: &Options, size: usize) -> anyhow::Result<Row> {
    let folder = std::env::temp_dir().join(format!("cobaltcore-bench-up-{}-{size}", std::process::id()));
    let outcome = measure_in(options, size, &folder).await;
    let _ = std::fs::remove_dir_all(&folder);
    outcome
}

async fn measure_in(options: &Options, size: usize, folder: &Path) -> anyhow::Result<Row> {
    let began = Instant::now();
    let mut platform = Platform::start(options, size, folder).await?;
    let mut row = Row {
        hypervisors: size,
        servers: size * options.vms_per_host,
        ready_ms: millis(began.elapsed()),
        ..Row::default()
    };
    let client = crate::run::client(Some(&folder.join("kubeconfig"))).await?;
    let hosts: Api<Hypervisor> = Api::all(client);
    all_active(&hosts, size, &mut platform).await?;
    row.all_active_seconds = began.elapsed().as_secs_f64();
    row.cpu_seconds_to_all_active = platform.cpu_seconds();
    eprintln!(
        "  all Active after {:.1} s; looking at it at rest",
        row.all_active_seconds
    );
    // Test servers are still being deleted and events written for a moment.
    tokio::time::sleep(options.idle / 2).await;
    let before = (Instant::now(), platform.cpu_seconds());
    tokio::time::sleep(options.idle).await;
    row.idle_cpu_percent =
        (platform.cpu_seconds() - before.1) * 100.0 / before.0.elapsed().as_secs_f64().max(0.001);
    (row.resident_mib, row.peak_resident_mib) = platform.memory();
    let viewer = Viewer::sign_in(&platform.console).await?;
    (row.fleet_page_ms, row.fleet_page_kib) = viewer.page("/").await?;
    row.list_page_ms = viewer.page("/hypervisors").await?.0;
    let names = two_names(&hosts).await?;
    let first = names.first().context("there is no hypervisor")?;
    row.host_page_ms = viewer.page(&format!("/hypervisors/{first}")).await?.0;
    row.update_lag_ms = viewer.lag(&hosts, &names).await?;
    platform.stop().await?;
    Ok(row)
}

fn millis(span: Duration) -> f64 {
    span.as_secs_f64() * 1_000.0
}

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures.get(figures.len() / 2).copied().unwrap_or_default()
}

async fn two_names(hosts: &Api<Hypervisor>) -> anyhow::Result<Vec<String>> {
    let list = hosts.list_metadata(&ListParams::default().limit(2)).await?;
    let names = list.items.into_iter().filter_map(|host| host.metadata.name);
    Ok(names.collect())
}

async fn all_active(hosts: &Api<Hypervisor>, size: usize, platform: &mut Platform) -> anyhow::Result<()> {
    let began = Instant::now();
    loop {
        let list = hosts.list(&ListParams::default()).await?;
        let active = list.items.iter().filter(|host| {
            let status = host.status.as_ref();
            status
                .and_then(|status| status.phase)
                .is_some_and(|phase| phase.as_str() == "Active")
        });
        let active = active.count();
        if active == size {
            return Ok(());
        }
        platform.alive()?;
        if began.elapsed() > PATIENCE {
            bail!("after an hour only {active} of {size} hypervisors are Active");
        }
        // A list of a large fleet costs what is being measured; ask rarely.
        tokio::time::sleep(Duration::from_millis(200 + size as u64 * 5)).await;
    }
}

/// A running `up`.
struct Platform {
    child: Child,
    _said: Lines<BufReader<ChildStdout>>,
    console: String,
}

impl Platform {
    async fn start(options: &Options, size: usize, folder: &Path) -> anyhow::Result<Self> {
        let mut child = Command::new(&options.program)
            .args(["up", "--listen=127.0.0.1:0", "--console-listen=127.0.0.1:0"])
            .arg(format!("--data-dir={}", folder.display()))
            .arg(format!("--hypervisors={size}"))
            .arg(format!("--vms-per-host={}", options.vms_per_host))
            .env("COBALTCORE_LOG", "error")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("cannot start {}", options.program.display()))?;
        let out = child.stdout.take().context("up has no output")?;
        let mut said = BufReader::new(out).lines();
        let mut console = None;
        while let Some(line) = said.next_line().await? {
            if let Some((_, address)) = line.split_once("console") {
                console.get_or_insert_with(|| address.trim().to_owned());
            }
            if line.starts_with("Ctrl-C") {
                let console = console.context("up does not say where its console is")?;
                return Ok(Self {
                    child,
                    _said: said,
                    console,
                });
            }
        }
        bail!("up ended before it was ready")
    }

    fn alive(&mut self) -> anyhow::Result<()> {
        match self.child.try_wait()? {
            Some(status) => bail!("up ended with {status}"),
            None => Ok(()),
        }
    }

    fn proc(&self, file: &str) -> String {
        let id = self.child.id().unwrap_or_default();
        std::fs::read_to_string(format!("/proc/{id}/{file}")).unwrap_or_default()
    }

    fn cpu_seconds(&self) -> f64 {
        let stat = self.proc("stat");
        // The name in parentheses may hold anything; what follows are numbers.
        let fields = stat
            .rsplit_once(')')
            .map_or("", |(_, rest)| rest)
            .split_whitespace();
        let ticks: f64 = fields
            .skip(11)
            .take(2)
            .filter_map(|tick| tick.parse::<f64>().ok())
            .sum();
        ticks / TICKS
    }

    /// MiB now, and at most so far.
    fn memory(&self) -> (f64, f64) {
        let status = self.proc("status");
        let field = |name: &str| {
            let line = status.lines().find(|line| line.starts_with(name));
            let kib = line.and_then(|line| line.split_whitespace().nth(1)?.parse::<f64>().ok());
            kib.unwrap_or_default() / 1_024.0
        };
        (field("VmRSS:"), field("VmHWM:"))
    }

    async fn stop(mut self) -> anyhow::Result<()> {
        self.child.kill().await.context("cannot end up")
    }
}

/// Somebody with a browser.
struct Viewer {
    http: reqwest::Client,
    base: String,
    cookie: String,
}

impl Viewer {
    async fn sign_in(link: &str) -> anyhow::Result<Self> {
        let (base, code) = link
            .split_once("/sign-in#code=")
            .context("the link to the console has another form")?;
        let http = reqwest::Client::builder()
            .redirect(reqwest::redirect::Policy::none())
            .build()?;
        let answer = http
            .post(format!("{base}/sign-in"))
            .header("content-type", "application/x-www-form-urlencoded")
            .body(format!("token={code}"))
            .send()
            .await?;
        let cookie = answer
            .headers()
            .get("set-cookie")
            .and_then(|cookie| cookie.to_str().ok()?.split(';').next())
            .context("the console did not let us in")?;
        Ok(Self {
            cookie: cookie.to_owned(),
            base: base.to_owned(),
            http,
        })
    }

    fn get(&self, path: &str) -> reqwest::RequestBuilder {
        self.http
            .get(format!("{}{path}", self.base))
            .header("cookie", &self.cookie)
    }

    /// Milliseconds until a page is there, and its KiB.
    async fn page(&self, path: &str) -> anyhow::Result<(f64, f64)> {
        let (mut times, mut kib) = (Vec::new(), 0.0);
        for _ in 0..LOOKS {
            let began = Instant::now();
            let page = self.get(path).send().await?.error_for_status()?.bytes().await?;
            times.push(millis(began.elapsed()));
            kib = page.len() as f64 / 1_024.0;
        }
        Ok((median(times), kib))
    }

    /// Milliseconds from a change in the API to a tile in the browser's connection. The changes are of no concern to any
    /// role, and of two hosts in turn, because a tile that looks as it did is not sent again.
    async fn lag(&self, hosts: &Api<Hypervisor>, names: &[String]) -> anyhow::Result<f64> {
        let mut news = self.get("/live?page=/").send().await?.error_for_status()?;
        let mut heard = async |tile: String| -> anyhow::Result<()> {
            let mut text = String::new();
            while !text.contains(&tile) {
                let more = tokio::time::timeout(LISTEN, news.chunk()).await;
                let more = more.with_context(|| format!("{tile} was not sent"))??;
                text.push_str(&String::from_utf8_lossy(&more.context("the console hung up")?));
            }
            Ok(())
        };
        // The first news are the whole page, and other changes may be on their way.
        heard("tile-".into()).await?;
        tokio::time::sleep(Duration::from_secs(2)).await;
        let mut lags = Vec::new();
        for (round, name) in names.iter().cycle().take(LOOKS).enumerate() {
            let change =
                json!({"metadata": {"annotations": {"cobaltcore.example/bench": round.to_string()}}});
            let began = Instant::now();
            hosts
                .patch_metadata(name, &PatchParams::default(), &Patch::Merge(&change))
                .await?;
            heard(format!("\"tile-{name}\"")).await?;
            lags.push(millis(began.elapsed()));
            tokio::time::sleep(Duration::from_millis(700)).await;
        }
        Ok(median(lags))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_beyond_its_goal_is_marked() {
        let row = |update_lag_ms| Row {
            hypervisors: 10,
            update_lag_ms,
            ..Row::default()
        };
        let text = Report {
            rows: vec![row(400.0), row(1_200.0)],
        }
        .to_text();
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[1].ends_with(" 400"), "{text}");
        assert!(lines[2].ends_with(" 1200!"), "{text}");
    }

    #[test]
    fn the_middle_counts() {
        assert_eq!(median(vec![9.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(vec![]), 0.0);
    }
}
