//! Two-phase collective input and output. For a write, each process sends its pieces to the aggregators of the file domains, and
//! each aggregator writes its domain in large steps. A read works the other way round.
//!
//! This pays off where pieces interleave. Where they do not, each process reads or writes independently.

use std::ops::Range;
use std::sync::Arc;

use crate::coll::sched::{Plan, SchedRun, SchedStep};
use crate::comm::context::Plane;
use crate::error::{Class, Error, Result};
use crate::io::domains::{FileDomains, PieceList, interleave};
use crate::io::hints::Buffering;
use crate::io::object::{File, agree_result};
use crate::io::position::{Direction, FileAccess};
use crate::io::view::FileRange;
use crate::memory::Buffer;
use crate::p2p::wire::MatchKey;
use crate::status::Status;

/// This process's part of a collective access.
struct OwnAccess {
    access: FileAccess,
    /// The data in their file representation, if it differs from that in memory.
    file_bytes: Option<Buffer>,
    pieces: PieceList,
    /// Size of the file in bytes, for a read. A write does not need it.
    file_size: Option<u64>,
}

/// Bytes in which each process describes its part: an error class, the range of its pieces, and the size of the file.
const DESCRIPTION_LEN: usize = 32;

impl File {
    /// The start of this process's access when all use the shared pointer in rank order.
    pub(super) fn ordered_access(&self, direction: Direction, buffer: &Buffer) -> Result<FileAccess> {
        let comm = &self.0.comm;
        let found = self.view_and_etypes(direction, buffer);
        let etypes = found.as_ref().map_or(0, |(_, etypes)| *etypes);
        let all = comm.oob()?.allgather(comm.rank(), &etypes.to_le_bytes())?;
        let all: Vec<i64> = words(&all).map(|word| word as i64).collect();
        let first = if comm.rank() == 0 { self.0.pointer.add(all.iter().sum()) } else { Ok(0) };
        let description = first.as_ref().map_or_else(|_| Vec::new(), |first| first.to_le_bytes().to_vec());
        let description = comm.oob()?.broadcast(comm.rank(), &description)?;
        let first = first.and_then(|_| {
            let lost = || Error::new(Class::IO, "rank 0 could not advance the shared pointer");
            words(&description).next().map(|word| word as i64).ok_or_else(lost)
        })?;
        let (view, etypes) = found?;
        self.access_from(view, first + all[..comm.rank() as usize].iter().sum::<i64>(), etypes)
    }

    /// Reads or writes collectively. All processes must call this.
    pub(super) fn run_all(
        &self,
        direction: Direction,
        access: Result<FileAccess>,
        buffer: &Buffer,
    ) -> Result<(FileAccess, Status)> {
        let comm = &self.0.comm;
        let part = access.and_then(|access| self.own_access(direction, access, buffer));
        let description = part.as_ref().map_or_else(
            |error| [error.class.0 as u64, 0, 0, 0],
            |part| [0, part.pieces.range().start, part.pieces.range().end, part.file_size.unwrap_or(0)],
        );
        let description: Vec<u8> = description.iter().flat_map(|word| word.to_le_bytes()).collect();
        let all = comm.oob()?.allgather(comm.rank(), &description)?;
        let all: Vec<[u64; 4]> = all.chunks_exact(DESCRIPTION_LEN).map(words_of_description).collect();
        let part = part?;
        if let Some(rank) = all.iter().position(|description| description[0] != 0) {
            let text = format!("rank {rank} of the file has passed invalid arguments");
            return Err(Error::new(Class(all[rank][0] as i32), text));
        }
        let ranges: Vec<Range<u64>> = all.iter().map(|description| description[1]..description[2]).collect();
        if !self.uses_two_phases(direction, &ranges) {
            let status = match direction {
                Direction::Read => self.read_independent(&part.access, buffer),
                Direction::Write => self.write_independent(&part.access, buffer),
            }?;
            return Ok((part.access, status));
        }
        let file_size = all.iter().map(|description| description[3]).max().unwrap_or(0);
        self.two_phase(direction, part, buffer, &ranges, file_size)
    }

    /// Prepares this process's part of a collective access: its pieces of the file, and their bytes.
    fn own_access(&self, direction: Direction, access: FileAccess, buffer: &Buffer) -> Result<OwnAccess> {
        let representation = access.view.representation();
        let len = representation.file_len(buffer)?;
        let pieces = access.view.pieces(access.from, len).collect();
        let (file_bytes, file_size) = match direction {
            Direction::Read => (representation.file_buffer(buffer)?, Some(self.0.disk.size()?)),
            Direction::Write => (representation.encode(buffer)?, None),
        };
        Ok(OwnAccess { access, file_bytes, pieces, file_size })
    }

