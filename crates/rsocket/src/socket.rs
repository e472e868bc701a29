//! [`Socket`]: what a program has. It listens, or it connects and then has a [`Stream`].

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, OnceLock};

use ffi::lock;
use host::Time;
use verbs::Listener;

use crate::config::Config;
use crate::error::{Error, Result};
use crate::link::Link;
use crate::sleepers::{Sleep, Sleepers};
use crate::stream::Stream;
use crate::wire::ConnData;

/// A socket, which a program shares among its threads.
pub struct Socket {
    state: Mutex<State>,
    stream: OnceLock<Stream>,
    sleepers: Arc<Sleepers>,
    config: Mutex<Config>,
    ends: Mutex<Ends>,
}

/// The addresses of a socket, as far as they are known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ends {
    pub(crate) local: Option<SocketAddr>,
    pub(crate) peer: Option<SocketAddr>,
}

/// What a socket is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Nothing yet, or nothing more.
    Idle,
    /// It listens.
    Listening {
        /// Whether a connection waits to be taken.
        can_accept: bool,
    },
    /// It connects.
    Connecting,
    /// It has a [`Stream`], which may have ended.
    Connected,
    /// Its last attempt to connect has failed.
    Failed,
}

/// The state of a socket. A failed one can connect again.
pub(crate) enum State {
    Idle,
    Listening(Queue),
    Connecting(Box<Link>),
    Connected,
    Failed(Error),
    Closed,
}

/// Connections that the program has not taken.
pub(crate) struct Queue {
    pub(crate) listeners: Vec<Listener>,
    accepted: VecDeque<Arc<Socket>>,
    backlog: usize,
}

impl std::fmt::Debug for Socket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Socket").field("stream", &self.stream).finish_non_exhaustive()
    }
}

impl Socket {
    /// A socket that is neither bound nor connected.
    ///
    /// # Errors
    /// The system's, if no descriptor is available.
    pub fn new(config: Config) -> Result<Self> {
        Ok(Self {
            state: Mutex::new(State::Idle),
            stream: OnceLock::new(),
            sleepers: Arc::new(Sleepers::new()?),
            config: Mutex::new(config),
            ends: Mutex::default(),
        })
    }

    /// The sizes of its connection, or else of the next one.
    pub fn config(&self) -> Config {
        self.stream().map_or_else(|| *lock(&self.config), |stream| *stream.config())
    }

    /// Changes the sizes that the next connection gets.
    pub fn configure(&self, change: impl FnOnce(&mut Config)) {
        change(&mut lock(&self.config));
    }

    /// The address of this end, once the socket is bound or connected.
    pub fn local_addr(&self) -> Option<SocketAddr> {
        lock(&self.ends).local
    }

    /// Sets the address of this end.
    pub fn set_local_addr(&self, addr: SocketAddr) {
        lock(&self.ends).local = Some(addr);
    }

    /// The address of the peer of a connection.
    pub fn peer_addr(&self) -> Option<SocketAddr> {
        lock(&self.ends).peer
    }

    pub(crate) fn set_ends(&self, ends: Ends) {
        *lock(&self.ends) = ends;
    }

    /// Its connection, once there is one.
    #[inline]
    pub fn stream(&self) -> Option<&Stream> {
        self.stream.get()
    }

    /// Its connection; `None` while it connects.
    ///
    /// # Errors
    /// Why there is none.
    pub fn connection(&self) -> Result<Option<&Stream>> {
        if let Some(stream) = self.stream() {
            return Ok(Some(stream));
        }
        match &*lock(&self.state) {
            State::Connecting(_) => Ok(None),
            State::Connected => Ok(self.stream()),
            State::Failed(why) => Err(why.clone()),
            State::Idle | State::Listening(_) | State::Closed => Err(Error::NotConnected),
        }
    }

    /// What it is doing.
    pub fn phase(&self) -> Phase {
        match &*lock(&self.state) {
            State::Idle | State::Closed => Phase::Idle,
            State::Listening(queue) => Phase::Listening { can_accept: !queue.accepted.is_empty() },
            State::Connecting(_) => Phase::Connecting,
            State::Connected => Phase::Connected,
            State::Failed(_) => Phase::Failed,
        }
    }

    /// Checks that it can begin to connect or to listen, and lets `begin` do so.
    ///
    /// # Errors
    /// [`Error::WrongState`], or those of `begin`.
    pub(crate) fn begin(&self, begin: impl FnOnce(&mut State) -> Result<()>) -> Result<()> {
        let mut state = lock(&self.state);
        match &*state {
            State::Idle | State::Failed(_) => begin(&mut state),
            State::Listening(_) => Err(Error::WrongState("listens already")),
            State::Connecting(_) => Err(Error::WrongState("is connecting already")),
            State::Connected => Err(Error::WrongState("is connected already")),
            State::Closed => Err(Error::WrongState("is closed")),
        }
    }

