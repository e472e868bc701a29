//! Requests: waiting and testing, persistent requests, and operations on pending ones (MPI 5.0, chapter 3).
//!
//! A handle is the number of an `mpi` request, which is odd, or a predefined value: null, or the shared handle of all requests that
//! completed at their start with an empty status.

use ffi::{In, Out};
use mpi::{CompletedRequest, Request, RequestId, TestAny};

use crate::answer::{Answer, ErrhandlerOwner, Fault};
use crate::constants as c;
use crate::handler::code_of;
use crate::objects::comm_handle;
use crate::state;
use crate::types::{self, Handle, Status};

const NULL: types::Request = Handle::new(c::MPI_REQUEST_NULL);
/// The value after null, in the part of the page that the standard leaves to requests.
const COMPLETED: types::Request = Handle::new(c::MPI_REQUEST_NULL + 1);
/// A number of no request.
const INVALID_NUMBER: u64 = 2;

/// The request number of a handle, valid or not.
#[inline]
fn id_of_handle(handle: types::Request) -> RequestId {
    if !handle.is_predefined() {
        return RequestId::from_number(handle.value() as u64);
    }
    if handle == NULL {
        RequestId::NULL
    } else if handle == COMPLETED {
        RequestId::COMPLETED
    } else {
        RequestId::from_number(INVALID_NUMBER)
    }
}

/// Stores the handle of a request.
#[inline]
pub(crate) fn put_request(id: RequestId, place: Out<types::Request>) {
    place.set(match id {
        RequestId::NULL => NULL,
        RequestId::COMPLETED => COMPLETED,
        id => Handle::new(id.number() as usize),
    });
}

/// Stores a handle of a new request.
pub(crate) fn new_request(request: Request, place: Out<types::Request>) -> Answer {
    put_request(request.into_id(), place);
    Ok(())
}

/// A handle as an integer: predefined handles keep their values, others are above 2^30 (MPI 5.0, section 20.4.5).
pub(crate) fn request_toint(request: types::Request) -> i32 {
    if request.is_predefined() {
        return request.value() as i32;
    }
    state::process().ok().and_then(|process| process.requests().integer(id_of_handle(request))).unwrap_or(-1)
}

/// The handle of an integer; an invalid integer gives a handle that no call accepts (MPI 5.0, section 20.4.5).
pub(crate) fn request_fromint(number: i32) -> types::Request {
    match usize::try_from(number) {
        Ok(value) if value < types::PREDEFINED => Handle::new(value),
        _ => {
            let id = state::process().ok().and_then(|process| process.requests().from_integer(number));
            Handle::new(id.map_or(usize::MAX, |id| id.number() as usize))
        }
    }
}

/// Stores source, tag and length of a received message in a status. The error field is not changed.
#[inline]
pub(crate) fn put_received((source, tag): (i32, i32), len: usize, place: Out<Status>) {
    if let Some(old) = place.get() {
        place.set(Status::new(source, tag, old.error, len as u64, false));
    }
}

/// Stores the status of one operation. The error field is not changed, except for the empty status.
#[inline]
pub(crate) fn put_status(found: &mpi::Status, place: Out<Status>) {
    if !place.is_some() {
        return;
    }
    let old = if found.is_empty() { None } else { place.get() };
    place.set(Status::of(found, old.map_or(c::MPI_SUCCESS, |old| old.error)));
}

/// Stores the status of one operation, and returns its error.
#[inline]
pub(crate) fn store_status(found: mpi::Status, place: Out<Status>, owner: ErrhandlerOwner) -> Answer {
    put_status(&found, place);
    match &found.error {
        None => Ok(()),
        Some(error) => Err(Fault::from(mpi::Error::clone(error)).for_owner(owner)),
    }
}

/// The error handler of a request that belongs to this communicator.
fn owner_of(comm: Option<u64>) -> ErrhandlerOwner {
    comm.map_or(ErrhandlerOwner::Process, |id| ErrhandlerOwner::Comm(comm_handle(id)))
}

/// Maps an error of a request number to the argument's name.
fn argument_error(argument: &'static str) -> impl Fn(mpi::Error) -> Fault {
    move |error| match error.class {
        mpi::Class::REQUEST => Fault::new(error.class.0, format!("{argument}: {}", error.text)),
        _ => error.into(),
    }
}

const ONE: &str = "request";
const ARRAY: &str = "array_of_requests";

/// The request of a handle.
fn request_id(place: Out<types::Request>) -> RequestId {
    place.get().map_or(RequestId::NULL, id_of_handle)
}

