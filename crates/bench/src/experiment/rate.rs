//! `rate`: how many small messages one queue pair carries in a second, with selective signalling.

use super::stream::{Flow, Stream};
use super::variants::{FOUR, TWO, placements};
use super::{Experiment, Fault, Metric, Sampling, Scale, Session, Side, Variant};

pub(super) struct Rate;

impl Experiment for Rate {
    fn name(&self) -> &'static str {
        "rate"
    }

    fn about(&self) -> &'static str {
        "8-byte writes in a second over one queue pair, one in W/2 signalled"
    }

    fn explain(&self) -> &'static str {
        include_str!("explain/rate.md")
    }

    fn variants(&self, quick: bool) -> Vec<Variant> {
        placements("write", if quick { &TWO } else { &FOUR })
    }

    fn only_size(&self, _variant: &Variant) -> Option<u64> {
        Some(8)
    }

    fn metric(&self, _variant: &Variant) -> Metric {
        Metric {
            name: "message_rate",
            unit: "1/s",
            about: "messages of a burst over the time from its first post to its last completion",
            scale: Scale::Rate,
        }
    }

    fn sampling(&self, _variant: &Variant) -> Sampling {
        Sampling::LONG
    }

    fn prepare(&self, session: &mut Session<'_>) -> Result<Box<dyn Side>, Fault> {
        Ok(Box::new(Stream::prepare(session, Flow::Local)?))
    }
}
