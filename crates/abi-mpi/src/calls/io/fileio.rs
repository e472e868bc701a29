//! Reading and writing files in all forms: at an offset, at the individual and at the shared file pointer; independent and
//! collective; blocking, nonblocking and split (MPI 5.0, section 14.4).

use ffi::Out;
use mpi::Position;

use crate::answer::{Answer, ErrhandlerOwner};
use crate::calls::p2p::request::{new_request, store_status};
use crate::memory::buffer;
use crate::objects::get;
use crate::types::{self, Address, File, Number, Status};

/// Blocking calls. Those with an explicit offset have one more argument.
macro_rules! waits {
    ($($name:ident($($offset:ident)?): $call:ident $place:expr;)*) => {
        $(
            pub(crate) fn $name<N: Number>(
                fh: File,
                $($offset: i64,)?
                buf: Address,
                count: N,
                datatype: types::Datatype,
                status: Out<Status>,
            ) -> Answer {
                let found = get(fh, "fh")?.$call(&buffer(buf, count, datatype)?, $place)?;
                store_status(found, status, ErrhandlerOwner::File(fh))
            }
        )*
    };
}

waits! {
    // MPI 5.0, section 14.4.2.
    file_read_at(offset): read Position::At(offset);
    file_write_at(offset): write Position::At(offset);
    file_read_at_all(offset): read_all Position::At(offset);
    file_write_at_all(offset): write_all Position::At(offset);
    // MPI 5.0, section 14.4.3.
    file_read(): read Position::Individual;
    file_write(): write Position::Individual;
    file_read_all(): read_all Position::Individual;
    file_write_all(): write_all Position::Individual;
    // MPI 5.0, section 14.4.4.
    file_read_shared(): read Position::Shared;
    file_write_shared(): write Position::Shared;
    file_read_ordered(): read_all Position::Shared;
    file_write_ordered(): write_all Position::Shared;
}

/// Nonblocking calls. Collective ones must not wait for other processes, so they work independently.
macro_rules! begins {
    ($($name:ident($($offset:ident)?): $call:ident $place:expr;)*) => {
        $(
            pub(crate) fn $name<N: Number>(
                fh: File,
                $($offset: i64,)?
                buf: Address,
                count: N,
                datatype: types::Datatype,
                request: Out<types::Request>,
            ) -> Answer {
                new_request(get(fh, "fh")?.$call(&buffer(buf, count, datatype)?, $place)?, request)
            }
        )*
    };
}

begins! {
    // MPI 5.0, section 14.4.2.
    file_iread_at(offset): iread Position::At(offset);
    file_iwrite_at(offset): iwrite Position::At(offset);
    file_iread_at_all(offset): iread Position::At(offset);
    file_iwrite_at_all(offset): iwrite Position::At(offset);
    // MPI 5.0, section 14.4.3.
    file_iread(): iread Position::Individual;
    file_iwrite(): iwrite Position::Individual;
    file_iread_all(): iread Position::Individual;
    file_iwrite_all(): iwrite Position::Individual;
    // MPI 5.0, section 14.4.4.
    file_iread_shared(): iread Position::Shared;
    file_iwrite_shared(): iwrite Position::Shared;
}

/// The begin and end calls of split collectives (MPI 5.0, section 14.4.5).
macro_rules! halves {
    ($($begin:ident($($offset:ident)?) $end:ident: $begins:ident $ends:ident $place:expr, $kind:expr;)*) => {
        $(
            pub(crate) fn $begin<N: Number>(
                fh: File,
                $($offset: i64,)?
                buf: Address,
                count: N,
                datatype: types::Datatype,
            ) -> Answer {
                Ok(get(fh, "fh")?.$begins(&buffer(buf, count, datatype)?, $place)?)
            }

            pub(crate) fn $end(fh: File, _buf: Address, status: Out<Status>) -> Answer {
                store_status(get(fh, "fh")?.$ends($kind)?, status, ErrhandlerOwner::File(fh))
            }
        )*
    };
}

halves! {
    file_read_at_all_begin(offset) file_read_at_all_end: read_all_begin read_all_end Position::At(offset), Position::At(0);
    file_write_at_all_begin(offset) file_write_at_all_end: write_all_begin write_all_end Position::At(offset), Position::At(0);
    file_read_all_begin() file_read_all_end: read_all_begin read_all_end Position::Individual, Position::Individual;
    file_write_all_begin() file_write_all_end: write_all_begin write_all_end Position::Individual, Position::Individual;
    file_read_ordered_begin() file_read_ordered_end: read_all_begin read_all_end Position::Shared, Position::Shared;
    file_write_ordered_begin() file_write_ordered_end: write_all_begin write_all_end Position::Shared, Position::Shared;
}
