//! [`Request`]: an operation under way, and how one waits for one or several.

use std::sync::Arc;

use crate::comm::Comm;
use crate::core::Core;
use crate::engine::{Begun, Engine};
use crate::error::{Class, Error, Result};
use crate::partitioned::Parts;
use crate::status::Status;
use crate::table::Key;

/// Begins a persistent operation once more.
pub(crate) type Starter = Arc<dyn Fn() -> Result<Begun> + Send + Sync>;

#[derive(Clone)]
enum State {
    /// A persistent request that is not started.
    Inactive,
    Over(Status),
    Under(Key),
}

/// An operation under way, a persistent one, or null (`MPI_Request`). One that is dropped goes on by itself.
#[derive(Default)]
pub struct Request(Option<Box<Active>>);

struct Active {
    core: Core,
    comm: Option<Comm>,
    state: State,
    /// Of a persistent request.
    starter: Option<Starter>,
    /// Of one whose message goes in parts.
    parts: Option<Parts>,
    /// Of one that stands for something of the program's.
    program: Option<Arc<dyn Generalized>>,
}

/// A hold on a request, for threads that do not wait for it; cheap to clone.
#[derive(Clone)]
pub struct Remote {
    core: Core,
    what: What,
}

#[derive(Clone)]
enum What {
    Parts(Parts),
    Program(Key, Arc<dyn Generalized>),
}

impl Remote {
    /// What a generalized request stands for is over.
    ///
    /// # Errors
    /// [`Class::REQUEST`] for another request; the program's, if the request is gone already and its function is called.
    pub fn complete(&self) -> Result<()> {
        let What::Program(key, program) = &self.what else {
            return Err(Error::new(Class::REQUEST, "only a generalized request is completed by the program"));
        };
        let is_abandoned = self.core.with(|engine| engine.complete(*key));
        if is_abandoned { program.free() } else { Ok(()) }
    }

    /// Parts from `first` to `last` of a message that is sent in parts are ready (`MPI_Pready_range`).
    ///
    /// # Errors
    /// [`Class::REQUEST`] for a request that does not send in parts; [`Class::ARG`] for parts that there are not, or that do not
    /// wait: the request is not started, or they were ready before.
    pub fn parts_ready(&self, first: i32, last: i32) -> Result<()> {
        match &self.what {
            What::Parts(Parts::Nobody) => Ok(()),
            What::Parts(Parts::Send(sending)) => self.core.with(|engine| sending.ready(engine, first, last)),
            _ => Err(Error::new(Class::REQUEST, "only a request that sends in partitions has some ready")),
        }
    }

    /// Whether a part of a message that is received in parts is there (`MPI_Parrived`).
    ///
    /// # Errors
    /// [`Class::REQUEST`] for a request that does not receive in parts; [`Class::ARG`] for a part that there is not.
    pub fn part_arrived(&self, part: i32) -> Result<bool> {
        match &self.what {
            What::Parts(Parts::Nobody) => Ok(true),
            What::Parts(Parts::Receive(receiving)) => {
                self.core.test(|_| None::<()>);
                receiving.has_arrived(self.core.host(), part)
            }
            _ => Err(Error::new(Class::REQUEST, "only a request that receives in partitions gets some")),
        }
    }
}

/// Something of the program's that a request stands for (`MPI_Grequest_start`). Nothing is called with a lock held.
pub trait Generalized: Send + Sync {
    /// How it ended; asked for when it has, perhaps more than once.
    fn query(&self) -> Status;
    /// The request is gone: called once, behind the last query.
    ///
    /// # Errors
    /// The program's.
    fn free(&self) -> Result<()>;
    /// The program has asked for an end without effect; `is_complete` says whether it has ended already.
    ///
    /// # Errors
    /// The program's.
    fn cancel(&self, is_complete: bool) -> Result<()>;
}

impl std::fmt::Debug for Request {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self.0.as_deref().map(|active| &active.state) {
            None => "Request(null)",
            Some(State::Inactive) => "Request(inactive)",
            Some(State::Over(_)) => "Request(over)",
            Some(State::Under(_)) => "Request(under way)",
        })
    }
}

/// What [`Request::test_any`] finds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Any {
    /// No request is active.
    Inactive,
    /// None is over.
    Pending,
    /// This one is over.
    Over(usize, Status),
}

impl Active {
    fn look(&self, engine: &mut Engine) -> Option<Status> {
        match &self.state {
            State::Inactive => Some(Status::empty()),
            State::Over(status) => Some(status.clone()),
            State::Under(key) => engine.peek(*key),
        }
    }
}

impl Request {
    fn active(core: &Core, comm: Option<&Comm>, state: State) -> Active {
        let (core, comm) = (core.clone(), comm.cloned());
        Active { core, comm, state, starter: None, parts: None, program: None }
    }

    /// A request for an operation of a communicator that has begun.
    pub(crate) fn new(comm: &Comm, begun: Begun) -> Self {
        Self(Some(Box::new(Self::active(comm.core(), Some(comm), begun.into()))))
    }

