//! [`Pairing`]: connecting two queue pairs that know each other's numbers, as programs do that exchange them out of band and call
//! `ibv_modify_qp(3)` on both sides, in any order.
//!
//! A queue pair's number does not lead to its process, but an address does: each side listens, and tells its [`End`]s out of band. Of two ends
//! that want each other, the lesser connects and the greater accepts. A request that comes before its end is wanted waits.
//! A queue pair may want itself: NICs connect two, so another one connects, which nobody sees, and posts for it.
//!
//! It sits on [`Cm`], and has no thread: who takes that channel's events passes it each connect request. What becomes of a pair is
//! told by the channel's other events; whose they are, [`Pairing::established`] and [`Pairing::whose`] say.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::{Cm, ConnParam, ConnectRequest, Error, Listener, Qp, Result};

/// One end of a pair, as its own side tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct End {
    /// Where its side listens ([`Pairing::addr`]).
    pub addr: SocketAddr,
    /// [`Qp::num`].
    pub qp_num: u32,
}

/// Bytes of private data that a request to connect needs for a pairing: it says whom it is from and for.
pub const PRIVATE_DATA: u32 = 30;

/// Requests that wait for their end to be wanted, at most.
const BACKLOG: u32 = 4096;

/// The queue pairs of one side.
#[derive(Debug)]
pub struct Pairing {
    cm: Cm,
    /// Queue pairs that connect for those which are connected with themselves: nobody knows their numbers.
    twins: Mutex<BTreeMap<u32, u32>>,
    listener: Listener,
    waiting: Mutex<BTreeMap<Pair, Waiting>>,
}

/// A pair, as the side that waits for the other sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Pair {
    own: u32,
    peer: End,
}

/// What of a pair has come first.
#[derive(Debug)]
enum Waiting {
    Request(ConnectRequest),
    /// The queue pair itself is had by number: whoever takes the channel's events gives it.
    Wanted(ConnParam),
}

/// What became of a connect request.
#[derive(Debug)]
pub enum Offered {
    /// It is none of a pair's.
    Other(ConnectRequest),
    /// It waits for its end to be wanted, or was refused.
    Kept,
    /// Its end, the queue pair with this number, is wanted: [`Pairing::accept`].
    Wanted(Accept),
}

/// A pair that is complete: what is left is to accept.
#[derive(Debug)]
pub struct Accept {
    /// The number of the queue pair.
    pub qp_num: u32,
    request: ConnectRequest,
    param: ConnParam,
}

impl Pairing {
    /// Listens at `ip`, for events of `cm`.
    ///
    /// # Errors
    /// As [`Cm::listen`].
    pub fn new(cm: &Cm, ip: IpAddr) -> Result<Self> {
        let listener = cm.listen(SocketAddr::new(ip, 0), BACKLOG)?;
        Ok(Self { cm: cm.clone(), twins: Mutex::default(), listener, waiting: Mutex::default() })
    }

    /// Where it listens: the address of all of its ends.
    pub fn addr(&self) -> SocketAddr {
        self.listener.addr()
    }

    /// Has `qp` connected with `peer`, as soon as that wants it, too; `param` without its private data. Connected with itself, it
    /// takes as much of its device as two.
    ///
    /// # Errors
    /// As [`Cm::connect`] and [`Cm::accept`]; for a queue pair and itself also as [`crate::Pd::create_qp`], and
    /// [`Error::Invalid`] the second time.
    pub fn pair(&self, qp: &Qp, peer: End, param: &ConnParam) -> Result<()> {
        let own = End { addr: self.addr(), qp_num: qp.num() };
        if own == peer {
            return self.pair_with_itself(qp, own, param);
        }
        if own < peer {
            return connect(&self.cm, (qp, own), peer, param);
        }
        self.await_request(qp, own, peer, param.clone())
    }

    /// Has another one connect, and `qp` accept it.
    fn pair_with_itself(&self, qp: &Qp, own: End, param: &ConnParam) -> Result<()> {
        let twin = qp.make_twin()?;
        lock(&self.twins).insert(twin.num(), own.qp_num);
        let peer = End { qp_num: twin.num(), ..own };
        self.await_request(qp, own, peer, param.clone())?;
        connect(&self.cm, (twin, peer), own, param)
    }

