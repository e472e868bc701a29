//! Checks for iWARP: addresses and MTU, the processor's CRC32c instruction, and the limits of socket buffers.

use std::net::{Ipv4Addr, Ipv6Addr};

use host::Bytes;

use super::check::Check;
use super::system::System;

/// Smaller send or receive buffers cannot hold the data in flight on a fast connection.
const BUFFER_WANTED: u64 = 1 << 20;
/// The defaults of Linux.
const LINUX_DEFAULTS: [(&str, &str); 2] =
    [("net.ipv4.tcp_rmem", "4096 131072 6291456"), ("net.ipv4.tcp_wmem", "4096 16384 4194304")];

/// Addresses that other hosts can reach, and the MTU of the interfaces.
pub(super) fn addresses(system: &System) -> Check {
    let id = "network";
    let (addresses, links) = (reachable(system), mtus(system));
    if addresses.is_empty() {
        let found = "only the loopback address: iWARP works between processes of this host";
        return Check::ok(id, found);
    }
    let links = if links.is_empty() { String::new() } else { format!("; MTU {}", links.join(", ")) };
    Check::ok(id, format!("{}{links}", addresses.join(", ")))
}

/// The problems of the network, as notes of a device.
pub(crate) fn notes(system: &System) -> Vec<String> {
    [("addresses", addresses(system)), ("CRC32c", crc(system)), ("socket buffers", buffers(system))]
        .into_iter()
        .map(|(what, check)| format!("{what}: {}", check.found))
        .collect()
}

/// Addresses of this network namespace except loopback and link-local ones, sorted.
fn reachable(system: &System) -> Vec<String> {
    let trie = system.read("proc/net/fib_trie").unwrap_or_default();
    let lines: Vec<&str> = trie.lines().map(str::trim).collect();
    let local = lines.windows(2).filter(|pair| pair[1].ends_with("/32 host LOCAL"));
    let of = |pair: &[&str]| pair[0].strip_prefix("|-- ")?.parse::<Ipv4Addr>().ok();
    let mut v4: Vec<Ipv4Addr> = local.filter_map(of).filter(|ip| !ip.is_loopback()).collect();
    v4.sort();
    v4.dedup();
    let six = system.read("proc/net/if_inet6").unwrap_or_default();
    let of = |line: &str| {
        let mut words = line.split_whitespace();
        let bits = u128::from_str_radix(words.next()?, 16).ok()?;
        // Scope 00 is global.
        (words.nth(2)? == "00").then(|| Ipv6Addr::from_bits(bits))
    };
    let v6 = six.lines().filter_map(of).filter(|ip| !ip.is_loopback());
    v4.iter().map(Ipv4Addr::to_string).chain(v6.map(|ip| ip.to_string())).collect()
}

/// `1500 (eth0)` for each interface that is up, except the loopback.
fn mtus(system: &System) -> Vec<String> {
    let mut links = system.list("sys/class/net");
    links.sort();
    let of = |link: &String| {
        let state = system.read(&format!("sys/class/net/{link}/operstate"))?;
        let mtu = system.number(&format!("sys/class/net/{link}/mtu"))?;
        (link != "lo" && state != "down").then(|| format!("{mtu} ({link})"))
    };
    links.iter().filter_map(of).collect()
}

/// Whether the processor has a CRC32c instruction.
pub(super) fn crc(system: &System) -> Check {
    let id = "crc32c";
    let info = system.read("proc/cpuinfo").unwrap_or_default();
    let flags =
        info.lines().find(|l| l.starts_with("flags") || l.starts_with("Features")).unwrap_or_default();
    let has = |flag: &str| flags.split_whitespace().any(|f| f == flag);
    match (has("sse4_2") || has("crc32"), flags.is_empty()) {
        (true, _) => Check::ok(id, "computed by an instruction of the processor"),
        (false, true) => {
            Check::ok(id, "the kernel does not report whether the processor has an instruction for it")
        }
        (false, false) => Check::warn(
            id,
            "the processor has no instruction for it",
            "If CRCs are on, iWARP computes them in software, at a fraction of the bandwidth.",
            "leave CRCs off on a trusted network: --device 'iwarp(crc=off)', the default",
        ),
    }
}

