//! `memory`: what an open queue pair costs in memory, at both ends together.
//!
//! Both sides open many connections with queues of default size; the growth of their memory (private and their
//! share of what is shared) is divided by the number. Completion queues are shared and not counted; neither is memory
//! of the kernel, such as socket buffers.

use std::net::SocketAddr;

use verbs::{Cm, ConnParam, Cq, Pd, Qp, QpInit};

use super::link::{establish, reachable};
use super::{Experiment, Fault, Metric, Round, Sampling, Scale, Session, Side, Variant, variant};

pub(super) struct Memory;

impl Experiment for Memory {
    fn name(&self) -> &'static str {
        "memory"
    }

    fn about(&self) -> &'static str {
        "memory of an open queue pair with default queues, both ends together"
    }

    fn variants(&self, _quick: bool) -> Vec<Variant> {
        vec![variant(&[("queues", "default")])]
    }

    fn only_size(&self, _variant: &Variant) -> Option<u64> {
        Some(0)
    }

    fn metric(&self, _variant: &Variant) -> Metric {
        Metric {
            name: "memory_per_queue_pair",
            unit: "B",
            about: "growth of both processes' memory over the number of connections opened",
            scale: Scale::Plain,
        }
    }

    fn sampling(&self) -> Sampling {
        Sampling { long: true, samples: Some(1) }
    }

    fn prepare(&self, session: &mut Session<'_>) -> Result<Box<dyn Side>, Fault> {
        let pd = session.device.alloc_pd()?;
        let cq = session.device.create_cq(256)?;
        Ok(Box::new(Crowd { pd, cq, count: session.settings.connections }))
    }
}

struct Crowd {
    pd: Pd,
    cq: Cq,
    count: u32,
}

impl Crowd {
    /// Opens all connections, and says how much memory this side then holds more than before.
    fn grow(&self, session: &mut Session<'_>) -> Result<f64, Fault> {
        let mut qps: Vec<Qp> = Vec::with_capacity(self.count as usize);
        let cm = session.device.create_cm()?;
        let listener = if session.is_client() {
            None
        } else {
            let listener = cm.listen(session.listen_addr()?, 16)?;
            session.tell(&listener.addr())?;
            Some(listener)
        };
        let addr: Option<SocketAddr> = if listener.is_none() { Some(session.hear()?) } else { None };
        // The first connection pays for what all of them share.
        qps.push(self.open(session, &cm, addr)?);
        let before = gauge(session)?;
        for _ in 1..=self.count {
            qps.push(self.open(session, &cm, addr)?);
        }
        let growth = gauge(session)? - before;
        // Nobody closes before both have looked.
        session.tell(&())?;
        session.hear::<()>()?;
        Ok(growth)
    }

    fn open(&self, session: &mut Session<'_>, cm: &Cm, addr: Option<SocketAddr>) -> Result<Qp, Fault> {
        let qp = self.pd.create_qp(&QpInit::new(&self.cq))?;
        let deadline = session.deadline();
        match addr {
            Some(addr) => {
                let addr = reachable(addr, session)?;
                cm.connect(&qp, addr, &ConnParam::default())?;
                establish(cm, &[], 1, deadline)?;
            }
            None => establish(cm, &[&qp], 1, deadline)?,
        }
        Ok(qp)
    }
}

fn gauge(session: &Session<'_>) -> Result<f64, Fault> {
    (session.gauge)()
        .map(|bytes| bytes as f64)
        .ok_or_else(|| Fault::Machine("it does not say how much memory a process holds".into()))
}

impl Side for Crowd {
    fn round(
        &mut self,
        session: &mut Session<'_>,
        round: Round,
        readings: &mut Vec<f64>,
    ) -> Result<(), Fault> {
        for _ in 0..round.operations() {
            let mine = self.grow(session)?;
            if session.is_client() {
                let theirs: f64 = session.hear()?;
                readings.push(((mine + theirs) / f64::from(self.count)).max(0.0));
            } else {
                session.tell(&mine)?;
            }
        }
        Ok(())
    }

    fn note(&self) -> Option<String> {
        Some(format!("over {} connections; completion queues and kernel memory not counted", self.count))
    }
}
