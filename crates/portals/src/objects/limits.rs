//! [`Limits`]: the capacities of an interface, as desired and as granted (Portals 4.3, section 3.6).

/// Limits of an interface (`ptl_ni_limits_t`), and the features that it reports with them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// List entries that are linked or have messages in flight.
    pub max_entries: u32,
    /// Headers of messages that arrived before their entry.
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
    /// Pending triggered operations.
    pub max_triggered_ops: u32,
    /// Bytes of a message.
    pub max_msg_size: u64,
    /// Bytes of an atomic operation.
    pub max_atomic_size: u64,
    /// Bytes of an atomic operation that fetches.
    pub max_fetch_atomic_size: u64,
    /// Bytes of a message up to which writes are ordered after earlier writes.
    pub max_waw_ordered_size: u64,
    /// Bytes of a message up to which writes are ordered after earlier reads.
    pub max_war_ordered_size: u64,
    /// Bytes of a put or atomic operation from a descriptor with [`crate::MdOptions::VOLATILE`]; a longer one is refused.
    pub max_volatile_size: u64,
    /// Further guarantees of the interface (`PTL_TARGET_BIND_INACCESSIBLE` and others).
    pub features: u32,
}

impl Default for Limits {
    /// Granted if a program desires nothing.
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
    /// Granted if a program desires the maximum. Message sizes do not depend on the desired ones: smaller
    /// ones would save nothing.
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

    /// The least `max_pt_index` that a portal table must have.
    pub const PT_INDEX_LEAST: u32 = 63;

    /// The least `max_fetch_atomic_size` in bytes, as in Sandia's reference: one 64-bit integer.
    pub const FETCH_LEAST: u64 = 8;

    /// The limits granted for desired ones; `default` with `None`. A desired limit of 0 counts as unset and
    /// becomes the default: some programs clear the structure, others were compiled before a field was added.
    /// An unset fetch limit becomes the desired `max_atomic_size`, which limited fetches before they had a
    /// limit of their own. Desired limits are granted exactly between the least and [`Limits::MOST`]. The
    /// least are [`Limits::PT_INDEX_LEAST`], [`Limits::FETCH_LEAST`], and 64 and 8 bytes for ordered sizes,
    /// as `ptl_ni_limits_t` demands.
    #[must_use]
    pub fn grant(desired: Option<&Self>, default: &Self) -> Self {
        let Some(desired) = desired else { return *default };
        let most = Self::MOST;
        let fetch = match (desired.max_fetch_atomic_size, desired.max_atomic_size) {
            (0, 0) => default.max_fetch_atomic_size,
            (0, atomic) => atomic.min(most.max_fetch_atomic_size),
            (fetch, _) => fetch.clamp(Self::FETCH_LEAST, most.max_fetch_atomic_size),
        };
        let count =
            |desired: u32, default: u32, most: u32| if desired == 0 { default } else { desired.min(most) };
        let size =
            |desired: u64, default: u64, most: u64| if desired == 0 { default } else { desired.min(most) };
        macro_rules! granted {
            ($limit:ident: $field:ident) => {
                $limit(desired.$field, default.$field, most.$field)
            };
        }
        Self {
            max_entries: granted!(count: max_entries),
            max_unexpected_headers: granted!(count: max_unexpected_headers),
            max_mds: granted!(count: max_mds),
            max_cts: granted!(count: max_cts),
            max_eqs: granted!(count: max_eqs),
            max_pt_index: granted!(count: max_pt_index).max(Self::PT_INDEX_LEAST),
            max_iovecs: granted!(count: max_iovecs),
            max_list_size: granted!(count: max_list_size),
            max_triggered_ops: granted!(count: max_triggered_ops),
            max_msg_size: granted!(size: max_msg_size),
            max_atomic_size: granted!(size: max_atomic_size),
            max_fetch_atomic_size: fetch,
            max_waw_ordered_size: granted!(size: max_waw_ordered_size).max(64),
            max_war_ordered_size: granted!(size: max_war_ordered_size).max(8),
            max_volatile_size: granted!(size: max_volatile_size),
            features: most.features,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Limits that all have the same value.
    fn all(count: u32, size: u64) -> Limits {
        Limits {
            max_entries: count,
            max_unexpected_headers: count,
            max_mds: count,
            max_cts: count,
            max_eqs: count,
            max_pt_index: count,
            max_iovecs: count,
            max_list_size: count,
            max_triggered_ops: count,
            max_msg_size: size,
            max_atomic_size: size,
            max_fetch_atomic_size: size,
            max_waw_ordered_size: size,
            max_war_ordered_size: size,
            max_volatile_size: size,
            features: u32::MAX,
        }
    }

    fn granted(desired: &Limits) -> Limits {
        Limits::grant(Some(desired), &Limits::default())
    }

    #[test]
    fn limits_that_are_not_desired_are_the_default() {
        let default = Limits { max_eqs: 7, ..Limits::default() };
        assert_eq!(Limits::grant(None, &default), default);
        assert_eq!(Limits::grant(Some(&all(0, 0)), &default), default);
        let some = Limits { max_mds: 3, ..all(0, 0) };
        assert_eq!(Limits::grant(Some(&some), &default), Limits { max_mds: 3, ..default });
    }

    #[test]
    fn fetch_limit_that_is_not_desired_is_the_atomic_limit() {
        for (atomic, both) in [(4, 4), (64, 64), (u64::MAX, Limits::MOST.max_atomic_size)] {
            let desired = Limits { max_atomic_size: atomic, ..all(0, 0) };
            let want = Limits { max_atomic_size: both, max_fetch_atomic_size: both, ..Limits::default() };
            assert_eq!(granted(&desired), want);
        }
        let desired = Limits { max_atomic_size: 4, max_fetch_atomic_size: 16, ..all(0, 0) };
        let want = Limits { max_atomic_size: 4, max_fetch_atomic_size: 16, ..Limits::default() };
        assert_eq!(granted(&desired), want);
    }

    #[test]
    fn limits_that_are_desired_are_granted_within_bounds() {
        assert_eq!(granted(&Limits::MOST), Limits::MOST);
        assert_eq!(granted(&Limits::default()), Limits::default());
        assert_eq!(granted(&all(u32::MAX, u64::MAX)), Limits::MOST);
        let least = Limits {
            max_pt_index: 63,
            max_fetch_atomic_size: 8,
            max_waw_ordered_size: 64,
            max_war_ordered_size: 8,
            features: 0,
            ..all(1, 1)
        };
        assert_eq!(granted(&all(1, 1)), least);
        let between = all(100, 100);
        assert_eq!(granted(&between), Limits { features: 0, ..between });
    }
}
