//! [`Request`]: an operation in progress, and waiting for one or several; [`Requests`]: the same for requests by number (MPI 5.0,
//! section 3.7).
//!
//! A request is the number of an operation in the engine's table, so that starting and completing one allocates nothing. Requests
//! that are more than an operation have a table of their own ([`SpecialRequest`]). All requests that completed when they were
//! started, with an empty status, share one number.

use std::sync::Arc;

use host::SlotKey;

use crate::comm::communicator::Comm;
use crate::core::Core;
use crate::error::{Class, Error, Result};
use crate::p2p::engine::{Engine, Started};
use crate::req::partitioned::PartitionedRequest;
use crate::req::special::{Generalized, RequestKind, RequestState, SpecialRequest, StartFn};
use crate::status::{CompletedRequest, Status};

/// The number of a request (`MPI_Request`), for interfaces whose programs hold numbers, as C does. [`Requests`] resolves it. The
/// number of a completed request is not reused until 2^30 others have used its slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RequestId(u64);

/// A decoded number.
#[derive(Clone, Copy)]
enum DecodedId {
    Null,
    Completed,
    Operation(SlotKey),
    Special(SlotKey),
    Invalid,
}

impl RequestId {
    /// The number of no request; waiting for it is allowed.
    pub const NULL: Self = Self(0);
    /// A request that completed when it was started, such as a short message that has been sent, with an empty status.
    pub const COMPLETED: Self = Self(1);

    /// The number for the program: odd and more than 2^32, except [`RequestId::NULL`] and [`RequestId::COMPLETED`], which are 0 and
    /// 1.
    #[inline]
    pub fn number(self) -> u64 {
        self.0
    }

    /// Accepts any number that a program passes, valid or not.
    #[inline]
    pub fn from_number(number: u64) -> Self {
        Self(number)
    }

    #[inline]
    pub(crate) fn operation(key: SlotKey) -> Self {
        Self(key.number() << 2 | 1)
    }

    fn special(key: SlotKey) -> Self {
        Self(key.number() << 2 | 3)
    }

    /// The operation, unless the request is special.
    #[inline]
    fn key(self) -> Option<SlotKey> {
        (self.0 & 3 == 1 && self != Self::COMPLETED).then(|| SlotKey::from_number(self.0 >> 2))
    }

    #[inline]
    fn decode(self) -> DecodedId {
        let key = SlotKey::from_number(self.0 >> 2);
        match self.0 {
            0 => DecodedId::Null,
            1 => DecodedId::Completed,
            number if number & 3 == 1 => DecodedId::Operation(key),
            number if number & 3 == 3 => DecodedId::Special(key),
            _ => DecodedId::Invalid,
        }
    }

    /// Bits of the slot and of the generation in a C integer; the mark above them makes it larger than 2^30.
    const SLOT_BITS: u32 = 20;
    const GENERATION_BITS: u32 = 9;
    const MARK: u32 = 1 << 30;

    fn integer_of(key: SlotKey, is_special: bool) -> Option<i32> {
        let (slot, generation) = (key.slot(), key.generation());
        let generation = generation & ((1 << Self::GENERATION_BITS) - 1);
        let integer = Self::MARK | generation << (Self::SLOT_BITS + 1) | slot << 1 | u32::from(is_special);
        (slot < 1 << Self::SLOT_BITS).then_some(integer as i32)
    }
}

/// The current state of a request.
#[derive(Clone, Copy)]
enum WaitState {
    Inactive,
    Completed,
    InProgress(SlotKey),
}

impl WaitState {
    #[inline]
    fn is_complete(self, engine: &mut Engine) -> bool {
        match self {
            Self::InProgress(key) => engine.is_complete(key),
            Self::Inactive | Self::Completed => true,
        }
    }

    fn is_active(self) -> bool {
        !matches!(self, Self::Inactive)
    }
}

/// The result of [`Requests::test_any`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TestAny<T = Status> {
    /// No request is active.
    Inactive,
    /// None has completed.
    Pending,
    /// This one has completed.
    Completed(usize, T),
}

#[cold]
fn invalid_request() -> Error {
    Error::new(Class::REQUEST, "the handle is not a request, or its request was completed or freed")
}

/// The requests of a process by their numbers. What is documented here for a number also holds for [`Request`]. A number that names
/// no request is an error of class [`Class::REQUEST`].
#[derive(Clone, Copy, Debug)]
pub struct Requests<'a>(&'a Core);

impl<'a> Requests<'a> {
    /// The requests of a process.
    pub(crate) fn new(core: &'a Core) -> Self {
        Self(core)
    }

