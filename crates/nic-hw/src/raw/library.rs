//! [`Library`]: libibverbs and librdmacm, loaded at run time, so that programs start without them.

use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use nic_util::sync::unpoisoned;
use rdma_abi::cma::*;
use rdma_abi::verbs::*;
use verbs::{Error, Result};

/// The names under which the system's libraries are searched.
const VERBS: &str = "libibverbs.so.1";
const CM: &str = "librdmacm.so.1";

/// The file name of our own library, to which `nicety run` and packages link the names above.
const OWN: &str = "libnicety_verbs";

/// Declares a table of functions, and how it is filled from a library.
macro_rules! functions {
    ($table:ident { $($name:ident($($arg:ty),*) $(-> $result:ty)?;)* }) => {
        /// Functions of one library, by their names in C.
        pub(crate) struct $table {
            $(pub(crate) $name: unsafe extern "C" fn($($arg),*) $(-> $result)?,)*
        }

        impl $table {
            fn find(library: &Loaded) -> Result<Self> {
                Ok(Self {
                    $($name: {
                        let address = library.symbol(stringify!($name))?;
                        // SAFETY: the symbol is a function of this C prototype, as the library's name and version
                        // promise. Test: crates/abi-verbs/tests/hw_on_shm.rs, whose tests call all functions.
                        unsafe { std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($arg),*) $(-> $result)?>(address) }
                    },)*
                })
            }
        }
    };
}

functions! {
    VerbsFunctions {
        ibv_get_device_list(*mut c_int) -> *mut *mut ibv_device;
        ibv_free_device_list(*mut *mut ibv_device);
        ibv_open_device(*mut ibv_device) -> *mut ibv_context;
        ibv_close_device(*mut ibv_context) -> c_int;
        ibv_query_device(*mut ibv_context, *mut ibv_device_attr) -> c_int;
        ibv_query_port(*mut ibv_context, u8, *mut ibv_port_attr) -> c_int;
        ibv_query_gid(*mut ibv_context, u8, c_int, *mut ibv_gid) -> c_int;
        ibv_get_async_event(*mut ibv_context, *mut ibv_async_event) -> c_int;
        ibv_ack_async_event(*mut ibv_async_event);
        ibv_alloc_pd(*mut ibv_context) -> *mut ibv_pd;
        ibv_dealloc_pd(*mut ibv_pd) -> c_int;
        ibv_reg_mr(*mut ibv_pd, *mut c_void, usize, c_int) -> *mut ibv_mr;
        ibv_dereg_mr(*mut ibv_mr) -> c_int;
        ibv_create_comp_channel(*mut ibv_context) -> *mut ibv_comp_channel;
        ibv_destroy_comp_channel(*mut ibv_comp_channel) -> c_int;
        ibv_create_cq(*mut ibv_context, c_int, *mut c_void, *mut ibv_comp_channel, c_int) -> *mut ibv_cq;
        ibv_resize_cq(*mut ibv_cq, c_int) -> c_int;
        ibv_destroy_cq(*mut ibv_cq) -> c_int;
        ibv_get_cq_event(*mut ibv_comp_channel, *mut *mut ibv_cq, *mut *mut c_void) -> c_int;
        ibv_ack_cq_events(*mut ibv_cq, c_uint);
        ibv_create_srq(*mut ibv_pd, *mut ibv_srq_init_attr) -> *mut ibv_srq;
        ibv_modify_srq(*mut ibv_srq, *mut ibv_srq_attr, c_int) -> c_int;
        ibv_query_srq(*mut ibv_srq, *mut ibv_srq_attr) -> c_int;
        ibv_destroy_srq(*mut ibv_srq) -> c_int;
        ibv_create_qp(*mut ibv_pd, *mut ibv_qp_init_attr) -> *mut ibv_qp;
        ibv_modify_qp(*mut ibv_qp, *mut ibv_qp_attr, c_int) -> c_int;
        ibv_query_qp(*mut ibv_qp, *mut ibv_qp_attr, c_int, *mut ibv_qp_init_attr) -> c_int;
        ibv_destroy_qp(*mut ibv_qp) -> c_int;
    }
}

