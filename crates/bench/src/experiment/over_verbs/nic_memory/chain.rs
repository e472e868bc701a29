//! `chain`: a message is forwarded along a chain of processes; each forwards it once it has fully arrived.
//!
//! `via=host`: from host memory to host memory at every hop. `via=nic`: nodes in the middle receive into NIC memory,
//! forward from there, and then, off the critical path, upload the message to their own host memory by a local write;
//! that must complete before the operation ends for them. With `ports=2` each hop is two writes, one over each port,
//! and forwarded when both have arrived. Every write carries immediate data, so that its sink gets a completion.
//!
//! Timed at the first node: from its first post to the arrival of an empty answer from the last node, less the
//! answer's one-way time, which was measured beforehand. Then, untimed, an empty message travels along the chain and
//! back, so that each operation begins when all nodes have ended the previous one.

use results::variant::{Variant, factor, variant};
use verbs::host::{Span, Time};
use verbs::{Mr, Pd, RemoteAddr, SendOp, SendWr, Sge};

use crate::experiment::harness::edge::{Edge, carry_place, meet};
use crate::experiment::harness::endpoint::{Depth, Endpoint, loopback, part, register};
use crate::experiment::harness::hub::{Hub, without};
use crate::experiment::harness::pattern;
use crate::experiment::harness::timing::sample_spans;
use crate::experiment::harness::variants::with;
use crate::experiment::{Axis, Experiment, Fault, Metric, Round, Sampling, Scale, Session, Side};

/// Nodes; each is a process.
const NODES: Axis =
    Axis { factor: factor::NODES, low: 2, high: 8, about: "processes of the chain, both ends included" };

pub(crate) struct Chain;

impl Experiment for Chain {
    fn name(&self) -> &'static str {
        "chain"
    }

    fn about(&self) -> &'static str {
        "a message along a chain of two to eight processes, each forwards it from host memory or from its NIC's"
    }

    fn explain(&self) -> &'static str {
        include_str!("../../explain/chain.md")
    }

    fn axes(&self) -> &'static [Axis] {
        &[NODES]
    }

    fn crowd(&self) -> Option<&'static Axis> {
        Some(&NODES)
    }

    fn variants(&self, quick: bool) -> Vec<Variant> {
        let nodes = ["2", "4", "8"];
        let via =
            |nodes: &str| ["host", "nic"].map(|via| variant(&[(factor::VIA, via), (factor::NODES, nodes)]));
        let mut all: Vec<Variant> = nodes.iter().flat_map(|nodes| via(nodes)).collect();
        if !quick {
            all.extend(all.clone().iter().map(|one| with(one, factor::PORTS, "2")));
        }
        all
    }

    fn usual_sizes(&self, _quick: bool) -> Option<&'static [u64]> {
        Some(&[4 << 10, 64 << 10, 1 << 20])
    }

    fn metric(&self, _variant: &Variant) -> Metric {
        Metric {
            name: "delivery_time",
            unit: "us",
            about: "from the first node's first post until the last node has the whole message: until its empty answer \
                    arrived, less the answer's one-way time, measured beforehand as half a ping-pong of empty messages",
            scale: Scale::Time(1.0),
        }
    }

    fn ranks(&self, variant: &Variant) -> u32 {
        nodes(variant).unwrap_or(2) as u32
    }

    /// If processes outnumber cores, little may remain of an operation after subtracting the answer; a batch large
    /// enough to compensate would take for ever.
    fn sampling(&self, _variant: &Variant) -> Sampling {
        Sampling::LONG
    }

    fn prepare(&self, session: &mut Session<'_>) -> Result<Box<dyn Side>, Fault> {
        Ok(Box::new(Node::prepare(session)?))
    }
}

