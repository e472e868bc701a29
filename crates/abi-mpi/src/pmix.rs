//! [`Pmix`]: the job's description over PMIx, for launchers such as prterun and Slurm. PMIx is a library and not a wire protocol,
//! so it is loaded at run time, and only if a launcher announces it.
//!
//! The parts of its C interface that are used here have the layout of `pmix_common.h`, which is the same in versions 3 to 6. The
//! test `ranks_join_by_pmix` covers all unsafe code of this file with a library of its own, and `cargo xtask interop` with that of
//! prterun.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::fmt::Display;
use std::{mem, ptr};

use host::bounded;
use mpi::{Class, Error, Result};

const NAMESPACE_LEN: usize = 256;
const KEY_LEN: usize = 512;
const SUCCESS: c_int = 0;
/// Wildcard ranks: any process that has put the key, and the whole job.
const ANY_RANK: u32 = u32::MAX;
const WHOLE_JOB: u32 = u32::MAX - 1;
/// The scope of a note: processes on all hosts.
const GLOBAL: u8 = 3;
/// Types of values.
const BOOL: u16 = 1;
const STRING: u16 = 3;
const UINT32: u16 = 14;
/// The first name to load the library by.
const LIBRARY: &CStr = c"libpmix.so.2";

/// `pmix_proc_t`
#[repr(C)]
#[derive(Clone, Copy)]
struct Proc {
    namespace: [c_char; NAMESPACE_LEN],
    rank: u32,
}

/// `pmix_value_t`
#[repr(C)]
struct Value {
    kind: u16,
    data: Data,
}

/// The union in `pmix_value_t`, with the size of its largest member.
#[repr(C)]
union Data {
    string: *mut c_char,
    number: u32,
    flag: bool,
    room: [u64; 3],
}

/// `pmix_info_t`
#[repr(C)]
struct Info {
    key: [c_char; KEY_LEN],
    flags: u32,
    value: Value,
}

type Init = unsafe extern "C" fn(*mut Proc, *const Info, usize) -> c_int;
type Finalize = unsafe extern "C" fn(*const Info, usize) -> c_int;
type Abort = unsafe extern "C" fn(c_int, *const c_char, *const Proc, usize) -> c_int;
type Put = unsafe extern "C" fn(u8, *const c_char, *mut Value) -> c_int;
type Commit = unsafe extern "C" fn() -> c_int;
type Fence = unsafe extern "C" fn(*const Proc, usize, *const Info, usize) -> c_int;
type Get = unsafe extern "C" fn(*const Proc, *const c_char, *const Info, usize, *mut *mut Value) -> c_int;
type Text = unsafe extern "C" fn(c_int) -> *const c_char;

/// The functions of the library, which stays loaded.
struct Functions {
    init: Init,
    finalize: Finalize,
    abort: Abort,
    put: Put,
    commit: Commit,
    fence: Fence,
    get: Get,
    text: Text,
}

/// The loaded library, initialized for this process.
pub(crate) struct Pmix {
    functions: Functions,
    own: Proc,
}

/// The result of [`Pmix::job`].
pub(crate) struct Job {
    pub(crate) rank: u32,
    pub(crate) size: u32,
    /// The number of the job's processes on this host.
    pub(crate) local_size: Option<u32>,
    pub(crate) appnum: Option<u32>,
    pub(crate) universe: Option<u32>,
}

/// A value in Rust's types.
enum PmixValue {
    Text(String),
    Number(u32),
}

/// An error without a class of its own.
fn other(text: impl Display) -> Error {
    Error::new(Class::OTHER, text)
}

/// Loads the library from the system's search path, or else the file that the launcher has loaded, which may be elsewhere.
fn load() -> Result<*mut c_void> {
    let by_launcher = || {
        let maps =
            bounded::kernel_text(format!("/proc/{}/maps", std::os::unix::process::parent_id())).ok()?;
        let path = maps
            .lines()
            .find_map(|line| Some(&line[line.find('/')?..]).filter(|path| path.contains("/libpmix.so")))?;
        CString::new(path).ok()
    };
    let open = |name: &CStr| {
        // SAFETY: the name ends with a zero. Loading the library runs code of the launcher that started this process, which it
        // trusts.
        unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) }
    };
    let mut library = open(LIBRARY);
    if library.is_null() {
        library = by_launcher().map_or(ptr::null_mut(), |path| open(&path));
    }
    if library.is_null() {
        let name = LIBRARY.to_string_lossy();
        return Err(other(format_args!(
            "the launcher uses PMIx, but {name} is not found; add its directory to LD_LIBRARY_PATH"
        )));
    }
    Ok(library)
}

