//! Event dispatchers, and events in their C form.

use std::net::SocketAddr;

use dapl::{Error, Evd, EvdFlags, Event as DaplEvent, RequestEvent, Subtype};

use super::{count, lent, mask, timeout};
use crate::dat_return::dat_return;
use crate::handles::{self, Object, from_label, ia_of, invalidate, label};
use crate::types::{
    AsyncData, ConnectionData, CrArrivalData, DtoData, EvdParam, Event, EventData, Handle, RmrBindData,
};
use ffi::{CBuffer, In, Out, lock};
use std::sync::atomic::Ordering;

const ALL_FIELDS: u64 = 0x1F;

/// Bits of `DAT_EVD_STATE`.
const ENABLED: u32 = 0x01;
const DISABLED: u32 = 0x02;
const WAITABLE: u32 = 0x04;
const UNWAITABLE: u32 = 0x08;
const CONFIG_NOTIFY: u32 = 0x10;
const CONFIG_SOLICITED: u32 = 0x20;

const DTO_COMPLETION: u32 = 0x00001;
const RMR_BIND_COMPLETION: u32 = 0x01001;
const CONNECTION_REQUEST: u32 = 0x02001;
const SOFTWARE: u32 = 0x10001;

pub(crate) extern "C" fn create(ia: Handle, qlen: i32, cno: Handle, flags: u32, evd: Out<Handle>) -> u32 {
    dat_return("evd_create", || {
        let object = handles::ia(ia, Subtype::HandleIa)?;
        let qlen = count(qlen, Subtype::Arg2)?;
        let cno = handles::optional(cno, Subtype::HandleCno, handles::cno)?;
        let flags = EvdFlags::from_bits(flags).ok_or(Error::argument(Subtype::Arg4))?;
        let place = evd.required(Error::argument(Subtype::Arg5))?;
        let evd = Evd::create(&object.ia, qlen, cno.as_ref(), flags)?;
        let handle = handles::insert(Object::Evd(evd.clone()), label(ia))?;
        evd.set_label(label(handle));
        place.set(handle);
        Ok(())
    })
}

pub(crate) extern "C" fn query(evd: Handle, fields: u32, param: Out<EvdParam>) -> u32 {
    dat_return("evd_query", || {
        let object = handles::evd(evd, Subtype::None)?;
        mask(fields.into(), ALL_FIELDS, Subtype::Arg2)?;
        let place = param.required(Error::argument(Subtype::Arg3))?;
        let found = object.query();
        let config = if found.solicited { CONFIG_SOLICITED } else { CONFIG_NOTIFY };
        let enabled = if found.enabled { ENABLED } else { DISABLED };
        let waitable = if found.waitable { WAITABLE } else { UNWAITABLE };
        place.set(EvdParam {
            ia_handle: ia_of(evd),
            evd_qlen: super::signed(found.qlen),
            evd_state: enabled | waitable | config,
            cno_handle: found.cno.map_or(std::ptr::null_mut(), from_label),
            evd_flags: found.flags.bits(),
        });
        Ok(())
    })
}

pub(crate) extern "C" fn modify_cno(evd: Handle, cno: Handle) -> u32 {
    dat_return("evd_modify_cno", || {
        let object = handles::evd(evd, Subtype::None)?;
        let cno = handles::optional(cno, Subtype::HandleCno, handles::cno)?;
        object.modify_cno(cno.as_ref())
    })
}

pub(crate) extern "C" fn enable(evd: Handle) -> u32 {
    dat_return("evd_enable", || handles::evd(evd, Subtype::None).map(|evd| evd.enable()))
}

pub(crate) extern "C" fn disable(evd: Handle) -> u32 {
    dat_return("evd_disable", || handles::evd(evd, Subtype::None).map(|evd| evd.disable()))
}

pub(crate) extern "C" fn set_unwaitable(evd: Handle) -> u32 {
    dat_return("evd_set_unwaitable", || handles::evd(evd, Subtype::None).map(|evd| evd.set_unwaitable()))
}

pub(crate) extern "C" fn clear_unwaitable(evd: Handle) -> u32 {
    dat_return("evd_clear_unwaitable", || handles::evd(evd, Subtype::None).map(|evd| evd.clear_unwaitable()))
}

pub(crate) extern "C" fn wait(
    evd: Handle,
    microseconds: u32,
    threshold: i32,
    event: Out<Event>,
    more: Out<i32>,
) -> u32 {
    dat_return("evd_wait", || {
        let object = handles::evd(evd, Subtype::None)?;
        let (event, more) =
            (event.required(Error::argument(Subtype::Arg4))?, more.required(Error::argument(Subtype::Arg5))?);
        let threshold = count(threshold, Subtype::Arg3)?;
        more.set(0);
        let (found, queued) = object.wait(timeout(microseconds), threshold)?;
        event.set(to_c(evd, found));
        more.set(i32::try_from(queued).unwrap_or(i32::MAX));
        Ok(())
    })
}

pub(crate) extern "C" fn dequeue(evd: Handle, event: Out<Event>) -> u32 {
    dat_return("evd_dequeue", || {
        let entry = handles::lookup(evd).ok_or(Error::handle(Subtype::None))?;
        let Object::Evd(object) = &entry.object else { return Err(Error::handle(Subtype::None)) };
        let place = event.required(Error::argument(Subtype::Arg2))?;
        let found = object.dequeue()?;
        drop(entry);
        place.set(to_c(evd, found));
        Ok(())
    })
}

