//! Data path: a buffer of each thread, for copies by the kernel whose distance would make them slow
//! ([`nic_util::string_moves`]).

use std::cell::RefCell;

/// The length of the buffer. Each system call costs as much as copying 20 KiB; the buffer has to stay in the second-level
/// cache together with its source.
pub(crate) const LEN: usize = 128 << 10;

/// The shortest block that goes through the buffer. A second copy of a shorter one saves little.
pub(crate) const BLOCK_MIN: usize = 2048;

const PAGE: usize = 4096;

thread_local! {
    /// Allocated by the thread's first copy at a slow distance, which few programs have.
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Calls a function with room for [`LEN`] bytes at this offset modulo the page size. `None` while the thread ends.
pub(crate) fn with_buffer<R>(offset: usize, work: impl FnOnce(*mut u8) -> R) -> Option<R> {
    let with = |buffer: &RefCell<Vec<u8>>| {
        let mut buffer = buffer.borrow_mut();
        buffer.resize(LEN + PAGE, 0);
        let base = buffer.as_mut_ptr();
        work(base.wrapping_add(offset.wrapping_sub(base.addr()) % PAGE))
    };
    BUFFER.try_with(with).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffer_has_the_offset_and_the_room() {
        for offset in [0, 1, 16, 4095, 4096, 123_456_789] {
            let at = with_buffer(offset, |at| at).expect("a buffer");
            let range = BUFFER.with(|buffer| buffer.borrow().as_ptr_range());
            assert_eq!(at.addr() % PAGE, offset % PAGE);
            assert!(range.contains(&at.cast_const()) && at.wrapping_add(LEN).cast_const() <= range.end);
        }
    }
}
