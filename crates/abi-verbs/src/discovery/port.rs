//! The attributes of a device and its one port, with the GID and P_Key tables.

use std::ffi::c_int;
use std::sync::atomic::Ordering;

use ffi::Out;
use rdma_abi::numbers as n;
use rdma_abi::verbs::*;
use verbs::{AtomicCap, DeviceAttr};

use crate::address;
use crate::answer::Answer;
use crate::discovery::device::{self, DeviceKind, chars, guid};
use crate::discovery::interface;
use crate::engine;
use crate::errno::{Errno, errno, missing};
use crate::objects::{Context, Pd};
use crate::resources::ah::Ah;
use crate::slab::{Handle, Held, Object};

/// The default partition, with full membership.
pub(crate) const PKEY: u16 = 0xffff;

/// The capability flags of a port.
pub(crate) const CAPABILITIES: u32 = n::IBV_PORT_CM_SUP | n::IBV_PORT_IP_BASED_GIDS;

/// The only hardware version so far.
pub(crate) const HW_VERSION: u32 = 0;

/// The vendor ID: nonzero, since programs recognise a device by that. The letters NCY, an OUI that is not assigned.
const VENDOR: u32 = u32::from_be_bytes(*b"\0NCY");

fn count(count: u32) -> c_int {
    count.try_into().unwrap_or(c_int::MAX)
}

fn attributes(context: Held<Context>) -> Answer<ibv_device_attr> {
    let guid = guid(&context.device.lookup()?.name);
    let attr: &DeviceAttr = &fabric::reported_attr(&context.engine.device);
    let atomic = match attr.atomic_cap {
        AtomicCap::None => n::IBV_ATOMIC_NONE,
        // Like cards, although the atomicity may include processors: UCX and others check for this value.
        AtomicCap::Hca | AtomicCap::Global => n::IBV_ATOMIC_HCA,
    };
    let windows = match attr.regions.max_mw {
        0 => 0,
        _ => n::IBV_DEVICE_MEM_WINDOW | n::IBV_DEVICE_MEM_WINDOW_TYPE_2B,
    };
    let (sge, reads) = (count(attr.max_sge), count(attr.max_rd_atomic));
    Ok(ibv_device_attr {
        fw_ver: chars(env!("CARGO_PKG_VERSION")),
        node_guid: guid,
        sys_image_guid: guid,
        max_mr_size: attr.max_mr_size,
        page_size_cap: 4096,
        vendor_id: VENDOR,
        vendor_part_id: 0,
        hw_ver: HW_VERSION,
        max_qp: count(attr.max_qp),
        max_qp_wr: count(attr.max_qp_wr),
        device_cap_flags: n::IBV_DEVICE_RC_RNR_NAK_GEN | n::IBV_DEVICE_SYS_IMAGE_GUID | windows,
        max_sge: sge,
        max_sge_rd: sge,
        max_cq: count(attr.max_cq),
        max_cqe: count(attr.max_cqe),
        max_mr: count(attr.max_mr),
        max_pd: <Pd as Object>::PLACES as c_int,
        max_qp_rd_atom: reads,
        max_ee_rd_atom: 0,
        max_res_rd_atom: reads.saturating_mul(count(attr.max_qp)),
        max_qp_init_rd_atom: reads,
        max_ee_init_rd_atom: 0,
        atomic_cap: atomic as c_int,
        max_ee: 0,
        max_rdd: 0,
        max_mw: count(attr.regions.max_mw),
        max_raw_ipv6_qp: 0,
        max_raw_ethy_qp: 0,
        max_mcast_grp: 0,
        max_mcast_qp_attach: 0,
        max_total_mcast_qp_attach: 0,
        max_ah: <Ah as Object>::PLACES as c_int,
        max_fmr: 0,
        max_map_per_fmr: 0,
        max_srq: count(attr.max_srq),
        max_srq_wr: count(attr.max_srq_wr),
        max_srq_sge: sge,
        max_pkeys: 1,
        local_ca_ack_delay: 0,
        phys_port_cnt: 1,
    })
}

pub(crate) fn ibv_query_device(context: Handle<Context>, attr: Out<ibv_device_attr>) -> Answer {
    let found = attributes(context.lookup()?)?;
    attr.required_or(|| missing("device_attr"))?.set(found);
    Ok(())
}

/// The attributes in the size that the program was compiled with: newer programs have more fields, older ones fewer.
pub(crate) fn query_device_ex(context: Handle<Context>, place: *mut u8, size: usize) -> Answer {
    let context = context.lookup()?;
    let found = ibv_device_attr_ex {
        orig_attr: attributes(context)?,
        odp_caps: odp_caps(context.engine.device.attr()),
        max_dm_size: context.engine.device.attr().max_dm_size,
        phys_port_cnt_ex: 1,
        ..zeroed()
    };
    copy_truncated(&found, size_of_val(&found), place, size)
}