/// The maximum size of socket buffers.
pub(super) fn buffers(system: &System) -> Check {
    let id = "socket-buffers";
    let bytes = |n: u64| Bytes(n).to_string();
    let limit = |name: &str| system.number(&format!("proc/sys/net/core/{name}")).map(bytes);
    let grown = |key: &str| -> Option<u64> {
        let text = system.read(&format!("proc/sys/{}", key.replace('.', "/")))?;
        text.split_whitespace().nth(2)?.parse().ok()
    };
    let (receive, send) = (grown(LINUX_DEFAULTS[0].0), grown(LINUX_DEFAULTS[1].0));
    let or = |text: Option<String>| text.unwrap_or_else(|| "unknown".to_owned());
    let found = format!(
        "TCP grows to {} (receive) and {} (send); programs may request {} (net.core.rmem_max) and {} (wmem_max)",
        or(receive.map(bytes)),
        or(send.map(bytes)),
        or(limit("rmem_max")),
        or(limit("wmem_max"))
    );
    let few =
        LINUX_DEFAULTS.iter().zip([receive, send]).filter(|(_, now)| now.is_some_and(|n| n < BUFFER_WANTED));
    let remedy: Vec<String> = few.map(|((key, usual), _)| format!("sysctl -w {key}='{usual}'")).collect();
    if remedy.is_empty() {
        return Check::ok(id, found);
    }
    Check::warn(
        id,
        found,
        "The data in flight of a fast connection does not fit, so the buffer limits the bandwidth of iWARP.",
        remedy.join("; "),
    )
}

#[cfg(test)]
mod tests {
    use super::super::check::Severity;
    use super::super::system::tests::Fake;
    use super::*;

    const TRIE: &str = "Local:\n  +-- 0.0.0.0/0 3 0 5\n     |-- 10.0.0.0\n        /24 link UNICAST\n     |-- 10.0.0.7\n        \
                        /32 host LOCAL\n     |-- 10.0.0.255\n        /32 link BROADCAST\n     |-- 127.0.0.1\n        /32 host LOCAL\n";

    #[test]
    fn addresses_and_mtu_are_those_of_other_links_than_the_loopback() {
        let fake = Fake::new(&[
            ("proc/net/fib_trie", TRIE),
            (
                "proc/net/if_inet6",
                "00000000000000000000000000000001 01 80 10 80 lo\n\
                 fd000000000000000000000000000007 02 40 00 80 eth0\n\
                 fe800000000000000000000000000007 02 40 20 80 eth0\n",
            ),
            ("sys/class/net/lo/mtu", "65536"),
            ("sys/class/net/lo/operstate", "unknown"),
            ("sys/class/net/eth0/mtu", "9000"),
            ("sys/class/net/eth0/operstate", "up"),
            ("sys/class/net/eth1/mtu", "1500"),
            ("sys/class/net/eth1/operstate", "down"),
        ]);
        assert_eq!(addresses(&fake.system).found, "10.0.0.7, fd00::7; MTU 9000 (eth0)");
        let bare = Fake::new(&[("a", "")]);
        assert!(addresses(&bare.system).found.contains("processes of this host"));
        assert_eq!(notes(&bare.system).len(), 3);
    }

    #[test]
    fn without_an_instruction_crcs_are_slow() {
        let fake = Fake::new(&[("proc/cpuinfo", "flags : fpu sse4_2\n")]);
        assert_eq!(crc(&fake.system).state, Severity::Ok);
        fake.set(&[("proc/cpuinfo", "flags : fpu sse\n")]);
        assert_eq!(crc(&fake.system).state, Severity::Warn);
        fake.set(&[("proc/cpuinfo", "nothing\n")]);
        assert_eq!(crc(&fake.system).state, Severity::Ok);
    }

    #[test]
    fn small_buffers_are_a_warning_with_the_command_that_helps() {
        let fake = Fake::new(&[
            ("proc/sys/net/ipv4/tcp_rmem", "4096 131072 6291456"),
            ("proc/sys/net/ipv4/tcp_wmem", "4096 16384 65536"),
            ("proc/sys/net/core/rmem_max", "212992"),
        ]);
        let check = buffers(&fake.system);
        assert_eq!(check.state, Severity::Warn);
        assert!(check.found.contains("6 MiB (receive) and 64 KiB (send)"), "{}", check.found);
        assert_eq!(check.remedy.as_deref(), Some("sysctl -w net.ipv4.tcp_wmem='4096 16384 4194304'"));
        fake.set(&[("proc/sys/net/ipv4/tcp_wmem", "4096 16384 4194304")]);
        assert_eq!(buffers(&fake.system).state, Severity::Ok);
    }
}
