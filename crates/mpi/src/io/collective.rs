//! Two-phase collective input and output. For a write, each process sends its pieces to the aggregators of the file domains, and
//! each aggregator writes its domain in large steps. A read works the other way round.
//!
//! This pays off where pieces interleave. Where they do not, each process reads or writes independently.

use std::ops::Range;
use std::sync::Arc;

use crate::coll::sched::{Plan, SchedRun, SchedStep};
use crate::comm::context::Plane;
use crate::error::{Class, Error, Result};
use crate::io::domains::{Domains, Listed, interleave};
use crate::io::hints::Buffering;
use crate::io::object::{File, agreed};
use crate::io::place::{Access, Direction};
use crate::io::view::Piece;
use crate::memory::Buffer;
use crate::p2p::wire::MatchKey;
use crate::status::Status;

/// A process's part of an operation.
struct Part {
    access: Access,
    /// The data in their file representation, if it differs.
    raw: Option<Buffer>,
    pieces: Listed,
    /// Size of the file in bytes, for a read.
    size: u64,
}

/// Bytes in which each process describes its part: an error class, the range of its pieces, and the size of the file.
const SAID: usize = 32;

impl File {
    /// The start of this process's access when all use the shared pointer in rank order.
    pub(super) fn ordered(&self, way: Direction, buffer: &Buffer) -> Result<Access> {
        let comm = &self.0.comm;
        let found = self.etypes(way, buffer);
        let etypes = found.as_ref().map_or(0, |(_, etypes)| *etypes);
        let all = comm.oob()?.allgather(comm.rank(), &etypes.to_le_bytes())?;
        let all: Vec<i64> = words(&all).map(|word| word as i64).collect();
        let first = if comm.rank() == 0 { self.0.pointer.add(all.iter().sum()) } else { Ok(0) };
        let said = first.as_ref().map_or_else(|_| Vec::new(), |first| first.to_le_bytes().to_vec());
        let said = comm.oob()?.broadcast(comm.rank(), &said)?;
        let first = first.and_then(|_| {
            let lost = || Error::new(Class::IO, "the shared pointer could not be moved");
            words(&said).next().map(|word| word as i64).ok_or_else(lost)
        })?;
        let (view, etypes) = found?;
        self.located(view, first + all[..comm.rank() as usize].iter().sum::<i64>(), etypes)
    }

    /// Reads or writes collectively. All processes must call this.
    pub(super) fn exchange(
        &self,
        way: Direction,
        access: Result<Access>,
        buffer: &Buffer,
    ) -> Result<(Access, Status)> {
        let comm = &self.0.comm;
        let part = access.and_then(|access| self.part(way, access, buffer));
        let said = part.as_ref().map_or_else(
            |error| [error.class.0 as u64, 0, 0, 0],
            |part| [0, part.pieces.range().start, part.pieces.range().end, part.size],
        );
        let said: Vec<u8> = said.iter().flat_map(|word| word.to_le_bytes()).collect();
        let all = comm.oob()?.allgather(comm.rank(), &said)?;
        let all: Vec<[u64; 4]> = all.chunks_exact(SAID).map(four).collect();
        let part = part?;
        if let Some(rank) = all.iter().position(|said| said[0] != 0) {
            let text = format!("rank {rank} of the file cannot take part");
            return Err(Error::new(Class(all[rank][0] as i32), text));
        }
        let ranges: Vec<Range<u64>> = all.iter().map(|said| said[1]..said[2]).collect();
        if !self.is_exchanged(way, &ranges) {
            let status = match way {
                Direction::Read => self.read_here(&part.access, buffer),
                Direction::Write => self.write_here(&part.access, buffer),
            }?;
            return Ok((part.access, status));
        }
        let end = all.iter().map(|said| said[3]).max().unwrap_or(0);
        self.in_phases(way, part, buffer, &ranges, end)
    }

    /// This process's part.
    fn part(&self, way: Direction, access: Access, buffer: &Buffer) -> Result<Part> {
        let representation = access.view.representation();
        let len = representation.len_in_file(buffer)?;
        let pieces = access.view.pieces(access.from, len).collect();
        let (raw, size) = match way {
            Direction::Read => (representation.raw(buffer)?, self.0.disk.size()?),
            Direction::Write => (representation.encode(buffer)?, 0),
        };
        Ok(Part { access, raw, pieces, size })
    }

    fn is_exchanged(&self, way: Direction, ranges: &[Range<u64>]) -> bool {
        let hints = self.with(|state| state.hints);
        let buffering = if way == Direction::Read { hints.reading } else { hints.writing };
        let is_any = ranges.iter().any(|range| !range.is_empty());
        // In atomic mode each process locks the file for its own access. A single process has nothing to exchange.
        let is_possible = is_any && !self.is_atomic() && ranges.len() > 1;
        match buffering {
            Buffering::Always => is_possible,
            Buffering::Automatic => is_possible && interleave(ranges),
            Buffering::Never => false,
        }
    }

