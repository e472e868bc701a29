//! [`SchedRun`]: a collective operation in progress, which carries out the rounds of its plan in order.

use std::collections::BTreeSet;
use std::sync::Arc;

use datatypes::Op;

use host::SlotKey;

use crate::error::{Class, Error, Result};
use crate::memory::Buffer;
use crate::p2p::engine::{Engine, Mode, Started, Task};
use crate::p2p::matching::MatchCriteria;
use crate::p2p::operation::{Receive, SourceRanks};
use crate::p2p::wire::{CollCall, MatchKey, Message};
use crate::status::{Status, UNDEFINED};

/// A step of a schedule, with processes and memory in place of ranks and spans.
#[derive(Debug)]
pub(crate) enum SchedStep {
    /// Sends to a process.
    Send { to: u32, buffer: Buffer },
    /// Receives from a process: exactly the buffer's bytes.
    Receive { from: u32, buffer: Buffer },
    /// `into = from op into`, or with `swapped` `into = into op from`.
    Reduce { from: Buffer, into: Buffer, swapped: bool },
    /// Copies all bytes.
    Copy { from: Buffer, to: Buffer },
}

/// What this process does in a collective operation. A plan can be carried out any number of times.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) rounds: Vec<Vec<SchedStep>>,
    /// The context and tag of all its messages.
    pub(crate) match_key: MatchKey,
    pub(crate) op: Option<Op>,
    /// The call that the other members must have made too; `None` if calls are not compared.
    pub(crate) called: Option<CollCall>,
}

/// A plan that is being carried out.
pub(crate) struct SchedRun {
    plan: Arc<Plan>,
    /// Rounds started.
    rounds_started: usize,
    /// Sends and receives of the current round that have not completed, with the size that a receive expects.
    pending: Vec<(SlotKey, Option<u64>)>,
    failed: Option<Error>,
}

impl Task for SchedRun {
    fn advance(&mut self, engine: &mut Engine) -> Option<Status> {
        loop {
            let mut pending = std::mem::take(&mut self.pending);
            pending.retain(|(key, bytes)| match engine.take_status(*key) {
                Some(status) => {
                    self.record_status(status, *bytes);
                    false
                }
                None => true,
            });
            self.pending = pending;
            if !self.pending.is_empty() {
                return None;
            }
            if let Some(error) = self.failed.take() {
                self.report_failure(engine);
                return Some(Status::failed(error));
            }
            if self.rounds_started == self.plan.rounds.len() {
                return Some(Status::empty());
            }
            self.rounds_started += 1;
            if let Err(error) = self.start_round(engine) {
                self.failed = Some(error);
            }
        }
    }

    fn may_wait_forever(&self) -> bool {
        self.plan.called.is_some()
    }

    fn send_coll_checks(&self, engine: &mut Engine) {
        let Some(called) = self.plan.called else { return };
        let awaited = self.pending.iter().filter_map(|(key, _)| engine.awaited(*key));
        let awaited: BTreeSet<u32> = awaited.collect();
        for process in awaited {
            engine.send_control(process, Message::CollCheck { match_key: self.plan.match_key, called });
        }
    }

    fn coll_mismatch(&mut self, engine: &mut Engine, from: u32, match_key: MatchKey, called: CollCall) {
        let Some(own) = self.plan.called.filter(|_| match_key == self.plan.match_key) else { return };
        if !self.pending.iter().any(|(key, _)| engine.awaited(*key) == Some(from)) {
            return;
        }
        self.failed.get_or_insert_with(|| own.mismatch_error(from, called));
        // Transfers in flight run to completion.
        self.pending.retain(|(key, _)| !engine.abandon(*key));
    }
}

impl SchedRun {
    /// A run that has not started.
    pub(crate) fn new(plan: Arc<Plan>) -> Self {
        Self { plan, rounds_started: 0, pending: Vec::new(), failed: None }
    }

    /// Reports a failed operation to the peers of this process, so that they stop waiting.
    fn report_failure(&self, engine: &mut Engine) {
        let Some(called) = self.plan.called else { return };
        engine.record_failure(self.plan.match_key);
        let peers = self.plan.rounds.iter().flatten().filter_map(|step| match step {
            SchedStep::Send { to, .. } => Some(*to),
            SchedStep::Receive { from, .. } => Some(*from),
            SchedStep::Reduce { .. } | SchedStep::Copy { .. } => None,
        });
        for process in peers.collect::<BTreeSet<u32>>() {
            engine.send_control(process, Message::CollMismatch { match_key: self.plan.match_key, called });
        }
    }

    /// Records the status of a completed send or receive.
    fn record_status(&mut self, status: Status, bytes: Option<u64>) {
        let too_few = bytes.filter(|bytes| status.bytes < *bytes);
        let error = match (status.error, too_few) {
            (Some(error), _) => Error::clone(&error),
            (None, Some(bytes)) => {
                let text = format!("a member has sent {} bytes, where {bytes} are expected", status.bytes);
                Error::new(Class::NOT_SAME, text)
            }
            (None, None) => return,
        };
        self.failed.get_or_insert(error);
    }

    /// Starts all steps of the current round: receives first, so that arriving data match posted buffers.
    fn start_round(&mut self, engine: &mut Engine) -> Result<()> {
        let plan = self.plan.clone();
        let round = &plan.rounds[self.rounds_started - 1];
        for step in round {
            if let SchedStep::Receive { from, buffer } = step {
                let MatchKey { context, tag } = plan.match_key;
                let wanted = MatchCriteria { context, source: Some(*from), tag: Some(tag) };
                // The source's rank is not needed.
                let started = engine.receive(Receive {
                    wanted,
                    buffer: buffer.clone(),
                    sources: SourceRanks::One(UNDEFINED),
                });
                self.track(started, Some(buffer.len()));
            }
        }
        for step in round {
            match step {
                SchedStep::Receive { .. } => {}
                SchedStep::Send { to, buffer } => {
                    let started = engine.send(*to, plan.match_key, buffer, Mode::Standard)?;
                    self.track(started, None);
                }
                SchedStep::Reduce { from, into, swapped } => {
                    let op = plan.op.as_ref();
                    let op =
                        op.ok_or_else(|| Error::new(Class::INTERN, "a plan reduces without an operator"))?;
                    engine.host().charge_copy(into.len());
                    reduce(op, from, into, *swapped)?;
                }
                SchedStep::Copy { from, to } => {
                    engine.host().charge_copy(from.len());
                    to.copy_data_from(from);
                }
            }
        }
        Ok(())
    }

    fn track(&mut self, started: Started, bytes: Option<u64>) {
        match started {
            Started::Completed(status) => self.record_status(status, bytes),
            Started::InProgress(key) => self.pending.push((key, bytes)),
        }
    }
}

fn reduce(op: &Op, from: &Buffer, into: &Buffer, swapped: bool) -> Result<()> {
    if !swapped || op.is_commutative() {
        return into.reduce(from, op);
    }
    let right = Buffer::zeroed(into.datatype().clone(), into.count())?;
    right.copy_data_from(from);
    right.reduce(into, op)?;
    into.copy_data_from(&right);
    Ok(())
}
