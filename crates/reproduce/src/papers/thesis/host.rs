//! What communication costs the processor (3.3.4 to 3.3.6, 4.3.4 to 4.3.6): overhead, computation during transfers,
//! notification, blocking.

use super::setups::{IBAL, LATENCY_SIZES, MYRINET, QUADRICS, SMALL, THREE, VAPI, VAPI_AND_IBAL, in_mib};
use crate::claims::check::{Check, NO_MARGIN, NO_TOLERANCE};
use crate::claims::claim::ClaimTable;
use crate::claims::quantity::Quantity;
use crate::claims::setup::{HOST_HOST, Setup};
use crate::claims::whatif;

/// Bytes of the messages sent during computation.
const LONG: u64 = 1 << 20;
/// Bytes of a message that counts as large for notification.
const LARGE: u64 = 4 << 10;

pub(super) fn table(table: &mut ClaimTable) {
    overhead(table);
    overlap(table);
    notification(table);
    blocking(table);
}

/// Figures 3.4(a) and 4.6.
fn overhead(table: &mut ClaimTable) {
    let small = |setup: Setup| setup.overhead(SMALL);
    table.checks(
        &["MT-101"],
        "both posts and an empty poll take longer under IBAL at 4 B, 64 B and 1 KiB",
        [4, 64, 1024]
            .map(|n| Check::below(format!("{n} B, us"), VAPI.overhead(n), IBAL.overhead(n), NO_MARGIN)),
    );
    let cheap = IBAL.with(whatif::CALLS_AS_VAPI);
    table.checks(
        &["MT-102"],
        "with the posts and polls of VAPI the latency of 4 B under IBAL is that under VAPI, within 2 %",
        ["write", "send"].map(|op| {
            let at = |setup: Setup| setup.latency(op, HOST_HOST, SMALL);
            Check::alike(format!("{op}, us"), at(cheap), at(VAPI), 0.02)
        }),
    );
    let how = "post of a receive, post of 4 B in a ping-pong, and a poll of an empty queue";
    table.number(&["MT-190"], how, small(VAPI));
    table.number(&["MT-191"], how, small(QUADRICS));
    table.number(&["MT-192"], how, small(MYRINET));
    table.checks(
        &["MT-193"],
        how,
        [
            Check::below("Quadrics and InfiniBand, us", small(QUADRICS), small(VAPI), NO_MARGIN),
            Check::below("Myrinet and Quadrics, us", small(MYRINET), small(QUADRICS), NO_MARGIN),
        ],
    );
    table.not_modelled(
        &["MT-194"],
        "a post takes the same time here whether data come within the descriptor or not; the thesis does not say how much \
         less it is",
    );
}

/// Figures 3.4(b) and 4.7.
fn overlap(table: &mut ClaimTable) {
    let share = |setup: Setup| setup.share(LONG);
    let how = "largest share of the time that can be computed without loss of bandwidth, four messages of 1 MiB each way";
    table.number(&["MT-104", "MT-106", "MT-195"], how, share(VAPI));
    table.number(&["MT-105", "MT-107"], how, share(IBAL));
    table.number(&["MT-196"], how, share(MYRINET));
    table.number(&["MT-197"], how, share(QUADRICS));
    table.number(
        &["MT-103"],
        "bandwidth of four messages of 1 MiB each way at a time, nothing computed, in 2^20 bytes per second; mean of VAPI \
         and IBAL",
        Quantity::mean(VAPI_AND_IBAL.map(|(_, setup)| in_mib(setup.busy(0, LONG)))),
    );
    table.checks(
        &["MT-246"],
        "nine tenths of an iteration's time are computed, and 98 % of the bandwidth is left",
        THREE.map(|(name, setup)| {
            Check::at_most(
                format!("{name}, MB/s"),
                setup.busy(0, LONG) * 0.98,
                setup.busy(90, LONG),
                NO_TOLERANCE,
            )
        }),
    );
}

/// Figures 3.5 and 4.8.
fn notification(table: &mut ClaimTable) {
    let extra = |setup: Setup| setup.notify(SMALL);
    table.number(&["MT-201"], "latency that immediate data add to a write of 4 B", extra(VAPI));
    table.within(
        &["MT-202"],
        "latency that a send behind it adds to a directed send, at every size from 4 B to 4 KiB",
        LATENCY_SIZES.map(|n| MYRINET.notify_by_send(n)),
    );
    table.number(&["MT-198"], "latency that an event adds to a put of 4 KiB", QUADRICS.notify(LARGE));
    table.number(
        &["MT-199"],
        "latency that an event adds to a put of 4 B, rounded to 0.1 us, as the thesis prints it",
        extra(QUADRICS).rounded(0.1),
    );
    table.checks(
        &["MT-108"],
        "latency that immediate data add to a write, within 15 % at 4 B and 4 KiB",
        [SMALL, LARGE].map(|n| Check::alike(format!("{n} B, us"), IBAL.notify(n), VAPI.notify(n), 0.15)),
    );
    let by_poll = |name: &str, setup: Setup| {
        let slow = setup.with(whatif::POLL_SLOWER).notify(SMALL);
        Check::below(format!("{name}, us"), 1.0.into(), slow - setup.notify(SMALL), NO_MARGIN)
    };
    let how =
        "a poll that costs 2 us more lengthens a notified write by 1 us more than one that is not notified";
    table.checks(&["MT-019"], how, [by_poll("InfiniBand", VAPI)]);
    table.checks(&["MT-020"], how, [by_poll("Quadrics", QUADRICS)]);
    table.checks(&["MT-248"], how, VAPI_AND_IBAL.map(|(name, setup)| by_poll(name, setup)));
    table.checks(
        &["MT-021", "MT-249"],
        "what tells the target of a directed send adds a third of a send's latency at least",
        [Check::below("us", MYRINET.latency("send", HOST_HOST, SMALL) / 3.0, extra(MYRINET), NO_MARGIN)],
    );
}

/// Figures 3.6 and 4.9.
fn blocking(table: &mut ClaimTable) {
    let extra = |setup: Setup| setup.blocking(SMALL);
    let how = "latency of sends of 4 B with sleeping until an event less that with polling";
    table.number(&["MT-203"], how, extra(VAPI));
    table.number(&["MT-204"], how, extra(MYRINET));
    table.number(&["MT-205"], how, extra(QUADRICS));
    let order =
        |what: &str, a: Setup, b: Setup| Check::below(format!("{what}, us"), extra(a), extra(b), NO_MARGIN);
    table.checks(
        &["MT-206"],
        how,
        [order("Quadrics and InfiniBand", QUADRICS, VAPI), order("Myrinet and Quadrics", MYRINET, QUADRICS)],
    );
    table.checks(&["MT-111"], how, [order("IBAL and VAPI", IBAL, VAPI)]);
    let twice = |setup: Setup| {
        [SMALL, 64, 1 << 10].map(|n| {
            let polled = setup.latency("send", HOST_HOST, n);
            Check::below(format!("{n} B, us"), polled.clone(), setup.blocking(n) + polled, 0.5)
        })
    };
    let how = "with sleeping, sends of 4 B to 1 KiB take twice the time of those with polling at least";
    table.checks(&["MT-109"], how, twice(VAPI));
    table.checks(&["MT-110"], how, twice(IBAL));
    table.checks(
        &["MT-112"],
        "without the time until the handler's thread and the sleeping one run, less than half is left",
        VAPI_AND_IBAL.map(|(name, setup)| {
            Check::below(format!("{name}, us"), extra(setup.with(whatif::NO_WAKE_UP)), extra(setup), 0.5)
        }),
    );
}
