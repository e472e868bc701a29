//! The devices that a socket uses: it binds and listens on every device with its address, and connects by the device that reaches the peer.

use std::cell::Cell;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};

use ffi::lock;
use rsocket::{Carrier, Error, Service};

use crate::answer::Answer;
use crate::cm::route::{self, Route, as_known, routes_here, way_to};
use crate::discovery::device::{DeviceKind, device_kind};
use crate::engine::side;
use crate::errno::Errno;
use crate::objects::Engine;
use crate::sockets::entry::Entry;

/// The services of this process, by process and device index. A child of fork(2) does not use its parent's.
static SERVICES: Mutex<Vec<(u32, usize, Arc<Service>)>> = Mutex::new(Vec::new());

thread_local! {
    /// Whether this thread is asking the system for routes, by sockets of its own.
    static IS_ROUTING: Cell<bool> = const { Cell::new(false) };
}

/// Whether a call of rsocket comes from this library's own use of the system's sockets, under librspreload.so.
pub(crate) fn is_routing() -> bool {
    IS_ROUTING.get()
}

/// Runs a search for routes.
fn routing<T>(search: impl FnOnce() -> Answer<T>) -> Answer<T> {
    let before = IS_ROUTING.replace(true);
    let found = search();
    IS_ROUTING.set(before);
    found
}

fn engine(device: usize) -> Answer<Arc<Engine>> {
    Ok(route::context(device)?.lookup()?.engine.clone())
}

/// The service of the device with this index.
fn service(device: usize) -> Answer<Arc<Service>> {
    let engine = engine(device)?;
    let (process, mut all) = (std::process::id(), lock(&SERVICES));
    if let Some((.., service)) = all.iter().find(|(owner, index, _)| (*owner, *index) == (process, device)) {
        return Ok(service.clone());
    }
    let service = Arc::new(Service::new(&engine.device, carrier(engine.device.name()))?);
    all.push((process, device, service.clone()));
    Ok(service)
}

/// How messages travel on a device: iWARP, and cards that appear as such, have no immediate data.
fn carrier(name: &str) -> Carrier {
    let is_iwarp = fabric::word(fabric::below(name)) == "iwarp" || device_kind() == DeviceKind::Rnic;
    if is_iwarp { Carrier::Send } else { Carrier::Immediate }
}

/// Translates a device's error for an address of its own.
fn in_use(why: Error, addr: SocketAddr) -> Errno {
    match why {
        Error::Device(verbs::Error::Address { .. }) if addr.port() != 0 => {
            Errno(libc::EADDRINUSE).because(format_args!(
                "addr: port {} of {} is taken by another socket or process; use another port, or 0, which chooses one",
                addr.port(),
                addr.ip()
            ))
        }
        why => why.into(),
    }
}

/// The addresses at which the devices have to listen for one of the program: an IPv6 socket for all addresses also gets IPv4.
fn routes(entry: &Entry, addr: SocketAddr) -> Answer<Vec<Route>> {
    let is_any_v6 = addr.is_ipv6() && addr.ip().is_unspecified();
    if !is_any_v6 || lock(&entry.options).v6_only != 0 {
        return routes_here(addr);
    }
    let any = (Ipv4Addr::UNSPECIFIED, addr.port()).into();
    let mut found = routes_here(any)?;
    for (device, addr) in routes_here(addr)? {
        let engine = engine(device)?;
        // Those with one address listen there already.
        if !engine.is_local && side(engine.device.name()).is_none() {
            found.push((device, addr));
        }
    }
    Ok(found)
}

/// Binds a socket on every device that has the address. Port 0 chooses one port, the same on all.
///
/// # Errors
/// `EADDRINUSE` if another socket or process has it, and as [`routes_here`].
pub(crate) fn bind(entry: &Entry, addr: SocketAddr) -> Answer {
    let routes = routing(|| routes(entry, addr))?;
    let (mut port, mut ports) = (addr.port(), Vec::new());
    for (device, at) in routes {
        let service = service(device)?;
        let at = SocketAddr::new(at.ip(), port);
        let bound = match service.bind(at) {
            // A host without IPv6 still has IPv4.
            Err(_) if at.is_ipv6() && !ports.is_empty() => continue,
            bound => bound.map_err(|why| in_use(why, at))?,
        };
        port = bound.addr().port();
        ports.push((service, bound));
    }
    *lock(&entry.ports) = ports;
    entry.socket.set_local_addr(SocketAddr::new(addr.ip(), port));
    Ok(())
}

/// Listens wherever a socket is bound; an unbound socket gets a port.
///
/// # Errors
/// As [`bind`].
pub(crate) fn listen(entry: &Entry, backlog: usize) -> Answer {
    if lock(&entry.ports).is_empty() {
        bind(entry, (Ipv4Addr::UNSPECIFIED, 0).into())?;
    }
    for (service, port) in lock(&entry.ports).iter() {
        service.listen(&entry.socket, port, backlog).map_err(|why| in_use(why, port.addr()))?;
    }
    Ok(())
}

/// Begins to connect.
///
/// # Errors
/// As [`way_to`] and [`Service::connect`].
pub(crate) fn connect(entry: &Entry, peer: SocketAddr) -> Answer {
    let own = entry.socket.local_addr().filter(|_| !lock(&entry.ports).is_empty());
    let from = own.map(|own| own.ip()).filter(|ip| !ip.is_unspecified());
    let (device, _) = routing(|| way_to(peer.ip(), from))?;
    let (engine, service) = (engine(device)?, service(device)?);
    let to = as_known(&engine, peer);
    let ports = lock(&entry.ports);
    let from = ports
        .iter()
        .find(|(known, port)| Arc::ptr_eq(known, &service) && port.addr().is_ipv4() == to.is_ipv4());
    Ok(service.connect(&entry.socket, from.map(|(_, port)| port), to)?)
}
