//! Collective operations at 32 processes and kernels at 16 (4.4, 4.5): Figures 7 and 8.

use super::setups::{ALL, CROWDS, Library, MPICH2, RING, SMALL};
use crate::claims::check::Check;
use crate::claims::claim::ClaimTable;
use crate::claims::quantity::Quantity;

pub(super) fn table(table: &mut ClaimTable) {
    vectors(table);
    barrier(table);
    kernels(table);
}

fn vectors(table: &mut ClaimTable) {
    let how = "a call of a row of 16 with 4 B, 32 processes, 8 of a node: the mean of all";
    let allreduce = |library: Library| library.collective("mpi-allreduce", ALL, SMALL);
    let allgather = |library: Library| library.collective("mpi-allgather", ALL, SMALL);
    table.number(&["IW-061"], how, allreduce(MPICH2));
    table.number(&["IW-062"], how, allreduce(RING));
    table.number(
        &["IW-003", "IW-063"],
        "an allreduce of 4 B with the fast path, less than over sockets",
        allreduce(RING).below(allreduce(MPICH2)),
    );
    table.number(&["IW-064"], how, allgather(MPICH2));
    table.number(&["IW-065"], how, allgather(RING));
    table.number(
        &["IW-066"],
        "an allgather of 4 B with the fast path, less than over sockets",
        allgather(RING).below(allgather(MPICH2)),
    );
    let gain = |call: fn(Library) -> Quantity| call(RING).below(call(MPICH2));
    table.number(
        &["IW-006"],
        "what allreduce and allgather gain, the lesser of the two: several",
        Quantity::least([
            gain(|library| library.collective("mpi-allreduce", ALL, SMALL)),
            gain(|library| library.collective("mpi-allgather", ALL, SMALL)),
        ]),
    );
}

fn barrier(table: &mut ClaimTable) {
    let barrier = |library: Library, ranks| library.collective("mpi-barrier", ranks, 0);
    table.number(
        &["IW-067", "IW-076"],
        "a barrier of 32 processes with the fast path, less than over sockets",
        barrier(RING, ALL).below(barrier(MPICH2, ALL)),
    );
    let faster = |ranks: u64| {
        Check::below(format!("{ranks} processes, us"), barrier(RING, ranks), barrier(MPICH2, ranks), 0.1)
    };
    table.checks(
        &["IW-069"],
        "barriers of 4 to 32 processes of four nodes take 10 % less at least: significantly",
        CROWDS.map(faster),
    );
}

fn kernels(table: &mut ClaimTable) {
    let gain = |kernel: &str| MPICH2.kernel(kernel, 16).above(RING.kernel(kernel, 16));
    table.number(
        &["IW-072"],
        "time of IS of class A over sockets, more than with the fast path; 16 processes, 4 of a node; a process ranks 30 million \
         keys in a second, which is assumed",
        gain("nas-is"),
    );
    table.number(
        &["IW-073"],
        "time of CG of class A over sockets, more than with the fast path; 16 processes, 4 of a node; a process does 250 million \
         operations in a second, which is assumed",
        gain("nas-cg"),
    );
}
