//! Attributes of communicators, datatypes and windows, and their keys (MPI 5.0, section 7.7).

use std::collections::BTreeMap;
use std::sync::Mutex;

use ffi::{Out, lock};
use mpi::Keyval;

use super::error::LAST_USED;
use crate::answer::{Answer, Fault};
use crate::callback::AttributeFunctions;
use crate::constants as c;
use crate::objects::{comm_handle, get, handle_of_win};
use crate::state;
use crate::types::{self, Address, Comm, Win};

/// A key, by the kind of object that it is for.
enum Key {
    Comm(Keyval<mpi::Comm>),
    Type(Keyval<types::Datatype>),
    Win(Keyval<mpi::Window>),
}

impl Key {
    /// Whether an object has an attribute of it.
    fn is_held(&self) -> bool {
        match self {
            Self::Comm(key) => key.is_held(),
            Self::Type(key) => key.is_held(),
            Self::Win(key) => key.is_held(),
        }
    }
}

static KEYS: Mutex<Keys> = Mutex::new(Keys { by_number: BTreeMap::new(), last: FIRST });

/// Numbers of a program's keys follow the predefined ones.
const FIRST: i32 = 1023;

struct Keys {
    by_number: BTreeMap<i32, RegisteredKey>,
    last: i32,
}

struct RegisteredKey {
    key: Key,
    /// The program has freed the key; it stays in the map while objects have a value of it.
    is_freed: bool,
}

impl Keys {
    /// The key of this number. A freed key remains while an object has an attribute of it.
    fn get(&self, number: i32) -> Answer<&Key> {
        let known = self.by_number.get(&number).filter(|known| !known.is_freed || known.key.is_held());
        known.map(|known| &known.key).ok_or_else(|| unknown(number))
    }
}

/// Stores a new key, which `key` makes from its number.
fn create(keyval: Out<i32>, key: impl FnOnce(i32) -> Key) -> Answer {
    let mut keys = lock(&KEYS);
    keys.last += 1;
    let number = keys.last;
    keys.by_number.insert(number, RegisteredKey { key: key(number), is_freed: false });
    keyval.set(number);
    Ok(())
}

/// Frees a key, which is removed with its last value: until then its number can be used to read and delete values, and it can be
/// freed again (MPI 5.0, section 7.7.2).
pub(crate) fn comm_free_keyval(keyval: Out<i32>) -> Answer {
    let number = keyval.get().unwrap_or(c::MPI_KEYVAL_INVALID);
    let mut keys = lock(&KEYS);
    keys.get(number)?;
    keys.by_number.retain(|&other, registered| {
        registered.is_freed |= other == number;
        !registered.is_freed || registered.key.is_held()
    });
    keyval.set(c::MPI_KEYVAL_INVALID);
    Ok(())
}

/// The error for a number without such a key.
fn unknown(number: i32) -> Fault {
    Fault::new(
        c::MPI_ERR_KEYVAL,
        format!("keyval: {number} is no key for objects of this kind that can be set"),
    )
}

/// The key of attributes of communicators.
fn comm_key(number: i32) -> Answer<Keyval<mpi::Comm>> {
    match lock(&KEYS).get(number)? {
        Key::Comm(key) => Ok(key.clone()),
        _ => Err(unknown(number)),
    }
}

/// The key of attributes of datatypes.
fn type_key(number: i32) -> Answer<Keyval<types::Datatype>> {
    match lock(&KEYS).get(number)? {
        Key::Type(key) => Ok(key.clone()),
        _ => Err(unknown(number)),
    }
}

/// The key of attributes of windows.
fn win_key(number: i32) -> Answer<Keyval<mpi::Window>> {
    match lock(&KEYS).get(number)? {
        Key::Win(key) => Ok(key.clone()),
        _ => Err(unknown(number)),
    }
}

/// MPI 5.0, section 7.7.2.
pub(crate) fn comm_create_keyval(copy: Address, delete: Address, keyval: Out<i32>, extra: Address) -> Answer {
    let functions = AttributeFunctions { copy, delete, extra };
    create(keyval, |number| {
        let copy =
            move |comm: &mpi::Comm, value| functions.copy(comm_handle(comm.id()).value(), number, value);
        let delete =
            move |comm: &mpi::Comm, value| functions.delete(comm_handle(comm.id()).value(), number, value);
        Key::Comm(Keyval::new(copy, delete))
    })
}

/// MPI 5.0, section 7.7.4.
pub(crate) fn type_create_keyval(copy: Address, delete: Address, keyval: Out<i32>, extra: Address) -> Answer {
    let functions = AttributeFunctions { copy, delete, extra };
    create(keyval, |number| {
        let copy = move |handle: &types::Datatype, value| functions.copy(handle.value(), number, value);
        let delete = move |handle: &types::Datatype, value| functions.delete(handle.value(), number, value);
        Key::Type(Keyval::new(copy, delete))
    })
}

/// Windows are not copied, so nothing calls the copy function (MPI 5.0, section 7.7.3).
pub(crate) fn win_create_keyval(copy: Address, delete: Address, keyval: Out<i32>, extra: Address) -> Answer {
    let functions = AttributeFunctions { copy, delete, extra };
    create(keyval, |number| {
        let delete =
            move |window: &mpi::Window, value| functions.delete(handle_of_win(window).value(), number, value);
        Key::Win(Keyval::new(|_, _| Ok(None), delete))
    })
}

