//! Attributes: keys with functions of the program, and values (MPI 5.0, section 19.3.7).
//!
//! In C the value of an attribute is an address, and in Fortran an integer. A value that Fortran sets is therefore a cell of memory: C gets
//! its address, and Fortran what is in it. A value that C has set is for Fortran the address itself. Predefined attributes are addresses of
//! integers in C, and these integers in Fortran; the base of a window is its address in both.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::arg::{address_of, as_logical, finish, int, long, put, put_logical, read, write};
use crate::c::*;
use crate::entry::entry;

/// The addresses of values that Fortran has set.
static CELLS: Mutex<BTreeSet<usize>> = Mutex::new(BTreeSet::new());

fn cells() -> MutexGuard<'static, BTreeSet<usize>> {
    CELLS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A new cell with a value; returns its address.
fn new_cell(value: i64) -> usize {
    let cell = Box::into_raw(Box::new(value)).expose_provenance();
    cells().insert(cell);
    cell
}

/// The value of an attribute in Fortran.
fn value_of(attribute: usize) -> i64 {
    if cells().contains(&attribute) { read(attribute, 0) } else { attribute as i64 }
}

/// Frees a cell; other values belong to C.
fn free_cell(attribute: usize) {
    if cells().remove(&attribute) {
        // SAFETY: it was in the table, so `new_cell` has made it and nothing has freed it. Test: `callbacks_run_in_both_modules`.
        drop(unsafe { Box::from_raw(std::ptr::with_exposed_provenance_mut::<i64>(attribute)) });
    }
}

/// A key of Fortran's: its functions, and the program's extra state. It is never freed: objects may have attributes of a freed key.
struct Key {
    copy: usize,
    delete: usize,
    extra: i64,
    /// Whether integers of the default kind are passed, as MPI 1 had it.
    is_old: bool,
}

/// The key behind the extra state that C passes.
fn key_at(extra: usize) -> &'static Key {
    // SAFETY: `new_key` has made it, and it is never freed. Test: `callbacks_run_in_both_modules`.
    unsafe { &*std::ptr::with_exposed_provenance::<Key>(extra) }
}

fn new_key(key: Key) -> usize {
    Box::into_raw(Box::new(key)).expose_provenance()
}

impl Key {
    fn copy(&self, mut handle: i32, mut keyval: i32, value: usize, copied: usize, flag: usize) -> i32 {
        let (mut extra, mut from, mut into) = (self.extra, value_of(value), 0_i64);
        let (mut is_copied, mut code) = (as_logical(0), 0_i32);
        let places = [
            address_of(&mut handle),
            address_of(&mut keyval),
            address_of(&mut extra),
            address_of(&mut from),
            address_of(&mut into),
            address_of(&mut is_copied),
            address_of(&mut code),
        ];
        call_fortran(self.copy, places);
        let is_copied = is_copied != as_logical(0);
        if code == 0 && is_copied {
            // A function of MPI 1 has set the lower half; integers are little-endian.
            let into = if self.is_old { i64::from(into as i32) } else { into };
            write(copied, 0, new_cell(into));
        }
        put(flag, is_copied.into());
        code
    }

    fn delete(&self, mut handle: i32, mut keyval: i32, attribute: usize) -> i32 {
        let (mut extra, mut value, mut code) = (self.extra, value_of(attribute), 0_i32);
        let places = [
            address_of(&mut handle),
            address_of(&mut keyval),
            address_of(&mut value),
            address_of(&mut extra),
            address_of(&mut code),
        ];
        call_fortran(self.delete, places);
        if code == 0 {
            free_cell(attribute);
        }
        code
    }
}

/// Stores a value in a new cell by a function of C.
fn set(value: i64, ierror: usize, set: impl FnOnce(usize) -> i32) {
    let cell = new_cell(value);
    let code = set(cell);
    if code != 0 {
        free_cell(cell);
    }
    finish(ierror, code);
}

/// Keys of predefined attributes: those of communicators, and those of windows (`MPI_WIN_BASE` to `MPI_WIN_MODEL`).
const OF_COMMUNICATORS: std::ops::RangeInclusive<i32> = 501..=507;
const WIN_BASE: i32 = 601;
const WIN_SIZE: i32 = 603;
const OF_WINDOWS: std::ops::RangeInclusive<i32> = WIN_BASE..=605;

/// Gets a value by a function of C. `put` stores it.
fn get(
    keyval: i32,
    flag: usize,
    ierror: usize,
    put: impl FnOnce(i64),
    get: impl FnOnce(usize, usize) -> i32,
) {
    let (mut attribute, mut is_set) = (0_usize, 0_i32);
    let code = get(address_of(&mut attribute), address_of(&mut is_set));
    if code == 0 && is_set != 0 {
        put(match keyval {
            WIN_BASE => attribute as i64,
            WIN_SIZE => read(attribute, 0),
            _ if OF_COMMUNICATORS.contains(&keyval) || OF_WINDOWS.contains(&keyval) => {
                i64::from(int(attribute))
            }
            _ => value_of(attribute),
        });
    }
    if code == 0 {
        put_logical(flag, is_set);
    }
    finish(ierror, code);
}

