//! Names of listening sockets, by port: an abstract name, or one in the user's folder if another user has
//! taken the abstract one.
//!
//! Abstract names belong to a network namespace, work across mount namespaces, and end with their process.
//! But any user may take one. A name in the user's folder ([`host::real::user_folder`]) is accessible to this
//! user only. A named socket always listens, even if the program only holds the port: so other processes can
//! check which user has the name. A connecting process tries the abstract name first, and the other one if
//! that is not this user's. Both sides check the other's user, whichever name was used.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use host::real::{find_user_folder, network_namespace, user_folder};
use rustix::fs::{FlockOperation, Mode, OFlags, flock, open, unlink};
use rustix::io::Errno;
use rustix::net::{SocketAddrUnix, bind, connect, getpeername, listen};
use verbs::{CmFailure, Error, Result};

use crate::protocol::socket::{new_socket, same_user_pid};
use crate::protocol::token::{process_token, random};
use nic_util::fork::ForkSafeFd;

/// The first port for listeners that do not request one (RFC 6335, dynamic ports).
const FIRST_DYNAMIC_PORT: u16 = 49_152;

/// Ports of connecting sockets, below those chosen for listeners. Their names differ from listeners' names,
/// so that they never block a program that requests such a port.
const CLIENT_PORTS: std::ops::Range<u16> = 32_768..FIRST_DYNAMIC_PORT;
/// Number of ports that a connecting socket tries before it connects without one.
const CLIENT_TRIES: u32 = 64;

/// Connections that the kernel queues until the NIC thread accepts them.
const BACKLOG: i32 = 4096;

/// The name of a listening socket.
pub(crate) struct SocketName {
    pub(crate) port: u16,
    /// The path in the user's folder, which must be removed at the end.
    path: Option<PathBuf>,
}

impl SocketName {
    /// Removes the name when its socket stops listening. An abstract name ends with its socket.
    pub(crate) fn remove(&self) {
        if let Some(path) = &self.path {
            let _ = unlink(path);
        }
    }
}

/// Makes a socket listen at the requested port, or at a free one.
pub(crate) fn listen_at(socket: &ForkSafeFd, addr: SocketAddr) -> Result<SocketName> {
    let taken = |why: &str| Error::Address { addr, why: why.into() };
    if addr.port() != 0 {
        let found = match listen_abstract(socket, addr.port())? {
            Some(name) => Some(name),
            None if does_own_user_listen(addr.port())? => None,
            None => listen_in_folder(socket, addr.port())?,
        };
        return found.ok_or_else(|| taken("the port is taken; choose another, or 0 for any"));
    }
    if let Some(name) = first_free(|port| listen_abstract(socket, port))? {
        return Ok(name);
    }
    // All these names belong to another user, as this one has fewer sockets than that.
    let not_ours = |port| if does_own_user_listen(port)? { Ok(None) } else { listen_in_folder(socket, port) };
    first_free(not_ours)?.ok_or_else(|| taken("every dynamic port is taken"))
}

/// Tries dynamic ports until `take` succeeds. Processes start at different ports, and each search continues
/// after the previous one, so that a closed port is not reused soon: a program may want to open it again.
fn first_free(take: impl Fn(u16) -> Result<Option<SocketName>>) -> Result<Option<SocketName>> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let span = u32::from(u16::MAX - FIRST_DYNAMIC_PORT);
    let start = (*process_token()? as u32).wrapping_add(std::process::id());
    for _ in 0..span {
        let step = start.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed));
        if let Some(name) = take(FIRST_DYNAMIC_PORT + (step % span) as u16)? {
            return Ok(Some(name));
        }
    }
    Ok(None)
}

fn system_error(what: &'static str) -> impl Fn(Errno) -> Error {
    move |why| Error::system(what, why)
}

