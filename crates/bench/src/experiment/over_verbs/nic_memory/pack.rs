//! `pack`: eight blocks with gaps between them are sent to the other side as one message, where they are contiguous.
//!
//! `op=host-pack`: the processor copies them into a registered buffer in host memory, which one write sends.
//! `op=nic-pack`: eight local writes gather them in a buffer in NIC memory; when these are complete, one write sends
//! it. `op=gather`: one write takes them from where they are, as eight pieces; for `reuse` per cent of the operations
//! the blocks are already registered, the others register each before and deregister it afterwards, spread evenly.
//!
//! `quantity=time` is half a ping-pong in which both sides do the same: from the beginning of the packing or
//! registering to the arrival; if blocks are deregistered, to the arrival of an empty message that follows.
//! `quantity=cpu` is the time within the sender's calls: copies, registering and deregistering, posts, and polls that
//! found a completion. Empty polls do not count, as other work could be done meanwhile.

use results::variant::{Variant, factor, variant};
use verbs::host::{Host, Span, Time};
use verbs::{Access, Buf, Cq, Mr, RecvWr, RemoteAddr, SendOp, SendWr, Sge};

use crate::experiment::harness::edge::meet;
use crate::experiment::harness::endpoint::{Depth, Endpoint, check, exchange, loopback, register};
use crate::experiment::harness::pattern;
use crate::experiment::harness::timing::sample_spans;
use crate::experiment::harness::variants::with;
use crate::experiment::{Cell, Experiment, Fault, Metric, Round, Scale, Session, Side};

/// Blocks of a message.
const BLOCKS: usize = 8;
/// Receives that are always posted.
const RECEIVES: u32 = 4;

pub(crate) struct Pack;

impl Experiment for Pack {
    fn name(&self) -> &'static str {
        "pack"
    }

    fn about(&self) -> &'static str {
        "eight blocks as one message: copied together by the processor or the NIC, or gathered; --size is the size of a block"
    }

    fn explain(&self) -> &'static str {
        include_str!("../../explain/pack.md")
    }

    fn variants(&self, quick: bool) -> Vec<Variant> {
        let reuses: &[&str] = if quick { &["0", "100"] } else { &["0", "20", "80", "100"] };
        let mut variants = vec![variant(&[(factor::OP, "host-pack")]), variant(&[(factor::OP, "nic-pack")])];
        variants
            .extend(reuses.iter().map(|reuse| variant(&[(factor::OP, "gather"), (factor::REUSE, reuse)])));
        let quantities = ["time", "cpu"];
        quantities
            .iter()
            .flat_map(|what| variants.iter().map(|variant| with(variant, factor::QUANTITY, what)))
            .collect()
    }

    fn usual_sizes(&self, _quick: bool) -> Option<&'static [u64]> {
        Some(&[8 << 10, 16 << 10, 32 << 10, 64 << 10])
    }

    fn metric(&self, variant: &Variant) -> Metric {
        match variant.get(factor::QUANTITY) {
            Some("cpu") => Metric {
                name: "sender_cpu_time",
                unit: "us",
                about: "time within the sender's calls for a message: copies, registering, posts, successful polls",
                scale: Scale::Time(1.0),
            },
            _ => Metric {
                name: "delivery_time",
                unit: "us",
                about: "half a ping-pong in which both sides do the same, packing or registering included",
                scale: Scale::Time(2.0),
            },
        }
    }

    fn prepare(&self, session: &mut Session<'_>) -> Result<Box<dyn Side>, Fault> {
        Ok(Box::new(Packer::prepare(session)?))
    }
}

/// Adds up the time within calls, if that is measured.
struct Meter {
    on: bool,
    spent: Span,
}

impl Meter {
    fn call<T>(&mut self, host: &Host, call: impl FnOnce() -> T) -> T {
        if !self.on {
            return call();
        }
        let began = host.now();
        let done = call();
        self.spent += host.now() - began;
        done
    }

    /// Waits for a completion; only the poll that found it counts.
    fn completed(&mut self, host: &Host, cq: &Cq, deadline: Option<Time>) -> Result<(), Fault> {
        let look = || {
            let before = self.spent;
            let found = self.call(host, || cq.poll_one()).transpose();
            if found.is_none() {
                self.spent = before;
            }
            found
        };
        let found = host.poll("a completion", deadline, look);
        check(found.ok_or(Fault::TimedOut("a message"))??, "a message").map(drop)
    }
}

/// How the blocks are packed.
enum Packing {
    /// Copied by the processor into a registered buffer.
    Host(Mr),
    /// Copied by the NIC into its own memory, over a connection of the device with itself; with the addresses.
    Nic(Mr, Vec<Endpoint>, Vec<(SendOp, [Sge; 1])>),
    /// Not at all; whether each operation of a cycle registers the blocks.
    Gather(Vec<bool>),
}

