//! [`Launch`]: who else is in the job, as the launcher says by PMI over the descriptor or port that its variables name, or by PMIx
//! where they name that. Without them the process is alone. This and `state` are the places that read the environment.

use std::collections::BTreeMap;
use std::env;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Mutex;

use ffi::lock;
use mpi::{Bootstrap, Class, Error, Result};
use pmi::client::{Client, Event, Join, Request};
use pmi::profile::Profile;
use pmi::spawn::Spawn;

use crate::pmix::Pmix;

/// The key by which the processes of a job that was started find those who wanted it.
pub(crate) const PARENT_PORT: &str = "PARENT_ROOT_PORT_NAME";

trait Stream: Read + Write + Send {}
impl<T: Read + Write + Send> Stream for T {}

/// How this process came to its job.
pub(crate) struct Launch {
    rank: u32,
    size: u32,
    /// Which of the job's programs this is, and how many processes there could be, if the launcher says.
    pub(crate) appnum: Option<u32>,
    pub(crate) universe: Option<u32>,
    /// Whether all of the job is known to be on one host.
    pub(crate) is_one_host: bool,
    /// How many of the job are on this host, if the launcher says.
    pub(crate) neighbours: Option<u32>,
    board: Board,
    /// Names of services, where nobody else looks for them.
    services: Mutex<BTreeMap<String, String>>,
}

/// Where notes are left.
enum Board {
    /// With the process manager.
    Manager(Box<Mutex<Manager>>),
    /// With the launcher's library.
    Library(Box<Pmix>),
    /// Here: nobody else reads them.
    Own(Mutex<BTreeMap<String, String>>),
}

/// The process manager at the other end.
struct Manager {
    client: Client,
    stream: Box<dyn Stream>,
}

fn other(text: impl std::fmt::Display) -> Error {
    Error::new(Class::OTHER, text)
}

/// A variable that holds a number.
fn number(name: &str) -> Result<u32> {
    let unset = |_| other(format_args!("{name} is not set, although another of PMI's variables is"));
    let text = env::var(name).map_err(unset)?;
    text.parse().map_err(|_| other(format_args!("{name} is no number: {text:?}")))
}

/// The stream to the process manager, and how one joins by it; nothing without one.
fn manager() -> Result<Option<(Join, Box<dyn Stream>)>> {
    if env::var_os("PMI_FD").is_some() {
        let (rank, size, fd) = (number("PMI_RANK")?, number("PMI_SIZE")?, number("PMI_FD")?);
        let fd = i32::try_from(fd).map_err(|_| other("PMI_FD is no descriptor"))?;
        let own =
            duplicate(fd).map_err(|error| other(format_args!("PMI_FD={fd} cannot be used: {error}")))?;
        return Ok(Some((Join::Descriptor { rank, size }, Box::new(UnixStream::from(own)))));
    }
    let Ok(address) = env::var("PMI_PORT") else { return Ok(None) };
    let id = number("PMI_ID")?;
    let connect = || {
        let stream = TcpStream::connect(&address)?;
        stream.set_nodelay(true)?;
        std::io::Result::Ok(stream)
    };
    let stream =
        connect().map_err(|error| other(format_args!("PMI_PORT={address} cannot be reached: {error}")))?;
    Ok(Some((Join::Port { id }, Box::new(stream))))
}

/// A descriptor of its own for what the launcher has left open under a number.
pub(crate) fn duplicate(fd: i32) -> std::io::Result<OwnedFd> {
    if fd < 0 {
        return Err(std::io::ErrorKind::InvalidInput.into());
    }
    // SAFETY: it is borrowed for one call that asks the kernel for a duplicate, and is not closed; a number that is none is refused
    // there. Test: `messages_go_round_on_shm`.
    unsafe { BorrowedFd::borrow_raw(fd) }.try_clone_to_owned()
}

/// Has a function called when the program exits.
pub(crate) fn at_exit(function: extern "C" fn()) {
    // SAFETY: the library is never unloaded, so that the function is there. Test: `sessions_need_no_init`.
    let refused = unsafe { libc::atexit(function) };
    // Without memory for it, the launcher takes the exit for an early one.
    debug_assert_eq!(refused, 0);
}

