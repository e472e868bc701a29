//! Performance variables: sessions and their handles, each with its own count if the variable is a counter (MPI 5.0, section 15.3.7).

use std::collections::BTreeMap;
use std::sync::Mutex;

use ffi::{Out, Text, lock};
use mpi::{Gauge, Process, Proto};

use super::open::{check_open, index_of_name, item_at, store_text, tool_error};
use crate::answer::Answer;
use crate::constants as c;
use crate::memory::{copy_from, copy_to};
use crate::objects::get;
use crate::state;
use crate::types::{Address, Comm, Datatype};

/// A performance variable: an unsigned long, or one per rank of a communicator.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Variable {
    Gauge(Gauge),
    /// Messages sent by a protocol, and their bytes.
    Messages(Proto),
    Bytes(Proto),
    /// Messages sent to each rank, and their bytes.
    MessagesTo,
    BytesTo,
}

/// Each gauge with its name and description.
const GAUGES: [(&str, &str); Gauge::ALL.len()] = [
    ("posted_receives", "receives that wait for a message"),
    ("unexpected_messages", "messages that wait for a receive"),
    ("unexpected_most", "the most messages that waited for a receive at a time"),
    ("unexpected_total", "messages that arrived before their receive was posted"),
    ("match_looks", "entries of the queues of receives and messages that were compared in matching"),
    ("operations", "operations that have started and that the program has not completed yet"),
    ("connections", "processes that this one is connected to"),
    ("waiting_requests", "messages and accesses that wait for a connection, for credits or for room"),
    ("memory_found", "times that memory was used without registering it again"),
    ("memory_registered", "times that memory was registered for an operation"),
    ("collectives_scheduled", "collective operations that were carried out by messages"),
    ("connections_refused", "connect requests refused because they were not authenticated"),
];

/// The index of the first variable of a protocol, and the number of variables.
pub(super) const PROTOCOLS: usize = Gauge::ALL.len();
pub(super) const COUNT: usize = PROTOCOLS + 2 * Proto::ALL.len() + 2;

/// All performance variables, in the order of their indices.
fn variables() -> Vec<Variable> {
    let gauges = Gauge::ALL.into_iter().map(Variable::Gauge);
    let by = |make: fn(Proto) -> Variable| Proto::ALL.into_iter().map(make);
    let all = gauges.chain(by(Variable::Messages)).chain(by(Variable::Bytes));
    all.chain([Variable::MessagesTo, Variable::BytesTo]).collect()
}

/// A protocol's name as part of a variable's name: `eager_copy`, `rndv_shm_both`.
fn variable(proto: Proto) -> String {
    proto.name().replace(['/', '-'], "_")
}

impl Variable {
    /// Its name, which a tool asks for.
    fn name(self) -> String {
        match self {
            Self::Gauge(gauge) => GAUGES[gauge as usize].0.to_owned(),
            Self::Messages(by) => format!("messages_{}", variable(by)),
            Self::Bytes(by) => format!("bytes_{}", variable(by)),
            Self::MessagesTo => "messages_to".to_owned(),
            Self::BytesTo => "bytes_to".to_owned(),
        }
    }

    /// Its description for the tool's user.
    fn description(self) -> String {
        match self {
            Self::Gauge(gauge) => GAUGES[gauge as usize].1.to_owned(),
            Self::Messages(by) => format!("messages sent by the protocol {}", by.name()),
            Self::Bytes(by) => format!("bytes of messages sent by the protocol {}", by.name()),
            Self::MessagesTo => "messages sent to each rank of the communicator".to_owned(),
            Self::BytesTo => "bytes of messages sent to each rank of the communicator".to_owned(),
        }
    }

