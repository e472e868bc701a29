//! A send request, and the lanes that carry it: whole on one, or a stripe on each.

use verbs::{RemoteAddr, SendFlags, SendOp, Sge, WcStatus};

use crate::RAILS_MAX;
use crate::memory::keys::LaneKeys;

/// Maximum number of scatter/gather elements of a request.
pub(crate) const PIECES_MAX: usize = 32;
/// Alignment of stripe ends, so that no two lanes share a line of memory.
pub(crate) const LINE: u64 = 64;

/// The end of each lane's stripe, for a striped request.
pub(crate) type StripeEnds = [u64; RAILS_MAX];

/// Bit mask of the lanes that carry a request. The ends of stripes are stored separately: few requests have any.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct LaneSet {
    pub(crate) mask: u8,
}

impl LaneSet {
    pub(crate) const NONE: Self = Self { mask: 0 };

    /// The whole request on one lane.
    pub(crate) fn single(lane: usize) -> Self {
        Self { mask: 1 << lane }
    }

    /// A stripe for each of the lanes in `mask`, in the proportion of their shares; the stripe ends are stored in
    /// `ends`.
    pub(crate) fn striped(len: u64, mask: u8, shares: &[f64; RAILS_MAX], ends: &mut StripeEnds) -> Self {
        let used = |lane: &usize| mask & 1 << lane != 0;
        let all: f64 = (0..RAILS_MAX).filter(used).map(|lane| shares[lane]).sum();
        let last = (0..RAILS_MAX).rfind(used).unwrap_or(0);
        let (mut sum, mut at, mut lanes) = (0.0, 0, Self::NONE);
        for (lane, share) in shares.iter().enumerate() {
            if used(&lane) {
                sum += share;
                let end = if lane == last { len } else { (len as f64 * (sum / all)) as u64 / LINE * LINE };
                if end > at {
                    lanes.mask |= 1 << lane;
                }
                at = at.max(end);
            }
            ends[lane] = at;
        }
        lanes
    }

    #[inline]
    pub(crate) fn is_striped(&self) -> bool {
        self.mask & self.mask.wrapping_sub(1) != 0
    }

    pub(crate) fn contains(&self, lane: usize) -> bool {
        self.mask & 1 << lane != 0
    }

    /// The first lane.
    pub(crate) fn first_lane(&self) -> usize {
        self.mask.trailing_zeros() as usize % RAILS_MAX
    }

    /// The byte range of a request of `len` bytes that a lane carries.
    #[inline]
    pub(crate) fn range(&self, lane: usize, len: u64, ends: &StripeEnds) -> (u64, u64) {
        match self.is_striped() {
            false => (0, len),
            true => (if lane == 0 { 0 } else { ends[lane - 1] }, ends[lane]),
        }
    }
}

/// A request, from posting until its completion is reported.
#[derive(Clone, Copy)]
pub(crate) struct RequestSlot {
    pub(crate) wr_id: u64,
    pub(crate) op: SendOp,
    pub(crate) flags: SendFlags,
    /// Bytes of the message, and the number of its scatter/gather elements or inline bytes.
    pub(crate) len: u64,
    pub(crate) pieces: usize,
    pub(crate) inline: Option<usize>,
    /// Lanes that carry it, and how many of their parts are outstanding.
    pub(crate) lanes: LaneSet,
    pub(crate) pending: u32,
    /// A message's number on its lane, from 0.
    pub(crate) number: u32,
    /// A lane failed before the result of its part was known.
    pub(crate) lost_completion: bool,
    /// It is known to have completed, but its turn to be reported has not come.
    pub(crate) already_completed: bool,
    pub(crate) status: WcStatus,
    pub(crate) bytes: u32,
}

pub(crate) const EMPTY: RequestSlot = RequestSlot {
    wr_id: 0,
    op: SendOp::Send,
    flags: SendFlags::empty(),
    len: 0,
    pieces: 0,
    inline: None,
    lanes: LaneSet::NONE,
    pending: 0,
    number: 0,
    lost_completion: false,
    already_completed: false,
    status: WcStatus::Success,
    bytes: 0,
};

/// The effect of a request on the peer's memory, for ordering.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum OrderingClass {
    /// Consumes a receive or changes memory exactly once: one lane, after everything on others.
    Message,
    Write,
    Read,
}

#[inline]
pub(crate) fn class(op: SendOp) -> OrderingClass {
    match op {
        SendOp::Write(_) => OrderingClass::Write,
        SendOp::Read(_) => OrderingClass::Read,
        _ => OrderingClass::Message,
    }
}

/// Whether it consumes a receive of the peer, which therefore counts it.
#[inline]
pub(crate) fn consumes_receive(op: SendOp) -> bool {
    class(op) == OrderingClass::Message && !op.is_atomic()
}

