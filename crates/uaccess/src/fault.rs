//! [`Fault`]: which side of a copy could not be accessed.

/// The side of a copy that could not be accessed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The memory that was read.
    Source,
    /// The memory that was written.
    Target,
}

impl Fault {
    /// The side of a copy of `n` bytes to `dst` that an address belongs to.
    #[cold]
    pub(crate) fn side(dst: *mut u8, n: usize, at: usize) -> Self {
        if at.wrapping_sub(dst.addr()) < n { Self::Target } else { Self::Source }
    }
}
