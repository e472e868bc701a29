//! The state changes that `ibv_modify_qp(3)` allows, and the attributes of each, as in the kernel (IBA 11.2.5.2, table 91).

use std::borrow::Cow;

use rdma_abi::numbers as n;
use rdma_abi::verbs::ibv_qp_attr;

use crate::answer::Answer;
use crate::errno::{Errno, errno};

/// The required and the optional attributes of a state change.
#[derive(Clone, Copy)]
pub(crate) struct Attributes {
    pub(crate) required: u32,
    optional: u32,
}

/// The attributes of a state change, for RC or, if `is_datagram`, for UD; `None` if the change is not allowed.
pub(crate) fn attributes(from: u32, to: u32, is_datagram: bool) -> Option<Attributes> {
    let (required, optional) = match (from, to, is_datagram) {
        (_, n::IBV_QPS_RESET | n::IBV_QPS_ERR, _) => (0, 0),
        (n::IBV_QPS_RESET, n::IBV_QPS_INIT, _) => (of_init(is_datagram), 0),
        (n::IBV_QPS_INIT, n::IBV_QPS_INIT, _) => (0, of_init(is_datagram)),
        (n::IBV_QPS_INIT, n::IBV_QPS_RTR, true) => (0, n::IBV_QP_PKEY_INDEX | n::IBV_QP_QKEY),
        (n::IBV_QPS_INIT, n::IBV_QPS_RTR, false) => {
            let required = n::IBV_QP_AV
                | n::IBV_QP_PATH_MTU
                | n::IBV_QP_DEST_QPN
                | n::IBV_QP_RQ_PSN
                | n::IBV_QP_MAX_DEST_RD_ATOMIC
                | n::IBV_QP_MIN_RNR_TIMER;
            (required, n::IBV_QP_ACCESS_FLAGS | n::IBV_QP_PKEY_INDEX)
        }
        (n::IBV_QPS_RTR, n::IBV_QPS_RTS, true) => (n::IBV_QP_SQ_PSN, n::IBV_QP_CUR_STATE | n::IBV_QP_QKEY),
        (n::IBV_QPS_RTR, n::IBV_QPS_RTS, false) => {
            let required = n::IBV_QP_TIMEOUT
                | n::IBV_QP_RETRY_CNT
                | n::IBV_QP_RNR_RETRY
                | n::IBV_QP_SQ_PSN
                | n::IBV_QP_MAX_QP_RD_ATOMIC;
            (required, OF_USE)
        }
        (n::IBV_QPS_RTS, n::IBV_QPS_RTS, true) => (0, n::IBV_QP_CUR_STATE | n::IBV_QP_QKEY),
        (n::IBV_QPS_RTS, n::IBV_QPS_RTS, false) => (0, OF_USE),
        _ => return None,
    };
    Some(Attributes { required, optional })
}

/// The attributes of an RC queue pair that may change while it is in use.
const OF_USE: u32 =
    n::IBV_QP_CUR_STATE | n::IBV_QP_ACCESS_FLAGS | n::IBV_QP_MIN_RNR_TIMER | n::IBV_QP_PATH_MIG_STATE;

const fn of_init(is_datagram: bool) -> u32 {
    let last = if is_datagram { n::IBV_QP_QKEY } else { n::IBV_QP_ACCESS_FLAGS };
    n::IBV_QP_PKEY_INDEX | n::IBV_QP_PORT | last
}

