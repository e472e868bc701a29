//! `rail-bandwidth`, `rail-bibw`, `rail-latency`, `rail-breakdown`: the multirail paper's benchmarks, over uDAPL. The rails
//! are in the benchmark: it opens an adapter for each, all register the same buffer, and a message is cut into a part for
//! each. One thread serves all rails in turn, or each rail has a thread of its own.
//!
//! | file | what it holds |
//! |---|---|
//! | `rail` | one rail: adapter, endpoint, region; what is posted to it and waited for |
//! | `crew` | the threads of the rails behind the first |
//! | `side` | an operation: twenty writes, then a message each way |
//! | `bounds` | what the rails could do together, by the paper's equations |

pub(crate) mod bounds;
mod crew;
mod rail;
mod side;

use super::{Experiment, Fault, Metric, Sampling, Scale, Session, Side, Variant, variant};
use side::{Engine, Flow, Part, Rails};

/// RDMA writes of an operation (MR-022 to MR-024).
pub(crate) const WRITES: u64 = 20;

/// The factor that says who serves the rails.
const ENGINE: &str = "engine";

/// A single rail, all rails by one thread, all rails by a thread each.
const ENGINES: [&str; 3] = ["single", "serial", "threads"];

fn engines() -> Vec<Variant> {
    ENGINES.iter().map(|engine| variant(&[(ENGINE, engine)])).collect()
}

fn prepare(session: &mut Session<'_>, flow: Flow, part: Part) -> Result<Box<dyn Side>, Fault> {
    let engine = match session.cell.factor(ENGINE)? {
        "single" => Engine::Single,
        "serial" => Engine::Serial,
        "threads" => Engine::Threads,
        other => return Err(Fault::Meaningless(format!("an engine called {other}"))),
    };
    Ok(Box::new(Rails::prepare(session, engine, flow, part)?))
}

/// Bandwidth one way: E1 to E3.
pub(super) struct RailBandwidth;

impl Experiment for RailBandwidth {
    fn name(&self) -> &'static str {
        "rail-bandwidth"
    }

    fn about(&self) -> &'static str {
        "uDAPL over one rail, over all by one thread, over all by a thread each: writes one way"
    }

    fn explain(&self) -> &'static str {
        include_str!("../explain/rail-bandwidth.md")
    }

    fn variants(&self, _quick: bool) -> Vec<Variant> {
        engines()
    }

    fn metric(&self, _variant: &Variant) -> Metric {
        Metric {
            name: "bandwidth",
            unit: "MB/s",
            about: "bytes of 20 writes over the time from the first post until the peer's answer to the message behind \
                    them",
            scale: Scale::Bandwidth(1.0),
        }
    }

    fn sampling(&self, _variant: &Variant) -> Sampling {
        Sampling::LONG
    }

    fn prepare(&self, session: &mut Session<'_>) -> Result<Box<dyn Side>, Fault> {
        prepare(session, Flow::One, Part::All)
    }
}

/// Bandwidth both ways: E4.
pub(super) struct RailBibw;

impl Experiment for RailBibw {
    fn name(&self) -> &'static str {
        "rail-bibw"
    }

    fn about(&self) -> &'static str {
        "the same with writes both ways at once; the sum of both directions"
    }

    fn explain(&self) -> &'static str {
        include_str!("../explain/rail-bibw.md")
    }

    fn variants(&self, _quick: bool) -> Vec<Variant> {
        engines()
    }

    fn metric(&self, _variant: &Variant) -> Metric {
        Metric {
            name: "bandwidth",
            unit: "MB/s",
            about: "bytes of 20 writes each way over the time from the first post until both sides have all of them",
            scale: Scale::Bandwidth(2.0),
        }
    }

    fn sampling(&self, _variant: &Variant) -> Sampling {
        Sampling::LONG
    }

    fn prepare(&self, session: &mut Session<'_>) -> Result<Box<dyn Side>, Fault> {
        prepare(session, Flow::Both, Part::All)
    }
}

/// Latency: E5.
pub(super) struct RailLatency;

impl Experiment for RailLatency {
    fn name(&self) -> &'static str {
        "rail-latency"
    }

    fn about(&self) -> &'static str {
        "a twentieth of what 20 small writes and a message each way take over uDAPL, by rails"
    }

    fn explain(&self) -> &'static str {
        include_str!("../explain/rail-latency.md")
    }

    fn variants(&self, _quick: bool) -> Vec<Variant> {
        engines()
    }

    fn usual_sizes(&self, quick: bool) -> Option<&'static [u64]> {
        Some(if quick { &[8, 512, 4096] } else { &[8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096] })
    }

    fn metric(&self, _variant: &Variant) -> Metric {
        Metric {
            name: "time_per_write",
            unit: "us",
            about: "a twentieth of the time from the first of 20 posts until the peer's answer to the message behind them",
            scale: Scale::Time(1.0),
        }
    }

    fn sampling(&self, _variant: &Variant) -> Sampling {
        Sampling::LONG
    }

    fn prepare(&self, session: &mut Session<'_>) -> Result<Box<dyn Side>, Fault> {
        prepare(session, Flow::One, Part::All)
    }
}

/// Where the time goes: E6.
pub(super) struct RailBreakdown;

impl Experiment for RailBreakdown {
    fn name(&self) -> &'static str {
        "rail-breakdown"
    }

    fn about(&self) -> &'static str {
        "of the same: the time until the last write is posted, and the time waiting for the answer"
    }

    fn explain(&self) -> &'static str {
        include_str!("../explain/rail-breakdown.md")
    }

    fn variants(&self, _quick: bool) -> Vec<Variant> {
        super::over(&engines(), "part", &["post", "wait"])
    }

    fn usual_sizes(&self, _quick: bool) -> Option<&'static [u64]> {
        Some(&[512, 4096])
    }

    fn metric(&self, _variant: &Variant) -> Metric {
        Metric {
            name: "time",
            unit: "us",
            about: "post: from the first post until the last of 20 writes is posted; wait: in waits for events; with threads \
                    those of the first rail's",
            scale: Scale::Time(1.0 / WRITES as f64),
        }
    }

    fn sampling(&self, _variant: &Variant) -> Sampling {
        Sampling::LONG
    }

    fn prepare(&self, session: &mut Session<'_>) -> Result<Box<dyn Side>, Fault> {
        let part = match session.cell.factor("part")? {
            "post" => Part::Post,
            "wait" => Part::Wait,
            other => return Err(Fault::Meaningless(format!("a part called {other}"))),
        };
        prepare(session, Flow::One, part)
    }
}
