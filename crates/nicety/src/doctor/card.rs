//! Checks of real cards, from the kernel's files: what slows a card down, or keeps it from working.

use std::net::{IpAddr, Ipv6Addr};

use host::Bytes;
use rustix::process::{Resource, getrlimit};

use super::check::Check;
use super::system::System;

/// Where the kernel shows its RDMA devices.
const FOLDER: &str = "sys/class/infiniband";
/// Locked memory that the benchmarks need: buffers of 64 MiB at both ends, and queues.
const MEMLOCK_WANTED: u64 = 256 << 20;
/// The MTU of an interface from which RoCE packets carry 4096 bytes.
const MTU_WANTED: u64 = 4200;
/// A core's exit from a sleep state that takes longer than this shows in latencies, in microseconds.
const EXIT_MAX_US: u64 = 10;

/// The cards that the kernel shows, in order.
pub(super) fn names(system: &System) -> Vec<String> {
    let mut names = system.list(FOLDER);
    names.sort_unstable();
    names
}

/// The cards in one line; none is no problem for software devices.
pub(super) fn present(system: &System) -> Check {
    match names(system) {
        names if names.is_empty() => Check::ok("cards", "none; software devices need none"),
        names => Check::ok("cards", format!("{}; nicety doctor hw checks them", names.join(", "))),
    }
}

/// Whether libibverbs opens the cards: `listed` is what it says.
pub(super) fn library(listed: &Result<Vec<String>, String>) -> Check {
    let (id, why) = ("libibverbs", "The device hw opens cards by libibverbs and librdmacm.");
    match listed {
        Ok(cards) if cards.is_empty() => Check::bad(
            id,
            "lists no card",
            why,
            "load the card's driver (lspci -k shows it), or make a software card: modprobe rdma_rxe && rdma link add rxe0 \
             type rxe netdev eth0",
        ),
        Ok(cards) => Check::ok(id, cards.join("; ")),
        Err(text) => {
            let remedy =
                "apt-get install libibverbs1 librdmacm1 ibverbs-providers; modprobe -a ib_uverbs rdma_ucm";
            Check::bad(id, text.clone(), why, remedy)
        }
    }
}

/// All checks of one card.
pub(super) fn of_card(system: &System, card: &str, cores: &[usize]) -> Vec<Check> {
    let at = format!("{FOLDER}/{card}");
    let mut ports = system.list(&format!("{at}/ports"));
    ports.sort_unstable();
    let mut checks = vec![driver(system, card, &at)];
    for port in &ports {
        let at = format!("{at}/ports/{port}");
        let card = format!("{card} port {port}");
        checks.push(link(system, &card, &at));
        checks.extend(gids(system, &card, &at));
    }
    checks.extend(mtu(system, card, &at));
    checks.extend(pcie(system, card, &at));
    checks.extend(numa(system, card, &at, cores));
    checks.extend(iommu(system, card, &at));
    checks
}

fn driver(system: &System, card: &str, at: &str) -> Check {
    let uevent = system.read(&format!("{at}/device/uevent")).unwrap_or_default();
    let driver = uevent.lines().find_map(|line| line.strip_prefix("DRIVER=")).unwrap_or("in software");
    let firmware = system.read(&format!("{at}/fw_ver")).filter(|text| !text.is_empty());
    let firmware = firmware.map_or(String::new(), |text| format!(", firmware {text}"));
    Check::ok("card", format!("{card}: driver {driver}{firmware}"))
}

/// The text behind the number in a file such as `4: ACTIVE`.
fn word(system: &System, path: &str) -> String {
    let text = system.read(path).unwrap_or_default();
    text.split_once(": ").map_or(text.clone(), |(_, word)| word.to_owned())
}

fn link(system: &System, card: &str, at: &str) -> Check {
    let of = |file: &str| word(system, &format!("{at}/{file}"));
    let (state, physical) = (of("state"), of("phys_state"));
    let found = format!("{card}: {state}, {physical}, {}, {}", of("rate"), of("link_layer"));
    if state == "ACTIVE" {
        return Check::ok("card-link", found);
    }
    Check::bad(
        "card-link",
        found,
        "Only an active port carries messages.",
        "plug the cable in; ip link set dev INTERFACE up; on InfiniBand start a subnet manager (opensm)",
    )
}

/// A GID as the kernel prints it, as an address.
fn address(text: &str) -> Option<IpAddr> {
    let gid: Ipv6Addr = text.parse().ok()?;
    (!gid.is_unspecified()).then(|| gid.to_canonical())
}

