//! What a stream of iWARP consists of: a frame of the handshake, then FPDUs.

/// A frame, by what it is and how many of its kind came before it on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Name {
    /// RDMAP's; the handshake has none.
    pub(super) opcode: Option<u8>,
    pub(super) nth: usize,
}

impl Name {
    pub(super) const HANDSHAKE: Self = Self { opcode: None, nth: 0 };
}

/// RDMAP's opcodes are four bits (RFC 5040 section 4.1).
const OPCODES: usize = 16;

/// Cuts a stream into its frames.
#[derive(Default)]
pub(super) struct Cutter {
    held: Vec<u8>,
    greeted: bool,
    counts: [usize; OPCODES],
}

impl Cutter {
    /// These bytes come next.
    pub(super) fn take(&mut self, bytes: &[u8]) {
        self.held.extend(bytes);
    }

    /// The next frame, if it is there as a whole.
    pub(super) fn frame(&mut self) -> Option<(Name, Vec<u8>)> {
        let word =
            |at: usize| Some(usize::from(u16::from_be_bytes([*self.held.get(at)?, *self.held.get(at + 1)?])));
        // RFC 5044 sections 7.1.1 and 4: a key, two bytes, the length of the rest; or a length, so much, pad and CRC.
        let len = if self.greeted { (2 + word(0)?).next_multiple_of(4) + 4 } else { 20 + word(18)? };
        if self.held.len() < len {
            return None;
        }
        let frame: Vec<u8> = self.held.drain(..len).collect();
        if !std::mem::replace(&mut self.greeted, true) {
            return Some((Name::HANDSHAKE, frame));
        }
        let opcode = frame[3] & 0xf;
        let count = &mut self.counts[usize::from(opcode)];
        *count += 1;
        Some((Name { opcode: Some(opcode), nth: *count - 1 }, frame))
    }

    /// What is there of a frame that is not there as a whole.
    pub(super) fn rest(self) -> Vec<u8> {
        self.held
    }
}
