//! [`SrqHandle`]: a shared receive queue of the API.

use std::sync::Arc;

use verbs::provider::SrqOps;
use verbs::{Error, RecvWr, Result, SrqInit};

use crate::raw::memory::Domain;
use crate::raw::srq::HwSrq;
use crate::shared::Shared;

/// A shared receive queue.
pub(crate) struct SrqHandle {
    shared: Arc<Shared>,
    pub(crate) hw: Arc<HwSrq>,
    init: SrqInit,
}

impl SrqHandle {
    pub(crate) fn new(shared: &Arc<Shared>, domain: &Arc<Domain>, init: SrqInit) -> Result<Self> {
        let hw = HwSrq::new(domain, init).map_err(|why| {
            shared.refused(format!("a shared receive queue of {} receives", init.max_wr), why)
        })?;
        Ok(Self { shared: shared.clone(), hw: Arc::new(hw), init })
    }
}

impl SrqOps for SrqHandle {
    fn id(&self) -> u32 {
        self.hw.number
    }

    #[inline]
    fn post_recv(&self, wr: &RecvWr<'_>) -> Result<()> {
        self.shared.check()?;
        Error::check_limit("pieces of a receive", wr.sges.len() as u64, self.init.max_sge.into())?;
        self.hw.post(wr).map_err(|why| match why.raw_os_error() {
            Some(libc::ENOMEM) => Error::QueueFull { queue: "shared receive", depth: self.hw.depth },
            _ => Error::system("the card refuses a receive", why),
        })
    }

    fn arm_limit(&self, limit: u32) -> Result<()> {
        self.shared.check()?;
        self.hw
            .arm_limit(limit)
            .map_err(|why| self.shared.refused(format!("a limit of {limit} receives"), why))
    }

    fn limit(&self) -> u32 {
        self.hw.limit().unwrap_or(0)
    }
}
