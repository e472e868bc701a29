//! Calls every function of the table with invalid handles: NULL, numbers, foreign addresses, freed ones, and ones of another
//! kind. No call may crash, and each must report which handle was wrong.

use std::ffi::{CStr, c_char, c_void};
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use dapl::{Error, ErrorKind, Subtype};
use ffi::{Bytes, In, Out, SockAddr, Text};
use nicety_dat::provider::{NAMES, Provider, table};
use nicety_dat::types::{
    CnoParam, CrParam, EpAttr, EpParam, EvdParam, Event, Handle, IaAttr, LmrParam, NAME_MAX, ProviderAttr,
    ProviderInfo, ProxyAgent, PspParam, PzParam, RegionDescription, RmrParam, RspParam, SrqAttr, SrqParam,
    Triplet,
};

const NO_AGENT: ProxyAgent = ProxyAgent { instance_data: std::ptr::null_mut(), proxy_agent_func: None };

fn functions() -> &'static Provider {
    // SAFETY: the table is constant.
    unsafe { &*table() }
}

fn out<T>(place: &mut T) -> Out<T> {
    // SAFETY: a reference is valid for writing, and outlives the call.
    unsafe { Out::new(place) }
}

fn no<T>() -> Out<T> {
    // SAFETY: NULL is allowed.
    unsafe { Out::new(std::ptr::null_mut()) }
}

fn none<T: Copy>() -> In<T> {
    // SAFETY: NULL is allowed.
    unsafe { In::new(std::ptr::null()) }
}

fn input<T: Copy>(value: &T) -> In<T> {
    // SAFETY: a reference is valid for reading, and outlives the call.
    unsafe { In::new(value) }
}

fn no_bytes() -> Bytes {
    // SAFETY: NULL is allowed.
    unsafe { Bytes::new(std::ptr::null()) }
}

fn text(text: &'static CStr) -> Text {
    // SAFETY: it ends with a zero.
    unsafe { Text::new(text.as_ptr()) }
}

fn no_address() -> SockAddr {
    // SAFETY: NULL is allowed.
    unsafe { SockAddr::new(std::ptr::null()) }
}

/// Announces an adapter as the registry does; this process has no registry, which is only remarked on.
fn name_adapter(name: &CStr, device: &'static CStr) {
    let mut info =
        ProviderInfo { ia_name: [0; NAME_MAX], version_major: 2, version_minor: 0, is_thread_safe: 0 };
    for (place, byte) in info.ia_name.iter_mut().zip(name.to_bytes()) {
        *place = *byte as c_char;
    }
    nicety_dat::provider::dat_provider_init(&info, text(device));
}

fn null() -> Handle {
    std::ptr::null_mut()
}

/// A live object of each kind except connection requests, which need a peer.
struct Objects {
    ia: Handle,
    pz: Handle,
    evd: Handle,
    cno: Handle,
    ep: Handle,
    srq: Handle,
    psp: Handle,
    rsp: Handle,
    lmr: Handle,
    rmr: Handle,
    /// The connection qualifier of `psp`.
    qual: u64,
}

fn good(code: u32) {
    assert_eq!(code, 0, "{code:#x}");
}

/// Flags of all streams except asynchronous errors, which the adapter's own dispatcher takes.
const ALL_STREAMS: u32 = 0x0F1;

