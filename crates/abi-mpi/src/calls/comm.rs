//! Communicators: queries and constructors (MPI 5.0, sections 7.4 and 7.6).

use ffi::{Out, Text};

use super::group::new_group;
use super::info::{hints, new_info};
use super::p2p::request::new_request;
use crate::answer::{Answer, ErrhandlerOwner, Fault};
use crate::constants as c;
use crate::memory::put_text;
use crate::objects::{get, insert_comm, remove_comm};
use crate::state;
use crate::types::{self, Comm, Handle};

/// MPI 5.0, section 7.4.1.
pub(crate) fn comm_size(comm: Comm, size: Out<i32>) -> Answer {
    size.set(get(comm, "comm")?.size());
    Ok(())
}

/// MPI 5.0, section 7.4.1.
pub(crate) fn comm_rank(comm: Comm, rank: Out<i32>) -> Answer {
    rank.set(get(comm, "comm")?.rank());
    Ok(())
}

/// MPI 5.0, section 7.6.1.
pub(crate) fn comm_remote_size(comm: Comm, size: Out<i32>) -> Answer {
    size.set(remote(comm)?.size());
    Ok(())
}

/// The remote group of an intercommunicator.
fn remote(comm: Comm) -> Answer<mpi::Group> {
    let none = || Fault::new(c::MPI_ERR_COMM, "comm: it is no intercommunicator, and has no remote group");
    get(comm, "comm")?.remote_group().cloned().ok_or_else(none)
}

/// MPI 5.0, section 7.6.1.
pub(crate) fn comm_test_inter(comm: Comm, flag: Out<i32>) -> Answer {
    flag.set(get(comm, "comm")?.is_inter().into());
    Ok(())
}

/// MPI 5.0, section 7.4.1.
pub(crate) fn comm_compare(comm1: Comm, comm2: Comm, result: Out<i32>) -> Answer {
    result.set(get(comm1, "comm1")?.compare(&*get(comm2, "comm2")?) as i32);
    Ok(())
}

/// MPI 5.0, section 7.3.2.
pub(crate) fn comm_group(comm: Comm, group: Out<types::Group>) -> Answer {
    group.set(new_group(get(comm, "comm")?.group().clone())?);
    Ok(())
}

/// MPI 5.0, section 7.6.1.
pub(crate) fn comm_remote_group(comm: Comm, group: Out<types::Group>) -> Answer {
    group.set(new_group(remote(comm)?)?);
    Ok(())
}

/// MPI 5.0, section 7.4.2.
pub(crate) fn comm_dup(comm: Comm, newcomm: Out<Comm>) -> Answer {
    newcomm.set(insert_comm(Some(get(comm, "comm")?.dup()?))?);
    Ok(())
}

/// MPI 5.0, section 7.4.2.
pub(crate) fn comm_dup_with_info(comm: Comm, info: types::Info, newcomm: Out<Comm>) -> Answer {
    newcomm.set(insert_comm(Some(get(comm, "comm")?.dup_with_info(hints(info)?)?))?);
    Ok(())
}

fn idup(comm: Comm, info: Option<mpi::Info>, newcomm: Out<Comm>, request: Out<types::Request>) -> Answer {
    let (copy, begun) = get(comm, "comm")?.idup(info)?;
    newcomm.set(insert_comm(Some(copy))?);
    new_request(begun, request)
}

/// MPI 5.0, section 7.4.2.
pub(crate) fn comm_idup(comm: Comm, newcomm: Out<Comm>, request: Out<types::Request>) -> Answer {
    idup(comm, None, newcomm, request)
}

/// MPI 5.0, section 7.4.2.
pub(crate) fn comm_idup_with_info(
    comm: Comm,
    info: types::Info,
    newcomm: Out<Comm>,
    request: Out<types::Request>,
) -> Answer {
    idup(comm, Some(hints(info)?), newcomm, request)
}

/// MPI 5.0, section 7.4.2.
pub(crate) fn comm_split(comm: Comm, color: i32, key: i32, newcomm: Out<Comm>) -> Answer {
    newcomm.set(insert_comm(get(comm, "comm")?.split(color, key)?)?);
    Ok(())
}

/// MPI 5.0, section 7.4.2.
pub(crate) fn comm_create(comm: Comm, group: types::Group, newcomm: Out<Comm>) -> Answer {
    newcomm.set(insert_comm(get(comm, "comm")?.create(&*get(group, "group")?)?)?);
    Ok(())
}

/// MPI 5.0, section 7.4.2.
pub(crate) fn comm_create_group(comm: Comm, group: types::Group, tag: i32, newcomm: Out<Comm>) -> Answer {
    newcomm.set(insert_comm(get(comm, "comm")?.create_group(&*get(group, "group")?, tag)?)?);
    Ok(())
}

/// A tag for constructors that have groups only, hashed from the string tag that distinguishes concurrent calls.
fn tag_of(stringtag: Text) -> Answer<i32> {
    let text = stringtag.get().ok_or_else(|| Fault::new(c::MPI_ERR_ARG, "stringtag: it is NULL"))?;
    let hash = text.bytes().fold(0_i32, |hash, byte| hash.wrapping_mul(31).wrapping_add(byte.into()));
    Ok(hash & i32::MAX)
}

