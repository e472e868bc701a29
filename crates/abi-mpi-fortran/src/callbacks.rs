//! Operators and error handlers: functions of the program that C calls without any state of ours.
//!
//! C passes handles of its own, and Fortran expects integers. As C passes nothing by which a function could be found, each function of the
//! program gets a trampoline of its own, a function of this library that knows its number. Operators with the same function share one.
//! They are never given back: an operation may still use an operator after `MPI_Op_free`.

use std::sync::OnceLock;

use crate::arg::{address_of, address_of_text, finish, logical, put, read};
use crate::c::{
    MPI_Add_error_code, MPI_Add_error_string, MPI_Comm_call_errhandler, MPI_Comm_create_errhandler,
    MPI_Comm_toint, MPI_Errhandler_toint, MPI_File_create_errhandler, MPI_File_toint, MPI_Op_create,
    MPI_Op_create_c, MPI_Op_toint, MPI_Session_create_errhandler, MPI_Session_toint, MPI_Type_toint,
    MPI_Win_create_errhandler, MPI_Win_toint, call_fortran,
};
use crate::entry::entry;
use crate::trampolines::Trampolines;

const OPERATORS: &[extern "C-unwind" fn(usize, usize, usize, usize)] =
    &include!(concat!(env!("OUT_DIR"), "/operator.rs"));
const HANDLERS: &[extern "C-unwind" fn(usize, usize)] =
    &include!(concat!(env!("OUT_DIR"), "/error_handler.rs"));

static OPERATOR_TABLE: Trampolines<{ OPERATORS.len() }> = Trampolines::new();
static HANDLER_TABLE: Trampolines<{ HANDLERS.len() }> = Trampolines::new();

/// `MPI_COMM_SELF`, and the error class for what no other describes.
const COMM_SELF: usize = 0x102;
const ERR_OTHER: i32 = 16;

/// An operator, of either form: the address of the number of elements is passed on.
extern "C-unwind" fn operator<const NUMBER: usize>(left: usize, right: usize, count: usize, datatype: usize) {
    let mut datatype = MPI_Type_toint(read(datatype, 0));
    call_fortran(OPERATOR_TABLE.get(NUMBER).0, [left, right, count, address_of(&mut datatype)]);
}

/// The kinds of objects with error handlers, with their conversions.
const KINDS: [fn(usize) -> i32; 4] = [
    |comm| MPI_Comm_toint(comm),
    |file| MPI_File_toint(file),
    |session| MPI_Session_toint(session),
    |win| MPI_Win_toint(win),
];

extern "C-unwind" fn error_handler<const NUMBER: usize>(handle: usize, code: usize) {
    let (function, kind) = HANDLER_TABLE.get(NUMBER);
    let mut handle = KINDS[kind](read(handle, 0));
    call_fortran(function, [address_of(&mut handle), code]);
}

/// Reports that all trampolines are taken, by an error code with its own text.
fn none_free(ierror: usize) {
    static CODE: OnceLock<i32> = OnceLock::new();
    let code = *CODE.get_or_init(|| {
        let mut code = ERR_OTHER;
        if MPI_Add_error_code(ERR_OTHER, address_of(&mut code)) == 0 {
            let text = format!(
                "a program in Fortran may have operators with {} different functions, and as many error handlers; \
                 create each once and use it again\0",
                OPERATORS.len()
            );
            MPI_Add_error_string(code, address_of_text(text.as_bytes()));
        }
        code
    });
    MPI_Comm_call_errhandler(COMM_SELF, code);
    finish(ierror, code);
}

type CreateOp = fn(usize, i32, usize) -> i32;

fn create_op(create: CreateOp, function: usize, commute: usize, op: usize, ierror: usize) {
    let Some(number) = OPERATOR_TABLE.number(function, 0) else { return none_free(ierror) };
    let mut handle = 0_usize;
    let code = create(OPERATORS[number] as usize, logical(commute), address_of(&mut handle));
    if code == 0 {
        put(op, MPI_Op_toint(handle));
    }
    finish(ierror, code);
}

entry! { mpi_op_create ["mpi_op_create" "mpi_op_create_f08"]
(function, commute, op, ierror) {
    create_op(|function, commute, op| MPI_Op_create(function, commute, op), function, commute, op, ierror);
} }

entry! { mpi_op_create_c ["mpi_op_create_c" "mpi_op_create_c_f08"]
(function, commute, op, ierror) {
    create_op(|function, commute, op| MPI_Op_create_c(function, commute, op), function, commute, op, ierror);
} }

type CreateHandler = fn(usize, usize) -> i32;

fn create_handler(create: CreateHandler, kind: usize, function: usize, errhandler: usize, ierror: usize) {
    let Some(number) = HANDLER_TABLE.number(function, kind) else { return none_free(ierror) };
    let mut handle = 0_usize;
    let code = create(HANDLERS[number] as usize, address_of(&mut handle));
    if code == 0 {
        put(errhandler, MPI_Errhandler_toint(handle));
    }
    finish(ierror, code);
}

macro_rules! error_handlers {
    ($($kind:literal $name:ident $c:ident [$($base:literal)+];)*) => {
        $(entry! { $name [$($base)+] (function, errhandler, ierror) {
            create_handler(|function, handle| $c(function, handle), $kind, function, errhandler, ierror);
        } })*
    };
}

error_handlers! {
    0 mpi_comm_create_errhandler MPI_Comm_create_errhandler ["mpi_comm_create_errhandler" "mpi_comm_create_errhandler_f08"];
    1 mpi_file_create_errhandler MPI_File_create_errhandler ["mpi_file_create_errhandler" "mpi_file_create_errhandler_f08"];
    2 mpi_session_create_errhandler MPI_Session_create_errhandler
        ["mpi_session_create_errhandler" "mpi_session_create_errhandler_f08"];
    3 mpi_win_create_errhandler MPI_Win_create_errhandler ["mpi_win_create_errhandler" "mpi_win_create_errhandler_f08"];
}