/// Looks up a function of the library.
///
/// # Safety
/// `T` must be the type of the library's function of this name.
unsafe fn symbol<T: Copy>(library: *mut c_void, name: &CStr) -> Result<T> {
    const { assert!(size_of::<T>() == size_of::<*mut c_void>()) }
    // SAFETY: the library is loaded, and the name ends with a zero.
    let address = unsafe { libc::dlsym(library, name.as_ptr()) };
    if address.is_null() {
        return Err(other(format_args!("the launcher's PMIx library has no {}", name.to_string_lossy())));
    }
    // SAFETY: both are addresses, and the caller promises the type.
    Ok(unsafe { mem::transmute_copy(&address) })
}

impl Functions {
    /// Looks up the functions in the loaded library.
    fn load_from(library: *mut c_void) -> Result<Self> {
        // SAFETY: `pmix.h` declares these functions with these types.
        unsafe {
            Ok(Self {
                init: symbol(library, c"PMIx_Init")?,
                finalize: symbol(library, c"PMIx_Finalize")?,
                abort: symbol(library, c"PMIx_Abort")?,
                put: symbol(library, c"PMIx_Put")?,
                commit: symbol(library, c"PMIx_Commit")?,
                fence: symbol(library, c"PMIx_Fence")?,
                get: symbol(library, c"PMIx_Get")?,
                text: symbol(library, c"PMIx_Error_string")?,
            })
        }
    }

    /// The library's status as a result; `what` was tried.
    fn check(&self, status: c_int, what: impl Display) -> Result<()> {
        if status == SUCCESS {
            return Ok(());
        }
        // SAFETY: the library returns a static string for any number, or null.
        let text = unsafe { (self.text)(status).as_ref() };
        // SAFETY: the string ends with a zero.
        let text =
            text.map_or("no reason", |text| unsafe { CStr::from_ptr(text) }.to_str().unwrap_or_default());
        Err(other(format_args!("the launcher's PMIx library refuses {what}: {text} ({status})")))
    }
}

impl Info {
    /// An option that is switched on.
    fn enabled(name: &CStr) -> Self {
        let mut key = [0; KEY_LEN];
        key.iter_mut().zip(name.to_bytes()).for_each(|(to, from)| *to = *from as c_char);
        let mut data = Data { room: [0; 3] };
        data.flag = true;
        Self { key, flags: 0, value: Value { kind: BOOL, data } }
    }
}

/// A text as the library takes it.
fn c_string(text: &str) -> Result<CString> {
    CString::new(text).map_err(|_| other("PMIx takes no text with a zero in it"))
}

impl Pmix {
    /// Joins the job of the launcher that started this process.
    pub(crate) fn join() -> Result<Self> {
        let functions = Functions::load_from(load()?)?;
        let mut own = Proc { namespace: [0; NAMESPACE_LEN], rank: 0 };
        // SAFETY: `own` has the layout of pmix_proc_t and outlives the call; null with a length of 0 is an empty list.
        let status = unsafe { (functions.init)(&raw mut own, ptr::null(), 0) };
        functions.check(status, "to let this process join")?;
        Ok(Self { functions, own })
    }

    /// This process's rank and job attributes.
    pub(crate) fn job(&self) -> Result<Job> {
        let number = |rank: u32, key: &str| match self.get_value(rank, key) {
            Ok(PmixValue::Number(number)) => Some(number),
            _ => None,
        };
        let size = number(WHOLE_JOB, "pmix.job.size")
            .ok_or_else(|| other("the launcher does not provide the number of ranks"))?;
        Ok(Job {
            rank: self.own.rank,
            size,
            local_size: number(WHOLE_JOB, "pmix.local.size"),
            appnum: number(self.own.rank, "pmix.appnum"),
            universe: number(WHOLE_JOB, "pmix.univ.size"),
        })
    }

