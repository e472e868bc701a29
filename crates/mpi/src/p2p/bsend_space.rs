//! [`BsendSpaces`]: the space for buffered sends of the process and of its communicators, and how much of it is in use (MPI 5.0,
//! section 3.6).

use std::collections::BTreeMap;

use crate::error::{Class, Error, Result};

/// Space for buffered sends (`MPI_Buffer_attach`). The program's memory is only counted, and never written to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BsendSpace {
    /// No space is attached.
    #[default]
    None,
    /// As much as is needed (`MPI_BUFFER_AUTOMATIC`).
    Automatic,
    /// Memory of the program.
    Given {
        /// Its address.
        address: usize,
        /// Its size in bytes.
        size: u64,
    },
}

/// Bytes that a buffered message takes in addition to its data. `MPI_BSEND_OVERHEAD` of the standard ABI is larger, and some
/// programs rely on less.
pub const BSEND_OVERHEAD: u64 = 64;

/// The owner of a space: a communicator, by its context, or the process (`None`).
pub(crate) type SpaceOwner = Option<u64>;

/// An attached space, and how many bytes of it are in use.
#[derive(Debug, Default)]
struct AttachedSpace {
    attached: BsendSpace,
    used: u64,
}

/// All spaces. Sends of a communicator without a space of its own use the process's space.
#[derive(Debug, Default)]
pub(crate) struct BsendSpaces(BTreeMap<SpaceOwner, AttachedSpace>);

/// The part of a space that a message uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SpaceShare {
    owner: SpaceOwner,
    bytes: u64,
}

impl BsendSpaces {
    /// Attaches the space that sends use from now on.
    ///
    /// # Errors
    /// [`Class::BUFFER`] if a space is attached already.
    pub(crate) fn attach(&mut self, owner: SpaceOwner, attached: BsendSpace) -> Result<()> {
        if self.0.contains_key(&owner) {
            return Err(Error::new(
                Class::BUFFER,
                "a buffer for buffered sends is attached already; detach it first (MPI_Buffer_detach)",
            ));
        }
        self.0.insert(owner, AttachedSpace { attached, used: 0 });
        Ok(())
    }

    /// Detaches the space, if it holds no message.
    pub(crate) fn detach(&mut self, owner: SpaceOwner) -> Option<BsendSpace> {
        self.is_flushed(owner).then(|| self.0.remove(&owner).unwrap_or_default().attached)
    }

    /// Whether no buffered send is in progress.
    pub(crate) fn is_flushed(&self, owner: SpaceOwner) -> bool {
        self.0.get(&owner).is_none_or(|space| space.used == 0)
    }

    /// Computes the part of a space that a message of `len` bytes in a context would use.
    ///
    /// # Errors
    /// [`Class::BUFFER`] if less is free.
    pub(crate) fn compute_share(&self, context: u64, len: u64) -> Result<SpaceShare> {
        let bytes = len.saturating_add(BSEND_OVERHEAD);
        let owner = Some(context).filter(|context| self.0.contains_key(&Some(*context)));
        let (attached, used) =
            self.0.get(&owner).map_or((BsendSpace::None, 0), |space| (space.attached, space.used));
        let room = match attached {
            BsendSpace::None => 0,
            BsendSpace::Automatic => u64::MAX,
            BsendSpace::Given { size, .. } => size,
        };
        if bytes > room.saturating_sub(used) {
            let text = format!("a buffered send needs {bytes} bytes, but {used} of {room} are in use");
            return Err(Error::new(Class::BUFFER, text + "; attach a larger buffer (MPI_Buffer_attach)"));
        }
        Ok(SpaceShare { owner, bytes })
    }

    /// Marks these bytes as used until [`BsendSpaces::release`].
    pub(crate) fn mark_used(&mut self, share: SpaceShare) {
        if let Some(space) = self.0.get_mut(&share.owner) {
            space.used += share.bytes;
        }
    }

    /// Frees these bytes.
    pub(crate) fn release(&mut self, share: SpaceShare) {
        if let Some(space) = self.0.get_mut(&share.owner) {
            space.used -= share.bytes;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comm_with_own_bsend_space_does_not_use_the_process_space() {
        let mut spaces = BsendSpaces::default();
        assert_eq!(spaces.compute_share(8, 0).expect_err("none").class, Class::BUFFER);
        let given = |size| BsendSpace::Given { address: 0x1000, size };
        spaces.attach(None, given(BSEND_OVERHEAD + 10)).expect("the first");
        assert_eq!(spaces.attach(None, given(1)).expect_err("the second").class, Class::BUFFER);
        let share = spaces.compute_share(8, 10).expect("room");
        assert_eq!(share, SpaceShare { owner: None, bytes: BSEND_OVERHEAD + 10 });
        spaces.mark_used(share);
        assert_eq!((spaces.compute_share(8, 0).is_err(), spaces.detach(None)), (true, None));
        spaces.attach(Some(8), BsendSpace::Automatic).expect("the first");
        assert_eq!(spaces.compute_share(8, 1 << 40).map(|share| share.owner), Ok(Some(8)));
        assert!(spaces.compute_share(16, 0).is_err() && spaces.is_flushed(Some(8)));
        spaces.release(share);
        assert_eq!(spaces.detach(None), Some(given(BSEND_OVERHEAD + 10)));
        assert_eq!(
            (spaces.detach(Some(8)), spaces.detach(Some(8))),
            (Some(BsendSpace::Automatic), Some(BsendSpace::None))
        );
    }
}
