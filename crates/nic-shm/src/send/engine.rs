//! Data path: NIC engine. Carries out send requests in the thread of the initiator: from the post, through
//! both protection tables, to the peer's memory.

use verbs::{Access, Data, SendFlags, SendOp, SendWr, WcOpcode, WcStatus};

use crate::connection::Connection;
use crate::copy::atomic::AtomicOp;
use crate::copy::place::{CopyDirection, SgList};
use crate::memory::layout::state;
use crate::memory::tlb::Tlb;
use crate::peer::queue_pair::PeerQp;
use crate::send::delivery::{Delivery, RecvCompletion};
use crate::send::transfer::{StopReason, Transfer};

/// The result of executing a request.
pub(crate) enum ExecuteOutcome {
    /// Completed, with its status and the number of bytes fetched.
    Done(WcStatus, u32),
    /// It must wait for the peer; retry later.
    Wait,
}

/// State of a queue pair's engine between requests.
#[derive(Default)]
pub(crate) struct SendEngine {
    /// The local region used last.
    pub(crate) local_tlb: Tlb,
    pub(crate) transfer: Transfer,
    pub(crate) delivery: Delivery,
}

impl SendEngine {
    /// Carries out a request, as far as possible now.
    #[inline]
    pub(crate) fn execute(&mut self, connection: &Connection, wr: &SendWr<'_>) -> ExecuteOutcome {
        let Some(link) = connection.link() else { return ExecuteOutcome::Done(WcStatus::WrFlushErr, 0) };
        match self.try_execute(connection, link, wr) {
            Ok(bytes) => ExecuteOutcome::Done(WcStatus::Success, bytes),
            Err(StopReason::Wait) => ExecuteOutcome::Wait,
            Err(StopReason::Fail(_)) if connection.state() == state::ERROR => {
                ExecuteOutcome::Done(WcStatus::WrFlushErr, 0)
            }
            Err(StopReason::Fail(status)) => ExecuteOutcome::Done(status, 0),
        }
    }

    #[inline]
    fn try_execute(
        &mut self,
        connection: &Connection,
        link: &PeerQp,
        wr: &SendWr<'_>,
    ) -> Result<u32, StopReason> {
        let need = if wr.op.fetches() { Access::LOCAL_WRITE } else { Access::empty() };
        let mut local = SgList::new();
        if !self.collect(connection, &wr.data, need, &mut local) {
            return Err(StopReason::Fail(WcStatus::LocProtErr));
        }
        if wr.op.is_of_window() {
            let is_done = connection.change_window(wr.op);
            return if is_done { Ok(0) } else { Err(StopReason::Fail(WcStatus::MwBindErr)) };
        }
        let _inside = link.enter();
        if !link.accepts_operations() {
            return Err(StopReason::Fail(WcStatus::RetryExcErr));
        }
        let solicited = wr.flags.contains(SendFlags::SOLICITED);
        let message = RecvCompletion::new(WcOpcode::Recv, local.total(), solicited);
        let now = || connection.device.host.now();
        let Self { transfer, delivery, .. } = self;
        match wr.op {
            SendOp::Write(remote) => {
                transfer.rdma(link, &local, remote, CopyDirection::Out)?;
                if wr.flags.contains(SendFlags::NOTIFY) {
                    link.notify();
                }
            }
            SendOp::Read(remote) => {
                transfer.rdma(link, &local, remote, CopyDirection::In)?;
                return Ok(local.total() as u32);
            }
            SendOp::WriteImm(remote, imm) => {
                delivery.next_receive(link, now)?;
                transfer.rdma(link, &local, remote, CopyDirection::Out)?;
                let completion =
                    RecvCompletion::new(WcOpcode::RecvWriteImm, local.total(), solicited).imm(imm);
                delivery.publish(link, &completion, None);
            }
            SendOp::Send => delivery.send(transfer, link, &local, message, now)?,
            SendOp::SendImm(imm) => {
                delivery.send(transfer, link, &local, message.imm(imm), now)?;
            }
            SendOp::SendInv(key) => {
                delivery.send(transfer, link, &local, message.invalidate(key), now)?;
            }
            SendOp::CompareSwap { remote, compare, swap } => {
                return transfer.atomic(link, &local, remote, AtomicOp::CompareSwap(compare, swap));
            }
            SendOp::FetchAdd { remote, add } => {
                return transfer.atomic(link, &local, remote, AtomicOp::FetchAdd(add));
            }
            // Carried out above.
            SendOp::BindMw(_) | SendOp::LocalInv(_) => {}
        }
        Ok(0)
    }

    /// Collects the local memory of a request in `list`; false if the protection table does not allow all of
    /// it. The caller provides the list, as it is too long to be moved for every message.
    #[inline]
    fn collect(&mut self, connection: &Connection, data: &Data<'_>, need: Access, list: &mut SgList) -> bool {
        match data {
            Data::Inline(bytes) => list.push(bytes.as_ptr().cast_mut(), bytes.len() as u64),
            Data::Sges(sges) => {
                for sge in *sges {
                    let len = u64::from(sge.length);
                    if len == 0 {
                        continue;
                    }
                    let at = match self.local_tlb.find(sge.lkey, need, sge.addr, len) {
                        Some(at) => at,
                        None => match connection.own_memory(sge.lkey, need, sge.addr, len) {
                            Some(at) => {
                                self.local_tlb.insert(&connection.device.table, sge.lkey);
                                at
                            }
                            None => return false,
                        },
                    };
                    list.push(at, len);
                }
            }
        }
        true
    }

    /// Drops the request in progress; the queue pair has failed.
    pub(crate) fn drop_request(&mut self) {
        self.transfer.service.finish();
    }
}
