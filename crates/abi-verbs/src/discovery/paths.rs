//! Emulates the paths by which programs find RDMA devices without the libraries: UCX skips a device without its file in
//! `/dev/infiniband`, and reads attributes below `/sys/class/infiniband`.
//!
//! Where this library is preloaded (`LD_PRELOAD`), these functions interpose those of the C library. They answer for these paths as if
//! our devices were real, and pass all others on. A device's file is `/dev/null` and does nothing.

use std::collections::BTreeSet;
use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

use ffi::{Out, Text, catch_panic};

use crate::answer::Answer;
use crate::discovery::device;
use crate::discovery::sysfs;
use crate::errno::Errno;

/// The file or folder at an emulated path.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Entry {
    /// A character device.
    Device,
    /// A folder, with its names.
    Folder(BTreeSet<String>),
    /// A file with this text.
    Attribute(String),
}

const DEVICES: &str = "/dev/infiniband";
const CLASS: &str = "/sys/class/infiniband";
const VERBS_CLASS: &str = "/sys/class/infiniband_verbs";
/// Folders of devices without hardware. The entries of the class folders are links to these.
const VIRTUAL: &str = "/sys/devices/virtual/infiniband";
const VIRTUAL_VERBS: &str = "/sys/devices/virtual/infiniband_verbs";

/// The class folders, their link targets, and the prefix of their entries' names.
const LINKS: [(&str, &str, &str); 2] = [(CLASS, VIRTUAL, "nicety"), (VERBS_CLASS, VIRTUAL_VERBS, "uverbs")];

impl Entry {
    /// The entry at a program's path, if the path is emulated and exists.
    pub(crate) fn parse(path: *const c_char) -> Option<Self> {
        Self::find(meant(path)?)
    }

    fn find(path: &str) -> Option<Self> {
        let path = resolve(path);
        let path = path.as_str();
        let below = |folder| path.strip_prefix(folder)?.strip_prefix('/');
        let all = |before: &str| {
            Some(Self::Folder((0..device::all().len()).map(|index| format!("{before}{index}")).collect()))
        };
        match path {
            DEVICES | VERBS_CLASS | VIRTUAL_VERBS => return all("uverbs"),
            CLASS | VIRTUAL => return all("nicety"),
            _ => {}
        }
        if let Some(name) = below(DEVICES) {
            return number(name, "uverbs").map(|_| Self::Device);
        }
        let split = |folder| below(folder).map(|rest| rest.split_once('/').unwrap_or((rest, "")));
        if let Some((name, attribute)) = split(VIRTUAL) {
            return Self::of_device(number(name, "nicety")?, attribute);
        }
        let (name, attribute) = split(VIRTUAL_VERBS)?;
        Self::of_verbs(number(name, "uverbs")?, attribute)
    }

    /// The entry at a path below a device: a file, or a folder.
    fn of_device(index: usize, path: &str) -> Option<Self> {
        let files = sysfs::files(index)?;
        match files.get(path) {
            Some(Some(text)) => return Some(Self::Attribute(text.clone())),
            Some(None) => return Some(Self::Folder(BTreeSet::new())),
            None => {}
        }
        let below = files.keys().filter_map(|name| {
            if path.is_empty() { Some(name.as_str()) } else { name.strip_prefix(path)?.strip_prefix('/') }
        });
        let names: BTreeSet<_> = below.filter_map(|rest| rest.split('/').next().map(str::to_owned)).collect();
        (!names.is_empty()).then_some(Self::Folder(names))
    }

    fn of_verbs(index: usize, name: &str) -> Option<Self> {
        match name {
            "" => Some(Self::Folder(["ibdev".to_owned()].into())),
            "ibdev" => Some(Self::Attribute(format!("nicety{index}\n"))),
            _ => None,
        }
    }

    /// An existing path of the same type, present on every machine.
    pub(crate) fn stand_in(&self) -> &'static CStr {
        match self {
            Self::Device => c"/dev/null",
            Self::Folder(_) => c"/sys/class",
            Self::Attribute(_) => c"/proc/version",
        }
    }

    /// Opens a descriptor with the content of an attribute.
    fn open(&self) -> Option<c_int> {
        let Self::Attribute(text) = self else { return None };
        let make = || {
            let file =
                std::fs::File::from(rustix::fs::memfd_create("attribute", rustix::fs::MemfdFlags::CLOEXEC)?);
            std::os::unix::fs::FileExt::write_all_at(&file, text.as_bytes(), 0)?;
            Ok::<_, std::io::Error>(std::os::fd::IntoRawFd::into_raw_fd(file))
        };
        make().ok()
    }
}