fn objects() -> Objects {
    let t = functions();
    name_adapter(c"hammer", c"shm");
    let (mut ia, mut own) = (null(), null());
    good((t.ia_open)(text(c"hammer"), 8, out(&mut own), out(&mut ia)));
    let mut made = Objects {
        ia,
        pz: null(),
        evd: null(),
        cno: null(),
        ep: null(),
        srq: null(),
        psp: null(),
        rsp: null(),
        lmr: null(),
        rmr: null(),
        qual: 0,
    };
    good((t.pz_create)(ia, out(&mut made.pz)));
    good((t.cno_create)(ia, NO_AGENT, out(&mut made.cno)));
    good((t.evd_create)(ia, 8, null(), ALL_STREAMS, out(&mut made.evd)));
    let evd = made.evd;
    good((t.ep_create)(ia, made.pz, evd, evd, evd, none(), out(&mut made.ep)));
    let mut reserved = null();
    good((t.ep_create)(ia, made.pz, evd, evd, evd, none(), out(&mut reserved)));
    let attr = SrqAttr { max_recv_dtos: 4, max_recv_iov: 1, low_watermark: 0 };
    good((t.srq_create)(ia, made.pz, input(&attr), out(&mut made.srq)));
    good((t.psp_create_any)(ia, out(&mut made.qual), evd, 0, out(&mut made.psp)));
    // A qualifier that was free a moment ago; another test, or another process, may take it first.
    let is_created = |_| {
        let (mut qual, mut other) = (0_u64, null());
        good((t.psp_create_any)(ia, out(&mut qual), evd, 0, out(&mut other)));
        good((t.psp_free)(other));
        (t.rsp_create)(ia, qual, reserved, evd, out(&mut made.rsp)) == 0
    };
    assert!((0..100).any(is_created));
    static MEMORY: [u8; 4096] = [0; 4096];
    let region = RegionDescription {
        for_va: MEMORY.as_ptr().cast_mut().cast::<c_void>(),
        shared_memory_id: std::ptr::null_mut(),
    };
    let lmr =
        (t.lmr_create)(ia, 0, region, 4096, made.pz, 0x01, 0, out(&mut made.lmr), no(), no(), no(), no());
    good(lmr);
    good((t.rmr_create)(made.pz, out(&mut made.rmr)));
    made
}

/// Invalid handles, and at the end valid handles of other objects than `not`.
fn bad_handles(good: &Objects, not: Handle) -> Vec<Handle> {
    let t = functions();
    let mut freed = null();
    assert_eq!((t.pz_create)(good.ia, out(&mut freed)), 0);
    assert_eq!((t.pz_free)(freed), 0);
    // Reuses the slot for another object.
    let mut successor = null();
    assert_eq!((t.pz_create)(good.ia, out(&mut successor)), 0);
    let heap = Box::leak(Box::new([table() as u64; 8])).as_ptr().cast_mut();
    let mut bad: Vec<Handle> = [0_usize, 1, 2, 7, 8, 0xdead_beef, usize::MAX, usize::MAX - 7, 1 << 47]
        .into_iter()
        .map(std::ptr::without_provenance_mut)
        .collect();
    bad.extend([freed, heap.cast(), heap.wrapping_add(1).cast(), good.pz.wrapping_byte_add(1)]);
    bad.extend([good.pz.wrapping_byte_add(8 << 16), good.pz.wrapping_byte_sub(1 << 30)]);
    let live =
        [good.ia, good.pz, good.evd, good.cno, good.ep, good.srq, good.psp, good.rsp, good.lmr, good.rmr];
    bad.extend(live.into_iter().filter(|handle| *handle != not));
    bad
}

/// A call with a handle under test, and the subtype that it must return for an invalid one.
struct Case<'a> {
    name: &'static str,
    expected: Subtype,
    not: Handle,
    call: Box<dyn Fn(Handle) -> u32 + 'a>,
}

fn case<'a>(
    name: &'static str,
    expected: Subtype,
    not: Handle,
    call: impl Fn(Handle) -> u32 + 'a,
) -> Case<'a> {
    Case { name, expected, not, call: Box::new(call) }
}

