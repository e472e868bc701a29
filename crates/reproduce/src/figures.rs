//! The papers' figures: the same axes and curves from the model, with the published numbers on them. The papers' own
//! curves are lost; what they printed in words are peaks, ends of ranges and single points.

use std::collections::BTreeSet;

use serde::Serialize;

use super::multirail;
use super::nicmem::{CASES, SETUP, figure as nic};
use super::published::{NICMEM, Published, dataset};
use super::quantity::{Probe, Quantity, Source};
use super::setup::{
    Ends, HOST_HOST, HOST_NIC, HOST_PACK, LATENCIES, NIC_HOST, NIC_NIC, NIC_PACK, SWEEP, case, gather,
};
use super::thesis;

/// One figure of a paper, from the model.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Figure {
    /// Key of the paper.
    pub paper: &'static str,
    /// As in the paper: `7`, `3.1`.
    pub number: &'static str,
    /// What it shows.
    pub title: &'static str,
    /// Horizontal axis.
    pub x: Axis,
    /// Vertical axis.
    pub y: Axis,
    /// The model.
    pub curves: Vec<Curve>,
    /// The paper.
    pub marks: Vec<Mark>,
}

/// An axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Axis {
    /// Quantity and unit.
    pub title: &'static str,
    /// Whether it is logarithmic.
    pub log: bool,
    /// Whether it counts bytes.
    pub bytes: bool,
}

/// One curve of the model.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Curve {
    /// Name in the legend.
    pub label: String,
    /// What could be measured.
    pub points: Vec<[f64; 2]>,
}

/// A published number.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Mark {
    /// Id of its row.
    pub id: &'static str,
    /// Index of the curve that it belongs to.
    pub curve: usize,
    /// Where on the axis; `None` for a level, such as a peak of which no size is stated.
    pub x: Option<f64>,
    /// The number.
    pub y: f64,
}

/// Which number of a row.
#[derive(Clone, Copy, Debug)]
enum End {
    Value,
    Low,
    High,
}

/// A figure before it is measured.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    paper: &'static str,
    number: &'static str,
    title: &'static str,
    /// Experiments whose rows it belongs to.
    experiment: &'static str,
    x: Axis,
    y: Axis,
    curves: Vec<(String, Vec<(f64, Quantity)>)>,
    marks: Vec<(&'static str, End, usize, Option<f64>)>,
}

pub(super) const BYTES: Axis = Axis { title: "message size", log: true, bytes: true };
pub(super) const MB: Axis = Axis { title: "bandwidth (MB/s)", log: false, bytes: false };
pub(super) const MIB: Axis = Axis { title: "bandwidth (2^20 B/s)", log: false, bytes: false };
pub(super) const US: Axis = Axis { title: "latency (µs)", log: false, bytes: false };
pub(super) const US_LOG: Axis = Axis { log: true, ..US };

impl Plan {
    pub(super) fn new(
        paper: &'static str,
        number: &'static str,
        experiment: &'static str,
        title: &'static str,
    ) -> Self {
        Self { paper, number, title, experiment, x: BYTES, y: US, curves: Vec::new(), marks: Vec::new() }
    }

    pub(super) fn axes(self, x: Axis, y: Axis) -> Self {
        Self { x, y, ..self }
    }

    pub(super) fn curve(
        mut self,
        label: impl Into<String>,
        at: impl IntoIterator<Item = u64>,
        of: impl Fn(u64) -> Quantity,
    ) -> Self {
        self.curves.push((label.into(), at.into_iter().map(|x| (x as f64, of(x))).collect()));
        self
    }

    /// A row's value as a level of this curve.
    pub(super) fn level(mut self, curve: usize, id: &'static str) -> Self {
        self.marks.push((id, End::Value, curve, None));
        self
    }

    /// Both ends of a row's range as levels of this curve.
    pub(super) fn band(mut self, curve: usize, id: &'static str) -> Self {
        self.marks.extend([End::Low, End::High].map(|end| (id, end, curve, None)));
        self
    }

