//! [`prefetch`]: prefetches cache lines that will be used soon.

/// Bytes of a cache line.
pub(crate) const LINE: usize = 64;

/// Prefetches `lines` cache lines, starting with the one that contains `address`. Only a hint: unmapped memory is not
/// fetched.
#[inline]
pub fn prefetch(address: usize, lines: usize) {
    #[cfg(target_arch = "x86_64")]
    for line in 0..lines {
        // SAFETY: a prefetch has no architectural effect, and no address makes it fault. Test:
        // prefetch_accepts_any_address.
        unsafe {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            let address = std::ptr::without_provenance(address.wrapping_add(line * LINE));
            _mm_prefetch::<_MM_HINT_T0>(address);
        }
    }
    #[cfg(target_arch = "aarch64")]
    for line in 0..lines {
        let address = address.wrapping_add(line * LINE);
        // SAFETY: as above.
        unsafe {
            std::arch::asm!("prfm pldl1keep, [{address}]", address = in(reg) address, options(nostack, preserves_flags, readonly));
        }
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let _ = (address, lines, LINE);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefetch_accepts_any_address() {
        for address in [0, 1, 1 << 47, usize::MAX - 100, std::ptr::from_ref(&LINE).addr()] {
            prefetch(address, 4);
        }
    }
}
