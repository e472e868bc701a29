//! [`Pairing`]: connects two queue pairs that know each other's numbers, for programs that exchange these out of band
//! and call `ibv_modify_qp(3)` on both sides, in any order.
//!
//! Each side listens, and programs exchange its [`Endpoint`]s out of band. Of the two ends of a pair, the lesser
//! one connects and the greater one accepts. A request that arrives before the local program has asked for the pair
//! waits. A queue pair may be connected to itself: as NICs connect two queue pairs, a hidden twin connects to it and
//! sends for it.
//!
//! Programs that use IP addresses, such as those for RoCE, exchange no port. So a side listens on one of a range of
//! ports, and the upper bits of its queue pairs' numbers encode the port ([`port_of`]): address and number identify the
//! process. The listening socket also reserves the port: the system gives a port of an address to one process at a
//! time, and releases it when that process ends.
//!
//! It uses a [`Cm`], and has no thread: the thread that handles that channel's events passes it each connect request.
//! The channel's other events report the result; [`Pairing::ready_qp`] and [`Pairing::owner_of`] map them to queue
//! pairs.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::numbers::Numbers;
use crate::{Cm, ConnParam, ConnectRequest, Error, Listener, Qp, Result};

/// One end of a pair, as its own side describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Endpoint {
    /// Where its side listens ([`Pairing::addr`]).
    pub addr: SocketAddr,
    /// [`Qp::reported_qp_num`].
    pub qp_num: u32,
}

/// Bytes of private data of a pairing's connect request, which names both ends.
pub const PRIVATE_DATA: u32 = 30;

/// Ports of sides that are found by the numbers of their queue pairs. They are dynamic ports (RFC 6335), above those
/// that Linux assigns to outgoing connections (32,768 to 60,999 by default).
pub const PORTS: Range<u16> = 61_440..63_486;

/// Lower bits of a number, which distinguish the queue pairs of one side: as many as soft NICs have.
const OWN_BITS: u32 = 13;
/// Numbers for a side that cannot be found by them. 0 and 1 are reserved for InfiniBand management (IBA 3.5.3).
const UNENCODED: Range<u32> = 2..1 << OWN_BITS;

/// The upper bits of the numbers of a side that listens on this port, if it is in the range. The greatest are left out:
/// 0xffffff is the number of multicast groups (IBA 10.5).
fn slot_of(port: u16) -> Option<u32> {
    PORTS.contains(&port).then(|| u32::from(port - PORTS.start) + 1)
}

/// The port of the side whose queue pair has this number; `None` if the number does not encode one.
pub fn port_of(qp_num: u32) -> Option<u16> {
    let slot = (qp_num >> OWN_BITS).checked_sub(1)?;
    let port = PORTS.start.checked_add(u16::try_from(slot).ok()?)?;
    PORTS.contains(&port).then_some(port)
}

/// Maximum number of requests that wait for the local program.
const BACKLOG: u32 = 4096;

/// The queue pairs of one side.
#[derive(Debug)]
pub struct Pairing {
    cm: Cm,
    /// Hidden twins of queue pairs that are connected to themselves, by number: no program knows these numbers.
    twins: Mutex<BTreeMap<u32, u32>>,
    listener: Listener,
    numbers: Mutex<Numbers>,
    waiting: Mutex<BTreeMap<Pair, Waiting>>,
}

/// A pair, as the waiting side sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Pair {
    own: u32,
    peer: Endpoint,
}

/// The part of a pair that came first.
#[derive(Debug)]
enum Waiting {
    Remote(ConnectRequest),
    /// The local program has asked for the pair. The queue pair itself is found by number, by the thread that handles
    /// the channel's events.
    Local(ConnParam),
}

/// What [`Pairing::offer`] did with a connect request.
#[derive(Debug)]
pub enum Offered {
    /// The request is not for a pair.
    Other(ConnectRequest),
    /// The request waits for the local program, or was refused.
    Handled,
    /// The queue pair with this number is to accept the connection: [`Pairing::accept`].
    Matched(Accept),
}

/// A complete pair, which must be accepted.
#[derive(Debug)]
pub struct Accept {
    /// [`Qp::reported_qp_num`] of the queue pair.
    pub qp_num: u32,
    request: ConnectRequest,
    param: ConnParam,
}

impl Pairing {
    /// Listens at `ip`, for events of `cm`, on the first free port of [`PORTS`], starting at the one that `start`
    /// selects: sides with different values do not compete, and a port is reused late.
    ///
    /// # Errors
    /// As [`Cm::listen`].
    pub fn new(cm: &Cm, ip: IpAddr, start: u32) -> Result<Self> {
        let listener = listen(cm, ip, start)?;
        let range = match slot_of(listener.addr().port()) {
            Some(slot) => slot << OWN_BITS..(slot + 1) << OWN_BITS,
            None => UNENCODED,
        };
        let numbers = Mutex::new(Numbers::with_range("numbers of queue pairs", range));
        Ok(Self { cm: cm.clone(), twins: Mutex::default(), listener, numbers, waiting: Mutex::default() })
    }