    /// A row's value as a point.
    pub(super) fn point(mut self, curve: usize, id: &'static str, x: u64) -> Self {
        self.marks.push((id, End::Value, curve, Some(x as f64)));
        self
    }

    /// Adds all that must be measured for it.
    pub(super) fn probes(&self, into: &mut BTreeSet<Probe>) {
        self.curves.iter().flat_map(|(_, points)| points).for_each(|(_, q)| q.probes(into));
    }

    /// The figure; what could not be measured is left out.
    pub(super) fn draw(&self, source: &dyn Source) -> Figure {
        let curve = |(label, points): &(String, Vec<(f64, Quantity)>)| Curve {
            label: label.clone(),
            points: points.iter().filter_map(|(x, q)| Some([*x, q.value(source).ok()?])).collect(),
        };
        let published = dataset();
        let mark = |(id, end, curve, x): &(&'static str, End, usize, Option<f64>)| {
            let row = published.iter().find(|row| row.id == *id)?;
            let y = match end {
                End::Value => row.value,
                End::Low => row.low,
                End::High => row.high,
            };
            Some(Mark { id, curve: *curve, x: *x, y: y? })
        };
        Figure {
            paper: self.paper,
            number: self.number,
            title: self.title,
            x: self.x,
            y: self.y,
            curves: self.curves.iter().map(curve).collect(),
            marks: self.marks.iter().filter_map(mark).collect(),
        }
    }
}

/// The figures that belong to some rows.
pub(super) fn plans(rows: &[Published]) -> Vec<Plan> {
    let mut all = nicmem_basic();
    all.extend(nicmem_streams());
    all.extend(nicmem_patterns());
    all.extend(nicmem_chains());
    all.extend(thesis::figures::plans());
    all.extend(multirail::figures::plans());
    all.retain(|plan| rows.iter().any(|row| row.paper == plan.paper && row.experiment == plan.experiment));
    all
}

fn nicmem_basic() -> Vec<Plan> {
    let figure = |number, experiment, title| Plan::new(NICMEM, number, experiment, title);
    let mut copies = figure("2", "local_copy", "Copies within one node").axes(BYTES, MB);
    for ends in CASES {
        copies = copies.curve(case(ends), SWEEP, |n| SETUP.copy(ends, n));
    }
    copies = copies.curve("memcpy", SWEEP, |n| SETUP.memcpy(n));
    let at = |ends, n| SETUP.latency("write-imm", ends, n);
    let saved = Axis { title: "reduction of latency (µs)", ..US };
    let gain = Axis { title: "improvement of latency (%)", ..US };
    let mut reduction = figure("3", "latency", "Latency that NIC memory saves").axes(BYTES, saved);
    let mut factor = figure("4", "latency", "Improvement of latency over host-to-host").axes(BYTES, gain);
    for ends in [NIC_NIC, NIC_HOST, HOST_NIC] {
        reduction = reduction.curve(case(ends), LATENCIES, |n| at(HOST_HOST, n) - at(ends, n));
        factor = factor.curve(case(ends), LATENCIES, |n| at(ends, n).below(at(HOST_HOST, n)));
    }
    let copies =
        copies.level(0, "NM-029").level(1, "NM-030").level(2, "NM-031").level(3, "NM-032").level(4, "NM-028");
    vec![copies, reduction, factor.band(0, "NM-038").band(1, "NM-039")]
}

