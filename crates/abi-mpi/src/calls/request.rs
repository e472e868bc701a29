//! Requests: waiting for one or several, persistent ones, and what may be done with one under way.

use std::ops::Deref;
use std::sync::{Mutex, MutexGuard, TryLockError};

use cface::{In, Out};
use mpi::{Any, Remote, Request};

use crate::answer::{Answer, Fault, Whose};
use crate::constants as c;
use crate::handler::code_of;
use crate::objects::{Ref, get, handle_of, insert, lock, remove};
use crate::state;
use crate::types::{self, Handle, Status, kind};

const NULL: types::Request = Handle::new(c::MPI_REQUEST_NULL);

/// What a handle of a request names. What other threads may do while one waits for it lies beside its lock.
pub(crate) struct RequestObject {
    request: Mutex<Request>,
    pub(crate) remote: Option<Remote>,
}

impl Deref for RequestObject {
    type Target = Mutex<Request>;

    fn deref(&self) -> &Mutex<Request> {
        &self.request
    }
}

/// Answers with a handle for a request.
pub(crate) fn new_request(request: Request, place: Out<types::Request>) -> Answer {
    if request.is_null() {
        place.set(NULL);
    } else {
        let remote = request.remote();
        place.set(insert::<kind::Request>(RequestObject { request: Mutex::new(request), remote })?);
    }
    Ok(())
}

/// Puts how one operation ended. The error's field is not such a call's to set, but for the empty status of no operation.
pub(crate) fn put_status(found: &mpi::Status, place: Out<Status>) {
    let is_empty = *found == mpi::Status::empty();
    let error = place.get().filter(|_| !is_empty).map_or(c::MPI_SUCCESS, |old| old.error);
    place.set(Status::of(found, error));
}

/// Answers with how one operation ended, and with its error.
pub(crate) fn answer_status(found: mpi::Status, place: Out<Status>, whose: Whose) -> Answer {
    put_status(&found, place);
    found.ok().map(drop).map_err(|error| Fault::from(error).at(whose))
}

/// Whose error handler hears of a request's error.
fn whose(request: &Request) -> Whose {
    request.comm().map_or(Whose::Process, |comm| Whose::Comm(handle_of(comm)))
}

/// The request at a place; `MPI_REQUEST_NULL` is none.
fn given(place: Out<types::Request>) -> Answer<Option<Ref<kind::Request>>> {
    match place.get() {
        Some(handle) if handle != NULL => get(handle, "request").map(Some),
        _ => Ok(None),
    }
}

/// Makes the handle at a place null.
fn forget(place: Out<types::Request>) {
    if let Some(handle) = place.get() {
        remove(handle);
    }
    place.set(NULL);
}

pub(crate) fn wait(request: Out<types::Request>, status: Out<Status>) -> Answer {
    state::state()?;
    let Some(object) = given(request)? else {
        put_status(&mpi::Status::empty(), status);
        return Ok(());
    };
    let mut held = lock(&object);
    let whose = whose(&held);
    let found = held.wait();
    if held.is_null() {
        forget(request);
    }
    drop(held);
    answer_status(found, status, whose)
}

pub(crate) fn test(request: Out<types::Request>, flag: Out<i32>, status: Out<Status>) -> Answer {
    state::state()?;
    let Some(object) = given(request)? else {
        flag.set(1);
        put_status(&mpi::Status::empty(), status);
        return Ok(());
    };
    let mut held = lock(&object);
    let whose = whose(&held);
    let found = held.test();
    flag.set(found.is_some().into());
    let Some(found) = found else { return Ok(()) };
    if held.is_null() {
        forget(request);
    }
    drop(held);
    answer_status(found, status, whose)
}