fn check_all(good: &Objects, cases: Vec<Case<'_>>) -> Vec<&'static str> {
    for Case { name, expected, not, call } in &cases {
        for handle in bad_handles(good, *not) {
            let code = call(handle);
            let wanted = Error::new(ErrorKind::InvalidHandle, *expected).code();
            assert_eq!(code, wanted, "{name} with {handle:p}: {code:#x}, not {wanted:#x}");
        }
    }
    cases.iter().map(|case| case.name).collect()
}

fn adapters_and_dispatchers<'a>(o: &'a Objects) -> Vec<Case<'a>> {
    use Subtype as S;
    let t = functions();
    let any = null();
    vec![
        case("ia_query", S::HandleIa, o.ia, move |h| {
            (t.ia_query)(h, no(), 0, no::<IaAttr>(), 0, no::<ProviderAttr>())
        }),
        case("ia_close", S::HandleIa, o.ia, move |h| (t.ia_close)(h, 0)),
        case("cno_create", S::HandleIa, o.ia, move |h| (t.cno_create)(h, NO_AGENT, no())),
        case("cno_modify_agent", S::HandleCno, o.cno, move |h| (t.cno_modify_agent)(h, NO_AGENT)),
        case("cno_query", S::HandleCno, o.cno, move |h| (t.cno_query)(h, 0, no::<CnoParam>())),
        case("cno_free", S::HandleCno, o.cno, move |h| (t.cno_free)(h)),
        case("cno_wait", S::HandleCno, o.cno, move |h| (t.cno_wait)(h, u32::MAX, no())),
        case("cno_fd_create", S::HandleIa, o.ia, move |h| (t.cno_fd_create)(h, no(), no())),
        case("cno_trigger", S::HandleCno, o.cno, move |h| (t.cno_trigger)(h, no())),
        case("evd_create", S::HandleIa, o.ia, move |h| (t.evd_create)(h, 8, any, 0x20, no())),
        case("evd_query", S::None, o.evd, move |h| (t.evd_query)(h, 0, no::<EvdParam>())),
        case("evd_modify_cno", S::None, o.evd, move |h| (t.evd_modify_cno)(h, any)),
        case("evd_enable", S::None, o.evd, move |h| (t.evd_enable)(h)),
        case("evd_disable", S::None, o.evd, move |h| (t.evd_disable)(h)),
        case("evd_wait", S::None, o.evd, move |h| (t.evd_wait)(h, u32::MAX, 1, no::<Event>(), no())),
        case("evd_resize", S::None, o.evd, move |h| (t.evd_resize)(h, 8)),
        case("evd_post_se", S::None, o.evd, move |h| (t.evd_post_se)(h, none::<Event>())),
        case("evd_dequeue", S::None, o.evd, move |h| (t.evd_dequeue)(h, no::<Event>())),
        case("evd_free", S::None, o.evd, move |h| (t.evd_free)(h)),
        case("evd_set_unwaitable", S::None, o.evd, move |h| (t.evd_set_unwaitable)(h)),
        case("evd_clear_unwaitable", S::None, o.evd, move |h| (t.evd_clear_unwaitable)(h)),
        case("ia_ha_related", S::HandleIa, o.ia, move |h| (t.ia_ha_related)(h, text(c"x"), no())),
    ]
}

