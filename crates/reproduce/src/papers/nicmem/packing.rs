//! Data in pieces (section 4.2): time (Figure 10) and use of the processor (Figure 11) of three ways to send it.

use super::setups::MT23108;
use crate::claims::check::{Check, NO_MARGIN};
use crate::claims::claim::ClaimTable;
use crate::claims::quantity::Quantity;
use crate::claims::setup::{HOST_NIC, HOST_PACK, NIC_PACK, Pack, gather};
use crate::claims::whatif;
use report::number::size;

/// Block sizes of Figures 10 and 11.
pub(crate) const BLOCKS: [u64; 4] = [8 << 10, 16 << 10, 32 << 10, 64 << 10];

fn pack_time(how: Pack, block: u64) -> Quantity {
    MT23108.pack(how, "time", block)
}

fn cpu_use(how: Pack, block: u64) -> Quantity {
    MT23108.pack(how, "cpu", block)
}

/// At every block size.
fn at_all(check: impl Fn(String, u64) -> Check) -> impl Iterator<Item = Check> {
    BLOCKS.into_iter().map(move |block| check(format!("blocks of {}, us", size(block)), block))
}

/// Figure 10: the time of packing.
pub(super) fn time(table: &mut ClaimTable) {
    table.checks(
        &["NM-107"],
        "at most as long as host-memory pack at every block size, within 2 %",
        at_all(|what, block| {
            Check::at_most(what, pack_time(NIC_PACK, block), pack_time(HOST_PACK, block), 0.02)
        }),
    );
    table.checks(
        &["NM-147"],
        "shorter than host-memory pack on average over the block sizes",
        [Check::below("us", mean_time(NIC_PACK), mean_time(HOST_PACK), NO_MARGIN)],
    );
    table.checks(
        &["NM-108"],
        "rates at which the card copies host to NIC memory and at which memcpy does, within 15 %",
        BLOCKS.map(|block| {
            let what = format!("{}, MB/s", size(block));
            Check::alike(what, MT23108.copy(HOST_NIC, block), MT23108.memcpy(block), 0.15)
        }),
    );
    let beats = |reuse| {
        at_all(move |what, block| {
            Check::below(what, pack_time(NIC_PACK, block), pack_time(gather(reuse), block), NO_MARGIN)
        })
    };
    table.checks(&["NM-109"], "shorter than gather with a reuse of 0 and of 20 %", beats(0).chain(beats(20)));
    cost_models(table);
}

fn mean_time(how: Pack) -> Quantity {
    Quantity::mean(BLOCKS.map(|block| pack_time(how, block)))
}

/// Which operations pay for registration.
fn cost_models(table: &mut ClaimTable) {
    let block = 8 << 10;
    let slow = MT23108.with(whatif::REGISTRATION_SLOWER);
    let ratio = |how| slow.pack(how, "time", block) / pack_time(how, block);
    let same = |how, what| Check::alike(what, ratio(how), 1.0.into(), 0.01);
    table.checks(
        &["NM-110"],
        "registration that costs 100 us more changes neither kind of pack",
        [same(HOST_PACK, "host-memory pack"), same(NIC_PACK, "nic-memory pack")],
    );
    table.checks(
        &["NM-111"],
        "registration that costs 100 us more lengthens gather without reuse by a tenth at least, with 20 % less, \
         with full reuse not",
        [
            Check::below("no reuse", 1.1.into(), ratio(gather(0)), NO_MARGIN),
            Check::below("20 % against none", ratio(gather(20)), ratio(gather(0)), NO_MARGIN),
            same(gather(100), "full reuse"),
        ],
    );
}

/// Figure 11: the processor's part in packing.
pub(super) fn cpu(table: &mut ClaimTable) {
    let share = |how, block| cpu_use(how, block) / pack_time(how, block);
    let high = |how| {
        at_all(move |what, block| {
            Check::below(format!("share of the time, {what}"), 0.25.into(), share(how, block), NO_MARGIN)
        })
    };
    table.checks(&["NM-112"], "more than a quarter of the time at every block size", high(HOST_PACK));
    // The larger the blocks, the less registration weighs.
    let gather_high = [8 << 10, 16 << 10]
        .map(|block| Check::below(size(block), 0.25.into(), share(gather(0), block), NO_MARGIN));
    table.checks(
        &["NM-113"],
        "without reuse more than a quarter of the time with blocks of 8 and 16 KiB",
        gather_high,
    );
    table.checks(
        &["NM-114"],
        "less than a tenth of the time at every block size",
        at_all(|what, block| {
            Check::below(format!("share of the time, {what}"), share(NIC_PACK, block), 0.1.into(), NO_MARGIN)
        }),
    );
    let less = |than| {
        at_all(move |what, block| {
            Check::below(what, cpu_use(NIC_PACK, block), cpu_use(than, block), NO_MARGIN)
        })
    };
    table.checks(
        &["NM-115", "NM-146"],
        "less than host-memory pack, and than gather without reuse, at every block size",
        less(HOST_PACK).chain(less(gather(0))),
    );
}
