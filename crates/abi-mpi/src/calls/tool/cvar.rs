//! Control variables (MPI 5.0, section 15.3.6). Variables under the control of process 0 can be set only before `MPI_Init`;
//! protocol limits at any time after
//! it.

use ffi::{Out, Text, lock};
use mpi::{CollKind, Limits, Process, Tuning};

use super::open::{check_open, index_of_name, item_at, store_text, tool_error};
use crate::answer::Answer;
use crate::constants as c;
use crate::memory::{copy_from, copy_to};
use crate::state;
use crate::types::{Address, Datatype};

/// A control variable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Control {
    /// A limit, in bytes or slots.
    Limit(Limit),
    /// An assumed cost, in seconds, seconds per byte, or seconds per reduced byte.
    Cost(usize),
    /// The algorithm of a kind of collective: 0 for the cheapest, or 1 plus the index of a name among those of the kind.
    Algorithm(CollKind),
}

/// One of the library's [`Limits`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Limit {
    EagerMax,
    BothSidesCopyMin,
    CacheLineMessageMax,
    InlineMessageMax,
    SlotBytes,
    Slots,
    RingBytes,
    MessageInPartsMax,
    SharedCollectiveMax,
}

/// Each limit with its name and description.
const LIMITS: [(Limit, &str, &str); 9] = [
    (Limit::EagerMax, "eager_max", "bytes of the longest message that is sent eagerly"),
    (
        Limit::BothSidesCopyMin,
        "both_sides_min",
        "bytes of the shortest message that both sides copy where they can",
    ),
    (
        Limit::CacheLineMessageMax,
        "line_max",
        "bytes of the longest message that is sent through a cache line that both processes write",
    ),
    (
        Limit::InlineMessageMax,
        "inline_max",
        "bytes of the longest message that is sent inline in a work request",
    ),
    (Limit::SlotBytes, "slot_bytes", "bytes of a slot"),
    (Limit::Slots, "slots", "slots of a connection in each direction"),
    (Limit::RingBytes, "ring_bytes", "bytes of the ring that a peer may store messages in"),
    (Limit::MessageInPartsMax, "parts_max", "bytes of the longest message that comes in parts, or 0"),
    (
        Limit::SharedCollectiveMax,
        "shared_max",
        "bytes that a member may give to a collective operation in shared memory",
    ),
];
const COSTS: [(&str, &str); 4] = [
    ("cost_alpha", "seconds per message that the choice of algorithms assumes"),
    ("cost_gap", "seconds between two messages that the choice of algorithms assumes"),
    ("cost_beta", "seconds per byte that the choice of algorithms assumes"),
    ("cost_gamma", "seconds per reduced byte that the choice of algorithms assumes"),
];

/// The number of variables: limits, costs, and an algorithm for each kind.
pub(super) const COUNT: usize = LIMITS.len() + COSTS.len() + CollKind::ALL.len();
/// The index of the first cost; algorithms follow the costs.
pub(super) const COLLECTIVES: usize = LIMITS.len();

/// All control variables, in the order of their indices.
fn controls() -> Vec<Control> {
    let limits = LIMITS.iter().map(|(limit, ..)| Control::Limit(*limit));
    let costs = (0..COSTS.len()).map(Control::Cost);
    limits.chain(costs).chain(CollKind::ALL.into_iter().map(Control::Algorithm)).collect()
}

/// The names of a kind's algorithms, after the word for the cheapest.
fn algorithms(kind: CollKind) -> Vec<&'static str> {
    ["cheapest"].into_iter().chain(Tuning::algorithms_of(kind)).collect()
}

impl Control {
    /// Its name, which a tool asks for.
    fn name(self) -> String {
        match self {
            Self::Limit(limit) => LIMITS[limit as usize].1.to_owned(),
            Self::Cost(cost) => COSTS[cost].0.to_owned(),
            Self::Algorithm(kind) => format!("algorithm_{}", kind.name()),
        }
    }

    /// Its description for the tool's user.
    fn description(self) -> String {
        match self {
            Self::Limit(limit) => LIMITS[limit as usize].2.to_owned(),
            Self::Cost(cost) => COSTS[cost].1.to_owned(),
            Self::Algorithm(kind) => {
                format!("algorithm of {} where it can carry out the call; rank 0's counts", kind.name())
            }
        }
    }

    /// The datatype of its value in the program's representation.
    fn datatype(self) -> usize {
        match self {
            Self::Limit(_) => c::MPI_UNSIGNED_LONG,
            Self::Cost(_) => c::MPI_DOUBLE,
            Self::Algorithm(_) => c::MPI_INT,
        }
    }

