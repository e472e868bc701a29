//! Error handlers of communicators, and those that a program makes.

use std::sync::Arc;

use cface::Out;
use mpi::Errhandler;

use crate::answer::{Answer, Fault};
use crate::callback::Function;
use crate::constants as c;
use crate::objects::{get, insert, remove};
use crate::types::{self, Address, Comm, Handle};
use crate::{handler, types::kind};

/// A handler of a program's; functions of all kinds of objects are called alike.
pub(crate) fn comm_create_errhandler(function: Address, errhandler: Out<types::Errhandler>) -> Answer {
    if function == Address(0) {
        return Err(Fault::new(c::MPI_ERR_ARG, "the function is NULL"));
    }
    errhandler.set(insert::<kind::Errhandler>(Errhandler::User(Arc::new(Function(function))))?);
    Ok(())
}

pub(crate) use comm_create_errhandler as file_create_errhandler;
pub(crate) use comm_create_errhandler as session_create_errhandler;
pub(crate) use comm_create_errhandler as win_create_errhandler;

pub(crate) fn comm_set_errhandler(comm: Comm, errhandler: types::Errhandler) -> Answer {
    let handler = get(errhandler, "errhandler")?.clone();
    get(comm, "comm")?.set_errhandler(handler);
    Ok(())
}

pub(crate) fn comm_get_errhandler(comm: Comm, errhandler: Out<types::Errhandler>) -> Answer {
    let handle = match get(comm, "comm")?.errhandler() {
        Errhandler::Fatal => Handle::new(c::MPI_ERRORS_ARE_FATAL),
        Errhandler::Abort => Handle::new(c::MPI_ERRORS_ABORT),
        Errhandler::Return => Handle::new(c::MPI_ERRORS_RETURN),
        user => insert::<kind::Errhandler>(user)?,
    };
    errhandler.set(handle);
    Ok(())
}

pub(crate) fn comm_call_errhandler(comm: Comm, errorcode: i32) -> Answer {
    let handler = get(comm, "comm")?.errhandler();
    super::class(errorcode)
        .ok_or_else(|| Fault::new(c::MPI_ERR_ARG, format!("errorcode: there is no {errorcode}")))?;
    handler::raise("MPI_Comm_call_errhandler", &handler, comm, errorcode);
    Ok(())
}

pub(crate) fn errhandler_free(errhandler: Out<types::Errhandler>) -> Answer {
    let handle = errhandler.get().unwrap_or(Handle::new(c::MPI_ERRHANDLER_NULL));
    get(handle, "errhandler")?;
    // Predefined ones have no handle of their own, and may be freed as often as they were got.
    remove(handle);
    errhandler.set(Handle::new(c::MPI_ERRHANDLER_NULL));
    Ok(())
}