    /// Its class in the standard.
    fn class(self) -> i32 {
        match self {
            Self::Gauge(Gauge::UnexpectedMost) => c::MPI_T_PVAR_CLASS_HIGHWATERMARK,
            Self::Gauge(gauge) if !gauge.is_counter() => c::MPI_T_PVAR_CLASS_LEVEL,
            Self::Gauge(_) | Self::Messages(_) | Self::MessagesTo => c::MPI_T_PVAR_CLASS_COUNTER,
            Self::Bytes(_) | Self::BytesTo => c::MPI_T_PVAR_CLASS_AGGREGATE,
        }
    }

    /// Whether handles count from their start; others show the current value and cannot be written.
    fn is_counter(self) -> bool {
        matches!(self.class(), c::MPI_T_PVAR_CLASS_COUNTER | c::MPI_T_PVAR_CLASS_AGGREGATE)
    }

    /// Whether it counts for one communicator, in an element for each rank.
    fn is_per_comm(self) -> bool {
        matches!(self, Self::MessagesTo | Self::BytesTo)
    }

    /// Its current values; zero before `MPI_Init`.
    fn current(self, comm: Option<&mpi::Comm>) -> Vec<u64> {
        let process = state::process().ok();
        let of = |read: &dyn Fn(&Process) -> u64| vec![process.map_or(0, read)];
        match self {
            Self::Gauge(gauge) => of(&|process| process.gauge(gauge)),
            Self::Messages(by) => of(&|process| process.traffic().for_protocol(by).messages),
            Self::Bytes(by) => of(&|process| process.traffic().for_protocol(by).bytes),
            Self::MessagesTo => {
                comm.map_or_else(Vec::new, |comm| comm.sent().iter().map(|to| to.messages).collect())
            }
            Self::BytesTo => {
                comm.map_or_else(Vec::new, |comm| comm.sent().iter().map(|to| to.bytes).collect())
            }
        }
    }
}

/// A tool's handle of a variable in a session.
struct Handle {
    variable: Variable,
    comm: Option<mpi::Comm>,
    /// The count up to the last start.
    counted: Vec<u64>,
    /// The variable's values at the last start, while the handle is started.
    since: Option<Vec<u64>>,
}

impl Handle {
    fn new(variable: Variable, comm: Option<mpi::Comm>) -> Self {
        let len = variable.current(comm.as_ref()).len();
        Self { variable, comm, counted: vec![0; len], since: None }
    }

    /// The variable's current values.
    fn current(&self) -> Vec<u64> {
        self.variable.current(self.comm.as_ref())
    }

    /// What a read returns: the count of a counter while the handle was started, or the current values.
    fn value(&self) -> Vec<u64> {
        if !self.variable.is_counter() {
            return self.current();
        }
        let Some(since) = &self.since else { return self.counted.clone() };
        let more = self.current().into_iter().zip(since).map(|(current, since)| current.wrapping_sub(*since));
        self.counted.iter().zip(more).map(|(counted, more)| counted.wrapping_add(more)).collect()
    }

    /// Begins to count, unless it counts already.
    fn start(&mut self) -> Answer {
        if !self.variable.is_counter() {
            return Err(tool_error(c::MPI_T_ERR_PVAR_NO_STARTSTOP));
        }
        if self.since.is_none() {
            self.since = Some(self.current());
        }
        Ok(())
    }

    /// Stops the counter and keeps its value; an error for variables that are no counters.
    fn stop(&mut self) -> Answer {
        if !self.variable.is_counter() {
            return Err(tool_error(c::MPI_T_ERR_PVAR_NO_STARTSTOP));
        }
        (self.counted, self.since) = (self.value(), None);
        Ok(())
    }

    /// Sets the count.
    fn set(&mut self, value: Vec<u64>) -> Answer {
        if !self.variable.is_counter() {
            return Err(tool_error(c::MPI_T_ERR_PVAR_NO_WRITE));
        }
        self.since = self.since.is_some().then(|| self.current());
        self.counted = value;
        Ok(())
    }

    /// Sets the count to zero.
    fn reset(&mut self) -> Answer {
        self.set(vec![0; self.counted.len()])
    }
}