functions! {
    CmFunctions {
        rdma_create_event_channel() -> *mut rdma_event_channel;
        rdma_destroy_event_channel(*mut rdma_event_channel);
        rdma_get_cm_event(*mut rdma_event_channel, *mut *mut rdma_cm_event) -> c_int;
        rdma_ack_cm_event(*mut rdma_cm_event) -> c_int;
        rdma_create_id(*mut rdma_event_channel, *mut *mut rdma_cm_id, *mut c_void, c_int) -> c_int;
        rdma_destroy_id(*mut rdma_cm_id) -> c_int;
        rdma_bind_addr(*mut rdma_cm_id, *mut libc::sockaddr) -> c_int;
        rdma_resolve_addr(*mut rdma_cm_id, *mut libc::sockaddr, *mut libc::sockaddr, c_int) -> c_int;
        rdma_resolve_route(*mut rdma_cm_id, c_int) -> c_int;
        rdma_listen(*mut rdma_cm_id, c_int) -> c_int;
        rdma_connect(*mut rdma_cm_id, *mut rdma_conn_param) -> c_int;
        rdma_accept(*mut rdma_cm_id, *mut rdma_conn_param) -> c_int;
        rdma_establish(*mut rdma_cm_id) -> c_int;
        rdma_reject(*mut rdma_cm_id, *const c_void, u8) -> c_int;
        rdma_disconnect(*mut rdma_cm_id) -> c_int;
        rdma_init_qp_attr(*mut rdma_cm_id, *mut ibv_qp_attr, *mut c_int) -> c_int;
    }
}

/// `_ibv_query_gid_ex`, behind the inline function `ibv_query_gid_ex`; rdma-core has it since version 33.
type QueryGidEx = unsafe extern "C" fn(*mut ibv_context, u32, u32, *mut ibv_gid_entry, u32, usize) -> c_int;

/// Both libraries. They stay loaded until the process ends, as providers leave threads and handlers behind.
pub(crate) struct Library {
    pub(crate) verbs: VerbsFunctions,
    pub(crate) cm: CmFunctions,
    /// Reads an entry of the GID table with its type and interface; `None` if the library is too old.
    pub(crate) query_gid_ex: Option<QueryGidEx>,
    /// The file of libibverbs.
    pub(crate) file: PathBuf,
    /// Whether it is our own library, whose devices are software.
    pub(crate) is_own: bool,
}

/// Libraries that have been loaded, by what was asked for.
static LOADED: Mutex<Vec<(Option<PathBuf>, &'static Library)>> = Mutex::new(Vec::new());

impl Library {
    /// Loads the system's libraries, or those at `place`: a folder that contains both, or one file that is both.
    ///
    /// # Errors
    /// [`Error::System`] if a library is missing or too old; [`Error::Invalid`] if the system's is our own, which only
    /// `place` permits.
    pub(crate) fn load(place: Option<&Path>) -> Result<&'static Self> {
        let mut loaded = unpoisoned(&LOADED);
        if let Some((_, library)) = loaded.iter().find(|(of, _)| of.as_deref() == place) {
            return Ok(library);
        }
        let (verbs, cm) = match place {
            None => (PathBuf::from(VERBS), PathBuf::from(CM)),
            Some(place) if place.is_dir() => (place.join(VERBS), place.join(CM)),
            Some(place) => (place.to_owned(), place.to_owned()),
        };
        let verbs = Loaded::open(&verbs)?;
        let file = verbs.file();
        let is_own = file.file_name().is_some_and(|name| name.as_bytes().starts_with(OWN.as_bytes()));
        if is_own && place.is_none() {
            return Err(Error::Invalid(format!(
                "libibverbs.so.1 is our own library here ('{}'), whose devices are no cards: use its devices by their own \
                 names (shm, iwarp), leave its folder out of LD_LIBRARY_PATH, or name a library by hw(lib=PATH)",
                file.display()
            )));
        }
        let cm = Loaded::open(&cm)?;
        let functions = (VerbsFunctions::find(&verbs)?, CmFunctions::find(&cm)?);
        let query_gid_ex = verbs.symbol("_ibv_query_gid_ex").ok().map(|address| {
            // SAFETY: as in `functions!`. Test: `chosen_gid_is_the_address_of_connections` in
            // crates/abi-verbs/tests/hw_on_shm.rs.
            unsafe { std::mem::transmute::<*mut c_void, QueryGidEx>(address) }
        });
        let (verbs, cm) = functions;
        let library = Box::leak(Box::new(Self { verbs, cm, query_gid_ex, file, is_own }));
        loaded.push((place.map(Path::to_owned), library));
        Ok(library)
    }
}

