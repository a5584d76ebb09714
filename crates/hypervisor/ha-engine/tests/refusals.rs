// SPDX-License-Identifier: Apache-2.0
//! Nova refuses to move guests for reasons that are not theirs: no attempt is lost, it is held and told, and where Nova
//! believes the host to be up again, the host is forced down again before anything else is asked.

#![allow(clippy::unwrap_used)]

mod play;

use cobaltcore_api::Maintenance;
use cobaltcore_ha_engine::{
    Answer, Effect, Entry, HeldReason, Input, Notice, Power, Refusal, ServiceChange, ServiceFacts, Trouble,
    VmProgress,
};
use play::{Play, right};

/// Only host 0 is dead.
const DEAD: u8 = 1;

/// A cloud that does as it is told, apart from moving guests.
#[derive(Default)]
struct Cloud {
    claimed: bool,
    forced_down: bool,
    /// Every request to move a guest, and whether the host was forced down then.
    moves: Vec<bool>,
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
