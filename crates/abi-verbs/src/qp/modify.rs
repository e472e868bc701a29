//! CmIdState changes of a queue pair (`ibv_modify_qp(3)`): at RTR the two ends of a pair begin to connect.

use std::ffi::c_int;

use ffi::{In, Out, lock};
use rdma_abi::numbers as n;
use rdma_abi::verbs::*;
use verbs::pairing::Endpoint;
use verbs::{ConnParam, RNR_RETRY_FOREVER, host::Span};

use crate::address;
use crate::answer::Answer;
use crate::errno::{errno, missing};
use crate::objects::{Qp, Settings};
use crate::qp::peer_gone;
use crate::qp::reset::reset;
use crate::qp::settings::{RETRY_COUNT, pause, set_visible_state};
use crate::qp::states;
use crate::slab::{Handle, Held};

/// How long the peer may take: programs exchange queue pair numbers, and may then do other work first.
const PATIENCE: Span = Span::from_secs(60);

pub(crate) fn ibv_modify_qp(qp: Handle<Qp>, attr: Out<ibv_qp_attr>, attr_mask: i32) -> Answer {
    change(qp.lookup()?, &attr.get().ok_or_else(|| missing("attr"))?, attr_mask.cast_unsigned())
}

/// Moves a queue pair to the state in the attributes, and stores the attributes in the mask.
pub(crate) fn change(qp: Held<Qp>, attr: &ibv_qp_attr, mask: u32) -> Answer {
    let from = qp.state_now();
    let to = if mask & n::IBV_QP_STATE != 0 { attr.qp_state as u32 } else { from };
    states::check(from, to, attr, mask, qp.is_datagram())?;
    if to == n::IBV_QPS_RESET {
        if from != to {
            reset(qp)?;
        }
        set_visible_state(qp, to);
        return Ok(());
    }
    if let Some(bridge) = &qp.device_qp().bridge {
        if mask & n::IBV_QP_QKEY != 0 {
            bridge.set_qkey(attr.qkey);
        }
        if to == n::IBV_QPS_RTR {
            bridge.begin()?;
        }
    } else if (from, to) == (n::IBV_QPS_INIT, n::IBV_QPS_RTR) && !address::is_placeholder(&attr.ah_attr) {
        pair(qp, attr)?;
    }
    if to == n::IBV_QPS_ERR {
        qp.failed();
        peer_gone::deliver_withheld(qp);
    }
    if !qp.is_datagram() {
        set_retries(qp, attr, mask)?;
    }
    remember(qp, attr, mask);
    set_visible_state(qp, to);
    Ok(())
}

/// Sets the RNR retry limit and the RNR pause.
fn set_retries(qp: Held<Qp>, attr: &ibv_qp_attr, mask: u32) -> Answer {
    if mask & n::IBV_QP_MIN_RNR_TIMER != 0 {
        qp.verbs().set_rnr_pause(pause(attr.min_rnr_timer))?;
    }
    // A program whose queue pair librdmacm connects may only repeat what rdma_init_qp_attr gave it; the peer's limit then stays.
    let is_passed_on =
        attr.rnr_retry == RNR_RETRY_FOREVER && address::is_placeholder(&lock(&qp.settings).0.ah_attr);
    if mask & n::IBV_QP_RNR_RETRY != 0 && !is_passed_on {
        qp.verbs().set_rnr_retry(attr.rnr_retry)?;
    }
    Ok(())
}

/// The attributes that move a queue pair connected by librdmacm to a state from the one before, with their mask.
///
/// # Errors
/// [`Errno::INVAL`](crate::errno::Errno::INVAL) for states that librdmacm does not set.
pub(crate) fn by_librdmacm(state: u32, is_datagram: bool) -> Answer<(ibv_qp_attr, u32)> {
    let before = match state {
        n::IBV_QPS_INIT => n::IBV_QPS_RESET,
        n::IBV_QPS_RTR => n::IBV_QPS_INIT,
        n::IBV_QPS_RTS => n::IBV_QPS_RTR,
        _ => return Err(errno!(INVAL, "qp_attr.qp_state is {}; pass INIT, RTR or RTS", states::name(state))),
    };
    let mut attr = Settings::default().0;
    attr.qp_state = state as c_int;
    (attr.port_num, attr.qkey) = (1, n::RDMA_UDP_QKEY);
    attr.qp_access_flags =
        n::IBV_ACCESS_REMOTE_WRITE | n::IBV_ACCESS_REMOTE_READ | n::IBV_ACCESS_REMOTE_ATOMIC;
    attr.path_mtu = n::IBV_MTU_4096 as c_int;
    (attr.ah_attr.is_global, attr.ah_attr.port_num) = (1, 1);
    attr.ah_attr.grh.dgid = address::placeholder_gid();
    // The depths of RDMA reads were negotiated by the two sides, and retries are up to the device.
    (attr.max_rd_atomic, attr.max_dest_rd_atomic) = (1, 1);
    (attr.retry_cnt, attr.rnr_retry) = (RETRY_COUNT, RNR_RETRY_FOREVER);
    let required = states::attributes(before, state, is_datagram).map_or(0, |found| found.required);
    Ok((attr, n::IBV_QP_STATE | required))
}