fn endpoints<'a>(o: &'a Objects) -> Vec<Case<'a>> {
    use Subtype as S;
    let t = functions();
    let any = null();
    vec![
        case("ep_create", S::HandleIa, o.ia, move |h| {
            (t.ep_create)(h, any, any, any, any, none::<EpAttr>(), no())
        }),
        case("ep_create_with_srq", S::HandleIa, o.ia, move |h| {
            (t.ep_create_with_srq)(h, any, any, any, any, any, none::<EpAttr>(), no())
        }),
        case("ep_query", S::HandleEp, o.ep, move |h| (t.ep_query)(h, 0, no::<EpParam>())),
        case("ep_modify", S::HandleEp, o.ep, move |h| (t.ep_modify)(h, 0, none::<EpParam>())),
        case("ep_connect", S::HandleEp, o.ep, move |h| {
            (t.ep_connect)(h, no_address(), 1, u32::MAX, 0, no_bytes(), 0, 0)
        }),
        case("ep_dup_connect", S::HandleEp, o.ep, move |h| (t.ep_dup_connect)(h, o.ep, 1, 0, no_bytes(), 0)),
        case("ep_common_connect", S::HandleEp, o.ep, move |h| {
            (t.ep_common_connect)(h, no_address(), 1, 0, no_bytes())
        }),
        case("ep_disconnect", S::HandleEp, o.ep, move |h| (t.ep_disconnect)(h, 1)),
        case("ep_post_send", S::HandleEp, o.ep, move |h| (t.ep_post_send)(h, 1, none(), 1, 0)),
        case("ep_post_recv", S::HandleEp, o.ep, move |h| (t.ep_post_recv)(h, 1, none(), 1, 0)),
        case("ep_post_rdma_read", S::HandleEp, o.ep, move |h| {
            (t.ep_post_rdma_read)(h, 1, none(), 1, none(), 0)
        }),
        case("ep_post_rdma_write", S::HandleEp, o.ep, move |h| {
            (t.ep_post_rdma_write)(h, 1, none(), 1, none(), 0)
        }),
        case("ep_post_send_with_invalidate", S::HandleEp, o.ep, move |h| {
            (t.ep_post_send_with_invalidate)(h, 1, none(), 1, 0, 1, 1)
        }),
        case("ep_post_rdma_read_to_rmr", S::HandleEp, o.ep, move |h| {
            (t.ep_post_rdma_read_to_rmr)(h, none::<Triplet>(), 1, none(), 0)
        }),
        case("ep_get_status", S::HandleEp, o.ep, move |h| (t.ep_get_status)(h, no(), no(), no())),
        case("ep_free", S::HandleEp, o.ep, move |h| (t.ep_free)(h)),
        case("ep_reset", S::HandleEp, o.ep, move |h| (t.ep_reset)(h)),
        case("ep_recv_query", S::HandleEp, o.ep, move |h| (t.ep_recv_query)(h, no(), no())),
        case("ep_set_watermark", S::HandleEp, o.ep, move |h| (t.ep_set_watermark)(h, 1, 1)),
        case("cr_query", S::HandleCr, any, move |h| (t.cr_query)(h, 0, no::<CrParam>())),
        case("cr_accept", S::HandleCr, any, move |h| (t.cr_accept)(h, o.ep, 0, no_bytes())),
        case("cr_reject", S::HandleCr, any, move |h| (t.cr_reject)(h, 0, no_bytes())),
        case("cr_handoff", S::HandleCr, any, move |h| (t.cr_handoff)(h, 1)),
    ]
}

