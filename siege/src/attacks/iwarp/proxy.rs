//! What stands between the two ends of TCP connections.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::sleep;
use std::time::Duration;

use anyhow::Result;

use crate::chance::Rng;

/// What is done to the bytes of one direction.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Mischief {
    /// This bit of the stream is flipped.
    pub(super) flip: Option<u64>,
    /// Both directions are reset, or closed, in front of this byte.
    pub(super) end_at: Option<(u64, bool)>,
    /// Bytes of a piece, at most; each is passed on by itself. 0: as they come.
    pub(super) pieces: usize,
    /// Rests between pieces now and then.
    pub(super) dribbles: bool,
}

/// A listener that passes connections on.
pub(super) struct Proxy {
    pub(super) addr: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    target: Mutex<SocketAddr>,
    /// What is done to the next connections: forth, and back.
    mischief: Mutex<[Mischief; 2]>,
    open: Mutex<Vec<TcpStream>>,
    over: AtomicBool,
    seed: Mutex<Rng>,
}

impl Proxy {
    /// Listens on a free port of this address.
    pub(super) fn start(side: Ipv4Addr, target: SocketAddr, seed: u64) -> Result<Self> {
        let listener = TcpListener::bind((side, 0))?;
        let addr = listener.local_addr()?;
        let shared = Arc::new(Shared {
            target: Mutex::new(target),
            mischief: Mutex::default(),
            open: Mutex::default(),
            over: AtomicBool::new(false),
            seed: Mutex::new(Rng::new(seed)),
        });
        let passer = shared.clone();
        std::thread::spawn(move || {
            for near in listener.incoming() {
                if passer.over.load(Ordering::Relaxed) {
                    return;
                }
                // An end that breaks off is the other end's to notice.
                let _ = near.map(|near| passer.pass(near));
            }
        });
        Ok(Self { addr, shared })
    }

    /// What is done to the connections that come from now on.
    pub(super) fn set(&self, mischief: [Mischief; 2]) {
        *lock(&self.shared.mischief) = mischief;
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
        self.shared.over.store(true, Ordering::Relaxed);
        // Wakes the listener.
        let _ = TcpStream::connect(self.addr);
        self.close();
    }
}

fn lock<T>(of: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    fn pass(&self, near: TcpStream) -> Result<()> {
        let far = TcpStream::connect(*lock(&self.target))?;
        let [forth, back] = *lock(&self.mischief);
        for end in [&near, &far] {
            end.set_nodelay(true)?;
        }
        let seeds = {
            let mut rng = lock(&self.seed);
            [rng.next(), rng.next()]
        };
        let mut open = lock(&self.open);
        open.push(near.try_clone()?);
        open.push(far.try_clone()?);
        drop(open);
        let (near_too, far_too) = (near.try_clone()?, far.try_clone()?);
        std::thread::spawn(move || relay(near, far, forth, Rng::new(seeds[0])));
        std::thread::spawn(move || relay(far_too, near_too, back, Rng::new(seeds[1])));
        Ok(())
    }
}

/// Passes bytes on until one end is over, then closes the other one.
fn relay(mut from: TcpStream, mut to: TcpStream, mischief: Mischief, mut rng: Rng) {
    let (mut bytes, mut passed) = (vec![0; 64 << 10], 0_u64);
    loop {
        let n = match from.read(&mut bytes) {
            Ok(0) => break,
            Ok(n) => n,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(_) => break,
        };
        let mut now = &mut bytes[..n];
        if let Some(bit) = mischief.flip
            && let Some(byte) = (bit / 8).checked_sub(passed).and_then(|at| now.get_mut(at as usize))
        {
            *byte ^= 1 << (bit % 8);
        }
        let mut ends = None;
        if let Some((at, reset)) = mischief.end_at
            && passed + now.len() as u64 >= at
        {
            now = &mut now[..at.saturating_sub(passed) as usize];
            ends = Some(reset);
        }
        passed += now.len() as u64;
        if say(&mut to, now, mischief, &mut rng).is_err() {
            break;
        }
        if let Some(reset) = ends {
            if reset {
                for end in [&from, &to] {
                    // Without a linger a close is a reset; the clone in the list goes when it is shut.
                    let _ = rustix::net::sockopt::set_socket_linger(end, Some(Duration::ZERO));
                }
            }
            break;
        }
    }
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
}

fn say(to: &mut TcpStream, bytes: &[u8], mischief: Mischief, rng: &mut Rng) -> std::io::Result<()> {
    let mut rest = bytes;
    while !rest.is_empty() {
        let n = match mischief.pieces {
            0 => rest.len(),
            most => rest.len().min(1 + rng.below(most as u64) as usize),
        };
        to.write_all(&rest[..n])?;
        rest = &rest[n..];
        if mischief.dribbles && rng.below(8) == 0 {
            sleep(Duration::from_micros(rng.below(300)));
        }
    }
    Ok(())
}
