//! Whether a tool has opened the interface, and results in the conventions of `MPI_T` (MPI 5.0, section 15.3).

use std::sync::atomic::{AtomicUsize, Ordering};

use ffi::{Out, Text};

use crate::answer::{Answer, Fault};
use crate::constants::{
    MPI_T_ERR_INVALID_INDEX, MPI_T_ERR_INVALID_NAME, MPI_T_ERR_NOT_INITIALIZED, MPI_THREAD_FUNNELED,
    MPI_THREAD_MULTIPLE,
};
use crate::memory::put_text;
use crate::state::raise_thread_level;

/// The number of initializations without a finalization.
static OPENED: AtomicUsize = AtomicUsize::new(0);

/// An error unless the tool interface is initialized.
pub(super) fn check_open() -> Answer {
    if OPENED.load(Ordering::Relaxed) > 0 { Ok(()) } else { Err(tool_error(MPI_T_ERR_NOT_INITIALIZED)) }
}

/// `MPI_T` has no error handlers: a tool sees only the code.
pub(super) fn tool_error(code: i32) -> Fault {
    Fault::new(code, "there is none")
}

/// The element at an index.
pub(super) fn item_at<T>(things: &[T], index: i32) -> Answer<&T> {
    let at = usize::try_from(index).ok().and_then(|index| things.get(index));
    at.ok_or_else(|| tool_error(MPI_T_ERR_INVALID_INDEX))
}

/// The index of a name among names.
pub(super) fn index_of_name(names: impl IntoIterator<Item = String>, name: Text) -> Answer<i32> {
    let name = name.get().ok_or_else(|| tool_error(MPI_T_ERR_INVALID_NAME))?;
    let at = names.into_iter().position(|known| known == name);
    at.map(|at| at as i32).ok_or_else(|| tool_error(MPI_T_ERR_INVALID_NAME))
}

/// Returns a string in the convention of MPI_T: truncated to the buffer, with the full length including the zero.
pub(super) fn store_text(place: Out<u8>, len: Out<i32>, text: &str) {
    let room = len.get().and_then(|room| usize::try_from(room).ok()).unwrap_or(0);
    if place.is_some() && room > 0 {
        put_text(place, text, room);
    }
    len.set(text.len() as i32 + 1);
}

/// A tool's threads may call concurrently with the program's, unless the tool promises to use only the main one (MPI 5.0, section 15.3.4).
pub(crate) fn t_init_thread(required: i32, provided: Out<i32>) -> Answer {
    OPENED.fetch_add(1, Ordering::Relaxed);
    if required > MPI_THREAD_FUNNELED {
        raise_thread_level(MPI_THREAD_MULTIPLE);
    }
    provided.set(if required > MPI_THREAD_FUNNELED { MPI_THREAD_MULTIPLE } else { required });
    Ok(())
}

/// MPI 5.0, section 15.3.4.
pub(crate) fn t_finalize() -> Answer {
    let close = |opened: usize| opened.checked_sub(1);
    let closed = OPENED.fetch_update(Ordering::Relaxed, Ordering::Relaxed, close);
    closed.map(drop).map_err(|_| tool_error(MPI_T_ERR_NOT_INITIALIZED))
}
