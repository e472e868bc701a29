//! [`Launch`]: the launcher's description of the job, over PMI on the descriptor or port that its variables name, or over PMIx.
//! Without these variables, the process is alone. Only this module and `state` read the environment.

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

/// The key under which a spawned job finds its parent's port.
pub(crate) const PARENT_PORT: &str = "PARENT_ROOT_PORT_NAME";

trait Stream: Read + Write + Send {}
impl<T: Read + Write + Send> Stream for T {}

/// This process's connection to its launcher.
pub(crate) struct Launch {
    rank: u32,
    size: u32,
    /// The index of this program in the job, and the largest number of processes, if the launcher provides them.
    pub(crate) appnum: Option<u32>,
    pub(crate) universe: Option<u32>,
    /// Whether all processes of the job are known to be on one host.
    pub(crate) is_one_host: bool,
    /// The number of the job's processes on this host, if the launcher provides it.
    pub(crate) local_size: Option<u32>,
    kvs: KvsBackend,
    /// Service names, if no process manager keeps them.
    services: Mutex<BTreeMap<String, String>>,
}

/// The key-value store for notes between processes.
enum KvsBackend {
    /// In the process manager.
    ProcessManager(Box<Mutex<Manager>>),
    /// In the launcher's PMIx library.
    PmixLibrary(Box<Pmix>),
    /// In this process: there are no other readers.
    Local(Mutex<BTreeMap<String, String>>),
}

/// The connection to the process manager.
struct Manager {
    client: Client,
    stream: Box<dyn Stream>,
}

/// An error without a class of its own.
fn other(text: impl std::fmt::Display) -> Error {
    Error::new(Class::OTHER, text)
}

/// Reads a variable that holds a number.
fn number(name: &str) -> Result<u32> {
    let unset = |_| other(format_args!("{name} is not set, although another of PMI's variables is"));
    let text = env::var(name).map_err(unset)?;
    text.parse().map_err(|_| other(format_args!("{name} is no number: '{text}'")))
}

