//! The table of functions that the registry calls ([`Provider`]), and its registration.

use std::ffi::{CStr, CString, c_char, c_void};

use ffi::{Bytes, In, Out, SockAddr, Text};
use host::real::remark;

use crate::calls::{cno, ep, evd, ia, mem, sp, srq};
use crate::dat_conf::{self, ConfLine};
use crate::dat_return::dat_return;
use crate::types::{
    CnoParam, CrParam, EpAttr, EpParam, EvdParam, Event, Handle, IaAttr, LmrParam, ProviderAttr,
    ProviderInfo, ProxyAgent, PspParam, PzParam, RegionDescription, RmrParam, RspParam, SrqAttr, SrqParam,
    Triplet,
};

/// Defines the table: each function with its path and the types of its arguments.
macro_rules! provider {
    ($($name:ident = $function:path: ($($argument:ty),*);)*) => {
        /// `DAT_PROVIDER`: the functions in the standard's order. All return a `DAT_RETURN`.
        #[repr(C)]
        #[allow(missing_docs)] // the standard's names
        pub struct Provider {
            pub device_name: *const c_char,
            pub extension: *mut c_void,
            $(pub $name: extern "C" fn($($argument),*) -> u32,)*
        }

        impl Provider {
            /// Creates the table for an adapter of this name.
            const fn named(device_name: *const c_char) -> Self {
                Self { device_name, extension: std::ptr::null_mut(), $($name: $function,)* }
            }
        }

        /// The names of the functions, in the table's order.
        pub const NAMES: &[&str] = &[$(stringify!($name)),*];
    };
}