fn regions_and_points<'a>(o: &'a Objects) -> Vec<Case<'a>> {
    use Subtype as S;
    let t = functions();
    let any = null();
    let region = RegionDescription { for_va: any, shared_memory_id: any };
    vec![
        case("lmr_create", S::HandleIa, o.ia, move |h| {
            (t.lmr_create)(h, 0, region, 1, o.pz, 1, 0, no(), no(), no(), no(), no())
        }),
        case("lmr_query", S::HandleLmr, o.lmr, move |h| (t.lmr_query)(h, 0, no::<LmrParam>())),
        case("lmr_free", S::HandleLmr, o.lmr, move |h| (t.lmr_free)(h)),
        case("lmr_sync_rdma_read", S::HandleIa, o.ia, move |h| (t.lmr_sync_rdma_read)(h, none(), 0)),
        case("lmr_sync_rdma_write", S::HandleIa, o.ia, move |h| (t.lmr_sync_rdma_write)(h, none(), 0)),
        case("rmr_create", S::HandlePz, o.pz, move |h| (t.rmr_create)(h, no())),
        case("rmr_create_for_ep", S::HandlePz, o.pz, move |h| (t.rmr_create_for_ep)(h, no())),
        case("rmr_query", S::HandleRmr, o.rmr, move |h| (t.rmr_query)(h, 0, no::<RmrParam>())),
        case("rmr_bind", S::HandleRmr, o.rmr, move |h| {
            (t.rmr_bind)(h, o.lmr, none(), 0, 0, o.ep, 1, 0, no())
        }),
        case("rmr_free", S::HandleRmr, o.rmr, move |h| (t.rmr_free)(h)),
        case("psp_create", S::HandleIa, o.ia, move |h| (t.psp_create)(h, 1, o.evd, 0, no())),
        case("psp_create_any", S::HandleIa, o.ia, move |h| (t.psp_create_any)(h, no(), o.evd, 0, no())),
        case("psp_query", S::HandlePsp, o.psp, move |h| (t.psp_query)(h, 0, no::<PspParam>())),
        case("psp_free", S::HandlePsp, o.psp, move |h| (t.psp_free)(h)),
        case("rsp_create", S::HandleIa, o.ia, move |h| (t.rsp_create)(h, 1, o.ep, o.evd, no())),
        case("rsp_query", S::HandleRsp, o.rsp, move |h| (t.rsp_query)(h, 0, no::<RspParam>())),
        case("rsp_free", S::HandleRsp, o.rsp, move |h| (t.rsp_free)(h)),
        case("pz_create", S::HandleIa, o.ia, move |h| (t.pz_create)(h, no())),
        case("pz_query", S::HandlePz, o.pz, move |h| (t.pz_query)(h, 0, no::<PzParam>())),
        case("pz_free", S::HandlePz, o.pz, move |h| (t.pz_free)(h)),
        case("srq_create", S::HandleIa, o.ia, move |h| (t.srq_create)(h, o.pz, none(), no())),
        case("srq_free", S::HandleSrq, o.srq, move |h| (t.srq_free)(h)),
        case("srq_post_recv", S::HandleSrq, o.srq, move |h| (t.srq_post_recv)(h, 1, none(), 1)),
        case("srq_query", S::HandleSrq, o.srq, move |h| (t.srq_query)(h, 0, no::<SrqParam>())),
        case("srq_resize", S::HandleSrq, o.srq, move |h| (t.srq_resize)(h, 1)),
        case("srq_set_lw", S::HandleSrq, o.srq, move |h| (t.srq_set_lw)(h, 1)),
        case("csp_create", S::HandleIa, o.ia, move |h| (t.csp_create)(h, none(), no_address(), o.evd, no())),
        case("csp_query", S::HandleCsp, any, move |h| (t.csp_query)(h, 0, no())),
        case("csp_free", S::HandleCsp, any, move |h| (t.csp_free)(h)),
    ]
}

#[test]
fn every_function_rejects_invalid_handles() {
    let o = objects();
    let t = functions();
    let mut checked = check_all(&o, adapters_and_dispatchers(&o));
    checked.extend(check_all(&o, endpoints(&o)));
    checked.extend(check_all(&o, regions_and_points(&o)));
    // Functions that take a handle of any kind reject invalid ones.
    for handle in bad_handles(&o, null()).into_iter().take(15) {
        let wrong = Error::new(ErrorKind::InvalidHandle, Subtype::None).code();
        assert_eq!((t.set_consumer_context)(handle, 1), wrong, "{handle:p}");
        assert_eq!((t.get_consumer_context)(handle, no()), wrong, "{handle:p}");
        assert_eq!((t.get_handle_type)(handle, no()), wrong, "{handle:p}");
        assert_eq!((t.handle_extendedop)(handle, 1, null()), wrong, "{handle:p}");
    }
    checked.extend([
        "set_consumer_context",
        "get_consumer_context",
        "get_handle_type",
        "handle_extendedop",
        "ia_open",
    ]);
    let missed: Vec<_> = NAMES.iter().filter(|name| !checked.contains(name)).collect();
    assert!(missed.is_empty(), "not tried: {missed:?}");
    good((t.ia_close)(o.ia, 0));
}

