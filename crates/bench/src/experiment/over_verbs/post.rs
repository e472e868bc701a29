//! `post`: the time of the calls that post a send or a receive, without the transfer.

use crate::experiment::loops::calls::{CALL_US, Call, Calls, SAMPLES};
use crate::experiment::{Experiment, Fault, Metric, Sampling, Session, Side};
use results::variant::{Variant, factor, variant};

pub(crate) struct Post;

impl Experiment for Post {
    fn name(&self) -> &'static str {
        "post"
    }

    fn about(&self) -> &'static str {
        "the calls that post a send from host memory, or a receive into it"
    }

    fn explain(&self) -> &'static str {
        include_str!("../explain/post.md")
    }

    fn variants(&self, _quick: bool) -> Vec<Variant> {
        ["send", "recv"].map(|op| variant(&[(factor::OP, op)])).to_vec()
    }

    fn usual_sizes(&self, _quick: bool) -> Option<&'static [u64]> {
        Some(&[8])
    }

    fn metric(&self, _variant: &Variant) -> Metric {
        CALL_US
    }

    fn sampling(&self, _variant: &Variant) -> Sampling {
        SAMPLES
    }

    fn prepare(&self, session: &mut Session<'_>) -> Result<Box<dyn Side>, Fault> {
        let call = match session.cell.factor(factor::OP)? {
            "send" => Call::PostSend,
            "recv" => Call::PostRecv,
            other => return Err(Fault::Meaningless(format!("posting of {other}"))),
        };
        Ok(Box::new(Calls::prepare(session, call)?))
    }
}