    /// Allocates a number for one of this side's queue pairs ([`crate::QpInit::reported_qp_num`]). No other queue pair
    /// gets it until [`Pairing::free_number`]. If [`Pairing::encodes_port`], it encodes this side's port.
    ///
    /// # Errors
    /// [`Error::Limit`] if all numbers of the side are taken: 8,192, or 8,190 if they encode no port.
    pub fn alloc_number(&self) -> Result<u32> {
        lock(&self.numbers).alloc()
    }

    /// Frees the number of a destroyed queue pair.
    pub fn free_number(&self, number: u32) {
        lock(&self.numbers).free(number);
    }

    /// Whether its address and [`Pairing::alloc_number`] identify its port ([`port_of`]). They do not if all of
    /// [`PORTS`] were taken when it started to listen.
    pub fn encodes_port(&self) -> bool {
        slot_of(self.addr().port()).is_some()
    }

    /// The listening address, which all of its ends have.
    pub fn addr(&self) -> SocketAddr {
        self.listener.addr()
    }

    /// Connects `qp` with `peer` once both sides have asked for it; `param` without its private data. A queue pair that
    /// is connected to itself uses the resources of two.
    ///
    /// # Errors
    /// As [`Cm::connect`] and [`Cm::accept`]; for a queue pair and itself also as [`crate::Pd::create_qp`], and
    /// [`Error::Invalid`] the second time.
    pub fn pair(&self, qp: &Qp, peer: Endpoint, param: &ConnParam) -> Result<()> {
        let own = Endpoint { addr: self.addr(), qp_num: qp.reported_qp_num() };
        if own == peer {
            return self.pair_with_itself(qp, own, param);
        }
        if own < peer {
            return connect(&self.cm, (qp, own), peer, param);
        }
        self.await_request(qp, own, peer, param.clone())
    }

    /// Connects a twin to `qp`, which accepts it.
    fn pair_with_itself(&self, qp: &Qp, own: Endpoint, param: &ConnParam) -> Result<()> {
        let twin = qp.make_twin()?;
        lock(&self.twins).insert(twin.num(), qp.num());
        self.await_request(qp, own, own, param.clone())?;
        connect(&self.cm, (twin, own), own, param)
    }

    /// The queue pair that may send now, after [`crate::CmEvent::Established`] for `qp_num`. A queue pair connected to
    /// itself has two ends, and sends by its twin: the event of its own end returns `None`.
    pub fn ready_qp(&self, qp_num: u32) -> Option<u32> {
        let twins = lock(&self.twins);
        match twins.get(&qp_num) {
            Some(own) => Some(*own),
            None => (!twins.values().any(|own| *own == qp_num)).then_some(qp_num),
        }
    }

    /// The program's queue pair for any other event of the channel, for `qp_num`.
    pub fn owner_of(&self, qp_num: u32) -> u32 {
        lock(&self.twins).get(&qp_num).copied().unwrap_or(qp_num)
    }

    /// Accepts the request of the pair's lesser end, which may have arrived already or is awaited.
    fn await_request(&self, qp: &Qp, own: Endpoint, peer: Endpoint, param: ConnParam) -> Result<()> {
        let pair = Pair { own: own.qp_num, peer };
        let mut waiting = lock(&self.waiting);
        match waiting.remove(&pair) {
            // If the connecting side has given up meanwhile, its next request is awaited.
            Some(Waiting::Remote(request)) if request.is_alive() => {
                drop(waiting);
                self.accept(qp, Accept { qp_num: own.qp_num, request, param })
            }
            _ => {
                waiting.insert(pair, Waiting::Local(param));
                Ok(())
            }
        }
    }

    /// Handles a connect request of the channel.
    pub fn offer(&self, request: ConnectRequest) -> Offered {
        if request.info.local.port() != self.addr().port() {
            return Offered::Other(request);
        }
        // A request of another protocol is refused, by dropping it.
        let Some((peer, own)) = decode(&request.private_data) else { return Offered::Handled };
        let pair = Pair { own, peer };
        let mut waiting = lock(&self.waiting);
        match waiting.remove(&pair) {
            // The connecting side has given up already: its next request is awaited.
            Some(wanted @ Waiting::Local(_)) if !request.is_alive() => {
                waiting.insert(pair, wanted);
                Offered::Handled
            }
            Some(Waiting::Local(param)) => Offered::Matched(Accept { qp_num: own, request, param }),
            _ => {
                waiting.insert(pair, Waiting::Remote(request));
                Offered::Handled
            }
        }
    }

    /// Accepts with `qp`, whose number the pair has.
    ///
    /// # Errors
    /// As [`Cm::accept`].
    pub fn accept(&self, qp: &Qp, accept: Accept) -> Result<()> {
        if qp.reported_qp_num() != accept.qp_num {
            return Err(Error::Foreign { what: "the queue pair" });
        }
        self.cm.accept(accept.request, qp, &accept.param)
    }

