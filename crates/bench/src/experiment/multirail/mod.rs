//! `rail-bandwidth`, `rail-bibw`, `rail-latency`, `rail-breakdown`: the multirail paper's benchmarks, over uDAPL. The
//! rails are in the benchmark: it opens an adapter for each, all register the same buffer, and a message is split
//! into a part for each. One thread drives all rails in turn, or each rail has its own thread.
//!
//! | file | contents |
//! |---|---|
//! | `rail` | one rail: adapter, endpoint, region; its posts and waits |
//! | `crew` | the threads of all rails but the first |
//! | `side` | an operation: twenty writes, then a message each way |

mod crew;
mod rail;
mod side;

use super::{Experiment, Fault, Metric, Sampling, Scale, Session, Side};
use results::variant::{Factor, Variant, factor, variant};
pub use side::WRITES;
use side::{Engine, Flow, Part, Rails};

/// The factor that selects which threads drive the rails.
const ENGINE: Factor = factor::ENGINE;

/// The factor that selects which part of an operation is timed.
const PART: Factor = factor::PART;

/// A single rail, all rails by one thread, all rails by a thread each.
const ENGINES: [&str; 3] = ["single", "serial", "threads"];

/// A multirail experiment: the timed part of a flow.
pub(super) struct OverRails {
    name: &'static str,
    about: &'static str,
    explain: &'static str,
    flow: Flow,
    /// Whether the parts of an operation are reported separately.
    parts: bool,
    /// The sizes of a quick run and of a full one, unless they are the usual ones.
    sizes: Option<[&'static [u64]; 2]>,
    metric: Metric,
}

/// Bandwidth one way: E1 to E3.
pub(super) const RAIL_BANDWIDTH: OverRails = OverRails {
    name: "rail-bandwidth",
    about: "uDAPL over one rail, over all by one thread, over all by a thread each: writes one way",
    explain: include_str!("../explain/rail-bandwidth.md"),
    flow: Flow::One,
    parts: false,
    sizes: None,
    metric: Metric {
        name: "bandwidth",
        unit: "MB/s",
        about: "bytes of 20 writes over the time from the first post until the peer's answer to the message behind them",
        scale: Scale::Bandwidth(1.0),
    },
};

/// Bandwidth both ways: E4.
pub(super) const RAIL_BIBW: OverRails = OverRails {
    name: "rail-bibw",
    about: "the same with writes both ways at the same time; the sum of both directions",
    explain: include_str!("../explain/rail-bibw.md"),
    flow: Flow::Both,
    parts: false,
    sizes: None,
    metric: Metric {
        name: "bandwidth",
        unit: "MB/s",
        about: "bytes of 20 writes each way over the time from the first post until both sides have received all",
        scale: Scale::Bandwidth(2.0),
    },
};

/// Latency over rails, the paper's experiment E5.
pub(super) const RAIL_LATENCY: OverRails = OverRails {
    name: "rail-latency",
    about: "a twentieth of what 20 small writes and a message each way take over uDAPL, by rails",
    explain: include_str!("../explain/rail-latency.md"),
    flow: Flow::One,
    parts: false,
    sizes: Some([&[8, 512, 4096], &[8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096]]),
    metric: Metric {
        name: "time_per_write",
        unit: "us",
        about: "a twentieth of the time from the first of 20 posts until the peer's answer to the message behind them",
        scale: Scale::Time(1.0),
    },
};

/// Where the time goes: E6.
pub(super) const RAIL_BREAKDOWN: OverRails = OverRails {
    name: "rail-breakdown",
    about: "of the same: the time until the last write is posted, and the time waiting for the answer",
    explain: include_str!("../explain/rail-breakdown.md"),
    flow: Flow::One,
    parts: true,
    sizes: Some([&[512, 4096], &[512, 4096]]),
    metric: Metric {
        name: "time",
        unit: "us",
        about: "post: from the first post until the last of 20 writes is posted; wait: in waits for events; with threads \
                those of the first rail's",
        scale: Scale::Time(1.0 / WRITES as f64),
    },
};

impl Experiment for OverRails {
    fn name(&self) -> &'static str {
        self.name
    }

    fn about(&self) -> &'static str {
        self.about
    }

    fn explain(&self) -> &'static str {
        self.explain
    }

    fn variants(&self, _quick: bool) -> Vec<Variant> {
        let engines: Vec<Variant> = ENGINES.iter().map(|engine| variant(&[(ENGINE, engine)])).collect();
        if self.parts { super::harness::variants::over(&engines, PART, &["post", "wait"]) } else { engines }
    }

    fn usual_sizes(&self, quick: bool) -> Option<&'static [u64]> {
        self.sizes.map(|[few, all]| if quick { few } else { all })
    }

    fn metric(&self, _variant: &Variant) -> Metric {
        self.metric
    }

    fn sampling(&self, _variant: &Variant) -> Sampling {
        Sampling::LONG
    }

    fn prepare(&self, session: &mut Session<'_>) -> Result<Box<dyn Side>, Fault> {
        let engine = match session.cell.factor(ENGINE)? {
            "single" => Engine::Single,
            "serial" => Engine::Serial,
            "threads" => Engine::Threads,
            other => return Err(Fault::Meaningless(format!("an engine called {other}"))),
        };
        let part = match if self.parts { session.cell.factor(PART)? } else { "all" } {
            "all" => Part::All,
            "post" => Part::Post,
            "wait" => Part::Wait,
            other => return Err(Fault::Meaningless(format!("a part called {other}"))),
        };
        Ok(Box::new(Rails::prepare(session, engine, self.flow, part)?))
    }
}
