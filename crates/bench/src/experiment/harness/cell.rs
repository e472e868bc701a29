//! [`Cell`]: one thing to measure, [`Metric`]: in what unit, and [`Settings`]: how. All are sent to the peer.

use serde::{Deserialize, Serialize};

use super::fault::Fault;
use super::limits::{self, BURST, CONNECTIONS, INLINE, MAX_SIZE, MOPS, PATIENCE, SIGNAL, SIZE, WINDOW};
use results::variant::{Factor, Variant};

/// One thing to measure.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Cell {
    /// Experiment, one of [`crate::experiment::all`].
    #[serde(deserialize_with = "limits::word")]
    pub experiment: String,
    /// Factors other than size.
    #[serde(deserialize_with = "limits::factors")]
    pub variant: Variant,
    /// Message size in bytes.
    #[serde(deserialize_with = "limits::within::<SIZE, _, _>")]
    pub size: u64,
    /// Second measurement of the same cell, for the noise floor; not a separate result.
    #[serde(default)]
    pub twin: bool,
}

impl Cell {
    /// A factor, or why the cell has no meaning.
    ///
    /// # Errors
    /// [`Fault::Meaningless`] when it is missing.
    pub fn factor(&self, factor: Factor) -> Result<&str, Fault> {
        self.variant
            .get(factor)
            .ok_or_else(|| Fault::Meaningless(format!("{} without {factor}", self.experiment)))
    }

    /// The size for a work request.
    ///
    /// # Errors
    /// [`Fault::Meaningless`] for 0 and beyond [`MAX_SIZE`].
    pub fn length(&self) -> Result<u32, Fault> {
        match u32::try_from(self.size) {
            Ok(n) if n > 0 && self.size <= MAX_SIZE => Ok(n),
            _ => Err(Fault::Meaningless(format!("a message of {} bytes", self.size))),
        }
    }
}

impl std::fmt::Display for Cell {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // A number alone does not show its meaning.
        let factor = |(key, value): (&str, &str)| match value.parse::<u64>() {
            Ok(_) => format!("{key} {value}"),
            Err(_) => value.to_owned(),
        };
        let factors: Vec<String> = self.variant.iter().map(factor).collect();
        let levels = factors.iter().fold(String::new(), |levels, level| levels + " " + level);
        write!(f, "{}{levels} {} B", self.experiment, self.size)
    }
}

/// How a reading becomes a value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Scale {
    /// Microseconds per operation, over this divisor (2 for half a round trip).
    Time(f64),
    /// 10^6 bytes per second, this many times the message's size per operation.
    Bandwidth(f64),
    /// Operations per second.
    Rate,
    /// The reading itself.
    Plain,
}

impl Scale {
    /// Seconds per operation.
    pub const SECONDS: Self = Self::Time(1e6);
}

/// The metric of an experiment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Metric {
    /// Name in the results, e.g. `one_way_latency`.
    pub name: &'static str,
    /// Its unit: `us`, `s`, `MB/s`, `1/s` or `B`.
    pub unit: &'static str,
    /// The timed interval.
    pub about: &'static str,
    /// Conversion from readings to values.
    pub scale: Scale,
}

impl Metric {
    /// The value of a reading (picoseconds, or the quantity itself) over `ops` operations of `size` bytes.
    #[must_use]
    pub fn value(&self, reading: f64, ops: u64, size: u64) -> f64 {
        let (ops, size) = (ops.max(1) as f64, size as f64);
        let ps = reading.max(1.0);
        match self.scale {
            Scale::Time(over) => ps / ops / over / 1e6,
            // Bytes per picosecond are 10^6 times MB/s.
            Scale::Bandwidth(times) => times * size * ops / ps * 1e6,
            Scale::Rate => ops / ps * 1e12,
            Scale::Plain => reading,
        }
    }
}

/// Bytes sent inline, if the device supports it.
const INLINE_DEFAULT: u32 = 64;

