//! Events of the tool interface (MPI 5.0, section 15.3.8). All come from one source, this process, in the order in which they occurred.
//!
//! Callbacks run at the end of the call that noticed the event, with no lock held and on its thread, so they may use MPI freely;
//! events that occur meanwhile are reported afterwards. An instance is valid while its callback runs, on that thread.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Mutex;

use ffi::{Out, Text, lock};
use host::Time;
use mpi::{ToolEvent, ToolEvents};

use super::open::{check_open, index_of_name, item_at, store_text, tool_error};
use crate::answer::Answer;
use crate::callback::{EventFreed, EventFunction, EventsDropped};
use crate::calls::info::{hints, new_info};
use crate::clock::host;
use crate::constants as c;
use crate::memory::copy_to;
use crate::profile;
use crate::state;
use crate::types::{Address, Datatype, Info};

/// An event type: its elements are integers of four bytes, or unsigned integers of eight.
struct EventType {
    name: &'static str,
    description: &'static str,
    /// Bytes of each element.
    elements: &'static [usize],
}

const EVENT_TYPES: [EventType; 4] = [
    EventType {
        name: "error",
        description: "a call of MPI has failed, and an error handler is about to be called: the error's class",
        elements: &[4],
    },
    EventType {
        name: "message_unexpected",
        description: "a message arrived before its receive was posted: the process that sent it, its tag, its bytes",
        elements: &[4, 4, 8],
    },
    EventType {
        name: "process_lost",
        description: "a process is lost: which one of the job",
        elements: &[4],
    },
    EventType {
        name: "collective_scheduled",
        description: "a collective operation that uses messages has started: its kind, and the bytes by which its algorithm was chosen",
        elements: &[4, 8],
    },
];
const ERROR_TYPE: usize = 0;

/// The offset of each element in a copied instance, and the total length.
fn layout(elements: &[usize]) -> (Vec<usize>, usize) {
    let mut end = 0_usize;
    let place = |len: &usize| {
        let at = end.next_multiple_of(*len);
        end = at + len;
        at
    };
    let places = elements.iter().map(place).collect();
    (places, end)
}

/// All event handles, by number.
struct Registrations {
    all: BTreeMap<usize, Registration>,
    last: usize,
}

impl Registrations {
    /// Whether any of them has a callback.
    fn have_callback(&self) -> bool {
        self.all.values().any(|registration| !registration.callbacks.is_empty())
    }
}

static REGISTRATIONS: Mutex<Registrations> = Mutex::new(Registrations { all: BTreeMap::new(), last: 0 });

/// A callback and its user data.
#[derive(Clone, Copy)]
struct Callback {
    function: EventFunction,
    data: Address,
}

/// A tool's registration: callbacks by the safety level that they require.
#[derive(Clone, Default)]
struct Registration {
    kind: usize,
    callbacks: BTreeMap<i32, Callback>,
    dropped: Option<EventsDropped>,
}

/// An event that is being reported.
#[derive(Clone, Copy)]
struct EventInstance {
    kind: usize,
    at: Time,
    values: [u64; 3],
}

thread_local! {
    /// The event that this thread is reporting, if any; and the errors that it has raised.
    static DELIVERED: RefCell<Option<EventInstance>> = const { RefCell::new(None) };
    static ERRORS: RefCell<Vec<EventInstance>> = const { RefCell::new(Vec::new()) };
}

/// The handle of the instance that a thread is reporting.
const INSTANCE: Address = Address(1);

/// The event that a callback of this thread is being called for, by its instance handle.
fn delivered_event(handle: Address) -> Answer<EventInstance> {
    check_open()?;
    let delivered = DELIVERED.with_borrow(|event| *event).filter(|_| handle == INSTANCE);
    delivered.ok_or_else(|| tool_error(c::MPI_T_ERR_INVALID_HANDLE))
}

/// Calls `act` with a registration, and adapts the recording of events to the result.
fn with_registration<T>(handle: Address, act: impl FnOnce(&mut Registration) -> Answer<T>) -> Answer<T> {
    check_open()?;
    let mut registrations = lock(&REGISTRATIONS);
    let done =
        act(registrations.all.get_mut(&handle.0).ok_or_else(|| tool_error(c::MPI_T_ERR_INVALID_HANDLE))?);
    update_recording(&registrations);
    done
}

/// Makes the process record events while a callback is registered, and only then: called after each change of the
/// registrations. Before `MPI_Init` there is no process; [`record_registered_events`] does it then.
fn update_recording(registrations: &Registrations) {
    let is_wanted = registrations.have_callback();
    let has_changed = profile::set_events_enabled(is_wanted);
    if has_changed && let Ok(process) = state::process() {
        process.record_events(is_wanted);
    }
}

/// Enables event collection after MPI was initialized, for callbacks registered before.
pub(crate) fn record_registered_events() {
    let registrations = lock(&REGISTRATIONS);
    if registrations.have_callback()
        && let Ok(process) = state::process()
    {
        process.record_events(true);
    }
}

