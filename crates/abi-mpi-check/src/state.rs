//! What is known of this process: its rank, its communicators, outstanding requests and objects.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use crate::active;
use crate::library::{self, COMM_NULL, COMM_SELF, COMM_WORLD, ERRORS_RETURN, SUCCESS, THREAD_MULTIPLE};
use crate::messages::Messages;
use crate::objects::Objects;
use crate::requests::{self, Requests};

/// How the program is checked: `on` or `strict`.
const LEVEL: &str = "NICETY_MPI_CHECK";
/// The file for findings.
const LOG: &str = "NICETY_MPI_CHECK_LOG";
/// The exit status of a process with findings.
const EXIT: &str = "NICETY_MPI_CHECK_EXIT";

/// The communicators that exist from the start.
const WORLD_AND_SELF: [usize; 2] = [COMM_WORLD, COMM_SELF];

static STATE: Mutex<Option<State>> = Mutex::new(None);

/// What is known of this process.
pub(crate) struct State {
    pub(crate) messages: Messages,
    pub(crate) requests: Requests,
    pub(crate) objects: Objects,
    pub(crate) is_strict: bool,
}

/// Uses the state, if calls are checked. `uses` calls no function that a program's own code may run in.
pub(crate) fn with<T>(uses: impl FnOnce(&mut State) -> T) -> Option<T> {
    if !active::is_on() {
        return None;
    }
    STATE.lock().unwrap_or_else(PoisonError::into_inner).as_mut().map(uses)
}

/// The program has initialized MPI: begins to check, if the variables ask for that.
pub(crate) fn begin() {
    let text = |name| std::env::var(name).unwrap_or_default();
    let level = text(LEVEL);
    let file = Some(PathBuf::from(text(LOG))).filter(|path| !path.as_os_str().is_empty());
    if level.is_empty() || active::is_on() {
        return;
    }
    if !library::is_standard() {
        host::real::remark(format_args!(
            "check: the program is linked to a library of another ABI, and is not checked; compile it with nicety mpicc"
        ));
        return;
    }
    if let Err(why) = findings::begin(file.as_deref(), text(EXIT).parse().ok()) {
        host::real::remark(format_args!(
            "check: cannot write to the file in {LOG}: {why}; findings are lost"
        ));
        return;
    }
    let (mut rank, mut level_of_threads) = (0, 0);
    library::comm_rank(COMM_WORLD, &mut rank);
    library::query_thread(&mut level_of_threads);
    let state = State {
        messages: Messages::new(level_of_threads < THREAD_MULTIPLE),
        requests: Requests::new(requests::shared_handle()),
        objects: Objects::default(),
        is_strict: level == "strict",
    };
    *STATE.lock().unwrap_or_else(PoisonError::into_inner) = Some(state);
    active::begin(rank);
    WORLD_AND_SELF.into_iter().for_each(add_comm);
    ffi::log::report_at_exit(exit_status);
}

/// Gives a communicator its second one, which is collective, as its creation was. A split copies no attributes, which a
/// program's functions would do.
pub(crate) fn add_comm(comm: usize) {
    let (mut second, mut is_inter) = (COMM_NULL, 0);
    if comm == COMM_NULL
        || library::comm_split(comm, 0, 0, &mut second) != SUCCESS
        || library::comm_test_inter(comm, &mut is_inter) != SUCCESS
    {
        return;
    }
    library::comm_set_errhandler(second, ERRORS_RETURN);
    with(|state| state.messages.add(comm, second, is_inter != 0));
}

/// The program frees a communicator. Returns its second one, to be freed.
pub(crate) fn remove_comm(comm: usize) -> Option<usize> {
    with(|state| state.messages.remove(comm)).flatten()
}

/// The program calls MPI_Finalize: reports what is left.
pub(crate) fn end() {
    let Some(state) = STATE.lock().unwrap_or_else(PoisonError::into_inner).take() else { return };
    let State { mut messages, mut requests, objects, .. } = state;
    requests.report_left();
    objects.report_left();
    library::barrier(COMM_WORLD);
    messages.report_not_received();
    messages.end();
    let count = findings::count();
    let (own, mut all) = ([count, u64::from(count != 0)], [0; 2]);
    library::reduce(&own, &mut all, 2, library::UINT64_T, library::SUM, 0, COMM_WORLD);
    if active::rank() == 0 {
        let mut size = 0;
        library::comm_size(COMM_WORLD, &mut size);
        findings::conclude(&summary(all, size));
    }
    active::end();
}

/// The last line, of rank 0.
fn summary([count, ranks]: [u64; 2], size: i32) -> String {
    let plural = if count == 1 { "" } else { "s" };
    match count {
        0 => format!("0 findings in {size} rank{}", if size == 1 { "" } else { "s" }),
        _ => format!("{count} finding{plural} in {ranks} of {size} ranks"),
    }
}

/// Changes the exit status of a process with findings, if that is asked for.
fn exit_status() -> Vec<String> {
    if let Some(status) = findings::exit_status() {
        // The process is exiting: the C library goes on with the functions that are left, and then uses this status.
        std::process::exit(status);
    }
    Vec::new()
}