fn pair(qp: Held<Qp>, attr: &ibv_qp_attr) -> Answer {
    let engine = qp.context.lookup()?.engine.clone();
    let peer =
        Endpoint { addr: engine.process_of(&attr.ah_attr, attr.dest_qp_num)?, qp_num: attr.dest_qp_num };
    let param = ConnParam {
        timeout: PATIENCE,
        responder_resources: attr.max_dest_rd_atomic,
        initiator_depth: attr.max_dest_rd_atomic,
        ..ConnParam::default()
    };
    engine.pairing.pair(qp.verbs(), peer, &param)?;
    qp.device_qp().disconnect_hold.begin();
    Ok(())
}

/// Stores the attributes that the program has set.
fn remember(qp: Held<Qp>, attr: &ibv_qp_attr, mask: u32) {
    let mut settings = lock(&qp.settings);
    let kept = &mut settings.0;
    macro_rules! keep {
        ($($flag:ident: $($field:ident),+;)*) => {
            $(if mask & n::$flag != 0 { $(kept.$field = attr.$field;)+ })*
        };
    }
    keep! {
        IBV_QP_ACCESS_FLAGS: qp_access_flags;
        IBV_QP_PKEY_INDEX: pkey_index;
        IBV_QP_PORT: port_num;
        IBV_QP_QKEY: qkey;
        IBV_QP_AV: ah_attr;
        IBV_QP_PATH_MTU: path_mtu;
        IBV_QP_TIMEOUT: timeout;
        IBV_QP_RETRY_CNT: retry_cnt;
        IBV_QP_RNR_RETRY: rnr_retry;
        IBV_QP_RQ_PSN: rq_psn;
        IBV_QP_MAX_QP_RD_ATOMIC: max_rd_atomic;
        IBV_QP_MIN_RNR_TIMER: min_rnr_timer;
        IBV_QP_SQ_PSN: sq_psn;
        IBV_QP_MAX_DEST_RD_ATOMIC: max_dest_rd_atomic;
        IBV_QP_DEST_QPN: dest_qp_num;
    }
}

pub(crate) fn ibv_query_qp(
    qp: Handle<Qp>,
    attr: Out<ibv_qp_attr>,
    _attr_mask: i32,
    init: Out<ibv_qp_init_attr>,
) -> Answer {
    let qp = qp.lookup()?;
    let place = attr.required_or(|| missing("attr"))?;
    let mut found = lock(&qp.settings).0;
    let state = qp.state_now() as c_int;
    (found.qp_state, found.cur_qp_state, found.cap) = (state, state, qp.init.cap);
    place.set(found);
    init.set(qp.init);
    qp.update_c(|seen| seen.qp_base.state = state);
    Ok(())
}

/// Reports no ECE options: only some vendors' devices have them.
pub(crate) fn ibv_query_ece(qp: Handle<Qp>, ece: Out<ibv_ece>) -> Answer {
    qp.lookup()?;
    ece.required_or(|| missing("ece"))?.set(ibv_ece { vendor_id: 0, options: 0, comp_mask: 0 });
    Ok(())
}

pub(crate) fn ibv_set_ece(qp: Handle<Qp>, ece: In<ibv_ece>) -> Answer {
    qp.lookup()?;
    let ece = ece.required_or(|| missing("ece"))?;
    if ece.vendor_id == 0 && ece.comp_mask == 0 {
        Ok(())
    } else {
        Err(errno!(OPNOTSUPP, "ece has options, and the device has none; pass zeros"))
    }
}
