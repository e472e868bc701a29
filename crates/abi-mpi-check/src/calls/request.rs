//! Completion of requests.

use findings::Stack;

use crate::active;
use crate::calls::p2p::begin;
use crate::completion::ended;
use crate::entry::entry;
use crate::library::{ERR_IN_STATUS, ERR_PENDING, SUCCESS, Status, UNDEFINED, pmpi};
use crate::memory::{value, values};
use crate::state;

/// How many elements an array of the program has.
fn length(count: i32) -> usize {
    usize::try_from(count).unwrap_or(0)
}

/// A call for one request, whose handle was `handle`: whether it has ended, and with which status.
fn one(handle: Option<usize>, status: usize, is_ended: bool, code: i32) {
    if let (Some(handle), Some(status), true) = (handle, value::<Status>(status), is_ended) {
        ended(&[(handle, status, code)]);
    }
}

/// A call for an array of requests: the requests at `indices` have ended; their statuses are in this order.
fn several(handles: &[usize], indices: impl Iterator<Item = usize>, statuses: usize, code: i32) {
    let indices: Vec<usize> = indices.collect();
    let statuses: Vec<Status> = values(statuses, indices.len());
    let all = indices.into_iter().zip(statuses).filter_map(|(at, status)| {
        let own = if code == ERR_IN_STATUS { status.error } else { code };
        (own != ERR_PENDING).then_some((*handles.get(at)?, status, own))
    });
    ended(&all.collect::<Vec<_>>());
}

/// An array of statuses, also if the program ignores them: its address, and the array that was made for that.
fn statuses(address: usize, count: i32) -> (usize, Vec<Status>) {
    if address != 0 {
        return (address, Vec::new());
    }
    let mut own = vec![Status::default(); length(count).max(1)];
    (own.as_mut_ptr().expose_provenance(), own)
}

/// Whether a call has done something: success, or errors of single requests.
fn is_done(code: i32) -> bool {
    code == SUCCESS || code == ERR_IN_STATUS
}

/// Whether a flag of the program is set.
fn is_set(flag: usize) -> bool {
    value::<i32>(flag).is_some_and(|flag| flag != 0)
}

entry!(MPI_Wait(request: usize, status: usize) [status] call {
    let handle = value(request);
    let code = call();
    one(handle, status, true, code);
    code
});
entry!(MPI_Test(request: usize, flag: usize, status: usize) [status] call {
    let handle = value(request);
    let code = call();
    one(handle, status, code != SUCCESS || is_set(flag), code);
    code
});
entry!(MPI_Waitany(count: i32, requests: usize, index: usize, status: usize) [status] call {
    let handles: Vec<usize> = values(requests, length(count));
    let code = call();
    let at = value::<i32>(index).filter(|at| *at != UNDEFINED).map(length);
    one(at.and_then(|at| handles.get(at).copied()), status, true, code);
    code
});
entry!(MPI_Testany(count: i32, requests: usize, index: usize, flag: usize, status: usize) [status] call {
    let handles: Vec<usize> = values(requests, length(count));
    let code = call();
    let at = value::<i32>(index).filter(|at| *at != UNDEFINED).map(length);
    one(at.and_then(|at| handles.get(at).copied()), status, code != SUCCESS || is_set(flag), code);
    code
});
entry!(MPI_Waitall(count: i32, requests: usize, array_of_statuses: usize) call {
    if !active::is_on() {
        return call();
    }
    let handles: Vec<usize> = values(requests, length(count));
    let (array_of_statuses, _own) = statuses(array_of_statuses, count);
    let code = pmpi!(MPI_Waitall(count: i32, requests: usize, array_of_statuses: usize) -> i32);
    if is_done(code) {
        several(&handles, 0..handles.len(), array_of_statuses, code);
    }
    code
});
entry!(MPI_Testall(count: i32, requests: usize, flag: usize, array_of_statuses: usize) call {
    if !active::is_on() {
        return call();
    }
    let handles: Vec<usize> = values(requests, length(count));
    let (array_of_statuses, _own) = statuses(array_of_statuses, count);
    let code = pmpi!(MPI_Testall(count: i32, requests: usize, flag: usize, array_of_statuses: usize) -> i32);
    if code == ERR_IN_STATUS || code == SUCCESS && is_set(flag) {
        several(&handles, 0..handles.len(), array_of_statuses, code);
    }
    code
});
entry!(MPI_Waitsome(count: i32, requests: usize, done: usize, indices: usize, array_of_statuses: usize) call {
    if !active::is_on() {
        return call();
    }
    let handles: Vec<usize> = values(requests, length(count));
    let (array_of_statuses, _own) = statuses(array_of_statuses, count);
    let code = pmpi!(MPI_Waitsome(count: i32, requests: usize, done: usize, indices: usize, array_of_statuses: usize) -> i32);
    if is_done(code) {
        let ended: Vec<i32> = values(indices, length(value(done).unwrap_or(0)));
        several(&handles, ended.into_iter().map(length), array_of_statuses, code);
    }
    code
});
entry!(MPI_Testsome(count: i32, requests: usize, done: usize, indices: usize, array_of_statuses: usize) call {
    if !active::is_on() {
        return call();
    }
    let handles: Vec<usize> = values(requests, length(count));
    let (array_of_statuses, _own) = statuses(array_of_statuses, count);
    let code = pmpi!(MPI_Testsome(count: i32, requests: usize, done: usize, indices: usize, array_of_statuses: usize) -> i32);
    if is_done(code) {
        let ended: Vec<i32> = values(indices, length(value(done).unwrap_or(0)));
        several(&handles, ended.into_iter().map(length), array_of_statuses, code);
    }
    code
});

entry!(MPI_Request_free(request: usize) call {
    let handle = value::<usize>(request).filter(|_| active::is_on());
    let code = call();
    if let Some(handle) = handle.filter(|_| code == SUCCESS) {
        state::with(|state| {
            if let Some((comm, number)) = state.requests.free(handle) {
                state.messages.lose(comm, number);
            }
        });
    }
    code
});

/// Persistent requests are started: announces their messages before, and counts them as active after the call.
fn start(handles: &[usize], run: impl FnOnce() -> i32) -> i32 {
    let begun: Vec<(usize, Stack, Option<u64>)> = handles
        .iter()
        .filter_map(|handle| {
            let (call, operation) = state::with(|state| state.requests.persistent(*handle))??;
            let (stack, posted) = begin(call, &operation);
            Some((*handle, stack, posted))
        })
        .collect();
    let code = run();
    if code == SUCCESS {
        state::with(|state| {
            for (handle, stack, posted) in begun {
                state.requests.start(handle, stack, posted);
            }
        });
    }
    code
}

entry!(MPI_Start(request: usize) call {
    start(&values::<usize>(request, 1), call)
});
entry!(MPI_Startall(count: i32, requests: usize) call {
    start(&values::<usize>(requests, length(count)), call)
});