fn nicmem_streams() -> Vec<Plan> {
    let figure = |number, experiment, title, of: fn(Ends, u64) -> Quantity, rows: [&'static str; 4]| {
        let mut plan = Plan::new(NICMEM, number, experiment, title).axes(BYTES, MB);
        for (i, ends) in CASES.into_iter().enumerate() {
            plan = plan.curve(case(ends), SWEEP, |n| of(ends, n)).level(i, rows[i]);
        }
        plan
    };
    vec![
        figure(
            "5",
            "bandwidth",
            "Bandwidth of writes, one port",
            |ends, n| SETUP.bandwidth("write", ends, 1, n),
            ["NM-043", "NM-044", "NM-045", "NM-046"],
        ),
        figure(
            "6",
            "bibw",
            "Bandwidth both ways, one port",
            |ends, n| SETUP.bibw("write", ends, 1, n),
            ["NM-054", "NM-055", "NM-056", "NM-057"],
        ),
        figure(
            "7",
            "bandwidth_2port",
            "Bandwidth of writes, two ports",
            |ends, n| SETUP.bandwidth("write", ends, 2, n),
            ["NM-067", "NM-068", "NM-069", "NM-070"],
        ),
        figure(
            "8",
            "bibw_2port",
            "Bandwidth both ways, two ports",
            |ends, n| SETUP.bibw("write", ends, 2, n),
            ["NM-078", "NM-079", "NM-080", "NM-081"],
        ),
    ]
}

fn nicmem_patterns() -> Vec<Plan> {
    let slaves = Axis { title: "slaves", log: false, bytes: false };
    let block = Axis { title: "block size", ..BYTES };
    let cpu = Axis { title: "processor time of the sender (µs)", ..US };
    let mut spot = Plan::new(NICMEM, "9", "hotspot_write", "Hotspot: writes of 2 KiB to several slaves")
        .axes(slaves, US);
    for ends in CASES {
        spot = spot.curve(case(ends), nic::SLAVES.map(u64::from), |k| SETUP.hotspot("write", ends, k as u32));
    }
    let mut time =
        Plan::new(NICMEM, "10", "noncontig_pack", "Eight blocks as one message: time").axes(block, US);
    let title = "Eight blocks as one message: use of the processor";
    let mut used = Plan::new(NICMEM, "11", "noncontig_pack_cpu", title).axes(block, cpu);
    let ways = [("host-memory pack", HOST_PACK), ("nic-memory pack", NIC_PACK)]
        .map(|(name, how)| (name.to_owned(), how));
    let gathers = [0, 20, 80, 100].map(|reuse| (format!("gather, {reuse} % reuse"), gather(reuse)));
    for (name, how) in ways.into_iter().chain(gathers) {
        time = time.curve(name.clone(), nic::BLOCKS, |n| SETUP.pack(how, "time", n));
        used = used.curve(name, nic::BLOCKS, |n| SETUP.pack(how, "cpu", n));
    }
    vec![spot, time, used]
}

fn nicmem_chains() -> Vec<Plan> {
    let nodes = Axis { title: "nodes", log: false, bytes: false };
    let by_nodes = |number, experiment, title, ports| {
        let mut plan = Plan::new(NICMEM, number, experiment, title).axes(nodes, US_LOG);
        for n in nic::CHAIN_SIZES {
            for via in ["host", "nic"] {
                let label = format!("{via} memory, {}", report::number::size(n));
                let all = nic::NODES.map(u64::from);
                plan = plan.curve(label, all, |nodes| SETUP.chain(via, ports, nodes as u32, n));
            }
        }
        plan
    };
    let mut by_size =
        Plan::new(NICMEM, "14", "forward_chain_size", "Chain of eight nodes").axes(BYTES, US_LOG);
    for ports in [1, 2] {
        for via in ["host", "nic"] {
            let label = format!("{via} memory, {}", if ports == 1 { "one port" } else { "two ports" });
            by_size = by_size.curve(label, SWEEP, |n| SETUP.chain(via, ports, nic::CHAIN_NODES, n));
        }
    }
    vec![
        by_nodes("12", "forward_chain_1port", "Forwarding chain over one port", 1),
        by_nodes("13", "forward_chain_2port", "Forwarding chain over two ports", 2),
        by_size,
    ]
}
