//! Collectives through memory that all ranks share: each rank shows its data in its own area, and the others read them there.
//! Longer data it shows chunk by chunk. There are no messages, and so no schedules; the module `coll::shm` of the crate `mpi`
//! executes them.
//!
//! All ranks reduce operands in rank order, so the operator need not be commutative, and all have the same bits.
//!
//! Cost: a cache line of each other rank, `(p - 1) gap / 4`, as a notification costs one transfer between processors and nothing
//! else; and half of a message's `beta`, which covers two copies, for each byte shown or read. Long data need another line of each
//! rank, which returns a chunk to its owner, and a `gap` for each read. Long vectors are reduced in parts, one by each rank: it
//! shows its operands of the other parts, and the result of its own, `n` bytes; and reads others' operands and results,
//! `2 (p - 1)/p n` bytes, half of which are reduced.

use crate::cost::{Case, Cost};
use crate::task::CollKind;

/// Cost of a rank's notification, in further messages.
const CACHE_LINE: f64 = 0.25;

/// Why a call is not supported.
pub(crate) fn unsupported_reason(case: &Case) -> Option<&'static str> {
    match case.kind {
        _ if case.shared == 0 || case.size < 2 => Some("the ranks share no memory"),
        CollKind::Allgather | CollKind::Alltoall if !case.equal_blocks => Some("blocks differ in size"),
        _ => None,
    }
}

/// Whether a rank's data are longer than it can show.
fn is_long(case: &Case) -> bool {
    let own_bytes = match case.kind {
        CollKind::Alltoall => case.bytes.saturating_mul(case.size as u64),
        _ => case.bytes,
    };
    own_bytes > case.shared
}

/// The cost of showing and reading this many vectors or blocks, with `reads` reads if they are long.
fn access_cost(case: &Case, shown: f64, read: f64, reads: f64) -> Cost {
    let lines = CACHE_LINE * others(case);
    let further = if is_long(case) { 2.0 * lines + reads } else { lines };
    Cost::new(0.0, (shown + read) * case.n() / 2.0).with_further(further)
}

fn others(case: &Case) -> f64 {
    case.ranks() - 1.0
}

pub(crate) fn barrier(case: &Case) -> Cost {
    access_cost(case, 0.0, 0.0, 0.0)
}

pub(crate) fn bcast(case: &Case) -> Cost {
    access_cost(case, 1.0, 1.0, 1.0)
}

pub(crate) fn allgather(case: &Case) -> Cost {
    access_cost(case, 1.0, others(case), others(case))
}

pub(crate) fn alltoall(case: &Case) -> Cost {
    access_cost(case, case.ranks(), others(case), others(case))
}

/// The cost of reductions to one rank and to all.
pub(crate) fn reduce(case: &Case) -> Cost {
    if is_long(case) {
        let part = others(case) / case.ranks();
        return Cost { reduced: part * case.n(), ..access_cost(case, 1.0, 2.0 * part, 2.0 * others(case)) };
    }
    Cost { reduced: others(case) * case.n(), ..access_cost(case, 1.0, others(case), 0.0) }
}
