//! The tool interface, `MPI_T`: it can be opened and closed, and has no variables, events or categories to show. So every index,
//! name and handle that a tool passes is none.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use cface::Out;

use crate::answer::{Answer, Fault};
use crate::constants::{
    MPI_T_ERR_INVALID_HANDLE, MPI_T_ERR_INVALID_INDEX, MPI_T_ERR_INVALID_NAME, MPI_T_ERR_INVALID_SESSION,
    MPI_T_ERR_NOT_INITIALIZED, MPI_THREAD_MULTIPLE,
};
use crate::types::Address;

/// How often it was opened without being closed.
static OPENED: AtomicUsize = AtomicUsize::new(0);

/// The open sessions of performance variables, as numbers.
static SESSIONS: Mutex<Sessions> = Mutex::new(Sessions { open: Vec::new(), last: 0 });

struct Sessions {
    open: Vec<usize>,
    last: usize,
}

fn sessions() -> std::sync::MutexGuard<'static, Sessions> {
    SESSIONS.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

fn check_open() -> Answer {
    if OPENED.load(Ordering::Relaxed) > 0 { Ok(()) } else { none(MPI_T_ERR_NOT_INITIALIZED) }
}

/// There is no handler to hear of it: a tool sees the code alone.
fn none(code: i32) -> Answer {
    Err(Fault::new(code, "there is none"))
}

pub(crate) fn t_init_thread(_required: i32, provided: Out<i32>) -> Answer {
    OPENED.fetch_add(1, Ordering::Relaxed);
    provided.set(MPI_THREAD_MULTIPLE);
    Ok(())
}

pub(crate) fn t_finalize() -> Answer {
    let close = |opened: usize| opened.checked_sub(1);
    let closed = OPENED.fetch_update(Ordering::Relaxed, Ordering::Relaxed, close);
    if closed.is_ok() { Ok(()) } else { none(MPI_T_ERR_NOT_INITIALIZED) }
}

pub(crate) fn t_pvar_session_create(session: Out<Address>) -> Answer {
    check_open()?;
    let mut sessions = sessions();
    // 0 is no session.
    sessions.last += 1;
    let new = sessions.last;
    sessions.open.push(new);
    session.set(Address(new));
    Ok(())
}

pub(crate) fn t_pvar_session_free(session: Out<Address>) -> Answer {
    check_open()?;
    let mut sessions = sessions();
    let given = session.get();
    let Some(at) = sessions.open.iter().position(|&open| Some(Address(open)) == given) else {
        return none(MPI_T_ERR_INVALID_SESSION);
    };
    sessions.open.swap_remove(at);
    session.set(Address(0));
    Ok(())
}

/// Functions that count what there is.
macro_rules! counts {
    ($($name:ident),*) => {
        $(pub(crate) fn $name(count: Out<i32>) -> Answer {
            check_open()?;
            count.set(0);
            Ok(())
        })*
    };
}

counts!(
    t_cvar_get_num,
    t_pvar_get_num,
    t_category_get_num,
    t_event_get_num,
    t_source_get_num,
    t_category_changed
);

/// Functions of something that there is not, with as many arguments as there are letters.
macro_rules! absent {
    ($($code:ident: $($name:ident($($argument:ident)*)),*;)*) => {
        $($(
            #[allow(clippy::too_many_arguments)] // as many as the standard has
            pub(crate) fn $name<$($argument),*>($(_: $argument),*) -> Answer {
                check_open()?;
                none($code)
            }
        )*)*
    };
}

absent! {
    MPI_T_ERR_INVALID_NAME:
        t_cvar_get_index(A B), t_pvar_get_index(A B C), t_category_get_index(A B), t_event_get_index(A B);
    MPI_T_ERR_INVALID_INDEX:
        t_cvar_get_info(A B C D E F G H I J), t_cvar_handle_alloc(A B C D),
        t_pvar_get_info(A B C D E F G H I J K L M),
        t_category_get_info(A B C D E F G H), t_category_get_num_events(A B), t_category_get_categories(A B C),
        t_category_get_cvars(A B C), t_category_get_pvars(A B C), t_category_get_events(A B C),
        t_event_get_info(A B C D E F G H I J K L), t_event_handle_alloc(A B C D),
        t_source_get_info(A B C D E F G H I), t_source_get_timestamp(A B);
    MPI_T_ERR_INVALID_HANDLE:
        t_cvar_handle_free(A), t_cvar_read(A B), t_cvar_write(A B), t_enum_get_info(A B C D), t_enum_get_item(A B C D E),
        t_event_callback_get_info(A B C), t_event_callback_set_info(A B C), t_event_copy(A B), t_event_get_source(A B),
        t_event_get_timestamp(A B), t_event_handle_free(A B C), t_event_handle_get_info(A B),
        t_event_handle_set_info(A B), t_event_read(A B C), t_event_register_callback(A B C D E),
        t_event_set_dropped_handler(A B);
}

/// Functions of a variable in a session: of these, the session may exist.
macro_rules! absent_in_session {
    ($($code:ident: $($name:ident($($argument:ident)*)),*;)*) => {
        $($(
            pub(crate) fn $name<$($argument),*>(session: Address, $(_: $argument),*) -> Answer {
                check_open()?;
                let is_open = sessions().open.contains(&session.0);
                none(if is_open { $code } else { MPI_T_ERR_INVALID_SESSION })
            }
        )*)*
    };
}

absent_in_session! {
    MPI_T_ERR_INVALID_INDEX: t_pvar_handle_alloc(A B C D);
    MPI_T_ERR_INVALID_HANDLE:
        t_pvar_handle_free(A), t_pvar_read(A B), t_pvar_readreset(A B), t_pvar_reset(A), t_pvar_start(A), t_pvar_stop(A),
        t_pvar_write(A B);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_opens_and_closes_and_shows_nothing() {
        // SAFETY: NULL is allowed.
        let nowhere = unsafe { Out::new(std::ptr::null_mut()) };
        assert_eq!(t_finalize().expect_err("not open").code, MPI_T_ERR_NOT_INITIALIZED);
        assert_eq!(t_cvar_get_num(nowhere).expect_err("not open").code, MPI_T_ERR_NOT_INITIALIZED);
        t_init_thread(0, nowhere).expect("open");
        t_cvar_get_num(nowhere).expect("none");
        let mut session = Address(0);
        // SAFETY: a place for a session, which outlives it.
        let place = unsafe { Out::new(&raw mut session) };
        t_pvar_session_create(place).expect("a session");
        let given = place.get().expect("a place");
        assert_eq!(t_pvar_start(given, Address(1)).expect_err("no variable").code, MPI_T_ERR_INVALID_HANDLE);
        t_pvar_session_free(place).expect("it was open");
        assert_eq!(t_pvar_start(given, Address(1)).expect_err("closed").code, MPI_T_ERR_INVALID_SESSION);
        assert_eq!(t_pvar_session_free(place).expect_err("closed").code, MPI_T_ERR_INVALID_SESSION);
        t_finalize().expect("closed");
    }
}
