//! Synchronization: fences, locks, flushes, and post-start-complete-wait (MPI 5.0, section 12.5).

use std::sync::atomic::{Ordering, fence};

use crate::coll::collective::Collective;
use crate::comm::group::Group;
use crate::error::{Class, Error, Result};
use crate::memory::Buffer;
use crate::p2p::calls::PeerTag;
use crate::p2p::engine::{Engine, Mode, Started};
use crate::req::request::Request;
use crate::rma::epoch::{Assert, Epochs, LockKind};
use crate::rma::message_rma::{MessageRma, SyncOverhead};
use crate::rma::object::{PendingOp, Window};
use crate::rma::transfer::CompleteBy;
use crate::status::{PROC_NULL, Status};

/// Tags of the messages between members: the receiver may access the sender's memory; the sender has completed its access.
const POSTED: i32 = 0;
const COMPLETED: i32 = 1;

impl PendingOp {
    /// Forgets the operation if it has completed, unless a flush must report its error. Returns whether it did.
    pub(super) fn try_forget(&self, engine: &mut Engine) -> bool {
        if self.is_requested {
            return engine.is_complete(self.key);
        }
        let is_good = engine.peek(self.key).is_some_and(|status| status.error.is_none());
        is_good && engine.take_status(self.key).is_some()
    }
}

impl Window {
    /// Waits until this process's operations on a rank, or on all ranks, have completed.
    fn wait_pending(&self, call: &'static str, rank: Option<i32>) -> Result<()> {
        fence(Ordering::SeqCst);
        if self.with_state(|state| state.pending.is_empty()) {
            // A program that polls for others' stores calls this in its loop, and others may wait for its replies.
            self.core().host().charge_poll();
            self.core().with(|engine| engine.progress(true));
            return Ok(());
        }
        let mut failed = None;
        let done = self.core().wait(call, |engine| {
            self.with_state(|state| {
                state.pending.retain(|pending| {
                    if rank.is_some_and(|rank| rank != pending.rank) {
                        return true;
                    }
                    if pending.is_requested {
                        return !engine.is_complete(pending.key);
                    }
                    match engine.take_status(pending.key) {
                        Some(status) => {
                            failed = failed.take().or(status.error);
                            false
                        }
                        None => true,
                    }
                });
                let is_left = |pending: &PendingOp| rank.is_none_or(|rank| rank == pending.rank);
                (!state.pending.iter().any(is_left)).then_some(())
            })
        });
        self.with_state(|state| self.0.is_pending.store(!state.pending.is_empty(), Ordering::Relaxed));
        done?;
        failed.map_or(Ok(()), |error| Err(Error::clone(&error)))
    }

    /// Waits until all of this process's operations have completed.
    pub(super) fn wait_all_pending(&self, call: &'static str) -> Result<()> {
        self.wait_pending(call, None)
    }

    /// Waits for all members.
    pub(super) fn barrier(&self) -> Result<()> {
        self.0.comm.collective(&Collective::Barrier)
    }

    /// Completes all operations of all members, and opens a new epoch on all of them (`MPI_Win_fence`), unless they assert that no
    /// operation follows. Collective (MPI 5.0, section 12.5.1).
    ///
    /// # Errors
    /// [`Class::RMA_SYNC`] within another epoch; [`Class::PROC_ABORTED`]; errors of operations.
    pub fn fence(&self, assert: Assert) -> Result<()> {
        self.begin_call()?;
        self.change_epochs(|epochs| epochs.fence(!assert.has(Assert::NOSUCCEED)))?;
        let done = self.wait_all_pending("MPI_Win_fence");
        let synchronized = self.barrier();
        fence(Ordering::SeqCst);
        done.and(synchronized)
    }

    /// The ranks of a group's members.
    fn ranks_of(&self, group: &Group) -> Result<Vec<i32>> {
        let rank = |process: &u32| {
            let none = || Error::new(Class::GROUP, "the group has members that the window does not have");
            self.group().rank_of(*process).ok_or_else(none)
        };
        group.members().iter().map(rank).collect()
    }

    fn notify(&self, rank: i32, tag: i32) -> Result<()> {
        // Nobody waits for this request; the send completes in the background.
        self.0.comm.isend(Mode::Standard, &Buffer::empty(), PeerTag { rank, tag }).map(drop)
    }

    /// Exposes this process's memory to the members of a group (`MPI_Win_post`; MPI 5.0, section 12.5.2).
    ///
    /// # Errors
    /// [`Class::RMA_SYNC`] if the previous post has not ended; [`Class::GROUP`] for members that the window does not have;
    /// [`Class::PROC_ABORTED`].
    pub fn post(&self, group: &Group, assert: Assert) -> Result<()> {
        self.begin_call()?;
        let ranks = self.ranks_of(group)?;
        self.with_state(|state| state.epochs.post())?;
        fence(Ordering::SeqCst);
        match &self.0.message_rma {
            Some(message_rma) => message_rma.post(self.core().host(), ranks.clone()),
            None => self.post_complete_receives(&ranks)?,
        }
        if assert.has(Assert::NOCHECK) {
            return Ok(());
        }
        if let Some(message_rma) = &self.0.message_rma {
            message_rma.charge(self.core().host(), SyncOverhead::POST);
        }
        ranks.iter().try_for_each(|rank| self.notify(*rank, POSTED))
    }

