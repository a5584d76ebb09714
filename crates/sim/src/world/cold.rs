// SPDX-License-Identifier: Apache-2.0
//! Cold migration and resize: the server is off while its disk goes over, then waits on its new host until somebody
//! confirms or reverts. Resources stay held on both hosts until then.

use uuid::Uuid;

use super::host::Host;
use super::live::Order;
use super::names::HostName;
use super::placement::Consumer;
use super::schedule::Wanted;
use super::server::{Flavor, MigrationKind, MigrationStatus, TaskState, VmState, power};
use super::state::State;
use super::timers::{ColdStep, Due};

const LATER: std::time::Duration = std::time::Duration::from_secs(5);

impl State {
    /// Begins a cold migration, or a resize when there is a new size.
    pub(crate) fn begin_cold(&mut self, order: &Order, flavor: Option<Flavor>) -> Option<u64> {
        let kind = if flavor.is_some() {
            MigrationKind::Resize
        } else {
            MigrationKind::Cold
        };
        let id = self.record_move(order, kind)?;
        self.set_migration(id, MigrationStatus::PreMigrating);
        self.touch(order.server, |server| {
            server.task_state = Some(TaskState::ResizePrep);
            server.old_vm_state = Some(server.vm_state);
            if let Some(flavor) = flavor {
                server.old_flavor = Some(std::mem::replace(&mut server.flavor, flavor));
            }
        });
        let span = self.settings.schedule;
        self.after(span, Due::Cold(id, ColdStep::Schedule));
        Some(id)
    }

    pub(crate) fn cold_step(&mut self, id: u64, step: ColdStep) {
        let Some(migration) = self.migrations.get(&id).cloned() else {
            return;
        };
        let server = migration.server;
        if migration.status.is_final() || !self.servers.contains_key(&server) {
            return;
        }
        if step == ColdStep::Schedule {
            return self.cold_schedule(id, server);
        }
        let Some(dest) = migration.dest.clone() else {
            return;
        };
        let source = migration.source.clone();
        let actor = match step {
            ColdStep::Migrate | ColdStep::Copied | ColdStep::Confirm => &source,
            _ => &dest,
        };
        if !self.hosts.get(actor).is_some_and(Host::reports) {
            // A message waits for its nova-compute.
            return self.after(LATER, Due::Cold(id, step));
        }
        match step {
            ColdStep::Schedule => {}
            ColdStep::Migrate => {
                self.touch(server, |server| {
                    server.task_state = Some(TaskState::ResizeMigrating);
                });
                self.set_migration(id, MigrationStatus::Migrating);
                self.guest_shuts_down(&source, server);
                self.cold_after(id, ColdStep::Copied);
            }
            ColdStep::Copied => {
                self.touch(server, |server| {
                    server.task_state = Some(TaskState::ResizeMigrated);
                });
                self.set_migration(id, MigrationStatus::PostMigrating);
                self.cold_after(id, ColdStep::Finish);
            }
            ColdStep::Finish => {
                self.place(server, Some(dest.clone()));
                self.rebind_ports(server, &dest);
                self.touch(server, |server| server.task_state = Some(TaskState::ResizeFinish));
                self.cold_after(id, ColdStep::Done);
            }
            ColdStep::Done => self.cold_done(id, server, &dest),
            ColdStep::Confirm => self.cold_confirm(id, server, migration.uuid, &source),
            ColdStep::Revert => self.cold_revert(id, server, migration.uuid, &source, &dest),
        }
    }

    fn cold_after(&mut self, id: u64, step: ColdStep) {
        let span = self.settings.cold_step;
        self.after(span, Due::Cold(id, step));
    }

