//! Opens a device of rails; its API handle.

use std::sync::Arc;

use host::{ClockKind, Host, Rate};
use verbs::provider::{CmOps, CompChannelOps, CqOps, DeviceOps, PdOps, downcast};
use verbs::{AsyncEvent, AtomicCap, Device, DeviceAttr, DmAccess, Error, RegionCap, Result, WriteOrder};

use crate::api::channel::ChannelHandle;
use crate::api::cm::CmHandle;
use crate::api::cq::CqHandle;
use crate::api::pd::PdHandle;
use crate::connect::hello;
use crate::device_inner::DeviceInner;
use crate::memory::keys::ENTRIES;
use crate::progress::poll::progress;
use crate::progress::worker::INLINE_MAX;
use crate::qp::OWN_REQUESTS;
use crate::send::request::PIECES_MAX;
use crate::shared::DeviceShared;
use crate::{RAILS_MAX, RailsConfig};

/// Combines several devices into one, in this order; the addresses of the first are those of the whole.
///
/// # Errors
/// [`Error::Invalid`] for no rails, more than [`RAILS_MAX`], the same device twice, devices of different kinds of time,
/// weights that are not one positive number for each, or rails whose private data are too short; and the errors of the
/// rails.
pub fn open(rails: Vec<Device>, config: &RailsConfig) -> Result<Device> {
    check(&rails, config)?;
    let is_virtual = rails[0].host().clock() == ClockKind::Virtual;
    let attr = attributes(&rails, config)?;
    let device = Arc::new(DeviceInner::new(DeviceShared::new(rails, config, attr, is_virtual)?));
    crate::progress::service::start(&device)?;
    crate::progress::threads::start(&device)?;
    Ok(Device::new(Arc::new(RailsDevice(device))))
}

fn check(rails: &[Device], config: &RailsConfig) -> Result<()> {
    let invalid = |why: String| Err(Error::Invalid(why));
    if rails.is_empty() || rails.len() > RAILS_MAX {
        return invalid(format!("{} rails were given; write 1 to {RAILS_MAX}", rails.len()));
    }
    for (at, rail) in rails.iter().enumerate() {
        if rails[..at].iter().any(|other| Arc::ptr_eq(other.ops(), rail.ops())) {
            return invalid(format!("{} is given twice; each rail needs a device of its own", rail.name()));
        }
        if rail.host().clock() != rails[0].host().clock() {
            return invalid(format!(
                "{} and {} use different kinds of time; rails are all modelled or all real",
                rails[0].name(),
                rail.name()
            ));
        }
    }
    let weights = &config.weights;
    if !weights.is_empty() && weights.len() != rails.len() {
        return invalid(format!("{} weights for {} rails; write one for each", weights.len(), rails.len()));
    }
    if weights.iter().any(|weight| !weight.is_finite() || *weight <= 0.0) {
        return invalid("weights of rails are positive numbers".into());
    }
    Ok(())
}

