// SPDX-License-Identifier: Apache-2.0
//! The interface of operators before May 2026: one call that switches HA of a host on or off. It is
//! idempotent, answers within ten seconds, and knows a host as soon as Nova or Kubernetes does.

use std::time::Duration;

use cobaltcore_api::names::HostName;
use cobaltcore_ha_wire::Problem;
use cobaltcore_ha_wire::rest::LegacyHost;
use rusqlite::params;
use serde::Deserialize;
use serde_json::json as object;

use super::call::{Answer, Call, json};
use super::people::{judged, not_found};
use super::{problem, state_of};

const ANSWER_WITHIN: Duration = Duration::from_secs(9);

/// Other fields count for nothing.
#[derive(Deserialize)]
struct Switch {
    enabled: bool,
}

impl Call {
    fn hostname(&self) -> Result<HostName, Problem> {
        let text = self.param("hostname").to_ascii_lowercase();
        HostName::new(text).map_err(|error| problem(400, "Bad request", error.to_string()))
    }
}

pub(super) async fn switch(call: Call) -> Answer {
    let host = call.hostname()?;
    let Switch { enabled } = call.read().map_err(|mut refused: Problem| {
        refused.detail = format!(
            "{}; the body must be {{\"enabled\": true}} or {{\"enabled\": false}}",
            refused.detail
        );
        refused
    })?;
    let known = call.app.directory.get(&host).ok_or_else(|| {
        not_found(format_args!(
            "host {host}; neither Nova nor Kubernetes has listed it"
        ))
    })?;
    // What the call said before or, where it never said anything, what was so.
    let before = known.legacy.unwrap_or(known.ha_enabled).to_string();
    let (name, actor) = (host.to_string(), call.caller.name());
    let now = jiff::Timestamp::now().as_millisecond();
    let audited = call.app.store.write(move |transaction| {
        transaction.execute(
            "insert into hosts(host, first_seen, known_at) values(?1, ?2, ?2) on conflict(host) do nothing",
            params![name, now],
        )?;
        transaction.execute(
            "insert into audit(at, actor, action, target, reason, before, after) values(?1, ?2, 'switch', ?3, '', ?4, ?5)",
            params![now, actor, name, before, enabled.to_string()],
        )?;
        Ok(())
    });
    in_time(async {
        audited.await.map_err(|error| error.to_string())?;
        call.app.switches.put(&host, enabled).await
    })
    .await?;
    json(&object!({}))
}

/// The caller has an answer within ten seconds, whatever the database or the cluster does. It repeats what failed.
async fn in_time<E: std::fmt::Display>(written: impl Future<Output = Result<(), E>>) -> Result<(), Problem> {
    let refused = |why: String| problem(503, "Not stored", why);
    match tokio::time::timeout(ANSWER_WITHIN, written).await {
        Ok(stored) => stored.map_err(|error| refused(error.to_string())),
        Err(_) => Err(refused("storing it takes too long; try again".to_owned())),
    }
}

pub(super) async fn list(call: Call) -> Answer {
    let found = judged(&call.app)
        .await?
        .into_iter()
        .map(|(name, entry, status)| LegacyHost {
            state: state_of(&entry, status.as_ref()),
            enabled: entry.ha_enabled,
            last_seen: call.app.heard.last(&name),
            name,
        })
        .collect();
    call.page(found, |host: &LegacyHost| host.name.to_string())
}

pub(super) async fn get(call: Call) -> Answer {
    let name = call.hostname()?;
    let found = judged(&call.app)
        .await?
        .into_iter()
        .find(|(host, ..)| *host == name);
    let (name, entry, status) = found.ok_or_else(|| not_found(format_args!("host {name}")))?;
    json(&LegacyHost {
        state: state_of(&entry, status.as_ref()),
        enabled: entry.ha_enabled,
        last_seen: call.app.heard.last(&name),
        name,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn there_is_an_answer_within_ten_seconds_whatever_the_database_does() {
        let began = tokio::time::Instant::now();
        let stuck = std::future::pending::<Result<(), &str>>();
        let refused = in_time(stuck).await.unwrap_err();
        assert_eq!(refused.status, 503);
        assert!(refused.detail.contains("too long"), "{}", refused.detail);
        // The clock of this test goes on when everybody waits.
        assert!(began.elapsed() < Duration::from_secs(10));
        let refused = in_time(std::future::ready(Err("the disk is full")))
            .await
            .unwrap_err();
        assert_eq!(
            (refused.status, refused.detail.as_str()),
            (503, "the disk is full")
        );
        assert!(in_time(std::future::ready(Ok::<(), &str>(()))).await.is_ok());
    }
}
