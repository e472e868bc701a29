//! Attributes: keys with functions of the program, and predefined attributes, whose values are addresses of integers.

use std::sync::atomic::{AtomicI32, Ordering};

use crate::c;
use crate::entry::entry;
use crate::{arg, code, conversion, handle};

/// A key of the program: its functions, and its extra state. It is never freed: objects may have attributes of a freed key.
struct Key {
    copy: usize,
    delete: usize,
    extra: usize,
}

/// The key behind the extra state that the library passes.
fn key_at(extra: usize) -> &'static Key {
    // SAFETY: `create` has made it, and it is never freed. Test: `programs_run` of callbacks.c.
    unsafe { &*std::ptr::with_exposed_provenance::<Key>(extra) }
}

/// Creates a key by a function of the library; the functions for the library are those of the kind of object, or none.
fn create(key: Key, functions: [usize; 2], create: impl FnOnce(usize, usize, usize) -> i32) -> i32 {
    let [copy, delete] = functions;
    let copy = if key.copy == 0 { 0 } else { copy };
    let delete = if key.delete == 0 { 0 } else { delete };
    arg::finish(create(copy, delete, Box::into_raw(Box::new(key)).expose_provenance()))
}

impl Key {
    fn copy(&self, handle: i32, keyval: i32, value: usize, copied: usize, flag: usize) -> i32 {
        let keyval = conversion::keyval::to_mpich(keyval);
        code::to_standard(c::call(
            self.copy,
            [handle as usize, keyval as usize, self.extra, value, copied, flag],
        ))
    }

    fn delete(&self, handle: i32, keyval: i32, value: usize) -> i32 {
        let keyval = conversion::keyval::to_mpich(keyval);
        code::to_standard(c::call(self.delete, [handle as usize, keyval as usize, value, self.extra]))
    }
}

/// The entry point that creates keys for a kind of object, and the functions that the library calls for these.
macro_rules! keys {
    ($($kind:ident $strong:ident $weak:literal $create:ident;)*) => {$(
        mod $kind {
            use super::*;

            extern "C-unwind" fn copy(
                handle: usize, keyval: i32, extra: usize, value: usize, copied: usize, flag: usize,
            ) -> i32 {
                key_at(extra).copy(handle::$kind::to_mpich(handle), keyval, value, copied, flag)
            }

            extern "C-unwind" fn delete(handle: usize, keyval: i32, value: usize, extra: usize) -> i32 {
                key_at(extra).delete(handle::$kind::to_mpich(handle), keyval, value)
            }

            pub(super) fn functions() -> [usize; 2] {
                [copy as *const () as usize, delete as *const () as usize]
            }
        }

        entry! { $strong $weak (copy: usize, delete: usize, keyval: usize, extra: usize) -> i32 {
            let key = Key { copy, delete, extra };
            create(key, $kind::functions(), |copy, delete, extra| c::$create(copy, delete, keyval, extra))
        } }
    )*};
}

keys! {
    comm PMPI_Comm_create_keyval "MPI_Comm_create_keyval" MPI_Comm_create_keyval;
    datatype PMPI_Type_create_keyval "MPI_Type_create_keyval" MPI_Type_create_keyval;
    win PMPI_Win_create_keyval "MPI_Win_create_keyval" MPI_Win_create_keyval;
}

entry! { PMPI_Keyval_create "MPI_Keyval_create" (copy: usize, delete: usize, keyval: usize, extra: usize) -> i32 {
    PMPI_Comm_create_keyval(copy, delete, keyval, extra)
} }

/// `MPI_DUP_FN` and its kin: copies the value.
// SAFETY: a name of MPICH's. Test: `programs_run` of callbacks.c.
#[unsafe(no_mangle)]
#[allow(non_snake_case)]
extern "C-unwind" fn MPIR_Dup_fn(
    _handle: usize,
    _keyval: i32,
    _extra: usize,
    value: usize,
    copied: usize,
    flag: usize,
) -> i32 {
    arg::write(copied, 0, value);
    arg::write(flag, 0, 1_i32);
    0
}

/// Keys of predefined attributes with other values in MPICH's ABI.
const IO: i32 = 502;
const HOST: i32 = 503;
const LAST_USED_CODE: i32 = 506;
const FLAVOR: i32 = 604;
const MODEL: i32 = 605;
/// `MPI_ERR_LASTCODE` of the standard ABI.
const LAST: i32 = 16383;

/// Integers whose addresses a program gets: `MPI_IO`, `MPI_HOST`, `MPI_LASTUSEDCODE`, flavours of windows from 0 to 4, models from 0 to 2.
static VALUES: [AtomicI32; 3] = [const { AtomicI32::new(0) }; 3];
static CHOICES: [AtomicI32; 5] =
    [AtomicI32::new(0), AtomicI32::new(1), AtomicI32::new(2), AtomicI32::new(3), AtomicI32::new(4)];

/// The address of an integer with the value of an attribute in MPICH's ABI; `at` has that of the standard's.
fn converted(keyval: i32, at: usize) -> usize {
    let own = |place: usize, value: i32| {
        VALUES[place].store(value, Ordering::Relaxed);
        (&raw const VALUES[place]).expose_provenance()
    };
    let choice =
        |value: i32| CHOICES.get(value as usize).map_or(at, |item| (&raw const *item).expose_provenance());
    match (keyval, arg::read(at, 0)) {
        (IO, rank) => own(0, conversion::rank::to_mpich(rank)),
        (HOST, rank) => own(1, conversion::rank::to_mpich(rank)),
        (LAST_USED_CODE, LAST) => own(2, code::LAST_OF_MPICH),
        (LAST_USED_CODE, code) => own(2, code::class::to_mpich(code)),
        (FLAVOR, flavor) => choice(conversion::flavor::to_mpich(flavor)),
        (MODEL, model) => choice(conversion::model::to_mpich(model)),
        _ => at,
    }
}

/// Gets an attribute by a function of the library.
fn get(keyval: i32, value: usize, flag: usize, get: impl FnOnce(i32) -> i32) -> i32 {
    let keyval = conversion::keyval::to_standard(keyval);
    let code = get(keyval);
    let is_converted = [IO, HOST, LAST_USED_CODE, FLAVOR, MODEL].contains(&keyval);
    if code == 0 && is_converted && arg::number_at(flag) == Some(1) {
        arg::write(value, 0, converted(keyval, arg::read(value, 0)));
    }
    arg::finish(code)
}

entry! { PMPI_Comm_get_attr "MPI_Comm_get_attr" (comm: i32, keyval: i32, value: usize, flag: usize) -> i32 {
    get(keyval, value, flag, |keyval| c::MPI_Comm_get_attr(handle::comm::to_standard(comm), keyval, value, flag))
} }

entry! { PMPI_Attr_get "MPI_Attr_get" (comm: i32, keyval: i32, value: usize, flag: usize) -> i32 {
    PMPI_Comm_get_attr(comm, keyval, value, flag)
} }

entry! { PMPI_Win_get_attr "MPI_Win_get_attr" (win: i32, keyval: i32, value: usize, flag: usize) -> i32 {
    get(keyval, value, flag, |keyval| c::MPI_Win_get_attr(handle::win::to_standard(win), keyval, value, flag))
} }
