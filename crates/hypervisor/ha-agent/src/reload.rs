// SPDX-License-Identifier: Apache-2.0
//! Follows the configuration file. A new one is read and checked as a whole; then it takes effect, or the old one
//! stays, and either is told to the service.

use std::sync::Arc;

use cobaltcore_ha_wire::agent;
use cobaltcore_kit::config::Followed;
use cobaltcore_kit::startup;
use cobaltcore_kit::{BoxError, CancellationToken};
use ring::digest::{SHA256, digest};
use tokio::sync::watch;

use crate::board::Context;
use crate::config::Config;
use crate::draft::Draft;

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

/// Follows the file until `stop`.
pub(crate) async fn run(
    context: Context,
    in_force: Arc<InForce>,
    stop: CancellationToken,
) -> Result<(), BoxError> {
    let mut last = in_force.hash.borrow().clone();
    let mut file = Followed::new(context.start.config.clone(), Vec::new());
    loop {
        let content = tokio::select! {
            () = stop.cancelled() => return Ok(()),
            content = file.changed() => content,
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
            if config.log != old.log {
                // One that cannot be read was refused above.
                let _ = startup::change_filter(&config.log.level);
                tracing::info!(level = config.log.level, "what is logged changed");
            }
            context.spool.set_limits(config.spool.limits());
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
