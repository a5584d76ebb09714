// SPDX-License-Identifier: Apache-2.0
//! Nova refuses to move guests for reasons that are not theirs: no attempt is lost, it is held and told, and where Nova
//! believes the host to be up again, the host is forced down again before anything else is asked. What is the guest's own
//! matter is told in Nova's words, and what a guest loses is told to its owner.

#![allow(clippy::unwrap_used)]

mod play;

use cobaltcore_api::Maintenance;
use cobaltcore_ha_engine::{
    Answer, BlockedReason, Command, Decision, Effect, Entry, HeldReason, IncidentStatus, Input, Loss,
    MigrationFacts, MigrationId, MigrationKind, MigrationStatus, Notice, Power, Refusal, ServerFacts,
    ServiceChange, ServiceFacts, Trouble, VmProgress, VmRecord, VmState,
};
use play::{Play, host, right, server};

/// Only host 0 is dead.
const DEAD: u8 = 1;

/// A cloud that does as it is told, apart from moving guests.
#[derive(Default)]
struct Cloud {
    claimed: bool,
    forced_down: bool,
    /// Every request to move a guest, and whether the host was forced down then.
    moves: Vec<bool>,
    /// What was asked for has a record, and this is what it says.
    record: Option<MigrationStatus>,
    /// What the guest is while its host is dead.
    state: Option<VmState>,
    /// Where it is now.
    moved_to: Option<u8>,
}

impl Cloud {
    fn guest(&self) -> ServerFacts {
        let mut guest = server(0);
        guest.state = self.state.unwrap_or(guest.state);
        guest.local_extras = self.state.is_some();
        if let Some(n) = self.moved_to {
            guest.host = Some(host(n));
            guest.state = VmState::Active;
        }
        guest
    }

    fn records(&self) -> Vec<MigrationFacts> {
        let record = |status| MigrationFacts {
            id: MigrationId(7),
            server: server(0).id,
            kind: MigrationKind::Evacuation,
            status,
            source: host(0),
            destination: Some(host(1)),
        };
        let asked = self.record.filter(|_| !self.moves.is_empty());
        asked.into_iter().map(record).collect()
    }
}

impl Cloud {
    /// `moving` answers requests to move guests.
    fn second(&mut self, play: &mut Play, moving: impl Fn(&mut Self) -> Result<Answer, Trouble>) {
        play.second(DEAD, true);
        for action in std::mem::take(&mut play.open) {
            if let Effect::Investigate { .. } = &action.effect {
                play.open.push(action);
                play.answer(play.open.len() - 1, 3, DEAD);
                continue;
            }
            let result = match &action.effect {
                Effect::ReadPower { .. } | Effect::ReadHold { .. } => Ok(Answer::Power(Power::Off)),
                Effect::ReadMaintenance { .. } if self.claimed => Ok(Answer::Maintenance(Maintenance::Ha)),
                Effect::ReadMaintenance { .. } => Ok(Answer::Maintenance(Maintenance::Off)),
                Effect::Claim { .. } => {
                    self.claimed = true;
                    Ok(Answer::Done)
                }
                Effect::UpdateService { change, .. } => {
                    self.forced_down |= *change == ServiceChange::ForceDown;
                    Ok(Answer::Done)
                }
                Effect::ReadService { .. } => Ok(Answer::Service(ServiceFacts {
                    updated_at: "1".into(),
                    up: !self.forced_down,
                    disabled: self.forced_down,
                    forced_down: self.forced_down,
                })),
                Effect::ListServers { .. } => Ok(Answer::Servers {
                    servers: vec![self.guest()],
                    migrations: self.records(),
                    complete: true,
                }),
                Effect::ReadServer { .. } => Ok(Answer::Server {
                    server: Some(self.guest()),
                    migrations: self.records(),
                }),
                Effect::ResetState { .. } => {
                    self.state = Some(VmState::Error);
                    Ok(Answer::Done)
                }
                Effect::Evacuate { .. } => {
                    self.moves.push(self.forced_down);
                    moving(self)
                }
                effect => Ok(right(effect, 4)),
            };
            play.step(Input::Outcome {
                id: action.id,
                result,
            });
        }
    }

    fn until_moves(
        &mut self,
        play: &mut Play,
        count: usize,
        moving: impl Fn(&mut Self) -> Result<Answer, Trouble>,
    ) {
        for _ in 0..400 {
            if self.moves.len() >= count {
                return;
            }
            self.second(play, &moving);
        }
        panic!("{} requests, not {count}: {:?}", self.moves.len(), play.notices);
    }
}

