// SPDX-License-Identifier: Apache-2.0
//! Follows the configuration file. A new one is read and checked as a whole, and everything it needs
//! is prepared; then it takes effect everywhere, or the old one stays. What is read at the start only
//! keeps its old value until the process starts again, and people are told which keys those are.

use std::path::PathBuf;
use std::sync::Arc;

use cobaltcore_ha_engine::Input;
use cobaltcore_kit::config::Followed;
use tokio_util::sync::CancellationToken;

use crate::act::Executor;
use crate::config::Config;
use crate::http::App;
use crate::metrics::OfResult;
use crate::settings::engine_config;

/// Follows the file at `path` until `stop`.
pub(crate) async fn follow(
    path: PathBuf,
    app: Arc<App>,
    executor: Executor,
    relog: Box<dyn Fn(&str) + Send + Sync>,
    stop: CancellationToken,
) {
    let mut file = Followed::new(path, Vec::new());
    let mut first = true;
    loop {
        let content = tokio::select! {
            () = stop.cancelled() => return,
            content = file.changed() => content,
        };
        let name = file.path().display().to_string();
        let text = String::from_utf8_lossy(&content);
        let read = Config::parse(&name, &text).map_err(|error| error.to_string());
        // The first look finds what is in force already, unless somebody was very quick.
        if std::mem::take(&mut first)
            && let Ok(config) = &read
            && config.same(&app.config())
        {
            continue;
        }
        let result = match read {
            Ok(config) => {
                let before = app.config().log.level.clone();
                let applied = apply(&app, &executor, config).await;
                let level = &app.config().log.level;
                if *level != before {
                    relog(level);
                }
                applied
            }
            Err(why) => Err(why),
        };
        let word = match &result {
            Ok(later) if later.is_empty() => {
                tracing::info!(file = name, "the new configuration takes effect");
                "applied"
            }
            Ok(later) => {
                let keys = later.join(", ");
                tracing::warn!(
                    file = name,
                    keys,
                    "the new configuration takes effect, except for keys that need a restart"
                );
                "applied"
            }
            Err(why) => {
                tracing::error!(
                    file = name,
                    why,
                    "the new configuration is refused; the old one stays"
                );
                "rejected"
            }
        };
        let label = OfResult { result: word.into() };
        app.metrics.config_reload.get_or_create(&label).inc();
    }
}

/// Puts a configuration in force. Says which keys wait for a restart.
async fn apply(app: &App, executor: &Executor, mut config: Config) -> Result<Vec<&'static str>, String> {
    let later = config.keep_fixed(&app.config());
    let prepared = executor.prepare(&config).map_err(|error| error.to_string())?;
    let config = Arc::new(config);
    executor.change(prepared, &config);
    app.door.change(&config);
    app.in_force.replace(Arc::clone(&config));
    app.brain
        .tell(Input::Configure(Box::new(engine_config(&config))))
        .await;
    Ok(later)
}
