//! Puts and gets (4.2, 4.3): Figures 5 and 6.

use super::setups::{Library, MPICH2, RING, RING_ONE_SIDED, SENDING, SMALL, SWEEP};
use crate::claims::check::Check;
use crate::claims::claim::ClaimTable;
use crate::claims::quantity::Quantity;

pub(super) fn table(table: &mut ClaimTable) {
    put_latency(table);
    put_bandwidth(table);
    gets(table);
}

fn put_latency(table: &mut ClaimTable) {
    let put = |library: Library| library.put_latency(SMALL);
    let how = "half of two epochs of start, put of 4 B and complete, one each way";
    table.number(&["IW-036"], how, put(MPICH2));
    table.number(&["IW-037"], how, put(RING));
    table.number(&["IW-038"], how, put(SENDING));
    table.number(&["IW-039"], how, put(RING_ONE_SIDED));
    table.number(
        &["IW-040"],
        "a put of 4 B with the fast path, less than over sockets",
        put(RING).below(put(MPICH2)),
    );
    table.check(
        &["IW-041"],
        "at 4 B the fast path gains for a put what it gains for a message, within 10 %",
        Check::alike("us", put(SENDING) - put(RING), SENDING.latency(SMALL) - RING.latency(SMALL), SAME),
    );
    table.check(
        &["IW-042"],
        "puts of 4 B, within 10 %: about the same",
        Check::alike("us", put(RING_ONE_SIDED), put(RING), SAME),
    );
    table.unused(&["IW-090"], "how the variant of our MPI is set: puts up to 2 KiB go as messages");
}

/// The difference that counts as about the same.
const SAME: f64 = 0.1;

fn put_bandwidth(table: &mut ClaimTable) {
    const PEAK: &str = "largest bandwidth of puts, 16 KiB to 1 MiB";
    table.number(&["IW-043"], PEAK, MPICH2.put_peak());
    table.number(&["IW-044"], PEAK, RING.put_peak());
    table.number(&["IW-045"], PEAK, SENDING.put_peak());
    table.number(&["IW-046"], PEAK, RING_ONE_SIDED.put_peak());
    table.number(
        &["IW-047"],
        "largest bandwidth of puts with the fast path, more than over sockets",
        RING.put_peak().above(MPICH2.put_peak()),
    );
    let others = |size| Quantity::greatest([RING, SENDING].map(|library| library.put_bandwidth(size)));
    let best = |size| {
        Check::at_most(
            format!("{}, MB/s", report::number::size(size)),
            others(size),
            RING_ONE_SIDED.put_bandwidth(size),
            0.02,
        )
    };
    table.checks(
        &["IW-048"],
        "at no size from 4 B to 1 MiB do puts without RDMA have more, but for 2 %",
        SWEEP.map(best),
    );
    let sizes = (10..=20).map(|log| 1 << log);
    table.sizes(
        &["IW-049"],
        "sizes, powers of two from 1 KiB to 1 MiB, at which the others have 10 % less at least: significantly",
        sizes.map(|size| (size, others(size), RING_ONE_SIDED.put_bandwidth(size))).collect(),
        0.1,
    );
}

fn gets(table: &mut ClaimTable) {
    let how = "half of two epochs of start, get of 4 B and complete, one each way";
    table.number(&["IW-050"], how, MPICH2.get_latency(SMALL));
    table.number(&["IW-051"], how, RING.get_latency(SMALL));
    table.number(&["IW-052"], how, RING_ONE_SIDED.get_latency(SMALL));
    table.number(&["IW-053"], how, SENDING.get_latency(SMALL));
    const PEAK: &str = "largest bandwidth of gets, 16 KiB to 1 MiB";
    table.number(&["IW-054"], PEAK, RING.get_peak());
    table.number(&["IW-055"], PEAK, SENDING.get_peak());
    table.number(&["IW-056"], PEAK, RING_ONE_SIDED.get_peak());
    table.number(&["IW-057"], PEAK, MPICH2.get_peak());
    table.number(
        &["IW-058"],
        "largest bandwidth of gets with the fast path, times that over sockets",
        RING.get_peak() / MPICH2.get_peak(),
    );
}