    /// Returns the request of a started operation.
    #[inline(always)]
    pub(crate) fn from_started(engine: &mut Engine, started: Started, comm: Option<u64>) -> RequestId {
        let key = match started {
            Started::InProgress(key) => key,
            Started::Completed(status) if status.is_empty() => return RequestId::COMPLETED,
            Started::Completed(_) => engine.key_of(started),
        };
        if let Some(comm) = comm {
            engine.set_comm(key, comm);
        }
        RequestId::operation(key)
    }

    fn insert(self, special: SpecialRequest) -> RequestId {
        RequestId::special(self.0.specials().insert(special))
    }

    #[inline]
    fn wait_state(self, id: RequestId) -> Result<WaitState> {
        match id.decode() {
            DecodedId::Operation(key) => Ok(WaitState::InProgress(key)),
            DecodedId::Completed => Ok(WaitState::Completed),
            DecodedId::Null => Ok(WaitState::Inactive),
            DecodedId::Special(key) => self.special_wait_state(key),
            DecodedId::Invalid => Err(invalid_request()),
        }
    }

    fn special_wait_state(self, key: SlotKey) -> Result<WaitState> {
        Ok(match self.0.specials().get_mut(key).ok_or_else(invalid_request)?.state {
            RequestState::Inactive => WaitState::Inactive,
            RequestState::Completed(_) => WaitState::Completed,
            RequestState::InProgress(key) => WaitState::InProgress(key),
        })
    }

    fn wait_states(self, ids: &[RequestId]) -> Result<Vec<WaitState>> {
        let mut all = Vec::with_capacity(ids.len());
        for id in ids {
            all.push(self.wait_state(*id)?);
        }
        Ok(all)
    }

    /// Whether a caller would wait for it: it is neither null nor an inactive persistent request.
    ///
    /// # Errors
    /// [`Class::REQUEST`].
    pub fn is_active(self, id: RequestId) -> Result<bool> {
        self.wait_state(id).map(WaitState::is_active)
    }

    /// Whether it can be started (again).
    pub fn is_persistent(self, id: RequestId) -> bool {
        let DecodedId::Special(key) = id.decode() else { return false };
        let mut specials = self.0.specials();
        specials.get_mut(key).is_some_and(|special| !matches!(special.kind, RequestKind::Program(_)))
    }

    /// Returns how completed requests ended; they become null, or inactive if persistent. If a number names no request, nothing
    /// changes.
    fn gather(engine: &mut Engine, ids: &[RequestId]) -> Result<Vec<CompletedRequest>> {
        let is_there = |id: &RequestId| match id.decode() {
            DecodedId::Operation(key) => engine.contains(key),
            _ => true,
        };
        if !ids.iter().all(is_there) {
            return Err(invalid_request());
        }
        let mut completed = Vec::with_capacity(ids.len());
        for id in ids {
            completed.push(match id.decode() {
                DecodedId::Operation(key) => {
                    engine.take_completed_request(key).ok_or_else(invalid_request)?
                }
                // Placeholders: special requests are collected by [`Requests::collect_specials`].
                _ => CompletedRequest::nothing(),
            });
        }
        Ok(completed)
    }

    /// Fills in the results of special requests, which [`Requests::gather`] has left empty.
    fn collect_specials(
        self,
        ids: &[RequestId],
        mut completed: Vec<CompletedRequest>,
    ) -> Result<Vec<CompletedRequest>> {
        for (id, completed) in ids.iter().zip(&mut completed) {
            if let DecodedId::Special(key) = id.decode() {
                *completed = self.collect_special(key)?;
            }
        }
        Ok(completed)
    }

    fn collect(self, id: RequestId) -> Result<CompletedRequest> {
        match id.decode() {
            DecodedId::Special(key) => self.collect_special(key),
            DecodedId::Operation(key) => {
                self.0.with(|engine| engine.take_completed_request(key)).ok_or_else(invalid_request)
            }
            _ => Ok(CompletedRequest::nothing()),
        }
    }

    fn collect_special(self, key: SlotKey) -> Result<CompletedRequest> {
        let (state, kind, comm) = {
            let mut specials = self.0.specials();
            let special = specials.get_mut(key).ok_or_else(invalid_request)?;
            let state = std::mem::replace(&mut special.state, RequestState::Inactive);
            (state, special.kind.clone(), special.comm)
        };
        let status = match state {
            RequestState::Inactive => Status::empty(),
            RequestState::Completed(status) => status,
            RequestState::InProgress(key) => {
                self.0.with(|engine| engine.take_status(key)).unwrap_or_else(Status::empty)
            }
        };
        let RequestKind::Program(program) = kind else {
            return Ok(CompletedRequest { status, comm, is_persistent: true });
        };
        self.remove(key);
        let mut status = program.query();
        if let Err(error) = program.free() {
            status.error.get_or_insert(error.into());
        }
        Ok(CompletedRequest { status, comm, is_persistent: false })
    }

