//! Addresses that identifiers reserve on devices, from binding or address resolution on: no other identifier or process gets them.
//!
//! Programs announce a bound port to their peers before they listen there. So each device listens from binding on, and early requests
//! are kept until the program listens too. An identifier that resolves an address is going to connect, so it stops listening.

use std::net::SocketAddr;

use ffi::lock;
use verbs::{BoundAddr, Listener};

use crate::answer::Answer;
use crate::cm::route::{self, Route, as_known};
use crate::cm::shared::contexts;
use crate::engine::side;
use crate::errno::Errno;
use crate::objects::{CmId, CmPhase, Engine, Objects, ReservedPort};
use crate::slab::Held;

impl ReservedPort {
    /// The port from which connections are made.
    pub(crate) fn port(&self) -> Option<&BoundAddr> {
        self.port.as_ref()
    }
}

/// Reserves an address on the devices that can listen there, and keeps early requests. Port 0 chooses one port, the same on all
/// devices.
///
/// # Errors
/// `EADDRINUSE` if another identifier or process has it.
pub(crate) fn reserve(id: Held<CmId>, local: SocketAddr, routes: &[Route]) -> Answer {
    let own = id.handle();
    let (is_v6_alone, may_share) = {
        let state = lock(&id.state);
        (local.is_ipv6() && state.is_of_one_family, state.reuses_address)
    };
    let (mut port, mut ports) = (local.port(), Vec::new());
    for &(device, addr) in routes {
        let engine = route::context(device)?.lookup()?.engine.clone();
        let addr = SocketAddr::new(addr.ip(), port);
        // Locked first, so that a request finds its listener registered.
        let mut objects = lock(&engine.objects);
        if is_v6_alone
            && has_one_address(&engine)
            && objects.listeners.iter().any(|(at, _)| at.port() == port)
        {
            // The listener at this port already gets all requests.
            continue;
        }
        let listener = match listen(&engine, addr) {
            Ok(found) => found,
            Err(why) if why.0 == libc::EADDRINUSE && may_share && is_shared(&objects, addr) => continue,
            Err(why) => {
                drop(objects);
                return Err(why.after(|| forget(id)));
            }
        };
        let (port_held, listener) = listener;
        port = listener.addr().port();
        objects.listeners.push((listener.addr(), own));
        ports.push(ReservedPort { device, listener: Some(listener), port: port_held });
    }
    let mut state = lock(&id.state);
    (state.ports, state.early) = (ports, Some(Vec::new()));
    state.local = Some(SocketAddr::new(local.ip(), port));
    Ok(())
}

/// Whether a device has one address for both address families.
fn has_one_address(engine: &Engine) -> bool {
    engine.is_local || side(engine.device.name()).is_some_and(|side| side.is_ipv4())
}

/// Listens at an address of a device, and reserves it if the device can. The device's backlog is unlimited; the identifier limits it.
fn listen(engine: &Engine, addr: SocketAddr) -> Answer<(Option<BoundAddr>, Listener)> {
    let bound = match engine.cm.bind(addr) {
        Ok(port) => {
            let listener = engine.cm.listen_at(&port, u32::MAX);
            listener.map(|listener| (Some(port), listener))
        }
        Err(verbs::Error::Unsupported { .. }) => {
            engine.cm.listen(addr, u32::MAX).map(|listener| (None, listener))
        }
        Err(why) => Err(why),
    };
    bound.map_err(|why| in_use(why, addr))
}

/// Translates a device's error for an address of its own.
fn in_use(why: verbs::Error, addr: SocketAddr) -> Errno {
    match why {
        verbs::Error::Address { .. } if addr.port() != 0 => Errno(libc::EADDRINUSE).because(format_args!(
            "addr: port {} of {} is taken by another id or process; use another port, or 0, which chooses one",
            addr.port(),
            addr.ip()
        )),
        why => why.into(),
    }
}

/// Whether the holder of an address in this process shares it (`RDMA_OPTION_ID_REUSEADDR`): it set the option, and does not listen.
fn is_shared(objects: &Objects, addr: SocketAddr) -> bool {
    let holder = objects.listeners.iter().find(|(at, _)| *at == addr);
    holder.and_then(|(_, id)| id.lookup().ok()).is_some_and(|id| {
        let state = lock(&id.state);
        state.reuses_address && state.phase == CmPhase::Bound
    })
}

/// Reserves the address from which an identifier will connect on this device, releases its other addresses, and stops listening.
/// Returns the identifier's address, with a chosen port if it had none.
///
/// # Errors
/// `EADDRINUSE` if another identifier or process has it.
pub(crate) fn choose(id: Held<CmId>, device: usize, local: SocketAddr) -> Answer<SocketAddr> {
    let held = release(id).into_iter().find(|reserved| reserved.device == device);
    let mut port = held.and_then(|reserved| reserved.port);
    if port.is_none() {
        let engine = route::context(device)?.lookup()?.engine.clone();
        port = match engine.cm.bind(as_known(&engine, local)) {
            Ok(port) => Some(port),
            Err(verbs::Error::Unsupported { .. }) => None,
            Err(why) => return Err(in_use(why, local)),
        };
    }
    let number = port.as_ref().map_or(local.port(), |port| port.addr().port());
    lock(&id.state).ports = vec![ReservedPort { device, listener: None, port }];
    Ok(SocketAddr::new(local.ip(), number))
}

/// Takes an identifier's reservations and stops listening: requests that were not reported to the program are rejected.
pub(crate) fn release(id: Held<CmId>) -> Vec<ReservedPort> {
    forget(id);
    let (mut ports, early) = {
        let mut state = lock(&id.state);
        (std::mem::take(&mut state.ports), state.early.take())
    };
    drop(early);
    ports.iter_mut().for_each(|reserved| drop(reserved.listener.take()));
    ports
}

/// Unregisters a listener: requests no longer find the identifier.
fn forget(id: Held<CmId>) {
    let own = id.handle();
    let all = contexts();
    all.iter().for_each(|context| {
        lock(&context.engine.objects).listeners.retain(|(_, known)| *known != own);
    });
}
