//! [`QpContext`]: what both halves of a queue pair use: its numbers, its state, and its own memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use verbs::Result;

use crate::lanes::lane_reports::ReportBuffer;
use crate::lock::unpoisoned;
use crate::memory::domain::PdInner;
use crate::shared::DeviceShared;
use crate::state::QpStateCell;

pub(crate) struct QpContext {
    pub(crate) num: u32,
    /// The number that completions carry.
    pub(crate) reported_qp_num: u32,
    pub(crate) pd: Arc<PdInner>,
    pub(crate) state: QpStateCell,
    pub(crate) report_buffer: ReportBuffer,
    /// Its slot in the domain's scratch memory.
    pub(crate) scratch: u32,
    /// A lane has failed, and requests resume as soon as both ends have agreed on that.
    is_failing_over: AtomicBool,
    /// The program has dropped it: pollers no longer hold it, and none of its requests complete.
    is_dropped: AtomicBool,
}

impl QpContext {
    pub(crate) fn new(pd: &Arc<PdInner>, reported_qp_num: Option<u32>) -> Result<Self> {
        let report_buffer = ReportBuffer::new(&pd.pds)?;
        let num = unpoisoned(&pd.shared.qp_nums).alloc()?;
        let scratch = pd.alloc_scratch().inspect_err(|_| unpoisoned(&pd.shared.qp_nums).free(num))?;
        Ok(Self {
            num,
            reported_qp_num: reported_qp_num.unwrap_or(num),
            pd: pd.clone(),
            state: QpStateCell::new(),
            report_buffer,
            scratch,
            is_failing_over: AtomicBool::new(false),
            is_dropped: AtomicBool::new(false),
        })
    }

    #[inline]
    pub(crate) fn shared(&self) -> &Arc<DeviceShared> {
        &self.pd.shared
    }

    #[inline]
    pub(crate) fn is_failing_over(&self) -> bool {
        self.is_failing_over.load(Ordering::Relaxed)
    }

    pub(crate) fn is_dropped(&self) -> bool {
        self.is_dropped.load(Ordering::Acquire)
    }

    pub(crate) fn set_dropped(&self) {
        self.is_dropped.store(true, Ordering::Release);
    }

    pub(crate) fn set_failing_over(&self, is_failing_over: bool) {
        self.is_failing_over.store(is_failing_over, Ordering::Relaxed);
    }
}

impl Drop for QpContext {
    fn drop(&mut self) {
        self.pd.free_scratch(self.scratch);
        unpoisoned(&self.pd.shared.qp_nums).free(self.num);
    }
}
