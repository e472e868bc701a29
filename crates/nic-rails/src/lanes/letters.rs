//! Letters: messages about failed lanes that the ends of a queue pair write into each other's memory.
//!
//! A letter says that its writer has closed a lane, and how many messages it had received on it until then. Its reader
//! knows that nothing it sent on that lane can still take effect, and what has taken effect. Letters are written by
//! RDMA on a connected lane, without the peer's processor; they contain absolute values, so they may be written any
//! number of times.

use host::mix;
use verbs::{Access, Buf, Mr, Pd, Result, Sge};

use crate::RAILS_MAX;

/// Bytes of a letter: a word and its hash, so that a partly written letter is detected.
const LETTER_BYTES: usize = 16;
/// Bytes of letters about all lanes.
const MAILBOX_BYTES: usize = LETTER_BYTES * RAILS_MAX;
/// Number of generations of a lane that can be distinguished.
pub(crate) const GENERATIONS: u32 = 1 << 28;

/// A side's report about a lane that it has closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Letter {
    /// The generation of the lane: the number of the attempt that connected it.
    pub(crate) generation: u32,
    /// The lane on which the writer received messages when it wrote this.
    pub(crate) recv_lane: u8,
    /// How many messages the writer had received on the lane, modulo 2^32.
    pub(crate) received: u32,
}

impl Letter {
    fn pack(self) -> [u8; LETTER_BYTES] {
        let word = u64::from(self.generation % GENERATIONS) << 36
            | u64::from(self.recv_lane & 0xf) << 32
            | u64::from(self.received);
        let mut bytes = [0; LETTER_BYTES];
        bytes[..8].copy_from_slice(&word.to_be_bytes());
        bytes[8..].copy_from_slice(&mix(!word).to_be_bytes());
        bytes
    }

    fn unpack(bytes: &[u8; LETTER_BYTES]) -> Option<Self> {
        let half =
            |from: usize| bytes[from..from + 8].iter().fold(0_u64, |word, &b| word << 8 | u64::from(b));
        let word = half(0);
        (half(8) == mix(!word)).then_some(Self {
            generation: (word >> 36) as u32,
            recv_lane: (word >> 32 & 0xf) as u8,
            received: word as u32,
        })
    }
}

/// Received letters, and letters to send.
pub(crate) struct Mailbox {
    buf: Buf,
    /// The registration on each rail.
    mrs: Vec<Mr>,
}

impl Mailbox {
    pub(crate) fn new(pds: &[Pd]) -> Result<Self> {
        let buf = Buf::alloc(2 * MAILBOX_BYTES)?;
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

    /// The peer's letter about a lane.
    pub(crate) fn read(&self, lane: usize) -> Option<Letter> {
        let mut bytes = [0; LETTER_BYTES];
        self.buf.read(lane * LETTER_BYTES, &mut bytes).ok()?;
        Letter::unpack(&bytes)
    }

    /// Stores a letter to send.
    pub(crate) fn put(&self, lane: usize, letter: Letter) {
        // There is room for the maximum number of lanes.
        let _ = self.buf.write(MAILBOX_BYTES + lane * LETTER_BYTES, &letter.pack());
    }

    /// All letters to send, as a scatter/gather element of a rail.
    pub(crate) fn outgoing_sge(&self, rail: usize) -> Sge {
        self.mrs[rail].sge(MAILBOX_BYTES as u64, MAILBOX_BYTES as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partly_written_letter_is_not_read() {
        let letter = Letter { generation: GENERATIONS - 1, recv_lane: 7, received: !0 };
        let other = Letter { generation: 3, recv_lane: 0, received: 17 };
        assert_eq!(Letter::unpack(&letter.pack()), Some(letter));
        assert_eq!(Letter::unpack(&other.pack()), Some(other));
        assert_eq!(Letter::unpack(&[0; LETTER_BYTES]), None, "nothing was written");
        for cut in 1..LETTER_BYTES {
            let (mut torn, old) = (letter.pack(), other.pack());
            torn[cut..].copy_from_slice(&old[cut..]);
            assert_eq!(Letter::unpack(&torn), None, "cut at {cut}");
        }
    }
}
