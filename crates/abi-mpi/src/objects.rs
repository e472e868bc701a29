//! The table of a program's objects by handle. Requests are not in it: their handles are numbers from `mpi`. A handle that is not
//! predefined is a number from [`ffi::Table`], checked at each use.

use std::borrow::Borrow as _;
use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::ops::Deref;
use std::sync::{Mutex, OnceLock};

use datatypes::Datatype;
use ffi::{InsertError, lock};
use mpi::{Errhandler, Group, Info, Message};

use crate::answer::{Answer, Fault};
use crate::constants as c;
use crate::kinds::{self, OpObject, SessionObject, TypeObject, WinObject};
use crate::types::{self, Handle, PREDEFINED, kind};
use crate::{heap, state};

/// Sizes of the table: objects at a time, uses of a slot until a handle repeats, and freed slots that stay unused. A handle repeats
/// after 262,144 others at the earliest. All handles together fit into the positive integers of C.
const OBJECTS_MAX: usize = CHUNKS * CHUNK_SLOTS;
const CHUNKS: usize = 1 << 12;
const CHUNK_SLOTS: usize = 1 << 12;
const GENERATIONS: usize = 1 << 6;
const FREED_SLOTS: usize = 1 << 12;
const _: () = assert!(OBJECTS_MAX * GENERATIONS + PREDEFINED <= i32::MAX as usize);

type Table = ffi::Table<Object, CHUNKS, CHUNK_SLOTS, GENERATIONS, false>;
type ObjectRef = ffi::ObjectRef<'static, Object, CHUNKS, CHUNK_SLOTS, GENERATIONS, false>;

/// An object that a program created.
pub(crate) enum Object {
    Comm(mpi::Comm),
    Datatype(Box<TypeObject>),
    Errhandler(Errhandler),
    File(mpi::File),
    Group(Group),
    Info(Box<Mutex<Info>>),
    Message(Box<Mutex<Option<Message>>>),
    Op(Box<OpObject>),
    Session(Box<SessionObject>),
    Win(Box<WinObject>),
}

/// A kind of object behind handles.
pub(crate) trait ObjectKind: Sized + 'static {
    type Object: 'static;
    /// Its name, and the error class of an invalid handle.
    const NAME: &'static str;
    const CODE: i32;

    /// The object of a predefined handle.
    fn predefined(value: usize) -> Answer<Option<&'static Self::Object>>;
    fn from_object(object: &Object) -> Option<&Self::Object>;
    fn wrap(object: Self::Object) -> Object;
}

macro_rules! kinds {
    ($($kind:ident($object:ty): $name:literal $code:ident, $predefined:expr;)*) => {
        $(impl ObjectKind for kind::$kind {
            type Object = $object;
            const NAME: &'static str = $name;
            const CODE: i32 = c::$code;

            fn predefined(value: usize) -> Answer<Option<&'static Self::Object>> {
                $predefined(value)
            }

            fn from_object(object: &Object) -> Option<&Self::Object> {
                match object {
                    // Some kinds are boxed.
                    Object::$kind(object) => Some(object.borrow()),
                    _ => None,
                }
            }

            fn wrap(object: Self::Object) -> Object {
                Object::$kind(object.into())
            }
        })*
    };
}

kinds! {
    Comm(mpi::Comm): "communicator" MPI_ERR_COMM, state::predefined_comm;
    Datatype(TypeObject): "datatype" MPI_ERR_TYPE, kinds::predefined_type;
    Errhandler(Errhandler): "error handler" MPI_ERR_ERRHANDLER, kinds::predefined_errhandler;
    File(mpi::File): "file" MPI_ERR_FILE, |_| Ok(None);
    Group(Group): "group" MPI_ERR_GROUP, kinds::predefined_group;
    Info(Mutex<Info>): "info object" MPI_ERR_INFO, kinds::predefined_info;
    Message(Mutex<Option<Message>>): "message" MPI_ERR_REQUEST, |_| Ok(None);
    Op(OpObject): "operation" MPI_ERR_OP, kinds::predefined_op;
    Session(SessionObject): "session" MPI_ERR_SESSION, |_| Ok(None);
    Win(WinObject): "window" MPI_ERR_WIN, |_| Ok(None);
}

/// A reference to an object, which is not dropped while this exists.
pub(crate) enum Ref<K: ObjectKind> {
    Predefined(&'static K::Object),
    Created(ObjectRef, PhantomData<K>),
}

impl<K: ObjectKind> Deref for Ref<K> {
    type Target = K::Object;

    #[inline]
    fn deref(&self) -> &K::Object {
        match self {
            Self::Predefined(object) => object,
            Self::Created(object, _) => {
                K::from_object(object).expect("the kind was checked when the reference was created")
            }
        }
    }
}

/// The table, created on first use.
#[inline]
fn table() -> &'static Table {
    static TABLE: OnceLock<Table> = OnceLock::new();
    TABLE.get_or_init(|| {
        Table::new(FREED_SLOTS).expect("a table of numbered handles needs no memory for them")
    })
}

