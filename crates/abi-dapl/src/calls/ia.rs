//! Interface adapters (`dat_ia_*`), and the functions for handles of any kind.

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use dapl::{Adapter, Error, ErrorKind, Ia, Result, Subtype};
use host::real::remark;

use super::{mask, signed};
use crate::dat_conf::{ConfLine, line};
use crate::dat_return::{dat_return, not_implemented};
use crate::handles::{self, IaObject, Object, from_label, label};
use crate::types::{Handle, IaAttr, NAME_MAX, ProviderAttr};
use ffi::{CBuffer, Out, Text, lock};

/// Open devices, with the number of adapters on each.
static OPEN: Mutex<BTreeMap<String, (Adapter, usize)>> = Mutex::new(BTreeMap::new());

/// `DAT_EVD_ASYNC_EXISTS` and `DAT_EVD_OUT_OF_SCOPE`.
const ASYNC_EXISTS: u64 = 1;
const OUT_OF_SCOPE: u64 = 2;

const ALL_IA_FIELDS: u64 = 0x3F_FFFF_FFFF;
const ALL_PROVIDER_FIELDS: u64 = 0x7FFF_FFFF;

/// Returns the adapter on a device, and opens the device if necessary.
fn adapter(ia_name: &str, device: &str) -> Result<Adapter> {
    let mut open = lock(&OPEN);
    if let Some((adapter, users)) = open.get_mut(device) {
        *users += 1;
        return Ok(adapter.clone());
    }
    let opened = fabric::open(device, &host::real::host()).map_err(|why| {
        // The standard's error numbers cannot express this.
        remark(format_args!("DAT adapter '{ia_name}' cannot be opened: {why}"));
        Error::new(ErrorKind::ProviderNotFound, Subtype::NameNotRegistered)
    })?;
    let adapter = Adapter::new(opened);
    open.insert(device.to_owned(), (adapter.clone(), 1));
    Ok(adapter)
}

/// Removes one adapter from a device, and closes the device after the last one.
fn release(device: &str) {
    let mut open = lock(&OPEN);
    if let Some((_, users)) = open.get_mut(device) {
        *users -= 1;
        if *users == 0 {
            open.remove(device);
        }
    }
}

/// `dat_ia_open` for an adapter that its line in dat.conf calls `nonthreadsafe`.
pub(crate) extern "C" fn open_nonthreadsafe(
    name: Text,
    qlen: i32,
    async_evd: Out<Handle>,
    ia: Out<Handle>,
) -> u32 {
    open(false, name, qlen, async_evd, ia)
}

/// `dat_ia_open` for an adapter that its line in dat.conf calls `threadsafe`.
pub(crate) extern "C" fn open_threadsafe(
    name: Text,
    qlen: i32,
    async_evd: Out<Handle>,
    ia: Out<Handle>,
) -> u32 {
    open(true, name, qlen, async_evd, ia)
}

fn open(is_thread_safe: bool, name: Text, qlen: i32, async_evd: Out<Handle>, ia: Out<Handle>) -> u32 {
    dat_return("ia_open", || {
        let name = name.get().ok_or(Error::argument(Subtype::Arg1))?;
        let qlen = u32::try_from(qlen).ok().filter(|qlen| *qlen > 0).ok_or(Error::argument(Subtype::Arg2))?;
        let given = async_evd.required(Error::argument(Subtype::Arg3))?.get().unwrap_or(std::ptr::null_mut());
        let place = ia.required(Error::argument(Subtype::Arg4))?;
        // An existing dispatcher also serves this adapter, but does not learn which events belong to it.
        let wanted = match label(given) {
            0 => qlen,
            ASYNC_EXISTS => 0,
            _ => handles::evd(given, Subtype::HandleEvdAsync).map(|_| 0)?,
        };
        let known = Error::new(ErrorKind::ProviderNotFound, Subtype::NameNotRegistered);
        let line = line(&name, is_thread_safe).ok_or(known)?;
        let adapter = adapter(&name, &line.device)?;
        let made = make(&adapter, line.clone(), is_thread_safe, wanted, given);
        let opened = made.inspect_err(|_| release(&line.device))?;
        place.set(opened.0);
        async_evd.set(opened.1);
        Ok(())
    })
}

