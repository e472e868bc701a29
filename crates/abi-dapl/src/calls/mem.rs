//! Protection zones (`dat_pz_*`) and memory regions (`dat_lmr_*`, `dat_rmr_*`).

use std::ptr::NonNull;
use std::sync::Arc;

use dapl::{Buf, CompletionFlags, Error, ErrorKind, Lmr, MemPriv, Pz, Result, Rmr, Sge, Subtype};

use super::mask;
use crate::dat_return::{dat_return, not_implemented};
use crate::handles::{self, Object, from_label, ia_of, invalidate, label};
use crate::types::{Handle, LmrParam, PzParam, RegionDescription, RmrParam, Triplet};
use ffi::{In, Out};

const ALL_PZ_FIELDS: u64 = 0x01;
const ALL_LMR_FIELDS: u64 = 0x7FF;
const ALL_RMR_FIELDS: u64 = 0x7F;

/// `DAT_MEM_TYPE_VIRTUAL` and `DAT_MEM_TYPE_LMR`.
const VIRTUAL: u32 = 0;
const OF_LMR: u32 = 1;

/// `DAT_VA_TYPE_VA`: peers use the region's own virtual addresses.
const VA: u32 = 0;
const SCOPE_PZ: u32 = 1;

pub(crate) extern "C" fn pz_create(ia: Handle, pz: Out<Handle>) -> u32 {
    dat_return("pz_create", || {
        let object = handles::ia(ia, Subtype::HandleIa)?;
        let out = pz.required(Error::argument(Subtype::Arg2))?;
        let zone = Pz::create(&object.ia)?;
        let handle = handles::insert(Object::Pz(zone.clone()), label(ia))?;
        // Attributes name the zone by its label, from which the handle is found again.
        zone.set_label(label(handle));
        out.set(handle);
        Ok(())
    })
}

pub(crate) extern "C" fn pz_query(pz: Handle, fields: u32, param: Out<PzParam>) -> u32 {
    dat_return("pz_query", || {
        handles::pz(pz, Subtype::HandlePz)?;
        mask(fields.into(), ALL_PZ_FIELDS, Subtype::Arg2)?;
        param.required(Error::argument(Subtype::Arg3))?.set(PzParam { ia_handle: ia_of(pz) });
        Ok(())
    })
}

pub(crate) extern "C" fn pz_free(pz: Handle) -> u32 {
    dat_return("pz_free", || {
        handles::pz(pz, Subtype::HandlePz)?.check_unused()?;
        invalidate(pz, Subtype::HandlePz)
    })
}

/// The program's memory, as a buffer. Registration checks that it is mapped.
fn buffer(address: *mut std::ffi::c_void, length: u64) -> Result<Buf> {
    let base = NonNull::new(address.cast::<u8>()).ok_or(Error::argument(Subtype::Arg3))?;
    let len = usize::try_from(length).ok().filter(|len| *len > 0 && isize::try_from(*len).is_ok());
    let len = len.ok_or(Error::new(ErrorKind::LengthError, Subtype::None))?;
    // SAFETY: a program knows that peers change registered memory; this library creates no reference to it. Test: dapltest with
    // -V.
    Ok(unsafe { Buf::from_program(base, len) })
}

#[allow(clippy::too_many_arguments)] // the standard's signature
pub(crate) extern "C" fn lmr_create(
    ia: Handle,
    mem_type: u32,
    region: RegionDescription,
    length: u64,
    pz: Handle,
    privileges: u32,
    va_type: u32,
    lmr: Out<Handle>,
    lmr_context: Out<u32>,
    rmr_context: Out<u32>,
    registered_length: Out<u64>,
    registered_address: Out<u64>,
) -> u32 {
    dat_return("lmr_create", || {
        handles::ia(ia, Subtype::HandleIa)?;
        let zone = handles::pz(pz, Subtype::HandlePz)?;
        if ia_of(pz) != ia {
            return Err(Error::handle(Subtype::HandlePz));
        }
        let privileges = MemPriv::from_bits(privileges).ok_or(Error::argument(Subtype::Arg6))?;
        let place = lmr.required(Error::argument(Subtype::Arg8))?;
        if va_type != VA {
            return Err(Error::new(ErrorKind::ModelNotSupported, Subtype::None));
        }
        let buf = match mem_type {
            VIRTUAL => buffer(region.for_va, length)?,
            OF_LMR => handles::lmr(region.for_va, Subtype::HandleLmr)?.buf().clone(),
            _ => return Err(Error::new(ErrorKind::ModelNotSupported, Subtype::None)),
        };
        let made = Arc::new(Lmr::create(&zone, &buf, privileges)?);
        place.set(handles::insert(Object::Lmr(made.clone()), label(ia))?);
        lmr_context.set(made.lmr_context());
        rmr_context.set(made.rmr_context());
        registered_length.set(made.buf().len() as u64);
        registered_address.set(made.address());
        Ok(())
    })
}