/// The requests of an array; null ones are none.
fn several(
    count: i32,
    handle: impl Fn(usize) -> Option<types::Request>,
) -> Answer<Vec<Option<Ref<kind::Request>>>> {
    state::state()?;
    let negative = |_| Fault::new(c::MPI_ERR_COUNT, format!("count: {count} is negative"));
    let count = usize::try_from(count).map_err(negative)?;
    let one = |at| match handle(at) {
        None => Err(Fault::new(c::MPI_ERR_ARG, "array_of_requests: it is NULL")),
        Some(handle) if handle == NULL => Ok(None),
        Some(handle) => get(handle, "array_of_requests").map(Some),
    };
    (0..count).map(one).collect()
}

fn several_of(count: i32, array: Out<types::Request>) -> Answer<Vec<Option<Ref<kind::Request>>>> {
    several(count, |at| array.nth(at).get())
}

/// Requests that are locked for a call, each a null one where there is none. What is locked already stands in the array twice, or
/// in another thread's call.
struct Held<'a> {
    guards: Vec<Option<MutexGuard<'a, Request>>>,
    nulls: Vec<Request>,
}

impl<'a> Held<'a> {
    fn new(objects: &'a [Option<Ref<kind::Request>>]) -> Answer<Self> {
        let twice = "array_of_requests: a request is used twice at a time";
        let mut guards = Vec::with_capacity(objects.len());
        for object in objects {
            guards.push(match object.as_ref().map(|object| object.try_lock()) {
                None => None,
                Some(Ok(held)) => Some(held),
                Some(Err(TryLockError::Poisoned(held))) => Some(held.into_inner()),
                Some(Err(TryLockError::WouldBlock)) => return Err(Fault::new(c::MPI_ERR_REQUEST, twice)),
            });
        }
        let nulls = objects.iter().map(|_| Request::null()).collect();
        Ok(Self { guards, nulls })
    }

    fn requests(&mut self) -> Vec<&mut Request> {
        let pairs = self.guards.iter_mut().zip(&mut self.nulls);
        pairs.map(|(guard, null)| guard.as_deref_mut().unwrap_or(null)).collect()
    }

    /// Whose error handler hears of each request's error, before they are over.
    fn owners(&self) -> Vec<Whose> {
        self.guards.iter().map(|guard| guard.as_deref().map_or(Whose::Process, whose)).collect()
    }

    /// Makes handles null whose requests are over.
    fn forget(self, array: Out<types::Request>) {
        for (at, guard) in self.guards.into_iter().enumerate() {
            let is_over = guard.is_some_and(|guard| guard.is_null());
            if is_over {
                forget(array.nth(at));
            }
        }
    }
}

/// Puts how several operations ended. If one failed, each status has its own error, and the call says so.
fn answer_statuses(
    found: impl Iterator<Item = (usize, mpi::Status)>,
    owners: &[Whose],
    place: impl Fn(usize) -> Out<Status>,
) -> Answer {
    let found: Vec<(usize, mpi::Status)> = found.collect();
    let failed =
        found.iter().find_map(|(at, status)| status.error.as_ref().map(|error| (owners[*at], error)));
    for (nth, (_, status)) in found.iter().enumerate() {
        let error = status.error.as_ref().map_or(c::MPI_SUCCESS, |error| code_of(error.class.0, &error.text));
        let place = place(nth);
        if failed.is_some() {
            place.set(Status::of(status, error));
        } else {
            put_status(status, place);
        }
    }
    match failed {
        None => Ok(()),
        Some((whose, error)) => Err(Fault::new(c::MPI_ERR_IN_STATUS, error.text.clone()).at(whose)),
    }
}

pub(crate) fn waitall(count: i32, requests: Out<types::Request>, statuses: Out<Status>) -> Answer {
    let objects = several_of(count, requests)?;
    let mut held = Held::new(&objects)?;
    let owners = held.owners();
    let found = Request::wait_all(&mut held.requests());
    held.forget(requests);
    answer_statuses(found.into_iter().enumerate(), &owners, |at| statuses.nth(at))
}

