//! The functions of the MPI library, by their names `PMPI_...`.

use std::ffi::{CStr, c_void};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The name by which programs load the library of the standard ABI.
const SONAME: &CStr = c"libmpi_abi.so.1";
/// Those of other ABIs, which have the same functions: MPICH's and Open MPI's.
const OTHERS: [&CStr; 2] = [c"libmpi.so.12", c"libmpi.so.40"];

/// A status of the standard ABI; the words behind the public ones are the library's.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct Status {
    pub(crate) source: i32,
    pub(crate) tag: i32,
    pub(crate) error: i32,
    internal: [i32; 5],
}

/// Constants of the standard ABI (MPI 5.0, appendix A).
pub(crate) const SUCCESS: i32 = 0;
pub(crate) const COMM_NULL: usize = 0x100;
pub(crate) const COMM_WORLD: usize = 0x101;
pub(crate) const COMM_SELF: usize = 0x102;
pub(crate) const REQUEST_NULL: usize = 0x180;
pub(crate) const ERRORS_RETURN: usize = 0x143;
const DATATYPE_NULL: usize = 0x200;
pub(crate) const BYTE: usize = 0x247;
pub(crate) const UINT64_T: usize = 0x259;
pub(crate) const SUM: usize = 0x21;
pub(crate) const MAX: usize = 0x23;
pub(crate) const ANY_SOURCE: i32 = -1;
pub(crate) const ANY_TAG: i32 = -2;
pub(crate) const PROC_NULL: i32 = -3;
pub(crate) const ERR_IN_STATUS: i32 = 19;
pub(crate) const ERR_PENDING: i32 = 18;
pub(crate) const UNDEFINED: i32 = -32766;
pub(crate) const THREAD_MULTIPLE: i32 = 4096;
pub(crate) const COMBINER_NAMED: i32 = 101;
pub(crate) const COMBINER_STRUCT: i32 = 110;
/// Handles below this value are constants.
pub(crate) const PREDEFINED_MAX: usize = 0x1000;

/// The address of a function, which `cache` keeps. The name ends with a zero byte.
pub(crate) fn address(name: &'static str, cache: &AtomicUsize) -> usize {
    match cache.load(Ordering::Relaxed) {
        0 => find(name, cache),
        address => address,
    }
}

/// The handle of the MPI library of this process, and whether it has the standard ABI.
fn library() -> (usize, bool) {
    static LIBRARY: OnceLock<(usize, bool)> = OnceLock::new();
    let open = |name: &CStr, mode: i32| {
        // SAFETY: a string of C, which the call only reads; the library is loaded already, or the program would have run the same
        // initializers. Test: `seeded_bugs_are_found`.
        unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | mode) }.expose_provenance()
    };
    *LIBRARY.get_or_init(|| {
        let other = OTHERS.into_iter().map(|name| open(name, libc::RTLD_NOLOAD)).find(|handle| *handle != 0);
        match (other, open(SONAME, libc::RTLD_NOLOAD)) {
            (Some(other), _) => (other, false),
            (None, 0) => (open(SONAME, libc::RTLD_GLOBAL), true),
            (None, loaded) => (loaded, true),
        }
    })
}

/// Whether the program uses a library of the standard ABI. The calls of others are only passed on.
pub(crate) fn is_standard() -> bool {
    library().1
}

#[cold]
fn find(name: &'static str, cache: &AtomicUsize) -> usize {
    let symbol = CStr::from_bytes_with_nul(name.as_bytes()).unwrap_or_default();
    let library = std::ptr::with_exposed_provenance_mut::<c_void>(library().0);
    // SAFETY: a handle of the loader, or NULL, which is that of the program's own scope; a string of C. Test: as above.
    let found = unsafe { libc::dlsym(library, symbol.as_ptr()) }.expose_provenance();
    if found == 0 {
        // The program has called MPI, so that there is nothing to return to.
        host::real::remark(format_args!(
            "check: the MPI library has no {}; --check is for programs of the standard ABI (libmpi_abi.so.1)",
            symbol.to_string_lossy()
        ));
        std::process::abort();
    }
    cache.store(found, Ordering::Relaxed);
    found
}

/// Calls a function of the MPI library by its name without the P.
macro_rules! pmpi {
    ($name:ident($($arg:ident: $kind:ty),*) -> $returns:ty) => {{
        static ADDRESS: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
        let address = $crate::library::address(concat!("P", stringify!($name), "\0"), &ADDRESS);
        type Function = extern "C-unwind" fn($($kind),*) -> $returns;
        // SAFETY: a function of the standard ABI with this prototype, whose addresses and handles are words here. The MPI library checks
        // handles; the program vouches for its addresses, and ours live until the call returns. Test: `seeded_bugs_are_found`.
        let function = unsafe { std::mem::transmute::<usize, Function>(address) };
        function($($arg),*)
    }};
}
pub(crate) use pmpi;

