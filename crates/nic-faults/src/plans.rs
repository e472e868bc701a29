//! [`Plans`]: requests that the NIC below will refuse, and the status that the program gets instead.
//!
//! Data path: without a plan, a poll costs one load.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, Weak};

use verbs::provider::QpOps;
use verbs::{Wc, WcOpcode, WcStatus};

/// A request or receive that was posted with a key that the NIC refuses.
pub(crate) struct Plan {
    /// The number in completions of its queue pair; `None` for a receive of a shared queue, which any may take.
    pub(crate) qp_num: Option<u32>,
    pub(crate) is_recv: bool,
    pub(crate) wr_id: u64,
    /// What the program gets.
    pub(crate) status: WcStatus,
    pub(crate) opcode: WcOpcode,
    /// The queue pair, which fails with it.
    pub(crate) qp: Weak<dyn QpOps>,
    /// Why, for the program, and where its queue pair keeps that.
    pub(crate) reason: String,
    pub(crate) kept_reason: Arc<OnceLock<String>>,
}

/// The plans of a device.
#[derive(Default)]
pub(crate) struct Plans {
    count: AtomicUsize,
    plans: Mutex<Vec<Plan>>,
}

impl Plans {
    fn plans(&self) -> MutexGuard<'_, Vec<Plan>> {
        self.plans.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Adds a plan, before its request is posted.
    pub(crate) fn add(&self, plan: Plan) {
        let mut plans = self.plans();
        plans.push(plan);
        self.count.store(plans.len(), Ordering::Release);
    }

    /// Removes the latest plan of a request that was not posted.
    pub(crate) fn remove_last(&self, qp_num: Option<u32>, is_recv: bool) {
        self.remove(|plans| plans.iter().rposition(|plan| plan.qp_num == qp_num && plan.is_recv == is_recv));
    }

    /// Removes the plans of a queue pair that is destroyed.
    pub(crate) fn forget(&self, qp: &Weak<dyn QpOps>) {
        if self.count.load(Ordering::Acquire) != 0 {
            let mut plans = self.plans();
            plans.retain(|plan| plan.qp_num.is_none() || !plan.qp.ptr_eq(qp));
            self.count.store(plans.len(), Ordering::Release);
        }
    }

    fn remove(&self, find: impl FnOnce(&[Plan]) -> Option<usize>) -> Option<Plan> {
        let mut plans = self.plans();
        let found = find(&plans).map(|at| plans.remove(at));
        self.count.store(plans.len(), Ordering::Release);
        found
    }

    /// Replaces the statuses of planned requests among these completions.
    #[inline]
    pub(crate) fn apply(&self, wcs: &mut [Wc]) {
        if self.count.load(Ordering::Acquire) != 0 {
            self.apply_some(wcs);
        }
    }

    #[cold]
    fn apply_some(&self, wcs: &mut [Wc]) {
        for wc in wcs {
            // A receive that takes a message without data succeeds, whatever its key.
            let may_be = !wc.is_ok() || wc.opcode.is_recv() && wc.byte_len == 0;
            if !may_be {
                continue;
            }
            let is_of = |plan: &Plan| {
                plan.is_recv == wc.opcode.is_recv()
                    && plan.wr_id == wc.wr_id
                    && plan.qp_num.is_none_or(|qp_num| qp_num == wc.qp_num)
            };
            let Some(plan) = self.remove(|plans| plans.iter().position(is_of)) else { continue };
            // An earlier request has failed, and flushed this request.
            if wc.status == WcStatus::WrFlushErr {
                continue;
            }
            plan.kept_reason.get_or_init(|| plan.reason);
            *wc = Wc {
                wr_id: wc.wr_id,
                status: plan.status,
                opcode: plan.opcode,
                qp_num: wc.qp_num,
                ..Wc::default()
            };
            // A receive without data has succeeded. On InfiniBand a local error is not noticed by the peer either.
            if let Some(qp) = plan.qp.upgrade() {
                qp.to_error();
            }
        }
    }
}
