//! Lane reports: messages about failed lanes that the ends of a queue pair write into each other's memory.
//!
//! A lane report says that its writer has closed a lane, and how many messages it had received on it until then. Its
//! reader knows that nothing it sent on that lane can still take effect, and what has taken effect. Lane reports are
//! written by RDMA on a connected lane, without the peer's processor; they contain absolute values, so they may be
//! written any number of times.

use host::mix;
use verbs::{Access, Buf, Mr, Pd, Result, Sge};

use crate::RAILS_MAX;

/// Bytes of a lane report: a word and its checksum, so that a partly written report is detected.
const REPORT_BYTES: usize = 16;
/// Bytes of lane reports about all lanes.
const REPORTS_BYTES: usize = REPORT_BYTES * RAILS_MAX;
/// Number of generations of a lane that can be distinguished.
pub(crate) const GENERATIONS: u32 = 1 << 28;
/// The word of a report, from its high bits: 28 bits of the generation, 4 of the receive lane, 32 of the message count.
const GENERATION_SHIFT: u32 = 36;
const RECV_LANE_SHIFT: u32 = 32;
const RECV_LANE_MASK: u8 = 0xf;
const _: () = assert!(GENERATIONS as u64 == 1 << (64 - GENERATION_SHIFT));

/// A side's report about a lane that it has closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LaneReport {
    /// The generation of the lane: the number of the attempt that connected it.
    pub(crate) generation: u32,
    /// The lane on which the writer received messages when it wrote this.
    pub(crate) recv_lane: u8,
    /// How many messages the writer had received on the lane, modulo 2^32.
    pub(crate) messages_received: u32,
}

/// The checksum of a report's word. Memory of zeros holds no valid report.
fn checksum(word: u64) -> u64 {
    mix(!word)
}

impl LaneReport {
    /// Encodes it: a word, and the word's checksum.
    fn pack(self) -> [u8; REPORT_BYTES] {
        let word = u64::from(self.generation % GENERATIONS) << GENERATION_SHIFT
            | u64::from(self.recv_lane & RECV_LANE_MASK) << RECV_LANE_SHIFT
            | u64::from(self.messages_received);
        let mut bytes = [0; REPORT_BYTES];
        bytes[..8].copy_from_slice(&word.to_be_bytes());
        bytes[8..].copy_from_slice(&checksum(word).to_be_bytes());
        bytes
    }

    /// Decodes it; `None` if the checksum does not match.
    fn unpack(bytes: &[u8; REPORT_BYTES]) -> Option<Self> {
        let half =
            |from: usize| bytes[from..from + 8].iter().fold(0_u64, |word, &b| word << 8 | u64::from(b));
        let word = half(0);
        (half(8) == checksum(word)).then_some(Self {
            generation: (word >> GENERATION_SHIFT) as u32,
            recv_lane: (word >> RECV_LANE_SHIFT) as u8 & RECV_LANE_MASK,
            messages_received: word as u32,
        })
    }
}

/// Received lane reports, and those to send.
pub(crate) struct ReportBuffer {
    buf: Buf,
    /// The registration on each rail.
    mrs: Vec<Mr>,
}

impl ReportBuffer {
    pub(crate) fn new(pds: &[Pd]) -> Result<Self> {
        let buf = Buf::alloc(2 * REPORTS_BYTES)?;
        let rights = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
        let mrs = pds.iter().map(|pd| pd.reg_mr(&buf, rights)).collect::<Result<_>>()?;
        Ok(Self { buf, mrs })
    }

    /// The address that the peer writes to.
    pub(crate) fn addr(&self) -> u64 {
        self.mrs[0].addr()
    }

    pub(crate) fn rkey(&self, rail: usize) -> u32 {
        self.mrs[rail].rkey()
    }

    /// The peer's report about a lane.
    pub(crate) fn read(&self, lane: usize) -> Option<LaneReport> {
        let mut bytes = [0; REPORT_BYTES];
        self.buf.read(lane * REPORT_BYTES, &mut bytes).ok()?;
        LaneReport::unpack(&bytes)
    }

    /// Stores a lane report to send.
    pub(crate) fn put(&self, lane: usize, report: LaneReport) {
        // There is room for the maximum number of lanes.
        let _ = self.buf.write(REPORTS_BYTES + lane * REPORT_BYTES, &report.pack());
    }

    /// All lane reports to send, as a scatter/gather element of a rail.
    pub(crate) fn outgoing_sge(&self, rail: usize) -> Sge {
        self.mrs[rail].sge(REPORTS_BYTES as u64, REPORTS_BYTES as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partly_written_report_is_not_read() {
        let report = LaneReport { generation: GENERATIONS - 1, recv_lane: 7, messages_received: !0 };
        let other = LaneReport { generation: 3, recv_lane: 0, messages_received: 17 };
        assert_eq!(LaneReport::unpack(&report.pack()), Some(report));
        assert_eq!(LaneReport::unpack(&other.pack()), Some(other));
        assert_eq!(LaneReport::unpack(&[0; REPORT_BYTES]), None, "nothing was written");
        for cut in 1..REPORT_BYTES {
            let (mut torn, old) = (report.pack(), other.pack());
            torn[cut..].copy_from_slice(&old[cut..]);
            assert_eq!(LaneReport::unpack(&torn), None, "cut at {cut}");
        }
    }
}
