//! [`Hints`]: a program's hints for collective input and output (MPI 5.0, section 14.2.8).

use crate::info::Info;

/// Whether a collective operation uses two-phase input and output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Buffering {
    /// If the processes' pieces interleave.
    #[default]
    Automatic,
    Always,
    Never,
}

/// The hints that have an effect. Others are dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hints {
    /// Number of aggregators (`cb_nodes`); `None`: all processes.
    pub(crate) nodes: Option<u32>,
    /// Bytes that an aggregator reads or writes per round (`cb_buffer_size`).
    pub(crate) buffer: u64,
    /// `romio_cb_read`, `romio_cb_write`; or `collective_buffering` for both.
    pub(crate) reading: Buffering,
    pub(crate) writing: Buffering,
}

/// Default of `cb_buffer_size`.
const BUFFER: u64 = 4 << 20;
/// Minimum of `cb_buffer_size`.
const BUFFER_MIN: u64 = 4096;

impl Default for Hints {
    fn default() -> Self {
        Self { nodes: None, buffer: BUFFER, reading: Buffering::default(), writing: Buffering::default() }
    }
}

fn hint_value(buffering: Buffering) -> &'static str {
    match buffering {
        Buffering::Automatic => "automatic",
        Buffering::Always => "enable",
        Buffering::Never => "disable",
    }
}

impl Hints {
    /// Applies the known hints. Invalid values are ignored, as MPI allows.
    pub(crate) fn update(&mut self, info: &Info) {
        for (key, value) in info.pairs() {
            let buffering = match value.as_str() {
                "enable" | "true" => Some(Buffering::Always),
                "disable" | "false" => Some(Buffering::Never),
                "automatic" => Some(Buffering::Automatic),
                _ => None,
            };
            match (key.as_str(), value.parse::<u64>().ok(), buffering) {
                ("cb_nodes", Some(nodes), _) => {
                    self.nodes = u32::try_from(nodes).ok().filter(|nodes| *nodes > 0)
                }
                ("cb_buffer_size", Some(bytes), _) => self.buffer = bytes.clamp(BUFFER_MIN, i32::MAX as u64),
                ("romio_cb_read", _, Some(buffering)) => self.reading = buffering,
                ("romio_cb_write", _, Some(buffering)) => self.writing = buffering,
                ("collective_buffering", _, Some(buffering)) => {
                    (self.reading, self.writing) = (buffering, buffering)
                }
                _ => {}
            }
        }
    }

    /// The hints in use, for `size` processes.
    pub(crate) fn info(&self, size: i32) -> Info {
        let nodes = self.nodes.map_or(size as u32, |nodes| nodes.min(size as u32));
        let pairs = [
            ("cb_nodes", nodes.to_string()),
            ("cb_buffer_size", self.buffer.to_string()),
            ("romio_cb_read", hint_value(self.reading).to_owned()),
            ("romio_cb_write", hint_value(self.writing).to_owned()),
        ];
        let mut info = Info::default();
        for (key, value) in pairs {
            // All keys and values are short enough.
            let _ = info.set(key, &value);
        }
        info
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hints_in_use_are_reported() {
        let mut info = Info::default();
        let given =
            [("cb_nodes", "2"), ("cb_buffer_size", "1"), ("romio_cb_write", "disable"), ("other", "x")];
        given.iter().for_each(|(key, value)| info.set(key, value).expect("short"));
        let mut hints = Hints::default();
        hints.update(&info);
        let shown = hints.info(4);
        let of = |key: &str| shown.get(key).expect("a key").map(str::to_owned);
        assert_eq!((of("cb_nodes").as_deref(), of("cb_buffer_size").as_deref()), (Some("2"), Some("4096")));
        assert_eq!(
            (of("romio_cb_write").as_deref(), of("romio_cb_read").as_deref()),
            (Some("disable"), Some("automatic"))
        );
        assert_eq!(of("other"), None);
        info.set("cb_nodes", "many").expect("short");
        let before = hints;
        hints.update(&info);
        assert_eq!(hints, before);
    }
}
