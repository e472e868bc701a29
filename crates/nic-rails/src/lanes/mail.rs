//! Mail: what the ends of a queue pair write into each other's memory about lanes that have died.
//!
//! A letter says that its writer has closed a lane, and how many messages had come by it until then. Whoever has read it
//! knows that nothing which it sent on that lane can still take effect, and what has. Letters are written by RDMA on a lane
//! that lives, so that no processor of the peer takes part; being absolute, they may be written any number of times.

use host::mix;
use verbs::{Access, Buf, Mr, Pd, Result, Sge};

use crate::RAILS_MAX;

/// Bytes of a letter: a word, and the same mixed, so that one that is half written is known.
const LETTER: usize = 16;
/// Bytes of letters about all lanes.
const BOX: usize = LETTER * RAILS_MAX;
/// Generations of a lane that can be told apart.
pub(crate) const GENERATIONS: u32 = 1 << 28;

/// What one side says about a lane of its own that it has closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Letter {
    /// Which time of the lane: how often it had been tried.
    pub(crate) generation: u32,
    /// On which lane the writer took messages when it wrote this.
    pub(crate) recv_lane: u8,
    /// How many messages had been received on the lane, modulo 2^32.
    pub(crate) received: u32,
}

impl Letter {
    fn pack(self) -> [u8; LETTER] {
        let word = u64::from(self.generation % GENERATIONS) << 36
            | u64::from(self.recv_lane & 0xf) << 32
            | u64::from(self.received);
        let mut bytes = [0; LETTER];
        bytes[..8].copy_from_slice(&word.to_be_bytes());
        bytes[8..].copy_from_slice(&mix(!word).to_be_bytes());
        bytes
    }

    fn unpack(bytes: &[u8; LETTER]) -> Option<Self> {
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

/// Letters that have come, and letters to be written.
pub(crate) struct Mailbox {
    buf: Buf,
    /// On each rail.
    mrs: Vec<Mr>,
}

impl Mailbox {
    pub(crate) fn new(pds: &[Pd]) -> Result<Self> {
        let buf = Buf::alloc(2 * BOX)?;
        let rights = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
        let mrs = pds.iter().map(|pd| pd.reg_mr(&buf, rights)).collect::<Result<_>>()?;
        Ok(Self { buf, mrs })
    }

    /// Where the peer writes to.
    pub(crate) fn addr(&self) -> u64 {
        self.mrs[0].addr()
    }

    pub(crate) fn rkey(&self, rail: usize) -> u32 {
        self.mrs[rail].rkey()
    }

    /// What the peer has said about a lane.
    pub(crate) fn read(&self, lane: usize) -> Option<Letter> {
        let mut bytes = [0; LETTER];
        self.buf.read(lane * LETTER, &mut bytes).ok()?;
        Letter::unpack(&bytes)
    }

    /// Puts a letter among those to be written.
    pub(crate) fn put(&self, lane: usize, letter: Letter) {
        // Lanes are fewer than there is room for.
        let _ = self.buf.write(BOX + lane * LETTER, &letter.pack());
    }

    /// All letters to be written, as a rail's requests name them.
    pub(crate) fn out(&self, rail: usize) -> Sge {
        self.mrs[rail].sge(BOX as u64, BOX as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_are_read_whole_or_not_at_all() {
        let letter = Letter { generation: GENERATIONS - 1, recv_lane: 7, received: !0 };
        let other = Letter { generation: 3, recv_lane: 0, received: 17 };
        assert_eq!(Letter::unpack(&letter.pack()), Some(letter));
        assert_eq!(Letter::unpack(&other.pack()), Some(other));
        assert_eq!(Letter::unpack(&[0; LETTER]), None, "nothing was written");
        for cut in 1..LETTER {
            let (mut torn, old) = (letter.pack(), other.pack());
            torn[cut..].copy_from_slice(&old[cut..]);
            assert_eq!(Letter::unpack(&torn), None, "cut at {cut}");
        }
    }
}