/// Listens at the abstract name, unless it is taken or this user listens at the other name of the port.
fn listen_abstract(socket: &ForkSafeFd, port: u16) -> Result<Option<SocketName>> {
    if let Some(path) = folder_path(port)
        && has_listener(&path)?
    {
        return Ok(None);
    }
    match bind(socket, &abstract_name("nicety-shm", port)?) {
        Ok(()) => {}
        Err(Errno::ADDRINUSE) => return Ok(None),
        Err(why) => return Err(system_error("cannot bind a socket")(why)),
    }
    listen(socket, BACKLOG).map_err(system_error("cannot listen"))?;
    Ok(Some(SocketName { port, path: None }))
}

/// Listens at the name in the user's folder, unless another process of this user does. Under a file lock, so
/// that only names of processes that have ended are removed.
fn listen_in_folder(socket: &ForkSafeFd, port: u16) -> Result<Option<SocketName>> {
    let folder = user_folder()
        .map_err(|why| Error::system("another user has taken the name of the port, and", why))?;
    let lock = folder.join(format!("shm-{}.lock", network_namespace()));
    let lock = open(&lock, OFlags::CREATE | OFlags::RDWR | OFlags::CLOEXEC, Mode::RUSR | Mode::WUSR)
        .map_err(system_error("cannot open the lock of this user's names"))?;
    flock(&lock, FlockOperation::LockExclusive).map_err(system_error("cannot lock this user's names"))?;
    let path = path_in(&folder, port);
    if has_listener(&path)? {
        return Ok(None);
    }
    match unlink(&path) {
        Ok(()) | Err(Errno::NOENT) => {}
        Err(why) => return Err(system_error("cannot remove the name of a process that has ended")(why)),
    }
    bind(socket, &unix_addr(&path)?).map_err(system_error("cannot bind a socket"))?;
    listen(socket, BACKLOG).map_err(system_error("cannot listen"))?;
    Ok(Some(SocketName { port, path: Some(path) }))
}

/// Whether a process listens at a name in the user's folder.
fn has_listener(path: &Path) -> Result<bool> {
    let socket = new_socket()?;
    // A full backlog means that it listens.
    Ok(matches!(connect(&socket, &unix_addr(path)?), Ok(()) | Err(Errno::AGAIN)))
}

/// Whether the taken abstract name of a port belongs to a process of this user. Another user's socket may not
/// listen, or listen and never accept, until its backlog is full. Our sockets always listen and accept.
fn does_own_user_listen(port: u16) -> Result<bool> {
    let socket = new_socket()?;
    let name = abstract_name("nicety-shm", port)?;
    Ok(connect(&socket, &name).is_ok() && same_user_pid(&socket).is_some())
}

/// A socket connected to a listener of this user.
pub(crate) struct ConnectedSocket {
    pub(crate) socket: ForkSafeFd,
    /// The local port; 0 if it has none.
    pub(crate) port: u16,
    /// The pid of the listener; 0 if it is in a PID namespace that this process does not see.
    pub(crate) pid: i32,
}

/// Connects to this user's listener at a port, by either name; the inner error is the reason why that failed.
/// The connection comes from port `from`, which the caller holds, or from any port.
///
/// # Errors
/// A socket that cannot be created.
pub(crate) fn connect_to(
    addr: SocketAddr,
    from: Option<u16>,
) -> Result<std::result::Result<ConnectedSocket, CmFailure>> {
    let mut why = match try_name(&abstract_name("nicety-shm", addr.port())?, from)? {
        Ok(found) => return Ok(Ok(found)),
        Err(why) => why,
    };
    if let Some(path) = folder_path(addr.port()) {
        match try_name(&unix_addr(&path)?, from)? {
            Ok(found) => return Ok(Ok(found)),
            // No listener, or a listener that has ended.
            Err(Some(Errno::NOENT | Errno::CONNREFUSED)) => {}
            Err(other) => why = other,
        }
    }
    let why = match why {
        Some(Errno::CONNREFUSED) => return Ok(Err(CmFailure::Refused(addr))),
        Some(Errno::AGAIN) => {
            "the listener's backlog is full; connect fewer at a time, or try again later".to_owned()
        }
        Some(why) => why.to_string(),
        None => "only a process of another user listens there".to_owned(),
    };
    Ok(Err(CmFailure::Unreachable(addr, why)))
}