pub(crate) extern "C" fn lmr_query(lmr: Handle, fields: u32, param: Out<LmrParam>) -> u32 {
    dat_return("lmr_query", || {
        let object = handles::lmr(lmr, Subtype::HandleLmr)?;
        mask(fields.into(), ALL_LMR_FIELDS, Subtype::Arg2)?;
        let address = object.buf().as_ptr().cast::<std::ffi::c_void>();
        param.required(Error::argument(Subtype::Arg3))?.set(LmrParam {
            ia_handle: ia_of(lmr),
            mem_type: VIRTUAL,
            region_desc: RegionDescription { for_va: address, shared_memory_id: std::ptr::null_mut() },
            length: object.buf().len() as u64,
            pz_handle: from_label(object.pz().label()),
            mem_priv: object.privileges().bits(),
            va_type: VA,
            lmr_context: object.lmr_context(),
            rmr_context: object.rmr_context(),
            registered_size: object.buf().len() as u64,
            registered_address: object.address(),
        });
        Ok(())
    })
}

pub(crate) extern "C" fn lmr_free(lmr: Handle) -> u32 {
    dat_return("lmr_free", || {
        let object = handles::lmr(lmr, Subtype::HandleLmr)?;
        object.check_unused()?;
        invalidate(lmr, Subtype::HandleLmr)?;
        // The last reference deregisters the memory, and can report the result; another call may still use the object.
        Arc::into_inner(object).map_or(Ok(()), Lmr::free)
    })
}

pub(crate) extern "C" fn lmr_sync(ia: Handle, segments: In<Triplet>, count: u64) -> u32 {
    dat_return("lmr_sync_rdma_read", || {
        handles::ia(ia, Subtype::HandleIa)?;
        if count > 0 && segments.get().is_none() {
            return Err(Error::argument(Subtype::Arg2));
        }
        // Memory is coherent on all devices.
        Ok(())
    })
}

pub(crate) extern "C" fn rmr_create(pz: Handle, rmr: Out<Handle>) -> u32 {
    dat_return("rmr_create", || {
        let zone = handles::pz(pz, Subtype::HandlePz)?;
        let place = rmr.required(Error::argument(Subtype::Arg2))?;
        let made = Arc::new(Rmr::create(&zone));
        let handle = handles::insert(Object::Rmr(made.clone()), label(ia_of(pz)))?;
        made.set_label(label(handle));
        place.set(handle);
        Ok(())
    })
}

pub(crate) extern "C" fn rmr_create_for_ep(pz: Handle, _rmr: Out<Handle>) -> u32 {
    dat_return("rmr_create_for_ep", || {
        handles::pz(pz, Subtype::HandlePz)?;
        not_implemented()
    })
}

pub(crate) extern "C" fn rmr_query(rmr: Handle, fields: u32, param: Out<RmrParam>) -> u32 {
    dat_return("rmr_query", || {
        let object = handles::rmr(rmr, Subtype::HandleRmr)?;
        mask(fields.into(), ALL_RMR_FIELDS, Subtype::Arg2)?;
        let found = object.query();
        param.required(Error::argument(Subtype::Arg3))?.set(RmrParam {
            ia_handle: ia_of(rmr),
            pz_handle: from_label(object.pz().label()),
            lmr_triplet: Triplet {
                virtual_address: found.segment.addr,
                segment_length: found.segment.length,
                context: found.segment.lkey,
            },
            mem_priv: found.privileges.bits(),
            rmr_context: found.rmr_context,
            rmr_scope: SCOPE_PZ,
            va_type: VA,
        });
        Ok(())
    })
}

#[allow(clippy::too_many_arguments)] // the standard's signature
pub(crate) extern "C" fn rmr_bind(
    rmr: Handle,
    lmr: Handle,
    triplet: In<Triplet>,
    privileges: u32,
    va_type: u32,
    ep: Handle,
    cookie: u64,
    flags: u32,
    context: Out<u32>,
) -> u32 {
    dat_return("rmr_bind", || {
        let object = handles::rmr(rmr, Subtype::HandleRmr)?;
        let region = handles::lmr(lmr, Subtype::HandleLmr)?;
        let triplet = triplet.required(Error::argument(Subtype::Arg3))?;
        let privileges = MemPriv::from_bits(privileges).ok_or(Error::argument(Subtype::Arg4))?;
        if va_type != VA {
            return Err(Error::new(ErrorKind::ModelNotSupported, Subtype::None));
        }
        let ep = handles::ep(ep, Subtype::HandleEp)?;
        let flags = CompletionFlags::from_bits(flags).ok_or(Error::argument(Subtype::Arg8))?;
        let segment =
            Sge { addr: triplet.virtual_address, length: triplet.segment_length, lkey: triplet.context };
        context.set(object.bind(&ep, &region, segment, privileges, cookie, flags)?);
        Ok(())
    })
}

pub(crate) extern "C" fn rmr_free(rmr: Handle) -> u32 {
    dat_return("rmr_free", || {
        handles::rmr(rmr, Subtype::HandleRmr)?;
        invalidate(rmr, Subtype::HandleRmr)
    })
}
