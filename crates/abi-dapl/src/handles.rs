//! The objects of all adapters by handle, and the program's data for each.
//!
//! The registry finds the functions through the first word that a handle points to, as [`ffi::Table`] provides it.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use dapl::{Cno, Cr, Ep, Error, ErrorKind, Evd, Ia, Lmr, Psp, Pz, Result, Rmr, Rsp, Srq, Subtype};
use ffi::{CBuffer, lock};

use crate::dat_conf::ConfLine;
use crate::types::Handle;

/// Limits of the table: objects at the same time, uses of a slot before a handle value repeats, and slots that rest before
/// reuse. A handle value repeats after 262,144 others at the earliest.
const CHUNKS: usize = 1 << 4;
const EACH: usize = 1 << 12;
const GENERATIONS: usize = 1 << 8;
const RESTING: usize = 1 << 10;

type Table = ffi::Table<Entry, CHUNKS, EACH, GENERATIONS, true>;

/// Access to an object, which is not freed meanwhile.
pub(crate) type EntryRef = ffi::ObjectRef<'static, Entry, CHUNKS, EACH, GENERATIONS, true>;

/// An open adapter.
pub(crate) struct IaObject {
    pub(crate) ia: Ia,
    pub(crate) line: ConfLine,
    pub(crate) is_thread_safe: bool,
    pub(crate) async_evd: Handle,
    pub(crate) address: CBuffer,
}

// SAFETY: the handle is a number that is checked at each use, and never dereferenced. Test: `tests/hammer.rs`.
unsafe impl Send for IaObject {}
// SAFETY: as above.
unsafe impl Sync for IaObject {}

/// An object of the standard.
#[derive(Clone)]
pub(crate) enum Object {
    Ia(Arc<IaObject>),
    Pz(Pz),
    Lmr(Arc<Lmr>),
    Rmr(Arc<Rmr>),
    Ep(Ep),
    Evd(Evd),
    Cno(Cno),
    Srq(Srq),
    Psp(Arc<Psp>),
    Rsp(Arc<Rsp>),
    Cr(Cr),
}

/// An object, and the program's data for it.
pub(crate) struct Entry {
    pub(crate) object: Object,
    /// The handle of the adapter that it belongs to, as a number.
    pub(crate) ia: AtomicU64,
    /// The program's context (`dat_set_consumer_context`).
    pub(crate) context: AtomicU64,
    /// Private data of the last event, and addresses, to which the program has pointers.
    pub(crate) private_data: Mutex<Option<CBuffer>>,
    pub(crate) addresses: Mutex<[Option<CBuffer>; 2]>,
}

/// The table, created on first use; `None` without memory for it.
fn table() -> Option<&'static Table> {
    static TABLE: OnceLock<Option<Table>> = OnceLock::new();
    TABLE.get_or_init(|| Table::new(RESTING)).as_ref()
}

/// Looks a handle up; `None` for NULL, freed handles, and invalid handles.
#[inline]
pub(crate) fn lookup(handle: Handle) -> Option<EntryRef> {
    table()?.get(handle)
}

/// Creates a handle for an object of the adapter with handle `ia`.
///
/// # Errors
/// `InsufficientResources` when there are too many; `InvalidHandle` when the adapter has been closed.
pub(crate) fn insert(object: Object, ia: u64) -> Result<Handle> {
    let line = self::ia(from_label(ia), Subtype::HandleIa)?.line.clone();
    insert_with(object, ia, &line)
}

/// Creates a handle through which the registry finds the functions of this line.
pub(crate) fn insert_with(object: Object, ia: u64, line: &ConfLine) -> Result<Handle> {
    let entry = Entry {
        object,
        ia: AtomicU64::new(ia),
        context: AtomicU64::new(0),
        private_data: Mutex::new(None),
        addresses: Mutex::default(),
    };
    let full = Error::new(ErrorKind::InsufficientResources, Subtype::ResourceMemory);
    let table = table().ok_or(full.clone())?;
    table.insert(entry, line.functions()).map_err(|_| full)
}

/// Invalidates a handle; returns whether it was valid.
pub(crate) fn remove(handle: Handle) -> bool {
    table().is_some_and(|table| table.remove(handle))
}