/// Everybody spoke for a while.
fn calm() -> Play {
    let mut play = Play::new();
    for _ in 0..70 {
        play.second(0, true);
        for _ in 0..play.open.len() {
            play.answer(0, 3, 0);
        }
    }
    play
}

fn attempts(play: &Play) -> Vec<u32> {
    let attempt = |entry: &Entry| match entry {
        Entry::EvacuateIntended { attempt, .. } => Some(*attempt),
        _ => None,
    };
    play.journal
        .iter()
        .filter_map(|record| attempt(&record.entry))
        .collect()
}

fn refused(why: Refusal) -> Result<Answer, Trouble> {
    Err(Trouble::Refused(why))
}

#[test]
fn a_host_that_nova_believes_to_be_up_is_forced_down_again() {
    let (mut play, mut cloud) = (calm(), Cloud::default());
    // Somebody took it back, just before the first request.
    cloud.until_moves(&mut play, 1, |cloud| {
        cloud.forced_down = false;
        refused(Refusal::StillInUse)
    });
    cloud.until_moves(&mut play, 2, |_| Ok(Answer::Done));
    assert_eq!(cloud.moves, [true, true], "never before it is down again");
    assert_eq!(attempts(&play), [1, 1], "the guest is not to blame");
    let forced = |entry: &Entry| {
        matches!(
            entry,
            Entry::DisableIntended {
                forced_down: true,
                ..
            }
        )
    };
    let forced = play.journal.iter().filter(|record| forced(&record.entry)).count();
    assert_eq!(forced, 2);
}

#[test]
fn refused_credentials_cost_no_attempt_and_are_told() {
    let (mut play, mut cloud) = (calm(), Cloud::default());
    for _ in 0..3600 {
        cloud.second(&mut play, |_| refused(Refusal::Unauthorized));
    }
    let asked = cloud.moves.len();
    assert!((10..150).contains(&asked), "asked {asked} times in an hour");
    assert_eq!(attempts(&play), vec![1; asked]);
    let held = |notice: &Notice| {
        matches!(
            notice,
            Notice::Held {
                reason: HeldReason::NovaUnavailable,
                ..
            }
        )
    };
    assert!(play.notices.iter().any(held), "{:?}", play.notices);
    let failed = |record: &cobaltcore_ha_engine::Record| {
        matches!(
            &record.entry,
            Entry::Vm {
                progress: VmProgress::Failed { .. },
                ..
            }
        )
    };
    assert!(!play.journal.iter().any(failed));
    cloud.until_moves(&mut play, asked + 1, |_| Ok(Answer::Done));
    assert_eq!(attempts(&play).last(), Some(&1));
}

fn guest(play: &Play) -> VmRecord {
    let incidents = &play.engine.ledger().incidents;
    let vms = incidents.values().flat_map(|incident| incident.vms.values());
    vms.last().unwrap().clone()
}

#[test]
fn a_guest_that_nova_can_never_move_is_told_in_its_words() {
    const SAID: &str = "Instances with vTPM cannot be evacuated.";
    let (mut play, mut cloud) = (calm(), Cloud::default());
    let moving = |_: &mut Cloud| Ok(Answer::Unsupported(SAID.to_owned()));
    cloud.until_moves(&mut play, 1, moving);
    for _ in 0..60 {
        cloud.second(&mut play, moving);
    }
    assert_eq!(cloud.moves.len(), 1, "asked once");
    let reason = BlockedReason::Unsupported;
    assert_eq!(guest(&play).progress, VmProgress::Blocked { reason });
    assert_eq!(guest(&play).said.as_deref(), Some(SAID));
    let told = |notice: &Notice| matches!(notice, Notice::VmNeedsPerson { why, .. } if *why == format!("Unsupported: {SAID}"));
    assert!(play.notices.iter().any(told), "{:?}", play.notices);
    let records: Vec<_> = play.journal.iter().map(serde_json::to_string).collect();
    let read = records
        .into_iter()
        .map(|text| serde_json::from_str(&text.unwrap()).unwrap());
    assert_eq!(read.collect::<Vec<cobaltcore_ha_engine::Record>>(), play.journal);
}

