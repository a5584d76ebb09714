// SPDX-License-Identifier: Apache-2.0
//! Nova, as far as an evacuation meets it: services that look up for a while after they died,
//! requests that become messages to a destination, records that stay behind, and the clean-up a
//! compute service does when it starts.

use std::collections::BTreeMap;

use cobaltcore_ha_engine::{
    Answer, MigrationFacts, MigrationId, MigrationKind, MigrationStatus, Refusal, ServerFacts, Trouble,
    VmState,
};

use crate::invariants::Invariant;
use crate::world::{Event, World};

/// How old Nova's answer may be, at most, when the order to start a guest that follows from it arrives.
const ASKED: u64 = 13_000;

/// A migration record.
#[derive(Clone, Debug)]
pub(crate) struct Migration {
    pub(crate) server: usize,
    pub(crate) kind: MigrationKind,
    pub(crate) status: MigrationStatus,
    pub(crate) source: usize,
    pub(crate) destination: Option<usize>,
    was_running: bool,
    /// Whoever worked on it is gone. Nova does not know: only a start of the source closes such a record.
    interrupted: bool,
    /// When a late message opened it again after the start of the source had closed it.
    pub(crate) reopened: Option<u64>,
}

impl Migration {
    /// Whether it is an evacuation of that host which Nova has not closed.
    pub(crate) fn open_at(&self, source: usize) -> bool {
        let open = self.status.open() || self.status == MigrationStatus::Done;
        self.source == source && self.kind == MigrationKind::Evacuation && open
    }

    pub(crate) fn done(&self) -> bool {
        self.kind == MigrationKind::Evacuation
            && matches!(self.status, MigrationStatus::Done | MigrationStatus::Completed)
    }

    pub(crate) fn live(server: usize, source: usize, destination: usize) -> Self {
        Self {
            server,
            kind: MigrationKind::Live,
            status: MigrationStatus::Running,
            source,
            destination: Some(destination),
            was_running: true,
            interrupted: false,
            reopened: None,
        }
    }
}

impl World {
    /// Nova's opinion: a report within the last minute, and nobody forced it down.
    pub(crate) fn service_up(&self, h: usize) -> bool {
        self.hosts[h].service_up(self.now)
    }

    fn facts(&self, n: usize) -> ServerFacts {
        let server = &self.servers[n];
        ServerFacts {
            id: server.id.clone(),
            name: format!("guest-{n}"),
            host: Some(self.hosts[server.host].name.clone()),
            state: if server.deleted {
                VmState::Deleted
            } else {
                server.state
            },
            task: server.task.clone(),
            running: server.state == VmState::Active,
            policy: server.policy,
            excluded: server.excluded,
            priority: server.priority,
            group: server.group.clone(),
            anti_affinity: server.anti_affinity.clone(),
            memory_mib: 2048,
            local_disk: server.local_disk,
            local_extras: false,
            on_fenced_storage: true,
            lock: server.lock.clone(),
            user_action_ms: server.user_action.map(|at| self.now - at),
            acted_since_move: server.user_action > self.moved_at(n) && self.moved_at(n).is_some(),
            user_stops: server.user_action.is_some() && !server.owner_wants_it,
        }
    }

    /// When an evacuation of a guest was last asked for.
    fn moved_at(&self, n: usize) -> Option<u64> {
        let asked = self.evacuations.iter().rev().find(|(_, server)| *server == n);
        asked.map(|(at, _)| *at)
    }

    fn migrations_of(&self, wanted: impl Fn(&Migration) -> bool) -> Vec<MigrationFacts> {
        self.migrations
            .iter()
            .enumerate()
            .filter(|(_, m)| wanted(m))
            .map(|(id, m)| MigrationFacts {
                id: MigrationId(id as u64 + 1),
                server: self.servers[m.server].id.clone(),
                kind: m.kind,
                status: m.status,
                source: self.hosts[m.source].name.clone(),
                destination: m.destination.map(|d| self.hosts[d].name.clone()),
            })
            .collect()
    }

    pub(crate) fn read_server(&self, n: usize) -> Answer {
        let server = (!self.servers[n].deleted).then(|| self.facts(n));
        Answer::Server {
            server,
            migrations: self.migrations_of(|m| m.server == n),
        }
    }

    pub(crate) fn list_servers(&self, h: usize) -> Answer {
        let servers = self
            .servers
            .of_host(h)
            .into_iter()
            // The groups of guests are told only of one at a time.
            .map(|n| ServerFacts {
                anti_affinity: None,
                ..self.facts(n)
            })
            .collect();
        let touches = |m: &Migration| m.source == h || m.destination == Some(h);
        Answer::Servers {
            servers,
            migrations: self.migrations_of(touches),
            complete: self.list_complete,
        }
    }

