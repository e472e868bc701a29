//! The list of devices: `NICETY_VERBS_DEVICES` names them, and `NICETY_VERBS_KIND` their kind. Programs see them as `nicety0`, `nicety1`
//! and so on.

use std::ffi::{c_char, c_int, c_void};
use std::hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher};
use std::sync::{Mutex, OnceLock};

use ffi::{Out, lock};
use host::real::remark;
use rdma_abi::numbers::{IBV_NODE_CA, IBV_NODE_RNIC, IBV_TRANSPORT_IB, IBV_TRANSPORT_IWARP};
use rdma_abi::verbs::ibv_device;

use crate::answer::Answer;
use crate::errno::errno;
use crate::slab::{Handle, Object, Slab};

/// A device that a program may open.
#[derive(Debug)]
pub(crate) struct Device {
    /// Its name in the device table, used to open it.
    pub(crate) name: String,
    /// Its index in the list.
    pub(crate) index: c_int,
}

/// The device as programs see it, followed by zeros: vendors' libraries read their own fields there, and find none set.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct CDevice {
    pub(crate) device: ibv_device,
    room: [u64; 64],
}

impl Object for Device {
    type C = CDevice;
    const NAME: &'static str = "ibv_device";
    const PLACES: usize = 256;
    fn slab() -> &'static Slab<Self> {
        static SLAB: Slab<Device> = Slab::new();
        &SLAB
    }
}

const VARIABLE: &str = "NICETY_VERBS_DEVICES";
const DEFAULT: &str = "shm";

/// All devices, created on first use; they are never freed.
pub(crate) fn all() -> &'static [Handle<Device>] {
    static ALL: OnceLock<Vec<Handle<Device>>> = OnceLock::new();
    ALL.get_or_init(|| {
        if is_half() {
            remark(
                "this program has our librdmacm.so.1 and another's libibverbs.so.1, which know nothing of each other: no \
                 devices; start it by nicety run, which gives it both"
            );
            return Vec::new();
        }
        let names = std::env::var(VARIABLE).unwrap_or_default();
        let names = if names.trim().is_empty() { DEFAULT.to_owned() } else { names };
        let names = names.split(';').map(str::trim).filter(|name| !name.is_empty());
        let known = names.filter(|name| {
            let wrong = match fabric::check(name) {
                Ok(()) if fabric::is_virtual(name) => "it runs in virtual time only".to_owned(),
                Ok(()) => return true,
                Err(why) => why.to_string(),
            };
            remark(format_args!("{VARIABLE} names the device '{name}', which is left out: {wrong}"));
            false
        });
        known.zip(0..).filter_map(|(name, index)| create_device(name, index).ok()).collect()
    })
}

/// Whether the program calls another libibverbs, whose objects are not ours.
fn is_half() -> bool {
    let file_of = |address: *const c_void| {
        // SAFETY: numbers and pointers, which may be zero; the call fills them in if it knows the address. Test:
        // `program_with_one_of_both_libraries_gets_an_error` in tests/programs.rs.
        unsafe {
            let mut found: libc::Dl_info = std::mem::zeroed();
            (libc::dladdr(address, &raw mut found) != 0).then_some(found.dli_fbase)
        }
    };
    // SAFETY: resolves a symbol of the linked program. Test: as above.
    let called = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"ibv_open_device".as_ptr()) };
    !called.is_null() && file_of(called) != file_of(is_half as fn() -> bool as *const c_void)
}

/// The kind of device that programs see; they treat the two kinds differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DeviceKind {
    /// An InfiniBand channel adapter on Ethernet (RoCE).
    Hca,
    /// An iWARP RNIC.
    Rnic,
}

const KIND: &str = "NICETY_VERBS_KIND";

/// The kind of all devices, read from the environment once.
pub(crate) fn device_kind() -> DeviceKind {
    static FOUND: OnceLock<DeviceKind> = OnceLock::new();
    *FOUND.get_or_init(|| match std::env::var(KIND).unwrap_or_default().trim() {
        "" | "hca" => DeviceKind::Hca,
        "rnic" => DeviceKind::Rnic,
        other => {
            remark(format_args!("{KIND} is '{other}', which is neither hca nor rnic: devices look like hca"));
            DeviceKind::Hca
        }
    })
}

fn create_device(name: &str, index: c_int) -> Answer<Handle<Device>> {
    let (node, transport) = match device_kind() {
        DeviceKind::Hca => (IBV_NODE_CA, IBV_TRANSPORT_IB),
        DeviceKind::Rnic => (IBV_NODE_RNIC, IBV_TRANSPORT_IWARP),
    };
    let device = ibv_device {
        _ops: [std::ptr::null_mut(); 2],
        node_type: node as c_int,
        transport_type: transport as c_int,
        name: chars(&format!("nicety{index}")),
        dev_name: chars(&format!("uverbs{index}")),
        dev_path: chars(&format!("/sys/class/infiniband_verbs/uverbs{index}")),
        ibdev_path: chars(&format!("/sys/class/infiniband/nicety{index}")),
    };
    Device::slab().insert(CDevice { device, room: [0; 64] }, Device { name: name.to_owned(), index })
}

/// Text in a C array, terminated by a zero.
pub(crate) fn chars<const N: usize>(text: &str) -> [c_char; N] {
    let mut array = [0; N];
    array[..N - 1].iter_mut().zip(text.bytes()).for_each(|(to, from)| *to = from as c_char);
    array
}

/// The GUID of a device in network byte order: a hash of the host name and the device's name, in the locally administered range.
pub(crate) fn guid(name: &str) -> u64 {
    let node = rustix::system::uname();
    let hash = BuildHasherDefault::<DefaultHasher>::default().hash_one((node.nodename().to_bytes(), name));
    let mut bytes = hash.to_be_bytes();
    bytes[0] = 0x02;
    u64::from_ne_bytes(bytes)
}

/// Device lists that programs have not freed.
static LISTS: Mutex<Vec<Box<[Handle<Device>]>>> = Mutex::new(Vec::new());

pub(crate) fn ibv_get_device_list(num_devices: Out<i32>) -> Answer<*mut Handle<Device>> {
    let all = all();
    num_devices.set(all.len() as i32);
    let mut list: Box<[_]> = all.iter().copied().chain([Handle::NULL]).collect();
    let address = list.as_mut_ptr();
    lock(&LISTS).push(list);
    Ok(address)
}

pub(crate) fn ibv_free_device_list(list: Out<Handle<Device>>) -> Answer {
    let mut lists = lock(&LISTS);
    let at = lists
        .iter()
        .position(|known| known.as_ptr().addr() == list.addr())
        .ok_or_else(|| errno!(INVAL, "list is none that ibv_get_device_list has returned; free each once"))?;
    lists.swap_remove(at);
    Ok(())
}

pub(crate) fn ibv_get_device_name(device: Handle<Device>) -> Answer<*const c_char> {
    let device = device.lookup()?;
    let mut name = std::ptr::null();
    // Devices are never freed, so the name stays valid.
    device.update_c(|seen| name = seen.device.name.as_ptr());
    Ok(name)
}

pub(crate) fn ibv_get_device_index(device: Handle<Device>) -> i32 {
    device.lookup().map_or(-1, |device| device.index)
}

pub(crate) fn ibv_get_device_guid(device: Handle<Device>) -> u64 {
    device.lookup().map_or(0, |device| guid(&device.name))
}
