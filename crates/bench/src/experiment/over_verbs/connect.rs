//! `connect`: the time to set up and destroy a queue pair, at the connecting side.
//!
//! Steps: `create` makes a queue pair, `call` begins to connect it, `established` is until that is done, `disconnect` is
//! until its event, `destroy` drops a connected queue pair; `many` is a rate, of 64 that are begun together. But for
//! `create`, queue pairs of both sides exist before an operation begins, and the other side waits for requests.

use results::variant::{Variant, factor, variant};
use std::net::SocketAddr;

use verbs::host::Span;
use verbs::{Cm, CmEvent, ConnParam, Cq, Listener, Pd, Qp, QpInit};

use crate::experiment::harness::edge::meet;
use crate::experiment::harness::endpoint::{establish, reachable};
use crate::experiment::harness::timing::sample_spans;
use crate::experiment::{
    Cell, Experiment, Fault, Metric, Needs, Round, Sampling, Scale, Session, Settings, Side,
};

pub(crate) struct Connect;

impl Experiment for Connect {
    fn name(&self) -> &'static str {
        "connect"
    }

    fn about(&self) -> &'static str {
        "connecting, at the side that connects, and destroying its queue pair"
    }

    fn explain(&self) -> &'static str {
        include_str!("../explain/connect.md")
    }

    fn variants(&self, _quick: bool) -> Vec<Variant> {
        let steps = ["resolve", "create", "call", "established", "disconnect", "destroy", "many"];
        steps.map(|step| variant(&[(factor::STEP, step)])).to_vec()
    }

    fn only_size(&self, _variant: &Variant) -> Option<u64> {
        Some(0)
    }

    fn metric(&self, variant: &Variant) -> Metric {
        let (name, about) = match variant.get(factor::STEP) {
            Some("many") => {
                let about = "connections over the time from the first call that connects until the last of 64 that \
                             were begun together is established";
                return Metric { name: "connection_rate", unit: "1/s", about, scale: Scale::Rate };
            }
            Some("create") => ("call_time", "time within the call that creates a queue pair"),
            Some("disconnect") => {
                ("disconnect_time", "from the call that disconnects until its event arrives")
            }
            Some("established") => {
                ("connect_time", "from the call that connects until the connection is established")
            }
            Some("destroy") => ("call_time", "time within the call that destroys a connected queue pair"),
            _ => ("call_time", "time within the call that connects; not until the connection is established"),
        };
        Metric { name, unit: "us", about, scale: Scale::Time(1.0) }
    }

    fn sampling(&self, variant: &Variant) -> Sampling {
        let many = variant.is(factor::STEP, "many");
        Sampling { long: true, samples: Some(if many { 20 } else { 100 }) }
    }

    fn needs(&self, cell: &Cell, _settings: &Settings) -> Needs {
        let many = cell.variant.is(factor::STEP, "many");
        Needs { processes: 2, connections: if many { MANY } else { 1 }, ..Needs::default() }
    }

    fn prepare(&self, session: &mut Session<'_>) -> Result<Box<dyn Side>, Fault> {
        let step = match session.cell.factor(factor::STEP)? {
            "resolve" => {
                let why = "resolving: addresses are IP addresses, and connecting takes them as they are; there is no \
                           step of its own to time";
                return Err(Fault::Meaningless(why.into()));
            }
            "create" => Step::Create,
            "call" => Step::Call,
            "disconnect" => Step::Disconnect,
            "many" => Step::Many,
            "established" => Step::Established,
            "destroy" => Step::Destroy,
            other => return Err(Fault::Meaningless(format!("the step {other} of connecting"))),
        };
        let (pd, cm) = (session.device.alloc_pd()?, session.device.create_cm()?);
        let cq = session.device.create_cq(64 * MANY as u32)?;
        let end = if session.is_client() {
            End::Active(reachable(session.receive_info()?, 1, session)?)
        } else {
            let listener = cm.listen(session.listen_addr(0)?, MANY as u32)?;
            session.send_info(&listener.addr())?;
            End::Passive(listener)
        };
        Ok(Box::new(Pair { step, pd, cm, cq, end }))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Create,
    Call,
    Established,
    Disconnect,
    Destroy,
    Many,
}

/// Connections that are begun together.
const MANY: u64 = 64;

/// The address to connect to, or the listener.
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
        let count = if self.step == Step::Many { MANY } else { 1 };
        let began = session.host.now();
        let qps = (0..count)
            .map(|_| self.pd.create_qp(&QpInit::new(&self.cq)))
            .collect::<verbs::Result<Vec<Qp>>>()?;
        let created = session.host.now() - began;
        meet(session)?;
        match self.end {
            End::Active(addr) => self.connect(session, created, qps, addr),
            End::Passive(_) => {
                establish(session, &self.cm, &qps.iter().collect::<Vec<_>>(), qps.len())?;
                if self.step == Step::Many {
                    // Connections are closed only when all are established.
                    meet(session)?;
                }
                (0..qps.len()).try_for_each(|_| self.ended(session))?;
                Ok(Span::ZERO)
            }
        }
    }

    /// Waits for the end of a connection.
    fn ended(&self, session: &Session<'_>) -> Result<(), Fault> {
        match self.cm.get_event(session.deadline())? {
            CmEvent::Disconnected { .. } => Ok(()),
            other => Err(Fault::Connection(format!("{other:?} instead of its end"))),
        }
    }

    fn connect(
        &self,
        session: &mut Session<'_>,
        created: Span,
        qps: Vec<Qp>,
        addr: SocketAddr,
    ) -> Result<Span, Fault> {
        let host = session.host;
        let began = host.now();
        qps.iter().try_for_each(|qp| self.cm.connect(qp, addr, &ConnParam::default()))?;
        let called = host.now();
        establish(session, &self.cm, &[], qps.len())?;
        let established = host.now();
        if self.step == Step::Many {
            meet(session)?;
        }
        if self.step == Step::Disconnect {
            qps.iter().try_for_each(|qp| self.cm.disconnect(qp))?;
            (0..qps.len()).try_for_each(|_| self.ended(session))?;
        }
        let disconnected = host.now();
        drop(qps);
        let destroyed = host.now();
        Ok(match self.step {
            Step::Create => created,
            Step::Call => called - began,
            Step::Established | Step::Many => established - began,
            Step::Disconnect => disconnected - established,
            Step::Destroy => destroyed - disconnected,
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

    fn messages(&self) -> u64 {
        if self.step == Step::Many { MANY } else { 1 }
    }
}
