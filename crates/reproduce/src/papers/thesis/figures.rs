//! The thesis's figures: 3.1 to 3.12 and 4.1 to 4.14.

use super::features::{BUFFER, MTUS, PAGE, SETS, SHARES, SMALL_BUFFER, SPARSE_SETS, SPOT, numbers_of_pieces};
use super::setups::{
    COARSE, LATENCY_SIZES, MYRINET, QUADRICS, SMALL, SWEEP, THREE, VAPI, VAPI_AND_IBAL, in_mib,
};
use crate::claims::quantity::Quantity;
use crate::claims::setup::{HOST_HOST, Reuse, Setup};
use crate::papers::figure::{Axis, BYTES, FigurePlan, MIB, US, US_LOG};
use crate::papers::published::THESIS;

/// Sizes at which times beyond a message's own are drawn.
const FEW: [u64; 4] = [4, 64, 1 << 10, 4 << 10];
/// Per cent of an iteration that is computed.
const COMPUTED: [u64; 6] = [0, 50, 90, 99, 110, 150];
/// The smallest window of Figure 4.3 and the largest: with more the curves of three networks would outnumber the colours.
const WINDOWS: [u32; 2] = [4, 64];

fn figure(number: &'static str, experiment: &'static str, title: &'static str) -> FigurePlan {
    FigurePlan::new(THESIS, number, experiment, title)
}

/// All of them.
pub(crate) fn plans() -> Vec<FigurePlan> {
    let mut all = basic();
    all.extend(host());
    all.extend(buffers());
    all.extend(shapes());
    all.extend(three_basic());
    all.extend(three_host());
    all.extend(three_buffers());
    all.extend(spots());
    all
}

/// Figures 3.1 to 3.3.
fn basic() -> Vec<FigurePlan> {
    let mut latency = figure("3.1", "latency", "Latency").axes(BYTES, US);
    let mut bandwidth = figure("3.2", "bandwidth", "Bandwidth").axes(BYTES, MIB);
    let mut bilat = figure("3.3(a)", "bilat", "Latency both ways at once").axes(BYTES, US);
    let mut bibw = figure("3.3(b)", "bibw", "Bandwidth both ways").axes(BYTES, MIB);
    for (name, setup) in VAPI_AND_IBAL {
        for (op, called) in [("write", "RDMA"), ("send", "send/receive")] {
            let label = format!("{name}, {called}");
            latency = latency.curve(label.clone(), LATENCY_SIZES, |n| setup.latency(op, HOST_HOST, n));
            bilat = bilat.curve(label.clone(), LATENCY_SIZES, |n| setup.bilat(op, n));
            let uni = |n| in_mib(setup.bandwidth(op, HOST_HOST, 1, n));
            bandwidth = bandwidth.curve(label.clone(), SWEEP, uni);
            bibw = bibw.curve(label, SWEEP, |n| in_mib(setup.bibw(op, HOST_HOST, 1, n)));
        }
    }
    for (i, id) in ["MT-082", "MT-083", "MT-084", "MT-085"].into_iter().enumerate() {
        latency = latency.published_point(i, id, SMALL);
    }
    vec![
        latency,
        bandwidth.published_level(0, "MT-089").published_level(2, "MT-090"),
        bilat,
        bibw.published_level(0, "MT-097").published_level(2, "MT-097"),
    ]
}

/// Computation, and the remaining bandwidth.
fn computing(number: &'static str, of: &[(&'static str, Setup)]) -> FigurePlan {
    let title = "Bandwidth in both directions during computation";
    let x = Axis::linear("% of an undisturbed iteration computed");
    of.iter().fold(figure(number, "cpu_util_bandwidth", title).axes(x, MIB), |plan, (name, setup)| {
        plan.curve(*name, COMPUTED, |percent| in_mib(setup.busy(percent, 1 << 20)))
    })
}

/// Figures 3.4 to 3.6.
fn host() -> Vec<FigurePlan> {
    let us = Axis { title: "processor time (µs)", ..US };
    let mut overhead =
        figure("3.4(a)", "host_overhead_latency", "Processor time of a message").axes(BYTES, us);
    let mut notify = figure("3.5", "completion_notification", "What notification adds").axes(BYTES, US);
    let mut sleep = figure("3.6", "blocking", "Polling and sleeping").axes(BYTES, US);
    for (name, setup) in VAPI_AND_IBAL {
        overhead = overhead.curve(name, FEW, |n| setup.overhead(n));
        notify = notify.curve(name, FEW, |n| setup.notify(n));
        let polled = move |n| setup.latency("send", HOST_HOST, n);
        sleep = sleep.curve(format!("{name}, polling"), FEW, polled);
        sleep = sleep.curve(format!("{name}, sleeping"), FEW, |n| setup.blocking(n) + polled(n));
    }
    vec![overhead, computing("3.4(b)", &VAPI_AND_IBAL).published_level(0, "MT-103"), notify, sleep]
}

