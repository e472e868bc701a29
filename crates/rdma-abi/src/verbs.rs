//! `infiniband/verbs.h`: objects, requests, completions, attributes, and the function tables that its inline functions use.
//!
//! All types are in one file because they refer to each other in a cycle: a context has a table of functions, which take objects, which
//! point to their context.

use std::ffi::{c_char, c_int, c_uint, c_void};

use libc::{pthread_cond_t, pthread_mutex_t};

use crate::layout::structures;

/// A table entry that is never called, or left empty: then the inline function reports that it is not supported.
pub type Unused = *mut c_void;

/// The value of `abi_compat` in an `ibv_context` that is embedded in a `verbs_context`.
pub const VERBS_ABI_IS_EXTENDED: *mut c_void = std::ptr::without_provenance_mut(usize::MAX);

/// A global identifier of a port: 16 bytes in network byte order.
#[repr(C, align(8))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ibv_gid {
    pub raw: [u8; 16],
}

/// The operands of a send queue request, by its opcode.
#[repr(C)]
#[derive(Clone, Copy)]
pub union ibv_wr {
    pub rdma: ibv_wr_rdma,
    pub atomic: ibv_wr_atomic,
    pub ud: ibv_wr_ud,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct ibv_wr_rdma {
    pub remote_addr: u64,
    pub rkey: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct ibv_wr_atomic {
    pub remote_addr: u64,
    pub compare_add: u64,
    pub swap: u64,
    pub rkey: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct ibv_wr_ud {
    pub ah: *mut ibv_ah,
    pub remote_qpn: u32,
    pub remote_qkey: u32,
}

/// The operands of `IBV_WR_BIND_MW`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ibv_wr_bind_mw {
    pub mw: *mut ibv_mw,
    pub rkey: u32,
    pub bind_info: ibv_mw_bind_info,
}

/// The object that an asynchronous event concerns.
#[repr(C)]
#[derive(Clone, Copy)]
pub union ibv_async_element {
    pub cq: *mut ibv_cq,
    pub qp: *mut ibv_qp,
    pub srq: *mut ibv_srq,
    pub port_num: c_int,
}

structures! {
struct ibv_device {
    _ops: [*mut c_void; 2],
    node_type: c_int,
    transport_type: c_int,
    name: [c_char; 64],
    dev_name: [c_char; 64],
    dev_path: [c_char; 256],
    ibdev_path: [c_char; 256],
}
struct ibv_device_attr {
    fw_ver: [c_char; 64],
    node_guid: u64,
    sys_image_guid: u64,
    max_mr_size: u64,
    page_size_cap: u64,
    vendor_id: u32,
    vendor_part_id: u32,
    hw_ver: u32,
    max_qp: c_int,
    max_qp_wr: c_int,
    device_cap_flags: c_uint,
    max_sge: c_int,
    max_sge_rd: c_int,
    max_cq: c_int,
    max_cqe: c_int,
    max_mr: c_int,
    max_pd: c_int,
    max_qp_rd_atom: c_int,
    max_ee_rd_atom: c_int,
    max_res_rd_atom: c_int,
    max_qp_init_rd_atom: c_int,
    max_ee_init_rd_atom: c_int,
    atomic_cap: c_int,
    max_ee: c_int,
    max_rdd: c_int,
    max_mw: c_int,
    max_raw_ipv6_qp: c_int,
    max_raw_ethy_qp: c_int,
    max_mcast_grp: c_int,
    max_mcast_qp_attach: c_int,
    max_total_mcast_qp_attach: c_int,
    max_ah: c_int,
    max_fmr: c_int,
    max_map_per_fmr: c_int,
    max_srq: c_int,
    max_srq_wr: c_int,
    max_srq_sge: c_int,
    max_pkeys: u16,
    local_ca_ack_delay: u8,
    phys_port_cnt: u8,
}
struct ibv_query_device_ex_input {
    comp_mask: u32,
}
struct ibv_odp_caps {
    general_caps: u64,
    per_transport_caps: [u32; 3],
}
struct ibv_tso_caps {
    max_tso: u32,
    supported_qpts: u32,
}
struct ibv_rss_caps {
    supported_qpts: u32,
    max_rwq_indirection_tables: u32,
    max_rwq_indirection_table_size: u32,
    rx_hash_fields_mask: u64,
    rx_hash_function: u8,
}
struct ibv_packet_pacing_caps {
    qp_rate_limit_min: u32,
    qp_rate_limit_max: u32,
    supported_qpts: u32,
}
struct ibv_tm_caps {
    max_rndv_hdr_size: u32,
    max_num_tags: u32,
    flags: u32,
    max_ops: u32,
    max_sge: u32,
}
struct ibv_cq_moderation_caps {
    max_cq_count: u16,
    max_cq_period: u16,
}
struct ibv_pci_atomic_caps {
    fetch_add: u16,
    swap: u16,
    compare_swap: u16,
}
struct ibv_device_attr_ex {
    orig_attr: ibv_device_attr,
    comp_mask: u32,
    odp_caps: ibv_odp_caps,
    completion_timestamp_mask: u64,
    hca_core_clock: u64,
    device_cap_flags_ex: u64,
    tso_caps: ibv_tso_caps,
    rss_caps: ibv_rss_caps,
    max_wq_type_rq: u32,
    packet_pacing_caps: ibv_packet_pacing_caps,
    raw_packet_caps: u32,
    tm_caps: ibv_tm_caps,
    cq_mod_caps: ibv_cq_moderation_caps,
    max_dm_size: u64,
    pci_atomic_caps: ibv_pci_atomic_caps,
    xrc_odp_caps: u32,
    phys_port_cnt_ex: u32,
}
struct ibv_port_attr {
    state: c_int,
    max_mtu: c_int,
    active_mtu: c_int,
    gid_tbl_len: c_int,
    port_cap_flags: u32,
    max_msg_sz: u32,
    bad_pkey_cntr: u32,
    qkey_viol_cntr: u32,
    pkey_tbl_len: u16,
    lid: u16,
    sm_lid: u16,
    lmc: u8,
    max_vl_num: u8,
    sm_sl: u8,
    subnet_timeout: u8,
    init_type_reply: u8,
    active_width: u8,
    active_speed: u8,
    phys_state: u8,
    link_layer: u8,
    flags: u8,
    port_cap_flags2: u16,
}
struct ibv_gid_entry {
    gid: ibv_gid,
    gid_index: u32,
    port_num: u32,
    gid_type: u32,
    ndev_ifindex: u32,
}
struct ibv_async_event {
    element: ibv_async_element,
    event_type: c_int,
}
struct ibv_pd {
    context: *mut ibv_context,
    handle: u32,
}
struct ibv_td {
    context: *mut ibv_context,
}
struct ibv_td_init_attr {
    comp_mask: u32,
}
struct ibv_parent_domain_init_attr {
    pd: *mut ibv_pd,
    td: *mut ibv_td,
    comp_mask: u32,
    alloc: *mut c_void,
    free: *mut c_void,
    pd_context: *mut c_void,
}
struct ibv_mw_bind_info {
    mr: *mut ibv_mr,
    addr: u64,
    length: u64,
    mw_access_flags: c_uint,
}
struct ibv_mw_bind {
    wr_id: u64,
    send_flags: c_uint,
    bind_info: ibv_mw_bind_info,
}
struct ibv_mw {
    context: *mut ibv_context,
    pd: *mut ibv_pd,
    rkey: u32,
    handle: u32,
    _type: c_int,
}
struct ibv_mr {
    context: *mut ibv_context,
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    handle: u32,
    lkey: u32,
    rkey: u32,
}
struct ibv_alloc_dm_attr {
    length: usize,
    log_align_req: u32,
    comp_mask: u32,
}
struct ibv_dm {
    context: *mut ibv_context,
    memcpy_to_dm: Option<unsafe extern "C" fn(*mut ibv_dm, u64, *const c_void, usize) -> c_int>,
    memcpy_from_dm: Option<unsafe extern "C" fn(*mut c_void, *mut ibv_dm, u64, usize) -> c_int>,
    comp_mask: u32,
    handle: u32,
}
struct ibv_global_route {
    dgid: ibv_gid,
    flow_label: u32,
    sgid_index: u8,
    hop_limit: u8,
    traffic_class: u8,
}
struct ibv_grh {
    version_tclass_flow: u32,
    paylen: u16,
    next_hdr: u8,
    hop_limit: u8,
    sgid: ibv_gid,
    dgid: ibv_gid,
}
struct ibv_ah_attr {
    grh: ibv_global_route,
    dlid: u16,
    sl: u8,
    src_path_bits: u8,
    static_rate: u8,
    is_global: u8,
    port_num: u8,
}
struct ibv_ah {
    context: *mut ibv_context,
    pd: *mut ibv_pd,
    handle: u32,
}
struct ibv_srq_attr {
    max_wr: u32,
    max_sge: u32,
    srq_limit: u32,
}
struct ibv_srq_init_attr {
    srq_context: *mut c_void,
    attr: ibv_srq_attr,
}
struct ibv_tm_cap {
    max_num_tags: u32,
    max_ops: u32,
}
struct ibv_srq_init_attr_ex {
    srq_context: *mut c_void,
    attr: ibv_srq_attr,
    comp_mask: u32,
    srq_type: c_int,
    pd: *mut ibv_pd,
    xrcd: *mut c_void,
    cq: *mut ibv_cq,
    tm_cap: ibv_tm_cap,
}
struct ibv_srq {
    context: *mut ibv_context,
    srq_context: *mut c_void,
    pd: *mut ibv_pd,
    handle: u32,
    mutex: pthread_mutex_t,
    cond: pthread_cond_t,
    events_completed: u32,
}
struct ibv_qp_cap {
    max_send_wr: u32,
    max_recv_wr: u32,
    max_send_sge: u32,
    max_recv_sge: u32,
    max_inline_data: u32,
}
struct ibv_qp_init_attr {
    qp_context: *mut c_void,
    send_cq: *mut ibv_cq,
    recv_cq: *mut ibv_cq,
    srq: *mut ibv_srq,
    cap: ibv_qp_cap,
    qp_type: c_int,
    sq_sig_all: c_int,
}
struct ibv_rx_hash_conf {
    rx_hash_function: u8,
    rx_hash_key_len: u8,
    rx_hash_key: *mut u8,
    rx_hash_fields_mask: u64,
}
struct ibv_qp_init_attr_ex {
    qp_context: *mut c_void,
    send_cq: *mut ibv_cq,
    recv_cq: *mut ibv_cq,
    srq: *mut ibv_srq,
    cap: ibv_qp_cap,
    qp_type: c_int,
    sq_sig_all: c_int,
    comp_mask: u32,
    pd: *mut ibv_pd,
    xrcd: *mut c_void,
    create_flags: u32,
    max_tso_header: u16,
    rwq_ind_tbl: *mut c_void,
    rx_hash_conf: ibv_rx_hash_conf,
    source_qpn: u32,
    send_ops_flags: u64,
}
struct ibv_qp_attr {
    qp_state: c_int,
    cur_qp_state: c_int,
    path_mtu: c_int,
    path_mig_state: c_int,
    qkey: u32,
    rq_psn: u32,
    sq_psn: u32,
    dest_qp_num: u32,
    qp_access_flags: c_uint,
    cap: ibv_qp_cap,
    ah_attr: ibv_ah_attr,
    alt_ah_attr: ibv_ah_attr,
    pkey_index: u16,
    alt_pkey_index: u16,
    en_sqd_async_notify: u8,
    sq_draining: u8,
    max_rd_atomic: u8,
    max_dest_rd_atomic: u8,
    min_rnr_timer: u8,
    port_num: u8,
    timeout: u8,
    retry_cnt: u8,
    rnr_retry: u8,
    alt_port_num: u8,
    alt_timeout: u8,
    rate_limit: u32,
}
struct ibv_qp {
    context: *mut ibv_context,
    qp_context: *mut c_void,
    pd: *mut ibv_pd,
    send_cq: *mut ibv_cq,
    recv_cq: *mut ibv_cq,
    srq: *mut ibv_srq,
    handle: u32,
    qp_num: u32,
    state: c_int,
    qp_type: c_int,
    mutex: pthread_mutex_t,
    cond: pthread_cond_t,
    events_completed: u32,
}
struct ibv_data_buf {
    addr: *mut c_void,
    length: usize,
}
struct ibv_qp_ex {
    qp_base: ibv_qp,
    comp_mask: u64,
    wr_id: u64,
    wr_flags: c_uint,
    wr_atomic_cmp_swp: Option<unsafe extern "C" fn(*mut ibv_qp_ex, u32, u64, u64, u64)>,
    wr_atomic_fetch_add: Option<unsafe extern "C" fn(*mut ibv_qp_ex, u32, u64, u64)>,
    wr_bind_mw: Option<unsafe extern "C" fn(*mut ibv_qp_ex, *mut ibv_mw, u32, *const ibv_mw_bind_info)>,
    wr_local_inv: Option<unsafe extern "C" fn(*mut ibv_qp_ex, u32)>,
    wr_rdma_read: Option<unsafe extern "C" fn(*mut ibv_qp_ex, u32, u64)>,
    wr_rdma_write: Option<unsafe extern "C" fn(*mut ibv_qp_ex, u32, u64)>,
    wr_rdma_write_imm: Option<unsafe extern "C" fn(*mut ibv_qp_ex, u32, u64, u32)>,
    wr_send: Option<unsafe extern "C" fn(*mut ibv_qp_ex)>,
    wr_send_imm: Option<unsafe extern "C" fn(*mut ibv_qp_ex, u32)>,
    wr_send_inv: Option<unsafe extern "C" fn(*mut ibv_qp_ex, u32)>,
    wr_send_tso: *mut c_void,
    wr_set_ud_addr: Option<unsafe extern "C" fn(*mut ibv_qp_ex, *mut ibv_ah, u32, u32)>,
    wr_set_xrc_srqn: *mut c_void,
    wr_set_inline_data: Option<unsafe extern "C" fn(*mut ibv_qp_ex, *mut c_void, usize)>,
    wr_set_inline_data_list: Option<unsafe extern "C" fn(*mut ibv_qp_ex, usize, *const ibv_data_buf)>,
    wr_set_sge: Option<unsafe extern "C" fn(*mut ibv_qp_ex, u32, u64, u32)>,
    wr_set_sge_list: Option<unsafe extern "C" fn(*mut ibv_qp_ex, usize, *const ibv_sge)>,
    wr_start: Option<unsafe extern "C" fn(*mut ibv_qp_ex)>,
    wr_complete: Option<unsafe extern "C" fn(*mut ibv_qp_ex) -> c_int>,
    wr_abort: Option<unsafe extern "C" fn(*mut ibv_qp_ex)>,
    wr_atomic_write: *mut c_void,
}
struct ibv_sge {
    addr: u64,
    length: u32,
    lkey: u32,
}
struct ibv_send_wr {
    wr_id: u64,
    next: *mut ibv_send_wr,
    sg_list: *mut ibv_sge,
    num_sge: c_int,
    opcode: c_int,
    send_flags: c_uint,
    imm_data: u32,
    wr: ibv_wr,
    qp_type: u32,
    bind_mw: ibv_wr_bind_mw,
}
struct ibv_recv_wr {
    wr_id: u64,
    next: *mut ibv_recv_wr,
    sg_list: *mut ibv_sge,
    num_sge: c_int,
}
struct ibv_wc {
    wr_id: u64,
    status: c_int,
    opcode: c_int,
    vendor_err: u32,
    byte_len: u32,
    imm_data: u32,
    qp_num: u32,
    src_qp: u32,
    wc_flags: c_uint,
    pkey_index: u16,
    slid: u16,
    sl: u8,
    dlid_path_bits: u8,
}
struct ibv_comp_channel {
    context: *mut ibv_context,
    fd: c_int,
    refcnt: c_int,
}
struct ibv_cq {
    context: *mut ibv_context,
    channel: *mut ibv_comp_channel,
    cq_context: *mut c_void,
    handle: u32,
    cqe: c_int,
    mutex: pthread_mutex_t,
    cond: pthread_cond_t,
    comp_events_completed: u32,
    async_events_completed: u32,
}
struct ibv_poll_cq_attr {
    comp_mask: u32,
}
struct ibv_cq_ex {
    context: *mut ibv_context,
    channel: *mut ibv_comp_channel,
    cq_context: *mut c_void,
    handle: u32,
    cqe: c_int,
    mutex: pthread_mutex_t,
    cond: pthread_cond_t,
    comp_events_completed: u32,
    async_events_completed: u32,
    comp_mask: u32,
    status: c_int,
    wr_id: u64,
    start_poll: Option<unsafe extern "C" fn(*mut ibv_cq_ex, *mut ibv_poll_cq_attr) -> c_int>,
    next_poll: Option<unsafe extern "C" fn(*mut ibv_cq_ex) -> c_int>,
    end_poll: Option<unsafe extern "C" fn(*mut ibv_cq_ex)>,
    read_opcode: Option<unsafe extern "C" fn(*mut ibv_cq_ex) -> c_int>,
    read_vendor_err: Option<unsafe extern "C" fn(*mut ibv_cq_ex) -> u32>,
    read_byte_len: Option<unsafe extern "C" fn(*mut ibv_cq_ex) -> u32>,
    read_imm_data: Option<unsafe extern "C" fn(*mut ibv_cq_ex) -> u32>,
    read_qp_num: Option<unsafe extern "C" fn(*mut ibv_cq_ex) -> u32>,
    read_src_qp: Option<unsafe extern "C" fn(*mut ibv_cq_ex) -> u32>,
    read_wc_flags: Option<unsafe extern "C" fn(*mut ibv_cq_ex) -> c_uint>,
    read_slid: Option<unsafe extern "C" fn(*mut ibv_cq_ex) -> u32>,
    read_sl: Option<unsafe extern "C" fn(*mut ibv_cq_ex) -> u8>,
    read_dlid_path_bits: Option<unsafe extern "C" fn(*mut ibv_cq_ex) -> u8>,
    read_completion_ts: Option<unsafe extern "C" fn(*mut ibv_cq_ex) -> u64>,
    read_cvlan: Option<unsafe extern "C" fn(*mut ibv_cq_ex) -> u16>,
    read_flow_tag: Option<unsafe extern "C" fn(*mut ibv_cq_ex) -> u32>,
    read_tm_info: *mut c_void,
    read_completion_wallclock_ns: Option<unsafe extern "C" fn(*mut ibv_cq_ex) -> u64>,
}
struct ibv_cq_init_attr_ex {
    cqe: u32,
    cq_context: *mut c_void,
    channel: *mut ibv_comp_channel,
    comp_vector: u32,
    wc_flags: u64,
    comp_mask: u32,
    flags: u32,
    parent_domain: *mut ibv_pd,
}
struct ibv_ece {
    vendor_id: u32,
    options: u32,
    comp_mask: u32,
}
struct ibv_sa_path_rec {
    dgid: ibv_gid,
    sgid: ibv_gid,
    dlid: u16,
    slid: u16,
    raw_traffic: c_int,
    flow_label: u32,
    hop_limit: u8,
    traffic_class: u8,
    reversible: c_int,
    numb_path: u8,
    pkey: u16,
    sl: u8,
    mtu_selector: u8,
    mtu: u8,
    rate_selector: u8,
    rate: u8,
    packet_life_time_selector: u8,
    packet_life_time: u8,
    preference: u8,
}
struct ibv_context_ops {
    _compat_1: [Unused; 7],
    alloc_mw: Option<unsafe extern "C" fn(*mut ibv_pd, c_int) -> *mut ibv_mw>,
    bind_mw: Option<unsafe extern "C" fn(*mut ibv_qp, *mut ibv_mw, *mut ibv_mw_bind) -> c_int>,
    dealloc_mw: Option<unsafe extern "C" fn(*mut ibv_mw) -> c_int>,
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
    advise_mr: Option<unsafe extern "C" fn(*mut ibv_pd, c_int, u32, *mut ibv_sge, u32) -> c_int>,
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
    alloc_parent_domain: Option<unsafe extern "C" fn(*mut ibv_context, *mut ibv_parent_domain_init_attr) -> *mut ibv_pd>,
    dealloc_td: Option<unsafe extern "C" fn(*mut ibv_td) -> c_int>,
    alloc_td: Option<unsafe extern "C" fn(*mut ibv_context, *mut ibv_td_init_attr) -> *mut ibv_td>,
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
