//! Puts and gets: copies where the target's memory is mapped, otherwise device writes and reads, one for each contiguous run (MPI
//! 5.0, section 12.3).

use std::sync::atomic::{Ordering, fence};

use verbs::SendOp;

use crate::error::{Class, Error, Result};
use crate::memory::Buffer;
use crate::p2p::engine::Started;
use crate::req::request::Request;
use crate::rma::epoch::{BeforeOp, LockKind};
use crate::rma::object::{Flavor, PendingOp, Window};
use crate::rma::target::{ElementLocation, Target, TargetRange};
use crate::status::{PROC_NULL, Status};

/// Number of pending operations above which completed ones are dropped.
const PENDING_MANY: usize = 256;

/// How the program learns of the completion of an operation: by a flush or the end of the epoch, or by its request.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum CompleteBy {
    Flush,
    Request,
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
    pub fn put(&self, origin: &Buffer, at: &TargetRange) -> Result<()> {
        if self.put_mapped(origin, at) {
            return Ok(());
        }
        self.copy(origin, at, SendOp::Write, CompleteBy::Flush).map(drop)
    }

    /// Reads elements of a member's memory into a buffer (`MPI_Get`), which is filled after a flush, or the epoch's end
    /// (MPI 5.0, section 12.3.2).
    ///
    /// # Errors
    /// As [`Window::put`].
    #[inline]
    pub fn get(&self, origin: &Buffer, at: &TargetRange) -> Result<()> {
        if self.get_mapped(origin, at) {
            return Ok(());
        }
        self.copy(origin, at, SendOp::Read, CompleteBy::Flush).map(drop)
    }

    /// As [`Window::put`], with a request that completes when the buffer may be reused. Only in lock epochs
    /// (MPI 5.0, section 12.3.5).
    ///
    /// # Errors
    /// As [`Window::put`].
    pub fn rput(&self, origin: &Buffer, at: &TargetRange) -> Result<Request> {
        self.copy(origin, at, SendOp::Write, CompleteBy::Request).map(|started| self.request(started))
    }

    /// As [`Window::get`], with a request that completes when the buffer is filled. Only in lock epochs (MPI 5.0, section 12.3.5).
    ///
    /// # Errors
    /// As [`Window::put`].
    pub fn rget(&self, origin: &Buffer, at: &TargetRange) -> Result<Request> {
        self.copy(origin, at, SendOp::Read, CompleteBy::Request).map(|started| self.request(started))
    }

    pub(super) fn request(&self, started: Started) -> Request {
        Request::new(&self.0.comm, started)
    }

    fn copy(
        &self,
        origin: &Buffer,
        at: &TargetRange,
        op: fn(verbs::RemoteAddr) -> SendOp,
        complete_by: CompleteBy,
    ) -> Result<Started> {
        let Some((target, elements)) = self.prepare_target(origin, at, complete_by)? else {
            return Ok(Started::Completed(Status::empty()));
        };
        let is_read = op(verbs::RemoteAddr::default()).fetches();
        match elements {
            ElementLocation::Mapped(there) => {
                self.core().host().charge_copy(origin.len());
                let (from, to) = if is_read { (&there, origin) } else { (origin, &there) };
                to.copy_overlapping_from(from);
                // The program may next store a flag that another process polls.
                fence(Ordering::Release);
                Ok(Started::Completed(Status::empty()))
            }
            ElementLocation::Remote(places) => {
                if complete_by == CompleteBy::Flush && self.queue_as_message(origin, at, target, !is_read)? {
                    return Ok(Started::Completed(Status::empty()));
                }
                let started =
                    self.core().with(|engine| engine.rdma_transfer(target.process, &places, origin, op))?;
                Ok(self.record_pending(at.rank, started, complete_by))
            }
        }
    }

    /// Queues an operation that is sent as a message when its epoch completes. Returns whether it was queued.
    fn queue_as_message(
        &self,
        origin: &Buffer,
        at: &TargetRange,
        target: &Target,
        is_put: bool,
    ) -> Result<bool> {
        let (Some(message_rma), Some(run)) = (&self.0.message_rma, at.datatype.single_run(at.count)) else {
            return Ok(false);
        };
        if !message_rma.sends_as_message(is_put, origin.len())
            || !self.with_state(|state| state.epochs.is_started())
        {
            return Ok(false);
        }
        let offset = (target.offset(at)? + run.offset) as u64;
        message_rma.queue(self.core().host(), at.rank, is_put, offset, origin);
        Ok(true)
    }

    /// The target's elements, which have the origin's size in bytes; `None` for [`PROC_NULL`], and for no bytes. Takes the target's
    /// lock if the epoch requires it.
    pub(super) fn prepare_target(
        &self,
        origin: &Buffer,
        at: &TargetRange,
        complete_by: CompleteBy,
    ) -> Result<Option<(&Target, ElementLocation)>> {
        self.begin_call()?;
        self.0.is_ordered.store(false, Ordering::Relaxed);
        if at.rank == PROC_NULL {
            return Ok(None);
        }
        let target = self.target(at.rank)?;
        let epoch = self.0.epoch.current();
        let before = self.with_state(|state| match complete_by {
            CompleteBy::Flush => state.epochs.check_operation(at.rank),
            CompleteBy::Request => state.epochs.check_lock_epoch_operation(at.rank),
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
        if before == BeforeOp::TakeLock {
            target.access(&self.0.comm)?.words.lock(self.core(), LockKind::Shared, self.group())?;
            self.with_state(|state| state.epochs.record_lazy_lock(at.rank));
        }
        if is_dynamic {
            return Ok(Some((target, self.attached_elements(target, at)?)));
        }
        let elements = target.elements(&self.0.comm, at, offset)?;
        if matches!(elements, ElementLocation::Mapped(_)) {
            target.grant.set(epoch);
        }
        Ok(Some((target, elements)))
    }

    /// Records a started operation, for flushes.
    pub(super) fn record_pending(&self, rank: i32, started: Started, complete_by: CompleteBy) -> Started {
        let Started::InProgress(key) = started else { return started };
        let pending = PendingOp { rank, key, is_requested: complete_by == CompleteBy::Request };
        let is_many = self.with_state(|state| {
            state.pending.push(pending);
            self.0.is_pending.store(true, Ordering::Relaxed);
            state.pending.len().is_multiple_of(PENDING_MANY)
        });
        if is_many {
            self.core().test(|engine| {
                self.with_state(|state| state.pending.retain(|pending| !pending.try_forget(engine)));
                None::<()>
            });
        }
        Started::InProgress(key)
    }
}
