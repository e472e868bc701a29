//! One cell in a world of virtual time: every rank is a coroutine on a simulated machine with a card, of its own unless the cell says
//! how many ranks share one.
//!
//! The measuring code is that of real launches: the driver, the experiments, the sampler. Only the control connection
//! differs: messages are stored in mailboxes and become readable at the sender's time.

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Mutex, PoisonError};

use verbs::Device;
use verbs::host::world::{Config, FiberKind, Node, World};
use verbs::host::{EventCount, Host, Span, Time};

use crate::experiment::driver::{Record, client_cell, plan_for, replay, serve_cell};
use crate::experiment::{Bounds, Cell, Control, Experiment, Fault, Rails, Session, Settings, Word, find};
use crate::sample::{Calibration, Plan};
use results::schema::ClockKind;
use results::variant::{Variant, factor};

/// Samples of a cell: the second equals the first, except for effects that recur every few operations.
const SAMPLES: u64 = 9;
/// Operations before the first sample. The rings of MPI, whose pages a card translates at their first use, have at most 64
/// slots, and a ping-pong uses one of each side.
const WARM_UP: u64 = 64;
/// Bytes of a rank's stack; what is not touched takes no memory.
const STACK: usize = 256 << 10;

/// What a world made of a cell.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    /// The median, in [`unit`](Self::unit).
    pub value: f64,
    /// `us`, `MB/s`, ...
    pub unit: &'static str,
    /// Events of the world.
    pub events: u64,
    /// Hash of all events: equal for equal runs.
    pub trace: u64,
}

/// A cell's record, and the world that it comes from.
pub(super) struct Simulated {
    pub(super) record: Record,
    pub(super) notes: Vec<String>,
    pub(super) events: u64,
    pub(super) trace: u64,
}

/// Measures one cell on a device that lives in virtual time, in a world of its own.
///
/// # Errors
/// [`Fault`], also when the world ends in a deadlock.
pub fn measure(device: &str, cell: &Cell, settings: &Settings) -> Result<Measured, Fault> {
    let experiment = known(cell)?;
    let plan = plan(settings.seed);
    let simulated = simulate(device, cell, (settings, &plan), FiberKind::Coroutine)?;
    let sampled = replay(&simulated.record, plan_for(experiment, &cell.variant, &plan))
        .ok_or_else(|| Fault::Machine(format!("{cell} gave no samples")))?;
    let metric = experiment.metric(&cell.variant);
    let messages = simulated.record.messages.max(1);
    Ok(Measured {
        value: metric.value(sampled.median_ns() * 1e3, messages, cell.size),
        unit: metric.unit,
        events: simulated.events,
        trace: simulated.trace,
    })
}

/// The experiment of a cell.
fn known(cell: &Cell) -> Result<&'static dyn Experiment, Fault> {
    find(&cell.experiment)
        .ok_or_else(|| Fault::Meaningless(format!("{}: no such experiment", cell.experiment)))
}

/// How to sample where there is no noise, unless the user says otherwise.
pub(crate) fn plan(seed: u64) -> Plan {
    Plan {
        // Whatever spread there is belongs to the model: it is no lack of samples.
        half_width_target: 1.0,
        samples_min: SAMPLES,
        samples_max: SAMPLES,
        time_min_ns: 0.0,
        time_max_ns: f64::MAX,
        batch: Some(1),
        warm_up: WARM_UP,
        seed,
        // A picosecond is as short as time gets here.
        clock: Calibration { kind: ClockKind::Virtual, overhead_ns: 0.0, resolution_ns: 1e-3 },
        ..Plan::default()
    }
}

/// Runs the cell's ranks to their end.
pub(super) fn simulate(
    device: &str,
    cell: &Cell,
    (settings, plan): (&Settings, &Plan),
    fiber_kind: FiberKind,
) -> Result<Simulated, Fault> {
    let ranks = known(cell)?.ranks(&cell.variant).max(1) as usize;
    let mut world = World::new(Config { seed: settings.seed, fiber_kind, stack: STACK, ..Config::default() });
    let nodes = machines(&mut world, ranks, &cell.variant);
    let outcome = Arc::new(Mutex::new(None));
    let stage = Stage {
        device: device.into(),
        rails: super::device::rails(device),
        cell: cell.clone(),
        settings: settings.clone(),
        plan: *plan,
    };
    let queues: Vec<[Arc<MessageQueue>; 2]> = (1..ranks).map(|_| Default::default()).collect();
    let client = (stage.clone(), nodes.clone(), queues.clone(), outcome.clone());
    let no_rank = |e| Fault::Machine(format!("the simulation cannot begin: {e}"));
    world
        .spawn("rank 0", &[&nodes[0]], move || {
            let (stage, nodes, queues, outcome) = client;
            let found = stage.client(&nodes, &queues);
            *outcome.lock().unwrap_or_else(PoisonError::into_inner) = Some(found);
        })
        .map_err(no_rank)?;
    for (rank, queues) in (1..ranks).zip(queues) {
        let (stage, own, client) = (stage.clone(), nodes[rank].clone(), nodes[0].clone());
        let body = move || stage.serve(&own, &client, queues);
        world.spawn(&format!("rank {rank}"), &[&nodes[rank]], body).map_err(no_rank)?;
    }
    let ended = world.run();
    let found = outcome.lock().unwrap_or_else(PoisonError::into_inner).take();
    match (found, ended) {
        (Some(Err(fault)), _) => Err(fault),
        (Some(Ok((record, notes))), Ok(ended)) => {
            Ok(Simulated { record, notes, events: ended.events, trace: ended.trace })
        }
        (_, Err(failure)) => Err(Fault::Machine(format!("the simulation failed: {failure}"))),
        (None, Ok(_)) => Err(Fault::Machine("the simulation ended without a result".into())),
    }
}