/// Creates an adapter and its dispatcher; returns their handles.
fn make(
    adapter: &Adapter,
    line: ConfLine,
    is_thread_safe: bool,
    qlen: u32,
    given: Handle,
) -> Result<(Handle, Handle)> {
    let (ia, evd) = Ia::open(adapter, qlen)?;
    let address = CBuffer::address(SocketAddr::new(ia.attr().address, 0));
    let async_evd = match &evd {
        Some(evd) => handles::insert_with(Object::Evd(evd.clone()), 0, &line)?,
        None => given,
    };
    let object = IaObject { ia: ia.clone(), line: line.clone(), is_thread_safe, async_evd, address };
    let handle = handles::insert_with(Object::Ia(Arc::new(object)), 0, &line).inspect_err(|_| {
        if evd.is_some() {
            handles::remove(async_evd);
        }
    })?;
    ia.set_label(label(handle));
    if let Some(evd) = &evd {
        evd.set_label(label(async_evd));
        if let Some(entry) = handles::lookup(async_evd) {
            entry.ia.store(label(handle), Ordering::Relaxed);
        }
    }
    Ok((handle, async_evd))
}

pub(crate) extern "C" fn close(ia: Handle, flags: u32) -> u32 {
    dat_return("ia_close", || {
        let object = handles::ia(ia, Subtype::HandleIa)?;
        let objects = handles::handles_of(label(ia));
        let used = objects.iter().any(|handle| *handle != object.async_evd);
        match flags {
            // Abrupt: all objects of the adapter are freed with it.
            0 => {}
            1 if !used => {}
            1 => return Err(Error::state(Subtype::IaInUse)),
            _ => return Err(Error::argument(Subtype::Arg2)),
        }
        if !handles::remove(ia) {
            // Another thread has closed it first.
            return Err(Error::handle(Subtype::HandleIa));
        }
        for handle in objects {
            handles::remove(handle);
        }
        release(&object.line.device);
        Ok(())
    })
}

pub(crate) extern "C" fn query(
    ia: Handle,
    async_evd: Out<Handle>,
    ia_mask: u64,
    ia_attr: Out<IaAttr>,
    provider_mask: u64,
    provider_attr: Out<ProviderAttr>,
) -> u32 {
    dat_return("ia_query", || {
        let object = handles::ia(ia, Subtype::HandleIa)?;
        mask(ia_mask, ALL_IA_FIELDS, Subtype::Arg3)?;
        mask(provider_mask, ALL_PROVIDER_FIELDS, Subtype::Arg5)?;
        if ia_mask != 0 {
            ia_attr.required(Error::argument(Subtype::Arg4))?.set(attributes(&object));
        }
        if provider_mask != 0 {
            provider_attr.required(Error::argument(Subtype::Arg6))?.set(provider_attributes(&object));
        }
        let none = label(object.async_evd) == ASYNC_EXISTS;
        async_evd.set(if none { from_label(OUT_OF_SCOPE) } else { object.async_evd });
        Ok(())
    })
}

fn name(text: &str) -> [std::ffi::c_char; NAME_MAX] {
    let mut name = [0; NAME_MAX];
    for (place, byte) in name.iter_mut().zip(text.bytes().take(NAME_MAX - 1)) {
        *place = byte as std::ffi::c_char;
    }
    name
}

fn attributes(object: &IaObject) -> IaAttr {
    const OBJECTS: i32 = 65_536;
    let attr = object.ia.attr();
    let (segments, reads) = (signed(attr.max_iov_segments_per_dto), signed(attr.max_rdma_read));
    IaAttr {
        adapter_name: name(&attr.adapter_name),
        vendor_name: name("Nicety"),
        hardware_version_major: 0,
        hardware_version_minor: 1,
        firmware_version_major: 0,
        firmware_version_minor: 1,
        ia_address_ptr: object.address.as_ptr(),
        max_eps: signed(attr.max_eps),
        max_dto_per_ep: signed(attr.max_dto_per_ep),
        max_rdma_read_per_ep_in: reads,
        max_rdma_read_per_ep_out: reads,
        max_evds: signed(attr.max_evds),
        max_evd_qlen: signed(attr.max_evd_qlen),
        max_iov_segments_per_dto: segments,
        max_lmrs: signed(attr.max_lmrs),
        max_lmr_block_size: attr.max_lmr_block_size,
        max_lmr_virtual_address: u64::MAX,
        max_pzs: OBJECTS,
        max_message_size: attr.max_message_size,
        max_rdma_size: attr.max_message_size,
        max_rmrs: signed(attr.max_lmrs),
        max_rmr_target_address: u64::MAX,
        max_srqs: signed(attr.max_srqs),
        max_ep_per_srq: signed(attr.max_eps),
        max_recv_per_srq: signed(attr.max_recv_per_srq),
        max_iov_segments_per_rdma_read: segments,
        max_iov_segments_per_rdma_write: segments,
        max_rdma_read_in: reads,
        max_rdma_read_out: reads,
        max_rdma_read_per_ep_in_guaranteed: 1,
        max_rdma_read_per_ep_out_guaranteed: 1,
        zb_supported: 0,
        extension_supported: 0,
        extension_version: 0,
        num_transport_attr: 0,
        transport_attr: std::ptr::null_mut(),
        num_vendor_attr: 0,
        vendor_attr: std::ptr::null_mut(),
    }
}

