//! The tables of functions that the inline functions of `verbs.h` go through: `ibv_context`, and `verbs_context` before it.

use std::ffi::{c_int, c_void};

use libc::pthread_mutex_t;

use crate::layout::structures;
use crate::verbs::*;

/// A slot that nobody calls, or that is left empty: the inline function then says that it is not supported.
pub type Unused = *mut c_void;

/// What `abi_compat` is where a `verbs_context` lies before the `ibv_context`.
pub const VERBS_ABI_IS_EXTENDED: *mut c_void = std::ptr::without_provenance_mut(usize::MAX);

structures! {
struct ibv_context_ops {
    _compat_1: [Unused; 7],
    alloc_mw: Unused,
    bind_mw: Unused,
    dealloc_mw: Unused,
    _compat_2: Unused,
    poll_cq: Option<unsafe extern "C" fn(*mut ibv_cq, c_int, *mut ibv_wc) -> c_int>,
    req_notify_cq: Option<unsafe extern "C" fn(*mut ibv_cq, c_int) -> c_int>,
    _compat_3: [Unused; 7],
    post_srq_recv: Option<unsafe extern "C" fn(*mut ibv_srq, *mut ibv_recv_wr, *mut *mut ibv_recv_wr) -> c_int>,
    _compat_4: [Unused; 4],
    post_send: Option<unsafe extern "C" fn(*mut ibv_qp, *mut ibv_send_wr, *mut *mut ibv_send_wr) -> c_int>,
    post_recv: Option<unsafe extern "C" fn(*mut ibv_qp, *mut ibv_recv_wr, *mut *mut ibv_recv_wr) -> c_int>,
    _compat_5: [Unused; 5],
}
struct ibv_context {
    device: *mut ibv_device,
    ops: ibv_context_ops,
    cmd_fd: c_int,
    async_fd: c_int,
    num_comp_vectors: c_int,
    mutex: pthread_mutex_t,
    abi_compat: *mut c_void,
}
struct verbs_context {
    query_port: Option<unsafe extern "C" fn(*mut ibv_context, u8, *mut ibv_port_attr, usize) -> c_int>,
    advise_mr: Unused,
    alloc_null_mr: Unused,
    read_counters: Unused,
    attach_counters_point_flow: Unused,
    create_counters: Unused,
    destroy_counters: Unused,
    reg_dm_mr: Option<unsafe extern "C" fn(*mut ibv_pd, *mut ibv_dm, u64, usize, u32) -> *mut ibv_mr>,
    alloc_dm: Option<unsafe extern "C" fn(*mut ibv_context, *mut ibv_alloc_dm_attr) -> *mut ibv_dm>,
    free_dm: Option<unsafe extern "C" fn(*mut ibv_dm) -> c_int>,
    modify_flow_action_esp: Unused,
    destroy_flow_action: Unused,
    create_flow_action_esp: Unused,
    modify_qp_rate_limit: Unused,
    alloc_parent_domain: Unused,
    dealloc_td: Unused,
    alloc_td: Unused,
    modify_cq: Unused,
    post_srq_ops: Unused,
    destroy_rwq_ind_table: Unused,
    create_rwq_ind_table: Unused,
    destroy_wq: Unused,
    modify_wq: Unused,
    create_wq: Unused,
    query_rt_values: Unused,
    create_cq_ex: Option<unsafe extern "C" fn(*mut ibv_context, *mut ibv_cq_init_attr_ex) -> *mut ibv_cq_ex>,
    _priv: Unused,
    query_device_ex: Option<unsafe extern "C" fn(*mut ibv_context, *const ibv_query_device_ex_input, *mut ibv_device_attr_ex, usize) -> c_int>,
    ibv_destroy_flow: Unused,
    ABI_placeholder2: Unused,
    ibv_create_flow: Unused,
    ABI_placeholder1: Unused,
    open_qp: Unused,
    create_qp_ex: Option<unsafe extern "C" fn(*mut ibv_context, *mut ibv_qp_init_attr_ex) -> *mut ibv_qp>,
    get_srq_num: Option<unsafe extern "C" fn(*mut ibv_srq, *mut u32) -> c_int>,
    create_srq_ex: Option<unsafe extern "C" fn(*mut ibv_context, *mut ibv_srq_init_attr_ex) -> *mut ibv_srq>,
    open_xrcd: Unused,
    close_xrcd: Unused,
    _ABI_placeholder3: u64,
    sz: usize,
    context: ibv_context,
}
}