    /// Whether it can be set, and at which processes it must have the same value.
    fn scope(self) -> i32 {
        match self {
            Self::Limit(Limit::EagerMax | Limit::BothSidesCopyMin) => c::MPI_T_SCOPE_LOCAL,
            Self::Algorithm(_) => c::MPI_T_SCOPE_ALL_EQ,
            _ => c::MPI_T_SCOPE_CONSTANT,
        }
    }

    /// Its value in the program's representation.
    fn read(self) -> Answer<Vec<u8>> {
        match self {
            Self::Limit(limit) => Ok(limit.value(&process()?.limits()).to_ne_bytes().to_vec()),
            Self::Cost(cost) => {
                let costs =
                    process()?.tuning().costs.ok_or_else(|| tool_error(c::MPI_T_ERR_NOT_ACCESSIBLE))?;
                let costs = [costs.alpha, costs.gap, costs.beta, costs.gamma];
                Ok(costs[cost].to_ne_bytes().to_vec())
            }
            // Unlike limits and costs, an algorithm can also be read before `MPI_Init`.
            Self::Algorithm(kind) => {
                let named = match state::process() {
                    Ok(process) => process.tuning().algorithms.get(&kind).cloned(),
                    Err(_) => lock(&state::TOOL_ALGORITHMS).get(&kind).cloned(),
                };
                let at = algorithms(kind).iter().position(|name| Some(*name) == named.as_deref());
                Ok((at.unwrap_or(0) as i32).to_ne_bytes().to_vec())
            }
        }
    }

    /// Sets it to the value at an address of the program.
    fn write(self, value: Address) -> Answer {
        match self {
            Self::Limit(Limit::EagerMax) => map_error(process()?.set_eager_max(load_u64(value)?)),
            Self::Limit(Limit::BothSidesCopyMin) => {
                map_error(process()?.set_both_sides_copy_min(load_u64(value)?))
            }
            Self::Algorithm(kind) => {
                if state::is_initialized() {
                    return Err(tool_error(c::MPI_T_ERR_CVAR_SET_NOT_NOW));
                }
                let mut bytes = [0; 4];
                load(value, &mut bytes)?;
                let names = algorithms(kind);
                let at = usize::try_from(i32::from_ne_bytes(bytes)).ok().filter(|at| *at < names.len());
                match at.ok_or_else(|| tool_error(c::MPI_T_ERR_INVALID))? {
                    0 => drop(lock(&state::TOOL_ALGORITHMS).remove(&kind)),
                    at => drop(lock(&state::TOOL_ALGORITHMS).insert(kind, names[at].to_owned())),
                }
                Ok(())
            }
            _ => Err(tool_error(c::MPI_T_ERR_CVAR_SET_NEVER)),
        }
    }
}

impl Limit {
    /// Its current value.
    fn value(self, limits: &Limits) -> u64 {
        match self {
            Self::EagerMax => limits.eager_max,
            Self::BothSidesCopyMin => limits.both_sides_copy_min,
            Self::CacheLineMessageMax => limits.cache_line_message_max,
            Self::InlineMessageMax => limits.inline_message_max,
            Self::SlotBytes => limits.slot_bytes,
            Self::Slots => limits.slots,
            Self::RingBytes => limits.ring_bytes,
            Self::MessageInPartsMax => limits.message_in_parts_max,
            Self::SharedCollectiveMax => limits.shared_collective_max,
        }
    }
}

/// The process of the library; an error before `MPI_Init`.
fn process() -> Answer<&'static Process> {
    state::process().map_err(|_| tool_error(c::MPI_T_ERR_NOT_ACCESSIBLE))
}

/// The result as the tool interface reports it.
fn map_error(done: mpi::Result<()>) -> Answer {
    done.map_err(|_| tool_error(c::MPI_T_ERR_INVALID))
}

/// Reads bytes of the program; an error for NULL.
fn load(from: Address, bytes: &mut [u8]) -> Answer {
    if from == Address(0) {
        return Err(tool_error(c::MPI_T_ERR_INVALID));
    }
    copy_from(from, bytes);
    Ok(())
}

/// Reads a number of the program.
fn load_u64(from: Address) -> Answer<u64> {
    let mut bytes = [0; 8];
    load(from, &mut bytes)?;
    Ok(u64::from_ne_bytes(bytes))
}

pub(crate) fn t_cvar_get_num(count: Out<i32>) -> Answer {
    check_open()?;
    count.set(COUNT as i32);
    Ok(())
}

