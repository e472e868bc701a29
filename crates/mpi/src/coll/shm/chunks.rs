//! Long data that members exchange in rounds: in each, a member publishes a chunk and reads the others' chunks. A member reads any
//! chunk that the others have published, or publishes its next one if the ring has room. It waits only if it can do neither. So all
//! members copy at the same time, and members that share a processor seldom wait for each other.

use verbs::RemoteAddr;

use crate::coll::shm::ring::CHUNK;
use crate::coll::shm::slots::{BCOPY_MAX, PublishedData, ROUNDS_MAX, ShmSlots, Stage};
use crate::coll::shm::state::{MEMBERS_MAX, ShmColl};
use crate::coll::shm::transfer::check_len;
use crate::error::Result;
use crate::memory::Buffer;

/// One member's part of an exchange: the data that it publishes and reads. All members use rounds of the same size.
pub(super) struct Exchange<'a> {
    pub(super) call: &'static str,
    /// Bytes that each source publishes.
    pub(super) all: u64,
    /// Bytes that a reader gets of each source, and where they begin in the source's data.
    pub(super) each: u64,
    pub(super) from: u64,
    /// Bytes of a round for each reader.
    pub(super) step: u64,
    /// The members to read from, one bit each.
    pub(super) sources: u32,
    /// Blocks in this member's chunks: one for all readers, or one for each; none if it publishes nothing.
    pub(super) lanes: usize,
    /// Whether each reader has a block of its own in a chunk.
    pub(super) is_scattered: bool,
    /// The data of a lane, which begins with 0.
    pub(super) lane: &'a dyn Fn(usize) -> Buffer,
    /// Where the data of a source go.
    pub(super) into: &'a dyn Fn(usize) -> Buffer,
    /// This member's own data, and where they go.
    pub(super) own: Option<(Buffer, Buffer)>,
}

impl Exchange<'_> {
    fn rounds(&self) -> u64 {
        self.each.div_ceil(self.step)
    }

    /// The offset and the length of a round's bytes.
    fn range(&self, round: u64) -> (u64, u64) {
        let begin = round * self.step;
        (begin, (self.each - begin).min(self.step))
    }
}

/// Whether members that all publish `len` bytes do so in chunks. With two members, a read of the other's memory takes as long as
/// two copies of one chunk.
pub(super) fn pays(len: u64, members: usize) -> bool {
    len > CHUNK as u64 || (members > 2 && len > BCOPY_MAX as u64)
}

/// The longest block of a round where each chunk has this many.
pub(super) fn longest_step(lanes: usize) -> u64 {
    ((CHUNK / lanes.max(1)) & !63) as u64
}

/// Whether this many bytes for each reader, or elements, can be published in rounds of `step`.
pub(super) fn fits_rounds(each: u64, step: u64) -> bool {
    step > 0 && each.div_ceil(step) <= ROUNDS_MAX
}

/// Where a source's data are.
#[derive(Clone, Copy)]
enum Origin {
    /// It has published nothing yet.
    Unknown,
    /// The source exposes its own buffer, which readers read at once.
    Whole(RemoteAddr),
    /// In its ring, from this chunk on.
    Ring(u64),
}

/// How far a member is with an exchange.
struct Progress {
    number: u64,
    /// Rounds that it has published, or all if it publishes nothing.
    published: u64,
    rounds: u64,
    /// Rounds that it has read of all sources, as marked.
    taken: u64,
    /// Rounds read of each source.
    read: [u64; MEMBERS_MAX],
    origins: [Origin; MEMBERS_MAX],
}

impl Progress {
    /// Whether a round of a source can be read. In place, a member must have published its own first, and all of its rounds before it
    /// reads a whole buffer.
    fn is_ready(&self, slots: &ShmSlots, member: usize) -> bool {
        let round = self.read[member];
        round < self.published
            && match self.origins[member] {
                Origin::Unknown => slots.has_published(member, self.number),
                Origin::Whole(_) => self.published == self.rounds,
                Origin::Ring(_) => slots.has(member, Stage::Published, self.number, round + 1),
            }
    }
}

impl ShmColl {
    /// Exchanges data after this member has announced its own, if it publishes any.
    ///
    /// # Errors
    /// As [`ShmColl::run`].
    pub(super) fn exchange(&mut self, exchange: &Exchange<'_>) -> Result<()> {
        let rounds = exchange.rounds();
        let mut progress = Progress {
            number: self.number,
            published: if exchange.lanes == 0 { rounds } else { 0 },
            rounds,
            taken: 0,
            read: [0; MEMBERS_MAX],
            origins: [Origin::Unknown; MEMBERS_MAX],
        };
        let open = |progress: &Progress, member: usize| {
            exchange.sources & (1 << member) != 0 && progress.read[member] < rounds
        };
        loop {
            let slots = self.slots();
            let ready = |member: &usize| open(&progress, *member) && progress.is_ready(slots, *member);
            if let Some(member) = self.others().find(ready) {
                self.read_round(exchange, member, &mut progress)?;
            } else if progress.published < rounds && self.has_room(progress.published) {
                self.publish_round(exchange, progress.published)?;
                progress.published += 1;
            } else if let Some(member) = self.others().find(|member| open(&progress, *member)) {
                self.wait_for_any(member, exchange, &progress)?;
            } else if progress.published < rounds {
                self.wait_for_room(progress.published, exchange.call)?;
            } else {
                return Ok(());
            }
        }
    }