    /// Forgets the pairs of a queue pair that is being destroyed, and refuses the requests for it.
    pub fn forget(&self, qp: &Qp) {
        lock(&self.waiting).retain(|pair, _| pair.own != qp.reported_qp_num());
        lock(&self.twins).retain(|_, own| *own != qp.num());
    }

    /// Forgets the pairs of a queue pair that another one replaces under its number. Live requests for that number are
    /// kept, because the peer may have been reset first.
    pub fn release(&self, qp: &Qp) {
        let stays = |pair: &Pair, waiting: &Waiting| match waiting {
            _ if pair.own != qp.reported_qp_num() => true,
            Waiting::Remote(request) => request.is_alive(),
            Waiting::Local(_) => false,
        };
        lock(&self.waiting).retain(|pair, waiting| stays(pair, waiting));
        lock(&self.twins).retain(|_, own| *own != qp.num());
    }
}

/// Listens on one of [`PORTS`], or on another port if all are taken.
fn listen(cm: &Cm, ip: IpAddr, start: u32) -> Result<Listener> {
    let (count, mut other) = (u32::from(PORTS.end - PORTS.start), None);
    for step in 0..count {
        let port = PORTS.start + (start.wrapping_add(step) % count) as u16;
        match cm.listen(SocketAddr::new(ip, port), BACKLOG) {
            Ok(listener) => return Ok(listener),
            // A taken port is not an error; any other problem shows here, once.
            Err(_) if other.is_none() => other = Some(cm.listen(SocketAddr::new(ip, 0), BACKLOG)?),
            Err(_) => {}
        }
    }
    other.map_or_else(|| cm.listen(SocketAddr::new(ip, 0), BACKLOG), Ok)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Connects from the lesser end of a pair.
fn connect(cm: &Cm, (qp, own): (&Qp, Endpoint), peer: Endpoint, param: &ConnParam) -> Result<()> {
    let param = ConnParam { private_data: encode(own, peer.qp_num), ..param.clone() };
    cm.connect(qp, peer.addr, &param)
}

/// The first bytes of a request.
const MAGIC: [u8; 4] = *b"pair";

/// The private data of a request: the connecting end, and the number of the queue pair that it connects to.
fn encode(own: Endpoint, wanted: u32) -> Vec<u8> {
    let ip = match own.addr.ip() {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    };
    let port = own.addr.port().to_be_bytes();
    [&MAGIC[..], &ip.octets(), &port, &own.qp_num.to_be_bytes(), &wanted.to_be_bytes()].concat()
}

fn decode(bytes: &[u8]) -> Option<(Endpoint, u32)> {
    let rest = bytes.strip_prefix(&MAGIC)?;
    let (ip, rest) = rest.split_first_chunk::<16>()?;
    let (port, rest) = rest.split_first_chunk()?;
    let (qp_num, rest) = rest.split_first_chunk()?;
    // Some protocols pad private data with zeros.
    let wanted = rest.first_chunk()?;
    let addr = SocketAddr::new(IpAddr::from(*ip).to_canonical(), u16::from_be_bytes(*port));
    Some((Endpoint { addr, qp_num: u32::from_be_bytes(*qp_num) }, u32::from_be_bytes(*wanted)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_encode_the_port_of_their_side() {
        let count = u32::from(PORTS.end - PORTS.start);
        for (port, slot) in [(PORTS.start, 1), (PORTS.start + 7, 8), (PORTS.end - 1, count)] {
            assert_eq!(slot_of(port), Some(slot));
            for qp_num in [slot << OWN_BITS, ((slot + 1) << OWN_BITS) - 1] {
                assert_eq!(port_of(qp_num), Some(port), "{qp_num:#x}");
            }
        }
        assert_eq!([PORTS.start - 1, PORTS.end, 0, u16::MAX].map(slot_of), [None; 4]);
        let past = (count + 1) << OWN_BITS;
        assert_eq!([UNENCODED.start, UNENCODED.end - 1, past, 0xff_ffff, u32::MAX].map(port_of), [None; 5]);
    }

    #[test]
    fn request_data_round_trip_and_noise_is_refused() {
        for ip in ["10.1.2.3", "fd00::1"] {
            let addr = SocketAddr::new(ip.parse().expect("an address"), 4711);
            let end = Endpoint { addr, qp_num: 0x0102_0304 };
            let mut bytes = encode(end, 77);
            assert_eq!(decode(&bytes), Some((end, 77)));
            bytes.extend([0; 20]);
            assert_eq!(decode(&bytes), Some((end, 77)), "filled up");
            assert_eq!(decode(&bytes[..29]), None, "cut");
            bytes[0] ^= 1;
            assert_eq!(decode(&bytes), None, "something else");
        }
    }
}
