//! Buffers for buffered sends: of the process, of communicators and of sessions (MPI 5.0, section 3.6).

use ffi::Out;
use mpi::BsendSpace;

use super::request::new_request;
use crate::answer::{Answer, Fault};
use crate::constants as c;
use crate::memory::check_bytes;
use crate::objects::get;
use crate::state;
use crate::types::{Address, Comm, Number, Request, Session};

fn space<N: Number>(buffer: Address, size: N) -> Answer<BsendSpace> {
    let negative = |_| Fault::new(c::MPI_ERR_BUFFER, "size: it is negative");
    match buffer.0 {
        c::MPI_BUFFER_AUTOMATIC => Ok(BsendSpace::Automatic),
        address => {
            let size = u64::try_from(size.to_i64()).map_err(negative)?;
            check_bytes("buffer", buffer, size)?;
            Ok(BsendSpace::Given { address, size })
        }
    }
}

/// Returns the address and size of the attached buffer.
fn put<N: Number>(space: BsendSpace, buffer_addr: Address, size: Out<N>) {
    let (address, bytes) = match space {
        BsendSpace::Given { address, size } => (address, size),
        BsendSpace::Automatic => (c::MPI_BUFFER_AUTOMATIC, 0),
        BsendSpace::None => (0, 0),
    };
    buffer_addr.out::<usize>().set(address);
    N::from_i64(bytes as i64).into_iter().for_each(|bytes| size.set(bytes));
}

pub(crate) fn buffer_attach<N: Number>(buffer: Address, size: N) -> Answer {
    Ok(state::process()?.attach_buffer(space(buffer, size)?)?)
}

pub(crate) fn buffer_detach<N: Number>(buffer_addr: Address, size: Out<N>) -> Answer {
    put(state::process()?.detach_buffer()?, buffer_addr, size);
    Ok(())
}

pub(crate) fn buffer_flush() -> Answer {
    Ok(state::process()?.flush_buffer()?)
}

pub(crate) fn buffer_iflush(request: Out<Request>) -> Answer {
    new_request(state::process()?.iflush_buffer(), request)
}

pub(crate) fn comm_attach_buffer<N: Number>(comm: Comm, buffer: Address, size: N) -> Answer {
    Ok(get(comm, "comm")?.attach_buffer(space(buffer, size)?)?)
}

pub(crate) fn comm_detach_buffer<N: Number>(comm: Comm, buffer_addr: Address, size: Out<N>) -> Answer {
    put(get(comm, "comm")?.detach_buffer()?, buffer_addr, size);
    Ok(())
}

pub(crate) fn comm_flush_buffer(comm: Comm) -> Answer {
    Ok(get(comm, "comm")?.flush_buffer()?)
}

pub(crate) fn comm_iflush_buffer(comm: Comm, request: Out<Request>) -> Answer {
    new_request(get(comm, "comm")?.iflush_buffer()?, request)
}

pub(crate) fn session_attach_buffer<N: Number>(session: Session, buffer: Address, size: N) -> Answer {
    Ok(get(session, "session")?.own.attach_buffer(space(buffer, size)?)?)
}

pub(crate) fn session_detach_buffer<N: Number>(
    session: Session,
    buffer_addr: Address,
    size: Out<N>,
) -> Answer {
    put(get(session, "session")?.own.detach_buffer()?, buffer_addr, size);
    Ok(())
}

pub(crate) fn session_flush_buffer(session: Session) -> Answer {
    Ok(get(session, "session")?.own.flush_buffer()?)
}

pub(crate) fn session_iflush_buffer(session: Session, request: Out<Request>) -> Answer {
    new_request(get(session, "session")?.own.iflush_buffer(), request)
}
