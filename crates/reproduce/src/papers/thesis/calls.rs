//! Single calls (3.2, 4.2): Tables 3.1 and 4.1, and statements about them.

use super::setups::{IBAL, MYRINET, QUADRICS, SMALL, VAPI, VAPI_AND_IBAL};
use crate::claims::check::{Check, NO_MARGIN, NO_TOLERANCE};
use crate::claims::claim::ClaimTable;
use crate::claims::setup::{HOST_HOST, Reuse, Setup};
use crate::claims::whatif;

pub(super) fn table(table: &mut ClaimTable) {
    costs(table);
    call_claims(table);
    others(table);
}

/// Tables 3.1 and 4.1.
fn costs(table: &mut ClaimTable) {
    type Ids = &'static [&'static str];
    let rows: [([Ids; 2], [&str; 3]); 8] = [
        ([&["MT-061", "MT-148"], &["MT-062"]], ["reg", "op", "reg"]),
        ([&["MT-063", "MT-151"], &["MT-064"]], ["reg", "op", "dereg"]),
        ([&["MT-065", "MT-154"], &["MT-066"]], ["post", "op", "recv"]),
        ([&["MT-067", "MT-157"], &["MT-068"]], ["post", "op", "send"]),
        ([&["MT-069", "MT-160"], &["MT-070"]], ["poll", "state", "full"]),
        ([&["MT-071"], &["MT-072"]], ["poll", "state", "empty"]),
        ([&["MT-073"], &["MT-074"]], ["connect", "step", "call"]),
        ([&["MT-075"], &["MT-076"]], ["connect", "step", "destroy"]),
    ];
    for (ids, [experiment, key, level]) in rows {
        for (rows, (_, setup)) in ids.into_iter().zip(VAPI_AND_IBAL) {
            table.number(
                rows,
                format!("{experiment}, {key} {level}: time of the call"),
                setup.call_time(experiment, key, level),
            );
        }
    }
    let others: [(Ids, Setup, [&str; 3]); 8] = [
        (&["MT-149"], MYRINET, ["reg", "op", "reg"]),
        (&["MT-152"], MYRINET, ["reg", "op", "dereg"]),
        (&["MT-155"], MYRINET, ["post", "op", "recv"]),
        (&["MT-156"], QUADRICS, ["post", "op", "recv"]),
        (&["MT-158"], MYRINET, ["post", "op", "send"]),
        (&["MT-159"], QUADRICS, ["post", "op", "send"]),
        (&["MT-161"], MYRINET, ["poll", "state", "full"]),
        (&["MT-162"], QUADRICS, ["poll", "state", "full"]),
    ];
    for (rows, setup, [experiment, key, level]) in others {
        let how = format!("{experiment}, {key} {level}: time of the call");
        table.number(rows, how, setup.call_time(experiment, key, level));
    }
    let memory = |setup: Setup| ["reg", "dereg"].map(|op| setup.call_time("reg", "op", op));
    let how = "registration and deregistration of 4 KiB";
    table.range(&["MT-077"], how, memory(VAPI));
    table.range(&["MT-078"], how, memory(IBAL));
}

/// Claims about the calls.
fn call_claims(table: &mut ClaimTable) {
    let each = [
        ("post", "op", "send"),
        ("post", "op", "recv"),
        ("poll", "state", "full"),
        ("poll", "state", "empty"),
    ];
    table.checks(
        &["MT-079"],
        "every post and poll takes longer under IBAL",
        each.map(|(e, k, v)| {
            Check::below(format!("{e} {v}, us"), VAPI.call_time(e, k, v), IBAL.call_time(e, k, v), NO_MARGIN)
        }),
    );
    table.checks(
        &["MT-080"],
        "post and poll together are less than half of the latency of a small write",
        VAPI_AND_IBAL.map(|(name, setup)| {
            let spent = setup.call_time("post", "op", "send") + setup.call_time("poll", "state", "full");
            Check::below(
                format!("{name}, us"),
                spent,
                setup.latency("write", HOST_HOST, SMALL) * 0.5,
                NO_MARGIN,
            )
        }),
    );
    table.checks(
        &["MT-081"],
        "each takes more than ten times the latency of a small write",
        VAPI_AND_IBAL.into_iter().flat_map(|(name, setup)| {
            ["call", "destroy"].map(|step| {
                let small = setup.latency("write", HOST_HOST, SMALL) * 10.0;
                Check::below(
                    format!("{name} {step}, us"),
                    small,
                    setup.call_time("connect", "step", step),
                    NO_MARGIN,
                )
            })
        }),
    );
}

/// Section 4.2: the other calls.
fn others(table: &mut ClaimTable) {
    let of = |setup: Setup, op| setup.call_time("reg", "op", op);
    for (row, op) in [(&["MT-150"], "reg"), (&["MT-153"], "dereg")] {
        table.checks(
            row,
            "the call of the modelled card, which has to be there, takes no time",
            [Check::at_most("us", of(QUADRICS, op), 0.001.into(), NO_TOLERANCE)],
        );
    }
    for (row, op) in [(&["MT-163"], "reg"), (&["MT-164"], "dereg")] {
        let how = format!("{op} of 4 KiB takes longer on InfiniBand than on Myrinet");
        table.checks(row, how, [Check::below("us", of(MYRINET, op), of(VAPI, op), NO_MARGIN)]);
    }
    let without_faults = QUADRICS.with(whatif::NO_MISS_COST);
    table.checks(
        &["MT-165"],
        "4 KiB from and to buffers that the card has not seen: without the time of its faults the latency is less than half",
        [Check::below(
            "us",
            without_faults.reuse("latency", Reuse::Fresh(0), 4096),
            QUADRICS.reuse("latency", Reuse::Fresh(0), 4096),
            0.5,
        )],
    );
    let rows: [(&'static [&'static str], [&str; 3]); 3] = [
        (&["MT-166"], ["post", "op", "recv"]),
        (&["MT-167"], ["post", "op", "send"]),
        (&["MT-168"], ["poll", "state", "full"]),
    ];
    for (row, [experiment, key, level]) in rows {
        table.checks(
            row,
            "the call takes longer on InfiniBand than on Myrinet, and than on Quadrics",
            [("Myrinet", MYRINET), ("Quadrics", QUADRICS)].map(|(name, setup)| {
                let call = |setup: Setup| setup.call_time(experiment, key, level);
                Check::below(format!("{name}, us"), call(setup), call(VAPI), NO_MARGIN)
            }),
        );
    }
}
