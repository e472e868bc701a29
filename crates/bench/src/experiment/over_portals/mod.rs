//! `portals-latency`, `portals-bandwidth`, `portals-post`, `portals-collective`, `portals-availability`: a small MPI
//! over Portals whose matching is a program of the NIC ([`verbs::Firmware`]), or of the kernel if a modelled card is
//! configured so. The experiments of the accelerated Portals on SeaStar.
//!
//! | file | contents |
//! |---|---|
//! | `port` | a process: receives, eager sends, unexpected messages |
//! | `pair` | messages between two ranks, and the breakdown of their time |
//! | `posting` | the cost of posting |
//! | `collective` | collective operations, as the Pallas benchmarks time them |
//! | `overlap` | messages to a process that computes |

mod collective;
mod overlap;
mod pair;
mod port;
mod posting;

use collectives::CollKind as Kind;

use super::harness::contract::level;
use super::harness::variants::over;
use super::{Axis, Cell, Experiment, Fault, Metric, Needs, Sampling, Scale, Session, Settings, Side};
use collective::Call;
use overlap::{Overlap, Wanted};
use pair::{Flow, Pair};
use posting::{How, Posting};
use results::variant::{Variant, factor, variant};

const QUEUES: Axis = Axis {
    factor: factor::QUEUES,
    low: 0,
    high: 10_000,
    about: "receives that a message passes before it matches its own",
};
const RANKS: Axis =
    Axis { factor: factor::RANKS, low: 2, high: 65_536, about: "ranks of the job; each is really there" };

/// Quantities of a ping-pong reported in addition to its time.
const LIBRARY: &str = "library";
const INTERRUPTS: &str = "interrupts";
const TIME: &str = "time";
const ORDERS: &str = "orders";
const UNEXPECTED: &str = "unexpected";
const SHARE: &str = "share";
const LOST: &str = "lost";

/// Directions of a stream.
const STREAMS: [(&str, Flow); 3] = [("uni", Flow::OneWay), ("bi", Flow::BothWays), ("late", Flow::Late)];
const POSTINGS: [(&str, How); 5] = [
    ("receive-one", How::OneCall),
    ("receive-three", How::ThreeCalls),
    ("send-ready", How::Ready),
    ("send-bound", How::Bound),
    ("nothing", How::Nothing),
];
const COLLECTIVES: [Kind; 5] = [Kind::Barrier, Kind::Allreduce, Kind::Reduce, Kind::Allgather, Kind::Bcast];

/// The timed operation of an experiment.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Workload {
    PingPong,
    Stream,
    Posting,
    Collective,
    Overlap,
}

/// A Portals experiment.
pub(super) struct OverPortals {
    name: &'static str,
    about: &'static str,
    explain: &'static str,
    workload: Workload,
    metric: Metric,
}

/// Half a round trip, and its breakdown.
pub(super) const LATENCY: OverPortals = OverPortals {
    name: "portals-latency",
    about: "one message over Portals at a time, matched by the NIC: half a round trip, and where it goes",
    explain: include_str!("../explain/portals-latency.md"),
    workload: Workload::PingPong,
    metric: Metric {
        name: "one_way_latency",
        unit: "us",
        about: "half the round trip of a ping-pong, or the part of it that a component takes",
        scale: Scale::Time(2.0),
    },
};

/// Windows of messages.
pub(super) const BANDWIDTH: OverPortals = OverPortals {
    name: "portals-bandwidth",
    about: "windows of messages over Portals, matched by the NIC, each answered",
    explain: include_str!("../explain/portals-bandwidth.md"),
    workload: Workload::Stream,
    metric: Metric {
        name: "bandwidth",
        unit: "MB/s",
        about: "bytes of the windows, of both directions, over the time from the first message to the last answer",
        scale: Scale::Bandwidth(1.0),
    },
};

/// The cost of posting a receive or a send.
pub(super) const POST: OverPortals = OverPortals {
    name: "portals-post",
    about: "what posting a receive or a send over Portals takes, and how often it goes to the card",
    explain: include_str!("../explain/portals-post.md"),
    workload: Workload::Posting,
    metric: Metric {
        name: "time_per_call",
        unit: "us",
        about: "from the call until it returns",
        scale: Scale::Time(1.0),
    },
};