static SESSIONS: Mutex<Sessions> = Mutex::new(Sessions { open: BTreeMap::new(), last: FIRST });

/// Sessions and their handles, all by number.
struct Sessions {
    open: BTreeMap<usize, BTreeMap<usize, Handle>>,
    last: usize,
}

/// Numbers above this value are neither null nor `MPI_T_PVAR_ALL_HANDLES`.
const FIRST: usize = c::MPI_T_PVAR_ALL_HANDLES;

impl Sessions {
    /// A number that no session or handle has had.
    fn new_number(&mut self) -> usize {
        self.last += 1;
        self.last
    }

    /// The handles of a session.
    fn session(&mut self, session: Address) -> Answer<&mut BTreeMap<usize, Handle>> {
        self.open.get_mut(&session.0).ok_or_else(|| tool_error(c::MPI_T_ERR_INVALID_SESSION))
    }
}

/// Runs `act` with a handle.
fn with_handle<T>(
    session: Address,
    handle: Address,
    act: impl FnOnce(&mut Handle) -> Answer<T>,
) -> Answer<T> {
    check_open()?;
    let mut sessions = lock(&SESSIONS);
    let handles = sessions.session(session)?;
    act(handles.get_mut(&handle.0).ok_or_else(|| tool_error(c::MPI_T_ERR_INVALID_HANDLE))?)
}

/// Runs `act` with a handle, or with all handles of a session that support it.
fn with_handles(session: Address, handle: Address, act: impl Fn(&mut Handle) -> Answer) -> Answer {
    if handle.0 != c::MPI_T_PVAR_ALL_HANDLES {
        return with_handle(session, handle, act);
    }
    check_open()?;
    let mut sessions = lock(&SESSIONS);
    sessions.session(session)?.values_mut().filter(|handle| handle.variable.is_counter()).try_for_each(act)
}

pub(crate) fn t_pvar_get_num(count: Out<i32>) -> Answer {
    check_open()?;
    count.set(COUNT as i32);
    Ok(())
}

pub(crate) fn t_pvar_get_index(name: Text, class: i32, index: Out<i32>) -> Answer {
    check_open()?;
    let variables = variables();
    let at = index_of_name(variables.iter().map(|variable| variable.name()), name)?;
    if variables[at as usize].class() != class {
        return Err(tool_error(c::MPI_T_ERR_INVALID_NAME));
    }
    index.set(at);
    Ok(())
}

#[allow(clippy::too_many_arguments)] // as many as the standard has
pub(crate) fn t_pvar_get_info(
    index: i32,
    name: Out<u8>,
    name_len: Out<i32>,
    verbosity: Out<i32>,
    class: Out<i32>,
    datatype: Out<Datatype>,
    enumtype: Out<Address>,
    desc: Out<u8>,
    desc_len: Out<i32>,
    bind: Out<i32>,
    readonly: Out<i32>,
    continuous: Out<i32>,
    atomic: Out<i32>,
) -> Answer {
    check_open()?;
    let variable = *item_at(&variables(), index)?;
    store_text(name, name_len, &variable.name());
    store_text(desc, desc_len, &variable.description());
    verbosity.set(c::MPI_T_VERBOSITY_USER_BASIC);
    class.set(variable.class());
    datatype.set(Datatype::new(c::MPI_UNSIGNED_LONG));
    enumtype.set(Address(c::MPI_T_ENUM_NULL));
    bind.set(if variable.is_per_comm() { c::MPI_T_BIND_MPI_COMM } else { c::MPI_T_BIND_NO_OBJECT });
    readonly.set((!variable.is_counter()).into());
    continuous.set((!variable.is_counter()).into());
    atomic.set(0);
    Ok(())
}

pub(crate) fn t_pvar_session_create(session: Out<Address>) -> Answer {
    check_open()?;
    let mut sessions = lock(&SESSIONS);
    let new = sessions.new_number();
    sessions.open.insert(new, BTreeMap::new());
    session.set(Address(new));
    Ok(())
}

