//! Operations on windows, and their synchronisation.

use cface::Out;
use datatypes::{Datatype, Op, Operator};
use mpi::{Assert, At, Buffer, Change, LockKind, Piece};

use super::WinObject;
use super::datatype::datatype;
use super::request::new_request;
use crate::answer::{Answer, Fault};
use crate::constants as c;
use crate::memory::{Names, named_buffer, piece};
use crate::objects::{self, at_once};
use crate::types::{self, Address, Number, Win};

const ORIGIN: Names = Names { address: "origin_addr", count: "origin_count", datatype: "origin_datatype" };
const RESULT: Names = Names { address: "result_addr", count: "result_count", datatype: "result_datatype" };
/// Of calls that have one element of each.
const COMPARED: Names = Names { address: "compare_addr", count: "count", datatype: "datatype" };

fn at<N: Number>(rank: i32, displacement: i64, count: N, handle: types::Datatype) -> Answer<At> {
    let datatype = datatype(handle, "target_datatype")?;
    if count.wide() < 0 {
        return Err(Fault::new(c::MPI_ERR_COUNT, format!("target_count: {} is negative", count.wide())));
    }
    Ok(At { rank, displacement, count: count.wide(), datatype })
}

/// An operator, and whether it looks at the origin.
fn operator(op: types::Op) -> Answer<(Op, bool)> {
    let op = objects::get(op, "op")?.0.clone();
    let looks = !matches!(op, Op::Predefined(Operator::NoOp));
    Ok((op, looks))
}

/// Whether so many elements have as many bytes.
#[inline]
fn has_as_many<N: Number>(piece: Piece, count: N, handle: types::Datatype) -> bool {
    Datatype::predefined_dense(handle.value()).checked_mul(count.wide()) == i64::try_from(piece.len()).ok()
}

/// What becomes of an element that is changed at once, where both handles are those of integers of a word or half of one, and of what
/// needs to know no more of them.
#[inline]
fn change_of(op: types::Op, datatype: types::Datatype) -> Option<Change> {
    let is_integer = matches!(
        datatype.value(),
        c::MPI_INT
            | c::MPI_UNSIGNED
            | c::MPI_LONG
            | c::MPI_UNSIGNED_LONG
            | c::MPI_LONG_LONG
            | c::MPI_UNSIGNED_LONG_LONG
            | c::MPI_INT32_T
            | c::MPI_UINT32_T
            | c::MPI_INT64_T
            | c::MPI_UINT64_T
            | c::MPI_AINT
            | c::MPI_COUNT
            | c::MPI_OFFSET
    );
    let change = match op.value() {
        c::MPI_SUM => Change::Add,
        c::MPI_REPLACE => Change::Replace,
        c::MPI_NO_OP => Change::None,
        c::MPI_BAND => Change::And,
        c::MPI_BOR => Change::Or,
        c::MPI_BXOR => Change::Xor,
        _ => return None,
    };
    is_integer.then_some(change)
}

/// The calls that move elements, in both forms.
macro_rules! transfers {
    ($($name:ident, $requested:ident, $at_once:ident;)*) => {
        $(
            #[allow(clippy::too_many_arguments)] // as many as the standard has
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
                if let Some(piece) = piece(origin_addr, origin_count, origin_datatype)
                    && has_as_many(piece, target_count, target_datatype)
                    && at_once(win, |win| win.window.$at_once(piece, target_rank, target_disp)) == Some(true)
                {
                    return Ok(());
                }
                let win = objects::get(win, "win")?;
                let origin = named_buffer(ORIGIN, origin_addr, origin_count, origin_datatype)?;
                let target = at(target_rank, target_disp, target_count, target_datatype)?;
                Ok(win.window.$name(&origin, &target)?)
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
                let target = at(target_rank, target_disp, target_count, target_datatype)?;
                new_request(win.window.$requested(&origin, &target)?, request)
            }
        )*
    };
}

transfers! {
    put, rput, put_at_once;
    get, rget, get_at_once;
}

#[allow(clippy::too_many_arguments)] // as many as the standard has
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
    let (win, (op, _)) = (objects::get(win, "win")?, operator(op)?);
    let origin = named_buffer(ORIGIN, origin_addr, origin_count, origin_datatype)?;
    let target = at(target_rank, target_disp, target_count, target_datatype)?;
    Ok(win.window.accumulate(&origin, &target, &op)?)
}

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
    let (win, (op, _)) = (objects::get(win, "win")?, operator(op)?);
    let origin = named_buffer(ORIGIN, origin_addr, origin_count, origin_datatype)?;
    let target = at(target_rank, target_disp, target_count, target_datatype)?;
    new_request(win.window.raccumulate(&origin, &target, &op)?, request)
}

/// The buffer that an operator looks at; nothing for one that does not look at it.
fn origin_of<N: Number>(looks: bool, address: Address, count: N, handle: types::Datatype) -> Answer<Buffer> {
    if looks { named_buffer(ORIGIN, address, count, handle) } else { Ok(Buffer::nothing()) }
}

