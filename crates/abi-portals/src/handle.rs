//! Handles of 32 bits: the kind of object, which of the four interfaces, the slot, and the slot's generation
//! (Portals 4.3, chapter 3).
//!
//! Three bits of kind, two of interface, nine of generation, eighteen of slot. No kind produces a handle
//! equal to one of the header's constants.

use portals::{CtHandle, EntryHandle, EqHandle, MdHandle, NiKind};

use crate::answer::{Answer, code};
use crate::types::Handle;

/// Bits of a slot.
const SLOT_BITS: u32 = 18;
/// Bits of a generation.
const GENERATION_BITS: u32 = 9;

/// Slots that handles can name; the last number would make some handles equal to the header's constants.
pub(crate) const SLOTS: u32 = (1 << SLOT_BITS) - 1;

/// An object of an interface.
pub(crate) trait Object: Copy {
    /// Its kind: not 7, the kind of the invalid handle.
    const KIND: u32;
    /// What it is, and the call that returns such handles.
    const NAME: &'static str;
    fn number(self) -> u64;
    fn from_number(number: u64) -> Self;
}

macro_rules! objects {
    ($($name:ident = $kind:literal $about:literal;)*) => {$(
        impl Object for $name {
            const KIND: u32 = $kind;
            const NAME: &'static str = $about;

            fn number(self) -> u64 {
                $name::number(self)
            }

            fn from_number(number: u64) -> Self {
                $name::from_number(number)
            }
        }
    )*};
}

objects! {
    EqHandle = 1 "an event queue (PtlEQAlloc)";
    CtHandle = 2 "a counter (PtlCTAlloc)";
    MdHandle = 3 "a memory descriptor (PtlMDBind)";
    EntryHandle = 4 "a list entry (PtlMEAppend or PtlLEAppend)";
}

/// The kind of interface handles.
const INTERFACE: u32 = 5;

fn pack(kind: u32, interface: u8, number: u64) -> Handle {
    let (slot, generation) = (number as u32, (number >> 32) as u32);
    kind << 29 | u32::from(interface) << 27 | generation << SLOT_BITS | slot
}

fn kind_bits(handle: Handle) -> u32 {
    handle >> 29
}

/// The number of the interface of any handle.
pub(crate) fn interface_of(handle: Handle) -> Answer<u8> {
    if (1..=INTERFACE).contains(&kind_bits(handle)) {
        Ok((handle >> 27 & 3) as u8)
    } else {
        Err(code!(ArgInvalid, "{handle:#x} is no handle of this library; pass one that a call has returned"))
    }
}

/// The number of an interface, from its own handle.
pub(crate) fn own_interface(handle: Handle) -> Answer<u8> {
    let number = handle_number(handle);
    if handle == interface(number) {
        return Ok(number);
    }
    Err(code!(
        ArgInvalid,
        "ni_handle {handle:#x} is no handle of an interface; pass what PtlNIInit has returned"
    ))
}

fn handle_number(handle: Handle) -> u8 {
    (handle >> 27 & 3) as u8
}

/// An interface's handle.
pub(crate) fn interface(number: u8) -> Handle {
    pack(INTERFACE, number, 0)
}

/// An object's handle.
pub(crate) fn encode<T: Object>(kind: NiKind, object: T) -> Handle {
    pack(T::KIND, kind.number(), object.number())
}

/// The object of a handle, which may not exist, and the number of its interface.
pub(crate) fn decode<T: Object>(handle: Handle) -> Answer<(u8, T)> {
    if kind_bits(handle) != T::KIND {
        return Err(code!(
            ArgInvalid,
            "handle {handle:#x} is not one of {}; pass what that call has returned",
            T::NAME
        ));
    }
    let (slot, generation) = (handle & SLOTS, handle >> SLOT_BITS & ((1 << GENERATION_BITS) - 1));
    Ok((handle_number(handle), T::from_number(u64::from(generation) << 32 | u64::from(slot))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::answer::Code;
    use crate::types::{CT_NONE, EQ_NONE};

    #[test]
    fn encoded_handles_decode_to_the_same_object() {
        for (is_matching, is_logical) in [(false, false), (true, false), (false, true), (true, true)] {
            let kind = NiKind { is_matching, is_logical };
            for number in [0, 1, 511 << 32 | 7, u64::from(SLOTS - 1), 511 << 32 | u64::from(SLOTS - 1)] {
                let eq = encode(kind, EqHandle::from_number(number));
                assert_eq!(decode(eq), Ok((kind.number(), EqHandle::from_number(number))));
                assert_eq!(
                    (decode::<CtHandle>(eq), own_interface(eq)),
                    (Err(Code::ArgInvalid), Err(Code::ArgInvalid))
                );
                assert_eq!(interface_of(eq), Ok(kind.number()));
                let ct = encode(kind, CtHandle::from_number(number));
                assert!(eq != EQ_NONE && ct != CT_NONE);
            }
            let own = interface(kind.number());
            assert_eq!((own_interface(own), interface_of(own)), (Ok(kind.number()), Ok(kind.number())));
        }
        for handle in [0, u32::MAX, 0xc000_0000] {
            assert_eq!(
                (interface_of(handle), own_interface(handle)),
                (Err(Code::ArgInvalid), Err(Code::ArgInvalid))
            );
        }
    }
}
