//! RDMAP messages: opcodes and the bodies of control messages (RFC 5040 section 4, RFC 7306 sections 5 and 6).

use crate::ddp::{QUEUE_ATOMIC, QUEUE_REQUEST, QUEUE_SEND, QUEUE_TERMINATE};
use crate::wire::{FieldReader, InlineBytes};

/// The protocol's version, field RV (RFC 5040 section 4.1).
pub const VERSION: u8 = 1;
/// Bytes of a Read Request after the DDP header (RFC 5040 section 4.4).
pub const READ_REQUEST_LEN: usize = 28;
/// Bytes of an Atomic Request after the DDP header (RFC 7306 section 5.2.1).
pub const ATOMIC_REQUEST_LEN: usize = 52;
/// Bytes of an Atomic Response after the DDP header (RFC 7306 section 5.2.2).
pub const ATOMIC_RESPONSE_LEN: usize = 12;
/// Bytes of Immediate Data after the DDP header (RFC 7306 section 6).
pub const IMMEDIATE_LEN: usize = 8;

/// The opcode of an RDMAP message (RFC 5040 section 4.2, RFC 7306 section 4.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Opcode {
    /// RDMA Write.
    Write = 0,
    /// RDMA Read Request.
    ReadRequest = 1,
    /// RDMA Read Response.
    ReadResponse = 2,
    /// Send.
    Send = 3,
    /// Send with Invalidate.
    SendInvalidate = 4,
    /// Send with Solicited Event.
    SendSolicited = 5,
    /// Send with Solicited Event and Invalidate.
    SendSolicitedInvalidate = 6,
    /// Terminate.
    Terminate = 7,
    /// Immediate Data.
    Immediate = 8,
    /// Immediate Data with Solicited Event.
    ImmediateSolicited = 9,
    /// Atomic Request.
    AtomicRequest = 10,
    /// Atomic Response.
    AtomicResponse = 11,
}

impl Opcode {
    const ALL: [Self; 12] = [
        Self::Write,
        Self::ReadRequest,
        Self::ReadResponse,
        Self::Send,
        Self::SendInvalidate,
        Self::SendSolicited,
        Self::SendSolicitedInvalidate,
        Self::Terminate,
        Self::Immediate,
        Self::ImmediateSolicited,
        Self::AtomicRequest,
        Self::AtomicResponse,
    ];

    /// Parses the opcode of RDMAP's control field; `None` if it is not assigned. Reserved bits are not checked (RFC
    /// 5040 section 4.1).
    pub fn parse(control: u8) -> Option<Self> {
        Self::ALL.get(usize::from(control & 0x0f)).copied()
    }

    /// RDMAP's control field: version and opcode, reserved bits zero (RFC 5040 section 4.1).
    pub const fn control(self) -> u8 {
        VERSION << 6 | self as u8
    }

    /// The queue of an untagged message; `None` for a tagged one.
    pub const fn queue(self) -> Option<u32> {
        Some(match self {
            Self::Write | Self::ReadResponse => return None,
            Self::ReadRequest | Self::AtomicRequest => QUEUE_REQUEST,
            Self::Terminate => QUEUE_TERMINATE,
            Self::AtomicResponse => QUEUE_ATOMIC,
            _ => QUEUE_SEND,
        })
    }

    /// The opcode of a Send of this form.
    pub const fn send(solicited: bool, invalidate: bool) -> Self {
        match (solicited, invalidate) {
            (false, false) => Self::Send,
            (false, true) => Self::SendInvalidate,
            (true, false) => Self::SendSolicited,
            (true, true) => Self::SendSolicitedInvalidate,
        }
    }

    /// Whether the message wakes a receiver that waits only for solicited events.
    pub const fn is_solicited(self) -> bool {
        matches!(self, Self::SendSolicited | Self::SendSolicitedInvalidate | Self::ImmediateSolicited)
    }

    /// Whether the message carries a steering tag to invalidate.
    pub const fn invalidates(self) -> bool {
        matches!(self, Self::SendInvalidate | Self::SendSolicitedInvalidate)
    }
}

/// The version in RDMAP's control field.
pub const fn version(control: u8) -> u8 {
    control >> 6
}

/// An RDMA Read Request (RFC 5040 section 4.4).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReadRequest {
    /// Steering tag of the requester's buffer, which receives the data.
    pub sink_stag: u32,
    /// Offset in that buffer, in bytes.
    pub sink_to: u64,
    /// Bytes to read.
    pub len: u32,
    /// The buffer to read from.
    pub source_stag: u32,
    /// Offset in it, in bytes.
    pub source_to: u64,
}

impl ReadRequest {
    /// Parses the body; `None` if its length is wrong.
    pub fn parse(body: &[u8]) -> Option<Self> {
        let mut fields = FieldReader(body);
        let request = Self {
            sink_stag: fields.u32()?,
            sink_to: fields.u64()?,
            len: fields.u32()?,
            source_stag: fields.u32()?,
            source_to: fields.u64()?,
        };
        fields.0.is_empty().then_some(request)
    }