/// Declares functions for use in this crate.
macro_rules! functions {
    ($($name:ident = $symbol:ident($($arg:ident: $kind:ty),*);)*) => {
        $(#[allow(clippy::too_many_arguments, reason = "MPI's own arguments")]
        pub(crate) fn $name($($arg: $kind),*) -> i32 {
            pmpi!($symbol($($arg: $kind),*) -> i32)
        })*
    };
}

functions! {
    allreduce = MPI_Allreduce(from: &[u64; 8], to: &mut [u64; 8], count: i32, datatype: usize, op: usize, comm: usize);
    barrier = MPI_Barrier(comm: usize);
    comm_free = MPI_Comm_free(comm: &mut usize);
    comm_rank = MPI_Comm_rank(comm: usize, rank: &mut i32);
    comm_set_errhandler = MPI_Comm_set_errhandler(comm: usize, handler: usize);
    comm_split = MPI_Comm_split(comm: usize, color: i32, key: i32, new: &mut usize);
    comm_size = MPI_Comm_size(comm: usize, size: &mut i32);
    comm_test_inter = MPI_Comm_test_inter(comm: usize, flag: &mut i32);
    gather = MPI_Gather(from: usize, count: i32, kind: usize, to: usize, each: i32, each_kind: usize, root: i32, comm: usize);
    get_elements = MPI_Get_elements_c(status: &Status, datatype: usize, count: &mut i64);
    grequest_complete = MPI_Grequest_complete(request: usize);
    grequest_start = MPI_Grequest_start(query: usize, free: usize, cancel: usize, extra: usize, request: &mut usize);
    iprobe = MPI_Iprobe(source: i32, tag: i32, comm: usize, flag: &mut i32, status: &mut Status);
    irecv = MPI_Irecv(to: usize, count: i32, datatype: usize, source: i32, tag: i32, comm: usize, request: &mut usize);
    isend = MPI_Isend(from: usize, count: i32, datatype: usize, dest: i32, tag: i32, comm: usize, request: &mut usize);
    pack = MPI_Pack_c(from: usize, count: i64, datatype: usize, to: usize, size: i64, position: &mut i64, comm: usize);
    pack_size = MPI_Pack_size_c(count: i64, datatype: usize, comm: usize, size: &mut i64);
    query_thread = MPI_Query_thread(provided: &mut i32);
    recv = MPI_Recv(to: usize, count: i32, datatype: usize, source: i32, tag: i32, comm: usize, status: &mut Status);
    reduce = MPI_Reduce(from: &[u64; 2], to: &mut [u64; 2], count: i32, datatype: usize, op: usize, root: i32, comm: usize);
    request_free = MPI_Request_free(request: &mut usize);
    status_set_elements = MPI_Status_set_elements_c(status: &mut Status, datatype: usize, count: i64);
    test = MPI_Test(request: &mut usize, flag: &mut i32, status: &mut Status);
    test_cancelled = MPI_Test_cancelled(status: &Status, flag: &mut i32);
    type_free = MPI_Type_free(datatype: &mut usize);
    type_get_contents = MPI_Type_get_contents_c(datatype: usize, integers: i64, addresses: i64, large: i64, types: i64, to_integers: usize, to_addresses: usize, to_large: usize, to_types: usize);
    type_get_envelope = MPI_Type_get_envelope_c(datatype: usize, integers: &mut i64, addresses: &mut i64, large: &mut i64, types: &mut i64, combiner: &mut i32);
    type_get_extent = MPI_Type_get_extent_c(datatype: usize, lb: &mut i64, extent: &mut i64);
    type_get_true_extent = MPI_Type_get_true_extent_c(datatype: usize, lb: &mut i64, extent: &mut i64);
    type_size = MPI_Type_size_c(datatype: usize, size: &mut i64);
    wait = MPI_Wait(request: &mut usize, status: &mut Status);
}

/// Names of the predefined datatypes and operators.
const NAMES: &[(usize, &str)] = include!(concat!(env!("OUT_DIR"), "/names.rs"));

/// Whether a handle is that of a datatype of the standard.
pub(crate) fn is_predefined_datatype(handle: usize) -> bool {
    (DATATYPE_NULL + 1..PREDEFINED_MAX).contains(&handle) && NAMES.iter().any(|(value, _)| *value == handle)
}

/// The name of a predefined datatype or operator.
pub(crate) fn name(handle: usize) -> &'static str {
    NAMES.iter().find(|(value, _)| *value == handle).map_or("an object of the program", |(_, name)| name)
}
