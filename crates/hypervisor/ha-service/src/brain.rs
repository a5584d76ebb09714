// SPDX-License-Identifier: Apache-2.0
//! The loop around the engine, and the promises it was made: one input at a time, records durable
//! in order before any action of the same step starts, nothing started that could not be written,
//! a tick several times a second. Everybody else sends inputs or asks questions.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cobaltcore_ha_engine::{Action, Command, Engine, Epoch, Input, Notice, Now, Output, Record, Request};
use cobaltcore_kit::health::Heartbeat;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use crate::act::Executor;
use crate::chronicle::Chronicle;
use crate::clock::Clock;
use crate::journal::{AppendError, Journal};
use crate::metrics::Metrics;

/// Inputs that may wait.
pub(crate) const INPUTS: usize = 16_384;
/// Questions that may wait.
const ASKS: usize = 1024;
/// Notices that may wait for whoever tells people.
const NOTICES: usize = 4096;
/// Inputs taken before questions and commits are looked at again.
const BURST: usize = 256;
const TICK: Duration = Duration::from_millis(250);
const RETRY: Duration = Duration::from_millis(500);

type Question = Box<dyn FnOnce(&Engine, Now) + Send>;

enum Ask {
    Question(Question),
    Decision(Box<Input>, oneshot::Sender<Result<(), Refused>>),
}

/// Why a decision was not taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// Another replica decides.
    #[error("this replica does not lead")]
    NotLeading,
    /// It is not allowed now.
    #[error("{0}")]
    NotAllowed(String),
    /// It was allowed, and could not be written.
    #[error("the decision could not be written to the journal and does not count")]
    NotWritten,
}

/// How the others speak to the loop. Cheap to clone.
#[derive(Clone)]
pub struct BrainHandle {
    inputs: mpsc::Sender<Input>,
    asks: mpsc::Sender<Ask>,
}

impl BrainHandle {
    /// Where inputs go.
    pub fn inputs(&self) -> &mpsc::Sender<Input> {
        &self.inputs
    }

    /// Passes something in if there is room.
    pub fn offer(&self, input: Input) -> bool {
        self.inputs.try_send(input).is_ok()
    }

    /// Passes something in, waiting for room.
    pub async fn tell(&self, input: Input) {
        // The loop is gone only when the process ends.
        let _ = self.inputs.send(input).await;
    }

    /// Asks the engine something.
    pub async fn ask<T: Send + 'static>(
        &self,
        look: impl FnOnce(&Engine, Now) -> T + Send + 'static,
    ) -> Option<T> {
        let (send, receive) = oneshot::channel();
        let question: Question = Box::new(move |engine, now| {
            let _ = send.send(look(engine, now));
        });
        self.asks.send(Ask::Question(question)).await.ok()?;
        receive.await.ok()
    }

    /// Passes a decision of a person in; taken when it is durable.
    pub async fn decide(&self, command: Command) -> Result<(), Refused> {
        self.put(Input::Command(command)).await
    }

    /// Passes the wish of a person that a host be recovered in; taken when it is durable.
    pub async fn request(&self, request: Request) -> Result<(), Refused> {
        self.put(Input::Request(request)).await
    }

    async fn put(&self, decision: Input) -> Result<(), Refused> {
        let (send, receive) = oneshot::channel();
        let gone = |_| Refused::NotLeading;
        self.asks
            .send(Ask::Decision(Box::new(decision), send))
            .await
            .map_err(|_| Refused::NotLeading)?;
        receive.await.map_err(gone)?
    }
}

/// What waits to be made durable, and what follows from it.
#[derive(Default)]
struct Pending {
    records: Vec<Record>,
    actions: Vec<Action>,
    answers: Vec<oneshot::Sender<Result<(), Refused>>>,
}

/// The loop.
pub struct Brain {
    engine: Engine,
    clock: Clock,
    journal: Journal,
    executor: Executor,
    chronicle: Chronicle,
    metrics: Metrics,
    inputs: mpsc::Receiver<Input>,
    back: mpsc::Sender<Input>,
    asks: mpsc::Receiver<Ask>,
    notices: mpsc::Sender<Notice>,
    /// Rung when a term ended because its records could not be written.
    failed: Arc<Notify>,
    renew_deadline: Duration,
    queue: VecDeque<Pending>,
    committing: Option<Commit>,
    renewed: Option<Instant>,
}

struct Commit {
    task: tokio::task::JoinHandle<Result<(), AppendError>>,
    what: Pending,
    begun: Instant,
}

/// What the loop is made of.
pub struct Parts {
    /// The engine.
    pub engine: Engine,
    /// The clock.
    pub clock: Clock,
    /// The journal.
    pub journal: Journal,
    /// The executor.
    pub executor: Executor,
    /// What is told of incidents.
    pub chronicle: Chronicle,
    /// What is counted.
    pub metrics: Metrics,
    /// The far end of [`channels`].
    pub ends: Ends,
    /// Rung when a term ended because its records could not be written.
    pub failed: Arc<Notify>,
    /// How long a leader may act without having renewed.
    pub renew_deadline: Duration,
}