/// How to measure; chosen by the client, the same at both ends.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    /// Seed of data patterns and of the order of cells.
    pub seed: u64,
    /// Messages in flight in a stream; refilled by half.
    #[serde(deserialize_with = "limits::within::<WINDOW, _, _>")]
    pub window: u32,
    /// Messages of one timed burst of a stream; 0 chooses by size.
    #[serde(deserialize_with = "limits::within::<BURST, _, _>")]
    pub burst: u32,
    /// Whether bursts whose length is chosen by size are a quarter as long.
    pub short: bool,
    /// In ping-pongs, one of this many send requests is signaled; with 1, all requests of a stream, too.
    #[serde(deserialize_with = "limits::within::<SIGNAL, _, _>")]
    pub signal: u32,
    /// Maximum inline bytes of a send or write from host memory; 0 for none.
    #[serde(deserialize_with = "limits::within::<INLINE, _, _>")]
    pub inline: u32,
    /// Connections that the memory experiment opens.
    #[serde(deserialize_with = "limits::within::<CONNECTIONS, _, _>")]
    pub connections: u32,
    /// Millions of operations per second that a rank of a NAS kernel computes in virtual time; 0 for the kernel's
    /// default.
    #[serde(deserialize_with = "limits::within::<MOPS, _, _>")]
    pub mops: u32,
    /// Whether contents are compared after the timed rounds.
    pub verify: bool,
    /// Longest wait for the other side, in milliseconds.
    #[serde(deserialize_with = "limits::within::<PATIENCE, _, _>")]
    pub patience_ms: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            seed: 1,
            window: 64,
            burst: 0,
            short: false,
            signal: 16,
            inline: INLINE_DEFAULT,
            connections: 256,
            mops: 0,
            verify: true,
            patience_ms: 20_000,
        }
    }
}

impl Settings {
    /// Refuses settings that a hostile client could use against a server.
    ///
    /// # Errors
    /// [`Fault::Meaningless`] that names the first setting out of range.
    pub fn check(&self) -> Result<(), Fault> {
        let all = [
            (WINDOW, self.window.into()),
            (BURST, self.burst.into()),
            (SIGNAL, self.signal.into()),
            (INLINE, self.inline.into()),
            (CONNECTIONS, self.connections.into()),
            (MOPS, self.mops.into()),
            (PATIENCE, self.patience_ms),
        ];
        all.into_iter().try_for_each(|(row, value)| limits::check(row, value).map(drop))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use results::variant::factor;

    fn metric(scale: Scale) -> Metric {
        Metric { name: "m", unit: "u", about: "", scale }
    }

    #[test]
    fn readings_become_values_in_the_unit() {
        // 10 round trips in 20 us: 1 us one way.
        assert_eq!(metric(Scale::Time(2.0)).value(20e6, 10, 8), 1.0);
        // 1000 bytes, 10 times, in 1 us: 10 GB/s.
        assert_eq!(metric(Scale::Bandwidth(1.0)).value(1e6, 10, 1000), 10_000.0);
        assert_eq!(metric(Scale::Bandwidth(2.0)).value(1e6, 10, 1000), 20_000.0);
        assert_eq!(metric(Scale::Rate).value(1e6, 10, 8), 1e7);
        assert_eq!(metric(Scale::Plain).value(4096.0, 10, 8), 4096.0);
    }

    /// A clock that did not advance must not make an infinite rate.
    #[test]
    fn no_reading_makes_a_value_that_is_not_finite() {
        for scale in [Scale::Time(2.0), Scale::Bandwidth(1.0), Scale::Rate, Scale::Plain] {
            assert!(metric(scale).value(0.0, 0, MAX_SIZE).is_finite());
        }
    }

    #[test]
    fn settings_of_a_hostile_client_are_refused() {
        assert!(Settings::default().check().is_ok());
        assert!(Settings { window: 0, ..Settings::default() }.check().is_err());
        assert!(Settings { connections: u32::MAX, ..Settings::default() }.check().is_err());
        let cell = Cell { size: u64::MAX, ..Cell::default() };
        assert!(cell.length().is_err() && cell.factor(factor::OP).is_err());
        assert!(Cell { size: 0, ..Cell::default() }.length().is_err());
        assert_eq!(Cell { size: MAX_SIZE, ..Cell::default() }.length().ok(), Some(1 << 30));
    }
}