    /// Appends the body.
    pub fn emit<const N: usize>(&self, out: &mut InlineBytes<N>) {
        out.put(&self.sink_stag.to_be_bytes());
        out.put(&self.sink_to.to_be_bytes());
        out.put(&self.len.to_be_bytes());
        out.put(&self.source_stag.to_be_bytes());
        out.put(&self.source_to.to_be_bytes());
    }
}

/// What an atomic operation does to 64 bits (RFC 7306 section 5.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AtomicOp {
    /// Adds field by field: each bit set in `mask` is the top bit of a field, and no carry leaves it.
    FetchAdd {
        /// What is added.
        add: u64,
        /// The top bit of each field; 0 means one field of 64 bits.
        mask: u64,
    },
    /// Replaces the bits under `swap_mask` if the bits under `compare_mask` equal those of `compare`.
    CompareSwap {
        /// The value to compare with.
        compare: u64,
        /// The bits to compare; all ones compares the whole word.
        compare_mask: u64,
        /// The new value.
        swap: u64,
        /// The bits to replace; all ones replaces the whole word.
        swap_mask: u64,
    },
}

impl AtomicOp {
    const FETCH_ADD: u32 = 0;
    /// 1 is not assigned; RFC 7306 section 5.2.1.
    const COMPARE_SWAP: u32 = 2;

    /// Computes the new value of a word that holds `original`.
    pub fn apply(self, original: u64) -> u64 {
        match self {
            Self::FetchAdd { add, mask: 0 } => original.wrapping_add(add),
            Self::FetchAdd { add, mask } => {
                // Each round moves the carry up by one bit, until no carry is left or the end of a field drops it.
                let (mut sum, mut carry) = (original ^ add, original & add & !mask);
                while carry != 0 {
                    let moved = carry << 1;
                    carry = sum & moved & !mask;
                    sum ^= moved;
                }
                sum
            }
            Self::CompareSwap { compare, compare_mask, swap, swap_mask } => {
                if (original ^ compare) & compare_mask == 0 {
                    original & !swap_mask | swap & swap_mask
                } else {
                    original
                }
            }
        }
    }
}

/// An Atomic Request (RFC 7306 section 5.2.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AtomicRequest {
    /// The requester's own identifier, which the response repeats.
    pub id: u32,
    /// The buffer that holds the word.
    pub stag: u32,
    /// Offset of the word in it, in bytes, a multiple of 8.
    pub to: u64,
    /// The operation.
    pub op: AtomicOp,
}

/// Why the body of an Atomic Request is invalid.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AtomicError {
    /// The length is wrong.
    Length,
    /// The operation is not assigned.
    Operation,
}

impl AtomicRequest {
    /// Parses the body.
    pub fn parse(body: &[u8]) -> Result<Self, AtomicError> {
        Self::fields(body).ok_or(AtomicError::Length)?
    }

    fn fields(body: &[u8]) -> Option<Result<Self, AtomicError>> {
        let mut fields = FieldReader(body);
        // The upper 28 bits are reserved and not checked.
        let operation = fields.u32()? & 0x0f;
        let (id, stag, to) = (fields.u32()?, fields.u32()?, fields.u64()?);
        let (data, mask) = (fields.u64()?, fields.u64()?);
        let (compare, compare_mask) = (fields.u64()?, fields.u64()?);
        if !fields.0.is_empty() {
            return None;
        }
        let op = match operation {
            AtomicOp::FETCH_ADD => AtomicOp::FetchAdd { add: data, mask },
            AtomicOp::COMPARE_SWAP => {
                AtomicOp::CompareSwap { compare, compare_mask, swap: data, swap_mask: mask }
            }
            _ => return Some(Err(AtomicError::Operation)),
        };
        Some(Ok(Self { id, stag, to, op }))
    }

    /// Appends the body.
    pub fn emit<const N: usize>(&self, out: &mut InlineBytes<N>) {
        let (operation, longs) = match self.op {
            AtomicOp::FetchAdd { add, mask } => (AtomicOp::FETCH_ADD, [add, mask, 0, 0]),
            AtomicOp::CompareSwap { compare, compare_mask, swap, swap_mask } => {
                (AtomicOp::COMPARE_SWAP, [swap, swap_mask, compare, compare_mask])
            }
        };
        for word in [operation, self.id, self.stag] {
            out.put(&word.to_be_bytes());
        }
        out.put(&self.to.to_be_bytes());
        for long in longs {
            out.put(&long.to_be_bytes());
        }
    }
}

/// An Atomic Response (RFC 7306 section 5.2.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AtomicResponse {
    /// The requester's identifier of the request.
    pub id: u32,
    /// The value of the word before the operation.
    pub original: u64,
}

impl AtomicResponse {
    /// Parses the body; `None` if its length is wrong.
    pub fn parse(body: &[u8]) -> Option<Self> {
        let mut fields = FieldReader(body);
        let response = Self { id: fields.u32()?, original: fields.u64()? };
        fields.0.is_empty().then_some(response)
    }

    /// Appends the body.
    pub fn emit<const N: usize>(&self, out: &mut InlineBytes<N>) {
        out.put(&self.id.to_be_bytes());
        out.put(&self.original.to_be_bytes());
    }
}

#[cfg(test)]
#[path = "rdmap_tests.rs"]
mod tests;