/// The object of a handle argument; `argument` is its name in errors.
#[inline]
pub(crate) fn get<K: ObjectKind>(handle: Handle<K>, argument: &'static str) -> Answer<Ref<K>> {
    if handle.is_predefined() {
        let object = K::predefined(handle.value())?;
        return object.map(Ref::Predefined).ok_or_else(|| invalid_handle(handle, argument));
    }
    get_created(handle, argument)
}

/// The fast path: runs `act`, which must not call a program's functions, on an object. `None` for an invalid handle, or if other
/// threads may free it.
#[inline(always)]
pub(crate) fn try_with<K: ObjectKind, R>(handle: Handle<K>, act: impl FnOnce(&K::Object) -> R) -> Option<R> {
    let object = if handle.is_predefined() {
        K::predefined(handle.value()).ok().flatten()?
    } else if state::calls_are_serialized() {
        let table = table();
        // SAFETY: no other thread calls MPI meanwhile, and `act` removes nothing. Test: `ring_messages_arrive_on_shm`.
        K::from_object(unsafe { table.get_unprotected(table.handle(handle.value() as u64)) }?)?
    } else {
        return None;
    };
    // A single call site, so that the compiler inlines `act`.
    Some(act(object))
}

/// As [`try_with`], for a communicator, which usually is `MPI_COMM_WORLD`.
#[inline(always)]
pub(crate) fn try_with_comm<R>(handle: types::Comm, act: impl FnOnce(&mpi::Comm) -> R) -> Option<R> {
    match state::world() {
        Some(world) if handle.value() == c::MPI_COMM_WORLD => Some(act(world)),
        _ => try_with(handle, act),
    }
}

/// The object of a handle that is not predefined.
fn get_created<K: ObjectKind>(handle: Handle<K>, argument: &'static str) -> Answer<Ref<K>> {
    let object = table().get(table().handle(handle.value() as u64));
    let object = object.filter(|object| K::from_object(object).is_some());
    object.map(|object| Ref::Created(object, PhantomData)).ok_or_else(|| invalid_handle(handle, argument))
}

/// The error for a handle without an object of its kind.
#[cold]
fn invalid_handle<K: ObjectKind>(handle: Handle<K>, argument: &'static str) -> Fault {
    Fault::new(K::CODE, format!("{argument}: {handle:?} is no {}, or one that was freed", K::NAME))
}

/// The handle of the first object in the table that satisfies `is_it`.
pub(crate) fn find<K: ObjectKind>(is_it: impl Fn(&K::Object) -> bool) -> Option<Handle<K>> {
    let is_it = |handle: &ffi::Handle| {
        table().get(*handle).is_some_and(|object| K::from_object(&object).is_some_and(&is_it))
    };
    table().handles().into_iter().find(is_it).map(|handle| Handle::new(handle.addr()))
}

/// Inserts an object, and returns its handle.
pub(crate) fn insert<K: ObjectKind>(object: K::Object) -> Answer<Handle<K>> {
    heap::check_for_more()?;
    let handle = table().insert(K::wrap(object), std::ptr::null_mut());
    handle.map(|handle| Handle::new(handle.addr())).map_err(no_handle)
}

/// The error if no more handles can be created.
#[cold]
fn no_handle(why: InsertError) -> Fault {
    let text = match why {
        InsertError::Full => format!("there are {OBJECTS_MAX} objects already; free some"),
        InsertError::NoMemory(bytes) => {
            format!("there is no memory for more handles: {bytes} bytes are needed")
        }
    };
    Fault::new(c::MPI_ERR_NO_MEM, text)
}

/// Makes a handle stale; returns whether it was live.
pub(crate) fn remove<K: ObjectKind>(handle: Handle<K>) -> bool {
    table().remove(table().handle(handle.value() as u64))
}

/// A handle as an integer: predefined handles keep their values, others follow them.
pub(crate) fn to_integer<K>(handle: Handle<K>) -> i32 {
    if handle.is_predefined() {
        return handle.value() as i32;
    }
    let index = table().index(table().handle(handle.value() as u64));
    // All indices fit, by the assertion above.
    index.map_or(-1, |index| (index + PREDEFINED) as i32)
}

/// The handle of an integer; an invalid integer gives a handle that no call accepts.
pub(crate) fn from_integer<K>(integer: i32) -> Handle<K> {
    let value = usize::try_from(integer).unwrap_or(usize::MAX);
    match value.checked_sub(PREDEFINED) {
        None => Handle::new(value),
        Some(index) => Handle::new(match table().handle_at(index) {
            null if null.is_null() => usize::MAX,
            handle => handle.addr(),
        }),
    }
}