pub(crate) fn t_pvar_session_free(session: Out<Address>) -> Answer {
    check_open()?;
    let given = session.get().unwrap_or(Address(0));
    if lock(&SESSIONS).open.remove(&given.0).is_none() {
        return Err(tool_error(c::MPI_T_ERR_INVALID_SESSION));
    }
    session.set(Address(c::MPI_T_PVAR_SESSION_NULL));
    Ok(())
}

pub(crate) fn t_pvar_handle_alloc(
    session: Address,
    index: i32,
    object: Address,
    handle: Out<Address>,
    count: Out<i32>,
) -> Answer {
    check_open()?;
    lock(&SESSIONS).session(session)?;
    let variable = *item_at(&variables(), index)?;
    let comm = match variable.is_per_comm() {
        true => {
            let given = object.out::<Comm>().get().ok_or_else(|| tool_error(c::MPI_T_ERR_INVALID))?;
            Some(get(given, "obj_handle").map_err(|_| tool_error(c::MPI_T_ERR_INVALID))?.clone())
        }
        false => None,
    };
    let made = Handle::new(variable, comm);
    count.set(made.counted.len() as i32);
    let mut sessions = lock(&SESSIONS);
    let number = sessions.new_number();
    sessions.session(session)?.insert(number, made);
    handle.set(Address(number));
    Ok(())
}

pub(crate) fn t_pvar_handle_free(session: Address, handle: Out<Address>) -> Answer {
    check_open()?;
    let given = handle.get().unwrap_or(Address(0));
    if lock(&SESSIONS).session(session)?.remove(&given.0).is_none() {
        return Err(tool_error(c::MPI_T_ERR_INVALID_HANDLE));
    }
    handle.set(Address(c::MPI_T_PVAR_HANDLE_NULL));
    Ok(())
}

pub(crate) fn t_pvar_start(session: Address, handle: Address) -> Answer {
    with_handles(session, handle, Handle::start)
}

pub(crate) fn t_pvar_stop(session: Address, handle: Address) -> Answer {
    with_handles(session, handle, Handle::stop)
}

pub(crate) fn t_pvar_reset(session: Address, handle: Address) -> Answer {
    with_handles(session, handle, Handle::reset)
}

/// Stores values in the program's memory.
fn store(value: &[u64], buf: Address) -> Answer {
    if buf == Address(0) {
        return Err(tool_error(c::MPI_T_ERR_INVALID));
    }
    let bytes: Vec<u8> = value.iter().flat_map(|number| number.to_ne_bytes()).collect();
    copy_to(buf, &bytes);
    Ok(())
}

pub(crate) fn t_pvar_read(session: Address, handle: Address, buf: Address) -> Answer {
    with_handle(session, handle, |handle| store(&handle.value(), buf))
}

pub(crate) fn t_pvar_readreset(session: Address, handle: Address, buf: Address) -> Answer {
    with_handle(session, handle, |handle| {
        let value = handle.value();
        handle.reset()?;
        store(&value, buf)
    })
}

pub(crate) fn t_pvar_write(session: Address, handle: Address, buf: Address) -> Answer {
    with_handle(session, handle, |handle| {
        if buf == Address(0) {
            return Err(tool_error(c::MPI_T_ERR_INVALID));
        }
        let mut bytes = vec![0; 8 * handle.counted.len()];
        copy_from(buf, &mut bytes);
        let (numbers, _) = bytes.as_chunks::<8>();
        handle.set(numbers.iter().map(|number| u64::from_ne_bytes(*number)).collect())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variable_names_are_unique() {
        for (at, gauge) in Gauge::ALL.into_iter().enumerate() {
            assert_eq!(gauge as usize, at);
        }
        let mut names: Vec<String> = variables().into_iter().map(Variable::name).collect();
        assert_eq!(names.len(), COUNT);
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), COUNT);
    }
}