impl Launch {
    /// Joins the job that this process was launched in, or one of its own.
    pub(crate) fn find() -> Result<Self> {
        let Some((join, stream)) = manager()? else {
            if env::var_os("PMIX_NAMESPACE").is_some() {
                return Self::by_library(Pmix::join()?);
            }
            let board = Board::Own(Mutex::default());
            let services = Mutex::default();
            return Ok(Self {
                rank: 0,
                size: 1,
                appnum: None,
                universe: None,
                is_one_host: true,
                neighbours: Some(1),
                board,
                services,
            });
        };
        let mut manager = Manager { client: Client::new(join).map_err(other)?, stream };
        manager.next()?;
        let job =
            manager.client.job().ok_or_else(|| other("the process manager did not let this rank join"))?;
        let is_one = |nodes: &[_]| nodes.windows(2).all(|pair| pair[0] == pair[1]);
        let is_one_host = job.size == 1 || job.nodes.as_deref().is_some_and(is_one);
        let neighbours = job.nodes.as_deref().and_then(|nodes| {
            let own = nodes.get(job.rank as usize)?;
            Some(nodes.iter().filter(|node| *node == own).count() as u32)
        });
        let (rank, size, appnum, universe) = (job.rank, job.size, job.appnum, job.universe_size);
        let board = Board::Manager(Box::new(Mutex::new(manager)));
        Ok(Self { rank, size, appnum, universe, is_one_host, neighbours, board, services: Mutex::default() })
    }

    fn by_library(pmix: Pmix) -> Result<Self> {
        let job = pmix.job()?;
        let is_one_host = job.local_size == Some(job.size);
        let (appnum, universe) = (job.appnum, job.universe);
        Ok(Self {
            rank: job.rank,
            size: job.size,
            appnum,
            universe,
            is_one_host,
            neighbours: job.local_size,
            board: Board::Library(Box::new(pmix)),
            services: Mutex::default(),
        })
    }

    /// Says that the job is to end with this code; whether there is somebody to say it to.
    pub(crate) fn abort(&self, code: i32) -> bool {
        let manager = match &self.board {
            Board::Manager(manager) => manager,
            Board::Library(pmix) => return pmix.abort(code).is_ok(),
            Board::Own(_) => return false,
        };
        // Whoever holds the lock may wait for the process manager for good.
        let Ok(mut manager) = manager.try_lock() else { return false };
        let asked = manager.client.request(&Request::Abort { code, message: "" }).is_ok();
        asked && manager.send().is_ok()
    }

    /// Asks the process manager for something of several jobs; an error is of this class. Nothing without one.
    fn ask(&self, class: Class, request: &Request<'_>) -> Result<Option<Event>> {
        match &self.board {
            Board::Manager(manager) => {
                lock(manager).ask(request).map(Some).map_err(|error| Error { class, ..error })
            }
            Board::Library(_) => Err(Error::new(class, "not through PMIx yet; nicety mpirun and Hydra can")),
            Board::Own(_) => Ok(None),
        }
    }

    /// Lets other processes find a port by the name of a service.
    ///
    /// # Errors
    /// [`Class::SERVICE`] for a name that is taken, or that the process manager refuses.
    pub(crate) fn publish(&self, service: &str, port: &str) -> Result<()> {
        let name = service_key(service);
        if self.ask(Class::SERVICE, &Request::Publish { service: &name, port })?.is_none() {
            lock(&self.services).insert(name, port.to_owned());
        }
        Ok(())
    }

    /// Takes the name of a service back.
    ///
    /// # Errors
    /// [`Class::SERVICE`] for one that is not published.
    pub(crate) fn unpublish(&self, service: &str) -> Result<()> {
        let name = service_key(service);
        if self.ask(Class::SERVICE, &Request::Unpublish { service: &name })?.is_some() {
            return Ok(());
        }
        let none = || Error::new(Class::SERVICE, format_args!("nobody has published {service:?}"));
        lock(&self.services).remove(&name).map(drop).ok_or_else(none)
    }

    /// The port of a service, if there is one.
    ///
    /// # Errors
    /// [`Class::NAME`] when the process manager refuses.
    pub(crate) fn look_up(&self, service: &str) -> Result<Option<String>> {
        let name = service_key(service);
        Ok(match self.ask(Class::NAME, &Request::Lookup { service: &name })? {
            Some(Event::Value(value)) => value,
            Some(_) => None,
            None => lock(&self.services).get(&name).cloned(),
        })
    }

    /// Has the process manager start a job; for each process its error, 0 for none.
    ///
    /// # Errors
    /// [`Class::SPAWN`] when it refuses, and without one.
    pub(crate) fn spawn(&self, spawn: &Spawn) -> Result<Vec<i32>> {
        let alone = "this process was started alone, and nobody can start others for it; use nicety mpirun";
        match self.ask(Class::SPAWN, &Request::Spawn(spawn))? {
            Some(Event::Spawned(codes)) => Ok(codes),
            Some(_) => Err(Error::new(Class::SPAWN, "the process manager does not say what it has started")),
            None => Err(Error::new(Class::SPAWN, alone)),
        }
    }

