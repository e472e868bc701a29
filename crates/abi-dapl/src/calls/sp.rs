//! Service points, and connection requests.

use std::sync::Arc;

use dapl::{Cr, Error, ErrorKind, Psp, Result, Rsp, Subtype};

use super::{bytes, lent, mask};
use crate::dat_return::{dat_return, not_implemented};
use crate::handles::{self, Object, from_label, ia_of, invalidate, label, lend_address};
use crate::types::{CrParam, Handle, PspParam, RspParam};
use ffi::{Bytes, In, Out, SockAddr, lock};

const ALL_SP_FIELDS: u64 = 0x0F;
const ALL_CR_FIELDS: u64 = 0x1F;
const CONSUMER: u32 = 0;
const PROVIDER: u32 = 1;

fn is_provider(flags: u32) -> Result<bool> {
    match flags {
        CONSUMER => Ok(false),
        PROVIDER => Ok(true),
        _ => Err(Error::argument(Subtype::Arg4)),
    }
}

pub(crate) extern "C" fn psp_create(
    ia: Handle,
    conn_qual: u64,
    evd: Handle,
    flags: u32,
    psp: Out<Handle>,
) -> u32 {
    dat_return("psp_create", || {
        let object = handles::ia(ia, Subtype::HandleIa)?;
        let evd = handles::evd(evd, Subtype::HandleEvdCr)?;
        let provider = is_provider(flags)?;
        let place = psp.required(Error::argument(Subtype::Arg5))?;
        let made = Arc::new(Psp::create(&object.ia, conn_qual, &evd, provider)?);
        let handle = handles::insert(Object::Psp(made.clone()), label(ia))?;
        made.set_label(label(handle));
        place.set(handle);
        Ok(())
    })
}

pub(crate) extern "C" fn psp_create_any(
    ia: Handle,
    conn_qual: Out<u64>,
    evd: Handle,
    flags: u32,
    psp: Out<Handle>,
) -> u32 {
    dat_return("psp_create_any", || {
        let object = handles::ia(ia, Subtype::HandleIa)?;
        let conn_qual = conn_qual.required(Error::argument(Subtype::Arg2))?;
        let evd = handles::evd(evd, Subtype::HandleEvdCr)?;
        let provider = is_provider(flags)?;
        let place = psp.required(Error::argument(Subtype::Arg5))?;
        let made = Arc::new(Psp::create_any(&object.ia, &evd, provider)?);
        let handle = handles::insert(Object::Psp(made.clone()), label(ia))?;
        made.set_label(label(handle));
        conn_qual.set(made.conn_qual());
        place.set(handle);
        Ok(())
    })
}

pub(crate) extern "C" fn psp_query(psp: Handle, fields: u32, param: Out<PspParam>) -> u32 {
    dat_return("psp_query", || {
        let object = handles::psp(psp, Subtype::HandlePsp)?;
        mask(fields.into(), ALL_SP_FIELDS, Subtype::Arg2)?;
        param.required(Error::argument(Subtype::Arg3))?.set(PspParam {
            ia_handle: ia_of(psp),
            conn_qual: object.conn_qual(),
            evd_handle: from_label(object.evd().label()),
            psp_flags: if object.is_provider() { PROVIDER } else { CONSUMER },
        });
        Ok(())
    })
}

pub(crate) extern "C" fn psp_free(psp: Handle) -> u32 {
    dat_return("psp_free", || {
        handles::psp(psp, Subtype::HandlePsp)?;
        invalidate(psp, Subtype::HandlePsp)
    })
}

pub(crate) extern "C" fn rsp_create(
    ia: Handle,
    conn_qual: u64,
    ep: Handle,
    evd: Handle,
    rsp: Out<Handle>,
) -> u32 {
    dat_return("rsp_create", || {
        let object = handles::ia(ia, Subtype::HandleIa)?;
        let ep = handles::ep(ep, Subtype::HandleEp)?;
        let evd = handles::evd(evd, Subtype::HandleEvdCr)?;
        let place = rsp.required(Error::argument(Subtype::Arg5))?;
        let made = Arc::new(Rsp::create(&object.ia, conn_qual, &ep, &evd)?);
        let handle = handles::insert(Object::Rsp(made.clone()), label(ia))?;
        made.set_label(label(handle));
        place.set(handle);
        Ok(())
    })
}

