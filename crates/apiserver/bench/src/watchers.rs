// SPDX-License-Identifier: Apache-2.0
//! How long a change takes from the moment a client sends it to the moment a watcher has read it,
//! with few and with many watchers, and what each delivery costs the server.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use crate::client::{Connection, Request, Target};
use crate::floor::Fanout;
use crate::kinds::{self, JSON};
use crate::load::{once, quantile};
use crate::report::{Report, Row};
use crate::{BenchError, Scale, process};

const WRITES_PER_SECOND: u32 = 30;
/// How long stragglers may take after the last write.
const PATIENCE: Duration = Duration::from_secs(10);
const NAMESPACE: &str = "bench-watch";
/// What stands before the number of a write in its event.
const MARK: &[u8] = br#""value":"v"#;

/// When each write was sent.
type Sent = Arc<Vec<OnceLock<Instant>>>;

/// What one number of watchers saw in one round.
struct Sample {
    p50: f64,
    p99: f64,
    max: f64,
    /// Microseconds of the server per delivery.
    cpu: f64,
    deliveries: f64,
}

/// The rounds of one server, by the number of watchers.
type Samples = BTreeMap<usize, Vec<Sample>>;

/// Rounds alternate between the floor of this machine, the server and, where there is one, the
/// reference.
pub(crate) async fn measure(
    targets: &[Target],
    scale: Scale,
    dir: &Path,
    say: fn(&str),
    report: &mut Report,
) -> Result<(), BenchError> {
    let floor = Fanout::start(dir).await?;
    let servers: Vec<&Target> = [&floor.target].into_iter().chain(targets).collect();
    for target in targets {
        once(target, &kinds::namespace(NAMESPACE)).await?;
        let create = Request::new("POST", kinds::configmaps(NAMESPACE), 201);
        once(target, &create.with(JSON, kinds::configmap(NAMESPACE, 0, 0))).await?;
    }
    let mut samples: Vec<Samples> = servers.iter().map(|_| Samples::new()).collect();
    let done = rounds(&servers, scale, say, &mut samples).await;
    for watchers in scale.watchers {
        let of = |server: usize| samples.get(server)?.get(watchers).map(Vec::as_slice);
        let plural = if *watchers == 1 { "watcher" } else { "watchers" };
        let (id, what) = (format!("watch-{watchers}"), format!("{watchers} {plural}"));
        let title = format!("floor: commit and send to {what}");
        let bare = row(format!("floor-{id}"), title, of(0).unwrap_or_default());
        let title = format!("watch fan-out, {what}");
        let served = row(id.clone(), title.clone(), of(1).unwrap_or_default());
        let served = served.over(&bare);
        report.extend([bare, served]);
        if let Some(taken) = of(2) {
            report.beside(row(id, title, taken));
        }
    }
    done
}

/// Every server in turn, with ever more watchers.
async fn rounds(
    servers: &[&Target],
    scale: Scale,
    say: fn(&str),
    samples: &mut [Samples],
) -> Result<(), BenchError> {
    let writes = (scale.watch.as_secs_f64() * f64::from(WRITES_PER_SECOND)) as u64;
    let mut first = 1;
    for round in 1..=scale.rounds {
        for (target, taken) in servers.iter().zip(&mut *samples) {
            for watchers in scale.watchers {
                say(&format!(
                    "watch: {}, round {round}, {watchers} watchers",
                    target.name
                ));
                let sample = on_one_thread(Target::clone(target), *watchers, first, writes).await?;
                taken.entry(*watchers).or_default().push(sample);
                first += writes;
            }
        }
    }
    Ok(())
}

fn row(id: String, title: String, rounds: &[Sample]) -> Row {
    let each = |value: fn(&Sample) -> f64| rounds.iter().map(value).collect::<Vec<f64>>();
    Row::new(id, title)
        .figure("p50", &each(|s| s.p50))
        .figure("p99", &each(|s| s.p99))
        .figure("max", &each(|s| s.max))
        .figure("cpu", &each(|s| s.cpu))
        .figure("deliveries", &each(|s| s.deliveries))
}

/// All clients in one thread, as one program with many connections: what they spend on waking each other would be taken
/// from the server they share the machine with.
async fn on_one_thread(
    target: Target,
    watchers: usize,
    first: u64,
    writes: u64,
) -> Result<Sample, BenchError> {
    let work = move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(BenchError::io("start", "a thread for watchers"))?;
        runtime.block_on(one(&target, watchers, first, writes))
    };
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|e| BenchError::Ended("the watchers".into(), e.to_string()))?
}