fn late(setup: Setup, reuse: Reuse, size: u64) -> Quantity {
    setup.reuse("latency", reuse, size)
}

fn fast(setup: Setup, reuse: Reuse) -> Quantity {
    in_mib(setup.reuse("bandwidth", reuse, BUFFER))
}

/// Figure 3.7: buffers and their use.
fn buffers() -> Vec<FigurePlan> {
    let (sets, shares) =
        (Axis::linear("buffers in turn"), Axis::linear("% of messages from and to one buffer"));
    let mut plans = [
        figure("3.7(a)", "buffer_reuse_s1", "Latency of 64 B by buffers").axes(sets, US),
        figure("3.7(b)", "buffer_reuse_s1", "Bandwidth of 512 KiB by buffers").axes(sets, MIB),
        figure("3.7(c)", "buffer_reuse_s2", "Latency of 64 B by reuse").axes(shares, US),
        figure("3.7(d)", "buffer_reuse_s2", "Bandwidth of 512 KiB by reuse").axes(shares, MIB),
    ];
    for (name, s) in VAPI_AND_IBAL {
        let [a, b, c, d] = plans;
        plans = [
            a.curve(name, SPARSE_SETS, |w| late(s, Reuse::Set(w), SMALL_BUFFER)),
            b.curve(name, SETS, |w| fast(s, Reuse::Set(w))),
            c.curve(name, SHARES, |r| late(s, Reuse::Fresh(r), SMALL_BUFFER)),
            d.curve(name, SHARES, |r| fast(s, Reuse::Fresh(r))),
        ];
    }
    plans.into()
}

/// Figures 3.8 to 3.12.
fn shapes() -> Vec<FigurePlan> {
    let room = Axis::linear("pieces that requests may have");
    let (mut lates, mut fasts, mut packets) = (Vec::new(), Vec::new(), Vec::new());
    let mut rooms_plan = figure("3.10", "max_sge", "Latency of 64 B by room for pieces").axes(room, US);
    let mut pieces = figure("3.11", "multi_segments", "Latency of messages in pieces").axes(BYTES, US);
    for (name, setup) in VAPI_AND_IBAL {
        rooms_plan = rooms_plan
            .curve(name, numbers_of_pieces(setup), |s| setup.level("maxsge", "latency", ("sge", s), 64));
        for g in [1, 2, 4, 8] {
            let label = format!("{name}, {g}");
            pieces = pieces
                .curve(label, [256, 4 << 10], |n| setup.level("segments", "latency", ("segments", g), n));
        }
    }
    let numbers = [["3.8(a)", "3.9(a)", "3.12(a)", "3.12(b)"], ["3.8(b)", "3.9(b)", "3.12(c)", "3.12(d)"]];
    for ((_, setup), [late, fast, mtu_late, mtu_fast]) in VAPI_AND_IBAL.into_iter().zip(numbers) {
        let connections = |quantity, size| move |q| setup.level("connections", quantity, ("qps", q), size);
        let qps = Axis::linear("queue pairs");
        lates.push(figure(late, "multi_connections", "Latency of 64 B by queue pairs").axes(qps, US).curve(
            "64 B",
            [1, 8, 64],
            connections("latency", 64),
        ));
        fasts.push(figure(fast, "multi_connections", "Bandwidth by queue pairs").axes(qps, MIB).curve(
            "64 KiB",
            [1, 8, 64],
            |q| in_mib(connections("bandwidth", 64 << 10)(q)),
        ));
        let mut latency = figure(mtu_late, "mtu_latency", "Latency by MTU").axes(BYTES, US);
        let mut bandwidth = figure(mtu_fast, "mtu_bandwidth", "Bandwidth by MTU").axes(BYTES, MIB);
        for mtu in MTUS {
            let at = |quantity, n| setup.level("mtu", quantity, ("mtu", mtu), n);
            latency = latency.curve(format!("MTU {mtu}"), [64, 4 << 10], |n| at("latency", n));
            bandwidth = bandwidth
                .curve(format!("MTU {mtu}"), [4 << 10, 16 << 10, 64 << 10], |n| in_mib(at("bandwidth", n)));
        }
        packets.extend([latency, bandwidth]);
    }
    // In the order of the thesis, which has each figure for both interfaces.
    lates.into_iter().chain(fasts).chain([rooms_plan, pieces]).chain(packets).collect()
}