/// The GID table of a port on Ethernet, and the index that programs should take.
fn gids(system: &System, card: &str, at: &str) -> Option<Check> {
    if word(system, &format!("{at}/link_layer")) != "Ethernet" {
        return None;
    }
    let mut indexes: Vec<u32> =
        system.list(&format!("{at}/gids")).iter().filter_map(|name| name.parse().ok()).collect();
    indexes.sort_unstable();
    let entries = indexes.into_iter().filter_map(|index| {
        let gid = address(&system.read(&format!("{at}/gids/{index}"))?)?;
        let kind = system.read(&format!("{at}/gid_attrs/types/{index}")).unwrap_or_default();
        Some((index, gid, kind))
    });
    let entries: Vec<_> = entries.collect();
    let of_v2 = |ip: fn(&IpAddr) -> bool| entries.iter().find(|(_, gid, kind)| kind == "RoCE v2" && ip(gid));
    let best = of_v2(IpAddr::is_ipv4)
        .or_else(|| of_v2(|gid| matches!(gid, IpAddr::V6(six) if !six.is_unicast_link_local())));
    if entries.is_empty() {
        let (why, remedy) =
            ("Without a GID nothing can be addressed.", "give the interface an IP address and set it up");
        return Some(Check::bad("card-gid", format!("{card}: no GID"), why, remedy));
    }
    Some(match best {
        Some((index, gid, _)) => Check::ok(
            "card-gid",
            format!(
                "{card}: take index {index} ({gid}, RoCE v2), which routers forward, of {} entries",
                entries.len()
            ),
        ),
        // iWARP has one entry, the hardware address: connections go by IP addresses.
        None if entries.iter().all(|(_, _, kind)| kind != "RoCE v2") => {
            Check::ok("card-gid", format!("{card}: no RoCE v2 entries; connections go by IP addresses"))
        }
        None => Check::warn(
            "card-gid",
            format!("{card}: link-local GIDs only"),
            "Programs that connect by IP addresses find no route, and no router forwards these GIDs.",
            "ip addr add ADDRESS/24 dev INTERFACE",
        ),
    })
}

fn mtu(system: &System, card: &str, at: &str) -> Vec<Check> {
    let interfaces = system.list(&format!("{at}/device/net"));
    let check = |interface: &String| {
        let mtu = system.number(&format!("{at}/device/net/{interface}/mtu"))?;
        let found = format!("{card}: {interface} has {mtu}");
        Some(if mtu >= MTU_WANTED {
            Check::ok("card-mtu", found)
        } else {
            Check::warn(
                "card-mtu",
                found,
                "RoCE packets carry 1024 bytes instead of 4096, and more of the link's rate goes to headers.",
                format!("ip link set dev {interface} mtu 9000, at both hosts and the switches between them"),
            )
        })
    };
    interfaces.iter().filter_map(check).collect()
}

/// The number at the start of a text such as `16.0 GT/s PCIe`.
fn leading_number(text: &str) -> Option<f64> {
    text.split_whitespace().next()?.parse().ok()
}

fn pcie(system: &System, card: &str, at: &str) -> Option<Check> {
    let of = |file: &str| system.read(&format!("{at}/device/{file}"));
    let (speed, width) = (of("current_link_speed")?, of("current_link_width")?);
    let (max_speed, max_width) = (of("max_link_speed")?, of("max_link_width")?);
    let found = format!("{card}: {speed} x{width}; the card can {max_speed} x{max_width}");
    let is_less = |now: &str, max: &str| leading_number(now) < leading_number(max);
    if !is_less(&speed, &max_speed) && !is_less(&width, &max_width) {
        return Some(Check::ok("card-pcie", found));
    }
    Some(Check::warn(
        "card-pcie",
        found,
        "The bus may carry less than the link.",
        "put the card into a slot with as many lanes of its generation, and look into the firmware's settings of the slot",
    ))
}

/// The cores in a list such as `0-3,8`.
fn parse_cores(list: &str) -> Vec<usize> {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.trim().parse().ok()?..=last.trim().parse().ok()?)
    };
    list.split(',').filter_map(range).flatten().collect()
}

fn numa(system: &System, card: &str, at: &str, cores: &[usize]) -> Option<Check> {
    // -1: the machine has one node, or does not say.
    let node = system.number(&format!("{at}/device/numa_node"))?;
    let list = system.read(&format!("sys/devices/system/node/node{node}/cpulist"))?;
    let near = parse_cores(&list);
    let found = format!("{card}: node {node}, cores {list}");
    if cores.iter().any(|core| near.contains(core)) {
        return Some(Check::ok("card-numa", found));
    }
    Some(Check::warn(
        "card-numa",
        format!("{found}; this process may use none of them"),
        "Each access to the card crosses the link between the sockets.",
        format!("numactl --cpunodebind={node} --membind={node} nicety ..."),
    ))
}

