//! What the orchestrator and its workers say to each other: JSON lines on a socket that is the worker's standard input.

use std::io::{self, BufReader, Write};
use std::os::unix::net::UnixStream;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use verbs::host::bounded;

use super::wire::{Hello, Setup};
use crate::against::Against;
use crate::experiment::driver::Record;
use crate::experiment::{Cell, Settings};
use crate::token::Token;
use results::schema::{ClockInfo, NoiseSummary, PeerInfo, RateInterval};

/// Maximum samples that are analysed individually; of more samples, a uniform selection is.
const KEEP_MAX: u64 = 1 << 18;
/// Bytes of a line at most.
const LINE_MAX: u64 = 64 << 20;

/// The orchestrator's first line to a worker.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "role", rename_all = "snake_case")]
pub(super) enum Job {
    /// Wait for the client of this run, at a port of the loopback address that is reported.
    Server {
        /// The run's secret.
        token: Token,
        /// The core to be pinned to.
        core: Option<usize>,
    },
    /// Measure.
    Client(ClientJob),
    /// Be the server of a client that `nicety serve` has heard up to here.
    Guest {
        /// Identifies the process.
        hello: Hello,
        /// What it wants, on a device of the server's choice.
        setup: Setup,
    },
}

/// What a client needs to know.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct ClientJob {
    /// The secret of the run, or that of this user and the peers.
    pub(super) token: Option<Token>,
    /// Whether the others are processes of this very run.
    pub(super) own: bool,
    /// The core to be pinned to.
    pub(super) core: Option<usize>,
    /// The core that a peer elsewhere is asked to use.
    pub(super) peer_core: Option<usize>,
    /// `HOST:PORT` of the ranks from 1 on.
    pub(super) connect: Vec<String>,
    /// Device.
    pub(super) device: String,
    /// Another MPI library, if one is measured for comparison.
    pub(super) against: Option<Against>,
    /// How to measure.
    pub(super) settings: Settings,
    /// What to measure, in order, with the number that each goes by.
    pub(super) cells: Vec<(usize, Cell)>,
    /// How to sample; the clock is the worker's own to add.
    pub(super) sampling: Sampling,
    /// Milliseconds between two reports of a stream; 0 for no reports.
    #[serde(default)]
    pub(super) interval_ms: u64,
}

/// The part of [`crate::sample::Plan`] that is chosen by the orchestrator.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Sampling {
    pub(super) half_width_target: f64,
    pub(super) samples_min: u64,
    pub(super) samples_max: u64,
    pub(super) time_min_ns: f64,
    pub(super) time_max_ns: f64,
    pub(super) round_max: u64,
    #[serde(default)]
    pub(super) round_time_ns: Option<f64>,
    pub(super) batch: Option<u64>,
    #[serde(default)]
    pub(super) warm_up: u64,
    pub(super) seed: u64,
}

impl From<crate::sample::Plan> for Sampling {
    fn from(p: crate::sample::Plan) -> Self {
        Self {
            half_width_target: p.half_width_target,
            samples_min: p.samples_min,
            samples_max: p.samples_max,
            time_min_ns: p.time_min_ns,
            time_max_ns: p.time_max_ns,
            round_max: p.round_max,
            round_time_ns: p.round_time_ns,
            batch: p.batch,
            warm_up: p.warm_up,
            seed: p.seed,
        }
    }
}

impl Sampling {
    /// The sampler's plan with a clock.
    pub(super) fn plan(&self, clock: ClockInfo) -> crate::sample::Plan {
        crate::sample::Plan {
            half_width_target: self.half_width_target,
            samples_min: self.samples_min,
            samples_max: self.samples_max,
            time_min_ns: self.time_min_ns,
            time_max_ns: self.time_max_ns,
            round_max: self.round_max,
            round_time_ns: self.round_time_ns,
            batch: self.batch,
            warm_up: self.warm_up,
            seed: self.seed,
            samples_kept_max: self.samples_max.min(KEEP_MAX) as usize,
            clock: crate::sample::Calibration {
                kind: clock.kind,
                overhead_ns: clock.overhead_ns,
                resolution_ns: clock.resolution_ns,
            },
            ..crate::sample::Plan::default()
        }
    }
}

