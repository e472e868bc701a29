//! The GID table of a port on RoCE: its entries in words, and the choice of one by its index.
//!
//! librdmacm finds the entry by the address of a connection, and prefers one type where an address has several. A chosen
//! entry fixes both: connections use its address, and queue pairs its index.

use std::fmt;
use std::net::{IpAddr, SocketAddr, SocketAddrV6};

use rdma_abi::numbers as n;
use rdma_abi::verbs::ibv_port_attr;
use verbs::{Error, Result};

use crate::raw::context::{Context, HwGid};

/// An entry with its index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GidEntry {
    pub(crate) index: u8,
    entry: HwGid,
}

impl fmt::Display for GidEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.entry.kind {
            Some(n::IBV_GID_TYPE_ROCE_V2) => ", RoCE v2",
            Some(n::IBV_GID_TYPE_ROCE_V1) => ", RoCE v1",
            Some(_) | None => "",
        };
        write!(f, "{} ({}{kind})", self.index, self.ip())
    }
}

impl GidEntry {
    /// The address in the GID.
    pub(crate) fn ip(&self) -> IpAddr {
        self.entry.gid.to_canonical()
    }

    /// Its address with a port; a link-local one belongs to its interface.
    fn socket_addr(&self, port: u16) -> SocketAddr {
        match self.ip() {
            IpAddr::V6(ip) if ip.is_unicast_link_local() => {
                SocketAddrV6::new(ip, port, 0, self.entry.interface).into()
            }
            ip => SocketAddr::new(ip, port),
        }
    }

    /// The address from which a peer is connected to; the reason if the peer has another family.
    pub(crate) fn source_for(&self, peer: SocketAddr) -> std::result::Result<SocketAddr, String> {
        if self.ip().is_ipv4() == peer.is_ipv4() {
            return Ok(self.socket_addr(0));
        }
        let family = if peer.is_ipv4() { "an IPv4" } else { "an IPv6" };
        Err(format!(
            "the device's name chooses GID {self}, but this is {family} address; choose a GID of this family, or leave gid= out"
        ))
    }

    /// The address at which to listen, for a program that asks for `addr`.
    ///
    /// # Errors
    /// [`Error::Address`] for the address of another entry.
    pub(crate) fn listen_at(&self, addr: SocketAddr) -> Result<SocketAddr> {
        if addr.ip().is_unspecified() || addr.ip() == self.ip() {
            return Ok(self.socket_addr(addr.port()));
        }
        let why = format!("the device's name chooses GID {self}; listen there, or choose another GID");
        Err(Error::Address { addr, why })
    }
}

/// Whether a port has GIDs that are addresses of its interface.
pub(crate) fn is_roce(context: &Context, port: &ibv_port_attr) -> bool {
    !context.is_iwarp && u32::from(port.link_layer) == n::IBV_LINK_LAYER_ETHERNET
}

/// The entries of a port that are not empty.
pub(crate) fn table(context: &Context, port: u8, attr: &ibv_port_attr) -> Vec<GidEntry> {
    let len = u8::try_from(attr.gid_tbl_len).unwrap_or(u8::MAX);
    let entry = |index| context.gid(port, index).map(|entry| GidEntry { index, entry });
    (0..len).filter_map(entry).collect()
}

/// The entries in words.
pub(crate) fn words(table: &[GidEntry]) -> String {
    if table.is_empty() {
        return "no GID: give its interface an IP address, and set it up".to_owned();
    }
    table.iter().map(GidEntry::to_string).collect::<Vec<_>>().join(", ")
}

/// The entry at an index.
///
/// # Errors
/// [`Error::Invalid`], with the entries that exist, for an empty one; and for a port that is not RoCE.
pub(crate) fn choose(context: &Context, port: u8, attr: &ibv_port_attr, index: u8) -> Result<GidEntry> {
    let card = &context.card.name;
    if !is_roce(context, attr) {
        return Err(Error::Invalid(format!(
            "gid= chooses an address of RoCE, and port {port} of card '{card}' is none: there the IP address of a connection \
             selects the way; leave gid= out"
        )));
    }
    let table = table(context, port, attr);
    table.iter().find(|entry| entry.index == index).copied().ok_or_else(|| {
        let there = words(&table);
        Error::Invalid(format!("port {port} of card '{card}' has no GID {index}; it has {there}"))
    })
}

#[cfg(test)]
mod tests {
    use std::net::Ipv6Addr;

    use super::*;

    fn entry(index: u8, gid: &str, kind: u32) -> GidEntry {
        let gid: Ipv6Addr = gid.parse().expect("an address");
        GidEntry { index, entry: HwGid { gid, kind: Some(kind), interface: 3 } }
    }

    #[test]
    fn entries_are_shown_with_address_and_type() {
        let table = [
            entry(0, "fe80::1", n::IBV_GID_TYPE_ROCE_V1),
            entry(3, "::ffff:10.0.0.1", n::IBV_GID_TYPE_ROCE_V2),
        ];
        assert_eq!(words(&table), "0 (fe80::1, RoCE v1), 3 (10.0.0.1, RoCE v2)");
        assert!(words(&[]).contains("IP address"));
    }

    #[test]
    fn connections_begin_at_the_entrys_address() {
        let four = entry(1, "::ffff:10.0.0.1", n::IBV_GID_TYPE_ROCE_V2);
        let peer = |text: &str| text.parse::<SocketAddr>().expect("an address");
        assert_eq!(four.source_for(peer("10.0.0.2:7")), Ok(peer("10.0.0.1:0")));
        let why = four.source_for(peer("[fd00::2]:7")).expect_err("another family");
        assert!(why.contains("GID 1 (10.0.0.1, RoCE v2)") && why.contains("IPv6"), "{why}");
        let local = entry(0, "fe80::1", n::IBV_GID_TYPE_ROCE_V2);
        assert_eq!(local.source_for(peer("[fe80::2%3]:7")), Ok(peer("[fe80::1%3]:0")));
    }

    #[test]
    fn listeners_get_the_entrys_address_and_no_other() {
        let four = entry(1, "::ffff:10.0.0.1", n::IBV_GID_TYPE_ROCE_V2);
        for text in ["0.0.0.0:7", "[::]:7", "10.0.0.1:7"] {
            let at = four.listen_at(text.parse().expect("an address"));
            assert_eq!(at, Ok("10.0.0.1:7".parse().expect("an address")), "{text}");
        }
        let why = four.listen_at("10.0.0.9:7".parse().expect("an address")).expect_err("another address");
        assert!(why.to_string().contains("GID 1 (10.0.0.1, RoCE v2)"), "{why}");
    }
}
