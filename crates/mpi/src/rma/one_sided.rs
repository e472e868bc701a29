//! [`OneSided`]: which one-sided operations are messages.

/// Which one-sided operations go as messages, by their bytes. All processes of a job say the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OneSided {
    /// Puts of up to so many bytes; 0: none.
    pub put_max: u64,
    /// Gets of up to so many bytes; 0: none.
    pub get_max: u64,
}

impl OneSided {
    /// All of them.
    pub const MESSAGES: Self = Self { put_max: u64::MAX, get_max: u64::MAX };
}
