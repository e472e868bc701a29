//! The standard's structures and the table's order, compared with the installed header by a C compiler.

use std::fmt::Write as _;
use std::mem::offset_of;
use std::process::Command;

use nicety_dat::{provider, types};

/// C statements that print facts, and their expected output.
struct Facts {
    code: String,
    expected: Vec<String>,
}

impl Facts {
    fn add(&mut self, expression: &str, value: usize) {
        writeln!(self.code, "printf(\"%s %zu\\n\", \"{expression}\", (size_t)({expression}));")
            .expect("a string");
        self.expected.push(format!("{expression} {value}"));
    }
}

/// Adds the size of a structure and the offsets of its fields: our name, then C's name if that differs.
macro_rules! structure {
    ($facts:ident, $ours:ty as $theirs:literal: $($field:ident $(= $c:literal)?),*) => {
        $facts.add(concat!("sizeof(", $theirs, ")"), size_of::<$ours>());
        $(
            #[allow(unused_mut, unused_assignments)]
            let mut name = stringify!($field).to_owned();
            $(name = $c.to_owned();)?
            $facts.add(&format!("offsetof({}, {name})", $theirs), offset_of!($ours, $field));
        )*
    };
}

fn facts() -> Facts {
    let mut facts = Facts { code: String::new(), expected: Vec::new() };
    structure!(facts, types::ProviderInfo as "DAT_PROVIDER_INFO":
        ia_name, version_major = "dapl_version_major", version_minor = "dapl_version_minor", is_thread_safe);
    structure!(facts, types::Triplet as "DAT_LMR_TRIPLET": virtual_address, segment_length, context = "lmr_context");
    structure!(facts, types::Triplet as "DAT_RMR_TRIPLET": virtual_address, segment_length, context = "rmr_context");
    structure!(facts, types::NamedAttr as "DAT_NAMED_ATTR": name, value);
    structure!(facts, types::IaAttr as "DAT_IA_ATTR":
        adapter_name, vendor_name, hardware_version_major, ia_address_ptr, max_eps, max_dto_per_ep,
        max_rdma_read_per_ep_in, max_rdma_read_per_ep_out, max_evds, max_evd_qlen, max_iov_segments_per_dto, max_lmrs,
        max_lmr_block_size, max_lmr_virtual_address, max_pzs, max_message_size, max_rdma_size, max_rmrs,
        max_rmr_target_address, max_srqs, max_ep_per_srq, max_recv_per_srq, max_iov_segments_per_rdma_read,
        max_iov_segments_per_rdma_write, max_rdma_read_in, max_rdma_read_out, max_rdma_read_per_ep_in_guaranteed,
        max_rdma_read_per_ep_out_guaranteed, zb_supported, extension_supported, extension_version, num_transport_attr,
        transport_attr, num_vendor_attr, vendor_attr);
    structure!(facts, types::ProviderAttr as "DAT_PROVIDER_ATTR":
        provider_name, provider_version_major, dapl_version_major, lmr_mem_types_supported, iov_ownership_on_return,
        dat_qos_supported, completion_flags_supported, is_thread_safe, max_private_data_size, supports_multipath,
        ep_creator, pz_support, optimal_buffer_alignment, evd_stream_merging_supported, srq_supported,
        srq_watermarks_supported, srq_ep_pz_difference_supported, srq_info_supported, ep_recv_info_supported,
        lmr_sync_req, dto_async_return_guaranteed, rdma_write_for_rdma_read_req, rdma_read_lmr_rmr_context_exposure,
        rmr_scope_supported, is_signal_safe, ha_supported, ha_loadbalancing, num_provider_specific_attr,
        provider_specific_attr);
    structure!(facts, types::EpAttr as "DAT_EP_ATTR":
        service_type, max_message_size, max_rdma_size, qos, recv_completion_flags, request_completion_flags,
        max_recv_dtos, max_request_dtos, max_recv_iov, max_request_iov, max_rdma_read_in, max_rdma_read_out,
        srq_soft_hw, max_rdma_read_iov, max_rdma_write_iov, ep_transport_specific_count, ep_transport_specific,
        ep_provider_specific_count, ep_provider_specific);
    structure!(facts, types::EpParam as "DAT_EP_PARAM":
        ia_handle, ep_state, comm, local_ia_address_ptr, local_port_qual, remote_ia_address_ptr, remote_port_qual,
        pz_handle, recv_evd_handle, request_evd_handle, connect_evd_handle, srq_handle, ep_attr);
    structure!(facts, types::SrqAttr as "DAT_SRQ_ATTR": max_recv_dtos, max_recv_iov, low_watermark);
    structure!(facts, types::SrqParam as "DAT_SRQ_PARAM":
        ia_handle, srq_state, pz_handle, max_recv_dtos, max_recv_iov, low_watermark, available_dto_count,
        outstanding_dto_count);
    structure!(facts, types::PzParam as "DAT_PZ_PARAM": ia_handle);
    structure!(facts, types::PspParam as "DAT_PSP_PARAM": ia_handle, conn_qual, evd_handle, psp_flags);
    structure!(facts, types::RspParam as "DAT_RSP_PARAM": ia_handle, conn_qual, evd_handle, ep_handle);
    structure!(facts, types::CrParam as "DAT_CR_PARAM":
        remote_ia_address_ptr, remote_port_qual, private_data_size, private_data, local_ep_handle);
    structure!(facts, types::EvdParam as "DAT_EVD_PARAM": ia_handle, evd_qlen, evd_state, cno_handle, evd_flags);
    structure!(facts, types::ProxyAgent as "DAT_OS_WAIT_PROXY_AGENT": instance_data, proxy_agent_func);
    structure!(facts, types::CnoParam as "DAT_CNO_PARAM": ia_handle, proxy_type, agent = "proxy");
    structure!(facts, types::RegionDescription as "DAT_REGION_DESCRIPTION": for_va);
    structure!(facts, types::LmrParam as "DAT_LMR_PARAM":
        ia_handle, mem_type, region_desc, length, pz_handle, mem_priv, va_type, lmr_context, rmr_context,
        registered_size, registered_address);
    structure!(facts, types::RmrParam as "DAT_RMR_PARAM":
        ia_handle, pz_handle, lmr_triplet, mem_priv, rmr_context, rmr_scope, va_type);
    structure!(facts, types::DtoData as "DAT_DTO_COMPLETION_EVENT_DATA":
        ep_handle, user_cookie, status, transfered_length, operation, rmr_context);
    structure!(facts, types::RmrBindData as "DAT_RMR_BIND_COMPLETION_EVENT_DATA": rmr_handle, user_cookie, status);
    structure!(facts, types::CrArrivalData as "DAT_CR_ARRIVAL_EVENT_DATA":
        sp_handle, local_ia_address_ptr, conn_qual, cr_handle, truncate_flag);
    structure!(facts, types::ConnectionData as "DAT_CONNECTION_EVENT_DATA": ep_handle, private_data_size, private_data);
    structure!(facts, types::AsyncData as "DAT_ASYNCH_ERROR_EVENT_DATA": dat_handle, reason);
    structure!(facts, types::Event as "DAT_EVENT": event_number, evd_handle, event_data, event_extension_data);
    facts.add("sizeof(DAT_PROVIDER)", size_of::<provider::Provider>());
    facts.add("sizeof(DAT_CONTEXT)", size_of::<u64>());
    for (at, name) in provider::NAMES.iter().enumerate() {
        facts.add(&format!("offsetof(DAT_PROVIDER, {name}_func)"), 8 * (at + 2));
    }
    constants(&mut facts);
    facts
}

