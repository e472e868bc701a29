//! [`Context`]: an opened card, its attributes, and its asynchronous events.

use std::ffi::{CStr, c_char};
use std::io;
use std::mem::MaybeUninit;
use std::net::Ipv6Addr;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use nic_util::fork::ForkGuard;
use rdma_abi::numbers as n;
use rdma_abi::verbs::*;
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use verbs::{Error, Result};

use super::check;
use super::library::Library;

/// A card, as the list of devices shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CardName {
    /// Such as `mlx5_0`.
    pub(crate) name: String,
    /// Its character device in /dev/infiniband, such as `uverbs0`.
    pub(crate) node: String,
}

/// An asynchronous event, of the object with the number that its creator gave it (its context in C).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HwEvent {
    /// `IBV_EVENT_...`.
    pub(crate) kind: u32,
    /// The number of the queue pair, completion queue, shared receive queue or port; 0 for events of the card.
    pub(crate) object: u32,
}

/// An entry of a port's GID table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HwGid {
    pub(crate) gid: Ipv6Addr,
    /// `IBV_GID_TYPE_...`; `None` if the library cannot say it.
    pub(crate) kind: Option<u32>,
    /// The number of its network interface; 0 if it has none.
    pub(crate) interface: u32,
}

impl HwGid {
    /// `None` for an empty entry.
    fn new(gid: ibv_gid, kind: Option<u32>, interface: u32) -> Option<Self> {
        let gid = Ipv6Addr::from(gid.raw);
        (!gid.is_unspecified()).then_some(Self { gid, kind, interface })
    }
}

/// An opened card.
pub(crate) struct Context {
    pub(crate) calls: &'static Library,
    pub(crate) card: CardName,
    /// Whether it speaks iWARP, and not InfiniBand or RoCE.
    pub(crate) is_iwarp: bool,
    pub(crate) fork_guard: ForkGuard,
    at: NonNull<ibv_context>,
    /// The last number that was given to an object.
    last_number: AtomicU32,
}

// SAFETY: functions of libibverbs may be called by any thread, at the same time. Test: the group `threads` of the
// suite in crates/abi-verbs/tests/hw_on_shm.rs.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

/// The devices of a library, until dropped.
struct List {
    calls: &'static Library,
    at: *mut *mut ibv_device,
    count: usize,
}

impl List {
    fn new(library: &'static Library) -> Result<Self> {
        let mut count = 0;
        // SAFETY: the function stores a number and returns a list or NULL. Test:
        // crates/abi-verbs/tests/hw_on_shm.rs, as for all blocks of this file.
        let at = unsafe { (library.verbs.ibv_get_device_list)(&raw mut count) };
        if at.is_null() {
            let why = io::Error::last_os_error();
            return Err(Error::system("cannot list the cards (is the kernel module ib_uverbs loaded?)", why));
        }
        Ok(Self { calls: library, at, count: usize::try_from(count).unwrap_or(0) })
    }

    fn devices(&self) -> impl Iterator<Item = NonNull<ibv_device>> {
        // SAFETY: the list has this many entries.
        (0..self.count).filter_map(|index| NonNull::new(unsafe { *self.at.add(index) }))
    }
}

impl Drop for List {
    fn drop(&mut self) {
        // SAFETY: the list came from the same library, and nothing refers to it any more; opened devices stay.
        unsafe { (self.calls.verbs.ibv_free_device_list)(self.at) };
    }
}

