//! Operations on windows, and their synchronisation (MPI 5.0, sections 12.3 and 12.5).

use datatypes::{Datatype, Op, Operator};
use ffi::Out;
use mpi::{Assert, Buffer, IntegerOp, LockKind, Piece, TargetRange};

use crate::answer::{Answer, Fault};
use crate::calls::p2p::request::new_request;
use crate::constants as c;
use crate::kinds::WinObject;
use crate::memory::{ArgumentNames, bytes_at, datatype_of, named_buffer, piece};
use crate::objects::{self, try_with};
use crate::strict;
use crate::types::{self, Address, Number, Win};

const ORIGIN: ArgumentNames =
    ArgumentNames { address: "origin_addr", count: "origin_count", datatype: "origin_datatype" };
const RESULT: ArgumentNames =
    ArgumentNames { address: "result_addr", count: "result_count", datatype: "result_datatype" };
/// Argument names of `MPI_Compare_and_swap`, whose count is always 1.
const COMPARED: ArgumentNames =
    ArgumentNames { address: "compare_addr", count: "count", datatype: "datatype" };

fn target_range<N: Number>(
    rank: i32,
    displacement: i64,
    count: N,
    handle: types::Datatype,
) -> Answer<TargetRange> {
    let datatype = datatype_of("target_datatype", count.to_i64(), handle)?;
    if count.to_i64() < 0 {
        return Err(Fault::new(c::MPI_ERR_COUNT, format!("target_count: {} is negative", count.to_i64())));
    }
    Ok(TargetRange { rank, displacement, count: count.to_i64(), datatype })
}

/// An operator, checked for accumulating elements of a datatype, and whether it reads the origin buffer.
fn operator(op: types::Op, datatype: types::Datatype) -> Answer<(Op, bool)> {
    let op = objects::get(op, "op")?.0.clone();
    strict::check_reduction(&op, datatype)?;
    let looks = !matches!(op, Op::Predefined(Operator::NoOp));
    Ok((op, looks))
}

/// Whether `count` elements have the length of a piece.
#[inline(always)]
fn has_as_many<N: Number>(piece: Piece, count: N, handle: types::Datatype) -> bool {
    Datatype::predefined_contiguous_size(handle.value()).checked_mul(count.to_i64())
        == i64::try_from(piece.len()).ok()
}

/// The first handles of predefined datatypes and of predefined operators.
const DATATYPES: usize = 0x200;
const OPS: usize = 0x20;

/// The size of predefined integer types of 8 or 4 bytes, by handle; 0 for all other types.
static INTEGERS: [u8; 256] = {
    let mut bytes = [0; 256];
    let words = [
        c::MPI_LONG,
        c::MPI_UNSIGNED_LONG,
        c::MPI_LONG_LONG,
        c::MPI_UNSIGNED_LONG_LONG,
        c::MPI_INT64_T,
        c::MPI_UINT64_T,
        c::MPI_AINT,
        c::MPI_COUNT,
        c::MPI_OFFSET,
    ];
    let halves = [c::MPI_INT, c::MPI_UNSIGNED, c::MPI_INT32_T, c::MPI_UINT32_T];
    let mut at = 0;
    while at < words.len() {
        bytes[words[at] - DATATYPES] = 8;
        at += 1;
    }
    at = 0;
    while at < halves.len() {
        bytes[halves[at] - DATATYPES] = 4;
        at += 1;
    }
    bytes
};

/// The atomic change of a predefined operator, by handle; `None` for operators without one.
static INTEGER_OPS: [Option<IntegerOp>; 32] = {
    let mut changes = [None; 32];
    changes[c::MPI_SUM - OPS] = Some(IntegerOp::Add);
    changes[c::MPI_REPLACE - OPS] = Some(IntegerOp::Replace);
    changes[c::MPI_NO_OP - OPS] = Some(IntegerOp::None);
    changes[c::MPI_BAND - OPS] = Some(IntegerOp::And);
    changes[c::MPI_BOR - OPS] = Some(IntegerOp::Or);
    changes[c::MPI_BXOR - OPS] = Some(IntegerOp::Xor);
    changes
};

