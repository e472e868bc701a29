//! Collectives through memory that all ranks share: each shows what it gives at a place of its own, and the others take it from there.
//! Of what has no room there it shows where it lies, and the others read it in its own memory. There are no messages, and so no
//! schedules; the crate `mpi` carries them out in its module `exchange`.
//!
//! Operands are reduced in the order of ranks by everybody alike, so the operator need not be commutative, and all have the same
//! bits.
//!
//! Cost: a line of each other rank, `(p - 1) gap / 4`, as its news costs one transfer between processors and nothing else; and half
//! of a message's `beta`, which is for two copies, for each byte shown or taken. What is long has another line of each, by which its
//! owner has it back, and a `gap` for each read; nothing is shown then. Long vectors are reduced in parts, one by each rank, and
//! gathered: `2 (p - 1)/p n` bytes read, half of them reduced; of two ranks each reads and reduces all.

use crate::cost::{Case, Cost};
use crate::task::Kind;

/// What a rank's news costs, in further messages.
const LINE: f64 = 0.25;

/// Why a call is refused.
pub(crate) fn refuses(case: &Case) -> Option<&'static str> {
    match case.kind {
        _ if case.shared == 0 || case.size < 2 => Some("the ranks share no memory"),
        Kind::Allgather | Kind::Alltoall if !case.even => Some("blocks differ in size"),
        _ => None,
    }
}

/// Whether a rank gives more than it can show.
fn is_long(case: &Case) -> bool {
    let given = match case.kind {
        Kind::Alltoall => case.bytes.saturating_mul(case.size as u64),
        _ => case.bytes,
    };
    given > case.shared
}

/// What is shown and taken, in vectors or blocks, by so many reads if it is long.
fn taking(case: &Case, shown: f64, taken: f64, reads: f64) -> Cost {
    let lines = LINE * others(case);
    if is_long(case) {
        return Cost::of(0.0, taken * case.n() / 2.0).and_further(2.0 * lines + reads);
    }
    Cost::of(0.0, (shown + taken) * case.n() / 2.0).and_further(lines)
}

fn others(case: &Case) -> f64 {
    case.ranks() - 1.0
}

pub(crate) fn barrier(case: &Case) -> Cost {
    taking(case, 0.0, 0.0, 0.0)
}

pub(crate) fn bcast(case: &Case) -> Cost {
    taking(case, 1.0, 1.0, 1.0)
}

pub(crate) fn allgather(case: &Case) -> Cost {
    taking(case, 1.0, others(case), others(case))
}

pub(crate) fn alltoall(case: &Case) -> Cost {
    taking(case, case.ranks(), others(case), others(case))
}

/// Of reductions to one rank and to all.
pub(crate) fn reduce(case: &Case) -> Cost {
    if is_long(case) {
        let (part, times) = if case.size == 2 { (1.0, 1.0) } else { (others(case) / case.ranks(), 2.0) };
        return Cost { reduced: part * case.n(), ..taking(case, 0.0, times * part, times * others(case)) };
    }
    Cost { reduced: others(case) * case.n(), ..taking(case, 1.0, others(case), 0.0) }
}
