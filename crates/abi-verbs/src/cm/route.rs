//! Finds the device that reaches an address, and the source address.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::Mutex;

use ffi::{Out, lock};

use crate::answer::Answer;
use crate::cm::shared::{SHARED, Shared};
use crate::discovery::device;
use crate::engine::side;
use crate::errno::{Errno, errno};
use crate::objects::{Context, Engine};
use crate::resources::{context, pd};
use crate::slab::Handle;

/// The shared context of the device with this index in the list.
pub(crate) fn context(device: usize) -> Answer<Handle<Context>> {
    let process = std::process::id();
    let mut all = lock(&SHARED);
    let is_this = |shared: &&Shared| (shared.process, shared.device) == (process, device);
    if let Some(shared) = all.iter().find(is_this).filter(|shared| shared.context.lookup().is_ok()) {
        return Ok(shared.context);
    }
    let context = context::open(*device::all().get(device).ok_or_else(|| {
        errno!(NODEV, "NICETY_VERBS_DEVICES names no such device; nicety run --device adds one")
    })?)?;
    let pd = pd::ibv_alloc_pd(context)?;
    // They stay until the process ends.
    context.keep_from_program();
    pd.keep_from_program();
    all.push(Shared { process, device, context, pd });
    Ok(context)
}

/// A device's index in the list, and an address as that device knows it.
pub(crate) type Route = (usize, SocketAddr);

/// The devices that can listen at an address of this host.
pub(crate) fn routes_here(addr: SocketAddr) -> Answer<Vec<Route>> {
    if !is_here(addr.ip()) {
        return Err(Errno(libc::EADDRNOTAVAIL).because(format_args!(
            "addr: {} is no address of this host; pass one that ip address lists, or 0.0.0.0 for all",
            addr.ip()
        )));
    }
    let mut routes = Vec::new();
    for (index, device) in device::all().iter().enumerate() {
        let name = &device.lookup()?.name;
        if fabric::is_local(name) {
            routes.push((index, SocketAddr::new(LOCALHOST, addr.port())));
        } else if side(name).is_none_or(|side| side == addr.ip() || addr.ip().is_unspecified()) {
            routes.push((index, addr));
        }
    }
    match routes.is_empty() {
        true => Err(errno!(
            NODEV,
            "no device listens at {}: nicety run --device iwarp@{} adds one that does",
            addr.ip(),
            addr.ip()
        )),
        false => Ok(routes),
    }
}

/// A device's index in the list, and the source address on this host.
type Start = (usize, IpAddr);

/// Finds the first device that reaches an address: from `from` if given, else from the source address of the system's route if a device
/// has it, or else from the device's own address. A device bound to one address sends only from that, whatever the system's route.
///
/// # Errors
/// [`Errno::NODEV`] if no device reaches it, or the system's error if it has no route.
pub(crate) fn way_to(peer: IpAddr, from: Option<IpAddr>) -> Answer<Start> {
    let route = from.map_or_else(|| source(None, peer), Ok);
    for (index, device) in device::all().iter().enumerate() {
        let name = &device.lookup()?.name;
        let leads = match (fabric::is_local(name), side(name)) {
            (true, _) => is_here(peer),
            (false, side) => side.is_none_or(|side| route == Ok(side)),
        };
        if leads {
            return Ok((index, route?));
        }
    }
    for (index, device) in device::all().iter().enumerate().filter(|_| from.is_none()) {
        if let Some(side) = side(&device.lookup()?.name).filter(|side| source(Some(*side), peer).is_ok()) {
            return Ok((index, side));
        }
    }
    Err(route.err().unwrap_or(Errno::NODEV).remarked(format_args!(
        "no device leads to {peer}: shm reaches this host alone; for others nicety run --device iwarp@ADDRESS"
    )))
}

/// A peer's address as an engine's device knows it.
pub(crate) fn as_known(engine: &Engine, peer: SocketAddr) -> SocketAddr {
    if engine.is_local { SocketAddr::new(LOCALHOST, peer.port()) } else { peer }
}

const LOCALHOST: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// Whether an address belongs to this host: the system can bind it.
fn is_here(ip: IpAddr) -> bool {
    ip.is_loopback() || ip.is_unspecified() || UdpSocket::bind((ip, 0)).is_ok()
}

/// The source address on this host for a peer, by the system's routes; from `from` if given.
fn source(from: Option<IpAddr>, peer: IpAddr) -> Answer<IpAddr> {
    let any: IpAddr =
        if peer.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let find = || {
        let socket = UdpSocket::bind((from.unwrap_or(any), 0))?;
        // This sends nothing.
        socket.connect((peer, 1))?;
        socket.local_addr()
    };
    let found =
        find().map_err(|why: std::io::Error| Errno(why.raw_os_error().unwrap_or(libc::EHOSTUNREACH)))?;
    Ok(found.ip())
}

/// Device lists that programs have not freed.
static LISTS: Mutex<Vec<Box<[Handle<Context>]>>> = Mutex::new(Vec::new());

/// The contexts of all devices that can be opened, followed by NULL.
pub(crate) fn rdma_get_devices(num_devices: Out<i32>) -> Answer<*mut Handle<Context>> {
    let opened = (0..device::all().len()).filter_map(|index| context(index).ok());
    let mut list: Box<[_]> = opened.chain([Handle::NULL]).collect();
    num_devices.set(list.len() as i32 - 1);
    let address = list.as_mut_ptr();
    lock(&LISTS).push(list);
    Ok(address)
}

pub(crate) fn rdma_free_devices(list: Out<Handle<Context>>) -> Answer {
    let mut lists = lock(&LISTS);
    let at = lists
        .iter()
        .position(|known| known.as_ptr().addr() == list.addr())
        .ok_or_else(|| errno!(INVAL, "list is none that rdma_get_devices has returned; free each once"))?;
    lists.swap_remove(at);
    Ok(())
}