/// The time of collective operations over all ranks.
pub(super) const COLLECTIVE: OverPortals = OverPortals {
    name: "portals-collective",
    about: "collective operations over Portals, matched by the NIC, call behind call",
    explain: include_str!("../explain/portals-collective.md"),
    workload: Workload::Collective,
    metric: Metric {
        name: "time_per_call",
        unit: "us",
        about: "calls one after the other behind a barrier: rank 0's time for each",
        scale: Scale::Time(1.0),
    },
};

/// The cost of messages to a process that computes.
pub(super) const AVAILABILITY: OverPortals = OverPortals {
    name: "portals-availability",
    about: "messages over Portals to a process that computes: the time it loses, by the part that matches them",
    explain: include_str!("../explain/portals-availability.md"),
    workload: Workload::Overlap,
    metric: Metric {
        name: "compute_share",
        unit: "%",
        about: "largest share of the time that the target of windows of messages can compute while they take as long as without",
        scale: Scale::Plain,
    },
};

impl OverPortals {
    /// The value of the level of a factor in the table `all`.
    fn chosen<T: Copy>(cell: &Cell, all: &[(&str, T)]) -> Result<T, Fault> {
        let text = cell.factor(factor::OP)?;
        let found = all.iter().find(|(name, _)| *name == text);
        found.map(|(_, what)| *what).ok_or_else(|| Fault::Meaningless(format!("op {text}")))
    }

    fn reading(cell: &Cell) -> Result<pair::Reading, Fault> {
        let text = cell.variant.get(factor::QUANTITY).unwrap_or(TIME);
        Ok(match text {
            TIME => pair::Reading::Time,
            LIBRARY => pair::Reading::Library,
            INTERRUPTS => pair::Reading::Interrupts,
            UNEXPECTED => pair::Reading::Unexpected,
            other => {
                let found = fabric::COMPONENTS.iter().position(|component| *component == other);
                pair::Reading::Component(
                    found.ok_or_else(|| Fault::Meaningless(format!("quantity {other}")))?,
                )
            }
        })
    }

    fn job(variant: &Variant) -> u32 {
        variant.get(RANKS.factor).and_then(|text| text.parse().ok()).unwrap_or(2)
    }
}

