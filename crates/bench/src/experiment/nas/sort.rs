//! [`Sort`]: IS, which ranks whole numbers by counting: every rank sends each other rank the keys of that rank's
//! range.
//!
//! Ten times: keys are counted by bucket, the counts summed over all ranks, neighbouring buckets given to ranks so that all get about
//! as many keys, the keys sent there, and counted one by one. NAS publishes the ranks of five keys after each of the ten.

use datatypes::{Basic, Datatype};
use mpi::Buffer;
use verbs::Buf;

use super::super::Fault;
use super::job::Job;
use super::kernel::{Class, Outcome, Solve};
use super::random::{BITS, Random};

/// Times that keys are ranked.
const TIMES: u32 = 10;
/// Keys at the start of rank 0's array that are overwritten, two per iteration.
const CHANGED: usize = 2 * TIMES as usize + 1;
/// Keys whose ranks are published.
const KNOWN: usize = 5;
const BUCKETS_LOG2: u32 = 10;
const BUCKETS: usize = 1 << BUCKETS_LOG2;
/// Bytes of a key.
const KEY: usize = size_of::<u32>();
/// Uniform random numbers averaged into one key.
const BLOCK: usize = 1024;
/// Uniform random numbers summed into one key.
const DRAWN: u64 = 4;

/// Keys in a second of a core, which is assumed; NAS counts a key as an operation.
pub(super) const RATE: f64 = 30e6;
/// The share of the work on a key done before it is sent: it is counted, moved, and then counted again.
const BEFORE: f64 = 2.0 / 3.0;

/// The parameters of a class by NAS.
struct Problem {
    keys_log2: u32,
    largest_log2: u32,
    /// Positions of the keys with published ranks.
    places: [usize; KNOWN],
    ranks: [i64; KNOWN],
    /// How the rank of each such key depends on the iteration n: by `sign * (n + offset)`.
    moves: [(i64, i64); KNOWN],
}

fn problem(class: Class) -> Problem {
    let up = |offset| (1, offset);
    let down = |offset| (-1, offset);
    match class {
        Class::S => Problem {
            keys_log2: 16,
            largest_log2: 11,
            places: [48_427, 17_148, 23_627, 62_548, 4_431],
            ranks: [0, 18, 346, 64_917, 65_463],
            moves: [up(0), up(0), up(0), down(0), down(0)],
        },
        Class::W => Problem {
            keys_log2: 20,
            largest_log2: 16,
            places: [357_773, 934_767, 875_723, 898_999, 404_505],
            ranks: [1_249, 11_698, 1_039_987, 1_043_896, 1_048_018],
            moves: [up(-2), up(-2), down(0), down(0), down(0)],
        },
        Class::A => Problem {
            keys_log2: 23,
            largest_log2: 19,
            places: [2_112_377, 662_041, 5_336_171, 3_642_833, 4_250_760],
            ranks: [104, 17_523, 123_928, 8_288_932, 8_388_264],
            moves: [up(-1), up(-1), up(-1), down(-1), down(-1)],
        },
        Class::B => Problem {
            keys_log2: 25,
            largest_log2: 21,
            places: [41_869, 812_306, 5_102_857, 18_232_239, 26_860_214],
            ranks: [33_422_937, 10_244, 59_149, 33_135_281, 99],
            moves: [down(0), up(0), up(0), down(0), up(0)],
        },
    }
}

/// Bytes that all ranks together need.
pub(super) fn bytes(class: Class) -> u64 {
    // Keys: original, sorted by bucket, outgoing, incoming, and sorted; and as much again as reserve.
    (8 * KEY as u64) << problem(class).keys_log2
}

/// One rank of the kernel.
pub(super) struct Sort {
    job: Job,
    problem: Problem,
    /// In the original order, and sorted by bucket.
    keys: Vec<u32>,
    by_bucket: Vec<u32>,
    /// Send and receive buffers.
    out: Buf,
    into: Buf,
    owned: Owned,
    /// For each key of the local range, how many keys do not exceed it.
    counts: Vec<u32>,
    /// Published ranks that were found.
    confirmed: u32,
}

/// The outcome of ranking at one rank.
#[derive(Default)]
struct Owned {
    /// Keys received, and keys of lower ranks.
    keys: usize,
    before: u64,
    /// The smallest key that belongs here.
    smallest: u32,
}

/// The shares that ranks must know before keys are sent.
struct Shares {
    sent: Vec<u32>,
    /// Buckets of this rank.
    buckets: std::ops::Range<usize>,
    before: u64,
    known: [u32; KNOWN],
}