/// The handle for a label from an event.
pub(crate) fn from_label(label: u64) -> Handle {
    table().map_or(std::ptr::null_mut(), |table| table.handle(label))
}

/// The label in events for a handle.
pub(crate) fn label(handle: Handle) -> u64 {
    handle.addr() as u64
}

/// The handle of an object's adapter.
pub(crate) fn ia_of(handle: Handle) -> Handle {
    lookup(handle).map_or(std::ptr::null_mut(), |entry| from_label(entry.ia.load(Ordering::Relaxed)))
}

/// Invalidates a handle, or fails if it is invalid already.
pub(crate) fn invalidate(handle: Handle, wrong: Subtype) -> Result<()> {
    if remove(handle) { Ok(()) } else { Err(Error::handle(wrong)) }
}

/// Stores an address for the program; the pointer stays the same until the address changes.
pub(crate) fn lend_address(handle: Handle, which: usize, address: SocketAddr) -> *mut std::ffi::c_void {
    let Some(entry) = lookup(handle) else { return std::ptr::null_mut() };
    let mut addresses = lock(&entry.addresses);
    let buffer = addresses[which].get_or_insert_with(|| CBuffer::address(address));
    buffer.set_address(address);
    buffer.as_ptr()
}

/// The handles of all objects of an adapter.
pub(crate) fn handles_of(ia: u64) -> Vec<Handle> {
    let mut handles = table().map_or(Vec::new(), Table::handles);
    handles.retain(|handle| lookup(*handle).is_some_and(|entry| entry.ia.load(Ordering::Relaxed) == ia));
    handles
}

/// Defines, for each kind of object, a function that gets it from a handle.
macro_rules! getters {
    ($($name:ident: $variant:ident($type:ty);)*) => {
        $(
            /// The object of this kind, or `InvalidHandle` with the subtype `wrong`.
            #[inline]
            pub(crate) fn $name(handle: Handle, wrong: Subtype) -> Result<$type> {
                match lookup(handle).as_deref() {
                    Some(Entry { object: Object::$variant(object), .. }) => Ok(object.clone()),
                    _ => Err(Error::handle(wrong)),
                }
            }
        )*
    };
}

getters! {
    ia: Ia(Arc<IaObject>);
    pz: Pz(Pz);
    lmr: Lmr(Arc<Lmr>);
    rmr: Rmr(Arc<Rmr>);
    ep: Ep(Ep);
    evd: Evd(Evd);
    cno: Cno(Cno);
    srq: Srq(Srq);
    psp: Psp(Arc<Psp>);
    rsp: Rsp(Arc<Rsp>);
    cr: Cr(Cr);
}

/// Gets an object as [the getters](getters) do, for arguments that may be NULL.
pub(crate) fn optional<T>(
    handle: Handle,
    wrong: Subtype,
    get: fn(Handle, Subtype) -> Result<T>,
) -> Result<Option<T>> {
    if handle.is_null() { Ok(None) } else { get(handle, wrong).map(Some) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dat_conf;

    #[test]
    fn a_handle_is_of_one_sort_and_of_one_adapter() {
        let device = fabric::open("shm", &host::real::host()).expect("a device");
        let adapter = dapl::Adapter::new(device);
        let (ia, _) = dapl::Ia::open(&adapter, 0).expect("an adapter");
        // No adapter has this number as its handle, since it is odd.
        let line = dat_conf::add("test".to_owned(), false, "shm".to_owned(), || &());
        let zone = Object::Pz(Pz::create(&ia).expect("a zone"));
        assert_eq!(insert(zone.clone(), 77).err(), Some(Error::handle(Subtype::HandleIa)));
        let handle = insert_with(zone, 77, &line).expect("room");
        assert!(pz(handle, Subtype::HandlePz).is_ok());
        assert_eq!(ep(handle, Subtype::HandleEp).err(), Some(Error::handle(Subtype::HandleEp)));
        assert_eq!((handles_of(77), handles_of(79)), (vec![handle], vec![]));
        assert_eq!(from_label(label(handle)), handle);
        assert!(remove(handle) && !remove(handle));
        assert!(pz(handle, Subtype::HandlePz).is_err());
    }
}