    /// Waits until the operation has completed. The request is then null, or inactive if it is persistent. Null and inactive
    /// requests complete immediately with an empty status (MPI 5.0, section 3.7.3).
    ///
    /// # Errors
    /// [`Class::REQUEST`]; [`Class::OTHER`] when the world of this process ends first.
    #[inline]
    pub fn wait(self, id: RequestId) -> Result<CompletedRequest> {
        match id.decode() {
            DecodedId::Operation(key) => {
                let done =
                    |engine: &mut Engine| engine.is_complete(key).then(|| engine.take_completed_request(key));
                self.0.wait("MPI_Wait", done)?.ok_or_else(invalid_request)
            }
            _ => {
                if let WaitState::InProgress(key) = self.wait_state(id)? {
                    self.0.wait("MPI_Wait", |engine| engine.is_complete(key).then_some(()))?;
                }
                self.collect(id)
            }
        }
    }

    /// Completes the request as [`Requests::wait`] does, if its operation has completed (MPI 5.0, section 3.7.3).
    ///
    /// # Errors
    /// [`Class::REQUEST`].
    pub fn test(self, id: RequestId) -> Result<Option<CompletedRequest>> {
        let now = self.wait_state(id)?;
        let is_complete = self.0.test(|engine| now.is_complete(engine).then_some(()));
        is_complete.map(|()| self.collect(id)).transpose()
    }

    /// Returns the status of the operation, if it has completed; the request does not change (`MPI_Request_get_status`)
    /// (MPI 5.0, section 3.7.6).
    ///
    /// # Errors
    /// [`Class::REQUEST`].
    pub fn peek(self, id: RequestId) -> Result<Option<Status>> {
        let (done, kind) = match id.decode() {
            DecodedId::Special(key) => {
                let mut specials = self.0.specials();
                let special = specials.get_mut(key).ok_or_else(invalid_request)?;
                (special.state.clone(), Some(special.kind.clone()))
            }
            DecodedId::Operation(key) => (RequestState::InProgress(key), None),
            DecodedId::Null | DecodedId::Completed => (RequestState::Inactive, None),
            DecodedId::Invalid => return Err(invalid_request()),
        };
        let check = |engine: &mut Engine| match &done {
            RequestState::Inactive => Some(Ok(Status::empty())),
            RequestState::Completed(status) => Some(Ok(status.clone())),
            RequestState::InProgress(key) if engine.contains(*key) => engine.peek(*key).map(Ok),
            RequestState::InProgress(_) => Some(Err(invalid_request())),
        };
        let Some(status) = self.0.test(check).transpose()? else { return Ok(None) };
        Ok(Some(if let Some(RequestKind::Program(program)) = kind { program.query() } else { status }))
    }

    /// Waits for all requests; returns how they ended, in their order (MPI 5.0, section 3.7.5).
    ///
    /// # Errors
    /// As [`Requests::wait`]; if a number names no request, nothing changes.
    pub fn wait_all(self, ids: &[RequestId]) -> Result<Vec<CompletedRequest>> {
        if ids.iter().all(|id| matches!(id.decode(), DecodedId::Null | DecodedId::Completed)) {
            return Ok(vec![CompletedRequest::nothing(); ids.len()]);
        }
        let now = self.wait_states(ids)?;
        // A completed request stays completed.
        let mut done = 0;
        let all_done = |engine: &mut Engine| {
            done += now[done..].iter().take_while(|now| now.is_complete(engine)).count();
            (done == now.len()).then(|| Self::gather(engine, ids))
        };
        let completed = self.0.wait("MPI_Waitall", all_done)??;
        self.collect_specials(ids, completed)
    }

    /// Waits for `count` requests, as long as each completed when it was started, or is an operation that completes without an
    /// error. Returns true if all did, after it has passed each status to `put`; otherwise no request has changed.
    ///
    /// # Errors
    /// [`Class::OTHER`] when the world of this process ends first.
    #[inline]
    pub fn wait_all_successful(
        self,
        count: usize,
        id: impl Fn(usize) -> RequestId,
        mut put: impl FnMut(usize, &Status),
    ) -> Result<bool> {
        let mut done = (0..count)
            .take_while(|at| matches!(id(*at).decode(), DecodedId::Null | DecodedId::Completed))
            .count();
        let nothing = Status::empty();
        if done == count {
            (0..count).for_each(|at| put(at, &nothing));
            return Ok(true);
        }
        self.0.wait("MPI_Waitall", |engine| {
            while done < count {
                let id = id(done);
                let is_successful = match id.key() {
                    Some(key) => engine.has_succeeded(key)?,
                    None => matches!(id.decode(), DecodedId::Null | DecodedId::Completed),
                };
                if !is_successful {
                    return Some(false);
                }
                done += 1;
            }
            for at in 0..count {
                let is_given =
                    id(at).key().is_some_and(|key| engine.take_success(key, |status| put(at, status)));
                if !is_given {
                    // A request that completed when it was started, or that occurs twice.
                    put(at, &nothing);
                }
            }
            Some(true)
        })
    }

