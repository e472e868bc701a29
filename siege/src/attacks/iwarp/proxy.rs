//! A TCP proxy between the two endpoints, which damages what it forwards.

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::sleep;
use std::time::Duration;

use anyhow::Result;

use super::frames::{FrameName, FrameSplitter};
use host::Rng;

/// A bit of a frame.
#[derive(Clone, Copy, Debug)]
pub(super) struct BitPosition {
    pub(super) frame: FrameName,
    pub(super) byte: usize,
    pub(super) bit: u32,
}

/// The damage to the bytes of one direction.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Damage {
    /// Flips this bit of the stream.
    pub(super) flip: Option<BitPosition>,
    /// Ends both directions before this byte: by a reset if true, otherwise by a close.
    pub(super) end_at: Option<(u64, bool)>,
    /// Maximal bytes of a piece; each is written separately. 0: as received.
    pub(super) pieces: usize,
    /// Pauses between pieces now and then.
    pub(super) dribbles: bool,
}

/// A listener that forwards connections.
pub(super) struct Proxy {
    pub(super) addr: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    target: Mutex<SocketAddr>,
    /// Proxies the listener whose address ends the answers that pass here: for further lanes of rails.
    further: Option<(SocketAddr, Arc<Self>)>,
    /// The damage to the next connections, in both directions.
    damage: Mutex<[Damage; 2]>,
    open: Mutex<Vec<TcpStream>>,
    is_closed: AtomicBool,
    seed: Mutex<Rng>,
    /// Flipped bits that were forwarded.
    hits: AtomicU64,
    /// The frames of the latest connection.
    seen: Mutex<Seen>,
}

/// The frames of a connection with their lengths, in both directions.
pub(super) type Frames = [Vec<(FrameName, usize)>; 2];
type Seen = Arc<Mutex<Frames>>;

impl Proxy {
    /// Listens on a free port of this address.
    pub(super) fn start(side: Ipv4Addr, target: SocketAddr, seed: u64) -> Result<Self> {
        Self::chained(side, target, seed, None)
    }

    /// Starts a proxy like this one; `further` proxies the listeners that are named in answers here: those of further
    /// lanes of rails.
    pub(super) fn chained(
        side: Ipv4Addr,
        target: SocketAddr,
        seed: u64,
        further: Option<&Self>,
    ) -> Result<Self> {
        let listener = TcpListener::bind((side, 0))?;
        let addr = listener.local_addr()?;
        let shared = Arc::new(Shared {
            target: Mutex::new(target),
            further: further.map(|proxy| (proxy.addr, proxy.shared.clone())),
            damage: Mutex::default(),
            open: Mutex::default(),
            is_closed: AtomicBool::new(false),
            seed: Mutex::new(Rng::new(seed)),
            hits: AtomicU64::new(0),
            seen: Mutex::default(),
        });
        let passer = shared.clone();
        std::thread::spawn(move || {
            for near in listener.incoming() {
                if passer.is_closed.load(Ordering::Relaxed) {
                    return;
                }
                // If one end aborts the connection, the other end must notice.
                let _ = near.map(|near| forward_connection(&passer, near));
            }
        });
        Ok(Self { addr, shared })
    }

    /// Sets the damage to connections from now on.
    pub(super) fn set_damage(&self, damage: [Damage; 2]) {
        *lock(&self.shared.damage) = damage;
    }

    /// The number of flipped bits that were forwarded.
    pub(super) fn forwarded_flips(&self) -> u64 {
        self.shared.hits.load(Ordering::Relaxed)
    }

    /// The frames of the latest connection until now.
    pub(super) fn frames_seen(&self) -> Frames {
        let latest = lock(&self.shared.seen).clone();
        lock(&latest).clone()
    }