    /// What was asked for when so many records were `known` is carried out.
    pub(crate) fn evacuate(&mut self, n: usize, known: usize) -> Result<Answer, Trouble> {
        let server = &self.servers[n];
        let source = server.host;
        if server.deleted {
            return Err(Trouble::Refused(Refusal::NotFound));
        }
        if self.nova_refuses_moves {
            return Err(Trouble::Refused(Refusal::Unauthorized));
        }
        if self.service_up(source) {
            return Err(Trouble::Refused(Refusal::StillInUse));
        }
        if server.unsupported {
            return Ok(Answer::Unsupported(
                "Instances with vTPM cannot be evacuated.".to_owned(),
            ));
        }
        let evacuable = matches!(server.state, VmState::Active | VmState::Stopped | VmState::Error);
        if !evacuable || (self.nova_old && !server.task.is_empty()) {
            return Err(Trouble::Refused(Refusal::Conflict));
        }
        if server.local_disk || server.excluded {
            self.violate(
                Invariant::S10Guests,
                format!("guest {n} with a local disk or excluded is evacuated"),
            );
        }
        self.check_one_request(n, known);
        let was_running = self.servers[n].state != VmState::Stopped;
        let fits = |h: &usize| {
            let host = &self.hosts[*h];
            let passes = !self.picky || self.config.spares.contains(&host.name);
            *h != source && self.service_up(*h) && !host.disabled && self.capacity && passes
        };
        let candidates: Vec<usize> = (0..self.hosts.len()).filter(fits).collect();
        let destination = (!candidates.is_empty()).then(|| candidates[self.rng.usize(..candidates.len())]);
        let status = if destination.is_some() {
            MigrationStatus::Accepted
        } else {
            MigrationStatus::Error
        };
        let kind = MigrationKind::Evacuation;
        self.migrations.push(Migration {
            server: n,
            kind,
            status,
            source,
            destination,
            was_running,
            interrupted: false,
            reopened: None,
        });
        let m = self.migrations.len() - 1;
        self.evacuations.push((self.now, n));
        let now = self.now;
        self.first_evacuate.entry(source).or_insert(now);
        // An order to a dead host is lost when it is moved: Nova writes the move over it.
        let server = &mut self.servers[n];
        if server.user_action.is_some_and(|at| now - at < ASKED) && server.task == "powering-off" {
            server.overtaken = server.user_action;
        }
        if destination.is_none() {
            self.servers[n].state = VmState::Error;
        } else {
            "rebuilding".clone_into(&mut self.servers[n].task);
            let late = if self.rng.u8(..100) < self.messages_lost {
                self.mark("a destination hears late");
                45_000
            } else {
                1500
            };
            let after = self.rng.u64(200..late + 200);
            self.schedule(after, Event::NovaMessage(m));
        }
        Ok(Answer::Done)
    }

    /// Whether a guest may come up by another record than the first few, which whoever asks has judged.
    pub(crate) fn check_one_request(&mut self, n: usize, judged: usize) {
        let outstanding = self.migrations.iter().skip(judged).any(|m| {
            let possible = m.destination.is_some_and(|d| self.runs_guests(d));
            m.server == n
                && m.kind == MigrationKind::Evacuation
                && m.status.open()
                && possible
                && !m.interrupted
        });
        if outstanding {
            self.violate(Invariant::S6OneRequest, format!("guest {n} is asked for twice"));
        }
    }

    /// The destination hears of it, if it still lives.
    pub(crate) fn nova_message(&mut self, m: usize) {
        let Some(destination) = self.migrations[m].destination else {
            return;
        };
        if !self.hosts[destination].compute_hears() || !self.rabbit_up {
            // The message waits in its queue.
            self.mark("a destination is gone");
            self.schedule(5_000, Event::NovaMessage(m));
            return;
        }
        // A guest that was brought up elsewhere meanwhile is not rebuilt once more.
        let Migration {
            server,
            source,
            status,
            ..
        } = self.migrations[m].clone();
        // Whether the source has closed the record meanwhile is nothing the destination asks about.
        let waits = matches!(status, MigrationStatus::Accepted | MigrationStatus::Completed);
        if self.servers[server].host != source || !waits || self.servers[server].task != "rebuilding" {
            return;
        }
        if self.rng.u8(..100) < self.messages_lost {
            // The claim on the destination fails.
            self.mark("a destination fails");
            self.migrations[m].status = MigrationStatus::Failed;
            self.servers[self.migrations[m].server].task.clear();
            return;
        }
        self.migrations[m].reopened = (status == MigrationStatus::Completed).then_some(self.now);
        self.migrations[m].status = MigrationStatus::PreMigrating;
        let by_chance = self.rng.u64(8_000..40_000);
        let takes = self.servers[server].takes.unwrap_or(by_chance);
        self.schedule(takes, Event::NovaRebuilt(m));
    }

