//! The paper's figures.

use super::setups::{
    ALL, CARD, CROWDS, LATENCY_SIZES, Library, MPICH2, RING, RING_ONE_SIDED, SENDING, SOCKETS, SWEEP, VECTORS,
};
use crate::claims::quantity::Quantity;
use crate::claims::setup::HOST_HOST;
use crate::papers::figure::{Axis, BYTES, FigurePlan, MB, US, US_LOG};
use crate::papers::published::IWARP;

/// All figures of the paper.
pub(crate) fn plans() -> Vec<FigurePlan> {
    let mut all = vec![latency(), bandwidth()];
    all.extend(puts());
    all.extend(gets());
    all.extend(collectives());
    all.push(kernels());
    all
}

/// Latencies, as in Figure 4(a).
fn latency() -> FigurePlan {
    let small = super::setups::SMALL;
    FigurePlan::new(IWARP, "4(a)", "latency", "Latency of small messages")
        .axes(BYTES, US)
        .curve("verbs, RDMA write", LATENCY_SIZES, |n| CARD.latency("write", HOST_HOST, n))
        .curve("sockets", LATENCY_SIZES, |n| SOCKETS.latency("send", HOST_HOST, n))
        .curve("MPICH2", LATENCY_SIZES, |n| MPICH2.latency(n))
        .curve("MVAPICH2-R", LATENCY_SIZES, |n| RING.latency(n))
        .curve("MVAPICH2-SR", LATENCY_SIZES, |n| SENDING.latency(n))
        .published_point(0, "IW-022", small)
        .published_point(1, "IW-023", small)
        .published_point(2, "IW-024", small)
        .published_point(3, "IW-025", small)
        .published_point(4, "IW-026", small)
}

/// Bandwidths, as in Figure 4(b).
fn bandwidth() -> FigurePlan {
    FigurePlan::new(IWARP, "4(b)", "bandwidth", "Bandwidth of windows of messages")
        .axes(BYTES, MB)
        .curve("verbs, RDMA write", SWEEP, |n| CARD.bandwidth("write", HOST_HOST, 1, n))
        .curve("sockets", SWEEP, |n| SOCKETS.bandwidth("send", HOST_HOST, 1, n))
        .curve("MPICH2", SWEEP, |n| MPICH2.bandwidth(n))
        .curve("MVAPICH2-R", SWEEP, |n| RING.bandwidth(n))
        .curve("MVAPICH2-SR", SWEEP, |n| SENDING.bandwidth(n))
        .published_level(0, "IW-030")
        .published_level(1, "IW-032")
        .published_level(2, "IW-031")
        .published_level(3, "IW-033")
        .published_level(4, "IW-034")
}

/// The four libraries in the figures of one-sided operations.
const FOUR: [(&str, Library); 4] =
    [("MPICH2", MPICH2), ("MVAPICH2-R", RING), ("MVAPICH2-SR", SENDING), ("MVAPICH2-1SC", RING_ONE_SIDED)];

/// A curve for each of the four.
fn curve_per_library(
    mut plan: FigurePlan,
    sizes: impl IntoIterator<Item = u64> + Clone,
    of: fn(Library, u64) -> Quantity,
) -> FigurePlan {
    for (label, library) in FOUR {
        plan = plan.curve(label, sizes.clone(), |n| of(library, n));
    }
    plan
}

/// Figure 5: latency and bandwidth of puts.
fn puts() -> [FigurePlan; 2] {
    let small = super::setups::SMALL;
    let late = FigurePlan::new(IWARP, "5(a)", "put_latency", "Latency of puts").axes(BYTES, US);
    let wide =
        FigurePlan::new(IWARP, "5(b)", "put_bandwidth", "Bandwidth of windows of puts").axes(BYTES, MB);
    [
        curve_per_library(late, LATENCY_SIZES, Library::put_latency)
            .published_point(0, "IW-036", small)
            .published_point(1, "IW-037", small)
            .published_point(2, "IW-038", small)
            .published_point(3, "IW-039", small),
        curve_per_library(wide, SWEEP, Library::put_bandwidth)
            .published_level(0, "IW-043")
            .published_level(1, "IW-044")
            .published_level(2, "IW-045")
            .published_level(3, "IW-046"),
    ]
}

/// Figure 6: latency and bandwidth of gets.
fn gets() -> [FigurePlan; 2] {
    let small = super::setups::SMALL;
    let late = FigurePlan::new(IWARP, "6(a)", "get_latency", "Latency of gets").axes(BYTES, US);
    let wide =
        FigurePlan::new(IWARP, "6(b)", "get_bandwidth", "Bandwidth of windows of gets").axes(BYTES, MB);
    [
        curve_per_library(late, LATENCY_SIZES, Library::get_latency)
            .published_point(0, "IW-050", small)
            .published_point(1, "IW-051", small)
            .published_point(2, "IW-053", small)
            .published_point(3, "IW-052", small),
        curve_per_library(wide, SWEEP, Library::get_bandwidth)
            .published_level(0, "IW-057")
            .published_level(1, "IW-054")
            .published_level(2, "IW-055")
            .published_level(3, "IW-056"),
    ]
}

/// Figures 7 and 8(a).
fn collectives() -> [FigurePlan; 3] {
    let small = super::setups::SMALL;
    let processes = Axis::logarithmic("processes of four nodes");
    let vectors = |number, experiment, title, call: &'static str| {
        FigurePlan::new(IWARP, number, experiment, title)
            .axes(BYTES, US_LOG)
            .curve("MPICH2", VECTORS, |n| MPICH2.collective(call, ALL, n))
            .curve("MVAPICH2-R", VECTORS, |n| RING.collective(call, ALL, n))
    };
    [
        vectors("7(a)", "imb_allreduce", "Allreduce of 32 processes", "mpi-allreduce")
            .published_point(0, "IW-061", small)
            .published_point(1, "IW-062", small),
        vectors("7(b)", "imb_allgather", "Allgather of 32 processes", "mpi-allgather")
            .published_point(0, "IW-064", small)
            .published_point(1, "IW-065", small),
        FigurePlan::new(IWARP, "8(a)", "imb_barrier", "Barrier")
            .axes(processes, US)
            .curve("MPICH2", CROWDS, |n| MPICH2.collective("mpi-barrier", n, 0))
            .curve("MVAPICH2-R", CROWDS, |n| RING.collective("mpi-barrier", n, 0)),
    ]
}

/// Figure 8(b), as gains.
fn kernels() -> FigurePlan {
    let x = Axis::named("kernel", &["IS", "CG"]);
    let y = Axis::linear("gain over MPICH2 (%)");
    let gain = |bar| {
        let kernel = if bar == 1 { "nas-is" } else { "nas-cg" };
        MPICH2.kernel(kernel, 16).above(RING.kernel(kernel, 16))
    };
    FigurePlan::new(IWARP, "8(b)", "nas_is", "Kernels of NAS, 16 processes")
        .axes(x, y)
        .bars()
        .curve("MVAPICH2-R", 1..=2, gain)
        .published_point(0, "IW-072", 1)
        .published_point(0, "IW-073", 2)
}