impl Sort {
    pub(super) fn new(job: Job, class: Class) -> Result<Self, Fault> {
        let problem = problem(class);
        let own = (1 << problem.keys_log2) / job.ranks;
        Ok(Self {
            keys: keys(&problem, job.rank * own, own),
            by_bucket: vec![0; own],
            problem,
            out: Buf::alloc(own * KEY)?,
            into: Buf::alloc(own * KEY)?,
            owned: Owned::default(),
            counts: Vec::new(),
            confirmed: 0,
            job,
        })
    }

    /// Takes back the keys that the last run has put in.
    fn restore(&mut self) {
        if self.job.rank == 0 {
            self.keys[..CHANGED].copy_from_slice(&keys(&self.problem, 0, CHANGED));
        }
    }

    /// Changes two keys, then ranks all keys.
    fn once(&mut self, time: u32) -> Result<(), Fault> {
        if self.job.rank == 0 {
            self.keys[time as usize] = time;
            self.keys[(time + TIMES) as usize] = (1 << self.problem.largest_log2) - time;
        }
        let counted = self.counted();
        let shares = self.shares(&counted)?;
        self.fill_buckets(&counted[..BUCKETS])?;
        self.job.computed(self.keys.len() as f64 * BEFORE);
        let came = self.send(&shares)?;
        self.count(&shares, came)?;
        self.job.computed(came as f64 * (1.0 - BEFORE));
        self.confirm(time, &shares.known);
        Ok(())
    }

    fn shift(&self) -> u32 {
        self.problem.largest_log2 - BUCKETS_LOG2
    }

    /// Local keys per bucket, followed by how many of the keys of known rank are local.
    fn counted(&self) -> Vec<u32> {
        let (shift, own) = (self.shift(), self.keys.len());
        let mut counts = vec![0; BUCKETS + KNOWN];
        for key in &self.keys {
            counts[(key >> shift) as usize] += 1;
        }
        for (count, place) in counts[BUCKETS..].iter_mut().zip(self.problem.places) {
            if place / own == self.job.rank {
                *count = self.keys[place % own];
            }
        }
        counts
    }

    /// Gives buckets to ranks in their order, each until it has its part of all keys.
    fn shares(&self, counted: &[u32]) -> Result<Shares, Fault> {
        let mut all = counted.to_vec();
        self.job.sum(&mut all)?;
        let (ranks, part) = (self.job.ranks, self.keys.len() as u64);
        let (mut sent, mut rank, mut given) = (vec![0; ranks], 0, 0);
        let (mut buckets, mut before) = (0..0, 0);
        for (bucket, (own, total)) in counted.iter().zip(&all).take(BUCKETS).enumerate() {
            if rank == self.job.rank {
                if buckets.is_empty() {
                    (buckets, before) = (bucket..bucket, given);
                }
                buckets.end = bucket + 1;
            }
            sent[rank] += own;
            given += u64::from(*total);
            if given >= (rank as u64 + 1) * part && rank + 1 < ranks {
                rank += 1;
            }
        }
        let mut known = [0; KNOWN];
        known.copy_from_slice(&all[BUCKETS..]);
        Ok(Shares { sent, buckets, before, known })
    }

    /// Sorts own keys by bucket, ready to send.
    fn fill_buckets(&mut self, counts: &[u32]) -> Result<(), Fault> {
        let (shift, mut sum) = (self.shift(), 0);
        let begin = |count: &u32| {
            sum += count;
            sum - count
        };
        let mut next: Vec<u32> = counts.iter().map(begin).collect();
        for key in &self.keys {
            let place = &mut next[(key >> shift) as usize];
            self.by_bucket[*place as usize] = *key;
            *place += 1;
        }
        Ok(self.out.write(0, bytemuck::cast_slice(&self.by_bucket))?)
    }

    /// Sends every rank the keys of its range; returns the number of received keys.
    fn send(&mut self, shares: &Shares) -> Result<usize, Fault> {
        let got = self.job.alltoall(&shares.sent)?;
        let came = got.iter().map(|count| *count as usize).sum::<usize>();
        if self.into.len() < came * KEY {
            self.into = Buf::alloc(came * KEY)?;
        }
        self.job.alltoallv(pieces(&self.out, &shares.sent)?, pieces(&self.into, &got)?)?;
        Ok(came)
    }

    /// Counts the received keys: each entry becomes the number of received keys that do not exceed this key of the
    /// local range.
    fn count(&mut self, shares: &Shares, came: usize) -> Result<(), Fault> {
        let shift = self.shift();
        let smallest = (shares.buckets.start << shift) as u32;
        self.counts.clear();
        self.counts.resize(shares.buckets.len() << shift, 0);
        let counts = &mut self.counts;
        each_key(&self.into, came, |key| {
            let count = counts.get_mut(key.wrapping_sub(smallest) as usize);
            *count.ok_or_else(|| {
                Fault::Corrupt(format!("a key {key} came to a rank that others belong to"))
            })? += 1;
            Ok(())
        })?;
        let mut sum = 0;
        for count in counts {
            sum += *count;
            *count = sum;
        }
        self.owned = Owned { keys: came, before: shares.before, smallest };
        Ok(())
    }

