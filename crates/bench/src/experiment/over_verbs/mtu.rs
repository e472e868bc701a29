//! `mtu`: latency and bandwidth by the size of a connection's packets (thesis 2.2.11, Figure 3.12).

use crate::experiment::harness::contract::level;
use crate::experiment::harness::variants::over;
use crate::experiment::loops::traffic::{self, Shape, Traffic};
use crate::experiment::{Axis, Experiment, Fault, Metric, Sampling, Session, Side};
use results::variant::{Variant, factor};

pub(crate) struct Mtu;

const MTU: Axis = Axis { factor: factor::MTU, low: 256, high: 65_536, about: "bytes of data in a packet" };

impl Experiment for Mtu {
    fn name(&self) -> &'static str {
        "mtu"
    }

    fn about(&self) -> &'static str {
        "latency and bandwidth over connections whose packets have 256 to 4096 bytes of data"
    }

    fn explain(&self) -> &'static str {
        include_str!("../explain/mtu.md")
    }

    fn axes(&self) -> &'static [Axis] {
        &[MTU]
    }

    fn variants(&self, quick: bool) -> Vec<Variant> {
        let (short, all) = (["256", "2048"], ["256", "512", "1024", "2048", "4096"]);
        over(&traffic::quantities(), MTU.factor, if quick { &short } else { &all })
    }

    fn usual_sizes(&self, quick: bool) -> Option<&'static [u64]> {
        Some(if quick { &[64, 64 << 10] } else { &[64, 1024, 4096, 64 << 10, 1 << 20] })
    }

    fn possible(&self, device: &verbs::Device) -> Result<(), Fault> {
        let (pd, cq) = (device.alloc_pd()?, device.create_cq(1)?);
        Ok(pd.create_qp(&verbs::QpInit::new(&cq).mtu(MTU.low as u32)).map(drop)?)
    }

    fn metric(&self, variant: &Variant) -> Metric {
        traffic::metric(variant)
    }

    fn sampling(&self, variant: &Variant) -> Sampling {
        traffic::sampling(variant)
    }

    fn prepare(&self, session: &mut Session<'_>) -> Result<Box<dyn Side>, Fault> {
        let mtu = Some(level(session.cell, &MTU)?);
        Ok(Box::new(Traffic::prepare(session, Shape { mtu, ..Shape::PLAIN })?))
    }
}