fn iommu(system: &System, card: &str, at: &str) -> Option<Check> {
    let kind = system.read(&format!("{at}/device/iommu_group/type"))?;
    let found = format!("{card}: {kind}");
    if kind == "identity" {
        return Some(Check::ok("card-iommu", found));
    }
    Some(Check::warn(
        "card-iommu",
        found,
        "The IOMMU translates each access of the card, which costs latency and, with many regions, bandwidth.",
        "iommu=pt on the kernel's command line",
    ))
}

/// Locked memory: a card's regions are locked.
pub(super) fn locked_memory() -> Check {
    check_locked_memory(getrlimit(Resource::Memlock).current)
}

fn check_locked_memory(limit: Option<u64>) -> Check {
    let id = "card-memlock";
    match limit {
        None => Check::ok(id, "unlimited"),
        Some(bytes) if bytes >= MEMLOCK_WANTED => Check::ok(id, Bytes(bytes).to_string()),
        Some(bytes) => Check::bad(
            id,
            format!("limited to {}", Bytes(bytes)),
            "Registered memory is locked; registering more fails.",
            "ulimit -l unlimited, or memlock in /etc/security/limits.conf (--ulimit memlock=-1 of a container)",
        ),
    }
}

/// The sleep states of a core: the deepest that is enabled.
pub(super) fn sleep_states(system: &System) -> Option<Check> {
    let at = "sys/devices/system/cpu/cpu0/cpuidle";
    let of = |state: &String| {
        let is_off = system.number(&format!("{at}/{state}/disable"))? != 0;
        let name = system.read(&format!("{at}/{state}/name"))?;
        (!is_off).then_some((system.number(&format!("{at}/{state}/latency"))?, name))
    };
    let (exit, name) = system.list(at).iter().filter_map(of).max()?;
    let found = format!("{name}, left within {exit} us");
    if exit <= EXIT_MAX_US {
        return Some(Check::ok("c-states", found));
    }
    Some(Check::warn(
        "c-states",
        found,
        "A core that waits for an interrupt of the card sleeps so deep that its wake-up shows in latencies.",
        format!("cpupower idle-set --disable-by-latency {EXIT_MAX_US}"),
    ))
}

#[cfg(test)]
mod tests {
    use super::super::check::Severity;
    use super::super::system::tests::Fake;
    use super::*;

    /// A RoCE card in a slot with too few lanes, far from this process's cores.
    const CARD: &[(&str, &str)] = &[
        ("sys/class/infiniband/mlx5_0/fw_ver", "16.35.2000\n"),
        ("sys/class/infiniband/mlx5_0/device/uevent", "DRIVER=mlx5_core\nPCI_CLASS=20000\n"),
        ("sys/class/infiniband/mlx5_0/ports/1/state", "4: ACTIVE\n"),
        ("sys/class/infiniband/mlx5_0/ports/1/phys_state", "5: LinkUp\n"),
        ("sys/class/infiniband/mlx5_0/ports/1/rate", "100 Gb/sec (4X EDR)\n"),
        ("sys/class/infiniband/mlx5_0/ports/1/link_layer", "Ethernet\n"),
        ("sys/class/infiniband/mlx5_0/ports/1/gids/0", "fe80:0000:0000:0000:0000:00ff:fe00:0001\n"),
        ("sys/class/infiniband/mlx5_0/ports/1/gids/1", "0000:0000:0000:0000:0000:ffff:0a00:0001\n"),
        ("sys/class/infiniband/mlx5_0/ports/1/gids/2", "0000:0000:0000:0000:0000:ffff:0a00:0001\n"),
        ("sys/class/infiniband/mlx5_0/ports/1/gids/3", "0000:0000:0000:0000:0000:0000:0000:0000\n"),
        ("sys/class/infiniband/mlx5_0/ports/1/gid_attrs/types/0", "IB/RoCE v1\n"),
        ("sys/class/infiniband/mlx5_0/ports/1/gid_attrs/types/1", "IB/RoCE v1\n"),
        ("sys/class/infiniband/mlx5_0/ports/1/gid_attrs/types/2", "RoCE v2\n"),
        ("sys/class/infiniband/mlx5_0/device/net/eth1/mtu", "1500\n"),
        ("sys/class/infiniband/mlx5_0/device/current_link_speed", "8.0 GT/s PCIe\n"),
        ("sys/class/infiniband/mlx5_0/device/max_link_speed", "8.0 GT/s PCIe\n"),
        ("sys/class/infiniband/mlx5_0/device/current_link_width", "8\n"),
        ("sys/class/infiniband/mlx5_0/device/max_link_width", "16\n"),
        ("sys/class/infiniband/mlx5_0/device/numa_node", "1\n"),
        ("sys/devices/system/node/node1/cpulist", "4-7\n"),
        ("sys/class/infiniband/mlx5_0/device/iommu_group/type", "DMA\n"),
    ];