/// Records the failure of a call with an error of this class.
pub(crate) fn record_error(class: i32) {
    let values = [class as u32 as u64, 0, 0];
    ERRORS
        .with_borrow_mut(|errors| errors.push(EventInstance { kind: ERROR_TYPE, at: host().now(), values }));
}

/// Reports all pending events. Runs at the end of a call.
pub(crate) fn deliver_events() {
    if DELIVERED.with_borrow(Option::is_some) {
        return;
    }
    let ToolEvents { events, dropped } = state::process().map(mpi::Process::take_events).unwrap_or_default();
    let recorded = events.into_iter().map(|(at, what)| {
        let (kind, values) = match what {
            ToolEvent::Unexpected { from, tag, bytes } => (1, [from.into(), tag as u32 as u64, bytes]),
            ToolEvent::Lost { process } => (2, [process.into(), 0, 0]),
            ToolEvent::Scheduled { kind, bytes } => (3, [kind.into(), bytes, 0]),
        };
        EventInstance { kind, at, values }
    });
    let events: Vec<EventInstance> = recorded.chain(ERRORS.take()).collect();
    for event in events {
        let of_kind = |(_, registration): &(&usize, &Registration)| registration.kind == event.kind;
        let registrations: Vec<(usize, Registration)> = lock(&REGISTRATIONS)
            .all
            .iter()
            .filter(of_kind)
            .map(|(handle, registration)| (*handle, registration.clone()))
            .collect();
        for (handle, registration) in registrations {
            if let Some((safety, callback)) = registration.callbacks.first_key_value() {
                DELIVERED.set(Some(event));
                callback.function.call(INSTANCE, Address(handle), *safety, callback.data);
                DELIVERED.set(None);
            }
        }
    }
    if dropped > 0 {
        deliver_dropped(dropped);
    }
}

/// Reports lost events to the callbacks of all types except errors: the types of the lost ones are unknown.
fn deliver_dropped(count: u64) {
    let of_messages = |registration: &&Registration| registration.kind != ERROR_TYPE;
    let all = lock(&REGISTRATIONS).all.clone();
    for (handle, registration) in all.iter().filter(|(_, registration)| of_messages(registration)) {
        if let (Some(dropped), Some((safety, callback))) =
            (registration.dropped, registration.callbacks.first_key_value())
        {
            dropped.call(count as i64, Address(*handle), *safety, callback.data);
        }
    }
}

pub(crate) fn t_event_get_num(count: Out<i32>) -> Answer {
    check_open()?;
    count.set(EVENT_TYPES.len() as i32);
    Ok(())
}

pub(crate) fn t_event_get_index(name: Text, index: Out<i32>) -> Answer {
    check_open()?;
    index.set(index_of_name(EVENT_TYPES.iter().map(|kind| kind.name.to_owned()), name)?);
    Ok(())
}

#[allow(clippy::too_many_arguments)] // as many as the standard has
pub(crate) fn t_event_get_info(
    index: i32,
    name: Out<u8>,
    name_len: Out<i32>,
    verbosity: Out<i32>,
    datatypes: Out<Datatype>,
    displacements: Out<i64>,
    num_elements: Out<i32>,
    enumtype: Out<Address>,
    info: Out<Info>,
    desc: Out<u8>,
    desc_len: Out<i32>,
    bind: Out<i32>,
) -> Answer {
    check_open()?;
    let kind = item_at(&EVENT_TYPES, index)?;
    store_text(name, name_len, kind.name);
    store_text(desc, desc_len, kind.description);
    verbosity.set(c::MPI_T_VERBOSITY_USER_BASIC);
    let room = num_elements.get().and_then(|room| usize::try_from(room).ok()).unwrap_or(0);
    let (places, _) = layout(kind.elements);
    for (at, (len, place)) in kind.elements.iter().zip(places).enumerate().take(room) {
        let datatype = if *len == 4 { c::MPI_INT } else { c::MPI_UINT64_T };
        datatypes.element(at).set(Datatype::new(datatype));
        displacements.element(at).set(place as i64);
    }
    num_elements.set(kind.elements.len() as i32);
    enumtype.set(Address(c::MPI_T_ENUM_NULL));
    if info.is_some() {
        info.set(new_info(mpi::Info::default())?);
    }
    bind.set(c::MPI_T_BIND_NO_OBJECT);
    Ok(())
}

/// Hints are accepted and ignored.
pub(crate) fn t_event_handle_alloc(
    index: i32,
    _object: Address,
    info: Info,
    registration: Out<Address>,
) -> Answer {
    check_open()?;
    item_at(&EVENT_TYPES, index)?;
    hints(info)?;
    let mut registrations = lock(&REGISTRATIONS);
    registrations.last += 1;
    let handle = registrations.last;
    let new = Registration { kind: index as usize, ..Registration::default() };
    registrations.all.insert(handle, new);
    registration.set(Address(handle));
    Ok(())
}

pub(crate) fn t_event_handle_free(handle: Address, data: Address, freed: Address) -> Answer {
    check_open()?;
    {
        let mut registrations = lock(&REGISTRATIONS);
        if registrations.all.remove(&handle.0).is_none() {
            return Err(tool_error(c::MPI_T_ERR_INVALID_HANDLE));
        }
        update_recording(&registrations);
    }
    if freed.0 != 0 {
        EventFreed(freed).call(handle, c::MPI_T_CB_REQUIRE_NONE, data);
    }
    Ok(())
}

