//! Contexts and tags as match bits: one bit for long messages, 32 for the context, 31 for the tag.
//!
//! A context is named by a process (32 bits) and its serial number (29 bits). The match bits hold 13 and 16 of these, which is
//! enough for most jobs. Messages in other contexts, such as those between jobs, use the usual connections; both sides derive this
//! from the context alone.

use crate::p2p::matching::MatchCriteria;
use crate::p2p::wire::MatchKey;

/// Bits of a tag.
const TAG_BITS: u32 = 31;
const TAG: u64 = (1 << TAG_BITS) - 1;
/// Bits of the counting part of a context: its plane and its serial number.
const SERIAL_BITS: u32 = 3 + 16;
const PROCESS_BITS: u32 = 13;
/// Set if the message's data may have stayed with the sender.
pub(super) const LONG: u64 = 1 << 63;

/// Whether a context fits in the match bits.
pub(crate) fn carries(context: u64) -> bool {
    fold(context).is_some()
}

fn fold(context: u64) -> Option<u64> {
    let (process, serial) = (context >> 32, context & u64::from(u32::MAX));
    (process >> PROCESS_BITS == 0 && serial >> SERIAL_BITS == 0).then_some(process << SERIAL_BITS | serial)
}

/// The match bits of a message, and of a receive of exactly this key; `None` if the context does not fit.
pub(super) fn match_bits_of(match_key: MatchKey) -> Option<u64> {
    Some(fold(match_key.context)? << TAG_BITS | match_key.tag as u64 & TAG)
}

/// The match bits and the ignore bits of a receive.
pub(super) fn receive_bits_of(wanted: &MatchCriteria) -> Option<(u64, u64)> {
    let any = if wanted.tag.is_none() { TAG } else { 0 };
    let match_key = MatchKey { context: wanted.context, tag: wanted.tag.unwrap_or_default() };
    Some((match_bits_of(match_key)?, LONG | any))
}

/// The tag of a message.
pub(super) fn tag(bits: u64) -> i32 {
    (bits & TAG) as i32
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::comm::context::{Context, Plane};

    fn context() -> impl Strategy<Value = u64> {
        let planes = [Plane::PointToPoint, Plane::Collective, Plane::CommCreate, Plane::RmaRequest];
        (0..1_u32 << PROCESS_BITS, 0..1_u32 << 16, prop::sample::select(planes.to_vec()))
            .prop_map(|(process, serial, plane)| Context::new(process, serial).plane(plane))
    }

    proptest! {
        /// A receive matches a message by its bits if and only if it does by MPI's rules.
        #[test]
        fn match_bits_agree_with_mpi_matching(contexts in [context(), context()], tags in [0..=i32::MAX, 0..=i32::MAX], same in any::<(bool, bool)>(), is_any in any::<bool>(), is_long in any::<bool>()) {
            let match_key = MatchKey { context: contexts[0], tag: tags[0] };
            let context = contexts[usize::from(!same.0)];
            let tag = (!is_any).then_some(tags[usize::from(!same.1)]);
            let wanted = MatchCriteria { context, source: None, tag };
            let bits = match_bits_of(match_key).expect("carried") | if is_long { LONG } else { 0 };
            let (wants, ignores) = receive_bits_of(&wanted).expect("carried");
            let fits = context == match_key.context && tag.is_none_or(|tag| tag == match_key.tag);
            prop_assert_eq!((bits ^ wants) & !ignores == 0, fits);
            prop_assert_eq!(super::tag(bits), match_key.tag);
        }
    }

    #[test]
    fn contexts_beyond_the_match_bits_are_not_carried() {
        let carried = |process, serial| carries(Context::new(process, serial).plane(Plane::RmaReply));
        assert!(carried((1 << 13) - 1, (1 << 16) - 1));
        assert!(!carried(1 << 13, 0) && !carried(0, 1 << 16) && !carried(1 << 31, 5));
    }
}
