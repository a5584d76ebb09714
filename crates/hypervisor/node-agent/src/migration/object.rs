// SPDX-License-Identifier: Apache-2.0
//! One Migration object as one side of the migration writes it. Creating is idempotent, each side owns its fields under
//! its own field manager, and a definition that cannot be created (the running system's own) is noticed and not
//! hammered.

use std::time::Duration;

use cobaltcore_api::field_managers::FieldManager;
use cobaltcore_api::reasons::EventReason;
use cobaltcore_api::{Key, Migration, MigrationPhase, MigrationStatus, labels};
use cobaltcore_kit::events::Happening;
use cobaltcore_kit::status::{Intent, StatusWriter, Written};
use kube::Api;
use kube::api::{Patch, PatchParams};
use tokio::time::{Instant, timeout};
use uuid::Uuid;

use crate::context::Context;
use crate::error::{Error, in_time};

const CALL_TIME: Duration = Duration::from_secs(10);
/// After the API said that such objects cannot exist.
const IMPOSSIBLE_PAUSE: Duration = Duration::from_mins(5);
const LONGEST_LABEL: usize = 63;

/// Which side of a migration writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Source,
    Destination,
}

impl Side {
    fn manager(self) -> FieldManager {
        match self {
            Self::Source => FieldManager::NodeAgentSource,
            Self::Destination => FieldManager::NodeAgentDestination,
        }
    }

    fn label(self) -> Key {
        match self {
            Self::Source => labels::SOURCE_NODE,
            Self::Destination => labels::DESTINATION_NODE,
        }
    }
}

/// A Migration object and one of its writers.
pub(super) struct Object {
    context: Context,
    api: Api<Migration>,
    name: String,
    side: Side,
    writer: StatusWriter,
    current: Option<Migration>,
    impossible_until: Option<Instant>,
}

impl Object {
    pub(super) fn new(context: &Context, server: Uuid, side: Side) -> Self {
        Self {
            context: context.clone(),
            api: Api::namespaced(context.client.clone(), &context.config.namespace),
            name: server.to_string(),
            side,
            writer: StatusWriter::new(context.client.clone(), side.manager().as_str()),
            current: None,
            impossible_until: None,
        }
    }

    /// The object as it is, if there is one.
    pub(super) async fn read(&mut self) -> Result<Option<MigrationStatus>, Error> {
        let what = format!("reading Migration {}", self.name);
        let found = in_time(&what, CALL_TIME, self.api.get_opt(&self.name)).await?;
        let status = found
            .as_ref()
            .map(|object| object.status.clone().unwrap_or_default());
        Ok(status)
    }

    /// Writes what this side has to say, creating the object if need be.
    pub(super) async fn write(&mut self, status: &MigrationStatus) -> Result<(), Error> {
        if self.impossible_until.is_some_and(|until| until > Instant::now()) {
            return Ok(());
        }
        let result = self.try_write(status).await;
        if let Err(error) = &result {
            self.context.metrics.migration_write_errors.inc();
            if is_code(error, 404) {
                // Somebody deleted it; the next write makes it again.
                self.current = None;
            } else if cannot_exist(error) {
                self.impossible_until = Some(Instant::now() + IMPOSSIBLE_PAUSE);
                tracing::error!(server = self.name, %error,
                    "the installed Migration definition demands a status at creation, so no object can be created; \
                     install the definitions of this version (cobaltcore crds)");
                let note = "Migration objects cannot be created with the installed definition; run `cobaltcore crds` and apply it";
                self.context.tell(Happening::warning(
                    EventReason::MigrationFailed,
                    "Recording",
                    note,
                ));
                return Ok(());
            }
        }
        result
    }

    async fn try_write(&mut self, status: &MigrationStatus) -> Result<(), Error> {
        let current = match self.current.take() {
            Some(current) => current,
            None => self.create().await?,
        };
        let intent = Intent::new().fields(status)?;
        let written = match timeout(CALL_TIME, self.writer.write(&current, &intent)).await {
            Ok(written) => written?,
            Err(_) => {
                return Err(Error::Deadline {
                    what: format!("writing the status of Migration {}", self.name),
                    limit: CALL_TIME,
                });
            }
        };
        self.current = Some(match written {
            Written::Unchanged => current,
            Written::Applied(new) => *new,
        });
        Ok(())
    }