    /// Returns how all ended, if all have completed; otherwise no request changes (MPI 5.0, section 3.7.5).
    ///
    /// # Errors
    /// As [`Requests::wait_all`].
    pub fn test_all(self, ids: &[RequestId]) -> Result<Option<Vec<CompletedRequest>>> {
        let now = self.wait_states(ids)?;
        let all_done = |engine: &mut Engine| {
            now.iter().all(|now| now.is_complete(engine)).then(|| Self::gather(engine, ids))
        };
        let Some(completed) = self.0.test(all_done).transpose()? else { return Ok(None) };
        self.collect_specials(ids, completed).map(Some)
    }

    /// Waits until one has completed; returns its index, and how it ended. `None` if none is active (MPI 5.0, section 3.7.5).
    ///
    /// # Errors
    /// As [`Requests::wait`].
    pub fn wait_any(self, ids: &[RequestId]) -> Result<Option<(usize, CompletedRequest)>> {
        let now = self.wait_states(ids)?;
        if !now.iter().any(|now| now.is_active()) {
            return Ok(None);
        }
        let at = self.0.wait("MPI_Waitany", |engine| first_completed(&now, engine))?;
        self.collect(ids[at]).map(|completed| Some((at, completed)))
    }

    /// Checks whether one has completed (MPI 5.0, section 3.7.5).
    ///
    /// # Errors
    /// [`Class::REQUEST`].
    pub fn test_any(self, ids: &[RequestId]) -> Result<TestAny<CompletedRequest>> {
        let now = self.wait_states(ids)?;
        if !now.iter().any(|now| now.is_active()) {
            return Ok(TestAny::Inactive);
        }
        match self.0.test(|engine| first_completed(&now, engine)) {
            Some(at) => self.collect(ids[at]).map(|completed| TestAny::Completed(at, completed)),
            None => Ok(TestAny::Pending),
        }
    }

    /// Waits until at least one has completed; returns the indices of all completed ones, and how they ended. `None` if none is
    /// active (MPI 5.0, section 3.7.5).
    ///
    /// # Errors
    /// As [`Requests::wait`].
    pub fn wait_some(self, ids: &[RequestId]) -> Result<Option<Vec<(usize, CompletedRequest)>>> {
        let now = self.wait_states(ids)?;
        if !now.iter().any(|now| now.is_active()) {
            return Ok(None);
        }
        let some = |engine: &mut Engine| Some(all_completed(&now, engine)).filter(|which| !which.is_empty());
        let which = self.0.wait("MPI_Waitsome", some)?;
        which.into_iter().map(|at| Ok((at, self.collect(ids[at])?))).collect::<Result<_>>().map(Some)
    }

    /// Returns the indices of all completed requests, perhaps none, and how they ended. `None` if none is active
    /// (MPI 5.0, section 3.7.5).
    ///
    /// # Errors
    /// [`Class::REQUEST`].
    pub fn test_some(self, ids: &[RequestId]) -> Result<Option<Vec<(usize, CompletedRequest)>>> {
        let now = self.wait_states(ids)?;
        if !now.iter().any(|now| now.is_active()) {
            return Ok(None);
        }
        let which = self.0.test(|engine| Some(all_completed(&now, engine))).unwrap_or_default();
        which.into_iter().map(|at| Ok((at, self.collect(ids[at])?))).collect::<Result<_>>().map(Some)
    }

    /// Starts the operation of a persistent request (MPI 5.0, section 3.9).
    ///
    /// # Errors
    /// [`Class::REQUEST`] for a request that is not persistent, or is active; the operation's.
    pub fn start(self, id: RequestId) -> Result<()> {
        let request_error = |why| Error::new(Class::REQUEST, why);
        let key = match id.decode() {
            DecodedId::Special(key) => key,
            DecodedId::Invalid => return Err(invalid_request()),
            DecodedId::Null => return Err(request_error("a null request cannot be started")),
            _ => return Err(request_error("only a persistent request can be started")),
        };
        let starter = {
            let mut specials = self.0.specials();
            let special = specials.get_mut(key).ok_or_else(invalid_request)?;
            match (&special.kind, &special.state) {
                (RequestKind::Program(_), _) => {
                    return Err(request_error("only a persistent request can be started"));
                }
                (
                    RequestKind::Persistent(starter) | RequestKind::Partitioned(starter, _),
                    RequestState::Inactive,
                ) => starter.clone(),
                _ => return Err(request_error("the request is active already; wait for it first")),
            }
        };
        let started = starter()?;
        if let Some(special) = self.0.specials().get_mut(key) {
            special.state = started.into();
        }
        Ok(())
    }