/// A loaded shared library; never unloaded.
struct Loaded {
    handle: *mut c_void,
    path: PathBuf,
}

impl Loaded {
    fn open(path: &Path) -> Result<Self> {
        let name = CString::new(path.as_os_str().as_bytes())
            .map_err(|_| Error::Invalid("the path of a library contains a zero byte".into()))?;
        // SAFETY: loading runs the library's constructors, which the user asked for by choosing this device.
        // Test: crates/abi-verbs/tests/hw_on_shm.rs.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        if handle.is_null() {
            let what = format!(
                "cannot load {} (install Debian's packages libibverbs1, librdmacm1 and ibverbs-providers)",
                path.display()
            );
            return Err(Error::System { what, why: last_error(), errno: None });
        }
        Ok(Self { handle, path: path.to_owned() })
    }

    /// The address of an exported function.
    fn symbol(&self, name: &str) -> Result<*mut c_void> {
        let missing = || Error::System {
            what: format!("{} is too old", self.path.display()),
            why: format!("it has no function {name}; install rdma-core 17 or newer"),
            errno: None,
        };
        let name = CString::new(name).map_err(|_| missing())?;
        // SAFETY: the handle is of a library that stays loaded. Test: as for `open`.
        let address = unsafe { libc::dlsym(self.handle, name.as_ptr()) };
        if address.is_null() { Err(missing()) } else { Ok(address) }
    }

    /// The file that was loaded, with links resolved.
    fn file(&self) -> PathBuf {
        let found = self.symbol("ibv_get_device_list").ok().and_then(|address| {
            // SAFETY: the call fills the structure in if it knows the address; its name is a C string of the loader,
            // copied before anything is unloaded. Test: `own_library_as_the_systems_is_refused` in crates/abi-verbs/tests/hw_on_shm.rs.
            unsafe {
                let mut info: libc::Dl_info = std::mem::zeroed();
                (libc::dladdr(address, &raw mut info) != 0 && !info.dli_fname.is_null())
                    .then(|| CStr::from_ptr(info.dli_fname).to_bytes().to_vec())
            }
        });
        let path = found
            .map_or_else(|| self.path.clone(), |bytes| PathBuf::from(std::ffi::OsString::from_vec(bytes)));
        path.canonicalize().unwrap_or(path)
    }
}

/// The loader's last error.
fn last_error() -> String {
    // SAFETY: the text is valid until the next call of the loader by this thread. Test:
    // `missing_library_is_named_with_its_package`.
    let text = unsafe {
        let text: *mut c_char = libc::dlerror();
        (!text.is_null()).then(|| CStr::from_ptr(text).to_string_lossy().into_owned())
    };
    text.unwrap_or_else(|| "the loader gives no reason".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_library_is_named_with_its_package() {
        let error = Library::load(Some(Path::new("/nowhere/libibverbs.so.1"))).err().expect("no such file");
        let text = error.to_string();
        assert!(text.contains("/nowhere/libibverbs.so.1") && text.contains("libibverbs1"), "{text}");
        assert!(text.contains("No such file"), "{text}");
    }

    #[test]
    fn library_without_the_functions_is_too_old() {
        let error = Library::load(Some(Path::new("libc.so.6"))).err().expect("another library");
        let text = error.to_string();
        assert!(text.contains("too old") && text.contains("ibv_get_device_list"), "{text}");
    }
}