/// Goal: an invalid handle after a valid one is also detected. Method: each handle argument in turn.
#[test]
fn invalid_second_handles_are_named() {
    use Subtype as S;
    let o = objects();
    let t = functions();
    let (any, ep, pz) = (null(), o.ep, o.pz);
    let region = RegionDescription { for_va: any, shared_memory_id: any };
    let piece = Triplet::default();
    let later = vec![
        case("pz", S::HandlePz, pz, move |h| (t.ep_create)(o.ia, nonnull(h), any, any, any, none(), no())),
        case("recv", S::HandleEvdRecv, o.evd, move |h| {
            (t.ep_create)(o.ia, pz, nonnull(h), any, any, none(), no())
        }),
        case("request", S::HandleEvdRequest, o.evd, move |h| {
            (t.ep_create)(o.ia, pz, any, nonnull(h), any, none(), no())
        }),
        case("connect", S::HandleEvdConn, o.evd, move |h| {
            (t.ep_create)(o.ia, pz, any, any, nonnull(h), none(), no())
        }),
        case("srq", S::HandleSrq, o.srq, move |h| {
            (t.ep_create_with_srq)(o.ia, pz, any, any, any, h, none(), no())
        }),
        case("cno", S::HandleCno, o.cno, move |h| (t.evd_create)(o.ia, 8, nonnull(h), 0x20, no())),
        case("cno", S::HandleCno, o.cno, move |h| (t.evd_modify_cno)(o.evd, nonnull(h))),
        case("other", S::HandleEp, ep, move |h| (t.ep_dup_connect)(ep, h, 1, 0, no_bytes(), 0)),
        case("lmr", S::HandleLmr, o.lmr, move |h| (t.rmr_bind)(o.rmr, h, none(), 0, 0, ep, 1, 0, no())),
        case("ep", S::HandleEp, ep, move |h| (t.rmr_bind)(o.rmr, o.lmr, input(&piece), 0, 0, h, 1, 0, no())),
        case("evd", S::HandleEvdCr, o.evd, move |h| (t.psp_create)(o.ia, 1, h, 0, no())),
        case("ep", S::HandleEp, ep, move |h| (t.rsp_create)(o.ia, 1, h, o.evd, no())),
        case("evd", S::HandleEvdCr, o.evd, move |h| (t.rsp_create)(o.ia, 1, ep, h, no())),
        case("pz", S::HandlePz, pz, move |h| {
            (t.lmr_create)(o.ia, 0, region, 1, h, 1, 0, no(), no(), no(), no(), no())
        }),
        case("pz", S::HandlePz, pz, move |h| (t.srq_create)(o.ia, h, none(), no())),
    ];
    check_all(&o, later);
    good((t.ia_close)(o.ia, 0));
}

/// Avoids NULL, for arguments where NULL means no object.
fn nonnull(handle: Handle) -> Handle {
    if handle.is_null() { std::ptr::without_provenance_mut(8) } else { handle }
}

#[test]
fn null_results_and_wrong_counts_are_rejected() {
    let o = objects();
    let t = functions();
    let argument = |subtype| Error::argument(subtype).code();
    let mut event = std::mem::MaybeUninit::<Event>::zeroed();
    // SAFETY: all zeros is a valid event.
    let event = unsafe { event.assume_init_mut() };
    assert_eq!((t.evd_wait)(o.evd, 0, 1, no(), no()), argument(Subtype::Arg4));
    assert_eq!((t.evd_wait)(o.evd, 0, 1, out(event), no()), argument(Subtype::Arg5));
    let mut more = 0;
    assert_eq!((t.evd_wait)(o.evd, 0, -1, out(event), out(&mut more)), argument(Subtype::Arg3));
    let timed_out = Error::new(ErrorKind::TimeoutExpired, Subtype::None).code();
    assert_eq!((t.evd_wait)(o.evd, 1000, 1, out(event), out(&mut more)), timed_out);
    assert_eq!((t.evd_dequeue)(o.evd, no()), argument(Subtype::Arg2));
    assert_eq!((t.ep_post_send)(o.ep, -1, none(), 0, 0), argument(Subtype::Arg2));
    assert_eq!((t.ep_post_send)(o.ep, i32::MAX, none(), 0, 0), argument(Subtype::Arg2));
    assert_eq!((t.ep_post_send)(o.ep, 1, none(), 0, 0), argument(Subtype::Arg3));
    assert_eq!((t.ep_post_send)(o.ep, 0, none(), 0, 0x8000), argument(Subtype::Arg5));
    assert_eq!((t.ep_connect)(o.ep, no_address(), 1, 1, 0, no_bytes(), 0, 0), argument(Subtype::Arg2));
    assert_eq!((t.ia_query)(o.ia, no(), 1, no(), 0, no()), argument(Subtype::Arg4));
    assert_eq!((t.ia_query)(o.ia, no(), u64::MAX, no(), 0, no()), argument(Subtype::Arg3));
    assert_eq!((t.pz_create)(o.ia, no()), argument(Subtype::Arg2));
    assert_eq!((t.ia_open)(text(c"hammer"), 0, no(), no()), argument(Subtype::Arg2));
    let not_found = Error::new(ErrorKind::ProviderNotFound, Subtype::NameNotRegistered).code();
    let (mut ia, mut evd) = (null(), null());
    assert_eq!((t.ia_open)(text(c"nobody"), 8, out(&mut evd), out(&mut ia)), not_found);
    name_adapter(c"typo", c"smh");
    assert_eq!((t.ia_open)(text(c"typo"), 8, out(&mut evd), out(&mut ia)), not_found);
    good((t.ia_close)(o.ia, 0));
}

