//! Objects that programs make and free.

use findings::Stack;

use crate::active::checked;
use crate::collectives::{Call, compare};
use crate::entry::{entry, word};
use crate::library::{COMM_NULL, SUCCESS, comm_free};
use crate::memory::{self, value};
use crate::state;

/// An object was made, which `end` frees.
fn made(kind: &'static str, end: &'static str, handle: usize) {
    checked(|| {
        let made = Stack::here();
        state::with(|state| state.objects.add(kind, end, handle, made))
    });
}

/// An object was freed.
fn freed(kind: &'static str, handle: usize) {
    state::with(|state| state.objects.remove(kind, handle));
}

const COMM: [&str; 2] = ["MPI_Comm", "MPI_Comm_free"];

/// A new communicator was stored for the program.
fn new_comm(comm: usize) {
    let Some(comm) = value::<usize>(comm).filter(|comm| *comm != COMM_NULL) else { return };
    checked(|| {
        state::add_comm(comm);
        Some(())
    });
    made(COMM[0], COMM[1], comm);
}

/// Calls that make a communicator, by all processes of another communicator.
macro_rules! comms {
    ($($name:ident($comm:ident $($arg:ident: $kind:tt),*) $new:ident;)*) => {$(
        entry!($name($comm: usize, $($arg: word!($kind i32),)* $new: usize) call {
            compare(CALL, $comm, &Call::default());
            let code = call();
            if code == SUCCESS {
                new_comm($new);
            }
            code
        });
    )*};
}

comms! {
    MPI_Comm_dup(comm) newcomm;
    MPI_Comm_dup_with_info(comm info: p) newcomm;
    MPI_Comm_create(comm group: p) newcomm;
    MPI_Comm_split(comm color: i, key: i) newcomm;
    MPI_Comm_split_type(comm split_type: i, key: i, info: p) newcomm;
    MPI_Cart_create(comm ndims: i, dims: p, periods: p, reorder: i) newcomm;
    MPI_Cart_sub(comm remain_dims: p) newcomm;
    MPI_Graph_create(comm nnodes: i, index: p, edges: p, reorder: i) newcomm;
    MPI_Dist_graph_create(comm n: i, sources: p, degrees: p, destinations: p, weights: p, info: p, reorder: i) newcomm;
    MPI_Dist_graph_create_adjacent(comm indegree: i, sources: p, source_weights: p, outdegree: i, destinations: p, weights: p, info: p, reorder: i) newcomm;
    MPI_Intercomm_create(comm local_leader: i, peer_comm: p, remote_leader: i, tag: i) newcomm;
    MPI_Intercomm_merge(comm high: i) newcomm;
}

entry!(MPI_Comm_create_group(comm: usize, group: usize, tag: i32, newcomm: usize) call {
    let code = call();
    if code == SUCCESS {
        new_comm(newcomm);
    }
    code
});

/// A communicator is freed or disconnected: its second one, too.
fn end_comm(comm: usize, run: impl FnOnce() -> i32) -> i32 {
    let handle = value::<usize>(comm);
    let code = run();
    if let Some(handle) = handle.filter(|_| code == SUCCESS) {
        freed(COMM[0], handle);
        if let Some(mut second) = state::remove_comm(handle) {
            comm_free(&mut second);
        }
    }
    code
}

entry!(MPI_Comm_free(comm: usize) call { end_comm(comm, call) });
entry!(MPI_Comm_disconnect(comm: usize) call { end_comm(comm, call) });

/// Calls that make an object of a type, and the call that frees it.
macro_rules! objects {
    ($($type:literal $free:ident: $($name:ident($($arg:ident: $kind:tt),*) $new:ident;)*)*) => {$(
        $(entry!($name($($arg: word!($kind i32)),*) call {
            let code = call();
            if let Some(handle) = value::<usize>($new).filter(|_| code == SUCCESS) {
                made($type, stringify!($free), handle);
            }
            code
        });)*
        entry!($free(object: usize) call {
            let handle = value::<usize>(object);
            let code = call();
            if let Some(handle) = handle.filter(|_| code == SUCCESS) {
                freed($type, handle);
            }
            code
        });
    )*};
}

objects! {
    "MPI_Group" MPI_Group_free:
        MPI_Comm_group(comm: p, group: p) group;
        MPI_Comm_remote_group(comm: p, group: p) group;
        MPI_Group_union(one: p, other: p, group: p) group;
        MPI_Group_intersection(one: p, other: p, group: p) group;
        MPI_Group_difference(one: p, other: p, group: p) group;
        MPI_Group_incl(of: p, n: i, ranks: p, group: p) group;
        MPI_Group_excl(of: p, n: i, ranks: p, group: p) group;
        MPI_Group_range_incl(of: p, n: i, ranges: p, group: p) group;
        MPI_Group_range_excl(of: p, n: i, ranges: p, group: p) group;
        MPI_Win_get_group(win: p, group: p) group;
    "MPI_Op" MPI_Op_free:
        MPI_Op_create(function: p, commute: i, op: p) op;
        MPI_Op_create_c(function: p, commute: i, op: p) op;
    "MPI_Info" MPI_Info_free:
        MPI_Info_create(info: p) info;
        MPI_Info_dup(of: p, info: p) info;
        MPI_Comm_get_info(comm: p, info: p) info;
    "MPI_Errhandler" MPI_Errhandler_free:
        MPI_Comm_create_errhandler(function: p, handler: p) handler;
        MPI_Win_create_errhandler(function: p, handler: p) handler;
        MPI_File_create_errhandler(function: p, handler: p) handler;
    "MPI_Win" MPI_Win_free:
        MPI_Win_create(base: p, size: p, unit: i, info: p, comm: p, win: p) win;
        MPI_Win_create_c(base: p, size: p, unit: p, info: p, comm: p, win: p) win;
        MPI_Win_allocate(size: p, unit: i, info: p, comm: p, base: p, win: p) win;
        MPI_Win_allocate_c(size: p, unit: p, info: p, comm: p, base: p, win: p) win;
        MPI_Win_allocate_shared(size: p, unit: i, info: p, comm: p, base: p, win: p) win;
        MPI_Win_allocate_shared_c(size: p, unit: p, info: p, comm: p, base: p, win: p) win;
        MPI_Win_create_dynamic(info: p, comm: p, win: p) win;
    "MPI_File" MPI_File_close:
        MPI_File_open(comm: p, name: p, mode: i, info: p, file: p) file;
}

entry!(MPI_Type_commit(datatype: usize) call {
    let code = call();
    if let Some(handle) = value::<usize>(datatype).filter(|_| code == SUCCESS) {
        memory::committed(handle);
        made("MPI_Datatype", "MPI_Type_free", handle);
    }
    code
});
entry!(MPI_Type_dup(of: usize, datatype: usize) call {
    let code = call();
    if let Some(handle) = value::<usize>(datatype).filter(|_| code == SUCCESS) {
        memory::committed(handle);
        made("MPI_Datatype", "MPI_Type_free", handle);
    }
    code
});
entry!(MPI_Type_free(datatype: usize) call {
    let handle = value::<usize>(datatype);
    let code = call();
    if let Some(handle) = handle.filter(|_| code == SUCCESS) {
        memory::freed(handle);
        freed("MPI_Datatype", handle);
    }
    code
});
