//! Data path: placement. All accesses to user memory: reading from a socket into place, gathering into a socket,
//! copies and atomics. The callers hold the lock of a queue pair and have just checked the memory's registration. A
//! program may have unmapped it nevertheless: copies then return a [`Fault`], and system calls fail with
//! [`Errno::FAULT`].

use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd};

use iwarp::crc::Crc;
use iwarp::rdmap::AtomicOp;
use iwarp::rx::{GAP_MAX, gap_len};
use rustix::io::Errno;

use nic_util::sg_list::{Fault, SGE_MAX, SgList, copy_last_byte_last, scatter};

/// Maximum number of entries of one gathered write.
const GATHER_MAX: usize = 128;

/// The data of one send system call.
pub(crate) struct Gather {
    list: [MaybeUninit<libc::iovec>; GATHER_MAX],
    count: usize,
    total: usize,
}

impl Gather {
    pub(crate) fn new() -> Self {
        Self { list: [const { MaybeUninit::uninit() }; GATHER_MAX], count: 0, total: 0 }
    }

    /// Whether the entries of another FPDU may not fit.
    pub(crate) fn is_full(&self) -> bool {
        self.count + SGE_MAX + 2 > GATHER_MAX
    }

    pub(crate) fn total(&self) -> usize {
        self.total
    }

    /// Appends bytes without the first `skip`; subtracts the skipped bytes from `skip`.
    pub(crate) fn push(&mut self, at: *const u8, len: usize, skip: &mut usize) {
        let skipped = len.min(*skip);
        *skip -= skipped;
        if self.count < GATHER_MAX && len > skipped {
            let iovec =
                libc::iovec { iov_base: at.wrapping_add(skipped).cast_mut().cast(), iov_len: len - skipped };
            self.list[self.count].write(iovec);
            self.count += 1;
            self.total += len - skipped;
        }
    }

    pub(crate) fn push_bytes(&mut self, bytes: &[u8], skip: &mut usize) {
        self.push(bytes.as_ptr(), bytes.len(), skip);
    }

    pub(crate) fn push_list(&mut self, list: &SgList, skip: &mut usize) {
        for piece in list.as_slice() {
            self.push(piece.iov_base.cast(), piece.iov_len, skip);
        }
    }
}

fn result(n: isize) -> Result<usize, Errno> {
    usize::try_from(n).map_err(|_| {
        Errno::from_raw_os_error(std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO))
    })
}

/// Sends bytes of the connection's own buffers, as many as the socket accepts.
#[inline]
pub(crate) fn send_run(socket: BorrowedFd<'_>, run: &[u8]) -> Result<usize, Errno> {
    let (at, len, flags) = (run.as_ptr(), run.len(), libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT);
    // SAFETY: the kernel reads `len` bytes of a slice. A bare system call, because the C library's wrapper is a
    // cancellation point, which costs two atomic operations in programs with threads. Test:
    // gather_skips_sent_bytes.
    result(unsafe { libc::syscall(libc::SYS_sendto, socket.as_raw_fd(), at, len, flags, 0_usize, 0_usize) }
        as isize)
}

/// Sends what was gathered, as much as the socket accepts.
pub(crate) fn send(socket: BorrowedFd<'_>, gather: &mut Gather) -> Result<usize, Errno> {
    let flags = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;
    // SAFETY: an all-zero header has no address and no control data.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = gather.list.as_mut_ptr().cast();
    message.msg_iovlen = gather.count as _;
    // SAFETY: the first `count` entries are initialized. They refer to memory of the connection itself, or to memory
    // whose registration the caller has checked. The kernel only reads it, and reports unmapped memory. Test: `write`
    // and `send_recv` of the conformance suite.
    result(unsafe { libc::sendmsg(socket.as_raw_fd(), &raw const message, flags) })
}

/// Reads the next bytes into a buffer of the connection; returns 0 at the end of the stream.
#[inline]
pub(crate) fn read_ahead(socket: BorrowedFd<'_>, into: &mut [u8]) -> Result<usize, Errno> {
    let (at, len, flags) = (into.as_mut_ptr(), into.len(), libc::MSG_DONTWAIT);
    // SAFETY: the kernel writes at most `len` bytes to a slice; a bare system call as in `send_run`.
    // Test: read_fills_pieces_before_buffer.
    result(unsafe { libc::syscall(libc::SYS_recvfrom, socket.as_raw_fd(), at, len, flags, 0_usize, 0_usize) }
        as isize)
}

