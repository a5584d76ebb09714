// SPDX-License-Identifier: Apache-2.0
//! Follows the configuration file. A new one is read and checked as a whole; then it takes effect, or the old one
//! stays, and either is told to the service. Kubernetes swaps mounted files by changing a link, so what counts is the
//! file behind all links, and now and then its content.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cobaltcore_ha_wire::agent;
use cobaltcore_kit::{BoxError, CancellationToken};
use ring::digest::{SHA256, digest};
use tokio::sync::watch;

use crate::board::Context;
use crate::config::Config;
use crate::draft::Draft;

const LOOK: Duration = Duration::from_secs(1);
/// Whatever the file system says, the content is compared this often.
const COMPARE: Duration = Duration::from_secs(30);

/// Where the configuration in force is published.
pub(crate) struct InForce {
    pub(crate) config: watch::Sender<Arc<Config>>,
    pub(crate) hash: watch::Sender<String>,
}

/// The short name of a content.
pub(crate) fn hash(content: &[u8]) -> String {
    let whole = digest(&SHA256, content);
    whole
        .as_ref()
        .iter()
        .take(8)
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

type Stamp = Option<(u64, u64, u64, i64, i64)>;

fn stamp(path: &Path) -> Stamp {
    let data = std::fs::metadata(path).ok()?;
    Some((
        data.dev(),
        data.ino(),
        data.size(),
        data.mtime(),
        data.mtime_nsec(),
    ))
}

/// Follows the file until `stop`.
pub(crate) async fn run(
    context: Context,
    in_force: Arc<InForce>,
    stop: CancellationToken,
) -> Result<(), BoxError> {
    let path = context.start.config.clone();
    // The first look compares the content: the file may have changed since it was read.
    let mut seen: Stamp = None;
    let mut compared = Instant::now();
    let mut last = in_force.hash.borrow().clone();
    loop {
        tokio::select! {
            () = stop.cancelled() => return Ok(()),
            () = tokio::time::sleep(LOOK) => {}
        }
        let now = stamp(&path);
        if now == seen && compared.elapsed() < COMPARE {
            continue;
        }
        seen = now;
        compared = Instant::now();
        let Ok(content) = std::fs::read(&path) else {
            // In the middle of a swap; the next look finds it.
            continue;
        };
        let found = hash(&content);
        if found != last {
            last.clone_from(&found);
            take(&context, &in_force, &content, &found);
        }
    }
}

fn take(context: &Context, in_force: &InForce, content: &[u8], hash: &str) {
    let name = context.start.config.display().to_string();
    let text = String::from_utf8_lossy(content);
    let read = Config::parse(&name, &text).map_err(|error| error.to_string());
    let old = in_force.config.borrow().clone();
    let checked = read.and_then(|config| match old.needs_restart(&config) {
        Some(key) => Err(format!("{name}: {key}: needs a restart of the agent to change")),
        None => Ok(config),
    });
    match checked {
        Ok(config) => {
            tracing::info!(hash, "the configuration takes effect");
            context.spool.lock().set_limits(config.spool.limits());
            in_force.config.send_replace(Arc::new(config));
            in_force.hash.send_replace(hash.to_owned());
            context.metrics.config(hash);
            context.metrics.reload("applied");
            context
                .intake
                .put(Draft::agent(agent::CONFIG_APPLIED).with("hash", hash));
        }
        Err(why) => {
            tracing::error!(hash, why, "the configuration is refused; the old one stays");
            context.metrics.reload("rejected");
            context.intake.put(
                Draft::agent(agent::CONFIG_REJECTED)
                    .with("hash", hash)
                    .with("why", why),
            );
        }
    }
}
