//! Accumulate operations, which read, compute and write a member's memory while no other accumulate runs there (MPI 5.0, section
//! 12.3.4). All of them are therefore atomic, for any type and operator, and those of one process take effect in program order.

use datatypes::{Basic, Combiner, Datatype, Op, Operator};
use verbs::{RemoteAddr, SendOp};

use crate::error::{Class, Error, Result};
use crate::memory::Buffer;
use crate::p2p::engine::Started;
use crate::req::request::Request;
use crate::rma::object::Window;
use crate::rma::target::{ElementLocation, Target, TargetRange};
use crate::rma::transfer::CompleteBy;
use crate::status::{PROC_NULL, Status};

impl Window {
    /// Reduces a buffer's elements into a member's memory (`MPI_Accumulate`).
    ///
    /// # Errors
    /// As [`Window::put`]; [`Class::OP`] for a user-defined operator, for one that does not reduce the type, and for `MPI_NO_OP`;
    /// [`Class::TYPE`] for elements of several types, or of another type than the target's.
    pub fn accumulate(&self, origin: &Buffer, at: &TargetRange, op: &Op) -> Result<()> {
        self.accumulate_with(origin, at, op, CompleteBy::Flush)
    }

    /// As [`Window::accumulate`], with a request. Only in lock epochs (MPI 5.0, section 12.3.5).
    ///
    /// # Errors
    /// As [`Window::accumulate`].
    pub fn raccumulate(&self, origin: &Buffer, at: &TargetRange, op: &Op) -> Result<Request> {
        self.accumulate_with(origin, at, op, CompleteBy::Request)?;
        Ok(self.request(Started::Completed(Status::empty())))
    }

    fn accumulate_with(
        &self,
        origin: &Buffer,
        at: &TargetRange,
        op: &Op,
        complete_by: CompleteBy,
    ) -> Result<()> {
        if matches!(op, Op::Predefined(Operator::NoOp)) {
            return Err(Error::new(Class::OP, "MPI_NO_OP only makes sense where something is fetched"));
        }
        if complete_by == CompleteBy::Flush && self.accumulate_mapped(origin, None, at, op).is_some() {
            return Ok(());
        }
        let reduction = TargetUpdate::of(op, origin, at)?;
        let Some(found) = self.prepare_target(origin, at, complete_by)? else { return Ok(()) };
        self.apply_at_target(found, origin.len(), (origin, None), |target_bytes| {
            reduction.apply(origin, target_bytes)
        })
    }

    /// Reduces a buffer's elements into a member's, and returns the former values (`MPI_Get_accumulate`, and `MPI_Fetch_and_op` for
    /// one element). With `MPI_NO_OP` the origin buffer is ignored.
    ///
    /// # Errors
    /// As [`Window::accumulate`]; [`Class::TRUNCATE`] for a result buffer of another size.
    pub fn get_accumulate(&self, origin: &Buffer, result: &Buffer, at: &TargetRange, op: &Op) -> Result<()> {
        self.get_accumulate_with(origin, result, at, op, CompleteBy::Flush)
    }

    /// As [`Window::get_accumulate`], with a request. Only in lock epochs (MPI 5.0, section 12.3.5).
    ///
    /// # Errors
    /// As [`Window::get_accumulate`].
    pub fn rget_accumulate(
        &self,
        origin: &Buffer,
        result: &Buffer,
        at: &TargetRange,
        op: &Op,
    ) -> Result<Request> {
        self.get_accumulate_with(origin, result, at, op, CompleteBy::Request)?;
        Ok(self.request(Started::Completed(Status::empty())))
    }

    fn get_accumulate_with(
        &self,
        origin: &Buffer,
        result: &Buffer,
        at: &TargetRange,
        op: &Op,
        complete_by: CompleteBy,
    ) -> Result<()> {
        if complete_by == CompleteBy::Flush && self.accumulate_mapped(origin, Some(result), at, op).is_some()
        {
            return Ok(());
        }
        let is_read = matches!(op, Op::Predefined(Operator::NoOp));
        let reduction = if is_read { TargetUpdate::None } else { TargetUpdate::of(op, origin, at)? };
        let Some(found) = self.prepare_target(result, at, complete_by)? else { return Ok(()) };
        if !is_read && origin.len() != result.len() {
            let text = format!("the origin has {} bytes, but the result {}", origin.len(), result.len());
            return Err(Error::new(Class::TRUNCATE, text));
        }
        self.apply_at_target(found, result.len(), (origin, Some(result)), |target_bytes| {
            reduction.apply(origin, target_bytes)
        })
    }

