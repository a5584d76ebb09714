// SPDX-License-Identifier: Apache-2.0
//! Live migration: chosen, queued, prepared, run in rounds, switched over, cleaned up, or given up on the way. Nova's
//! record, Placement's allocations, libvirt's job and the events of both hosts tell the same story at every moment.

use std::time::Duration;

use cobaltcore_libvirt::EventBody;
use uuid::Uuid;

use super::domain::{Domain, Finished, Job, Paused, Phase, Running, ShutOff};
use super::fault::MigrationTrouble;
use super::host::{Host, Power};
use super::names::HostName;
use super::placement::Consumer;
use super::schedule::Wanted;
use super::server::{Migration, MigrationKind, MigrationStatus, TaskState, power};
use super::state::State;
use super::timers::{Due, LiveStep};

const LATER: Duration = Duration::from_secs(5);
/// How long an abort takes.
const ABORT: Duration = Duration::from_millis(300);

/// Who asked for a move, and where to.
#[derive(Debug, Clone)]
pub(crate) struct Order {
    pub(crate) server: Uuid,
    pub(crate) asked: Option<HostName>,
    pub(crate) user: Uuid,
    pub(crate) project: Uuid,
}

impl State {
    /// Makes the record of a move.
    pub(crate) fn record_move(&mut self, order: &Order, kind: MigrationKind) -> Option<u64> {
        let source = self.servers.get(&order.server)?.host.clone()?;
        let migration = Migration {
            id: self.number(),
            uuid: self.fresh(),
            server: order.server,
            kind,
            status: MigrationStatus::Accepted,
            source,
            dest: None,
            asked: order.asked.clone(),
            created: self.now,
            updated: self.now,
            user: order.user,
            project: order.project,
            memory: None,
            ends_stopped: false,
            tries: 0,
        };
        let id = migration.id;
        self.add_migration(migration);
        Some(id)
    }

    /// Begins a live migration; the API checked that it may.
    pub(crate) fn begin_live(&mut self, order: &Order) -> Option<u64> {
        let id = self.record_move(order, MigrationKind::Live)?;
        self.touch(order.server, |server| {
            server.task_state = Some(TaskState::Migrating);
        });
        let span = self.settings.schedule;
        self.after(span, Due::Live(id, LiveStep::Schedule));
        Some(id)
    }

    pub(crate) fn live_step(&mut self, id: u64, step: LiveStep) {
        let Some(migration) = self.migrations.get(&id) else {
            return;
        };
        if migration.status.is_final() || !self.servers.contains_key(&migration.server) {
            return;
        }
        let (server, source, dest) = (migration.server, migration.source.clone(), migration.dest.clone());
        match step {
            LiveStep::Schedule => return self.live_schedule(id, server, &source),
            LiveStep::Abort => return self.live_undo(id, MigrationStatus::Cancelled),
            LiveStep::Rollback => return self.live_undo(id, MigrationStatus::Failed),
            _ => {}
        }
        let Some(dest) = dest else { return };
        match self.live_health(&source, &dest) {
            // Nobody is left to go on; Nova's record stays as it is until the source's nova-compute returns.
            Health::SourceLost => {}
            Health::PathLost => self.live_undo(id, MigrationStatus::Failed),
            Health::Good => match step {
                LiveStep::Prepare => self.live_prepare(id, server, &source, &dest),
                LiveStep::Start => self.live_start(id, server, &source, &dest),
                LiveStep::Round(round) => self.live_round(id, server, &source, round),
                LiveStep::Switch => self.live_switch(id, server, &source, &dest),
                LiveStep::Finish => self.live_finish(id, server, &source, &dest),
                LiveStep::Complete => self.live_complete(id, server, &source, &dest),
                LiveStep::Schedule | LiveStep::Abort | LiveStep::Rollback => {}
            },
        }
    }

    fn live_health(&self, source: &HostName, dest: &HostName) -> Health {
        let on = |name: &HostName| self.hosts.get(name).is_some_and(|host| host.power == Power::On);
        let reached = |name: &HostName| self.hosts.get(name).is_some_and(Host::libvirt_answers);
        if !on(source) {
            Health::SourceLost
        } else if reached(source) && reached(dest) {
            Health::Good
        } else {
            Health::PathLost
        }
    }