/// Returns the status of a completed request; sets the handle to null, unless the request is persistent.
#[inline]
fn put_completed(completed: CompletedRequest, request: Out<types::Request>, status: Out<Status>) -> Answer {
    if !completed.is_persistent {
        request.set(NULL);
    }
    put_status(&completed.status, status);
    match &completed.status.error {
        None => Ok(()),
        Some(error) => Err(Fault::from(mpi::Error::clone(error)).for_owner(owner_of(completed.comm))),
    }
}

/// MPI 5.0, section 3.7.3.
pub(crate) fn wait(request: Out<types::Request>, status: Out<Status>) -> Answer {
    let completed = state::process()?.requests().wait(request_id(request)).map_err(argument_error(ONE))?;
    put_completed(completed, request, status)
}

/// MPI 5.0, section 3.7.3.
pub(crate) fn test(request: Out<types::Request>, flag: Out<i32>, status: Out<Status>) -> Answer {
    let completed = state::process()?.requests().test(request_id(request)).map_err(argument_error(ONE))?;
    flag.set(completed.is_some().into());
    completed.map_or(Ok(()), |completed| put_completed(completed, request, status))
}

/// Reads an array of request handles.
#[inline]
fn request_ids(count: i32, handle: impl Fn(usize) -> Option<types::Request>) -> Answer<Vec<RequestId>> {
    let negative = |_| Fault::new(c::MPI_ERR_COUNT, format!("count: {count} is negative"));
    let count = usize::try_from(count).map_err(negative)?;
    let missing = || Fault::new(c::MPI_ERR_ARG, format!("{ARRAY}: it is NULL"));
    let mut ids = Vec::with_capacity(count);
    for at in 0..count {
        ids.push(id_of_handle(handle(at).ok_or_else(missing)?));
    }
    Ok(ids)
}

/// The requests of an array that the call also changes.
fn request_ids_of_out(count: i32, array: Out<types::Request>) -> Answer<Vec<RequestId>> {
    request_ids(count, |at| array.element(at).get())
}

/// Stores the statuses of several operations. If one failed, each status has its own error, and the call returns
/// `MPI_ERR_IN_STATUS`.
fn store_statuses(found: &[CompletedRequest], place: impl Fn(usize) -> Out<Status>) -> Answer {
    let failed = found.iter().find_map(|completed| Some((completed.comm, completed.status.error.as_ref()?)));
    for (nth, CompletedRequest { status, .. }) in found.iter().enumerate() {
        if failed.is_some() {
            let code = |error: &mpi::Error| code_of(error.class.0, &error.text);
            place(nth).set(Status::of(status, status.error.as_deref().map_or(c::MPI_SUCCESS, code)));
        } else {
            put_status(status, place(nth));
        }
    }
    match failed {
        None => Ok(()),
        Some((comm, error)) => {
            Err(Fault::new(c::MPI_ERR_IN_STATUS, error.text.clone()).for_owner(owner_of(comm)))
        }
    }
}

/// Returns the statuses of all completed operations of an array.
fn store_all(completed: &[CompletedRequest], requests: Out<types::Request>, statuses: Out<Status>) -> Answer {
    for (at, completed) in completed.iter().enumerate() {
        if !completed.is_persistent {
            requests.element(at).set(NULL);
        }
    }
    store_statuses(completed, |at| statuses.element(at))
}

/// MPI 5.0, section 3.7.5.
pub(crate) fn waitall(count: i32, requests: Out<types::Request>, statuses: Out<Status>) -> Answer {
    let process = state::process()?;
    if let Ok(many) = usize::try_from(count)
        && requests.is_some()
    {
        let put = |at: usize, status: &mpi::Status| {
            requests.element(at).set(NULL);
            put_status(status, statuses.element(at));
        };
        if process.requests().wait_all_successful(many, |at| request_id(requests.element(at)), put)? {
            return Ok(());
        }
    }
    let completed =
        process.requests().wait_all(&request_ids_of_out(count, requests)?).map_err(argument_error(ARRAY))?;
    store_all(&completed, requests, statuses)
}

/// MPI 5.0, section 3.7.5.
pub(crate) fn testall(
    count: i32,
    requests: Out<types::Request>,
    flag: Out<i32>,
    statuses: Out<Status>,
) -> Answer {
    let process = state::process()?;
    let completed =
        process.requests().test_all(&request_ids_of_out(count, requests)?).map_err(argument_error(ARRAY))?;
    flag.set(completed.is_some().into());
    completed.map_or(Ok(()), |completed| store_all(&completed, requests, statuses))
}