pub(crate) fn t_cvar_get_index(name: Text, index: Out<i32>) -> Answer {
    check_open()?;
    index.set(index_of_name(controls().into_iter().map(Control::name), name)?);
    Ok(())
}

#[allow(clippy::too_many_arguments)] // as many as the standard has
pub(crate) fn t_cvar_get_info(
    index: i32,
    name: Out<u8>,
    name_len: Out<i32>,
    verbosity: Out<i32>,
    datatype: Out<Datatype>,
    enumtype: Out<Address>,
    desc: Out<u8>,
    desc_len: Out<i32>,
    bind: Out<i32>,
    scope: Out<i32>,
) -> Answer {
    check_open()?;
    let control = *item_at(&controls(), index)?;
    store_text(name, name_len, &control.name());
    store_text(desc, desc_len, &control.description());
    verbosity.set(c::MPI_T_VERBOSITY_TUNER_BASIC);
    datatype.set(Datatype::new(control.datatype()));
    enumtype.set(match control {
        Control::Algorithm(kind) => enum_handle(kind),
        _ => Address(c::MPI_T_ENUM_NULL),
    });
    bind.set(c::MPI_T_BIND_NO_OBJECT);
    scope.set(control.scope());
    Ok(())
}

/// A variable's handle is its index plus 1.
pub(crate) fn t_cvar_handle_alloc(
    index: i32,
    _object: Address,
    handle: Out<Address>,
    count: Out<i32>,
) -> Answer {
    check_open()?;
    item_at(&controls(), index)?;
    handle.set(Address(index as usize + 1));
    count.set(1);
    Ok(())
}

/// The variable of a handle.
fn control(handle: Address) -> Answer<Control> {
    check_open()?;
    let at = handle.0.checked_sub(1).and_then(|at| controls().get(at).copied());
    at.ok_or_else(|| tool_error(c::MPI_T_ERR_INVALID_HANDLE))
}

pub(crate) fn t_cvar_handle_free(handle: Out<Address>) -> Answer {
    control(handle.get().unwrap_or(Address(0)))?;
    handle.set(Address(c::MPI_T_CVAR_HANDLE_NULL));
    Ok(())
}

pub(crate) fn t_cvar_read(handle: Address, buf: Address) -> Answer {
    let value = control(handle)?.read()?;
    if buf == Address(0) {
        return Err(tool_error(c::MPI_T_ERR_INVALID));
    }
    copy_to(buf, &value);
    Ok(())
}

pub(crate) fn t_cvar_write(handle: Address, buf: Address) -> Answer {
    control(handle)?.write(buf)
}

/// Each kind has an enumeration of its algorithms: the number of the kind plus 1.
fn enum_handle(kind: CollKind) -> Address {
    Address(kind as usize + 1)
}

/// The kind of collective whose algorithms an enumeration lists.
fn enum_kind(handle: Address) -> Answer<CollKind> {
    check_open()?;
    let kind = handle.0.checked_sub(1).and_then(|at| CollKind::ALL.get(at).copied());
    kind.ok_or_else(|| tool_error(c::MPI_T_ERR_INVALID_HANDLE))
}

/// MPI 5.0, section 15.3.5.
pub(crate) fn t_enum_get_info(enumtype: Address, num: Out<i32>, name: Out<u8>, name_len: Out<i32>) -> Answer {
    let kind = enum_kind(enumtype)?;
    num.set(algorithms(kind).len() as i32);
    store_text(name, name_len, &format!("algorithms of {}", kind.name()));
    Ok(())
}

/// MPI 5.0, section 15.3.5.
pub(crate) fn t_enum_get_item(
    enumtype: Address,
    index: i32,
    value: Out<i32>,
    name: Out<u8>,
    name_len: Out<i32>,
) -> Answer {
    let names = algorithms(enum_kind(enumtype)?);
    let item = item_at(&names, index).map_err(|_| tool_error(c::MPI_T_ERR_INVALID_ITEM))?;
    value.set(index);
    store_text(name, name_len, item);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_indexed_by_their_enums() {
        for (at, (limit, ..)) in LIMITS.iter().enumerate() {
            assert_eq!(*limit as usize, at);
        }
        for (at, kind) in CollKind::ALL.into_iter().enumerate() {
            assert_eq!(enum_kind(enum_handle(kind)).ok().or(Some(kind)), Some(CollKind::ALL[at]));
        }
        let mut names: Vec<String> = controls().into_iter().map(Control::name).collect();
        assert_eq!(names.len(), COUNT);
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), COUNT);
    }
}
