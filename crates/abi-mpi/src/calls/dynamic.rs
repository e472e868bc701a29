//! Processes of other jobs: ports, service names, connections, and spawned jobs (MPI 5.0, sections 11.8 to 11.10).

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::sync::{Arc, Mutex};
use std::{env, fs};

use ffi::{In, Out, Text, lock};
use host::Span;
use mpi::{Bridge, Class, Error};
use pmi::spawn::{Program, Spawn};

use super::info::hints;
use crate::answer::{Answer, Fault};
use crate::bridge::BridgeSocket;
use crate::constants as c;
use crate::launch::{PARENT_PORT, duplicate};
use crate::memory::{put_text, strings};
use crate::objects::{get, insert_comm};
use crate::port::{Port, connect};
use crate::state;
use crate::types::{self, Address, Comm, Handle};

/// This process's open ports, by name.
static PORTS: Mutex<BTreeMap<String, Arc<Port>>> = Mutex::new(BTreeMap::new());

/// The default time limit of a connection; the info key `timeout` sets another one, in seconds.
const CONNECT_TIMEOUT: Span = Span::from_secs(60);

fn text_argument(place: Text, argument: &str, code: i32) -> Answer<String> {
    place.get().ok_or_else(|| Fault::new(code, format!("{argument}: it is NULL")))
}

/// MPI 5.0, section 11.9.2.
pub(crate) fn open_port(_info: types::Info, port_name: Out<u8>) -> Answer {
    let (name, port) = Port::open(state::state()?.address)?;
    put_text(port_name, &name, c::MPI_MAX_PORT_NAME as usize);
    lock(&PORTS).insert(name, Arc::new(port));
    Ok(())
}

/// The text omits the port's name, which contains its secret key.
fn no_port() -> Fault {
    Fault::new(c::MPI_ERR_PORT, "port_name: this process has no open port of that name")
}

/// MPI 5.0, section 11.9.2.
pub(crate) fn close_port(port_name: Text) -> Answer {
    state::state()?;
    let name = text_argument(port_name, "port_name", c::MPI_ERR_PORT)?;
    lock(&PORTS).remove(&name).map(drop).ok_or_else(no_port)
}

/// The time limit that the info key `timeout` sets.
fn timeout(info: types::Info) -> Answer<Option<Span>> {
    let Some(value) = hints(info)?.get("timeout")?.map(str::to_owned) else { return Ok(None) };
    let wrong = || {
        Fault::new(c::MPI_ERR_INFO_VALUE, format!("info: a timeout of '{value}' is not a number of seconds"))
    };
    value.trim().parse().map(|seconds| Some(Span::from_secs(seconds))).map_err(|_| wrong())
}

/// Creates an intercommunicator over the root's connection.
fn create_intercomm(
    comm: &mpi::Comm,
    root: i32,
    mut socket: mpi::Result<Option<BridgeSocket>>,
) -> Answer<mpi::Comm> {
    let bridge = match &mut socket {
        Ok(socket) => Ok(socket.as_mut().map(|socket| socket as &mut dyn Bridge)),
        Err(error) => Err(error.clone()),
    };
    Ok(comm.join(root, bridge)?)
}

fn run_at_root(
    comm: &mpi::Comm,
    root: i32,
    act: impl FnOnce() -> Answer<BridgeSocket>,
) -> mpi::Result<Option<BridgeSocket>> {
    if comm.rank() != root {
        return Ok(None);
    }
    act().map(Some).map_err(|fault| Error::new(Class(fault.code), fault.text))
}

/// MPI 5.0, section 11.9.2.
pub(crate) fn comm_accept(
    port_name: Text,
    info: types::Info,
    root: i32,
    comm: Comm,
    newcomm: Out<Comm>,
) -> Answer {
    let comm = get(comm, "comm")?;
    let socket = run_at_root(&comm, root, || {
        let name = text_argument(port_name, "port_name", c::MPI_ERR_PORT)?;
        let port = lock(&PORTS).get(&name).cloned().ok_or_else(no_port)?;
        Ok(port.accept(state::process()?, timeout(info)?)?)
    });
    newcomm.set(insert_comm(Some(create_intercomm(&comm, root, socket)?))?);
    Ok(())
}

/// MPI 5.0, section 11.9.3.
pub(crate) fn comm_connect(
    port_name: Text,
    info: types::Info,
    root: i32,
    comm: Comm,
    newcomm: Out<Comm>,
) -> Answer {
    let comm = get(comm, "comm")?;
    let socket = run_at_root(&comm, root, || {
        let name = text_argument(port_name, "port_name", c::MPI_ERR_PORT)?;
        Ok(connect(state::process()?, &name, timeout(info)?.unwrap_or(CONNECT_TIMEOUT))?)
    });
    newcomm.set(insert_comm(Some(create_intercomm(&comm, root, socket)?))?);
    Ok(())
}

