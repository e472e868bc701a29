//! [`Requests`]: the outstanding requests of the program, and what their buffers contained when they began.

use std::collections::BTreeMap;
use std::ops::Range;

use findings::Stack;

use crate::library::{self, BYTE, COMM_WORLD, PREDEFINED_MAX, PROC_NULL, REQUEST_NULL, SUCCESS, Status};
use crate::memory::{Contents, Memory};
use crate::report::{self, OVERLAP, REQUEST_LEFT};

/// The receive of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Receive {
    pub(crate) memory: Memory,
    pub(crate) source: i32,
    pub(crate) tag: i32,
}

/// The send of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Send {
    pub(crate) memory: Memory,
    pub(crate) dest: i32,
    pub(crate) tag: i32,
}

/// What a request does.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Operation {
    pub(crate) comm: usize,
    pub(crate) send: Option<Send>,
    pub(crate) receive: Option<Receive>,
}

/// A request of the program.
pub(crate) struct Request {
    pub(crate) call: &'static str,
    pub(crate) operation: Operation,
    is_persistent: bool,
    is_active: bool,
    /// Where it was made, and where it was started last.
    made: Stack,
    pub(crate) started: Stack,
    pub(crate) sends: Option<Contents>,
    /// The addresses that it reads and that it writes, while it is active.
    reads: Option<Range<usize>>,
    writes: Option<Range<usize>>,
    /// The number of its receive among the messages.
    pub(crate) posted: Option<u64>,
}

/// The requests of this process.
pub(crate) struct Requests {
    /// By handle.
    all: BTreeMap<usize, Request>,
    /// The handle that the library gives to several requests at a time, all of them complete, if it is not a constant below
    /// [`PREDEFINED_MAX`]. It does not show which request a program means.
    shared: Option<usize>,
}

impl Requests {
    pub(crate) fn new(shared: Option<usize>) -> Self {
        Self { all: BTreeMap::new(), shared }
    }

    /// Whether several requests have this handle.
    pub(crate) fn is_shared(&self, handle: usize) -> bool {
        (handle < PREDEFINED_MAX && handle != REQUEST_NULL) || self.shared == Some(handle)
    }

    /// Reports an outstanding request that uses memory which this operation writes, or writes memory which it uses.
    pub(crate) fn check_overlap(&self, call: &str, operation: &Operation, stack: Stack) {
        let (reads, writes) = ranges(operation);
        if reads.is_none() && writes.is_none() {
            return;
        }
        let shares = |one: &Option<Range<usize>>, other: &Option<Range<usize>>| {
            one.as_ref().zip(other.as_ref()).is_some_and(|(a, b)| a.start < b.end && b.start < a.end)
        };
        let other = self.all.values().filter(|other| other.is_active).find(|other| {
            shares(&writes, &other.writes) || shares(&writes, &other.reads) || shares(&reads, &other.writes)
        });
        let Some(other) = other else { return };
        let what = if shares(&writes, &other.writes) {
            "two outstanding operations write to the same memory"
        } else {
            "an outstanding operation writes to memory that another one sends"
        };
        let text = |call: &str, reads: &Option<Range<usize>>, writes: &Option<Range<usize>>| {
            let part =
                |word: &str, range: &Range<usize>| format!("{word} {:#x} to {:#x}", range.start, range.end);
            let parts = [
                reads.as_ref().map(|range| part("sends", range)),
                writes.as_ref().map(|range| part("writes", range)),
            ];
            format!("{call} {}", parts.into_iter().flatten().collect::<Vec<_>>().join(", "))
        };
        let about =
            [("call", text(call, &reads, &writes)), ("other", text(other.call, &other.reads, &other.writes))];
        report::find(OVERLAP, what, &about, &[("called", stack), ("other called", other.started)]);
    }

    /// A request was made, and is active unless it is persistent.
    pub(crate) fn add(
        &mut self,
        handle: usize,
        call: &'static str,
        operation: Operation,
        is_persistent: bool,
        (made, posted): (Stack, Option<u64>),
    ) {
        if handle == REQUEST_NULL {
            return;
        }
        let mut request = Request {
            call,
            operation,
            is_persistent,
            is_active: false,
            made,
            started: made,
            sends: None,
            reads: None,
            writes: None,
            posted: None,
        };
        if !is_persistent {
            request.start(made, posted);
        }
        self.all.insert(handle, request);
    }

    /// The operation of a persistent request.
    pub(crate) fn persistent(&self, handle: usize) -> Option<(&'static str, Operation)> {
        self.all
            .get(&handle)
            .filter(|request| request.is_persistent)
            .map(|request| (request.call, request.operation))
    }

    /// A persistent request was started.
    pub(crate) fn start(&mut self, handle: usize, stack: Stack, posted: Option<u64>) {
        if let Some(request) = self.all.get_mut(&handle) {
            request.start(stack, posted);
        }
    }