    fn in_phases(
        &self,
        way: Direction,
        part: Part,
        buffer: &Buffer,
        ranges: &[Range<u64>],
        end: u64,
    ) -> Result<(Access, Status)> {
        let hints = self.with(|state| state.hints);
        let touched = ranges.iter().filter(|range| !range.is_empty());
        let touched = touched.clone().map(|range| range.start).min().unwrap_or(0)
            ..touched.map(|range| range.end).max().unwrap_or(0);
        let size = self.0.comm.size();
        let domains = Domains::new(touched, size, hints.nodes.unwrap_or(size as u32), hints.buffer);
        let Part { access, raw, pieces, .. } = part;
        let mine = if way == Direction::Read { pieces.cut(end) } else { pieces };
        let data = raw.as_ref().unwrap_or(buffer);
        let rounds = Rounds::begin(self, way, &domains, &mine, data)?;
        let mut done = Ok(());
        for round in 0..domains.rounds() {
            // An error must not end the loop, because the others continue.
            let carried_out = rounds.carry_out(round);
            done = done.and(carried_out);
        }
        agreed(&self.0.comm, done)?;
        let bytes = match (way, &raw) {
            (Direction::Write, _) => buffer.len(),
            (Direction::Read, None) => mine.total(),
            (Direction::Read, Some(raw)) => {
                access.view.representation().decode(&raw.to_vec()[..mine.total() as usize], buffer)?
            }
        };
        Ok((access, Status { bytes, ..Status::empty() }))
    }
}

/// The rounds of one operation.
struct Rounds<'a> {
    file: &'a File,
    way: Direction,
    domains: &'a Domains,
    mine: &'a Listed,
    data: &'a Buffer,
    /// This process's index as an aggregator, and the pieces of its domain by rank.
    aggregator: Option<(usize, Vec<Listed>)>,
    match_key: MatchKey,
}

impl<'a> Rounds<'a> {
    /// Sends each aggregator the pieces of its domain.
    fn begin(
        file: &'a File,
        way: Direction,
        domains: &'a Domains,
        mine: &'a Listed,
        data: &'a Buffer,
    ) -> Result<Self> {
        let comm = &file.0.comm;
        let match_key =
            MatchKey { context: comm.context(Plane::Collective)?, tag: comm.next_collective_tag() };
        let aggregator = domains.ranks().iter().position(|rank| *rank == comm.rank());
        let mut rounds = Self { file, way, domains, mine, data, aggregator: None, match_key };
        let lists: Vec<Vec<u8>> =
            (0..domains.ranks().len()).map(|to| bytes_of(&mine.within(&domains.domain(to)).1)).collect();
        let counts: Vec<u8> = lists.iter().flat_map(|list| (list.len() as u64).to_le_bytes()).collect();
        let counts = comm.oob()?.allgather(comm.rank(), &counts)?;
        let counts: Vec<u64> = words(&counts).collect();
        let mut acts = Vec::new();
        let mut heard = Vec::new();
        if let Some(me) = aggregator {
            for (rank, counts) in counts.chunks_exact(domains.ranks().len()).enumerate() {
                let list = Buffer::own(&vec![0; counts[me] as usize])?;
                rounds.moved(&mut acts, (rank as i32, comm.rank()), (None, Some(list.clone())))?;
                heard.push(list);
            }
        }
        for (list, rank) in lists.iter().zip(domains.ranks()) {
            let to = heard.get(comm.rank() as usize).filter(|_| *rank == comm.rank());
            rounds.moved(&mut acts, (comm.rank(), *rank), (Some(Buffer::own(list)?), to.cloned()))?;
        }
        rounds.run(acts)?;
        let lists = || heard.iter().map(|list| pieces_of(&list.to_vec())).collect();
        rounds.aggregator = aggregator.map(|me| (me, lists()));
        Ok(rounds)
    }

    /// Adds this process's steps for bytes that one rank sends to another. Each end is given if it is at this process.
    fn moved(
        &self,
        acts: &mut Vec<SchedStep>,
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
            (Some(source), Some(target)) => acts.push(SchedStep::Copy { from: source, to: target }),
            // A local transfer is a copy, added when both ends are known.
            _ if from == to => {}
            (Some(buffer), None) => acts.push(SchedStep::Send { to: process(to)?, buffer }),
            (None, Some(buffer)) => acts.push(SchedStep::Receive { from: process(from)?, buffer }),
            (None, None) => {}
        }
        Ok(())
    }

    fn run(&self, acts: Vec<SchedStep>) -> Result<()> {
        let core = self.file.core();
        let plan = Arc::new(Plan { rounds: vec![acts], match_key: self.match_key, op: None, called: None });
        let started = core.with(|engine| engine.start_task(Box::new(SchedRun::new(plan))));
        let call = if self.way == Direction::Read { "MPI_File_read_all" } else { "MPI_File_write_all" };
        core.finish(call, started).ok().map(drop)
    }

    /// Carries out one round. An error of the file system is returned only after the others have received their data.
    fn carry_out(&self, round: u64) -> Result<()> {
        let window = Window::of(self.aggregator.as_ref(), self.domains, round)?;
        let read = if self.way == Direction::Read { window.read(self.file) } else { Ok(()) };
        self.run(self.acts(&window, round)?)?;
        read?;
        if self.way == Direction::Write { window.write(self.file) } else { Ok(()) }
    }

    /// The data transfers of a round.
    fn acts(&self, window: &Window, round: u64) -> Result<Vec<SchedStep>> {
        let (me, mut acts) = (self.file.0.comm.rank(), Vec::new());
        let mut own = None;
        for (rank, there) in window.parts() {
            if rank == me {
                own = Some(there);
            } else if self.way == Direction::Write {
                self.moved(&mut acts, (rank, me), (None, Some(there)))?;
            } else {
                self.moved(&mut acts, (me, rank), (Some(there), None))?;
            }
        }
        for (aggregator, rank) in self.domains.ranks().iter().enumerate() {
            let (from, found) = self.mine.within(&self.domains.window(aggregator, round));
            let len = found.iter().map(|piece| piece.len).sum();
            let here = (len > 0).then(|| self.data.clone().window(from, len));
            let there = own.take_if(|_| *rank == me);
            if self.way == Direction::Write {
                self.moved(&mut acts, (me, *rank), (here, there))?;
            } else {
                self.moved(&mut acts, (*rank, me), (there, here))?;
            }
        }
        Ok(acts)
    }
}

