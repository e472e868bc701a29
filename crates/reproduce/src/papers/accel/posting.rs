//! Section IV: posting receives and sends.

use super::setups::{HOST, NIC, PortalsQuantities};
use crate::claims::check::{Check, NO_MARGIN};
use crate::claims::claim::ClaimTable;

const EXCHANGE: &str = "nothing";
const THREE: &str = "receive-three";
const ONE: &str = "receive-one";
const BOUND: &str = "send-bound";
const READY: &str = "send-ready";

pub(super) fn table(table: &mut ClaimTable) {
    exchanges(table);
    receives(table);
    sends(table);
}

fn exchanges(table: &mut ClaimTable) {
    let exchange = NIC.posting(EXCHANGE, "time");
    table.number(&["AP-028"], "microseconds of an order that fails", exchange.clone());
    let ratio = exchange * 1e3 / NIC.parameter("kernel.trap_ns");
    table.number(&["AP-030"], "an order that fails over kernel.trap_ns", ratio);
}

fn receives(table: &mut ClaimTable) {
    table.check(
        &["AP-026"],
        "three calls take longer on the card than in the kernel, by 25 % at least",
        Check::above("us", NIC.posting(THREE, "time"), HOST.posting(THREE, "time"), 0.25),
    );
    table.check(
        &["AP-027"],
        "of 64 messages of 8 B whose receives are posted as they come, in three calls each, more come before theirs on the card",
        Check::above("messages", NIC.late_posts(), HOST.late_posts(), NO_MARGIN),
    );
    table.number(&["AP-031"], "orders of three calls", NIC.posting(THREE, "orders"));
    let calls = HOST.posting(THREE, "time") * 1e3 / HOST.parameter("kernel.trap_ns");
    table.number(&["AP-032"], "three calls in the kernel over kernel.trap_ns", calls);
    table.number(&["AP-033"], "orders of one call", NIC.posting(ONE, "orders"));
    table.number(&["AP-034"], "orders of three calls in the kernel", HOST.posting(THREE, "orders"));
    table.check(
        &["AP-116"],
        "one call takes less than three by 25 % at least",
        Check::below("us", NIC.posting(ONE, "time"), NIC.posting(THREE, "time"), 0.25),
    );
}

fn sends(table: &mut ClaimTable) {
    table.unused(&["AP-035"], "an older MPI; this one sends all sizes alike");
    let (bound, ready) = (NIC.posting(BOUND, "orders"), NIC.posting(READY, "orders"));
    table.number(&["AP-036"], "orders of a send from memory that is bound for it", bound.clone());
    table.number(&["AP-037"], "orders of a send from memory that was bound before", ready.clone());
    table.number(&["AP-038"], "orders that binding adds", bound - ready);
    table.unused(&["AP-039"], "a process of the experiments has one region");
    let more = NIC.posting(BOUND, "time") - NIC.posting(READY, "time");
    let (late, size) = (NIC.portals_latency(64 << 10), 64.0 * 1024.0);
    table.check(
        &["AP-040"],
        "at 64 KiB what binding adds to a send lowers the ping-pong's bandwidth by 5 % at most",
        Check::alike(
            "MB/s",
            crate::claims::quantity::Quantity::from(size) / (late.clone() + more),
            crate::claims::quantity::Quantity::from(size) / late,
            0.05,
        ),
    );
    table.check(
        &["AP-041"],
        "a send from memory that was bound before takes less by 25 % at least",
        Check::below("us", NIC.posting(READY, "time"), NIC.posting(BOUND, "time"), 0.25),
    );
}
