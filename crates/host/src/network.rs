//! [`Network`]: a range of IP addresses; and the choice of the nearest among several addresses.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// Addresses with a common prefix, such as `10.0.0.0/8`. A single address is a network of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    bits: u32,
}

/// The error for a text that is not a network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadNetwork(String);

impl fmt::Display for BadNetwork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is not a network; write one such as 10.0.0.0/8", self.0)
    }
}

impl std::error::Error for BadNetwork {}

impl FromStr for Network {
    type Err = BadNetwork;

    fn from_str(text: &str) -> Result<Self, BadNetwork> {
        let parse = || {
            let (address, bits) =
                text.split_once('/').map_or((text, None), |(address, bits)| (address, Some(bits)));
            let address: IpAddr = address.parse().ok()?;
            let all = if address.is_ipv4() { 32 } else { 128 };
            let bits = bits.map_or(Some(all), |bits| bits.parse().ok())?;
            (bits <= all).then_some(Self { address, bits })
        };
        parse().ok_or_else(|| BadNetwork(text.to_owned()))
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.bits)
    }
}

impl Network {
    /// Whether an address is in this network. IPv4 addresses that are mapped to IPv6 (RFC 4291, section 2.5.5.2) count
    /// as IPv4.
    pub fn has(&self, address: IpAddr) -> bool {
        let (own, other) = (self.address.to_canonical(), address.to_canonical());
        own.is_ipv4() == other.is_ipv4() && common_bits(own, other) >= self.bits
    }

    /// Whether all addresses of this network are [private](is_private).
    pub fn is_private(&self) -> bool {
        private().any(|range| range.bits <= self.bits && range.has(self.address))
    }
}

/// Ranges that routers of the internet do not forward.
fn private() -> impl Iterator<Item = Network> {
    let four = |a, b, bits| Network { address: IpAddr::from([a, b, 0, 0]), bits };
    let six = |first, bits| Network { address: IpAddr::from([first, 0, 0, 0, 0, 0, 0, 0]), bits };
    let one = IpAddr::from([0, 0, 0, 0, 0, 0, 0, 1]);
    [
        four(127, 0, 8),
        four(10, 0, 8),
        four(172, 16, 12),
        four(192, 168, 16),
        four(169, 254, 16),
        Network { address: one, bits: 128 },
        six(0xfe80, 10),
        six(0xfc00, 7),
    ]
    .into_iter()
}

/// Whether an address is a loopback, private (RFC 1918), link-local or unique local (RFC 4193) address.
pub fn is_private(address: IpAddr) -> bool {
    private().any(|range| range.has(address))
}

/// The length of the common prefix of two addresses, in bits.
fn common_bits(a: IpAddr, b: IpAddr) -> u32 {
    match (a, b) {
        (IpAddr::V4(a), IpAddr::V4(b)) => (a.to_bits() ^ b.to_bits()).leading_zeros(),
        (IpAddr::V6(a), IpAddr::V6(b)) => (a.to_bits() ^ b.to_bits()).leading_zeros(),
        _ => 0,
    }
}

/// The address of another host that is nearest to this host: the one with the longest common prefix with any of this
/// host's own addresses; the first of several equal ones.
pub fn nearest(theirs: &[IpAddr], own: &[IpAddr]) -> Option<IpAddr> {
    let near = |address: &&IpAddr| own.iter().map(|own| common_bits(*own, **address)).max();
    theirs.iter().rev().max_by_key(near).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn network_contains_addresses_with_its_prefix() {
        let has =
            |network: &str, other: &str| network.parse::<Network>().expect("a network").has(address(other));
        assert!(has("10.0.0.0/8", "10.200.1.1") && !has("10.0.0.0/8", "11.0.0.1"));
        assert!(has("10.0.0.0/8", "::ffff:10.200.1.1") && !has("10.0.0.0/8", "::ffff:11.0.0.1"));
        assert!(has("10.0.0.1", "10.0.0.1") && !has("10.0.0.1", "10.0.0.2") && has("0.0.0.0/0", "8.8.8.8"));
        assert!(has("2001:db8::/32", "2001:db8::7") && !has("0.0.0.0/0", "::1") && !has("::/0", "1.2.3.4"));
        for wrong in ["", "ten", "10.0.0.0/33", "10.0.0.0/x", "10.0.0.0/", "/8", "::/129", "10.0.0.0/-1"] {
            assert!(wrong.parse::<Network>().is_err(), "{wrong}");
        }
        assert_eq!("10.1.0.0/16".parse::<Network>().expect("one").to_string(), "10.1.0.0/16");
    }

    #[test]
    fn private_addresses_are_those_of_the_standards() {
        for inside in [
            "127.0.0.1",
            "10.255.0.1",
            "172.16.0.1",
            "172.31.255.255",
            "192.168.7.7",
            "169.254.0.1",
            "::1",
            "fe80::1",
            "febf::1",
            "fc00::1",
            "fdff::1",
            "::ffff:10.0.0.1",
        ] {
            assert!(is_private(address(inside)), "{inside}");
        }
        for outside in
            ["8.8.8.8", "172.15.0.1", "172.32.0.1", "192.169.0.1", "100.64.0.1", "2001:db8::1", "fec0::1"]
        {
            assert!(!is_private(address(outside)), "{outside}");
        }
        let private = |text: &str| text.parse::<Network>().expect("a network").is_private();
        assert!(
            private("10.1.0.0/16") && private("10.0.0.0/8") && private("192.168.1.1") && private("fd00::/8")
        );
        assert!(!private("10.0.0.0/7") && !private("0.0.0.0/0") && !private("203.0.113.0/24"));
    }

    #[test]
    fn nearest_address_has_longest_common_prefix() {
        let all = |texts: &[&str]| texts.iter().map(|text| address(text)).collect::<Vec<_>>();
        let own = all(&["172.17.0.1", "10.0.3.1", "192.168.5.10"]);
        let of = |texts: &[&str]| nearest(&all(texts), &own).map(|found| found.to_string());
        assert_eq!(of(&["10.9.0.2", "192.168.5.77"]).as_deref(), Some("192.168.5.77"));
        assert_eq!(of(&["8.8.8.8", "9.9.9.9"]).as_deref(), Some("8.8.8.8"), "the first");
        assert_eq!(of(&[]), None);
        assert_eq!(nearest(&all(&["1.2.3.4"]), &[]), Some(address("1.2.3.4")));
    }
}