/// Reads the next bytes into these entries: memory that the peer may write to, and buffers of the connection.
fn read_entries(socket: BorrowedFd<'_>, list: &[libc::iovec]) -> Result<usize, Errno> {
    // SAFETY: as `send`; the kernel writes into the entries, which the callers have checked or own. Tests: the group `write` of the
    // suite, and segments_of_any_size_are_placed.
    result(unsafe { libc::readv(socket.as_raw_fd(), list.as_ptr(), list.len() as i32) })
}

/// Reads the next bytes into the entries, and the bytes after them into `tail`; returns 0 at the end of the stream.
pub(crate) fn receive(socket: BorrowedFd<'_>, into: &SgList, tail: &mut [u8]) -> Result<usize, Errno> {
    let mut list = [libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }; SGE_MAX + 1];
    let count = into.as_slice().len();
    list[..count].copy_from_slice(into.as_slice());
    list[count] = libc::iovec { iov_base: tail.as_mut_ptr().cast(), iov_len: tail.len() };
    read_entries(socket, &list[..=count])
}

/// The segments of a long message that one call reads: payload, gap, payload... and what follows.
pub(crate) struct ReadAhead {
    /// Memory for the payload of all segments, which follow each other there.
    at: *mut u8,
    /// Payload bytes of each segment.
    lens: [usize; SEGMENTS_MAX],
    count: usize,
    /// Bytes of a segment that is followed by another.
    next: usize,
    gaps: [[u8; GAP_MAX]; SEGMENTS_MAX],
    behind: [u8; BEHIND],
}

/// The most segments that one call reads.
pub(crate) const SEGMENTS_MAX: usize = 9;
/// How much one call reads after them: the trailer and the header of the next segment, and a little more.
const BEHIND: usize = 256;

impl ReadAhead {
    /// `at` has `len` bytes for the current segment, and `room` more. If another segment follows, all but the last of the message
    /// have `next` bytes.
    pub(crate) fn new(at: *mut u8, len: usize, mut room: usize, next: Option<usize>) -> Self {
        let (mut lens, mut count) = ([0; SEGMENTS_MAX], 1);
        lens[0] = len;
        for part in &mut lens[1..] {
            *part = next.map_or(0, |next| next.min(room));
            room -= *part;
            count += usize::from(*part > 0);
        }
        let next = next.unwrap_or_default();
        Self { at, lens, count, next, gaps: [[0; GAP_MAX]; SEGMENTS_MAX], behind: [0; BEHIND] }
    }

    /// Payload bytes of each segment.
    pub(crate) fn lens(&self) -> &[usize] {
        &self.lens[..self.count]
    }

    /// Bytes between the payload of a segment and that of the next one. The first segment may be partly read already, but all that
    /// another one follows are equally long.
    fn gap_len(&self) -> usize {
        gap_len(self.next)
    }

    /// What was read behind the payload of a segment, if `n` bytes were read from there on, and the number of bytes behind that.
    pub(crate) fn gap(&self, number: usize, n: usize) -> (&[u8], usize) {
        let gap =
            if number + 1 < self.count { &self.gaps[number][..self.gap_len()] } else { &self.behind[..] };
        let len = gap.len().min(n);
        (&gap[..len], n - len)
    }

    /// Appends the first `n` bytes of the payload of a segment, which belong elsewhere.
    pub(crate) fn append_payload(&self, number: usize, n: usize, to: &mut Vec<u8>) -> Result<(), Fault> {
        let before: usize = self.lens[..number].iter().sum();
        append(self.at.wrapping_add(before), n.min(self.lens[number]), to)
    }

    /// Bytes that one call can read.
    pub(crate) fn total(&self) -> usize {
        self.lens().iter().sum::<usize>() + (self.count - 1) * self.gap_len() + BEHIND
    }

    /// Reads from a socket; returns the number of bytes, 0 at the end of the stream.
    pub(crate) fn read(&mut self, socket: BorrowedFd<'_>) -> Result<usize, Errno> {
        let mut list = [libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }; 2 * SEGMENTS_MAX];
        let (mut at, gap_len) = (self.at, self.gap_len());
        let gaps = self.gaps.iter_mut();
        for ((pair, len), gap) in list.chunks_exact_mut(2).zip(&self.lens[..self.count]).zip(gaps) {
            pair[0] = libc::iovec { iov_base: at.cast(), iov_len: *len };
            pair[1] = libc::iovec { iov_base: gap.as_mut_ptr().cast(), iov_len: gap_len };
            at = at.wrapping_add(*len);
        }
        list[2 * self.count - 1] =
            libc::iovec { iov_base: self.behind.as_mut_ptr().cast(), iov_len: self.behind.len() };
        read_entries(socket, &list[..2 * self.count])
    }
}

