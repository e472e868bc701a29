//! Counters (Portals 4.3, section 3.14).

use ffi::{In, Out};
use host::Span;
use portals::{CtEvent, CtHandle, Engine, Ni};

use super::queue::resolve_all;
use super::{interface, resolve, to_answer};
use crate::answer::{Answer, Code, code, missing};
use crate::export::exports;
use crate::handle;
use crate::state::closed;
use crate::types::{Handle, PtlCtEvent, Size, TIME_FOREVER};

/// Waits until one of several counters reaches its number of successes or has a failure. Freeing a counter
/// meanwhile interrupts.
fn wait(
    ni: &Ni,
    call: &'static str,
    cts: &[CtHandle],
    tests: &[Size],
    timeout: u32,
) -> Answer<(CtEvent, usize)> {
    let look = |engine: &mut Engine| {
        for (at, (ct, test)) in cts.iter().zip(tests).enumerate() {
            match engine.ct_get(*ct) {
                Ok(count) if count.success >= *test || count.failure > 0 => return Some(Ok((count, at))),
                Ok(_) => {}
                Err(_) => return Some(Err(Code::Interrupted)),
            }
        }
        None
    };
    match ni.test(look).ok_or_else(closed)? {
        Some(Err(_)) => return Err(code!(ArgInvalid, "ct_handle was freed already; pass an open counter")),
        Some(found) => return found,
        None if timeout == 0 => return Err(Code::CtNoneReached),
        None => {}
    }
    let deadline = if timeout == TIME_FOREVER { None } else { ni.after(Span::from_ms(u64::from(timeout))) };
    let none = if deadline.is_some() { Code::CtNoneReached } else { Code::Interrupted };
    ni.wait(call, deadline, look).unwrap_or(Err(none))
}

exports! {
    fn PtlCTAlloc(handle: Handle, result: Out<Handle>) {
        let (ni, result) = (interface(handle)?, result.required_or(|| missing("ct_handle"))?);
        let ct: CtHandle = to_answer(ni.with_engine(|engine| engine.ct_alloc()))?;
        result.set(handle::encode(ni.kind(), ct));
        Ok(())
    }

    fn PtlCTFree(ct: Handle) {
        let (ni, ct) = resolve::<CtHandle>(ct)?;
        to_answer(ni.with_engine(|engine| engine.ct_free(ct)))
    }

    fn PtlCTCancelTriggered(ct: Handle) {
        let (ni, ct) = resolve::<CtHandle>(ct)?;
        to_answer(ni.with_engine(|engine| engine.ct_cancel(ct)))
    }

    fn PtlCTGet(ct: Handle, event: Out<PtlCtEvent>) {
        let (ni, ct) = resolve::<CtHandle>(ct)?;
        let event = event.required_or(|| missing("event"))?;
        event.set(PtlCtEvent::new(to_answer(ni.test(|engine| engine.ct_get(ct)))?));
        Ok(())
    }

    fn PtlCTWait(ct: Handle, test: Size, event: Out<PtlCtEvent>) {
        let (ni, ct) = resolve::<CtHandle>(ct)?;
        let event = event.required_or(|| missing("event"))?;
        let (count, _) = wait(&ni, "PtlCTWait", &[ct], &[test], TIME_FOREVER)?;
        event.set(PtlCtEvent::new(count));
        Ok(())
    }

    fn PtlCTPoll(
        cts: In<Handle>,
        tests: In<Size>,
        size: u32,
        timeout: u32,
        event: Out<PtlCtEvent>,
        which: Out<u32>,
    ) {
        let (ni, cts) = resolve_all::<CtHandle>(cts, size)?;
        let tests: Vec<Size> = tests.items(cts.len()).ok_or_else(|| missing("tests"))?.collect();
        let (event, which) = (event.required_or(|| missing("event"))?, which.required_or(|| missing("which"))?);
        let (count, at) = wait(&ni, "PtlCTPoll", &cts, &tests, timeout)?;
        which.set(at as u32);
        event.set(PtlCtEvent::new(count));
        Ok(())
    }

    fn PtlCTSet(ct: Handle, to: PtlCtEvent) {
        let (ni, ct) = resolve::<CtHandle>(ct)?;
        to_answer(ni.with_engine(|engine| engine.ct_set(ct, to.count())))
    }

    fn PtlCTInc(ct: Handle, by: PtlCtEvent) {
        let (ni, ct) = resolve::<CtHandle>(ct)?;
        if by.success > 0 && by.failure > 0 {
            return Err(code!(ArgInvalid, "increment has a success and a failure count; pass one of them as 0"));
        }
        to_answer(ni.with_engine(|engine| engine.ct_inc(ct, by.count())))
    }
}