/// Returns the index and status of a completed request; the index is `MPI_UNDEFINED` if none is active.
fn store_any(
    found: Option<(usize, CompletedRequest)>,
    requests: Out<types::Request>,
    indx: Out<i32>,
    status: Out<Status>,
) -> Answer {
    let Some((at, completed)) = found else {
        indx.set(c::MPI_UNDEFINED);
        put_status(&mpi::Status::empty(), status);
        return Ok(());
    };
    indx.set(at as i32);
    put_completed(completed, requests.element(at), status)
}

/// MPI 5.0, section 3.7.5.
pub(crate) fn waitany(
    count: i32,
    requests: Out<types::Request>,
    indx: Out<i32>,
    status: Out<Status>,
) -> Answer {
    let process = state::process()?;
    let found =
        process.requests().wait_any(&request_ids_of_out(count, requests)?).map_err(argument_error(ARRAY))?;
    store_any(found, requests, indx, status)
}

/// MPI 5.0, section 3.7.5.
pub(crate) fn testany(
    count: i32,
    requests: Out<types::Request>,
    indx: Out<i32>,
    flag: Out<i32>,
    status: Out<Status>,
) -> Answer {
    let process = state::process()?;
    let found =
        process.requests().test_any(&request_ids_of_out(count, requests)?).map_err(argument_error(ARRAY))?;
    flag.set((found != TestAny::Pending).into());
    match found {
        TestAny::Pending => {
            indx.set(c::MPI_UNDEFINED);
            Ok(())
        }
        TestAny::Inactive => store_any(None, requests, indx, status),
        TestAny::Completed(at, completed) => store_any(Some((at, completed)), requests, indx, status),
    }
}

/// Returns the indices and statuses of completed requests.
fn store_some(
    found: Option<Vec<(usize, CompletedRequest)>>,
    requests: Out<types::Request>,
    outcount: Out<i32>,
    indices: Out<i32>,
    statuses: Out<Status>,
) -> Answer {
    let Some(found) = found else {
        outcount.set(c::MPI_UNDEFINED);
        return Ok(());
    };
    outcount.set(found.len() as i32);
    for (nth, (at, completed)) in found.iter().enumerate() {
        indices.element(nth).set(*at as i32);
        if !completed.is_persistent {
            requests.element(*at).set(NULL);
        }
    }
    let completed: Vec<CompletedRequest> = found.into_iter().map(|(_, completed)| completed).collect();
    store_statuses(&completed, |nth| statuses.element(nth))
}

/// MPI 5.0, section 3.7.5.
pub(crate) fn waitsome(
    incount: i32,
    requests: Out<types::Request>,
    outcount: Out<i32>,
    indices: Out<i32>,
    statuses: Out<Status>,
) -> Answer {
    let process = state::process()?;
    let found = process
        .requests()
        .wait_some(&request_ids_of_out(incount, requests)?)
        .map_err(argument_error(ARRAY))?;
    store_some(found, requests, outcount, indices, statuses)
}

/// MPI 5.0, section 3.7.5.
pub(crate) fn testsome(
    incount: i32,
    requests: Out<types::Request>,
    outcount: Out<i32>,
    indices: Out<i32>,
    statuses: Out<Status>,
) -> Answer {
    let process = state::process()?;
    let found = process
        .requests()
        .test_some(&request_ids_of_out(incount, requests)?)
        .map_err(argument_error(ARRAY))?;
    store_some(found, requests, outcount, indices, statuses)
}

/// The status of a request of an array, if it has completed; the request stays unchanged.
fn status_if_complete(id: RequestId) -> Answer<Option<mpi::Status>> {
    state::process()?.requests().peek(id).map_err(argument_error(ARRAY))
}

/// The indices of requests that are neither null nor inactive.
fn active(ids: &[RequestId]) -> Answer<Vec<usize>> {
    let requests = state::process()?.requests();
    let mut active = Vec::new();
    for (at, id) in ids.iter().enumerate() {
        if requests.is_active(*id).map_err(argument_error(ARRAY))? {
            active.push(at);
        }
    }
    Ok(active)
}

/// MPI 5.0, section 3.7.6.
pub(crate) fn request_get_status(request: types::Request, flag: Out<i32>, status: Out<Status>) -> Answer {
    let found = state::process()?.requests().peek(id_of_handle(request)).map_err(argument_error(ONE))?;
    flag.set(found.is_some().into());
    found.into_iter().for_each(|found| put_status(&found, status));
    Ok(())
}

/// MPI 5.0, section 3.7.6.
pub(crate) fn request_get_status_all(
    count: i32,
    requests: In<types::Request>,
    flag: Out<i32>,
    statuses: Out<Status>,
) -> Answer {
    let found: Vec<_> =
        request_ids_of_in(count, requests)?.into_iter().map(status_if_complete).collect::<Answer<_>>()?;
    let found: Option<Vec<mpi::Status>> = found.into_iter().collect();
    flag.set(found.is_some().into());
    let found = found.unwrap_or_default();
    found.iter().enumerate().for_each(|(at, found)| put_status(found, statuses.element(at)));
    Ok(())
}

