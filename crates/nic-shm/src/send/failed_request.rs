//! Why a request failed, in words: for [`verbs::Qp::failure`]. Off the data path.

use nic_util::refusal::{self, Refused};
use verbs::{Access, Data, RemoteAddr, SendOp, SendWr, WcStatus};

use crate::connection::Connection;

/// Says why a request completes with this status, from what the protection tables hold now.
#[cold]
#[inline(never)]
pub(crate) fn explain(connection: &Connection, wr: &SendWr<'_>, status: WcStatus) -> String {
    let len = match wr.data {
        Data::Sges(sges) => sges.iter().map(|sge| u64::from(sge.length)).sum(),
        Data::Inline(bytes) => bytes.len() as u64,
    };
    match status {
        WcStatus::LocProtErr => local(connection, wr),
        WcStatus::RemAccessErr => remote(connection, wr, len),
        WcStatus::LocLenErr => {
            format!("an atomic operation has 8 bytes of local memory, but its sg_list has {len}")
        }
        WcStatus::RemInvReqErr if wr.op.is_atomic() => refusal::UNALIGNED_ATOMIC.into(),
        WcStatus::RemInvReqErr => format!("a message of {len} bytes: {}", refusal::SHORT_RECEIVE),
        WcStatus::RemOpErr => refusal::BAD_RECEIVE.into(),
        WcStatus::RnrRetryExcErr => refusal::NO_RECEIVE.into(),
        WcStatus::MwBindErr => refusal::WINDOW.into(),
        WcStatus::RetryExcErr => {
            "the peer's queue pair or process is gone; check whether it has failed, was destroyed, or ended"
                .into()
        }
        other => format!("the request ended with {other:?}"),
    }
}

/// Why the local memory of a request is not accessible.
fn local(connection: &Connection, wr: &SendWr<'_>) -> String {
    let need = if wr.op.fetches() { Access::LOCAL_WRITE } else { Access::empty() };
    let Data::Sges(sges) = wr.data else {
        return "the inline data are not readable; pass the address of mapped memory".into();
    };
    let refused = sges
        .iter()
        .enumerate()
        .filter(|(_, sge)| sge.length != 0)
        .find(|(_, sge)| connection.own_memory(sge.lkey, need, sge.addr, sge.length.into()).is_none());
    // All are registered: copying has met unmapped memory.
    let (at, sge) = match (refused, sges.first()) {
        (Some(refused), _) => refused,
        (None, Some(first)) => (0, first),
        (None, None) => return "the local memory is not accessible".into(),
    };
    let (key, addr, len) = (sge.lkey, sge.addr, sge.length.into());
    let asked = Refused { key_name: "lkey", key, pd: connection.pd, need, addr, len };
    format!("sg_list[{at}]: {}", connection.device.table.explain(&asked))
}

/// Why the peer's memory is not accessible.
fn remote(connection: &Connection, wr: &SendWr<'_>, len: u64) -> String {
    let Some(link) = connection.link() else { return "the peer is gone".into() };
    let (RemoteAddr { addr, rkey }, need, len) = match wr.op {
        SendOp::Write(remote) | SendOp::WriteImm(remote, _) => (remote, Access::REMOTE_WRITE, len),
        SendOp::Read(remote) => (remote, Access::REMOTE_READ, len),
        SendOp::CompareSwap { remote, .. } | SendOp::FetchAdd { remote, .. } => {
            (remote, Access::REMOTE_ATOMIC, 8)
        }
        SendOp::SendInv(key) => {
            return format!(
                "the peer has no valid region with rkey {key:#x} in the domain of its queue pair, which this send was to invalidate; \
                 invalidate a key once"
            );
        }
        SendOp::Send | SendOp::SendImm(_) | SendOp::BindMw(_) | SendOp::LocalInv(_) => {
            return "the peer's receive is not accessible".into();
        }
    };
    link.peer.table.explain(&Refused { key_name: "rkey", key: rkey, pd: link.pd, need, addr, len })
}