/// The stream to the process manager, and the way to join over it; `None` without a process manager.
fn connect_manager() -> Result<Option<(Join, Box<dyn Stream>)>> {
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

/// Duplicates a descriptor that the launcher has left open under this number.
pub(crate) fn duplicate(fd: i32) -> std::io::Result<OwnedFd> {
    if fd < 0 {
        return Err(std::io::ErrorKind::InvalidInput.into());
    }
    // SAFETY: it is borrowed for one call that asks the kernel for a duplicate, and is not closed; the kernel refuses an invalid
    // number. Test: `ring_messages_arrive_on_shm`.
    unsafe { BorrowedFd::borrow_raw(fd) }.try_clone_to_owned()
}

/// Registers a function to be called when the program exits.
pub(crate) fn at_exit(function: extern "C" fn()) {
    // SAFETY: the library is never unloaded, so the function stays valid. Test: `sessions_need_no_init`.
    let refused = unsafe { libc::atexit(function) };
    // On a failure for lack of memory, the launcher reports a premature exit.
    debug_assert_eq!(refused, 0);
}

impl Launch {
    /// Joins the job that this process was launched in, or a job of its own.
    pub(crate) fn join() -> Result<Self> {
        let Some((join, stream)) = connect_manager()? else {
            if env::var_os("PMIX_NAMESPACE").is_some() {
                return Self::from_pmix(Pmix::join()?);
            }
            let kvs = KvsBackend::Local(Mutex::default());
            let services = Mutex::default();
            return Ok(Self {
                rank: 0,
                size: 1,
                appnum: None,
                universe: None,
                is_one_host: true,
                local_size: Some(1),
                kvs,
                services,
            });
        };
        let mut manager = Manager { client: Client::new(join).map_err(other)?, stream };
        manager.next_event()?;
        let job =
            manager.client.job().ok_or_else(|| other("the process manager did not let this rank join"))?;
        let is_one = |nodes: &[_]| nodes.windows(2).all(|pair| pair[0] == pair[1]);
        let is_one_host = job.size == 1 || job.nodes.as_deref().is_some_and(is_one);
        let local_size = job.nodes.as_deref().and_then(|nodes| {
            let own = nodes.get(job.rank as usize)?;
            Some(nodes.iter().filter(|node| *node == own).count() as u32)
        });
        let (rank, size, appnum, universe) = (job.rank, job.size, job.appnum, job.universe_size);
        let kvs = KvsBackend::ProcessManager(Box::new(Mutex::new(manager)));
        Ok(Self { rank, size, appnum, universe, is_one_host, local_size, kvs, services: Mutex::default() })
    }

    /// From a launcher that offers PMIx.
    fn from_pmix(pmix: Pmix) -> Result<Self> {
        let job = pmix.job()?;
        let is_one_host = job.local_size == Some(job.size);
        let (appnum, universe) = (job.appnum, job.universe);
        Ok(Self {
            rank: job.rank,
            size: job.size,
            appnum,
            universe,
            is_one_host,
            local_size: job.local_size,
            kvs: KvsBackend::PmixLibrary(Box::new(pmix)),
            services: Mutex::default(),
        })
    }

    /// Asks the launcher to end the job with this code; returns whether the request was sent.
    pub(crate) fn abort(&self, code: i32) -> bool {
        let manager = match &self.kvs {
            KvsBackend::ProcessManager(manager) => manager,
            KvsBackend::PmixLibrary(pmix) => return pmix.abort(code).is_ok(),
            KvsBackend::Local(_) => return false,
        };
        // The thread that holds the lock may be waiting for the process manager indefinitely.
        let Ok(mut manager) = manager.try_lock() else { return false };
        let asked = manager.client.request(&Request::Abort { code, message: "" }).is_ok();
        asked && manager.send().is_ok()
    }

    /// Sends the process manager a request that concerns several jobs; errors have this class. `None` without a process manager.
    fn request(&self, class: Class, request: &Request<'_>) -> Result<Option<Event>> {
        match &self.kvs {
            KvsBackend::ProcessManager(manager) => {
                lock(manager).request(request).map(Some).map_err(|error| Error { class, ..error })
            }
            KvsBackend::PmixLibrary(_) => {
                Err(Error::new(class, "not supported through PMIx yet; nicety mpirun and Hydra support it"))
            }
            KvsBackend::Local(_) => Ok(None),
        }
    }

    /// Publishes a port under a service name.
    ///
    /// # Errors
    /// [`Class::SERVICE`] for a name that is in use, or that the process manager refuses.
    pub(crate) fn publish(&self, service: &str, port: &str) -> Result<()> {
        let name = service_key(service);
        if self.request(Class::SERVICE, &Request::Publish { service: &name, port })?.is_none() {
            lock(&self.services).insert(name, port.to_owned());
        }
        Ok(())
    }

    /// Withdraws a service name.
    ///
    /// # Errors
    /// [`Class::SERVICE`] for an unpublished name.
    pub(crate) fn unpublish(&self, service: &str) -> Result<()> {
        let name = service_key(service);
        if self.request(Class::SERVICE, &Request::Unpublish { service: &name })?.is_some() {
            return Ok(());
        }
        let none = || Error::new(Class::SERVICE, format_args!("no process has published '{service}'"));
        lock(&self.services).remove(&name).map(drop).ok_or_else(none)
    }

    /// The port of a service, if it is published.
    ///
    /// # Errors
    /// [`Class::NAME`] when the process manager refuses.
    pub(crate) fn look_up(&self, service: &str) -> Result<Option<String>> {
        let name = service_key(service);
        Ok(match self.request(Class::NAME, &Request::Lookup { service: &name })? {
            Some(Event::Value(value)) => value,
            Some(_) => None,
            None => lock(&self.services).get(&name).cloned(),
        })
    }

    /// Has the process manager start a job; returns an error code for each process, 0 on success.
    ///
    /// # Errors
    /// [`Class::SPAWN`] if it refuses, or without a process manager.
    pub(crate) fn spawn(&self, spawn: &Spawn) -> Result<Vec<i32>> {
        let alone = "this process was started without a launcher that could start others; use nicety mpirun";
        match self.request(Class::SPAWN, &Request::Spawn(spawn))? {
            Some(Event::Spawned(codes)) => Ok(codes),
            Some(_) => Err(Error::new(Class::SPAWN, "the process manager does not say what it has started")),
            None => Err(Error::new(Class::SPAWN, alone)),
        }
    }

    /// The port of the job that spawned this one, if any.
    ///
    /// # Errors
    /// [`Class::OTHER`] if the process manager is gone, or has no such port.
    pub(crate) fn parent(&self) -> Result<Option<String>> {
        let is_spawned = env::var("PMI_SPAWNED").is_ok_and(|value| value != "0");
        let has_parent_port = is_spawned && matches!(self.kvs, KvsBackend::ProcessManager(_));
        if has_parent_port { self.get(PARENT_PORT).map(Some) } else { Ok(None) }
    }

    /// Sends a profile to the process manager, in as many notes as necessary.
    ///
    /// # Errors
    /// [`Class::OTHER`] if the process manager refuses or is gone.
    pub(crate) fn send_profile(&self, profile: &Profile) -> Result<()> {
        profile.to_notes(self.rank).iter().try_for_each(|(key, value)| self.put(key, value))
    }

    /// Leaves the job.
    pub(crate) fn leave(&self) -> Result<()> {
        match &self.kvs {
            KvsBackend::ProcessManager(manager) => lock(manager).request(&Request::Finalize).map(drop),
            KvsBackend::PmixLibrary(pmix) => pmix.leave(),
            KvsBackend::Local(_) => Ok(()),
        }
    }
}

/// The most processes of other jobs that a program can be connected to at the same time.
const REMOTE_PROCS_MAX: u32 = 256;

/// The PMI key of a service name, limited to characters that PMI allows.
fn service_key(service: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    let one = |byte: u8| if plain(byte) { char::from(byte).to_string() } else { format!("_{byte:02x}") };
    service.bytes().map(one).collect()
}

/// PMI values must not contain semicolons or backslashes.
const ESCAPED: [(char, &str); 3] = [('%', "%25"), (';', "%3b"), ('\\', "%5c")];

/// Replaces characters that PMI does not allow.
fn escape(value: &str) -> String {
    ESCAPED.iter().fold(value.to_owned(), |text, (plain, escaped)| text.replace(*plain, escaped))
}

/// Reverts [`escape`].
fn unescape(value: &str) -> String {
    ESCAPED
        .iter()
        .rev()
        .fold(value.to_owned(), |text, (plain, escaped)| text.replace(escaped, &plain.to_string()))
}

impl Manager {
    /// Sends all requests that wait.
    fn send(&mut self) -> Result<()> {
        while !self.client.transmit().is_empty() {
            let sent = self.stream.write(self.client.transmit()).map_err(other)?;
            self.client.sent(sent);
        }
        Ok(())
    }

    /// Transfers bytes until an event arrives.
    fn next_event(&mut self) -> Result<Event> {
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

    /// Sends a request, and waits for its answer.
    fn request(&mut self, request: &Request<'_>) -> Result<Event> {
        self.client.request(request).map_err(other)?;
        match self.next_event()? {
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

    fn remote_procs_max(&self) -> u32 {
        REMOTE_PROCS_MAX
    }

    fn put(&self, key: &str, value: &str) -> Result<()> {
        match &self.kvs {
            KvsBackend::ProcessManager(manager) => {
                lock(manager).request(&Request::Put { key, value: &escape(value) }).map(drop)
            }
            KvsBackend::PmixLibrary(pmix) => pmix.put(key, value),
            KvsBackend::Local(notes) => {
                lock(notes).insert(key.to_owned(), value.to_owned());
                Ok(())
            }
        }
    }

    fn get(&self, key: &str) -> Result<String> {
        let found = match &self.kvs {
            KvsBackend::ProcessManager(manager) => match lock(manager).request(&Request::Get { key })? {
                Event::Value(value) => value.as_deref().map(unescape),
                _ => None,
            },
            KvsBackend::PmixLibrary(pmix) => return pmix.get(key),
            KvsBackend::Local(notes) => lock(notes).get(key).cloned(),
        };
        found.ok_or_else(|| other(format_args!("no process has published the key {key}")))
    }

    fn fence(&self) -> Result<()> {
        match &self.kvs {
            KvsBackend::ProcessManager(manager) => lock(manager).request(&Request::Fence).map(drop),
            KvsBackend::PmixLibrary(pmix) => pmix.fence(),
            KvsBackend::Local(_) => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_escaped_for_pmi_and_restored() {
        for value in ["a,1.2.3.4:5;shm/x", "%3b;%\\", ""] {
            let escaped = escape(value);
            assert!(!escaped.contains([';', '\\']), "{escaped}");
            assert_eq!(unescape(&escaped), value);
        }
    }
}