pub(crate) extern "C" fn resize(evd: Handle, qlen: i32) -> u32 {
    dat_return("evd_resize", || handles::evd(evd, Subtype::None)?.resize(count(qlen, Subtype::Arg2)?))
}

pub(crate) extern "C" fn post_se(evd: Handle, event: In<Event>) -> u32 {
    dat_return("evd_post_se", || {
        let object = handles::evd(evd, Subtype::None)?;
        let event = event.required(Error::argument(Subtype::Arg2))?;
        if event.event_number != SOFTWARE {
            return Err(Error::argument(Subtype::Arg2));
        }
        // SAFETY: every bit pattern is a valid pointer value. Test: `software_events_come_back`.
        let pointer = unsafe { event.event_data.software };
        object.post_software(pointer.addr() as u64)
    })
}

pub(crate) extern "C" fn free(evd: Handle) -> u32 {
    dat_return("evd_free", || {
        let object = handles::evd(evd, Subtype::None)?;
        let ia = handles::ia(ia_of(evd), Subtype::None);
        if ia.is_ok_and(|ia| ia.async_evd == evd) {
            return Err(Error::state(Subtype::EvdInUse));
        }
        object.check_unused()?;
        invalidate(evd, Subtype::None)
    })
}

/// Converts an event to C. Connection requests get their handles here.
#[inline]
fn to_c(evd: Handle, event: DaplEvent) -> Event {
    let (event_number, event_data) = match event {
        DaplEvent::Dto(dto) => {
            let data = DtoData {
                ep_handle: from_label(dto.ep),
                user_cookie: dto.cookie,
                status: dto.status as u32,
                transfered_length: dto.length,
                operation: dto.operation as u32,
                rmr_context: dto.invalidated.unwrap_or(0),
            };
            (DTO_COMPLETION, EventData { dto: data })
        }
        other => other_event(evd, other),
    };
    Event { event_number, evd_handle: evd, event_data, event_extension_data: [0; 8] }
}

#[cold]
fn other_event(evd: Handle, event: DaplEvent) -> (u32, EventData) {
    match event {
        DaplEvent::RmrBind { rmr, cookie, status } => {
            let data =
                RmrBindData { rmr_handle: from_label(rmr), user_cookie: cookie, status: status as u32 };
            (RMR_BIND_COMPLETION, EventData { rmr_bind: data })
        }
        DaplEvent::ConnectionRequest(request) => {
            (CONNECTION_REQUEST, EventData { cr_arrival: insert_request(evd, *request) })
        }
        DaplEvent::Connection { ep, kind, private_data } => {
            let ep_handle = from_label(ep);
            let (private_data_size, private_data) = lend(ep_handle, &private_data);
            let data = ConnectionData { ep_handle, private_data_size, private_data };
            (kind as u32, EventData { connect: data })
        }
        DaplEvent::Async { object, kind, reason } => {
            (kind as u32, EventData { asynch: AsyncData { dat_handle: from_label(object), reason } })
        }
        DaplEvent::Software(pointer) => {
            (SOFTWARE, EventData { software: std::ptr::without_provenance_mut(pointer as usize) })
        }
        DaplEvent::Dto(_) => (0, EventData { words: [0; 5] }),
    }
}

/// Stores private data for the program, until the object gets other data or is freed.
fn lend(handle: Handle, bytes: &[u8]) -> (i32, *mut std::ffi::c_void) {
    match handles::lookup(handle) {
        Some(entry) if !bytes.is_empty() => {
            let buffer = CBuffer::new(bytes);
            let lent = lent(&buffer);
            *lock(&entry.private_data) = Some(buffer);
            lent
        }
        _ => (0, std::ptr::null_mut()),
    }
}

/// Creates the handles of a connection request, and converts it to C. A request for which no handle is left is dropped, which
/// rejects it.
fn insert_request(evd: Handle, request: RequestEvent) -> CrArrivalData {
    let ia = handles::lookup(evd).map_or(0, |entry| entry.ia.load(Ordering::Relaxed));
    let cr = request.cr.clone();
    // An endpoint created for the request has no handle yet.
    if let Some(ep) = cr.local_ep()
        && handles::lookup(from_label(ep.label())).is_none()
        && let Ok(handle) = handles::insert(Object::Ep(ep.clone()), ia)
    {
        ep.set_label(label(handle));
    }
    let cr_handle = handles::insert(Object::Cr(request.cr), ia).unwrap_or(std::ptr::null_mut());
    let mut local_ia_address_ptr = std::ptr::null_mut();
    if let Some(entry) = handles::lookup(cr_handle) {
        let local = CBuffer::address(SocketAddr::new(request.local.ip(), request.local.port()));
        local_ia_address_ptr = local.as_ptr();
        lock(&entry.addresses)[0] = Some(local);
        lend(cr_handle, cr.private_data());
    }
    CrArrivalData {
        sp_handle: from_label(request.sp),
        local_ia_address_ptr,
        conn_qual: request.conn_qual,
        cr_handle,
        truncate_flag: 0,
    }
}
