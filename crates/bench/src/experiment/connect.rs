//! `connect`: what it takes to bring a queue pair up and to be rid of it, at the side that connects.
//!
//! The queue pairs of both sides exist before an operation begins, and the other side waits for the request.

use std::net::SocketAddr;

use verbs::host::Span;
use verbs::{Cm, CmEvent, ConnParam, Cq, Listener, Pd, Qp, QpInit};

use super::edge::meet;
use super::link::{establish, reachable};
use super::timing::sample_spans;
use super::{Experiment, Fault, Metric, Round, Sampling, Scale, Session, Side, Variant, variant};

pub(super) struct Connect;

impl Experiment for Connect {
    fn name(&self) -> &'static str {
        "connect"
    }

    fn about(&self) -> &'static str {
        "bringing a connection up, at the side that connects, and destroying its queue pair"
    }

    fn variants(&self, _quick: bool) -> Vec<Variant> {
        ["call", "established", "destroy"].map(|step| variant(&[("step", step)])).to_vec()
    }

    fn only_size(&self, _variant: &Variant) -> Option<u64> {
        Some(0)
    }

    fn metric(&self, variant: &Variant) -> Metric {
        let (name, about) = match variant.get("step").map(String::as_str) {
            Some("established") => {
                ("connect_time", "from the call that connects until the connection is established")
            }
            Some("destroy") => ("call_time", "time within the call that destroys a connected queue pair"),
            _ => ("call_time", "time within the call that connects; not until the connection is established"),
        };
        Metric { name, unit: "us", about, scale: Scale::Time(1.0) }
    }

    fn sampling(&self) -> Sampling {
        Sampling { long: true, samples: Some(100) }
    }

    fn prepare(&self, session: &mut Session<'_>) -> Result<Box<dyn Side>, Fault> {
        let step = match session.cell.factor("step")? {
            "call" => Step::Call,
            "established" => Step::Established,
            "destroy" => Step::Destroy,
            other => return Err(Fault::Meaningless(format!("the step {other} of connecting"))),
        };
        let (pd, cm) = (session.device.alloc_pd()?, session.device.create_cm()?);
        let cq = session.device.create_cq(256)?;
        let end = if session.is_client() {
            End::Active(reachable(session.hear()?, 1, session)?)
        } else {
            let listener = cm.listen(session.listen_addr(0)?, 1)?;
            session.tell(&listener.addr())?;
            End::Passive(listener)
        };
        Ok(Box::new(Pair { step, pd, cm, cq, end }))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Call,
    Established,
    Destroy,
}

/// Where to connect to, or what to be connected at.
enum End {
    Active(SocketAddr),
    /// Kept open.
    Passive(#[allow(dead_code, reason = "listens until it is dropped")] Listener),
}

struct Pair {
    step: Step,
    pd: Pd,
    cm: Cm,
    cq: Cq,
    end: End,
}

impl Pair {
    /// Connects and takes it down again; the time of the step.
    fn operate(&self, session: &mut Session<'_>) -> Result<Span, Fault> {
        let qp = self.pd.create_qp(&QpInit::new(&self.cq))?;
        meet(session)?;
        match self.end {
            End::Active(addr) => self.connect(session, qp, addr),
            End::Passive(_) => {
                establish(session, &self.cm, &[&qp], 1)?;
                match self.cm.get_event(session.deadline())? {
                    CmEvent::Disconnected { .. } => Ok(Span::ZERO),
                    other => Err(Fault::Connection(format!("{other:?} instead of its end"))),
                }
            }
        }
    }

    fn connect(&self, session: &Session<'_>, qp: Qp, addr: SocketAddr) -> Result<Span, Fault> {
        let host = session.host;
        let began = host.now();
        self.cm.connect(&qp, addr, &ConnParam::default())?;
        let called = host.now();
        establish(session, &self.cm, &[], 1)?;
        let established = host.now();
        drop(qp);
        let destroyed = host.now();
        Ok(match self.step {
            Step::Call => called - began,
            Step::Established => established - began,
            Step::Destroy => destroyed - established,
        })
    }
}

impl Side for Pair {
    fn round(&mut self, s: &mut Session<'_>, round: Round, readings: &mut Vec<f64>) -> Result<(), Fault> {
        sample_spans(s, round, readings, |s, count, _| {
            let mut spent = Span::ZERO;
            for _ in 0..count {
                spent += self.operate(s)?;
            }
            Ok(spent)
        })
    }
}
