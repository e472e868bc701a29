//! Operators of reductions, and `MPI_Reduce_local` (MPI 5.0, section 6.9).

use std::sync::Arc;

use datatypes::Op;
use ffi::Out;

use crate::answer::{Answer, Fault};
use crate::callback;
use crate::constants as c;
use crate::kinds::OpObject;
use crate::memory::{ArgumentNames, copy_span, copy_to, elements};
use crate::objects::{get, insert, remove};
use crate::strict;
use crate::types::{self, Address, Handle, Number, kind};

fn create(function: Address, commute: i32, is_large: bool, op: Out<types::Op>) -> Answer {
    if function == Address(0) {
        return Err(Fault::new(c::MPI_ERR_ARG, "user_fn: it is NULL"));
    }
    let function = Arc::new(callback::Operator { function, is_large });
    op.set(insert::<kind::Op>(OpObject(Op::User { function, commutative: commute != 0 }))?);
    Ok(())
}

/// MPI 5.0, section 6.9.5.
pub(crate) fn op_create(function: Address, commute: i32, op: Out<types::Op>) -> Answer {
    create(function, commute, false, op)
}

/// MPI 5.0, section 6.9.5.
pub(crate) fn op_create_c(function: Address, commute: i32, op: Out<types::Op>) -> Answer {
    create(function, commute, true, op)
}

/// MPI 5.0, section 6.9.5.
pub(crate) fn op_free(op: Out<types::Op>) -> Answer {
    let handle = op.get().unwrap_or(Handle::new(c::MPI_OP_NULL));
    get(handle, "op")?;
    if !remove(handle) {
        return Err(Fault::new(c::MPI_ERR_OP, "op: a predefined operator cannot be freed"));
    }
    op.set(Handle::new(c::MPI_OP_NULL));
    Ok(())
}

/// MPI 5.0, section 6.9.7.
pub(crate) fn op_commutative(op: types::Op, commute: Out<i32>) -> Answer {
    commute.set(get(op, "op")?.0.is_commutative().into());
    Ok(())
}

const INPUT: ArgumentNames = ArgumentNames { address: "inbuf", count: "count", datatype: "datatype" };
const INOUT: ArgumentNames = ArgumentNames { address: "inoutbuf", ..INPUT };

/// MPI 5.0, section 6.9.7.
pub(crate) fn reduce_local<N: Number>(
    inbuf: Address,
    inoutbuf: Address,
    count: N,
    handle: types::Datatype,
    op: types::Op,
) -> Answer {
    let (op, count) = (get(op, "op")?, count.to_i64());
    let (datatype, _) = elements(INPUT, inbuf, count, handle)?;
    elements(INOUT, inoutbuf, count, handle)?;
    if count == 0 || datatype.size() == 0 {
        return Ok(());
    }
    if inbuf == inoutbuf {
        return Err(Fault::new(c::MPI_ERR_BUFFER, "inbuf and inoutbuf are the same memory"));
    }
    op.0.check_reduction(&datatype)?;
    strict::check_reduction(&op.0, handle)?;
    let (_, left) = copy_span(inbuf, &datatype, count)?;
    let (place, mut right) = copy_span(inoutbuf, &datatype, count)?;
    op.0.apply(&left, &mut right, count, &datatype)?;
    copy_to(place, &right);
    Ok(())
}
