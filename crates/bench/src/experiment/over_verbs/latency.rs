//! `latency`: a ping-pong of single messages, or single fetches one after the other.
//!
//! Sends and writes are half a round trip: both sides do the same and each half is as long as the other. Reads and
//! atomics are whole operations, from the post to the completion, because no message is returned.

use crate::experiment::harness::endpoint::OFFSETS;
use crate::experiment::harness::variants::{FOUR, TWO, placements, usual};
use crate::experiment::loops::pingpong::PingPong;
use crate::experiment::{Axis, Experiment, Fault, Metric, Scale, Session, Side};
use results::variant::{Variant, factor};

pub(crate) struct Latency;

impl Experiment for Latency {
    fn name(&self) -> &'static str {
        "latency"
    }

    fn about(&self) -> &'static str {
        "one message at a time: send, write, write-imm (half a round trip), read, cas, fadd (whole operation)"
    }

    fn explain(&self) -> &'static str {
        include_str!("../explain/latency.md")
    }

    fn added_axes(&self) -> &'static [Axis] {
        &OFFSETS
    }

    fn variants(&self, quick: bool) -> Vec<Variant> {
        let mut all = placements("write", &FOUR);
        for op in ["send", "write-imm", "read"] {
            all.extend(usual(op, quick));
        }
        for op in ["cas", "fadd"] {
            all.extend(placements(op, &TWO));
        }
        all
    }

    fn only_size(&self, variant: &Variant) -> Option<u64> {
        matches!(variant.get(factor::OP), Some("cas" | "fadd")).then_some(8)
    }

    fn metric(&self, variant: &Variant) -> Metric {
        match variant.get(factor::OP) {
            Some("read" | "cas" | "fadd") => Metric {
                name: "operation_latency",
                unit: "us",
                about: "a whole operation: from the post to its completion at the initiator",
                scale: Scale::Time(1.0),
            },
            _ => Metric {
                name: "one_way_latency",
                unit: "us",
                about: "half the round trip of a ping-pong in which both directions do the same",
                scale: Scale::Time(2.0),
            },
        }
    }

    fn prepare(&self, session: &mut Session<'_>) -> Result<Box<dyn Side>, Fault> {
        Ok(Box::new(PingPong::prepare(session, false)?))
    }
}