#[test]
fn lmr_create_rejects_unmapped_memory() {
    let o = objects();
    let t = functions();
    let register = |address: usize, length| {
        let for_va = std::ptr::without_provenance_mut(address);
        let region = RegionDescription { for_va, shared_memory_id: null() };
        let mut lmr = null();
        (t.lmr_create)(o.ia, 0, region, length, o.pz, 1, 0, out(&mut lmr), no(), no(), no(), no())
    };
    for (address, length) in [(0, 8), (8, 8), (1 << 46, 4096), (usize::MAX - 8, 8)] {
        assert_eq!(register(address, length), Error::argument(Subtype::Arg3).code(), "{address:x}+{length}");
    }
    let length_error = Error::new(ErrorKind::LengthError, Subtype::None).code();
    assert_eq!((register(4096, 0), register(4096, u64::MAX)), (length_error, length_error));
    good((t.ia_close)(o.ia, 0));
}

#[test]
fn objects_in_use_stay_until_abrupt_close() {
    let o = objects();
    let t = functions();
    let state = |subtype| Error::state(subtype).code();
    assert_eq!((t.pz_free)(o.pz), state(Subtype::PzInUse));
    assert_eq!((t.evd_free)(o.evd), state(Subtype::EvdInUse));
    assert_eq!((t.ia_close)(o.ia, 1), state(Subtype::IaInUse));
    let mut kind = 0;
    assert_eq!(((t.get_handle_type)(o.ep, out(&mut kind)), kind), (0, 1));
    let mut context = 0;
    good((t.set_consumer_context)(o.ep, 77));
    assert_eq!(((t.get_consumer_context)(o.ep, out(&mut context)), context), (0, 77));
    good((t.ia_close)(o.ia, 0));
    for handle in [o.ia, o.pz, o.evd, o.cno, o.ep, o.srq, o.psp, o.rsp, o.lmr, o.rmr] {
        assert_ne!((t.get_handle_type)(handle, out(&mut kind)), 0, "{handle:p} went with its adapter");
    }
    assert_eq!((t.ia_close)(o.ia, 0), Error::handle(Subtype::HandleIa).code());
}

#[test]
fn software_events_come_back() {
    let o = objects();
    let t = functions();
    // SAFETY: all zeros is a valid event.
    let mut event: Event = unsafe { std::mem::zeroed() };
    event.event_number = 0x10001;
    event.event_data.software = std::ptr::without_provenance_mut(0x1234);
    good((t.evd_post_se)(o.evd, input(&event)));
    event.event_data.software = null();
    good((t.evd_dequeue)(o.evd, out(&mut event)));
    // SAFETY: every bit pattern is a valid pointer value.
    assert_eq!(unsafe { event.event_data.software }.addr(), 0x1234);
    event.event_number = 1;
    assert_eq!((t.evd_post_se)(o.evd, input(&event)), Error::argument(Subtype::Arg2).code());
    good((t.ia_close)(o.ia, 0));
}