fn nodes(variant: &Variant) -> Option<usize> {
    let inside = |n: &u64| (NODES.low..=NODES.high).contains(n);
    variant.get(NODES.factor)?.parse().ok().filter(inside).map(|n| n as usize)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NodeKind {
    First,
    Middle,
    Last,
}

/// One process of the chain. Its connections, by number: those from the previous node, those to the next one, and at
/// the ends one for the answer.
struct Node {
    place: NodeKind,
    ports: usize,
    hub: Hub,
    /// The first connection to the next node.
    next: usize,
    memory: Mr,
    /// The parts of the message as they go to the next node.
    parts: Vec<(SendOp, [Sge; 1])>,
    upload: Option<Upload>,
    size: usize,
    /// One-way time of the answer.
    one_way: Span,
    seed: u64,
}

impl Node {
    fn prepare(session: &mut Session<'_>) -> Result<Self, Fault> {
        let ports = session.ports()?;
        let nodes = nodes(&session.cell.variant).ok_or_else(|| {
            Fault::Meaningless(format!("a chain that has not {} to {} nodes", NODES.low, NODES.high))
        })?;
        let by_nic = match session.cell.factor(factor::VIA)? {
            "host" => false,
            "nic" => true,
            other => return Err(Fault::Meaningless(format!("a chain via {other}"))),
        };
        let (rank, last, size) = (session.rank as usize, nodes - 1, session.cell.length()?);
        let place = match rank {
            0 => NodeKind::First,
            _ if rank == last => NodeKind::Last,
            _ => NodeKind::Middle,
        };
        let pd = session.device.alloc_pd()?;
        let in_nic = by_nic && place == NodeKind::Middle;
        let memory = register(if in_nic { "nic" } else { "host" }, &pd, size as usize)?;
        let next = if place == NodeKind::First { 0 } else { ports };
        let links = if place == NodeKind::Middle { 2 * ports } else { ports + 1 };
        let hub = Hub::create(&pd, links)?;
        let upload = if in_nic { Some(Upload::prepare(session, &pd, &memory, size)?) } else { None };
        let mut side = Self {
            place,
            ports,
            hub,
            next,
            memory,
            parts: Vec::new(),
            upload,
            size: size as usize,
            one_way: Span::ZERO,
            seed: session.settings.seed,
        };
        side.connect(session, last)?;
        if place != NodeKind::Middle {
            side.one_way = side.hub.one_way(session, ports, place == NodeKind::First)?;
        }
        Ok(side)
    }

    /// Establishes all connections of the chain, and gets the address of the next node's memory.
    fn connect(&mut self, session: &mut Session<'_>, last: usize) -> Result<(), Fault> {
        let rank = session.rank as usize;
        for hop in 0..last {
            for port in 0..self.ports {
                let link = match rank {
                    _ if rank == hop => Some(self.next + port),
                    _ if rank == hop + 1 => Some(port),
                    _ => None,
                };
                self.hub.join(session, Edge { from: hop, to: hop + 1, port }, link)?;
            }
            let remote: Option<RemoteAddr> = carry_place(session, (hop + 1, hop), Some(&self.memory))?;
            for port in 0..if remote.is_some() { self.ports } else { 0 } {
                let (at, len) = part(self.size as u32, self.ports, port);
                let to = remote.unwrap_or_default().offset(at);
                self.parts.push((SendOp::WriteImm(to, port as u32), [self.memory.sge(at, len)]));
            }
        }
        let answer = (self.place != NodeKind::Middle).then_some(self.ports);
        self.hub.join(session, Edge::between(last, 0), answer)
    }

    /// Posts all parts of the message to the next node.
    fn forward(&self) -> Result<(), Fault> {
        self.parts
            .iter()
            .enumerate()
            .try_for_each(|(port, (op, sges))| self.hub.post(self.next + port, *op, sges))
    }

    /// Waits for `count` messages; the caller reposts the receives later.
    fn wait_messages(&self, count: usize, deadline: Option<Time>) -> Result<(), Fault> {
        (0..count).try_for_each(|_| self.hub.wait_message(deadline).map(drop))
    }

    /// Reposts receives for the parts of a message and for the message that followed on the first connection.
    fn repost_receives(&self) -> Result<(), Fault> {
        (0..self.ports).try_for_each(|port| self.hub.repost_receive(port))?;
        self.hub.repost_receive(0)
    }

    /// An operation of the first node: sends the message and waits for the last node's answer. Then, untimed,
    /// an empty message goes along the chain and back. Returns the time until the answer.
    fn send(&self, session: &Session<'_>, deadline: Option<Time>) -> Result<Span, Fault> {
        let (host, hub, answer) = (session.host, &self.hub, self.ports);
        let began = host.now();
        self.forward()?;
        hub.wait_message(deadline)?;
        let took = host.now() - began;
        hub.repost_receive(answer)?;
        hub.send_empty(self.next)?;
        hub.repost_receive(hub.wait_message(deadline)?)?;
        hub.wait_requests(self.ports + 1, deadline)?;
        Ok(took)
    }

    /// An operation of a node in the middle: forwards the message, uploads it, and forwards the empty message.
    fn pass_on(&self, deadline: Option<Time>) -> Result<(), Fault> {
        self.wait_messages(self.ports, deadline)?;
        self.forward()?;
        if let Some(upload) = &self.upload {
            upload.run(deadline)?;
        }
        self.hub.wait_requests(self.ports, deadline)?;
        self.wait_messages(1, deadline)?;
        // Before the next operation can begin.
        self.repost_receives()?;
        self.hub.send_empty(self.next)?;
        self.hub.wait_requests(1, deadline)
    }

    /// An operation of the last node: answers the message, and then the empty message.
    fn receive(&self, deadline: Option<Time>) -> Result<(), Fault> {
        let answer = self.ports;
        self.wait_messages(self.ports, deadline)?;
        self.hub.send_empty(answer)?;
        self.wait_messages(1, deadline)?;
        self.repost_receives()?;
        self.hub.send_empty(answer)?;
        self.hub.wait_requests(2, deadline)
    }

    fn operate(&self, session: &Session<'_>, count: u64, deadline: Option<Time>) -> Result<Span, Fault> {
        let mut spent = Span::ZERO;
        for _ in 0..count {
            match self.place {
                NodeKind::First => spent += self.send(session, deadline)?,
                NodeKind::Middle => self.pass_on(deadline)?,
                NodeKind::Last => self.receive(deadline)?,
            }
        }
        Ok(without(spent, self.one_way * count))
    }
}

/// A local write from NIC memory to the host memory of the same node.
struct Upload {
    /// A connection of the device with itself.
    links: Vec<Endpoint>,
    from: [Sge; 1],
    to: Mr,
}

impl Upload {
    fn prepare(session: &mut Session<'_>, pd: &Pd, from: &Mr, size: u32) -> Result<Self, Fault> {
        let to = register("host", pd, size as usize)?;
        Ok(Self { links: loopback(session, pd, Depth::new(2, 1))?, from: [from.sge(0, size)], to })
    }

    fn run(&self, deadline: Option<Time>) -> Result<(), Fault> {
        let near = &self.links[0];
        near.qp.post_send(&SendWr::new(0, SendOp::Write(self.to.remote(0)), &self.from))?;
        near.waited(deadline, "an upload").map(drop)
    }
}

impl Side for Node {
    fn warm(&mut self, _session: &mut Session<'_>) -> Result<(), Fault> {
        self.memory.buf().fill(0x5a);
        if let Some(upload) = &self.upload {
            upload.to.buf().fill(0);
        }
        Ok(())
    }

    fn round(&mut self, s: &mut Session<'_>, round: Round, readings: &mut Vec<f64>) -> Result<(), Fault> {
        sample_spans(s, round, readings, |s, count, deadline| self.operate(s, count, deadline))
    }

    /// One more message; every node must have its contents in its host memory.
    fn verify(&mut self, session: &mut Session<'_>) -> Result<(), Fault> {
        let copy = self.upload.as_ref().map_or(self.memory.buf(), |upload| upload.to.buf());
        match self.place {
            NodeKind::First => pattern::fill(self.memory.buf(), 0, self.size, self.seed)?,
            _ => copy.fill(0),
        }
        meet(session)?;
        self.operate(session, 1, session.deadline())?;
        pattern::compare(copy, 0, self.size, self.seed)
    }
}
