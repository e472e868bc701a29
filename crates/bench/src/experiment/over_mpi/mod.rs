//! `mpi-latency`, `mpi-bandwidth`, `mpi-bibw`, `mpi-rate`, `mpi-overlap`, latency and bandwidth of `mpi-put` and `mpi-get`, and
//! `mpi-COLLECTIVE`: our MPI over the device under test, with an MPI process at each rank of the cell.
//!
//! | file | contents |
//! |---|---|
//! | `join` | how the processes find each other |
//! | `pair` | messages between pairs |
//! | `begin` | how connections are made at the start |
//! | `sided` | puts and gets |
//! | `collective` | collective operations |
//! | `outside`, `program.c` | the same in a program of C, under our library or another |

mod begin;
mod collective;
pub(super) mod join;
mod outside;
mod pair;
mod sided;

use mpi::CollKind as Kind;

use super::harness::contract::level;
use super::harness::variants::{over, placements};
use super::loops::pingpong::PingPong;
use super::loops::stream::{self, Stream};
use super::{Axis, Cell, Experiment, Fault, Metric, Needs, Sampling, Scale, Session, Settings, Side};
use begin::{Begin, COUNTS};
use collective::Call;
use outside::{LIBRARIES, Outside};
use pair::{Flow, Pair};
use results::variant::{Variant, factor, variant};
use sided::{Epochs, Sided};

const RANKS: Axis =
    Axis { factor: factor::RANKS, low: 2, high: 1024, about: "ranks of the job; each is really there" };

/// Bytes that an MPI process takes in addition to its buffers.
const PROCESS: u64 = 1 << 20;

/// Sizes for reductions, whose elements have 4 bytes.
const VECTORS: [&[u64]; 2] = [&[8, 1024, 64 << 10], &[4, 8, 64, 512, 4 << 10, 32 << 10, 256 << 10, 1 << 20]];
const BLOCKS: [&[u64]; 2] = [&[8, 1024, 64 << 10], &[1, 8, 64, 512, 4 << 10, 32 << 10, 256 << 10, 1 << 20]];

/// The timed operation of an experiment.
#[derive(Clone, Copy)]
enum What {
    Messages(Flow),
    Sided(Sided),
    Begin,
    Collective(Kind),
}