/// Constants for which dapltest would not detect a wrong value.
fn constants(facts: &mut Facts) {
    use dapl::{
        AsyncKind, CompletionFlags as C, ConnectionKind, DtoStatus, EpState, ErrorKind, EvdFlags, MemPriv,
        Subtype,
    };
    let kinds = [
        ("DAT_CONN_QUAL_IN_USE", ErrorKind::ConnQualInUse),
        ("DAT_PRIVILEGES_VIOLATION", ErrorKind::PrivilegesViolation),
        ("DAT_QUEUE_FULL", ErrorKind::QueueFull),
        ("DAT_INVALID_ADDRESS", ErrorKind::InvalidAddress),
        ("DAT_NOT_IMPLEMENTED", ErrorKind::NotImplemented),
    ];
    kinds.into_iter().for_each(|(name, kind)| facts.add(name, (kind as usize) << 16));
    let subtypes = [
        ("DAT_RESOURCE_SRQ", Subtype::ResourceSrq),
        ("DAT_INVALID_HANDLE_CSP", Subtype::HandleCsp),
        ("DAT_INVALID_ARG10", Subtype::Arg10),
        ("DAT_INVALID_STATE_EP_DISCPENDING", Subtype::EpDisconnectPending),
        ("DAT_INVALID_STATE_EP_NOTREADY", Subtype::EpNotReady),
        ("DAT_INVALID_STATE_EP_UNCONFIGURED", Subtype::EpUnconfigured),
        ("DAT_INVALID_STATE_CNO_IN_USE", Subtype::CnoInUse),
        ("DAT_INVALID_STATE_EVD_IN_USE", Subtype::EvdInUse),
        ("DAT_INVALID_STATE_SRQ_IN_USE", Subtype::SrqInUse),
        ("DAT_PRIVILEGES_RDMA_WRITE", Subtype::PrivilegesRdmaWrite),
        ("DAT_INVALID_ADDRESS_MALFORMED", Subtype::AddressMalformed),
        ("DAT_NAME_NOT_REGISTERED", Subtype::NameNotRegistered),
    ];
    subtypes.into_iter().for_each(|(name, subtype)| facts.add(name, subtype as usize));
    facts.add("DAT_EP_STATE_COMPLETION_PENDING", EpState::CompletionPending as usize);
    facts.add("DAT_EP_STATE_UNCONFIGURED_TENTATIVE", EpState::UnconfiguredTentative as usize);
    facts.add("DAT_DTO_ERR_RECEIVER_NOT_READY", DtoStatus::ReceiverNotReady as usize);
    facts.add("DAT_CONNECTION_EVENT_UNREACHABLE", ConnectionKind::Unreachable as usize);
    facts.add("DAT_ASYNC_ERROR_PROVIDER_INTERNAL_ERROR", AsyncKind::ProviderInternal as usize);
    facts.add("DAT_COMPLETION_EVD_THRESHOLD_FLAG", C::EVD_THRESHOLD.bits() as usize);
    facts.add("DAT_EVD_ASYNC_FLAG", EvdFlags::ASYNC.bits() as usize);
    facts.add("DAT_MEM_PRIV_ALL_FLAG", MemPriv::all().bits() as usize);
}