    /// Cancels the operation, if possible. An unmatched receive is cancelled, and so is an unmatched send, once its receiver makes
    /// progress; all other operations complete as usual. The caller must wait for the request in either case
    /// (MPI 5.0, section 3.8.4).
    ///
    /// # Errors
    /// [`Class::REQUEST`] for a null or inactive request.
    pub fn cancel(self, id: RequestId) -> Result<()> {
        let program = self.special_kind(id).and_then(|kind| match kind {
            RequestKind::Program(program) => Some(program),
            _ => None,
        });
        match (self.wait_state(id)?, program) {
            (WaitState::InProgress(key), Some(program)) => {
                program.cancel(self.0.with(|engine| engine.peek(key)).is_some())
            }
            (WaitState::InProgress(key), None) => self.0.with(|engine| {
                engine.cancel(key);
                engine.contains(key).then_some(()).ok_or_else(invalid_request)
            }),
            (WaitState::Completed, _) => Ok(()),
            (WaitState::Inactive, _) => {
                Err(Error::new(Class::REQUEST, "only an active request can be cancelled"))
            }
        }
    }

    /// Frees a request; its operation continues without it (`MPI_Request_free`; MPI 5.0, section 3.7.3).
    ///
    /// # Errors
    /// [`Class::REQUEST`].
    pub fn free(self, id: RequestId) -> Result<()> {
        match id.decode() {
            DecodedId::Null | DecodedId::Completed => Ok(()),
            DecodedId::Invalid => Err(invalid_request()),
            DecodedId::Operation(key) => self.0.with(|engine| {
                let is_there = engine.contains(key);
                engine.free(key);
                is_there.then_some(()).ok_or_else(invalid_request)
            }),
            DecodedId::Special(key) => self.free_special(key),
        }
    }

    fn free_special(self, key: SlotKey) -> Result<()> {
        let (state, kind) = {
            let mut specials = self.0.specials();
            let special = specials.get_mut(key).ok_or_else(invalid_request)?;
            (special.state.clone(), special.kind.clone())
        };
        let is_complete = match state {
            RequestState::InProgress(operation) => self.0.with(|engine| {
                let is_complete = engine.is_complete(operation);
                engine.free(operation);
                is_complete
            }),
            RequestState::Inactive | RequestState::Completed(_) => true,
        };
        let is_generalized = matches!(kind, RequestKind::Program(_));
        // A generalized request stays in the table until the program completes it.
        if is_complete || !is_generalized {
            self.remove(key);
        }
        match kind {
            // An error could no longer be reported to a caller.
            RequestKind::Program(program) if is_complete => program.free().or(Ok(())),
            _ => Ok(()),
        }
    }

    /// Removes a special request, and drops it after the lock is released.
    fn remove(self, key: SlotKey) {
        let removed = self.0.specials().remove(key);
        drop(removed);
    }

    /// The [`Comm::id`] of its communicator, if it has one, whose error handler gets its errors.
    pub fn comm(self, id: RequestId) -> Option<u64> {
        match id.decode() {
            DecodedId::Operation(key) => self.0.with(|engine| engine.comm(key)),
            DecodedId::Special(key) => self.0.specials().get_mut(key)?.comm,
            _ => None,
        }
    }

    fn special_kind(self, id: RequestId) -> Option<RequestKind> {
        let DecodedId::Special(key) = id.decode() else { return None };
        self.0.specials().get_mut(key).map(|special| special.kind.clone())
    }

    /// Completes a generalized request (`MPI_Grequest_complete`; MPI 5.0, section 13.2).
    ///
    /// # Errors
    /// [`Class::REQUEST`] for another request; the error of the program's function, which is called here if the request was freed.
    pub fn complete(self, id: RequestId) -> Result<()> {
        let (Some(RequestKind::Program(program)), WaitState::InProgress(key)) =
            (self.special_kind(id), self.wait_state(id)?)
        else {
            return Err(Error::new(
                Class::REQUEST,
                "only a generalized request can be completed by the program",
            ));
        };
        if !self.0.with(|engine| engine.complete_generalized(key)) {
            return Ok(());
        }
        if let DecodedId::Special(key) = id.decode() {
            self.remove(key);
        }
        program.free()
    }

    /// Marks parts from `first` to `last` of a partitioned send as ready (`MPI_Pready_range`; MPI 5.0, section 4.2.1).
    ///
    /// # Errors
    /// [`Class::REQUEST`] for a request that is not a partitioned send; [`Class::ARG`] for parts that do not exist or cannot become
    /// ready: the request is not started, or they are ready already.
    pub fn parts_ready(self, id: RequestId, first: i32, last: i32) -> Result<()> {
        match self.special_kind(id) {
            Some(RequestKind::Partitioned(_, PartitionedRequest::Null)) => Ok(()),
            Some(RequestKind::Partitioned(_, PartitionedRequest::Send(sending))) => {
                self.0.with(|engine| sending.ready(engine, first, last))
            }
            _ => Err(Error::new(Class::REQUEST, "only a partitioned send has partitions to mark as ready")),
        }
    }