/// A worker's lines to the orchestrator.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "news", rename_all = "snake_case")]
pub(super) enum News {
    /// A server waits here.
    Listening {
        /// `HOST:PORT`.
        addr: String,
    },
    /// A client has to wait for a peer.
    Waiting {
        /// For which, and how many are before it.
        what: String,
    },
    /// A client has begun.
    Begun {
        /// Its clock.
        clock: ClockInfo,
        /// Noise before.
        noise: Option<NoiseSummary>,
        /// The core it runs on.
        core: Option<usize>,
        /// What the device chose at its start.
        notes: Vec<String>,
        /// The hosts of the others, if those are not processes of this very run.
        peers: Vec<PeerInfo>,
    },
    /// A cell begins.
    Cell {
        /// Its number.
        index: usize,
    },
    /// A stream has moved this much.
    Moved {
        /// The cell's number.
        index: usize,
        /// In which time.
        interval: RateInterval,
    },
    /// A cell is measured.
    Measured {
        /// Its number.
        index: usize,
        /// All readings.
        record: Record,
        /// How often the kernel took the client off its core meanwhile.
        switches: u64,
    },
    /// A cell cannot be measured.
    Skipped {
        /// Its number.
        index: usize,
        /// Why.
        why: String,
        /// Whether it never will be: another launch need not try.
        never: bool,
    },
    /// A client has measured all, or a server has served its client to the end.
    Done {
        /// Noise after; a server's is unknown.
        noise: Option<NoiseSummary>,
    },
    /// It ends here.
    Failed {
        /// Why.
        why: String,
        /// The cell, if one was being measured.
        index: Option<usize>,
        /// Data arrived that was not sent.
        corrupt: bool,
    },
}

/// Writes a line.
pub(super) fn write_line<T: Serialize>(mut out: impl Write, what: &T) -> io::Result<()> {
    let mut line = serde_json::to_vec(what)?;
    line.push(b'\n');
    out.write_all(&line)
}

/// Reads lines without ever taking more than there is; for sockets that are polled.
#[derive(Debug)]
pub(super) struct Lines {
    input: BufReader<UnixStream>,
    partial: Vec<u8>,
}

impl Lines {
    pub(super) fn new(stream: UnixStream) -> Self {
        Self { input: BufReader::with_capacity(1 << 16, stream), partial: Vec::new() }
    }

    /// The next whole line; blocks only as the socket does. `None` at the end.
    pub(super) fn next<T: DeserializeOwned>(&mut self) -> io::Result<Option<T>> {
        let room = LINE_MAX - self.partial.len() as u64;
        bounded::read_line(&mut self.input, room, &mut self.partial)?;
        if self.partial.last() != Some(&b'\n') {
            let cut_off = || io::Error::other("a line cut off");
            return if self.partial.is_empty() { Ok(None) } else { Err(cut_off()) };
        }
        let line = serde_json::from_slice(&self.partial);
        self.partial.clear();
        Ok(Some(line?))
    }

    /// Whether a line, or part of one, has been read ahead, which polling the socket would not show.
    pub(super) fn is_buffered(&self) -> bool {
        !self.input.buffer().is_empty()
    }

    pub(super) fn stream(&self) -> &UnixStream {
        self.input.get_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_come_whole_and_in_order_and_the_end_is_an_end() {
        let (a, b) = UnixStream::pair().expect("sockets");
        let mut lines = Lines::new(b);
        for index in 0..3 {
            write_line(&a, &News::Cell { index }).expect("written");
        }
        drop(a);
        for index in 0..3 {
            assert_eq!(lines.next::<News>().expect("whole"), Some(News::Cell { index }));
        }
        assert_eq!(lines.next::<News>().expect("the end"), None);
    }

    #[test]
    fn what_is_cut_off_or_no_news_is_an_error() {
        for text in ["{\"news\":\"cell\",\"ind", "nonsense\n", "{\"news\":\"unheard\"}\n"] {
            let (mut a, b) = UnixStream::pair().expect("sockets");
            a.write_all(text.as_bytes()).expect("written");
            drop(a);
            assert!(Lines::new(b).next::<News>().is_err(), "{text}");
        }
    }
}
