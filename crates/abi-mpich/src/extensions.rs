//! MPICH's own functions, `MPIX_`: functions with a successor in the standard, functions with a constant answer, and errors for the rest.

use std::sync::OnceLock;

use crate::c;
use crate::entry::entry;
use crate::{arg, code, handle};

/// `MPI_COMM_SELF` and the class `MPI_ERR_UNSUPPORTED_OPERATION` of the standard ABI.
const COMM_SELF: usize = 0x102;
const UNSUPPORTED: i32 = 55;

/// Reports an unsupported function to the error handler of a communicator.
fn unsupported(comm: usize) -> i32 {
    static CODE: OnceLock<i32> = OnceLock::new();
    let code = *CODE.get_or_init(|| {
        arg::code_with_text(
            UNSUPPORTED,
            "an extension of MPICH's, MPIX_, which Nicety has not; build the program without it, or run it by MPICH's mpiexec",
        )
    });
    c::MPI_Comm_call_errhandler(comm, code);
    arg::finish(code)
}

macro_rules! on_communicators {
    ($($strong:ident $weak:literal ($($argument:ident: $kind:ty),*);)*) => {$(
        entry! { $strong $weak (comm: i32 $(, $argument: $kind)*) -> i32 {
            $(let _ = $argument;)*
            unsupported(handle::comm::to_standard(comm))
        } }
    )*};
}

on_communicators! {
    PMPIX_Comm_revoke "MPIX_Comm_revoke" ();
    PMPIX_Comm_shrink "MPIX_Comm_shrink" (newcomm: usize);
    PMPIX_Comm_failure_ack "MPIX_Comm_failure_ack" ();
    PMPIX_Comm_failure_get_acked "MPIX_Comm_failure_get_acked" (group: usize);
    PMPIX_Comm_agree "MPIX_Comm_agree" (flag: usize);
}

entry! { PMPIX_Grequest_start "MPIX_Grequest_start" (
    _query: usize, _free: usize, _cancel: usize, _poll: usize, _wait: usize, _extra: usize, _request: usize
) -> i32 {
    unsupported(COMM_SELF)
} }

entry! { PMPIX_Grequest_class_create "MPIX_Grequest_class_create"
(_query: usize, _free: usize, _cancel: usize, _poll: usize, _wait: usize, _class: usize) -> i32 {
    unsupported(COMM_SELF)
} }

entry! { PMPIX_Grequest_class_allocate "MPIX_Grequest_class_allocate" (_class: i32, _extra: usize, _request: usize) -> i32 {
    unsupported(COMM_SELF)
} }

// Buffers in the memory of a GPU are not supported.
entry! { PMPIX_GPU_query_support "MPIX_GPU_query_support" (_kind: i32, is_supported: usize) -> i32 {
    arg::write(is_supported, 0, 0_i32);
    0
} }

entry! { PMPIX_Query_cuda_support "MPIX_Query_cuda_support" () -> i32 { 0 } }
entry! { PMPIX_Query_hip_support "MPIX_Query_hip_support" () -> i32 { 0 } }
entry! { PMPIX_Query_ze_support "MPIX_Query_ze_support" () -> i32 { 0 } }

entry! { PMPIX_Delete_error_class "MPIX_Delete_error_class" (class: i32) -> i32 {
    arg::finish(c::MPI_Remove_error_class(code::class::to_standard(class)))
} }

entry! { PMPIX_Delete_error_code "MPIX_Delete_error_code" (code: i32) -> i32 {
    arg::finish(c::MPI_Remove_error_code(code::to_standard(code)))
} }

entry! { PMPIX_Delete_error_string "MPIX_Delete_error_string" (code: i32) -> i32 {
    arg::finish(c::MPI_Remove_error_string(code::to_standard(code)))
} }
