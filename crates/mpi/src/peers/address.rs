//! The address that each process publishes before it can be reached: its host, and the addresses of its listening ports.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use auth::Seed;
use host::nearest;

use crate::error::{Class, Error, Result};

/// The longest fabric of a [`crate::Port`], or name of a node, in bytes.
pub(crate) const NAME_MAX: usize = 100;
/// The most ports of a process, limited by the length of a note.
pub(crate) const PORTS_MAX: usize = 5;
/// The most host addresses that a process publishes, limited likewise.
pub(crate) const ADDRESSES_MAX: usize = 6;

/// The published address of one process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Address {
    /// A text that is the same for all processes of one host, and for no others.
    pub(crate) node: String,
    /// The listening addresses of its ports, each with its fabric: ports reach those of the same fabric.
    pub(crate) ports: Vec<(SocketAddr, String)>,
    /// Addresses of its host, for ports that listen at all addresses.
    pub(crate) addresses: Vec<IpAddr>,
    /// The seed of the challenges that its peers answer to prove their identity.
    pub(crate) seed: Seed,
}

impl Address {
    /// Encodes the address as a note.
    ///
    /// # Errors
    /// [`Class::ARG`] for names that are too long, or have characters that a note cannot hold.
    pub(crate) fn note(&self) -> Result<String> {
        for name in std::iter::once(&self.node).chain(self.ports.iter().map(|(_, fabric)| fabric)) {
            let plain = |c: char| c.is_ascii_graphic() && !matches!(c, ',' | ';' | '\\');
            if name.is_empty() || name.len() > NAME_MAX || !name.chars().all(plain) {
                let text = format!(
                    "'{name}' is not a valid name of a node or a fabric: use 1 to {NAME_MAX} printable characters"
                );
                return Err(Error::new(Class::ARG, text));
            }
        }
        if self.ports.len() > PORTS_MAX {
            return Err(Error::new(Class::ARG, format_args!("a process has at most {PORTS_MAX} ports")));
        }
        let ports = self.ports.iter().map(|(addr, fabric)| format!(",{addr};{fabric}"));
        let addresses = self.addresses.iter().take(ADDRESSES_MAX).map(|address| format!(",{address}"));
        let seed = self.seed.to_hex();
        Ok(format!("{},{seed}{}", self.node, ports.chain(addresses).collect::<String>()))
    }

    /// Parses a note.
    ///
    /// # Errors
    /// [`Class::OTHER`] for text that no process publishes.
    pub(crate) fn parse(note: &str) -> Result<Self> {
        let wrong = || Error::new(Class::OTHER, format_args!("'{note}' is not the address of a process"));
        let mut parts = note.split(',');
        let node = parts.next().filter(|node| !node.is_empty()).ok_or_else(wrong)?.to_owned();
        let seed = parts.next().and_then(Seed::from_hex).ok_or_else(wrong)?;
        let (mut ports, mut addresses) = (Vec::new(), Vec::new());
        for part in parts {
            match part.split_once(';') {
                Some((addr, fabric)) => ports.push((addr.parse().map_err(|_| wrong())?, fabric.to_owned())),
                None => addresses.push(part.parse().map_err(|_| wrong())?),
            }
        }
        if ports.len() > PORTS_MAX || addresses.len() > ADDRESSES_MAX {
            return Err(wrong());
        }
        Ok(Self { node, ports, addresses, seed })
    }

    /// The address at which `other` reaches a port. If the port listens at all addresses of its host, this is the address that
    /// shares the longest prefix with an address of the other's host. Addresses that both hosts have, such as those of local
    /// virtual networks, are skipped unless the two are one host.
    pub(crate) fn reached_from(&self, other: &Self, port: usize) -> Option<SocketAddr> {
        let (addr, _) = self.ports.get(port)?;
        if !addr.ip().is_unspecified() {
            return Some(*addr);
        }
        let leads = |address: &IpAddr| {
            let is_heard = address.is_ipv4() == addr.is_ipv4();
            is_heard && (self.node == other.node || !other.addresses.contains(address))
        };
        let leading: Vec<IpAddr> = self.addresses.iter().copied().filter(leads).collect();
        let best = nearest(&leading, &other.addresses);
        let loopback =
            || if addr.is_ipv6() { IpAddr::V6(Ipv6Addr::LOCALHOST) } else { Ipv4Addr::LOCALHOST.into() };
        Some(SocketAddr::new(best.unwrap_or_else(loopback), addr.port()))
    }
}

