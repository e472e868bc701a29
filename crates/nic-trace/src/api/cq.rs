//! Completion queues and channels.
//!
//! Data path: a poll that finds nothing costs one comparison.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use host::Wake;
use trace::format::Fields;
use trace::names::{Call, Event};
use verbs::provider::{CompChannelOps, CqOps};
use verbs::{Result, Wc};

use crate::shared::{Counted, Shared};

pub(crate) struct TraceCq {
    pub(crate) below: Arc<dyn CqOps>,
    pub(crate) object: u32,
    pub(crate) counted: Counted,
}

impl TraceCq {
    #[cold]
    fn failed_poll(&self, why: verbs::Error) -> Result<usize> {
        self.counted.shared.call(Call::Poll, self.object, || Err(why), |_| Fields::default())
    }
}

impl Drop for TraceCq {
    fn drop(&mut self) {
        let _ = self.counted.shared.call(Call::DestroyCq, self.object, || Ok(()), |()| Fields::default());
    }
}

impl CqOps for TraceCq {
    fn id(&self) -> u32 {
        self.below.id()
    }

    fn cqe(&self) -> u32 {
        self.below.cqe()
    }

    fn resize(&self, cqe: u32) -> Result<()> {
        let about = |(): &()| Fields { local: cqe.into(), ..Fields::default() };
        self.counted.shared.call(Call::ResizeCq, self.object, || self.below.resize(cqe), about)
    }

    #[inline]
    fn poll(&self, wcs: &mut [Wc]) -> Result<usize> {
        match self.below.poll(wcs) {
            Ok(0) => Ok(0),
            Ok(found) => {
                self.counted.shared.completions(self.object, &wcs[..found]);
                Ok(found)
            }
            Err(why) => self.failed_poll(why),
        }
    }

    fn req_notify(&self, solicited_only: bool) -> Result<()> {
        let shared = &self.counted.shared;
        let text = if solicited_only { shared.text("for solicited ones only") } else { 0 };
        let about = |(): &()| Fields { extra: text, ..Fields::default() };
        shared.call(Call::ReqNotify, self.object, || self.below.req_notify(solicited_only), about)
    }

    fn prepare_wait(&self) -> Wake<'_> {
        self.counted.shared.wait(self.object);
        self.below.prepare_wait()
    }

    fn progress_count(&self) -> u64 {
        self.below.progress_count()
    }

    fn begin_polling(&self) {
        self.below.begin_polling();
    }

    fn end_polling(&self) {
        self.below.end_polling();
    }
}

pub(crate) struct TraceChannel {
    pub(crate) below: Arc<dyn CompChannelOps>,
    pub(crate) object: u32,
    pub(crate) shared: Arc<Shared>,
}

impl CompChannelOps for TraceChannel {
    fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.below.fd()
    }

    fn poll_event(&self) -> Option<u32> {
        let cq = self.below.poll_event()?;
        self.shared.event(Event::Channel, self.object, false, String::new);
        Some(cq)
    }

    fn prepare_wait(&self) -> Wake<'_> {
        self.shared.wait(self.object);
        self.below.prepare_wait()
    }
}