/// What regions on demand can be used for.
fn odp_caps(attr: &DeviceAttr) -> ibv_odp_caps {
    if !attr.regions.on_demand {
        return ibv_odp_caps { general_caps: 0, per_transport_caps: [0; 3] };
    }
    let implicit = if attr.implicit_mr.is_some() { n::IBV_ODP_SUPPORT_IMPLICIT } else { 0 };
    let datagrams = n::IBV_ODP_SUPPORT_SEND | n::IBV_ODP_SUPPORT_RECV;
    let all = datagrams
        | n::IBV_ODP_SUPPORT_WRITE
        | n::IBV_ODP_SUPPORT_READ
        | n::IBV_ODP_SUPPORT_ATOMIC
        | n::IBV_ODP_SUPPORT_SRQ_RECV;
    // RC, UC and UD; the device has no UC.
    ibv_odp_caps {
        general_caps: u64::from(n::IBV_ODP_SUPPORT | implicit),
        per_transport_caps: [all, 0, datagrams],
    }
}

/// Extended attributes, all zero.
fn zeroed() -> ibv_device_attr_ex {
    // SAFETY: numbers and arrays of numbers, which may be zero. Test: `a_device_is_described` in tests/programs.rs.
    unsafe { std::mem::zeroed() }
}

/// Copies as much of a structure as fits, and zeroes the rest of the program's buffer: programs compiled with other header versions
/// have more or fewer fields. `end` is where its last field ends: padding behind that has no defined value, and a field of a later
/// version may be there.
fn copy_truncated<T: Copy>(found: &T, end: usize, place: *mut u8, size: usize) -> Answer {
    if place.is_null() {
        return Err(missing("the place of the result"));
    }
    // SAFETY: the program states the size of its buffer; the structure is plain numbers. Test: as above.
    unsafe {
        std::ptr::write_bytes(place, 0, size);
        std::ptr::copy_nonoverlapping(
            std::ptr::from_ref(found).cast::<u8>(),
            place,
            size.min(end.min(size_of::<T>())),
        );
    }
    Ok(())
}

/// Checks the port number: the only port is 1.
fn check_port(port: u32) -> Answer {
    if port == 1 { Ok(()) } else { Err(errno!(INVAL, "port_num is {port}, but the device has only port 1")) }
}

/// Width and speed of a port with four lanes at 25 Gb/s; there is no physical link.
const WIDTH_4X: u8 = 2;
const SPEED_EDR: u8 = 32;
pub(crate) const LINK_UP: u8 = 5;
/// The rate for that width and speed in path records: `IBV_RATE_100_GBPS`.
pub(crate) const RATE: u8 = 16;

pub(crate) fn query(context: Handle<Context>, port: u8, place: *mut u8, size: usize) -> Answer {
    let context = context.lookup()?;
    check_port(port.into())?;
    let attr = context.engine.device.attr();
    let is_down = context.engine.is_port_down.load(Ordering::Relaxed);
    let found = ibv_port_attr {
        state: if is_down { n::IBV_PORT_DOWN } else { n::IBV_PORT_ACTIVE } as c_int,
        max_mtu: n::IBV_MTU_4096 as c_int,
        active_mtu: n::IBV_MTU_4096 as c_int,
        gid_tbl_len: context.engine.gids.len() as c_int,
        port_cap_flags: CAPABILITIES,
        max_msg_sz: attr.max_msg_size.try_into().unwrap_or(u32::MAX),
        bad_pkey_cntr: 0,
        qkey_viol_cntr: 0,
        pkey_tbl_len: 1,
        lid: address::lid(context.engine.pairing.addr()),
        sm_lid: 0,
        lmc: 0,
        max_vl_num: 1,
        sm_sl: 0,
        subnet_timeout: 0,
        init_type_reply: 0,
        active_width: WIDTH_4X,
        active_speed: SPEED_EDR,
        phys_state: LINK_UP,
        link_layer: n::IBV_LINK_LAYER_ETHERNET as u8,
        flags: 0,
        port_cap_flags2: 0,
    };
    let end = std::mem::offset_of!(ibv_port_attr, port_cap_flags2) + size_of_val(&found.port_cap_flags2);
    copy_truncated(&found, end, place, size)
}

/// The size of the attributes of `ibv_query_port@IBVERBS_1.1`, which programs get by dlsym(3) and those built before 2018 call: they
/// end with `flags` (`struct _compat_ibv_port_attr` in rdma-core). The inline function of `verbs.h` passes its own size instead.
const OLD_PORT_ATTR: usize = std::mem::offset_of!(ibv_port_attr, port_cap_flags2);

pub(crate) fn ibv_query_port(
    context: Handle<Context>,
    port_num: u8,
    port_attr: Out<ibv_port_attr>,
) -> Answer {
    query(context, port_num, std::ptr::with_exposed_provenance_mut(port_attr.addr()), OLD_PORT_ATTR)
}

/// The GID at this index.
pub(crate) fn gid(context: Held<Context>, port: u32, index: u32) -> Answer<ibv_gid> {
    check_port(port)?;
    context.engine.gid_at(index as usize).ok_or_else(|| {
        let count = context.engine.gids.len();
        errno!(INVAL, "index is {index}, but the GID table has {count} entries (ibv_port_attr.gid_tbl_len)")
    })
}

