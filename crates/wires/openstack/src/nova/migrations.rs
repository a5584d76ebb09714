// SPDX-License-Identifier: Apache-2.0
//! Migration records: what moves, moved, or failed to, and the end of one that is under way.

use jiff::Timestamp;
use serde::Deserialize;

use super::Nova;
use crate::call::{Call, Request, Service};
use crate::error::Result;
use crate::ids::{MigrationId, ServerId, states};
use crate::pages::Marked;
use crate::session::Removal;
use crate::version::Microversion;
use crate::when;

static LIST: Call = Call::get(Service::Nova, "list migrations", "/os-migrations")
    .versions(Microversion::new(2, 59), Microversion::new(2, 80));
static OF_SERVER: Call = Call::get(
    Service::Nova,
    "list a server's migrations under way",
    "/servers/{server}/migrations",
);
static SHOW: Call = Call::get(
    Service::Nova,
    "show a server's migration",
    "/servers/{server}/migrations/{migration}",
);
static ABORT: Call = Call::delete(
    Service::Nova,
    "abort a live migration",
    "/servers/{server}/migrations/{migration}",
)
.versions(Microversion::new(2, 65), Microversion::new(2, 90));

states! {
    /// How far a migration is.
    MigrationStatus {
        /// It waits for its turn.
        Queued = "queued",
        /// It was accepted.
        Accepted = "accepted",
        /// It is prepared.
        Preparing = "preparing",
        /// A cold one is prepared.
        PreMigrating = "pre-migrating",
        /// It runs.
        Running = "running",
        /// A cold one runs.
        Migrating = "migrating",
        /// It is being finished.
        PostMigrating = "post-migrating",
        /// A live one is over.
        Completed = "completed",
        /// A cold one waits for its confirmation.
        Finished = "finished",
        /// A cold one is being confirmed.
        Confirming = "confirming",
        /// A cold one was confirmed.
        Confirmed = "confirmed",
        /// A cold one is being taken back.
        Reverting = "reverting",
        /// A cold one was taken back.
        Reverted = "reverted",
        /// An evacuation is over, its source not yet cleaned.
        Done = "done",
        /// It was cancelled.
        Cancelled = "cancelled",
        /// It failed.
        Error = "error",
        /// It failed before it really began.
        Failed = "failed",
    }
}

impl MigrationStatus {
    /// Whether nothing more will come. A status that is not known counts as not final.
    pub const fn is_final(&self) -> bool {
        matches!(
            self,
            Self::Completed
                | Self::Confirmed
                | Self::Reverted
                | Self::Done
                | Self::Cancelled
                | Self::Error
                | Self::Failed
        )
    }

    /// Whether Nova lets a live migration be aborted in it (2.65 also while it waits).
    pub const fn is_abortable(&self) -> bool {
        matches!(self, Self::Queued | Self::Preparing | Self::Running)
    }
}

states! {
    /// How something moves.
    MigrationType {
        /// While it runs.
        Live = "live-migration",
        /// While it is off.
        Cold = "migration",
        /// By another size.
        Resize = "resize",
        /// Away from a dead host.
        Evacuation = "evacuation",
    }
}

/// A migration record.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Migration {
    /// Its number, by which it is aborted.
    pub id: MigrationId,
    /// Its UUID.
    pub uuid: String,
    /// What moves.
    #[serde(rename = "instance_uuid")]
    pub server: ServerId,
    /// How.
    pub migration_type: Option<MigrationType>,
    /// How far.
    pub status: MigrationStatus,
    /// From which host.
    pub source_compute: Option<String>,
    /// To which host, once it is known.
    pub dest_compute: Option<String>,
    /// Since when.
    #[serde(default, deserialize_with = "when::optional")]
    pub created_at: Option<Timestamp>,
    /// Until when.
    #[serde(default, deserialize_with = "when::optional")]
    pub updated_at: Option<Timestamp>,
}

/// A live migration under way, with its figures.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct ServerMigration {
    /// Its number.
    pub id: MigrationId,
    /// Its UUID.
    #[serde(default)]
    pub uuid: Option<String>,
    /// What moves.
    #[serde(rename = "server_uuid")]
    pub server: ServerId,
    /// How far.
    pub status: MigrationStatus,
    /// From which host.
    pub source_compute: Option<String>,
    /// To which host.
    pub dest_compute: Option<String>,
    /// Bytes of memory in all; Nova fills it in while the migration runs.
    #[serde(default)]
    pub memory_total_bytes: Option<u64>,
    /// Bytes of memory that were sent.
    #[serde(default)]
    pub memory_processed_bytes: Option<u64>,
    /// Bytes of memory still to send.
    #[serde(default)]
    pub memory_remaining_bytes: Option<u64>,
    /// Bytes of disk in all.
    #[serde(default)]
    pub disk_total_bytes: Option<u64>,
    /// Bytes of disk still to send.
    #[serde(default)]
    pub disk_remaining_bytes: Option<u64>,
    /// Since when.
    #[serde(default, deserialize_with = "when::optional")]
    pub created_at: Option<Timestamp>,
    /// When the figures are from.
    #[serde(default, deserialize_with = "when::optional")]
    pub updated_at: Option<Timestamp>,
}

/// Which migrations to list.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MigrationFilter {
    /// From or to this host.
    pub host: Option<String>,
    /// From this host.
    pub source: Option<String>,
    /// Of this server.
    pub server: Option<ServerId>,
    /// Of this type.
    pub migration_type: Option<MigrationType>,
    /// With this status.
    pub status: Option<MigrationStatus>,
    /// That changed since.
    pub changes_since: Option<Timestamp>,
}

impl Marked for Migration {
    fn marker(&self) -> &str {
        &self.uuid
    }
}

impl Nova {
    /// Migration records, newest first.
    pub async fn migrations(&self, filter: &MigrationFilter) -> Result<Vec<Migration>> {
        let request = Request::new(&LIST, &[])
            .maybe("host", filter.host.clone())
            .maybe("source_compute", filter.source.clone())
            .maybe("instance_uuid", filter.server.as_ref().map(ServerId::as_str))
            .maybe(
                "migration_type",
                filter.migration_type.as_ref().map(MigrationType::as_str),
            )
            .maybe("status", filter.status.as_ref().map(MigrationStatus::as_str))
            // changes-since came with 2.59
            .maybe("changes-since", filter.changes_since.map(when::write));
        self.session.list(request, "migrations").await
    }

    /// A server's live migrations that are under way.
    pub async fn server_migrations(&self, id: &ServerId) -> Result<Vec<ServerMigration>> {
        let request = Request::new(&OF_SERVER, &[id.as_str()]);
        self.session.member(request, "migrations").await
    }

    /// One live migration that is under way; one that is over is not found.
    pub async fn server_migration(&self, id: &ServerId, migration: MigrationId) -> Result<ServerMigration> {
        let request = Request::new(&SHOW, &[id.as_str(), &migration.to_string()]);
        self.session.member(request, "migration").await
    }

    /// Asks for the end of a live migration; the server stays where it was. For one that is over Nova
    /// says "gone", or a conflict when nothing moves the server any more.
    pub async fn abort_migration(&self, id: &ServerId, migration: MigrationId) -> Result<Removal> {
        let request = Request::new(&ABORT, &[id.as_str(), &migration.to_string()]);
        self.session.remove(request).await
    }
}