impl Packing {
    fn of(session: &mut Session<'_>, link: &Endpoint, user: &Mr, block: u32) -> Result<Self, Fault> {
        let whole = BLOCKS * block as usize;
        Ok(match session.cell.factor(factor::OP)? {
            "host-pack" => Self::Host(register("host", &link.pd, whole)?),
            "nic-pack" => {
                let staging = register("nic", &link.pd, whole)?;
                let copy = |index: usize| {
                    let to = staging.remote(index as u64 * u64::from(block));
                    (SendOp::Write(to), [piece(user, block, index)])
                };
                let copies = (0..BLOCKS).map(copy).collect();
                Self::Nic(staging, loopback(session, &link.pd, Depth::new(2 * BLOCKS as u32, 1))?, copies)
            }
            "gather" => Self::Gather(cycle(session.cell)?),
            other => return Err(Fault::Meaningless(format!("packing by {other}"))),
        })
    }
}

/// Whether each operation of a cycle registers anew, so that the share `reuse` does not, as evenly as can be.
fn cycle(cell: &Cell) -> Result<Vec<bool>, Fault> {
    let reuse = cell.factor(factor::REUSE)?;
    let percent = reuse.parse::<usize>().ok().filter(|r| *r <= 100);
    let fresh = 100 - percent.ok_or_else(|| Fault::Meaningless(format!("a reuse of {reuse} %")))?;
    let length = (1..=100).find(|n| (fresh * n).is_multiple_of(100)).unwrap_or(100);
    Ok((0..length).map(|k| (k + 1) * fresh / 100 > k * fresh / 100).collect())
}

/// The position of a block in a buffer with gaps as long as blocks.
fn piece(user: &Mr, block: u32, index: usize) -> Sge {
    user.sge(2 * index as u64 * u64::from(block), block)
}

/// One side of a transfer of blocks.
struct Packer {
    packing: Packing,
    client: bool,
    link: Endpoint,
    /// The blocks with their gaps, registered for the lifetime of the cell.
    user: Mr,
    sink: Mr,
    remote: RemoteAddr,
    block: u32,
    meter: Meter,
    seed: u64,
}

impl Packer {
    fn prepare(session: &mut Session<'_>) -> Result<Self, Fault> {
        let on = match session.cell.factor(factor::QUANTITY)? {
            "time" => false,
            "cpu" => true,
            other => return Err(Fault::Meaningless(format!("{other} of packing"))),
        };
        let block = session.cell.length()?;
        let whole = Cell { size: BLOCKS as u64 * session.cell.size, ..session.cell.clone() }.length()?;
        let mut link =
            Endpoint::create(session.device, Depth { pieces: BLOCKS as u32, ..Depth::new(4, RECEIVES) })?;
        let user = register("host", &link.pd, 2 * whole as usize)?;
        let sink = register("host", &link.pd, whole as usize)?;
        let packing = Packing::of(session, &link, &user, block)?;
        link.post_receives(0, RECEIVES, &[])?;
        link.connect(session)?;
        let remote = exchange(session, &sink)?;
        let (client, seed) = (session.is_client(), session.settings.seed);
        Ok(Self {
            packing,
            client,
            link,
            user,
            sink,
            remote,
            block,
            meter: Meter { on, spent: Span::ZERO },
            seed,
        })
    }

    /// Brings the blocks together and sends them; `index` counts the operations of a cycle.
    fn send(&mut self, host: &Host, index: usize, deadline: Option<Time>) -> Result<(), Fault> {
        let Self { packing, link, user, block, meter, .. } = self;
        let whole = BLOCKS as u32 * *block;
        let op = SendOp::WriteImm(self.remote, 0);
        match packing {
            Packing::Host(staging) => {
                for index in 0..BLOCKS {
                    meter.call(host, || copy(host, (user.buf(), staging.buf()), *block as usize, index))?;
                }
                let sges = [staging.sge(0, whole)];
                meter.call(host, || link.qp.post_send(&SendWr::new(0, op, &sges)))?;
                meter.completed(host, &link.send_cq, deadline)?;
            }
            Packing::Nic(staging, links, copies) => {
                for (index, (op, sges)) in copies.iter().enumerate() {
                    let wr = SendWr::new(0, *op, sges);
                    let wr = if index + 1 < BLOCKS { wr.unsignaled() } else { wr };
                    meter.call(host, || links[0].qp.post_send(&wr))?;
                }
                meter.completed(host, &links[0].send_cq, deadline)?;
                let sges = [staging.sge(0, whole)];
                meter.call(host, || link.qp.post_send(&SendWr::new(0, op, &sges)))?;
                meter.completed(host, &link.send_cq, deadline)?;
            }
            Packing::Gather(cycle) if cycle[index % cycle.len()] => return self.gather_anew(host, deadline),
            Packing::Gather(_) => {
                let sges: [Sge; BLOCKS] = std::array::from_fn(|index| piece(user, *block, index));
                meter.call(host, || link.qp.post_send(&SendWr::new(0, op, &sges)))?;
                meter.completed(host, &link.send_cq, deadline)?;
            }
        }
        Ok(())
    }

