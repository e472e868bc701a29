//! `poll`: what one poll of a completion queue takes, when a receive has completed and when nothing has.

use crate::experiment::loops::calls::{CALL_US, Call, Calls, SAMPLES};
use crate::experiment::{Experiment, Fault, Metric, Sampling, Session, Side};
use results::variant::{Variant, factor, variant};

pub(crate) struct Poll;

impl Experiment for Poll {
    fn name(&self) -> &'static str {
        "poll"
    }

    fn about(&self) -> &'static str {
        "the call that takes a completion of a receive of 8 bytes from a queue, or finds none"
    }

    fn explain(&self) -> &'static str {
        include_str!("../explain/poll.md")
    }

    fn variants(&self, _quick: bool) -> Vec<Variant> {
        ["full", "empty"].map(|state| variant(&[(factor::STATE, state)])).to_vec()
    }

    fn only_size(&self, _variant: &Variant) -> Option<u64> {
        Some(8)
    }

    fn metric(&self, _variant: &Variant) -> Metric {
        CALL_US
    }

    fn sampling(&self, _variant: &Variant) -> Sampling {
        SAMPLES
    }

    fn prepare(&self, session: &mut Session<'_>) -> Result<Box<dyn Side>, Fault> {
        let call = match session.cell.factor(factor::STATE)? {
            "full" => Call::PollFull,
            "empty" => Call::PollEmpty,
            other => return Err(Fault::Meaningless(format!("a queue that is {other}"))),
        };
        Ok(Box::new(Calls::prepare(session, call)?))
    }
}