/// The requests of an array that the call only reads.
fn request_ids_of_in(count: i32, array: In<types::Request>) -> Answer<Vec<RequestId>> {
    let handles: Vec<types::Request> = match usize::try_from(count) {
        Ok(count) => array.items(count).into_iter().flatten().collect(),
        Err(_) => Vec::new(),
    };
    request_ids(count, |at| handles.get(at).copied())
}

/// MPI 5.0, section 3.7.6.
pub(crate) fn request_get_status_any(
    count: i32,
    requests: In<types::Request>,
    indx: Out<i32>,
    flag: Out<i32>,
    status: Out<Status>,
) -> Answer {
    let ids = request_ids_of_in(count, requests)?;
    let active = active(&ids)?;
    let mut completed = None;
    for at in &active {
        if let Some(found) = status_if_complete(ids[*at])? {
            completed = Some((*at, found));
            break;
        }
    }
    flag.set((completed.is_some() || active.is_empty()).into());
    indx.set(completed.as_ref().map_or(c::MPI_UNDEFINED, |(at, _)| *at as i32));
    match completed {
        Some((_, found)) => put_status(&found, status),
        None if active.is_empty() => put_status(&mpi::Status::empty(), status),
        None => {}
    }
    Ok(())
}

/// MPI 5.0, section 3.7.6.
pub(crate) fn request_get_status_some(
    incount: i32,
    requests: In<types::Request>,
    outcount: Out<i32>,
    indices: Out<i32>,
    statuses: Out<Status>,
) -> Answer {
    let ids = request_ids_of_in(incount, requests)?;
    let active = active(&ids)?;
    let mut completed = Vec::new();
    for at in &active {
        completed.extend(status_if_complete(ids[*at])?.map(|found| (*at, found)));
    }
    outcount.set(if active.is_empty() { c::MPI_UNDEFINED } else { completed.len() as i32 });
    for (nth, (at, found)) in completed.iter().enumerate() {
        indices.element(nth).set(*at as i32);
        put_status(found, statuses.element(nth));
    }
    Ok(())
}

/// Runs `act` for one request, which must not be null.
fn with_request(
    place: Out<types::Request>,
    body: impl FnOnce(mpi::Requests<'_>, RequestId) -> mpi::Result<()>,
) -> Answer {
    let (requests, id) = (state::process()?.requests(), request_id(place));
    if id == RequestId::NULL {
        return Err(Fault::new(c::MPI_ERR_REQUEST, "request: it is MPI_REQUEST_NULL"));
    }
    body(requests, id).map_err(|error| argument_error(ONE)(error).for_owner(owner_of(requests.comm(id))))
}

/// MPI 5.0, section 3.9.
pub(crate) fn start(request: Out<types::Request>) -> Answer {
    with_request(request, |requests, id| requests.start(id))
}

/// MPI 5.0, section 3.9.
pub(crate) fn startall(count: i32, requests: Out<types::Request>) -> Answer {
    let count = usize::try_from(count).map_err(|_| Fault::new(c::MPI_ERR_COUNT, "count: it is negative"))?;
    (0..count).try_for_each(|at| start(requests.element(at)))
}

/// MPI 5.0, section 3.8.4.
pub(crate) fn cancel(request: Out<types::Request>) -> Answer {
    with_request(request, |requests, id| requests.cancel(id))
}

/// The operation continues (MPI 5.0, section 3.7.3).
pub(crate) fn request_free(request: Out<types::Request>) -> Answer {
    with_request(request, |requests, id| requests.free(id))?;
    request.set(NULL);
    Ok(())
}

/// Another thread may be waiting for the request (MPI 5.0, section 13.2).
pub(crate) fn grequest_complete(request: types::Request) -> Answer {
    state::process()?.requests().complete(id_of_handle(request)).map_err(argument_error(ONE))
}

/// Marks partitions as ready. Other threads may be waiting for the request (MPI 5.0, section 4.2.1).
pub(crate) fn pready_range(low: i32, high: i32, request: types::Request) -> Answer {
    state::process()?.requests().parts_ready(id_of_handle(request), low, high).map_err(argument_error(ONE))
}

/// MPI 5.0, section 4.2.2.
pub(crate) fn parrived(request: types::Request, partition: i32, flag: Out<i32>) -> Answer {
    let has_arrived = state::process()?.requests().part_arrived(id_of_handle(request), partition);
    flag.set(has_arrived.map_err(argument_error(ONE))?.into());
    Ok(())
}
