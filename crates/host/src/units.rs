//! Units: points in time, spans, sizes and rates, so that no quantity is a bare integer.

use std::fmt;
use std::ops::{Add, AddAssign, Div, Mul, Sub};

const PS_PER_NS: u64 = 1_000;

/// A point in time, in picoseconds since an epoch that each [`crate::Host`] fixes at its start.
///
/// Picoseconds, because a 64-byte cell takes 1.28 ns at 400 Gb/s; 64 bits of picoseconds last 213 days.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(u64);

/// A length of time in picoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span(u64);

impl Time {
    /// The epoch of the clock.
    pub const ZERO: Self = Self(0);

    /// The point `ps` picoseconds after the epoch.
    pub const fn from_ps(ps: u64) -> Self {
        Self(ps)
    }

    /// Picoseconds since the epoch.
    pub const fn as_ps(self) -> u64 {
        self.0
    }

    /// The span since `earlier`; zero if `earlier` is later.
    pub const fn since(self, earlier: Self) -> Span {
        Span(self.0.saturating_sub(earlier.0))
    }
}

impl Span {
    /// A span of zero.
    pub const ZERO: Self = Self(0);

    /// `ps` picoseconds.
    pub const fn from_ps(ps: u64) -> Self {
        Self(ps)
    }

    /// `ns` nanoseconds.
    pub const fn from_ns(ns: u64) -> Self {
        Self(ns.saturating_mul(PS_PER_NS))
    }

    /// `us` microseconds.
    pub const fn from_us(us: u64) -> Self {
        Self::from_ns(us.saturating_mul(1_000))
    }

    /// `ms` milliseconds.
    pub const fn from_ms(ms: u64) -> Self {
        Self::from_us(ms.saturating_mul(1_000))
    }

    /// `s` seconds.
    pub const fn from_secs(s: u64) -> Self {
        Self::from_ms(s.saturating_mul(1_000))
    }

    /// The span in whole picoseconds.
    pub const fn as_ps(self) -> u64 {
        self.0
    }

    /// Whole nanoseconds, rounded down.
    pub const fn as_ns(self) -> u64 {
        self.0 / PS_PER_NS
    }

    /// Nanoseconds with their fraction.
    pub fn as_ns_f64(self) -> f64 {
        self.0 as f64 / 1e3
    }

    /// Seconds with their fraction.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e12
    }

    /// The span for the standard library, rounded down to nanoseconds.
    pub const fn to_std(self) -> std::time::Duration {
        std::time::Duration::from_nanos(self.as_ns())
    }
}

impl From<std::time::Duration> for Span {
    fn from(d: std::time::Duration) -> Self {
        Self::from_ns(u64::try_from(d.as_nanos()).unwrap_or(u64::MAX))
    }
}

impl Add<Span> for Time {
    type Output = Self;
    fn add(self, s: Span) -> Self {
        Self(self.0.saturating_add(s.0))
    }
}

impl Sub for Time {
    type Output = Span;
    fn sub(self, earlier: Self) -> Span {
        self.since(earlier)
    }
}

impl Add for Span {
    type Output = Self;
    fn add(self, o: Self) -> Self {
        Self(self.0.saturating_add(o.0))
    }
}

impl AddAssign for Span {
    fn add_assign(&mut self, o: Self) {
        *self = *self + o;
    }
}

impl Mul<u64> for Span {
    type Output = Self;
    fn mul(self, n: u64) -> Self {
        Self(self.0.saturating_mul(n))
    }
}

impl Div<u64> for Span {
    type Output = Self;
    fn div(self, n: u64) -> Self {
        Self(self.0 / n.max(1))
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ns = self.as_ns_f64();
        match ns {
            n if n < 1e3 => write!(f, "{n:.1} ns"),
            n if n < 1e6 => write!(f, "{:.2} us", n / 1e3),
            n if n < 1e9 => write!(f, "{:.2} ms", n / 1e6),
            n => write!(f, "{:.2} s", n / 1e9),
        }
    }
}

/// A size in bytes; printed with binary prefixes, parsed from `64`, `4K`, `1MiB`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bytes(pub u64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let n = self.0;
        match n {
            0 => write!(f, "0 B"),
            n if n % (1 << 30) == 0 => write!(f, "{} GiB", n >> 30),
            n if n % (1 << 20) == 0 => write!(f, "{} MiB", n >> 20),
            n if n % (1 << 10) == 0 => write!(f, "{} KiB", n >> 10),
            n => write!(f, "{n} B"),
        }
    }
}

/// Why a text is not a size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BadSize {
    /// It does not start with a whole number.
    Number(String),
    /// The text after the number is not a unit.
    Unit(String),
    /// It is 2^64 bytes or more.
    TooLarge(String),
}

impl fmt::Display for BadSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(text) => write!(f, "'{text}' is no size: it must start with a whole number"),
            Self::Unit(text) => {
                write!(f, "'{text}' is no size: write a number and one of B, K, M, G (powers of 1024)")
            }
            Self::TooLarge(text) => write!(f, "'{text}' is too large for a size"),
        }
    }
}

impl std::error::Error for BadSize {}

impl std::str::FromStr for Bytes {
    type Err = BadSize;

    fn from_str(text: &str) -> Result<Self, BadSize> {
        let t = text.trim();
        let digits = t.find(|c: char| !c.is_ascii_digit()).unwrap_or(t.len());
        let (number, suffix) = t.split_at(digits);
        let shift = match suffix.trim().to_ascii_lowercase().as_str() {
            "" | "b" => 0,
            "k" | "kib" => 10,
            "m" | "mib" => 20,
            "g" | "gib" => 30,
            _ => return Err(BadSize::Unit(text.to_owned())),
        };
        let n: u64 = number.parse().map_err(|_| BadSize::Number(text.to_owned()))?;
        let whole = n.checked_shl(shift).filter(|v| v >> shift == n);
        whole.map(Self).ok_or_else(|| BadSize::TooLarge(text.to_owned()))
    }
}

/// A data rate in bytes per second; printed in MB/s with MB = 10^6.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd)]
pub struct Rate(pub f64);

impl Rate {
    /// The rate at which `bytes` moved in `span`; infinite for a span of zero.
    pub fn of(bytes: Bytes, span: Span) -> Self {
        Self(bytes.0 as f64 / span.as_secs_f64())
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.1} MB/s", self.0 / 1e6)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_parse_and_print() {
        for (text, n) in [("64", 64), ("4K", 4096), ("1MiB", 1 << 20), ("2 g", 2 << 30), ("0", 0)] {
            assert_eq!(text.parse::<Bytes>(), Ok(Bytes(n)), "{text}");
        }
        for text in ["", "K", "4X", "-1", "99999999999999999G", "1.5K"] {
            assert!(text.parse::<Bytes>().is_err(), "{text}");
        }
        assert_eq!(Bytes(4096).to_string(), "4 KiB");
        assert_eq!(Bytes(1000).to_string(), "1000 B");
    }

    #[test]
    fn time_saturates_instead_of_wrapping() {
        let t = Time::from_ps(u64::MAX) + Span::from_secs(1);
        assert_eq!(t.as_ps(), u64::MAX);
        assert_eq!(Time::ZERO.since(t), Span::ZERO);
        assert_eq!(Span::from_us(3).to_string(), "3.00 us");
    }
}
