//! Extensions of the MPI standard that MPICH and Open MPI share and programs use: reductions of `MPI_CHAR`, computed as
//! `MPI_SIGNED_CHAR`, and `MPI_Compare_and_swap` on characters. The first such call of a process prints a warning; with
//! `NICETY_STRICT=1` each one fails. An extension that only one of the two implements is always an error here.

use std::sync::atomic::{AtomicBool, Ordering};

use datatypes::{Basic, BasicKind, Datatype, Op};

use crate::answer::{Answer, Fault};
use crate::constants as c;
use crate::objects::get;
use crate::{state, types};

/// Whether this process has printed its warning.
static WARNED: AtomicBool = AtomicBool::new(false);

/// Whether elements of a type may be reduced without [`check_reduction`].
#[inline]
pub(crate) fn is_allowed(basic: Basic) -> bool {
    basic != Basic::Char || WARNED.load(Ordering::Relaxed)
}

/// Checks that an operator may reduce elements of a type, if the type is `MPI_CHAR`.
pub(crate) fn check_reduction(op: &Op, datatype: types::Datatype) -> Answer {
    let Op::Predefined(operator) = op else { return Ok(()) };
    let is_reduced = !operator.selects_operand() && Basic::Char.is_reduced_by(*operator);
    if !is_reduced || !is_char(datatype) {
        return Ok(());
    }
    let what = format!("{} of MPI_CHAR is that of MPI_SIGNED_CHAR", operator.name());
    warn_or_refuse(c::MPI_ERR_OP, &what, "6.9.2, reduces no text")
}

/// Checks that elements of a type may be compared and swapped, if it is a character type.
pub(crate) fn check_swap(datatype: types::Datatype) -> Answer {
    let basic = u16::try_from(datatype.value()).ok().and_then(Basic::from_abi);
    match basic.filter(|basic| basic.kind() == BasicKind::Character) {
        Some(basic) => {
            let what = format!("MPI_Compare_and_swap of {} compares bytes", basic.name());
            warn_or_refuse(c::MPI_ERR_TYPE, &what, "12.3.4, swaps integers, logicals and bytes alone")
        }
        None => Ok(()),
    }
}

/// Prints the warning, once per process; with `NICETY_STRICT=1`, returns an error instead.
fn warn_or_refuse(class: i32, what: &str, rule: &str) -> Answer {
    if state::state()?.is_strict {
        let text = format!("{what}, but MPI 5.0, section {rule}, and NICETY_STRICT is set");
        return Err(Fault::new(class, text));
    }
    if !WARNED.swap(true, Ordering::Relaxed) {
        state::warn(&format!("{what}, but MPI 5.0, section {rule}; NICETY_STRICT=1 makes it an error"));
    }
    Ok(())
}

/// Whether all elements of a datatype are `MPI_CHAR`. Invalid handles are reported elsewhere.
fn is_char(handle: types::Datatype) -> bool {
    if handle.is_predefined() {
        return handle.value() == c::MPI_CHAR;
    }
    let Ok(object) = get(handle, "datatype") else { return false };
    let signature = object.datatype.signature(1);
    let chars = |elements: u64| Datatype::from(Basic::Char).signature(elements as i64);
    signature.is_some_and(|signature| signature.elements > 0 && chars(signature.elements) == Some(signature))
}
