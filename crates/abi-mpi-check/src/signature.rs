//! [`Signature`]: the sequence of basic types of a buffer, and whether what was sent may be received into another (MPI 5.0, section
//! 3.3.1).
//!
//! Without `strict`, types that differ in name only match, as `MPI_INT` and `MPI_INT32_T` do, and MPI_BYTE matches everything: many
//! programs rely on that.

use crate::library::{self, COMBINER_NAMED, COMBINER_STRUCT, PREDEFINED_MAX, SUCCESS};
use crate::memory::Memory;

/// The most runs of an element that are compared; longer ones match everything.
pub(crate) const RUNS_MAX: usize = 24;
/// How deep datatypes may be nested, and the most parts of one.
const DEPTH_MAX: u32 = 32;
const PARTS_MAX: usize = 4096;
/// Steps of a comparison.
const STEPS_MAX: u32 = 100_000;

const PACKED: usize = 0x207;

/// Equal basic types behind each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    /// The handle of the type.
    pub(crate) basic: u32,
    /// Its size in bytes.
    pub(crate) size: u32,
    pub(crate) count: u64,
}

/// The types of a buffer: those of an element, and how often it is repeated.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Signature {
    pub(crate) runs: Vec<Run>,
    pub(crate) count: u64,
}

/// Where two signatures differ.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Mismatch {
    /// How many basic elements match.
    pub(crate) at: u64,
    pub(crate) sent: &'static str,
    pub(crate) received: &'static str,
}

/// What a basic type represents.
#[derive(PartialEq, Eq)]
enum Class {
    Bytes,
    Integer,
    Real,
    Complex,
    Logical,
    /// Equal to itself only.
    Other,
}

impl Class {
    fn of(basic: usize) -> Self {
        let name = library::name(basic).trim_start_matches("MPI_");
        let has = |words: &[&str]| words.iter().any(|word| name.contains(word));
        match name {
            "BYTE" | "PACKED" => Self::Bytes,
            "FLOAT_INT" | "DOUBLE_INT" | "LONG_INT" | "SHORT_INT" | "LONG_DOUBLE_INT" => Self::Other,
            _ if name.starts_with('2') => Self::Other,
            _ if has(&["COMPLEX"]) => Self::Complex,
            _ if has(&["FLOAT", "DOUBLE", "REAL"]) => Self::Real,
            _ if has(&["LOGICAL", "BOOL"]) => Self::Logical,
            _ if has(&["INT", "LONG", "SHORT", "CHAR", "UNSIGNED", "AINT", "OFFSET", "COUNT"]) => {
                Self::Integer
            }
            _ => Self::Other,
        }
    }
}

impl Signature {
    /// The signature of a buffer; `None` if it is not known or too long.
    pub(crate) fn of(memory: &Memory) -> Option<Self> {
        let mut runs = Vec::new();
        if memory.count == 0 {
            return Some(Self::default());
        }
        memory.is_valid().then_some(())?;
        add(memory.datatype, 1, DEPTH_MAX, &mut runs)?;
        Some(Self { runs, count: u64::try_from(memory.count).ok()? })
    }

    /// Where a message of this signature does not match a receive; `None` if it does. A receive may be longer.
    pub(crate) fn mismatch(&self, received: &Self, is_strict: bool) -> Option<Mismatch> {
        let (mut from, mut to, mut at) = (Cursor::new(self), Cursor::new(received), 0);
        for _ in 0..STEPS_MAX {
            let (Some((sent, from_bytes)), Some((wanted, to_bytes))) = (from.run(), to.run()) else {
                return None;
            };
            if !matches(sent, wanted, is_strict) {
                let [sent, received] = [sent, wanted].map(|run| library::name(run.basic as usize));
                return Some(Mismatch { at, sent, received });
            }
            // Runs of one type match as a whole, repeated or not.
            if self.runs.len() == 1 && received.runs.len() == 1 {
                return None;
            }
            let bytes = from_bytes.min(to_bytes);
            at += bytes / u64::from(sent.size).max(1);
            from.skip(bytes);
            to.skip(bytes);
        }
        None
    }
}