/// The receiving ends.
pub struct Ends {
    inputs: mpsc::Receiver<Input>,
    back: mpsc::Sender<Input>,
    asks: mpsc::Receiver<Ask>,
}

#[cfg(test)]
impl Ends {
    /// The next input that waits.
    pub(crate) fn told(&mut self) -> Option<Input> {
        self.inputs.try_recv().ok()
    }
}

/// The handle, and the ends that the loop is made with.
pub fn channels() -> (BrainHandle, Ends) {
    let (inputs, input_end) = mpsc::channel(INPUTS);
    let (asks, ask_end) = mpsc::channel(ASKS);
    let ends = Ends {
        inputs: input_end,
        back: inputs.clone(),
        asks: ask_end,
    };
    (BrainHandle { inputs, asks }, ends)
}

impl Brain {
    /// The loop, and the notices for people that it gives.
    pub fn new(parts: Parts) -> (Self, mpsc::Receiver<Notice>) {
        let (notices, told) = mpsc::channel(NOTICES);
        let Parts {
            engine,
            clock,
            journal,
            executor,
            chronicle,
            metrics,
            ends,
            failed,
            renew_deadline,
        } = parts;
        let brain = Self {
            engine,
            clock,
            journal,
            executor,
            chronicle,
            metrics,
            inputs: ends.inputs,
            back: ends.back,
            asks: ends.asks,
            notices,
            failed,
            renew_deadline,
            queue: VecDeque::new(),
            committing: None,
            renewed: None,
        };
        (brain, told)
    }

    /// Runs until `stop`. Every tick beats `heart`: a loop that hangs is none that the process can do without.
    pub async fn run(mut self, heart: Heartbeat, stop: CancellationToken) {
        let mut tick = tokio::time::interval(TICK);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        // An agent's silence becomes too long at a moment of its own; heartbeats only put it off.
        let mut silence: Option<tokio::time::Instant> = None;
        let mut burst = Vec::with_capacity(BURST);
        loop {
            tokio::select! {
                // Commits first: they free actions that wait.
                biased;
                () = stop.cancelled() => return,
                outcome = committed(&mut self.committing) => self.settle(outcome),
                _ = tick.tick() => {
                    silence = self.tick();
                    heart.beat();
                }
                () = at(silence) => silence = self.tick(),
                Some(ask) = self.asks.recv() => {
                    self.answer(ask);
                    // Those who ask do not keep those who tell waiting.
                    for _ in 0..BURST {
                        let Ok(input) = self.inputs.try_recv() else { break };
                        self.step(input);
                    }
                }
                n = self.inputs.recv_many(&mut burst, BURST) => {
                    if n == 0 {
                        return;
                    }
                    for input in burst.drain(..) {
                        self.step(input);
                    }
                }
            }
        }
    }

    /// One tick; says when the next agent will have been silent for too long.
    fn tick(&mut self) -> Option<tokio::time::Instant> {
        // A silence that becomes too long while the step is taken is the next one, and not missed.
        let began = self.clock.mono();
        self.step(Input::Tick);
        let next = self.engine.next_silence(began)?;
        self.clock.instant_of(next).map(Into::into)
    }

    fn answer(&mut self, ask: Ask) {
        match ask {
            Ask::Question(question) => question(&self.engine, self.clock.now()),
            Ask::Decision(decision, reply) => self.decision(*decision, reply),
        }
    }

    fn decision(&mut self, decision: Input, reply: oneshot::Sender<Result<(), Refused>>) {
        if self.engine.leads().is_none() {
            let _ = reply.send(Err(Refused::NotLeading));
            return;
        }
        let output = self.engine.step(decision, self.clock.now());
        let why = output.notices.iter().find_map(|notice| match notice {
            Notice::CommandRefused { why, .. } | Notice::RequestRefused { why, .. } => Some(why.clone()),
            _ => None,
        });
        // A leader that may not act just now takes no decisions either.
        let nothing = output.journal.is_empty();
        match why {
            Some(why) => {
                let _ = reply.send(Err(Refused::NotAllowed(why)));
                self.take(output, None);
            }
            None if nothing => {
                let _ = reply.send(Err(Refused::NotLeading));
                self.take(output, None);
            }
            None => self.take(output, Some(reply)),
        }
    }

    fn step(&mut self, input: Input) {
        match &input {
            Input::Lead { journal, epoch, .. } => self.begin_term(*epoch, journal),
            Input::LeaseRenewed { .. } => self.renewed = Some(Instant::now()),
            Input::Configure(config) => self.renew_deadline = config.renew_deadline,
            _ => {}
        }
        let begun = Instant::now();
        let output = self.advance(input);
        self.metrics.steps.inc();
        self.metrics.step_seconds.observe(begun.elapsed().as_secs_f64());
        self.metrics.leader.set(i64::from(self.engine.leads().is_some()));
        self.take(output, None);
    }

