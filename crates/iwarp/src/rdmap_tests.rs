//! RDMAP messages byte by byte, and the results of atomics.

use super::*;
use proptest::prelude::*;

#[test]
fn opcodes_map_to_their_queues() {
    for (index, opcode) in Opcode::ALL.into_iter().enumerate() {
        assert_eq!(usize::from(opcode as u8), index);
        assert_eq!(Opcode::parse(opcode.control()), Some(opcode));
        // Reserved bits change nothing (RFC 5040 section 4.1).
        assert_eq!(Opcode::parse(opcode.control() | 0x30), Some(opcode));
        assert_eq!(version(opcode.control()), VERSION);
    }
    assert!((12..16).all(|bits| Opcode::parse(0x40 | bits).is_none()));
    let queues: Vec<Option<u32>> = Opcode::ALL.iter().map(|opcode| opcode.queue()).collect();
    let (none, some) = (None, Some);
    assert_eq!(
        queues,
        [
            none,
            some(1),
            none,
            some(0),
            some(0),
            some(0),
            some(0),
            some(2),
            some(0),
            some(0),
            some(1),
            some(3)
        ]
    );
}

#[test]
fn read_request_has_the_bytes_of_the_rfc() {
    let request = ReadRequest {
        sink_stag: 0x0102_0304,
        sink_to: 0x05,
        len: 0x1000,
        source_stag: 0xa1a2_a3a4,
        source_to: 0xb1b2_b3b4_b5b6_b7b8,
    };
    let mut out = InlineBytes::<READ_REQUEST_LEN>::new();
    request.emit(&mut out);
    let wire = [
        1, 2, 3, 4, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0x10, 0, 0xa1, 0xa2, 0xa3, 0xa4, 0xb1, 0xb2, 0xb3, 0xb4,
        0xb5, 0xb6, 0xb7, 0xb8,
    ];
    assert_eq!(out.as_slice(), wire);
    assert_eq!(ReadRequest::parse(&wire), Some(request));
    assert_eq!(ReadRequest::parse(&wire[..27]), None);
    assert_eq!(ReadRequest::parse(&[0; 29]), None);
}

#[test]
fn atomic_request_has_the_bytes_of_the_rfc() {
    let op = AtomicOp::CompareSwap { compare: 3, compare_mask: 4, swap: 1, swap_mask: 2 };
    let request = AtomicRequest { id: 9, stag: 8, to: 16, op };
    let mut out = InlineBytes::<ATOMIC_REQUEST_LEN>::new();
    request.emit(&mut out);
    let mut wire = vec![0, 0, 0, 2, 0, 0, 0, 9, 0, 0, 0, 8];
    for long in [16_u64, 1, 2, 3, 4] {
        wire.extend(long.to_be_bytes());
    }
    assert_eq!(out.as_slice(), wire);
    assert_eq!(AtomicRequest::parse(&wire), Ok(request));
    assert_eq!(AtomicRequest::parse(&wire[..51]), Err(AtomicError::Length));
    assert_eq!(AtomicRequest::parse(&[0; 53]), Err(AtomicError::Length));
    wire[3] = 1;
    assert_eq!(AtomicRequest::parse(&wire), Err(AtomicError::Operation));
}

#[test]
fn atomic_response_has_the_bytes_of_the_rfc() {
    let response = AtomicResponse { id: 0x0102_0304, original: 5 };
    let mut out = InlineBytes::<ATOMIC_RESPONSE_LEN>::new();
    response.emit(&mut out);
    assert_eq!(out.as_slice(), [1, 2, 3, 4, 0, 0, 0, 0, 0, 0, 0, 5]);
    assert_eq!(AtomicResponse::parse(&out), Some(response));
    assert_eq!(AtomicResponse::parse(&out[..11]), None);
}

#[test]
fn fetch_add_adds_in_masked_fields() {
    let add = |original, add, mask| AtomicOp::FetchAdd { add, mask }.apply(original);
    assert_eq!(add(u64::MAX, 1, 0), 0);
    // Two fields of 32 bits: the lower one's carry is lost.
    assert_eq!(add(0x0000_0001_ffff_ffff, 1, 0x8000_0000), 0x0000_0001_0000_0000);
    assert_eq!(add(0x0000_0001_ffff_ffff, 0x0000_0002_0000_0002, 0x8000_0000), 0x0000_0003_0000_0001);
    // Each bit is a field of its own: addition becomes exclusive or.
    assert_eq!(add(0b1100, 0b1010, u64::MAX), 0b0110);
}

#[test]
fn compare_swap_uses_both_masks() {
    let op = |compare, compare_mask, swap, swap_mask| AtomicOp::CompareSwap {
        compare,
        compare_mask,
        swap,
        swap_mask,
    };
    assert_eq!(op(5, u64::MAX, 9, u64::MAX).apply(5), 9);
    assert_eq!(op(5, u64::MAX, 9, u64::MAX).apply(6), 6);
    assert_eq!(op(0x05, 0x0f, 0xa0, 0xf0).apply(0x75), 0xa5);
    assert_eq!(op(1, 0, 9, u64::MAX).apply(77), 9);
}

/// Adds bit by bit, as RFC 7306 section 5.1.1 describes it.
fn add_bit_by_bit(original: u64, add: u64, mask: u64) -> u64 {
    let (mut sum, mut carry) = (0, 0);
    for bit in 0..64 {
        let at = |word: u64| word >> bit & 1;
        let total = at(original) + at(add) + carry;
        sum |= (total & 1) << bit;
        carry = if at(mask) == 1 { 0 } else { total >> 1 };
    }
    sum
}

proptest! {
    #[test]
    fn fetch_add_agrees_with_bitwise_sum(original: u64, add: u64, mask: u64) {
        prop_assert_eq!(AtomicOp::FetchAdd { add, mask }.apply(original), add_bit_by_bit(original, add, mask));
        prop_assert_eq!(AtomicOp::FetchAdd { add, mask: 0 }.apply(original), original.wrapping_add(add));
    }

    #[test]
    fn emitted_requests_parse_back(id: u32, stag: u32, to: u64, a: u64, b: u64, c: u64, d: u64, swap: bool) {
        let op = if swap {
            AtomicOp::CompareSwap { compare: a, compare_mask: b, swap: c, swap_mask: d }
        } else {
            AtomicOp::FetchAdd { add: a, mask: b }
        };
        let request = AtomicRequest { id, stag, to, op };
        let mut out = InlineBytes::<ATOMIC_REQUEST_LEN>::new();
        request.emit(&mut out);
        prop_assert_eq!(AtomicRequest::parse(&out), Ok(request));
    }
}