/// Copies bytes into entries of the same length, the last byte of each piece last.
pub(crate) fn copy_in(bytes: &[u8], list: &SgList) -> Result<(), Fault> {
    debug_assert!(bytes.len() as u64 >= list.total());
    if (bytes.len() as u64) < list.total() {
        return Ok(());
    }
    // SAFETY: both sides have this many bytes, and the entries were checked. Test: every group of the conformance
    // suite.
    unsafe { scatter(bytes.as_ptr(), list) }
}

/// Copies bytes to one place, the last byte last.
#[inline]
pub(crate) fn copy_to(bytes: &[u8], at: *mut u8) -> Result<(), Fault> {
    // SAFETY: the place was checked for this many bytes. Test: the group `write` of the conformance suite.
    unsafe { copy_last_byte_last(at, bytes.as_ptr(), bytes.len()) }
}

/// Copies entries into `to`, as many bytes as both have.
pub(crate) fn copy_out(list: &SgList, mut to: &mut [u8]) -> Result<(), Fault> {
    for piece in list.as_slice() {
        let n = piece.iov_len.min(to.len());
        let (now, rest) = to.split_at_mut(n);
        // SAFETY: `now` has `n` bytes, and the piece was checked and has at least as many. Peers may write to it
        // concurrently: the result is then a mixture of bytes, as on any NIC. Test: the group `send_recv` of the
        // suite with CRCs on.
        unsafe { copy_last_byte_last(now.as_mut_ptr(), piece.iov_base.cast(), n)? };
        to = rest;
    }
    Ok(())
}

/// Bytes to copy before computing their CRC: few enough to stay in the L1 cache. Alternating copy and CRC reaches 46
/// GB/s, a combined loop 40 (64 KiB, AVX-512).
const PART: usize = 4096;

/// Copies user memory to a buffer and continues a CRC. The CRC is computed over the copy, so they agree even if
/// another thread writes to the memory meanwhile.
pub(crate) fn copy_out_crc(list: &SgList, mut to: &mut [u8], mut crc: Crc) -> Result<Crc, Fault> {
    for piece in list.as_slice() {
        let (mut from, n) = (piece.iov_base.cast::<u8>(), piece.iov_len.min(to.len()));
        let (now, rest) = to.split_at_mut(n);
        for part in now.chunks_mut(PART) {
            // SAFETY: as in `copy_out`. Test: copies_and_crcs_agree.
            unsafe { copy_last_byte_last(part.as_mut_ptr(), from, part.len())? };
            crc.update(part);
            from = from.wrapping_add(part.len());
        }
        to = rest;
    }
    Ok(crc)
}

/// Appends bytes of user memory, or nothing if they cannot be read.
#[inline]
pub(crate) fn append(at: *const u8, len: usize, to: &mut Vec<u8>) -> Result<(), Fault> {
    to.reserve(len);
    // SAFETY: there is room for `len` bytes, and the memory was checked; as in `copy_out`, other threads may write to
    // it. Test: the group `write` of the suite.
    unsafe {
        copy_last_byte_last(to.as_mut_ptr().add(to.len()), at, len)?;
        to.set_len(to.len() + len);
    }
    Ok(())
}

/// Executes an atomic on eight aligned bytes; returns their previous value. `None` if they are not aligned or not
/// accessible.
pub(crate) fn atomic(at: *mut u8, op: AtomicOp) -> Option<u64> {
    let at = at.cast::<u64>();
    if !at.is_aligned() {
        return None;
    }
    // SAFETY: aligned, checked, and only accessed by raw copies and atomics. Test: the group `atomics` of the suite.
    unsafe { uaccess::update(at, |old| op.apply(old)) }.ok()
}

/// Whether all entries can be read at this moment.
pub(crate) fn is_readable(list: &SgList) -> bool {
    list.as_slice().iter().all(|piece| uaccess::is_readable(piece.iov_base.cast(), piece.iov_len))
}

