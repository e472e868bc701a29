//! Function tables of objects, through which the inline functions of `verbs.h` call, and the functions in them.

use std::ffi::{c_int, c_uint};
use std::ptr::null_mut;

use ffi::{In, Out, log};
use rdma_abi::verbs::*;

use crate::answer;
use crate::discovery::port;
use crate::qp::queue_pair;
use crate::requests::{poll, post};
use crate::resources::{advice, cq, dm, mw, pd, srq};
use crate::slab::Handle;

/// The fields of an opened device that C sees.
pub(crate) fn context(device: *mut ibv_device, async_fd: c_int) -> verbs_context {
    let context = ibv_context {
        device,
        ops: ops(),
        // Not used for commands; programs duplicate it to share a device, which is then rejected.
        cmd_fd: async_fd,
        async_fd,
        num_comp_vectors: 1,
        mutex: libc::PTHREAD_MUTEX_INITIALIZER,
        abi_compat: VERBS_ABI_IS_EXTENDED,
    };
    verbs_context {
        query_port: Some(query_port),
        advise_mr: Some(advise_mr),
        alloc_null_mr: null_mut(),
        read_counters: null_mut(),
        attach_counters_point_flow: null_mut(),
        create_counters: null_mut(),
        destroy_counters: null_mut(),
        reg_dm_mr: Some(reg_dm_mr),
        alloc_dm: Some(alloc_dm),
        free_dm: Some(free_dm),
        modify_flow_action_esp: null_mut(),
        destroy_flow_action: null_mut(),
        create_flow_action_esp: null_mut(),
        modify_qp_rate_limit: null_mut(),
        alloc_parent_domain: Some(alloc_parent_domain),
        dealloc_td: Some(dealloc_td),
        alloc_td: Some(alloc_td),
        modify_cq: null_mut(),
        post_srq_ops: null_mut(),
        destroy_rwq_ind_table: null_mut(),
        create_rwq_ind_table: null_mut(),
        destroy_wq: null_mut(),
        modify_wq: null_mut(),
        create_wq: null_mut(),
        query_rt_values: null_mut(),
        create_cq_ex: Some(create_cq_ex),
        _priv: null_mut(),
        query_device_ex: Some(query_device_ex),
        ibv_destroy_flow: null_mut(),
        ABI_placeholder2: null_mut(),
        ibv_create_flow: null_mut(),
        ABI_placeholder1: null_mut(),
        open_qp: null_mut(),
        create_qp_ex: Some(create_qp_ex),
        get_srq_num: Some(get_srq_num),
        create_srq_ex: Some(create_srq_ex),
        open_xrcd: null_mut(),
        close_xrcd: null_mut(),
        _ABI_placeholder3: 0,
        sz: size_of::<verbs_context>(),
        context,
    }
}

fn ops() -> ibv_context_ops {
    // Without the log, calls on the data path do not even check for it.
    let is_logged = log::reports_calls();
    ibv_context_ops {
        _compat_1: [null_mut(); 7],
        alloc_mw: Some(alloc_mw),
        bind_mw: Some(bind_mw),
        dealloc_mw: Some(dealloc_mw),
        _compat_2: null_mut(),
        poll_cq: Some(if is_logged { logged_poll_cq } else { poll_cq }),
        req_notify_cq: Some(req_notify_cq),
        _compat_3: [null_mut(); 7],
        post_srq_recv: Some(if is_logged { logged_post_srq_recv } else { post_srq_recv }),
        _compat_4: [null_mut(); 4],
        post_send: Some(if is_logged { logged_post_send } else { post_send }),
        post_recv: Some(if is_logged { logged_post_recv } else { post_recv }),
        _compat_5: [null_mut(); 5],
    }
}

// Each argument is validated as in the exported functions.

extern "C" fn alloc_mw(pd: *mut ibv_pd, kind: c_int) -> *mut ibv_mw {
    answer::pointer("ibv_alloc_mw", || mw::alloc(Handle::from_ptr(pd), kind).map(Handle::cast))
}

