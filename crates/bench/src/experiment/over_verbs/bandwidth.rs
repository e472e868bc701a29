//! `bandwidth`: one side pushes (or reads) a stream of messages with W in flight, refilled by W/2.
//!
//! Timed at the initiator from the first post of a burst to the peer's acknowledgement that the last message has
//! arrived; for reads, which arrive at the initiator, to the last completion. Bandwidth is bytes over that time, so
//! its mean is the harmonic one.

use crate::experiment::harness::endpoint::OFFSETS;
use crate::experiment::harness::variants::{FOUR, over, over_two_ports, placements, usual};
use crate::experiment::loops::stream::{Flow, Stream};
use crate::experiment::{Axis, Experiment, Fault, Metric, Sampling, Scale, Session, Side};
use results::variant::{Variant, factor};

/// Windows whose bandwidths are compared; all other variants use `--set window`.
const WINDOWS: [&str; 6] = ["2", "4", "8", "16", "128", "1024"];

pub(crate) struct Bandwidth;

impl Experiment for Bandwidth {
    fn name(&self) -> &'static str {
        "bandwidth"
    }

    fn about(&self) -> &'static str {
        "one side streams: write, send or read with a window in flight, until the last is acknowledged"
    }

    fn explain(&self) -> &'static str {
        include_str!("../explain/bandwidth.md")
    }

    fn added_axes(&self) -> &'static [Axis] {
        &OFFSETS
    }

    fn variants(&self, quick: bool) -> Vec<Variant> {
        let mut all = placements("write", &FOUR);
        all.extend(usual("send", quick));
        all.extend(usual("read", quick));
        if !quick {
            all.extend(over(&placements("write", &[("host", "host")]), factor::WINDOW, &WINDOWS));
            all.extend(over_two_ports());
        }
        all
    }

    fn metric(&self, _variant: &Variant) -> Metric {
        Metric {
            name: "bandwidth",
            unit: "MB/s",
            about: "bytes of a burst over the time from its first post to the acknowledgement of its last message",
            scale: Scale::Bandwidth(1.0),
        }
    }

    fn sampling(&self, _variant: &Variant) -> Sampling {
        Sampling::LONG
    }

    fn prepare(&self, session: &mut Session<'_>) -> Result<Box<dyn Side>, Fault> {
        Ok(Box::new(Stream::prepare(session, Flow::Push)?))
    }
}