#[test]
fn an_agent_is_called() {
    static CALLED: AtomicUsize = AtomicUsize::new(0);
    unsafe extern "C" fn agent(instance: *mut c_void, evd: Handle) {
        CALLED.store(instance.addr() ^ evd.addr(), Relaxed);
    }
    let o = objects();
    let t = functions();
    let proxy =
        ProxyAgent { instance_data: std::ptr::without_provenance_mut(1), proxy_agent_func: Some(agent) };
    let (mut cno, mut evd) = (null(), null());
    good((t.cno_create)(o.ia, proxy, out(&mut cno)));
    good((t.evd_create)(o.ia, 8, cno, 0x01, out(&mut evd)));
    // SAFETY: all zeros is a valid event.
    let mut event: Event = unsafe { std::mem::zeroed() };
    event.event_number = 0x10001;
    good((t.evd_post_se)(evd, input(&event)));
    for _ in 0..1000 {
        if CALLED.load(Relaxed) == evd.addr() ^ 1 {
            return good((t.ia_close)(o.ia, 0));
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    panic!("the agent was not called");
}

/// Set in the process that makes mistakes for [`failed_calls_are_explained`].
const MISUSE: &str = "NICETY_TEST_MISUSE";

/// The log of failed calls names the call, the argument or object, and the remedy. Another process makes the mistakes, as the log is
/// chosen by its environment.
#[test]
fn failed_calls_are_explained() {
    if std::env::var_os(MISUSE).is_some() {
        return misuse();
    }
    let mut again = std::process::Command::new(std::env::current_exe().expect("this test"));
    again.args(["--exact", "failed_calls_are_explained", "--nocapture"]);
    let output = again.env(MISUSE, "1").env("NICETY_LOG", "errors").output().expect("it starts");
    let log = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{log}");
    for (call, words) in [
        ("dat_ep_post_send", "argument 2 (num_segments) is invalid"),
        ("dat_ep_post_send", "argument 3 (local_iov) is invalid"),
        ("dat_ep_post_send", "ep_handle is NULL, was freed, or is a handle of another kind"),
        ("dat_ep_free", "pass what dat_ep_create has returned (DAT_INVALID_HANDLE)"),
        ("dat_pz_free", "memory regions or endpoints use pz_handle; free them first (DAT_INVALID_STATE)"),
        ("dat_evd_free", "endpoints or service points use evd_handle; free them first"),
        ("dat_ia_close", "ia_handle still has objects; free them first, or pass DAT_CLOSE_ABRUPT_FLAG"),
        ("dat_ep_disconnect", "ep_handle is not connected"),
        ("dat_evd_post_se", "argument 2 (event) is invalid"),
        ("dat_evd_create", "argument 2 (evd_min_qlen) is invalid"),
        ("dat_psp_create", "conn_qual is in use by another service point"),
    ] {
        let start = format!("nicety: {call}: ");
        let is_there = log.lines().any(|line| line.starts_with(&start) && line.contains(words));
        assert!(is_there, "{call}: {words}: {log}");
    }
    assert!(!log.contains("DAT_QUEUE_EMPTY"), "an empty queue is no failure: {log}");
}

fn misuse() {
    let o = objects();
    let t = functions();
    // SAFETY: all zeros is a valid event.
    let mut event: Event = unsafe { std::mem::zeroed() };
    let bad = |code: u32| assert_ne!(code, 0);
    bad((t.ep_post_send)(o.ep, -1, none(), 0, 0));
    bad((t.ep_post_send)(o.ep, 1, none(), 0, 0));
    bad((t.ep_post_send)(o.pz, 0, none(), 0, 0));
    bad((t.ep_free)(null()));
    bad((t.pz_free)(o.pz));
    bad((t.evd_free)(o.evd));
    bad((t.ia_close)(o.ia, 1));
    bad((t.ep_disconnect)(o.ep, 0));
    bad((t.evd_dequeue)(o.evd, out(&mut event)));
    event.event_number = 1;
    bad((t.evd_post_se)(o.evd, input(&event)));
    bad((t.evd_create)(o.ia, -1, null(), 0, no()));
    let mut psp = null();
    bad((t.psp_create)(o.ia, o.qual, o.evd, 0, out(&mut psp)));
    good((t.ia_close)(o.ia, 0));
}