/// The machine of each rank: one per rank, unless several ranks of the variant share one; consecutive ranks do.
fn machines(world: &mut World, ranks: usize, variant: &Variant) -> Vec<Node> {
    let each = variant.get(factor::PER_NODE).and_then(|text| text.parse().ok()).unwrap_or(1).max(1);
    let all: Vec<Node> = (0..ranks.div_ceil(each)).map(|i| world.add_node(&format!("node {i}"))).collect();
    (0..ranks).map(|rank| all[rank / each].clone()).collect()
}

/// What every rank knows.
#[derive(Clone)]
struct Stage {
    device: Arc<str>,
    rails: Rails,
    cell: Cell,
    settings: Settings,
    plan: Plan,
}

impl Stage {
    /// The client's side of the cell, which leads all ranks: the record, and the device's notes.
    fn client(
        &self,
        nodes: &[Node],
        queues: &[[Arc<MessageQueue>; 2]],
    ) -> Result<(Record, Vec<String>), Fault> {
        let host = nodes[0].host();
        let device = fabric::open(&self.device, &host);
        let mut connections: Vec<SimulatedControl> = queues
            .iter()
            .zip(&nodes[1..])
            .map(|([to, from], peer)| self.connection(&nodes[0], peer, (from, to), device.as_ref().ok()))
            .collect();
        let result = device.map_err(Fault::from).and_then(|device| {
            let controls = connections.iter_mut().map(|connection| connection as &mut dyn Control).collect();
            let mut session = self.session(&host, &device, 0, controls);
            let record = client_cell(&mut session, self.plan, &mut || false)?;
            Ok((record, device.attr().notes.clone()))
        });
        for connection in &mut connections {
            connection.send(&Word::Bye)?;
        }
        result
    }

    /// A rank led by the client. Errors here are reported by the client.
    fn serve(&self, own: &Node, client: &Node, queues: [Arc<MessageQueue>; 2]) {
        let host = own.host();
        let [from, to] = &queues;
        let device = fabric::open(&self.device, &host);
        let mut connection = self.connection(own, client, (from, to), device.as_ref().ok());
        let Ok(Word::Begin { cell, rank }) = connection.receive() else { return };
        match device {
            Ok(device) => {
                let stage = Self { cell, ..self.clone() };
                let mut session = stage.session(&host, &device, rank, vec![&mut connection]);
                // The client learns of the error, unless the client itself is lost.
                let _ = serve_cell(&mut session);
            }
            Err(why) => {
                let _ = connection.send(&Word::Failed { why: why.to_string(), local: true });
            }
        }
    }

    /// The control connection of rank `own` to `peer`, on two queues that both share.
    fn connection(
        &self,
        own: &Node,
        peer: &Node,
        (inbox, outbox): (&Arc<MessageQueue>, &Arc<MessageQueue>),
        device: Option<&Device>,
    ) -> SimulatedControl {
        let addr = device.and_then(|d| d.attr().port_addrs.first().copied());
        SimulatedControl {
            own: own.clone(),
            host: own.host(),
            peer: peer.clone(),
            inbox: inbox.clone(),
            outbox: outbox.clone(),
            addr: addr.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST)),
            // Longer than any wait of an experiment, which then says what it was.
            patience: Span::from_ms(self.settings.patience_ms) * 10,
        }
    }

    /// The session of a rank.
    fn session<'a>(
        &'a self,
        host: &'a Host,
        device: &'a Device,
        rank: u32,
        controls: Vec<&'a mut dyn Control>,
    ) -> Session<'a> {
        let (cell, settings) = (&self.cell, &self.settings);
        Session {
            host,
            device,
            rails: &self.rails,
            rank,
            controls,
            cell,
            settings,
            against: None,
            gauge: &|| None,
            failed: Vec::new(),
            bounds: Bounds::default(),
            until: None,
        }
    }
}

/// Messages in one direction of a control connection, each with the time from which on it can be received.
type MessageQueue = Mutex<VecDeque<(Time, Word)>>;

/// The control connection of a simulated rank.
struct SimulatedControl {
    own: Node,
    host: Host,
    peer: Node,
    inbox: Arc<MessageQueue>,
    outbox: Arc<MessageQueue>,
    addr: IpAddr,
    patience: Span,
}

impl Control for SimulatedControl {
    fn send(&mut self, word: &Word) -> Result<(), Fault> {
        let message = (self.host.now(), word.clone());
        self.outbox.lock().unwrap_or_else(PoisonError::into_inner).push_back(message);
        self.peer.signal();
        Ok(())
    }

    fn receive(&mut self) -> Result<Word, Fault> {
        let first_arrived = || {
            self.own.sync();
            let mut inbox = self.inbox.lock().unwrap_or_else(PoisonError::into_inner);
            let has_arrived = inbox.front().is_some_and(|(from, _)| *from <= self.host.now());
            if has_arrived { inbox.pop_front().map(|(_, word)| word) } else { None }
        };
        let deadline = self.host.after(self.patience);
        self.host
            .wait("the control connection", &EventCount::new(), deadline, first_arrived)
            .ok_or_else(|| Fault::Control("the other side sends nothing".into()))
    }

    fn local_ip(&self) -> IpAddr {
        self.addr
    }

    fn peer_ip(&self) -> IpAddr {
        IpAddr::V4(Ipv4Addr::UNSPECIFIED)
    }

    /// Simulated machines share nothing.
    fn neighbour(&self) -> Option<u32> {
        None
    }
}
