//! Opens the Portals interface of a process, in which processes are addressed by their ranks in the job.

use std::net::{IpAddr, Ipv4Addr};

use auth::{Key, Seed};
use host::Host;
use portals::{Limits, Matcher, Ni, NiKind, Node, Process};

use crate::bootstrap::Bootstrap;
use crate::error::{Class, Error, Result};
use crate::peers::nic::Port;

fn kvs_key(rank: u32) -> String {
    format!("portals-{rank}")
}

fn cannot_carry(why: impl std::fmt::Display) -> Error {
    Error::new(Class::OTHER, format_args!("Portals cannot carry messages: {why}"))
}

/// Opens an interface on a device, without any peers.
pub(super) fn open(host: &Host, port: &Port, matcher: Matcher, key: &Key) -> Result<Ni> {
    let address = match port.address {
        IpAddr::V4(address) => address,
        IpAddr::V6(_) => return Err(cannot_carry("the device has only an IPv6 address")),
    };
    // SAFETY: entries and descriptors name memory of buffers whose operations are in progress, as promised to `Buffer::new`, and of
    // this library's own; this crate keeps either until Portals reports that it no longer uses it. Test:
    // random_programs_complete_by_portals.
    let node = unsafe { Node::open(host, &port.device, address, None, 0, matcher, key) }?;
    Ok(node.interface(NiKind { is_matching: true, is_logical: true }, Limits::MOST))
}

/// Publishes the address of this process, and reads those of the others. Collective.
pub(super) fn exchange_addresses(ni: &Ni, bootstrap: &dyn Bootstrap) -> Result<()> {
    let (rank, size, node) = (bootstrap.rank(), bootstrap.size(), ni.node());
    bootstrap.put(&kvs_key(rank), &address_text(node.me(), node.seed().as_ref()))?;
    bootstrap.fence()?;
    let process = |rank| {
        let address_text = bootstrap.get(&kvs_key(rank))?;
        let (process, seed) = parse(&address_text)
            .ok_or_else(|| cannot_carry(format_args!("'{address_text}' is not the address of a process")))?;
        seed.into_iter().for_each(|seed| node.learn_seed(process, seed));
        Ok(process)
    };
    let processes = (0..size).map(process).collect::<Result<Vec<_>>>()?;
    if ni.set_map(&processes) {
        Ok(())
    } else {
        Err(cannot_carry("this process is not among the processes of the job"))
    }
}

/// Encodes a process, and the seed of its challenges if it is random.
fn address_text(process: Process, seed: Option<&Seed>) -> String {
    let seed = seed.map_or_else(String::new, Seed::to_hex);
    format!("{}:{}:{seed}", Ipv4Addr::from_bits(process.nid), process.pid)
}

/// Parses the text of [`address_text`]; `None` for other text.
fn parse(address_text: &str) -> Option<(Process, Option<Seed>)> {
    let (nid, rest) = address_text.split_once(':')?;
    let (pid, seed) = rest.split_once(':')?;
    let process = Process::physical(nid.parse::<Ipv4Addr>().ok()?.to_bits(), pid.parse().ok()?);
    let seed = if seed.is_empty() { None } else { Some(Seed::from_hex(seed)?) };
    Some((process, seed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_text_roundtrip_and_malformed_text_is_rejected() {
        let (process, seed) = (Process::physical(0x7f00_0001, 3), Seed::from_key(Key::from_bytes([5; 16])));
        for seed in [Some(seed), None] {
            assert_eq!(parse(&address_text(process, seed.as_ref())), Some((process, seed)));
        }
        for text in ["", "127.0.0.1", "127.0.0.1:3", "127.0.0.1:x:", "here:3:", "127.0.0.1:3:0011"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
