//! Measures what copies cost by the places of source and target in their pages: memcpy(3), process_vm_readv(2) and a TCP
//! connection of the loopback. [`crate::string_moves`] says why that matters.

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};

use host::real::Clock;
use host::{Span, Time};

/// Bytes of each measured copy.
pub const COPY_LEN: usize = 64 << 10;
const PAGE: usize = 4096;
/// Offsets from the beginning of a page that are tried at either end: the middle of each group of distances, and multiples
/// of the alignment of common allocators.
const OFFSETS: [usize; 4] = [0, 8, 16, 32];
/// How often each copy is repeated; the fastest counts.
const REPETITIONS: usize = 7;
/// After this time a connection has failed.
const PATIENCE: Span = Span::from_secs(2);

/// One way of copying, and what it costs at the best and at the worst pair of offsets.
#[derive(Clone, Debug, PartialEq)]
pub struct CopyCost {
    /// Its name.
    pub way: &'static str,
    /// At the fastest pair of offsets.
    pub best: PlacedCopy,
    /// At the slowest.
    pub worst: PlacedCopy,
}

impl CopyCost {
    /// How many times as long the slowest pair takes.
    #[must_use]
    pub fn ratio(&self) -> f64 {
        self.worst.time.as_ns_f64() / self.best.time.as_ns_f64().max(1.0)
    }
}

/// A measured copy: its time, and the offsets of both ends in their pages.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PlacedCopy {
    /// The shortest of several copies.
    pub time: Span,
    /// The offset of the source in bytes.
    pub source: usize,
    /// The offset of the target in bytes.
    pub target: usize,
}

/// Measures each way that this process may use, in a few tens of milliseconds. A way that fails is left out.
#[must_use]
pub fn copy_costs() -> Vec<CopyCost> {
    let by_memcpy = |source: &[u8], target: &mut [u8]| {
        std::hint::black_box(target).copy_from_slice(std::hint::black_box(source));
        Ok(())
    };
    let by_socket = TcpPair::new().ok();
    let by_socket = by_socket.map(|pair| {
        let copy = move |source: &[u8], target: &mut [u8]| pair.copy(source, target);
        copy_cost("TCP on the loopback", copy)
    });
    let own = [copy_cost("memcpy", by_memcpy), copy_cost("process_vm_readv", read_own_memory)];
    own.into_iter().flatten().chain(by_socket.flatten()).collect()
}

/// Measures one way at all pairs of offsets; `None` if it fails.
fn copy_cost(
    way: &'static str,
    mut copy: impl FnMut(&[u8], &mut [u8]) -> io::Result<()>,
) -> Option<CopyCost> {
    let [source, mut target] = [(); 2].map(|()| vec![1_u8; COPY_LEN + 2 * PAGE]);
    let starts = [&source, &target].map(|memory| memory.as_ptr().align_offset(PAGE));
    let mut all = Vec::new();
    for from in OFFSETS {
        for to in OFFSETS {
            let source = &source[starts[0] + from..][..COPY_LEN];
            let target = &mut target[starts[1] + to..][..COPY_LEN];
            let time = shortest(|| copy(source, target)).ok()?;
            all.push(PlacedCopy { time, source: from, target: to });
        }
    }
    let best = *all.iter().min_by_key(|copy| copy.time)?;
    let worst = *all.iter().max_by_key(|copy| copy.time)?;
    Some(CopyCost { way, best, worst })
}

fn shortest(mut copy: impl FnMut() -> io::Result<()>) -> io::Result<Span> {
    let clock = Clock::get();
    let mut shortest = None::<Span>;
    for _ in 0..REPETITIONS {
        let begin = clock.now();
        copy()?;
        let took = clock.now().since(begin);
        shortest = Some(shortest.map_or(took, |other| other.min(took)));
    }
    Ok(shortest.unwrap_or_default())
}

/// Copies by process_vm_readv(2), from this process to itself.
fn read_own_memory(source: &[u8], target: &mut [u8]) -> io::Result<()> {
    let local = libc::iovec { iov_base: target.as_mut_ptr().cast(), iov_len: target.len() };
    let remote = libc::iovec { iov_base: source.as_ptr().cast_mut().cast(), iov_len: source.len() };
    // SAFETY: the kernel writes to `target`, which is borrowed mutably, and reads `source`. Test: each_way_copies_all.
    let copied =
        unsafe { libc::process_vm_readv(std::process::id().cast_signed(), &local, 1, &remote, 1, 0) };
    match usize::try_from(copied) {
        Ok(copied) if copied == source.len() => Ok(()),
        Ok(_) => Err(io::Error::other("process_vm_readv read only a part")),
        Err(_) => Err(io::Error::last_os_error()),
    }
}

/// Both ends of a TCP connection.
struct TcpPair {
    near: TcpStream,
    far: TcpStream,
}

impl TcpPair {
    fn new() -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let near = TcpStream::connect(listener.local_addr()?)?;
        let (far, peer) = listener.accept()?;
        if near.local_addr()? != peer {
            return Err(io::Error::other("another process has connected"));
        }
        for end in [&near, &far] {
            end.set_nodelay(true)?;
            end.set_nonblocking(true)?;
        }
        Ok(Self { near, far })
    }

    /// Sends `source` and receives it into `target`.
    fn copy(&self, source: &[u8], target: &mut [u8]) -> io::Result<()> {
        let clock = Clock::get();
        let deadline: Time = clock.now() + PATIENCE;
        let (mut sent, mut received) = (0, 0);
        while received < target.len() {
            if sent < source.len() {
                sent += moved((&self.near).write(&source[sent..]))?;
            }
            received += moved((&self.far).read(&mut target[received..]))?;
            if clock.now() > deadline {
                return Err(ErrorKind::TimedOut.into());
            }
        }
        Ok(())
    }
}

/// The number of bytes that a call without waiting has moved.
fn moved(result: io::Result<usize>) -> io::Result<usize> {
    match result {
        Ok(0) => Err(ErrorKind::UnexpectedEof.into()),
        Err(why) if matches!(why.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => Ok(0),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_way_copies_all() {
        let source: Vec<u8> = (0..=255).cycle().take(COPY_LEN).collect();
        let pair = TcpPair::new().expect("a connection");
        for by_socket in [false, true] {
            let mut target = vec![0; COPY_LEN];
            let copied = match by_socket {
                false => read_own_memory(&source, &mut target),
                true => pair.copy(&source, &mut target),
            };
            assert!(copied.is_ok() && source == target, "{copied:?}");
        }
    }

    #[test]
    fn costs_name_the_offsets_of_both_extremes() {
        let costs = copy_costs();
        assert!(costs.iter().any(|cost| cost.way == "memcpy"), "{costs:?}");
        for cost in &costs {
            assert!(cost.best.time <= cost.worst.time && cost.ratio() >= 1.0, "{cost:?}");
            let offsets = [cost.best.source, cost.best.target, cost.worst.source, cost.worst.target];
            assert!(offsets.iter().all(|offset| OFFSETS.contains(offset)), "{cost:?}");
        }
    }

    #[test]
    fn a_way_that_fails_has_no_cost() {
        assert_eq!(copy_cost("none", |_, _| Err(ErrorKind::Other.into())), None);
    }
}