impl Experiment for OverPortals {
    fn name(&self) -> &'static str {
        self.name
    }

    fn about(&self) -> &'static str {
        self.about
    }

    fn explain(&self) -> &'static str {
        self.explain
    }

    fn variants(&self, quick: bool) -> Vec<Variant> {
        let quantity = |name: &str| variant(&[(factor::QUANTITY, name)]);
        match self.workload {
            Workload::PingPong if quick => vec![quantity(TIME)],
            Workload::PingPong => {
                let parts = [TIME, LIBRARY, INTERRUPTS].into_iter().chain(fabric::COMPONENTS);
                let behind_queues = ["10", "100"].map(|level| quantity(TIME).with(QUEUES.factor, level));
                parts.map(quantity).chain(behind_queues).collect()
            }
            Workload::Stream => {
                let stream = |(name, flow)| {
                    let op = variant(&[(factor::OP, name)]);
                    if flow == Flow::Late { op.with(factor::QUANTITY, UNEXPECTED) } else { op }
                };
                STREAMS.map(stream).into()
            }
            Workload::Posting => {
                let postings = POSTINGS.map(|(name, _)| variant(&[(factor::OP, name)]));
                over(&postings, factor::QUANTITY, if quick { &[TIME] } else { &[TIME, ORDERS] })
            }
            Workload::Overlap => [SHARE, LOST].map(quantity).into(),
            Workload::Collective => {
                let kinds = COLLECTIVES.map(|kind| variant(&[(factor::OP, kind.name())]));
                over(&kinds, RANKS.factor, if quick { &["16"] } else { &["4", "16", "64"] })
            }
        }
    }

    fn usual_sizes(&self, _quick: bool) -> Option<&'static [u64]> {
        match self.workload {
            Workload::Collective => Some(&[16]),
            Workload::Posting => Some(&[1024]),
            _ => None,
        }
    }

    fn axes(&self) -> &'static [Axis] {
        match self.workload {
            Workload::PingPong => &[QUEUES],
            Workload::Collective => &[RANKS],
            _ => &[],
        }
    }

    fn crowd(&self) -> Option<&'static Axis> {
        (self.workload == Workload::Collective).then_some(&RANKS)
    }

    fn needs(&self, cell: &Cell, _settings: &Settings) -> Needs {
        let ranks = u64::from(self.ranks(&cell.variant));
        Needs { bytes: ranks * (64 * cell.size + (256 << 10)), processes: ranks, ..Needs::default() }
    }

    fn possible(&self, device: &verbs::Device) -> Result<(), Fault> {
        match device.attr().firmware {
            Some(_) => Ok(()),
            None => {
                let (device, what) = (device.name().to_owned(), "code that the NIC runs");
                Err(verbs::Error::Unsupported { device, what }.into())
            }
        }
    }

    fn metric(&self, variant: &Variant) -> Metric {
        let plain = |unit, about| Metric { unit, about, scale: Scale::Plain, ..self.metric };
        match (self.workload, variant.get(factor::QUANTITY).unwrap_or(TIME)) {
            (Workload::Overlap, LOST) => {
                let metric = plain("us", "what a message takes from a process that computes when it comes");
                Metric { name: "lost_per_message", ..metric }
            }
            (Workload::PingPong, INTERRUPTS) => plain("1", "interrupts that a message waits for"),
            (Workload::Stream, UNEXPECTED) => {
                plain("1", "messages of a window that came before their receive")
            }
            (Workload::Posting, ORDERS) => plain("1", "orders that go to whoever runs the program"),
            (Workload::PingPong, TIME) => self.metric,
            (Workload::PingPong, _) => Metric { scale: Scale::Time(1.0), ..self.metric },
            (Workload::Stream, _) if variant.is(factor::OP, STREAMS[1].0) => {
                Metric { scale: Scale::Bandwidth(2.0), ..self.metric }
            }
            _ => self.metric,
        }
    }

    fn ranks(&self, variant: &Variant) -> u32 {
        match self.workload {
            Workload::PingPong | Workload::Stream | Workload::Overlap => 2,
            Workload::Posting => 1,
            Workload::Collective => Self::job(variant),
        }
    }

    fn sampling(&self, variant: &Variant) -> Sampling {
        match self.workload {
            // With hundreds of ranks one sample suffices.
            Workload::Collective if Self::job(variant) > 256 => Sampling::ONCE,
            Workload::Overlap => Sampling::ONCE,
            Workload::Collective | Workload::Stream => Sampling::LONG,
            // Counts are per operation.
            _ if matches!(variant.get(factor::QUANTITY), Some(INTERRUPTS | ORDERS)) => Sampling::LONG,
            _ => Sampling::default(),
        }
    }

    fn prepare(&self, session: &mut Session<'_>) -> Result<Box<dyn Side>, Fault> {
        self.possible(session.device)?;
        let cell = session.cell;
        Ok(match self.workload {
            Workload::PingPong => {
                let behind = if cell.variant.has(QUEUES.factor) { level(cell, &QUEUES)? } else { 0 };
                let reading = Self::reading(cell)?;
                Box::new(Pair::prepare(session, Flow::PingPong { behind }, reading)?)
            }
            Workload::Stream => {
                let flow = Self::chosen(cell, &STREAMS)?;
                Box::new(Pair::prepare(session, flow, Self::reading(cell)?)?)
            }
            Workload::Overlap => {
                let wanted = match cell.factor(factor::QUANTITY)? {
                    SHARE => Wanted::Share,
                    LOST => Wanted::Lost,
                    other => return Err(Fault::Meaningless(format!("quantity {other}"))),
                };
                Box::new(Overlap::prepare(session, wanted)?)
            }
            Workload::Posting => {
                let how = Self::chosen(cell, &POSTINGS)?;
                let reading = match cell.variant.get(factor::QUANTITY) {
                    Some(ORDERS) => posting::Reading::Orders,
                    _ => posting::Reading::Time,
                };
                Box::new(Posting::prepare(session, how, reading)?)
            }
            Workload::Collective => {
                let kinds = COLLECTIVES.map(|kind| (kind.name(), kind));
                let (kind, ranks) = (Self::chosen(cell, &kinds)?, level(cell, &RANKS)?);
                Box::new(Call::prepare(session, kind, ranks)?)
            }
        })
    }
}
