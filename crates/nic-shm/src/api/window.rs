//! Load and store on a peer's NIC memory: a handle to a part of the peer's segment, which this process maps
//! anyway.

use std::ptr::NonNull;

use verbs::{Access, Buf, Error, MemoryKind, RemoteAddr, Result};

use crate::memory::table::Location;
use crate::peer::queue_pair::PeerQp;
use crate::shared::NAME;

/// Maps a range of the peer's NIC memory, see [`verbs::Qp::map`].
pub(crate) fn map_peer(link: &PeerQp, remote: RemoteAddr, len: usize) -> Result<Buf> {
    let (table, need) = (&link.peer.table, Access::REMOTE_READ | Access::REMOTE_WRITE);
    let refused = || {
        let what = "the peer's key does not allow reading and writing all of that range";
        Error::Invalid(what.into())
    };
    let place = table.check(remote.rkey, link.pd, need, remote.addr, len as u64).ok_or_else(refused)?;
    let Location::Nic(offset) = place else {
        let what = "load and store on a peer's host memory";
        return Err(Error::Unsupported { device: NAME.into(), what });
    };
    let base = table.map.bytes(offset, len as u64).and_then(NonNull::new).ok_or_else(refused)?;
    // SAFETY: inside the peer's segment (checked), which the handle keeps mapped; nobody makes references
    // into it. Test: group `map` of the conformance suite.
    Ok(unsafe { Buf::from_raw(base, len, MemoryKind::Nic, offset, table.map.clone()) })
}
