//! Addressing: the GIDs and the LID of a port, and the destination of an address vector.
//!
//! A port has the GIDs that cards have for RoCE v2. The first is link-local: here `fe80::` with an IPv4 address, the port at which the
//! process listens for pairs, and a tag that distinguishes the process from earlier ones at the same port. The second is the IPv4
//! address itself, as `::ffff:a.b.c.d`. It identifies the host, and the queue pair number identifies the process ([`verbs::pairing`]).
//! A port with an IPv6 address has only that address. On shm, where both ends are on one host, a LID identifies a process as well: it
//! is the port's number among the dynamic ones.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use rdma_abi::verbs::{ibv_ah_attr, ibv_gid};
use verbs::pairing;

use crate::answer::Answer;
use crate::errno::{Errno, errno};

const PREFIX: [u8; 8] = [0xfe, 0x80, 0, 0, 0, 0, 0, 0];
/// The port before the first dynamic one (RFC 6335), so that the first LID is 1.
const BEFORE_FIRST: u16 = 49_151;

/// The GIDs of the process that listens at `addr`, in the order of the port's table; `encodes_port` as
/// [`pairing::Pairing::encodes_port`].
pub(crate) fn gids(addr: SocketAddr, tag: u16, encodes_port: bool) -> Vec<ibv_gid> {
    let by_number = encodes_port.then(|| gid_of_ip(addr.ip()));
    link_local(addr, tag).into_iter().chain(by_number).collect()
}

/// The link-local GID of the process that listens at `addr`; `None` for IPv6, which does not fit into one.
fn link_local(addr: SocketAddr, tag: u16) -> Option<ibv_gid> {
    let IpAddr::V4(ip) = addr.ip() else { return None };
    let mut raw = [0; 16];
    raw[..8].copy_from_slice(&PREFIX);
    raw[8..12].copy_from_slice(&ip.octets());
    raw[12..14].copy_from_slice(&addr.port().to_be_bytes());
    raw[14..].copy_from_slice(&tag.to_be_bytes());
    Some(ibv_gid { raw })
}

/// The GID of an IP address as RoCE v2 cards have it and as librdmacm reports it for a connection: IPv4 is mapped (RFC 4291, 2.5.5.2).
pub(crate) fn gid_of_ip(ip: IpAddr) -> ibv_gid {
    let ip = match ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    };
    ibv_gid { raw: ip.octets() }
}

/// Whether a GID is link-local. Such a GID of ours identifies a process.
pub(crate) fn is_link_local(gid: &ibv_gid) -> bool {
    gid.raw.starts_with(&PREFIX)
}

/// The LID of the process that listens at `addr`; 0 (no LID) if this is not a dynamic port of 127.0.0.1, to which LIDs lead.
pub(crate) fn lid(addr: SocketAddr) -> u16 {
    if addr.ip() == IpAddr::V4(Ipv4Addr::LOCALHOST) { addr.port().saturating_sub(BEFORE_FIRST) } else { 0 }
}

/// The destination of an address vector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AhDestination {
    /// The process that listens at this address.
    Process(SocketAddr),
    /// A host: the queue pair number identifies the process.
    Host(IpAddr),
}

impl std::fmt::Display for AhDestination {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Process(addr) => addr.fmt(f),
            Self::Host(ip) => ip.fmt(f),
        }
    }
}

impl AhDestination {
    /// Decodes the destination of an address vector.
    ///
    /// # Errors
    /// [`Errno::INVAL`] if it is neither a GID nor a LID of ours.
    pub(crate) fn decode(vector: &ibv_ah_attr) -> Answer<Self> {
        if vector.is_global == 0 {
            let port = vector.dlid.checked_add(BEFORE_FIRST).filter(|_| vector.dlid != 0);
            let port = port.ok_or_else(|| {
                errno!(
                    INVAL,
                    "ah_attr.is_global is 0 and ah_attr.dlid is {}, which is no LID of this library's; between hosts ports have none: \
                     exchange GIDs and set is_global and grh.dgid (option -g 0 of the programs of ibverbs-utils)",
                    vector.dlid
                )
            })?;
            return Ok(Self::Process(SocketAddr::from((Ipv4Addr::LOCALHOST, port))));
        }
        let raw = vector.grh.dgid.raw;
        if let [prefix @ .., a, b, c, d, high, low, _, _] = raw
            && prefix == PREFIX
        {
            return Ok(Self::Process(SocketAddr::from(([a, b, c, d], u16::from_be_bytes([high, low])))));
        }
        let ip = Ipv6Addr::from(raw).to_canonical();
        if ip.is_unspecified() || ip.is_multicast() {
            return Err(errno!(
                INVAL,
                "ah_attr.grh.dgid is {ip}, which is no GID of a port; pass what ibv_query_gid returns at the peer"
            ));
        }
        Ok(Self::Host(ip))
    }

