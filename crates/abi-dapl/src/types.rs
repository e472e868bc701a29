//! The standard's structures with their C layout (`dat.h`, `udat.h` of DAT 2.0 with extensions, Linux, 64 bits).
//!
//! `tests/header.rs` compares sizes and offsets with the installed header.

use std::ffi::{c_char, c_void};

/// The program's handle for an object.
pub type Handle = *mut c_void;

/// The longest name, with its terminating zero.
pub const NAME_MAX: usize = 256;

/// The argument of `dat_provider_init` (`DAT_PROVIDER_INFO`).
#[repr(C)]
#[allow(missing_docs)] // the standard's names
pub struct ProviderInfo {
    pub ia_name: [c_char; NAME_MAX],
    pub version_major: u32,
    pub version_minor: u32,
    pub is_thread_safe: i32,
}

/// A segment of a region (`DAT_LMR_TRIPLET`, `DAT_RMR_TRIPLET`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
#[allow(missing_docs)] // the standard's names
pub struct Triplet {
    pub virtual_address: u64,
    pub segment_length: u32,
    pub context: u32,
}

/// A name and its value (`DAT_NAMED_ATTR`).
#[derive(Clone, Copy)]
#[repr(C)]
#[allow(missing_docs)] // the standard's names
pub struct NamedAttr {
    pub name: *const c_char,
    pub value: *const c_char,
}

/// `DAT_IA_ATTR`.
#[derive(Clone, Copy)]
#[repr(C)]
#[allow(missing_docs)] // the standard's names
pub struct IaAttr {
    pub adapter_name: [c_char; NAME_MAX],
    pub vendor_name: [c_char; NAME_MAX],
    pub hardware_version_major: u32,
    pub hardware_version_minor: u32,
    pub firmware_version_major: u32,
    pub firmware_version_minor: u32,
    pub ia_address_ptr: *mut c_void,
    pub max_eps: i32,
    pub max_dto_per_ep: i32,
    pub max_rdma_read_per_ep_in: i32,
    pub max_rdma_read_per_ep_out: i32,
    pub max_evds: i32,
    pub max_evd_qlen: i32,
    pub max_iov_segments_per_dto: i32,
    pub max_lmrs: i32,
    pub max_lmr_block_size: u32,
    pub max_lmr_virtual_address: u64,
    pub max_pzs: i32,
    pub max_message_size: u32,
    pub max_rdma_size: u32,
    pub max_rmrs: i32,
    pub max_rmr_target_address: u64,
    pub max_srqs: i32,
    pub max_ep_per_srq: i32,
    pub max_recv_per_srq: i32,
    pub max_iov_segments_per_rdma_read: i32,
    pub max_iov_segments_per_rdma_write: i32,
    pub max_rdma_read_in: i32,
    pub max_rdma_read_out: i32,
    pub max_rdma_read_per_ep_in_guaranteed: i32,
    pub max_rdma_read_per_ep_out_guaranteed: i32,
    pub zb_supported: i32,
    pub extension_supported: u32,
    pub extension_version: i32,
    pub num_transport_attr: i32,
    pub transport_attr: *mut NamedAttr,
    pub num_vendor_attr: i32,
    pub vendor_attr: *mut NamedAttr,
}

/// `DAT_PROVIDER_ATTR`.
#[derive(Clone, Copy)]
#[repr(C)]
#[allow(missing_docs)] // the standard's names
pub struct ProviderAttr {
    pub provider_name: [c_char; NAME_MAX],
    pub provider_version_major: u32,
    pub provider_version_minor: u32,
    pub dapl_version_major: u32,
    pub dapl_version_minor: u32,
    pub lmr_mem_types_supported: u32,
    pub iov_ownership_on_return: u32,
    pub dat_qos_supported: u32,
    pub completion_flags_supported: u32,
    pub is_thread_safe: i32,
    pub max_private_data_size: i32,
    pub supports_multipath: i32,
    pub ep_creator: u32,
    pub pz_support: u32,
    pub optimal_buffer_alignment: u32,
    pub evd_stream_merging_supported: [[i32; 6]; 6],
    pub srq_supported: i32,
    pub srq_watermarks_supported: i32,
    pub srq_ep_pz_difference_supported: i32,
    pub srq_info_supported: i32,
    pub ep_recv_info_supported: i32,
    pub lmr_sync_req: i32,
    pub dto_async_return_guaranteed: i32,
    pub rdma_write_for_rdma_read_req: i32,
    pub rdma_read_lmr_rmr_context_exposure: i32,
    pub rmr_scope_supported: u32,
    pub is_signal_safe: i32,
    pub ha_supported: i32,
    pub ha_loadbalancing: u32,
    pub num_provider_specific_attr: i32,
    pub provider_specific_attr: *mut NamedAttr,
}

