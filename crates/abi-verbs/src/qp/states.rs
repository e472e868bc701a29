//! The state changes that `ibv_modify_qp(3)` allows, and the attributes of each, as in the kernel (IBA 11.2.5.2, table 91).

use std::ops::RangeInclusive;

use rdma_abi::numbers as n;
use rdma_abi::verbs::ibv_qp_attr;

use crate::answer::Answer;
use crate::errno::Errno;

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
        return Err(Errno::OPNOTSUPP);
    }
    let Attributes { required, optional } = attributes(from, to, is_datagram).ok_or(Errno::INVAL)?;
    if mask & required != required || mask & !(required | optional | n::IBV_QP_STATE) != 0 {
        return Err(Errno::INVAL);
    }
    let is_in = |flag, value: u32, range: RangeInclusive<u32>| mask & flag == 0 || range.contains(&value);
    let are_sound = is_in(n::IBV_QP_CUR_STATE, attr.cur_qp_state as u32, from..=from)
        && is_in(n::IBV_QP_PORT, attr.port_num.into(), 1..=1)
        && is_in(n::IBV_QP_PKEY_INDEX, attr.pkey_index.into(), 0..=0)
        && is_in(n::IBV_QP_PATH_MTU, attr.path_mtu as u32, n::IBV_MTU_256..=n::IBV_MTU_4096)
        && is_in(n::IBV_QP_DEST_QPN, attr.dest_qp_num, 0..=0xff_ffff)
        && is_in(n::IBV_QP_MIN_RNR_TIMER, attr.min_rnr_timer.into(), 0..=31)
        && is_in(n::IBV_QP_TIMEOUT, attr.timeout.into(), 0..=31)
        && is_in(n::IBV_QP_RETRY_CNT, attr.retry_cnt.into(), 0..=7)
        && is_in(n::IBV_QP_RNR_RETRY, attr.rnr_retry.into(), 0..=7);
    if are_sound { Ok(()) } else { Err(Errno::INVAL) }
}