fn attributes(rails: &[Device], config: &RailsConfig) -> Result<DeviceAttr> {
    let least = |of: fn(&DeviceAttr) -> u32| rails.iter().map(|rail| of(rail.attr())).min().unwrap_or(0);
    let least_long = |of: fn(&DeviceAttr) -> u64| rails.iter().map(|rail| of(rail.attr())).min().unwrap_or(0);
    let private = least(|a| a.max_private_data);
    let used = (hello::LEN + hello::addrs_room(rails.len() - 1, private as usize)) as u32;
    let Some(max_private_data) = private.checked_sub(used).filter(|left| *left > 0) else {
        let why = format!("{} rails need {used} bytes of private data, and have {private}", rails.len());
        return Err(Error::Invalid(why));
    };
    let weak = rails.iter().map(|rail| rail.attr().atomic_cap).min_by_key(|cap| match cap {
        AtomicCap::None => 0,
        AtomicCap::Hca => 1,
        AtomicCap::Global => 2,
    });
    // Queue pairs have different message lanes, so atomics of two queue pairs may be executed on different rails.
    let atomic_cap = match weak.unwrap_or(AtomicCap::None) {
        AtomicCap::Hca if rails.len() > 1 => AtomicCap::None,
        cap => cap,
    };
    let sum = |a: Option<Rate>, rail: &Device| Some(Rate(a?.0 + rail.attr().link_rate?.0));
    let stripes =
        format!("messages from {} bytes on are striped over {} rails", config.stripe_min, rails.len());
    let of_rail = |rail: &Device| rail.attr().notes.iter().map(|n| format!("{}: {n}", rail.name())).collect();
    let notes: Vec<Vec<String>> = rails.iter().map(of_rail).collect();
    Ok(DeviceAttr {
        max_qp: least(|a| a.max_qp),
        max_qp_wr: least(|a| a.max_qp_wr).saturating_sub(OWN_REQUESTS),
        max_sge: least(|a| a.max_sge).min(PIECES_MAX as u32),
        max_inline: least(|a| a.max_inline).min(INLINE_MAX as u32),
        max_cq: least(|a| a.max_cq),
        max_cqe: least(|a| a.max_cqe) / 2,
        max_mr: ENTRIES.min(least(|a| a.max_mr) / 2),
        max_mr_size: least_long(|a| a.max_mr_size),
        max_msg_size: least_long(|a| a.max_msg_size),
        implicit_mr: None,
        firmware: None,
        max_srq: least(|a| a.max_srq),
        max_srq_wr: least(|a| a.max_srq_wr),
        max_private_data,
        max_rd_atomic: least(|a| a.max_rd_atomic),
        max_dm_size: 0,
        atomic_cap,
        atomic_cap_dm: AtomicCap::None,
        write_order: WriteOrder::None,
        write_order_dm: WriteOrder::None,
        dm_access: DmAccess::None,
        write_notify: false,
        split_receives: false,
        regions: RegionCap::default(),
        maps_peers: false,
        link_rate: rails.iter().try_fold(Rate(0.0), |a, rail| sum(Some(a), rail)),
        ports: 1,
        port_addrs: rails[0].attr().port_addrs.first().copied().into_iter().collect(),
        notes: std::iter::once(stripes).chain(notes.into_iter().flatten()).collect(),
    })
}

/// The opened device.
struct RailsDevice(Arc<DeviceInner>);

impl DeviceOps for RailsDevice {
    fn name(&self) -> &str {
        &self.0.shared.name
    }

    fn host(&self) -> &Host {
        &self.0.shared.host
    }

    fn attr(&self) -> &DeviceAttr {
        &self.0.shared.attr
    }

    fn check(&self) -> Result<()> {
        self.0.shared.check()
    }

    fn alloc_pd(&self) -> Result<Arc<dyn PdOps>> {
        Ok(Arc::new(PdHandle::alloc(&self.0)?))
    }

    fn create_cq(&self, cqe: u32, channel: Option<&Arc<dyn CompChannelOps>>) -> Result<Arc<dyn CqOps>> {
        let channel = channel.map(|channel| downcast(channel.clone(), "the completion channel"));
        let channel: Option<Arc<ChannelHandle>> = channel.transpose()?;
        Ok(CqHandle::create(&self.0, cqe, channel.map(|channel| channel.reports.clone()))?)
    }

    fn create_cm(&self) -> Result<Arc<dyn CmOps>> {
        Ok(Arc::new(CmHandle::create(&self.0)?))
    }

    fn create_comp_channel(&self) -> Result<Arc<dyn CompChannelOps>> {
        let shared = &self.0.shared;
        if shared.channels.iter().any(Option::is_none) {
            return Err(Error::Unsupported { device: shared.name.clone(), what: "completion channels" });
        }
        Ok(Arc::new(ChannelHandle::create(&self.0)?))
    }

    fn poll_async_event(&self) -> Option<AsyncEvent> {
        self.0.poll_rail_events();
        // Overruns are detected when completions are taken from the rails.
        let mut cqs = Vec::new();
        self.0.cqs_into(&mut cqs);
        for cq in &cqs {
            progress(&self.0, cq);
        }
        self.0.shared.take_event()
    }
}