/// Connects to a name; the inner error `None` means that the listener belongs to another user.
fn try_name(
    name: &SocketAddrUnix,
    from: Option<u16>,
) -> Result<std::result::Result<ConnectedSocket, Option<Errno>>> {
    let socket = new_socket()?;
    let port = match from {
        Some(port) => bind_as_holder(&socket, port)?,
        None => bind_client(&socket),
    };
    Ok(match connect(&socket, name) {
        Ok(()) => same_user_pid(&socket).map(|pid| ConnectedSocket { socket, port, pid }).ok_or(None),
        Err(why) => Err(Some(why)),
    })
}

/// The path of a port's name in the user's folder, if there is such a folder.
fn folder_path(port: u16) -> Option<PathBuf> {
    find_user_folder().map(|folder| path_in(&folder, port))
}

fn path_in(folder: &Path, port: u16) -> PathBuf {
    folder.join(format!("shm-{}-{port}", network_namespace()))
}

fn unix_addr(path: &Path) -> Result<SocketAddrUnix> {
    SocketAddrUnix::new(path).map_err(system_error("cannot name a socket"))
}

/// This user's abstract name for a port, with a prefix.
fn abstract_name(kind: &str, port: u16) -> Result<SocketAddrUnix> {
    let uid = rustix::process::geteuid().as_raw();
    SocketAddrUnix::new_abstract_name(format!("{kind}/{uid}/{port}").as_bytes())
        .map_err(system_error("cannot name a socket"))
}

/// Binds a socket that will connect to a free port, by which the peer can distinguish connections; returns 0
/// if no port is free.
pub(crate) fn bind_client(socket: &ForkSafeFd) -> u16 {
    static LAST: AtomicU32 = AtomicU32::new(0);
    let span = u32::from(CLIENT_PORTS.end - CLIENT_PORTS.start);
    let Ok(token) = process_token() else { return 0 };
    let start = (*token as u32).wrapping_add(std::process::id());
    let port = |_| {
        let step = start.wrapping_add(LAST.fetch_add(1, Ordering::Relaxed));
        let port = CLIENT_PORTS.start + (step % span) as u16;
        let name = abstract_name("nicety-shm-from", port);
        name.is_ok_and(|name| bind(socket, &name).is_ok()).then_some(port)
    };
    (0..CLIENT_TRIES).find_map(port).unwrap_or(0)
}

/// Binds a connecting socket to the port that its program holds. The name only reports the port to the peer;
/// as it cannot be guessed, no other process can take it first.
fn bind_as_holder(socket: &ForkSafeFd, port: u16) -> Result<u16> {
    let name = abstract_name(&format!("nicety-shm-bound-{:016x}", random()?), port)?;
    bind(socket, &name).map_err(system_error("cannot bind a socket"))?;
    Ok(port)
}