/// A path that a program passes, if it may be an emulated one.
fn meant<'a>(path: *const c_char) -> Option<&'a str> {
    if path.is_null() {
        return None;
    }
    // SAFETY: a program passes a zero-terminated string. Test: `paths_of_devices_lead_somewhere` in tests/programs.rs.
    let path = unsafe { CStr::from_ptr(path) }.to_bytes();
    let is_meant = [DEVICES, CLASS, VIRTUAL].iter().any(|folder| path.starts_with(folder.as_bytes()));
    if is_meant { std::str::from_utf8(path).ok() } else { None }
}

/// The absolute path without dots and without our class links, as realpath(3) returns it. Other links are not resolved.
fn resolve(path: &str) -> String {
    let mut at = String::new();
    for part in path.split('/').filter(|part| !matches!(*part, "" | ".")) {
        if part == ".." {
            at.truncate(at.rfind('/').unwrap_or(0));
            continue;
        }
        let link = LINKS.iter().find(|(class, _, before)| at == *class && number(part, before).is_some());
        at = format!("{}/{part}", link.map_or(at.as_str(), |(_, devices, _)| devices));
    }
    at
}

/// The real path of an emulated path, and whether the result is emulated too: programs walk from a device up to its bus. `None` if it
/// does not exist.
fn real(path: *const c_char) -> Option<(CString, bool)> {
    let real = resolve(meant(path)?);
    let is_own = Entry::find(&real).is_some();
    let real = CString::new(real).ok()?;
    (is_own || meant(real.as_ptr()).is_none()).then_some((real, is_own))
}

/// The content of a device's link, if the path is one.
fn link(path: *const c_char) -> Option<String> {
    let (class, name) = meant(path)?.rsplit_once('/')?;
    let (_, devices, _) =
        LINKS.iter().find(|(known, _, before)| class == *known && number(name, before).is_some())?;
    Some(format!("../../{}/{name}", devices.trim_start_matches("/sys/")))
}

/// The index in the device list that a name contains, if such a device exists.
fn number(name: &str, before: &str) -> Option<usize> {
    let index = name.strip_prefix(before)?.parse().ok()?;
    (index < device::all().len()).then_some(index)
}

/// The content of an attribute.
pub(crate) fn read(folder: &str, file: &str) -> Option<String> {
    match Entry::find(&format!("{folder}/{file}")) {
        Some(Entry::Attribute(text)) => Some(text),
        _ => None,
    }
}

/// The next definition of this function after this library, looked up once.
pub(crate) fn next(found: &AtomicPtr<c_void>, name: &CStr) -> *mut c_void {
    let known = found.load(Ordering::Relaxed);
    if !known.is_null() {
        return known;
    }
    // SAFETY: resolves a symbol. Test: as above.
    let address = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
    found.store(address, Ordering::Relaxed);
    address
}

/// Interposes functions of the C library whose first argument is a path, or a folder descriptor and a path. `own` computes the result
/// for an emulated path; if it returns `None`, the function is called with the stand-in path.
macro_rules! instead {
    ($($name:ident $([$at:ident: $folder:ty])? ($($argument:ident: $kind:ty),*) -> $answer:ty, $own:expr;)*) => {$(
        // Not exported in unit tests, which use the C library's functions and call some functions of this module.
        #[cfg_attr(not(test), unsafe(no_mangle))]
        #[cfg_attr(test, allow(dead_code))]
        unsafe extern "C" fn $name($($at: $folder,)? path: *const c_char, $($argument: $kind),*) -> $answer {
            static NEXT: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
            type Next = unsafe extern "C" fn($($folder,)? *const c_char, $($kind),*) -> $answer;
            let own: fn(&Entry) -> Option<$answer> = $own;
            let place = catch_panic(|| Entry::parse(path)).unwrap_or(None);
            if let Some(answer) = place.as_ref().and_then(own) {
                return answer;
            }
            let name = CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes());
            let address = next(&NEXT, name.unwrap_or_default());
            // SAFETY: the C library has a function of this name and type. Test: as above.
            let next = unsafe { std::mem::transmute::<*mut c_void, Next>(address) };
            // SAFETY: the program's arguments, with its own path or a stand-in. Test: as above.
            unsafe { next($($at,)? place.as_ref().map_or(path, |place| place.stand_in().as_ptr()), $($argument),*) }
        }
    )*};
}

fn stream(place: &Entry) -> Option<*mut libc::FILE> {
    // SAFETY: a descriptor that we own and the stream takes over. Test: as above.
    place.open().map(|fd| unsafe { libc::fdopen(fd, c"r".as_ptr()) })
}

