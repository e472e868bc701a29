//! `maxsge`: latency and bandwidth of single-segment messages when requests may have up to s segments (thesis 2.2.10,
//! Figure 3.10): the cost of unused segments.

use crate::experiment::harness::contract::level;
use crate::experiment::harness::variants::over;
use crate::experiment::loops::traffic::{self, Shape, Traffic};
use crate::experiment::{Axis, Experiment, Fault, Metric, Sampling, Session, Side};
use results::variant::{Variant, factor};

pub(crate) struct MaxSge;

const SGE: Axis = Axis { factor: factor::SGE, low: 1, high: 1024, about: "pieces that a request may have" };

impl Experiment for MaxSge {
    fn name(&self) -> &'static str {
        "maxsge"
    }

    fn about(&self) -> &'static str {
        "the cost of queue pairs whose requests may have many pieces, for requests of one piece"
    }

    fn explain(&self) -> &'static str {
        include_str!("../explain/maxsge.md")
    }

    fn axes(&self) -> &'static [Axis] {
        &[SGE]
    }

    fn variants(&self, quick: bool) -> Vec<Variant> {
        let (short, all) = (["1", "16"], ["1", "2", "4", "8", "12", "16", "20", "24", "28"]);
        over(&traffic::quantities(), SGE.factor, if quick { &short } else { &all })
    }

    fn usual_sizes(&self, _quick: bool) -> Option<&'static [u64]> {
        Some(&[64])
    }

    fn metric(&self, variant: &Variant) -> Metric {
        traffic::metric(variant)
    }

    fn sampling(&self, variant: &Variant) -> Sampling {
        traffic::sampling(variant)
    }

    fn prepare(&self, session: &mut Session<'_>) -> Result<Box<dyn Side>, Fault> {
        let pieces_max = level(session.cell, &SGE)?;
        Ok(Box::new(Traffic::prepare(session, Shape { pieces_max, ..Shape::PLAIN })?))
    }
}
