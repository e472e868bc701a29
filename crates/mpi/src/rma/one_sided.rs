//! [`OneSided`]: which one-sided operations are sent as messages.

/// Which one-sided operations are sent as messages, by size. All processes of a job use the same values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OneSided {
    /// Puts of up to this many bytes; 0: none.
    pub put_max: u64,
    /// Gets of up to this many bytes; 0: none.
    pub get_max: u64,
}

impl OneSided {
    /// All operations are messages.
    pub const MESSAGES: Self = Self { put_max: u64::MAX, get_max: u64::MAX };
}