/// The size of a datatype's integers, if the fast path supports it; `None` for other types.
#[inline(always)]
fn integer_size(datatype: types::Datatype) -> Option<usize> {
    let bytes = INTEGERS.get(datatype.value().wrapping_sub(DATATYPES)).copied().unwrap_or(0);
    (bytes > 0).then_some(bytes.into())
}

/// [`try_integer_op_inline`] out of line, for callers that are less sensitive to latency.
#[inline(never)]
fn try_integer_op(
    pieces: (Address, Option<Address>),
    datatype: types::Datatype,
    place: (i32, i64),
    op: types::Op,
    win: Win,
) -> bool {
    try_integer_op_inline::<false>(pieces, datatype, place, op, win)
}

/// The fast path for one integer: changes it at the target, and fetches the old value if there is a result address. Returns whether
/// that was done. The compiler inlines each of the two forms into its only caller.
#[inline(always)]
fn try_integer_op_inline<const IS_FETCH: bool>(
    (origin, result): (Address, Option<Address>),
    datatype: types::Datatype,
    (rank, displacement): (i32, i64),
    op: types::Op,
    win: Win,
) -> bool {
    let Some(bytes) = integer_size(datatype) else { return false };
    let Some(change) = INTEGER_OPS.get(op.value().wrapping_sub(OPS)).copied().flatten() else { return false };
    let from = bytes_at(origin, bytes);
    let into = result.and_then(|result| bytes_at(result, bytes));
    // Without a result, `MPI_NO_OP` is an error; with one, the origin may be missing.
    let is_complete = if change == IntegerOp::None { into.is_some() } else { from.is_some() };
    if !is_complete || into.is_some() != result.is_some() {
        return false;
    }
    let from = if change == IntegerOp::None { None } else { from };
    let act = |win: &WinObject| win.window.try_integer_op(change, (from, into), bytes, rank, displacement);
    try_with(win, act) == Some(true)
}

/// The fast path for arrays: reduces elements at the target, and fetches the old values if there is a result buffer. Returns
/// whether that was done. All buffers have the same length and datatype; `MPI_NO_OP` does not read the origin.
#[inline(never)]
fn try_accumulate(
    (origin, result): (Option<Piece>, Option<Piece>),
    datatype: types::Datatype,
    (rank, displacement): (i32, i64),
    op: types::Op,
    win: Win,
) -> bool {
    let operator = if op.is_predefined() { Operator::from_abi(op.value() as u16) } else { None };
    let (Some(operator), Some(basic)) = (operator, Datatype::predefined_basic(datatype.value())) else {
        return false;
    };
    if !operator.selects_operand() && !strict::is_allowed(basic) {
        return false;
    }
    let origin = if operator == Operator::NoOp { None } else { origin };
    if operator != Operator::NoOp && origin.is_none() {
        return false;
    }
    let pieces = (origin, result);
    let act = |win: &WinObject| win.window.try_accumulate((operator, basic), pieces, rank, displacement);
    try_with(win, act) == Some(true)
}

/// Runs the slow path out of line, so that the fast path reserves no stack for it.
#[cold]
#[inline(never)]
fn run_slow_path(act: impl FnOnce() -> Answer) -> Answer {
    act()
}

/// Put (MPI 5.0, section 12.3.1) and get (section 12.3.2), and their forms with a request (section 12.3.5).
macro_rules! transfers {
    ($($name:ident, $requested:ident, $fast:ident;)*) => {
        $(
            #[allow(clippy::too_many_arguments)] // as many as the standard has
            #[inline(always)]
            pub(crate) fn $name<N: Number>(
                origin_addr: Address,
                origin_count: N,
                origin_datatype: types::Datatype,
                target_rank: i32,
                target_disp: i64,
                target_count: N,
                target_datatype: types::Datatype,
                win: Win,
            ) -> Answer {
                let is_alike = |piece: Piece| {
                    (target_datatype == origin_datatype && target_count.to_i64() == origin_count.to_i64())
                        || has_as_many(piece, target_count, target_datatype)
                };
                if let Some(piece) = piece(origin_addr, origin_count, origin_datatype)
                    && is_alike(piece)
                    && try_with(win, |win| win.window.$fast(piece, target_rank, target_disp)) == Some(true)
                {
                    return Ok(());
                }
                run_slow_path(move || {
                    let win = objects::get(win, "win")?;
                    let origin = named_buffer(ORIGIN, origin_addr, origin_count, origin_datatype)?;
                    let target = target_range(target_rank, target_disp, target_count, target_datatype)?;
                    Ok(win.window.$name(&origin, &target)?)
                })
            }

            #[allow(clippy::too_many_arguments)] // as many as the standard has
            pub(crate) fn $requested<N: Number>(
                origin_addr: Address,
                origin_count: N,
                origin_datatype: types::Datatype,
                target_rank: i32,
                target_disp: i64,
                target_count: N,
                target_datatype: types::Datatype,
                win: Win,
                request: Out<types::Request>,
            ) -> Answer {
                let win = objects::get(win, "win")?;
                let origin = named_buffer(ORIGIN, origin_addr, origin_count, origin_datatype)?;
                let target = target_range(target_rank, target_disp, target_count, target_datatype)?;
                new_request(win.window.$requested(&origin, &target)?, request)
            }
        )*
    };
}

