//! `bilat`: both sides send at the same moment and wait for the other's message; each iteration has one each way.

use crate::experiment::harness::variants::{FOUR, TWO, placements, usual};
use crate::experiment::loops::pingpong::PingPong;
use crate::experiment::{Experiment, Fault, Metric, Scale, Session, Side};
use results::variant::Variant;

pub(crate) struct Bilat;

impl Experiment for Bilat {
    fn name(&self) -> &'static str {
        "bilat"
    }

    fn about(&self) -> &'static str {
        "both sides send at the same moment and wait for the other's message"
    }

    fn explain(&self) -> &'static str {
        include_str!("../explain/bilat.md")
    }

    fn variants(&self, quick: bool) -> Vec<Variant> {
        let mut all = usual("write", quick);
        all.extend(placements("send", if quick { &TWO[..1] } else { &FOUR[..] }));
        all
    }

    fn metric(&self, _variant: &Variant) -> Metric {
        Metric {
            name: "bidirectional_latency",
            unit: "us",
            about: "from the own send to the arrival of the peer's, both sent at the same time; not halved",
            scale: Scale::Time(1.0),
        }
    }

    fn prepare(&self, session: &mut Session<'_>) -> Result<Box<dyn Side>, Fault> {
        Ok(Box::new(PingPong::prepare(session, true)?))
    }
}