/// `DAT_EP_ATTR`.
#[derive(Clone, Copy)]
#[repr(C)]
#[allow(missing_docs)] // the standard's names
pub struct EpAttr {
    pub service_type: u32,
    pub max_message_size: u32,
    pub max_rdma_size: u32,
    pub qos: u32,
    pub recv_completion_flags: u32,
    pub request_completion_flags: u32,
    pub max_recv_dtos: i32,
    pub max_request_dtos: i32,
    pub max_recv_iov: i32,
    pub max_request_iov: i32,
    pub max_rdma_read_in: i32,
    pub max_rdma_read_out: i32,
    pub srq_soft_hw: i32,
    pub max_rdma_read_iov: i32,
    pub max_rdma_write_iov: i32,
    pub ep_transport_specific_count: i32,
    pub ep_transport_specific: *mut NamedAttr,
    pub ep_provider_specific_count: i32,
    pub ep_provider_specific: *mut NamedAttr,
}

/// `DAT_EP_PARAM`.
#[derive(Clone, Copy)]
#[repr(C)]
#[allow(missing_docs)] // the standard's names
pub struct EpParam {
    pub ia_handle: Handle,
    pub ep_state: u32,
    pub comm: [i32; 3],
    pub local_ia_address_ptr: *mut c_void,
    pub local_port_qual: u64,
    pub remote_ia_address_ptr: *mut c_void,
    pub remote_port_qual: u64,
    pub pz_handle: Handle,
    pub recv_evd_handle: Handle,
    pub request_evd_handle: Handle,
    pub connect_evd_handle: Handle,
    pub srq_handle: Handle,
    pub ep_attr: EpAttr,
}

/// `DAT_SRQ_ATTR`.
#[derive(Clone, Copy)]
#[repr(C)]
#[allow(missing_docs)] // the standard's names
pub struct SrqAttr {
    pub max_recv_dtos: i32,
    pub max_recv_iov: i32,
    pub low_watermark: i32,
}

/// `DAT_SRQ_PARAM`.
#[repr(C)]
#[allow(missing_docs)] // the standard's names
pub struct SrqParam {
    pub ia_handle: Handle,
    pub srq_state: u32,
    pub pz_handle: Handle,
    pub max_recv_dtos: i32,
    pub max_recv_iov: i32,
    pub low_watermark: i32,
    pub available_dto_count: i32,
    pub outstanding_dto_count: i32,
}

/// `DAT_PZ_PARAM`.
#[repr(C)]
#[allow(missing_docs)] // the standard's names
pub struct PzParam {
    pub ia_handle: Handle,
}

/// `DAT_PSP_PARAM`.
#[repr(C)]
#[allow(missing_docs)] // the standard's names
pub struct PspParam {
    pub ia_handle: Handle,
    pub conn_qual: u64,
    pub evd_handle: Handle,
    pub psp_flags: u32,
}

/// `DAT_RSP_PARAM`.
#[repr(C)]
#[allow(missing_docs)] // the standard's names
pub struct RspParam {
    pub ia_handle: Handle,
    pub conn_qual: u64,
    pub evd_handle: Handle,
    pub ep_handle: Handle,
}

/// `DAT_CR_PARAM`.
#[repr(C)]
#[allow(missing_docs)] // the standard's names
pub struct CrParam {
    pub remote_ia_address_ptr: *mut c_void,
    pub remote_port_qual: u64,
    pub private_data_size: i32,
    pub private_data: *mut c_void,
    pub local_ep_handle: Handle,
}

/// `DAT_EVD_PARAM`.
#[repr(C)]
#[allow(missing_docs)] // the standard's names
pub struct EvdParam {
    pub ia_handle: Handle,
    pub evd_qlen: i32,
    pub evd_state: u32,
    pub cno_handle: Handle,
    pub evd_flags: u32,
}

/// `DAT_OS_WAIT_PROXY_AGENT`.
#[derive(Clone, Copy)]
#[repr(C)]
#[allow(missing_docs)] // the standard's names
pub struct ProxyAgent {
    pub instance_data: *mut c_void,
    pub proxy_agent_func: Option<unsafe extern "C" fn(*mut c_void, Handle)>,
}

