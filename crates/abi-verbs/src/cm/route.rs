//! Which device leads where: contexts that librdmacm opens by itself, addresses of this side and of the other, and paths.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::Mutex;

use cface::{Loan, Out, lock};
use host::real::remark;
use libc::sockaddr_storage;
use rdma_abi::numbers as n;
use rdma_abi::verbs::{ibv_gid, ibv_sa_path_rec};

use crate::address;
use crate::answer::Answer;
use crate::cm::id::{CmId, State};
use crate::context::{self, Context};
use crate::device;
use crate::engine::{Engine, side};
use crate::errno::Errno;
use crate::pd::{self, Pd};
use crate::port;
use crate::slab::{Handle, Held};

/// A context of librdmacm and its domain: one for each device, opened when an identifier needs it. A child of fork(2) has its own.
struct Shared {
    process: u32,
    device: usize,
    context: Handle<Context>,
    pd: Handle<Pd>,
}

static SHARED: Mutex<Vec<Shared>> = Mutex::new(Vec::new());

/// Those that are open.
pub(crate) fn contexts() -> Vec<Held<Context>> {
    lock(&SHARED).iter().filter_map(|shared| shared.context.look().ok()).collect()
}

/// The context of the device with this place in the list.
pub(crate) fn context(device: usize) -> Answer<Handle<Context>> {
    let process = std::process::id();
    let mut all = lock(&SHARED);
    let is_this = |shared: &&Shared| (shared.process, shared.device) == (process, device);
    if let Some(shared) = all.iter().find(is_this).filter(|shared| shared.context.look().is_ok()) {
        return Ok(shared.context);
    }
    let context = context::open(*device::all().get(device).ok_or(Errno::NODEV)?)?;
    let pd = pd::ibv_alloc_pd(context)?;
    all.push(Shared { process, device, context, pd });
    Ok(context)
}

/// The domain of all identifiers on a context for which programs name none.
fn domain(context: Handle<Context>) -> Option<Handle<Pd>> {
    lock(&SHARED).iter().find(|shared| shared.context == context).map(|shared| shared.pd)
}

/// The context of an engine's device.
pub(crate) fn context_of(engine: &Engine) -> Option<Handle<Context>> {
    let found = contexts().into_iter().find(|context| std::ptr::eq(&raw const *context.engine, engine));
    found.map(Held::handle)
}

/// A place in the list of devices, and an address as that device knows it.
pub(crate) type Route = (usize, SocketAddr);

/// The devices on which an address of this host can be listened at.
pub(crate) fn routes_here(addr: SocketAddr) -> Answer<Vec<Route>> {
    if !is_here(addr.ip()) {
        return Err(Errno(libc::EADDRNOTAVAIL));
    }
    let mut routes = Vec::new();
    for (index, device) in device::all().iter().enumerate() {
        let name = &device.look()?.name;
        if fabric::is_local(name) {
            routes.push((index, SocketAddr::new(LOCALHOST, addr.port())));
        } else if side(name).is_none_or(|side| side == addr.ip() || addr.ip().is_unspecified()) {
            routes.push((index, addr));
        }
    }
    if routes.is_empty() { Err(Errno::NODEV) } else { Ok(routes) }
}

/// A place in the list of devices, and the address of this host from which that device leads somewhere.
type Start = (usize, IpAddr);

/// The first device that leads to an address, from the address that is said; else from that of the system's route, if a device
/// has it, or from the device's own. A device that keeps to an address goes from that one alone, wherever the route begins.
///
/// # Errors
/// [`Errno::NODEV`] if none does, and what the system says when it has no route.
pub(crate) fn way_to(peer: IpAddr, from: Option<IpAddr>) -> Answer<Start> {
    let route = from.map_or_else(|| source(None, peer), Ok);
    for (index, device) in device::all().iter().enumerate() {
        let name = &device.look()?.name;
        let leads = match (fabric::is_local(name), side(name)) {
            (true, _) => is_here(peer),
            (false, side) => side.is_none_or(|side| route == Ok(side)),
        };
        if leads {
            return Ok((index, route?));
        }
    }
    for (index, device) in device::all().iter().enumerate().filter(|_| from.is_none()) {
        if let Some(side) = side(&device.look()?.name).filter(|side| source(Some(*side), peer).is_ok()) {
            return Ok((index, side));
        }
    }
    remark(format_args!(
        "no device leads to {peer}: shm reaches this host alone; for others nicety run --device iwarp@ADDRESS"
    ));
    Err(route.err().unwrap_or(Errno::NODEV))
}

/// An address as an engine's device knows it, which leads there.
pub(crate) fn as_known(engine: &Engine, peer: SocketAddr) -> SocketAddr {
    if engine.is_local { SocketAddr::new(LOCALHOST, peer.port()) } else { peer }
}