/// MPI 5.0, section 16.1.
pub(crate) use comm_create_keyval as keyval_create;
/// MPI 5.0, section 16.1.
pub(crate) use comm_free_keyval as keyval_free;
/// MPI 5.0, section 7.7.4.
pub(crate) use comm_free_keyval as type_free_keyval;
/// MPI 5.0, section 7.7.3.
pub(crate) use comm_free_keyval as win_free_keyval;

/// The address of a predefined attribute of communicators, where programs read the integer. The outer `None`: no such predefined
/// attribute; the inner one: it has no value in this job.
fn predefined_address(number: i32) -> Answer<Option<Option<usize>>> {
    static TAG_UB: i32 = mpi::TAG_MAX;
    static HOST: i32 = c::MPI_PROC_NULL;
    static IO: i32 = c::MPI_ANY_SOURCE;
    static WTIME_IS_GLOBAL: i32 = 0;
    let state = state::state()?;
    let at = |place: *const i32| place.expose_provenance();
    let if_set = |place: &'static i32| (*place >= 0).then(|| at(place));
    let value = match number {
        c::MPI_TAG_UB => Some(at(&raw const TAG_UB)),
        c::MPI_HOST => Some(at(&raw const HOST)),
        c::MPI_IO => Some(at(&raw const IO)),
        c::MPI_WTIME_IS_GLOBAL => Some(at(&raw const WTIME_IS_GLOBAL)),
        c::MPI_LASTUSEDCODE => Some(at(LAST_USED.as_ptr())),
        c::MPI_APPNUM => if_set(&state.appnum),
        c::MPI_UNIVERSE_SIZE => if_set(&state.universe),
        _ => return Ok(None),
    };
    // With sessions alone, without `MPI_Init`, `MPI_TAG_UB` is the only one (MPI 5.0, section 9.1.2).
    Ok(Some(value.filter(|_| number == c::MPI_TAG_UB || state::is_initialized())))
}

/// Returns a value to the program, if the attribute is set.
fn store_attribute(value: Option<usize>, attribute_val: Address, flag: Out<i32>) -> Answer {
    flag.set(value.is_some().into());
    if let Some(value) = value {
        attribute_val.out::<usize>().set(value);
    }
    Ok(())
}

/// MPI 5.0, section 7.7.2.
pub(crate) fn comm_get_attr(comm: Comm, keyval: i32, attribute_val: Address, flag: Out<i32>) -> Answer {
    let comm = get(comm, "comm")?;
    let value = match predefined_address(keyval)? {
        Some(value) => value,
        None => comm.attribute(&comm_key(keyval)?),
    };
    store_attribute(value, attribute_val, flag)
}

/// MPI 5.0, section 7.7.2.
pub(crate) fn comm_set_attr(comm: Comm, keyval: i32, attribute_val: Address) -> Answer {
    Ok(get(comm, "comm")?.set_attribute(&comm_key(keyval)?, attribute_val.0)?)
}

/// MPI 5.0, section 7.7.2.
pub(crate) fn comm_delete_attr(comm: Comm, keyval: i32) -> Answer {
    Ok(get(comm, "comm")?.delete_attribute(&comm_key(keyval)?)?)
}

/// MPI 5.0, section 16.1.
pub(crate) use comm_delete_attr as attr_delete;
/// MPI 5.0, section 16.1.
pub(crate) use comm_get_attr as attr_get;
/// MPI 5.0, section 16.1.
pub(crate) use comm_set_attr as attr_put;

/// MPI 5.0, section 7.7.3.
pub(crate) fn win_get_attr(win: Win, keyval: i32, attribute_val: Address, flag: Out<i32>) -> Answer {
    let object = get(win, "win")?;
    let value = match object.predefined(keyval) {
        Some(value) => Some(value),
        None => object.window.attribute(&win_key(keyval)?),
    };
    store_attribute(value, attribute_val, flag)
}

/// MPI 5.0, section 7.7.3.
pub(crate) fn win_set_attr(win: Win, keyval: i32, attribute_val: Address) -> Answer {
    Ok(get(win, "win")?.window.set_attribute(&win_key(keyval)?, attribute_val.0)?)
}

/// MPI 5.0, section 7.7.3.
pub(crate) fn win_delete_attr(win: Win, keyval: i32) -> Answer {
    Ok(get(win, "win")?.window.delete_attribute(&win_key(keyval)?)?)
}

/// MPI 5.0, section 7.7.4.
pub(crate) fn type_get_attr(
    datatype: types::Datatype,
    keyval: i32,
    attribute_val: Address,
    flag: Out<i32>,
) -> Answer {
    let value = lock(&get(datatype, "datatype")?.attributes).get(&type_key(keyval)?);
    store_attribute(value, attribute_val, flag)
}

/// MPI 5.0, section 7.7.4.
pub(crate) fn type_set_attr(datatype: types::Datatype, keyval: i32, attribute_val: Address) -> Answer {
    let key = type_key(keyval)?;
    type_delete_attr(datatype, keyval)?;
    lock(&get(datatype, "datatype")?.attributes).set(key, attribute_val.0);
    Ok(())
}

/// MPI 5.0, section 7.7.4.
pub(crate) fn type_delete_attr(datatype: types::Datatype, keyval: i32) -> Answer {
    let (object, key) = (get(datatype, "datatype")?, type_key(keyval)?);
    // The function is called before the value is removed, and without the lock.
    let value = lock(&object.attributes).get(&key);
    if let Some(value) = value {
        key.delete(&datatype, value)?;
        lock(&object.attributes).take(&key);
    }
    Ok(())
}