/// Whether elements of a run may be received as those of another.
fn matches(sent: Run, wanted: Run, is_strict: bool) -> bool {
    let is_packed = [sent, wanted].iter().any(|run| run.basic as usize == PACKED);
    if sent.basic == wanted.basic || is_packed {
        return true;
    }
    let (one, other) = (Class::of(sent.basic as usize), Class::of(wanted.basic as usize));
    !is_strict
        && (one == Class::Bytes
            || other == Class::Bytes
            || (one == other && one != Class::Other && sent.size == wanted.size))
}

/// A place in a signature.
struct Cursor<'a> {
    signature: &'a Signature,
    /// Elements that are left, with the current one.
    elements: u64,
    run: usize,
    /// Bytes of the run that were passed.
    passed: u64,
}

impl<'a> Cursor<'a> {
    fn new(signature: &'a Signature) -> Self {
        Self { signature, elements: signature.count, run: 0, passed: 0 }
    }

    /// The current run, and how many bytes of it are left; `None` at the end.
    fn run(&self) -> Option<(Run, u64)> {
        let run = *self.signature.runs.get(self.run).filter(|_| self.elements != 0)?;
        Some((run, run.count.saturating_mul(run.size.into()) - self.passed))
    }

    fn skip(&mut self, bytes: u64) {
        self.passed += bytes;
        if self.run().is_some_and(|(_, left)| left == 0) {
            (self.run, self.passed) = (self.run + 1, 0);
            if self.run == self.signature.runs.len() {
                (self.run, self.elements) = (0, self.elements - 1);
            }
        }
    }
}

/// Appends the runs of `times` elements of a datatype; `None` if there are too many, or it is not known.
fn add(datatype: usize, times: u64, depth: u32, runs: &mut Vec<Run>) -> Option<()> {
    let mut size = 0;
    if depth == 0 || library::type_size(datatype, &mut size) != SUCCESS {
        return None;
    }
    // A datatype without data has no elements.
    if times == 0 || size == 0 {
        return Some(());
    }
    if datatype < PREDEFINED_MAX {
        let run = Run { basic: datatype as u32, size: u32::try_from(size).ok()?, count: times };
        let is_full = runs.len() == RUNS_MAX;
        match runs.last_mut() {
            Some(last) if last.basic == run.basic => last.count = last.count.saturating_add(times),
            _ if is_full => return None,
            _ => runs.push(run),
        }
        return Some(());
    }
    let parts = Parts::of(datatype)?;
    let mut one = Vec::new();
    for (part, count) in &parts.types {
        add(*part, *count, depth - 1, &mut one)?;
    }
    match one[..] {
        [run] => add(run.basic as usize, run.count.saturating_mul(times), depth - 1, runs)?,
        _ => {
            // A sequence is repeated only at the outermost level, by the count of the buffer.
            for _ in 0..times.min(RUNS_MAX as u64 + 1) {
                for run in &one {
                    add(run.basic as usize, run.count, depth - 1, runs)?;
                }
            }
        }
    }
    Some(())
}

/// The parts of a datatype, each with its number of elements. Their handles are freed at the end.
struct Parts {
    types: Vec<(usize, u64)>,
}

