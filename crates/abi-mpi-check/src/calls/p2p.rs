//! Messages between two processes.

use findings::Stack;

use crate::active::checked;
use crate::entry::{entry, sized, word};
use crate::library::{PROC_NULL, SUCCESS, Status};
use crate::memory::{self, Memory};
use crate::messages;
use crate::requests::{self, Operation, Receive, Send};
use crate::state;

fn memory(address: usize, count: i64, datatype: usize) -> Memory {
    Memory { address, count, datatype }
}

fn sending(memory: Memory, dest: i32, tag: i32, comm: usize) -> Operation {
    Operation { comm, send: Some(Send { memory, dest, tag }), receive: None }
}

fn receiving(memory: Memory, source: i32, tag: i32, comm: usize) -> Operation {
    Operation { comm, send: None, receive: Some(Receive { memory, source, tag }) }
}

/// An operation is about to begin: compares it with outstanding operations, and announces its message. Returns the number of its receive.
pub(super) fn begin(call: &str, operation: &Operation) -> (Stack, Option<u64>) {
    let begun = checked(|| {
        let stack = Stack::here();
        state::with(|state| {
            state.requests.check_overlap(call, operation, stack);
            if let Some(Send { memory, dest, tag }) = &operation.send {
                state.messages.send(memory, *dest, *tag, operation.comm, stack);
            }
            let post = |Receive { memory, source, tag }: &Receive| {
                state.messages.post(memory, *source, *tag, operation.comm, stack)
            };
            (stack, operation.receive.as_ref().and_then(post))
        })
    });
    begun.unwrap_or_default()
}

/// A call that completes its operation; `status` is that of its receive.
fn blocking(call: &str, operation: &Operation, status: usize, run: impl FnOnce() -> i32) -> i32 {
    let (_, posted) = begin(call, operation);
    let code = run();
    let Some(number) = posted else { return code };
    checked(|| {
        let status = memory::value::<Status>(status)?;
        let comm = operation.comm;
        let (matches, is_strict) = state::with(|state| {
            if code == SUCCESS {
                state.messages.received(comm, number, status.source, status.tag);
            } else {
                state.messages.lose(comm, number);
            }
            (state.messages.matches(comm), state.is_strict)
        })?;
        messages::compare(matches, is_strict);
        Some(())
    });
    code
}

/// A call that starts its operation, and stores a request.
fn nonblocking(call: &'static str, operation: &Operation, request: usize, run: impl FnOnce() -> i32) -> i32 {
    let begun = begin(call, operation);
    let code = run();
    if code == SUCCESS {
        add(call, *operation, request, false, begun);
    } else if let Some(number) = begun.1 {
        state::with(|state| state.messages.cancelled(operation.comm, number));
    }
    code
}

/// A request was stored for the program.
pub(super) fn add(
    call: &'static str,
    operation: Operation,
    request: usize,
    is_persistent: bool,
    begun: (Stack, Option<u64>),
) {
    checked(|| {
        let mut handle = memory::value::<usize>(request)?;
        if state::with(|state| state.requests.is_shared(handle))? {
            handle = requests::own_handle(handle);
            memory::store(request, handle);
        }
        state::with(|state| state.requests.add(handle, call, operation, is_persistent, begun))
    });
}

/// A call that makes a persistent request.
fn persistent(call: &'static str, operation: Operation, request: usize, run: impl FnOnce() -> i32) -> i32 {
    let code = run();
    if code == SUCCESS {
        add(call, operation, request, true, (Stack::here(), None));
    }
    code
}

/// The variants of a send: blocking, nonblocking and persistent.
macro_rules! sends {
    ($($name:ident $large:ident, $i:ident $i_large:ident, $init:ident $init_large:ident;)*) => {$(
        sized!($name $large(buf: p, count: n, datatype: p, dest: i, tag: i, comm: p) call {
            let operation = sending(memory(buf, count.into(), datatype), dest, tag, comm);
            blocking(CALL, &operation, 0, call)
        });
        sized!($i $i_large(buf: p, count: n, datatype: p, dest: i, tag: i, comm: p, request: p) call {
            let operation = sending(memory(buf, count.into(), datatype), dest, tag, comm);
            nonblocking(CALL, &operation, request, call)
        });
        sized!($init $init_large(buf: p, count: n, datatype: p, dest: i, tag: i, comm: p, request: p) call {
            persistent(CALL, sending(memory(buf, count.into(), datatype), dest, tag, comm), request, call)
        });
    )*};
}

sends! {
    MPI_Send MPI_Send_c, MPI_Isend MPI_Isend_c, MPI_Send_init MPI_Send_init_c;
    MPI_Bsend MPI_Bsend_c, MPI_Ibsend MPI_Ibsend_c, MPI_Bsend_init MPI_Bsend_init_c;
    MPI_Ssend MPI_Ssend_c, MPI_Issend MPI_Issend_c, MPI_Ssend_init MPI_Ssend_init_c;
    MPI_Rsend MPI_Rsend_c, MPI_Irsend MPI_Irsend_c, MPI_Rsend_init MPI_Rsend_init_c;
}