    /// The port of those who have started this job, if somebody has.
    ///
    /// # Errors
    /// [`Class::OTHER`] when the process manager is gone, or knows no port.
    pub(crate) fn parent(&self) -> Result<Option<String>> {
        let is_spawned = env::var("PMI_SPAWNED").is_ok_and(|value| value != "0");
        let is_asked = is_spawned && matches!(self.board, Board::Manager(_));
        if is_asked { self.get(PARENT_PORT).map(Some) } else { Ok(None) }
    }

    /// Leaves a profile with the process manager, in as many notes as it takes.
    ///
    /// # Errors
    /// [`Class::OTHER`] when the process manager refuses or is gone.
    pub(crate) fn tell(&self, profile: &Profile) -> Result<()> {
        profile.notes(self.rank).iter().try_for_each(|(key, value)| self.put(key, value))
    }

    /// Leaves the job.
    pub(crate) fn leave(&self) -> Result<()> {
        match &self.board {
            Board::Manager(manager) => lock(manager).ask(&Request::Finalize).map(drop),
            Board::Library(pmix) => pmix.leave(),
            Board::Own(_) => Ok(()),
        }
    }
}

/// Processes of other jobs that a program can be connected to at a time.
const STRANGERS_MAX: u32 = 256;

/// The name of a service as keys of PMI may be.
fn service_key(service: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    let one = |byte: u8| if plain(byte) { char::from(byte).to_string() } else { format!("_{byte:02x}") };
    service.bytes().map(one).collect()
}

/// Values of PMI have no semicolon and no backslash.
const ESCAPED: [(char, &str); 3] = [('%', "%25"), (';', "%3b"), ('\\', "%5c")];

fn escape(value: &str) -> String {
    ESCAPED.iter().fold(value.to_owned(), |text, (plain, escaped)| text.replace(*plain, escaped))
}

fn unescape(value: &str) -> String {
    ESCAPED
        .iter()
        .rev()
        .fold(value.to_owned(), |text, (plain, escaped)| text.replace(escaped, &plain.to_string()))
}

impl Manager {
    fn send(&mut self) -> Result<()> {
        while !self.client.transmit().is_empty() {
            let sent = self.stream.write(self.client.transmit()).map_err(other)?;
            self.client.sent(sent);
        }
        Ok(())
    }

    /// Moves bytes until there is an event.
    fn next(&mut self) -> Result<Event> {
        let mut bytes = [0; 4096];
        loop {
            self.send()?;
            if let Some(event) = self.client.poll_event() {
                return Ok(event);
            }
            match self.stream.read(&mut bytes).map_err(other)? {
                0 => self.client.handle_eof().map_err(other)?,
                n => self.client.handle_bytes(&bytes[..n]).map_err(other)?,
            }
        }
    }

    fn ask(&mut self, request: &Request<'_>) -> Result<Event> {
        self.client.request(request).map_err(other)?;
        match self.next()? {
            Event::Refused(why) => Err(other(format_args!("the process manager refused: {why}"))),
            event => Ok(event),
        }
    }
}

impl Bootstrap for Launch {
    fn rank(&self) -> u32 {
        self.rank
    }

    fn size(&self) -> u32 {
        self.size
    }

    fn strangers(&self) -> u32 {
        STRANGERS_MAX
    }

    fn put(&self, key: &str, value: &str) -> Result<()> {
        match &self.board {
            Board::Manager(manager) => {
                lock(manager).ask(&Request::Put { key, value: &escape(value) }).map(drop)
            }
            Board::Library(pmix) => pmix.put(key, value),
            Board::Own(notes) => {
                lock(notes).insert(key.to_owned(), value.to_owned());
                Ok(())
            }
        }
    }

    fn get(&self, key: &str) -> Result<String> {
        let found = match &self.board {
            Board::Manager(manager) => match lock(manager).ask(&Request::Get { key })? {
                Event::Value(value) => value.as_deref().map(unescape),
                _ => None,
            },
            Board::Library(pmix) => return pmix.get(key),
            Board::Own(notes) => lock(notes).get(key).cloned(),
        };
        found.ok_or_else(|| other(format_args!("nobody has left a note named {key}")))
    }

    fn fence(&self) -> Result<()> {
        match &self.board {
            Board::Manager(manager) => lock(manager).ask(&Request::Fence).map(drop),
            Board::Library(pmix) => pmix.fence(),
            Board::Own(_) => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_survive_what_pmi_does_not_carry() {
        for value in ["a,1.2.3.4:5;shm/x", "%3b;%\\", ""] {
            let escaped = escape(value);
            assert!(!escaped.contains([';', '\\']), "{escaped}");
            assert_eq!(unescape(&escaped), value);
        }
    }
}