    /// Whether a part of a partitioned receive has arrived (`MPI_Parrived`; MPI 5.0, section 4.2.2).
    ///
    /// # Errors
    /// [`Class::REQUEST`] for a request that is not a partitioned receive; [`Class::ARG`] for a part that does not exist.
    pub fn part_arrived(self, id: RequestId, part: i32) -> Result<bool> {
        let is_inactive = matches!(self.wait_state(id)?, WaitState::Inactive);
        match self.special_kind(id) {
            None if is_inactive => Ok(true),
            Some(RequestKind::Partitioned(_, PartitionedRequest::Null)) => Ok(true),
            Some(RequestKind::Partitioned(_, PartitionedRequest::Receive(receiving))) => {
                self.0.test(|_| None::<()>);
                Ok(receiving.has_arrived(self.0.host(), part)? || is_inactive)
            }
            _ => Err(Error::new(Class::REQUEST, "only a partitioned receive has partitions that arrive")),
        }
    }

    /// Converts a number to a C integer above 2^30; `None` for a number without a table entry, and beyond 2^20 requests at a time.
    pub fn integer(self, id: RequestId) -> Option<i32> {
        match id.decode() {
            DecodedId::Operation(key) => RequestId::integer_of(key, false),
            DecodedId::Special(key) => RequestId::integer_of(key, true),
            _ => None,
        }
    }

    /// Converts an integer from [`Requests::integer`] back, if its request still exists.
    pub fn from_integer(self, integer: i32) -> Option<RequestId> {
        let slot = (integer as u32 >> 1) & ((1 << RequestId::SLOT_BITS) - 1);
        let id = if integer & 1 == 0 {
            RequestId::operation(self.0.with(|engine| engine.key_at(slot))?)
        } else {
            RequestId::special(self.0.specials().key_at(slot)?)
        };
        (self.integer(id) == Some(integer)).then_some(id)
    }
}

fn first_completed(now: &[WaitState], engine: &mut Engine) -> Option<usize> {
    now.iter().position(|now| now.is_active() && now.is_complete(engine))
}

fn all_completed(now: &[WaitState], engine: &mut Engine) -> Vec<usize> {
    let done = |at: &usize| now[*at].is_active() && now[*at].is_complete(engine);
    (0..now.len()).filter(done).collect()
}

/// An operation in progress, a persistent request, or null (`MPI_Request`). When dropped, its operation continues without it.
#[derive(Default)]
pub struct Request(Option<(Core, RequestId)>);

/// A handle for threads that do not wait for the request; cheap to clone.
#[derive(Clone, Debug)]
pub struct RequestHandle(Core, RequestId);

impl RequestHandle {
    /// Completes a request as [`Requests::complete`] does (MPI 5.0, section 13.2).
    ///
    /// # Errors
    /// As [`Requests::complete`].
    pub fn complete(&self) -> Result<()> {
        Requests(&self.0).complete(self.1)
    }

    /// Marks parts as ready as [`Requests::parts_ready`] does (MPI 5.0, section 4.2.1).
    ///
    /// # Errors
    /// As [`Requests::parts_ready`].
    pub fn parts_ready(&self, first: i32, last: i32) -> Result<()> {
        Requests(&self.0).parts_ready(self.1, first, last)
    }

    /// Tests a part as [`Requests::part_arrived`] does (MPI 5.0, section 4.2.2).
    ///
    /// # Errors
    /// As [`Requests::part_arrived`].
    pub fn part_arrived(&self, part: i32) -> Result<bool> {
        Requests(&self.0).part_arrived(self.1, part)
    }
}

impl std::fmt::Debug for Request {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Request({:#x})", self.id().number())
    }
}

impl Request {
    /// The request with this number.
    pub(crate) fn new_with_id(core: &Core, id: RequestId) -> Self {
        Self(Some((core.clone(), id)))
    }

    /// Creates a request for a started operation of a communicator.
    pub(crate) fn new(comm: &Comm, started: Started) -> Self {
        let id = comm.core().with(|engine| Requests::from_started(engine, started, Some(comm.id())));
        Self::new_with_id(comm.core(), id)
    }

    fn special(core: &Core, comm: Option<&Comm>, kind: RequestKind, state: RequestState) -> Self {
        let special = SpecialRequest { state, kind, comm: comm.map(Comm::id) };
        Self::new_with_id(core, Requests(core).insert(special))
    }

