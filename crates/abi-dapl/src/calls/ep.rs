//! Endpoints (`dat_ep_*`).

use std::net::SocketAddr;

use dapl::{
    Close, CompletionFlags, Ep, EpAttr as DaplAttr, EpConfig, EpState, Error, ErrorKind, RemoteAddr, Result,
    Sge, Subtype,
};

use super::{bytes, count, mask, pieces, signed, timeout};
use crate::dat_return::{dat_return, not_implemented};
use crate::handles::{self, Object, from_label, ia_of, invalidate, label, lend_address};
use crate::types::{EpAttr, EpParam, Handle, Triplet};
use ffi::{Bytes, In, Out, SockAddr};

/// Bits of `DAT_EP_PARAM_MASK`.
const FIELD_PZ: u64 = 0x080;
const FIELD_RECV_EVD: u64 = 0x100;
const FIELD_REQUEST_EVD: u64 = 0x200;
const FIELD_CONNECT_EVD: u64 = 0x400;
const FIELD_SRQ: u64 = 0x800;
const FIELD_ATTR: u64 = 0x7FFF_F000;
const ALL_FIELDS: u64 = 0x7FFF_FFFF;

const SERVICE_RC: u32 = 0;
const BEST_EFFORT: u32 = 0;

pub(crate) extern "C" fn create(
    ia: Handle,
    pz: Handle,
    recv_evd: Handle,
    request_evd: Handle,
    connect_evd: Handle,
    attr: In<EpAttr>,
    ep: Out<Handle>,
) -> u32 {
    dat_return("ep_create", || {
        make(
            ia,
            [pz, recv_evd, request_evd, connect_evd],
            None, // no shared receive queue
            attr,
            ep.required(Error::argument(Subtype::Arg7)),
        )
    })
}

#[allow(clippy::too_many_arguments)] // the standard's signature
pub(crate) extern "C" fn create_with_srq(
    ia: Handle,
    pz: Handle,
    recv_evd: Handle,
    request_evd: Handle,
    connect_evd: Handle,
    srq: Handle,
    attr: In<EpAttr>,
    ep: Out<Handle>,
) -> u32 {
    dat_return("ep_create_with_srq", || {
        make(
            ia,
            [pz, recv_evd, request_evd, connect_evd],
            Some(srq),
            attr,
            ep.required(Error::argument(Subtype::Arg8)),
        )
    })
}

fn make(
    ia: Handle,
    [pz, recv_evd, request_evd, connect_evd]: [Handle; 4],
    srq: Option<Handle>,
    attr: In<EpAttr>,
    place: Result<Out<Handle>>,
) -> Result<()> {
    let object = handles::ia(ia, Subtype::HandleIa)?;
    let config = EpConfig {
        pz: handles::optional(pz, Subtype::HandlePz, handles::pz)?,
        recv_evd: handles::optional(recv_evd, Subtype::HandleEvdRecv, handles::evd)?,
        request_evd: handles::optional(request_evd, Subtype::HandleEvdRequest, handles::evd)?,
        connect_evd: handles::optional(connect_evd, Subtype::HandleEvdConn, handles::evd)?,
        srq: srq.map(|srq| handles::srq(srq, Subtype::HandleSrq)).transpose()?,
        attr: attr.get().map(|attr| attributes(&attr)).transpose()?,
    };
    let place = place?;
    let ep = Ep::create(&object.ia, config)?;
    let handle = handles::insert(Object::Ep(ep.clone()), label(ia))?;
    ep.set_label(label(handle));
    place.set(handle);
    Ok(())
}

fn attributes(attr: &EpAttr) -> Result<DaplAttr> {
    let wrong = Subtype::Arg6;
    let flags = |bits| CompletionFlags::from_bits(bits).ok_or(Error::argument(wrong));
    if attr.service_type != SERVICE_RC {
        return Err(Error::argument(wrong));
    }
    Ok(DaplAttr {
        max_message_size: attr.max_message_size,
        max_rdma_size: attr.max_rdma_size,
        recv_completion_flags: flags(attr.recv_completion_flags)?,
        request_completion_flags: flags(attr.request_completion_flags)?,
        max_recv_dtos: count(attr.max_recv_dtos, wrong)?,
        max_request_dtos: count(attr.max_request_dtos, wrong)?,
        max_recv_iov: count(attr.max_recv_iov, wrong)?,
        max_request_iov: count(attr.max_request_iov, wrong)?,
        max_rdma_read_in: count(attr.max_rdma_read_in, wrong)?,
        max_rdma_read_out: count(attr.max_rdma_read_out, wrong)?,
    })
}

