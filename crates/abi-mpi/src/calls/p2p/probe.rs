//! Probes, and the messages that matched probes return (MPI 5.0, section 3.8).

use std::sync::Mutex;

use ffi::{Out, lock};
use mpi::{Message, PeerTag};

use super::request::{new_request, store_status};
use crate::answer::{Answer, ErrhandlerOwner, Fault};
use crate::constants as c;
use crate::memory::buffer;
use crate::objects::{comm_handle, get, insert, remove};
use crate::state;
use crate::types::{self, Address, Comm, Handle, Number, Status, kind};

/// MPI 5.0, section 3.8.1.
pub(crate) fn probe(source: i32, tag: i32, comm: Comm, status: Out<Status>) -> Answer {
    let found = get(comm, "comm")?.probe(PeerTag { rank: source, tag })?;
    store_status(found, status, ErrhandlerOwner::Comm(comm))
}

/// MPI 5.0, section 3.8.1.
pub(crate) fn iprobe(source: i32, tag: i32, comm: Comm, flag: Out<i32>, status: Out<Status>) -> Answer {
    let found = get(comm, "comm")?.iprobe(PeerTag { rank: source, tag })?;
    flag.set(found.is_some().into());
    found.map_or(Ok(()), |found| store_status(found, status, ErrhandlerOwner::Comm(comm)))
}

/// A handle for a matched message.
fn new_message(message: Message) -> Answer<types::Message> {
    if message.is_no_proc() {
        return Ok(Handle::new(c::MPI_MESSAGE_NO_PROC));
    }
    insert::<kind::Message>(Mutex::new(Some(message)))
}

/// MPI 5.0, section 3.8.2.
pub(crate) fn mprobe(
    source: i32,
    tag: i32,
    comm: Comm,
    message: Out<types::Message>,
    status: Out<Status>,
) -> Answer {
    let (matched, found) = get(comm, "comm")?.mprobe(PeerTag { rank: source, tag })?;
    message.set(new_message(matched)?);
    store_status(found, status, ErrhandlerOwner::Comm(comm))
}

/// MPI 5.0, section 3.8.2.
pub(crate) fn improbe(
    source: i32,
    tag: i32,
    comm: Comm,
    flag: Out<i32>,
    message: Out<types::Message>,
    status: Out<Status>,
) -> Answer {
    let found = get(comm, "comm")?.improbe(PeerTag { rank: source, tag })?;
    flag.set(found.is_some().into());
    let Some((matched, found)) = found else { return Ok(()) };
    message.set(new_message(matched)?);
    store_status(found, status, ErrhandlerOwner::Comm(comm))
}

/// Removes the message of a handle, and sets the handle to `MPI_MESSAGE_NULL`.
fn take_message(place: Out<types::Message>) -> Answer<Message> {
    let handle = place.get().unwrap_or(Handle::new(c::MPI_MESSAGE_NULL));
    let taken = if handle.value() == c::MPI_MESSAGE_NO_PROC {
        Message::no_proc()
    } else {
        let gone = || Fault::new(c::MPI_ERR_REQUEST, "message: it was received already");
        let taken = lock(&*get(handle, "message")?).take().ok_or_else(gone)?;
        remove(handle);
        taken
    };
    place.set(Handle::new(c::MPI_MESSAGE_NULL));
    Ok(taken)
}

/// Whose error handler is called for errors of this message.
fn owner_of(message: &Message) -> ErrhandlerOwner {
    message.comm().map_or(ErrhandlerOwner::Process, |comm| ErrhandlerOwner::Comm(comm_handle(comm.id())))
}

/// MPI 5.0, section 3.8.3.
pub(crate) fn mrecv<N: Number>(
    buf: Address,
    count: N,
    datatype: types::Datatype,
    message: Out<types::Message>,
    status: Out<Status>,
) -> Answer {
    let buffer = buffer(buf, count, datatype)?;
    let message = take_message(message)?;
    let owner = owner_of(&message);
    store_status(message.receive(buffer), status, owner)
}

/// MPI 5.0, section 3.8.3.
pub(crate) fn imrecv<N: Number>(
    buf: Address,
    count: N,
    datatype: types::Datatype,
    message: Out<types::Message>,
    request: Out<types::Request>,
) -> Answer {
    let buffer = buffer(buf, count, datatype)?;
    let message = take_message(message)?;
    if message.is_no_proc() {
        // A receive from `MPI_PROC_NULL`, which completes immediately but still has a request.
        let nobody = PeerTag { rank: mpi::PROC_NULL, tag: mpi::ANY_TAG };
        return new_request(state::process()?.comm_self().ireceive(buffer, nobody)?, request);
    }
    new_request(message.ireceive(buffer), request)
}
