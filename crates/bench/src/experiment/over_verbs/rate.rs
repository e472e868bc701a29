//! `rate`: how many small messages per second one queue pair carries, with selective signaling.

use crate::experiment::harness::variants::usual;
use crate::experiment::loops::stream::{Flow, Stream};
use crate::experiment::{Experiment, Fault, Metric, Sampling, Scale, Session, Side};
use results::variant::{Variant, factor};

pub(crate) struct Rate;

impl Experiment for Rate {
    fn name(&self) -> &'static str {
        "rate"
    }

    fn about(&self) -> &'static str {
        "8-byte writes or sends in a second over one queue pair, one in W/2 signalled"
    }

    fn explain(&self) -> &'static str {
        include_str!("../explain/rate.md")
    }

    fn variants(&self, quick: bool) -> Vec<Variant> {
        let mut all = usual("write", quick);
        all.extend(usual("send", quick));
        all
    }

    fn only_size(&self, _variant: &Variant) -> Option<u64> {
        Some(8)
    }

    fn metric(&self, _variant: &Variant) -> Metric {
        Metric {
            name: "message_rate",
            unit: "1/s",
            about: "messages of a burst over the time from its first post to its last completion, of sends to the acknowledgement of the last",
            scale: Scale::Rate,
        }
    }

    fn sampling(&self, _variant: &Variant) -> Sampling {
        Sampling::LONG
    }

    fn prepare(&self, session: &mut Session<'_>) -> Result<Box<dyn Side>, Fault> {
        // Sends consume receives, which the other side reposts if it takes part.
        let flow = if session.cell.variant.is(factor::OP, "send") { Flow::Push } else { Flow::Local };
        Ok(Box::new(Stream::prepare(session, flow)?))
    }
}