    fn uses_two_phases(&self, direction: Direction, ranges: &[Range<u64>]) -> bool {
        let hints = self.with(|state| state.hints);
        let buffering = if direction == Direction::Read { hints.reading } else { hints.writing };
        let is_any = ranges.iter().any(|range| !range.is_empty());
        // In atomic mode each process locks the file for its own access. A single process has nothing to exchange.
        let is_possible = is_any && !self.is_atomic() && ranges.len() > 1;
        match buffering {
            Buffering::Always => is_possible,
            Buffering::Automatic => is_possible && interleave(ranges),
            Buffering::Never => false,
        }
    }

    fn two_phase(
        &self,
        direction: Direction,
        part: OwnAccess,
        buffer: &Buffer,
        ranges: &[Range<u64>],
        file_size: u64,
    ) -> Result<(FileAccess, Status)> {
        let hints = self.with(|state| state.hints);
        let touched = ranges.iter().filter(|range| !range.is_empty());
        let touched = touched.clone().map(|range| range.start).min().unwrap_or(0)
            ..touched.map(|range| range.end).max().unwrap_or(0);
        let size = self.0.comm.size();
        let domains = FileDomains::new(touched, size, hints.nodes.unwrap_or(size as u32), hints.buffer);
        let OwnAccess { access, file_bytes, pieces, .. } = part;
        let mine = if direction == Direction::Read { pieces.truncate(file_size) } else { pieces };
        let data = file_bytes.as_ref().unwrap_or(buffer);
        let rounds = CollectiveRounds::new(self, direction, &domains, &mine, data)?;
        let mut done = Ok(());
        for round in 0..domains.rounds() {
            // An error must not end the loop, because the others continue.
            let carried_out = rounds.run_round(round);
            done = done.and(carried_out);
        }
        agree_result(&self.0.comm, done)?;
        let bytes = match (direction, &file_bytes) {
            (Direction::Write, _) => buffer.len(),
            (Direction::Read, None) => mine.total(),
            (Direction::Read, Some(file_bytes)) => {
                access.view.representation().decode(&file_bytes.to_vec()[..mine.total() as usize], buffer)?
            }
        };
        Ok((access, Status { bytes, ..Status::empty() }))
    }
}

/// The rounds of one operation.
struct CollectiveRounds<'a> {
    file: &'a File,
    direction: Direction,
    domains: &'a FileDomains,
    mine: &'a PieceList,
    data: &'a Buffer,
    /// This process's index as an aggregator, and the pieces of its domain by rank.
    aggregator: Option<(usize, Vec<PieceList>)>,
    match_key: MatchKey,
}

impl<'a> CollectiveRounds<'a> {
    /// Sends each aggregator the pieces of its domain.
    fn new(
        file: &'a File,
        direction: Direction,
        domains: &'a FileDomains,
        mine: &'a PieceList,
        data: &'a Buffer,
    ) -> Result<Self> {
        let comm = &file.0.comm;
        let match_key =
            MatchKey { context: comm.context(Plane::Collective)?, tag: comm.next_collective_tag() };
        let aggregator = domains.ranks().iter().position(|rank| *rank == comm.rank());
        let mut rounds = Self { file, direction, domains, mine, data, aggregator: None, match_key };
        let lists: Vec<Vec<u8>> = (0..domains.ranks().len())
            .map(|to| encode_pieces(&mine.intersect(&domains.domain(to)).1))
            .collect();
        let counts: Vec<u8> = lists.iter().flat_map(|list| (list.len() as u64).to_le_bytes()).collect();
        let counts = comm.oob()?.allgather(comm.rank(), &counts)?;
        let counts: Vec<u64> = words(&counts).collect();
        let mut steps = Vec::new();
        let mut received = Vec::new();
        if let Some(me) = aggregator {
            for (rank, counts) in counts.chunks_exact(domains.ranks().len()).enumerate() {
                let list = Buffer::from_bytes(&vec![0; counts[me] as usize])?;
                rounds.add_transfer(&mut steps, (rank as i32, comm.rank()), (None, Some(list.clone())))?;
                received.push(list);
            }
        }
        for (list, rank) in lists.iter().zip(domains.ranks()) {
            let to = received.get(comm.rank() as usize).filter(|_| *rank == comm.rank());
            rounds.add_transfer(
                &mut steps,
                (comm.rank(), *rank),
                (Some(Buffer::from_bytes(list)?), to.cloned()),
            )?;
        }
        rounds.run_steps(steps)?;
        let lists = || received.iter().map(|list| decode_pieces(&list.to_vec())).collect();
        rounds.aggregator = aggregator.map(|me| (me, lists()));
        Ok(rounds)
    }