/// MPI 5.0, section 7.4.2.
pub(crate) fn comm_create_from_group(
    group: types::Group,
    stringtag: Text,
    info: types::Info,
    errhandler: types::Errhandler,
    newcomm: Out<Comm>,
) -> Answer {
    let world = state::process()?.world();
    let made = world.create_group(&*get(group, "group")?, tag_of(stringtag)?)?;
    if let Some(made) = &made {
        made.set_errhandler(get(errhandler, "errhandler")?.clone());
        made.set_info(hints(info)?);
    }
    newcomm.set(insert_comm(made)?);
    Ok(())
}

/// MPI 5.0, section 7.6.2.
#[allow(clippy::too_many_arguments)] // as many as the standard has
pub(crate) fn intercomm_create_from_groups(
    local_group: types::Group,
    local_leader: i32,
    remote_group: types::Group,
    remote_leader: i32,
    stringtag: Text,
    info: types::Info,
    errhandler: types::Errhandler,
    newintercomm: Out<Comm>,
) -> Answer {
    let (world, tag) = (state::process()?.world(), tag_of(stringtag)?);
    let local = world.create_group(&*get(local_group, "local_group")?, tag)?;
    let none = || Fault::new(c::MPI_ERR_GROUP, "local_group: this process is not in it");
    let local = local.ok_or_else(none)?;
    // The leaders communicate over the world.
    let leader = get(remote_group, "remote_group")?.translate(&[remote_leader], world.group())?;
    let made = local.intercomm_create(local_leader, Some(world), leader[0], tag)?;
    local.free()?;
    made.set_errhandler(get(errhandler, "errhandler")?.clone());
    made.set_info(hints(info)?);
    newintercomm.set(insert_comm(Some(made))?);
    Ok(())
}

/// MPI 5.0, section 7.6.2.
pub(crate) fn intercomm_create(
    local_comm: Comm,
    local_leader: i32,
    peer_comm: Comm,
    remote_leader: i32,
    tag: i32,
    newintercomm: Out<Comm>,
) -> Answer {
    let local = get(local_comm, "local_comm")?;
    // The peer communicator is significant only at the leader.
    let peer = (local.rank() == local_leader).then(|| get(peer_comm, "peer_comm")).transpose()?;
    let made = local.intercomm_create(local_leader, peer.as_deref(), remote_leader, tag)?;
    newintercomm.set(insert_comm(Some(made))?);
    Ok(())
}

/// MPI 5.0, section 7.6.2.
pub(crate) fn intercomm_merge(intercomm: Comm, high: i32, newintracomm: Out<Comm>) -> Answer {
    newintracomm.set(insert_comm(Some(get(intercomm, "intercomm")?.intercomm_merge(high != 0)?))?);
    Ok(())
}

/// MPI 5.0, section 7.4.3.
pub(crate) fn comm_free(comm: Out<Comm>) -> Answer {
    free_with(comm, mpi::Comm::free)
}

/// Frees the communicator after its pending operations have completed (MPI 5.0, section 11.10.4).
pub(crate) fn comm_disconnect(comm: Out<Comm>) -> Answer {
    free_with(comm, mpi::Comm::disconnect)
}

/// Frees a communicator by `how`, and sets its handle to null.
fn free_with(comm: Out<Comm>, how: fn(&mpi::Comm) -> mpi::Result<()>) -> Answer {
    let handle = comm.get().unwrap_or(Handle::new(c::MPI_COMM_NULL));
    let object = get(handle, "comm")?.clone();
    if handle.is_predefined() {
        return Err(Fault::new(c::MPI_ERR_COMM, "comm: a predefined communicator cannot be freed"));
    }
    how(&object).map_err(|error| Fault::from(error).for_owner(ErrhandlerOwner::Comm(handle)))?;
    remove_comm(handle, object.id());
    comm.set(Handle::new(c::MPI_COMM_NULL));
    Ok(())
}

/// MPI 5.0, section 7.8.
pub(crate) fn comm_get_name(comm: Comm, comm_name: Out<u8>, resultlen: Out<i32>) -> Answer {
    let is_null = comm.value() == c::MPI_COMM_NULL;
    let name = if is_null { "MPI_COMM_NULL".to_owned() } else { get(comm, "comm")?.name() };
    resultlen.set(put_text(comm_name, &name, c::MPI_MAX_OBJECT_NAME as usize));
    Ok(())
}

/// MPI 5.0, section 7.8.
pub(crate) fn comm_set_name(comm: Comm, comm_name: Text) -> Answer {
    let name = comm_name.get().ok_or_else(|| Fault::new(c::MPI_ERR_ARG, "comm_name: it is NULL"))?;
    let end = name.floor_char_boundary(c::MPI_MAX_OBJECT_NAME as usize - 1);
    Ok(get(comm, "comm")?.set_name(&name[..end])?)
}

/// MPI 5.0, section 7.4.4.
pub(crate) fn comm_set_info(comm: Comm, info: types::Info) -> Answer {
    get(comm, "comm")?.set_info(hints(info)?);
    Ok(())
}

/// MPI 5.0, section 7.4.4.
pub(crate) fn comm_get_info(comm: Comm, info_used: Out<types::Info>) -> Answer {
    info_used.set(new_info(get(comm, "comm")?.info())?);
    Ok(())
}
