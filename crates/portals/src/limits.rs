//! [`Limits`]: how much an interface has room for, as asked for and as granted.

/// Limits of an interface (`ptl_ni_limits_t`), and the features that it reports with them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// List entries, linked or with messages under way.
    pub max_entries: u32,
    /// Headers of messages that came before their entry.
    pub max_unexpected_headers: u32,
    /// Memory descriptors.
    pub max_mds: u32,
    /// Counters.
    pub max_cts: u32,
    /// Event queues.
    pub max_eqs: u32,
    /// The greatest index of a portal table entry.
    pub max_pt_index: u32,
    /// Pieces of one memory descriptor or list entry.
    pub max_iovecs: u32,
    /// Entries of one list.
    pub max_list_size: u32,
    /// Triggered operations that wait.
    pub max_triggered_ops: u32,
    /// Bytes of a message.
    pub max_msg_size: u64,
    /// Bytes of an atomic operation.
    pub max_atomic_size: u64,
    /// Bytes of an atomic operation that fetches.
    pub max_fetch_atomic_size: u64,
    /// Bytes of a message up to which a write is behind the writes before it.
    pub max_waw_ordered_size: u64,
    /// Bytes of a message up to which a write is behind the reads before it.
    pub max_war_ordered_size: u64,
    /// Bytes of a message from memory that may be changed when the call returns.
    pub max_volatile_size: u64,
    /// What the interface promises beside (`PTL_TARGET_BIND_INACCESSIBLE` and others).
    pub features: u32,
}

impl Default for Limits {
    /// What is granted to who asks for nothing.
    fn default() -> Self {
        Self {
            max_entries: 16 << 10,
            max_unexpected_headers: 16 << 10,
            max_mds: 4096,
            max_cts: 4096,
            max_eqs: 1024,
            max_pt_index: 255,
            max_iovecs: 1024,
            max_list_size: 16 << 10,
            max_triggered_ops: 4096,
            ..Self::MOST
        }
    }
}

impl Limits {
    /// What is granted to who asks for as much as possible. Sizes of messages do not depend on what is asked for: smaller ones cost
    /// nothing.
    pub const MOST: Self = Self {
        max_entries: 1 << 20,
        max_unexpected_headers: 1 << 20,
        max_mds: 1 << 16,
        max_cts: 1 << 16,
        max_eqs: 1 << 14,
        max_pt_index: 1023,
        max_iovecs: 1 << 14,
        max_list_size: 1 << 20,
        max_triggered_ops: 1 << 16,
        max_msg_size: 1 << 40,
        max_atomic_size: 4096,
        max_fetch_atomic_size: 4096,
        max_waw_ordered_size: 4096,
        max_war_ordered_size: 4096,
        max_volatile_size: 4096,
        features: 0,
    };

    /// The least index that a portal table has to go to.
    pub const PT_INDEX_LEAST: u32 = 63;

    /// What is granted to who asks for these: never more than [`Limits::MOST`], and less where less is asked for, but at least one of
    /// each thing and a table up to [`Limits::PT_INDEX_LEAST`]. Ordered and volatile sizes are never below what the standard demands.
    #[must_use]
    pub fn grant(desired: Option<&Self>) -> Self {
        let Some(desired) = desired else { return Self::default() };
        let (most, some) = (Self::MOST, |desired: u32, most: u32| desired.clamp(1, most));
        Self {
            max_entries: some(desired.max_entries, most.max_entries),
            max_unexpected_headers: some(desired.max_unexpected_headers, most.max_unexpected_headers),
            max_mds: some(desired.max_mds, most.max_mds),
            max_cts: some(desired.max_cts, most.max_cts),
            max_eqs: some(desired.max_eqs, most.max_eqs),
            max_pt_index: desired.max_pt_index.clamp(Self::PT_INDEX_LEAST, most.max_pt_index),
            max_iovecs: some(desired.max_iovecs, most.max_iovecs),
            max_list_size: some(desired.max_list_size, most.max_list_size),
            max_triggered_ops: some(desired.max_triggered_ops, most.max_triggered_ops),
            max_msg_size: desired.max_msg_size.min(most.max_msg_size),
            max_atomic_size: desired.max_atomic_size.min(most.max_atomic_size),
            max_fetch_atomic_size: desired.max_fetch_atomic_size.min(most.max_fetch_atomic_size),
            max_waw_ordered_size: desired.max_waw_ordered_size.clamp(64, most.max_waw_ordered_size),
            max_war_ordered_size: desired.max_war_ordered_size.clamp(8, most.max_war_ordered_size),
            max_volatile_size: desired.max_volatile_size.min(most.max_volatile_size),
            features: most.features,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_granted_lies_between() {
        assert_eq!(Limits::grant(None), Limits::default());
        assert_eq!(Limits::grant(Some(&Limits::MOST)), Limits::MOST);
        let endless =
            Limits { max_entries: u32::MAX, max_msg_size: u64::MAX, max_pt_index: u32::MAX, ..Limits::MOST };
        assert_eq!(Limits::grant(Some(&endless)), Limits::MOST);
        let none = Limits {
            max_entries: 0,
            max_unexpected_headers: 0,
            max_mds: 0,
            max_cts: 0,
            max_eqs: 0,
            max_pt_index: 0,
            max_iovecs: 0,
            max_list_size: 0,
            max_triggered_ops: 0,
            max_msg_size: 0,
            max_atomic_size: 0,
            max_fetch_atomic_size: 0,
            max_waw_ordered_size: 0,
            max_war_ordered_size: 0,
            max_volatile_size: 0,
            features: u32::MAX,
        };
        let least = Limits::grant(Some(&none));
        assert_eq!((least.max_entries, least.max_pt_index, least.features), (1, 63, 0));
        assert_eq!((least.max_waw_ordered_size, least.max_war_ordered_size), (64, 8));
        let default = Limits::default();
        assert_eq!(Limits::grant(Some(&default)), default);
    }
}
