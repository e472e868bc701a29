//! Messages between two processes (4.1): Figure 4, and the related statements of the abstract and the conclusions.

use super::setups::{CARD, LARGEST, MPICH2, RING, SENDING, SMALL, SOCKETS};
use crate::claims::check::{Check, NO_MARGIN};
use crate::claims::claim::ClaimTable;
use crate::claims::quantity::Quantity;
use crate::claims::setup::HOST_HOST;

/// A link of twice the rate.
const LINK_TWICE: &str = "link.rate_mbps=2500";

pub(super) fn table(table: &mut ClaimTable) {
    latency(table);
    latency_claims(table);
    bandwidth(table);
}

fn verbs() -> Quantity {
    CARD.latency("write", HOST_HOST, SMALL)
}

fn sockets() -> Quantity {
    SOCKETS.latency("send", HOST_HOST, SMALL)
}

fn latency(table: &mut ClaimTable) {
    table.number(
        &["IW-022"],
        "half a round trip of writes of 4 B, which both sides look for in memory",
        verbs(),
    );
    table.number(&["IW-023"], "half a round trip of 4 B over sockets", sockets());
    let how = "half a round trip of 4 B";
    table.number(&["IW-024"], how, MPICH2.latency(SMALL));
    table.number(&["IW-025"], how, RING.latency(SMALL));
    table.number(&["IW-026"], how, SENDING.latency(SMALL));
    table.number(
        &["IW-002", "IW-004", "IW-027", "IW-075"],
        "half a round trip of 4 B with the fast path, less than over sockets",
        RING.latency(SMALL).below(MPICH2.latency(SMALL)),
    );
}

fn latency_claims(table: &mut ClaimTable) {
    let (ring, sending) = (RING.latency(SMALL), SENDING.latency(SMALL));
    table.checks(
        &["IW-028"],
        "at 4 B with the fast path above the write of verbs, but by 15 % at most: minimal",
        [
            Check::below("us", verbs(), ring.clone(), NO_MARGIN),
            Check::at_most("us", ring.clone(), verbs(), 0.15),
        ],
    );
    table.checks(
        &["IW-029"],
        "at 4 B sending takes longer than the fast path, of the same library on the same card",
        [Check::below("us", ring.clone(), sending.clone(), NO_MARGIN)],
    );
    table.checks(
        &["IW-087"],
        "at 4 B the fast path is below sending by 10 % at least: significant",
        [Check::below("us", ring, sending, 0.1)],
    );
    table.checks(
        &["IW-088"],
        "at 4 B a write of verbs takes less than half of what sockets take: quite lower",
        [Check::below("us", verbs(), sockets(), 0.5)],
    );
    let faster = |size: u64| RING.with(LINK_TWICE).latency(size);
    table.checks(
        &["IW-089"],
        "a link twice as fast takes a quarter of the time at least from 1 MiB, and no 5 % from 4 B",
        [
            Check::below("1 MiB, us", faster(LARGEST), RING.latency(LARGEST), 0.25),
            Check::alike("4 B, us", faster(SMALL), RING.latency(SMALL), 0.05),
        ],
    );
}

fn bandwidth(table: &mut ClaimTable) {
    const PEAK: &str = "largest bandwidth, 16 KiB to 1 MiB";
    table.number(&["IW-030"], PEAK, CARD.peak("write", HOST_HOST, 1));
    table.number(&["IW-032"], PEAK, SOCKETS.peak("send", HOST_HOST, 1));
    table.number(&["IW-031"], PEAK, MPICH2.peak());
    table.number(&["IW-033"], PEAK, RING.peak());
    table.number(&["IW-034"], PEAK, SENDING.peak());
    table.number(
        &["IW-001", "IW-005", "IW-035", "IW-074"],
        "largest bandwidth with the fast path, more than over sockets",
        RING.peak().above(MPICH2.peak()),
    );
}