    /// Registers each block, gathers, deregisters; only then the turn passes, with an empty message.
    fn gather_anew(&mut self, host: &Host, deadline: Option<Time>) -> Result<(), Fault> {
        let Self { link, user, block, meter, .. } = self;
        let size = *block as usize;
        let mut fresh = Vec::with_capacity(BLOCKS);
        for index in 0..BLOCKS {
            let part = user.buf().slice(2 * index * size..(2 * index + 1) * size)?;
            fresh.push(meter.call(host, || link.pd.reg_mr(&part, Access::empty()))?);
        }
        let sges: [Sge; BLOCKS] = std::array::from_fn(|index| fresh[index].sge(0, *block));
        let write = SendWr::new(0, SendOp::Write(self.remote), &sges);
        meter.call(host, || link.qp.post_send(&write))?;
        meter.completed(host, &link.send_cq, deadline)?;
        for one in fresh {
            meter.call(host, || one.dereg())?;
        }
        meter.call(host, || link.qp.post_send(&SendWr::new(0, SendOp::SendImm(0), &[])))?;
        meter.completed(host, &link.send_cq, deadline)
    }

    /// One message each way.
    fn exchange(&mut self, host: &Host, index: usize, deadline: Option<Time>) -> Result<(), Fault> {
        if self.client {
            self.send(host, index, deadline)?;
        }
        self.link.received(deadline, "a message")?;
        if !self.client {
            self.send(host, index, deadline)?;
        }
        Ok(self.link.qp.post_recv(&RecvWr::new(0, &[]))?)
    }

    /// Runs `count` cycles; returns their time, or the time of their calls.
    fn operate(&mut self, host: &Host, count: u64, deadline: Option<Time>) -> Result<Span, Fault> {
        let (began, cycle) = (host.now(), self.messages());
        self.meter.spent = Span::ZERO;
        for _ in 0..count {
            (0..cycle).try_for_each(|index| self.exchange(host, index as usize, deadline))?;
        }
        Ok(if self.meter.on { self.meter.spent } else { host.now() - began })
    }

    fn contents(&self, from_client: bool, index: usize) -> u64 {
        self.seed ^ (index as u64) << 1 ^ u64::from(from_client)
    }
}

/// Copies a block to its place among the others.
fn copy(host: &Host, (from, to): (&Buf, &Buf), block: usize, index: usize) -> verbs::Result<()> {
    from.copy_to(2 * index * block, to, index * block, block)?;
    host.charge_copy(block as u64);
    Ok(())
}

impl Side for Packer {
    fn warm(&mut self, _session: &mut Session<'_>) -> Result<(), Fault> {
        self.user.buf().fill(0x5a);
        self.sink.buf().fill(0);
        if let Packing::Host(staging) | Packing::Nic(staging, ..) = &self.packing {
            staging.buf().fill(0);
        }
        Ok(())
    }

    fn round(&mut self, s: &mut Session<'_>, round: Round, readings: &mut Vec<f64>) -> Result<(), Fault> {
        sample_spans(s, round, readings, |s, count, deadline| self.operate(s.host, count, deadline))
    }

    /// One more cycle, with unique contents.
    fn verify(&mut self, session: &mut Session<'_>) -> Result<(), Fault> {
        let block = self.block as usize;
        self.sink.buf().fill(0);
        for index in 0..BLOCKS {
            let contents = self.contents(self.client, index);
            pattern::fill(self.user.buf(), 2 * index * block, block, contents)?;
        }
        meet(session)?;
        self.operate(session.host, 1, session.deadline())?;
        for index in 0..BLOCKS {
            pattern::compare(self.sink.buf(), index * block, block, self.contents(!self.client, index))?;
        }
        Ok(())
    }

    /// If only some operations register, the number of operations in one repeating cycle.
    fn messages(&self) -> u64 {
        match &self.packing {
            Packing::Gather(cycle) => cycle.len() as u64,
            _ => 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_operations_register_as_reuse_leaves_and_evenly() {
        for (reuse, expected) in [
            ("0", vec![true]),
            ("100", vec![false]),
            ("20", vec![false, true, true, true, true]),
            ("80", vec![false, false, false, false, true]),
            ("50", vec![false, true]),
        ] {
            let cell = Cell { variant: variant(&[("reuse", reuse)]), ..Cell::default() };
            assert_eq!(cycle(&cell).expect("a share"), expected, "{reuse}");
        }
        for wrong in ["101", "-1", "all"] {
            assert!(cycle(&Cell { variant: variant(&[("reuse", wrong)]), ..Cell::default() }).is_err());
        }
    }
}