sized!(MPI_Recv MPI_Recv_c(buf: p, count: n, datatype: p, source: i, tag: i, comm: p, status: p) [status] call {
    let operation = receiving(memory(buf, count.into(), datatype), source, tag, comm);
    blocking(CALL, &operation, status, call)
});
sized!(MPI_Irecv MPI_Irecv_c(buf: p, count: n, datatype: p, source: i, tag: i, comm: p, request: p) call {
    let operation = receiving(memory(buf, count.into(), datatype), source, tag, comm);
    nonblocking(CALL, &operation, request, call)
});
sized!(MPI_Recv_init MPI_Recv_init_c(buf: p, count: n, datatype: p, source: i, tag: i, comm: p, request: p) call {
    persistent(CALL, receiving(memory(buf, count.into(), datatype), source, tag, comm), request, call)
});

sized!(MPI_Sendrecv MPI_Sendrecv_c(
    sendbuf: p, sendcount: n, sendtype: p, dest: i, sendtag: i,
    recvbuf: p, recvcount: n, recvtype: p, source: i, recvtag: i, comm: p, status: p
) [status] call {
    let send = sending(memory(sendbuf, sendcount.into(), sendtype), dest, sendtag, comm);
    let receive = receiving(memory(recvbuf, recvcount.into(), recvtype), source, recvtag, comm);
    blocking(CALL, &Operation { receive: receive.receive, ..send }, status, call)
});
sized!(MPI_Isendrecv MPI_Isendrecv_c(
    sendbuf: p, sendcount: n, sendtype: p, dest: i, sendtag: i,
    recvbuf: p, recvcount: n, recvtype: p, source: i, recvtag: i, comm: p, request: p
) call {
    let send = sending(memory(sendbuf, sendcount.into(), sendtype), dest, sendtag, comm);
    let receive = receiving(memory(recvbuf, recvcount.into(), recvtype), source, recvtag, comm);
    nonblocking(CALL, &Operation { receive: receive.receive, ..send }, request, call)
});
sized!(MPI_Sendrecv_replace MPI_Sendrecv_replace_c(
    buf: p, count: n, datatype: p, dest: i, sendtag: i, source: i, recvtag: i, comm: p, status: p
) [status] call {
    let one = memory(buf, count.into(), datatype);
    let receive = receiving(one, source, recvtag, comm);
    blocking(CALL, &Operation { receive: receive.receive, ..sending(one, dest, sendtag, comm) }, status, call)
});
sized!(MPI_Isendrecv_replace MPI_Isendrecv_replace_c(
    buf: p, count: n, datatype: p, dest: i, sendtag: i, source: i, recvtag: i, comm: p, request: p
) call {
    let one = memory(buf, count.into(), datatype);
    let receive = receiving(one, source, recvtag, comm);
    let operation = Operation { receive: receive.receive, ..sending(one, dest, sendtag, comm) };
    let begun = begin(CALL, &operation);
    let code = call();
    if code == SUCCESS {
        // Its memory changes while it is sent.
        let silent = Send { memory: memory(0, 0, 0), dest, tag: sendtag };
        add(CALL, Operation { send: Some(silent), ..operation }, request, false, begun);
    } else if let Some(number) = begun.1 {
        state::with(|state| state.messages.cancelled(comm, number));
    }
    code
});

/// A message was taken out of the queue, to be received by its handle: its note is taken with it.
fn probed(source: i32, tag: i32, comm: usize) {
    if source == PROC_NULL {
        return;
    }
    checked(|| {
        let stack = Stack::here();
        let (matches, is_strict) = state::with(|state| {
            state.messages.probed(source, tag, comm, stack);
            (state.messages.matches(comm), state.is_strict)
        })?;
        messages::compare(matches, is_strict);
        Some(())
    });
}

entry!(MPI_Mprobe(source: i32, tag: i32, comm: usize, message: usize, status: usize) [status] call {
    let code = call();
    if let Some(status) = memory::value::<Status>(status).filter(|_| code == SUCCESS) {
        probed(status.source, status.tag, comm);
    }
    code
});
entry!(MPI_Improbe(source: i32, tag: i32, comm: usize, flag: usize, message: usize, status: usize) [status] call {
    let code = call();
    let is_found = code == SUCCESS && memory::value::<i32>(flag).is_some_and(|flag| flag != 0);
    if let Some(status) = memory::value::<Status>(status).filter(|_| is_found) {
        probed(status.source, status.tag, comm);
    }
    code
});
sized!(MPI_Imrecv MPI_Imrecv_c(buf: p, count: n, datatype: p, message: p, request: p) call {
    let code = call();
    if code == SUCCESS {
        add(CALL, Operation::default(), request, false, (Stack::here(), None));
    }
    code
});
