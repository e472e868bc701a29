//! Sends and receives: blocking, nonblocking and persistent (MPI 5.0, chapter 3).

use ffi::Out;
use mpi::{Mode, PeerTag, RequestId};

use super::request::{new_request, put_received, put_request, store_status};
use crate::answer::{Answer, ErrhandlerOwner};
use crate::memory::{RECEIVE, SEND, buffer, named_buffer, piece};
use crate::objects::{get, try_with_comm};
use crate::types::{self, Address, Comm, Number, Status};

/// The fast path: sends a short contiguous message; returns whether it was sent.
#[inline(always)]
fn try_send<N: Number>(
    (buf, count, datatype): (Address, N, types::Datatype),
    to: PeerTag,
    comm: Comm,
) -> bool {
    piece(buf, count, datatype)
        .is_some_and(|piece| try_with_comm(comm, |comm| comm.try_send(piece, to)) == Some(true))
}

/// The calls of each send mode: blocking (MPI 5.0, sections 3.2.1 and 3.4), nonblocking (section 3.7.2) and persistent (section 3.9).
macro_rules! sends {
    ($($mode:ident: $send:ident, $isend:ident, $init:ident;)*) => {
        $(
            pub(crate) fn $send<N: Number>(
                buf: Address,
                count: N,
                datatype: types::Datatype,
                dest: i32,
                tag: i32,
                comm: Comm,
            ) -> Answer {
                if Mode::$mode.is_plain() && try_send((buf, count, datatype), PeerTag { rank: dest, tag }, comm) {
                    return Ok(());
                }
                let comm = get(comm, "comm")?;
                Ok(comm.send(Mode::$mode, &buffer(buf, count, datatype)?, PeerTag { rank: dest, tag })?)
            }

            pub(crate) fn $isend<N: Number>(
                buf: Address,
                count: N,
                datatype: types::Datatype,
                dest: i32,
                tag: i32,
                comm: Comm,
                request: Out<types::Request>,
            ) -> Answer {
                if Mode::$mode.is_plain() && try_send((buf, count, datatype), PeerTag { rank: dest, tag }, comm) {
                    put_request(RequestId::COMPLETED, request);
                    return Ok(());
                }
                let comm = get(comm, "comm")?;
                let buffer = buffer(buf, count, datatype)?;
                put_request(comm.begin_send(Mode::$mode, &buffer, PeerTag { rank: dest, tag })?, request);
                Ok(())
            }

            pub(crate) fn $init<N: Number>(
                buf: Address,
                count: N,
                datatype: types::Datatype,
                dest: i32,
                tag: i32,
                comm: Comm,
                request: Out<types::Request>,
            ) -> Answer {
                let comm = get(comm, "comm")?;
                let made = comm.send_init(Mode::$mode, buffer(buf, count, datatype)?, PeerTag { rank: dest, tag })?;
                new_request(made, request)
            }
        )*
    };
}

sends! {
    Standard: send, isend, send_init;
    Buffered: bsend, ibsend, bsend_init;
    Synchronous: ssend, issend, ssend_init;
    Ready: rsend, irsend, rsend_init;
}

/// MPI 5.0, section 3.2.4.
pub(crate) fn recv<N: Number>(
    buf: Address,
    count: N,
    datatype: types::Datatype,
    source: i32,
    tag: i32,
    comm: Comm,
    status: Out<Status>,
) -> Answer {
    let from = PeerTag { rank: source, tag };
    if let Some(piece) = piece(buf, count, datatype)
        && let Some((tag, len)) = try_with_comm(comm, |comm| comm.try_receive(piece, from)).flatten()
    {
        put_received((source, tag), len, status);
        return Ok(());
    }
    let object = get(comm, "comm")?;
    let found = object.receive(buffer(buf, count, datatype)?, from)?;
    store_status(found, status, ErrhandlerOwner::Comm(comm))
}

