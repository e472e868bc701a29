//! Puts and gets: copies where the target's memory is mapped, otherwise device writes and reads, one for each contiguous run (MPI
//! 5.0, section 12.3).

use std::sync::atomic::{Ordering, fence};

use verbs::SendOp;

use crate::error::{Class, Error, Result};
use crate::memory::Buffer;
use crate::p2p::engine::Begun;
use crate::req::request::Request;
use crate::rma::epoch::{LockKind, Ready};
use crate::rma::object::{Flavor, Pending, Window};
use crate::rma::target::{At, Elements, Target};
use crate::status::{PROC_NULL, Status};

/// Number of pending operations above which completed ones are dropped.
const PENDING_MANY: usize = 256;

/// Whether the program holds a request for an operation.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    Plain,
    Requested,
}

impl Window {
    /// Writes a buffer's elements into a member's memory (`MPI_Put`). The buffer may be reused after a flush, or the epoch's end
    /// (MPI 5.0, section 12.3.1).
    ///
    /// # Errors
    /// [`Class::RMA_SYNC`] outside of an epoch that includes the target; [`Class::RANK`], [`Class::DISP`] and [`Class::RMA_RANGE`]
    /// for elements that do not exist; [`Class::TRUNCATE`] for more bytes than the target's elements have; [`Class::PROC_ABORTED`]
    /// when the target is lost.
    #[inline]
    pub fn put(&self, origin: &Buffer, at: &At) -> Result<()> {
        if self.put_near(origin, at) {
            return Ok(());
        }
        self.copy(origin, at, SendOp::Write, Form::Plain).map(drop)
    }

    /// Reads elements of a member's memory into a buffer (`MPI_Get`), which is filled after a flush, or the epoch's end
    /// (MPI 5.0, section 12.3.2).
    ///
    /// # Errors
    /// As [`Window::put`].
    #[inline]
    pub fn get(&self, origin: &Buffer, at: &At) -> Result<()> {
        if self.get_near(origin, at) {
            return Ok(());
        }
        self.copy(origin, at, SendOp::Read, Form::Plain).map(drop)
    }

    /// As [`Window::put`], with a request that completes when the buffer may be reused. Only in lock epochs
    /// (MPI 5.0, section 12.3.5).
    ///
    /// # Errors
    /// As [`Window::put`].
    pub fn rput(&self, origin: &Buffer, at: &At) -> Result<Request> {
        self.copy(origin, at, SendOp::Write, Form::Requested).map(|begun| self.request(begun))
    }

    /// As [`Window::get`], with a request that completes when the buffer is filled. Only in lock epochs (MPI 5.0, section 12.3.5).
    ///
    /// # Errors
    /// As [`Window::put`].
    pub fn rget(&self, origin: &Buffer, at: &At) -> Result<Request> {
        self.copy(origin, at, SendOp::Read, Form::Requested).map(|begun| self.request(begun))
    }

    pub(super) fn request(&self, begun: Begun) -> Request {
        Request::new(&self.0.comm, begun)
    }

    fn copy(
        &self,
        origin: &Buffer,
        at: &At,
        op: fn(verbs::RemoteAddr) -> SendOp,
        form: Form,
    ) -> Result<Begun> {
        let Some((target, elements)) = self.reach(origin, at, form)? else {
            return Ok(Begun::Over(Status::empty()));
        };
        let is_read = op(verbs::RemoteAddr::default()).fetches();
        match elements {
            Elements::Near(there) => {
                self.core().host().charge_copy(origin.len());
                let (from, to) = if is_read { (&there, origin) } else { (origin, &there) };
                to.copy_apart(from);
                // The program may next store a flag that another process polls.
                fence(Ordering::Release);
                Ok(Begun::Over(Status::empty()))
            }
            Elements::Far(places) => {
                if form == Form::Plain && self.carry(origin, at, target, !is_read)? {
                    return Ok(Begun::Over(Status::empty()));
                }
                let begun =
                    self.core().with(|engine| engine.move_bytes(target.process, &places, origin, op))?;
                Ok(self.pend(at.rank, begun, form))
            }
        }
    }

    /// Queues an operation that is sent as a message when its epoch completes. Returns whether it was queued.
    fn carry(&self, origin: &Buffer, at: &At, target: &Target, is_put: bool) -> Result<bool> {
        let (Some(carrier), Some(run)) = (&self.0.carrier, at.datatype.single_run(at.count)) else {
            return Ok(false);
        };
        if !carrier.takes(is_put, origin.len()) || !self.with_state(|state| state.epochs.is_started()) {
            return Ok(false);
        }
        let offset = (target.offset(at)? + run.offset) as u64;
        carrier.keep(self.core().host(), at.rank, is_put, offset, origin);
        Ok(true)
    }

    /// The target's elements, which have the origin's size in bytes; `None` for [`PROC_NULL`], and for no bytes. Takes the target's
    /// lock if the epoch requires it.
    pub(super) fn reach(&self, origin: &Buffer, at: &At, form: Form) -> Result<Option<(&Target, Elements)>> {
        self.enter()?;
        self.0.is_ordered.store(false, Ordering::Relaxed);
        if at.rank == PROC_NULL {
            return Ok(None);
        }
        let target = self.target(at.rank)?;
        let epoch = self.0.epoch.now();
        let ready = self.with_state(|state| match form {
            Form::Plain => state.epochs.operate(at.rank),
            Form::Requested => state.epochs.operate_passively(at.rank),
        })?;
        if !at.datatype.is_committed() {
            return Err(Error::new(
                Class::TYPE,
                "the target's datatype is not committed; call MPI_Type_commit first",
            ));
        }
        let bytes = match at.datatype.single_run(at.count) {
            Some(run) => run.length,
            None => at.datatype.bytes(at.count).map_err(|error| Error::new(Class::COUNT, error.text))?,
        };
        if origin.len() != bytes {
            let text =
                format!("the origin has {} bytes, but the target's elements have {bytes}", origin.len());
            return Err(Error::new(Class::TRUNCATE, text));
        }
        let is_dynamic = self.0.flavor == Flavor::Dynamic;
        let offset = if is_dynamic { 0 } else { target.offset(at)? };
        if bytes == 0 {
            return Ok(None);
        }
        if ready == Ready::Lock {
            target.way(&self.0.comm)?.words.lock(self.core(), LockKind::Shared, self.group())?;
            self.with_state(|state| state.epochs.locked_lazily(at.rank));
        }
        if is_dynamic {
            return Ok(Some((target, self.attached_elements(target, at)?)));
        }
        let elements = target.elements(&self.0.comm, at, offset)?;
        if matches!(elements, Elements::Near(_)) {
            target.grant.give(epoch);
        }
        Ok(Some((target, elements)))
    }

    /// Records a started operation, for flushes.
    pub(super) fn pend(&self, rank: i32, begun: Begun, form: Form) -> Begun {
        let Begun::Under(key) = begun else { return begun };
        let pending = Pending { rank, key, is_requested: form == Form::Requested };
        let is_many = self.with_state(|state| {
            state.pending.push(pending);
            self.0.is_pending.store(true, Ordering::Relaxed);
            state.pending.len().is_multiple_of(PENDING_MANY)
        });
        if is_many {
            self.core().test(|engine| {
                self.with_state(|state| state.pending.retain(|pending| !pending.is_forgotten(engine)));
                None::<()>
            });
        }
        Begun::Under(key)
    }
}
