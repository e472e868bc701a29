//! Error handlers of communicators, windows, files and sessions, predefined and user-defined (MPI 5.0, section 9.3).

use std::sync::Arc;

use ffi::{Out, lock};
use mpi::Errhandler;

use crate::answer::{Answer, Fault};
use crate::callback::UserHandler;
use crate::constants as c;
use crate::handler::{errhandler_of_file, set_null_file_errhandler};
use crate::objects::{get, insert, remove};
use crate::types::{self, Address, Comm, File, Handle, Session, Win, kind};

/// The program's handler, if it is one.
fn user_handler(errhandler: &Errhandler) -> Option<&UserHandler> {
    match errhandler {
        Errhandler::User(user) => user.downcast_ref(),
        _ => None,
    }
}

/// A program's handler; the handler functions of all kinds of objects are called the same way (MPI 5.0, section 9.3.1).
pub(crate) fn comm_create_errhandler(function: Address, errhandler: Out<types::Errhandler>) -> Answer {
    if function == Address(0) {
        return Err(Fault::new(c::MPI_ERR_ARG, "the function is NULL"));
    }
    errhandler.set(handle(Errhandler::User(Arc::new(UserHandler::new(function))))?);
    Ok(())
}

/// MPI 5.0, section 9.3.3.
pub(crate) use comm_create_errhandler as file_create_errhandler;
/// MPI 5.0, section 9.3.4.
pub(crate) use comm_create_errhandler as session_create_errhandler;
/// MPI 5.0, section 9.3.2.
pub(crate) use comm_create_errhandler as win_create_errhandler;

/// MPI 5.0, section 9.3.1.
pub(crate) fn comm_set_errhandler(comm: Comm, errhandler: types::Errhandler) -> Answer {
    let handler = get(errhandler, "errhandler")?.clone();
    get(comm, "comm")?.set_errhandler(handler);
    Ok(())
}

/// MPI 5.0, section 9.3.2.
pub(crate) fn win_set_errhandler(win: Win, errhandler: types::Errhandler) -> Answer {
    let handler = get(errhandler, "errhandler")?.clone();
    get(win, "win")?.window.set_errhandler(handler);
    Ok(())
}

/// MPI 5.0, section 9.3.3.
pub(crate) fn file_set_errhandler(file: File, errhandler: types::Errhandler) -> Answer {
    let handler = get(errhandler, "errhandler")?.clone();
    if file.value() == c::MPI_FILE_NULL {
        set_null_file_errhandler(handler);
    } else {
        get(file, "file")?.set_errhandler(handler);
    }
    Ok(())
}

/// MPI 5.0, section 9.3.3.
pub(crate) fn file_get_errhandler(file: File, errhandler: Out<types::Errhandler>) -> Answer {
    if file.value() != c::MPI_FILE_NULL {
        get(file, "file")?;
    }
    errhandler.set(handle(errhandler_of_file(file))?);
    Ok(())
}

/// MPI 5.0, section 9.5.2.
pub(crate) fn file_call_errhandler(file: File, errorcode: i32) -> Answer {
    if file.value() != c::MPI_FILE_NULL {
        get(file, "fh")?;
    }
    raise(errorcode)
}

/// MPI 5.0, section 9.3.4.
pub(crate) fn session_set_errhandler(session: Session, errhandler: types::Errhandler) -> Answer {
    let handler = get(errhandler, "errhandler")?.clone();
    *lock(&get(session, "session")?.errhandler) = handler;
    Ok(())
}

/// MPI 5.0, section 9.3.4.
pub(crate) fn session_get_errhandler(session: Session, errhandler: Out<types::Errhandler>) -> Answer {
    let handler = lock(&get(session, "session")?.errhandler).clone();
    errhandler.set(handle(handler)?);
    Ok(())
}

/// MPI 5.0, section 9.5.2.
pub(crate) fn session_call_errhandler(session: Session, errorcode: i32) -> Answer {
    get(session, "session")?;
    raise(errorcode)
}

/// The handle of an error handler, which the program has to free once more.
fn handle(errhandler: Errhandler) -> Answer<types::Errhandler> {
    let user = match &errhandler {
        Errhandler::Fatal => return Ok(Handle::new(c::MPI_ERRORS_ARE_FATAL)),
        Errhandler::Abort => return Ok(Handle::new(c::MPI_ERRORS_ABORT)),
        Errhandler::Return => return Ok(Handle::new(c::MPI_ERRORS_RETURN)),
        user => user.clone(),
    };
    let mut counted = user_handler(&errhandler).map(|user| lock(&user.handle));
    let existing = counted.as_ref().and_then(|counted| counted.value);
    let handle = existing.map_or_else(|| insert::<kind::Errhandler>(user), Ok)?;
    if let Some(counted) = &mut counted {
        counted.value = Some(handle);
        counted.references += 1;
    }
    Ok(handle)
}

/// MPI 5.0, section 9.3.1.
pub(crate) fn comm_get_errhandler(comm: Comm, errhandler: Out<types::Errhandler>) -> Answer {
    errhandler.set(handle(get(comm, "comm")?.errhandler())?);
    Ok(())
}

/// MPI 5.0, section 9.3.2.
pub(crate) fn win_get_errhandler(win: Win, errhandler: Out<types::Errhandler>) -> Answer {
    errhandler.set(handle(get(win, "win")?.window.errhandler())?);
    Ok(())
}

/// Invokes the error handler of the object that the call names, with a code.
fn raise(errorcode: i32) -> Answer {
    let unknown = || Fault::new(c::MPI_ERR_ARG, format!("errorcode: there is no {errorcode}"));
    let text = super::error::text(errorcode).ok_or_else(unknown)?;
    Err(Fault::raised(errorcode, &text))
}

/// MPI 5.0, section 9.5.2.
pub(crate) fn comm_call_errhandler(comm: Comm, errorcode: i32) -> Answer {
    get(comm, "comm")?;
    raise(errorcode)
}

/// MPI 5.0, section 9.5.2.
pub(crate) fn win_call_errhandler(win: Win, errorcode: i32) -> Answer {
    get(win, "win")?;
    raise(errorcode)
}

/// MPI 5.0, section 9.3.5.
pub(crate) fn errhandler_free(errhandler: Out<types::Errhandler>) -> Answer {
    let handle = errhandler.get().unwrap_or(Handle::new(c::MPI_ERRHANDLER_NULL));
    // Predefined handlers have no references: freeing one only resets the handle.
    if let Some(user) = user_handler(&*get(handle, "errhandler")?) {
        let mut counted = lock(&user.handle);
        counted.references = counted.references.saturating_sub(1);
        if counted.references == 0 {
            counted.value = None;
            remove(handle);
        }
    }
    errhandler.set(Handle::new(c::MPI_ERRHANDLER_NULL));
    Ok(())
}