/// Text in a C array.
fn text(array: &[c_char]) -> String {
    let bytes: Vec<u8> = array.iter().map(|&byte| byte as u8).take_while(|&byte| byte != 0).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

fn name_of(device: NonNull<ibv_device>) -> CardName {
    // SAFETY: a device of a list that has not been freed.
    let device = unsafe { device.as_ref() };
    CardName { name: text(&device.name), node: text(&device.dev_name) }
}

/// The names of all cards.
pub(crate) fn card_names(library: &'static Library) -> Result<Vec<CardName>> {
    Ok(List::new(library)?.devices().map(name_of).collect())
}

impl Context {
    /// Opens the card of this name.
    ///
    /// # Errors
    /// [`Error::Invalid`], with the cards that exist; [`Error::System`] if it cannot be opened.
    pub(crate) fn open(library: &'static Library, name: &str) -> Result<Arc<Self>> {
        let fork_guard = ForkGuard::current()?;
        let list = List::new(library)?;
        let Some(device) = list.devices().find(|device| name_of(*device).name == name) else {
            let known: Vec<_> = list.devices().map(|device| name_of(device).name).collect();
            let known = if known.is_empty() { "no cards".to_owned() } else { known.join(", ") };
            return Err(Error::Invalid(format!("there is no card '{name}'; there is: {known}")));
        };
        let card = name_of(device);
        // SAFETY: the device is in a list that has not been freed.
        let (opened, transport) =
            unsafe { ((library.verbs.ibv_open_device)(device.as_ptr()), device.as_ref().transport_type) };
        let Some(at) = NonNull::new(opened) else {
            let why = io::Error::last_os_error();
            let node = &card.node;
            return Err(Error::system(
                format!(
                    "cannot open card '{name}' (may this user read and write /dev/infiniband/{node}, and is its provider \
                     installed, as by Debian's ibverbs-providers?)"
                ),
                why,
            ));
        };
        let is_iwarp = transport.cast_unsigned() == n::IBV_TRANSPORT_IWARP;
        let context = Self { calls: library, card, is_iwarp, fork_guard, at, last_number: AtomicU32::new(0) };
        set_nonblocking(context.async_fd())
            .map_err(|why| Error::system("cannot poll the card's events", why))?;
        Ok(Arc::new(context))
    }

    pub(crate) fn as_ptr(&self) -> *mut ibv_context {
        self.at.as_ptr()
    }

    /// A number for an object of this context, which no other has until 2^32 objects were created.
    pub(crate) fn fresh_number(&self) -> u32 {
        self.last_number.fetch_add(1, Ordering::Relaxed).wrapping_add(1)
    }

    /// Whether this process inherited the card by fork(2): then nothing may be destroyed.
    pub(crate) fn is_forked(&self) -> bool {
        self.fork_guard.is_forked()
    }

    /// The attributes of the card.
    pub(crate) fn attr(&self) -> Result<ibv_device_attr> {
        let mut attr = MaybeUninit::<ibv_device_attr>::zeroed();
        // SAFETY: the function fills the structure in; zeros are valid for what it leaves out.
        let attr = unsafe {
            check((self.calls.verbs.ibv_query_device)(self.as_ptr(), attr.as_mut_ptr()))
                .map(|()| attr.assume_init())
        };
        attr.map_err(|why| Error::system(format!("cannot query card '{}'", self.card.name), why))
    }

    /// The attributes of a port. Those behind `flags` are zero, as the function's oldest version does not know them.
    pub(crate) fn port_attr(&self, port: u8) -> Result<ibv_port_attr> {
        let mut attr = MaybeUninit::<ibv_port_attr>::zeroed();
        // SAFETY: as in `attr`.
        let attr = unsafe {
            check((self.calls.verbs.ibv_query_port)(self.as_ptr(), port, attr.as_mut_ptr()))
                .map(|()| attr.assume_init())
        };
        attr.map_err(|why| {
            Error::system(format!("cannot query port {port} of card '{}'", self.card.name), why)
        })
    }

    /// The entry of the GID table of a port at this index; `None` if it is empty or there is none.
    pub(crate) fn gid(&self, port: u8, index: u8) -> Option<HwGid> {
        if let Some(query) = self.calls.query_gid_ex {
            let mut entry = MaybeUninit::<ibv_gid_entry>::zeroed();
            let (port, index, size) = (port.into(), index.into(), size_of::<ibv_gid_entry>());
            // SAFETY: the function fills the entry in, of the size that it is given; zeros are valid.
            let entry = unsafe {
                check(query(self.as_ptr(), port, index, entry.as_mut_ptr(), 0, size))
                    .map(|()| entry.assume_init())
            };
            let entry = entry.ok()?;
            return HwGid::new(entry.gid, Some(entry.gid_type), entry.ndev_ifindex);
        }
        let mut gid = ibv_gid::default();
        // SAFETY: the function fills the GID in.
        check(unsafe { (self.calls.verbs.ibv_query_gid)(self.as_ptr(), port, index.into(), &raw mut gid) })
            .ok()?;
        HwGid::new(gid, None, 0)
    }

    /// The descriptor that is readable while an asynchronous event is pending.
    pub(crate) fn async_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the context keeps its descriptor open, and the borrow lasts no longer than the context.
        unsafe { BorrowedFd::borrow_raw(self.at.as_ref().async_fd) }
    }

    /// Takes an asynchronous event, if there is any, and acknowledges it: objects can then be destroyed.
    pub(crate) fn async_event(&self) -> Option<HwEvent> {
        let mut event = MaybeUninit::<ibv_async_event>::zeroed();
        // SAFETY: the function fills the event in if it returns 0. The object in it exists until the event is
        // acknowledged, and its context is a number that this crate stored. Test: `the_target_gets_an_asynchronous_event`
        // of the suite.
        unsafe {
            check((self.calls.verbs.ibv_get_async_event)(self.as_ptr(), event.as_mut_ptr())).ok()?;
            let mut event = event.assume_init();
            let kind = event.event_type.cast_unsigned();
            let object = match kind {
                n::IBV_EVENT_CQ_ERR => (*event.element.cq).cq_context.addr(),
                n::IBV_EVENT_QP_FATAL
                | n::IBV_EVENT_QP_REQ_ERR
                | n::IBV_EVENT_QP_ACCESS_ERR
                | n::IBV_EVENT_COMM_EST
                | n::IBV_EVENT_QP_LAST_WQE_REACHED => (*event.element.qp).qp_num as usize,
                n::IBV_EVENT_SRQ_LIMIT_REACHED => (*event.element.srq).srq_context.addr(),
                n::IBV_EVENT_PORT_ERR | n::IBV_EVENT_PORT_ACTIVE | n::IBV_EVENT_GID_CHANGE => {
                    event.element.port_num as usize
                }
                _ => 0,
            };
            (self.calls.verbs.ibv_ack_async_event)(&raw mut event);
            Some(HwEvent { kind, object: object as u32 })
        }
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        if !self.is_forked() {
            // SAFETY: all objects of the context hold a reference to it, so none is left.
            unsafe { (self.calls.verbs.ibv_close_device)(self.as_ptr()) };
        }
    }
}

/// Makes reads of a descriptor return instead of waiting.
pub(super) fn set_nonblocking(fd: BorrowedFd<'_>) -> rustix::io::Result<()> {
    fcntl_setfl(fd, fcntl_getfl(fd)? | OFlags::NONBLOCK)
}

/// The name of the card behind a context of librdmacm.
pub(super) fn name_behind(context: NonNull<ibv_context>) -> String {
    // SAFETY: a context refers to its device, whose name is an array in it. Test: as above.
    let name = unsafe { CStr::from_ptr((&raw const (*context.as_ref().device).name).cast()) };
    name.to_string_lossy().into_owned()
}
