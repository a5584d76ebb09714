// SPDX-License-Identifier: Apache-2.0
//! Evictions with what is left to do, server by server.

use askama::Template;
use cobaltcore_api::{Eviction, EvictionState, Migration, MigrationPhase};
use jiff::Timestamp;
use kube::ResourceExt as _;

use super::migrations::Curve;
use super::{Tone, ago, bytes};
use crate::fleet::Known;
use crate::session::Allowed;

/// All evictions, those under way first.
#[derive(Debug, Template)]
#[template(path = "evictions.html")]
pub struct Evictions {
    /// One entry each.
    pub evictions: Vec<Progress>,
    /// What the person who looks may do.
    pub allowed: Allowed,
}

/// How far one eviction got.
#[derive(Debug, Clone)]
pub struct Progress {
    /// Its name.
    pub name: String,
    /// The host to empty.
    pub host: String,
    /// Why.
    pub reason: String,
    /// The state in one word.
    pub state: String,
    /// How it is doing.
    pub tone: Tone,
    /// Servers that have left.
    pub done: i64,
    /// Servers in all.
    pub total: i64,
    /// Memory still to move.
    pub left: String,
    /// Since when.
    pub age: String,
    /// What it says about itself.
    pub message: String,
    /// Servers moving now.
    pub moving: Vec<Moving>,
    /// Servers still waiting.
    pub waiting: Vec<String>,
    /// Servers given up on, with the reason.
    pub stuck: Vec<(String, String)>,
    /// Whether it can be tried again.
    pub may_retry: bool,
}

/// A server on its way.
#[derive(Debug, Clone)]
pub struct Moving {
    /// The server.
    pub id: String,
    /// Which attempt this is.
    pub attempt: i64,
    /// How it is moved.
    pub kind: String,
    /// Moved so far, in percent, where the host reports it.
    pub percent: Option<i64>,
    /// Where to, as soon as it is known.
    pub to: String,
    /// How fast.
    pub speed: String,
    /// The curve of the speed.
    pub curve: Option<Curve>,
}

impl Progress {
    pub(crate) fn of(eviction: &Eviction, known: &Known, now: Timestamp) -> Self {
        let status = eviction.status.clone().unwrap_or_default();
        let state = status.eviction_state.clone().unwrap_or(EvictionState::Pending);
        let evicting = status
            .conditions
            .iter()
            .find(|condition| condition.type_ == "Evicting");
        let left = i64::try_from(status.outstanding_instances.len()).unwrap_or(i64::MAX);
        let done = status.migrated_instances.unwrap_or_default();
        let moving: Vec<Moving> = status
            .in_flight
            .iter()
            .map(|server| {
                Moving::of(
                    server.id.clone(),
                    server.attempt,
                    server.kind.as_ref().map(ToString::to_string),
                    known,
                )
            })
            .collect();
        let waiting = status.outstanding_instances.iter().rev();
        Self {
            name: eviction.name_any(),
            host: eviction.spec.hypervisor.clone(),
            reason: eviction.spec.reason.clone(),
            tone: match state {
                EvictionState::Succeeded => Tone::Good,
                EvictionState::Failed => Tone::Bad,
                _ if !status.non_migratable_instances.is_empty() => Tone::Warn,
                _ => Tone::Busy,
            },
            may_retry: state == EvictionState::Failed,
            state: state.to_string(),
            done,
            total: status.total_instances.unwrap_or(done + left),
            left: bytes(i128::from(status.outstanding_ram_mb) << 20),
            age: eviction
                .creation_timestamp()
                .map(|time| ago(now, time.0))
                .unwrap_or_default(),
            message: evicting
                .map(|condition| condition.message.clone())
                .unwrap_or_default(),
            waiting: waiting
                .filter(|id| moving.iter().all(|server| server.id != **id))
                .cloned()
                .collect(),
            moving,
            stuck: status
                .non_migratable_instances
                .into_iter()
                .map(|server| {
                    let why = [server.reason, server.last_error];
                    let why: Vec<String> = why.into_iter().filter(|text| !text.is_empty()).collect();
                    (
                        if server.name.is_empty() {
                            server.id
                        } else {
                            server.name
                        },
                        why.join(": "),
                    )
                })
                .collect(),
        }
    }
}

impl Moving {
    fn of(id: String, attempt: i64, kind: Option<String>, known: &Known) -> Self {
        let seen = known
            .migrations
            .iter()
            .find(|(_, kept)| kept.object.name_any() == id);
        // The object of an earlier move is kept for a while; it says nothing of this one.
        let running = seen.filter(|(_, kept)| !over(&kept.object));
        let status = running.and_then(|(_, kept)| kept.object.status.as_ref());
        let progress = status.and_then(|status| status.progress.clone());
        let percent = progress.as_ref().and_then(|progress| {
            let total = progress.data_total_bytes.filter(|total| *total > 0)?;
            Some((progress.data_processed_bytes? * 100 / total).clamp(0, 100))
        });
        let speed = progress.and_then(|progress| progress.memory_bps);
        Self {
            id,
            attempt,
            kind: kind.unwrap_or_else(|| "live".into()),
            percent,
            to: status.map_or_else(String::new, |status| {
                if status.destination_node.is_empty() {
                    status.destination.clone()
                } else {
                    status.destination_node.clone()
                }
            }),
            curve: running.and_then(|(key, _)| Curve::of(known.samples(key))),
            speed: speed
                .map(|speed| format!("{}/s", bytes(i128::from(speed))))
                .unwrap_or_default(),
        }
    }
}

fn over(migration: &Migration) -> bool {
    let phase = migration.status.as_ref().and_then(|status| status.phase.as_ref());
    phase.is_some_and(|phase| !matches!(phase, MigrationPhase::Preparing | MigrationPhase::Running))
}

impl Evictions {
    /// The evictions, those under way first, then the newest.
    pub fn of(known: &Known, allowed: Allowed, now: Timestamp) -> Self {
        let mut evictions: Vec<(bool, Option<Timestamp>, Progress)> = known
            .evictions
            .objects()
            .map(|eviction| {
                let progress = Progress::of(eviction, known, now);
                let ended = progress.state == "Succeeded" || progress.state == "Failed";
                (ended, eviction.creation_timestamp().map(|time| time.0), progress)
            })
            .collect();
        evictions.sort_by_key(|(ended, born, _)| (*ended, std::cmp::Reverse(*born)));
        Self {
            evictions: evictions.into_iter().map(|(_, _, progress)| progress).collect(),
            allowed,
        }
    }
}
