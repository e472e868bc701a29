//! The addresses by which other hosts may reach this one.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use host::bounded;

/// Addresses of this network namespace, but those of the loopback and of a link alone: first those that `preferred`, a network as
/// `10.0.0.0/8` or an address, has in it, if it is given, and then no others. The kernel's order otherwise.
///
/// # Errors
/// Text for a network that is none, or that no address of this host lies in.
pub(crate) fn addresses(preferred: Option<&str>) -> Result<Vec<IpAddr>, String> {
    let read = |path: &str| bounded::kernel_text(path).unwrap_or_default();
    let all = of_tables(&read("/proc/net/fib_trie"), &read("/proc/net/if_inet6"));
    let Some(text) = preferred else { return Ok(all) };
    let network = Network::parse(text).ok_or_else(|| format!("{text} is no network; one is 10.0.0.0/8"))?;
    let inside: Vec<IpAddr> = all.iter().copied().filter(|address| network.has(*address)).collect();
    if inside.is_empty() {
        let all: Vec<String> = all.iter().map(IpAddr::to_string).collect();
        return Err(format!("no address of this host lies in {text}; it has {}", all.join(", ")));
    }
    Ok(inside)
}

/// What the kernel's tables of local addresses say.
fn of_tables(trie: &str, six: &str) -> Vec<IpAddr> {
    let lines: Vec<&str> = trie.lines().map(str::trim).collect();
    let local = lines.windows(2).filter(|pair| pair[1].ends_with("/32 host LOCAL"));
    let four = |pair: &[&str]| pair[0].strip_prefix("|-- ")?.parse::<Ipv4Addr>().ok();
    let four = local.filter_map(four).map(IpAddr::V4);
    let six = six.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        let bits = u128::from_str_radix(words.next()?, 16).ok()?;
        // Scope 0 is global.
        (words.nth(2)? == "00").then(|| IpAddr::V6(Ipv6Addr::from_bits(bits)))
    });
    let mut all: Vec<IpAddr> = Vec::new();
    for address in four.chain(six).filter(|address| !address.is_loopback()) {
        if !all.contains(&address) {
            all.push(address);
        }
    }
    all
}

/// Addresses that begin alike.
struct Network {
    address: IpAddr,
    bits: u32,
}

impl Network {
    fn parse(text: &str) -> Option<Self> {
        let (address, bits) =
            text.split_once('/').map_or((text, None), |(address, bits)| (address, Some(bits)));
        let address: IpAddr = address.parse().ok()?;
        let all = if address.is_ipv4() { 32 } else { 128 };
        let bits = bits.map_or(Some(all), |bits| bits.parse().ok())?;
        (bits <= all).then_some(Self { address, bits })
    }

    fn has(&self, address: IpAddr) -> bool {
        let alike = match (self.address, address) {
            (IpAddr::V4(a), IpAddr::V4(b)) => (a.to_bits() ^ b.to_bits()).leading_zeros(),
            (IpAddr::V6(a), IpAddr::V6(b)) => (a.to_bits() ^ b.to_bits()).leading_zeros(),
            _ => return false,
        };
        alike >= self.bits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRIE: &str = "Main:\n  +-- 0.0.0.0/0 3 0 5\n     |-- 0.0.0.0\n        /0 universe UNICAST\n\
        \x20    |-- 192.168.5.10\n        /32 host LOCAL\n     |-- 127.0.0.1\n        /32 host LOCAL\n\
        Local:\n     |-- 10.1.0.3\n        /32 host LOCAL\n     |-- 192.168.5.10\n        /32 host LOCAL\n";
    const SIX: &str = "fe800000000000000000000000000001 02 40 20 80 eth0\n20010db8000000000000000000000007 02 40 00 80 eth0\n";

    #[test]
    fn tables_name_what_others_reach() {
        let all: Vec<String> = of_tables(TRIE, SIX).iter().map(IpAddr::to_string).collect();
        assert_eq!(all, ["192.168.5.10", "10.1.0.3", "2001:db8::7"]);
        assert!(of_tables("", "").is_empty());
    }

    #[test]
    fn networks_have_what_begins_alike() {
        let has = |network: &str, address: &str| {
            Network::parse(network).expect("a network").has(address.parse().expect("an address"))
        };
        assert!(has("10.0.0.0/8", "10.200.1.1") && !has("10.0.0.0/8", "11.0.0.1"));
        assert!(has("10.0.0.1", "10.0.0.1") && !has("10.0.0.1", "10.0.0.2") && has("0.0.0.0/0", "8.8.8.8"));
        assert!(has("2001:db8::/32", "2001:db8::7") && !has("0.0.0.0/0", "::1"));
        for wrong in ["", "ten", "10.0.0.0/33", "10.0.0.0/x", "::/129"] {
            assert!(Network::parse(wrong).is_none(), "{wrong}");
        }
        assert!(addresses(Some("nonsense")).is_err() && addresses(None).is_ok());
    }
}
