//! Loads the library of the standard ABI.

use std::ffi::{CStr, CString, OsStr, c_void};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

/// The names of the library: as programs are linked to it, and as cargo builds it.
const NAMES: [&str; 2] = ["libmpi_abi.so.1", "libmpi_abi.so"];

/// The library of the standard ABI, which stays loaded until the process ends.
pub(crate) struct Library(*mut c_void);

impl Library {
    /// Loads it from the folder of this library, or that above; otherwise the loader searches it.
    ///
    /// # Errors
    /// A text that says what is missing.
    pub(crate) fn load() -> Result<Self, String> {
        let places = places();
        let found =
            places.iter().flat_map(|place| NAMES.map(|name| place.join(name))).find(|file| file.exists());
        let name = found.as_deref().map_or(NAMES[0].as_ref(), Path::as_os_str);
        let name = CString::new(name.as_bytes()).map_err(|_| "its path has a zero byte".to_owned())?;
        // SAFETY: a string of C, which the call only reads. The library's initializers are ours. Test: `programs_run`.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        if handle.is_null() {
            let places: Vec<String> = places.iter().map(|place| place.display().to_string()).collect();
            return Err(format!(
                "it is not in {}, and the loader says: {}",
                places.join(" or "),
                loader_error()
            ));
        }
        Ok(Self(handle))
    }

    /// The address of a function.
    ///
    /// # Errors
    /// As [`Self::load`].
    pub(crate) fn symbol(&self, name: &CStr) -> Result<*mut c_void, String> {
        // SAFETY: the handle of a loaded library, and a string of C. Test: `programs_run`.
        let address = unsafe { libc::dlsym(self.0, name.as_ptr()) };
        if address.is_null() {
            return Err(format!("it is of another version: {}", loader_error()));
        }
        Ok(address)
    }
}

/// The last error of the loader.
fn loader_error() -> String {
    // SAFETY: the call returns NULL or a string, which is copied before the next call of the loader. Test: `programs_run`, by its errors.
    let text = unsafe {
        let text = libc::dlerror();
        if text.is_null() { None } else { Some(CStr::from_ptr(text).to_string_lossy().into_owned()) }
    };
    text.unwrap_or_else(|| "nothing".to_owned())
}

/// Where the library may be: in the folder of this one, through links or not, and in the folder above.
fn places() -> Vec<PathBuf> {
    let Some(own) = own_file() else { return Vec::new() };
    let files = [own.canonicalize().ok(), Some(own)].into_iter().flatten();
    let folders = files.filter_map(|file| file.parent().map(Path::to_owned));
    let mut places: Vec<PathBuf> = Vec::new();
    for folder in folders {
        let above = folder.parent().map(Path::to_owned);
        places.extend([Some(folder), above].into_iter().flatten());
    }
    places.dedup();
    places
}

/// The file of this library, as the loader knows it.
fn own_file() -> Option<PathBuf> {
    static OWN: u8 = 0;
    let mut info = std::mem::MaybeUninit::<libc::Dl_info>::uninit();
    // SAFETY: the address is in this library, and the call fills the record if it returns another number than 0. The name stays valid, as
    // this library is never unloaded. Test: `programs_run`.
    unsafe {
        if libc::dladdr((&raw const OWN).cast(), info.as_mut_ptr()) == 0 {
            return None;
        }
        let name = info.assume_init().dli_fname;
        (!name.is_null()).then(|| PathBuf::from(OsStr::from_bytes(CStr::from_ptr(name).to_bytes())))
    }
}