/// Checks a state change and its attribute values.
///
/// # Errors
/// [`Errno::INVAL`] for what a card rejects, [`Errno::OPNOTSUPP`] for features that our devices do not have.
pub(crate) fn check(from: u32, to: u32, attr: &ibv_qp_attr, mask: u32, is_datagram: bool) -> Answer {
    if to == n::IBV_QPS_SQD || mask & n::IBV_QP_ALT_PATH != 0 {
        return Err(errno!(
            OPNOTSUPP,
            "attr.qp_state SQD and alternate paths (IBV_QP_ALT_PATH) are not supported; leave them out"
        ));
    }
    let Attributes { required, optional } =
        attributes(from, to, is_datagram).ok_or_else(|| no_change(from, to))?;
    if mask & required != required || mask & !(required | optional | n::IBV_QP_STATE) != 0 {
        return Err(wrong_mask(from, to, required & !mask, mask & !(required | optional | n::IBV_QP_STATE)));
    }
    let mtus = n::IBV_MTU_256..=n::IBV_MTU_4096;
    let values = [
        (n::IBV_QP_CUR_STATE, "cur_qp_state", attr.cur_qp_state as u32, from..=from),
        (n::IBV_QP_PORT, "port_num", attr.port_num.into(), 1..=1),
        (n::IBV_QP_PKEY_INDEX, "pkey_index", attr.pkey_index.into(), 0..=0),
        (n::IBV_QP_PATH_MTU, "path_mtu", attr.path_mtu as u32, mtus),
        (n::IBV_QP_DEST_QPN, "dest_qp_num", attr.dest_qp_num, 0..=0xff_ffff),
        (n::IBV_QP_MIN_RNR_TIMER, "min_rnr_timer", attr.min_rnr_timer.into(), 0..=31),
        (n::IBV_QP_TIMEOUT, "timeout", attr.timeout.into(), 0..=31),
        (n::IBV_QP_RETRY_CNT, "retry_cnt", attr.retry_cnt.into(), 0..=7),
        (n::IBV_QP_RNR_RETRY, "rnr_retry", attr.rnr_retry.into(), 0..=7),
    ];
    let wrong = values.iter().find(|(flag, _, value, range)| mask & flag != 0 && !range.contains(value));
    wrong.map_or(Ok(()), |(_, name, value, range)| {
        let (low, high) = (range.start(), range.end());
        Err(match low == high {
            true => errno!(INVAL, "attr.{name} is {value}; the only possible value is {low}"),
            false => errno!(INVAL, "attr.{name} is {value}; pass {low} to {high}"),
        })
    })
}

/// The error of a state change that is not allowed.
#[cold]
fn no_change(from: u32, to: u32) -> Errno {
    let (from_name, to_name) = (name(from), name(to));
    match from {
        n::IBV_QPS_ERR | n::IBV_QPS_SQE => errno!(
            INVAL,
            "attr.qp_state is {to_name}, but the queue pair is in {from_name}; move it to RESET first, then to INIT, RTR and RTS"
        ),
        _ => errno!(
            INVAL,
            "attr.qp_state is {to_name}, but the queue pair is in {from_name}; the order is RESET, INIT, RTR, RTS, one call for each"
        ),
    }
}

/// The error of an attribute mask that lacks required attributes, or has others.
#[cold]
fn wrong_mask(from: u32, to: u32, lacks: u32, extra: u32) -> Errno {
    let (from, to) = (name(from), name(to));
    match lacks {
        0 => errno!(
            INVAL,
            "attr_mask has {}, which must not change from {from} to {to}; leave it out",
            flags(extra)
        ),
        _ => errno!(
            INVAL,
            "attr_mask lacks {}, which the change from {from} to {to} needs; set it, and the attribute",
            flags(lacks)
        ),
    }
}

/// The name of a state.
pub(crate) fn name(state: u32) -> Cow<'static, str> {
    let names = ["RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"];
    names.get(state as usize).map_or_else(|| format!("{state} (no state)").into(), |name| (*name).into())
}

/// The names of the flags of an attribute mask, in the order of their bits.
fn flags(mask: u32) -> String {
    let names = [
        "STATE",
        "CUR_STATE",
        "EN_SQD_ASYNC_NOTIFY",
        "ACCESS_FLAGS",
        "PKEY_INDEX",
        "PORT",
        "QKEY",
        "AV",
        "PATH_MTU",
        "TIMEOUT",
        "RETRY_CNT",
        "RNR_RETRY",
        "RQ_PSN",
        "MAX_QP_RD_ATOMIC",
        "ALT_PATH",
        "MIN_RNR_TIMER",
        "SQ_PSN",
        "MAX_DEST_RD_ATOMIC",
        "PATH_MIG_STATE",
        "CAP",
        "DEST_QPN",
    ];
    let known = names.iter().enumerate().filter(|(bit, _)| mask & 1 << bit != 0);
    let mut text: Vec<String> = known.map(|(_, name)| format!("IBV_QP_{name}")).collect();
    let rest = mask >> names.len() << names.len();
    if rest != 0 {
        text.push(format!("{rest:#x}"));
    }
    text.join(" and ")
}
