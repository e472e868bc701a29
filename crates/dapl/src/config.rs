//! [`EpConfig`]: the configuration of an endpoint, and its validation.

use std::sync::Arc;

use crate::attr::EpAttr;
use crate::ia::IaInner;
use crate::sync::UseGuard;
use crate::{CompletionFlags, Error, Evd, EvdFlags, Pz, Result, Srq, Subtype};

/// The configuration of an endpoint; may change while it is not connected.
#[derive(Clone, Debug, Default)]
pub struct EpConfig {
    /// The zone of the regions that it can access. Without one it cannot be used yet.
    pub pz: Option<Pz>,
    /// The dispatcher for completions of receives.
    pub recv_evd: Option<Evd>,
    /// The dispatcher for completions of requests.
    pub request_evd: Option<Evd>,
    /// The dispatcher for connection events.
    pub connect_evd: Option<Evd>,
    /// The shared receive queue, if it uses one.
    pub srq: Option<Srq>,
    /// Sizes; the default if not given.
    pub attr: Option<EpAttr>,
}

/// The stored configuration of an endpoint.
pub(crate) struct CheckedConfig {
    pub(crate) given: EpConfig,
    pub(crate) attr: EpAttr,
    /// Keeps the configured objects from being freed.
    _uses: Vec<UseGuard>,
}

impl CheckedConfig {
    /// Checks a configuration against the adapter.
    ///
    /// # Errors
    /// As [`crate::Ep::create`].
    pub(crate) fn new(ia: &Arc<IaInner>, given: EpConfig) -> Result<Self> {
        check_evd(ia, &given.recv_evd, EvdFlags::DTO, Subtype::HandleEvdRecv)?;
        check_evd(ia, &given.request_evd, EvdFlags::DTO, Subtype::HandleEvdRequest)?;
        // The connection's dispatcher only queues events, so it may belong to another adapter.
        if given.connect_evd.as_ref().is_some_and(|evd| !evd.flags().contains(EvdFlags::CONNECTION)) {
            return Err(Error::handle(Subtype::HandleEvdConn));
        }
        if given.pz.as_ref().is_some_and(|pz| !Arc::ptr_eq(&pz.0.ia, ia)) {
            return Err(Error::handle(Subtype::HandlePz));
        }
        if given.srq.as_ref().is_some_and(|srq| !Arc::ptr_eq(&srq.0.ia, ia)) {
            return Err(Error::handle(Subtype::HandleSrq));
        }
        let mut attr = given.attr.unwrap_or_else(|| EpAttr::default_for(&ia.attr));
        if given.attr.is_some() {
            check_attr(&attr, &given, ia)?;
        }
        if given.recv_evd.is_none() {
            attr.max_recv_dtos = 0;
        }
        if given.request_evd.is_none() {
            attr.max_request_dtos = 0;
        }
        if let Some(evd) = &given.recv_evd
            && attr.recv_completion_flags.contains(CompletionFlags::SOLICITED_WAIT)
        {
            evd.set_solicited();
        }
        let evds = [&given.recv_evd, &given.request_evd, &given.connect_evd];
        let mut uses: Vec<_> = evds.into_iter().flatten().map(|evd| evd.0.uses.add()).collect();
        uses.extend(given.pz.as_ref().map(|pz| pz.0.uses.add()));
        uses.extend(given.srq.as_ref().map(|srq| srq.0.uses.add()));
        Ok(Self { given, attr, _uses: uses })
    }
}

fn check_evd(ia: &Arc<IaInner>, evd: &Option<Evd>, flag: EvdFlags, wrong: Subtype) -> Result<()> {
    match evd {
        Some(evd) if !evd.0.belongs_to(ia) || !evd.flags().contains(flag) => Err(Error::handle(wrong)),
        _ => Ok(()),
    }
}

/// Checks that sizes agree with the dispatchers, and with the device.
fn check_attr(attr: &EpAttr, given: &EpConfig, ia: &IaInner) -> Result<()> {
    let own_receives = given.recv_evd.is_some() && given.srq.is_none();
    let sensible = (own_receives == (attr.max_recv_dtos > 0) || given.srq.is_some())
        && given.request_evd.is_some() == (attr.max_request_dtos > 0)
        && (!own_receives || attr.max_recv_iov > 0)
        && (given.request_evd.is_none() || attr.max_request_iov > 0);
    if sensible && attr.fits(&ia.attr) { Ok(()) } else { Err(Error::argument(Subtype::Arg6)) }
}