    /// Compares the ranks of known keys in the local range.
    fn confirm(&mut self, time: u32, known: &[u32; KNOWN]) {
        let Owned { before, smallest, .. } = self.owned;
        let expected = self.problem.ranks.iter().zip(&self.problem.moves);
        for (key, (rank, (sign, offset))) in known.iter().zip(expected) {
            let place = key.wrapping_sub(smallest) as usize;
            if place >= self.counts.len() {
                continue;
            }
            let below = place.checked_sub(1).map_or(0, |below| self.counts[below]);
            let found = before + u64::from(below);
            let wanted = rank + sign * (i64::from(time) + offset);
            self.confirmed += u32::from(i64::try_from(found) == Ok(wanted));
        }
    }

    /// Checks the ranks against the published ones, and against a full order of all keys.
    fn check(&mut self) -> Result<(), Fault> {
        let mut sorted = vec![0; self.owned.keys];
        let (counts, smallest) = (&mut self.counts, self.owned.smallest);
        each_key(&self.into, self.owned.keys, |key| {
            let place = &mut counts[(key - smallest) as usize];
            *place -= 1;
            sorted[*place as usize] = key;
            Ok(())
        })?;
        let largest = sorted.last().copied().unwrap_or(0);
        let before = self.job.largest_before(largest.into())?;
        let is_sorted = sorted.is_sorted() && sorted.first().is_none_or(|first| u64::from(*first) >= before);
        let mut sums = [self.confirmed, sorted.len() as u32, u32::from(!is_sorted)];
        self.job.sum(&mut sums)?;
        let wanted = [TIMES * KNOWN as u32, 1 << self.problem.keys_log2, 0];
        if sums == wanted {
            return Ok(());
        }
        let [confirmed, keys, unsorted] = sums;
        Err(Fault::Corrupt(format!(
            "{confirmed} of {} published ranks were found, {keys} of {} keys, and {unsorted} ranks have keys out of order",
            wanted[0], wanted[1]
        )))
    }
}

impl Solve for Sort {
    fn job(&self) -> &Job {
        &self.job
    }

    fn run(&mut self) -> Result<Outcome, Fault> {
        self.restore();
        self.once(1)?;
        self.confirmed = 0;
        let began = self.job.begin()?;
        (1..=TIMES).try_for_each(|time| self.once(time))?;
        let spent = self.job.slowest(began)?;
        self.check()?;
        Ok(Outcome { spent, operations: f64::from(TIMES) * f64::from(1u32 << self.problem.keys_log2) })
    }
}

/// Returns `count` keys of the sequence from `first` on: each is the mean of four uniform numbers, scaled.
fn keys(problem: &Problem, first: usize, count: usize) -> Vec<u32> {
    let mut random = Random::after(DRAWN * first as u64);
    let scale = BITS + DRAWN.ilog2() - problem.largest_log2;
    let mut key = || ((0..DRAWN).map(|_| random.next()).sum::<u64>() >> scale) as u32;
    (0..count).map(|_| key()).collect()
}

/// Splits contiguous keys into the pieces for each rank.
fn pieces(memory: &Buf, counts: &[u32]) -> Result<Vec<Buffer>, Fault> {
    let (key, mut at) = (Datatype::from(Basic::Uint32), 0);
    let piece = |count: &u32| {
        let piece = Buffer::of(memory, at, i64::from(*count), &key)?;
        at += *count as usize * KEY;
        Ok(piece)
    };
    counts.iter().map(piece).collect()
}

fn each_key(memory: &Buf, count: usize, mut act: impl FnMut(u32) -> Result<(), Fault>) -> Result<(), Fault> {
    let mut block = [0u32; BLOCK];
    for first in (0..count).step_by(BLOCK) {
        let block = &mut block[..BLOCK.min(count - first)];
        memory.read(first * KEY, bytemuck::cast_slice_mut(block))?;
        block.iter().try_for_each(|key| act(*key))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::tests::alone;
    use super::*;

    /// Goal: the verification detects errors. Method: of 65,536 keys, one between known ones becomes the smallest.
    #[test]
    fn one_other_key_is_found_out() {
        let mut sort = Sort::new(alone(RATE), Class::S).expect("a kernel");
        sort.run().expect("the published ranks");
        sort.run().expect("the same again");
        assert!(sort.keys[1000] > 500 && sort.keys[1000] < 1500, "{}", sort.keys[1000]);
        sort.keys[1000] = 0;
        let wrong = sort.run().map(drop);
        let Err(Fault::Corrupt(why)) = &wrong else { panic!("{wrong:?}") };
        assert!(why.contains("of 50 published ranks") && why.contains("65536 of 65536 keys"), "{why}");
    }
}
