// SPDX-License-Identifier: Apache-2.0
//! Evacuation: a server of a host that is declared dead is made again elsewhere from its shared disks. Whether the old
//! host really is dead is nobody's business here; if it is not, the guest runs twice, and the world can tell.

use uuid::Uuid;

use super::host::Host;
use super::live::Order;
use super::names::HostName;
use super::schedule::Wanted;
use super::server::{MigrationKind, MigrationStatus, TaskState, VmState, power};
use super::state::State;
use super::timers::{Due, EvacuateStep};

const LATER: std::time::Duration = std::time::Duration::from_secs(5);

impl State {
    /// Begins an evacuation; the API checked that it may.
    pub(crate) fn begin_evacuate(&mut self, order: &Order, ends_stopped: bool) -> Option<u64> {
        self.live_abandon(order.server);
        let id = self.record_move(order, MigrationKind::Evacuation)?;
        if let Some(migration) = self.migrations.get_mut(&id) {
            migration.ends_stopped = ends_stopped;
            migration.dest.clone_from(&order.asked);
        }
        self.touch(order.server, |server| {
            server.task_state = Some(TaskState::Rebuilding);
        });
        let span = self.settings.schedule;
        self.after(span, Due::Evacuate(id, EvacuateStep::Schedule));
        Some(id)
    }

    pub(crate) fn evacuate_step(&mut self, id: u64, step: EvacuateStep) {
        let Some(migration) = self.migrations.get(&id) else {
            return;
        };
        let server = migration.server;
        if migration.status.is_final() || !self.servers.contains_key(&server) {
            return;
        }
        if step == EvacuateStep::Schedule {
            return self.evacuate_schedule(id, server);
        }
        let Some(dest) = migration.dest.clone() else {
            return;
        };
        if !self.drivable(&dest) || !self.hosts.get(&dest).is_some_and(Host::reports) {
            // The message waits for the destination, however long that takes.
            return self.after(LATER, Due::Evacuate(id, step));
        }
        let span = self.settings.evacuate / 3;
        match step {
            EvacuateStep::Schedule => {}
            EvacuateStep::Volumes => {
                self.set_migration(id, MigrationStatus::PreMigrating);
                self.touch(server, |server| {
                    server.task_state = Some(TaskState::RebuildBlockDeviceMapping);
                });
                self.after(span, Due::Evacuate(id, EvacuateStep::Spawn));
            }
            EvacuateStep::Spawn => {
                if self.hosts.get(&dest).is_some_and(|host| host.disk_full) {
                    return self.evacuate_rejected(id, server);
                }
                self.touch(server, |server| {
                    server.task_state = Some(TaskState::RebuildSpawning);
                });
                self.after(span, Due::Evacuate(id, EvacuateStep::Done));
            }
            EvacuateStep::Done => self.evacuate_done(id, server, &dest),
        }
    }

    fn evacuate_schedule(&mut self, id: u64, server: Uuid) {
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
                self.hold(server, &dest, true);
                if let Some(migration) = self.migrations.get_mut(&id) {
                    migration.dest = Some(dest);
                }
                let span = self.settings.evacuate / 3;
                self.after(span, Due::Evacuate(id, EvacuateStep::Volumes));
            }
            Err(why) => {
                self.set_migration(id, MigrationStatus::Error);
                self.set_fault(server, 500, why.message());
                self.set_states(server, VmState::Error, None);
            }
        }
    }

    /// The destination could not claim it: nothing changed, somebody may try again.
    fn evacuate_rejected(&mut self, id: u64, server: Uuid) {
        let dest = self
            .migrations
            .get(&id)
            .and_then(|migration| migration.dest.clone());
        let node = dest
            .and_then(|dest| self.hosts.get(&dest))
            .map(|host| host.node_uuid);
        if let Some(node) = node {
            self.placement.release(server, node);
        }
        self.set_migration(id, MigrationStatus::Failed);
        self.touch(server, |server| server.task_state = None);
    }

    fn evacuate_done(&mut self, id: u64, server: Uuid, dest: &HostName) {
        let Some(record) = self.servers.get(&server) else {
            return;
        };
        let stopped = self
            .migrations
            .get(&id)
            .is_some_and(|migration| migration.ends_stopped);
        let runs = record.vm_state != VmState::Stopped && !stopped;
        self.place(server, Some(dest.clone()));
        self.rebind_ports(server, dest);
        self.define(dest, server);
        if runs {
            self.boot(dest, server);
        }
        let now = self.now;
        self.touch(server, |server| {
            server.vm_state = if runs { VmState::Active } else { VmState::Stopped };
            server.task_state = None;
            server.power_state = if runs { power::RUNNING } else { power::SHUTDOWN };
            server.launched_at = Some(now);
            server.fault = None;
        });
        self.set_migration(id, MigrationStatus::Done);
    }

    /// What a starting nova-compute does with servers that were evacuated while it was away.
    pub(crate) fn clean_evacuated(&mut self, host: &HostName) {
        let mine: Vec<(u64, Uuid, MigrationStatus)> = self
            .open_migrations_from(host.as_str())
            .filter(|migration| migration.kind == MigrationKind::Evacuation)
            .map(|migration| (migration.id, migration.server, migration.status))
            .collect();
        let node = self
            .hosts
            .get(host)
            .map(|host| host.node_uuid)
            .unwrap_or_default();
        for (id, server, status) in mine {
            if status != MigrationStatus::Done {
                continue;
            }
            let returned = self
                .servers
                .get(&server)
                .is_some_and(|server| server.host.as_ref() == Some(host));
            if !returned {
                self.destroy(host, server);
                self.undefine(host, server);
                self.placement.release(server, node);
            }
            self.set_migration(id, MigrationStatus::Completed);
        }
    }
}
