//! [`OobChannel`]: out-of-band messages between the members of a group, by which they agree on a new communicator.

use crate::comm::group::Group;
use crate::core::Core;
use crate::error::{Class, Error, Result};
use crate::memory::Buffer;
use crate::p2p::engine::{Mode, Started};
use crate::p2p::matching::MatchCriteria;
use crate::p2p::operation::{Receive, SourceRanks};
use crate::p2p::wire::MatchKey;

/// A channel: all its messages have the same context and tag, and ranks are those of a group.
#[derive(Clone, Debug)]
pub(crate) struct OobChannel<'a> {
    core: &'a Core,
    match_key: MatchKey,
    /// The processes at the other end.
    others: &'a Group,
}

impl<'a> OobChannel<'a> {
    /// Opens a channel to `others` in a context (with its plane) under a tag.
    pub(crate) fn new(core: &'a Core, context: u64, tag: i32, others: &'a Group) -> Self {
        Self { core, match_key: MatchKey { context, tag }, others }
    }

    fn process(&self, rank: i32) -> Result<u32> {
        let wrong = || Error::new(Class::RANK, format_args!("there is no rank {rank}"));
        self.others.process(rank).ok_or_else(wrong)
    }

    /// Sends bytes to one process, and waits until they have been sent.
    pub(crate) fn send(&self, to: i32, bytes: &[u8]) -> Result<()> {
        let (to, buffer) = (self.process(to)?, Buffer::from_bytes(bytes)?);
        match self.core.with(|engine| engine.send(to, self.match_key, &buffer, Mode::Standard))? {
            Started::Completed(status) => status.ok().map(drop),
            Started::InProgress(key) => {
                self.core.wait("creating a communicator", |engine| engine.take_status(key))?.ok().map(drop)
            }
        }
    }

    /// Receives the next message from one process.
    pub(crate) fn receive(&self, from: i32) -> Result<Vec<u8>> {
        let source = self.process(from)?;
        let MatchKey { context, tag } = self.match_key;
        let wanted = MatchCriteria { context, source: Some(source), tag: Some(tag) };
        let call = "creating a communicator";
        let len = self.core.wait(call, |engine| {
            if let Some(status) = engine.probe(&wanted, self.others) {
                return Some(Ok(status.bytes));
            }
            engine.transport.lost(source).map(|error| Err(error.clone()))
        })??;
        let buffer = Buffer::from_bytes(&vec![0; len as usize])?;
        let receive = Receive { wanted, buffer: buffer.clone(), sources: SourceRanks::One(from) };
        let status = match self.core.with(|engine| engine.receive(receive)) {
            Started::Completed(status) => status,
            Started::InProgress(key) => self.core.wait(call, |engine| engine.take_status(key))?,
        };
        status.ok().map(|_| buffer.to_vec())
    }

    /// Broadcasts the bytes of rank 0. `me` is this process's rank among the others.
    pub(crate) fn broadcast(&self, me: i32, bytes: &[u8]) -> Result<Vec<u8>> {
        if me != 0 {
            return self.receive(0);
        }
        (1..self.others.size()).try_for_each(|rank| self.send(rank, bytes))?;
        Ok(bytes.to_vec())
    }

    /// Gathers bytes from all at all, by rank; all pass equally many bytes.
    pub(crate) fn allgather(&self, me: i32, bytes: &[u8]) -> Result<Vec<u8>> {
        let all = self.allgatherv(me, bytes)?;
        if all.len() != bytes.len() * self.others.size() as usize {
            return Err(Error::new(Class::NOT_SAME, "the members have called different operations"));
        }
        Ok(all)
    }

    /// Gathers bytes from all at all, concatenated in the order of ranks.
    pub(crate) fn allgatherv(&self, me: i32, bytes: &[u8]) -> Result<Vec<u8>> {
        if me != 0 {
            self.send(0, bytes)?;
        }
        let mut all = bytes.to_vec();
        if me == 0 {
            for rank in 1..self.others.size() {
                all.extend(self.receive(rank)?);
            }
        }
        self.broadcast(me, &all)
    }
}