    fn found(checks: &[Check], id: &str) -> (Severity, String) {
        let check =
            checks.iter().find(|check| check.id == id).unwrap_or_else(|| panic!("no {id}: {checks:?}"));
        (check.state, check.found.clone())
    }

    #[test]
    fn card_in_a_narrow_slot_far_away_is_warned_about() {
        let fake = Fake::new(CARD);
        let checks = of_card(&fake.system, "mlx5_0", &[0, 1]);
        assert_eq!(found(&checks, "card").1, "mlx5_0: driver mlx5_core, firmware 16.35.2000");
        assert_eq!(found(&checks, "card-link").0, Severity::Ok);
        let (state, gid) = found(&checks, "card-gid");
        assert!(state == Severity::Ok && gid.contains("index 2 (10.0.0.1, RoCE v2)"), "{gid}");
        for id in ["card-mtu", "card-pcie", "card-numa", "card-iommu"] {
            assert_eq!(found(&checks, id).0, Severity::Warn, "{id}");
        }
        let near = of_card(&fake.system, "mlx5_0", &[5]);
        assert_eq!(found(&near, "card-numa").0, Severity::Ok);
    }

    #[test]
    fn port_that_is_down_or_without_gid_is_bad() {
        let fake = Fake::new(CARD);
        fake.set(&[("sys/class/infiniband/mlx5_0/ports/1/state", "1: DOWN\n")]);
        assert_eq!(found(&of_card(&fake.system, "mlx5_0", &[]), "card-link").0, Severity::Bad);
        for index in 0..3 {
            fake.set(&[(
                &format!("sys/class/infiniband/mlx5_0/ports/1/gids/{index}"),
                "0000:0000:0000:0000:0000:0000:0000:0000\n",
            )]);
        }
        assert_eq!(found(&of_card(&fake.system, "mlx5_0", &[]), "card-gid").0, Severity::Bad);
    }

    #[test]
    fn software_card_has_no_bus() {
        let fake = Fake::new(&[
            ("sys/class/infiniband/siw0/ports/1/state", "4: ACTIVE\n"),
            ("sys/class/infiniband/siw0/ports/1/link_layer", "Ethernet\n"),
            ("sys/class/infiniband/siw0/ports/1/gids/0", "0202:0000:0000:0000:0000:0000:0000:0000\n"),
        ]);
        assert_eq!(names(&fake.system), ["siw0"]);
        let checks = of_card(&fake.system, "siw0", &[0]);
        let ids: Vec<_> = checks.iter().map(|check| check.id).collect();
        assert_eq!(ids, ["card", "card-link", "card-gid"]);
        assert!(checks.iter().all(|check| check.state == Severity::Ok), "{checks:?}");
    }

    #[test]
    fn library_without_cards_and_missing_library_are_bad() {
        assert_eq!(library(&Ok(Vec::new())).state, Severity::Bad);
        assert_eq!(library(&Err("cannot load".to_owned())).state, Severity::Bad);
        assert_eq!(library(&Ok(vec!["siw0: port 1 active".to_owned()])).state, Severity::Ok);
    }

    #[test]
    fn small_limit_of_locked_memory_is_bad() {
        assert_eq!(check_locked_memory(None).state, Severity::Ok);
        assert_eq!(check_locked_memory(Some(MEMLOCK_WANTED)).state, Severity::Ok);
        assert_eq!(check_locked_memory(Some(MEMLOCK_WANTED - 1)).state, Severity::Bad);
    }

    #[test]
    fn deepest_enabled_sleep_state_is_shown() {
        let fake = Fake::new(&[
            ("sys/devices/system/cpu/cpu0/cpuidle/state0/name", "C1"),
            ("sys/devices/system/cpu/cpu0/cpuidle/state0/latency", "2"),
            ("sys/devices/system/cpu/cpu0/cpuidle/state0/disable", "0"),
            ("sys/devices/system/cpu/cpu0/cpuidle/state1/name", "C6"),
            ("sys/devices/system/cpu/cpu0/cpuidle/state1/latency", "133"),
            ("sys/devices/system/cpu/cpu0/cpuidle/state1/disable", "0"),
        ]);
        assert_eq!(sleep_states(&fake.system).map(|check| check.state), Some(Severity::Warn));
        fake.set(&[("sys/devices/system/cpu/cpu0/cpuidle/state1/disable", "1")]);
        assert_eq!(sleep_states(&fake.system).map(|check| check.state), Some(Severity::Ok));
    }
}