    /// The value of a key that a rank has published.
    fn get_value(&self, rank: u32, key: &str) -> Result<PmixValue> {
        let name = c_string(key)?;
        let from = Proc { rank, ..self.own };
        let option = Info::enabled(c"pmix.immediate");
        let mut value = ptr::null_mut();
        // SAFETY: all have the library's layouts and outlive the call; the key is shorter than the limit.
        let status = unsafe {
            (self.functions.get)(&raw const from, name.as_ptr(), &raw const option, 1, &raw mut value)
        };
        self.functions.check(status, format_args!("to provide {key}"))?;
        // SAFETY: on success the library has stored a newly allocated value, which the caller frees and no other code uses.
        let found = unsafe { PmixValue::take_from(value) };
        found.ok_or_else(|| {
            other(format_args!("the launcher provides {key} as a value of an unexpected type"))
        })
    }

    /// Publishes a note under a key.
    pub(crate) fn put(&self, key: &str, note: &str) -> Result<()> {
        let (name, note) = (c_string(key)?, c_string(note)?);
        let mut value = Value { kind: STRING, data: Data { string: note.as_ptr().cast_mut() } };
        // SAFETY: all have the library's layouts and outlive the call; the library copies the string, and does not change it.
        let status = unsafe { (self.functions.put)(GLOBAL, name.as_ptr(), &raw mut value) };
        self.functions.check(status, format_args!("the note {key}"))
    }

    /// The note that another process has published under a key.
    pub(crate) fn get(&self, key: &str) -> Result<String> {
        match self.get_value(ANY_RANK, key)? {
            PmixValue::Text(text) => Ok(text),
            PmixValue::Number(_) => Err(other(format_args!("the note {key} is no text"))),
        }
    }

    /// Waits until all processes of the job have reached the fence, and exchanges their notes.
    pub(crate) fn fence(&self) -> Result<()> {
        let option = Info::enabled(c"pmix.collect");
        // SAFETY: it takes no arguments.
        let status = unsafe { (self.functions.commit)() };
        self.functions.check(status, "to pass notes on")?;
        // SAFETY: an empty list means all processes; the option has the library's layout and outlives the call.
        let status = unsafe { (self.functions.fence)(ptr::null(), 0, &raw const option, 1) };
        self.functions.check(status, "a fence")
    }

    /// Asks the launcher to end the job with this code.
    pub(crate) fn abort(&self, code: i32) -> Result<()> {
        // SAFETY: the message is a static string; an empty list means all processes.
        let status = unsafe { (self.functions.abort)(code, c"".as_ptr(), ptr::null(), 0) };
        self.functions.check(status, "to end the job")
    }

    /// Leaves the job.
    pub(crate) fn leave(&self) -> Result<()> {
        // SAFETY: null with a length of 0 is an empty list.
        let status = unsafe { (self.functions.finalize)(ptr::null(), 0) };
        self.functions.check(status, "to let this process leave")
    }
}

impl PmixValue {
    /// Converts and frees a value.
    ///
    /// # Safety
    /// It must be null, or a value that the library has allocated for the caller; a string in it must be a separate allocation.
    unsafe fn take_from(value: *mut Value) -> Option<Self> {
        // SAFETY: null or valid, by the caller's promise.
        let Value { kind, data } = unsafe { value.as_ref() }?;
        let found = match *kind {
            // SAFETY: the type says which member is set.
            UINT32 => Some(Self::Number(unsafe { data.number })),
            STRING => {
                // SAFETY: as above.
                let string = unsafe { data.string };
                let text = (!string.is_null()).then(|| {
                    // SAFETY: it ends with a zero, by the caller's promise.
                    unsafe { CStr::from_ptr(string) }.to_string_lossy().into_owned()
                });
                // SAFETY: the library allocates by malloc, since its own macros free by free.
                unsafe { libc::free(string.cast()) };
                text.map(Self::Text)
            }
            _ => None,
        };
        // SAFETY: as above; `found` has no references to it.
        unsafe { libc::free(value.cast()) };
        found
    }
}
