// SPDX-License-Identifier: Apache-2.0
//! The life of a server on one host: it is built, started, stopped, paused, rescued, deleted, and found to be in another
//! power state than Nova believed. Moves between hosts have their own modules.

use uuid::Uuid;

use super::domain::{Paused, Phase, Running};
use super::fault::BuildTrouble;
use super::names::HostName;
use super::schedule::Wanted;
use super::server::{Server, TaskState, VmState, power};
use super::state::State;
use super::timers::{Act, BuildStep, Due};

/// How long until something that needs a silent host is looked at again.
const LATER: std::time::Duration = std::time::Duration::from_secs(5);

impl State {
    pub(crate) fn build_step(&mut self, id: Uuid, step: BuildStep) {
        let Some(server) = self.servers.get(&id) else {
            return;
        };
        if server.vm_state != VmState::Building || server.task_state == Some(TaskState::Deleting) {
            return;
        }
        if step == BuildStep::Schedule {
            return self.build_schedule(id);
        }
        let Some(host) = server.host.clone() else { return };
        if !self.drivable(&host) || !self.hosts.get(&host).is_some_and(super::host::Host::reports) {
            // The request waits in the message queue until nova-compute returns.
            return self.after(LATER, Due::Build(id, step));
        }
        let pause = self.settings.build_step;
        match step {
            BuildStep::Schedule => {}
            BuildStep::Network => {
                self.set_states(id, VmState::Building, Some(TaskState::BlockDeviceMapping));
                self.bind_ports(id);
                self.after(pause, Due::Build(id, BuildStep::Volumes));
            }
            BuildStep::Volumes => {
                self.set_states(id, VmState::Building, Some(TaskState::Spawning));
                self.after(pause, Due::Build(id, BuildStep::Spawn));
            }
            BuildStep::Spawn => self.build_spawn(id, &host),
            BuildStep::Done => self.running(id),
        }
    }

    fn build_schedule(&mut self, id: Uuid) {
        let Some(server) = self.servers.get(&id) else {
            return;
        };
        let forced = server.host.clone();
        let wanted = Wanted {
            only: forced.as_ref(),
            not: None,
            ..Wanted::of(server)
        };
        match self.choose(&wanted) {
            Ok(host) => {
                self.place(id, Some(host.clone()));
                self.hold(id, &host, false);
                self.set_states(id, VmState::Building, Some(TaskState::Networking));
                let pause = self.settings.build_step;
                self.after(pause, Due::Build(id, BuildStep::Network));
            }
            Err(why) => {
                self.place(id, None);
                self.build_failed(id, why.message().to_owned());
            }
        }
    }

    fn build_spawn(&mut self, id: Uuid, host: &HostName) {
        let full = self.hosts.get(host).is_some_and(|host| host.disk_full);
        let trouble = self.faults.build(host);
        if full {
            let text = format!(
                "Exceeded maximum number of retries. Exhausted all hosts available for retrying build failures for instance {id}."
            );
            return self.build_failed(id, text);
        }
        match trouble {
            Some(BuildTrouble::Error(text)) => return self.build_failed(id, text),
            Some(BuildTrouble::Stuck) => return,
            Some(BuildTrouble::Mute) => {
                self.touch(id, |server| server.mute = true);
            }
            None => {}
        }
        self.define(host, id);
        self.boot(host, id);
        let pause = self.settings.build_step;
        self.after(pause, Due::Build(id, BuildStep::Done));
    }

    fn build_failed(&mut self, id: Uuid, message: String) {
        self.placement.allocate(id, super::placement::Consumer::default());
        self.set_fault(id, 500, message);
        self.set_states(id, VmState::Error, None);
    }

    /// The guest runs; Nova knows.
    fn running(&mut self, id: Uuid) {
        let now = self.now;
        self.touch(id, |server| {
            server.vm_state = VmState::Active;
            server.task_state = None;
            server.power_state = power::RUNNING;
            server.launched_at.get_or_insert(now);
        });
    }

    fn bind_ports(&mut self, id: Uuid) {
        let Some(server) = self.servers.get(&id) else {
            return;
        };
        let (host, ports) = (server.host.clone(), server.ports.clone());
        for port in ports {
            if let Some(port) = self.ports.get_mut(&port) {
                port.host.clone_from(&host);
            }
        }
    }