provider! {
    ia_open = ia::open_nonthreadsafe: (Text, i32, Out<Handle>, Out<Handle>);
    ia_query = ia::query: (Handle, Out<Handle>, u64, Out<IaAttr>, u64, Out<ProviderAttr>);
    ia_close = ia::close: (Handle, u32);
    set_consumer_context = ia::set_consumer_context: (Handle, u64);
    get_consumer_context = ia::get_consumer_context: (Handle, Out<u64>);
    get_handle_type = ia::get_handle_type: (Handle, Out<u32>);
    cno_create = cno::create: (Handle, ProxyAgent, Out<Handle>);
    cno_modify_agent = cno::modify_agent: (Handle, ProxyAgent);
    cno_query = cno::query: (Handle, u32, Out<CnoParam>);
    cno_free = cno::free: (Handle);
    cno_wait = cno::wait: (Handle, u32, Out<Handle>);
    cr_query = sp::cr_query: (Handle, u32, Out<CrParam>);
    cr_accept = sp::cr_accept: (Handle, Handle, i32, Bytes);
    cr_reject = sp::cr_reject: (Handle, i32, Bytes);
    cr_handoff = sp::cr_handoff: (Handle, u64);
    evd_create = evd::create: (Handle, i32, Handle, u32, Out<Handle>);
    evd_query = evd::query: (Handle, u32, Out<EvdParam>);
    evd_modify_cno = evd::modify_cno: (Handle, Handle);
    evd_enable = evd::enable: (Handle);
    evd_disable = evd::disable: (Handle);
    evd_wait = evd::wait: (Handle, u32, i32, Out<Event>, Out<i32>);
    evd_resize = evd::resize: (Handle, i32);
    evd_post_se = evd::post_se: (Handle, In<Event>);
    evd_dequeue = evd::dequeue: (Handle, Out<Event>);
    evd_free = evd::free: (Handle);
    ep_create = ep::create: (Handle, Handle, Handle, Handle, Handle, In<EpAttr>, Out<Handle>);
    ep_query = ep::query: (Handle, u64, Out<EpParam>);
    ep_modify = ep::modify: (Handle, u64, In<EpParam>);
    ep_connect = ep::connect: (Handle, SockAddr, u64, u32, i32, Bytes, u32, u32);
    ep_dup_connect = ep::dup_connect: (Handle, Handle, u32, i32, Bytes, u32);
    ep_disconnect = ep::disconnect: (Handle, u32);
    ep_post_send = ep::post_send: (Handle, i32, In<Triplet>, u64, u32);
    ep_post_recv = ep::post_recv: (Handle, i32, In<Triplet>, u64, u32);
    ep_post_rdma_read = ep::post_rdma_read: (Handle, i32, In<Triplet>, u64, In<Triplet>, u32);
    ep_post_rdma_write = ep::post_rdma_write: (Handle, i32, In<Triplet>, u64, In<Triplet>, u32);
    ep_get_status = ep::get_status: (Handle, Out<u32>, Out<i32>, Out<i32>);
    ep_free = ep::free: (Handle);
    lmr_create = mem::lmr_create: (
        Handle, u32, RegionDescription, u64, Handle, u32, u32, Out<Handle>, Out<u32>, Out<u32>, Out<u64>, Out<u64>
    );
    lmr_query = mem::lmr_query: (Handle, u32, Out<LmrParam>);
    lmr_free = mem::lmr_free: (Handle);
    rmr_create = mem::rmr_create: (Handle, Out<Handle>);
    rmr_query = mem::rmr_query: (Handle, u32, Out<RmrParam>);
    rmr_bind = mem::rmr_bind: (Handle, Handle, In<Triplet>, u32, u32, Handle, u64, u32, Out<u32>);
    rmr_free = mem::rmr_free: (Handle);
    psp_create = sp::psp_create: (Handle, u64, Handle, u32, Out<Handle>);
    psp_query = sp::psp_query: (Handle, u32, Out<PspParam>);
    psp_free = sp::psp_free: (Handle);
    rsp_create = sp::rsp_create: (Handle, u64, Handle, Handle, Out<Handle>);
    rsp_query = sp::rsp_query: (Handle, u32, Out<RspParam>);
    rsp_free = sp::rsp_free: (Handle);
    pz_create = mem::pz_create: (Handle, Out<Handle>);
    pz_query = mem::pz_query: (Handle, u32, Out<PzParam>);
    pz_free = mem::pz_free: (Handle);
    psp_create_any = sp::psp_create_any: (Handle, Out<u64>, Handle, u32, Out<Handle>);
    ep_reset = ep::reset: (Handle);
    evd_set_unwaitable = evd::set_unwaitable: (Handle);
    evd_clear_unwaitable = evd::clear_unwaitable: (Handle);
    lmr_sync_rdma_read = mem::lmr_sync: (Handle, In<Triplet>, u64);
    lmr_sync_rdma_write = mem::lmr_sync: (Handle, In<Triplet>, u64);
    ep_create_with_srq = ep::create_with_srq: (
        Handle, Handle, Handle, Handle, Handle, Handle, In<EpAttr>, Out<Handle>
    );
    ep_recv_query = ep::recv_query: (Handle, Out<i32>, Out<i32>);
    ep_set_watermark = ep::set_watermark: (Handle, i32, i32);
    srq_create = srq::create: (Handle, Handle, In<SrqAttr>, Out<Handle>);
    srq_free = srq::free: (Handle);
    srq_post_recv = srq::post_recv: (Handle, i32, In<Triplet>, u64);
    srq_query = srq::query: (Handle, u32, Out<SrqParam>);
    srq_resize = srq::resize: (Handle, i32);
    srq_set_lw = srq::set_low_watermark: (Handle, i32);
    csp_create = sp::csp_create: (Handle, In<[i32; 3]>, SockAddr, Handle, Out<Handle>);
    csp_query = sp::csp_query: (Handle, u32, Out<[u64; 4]>);
    csp_free = sp::csp_free: (Handle);
    ep_common_connect = ep::common_connect: (Handle, SockAddr, u32, i32, Bytes);
    rmr_create_for_ep = mem::rmr_create_for_ep: (Handle, Out<Handle>);
    ep_post_send_with_invalidate = ep::post_send_with_invalidate: (
        Handle, i32, In<Triplet>, u64, u32, i32, u32
    );
    ep_post_rdma_read_to_rmr = ep::post_rdma_read_to_rmr: (Handle, In<Triplet>, u64, In<Triplet>, u32);
    cno_fd_create = cno::fd_create: (Handle, Out<i32>, Out<Handle>);
    cno_trigger = cno::trigger: (Handle, Out<Handle>);
    ia_ha_related = ia::ha_related: (Handle, Text, Out<i32>);
    handle_extendedop = ia::extended_op: (Handle, i32, *mut c_void);
}