/// The handles of communicators and windows by their ids, which are unique across both, for callbacks that receive a handle.
static BY_ID: Mutex<BTreeMap<u64, usize>> = Mutex::new(BTreeMap::new());

/// Inserts a communicator, and returns its handle; `MPI_COMM_NULL` for `None`.
pub(crate) fn insert_comm(comm: Option<mpi::Comm>) -> Answer<types::Comm> {
    let Some(comm) = comm else { return Ok(Handle::new(c::MPI_COMM_NULL)) };
    let id = comm.id();
    let handle = insert::<kind::Comm>(comm)?;
    lock(&BY_ID).insert(id, handle.value());
    Ok(handle)
}

/// Makes a communicator's handle stale.
pub(crate) fn remove_comm(handle: types::Comm, id: u64) {
    lock(&BY_ID).remove(&id);
    remove(handle);
}

/// The handle of the communicator with this [`mpi::Comm::id`]; `MPI_COMM_NULL` if it was freed.
pub(crate) fn comm_handle(id: u64) -> types::Comm {
    let created = || lock(&BY_ID).get(&id).copied();
    Handle::new(state::handle_of(id).or_else(created).unwrap_or(c::MPI_COMM_NULL))
}

/// Inserts a window, and returns its handle.
pub(crate) fn insert_win(window: mpi::Window) -> Answer<types::Win> {
    let id = window.id();
    let handle = insert::<kind::Win>(WinObject::new(window))?;
    lock(&BY_ID).insert(id, handle.value());
    Ok(handle)
}

/// Makes a window's handle stale.
pub(crate) fn remove_win(handle: types::Win, id: u64) {
    lock(&BY_ID).remove(&id);
    remove(handle);
}

/// The handle of a window; `MPI_WIN_NULL` if it was freed.
pub(crate) fn handle_of_win(window: &mpi::Window) -> types::Win {
    Handle::new(lock(&BY_ID).get(&window.id()).copied().unwrap_or(c::MPI_WIN_NULL))
}

/// The datatype of a handle.
#[inline(always)]
pub(crate) fn datatype(handle: types::Datatype, argument: &'static str) -> Answer<Datatype> {
    match Datatype::predefined(handle.value()) {
        Some(predefined) => Ok(predefined),
        None => Ok(get(handle, argument)?.datatype.clone()),
    }
}

/// A handle for a datatype: the predefined one, or a new one, which the caller must free. Returns whether it is new.
pub(crate) fn type_handle(datatype: &Datatype) -> Answer<(types::Datatype, bool)> {
    match datatype.basic() {
        Some(basic) => Ok((Handle::new(basic.abi().into()), false)),
        None => Ok((insert::<kind::Datatype>(TypeObject::new(datatype.clone()))?, true)),
    }
}

/// The program's existing handle of a datatype, or else one as from [`type_handle`].
pub(crate) fn known_type_handle(datatype: &Datatype) -> Answer<(types::Datatype, bool)> {
    let is_it = |object: &TypeObject| object.datatype.is_same_object(datatype);
    let known = if datatype.basic().is_none() { find::<kind::Datatype>(is_it) } else { None };
    known.map_or_else(|| type_handle(datatype), |known| Ok((known, false)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_refers_to_one_kind_until_it_is_removed() {
        let group = insert::<kind::Group>(Group::of_all(3)).expect("room");
        assert_eq!(get(group, "group").expect("a group").size(), 3);
        let other = types::Errhandler::new(group.value());
        let error = get(other, "errhandler").err().expect("another kind");
        assert_eq!(error.code, c::MPI_ERR_ERRHANDLER);
        assert!(error.text.starts_with("errhandler: 0x"), "{}", error.text);
        assert!(remove(group) && !remove(group));
        assert_eq!(get(group, "group").err().expect("removed").code, c::MPI_ERR_GROUP);
        assert_eq!(get(types::Group::new(c::MPI_GROUP_EMPTY), "group").expect("predefined").size(), 0);
        assert!(get(types::Group::new(c::MPI_GROUP_NULL), "group").is_err());
    }

    #[test]
    fn handles_convert_to_integers_and_back() {
        let group = insert::<kind::Group>(Group::of_all(2)).expect("room");
        let integer = to_integer(group);
        assert!(integer >= PREDEFINED as i32);
        assert_eq!(from_integer::<kind::Group>(integer), group);
        assert_eq!(to_integer(types::Comm::new(c::MPI_COMM_WORLD)), 0x101);
        assert_eq!(from_integer::<kind::Comm>(0x101), types::Comm::new(c::MPI_COMM_WORLD));
        assert!(get(from_integer::<kind::Group>(-5), "group").is_err());
        assert!(get(from_integer::<kind::Group>(i32::MAX), "group").is_err());
        remove(group);
    }
}