    /// Copies this member's data of a round to its ring, and to where they go here.
    fn publish_round(&mut self, exchange: &Exchange<'_>, round: u64) -> Result<()> {
        let (begin, len) = exchange.range(round);
        let is_shared = self.core.is_oversubscribed();
        // Where all members publish at the same time, memory would take longer than the caches.
        let bypasses = exchange.sources == 0 && !is_shared;
        if let Some((memory, at)) = self.ring.chunk(round) {
            for lane in 0..exchange.lanes {
                let data = (exchange.lane)(lane).packed_range(begin, len);
                data.load_for_peer(memory, at + lane * exchange.step as usize, bypasses)?;
            }
        }
        self.ring.set_use(self.number, round);
        self.mark(Stage::Published, round + 1);
        if round == 0 && exchange.rounds() > 1 && !is_shared {
            self.notify_others();
        }
        if let Some((from, to)) = &exchange.own {
            to.clone().packed_range(begin, len).copy_data_from(&from.clone().packed_range(begin, len));
        }
        Ok(())
    }

    /// Reads the next round of a source, or finds where its data are.
    fn read_round(&mut self, exchange: &Exchange<'_>, member: usize, progress: &mut Progress) -> Result<()> {
        let (call, round) = (exchange.call, progress.read[member]);
        let into = (exchange.into)(member);
        let first = match progress.origins[member] {
            Origin::Unknown => {
                progress.origins[member] = self.find_origin(exchange, member)?;
                self.mark_taken(exchange, progress);
                return Ok(());
            }
            Origin::Whole(at) => {
                self.rdma_read(member, at.offset(exchange.from), &into, call)?;
                progress.read[member] = progress.rounds;
                self.mark_taken(exchange, progress);
                return Ok(());
            }
            Origin::Ring(first) => first,
        };
        let (begin, len) = exchange.range(round);
        let members = self.processes.len();
        let lane = if exchange.is_scattered { (self.me + members - member) % members - 1 } else { 0 };
        let at = lane as u64 * exchange.step;
        let into = into.packed_range(begin, len);
        self.read_chunk(member, (first + round, at as usize), &into, call)?;
        progress.read[member] = round + 1;
        self.mark_taken(exchange, progress);
        Ok(())
    }

    /// Marks the rounds that this member has read of all sources with a ring, if their number has grown. These sources wait for that
    /// mark before they reuse a chunk. A source that exposes its buffer does not, and may be read last.
    fn mark_taken(&mut self, exchange: &Exchange<'_>, progress: &mut Progress) {
        let sources = || self.others().filter(|member| exchange.sources & (1 << member) != 0);
        let of_rings = sources().filter(|member| !matches!(progress.origins[*member], Origin::Whole(_)));
        let taken = of_rings.map(|member| progress.read[member]).min().unwrap_or(0);
        if taken > progress.taken {
            progress.taken = taken;
            self.mark(Stage::Taken, taken);
        }
    }

    fn find_origin(&mut self, exchange: &Exchange<'_>, member: usize) -> Result<Origin> {
        let published = self.wait_published(member, exchange.call)?;
        check_len(format_args!("rank {member}"), published.len(), exchange.all)?;
        match published {
            PublishedData::Zcopy { at, .. } => Ok(Origin::Whole(at)),
            _ => self.meet_ring(member, published).map(Origin::Ring),
        }
    }

    /// Waits for a chunk of any source, or for room for the next one of this member; `member` is a source.
    fn wait_for_any(&mut self, member: usize, exchange: &Exchange<'_>, progress: &Progress) -> Result<()> {
        let (me, members) = (self.me, self.processes.len());
        let room = (progress.published < progress.rounds).then(|| self.ring.last_use(progress.published));
        let is_open = |source: usize| {
            source != me && exchange.sources & (1 << source) != 0 && progress.read[source] < progress.rounds
        };
        let number = self.number;
        let is_there = |slots: &ShmSlots| {
            (0..members).any(|source| is_open(source) && progress.is_ready(slots, source))
                || room.is_some_and(|last| {
                    (0..members).all(|other| other == me || slots.has_taken(other, number, last))
                })
        };
        self.wait(member, exchange.call, is_there)?;
        if is_there(self.slots()) { Ok(()) } else { Err(self.peer_error(member)) }
    }
}