    /// Posts receives for the completion messages of these ranks.
    fn post_complete_receives(&self, ranks: &[i32]) -> Result<()> {
        let post =
            |rank: &i32| self.0.comm.ireceive(Buffer::empty(), PeerTag { rank: *rank, tag: COMPLETED });
        *self.0.posted.lock(self.core().host()) = ranks.iter().map(post).collect::<Result<_>>()?;
        Ok(())
    }

    /// Opens an epoch on a group's memory, once all of its members have posted (`MPI_Win_start`; MPI 5.0, section 12.5.2).
    ///
    /// # Errors
    /// As [`Window::post`].
    pub fn start(&self, group: &Group, assert: Assert) -> Result<()> {
        self.begin_call()?;
        let ranks = self.ranks_of(group)?;
        self.change_epochs(|epochs| epochs.start(ranks.clone()))?;
        if assert.has(Assert::NOCHECK) {
            return Ok(());
        }
        for rank in ranks {
            self.0.comm.receive(Buffer::empty(), PeerTag { rank, tag: POSTED })?.ok()?;
        }
        fence(Ordering::SeqCst);
        Ok(())
    }

    /// Closes the epoch of [`Window::start`], once its operations have completed (MPI 5.0, section 12.5.2).
    ///
    /// # Errors
    /// [`Class::RMA_SYNC`] without a start; [`Class::PROC_ABORTED`]; errors of operations.
    pub fn complete(&self) -> Result<()> {
        self.begin_call()?;
        let ranks = self.change_epochs(Epochs::complete)?;
        if let Some(message_rma) = &self.0.message_rma {
            return self.complete_with_messages(message_rma, &ranks);
        }
        let done = self.wait_all_pending("MPI_Win_complete");
        ranks.iter().try_for_each(|rank| self.notify(*rank, COMPLETED))?;
        done
    }

    /// As [`Window::complete`], for operations sent as messages: after those that the device carries out.
    fn complete_with_messages(&self, message_rma: &MessageRma, ranks: &[i32]) -> Result<()> {
        message_rma.charge(self.core().host(), SyncOverhead::COMPLETE);
        let is_pending = || self.with_state(|state| !state.pending.is_empty());
        let done = if is_pending() { self.wait_all_pending("MPI_Win_complete") } else { Ok(()) };
        for (rank, started) in message_rma.send_queued(self.core(), ranks)? {
            match started {
                Started::Completed(status) => status.ok().map(drop)?,
                in_progress => drop(self.record_pending(rank, in_progress, CompleteBy::Flush)),
            }
        }
        let sent = if is_pending() { self.wait_all_pending("MPI_Win_complete") } else { Ok(()) };
        done.and(sent)
    }

    /// Waits until all members of the group of [`Window::post`] have completed (MPI 5.0, section 12.5.2).
    ///
    /// # Errors
    /// [`Class::RMA_SYNC`] without a post; [`Class::PROC_ABORTED`].
    pub fn wait(&self) -> Result<()> {
        self.begin_call()?;
        self.with_state(|state| state.epochs.check_posted())?;
        if let Some(message_rma) = &self.0.message_rma {
            let done = self.core().wait("MPI_Win_wait", |engine| message_rma.check_completed(engine))?;
            return done.and(self.end_exposure(Vec::new()));
        }
        let mut posted = std::mem::take(&mut *self.0.posted.lock(self.core().host()));
        let statuses = Request::wait_all(&mut posted.iter_mut().collect::<Vec<_>>());
        self.end_exposure(statuses)
    }

    /// As [`Window::wait`], without waiting: returns whether all have completed (MPI 5.0, section 12.5.2).
    ///
    /// # Errors
    /// As [`Window::wait`].
    pub fn test(&self) -> Result<bool> {
        self.begin_call()?;
        self.with_state(|state| state.epochs.check_posted())?;
        if let Some(message_rma) = &self.0.message_rma {
            let done = self.core().test(|engine| message_rma.check_completed(engine)).transpose()?;
            return done.map_or(Ok(false), |()| self.end_exposure(Vec::new()).map(|()| true));
        }
        let mut posted = std::mem::take(&mut *self.0.posted.lock(self.core().host()));
        match Request::test_all(&mut posted.iter_mut().collect::<Vec<_>>()) {
            Some(statuses) => self.end_exposure(statuses).map(|()| true),
            None => {
                *self.0.posted.lock(self.core().host()) = posted;
                Ok(false)
            }
        }
    }

    fn end_exposure(&self, statuses: Vec<Status>) -> Result<()> {
        self.with_state(|state| state.epochs.end_exposure());
        fence(Ordering::SeqCst);
        statuses.into_iter().try_for_each(|status| status.ok().map(drop))
    }