pub(crate) extern "C" fn query(ep: Handle, fields: u64, param: Out<EpParam>) -> u32 {
    dat_return("ep_query", || {
        let object = handles::ep(ep, Subtype::HandleEp)?;
        mask(fields, ALL_FIELDS, Subtype::Arg2)?;
        let place = param.required(Error::argument(Subtype::Arg3))?;
        let (config, attr) = object.config();
        let link = object.link();
        let ia = handles::ia(ia_of(ep), Subtype::HandleEp)?;
        let any_port = |ip| SocketAddr::new(ip, 0);
        let remote = link.remote.unwrap_or(any_port([0, 0, 0, 0].into()));
        let handle = |label: Option<u64>| label.map_or(std::ptr::null_mut(), from_label);
        let evd = |evd: &Option<dapl::Evd>| handle(evd.as_ref().map(|evd| evd.label()));
        place.set(EpParam {
            ia_handle: ia_of(ep),
            ep_state: object.state() as u32,
            comm: [0; 3],
            local_ia_address_ptr: lend_address(ep, 0, any_port(ia.ia.attr().address)),
            local_port_qual: link.conn_qual,
            remote_ia_address_ptr: lend_address(ep, 1, remote),
            remote_port_qual: link.conn_qual,
            pz_handle: handle(config.pz.map(|pz| pz.label())),
            recv_evd_handle: evd(&config.recv_evd),
            request_evd_handle: evd(&config.request_evd),
            connect_evd_handle: evd(&config.connect_evd),
            srq_handle: handle(config.srq.map(|srq| srq.label())),
            ep_attr: attributes_of(&attr),
        });
        Ok(())
    })
}

fn attributes_of(attr: &DaplAttr) -> EpAttr {
    EpAttr {
        service_type: SERVICE_RC,
        max_message_size: attr.max_message_size,
        max_rdma_size: attr.max_rdma_size,
        qos: BEST_EFFORT,
        recv_completion_flags: attr.recv_completion_flags.bits(),
        request_completion_flags: attr.request_completion_flags.bits(),
        max_recv_dtos: signed(attr.max_recv_dtos),
        max_request_dtos: signed(attr.max_request_dtos),
        max_recv_iov: signed(attr.max_recv_iov),
        max_request_iov: signed(attr.max_request_iov),
        max_rdma_read_in: signed(attr.max_rdma_read_in),
        max_rdma_read_out: signed(attr.max_rdma_read_out),
        srq_soft_hw: 0,
        max_rdma_read_iov: signed(attr.max_request_iov),
        max_rdma_write_iov: signed(attr.max_request_iov),
        ep_transport_specific_count: 0,
        ep_transport_specific: std::ptr::null_mut(),
        ep_provider_specific_count: 0,
        ep_provider_specific: std::ptr::null_mut(),
    }
}

pub(crate) extern "C" fn modify(ep: Handle, fields: u64, param: In<EpParam>) -> u32 {
    dat_return("ep_modify", || {
        let object = handles::ep(ep, Subtype::HandleEp)?;
        let known =
            FIELD_PZ | FIELD_RECV_EVD | FIELD_REQUEST_EVD | FIELD_CONNECT_EVD | FIELD_SRQ | FIELD_ATTR;
        mask(fields, known, Subtype::Arg2)?;
        let param = param.required(Error::argument(Subtype::Arg3))?;
        let pz = handles::optional(param.pz_handle, Subtype::HandlePz, handles::pz);
        let recv = handles::optional(param.recv_evd_handle, Subtype::HandleEvdRecv, handles::evd);
        let request = handles::optional(param.request_evd_handle, Subtype::HandleEvdRequest, handles::evd);
        let connect = handles::optional(param.connect_evd_handle, Subtype::HandleEvdConn, handles::evd);
        let srq = handles::optional(param.srq_handle, Subtype::HandleSrq, handles::srq);
        let (mut config, _) = object.config();
        if fields & FIELD_PZ != 0 {
            config.pz = pz?;
        }
        if fields & FIELD_RECV_EVD != 0 {
            config.recv_evd = recv?;
        }
        if fields & FIELD_REQUEST_EVD != 0 {
            config.request_evd = request?;
        }
        if fields & FIELD_CONNECT_EVD != 0 {
            config.connect_evd = connect?;
        }
        if fields & FIELD_SRQ != 0 {
            config.srq = srq?;
        }
        if fields & FIELD_ATTR != 0 {
            config.attr = Some(attributes(&param.ep_attr)?);
        }
        object.modify(|given| *given = config)
    })
}