const _: () = assert!(size_of::<Provider>() == 648);

// SAFETY: a table is constant, and its pointers are to constants.
unsafe impl Sync for Provider {}
// SAFETY: as above.
unsafe impl Send for Provider {}

static PROVIDER: Provider = Provider::named(c"nicety".as_ptr());

/// A table for objects that belong to no line of dat.conf.
pub fn table() -> *mut Provider {
    (&raw const PROVIDER).cast_mut()
}

/// Called by the registry after it has loaded the library for a line of dat.conf: records the adapter's device, and registers a
/// table. If the device does not exist, only opening the adapter reports that, since this function cannot fail.
#[unsafe(no_mangle)]
pub extern "C" fn dat_provider_init(info: *const ProviderInfo, instance_data: Text) {
    dat_return("provider_init", || {
        let Some((name, is_thread_safe)) = name_of(info) else { return Ok(()) };
        let device = instance_data.get().unwrap_or_default().trim().trim_matches('"').to_owned();
        let line = dat_conf::add(name.clone(), is_thread_safe, device, || functions(name, is_thread_safe));
        call_registry(c"dat_registry_add_provider", &line, info);
        Ok(())
    });
}

/// Creates a table for an adapter, which lives as long as the process.
fn functions(ia_name: String, is_thread_safe: bool) -> &'static Provider {
    let mut table = Provider::named(CString::new(ia_name).unwrap_or_default().into_raw());
    if is_thread_safe {
        table.ia_open = ia::open_threadsafe;
    }
    Box::leak(Box::new(table))
}

/// Called by the registry before it unloads the library.
#[unsafe(no_mangle)]
pub extern "C" fn dat_provider_fini(info: *const ProviderInfo) {
    dat_return("provider_fini", || {
        let line = name_of(info).and_then(|(name, is_thread_safe)| dat_conf::line(&name, is_thread_safe));
        if let Some(line) = line {
            call_registry(c"dat_registry_remove_provider", &line, info);
        }
        Ok(())
    });
}

fn name_of(info: *const ProviderInfo) -> Option<(String, bool)> {
    // SAFETY: the registry passes NULL or its own information. Test: dapltest.
    let info = unsafe { info.as_ref() }?;
    let bytes: Vec<u8> = info.ia_name.iter().map(|byte| *byte as u8).take_while(|byte| *byte != 0).collect();
    Some((String::from_utf8_lossy(&bytes).into_owned(), info.is_thread_safe != 0))
}

/// Calls a function of the registry, which has loaded this library: it is looked up at run time, not linked.
fn call_registry(function: &CStr, line: &ConfLine, info: *const ProviderInfo) {
    // SAFETY: looking up a symbol changes nothing.
    let mut found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, function.as_ptr()) };
    if found.is_null() {
        // A program that loads the registry itself may have kept its symbols private.
        let flags = libc::RTLD_LAZY | libc::RTLD_NOLOAD;
        // SAFETY: only finds a library that is loaded already; a NULL library is not searched.
        found = unsafe {
            let library = libc::dlopen(c"libdat2.so.2".as_ptr(), flags);
            if library.is_null() { library } else { libc::dlsym(library, function.as_ptr()) }
        };
    }
    if found.is_null() {
        remark(format_args!("no DAT registry in this process: {function:?} is missing"));
        return;
    }
    type Register = unsafe extern "C" fn(*const c_void, *const ProviderInfo) -> u32;
    // SAFETY: the standard gives both functions this type. Test: dapltest, with the registry of libdat2.
    let code = unsafe { std::mem::transmute::<*mut c_void, Register>(found)(line.functions(), info) };
    if code != 0 {
        remark(format_args!("the DAT registry returned an error: {function:?} returned {code:#x}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::FUNCTIONS;

    #[test]
    fn arguments_are_named_for_the_functions_of_the_table() {
        assert!(FUNCTIONS.iter().map(|(name, _)| *name).eq(NAMES.iter().copied()));
    }
}
