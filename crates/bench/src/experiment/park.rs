//! `park`: a token goes round four processes on two cores; each waits in `Cq::wait`, which spins, yields, sleeps.
//!
//! Processes outnumber cores, so whoever spins holds up the very process it waits for. Each hop crosses the cores.

use verbs::host::{Span, Time};
use verbs::{Access, Buf, Cm, ConnParam, Cq, Listener, Mr, Pd, Qp, QpInit, RecvWr, SendOp, SendWr, Sge};

use super::link::{check, establish};
use super::{Experiment, Fault, Metric, Round, Scale, Session, Side, Variant, variant};

/// Processes in the ring.
const RING: usize = 4;
/// Receives that are always posted; one token makes one necessary.
const RECEIVES: u64 = 4;
/// Bytes of the token.
const TOKEN: u32 = 8;
/// One send in so many is signalled.
const SIGNAL: u64 = 16;

pub(super) struct Park;

impl Experiment for Park {
    fn name(&self) -> &'static str {
        "park"
    }

    fn about(&self) -> &'static str {
        "a token round four processes on two cores that wait without holding the core, for each hop"
    }

    fn variants(&self, _quick: bool) -> Vec<Variant> {
        vec![variant(&[("op", "send"), ("wait", "park")])]
    }

    fn only_size(&self, _variant: &Variant) -> Option<u64> {
        Some(TOKEN.into())
    }

    fn metric(&self, _variant: &Variant) -> Metric {
        Metric {
            name: "hop_latency",
            unit: "us",
            about: "time of a round over its four hops, each from one core to the other",
            scale: Scale::Time(RING as f64),
        }
    }

    fn ranks(&self) -> u32 {
        RING as u32
    }

    fn prepare(&self, session: &mut Session<'_>) -> Result<Box<dyn Side>, Fault> {
        let device = session.device;
        let (pd, cm) = (device.alloc_pd()?, device.create_cm()?);
        let (send_cq, recv_cq) = (device.create_cq(128)?, device.create_cq(128)?);
        let init = QpInit::new(&send_cq).recv_cq(&recv_cq);
        let (from, to) = (pd.create_qp(&init)?, pd.create_qp(&init)?);
        let token = pd.reg_mr(&Buf::alloc(TOKEN as usize)?, Access::ALL)?;
        let sges = [token.sge(0, TOKEN)];
        (0..RECEIVES).try_for_each(|id| from.post_recv(&RecvWr::new(id, &sges)))?;
        let listener = cm.listen(session.listen_addr()?, 1)?;
        let next = next_of_ring(session, listener.addr())?;
        cm.connect(&to, next, &ConnParam::default())?;
        establish(session, &cm, &[&from], 2)?;
        let patience = Span::from_ms(session.settings.patience_ms);
        let client = session.is_client();
        Ok(Box::new(Hop {
            from,
            to,
            send_cq,
            recv_cq,
            sges,
            client,
            sent: 0,
            patience,
            _kept: (token, pd, cm, listener),
        }))
    }
}

/// Everybody tells the client where it listens; the client tells everybody where the next one does.
fn next_of_ring(
    session: &mut Session<'_>,
    mine: std::net::SocketAddr,
) -> Result<std::net::SocketAddr, Fault> {
    if !session.is_client() {
        session.tell(&mine)?;
        return session.hear();
    }
    let mut ring = vec![mine];
    for rank in 1..RING {
        if session.way(rank)?.neighbour().is_none() {
            return Err(Fault::Machine("park needs all four processes on one machine".into()));
        }
        ring.push(session.hear_rank(rank)?);
    }
    for rank in 1..RING {
        session.tell_rank(rank, &ring[(rank + 1) % RING])?;
    }
    Ok(ring[1])
}

struct Hop {
    from: Qp,
    to: Qp,
    send_cq: Cq,
    recv_cq: Cq,
    sges: [Sge; 1],
    client: bool,
    sent: u64,
    patience: Span,
    _kept: (Mr, Pd, Cm, Listener),
}

impl Hop {
    fn pass(&mut self, deadline: Option<Time>) -> Result<(), Fault> {
        self.sent += 1;
        let wr = SendWr::new(0, SendOp::Send, &self.sges);
        if !self.sent.is_multiple_of(SIGNAL) {
            return Ok(self.to.post_send(&wr.unsignaled())?);
        }
        if self.sent > SIGNAL {
            check(self.send_cq.wait(deadline)?, "a token")?;
        }
        Ok(self.to.post_send(&wr)?)
    }

    fn take(&mut self, deadline: Option<Time>) -> Result<(), Fault> {
        check(self.recv_cq.wait(deadline)?, "a token's receive")?;
        Ok(self.from.post_recv(&RecvWr::new(0, &self.sges))?)
    }

    fn turn(&mut self, deadline: Option<Time>) -> Result<(), Fault> {
        if self.client {
            self.pass(deadline)?;
            self.take(deadline)
        } else {
            self.take(deadline)?;
            self.pass(deadline)
        }
    }
}

impl Side for Hop {
    fn round(
        &mut self,
        session: &mut Session<'_>,
        round: Round,
        readings: &mut Vec<f64>,
    ) -> Result<(), Fault> {
        let host = session.host;
        for _ in 0..round.lead_in {
            self.turn(host.after(self.patience))?;
        }
        for _ in 0..round.samples {
            let began = host.now();
            for _ in 0..round.batch {
                self.turn(Some(began + self.patience))?;
            }
            if self.client {
                readings.push((host.now() - began).as_ps() as f64);
            }
        }
        Ok(())
    }
}