/// Figures 4.1 to 4.5.
fn three_basic() -> Vec<FigurePlan> {
    let kinds = [
        ("InfiniBand, send/receive", VAPI, "send"),
        ("InfiniBand, RDMA", VAPI, "write"),
        ("Myrinet, send/receive", MYRINET, "send"),
        ("Myrinet, directed send", MYRINET, "write"),
        ("Quadrics, put", QUADRICS, "write"),
    ];
    let mut latency = figure("4.1", "latency", "Latency of three networks").axes(BYTES, US);
    let mut bilat = figure("4.4", "bilat", "Latency both ways of three networks").axes(BYTES, US);
    for (name, setup, op) in kinds {
        latency = latency.curve(name, LATENCY_SIZES, |n| setup.latency(op, HOST_HOST, n));
        bilat = bilat.curve(name, LATENCY_SIZES, |n| setup.bilat(op, n));
    }
    for (i, id) in ["MT-172", "MT-171", "MT-173", "MT-174", "MT-169"].into_iter().enumerate() {
        latency = latency.published_point(i, id, SMALL);
    }
    let mut uni = figure("4.2", "bandwidth", "Bandwidth of three networks").axes(BYTES, MIB);
    let mut windows = figure("4.3", "bandwidth_window", "Bandwidth by window").axes(BYTES, MIB);
    let mut both = figure("4.5", "bibw", "Bandwidth both ways of three networks").axes(BYTES, MIB);
    let marks = [["MT-177", "MT-185"], ["MT-178", "MT-187"], ["MT-179", "MT-186"]];
    for (i, (name, setup)) in THREE.into_iter().enumerate() {
        uni = uni
            .curve(name, COARSE, |n| in_mib(setup.bandwidth("write", HOST_HOST, 1, n)))
            .published_level(i, marks[i][0]);
        both = both
            .curve(name, COARSE, |n| in_mib(setup.bibw("write", HOST_HOST, 1, n)))
            .published_level(i, marks[i][1]);
        for window in WINDOWS {
            let of = |n| in_mib(setup.window(window).bandwidth("write", HOST_HOST, 1, n));
            windows = windows.curve(format!("{name}, W = {window}"), [1 << 10, 4 << 10, 64 << 10], of);
        }
    }
    vec![latency, uni, windows, bilat, both]
}

/// Figures 4.6 to 4.9.
fn three_host() -> Vec<FigurePlan> {
    let us = Axis { title: "processor time (µs)", ..US };
    let mut overhead = figure("4.6", "host_overhead_latency", "Processor time of a message").axes(BYTES, us);
    let mut notify = figure("4.8", "completion_notification", "What notification adds").axes(BYTES, US);
    let mut sleep = figure("4.9", "blocking", "What sleeping adds to polling").axes(BYTES, US);
    for (name, setup) in THREE {
        overhead = overhead.curve(name, FEW, |n| setup.overhead(n));
        let by_send = setup.card == MYRINET.card;
        notify = notify.curve(name, FEW, |n| if by_send { setup.notify_by_send(n) } else { setup.notify(n) });
        sleep = sleep.curve(name, FEW, |n| setup.blocking(n));
    }
    vec![
        overhead
            .published_point(0, "MT-190", SMALL)
            .published_point(1, "MT-192", SMALL)
            .published_point(2, "MT-191", SMALL),
        computing("4.7", &THREE),
        notify
            .published_level(0, "MT-201")
            .published_range(1, "MT-202")
            .published_point(2, "MT-199", SMALL)
            .published_point(2, "MT-198", 4 << 10),
        sleep.published_point(1, "MT-204", SMALL).published_point(2, "MT-205", SMALL),
    ]
}

/// Figures 4.10 to 4.12.
fn three_buffers() -> Vec<FigurePlan> {
    let (sets, shares) =
        (Axis::linear("buffers in turn"), Axis::linear("% of messages from and to one buffer"));
    let mut plans = [
        figure("4.10", "buffer_reuse_s1", "Bandwidth of 512 KiB by buffers").axes(sets, MIB),
        figure("4.11", "buffer_reuse_s2", "Latency of 4 KiB by reuse").axes(shares, US_LOG),
        figure("4.12", "buffer_reuse_s2", "Bandwidth of 512 KiB by reuse").axes(shares, MIB),
    ];
    for (name, s) in THREE {
        let [set, latency, bandwidth] = plans;
        plans = [
            set.curve(name, SPARSE_SETS, |w| fast(s, Reuse::Set(w))),
            latency.curve(name, SHARES, |r| late(s, Reuse::Fresh(r), PAGE)),
            bandwidth.curve(name, SHARES, |r| fast(s, Reuse::Fresh(r))),
        ];
    }
    plans.into()
}

/// Figures 4.13 and 4.14.
fn spots() -> Vec<FigurePlan> {
    let plan = |number, experiment, title, op| {
        THREE
            .into_iter()
            .fold(figure(number, experiment, title).axes(Axis::linear("slaves"), US), |plan, (name, s)| {
                plan.curve(name, 1..=7, |k| s.spot(op, k as u32, SPOT))
            })
    };
    vec![
        plan("4.13", "hotspot_send", "Hot spot: sends to several slaves", "send"),
        plan("4.14", "hotspot_sendrecv", "Hot spot: messages from several slaves", "send-receive"),
    ]
}
