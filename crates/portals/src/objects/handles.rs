//! Handles of a program's objects, and the [`Table`] that they index.

use verbs::host::{SlotKey, SlotTable};

/// Reuses of a slot before its old handles become valid again. A handle of the C ABI has 9 bits for this.
const GENERATIONS: u32 = (1 << 9) - 1;
/// Freed slots that are not reused yet: a handle becomes valid again after `RESTING * GENERATIONS` others.
pub(crate) const RESTING: u32 = 64;

/// Objects by handle.
pub(crate) type Table<T> = SlotTable<T, GENERATIONS, RESTING>;

macro_rules! handles {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(pub(crate) SlotKey);

        impl $name {
            /// Its number: the low 32 bits are the slot, which is small and reused; the high ones its
            /// generation, 1 to 511.
            #[must_use]
            pub const fn number(self) -> u64 {
                self.0.number()
            }

            /// The handle with a number, which may name no object.
            #[must_use]
            pub const fn from_number(number: u64) -> Self {
                Self(SlotKey::from_number(number))
            }
        }
    )*};
}

handles! {
    /// An event queue.
    EqHandle;
    /// A counter.
    CtHandle;
    /// A memory descriptor.
    MdHandle;
    /// A list entry, matching or not.
    EntryHandle;
}
