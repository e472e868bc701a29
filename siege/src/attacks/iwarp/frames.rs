//! Splits an iWARP stream into frames: one of the handshake, then FPDUs.

/// A frame's name: its kind, and how many of that kind preceded it in this direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct FrameName {
    /// RDMAP's opcode; the handshake has none.
    pub(super) opcode: Option<u8>,
    pub(super) nth: usize,
}

impl FrameName {
    pub(super) const HANDSHAKE: Self = Self { opcode: None, nth: 0 };
}

/// RDMAP's opcodes are four bits (RFC 5040 section 4.1).
const OPCODES: usize = 16;

/// Cuts a stream into its frames.
#[derive(Default)]
pub(super) struct FrameSplitter {
    held: Vec<u8>,
    greeted: bool,
    counts: [usize; OPCODES],
}

impl FrameSplitter {
    /// Appends received bytes.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.held.extend(bytes);
    }

    /// The next frame, if it is complete.
    pub(super) fn next_frame(&mut self) -> Option<(FrameName, Vec<u8>)> {
        let word =
            |at: usize| Some(usize::from(u16::from_be_bytes([*self.held.get(at)?, *self.held.get(at + 1)?])));
        // RFC 5044 sections 7.1.1 and 4. The handshake: a key, two bytes, the length of the rest. An FPDU: a length,
        // that many bytes, pad and CRC.
        let len = if self.greeted { (2 + word(0)?).next_multiple_of(4) + 4 } else { 20 + word(18)? };
        if self.held.len() < len {
            return None;
        }
        let frame: Vec<u8> = self.held.drain(..len).collect();
        if !std::mem::replace(&mut self.greeted, true) {
            return Some((FrameName::HANDSHAKE, frame));
        }
        let opcode = frame[3] & 0xf;
        let count = &mut self.counts[usize::from(opcode)];
        *count += 1;
        Some((FrameName { opcode: Some(opcode), nth: *count - 1 }, frame))
    }

    /// The bytes of an incomplete frame.
    pub(super) fn into_rest(self) -> Vec<u8> {
        self.held
    }
}
