// SPDX-License-Identifier: Apache-2.0
//! The judgement of high availability: when a host is dead, and what may be done about it.
//!
//! The crate is pure and synchronous. It has no client, no clock and no randomness: whoever runs
//! it passes in what was observed and the time, and carries out what comes back. Values, never
//! traded: no guest runs twice and no disk is rebuilt empty; no healthy host is fenced because a
//! signal was lost; dead guests come back fast; everything is explainable afterwards.
//!
//! # Contract with the caller
//!
//! 1. [`Engine::step`] takes one [`Input`] and the time. It returns an [`Output`]: journal
//!    [`Record`]s, [`Action`]s and [`Notice`]s.
//! 2. The records are made durable, in order, **before** any action of the same output starts. If
//!    that fails, the actions are dropped and [`Input::JournalFailed`] is passed in: the engine
//!    gives its term up, because what it believes is no longer what is written.
//! 3. An action is not started after its `not_after`, judged on the caller's own monotonic clock
//!    right before the request leaves. That is what keeps two leaders from acting.
//! 4. Every action is answered by exactly one [`Input::Outcome`], also when it could not be
//!    started. Whoever dies in between needs no answer: see below.
//! 5. [`Input::Tick`] at least once per second.
//!
//! # After a crash
//!
//! The durable half of the state, the [`Ledger`], is a fold over the journal and nothing else. A
//! new leader folds the same records and continues. It never trusts an intent without a result:
//! each step of a recovery is a goal with an observation that decides whether it was reached, so
//! an action whose outcome is unknown is looked up, not repeated blindly. [`Effect`] says for each
//! action what is read.
//!
//! Durations never cross processes: records carry wall-clock time for people only, and every timer
//! of a loaded incident starts anew, which always errs on the side of waiting.

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod action;
mod company;
mod config;
mod domains;
mod doubles;
mod engine;
mod evidence;
mod fencing;
mod gates;
mod guests;
mod identity;
mod ids;
mod input;
mod journal;
mod ledger;
mod monitors;
mod mutation;
mod operator;
mod plan;
mod recovery;
mod release;
mod signals;
mod spares;
mod status;
mod vms;

pub use action::{Action, Effect, LOCK_PREFIX, ServiceChange, lock_reason};
pub use company::{NEAR_NEIGHBOURS, NEIGHBOURS};
pub use config::{
    AgentSilent, CapacityCheck, Config, DwellResponse, FenceLevel, HostRebooted, InstanceCrashed,
    IoErrorStorm, LocalDisk, MemoryFailure, Monitors, Response, ServiceGone, VmPolicy, WatchdogStorm,
};
pub use domains::Domains;
pub use engine::{Engine, Output};
pub use evidence::{Assessment, Evidence, Group, GroupVerdict, Verdict};
pub use ids::{
    ActionId, AgentId, BootId, DeviceClass, Domain, Epoch, Grade, IncidentId, MigrationId, Mono, Now,
    ReplicaId,
};
pub use input::{
    Answer, Command, Decision, DomainState, GuestEvent, GuestEventKind, Heartbeat, HostFacts, Identity,
    Input, Inventory, MigrationFacts, MigrationKind, MigrationStatus, Observation, Onlooker, Pause,
    PauseScope, PeerHost, Power, ProbeResult, Prober, Refusal, Request, Reserved, Room, ServerFacts,
    ServiceFacts, Trouble, VmState,
};
pub use journal::{Entry, JournalError, Record, VERSION, forgotten};
pub use ledger::{
    BlockedReason, FailedReason, Incident, IncidentKind, IncidentState, Ledger, Loss, Restarts, SkipReason,
    VmProgress, VmRecord, Wanted,
};
#[cfg(feature = "mutants")]
pub use mutation::Mutation;
pub use operator::allowed;
pub use status::{Degraded, Gate, HeldReason, HostStatus, IncidentStatus, Notice, Severity};
