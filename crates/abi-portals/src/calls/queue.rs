//! Event queues (Portals 4.3, section 3.13).

use ffi::{In, Out};
use host::Span;
use portals::{Engine, EqHandle, Event, Ni};

use super::{interface, resolve, to_answer};
use crate::answer::{Answer, Code, code, missing};
use crate::export::exports;
use crate::handle;
use crate::state::closed;
use crate::types::{Handle, PtlEvent, Size, TIME_FOREVER};

/// Maximum number of slots of a queue: the requested number is a hint.
const SLOTS_MAX: Size = 1 << 22;
/// Maximum number of queues or counters that one call polls.
pub(super) const POLLED_MAX: u32 = 1 << 16;

/// Stores an event for the program; fails with `EqDropped` if events before it were lost.
fn store_event(taken: (Event, bool), event: Out<PtlEvent>) -> Answer<()> {
    event.set(PtlEvent::new(&taken.0));
    if taken.1 { Err(Code::EqDropped) } else { Ok(()) }
}

/// Waits for an event of one of several queues. Freeing a queue meanwhile interrupts.
fn wait(ni: &Ni, call: &'static str, eqs: &[EqHandle], timeout: u32) -> Answer<((Event, bool), usize)> {
    let mut first = 0;
    let mut poll_queues = |engine: &mut Engine| {
        // Rotate, so that a queue that is always full does not starve the others.
        first = (first + 1) % eqs.len();
        for at in (0..eqs.len()).map(|at| (first + at) % eqs.len()) {
            match engine.eq_get(eqs[at]) {
                Ok(Some(taken)) => return Some(Ok((taken, at))),
                Ok(None) => {}
                Err(_) => return Some(Err(Code::Interrupted)),
            }
        }
        None
    };
    match ni.test(&mut poll_queues).ok_or_else(closed)? {
        Some(Err(_)) => {
            return Err(code!(ArgInvalid, "eq_handle was freed already; pass an open event queue"));
        }
        Some(found) => return found,
        None if timeout == 0 => return Err(Code::EqEmpty),
        None => {}
    }
    let deadline = if timeout == TIME_FOREVER { None } else { ni.after(Span::from_ms(u64::from(timeout))) };
    let none = if deadline.is_some() { Code::EqEmpty } else { Code::Interrupted };
    ni.wait(call, deadline, poll_queues).unwrap_or(Err(none))
}

/// Objects of one interface, from an array of handles.
pub(super) fn resolve_all<T: handle::Object>(handles: In<Handle>, size: u32) -> Answer<(Ni, Vec<T>)> {
    if size == 0 || size > POLLED_MAX {
        return Err(code!(ArgInvalid, "size is {size}; pass the number of handles, 1 to {POLLED_MAX}"));
    }
    let mut items = handles.items(size as usize).ok_or_else(|| missing("the array of handles"))?;
    let (ni, first) = resolve::<T>(items.next().ok_or_else(|| missing("the array of handles"))?)?;
    let mut objects = vec![first];
    for item in items {
        let (number, object) = handle::decode(item)?;
        if number != ni.kind().number() {
            return Err(super::other_interface(item));
        }
        objects.push(object);
    }
    Ok((ni, objects))
}

exports! {
    fn PtlEQAlloc(handle: Handle, count: Size, result: Out<Handle>) {
        let (ni, result) = (interface(handle)?, result.required_or(|| missing("eq_handle"))?);
        if count > SLOTS_MAX {
            return Err(code!(NoSpace, "count is {count}, but an event queue has at most {SLOTS_MAX} slots; pass less"));
        }
        let eq: EqHandle = to_answer(ni.with_engine(|engine| engine.eq_alloc(count as usize)))?;
        result.set(handle::encode(ni.kind(), eq));
        Ok(())
    }

    fn PtlEQFree(eq: Handle) {
        let (ni, eq) = resolve::<EqHandle>(eq)?;
        to_answer(ni.with_engine(|engine| engine.eq_free(eq)))
    }

    fn PtlEQGet(eq: Handle, event: Out<PtlEvent>) {
        let (ni, eq) = resolve::<EqHandle>(eq)?;
        let event = event.required_or(|| missing("event"))?;
        store_event(to_answer(ni.test(|engine| engine.eq_get(eq)))?.ok_or(Code::EqEmpty)?, event)
    }

    fn PtlEQWait(eq: Handle, event: Out<PtlEvent>) {
        let (ni, eq) = resolve::<EqHandle>(eq)?;
        let event = event.required_or(|| missing("event"))?;
        store_event(wait(&ni, "PtlEQWait", &[eq], TIME_FOREVER)?.0, event)
    }

    fn PtlEQPoll(eqs: In<Handle>, size: u32, timeout: u32, event: Out<PtlEvent>, which: Out<u32>) {
        let (ni, eqs) = resolve_all::<EqHandle>(eqs, size)?;
        let (event, which) = (event.required_or(|| missing("event"))?, which.required_or(|| missing("which"))?);
        let (taken, at) = wait(&ni, "PtlEQPoll", &eqs, timeout)?;
        which.set(at as u32);
        store_event(taken, event)
    }
}