// The mode may be absent; the C library reads it only when the flags require it.
instead! {
    open(flags: c_int, mode: c_uint) -> c_int, Entry::open;
    open64(flags: c_int, mode: c_uint) -> c_int, Entry::open;
    fopen(mode: *const c_char) -> *mut libc::FILE, stream;
    fopen64(mode: *const c_char) -> *mut libc::FILE, stream;
    access(mode: c_int) -> c_int, |_| None;
    stat(found: *mut c_void) -> c_int, |_| None;
    stat64(found: *mut c_void) -> c_int, |_| None;
    lstat(found: *mut c_void) -> c_int, |_| None;
    lstat64(found: *mut c_void) -> c_int, |_| None;
    openat[at: c_int](flags: c_int, mode: c_uint) -> c_int, Entry::open;
    openat64[at: c_int](flags: c_int, mode: c_uint) -> c_int, Entry::open;
    faccessat[at: c_int](mode: c_int, flags: c_int) -> c_int, |_| None;
    fstatat[at: c_int](found: *mut c_void, flags: c_int) -> c_int, |_| None;
    fstatat64[at: c_int](found: *mut c_void, flags: c_int) -> c_int, |_| None;
}

#[cfg_attr(not(test), unsafe(no_mangle))]
#[cfg_attr(test, allow(dead_code))]
unsafe extern "C" fn realpath(path: *const c_char, place: *mut c_char) -> *mut c_char {
    static NEXT: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
    type Next = unsafe extern "C" fn(*const c_char, *mut c_char) -> *mut c_char;
    let real = catch_panic(|| real(path)).unwrap_or(None);
    match &real {
        // SAFETY: the C library's copy, which the program frees. Test: as above.
        Some((real, true)) if place.is_null() => unsafe { libc::strdup(real.as_ptr()) },
        // SAFETY: the program has room for PATH_MAX bytes, and the length is checked. Test: as above.
        Some((real, true)) if real.count_bytes() < libc::PATH_MAX as usize => unsafe {
            libc::strcpy(place, real.as_ptr())
        },
        _ => {
            // SAFETY: the C library has a function of this name and type. Test: as above.
            let next = unsafe { std::mem::transmute::<*mut c_void, Next>(next(&NEXT, c"realpath")) };
            // SAFETY: the program's arguments, with its own path or the resolved one. Test: as above.
            unsafe { next(real.as_ref().map_or(path, |(real, _)| real.as_ptr()), place) }
        }
    }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
#[cfg_attr(test, allow(dead_code))]
unsafe extern "C" fn readlink(path: *const c_char, place: *mut c_char, size: usize) -> isize {
    static NEXT: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
    type Next = unsafe extern "C" fn(*const c_char, *mut c_char, usize) -> isize;
    let Some(text) = catch_panic(|| link(path)).unwrap_or(None).filter(|_| !place.is_null()) else {
        if catch_panic(|| Entry::parse(path)).is_ok_and(|place| place.is_some()) {
            Errno::INVAL.store();
            return -1;
        }
        // SAFETY: the C library has a function of this name and type. Test: as above.
        let next = unsafe { std::mem::transmute::<*mut c_void, Next>(next(&NEXT, c"readlink")) };
        // SAFETY: the program's arguments. Test: as above.
        return unsafe { next(path, place, size) };
    };
    let len = text.len().min(size);
    // SAFETY: the program has as much room as it states. Test: as above.
    unsafe { place.cast::<u8>().copy_from_nonoverlapping(text.as_ptr(), len) };
    len as isize
}

/// Older entry points, used by programs built with a C library before 2.33 (most Python wheels), and the checked variants of fortified
/// programs. x86-64 has only one version of the structure, and no file is created.
macro_rules! formerly {
    ($($name:ident($($given:ident: $kind:ty),*) -> $answer:ty = $now:ident($($argument:expr),*);)*) => {$(
        #[cfg_attr(not(test), unsafe(no_mangle))]
        #[cfg_attr(test, allow(dead_code))]
        unsafe extern "C" fn $name($($given: $kind),*) -> $answer {
            // SAFETY: the program's arguments. Test: `paths_of_devices_lead_somewhere` in tests/programs.rs.
            unsafe { $now($($argument),*) }
        }
    )*};
}

formerly! {
    __xstat(_version: c_int, path: *const c_char, found: *mut c_void) -> c_int = stat(path, found);
    __xstat64(_version: c_int, path: *const c_char, found: *mut c_void) -> c_int = stat64(path, found);
    __lxstat(_version: c_int, path: *const c_char, found: *mut c_void) -> c_int = lstat(path, found);
    __lxstat64(_version: c_int, path: *const c_char, found: *mut c_void) -> c_int = lstat64(path, found);
    __open_2(path: *const c_char, flags: c_int) -> c_int = open(path, flags, 0);
    __open64_2(path: *const c_char, flags: c_int) -> c_int = open64(path, flags, 0);
    __realpath_chk(path: *const c_char, place: *mut c_char, _len: usize) -> *mut c_char = realpath(path, place);
    canonicalize_file_name(path: *const c_char) -> *mut c_char = realpath(path, std::ptr::null_mut());
    __readlink_chk(path: *const c_char, place: *mut c_char, size: usize, _len: usize) -> isize = readlink(path, place, size);
}

/// The sysfs mount point, where our attributes are emulated too.
pub(crate) fn ibv_get_sysfs_path() -> Answer<*const c_char> {
    Ok(c"/sys".as_ptr())
}

/// Reads an attribute without its line end; returns its length, or -1.
pub(crate) fn ibv_read_sysfs_file(dir: Text, file: Text, buf: Out<u8>, size: usize) -> i32 {
    let read = || {
        let (dir, file) = (dir.get().ok_or(Errno::INVAL)?, file.get().ok_or(Errno::INVAL)?);
        let text = read(&dir, &file).ok_or(Errno(libc::ENOENT))?;
        let text = text.trim_end().as_bytes();
        let len = text.len().min(size.saturating_sub(1));
        buf.required(Errno::INVAL)?;
        text[..len].iter().chain([&0]).enumerate().for_each(|(at, byte)| buf.element(at).set(*byte));
        Ok(len as i32)
    };
    read().unwrap_or_else(|why: Errno| {
        why.store();
        -1
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_lead_to_devices_that_there_are() {
        let names = |path: &str| match Entry::find(path) {
            Some(Entry::Folder(names)) => names.into_iter().collect::<Vec<_>>().join(" "),
            other => panic!("{path}: {other:?}"),
        };
        assert_eq!(
            [DEVICES, CLASS, VERBS_CLASS, "/dev/infiniband/"].map(names),
            ["uverbs0", "nicety0", "uverbs0", "uverbs0"]
        );
        let device = |path: &str| names(&format!("{CLASS}/nicety0{path}"));
        let own = "board_id device fw_ver hca_type hw_rev node_desc node_guid node_type ports sys_image_guid";
        assert_eq!(device(""), own);
        let port = "cap_mask counters gid_attrs gids lid lid_mask_count link_layer phys_state pkeys rate sm_lid sm_sl state";
        assert_eq!(device("/ports/1"), port);
        assert_eq!(
            (device("/ports/1/gids"), device("/ports/1/gid_attrs")),
            ("0 1".into(), "ndevs types".into())
        );
        assert_eq!(["/ports/", "/device/net/", "/device/net/lo"].map(device), ["1", "lo", ""]);
        assert_eq!(Entry::find("/dev/infiniband/uverbs0"), Some(Entry::Device));
        let kind = Entry::Attribute("RoCE v2\n".to_owned());
        assert_eq!(Entry::find("/sys/class/infiniband/nicety0/ports/1/gid_attrs/types/0"), Some(kind));
        assert_eq!(read("/sys/class/infiniband/nicety0", "node_type").as_deref(), Some("1: CA\n"));
        assert_eq!(read("/sys/class/infiniband_verbs/uverbs0", "ibdev").as_deref(), Some("nicety0\n"));
        assert_eq!(device("/../nicety0/./ports/1/.."), "1");
        assert_eq!(names("/sys/devices/virtual/infiniband/nicety0/ports"), "1");
        assert_eq!(resolve("/sys/class/infiniband/nicety0/../.."), "/sys/devices/virtual");
        assert_eq!(resolve("/sys/class/infiniband/mlx5_0/.."), "/sys/class/infiniband");
        for path in [
            "/dev/infiniband/uverbs999",
            "/dev/infiniband/umad0",
            // Debian's librdmacm would take this file for the kernel's.
            "/dev/infiniband/rdma_cm",
            "/dev/infinibandage",
            "/sys/class/infiniband/mlx5_0/node_type",
            "/sys/class/infiniband/nicety0/ports/2/state",
            "/sys/class/infiniband/nicety0/port",
            "/sys/class/infiniband/nicety0/device/net/eth",
            "/sys/class/net",
        ] {
            assert_eq!(Entry::find(path), None, "{path}");
        }
    }

    #[test]
    fn an_attribute_is_read_by_descriptor_and_others_are_passed_on() {
        use std::io::Read as _;
        use std::os::fd::FromRawFd as _;
        let path = c"/sys/class/infiniband/nicety0/node_type";
        // SAFETY: a path, and a descriptor that nothing else owns.
        let mut file = unsafe { std::fs::File::from_raw_fd(open(path.as_ptr(), libc::O_RDONLY, 0)) };
        let mut text = String::new();
        file.read_to_string(&mut text).expect("it is readable");
        assert_eq!(text, "1: CA\n");
        // SAFETY: paths.
        let [device, nothing] = unsafe {
            [c"/dev/infiniband/uverbs0", c"/nowhere/at/all"]
                .map(|path| access(path.as_ptr(), libc::R_OK | libc::W_OK))
        };
        assert_eq!((device, nothing), (0, -1));
    }
}
