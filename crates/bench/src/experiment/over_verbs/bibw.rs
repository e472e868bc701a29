//! `bibw`: both sides stream simultaneously on one connection; the bytes of both directions over the time.

use crate::experiment::harness::variants::{over_two_ports, usual};
use crate::experiment::loops::stream::{Flow, Stream};
use crate::experiment::{Experiment, Fault, Metric, Sampling, Scale, Session, Side};
use results::variant::Variant;

pub(crate) struct Bibw;

impl Experiment for Bibw {
    fn name(&self) -> &'static str {
        "bibw"
    }

    fn about(&self) -> &'static str {
        "both sides stream at the same time; the sum of both directions"
    }

    fn explain(&self) -> &'static str {
        include_str!("../explain/bibw.md")
    }

    fn variants(&self, quick: bool) -> Vec<Variant> {
        let mut all = usual("write", quick);
        if !quick {
            all.extend(usual("send", false));
            all.extend(over_two_ports());
        }
        all
    }

    fn metric(&self, _variant: &Variant) -> Metric {
        Metric {
            name: "bandwidth",
            unit: "MB/s",
            about: "bytes of both directions over the time from the start signal to the last completion on either side",
            scale: Scale::Bandwidth(2.0),
        }
    }

    fn sampling(&self, _variant: &Variant) -> Sampling {
        Sampling::LONG
    }

    fn prepare(&self, session: &mut Session<'_>) -> Result<Box<dyn Side>, Fault> {
        Ok(Box::new(Stream::prepare(session, Flow::Both)?))
    }
}