    /// Makes sure that the object exists and carries this side's label.
    async fn create(&self) -> Result<Migration, Error> {
        let node = label_value(self.context.config.host.as_str());
        let apply = serde_json::json!({
            "apiVersion": "kvm.cloud.sap/v1alpha1",
            "kind": "Migration",
            "metadata": {"name": self.name, "labels": {self.side.label().as_str(): node}},
            "spec": {},
        });
        let params = PatchParams::apply(self.side.manager().as_str()).force();
        let what = format!("creating Migration {}", self.name);
        in_time(
            &what,
            CALL_TIME,
            self.api.patch(&self.name, &params, &Patch::Apply(&apply)),
        )
        .await
    }

    /// Takes back what this host said as the destination of an earlier migration, now that it is the source.
    pub(super) async fn forget_arrival(&self) -> Result<(), Error> {
        let what = format!("reading Migration {}", self.name);
        let Some(current) = in_time(&what, CALL_TIME, self.api.get_opt(&self.name)).await? else {
            return Ok(());
        };
        let manager = Side::Destination.manager();
        let writer = StatusWriter::new(self.context.client.clone(), manager.as_str());
        writer.write(&current, &Intent::new()).await?;
        Ok(())
    }

    /// Records an event about the object.
    pub(super) fn tell(&self, happening: Happening) {
        if let Some(current) = &self.current {
            self.context.recorder.record(current, happening);
        }
    }
}

/// Migrations that left this host and did not end, by server.
pub(super) async fn unfinished(context: &Context) -> Result<Vec<Uuid>, Error> {
    let api: Api<Migration> = Api::namespaced(context.client.clone(), &context.config.namespace);
    let own = label_value(context.config.host.as_str());
    let params = kube::api::ListParams::default().labels(&format!("{}={own}", labels::SOURCE_NODE));
    let all = in_time("listing migrations of this host", CALL_TIME, api.list(&params)).await?;
    let open = all.items.into_iter().filter(|object| {
        let status = object.status.as_ref();
        let own = status.is_some_and(|status| status.source_node == context.config.host.as_str());
        own && !status.is_some_and(is_final)
    });
    Ok(open
        .filter_map(|object| object.metadata.name?.parse().ok())
        .collect())
}

/// Whether a migration has ended.
pub(super) fn is_final(status: &MigrationStatus) -> bool {
    matches!(
        status.phase,
        Some(MigrationPhase::Completed | MigrationPhase::Failed | MigrationPhase::Cancelled)
    )
}

fn answer(error: &Error) -> Option<&kube::core::Status> {
    let (Error::Kube { source, .. } | Error::Kit(cobaltcore_kit::Error::Kube { source, .. })) = error else {
        return None;
    };
    match source.as_ref() {
        kube::Error::Api(status) => Some(status),
        _ => None,
    }
}

fn is_code(error: &Error, code: u16) -> bool {
    answer(error).is_some_and(|status| status.code == code)
}

/// The running system's definition demands a status that a status subresource does not let in.
fn cannot_exist(error: &Error) -> bool {
    is_code(error, 422)
        && answer(error).is_some_and(|status| status.message.contains("status: Required value"))
}

/// A node name as a label value: cut, with a digest of the whole, where it is too long.
fn label_value(name: &str) -> String {
    if name.len() <= LONGEST_LABEL {
        return name.to_owned();
    }
    let digest = name.bytes().fold(0x811c_9dc5_u32, |hash, byte| {
        (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
    });
    let head = name.get(..LONGEST_LABEL - 9).unwrap_or_default();
    format!("{}-{digest:08x}", head.trim_end_matches(['.', '-']))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_names_become_valid_labels_that_differ() {
        assert_eq!(label_value("node1"), "node1");
        let (one, two) = (format!("{}.a", "x".repeat(100)), format!("{}.b", "x".repeat(100)));
        assert!(label_value(&one).len() <= LONGEST_LABEL);
        assert_ne!(label_value(&one), label_value(&two));
    }
}
