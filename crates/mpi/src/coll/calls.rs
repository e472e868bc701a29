//! Carries out a [`Collective`] on a [`Comm`] by a schedule of the crate `collectives`: blocking, nonblocking and persistent. Where
//! members share memory, blocking calls use [shared memory](crate::coll::shm) instead.

use std::sync::Arc;

use collectives::{Case, Task, plan_inter, plan_neighbours};
use datatypes::Op;

use crate::coll::args::{CollArgs, Participants};
use crate::coll::collective::Collective;
use crate::coll::sched::{Plan, SchedRun};
use crate::coll::shm::SmallCollective;
use crate::comm::communicator::Comm;
use crate::comm::context::Plane;
use crate::error::{Class, Error, Result};
use crate::p2p::engine::{Engine, Started};
use crate::p2p::wire::{CollCall, MatchKey};
use crate::req::request::Request;

/// Starts a planned operation.
fn start_plan(engine: &mut Engine, plan: Arc<Plan>) -> Started {
    engine.scheduled += 1;
    if let Some(called) = plan.called {
        engine.record_collective(plan.match_key, called);
    }
    engine.start_task(Box::new(SchedRun::new(plan)))
}

impl Comm {
    /// Carries out a collective operation, and returns when this process's part in it has completed (MPI 5.0, chapter 6).
    ///
    /// # Errors
    /// [`Class::ROOT`] for a root that does not exist; [`Class::COUNT`] for counts that do not match the number of ranks;
    /// [`Class::BUFFER`] for `MPI_IN_PLACE` where it is not allowed; [`Class::OP`] for an operator that does not reduce the type;
    /// [`Class::COMM`] for a scan of an intercommunicator; [`Class::TOPOLOGY`] for neighbours of a communicator without a topology;
    /// [`Class::TRUNCATE`] and [`Class::NOT_SAME`] when members' arguments do not match; [`Class::PROC_ABORTED`] when a member is
    /// lost.
    pub fn collective(&self, call: &Collective) -> Result<()> {
        if let Some(done) = self.run_shm(call) {
            return done;
        }
        let plan = self.plan(call, Self::next_collective_tag)?;
        let started = self.core().with(|engine| start_plan(engine, Arc::new(plan)));
        self.core().finish(call.name(), started).ok().map(drop)
    }

    /// Carries out a short operation on contiguous elements as [`Comm::collective`] does, if it needs no messages. Otherwise it
    /// does nothing and returns `None`.
    #[inline]
    pub fn try_collective(&self, call: &SmallCollective) -> Option<Result<()>> {
        self.shm_coll().run_small(call)
    }

    /// Carries out a collective operation without messages, if possible.
    pub(crate) fn run_shm(&self, call: &Collective) -> Option<Result<()>> {
        self.shm_coll().run(self, call)
    }

    /// Starts a collective operation (MPI 5.0, section 6.12).
    ///
    /// # Errors
    /// As [`Comm::collective`] for the arguments; other errors are in the request's status.
    pub fn icollective(&self, call: &Collective) -> Result<Request> {
        let plan = self.plan(call, Self::next_nonblocking_tag)?;
        let started = self.core().with(|engine| start_plan(engine, Arc::new(plan)));
        Ok(Request::new(self, started))
    }

    /// A persistent request that carries out a collective operation each time it is started. Members may start several of them in
    /// any order (MPI 5.0, section 6.13).
    ///
    /// # Errors
    /// As [`Comm::icollective`].
    pub fn collective_init(&self, call: &Collective) -> Result<Request> {
        let (plan, core) = (Arc::new(self.plan(call, Self::next_nonblocking_tag)?), self.core().clone());
        let start = move || Ok(core.with(|engine| start_plan(engine, plan.clone())));
        Ok(Request::persistent(self, Arc::new(start)))
    }

    fn plan(&self, collective: &Collective, tag: impl FnOnce(&Self) -> i32) -> Result<Plan> {
        let CollArgs { kind, root, input, output, call_buffers, op, equal_blocks, bytes } =
            CollArgs::new(self, collective)?;
        let (rank, size) = (self.rank() as usize, self.size() as usize);
        let remote_size = self.remote_group().map_or(0, |group| group.size() as usize);
        let commutative = op.as_ref().is_none_or(Op::is_commutative);
        let hosts = if self.is_inter() { [].into() } else { self.hosts()? };
        let mut task =
            Task { rank, size, remote_size, root, input, output, commutative, segment: u64::MAX, hosts };
        let mut called = None;
        let schedule = match kind {
            Participants::Neighbours(neighbours) => plan_neighbours(&neighbours, &task.input, &task.output),
            Participants::All(kind) if self.is_inter() => {
                let text = format!("{} needs an intracommunicator", collective.name());
                called = Some(CollCall::new(kind, root, bytes));
                plan_inter(kind, &task).ok_or_else(|| Error::new(Class::COMM, text))?
            }
            Participants::All(kind) => {
                called = Some(CollCall::new(kind, root, bytes));
                let hosts = task.hosts.iter().max().map_or(1, |last| last + 1);
                let case =
                    Case { kind, size, bytes, commutative, equal_blocks, segment: 0, shared: 0, hosts };
                let choice = self.core().tuning().choose(case, || self.is_of_own_job());
                task.segment = choice.segment;
                let none = || Error::new(Class::INTERN, "an algorithm without memory or schedule was chosen");
                choice.algorithm.plan(&task).ok_or_else(none)?
            }
        };
        let match_key = MatchKey { context: self.context(Plane::Collective)?, tag: tag(self) };
        let (groups, pool) = ((self.group(), self.peers()), self.core().scratch());
        let plan = call_buffers.plan(&schedule, groups, match_key, op, pool)?;
        Ok(Plan { called, ..plan })
    }
}