    /// Locks a rank's memory, once no conflicting lock is held (`MPI_Win_lock`; MPI 5.0, section 12.5.3).
    ///
    /// # Errors
    /// [`Class::RANK`]; [`Class::RMA_SYNC`] if it is locked already, or in another epoch; [`Class::PROC_ABORTED`] when the target
    /// or the holder of its lock is lost.
    pub fn lock(&self, kind: LockKind, rank: i32, assert: Assert) -> Result<()> {
        self.begin_call()?;
        if rank == PROC_NULL {
            return Ok(());
        }
        let target = self.target(rank)?;
        self.with_state(|state| state.epochs.check_lock(rank))?;
        let is_checked = !assert.has(Assert::NOCHECK);
        if is_checked {
            target.access(&self.0.comm)?.words.lock(self.core(), kind, self.group())?;
        }
        self.change_epochs(|epochs| epochs.record_lock(rank, is_checked.then_some(kind)));
        Ok(())
    }

    /// Completes the operations on a locked rank, and unlocks it (`MPI_Win_unlock`; MPI 5.0, section 12.5.3).
    ///
    /// # Errors
    /// [`Class::RANK`]; [`Class::RMA_SYNC`] if it is not locked; [`Class::PROC_ABORTED`]; errors of operations.
    pub fn unlock(&self, rank: i32) -> Result<()> {
        self.begin_call()?;
        if rank == PROC_NULL {
            return Ok(());
        }
        let target = self.target(rank)?;
        self.with_state(|state| state.epochs.check_unlock(rank))?;
        let done = self.wait_pending("MPI_Win_unlock", Some(rank));
        if let Some(kind) = self.change_epochs(|epochs| epochs.unlock(rank)) {
            let started = target.access(&self.0.comm)?.words.unlock(self.core(), kind, 1)?;
            self.record_pending(rank, started, CompleteBy::Flush);
        }
        done
    }

    /// Opens an epoch in which this process shares the locks of all members' memory (`MPI_Win_lock_all`). It takes each lock before
    /// its first operation on that member (MPI 5.0, section 12.5.3).
    ///
    /// # Errors
    /// [`Class::RMA_SYNC`] in another epoch.
    pub fn lock_all(&self, assert: Assert) -> Result<()> {
        self.begin_call()?;
        self.change_epochs(|epochs| epochs.lock_all(!assert.has(Assert::NOCHECK)))
    }

    /// Closes the epoch of [`Window::lock_all`], once its operations have completed (MPI 5.0, section 12.5.3).
    ///
    /// # Errors
    /// [`Class::RMA_SYNC`] without a [`Window::lock_all`]; [`Class::PROC_ABORTED`]; errors of operations.
    pub fn unlock_all(&self) -> Result<()> {
        self.begin_call()?;
        self.with_state(|state| state.epochs.check_unlock_all())?;
        let mut done = self.wait_all_pending("MPI_Win_unlock_all");
        for (rank, times) in self.change_epochs(Epochs::unlock_all) {
            let unlock = || {
                let words = &self.target(rank)?.access(&self.0.comm)?.words;
                let started = words.unlock(self.core(), LockKind::Shared, times)?;
                self.record_pending(rank, started, CompleteBy::Flush);
                Ok(())
            };
            done = done.and(unlock());
        }
        done
    }

    /// Waits until this process's operations on a rank have completed at both sides (`MPI_Win_flush`, and also
    /// `MPI_Win_flush_local`, which waits just as long here) (MPI 5.0, section 12.5.4).
    ///
    /// # Errors
    /// [`Class::RANK`]; [`Class::RMA_SYNC`] unless it is locked; [`Class::PROC_ABORTED`]; errors of operations.
    #[inline]
    pub fn flush(&self, rank: i32) -> Result<()> {
        if self.is_flushed(rank) {
            return Ok(());
        }
        self.flush_pending(rank)
    }

    fn flush_pending(&self, rank: i32) -> Result<()> {
        self.begin_call()?;
        if rank == PROC_NULL {
            return Ok(());
        }
        self.target(rank)?;
        self.with_state(|state| state.epochs.check_flush(Some(rank)))?;
        self.wait_pending("MPI_Win_flush", Some(rank))
    }

    /// As [`Window::flush`], for all ranks (MPI 5.0, section 12.5.4).
    ///
    /// # Errors
    /// As [`Window::flush`].
    pub fn flush_all(&self) -> Result<()> {
        self.begin_call()?;
        self.with_state(|state| state.epochs.check_flush(None))?;
        self.wait_all_pending("MPI_Win_flush_all")
    }

    /// Orders this process's loads and stores in its memory with others' accesses to it (`MPI_Win_sync`; MPI 5.0, section 12.5.4).
    ///
    /// # Errors
    /// [`Class::WIN`] for a window that was freed.
    pub fn sync(&self) -> Result<()> {
        self.begin_call()?;
        fence(Ordering::SeqCst);
        self.core().test(|_| None::<()>);
        Ok(())
    }
}
