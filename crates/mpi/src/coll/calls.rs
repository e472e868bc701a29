//! Carries out a [`Collective`] on a [`Comm`] by a schedule of the crate `collectives`: blocking, nonblocking and persistent. Where
//! members share memory, blocking calls use an [exchange](crate::coll::shm) instead.

use std::sync::Arc;

use collectives::{Case, Task, plan_inter, plan_neighbours};
use datatypes::Op;

use crate::coll::args::{Call, Which};
use crate::coll::collective::Collective;
use crate::coll::sched::{Plan, Run};
use crate::coll::shm::PlainCall;
use crate::comm::communicator::Comm;
use crate::comm::context::Plane;
use crate::error::{Class, Error, Result};
use crate::p2p::engine::{Begun, Engine};
use crate::p2p::wire::{Called, Label};
use crate::req::request::Request;

/// Starts a planned operation.
fn begin(engine: &mut Engine, plan: Arc<Plan>) -> Begun {
    engine.scheduled += 1;
    if let Some(called) = plan.called {
        engine.called(plan.label, called);
    }
    engine.begin(Box::new(Run::new(plan)))
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
        if let Some(done) = self.exchange(call) {
            return done;
        }
        let plan = self.plan(call, Self::next_collective)?;
        let begun = self.core().with(|engine| begin(engine, Arc::new(plan)));
        self.core().finish(call.name(), begun).ok().map(drop)
    }

    /// Carries out a short operation on contiguous elements as [`Comm::collective`] does, if it needs no messages. Otherwise it
    /// does nothing and returns `None`.
    #[inline]
    pub fn collective_at_once(&self, call: &PlainCall) -> Option<Result<()>> {
        self.own_exchange().carry_out_plain(call)
    }

    /// Carries out a collective operation without messages, if possible.
    pub(crate) fn exchange(&self, call: &Collective) -> Option<Result<()>> {
        self.own_exchange().carry_out(self, call)
    }

    /// Starts a collective operation (MPI 5.0, section 6.12).
    ///
    /// # Errors
    /// As [`Comm::collective`] for the arguments; other errors are in the request's status.
    pub fn icollective(&self, call: &Collective) -> Result<Request> {
        let plan = self.plan(call, Self::next_background)?;
        let begun = self.core().with(|engine| begin(engine, Arc::new(plan)));
        Ok(Request::new(self, begun))
    }

    /// A persistent request that carries out a collective operation each time it is started. Members may start several of them in
    /// any order (MPI 5.0, section 6.13).
    ///
    /// # Errors
    /// As [`Comm::icollective`].
    pub fn collective_init(&self, call: &Collective) -> Result<Request> {
        let (plan, core) = (Arc::new(self.plan(call, Self::next_background)?), self.core().clone());
        let start = move || Ok(core.with(|engine| begin(engine, plan.clone())));
        Ok(Request::persistent(self, Arc::new(start)))
    }

    fn plan(&self, collective: &Collective, tag: impl FnOnce(&Self) -> i32) -> Result<Plan> {
        let Call { kind, root, input, output, places, op, even, bytes } = Call::of(self, collective)?;
        let (rank, size) = (self.rank() as usize, self.size() as usize);
        let remote = self.remote_group().map_or(0, |group| group.size() as usize);
        let commutative = op.as_ref().is_none_or(Op::is_commutative);
        let mut task = Task { rank, size, remote, root, input, output, commutative, segment: u64::MAX };
        let mut called = None;
        let schedule = match kind {
            Which::Neighbours(neighbours) => plan_neighbours(&neighbours, &task.input, &task.output),
            Which::All(kind) if self.is_inter() => {
                let text = format!("{} needs an intracommunicator", collective.name());
                called = Some(Called::new(kind, root, bytes));
                plan_inter(kind, &task).ok_or_else(|| Error::new(Class::COMM, text))?
            }
            Which::All(kind) => {
                called = Some(Called::new(kind, root, bytes));
                let case = Case { kind, size, bytes, commutative, even, segment: 0, shared: 0 };
                let choice = self.core().tuning().choose(case);
                task.segment = choice.segment;
                let none = || Error::new(Class::INTERN, "an algorithm without memory or schedule was chosen");
                choice.algorithm.plan(&task).ok_or_else(none)?
            }
        };
        let label = Label { context: self.context(Plane::Collective)?, tag: tag(self) };
        let plan = places.plan(&schedule, (self.group(), self.peers()), label, op)?;
        Ok(Plan { called, ..plan })
    }
}