    /// Creates an inactive persistent request.
    pub(crate) fn persistent(comm: &Comm, starter: StartFn) -> Self {
        Self::special(comm.core(), Some(comm), RequestKind::Persistent(starter), RequestState::Inactive)
    }

    /// Creates an inactive persistent request for a partitioned message.
    pub(crate) fn partitioned(comm: &Comm, starter: StartFn, parts: PartitionedRequest) -> Self {
        Self::special(
            comm.core(),
            Some(comm),
            RequestKind::Partitioned(starter, parts),
            RequestState::Inactive,
        )
    }

    /// Creates a request for an operation without a communicator.
    pub(crate) fn of_process(core: &Core, started: Started) -> Self {
        Self::new_with_id(core, core.with(|engine| Requests::from_started(engine, started, None)))
    }

    /// Creates a generalized request, which [`Requests::complete`] completes.
    pub(crate) fn generalized(core: &Core, program: Arc<dyn Generalized>) -> Self {
        let started = core.with(Engine::start_generalized);
        Self::special(core, None, RequestKind::Program(program), started.into())
    }

    /// A handle for other threads, if they can affect the request while a thread waits for it.
    pub fn handle_for_threads(&self) -> Option<RequestHandle> {
        let (core, id) = self.0.as_ref()?;
        let is_for_others = matches!(
            Requests(core).special_kind(*id)?,
            RequestKind::Partitioned(..) | RequestKind::Program(_)
        );
        is_for_others.then(|| RequestHandle(core.clone(), *id))
    }

    /// No request (`MPI_REQUEST_NULL`).
    pub fn null() -> Self {
        Self(None)
    }

    /// Whether it is `MPI_REQUEST_NULL`.
    pub fn is_null(&self) -> bool {
        self.0.is_none()
    }

    /// Its number in [`Requests`].
    pub fn id(&self) -> RequestId {
        self.0.as_ref().map_or(RequestId::NULL, |(_, id)| *id)
    }

    /// Its number; the caller is now responsible for the request.
    pub fn into_id(mut self) -> RequestId {
        self.0.take().map_or(RequestId::NULL, |(_, id)| id)
    }

    /// Whether a caller would wait for it: it is neither null nor an inactive persistent request.
    pub fn is_active(&self) -> bool {
        let is_active = |(core, id): &(Core, RequestId)| Requests(core).is_active(*id).unwrap_or(false);
        self.0.as_ref().is_some_and(is_active)
    }

    /// Whether it can be started (again).
    pub fn is_persistent(&self) -> bool {
        self.0.as_ref().is_some_and(|(core, id)| Requests(core).is_persistent(*id))
    }

    /// Updates the request after its operation has completed, and returns the status.
    fn finish(&mut self, completed: Result<CompletedRequest>) -> Status {
        match completed {
            Ok(CompletedRequest { status, is_persistent, .. }) => {
                if !is_persistent {
                    self.0 = None;
                }
                status
            }
            Err(error) => Status::failed(error),
        }
    }

    /// Tests as [`Requests::test`] does (MPI 5.0, section 3.7.3).
    pub fn test(&mut self) -> Option<Status> {
        let Some((core, id)) = &self.0 else { return Some(Status::empty()) };
        let completed = Requests(core).test(*id).transpose()?;
        Some(self.finish(completed))
    }

    /// Returns the status as [`Requests::peek`] does (MPI 5.0, section 3.7.6).
    pub fn peek(&self) -> Option<Status> {
        let Some((core, id)) = &self.0 else { return Some(Status::empty()) };
        Requests(core).peek(*id).unwrap_or_else(|error| Some(Status::failed(error)))
    }

    /// Waits as [`Requests::wait`] does (MPI 5.0, section 3.7.3).
    pub fn wait(&mut self) -> Status {
        let Some((core, id)) = &self.0 else { return Status::empty() };
        let completed = Requests(core).wait(*id);
        self.finish(completed)
    }

    /// Starts as [`Requests::start`] does (MPI 5.0, section 3.9).
    ///
    /// # Errors
    /// As [`Requests::start`].
    pub fn start(&mut self) -> Result<()> {
        let null = || Error::new(Class::REQUEST, "a null request cannot be started");
        let (core, id) = self.0.as_ref().ok_or_else(null)?;
        Requests(core).start(*id)
    }

    /// Cancels as [`Requests::cancel`] does (MPI 5.0, section 3.8.4).
    ///
    /// # Errors
    /// As [`Requests::cancel`].
    pub fn cancel(&self) -> Result<()> {
        let null = || Error::new(Class::REQUEST, "only an active request can be cancelled");
        let (core, id) = self.0.as_ref().ok_or_else(null)?;
        Requests(core).cancel(*id)
    }