    /// Listens on another device, or changes the number of connections that wait to be taken.
    ///
    /// # Errors
    /// [`Error::WrongState`] while it connects or is connected.
    pub(crate) fn add_listener(&self, backlog: usize, listener: Option<Listener>) -> Result<()> {
        let mut state = lock(&self.state);
        match &mut *state {
            State::Listening(queue) => {
                queue.listeners.extend(listener);
                queue.backlog = backlog;
                Ok(())
            }
            State::Idle | State::Failed(_) => {
                let listeners = listener.into_iter().collect();
                *state = State::Listening(Queue { listeners, accepted: VecDeque::new(), backlog });
                Ok(())
            }
            _ => Err(Error::WrongState("is connected, and cannot listen")),
        }
    }

    /// The connection has been made.
    pub(crate) fn connected(&self, ends: Ends, private_data: &[u8]) {
        let mut state = lock(&self.state);
        let State::Connecting(link) = std::mem::replace(&mut *state, State::Connected) else { return };
        self.set_ends(ends);
        match ConnData::decode(private_data) {
            Ok(peer) => drop(self.stream.set(Stream::new(*link, peer, self.sleepers.clone()))),
            Err(why) => *state = State::Failed(Error::Protocol(why)),
        }
        drop(state);
        self.sleepers.wake();
    }

    /// The socket of a connection that a peer has requested.
    pub(crate) fn accepted(link: Link, peer: ConnData, ends: Ends) -> Result<Self> {
        let socket = Self::new(link.config)?;
        socket.set_ends(ends);
        *lock(&socket.state) = State::Connected;
        let _ = socket.stream.set(Stream::new(link, peer, socket.sleepers.clone()));
        Ok(socket)
    }

    /// The connection was not made.
    pub(crate) fn failed(&self, why: Error) {
        let mut state = lock(&self.state);
        if matches!(&*state, State::Connecting(_)) {
            *state = State::Failed(why);
            drop(state);
            self.sleepers.wake();
        }
    }

    /// Whether it listens, and has room for another connection in addition to `pending` ones.
    pub(crate) fn has_room(&self, pending: usize) -> bool {
        match &*lock(&self.state) {
            State::Listening(queue) => queue.accepted.len() + pending <= queue.backlog,
            _ => false,
        }
    }

    /// Queues a connection for the program.
    pub(crate) fn push(&self, socket: Arc<Self>) {
        if let State::Listening(queue) = &mut *lock(&self.state) {
            queue.accepted.push_back(socket);
            self.sleepers.set_ready(true);
        }
    }

    /// Takes a connection, if one has been made.
    ///
    /// # Errors
    /// [`Error::WrongState`] if it does not listen.
    pub fn accept(&self) -> Result<Option<Arc<Self>>> {
        let mut state = lock(&self.state);
        let State::Listening(queue) = &mut *state else {
            return Err(Error::WrongState("does not listen; call rlisten first"));
        };
        let taken = queue.accepted.pop_front();
        if taken.is_some() {
            self.sleepers.set_ready(!queue.accepted.is_empty());
        }
        Ok(taken)
    }

    /// Prepares a sleep until something changes; see [`Stream::arm`].
    ///
    /// # Errors
    /// As [`Stream::arm`].
    pub fn arm(&self) -> Result<Sleep> {
        self.stream().map_or_else(|| Ok(self.sleepers.enter()), Stream::arm)
    }

    /// Ends the sleep that [`Socket::arm`] has prepared.
    pub fn awake(&self, sleep: Sleep) {
        self.sleepers.leave(sleep);
    }

    /// The descriptors to sleep on after [`Socket::arm`].
    pub fn fds(&self) -> (Option<BorrowedFd<'_>>, BorrowedFd<'_>) {
        self.stream().map_or((None, self.sleepers.fd()), Stream::fds)
    }

    /// The descriptor that belongs to it as long as it exists.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.sleepers.fd()
    }

    /// Ends it: stops listening, gives up connecting, or ends the connection as [`Stream::close`]. Threads that wait for it wake.
    pub fn close(&self, deadline: Option<Time>) {
        let former = std::mem::replace(&mut *lock(&self.state), State::Closed);
        if let Some(stream) = self.stream() {
            stream.close(deadline);
        }
        self.sleepers.wake();
        // The peers of connections that the program has not taken get an error.
        drop(former);
    }
}