fn provider_attributes(object: &IaObject) -> ProviderAttr {
    const ALL_COMPLETION_FLAGS: u32 = 0x1F;
    const CREATES_EP_IF_ASKED: u32 = 1;
    const PZ_SHAREABLE: u32 = 1;
    const SCOPE_PZ: u32 = 1;
    let attr = object.ia.attr();
    ProviderAttr {
        provider_name: name("nicety"),
        provider_version_major: 0,
        provider_version_minor: 1,
        dapl_version_major: 2,
        dapl_version_minor: 0,
        // Virtual addresses, and existing regions.
        lmr_mem_types_supported: 1,
        iov_ownership_on_return: 0,
        dat_qos_supported: 0,
        completion_flags_supported: ALL_COMPLETION_FLAGS,
        is_thread_safe: object.is_thread_safe.into(),
        max_private_data_size: signed(attr.max_private_data),
        supports_multipath: 0,
        ep_creator: CREATES_EP_IF_ASKED,
        pz_support: PZ_SHAREABLE,
        optimal_buffer_alignment: 256,
        evd_stream_merging_supported: [[1; 6]; 6],
        srq_supported: i32::from(attr.max_srqs > 0),
        srq_watermarks_supported: 1,
        srq_ep_pz_difference_supported: 0,
        srq_info_supported: 1,
        ep_recv_info_supported: 1,
        lmr_sync_req: 0,
        dto_async_return_guaranteed: 1,
        rdma_write_for_rdma_read_req: 0,
        rdma_read_lmr_rmr_context_exposure: 0,
        rmr_scope_supported: SCOPE_PZ,
        is_signal_safe: 0,
        ha_supported: 0,
        ha_loadbalancing: 0,
        num_provider_specific_attr: 0,
        provider_specific_attr: std::ptr::null_mut(),
    }
}

pub(crate) extern "C" fn set_consumer_context(handle: Handle, context: u64) -> u32 {
    dat_return("set_consumer_context", || {
        let entry = handles::lookup(handle).ok_or(Error::handle(Subtype::None))?;
        entry.context.store(context, Ordering::Relaxed);
        Ok(())
    })
}

pub(crate) extern "C" fn get_consumer_context(handle: Handle, context: Out<u64>) -> u32 {
    dat_return("get_consumer_context", || {
        let entry = handles::lookup(handle).ok_or(Error::handle(Subtype::None))?;
        context.required(Error::argument(Subtype::Arg2))?.set(entry.context.load(Ordering::Relaxed));
        Ok(())
    })
}

pub(crate) extern "C" fn get_handle_type(handle: Handle, kind: Out<u32>) -> u32 {
    dat_return("get_handle_type", || {
        let entry = handles::lookup(handle).ok_or(Error::handle(Subtype::None))?;
        kind.required(Error::argument(Subtype::Arg2))?.set(match &entry.object {
            Object::Cr(_) => 0,
            Object::Ep(_) => 1,
            Object::Evd(_) => 2,
            Object::Ia(_) => 3,
            Object::Lmr(_) => 4,
            Object::Psp(_) => 5,
            Object::Pz(_) => 6,
            Object::Rmr(_) => 7,
            Object::Rsp(_) => 8,
            Object::Cno(_) => 9,
            Object::Srq(_) => 10,
        });
        Ok(())
    })
}

pub(crate) extern "C" fn ha_related(ia: Handle, provider: Text, related: Out<i32>) -> u32 {
    dat_return("ia_ha_related", || {
        handles::ia(ia, Subtype::HandleIa)?;
        provider.get().ok_or(Error::argument(Subtype::Arg2))?;
        // No adapter can replace another.
        related.required(Error::argument(Subtype::Arg3))?.set(0);
        Ok(())
    })
}

pub(crate) extern "C" fn extended_op(handle: Handle, _op: i32, _arguments: *mut c_void) -> u32 {
    dat_return("handle_extendedop", || {
        handles::lookup(handle).ok_or(Error::handle(Subtype::None))?;
        not_implemented()
    })
}