    /// Waits for all requests; returns the statuses in their order (MPI 5.0, section 3.7.5).
    pub fn wait_all(requests: &mut [&mut Self]) -> Vec<Status> {
        let Some((core, ids)) = core_and_ids(requests) else { return empty(requests) };
        match Requests(&core).wait_all(&ids) {
            Ok(completed) => wait_all_pending(requests, completed),
            Err(error) => requests.iter().map(|_| Status::failed(error.clone())).collect(),
        }
    }

    /// Returns how all ended, if all have completed; otherwise no request changes (MPI 5.0, section 3.7.5).
    pub fn test_all(requests: &mut [&mut Self]) -> Option<Vec<Status>> {
        let Some((core, ids)) = core_and_ids(requests) else { return Some(empty(requests)) };
        match Requests(&core).test_all(&ids) {
            Ok(completed) => completed.map(|completed| wait_all_pending(requests, completed)),
            Err(error) => Some(requests.iter().map(|_| Status::failed(error.clone())).collect()),
        }
    }

    /// Waits until one has completed; returns its index and its status. `None` if none is active (MPI 5.0, section 3.7.5).
    pub fn wait_any(requests: &mut [&mut Self]) -> Option<(usize, Status)> {
        let (core, ids) = core_and_ids(requests)?;
        match Requests(&core).wait_any(&ids) {
            Ok(found) => found.map(|(at, completed)| (at, requests[at].finish(Ok(completed)))),
            Err(error) => Some((0, Status::failed(error))),
        }
    }

    /// Checks whether one has completed (MPI 5.0, section 3.7.5).
    pub fn test_any(requests: &mut [&mut Self]) -> TestAny {
        let Some((core, ids)) = core_and_ids(requests) else { return TestAny::Inactive };
        match Requests(&core).test_any(&ids) {
            Ok(TestAny::Completed(at, completed)) => {
                TestAny::Completed(at, requests[at].finish(Ok(completed)))
            }
            Ok(TestAny::Inactive) => TestAny::Inactive,
            Ok(TestAny::Pending) => TestAny::Pending,
            Err(error) => TestAny::Completed(0, Status::failed(error)),
        }
    }

    /// Waits until at least one has completed; returns the indices of all completed ones, and their statuses. `None` if none is
    /// active (MPI 5.0, section 3.7.5).
    pub fn wait_some(requests: &mut [&mut Self]) -> Option<Vec<(usize, Status)>> {
        let (core, ids) = core_and_ids(requests)?;
        finish_some(requests, Requests(&core).wait_some(&ids))
    }

    /// Returns the indices of all completed requests, perhaps none, and their statuses. `None` if none is active
    /// (MPI 5.0, section 3.7.5).
    pub fn test_some(requests: &mut [&mut Self]) -> Option<Vec<(usize, Status)>> {
        let (core, ids) = core_and_ids(requests)?;
        finish_some(requests, Requests(&core).test_some(&ids))
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        if let Some((core, id)) = &self.0 {
            // The request exists, so only a program's function can fail, and no caller is left for its error.
            let _ = Requests(core).free(*id);
        }
    }
}

/// The numbers of requests, and their process; `None` if all are null.
fn core_and_ids(requests: &[&mut Request]) -> Option<(Core, Vec<RequestId>)> {
    let (core, _) = requests.iter().find_map(|request| request.0.as_ref())?;
    Some((core.clone(), requests.iter().map(|request| request.id()).collect()))
}

/// An empty status for each request.
fn empty(requests: &[&mut Request]) -> Vec<Status> {
    requests.iter().map(|_| Status::empty()).collect()
}

/// Ends requests that have all completed; returns their statuses.
fn wait_all_pending(requests: &mut [&mut Request], completed: Vec<CompletedRequest>) -> Vec<Status> {
    requests.iter_mut().zip(completed).map(|(request, completed)| request.finish(Ok(completed))).collect()
}

/// Ends the requests that have completed; returns their indices and statuses. An error is reported for the first request.
fn finish_some(
    requests: &mut [&mut Request],
    completed: Result<Option<Vec<(usize, CompletedRequest)>>>,
) -> Option<Vec<(usize, Status)>> {
    match completed {
        Ok(completed) => {
            let completed = completed?.into_iter();
            Some(completed.map(|(at, completed)| (at, requests[at].finish(Ok(completed)))).collect())
        }
        Err(error) => Some(vec![(0, Status::failed(error))]),
    }
}

impl Comm {
    /// Starts an operation, for a caller that keeps requests by number.
    #[inline(always)]
    pub(crate) fn begin(&self, act: impl FnOnce(&mut Engine) -> Result<Started>) -> Result<RequestId> {
        self.core().with(|engine| {
            let started = act(engine)?;
            Ok(Requests::from_started(engine, started, Some(self.id())))
        })
    }
}