/// An aggregator's data of one round; empty at other processes.
struct Window {
    /// The pieces of all ranks, in rank order.
    memory: Buffer,
    /// Bytes of each rank.
    lens: Vec<u64>,
    /// The pieces in memory order.
    pieces: Vec<Piece>,
}

impl Window {
    fn of(aggregator: Option<&(usize, Vec<Listed>)>, domains: &Domains, round: u64) -> Result<Self> {
        let (mut lens, mut pieces) = (Vec::new(), Vec::new());
        if let Some((me, lists)) = aggregator {
            let range = domains.window(*me, round);
            for list in lists {
                let found = list.within(&range).1;
                lens.push(found.iter().map(|piece| piece.len).sum());
                pieces.extend(found);
            }
        }
        let memory = Buffer::own_elements(datatypes::Basic::Byte.into(), lens.iter().sum::<u64>() as i64)?;
        Ok(Self { memory, lens, pieces })
    }

    /// The memory of each rank's pieces.
    fn parts(&self) -> impl Iterator<Item = (i32, Buffer)> {
        let mut at = 0;
        (0..).zip(&self.lens).map(move |(rank, len)| {
            let part = self.memory.clone().window(at, *len);
            at += len;
            (rank, part)
        })
    }

    /// Writes all pieces. Where pieces of several ranks overlap, the last rank's data remain.
    fn write(&self, file: &File) -> Result<()> {
        self.memory.show(|bytes| {
            let mut rest = bytes;
            let pieces = self.pieces.iter().map(|piece| {
                let (now, later) = rest.split_at(piece.len as usize);
                rest = later;
                (piece.offset, now)
            });
            let mut pieces: Vec<(u64, &[u8])> = pieces.collect();
            pieces.sort_by_key(|(offset, _)| *offset);
            runs(pieces, |slice| slice.len(), |offset, slices| file.0.disk.gather(offset, &slices))
        })
    }

    /// Reads all pieces. Bytes past the end of the file stay zero.
    fn read(&self, file: &File) -> Result<()> {
        let read = self.memory.fill(|bytes| {
            let (mut rest, len) = (&mut bytes[..], self.lens.iter().sum::<u64>() as usize);
            let mut pieces = Vec::with_capacity(self.pieces.len());
            for piece in &self.pieces {
                let (now, later) = rest.split_at_mut(piece.len as usize);
                rest = later;
                pieces.push((piece.offset, now));
            }
            pieces.sort_by_key(|(offset, _)| *offset);
            runs(
                pieces,
                |slice| slice.len(),
                |offset, slices| {
                    let wanted: usize = slices.iter().map(|slice| slice.len()).sum();
                    let count = file.0.disk.scatter(offset, slices)?;
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
fn runs<T>(
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

fn four(bytes: &[u8]) -> [u64; 4] {
    let mut words = words(bytes);
    [(); 4].map(|()| words.next().unwrap_or(0))
}

fn bytes_of(pieces: &[Piece]) -> Vec<u8> {
    pieces.iter().flat_map(|piece| [piece.offset, piece.len]).flat_map(u64::to_le_bytes).collect()
}

fn pieces_of(bytes: &[u8]) -> Listed {
    let words: Vec<u64> = words(bytes).collect();
    words.chunks_exact(2).map(|two| Piece { offset: two[0], len: two[1] }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_what_follows_each_other() {
        let mut rows = Vec::new();
        let pieces = vec![(0, 4), (4, 2), (7, 1), (8, 3), (8, 3), (20, 1)];
        runs(
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
    fn pieces_are_told() {
        let pieces = [Piece { offset: 3, len: 5 }, Piece { offset: 1 << 40, len: 1 }];
        let heard = pieces_of(&bytes_of(&pieces));
        assert_eq!((heard.total(), heard.range()), (6, 3..(1 << 40) + 1));
        assert_eq!(heard.within(&(0..u64::MAX)).1, pieces);
    }
}