    /// A persistent request, not started.
    pub(crate) fn persistent(comm: &Comm, starter: Starter) -> Self {
        let active = Self::active(comm.core(), Some(comm), State::Inactive);
        Self(Some(Box::new(Active { starter: Some(starter), ..active })))
    }

    /// A persistent request for a message in parts, not started.
    pub(crate) fn partitioned(comm: &Comm, starter: Starter, parts: Parts) -> Self {
        let active = Self::active(comm.core(), Some(comm), State::Inactive);
        Self(Some(Box::new(Active { starter: Some(starter), parts: Some(parts), ..active })))
    }

    /// A request for something of the process as a whole.
    pub(crate) fn of_process(core: &Core, begun: Begun) -> Self {
        Self(Some(Box::new(Self::active(core, None, begun.into()))))
    }

    /// A request for something of the program's, which is over with [`crate::Remote::complete`].
    pub(crate) fn generalized(core: &Core, program: Arc<dyn Generalized>) -> Self {
        let begun = core.with(Engine::open);
        let active = Self::active(core, None, begun.into());
        Self(Some(Box::new(Active { program: Some(program), ..active })))
    }

    /// What other threads may do about it, if anything, while one waits for it.
    pub fn remote(&self) -> Option<Remote> {
        let Active { core, state, parts, program, .. } = self.0.as_deref()?;
        let what = match (parts, program, state) {
            (Some(parts), ..) => What::Parts(parts.clone()),
            (None, Some(program), State::Under(key)) => What::Program(*key, program.clone()),
            _ => return None,
        };
        Some(Remote { core: core.clone(), what })
    }

    /// No request (`MPI_REQUEST_NULL`).
    pub fn null() -> Self {
        Self(None)
    }

    /// Whether it is none.
    pub fn is_null(&self) -> bool {
        self.0.is_none()
    }

    /// Whether there is something to wait for: it is neither null nor a persistent one that is not started.
    pub fn is_active(&self) -> bool {
        self.0.as_ref().is_some_and(|active| !matches!(active.state, State::Inactive))
    }

    /// Whether it can be started.
    pub fn is_persistent(&self) -> bool {
        self.0.as_ref().is_some_and(|active| active.starter.is_some())
    }

    /// The communicator whose error handler its errors go to, if it has one.
    pub fn comm(&self) -> Option<&Comm> {
        self.0.as_ref()?.comm.as_ref()
    }

    /// Makes the request what it is after its operation has ended, as `status` says.
    fn finish(&mut self, status: Status) -> Status {
        let Some(active) = &mut self.0 else { return status };
        if let State::Under(key) = active.state {
            active.core.with(|engine| engine.take(key));
        }
        if active.starter.is_some() {
            active.state = State::Inactive;
            return status;
        }
        let freed = active.program.take().map_or(Ok(()), |program| program.free());
        self.0 = None;
        match freed {
            Err(error) if status.error.is_none() => Status { error: Some(error.into()), ..status },
            _ => status,
        }
    }

    /// How the operation ended, if it has: the request is then null, or inactive if it is persistent. Null and inactive requests
    /// are over with an empty status.
    pub fn test(&mut self) -> Option<Status> {
        let status = self.peek()?;
        Some(self.finish(status))
    }

    /// How the operation ended, if it has; the request stays as it is (`MPI_Request_get_status`).
    pub fn peek(&self) -> Option<Status> {
        match &self.0 {
            None => Some(Status::empty()),
            Some(active) => {
                let status = active.core.test(|engine| active.look(engine))?;
                Some(active.program.as_ref().map_or(status, |program| program.query()))
            }
        }
    }

    /// How the operation ended, which it has; leaves the request as [`Request::test`] does.
    fn collect(&mut self) -> Status {
        let Some(active) = &mut self.0 else { return Status::empty() };
        let status = match std::mem::replace(&mut active.state, State::Inactive) {
            State::Inactive => Status::empty(),
            State::Over(status) => status,
            State::Under(key) => active.core.with(|engine| engine.take(key)).unwrap_or_else(Status::empty),
        };
        let program = self.0.as_ref().and_then(|active| active.program.clone());
        let status = program.map_or(status, |program| program.query());
        self.finish(status)
    }

    /// Waits until the operation has ended, and leaves the request as [`Request::test`] does.
    pub fn wait(&mut self) -> Status {
        if let Some(Active { core, state: State::Under(key), .. }) = self.0.as_deref()
            && let Err(error) = core.wait("MPI_Wait", |engine| engine.is_over(*key).then_some(()))
        {
            return self.finish(Status::failed(error));
        }
        self.collect()
    }

    /// Begins the operation of a persistent request.
    ///
    /// # Errors
    /// [`Class::REQUEST`] for one that is not persistent, or has begun; the operation's.
    pub fn start(&mut self) -> Result<()> {
        let wrong = |why| Error::new(Class::REQUEST, why);
        let active = self.0.as_mut().ok_or_else(|| wrong("a null request cannot be started"))?;
        let starter =
            active.starter.as_ref().ok_or_else(|| wrong("only a persistent request can be started"))?;
        if !matches!(active.state, State::Inactive) {
            return Err(wrong("the request is active already; wait for it first"));
        }
        active.state = starter()?.into();
        Ok(())
    }

