//! The attributes of a device, from those of the card and its port.

use std::ffi::c_int;
use std::net::IpAddr;
use std::sync::Arc;

use host::Rate;
use host::real::addresses as addresses_of_host;
use rdma_abi::numbers as n;
use rdma_abi::verbs::ibv_port_attr;
use verbs::{AtomicCap, DeviceAttr, DmAccess, QpCap, RegionCap, Result, WriteOrder};

use crate::card::{Card, port_words};
use crate::gids;
use crate::raw::cm::{CmChannel, CmId};
use crate::raw::context::Context;
use crate::raw::cq::HwCq;
use crate::raw::memory::Domain;
use crate::raw::qp::{HwQp, HwQpInit};

/// Bytes of private data in a connect request. RDMA-CM itself uses 36 of the 92 that InfiniBand has (IBA 12.6.5).
const PRIVATE_DATA_IB: u32 = 56;
/// Bytes of private data on iWARP. MPA has more (RFC 5044, section 7.1), but Linux's siw takes 256 with the 4 of revision 2.
const PRIVATE_DATA_IWARP: u32 = 252;

/// Sizes of inline data that are tried, as verbs cannot be asked for the limit.
const INLINE_SIZES: [u32; 6] = [512, 256, 128, 64, 32, 16];

/// The most elements of a read, which iWARP cards limit to one.
pub(crate) fn max_read_sge(card: &Card) -> Result<u32> {
    Ok(count(card.context.attr()?.max_sge_rd).max(1))
}

fn count(number: c_int) -> u32 {
    u32::try_from(number).unwrap_or(0)
}

/// The attributes of the device that uses this card.
pub(crate) fn attributes(card: &Card, channel: &Arc<CmChannel>) -> Result<DeviceAttr> {
    let (context, attr) = (&card.context, card.context.attr()?);
    let rd_atomic = count(attr.max_qp_rd_atom).min(count(attr.max_qp_init_rd_atom)).min(u8::MAX.into());
    Ok(DeviceAttr {
        max_qp: count(attr.max_qp),
        max_qp_wr: count(attr.max_qp_wr),
        max_sge: count(attr.max_sge),
        max_inline: max_inline(context)?,
        max_cq: count(attr.max_cq),
        max_cqe: count(attr.max_cqe),
        max_mr: count(attr.max_mr),
        max_mr_size: attr.max_mr_size,
        max_msg_size: card.port_attr.max_msg_sz.into(),
        implicit_mr: None,
        max_srq: count(attr.max_srq),
        max_srq_wr: count(attr.max_srq_wr),
        max_private_data: if context.is_iwarp { PRIVATE_DATA_IWARP } else { PRIVATE_DATA_IB },
        firmware: None,
        max_rd_atomic: rd_atomic,
        max_dm_size: 0,
        atomic_cap: match attr.atomic_cap.cast_unsigned() {
            n::IBV_ATOMIC_HCA => AtomicCap::Hca,
            n::IBV_ATOMIC_GLOB => AtomicCap::Global,
            _ => AtomicCap::None,
        },
        atomic_cap_dm: AtomicCap::None,
        // A card may place the parts of a write in any order (relaxed ordering of PCI Express).
        write_order: WriteOrder::None,
        write_order_dm: WriteOrder::None,
        dm_access: DmAccess::None,
        write_notify: false,
        split_receives: false,
        regions: RegionCap::default(),
        maps_peers: false,
        link_rate: link_rate(&card.port_attr),
        ports: 1,
        port_addrs: card.gid.map_or_else(|| addresses(context, channel), |gid| vec![gid.ip()]),
        notes: notes(card),
    })
}

/// The bytes of inline data that a queue pair can have: the largest size with which one can be created.
fn max_inline(context: &Arc<Context>) -> Result<u32> {
    let domain = Domain::new(context)?;
    let cq = Arc::new(HwCq::new(context, 1)?);
    let of = |max_inline| {
        let cap = QpCap { max_send_wr: 1, max_recv_wr: 1, max_send_sge: 1, max_recv_sge: 1, max_inline };
        let (send_cq, recv_cq) = (cq.clone(), cq.clone());
        let parts = HwQpInit { send_cq, recv_cq, srq: None, cap, sq_sig_all: false };
        HwQp::new(&domain, parts).ok().map(|qp| qp.cap.max_inline)
    };
    Ok(INLINE_SIZES.into_iter().find_map(of).unwrap_or(0))
}