/// Maximum segment size of TCP on this connection, in bytes.
pub(crate) fn segment_len(socket: BorrowedFd<'_>) -> Option<u32> {
    let (mut value, mut len) = (0_i32, size_of::<i32>() as libc::socklen_t);
    // SAFETY: the kernel writes at most `len` bytes to `value`. Test: fpdus_fit_segments.
    let done = unsafe {
        let at = (&raw mut value).cast();
        libc::getsockopt(socket.as_raw_fd(), libc::IPPROTO_TCP, libc::TCP_MAXSEG, at, &raw mut len)
    };
    (done == 0).then_some(value)?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsFd;

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let near = TcpStream::connect(listener.local_addr().expect("bound")).expect("a connection");
        (near, listener.accept().expect("a connection").0)
    }

    #[test]
    fn gather_skips_sent_bytes() {
        let (near, mut far) = pair();
        for skip in 0..=9 {
            let (mut gather, mut left) = (Gather::new(), skip);
            gather.push_bytes(b"abc", &mut left);
            gather.push_bytes(b"", &mut left);
            gather.push_bytes(b"defghi", &mut left);
            assert_eq!(gather.total(), 9 - skip);
            let mut got = vec![0; 9 - skip];
            if gather.total() > 0 {
                let half = (9 - skip) / 2;
                assert_eq!(send_run(near.as_fd(), &b"abcdefghi"[skip..][..half]), Ok(half));
                far.read_exact(&mut got[..half]).expect("what was sent");
                assert_eq!(send(near.as_fd(), &mut gather), Ok(9 - skip));
                far.read_exact(&mut got).expect("what was sent");
            }
            assert_eq!(got, &b"abcdefghi"[skip..]);
        }
    }

    #[test]
    fn read_fills_pieces_before_buffer() {
        let (mut near, far) = pair();
        near.write_all(b"0123456789").expect("sent");
        let (mut one, mut two, mut tail) = ([0_u8; 3], [0_u8; 2], [0_u8; 8]);
        let mut list = SgList::new();
        list.push(one.as_mut_ptr(), 3);
        list.push(two.as_mut_ptr(), 2);
        assert_eq!(receive(far.as_fd(), &list, &mut tail), Ok(10));
        assert_eq!((&one, &two, &tail[..5]), (b"012", b"34", b"56789".as_slice()));
        let mut back = [0; 4];
        assert_eq!(copy_out(&list, &mut back), Ok(()));
        assert_eq!(&back, b"0123");
        drop(near);
        assert_eq!(receive(far.as_fd(), &SgList::new(), &mut tail), Ok(0), "the end");
        assert_eq!(read_ahead(far.as_fd(), &mut tail), Ok(0), "still");
        let (near, far) = pair();
        assert_eq!(read_ahead(far.as_fd(), &mut tail), Err(Errno::AGAIN));
        assert_eq!(send_run(near.as_fd(), b"xyz"), Ok(3));
        assert_eq!((read_ahead(far.as_fd(), &mut tail), &tail[..3]), (Ok(3), b"xyz".as_slice()));
    }

    #[test]
    fn sending_to_closed_peer_fails() {
        let (near, far) = pair();
        drop(far);
        let error = (0..100).find_map(|_| {
            let (mut gather, mut none) = (Gather::new(), 0);
            gather.push_bytes(&[0; 100], &mut none);
            send(near.as_fd(), &mut gather).err()
        });
        assert!(matches!(error, Some(Errno::PIPE | Errno::CONNRESET)), "{error:?}");
    }

    #[test]
    fn copies_and_crcs_agree() {
        let source: Vec<u8> = (0..20_000_u32).map(|i| (i * 31 + i / 7) as u8).collect();
        for n in [
            0, 1, 7, 8, 9, 63, 64, 65, 1000, 1023, 1024, 1025, 1047, 1048, 3071, 3072, 3073, 4096, 6144,
            9999, 19_000,
        ] {
            let (first, second) = (n / 3, n - n / 3);
            let mut memory = vec![0_u8; n + 16];
            let mut list = SgList::new();
            list.push(memory.as_mut_ptr().wrapping_add(3), first as u64);
            list.push(memory.as_mut_ptr().wrapping_add(8 + first), second as u64);
            let whole = Crc::compute(&source[1..=n]);
            assert_eq!(copy_in(&source[1..=n], &list), Ok(()));
            assert_eq!(memory[3..3 + first], source[1..=first]);
            assert_eq!(memory[8 + first..8 + n], source[1 + first..=n]);
            assert!(memory[..3].iter().chain(&memory[8 + n..]).all(|&byte| byte == 0), "outside the pieces");
            let mut back = vec![0; n];
            assert_eq!(copy_out_crc(&list, &mut back, Crc::new()), Ok(whole), "{n} bytes out");
            assert_eq!(back, source[1..=n]);
        }
    }

    #[test]
    fn atomic_at_unaligned_address_fails() {
        let mut words = [5_u64, 7];
        let at = words.as_mut_ptr().cast::<u8>();
        let add = AtomicOp::FetchAdd { add: 3, mask: 0 };
        assert_eq!(atomic(at, add), Some(5));
        assert_eq!(atomic(at.wrapping_add(4), add), None);
        assert_eq!(words, [8, 7]);
    }

    #[test]
    fn fpdus_fit_segments() {
        let (near, _far) = pair();
        assert!(segment_len(near.as_fd()).is_some_and(|len| len >= 536));
    }
}