    /// Adds this process's steps for bytes that one rank sends to another. Each end is given if it is at this process.
    fn add_transfer(
        &self,
        steps: &mut Vec<SchedStep>,
        (from, to): (i32, i32),
        (source, target): (Option<Buffer>, Option<Buffer>),
    ) -> Result<()> {
        let comm = &self.file.0.comm;
        let process = |rank: i32| {
            let none = || Error::new(Class::INTERN, format_args!("a file has no rank {rank}"));
            comm.group().process(rank).ok_or_else(none)
        };
        let is_something = |buffer: &Option<Buffer>| buffer.as_ref().is_some_and(|buffer| buffer.len() > 0);
        if !is_something(&source) && !is_something(&target) {
            return Ok(());
        }
        match (source, target) {
            (Some(source), Some(target)) => steps.push(SchedStep::Copy { from: source, to: target }),
            // A local transfer is a copy, added when both ends are known.
            _ if from == to => {}
            (Some(buffer), None) => steps.push(SchedStep::Send { to: process(to)?, buffer }),
            (None, Some(buffer)) => steps.push(SchedStep::Receive { from: process(from)?, buffer }),
            (None, None) => {}
        }
        Ok(())
    }

    fn run_steps(&self, steps: Vec<SchedStep>) -> Result<()> {
        let core = self.file.core();
        let plan = Arc::new(Plan { rounds: vec![steps], match_key: self.match_key, op: None, called: None });
        let started = core.with(|engine| engine.start_task(Box::new(SchedRun::new(plan))));
        let call = if self.direction == Direction::Read { "MPI_File_read_all" } else { "MPI_File_write_all" };
        core.finish(call, started).ok().map(drop)
    }

    /// Carries out one round. An error of the file system is returned only after the others have received their data.
    fn run_round(&self, round: u64) -> Result<()> {
        let window = RoundBuffer::new(self.aggregator.as_ref(), self.domains, round)?;
        let read = if self.direction == Direction::Read { window.read(self.file) } else { Ok(()) };
        self.run_steps(self.transfers(&window, round)?)?;
        read?;
        if self.direction == Direction::Write { window.write(self.file) } else { Ok(()) }
    }

    /// The data transfers of a round.
    fn transfers(&self, window: &RoundBuffer, round: u64) -> Result<Vec<SchedStep>> {
        let (me, mut steps) = (self.file.0.comm.rank(), Vec::new());
        let mut own = None;
        for (rank, aggregated) in window.parts() {
            if rank == me {
                own = Some(aggregated);
            } else if self.direction == Direction::Write {
                self.add_transfer(&mut steps, (rank, me), (None, Some(aggregated)))?;
            } else {
                self.add_transfer(&mut steps, (me, rank), (Some(aggregated), None))?;
            }
        }
        for (aggregator, rank) in self.domains.ranks().iter().enumerate() {
            let (from, found) = self.mine.intersect(&self.domains.window(aggregator, round));
            let len = found.iter().map(|piece| piece.len).sum();
            let own_part = (len > 0).then(|| self.data.clone().packed_range(from, len));
            let aggregated = own.take_if(|_| *rank == me);
            if self.direction == Direction::Write {
                self.add_transfer(&mut steps, (me, *rank), (own_part, aggregated))?;
            } else {
                self.add_transfer(&mut steps, (*rank, me), (aggregated, own_part))?;
            }
        }
        Ok(steps)
    }
}

/// An aggregator's data of one round; empty at other processes.
struct RoundBuffer {
    /// The pieces of all ranks, in rank order.
    memory: Buffer,
    /// Bytes of each rank.
    lens: Vec<u64>,
    /// The pieces in memory order.
    pieces: Vec<FileRange>,
}

impl RoundBuffer {
    /// Allocates the memory for a round of an aggregator, given by its number and the pieces of each rank in its domain.
    /// At a process that is no aggregator the buffer is empty.
    fn new(aggregator: Option<&(usize, Vec<PieceList>)>, domains: &FileDomains, round: u64) -> Result<Self> {
        let (mut lens, mut pieces) = (Vec::new(), Vec::new());
        if let Some((number, lists)) = aggregator {
            let range = domains.window(*number, round);
            for list in lists {
                let found = list.intersect(&range).1;
                lens.push(found.iter().map(|piece| piece.len).sum());
                pieces.extend(found);
            }
        }
        let memory = Buffer::zeroed(datatypes::Basic::Byte.into(), lens.iter().sum::<u64>() as i64)?;
        Ok(Self { memory, lens, pieces })
    }