    /// The listening address of the process that has the queue pair with this number.
    ///
    /// # Errors
    /// [`Errno::INVAL`] for a number that identifies no process.
    pub(crate) fn process_of(self, qp_num: u32) -> Answer<SocketAddr> {
        match self {
            Self::Process(addr) => Ok(addr),
            Self::Host(ip) => {
                Ok(SocketAddr::new(ip, pairing::port_of(qp_num).ok_or_else(|| nobody(ip, qp_num))?))
            }
        }
    }
}

/// The error of a queue pair number that identifies no process of a host.
#[cold]
fn nobody(ip: IpAddr, qp_num: u32) -> Errno {
    errno!(
        INVAL,
        "queue pair number {qp_num:#x} names no process of {ip}; pass the ibv_qp.qp_num that the peer has sent, unchanged"
    )
}

/// A placeholder GID that reaches nothing: librdmacm fills it into the attributes of a queue pair that it connects itself.
pub(crate) fn placeholder_gid() -> ibv_gid {
    link_local(NOWHERE, 0).unwrap_or_default()
}

/// Whether an address vector holds the placeholder of a queue pair that librdmacm connects.
pub(crate) fn is_placeholder(vector: &ibv_ah_attr) -> bool {
    AhDestination::decode(vector) == Ok(AhDestination::Process(NOWHERE))
}

const NOWHERE: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);

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

    /// The destination of a GID or a LID, with a queue pair number.
    fn resolve(gid: Option<ibv_gid>, dlid: u16, qp_num: u32) -> Answer<SocketAddr> {
        AhDestination::decode(&vector(gid, dlid))?.process_of(qp_num)
    }

    fn addr(text: &str) -> SocketAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn gids_and_a_lid_lead_back_to_where_they_are_from() {
        let here = addr("10.1.2.3:61440");
        let found = gids(here, 0x1234, true);
        assert_eq!(Ipv6Addr::from(found[1].raw).to_string(), "::ffff:10.1.2.3");
        assert_eq!(found.len(), 2);
        // The number of the first queue pair of the process that listens at the first port.
        let first = 1 << 13;
        assert!(found.iter().all(|gid| resolve(Some(*gid), 0, first) == Ok(here)));
        assert_eq!(
            (resolve(Some(found[0]), 0, 5), resolve(Some(found[1]), 0, 5)),
            (Ok(here), Err(Errno::INVAL))
        );
        assert_eq!(gids(here, 0x1234, false), [found[0]]);
        let six = addr("[fd00::1]:61440");
        assert_eq!((gids(six, 0, true), gids(six, 0, false)), (vec![gid_of_ip(six.ip())], vec![]));
        assert_eq!(resolve(Some(gid_of_ip(six.ip())), 0, first), Ok(six));
        assert_eq!(lid(here), 0, "another host has the same ports");
        assert_eq!(lid(addr("127.0.0.2:61440")), 0, "LIDs lead to 127.0.0.1");
        let here = addr("127.0.0.1:65535");
        assert_eq!((lid(here), resolve(None, lid(here), 5)), (16384, Ok(here)));
        let multicast = gid_of_ip("ff0e::ffff:e000:1".parse().expect("an address"));
        for (gid, dlid) in [(None, 0), (None, u16::MAX), (Some(ibv_gid::default()), 1), (Some(multicast), 0)]
        {
            assert_eq!(resolve(gid, dlid, first), Err(Errno::INVAL));
        }
        assert!(is_placeholder(&vector(Some(placeholder_gid()), 0)));
        assert!(!is_placeholder(&vector(Some(found[0]), 0)) && !is_placeholder(&vector(None, 1)));
    }
}