pub(crate) extern "C" fn rsp_query(rsp: Handle, fields: u32, param: Out<RspParam>) -> u32 {
    dat_return("rsp_query", || {
        let object = handles::rsp(rsp, Subtype::HandleRsp)?;
        mask(fields.into(), ALL_SP_FIELDS, Subtype::Arg2)?;
        param.required(Error::argument(Subtype::Arg3))?.set(RspParam {
            ia_handle: ia_of(rsp),
            conn_qual: object.conn_qual(),
            evd_handle: from_label(object.evd().label()),
            ep_handle: object.ep().map_or(std::ptr::null_mut(), |ep| from_label(ep.label())),
        });
        Ok(())
    })
}

pub(crate) extern "C" fn rsp_free(rsp: Handle) -> u32 {
    dat_return("rsp_free", || {
        handles::rsp(rsp, Subtype::HandleRsp)?;
        invalidate(rsp, Subtype::HandleRsp)
    })
}

/// The object of a request that is not answered yet.
fn open_cr(cr: Handle) -> Result<Cr> {
    let object = handles::cr(cr, Subtype::HandleCr)?;
    if object.is_open() { Ok(object) } else { Err(Error::handle(Subtype::HandleCr)) }
}

pub(crate) extern "C" fn cr_query(cr: Handle, fields: u32, param: Out<CrParam>) -> u32 {
    dat_return("cr_query", || {
        let object = open_cr(cr)?;
        mask(fields.into(), ALL_CR_FIELDS, Subtype::Arg2)?;
        let place = param.required(Error::argument(Subtype::Arg3))?;
        let entry = handles::lookup(cr).ok_or(Error::handle(Subtype::HandleCr))?;
        let lent = lock(&entry.private_data).as_ref().map(lent);
        let (private_data_size, private_data) = lent.unwrap_or((0, std::ptr::null_mut()));
        drop(entry);
        place.set(CrParam {
            remote_ia_address_ptr: lend_address(cr, 1, object.remote()),
            remote_port_qual: object.remote().port().into(),
            private_data_size,
            private_data,
            local_ep_handle: object.local_ep().map_or(std::ptr::null_mut(), |ep| from_label(ep.label())),
        });
        Ok(())
    })
}

pub(crate) extern "C" fn cr_accept(cr: Handle, ep: Handle, size: i32, private_data: Bytes) -> u32 {
    dat_return("cr_accept", || {
        let object = open_cr(cr)?;
        let ep = handles::optional(ep, Subtype::HandleEp, handles::ep)?;
        let private_data = bytes(private_data, size, Subtype::Arg3, Subtype::Arg4)?;
        let accepted = object.accept(ep.as_ref(), &private_data);
        // The handle is invalid once the request is answered, even if the answer failed on its way to the peer.
        if !object.is_open() {
            handles::remove(cr);
        }
        accepted
    })
}

pub(crate) extern "C" fn cr_reject(cr: Handle, size: i32, private_data: Bytes) -> u32 {
    dat_return("cr_reject", || {
        let object = open_cr(cr)?;
        let private_data = bytes(private_data, size, Subtype::Arg2, Subtype::Arg3)?;
        let rejected = object.reject(&private_data);
        if !object.is_open() {
            handles::remove(cr);
        }
        rejected
    })
}

pub(crate) extern "C" fn cr_handoff(cr: Handle, _conn_qual: u64) -> u32 {
    dat_return("cr_handoff", || {
        open_cr(cr)?;
        not_implemented()
    })
}

pub(crate) extern "C" fn csp_create(
    ia: Handle,
    _comm: In<[i32; 3]>,
    _address: SockAddr,
    _evd: Handle,
    _csp: Out<Handle>,
) -> u32 {
    dat_return("csp_create", || {
        handles::ia(ia, Subtype::HandleIa)?;
        Err(Error::new(ErrorKind::NotImplemented, Subtype::None))
    })
}

pub(crate) extern "C" fn csp_query(_csp: Handle, _fields: u32, _param: Out<[u64; 4]>) -> u32 {
    // No such objects can be created, so every handle is invalid.
    Error::handle(Subtype::HandleCsp).code()
}

pub(crate) extern "C" fn csp_free(_csp: Handle) -> u32 {
    Error::handle(Subtype::HandleCsp).code()
}