    /// The memory of each rank's pieces.
    fn parts(&self) -> impl Iterator<Item = (i32, Buffer)> {
        let mut at = 0;
        (0..).zip(&self.lens).map(move |(rank, len)| {
            let part = self.memory.clone().packed_range(at, *len);
            at += len;
            (rank, part)
        })
    }

    /// Writes all pieces. Where pieces of several ranks overlap, the last rank's data remain.
    fn write(&self, file: &File) -> Result<()> {
        self.memory.with_bytes(|bytes| {
            let mut rest = bytes;
            let pieces = self.pieces.iter().map(|piece| {
                let (now, later) = rest.split_at(piece.len as usize);
                rest = later;
                (piece.offset, now)
            });
            let mut pieces: Vec<(u64, &[u8])> = pieces.collect();
            pieces.sort_by_key(|(offset, _)| *offset);
            for_each_contiguous(
                pieces,
                |slice| slice.len(),
                |offset, slices| file.0.disk.write_vectored(offset, &slices),
            )
        })
    }

    /// Reads all pieces. Bytes past the end of the file stay zero.
    fn read(&self, file: &File) -> Result<()> {
        let read = self.memory.with_bytes_mut(|bytes| {
            let (mut rest, len) = (&mut bytes[..], self.lens.iter().sum::<u64>() as usize);
            let mut pieces = Vec::with_capacity(self.pieces.len());
            for piece in &self.pieces {
                let (now, later) = rest.split_at_mut(piece.len as usize);
                rest = later;
                pieces.push((piece.offset, now));
            }
            pieces.sort_by_key(|(offset, _)| *offset);
            for_each_contiguous(
                pieces,
                |slice| slice.len(),
                |offset, slices| {
                    let wanted: usize = slices.iter().map(|slice| slice.len()).sum();
                    let count = file.0.disk.read_vectored(offset, slices)?;
                    let shrunk = || Error::new(Class::IO, "the file has become shorter while it was read");
                    if count < wanted { Err(shrunk()) } else { Ok(()) }
                },
            )?;
            Ok(len)
        });
        read.map(drop)
    }
}

/// Calls `act` for each sequence of slices that is contiguous in the file.
fn for_each_contiguous<T>(
    pieces: Vec<(u64, T)>,
    len: impl Fn(&T) -> usize,
    mut act: impl FnMut(u64, Vec<T>) -> Result<()>,
) -> Result<()> {
    let (mut row, mut start, mut end) = (Vec::new(), 0, 0);
    for (offset, slice) in pieces {
        if offset != end && !row.is_empty() {
            act(start, std::mem::take(&mut row))?;
        }
        if row.is_empty() {
            start = offset;
        }
        end = offset + len(&slice) as u64;
        row.push(slice);
    }
    if row.is_empty() { Ok(()) } else { act(start, row) }
}

fn words(bytes: &[u8]) -> impl Iterator<Item = u64> {
    bytes.chunks_exact(8).map(|eight| eight.try_into().map_or(0, u64::from_le_bytes))
}

fn words_of_description(bytes: &[u8]) -> [u64; 4] {
    let mut words = words(bytes);
    [(); 4].map(|()| words.next().unwrap_or(0))
}

fn encode_pieces(pieces: &[FileRange]) -> Vec<u8> {
    pieces.iter().flat_map(|piece| [piece.offset, piece.len]).flat_map(u64::to_le_bytes).collect()
}

fn decode_pieces(bytes: &[u8]) -> PieceList {
    let words: Vec<u64> = words(bytes).collect();
    words.chunks_exact(2).map(|two| FileRange { offset: two[0], len: two[1] }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contiguous_pieces_are_joined() {
        let mut rows = Vec::new();
        let pieces = vec![(0, 4), (4, 2), (7, 1), (8, 3), (8, 3), (20, 1)];
        for_each_contiguous(
            pieces,
            |len| *len,
            |offset, lens| {
                rows.push((offset, lens));
                Ok(())
            },
        )
        .expect("nothing fails");
        assert_eq!(rows, [(0, vec![4, 2]), (7, vec![1, 3]), (8, vec![3]), (20, vec![1])]);
    }

    #[test]
    fn piece_list_roundtrip_keeps_pieces() {
        let pieces = [FileRange { offset: 3, len: 5 }, FileRange { offset: 1 << 40, len: 1 }];
        let received = decode_pieces(&encode_pieces(&pieces));
        assert_eq!((received.total(), received.range()), (6, 3..(1 << 40) + 1));
        assert_eq!(received.intersect(&(0..u64::MAX)).1, pieces);
    }
}
