//! Reductions of `MPI_CHAR`: MPI has none, but MPICH and Open MPI take its elements for those of `MPI_SIGNED_CHAR`, and programs go by
//! them. They are reduced here, too, with a warning; under `NICETY_STRICT=1` they are errors. Other pairs of operator and type that MPI
//! leaves out are errors in one or both of those implementations, and always here.

use std::sync::atomic::{AtomicBool, Ordering};

use datatypes::{Basic, Datatype, Op};

use crate::answer::{Answer, Fault};
use crate::constants as c;
use crate::objects::get;
use crate::{state, types};

/// Whether this process was warned.
static WARNED: AtomicBool = AtomicBool::new(false);

const RULE: &str = "MPI 5.0, section 6.9.2, reduces no text";

/// Whether elements of a type may be reduced without [`check`].
#[inline]
pub(crate) fn allows(basic: Basic) -> bool {
    basic != Basic::Char || WARNED.load(Ordering::Relaxed)
}

/// Checks that an operator may reduce elements of a type, where that is `MPI_CHAR`: warns the first time.
pub(crate) fn check(op: &Op, datatype: types::Datatype) -> Answer {
    let Op::Predefined(operator) = op else { return Ok(()) };
    let is_reduced = !operator.takes_a_side() && Basic::Char.is_reduced_by(*operator);
    if !is_reduced || !is_char(datatype) {
        return Ok(());
    }
    if state::state()?.is_strict {
        let text =
            format!("op: {} does not reduce MPI_CHAR: {RULE}, and NICETY_STRICT is set", operator.name());
        return Err(Fault::new(c::MPI_ERR_OP, text));
    }
    if !WARNED.swap(true, Ordering::Relaxed) {
        state::warn(&format!(
            "{} of MPI_CHAR is computed as of MPI_SIGNED_CHAR; {RULE}; NICETY_STRICT=1 makes it an error",
            operator.name()
        ));
    }
    Ok(())
}

/// Whether all elements of a datatype are of `MPI_CHAR`. What is no datatype is found elsewhere.
fn is_char(handle: types::Datatype) -> bool {
    if handle.is_predefined() {
        return handle.value() == c::MPI_CHAR;
    }
    let Ok(object) = get(handle, "datatype") else { return false };
    let signature = object.datatype.signature(1);
    let chars = |elements: u64| Datatype::from(Basic::Char).signature(elements as i64);
    signature.is_some_and(|signature| signature.elements > 0 && chars(signature.elements) == Some(signature))
}
