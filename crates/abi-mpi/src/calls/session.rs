//! Sessions and process sets: all processes of the job, and this process alone (MPI 5.0, section 11.3).

use std::sync::Mutex;

use ffi::{Out, Text};
use mpi::Info;

use super::group::new_group;
use super::info::{hints, new_info};
use crate::answer::{Answer, Fault, null_result};
use crate::constants as c;
use crate::kinds::SessionObject;
use crate::memory::put_text;
use crate::objects::{get, insert, remove};
use crate::state;
use crate::types::{self, Handle, Session, kind};

/// The process sets that every session has.
const WORLD: &str = "mpi://WORLD";
const ALONE: &str = "mpi://SELF";
const SETS: [&str; 2] = [WORLD, ALONE];

/// Thread levels, as hints name them.
const LEVELS: [&str; 4] =
    ["MPI_THREAD_SINGLE", "MPI_THREAD_FUNNELED", "MPI_THREAD_SERIALIZED", "MPI_THREAD_MULTIPLE"];

/// MPI 5.0, section 11.3.1.
pub(crate) fn session_init(
    info: types::Info,
    errhandler: types::Errhandler,
    session: Out<Session>,
) -> Answer {
    let (given, errhandler) = (hints(info)?, get(errhandler, "errhandler")?.clone());
    // This is the only hint with a meaning. All levels are supported.
    if let Some(level) = given.get("thread_level")?.filter(|level| !LEVELS.contains(level)) {
        return Err(Fault::new(
            c::MPI_ERR_INFO_VALUE,
            format!("info: thread_level: there is no level '{level}'"),
        ));
    }
    let process = state::begin_session()?;
    state::raise_thread_level(c::MPI_THREAD_MULTIPLE);
    let make = || {
        let mut info = Info::default();
        info.set("thread_level", LEVELS[3])?;
        let object = SessionObject { own: process.session()?, info, errhandler: Mutex::new(errhandler) };
        insert::<kind::Session>(object)
    };
    let made: Answer<Session> = make();
    match made {
        Ok(handle) => session.set(handle),
        Err(fault) => {
            state::end_session()?;
            return Err(fault);
        }
    }
    Ok(())
}

/// MPI 5.0, section 11.3.1.
pub(crate) fn session_finalize(session: Out<Session>) -> Answer {
    let handle = session.get().unwrap_or(Handle::new(c::MPI_SESSION_NULL));
    get(handle, "session")?;
    state::end_session()?;
    remove(handle);
    session.set(Handle::new(c::MPI_SESSION_NULL));
    Ok(())
}

/// MPI 5.0, section 11.3.3.
pub(crate) fn session_get_info(session: Session, info_used: Out<types::Info>) -> Answer {
    info_used.set(new_info(get(session, "session")?.info.clone())?);
    Ok(())
}

/// MPI 5.0, section 11.3.3.
pub(crate) fn session_get_num_psets(session: Session, _info: types::Info, npset_names: Out<i32>) -> Answer {
    get(session, "session")?;
    npset_names.set(SETS.len() as i32);
    Ok(())
}

/// MPI 5.0, section 11.3.3.
pub(crate) fn session_get_nth_pset(
    session: Session,
    _info: types::Info,
    n: i32,
    pset_len: Out<i32>,
    pset_name: Out<u8>,
) -> Answer {
    get(session, "session")?;
    let none = || Fault::new(c::MPI_ERR_ARG, format!("n: there is no set {n} of {}", SETS.len()));
    let name = usize::try_from(n).ok().and_then(|n| SETS.get(n)).ok_or_else(none)?;
    let room = pset_len.get().and_then(|room| usize::try_from(room).ok());
    let room = room.ok_or_else(|| Fault::new(c::MPI_ERR_ARG, "pset_len: it is negative"))?;
    if room > 0 {
        if !pset_name.is_some() {
            return null_result("pset_name");
        }
        put_text(pset_name, name, room);
    }
    pset_len.set(name.len() as i32 + 1);
    Ok(())
}

/// The group of a process set.
fn set(pset_name: Text) -> Answer<mpi::Group> {
    let process = state::process()?;
    let name = pset_name.get().ok_or_else(|| Fault::new(c::MPI_ERR_ARG, "pset_name: it is NULL"))?;
    // Names are case-insensitive (MPI).
    match SETS.into_iter().find(|known| known.eq_ignore_ascii_case(&name)) {
        Some(WORLD) => Ok(process.world().group().clone()),
        Some(ALONE) => Ok(process.comm_self().group().clone()),
        _ => Err(Fault::new(
            c::MPI_ERR_ARG,
            format!("pset_name: there is no set '{name}'; there are {}", SETS.join(" and ")),
        )),
    }
}

/// MPI 5.0, section 11.3.3.
pub(crate) fn session_get_pset_info(session: Session, pset_name: Text, info: Out<types::Info>) -> Answer {
    get(session, "session")?;
    let mut about = Info::default();
    about.set("mpi_size", &set(pset_name)?.size().to_string())?;
    info.set(new_info(about)?);
    Ok(())
}

/// MPI 5.0, section 7.3.2.
pub(crate) fn group_from_session_pset(
    session: Session,
    pset_name: Text,
    newgroup: Out<types::Group>,
) -> Answer {
    get(session, "session")?;
    newgroup.set(new_group(set(pset_name)?)?);
    Ok(())
}