extern "C" fn bind_mw(qp: *mut ibv_qp, mw: *mut ibv_mw, bind: *mut ibv_mw_bind) -> c_int {
    answer::errno("ibv_bind_mw", || post::bind(Handle::from_ptr(qp), Handle::from_ptr(mw), input(bind)))
}

extern "C" fn dealloc_mw(mw: *mut ibv_mw) -> c_int {
    answer::errno("ibv_dealloc_mw", || mw::dealloc(Handle::from_ptr(mw)))
}

extern "C" fn poll_cq(cq: *mut ibv_cq, count: c_int, wcs: *mut ibv_wc) -> c_int {
    poll::poll(Handle::from_ptr(cq), count, wcs)
}

extern "C" fn req_notify_cq(cq: *mut ibv_cq, solicited_only: c_int) -> c_int {
    answer::errno("ibv_req_notify_cq", || cq::req_notify(Handle::from_ptr(cq), solicited_only != 0))
}

extern "C" fn post_send(qp: *mut ibv_qp, wr: *mut ibv_send_wr, bad: *mut *mut ibv_send_wr) -> c_int {
    answer::posts("ibv_post_send", || post::send(Handle::from_ptr(qp), wr, bad))
}

extern "C" fn post_recv(qp: *mut ibv_qp, wr: *mut ibv_recv_wr, bad: *mut *mut ibv_recv_wr) -> c_int {
    answer::posts("ibv_post_recv", || post::recv(Handle::from_ptr(qp), wr, bad))
}

extern "C" fn post_srq_recv(srq: *mut ibv_srq, wr: *mut ibv_recv_wr, bad: *mut *mut ibv_recv_wr) -> c_int {
    answer::posts("ibv_post_srq_recv", || post::srq_recv(Handle::from_ptr(srq), wr, bad))
}

// The same functions, with a line in the log for each call.

extern "C" fn logged_poll_cq(cq: *mut ibv_cq, count: c_int, wcs: *mut ibv_wc) -> c_int {
    let found = poll_cq(cq, count, wcs);
    // Empty polls would hide everything else.
    if found != 0 {
        log::call("ibv_poll_cq", &[&cq, &count], &found);
    }
    for at in 0..usize::try_from(found).unwrap_or(0) {
        if let Some(wc) = output(wcs).element(at).get() {
            let ibv_wc { wr_id, status, opcode, byte_len, qp_num, .. } = wc;
            log::write_line(format_args!(
                "    wr_id {wr_id} status {status} opcode {opcode} byte_len {byte_len} qp_num {qp_num:#x}"
            ));
        }
    }
    found
}

extern "C" fn logged_post_send(qp: *mut ibv_qp, wr: *mut ibv_send_wr, bad: *mut *mut ibv_send_wr) -> c_int {
    let first =
        input(wr).get().map(|wr| format!("wr_id {} opcode {} num_sge {}", wr.wr_id, wr.opcode, wr.num_sge));
    let result = post_send(qp, wr, bad);
    log::call("ibv_post_send", &[&qp, &wr, &first], &result);
    result
}

extern "C" fn logged_post_recv(qp: *mut ibv_qp, wr: *mut ibv_recv_wr, bad: *mut *mut ibv_recv_wr) -> c_int {
    let result = post_recv(qp, wr, bad);
    log::call("ibv_post_recv", &[&qp, &wr, &first_receive(wr)], &result);
    result
}

extern "C" fn logged_post_srq_recv(
    srq: *mut ibv_srq,
    wr: *mut ibv_recv_wr,
    bad: *mut *mut ibv_recv_wr,
) -> c_int {
    let result = post_srq_recv(srq, wr, bad);
    log::call("ibv_post_srq_recv", &[&srq, &wr, &first_receive(wr)], &result);
    result
}

fn first_receive(wr: *mut ibv_recv_wr) -> Option<String> {
    input(wr).get().map(|wr| format!("wr_id {} num_sge {}", wr.wr_id, wr.num_sge))
}

