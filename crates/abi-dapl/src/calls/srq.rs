//! Shared receive queues.

use dapl::{Error, Srq, SrqAttr as DaplAttr, Subtype};

use super::{count, mask, pieces, signed};
use crate::dat_return::dat_return;
use crate::handles::{self, Object, from_label, ia_of, invalidate, label};
use crate::types::{Handle, SrqAttr, SrqParam, Triplet};
use ffi::{In, Out};

const ALL_FIELDS: u64 = 0xFF;
const OPERATIONAL: u32 = 1;

/// `DAT_VALUE_UNKNOWN`.
const UNKNOWN: i32 = -2;

pub(crate) extern "C" fn create(ia: Handle, pz: Handle, attr: In<SrqAttr>, srq: Out<Handle>) -> u32 {
    dat_return("srq_create", || {
        handles::ia(ia, Subtype::HandleIa)?;
        let zone = handles::pz(pz, Subtype::HandlePz)?;
        if ia_of(pz) != ia {
            return Err(Error::handle(Subtype::HandlePz));
        }
        let attr = attr.required(Error::argument(Subtype::Arg3))?;
        let place = srq.required(Error::argument(Subtype::Arg4))?;
        let attr = DaplAttr {
            max_recv_dtos: count(attr.max_recv_dtos, Subtype::Arg3)?,
            max_recv_iov: count(attr.max_recv_iov, Subtype::Arg3)?,
            low_watermark: count(attr.low_watermark, Subtype::Arg3)?,
        };
        let made = Srq::create(&zone, attr)?;
        let handle = handles::insert(Object::Srq(made.clone()), label(ia))?;
        made.set_label(label(handle));
        place.set(handle);
        Ok(())
    })
}

pub(crate) extern "C" fn free(srq: Handle) -> u32 {
    dat_return("srq_free", || {
        handles::srq(srq, Subtype::HandleSrq)?.check_unused()?;
        invalidate(srq, Subtype::HandleSrq)
    })
}

pub(crate) extern "C" fn post_recv(srq: Handle, segments: i32, iov: In<Triplet>, cookie: u64) -> u32 {
    dat_return("srq_post_recv", || {
        let entry = handles::lookup(srq).ok_or(Error::handle(Subtype::HandleSrq))?;
        let Object::Srq(object) = &entry.object else { return Err(Error::handle(Subtype::HandleSrq)) };
        pieces(iov, segments, |pieces| object.post_recv(pieces, cookie))
    })
}

pub(crate) extern "C" fn query(srq: Handle, fields: u32, param: Out<SrqParam>) -> u32 {
    dat_return("srq_query", || {
        let object = handles::srq(srq, Subtype::HandleSrq)?;
        mask(fields.into(), ALL_FIELDS, Subtype::Arg2)?;
        let found = object.query();
        param.required(Error::argument(Subtype::Arg3))?.set(SrqParam {
            ia_handle: ia_of(srq),
            srq_state: OPERATIONAL,
            pz_handle: from_label(object.pz().label()),
            max_recv_dtos: signed(found.attr.max_recv_dtos),
            max_recv_iov: signed(found.attr.max_recv_iov),
            low_watermark: signed(found.attr.low_watermark),
            available_dto_count: signed(found.available),
            outstanding_dto_count: UNKNOWN,
        });
        Ok(())
    })
}

pub(crate) extern "C" fn resize(srq: Handle, max_recv_dtos: i32) -> u32 {
    dat_return("srq_resize", || {
        handles::srq(srq, Subtype::HandleSrq)?.resize(count(max_recv_dtos, Subtype::Arg2)?)
    })
}

pub(crate) extern "C" fn set_low_watermark(srq: Handle, mark: i32) -> u32 {
    dat_return("srq_set_lw", || {
        handles::srq(srq, Subtype::HandleSrq)?.set_low_watermark(count(mark, Subtype::Arg2)?)
    })
}
