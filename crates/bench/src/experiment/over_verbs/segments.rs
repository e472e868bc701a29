//! `segments`: latency and bandwidth of messages of g equal pieces, gathered at the sender and scattered at the receiver
//! (thesis 2.2.10, Figure 3.11). The size is that of the whole message.

use crate::experiment::harness::contract::level;
use crate::experiment::harness::variants::over;
use crate::experiment::loops::traffic::{self, Shape, Traffic};
use crate::experiment::{Axis, Experiment, Fault, Metric, Sampling, Session, Side};
use results::variant::{Variant, factor};

pub(crate) struct Segments;

const SEGMENTS: Axis =
    Axis { factor: factor::SEGMENTS, low: 1, high: 1024, about: "equal pieces of a message" };

impl Experiment for Segments {
    fn name(&self) -> &'static str {
        "segments"
    }

    fn about(&self) -> &'static str {
        "latency and bandwidth of messages that are gathered from, and scattered to, several pieces"
    }

    fn explain(&self) -> &'static str {
        include_str!("../explain/segments.md")
    }

    fn axes(&self) -> &'static [Axis] {
        &[SEGMENTS]
    }

    fn variants(&self, quick: bool) -> Vec<Variant> {
        let (short, all) = (["1", "4"], ["1", "2", "4", "8", "16"]);
        over(&traffic::quantities(), SEGMENTS.factor, if quick { &short } else { &all })
    }

    fn usual_sizes(&self, quick: bool) -> Option<&'static [u64]> {
        Some(if quick { &[64, 4096] } else { &[64, 256, 1024, 4096, 16_384] })
    }

    fn metric(&self, variant: &Variant) -> Metric {
        traffic::metric(variant)
    }

    fn sampling(&self, variant: &Variant) -> Sampling {
        traffic::sampling(variant)
    }

    fn prepare(&self, session: &mut Session<'_>) -> Result<Box<dyn Side>, Fault> {
        let pieces = level(session.cell, &SEGMENTS)?;
        Ok(Box::new(Traffic::prepare(session, Shape { pieces, pieces_max: pieces, ..Shape::PLAIN })?))
    }
}
