//! Windows: creation, freeing and queries (MPI 5.0, section 12.2).

use ffi::{Out, Text};
use mpi::Window;

use crate::answer::{Answer, ErrhandlerOwner, Fault};
use crate::calls::group::new_group;
use crate::calls::info::{hints, new_info};
use crate::constants as c;
use crate::memory::put_text;
use crate::objects::{get, insert_win, remove_win};
use crate::types::{self, Address, Comm, Handle, Number, Win};

/// MPI 5.0, section 12.2.1.
pub(crate) fn win_create<N: Number>(
    base: Address,
    size: i64,
    disp_unit: N,
    info: types::Info,
    comm: Comm,
    win: Out<Win>,
) -> Answer {
    let comm = get(comm, "comm")?;
    // SAFETY: MPI makes the same demands on a program that passes the memory. Test: `windows_are_used_on_shm`.
    let window = unsafe { Window::create(&comm, base.0, size, disp_unit.to_i64(), hints(info)?) }?;
    win.set(insert_win(window)?);
    Ok(())
}

/// Returns a window that allocated its memory, and the address of the memory.
fn store_window(window: Window, baseptr: Address, win: Out<Win>) -> Answer {
    baseptr.out::<usize>().set(window.base());
    win.set(insert_win(window)?);
    Ok(())
}

/// MPI 5.0, section 12.2.2.
pub(crate) fn win_allocate<N: Number>(
    size: i64,
    disp_unit: N,
    info: types::Info,
    comm: Comm,
    baseptr: Address,
    win: Out<Win>,
) -> Answer {
    let comm = get(comm, "comm")?;
    store_window(Window::allocate(&comm, size, disp_unit.to_i64(), hints(info)?)?, baseptr, win)
}

/// MPI 5.0, section 12.2.3.
pub(crate) fn win_allocate_shared<N: Number>(
    size: i64,
    disp_unit: N,
    info: types::Info,
    comm: Comm,
    baseptr: Address,
    win: Out<Win>,
) -> Answer {
    let comm = get(comm, "comm")?;
    store_window(Window::allocate_shared(&comm, size, disp_unit.to_i64(), hints(info)?)?, baseptr, win)
}

/// MPI 5.0, section 12.2.4.
pub(crate) fn win_create_dynamic(info: types::Info, comm: Comm, win: Out<Win>) -> Answer {
    let window = Window::create_dynamic(&*get(comm, "comm")?, hints(info)?)?;
    win.set(insert_win(window)?);
    Ok(())
}

/// MPI 5.0, section 12.2.4.
pub(crate) fn win_attach(win: Win, base: Address, size: i64) -> Answer {
    let object = get(win, "win")?;
    // SAFETY: as in `win_create`.
    Ok(unsafe { object.window.attach(base.0, size) }?)
}

/// MPI 5.0, section 12.2.4.
pub(crate) fn win_detach(win: Win, base: Address) -> Answer {
    Ok(get(win, "win")?.window.detach(base.0)?)
}

/// MPI 5.0, section 12.2.3.
pub(crate) fn win_shared_query<N: Number>(
    win: Win,
    rank: i32,
    size: Out<i64>,
    disp_unit: Out<N>,
    baseptr: Address,
) -> Answer {
    let part = get(win, "win")?.window.shared(rank)?;
    let large = || Fault::new(c::MPI_ERR_VALUE_TOO_LARGE, format!("disp_unit: {} is no int", part.unit));
    disp_unit.set(N::from_i64(part.unit).ok_or_else(large)?);
    size.set(part.size as i64);
    baseptr.out::<usize>().set(part.address);
    Ok(())
}

/// MPI 5.0, section 12.2.5.
pub(crate) fn win_free(win: Out<Win>) -> Answer {
    let handle = win.get().unwrap_or(Handle::new(c::MPI_WIN_NULL));
    let window = get(handle, "win")?.window.clone();
    window.free().map_err(|error| Fault::from(error).for_owner(ErrhandlerOwner::Win(handle)))?;
    remove_win(handle, window.id());
    win.set(Handle::new(c::MPI_WIN_NULL));
    Ok(())
}

/// MPI 5.0, section 12.2.6.
pub(crate) fn win_get_group(win: Win, group: Out<types::Group>) -> Answer {
    group.set(new_group(get(win, "win")?.window.group().clone())?);
    Ok(())
}

/// MPI 5.0, section 12.2.7.
pub(crate) fn win_set_info(win: Win, info: types::Info) -> Answer {
    get(win, "win")?.window.set_info(hints(info)?);
    Ok(())
}

/// MPI 5.0, section 12.2.7.
pub(crate) fn win_get_info(win: Win, info_used: Out<types::Info>) -> Answer {
    info_used.set(new_info(get(win, "win")?.window.info())?);
    Ok(())
}

/// MPI 5.0, section 7.8.
pub(crate) fn win_get_name(win: Win, win_name: Out<u8>, resultlen: Out<i32>) -> Answer {
    let is_null = win.value() == c::MPI_WIN_NULL;
    let name = if is_null { "MPI_WIN_NULL".to_owned() } else { get(win, "win")?.window.name() };
    resultlen.set(put_text(win_name, &name, c::MPI_MAX_OBJECT_NAME as usize));
    Ok(())
}

/// MPI 5.0, section 7.8.
pub(crate) fn win_set_name(win: Win, win_name: Text) -> Answer {
    let name = win_name.get().ok_or_else(|| Fault::new(c::MPI_ERR_ARG, "win_name: it is NULL"))?;
    let end = name.floor_char_boundary(c::MPI_MAX_OBJECT_NAME as usize - 1);
    Ok(get(win, "win")?.window.set_name(&name[..end])?)
}