    /// Starts something that changes a server's power; the API checked that it may.
    pub(crate) fn begin(&mut self, id: Uuid, act: Act, task: TaskState) {
        let span = match act {
            Act::Stop | Act::RebootSoft => self.settings.shutdown,
            _ => self.settings.power_action,
        };
        self.touch(id, |server| server.task_state = Some(task));
        self.after(span, Due::Act(id, act));
    }

    pub(crate) fn act_done(&mut self, id: Uuid, act: Act) {
        let Some(server) = self.servers.get(&id) else {
            return;
        };
        if server.task_state.is_none() || server.task_state == Some(TaskState::Deleting) {
            return;
        }
        if act == Act::Unshelve {
            return self.unshelve(id);
        }
        let Some(host) = server.host.clone() else { return };
        if !self.drivable(&host) || !self.hosts.get(&host).is_some_and(super::host::Host::reports) {
            return self.after(LATER, Due::Act(id, act));
        }
        let (vm, state) = match act {
            Act::Stop => {
                self.guest_shuts_down(&host, id);
                (VmState::Stopped, power::SHUTDOWN)
            }
            Act::Start | Act::Unrescue | Act::Rescue | Act::Resume => {
                self.define(&host, id);
                self.boot(&host, id);
                let rescued = act == Act::Rescue;
                let vm = if rescued {
                    VmState::Rescued
                } else {
                    VmState::Active
                };
                (vm, power::RUNNING)
            }
            Act::RebootSoft => {
                self.reset(&host, id);
                (VmState::Active, power::RUNNING)
            }
            Act::RebootHard | Act::Rebuild => {
                self.destroy(&host, id);
                self.define(&host, id);
                self.boot(&host, id);
                (VmState::Active, power::RUNNING)
            }
            Act::Pause => {
                self.pause(&host, id, Paused::User);
                (VmState::Paused, power::PAUSED)
            }
            Act::Unpause => {
                self.unpause(&host, id, Running::Unpaused);
                (VmState::Active, power::RUNNING)
            }
            Act::Suspend => {
                self.destroy(&host, id);
                (VmState::Suspended, power::SUSPENDED)
            }
            Act::Shelve => return self.shelve(id, &host),
            Act::Unshelve => return,
        };
        self.touch(id, |server| {
            server.vm_state = vm;
            server.task_state = None;
            server.power_state = state;
        });
    }

    fn shelve(&mut self, id: Uuid, host: &HostName) {
        self.destroy(host, id);
        self.undefine(host, id);
        self.placement.allocate(id, super::placement::Consumer::default());
        self.place(id, None);
        self.touch(id, |server| {
            server.vm_state = VmState::ShelvedOffloaded;
            server.task_state = None;
            server.power_state = power::SHUTDOWN;
        });
    }

    fn unshelve(&mut self, id: Uuid) {
        let Some(server) = self.servers.get(&id) else {
            return;
        };
        match self.choose(&Wanted::of(server)) {
            Ok(host) => {
                self.place(id, Some(host.clone()));
                self.hold(id, &host, false);
                self.define(&host, id);
                self.boot(&host, id);
                self.running(id);
            }
            Err(why) => {
                self.set_fault(id, 500, why.message());
                self.set_states(id, VmState::ShelvedOffloaded, None);
            }
        }
    }

    /// Begins to delete a server.
    pub(crate) fn begin_delete(&mut self, id: Uuid) {
        self.touch(id, |server| server.task_state = Some(TaskState::Deleting));
        let span = self.settings.delete;
        self.after(span, Due::Delete(id));
    }

    pub(crate) fn delete_done(&mut self, id: Uuid) {
        let Some(server) = self.servers.get(&id) else {
            return;
        };
        let host = server.host.clone();
        if let Some(host) = &host {
            let up = self
                .hosts
                .get(host)
                .and_then(|host| host.service.as_ref())
                .is_some_and(|service| service.is_up(self.now));
            // With its host known to be down, Nova deletes the record alone; otherwise the host must do it.
            if up && !self.drivable(host) {
                return self.after(LATER, Due::Delete(id));
            }
            if up {
                self.destroy(host, id);
                self.undefine(host, id);
            }
        }
        self.remove_server(id);
    }

