//! Who can be reached: the GID and the LID of a port are where its context listens for pairs.
//!
//! A GID is `fe80::` with an IPv4 address, a port and a tag that tells a process from those before it at the same port. On shm, whose
//! ends are of one host, a LID leads there as well: it is the port's number among the dynamic ones.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use rdma_abi::verbs::{ibv_ah_attr, ibv_gid};

use crate::answer::Answer;
use crate::errno::Errno;

const PREFIX: [u8; 8] = [0xfe, 0x80, 0, 0, 0, 0, 0, 0];
/// The port before the first dynamic one (RFC 6335), so that the first LID is 1.
const BEFORE_FIRST: u16 = 49_151;

/// The GID of who listens there; IPv6 has no room in one.
pub(crate) fn gid(addr: SocketAddr, tag: u16) -> Option<ibv_gid> {
    let IpAddr::V4(ip) = addr.ip() else { return None };
    let mut raw = [0; 16];
    raw[..8].copy_from_slice(&PREFIX);
    raw[8..12].copy_from_slice(&ip.octets());
    raw[12..14].copy_from_slice(&addr.port().to_be_bytes());
    raw[14..].copy_from_slice(&tag.to_be_bytes());
    Some(ibv_gid { raw })
}

/// The LID of who listens there; 0, which is none, where that is no dynamic port of this host.
pub(crate) fn lid(addr: SocketAddr) -> u16 {
    if addr.ip().is_loopback() { addr.port().saturating_sub(BEFORE_FIRST) } else { 0 }
}

/// What librdmacm has a program say of a queue pair that it connects by itself: a GID that leads nowhere.
pub(crate) fn by_librdmacm() -> ibv_gid {
    gid(NOWHERE, 0).unwrap_or_default()
}

/// Whether an address vector is that of a queue pair which librdmacm connects.
pub(crate) fn is_by_librdmacm(vector: &ibv_ah_attr) -> bool {
    destination(vector) == Ok(NOWHERE)
}

const NOWHERE: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);

/// Where the address vector of a queue pair leads.
///
/// # Errors
/// [`Errno::INVAL`] for what is neither a GID nor a LID of ours.
pub(crate) fn destination(vector: &ibv_ah_attr) -> Answer<SocketAddr> {
    if vector.is_global == 0 {
        let port = vector.dlid.checked_add(BEFORE_FIRST).filter(|_| vector.dlid != 0).ok_or(Errno::INVAL)?;
        return Ok(SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
    }
    let [prefix @ .., a, b, c, d, high, low, _, _] = vector.grh.dgid.raw;
    if prefix != PREFIX {
        return Err(Errno::INVAL);
    }
    Ok(SocketAddr::from(([a, b, c, d], u16::from_be_bytes([high, low]))))
}

#[cfg(test)]
mod tests {
    use rdma_abi::verbs::ibv_global_route;

    use super::*;

    fn vector(gid: Option<ibv_gid>, dlid: u16) -> ibv_ah_attr {
        let route =
            |dgid| ibv_global_route { dgid, flow_label: 0, sgid_index: 0, hop_limit: 1, traffic_class: 0 };
        let (grh, is_global) = (route(gid.unwrap_or_default()), gid.is_some().into());
        ibv_ah_attr { grh, dlid, sl: 0, src_path_bits: 0, static_rate: 0, is_global, port_num: 1 }
    }

    #[test]
    fn a_gid_and_a_lid_lead_back_to_where_they_are_from() {
        let addr: SocketAddr = "10.1.2.3:50000".parse().expect("an address");
        let gid = gid(addr, 0x1234).expect("IPv4");
        assert_eq!(destination(&vector(Some(gid), 0)), Ok(addr));
        assert_eq!(lid(addr), 0, "another host has the same ports");
        let here: SocketAddr = "127.0.0.1:65535".parse().expect("an address");
        assert_eq!((lid(here), destination(&vector(None, lid(here)))), (16384, Ok(here)));
        for bad in [vector(None, 0), vector(None, u16::MAX), vector(Some(ibv_gid::default()), 1)] {
            assert_eq!(destination(&bad), Err(Errno::INVAL));
        }
        assert!(is_by_librdmacm(&vector(Some(by_librdmacm()), 0)));
        assert!(!is_by_librdmacm(&vector(Some(gid), 0)) && !is_by_librdmacm(&vector(None, 1)));
        assert_eq!(super::gid("[::1]:50000".parse().expect("an address"), 0), None);
    }
}
