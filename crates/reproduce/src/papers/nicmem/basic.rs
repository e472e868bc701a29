//! Local copies (section 3.1, Figure 2) and latency (section 3.2, Figures 3 and 4).

use super::setups::{CASES, MT23108};
use crate::claims::check::{Check, NO_MARGIN, NO_TOLERANCE};
use crate::claims::claim::ClaimTable;
use crate::claims::quantity::Quantity;
use crate::claims::setup::{
    Ends, HOST_HOST, HOST_NIC, LARGE, LATENCY_SIZES, NIC_HOST, NIC_NIC, case, leaves,
};
use crate::claims::whatif;
use report::number::size;

/// Bytes of a copy in the comparison of processor use.
const COPY_LEN: u64 = 64 << 10;

/// The card's copy rate, the processor's, and the processor use of each.
pub(super) fn local_copy(table: &mut ClaimTable) {
    let peak = |ends| MT23108.copy_peak(ends);
    let how = "largest rate of copies within one node, 16 KiB to 1 MiB";
    table.number(&["NM-028"], "largest rate of memcpy, 16 KiB to 1 MiB", MT23108.memcpy_peak());
    table.number(&["NM-029"], how, peak(HOST_HOST));
    table.number(&["NM-030"], how, peak(NIC_NIC));
    table.number(&["NM-031"], how, peak(NIC_HOST));
    table.number(&["NM-032"], how, peak(HOST_NIC));
    table.checks(
        &["NM-033"],
        "peak of memcpy is at most that of the card's DMA write and read, within 1 %",
        [NIC_HOST, HOST_NIC].map(|ends| Check::at_most(case(ends), MT23108.memcpy_peak(), peak(ends), 0.01)),
    );
    let calls = MT23108.call_time("post", "op", "send") + MT23108.call_time("poll", "state", "full");
    let memcpy = || Quantity::from(COPY_LEN as f64) / MT23108.memcpy(COPY_LEN);
    table.checks(
        &["NM-034", "NM-099"],
        "post and poll take less than a tenth of the processor's time for a memcpy of 64 KiB",
        [Check::below("processor time, us", calls, memcpy() * 0.1, NO_MARGIN)],
    );
    table.not_modelled(
        &["NM-035"],
        "the model has no programmed access of the processor to NIC memory; the paper withholds its figures",
    );
}

