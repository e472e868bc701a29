//! The fields of an identifier that C sees: addresses, device, protection domain and path.

use std::net::SocketAddr;

use ffi::CBuffer;
use libc::sockaddr_storage;
use rdma_abi::numbers as n;
use rdma_abi::verbs::{ibv_gid, ibv_sa_path_rec};

use crate::address;
use crate::cm::shared::domain;
use crate::discovery::{device, port};
use crate::objects::{CmId, CmIdState, Context};
use crate::slab::{Handle, Held};

/// A socket address in C's layout.
pub(crate) fn storage(addr: SocketAddr) -> sockaddr_storage {
    let buffer = CBuffer::address(addr);
    // SAFETY: a buffer is at least this long, and any bytes are a valid address. Test: `connections_are_made_by_addresses` in
    // tests/programs.rs.
    unsafe { buffer.as_ptr().cast::<sockaddr_storage>().read_unaligned() }
}

/// Updates the visible addresses, device and protection domain; programs create their own queues in that domain.
pub(crate) fn write_id(id: Held<CmId>, state: &CmIdState) {
    let (local, peer) = (state.local.map(storage), state.peer.map(storage));
    let context = Context::address(state.context);
    let pd = domain(state.context).unwrap_or(Handle::NULL);
    let [sgid, dgid] = gids(state);
    id.update_c(|seen| {
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

/// The GIDs of both ends, as RoCE derives them from IP addresses (IBA annex A17.8), once the device is known.
fn gids(state: &CmIdState) -> [ibv_gid; 2] {
    let known = |addr: Option<SocketAddr>| addr.filter(|_| !state.context.is_null());
    [state.local, state.peer]
        .map(|addr| known(addr).map(|addr| address::gid_of_ip(addr.ip())).unwrap_or_default())
}

/// Creates and shows a path record for an identifier whose ends are known. iWARP RNICs have none (rdma_resolve_route(3)).
pub(crate) fn write_path(id: Held<CmId>, state: &mut CmIdState) {
    if device::device_kind() == device::DeviceKind::Rnic {
        return;
    }
    let mut path = Box::new(path_record(gids(state), state.ack_timeout));
    let address = std::ptr::from_mut(&mut *path);
    state.path = Some(path);
    id.update_c(|seen| (seen.route.path_rec, seen.route.num_paths) = (address.cast(), 1));
}

/// Selector of a path record: the value is exact (IBA 15.2.5.16).
const EXACTLY: u8 = 2;
/// Packet lifetime: 4.096 us * 2^18, one second, as RDMA-CM assumes for RoCE.
const LIFE: u8 = 18;

/// The only path between two ends. If the program has set an acknowledgement timeout, the packet lifetime is half of it.
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
