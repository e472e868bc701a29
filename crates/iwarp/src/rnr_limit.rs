//! RNR retry limits: how often a message that finds no receive is retried, and how the peer learns the limit.
//!
//! An InfiniBand queue pair has such a limit (`rnr_retry` of ibv_modify_qp(3)), and its requester counts. iWARP has
//! no negative acknowledgement: a receiver without a buffer ends the stream (RFC 5041 section 7.2, "no buffer
//! available"), or first lets the message wait in TCP. So the sender announces its limit, and the peer's receiver
//! waits as many of its own pauses before it ends the stream. A program may set the limit after the handshake, so it
//! is announced within the stream, by a zero-length RDMA Write, which a peer that does not know it ignores (RFC 5040
//! section 5.1). Its tag is [`RNR_LIMIT_STAG`]. The lower half of its offset is the limit, and the upper half is the
//! complement of the lower half. A limit applies to the messages after its announcement.

use crate::tx::OpKind;

/// The tag of an announcement; "RNRR".
pub const RNR_LIMIT_STAG: u32 = 0x524e_5252;

/// The limit of a sender that retries without end, and the highest value of a limit.
pub const RETRY_FOREVER: u8 = 7;

/// The Write that announces a limit of retries.
#[must_use]
pub const fn announcement(retries: u8) -> OpKind {
    let number = retries as u32;
    OpKind::Write { stag: RNR_LIMIT_STAG, to: (!number as u64) << 32 | number as u64, len: 0 }
}

/// The limit that a Write with this offset announces; `None` if the halves of the offset do not match, or the limit is above
/// [`RETRY_FOREVER`].
pub(crate) const fn decode_limit(to: u64) -> Option<u8> {
    let number = to as u32;
    if (to >> 32) as u32 == !number && number <= RETRY_FOREVER as u32 { Some(number as u8) } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: each limit is decoded as it was announced, and nothing else is accepted. Method: all limits, each with a
    /// flipped bit, and values above.
    #[test]
    fn decoded_limit_is_the_announced_one() {
        for retries in 0..=RETRY_FOREVER {
            let OpKind::Write { stag: RNR_LIMIT_STAG, to, len: 0 } = announcement(retries) else {
                panic!("{:?} is no announcement", announcement(retries));
            };
            assert_eq!(decode_limit(to), Some(retries));
            assert!((0..64).all(|bit| decode_limit(to ^ 1 << bit).is_none()), "a flipped bit shows");
        }
        for other in RETRY_FOREVER + 1..=u8::MAX {
            let OpKind::Write { to, .. } = announcement(other) else { panic!("{other}") };
            assert_eq!(decode_limit(to), None);
        }
    }
}