pub(crate) fn ibv_query_gid(
    context: Handle<Context>,
    port_num: u8,
    index: i32,
    place: Out<ibv_gid>,
) -> Answer {
    let index =
        u32::try_from(index).map_err(|_| errno!(INVAL, "index is {index}; the GID table begins at 0"))?;
    let found = gid(context.lookup()?, port_num.into(), index)?;
    place.required_or(|| missing("gid"))?.set(found);
    Ok(())
}

/// The type of the GID table's entries: the kernel's number, the text in `gid_attrs/types`, and the result of [`ibv_query_gid_type`].
pub(crate) fn gid_kind() -> (u32, &'static str, i32) {
    match device::device_kind() {
        DeviceKind::Hca => (n::IBV_GID_TYPE_ROCE_V2, "RoCE v2", 1),
        DeviceKind::Rnic => (n::IBV_GID_TYPE_IB, "IB/RoCE v1", 0),
    }
}

pub(crate) fn ibv_query_gid_type(
    context: Handle<Context>,
    port_num: u8,
    index: u32,
    kind: Out<i32>,
) -> Answer {
    gid(context.lookup()?, port_num.into(), index)?;
    kind.required_or(|| missing("type"))?.set(gid_kind().2);
    Ok(())
}

/// The index of the network interface of all GID table entries; 0 if there is none.
fn interface_of(context: Held<Context>) -> Answer<u32> {
    let interface = interface::name_of(engine::side(&context.device.lookup()?.name));
    Ok(interface.and_then(|name| interface::index(&name)).unwrap_or(0))
}

fn entry(gid: ibv_gid, gid_index: u32, ndev_ifindex: u32) -> ibv_gid_entry {
    ibv_gid_entry { gid, gid_index, port_num: 1, gid_type: gid_kind().0, ndev_ifindex }
}

pub(crate) fn _ibv_query_gid_ex(
    context: Handle<Context>,
    port_num: u32,
    gid_index: u32,
    place: Out<ibv_gid_entry>,
    flags: u32,
    entry_size: usize,
) -> Answer {
    let context = context.lookup()?;
    let gid = gid(context, port_num, gid_index)?;
    if gid == ibv_gid::default() {
        return Err(errno!(
            NODATA,
            "GID {gid_index} has vanished: the port has lost this address (IBV_EVENT_GID_CHANGE)"
        ));
    }
    if flags != 0 || entry_size == 0 {
        return Err(errno!(
            INVAL,
            "flags is {flags} and entry_size {entry_size}; pass 0, and the size of an ibv_gid_entry"
        ));
    }
    let found = entry(gid, gid_index, interface_of(context)?);
    copy_truncated(
        &found,
        size_of_val(&found),
        std::ptr::with_exposed_provenance_mut(place.addr()),
        entry_size,
    )
}

/// Returns the number of entries, or a negative error number.
pub(crate) fn _ibv_query_gid_table(
    context: Handle<Context>,
    entries: Out<ibv_gid_entry>,
    max_entries: usize,
    flags: u32,
    entry_size: usize,
) -> isize {
    let table = || {
        let context = context.lookup()?;
        let gids = &context.engine.gids;
        if flags != 0 || entry_size == 0 || max_entries < gids.len() {
            return Err(errno!(
                INVAL,
                "max_entries is {max_entries}, but the GID table has {} entries",
                gids.len()
            ));
        }
        let place: *mut u8 =
            std::ptr::with_exposed_provenance_mut(entries.required_or(|| missing("entries"))?.addr());
        let interface = interface_of(context)?;
        let there = (0..gids.len()).filter_map(|index| Some((index, context.engine.gid_at(index)?)));
        let there: Vec<_> = there.filter(|(_, gid)| *gid != ibv_gid::default()).collect();
        for (at, (index, gid)) in there.iter().enumerate() {
            let at = place.wrapping_add(at.wrapping_mul(entry_size));
            copy_truncated(
                &entry(*gid, *index as u32, interface),
                size_of::<ibv_gid_entry>(),
                at,
                entry_size,
            )?;
        }
        Ok(there.len() as isize)
    };
    table().unwrap_or_else(|why: Errno| {
        why.report("ibv_query_gid_table");
        -(why.0 as isize)
    })
}

pub(crate) fn ibv_query_pkey(context: Handle<Context>, port_num: u8, index: i32, pkey: Out<u16>) -> Answer {
    context.lookup()?;
    check_port(port_num.into())?;
    if index != 0 {
        return Err(errno!(INVAL, "index is {index}, but the P_Key table has only entry 0"));
    }
    pkey.required_or(|| missing("pkey"))?.set(PKEY);
    Ok(())
}

/// The index of a P_Key in network byte order, or -1.
pub(crate) fn ibv_get_pkey_index(context: Handle<Context>, port_num: u8, pkey: u16) -> i32 {
    let is_ours = context.lookup().is_ok() && check_port(port_num.into()).is_ok() && pkey == PKEY;
    if is_ours { 0 } else { -1 }
}