/// `DAT_CNO_PARAM`.
#[repr(C)]
#[allow(missing_docs)] // the standard's names
pub struct CnoParam {
    pub ia_handle: Handle,
    pub proxy_type: u32,
    pub agent: ProxyAgent,
}

/// `DAT_REGION_DESCRIPTION`: an address or a handle in the first word, the rest for shared memory.
#[derive(Clone, Copy)]
#[repr(C)]
#[allow(missing_docs)] // the standard's names
pub struct RegionDescription {
    pub for_va: *mut c_void,
    pub shared_memory_id: *mut c_void,
}

/// `DAT_LMR_PARAM`.
#[repr(C)]
#[allow(missing_docs)] // the standard's names
pub struct LmrParam {
    pub ia_handle: Handle,
    pub mem_type: u32,
    pub region_desc: RegionDescription,
    pub length: u64,
    pub pz_handle: Handle,
    pub mem_priv: u32,
    pub va_type: u32,
    pub lmr_context: u32,
    pub rmr_context: u32,
    pub registered_size: u64,
    pub registered_address: u64,
}

/// `DAT_RMR_PARAM`.
#[repr(C)]
#[allow(missing_docs)] // the standard's names
pub struct RmrParam {
    pub ia_handle: Handle,
    pub pz_handle: Handle,
    pub lmr_triplet: Triplet,
    pub mem_priv: u32,
    pub rmr_context: u32,
    pub rmr_scope: u32,
    pub va_type: u32,
}

/// `DAT_DTO_COMPLETION_EVENT_DATA`.
#[derive(Clone, Copy)]
#[repr(C)]
#[allow(missing_docs)] // the standard's names
pub struct DtoData {
    pub ep_handle: Handle,
    pub user_cookie: u64,
    pub status: u32,
    pub transfered_length: u32,
    pub operation: u32,
    pub rmr_context: u32,
}

/// `DAT_RMR_BIND_COMPLETION_EVENT_DATA`.
#[derive(Clone, Copy)]
#[repr(C)]
#[allow(missing_docs)] // the standard's names
pub struct RmrBindData {
    pub rmr_handle: Handle,
    pub user_cookie: u64,
    pub status: u32,
}

/// `DAT_CR_ARRIVAL_EVENT_DATA`.
#[derive(Clone, Copy)]
#[repr(C)]
#[allow(missing_docs)] // the standard's names
pub struct CrArrivalData {
    pub sp_handle: Handle,
    pub local_ia_address_ptr: *mut c_void,
    pub conn_qual: u64,
    pub cr_handle: Handle,
    pub truncate_flag: i32,
}

/// `DAT_CONNECTION_EVENT_DATA`.
#[derive(Clone, Copy)]
#[repr(C)]
#[allow(missing_docs)] // the standard's names
pub struct ConnectionData {
    pub ep_handle: Handle,
    pub private_data_size: i32,
    pub private_data: *mut c_void,
}

/// `DAT_ASYNCH_ERROR_EVENT_DATA`.
#[derive(Clone, Copy)]
#[repr(C)]
#[allow(missing_docs)] // the standard's names
pub struct AsyncData {
    pub dat_handle: Handle,
    pub reason: i32,
}

/// `DAT_EVENT_DATA`.
#[derive(Clone, Copy)]
#[repr(C)]
#[allow(missing_docs)] // the standard's names
pub union EventData {
    pub dto: DtoData,
    pub rmr_bind: RmrBindData,
    pub cr_arrival: CrArrivalData,
    pub connect: ConnectionData,
    pub asynch: AsyncData,
    pub software: *mut c_void,
    pub words: [u64; 5],
}

/// `DAT_EVENT`.
#[derive(Clone, Copy)]
#[repr(C)]
#[allow(missing_docs)] // the standard's names
pub struct Event {
    pub event_number: u32,
    pub evd_handle: Handle,
    pub event_data: EventData,
    pub event_extension_data: [u64; 8],
}

const _: () = {
    assert!(size_of::<ProviderInfo>() == 268);
    assert!(size_of::<IaAttr>() == 688);
    assert!(size_of::<ProviderAttr>() == 520);
    assert!(size_of::<EpAttr>() == 88);
    assert!(size_of::<EpParam>() == 184);
    assert!(size_of::<Event>() == 120);
};