pub(crate) fn t_event_handle_get_info(handle: Address, info: Out<Info>) -> Answer {
    with_registration(handle, |_| Ok(()))?;
    info.set(new_info(mpi::Info::default())?);
    Ok(())
}

pub(crate) fn t_event_handle_set_info(handle: Address, info: Info) -> Answer {
    with_registration(handle, |_| hints(info).map(drop))
}

pub(crate) fn t_event_callback_get_info(handle: Address, _safety: i32, info: Out<Info>) -> Answer {
    t_event_handle_get_info(handle, info)
}

pub(crate) fn t_event_callback_set_info(handle: Address, _safety: i32, info: Info) -> Answer {
    t_event_handle_set_info(handle, info)
}

/// A null function removes the callback. Of several callbacks, the one with the lowest safety requirement is called.
pub(crate) fn t_event_register_callback(
    handle: Address,
    safety: i32,
    _info: Info,
    data: Address,
    function: Address,
) -> Answer {
    let known = [
        c::MPI_T_CB_REQUIRE_NONE,
        c::MPI_T_CB_REQUIRE_MPI_RESTRICTED,
        c::MPI_T_CB_REQUIRE_THREAD_SAFE,
        c::MPI_T_CB_REQUIRE_ASYNC_SIGNAL_SAFE,
    ];
    if !known.contains(&safety) {
        return Err(tool_error(c::MPI_T_ERR_INVALID));
    }
    with_registration(handle, |registration| {
        if function.0 == 0 {
            registration.callbacks.remove(&safety);
        } else {
            let callback = Callback { function: EventFunction(function), data };
            registration.callbacks.insert(safety, callback);
        }
        Ok(())
    })
}

pub(crate) fn t_event_set_dropped_handler(handle: Address, dropped: Address) -> Answer {
    with_registration(handle, |registration| {
        registration.dropped = (dropped.0 != 0).then_some(EventsDropped(dropped));
        Ok(())
    })
}

/// The bytes of an element in native byte order.
fn bytes_of(event: &EventInstance, element: usize) -> Vec<u8> {
    let value = event.values[element];
    match EVENT_TYPES[event.kind].elements[element] {
        4 => (value as u32).to_ne_bytes().to_vec(),
        _ => value.to_ne_bytes().to_vec(),
    }
}

pub(crate) fn t_event_read(handle: Address, element: i32, buffer: Address) -> Answer {
    let event = delivered_event(handle)?;
    item_at(EVENT_TYPES[event.kind].elements, element)?;
    copy_to(buffer, &bytes_of(&event, element as usize));
    Ok(())
}

pub(crate) fn t_event_copy(handle: Address, buffer: Address) -> Answer {
    let event = delivered_event(handle)?;
    let elements = EVENT_TYPES[event.kind].elements;
    let (places, len) = layout(elements);
    let mut all = vec![0; len];
    for (element, (place, len)) in places.into_iter().zip(elements).enumerate() {
        all[place..place + len].copy_from_slice(&bytes_of(&event, element));
    }
    copy_to(buffer, &all);
    Ok(())
}

pub(crate) fn t_event_get_timestamp(handle: Address, timestamp: Out<i64>) -> Answer {
    let event = delivered_event(handle)?;
    timestamp.set(ticks(event.at));
    Ok(())
}

pub(crate) fn t_event_get_source(handle: Address, source: Out<i32>) -> Answer {
    delivered_event(handle)?;
    source.set(0);
    Ok(())
}

/// The source's timestamp, in nanoseconds.
fn ticks(at: Time) -> i64 {
    (at.since(Time::ZERO).as_ps() / 1000) as i64
}

pub(crate) fn t_source_get_num(count: Out<i32>) -> Answer {
    check_open()?;
    count.set(1);
    Ok(())
}

#[allow(clippy::too_many_arguments)] // as many as the standard has
pub(crate) fn t_source_get_info(
    index: i32,
    name: Out<u8>,
    name_len: Out<i32>,
    desc: Out<u8>,
    desc_len: Out<i32>,
    ordering: Out<i32>,
    ticks_per_second: Out<i64>,
    max_ticks: Out<i64>,
    info: Out<Info>,
) -> Answer {
    check_open()?;
    item_at(&["process"], index)?;
    store_text(name, name_len, "process");
    store_text(desc, desc_len, "this process, in the order in which it detects events");
    ordering.set(c::MPI_T_SOURCE_ORDERED);
    ticks_per_second.set(1_000_000_000);
    max_ticks.set(i64::MAX);
    if info.is_some() {
        info.set(new_info(mpi::Info::default())?);
    }
    Ok(())
}

pub(crate) fn t_source_get_timestamp(index: i32, timestamp: Out<i64>) -> Answer {
    check_open()?;
    item_at(&["process"], index)?;
    timestamp.set(ticks(host().now()));
    Ok(())
}