    fn remove_server(&mut self, id: Uuid) {
        self.placement.allocate(id, super::placement::Consumer::default());
        let moves: Vec<(u64, Uuid)> = self
            .migrations_of(id)
            .filter(|migration| migration.is_open())
            .map(|migration| (migration.id, migration.uuid))
            .collect();
        for (number, uuid) in moves {
            self.placement
                .allocate(uuid, super::placement::Consumer::default());
            self.set_migration(number, super::server::MigrationStatus::Error);
        }
        let Some(server) = self.forget_server(id) else {
            return;
        };
        for port in &server.ports {
            self.ports.remove(port);
        }
        for attachment in &server.volumes {
            if attachment.delete_on_termination {
                self.volumes.remove(&attachment.volume);
            } else if let Some(volume) = self.volumes.get_mut(&attachment.volume) {
                volume.attached = None;
                "available".clone_into(&mut volume.status);
            }
        }
        for group in self.groups.values_mut() {
            group.members.remove(&id);
        }
    }

    /// Nova compares every server of a host with what libvirt says.
    pub(crate) fn sync_host(&mut self, host: &HostName) {
        let ids: Vec<Uuid> = self.servers_on(host.as_str()).map(|server| server.id).collect();
        for id in ids {
            self.sync_server(id);
        }
    }

    /// Nova finds that a server stopped or runs behind its back.
    pub(crate) fn sync_server(&mut self, id: Uuid) {
        let Some(server) = self.servers.get(&id) else {
            return;
        };
        let Some(host) = server.host.clone() else { return };
        if server.task_state.is_some() || !self.hosts.get(&host).is_some_and(super::host::Host::reports) {
            return;
        }
        let phase = self.domain(host.as_str(), id).map(|domain| domain.phase);
        let off = matches!(phase, Some(Phase::ShutOff(_)));
        match server.vm_state {
            VmState::Active if off => {
                self.touch(id, |server| {
                    server.vm_state = VmState::Stopped;
                    server.power_state = power::SHUTDOWN;
                });
            }
            VmState::Stopped if matches!(phase, Some(Phase::Running(_))) => {
                // Nova takes its own word for it and stops the guest.
                self.destroy(&host, id);
            }
            _ => {}
        }
    }
}

impl Server {
    /// What its console shows at a moment: a boot, then a prompt with its name.
    pub fn console(&self, now: super::clock::Moment, boot: std::time::Duration) -> String {
        let Some(began) = self.boot_began else {
            return String::new();
        };
        if self.mute {
            return String::new();
        }
        let mut lines = vec![
            "[    0.000000] Linux version 5.15.0-generic (buildd@lcy02) (gcc 11.4.0) #125 SMP".to_owned(),
            "[    0.000000] Command line: root=/dev/vda1 console=tty1 console=ttyS0".to_owned(),
            format!(
                "[    0.004000] smpboot: Allowing {} CPUs, 0 hotplug CPUs",
                self.flavor.vcpus
            ),
            format!("[    0.031000] Memory: {}K available", self.flavor.ram_mb * 1024),
        ];
        let done = now.since(began);
        let stages = [
            "[    1.204000] virtio_blk virtio2: [vda] 134217728 512-byte logical blocks",
            "[    1.840000] EXT4-fs (vda1): mounted filesystem with ordered data mode",
            "Starting network: udhcpc: lease obtained",
            "checking http://169.254.169.254/2009-04-04/instance-id",
            "successful after 1 tries: up 4.31. iid=i-00000001",
            "Starting dropbear sshd: OK",
        ];
        for (index, line) in stages.iter().enumerate() {
            if done >= boot.mul_f64((index + 1) as f64 / (stages.len() + 1) as f64) {
                lines.push((*line).to_owned());
            }
        }
        if done >= boot {
            lines.push(String::new());
            lines.push(
                "login as 'cirros' user. default password: 'gocubsgo'. use 'sudo' for root.".to_owned(),
            );
            lines.push(format!("{} login: ", self.hostname));
        }
        lines.join("\n")
    }
}
