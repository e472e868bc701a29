//! How a lane begins: an interface at which processes have their ranks in the job.

use std::net::{IpAddr, Ipv4Addr};

use auth::Key;
use host::Host;
use portals::{Kind, Limits, Matcher, Ni, Node, Process};

use crate::bootstrap::Bootstrap;
use crate::error::{Class, Error, Result};
use crate::peers::nic::Port;

fn note_of(rank: u32) -> String {
    format!("portals-{rank}")
}

fn other(why: impl std::fmt::Display) -> Error {
    Error::new(Class::OTHER, format_args!("messages cannot go over Portals: {why}"))
}

/// Opens an interface on a device, at which nobody is known.
pub(super) fn open(host: &Host, port: &Port, matcher: Matcher, key: &Key) -> Result<Ni> {
    let address = match port.address {
        IpAddr::V4(address) => address,
        IpAddr::V6(_) => return Err(other("the device has an address of IPv6 only")),
    };
    // SAFETY: entries and descriptors name memory of buffers whose operations are under way, as promised to `Buffer::new`, and of
    // this library's own; the lane keeps either until Portals says that it is done. Test: random_programs_come_to_their_ends_by_portals.
    let node = unsafe { Node::open(host, &port.device, address, None, 0, matcher, key) }?;
    Ok(node.interface(Kind { is_matching: true, is_logical: true }, Limits::MOST))
}

/// Tells the others where this process is, and learns where they are. Collective.
pub(super) fn meet(ni: &Ni, bootstrap: &dyn Bootstrap) -> Result<()> {
    let (rank, size, me) = (bootstrap.rank(), bootstrap.size(), ni.node().me());
    bootstrap.put(&note_of(rank), &format!("{}:{}", Ipv4Addr::from_bits(me.nid), me.pid))?;
    bootstrap.fence()?;
    let process = |rank| {
        let note = bootstrap.get(&note_of(rank))?;
        parse(&note).ok_or_else(|| other(format_args!("'{note}' is no process")))
    };
    let processes = (0..size).map(process).collect::<Result<Vec<_>>>()?;
    if ni.set_map(&processes) { Ok(()) } else { Err(other("this process is not among the job's")) }
}

fn parse(note: &str) -> Option<Process> {
    let (nid, pid) = note.split_once(':')?;
    Some(Process::physical(nid.parse::<Ipv4Addr>().ok()?.to_bits(), pid.parse().ok()?))
}
