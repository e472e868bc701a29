//! `park`: a token circulates among four processes on two cores; each waits in `Cq::wait`, which spins, yields,
//! sleeps.
//!
//! Processes outnumber cores, so a spinning process delays the very process it waits for. Each hop crosses the cores.

use results::variant::{Variant, factor, variant};
use verbs::host::Time;
use verbs::{Buf, Mr, RecvWr, SendOp, SendWr, Sge};

use crate::experiment::harness::edge::Edge;
use crate::experiment::harness::endpoint::{Depth, Endpoint, check, join};
use crate::experiment::harness::timing::sample;
use crate::experiment::{Experiment, Fault, Metric, Round, Scale, Session, Side};

/// Processes in the ring.
const RING: usize = 4;
/// Receives that are always posted; a single token needs only one.
const RECEIVES: u32 = 4;
/// Bytes of the token.
const TOKEN: u32 = 8;
/// One of this many sends is signaled.
const SIGNAL: u64 = 16;

pub(crate) struct Park;

impl Experiment for Park {
    fn name(&self) -> &'static str {
        "park"
    }

    fn about(&self) -> &'static str {
        "a token that four processes on two cores pass round, each waiting without occupying its core; time of a hop"
    }

    fn explain(&self) -> &'static str {
        include_str!("../explain/park.md")
    }

    fn variants(&self, _quick: bool) -> Vec<Variant> {
        vec![variant(&[(factor::OP, "send"), (factor::WAIT, "park")])]
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

    fn ranks(&self, _variant: &Variant) -> u32 {
        RING as u32
    }

    fn prepare(&self, session: &mut Session<'_>) -> Result<Box<dyn Side>, Fault> {
        let pd = session.device.alloc_pd()?;
        let token = pd.reg_mr(&Buf::alloc(TOKEN as usize)?, pd.device().attr().all_access())?;
        let sges = [token.sge(0, TOKEN)];
        let depth = Depth::new(2 * SIGNAL as u32, RECEIVES);
        let mut links = Endpoint::several(&pd, depth, 2)?;
        let me = session.rank as usize;
        links[0].post_receives(0, RECEIVES, &sges)?;
        for rank in 0..RING {
            let next = (rank + 1) % RING;
            let mine = [(next, 0), (rank, 1)].into_iter().find(|(end, _)| *end == me);
            join(session, Edge::between(rank, next), mine.and_then(|(_, link)| links.get_mut(link)))?;
        }
        Ok(Box::new(Hop { links, sges, client: session.is_client(), sent: 0, _token: token }))
    }
}

struct Hop {
    /// From the process before, and to the next one.
    links: Vec<Endpoint>,
    sges: [Sge; 1],
    client: bool,
    sent: u64,
    _token: Mr,
}

impl Hop {
    /// Sends the token to the next process. One send in [`SIGNAL`] is signaled, and the one before it is waited for first.
    fn send_token(&mut self, deadline: Option<Time>) -> Result<(), Fault> {
        self.sent += 1;
        let wr = SendWr::new(0, SendOp::Send, &self.sges);
        if !self.sent.is_multiple_of(SIGNAL) {
            return Ok(self.links[1].qp.post_send(&wr.unsignaled())?);
        }
        if self.sent > SIGNAL {
            self.links[1].waited(deadline, "a token")?;
        }
        Ok(self.links[1].qp.post_send(&wr)?)
    }

    /// Waits for the token of the previous process, and reposts the receive.
    fn receive_token(&mut self, deadline: Option<Time>) -> Result<(), Fault> {
        check(self.links[0].recv_cq.wait(deadline)?, "a token's receive")?;
        Ok(self.links[0].qp.post_recv(&RecvWr::new(0, &self.sges))?)
    }

    /// Moves the token around once, as seen from this process.
    fn turn(&mut self, deadline: Option<Time>) -> Result<(), Fault> {
        if self.client {
            self.send_token(deadline)?;
            self.receive_token(deadline)
        } else {
            self.receive_token(deadline)?;
            self.send_token(deadline)
        }
    }
}

impl Side for Hop {
    fn round(&mut self, s: &mut Session<'_>, round: Round, readings: &mut Vec<f64>) -> Result<(), Fault> {
        sample(s, round, readings, |_, count, deadline| (0..count).try_for_each(|_| self.turn(deadline)))
    }
}