#[allow(clippy::too_many_arguments)] // the standard's signature
pub(crate) extern "C" fn connect(
    ep: Handle,
    address: SockAddr,
    conn_qual: u64,
    microseconds: u32,
    size: i32,
    private_data: Bytes,
    qos: u32,
    flags: u32,
) -> u32 {
    dat_return("ep_connect", || {
        let object = handles::ep(ep, Subtype::HandleEp)?;
        let address = super::address(address, Subtype::Arg2)?;
        let private_data = bytes(private_data, size, Subtype::Arg5, Subtype::Arg6)?;
        // Only one quality of service, and one path, are supported.
        if qos != BEST_EFFORT || flags != 0 {
            return Err(Error::new(ErrorKind::ModelNotSupported, Subtype::None));
        }
        object.connect(address, conn_qual, timeout(microseconds), &private_data)
    })
}

pub(crate) extern "C" fn dup_connect(
    ep: Handle,
    other: Handle,
    microseconds: u32,
    size: i32,
    private_data: Bytes,
    qos: u32,
) -> u32 {
    dat_return("ep_dup_connect", || {
        let object = handles::ep(ep, Subtype::HandleEp)?;
        let other = handles::ep(other, Subtype::HandleEp)?;
        let private_data = bytes(private_data, size, Subtype::Arg4, Subtype::Arg5)?;
        if qos != BEST_EFFORT {
            return Err(Error::new(ErrorKind::ModelNotSupported, Subtype::None));
        }
        object.connect_like(&other, timeout(microseconds), &private_data)
    })
}

pub(crate) extern "C" fn common_connect(
    ep: Handle,
    _address: SockAddr,
    _microseconds: u32,
    _size: i32,
    _private_data: Bytes,
) -> u32 {
    dat_return("ep_common_connect", || {
        handles::ep(ep, Subtype::HandleEp)?;
        not_implemented()
    })
}

pub(crate) extern "C" fn disconnect(ep: Handle, flags: u32) -> u32 {
    dat_return("ep_disconnect", || {
        let object = handles::ep(ep, Subtype::HandleEp)?;
        match flags {
            0 => object.disconnect(Close::Abrupt),
            1 => object.disconnect(Close::Graceful),
            _ => Err(Error::argument(Subtype::Arg2)),
        }
    })
}

/// Runs `body` with an endpoint, a request's segments and its flags.
#[inline]
fn post(
    call: &str,
    ep: Handle,
    segments: i32,
    iov: In<Triplet>,
    flags: u32,
    wrong_flags: Subtype,
    body: impl FnOnce(&Ep, &[Sge], CompletionFlags) -> Result<()>,
) -> u32 {
    dat_return(call, || {
        let entry = handles::lookup(ep).ok_or(Error::handle(Subtype::HandleEp))?;
        let Object::Ep(object) = &entry.object else { return Err(Error::handle(Subtype::HandleEp)) };
        let flags = CompletionFlags::from_bits(flags).ok_or(Error::argument(wrong_flags))?;
        pieces(iov, segments, |pieces| body(object, pieces, flags))
    })
}

pub(crate) extern "C" fn post_send(
    ep: Handle,
    segments: i32,
    iov: In<Triplet>,
    cookie: u64,
    flags: u32,
) -> u32 {
    post("ep_post_send", ep, segments, iov, flags, Subtype::Arg5, |ep, iov, flags| {
        ep.post_send(iov, cookie, flags)
    })
}