    /// Replaces an element of a member's if it equals another one, and returns the former value (`MPI_Compare_and_swap`).
    ///
    /// # Errors
    /// As [`Window::put`], for all three; [`Class::TYPE`] for a type that is no integer, logical, byte or character.
    pub fn compare_and_swap(
        &self,
        origin: &Buffer,
        compare: &Buffer,
        result: &Buffer,
        at: &TargetRange,
    ) -> Result<()> {
        if !at.datatype.basic().is_some_and(is_comparable) {
            let text = format!("{:?} is no integer, logical, byte or character", at.datatype);
            return Err(Error::new(Class::TYPE, text));
        }
        if origin.len() != result.len() || compare.len() != result.len() {
            return Err(Error::new(Class::TRUNCATE, "the three elements have not as many bytes"));
        }
        let Some(found) = self.prepare_target(result, at, CompleteBy::Flush)? else { return Ok(()) };
        self.apply_at_target(found, result.len(), (origin, Some(result)), |target_bytes| {
            with_bytes(compare.len(), |expected| {
                compare.load(expected);
                let is_equal = target_bytes == expected;
                if is_equal {
                    origin.load(target_bytes);
                }
                Ok(is_equal)
            })
        })
    }

    /// Changes elements of a member's memory by those of `origin`, while no other process does. `change` gets `len` bytes in
    /// type-map order, whose former values are stored into `result`, and returns whether it has changed them.
    fn apply_at_target(
        &self,
        (target, elements): (&Target, ElementLocation),
        len: u64,
        (origin, result): (&Buffer, Option<&Buffer>),
        change: impl FnOnce(&mut [u8]) -> Result<bool>,
    ) -> Result<()> {
        let core = self.core();
        let words = &target.access(&self.0.comm)?.words;
        core.host().charge_copy(len);
        let change = |bytes: &mut [u8]| {
            result.iter().for_each(|result| result.store(bytes));
            change(bytes)
        };
        let is_apart = |target: &Buffer| {
            target.contiguous_range().is_some()
                && !target.overlaps(origin)
                && !result.is_some_and(|result| target.overlaps(result) || origin.overlaps(result))
        };
        words.lock_accumulate(core)?;
        let done = match elements {
            // Long contiguous data are changed in place.
            ElementLocation::Mapped(target) if len > FEW as u64 && is_apart(&target) => {
                target.with_bytes_mut(|bytes| change(bytes).map(|_| bytes.len())).map(drop)
            }
            ElementLocation::Mapped(target) => with_bytes(len, |bytes| {
                target.load(bytes);
                if change(bytes)? {
                    target.store(bytes);
                }
                Ok(())
            }),
            ElementLocation::Remote(places) => {
                self.apply_by_rdma((target, &places), len, change, words.orders_after_rdma())
            }
        };
        let ended = words.unlock_accumulate(core)?;
        self.record_pending(target.rank(), ended, CompleteBy::Flush);
        done
    }

    /// Reads a peer's memory, and writes it back if `change` has changed it. Waits for the write unless the accumulate lock
    /// still excludes others until it is done.
    fn apply_by_rdma(
        &self,
        (target, places): (&Target, &[(RemoteAddr, u64)]),
        len: u64,
        change: impl FnOnce(&mut [u8]) -> Result<bool>,
        write_is_ordered: bool,
    ) -> Result<()> {
        let core = self.core();
        let copy = Buffer::from_bytes(&vec![0; len as usize])?;
        let transfer = |op| core.with(|engine| engine.rdma_transfer(target.process, places, &copy, op));
        core.finish("accumulating", transfer(SendOp::Read)?).ok()?;
        let mut bytes = copy.to_vec();
        if !change(&mut bytes)? {
            return Ok(());
        }
        copy.store(&bytes);
        let started = transfer(SendOp::Write)?;
        if write_is_ordered {
            self.record_pending(target.rank(), started, CompleteBy::Flush);
            return Ok(());
        }
        core.finish("accumulating", started).ok().map(drop)
    }
}

/// Bytes of few elements, which need no allocation.
const FEW: usize = 64;

/// Calls `act` with `len` zeroed bytes.
fn with_bytes<T>(len: u64, act: impl FnOnce(&mut [u8]) -> T) -> T {
    match usize::try_from(len).ok().filter(|len| *len <= FEW) {
        Some(len) => act(&mut [0; FEW][..len]),
        None => act(&mut vec![0; len as usize]),
    }
}