#[test]
fn structures_are_the_headers() {
    let facts = facts();
    let directory = tempfile::tempdir().expect("a directory");
    let (source, program) = (directory.path().join("facts.c"), directory.path().join("facts"));
    let code = format!(
        "#include <stddef.h>\n#include <stdio.h>\n#include <dat2/udat.h>\n#include <dat2/dat_registry.h>\n\
         int main(void) {{\n{}return 0;\n}}\n",
        facts.code
    );
    std::fs::write(&source, code).expect("written");
    let probe = Command::new("cc").args(["-E", "-include", "dat2/udat.h", "-x", "c", "/dev/null"]).output();
    if !probe.is_ok_and(|output| output.status.success()) {
        eprintln!("SKIPPED: no C compiler with dat2/udat.h here; apt-get install gcc libdapl-dev");
        return;
    }
    let compiled = Command::new("cc").arg("-o").arg(&program).arg(&source).output().expect("cc runs");
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    let printed = Command::new(&program).output().expect("it runs").stdout;
    let printed = String::from_utf8(printed).expect("text");
    for (theirs, ours) in printed.lines().zip(&facts.expected) {
        assert_eq!(theirs, ours, "the header on the left, ours on the right");
    }
    assert_eq!(printed.lines().count(), facts.expected.len());
}
