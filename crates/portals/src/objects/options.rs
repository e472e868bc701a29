//! Options of list entries, memory descriptors and portal table entries (Portals 4.3, sections 3.7 and 3.10 to
//! 3.12). The bits are those of the reference's `portals4.h`.

use bitflags::bitflags;

bitflags! {
    /// Options of a list entry (`PTL_LE_*`, `PTL_ME_*`).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct EntryOptions: u32 {
        /// The memory is a list of pieces.
        const IOVEC = 1;
        /// Accepts puts and non-fetching atomics.
        const OP_PUT = 1 << 1;
        /// Accepts gets; fetching atomics need both.
        const OP_GET = 1 << 2;
        /// Accepts one message, which unlinks it.
        const USE_ONCE = 1 << 3;
        /// Sends no acknowledgements, whatever is requested.
        const ACK_DISABLE = 1 << 4;
        /// In the overflow list: keeps no header for later entries.
        const UNEXPECTED_HDR_DISABLE = 1 << 5;
        /// All of the memory may be accessed.
        const IS_ACCESSIBLE = 1 << 6;
        /// No event when it is linked.
        const EVENT_LINK_DISABLE = 1 << 7;
        /// No events for messages.
        const EVENT_COMM_DISABLE = 1 << 8;
        /// No event when one of its messages disables the portal table entry.
        const EVENT_FLOWCTRL_DISABLE = 1 << 9;
        /// No events for successful messages.
        const EVENT_SUCCESS_DISABLE = 1 << 10;
        /// No events for messages that arrived before the entry.
        const EVENT_OVER_DISABLE = 1 << 11;
        /// No events when it is unlinked or free.
        const EVENT_UNLINK_DISABLE = 1 << 12;
        /// Counts messages.
        const EVENT_CT_COMM = 1 << 13;
        /// Counts messages that arrived before the entry.
        const EVENT_CT_OVERFLOW = 1 << 14;
        /// Counts bytes instead of messages.
        const EVENT_CT_BYTES = 1 << 15;
        /// The target chooses the offset: the end of the previous message. This and the following options are
        /// for matching entries only.
        const MANAGE_LOCAL = 1 << 16;
        /// Does not match messages that do not fit.
        const NO_TRUNCATE = 1 << 17;
        /// With `MANAGE_LOCAL`: messages may be aligned.
        const MAY_ALIGN = 1 << 18;
    }

    /// Options of a memory descriptor (`PTL_MD_*`).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct MdOptions: u32 {
        /// The memory is a list of pieces.
        const IOVEC = 1;
        /// Counts sends.
        const EVENT_CT_SEND = 1 << 1;
        /// Counts replies.
        const EVENT_CT_REPLY = 1 << 2;
        /// Counts acknowledgements.
        const EVENT_CT_ACK = 1 << 3;
        /// Messages may overtake each other.
        const UNORDERED = 1 << 4;
        /// No events for successful operations.
        const EVENT_SUCCESS_DISABLE = 1 << 5;
        /// The memory may be changed when the call returns.
        const VOLATILE = 1 << 6;
        /// No events for successful sends.
        const EVENT_SEND_DISABLE = 1 << 7;
        /// Counts bytes instead of operations.
        const EVENT_CT_BYTES = 1 << 15;
    }

    /// Options of a portal table entry (`PTL_PT_*`). Only flow control has an effect; the others are promises
    /// of the user that this implementation does not need.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct PtOptions: u32 {
        /// All entries will be used once.
        const ONLY_USE_ONCE = 1;
        /// A message that finds no room disables the portal table entry.
        const FLOWCTRL = 1 << 1;
        /// No entry will have `NO_TRUNCATE`.
        const ONLY_TRUNCATE = 1 << 2;
        /// The order of entries does not matter.
        const MATCH_UNORDERED = 1 << 3;
    }
}

impl EntryOptions {
    /// The options that an entry of a non-matching interface may have.
    pub const NOT_MATCHING: Self = Self::from_bits_retain((1 << 16) - 1);
}