#[test]
fn a_paused_guest_comes_back_without_its_memory_and_that_is_told() {
    let (mut play, mut cloud) = (calm(), Cloud::default());
    cloud.state = Some(VmState::Paused);
    cloud.record = Some(MigrationStatus::Done);
    cloud.until_moves(&mut play, 1, |cloud| {
        cloud.moved_to = Some(1);
        Ok(Answer::Done)
    });
    for _ in 0..60 {
        cloud.second(&mut play, |_| Ok(Answer::Done));
    }
    assert_eq!(
        guest(&play).progress,
        VmProgress::Recovered { destination: host(1) }
    );
    assert_eq!(guest(&play).losses, [Loss::Memory, Loss::Disks]);
    let lost = play.notices.iter().filter_map(|notice| match notice {
        Notice::VmLost { what, .. } => Some(*what),
        _ => None,
    });
    assert_eq!(lost.collect::<Vec<_>>(), [Loss::Memory, Loss::Disks], "once each");
}

fn only(play: &Play) -> IncidentStatus {
    let mut all = play.engine.incidents();
    assert_eq!(all.len(), 1);
    all.remove(0)
}

fn retry(play: &mut Play) {
    let incident = only(play).id;
    play.notices.clear();
    play.step(Input::Command(Command {
        confirm: incident.host.to_string(),
        incident,
        actor: "operator/olga".into(),
        reason: "looked at its destination".into(),
        decision: Decision::Retry,
    }));
}

#[test]
fn a_guest_that_is_stuck_may_be_looked_at_anew_and_is_not_asked_for_twice() {
    let (mut play, mut cloud) = (calm(), Cloud::default());
    cloud.record = Some(MigrationStatus::PreMigrating);
    cloud.until_moves(&mut play, 1, |_| Ok(Answer::Done));
    retry(&mut play);
    let refused = |notice: &Notice| matches!(notice, Notice::CommandRefused { .. });
    assert!(play.notices.iter().any(refused), "it is on its way");
    for _ in 0..700 {
        cloud.second(&mut play, |_| Ok(Answer::Done));
    }
    assert_eq!(only(&play).stuck, 1);
    retry(&mut play);
    assert!(!play.notices.iter().any(refused), "{:?}", play.notices);
    assert_eq!(only(&play).stuck, 0, "its time begins anew");
    for _ in 0..300 {
        cloud.second(&mut play, |_| Ok(Answer::Done));
    }
    assert_eq!(cloud.moves.len(), 1, "its record is open");
    assert!(guest(&play).progress.moving());
    cloud.record = Some(MigrationStatus::Failed);
    for _ in 0..60 {
        cloud.second(&mut play, |_| Ok(Answer::Done));
    }
    assert!(cloud.moves.len() > 1, "its record has failed");
}

fn blocked(play: &Play) -> Option<BlockedReason> {
    match guest(play).progress {
        VmProgress::Blocked { reason } => Some(reason),
        _ => None,
    }
}

/// It is on two hosts until its owner says which; whoever tries again before that is told the same.
#[test]
fn a_guest_whose_resize_was_settled_is_moved_when_a_person_tries_again() {
    let (mut play, mut cloud) = (calm(), Cloud::default());
    cloud.state = Some(VmState::Resized);
    cloud.record = Some(MigrationStatus::Done);
    let moving = |cloud: &mut Cloud| {
        cloud.moved_to = Some(1);
        Ok(Answer::Done)
    };
    let minute = |play: &mut Play, cloud: &mut Cloud| {
        for _ in 0..60 {
            cloud.second(play, moving);
        }
    };
    minute(&mut play, &mut cloud);
    for _ in 0..2 {
        assert_eq!(blocked(&play), Some(BlockedReason::Resized));
        assert_eq!(only(&play).state, cobaltcore_ha_engine::IncidentState::Failed);
        retry(&mut play);
        minute(&mut play, &mut cloud);
    }
    assert_eq!(cloud.state, Some(VmState::Resized), "nobody touched it");
    assert_eq!(cloud.moves.len(), 0);
    cloud.state = None;
    retry(&mut play);
    minute(&mut play, &mut cloud);
    assert_eq!(
        guest(&play).progress,
        VmProgress::Recovered { destination: host(1) }
    );
}

/// Its owner deletes it between the plan and its turn. Nova would make it anew if it were asked to.
#[test]
fn a_guest_that_was_deleted_meanwhile_is_not_brought_back_to_life() {
    let (mut play, mut cloud) = (calm(), Cloud::default());
    cloud.until_moves(&mut play, 1, |cloud| {
        cloud.state = Some(VmState::SoftDeleted);
        refused(Refusal::Conflict)
    });
    for _ in 0..120 {
        cloud.second(&mut play, |_| Ok(Answer::Done));
    }
    assert_eq!(cloud.moves.len(), 1);
    assert_eq!(cloud.state, Some(VmState::SoftDeleted), "its state was reset");
    assert!(
        matches!(guest(&play).progress, VmProgress::Skipped { .. }),
        "{:?}",
        guest(&play)
    );
}
