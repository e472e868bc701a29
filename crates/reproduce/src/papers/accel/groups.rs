//! Sections VI-B and VI-D: collectives.

use super::setups::{HOST, HOST_COP, HOST_CORPSE, NIC, NIC_CORPSE, PortalsQuantities};
use crate::claims::check::{Check, NO_MARGIN, NO_TOLERANCE};
use crate::claims::claim::ClaimTable;
use crate::claims::quantity::Quantity;
use crate::claims::setup::Setup;

/// Numbers of nodes where the paper states none: a small and a large one.
const SOME: u64 = 64;
const MORE: u64 = 256;
const MOST: u64 = 1024;

const BARRIER: &str = "barrier";
const ALLREDUCE: &str = "allreduce";
const REDUCE: &str = "reduce";
const ALLGATHER: &str = "allgather";

pub(super) fn table(table: &mut ClaimTable) {
    against_kernel(table);
    advantages(table);
    protocols(table);
}

/// Figure 3(a) and (d).
fn against_kernel(table: &mut ClaimTable) {
    let times = |nodes| (NIC.collective(BARRIER, nodes), HOST.collective(BARRIER, nodes));
    let saved = [16, SOME, MORE, MOST].map(|nodes| {
        let (nic, host) = times(nodes);
        host - nic
    });
    let (nic, host) = times(MOST);
    table.checks(
        &["AP-066"],
        "the barrier takes 5 % less on the card at 1024 nodes, and from 16 nodes on it saves ever more",
        [Check::below("us", nic, host, 0.05), Check::Rising("saved, us".into(), saved.into(), NO_TOLERANCE)],
    );
    table.check(
        &["AP-065"],
        "the protocol adds 2 % to the barrier on the card at least, at 64 nodes",
        Check::above("us", NIC_CORPSE.collective(BARRIER, SOME), NIC.collective(BARRIER, SOME), 0.02),
    );
    table.not_modelled(&["AP-074"], "neither usual algorithm for allgather is quadratic (A12)");
    let over = |nodes| HOST.collective(ALLGATHER, nodes) / NIC.collective(ALLGATHER, nodes);
    table.check(
        &["AP-075"],
        "the kernel's allgather over the card's is less at 1024 nodes than at 64",
        Check::below("ratio", over(MOST), over(SOME), NO_MARGIN),
    );
}

/// The ratio of kernel to card, with the protocol in both.
fn advantage(op: &str) -> Quantity {
    HOST_CORPSE.collective(op, MORE) / NIC_CORPSE.collective(op, MORE)
}

/// The ratio of the protocol to none, on the card.
fn penalty(op: &str, nodes: u64) -> Quantity {
    NIC_CORPSE.collective(op, nodes) / NIC.collective(op, nodes)
}

/// Figure 3(b) and (c).
fn advantages(table: &mut ClaimTable) {
    table.check(
        &["AP-070"],
        "at 256 nodes with the protocol the kernel's allreduce over the card's is more than of the barrier",
        Check::above("ratio", advantage(ALLREDUCE), advantage(BARRIER), NO_MARGIN),
    );
    table.check(
        &["AP-122"],
        "at 256 nodes the protocol adds a smaller share to allreduce than to the barrier",
        Check::below("ratio", penalty(ALLREDUCE, MORE), penalty(BARRIER, MORE), NO_MARGIN),
    );
    table.check(
        &["AP-071"],
        "at 256 nodes with the protocol the kernel's reduce over the card's is more than of allreduce",
        Check::above("ratio", advantage(REDUCE), advantage(ALLREDUCE), NO_MARGIN),
    );
    table.check(
        &["AP-072"],
        "at 256 nodes the protocol adds 2 % to reduce at most",
        Check::at_most("ratio", penalty(REDUCE, MORE), 1.0.into(), 0.02),
    );
    table.check(
        &["AP-073"],
        "at 256 nodes a reduce behind others takes less than an allreduce, by 25 % at least",
        Check::below("us", NIC.collective(REDUCE, MORE), NIC.collective(ALLREDUCE, MORE), 0.25),
    );
}

/// Collectives by protocol, as in Figure 6.
fn protocols(table: &mut ClaimTable) {
    let less = |op: &str| {
        let at = |setup: Setup| setup.collective(op, SOME);
        Check::below("us", at(HOST_CORPSE), at(HOST_COP), 0.02)
    };
    let how = |op: &str| {
        format!("in the kernel at 64 nodes {op} takes less by corpse than by cop, by 2 % at least")
    };
    table.check(&["AP-087"], how(ALLGATHER), less(ALLGATHER));
    table.check(&["AP-089"], how(ALLREDUCE), less(ALLREDUCE));
    table.check(&["AP-091"], how("bcast"), less("bcast"));
    table.check(&["AP-093"], how(REDUCE), less(REDUCE));
}