#[allow(clippy::too_many_arguments)] // as many as the standard has
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
    let (win, (op, looks)) = (objects::get(win, "win")?, operator(op)?);
    let origin = origin_of(looks, origin_addr, origin_count, origin_datatype)?;
    let result = named_buffer(RESULT, result_addr, result_count, result_datatype)?;
    let target = at(target_rank, target_disp, target_count, target_datatype)?;
    Ok(win.window.get_accumulate(&origin, &result, &target, &op)?)
}

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
    let (win, (op, looks)) = (objects::get(win, "win")?, operator(op)?);
    let origin = origin_of(looks, origin_addr, origin_count, origin_datatype)?;
    let result = named_buffer(RESULT, result_addr, result_count, result_datatype)?;
    let target = at(target_rank, target_disp, target_count, target_datatype)?;
    new_request(win.window.rget_accumulate(&origin, &result, &target, &op)?, request)
}

pub(crate) fn fetch_and_op(
    origin_addr: Address,
    result_addr: Address,
    datatype: types::Datatype,
    target_rank: i32,
    target_disp: i64,
    op: types::Op,
    win: Win,
) -> Answer {
    if let (Some(change), Some(result)) = (change_of(op, datatype), piece(result_addr, 1, datatype)) {
        let origin = if change == Change::None { None } else { piece(origin_addr, 1, datatype) };
        let is_complete = origin.is_some() || change == Change::None;
        let fetch =
            |win: &WinObject| win.window.fetch_at_once(change, (origin, result), target_rank, target_disp);
        if is_complete && at_once(win, fetch) == Some(true) {
            return Ok(());
        }
    }
    let (win, (op, looks)) = (objects::get(win, "win")?, operator(op)?);
    let origin = origin_of(looks, origin_addr, 1, datatype)?;
    let result = named_buffer(RESULT, result_addr, 1, datatype)?;
    Ok(win.window.get_accumulate(&origin, &result, &at(target_rank, target_disp, 1, datatype)?, &op)?)
}

pub(crate) fn compare_and_swap(
    origin_addr: Address,
    compare_addr: Address,
    result_addr: Address,
    datatype: types::Datatype,
    target_rank: i32,
    target_disp: i64,
    win: Win,
) -> Answer {
    let win = objects::get(win, "win")?;
    let origin = named_buffer(ORIGIN, origin_addr, 1, datatype)?;
    let compare = named_buffer(COMPARED, compare_addr, 1, datatype)?;
    let result = named_buffer(RESULT, result_addr, 1, datatype)?;
    let target = at(target_rank, target_disp, 1, datatype)?;
    Ok(win.window.compare_and_swap(&origin, &compare, &result, &target)?)
}

pub(crate) fn win_fence(assert: i32, win: Win) -> Answer {
    let win = objects::get(win, "win")?;
    let known = [Assert::NOSTORE, Assert::NOPUT, Assert::NOPRECEDE, Assert::NOSUCCEED];
    Ok(win.window.fence(Assert::new(assert, &known)?)?)
}

pub(crate) fn win_post(group: types::Group, assert: i32, win: Win) -> Answer {
    let (win, group) = (objects::get(win, "win")?, objects::get(group, "group")?);
    let known = [Assert::NOCHECK, Assert::NOSTORE, Assert::NOPUT];
    Ok(win.window.post(&group, Assert::new(assert, &known)?)?)
}

pub(crate) fn win_start(group: types::Group, assert: i32, win: Win) -> Answer {
    let (win, group) = (objects::get(win, "win")?, objects::get(group, "group")?);
    Ok(win.window.start(&group, Assert::new(assert, &[Assert::NOCHECK])?)?)
}

pub(crate) fn win_complete(win: Win) -> Answer {
    Ok(objects::get(win, "win")?.window.complete()?)
}

pub(crate) fn win_wait(win: Win) -> Answer {
    Ok(objects::get(win, "win")?.window.wait()?)
}

pub(crate) fn win_test(win: Win, flag: Out<i32>) -> Answer {
    flag.set(objects::get(win, "win")?.window.test()?.into());
    Ok(())
}

pub(crate) fn win_lock(lock_type: i32, rank: i32, assert: i32, win: Win) -> Answer {
    let win = objects::get(win, "win")?;
    let kind = match lock_type {
        c::MPI_LOCK_EXCLUSIVE => LockKind::Exclusive,
        c::MPI_LOCK_SHARED => LockKind::Shared,
        other => return Err(Fault::new(c::MPI_ERR_LOCKTYPE, format!("lock_type: there is no {other}"))),
    };
    Ok(win.window.lock(kind, rank, Assert::new(assert, &[Assert::NOCHECK])?)?)
}

pub(crate) fn win_unlock(rank: i32, win: Win) -> Answer {
    Ok(objects::get(win, "win")?.window.unlock(rank)?)
}

pub(crate) fn win_lock_all(assert: i32, win: Win) -> Answer {
    let win = objects::get(win, "win")?;
    Ok(win.window.lock_all(Assert::new(assert, &[Assert::NOCHECK])?)?)
}

pub(crate) fn win_unlock_all(win: Win) -> Answer {
    Ok(objects::get(win, "win")?.window.unlock_all()?)
}

pub(crate) fn win_flush(rank: i32, win: Win) -> Answer {
    if at_once(win, |win| win.window.is_flushed(rank)) == Some(true) {
        return Ok(());
    }
    Ok(objects::get(win, "win")?.window.flush(rank)?)
}

pub(crate) fn win_flush_all(win: Win) -> Answer {
    Ok(objects::get(win, "win")?.window.flush_all()?)
}

/// What is over at the target is over here.
pub(crate) use win_flush as win_flush_local;
pub(crate) use win_flush_all as win_flush_local_all;

pub(crate) fn win_sync(win: Win) -> Answer {
    Ok(objects::get(win, "win")?.window.sync()?)
}