transfers! {
    put, rput, try_put;
    get, rget, try_get;
}

/// MPI 5.0, section 12.3.4.
#[allow(clippy::too_many_arguments)] // as many as the standard has
#[inline(always)]
pub(crate) fn accumulate<N: Number>(
    origin_addr: Address,
    origin_count: N,
    origin_datatype: types::Datatype,
    target_rank: i32,
    target_disp: i64,
    target_count: N,
    target_datatype: types::Datatype,
    op: types::Op,
    win: Win,
) -> Answer {
    let place = (target_rank, target_disp);
    if origin_count.to_i64() == target_count.to_i64() && origin_datatype == target_datatype {
        let is_done = if origin_count.to_i64() == 1 && integer_size(origin_datatype).is_some() {
            try_integer_op_inline::<false>((origin_addr, None), origin_datatype, place, op, win)
        } else {
            let origin = piece(origin_addr, origin_count, origin_datatype);
            try_accumulate((origin, None), origin_datatype, place, op, win)
        };
        if is_done {
            return Ok(());
        }
    }
    run_slow_path(move || {
        let (win, (op, _)) = (objects::get(win, "win")?, operator(op, target_datatype)?);
        let origin = named_buffer(ORIGIN, origin_addr, origin_count, origin_datatype)?;
        let target = target_range(target_rank, target_disp, target_count, target_datatype)?;
        Ok(win.window.accumulate(&origin, &target, &op)?)
    })
}

/// MPI 5.0, section 12.3.5.
#[allow(clippy::too_many_arguments)] // as many as the standard has
pub(crate) fn raccumulate<N: Number>(
    origin_addr: Address,
    origin_count: N,
    origin_datatype: types::Datatype,
    target_rank: i32,
    target_disp: i64,
    target_count: N,
    target_datatype: types::Datatype,
    op: types::Op,
    win: Win,
    request: Out<types::Request>,
) -> Answer {
    let (win, (op, _)) = (objects::get(win, "win")?, operator(op, target_datatype)?);
    let origin = named_buffer(ORIGIN, origin_addr, origin_count, origin_datatype)?;
    let target = target_range(target_rank, target_disp, target_count, target_datatype)?;
    new_request(win.window.raccumulate(&origin, &target, &op)?, request)
}

/// The origin buffer, or an empty one if the operator does not read it.
fn origin_of<N: Number>(looks: bool, address: Address, count: N, handle: types::Datatype) -> Answer<Buffer> {
    if looks { named_buffer(ORIGIN, address, count, handle) } else { Ok(Buffer::empty()) }
}