/// The link's rate in bytes per second, before the overhead of packets.
fn link_rate(attr: &ibv_port_attr) -> Option<Rate> {
    let lanes = match attr.active_width {
        1 => 1.0,
        2 => 4.0,
        4 => 8.0,
        8 => 12.0,
        16 => 2.0,
        _ => return None,
    };
    // Gbit/s of a lane after its line code (IBA 14.2.5.6).
    let gigabits = match attr.active_speed {
        1 => 2.0,
        2 => 4.0,
        4 => 8.0,
        8 => 10.0,
        16 => 13.64,
        32 => 25.0,
        64 => 50.0,
        128 => 100.0,
        _ => return None,
    };
    Some(Rate(lanes * gigabits * 1e9 / 8.0))
}

/// Bytes of an InfiniBand packet around its data: LRH, BTH, ICRC, VCRC (IBA 5.2).
const IB_OVERHEAD: u64 = 8 + 12 + 4 + 2;
/// Bytes of a packet of RoCE v2 on IPv4 besides its data: preamble, Ethernet, IP, UDP, BTH, ICRC, FCS, the gap to the next packet.
const ROCE_OVERHEAD: u64 = 8 + 14 + 20 + 8 + 12 + 4 + 4 + 12;

/// The rate of data in packets of the link's MTU: what the link carries at most of long messages. `None` on iWARP, whose
/// packets are those of TCP.
fn data_rate(context: &Context, attr: &ibv_port_attr) -> Option<(Rate, u64)> {
    let overhead = match u32::from(attr.link_layer) {
        _ if context.is_iwarp => return None,
        n::IBV_LINK_LAYER_INFINIBAND => IB_OVERHEAD,
        n::IBV_LINK_LAYER_ETHERNET => ROCE_OVERHEAD,
        _ => return None,
    };
    let mtu = mtu_bytes(attr.active_mtu)?;
    Some((without_overhead(link_rate(attr)?, mtu, overhead), mtu))
}

/// The MTU behind a number of `enum ibv_mtu`.
fn mtu_bytes(mtu: c_int) -> Option<u64> {
    (1..=5).contains(&mtu).then(|| 128 << mtu)
}

fn without_overhead(rate: Rate, mtu: u64, overhead: u64) -> Rate {
    Rate(rate.0 * mtu as f64 / (mtu + overhead) as f64)
}

/// The addresses of this host that belong to the card: librdmacm binds an identifier to the card of its address.
fn addresses(context: &Context, channel: &Arc<CmChannel>) -> Vec<IpAddr> {
    if context.calls.is_own {
        // Its devices have any address of the machine.
        return Vec::new();
    }
    let is_ours = |ip: &IpAddr| {
        let bound = CmId::new(channel, 0).and_then(|id| id.bind((*ip, 0).into()).map(|()| id.card()));
        bound.is_ok_and(|card| card.as_deref() == Some(&context.card.name))
    };
    addresses_of_host(None).unwrap_or_default().into_iter().filter(is_ours).collect()
}

fn notes(card: &Card) -> Vec<String> {
    let (context, library) = (&card.context, card.context.calls);
    let whose = if library.is_own { ", which is our own: this is no card" } else { "" };
    let kind = if context.is_iwarp { "iWARP" } else { "InfiniBand or RoCE" };
    let mut notes = vec![
        format!("verbs come from '{}'{whose}", library.file.display()),
        format!("card '{}' ({kind}), port {} {}", context.card.name, card.port, port_words(&card.port_attr)),
        "a poller cannot rely on the order in which a write is placed, as verbs promises none".to_owned(),
    ];
    if let Some((rate, mtu)) = data_rate(context, &card.port_attr) {
        let link = link_rate(&card.port_attr).unwrap_or(rate);
        notes.push(format!(
            "floor of bandwidth: by its attributes the link carries {rate} of data, {link} less headers at MTU {mtu}; \
             software cards invent these attributes"
        ));
    }
    if gids::is_roce(context, &card.port_attr) {
        let table = gids::words(&gids::table(context, card.port, &card.port_attr));
        notes.push(match card.gid {
            Some(gid) => format!("connections use GID {gid}, as the device's name says; the port has {table}"),
            None => {
                format!("the address of a connection selects its GID (hw:NAME@PORT,gid=N chooses); the port has {table}")
            }
        });
    }
    notes
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Expected values: 100 Gbit/s are 12.5 GB/s; of 4178 bytes on the wire 4096 are data.
    #[test]
    fn headers_take_their_share_of_the_link() {
        let rate = without_overhead(Rate(12.5e9), 4096, ROCE_OVERHEAD);
        assert!((rate.0 - 12.5e9 * 4096.0 / 4178.0).abs() < 1.0, "{rate}");
        let short = without_overhead(Rate(12.5e9), 1024, ROCE_OVERHEAD);
        assert!(short.0 < rate.0 && IB_OVERHEAD < ROCE_OVERHEAD);
        assert_eq!(
            (mtu_bytes(0), mtu_bytes(1), mtu_bytes(5), mtu_bytes(6)),
            (None, Some(256), Some(4096), None)
        );
    }
}