/// MPI 5.0, section 3.7.2.
pub(crate) fn irecv<N: Number>(
    buf: Address,
    count: N,
    datatype: types::Datatype,
    source: i32,
    tag: i32,
    comm: Comm,
    request: Out<types::Request>,
) -> Answer {
    let from = PeerTag { rank: source, tag };
    if let Some(piece) = piece(buf, count, datatype)
        && let Some(begun) = try_with_comm(comm, |comm| comm.try_post_receive(piece, from)).flatten()
    {
        put_request(begun, request);
        return Ok(());
    }
    let comm = get(comm, "comm")?;
    put_request(comm.begin_receive(buffer(buf, count, datatype)?, PeerTag { rank: source, tag })?, request);
    Ok(())
}

/// MPI 5.0, section 3.9.
pub(crate) fn recv_init<N: Number>(
    buf: Address,
    count: N,
    datatype: types::Datatype,
    source: i32,
    tag: i32,
    comm: Comm,
    request: Out<types::Request>,
) -> Answer {
    let comm = get(comm, "comm")?;
    new_request(comm.receive_init(buffer(buf, count, datatype)?, PeerTag { rank: source, tag })?, request)
}

/// MPI 5.0, section 3.2.7.
#[allow(clippy::too_many_arguments)] // as many as the standard has
pub(crate) fn sendrecv<N: Number>(
    sendbuf: Address,
    sendcount: N,
    sendtype: types::Datatype,
    dest: i32,
    sendtag: i32,
    recvbuf: Address,
    recvcount: N,
    recvtype: types::Datatype,
    source: i32,
    recvtag: i32,
    comm: Comm,
    status: Out<Status>,
) -> Answer {
    let object = get(comm, "comm")?;
    let send = named_buffer(SEND, sendbuf, sendcount, sendtype)?;
    let receive = named_buffer(RECEIVE, recvbuf, recvcount, recvtype)?;
    let (to, from) = (PeerTag { rank: dest, tag: sendtag }, PeerTag { rank: source, tag: recvtag });
    store_status(object.sendrecv(&send, to, receive, from)?, status, ErrhandlerOwner::Comm(comm))
}

/// MPI 5.0, section 3.7.2.
#[allow(clippy::too_many_arguments)] // as many as the standard has
pub(crate) fn isendrecv<N: Number>(
    sendbuf: Address,
    sendcount: N,
    sendtype: types::Datatype,
    dest: i32,
    sendtag: i32,
    recvbuf: Address,
    recvcount: N,
    recvtype: types::Datatype,
    source: i32,
    recvtag: i32,
    comm: Comm,
    request: Out<types::Request>,
) -> Answer {
    let comm = get(comm, "comm")?;
    let send = named_buffer(SEND, sendbuf, sendcount, sendtype)?;
    let receive = named_buffer(RECEIVE, recvbuf, recvcount, recvtype)?;
    let (to, from) = (PeerTag { rank: dest, tag: sendtag }, PeerTag { rank: source, tag: recvtag });
    new_request(comm.isendrecv(&send, to, receive, from)?, request)
}

/// MPI 5.0, section 3.2.7.
#[allow(clippy::too_many_arguments)] // as many as the standard has
pub(crate) fn sendrecv_replace<N: Number>(
    buf: Address,
    count: N,
    datatype: types::Datatype,
    dest: i32,
    sendtag: i32,
    source: i32,
    recvtag: i32,
    comm: Comm,
    status: Out<Status>,
) -> Answer {
    let object = get(comm, "comm")?;
    let (to, from) = (PeerTag { rank: dest, tag: sendtag }, PeerTag { rank: source, tag: recvtag });
    let found = object.sendrecv_replace(buffer(buf, count, datatype)?, to, from)?;
    store_status(found, status, ErrhandlerOwner::Comm(comm))
}

/// MPI 5.0, section 3.7.2.
#[allow(clippy::too_many_arguments)] // as many as the standard has
pub(crate) fn isendrecv_replace<N: Number>(
    buf: Address,
    count: N,
    datatype: types::Datatype,
    dest: i32,
    sendtag: i32,
    source: i32,
    recvtag: i32,
    comm: Comm,
    request: Out<types::Request>,
) -> Answer {
    let comm = get(comm, "comm")?;
    let (to, from) = (PeerTag { rank: dest, tag: sendtag }, PeerTag { rank: source, tag: recvtag });
    new_request(comm.isendrecv_replace(buffer(buf, count, datatype)?, to, from)?, request)
}
