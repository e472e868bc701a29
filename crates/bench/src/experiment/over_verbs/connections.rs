//! `connections`: latency and bandwidth over q queue pairs that share one pair of completion queues; messages use
//! each in turn (thesis 2.2.9, Figures 3.8 and 3.9).

use crate::experiment::harness::contract::level;
use crate::experiment::harness::variants::over;
use crate::experiment::loops::traffic::{self, Shape, Traffic};
use crate::experiment::{Axis, Cell, Experiment, Fault, Metric, Needs, Sampling, Session, Settings, Side};
use results::variant::{Variant, factor};

pub(crate) struct Connections;

const QPS: Axis =
    Axis { factor: factor::QPS, low: 1, high: 16_384, about: "queue pairs that messages rotate over" };

impl Experiment for Connections {
    fn name(&self) -> &'static str {
        "connections"
    }

    fn about(&self) -> &'static str {
        "latency and bandwidth over 1 to 1024 queue pairs in turn, on one completion queue"
    }

    fn explain(&self) -> &'static str {
        include_str!("../explain/connections.md")
    }

    fn axes(&self) -> &'static [Axis] {
        &[QPS]
    }

    fn variants(&self, quick: bool) -> Vec<Variant> {
        let short = ["1", "16", "256"];
        let all = ["1", "2", "4", "8", "16", "32", "64", "128", "256", "512", "1024"];
        over(&traffic::quantities(), QPS.factor, if quick { &short } else { &all })
    }

    fn usual_sizes(&self, _quick: bool) -> Option<&'static [u64]> {
        Some(&[64, 64 << 10])
    }

    fn needs(&self, cell: &Cell, _settings: &Settings) -> Needs {
        let connections = level(cell, &QPS).unwrap_or(1);
        Needs { bytes: traffic::bytes(cell.size, 1), processes: 2, connections }
    }

    fn metric(&self, variant: &Variant) -> Metric {
        traffic::metric(variant)
    }

    fn sampling(&self, variant: &Variant) -> Sampling {
        traffic::sampling(variant)
    }

    fn prepare(&self, session: &mut Session<'_>) -> Result<Box<dyn Side>, Fault> {
        let connections = level(session.cell, &QPS)?;
        Ok(Box::new(Traffic::prepare(session, Shape { connections, ..Shape::PLAIN })?))
    }
}