    /// Closes all connections.
    pub(super) fn close(&self) {
        for stream in lock(&self.shared.open).drain(..) {
            // It may be closed already.
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.is_closed.store(true, Ordering::Relaxed);
        // Wakes the listener.
        let _ = TcpStream::connect(self.addr);
        self.close();
    }
}

fn lock<T>(of: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

fn forward_connection(shared: &Arc<Shared>, near: TcpStream) -> Result<()> {
    let far = TcpStream::connect(*lock(&shared.target))?;
    let damage = *lock(&shared.damage);
    let seen = Seen::default();
    *lock(&shared.seen) = seen.clone();
    for end in [&near, &far] {
        end.set_nodelay(true)?;
        lock(&shared.open).push(end.try_clone()?);
    }
    let ends = [(near.try_clone()?, far.try_clone()?), (far, near)];
    for (way, (from, to)) in ends.into_iter().enumerate() {
        let rng = Rng::new(lock(&shared.seed).next_u64());
        let relay = Relay {
            shared: shared.clone(),
            seen: seen.clone(),
            way,
            to,
            damage: damage[way],
            rng,
            passed: 0,
        };
        std::thread::spawn(move || relay.run(from));
    }
    Ok(())
}

/// One direction of a connection.
struct Relay {
    shared: Arc<Shared>,
    seen: Seen,
    /// 0 is from the client to the listener.
    way: usize,
    to: TcpStream,
    damage: Damage,
    rng: Rng,
    passed: u64,
}

impl Relay {
    /// Forwards bytes until one end closes, then closes the other one.
    fn run(mut self, mut from: TcpStream) {
        let (mut bytes, mut cutter) = (vec![0; 64 << 10], FrameSplitter::default());
        let mut goes_on = true;
        while goes_on {
            match from.read(&mut bytes) {
                Ok(0) => break,
                Ok(n) => cutter.push(&bytes[..n]),
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(_) => break,
            }
            let (mut now, mut flips) = (Vec::new(), 0);
            while let Some((name, mut frame)) = cutter.next_frame() {
                lock(&self.seen)[self.way].push((name, frame.len()));
                flips += u64::from(self.flips(name, &mut frame));
                if name == FrameName::HANDSHAKE && self.way == 1 {
                    self.redirect(&mut frame);
                }
                now.append(&mut frame);
            }
            goes_on = self.forward(&now, &from);
            self.shared.hits.fetch_add(if goes_on { flips } else { 0 }, Ordering::Relaxed);
        }
        if goes_on {
            self.forward(&cutter.into_rest(), &from);
        }
        let _ = from.shutdown(Shutdown::Both);
        let _ = self.to.shutdown(Shutdown::Both);
    }

    /// Flips the bit if it is in this frame; whether it did.
    fn flips(&self, name: FrameName, frame: &mut [u8]) -> bool {
        let aim = self.damage.flip.filter(|aim| aim.frame == name);
        let Some((aim, byte)) = aim.and_then(|aim| Some((aim, frame.get_mut(aim.byte)?))) else {
            return false;
        };
        *byte ^= 1 << aim.bit;
        true
    }

    /// An answer between rails ends with the address of a listener; replaces it by the address of the further proxy.
    fn redirect(&self, answer: &mut [u8]) {
        let Some((addr, further)) = &self.shared.further else { return };
        let IpAddr::V4(side) = addr.ip() else { return };
        let Some(&mut [4, ref mut ip @ .., ref mut high, ref mut low]) = answer.last_chunk_mut::<7>() else {
            return;
        };
        if *ip == side.octets() {
            *lock(&further.target) = (side, u16::from_be_bytes([*high, *low])).into();
            [*high, *low] = addr.port().to_be_bytes();
        }
    }

    /// Forwards bytes up to the point where the stream is ended; whether it continues.
    fn forward(&mut self, bytes: &[u8], from: &TcpStream) -> bool {
        let (mut now, mut ends) = (bytes, None);
        if let Some((at, reset)) = self.damage.end_at
            && self.passed + now.len() as u64 >= at
        {
            now = &now[..at.saturating_sub(self.passed) as usize];
            ends = Some(reset);
        }
        self.passed += now.len() as u64;
        if write_pieces(&mut self.to, now, self.damage, &mut self.rng).is_err() {
            return false;
        }
        if ends == Some(true) {
            for end in [from, &self.to] {
                // With a linger time of zero, a close is a reset; the clone in the list is closed by the shutdown.
                let _ = rustix::net::sockopt::set_socket_linger(end, Some(Duration::ZERO));
            }
        }
        ends.is_none()
    }
}

fn write_pieces(to: &mut TcpStream, bytes: &[u8], damage: Damage, rng: &mut Rng) -> std::io::Result<()> {
    let mut rest = bytes;
    while !rest.is_empty() {
        let n = match damage.pieces {
            0 => rest.len(),
            most => rest.len().min(1 + rng.below(most as u64) as usize),
        };
        to.write_all(&rest[..n])?;
        rest = &rest[n..];
        if damage.dribbles && rng.below(8) == 0 {
            sleep(Duration::from_micros(rng.below(300)));
        }
    }
    Ok(())
}
