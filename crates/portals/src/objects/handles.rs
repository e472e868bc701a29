//! The handles of a program's objects, and the [`Table`] that they are keys of.

use verbs::host::{SlotKey, SlotTable};

/// Uses of a slot before its handles are valid again. A handle of the C face has 9 bits for them.
const GENERATIONS: u32 = (1 << 9) - 1;
/// Freed slots that rest: a handle is valid again after `RESTING * GENERATIONS` others.
pub(crate) const RESTING: u32 = 64;

/// Objects by handle.
pub(crate) type Table<T> = SlotTable<T, GENERATIONS, RESTING>;

macro_rules! handles {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(pub(crate) SlotKey);

        impl $name {
            /// Its number: the slot, which is small and used again, and above 32 bits the slot's generation, 1 to 511.
            #[must_use]
            pub const fn number(self) -> u64 {
                self.0.number()
            }

            /// The handle with a number, which may be nobody's.
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