/// MPI 5.0, section 11.10.5.
pub(crate) fn comm_join(fd: i32, intercomm: Out<Comm>) -> Answer {
    let process = state::process()?;
    let wrong = |error| Fault::new(c::MPI_ERR_ARG, format!("fd: {fd} cannot be used: {error}"));
    // The program owns the socket and chose the process at its other end.
    let socket = BridgeSocket::new(process, duplicate(fd).map_err(wrong)?, Some(CONNECT_TIMEOUT)).trust(None);
    intercomm.set(insert_comm(Some(create_intercomm(process.comm_self(), 0, Ok(Some(socket)))?))?);
    Ok(())
}

/// MPI 5.0, section 11.9.4.
pub(crate) fn publish_name(service_name: Text, _info: types::Info, port_name: Text) -> Answer {
    let service = text_argument(service_name, "service_name", c::MPI_ERR_SERVICE)?;
    let port = text_argument(port_name, "port_name", c::MPI_ERR_PORT)?;
    Ok(state::state()?.launch.publish(&service, &port)?)
}

/// MPI 5.0, section 11.9.4.
pub(crate) fn unpublish_name(service_name: Text, _info: types::Info, _port_name: Text) -> Answer {
    let service = text_argument(service_name, "service_name", c::MPI_ERR_SERVICE)?;
    Ok(state::state()?.launch.unpublish(&service)?)
}

/// MPI 5.0, section 11.9.4.
pub(crate) fn lookup_name(service_name: Text, _info: types::Info, port_name: Out<u8>) -> Answer {
    let service = text_argument(service_name, "service_name", c::MPI_ERR_NAME)?;
    let found = state::state()?.launch.look_up(&service)?;
    let none = || Fault::new(c::MPI_ERR_NAME, format!("service_name: no process has published '{service}'"));
    put_text(port_name, &found.ok_or_else(none)?, c::MPI_MAX_PORT_NAME as usize);
    Ok(())
}

/// Reads the arguments of one program to spawn.
fn program(command: String, argv: Address, maxprocs: i32, info: types::Info) -> Answer<Program> {
    let none = || Fault::new(c::MPI_ERR_SPAWN, format!("maxprocs: {maxprocs} processes cannot be started"));
    let processes = u32::try_from(maxprocs).ok().filter(|processes| *processes > 0).ok_or_else(none)?;
    let mut hinted = Vec::new();
    for (key, name) in [("wdir", "wdir"), ("wd", "wdir"), ("host", "host"), ("path", "path")] {
        hinted.extend(hints(info)?.get(key)?.map(|value| (name.to_owned(), value.to_owned())));
    }
    let hint = |wanted: &str| hinted.iter().find(|(name, _)| name == wanted).map(|(_, value)| value.as_str());
    let file = find_program(command, hint("path").unwrap_or_default(), hint("wdir").unwrap_or("."));
    Ok(Program { file, processes, arguments: strings(argv), info: hinted })
}

/// The path of a program that is named without a directory: found in the directories of the info key `path`, or in the working
/// directory if the launcher's `PATH` has no such program.
fn find_program(command: String, path: &str, directory: &str) -> String {
    if command.contains('/') {
        return command;
    }
    let in_one_of = |path: &OsStr| {
        let mut files = env::split_paths(path).map(|directory| directory.join(&command));
        files.find(|file| file.is_file())
    };
    let found = in_one_of(path.as_ref()).or_else(|| {
        let is_found = in_one_of(&env::var_os("PATH").unwrap_or_default()).is_some();
        if is_found { None } else { in_one_of(directory.as_ref()) }
    });
    let found = found.and_then(|file| fs::canonicalize(file).ok());
    found.and_then(|file| file.into_os_string().into_string().ok()).unwrap_or(command)
}