pub(crate) fn testall(
    count: i32,
    requests: Out<types::Request>,
    flag: Out<i32>,
    statuses: Out<Status>,
) -> Answer {
    let objects = several_of(count, requests)?;
    let mut held = Held::new(&objects)?;
    let owners = held.owners();
    let found = Request::test_all(&mut held.requests());
    flag.set(found.is_some().into());
    let Some(found) = found else { return Ok(()) };
    held.forget(requests);
    answer_statuses(found.into_iter().enumerate(), &owners, |at| statuses.nth(at))
}

/// Answers with which of several is over; `MPI_UNDEFINED` where none is active.
fn answer_any(
    found: Option<(usize, mpi::Status)>,
    owners: &[Whose],
    indx: Out<i32>,
    status: Out<Status>,
) -> Answer {
    let Some((at, found)) = found else {
        indx.set(c::MPI_UNDEFINED);
        put_status(&mpi::Status::empty(), status);
        return Ok(());
    };
    indx.set(at as i32);
    answer_status(found, status, owners[at])
}

pub(crate) fn waitany(
    count: i32,
    requests: Out<types::Request>,
    indx: Out<i32>,
    status: Out<Status>,
) -> Answer {
    let objects = several_of(count, requests)?;
    let mut held = Held::new(&objects)?;
    let owners = held.owners();
    let found = Request::wait_any(&mut held.requests());
    held.forget(requests);
    answer_any(found, &owners, indx, status)
}

pub(crate) fn testany(
    count: i32,
    requests: Out<types::Request>,
    indx: Out<i32>,
    flag: Out<i32>,
    status: Out<Status>,
) -> Answer {
    let objects = several_of(count, requests)?;
    let mut held = Held::new(&objects)?;
    let owners = held.owners();
    let found = match Request::test_any(&mut held.requests()) {
        Any::Pending => {
            flag.set(0);
            indx.set(c::MPI_UNDEFINED);
            return Ok(());
        }
        Any::Inactive => None,
        Any::Over(at, status) => Some((at, status)),
    };
    flag.set(1);
    held.forget(requests);
    answer_any(found, &owners, indx, status)
}

/// Answers with which of several are over.
fn answer_some(
    found: Option<Vec<(usize, mpi::Status)>>,
    owners: &[Whose],
    outcount: Out<i32>,
    indices: Out<i32>,
    statuses: Out<Status>,
) -> Answer {
    let Some(found) = found else {
        outcount.set(c::MPI_UNDEFINED);
        return Ok(());
    };
    outcount.set(found.len() as i32);
    found.iter().enumerate().for_each(|(nth, (at, _))| indices.nth(nth).set(*at as i32));
    answer_statuses(found.into_iter(), owners, |nth| statuses.nth(nth))
}

pub(crate) fn waitsome(
    incount: i32,
    requests: Out<types::Request>,
    outcount: Out<i32>,
    indices: Out<i32>,
    statuses: Out<Status>,
) -> Answer {
    let objects = several_of(incount, requests)?;
    let mut held = Held::new(&objects)?;
    let owners = held.owners();
    let found = Request::wait_some(&mut held.requests());
    held.forget(requests);
    answer_some(found, &owners, outcount, indices, statuses)
}

pub(crate) fn testsome(
    incount: i32,
    requests: Out<types::Request>,
    outcount: Out<i32>,
    indices: Out<i32>,
    statuses: Out<Status>,
) -> Answer {
    let objects = several_of(incount, requests)?;
    let mut held = Held::new(&objects)?;
    let owners = held.owners();
    let found = Request::test_some(&mut held.requests());
    held.forget(requests);
    answer_some(found, &owners, outcount, indices, statuses)
}

/// How the request of a handle ended, if it has; it stays as it is.
fn peek(object: &Option<Ref<kind::Request>>) -> Option<mpi::Status> {
    match object {
        None => Some(mpi::Status::empty()),
        Some(object) => lock(object).peek(),
    }
}

fn is_active(object: &Option<Ref<kind::Request>>) -> bool {
    object.as_ref().is_some_and(|object| lock(object).is_active())
}

