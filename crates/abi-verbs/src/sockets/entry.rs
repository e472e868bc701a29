//! [`Entry`], a program's socket, and the table of all sockets by their numbers.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd as _, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};

use ffi::{Out, SockAddr};
use rsocket::{Error, Port, Service, Socket};
use rustix::io::fcntl_dupfd_cloexec;
use verbs::CmFailure;

use crate::answer::Answer;
use crate::errno::{Errno, errno};

/// A socket of a program.
pub(crate) struct Entry {
    pub(crate) socket: Arc<Socket>,
    /// The descriptor whose number is the socket's.
    number: OwnedFd,
    /// A number that no other socket has had.
    pub(crate) id: u64,
    /// `O_NONBLOCK` and other flags of `F_SETFL`.
    pub(crate) flags: AtomicI32,
    /// Flags of `F_SETFD`.
    pub(crate) fd_flags: AtomicI32,
    pub(crate) is_v6: bool,
    /// Where it is bound, one address for each device.
    pub(crate) ports: Mutex<Vec<(Arc<Service>, Port)>>,
    pub(crate) options: Mutex<Options>,
    /// Whether the program knows that the socket is connected.
    pub(crate) is_connect_reported: AtomicBool,
    /// Whether the program knows the error of the socket (`SO_ERROR`).
    pub(crate) is_error_reported: AtomicBool,
}

/// Options that a program has set, as numbers of C.
#[derive(Clone, Copy, Default)]
pub(crate) struct Options {
    pub(crate) reuse_addr: i32,
    pub(crate) keep_alive: i32,
    pub(crate) oob_inline: i32,
    pub(crate) no_delay: i32,
    pub(crate) keep_idle: i32,
    pub(crate) v6_only: i32,
    pub(crate) tos: i32,
    /// Whether closing waits for a time in seconds (`SO_LINGER`).
    pub(crate) linger: Option<i32>,
}

impl Entry {
    /// A program's view of a socket. Its number is new, even if the socket is older: librspreload.so keeps a descriptor of its own for
    /// each socket, opened just before, and some of its versions find that one again only if its number is the lower one.
    ///
    /// # Errors
    /// `EMFILE` if no descriptor is available.
    pub(crate) fn new(socket: Arc<Socket>, is_v6: bool, flags: i32, options: Options) -> Answer<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = fcntl_dupfd_cloexec(socket.fd(), 0)?;
        Ok(Self {
            socket,
            number,
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            flags: AtomicI32::new(flags),
            fd_flags: AtomicI32::new(0),
            is_v6,
            ports: Mutex::default(),
            options: Mutex::new(options),
            is_connect_reported: AtomicBool::new(false),
            is_error_reported: AtomicBool::new(false),
        })
    }

    pub(crate) fn is_nonblocking(&self) -> bool {
        self.flags.load(Ordering::Relaxed) & libc::O_NONBLOCK != 0
    }

    /// Stores an address in the family of the socket, as much as fits, and its length.
    ///
    /// # Errors
    /// [`Errno::INVAL`] for a missing length.
    pub(crate) fn store_address(&self, addr: SocketAddr, place: Out<u8>, len: Out<u32>) -> Answer {
        let addr = match (self.is_v6, addr.ip()) {
            (true, IpAddr::V4(ip)) if ip.is_unspecified() => ([0_u16; 8], addr.port()).into(),
            (true, IpAddr::V4(ip)) => (ip.to_ipv6_mapped(), addr.port()).into(),
            _ => addr,
        };
        let bytes = SockAddr::encode(addr);
        let room = len.get().ok_or_else(|| crate::errno::missing("addrlen"))?;
        let full =
            if addr.is_ipv6() { size_of::<libc::sockaddr_in6>() } else { size_of::<libc::sockaddr_in>() };
        let fits = full.min(room as usize);
        bytes[..fits].iter().enumerate().for_each(|(at, byte)| place.element(at).set(*byte));
        len.set(full as u32);
        Ok(())
    }
}

/// Sockets by number, in pages that are created when one of their numbers is used.
type Page = Box<[RwLock<Option<Arc<Entry>>>]>;

