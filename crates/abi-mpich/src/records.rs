//! Functions of the program that the library calls with an extra state: those of generalized requests and of data representations.
//!
//! The extra state for the library is a record with the program's functions and its own extra state.

use crate::c;
use crate::entry::entry;
use crate::status::{Status, WORDS};
use crate::{arg, code, handle};

/// The functions of a generalized request, and the program's extra state.
struct Request {
    query: usize,
    free: usize,
    cancel: usize,
    extra: usize,
}

/// The functions of a data representation, and the program's extra state. It is never freed, as representations are not.
struct Representation {
    read: usize,
    write: usize,
    extent: usize,
    extra: usize,
}

/// The record behind the extra state that the library passes.
fn record_at<T>(extra: usize) -> &'static T {
    // SAFETY: the functions below have made it, each of its type, and free it last. Test: `programs_run` of callbacks.c.
    unsafe { &*std::ptr::with_exposed_provenance::<T>(extra) }
}

fn new_record<T>(record: T) -> usize {
    Box::into_raw(Box::new(record)).expose_provenance()
}

extern "C-unwind" fn query(extra: usize, status: usize) -> i32 {
    let request: &Request = record_at(extra);
    // The library passes a status of its own, which the function may leave as it is.
    let place = std::ptr::with_exposed_provenance_mut::<Status>(status);
    // SAFETY: the library passes the address of a status. Test: `programs_run` of callbacks.c.
    let mut words: [i32; WORDS] = unsafe { place.read() }.to_mpich();
    let code = c::call(request.query, [request.extra, arg::address_of(&mut words)]);
    // SAFETY: as above.
    unsafe { place.write(Status::from_mpich(words)) };
    code::to_standard(code)
}

extern "C-unwind" fn free(extra: usize) -> i32 {
    let request: &Request = record_at(extra);
    let code = c::call(request.free, [request.extra]);
    free_request(extra);
    code::to_standard(code)
}

fn free_request(record: usize) {
    // SAFETY: `MPI_Grequest_start` has made it; the library calls `free` once, last, or never if there is no request. Test: `programs_run`
    // of callbacks.c.
    drop(unsafe { Box::from_raw(std::ptr::with_exposed_provenance_mut::<Request>(record)) });
}

extern "C-unwind" fn cancel(extra: usize, is_complete: i32) -> i32 {
    let request: &Request = record_at(extra);
    code::to_standard(c::call(request.cancel, [request.extra, is_complete as usize]))
}

entry! { PMPI_Grequest_start "MPI_Grequest_start"
(query_fn: usize, free_fn: usize, cancel_fn: usize, extra: usize, request: usize) -> i32 {
    let record = new_record(Request { query: query_fn, free: free_fn, cancel: cancel_fn, extra });
    let mut handle = 0_usize;
    let functions = [query as *const () as usize, free as *const () as usize, cancel as *const () as usize];
    let code = c::MPI_Grequest_start(functions[0], functions[1], functions[2], record, arg::place(request, &mut handle));
    if code == 0 {
        handle::request::put(request, handle);
    } else {
        free_request(record);
    }
    arg::finish(code)
} }

macro_rules! conversions {
    ($($name:ident $field:ident $count:ty;)*) => {
        $(extern "C-unwind" fn $name(
            buffer: usize, datatype: usize, count: $count, file: usize, position: i64, extra: usize,
        ) -> i32 {
            let record: &Representation = record_at(extra);
            let datatype = handle::datatype::to_mpich(datatype) as usize;
            let arguments = [buffer, datatype, count as usize, file, position as usize, record.extra];
            code::to_standard(c::call(record.$field, arguments))
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
    let record: &Representation = record_at(extra);
    let datatype = handle::datatype::to_mpich(datatype) as usize;
    code::to_standard(c::call(record.extent, [datatype, extent, record.extra]))
}

/// The conversion function for the library: none if the program passes `MPI_CONVERSION_FN_NULL`.
fn conversion(function: usize, ours: *const ()) -> usize {
    if function == 0 { 0 } else { ours as usize }
}

macro_rules! representations {
    ($($strong:ident $weak:literal $register:ident $read:ident $write:ident;)*) => {$(
        entry! { $strong $weak (name: usize, read: usize, write: usize, extent: usize, extra: usize) -> i32 {
            let ours = [conversion(read, $read as *const ()), conversion(write, $write as *const ())];
            let record = new_record(Representation { read, write, extent, extra });
            arg::finish(c::$register(name, ours[0], ours[1], file_extent as *const () as usize, record))
        } }
    )*};
}

representations! {
    PMPI_Register_datarep "MPI_Register_datarep" MPI_Register_datarep convert_read convert_write;
    PMPI_Register_datarep_c "MPI_Register_datarep_c" MPI_Register_datarep_c convert_read_large convert_write_large;
}