    pub(crate) fn nova_rebuilt(&mut self, m: usize) {
        let Migration {
            server: n,
            destination: Some(destination),
            was_running,
            ..
        } = self.migrations[m].clone()
        else {
            return;
        };
        let closed = matches!(
            self.migrations[m].status,
            MigrationStatus::PreMigrating | MigrationStatus::Completed
        );
        if !closed || self.migrations[m].interrupted {
            return;
        }
        let host = &self.hosts[destination];
        let was_running = was_running && !self.arrive_stopped;
        let runs = was_running && !self.servers[n].cannot_boot && !self.servers[n].deleted;
        if host.user && host.compute && runs {
            self.servers[n].runs_on.insert(destination);
        }
        if !self.hosts[destination].compute_speaks() {
            // Its work goes on as long as it lives, and is told when it can be.
            if self.hosts[destination].user {
                self.mark("a guest runs, and Nova is not told");
                self.schedule(5_000, Event::NovaRebuilt(m));
            }
            return;
        }
        self.migrations[m].status = MigrationStatus::Done;
        let server = &mut self.servers[n];
        if server.deleted {
            return;
        }
        server.host = destination;
        server.task.clear();
        server.state = if was_running {
            VmState::Active
        } else {
            VmState::Stopped
        };
        self.story(|| format!("guest {n} is on n{destination:02}"));
    }

    pub(crate) fn start_server(&mut self, n: usize) -> Result<Answer, Trouble> {
        let host = self.servers[n].host;
        if self.servers[n].deleted {
            return Err(Trouble::Refused(Refusal::NotFound));
        }
        // Whoever asked before its owner did that cannot know of it, nor whoever asks when Nova has forgotten it.
        let server = &self.servers[n];
        let lately = server.user_action.is_some_and(|at| self.now - at < ASKED);
        let overtaken = server.overtaken.is_some() && server.overtaken == server.user_action;
        if !server.owner_wants_it && !lately && !overtaken {
            self.violate(
                Invariant::S10Guests,
                format!("guest {n} was stopped by its owner and is started"),
            );
        }
        if self.servers[n].excluded {
            self.violate(
                Invariant::S10Guests,
                format!("guest {n} is excluded and is started"),
            );
        }
        if !self.hosts[host].compute_hears() {
            return Err(Trouble::Unknown);
        }
        self.servers[n].runs_on.insert(host);
        self.reboots += 1;
        // Nova writes down what it is told.
        if self.hosts[host].compute_speaks() {
            self.servers[n].state = VmState::Active;
        }
        Ok(Answer::Done)
    }

    pub(crate) fn stop_server(&mut self, n: usize) -> Result<Answer, Trouble> {
        let host = self.servers[n].host;
        if !self.hosts[host].compute_hears() {
            return Err(Trouble::Unknown);
        }
        self.servers[n].runs_on.remove(&host);
        if self.hosts[host].compute_speaks() {
            self.servers[n].state = VmState::Stopped;
        }
        Ok(Answer::Done)
    }

    /// A compute service starts: it removes what was moved away, and resumes what is still its own.
    pub(crate) fn compute_starts(&mut self, h: usize) {
        self.hosts[h].compute = true;
        self.hosts[h].compute_since = self.now;
        let mut left = BTreeMap::new();
        for (id, m) in self.migrations.iter_mut().enumerate() {
            if m.kind != MigrationKind::Evacuation {
                continue;
            }
            // A rebuild that was under way here is not resumed, and nobody says so.
            m.interrupted |= m.destination == Some(h) && m.status == MigrationStatus::PreMigrating;
            let away = m.status.open() || matches!(m.status, MigrationStatus::Done);
            if m.source == h && away && !self.servers[m.server].deleted {
                left.insert(m.server, id);
            }
        }
        // Of several records about one guest the last is closed; the others are found by the next start.
        for id in left.values() {
            self.migrations[*id].status = MigrationStatus::Completed;
        }
        for n in self.servers.around(h) {
            let server = &mut self.servers[n];
            if left.contains_key(&n) {
                server.runs_on.remove(&h);
            } else if server.host == h && server.task == "powering-off" {
                // What was asked for while nobody was there is done now.
                server.runs_on.remove(&h);
                server.task.clear();
                server.state = VmState::Stopped;
            } else if server.host == h
                && server.state == VmState::Active
                && !server.deleted
                && server.task.is_empty()
            {
                server.runs_on.insert(h);
            }
        }
    }

    /// The hypervisor operator, after maintenance was cleared: enables, unless Nova refuses.
    pub(crate) fn operator_enables(&mut self) {
        let mut refused = false;
        for h in 0..self.hosts.len() {
            let host = &self.hosts[h];
            if !host.maintenance.is_off() || !host.disabled_condition {
                continue;
            }
            let open = self.migrations.iter().any(|m| {
                m.source == h && m.kind == MigrationKind::Evacuation && m.status == MigrationStatus::Done
            });
            if open {
                refused = true;
                continue;
            }
            let host = &mut self.hosts[h];
            host.disabled = false;
            host.forced_down = false;
            host.disabled_condition = false;
            host.enabled_at = Some(self.now);
            host.service_updated = self.now;
        }
        // One look at all of them, however many wait: two looks would become four, and so on.
        if refused {
            self.schedule(30_000, Event::Kubernetes);
        }
    }
}