extern "C" fn query_port(
    context: *mut ibv_context,
    port: u8,
    attr: *mut ibv_port_attr,
    size: usize,
) -> c_int {
    answer::errno("ibv_query_port", || port::query(Handle::from_ptr(context), port, attr.cast(), size))
}

extern "C" fn query_device_ex(
    context: *mut ibv_context,
    _input: *const ibv_query_device_ex_input,
    attr: *mut ibv_device_attr_ex,
    size: usize,
) -> c_int {
    answer::errno("ibv_query_device_ex", || {
        port::query_device_ex(Handle::from_ptr(context), attr.cast(), size)
    })
}

extern "C" fn create_cq_ex(context: *mut ibv_context, init: *mut ibv_cq_init_attr_ex) -> *mut ibv_cq_ex {
    answer::pointer("ibv_create_cq_ex", || {
        cq::create_ex(Handle::from_ptr(context), input(init)).map(Handle::cast)
    })
}

extern "C" fn create_qp_ex(context: *mut ibv_context, init: *mut ibv_qp_init_attr_ex) -> *mut ibv_qp {
    answer::pointer("ibv_create_qp_ex", || {
        queue_pair::create_ex(Handle::from_ptr(context), output(init)).map(Handle::cast)
    })
}

extern "C" fn get_srq_num(srq: *mut ibv_srq, number: *mut u32) -> c_int {
    answer::errno("ibv_get_srq_num", || srq::number(Handle::from_ptr(srq), output(number)))
}

extern "C" fn create_srq_ex(context: *mut ibv_context, init: *mut ibv_srq_init_attr_ex) -> *mut ibv_srq {
    answer::pointer("ibv_create_srq_ex", || {
        srq::create_ex(Handle::from_ptr(context), output(init)).map(Handle::cast)
    })
}

extern "C" fn advise_mr(pd: *mut ibv_pd, what: c_int, flags: u32, list: *mut ibv_sge, count: u32) -> c_int {
    answer::errno("ibv_advise_mr", || advice::advise(Handle::from_ptr(pd), what, flags, list, count))
}

extern "C" fn alloc_parent_domain(
    context: *mut ibv_context,
    attr: *mut ibv_parent_domain_init_attr,
) -> *mut ibv_pd {
    answer::pointer("ibv_alloc_parent_domain", || {
        pd::alloc_parent(Handle::from_ptr(context), input(attr)).map(Handle::cast)
    })
}

extern "C" fn alloc_td(context: *mut ibv_context, attr: *mut ibv_td_init_attr) -> *mut ibv_td {
    answer::pointer("ibv_alloc_td", || pd::alloc_td(Handle::from_ptr(context), input(attr)).map(Handle::cast))
}

extern "C" fn dealloc_td(td: *mut ibv_td) -> c_int {
    answer::errno("ibv_dealloc_td", || pd::dealloc_td(Handle::from_ptr(td)))
}

extern "C" fn alloc_dm(context: *mut ibv_context, attr: *mut ibv_alloc_dm_attr) -> *mut ibv_dm {
    answer::pointer("ibv_alloc_dm", || dm::alloc(Handle::from_ptr(context), input(attr)).map(Handle::cast))
}

extern "C" fn free_dm(dm: *mut ibv_dm) -> c_int {
    answer::errno("ibv_free_dm", || dm::free(Handle::from_ptr(dm)))
}

extern "C" fn reg_dm_mr(
    pd: *mut ibv_pd,
    dm: *mut ibv_dm,
    offset: u64,
    len: usize,
    access: c_uint,
) -> *mut ibv_mr {
    answer::pointer("ibv_reg_dm_mr", || {
        dm::register(Handle::from_ptr(pd), Handle::from_ptr(dm), offset, len, access).map(Handle::cast)
    })
}

fn input<T: Copy>(place: *mut T) -> In<T> {
    // SAFETY: a program passes NULL or the address of the type that the function takes. Test: `nonsense_is_answered` in
    // tests/programs.rs.
    unsafe { In::new(place) }
}

fn output<T>(place: *mut T) -> Out<T> {
    // SAFETY: as above.
    unsafe { Out::new(place) }
}
