//! Files: opening, closing, queries, views and hints (MPI 5.0, chapter 14).

use std::path::Path;
use std::sync::{Arc, Mutex};

use ffi::{Out, Text, lock};
use mpi::{FileMode, Representation, Whence};

use crate::answer::{Answer, ErrhandlerOwner, Fault};
use crate::callback::ConversionFunctions;
use crate::calls::group::new_group;
use crate::calls::info::{hints, new_info};
use crate::constants as c;
use crate::handler::errhandler_of_file;
use crate::memory::put_text;
use crate::objects::{datatype, get, insert, remove, type_handle};
use crate::types::{self, Address, Comm, File, Handle, kind};

fn name(filename: Text) -> Answer<String> {
    filename.get().ok_or_else(|| Fault::new(c::MPI_ERR_BAD_FILE, "filename: it is NULL"))
}

/// MPI 5.0, section 14.2.1.
pub(crate) fn file_open(comm: Comm, filename: Text, amode: i32, info: types::Info, fh: Out<File>) -> Answer {
    let open = || {
        let (comm, name, mode) = (get(comm, "comm")?, name(filename)?, FileMode::new(amode)?);
        let errhandler = errhandler_of_file(File::new(c::MPI_FILE_NULL));
        let file = mpi::File::open(&comm, Path::new(&name), mode, &hints(info)?, errhandler)?;
        fh.set(insert::<kind::File>(file)?);
        Ok(())
    };
    // Errors of opening do not invoke the communicator's handler.
    open().map_err(|fault: Fault| fault.for_owner(ErrhandlerOwner::null_file()))
}

/// MPI 5.0, section 14.2.2.
pub(crate) fn file_close(fh: Out<File>) -> Answer {
    let handle = fh.get().unwrap_or(Handle::new(c::MPI_FILE_NULL));
    let file = get(handle, "fh")?.clone();
    file.close().map_err(|error| Fault::from(error).for_owner(ErrhandlerOwner::File(handle)))?;
    remove(handle);
    fh.set(Handle::new(c::MPI_FILE_NULL));
    Ok(())
}

/// MPI 5.0, section 14.2.3.
pub(crate) fn file_delete(filename: Text, _info: types::Info) -> Answer {
    Ok(mpi::File::delete(Path::new(&name(filename)?))?)
}

/// MPI 5.0, section 14.2.7.
pub(crate) fn file_get_group(fh: File, group: Out<types::Group>) -> Answer {
    group.set(new_group(get(fh, "fh")?.group().clone())?);
    Ok(())
}

/// MPI 5.0, section 14.2.7.
pub(crate) fn file_get_amode(fh: File, amode: Out<i32>) -> Answer {
    amode.set(get(fh, "fh")?.mode().number());
    Ok(())
}

/// MPI 5.0, section 14.2.8.
pub(crate) fn file_set_info(fh: File, info: types::Info) -> Answer {
    Ok(get(fh, "fh")?.set_info(&hints(info)?)?)
}

/// MPI 5.0, section 14.2.8.
pub(crate) fn file_get_info(fh: File, info_used: Out<types::Info>) -> Answer {
    info_used.set(new_info(get(fh, "fh")?.info())?);
    Ok(())
}

/// MPI 5.0, section 14.2.6.
pub(crate) fn file_get_size(fh: File, size: Out<i64>) -> Answer {
    size.set(get(fh, "fh")?.size()?);
    Ok(())
}

/// MPI 5.0, section 14.2.4.
pub(crate) fn file_set_size(fh: File, size: i64) -> Answer {
    Ok(get(fh, "fh")?.set_size(size)?)
}

/// MPI 5.0, section 14.2.5.
pub(crate) fn file_preallocate(fh: File, size: i64) -> Answer {
    Ok(get(fh, "fh")?.preallocate(size)?)
}

/// MPI 5.0, section 14.6.1.
pub(crate) fn file_sync(fh: File) -> Answer {
    Ok(get(fh, "fh")?.sync()?)
}

/// MPI 5.0, section 14.6.1.
pub(crate) fn file_get_atomicity(fh: File, flag: Out<i32>) -> Answer {
    flag.set(get(fh, "fh")?.is_atomic().into());
    Ok(())
}

/// MPI 5.0, section 14.6.1.
pub(crate) fn file_set_atomicity(fh: File, flag: i32) -> Answer {
    Ok(get(fh, "fh")?.set_atomic(flag != 0)?)
}

/// The data representations that the program has registered.
static REGISTERED: Mutex<Vec<Representation>> = Mutex::new(Vec::new());