async fn one(target: &Target, watchers: usize, first: u64, writes: u64) -> Result<Sample, BenchError> {
    let sent: Sent = Arc::new((0..writes).map(|_| OnceLock::new()).collect());
    let mut tasks = JoinSet::new();
    for _ in 0..watchers {
        let watcher = Watcher::begin(target).await?;
        tasks.spawn(watcher.follow(first, sent.clone()));
    }
    let mut writer = Connection::open(target)
        .await
        .map_err(BenchError::io("connect to", target.address.to_string()))?;
    let cpu = process::cpu(&target.tasks);
    let began = Instant::now();
    let mut ticks = tokio::time::interval(Duration::from_secs(1) / WRITES_PER_SECOND);
    for (n, slot) in (first..).zip(sent.iter()) {
        ticks.tick().await;
        let request = Request::new("PUT", kinds::configmap_path(NAMESPACE, &kinds::name(0)), 200)
            .with(JSON, kinds::configmap(NAMESPACE, 0, n));
        let _ = slot.set(Instant::now());
        writer.call(&request, false).await?;
    }
    let mut times: Vec<Duration> = Vec::with_capacity(watchers * writes as usize);
    let collect = async {
        while let Some(done) = tasks.join_next().await {
            let seen = done.map_err(|e| BenchError::Ended("a watcher".into(), e.to_string()))??;
            times.extend(seen);
        }
        Ok::<(), BenchError>(())
    };
    let in_time = tokio::time::timeout(PATIENCE, collect).await;
    in_time.map_err(|_| BenchError::NotReady(format!("a watcher of {}", target.name), PATIENCE))??;
    let elapsed = began.elapsed();
    let cpu = process::cpu(&target.tasks).saturating_sub(cpu);
    times.sort_unstable();
    Ok(Sample {
        p50: quantile(&times, 0.5),
        p99: quantile(&times, 0.99),
        max: quantile(&times, 1.0),
        cpu: cpu.as_secs_f64() * 1e6 / times.len().max(1) as f64,
        deliveries: times.len() as f64 / elapsed.as_secs_f64(),
    })
}

/// A watch, and what was read of it and not yet understood.
struct Watcher {
    connection: Connection,
    text: Vec<u8>,
}

impl Watcher {
    /// Opens a watch and waits for the state it begins with: a server may read that after it answered, and would
    /// leave out what was written in between.
    async fn begin(target: &Target) -> Result<Self, BenchError> {
        // Beside an etcd that cannot tell its progress the reference refuses bookmarks and does not know
        // what is newest, so neither is asked for.
        let watch = "watch=true&resourceVersion=0";
        let request = Request::get(format!("{}?{watch}", kinds::configmaps(NAMESPACE)));
        let failed = |why: String, status| BenchError::Answer {
            request: "a watch".into(),
            status,
            body: why,
        };
        let mut connection = Connection::open(target)
            .await
            .map_err(|e| failed(e.to_string(), 0))?;
        connection
            .send(&request)
            .await
            .map_err(|e| failed(e.to_string(), 0))?;
        let status = connection
            .open_stream()
            .await
            .map_err(|e| failed(e.to_string(), 0))?;
        if status != 200 {
            return Err(failed("refused".into(), status));
        }
        let mut watcher = Self {
            connection,
            text: Vec::with_capacity(8 << 10),
        };
        while watcher.read().await?.is_empty() {}
        Ok(watcher)
    }

    /// The numbers of the writes in the next piece.
    async fn read(&mut self) -> Result<Vec<u64>, BenchError> {
        let piece = self
            .connection
            .piece()
            .await
            .map_err(BenchError::io("read", "a watch"))?;
        let Some(piece) = piece else {
            return Err(BenchError::Ended(
                "a watch".into(),
                "before its last event".into(),
            ));
        };
        self.text.extend_from_slice(piece);
        Ok(numbers(&mut self.text))
    }

    /// Reads until every write was seen; the times from sending to having read.
    async fn follow(mut self, first: u64, sent: Sent) -> Result<Vec<Duration>, BenchError> {
        let mut times = Vec::with_capacity(sent.len());
        while times.len() < sent.len() {
            let seen = self.read().await?;
            let now = Instant::now();
            for n in seen {
                let slot = n.checked_sub(first).and_then(|at| sent.get(at as usize));
                times.extend(slot.and_then(OnceLock::get).map(|sent| now.duration_since(*sent)));
            }
        }
        Ok(times)
    }
}

/// Takes the numbers of the writes out of a text; what may be the beginning of the next stays.
fn numbers(text: &mut Vec<u8>) -> Vec<u64> {
    let mut found = Vec::new();
    let mut from = 0;
    while let Some(at) = text
        .get(from..)
        .and_then(|rest| rest.windows(MARK.len()).position(|w| w == MARK))
    {
        let begin = from + at + MARK.len();
        let digits = text.get(begin..).unwrap_or_default();
        let Some(length) = digits.iter().position(|b| *b == b'"') else {
            // The number is not all there yet.
            text.drain(..from + at);
            return found;
        };
        let digits = std::str::from_utf8(digits.get(..length).unwrap_or_default()).unwrap_or_default();
        found.extend(digits.parse::<u64>().ok());
        from = begin + length;
    }
    let keep = text.len().saturating_sub(MARK.len()).max(from);
    text.drain(..keep);
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_found_across_pieces() {
        let whole = br#"{"data":{"value":"v12"}}{"data":{"value":"v345"}}"#;
        for cut in 0..whole.len() {
            let (one, two) = whole.split_at(cut);
            let mut text = one.to_vec();
            let mut found = numbers(&mut text);
            text.extend_from_slice(two);
            found.extend(numbers(&mut text));
            assert_eq!(found, [12, 345], "cut at {cut}");
        }
    }
}