const PAGE: usize = 1024;
const PAGES: usize = 1024;

static TABLE: [OnceLock<Page>; PAGES] = [const { OnceLock::new() }; PAGES];

fn slot(fd: RawFd) -> Option<&'static RwLock<Option<Arc<Entry>>>> {
    let fd = usize::try_from(fd).ok()?;
    TABLE.get(fd / PAGE)?.get().map(|page| &page[fd % PAGE])
}

/// The socket with this number, if there is one.
#[inline]
pub(crate) fn find(fd: RawFd) -> Option<Arc<Entry>> {
    slot(fd)?.read().unwrap_or_else(PoisonError::into_inner).clone()
}

/// The socket with this number.
///
/// # Errors
/// `EBADF` if there is none.
#[inline]
pub(crate) fn lookup(fd: RawFd) -> Answer<Arc<Entry>> {
    find(fd).ok_or_else(|| no_socket(fd))
}

#[cold]
fn no_socket(fd: RawFd) -> Errno {
    Errno(libc::EBADF)
        .because(format_args!("socket: {fd} is none that rsocket or raccept has returned, or it was closed"))
}

/// Adds a socket and returns its number.
///
/// # Errors
/// `EMFILE` for a number beyond those of the table.
pub(crate) fn insert(entry: Entry) -> Answer<RawFd> {
    let fd = entry.number.as_raw_fd();
    let page = usize::try_from(fd).ok().and_then(|fd| TABLE.get(fd / PAGE)).ok_or(Errno(libc::EMFILE))?;
    let page = page.get_or_init(|| (0..PAGE).map(|_| RwLock::default()).collect());
    let slot = &page[fd as usize % PAGE];
    *slot.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(entry));
    Ok(fd)
}

/// Removes a socket.
///
/// # Errors
/// As [`lookup`].
pub(crate) fn remove(fd: RawFd) -> Answer<Arc<Entry>> {
    let slot = slot(fd).ok_or_else(|| no_socket(fd))?;
    slot.write().unwrap_or_else(PoisonError::into_inner).take().ok_or_else(|| no_socket(fd))
}

/// The numbers of all sockets.
pub(crate) fn all() -> Vec<RawFd> {
    let pages = TABLE.iter().enumerate().filter_map(|(at, page)| Some((at, page.get()?)));
    let numbers = pages.flat_map(|(at, page)| {
        let used = |slot: &RwLock<Option<Arc<Entry>>>| slot.read().is_ok_and(|slot| slot.is_some());
        (0..PAGE).filter(move |within| used(&page[*within])).map(move |within| (at * PAGE + within) as RawFd)
    });
    numbers.collect()
}

impl From<Error> for Errno {
    #[cold]
    fn from(error: Error) -> Self {
        let number = match &error {
            Error::NotConnected => libc::ENOTCONN,
            Error::WrongState(_) | Error::NotMapped => libc::EINVAL,
            Error::Reset => libc::ECONNRESET,
            Error::ShutDown => libc::EPIPE,
            Error::Protocol(_) => libc::EPROTO,
            Error::Rejected | Error::Unconnected(CmFailure::Refused(_)) => libc::ECONNREFUSED,
            Error::Unconnected(CmFailure::Unreachable(..)) => libc::EHOSTUNREACH,
            Error::Unconnected(CmFailure::TimedOut) => libc::ETIMEDOUT,
            Error::Unconnected(CmFailure::PeerGone) => libc::ECONNRESET,
            Error::Unconnected(CmFailure::Shortage(_)) => libc::ENOBUFS,
            Error::Unconnected(_) => libc::ECONNABORTED,
            Error::NoMapping(_) => libc::EFAULT,
            Error::NoIoMapEntry => libc::ENOMEM,
            Error::Device(why) => return why.clone().into(),
            _ => libc::EIO,
        };
        Self(number).because(format_args!("{error}"))
    }
}

/// The error of an address family or of a kind of socket that rsockets do not have.
#[cold]
pub(crate) fn not_supported(what: &str, value: i32, remedy: &str) -> Errno {
    errno!(OPNOTSUPP, "{what} is {value}, which rsockets here do not have; {remedy}")
}