    fn live_schedule(&mut self, id: u64, server: Uuid, source: &HostName) {
        let trouble = self
            .faults
            .migration(server, source, &[MigrationTrouble::NoValidHost]);
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
        let chosen = match trouble {
            Some(_) => Err(super::schedule::NoHost::Filters),
            None => self.choose(&wanted),
        };
        match chosen {
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
                self.set_migration(id, MigrationStatus::Queued);
                self.live_next(source);
            }
            Err(why) => {
                self.set_fault(server, 400, why.message());
                self.set_migration(id, MigrationStatus::Error);
                self.touch(server, |server| server.task_state = None);
            }
        }
    }

    /// Starts as many queued migrations of a host as it runs at once, oldest first.
    fn live_next(&mut self, source: &HostName) {
        use MigrationStatus as S;
        let Some(most) = self.hosts.get(source).map(|host| host.max_live) else {
            return;
        };
        let live = |migration: &&Migration| migration.kind == MigrationKind::Live;
        let busy = self
            .open_migrations_from(source.as_str())
            .filter(live)
            .filter(|migration| matches!(migration.status, S::Preparing | S::Running | S::PostMigrating))
            .count();
        let ready: Vec<u64> = self
            .open_migrations_from(source.as_str())
            .filter(live)
            .filter(|migration| migration.status == S::Queued)
            .map(|migration| migration.id)
            .take(most.saturating_sub(busy))
            .collect();
        for id in ready {
            self.set_migration(id, S::Preparing);
            let span = self.settings.prepare;
            self.after(span, Due::Live(id, LiveStep::Prepare));
        }
    }

    fn live_prepare(&mut self, id: u64, server: Uuid, source: &HostName, dest: &HostName) {
        let trouble = self
            .faults
            .migration(server, source, &[MigrationTrouble::PreCheck]);
        let full = self.hosts.get(dest).is_some_and(|host| host.disk_full);
        if trouble.is_some() || full {
            return self.live_undo(id, MigrationStatus::Error);
        }
        let stalled = self
            .faults
            .migration(server, source, &[MigrationTrouble::Stalls])
            .is_some();
        let max_downtime_ms = self.settings.max_downtime_ms;
        let dirty_rate = self.servers.get(&server).map_or(0, |server| server.dirty_rate);
        let bandwidth = self.hosts.get(source).map_or(1, |host| host.bandwidth);
        let paused = self
            .domain(source.as_str(), server)
            .is_some_and(|domain| !domain.executes());
        self.with_domain(source, server, |domain, now| {
            let total = domain.memory_kib * 1024;
            domain.finished = None;
            domain.job = Some(Job {
                started: now,
                transfer_started: None,
                iteration: 0,
                round_started: now,
                round_bytes: 0,
                processed: 0,
                total,
                bandwidth,
                dirty_rate: if paused { 0 } else { dirty_rate },
                max_downtime_ms,
                operation: 5,
                stalled,
            });
            Vec::new()
        });
        self.arrive(dest, server);
        let span = self.settings.prepare;
        self.after(span, Due::Live(id, LiveStep::Start));
    }

    /// The destination's libvirt has a paused domain that waits for memory.
    fn arrive(&mut self, dest: &HostName, server: Uuid) {
        let now = self.now;
        let (Some(record), Some(place)) = (self.servers.get(&server), self.hosts.get_mut(dest)) else {
            return;
        };
        let mut domain = Domain::of(record, None, now);
        domain.id = place.next_domain_id;
        place.next_domain_id += 1;
        domain.enter(Phase::Paused(Paused::Migration), now);
        let reference = domain.reference();
        place.domains.insert(server, domain);
        self.announce(dest, reference, EventBody::Lifecycle { event: 2, detail: 1 });
    }

    fn live_start(&mut self, id: u64, server: Uuid, source: &HostName, _: &HostName) {
        self.set_migration(id, MigrationStatus::Running);
        let mut first = Duration::ZERO;
        let mut stalled = false;
        let found = self.with_domain(source, server, |domain, now| {
            let reference = domain.reference();
            let Some(job) = &mut domain.job else {
                return Vec::new();
            };
            job.transfer_started = Some(now);
            job.iteration = 1;
            job.round_started = now;
            // Guests never use all of their memory; zero pages cost nothing.
            job.round_bytes = job.total / 2;
            first = job.round();
            stalled = job.stalled;
            vec![(reference, EventBody::MigrationIteration { iteration: 1 })]
        });
        if !found {
            return self.live_undo(id, MigrationStatus::Failed);
        }
        self.live_progress(id, server, source);
        if !stalled {
            self.at(self.now + first, Due::Live(id, LiveStep::Round(1)));
        }
    }

    /// Nova's record shows what libvirt's job does.
    fn live_progress(&mut self, id: u64, server: Uuid, source: &HostName) {
        let now = self.now;
        let job = self
            .domain(source.as_str(), server)
            .and_then(|domain| domain.job.clone());
        if let (Some(job), Some(migration)) = (job, self.migrations.get_mut(&id)) {
            let processed = job.processed + job.moved(now);
            migration.memory = Some((job.total, processed, job.remaining(now)));
            migration.updated = now;
        }
    }

    fn live_round(&mut self, id: u64, server: Uuid, source: &HostName, round: u64) {
        let job = self
            .domain(source.as_str(), server)
            .and_then(|domain| domain.job.clone());
        let Some(job) = job.filter(|job| job.iteration == round) else {
            return;
        };
        if self
            .faults
            .migration(server, source, &[MigrationTrouble::Fails])
            .is_some()
        {
            return self.live_undo(id, MigrationStatus::Failed);
        }
        if job.converges() {
            self.pause(source, server, Paused::Migration);
            self.live_progress(id, server, source);
            let pause = Duration::from_millis(job.downtime_ms());
            return self.at(self.now + pause, Due::Live(id, LiveStep::Switch));
        }
        let mut next = Duration::ZERO;
        self.with_domain(source, server, |domain, now| {
            let reference = domain.reference();
            let Some(job) = &mut domain.job else {
                return Vec::new();
            };
            let bytes = job.next_round_bytes();
            job.processed += job.round_bytes;
            job.iteration += 1;
            job.round_started = now;
            job.round_bytes = bytes;
            next = job.round();
            let iteration = i32::try_from(job.iteration).unwrap_or(i32::MAX);
            vec![(reference, EventBody::MigrationIteration { iteration })]
        });
        self.live_progress(id, server, source);
        // A round that carries almost nothing still takes a moment.
        let next = next.max(Duration::from_millis(50));
        self.at(self.now + next, Due::Live(id, LiveStep::Round(round + 1)));
    }

    fn live_switch(&mut self, id: u64, server: Uuid, source: &HostName, dest: &HostName) {
        let was_paused = self
            .servers
            .get(&server)
            .is_some_and(|server| server.power_state == power::PAUSED);
        let job = self
            .domain(source.as_str(), server)
            .and_then(|domain| domain.job.clone());
        let now = self.now;
        if let (Some(job), Some(domain)) = (job, self.domain_mut(dest, server)) {
            let job = Job { operation: 4, ..job };
            domain.finished = Some(Finished { job, at: now });
        }
        self.announce_defined(dest, server);
        if was_paused {
            if let Some(domain) = self.domain_mut(dest, server) {
                domain.enter(Phase::Paused(Paused::User), now);
            }
        } else {
            self.unpause(dest, server, Running::Migrated);
        }
        // From here on the guest runs on the destination; the source only cleans up.
        self.with_domain(source, server, |domain, now| {
            if let Some(job) = domain.job.take() {
                domain.finished = Some(Finished { job, at: now });
            }
            domain.enter(Phase::ShutOff(ShutOff::Migrated), now);
            Vec::new()
        });
        self.set_migration(id, MigrationStatus::PostMigrating);
        self.after(Duration::from_millis(200), Due::Live(id, LiveStep::Finish));
    }

    fn announce_defined(&mut self, host: &HostName, id: Uuid) {
        if let Some(reference) = self.domain(host.as_str(), id).map(Domain::reference) {
            self.announce(host, reference, EventBody::Lifecycle { event: 0, detail: 0 });
        }
    }

    fn live_finish(&mut self, id: u64, server: Uuid, source: &HostName, _: &HostName) {
        self.with_domain(source, server, |domain, _| {
            let mut reference = domain.reference();
            reference.id = -1;
            let params = domain
                .finished
                .as_ref()
                .map(crate::hosts::stats::finished)
                .unwrap_or_default();
            vec![
                (reference.clone(), EventBody::Lifecycle { event: 5, detail: 3 }),
                (reference, EventBody::JobCompleted { params }),
            ]
        });
        let span = self.settings.finish;
        self.after(span, Due::Live(id, LiveStep::Complete));
    }

    fn live_complete(&mut self, id: u64, server: Uuid, source: &HostName, dest: &HostName) {
        if !self.hosts.get(source).is_some_and(Host::reports) {
            return self.after(LATER, Due::Live(id, LiveStep::Complete));
        }
        self.undefine(source, server);
        let uuid = self
            .migrations
            .get(&id)
            .map(|migration| migration.uuid)
            .unwrap_or_default();
        self.placement.allocate(uuid, Consumer::default());
        self.place(server, Some(dest.clone()));
        self.rebind_ports(server, dest);
        self.touch(server, |server| server.task_state = None);
        if let Some(migration) = self.migrations.get_mut(&id)
            && let Some((total, _, _)) = migration.memory
        {
            migration.memory = Some((total, total, 0));
        }
        self.set_migration(id, MigrationStatus::Completed);
        self.live_next(source);
    }

    pub(crate) fn rebind_ports(&mut self, server: Uuid, host: &HostName) {
        let ports = self.servers.get(&server).map(|server| server.ports.clone());
        for port in ports.unwrap_or_default() {
            if let Some(port) = self.ports.get_mut(&port) {
                port.host = Some(host.clone());
            }
        }
    }

    /// Puts everything back to where it was.
    fn live_undo(&mut self, id: u64, end: MigrationStatus) {
        let Some(migration) = self.migrations.get(&id).cloned() else {
            return;
        };
        if self.switched(&migration) {
            // Too late: the guest runs on the destination. Nova's source cleans up when it can be reached.
            return self.after(LATER, Due::Live(id, LiveStep::Complete));
        }
        self.live_drop(&migration);
        if !self.hosts.get(&migration.source).is_some_and(Host::reports) {
            // libvirt gave up; nova-compute cannot tell anybody yet.
            return self.after(LATER, Due::Live(id, LiveStep::Rollback));
        }
        self.live_forget(&migration, end);
        self.live_next(&migration.source);
    }

    /// Whether the guest runs on the destination already.
    fn switched(&self, migration: &Migration) -> bool {
        migration.status == MigrationStatus::PostMigrating
    }

    /// Both libvirts give a migration up; the guest goes on at its source, if that has power.
    fn live_drop(&mut self, migration: &Migration) {
        if let Some(dest) = &migration.dest {
            self.leave(dest, migration.server);
        }
        self.with_domain(&migration.source, migration.server, |domain, now| {
            domain.job = None;
            if domain.phase == Phase::Paused(Paused::Migration) {
                domain.enter(Phase::Running(Running::MigrationCanceled), now);
                return vec![(domain.reference(), EventBody::Lifecycle { event: 4, detail: 1 })];
            }
            Vec::new()
        });
    }

    /// What a starting nova-compute does with migrations it left behind.
    pub(crate) fn clean_migrations(&mut self, source: &HostName) {
        let stale: Vec<Migration> = self
            .open_migrations_from(source.as_str())
            .filter(|migration| migration.kind == MigrationKind::Live)
            .cloned()
            .collect();
        for migration in stale {
            if let (Some(dest), true) = (&migration.dest, self.switched(&migration)) {
                self.live_complete(migration.id, migration.server, source, dest);
            } else {
                self.live_drop(&migration);
                self.live_forget(&migration, MigrationStatus::Error);
            }
        }
    }

    /// A server that is evacuated is not migrated any more, whatever its records say. If it had switched over, it runs
    /// where nobody looks for it.
    pub(crate) fn live_abandon(&mut self, server: Uuid) {
        let open: Vec<Migration> = self
            .migrations_of(server)
            .filter(|migration| migration.kind == MigrationKind::Live && migration.is_open())
            .cloned()
            .collect();
        for migration in open {
            if !self.switched(&migration) {
                self.live_drop(&migration);
            }
            self.live_forget(&migration, MigrationStatus::Error);
        }
    }

    /// The destination drops what had arrived.
    fn leave(&mut self, dest: &HostName, server: Uuid) {
        let waiting = self
            .domain(dest.as_str(), server)
            .is_some_and(|domain| domain.phase == Phase::Paused(Paused::Migration));
        if !waiting {
            return;
        }
        self.with_domain(dest, server, |domain, now| {
            domain.enter(Phase::ShutOff(ShutOff::Failed), now);
            vec![(domain.reference(), EventBody::Lifecycle { event: 5, detail: 5 })]
        });
        if let Some(place) = self.hosts.get_mut(dest) {
            place.domains.remove(&server);
        }
    }

    /// Nova's and Placement's part of giving up.
    pub(crate) fn live_forget(&mut self, migration: &Migration, end: MigrationStatus) {
        let server = migration.server;
        if migration.dest.is_some() {
            self.placement.allocate(server, Consumer::default());
            self.placement.hand_over(migration.uuid, server, "INSTANCE");
        }
        self.touch(server, |server| server.task_state = None);
        if end != MigrationStatus::Cancelled {
            self.set_fault(
                server,
                500,
                "Live Migration failure: operation failed: migration of domain failed",
            );
        }
        self.set_migration(migration.id, end);
    }

    /// Stops a migration that has not switched over.
    pub(crate) fn live_abort(&mut self, id: u64) {
        self.after(ABORT, Due::Live(id, LiveStep::Abort));
    }

    /// Switches over now, whatever is left.
    pub(crate) fn live_force(&mut self, id: u64) {
        let Some(migration) = self.migrations.get(&id) else {
            return;
        };
        let (server, source) = (migration.server, migration.source.clone());
        self.pause(&source, server, Paused::Migration);
        if let Some(job) = self
            .domain_mut(&source, server)
            .and_then(|domain| domain.job.as_mut())
        {
            // Rounds that were planned are void now.
            job.iteration += 1;
        }
        self.after(Duration::from_millis(500), Due::Live(id, LiveStep::Switch));
    }
}

enum Health {
    Good,
    SourceLost,
    PathLost,
}