/// The peer's memory that a request names.
#[inline]
pub(crate) fn remote_of(op: SendOp) -> Option<RemoteAddr> {
    match op {
        SendOp::Send | SendOp::SendImm(_) | SendOp::SendInv(_) => None,
        // Refused when they are posted.
        SendOp::BindMw(_) | SendOp::LocalInv(_) => None,
        SendOp::Write(remote) | SendOp::WriteImm(remote, _) | SendOp::Read(remote) => Some(remote),
        SendOp::CompareSwap { remote, .. } | SendOp::FetchAdd { remote, .. } => Some(remote),
    }
}

/// The peer's key that a request needs.
#[inline]
pub(crate) fn key_of(op: SendOp) -> Option<u32> {
    match op {
        SendOp::SendInv(key) => Some(key),
        _ => remote_of(op).map(|remote| remote.rkey),
    }
}

/// A request's flags for one lane: always signaled, and complete only when the data have arrived, as replaying the
/// requests of a failed lane requires.
#[inline]
pub(crate) fn lane_flags(flags: SendFlags) -> SendFlags {
    (flags | SendFlags::SIGNALED) - SendFlags::LOCAL
}

/// The request for one lane: with that lane's key, from `at` bytes on.
#[inline]
pub(crate) fn lane_op(op: SendOp, lane: usize, keys: Option<&LaneKeys>, at: u64) -> SendOp {
    let key = keys.map_or(0, |keys| keys[lane]);
    let on_lane = |remote: RemoteAddr| RemoteAddr { rkey: key, ..remote }.offset(at);
    match op {
        SendOp::Send | SendOp::SendImm(_) | SendOp::BindMw(_) | SendOp::LocalInv(_) => op,
        SendOp::SendInv(_) => SendOp::SendInv(key),
        SendOp::Write(remote) => SendOp::Write(on_lane(remote)),
        SendOp::WriteImm(remote, imm) => SendOp::WriteImm(on_lane(remote), imm),
        SendOp::Read(remote) => SendOp::Read(on_lane(remote)),
        SendOp::CompareSwap { remote, compare, swap } => {
            SendOp::CompareSwap { remote: on_lane(remote), compare, swap }
        }
        SendOp::FetchAdd { remote, add } => SendOp::FetchAdd { remote: on_lane(remote), add },
    }
}

/// The scatter/gather elements of the bytes `from` to `to` of a message.
pub(crate) fn slice_sges(pieces: &[Sge], from: u64, to: u64, out: &mut [Sge; PIECES_MAX]) -> usize {
    let (mut at, mut count) = (0, 0);
    for piece in pieces {
        let end = at + u64::from(piece.length);
        let (start, stop) = (from.max(at), to.min(end));
        if start < stop {
            out[count] = Sge {
                addr: piece.addr.wrapping_add(start - at),
                length: (stop - start) as u32,
                lkey: piece.lkey,
            };
            count += 1;
        }
        at = end;
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stripes_cover_a_message_once() {
        let shares = |some: &[f64]| std::array::from_fn(|lane| some.get(lane).copied().unwrap_or(0.0));
        for (mask, some) in [
            (0b1, &[1.0][..]),
            (0b11, &[1.0, 1.0]),
            (0b11, &[0.2, 0.8]),
            (0b1111, &[1.0, 1.0, 1.0, 1.0]),
            (0b1010, &[1.0, 3.0, 1.0, 1.0]),
            (0b111, &[0.001, 0.001, 1.0]),
        ] {
            for len in [1, 63, 64, 65, 1000, 4096, 1 << 20, (1 << 30) + 7] {
                let mut ends = [0; RAILS_MAX];
                let lanes = LaneSet::striped(len, mask, &shares(some), &mut ends);
                let mut at = 0;
                for lane in (0..RAILS_MAX).filter(|&lane| lanes.contains(lane)) {
                    let (from, to) = lanes.range(lane, len, &ends);
                    assert!(mask & 1 << lane != 0, "lane {lane} is not one of {mask:b}");
                    assert_eq!(from, at, "{some:?}, {len} B, lane {lane}");
                    assert!(to > from && (to % LINE == 0 || to == len));
                    at = to;
                }
                assert_eq!(at, len, "{some:?}");
            }
        }
    }

    #[test]
    fn slice_sges_selects_the_bytes() {
        let lens = [5_u32, 0, 100, 1, 64];
        let pieces: Vec<Sge> = lens
            .iter()
            .enumerate()
            .map(|(i, &length)| Sge { addr: 1000 * i as u64, length, lkey: i as u32 })
            .collect();
        let bytes = |pieces: &[Sge]| -> Vec<(u64, u32)> {
            pieces.iter().flat_map(|p| (0..u64::from(p.length)).map(|b| (p.addr + b, p.lkey))).collect()
        };
        let (all, mut out) = (bytes(&pieces), [Sge::default(); PIECES_MAX]);
        for from in 0..=170 {
            for to in from..=170 {
                let count = slice_sges(&pieces, from, to, &mut out);
                assert_eq!(bytes(&out[..count]), all[from as usize..to as usize], "{from} to {to}");
            }
        }
    }
}