/// An MPI experiment.
pub(super) struct OverMpi {
    name: &'static str,
    about: &'static str,
    explain: &'static str,
    what: What,
    /// The sizes of a quick run and of a full one, unless they are the usual ones.
    sizes: Option<[&'static [u64]; 2]>,
    metric: Metric,
}

/// Half a round trip, as osu_latency and IMB's PingPong.
pub(super) const LATENCY: OverMpi = OverMpi {
    name: "mpi-latency",
    about: "one MPI message at a time, half a round trip; next to a send of plain verbs",
    explain: include_str!("../explain/mpi-latency.md"),
    what: What::Messages(Flow::PingPong),
    sizes: None,
    metric: Metric {
        name: "one_way_latency",
        unit: "us",
        about: "half the round trip of a ping-pong of MPI_Send and MPI_Recv, or of sends of plain verbs",
        scale: Scale::Time(2.0),
    },
};

/// Windows of messages one way, as osu_bw.
pub(super) const BANDWIDTH: OverMpi = OverMpi {
    name: "mpi-bandwidth",
    about: "windows of MPI messages one way, each answered; next to sends of plain verbs",
    explain: include_str!("../explain/mpi-bandwidth.md"),
    what: What::Messages(Flow::OneWay),
    sizes: None,
    metric: Metric {
        name: "bandwidth",
        unit: "MB/s",
        about: "bytes of the windows of a batch over the time from its first message to its last answer",
        scale: Scale::Bandwidth(1.0),
    },
};

/// Windows both ways, as osu_bibw.
pub(super) const BIBW: OverMpi = OverMpi {
    name: "mpi-bibw",
    about: "windows of MPI messages both ways at the same time; next to sends of plain verbs",
    explain: include_str!("../explain/mpi-bibw.md"),
    what: What::Messages(Flow::BothWays),
    sizes: None,
    metric: Metric {
        name: "bandwidth",
        unit: "MB/s",
        about: "bytes of both directions over the time from the first message of a batch to its last answer",
        scale: Scale::Bandwidth(2.0),
    },
};

/// Messages in a second of all pairs, as osu_mbw_mr.
pub(super) const RATE: OverMpi = OverMpi {
    name: "mpi-rate",
    about: "MPI messages in a second, of all pairs of ranks together",
    explain: include_str!("../explain/mpi-rate.md"),
    what: What::Messages(Flow::OneWay),
    sizes: Some([&[8], &[8]]),
    metric: Metric {
        name: "message_rate",
        unit: "1/s",
        about: "messages of all pairs over the time that the first pair takes for its own, once all have begun",
        scale: Scale::Rate,
    },
};

/// Overlap with computing, as IMB-NBC has it.
pub(super) const OVERLAP: OverMpi = OverMpi {
    name: "mpi-overlap",
    about: "how much of an exchange of two messages is hidden behind computing",
    explain: include_str!("../explain/mpi-overlap.md"),
    what: What::Messages(Flow::Overlap),
    sizes: Some([&[1 << 20], &[8 << 10, 64 << 10, 1 << 20, 4 << 20]]),
    metric: Metric {
        name: "overlap",
        unit: "%",
        about: "(alone + computing - both) / alone, where computing takes as long as the exchange alone did just before",
        scale: Scale::Plain,
    },
};

/// How all processes of a job are connected at its start.
pub(super) const CONNECT: OverMpi = OverMpi {
    name: "mpi-connect",
    about: "connection requests between a job's processes when all connect at the start, counted by direction",
    explain: include_str!("../explain/mpi-connect.md"),
    what: What::Begin,
    sizes: None,
    metric: Metric {
        name: "count",
        unit: "1",
        about: "requests of all ranks, answers to them, requests of the lower rank of two, or requests out of order",
        scale: Scale::Plain,
    },
};

macro_rules! sided {
    ($($(#[$doc:meta])* $constant:ident $name:literal $call:literal $is_put:literal $streams:literal, $metric:expr;)*) => {$(
        $(#[$doc])*
        pub(super) const $constant: OverMpi = OverMpi {
            name: $name,
            about: concat!($name, ": ", $call, " between two ranks, with the epochs that it needs"),
            explain: concat!(
                "# ", $name, "\n\n## What it measures\n\nOne-sided communication by ", $call, ". ",
                include_str!("../explain/mpi-sided.md")
            ),
            what: What::Sided(Sided { is_put: $is_put, streams: $streams }),
            sizes: None,
            metric: $metric,
        };
    )*};
}

/// Half of two epochs, one by each rank.
const EPOCHS: Metric = Metric {
    name: "one_way_latency",
    unit: "us",
    about: "half of two epochs, one of each rank on the other, with one operation each",
    scale: Scale::Time(2.0),
};
/// Epochs by one rank.
const WINDOWS: Metric = Metric {
    name: "bandwidth",
    unit: "MB/s",
    about: "bytes of an epoch with a window of operations, over the time until the next one can begin",
    scale: Scale::Bandwidth(1.0),
};

sided! {
    /// A put at a time.
    PUT_LATENCY "mpi-put-latency" "MPI_Put" true false, EPOCHS;
    /// A get at a time.
    GET_LATENCY "mpi-get-latency" "MPI_Get" false false, EPOCHS;
    /// Windows of puts.
    PUT_BANDWIDTH "mpi-put-bandwidth" "MPI_Put" true true, WINDOWS;
    /// Windows of gets.
    GET_BANDWIDTH "mpi-get-bandwidth" "MPI_Get" false true, WINDOWS;
}

macro_rules! collectives {
    ($($(#[$doc:meta])* $constant:ident $name:literal $kind:ident $sizes:expr, $call:literal, $moves:literal;)*) => {$(
        $(#[$doc])*
        pub(super) const $constant: OverMpi = OverMpi {
            name: $name,
            about: concat!($call, ": ", $moves),
            explain: concat!(
                "# ", $name, "\n\n## What it measures\n\nWhat a call of ", $call, " takes: ", $moves, ".\n\n",
                include_str!("../explain/mpi-collective.md")
            ),
            what: What::Collective(Kind::$kind),
            sizes: $sizes,
            metric: Metric {
                name: "time_per_call",
                unit: "us",
                about: concat!("the mean over all ranks of what ", $call, " takes from its beginning to its return; all \
                    have come to a barrier before"),
                scale: Scale::Time(1.0),
            },
        };
    )*};
}

collectives! {
    /// `MPI_Barrier`.
    BARRIER "mpi-barrier" Barrier None, "MPI_Barrier", "nobody leaves before all have come";
    /// `MPI_Bcast`.
    BCAST "mpi-bcast" Bcast Some(BLOCKS), "MPI_Bcast", "bytes of rank 0 to all";
    /// `MPI_Gather`.
    GATHER "mpi-gather" Gather Some(BLOCKS), "MPI_Gather", "a block of each rank to rank 0";
    /// `MPI_Scatter`.
    SCATTER "mpi-scatter" Scatter Some(BLOCKS), "MPI_Scatter", "a block of rank 0 to each rank";
    /// `MPI_Allgather`.
    ALLGATHER "mpi-allgather" Allgather Some(BLOCKS), "MPI_Allgather", "a block of each rank to all";
    /// `MPI_Alltoall`.
    ALLTOALL "mpi-alltoall" Alltoall Some(BLOCKS), "MPI_Alltoall", "a block of each rank to each other one";
    /// `MPI_Reduce`.
    REDUCE "mpi-reduce" Reduce Some(VECTORS), "MPI_Reduce", "the sum of all ranks' floats at rank 0";
    /// `MPI_Allreduce`.
    ALLREDUCE "mpi-allreduce" Allreduce Some(VECTORS), "MPI_Allreduce", "the sum of all ranks' floats at all";
    /// `MPI_Reduce_scatter`.
    REDUCE_SCATTER "mpi-reduce-scatter" ReduceScatter Some(VECTORS), "MPI_Reduce_scatter",
        "the sum of all ranks' floats, a part at each";
    /// `MPI_Scan`.
    SCAN "mpi-scan" Scan Some(VECTORS), "MPI_Scan", "at each rank, the sum of its floats and of those before it";
    /// `MPI_Exscan`.
    EXSCAN "mpi-exscan" Exscan Some(VECTORS), "MPI_Exscan", "at each rank, the sum of the floats of those before it";
}

/// Messages by MPI, and the same by plain verbs, which MPI cannot beat.
const LAYERS: [&str; 2] = ["mpi", "verbs"];

fn is_verbs(variant: &Variant) -> bool {
    variant.is(factor::LAYER, LAYERS[1])
}

impl OverMpi {
    fn is_rate(&self) -> bool {
        self.metric.scale == Scale::Rate
    }

    /// Number of MPI processes of a cell.
    fn job(&self, variant: &Variant) -> u32 {
        let inside = |ranks: &u32| (RANKS.low..=RANKS.high).contains(&u64::from(*ranks));
        variant.get(RANKS.factor).and_then(|text| text.parse().ok()).filter(inside).unwrap_or(2)
    }

    /// A job of a program of C under that library.
    fn start_outside(&self, session: &Session<'_>, library: &str, ranks: u32) -> Result<Outside, Fault> {
        let Some(against) = session.against else {
            return Err(Fault::Meaningless(format!(
                "MPI under a library called {library}, without --against"
            )));
        };
        let messages = match self.what {
            What::Messages(Flow::OneWay | Flow::BothWays) => {
                u64::from(session.settings.window) * u64::from(ranks / 2)
            }
            _ => 1,
        };
        Outside::start(session, against, library, (ranks, messages))
    }

    /// Plain verbs on the same device, as the experiment of that name measures them.
    fn verbs(&self, session: &mut Session<'_>) -> Result<Box<dyn Side>, Fault> {
        let placed = placements("send", &[("host", "host")]).remove(0);
        let plain = Cell { experiment: "latency".into(), variant: placed, ..session.cell.clone() };
        session.with_cell(&plain, |session| -> Result<Box<dyn Side>, Fault> {
            Ok(match self.what {
                What::Messages(Flow::PingPong) => Box::new(PingPong::prepare(session, false)?),
                What::Messages(Flow::BothWays) => Box::new(Stream::prepare(session, stream::Flow::Both)?),
                _ => Box::new(Stream::prepare(session, stream::Flow::Push)?),
            })
        })
    }
}

impl Experiment for OverMpi {
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
        let ranks: &[&str] = if quick { &["2", "4"] } else { &["2", "4", "8"] };
        match self.what {
            What::Messages(Flow::Overlap) | What::Sided(_) => vec![Variant::default()],
            What::Messages(_) if self.is_rate() => over(&[Variant::default()], RANKS.factor, ranks),
            What::Messages(flow) => {
                let mut all: Vec<Variant> = LAYERS.map(|layer| variant(&[(factor::LAYER, layer)])).into();
                if !quick && flow == Flow::PingPong {
                    all.push(variant(&[(factor::LAYER, LAYERS[0]), (factor::PATH, join::PATHS[1])]));
                }
                all
            }
            What::Collective(_) => over(&[Variant::default()], RANKS.factor, ranks),
            What::Begin => over(&over(&[Variant::default()], factor::QUANTITY, &COUNTS), RANKS.factor, ranks),
        }
    }

    fn only_size(&self, _variant: &Variant) -> Option<u64> {
        matches!(self.what, What::Collective(Kind::Barrier) | What::Begin).then_some(0)
    }

    fn usual_sizes(&self, quick: bool) -> Option<&'static [u64]> {
        self.sizes.map(|[few, all]| if quick { few } else { all })
    }

    fn axes(&self) -> &'static [Axis] {
        let has_ranks = matches!(self.what, What::Collective(_) | What::Begin) || self.is_rate();
        if has_ranks { &[RANKS] } else { &[] }
    }

    fn crowd(&self) -> Option<&'static Axis> {
        (!self.axes().is_empty()).then_some(&RANKS)
    }

    fn needs(&self, cell: &Cell, settings: &Settings) -> Needs {
        let window = u64::from(settings.window.max(1)) + 1;
        let ranks = u64::from(self.job(&cell.variant));
        let (given, got) = match self.what {
            What::Messages(_) | What::Begin => (cell.size, cell.size),
            What::Sided(what) => (cell.size, if what.streams { cell.size * window } else { cell.size }),
            What::Collective(kind) => collective::bytes(kind, cell.size, ranks),
        };
        Needs { bytes: ranks * (given + got + PROCESS), processes: ranks, ..Needs::default() }
    }

    fn metric(&self, _variant: &Variant) -> Metric {
        self.metric
    }

    fn outside(&self, quick: bool) -> Vec<Variant> {
        if matches!(self.what, What::Sided(_) | What::Begin) {
            return Vec::new();
        }
        let mut own: Vec<Variant> =
            self.variants(quick).iter().map(|variant| variant.without(&[factor::LAYER])).collect();
        own.dedup();
        over(&own, factor::LIBRARY, &LIBRARIES)
    }

    /// A job started outside has no ranks in this session.
    fn ranks(&self, variant: &Variant) -> u32 {
        if variant.has(factor::LIBRARY) { 1 } else { self.job(variant) }
    }

    fn sampling(&self, variant: &Variant) -> Sampling {
        match self.what {
            // A plain stream's operation is a burst, and a percentage is never too short to time.
            _ if is_verbs(variant) && !matches!(self.what, What::Messages(Flow::PingPong)) => Sampling::LONG,
            What::Messages(Flow::Overlap) => Sampling::LONG,
            What::Sided(Sided { streams: true, .. }) => Sampling::LONG,
            What::Begin => Sampling::ONCE,
            _ => Sampling::default(),
        }
    }

    fn prepare(&self, session: &mut Session<'_>) -> Result<Box<dyn Side>, Fault> {
        if is_verbs(&session.cell.variant) {
            return self.verbs(session);
        }
        let ranks = match session.cell.variant.has(RANKS.factor) {
            true => level(session.cell, &RANKS)?,
            false => 2,
        };
        if let Some(library) = session.cell.variant.get(factor::LIBRARY) {
            return Ok(Box::new(self.start_outside(session, library, ranks)?));
        }
        Ok(match self.what {
            What::Messages(flow) => Box::new(Pair::prepare(session, flow, ranks)?),
            What::Begin => Box::new(Begin::prepare(session, ranks)?),
            What::Sided(what) => Box::new(Epochs::prepare(session, what)?),
            What::Collective(kind) => Box::new(Call::prepare(session, kind, ranks)?),
        })
    }
}
