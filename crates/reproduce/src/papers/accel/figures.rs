//! The paper's figures: 1 to 4, 6 and 7. Figure 5 is nowhere discussed (A7).

use super::setups::{HOST, HOST_COP, HOST_CORPSE, NIC, NIC_CORPSE, NODES, PortalsQuantities, SWEEP};
use crate::claims::setup::Setup;
use crate::papers::figure::{Axis, BYTES, FigurePlan, MB, US};
use crate::papers::published::ACCEL;

const FOUR: [(&str, Setup); 4] =
    [("card", NIC), ("card, corpse", NIC_CORPSE), ("kernel", HOST), ("kernel, corpse", HOST_CORPSE)];
const TWO: [(&str, Setup); 2] = [("kernel, corpse", HOST_CORPSE), ("kernel, cop", HOST_COP)];
const COUNT: Axis = Axis::logarithmic("nodes");
const ENTRIES: Axis = Axis::linear("receives before the own one");

fn figure(number: &'static str, experiment: &'static str, title: &'static str) -> FigurePlan {
    FigurePlan::new(ACCEL, number, experiment, title)
}

fn collective(
    number: &'static str,
    experiment: &'static str,
    title: &'static str,
    op: &str,
    systems: &[(&str, Setup)],
) -> FigurePlan {
    let empty = figure(number, experiment, title).axes(COUNT, Axis { title: "time of a call (µs)", ..US });
    let curve = |plan: FigurePlan, (name, setup): &(&str, Setup)| {
        plan.curve(*name, NODES, |n| setup.collective(op, n))
    };
    systems.iter().fold(empty, curve)
}

/// All figures of the paper.
pub(crate) fn plans() -> Vec<FigurePlan> {
    let mut all = vec![
        FOUR.into_iter().fold(
            figure("1(a)", "latency", "Latency of a ping-pong").axes(BYTES, US),
            |plan, (name, setup)| {
                plan.curve(name, [1, 4, 8, 16, 32, 64, 128, 256, 512, 1 << 10], |n| setup.portals_latency(n))
            },
        ),
        FOUR.into_iter().fold(
            figure("1(b)", "bandwidth", "Bandwidth of a ping-pong").axes(BYTES, MB),
            |plan, (name, setup)| plan.curve(name, SWEEP, |n| setup.rate(n)),
        ),
        FOUR.into_iter()
            .fold(figure("2(a)", "stream_uni", "Streams one way").axes(BYTES, MB), |plan, (name, setup)| {
                plan.curve(name, SWEEP, |n| setup.stream("uni", n))
            }),
        FOUR.into_iter()
            .fold(figure("2(b)", "stream_bi", "Streams both ways").axes(BYTES, MB), |plan, (name, setup)| {
                plan.curve(name, SWEEP, |n| setup.stream("bi", n))
            }),
    ];
    all.extend([
        collective("3(a)", "pallas_barrier", "Barrier", "barrier", &FOUR),
        collective("3(b)", "pallas_allreduce", "Allreduce of 16 B", "allreduce", &FOUR),
        collective("3(c)", "pallas_reduce", "Reduce of 16 B", "reduce", &FOUR),
        collective("3(d)", "pallas_allgather", "Allgather of 16 B", "allgather", &FOUR),
        profile(),
        collective("6(a)", "corpse_allgather", "Allgather of 16 B by protocol", "allgather", &TWO),
        collective("6(b)", "corpse_allreduce", "Allreduce of 16 B by protocol", "allreduce", &TWO),
        collective("6(c)", "corpse_bcast", "Broadcast of 16 B by protocol", "bcast", &TWO),
        collective("6(d)", "corpse_reduce", "Reduce of 16 B by protocol", "reduce", &TWO),
        [("card", NIC), ("kernel", HOST)].into_iter().fold(
            figure("7", "queue_traversal", "Latency behind posted receives").axes(ENTRIES, US),
            |plan, (name, setup)| plan.curve(name, (0..=100).step_by(10), |n| setup.latency_behind(n)),
        ),
    ]);
    all
}

/// Figure 4: a bar for each system, of a component for each curve.
fn profile() -> FigurePlan {
    const SYSTEMS: Axis = Axis::named("what the library drives", &["card", "kernel"]);
    let of = |system: u64| if system == 1 { NIC } else { HOST };
    let empty = figure("4", "profile", "Where the time of 8 B goes").axes(SYSTEMS, US).stacked();
    let parts = ["library"].into_iter().chain(fabric::COMPONENTS);
    parts.fold(empty, |plan, part| plan.curve(part, [1, 2], |system| of(system).component(part)))
}
