//! [`Request`]: an operation under way, and how one waits for one or several.

use std::sync::Arc;

use crate::comm::Comm;
use crate::core::Core;
use crate::engine::{Begun, Engine};
use crate::error::{Class, Error, Result};
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
    /// A request for an operation of a communicator that has begun.
    pub(crate) fn new(comm: &Comm, begun: Begun) -> Self {
        let active = Active {
            core: comm.core().clone(),
            comm: Some(comm.clone()),
            state: begun.into(),
            starter: None,
        };
        Self(Some(Box::new(active)))
    }

    /// A persistent request, not started.
    pub(crate) fn persistent(comm: &Comm, starter: Starter) -> Self {
        let (core, comm) = (comm.core().clone(), Some(comm.clone()));
        Self(Some(Box::new(Active { core, comm, state: State::Inactive, starter: Some(starter) })))
    }

    /// A request for something of the process as a whole.
    pub(crate) fn of_process(core: &Core, begun: Begun) -> Self {
        Self(Some(Box::new(Active { core: core.clone(), comm: None, state: begun.into(), starter: None })))
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

    /// Makes the request what it is after its operation has ended.
    fn finish(&mut self) {
        let Some(active) = &mut self.0 else { return };
        if let State::Under(key) = active.state {
            active.core.with(|engine| engine.take(key));
        }
        if active.starter.is_some() {
            active.state = State::Inactive;
        } else {
            self.0 = None;
        }
    }

    /// How the operation ended, if it has: the request is then null, or inactive if it is persistent. Null and inactive requests
    /// are over with an empty status.
    pub fn test(&mut self) -> Option<Status> {
        let status = self.peek()?;
        self.finish();
        Some(status)
    }

    /// How the operation ended, if it has; the request stays as it is (`MPI_Request_get_status`).
    pub fn peek(&self) -> Option<Status> {
        match &self.0 {
            None => Some(Status::empty()),
            Some(active) => active.core.test(|engine| active.look(engine)),
        }
    }

    /// Waits until the operation has ended, and leaves the request as [`Request::test`] does.
    pub fn wait(&mut self) -> Status {
        let status = match &self.0 {
            None => return Status::empty(),
            Some(active) => match &active.state {
                State::Over(status) => status.clone(),
                _ => waited(active.core.wait("MPI_Wait", |engine| active.look(engine))),
            },
        };
        self.finish();
        status
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
            let over = |engine: &mut Engine| all_over(requests, engine).then_some(());
            if let Err(error) = core.wait("MPI_Waitall", over) {
                return requests.iter().map(|_| Status::failed(error.clone())).collect();
            }
        }
        requests.iter_mut().map(|request| request.wait()).collect()
    }

    /// How all ended, if they have; otherwise all stay as they are.
    pub fn test_all(requests: &mut [&mut Self]) -> Option<Vec<Status>> {
        if let Some(core) = core_of(requests) {
            core.test(|engine| all_over(requests, engine).then_some(()))?;
        }
        Some(requests.iter_mut().map(|request| request.wait()).collect())
    }

    /// Waits until one has ended: which, and how. `None` if none is active.
    pub fn wait_any(requests: &mut [&mut Self]) -> Option<(usize, Status)> {
        let core = core_of(requests)?;
        match core.wait("MPI_Waitany", |engine| first_over(requests, engine)) {
            Ok(at) => Some((at, requests[at].wait())),
            Err(error) => Some((0, Status::failed(error))),
        }
    }

    /// Looks whether one has ended.
    pub fn test_any(requests: &mut [&mut Self]) -> Any {
        let Some(core) = core_of(requests) else { return Any::Inactive };
        match core.test(|engine| first_over(requests, engine)) {
            Some(at) => Any::Over(at, requests[at].wait()),
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
        if let Some(Active { core, state: State::Under(key), .. }) = self.0.as_deref() {
            core.with(|engine| engine.free(*key));
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

/// A wait that has no end but that of its world fails.
fn waited(outcome: Result<Status>) -> Status {
    outcome.unwrap_or_else(Status::failed)
}

/// The process of those that are active.
fn core_of(requests: &[&mut Request]) -> Option<Core> {
    let active = requests.iter().find(|request| request.is_active())?;
    active.0.as_ref().map(|active| active.core.clone())
}

fn is_over(request: &Request, engine: &mut Engine) -> bool {
    request.0.as_ref().is_none_or(|active| active.look(engine).is_some())
}

fn all_over(requests: &[&mut Request], engine: &mut Engine) -> bool {
    requests.iter().all(|request| is_over(request, engine))
}

fn first_over(requests: &[&mut Request], engine: &mut Engine) -> Option<usize> {
    requests.iter().position(|request| request.is_active() && is_over(request, engine))
}

fn which_over(requests: &[&mut Request], engine: &mut Engine) -> Vec<usize> {
    let over = |at: &usize| requests[*at].is_active() && is_over(requests[*at], engine);
    (0..requests.len()).filter(over).collect()
}

fn finished(requests: &mut [&mut Request], which: Vec<usize>) -> Vec<(usize, Status)> {
    which.into_iter().map(|at| (at, requests[at].wait())).collect()
}
