//! Many nodes: the hotspot (section 3.5, Figure 9) and the forwarding chain (section 4.3, Figures 12 to 14).

use super::setups::MT23108;
use crate::claims::check::{Check, NO_TOLERANCE};
use crate::claims::claim::ClaimTable;
use crate::claims::quantity::Quantity;
use crate::claims::setup::{Ends, HOST_HOST, HOST_NIC, NIC_HOST, NIC_NIC, SWEEP};
use report::number::size;

/// Slaves of the hotspot.
pub(crate) const SLAVES: [u32; 7] = [1, 2, 3, 4, 5, 6, 7];
/// Nodes of the chain.
pub(crate) const NODES: [u32; 7] = [2, 3, 4, 5, 6, 7, 8];
/// Message sizes of Figures 12 and 13.
pub(crate) const CHAIN_SIZES: [u64; 3] = [4 << 10, 64 << 10, 1 << 20];
/// Nodes of Figure 14, which the paper does not state.
pub(crate) const CHAIN_NODES: u32 = 8;

/// Section 3.5: a hot spot.
pub(super) fn hotspot(table: &mut ClaimTable) {
    let gain = |ends: Ends, base: Ends| {
        let at = |ends, slaves| MT23108.hotspot("write", ends, slaves);
        Quantity::mean(SLAVES.map(|slaves| at(ends, slaves).below(at(base, slaves))))
    };
    let how = "mean reduction of latency over 1 to 7 slaves";
    table.number(&["NM-093"], how, gain(NIC_NIC, HOST_HOST));
    table.number(&["NM-094"], how, gain(NIC_NIC, HOST_NIC));
    table.number(&["NM-095"], how, gain(NIC_HOST, HOST_HOST));
    table.number(&["NM-096"], how, gain(NIC_HOST, HOST_NIC));
}

fn time(via: &str, ports: u32, nodes: u32, bytes: u64) -> Quantity {
    MT23108.chain(via, ports, nodes, bytes)
}

/// Section 4.3: a chain of nodes.
pub(super) fn chain(table: &mut ClaimTable) {
    let faster = |ports, margin| {
        move |nodes, n| {
            let what = format!("{nodes} nodes, {}, us", size(n));
            Check::below(what, time("nic", ports, nodes, n), time("host", ports, nodes, n), margin)
        }
    };
    // Between two nodes nothing is forwarded: both ways send from host to host memory.
    let forwarded = |ports, margin| {
        let all = faster(ports, margin);
        let some = NODES.iter().filter(|nodes| **nodes > 2);
        some.flat_map(|nodes| CHAIN_SIZES.map(|n| all(*nodes, n))).collect::<Vec<_>>()
    };
    table.checks(&["NM-120"], "faster at 3 to 8 nodes with 4 KiB, 64 KiB and 1 MiB", forwarded(1, 0.0));
    gain_adds_up(table);
    table.checks(
        &["NM-122"],
        "a third less time at least with 8 nodes and 64 KiB or 1 MiB over two ports",
        [64 << 10, 1 << 20].map(|n| faster(2, 1.0 / 3.0)(8, n)),
    );
    let speedup = |ports, nodes, n| time("host", ports, nodes, n) / time("nic", ports, nodes, n);
    let all = |ports| NODES.into_iter().flat_map(move |nodes| CHAIN_SIZES.map(|n| speedup(ports, nodes, n)));
    table.number(
        &["NM-001", "NM-123"],
        "largest speed-up over two ports, 2 to 8 nodes with 4 KiB, 64 KiB and 1 MiB",
        Quantity::greatest(all(2)),
    );
    table.checks(
        &["NM-124"],
        "with 1 MiB and 8 nodes the speed-up over two ports is a fifth above that over one; \
         so is nic-to-nic bandwidth over that of host-to-host",
        [
            Check::below("speed-up", speedup(1, 8, 1 << 20), speedup(2, 8, 1 << 20), 1.0 / 6.0),
            Check::below(
                "bandwidth over host-to-host",
                MT23108.peak("write", NIC_NIC, 1) / MT23108.peak("write", HOST_HOST, 1),
                MT23108.peak("write", NIC_NIC, 2) / MT23108.peak("write", HOST_HOST, 2),
                1.0 / 6.0,
            ),
        ],
    );
    let at_size = |ports| SWEEP.map(|n| faster(ports, 0.0)(CHAIN_NODES, n));
    table.checks(
        &["NM-125"],
        "faster with 8 nodes at every size from 64 B to 1 MiB, over one port and two",
        at_size(1).into_iter().chain(at_size(2)),
    );
    let gain = |via, n| time(via, 2, CHAIN_NODES, n) / time(via, 1, CHAIN_NODES, n);
    table.checks(
        &["NM-126"],
        "time over two ports against one, 8 nodes, 256 KiB and 1 MiB: a tenth less at least through NIC memory, \
         at most 3 % less through host memory",
        [256 << 10, 1 << 20].into_iter().flat_map(|n| {
            [
                Check::below("through NIC memory", gain("nic", n), 1.0.into(), 0.1),
                Check::at_most("through host memory", 0.97.into(), gain("host", n), NO_TOLERANCE),
            ]
        }),
    );
}

/// "The total benefit is the sum of benefit between every two nodes."
fn gain_adds_up(table: &mut ClaimTable) {
    let saved = |nodes, n| time("host", 1, nodes, n) - time("nic", 1, nodes, n);
    let growing = CHAIN_SIZES.map(|n| {
        let all = NODES.map(|nodes| saved(nodes, n));
        Check::Rising(format!("saved at {}, us", size(n)), all.into(), 0.01)
    });
    // From four nodes on, a further node adds one more hop from NIC memory to NIC memory.
    let even = CHAIN_SIZES.into_iter().flat_map(|n| {
        [5, 6, 7, 8].map(move |nodes| {
            let (last, mean) = (saved(nodes, n) - saved(nodes - 1, n), (saved(8, n) - saved(4, n)) / 4.0);
            Check::alike(format!("node {nodes} adds at {}, us", size(n)), last, mean, 0.1)
        })
    });
    table.checks(
        &["NM-121"],
        "microseconds saved rise with every node, and from the fifth on each adds the same within 10 %",
        growing.into_iter().chain(even),
    );
}