    /// The program frees a request. Returns its communicator and the number of its receive, if that has not ended.
    pub(crate) fn free(&mut self, handle: usize) -> Option<(usize, u64)> {
        let request = self.all.remove(&handle)?;
        Some((request.operation.comm, request.posted?))
    }

    /// A request has ended.
    pub(crate) fn end(&mut self, handle: usize) -> Option<Request> {
        let request = self.all.get_mut(&handle).filter(|request| request.is_active)?;
        if !request.is_persistent {
            return self.all.remove(&handle);
        }
        // It stays, inactive.
        request.is_active = false;
        Some(Request { sends: request.sends.take(), posted: request.posted.take(), ..request.copy() })
    }

    /// Reports requests that the program has left.
    pub(crate) fn report_left(&mut self) {
        for request in std::mem::take(&mut self.all).into_values() {
            let what = match (request.is_active, request.is_persistent) {
                (true, _) => "a request was never completed",
                (false, true) => "a persistent request was never freed; MPI_Request_free frees it",
                (false, false) => continue,
            };
            let about = [("request", request.call.to_owned())];
            report::find(REQUEST_LEFT, what, &about, &[("started", request.started)]);
        }
    }
}

impl Request {
    fn start(&mut self, stack: Stack, posted: Option<u64>) {
        (self.is_active, self.started, self.posted) = (true, stack, posted);
        self.sends = self.operation.send.and_then(|send| send.memory.contents());
        (self.reads, self.writes) = ranges(&self.operation);
    }

    /// The parts that stay as they are.
    fn copy(&self) -> Self {
        let Self { call, operation, is_persistent, is_active, made, started, .. } = *self;
        Self {
            call,
            operation,
            is_persistent,
            is_active,
            made,
            started,
            sends: None,
            reads: None,
            writes: None,
            posted: None,
        }
    }
}

/// The addresses that an operation reads, and that it writes.
fn ranges(operation: &Operation) -> (Option<Range<usize>>, Option<Range<usize>>) {
    let reads = operation.send.filter(|send| send.dest != PROC_NULL).and_then(|send| send.memory.range());
    let receive = operation.receive.filter(|receive| receive.source != PROC_NULL);
    (reads, receive.and_then(|receive| receive.memory.range()))
}

/// The handle that the library gives to all requests that are complete from the start, if it does so.
pub(crate) fn shared_handle() -> Option<usize> {
    let mut handles = [REQUEST_NULL; 2];
    for handle in &mut handles {
        library::irecv(0, 0, BYTE, PROC_NULL, 0, COMM_WORLD, handle);
    }
    let [one, other] = handles;
    for mut handle in handles {
        library::wait(&mut handle, &mut Status::default());
    }
    (one == other && one != REQUEST_NULL).then_some(one)
}

/// Replaces a request whose handle is shared by a generalized request, which has a handle of its own and the same status.
/// Returns its handle.
pub(crate) fn own_handle(mut handle: usize) -> usize {
    let mut saved = Box::new(Saved { status: Status::default(), bytes: 0 });
    library::wait(&mut handle, &mut saved.status);
    library::get_elements(&saved.status, BYTE, &mut saved.bytes);
    let extra = Box::into_raw(saved).expose_provenance();
    let functions = [
        query as fn_pointer::Query as usize,
        free as fn_pointer::Free as usize,
        cancel as fn_pointer::Cancel as usize,
    ];
    let mut own = REQUEST_NULL;
    if library::grequest_start(functions[0], functions[1], functions[2], extra, &mut own) == SUCCESS {
        library::grequest_complete(own);
    }
    own
}

/// The status of a request that was complete.
struct Saved {
    status: Status,
    bytes: i64,
}

/// Types of the functions of a generalized request.
mod fn_pointer {
    use std::ffi::c_void;

    pub(super) type Query = extern "C" fn(*mut c_void, *mut super::Status) -> i32;
    pub(super) type Free = extern "C" fn(*mut c_void) -> i32;
    pub(super) type Cancel = extern "C" fn(*mut c_void, i32) -> i32;
}

extern "C" fn query(extra: *mut std::ffi::c_void, status: *mut Status) -> i32 {
    // SAFETY: the library passes what `own_handle` gave it, which lives until `free`, and the address of a status. Test:
    // `correct_programs_have_no_findings`, by receives of messages that were there.
    let (saved, status) = unsafe { (&*extra.cast::<Saved>(), &mut *status) };
    (status.source, status.tag) = (saved.status.source, saved.status.tag);
    library::status_set_elements(status, BYTE, saved.bytes)
}

extern "C" fn free(extra: *mut std::ffi::c_void) -> i32 {
    // SAFETY: as `query`; the library calls this once, at last.
    drop(unsafe { Box::from_raw(extra.cast::<Saved>()) });
    SUCCESS
}

extern "C" fn cancel(_: *mut std::ffi::c_void, _: i32) -> i32 {
    SUCCESS
}
