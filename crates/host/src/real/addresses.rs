//! The addresses by which other hosts can reach this one.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::{Network, bounded};

/// The addresses of this network namespace, without loopback and link-local addresses, in the kernel's order. With
/// `preferred`, a network such as `10.0.0.0/8` or an address, only those within it.
///
/// # Errors
/// Text if `preferred` is not a network, or contains no address of this host.
pub fn addresses(preferred: Option<&str>) -> Result<Vec<IpAddr>, String> {
    let read = |path: &str| bounded::kernel_text(path).unwrap_or_default();
    let all = parse_tables(&read("/proc/net/fib_trie"), &read("/proc/net/if_inet6"));
    let Some(text) = preferred else { return Ok(all) };
    let network: Network = text.parse().map_err(|wrong: crate::BadNetwork| wrong.to_string())?;
    let inside: Vec<IpAddr> = all.iter().copied().filter(|address| network.has(*address)).collect();
    if inside.is_empty() {
        let all: Vec<String> = all.iter().map(IpAddr::to_string).collect();
        return Err(format!("no address of this host lies in {text}; it has {}", all.join(", ")));
    }
    Ok(inside)
}

/// IFA_F_DADFAILED and IFA_F_TENTATIVE of linux/if_addr.h: another host may have the same address.
const UNCONFIRMED: u32 = 0x08 | 0x40;

/// Parses the kernel's tables of local addresses.
fn parse_tables(trie: &str, six: &str) -> Vec<IpAddr> {
    let lines: Vec<&str> = trie.lines().map(str::trim).collect();
    let local = lines.windows(2).filter(|pair| pair[1].ends_with("/32 host LOCAL"));
    let four = |pair: &[&str]| pair[0].strip_prefix("|-- ")?.parse::<Ipv4Addr>().ok();
    let four = local.filter_map(four).map(IpAddr::V4);
    let six = six.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        let bits = u128::from_str_radix(words.next()?, 16).ok()?;
        let (scope, flags) = (words.nth(2)?, u32::from_str_radix(words.next()?, 16).ok()?);
        // Scope 0 is global. An address that another host may have cannot be bound.
        (scope == "00" && flags & UNCONFIRMED == 0).then(|| IpAddr::V6(Ipv6Addr::from_bits(bits)))
    });
    let mut all: Vec<IpAddr> = Vec::new();
    for address in four.chain(six).filter(|address| !address.is_loopback()) {
        if !all.contains(&address) {
            all.push(address);
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRIE: &str = "Main:\n  +-- 0.0.0.0/0 3 0 5\n     |-- 0.0.0.0\n        /0 universe UNICAST\n\
        \x20    |-- 192.168.5.10\n        /32 host LOCAL\n     |-- 127.0.0.1\n        /32 host LOCAL\n\
        Local:\n     |-- 10.1.0.3\n        /32 host LOCAL\n     |-- 192.168.5.10\n        /32 host LOCAL\n";
    const SIX: &str = "fe800000000000000000000000000001 02 40 20 80 eth0\n20010db8000000000000000000000007 02 40 00 80 eth0\n\
        20010db8000000000000000000000008 02 40 00 c0 eth0\n";

    #[test]
    fn tables_yield_reachable_addresses() {
        let all: Vec<String> = parse_tables(TRIE, SIX).iter().map(IpAddr::to_string).collect();
        assert_eq!(all, ["192.168.5.10", "10.1.0.3", "2001:db8::7"]);
        assert!(parse_tables("", "").is_empty());
    }

    #[test]
    fn invalid_networks_are_refused() {
        assert!(addresses(Some("nonsense")).is_err() && addresses(None).is_ok());
    }
}
