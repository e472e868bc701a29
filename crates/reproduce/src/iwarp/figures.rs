//! The paper's figures.

use super::super::figure::{BYTES, MB, Plan, US};
use super::super::published::IWARP;
use super::super::setup::HOST_HOST;
use super::setups::{CARD, LATENCIES, MPICH2, RING, SENDING, SOCKETS, SWEEP};

/// All of them.
pub(crate) fn plans() -> Vec<Plan> {
    vec![latency(), bandwidth()]
}

/// Latencies, as in Figure 4(a).
fn latency() -> Plan {
    let small = super::setups::SMALL;
    Plan::new(IWARP, "4a", "latency", "Latency of small messages")
        .axes(BYTES, US)
        .curve("verbs, RDMA write", LATENCIES, |n| CARD.latency("write", HOST_HOST, n))
        .curve("sockets", LATENCIES, |n| SOCKETS.latency("send", HOST_HOST, n))
        .curve("MPICH2", LATENCIES, |n| MPICH2.latency(n))
        .curve("MVAPICH2-R", LATENCIES, |n| RING.latency(n))
        .curve("MVAPICH2-SR", LATENCIES, |n| SENDING.latency(n))
        .point(0, "IW-022", small)
        .point(1, "IW-023", small)
        .point(2, "IW-024", small)
        .point(3, "IW-025", small)
        .point(4, "IW-026", small)
}

/// Bandwidths, as in Figure 4(b).
fn bandwidth() -> Plan {
    Plan::new(IWARP, "4b", "bandwidth", "Bandwidth of windows of messages")
        .axes(BYTES, MB)
        .curve("verbs, RDMA write", SWEEP, |n| CARD.bandwidth("write", HOST_HOST, 1, n))
        .curve("sockets", SWEEP, |n| SOCKETS.bandwidth("send", HOST_HOST, 1, n))
        .curve("MPICH2", SWEEP, |n| MPICH2.bandwidth(n))
        .curve("MVAPICH2-R", SWEEP, |n| RING.bandwidth(n))
        .curve("MVAPICH2-SR", SWEEP, |n| SENDING.bandwidth(n))
        .level(0, "IW-030")
        .level(1, "IW-032")
        .level(2, "IW-031")
        .level(3, "IW-033")
        .level(4, "IW-034")
}