fn register(datarep: Text, functions: ConversionFunctions) -> Answer {
    let wrong = |code, why| Fault::new(code, format!("datarep: {why}"));
    let name = datarep.get().ok_or_else(|| wrong(c::MPI_ERR_ARG, "it is NULL"))?;
    if name.is_empty() || name.len() >= c::MPI_MAX_DATAREP_STRING as usize {
        return Err(wrong(c::MPI_ERR_ARG, "its length is not from 1 to 127"));
    }
    if functions.extent == Address(0) {
        return Err(Fault::new(c::MPI_ERR_ARG, "dtype_file_extent_fn: it is NULL"));
    }
    let mut registered = lock(&REGISTERED);
    if Representation::from_name(&name).is_some() || registered.iter().any(|known| known.name() == name) {
        return Err(wrong(c::MPI_ERR_DUP_DATAREP, "there is one of this name"));
    }
    registered.push(Representation::User { name: name.into(), conversion: Arc::new(functions) });
    Ok(())
}

/// MPI 5.0, section 14.5.3.
pub(crate) fn register_datarep(
    datarep: Text,
    read: Address,
    write: Address,
    extent: Address,
    extra: Address,
) -> Answer {
    register(datarep, ConversionFunctions { read, write, extent, extra, is_large: false })
}

/// MPI 5.0, section 14.5.3.
pub(crate) fn register_datarep_c(
    datarep: Text,
    read: Address,
    write: Address,
    extent: Address,
    extra: Address,
) -> Answer {
    register(datarep, ConversionFunctions { read, write, extent, extra, is_large: true })
}

fn representation(datarep: Text) -> Answer<Representation> {
    let name = datarep.get().ok_or_else(|| Fault::new(c::MPI_ERR_ARG, "datarep: it is NULL"))?;
    let own = || lock(&REGISTERED).iter().find(|known| known.name() == name).cloned();
    Representation::from_name(&name).or_else(own).ok_or_else(|| {
        Fault::new(
            c::MPI_ERR_UNSUPPORTED_DATAREP,
            format!("datarep: there is no '{name}'; register it first"),
        )
    })
}

/// MPI 5.0, section 14.3.
pub(crate) fn file_set_view(
    fh: File,
    disp: i64,
    etype: types::Datatype,
    filetype: types::Datatype,
    datarep: Text,
    info: types::Info,
) -> Answer {
    let file = get(fh, "fh")?;
    let (etype, filetype) = (datatype(etype, "etype")?, datatype(filetype, "filetype")?);
    Ok(file.set_view(disp, etype, filetype, representation(datarep)?, &hints(info)?)?)
}

/// MPI 5.0, section 14.3.
pub(crate) fn file_get_view(
    fh: File,
    disp: Out<i64>,
    etype: Out<types::Datatype>,
    filetype: Out<types::Datatype>,
    datarep: Out<u8>,
) -> Answer {
    let view = get(fh, "fh")?.view();
    etype.set(type_handle(view.etype())?.0);
    filetype.set(type_handle(view.filetype())?.0);
    disp.set(view.displacement());
    put_text(datarep, view.representation().name(), c::MPI_MAX_DATAREP_STRING as usize);
    Ok(())
}

/// MPI 5.0, section 14.5.1.
pub(crate) fn file_get_type_extent(fh: File, datatype: types::Datatype, extent: Out<i64>) -> Answer {
    extent.set(get(fh, "fh")?.type_extent(&self::datatype(datatype, "datatype")?)?);
    Ok(())
}

/// MPI 5.0, section 14.5.1.
pub(crate) use file_get_type_extent as file_get_type_extent_c;

fn whence(number: i32) -> Answer<Whence> {
    match number {
        c::MPI_SEEK_SET => Ok(Whence::Set),
        c::MPI_SEEK_CUR => Ok(Whence::Current),
        c::MPI_SEEK_END => Ok(Whence::End),
        _ => {
            Err(Fault::new(c::MPI_ERR_ARG, format!("whence: {number} is nothing that an offset counts from")))
        }
    }
}

/// MPI 5.0, section 14.4.3.
pub(crate) fn file_seek(fh: File, offset: i64, from: i32) -> Answer {
    Ok(get(fh, "fh")?.seek(offset, whence(from)?)?)
}

/// MPI 5.0, section 14.4.4.
pub(crate) fn file_seek_shared(fh: File, offset: i64, from: i32) -> Answer {
    Ok(get(fh, "fh")?.seek_shared(offset, whence(from)?)?)
}

/// MPI 5.0, section 14.4.3.
pub(crate) fn file_get_position(fh: File, offset: Out<i64>) -> Answer {
    offset.set(get(fh, "fh")?.position()?);
    Ok(())
}

/// MPI 5.0, section 14.4.4.
pub(crate) fn file_get_position_shared(fh: File, offset: Out<i64>) -> Answer {
    offset.set(get(fh, "fh")?.shared_position()?);
    Ok(())
}

/// MPI 5.0, section 14.4.3.
pub(crate) fn file_get_byte_offset(fh: File, offset: i64, disp: Out<i64>) -> Answer {
    disp.set(get(fh, "fh")?.byte_offset(offset)?);
    Ok(())
}
