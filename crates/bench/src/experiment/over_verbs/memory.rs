//! `memory`: what an open queue pair costs in memory, at both ends together.
//!
//! Both sides open many connections with queues of default size; the growth of their memory (private and their
//! share of what is shared) is divided by the number. Completion queues are shared and not counted; neither is memory
//! of the kernel, such as socket buffers.

use results::variant::{Variant, factor, variant};
use std::net::SocketAddr;

use verbs::{Cm, ConnParam, Cq, Pd, Qp, QpInit};

use crate::experiment::harness::edge::meet;
use crate::experiment::harness::endpoint::{establish, reachable};
use crate::experiment::{
    Cell, Experiment, Fault, Metric, Needs, Round, Sampling, Scale, Session, Settings, Side,
};

pub(crate) struct Memory;

impl Experiment for Memory {
    fn name(&self) -> &'static str {
        "memory"
    }

    fn about(&self) -> &'static str {
        "memory of an open queue pair with default queues, both ends together"
    }

    fn explain(&self) -> &'static str {
        include_str!("../explain/memory.md")
    }

    fn variants(&self, _quick: bool) -> Vec<Variant> {
        vec![variant(&[(factor::QUEUES, "default")])]
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

    fn needs(&self, _cell: &Cell, settings: &Settings) -> Needs {
        Needs { processes: 2, connections: settings.connections.into(), ..Needs::default() }
    }

    fn sampling(&self, _variant: &Variant) -> Sampling {
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
    /// Opens all connections, and returns how much the memory of this side grew.
    fn grow(&self, session: &mut Session<'_>) -> Result<f64, Fault> {
        let cm = session.device.create_cm()?;
        let listener = if session.is_client() {
            None
        } else {
            // The client is never more than one request ahead; the room costs nothing.
            let listener = cm.listen(session.listen_addr(0)?, self.count.saturating_add(1))?;
            session.send_info(&listener.addr())?;
            Some(listener)
        };
        let addr = match listener {
            None => Some(reachable(session.receive_info()?, 1, session)?),
            Some(_) => None,
        };
        // The first connection pays for what all connections share.
        let first = self.open(session, &cm, addr, 1)?;
        let before = gauge(session)?;
        meet(session)?;
        let rest = self.open(session, &cm, addr, self.count)?;
        let growth = gauge(session)? - before;
        // Neither side closes before both have measured.
        meet(session)?;
        drop((first, rest));
        Ok(growth)
    }

    /// Opens `count` connections: one after the other as the client, as they arrive as the server.
    fn open(
        &self,
        session: &Session<'_>,
        cm: &Cm,
        addr: Option<SocketAddr>,
        count: u32,
    ) -> Result<Vec<Qp>, Fault> {
        let create = |_| self.pd.create_qp(&QpInit::new(&self.cq));
        let Some(addr) = addr else {
            let qps: Vec<Qp> = (0..count).map(create).collect::<Result<_, _>>()?;
            establish(session, cm, &qps.iter().collect::<Vec<_>>(), qps.len())?;
            return Ok(qps);
        };
        let connect = |index| {
            let qp = create(index)?;
            cm.connect(&qp, addr, &ConnParam::default())?;
            establish(session, cm, &[], 1)?;
            Ok(qp)
        };
        (0..count).map(connect).collect()
    }
}

fn gauge(session: &Session<'_>) -> Result<f64, Fault> {
    (session.gauge)()
        .map(|bytes| bytes as f64)
        .ok_or_else(|| Fault::Machine("it does not say how much memory a process holds".into()))
}

impl Side for Crowd {
    fn round(&mut self, s: &mut Session<'_>, round: Round, readings: &mut Vec<f64>) -> Result<(), Fault> {
        for _ in 0..round.operations() {
            s.go_on()?;
            let mine = self.grow(s)?;
            if s.is_client() {
                let theirs: f64 = s.receive_info()?;
                readings.push(((mine + theirs) / f64::from(self.count)).max(0.0));
            } else {
                s.send_info(&mine)?;
            }
        }
        Ok(())
    }

    fn note(&self) -> Option<String> {
        Some(format!("over {} connections; completion queues and kernel memory not counted", self.count))
    }
}