const LOCALHOST: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// Whether an address is one of this host: the system lets one bind it.
fn is_here(ip: IpAddr) -> bool {
    ip.is_loopback() || ip.is_unspecified() || UdpSocket::bind((ip, 0)).is_ok()
}

/// The address of this host from which another is reached, as the system's routes have it, from this one if it is said.
fn source(from: Option<IpAddr>, peer: IpAddr) -> Answer<IpAddr> {
    let any: IpAddr =
        if peer.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let find = || {
        let socket = UdpSocket::bind((from.unwrap_or(any), 0))?;
        // Nothing is sent.
        socket.connect((peer, 1))?;
        socket.local_addr()
    };
    let found =
        find().map_err(|why: std::io::Error| Errno(why.raw_os_error().unwrap_or(libc::EHOSTUNREACH)))?;
    Ok(found.ip())
}

/// A socket address as C lays it out.
pub(crate) fn storage(addr: SocketAddr) -> sockaddr_storage {
    let loan = Loan::address(addr);
    // SAFETY: a loan is at least as long, and any bytes are such an address. Test: `connections_are_made_by_addresses` in
    // tests/programs.rs.
    unsafe { loan.as_ptr().cast::<sockaddr_storage>().read_unaligned() }
}

/// Shows both addresses, and the device with its domain: programs make their own queues in that.
pub(crate) fn show(id: Held<CmId>, state: &State) {
    let (local, peer) = (state.local.map(storage), state.peer.map(storage));
    let context = Context::address(state.context);
    let pd = domain(state.context).unwrap_or(Handle::NULL);
    let [sgid, dgid] = gids(state);
    id.show(|seen| {
        local.into_iter().for_each(|addr| seen.route.addr.src_storage = addr);
        peer.into_iter().for_each(|addr| seen.route.addr.dst_storage = addr);
        (seen.route.addr.addr.sgid, seen.route.addr.addr.dgid) = (sgid, dgid);
        if !state.context.is_null() {
            seen.route.addr.addr.pkey = port::PKEY.to_be();
            seen.verbs = context;
            seen.port_num = 1;
            if seen.pd.is_null() {
                seen.pd = pd.cast();
            }
        }
    });
}

/// The GIDs of both ends, as RoCE makes them of IP addresses (IBA annex A17.8), once the device is known.
fn gids(state: &State) -> [ibv_gid; 2] {
    let known = |addr: Option<SocketAddr>| addr.filter(|_| !state.context.is_null());
    [state.local, state.peer]
        .map(|addr| known(addr).map(|addr| address::of_ip(addr.ip())).unwrap_or_default())
}

/// Makes a path record for an identifier whose ends are known, and shows it. RNICs of iWARP have none (rdma_resolve_route(3)).
pub(crate) fn show_path(id: Held<CmId>, state: &mut State) {
    if device::kind() == device::Kind::Rnic {
        return;
    }
    let mut path = Box::new(path_record(gids(state), state.ack_timeout));
    let address = std::ptr::from_mut(&mut *path);
    state.path = Some(path);
    id.show(|seen| (seen.route.path_rec, seen.route.num_paths) = (address.cast(), 1));
}

/// What a value of a path record is said to be: exactly this one (IBA 15.2.5.16).
const EXACTLY: u8 = 2;
/// How long a packet lives: 4.096 us times 2 to the power of 18, a second, which RDMA-CM takes for RoCE.
const LIFE: u8 = 18;

/// The only path between two ends. A program that has said how long an acknowledgement may take gets half of it for each way.
fn path_record([sgid, dgid]: [ibv_gid; 2], ack_timeout: u8) -> ibv_sa_path_rec {
    ibv_sa_path_rec {
        dgid,
        sgid,
        dlid: 0,
        slid: 0,
        raw_traffic: 0,
        flow_label: 0,
        hop_limit: 64,
        traffic_class: 0,
        reversible: 1,
        numb_path: 1,
        pkey: port::PKEY.to_be(),
        sl: 0,
        mtu_selector: EXACTLY,
        mtu: n::IBV_MTU_4096 as u8,
        rate_selector: EXACTLY,
        rate: port::RATE,
        packet_life_time_selector: EXACTLY,
        packet_life_time: if ack_timeout == 0 { LIFE } else { ack_timeout - 1 },
        preference: 0,
    }
}

/// Lists that programs have not given back.
static LISTS: Mutex<Vec<Box<[Handle<Context>]>>> = Mutex::new(Vec::new());

/// The contexts of all devices that can be opened, and NULL behind them.
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
    let at = lists.iter().position(|known| known.as_ptr().addr() == list.addr()).ok_or(Errno::INVAL)?;
    lists.swap_remove(at);
    Ok(())
}