    /// The queue pair that may send now that the channel says [`crate::CmEvent::Established`] of this one. Connected with itself, it
    /// has two ends, and sends by the one that connects: of the other's event there is nothing to say.
    pub fn established(&self, qp_num: u32) -> Option<u32> {
        let twins = lock(&self.twins);
        match twins.get(&qp_num) {
            Some(own) => Some(*own),
            None => (!twins.values().any(|own| *own == qp_num)).then_some(qp_num),
        }
    }

    /// The queue pair that any other event of the channel is of, which names this one.
    pub fn whose(&self, qp_num: u32) -> u32 {
        lock(&self.twins).get(&qp_num).copied().unwrap_or(qp_num)
    }

    /// Has the greater end of a pair accepted when the lesser asks, which it may have done.
    fn await_request(&self, qp: &Qp, own: End, peer: End, param: ConnParam) -> Result<()> {
        let pair = Pair { own: own.qp_num, peer };
        let mut waiting = lock(&self.waiting);
        match waiting.remove(&pair) {
            Some(Waiting::Request(request)) => {
                drop(waiting);
                self.accept(qp, Accept { qp_num: own.qp_num, request, param })
            }
            _ => {
                waiting.insert(pair, Waiting::Wanted(param));
                Ok(())
            }
        }
    }

    /// Takes a connect request of the channel.
    pub fn offer(&self, request: ConnectRequest) -> Offered {
        if request.info.local.port() != self.addr().port() {
            return Offered::Other(request);
        }
        // Whoever does not speak this is refused, as the request is dropped.
        let Some((peer, own)) = decode(&request.private_data) else { return Offered::Kept };
        let pair = Pair { own, peer };
        let mut waiting = lock(&self.waiting);
        match waiting.remove(&pair) {
            Some(Waiting::Wanted(param)) => Offered::Wanted(Accept { qp_num: own, request, param }),
            _ => {
                waiting.insert(pair, Waiting::Request(request));
                Offered::Kept
            }
        }
    }

    /// Accepts with `qp`, whose number the pair has.
    ///
    /// # Errors
    /// As [`Cm::accept`].
    pub fn accept(&self, qp: &Qp, accept: Accept) -> Result<()> {
        if qp.num() != accept.qp_num {
            return Err(Error::Foreign { what: "the queue pair" });
        }
        self.cm.accept(accept.request, qp, &accept.param)
    }

    /// Forgets what waits for the queue pair with this number, which goes away.
    pub fn forget(&self, qp_num: u32) {
        lock(&self.waiting).retain(|pair, _| pair.own != qp_num);
        lock(&self.twins).retain(|_, own| *own != qp_num);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Has the lesser end of a pair connect.
fn connect(cm: &Cm, (qp, own): (&Qp, End), peer: End, param: &ConnParam) -> Result<()> {
    let param = ConnParam { private_data: encode(own, peer.qp_num), ..param.clone() };
    cm.connect(qp, peer.addr, &param)
}

/// What a request begins with.
const MAGIC: [u8; 4] = *b"pair";

/// The private data of a request: the end that connects, and the number of the queue pair that it wants.
fn encode(own: End, wanted: u32) -> Vec<u8> {
    let ip = match own.addr.ip() {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    };
    let port = own.addr.port().to_be_bytes();
    [&MAGIC[..], &ip.octets(), &port, &own.qp_num.to_be_bytes(), &wanted.to_be_bytes()].concat()
}

fn decode(bytes: &[u8]) -> Option<(End, u32)> {
    let rest = bytes.strip_prefix(&MAGIC)?;
    let (ip, rest) = rest.split_first_chunk::<16>()?;
    let (port, rest) = rest.split_first_chunk()?;
    let (qp_num, rest) = rest.split_first_chunk()?;
    // Some protocols fill private data up with zeros.
    let wanted = rest.first_chunk()?;
    let addr = SocketAddr::new(IpAddr::from(*ip).to_canonical(), u16::from_be_bytes(*port));
    Some((End { addr, qp_num: u32::from_be_bytes(*qp_num) }, u32::from_be_bytes(*wanted)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_request_says_is_read_back_and_noise_is_not() {
        for ip in ["10.1.2.3", "fd00::1"] {
            let addr = SocketAddr::new(ip.parse().expect("an address"), 4711);
            let end = End { addr, qp_num: 0x0102_0304 };
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
