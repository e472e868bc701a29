//! Functions of the program that C calls with an extra state: those of generalized requests and of data representations.
//!
//! The extra state for C is a record with the program's functions and its own extra state.

use crate::arg::{address_of, address_of_text, as_logical, finish, long, put, read, text, write};
use crate::c::{
    MPI_Grequest_start, MPI_Register_datarep, MPI_Register_datarep_c, MPI_Request_toint, MPI_Type_toint,
    call_fortran,
};
use crate::entry::entry;

/// The functions of a generalized request, and the program's extra state.
struct Request {
    query: usize,
    free: usize,
    cancel: usize,
    extra: i64,
}

/// The functions of a data representation, and the program's extra state. It is never freed, as representations are not.
struct Representation {
    read: usize,
    write: usize,
    extent: usize,
    extra: i64,
}

/// The record behind the extra state that C passes.
fn record_at<T>(extra: usize) -> &'static T {
    // SAFETY: the functions below have made it, each of its type, and free it last. Test: `callbacks_run_in_both_modules`.
    unsafe { &*std::ptr::with_exposed_provenance::<T>(extra) }
}

fn new_record<T>(record: T) -> usize {
    Box::into_raw(Box::new(record)).expose_provenance()
}

extern "C-unwind" fn query(extra: usize, status: usize) -> i32 {
    let request: &Request = record_at(extra);
    let (mut extra, mut code) = (request.extra, 0_i32);
    call_fortran(request.query, [address_of(&mut extra), status, address_of(&mut code)]);
    code
}

extern "C-unwind" fn free(extra: usize) -> i32 {
    let request: &Request = record_at(extra);
    let (mut own, mut code) = (request.extra, 0_i32);
    call_fortran(request.free, [address_of(&mut own), address_of(&mut code)]);
    free_request(extra);
    code
}

fn free_request(record: usize) {
    // SAFETY: `mpi_grequest_start` has made it; C calls `free` once, last, or never if there is no request. Test:
    // `callbacks_run_in_both_modules`.
    drop(unsafe { Box::from_raw(std::ptr::with_exposed_provenance_mut::<Request>(record)) });
}

extern "C-unwind" fn cancel(extra: usize, is_complete: i32) -> i32 {
    let request: &Request = record_at(extra);
    let (mut extra, mut is_complete, mut code) = (request.extra, as_logical(is_complete), 0_i32);
    call_fortran(
        request.cancel,
        [address_of(&mut extra), address_of(&mut is_complete), address_of(&mut code)],
    );
    code
}

entry! { mpi_grequest_start ["mpi_grequest_start" "mpi_grequest_start_f08"]
(query_fn, free_fn, cancel_fn, extra_state, request, ierror) {
    let record = new_record(Request { query: query_fn, free: free_fn, cancel: cancel_fn, extra: long(extra_state) });
    let mut handle = 0_usize;
    let code =
        MPI_Grequest_start(query as *const () as usize, free as *const () as usize, cancel as *const () as usize, record, address_of(&mut handle));
    if code == 0 {
        put(request, MPI_Request_toint(handle));
    } else {
        free_request(record);
    }
    finish(ierror, code);
} }

/// What C passes to a conversion function; `count` is the address of the number of elements.
struct Conversion {
    buffer: usize,
    datatype: usize,
    count: usize,
    file: usize,
    position: i64,
}

/// Calls a conversion function of the program.
fn convert(function: usize, extra: i64, mut conversion: Conversion) -> i32 {
    let (mut datatype, mut extra, mut code) = (MPI_Type_toint(conversion.datatype), extra, 0_i32);
    let places = [
        conversion.buffer,
        address_of(&mut datatype),
        conversion.count,
        conversion.file,
        address_of(&mut conversion.position),
        address_of(&mut extra),
        address_of(&mut code),
    ];
    call_fortran(function, places);
    code
}

macro_rules! conversions {
    ($($name:ident $field:ident $count:ty;)*) => {
        $(extern "C-unwind" fn $name(
            buffer: usize, datatype: usize, count: $count, file: usize, position: i64, extra: usize,
        ) -> i32 {
            let (representation, mut count): (&Representation, _) = (record_at(extra), count);
            let conversion = Conversion { buffer, datatype, count: address_of(&mut count), file, position };
            convert(representation.$field, representation.extra, conversion)
        })*
    };
}

conversions! {
    convert_read read i32;
    convert_write write i32;
    convert_read_large read i64;
    convert_write_large write i64;
}

extern "C-unwind" fn file_extent(datatype: usize, extent: usize, extra: usize) -> i32 {
    let representation: &Representation = record_at(extra);
    let (mut datatype, mut extra, mut code) = (MPI_Type_toint(datatype), representation.extra, 0_i32);
    let mut bytes: i64 = read(extent, 0);
    let places =
        [address_of(&mut datatype), address_of(&mut bytes), address_of(&mut extra), address_of(&mut code)];
    call_fortran(representation.extent, places);
    write(extent, 0, bytes);
    code
}

/// The conversion function for C: none if the program passes `MPI_CONVERSION_FN_NULL`.
fn conversion(function: usize, ours: usize) -> usize {
    // SAFETY: only their addresses are used. Test: `callbacks_run_in_both_modules`.
    unsafe extern "C-unwind" {
        // Through the symbol: a program may have its own address for a function of a library.
        safe fn mpi_conversion_fn_null_();
        safe fn mpi_conversion_fn_null_c_();
    }
    let none =
        [mpi_conversion_fn_null_ as *const () as usize, mpi_conversion_fn_null_c_ as *const () as usize];
    if none.contains(&function) { 0 } else { ours }
}

entry! { mpi_register_datarep ["mpi_register_datarep" "mpi_register_datarep_f08"]
(datarep, read_fn, write_fn, extent_fn, extra_state, ierror, datarep_len) {
    let record = Representation { read: read_fn, write: write_fn, extent: extent_fn, extra: long(extra_state) };
    let (read, write) = (conversion(read_fn, convert_read as *const () as usize), conversion(write_fn, convert_write as *const () as usize));
    let name = text(datarep, datarep_len);
    let code = MPI_Register_datarep(address_of_text(&name), read, write, file_extent as *const () as usize, new_record(record));
    finish(ierror, code);
} }

entry! { mpi_register_datarep_c ["mpi_register_datarep_c" "mpi_register_datarep_c_f08"]
(datarep, read_fn, write_fn, extent_fn, extra_state, ierror, datarep_len) {
    let record = Representation { read: read_fn, write: write_fn, extent: extent_fn, extra: long(extra_state) };
    let (read, write) =
        (conversion(read_fn, convert_read_large as *const () as usize), conversion(write_fn, convert_write_large as *const () as usize));
    let name = text(datarep, datarep_len);
    let code =
        MPI_Register_datarep_c(address_of_text(&name), read, write, file_extent as *const () as usize, new_record(record));
    finish(ierror, code);
} }

entry! { mpi_conversion_fn_null ["mpi_conversion_fn_null"] (_buffer, _datatype, _count, _file, _position, _extra, ierror) {
    finish(ierror, 0);
} }

entry! { mpi_conversion_fn_null_c ["mpi_conversion_fn_null_c"] (_buffer, _datatype, _count, _file, _position, _extra, ierror) {
    finish(ierror, 0);
} }
