//! Test patterns, comparisons that print differences, and memory with expected contents.

use std::os::fd::BorrowedFd;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use host::Rng;
use verbs::{Mr, Wc, WcOpcode, WcStatus};

/// Bytes that identify their origin: another seed or a shift by any number of bytes is detected.
pub(crate) fn pattern(seed: u64, len: usize) -> Vec<u8> {
    Rng::new(seed.wrapping_mul(0x0123_4567_89ab_cdef)).bytes(len)
}

/// Compares bytes; on failure prints only the first differences.
#[track_caller]
pub(crate) fn assert_same_bytes(what: &str, got: &[u8], want: &[u8]) {
    assert_eq!(got.len(), want.len(), "{what}: lengths differ");
    if got == want {
        return;
    }
    let differing: Vec<usize> = (0..got.len()).filter(|&i| got[i] != want[i]).collect();
    let (first, last) = (differing[0], differing[differing.len() - 1]);
    let end = got.len().min(first + 16);
    panic!(
        "{what}: {} of {} bytes differ, between {first} and {last}; from {first}: got {:02x?}, want {:02x?}",
        differing.len(),
        got.len(),
        &got[first..end],
        &want[first..end]
    );
}

/// Registered memory together with its expected contents; bytes that no test wrote serve as canaries.
pub(crate) struct Shadow<'a> {
    mr: &'a Mr,
    want: Vec<u8>,
}

impl<'a> Shadow<'a> {
    /// Fills all of the region with a pattern.
    #[track_caller]
    pub(crate) fn new(mr: &'a Mr, seed: u64) -> Self {
        let want = pattern(seed, mr.buf().len());
        mr.buf().write(0, &want).expect("the whole buffer");
        Self { mr, want }
    }

    /// Expects these bytes from now on.
    pub(crate) fn expect(&mut self, offset: usize, bytes: &[u8]) {
        self.want[offset..offset + bytes.len()].copy_from_slice(bytes);
    }

    /// The expected bytes of a range.
    pub(crate) fn bytes(&self, offset: usize, len: usize) -> Vec<u8> {
        self.want[offset..offset + len].to_vec()
    }

    #[track_caller]
    pub(crate) fn check(&self, what: &str) {
        let got = self.mr.buf().to_vec(0..self.want.len()).expect("the whole buffer");
        assert_same_bytes(what, &got, &self.want);
    }
}

/// Checks that a completion is a success of this request.
#[track_caller]
pub(crate) fn expect_success(wc: Wc, wr_id: u64, opcode: WcOpcode) -> Wc {
    assert_eq!((wc.status, wc.wr_id, wc.opcode), (WcStatus::Success, wr_id, opcode), "{wc:?}");
    wc
}

/// Checks that a completion is this failure of this request.
#[track_caller]
pub(crate) fn expect_failure(wc: Wc, wr_id: u64, status: WcStatus) {
    assert_eq!((wc.status, wc.wr_id), (status, wr_id), "{wc:?}");
}

/// Checks that a completion is one of several legal failures of this request.
#[track_caller]
pub(crate) fn expect_failure_among(wc: Wc, wr_id: u64, legal: &[WcStatus]) {
    assert_eq!(wc.wr_id, wr_id, "{wc:?}");
    assert!(legal.contains(&wc.status), "{wc:?}: expected one of {legal:?}");
}

/// Whether the descriptor, if there is one, is readable now.
pub(crate) fn readable(fd: Option<BorrowedFd<'_>>) -> Option<bool> {
    let fd = fd?;
    let mut fds = [PollFd::new(&fd, PollFlags::IN)];
    Some(poll(&mut fds, Some(&Timespec::default())).expect("poll(2)") == 1)
}
