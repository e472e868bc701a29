//! Operators and error handlers: functions of the program that the library calls without any state of ours.
//!
//! Each function gets a trampoline of its own. Operators with the same function share one. They are never given back: an operation may
//! still use an operator after `MPI_Op_free`.

use std::sync::OnceLock;

use crate::c;
use crate::entry::entry;
use crate::trampolines::Trampolines;
use crate::{arg, code, handle};

const OPERATORS: &[extern "C-unwind" fn(usize, usize, usize, usize)] =
    &include!(concat!(env!("OUT_DIR"), "/operator.rs"));
const HANDLERS: &[extern "C-unwind" fn(usize, usize)] =
    &include!(concat!(env!("OUT_DIR"), "/error_handler.rs"));

static OPERATOR_TABLE: Trampolines<{ OPERATORS.len() }> = Trampolines::new();
static HANDLER_TABLE: Trampolines<{ HANDLERS.len() }> = Trampolines::new();

/// `MPI_COMM_SELF` and the class `MPI_ERR_OTHER` of the standard ABI.
const COMM_SELF: usize = 0x102;
const ERR_OTHER: i32 = 16;

/// An operator, of either form: the address of the number of elements is passed on.
extern "C-unwind" fn operator<const NUMBER: usize>(left: usize, right: usize, count: usize, datatype: usize) {
    let mut datatype = handle::datatype::to_mpich(arg::read(datatype, 0));
    c::call(OPERATOR_TABLE.get(NUMBER).0, [left, right, count, arg::address_of(&mut datatype)]);
}

/// The kinds of objects with error handlers, with the conversions of their handles to words of MPICH's ABI.
const KINDS: [fn(usize) -> usize; 4] = [
    |comm| handle::comm::to_mpich(comm) as usize,
    handle::file::to_mpich,
    |session| handle::session::to_mpich(session) as usize,
    |win| handle::win::to_mpich(win) as usize,
];

extern "C-unwind" fn error_handler<const NUMBER: usize>(handle: usize, error: usize) {
    let (function, kind) = HANDLER_TABLE.get(NUMBER);
    // An integer is the lower half of the word, which comes first in memory.
    let mut handle = KINDS[kind](arg::read(handle, 0));
    let mut converted = code::to_mpich(arg::read(error, 0));
    c::call_handler(function, arg::address_of(&mut handle), &mut converted);
    arg::write(error, 0, code::to_standard(converted));
}

/// Reports that all trampolines are taken, by an error code with its own text.
fn none_free() -> i32 {
    static CODE: OnceLock<i32> = OnceLock::new();
    let code = *CODE.get_or_init(|| {
        arg::code_with_text(
            ERR_OTHER,
            &format!(
                "a program of MPICH's ABI may have operators with {} different functions, and as many error handlers; \
                 create each once and use it again",
                OPERATORS.len()
            ),
        )
    });
    c::MPI_Comm_call_errhandler(COMM_SELF, code);
    arg::finish(code)
}

fn create_op(create: impl FnOnce(usize, usize) -> i32, function: usize, op: usize) -> i32 {
    let Some(number) = OPERATOR_TABLE.number(function, 0) else { return none_free() };
    let mut handle = 0_usize;
    let code = create(OPERATORS[number] as usize, arg::place(op, &mut handle));
    if handle != 0 {
        handle::op::put(op, handle);
    }
    arg::finish(code)
}

entry! { PMPI_Op_create "MPI_Op_create" (function: usize, commute: i32, op: usize) -> i32 {
    create_op(|function, op| c::MPI_Op_create(function, commute, op), function, op)
} }

entry! { PMPI_Op_create_c "MPI_Op_create_c" (function: usize, commute: i32, op: usize) -> i32 {
    create_op(|function, op| c::MPI_Op_create_c(function, commute, op), function, op)
} }

macro_rules! error_handlers {
    ($($kind:literal $strong:ident $weak:literal $create:ident;)*) => {$(
        entry! { $strong $weak (function: usize, errhandler: usize) -> i32 {
            let Some(number) = HANDLER_TABLE.number(function, $kind) else { return none_free() };
            let mut handle = 0_usize;
            let code = c::$create(HANDLERS[number] as usize, arg::place(errhandler, &mut handle));
            if handle != 0 {
                handle::errhandler::put(errhandler, handle);
            }
            arg::finish(code)
        } }
    )*};
}

error_handlers! {
    0 PMPI_Comm_create_errhandler "MPI_Comm_create_errhandler" MPI_Comm_create_errhandler;
    1 PMPI_File_create_errhandler "MPI_File_create_errhandler" MPI_File_create_errhandler;
    2 PMPI_Session_create_errhandler "MPI_Session_create_errhandler" MPI_Session_create_errhandler;
    3 PMPI_Win_create_errhandler "MPI_Win_create_errhandler" MPI_Win_create_errhandler;
    0 PMPI_Errhandler_create "MPI_Errhandler_create" MPI_Comm_create_errhandler;
}
