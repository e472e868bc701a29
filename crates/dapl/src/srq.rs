//! [`Srq`]: receives that several endpoints share.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};

use verbs::{RecvWr, Sge, SrqInit};

use crate::attr::SrqAttr;
use crate::error::OrDevice;
use crate::ia::{IaInner, SharedReceives, shared_wr_id};
use crate::mem::Pz;
use crate::sync::{UseCount, UseGuard, lock};
use crate::{Error, Label, Result, Subtype};

/// A shared receive queue (`DAT_SRQ`); cheap to clone.
#[derive(Clone)]
pub struct Srq(pub(crate) Arc<SrqInner>);

pub(crate) struct SrqInner {
    pub(crate) ia: Arc<IaInner>,
    pub(crate) pz: Pz,
    _use: (UseGuard, UseGuard),
    pub(crate) srq: verbs::Srq,
    number: u32,
    attr: SrqAttr,
    low_watermark: AtomicU32,
    cookies: Box<[AtomicU64]>,
    /// Unused records.
    free: Mutex<Vec<u32>>,
    label: AtomicU64,
    pub(crate) uses: UseCount,
}

/// The parameters of a shared receive queue (`DAT_SRQ_PARAM`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SrqParam {
    /// Its sizes, with the current watermark.
    pub attr: SrqAttr,
    /// Posted receives that are not consumed.
    pub available: u32,
}

impl std::fmt::Debug for Srq {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Srq({:?})", self.0.srq)
    }
}

impl Srq {
    /// Creates a shared receive queue (`dat_srq_create`).
    ///
    /// # Errors
    /// Argument 3 for sizes beyond the device's; `NotImplemented` if the device has no such queues.
    pub fn create(pz: &Pz, attr: SrqAttr) -> Result<Self> {
        let ia = &pz.0.ia;
        if attr.max_recv_dtos == 0
            || attr.max_recv_dtos > ia.attr.max_recv_per_srq
            || attr.max_recv_iov > ia.attr.max_iov_segments_per_dto
            || attr.low_watermark > attr.max_recv_dtos
        {
            return Err(Error::argument(Subtype::Arg3));
        }
        let init = SrqInit { max_wr: attr.max_recv_dtos, max_sge: attr.max_recv_iov.max(1) };
        let srq = pz.0.pd.create_srq(init).or_device(Subtype::ResourceSrq)?;
        // Twice as many records as receives, since a device's slot is free before its record is.
        let records = attr.max_recv_dtos.saturating_mul(2);
        let mut srqs = lock(&ia.srqs);
        let number = srqs.last_key_value().map_or(0, |(last, _)| (last + 1) & 0x7FFF_FFFF);
        let inner = Arc::new(SrqInner {
            ia: ia.clone(),
            pz: pz.clone(),
            _use: (ia.uses.add(), pz.0.uses.add()),
            srq,
            number,
            attr,
            low_watermark: AtomicU32::new(0),
            cookies: (0..records).map(|_| AtomicU64::new(0)).collect(),
            free: Mutex::new((0..records).rev().collect()),
            label: AtomicU64::new(ia.next_label()),
            uses: UseCount::default(),
        });
        let known: Weak<dyn SharedReceives> = Arc::<SrqInner>::downgrade(&inner);
        srqs.insert(number, known);
        drop(srqs);
        let srq = Self(inner);
        if attr.low_watermark > 0 {
            srq.set_low_watermark(attr.low_watermark)?;
        }
        Ok(srq)
    }

    /// Posts a receive (`dat_srq_post_recv`).
    ///
    /// # Errors
    /// Argument 2 for too many segments; `InsufficientResources` when it is full.
    pub fn post_recv(&self, iov: &[Sge], cookie: u64) -> Result<()> {
        let inner = &*self.0;
        if iov.len() > inner.attr.max_recv_iov as usize {
            return Err(Error::argument(Subtype::Arg2));
        }
        let full = Error::new(crate::ErrorKind::InsufficientResources, Subtype::ResourceSrq);
        let record = lock(&inner.free).pop().ok_or(full)?;
        inner.cookies[record as usize].store(cookie, Ordering::Release);
        let wr_id = shared_wr_id(inner.number, record);
        inner.srq.post_recv(&RecvWr::new(wr_id, iov)).or_device(Subtype::ResourceSrq).inspect_err(|_| {
            lock(&inner.free).push(record);
        })
    }

    /// Requests an asynchronous event when fewer than `mark` receives are left; 0 for none (`dat_srq_set_lw`).
    ///
    /// # Errors
    /// Argument 2 for more than it holds.
    pub fn set_low_watermark(&self, mark: u32) -> Result<()> {
        if mark > self.0.attr.max_recv_dtos {
            return Err(Error::argument(Subtype::Arg2));
        }
        self.0.srq.arm_limit(mark).or_device(Subtype::ResourceSrq)?;
        self.0.low_watermark.store(mark, Ordering::Relaxed);
        Ok(())
    }

    /// Changes its size to `max_recv_dtos` (`dat_srq_resize`). Devices cannot grow theirs.
    ///
    /// # Errors
    /// Argument 2 for zero; `InsufficientResources` for more than its original size.
    pub fn resize(&self, max_recv_dtos: u32) -> Result<()> {
        match max_recv_dtos {
            0 => Err(Error::argument(Subtype::Arg2)),
            more if more > self.0.attr.max_recv_dtos => {
                Err(Error::new(crate::ErrorKind::InsufficientResources, Subtype::ResourceSrq))
            }
            _ => Ok(()),
        }
    }

    /// Its parameters, and the number of available receives (`dat_srq_query`).
    pub fn query(&self) -> SrqParam {
        let free = lock(&self.0.free).len();
        let attr = SrqAttr { low_watermark: self.0.low_watermark.load(Ordering::Relaxed), ..self.0.attr };
        SrqParam { attr, available: (self.0.cookies.len() - free) as u32 }
    }

    /// The protection zone that it belongs to.
    pub fn pz(&self) -> &Pz {
        &self.0.pz
    }

    /// Checks that no endpoint uses it, so that it may be freed (`dat_srq_free`).
    ///
    /// # Errors
    /// `InvalidState`.
    pub fn check_unused(&self) -> Result<()> {
        if self.0.uses.any() { Err(Error::state(Subtype::SrqInUse)) } else { Ok(()) }
    }

    /// Its label in events.
    pub fn label(&self) -> Label {
        self.0.label()
    }

    /// Changes its label.
    pub fn set_label(&self, label: Label) {
        self.0.label.store(label, Ordering::Relaxed);
    }
}

impl SharedReceives for SrqInner {
    fn label(&self) -> Label {
        self.label.load(Ordering::Relaxed)
    }

    fn id(&self) -> u32 {
        self.srq.id()
    }

    fn take(&self, receive: u32) -> Option<u64> {
        let cookie = self.cookies.get(receive as usize)?.load(Ordering::Acquire);
        lock(&self.free).push(receive);
        Some(cookie)
    }
}

impl Drop for SrqInner {
    fn drop(&mut self) {
        lock(&self.ia.srqs).remove(&self.number);
    }
}
