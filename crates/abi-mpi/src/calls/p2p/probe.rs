//! Probes, and the messages that matched probes return (MPI 5.0, section 3.8).

use std::sync::Mutex;

use ffi::{Out, lock};
use mpi::{Message, With};

use super::request::{answer_status, new_request};
use crate::answer::{Answer, Fault, Whose};
use crate::constants as c;
use crate::memory::buffer;
use crate::objects::{comm_handle, get, insert, remove};
use crate::state;
use crate::types::{self, Address, Comm, Handle, Number, Status, kind};

/// MPI 5.0, section 3.8.1.
pub(crate) fn probe(source: i32, tag: i32, comm: Comm, status: Out<Status>) -> Answer {
    let found = get(comm, "comm")?.probe(With { rank: source, tag })?;
    answer_status(found, status, Whose::Comm(comm))
}

/// MPI 5.0, section 3.8.1.
pub(crate) fn iprobe(source: i32, tag: i32, comm: Comm, flag: Out<i32>, status: Out<Status>) -> Answer {
    let found = get(comm, "comm")?.iprobe(With { rank: source, tag })?;
    flag.set(found.is_some().into());
    found.map_or(Ok(()), |found| answer_status(found, status, Whose::Comm(comm)))
}

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
    let (matched, found) = get(comm, "comm")?.mprobe(With { rank: source, tag })?;
    message.set(new_message(matched)?);
    answer_status(found, status, Whose::Comm(comm))
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
    let found = get(comm, "comm")?.improbe(With { rank: source, tag })?;
    flag.set(found.is_some().into());
    let Some((matched, found)) = found else { return Ok(()) };
    message.set(new_message(matched)?);
    answer_status(found, status, Whose::Comm(comm))
}

/// Removes the message of a handle, and sets the handle to `MPI_MESSAGE_NULL`.
fn take(place: Out<types::Message>) -> Answer<Message> {
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

fn whose(message: &Message) -> Whose {
    message.comm().map_or(Whose::Process, |comm| Whose::Comm(comm_handle(comm.id())))
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
    let message = take(message)?;
    let whose = whose(&message);
    answer_status(message.receive(buffer), status, whose)
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
    let message = take(message)?;
    if message.is_no_proc() {
        // A receive from `MPI_PROC_NULL`, which completes immediately but still has a request.
        let nobody = With { rank: mpi::PROC_NULL, tag: mpi::ANY_TAG };
        return new_request(state::process()?.alone().ireceive(buffer, nobody)?, request);
    }
    new_request(message.ireceive(buffer), request)
}
