//! [`Overflow`]: memory for short messages that arrive before their receives. When a block is full, another is linked, so that some
//! room is always left; a block without messages is reused.

use std::collections::BTreeMap;

use portals::{EAGER_MAX, Engine, Entry, EntryOptions, List, ListId, Region};
use verbs::Buf;

use super::bits::LONG;
use super::entries::{MESSAGES, failed};
use crate::error::Result;

/// Bytes of a block, and the number of blocks that are linked at a time.
const BLOCK: usize = 64 << 10;
const LINKED: usize = 4;
/// Unused blocks that are kept.
const SPARE: usize = 4;

/// All blocks: linked, holding messages, or spare.
#[derive(Debug, Default)]
pub(super) struct Overflow {
    /// By address: the blocks that are linked or hold messages.
    blocks: BTreeMap<u64, Buf>,
    spare: Vec<Buf>,
}

impl Overflow {
    /// Links the blocks for short messages, and after them an entry that takes the headers of long ones.
    pub(super) fn new(engine: &mut Engine) -> Result<Self> {
        let mut overflow = Self::default();
        (0..LINKED).try_for_each(|_| overflow.link(engine))?;
        let options =
            EntryOptions::OP_PUT | EntryOptions::EVENT_LINK_DISABLE | EntryOptions::EVENT_COMM_DISABLE;
        let headers =
            Entry { match_bits: LONG, ignore_bits: !LONG, ..Entry::taking_all(Region::new(0, 0), options) };
        engine.append(OVERFLOW_LIST, headers, 0).map_err(failed)?;
        Ok(overflow)
    }

    /// Links a block: at the start, and whenever a block has left the list.
    ///
    /// # Errors
    /// There is no memory, or no entry.
    pub(super) fn link(&mut self, engine: &mut Engine) -> Result<()> {
        let block = match self.spare.pop() {
            Some(block) => block,
            None => Buf::alloc(BLOCK)?,
        };
        let options = EntryOptions::OP_PUT
            | EntryOptions::MANAGE_LOCAL
            | EntryOptions::NO_TRUNCATE
            | EntryOptions::EVENT_LINK_DISABLE
            | EntryOptions::EVENT_COMM_DISABLE;
        let entry = Entry {
            match_bits: 0,
            ignore_bits: !LONG,
            min_free: EAGER_MAX,
            ..Entry::taking_all(Region::new(block.addr(), BLOCK as u64), options)
        };
        engine.append(OVERFLOW_LIST, entry, block.addr()).map_err(failed)?;
        self.blocks.insert(block.addr(), block);
        Ok(())
    }

    /// Frees a block that holds no message any more.
    pub(super) fn free_block(&mut self, block: u64) {
        if let Some(block) = self.blocks.remove(&block)
            && self.spare.len() < SPARE
        {
            self.spare.push(block);
        }
    }

    /// The block that holds a message, and the message's offset in it.
    pub(super) fn find(&self, address: u64) -> Option<(&Buf, usize)> {
        let (begin, block) = self.blocks.range(..=address).next_back()?;
        let at = (address - begin) as usize;
        (at < block.len()).then_some((block, at))
    }
}

const OVERFLOW_LIST: ListId = ListId { pt_index: MESSAGES, list: List::Overflow };