/// The port of the peer's socket; 0 if it has none.
pub(crate) fn peer_port(socket: &ForkSafeFd) -> u16 {
    let named = getpeername(socket).ok().flatten().and_then(|addr| SocketAddrUnix::try_from(addr).ok());
    let port = named.as_ref().and_then(|addr| {
        let name = std::str::from_utf8(addr.abstract_name()?).ok()?;
        name.rsplit_once('/')?.1.parse().ok()
    });
    port.unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn socket() -> ForkSafeFd {
        new_socket().expect("a socket")
    }

    fn at(port: u16) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], port))
    }

    fn is_found(port: u16) -> bool {
        connect_to(at(port), None).expect("a socket").is_ok()
    }

    /// A port that no other test uses.
    fn port() -> u16 {
        use std::sync::atomic::AtomicU16;
        static NEXT: AtomicU16 = AtomicU16::new(0);
        20_000 + (std::process::id() % 1000) as u16 * 10 + NEXT.fetch_add(1, Ordering::Relaxed)
    }

    /// Goal: a connecting socket blocks no listener. Method: a listener takes the port of a connecting
    /// socket.
    #[test]
    fn listener_can_take_the_port_of_a_client() {
        let (client, listener) = (socket(), socket());
        let port = bind_client(&client);
        assert!(CLIENT_PORTS.contains(&port), "{port}");
        assert_eq!(listen_at(&listener, at(port)).expect("the port is free").port, port);
    }

    /// Goal: a connection reports the port that its program holds, although a listening socket has that
    /// port's name. Method: two connections, whose listeners query the port of the peer.
    #[test]
    fn connection_from_a_held_port_reports_that_port() {
        let (listener, holder) = (socket(), socket());
        let port = listen_at(&listener, at(0)).expect("a free port").port;
        let held = listen_at(&holder, at(0)).expect("a free port").port;
        let ends = [(); 2].map(|()| {
            let active = connect_to(at(port), Some(held)).expect("a socket").expect("it listens");
            assert_eq!(active.port, held);
            let passive: ForkSafeFd = rustix::net::accept(&listener).expect("it has connected").into();
            assert_eq!(peer_port(&passive), held);
            (active, passive)
        });
        drop(ends);
    }

    #[test]
    fn closed_port_is_not_reused_immediately() {
        let any = || listen_at(&socket(), at(0)).expect("a free port").port;
        assert_ne!(any(), any());
    }

    /// Goal: if another user has taken a port's name, this user can still listen there, any number of times.
    /// Method: sockets that have the name and do not listen, or listen with a full backlog, as our sockets
    /// never do.
    #[test]
    fn listen_works_when_another_user_has_the_name() {
        let (squatter, port) = (socket(), port());
        bind(&squatter, &abstract_name("nicety-shm", port).expect("a name")).expect("the port is free");
        listen(&squatter, 0).expect("it listens");
        let waits = socket();
        connect(&waits, &abstract_name("nicety-shm", port).expect("a name")).expect("the only place");
        for _ in 0..3 {
            let listener = socket();
            let name = listen_at(&listener, at(port)).expect("the port can be used");
            assert!(is_found(port));
            name.remove();
        }
    }

    /// Goal: such a port, which has two names, has one owner at a time among this user's processes. Method:
    /// one listens, a second one tries, the first ends as if it was killed, and the abstract name becomes
    /// free meanwhile.
    #[test]
    fn port_with_a_taken_name_has_one_owner() {
        let (squatter, port) = (socket(), port());
        bind(&squatter, &abstract_name("nicety-shm", port).expect("a name")).expect("the port is free");
        let listener = socket();
        let name = listen_at(&listener, at(port)).expect("the port can be used");
        assert!(name.path.is_some());
        assert!(is_found(port));
        let again = listen_at(&socket(), at(port));
        assert!(matches!(again, Err(Error::Address { .. })), "a process of this user has it");
        // The port stays taken when its abstract name becomes free.
        drop(squatter);
        assert!(matches!(listen_at(&socket(), at(port)), Err(Error::Address { .. })));
        assert!(is_found(port));
        // A killed listener leaves its name behind, which blocks nobody.
        drop(listener);
        assert!(!is_found(port));
        let next = socket();
        assert!(listen_at(&next, at(port)).expect("free again").path.is_none());
        assert!(is_found(port));
        name.remove();
    }

    #[test]
    fn listen_fails_on_a_port_of_this_user() {
        let (listener, port) = (socket(), port());
        let name = listen_at(&listener, at(port)).expect("the port is free");
        assert!(name.path.is_none() && name.port == port);
        assert!(matches!(listen_at(&socket(), at(port)), Err(Error::Address { .. })));
        let any = socket();
        let chosen = listen_at(&any, at(0)).expect("one is free").port;
        assert!(chosen >= FIRST_DYNAMIC_PORT && chosen != port);
    }
}