    fn cold_schedule(&mut self, id: u64, server: Uuid) {
        let asked = self
            .migrations
            .get(&id)
            .and_then(|migration| migration.asked.clone());
        let Some(record) = self.servers.get(&server) else {
            return;
        };
        let wanted = Wanted {
            only: asked.as_ref(),
            ..Wanted::of(record)
        };
        match self.choose(&wanted) {
            Ok(dest) => {
                let uuid = self
                    .migrations
                    .get(&id)
                    .map(|migration| migration.uuid)
                    .unwrap_or_default();
                self.placement.hand_over(server, uuid, "MIGRATION");
                self.hold(server, &dest, false);
                if let Some(migration) = self.migrations.get_mut(&id) {
                    migration.dest = Some(dest);
                }
                self.cold_after(id, ColdStep::Migrate);
            }
            Err(why) => {
                // A server that was on stays on; one that failed to move is not in ERROR.
                self.set_fault(server, 400, why.message());
                self.set_migration(id, MigrationStatus::Error);
                self.touch(server, |server| {
                    server.task_state = None;
                    if let Some(flavor) = server.old_flavor.take() {
                        server.flavor = flavor;
                    }
                });
            }
        }
    }

    fn cold_done(&mut self, id: u64, server: Uuid, dest: &HostName) {
        self.define(dest, server);
        let ran = self
            .servers
            .get(&server)
            .is_some_and(|server| server.old_vm_state == Some(VmState::Active));
        if ran {
            self.boot(dest, server);
        }
        let now = self.now;
        self.touch(server, |server| {
            server.vm_state = VmState::Resized;
            server.task_state = None;
            server.power_state = if ran { power::RUNNING } else { power::SHUTDOWN };
            server.launched_at = Some(now);
        });
        self.set_migration(id, MigrationStatus::Finished);
    }

    /// The move of a server that waits to be confirmed.
    pub fn unconfirmed(&self, server: Uuid) -> Option<u64> {
        self.migrations_of(server)
            .rev()
            .find(|migration| migration.status == MigrationStatus::Finished)
            .map(|migration| migration.id)
    }

    /// Begins to confirm; false when nothing waits for it.
    pub(crate) fn begin_confirm(&mut self, server: Uuid) -> bool {
        let Some(id) = self.unconfirmed(server) else {
            return false;
        };
        self.set_migration(id, MigrationStatus::Confirming);
        self.cold_after(id, ColdStep::Confirm);
        true
    }

    /// Begins to revert; false when nothing waits for it.
    pub(crate) fn begin_revert(&mut self, server: Uuid) -> bool {
        let Some(id) = self.unconfirmed(server) else {
            return false;
        };
        self.set_migration(id, MigrationStatus::Reverting);
        self.touch(server, |server| {
            server.task_state = Some(TaskState::ResizeReverting);
        });
        self.cold_after(id, ColdStep::Revert);
        true
    }

    fn cold_confirm(&mut self, id: u64, server: Uuid, uuid: Uuid, source: &HostName) {
        self.undefine(source, server);
        self.placement.allocate(uuid, Consumer::default());
        self.touch(server, |server| {
            server.vm_state = if server.power_state == power::RUNNING {
                VmState::Active
            } else {
                VmState::Stopped
            };
            server.task_state = None;
            server.old_vm_state = None;
            server.old_flavor = None;
        });
        self.set_migration(id, MigrationStatus::Confirmed);
    }

    fn cold_revert(&mut self, id: u64, server: Uuid, uuid: Uuid, source: &HostName, dest: &HostName) {
        self.destroy(dest, server);
        self.undefine(dest, server);
        self.placement.allocate(server, Consumer::default());
        self.placement.hand_over(uuid, server, "INSTANCE");
        self.place(server, Some(source.clone()));
        self.rebind_ports(server, source);
        let ran = self
            .servers
            .get(&server)
            .is_some_and(|server| server.old_vm_state == Some(VmState::Active));
        if ran {
            self.boot(source, server);
        }
        self.touch(server, |server| {
            server.vm_state = server.old_vm_state.take().unwrap_or(VmState::Active);
            server.task_state = None;
            server.power_state = if ran { power::RUNNING } else { power::SHUTDOWN };
            if let Some(flavor) = server.old_flavor.take() {
                server.flavor = flavor;
            }
        });
        self.set_migration(id, MigrationStatus::Reverted);
    }
}