/// The entry points for a kind of object, and the functions that C calls for its keys.
macro_rules! attributes {
    ($module:ident: $from:ident $to:ident;
     $create:ident $c_create:ident [$($create_name:literal)+];
     $set:ident $c_set:ident [$($set_name:literal)+];
     $get:ident $c_get:ident [$($get_name:literal)+];
    ) => {
        mod $module {
            use super::*;

            pub(super) extern "C-unwind" fn copy(
                handle: usize, keyval: i32, extra: usize, value: usize, copied: usize, flag: usize,
            ) -> i32 {
                key_at(extra).copy($to(handle), keyval, value, copied, flag)
            }

            pub(super) extern "C-unwind" fn delete(handle: usize, keyval: i32, value: usize, extra: usize) -> i32 {
                key_at(extra).delete($to(handle), keyval, value)
            }
        }

        entry! { $create [$($create_name)+] (copy, delete, keyval, extra, ierror) {
            let key = new_key(Key { copy, delete, extra: long(extra), is_old: false });
            finish(ierror, $c_create($module::copy as *const () as usize, $module::delete as *const () as usize, keyval, key));
        } }

        entry! { $set [$($set_name)+] (object, keyval, value, ierror) {
            set(long(value), ierror, |cell| $c_set($from(int(object)), int(keyval), cell));
        } }

        entry! { $get [$($get_name)+] (object, keyval, value, flag, ierror) {
            get(int(keyval), flag, ierror, |found| write(value, 0, found), |attribute, is_set| {
                $c_get($from(int(object)), int(keyval), attribute, is_set)
            });
        } }
    };
}

attributes! {
    comm: MPI_Comm_fromint MPI_Comm_toint;
    mpi_comm_create_keyval MPI_Comm_create_keyval ["mpi_comm_create_keyval" "mpi_comm_create_keyval_f08"];
    mpi_comm_set_attr MPI_Comm_set_attr ["mpi_comm_set_attr" "mpi_comm_set_attr_f08"];
    mpi_comm_get_attr MPI_Comm_get_attr ["mpi_comm_get_attr" "mpi_comm_get_attr_f08"];
}

attributes! {
    datatype: MPI_Type_fromint MPI_Type_toint;
    mpi_type_create_keyval MPI_Type_create_keyval ["mpi_type_create_keyval" "mpi_type_create_keyval_f08"];
    mpi_type_set_attr MPI_Type_set_attr ["mpi_type_set_attr" "mpi_type_set_attr_f08"];
    mpi_type_get_attr MPI_Type_get_attr ["mpi_type_get_attr" "mpi_type_get_attr_f08"];
}

attributes! {
    window: MPI_Win_fromint MPI_Win_toint;
    mpi_win_create_keyval MPI_Win_create_keyval ["mpi_win_create_keyval" "mpi_win_create_keyval_f08"];
    mpi_win_set_attr MPI_Win_set_attr ["mpi_win_set_attr" "mpi_win_set_attr_f08"];
    mpi_win_get_attr MPI_Win_get_attr ["mpi_win_get_attr" "mpi_win_get_attr_f08"];
}

// The functions of MPI 1, whose values are integers of the default kind.
entry! { mpi_keyval_create ["mpi_keyval_create"] (copy, delete, keyval, extra, ierror) {
    let key = new_key(Key { copy, delete, extra: int(extra).into(), is_old: true });
    finish(ierror, MPI_Comm_create_keyval(comm::copy as *const () as usize, comm::delete as *const () as usize, keyval, key));
} }

entry! { mpi_attr_put ["mpi_attr_put"] (object, keyval, value, ierror) {
    let handle = MPI_Comm_fromint(int(object));
    set(int(value).into(), ierror, |cell| MPI_Comm_set_attr(handle, int(keyval), cell));
} }

entry! { mpi_attr_get ["mpi_attr_get"] (object, keyval, value, flag, ierror) {
    let handle = MPI_Comm_fromint(int(object));
    get(int(keyval), flag, ierror, |found| put(value, found as i32), |attribute, is_set| {
        MPI_Comm_get_attr(handle, int(keyval), attribute, is_set)
    });
} }

/// The predefined functions, which a program passes to the functions above and may also call.
macro_rules! predefined {
    ($($null_copy:ident $null_copy_name:literal $dup:ident $dup_name:literal $null_delete:ident $null_delete_name:literal $kind:ty;)*) => {
        $(
            entry! { $null_copy [$null_copy_name] (_object, _keyval, _extra, _value, _copied, flag, ierror) {
                put_logical(flag, 0);
                finish(ierror, 0);
            } }

            entry! { $dup [$dup_name] (_object, _keyval, _extra, value, copied, flag, ierror) {
                write::<$kind>(copied, 0, read(value, 0));
                put_logical(flag, 1);
                finish(ierror, 0);
            } }

            entry! { $null_delete [$null_delete_name] (_object, _keyval, _value, _extra, ierror) {
                finish(ierror, 0);
            } }
        )*
    };
}

predefined! {
    null_copy "mpi_null_copy_fn" dup "mpi_dup_fn" null_delete "mpi_null_delete_fn" i32;
    comm_null_copy "mpi_comm_null_copy_fn" comm_dup "mpi_comm_dup_fn" comm_null_delete "mpi_comm_null_delete_fn" i64;
    type_null_copy "mpi_type_null_copy_fn" type_dup "mpi_type_dup_fn" type_null_delete "mpi_type_null_delete_fn" i64;
    win_null_copy "mpi_win_null_copy_fn" win_dup "mpi_win_dup_fn" win_null_delete "mpi_win_null_delete_fn" i64;
}