/// Improvements over host-to-host.
pub(super) fn latency(table: &mut ClaimTable) {
    let at = |ends, size| MT23108.latency("write-imm", ends, size);
    let gain = |ends, size| at(ends, size).below(at(HOST_HOST, size));
    let saved = |ends, size| at(HOST_HOST, size) - at(ends, size);
    table.checks(
        &["NM-036"],
        "microseconds saved against host-to-host, from 4 B to 64 KiB",
        [NIC_NIC, NIC_HOST]
            .map(|ends| Check::Rising(case(ends), LATENCY_SIZES.map(|n| saved(ends, n)).into(), 0.01)),
    );
    let fast = MT23108.with(whatif::BUS_TWICE);
    let saved_fast =
        |ends: Ends, size| fast.latency("write-imm", HOST_HOST, size) - fast.latency("write-imm", ends, size);
    table.checks(
        &["NM-037"],
        "with a bus twice as fast the saving at 64 KiB is smaller by a quarter at least",
        [NIC_NIC, NIC_HOST]
            .map(|ends| Check::below(case(ends), saved_fast(ends, 64 << 10), saved(ends, 64 << 10), 0.25)),
    );
    let how = "least and greatest reduction of latency against host-to-host, 4 B to 64 KiB";
    table.range(&["NM-038"], how, LATENCY_SIZES.map(|n| gain(NIC_NIC, n)));
    table.range(&["NM-039"], how, LATENCY_SIZES.map(|n| gain(NIC_HOST, n)));
    let mean = |ends| Quantity::mean(LATENCY_SIZES.map(|n| gain(ends, n)));
    let slightly = LATENCY_SIZES.map(|n| {
        Check::at_most(format!("latency at {}, us", size(n)), at(HOST_NIC, n), at(HOST_HOST, n), NO_TOLERANCE)
    });
    table.checks(
        &["NM-040"],
        "at no size slower than host-to-host, and the mean gain is above 0 but below that of nic-to-nic",
        slightly.into_iter().chain([
            Check::below("no gain, %", 0.0.into(), mean(HOST_NIC), NO_MARGIN),
            Check::below("mean gain, %", mean(HOST_NIC), mean(NIC_NIC), NO_MARGIN),
        ]),
    );
    let read = MT23108.with(whatif::DMA_READ_FASTER).latency("write-imm", HOST_NIC, 16 << 10);
    let write = MT23108.with(whatif::DMA_WRITE_FASTER).latency("write-imm", HOST_NIC, 16 << 10);
    table.checks(
        &["NM-041"],
        "at 16 KiB faster DMA reads shorten host-to-nic by 3 % at least; faster DMA writes do not",
        [
            Check::below("with faster DMA reads, us", read, at(HOST_NIC, 16 << 10), 0.03),
            leaves("with faster DMA writes, us", write, at(HOST_NIC, 16 << 10)),
        ],
    );
    similar_reads(table);
    let better = |ends| {
        [
            Check::below("latency at 4 KiB, us", at(ends, 4096), at(HOST_HOST, 4096), 0.02),
            Check::below(
                "peak bandwidth, MB/s",
                MT23108.peak("write", HOST_HOST, 1),
                MT23108.peak("write", ends, 1),
                0.02,
            ),
            Check::below(
                "hotspot of 7, us",
                MT23108.hotspot("write", ends, 7),
                MT23108.hotspot("write", HOST_HOST, 7),
                0.02,
            ),
        ]
    };
    table.checks(
        &["NM-097"],
        "nic-to-nic and nic-to-host are better by 2 % at least in latency, bandwidth and hotspot",
        [NIC_NIC, NIC_HOST].into_iter().flat_map(better),
    );
}

/// "Similar improvement is also achieved in RDMA Read latency and bandwidth"; the figures are not in the paper.
fn similar_reads(table: &mut ClaimTable) {
    let sizes = [1 << 10, 4 << 10, 16 << 10, 64 << 10];
    let mean = |op| {
        let gain = |n| MT23108.latency(op, NIC_NIC, n).below(MT23108.latency(op, HOST_HOST, n));
        Quantity::mean(sizes.map(gain))
    };
    table.checks(
        &["NM-052"],
        "mean reduction of nic-to-nic against host-to-host, 1 to 64 KiB: that of reads is half to twice that of writes",
        [
            Check::at_most("half of writes against reads, %", mean("write-imm") * 0.5, mean("read"), NO_TOLERANCE),
            Check::at_most("reads against twice of writes, %", mean("read"), mean("write-imm") * 2.0, NO_TOLERANCE),
        ],
    );
    let gain = |op| {
        let at = |ends, n| MT23108.bandwidth(op, ends, 1, n);
        Quantity::mean(LARGE.map(|n| at(NIC_NIC, n).above(at(HOST_HOST, n))))
    };
    table.checks(
        &["NM-053"],
        "mean gain of nic-to-nic over host-to-host, 16 KiB to 1 MiB: that of reads is half to twice that of writes",
        [
            Check::at_most("half of writes against reads, %", gain("write") * 0.5, gain("read"), NO_TOLERANCE),
            Check::at_most("reads against twice of writes, %", gain("read"), gain("write") * 2.0, NO_TOLERANCE),
        ],
    );
    let works = |op| {
        let slow = || Quantity::from(1000.0);
        CASES.map(|ends| {
            Check::below(
                format!("{op} {}, us", case(ends)),
                MT23108.latency(op, ends, 1 << 10),
                slow(),
                NO_MARGIN,
            )
        })
    };
    table.checks(
        &["NM-138", "NM-140"],
        "writes and reads of 1 KiB with NIC memory at either end work, and end within 1 ms",
        works("write-imm").into_iter().chain(works("read")),
    );
}
