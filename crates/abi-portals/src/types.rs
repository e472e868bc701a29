//! The types of `portals4.h` in C layout, and its constants (Portals 4.3, chapter 3).

use std::ffi::c_int;

use portals::{CtEvent, Event, Limits, Process};

pub(crate) type Handle = u32;
pub(crate) type Size = u64;

pub(crate) const EQ_NONE: Handle = 0x3fff_ffff;
pub(crate) const CT_NONE: Handle = 0x5fff_ffff;
pub(crate) const IFACE_DEFAULT: u32 = u32::MAX;
pub(crate) const PID_ANY: u32 = 0xffff;
pub(crate) const NID_ANY: u32 = 0xffff;
/// Any user, rank and portal table entry.
pub(crate) const ANY: u32 = u32::MAX;
pub(crate) const TIME_FOREVER: u32 = u32::MAX;

pub(crate) const NI_MATCHING: u32 = 1;
pub(crate) const NI_NO_MATCHING: u32 = 1 << 1;
pub(crate) const NI_LOGICAL: u32 = 1 << 2;
pub(crate) const NI_PHYSICAL: u32 = 1 << 3;

/// `ptl_process_t`: node and process number, or a rank in place of the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct PtlProcess {
    pub(crate) nid: u32,
    pub(crate) pid: u32,
}

impl PtlProcess {
    pub(crate) fn new(process: Process) -> Self {
        Self { nid: process.nid, pid: process.pid }
    }

    /// The process that this names on an interface; a rank has no process number.
    pub(crate) fn process(self, is_logical: bool) -> Process {
        if is_logical { Process::rank(self.nid) } else { Process::physical(self.nid, self.pid) }
    }
}

/// `ptl_md_t`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct PtlMd {
    pub(crate) start: usize,
    pub(crate) length: Size,
    pub(crate) options: u32,
    pub(crate) eq: Handle,
    pub(crate) ct: Handle,
}

/// `ptl_le_t`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct PtlLe {
    pub(crate) start: usize,
    pub(crate) length: Size,
    pub(crate) ct: Handle,
    pub(crate) uid: u32,
    pub(crate) options: u32,
}

/// `ptl_me_t`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct PtlMe {
    pub(crate) le: PtlLeHead,
    pub(crate) match_id: PtlProcess,
    pub(crate) match_bits: u64,
    pub(crate) ignore_bits: u64,
    pub(crate) min_free: Size,
}

/// The start of `ptl_me_t`: as `ptl_le_t`, but without padding before the next field.
#[derive(Clone, Copy, Debug)]
#[repr(C, packed(4))]
pub(crate) struct PtlLeHead {
    pub(crate) start: usize,
    pub(crate) length: Size,
    pub(crate) ct: Handle,
    pub(crate) uid: u32,
    pub(crate) options: u32,
}

/// `ptl_iovec_t`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct PtlIovec {
    pub(crate) base: usize,
    pub(crate) len: Size,
}

/// `ptl_ct_event_t`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct PtlCtEvent {
    pub(crate) success: Size,
    pub(crate) failure: Size,
}

impl PtlCtEvent {
    pub(crate) fn new(count: CtEvent) -> Self {
        Self { success: count.success, failure: count.failure }
    }

    pub(crate) fn count(self) -> CtEvent {
        CtEvent { success: self.success, failure: self.failure }
    }
}

/// `ptl_event_t`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct PtlEvent {
    start: u64,
    user_ptr: u64,
    hdr_data: u64,
    match_bits: u64,
    rlength: Size,
    mlength: Size,
    remote_offset: Size,
    initiator: PtlProcess,
    uid: u32,
    pt_index: u32,
    kind: u8,
    list: u8,
    fail: u8,
    operation: u8,
    datatype: u8,
}

impl PtlEvent {
    pub(crate) fn new(event: &Event) -> Self {
        let (operation, datatype) = event.atomic.map_or((0, 0), |(op, datatype)| (op as u8, datatype as u8));
        Self {
            start: event.start,
            user_ptr: event.user_ptr,
            hdr_data: event.hdr_data,
            match_bits: event.match_bits,
            rlength: event.rlength,
            mlength: event.mlength,
            remote_offset: event.remote_offset,
            initiator: PtlProcess::new(event.initiator),
            uid: event.uid,
            pt_index: event.pt_index,
            kind: event.kind as u8,
            list: event.list as u8,
            fail: event.fail as u8,
            operation,
            datatype,
        }
    }
}

/// `ptl_ni_limits_t`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct PtlLimits {
    counts: [c_int; 9],
    sizes: [Size; 6],
    features: u32,
}

impl PtlLimits {
    pub(crate) fn new(limits: &Limits) -> Self {
        let count = |count: u32| c_int::try_from(count).unwrap_or(c_int::MAX);
        Self {
            counts: [
                count(limits.max_entries),
                count(limits.max_unexpected_headers),
                count(limits.max_mds),
                count(limits.max_cts),
                count(limits.max_eqs),
                count(limits.max_pt_index),
                count(limits.max_iovecs),
                count(limits.max_list_size),
                count(limits.max_triggered_ops),
            ],
            sizes: [
                limits.max_msg_size,
                limits.max_atomic_size,
                limits.max_fetch_atomic_size,
                limits.max_waw_ordered_size,
                limits.max_war_ordered_size,
                limits.max_volatile_size,
            ],
            features: limits.features,
        }
    }

    /// As the engine's type; negative values become 0.
    pub(crate) fn limits(self) -> Limits {
        let [entries, headers, mds, cts, eqs, pt_index, iovecs, list, triggered] =
            self.counts.map(|count| u32::try_from(count).unwrap_or(0));
        let [msg, atomic, fetch_atomic, waw, war, volatile] = self.sizes;
        Limits {
            max_entries: entries,
            max_unexpected_headers: headers,
            max_mds: mds,
            max_cts: cts,
            max_eqs: eqs,
            max_pt_index: pt_index,
            max_iovecs: iovecs,
            max_list_size: list,
            max_triggered_ops: triggered,
            max_msg_size: msg,
            max_atomic_size: atomic,
            max_fetch_atomic_size: fetch_atomic,
            max_waw_ordered_size: waw,
            max_war_ordered_size: war,
            max_volatile_size: volatile,
            features: self.features,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::{offset_of, size_of};

    /// Goal: structures have the layout of C. The test `structure_layout_matches_header` gets the same
    /// numbers from the C compiler.
    #[test]
    fn structure_layout_matches_c() {
        assert_eq!((size_of::<PtlMd>(), size_of::<PtlLe>(), size_of::<PtlMe>()), (32, 32, 64));
        assert_eq!((offset_of!(PtlMe, match_id), offset_of!(PtlMe, match_bits)), (28, 40));
        assert_eq!((size_of::<PtlEvent>(), offset_of!(PtlEvent, kind)), (80, 72));
        assert_eq!((size_of::<PtlLimits>(), offset_of!(PtlLimits, sizes)), (96, 40));
    }

    #[test]
    fn limits_roundtrip_keeps_values() {
        for limits in [Limits::default(), Limits::MOST] {
            assert_eq!(PtlLimits::new(&limits).limits(), limits);
        }
        let negative = PtlLimits { counts: [-1; 9], sizes: [0; 6], features: 0 };
        assert_eq!(negative.limits().max_entries, 0);
    }
}
