//! Handles as integers; those of requests are in `request` (MPI 5.0, section 20.4.5).

use crate::objects::{from_integer, to_integer};
use crate::types::{Comm, Datatype, Errhandler, File, Group, Info, Message, Op, Session, Win};

macro_rules! integers {
    ($($kind:ident: $to:ident, $from:ident;)*) => {
        $(
            pub(crate) fn $to(handle: $kind) -> i32 {
                to_integer(handle)
            }

            pub(crate) fn $from(number: i32) -> $kind {
                from_integer(number)
            }
        )*
    };
}

integers! {
    Comm: comm_toint, comm_fromint;
    Datatype: type_toint, type_fromint;
    Errhandler: errhandler_toint, errhandler_fromint;
    File: file_toint, file_fromint;
    Group: group_toint, group_fromint;
    Info: info_toint, info_fromint;
    Message: message_toint, message_fromint;
    Op: op_toint, op_fromint;
    Session: session_toint, session_fromint;
    Win: win_toint, win_fromint;
}