    /// One step of the engine. What a term that it ends had wanted does not leave any more.
    fn advance(&mut self, input: Input) -> Output {
        let led = self.engine.leads();
        let output = self.engine.step(input, self.clock.now());
        if let Some(term) = led.filter(|_| self.engine.leads() != led) {
            self.executor.terms().end(term);
        }
        output
    }

    fn begin_term(&mut self, epoch: Epoch, journal: &[Record]) {
        tracing::info!(term = epoch.0, records = journal.len(), "leading a term");
        self.drop_queue();
        self.renewed = Some(Instant::now());
        self.chronicle.replace(journal);
    }

    fn drop_queue(&mut self) {
        for pending in self.queue.drain(..) {
            refuse(pending);
        }
        // One that was sent may still arrive; the next append then finds out. It is not tried again.
        if let Some(commit) = self.committing.take() {
            commit.task.abort();
            refuse(commit.what);
        }
    }

    fn take(&mut self, output: Output, reply: Option<oneshot::Sender<Result<(), Refused>>>) {
        let Output {
            journal,
            actions,
            notices,
        } = output;
        for notice in notices {
            if self.notices.try_send(notice).is_err() {
                tracing::warn!("too many notices wait; one is lost");
            }
        }
        if journal.is_empty() && self.queue.is_empty() && self.committing.is_none() {
            self.start(actions);
            if let Some(reply) = reply {
                let _ = reply.send(Ok(()));
            }
            return;
        }
        if journal.is_empty() && actions.is_empty() && reply.is_none() {
            return;
        }
        self.queue.push_back(Pending {
            records: journal,
            actions,
            answers: reply.into_iter().collect(),
        });
        self.pump();
    }

    /// Makes everything that waits durable in one append.
    fn pump(&mut self) {
        if self.committing.is_some() || self.queue.is_empty() {
            return;
        }
        let mut what = Pending::default();
        for mut pending in self.queue.drain(..) {
            what.records.append(&mut pending.records);
            what.actions.append(&mut pending.actions);
            what.answers.append(&mut pending.answers);
        }
        if what.records.is_empty() {
            self.finish(what);
            return;
        }
        let (journal, records) = (self.journal.clone(), what.records.clone());
        let patience = self.patience();
        let task = tokio::spawn(async move { append(&journal, records, patience).await });
        self.committing = Some(Commit {
            task,
            what,
            begun: Instant::now(),
        });
    }

    /// Until when appending is tried again: while the lease would let us act.
    fn patience(&self) -> Instant {
        self.renewed.unwrap_or_else(Instant::now) + self.renew_deadline
    }

    fn settle(&mut self, outcome: Result<(), AppendError>) {
        let Some(commit) = self.committing.take() else {
            return;
        };
        self.metrics
            .journal_commit
            .observe(commit.begun.elapsed().as_secs_f64());
        match outcome {
            Ok(()) => {
                self.chronicle.append(&commit.what.records);
                self.finish(commit.what);
                self.pump();
            }
            Err(error) => {
                tracing::error!(%error, "decisions could not be written; they do not count, and this term ends");
                self.metrics.journal_failures.inc();
                refuse(commit.what);
                self.drop_queue();
                let output = self.advance(Input::JournalFailed);
                self.take(output, None);
                self.metrics.leader.set(0);
                self.failed.notify_one();
            }
        }
    }

    fn finish(&mut self, what: Pending) {
        self.start(what.actions);
        for answer in what.answers {
            let _ = answer.send(Ok(()));
        }
    }

    fn start(&self, actions: Vec<Action>) {
        for action in actions {
            tracing::debug!(?action, "starting");
            self.executor.start(action, self.back.clone());
        }
    }
}

fn refuse(pending: Pending) {
    for answer in pending.answers {
        let _ = answer.send(Err(Refused::NotWritten));
    }
}

/// That moment; never, if there is none.
async fn at(moment: Option<tokio::time::Instant>) {
    match moment {
        None => std::future::pending().await,
        Some(moment) => tokio::time::sleep_until(moment).await,
    }
}

/// The end of the append that is under way; never, if there is none.
async fn committed(commit: &mut Option<Commit>) -> Result<(), AppendError> {
    match commit {
        None => std::future::pending().await,
        Some(commit) => match (&mut commit.task).await {
            Ok(result) => result,
            Err(error) => Err(AppendError::Unavailable(error.to_string())),
        },
    }
}

async fn append(journal: &Journal, records: Vec<Record>, until: Instant) -> Result<(), AppendError> {
    loop {
        match journal.append(records.clone()).await {
            Err(AppendError::Unavailable(why)) if Instant::now() + RETRY < until => {
                tracing::warn!(why, "the journal cannot be written; trying again");
                tokio::time::sleep(RETRY).await;
            }
            other => return other,
        }
    }
}
