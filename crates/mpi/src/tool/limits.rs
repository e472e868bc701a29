//! [`Limits`]: the message sizes at which the protocol changes, and the setters for some of them.

use crate::coll::shm;
use crate::error::{Class, Error, Result};
use crate::p2p::proto::ProtocolLimits;
use crate::p2p::shm_copy::SHARED_MIN;
use crate::p2p::wire::{HEAD, LINE_MAX};
use crate::peers::nic::{INLINE, Nic, Sizes};
use crate::process::Process;

/// Sizes in bytes at which the protocol changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The longest eager message; can be set, up to the size of a slot, a ring record, or parts.
    pub eager_max: u64,
    /// The shortest message that both sides copy where possible; can be set, to values from its initial one on.
    pub both_sides_copy_min: u64,
    /// The longest message sent through a cache line that both sides write.
    pub cache_line_message_max: u64,
    /// The longest message inlined in a work request.
    pub inline_message_max: u64,
    /// Bytes of a slot of the first device.
    pub slot_bytes: u64,
    /// Slots of a connection, in each direction.
    pub slots: u64,
    /// The ring in which a peer may store messages.
    pub ring_bytes: u64,
    /// The longest message sent in parts; 0 where parts are not used.
    pub message_in_parts_max: u64,
    /// The maximum that each member can give to a shared-memory collective operation.
    pub shared_collective_max: u64,
}

impl Process {
    /// The current limits.
    pub fn limits(&self) -> Limits {
        let (chosen, first, parts_max) = self.core().with(|engine| {
            let nics = engine.transport.nics();
            let parts_max = nics.iter().map(Nic::parts_max).max().unwrap_or_default();
            (engine.transport.chosen(), nics.first().map(|nic| nic.sizes), parts_max as u64)
        });
        let sizes = first.unwrap_or_else(|| Sizes::of_job(self.bootstrap().size()));
        Limits {
            eager_max: chosen.eager_max.min(self.eager_limit_max()),
            both_sides_copy_min: chosen.both_sides_copy_min.unwrap_or(SHARED_MIN),
            cache_line_message_max: LINE_MAX as u64,
            inline_message_max: (INLINE - HEAD) as u64,
            slot_bytes: sizes.slot_bytes as u64,
            slots: sizes.slots.into(),
            ring_bytes: sizes.ring as u64,
            message_in_parts_max: parts_max,
            shared_collective_max: shm::BCOPY_MAX as u64,
        }
    }

    /// The longest eager message of any of this process's devices, in bytes.
    fn eager_limit_max(&self) -> u64 {
        let most = |nics: &[Nic]| nics.iter().map(Nic::payload_max).max();
        self.core().with(|engine| most(engine.transport.nics())).unwrap_or_default() as u64
    }

    /// Makes longer messages than this use rendezvous, from now on.
    ///
    /// # Errors
    /// [`Class::ARG`] for more than the longest eager message.
    pub fn set_eager_max(&self, bytes: u64) -> Result<()> {
        let most = self.eager_limit_max();
        if bytes > most {
            return Err(Error::new(
                Class::ARG,
                format_args!("{bytes} bytes do not fit into a message; {most} do"),
            ));
        }
        self.core().with(|engine| {
            engine.transport.choose(ProtocolLimits { eager_max: bytes, ..engine.transport.chosen() })
        });
        Ok(())
    }

    /// Makes both sides copy messages to this process from this size on, where possible.
    ///
    /// # Errors
    /// [`Class::ARG`] for less than 64 KiB, where messages are not split into pieces.
    pub fn set_both_sides_copy_min(&self, bytes: u64) -> Result<()> {
        if bytes < SHARED_MIN {
            return Err(Error::new(
                Class::ARG,
                format_args!("messages of less than {SHARED_MIN} bytes have no pieces"),
            ));
        }
        self.core().with(|engine| {
            engine
                .transport
                .choose(ProtocolLimits { both_sides_copy_min: Some(bytes), ..engine.transport.chosen() })
        });
        Ok(())
    }
}