pub(crate) extern "C" fn post_send_with_invalidate(
    ep: Handle,
    segments: i32,
    iov: In<Triplet>,
    cookie: u64,
    flags: u32,
    invalidate: i32,
    rmr: u32,
) -> u32 {
    post("ep_post_send_with_invalidate", ep, segments, iov, flags, Subtype::Arg5, |ep, iov, flags| {
        match invalidate {
            0 => ep.post_send(iov, cookie, flags),
            _ => ep.post_send_with_invalidate(iov, cookie, flags, rmr),
        }
    })
}

pub(crate) extern "C" fn post_recv(
    ep: Handle,
    segments: i32,
    iov: In<Triplet>,
    cookie: u64,
    flags: u32,
) -> u32 {
    post("ep_post_recv", ep, segments, iov, flags, Subtype::Arg5, |ep, iov, flags| {
        ep.post_recv(iov, cookie, flags)
    })
}

/// The address of a peer's segment, and its length.
#[inline]
fn remote(place: In<Triplet>) -> Result<(RemoteAddr, u32)> {
    let triplet = place.required(Error::argument(Subtype::Arg5))?;
    Ok((RemoteAddr { addr: triplet.virtual_address, rkey: triplet.context }, triplet.segment_length))
}

pub(crate) extern "C" fn post_rdma_read(
    ep: Handle,
    segments: i32,
    iov: In<Triplet>,
    cookie: u64,
    from: In<Triplet>,
    flags: u32,
) -> u32 {
    post("ep_post_rdma_read", ep, segments, iov, flags, Subtype::Arg6, |ep, iov, flags| {
        let (from, length) = remote(from)?;
        ep.post_rdma_read(iov, cookie, from, length, flags)
    })
}

pub(crate) extern "C" fn post_rdma_write(
    ep: Handle,
    segments: i32,
    iov: In<Triplet>,
    cookie: u64,
    to: In<Triplet>,
    flags: u32,
) -> u32 {
    post("ep_post_rdma_write", ep, segments, iov, flags, Subtype::Arg6, |ep, iov, flags| {
        let (to, length) = remote(to)?;
        ep.post_rdma_write(iov, cookie, to, length, flags)
    })
}

pub(crate) extern "C" fn post_rdma_read_to_rmr(
    ep: Handle,
    _to: In<Triplet>,
    _cookie: u64,
    _from: In<Triplet>,
    _flags: u32,
) -> u32 {
    dat_return("ep_post_rdma_read_to_rmr", || {
        handles::ep(ep, Subtype::HandleEp)?;
        not_implemented()
    })
}

pub(crate) extern "C" fn get_status(
    ep: Handle,
    state: Out<u32>,
    recv_idle: Out<i32>,
    request_idle: Out<i32>,
) -> u32 {
    dat_return("ep_get_status", || {
        let object = handles::ep(ep, Subtype::HandleEp)?;
        let (recv, request) = object.idle();
        state.set(object.state() as u32);
        recv_idle.set(recv.into());
        request_idle.set(request.into());
        Ok(())
    })
}

pub(crate) extern "C" fn free(ep: Handle) -> u32 {
    dat_return("ep_free", || {
        let object = handles::ep(ep, Subtype::HandleEp)?;
        let held = matches!(
            object.state(),
            EpState::Reserved | EpState::PassiveConnectionPending | EpState::TentativeConnectionPending
        );
        if held {
            return Err(object.state_error());
        }
        invalidate(ep, Subtype::HandleEp)
    })
}

pub(crate) extern "C" fn reset(ep: Handle) -> u32 {
    dat_return("ep_reset", || handles::ep(ep, Subtype::HandleEp)?.reset())
}

pub(crate) extern "C" fn recv_query(ep: Handle, allocated: Out<i32>, span: Out<i32>) -> u32 {
    dat_return("ep_recv_query", || {
        let object = handles::ep(ep, Subtype::HandleEp)?;
        let posted = signed(object.posted_recvs());
        allocated.required(Error::argument(Subtype::Arg2))?.set(posted);
        span.required(Error::argument(Subtype::Arg3))?.set(posted);
        Ok(())
    })
}

pub(crate) extern "C" fn set_watermark(ep: Handle, _soft: i32, _hard: i32) -> u32 {
    dat_return("ep_set_watermark", || {
        handles::ep(ep, Subtype::HandleEp)?;
        not_implemented()
    })
}
