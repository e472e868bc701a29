//! Addresses that identifiers hold on devices, from when they are bound or resolve the other side's address: nobody else gets them.
//!
//! Programs tell others of a port that they have bound before they listen there. So each device listens from the beginning, and
//! requests that come are kept until the program listens, too. An identifier that resolves an address is going to connect, and
//! listens no more.

use std::net::SocketAddr;

use ffi::lock;
use verbs::{Listener, Port};

use crate::answer::Answer;
use crate::cm::route::{self, Route, as_known};
use crate::cm::shared::contexts;
use crate::engine::side;
use crate::errno::Errno;
use crate::objects::{CmId, Engine, Objects, Phase, Reserved};
use crate::slab::Held;

impl Reserved {
    /// What connections come from.
    pub(crate) fn port(&self) -> Option<&Port> {
        self.port.as_ref()
    }
}

/// Holds an address on the devices by which it can be listened at, and takes what comes there. Port 0 chooses one, the same on all.
///
/// # Errors
/// `EADDRINUSE` if somebody else has it, of this process or another.
pub(crate) fn take(id: Held<CmId>, local: SocketAddr, routes: &[Route]) -> Answer {
    let own = id.handle();
    let (is_v6_alone, may_share) = {
        let state = lock(&id.state);
        (local.is_ipv6() && state.is_of_one_family, state.reuses_address)
    };
    let (mut port, mut ports) = (local.port(), Vec::new());
    for &(device, addr) in routes {
        let engine = route::context(device)?.look()?.engine.clone();
        let addr = SocketAddr::new(addr.ip(), port);
        // A request finds its listener known.
        let mut objects = lock(&engine.objects);
        if is_v6_alone
            && has_one_address(&engine)
            && objects.listeners.iter().any(|(at, _)| at.port() == port)
        {
            // Who listens at the port already gets all that come.
            continue;
        }
        let listener = match listen(&engine, addr) {
            Ok(found) => found,
            Err(Errno(libc::EADDRINUSE)) if may_share && is_shared(&objects, addr) => continue,
            Err(why) => {
                drop(objects);
                forget(id);
                return Err(why);
            }
        };
        let (port_held, listener) = listener;
        port = listener.addr().port();
        objects.listeners.push((listener.addr(), own));
        ports.push(Reserved { device, listener: Some(listener), port: port_held });
    }
    let mut state = lock(&id.state);
    (state.ports, state.early) = (ports, Some(Vec::new()));
    state.local = Some(SocketAddr::new(local.ip(), port));
    Ok(())
}

/// Whether addresses of both families are one on a device.
fn has_one_address(engine: &Engine) -> bool {
    engine.is_local || side(engine.device.name()).is_some_and(|side| side.is_ipv4())
}

/// Listens at an address of a device, and holds it if the device can. How many may wait is for the identifier to say.
fn listen(engine: &Engine, addr: SocketAddr) -> Answer<(Option<Port>, Listener)> {
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

/// What a device says of an address that is its own.
fn in_use(why: verbs::Error, addr: SocketAddr) -> Errno {
    match why {
        verbs::Error::Address { .. } if addr.port() != 0 => Errno(libc::EADDRINUSE),
        why => why.into(),
    }
}

/// Whether whoever has an address in this process shares it (`RDMA_OPTION_ID_REUSEADDR`): it does not listen, and has said so, too.
fn is_shared(objects: &Objects, addr: SocketAddr) -> bool {
    let holder = objects.listeners.iter().find(|(at, _)| *at == addr);
    holder.and_then(|(_, id)| id.look().ok()).is_some_and(|id| {
        let state = lock(&id.state);
        state.reuses_address && state.phase == Phase::Bound
    })
}

/// Holds the address from which an identifier is going to connect by this device, of all that it may hold, and listens no more. The
/// address as the identifier has it, with the port that was chosen if it had none.
///
/// # Errors
/// `EADDRINUSE` if somebody else has it.
pub(crate) fn choose(id: Held<CmId>, device: usize, local: SocketAddr) -> Answer<SocketAddr> {
    let held = give_up(id).into_iter().find(|reserved| reserved.device == device);
    let mut port = held.and_then(|reserved| reserved.port);
    if port.is_none() {
        let engine = route::context(device)?.look()?.engine.clone();
        port = match engine.cm.bind(as_known(&engine, local)) {
            Ok(port) => Some(port),
            Err(verbs::Error::Unsupported { .. }) => None,
            Err(why) => return Err(in_use(why, local)),
        };
    }
    let number = port.as_ref().map_or(local.port(), |port| port.addr().port());
    lock(&id.state).ports = vec![Reserved { device, listener: None, port }];
    Ok(SocketAddr::new(local.ip(), number))
}

/// Takes what an identifier holds, and has nothing come there any more: requests that the program was not told of are refused.
pub(crate) fn give_up(id: Held<CmId>) -> Vec<Reserved> {
    forget(id);
    let (mut ports, early) = {
        let mut state = lock(&id.state);
        (std::mem::take(&mut state.ports), state.early.take())
    };
    drop(early);
    ports.iter_mut().for_each(|reserved| drop(reserved.listener.take()));
    ports
}

/// Requests find the identifier no more.
fn forget(id: Held<CmId>) {
    let own = id.handle();
    let all = contexts();
    all.iter().for_each(|context| {
        lock(&context.engine.objects).listeners.retain(|(_, known)| *known != own);
    });
}
