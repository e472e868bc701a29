//! Why a request failed, in the words that all NICs use: for [`verbs::Qp::failure`].

use verbs::Access;

/// The peer's request was refused at this end.
pub const BY_PEER: &str =
    "a request of the peer named memory here that it may not access; the peer's own completion says which";
/// An atomic operation with an address that is not aligned.
pub const UNALIGNED_ATOMIC: &str =
    "an atomic operation needs a remote address that is a multiple of 8; align it";
/// A send found no receive.
pub const NO_RECEIVE: &str = "the peer had no receive posted, and the retries (rnr_retry) are exhausted; post receives before the \
     peer sends, or set rnr_retry to 7 to wait for them";
/// A send found a receive whose memory is not accessible.
pub const BAD_RECEIVE: &str = "the memory of the receive that the peer has posted is not accessible; check its lkey, its rights and its \
     bounds there";
/// A send was longer than its receive.
pub const SHORT_RECEIVE: &str =
    "the message is longer than the receive that the peer has posted; post larger receives";

/// A memory window was not bound or invalidated.
pub const WINDOW: &str = "the memory window cannot be bound or invalidated so: its region needs IBV_ACCESS_MW_BIND, for writes and atomics \
     IBV_ACCESS_LOCAL_WRITE, and the whole range; region, window and queue pair need the same domain; a window of type 2 has to be \
     invalidated before it is bound again";

/// An access that a table does not allow.
#[derive(Clone, Copy, Debug)]
pub struct Refused {
    /// The name of the key: `lkey` or `rkey`.
    pub key_name: &'static str,
    /// The key.
    pub key: u32,
    /// The protection domain of the queue pair.
    pub pd: u32,
    /// The rights that the access needs.
    pub need: Access,
    /// Its first address.
    pub addr: u64,
    /// Its length in bytes.
    pub len: u64,
}

/// What the table holds in the place of a key.
#[derive(Clone, Copy, Debug)]
pub struct RegionEntry {
    /// The key of the region; 0 if it was deregistered or invalidated.
    pub key: u32,
    /// Its protection domain.
    pub pd: u32,
    /// Its rights.
    pub access: Access,
    /// Its first address.
    pub addr: u64,
    /// Its length in bytes; 0 if there never was a region.
    pub len: u64,
}

impl Refused {
    /// Says what is wrong with the access, and what to do. `found` is the table's entry, if there is one.
    #[cold]
    pub fn explain(&self, found: Option<RegionEntry>) -> String {
        let Self { key_name, key, pd, need, addr, len } = *self;
        let asked = format!("{len} bytes at {addr:#x} with {key_name} {key:#x}");
        let Some(found) = found.filter(|found| key != 0 && found.len != 0) else {
            return format!(
                "{asked}: no region ever had this key; pass the {key_name} of a registered region, in host byte order"
            );
        };
        let region = format!("{} bytes at {:#x}", found.len, found.addr);
        if found.key != key {
            let after = if found.key == 0 { "none has it now" } else { "another region has its place now" };
            return format!(
                "{asked}: the region with this key was deregistered or invalidated, or never existed ({after}; the last one had \
                 {region}); deregister after the last request that uses it has completed"
            );
        }
        let lacks = need.difference(found.access);
        if found.pd != pd {
            format!(
                "{asked}: the region ({region}) belongs to another protection domain than the queue pair; register it in that of the \
                 queue pair"
            )
        } else if !lacks.is_empty() {
            format!(
                "{asked}: the region ({region}) allows {}, but this needs {}; register it with IBV_ACCESS_{}",
                names(found.access),
                names(need),
                names(lacks)
            )
        } else if addr < found.addr || addr - found.addr > found.len || len > found.len - (addr - found.addr)
        {
            format!(
                "{asked}: not all of them are in the region, which has {region}; check address and length"
            )
        } else {
            format!(
                "{asked}: the region ({region}) is not mapped any more; free memory after its region is deregistered"
            )
        }
    }
}

/// The names of rights, as in `ibv_access_flags`.
fn names(access: Access) -> String {
    let names: Vec<&str> = access.iter_names().map(|(name, _)| name).collect();
    if names.is_empty() { "only local reads".into() } else { names.join(" and ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_refusal_has_its_reason() {
        let asked = Refused {
            key_name: "rkey",
            key: 0x1_0002,
            pd: 1,
            need: Access::REMOTE_WRITE,
            addr: 0x1000,
            len: 8,
        };
        let entry = RegionEntry { key: 0x1_0002, pd: 1, access: Access::ALL, addr: 0x1000, len: 64 };
        for (asked, found, words) in [
            (asked, None, "no region ever had this key"),
            (Refused { key: 0, ..asked }, Some(entry), "no region ever had this key"),
            (asked, Some(RegionEntry { key: 0, ..entry }), "was deregistered or invalidated"),
            (asked, Some(RegionEntry { key: 0x1_0003, ..entry }), "another region has its place now"),
            (asked, Some(RegionEntry { pd: 2, ..entry }), "another protection domain"),
            (
                asked,
                Some(RegionEntry { access: Access::LOCAL_WRITE, ..entry }),
                "register it with IBV_ACCESS_REMOTE_WRITE",
            ),
            (
                Refused { len: 65, ..asked },
                Some(entry),
                "not all of them are in the region, which has 64 bytes at 0x1000",
            ),
            (Refused { addr: 0xfff, ..asked }, Some(entry), "not all of them"),
            (Refused { addr: u64::MAX, ..asked }, Some(entry), "not all of them"),
            (asked, Some(entry), "is not mapped any more"),
        ] {
            let text = asked.explain(found);
            assert!(text.contains(words) && text.contains(" with rkey "), "{words}: {text}");
        }
    }
}