/// Spawns programs as one job, and returns the intercommunicator with it.
fn spawn(
    comm: Comm,
    root: i32,
    programs: impl FnOnce() -> Answer<Vec<Program>>,
    intercomm: Out<Comm>,
    errcodes: Out<i32>,
) -> Answer {
    let comm = get(comm, "comm")?;
    let socket = run_at_root(&comm, root, || {
        let (state, programs) = (state::state()?, programs()?);
        let (name, port) = Port::open(state.address)?;
        let preput = vec![(PARENT_PORT.to_owned(), name)];
        let codes = state.launch.spawn(&Spawn { programs, preput })?;
        if codes.iter().any(|code| *code != 0) {
            return Err(Fault::new(c::MPI_ERR_SPAWN, "the process manager could not start all processes"));
        }
        Ok(port.accept(&state.process, Some(CONNECT_TIMEOUT))?)
    });
    let joined = create_intercomm(&comm, root, socket)?;
    if errcodes.is_some() {
        let started = joined.remote_group().map_or(0, mpi::Group::size);
        (0..started as usize).for_each(|at| errcodes.element(at).set(c::MPI_SUCCESS));
    }
    intercomm.set(insert_comm(Some(joined))?);
    Ok(())
}

/// MPI 5.0, section 11.8.2.
#[allow(clippy::too_many_arguments)] // as many as the standard has
pub(crate) fn comm_spawn(
    command: Text,
    argv: Address,
    maxprocs: i32,
    info: types::Info,
    root: i32,
    comm: Comm,
    intercomm: Out<Comm>,
    errcodes: Out<i32>,
) -> Answer {
    let programs = || {
        let command = text_argument(command, "command", c::MPI_ERR_ARG)?;
        Ok(vec![program(command, argv, maxprocs, info)?])
    };
    spawn(comm, root, programs, intercomm, errcodes)
}

/// MPI 5.0, section 11.8.3.
#[allow(clippy::too_many_arguments)] // as many as the standard has
pub(crate) fn comm_spawn_multiple(
    count: i32,
    commands: Address,
    argvs: Address,
    maxprocs: In<i32>,
    infos: In<types::Info>,
    root: i32,
    comm: Comm,
    intercomm: Out<Comm>,
    errcodes: Out<i32>,
) -> Answer {
    let programs = || {
        let wrong = |what: &str| Fault::new(c::MPI_ERR_ARG, what);
        let many = usize::try_from(count).ok().filter(|count| *count > 0);
        let many = many.ok_or_else(|| wrong("count: at least one program is to be started"))?;
        let commands = crate::memory::optional_strings(commands, many);
        let argvs = crate::memory::addresses(argvs, many);
        let maxprocs = maxprocs.items(many).ok_or_else(|| wrong("array_of_maxprocs: it is NULL"))?;
        let infos = infos.items(many).ok_or_else(|| wrong("array_of_info: it is NULL"))?;
        let all = commands.into_iter().zip(argvs).zip(maxprocs.zip(infos));
        let all = all.map(|((command, argv), (maxprocs, info))| {
            program(command.ok_or_else(|| wrong("array_of_commands: one is NULL"))?, argv, maxprocs, info)
        });
        all.collect()
    };
    spawn(comm, root, programs, intercomm, errcodes)
}

/// The communicator with the job that spawned this one, until it is freed.
static PARENT: Mutex<Comm> = Mutex::new(Handle::new(c::MPI_COMM_NULL));

/// Connects to the job that spawned this one, if any. Collective over the job.
pub(crate) fn join_parent() -> Answer {
    let Some(port) = state::state()?.launch.parent()? else { return Ok(()) };
    let world = state::process()?.world();
    let socket = run_at_root(world, 0, || Ok(connect(state::process()?, &port, CONNECT_TIMEOUT)?));
    let parent = create_intercomm(world, 0, socket)?;
    parent.set_name("MPI_COMM_PARENT")?;
    *lock(&PARENT) = insert_comm(Some(parent))?;
    Ok(())
}

/// MPI 5.0, section 11.8.2.
pub(crate) fn comm_get_parent(parent: Out<Comm>) -> Answer {
    let known = *lock(&PARENT);
    let is_there = get(known, "parent").is_ok();
    parent.set(if is_there { known } else { Handle::new(c::MPI_COMM_NULL) });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_found_in_the_directories_of_the_hints() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = folder.path().to_str().expect("text");
        let own = fs::canonicalize(folder.path()).expect("it is there").join("own-program");
        fs::write(&own, "").expect("a file");
        let own = own.to_str().expect("text").to_owned();
        assert_eq!(find_program("own-program".into(), at, "/"), own);
        assert_eq!(find_program("own-program".into(), "/nowhere", at), own);
        assert_eq!(find_program("own-program".into(), "", "/"), "own-program");
        assert_eq!(find_program("./own-program".into(), at, at), "./own-program");
        fs::write(folder.path().join("sh"), "").expect("a file");
        assert_eq!(find_program("sh".into(), "", at), "sh", "the search path goes before the directory");
    }
}