pub(crate) fn request_get_status(request: types::Request, flag: Out<i32>, status: Out<Status>) -> Answer {
    let objects = several(1, |_| Some(request))?;
    let found = peek(&objects[0]);
    flag.set(found.is_some().into());
    found.into_iter().for_each(|found| put_status(&found, status));
    Ok(())
}

pub(crate) fn request_get_status_all(
    count: i32,
    requests: In<types::Request>,
    flag: Out<i32>,
    statuses: Out<Status>,
) -> Answer {
    let objects = several_in(count, requests)?;
    let found: Option<Vec<mpi::Status>> = objects.iter().map(peek).collect();
    flag.set(found.is_some().into());
    let found = found.unwrap_or_default();
    found.iter().enumerate().for_each(|(at, found)| put_status(found, statuses.nth(at)));
    Ok(())
}

fn several_in(count: i32, array: In<types::Request>) -> Answer<Vec<Option<Ref<kind::Request>>>> {
    let handles: Vec<types::Request> = match usize::try_from(count) {
        Ok(count) => array.items(count).into_iter().flatten().collect(),
        Err(_) => Vec::new(),
    };
    several(count, |at| handles.get(at).copied())
}

pub(crate) fn request_get_status_any(
    count: i32,
    requests: In<types::Request>,
    indx: Out<i32>,
    flag: Out<i32>,
    status: Out<Status>,
) -> Answer {
    let objects = several_in(count, requests)?;
    let active: Vec<usize> = (0..objects.len()).filter(|at| is_active(&objects[*at])).collect();
    let over = active.iter().find_map(|at| peek(&objects[*at]).map(|found| (*at, found)));
    flag.set((over.is_some() || active.is_empty()).into());
    indx.set(over.as_ref().map_or(c::MPI_UNDEFINED, |(at, _)| *at as i32));
    match over {
        Some((_, found)) => put_status(&found, status),
        None if active.is_empty() => put_status(&mpi::Status::empty(), status),
        None => {}
    }
    Ok(())
}

pub(crate) fn request_get_status_some(
    incount: i32,
    requests: In<types::Request>,
    outcount: Out<i32>,
    indices: Out<i32>,
    statuses: Out<Status>,
) -> Answer {
    let objects = several_in(incount, requests)?;
    let active: Vec<usize> = (0..objects.len()).filter(|at| is_active(&objects[*at])).collect();
    let over: Vec<(usize, mpi::Status)> =
        active.iter().filter_map(|at| Some((*at, peek(&objects[*at])?))).collect();
    outcount.set(if active.is_empty() { c::MPI_UNDEFINED } else { over.len() as i32 });
    for (nth, (at, found)) in over.iter().enumerate() {
        indices.nth(nth).set(*at as i32);
        put_status(found, statuses.nth(nth));
    }
    Ok(())
}

fn null() -> Fault {
    Fault::new(c::MPI_ERR_REQUEST, "request: it is MPI_REQUEST_NULL")
}

/// What a call does with one request that may not be null.
fn with(place: Out<types::Request>, body: impl FnOnce(&mut Request) -> mpi::Result<()>) -> Answer {
    state::state()?;
    let object = given(place)?.ok_or_else(null)?;
    let mut held = lock(&object);
    let whose = whose(&held);
    body(&mut held).map_err(|error| Fault::from(error).at(whose))
}

pub(crate) fn start(request: Out<types::Request>) -> Answer {
    with(request, Request::start)
}

pub(crate) fn startall(count: i32, requests: Out<types::Request>) -> Answer {
    let count = usize::try_from(count).map_err(|_| Fault::new(c::MPI_ERR_COUNT, "count: it is negative"))?;
    (0..count).try_for_each(|at| start(requests.nth(at)))
}

pub(crate) fn cancel(request: Out<types::Request>) -> Answer {
    with(request, |request| request.cancel())
}

/// The operation goes on.
pub(crate) fn request_free(request: Out<types::Request>) -> Answer {
    with(request, |_| Ok(()))?;
    forget(request);
    Ok(())
}