    /// Asks that the operation end without effect. A receive that has no message yet is cancelled; all else completes as if nothing
    /// had been asked. The request must be waited for in either case.
    ///
    /// # Errors
    /// [`Class::REQUEST`] for a null or inactive request.
    pub fn cancel(&self) -> Result<()> {
        match self.0.as_deref() {
            Some(Active { core, state: State::Under(key), program: Some(program), .. }) => {
                program.cancel(core.with(|engine| engine.peek(*key)).is_some())
            }
            Some(Active { core, state: State::Under(key), .. }) => {
                core.with(|engine| engine.cancel(*key));
                Ok(())
            }
            Some(Active { state: State::Over(_), .. }) => Ok(()),
            _ => Err(Error::new(Class::REQUEST, "only an active request can be cancelled")),
        }
    }

    /// Waits for all; the statuses are in their order.
    pub fn wait_all(requests: &mut [&mut Self]) -> Vec<Status> {
        if let Some(core) = core_of(requests) {
            // What is over stays over.
            let mut over = 0;
            let all_over = |engine: &mut Engine| {
                over += requests[over..].iter().take_while(|request| is_over(request, engine)).count();
                (over == requests.len()).then_some(())
            };
            if let Err(error) = core.wait("MPI_Waitall", all_over) {
                return requests.iter().map(|_| Status::failed(error.clone())).collect();
            }
        }
        requests.iter_mut().map(|request| request.collect()).collect()
    }

    /// How all ended, if they have; otherwise all stay as they are.
    pub fn test_all(requests: &mut [&mut Self]) -> Option<Vec<Status>> {
        if let Some(core) = core_of(requests) {
            core.test(|engine| requests.iter().all(|request| is_over(request, engine)).then_some(()))?;
        }
        Some(requests.iter_mut().map(|request| request.collect()).collect())
    }

    /// Waits until one has ended: which, and how. `None` if none is active.
    pub fn wait_any(requests: &mut [&mut Self]) -> Option<(usize, Status)> {
        let core = core_of(requests)?;
        match core.wait("MPI_Waitany", |engine| first_over(requests, engine)) {
            Ok(at) => Some((at, requests[at].collect())),
            Err(error) => Some((0, Status::failed(error))),
        }
    }

    /// Looks whether one has ended.
    pub fn test_any(requests: &mut [&mut Self]) -> Any {
        let Some(core) = core_of(requests) else { return Any::Inactive };
        match core.test(|engine| first_over(requests, engine)) {
            Some(at) => Any::Over(at, requests[at].collect()),
            None => Any::Pending,
        }
    }

    /// Waits until at least one has ended: which, and how. `None` if none is active.
    pub fn wait_some(requests: &mut [&mut Self]) -> Option<Vec<(usize, Status)>> {
        let core = core_of(requests)?;
        let some = |engine: &mut Engine| Some(which_over(requests, engine)).filter(|which| !which.is_empty());
        Some(match core.wait("MPI_Waitsome", some) {
            Ok(which) => finished(requests, which),
            Err(error) => vec![(0, Status::failed(error))],
        })
    }

    /// Those that have ended, and how: perhaps none. `None` if none is active.
    pub fn test_some(requests: &mut [&mut Self]) -> Option<Vec<(usize, Status)>> {
        let core = core_of(requests)?;
        let which = core.test(|engine| Some(which_over(requests, engine))).unwrap_or_default();
        Some(finished(requests, which))
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        let Some(Active { core, state: State::Under(key), program, .. }) = self.0.as_deref() else { return };
        let has_ended = core.with(|engine| {
            let has_ended = engine.peek(*key).is_some();
            engine.free(*key);
            has_ended
        });
        if let (true, Some(program)) = (has_ended, program) {
            // Nobody hears of an error any more.
            drop(program.free());
        }
    }
}

impl From<Begun> for State {
    fn from(begun: Begun) -> Self {
        match begun {
            Begun::Over(status) => Self::Over(status),
            Begun::Under(key) => Self::Under(key),
        }
    }
}

/// The process of those that are active.
fn core_of(requests: &[&mut Request]) -> Option<Core> {
    let active = requests.iter().find(|request| request.is_active())?;
    active.0.as_ref().map(|active| active.core.clone())
}

fn is_over(request: &Request, engine: &mut Engine) -> bool {
    request.0.as_ref().is_none_or(|active| match &active.state {
        State::Under(key) => engine.is_over(*key),
        State::Inactive | State::Over(_) => true,
    })
}

fn first_over(requests: &[&mut Request], engine: &mut Engine) -> Option<usize> {
    requests.iter().position(|request| request.is_active() && is_over(request, engine))
}

fn which_over(requests: &[&mut Request], engine: &mut Engine) -> Vec<usize> {
    let over = |at: &usize| requests[*at].is_active() && is_over(requests[*at], engine);
    (0..requests.len()).filter(over).collect()
}

fn finished(requests: &mut [&mut Request], which: Vec<usize>) -> Vec<(usize, Status)> {
    which.into_iter().map(|at| (at, requests[at].collect())).collect()
}