/// How elements of the target change.
enum TargetUpdate<'a> {
    /// They stay unchanged.
    None,
    /// They are replaced.
    Replace,
    /// Elements of this type are reduced by the operator.
    By(&'a Op, Datatype),
}

impl<'a> TargetUpdate<'a> {
    /// How an operator changes elements of a member with those of a buffer.
    fn of(op: &'a Op, origin: &Buffer, at: &TargetRange) -> Result<Self> {
        if let Op::User { .. } = op {
            return Err(Error::new(Class::OP, "only predefined operators accumulate"));
        }
        // An operation without data is valid with any type.
        if at.rank == PROC_NULL || (origin.len() == 0 && at.count == 0) {
            return Ok(Self::None);
        }
        let element = element_of(&at.datatype).ok_or_else(|| {
            Error::new(Class::TYPE, format_args!("{:?} has elements of several types", at.datatype))
        })?;
        op.check(&element).map_err(|error| Error::new(Class::OP, error.text))?;
        let is_same = origin.count() == at.count && origin.datatype().is_same_object(&at.datatype);
        let signature = || origin.datatype().signature(origin.count());
        if !is_same && signature() != at.datatype.signature(at.count) {
            return Err(Error::new(Class::TYPE, "the origin's elements have other types than the target's"));
        }
        let replaces = matches!(op, Op::Predefined(Operator::Replace));
        Ok(if replaces { Self::Replace } else { Self::By(op, element) })
    }

    /// Changes the target's bytes, which have the buffer's size. Returns whether it changes them.
    fn apply(&self, origin: &Buffer, target: &mut [u8]) -> Result<bool> {
        match self {
            Self::None => return Ok(false),
            Self::Replace => origin.load(target),
            Self::By(op, element) => {
                let (len, count) = (target.len() as u64, target.len() as i64 / element.size());
                origin.with_bytes(|operand| {
                    if element.single_run(count).is_some_and(|run| run.length == len) {
                        let wrong = |error: datatypes::Error| Error::new(Class::OP, error.text);
                        return op.apply(operand, target, count, element).map_err(wrong);
                    }
                    // Elements with gaps are reduced in their memory layout.
                    let left = Buffer::zeroed(element.clone(), count)?;
                    let right = Buffer::zeroed(element.clone(), count)?;
                    left.store(operand);
                    right.store(target);
                    right.reduce(&left, op)?;
                    right.load(target);
                    Ok(())
                })?;
            }
        }
        Ok(true)
    }
}

/// The type that all elements of a datatype share, predefined or a pair; `None` if they have several.
fn element_of(datatype: &Datatype) -> Option<Datatype> {
    if datatype.basic().is_some() {
        return Some(datatype.clone());
    }
    let mut element = datatype.clone();
    while !matches!(element.combiner(), Combiner::ValueIndex | Combiner::Named)
        && let Ok(contents) = element.contents()
        && let Some(first) = contents.datatypes.first().cloned()
    {
        element = first;
    }
    let count = datatype.size().checked_div(element.size())?;
    (element.signature(count) == datatype.signature(1)).then_some(element)
}

/// Whether elements of a type can be compared by their bytes.
fn is_comparable(basic: Basic) -> bool {
    use datatypes::BasicKind as K;
    let kind = basic.kind();
    // MPI excludes characters (5.0, 12.3.4); other implementations accept them.
    matches!(kind, K::CSigned | K::CUnsigned | K::FInteger | K::Multi | K::Logical | K::Byte | K::Character)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_of_one_type_are_found() {
        let int = Datatype::from(Basic::Int);
        let vector = Datatype::vector(3, 2, 5, &int).expect("a vector");
        let nested = Datatype::hindexed(&[2, 1], &[100, 0], &vector).expect("blocks");
        for datatype in [&int, &vector, &nested, &Datatype::duplicate(&nested)] {
            assert!(element_of(datatype).expect("of one type").is_same_object(&int), "{datatype:?}");
        }
        let mixed =
            Datatype::structure(&[1, 1], &[0, 8], &[int.clone(), Basic::Double.into()]).expect("a struct");
        assert!(element_of(&mixed).is_none());
        let pair = Datatype::from(Basic::DoubleInt);
        let pairs = Datatype::contiguous(4, &pair).expect("pairs");
        assert!(element_of(&pairs).expect("pairs").is_same_object(&pair));
        let empty = Datatype::contiguous(0, &int).expect("nothing");
        assert!(element_of(&empty).is_some());
    }
}