/// The ports by which two processes connect, as indices into `ports` of each: the lower rank's first port whose fabric the higher
/// rank also has. Both sides compute the same result.
pub(crate) fn common_ports(lower: &Address, higher: &Address) -> Option<(usize, usize)> {
    lower.ports.iter().enumerate().find_map(|(at, (_, fabric))| {
        Some((at, higher.ports.iter().position(|(_, theirs)| theirs == fabric)?))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seed() -> Seed {
        Seed::from_key(auth::Key::from_bytes([0xab; 16]))
    }

    fn address(node: &str, fabrics: &[&str]) -> Address {
        let port = |(n, fabric): (u16, &&str)| (([10, 0, 0, 1], n).into(), (*fabric).to_owned());
        let ports = (1..).zip(fabrics).map(port).collect();
        Address { node: node.into(), ports, addresses: Vec::new(), seed: seed() }
    }

    #[test]
    fn notes_parse_as_encoded() {
        let mut both = address("a", &["shm/a", "iwarp"]);
        both.ports[1].0 = "[fe80::1]:7".parse().expect("an address");
        assert_eq!(Address::parse(&both.note().expect("plain")), Ok(both));
        let long = "x".repeat(NAME_MAX);
        let mut five = address(&long, &[long.as_str(); PORTS_MAX]);
        five.addresses = vec![[255, 255, 255, 255].into(); ADDRESSES_MAX];
        assert!(five.note().expect("plain").len() <= 900, "a note has room for it");
        assert_eq!(Address::parse(&five.note().expect("plain")), Ok(five));
        for wrong in [
            address("", &[]),
            address("a b", &[]),
            address("a", &["x,y"]),
            address("a", &["x"; PORTS_MAX + 1]),
        ] {
            assert!(wrong.note().is_err(), "{wrong:?}");
        }
        let seed = seed().to_hex();
        assert!(Address::parse(&format!("a,{seed},1.2.3.4")).is_ok());
        for wrong in ["1.2.3", "1.2.3.4:99999;x", "1.2.3.4:1;x,"] {
            assert!(Address::parse(&format!("a,{seed},{wrong}")).is_err(), "{wrong}");
        }
        let short = &seed[1..];
        for wrong in ["", ",", "a", "a,1.2.3.4", &format!("a,{short}"), &format!(",{seed}")] {
            assert!(Address::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_port_is_reached_where_hosts_are_near() {
        let host = |node: &str, addresses: &[[u8; 4]]| {
            let port = ("0.0.0.0:9".parse().expect("an address"), "iwarp".to_owned());
            let addresses = addresses.iter().map(|four| IpAddr::from(*four)).collect();
            Address { node: node.into(), ports: vec![port], addresses, seed: seed() }
        };
        let own = host("a", &[[172, 17, 0, 1], [10, 0, 3, 1], [192, 168, 5, 10]]);
        let reached = |there: &Address| there.reached_from(&own, 0).expect("a port").to_string();
        assert_eq!(
            reached(&host("b", &[[172, 17, 0, 1], [10, 9, 0, 2], [192, 168, 5, 77]])),
            "192.168.5.77:9"
        );
        assert_eq!(reached(&host("b", &[[10, 0, 3, 2], [192, 168, 6, 1]])), "10.0.3.2:9");
        assert_eq!(reached(&host("b", &[[8, 8, 8, 8], [9, 9, 9, 9]])), "8.8.8.8:9", "the first");
        assert_eq!(reached(&host("a", &[[10, 0, 3, 1]])), "10.0.3.1:9", "the own host");
        let mut both = host("a", &[[10, 0, 3, 9]]);
        both.addresses.insert(0, "fd00::2".parse().expect("an address"));
        assert_eq!(both.reached_from(&both, 0).map(|addr| addr.to_string()).as_deref(), Some("10.0.3.9:9"));
        assert_eq!(reached(&host("a", &[])), "127.0.0.1:9");
        assert_eq!(address("c", &["x"]).reached_from(&own, 0), Some("10.0.0.1:1".parse().expect("one")));
        assert_eq!(own.reached_from(&own, 1), None);
    }

    #[test]
    fn both_sides_choose_the_same_ports() {
        let (a, b) = (address("a", &["shm/a", "iwarp"]), address("b", &["iwarp", "shm/b"]));
        assert_eq!(common_ports(&a, &b), Some((1, 0)));
        assert_eq!(common_ports(&a, &a), Some((0, 0)));
        assert_eq!(common_ports(&a, &address("c", &["x"])), None);
    }
}
