//! [`CqHandle`]: a completion queue of the API.
//!
//! Data path: one call into the provider for a poll of up to 16 completions.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, RwLock};

use host::Wake;
use verbs::provider::CqOps;
use verbs::{Error, Result, Wc};

use super::arming::Arming;
use super::channel::ChannelHandle;
use crate::raw::cq::HwCq;
use crate::shared::Shared;

/// A completion queue.
pub(crate) struct CqHandle {
    pub(crate) shared: Arc<Shared>,
    pub(crate) arming: Arc<Arming>,
    overrun: AtomicBool,
    /// Whether a queue pair ever reported another number than its own here.
    has_aliases: AtomicBool,
    /// The numbers that completions carry, by the card's number.
    aliases: RwLock<BTreeMap<u32, u32>>,
    _channel: Option<Arc<ChannelHandle>>,
}

impl CqHandle {
    pub(crate) fn new(shared: &Arc<Shared>, cqe: u32, channel: Option<Arc<ChannelHandle>>) -> Result<Self> {
        if channel.as_ref().is_some_and(|channel| !Arc::ptr_eq(&channel.shared, shared)) {
            return Err(Error::Foreign { what: "the completion channel" });
        }
        let hw = Arc::new(HwCq::new(&shared.context, cqe)?);
        let arming = Arc::new(Arming::new(hw, channel.as_ref().map(|channel| channel.set.clone())));
        channel.iter().for_each(|channel| channel.add(&arming));
        Ok(Self {
            shared: shared.clone(),
            arming,
            overrun: AtomicBool::new(false),
            has_aliases: AtomicBool::new(false),
            aliases: RwLock::default(),
            _channel: channel,
        })
    }

    /// Makes completions of a queue pair carry another number; `None` ends that.
    pub(crate) fn set_alias(&self, qp_num: u32, reported: Option<u32>) {
        let mut aliases = self.aliases.write().unwrap_or_else(|e| e.into_inner());
        match reported {
            Some(reported) => {
                aliases.insert(qp_num, reported);
                self.has_aliases.store(true, Ordering::Release);
            }
            None => drop(aliases.remove(&qp_num)),
        }
    }

    #[cold]
    fn gone(&self) -> Error {
        let why = "it has failed or was removed; open it again when ls /sys/class/infiniband shows it";
        Error::DeviceGone { device: format!("card '{}'", self.shared.name()), why: why.to_owned() }
    }

    /// Handles what few polls have: failures, and numbers to replace.
    #[cold]
    fn look_closer(&self, wcs: &mut [Wc]) {
        wcs.iter().filter(|wc| !wc.is_ok()).for_each(|wc| self.shared.pair_failed(wc.qp_num));
        let aliases = self.aliases.read().unwrap_or_else(|e| e.into_inner());
        for wc in wcs {
            wc.qp_num = aliases.get(&wc.qp_num).copied().unwrap_or(wc.qp_num);
        }
    }
}

impl CqOps for CqHandle {
    fn id(&self) -> u32 {
        self.arming.hw.number
    }

    fn cqe(&self) -> u32 {
        self.arming.hw.cqe()
    }

    fn resize(&self, cqe: u32) -> Result<()> {
        self.shared.check()?;
        self.arming.hw.resize(cqe).map_err(|why| match why.raw_os_error() {
            Some(libc::ENOSYS | libc::EOPNOTSUPP) => Error::Unsupported {
                device: self.shared.name().to_owned(),
                what: "completion queues of another size",
            },
            Some(libc::EINVAL) => Error::Invalid(format!(
                "the card refuses {cqe} entries of a completion queue; are more completions pending? poll them first"
            )),
            _ => self.shared.refused(format!("{cqe} entries of a completion queue"), why),
        })
    }

    #[inline]
    fn poll(&self, wcs: &mut [Wc]) -> Result<usize> {
        self.shared.check()?;
        let found = self.arming.hw.poll(wcs).filter(|_| !self.overrun.load(Ordering::Relaxed));
        let Some(count) = found else {
            self.overrun.store(true, Ordering::Relaxed);
            return Err(Error::CqOverrun { cqe: self.cqe() });
        };
        if count == 0 && self.shared.is_gone.load(Ordering::Relaxed) {
            return Err(self.gone());
        }
        let wcs = &mut wcs[..count];
        if self.has_aliases.load(Ordering::Relaxed) || wcs.iter().any(|wc| !wc.is_ok()) {
            self.look_closer(wcs);
        }
        Ok(count)
    }

    fn req_notify(&self, solicited_only: bool) -> Result<()> {
        self.shared.check()?;
        self.arming.request_event(solicited_only)
    }

    fn prepare_wait(&self) -> Wake<'_> {
        Wake::Fd(self.arming.prepare_wait())
    }
}