/// MPI 5.0, section 12.3.4.
#[allow(clippy::too_many_arguments)] // as many as the standard has
#[inline(always)]
pub(crate) fn get_accumulate<N: Number>(
    origin_addr: Address,
    origin_count: N,
    origin_datatype: types::Datatype,
    result_addr: Address,
    result_count: N,
    result_datatype: types::Datatype,
    target_rank: i32,
    target_disp: i64,
    target_count: N,
    target_datatype: types::Datatype,
    op: types::Op,
    win: Win,
) -> Answer {
    let is_as_result = result_count.to_i64() == target_count.to_i64() && result_datatype == target_datatype;
    let is_alike = origin_count.to_i64() == target_count.to_i64() && origin_datatype == target_datatype;
    let place = (target_rank, target_disp);
    if is_as_result && is_alike {
        let is_done = if target_count.to_i64() == 1 && integer_size(target_datatype).is_some() {
            try_integer_op((origin_addr, Some(result_addr)), target_datatype, place, op, win)
        } else {
            let result = piece(result_addr, result_count, result_datatype);
            let origin = piece(origin_addr, origin_count, origin_datatype);
            result.is_some() && try_accumulate((origin, result), target_datatype, place, op, win)
        };
        if is_done {
            return Ok(());
        }
    }
    run_slow_path(move || {
        let (win, (op, looks)) = (objects::get(win, "win")?, operator(op, target_datatype)?);
        let origin = origin_of(looks, origin_addr, origin_count, origin_datatype)?;
        let result = named_buffer(RESULT, result_addr, result_count, result_datatype)?;
        let target = target_range(target_rank, target_disp, target_count, target_datatype)?;
        Ok(win.window.get_accumulate(&origin, &result, &target, &op)?)
    })
}

/// MPI 5.0, section 12.3.5.
#[allow(clippy::too_many_arguments)] // as many as the standard has
pub(crate) fn rget_accumulate<N: Number>(
    origin_addr: Address,
    origin_count: N,
    origin_datatype: types::Datatype,
    result_addr: Address,
    result_count: N,
    result_datatype: types::Datatype,
    target_rank: i32,
    target_disp: i64,
    target_count: N,
    target_datatype: types::Datatype,
    op: types::Op,
    win: Win,
    request: Out<types::Request>,
) -> Answer {
    let (win, (op, looks)) = (objects::get(win, "win")?, operator(op, target_datatype)?);
    let origin = origin_of(looks, origin_addr, origin_count, origin_datatype)?;
    let result = named_buffer(RESULT, result_addr, result_count, result_datatype)?;
    let target = target_range(target_rank, target_disp, target_count, target_datatype)?;
    new_request(win.window.rget_accumulate(&origin, &result, &target, &op)?, request)
}

/// MPI 5.0, section 12.3.4.
#[inline(always)]
pub(crate) fn fetch_and_op(
    origin_addr: Address,
    result_addr: Address,
    datatype: types::Datatype,
    target_rank: i32,
    target_disp: i64,
    op: types::Op,
    win: Win,
) -> Answer {
    let pieces = (origin_addr, Some(result_addr));
    if try_integer_op_inline::<true>(pieces, datatype, (target_rank, target_disp), op, win) {
        return Ok(());
    }
    run_slow_path(move || {
        let (win, (op, looks)) = (objects::get(win, "win")?, operator(op, datatype)?);
        let origin = origin_of(looks, origin_addr, 1, datatype)?;
        let result = named_buffer(RESULT, result_addr, 1, datatype)?;
        Ok(win.window.get_accumulate(
            &origin,
            &result,
            &target_range(target_rank, target_disp, 1, datatype)?,
            &op,
        )?)
    })
}

/// MPI 5.0, section 12.3.4.
#[inline(always)]
pub(crate) fn compare_and_swap(
    origin_addr: Address,
    compare_addr: Address,
    result_addr: Address,
    datatype: types::Datatype,
    target_rank: i32,
    target_disp: i64,
    win: Win,
) -> Answer {
    if let Some(bytes) = integer_size(datatype)
        && let Some(origin) = bytes_at(origin_addr, bytes)
        && let Some(compare) = bytes_at(compare_addr, bytes)
        && let Some(result) = bytes_at(result_addr, bytes)
    {
        let pieces = (origin, compare, result);
        let swap = |win: &WinObject| win.window.try_compare_and_swap(pieces, target_rank, target_disp);
        if try_with(win, swap) == Some(true) {
            return Ok(());
        }
    }
    run_slow_path(move || {
        let win = objects::get(win, "win")?;
        strict::check_swap(datatype)?;
        let origin = named_buffer(ORIGIN, origin_addr, 1, datatype)?;
        let compare = named_buffer(COMPARED, compare_addr, 1, datatype)?;
        let result = named_buffer(RESULT, result_addr, 1, datatype)?;
        let target = target_range(target_rank, target_disp, 1, datatype)?;
        Ok(win.window.compare_and_swap(&origin, &compare, &result, &target)?)
    })
}

