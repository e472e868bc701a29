//! The papers' figures: the same axes and curves from the model, with the published numbers on them. The papers'
//! texts give only peaks, ends of ranges and single points of their curves.

use super::accel;
use super::figure::{Axis, BYTES, FigurePlan, MB, US, US_LOG};
use super::iwarp;
use super::multirail;
use super::nicmem::{CASES, MT23108, figure as nic};
use super::published::{NICMEM, Published};
use super::thesis;
use crate::claims::quantity::Quantity;
use crate::claims::setup::{
    Ends, HOST_HOST, HOST_NIC, HOST_PACK, LATENCY_SIZES, NIC_HOST, NIC_NIC, NIC_PACK, SWEEP, case, gather,
};

/// The figures that belong to some rows.
pub(crate) fn plans(rows: &[Published]) -> Vec<FigurePlan> {
    let mut all = nicmem_basic();
    all.extend(nicmem_streams());
    all.extend(nicmem_patterns());
    all.extend(nicmem_chains());
    all.extend(thesis::figures::plans());
    all.extend(iwarp::figures::plans());
    all.extend(multirail::figures::plans());
    all.extend(accel::figures::plans());
    all.retain(|plan| rows.iter().any(|row| row.paper == plan.paper && row.experiment == plan.experiment));
    all
}

fn nicmem_basic() -> Vec<FigurePlan> {
    let figure = |number, experiment, title| FigurePlan::new(NICMEM, number, experiment, title);
    let mut copies = figure("2", "local_copy", "Copies within one node").axes(BYTES, MB);
    for ends in CASES {
        copies = copies.curve(case(ends), SWEEP, |n| MT23108.copy(ends, n));
    }
    copies = copies.curve("memcpy", SWEEP, |n| MT23108.memcpy(n));
    let at = |ends, n| MT23108.latency("write-imm", ends, n);
    let saved = Axis { title: "reduction of latency (µs)", ..US };
    let gain = Axis { title: "improvement of latency (%)", ..US };
    let mut reduction = figure("3", "latency", "Latency that NIC memory saves").axes(BYTES, saved);
    let mut factor = figure("4", "latency", "Improvement of latency over host-to-host").axes(BYTES, gain);
    for ends in [NIC_NIC, NIC_HOST, HOST_NIC] {
        reduction = reduction.curve(case(ends), LATENCY_SIZES, |n| at(HOST_HOST, n) - at(ends, n));
        factor = factor.curve(case(ends), LATENCY_SIZES, |n| at(ends, n).below(at(HOST_HOST, n)));
    }
    let copies = copies
        .published_level(0, "NM-029")
        .published_level(1, "NM-030")
        .published_level(2, "NM-031")
        .published_level(3, "NM-032")
        .published_level(4, "NM-028");
    vec![copies, reduction, factor.published_range(0, "NM-038").published_range(1, "NM-039")]
}

fn nicmem_streams() -> Vec<FigurePlan> {
    let figure = |number, experiment, title, of: fn(Ends, u64) -> Quantity, rows: [&'static str; 4]| {
        let mut plan = FigurePlan::new(NICMEM, number, experiment, title).axes(BYTES, MB);
        for (i, ends) in CASES.into_iter().enumerate() {
            plan = plan.curve(case(ends), SWEEP, |n| of(ends, n)).published_level(i, rows[i]);
        }
        plan
    };
    vec![
        figure(
            "5",
            "bandwidth",
            "Bandwidth of writes, one port",
            |ends, n| MT23108.bandwidth("write", ends, 1, n),
            ["NM-043", "NM-044", "NM-045", "NM-046"],
        ),
        figure(
            "6",
            "bibw",
            "Bandwidth both ways, one port",
            |ends, n| MT23108.bibw("write", ends, 1, n),
            ["NM-054", "NM-055", "NM-056", "NM-057"],
        ),
        figure(
            "7",
            "bandwidth_2port",
            "Bandwidth of writes, two ports",
            |ends, n| MT23108.bandwidth("write", ends, 2, n),
            ["NM-067", "NM-068", "NM-069", "NM-070"],
        ),
        figure(
            "8",
            "bibw_2port",
            "Bandwidth both ways, two ports",
            |ends, n| MT23108.bibw("write", ends, 2, n),
            ["NM-078", "NM-079", "NM-080", "NM-081"],
        ),
    ]
}

fn nicmem_patterns() -> Vec<FigurePlan> {
    let slaves = Axis::linear("slaves");
    let block = Axis { title: "block size", ..BYTES };
    let cpu = Axis { title: "processor time of the sender (µs)", ..US };
    let mut spot =
        FigurePlan::new(NICMEM, "9", "hotspot_write", "Hotspot: writes of 2 KiB to several slaves")
            .axes(slaves, US);
    for ends in CASES {
        spot =
            spot.curve(case(ends), nic::SLAVES.map(u64::from), |k| MT23108.hotspot("write", ends, k as u32));
    }
    let mut time =
        FigurePlan::new(NICMEM, "10", "noncontig_pack", "Eight blocks as one message: time").axes(block, US);
    let title = "Eight blocks as one message: use of the processor";
    let mut used = FigurePlan::new(NICMEM, "11", "noncontig_pack_cpu", title).axes(block, cpu);
    let ways = [("host-memory pack", HOST_PACK), ("nic-memory pack", NIC_PACK)]
        .map(|(name, how)| (name.to_owned(), how));
    let gathers = [0, 20, 80, 100].map(|reuse| (format!("gather, {reuse} % reuse"), gather(reuse)));
    for (name, how) in ways.into_iter().chain(gathers) {
        time = time.curve(name.clone(), nic::BLOCKS, |n| MT23108.pack(how, "time", n));
        used = used.curve(name, nic::BLOCKS, |n| MT23108.pack(how, "cpu", n));
    }
    vec![spot, time, used]
}

fn nicmem_chains() -> Vec<FigurePlan> {
    let nodes = Axis::linear("nodes");
    let by_nodes = |number, experiment, title, ports| {
        let mut plan = FigurePlan::new(NICMEM, number, experiment, title).axes(nodes, US_LOG);
        for n in nic::CHAIN_SIZES {
            for via in ["host", "nic"] {
                let label = format!("{via} memory, {}", report::number::size(n));
                let all = nic::NODES.map(u64::from);
                plan = plan.curve(label, all, |nodes| MT23108.chain(via, ports, nodes as u32, n));
            }
        }
        plan
    };
    let mut by_size =
        FigurePlan::new(NICMEM, "14", "forward_chain_size", "Chain of eight nodes").axes(BYTES, US_LOG);
    for ports in [1, 2] {
        for via in ["host", "nic"] {
            let label = format!("{via} memory, {}", if ports == 1 { "one port" } else { "two ports" });
            by_size = by_size.curve(label, SWEEP, |n| MT23108.chain(via, ports, nic::CHAIN_NODES, n));
        }
    }
    vec![
        by_nodes("12", "forward_chain_1port", "Forwarding chain over one port", 1),
        by_nodes("13", "forward_chain_2port", "Forwarding chain over two ports", 2),
        by_size,
    ]
}