impl Parts {
    fn of(datatype: usize) -> Option<Self> {
        let (mut counts, mut combiner) = ([0; 4], 0);
        let [integers, addresses, large, types] = &mut counts;
        let code = library::type_get_envelope(datatype, integers, addresses, large, types, &mut combiner);
        let is_short = counts.iter().all(|count| (0..PARTS_MAX as i64).contains(count));
        if code != SUCCESS || combiner == COMBINER_NAMED || !is_short || counts[3] == 0 {
            return None;
        }
        let length = |at: usize| counts[at] as usize;
        let (mut integers, mut addresses) = (vec![0_i32; length(0)], vec![0_usize; length(1)]);
        let (mut large, mut parts) = (vec![0_i64; length(2)], vec![0_usize; length(3)]);
        let code = library::type_get_contents(
            datatype,
            counts[0],
            counts[1],
            counts[2],
            counts[3],
            integers.as_mut_ptr().expose_provenance(),
            addresses.as_mut_ptr().expose_provenance(),
            large.as_mut_ptr().expose_provenance(),
            parts.as_mut_ptr().expose_provenance(),
        );
        if code != SUCCESS {
            return None;
        }
        // From here on, the parts are freed in any case.
        let mut parts = Self { types: parts.into_iter().map(|part| (part, 0)).collect() };
        if combiner == COMBINER_STRUCT {
            // A count, and the length of each block (MPI 5.0, section 5.1.13), in integers or in large counts.
            let lengths: Vec<i64> = if large.is_empty() {
                integers.iter().skip(1).map(|length| (*length).into()).collect()
            } else {
                large.iter().skip(1).copied().collect()
            };
            for (part, length) in parts.types.iter_mut().zip(lengths) {
                part.1 = u64::try_from(length).ok()?;
            }
        } else {
            // All others have elements of one type.
            let (mut whole, mut one) = (0, 0);
            let part = parts.types[0].0;
            let is_known = library::type_size(datatype, &mut whole) == SUCCESS
                && library::type_size(part, &mut one) == SUCCESS
                && one > 0;
            parts.types[0].1 = if is_known { u64::try_from(whole / one).ok()? } else { 0 };
        }
        Some(parts)
    }
}

impl Drop for Parts {
    fn drop(&mut self) {
        for (part, _) in &mut self.types {
            if *part >= PREDEFINED_MAX {
                library::type_free(part);
            }
        }
    }
}

/// The class and size of a buffer's only basic type, as a word to compare; 0 if it has several, or is of bytes.
pub(crate) fn basic(datatype: usize) -> u64 {
    if !library::is_predefined_datatype(datatype) {
        return 0;
    }
    let mut size = 0;
    library::type_size(datatype, &mut size);
    let class = match Class::of(datatype) {
        Class::Bytes => return 0,
        Class::Integer => 1,
        Class::Real => 2,
        Class::Complex => 3,
        Class::Logical => 4,
        Class::Other => 0x1000 + datatype as u64,
    };
    class << 32 | size as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::library::BYTE;

    const INT: u32 = 0x209;
    const INT32: u32 = 0x250;
    const DOUBLE: u32 = 0x214;
    const LONG: u32 = 0x20a;

    fn signature(runs: &[(u32, u32, u64)], count: u64) -> Signature {
        let run = |&(basic, size, count): &(u32, u32, u64)| Run { basic, size, count };
        Signature { runs: runs.iter().map(run).collect(), count }
    }

    #[test]
    fn sequences_match_by_their_basic_types() {
        let ints = signature(&[(INT, 4, 3)], 2);
        let both = signature(&[(INT, 4, 1), (DOUBLE, 8, 1)], 2);
        let apart = signature(&[(INT, 4, 1), (DOUBLE, 8, 1), (INT, 4, 1), (DOUBLE, 8, 1)], 1);
        assert_eq!(ints.mismatch(&signature(&[(INT, 4, 6)], 1), true), None);
        assert_eq!(ints.mismatch(&signature(&[(INT, 4, 1)], 100), true), None, "a longer receive");
        assert_eq!(both.mismatch(&apart, true), None);
        let wrong = ints.mismatch(&both, false).expect("a double is no int");
        assert_eq!((wrong.at, wrong.sent, wrong.received), (1, "MPI_INT", "MPI_DOUBLE"));
        assert!(ints.mismatch(&signature(&[(LONG, 8, 6)], 1), false).is_some(), "another size");
    }

    #[test]
    fn names_matter_only_if_strict() {
        let ints = signature(&[(INT, 4, 2)], 1);
        for other in [signature(&[(INT32, 4, 2)], 1), signature(&[(BYTE as u32, 1, 8)], 1)] {
            assert_eq!(ints.mismatch(&other, false), None);
            assert!(ints.mismatch(&other, true).is_some());
        }
        assert_eq!(ints.mismatch(&signature(&[(PACKED as u32, 1, 8)], 1), true), None);
        let mixed = signature(&[(INT, 4, 2), (DOUBLE, 8, 1)], 1);
        assert_eq!(mixed.mismatch(&signature(&[(BYTE as u32, 1, 16)], 1), false), None);
    }
}
