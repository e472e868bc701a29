//! [`Op`]: reductions by a predefined or a user-defined operator (MPI 5.0, section 6.9).

use crate::arithmetic;
use crate::datatype::Element;
use crate::operator::Operator;
use crate::{Basic, BasicKind, Datatype, Error, ErrorKind, Result};
use std::fmt;
use std::sync::Arc;

/// A user-defined operator.
pub trait UserFunction: Send + Sync {
    /// `right` becomes `left op right`, element by element. Both slices hold `count` elements in memory layout: they begin at
    /// `datatype.span(count).start` from the address that a C function gets, and end where the span ends.
    ///
    /// # Errors
    /// The function's.
    fn apply(&self, left: &[u8], right: &mut [u8], count: i64, datatype: &Datatype) -> Result<()>;
}

/// An operator that reduces elements of two buffers into one.
#[derive(Clone)]
pub enum Op {
    /// A predefined operator.
    Predefined(Operator),
    /// A user-defined operator.
    User {
        /// The function.
        function: Arc<dyn UserFunction>,
        /// Whether operands may be swapped.
        commutative: bool,
    },
}

impl From<Operator> for Op {
    fn from(operator: Operator) -> Self {
        Self::Predefined(operator)
    }
}

impl fmt::Debug for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Predefined(operator) => f.write_str(operator.name()),
            Self::User { commutative: true, .. } => f.write_str("a user's commutative operator"),
            Self::User { commutative: false, .. } => f.write_str("a user's operator"),
        }
    }
}

impl Op {
    /// Whether operands may be swapped: true for predefined operators, except the two that select one operand.
    pub fn is_commutative(&self) -> bool {
        match self {
            Self::Predefined(operator) => !operator.selects_operand(),
            Self::User { commutative, .. } => *commutative,
        }
    }

    /// Checks that this reduces elements of a type (see [`Basic::is_reduced_by`]) in an accumulate operation. Call it before any
    /// data move.
    ///
    /// # Errors
    /// Of kind [`Op`](ErrorKind::Op) otherwise.
    pub fn check(&self, datatype: &Datatype) -> Result<()> {
        let Self::Predefined(operator) = self else { return Ok(()) };
        let legal = match datatype.element() {
            Some(Element::Single(basic)) => basic.is_reduced_by(*operator),
            Some(Element::Pair(..)) => operator.reduces(BasicKind::Pair),
            None => false,
        };
        if !legal {
            let text = format!("op: {} does not reduce {datatype:?}", operator.name());
            return Err(Error::new(ErrorKind::Op, text));
        }
        Ok(())
    }

    /// As [`Op::check`], for all other reductions, which exclude the two operators that select one operand (MPI 5.0, section 12.3.4).
    ///
    /// # Errors
    /// Of kind [`Op`](ErrorKind::Op) otherwise.
    pub fn check_reduction(&self, datatype: &Datatype) -> Result<()> {
        match self {
            Self::Predefined(operator) if operator.selects_operand() => {
                let text = format!("op: {} is for accumulating operations on windows alone", operator.name());
                Err(Error::new(ErrorKind::Op, text))
            }
            _ => self.check(datatype),
        }
    }

    /// `right` becomes `left op right`, element by element in order, so that the bits of the result depend only on the operands.
    /// Slices are as for [`UserFunction::apply`], and need no alignment.
    ///
    /// # Errors
    /// As [`Op::check`], and for an illegal count or slices that are too short: before any byte has changed. Otherwise the errors
    /// of a user-defined function.
    pub fn apply(&self, left: &[u8], right: &mut [u8], count: i64, datatype: &Datatype) -> Result<()> {
        self.check(datatype)?;
        let span = datatype.span(count)?;
        let length = (span.end - span.start) as usize;
        if left.len() < length || right.len() < length {
            let (short, text) = (left.len().min(right.len()), "bytes for elements that span");
            return Err(Error::new(ErrorKind::Truncate, format!("inoutbuf: {short} {text} {length}")));
        }
        let (left, right) = (&left[..length], &mut right[..length]);
        match self {
            Self::User { function, .. } => return function.apply(left, right, count, datatype),
            Self::Predefined(Operator::NoOp) => {}
            Self::Predefined(Operator::Replace) => right.copy_from_slice(left),
            Self::Predefined(operator) => match datatype.element() {
                Some(Element::Single(basic)) => arithmetic::reduce(*operator, basic, left, right),
                Some(Element::Pair(value, index)) => {
                    reduce_pairs(*operator, (value, index), datatype.extent() as usize, left, right);
                }
                None => {}
            },
        }
        Ok(())
    }
}

/// Selects the smaller or the greater value with its index; for equal values the smaller index. The last pair may lack its padding.
fn reduce_pairs(
    operator: Operator,
    (value, index): (Basic, Basic),
    extent: usize,
    left: &[u8],
    right: &mut [u8],
) {
    use std::cmp::Ordering;
    let wins = if operator == Operator::Minloc { Ordering::Less } else { Ordering::Greater };
    let at = crate::datatype::index_offset(value, index) as usize;
    let (value_end, index_end) = (value.size() as usize, at + index.size() as usize);
    for (left, right) in left.chunks(extent).zip(right.chunks_mut(extent)) {
        let order = arithmetic::compare(value, &left[..value_end], &right[..value_end]);
        let lesser = || {
            arithmetic::compare(index, &left[at..index_end], &right[at..index_end]) == Some(Ordering::Less)
        };
        if order == Some(wins) || (order == Some(Ordering::Equal) && lesser()) {
            right[..value_end].copy_from_slice(&left[..value_end]);
            right[at..index_end].copy_from_slice(&left[at..index_end]);
        }
    }
}