/// MPI 5.0, section 12.5.1.
pub(crate) fn win_fence(assert: i32, win: Win) -> Answer {
    let win = objects::get(win, "win")?;
    let known = [Assert::NOSTORE, Assert::NOPUT, Assert::NOPRECEDE, Assert::NOSUCCEED];
    Ok(win.window.fence(Assert::new(assert, &known)?)?)
}

/// MPI 5.0, section 12.5.2.
pub(crate) fn win_post(group: types::Group, assert: i32, win: Win) -> Answer {
    let (win, group) = (objects::get(win, "win")?, objects::get(group, "group")?);
    let known = [Assert::NOCHECK, Assert::NOSTORE, Assert::NOPUT];
    Ok(win.window.post(&group, Assert::new(assert, &known)?)?)
}

/// MPI 5.0, section 12.5.2.
pub(crate) fn win_start(group: types::Group, assert: i32, win: Win) -> Answer {
    let (win, group) = (objects::get(win, "win")?, objects::get(group, "group")?);
    Ok(win.window.start(&group, Assert::new(assert, &[Assert::NOCHECK])?)?)
}

/// MPI 5.0, section 12.5.2.
pub(crate) fn win_complete(win: Win) -> Answer {
    Ok(objects::get(win, "win")?.window.complete()?)
}

/// MPI 5.0, section 12.5.2.
pub(crate) fn win_wait(win: Win) -> Answer {
    Ok(objects::get(win, "win")?.window.wait()?)
}

/// MPI 5.0, section 12.5.2.
pub(crate) fn win_test(win: Win, flag: Out<i32>) -> Answer {
    flag.set(objects::get(win, "win")?.window.test()?.into());
    Ok(())
}

/// MPI 5.0, section 12.5.3.
pub(crate) fn win_lock(lock_type: i32, rank: i32, assert: i32, win: Win) -> Answer {
    let win = objects::get(win, "win")?;
    let kind = match lock_type {
        c::MPI_LOCK_EXCLUSIVE => LockKind::Exclusive,
        c::MPI_LOCK_SHARED => LockKind::Shared,
        other => return Err(Fault::new(c::MPI_ERR_LOCKTYPE, format!("lock_type: there is no {other}"))),
    };
    Ok(win.window.lock(kind, rank, Assert::new(assert, &[Assert::NOCHECK])?)?)
}

/// MPI 5.0, section 12.5.3.
pub(crate) fn win_unlock(rank: i32, win: Win) -> Answer {
    Ok(objects::get(win, "win")?.window.unlock(rank)?)
}

/// MPI 5.0, section 12.5.3.
pub(crate) fn win_lock_all(assert: i32, win: Win) -> Answer {
    let win = objects::get(win, "win")?;
    Ok(win.window.lock_all(Assert::new(assert, &[Assert::NOCHECK])?)?)
}

/// MPI 5.0, section 12.5.3.
pub(crate) fn win_unlock_all(win: Win) -> Answer {
    Ok(objects::get(win, "win")?.window.unlock_all()?)
}

/// MPI 5.0, section 12.5.4.
#[inline(always)]
pub(crate) fn win_flush(rank: i32, win: Win) -> Answer {
    if try_with(win, |win| win.window.try_flush(rank)) == Some(true) {
        return Ok(());
    }
    run_slow_path(move || Ok(objects::get(win, "win")?.window.flush(rank)?))
}

/// MPI 5.0, section 12.5.4.
pub(crate) fn win_flush_all(win: Win) -> Answer {
    Ok(objects::get(win, "win")?.window.flush_all()?)
}

/// A flush completes operations at the origin and the target, so local flushes are the same (MPI 5.0, section 12.5.4).
pub(crate) use win_flush as win_flush_local;
/// MPI 5.0, section 12.5.4.
pub(crate) use win_flush_all as win_flush_local_all;

/// MPI 5.0, section 12.5.4.
pub(crate) fn win_sync(win: Win) -> Answer {
    Ok(objects::get(win, "win")?.window.sync()?)
}
